#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""test_faults.py: tests `quern serve` with hostile clients, kills and full disks.

    test_faults.py QUERN STORY_MODEL CHAT_MODEL SLOWNESS [PREFIX_OF_CASES]

test_serve.py describes the arguments, and starts the daemon. test_http.py tests the HTTP layer alone. Whatever a case
does to a daemon, at the end an ordinary request must get the same answer as before, to the last bit of its logprobs.
"""
import concurrent.futures
import copy
import http.client
import json
import os
import random
import re
import resource
import shutil
import signal
import socket
import subprocess
import threading
import time

from lib.cases import Skipped, check, until
from lib.files import path
from test_serve import CHAT, CHAT_ASK, LIMIT, QUERN, SLOWNESS, STORY, TALE, Answer, Server, main

RELEASE = SLOWNESS == 1
OPENAPI = os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../docs/openapi.json")
JSON = {"Content-Type": "application/json"}

# Endpoint -> a request that asks for little.
LITTLE = {
    "/v1/completions": {"prompt": "Once", "max_tokens": 2, "seed": 1},
    "/v1/embeddings": {"input": "Once"},
    "/tokenize": {"content": "Once"},
    "/detokenize": {"tokens": [300, 301]},
    "/v1/chat/completions": {"messages": [{"role": "user", "content": "hello"}], "max_tokens": 2, "seed": 1},
    "/v1/chat/render": {"messages": [{"role": "user", "content": "hello"}]},
    "/v1/responses": {"input": "hello", "max_output_tokens": 2, "seed": 1},
    "/v1/messages": {"messages": [{"role": "user", "content": "hello"}], "max_tokens": 2, "seed": 1},
    "/v1/messages/count_tokens": {"messages": [{"role": "user", "content": "hello"}]},
}

SCHEMA = {"type": "object", "properties": {"a": {"type": "string"}}, "required": ["a"]}
FUNCTION = {"name": "f", "description": "does it", "parameters": SCHEMA}
SAMPLING = {"logit_bias": {"5": 1}, "stop_token_ids": [7]}
# Endpoint -> requests that have something in every place where a member can be.
RICH = {
    "/v1/completions": [{"stop": ["zzz"], "stream_options": {"include_usage": True}, **SAMPLING}],
    "/v1/chat/completions": [{
        "messages": [
            {"role": "system", "content": "s"},
            {"role": "user", "content": [{"type": "text", "text": "a"}]},
            {"role": "assistant", "content": "c", "reasoning_content": "r",
             "tool_calls": [{"id": "i", "type": "function", "function": {"name": "f", "arguments": "{\"a\":\"b\"}"}}]},
            {"role": "tool", "content": "x", "tool_call_id": "i"}, {"role": "user", "content": "y"}],
        "tools": [{"type": "function", "function": FUNCTION}], "stop": ["zzz"], "chat_template_kwargs": {"k": [1]},
        "stream": True, "stream_options": {"include_usage": True}, "response_format": {"type": "text"},
        "documents": [{"title": "t", "text": "u"}], "modalities": ["text"], "metadata": {}, **SAMPLING}],
    "/v1/responses": [{
        "input": [
            {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "a"}]},
            {"type": "reasoning", "id": "r", "summary": [], "content": [{"type": "reasoning_text", "text": "t"}]},
            {"type": "reasoning", "id": "s", "summary": [{"type": "summary_text", "text": "u"}]},
            {"type": "function_call", "id": "fc", "call_id": "i", "name": "f", "arguments": "{}"},
            {"type": "function_call_output", "call_id": "i", "output": "x"},
            {"type": "message", "role": "assistant", "id": "m", "status": "completed",
             "content": [{"type": "output_text", "text": "b", "annotations": [], "logprobs": []}]},
            {"role": "user", "content": "c"}],
        "tools": [{"type": "function", "strict": False, **FUNCTION}], "reasoning": {"effort": "low", "summary": "auto"},
        "text": {"format": {"type": "text"}, "verbosity": "medium"}, "include": ["reasoning.encrypted_content"],
        "store": True, **SAMPLING}],
    "/v1/messages": [{
        "system": [{"type": "text", "text": "s", "cache_control": {"type": "ephemeral"}}],
        "messages": [
            {"role": "user", "content": [{"type": "text", "text": "a", "cache_control": {"type": "ephemeral"}}]},
            {"role": "assistant", "content": [{"type": "thinking", "thinking": "t", "signature": ""},
                                              {"type": "text", "text": "b"},
                                              {"type": "tool_use", "id": "i", "name": "f", "input": {"a": "b"}}]},
            {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "i", "is_error": False,
                                          "content": [{"type": "text", "text": "x"}]}]}],
        "tools": [{"name": "f", "description": "does it", "input_schema": SCHEMA, "type": "custom",
                   "cache_control": {"type": "ephemeral"}}],
        "tool_choice": {"type": "auto", "disable_parallel_tool_use": True}, "thinking": {"type": "disabled"},
        "metadata": {"user_id": "u"}, "stop_sequences": ["zzz"], "stream": True, **SAMPLING}],
}
# Objects whose members are the client's own; those of messages and tools in the shape that templates know are the
# template's to honour or not.
FREE = {"chat_template_kwargs", "metadata", "parameters", "input_schema", "properties", "a", "documents", "cache_control", "input"}
TEMPLATES = {"/v1/chat/completions": ("messages", "tools"), "/v1/responses": ("tools",)}

LONG_TEXT = "a" * ((1 << 20) if RELEASE else (1 << 16))
VALUES = ["-1", "0", "1", "1.5", "-0.0", "2147483647", "2147483648", "4294967296", "9223372036854775807",
          "9223372036854775808", "-9223372036854775808", "18446744073709551616", "1e-320", "1e308", "-1e308", "1e99999", "NaN",
          "Infinity", "-Infinity", '""', '"a"', '"a\\u0000b"', '"\\ud800"', '"\\ufffe\\u202e"', f'"{LONG_TEXT}"', "null", "true",
          "false", "[]", "{}", "[0]", "[1.5]", '[""]', "[null]", "[{}]", "[[]]", "[[[[[]]]]]", '{"a":{"b":[1]}}',
          "[" * 300 + "]" * 300]


def tcp(s):
    c = socket.create_connection(("127.0.0.1", s.port), LIMIT)
    return c


def rest(c, seconds=LIMIT):
    """What still comes before the other side closes, or the time is over."""
    data = b""
    end = time.monotonic() + seconds
    try:
        while (left := end - time.monotonic()) > 0:
            c.settimeout(left)
            piece = c.recv(1 << 16)
            if not piece:
                break
            data += piece
    except (ConnectionError, TimeoutError):
        pass
    return data


def ordinary(s, ask=TALE):
    """The choices of an ordinary request, with the logprob of every token."""
    chat = "messages" in ask
    ask = {**ask, "logprobs": True, "top_logprobs": 2} if chat else {**ask, "logprobs": 2}
    r = s.post("/v1/chat/completions" if chat else "/v1/completions", ask)
    check(r.status == 200, r.status, r.body[:300])
    return r.json.get("choices")


# ---- any value in any place ----


def places(value, way=()):
    """The ways to everything inside of a JSON value."""
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for k, v in items:
        yield way + (k,)
        yield from places(v, way + (k,))


def inner(body, way):
    for k in way:
        body = body[k]
    return body


def with_mark(body, way):
    """The body's text with "@@" at a place, quotes included."""
    body = copy.deepcopy(body)
    inner(body, way[:-1])[way[-1]] = "@@"
    return json.dumps(body)


