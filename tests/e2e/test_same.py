#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""test_same.py: tests that a request gets the same tokens and logprobs, bit for bit, however they are computed.

    test_same.py QUERN STORY_MODEL CHAT_MODEL SLOWNESS [PREFIX_OF_CASES]

Numbers are compared as the text in the answers. test_numbers_tell_all_bits shows that this compares all bits.
test_serve.py describes the arguments and the output.
"""
import base64
import concurrent.futures
import http.client
import json
import os
import signal
import ssl
import struct
import subprocess
import threading
import time

from lib.cases import check
from lib.files import path
from test_serve import CHAT, LIMIT, QUERN, SLOWNESS, STORY, Server, main

TEXT = "Once upon a time there was a little girl named Lily. She had a red ball and a small dog. "

# What is asked: (model, target, body). Of a context of 256; the long ones fill several pages of the cache.
COMPLETIONS = [
    {"prompt": "One day", "max_tokens": 30, "temperature": 0, "logprobs": 5},
    {"prompt": "The sun", "max_tokens": 25, "temperature": 1.3, "seed": 5, "logprobs": 2},
    {"prompt": TEXT * 5, "max_tokens": 20, "seed": 6, "logprobs": 3, "repetition_penalty": 1.2},
    {"prompt": TEXT * 7, "max_tokens": 12, "temperature": 0.9, "seed": 7, "logprobs": 0},
    {"prompt": TEXT * 2, "max_tokens": 16, "seed": 8, "logprobs": 1, "echo": True},
    {"prompt": "A", "max_tokens": 40, "seed": 9, "logprobs": 20, "n": 3, "temperature": 1.5},
    {"prompt": TEXT * 3, "max_tokens": 30, "mirostat_tau": 4, "seed": 10, "logprobs": 1},
    {"prompt": "Tom saw", "max_tokens": 50, "dry_multiplier": 1, "seed": 11, "logprobs": 1},
]
CHATS = [
    {"messages": [{"role": "user", "content": "hello"}], "max_tokens": 24, "seed": 7, "logprobs": True, "top_logprobs": 4},
    {"messages": [{"role": "system", "content": TEXT}, {"role": "user", "content": TEXT * 2}], "max_tokens": 20, "seed": 3,
     "logprobs": True, "top_logprobs": 1, "n": 2},
]


def numbers(body):
    """JSON whose numbers stay the text they were. An object with a name twice (two tokens with the same text) becomes the
    list of its pairs."""
    pairs = lambda p: dict(p) if len(dict(p)) == len(p) else p
    return json.loads(body, parse_float=str, parse_int=str, object_pairs_hook=pairs)


def values_of(tops):
    """The numbers of one token's top_logprobs in completions."""
    return list(tops.values()) if isinstance(tops, dict) else [v for _, v in tops]


def events(body):
    for block in body.decode().split("\n\n"):
        if block.startswith("data: {"):
            yield numbers(block[6:])


def said(answer, stream):
    """By the index of a choice: its text, why it ended, its logprobs. A stream's pieces are put together."""
    check(answer.status == 200, answer.status, answer.body[:500])
    choices = {}
    for part in events(answer.body) if stream else [numbers(answer.body)]:
        check("error" not in part, part)
        for c in part.get("choices", ()):
            text, lists, end = choices.get(c["index"], ("", {}, None))
            if "text" in c:
                text += c["text"]
            else:
                text += (c.get("delta") or c.get("message") or {}).get("content") or ""
            for name, values in (c["logprobs"] or {}).items():
                lists.setdefault(name, []).extend(values)
            choices[c["index"]] = text, lists, c["finish_reason"] or end
    return choices


def asked(s, ask, stream=False, salt=None, **more):
    target = "/v1/chat/completions" if "messages" in ask else "/v1/completions"
    body = {**ask, "stream": stream, **({"cache_salt": salt} if salt else {})}
    return said(s.post(target, body, **more), stream)


