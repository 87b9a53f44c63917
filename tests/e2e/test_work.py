#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""test_work.py: tests that the workers' time for a request is linear in its body, whatever is in it, and that they stop
when nobody waits for the answer.

    test_work.py QUERN STORY_MODEL CHAT_MODEL SLOWNESS HANG_PROBE LARGEST [PREFIX_OF_CASES]

HANG_PROBE is the module made of probe/hang_probe.c, or "none". LARGEST is the size of the largest body in MB. 16 is the most
that a request may have, and takes minutes.

test_serve.py describes the other arguments and the output. Time is the daemon's own CPU time, so other programs on the
machine do not matter.
"""
import concurrent.futures
import hashlib
import http.client
import json
import os
import signal
import subprocess
import sys
import time

HANG_PROBE = sys.argv.pop(5)
LARGEST = int(sys.argv.pop(5))

from lib.cases import Skipped, check, started, until
from lib.files import linked, path
from test_serve import CHAT, QUERN, SLOWNESS, STORY, Answer, Server, main, refused
import test_serve as base

# Meson has the C library fill what is freed, also the whole free rest of the heap when a buffer grows into it.
os.environ.pop("MALLOC_PERTURB_", None)
base.LIMIT = 600 * SLOWNESS  # seconds on the clock, which say nothing here: the machine may be busy

MB = 1 << 20
SIZES = [LARGEST * MB // 16, LARGEST * MB - 4096]
HALVES = [size // 2 for size in SIZES] if LARGEST == 16 else SIZES
# Sixteen times the body takes sixteen times the time, and more where it leaves the CPU's caches and where pages are new; in
# a square it would be 256 times. The limit is a quarter of that. The constant: a daemon's other threads.
FACTOR, CONSTANT = 64, 0.1 * SLOWNESS
ROOMY = ("--memory", "17G")  # a sixteenth is for requests: the largest body there is has its tokens made
EACH = 128                   # bytes of the small things in lists: 131,072 objects fill the largest body


def cpu(s):
    """Seconds that the daemon has computed, by the clock that clock_getcpuclockid() names."""
    return time.clock_gettime(~s.process.pid << 3 | 2)


def words(n):
    return ("The quick brown fox jumps over 12 lazy dogs, and ü is no u. " * (n // 61 + 1)).encode()[:n].decode(errors="ignore")


def filled(n, one):
    """So many copies of one as n bytes have room for, each brought to EACH bytes where that is more."""
    text = json.dumps(one)
    pad = max(0, EACH - len(text) - 2)
    text = text.replace("PAD", words(pad).replace('"', "")[:pad] if pad else "x")
    size = len(text.encode()) + 2
    return [json.loads(text)] * min(n // size, 131000 // max(1, text.count("{")))


def chat(*messages, **more):
    return {"messages": list(messages), "max_tokens": 1, **more}


def user(content):
    return {"role": "user", "content": content}


def call(k):
    return {"id": f"c{k}", "type": "function", "function": {"name": "f", "arguments": '{"a":1}'}}


def answers_and_results(n):
    m = []
    for k in range(min(n // 600, 26000)):
        m += [{"role": "assistant", "content": "", "tool_calls": [call(k)]}, {"role": "tool", "tool_call_id": f"c{k}", "content": words(400)}]
    return [user("go")] + m


MARK = "<|im_start|>user\n"
TEXTS = {
    "words": words,
    "letters": lambda n: "a" * n,
    "spaces": lambda n: " " * (n - 1) + "x",
    "lines": lambda n: "\n" * n,
    "digits": lambda n: "7" * n,
    "marks": lambda n: "<|im_start|>" * (n // 12),
    "beginnings of marks": lambda n: "<" * n,
    "signs": lambda n: "=-!." * (n // 4),
    "letters of three bytes": lambda n: "語" * (n // 3),
}
TOOL = {"type": "function", "function": {"name": "f", "description": "PAD", "parameters": {}}}
CHATS = {
    "messages": lambda n: chat(*filled(n, user("PAD"))),
    "messages of two sides": lambda n: chat(*[m if i % 2 else {**m, "role": "assistant"} for i, m in enumerate(filled(n, user("PAD")))], user("x")),
    "messages of marks": lambda n: chat(*filled(n, user("<|im_end|><|im_start|>system PAD"))),
    "parts": lambda n: chat(user(filled(n, {"type": "text", "text": "PAD"}))),
    "tools": lambda n: chat(user("x"), tools=filled(n, TOOL)[:1024] if n < MB // 2 else [
        {"type": "function", "function": {"name": f"f{i}", "description": words(n // 1100)}} for i in range(1024)]),
    "calls": lambda n: chat(*answers_and_results(n)),
    "calls of one message": lambda n: chat({"role": "assistant", "content": "", "tool_calls": [call(k) for k in range(min(n // 100, 60000))]}, user("x")),
    "documents": lambda n: chat(user("x"), documents=filled(n, {"title": "t", "text": "PAD"})),
    "a template's variables": lambda n: chat(user("x"), chat_template_kwargs={f"k{i}": "v" for i in range(n // 16)}),
}
BLOCKS = {
    "blocks": lambda n: {"messages": [user(filled(n, {"type": "text", "text": "PAD"}))], "max_tokens": 1},
    "one text": lambda n: {"messages": [user(words(n))], "max_tokens": 1},
    "system": lambda n: {"messages": [user("x")], "system": filled(n, {"type": "text", "text": "PAD"}), "max_tokens": 1},
    "results": lambda n: {"messages": [user(filled(n, {"type": "tool_result", "tool_use_id": "t", "content": "PAD"}))], "max_tokens": 1},
    "blocks of a result": lambda n: {"messages": [user([{"type": "tool_result", "tool_use_id": "t", "content": filled(n, {"type": "text", "text": "PAD"})}])], "max_tokens": 1},
    "uses": lambda n: {"messages": [{"role": "assistant", "content": filled(n, {"type": "tool_use", "id": "t", "name": "f", "input": {"a": "PAD"}})}, user("x")], "max_tokens": 1},
    "thoughts": lambda n: {"messages": [{"role": "assistant", "content": filled(n, {"type": "thinking", "thinking": "PAD", "signature": ""})}, user("x")], "max_tokens": 1},
    "messages": lambda n: {"messages": filled(n, user("PAD")), "max_tokens": 1},
    "tools": lambda n: {"messages": [user("x")], "tools": filled(n, {"name": "f", "description": "PAD", "input_schema": {}}), "max_tokens": 1},
}
ITEMS = {
    "items": lambda n: {"input": filled(n, user("PAD"))},
    "parts": lambda n: {"input": [user(filled(n, {"type": "input_text", "text": "PAD"}))]},
    "calls": lambda n: {"input": filled(n, {"type": "function_call", "call_id": "c", "name": "f", "arguments": "{}", "id": "PAD"}) + [user("x")]},
    "outputs": lambda n: {"input": filled(n, {"type": "function_call_output", "call_id": "c", "output": "PAD"})},
    "thoughts": lambda n: {"input": filled(n, {"type": "reasoning", "content": [{"type": "reasoning_text", "text": "PAD"}]}) + [user("x")]},
    "tools": lambda n: {"input": "x", "tools": filled(n, {"type": "function", "name": "f", "description": "PAD", "parameters": {}})},
}


def numbers(n, each=16):
    """n bytes of token ids, of which there may be a million."""
    return b"[" + b",".join([b"1." + b"0" * (each - 3)] * (n // each)) + b"]"


def post(s, target, body):
    """As s.post, but that the answer, which may have a million numbers, is not held against the description."""
    c = s.connect()
    c.request("POST", target, body if isinstance(body, bytes) else json.dumps(body).encode(), {"Content-Type": "application/json"})
    answer = Answer(c.getresponse())
    c.close()
    return answer


def answer_to(c):
    """Of what was sent on a socket."""
    r = http.client.HTTPResponse(c, method="POST")
    r.begin()
    answer = Answer(r)
    c.close()
    return answer


def time_of(s, what, target, make, size):
    """Sends a body of about this size. Returns the seconds it takes, and how it was answered."""
    body = make(size)
    body = body if isinstance(body, bytes) else json.dumps(body, ensure_ascii=False, separators=(",", ":")).encode()
    check(len(body) <= 16 * MB, what, "does not fit", len(body))
    before = cpu(s)
    r = post(s, target, body)
    took = cpu(s) - before
    check(r.status in (200, 400), target, what, size, r.status, r.body[:200])
    return took, f"{r.status} {r.error().get('code') if r.status != 200 else ''}"


def is_linear(took):
    return took[1] <= FACTOR * took[0] + CONSTANT


def linear(s, what, target, make, sizes):
    """Sends bodies of these sizes. A busy machine adds to the time of some, but not each time: the least of three counts."""
    best = None
    for _ in range(3):
        times = [time_of(s, what, target, make, size) for size in sizes]
        took = [t for t, _ in times]
        print(f"    {target} {what}:", " ".join(f"{t:.2f}" for t in took), "s,", times[-1][1], flush=True)
        best = [min(pair) for pair in zip(best or took, took)]
        if is_linear(best):
            return
    check(False, target, what, "is not linear:", best)


def each(target, shapes, *args):
    """One shape of each target is sent with the largest body that a request may have, the others half as large."""
    s = Server(CHAT, *ROOMY, *args)
    for i, (what, make) in enumerate(shapes.items()):
        linear(s, what, target, make, HALVES if i else SIZES)
    s.stop()


def of_text(wrap):
    """Shapes of one text; JSON writes some bytes as two."""
    return {k: lambda n, k=k, v=v: wrap(v(n - 256 if k != "lines" else n // 2 - 256)) for k, v in TEXTS.items()}


def test_texts_to_tokens():
    each("/tokenize", of_text(lambda t: {"content": t}))
    each("/tokenize", {"marks that count": lambda n: {"content": TEXTS["marks"](n - 256), "parse_special": True}})


def test_tokens_to_texts():
    each("/detokenize", {"ids": lambda n: b'{"tokens":' + numbers(n - 256) + b"}"})


def test_texts_that_are_continued():
    each("/v1/completions", {
        "words": lambda n: {"prompt": words(n - 256)},
        "ids": lambda n: b'{"prompt":' + numbers(n - 256) + b"}",
        "a wrong id at the end": lambda n: b'{"prompt":' + numbers(n - 256)[:-1] + b",-1]}",
        "biases": lambda n: b'{"prompt":"x","logit_bias":{"1":' + b"0" * 0 + b"1" + b"." + b"0" * (n - 256) + b"}}",
        "stop texts": lambda n: {"prompt": "x", "stop": ["a" * 65536] * 16, "user": "x", "max_tokens": 0, "suffix": words(n - 1100000) if n > 1100000 else ""},
        "end tokens": lambda n: b'{"prompt":"x","max_tokens":0,"stop_token_ids":' + numbers(n - 256) + b"}",
        "unknown names": lambda n: {f"k{i}": 1 for i in range(n // 14)},
        "a deep value": lambda n: b'{"prompt":' + b"[" * 2000 + b" " * (n - 5000) + b"]" * 2000 + b"}",
        "escapes": lambda n: b'{"prompt":"' + b"\\u00e9" * ((n - 256) // 6) + b'"}',
    }, "--ctx", "4096")


def test_vectors_of_texts():
    each("/v1/embeddings", {
        "one": lambda n: {"input": words(n - 256)},
        "many": lambda n: {"input": [words(n // 2048 - 4)] * 2047 + [""]},
        "ids": lambda n: b'{"input":' + numbers(n - 256) + b"}",
    })


def test_conversations():
    each("/v1/chat/completions", {**of_text(lambda t: chat(user(t))), **CHATS})


def test_conversations_that_are_shown():
    each("/v1/chat/render", CHATS)


def test_blocks():
    each("/v1/messages", BLOCKS)


def test_blocks_that_are_counted():
    each("/v1/messages/count_tokens", {k: lambda n, v=v: {m: x for m, x in v(n).items() if m != "max_tokens"} for k, v in BLOCKS.items()})


def test_items():
    each("/v1/responses", ITEMS)


# ---- the end of a wish ----

LARGE = {"content": words(12 * MB if SLOWNESS == 1 else 3 * MB), "parse_special": False}
LARGE_CHAT = {"messages": [{"role": "user", "content": LARGE["content"]}], "max_tokens": 1}


def next_id(s):
    """What the next request will be called: names are counted."""
    last = s.get("/health").headers["x-request-id"]
    return f"req-{(int(last[4:], 16) + 1) % 2**64:016x}"


def is_idle(s):
    """No thread computes or wants to, however busy the machine is."""
    for _ in range(20):
        for t in os.listdir(f"/proc/{s.process.pid}/task"):
            with open(f"/proc/{s.process.pid}/task/{t}/stat") as f:
                if f.read().rsplit(")", 1)[1].split()[0] != "S":
                    return False
        time.sleep(0.005)
    return True


def interrupted(s, target, body, end):
    """The part of a request's work that is done when it is ended after a quarter of it."""
    before = cpu(s)
    post(s, target, body)
    whole = cpu(s) - before
    before = cpu(s)
    end(whole, before)
    check(until(60 * SLOWNESS, lambda: is_idle(s)), "it comes to rest")
    part = (cpu(s) - before) / whole
    print(f"    {target}: {whole:.2f} s, ended after {part:.0%}", flush=True)
    return part