def members(target):
    """The members of an endpoint's requests, by its description."""
    with open(OPENAPI) as f:
        d = json.load(f)
    ref = d["paths"][target]["post"]["requestBody"]["content"]["application/json"]["schema"]["$ref"]
    return d["components"]["schemas"][ref.split("/")[-1]]["properties"]


def bodies(target):
    """(what it is about, names one of which a refusal has to say, the body)"""
    little = LITTLE[target]
    marked = {}  # text: the way to its mark
    for name in members(target):
        marked[with_mark({**little, name: 0}, (name,))] = (name,)
    for rich in RICH.get(target, []):
        whole = {**little, **rich}
        yield "all members", None, json.dumps(whole)
        for way in places(rich):
            marked.setdefault(with_mark(whole, way), way)
        for way in [()] + [w for w in places(rich) if isinstance(inner(rich, w), dict) and not FREE & set(map(str, w))]:
            one = copy.deepcopy(whole)
            inner(one, way)["wobble"] = 1
            if way[:1] != ("logit_bias",) and not set(way[:1]) & set(TEMPLATES.get(target, ())):
                yield f"unknown member in {way}", {"wobble", *way[:1]}, json.dumps(one)
            yield f"a name twice in {way}", {"JSON"}, json.dumps(one).replace('"wobble": 1', '"wobble": 1, "wobble": 1')
    for i, (text, way) in enumerate(marked.items()):
        for k, value in enumerate(VALUES):
            if RELEASE or (i + k) % 4 == 0:  # a sanitizer's build tries every fourth
                yield f"{way} = {value[:40]}", {k for k in way if isinstance(k, str)}, text.replace('"@@"', value)


class Sweep:
    """A connection that is kept, and what it has met."""

    def __init__(self, s):
        self.s, self.c, self.counts = s, s.connect(), {}

    def post(self, target, about, names, body):
        try:
            self.c.request("POST", target, body.encode(), JSON)
            r = Answer(self.c.getresponse())
        except (OSError, http.client.HTTPException) as e:
            self.c.close()
            return f"{target} {about}: {e!r}"
        self.counts[r.status] = self.counts.get(r.status, 0) + 1
        if r.status == 200:
            return f"{target} {about}: is taken" if about.startswith(("unknown", "a name twice")) else None
        if r.status == 504 and "deadline_ms" in names:
            return None
        if not 400 <= r.status < 500:
            return f"{target} {about}: {r.status} {r.body[:300]}"
        e = r.error()
        if set(e) != {"message", "type", "param", "code"} or not e["message"] or not e["type"]:
            return f"{target} {about}: no error object: {r.body[:300]}"
        if e["code"] in ("invalid_json", "context_length_exceeded") or e["message"].startswith("template"):
            return None
        if not any(n in e["message"] for n in names or ()):
            return f"{target} {about}: names nothing: {r.body[:300]}"
        return None