def fresh(n=[0]):
    """A salt that nothing was stored under."""
    n[0] += 1
    return f"salt {n[0]}"


def cached(s, ask, salt):
    """As asked(), with the number of tokens that came from the cache."""
    target = "/v1/chat/completions" if "messages" in ask else "/v1/completions"
    r = s.post(target, {**ask, "cache_salt": salt})
    return said(r, False), int(numbers(r.body)["usage"]["prompt_tokens_details"]["cached_tokens"])


def embedded(s, text, **more):
    r = s.post("/v1/embeddings", {"input": text, "encoding_format": "base64", **more})
    check(r.status == 200, r.status, r.body[:300])
    return [d["embedding"] for d in r.json["data"]]


class Crowd:
    """Others that keep a server busy while the body of the `with` runs: requests of many lengths and priorities, streamed
    or not; every third one's client leaves, every third one's is cancelled by its name."""

    def __init__(self, s, asks, n=8):
        self.s, self.asks, self.n, self.over = s, asks, n, threading.Event()
        self.begun = 0

    def one(self, i):
        target = "/v1/chat/completions" if "messages" in self.asks[0] else "/v1/completions"
        k = 0
        while not self.over.is_set():
            ask = {**self.asks[(i + k) % len(self.asks)], "max_tokens": 3 + 11 * ((i + k) % 5), "priority": -((i + k) % 3),
                   "seed": 100 * i + k, "stream": True}
            ask.pop("echo", None)
            c = self.s.connect()
            c.request("POST", target, json.dumps(ask), {"Content-Type": "application/json"})
            r = c.getresponse()
            self.begun += 1
            if k % 3 == 1:
                self.s.ask("POST", f"/v1/requests/{r.headers['x-request-id']}/cancel")
            if k % 3 == 2:
                r.read1(200)
            else:
                r.read()
            r.close()
            c.close()
            k += 1

    def __enter__(self):
        self.pool = concurrent.futures.ThreadPoolExecutor(self.n)
        self.futures = [self.pool.submit(self.one, i) for i in range(self.n)]
        end = time.monotonic() + LIMIT
        while self.begun < self.n and time.monotonic() < end:
            time.sleep(0.005)

    def __exit__(self, *what):
        self.over.set()
        for f in self.futures:
            f.result()
        self.pool.shutdown()


def test_numbers_tell_all_bits():
    """What is printed for a float is read back as that float, and as no other."""
    s = Server(STORY)
    found = []
    for _, lists, _ in asked(s, COMPLETIONS[5]).values():
        found += [t for t in lists["token_logprobs"]] + [t for top in lists["top_logprobs"] for t in values_of(top)]
    vector = s.post("/v1/embeddings", {"input": "a dog"})
    found += numbers(vector.body)["data"][0]["embedding"]
    check(len(found) > 300, len(found))
    for text in found:
        [x] = struct.unpack("<f", struct.pack("<f", float(text)))
        check(text == "%.9g" % x, "nine digits of a float", text)
    raw = base64.b64decode(embedded(s, "a dog")[0])
    check(raw == struct.pack(f"<{len(raw) // 4}f", *map(float, numbers(vector.body)["data"][0]["embedding"])), "base64")
    s.stop()


def test_alone_and_among_others():
    for model, asks in ((STORY, COMPLETIONS), (CHAT, CHATS)):
        s = Server(model, "--parallel", "9", "--sessions", "8", "--queue", "64", "--ctx", "256")
        alone = [asked(s, a, salt=fresh()) for a in asks]
        check(all(l for a in alone for _, l, _ in a.values()), "there are logprobs")
        for a, ask in zip(alone, asks):
            check(asked(s, ask, stream=True, salt=fresh()) == a, "streamed", ask)
        with Crowd(s, asks):
            for i, (a, ask) in enumerate(zip(alone, asks)):
                check(asked(s, ask, bool(i % 2), fresh()) == a, "among others", ask)
        with concurrent.futures.ThreadPoolExecutor(8) as pool:
            check(list(pool.map(lambda a: asked(s, a, salt=fresh()), asks)) == alone, "all at once")
        s.stop()