def test_a_client_that_leaves_ends_what_is_read_for_it():
    s = Server(CHAT, *ROOMY)
    for target, body in (("/tokenize", LARGE), ("/v1/chat/render", LARGE_CHAT), ("/v1/chat/completions", LARGE_CHAT)):
        def leave(whole, before):
            c = s.raw(target, body)
            check(until(60 * SLOWNESS, lambda: cpu(s) - before > whole / 4), "it is read")
            c.close()
        check(interrupted(s, target, body, leave) < 0.75, target)
    s.stop()


def test_what_is_read_can_be_cancelled_by_its_name():
    s = Server(CHAT, *ROOMY)

    def cancel(whole, before):
        name = next_id(s)
        c = s.raw("/tokenize", LARGE)
        check(until(60 * SLOWNESS, lambda: cpu(s) - before > whole / 4), "it is read")
        check(s.ask("POST", f"/v1/requests/{name}/cancel", tcp=True).status == 404, "by its owner only")
        check(s.ask("POST", f"/v1/requests/{name}/cancel").status == 200, "found")
        refused(answer_to(c), 400, "cancelled")
    check(interrupted(s, "/tokenize", LARGE, cancel) < 0.75)
    s.stop()


def test_a_deadline_holds_for_what_is_read():
    s = Server(CHAT, *ROOMY)

    def wait(whole, before):
        refused(s.post("/v1/chat/completions", {**LARGE_CHAT, "deadline_ms": int(1 + whole * 250)}), 504, "deadline_exceeded")
    check(interrupted(s, "/v1/chat/completions", LARGE_CHAT, wait) < 0.75)
    s.stop()


