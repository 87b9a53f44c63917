#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""test_page.py: tests the page of `quern serve --page`, and what only the page asks the daemon for.

    test_page.py QUERN STORY_MODEL CHAT_MODEL SLOWNESS PARROT_MODEL [PREFIX_OF_CASES | browser [PREFIX] | pictures FOLDER]

The cases test_* speak HTTP. With the prefix `browser`, clients/page.mjs uses the page in chromium, with puppeteer of
$QUERN_NPM (lib/node.py). `pictures` makes those of docs/PAGE.md in a folder. test_serve.py describes the other arguments.
"""
import base64
import gzip
import hashlib
import json
import os
import re
import shutil
import struct
import sys

from lib import node
from lib.cases import check, run, until
from lib.files import path
from test_serve import CHAT, CHAT_ASK, LIMIT, STORY, Server

PARROT = sys.argv[5]
GZIP = {"Accept-Encoding": "gzip, deflate, br"}


# ---- the page itself ----

def test_the_page_is_served_as_its_policy_says():
    s = Server(PARROT, "--page")
    for tcp in (False, True):
        a = s.get("/", headers=GZIP, tcp=tcp)
        check(a.status == 200 and a.headers["Content-Type"] == "text/html; charset=utf-8", a.status, a.headers)
        check(a.headers["Content-Encoding"] == "gzip" and a.headers["Vary"] == "Accept-Encoding", a.headers)
        check(a.headers["X-Content-Type-Options"] == "nosniff" and a.headers["Referrer-Policy"] == "no-referrer", a.headers)
    page = gzip.decompress(a.body).decode()
    policy = dict(p.split(" ", 1) for p in a.headers["Content-Security-Policy"].split("; "))
    for tag in "script", "style":
        inside = re.findall(rf"<{tag}>(.*?)</{tag}>", page, re.S)
        want = base64.b64encode(hashlib.sha256(inside[0].encode()).digest()).decode()
        check(len(inside) == 1 and policy[tag + "-src"] == f"'sha256-{want}'", tag, policy)
    check(policy["default-src"] == policy["frame-ancestors"] == policy["base-uri"] == policy["form-action"] == "'none'", policy)
    check(policy["connect-src"] == "'self'" and len(a.body) < 25000, policy, len(a.body))
    check(not re.search(r"https?://(?!www\.w3\.org/2000/svg)", page), "the page names another server")
    c = s.connect()
    c.request("HEAD", "/", headers=GZIP)
    head = c.getresponse()
    check(head.status == 200 and head.read() == b"" and int(head.headers["Content-Length"]) == len(a.body), head.headers)
    c.close()
    check(s.post("/", {}).status == 405, "POST")
    s.stop()


def test_only_clients_that_take_gzip_get_it():
    s = Server(PARROT, "--page")
    for codings, status in ((None, 406), ("identity", 406), ("br", 406), ("gzip;q=0", 406), ("gzip; q=0.0, *", 406), ("*;q=0", 406),
                            ("gzip", 200), ("br, GZIP;q=0.1", 200), ("x-gzip", 200), ("*", 200), ("deflate,gzip;q=1.0", 200),
                            ("gzipped", 406), (", ,;=,", 406), ("gzip;q=" + "0" * 5000, 406)):
        c = s.connect()
        c.putrequest("GET", "/", skip_accept_encoding=True)
        if codings is not None:
            c.putheader("Accept-Encoding", codings)
        c.endheaders()
        a = c.getresponse()
        check(a.status == status, codings, a.status, a.read()[:200])
        c.close()
    s.stop()


def test_without_memory_the_page_is_refused():
    """Bodies that never end hold the memory of the requests, until less is left than the page has."""
    s, held = Server(PARROT, "--page", "--memory", "200M"), []
    a = s.get("/", headers=GZIP)
    for size in (4000000, 400000, 40000, 4000):
        for _ in range(20):
            if a.status == 200:
                held.append(s.connect())
                held[-1].putrequest("POST", "/tokenize")
                held[-1].putheader("Content-Type", "application/json")
                held[-1].putheader("Content-Length", str(size + 1))
                held[-1].endheaders(b"x" * size)
                a = s.get("/", headers=GZIP)
    check(a.status == 503 and a.error()["code"] == "no_memory" and a.headers["Retry-After"] == "1", a.status, a.body[:200])
    check(a.headers["Content-Encoding"] is None, "the refusal is not compressed", a.headers)
    for c in held:
        c.close()
    until(LIMIT, lambda: s.get("/", headers=GZIP).status == 200, "memory")
    s.stop()


def test_without_the_option_the_error_names_it():
    s = Server(PARROT)
    a = s.get("/", headers=GZIP)
    check(a.status == 404 and "--page" in a.error()["message"], a.status, a.body)
    s.stop()


def test_the_page_needs_no_key_but_the_api_does():
    with open(path("keys"), "w") as f:
        f.write(f"{hashlib.sha256(b'sk-one').hexdigest()} alice\n")
    s = Server(PARROT, "--page", "--api-keys", path("keys"))
    check(s.get("/", headers=GZIP, tcp=True).status == 200, "the page")
    check(s.get("/v1/requests", tcp=True).status == 401, "the requests")
    key = {"Authorization": "Bearer sk-one"}
    check(s.get("/v1/requests", headers=key, tcp=True).json["data"] == [], "with a key")
    a = s.ask("POST", "/v1/models/m/unload", headers=key, tcp=True)
    check(a.status == 403 and a.error()["code"] == "not_allowed", a.status, a.body)
    check(s.ask("POST", "/v1/models/m/unload").status == 200, "the daemon's own user")
    s.stop()


# ---- what the page asks for ----

def test_an_answer_goes_on_from_any_of_its_tokens():
    """With the ids of its tokens and its seed, a completion continues a conversation's answer with the same tokens."""
    s = Server(CHAT)
    ask = {"messages": CHAT_ASK["messages"], "seed": 7, "max_tokens": 12, "logprobs": True, "top_logprobs": 3}
    tokens = s.post("/v1/chat/completions", ask).json["choices"][0]["logprobs"]["content"]
    ids = [t["id"] for t in tokens]
    check(len(ids) == 12 and all(t["id"] in [u["id"] for u in t["top_logprobs"]] or len(t["top_logprobs"]) == 3 for t in tokens), tokens)
    prompt = s.post("/v1/chat/render", {"messages": ask["messages"]}).json["tokens"]
    for k in 1, 5, 11:
        more = {"prompt": prompt + ids[:k], "seed": 7, "max_tokens": 12 - k, "logprobs": 3}
        a = s.post("/v1/completions", more).json["choices"][0]["logprobs"]
        check(a["content"] == tokens[k:], k, a["content"], tokens[k:])
        check([t["token"] for t in a["content"]] == a["tokens"], k, a)
    echoed = s.post("/v1/completions", {**more, "echo": True}).json["choices"][0]["logprobs"]
    check(len(echoed["content"]) == 1 and len(echoed["tokens"]) == len(prompt) + 12, "the echo is not part of it", echoed["content"])
    s.stop()