def test_an_answer_of_several_is_that_of_its_seed():
    for model, ask in ((STORY, COMPLETIONS[5]), (STORY, {**COMPLETIONS[2], "n": 4}), (CHAT, CHATS[1])):
        s = Server(model, "--parallel", "8", "--sessions", "8", "--ctx", "256")
        for stream in (False, True):
            all_of_it = asked(s, ask, stream, fresh())
            for i, choice in all_of_it.items():
                one = asked(s, {**ask, "n": 1, "seed": ask["seed"] + int(i)}, stream, fresh())
                check(one["0"] == choice, "choice", i, ask)
        s.stop()


def test_from_the_cache():
    s = Server(STORY, "--sessions", "1", "--ctx", "256")
    for ask in COMPLETIONS[2], COMPLETIONS[3], COMPLETIONS[6]:
        salt = fresh()
        cold, n = cached(s, ask, salt)
        check(n == 0, "cold", n)
        warm, n = cached(s, ask, salt)
        check(warm == cold and n > 64, "a hit", n, ask)
        # Ends inside a page, and differs inside a page, before it is asked again.
        for other in {**ask, "prompt": ask["prompt"][:200]}, {**ask, "prompt": ask["prompt"][:300] + " But"}:
            cold2, _ = cached(s, other, fresh())
            warm2, n = cached(s, other, salt)
            check(warm2 == cold2 and n > 32, "a hit in part", n, other)
        check(cached(s, ask, salt)[0] == cold, "a hit after others", ask)
        for i in range(3):
            cached(s, {"prompt": f"{i} " + TEXT * 7, "max_tokens": 10}, fresh())
        again, n = cached(s, ask, salt)
        check(again == cold and n == 0, "after it was evicted", n, ask)
    s.stop()


def test_from_disk():
    asks = [COMPLETIONS[2], COMPLETIONS[3], COMPLETIONS[6]]
    before = []
    for run in range(3):
        s = Server(STORY, "--cache-dir", path("cache"), "--ctx", "256")
        answers = [cached(s, a, "x") for a in asks]
        if run == 0:
            before = [a for a, _ in answers]
            s.stop()
        else:
            check([a for a, _ in answers] == before, "restored", run)
            check(all(n > 64 for _, n in answers), "from the disk", run, [n for _, n in answers])
            s.process.send_signal(signal.SIGKILL) # the third time, after no orderly end
            s.process.wait()


def test_over_every_transport():
    pem = os.path.join(os.path.dirname(os.path.abspath(__file__)), "http_test.pem")
    plain, tls = Server(STORY), Server(STORY, "--tls-cert", pem, "--tls-key", pem)
    for ask in COMPLETIONS[:3]:
        for stream in (False, True):
            unix = asked(plain, ask, stream)
            check(asked(plain, ask, stream, tcp=True) == unix, "TCP", ask)
            c = http.client.HTTPSConnection("localhost", tls.port, timeout=LIMIT, context=ssl.create_default_context(cafile=pem))
            c.request("POST", "/v1/completions", json.dumps({**ask, "stream": stream}), {"Content-Type": "application/json"})
            r = c.getresponse()
            body = r.read()
            choices = said(type("Answer", (), {"status": r.status, "body": body}), stream)
            check(choices == unix, "TLS", ask)
            c.close()
    plain.stop()
    tls.stop()


