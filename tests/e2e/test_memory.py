#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""test_memory.py: tests that `quern serve` counts its memory, refuses what does not fit, and gives the true reason.

    test_memory.py QUERN STORY_MODEL CHAT_MODEL SLOWNESS [PREFIX_OF_CASES]

test_serve.py describes the arguments and the output.
"""
import concurrent.futures
import json
import subprocess
import time

from lib.cases import check, until
from test_serve import CHAT, CHAT_ASK, LIMIT, LONG, QUERN, SLOWNESS, STORY, STORY_ASK, Server, main, refused, slow

CLASSES = ("weight", "kv", "state", "buffer", "scheduler", "cache", "table", "request", "connection", "program")
LITTLE = ("--memory", "200M")  # for requests the least there is: 64 MiB


def memory(s):
    return s.get("/v1/memory").json


def high_water(s):
    with open(f"/proc/{s.process.pid}/status") as f:
        return 1024 * next(int(line.split()[1]) for line in f if line.startswith("VmHWM"))


def test_the_ledger_adds_up():
    s = Server(CHAT, "--ctx", "512")
    m = memory(s)
    check(m["used_bytes"] == sum(m[c + "_bytes"] for c in CLASSES), m)
    check(m["used_bytes"] <= m["budget_bytes"] and m["kv_touched_bytes"] == 0, m)
    for name in CLASSES + ("used", "budget", "resident"):
        check(s.metric(f"memory_{name}_bytes") > 0 or name in ("cache", "request", "state") or
              name == "table" and SLOWNESS > 1, name)  # a sanitizer's allocator does not say
    idle = m["request_bytes"]
    for stream in (False, True):
        s.post("/v1/chat/completions", {**CHAT_ASK, "stream": stream, "logprobs": True, "top_logprobs": 20, "max_tokens": 100})
        s.post("/v1/chat/completions", {**CHAT_ASK, "stream": stream, "wrong": 1})
    s.post("/v1/embeddings", {"input": ["a", "b"]})
    s.post("/tokenize", {"content": "x" * 100000})
    s.post("/v1/completions", b"[" * 3000)
    check(until(LIMIT, lambda: memory(s)["request_bytes"] == idle), "all is given back", idle, memory(s))
    m = memory(s)
    check(m["used_bytes"] == sum(m[c + "_bytes"] for c in CLASSES) and m["cache_bytes"] > 0, m)
    page = m["kv_bytes"] // m["models"][0]["kv_pages"]
    check(m["kv_touched_bytes"] > 0 and m["kv_touched_bytes"] % page == 0, m)
    s.stop()


def test_a_waiting_request_does_not_keep_its_body():
    s = Server(STORY, "--parallel", "8", "--sessions", "8")
    held = s.raw("/v1/completions", slow(s))
    s.wait_for("requests_running", 1)
    idle = memory(s)["request_bytes"]
    waiting = s.connect()
    waiting.request("POST", "/v1/completions", json.dumps(STORY_ASK) + " " * 1000000, {"Content-Type": "application/json"})
    s.wait_for("requests_queued", 1)
    more = memory(s)["request_bytes"] - idle
    check(0 < more < 50000, "little of a megabyte", more)
    held.close()
    waiting.close()
    check(until(LIMIT, lambda: memory(s)["request_bytes"] < idle), "given back")
    s.stop()


def test_many_large_bodies_are_read_or_told_to_come_again():
    s = Server(STORY, *LITTLE, "--ctx", "128")
    before = high_water(s)
    large = json.dumps({**STORY_ASK, "prompt": "x" * (12 << 20)}).encode()
    with concurrent.futures.ThreadPoolExecutor(12) as pool:
        answers = list(pool.map(lambda _: s.post("/v1/completions", large), range(24)))
    codes = {(a.status, a.error()["code"]) for a in answers}
    check(codes <= {(400, "context_length_exceeded"), (503, "no_memory")} and (503, "no_memory") in codes, codes)
    check(all(int(a.headers["Retry-After"]) >= 1 for a in answers if a.status == 503), "when to come again")
    # Beside what is counted, two workers read documents: a body's text in two copies, while one grows.
    check(SLOWNESS > 1 or high_water(s) - before < 256 << 20, "memory taken", high_water(s) - before)
    refused(s.post("/v1/completions", large), 400, "context_length_exceeded", "prompt")
    s.stop()


def test_large_texts_are_counted_before_they_are_tokens():
    s = Server(STORY, *LITTLE)
    before = high_water(s)
    r = s.post("/tokenize", {"content": "a b" * 1000000})
    check(r.status == 413 and r.error()["code"] == "request_too_large", r.status, r.body[:200])
    few = s.post("/tokenize", {"content": "a b" * 100000})
    check(few.status == 200 and few.json["count"] > 100000, few.status, few.body[:200])
    check(SLOWNESS > 1 or high_water(s) - before < 128 << 20, "memory taken", high_water(s) - before)
    check(s.get("/health").status == 200, "and lives")
    s.stop()


def test_what_never_fits_is_400_and_what_does_not_fit_now_waits():
    s = Server(STORY, "--parallel", "8", "--sessions", "2", "--ctx", "128")  # 4 pages of 64
    refused(s.post("/v1/completions", {**STORY_ASK, "prompt": "word " * 128}), 400, "context_length_exceeded", "prompt")
    many = s.post("/v1/completions", {**LONG, "max_tokens": 100, "n": 8}).json  # more pages than there are: they take turns
    check(len(many["choices"]) == 8 and all(c["finish_reason"] for c in many["choices"]), many)
    refused(s.post("/v1/completions", {**STORY_ASK, "n": 9}), 400, "invalid_value", None, "9 answers")
    # Each takes 2 * 2 pages: all there are. Together they wait for each other, or give way.
    ask = {**STORY_ASK, "n": 2, "max_tokens": 100, "ignore_eos": True, "temperature": 1, "logprobs": 1}
    alone = [[c["logprobs"] for c in s.post("/v1/completions", {**ask, "seed": i}).json["choices"]] for i in range(4)]
    with concurrent.futures.ThreadPoolExecutor(4) as pool:
        both = list(pool.map(lambda i: s.post("/v1/completions", {**ask, "seed": i}), range(4)))
    check(all(a.status == 200 for a in both), [a.status for a in both])
    check([[c["logprobs"] for c in a.json["choices"]] for a in both] == alone, "and are answered as alone")
    s.stop()


def test_retry_after_is_about_the_time_it_takes():
    """From the refusal to the next end of a request, which makes a place: told is that time, within the pace's changes."""
    s = Server(STORY, "--parallel", "1", "--sessions", "1", "--queue", "1", "--ctx", "256", "--cpu", "ref")  # slow: seconds
    ask = {**LONG, "max_tokens": 20 if SLOWNESS == 1 else 5, "ignore_eos": True}
    n_tries = 3 if SLOWNESS == 1 else 2
    told, took = [], []
    with concurrent.futures.ThreadPoolExecutor(3) as pool:
        keep = [pool.submit(refill, s, ask, 4 + n_tries) for _ in range(3)]
        until(LIMIT, lambda: s.metric('requests_total{model="m",finish="length"}') >= 2)  # so that the pace is known
        while len(told) < n_tries and not all(k.done() for k in keep):
            r = s.post("/v1/completions", ask)
            if r.status == 429:
                start, n = time.monotonic(), s.metric("requests_submitted_total")
                told.append(int(r.headers["Retry-After"]))
                until(LIMIT, lambda: s.metric("requests_submitted_total") > n)
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
    check(r.returncode == 75 and b"budget is" in r.stderr, r)


if __name__ == "__main__":
    main(globals())