def sweep(s, targets):
    """Sends every body of these endpoints over a few connections at once."""
    asks = [(t, *b) for t in targets for b in bodies(t)]
    lanes = [Sweep(s) for _ in range(4)]

    def run(i):
        return [w for a in asks[i::4] if (w := lanes[i].post(*a))]

    with concurrent.futures.ThreadPoolExecutor(4) as pool:
        wrong = [w for part in pool.map(run, range(4)) for w in part]
    counts = {}
    for lane in lanes:
        lane.c.close()
        for k, v in lane.counts.items():
            counts[k] = counts.get(k, 0) + v
    print(f"{len(asks)} requests: {counts}")
    check(counts.get(200, 0) > 0 and counts.get(400, 0) > 0, counts)
    check(not wrong, len(wrong), "wrong answers, such as:\n" + "\n".join(w[:400] for w in wrong[:40]))


class SlowClients:
    """Clients that are in no hurry, beside those of a case. TCP, so that a small window is felt."""

    def __init__(self, s):
        self.s, self.ends = s, []
        self.half_body = tcp(s)
        self.half_body.sendall(b"POST /tokenize HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
                               b"Content-Length: 100\r\n\r\n{\"content\":")
        self.threads = [threading.Thread(target=t) for t in (self.half_header, self.drip, self.slow_reader)]
        for t in self.threads:
            t.start()

    def half_header(self):
        t0 = time.monotonic()
        with tcp(self.s) as c:
            c.sendall(b"GET /health HTTP/1.1\r\nHost: local")
            out = rest(c, LIMIT)
        self.ends.append(("half a header", b" 408 " in out and b'{"error":' in out, time.monotonic() - t0, out))

    def drip(self):
        t0 = time.monotonic()
        out = b""
        with tcp(self.s) as c:
            try:
                for byte in b"GET /health HTTP/1.1\r\nHost: localhost":
                    c.sendall(bytes([byte]))
                    out += rest(c, 1)
                    if out:
                        break
            except ConnectionError:
                pass
        self.ends.append(("a byte a second", b" 408 " in out, time.monotonic() - t0, out))

    def slow_reader(self):
        c = socket.socket()
        c.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        c.connect(("127.0.0.1", self.s.port))
        body = json.dumps({"prompt": "Once", "max_tokens": 100, "stream": True, "n": 4, "logprobs": 5}).encode()
        c.sendall(b"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n"
                  b"Content-Type: application/json\r\nContent-Length: %d\r\n\r\n" % len(body) + body)
        data = b""
        for _ in range(10):
            c.settimeout(LIMIT)
            data += c.recv(1)
            time.sleep(1)
        data += rest(c)
        self.ends.append(("a reader of a byte a second", b"data: [DONE]\n\n" in data, 10, data[-200:]))
        c.close()

    def finish(self):
        for t in self.threads:
            t.join()
        self.half_body.close()
        check(len(self.ends) == 3, self.ends)
        for what, good, seconds, out in self.ends:
            check(good and 9 < seconds < 10 + 30 * SLOWNESS, what, "ended after", seconds, out)


def test_any_value_in_any_place_beside_slow_clients():
    s = Server(STORY, "--ctx", "256", "--parallel", "8", "--sessions", "8")
    before = ordinary(s)
    slow = SlowClients(s)
    sweep(s, ["/v1/completions", "/v1/embeddings", "/tokenize", "/detokenize"])
    check(ordinary(s) == before, "the same answer as before")
    slow.finish()
    s.stop()


def test_any_value_in_any_place_of_a_conversation():
    s = Server(CHAT, "--ctx", "512", "--parallel", "8", "--sessions", "8")
    before = ordinary(s, CHAT_ASK)
    sweep(s, [t for t in LITTLE if "chat" in t or "messages" in t or "responses" in t])
    check(ordinary(s, CHAT_ASK) == before, "the same answer as before")
    s.stop()


# ---- what is not JSON ----