def test_in_every_dialect():
    """A conversation's prompt as a completion gives the conversation's tokens and logprobs; the APIs without logprobs give
    its text."""
    s = Server(CHAT, "--parallel", "9", "--sessions", "8", "--ctx", "256")

    def all_agree(ask):
        want = asked(s, ask, salt=fresh())["0"]
        tokens = s.post("/v1/chat/render", {"messages": ask["messages"]}).json["tokens"]
        plain = {"prompt": tokens, "max_tokens": ask["max_tokens"], "seed": ask["seed"], "logprobs": ask["top_logprobs"]}
        got = asked(s, plain, salt=fresh())["0"]
        check(got[1]["token_logprobs"] == [t["logprob"] for t in want[1]["content"]], "completions", got, want)
        tops = [[u["logprob"] for u in t["top_logprobs"]] for t in want[1]["content"]]
        check([values_of(t) for t in got[1]["top_logprobs"]] == tops, "and the others'", got, want)
        talk = [m for m in ask["messages"] if m["role"] != "system"]
        system = "".join(m["content"] for m in ask["messages"] if m["role"] == "system")
        r = s.post("/v1/messages", {"messages": talk, "max_tokens": ask["max_tokens"], "seed": ask["seed"],
                                    **({"system": system} if system else {})}).json
        check("".join(b.get("text", "") for b in r["content"]) == want[0], "messages", r, want)
        r = s.post("/v1/responses", {"input": ask["messages"], "max_output_tokens": ask["max_tokens"], "seed": ask["seed"]}).json
        check("".join(p["text"] for o in r["output"] for p in o.get("content", ())) == want[0], "responses", r, want)

    asks = [{k: v for k, v in a.items() if k != "n"} for a in CHATS]
    for ask in asks:
        all_agree(ask)
    with Crowd(s, CHATS, 4):
        for ask in asks:
            all_agree(ask)
    s.stop()


def levels():
    """The instruction sets of this machine, in the words of a refusal."""
    r = subprocess.run([QUERN, "serve", STORY, "--listen", path("no.sock"), "--cpu", "none"], capture_output=True, timeout=LIMIT)
    return r.stderr.decode().split("this machine has ")[1].split(")")[0].replace(",", " ").split()


def test_by_any_machinery():
    """Threads, instruction sets, batches: for each type of keys and values one answer. A sanitizer's build, which is not
    about numbers, tries the instruction sets with one of these types."""
    asks = [{**COMPLETIONS[1], "max_tokens": 8}, {**COMPLETIONS[2], "prompt": TEXT * 3, "max_tokens": 8}]
    ways = [(), ("--threads", "2", "--batch", "7"), ("--threads", "3", "--batch", "1")]
    found = levels()
    check(found[0] == "ref", found)
    for kv in "f32", "f16", "q8_0":
        answers, vectors = None, None
        for way in ways + [("--batch", "512", "--cpu", l) for l in (found if SLOWNESS == 1 or kv == "q8_0" else ())]:
            s = Server(STORY, "--kv", kv, "--ctx", "256", *way, tcp=False)
            got = [asked(s, a, stream=bool(i % 2), salt=fresh()) for i, a in enumerate(asks)]
            vector = embedded(s, "a dog")
            answers, vectors = answers or got, vectors or vector
            check(got == answers, "answers with", kv, way)
            check(vector == vectors, "embeddings with", kv, way)
            s.stop()


def test_embeddings_alone_and_among_others():
    texts = ["a dog", TEXT, TEXT * 3, "x"]
    for model, asks in ((STORY, COMPLETIONS), (CHAT, CHATS)):
        s = Server(model, "--parallel", "9", "--sessions", "8", "--ctx", "256")
        for pooling in "last", "mean":
            alone = [embedded(s, t, pooling=pooling, cache_salt=fresh())[0] for t in texts]
            check(len(set(alone)) == len(texts), "they differ")
            check(embedded(s, texts, pooling=pooling) == alone, "in one request")
            check(embedded(s, texts, pooling=pooling) == alone, "from the cache")
            with Crowd(s, asks, 6):
                check(embedded(s, texts, pooling=pooling, cache_salt=fresh()) == alone, "among others")
                with concurrent.futures.ThreadPoolExecutor(4) as pool:
                    check(list(pool.map(lambda t: embedded(s, t, pooling=pooling)[0], texts)) == alone, "at once")
        s.stop()


if __name__ == "__main__":
    main(globals())