def test_vectors_can_be_cancelled():
    s = Server(STORY, "--ctx", "256", "--cpu", "ref")
    name = next_id(s)
    c = s.raw("/v1/embeddings", {"input": [f"{i}: once upon a time " + "there was a man. " * 40 for i in range(2000)]})
    s.wait_for("requests_running", 1)
    check(s.ask("POST", f"/v1/requests/{name}/cancel", tcp=True).status == 404, "by their owner only")
    check(s.get("/v1/status").json["requests"] == 1, "it is counted")
    check(s.ask("POST", f"/v1/requests/{name}/cancel").status == 200, "found")
    r = answer_to(c)
    check(r.status == 400 and r.error()["code"] == "cancelled", r.status, r.body[:200])
    check(s.get("/v1/status").json["requests"] == 0, "it is over")
    s.stop()


# ---- limits ----


def test_a_keys_limit_is_for_all_it_asks():
    secret = "sk-one"
    with open(path("keys"), "w") as f:
        f.write(f"{hashlib.sha256(secret.encode()).hexdigest()} alice requests=1\n")
    s = Server(CHAT, "--api-keys", path("keys"), "--parallel", "8", "--sessions", "8", "--cpu", "ref")
    key = {"tcp": True, "headers": {"Authorization": f"Bearer {secret}"}}
    asks = {"/v1/completions": {"prompt": "x", "max_tokens": 1}, "/v1/chat/completions": chat(user("x")),
            "/v1/chat/render": chat(user("x")), "/v1/embeddings": {"input": "x"}, "/v1/responses": {"input": "x"},
            "/v1/messages": chat(user("x")), "/v1/messages/count_tokens": {"messages": [user("x")]},
            "/tokenize": {"content": "x"}, "/detokenize": {"tokens": [1]}}
    for _ in range(2):  # each gives its place back
        for target, body in asks.items():
            r = s.post(target, body, **key)
            check(r.status == 200, target, r.status, r.body[:200])
    for busy in (("/v1/completions", {"prompt": "x", "n": 8, "max_tokens": 1500, "ignore_eos": True}),
                 ("/v1/embeddings", {"input": [f"{i} " + "x " * 60 for i in range(2000)]})):
        c = s.connect(tcp=True)
        c.request("POST", busy[0], json.dumps(busy[1]), {"Content-Type": "application/json", **key["headers"]})
        s.wait_for("requests_running", 1)
        for target in asks:
            # Before it is read: what is no JSON is not looked at.
            r = s.post(target, b"no JSON", **key)
            error = r.json["error"]
            check(r.status == 429 and error["code"] == "too_many_requests", busy[0], target, r.status, r.body[:200])
        check(s.post("/tokenize", {"content": "x"}).status == 200, "others may")
        c.close()
        check(until(60 * SLOWNESS, lambda: s.post("/tokenize", {"content": "x"}, **key).status == 200), "until it has left")
    s.stop()