def test_what_is_not_json_is_refused():
    s = Server(STORY)
    before = ordinary(s)
    valid = b'{"prompt":"a\\u00e4\\n","max_tokens":1,"stop":["b"],"seed":-12,"top_p":1e-1,"echo":true,"user":null}'
    text = lambda t: b'{"prompt":"' + t + b'","max_tokens":1}'
    number = lambda t: b'{"prompt":"a","max_tokens":1,"seed":' + t + b"}"
    bad = [valid[:i] for i in range(len(valid))]
    bad += [valid + b"x", valid + valid, b"\xef\xbb\xbf" * 2 + valid, valid.decode().encode("utf-16"), b"\0" + valid, valid + b"\0",
            b" " * 100000, b"\n\n", b"true", b"null", b"5", b'"x"', b"[]", b"<x/>", b"a=b", b"{'prompt':'a'}", b'{prompt:"a"}',
            b'{"prompt":"a",}', b'{"prompt":"a"//x\n}', b'{"prompt"}', b'{"prompt":}', b'{,}', b'{"":1}', b'{"prompt":"a";}']
    bad += [b"[" * 100000, b"[" * 100000 + b"]" * 100000, b'{"a":' * 100000, b'{"prompt":' + b"[" * 3000 + b"]" * 3000 + b"}"]
    bad += [text(t) for t in (b"\xff", b"\x80", b"\xc3", b"\xc0\x80", b"\xe0\x80\x80", b"\xed\xa0\x80", b"\xf0\x80\x80\x80",
                              b"\xf4\x90\x80\x80", b"\xf8\x88\x80\x80\x80", b"a\0b", b"a\nb", b"\x1f", b"\\ud800",
                              b"\\udc00", b"\\ud800\\u0041", b"\\ud800\\ud800", b"\\x41", b"\\u12", b"\\u12g4", b"\\", b"\\'")]
    bad += [number(t) for t in (b"NaN", b"-Infinity", b"+1", b"01", b"-", b".5", b"1.", b"1e", b"1e+", b"0x10", b"1_000", b"1e99999",
                                b"-1e99999", b"9" * 100000, b"0." + b"0" * 100000 + b"x", b"\xef\xbc\x91")]
    c = s.connect()
    for body in bad:
        c.request("POST", "/v1/completions", body, JSON)
        r = Answer(c.getresponse())
        if b'{"":1}' == body:
            continue  # JSON, but no member
        e = r.error()
        check(r.status == 400 and e["message"] and (e["code"] == "invalid_json" or b"9" * 99 in body), body[:100], r.status, r.body)
    c.request("POST", "/v1/completions", valid, JSON)
    check(Answer(c.getresponse()).status == 200, "the whole one is taken")
    c.close()
    big = b'{"prompt":"' + b"a" * (16 << 20) + b'"}'
    check(s.post("/v1/completions", big).status == 413, "more than 16 MiB")
    check(s.post("/v1/completions", big[:(16 << 20) - 2] + b'"}').status == 400, "16 MiB: too long for the context only")
    check(ordinary(s) == before, "the same answer as before")
    s.stop()


def test_deep_and_wide_bodies():
    s = Server(CHAT)
    before = ordinary(s, CHAT_ASK)
    for name in ('"documents":[%s]', '"chat_template_kwargs":{"k":%s}', '"metadata":%s',
                 '"tools":[{"type":"function","function":{"name":"f","parameters":{"type":"object","properties":{"a":%s}}}}]'):
        for n in (10, 500, 1000, 2000, 2040, 2046, 3000):
            deep = "[" * n + "]" * n if "properties" not in name else '{"items":' * n + "{}" + "}" * n
            r = s.post("/v1/chat/completions",
                       ('{"messages":[{"role":"user","content":"x"}],"max_tokens":1,' + name % deep + "}").encode())
            check(r.status in (200, 400), name, n, r.status, r.body[:200])
    for unit in ("{}", "[]", "0", '""', '{"a":0}'):
        n = (4 << 20) // (len(unit) + 1)
        wide = ",".join([unit] * n)
        for name in ('"documents":[%s]', '"chat_template_kwargs":{"k":[%s]}', '"messages":[%s]', '"stop":[%s]', '"tools":[%s]'):
            r = s.post("/v1/chat/completions", ('{"messages":[{"role":"user","content":"x"}],"max_tokens":1,' + name % wide +
                                               "}").replace('"messages":[{"role":"user","content":"x"}],"max_tokens":1,"messages"',
                                                            '"messages"').encode())
            check(r.status in (200, 400), name, unit, r.status, r.body[:200])
    with open(f"/proc/{s.process.pid}/status") as f:
        peak = int(re.search(r"VmHWM:\s+(\d+)", f.read())[1])
    print(f"peak {peak >> 10} MB")
    check(not RELEASE or peak < 700 << 10, "memory:", peak, "KB")
    check(ordinary(s, CHAT_ASK) == before, "the same answer as before")
    s.stop()


# ---- what is not HTTP, or tries to be two things at once ----

HOST = b"Host: localhost\r\n"
TYPE = b"Content-Type: application/json\r\n"
BODY = b'{"content":"a"}'
POST = b"POST /tokenize HTTP/1.1\r\n" + HOST + TYPE
NEXT = b"GET /smuggled HTTP/1.1\r\n" + HOST + b"\r\n"
LENGTH = b"Content-Length: %d\r\n" % len(BODY)
CHUNKED = b"Transfer-Encoding: chunked\r\n"
CHUNKS = b"%x\r\n%s\r\n0\r\n\r\n" % (len(BODY), BODY)

