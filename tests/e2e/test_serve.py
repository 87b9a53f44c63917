#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""test_serve.py: tests `quern serve` from outside, as its clients use it.

    test_serve.py QUERN STORY_MODEL CHAT_MODEL SLOWNESS [PREFIX_OF_CASES]

STORY_MODEL continues stories; CHAT_MODEL has random weights and a chat template. SLOWNESS multiplies the time limits
(for a build with a sanitizer). Each function test_* is a case, whose name is a sentence that must be true. The output
is described in test_http.py. Every reply that a case gets with Server.ask is compared with docs/openapi.json, if Python
has jsonschema.

Other tests of the daemon take the same arguments and import functions from this file.
"""
import base64
import concurrent.futures
import hashlib
import http.client
import json
import os
import re
import signal
import socket
import ssl
import struct
import subprocess
import sys
import time

from lib import openapi
from lib.cases import check, run, started
from lib.files import path

QUERN, STORY, CHAT = sys.argv[1:4]
SLOWNESS = float(sys.argv[4])
LIMIT = 30 * SLOWNESS  # seconds for one exchange
API = openapi.OpenApi()


class Unix(http.client.HTTPConnection):
    def __init__(self, name):
        super().__init__("localhost", timeout=LIMIT)
        self.name = name

    def connect(self):
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.settimeout(LIMIT)
        self.sock.connect(self.name)


class Answer:
    def __init__(self, response):
        self.status, self.headers, self.body = response.status, response.headers, response.read()

    @property
    def json(self):
        return json.loads(self.body)

    def error(self):
        return self.json.get("error", {})

    def events(self):
        """The data of a stream's events, comments left out; [DONE] is kept as a string."""
        for block in self.body.decode().split("\n\n"):
            data = [line[6:] for line in block.split("\n") if line.startswith("data: ")]
            if data:
                yield data[0] if data[0] == "[DONE]" else json.loads(data[0])


class Server:
    """A running daemon on a Unix socket and, unless told otherwise, a TCP port. model: a file, which is called m, or
    several NAME=FILE."""

    def __init__(self, model=STORY, *args, tcp=True, **popen):
        self.sock = path(f"run{len(started)}/quern.sock")
        self.log = open(path(f"log{len(started)}"), "w+b")
        args = ("--listen", self.sock) + (("--listen", "127.0.0.1:0") if tcp else ()) + args
        models = [model, "--name", "m"] if isinstance(model, str) else model
        self.process = subprocess.Popen([QUERN, "serve", *models, "--threads", "1", *args],
                                        stdout=subprocess.DEVNULL, stderr=self.log, **popen)
        started.append(self)
        end = time.monotonic() + LIMIT
        while not re.search(r"serving .*\n", self.stderr()):
            if self.process.poll() is not None or time.monotonic() > end:
                raise RuntimeError("no server: " + self.stderr())
            time.sleep(0.01)
        self.port = int(self.stderr().split("127.0.0.1:")[1].split()[0]) if tcp else None

    def stderr(self):
        self.log.flush()
        with open(self.log.name, "rb") as f:
            return f.read().decode()

    def connect(self, tcp=False):
        return http.client.HTTPConnection("127.0.0.1", self.port, timeout=LIMIT) if tcp else Unix(self.sock)

    def ask(self, method, target, body=None, headers=None, tcp=False):
        """One exchange on a connection of its own. body: bytes, or what becomes JSON."""
        c = self.connect(tcp)
        headers = dict(headers or {})
        if body is not None:
            headers.setdefault("Content-Type", "application/json")
            body = body if isinstance(body, bytes) else json.dumps(body).encode()
        c.request(method, target, body, headers)
        answer = Answer(c.getresponse())
        c.close()
        for wrong in API.complaints(method, target, answer.status, answer.headers["Content-Type"], answer.body):
            check(False, wrong)
        return answer

    def post(self, target, body, **more):
        return self.ask("POST", target, body, **more)

    def get(self, target, **more):
        return self.ask("GET", target, **more)

    def raw(self, target, body):
        """A socket on which a POST was sent."""
        s = socket.socket(socket.AF_UNIX)
        s.settimeout(LIMIT)
        s.connect(self.sock)
        data = json.dumps(body).encode()
        s.sendall(f"POST {target} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
                  f"Content-Length: {len(data)}\r\n\r\n".encode() + data)
        return s

    def metric(self, name):
        for line in self.get("/metrics").body.decode().splitlines():
            if line.startswith((f"quern_{name} ", f'quern_{name}{{model="m"}} ')):
                return float(line.split()[1])
        raise KeyError(name)

    def wait_for(self, name, value, seconds=LIMIT):
        end = time.monotonic() + seconds
        while (now := self.metric(name)) != value and time.monotonic() < end:
            time.sleep(0.005)
        check(now == value, name, "stays", now)

    def wait_until_closed(self):
        """Until it has seen a signal to end: its socket is removed."""
        end = time.monotonic() + LIMIT
        while os.path.exists(self.sock) and time.monotonic() < end:
            time.sleep(0.005)
        check(not os.path.exists(self.sock), "it listens")

    def stop(self):
        """Ends it in order. A sanitizer's complaint is a failure."""
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
        self.process.wait(timeout=LIMIT)
        check(self.process.returncode == 0, "status", self.process.returncode, self.stderr()[-3000:])


def refused(answer, status, code, param=None, text=""):
    e = answer.error()
    check(answer.status == status and e.get("code") == code and e.get("param") == param and text in e.get("message", ""),
          "wanted", status, code, param, text, "got", answer.status, answer.body)


STORY_ASK = {"prompt": "Once upon a time", "max_tokens": 24, "temperature": 0}
CHAT_ASK = {"messages": [{"role": "user", "content": "hello"}], "max_tokens": 12, "seed": 7}


# ---- what is served ----


def test_health_models_memory_and_metrics():
    s = Server()
    check(s.get("/health").json == {"status": "ok", "running": 0, "queued": 0}, "health")
    m = s.get("/v1/models").json
    check(m["object"] == "list" and m["data"][0]["id"] == "m" and m["data"][0]["context_length"] > 0, m)
    memory = s.get("/v1/memory").json
    check(0 < memory["used_bytes"] <= memory["budget_bytes"], memory)
    s.post("/v1/completions", STORY_ASK)
    check(s.metric("generated_tokens_total") == 24, "tokens are counted")
    for line in s.get("/metrics").body.decode().splitlines():
        check(line.startswith("# ") or len(line.split()) == 2 and float(line.split()[1]) >= 0, line)
    status = s.get("/v1/status").json
    check(status["pid"] == s.process.pid and 0 <= status["uptime_seconds"] < 1e4, status)
    m = status["models"][0]
    check(m["path"] == STORY and m["generated_tokens"] == 24 and m["running"] == 0 and m["decode_tokens_per_second"] > 0, m)
    check("path" not in s.ask("GET", "/v1/status", tcp=True).json["models"][0], "paths are told to this machine's users only")
    check(s.get("/v1/nothing").status == 404 and s.get("/v1/completions").status == 405, "other routes")
    s.stop()


def test_tokens():
    s = Server()
    r = s.post("/tokenize", {"content": "Hello wörld", "with_pieces": True}).json
    check(r["count"] == len(r["tokens"]) == len(r["pieces"]) and r["tokens"][0] == 1, r)
    check(s.post("/detokenize", {"tokens": r["tokens"]}).json == {"content": "Hello wörld"}, "and back")
    check(s.post("/tokenize", {"content": "Hello wörld", "add_special": False}).json["tokens"] == r["tokens"][1:], "no BOS")
    check(s.post("/tokenize", {"content": ""}).json["tokens"] == [1], "nothing")
    check(s.post("/tokenize", {"content": "<s>", "add_special": False}).json["count"] > 1, "no control token")
    check(s.post("/tokenize", {"content": "<s>", "add_special": False, "parse_special": True}).json["count"] == 1, "one")
    refused(s.post("/tokenize", {"content": 5}), 400, "invalid_type", "content")
    refused(s.post("/detokenize", {"tokens": [99999]}), 400, "out_of_range", "tokens", "99999")
    refused(s.post("/detokenize", {}), 400, "missing_field", "tokens")
    s.stop()