def resident(s, name="VmHWM"):
    with open(f"/proc/{s.process.pid}/status") as f:
        return 1024 * next(int(line.split()[1]) for line in f if line.startswith(name))


def test_documents_are_counted_before_they_are_made():
    s = Server(STORY, "--memory", "200M")  # for requests the least there is: 64 MiB
    before = resident(s)
    idle = s.get("/v1/memory").json["request_bytes"]
    for unit, codes in (("[]", {400}), ("{}", {400}), ('""', {400, 413}), ("0", {400, 413})):
        body = ('{"prompt":[' + ",".join([unit] * (16 * MB // (len(unit) + 1) - 100)) + "]}").encode()
        r = s.post("/v1/completions", body)
        check(r.status in codes, unit, r.status, r.body[:200])
    # Within what may be sent, but more than there is.
    for unit, n in (('{"a":""}', 130000), ('"some text"', 900000)):
        r = s.post("/v1/completions", ('{"prompt":[' + ",".join([unit] * n) + "]}").encode())
        refused(r, 413, "request_too_large")
    members = ",".join(f'"{i}":0' for i in range(1000000))
    refused(s.post("/v1/completions", ("{" + members + "}").encode()), 413, "request_too_large")
    # At the same time what fits alone: some are told to come again.
    body = ('{"prompt":[' + ",".join(['{"a":0}'] * 70000) + "]}").encode()
    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        answers = list(pool.map(lambda _: s.post("/v1/completions", body), range(16)))
    check({a.status for a in answers} <= {400, 503} and any(a.status == 400 for a in answers), [a.status for a in answers])
    check(SLOWNESS > 1 or resident(s) - before < 96 * MB, "memory taken", resident(s) - before)
    check(until(60 * SLOWNESS, lambda: s.get("/v1/memory").json["request_bytes"] == idle), "all is given back", s.get("/v1/memory").json)
    s.stop()


def test_large_bodies_keep_others_waiting_for_one_of_them_at_most():
    """One client's large bodies, as many as there may be, and another's small one."""
    s = Server(CHAT, *ROOMY)
    body = json.dumps(LARGE).encode()
    before = cpu(s)
    post(s, "/tokenize", body)
    alone = cpu(s) - before
    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        large = [pool.submit(post, s, "/tokenize", body) for _ in range(8)]
        check(until(60 * SLOWNESS, lambda: cpu(s) - before > 1.5 * alone), "they are read")
        took = []
        for _ in range(3):
            now = cpu(s)
            check(s.post("/tokenize", {"content": "x"}, tcp=True).status == 200, "read")
            took.append(cpu(s) - now)
        waiting = sum(not r.done() for r in large)
        check({r.result().status for r in large} == {200}, "all are answered")
    print(f"    a large one takes {alone:.2f} s, small ones beside 8 of them waited for", " ".join(f"{t:.2f}" for t in took), "s of CPU time;", waiting, "were left")
    check(waiting > 0 and max(took) < 3.5 * alone, "two workers, one large one each, and the first of the next two")
    s.stop()


# ---- the end ----


def ends(s, since, grace):
    """The process ends soon after the grace, although a worker never does."""
    try:
        code = s.process.wait(timeout=grace + 60 * SLOWNESS)
    except Exception:
        code = None
    took = time.monotonic() - since
    print(f"    ended after {took:.2f} s")
    check(code == 0, "how it ended", code)
    check(took < grace + 20 * SLOWNESS, "it took", took)  # a busy machine may take some of them


def test_a_worker_that_never_ends_does_not_keep_the_process():
    if HANG_PROBE == "none":
        raise Skipped("a sanitizer's build loads nothing before itself")
    for grace, n_signals in ((0, 1), (1, 1), (600, 2)):
        s = Server(CHAT, "--grace", str(grace), env={**os.environ, "LD_PRELOAD": linked(HANG_PROBE)})
        hanging = [s.raw(t, {"content": "hang here", "prompt": "hang here"}) for t in ("/tokenize", "/v1/completions")]
        check(until(60 * SLOWNESS, lambda: cpu(s) > 0.3), "both workers are lost")
        waiting = s.raw("/tokenize", {"content": "x"})
        since = time.monotonic()
        s.process.send_signal(signal.SIGTERM)
        if n_signals == 2:
            s.wait_until_closed()
            check(s.process.poll() is None, "the grace")
            since, grace = time.monotonic(), 0
            s.process.send_signal(signal.SIGTERM)
        ends(s, since, grace)
        check("still being read" in s.stderr(), s.stderr()[-500:])
        check(not os.path.exists(s.sock), "the socket is removed")
        for c in hanging + [waiting]:
            c.close()


def test_a_daemon_that_loads_its_model_lives():
    if HANG_PROBE == "none":
        raise Skipped("a sanitizer's build loads nothing before itself")
    model, sock = path("hang here.gguf"), path(f"run{len(started)}/quern.sock")
    os.symlink(os.path.abspath(CHAT), model)
    with concurrent.futures.ThreadPoolExecutor(2) as pool:
        loads = pool.submit(Server, model, tcp=False, env={**os.environ, "LD_PRELOAD": linked(HANG_PROBE)})
        try:
            check(until(60 * SLOWNESS, lambda: os.path.exists(sock)), "it listens")
            asks = pool.submit(subprocess.run, [QUERN, "--silence", "1", "-n", "2", "Hello"], stdin=subprocess.DEVNULL,
                               capture_output=True, env={**os.environ, "QUERN_SOCKET": sock})
            c = base.Unix(sock)
            c.request("GET", "/health")
            health = Answer(c.getresponse())
            check(health.status == 503 and health.json["error"]["code"] == "starting", health.status, health.body)
            said = subprocess.run([QUERN, "ps", "--socket", sock], capture_output=True, text=True)
            check(said.returncode == 75 and "is starting: it loads" in said.stderr, said)
            check(not concurrent.futures.wait([asks], 2.5).done, "the filter waits for longer than a silence lasts")
        finally:
            open(model + ".go", "w").close()
        s = loads.result()
        got = asks.result()
        check(got.returncode == 0 and got.stdout and not got.stderr.replace(b"\n", b"").startswith(b"quern: warning: the d"), got)
        check(s.get("/health").status == 200, "it has started")
    s.stop()


def test_what_is_read_ends_with_the_grace():
    s = Server(CHAT, *ROOMY, "--grace", "0")
    before = cpu(s)
    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        reads = [pool.submit(post, s, "/tokenize", LARGE) for _ in range(8)]
        check(until(60 * SLOWNESS, lambda: cpu(s) - before > 0.3), "they are read")
        since = time.monotonic()
        s.process.send_signal(signal.SIGTERM)
        ends(s, since, 0)
        codes = [r.exception() or (r.result().status, r.result().error()["code"]) for r in reads]
    if SLOWNESS == 1:  # a sanitizer's build may not see the end within the 500 ms that it has for that
        check(any(c == (503, "stopping") for c in codes), codes)
        check("still being read" not in s.stderr(), s.stderr()[-500:])


if __name__ == "__main__":
    # The largest bodies are for the cases that are about the size; the others have sizes of their own.
    about_size = [f.__name__ for f in (test_texts_to_tokens, test_tokens_to_texts, test_texts_that_are_continued,
                  test_vectors_of_texts, test_conversations, test_conversations_that_are_shown, test_blocks,
                  test_blocks_that_are_counted, test_items)]
    main({name: globals()[name] for name in about_size} if LARGEST == 16 else globals())