def test_a_rendered_prompt_says_who_wrote_what():
    s = Server(PARROT)
    for text in ("Grüße 😀", "<|im_end|>", "", "a" * 3000):
        r = s.post("/v1/chat/render?with_pieces", {"messages": [{"role": "user", "content": text}]}).json
        raw = r["prompt"].encode()
        check("".join(raw[a:a + n].decode() for a, n in r["user_spans"]) == text, r)
        check(len(r["pieces"]) == r["count"] == len(r["tokens"]), r["count"])
        check("pieces" not in s.post("/v1/chat/render", CHAT_ASK).json, "pieces that nobody asked for")
    for value, status in (("=true", 200), ("=false", 200), ("=1", 400), ("=%00", 200), ("=" + "x" * 50, 400)):
        a = s.post("/v1/chat/render?with_pieces" + value, CHAT_ASK)
        check(a.status == status and (b'"pieces"' in a.body) == (value == "=true"), value, a.status, a.body)
    s.stop()


def test_a_miss_names_both_tokens():
    s = Server(PARROT)

    def ask(text):
        return s.post("/v1/completions", {"prompt": text, "max_tokens": 1}).json["quern"]

    ask("x" * 80 + "one")
    q = ask("x" * 80 + "two")
    check(q["cache_miss"] == "differs" and q["cache_miss_position"] == 80, q)
    check((q["cache_miss_asked"]["token"], q["cache_miss_stored"]["token"]) == ("t", "o"), q)
    q = ask("y")
    check(("cache_miss_asked" in q) == (q["cache_miss"] == "differs"), q)
    s.stop()