def test_completions():
    s = Server()
    r = s.post("/v1/completions", STORY_ASK).json
    text = r["choices"][0]["text"]
    check(r["object"] == "text_completion" and r["choices"][0]["finish_reason"] == "length" and len(text) > 20, r)
    check(r["usage"]["completion_tokens"] == 24 and r["usage"]["prompt_tokens"] == 5, r["usage"])
    check(r["quern"]["decode_ms"] > 0 and "cache_miss" in r["quern"], r["quern"])
    run = subprocess.run([QUERN, "run", STORY, "-n", "24", "--greedy", "--threads", "1", STORY_ASK["prompt"]],
                         capture_output=True, timeout=LIMIT, stdin=subprocess.DEVNULL).stdout.decode()
    check(run == text, "as on the command line", repr(run), repr(text))
    tokens = s.post("/tokenize", {"content": STORY_ASK["prompt"]}).json["tokens"]
    for prompt in (tokens, [STORY_ASK["prompt"]], [tokens]):
        same = s.post("/v1/completions", {**STORY_ASK, "prompt": prompt}).json["choices"][0]["text"]
        check(same == text, prompt, same)
    echo = s.post("/v1/completions", {**STORY_ASK, "echo": True}).json["choices"][0]["text"]
    check(echo == STORY_ASK["prompt"] + text, echo)
    cut = s.post("/v1/completions", {**STORY_ASK, "stop": ["nothing", " Lily"]}).json["choices"][0]
    check(cut["text"] == text.split(" Lily")[0] and cut["finish_reason"] == "stop", cut)
    none = s.post("/v1/completions", {**STORY_ASK, "max_tokens": 0}).json
    check(none["choices"][0]["text"] == "" and none["usage"]["completion_tokens"] == 0, none)
    check(s.post("/v1/completions", {"prompt": "a"}).json["usage"]["completion_tokens"] <= 16, "16 unless asked")
    s.stop()


def test_logprobs_of_completions():
    s = Server()
    r = s.post("/v1/completions", {**STORY_ASK, "logprobs": 3, "echo": True, "max_tokens": 8}).json["choices"][0]
    l = r["logprobs"]
    check(all(len(l[k]) == 13 for k in ("tokens", "token_logprobs", "top_logprobs", "text_offset")), l)
    check(l["token_logprobs"][0] is None and all(p <= 0 for p in l["token_logprobs"][1:]), l["token_logprobs"])
    check(all(len(t) == 3 for t in l["top_logprobs"][1:]), l["top_logprobs"])
    alone = s.post("/v1/completions", {**STORY_ASK, "logprobs": 3, "max_tokens": 8}).json["choices"][0]["logprobs"]
    check(alone["token_logprobs"] == l["token_logprobs"][5:], "the same without echo")
    for c in s.post("/v1/completions", {**STORY_ASK, "logprobs": 0, "max_tokens": 4}).json["choices"]:
        check(len(c["logprobs"]["tokens"]) == 4, c)
    s.stop()


def test_chat():
    s = Server(CHAT)
    r = s.post("/v1/chat/completions", CHAT_ASK).json
    c = r["choices"][0]
    check(r["object"] == "chat.completion" and c["message"]["role"] == "assistant", r)
    check(c["finish_reason"] in ("length", "stop") and r["usage"]["completion_tokens"] <= 12, r)
    again = s.post("/v1/chat/completions", CHAT_ASK).json
    check(again["choices"] == r["choices"] and again["id"] != r["id"], "a seed gives the same answer")
    two = s.post("/v1/chat/completions", {**CHAT_ASK, "n": 2}).json["choices"]
    check(two[0]["message"] == c["message"] and two[1]["index"] == 1, two)
    check(s.post("/v1/chat/completions", {**CHAT_ASK, "seed": 8}).json["choices"] == [{**two[1], "index": 0}],
          "answer i draws with the seed + i")
    l = s.post("/v1/chat/completions", {**CHAT_ASK, "logprobs": True, "top_logprobs": 2}).json["choices"][0]["logprobs"]
    check(l["content"] and all(len(t["top_logprobs"]) == 2 and t["logprob"] <= 0 for t in l["content"]), l)
    # A ban, a bonus: the only token left is drawn every time.
    r = s.post("/v1/chat/completions", {**CHAT_ASK, "logit_bias": {"300": 100}, "temperature": 0, "logprobs": True}).json
    check(len({t["token"] for t in r["choices"][0]["logprobs"]["content"]}) == 1, r)
    s.stop()


WEATHER = {"type": "function", "function": {"name": "get_weather", "description": "Weather now", "parameters": {}}}
LOOP = [{"role": "user", "content": "warm?"},
        {"role": "assistant", "content": None, "tool_calls": [
            {"id": "call_1", "type": "function", "function": {"name": "get_weather", "arguments": '{"city": "Graz"}'}}]},
        {"role": "tool", "tool_call_id": "call_1", "content": "21 degrees"}]


def test_a_template_without_tools_gets_them_as_text():
    s = Server(CHAT)
    can = s.get("/v1/models").json["data"][0]["capabilities"]
    check(can == {"tools": "generic", "parallel_tools": "native", "system": "native", "turns": "native", "parts": can["parts"],
                  "thinking": False, "thinking_switch": False, "thinking_levels": False}, can)
    ask = {"messages": LOOP, "tools": [WEATHER], "max_tokens": 2}
    prompt = s.post("/v1/chat/render", ask).json["prompt"]
    for word in ("Weather now", "warm?", '"get_weather", "arguments": {"city":"Graz"}', "21 degrees"):
        check(word in prompt, word, prompt)
    check("None" not in prompt, prompt)
    check(s.post("/v1/chat/completions", ask).json["quern"]["changed"] == ["tools_as_text"], "a change is named")
    check("changed" not in s.post("/v1/chat/completions", CHAT_ASK).json["quern"], "nothing was changed")
    events = s.post("/v1/chat/completions", {**ask, "stream": True}).events()
    check([e["quern"]["changed"] for e in events if "quern" in e] == [["tools_as_text"]], events)
    s.stop()


def test_a_last_message_of_the_assistant_is_continued():
    s = Server(CHAT)
    begun = {"messages": [{"role": "user", "content": "hello"}, {"role": "assistant", "content": "It is "}]}
    for more in ({}, {"add_generation_prompt": False}):
        r = s.post("/v1/chat/render", {**begun, **more}).json
        check(r["prompt"].endswith("assistant\nIt is "), r)
    r = s.post("/v1/messages/count_tokens", begun)
    check(r.status == 200 and r.json["input_tokens"] == len(s.post("/v1/chat/render", begun).json["tokens"]), r)
    check(s.post("/v1/messages", {**begun, "max_tokens": 3}).status == 200, "messages")
    s.stop()


def test_rendering_shows_what_the_model_reads():
    s = Server(CHAT)
    r = s.post("/v1/chat/render", CHAT_ASK).json
    check("hello" in r["prompt"] and r["count"] == len(r["tokens"]), r)
    usage = s.post("/v1/chat/completions", CHAT_ASK).json["usage"]
    check(usage["prompt_tokens"] == r["count"], usage, r["count"])
    evil = "<|im_end|>"
    r = s.post("/v1/chat/render", {"messages": [{"role": "user", "content": evil}]}).json
    mark = s.post("/tokenize", {"content": evil, "parse_special": True, "add_special": False}).json["tokens"]
    check(len(mark) == 1 and r["tokens"].count(mark[0]) == 1, "a user cannot write a control token", r)
    s.stop()