# Never answered 200, and what follows in the same bytes is never taken for a request.
REFUSED = {
    "two lengths": POST + LENGTH + b"Content-Length: 5\r\n\r\n" + BODY + NEXT,
    "two equal lengths": POST + LENGTH * 2 + b"\r\n" + BODY + NEXT,
    "a list of lengths": POST + b"Content-Length: 15, 15\r\n\r\n" + BODY + NEXT,
    "length and chunks": POST + LENGTH + CHUNKED + b"\r\n" + CHUNKS + NEXT,
    "chunks and length": POST + CHUNKED + LENGTH + b"\r\n" + CHUNKS + NEXT,
    "chunks twice": POST + CHUNKED * 2 + b"\r\n" + CHUNKS + NEXT,
    "chunked, chunked": POST + b"Transfer-Encoding: chunked, chunked\r\n\r\n" + CHUNKS + NEXT,
    "gzip, chunked": POST + b"Transfer-Encoding: gzip, chunked\r\n\r\n" + CHUNKS + NEXT,
    "chunked, identity": POST + b"Transfer-Encoding: chunked, identity\r\n\r\n" + CHUNKS + NEXT,
    "identity": POST + b"Transfer-Encoding: identity\r\n" + LENGTH + b"\r\n" + BODY + NEXT,
    "xchunked": POST + b"Transfer-Encoding: xchunked\r\n\r\n" + CHUNKS + NEXT,
    "an empty coding": POST + b"Transfer-Encoding: \r\n" + LENGTH + b"\r\n" + BODY + NEXT,
    "a coding with a tab in front": POST + b"Transfer-Encoding:\x0bchunked\r\n\r\n" + CHUNKS + NEXT,
    "space before the colon": POST + b"Content-Length : 15\r\n\r\n" + BODY + NEXT,
    "space before the coding's colon": POST + LENGTH + b"Transfer-Encoding : chunked\r\n\r\n" + CHUNKS + NEXT,
    "a length with a sign": POST + b"Content-Length: +15\r\n\r\n" + BODY + NEXT,
    "a length of -1": POST + b"Content-Length: -1\r\n\r\n" + BODY + NEXT,
    "a length in hexadecimal": POST + b"Content-Length: 0xf\r\n\r\n" + BODY + NEXT,
    "a length of 2^64": POST + b"Content-Length: 18446744073709551616\r\n\r\n" + BODY + NEXT,
    "a length of 2^64-1": POST + b"Content-Length: 18446744073709551615\r\n\r\n" + BODY,
    "no length at all": POST + b"\r\n",
    "a folded header": POST + b"Content-Length:\r\n 15\r\n\r\n" + BODY + NEXT,
    "a line with no colon": POST + LENGTH + b"nonsense\r\n\r\n" + BODY + NEXT,
    "two hosts": POST + b"Host: evil\r\n" + LENGTH + b"\r\n" + BODY,
    "a method with odd characters": b'{"a"}GET' + POST[4:] + LENGTH + b"\r\n" + BODY + NEXT,
    "another host": POST.replace(HOST, b"Host: evil\r\n") + LENGTH + b"\r\n" + BODY,
    "no host": POST.replace(HOST, b"") + LENGTH + b"\r\n" + BODY,
    "an absolute target": b"GET http://evil/health HTTP/1.1\r\n" + HOST + b"\r\n",
    "an authority": b"CONNECT evil:443 HTTP/1.1\r\n" + HOST + b"\r\n",
    "a star": b"OPTIONS * HTTP/1.1\r\n" + HOST + b"\r\n",
    "TRACE": b"TRACE /health HTTP/1.1\r\n" + HOST + b"\r\n",
    "dots": b"GET /v1/../health HTTP/1.1\r\n" + HOST + b"\r\n",
    "HTTP/2's preface": b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
    "HTTP/2.0": b"GET /health HTTP/2.0\r\n" + HOST + b"\r\n",
    "HTTP/0.9": b"GET /health\r\n\r\n",
    "TLS": bytes.fromhex("16030100a5010000a10303") + bytes(range(150)),
    "NUL bytes": bytes(1000) + b"\r\n\r\n",
    "a long target": b"GET /" + b"a" * 100000 + b" HTTP/1.1\r\n" + HOST + b"\r\n",
    "a long header": b"GET /health HTTP/1.1\r\n" + HOST + b"X: " + b"a" * 100000 + b"\r\n\r\n",
    "many headers": b"GET /health HTTP/1.1\r\n" + HOST + b"".join(b"X%d: y\r\n" % i for i in range(20000)) + b"\r\n",
    "chunks of size -1": POST + CHUNKED + b"\r\n-1\r\n" + BODY + b"\r\n0\r\n\r\n" + NEXT,
    "chunks of size g": POST + CHUNKED + b"\r\ng\r\n" + BODY + b"\r\n0\r\n\r\n" + NEXT,
    "chunks of 2^64": POST + CHUNKED + b"\r\n10000000000000000\r\n" + BODY + b"\r\n0\r\n\r\n" + NEXT,
    "a chunk that goes on": POST + CHUNKED + b"\r\n5\r\n" + BODY + b"\r\n0\r\n\r\n" + NEXT,
    "a chunk with no end": POST + CHUNKED + b"\r\nf\r\n" + BODY + b"0\r\n\r\n" + NEXT,
    "chunks of 0x size": POST + CHUNKED + b"\r\n0xf\r\n" + BODY + b"\r\n0\r\n\r\n" + NEXT,
    "an empty chunk size": POST + CHUNKED + b"\r\n\r\n" + BODY + b"\r\n0\r\n\r\n" + NEXT,
    "a chunk extension without end": POST + CHUNKED + b"\r\nf;" + b"x" * 100000,
}


