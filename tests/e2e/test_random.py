#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""test_random.py: sends random requests to all endpoints: the daemon must answer each correctly, and survive.

    test_random.py QUERN STORY_MODEL CHAT_MODEL SLOWNESS [PREFIX_OF_CASES]

The number of requests is QUERN_RANDOM_REQUESTS (300), their seed QUERN_RANDOM_SEED (1). Several clients send them at
once: valid ones with any sampling and any limits, and malformed ones. Some are cancelled, some clients hang up, and now
and then the daemon is killed and started again with the same cache on disk. Answers to requests with a seed or with
temperature 0 are compared with those of a daemon that has no such cache and nothing else to do at the time.
test_serve.py describes the arguments and the output.
"""
import collections
import http.client
import json
import os
import random
import signal
import socket
import threading
import time

from lib.cases import check
from lib.files import path
from test_serve import API, CHAT, LIMIT, SLOWNESS, STORY, Answer, Server, main

N = int(os.environ.get("QUERN_RANDOM_REQUESTS", 300))
SEED = int(os.environ.get("QUERN_RANDOM_SEED", 1))
LIFE = min(700, N // 6)  # requests from one start of the daemon to its end
CLIENTS = 8
POOL = max(24, min(240, N // 20))  # requests of which the answer is known, for each model

GENERATE = "/v1/completions", "/v1/chat/completions", "/v1/messages", "/v1/responses"
LOOK = "/v1/chat/render", "/v1/messages/count_tokens", "/tokenize", "/detokenize", "/v1/embeddings"
STATUS = {200, 400, 403, 404, 405, 408, 410, 411, 413, 414, 415, 426, 429, 431, 501, 503, 504}

WORDS = ["Once upon a time", "hello", "the", " dog", "\n", "", " ", "\0", "é", "漢字", "👩\u200d🚀", "<|im_end|>", "<|im_start|>user\n",
         "</s>", "<think>", "</think>", "<tool_call>", '{"name":"f","arguments":{}}', "\x1b[31m", "\u2028", "a" * 300, "{{ 1/0 }}",
         "{% for %}", "\\u0000", "\ufeff", "\u202e", "0123456789", "%s%n"]
ODD = [None, True, False, 0, 1, -1, 2, 0.5, -0.5, 1e-300, 1e300, -1e300, 2 ** 31 - 1, 2 ** 31, -2 ** 31, 2 ** 63 - 1, 2 ** 63, 2 ** 64, 10 ** 400,
       "", "x", "0", "auto", "none", "\0", "\ud800", "x" * 5000, [], [[]], [1], [-1], [0.5], [None], ["x"], ["x"] * 20, [[1], [2]], [1] * 3000,
       {}, {"x": 1}, {"type": "text"}, {"type": "x"}, {"1": 1}, {"1": -100}, {"999999": 1}, {"type": "object", "properties": {}}]


# ---- what is asked ----


def text(r, most=12):
    return "".join(r.choice(WORDS) for _ in range(r.randint(1, most)))


def some(r, values):
    """Some of the members."""
    share = r.random()
    return {k: r.choice(v) if isinstance(v, (list, tuple)) else v(r) for k, v in values.items() if r.random() < share}


SAMPLING = {
    "temperature": (0, 0, 1e-6, 0.5, 1, 2), "top_p": (1, 0.5, 1e-6, 0.0), "top_k": (0, 1, 5, 2 ** 31 - 1), "min_p": (0, 0.05, 1),
    "typical_p": (1, 0.2, 0.0), "top_n_sigma": (0, 1, 1000), "repetition_penalty": (1, 1.3, 0.01, 100), "penalty_last_n": (-1, 0, 1, 2 ** 31 - 1),
    "dry_multiplier": (0, 1, 1000), "dry_base": (1, 1.75, 1000), "dry_allowed_length": (1, 2, 2 ** 31 - 1), "dry_last_n": (-1, 0, 5),
    "xtc_probability": (0, 0.5, 1), "xtc_threshold": (0, 0.1, 1), "mirostat_tau": (0, 0, 0, 5, 1000), "mirostat_eta": (0, 0.1, 1),
    "logit_bias": ({}, {"3": 100}, {"7": -100, "8": 100}, {str(i): -100 for i in range(300)}), "stop_token_ids": ([], [2], list(range(200))),
    "ignore_eos": (True, False),
}
PENALTIES = {"frequency_penalty": (0, -2, 2), "presence_penalty": (0, -2, 2)}
ROUTING = {"priority": (0, -1, -5, -1000), "cache_salt": ("", "a", "b", "x" * 1024)}
TOOL = {"name": "f", "description": "does", "parameters": {"type": "object", "properties": {"x": {"type": "string"}}}}


def messages(r, blocks=False):
    out = []
    for i in range(r.randint(1, 5)):
        role = "user" if i % 2 == 0 else "assistant"
        content = text(r)
        if r.random() < 0.3:
            content = [{"type": "text", "text": text(r, 4)} for _ in range(r.randint(1, 4))]
        out.append({"role": role, "content": content})
    if len(out) % 2 == 0:
        out.pop()
    if r.random() < 0.2 and not blocks:
        out.insert(0, {"role": r.choice(["system", "developer"]), "content": text(r, 4)})
    return out


def generating(r, target):
    """A request that is probably fine, and always has the same answer."""
    b = {"seed": r.randint(0, 2 ** 40), **some(r, SAMPLING)}
    tokens = r.choice([1, 2, 5, 9, 16])
    n = r.choice([1, 1, 1, 2, 3])
    if target == "/v1/completions":
        b |= {"prompt": r.choice([text(r), [text(r)], [text(r), text(r)], [r.randrange(500) for _ in range(r.randint(1, 40))], [[1, 2, 3]]]),
              "max_tokens": r.choice([0, tokens]), "n": n, **some(r, PENALTIES)}
        b |= some(r, {"echo": (True, False), "logprobs": (0, 1, 5), "parse_special": (True, False)})
    elif target == "/v1/chat/completions":
        b |= {"messages": messages(r), "max_tokens": r.choice([0, tokens]), "n": n, **some(r, PENALTIES)}
        b |= some(r, {"tools": ([{"type": "function", "function": TOOL}],), "tool_choice": ("auto", "none"), "reasoning_effort": ("low", "high"),
                      "parallel_tool_calls": (True, False), "chat_template_kwargs": ({}, {"enable_thinking": False}, {"x": [1] * 50})})
        if r.random() < 0.3:
            b |= {"logprobs": True, "top_logprobs": r.choice([0, 1, 20])}
    elif target == "/v1/messages":
        b |= {"messages": messages(r, True), "max_tokens": tokens}
        b |= some(r, {"system": (text(r, 3), [{"type": "text", "text": text(r, 3)}]), "stop_sequences": ([], ["a", " the"]),
                      "tools": ([{**{k: TOOL[k] for k in ("name", "description")}, "input_schema": TOOL["parameters"]}],),
                      "thinking": ({"type": "enabled"}, {"type": "disabled"})})
    else:
        b |= {"input": r.choice([text(r), messages(r, True)]), "max_output_tokens": tokens}
        for m in b["input"] if isinstance(b["input"], list) else ():
            if isinstance(m["content"], list):
                for part in m["content"]:
                    part["type"] = "output_text" if m["role"] == "assistant" else "input_text"
        b |= some(r, {"instructions": (text(r, 3),), "tools": ([{"type": "function", **TOOL}],)})
    if target in GENERATE[:2] and r.random() < 0.3:
        b["stop"] = r.choice(["a", [" the", "e"], ["x"] * 16])
    return b


def looking(r, target):
    if target == "/v1/chat/render":
        return {k: v for k, v in generating(r, "/v1/chat/completions").items() if k in ("messages", "tools", "reasoning_effort")}
    if target == "/v1/messages/count_tokens":
        return {k: v for k, v in generating(r, "/v1/messages").items() if k in ("messages", "tools", "system", "thinking")}
    if target == "/tokenize":
        return {"content": text(r, 40) * r.choice([1, 1, 1, 50]), **some(r, {k: (True, False) for k in ("add_special", "parse_special", "with_pieces")})}
    if target == "/detokenize":
        return {"tokens": [r.randrange(500) for _ in range(r.choice([0, 1, 5, 300]))]}
    return {"input": r.choice([text(r), [text(r), text(r)], [1, 2, 3], [[1, 2], [3]]]),
            **some(r, {"encoding_format": ("float", "base64"), "pooling": ("mean", "last")})}


def deep(r):
    """Many levels, many values, or much text."""
    n = r.choice([3, 50, 2047, 2049, 100000])
    return r.choice([b"[" * n + b"]" * n, b'{"a":' * n + b"1" + b"}" * n, b"[" + b"1," * n + b"1]", b'"' + b"x" * n + b'"',
                     b"[" + b"{}," * n + b"{}]", b'"' + b"\\u0041" * n + b'"'])


def spoilt(r, target, body):
    """Bytes of a request with something wrong in it, most likely."""
    body = dict(body)
    names = sorted(body) + ["stream", "n", "metadata", "thinking", "max_tokens", "model", "stop", "deadline_ms", "priority", "seed", "cache_salt", "logit_bias", "tools",
                            "messages", "prompt", "input", "temperature", "response_format", "store", "unknown", "stream_options"]
    for _ in range(r.choice([1, 1, 2, 4])):
        body[r.choice(names)] = r.choice(ODD)
    if r.random() < 0.1:
        body.pop(r.choice(sorted(body)))
    if r.random() < 0.1 and isinstance(body.get("messages"), list):
        body["messages"] = [r.choice([{"role": "user", "content": [{"type": "image_url", "image_url": {"url": "data:,"}}]}, {"role": "tool", "content": "x"},
                                      {"role": "user"}, {"content": "x"}, {"role": 1, "content": 2}, "x", None, {"role": "assistant", "tool_calls": [{}]},
                                      {"role": "user", "content": [{"type": "image", "source": {}}]}])] * r.choice([1, 2, 300])
    data = json.dumps(body).encode()
    how = r.random()
    if how < 0.1:
        name = r.choice(sorted(body) or ["x"])
        data = data[:-1] + b', "' + name.encode() + b'": ' + deep(r) + b"}"
    elif how < 0.15:
        data = data[:r.randrange(len(data) + 1)]
    elif how < 0.2:
        data = bytes(r.choice([r.randrange(256), c]) if r.random() < 0.02 else c for c in data)
    elif how < 0.22:
        data = deep(r)
    elif how < 0.24:
        data = r.randbytes(r.choice([0, 1, 100, 5000]))
    return data


# ---- what is answered ----

FORGOTTEN = {"id", "created", "created_at", "quern", "usage", "item_id", "call_id", "response_id", "completed_at", "sequence_number"}


def lasting(v):
    """Without what differs from one time to the next."""
    if isinstance(v, dict):
        return {k: lasting(x) for k, x in v.items() if k not in FORGOTTEN}
    return [lasting(x) for x in v] if isinstance(v, list) else v


def said(target, answer):
    """What an answer says, streamed or not; None: it was cut short by what may always happen."""
    stream = answer.headers["Content-Type"].startswith("text/event-stream")
    events = [e for e in answer.events() if e != "[DONE]"] if stream else [answer.json]
    if answer.status in (429, 503, 504) or any((e.get("error") or {}).get("code") in ("deadline_exceeded", "stopping", "no_memory")
                                               for e in events if isinstance(e, dict)):
        return None
    if answer.status != 200 or target not in GENERATE or any(e.get("error") for e in events):
        return answer.status, json.dumps(lasting(events), sort_keys=True)
    out = collections.defaultdict(list)
    if target == "/v1/responses":
        return 200, json.dumps(lasting((events[-1]["response"] if stream else events[0])["output"]), sort_keys=True)
    if target == "/v1/messages":
        if not stream:
            return 200, json.dumps([lasting(events[0]["content"]), events[0]["stop_reason"], events[0]["stop_sequence"]], sort_keys=True)
        blocks, end = [], None
        for e in events:
            if e["type"] == "content_block_start":
                blocks.append(e["content_block"])
            elif e["type"] == "content_block_delta":
                kind = e["delta"]["type"]
                name = {"text_delta": "text", "thinking_delta": "thinking", "input_json_delta": "json", "signature_delta": "signature"}[kind]
                blocks[-1][name] = blocks[-1].get(name, "") + e["delta"].get(name if name != "json" else "partial_json", "")
            elif e["type"] == "message_delta":
                end = e["delta"]
        for b in blocks:
            if "json" in b:
                b["input"] = json.loads(b.pop("json"))
        return 200, json.dumps([lasting(blocks), end["stop_reason"], end["stop_sequence"]], sort_keys=True)
    for e in events:
        for c in e["choices"]:
            o = out[c["index"]]
            m = c.get("message") or c.get("delta") or {}
            calls = [(t["function"].get("name") or "", t["function"]["arguments"]) for t in m.get("tool_calls") or ()]
            o.append((c.get("text") or m.get("content") or "", m.get("reasoning_content") or "", calls, c.get("logprobs") or {}, c["finish_reason"]))
    whole = {}
    for index, pieces in sorted(out.items()):
        lists = collections.defaultdict(list)
        for _, _, _, logprobs, _ in pieces:
            for name, values in logprobs.items():
                lists[name] += values or []
        whole[index] = ["".join(p[0] for p in pieces), "".join(p[1] for p in pieces), [c for p in pieces for c in p[2]],
                        {k: v for k, v in lists.items() if v}, [p[4] for p in pieces if p[4]]]
    return 200, json.dumps(whole, sort_keys=True)


# ---- asking ----


class Life:
    """One daemon from its start to its end, and what happened to it."""

    def __init__(self, server):
        self.server, self.over, self.n_bytes, self.n = server, False, 0, 0
        self.counts, self.lock, self.wrong = collections.Counter(), threading.Lock(), []

    def note(self, what):
        with self.lock:
            self.counts[what] += 1

    def complain(self, *what):
        with self.lock:
            self.wrong.append(" ".join(map(str, what))[:1500])

    def exchange(self, method, target, body=None, headers=None):
        c = self.server.connect()
        try:
            c.request(method, target, body, {"Content-Type": "application/json", **(headers or {})})
            return Answer(c.getresponse())
        finally:
            c.close()
            with self.lock:
                self.n_bytes += len(body or b"")
                self.n += 1

    def judge(self, method, target, answer):
        self.note(answer.status)
        kind = answer.headers["Content-Type"] or ""
        if answer.status not in STATUS:
            self.complain(method, target, answer.status, answer.body[:500])
        elif not kind.startswith("text/html"):
            with self.lock:
                self.wrong += list(API.complaints(method, target, answer.status, kind, answer.body))


def ask_known(life, r, pool):
    target, body, want = r.choice(pool)
    more = some(r, ROUTING) if target in GENERATE else {}
    if target in GENERATE:
        more["stream"] = r.random() < 0.4
    a = life.exchange("POST", target, json.dumps({**body, **more}).encode())
    life.judge("POST", target, a)
    got = said(target, a)
    if got is None:
        life.note("busy")
        return
    life.note("compared")
    if got != want:
        life.complain("other answer:", str(got)[:500], "wanted", str(want)[:500], target, json.dumps({**more, **body}))


def ask_any(life, r, pool):
    target = r.choice(GENERATE)
    body = {**generating(r, target), **some(r, ROUTING), "stream": r.random() < 0.5}
    if r.random() < 0.2:
        body["deadline_ms"] = r.choice([1, 5, 20, 1000])
    life.judge("POST", target, life.exchange("POST", target, json.dumps(body).encode()))


def ask_spoilt(life, r, pool):
    target = r.choice(GENERATE + LOOK)
    body = generating(r, target) if target in GENERATE else looking(r, target)
    method = r.choice(["POST"] * 20 + ["PUT", "GET", "PATCH"])
    life.judge(method, target, life.exchange(method, target, spoilt(r, target, body)))


def look_around(life, r, pool):
    method, target = r.choice([("GET", "/health"), ("GET", "/v1/models"), ("GET", "/v1/memory"), ("GET", "/metrics"), ("GET", "/v1/status"),
                               ("GET", "/v1/sessions"), ("GET", "/v1/sessions?limit=3"), ("DELETE", "/v1/sessions"), ("DELETE", "/v1/sessions/x"),
                               ("DELETE", "/v1/sessions/1"), ("POST", "/v1/requests/x/cancel"), ("GET", "/v1/sessions?limit=x"), ("GET", "/" + "x" * 300),
                               ("POST", "/v1/requests/req-0000000000000001/cancel")])
    life.judge(method, target, life.exchange(method, target))


def cancel(life, r, pool):
    """A stream, ended by its id from another connection."""
    target = r.choice(GENERATE)
    name = {"/v1/responses": "max_output_tokens"}.get(target, "max_tokens")
    body = {**generating(r, target), "stream": True, name: r.choice([20, 200])}
    c = life.server.connect()
    try:
        data = json.dumps(body).encode()
        c.request("POST", target, data, {"Content-Type": "application/json"})
        response = c.getresponse()
        if response.status == 200:
            time.sleep(r.choice([0, 0, 0.001, 0.01]))
            life.judge("POST", "/v1/requests/x/cancel", life.exchange("POST", f"/v1/requests/{response.headers['x-request-id']}/cancel"))
        life.judge("POST", target, Answer(response))
    finally:
        c.close()


def hang_up(life, r, pool):
    """Leaves: within what it asks, before the answer, or within that."""
    target = r.choice(GENERATE + LOOK)
    body = {**generating(r, target), "stream": r.random() < 0.7} if target in GENERATE else looking(r, target)
    data = json.dumps(body).encode()
    head = f"POST {target} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: {len(data)}\r\n\r\n".encode()
    with socket.socket(socket.AF_UNIX) as s:
        s.settimeout(LIMIT)
        s.connect(life.server.sock)
        whole = head + data
        s.sendall(whole[:r.randrange(1, len(whole))] if r.random() < 0.3 else whole)
        if r.random() < 0.6:
            time.sleep(r.choice([0, 0.001, 0.005]))
        elif r.random() < 0.5:
            s.settimeout(0.2)
            try:
                s.recv(r.choice([1, 100, 1000]))
            except TimeoutError:
                pass
    life.note("hung up")
    with life.lock:
        life.n, life.n_bytes = life.n + 1, life.n_bytes + len(data)


KINDS = [ask_known] * 8 + [ask_any] * 5 + [ask_spoilt] * 5 + [look_around] * 2 + [cancel] + [hang_up] * 2


def client(life, numbers, pool):
    for i in numbers:
        r = random.Random(SEED * 1000003 + i)
        kind = r.choice(KINDS)
        if life.over:
            return
        try:
            kind(life, r, pool)
        except (OSError, http.client.HTTPException) as e:
            if not life.over:
                life.complain(kind.__name__, "request", i, repr(e))
                return
        except Exception as e:
            if not life.over:
                life.complain(kind.__name__, "request", i, repr(e))


# ---- the cases ----


def known(model, seed):
    """Requests with what a daemon answers that is asked for nothing else at the time, and keeps nothing between them."""
    r, pool, s = random.Random(seed), [], Server(model, "--ctx", "2048", tcp=False)
    for i in range(POOL):
        target = r.choice(GENERATE * 3 + LOOK if model == CHAT or i % 10 == 0 else ("/v1/completions",) * 3 + LOOK[2:])
        body = generating(r, target) if target in GENERATE else looking(r, target)
        salt = {"cache_salt": f"known {i}"} if target in GENERATE or target == "/v1/embeddings" else {}
        want = said(target, s.post(target, {**body, **salt}))
        check(want is not None and want[0] in (200, 400), target, body, want)
        pool.append((target, body, want))
    s.stop()
    check(sum(w[0] == 200 for _, _, w in pool) > POOL // 2, "too few of the known requests are fine")
    return pool


def cpu_seconds(process):
    """Of the process or thread in this folder of /proc, and its name."""
    with open(process + "/stat") as f:
        name, fields = f.read().split("(", 1)[1].rsplit(")", 1)
    return name, sum(map(int, fields.split()[11:13])) / os.sysconf("SC_CLK_TCK")


def cpu_beside_passes(pid):
    """CPU seconds of all threads but the one that computes: reading, templates, tokens, writing."""
    tasks = f"/proc/{pid}/task"
    threads = [cpu_seconds(f"{tasks}/{t}") for t in os.listdir(tasks)]
    check([n for n, _ in threads].count("scheduler") == 1, threads)
    return cpu_seconds(f"/proc/{pid}")[1] - sum(s for n, s in threads if n == "scheduler")


def live(number, first, count, model, pool, killed):
    """One life. killed: it ends by SIGKILL among its requests."""
    life = Life(Server(model, "--cache-dir", path("disk-" + os.path.basename(model)), "--parallel", "4", "--ctx", "2048", "--kv-tokens", "2048", "--grace", "1", tcp=False))
    s, iterator, lock = life.server, iter(range(first, first + count)), threading.Lock()

    def numbers():
        while True:
            with lock:
                i = next(iterator, None)
            if i is None:
                return
            yield i
    threads = [threading.Thread(target=client, args=(life, numbers(), pool)) for _ in range(CLIENTS)]
    for t in threads:
        t.start()
    while killed and any(t.is_alive() for t in threads) and life.n < count * 0.9:
        time.sleep(0.005)
    if killed:
        life.over = True
        s.process.kill()
    for t in threads:
        t.join()
    check(not life.wrong, len(life.wrong), "complaints, the first:", "\n".join(life.wrong[:4]))
    if not killed and s.process.poll() is None:
        cpu = cpu_beside_passes(s.process.pid)
        print(f"    life {number}: {life.n} requests, {life.n_bytes} bytes; CPU beside the forward passes {cpu:.2f} s, "
              f"{1e3 * cpu / life.n:.2f} ms a request, {1e6 * cpu / max(life.n_bytes, 1):.3f} us a byte")
        # Several times what is measured, which is 0.5 to 1.1 ms for a request of 1 to 4 KB.
        check(cpu < SLOWNESS * (0.5 + 2e-3 * life.n + 5e-7 * life.n_bytes), "CPU:", cpu, life.n, life.n_bytes)
        s.stop()
    log = s.stderr()
    for word in "Assertion", "Sanitizer", "runtime error", "corrupted", "double free", "stack smashing":
        check(word not in log, log[-3000:])
    if killed:
        s.process.wait()
        check(s.process.returncode == -signal.SIGKILL, "ended by", s.process.returncode, log[-3000:])
    return life.counts


def test_random_requests():
    begin = time.monotonic()
    pools = {m: known(m, SEED + i) for i, m in enumerate((STORY, CHAT))}
    counts, done, number = collections.Counter(), 0, 0
    while done < N:
        model = (STORY, CHAT)[number // 3 % 2]
        counts += live(number, done, min(LIFE, N - done), model, pools[model], number % 3 != 2 and done + LIFE < N)
        done += LIFE
        number += 1
    print(f"    {done} requests in {number} lives, {time.monotonic() - begin:.0f} s: {dict(counts)}")
    check(counts["compared"] > N // 10 and counts[200] > N // 3 and counts[400] > N // 20, counts)


if __name__ == "__main__":
    main(globals())