def test_requests_under_way_are_listed_for_their_owner():
    s = Server(PARROT, "--ctx", "32768")
    with open(path("keys2"), "w") as f:
        f.write(f"{hashlib.sha256(b'sk-two').hexdigest()} bob\n")
    other = Server(PARROT, "--ctx", "32768", "--api-keys", path("keys2"))
    for server, seen in ((s, True), (other, False)):
        c = server.connect()
        sing = {"messages": [{"role": "user", "content": "sing"}], "stream": True}  # until it is cancelled
        c.request("POST", "/v1/chat/completions", json.dumps(sing), {"Content-Type": "application/json"})
        reply = c.getresponse()
        reply.readline()
        if seen:
            r = server.get("/v1/requests").json
            check(r["total"] == 1 and r["data"][0]["model"] == "m", r)
            check(r["data"][0]["state"] in ("queued", "prefill", "decoding") and r["data"][0]["age_seconds"] > 0, r)
            name = r["data"][0]["id"]
        else:
            r = server.get("/v1/requests", headers={"x-api-key": "sk-two"}, tcp=True).json
            check(r["total"] == 0 and r["data"] == [], "another identity sees", r)
            name = reply.headers["x-request-id"]
        check(server.ask("POST", f"/v1/requests/{name}/cancel").status == 200, "cancel")
        reply.read()
        c.close()
        server.wait_for("requests_running", 0)
    s.stop()
    other.stop()


def test_a_model_is_unloaded_on_request_and_loaded_again():
    s = Server([f"m={PARROT}", f"other={PARROT}"], "--pin", "m", "--ctx", "32768")
    check(s.ask("POST", "/v1/models/nobody/unload").status == 404, "no such model")
    check(s.ask("POST", "/v1/models/m/unload").status == 400, "a pinned one")
    check(s.ask("POST", "/v1/models/other/unload").status == 200, "one that is not there")
    check(s.post("/tokenize", {"model": "other", "content": ""}).status == 200, "loading")

    def state():
        return {m["id"]: m["state"] for m in s.get("/v1/models").json["data"]}["other"]

    check(state() == "loaded", state())
    check(s.ask("POST", "/v1/models/other/unload").status == 200, "unloading")
    until(LIMIT, lambda: state() == "not_loaded", "the end of an idle model")
    c = s.connect()
    sing = {"model": "other", "messages": [{"role": "user", "content": "sing"}], "stream": True}
    c.request("POST", "/v1/chat/completions", json.dumps(sing), {"Content-Type": "application/json"})
    reply = c.getresponse()
    reply.readline()
    check(s.ask("POST", "/v1/models/other/unload").status == 200 and state() == "loaded", "while it is used")
    c.close()
    until(LIMIT, lambda: state() == "not_loaded", "the end after the last request")
    check(s.post("/tokenize", {"model": "other", "content": "x"}).status == 200, "again")
    s.stop()


# ---- in a browser ----

def with_template(model, template, to):
    """A copy of a GGUF file with a chat template. The new key is the first one, and its length a multiple of the alignment."""
    with open(model, "rb") as f:
        data = f.read()
    key = b"tokenizer.chat_template"
    head = struct.pack("<Q", len(key)) + key + struct.pack("<I", 8)
    template = template.encode() + b" " * (-(len(head) + 8 + len(template.encode())) % 32)
    count = struct.unpack_from("<Q", data, 16)[0]
    with open(to, "wb") as f:
        f.write(data[:16] + struct.pack("<Q", count + 1) + head + struct.pack("<Q", len(template)) + template + data[24:])
    return to


def pictures_of_the_page():
    browser_cases(sys.argv[7])


def browser_cases(shots=None):
    chromium = shutil.which("chromium") or shutil.which("chromium-browser")
    if not node.NPM or not chromium or not os.path.isdir(os.path.join(node.NPM, "node_modules/puppeteer-core")):
        node.skip("no chromium, or no puppeteer-core in $QUERN_NPM: see tests/npm/install")
    with open(path("keys"), "w") as f:
        f.write(f"{hashlib.sha256(b'sk-one').hexdigest()} alice\n")
    tale = with_template(STORY, "{{ bos_token }}{% for m in messages %}{{ m.content }}{% endfor %}{#- #}", path("tale.gguf"))
    servers = {"parrot": Server(PARROT, "--page", "--ctx", "32768"), "random": Server(CHAT, "--page"), "tale": Server(tale, "--page"),
               "keyed": Server(PARROT, "--page", "--api-keys", path("keys")), "plain": Server(STORY, "--page"),
               "two": Server([f"parrot={PARROT}", f"tale={tale}"], "--page")}
    setup = {name: f"http://127.0.0.1:{s.port}/" for name, s in servers.items()}
    setup |= {"limit": 1000 * LIMIT, "chromium": chromium, "profile": path("profile"), "shots": shots}
    check(node.passes("page.mjs", setup, [] if shots else sys.argv[7:]), "a case of clients/page.mjs failed")
    for s in servers.values():
        s.stop()


run(globals(), sys.argv[6] if len(sys.argv) > 6 else "test_")