def test_what_is_not_http_or_two_things_at_once_is_refused():
    s = Server(STORY, "--log")
    before = ordinary(s)

    def send(item):
        what, data = item
        with tcp(s) as c:
            try:
                c.sendall(data)
            except ConnectionError:
                pass
            return what, rest(c, 2)

    with concurrent.futures.ThreadPoolExecutor(16) as pool:
        for what, out in pool.map(send, REFUSED.items()):
            statuses = [int(x) for x in re.findall(rb"HTTP/1\.[01] (\d+)", out)]
            fine = all(400 <= x < 500 or x == 505 for x in statuses)
            check(fine and len(statuses) <= 1 and b"<html" not in out, what, statuses, out[:300])
    check(not re.search(r"(200|404) \w+ .*/smuggled", s.stderr()), "what follows a refused request is not read", s.stderr())
    check(ordinary(s) == before, "the same answer as before")
    s.stop()


def test_bodies_share_a_budget():
    s = Server(STORY, "--memory", "4G")  # a sixteenth is for requests
    before = ordinary(s)
    n = 16 << 20
    held = []
    head = b"POST /tokenize HTTP/1.1\r\n" + HOST + TYPE + b"Content-Length: %d\r\n\r\n" % n
    for _ in range(20):
        held.append(tcp(s))
        held[-1].sendall(head + b" " * (n - 1))
    with open(f"/proc/{s.process.pid}/status") as f:
        now = int(re.search(r"VmRSS:\s+(\d+)", f.read())[1])
    check(not RELEASE or now < 600 << 10, "memory:", now, "KB")
    statuses = []
    for c in held:
        c.sendall(b" ")
        statuses.append(int(c.recv(1 << 16).split()[1]))
        c.close()
    check(set(statuses) == {400, 503} and statuses.count(503) >= 4, statuses)
    check(until(LIMIT, lambda: s.post("/tokenize", b'{"content":"a"}' + b" " * (10 << 20)).status == 200), "there is room again")
    check(ordinary(s) == before, "the same answer as before")
    s.stop()