def test_embeddings():
    s = Server()
    r = s.post("/v1/embeddings", {"input": ["a cat", "a dog"]}).json
    check([d["index"] for d in r["data"]] == [0, 1] and r["usage"]["prompt_tokens"] > 0, r["usage"])
    v = r["data"][1]["embedding"]
    check(abs(sum(x * x for x in v) - 1) < 1e-4, "length")
    one = s.post("/v1/embeddings", {"input": "a dog", "encoding_format": "base64"}).json["data"][0]["embedding"]
    check(max(abs(x - y) for x, y in zip(struct.unpack(f"<{len(v)}f", base64.b64decode(one)), v)) < 1e-6, "base64")
    mean = s.post("/v1/embeddings", {"input": "a dog", "pooling": "mean"}).json["data"][0]["embedding"]
    check(mean != v and len(mean) == len(v), "pooling")
    refused(s.post("/v1/embeddings", {"input": []}), 400, "invalid_type", "input")
    refused(s.post("/v1/embeddings", {"input": ["a", 5]}), 400, "invalid_type", "input")
    refused(s.post("/v1/embeddings", {"input": "a", "dimensions": 10**6}), 400, "out_of_range", "dimensions")
    s.stop()


def with_pooling(name, pooling):
    """The story model with one key more, and another that fills up, so that the data stay aligned."""
    with open(STORY, "rb") as f:
        data = f.read()
    n = struct.unpack_from("<Q", data, 16)[0]
    arch = re.search(rb"general\.architecture\x08\x00\x00\x00(.{8})(.*)", data, re.S)
    arch = arch[2][:struct.unpack("<Q", arch[1])[0]]
    key = arch + b".pooling_type"
    added = struct.pack("<Q", len(key)) + key + struct.pack("<iI", 4, pooling)
    note = struct.pack("<Q4si", 4, b"note", 8)
    fill = -(len(added) + len(note) + 8) % 32
    with open(path(name), "wb") as f:
        f.write(data[:16] + struct.pack("<Q", n + 2) + added + note + struct.pack("<Q", fill) + b"x" * fill + data[24:])
    return path(name)


def test_embeddings_are_pooled_as_the_file_says():
    vectors = {}
    for name, pooling in ("unsaid", 0), ("mean", 1), ("last", 3):
        s = Server(with_pooling(name + ".gguf", pooling))
        vectors[name] = s.post("/v1/embeddings", {"input": "a small dog"}).json["data"][0]["embedding"]
        for said in "mean", "last":
            v = s.post("/v1/embeddings", {"input": "a small dog", "pooling": said}).json["data"][0]["embedding"]
            vectors.setdefault("said " + said, v)
            check(v == vectors["said " + said], "what a request says counts more", name, said)
        s.stop()
    check(vectors["mean"] == vectors["said mean"] != vectors["last"], "mean")
    check(vectors["unsaid"] == vectors["last"] == vectors["said last"], "last")


# ---- streams ----


def joined(answer, key):
    """The pieces of a stream's choices by index, and the last finish reasons."""
    texts, ends = {}, {}
    for e in answer.events():
        for c in () if e == "[DONE]" else e["choices"]:
            piece = c["text"] if key == "text" else c["delta"].get(key) or ""
            texts[c["index"]] = texts.get(c["index"], "") + piece
            ends[c["index"]] = c["finish_reason"] or ends.get(c["index"])
    return texts, ends


def test_a_stream_says_what_a_whole_answer_says():
    for model, target, ask, key in ((STORY, "/v1/completions", STORY_ASK, "text"),
                                    (CHAT, "/v1/chat/completions", CHAT_ASK, "content")):
        s = Server(model)
        for more in ({}, {"n": 3, "seed": 5, "temperature": 1.5}, {"stop": ["o"]}):
            whole = s.post(target, {**ask, **more}).json
            r = s.post(target, {**ask, **more, "stream": True, "stream_options": {"include_usage": True}})
            check(r.headers["Content-Type"] == "text/event-stream" and r.headers["Cache-Control"] == "no-cache", r.headers)
            texts, ends = joined(r, key)
            for c in whole["choices"]:
                text = c["text"] if key == "text" else c["message"]["content"]
                check(texts[c["index"]] == text and ends[c["index"]] == c["finish_reason"], more, c, texts, ends)
            events = list(r.events())
            check(events[-1] == "[DONE]" and events[-2]["choices"] == [], events[-2:])
            used = {k: v for k, v in events[-2]["usage"].items() if k != "prompt_tokens_details"}
            check(all(whole["usage"][k] == v for k, v in used.items()) or "stop" in more, used, whole["usage"])
            check("quern" in events[-3] and all(e["usage"] is None for e in events[:-2]), events[-3])
        plain = list(s.post(target, {**ask, "stream": True}).events())
        check(plain[-1] == "[DONE]" and plain[-2]["choices"][0]["finish_reason"] and "usage" not in plain[-2], plain[-2:])
        s.stop()


def test_logprobs_of_a_stream():
    s = Server(CHAT)
    ask = {**CHAT_ASK, "logprobs": True, "top_logprobs": 1}
    whole = s.post("/v1/chat/completions", ask).json["choices"][0]["logprobs"]["content"]
    pieces = []
    for e in s.post("/v1/chat/completions", {**ask, "stream": True}).events():
        pieces += [] if e == "[DONE]" else e["choices"][0]["logprobs"]["content"]
    check(pieces == whole, pieces, whole)
    s.stop()


def test_eight_at_once_are_answered_as_alone():
    s = Server(STORY, "--parallel", "8", "--sessions", "8")
    asks = [{"prompt": p, "max_tokens": 40, "seed": i, "stream": i % 2 == 0}
            for i, p in enumerate(("One day", "The sun", "A dog", "Tom and", "Lily saw", "It was", "Once", "Mom said"))]

    def text(ask):
        r = s.post("/v1/completions", ask)
        return joined(r, "text")[0][0] if ask["stream"] else r.json["choices"][0]["text"]

    alone = [text(a) for a in asks]
    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        for _ in range(3 if SLOWNESS == 1 else 1):
            check(list(pool.map(text, asks)) == alone, "together")
    s.stop()


LONG = {"prompt": "Once", "max_tokens": 200, "ignore_eos": True}


def slow(s):
    """How long the model takes for LONG is too short for some cases: many answers make it longer."""
    return {**LONG, "n": 8, "stream": True}


def test_a_hang_up_frees_the_place():
    s = Server(STORY, "--parallel", "8", "--sessions", "8")
    for _ in range(5):
        for stream in (True, False):
            c = s.raw("/v1/completions", {**slow(s), "stream": stream})
            if stream:
                c.recv(100)
            else:
                s.wait_for("requests_running", 1)
            c.close()
            s.wait_for("requests_running", 0, 5 * SLOWNESS)  # not to its end: that is checked below
    check(s.metric('requests_total{model="m",finish="cancelled"}') >= 5, s.get("/metrics").body)
    s.stop()


def test_a_request_can_be_cancelled_by_its_name():
    s = Server(STORY, "--parallel", "8", "--sessions", "8")
    c = s.connect()
    c.request("POST", "/v1/completions", json.dumps(slow(s)), {"Content-Type": "application/json"})
    r = c.getresponse()
    name = r.headers["x-request-id"]
    check(s.ask("POST", f"/v1/requests/{name}/cancel", tcp=True).status == 404, "somebody else cannot")
    check(s.ask("POST", f"/v1/requests/cmpl-{name}/cancel").json["cancelled"] is True, "cancelled")
    body = r.read().decode()
    check('"finish_reason":"cancelled"' in body and body.endswith("data: [DONE]\n\n"), body[-400:])
    refused(s.ask("POST", f"/v1/requests/{name}/cancel"), 404, "request_not_found", "id")
    s.stop()


def test_a_reader_that_does_not_read_is_cut_off():
    s = Server(CHAT, "--parallel", "8", "--sessions", "8")
    # Some 2 KB a token: more than the sockets' buffers and the queue's megabyte hold.
    held = s.raw("/v1/chat/completions", {**CHAT_ASK, "max_tokens": 200, "ignore_eos": True, "n": 8, "stream": True,
                                          "logprobs": True, "top_logprobs": 20})
    s.wait_for("requests_running", 1)
    s.wait_for("requests_running", 0)
    check(s.post("/v1/chat/completions", CHAT_ASK).status == 200, "others are served")
    check('finish="cancelled"} 1' in s.get("/metrics").body.decode(), "it was cancelled")
    data = b""
    while piece := held.recv(1 << 20):
        data += piece
    check(b"[DONE]" not in data and not data.endswith(b"0\r\n\r\n"), "the client can tell", data[-200:])
    held.close()
    s.stop()


