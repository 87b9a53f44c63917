#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""test_memory.py: what `quern serve` takes is counted, what does not fit is refused, and the refusals are true.

    test_memory.py QUERN STORY_MODEL CHAT_MODEL SLOWNESS [PREFIX_OF_CASES]

Operands and output are test_serve.py's.
"""
import concurrent.futures
import json
import subprocess
import time

from test_serve import CHAT, CHAT_ASK, LIMIT, LONG, QUERN, SLOWNESS, STORY, STORY_ASK, Server, check, main, refused, slow

CLASSES = ("weight", "kv", "buffer", "scheduler", "cache", "request", "connection", "program")
LITTLE = ("--memory", "200M")  # for requests the least there is: 64 MiB


def memory(s):
    return s.get("/v1/memory").json


def high_water(s):
    with open(f"/proc/{s.process.pid}/status") as f:
        return 1024 * next(int(line.split()[1]) for line in f if line.startswith("VmHWM"))


def waits_until(holds):
    end = time.monotonic() + LIMIT
    while not holds() and time.monotonic() < end:
        time.sleep(0.01)
    return holds()


def test_the_ledger_adds_up():
    s = Server(CHAT, "--ctx", "512")
    m = memory(s)
    check(m["used_bytes"] == sum(m[c + "_bytes"] for c in CLASSES), m)
    check(m["used_bytes"] <= m["budget_bytes"] and m["kv_touched_bytes"] == 0, m)
    for name in CLASSES + ("used", "budget", "resident"):
        check(s.metric(f"memory_{name}_bytes") > 0 or name in ("cache", "request"), name)
    idle = m["request_bytes"]
    for stream in (False, True):
        s.post("/v1/chat/completions", {**CHAT_ASK, "stream": stream, "logprobs": True, "top_logprobs": 20, "max_tokens": 100})
        s.post("/v1/chat/completions", {**CHAT_ASK, "stream": stream, "wrong": 1})
    s.post("/v1/embeddings", {"input": ["a", "b"]})
    s.post("/tokenize", {"content": "x" * 100000})
    s.post("/v1/completions", b"[" * 3000)
    check(waits_until(lambda: memory(s)["request_bytes"] == idle), "all is given back", idle, memory(s))
    m = memory(s)
    check(m["used_bytes"] == sum(m[c + "_bytes"] for c in CLASSES) and m["cache_bytes"] > 0, m)
    page = m["kv_bytes"] // m["kv_pages"]
    check(m["kv_touched_bytes"] > 0 and m["kv_touched_bytes"] % page == 0, m)
    s.stop()


def test_a_waiting_request_keeps_its_document_not_its_body():
    s = Server(STORY, "--parallel", "8", "--sessions", "8")
    held = s.raw("/v1/completions", slow(s))
    s.wait_for("requests_running", 1)
    idle = memory(s)["request_bytes"]
    waiting = s.connect()
    body = json.dumps({**STORY_ASK, "logit_bias": {str(i): 1 for i in range(1000)}}) + " " * 1000000
    waiting.request("POST", "/v1/completions", body, {"Content-Type": "application/json"})
    s.wait_for("requests_queued", 1)
    more = memory(s)["request_bytes"] - idle
    check(50000 < more < 500000, "a document of a thousand members", more)
    held.close()
    waiting.close()
    check(waits_until(lambda: memory(s)["request_bytes"] < idle), "given back")
    s.stop()


def test_a_document_larger_than_the_memory_is_refused_for_good():
    """2 bytes of an empty object become a hundred."""
    s = Server(CHAT, *LITTLE, "--ctx", "512")
    before = high_water(s)
    bomb = b'{"messages":[{"role":"user","content":"x"}],"chat_template_kwargs":{"x":[' + b"{}," * 1500000 + b"{}]}}"
    for target in ("/v1/chat/completions", "/v1/embeddings", "/tokenize", "/v1/messages", "/v1/chat/render"):
        r = s.post(target, bomb)
        check(r.status == 413 and (r.error().get("code") == "request_too_large" or target == "/v1/messages"), target, r.body)
    check(SLOWNESS > 1 or high_water(s) - before < 128 << 20, "memory taken", high_water(s) - before)
    check(s.post("/v1/chat/completions", CHAT_ASK).status == 200, "and serves")
    s.stop()


def test_many_large_requests_are_served_or_told_to_come_again():
    s = Server(CHAT, *LITTLE, "--ctx", "512")
    before = high_water(s)
    # A document of some 10 MB, in a body of half a megabyte: eight are more than there is.
    large = json.dumps({**CHAT_ASK, "max_tokens": 200, "ignore_eos": True,
                        "chat_template_kwargs": {"x": [1] * 200000}}).replace(" ", "").encode()
    with concurrent.futures.ThreadPoolExecutor(12) as pool:
        answers = list(pool.map(lambda _: s.post("/v1/chat/completions", large), range(24)))
    counts = {c: sum(a.status == c for a in answers) for c in {a.status for a in answers}}
    check(set(counts) == {200, 503}, counts)
    for a in answers:
        check(a.status != 503 or a.error()["code"] == "no_memory" and int(a.headers["Retry-After"]) >= 1, a.body, a.headers)
    check(SLOWNESS > 1 or high_water(s) - before < 160 << 20, "memory taken", high_water(s) - before)
    check(s.post("/v1/chat/completions", large).status == 200, "later it is served")
    s.stop()


def test_large_texts_and_long_answers_are_counted():
    s = Server(STORY, *LITTLE)
    before = high_water(s)
    r = s.post("/tokenize", {"content": "a b" * 1000000})
    check(r.status == 413 and r.error()["code"] == "request_too_large", r.status, r.body[:200])
    few = s.post("/tokenize", {"content": "a b" * 100000})
    check(few.status == 200 and few.json["count"] > 100000, few.status, few.body[:200])
    # Small ids of long texts.
    [longest] = s.post("/tokenize", {"content": " information", "add_special": False}).json["tokens"][-1:]
    body = b'{"tokens":[' + f"{longest},".encode() * 2000000 + f"{longest}".encode() + b"]}"
    r = s.post("/detokenize", body)
    check(r.status in (413, 503) and r.json["error"]["code"] in ("no_memory", "request_too_large"), r.status, r.body[:200])
    check(SLOWNESS > 1 or high_water(s) - before < 128 << 20, "memory taken", high_water(s) - before)
    check(s.get("/health").status == 200, "and lives")
    s.stop()


def test_what_never_fits_is_400_and_what_does_not_fit_now_waits():
    s = Server(STORY, "--parallel", "8", "--sessions", "2", "--ctx", "256")  # 8 pages of 64
    refused(s.post("/v1/completions", {**STORY_ASK, "max_tokens": 253}), 400, "context_length_exceeded")
    refused(s.post("/v1/completions", {**LONG, "n": 8}), 400, "context_length_exceeded", None, "pages")
    refused(s.post("/v1/completions", {**STORY_ASK, "n": 9}), 400, "invalid_value", None, "9 answers")
    # Each takes 2 * 4 pages: all there are. Together they wait for each other.
    ask = {**STORY_ASK, "n": 2, "max_tokens": 240, "ignore_eos": True, "temperature": 1, "logprobs": 1}
    alone = [[c["logprobs"] for c in s.post("/v1/completions", {**ask, "seed": i}).json["choices"]] for i in range(4)]
    with concurrent.futures.ThreadPoolExecutor(4) as pool:
        both = list(pool.map(lambda i: s.post("/v1/completions", {**ask, "seed": i}), range(4)))
    check(all(a.status == 200 for a in both), [a.status for a in both])
    check([[c["logprobs"] for c in a.json["choices"]] for a in both] == alone, "and are answered as alone")
    s.stop()


def test_retry_after_is_about_the_time_it_takes():
    """From the refusal to the next end of a request, which makes a place: told is that time, within the pace's changes."""
    s = Server(STORY, "--parallel", "1", "--sessions", "1", "--queue", "1", "--ctx", "256", "--cpu", "ref")  # slow: seconds
    ask = {**LONG, "max_tokens": 60 if SLOWNESS == 1 else 10, "ignore_eos": True}
    n_tries = 4 if SLOWNESS == 1 else 2
    told, took = [], []
    with concurrent.futures.ThreadPoolExecutor(3) as pool:
        keep = [pool.submit(refill, s, ask, 4 + n_tries) for _ in range(3)]
        waits_until(lambda: s.metric('requests_total{finish="length"}') >= 2)  # so that the pace is known
        while len(told) < n_tries and not all(k.done() for k in keep):
            r = s.post("/v1/completions", ask)
            if r.status == 429:
                start, n = time.monotonic(), s.metric("requests_submitted_total")
                told.append(int(r.headers["Retry-After"]))
                waits_until(lambda: s.metric("requests_submitted_total") > n)
                took.append(time.monotonic() - start)
        for k in keep:
            k.result()
    print("    told", told, "took", [round(t, 2) for t in took])
    check(len(told) == n_tries and all(t >= 1 for t in told), told)
    check(0.3 * sum(took) <= sum(told) <= 3 * sum(took) + n_tries, told, took)
    s.stop()


def refill(s, ask, n):
    """Keeps the queue full, politely."""
    for _ in range(n):
        while s.post("/v1/completions", ask).status == 429:
            time.sleep(0.02)


def test_too_little_memory_is_said_before_anything_is_served():
    for size, status in (("40M", 75), ("1.5", 64)):
        r = subprocess.run([QUERN, "serve", STORY, "--listen", "127.0.0.1:0", "--memory", size], capture_output=True, timeout=LIMIT)
        check(r.returncode == status, size, r)
    r = subprocess.run([QUERN, "serve", STORY, "--listen", "127.0.0.1:0", "--memory", "0.1G"], capture_output=True, timeout=LIMIT)
    check(r.returncode == 75 and b"others" in r.stderr and b"budget is 107374182 bytes" in r.stderr, r)


if __name__ == "__main__":
    main(globals())