def test_ten_thousand_connections():
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    n = 10000 if hard >= 12000 and RELEASE else 1500
    if hard < n + 500:
        raise Skipped(f"{hard} open files are allowed, {n + 500} are needed")
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, n + 500), hard))
    s = Server()
    before = ordinary(s)
    held, t0 = [], time.monotonic()
    for _ in range(n):
        held.append(tcp(s))
    last = rest(held[-1])
    check(b" 503 " in last and b"too many connections" in last, "the last one is told", last)
    held[0].sendall(b"GET /health HTTP/1.1\r\n" + HOST + b"Connection: close\r\n\r\n")
    check(b"200 OK" in rest(held[0]), "the first one is served", time.monotonic() - t0)
    for c in held:
        c.close()
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))

    def served():
        try:
            return s.get("/health").status == 200
        except (ConnectionError, http.client.HTTPException):
            return False

    check(until(LIMIT, served), "when they have left")
    counted = re.search(rb'quern_connections_refused_total\{why="peer"\} (\d+)', s.get("/metrics").body)
    check(counted and int(counted[1]) > n // 2, "the refused ones are counted", counted)
    check(ordinary(s) == before, "the same answer as before")
    s.stop()


def test_no_descriptor_is_left():
    s = Server()
    before = ordinary(s)
    pid = s.process.pid
    limits = resource.prlimit(pid, resource.RLIMIT_NOFILE)
    n_open = len(os.listdir(f"/proc/{pid}/fd"))
    resource.prlimit(pid, resource.RLIMIT_NOFILE, (n_open + 5, limits[1]))
    held = [tcp(s) for _ in range(50)]
    check(until(LIMIT, lambda: "Too many open files" in s.stderr()), "it says so", s.stderr())
    held[0].sendall(b"GET /health HTTP/1.1\r\n" + HOST + b"\r\n")
    check(b"200 OK" in held[0].recv(1 << 16), "who is in is served")
    with open(f"/proc/{pid}/stat") as f:
        used = sum(map(int, f.read().split()[13:15]))
    time.sleep(1)
    with open(f"/proc/{pid}/stat") as f:
        used = sum(map(int, f.read().split()[13:15])) - used
    check(used < 30, "waiting is not polling: hundredths of a second of CPU in one:", used)
    for c in held[:40]:
        c.close()
    held[-1].sendall(b"GET /health HTTP/1.1\r\n" + HOST + b"\r\n")
    check(b"200 OK" in held[-1].recv(1 << 16), "who waited is served when others leave")
    resource.prlimit(pid, resource.RLIMIT_NOFILE, limits)
    for c in held:
        c.close()
    check(ordinary(s) == before, "the same answer as before")
    s.stop()


# ---- kills ----


def leftovers(directory):
    return [n for n in os.listdir(directory) if re.fullmatch(r"[0-9a-f]{16}\.kv\.[0-9a-f]{8}", n)]


def kill_while(s, doing, directory, rng):
    """Ends the daemon with SIGKILL while it does this, at a random moment. Whether a file was being written."""
    ask = {"prompt": f"{rng.random()} is a number. " + TALE["prompt"] * 2, "max_tokens": 40, "stream": True, "ignore_eos": True}
    if doing != "saving":
        c = s.raw("/v1/completions", ask)
        if doing == "decoding":
            while b"data:" not in c.recv(1 << 16):
                pass
        time.sleep(rng.random() * 0.05 * SLOWNESS)
    else:
        s.post("/v1/completions", {**ask, "stream": False})
        s.process.send_signal(signal.SIGTERM)  # saves at once what is not saved yet
        end = time.monotonic() + LIMIT
        while not leftovers(directory) and s.process.poll() is None and time.monotonic() < end:
            pass  # a file is written in a few milliseconds
        time.sleep(rng.choice((0, rng.random() * 0.003)))
    s.process.kill()
    s.process.wait()
    return bool(leftovers(directory))


def test_a_kill_at_any_moment_loses_no_more_than_work():
    rng = random.Random(1)
    directory = path("kills/m")  # the model's own
    talk = [TALE, {**TALE, "prompt": TALE["prompt"] + "Then she went home. "}, {**TALE, "prompt": "A dog. " + TALE["prompt"]}]
    args = (STORY, "--ctx", "512", "--kv", "f32")
    s = Server(*args)
    alone = [ordinary(s, ask) for ask in talk]
    s.stop()
    n_torn = n_found = 0
    times = []
    # As many rounds as were meant; more of them while chance has not shown what is looked for.
    n_rounds = 30 if RELEASE else 6
    for i in range(5 * n_rounds):
        if i >= n_rounds and n_torn > 0 and n_found > 0:
            break
        t0 = time.monotonic()
        s = Server(*args, "--cache-dir", os.path.dirname(directory), tcp=False)
        t = time.monotonic() - t0
        times.append(t)
        check("cache:" not in s.stderr(), s.stderr())
        check(not leftovers(directory), "what was not finished is removed")
        check(s.metric("cache_disk_bytes") == sum(os.path.getsize(os.path.join(directory, n)) for n in os.listdir(directory)
                                                  if n.endswith(".kv")),
              "every file is whole", os.listdir(directory))
        check(ordinary(s, talk[i % 3]) == alone[i % 3], "round", i, "answers as without a cache")
        n_found += s.metric("cache_hit_tokens_total") > 100
        n_torn += kill_while(s, ("saving", "decoding", "reading")[i % 3], directory, rng)
    print(f"{n_torn} files were being written, {n_found} rounds found prefixes of earlier ones")
    check(n_torn > 0 and n_found > 0, n_torn, n_found)
    times.sort()
    check(times[len(times) // 2] < 1 * SLOWNESS and times[-1] < 5 * SLOWNESS, "seconds until ready:", times)
    s = Server(*args, "--cache-dir", os.path.dirname(directory))
    check([ordinary(s, ask) for ask in talk] == alone, "at the end")
    s.stop()


# ---- no room, no memory ----


def numbered(i):
    return {**TALE, "prompt": f"{i} times. " + TALE["prompt"]}


def no_room(s, directory, make_room):
    """The daemon cannot write its cache; then it can."""
    before = ordinary(s)
    for i in (1, 2):
        n = s.stderr().count("cache:")
        ordinary(s, numbered(i))
        check(until(LIMIT, lambda: s.stderr().count("cache:") > n), "it says so", s.stderr())
        check(s.process.poll() is None and ordinary(s) == before, "and serves on")
    check(s.stderr().count("cache:") <= 5, "a line for each attempt, of which each answer is one", s.stderr())
    check(not leftovers(directory), "nothing half is left", os.listdir(directory))
    make_room()
    ordinary(s, numbered(3))
    check(until(LIMIT, lambda: s.metric("cache_disk_bytes") > 0), "it saves again when there is room", s.stderr())
    check(ordinary(s) == before, "the same answer as before")
    s.stop()
    s = Server(STORY, "--cache-dir", os.path.dirname(directory))
    check(ordinary(s) == before and s.metric("cache_hit_tokens_total") > 100, "and what it saved is good")
    s.stop()


def test_files_that_may_not_grow():
    directory = path("limited/m")  # the model's own
    s = Server(STORY, "--cache-dir", os.path.dirname(directory))
    limits = resource.prlimit(s.process.pid, resource.RLIMIT_FSIZE)
    resource.prlimit(s.process.pid, resource.RLIMIT_FSIZE, (64 << 10, limits[1]))
    no_room(s, directory, lambda: resource.prlimit(s.process.pid, resource.RLIMIT_FSIZE, limits))


def test_a_full_disk():
    disk, directory = path("full"), path("full/m")
    os.mkdir(disk)
    mount = lambda *args: subprocess.run(["mount", *args], capture_output=True).returncode == 0
    if not mount("-t", "tmpfs", "-o", "size=64k", "quern-test", disk):
        raise Skipped("a tmpfs cannot be mounted")
    try:
        s = Server(STORY, "--cache-dir", os.path.dirname(directory))
        no_room(s, directory, lambda: check(mount("-o", "remount,size=64m", disk), "remount"))
    finally:
        subprocess.run(["umount", "-l", disk], check=True)


def test_a_log_that_cannot_be_written():
    s = Server.__new__(Server)
    s.sock = path("devfull/quern.sock")
    with open("/dev/full", "w") as full:
        s.process = subprocess.Popen([QUERN, "serve", STORY, "--threads", "1", "--log", "--listen", s.sock], stderr=full)

    def served():
        try:
            return s.get("/health").status == 200
        except (ConnectionError, FileNotFoundError):
            return False

    try:
        check(until(LIMIT, served), "it serves")
        check(s.post("/v1/completions", {**TALE, "wobble": 1}).status == 400 and ordinary(s), "and answers")
        s.process.send_signal(signal.SIGTERM)
        check(s.process.wait(timeout=LIMIT) in (0, 74), "ends with", s.process.returncode)
    finally:
        s.process.kill()
        s.process.wait()


def test_the_directory_of_the_socket_vanishes():
    s = Server()
    before = ordinary(s)
    kept = s.connect()
    kept.request("GET", "/health")
    check(Answer(kept.getresponse()).status == 200, "a connection")
    shutil.rmtree(os.path.dirname(s.sock))
    kept.request("GET", "/health")
    check(Answer(kept.getresponse()).status == 200, "which stays")
    kept.close()
    r = s.post("/v1/completions", {**TALE, "logprobs": 2}, tcp=True)
    check(r.status == 200 and r.json["choices"] == before, "the other address is served on", r.body[:200])
    s.stop()


def test_a_model_that_is_cut_short():
    """Seen before a request, or by the page that is not there in the middle of one: an error, and the daemon goes on."""
    for threads in ("1", "2"):
        shutil.copyfile(STORY, path("cut.gguf"))
        s = Server(path("cut.gguf"), "--threads", threads)
        before = ordinary(s)
        os.truncate(path("cut.gguf"), 1 << 20)
        r = s.post("/v1/completions", numbered(int(threads)))
        check(r.status == 503 and r.json["error"]["code"] == "model_changed", r.status, r.body)
        r = s.post("/v1/completions", numbered(int(threads)))
        check(r.status == 500 and "cannot be loaded" in r.json["error"]["message"], r.status, r.body)
        shutil.copyfile(STORY, path("cut.gguf"))
        check(ordinary(s) == before, "the whole file again")
        ended = {}
        asks = [threading.Thread(target=lambda i=i: ended.update({i: s.post("/v1/completions",
                {"prompt": f"{i} Once", "max_tokens": 200, "ignore_eos": True}).body})) for i in range(2)]
        for t in asks:
            t.start()
        until = time.monotonic() + LIMIT
        while not s.metric("requests_running") and time.monotonic() < until:
            time.sleep(0.001)
        os.truncate(path("cut.gguf"), 1 << 20)
        for t in asks:
            t.join()
        check(all(b"became shorter" in x or b"changed while" in x for x in ended.values()), ended)
        shutil.copyfile(STORY, path("cut.gguf"))
        while (r := s.post("/v1/completions", numbered(1))).status == 503 and time.monotonic() < until:
            pass  # the one that hears that the model is closed
        check(r.status == 200 and ordinary(s) == before, r.status, r.body)
        s.stop()


def test_no_memory():
    if not RELEASE:
        raise Skipped("a sanitizer's own memory is not limited")
    s = Server(STORY, "--parallel", "8", "--sessions", "8")
    before = ordinary(s)
    pid = s.process.pid
    limits = resource.prlimit(pid, resource.RLIMIT_AS)
    counts = {}

    def hammer(i):
        body = json.dumps({"prompt": "word " * (200000 + 100000 * (i % 5)), "max_tokens": 1}).encode()
        try:
            if i % 3 == 0:
                r = s.post("/tokenize", {"content": "word " * 200000, "with_pieces": True})
            elif i % 3 == 1:
                r = s.post("/v1/completions", body)
            else:
                r = s.post("/v1/completions", {"prompt": "Once", "max_tokens": 10, "n": 2, "logprobs": 20, "seed": i})
        except (ConnectionError, http.client.HTTPException):
            return "closed"
        return r.status if r.status in (200, 400, 503) and r.json else (r.status, r.body[:200])

    for room in (0, 2 << 20, 8 << 20):
        with open(f"/proc/{pid}/statm") as f:
            size = int(f.read().split()[0]) * 4096
        resource.prlimit(pid, resource.RLIMIT_AS, (size + room, limits[1]))
        with concurrent.futures.ThreadPoolExecutor(4) as pool:
            for what in pool.map(hammer, range(12)):
                counts[what] = counts.get(what, 0) + 1
        resource.prlimit(pid, resource.RLIMIT_AS, limits)
        check(s.process.poll() is None, "it lives")
        check(ordinary(s) == before, "the same answer as before, room", room)
    print(counts)
    refused = counts.get(503, 0) + counts.get("closed", 0)
    check(all(k in (200, 400, 503, "closed") for k in counts) and refused > 0 and counts.get(400, 0) > 0, counts)
    s.stop()


def test_a_small_budget():
    r = subprocess.run([QUERN, "serve", STORY, "--memory", "5M", "--listen", path("never.sock")], capture_output=True, timeout=LIMIT)
    check(r.returncode not in (0, -6, -11) and r.stderr.count(b"\n") == 1 and b"memory" in r.stderr, r)


if __name__ == "__main__":
    main(globals())