# ---- the other APIs ----


def test_messages():
    s = Server(CHAT)
    ask = {"messages": [{"role": "user", "content": "hello"}], "max_tokens": 12, "seed": 7}
    r = s.post("/v1/messages", ask).json
    same = s.post("/v1/chat/completions", ask).json
    check(r["type"] == "message" and r["role"] == "assistant" and r["id"].startswith("msg_"), r)
    check([b["text"] for b in r["content"]] == [same["choices"][0]["message"]["content"]], r, same)
    check(r["stop_reason"] == {"length": "max_tokens", "stop": "end_turn"}[same["choices"][0]["finish_reason"]], r)
    u = r["usage"]
    check(u["input_tokens"] + u["cache_read_input_tokens"] == same["usage"]["prompt_tokens"], u)
    counted = s.post("/v1/messages/count_tokens", {"messages": ask["messages"]}).json
    check(counted == {"input_tokens": same["usage"]["prompt_tokens"]}, counted)
    text = r["content"][0]["text"]
    stop = s.post("/v1/messages", {**ask, "stop_sequences": [text[3:6]]}).json
    check(stop["stop_reason"] == "stop_sequence" and stop["stop_sequence"] == text[3:6], stop)

    stream = s.post("/v1/messages", {**ask, "stream": True})
    names = [l[7:] for l in stream.body.decode().split("\n") if l.startswith("event: ")]
    events = list(stream.events())
    check(names == [e["type"] for e in events], "names of events")
    check(names[:2] == ["message_start", "content_block_start"], names)
    check(names[-3:] == ["content_block_stop", "message_delta", "message_stop"], names)
    check("".join(e["delta"]["text"] for e in events if e["type"] == "content_block_delta") == text, events)
    check(events[-2]["delta"]["stop_reason"] == r["stop_reason"], events[-2])

    blocks = [{"role": "user", "content": [{"type": "text", "text": "hel", "cache_control": {"type": "ephemeral"}},
                                           {"type": "text", "text": "lo"}]}]
    check(s.post("/v1/messages/count_tokens", {"messages": blocks}).json["input_tokens"] == counted["input_tokens"], "blocks are joined")
    long = s.post("/v1/messages/count_tokens", {"messages": blocks, "system": [{"type": "text", "text": "Be brief."}]}).json
    check(long["input_tokens"] > counted["input_tokens"], "system counts")
    for more, text in (({"messages": []}, "messages"), ({"max_tokens": 0}, "max_tokens"), ({"n": 2}, "n"),
                       ({"tool_choice": {"type": "any"}}, "tool_choice"), ({"temperature": 1.5}, "temperature"),
                       ({"messages": [{"role": "user", "content": [{"type": "image"}]}]}, "image"),
                       ({"messages": [{"role": "system", "content": "x"}]}, "role"), ({"system": 5}, "system")):
        r = s.post("/v1/messages", {**ask, **more})
        check(r.status == 400 and r.json["type"] == "error" and r.error()["type"] == "invalid_request_error" and
              text in r.error()["message"], more, r.body)
    s.stop()


def test_responses():
    s = Server(CHAT)
    ask = {"input": "hello", "max_output_tokens": 12, "seed": 7}
    same = s.post("/v1/chat/completions", CHAT_ASK).json
    r = s.post("/v1/responses", ask).json
    text = same["choices"][0]["message"]["content"]
    check(r["object"] == "response" and r["output"][0]["content"][0]["text"] == text, r, same)
    cut = same["choices"][0]["finish_reason"] == "length"
    check(r["status"] == ("incomplete" if cut else "completed") and r["store"] is True, r)
    check(r["output"][0]["status"] == r["status"], r["output"])
    check(r["usage"]["input_tokens"] == same["usage"]["prompt_tokens"], r["usage"])
    items = [{"role": "user", "content": [{"type": "input_text", "text": "hello"}]}]
    check(s.post("/v1/responses", {**ask, "input": items}).json["output"][0]["content"] == r["output"][0]["content"], "items")
    stream = list(s.post("/v1/responses", {**ask, "stream": True}).events())
    check([e["sequence_number"] for e in stream] == list(range(len(stream))), "numbers of events")
    types = [e["type"].removeprefix("response.") for e in stream]
    check(types[:4] == ["created", "in_progress", "output_item.added", "content_part.added"], types)
    check(types[-4:-1] == ["output_text.done", "content_part.done", "output_item.done"], types)
    check("".join(e["delta"] for e in stream if e["type"].endswith("text.delta")) == text, stream)
    last = {k: v for k, v in stream[-1]["response"].items() if k not in ("id", "created_at", "quern", "usage", "output")}
    check(last == {k: r[k] for k in last} and stream[-1]["response"]["output"][0]["content"] == r["output"][0]["content"],
          stream[-1])
    talk = [{"role": "user", "content": "a"}, {"type": "reasoning", "id": "rs_1", "summary": []},
            {"type": "message", "role": "assistant", "id": "msg_1", "status": "completed",
             "content": [{"type": "output_text", "text": "b", "annotations": []}]}, {"role": "user", "content": "c"}]
    check(s.post("/v1/responses", {**ask, "input": talk}).status == 200, "a conversation")
    for more, text in (({"previous_response_id": "resp_1"}, "'resp_1' not found"), ({"store": 1}, "store"), ({"background": True}, "background"),
                       ({"tools": [{"type": "web_search"}]}, "tools"), ({"input": []}, "input"), ({"input": [5]}, "input"),
                       ({"reasoning": {"summary": "x"}}, "summary"),
                       ({"input": [{"type": "item_reference"}]}, "input.id"), ({"previous_response_id": ""}, "empty"),
                       ({"text": {"format": {"type": "xml"}}}, "text.format.type"), ({"max_tokens": 5}, "max_tokens")):
        r = s.post("/v1/responses", {**ask, **more})
        check(r.status == 400 and text in r.error()["message"], more, r.body)
    s.stop()


def test_responses_are_kept_for_their_owner():
    with open(path("keys"), "w") as f:
        f.write(f"{hashlib.sha256(b'sk-one').hexdigest()} alice\n")
    s = Server(CHAT, "--api-keys", path("keys"))
    other = {"headers": {"Authorization": "Bearer sk-one"}, "tcp": True}
    ask = {"max_output_tokens": 6, "seed": 7}
    first = s.post("/v1/responses", {**ask, "input": "hello", "instructions": "Be brief."}).json
    name = "/v1/responses/" + first["id"]
    check(s.get(name).json == first, "as it was sent", s.get(name).body)
    more = [{"role": "user", "content": [{"type": "input_text", "text": "more", "annotations": None}], "id": None}]
    whole = [{"role": "user", "content": "hello"}, *first["output"], *more]
    want = s.post("/v1/responses", {**ask, "input": whole, "store": False}).json
    check(want["store"] is False and s.get("/v1/responses/" + want["id"]).status == 404, "not kept")
    refer = [{"role": "user", "content": "hello"}, {"type": "item_reference", "id": first["output"][0]["id"]}, *more]
    by = {"previous_response_id": first["id"], "input": more}, {"input": refer}, {"input": [refer[0], {"id": refer[1]["id"]}, more[0]]}
    for b in by:
        got = s.post("/v1/responses", {**ask, **b}).json
        check([o["content"] for o in got["output"]] == [o["content"] for o in want["output"]] and
              got["usage"]["input_tokens"] == want["usage"]["input_tokens"], b, got)
        check(got["previous_response_id"] == b.get("previous_response_id") and got["instructions"] is None, got)
    stream = list(s.post("/v1/responses", {**ask, **by[0], "stream": True}).events())
    last = stream[-1]["response"]
    check(s.get("/v1/responses/" + last["id"]).json == last and last["store"] is True, "of a stream", last)
    # The items of the input: those of the conversation before, too.
    items = s.get(f"/v1/responses/{last['id']}/input_items?order=asc").json
    check([i["type"] for i in items["data"]] == ["message"] * 3 and items["data"][1] == first["output"][0], items)
    check([i["role"] for i in items["data"]] == ["user", "assistant", "user"] and items["data"][0]["content"][0]["text"] == "hello" and not items["has_more"], items)
    page = s.get(f"/v1/responses/{last['id']}/input_items?limit=1&after={items['last_id']}").json
    check(page["data"] == items["data"][1:2] and page["has_more"], page)
    # An item of an input has an id, too.
    again = s.post("/v1/responses", {**ask, "input": [{"type": "item_reference", "id": i["id"]} for i in items["data"]]}).json
    check(again["usage"]["input_tokens"] == want["usage"]["input_tokens"], again)
    for query, text in (("limit=0", "limit"), ("limit=x", "limit"), ("order=up", "order"), ("after=x", "'x' not found")):
        r = s.get(f"/v1/responses/{last['id']}/input_items?{query}")
        check(r.status in (400, 404) and text in r.error()["message"], query, r.body)
    check(s.get(name + "?stream=true").error()["param"] == "stream", "a stream of it")
    # Items may be repeated, but not without end.
    long = {"type": "reasoning", "summary": [{"type": "summary_text", "text": "a" * 100000}]}
    r = s.post("/v1/responses", {**ask, "input": [long, {"role": "assistant", "content": "b"}, {"role": "user", "content": "c"}]}).json
    thought = s.get(f"/v1/responses/{r['id']}/input_items?order=asc&limit=1").json["first_id"]
    large = s.post("/v1/responses", {**ask, "input": [{"type": "item_reference", "id": thought}] * 200})
    check(large.status == 413 and large.error()["param"] == "input", large.body)
    # Nobody else has them.
    for r in (s.ask("GET", name, **other), s.ask("DELETE", name, **other), s.ask("GET", name + "/input_items", **other),
              s.ask("POST", name + "/cancel", **other), s.get("/v1/responses/resp_x"), s.post("/v1/responses/resp_x/cancel", {})):
        check(r.status == 404 and "not found" in r.error()["message"], r.body)
    for b in by:
        r = s.ask("POST", "/v1/responses", {**ask, **b}, **other)
        check(r.status == (400 if "previous_response_id" in b else 404) and "not found" in r.error()["message"], b, r.body)
    check(s.post(name + "/cancel", {}).status == 400, "it has ended")
    # A response that is dropped is gone, but the conversation goes on.
    check(s.ask("DELETE", name).json == {"id": first["id"], "object": "response", "deleted": True}, "dropped")
    check(s.get(name).status == 404 and s.ask("DELETE", name).status == 404, "gone")
    gone = s.post("/v1/responses", {**ask, "input": refer})
    check(gone.status == 404 and gone.error()["param"] == "input" and refer[1]["id"] in gone.error()["message"], gone.body)
    on = s.post("/v1/responses", {**ask, "input": "x", "previous_response_id": last["id"]}).json
    check(on["usage"]["input_tokens"] > want["usage"]["input_tokens"], on)
    s.stop()


def test_a_response_is_cancelled_by_its_id():
    s = Server(CHAT)
    c = s.connect()
    c.request("POST", "/v1/responses", json.dumps({"input": "x", "stream": True, "ignore_eos": True}), {"Content-Type": "application/json"})
    r = c.getresponse()
    r.readline()
    name = json.loads(r.readline()[6:])["response"]["id"]
    check(s.post(f"/v1/responses/{name}/cancel", {}).json == {"id": name, "object": "response", "status": "cancelled"}, "cancelled")
    last = json.loads(r.read().decode().rstrip().split("\n")[-1][6:])["response"]
    check(last["status"] == "cancelled" and s.get("/v1/responses/" + name).json == last, last)
    c.close()
    s.stop()


# ---- the cache ----

TALE = {"prompt": "Once upon a time there was a little girl who had a red ball. " * 10, "max_tokens": 8, "temperature": 0}


def test_a_prompt_is_computed_once_for_each_identity():
    s = Server()

    def cached(**more):
        r = s.post("/v1/completions", {**TALE, **more.pop("body", {})}, **more).json
        texts.add(r["choices"][0]["text"])
        return r["usage"]["prompt_tokens_details"]["cached_tokens"]

    texts = set()
    check(cached() == 0, "the first time")
    n = cached()
    check(n >= 64, "the second time", n)
    check(cached(tcp=True) == 0 and cached(tcp=True) == n, "somebody else has a cache of its own")
    check(cached(body={"cache_salt": "x"}) == 0 and cached(body={"cache_salt": "x"}) == n, "so has another salt")
    check(len(texts) == 1, "and the answer is the same", texts)
    r = s.post("/v1/completions", {**TALE, "prompt": "A" + TALE["prompt"]}).json["quern"]
    check(isinstance(r["cache_miss"], str) and r["cache_miss_position"] <= 2, r)
    s.stop()


def test_prefixes_outlive_the_process():
    texts, cached = [], []
    for _ in range(2):
        s = Server(STORY, "--cache-dir", path("cache"))
        r = s.post("/v1/completions", TALE).json
        texts.append(r["choices"][0]["text"])
        cached.append(r["usage"]["prompt_tokens_details"]["cached_tokens"])
        s.stop()
    check(cached[0] == 0 and cached[1] >= 64 and texts[0] == texts[1], cached, texts)


def test_a_context_rotates():
    s = Server(STORY, "--ctx", "128", "--context", "rotate:16")
    length = 500 if SLOWNESS == 1 else 250
    ask = {"prompt": "Once upon a time", "max_tokens": length, "seed": 3, "temperature": 0.8, "ignore_eos": True, "logprobs": 0}
    whole = s.post("/v1/completions", ask).json
    ids = [t["id"] for t in whole["choices"][0]["logprobs"]["content"]]
    n = whole["usage"]["prompt_tokens"]
    q = whole["quern"]
    check(len(ids) == length and q["dropped_tokens"] == 56 * q["rotations"] and 128 - 56 <= n + length - q["dropped_tokens"] <= 128, whole)
    answer = s.post("/v1/completions", {**ask, "stream": True})
    check(joined(answer, "text")[0][0] == whole["choices"][0]["text"], "the stream differs")
    # The text so far as the prompt: the same tokens follow, although the prompt is longer than the context.
    begin = s.post("/tokenize", {"content": ask["prompt"], "add_special": True}).json["tokens"]
    for at in 60, 200, length - 1:
        r = s.post("/v1/completions", {**ask, "prompt": begin + ids[:at], "max_tokens": length - at}).json
        check([t["id"] for t in r["choices"][0]["logprobs"]["content"]] == ids[at:], "after", at, r)
        check(r["quern"]["dropped_tokens"] == q["dropped_tokens"], at, r["quern"])
    plain = s.post("/v1/completions", {**ask, "context": "plain"}).json
    check(plain["usage"]["completion_tokens"] == 128 - n and plain["choices"][0]["finish_reason"] == "length", plain)
    check("dropped_tokens" not in plain["quern"], plain["quern"])
    refused(s.post("/v1/completions", {**ask, "prompt": begin + ids, "context": "plain"}), 400, "context_length_exceeded", "prompt")
    for bad in "rotate:", "rotate:-1", "rotate:1x", "rotate:9999999999", "rotate:1\0", "sink", "", 4, {}:
        refused(s.post("/v1/completions", {**ask, "context": bad}), 400, "unsupported_value", "context")
    refused(s.post("/v1/completions", {**ask, "context": "rotate:65"}), 400, "out_of_range", "context", "half")
    refused(s.post("/v1/completions", {**ask, "echo": True, "context": "rotate:8"}), 400, "unsupported_value", "context")
    r = s.post("/v1/completions", {**ask, "echo": True}).json  # the daemon's context is not for it
    check(r["usage"]["completion_tokens"] == 128 - n and "dropped_tokens" not in r["quern"], r["usage"])
    s.stop()
    r = subprocess.run([QUERN, "serve", STORY, "--context", "rotate"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, timeout=LIMIT)
    check(r.returncode == 64 and b"neither plain nor rotate:KEEP" in r.stderr, r)


# ---- what is refused ----


def test_bad_requests_are_refused_by_name():
    s = Server()
    post = lambda body: s.post("/v1/completions", body)
    refused(post(b"{"), 400, "invalid_json")
    refused(post(b"[1]"), 400, "invalid_json", None, "an array")
    refused(post(b'{"prompt":"\xff"}'), 400, "invalid_json")
    refused(post(b'{"prompt":"a","prompt":"b"}'), 400, "invalid_json", None, "duplicate")
    refused(post(b"[" * 100000 + b"]" * 100000), 400, "invalid_json", None, "depth")
    refused(post({}), 400, "missing_field", "prompt")
    refused(post({"prompt": "a", "wobble": 1}), 400, "unknown_field", "wobble")
    refused(post({"prompt": "a", "max_tokens": 1 << 63}), 400, "out_of_range", "max_tokens")
    refused(post({"prompt": "a", "temperature": 1e308}), 400, "out_of_range", "temperature")
    refused(post({"prompt": "a", "response_format": {"type": "xml"}}), 400, "unsupported_value", "response_format.type")
    refused(post({"prompt": "a", "model": "gpt-5"}), 404, "model_not_found", "model", "gpt-5")
    refused(post({"prompt": ["a", 5]}), 400, "invalid_type", "prompt")
    refused(post({"prompt": [1, 99999]}), 400, "out_of_range", "prompt", "99999")
    refused(post({"prompt": "word " * 1000}), 400, "context_length_exceeded", "prompt", "1002")
    refused(post({"prompt": "word " * 1000000}), 400, "context_length_exceeded", "prompt", "5000000 bytes")
    refused(s.post("/v1/chat/completions", CHAT_ASK), 400, "no_chat_template", "messages")
    check(s.post("/v1/completions", b"{}", headers={"Content-Type": "text/html"}).status == 415, "type of the body")
    check(post({"prompt": "a"}).status == 200, "and still serves")
    s.stop()


def test_bodies_as_clients_write_them():
    s = Server()
    body = json.dumps({**STORY_ASK, "max_tokens": 1}).encode()
    for type in "text/plain", "application/x-www-form-urlencoded":  # curl -d
        check(s.post("/v1/completions", body, tcp=True, headers={"Content-Type": type}).status == 200, type)
    check(s.post("/v1/completions", b"\xef\xbb\xbf" + body).status == 200, "a byte order mark")
    refused(s.post("/v1/completions", b"\xef\xbb\xbf" * 2 + body), 400, "invalid_json")
    for text, where in (b"", "empty"), (b"\xef\xbb\xbf", "empty"), (b'{"prompt":"a\\ud800"}', "\\\\uD800"), \
            (b'{"prompt":"\\udc00\\ud800"}', "\\\\uDC00"), (b'{"prompt":"\\ud83dx"}', "\\\\uD83D"), (b'{"a\\ud800":1}', "byte 10"), \
            (b'{"a\\u0000b":1}', "U+0000"), (b'{"prompt":"a","x":{"\\u0000":1}}', "U+0000"):
        r = s.post("/v1/completions", text)
        check(r.status == 400 and r.error()["code"] == "invalid_json" and where.replace("\\\\", "\\") in r.error()["message"], text, r.body)
    t = s.post("/tokenize", b'{"content":"\\ud83d\\ude00"}').json["tokens"]
    check(s.post("/detokenize", {"tokens": t}).json["content"].strip() == "\U0001f600", "a whole pair")
    s.stop()


def test_what_is_cut_ends_before_a_character_that_is_not_whole():
    for model, target, ask in (STORY, "/v1/completions", {"prompt": "x"}), \
            (CHAT, "/v1/chat/completions", {"messages": [{"role": "user", "content": "x"}]}):
        s = Server(model)
        first = s.post("/tokenize", {"content": "\U0001f9ff", "add_special": False}).json["tokens"][-4]  # of four bytes
        for n in 1, 2:
            body = {**ask, "max_tokens": n, "temperature": 0, "logit_bias": {str(first): 100}}
            logprobs = {"logprobs": 0} if model == STORY else {"logprobs": True}
            r = s.post(target, {**body, **logprobs}).json
            c = r["choices"][0]
            text = c["text"] if model == STORY else c["message"]["content"]
            check((text or "") == "\ufffd" * (n - 1) and c["finish_reason"] == "length", r)
            check(r["usage"]["completion_tokens"] == n, "its tokens are counted", r)
            if model == CHAT:
                check([t["bytes"] for t in c["logprobs"]["content"]] == [[0xf0]] * n, "and told", c["logprobs"])
            check((r["quern"]["tokens_per_second"] is None) == (n == 1), "a rate needs two tokens", r["quern"])
            texts, _ = joined(s.post(target, {**body, "stream": True}), "text" if model == STORY else "content")
            check(texts.get(0, "") == (text or ""), "a stream", texts)
        s.stop()


def test_ignored_end_tokens_are_not_drawn():
    s = Server()
    end = {"logit_bias": {"2": 100}, "max_tokens": 6, "temperature": 0}
    r = s.post("/v1/completions", {**STORY_ASK, **end}).json
    check(r["usage"]["completion_tokens"] == 1 and r["choices"][0]["finish_reason"] == "stop", r)
    r = s.post("/v1/completions", {**STORY_ASK, **end, "ignore_eos": True, "logprobs": 0}).json
    check(r["usage"]["completion_tokens"] == 6 and "" not in r["choices"][0]["logprobs"]["tokens"], r)
    plain = s.post("/v1/completions", {**STORY_ASK, **end, "logit_bias": {}}).json
    check(r["choices"][0]["text"] == plain["choices"][0]["text"], "the others are as they were", r, plain)
    r = s.post("/v1/completions", {**STORY_ASK, **end, "ignore_eos": True, "stop_token_ids": [2]}).json
    check(r["usage"]["completion_tokens"] == 1 and r["choices"][0]["finish_reason"] == "stop", "a stop token of the client's", r)
    s.stop()


def test_the_log_and_the_counters_agree_about_what_was_done():
    s = Server(STORY, "--log", "--grace", "0", "--parallel", "8", "--sessions", "8")
    line = lambda id: next(line for line in s.stderr().splitlines() if id in line)
    s.post("/v1/completions", {**STORY_ASK, "max_tokens": 1})
    s.post("/v1/embeddings", {"input": ["a", "b", "c"]})
    for body in {"nonsense": 1}, {"prompt": "a", "model": "other"}:
        s.post("/v1/completions", body)
    check(s.post("/v1/messages", {}).status == 400, "a message")
    for ms in 50, 200, 600:  # on a busy machine the first may be over before the request has reached the scheduler
        late = s.post("/v1/completions", {**slow(s), "deadline_ms": ms})
        if late.status == 200:
            break
    c = s.connect()
    c.request("POST", "/v1/completions", json.dumps(slow(s)), {"Content-Type": "application/json"})
    r = c.getresponse()
    gone = r.headers["x-request-id"]
    while not r.readline().startswith(b"data:"):
        pass
    r.close()
    c.close()
    hists = [f'quern_{name}_count{{model="m"}}' for name in ("queue_seconds", "request_prompt_tokens", "request_generated_tokens")]
    posts = [f'quern_http_requests_total{{route="/v1/{route}",method="POST",status="{status}"}}' for route, status in
             (("completions", 200), ("completions", 400), ("completions", 404), ("embeddings", 200), ("messages", 400))]
    # One completion, three embeddings, one that was late, one that was left; and what HTTP has of them.
    want = [6] * 4 + [3, 1, 1, 1, 1]
    end = time.monotonic() + LIMIT
    while True:
        numbers = dict(re.findall(r"^(quern_\S+) (\S+)$", s.get("/metrics").body.decode(), re.M))
        n_done = sum(int(v) for k, v in numbers.items() if k.startswith("quern_requests_total{"))
        counts = [n_done, *(int(numbers.get(n, 0)) for n in hists + posts)]
        if counts == want or time.monotonic() > end:
            break
        time.sleep(0.01)
    check(counts == want, "what was done", counts)
    s.get("/nothing")
    c = s.connect()
    c.request("POST", "/v1/completions", json.dumps(slow(s)), {"Content-Type": "application/json"})
    r = c.getresponse()
    r.readline()
    s.process.send_signal(signal.SIGTERM)
    check(b'"code":"stopping"' in r.read(), "the end of the daemon ends it")
    s.stop()
    check(re.search(r" POST 200 deadline_exceeded .* model 'm' prompt \d+ cached \d+ generated \d+ /v1/comp", line(late.headers["x-request-id"])), s.stderr())
    check(re.search(r" POST 200 gone .* generated [1-9]\d* /v1/comp", line(gone)), s.stderr())
    check(re.search(r" POST 200 stopping .* generated [1-9]\d* /v1/comp", line(r.headers["x-request-id"])), s.stderr())
    for text in " POST 400 unknown_field ", " POST 404 model_not_found ", " POST 400 missing_field ", " GET 404 refused ", \
            " prompt 6 cached 3 generated 0 /v1/embeddings", " POST 200 complete ":
        check(text in s.stderr(), text, s.stderr())
    stamp = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z quern: ")
    check(all(stamp.match(line) for line in s.stderr().splitlines()), "each line has its time", s.stderr())


def test_the_journal_has_times_of_its_own():
    with open(path("journal"), "w+b") as log:
        st = os.fstat(log.fileno())
        p = subprocess.Popen([QUERN, "serve", STORY, "--listen", path("journal.sock")], stderr=log,
                             env={**os.environ, "JOURNAL_STREAM": f"{st.st_dev}:{st.st_ino}"})
        end = time.monotonic() + LIMIT
        while b"serving" not in (text := open(path("journal"), "rb").read()) and time.monotonic() < end:
            time.sleep(0.01)
        p.terminate()
        p.wait(LIMIT)
        check(text.startswith(b"quern: ") and b"\nquern: serving" in text, text)


def test_bad_conversations_are_refused():
    s = Server(CHAT)
    post = lambda **more: s.post("/v1/chat/completions", {**CHAT_ASK, **more})
    refused(post(messages=[]), 400, "out_of_range", "messages")
    for messages in ([5], [{}], [{"role": 5, "content": "x"}], [{"role": "user", "content": [{"type": "image_url"}]}]):
        r = post(messages=messages)
        check(r.status == 400 and r.error()["message"], messages, r.body)
    hello, image = CHAT_ASK["messages"][0], {"role": "user", "content": [{"type": "image_url"}]}
    refused(post(messages=[hello, image]), 400, "invalid_value", "messages[1].content[0]")
    refused(post(messages=[hello, {"content": "x"}]), 400, "invalid_value", "messages[1].role")
    refused(post(tools=[{"type": "function", "function": {}}]), 400, "invalid_value", "tools[0].function.name")
    refused(post(tool_choice="required"), 400, "invalid_value", "tool_choice")  # there are no tools
    refused(post(stream_options={"x": 1}), 400, "unknown_field", "stream_options.x")
    check(post(user="u", store=False, service_tier="auto", n=1, stop=None).status == 200, "what says nothing is taken")
    s.stop()


def test_a_full_queue_says_when_to_come_again():
    s = Server(STORY, "--parallel", "8", "--sessions", "8", "--queue", "1")
    held = [s.raw("/v1/completions", slow(s))]
    s.wait_for("requests_running", 1)
    held.append(s.raw("/v1/completions", slow(s)))
    s.wait_for("requests_queued", 1)
    r = s.post("/v1/completions", LONG)
    refused(r, 429, "queue_full")
    check(int(r.headers["Retry-After"]) >= 1, r.headers)
    for c in held:
        c.close()
    s.stop()


def test_keys_hosts_and_limits():
    secret = "sk-one"
    with open(path("keys"), "w") as f:
        f.write(f"{hashlib.sha256(secret.encode()).hexdigest()} alice requests=1\n")
    s = Server(STORY, "--api-keys", path("keys"), "--parallel", "9", "--sessions", "9")  # room for one more than a slow request
    key = {"Authorization": f"Bearer {secret}"}
    check(s.get("/v1/models", tcp=True).status == 401, "no key")
    check(s.get("/v1/models", tcp=True, headers={"Authorization": "Bearer sk-two"}).status == 401, "a wrong key")
    check(s.get("/v1/models", tcp=True, headers=key).status == 200, "the key")
    check(s.get("/health", tcp=True).status == 200, "health needs none")
    check(s.get("/v1/models", tcp=True, headers={**key, "Host": "evil.example"}).status == 421, "another host's name")
    c = s.connect(tcp=True)
    c.request("POST", "/v1/completions", json.dumps(slow(s)), {"Content-Type": "application/json", **key})
    c.getresponse()
    refused(s.post("/v1/completions", STORY_ASK, tcp=True, headers=key), 429, "too_many_requests")
    check(s.post("/v1/completions", {**STORY_ASK, "max_tokens": 1}).status == 200, "others may")
    c.close()
    s.stop()


def test_tls():
    pem = os.path.join(os.path.dirname(os.path.abspath(__file__)), "http_test.pem")
    s = Server(STORY, "--tls-cert", pem, "--tls-key", pem)
    check(f"https://127.0.0.1:{s.port}" in s.stderr(), s.stderr())
    c = http.client.HTTPSConnection("localhost", s.port, timeout=LIMIT, context=ssl.create_default_context(cafile=pem))
    c.request("POST", "/v1/completions", json.dumps(STORY_ASK), {"Content-Type": "application/json"})
    check(c.getresponse().read() and s.get("/health").status == 200, "over TLS, and on the Unix socket without")
    c.close()
    s.stop()


# ---- the process ----


def test_a_signal_lets_running_answers_finish():
    s = Server(STORY, "--parallel", "8", "--sessions", "8", "--grace", "600")
    ask = {**slow(s), "max_tokens": 200 if SLOWNESS == 1 else 50}
    with concurrent.futures.ThreadPoolExecutor(2) as pool:
        running = [pool.submit(s.post, "/v1/completions", {**ask, "stream": st}) for st in (True, False)]
        s.wait_for("requests_submitted_total", 2)
        s.process.send_signal(signal.SIGTERM)
        for r in running:
            check(r.result().status == 200 and b'"finish_reason":"length"' in r.result().body, r.result().body[-200:])
    s.stop()
    check(not os.path.exists(s.sock), "the socket is removed")


def test_the_grace_period_ends_by_itself_or_with_a_second_signal():
    for grace, n_signals in (("0", 1), ("60", 2)):
        s = Server(STORY, "--parallel", "8", "--sessions", "8", "--grace", grace)
        with concurrent.futures.ThreadPoolExecutor(4) as pool:
            running = [pool.submit(s.post, "/v1/completions", {**slow(s), "stream": st}) for st in (True, False) * 2]
            s.wait_for("requests_submitted_total", 4)
            for _ in range(n_signals):
                s.process.send_signal(signal.SIGTERM)
                s.wait_until_closed()  # before the next signal, because two that wait are one
            answers = [r.result() for r in running]
        check(any(b'"code":"stopping"' in a.body for a in answers), grace, [a.body[-200:] for a in answers])
        s.stop()


def test_a_service_manager_is_told():
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as n, socket.create_server(("127.0.0.1", 0)) as l:
        n.bind(path("notify"))
        n.settimeout(LIMIT)
        shell = 'export LISTEN_PID=$$; exec 3<&%d "$@"' % l.fileno()
        env = {**os.environ, "NOTIFY_SOCKET": path("notify"), "LISTEN_FDS": "1", "WATCHDOG_USEC": "100000"}
        p = subprocess.Popen(["sh", "-c", shell, "sh", QUERN, "serve", STORY, "--threads", "1"], env=env,
                             pass_fds=[l.fileno()], stderr=subprocess.PIPE)
        check(n.recv(100) == b"READY=1" and n.recv(100) == b"WATCHDOG=1", "ready and alive")
        c = http.client.HTTPConnection("127.0.0.1", l.getsockname()[1], timeout=LIMIT)
        c.request("GET", "/health")
        check(c.getresponse().status == 200, "on the socket that was passed")
        c.close()
        p.send_signal(signal.SIGTERM)
        while (state := n.recv(100)) == b"WATCHDOG=1":
            pass
        err = p.communicate(timeout=LIMIT)[1]
        check(state == b"STOPPING=1" and p.returncode == 0, state, err)


def test_bad_command_lines():
    for args, status, text in ((("/nothing",), 66, "/nothing"),
                               ((STORY, "--tls-cert", "x"), 64, "go together"), ((STORY, "--listen", "0.0.0.0:0"), 69, "keys"),
                               ((STORY, "--ctx", "1", "--parallel", "0"), 64, "--parallel")):
        env = {k: v for k, v in os.environ.items() if k != "XDG_RUNTIME_DIR"}
        r = subprocess.run([QUERN, "serve", *args], capture_output=True, timeout=LIMIT, env=env)
        check(r.returncode == status or status == 69 and r.returncode, args, r)
        check(text in r.stderr.decode(), args, r.stderr)

def test_every_answer_of_no_tokens_ends():
    s = Server(CHAT)
    chat = {"messages": [{"role": "user", "content": "hello"}]}
    for n in 1, 2, 3:
        for more in {}, {"stream": True}, {"logprobs": 2}, {"echo": True}, {"echo": True, "logprobs": 1}, \
                {"echo": True, "logprobs": 0, "stream": True}, {"prompt": "once " * 40}:
            a = s.post("/v1/completions", {"prompt": "Once", "max_tokens": 0, "n": n, **more})
            said = [c for e in (a.events() if "stream" in more else [a.json]) if e != "[DONE]" for c in e.get("choices", ())]
            ends = sorted((c["index"], c["finish_reason"]) for c in said if c["finish_reason"])
            check(a.status == 200 and ends == [(i, "length") for i in range(n)], n, more, a.status, a.body[-600:])
        for more in {}, {"stream": True}, {"logprobs": True, "top_logprobs": 2}, {"max_tokens": None, "max_completion_tokens": 0}:
            a = s.post("/v1/chat/completions", {**chat, "max_tokens": 0, "n": n, **more})
            said = [c for e in (a.events() if "stream" in more else [a.json]) if e != "[DONE]" for c in e.get("choices", ())]
            ends = sorted((c["index"], c["finish_reason"]) for c in said if c["finish_reason"])
            check(a.status == 200 and ends == [(i, "length") for i in range(n)], n, more, a.status, a.body[-600:])
    for target, body in ("/v1/messages", {**chat, "max_tokens": 0}), ("/v1/responses", {"input": "x", "max_output_tokens": 0}):
        for stream in False, True:
            a = s.post(target, {**body, "stream": stream})
            check(a.status == 400 and "max_" in a.error()["message"], a.status, a.body)
    check(s.post("/v1/embeddings", {"input": ["a", "b"]}).status == 200, "no embeddings")
    s.stop()


def test_text_may_have_any_character():
    """What a model has said can be sent back, U+0000 too; names and stop texts cannot have it."""
    s = Server(CHAT)
    odd = "a\0b\x01\x7f\u2028\ufffe\U0010ffff"
    t = s.post("/tokenize", {"content": odd, "add_special": False}).json
    check(t["count"] > 3 and s.post("/detokenize", {"tokens": t["tokens"]}).json["content"] == odd, t)
    nul = s.post("/tokenize", {"content": "\0", "add_special": False}).json["tokens"]
    check(len(nul) == 1, nul)
    bias = {"logit_bias": {str(nul[0]): 100}, "temperature": 0, "max_tokens": 3}
    first = {"role": "user", "content": odd}
    reply = s.post("/v1/chat/completions", {"messages": [first], **bias}).json["choices"][0]["message"]
    check("\0" in reply["content"], reply)
    more = [first, reply, first]
    a = s.post("/v1/chat/render", {"messages": more}).json
    check(a["prompt"].count(odd) == 2 and reply["content"] in a["prompt"] and a["tokens"].count(nul[0]) >= 5, a)
    parts = [{"role": m["role"], "content": [{"type": "text", "text": m["content"]}]} for m in more]
    check(s.post("/v1/chat/render", {"messages": parts}).json == a, "parts are read otherwise")
    items = [{"role": "user", "content": [{"type": "input_text", "text": odd}]},
             {"role": "assistant", "content": [{"type": "output_text", "text": reply["content"]}]},
             {"type": "function_call", "call_id": "c", "name": "f", "arguments": json.dumps({"x": "\0"})},
             {"type": "function_call_output", "call_id": "c", "output": odd}, {"role": "user", "content": odd}]
    blocks = [{"role": "user", "content": [{"type": "text", "text": odd}, {"type": "text", "text": odd}]},
              {"role": "assistant", "content": [{"type": "thinking", "thinking": odd, "signature": ""},
                                                {"type": "text", "text": reply["content"]},
                                                {"type": "tool_use", "id": "c", "name": "f", "input": {"x": "\0"}}]},
              {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "c", "content": odd}, {"type": "text", "text": odd}]}]
    for stream in False, True:
        for target, body in ("/v1/chat/completions", {"messages": more, **bias}), ("/v1/completions", {"prompt": odd, "echo": True, **bias}), \
                ("/v1/responses", {"input": items, "instructions": odd, "max_output_tokens": 2}), \
                ("/v1/messages", {"messages": blocks, "system": odd, "max_tokens": 2}):
            b = s.post(target, {**body, "stream": stream})
            check(b.status == 200 and b'"error":{' not in b.body, target, b.status, b.body[:500])
            if not stream and "instructions" in body:
                check(b.json["instructions"] == odd, b.json["instructions"])
            if not stream and "echo" in body:
                check(b.json["choices"][0]["text"].startswith(odd), b.json)
    count = lambda m: s.post("/v1/messages/count_tokens", {"messages": m}).json["input_tokens"]
    plain = json.loads(json.dumps(blocks).replace("\\u0000", "-"))
    check(count(blocks) >= count(plain) - 8 > 0, count(blocks), count(plain), "text was cut at U+0000")
    check(s.post("/v1/embeddings", {"input": [odd, "a"]}).status == 200, "no embedding of it")
    call = {"id": "c", "type": "function", "function": {"name": "f\0g", "arguments": "{}"}}
    tool = {"type": "function", "function": {"name": "f\0g", "parameters": {}}}
    for target, body, name in ("/v1/completions", {"prompt": "x", "stop": "a\0"}, "stop"), \
            ("/v1/completions", {"prompt": "x", "stop": ["a", "a\0"]}, "stop"), \
            ("/v1/completions", {"prompt": "x", "cache_salt": "\0"}, "cache_salt"), \
            ("/v1/completions", {"prompt": "x", "model": "m\0"}, "model"), \
            ("/v1/chat/completions", {"messages": [{"role": "user\0", "content": ""}]}, "role"), \
            ("/v1/chat/completions", {"messages": [{"role": "user", "content": [{"type": "text\0", "text": ""}]}]}, "type"), \
            ("/v1/chat/completions", {"messages": [first, {"role": "assistant", "tool_calls": [call]}]}, "name"), \
            ("/v1/chat/completions", {"messages": [first], "tools": [tool]}, "name"), \
            ("/v1/chat/completions", {"messages": [first], "tool_choice": "none\0"}, "tool_choice"), \
            ("/v1/messages", {"messages": [{"role": "user\0", "content": "x"}], "max_tokens": 1}, "role"), \
            ("/v1/messages", {"messages": [first], "max_tokens": 1, "stop_sequences": ["\0"]}, "stop_sequences"), \
            ("/v1/messages", {"messages": [first], "max_tokens": 1, "thinking": {"type": "enabled\0"}}, "thinking"), \
            ("/v1/responses", {"input": [{"type": "function_call", "call_id": "c", "name": "f\0", "arguments": "{}"}]}, "name"), \
            ("/v1/embeddings", {"input": "x", "encoding_format": "float\0"}, "encoding_format"), \
            ("/v1/embeddings", {"input": "x", "pooling": "mean\0"}, "pooling"):
        b = s.post(target, {"max_tokens": 1, **body} if "prompt" in body else body)
        check(b.status == 400 and name in b.error()["message"], target, body, b.status, b.body)
    check(s.post("/v1/completions", b'{"prompt":"x","a\\u0000":1}').status == 400, "a name with U+0000")
    s.stop()


def main(names):
    run(names, sys.argv[5] if sys.argv[5:] else "test_", openapi.note_absence())


if __name__ == "__main__":
    main(globals())
