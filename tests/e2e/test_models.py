#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""test_models.py: tests which models `quern serve` has in memory, and when, if it serves none, one or several.

    test_models.py QUERN STORY_MODEL CHAT_MODEL SLOWNESS [PREFIX_OF_CASES]

STORY_MODEL continues stories; CHAT_MODEL has random weights and a chat template. SLOWNESS multiplies the time limits
(for a build with a sanitizer; above 1, memory is not measured either). Each function test_* is a case, whose name is a
sentence that must be true.
"""
import concurrent.futures
import hashlib
import json
import os
import re
import shutil
import signal
import socket
import subprocess
import time
import urllib.parse

from lib.cases import check, started, until
from lib.files import path
from test_serve import CHAT, LIMIT, QUERN, SLOWNESS, STORY, Unix, main, refused
from test_serve import Server as OneModel


class Server(OneModel):
    """A running daemon of any models on a Unix socket. ready_s: from exec to READY=1."""

    def __init__(self, *args):
        self.sock = path(f"run{len(started)}/quern.sock")
        self.log = open(path(f"log{len(started)}"), "w+b")
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as n:
            n.bind(path(f"notify{time.monotonic_ns()}"))
            n.settimeout(LIMIT)
            begin = time.monotonic()
            self.process = subprocess.Popen([QUERN, "serve", "--listen", self.sock, "--threads", "1", "--log", *args],
                                            env={**os.environ, "NOTIFY_SOCKET": n.getsockname()},
                                            stdout=subprocess.DEVNULL, stderr=self.log)
            started.append(self)
            try:
                check(n.recv(100) == b"READY=1", "it says that it is ready")
            except TimeoutError:
                raise RuntimeError("no server: " + self.stderr()) from None
            self.ready_s = time.monotonic() - begin

    def complete(self, **body):
        return self.post("/v1/completions", {**ASK, **body})

    def running(self, model):
        """An answer of many tokens that is being written, as a connection to close."""
        c = Unix(self.sock)
        c.request("POST", "/v1/completions", json.dumps({**ASK, "model": model, "max_tokens": 200, "ignore_eos": True,
                                                         "n": 64, "stream": True}), {"Content-Type": "application/json"})
        c.response = c.getresponse()
        check(c.response.status == 200, "a stream", c.response.status)
        return c

    def holding(self, model):
        """A request that keeps the model in use until the connection is closed: its 160 times 8 answers take long, and
        nobody has to read them meanwhile, because they come only at the end."""
        c = Unix(self.sock)
        c.request("POST", "/v1/completions", json.dumps({**ASK, "model": model, "max_tokens": 200, "ignore_eos": True, "n": 8,
                                                         "prompt": [ASK["prompt"]] * 160}), {"Content-Type": "application/json"})
        until(LIMIT, lambda: self.metric("model_requests", model) >= 1, "the request begins")
        return c

    def states(self):
        return {m["id"]: m["state"] for m in self.get("/v1/models").json["data"]}

    def metric(self, name, model):
        return super().metric(f'{name}{{model="{model}"}}')

    def memory(self):
        """Resident, in KB: all, of which anonymous, of files."""
        with open(f"/proc/{self.process.pid}/status") as f:
            return [int(re.search(rf"^{k}:\s+(\d+) kB", s, re.M)[1]) for s in [f.read()] for k in ("VmRSS", "RssAnon", "RssFile")]

    def stop(self):
        """Seconds it took."""
        begin = time.monotonic()
        super().stop()
        return time.monotonic() - begin


def text(answer):
    return answer.json["choices"][0]["text"]


ASK = {"prompt": "Once upon a time", "max_tokens": 8, "temperature": 0}
BOTH = ("story=" + STORY, "chat=" + CHAT, "--kv-tokens", "16384")  # else the size of the cache depends on the memory
MANY = ("--sessions", "64", "--parallel", "64")  # answers, so that a request takes a while


def needs(*args):
    """What each model takes of the memory, by name; "" is what the process itself takes, and a little more."""
    s = Server(*args)
    n = {m["id"]: m["memory_bytes"] for m in s.get("/v1/models").json["data"]}
    m = s.get("/v1/memory").json
    n[""] = m["program_bytes"] + (64 << 20) + (1 << 20)  # the least that requests have
    s.stop()
    return n


# ---- none, one, several ----


def test_no_model():
    s = Server()
    check(s.get("/v1/models").json["data"] == [] and s.get("/health").json["status"] == "ok", "an empty list")
    check(s.get("/v1/memory").json["models"] == [] and b"quern_memory_budget_bytes " in s.get("/metrics").body, "numbers")
    for target, ask in (("/v1/completions", ASK), ("/v1/completions", {**ASK, "model": "m"}),
                        ("/tokenize", {"content": "a"}), ("/v1/embeddings", {"input": "a"})):
        refused(s.post(target, ask), 404, "model_not_found", "model", "no model")
    r = s.post("/v1/messages", {"messages": [], "max_tokens": 1})
    check(r.status == 404 and r.json["type"] == "error" and r.json["error"]["type"] == "not_found_error", r.body)
    s.stop()


def test_one_model_is_loaded_at_once_and_need_not_be_named():
    s = Server(STORY)
    name = os.path.basename(STORY).removesuffix(".gguf")
    check(s.states() == {name: "loaded"}, s.states())
    r = s.complete().json
    check(r["model"] == name and r["quern"]["load_ms"] == 0, r)
    check(s.complete(model=name).status == 200, "by its name")
    refused(s.complete(model="other"), 404, "model_not_found", "model", name)
    s.stop()


def test_several_models_are_loaded_when_they_are_asked_for():
    s = Server(*BOTH)
    check(s.states() == {"story": "not_loaded", "chat": "not_loaded"}, s.states())
    for m in s.get("/v1/models").json["data"]:
        check(m["context_length"] > 0 and m["vocabulary"] > 0 and m["memory_bytes"] > 0 and m["chat"] == (m["id"] == "chat"), m)
    r = s.complete(model="story")
    check(r.status == 200 and r.json["model"] == "story" and r.json["quern"]["load_ms"] > 0, r.body)
    check(s.states() == {"story": "loaded", "chat": "not_loaded"}, s.states())
    chat = {"model": "chat", "messages": [{"role": "user", "content": "hello"}], "max_tokens": 4, "seed": 7}
    check(s.post("/v1/chat/completions", chat).status == 200 and s.states()["chat"] == "loaded", s.states())
    check(s.complete(model="story").json["quern"]["load_ms"] == 0, "it stays")
    alone = Server(STORY)
    check(text(s.complete(model="story")) == text(alone.complete()), "and says what it says alone")
    alone.stop()
    s.stop()


def test_several_models_have_to_be_named():
    s = Server(*BOTH)
    message = {"role": "user", "content": "x"}
    for target, ask in (("/v1/completions", ASK), ("/v1/chat/completions", {"messages": [message]}), ("/tokenize", {"content": "a"}),
                        ("/detokenize", {"tokens": [1]}), ("/v1/embeddings", {"input": "a"}), ("/v1/responses", {"input": "a"}),
                        ("/v1/chat/render", {"messages": [message]})):
        refused(s.post(target, ask), 400, "missing_field", "model", "2 models")
        refused(s.post(target, {**ask, "model": None}), 400, "missing_field", "model", "2 models")
        refused(s.post(target, {**ask, "model": 5}), 400, "invalid_type", "model")
        refused(s.post(target, {**ask, "model": "st"}), 404, "model_not_found", "model", "'st'")
    r = s.post("/v1/messages", {"model": "x" * 2000, "messages": [message], "max_tokens": 1})
    check(r.status == 404 and r.json["error"]["type"] == "not_found_error", r.body)
    check(set(s.states().values()) == {"not_loaded"}, "and none of that loads one", s.states())
    for target, ask, member in (("/tokenize", {"content": "a"}, "tokens"), ("/detokenize", {"tokens": [1]}, "content"),
                                ("/v1/embeddings", {"input": "a"}, "data")):
        check(member in s.post(target, {**ask, "model": "story"}).json, target)
    s.stop()


ALIASES = ("--alias", "gpt-4o=story", "--alias", "org/model x=chat", "--alias", "*=chat")


def test_aliases():
    s = Server(*BOTH, *ALIASES)
    listed = s.get("/v1/models").json["data"]
    check([(m["id"], m["alias_of"]) for m in listed] ==
          [("story", None), ("chat", None), ("gpt-4o", "story"), ("org/model x", "chat")], listed)
    one, other = (dict(m, id=0, alias_of=0, display_name=0) for m in (listed[0], listed[2]))
    check(one == other, "an alias is described like its model", one, other)
    for name, real in ("gpt-4o", "story"), ("story", "story"), ("org/model x", "chat"), ("any other", "chat"), (None, "chat"):
        r = s.complete(**({"model": name} if name else {})).json
        check(r["model"] == real, "the answer names the model", name, r)
        if name:
            r = s.get("/v1/models/" + urllib.parse.quote(name, safe="")).json
            check((r["id"], r["alias_of"]) == (name, real if name != real else None), r)
    s.stop()
    line = next(line for line in s.stderr().splitlines() if "/v1/completions" in line)
    check(re.match(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z quern: POST 200 complete \d+ bytes \d+\.\d{3} s uid:\d+ "
                   r"req-[0-9a-f]{16} trace - model 'story' prompt \d+ cached 0 generated 8 /v1/completions$", line), line)
    for args, text in ((("a=b",), "there is no model 'b'"), (("a=b", "b=a"), "'b' is an alias itself"), (("a=a",), "alias itself"),
                       (("a=story", "a=chat"), "given twice"), (("story=chat",), "a model has the name 'story'"),
                       (("*=*",), "alias itself"), (("a",), "not NAME=MODEL"), (("=story",), "not NAME=MODEL"),
                       (("a=",), "not NAME=MODEL"), (("x" * 129 + "=story",), "1 to 128"), (("a\x01=story",), "control")):
        options = [word for a in args for word in ("--alias", a)]
        r = subprocess.run([QUERN, "serve", "--listen", path("bad/sock"), *BOTH, *options], capture_output=True, timeout=LIMIT)
        check(r.returncode == 64 and text in r.stderr.decode() and r.stderr.count(b"\n") == 1, args, r)


def test_the_list_of_models_can_be_read_in_parts():
    s = Server(*BOTH, *ALIASES)
    names = ["story", "chat", "gpt-4o", "org/model x"]
    seen, after = [], ""
    while True:
        r = s.get("/v1/models?limit=3" + after).json
        seen += [m["id"] for m in r["data"]]
        check((r["first_id"], r["last_id"]) == (r["data"][0]["id"], r["data"][-1]["id"]), r)
        if not r["has_more"]:
            break
        after = "&after_id=" + urllib.parse.quote(r["last_id"])
    check(seen == names, seen)
    for query, part, more in ("before_id=org/model+x&limit=2", names[1:3], True), ("before_id=chat&limit=2", names[:1], False), \
            ("after_id=story&before_id=org/model%20x", names[1:3], False), ("after_id=org/model%20x", [], False), \
            ("after_id=chat&before_id=story", [], False), ("limit=1000", names, False):
        r = s.get("/v1/models?" + query).json
        check([m["id"] for m in r["data"]] == part and r["has_more"] == more, query, r)
        check(part or r["first_id"] is r["last_id"] is None, r)
    for limit in "0", "1001", "-1", "", "x", "9" * 40:
        refused(s.get("/v1/models?limit=" + limit), 400, "out_of_range", "limit")
    for query, param in ("after_id=x", "after_id"), ("before_id=", "before_id"), ("after_id=" + "x" * 3000, "after_id"):
        refused(s.get("/v1/models?" + query), 404, "model_not_found", param)
        e = s.get("/v1/models?" + query, headers={"anthropic-version": "2023-06-01"}).json
        check(e["type"] == "error" and e["error"]["type"] == "not_found_error", e)
    s.stop()
    s = Server("a/b=" + STORY)
    for target in "/v1/models/a/b", "/v1/models/a%2Fb":
        m = s.get(target).json
        check(m["id"] == m["display_name"] == "a/b" and m["type"] == m["object"] == "model", m)
        check(time.strptime(m["created_at"], "%Y-%m-%dT%H:%M:%SZ"), m)
    refused(s.get("/v1/models/b"), 404, "model_not_found", "model", "'b'")
    e = s.get("/v1/models/b", headers={"anthropic-version": "2023-06-01"}).json
    check(e["type"] == "error" and e["error"]["type"] == "not_found_error", e)
    check(s.get("/v1/models/").status == 404 and s.ask("DELETE", "/v1/models/a/b").status == 405, "other routes")
    s.stop()


def test_without_a_default_all_models_in_the_folders_are_served():
    folder, other = path("folder"), path("other")
    for d in folder, other:
        os.makedirs(d)
    os.symlink(os.path.abspath(STORY), os.path.join(folder, "story.gguf"))
    os.symlink(os.path.abspath(CHAT), os.path.join(other, "chat.gguf"))
    with open(os.path.join(folder, "broken.gguf"), "wb") as f:
        f.write(b"GGUF" + b"\xff" * 100)
    every = "--models", folder, "--models", other
    s = Server(*every, "--alias", "a=chat", "--ctx", "300")
    check(s.states() == {"chat": "not_loaded", "story": "not_loaded", "a": "not_loaded"}, s.states())
    check(re.search(r"warning: 'broken' is left out: .*broken\.gguf", s.stderr()), s.stderr())
    check(re.search(r"warning: 'story': a context of 300 tokens; the model was trained with 256", s.stderr()), s.stderr())
    check("serving 'chat', 'story' at" in s.stderr() and "'chat': a context" not in s.stderr(), s.stderr())
    check(s.complete(model="a").status == 200 and s.complete(model="story").status == 200, "they answer")
    s.stop()
    for args, status, text in (("--pin", "broken"), 65, "broken.gguf"), (("--alias", "a=broken"), 65, "broken.gguf"), \
            (("--name", "x"), 64, "NAME=PATH"), (("-m", "sto"), 66, "story"):
        r = subprocess.run([QUERN, "serve", "--listen", path("bad/sock"), *every, *args], capture_output=True, timeout=LIMIT)
        check(r.returncode == status and text in r.stderr.decode(), args, r)
    s = Server(*every, "-m", "story")
    check(s.states() == {"story": "loaded"}, "the default alone", s.states())
    s.stop()


def test_bad_command_lines():
    bad = path("bad.gguf")
    shutil.copyfile(STORY, bad)
    os.truncate(bad, 5000)
    for args, status, text in (((STORY, STORY), 64, "would both be called"), ((STORY, "--name", "a", "--pin", "b"), 64, "--pin b"),
                               ((*BOTH, "--name", "a"), 64, "NAME=PATH"), (("=" + STORY,), 64, "1 to 128"),
                               (("a\x01=" + STORY,), 64, "control"), ((STORY, "x=/nothing"), 66, "/nothing"),
                               ((STORY, bad), 65, bad), ((*BOTH, "--memory", "100M"), 75, "at least")):
        r = subprocess.run([QUERN, "serve", "--listen", path("bad/sock"), *args], capture_output=True, timeout=LIMIT)
        lines = [line for line in r.stderr.decode().splitlines() if "warning" not in line]
        check(r.returncode == status and len(lines) == 1 and text in lines[0], args, r)
    weird = path("a=b.gguf")
    os.symlink(os.path.abspath(STORY), weird)
    s = Server(weird)
    check(s.states() == {"a=b": "loaded"}, "a file that is there is no name", s.states())
    s.stop()


def test_a_draft_model_is_for_one_model_and_changes_no_answer():
    asks = [{"temperature": 0, "max_tokens": 60}, {"temperature": 0.8, "seed": 5, "max_tokens": 60, "logprobs": 2}]
    answers = []
    for args in (STORY,), (STORY, "--draft-model", STORY), (*BOTH, "--draft-model", "story=" + STORY):
        s = Server(*args)
        name = {"model": "story"} if "chat=" + CHAT in args else {}
        answers.append([s.complete(**name, **a).json["choices"] for a in asks])
        s.stop()
    check(answers[0] == answers[1] == answers[2], answers)
    for models, drafts, status, text in ((BOTH, [STORY], 64, "MODEL="), (BOTH, ["x=" + STORY], 64, "no model 'x'"),
                                         (BOTH, ["story=" + STORY, "story=" + STORY], 64, "already"),
                                         ((STORY,), ["/nothing"], 66, "/nothing"), ((STORY,), [path("log0")], 65, "log0"),
                                         ((STORY,), [CHAT], 64, "draft model: token")):
        options = [word for d in drafts for word in ("--draft-model", d)]
        r = subprocess.run([QUERN, "serve", "--listen", path("bad/sock"), *models, *options], capture_output=True,
                           timeout=LIMIT)
        lines = [line for line in r.stderr.decode().splitlines() if "warning" not in line]
        check(r.returncode == status and len(lines) == 1 and text in lines[0], models, drafts, r)


# ---- who has the memory ----


def test_the_least_used_gives_way_and_a_pinned_one_does_not():
    n = needs("a=" + STORY, "b=" + STORY, "c=" + CHAT)
    for pin in (None, "a"):
        s = Server("a=" + STORY, "b=" + STORY, "c=" + CHAT, "--memory", str(n["a"] + n["b"] + n[""]), *(("--pin", pin) if pin else ()))
        check(s.states()["a"] == ("loaded" if pin else "not_loaded"), s.states())
        for name in "abab":
            check(s.complete(model=name).status == 200, name)
        check([s.metric("model_loads_total", m) for m in "ab"] == [1, 1], "both fit")
        s.complete(model="a" if not pin else "b")
        check(s.complete(model="c").status == 200, "the third")
        stays = "a"
        gone = "b"
        check(s.states() == {stays: "loaded", gone: "not_loaded", "c": "loaded"}, pin, s.states())
        memory = s.get("/v1/memory").json
        check(sum(m["used_bytes"] for m in memory["models"]) <= sum(m["granted_bytes"] for m in memory["models"]) <=
              memory["budget_bytes"], memory)
        check(s.metric("generated_tokens_total", "b") >= 16, "what it has done is not forgotten")
        s.stop()


def test_a_model_that_does_not_fit_now_is_refused_with_numbers():
    some = ("--sessions", "64", "--parallel", "8")  # answers; another request waits until one of these has ended
    n = needs(*BOTH, *some)
    s = Server(*BOTH, "--memory", str(max(n["story"], n["chat"]) + n[""]), *some)
    held = s.holding("story")
    r = s.complete(model="chat")
    refused(r, 503, "models_busy", "model", "in use")
    check(len(re.findall(r"\d{6,}", r.json["error"]["message"])) >= 2 and int(r.headers["Retry-After"]) > 0, r.body, r.headers)
    check(s.complete(model="story").status == 200, "what is there serves on")
    held.close()
    until(LIMIT, lambda: s.metric("model_requests", "story") == 0, "the end of the request")
    check(s.complete(model="chat").status == 200 and s.states() == {"story": "not_loaded", "chat": "loaded"}, s.states())
    s.stop()


def test_a_model_that_never_fits_is_refused_at_the_start():
    n = needs(*BOTH)
    args = [QUERN, "serve", "--listen", path("never/sock"), *BOTH]
    for more in (("--memory", str(n["story"] // 4 + n[""])), ("--memory", str(max(n["story"], n["chat"]) + n[""]), "--pin", "story")):
        r = subprocess.run([*args, *more], capture_output=True, timeout=LIMIT)
        check(r.returncode == 75 and len(re.findall(rb"\d{6,}", r.stderr)) == 2, more, r)


def test_what_is_idle_is_unloaded():
    s = Server(*BOTH, "--pin", "chat", "--idle", "1", *MANY)
    held = s.running("story")
    end = time.monotonic() + 1.5  # longer than what is idle stays; who does not read falls behind and is cut off
    while time.monotonic() < end and held.response.read1(65536):
        pass
    check(s.states()["story"] == "loaded" or not held.response.read(1), "what runs stays", s.states())
    held.close()
    until(40 * SLOWNESS, lambda: s.states()["story"] == "not_loaded", "the end of the story")
    check(s.states()["chat"] == "loaded", "but not what is pinned")
    check(s.complete(model="story").status == 200, "and comes back")
    until(40 * SLOWNESS, lambda: s.states()["story"] == "not_loaded", "the end of an answer that is complete")
    s.stop()


def test_caches_are_kept_apart_and_survive():
    """A model that was unloaded finds on disk what it had computed, after a restart too."""
    prompt = "Once upon a time there was a little girl who had a red ball. " * 10
    n = needs(*BOTH)
    texts = {}
    for restart in range(2):
        s = Server(*BOTH, "--memory", str(max(n["story"], n["chat"]) + n[""]), "--cache-dir", path("cache"))
        for turn in range(2):
            for name in ("story", "chat"):
                r = s.complete(model=name, prompt=prompt).json
                cached = r["usage"]["prompt_tokens_details"]["cached_tokens"]
                check((cached >= 64) == (restart + turn > 0), restart, turn, name, cached)
                texts.setdefault(name, set()).add(r["choices"][0]["text"])
        s.stop()
    check(all(len(t) == 1 for t in texts.values()), texts)
    check(sorted(os.listdir(path("cache"))) == ["chat", "story"], os.listdir(path("cache")))
    s = Server("a/b=" + STORY, "..=" + CHAT, "--cache-dir", path("cache"))
    check(s.complete(model="a/b").status == 200 and s.complete(model="..").status == 200, "any name")
    s.stop()
    check(sorted(os.listdir(path("cache"))) == ["%2E.", "a%2Fb", "chat", "story"], os.listdir(path("cache")))


def test_dropping_reaches_models_that_are_not_in_memory():
    keys = path("two-keys")
    with open(keys, "w") as f:
        f.writelines(f"{hashlib.sha256(name.encode()).hexdigest()} {name}\n" for name in ("alice", "bob"))
    s = Server(*BOTH, "--cache-dir", path("drops"), "--listen", "127.0.0.1:0", "--api-keys", keys)
    s.port = int(s.stderr().split("127.0.0.1:")[1].split()[0])
    ask = lambda *a, **more: s.ask(*a, **more) if "headers" not in more else s.ask(*a, tcp=True, **more)
    bob = {"Authorization": "Bearer bob"}
    texts = ["Once upon a time there was a little girl who had a red ball. " * n for n in (8, 12)] + ["A dog ran. " * 30]
    for name in "story", "chat":
        for headers in ({}, {"headers": bob}):
            for text in texts:
                check(ask("POST", "/v1/completions", {**ASK, "model": name, "prompt": text, "max_tokens": 0}, **headers).status == 200)
    listed = s.get("/v1/sessions").json["total"], ask("GET", "/v1/sessions", headers=bob).json["total"]
    check(listed[0] == listed[1] >= 4, listed)
    s.stop()
    files = lambda: {name: sum(f.endswith(".kv") for f in os.listdir(path("drops/" + name))) for name in ("story", "chat")}
    before = files()
    check(min(before.values()) >= 4, before)
    s = Server(*BOTH, "--cache-dir", path("drops"), "--listen", "127.0.0.1:0", "--api-keys", keys)
    s.port = int(s.stderr().split("127.0.0.1:")[1].split()[0])
    check((n := s.ask("DELETE", "/v1/sessions").json["deleted"]) == listed[0], "as many as were listed", n, listed)
    check(all(0 < n < before[name] for name, n in files().items()), before, files())
    check(set(s.states().values()) == {"not_loaded"}, "without loading one", s.states())
    check(s.ask("DELETE", "/v1/sessions").json["deleted"] == 0, "nothing is left")
    r = s.complete(model="story", prompt=texts[0]).json
    check(r["usage"]["prompt_tokens_details"]["cached_tokens"] == 0, r)
    r = ask("POST", "/v1/completions", {**ASK, "model": "story", "prompt": texts[0]}, headers=bob).json
    check(r["usage"]["prompt_tokens_details"]["cached_tokens"] >= 64, "what is another's stays", r)
    check((n := ask("DELETE", "/v1/sessions", headers=bob).json["deleted"]) == listed[1], "in memory and on disk", n, listed)
    s.stop()
    check(files()["chat"] == 0, files())


# ---- together ----


def test_many_wait_for_one_load():
    s = Server(*BOTH)
    with concurrent.futures.ThreadPoolExecutor(12) as pool:
        asks = [pool.submit(s.complete, model=("story", "chat")[i % 2]) for i in range(12)]
        answers = [a.result() for a in asks]
    check(all(a.status == 200 for a in answers), [a.body for a in answers if a.status != 200])
    check(len({text(a) for a in answers[::2]}) == 1 and len({text(a) for a in answers[1::2]}) == 1, "the same answer for all")
    check([s.metric("model_loads_total", m) for m in ("story", "chat")] == [1, 1], "one load of each")
    s.stop()


def test_models_that_take_turns():
    """Two models with room for one, and clients of both that come again when they are told to."""
    n = needs(*BOTH)
    s = Server(*BOTH, "--memory", str(max(n["story"], n["chat"]) + n[""]))

    def client(name):
        texts = set()
        for _ in range(5):
            while (r := s.complete(model=name)).status == 503:
                time.sleep(0.01)
            texts.add(text(r) if r.status == 200 else r.body)
        return texts

    with concurrent.futures.ThreadPoolExecutor(4) as pool:
        texts = list(pool.map(client, ("story", "chat") * 2))
    check(texts[0] == texts[2] and texts[1] == texts[3] and all(len(t) == 1 for t in texts), texts)
    s.stop()


def test_a_file_that_has_gone_bad_fails_its_requests_only():
    bad = path("later.gguf")
    shutil.copyfile(STORY, bad)
    s = Server("bad=" + bad, "good=" + CHAT)
    os.rename(bad, bad + ".away")
    refused(s.complete(model="bad"), 500, "model_failed", "model", "later.gguf")
    check(s.complete(model="good").status == 200, "the daemon serves on")
    os.rename(bad + ".away", bad)
    check(s.complete(model="bad").status == 200, "and the file is tried again")
    s.stop()


def test_the_end_of_the_daemon_ends_those_that_wait():
    s = Server(*BOTH, "--grace", "0", *MANY)
    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        asks = [pool.submit(s.complete, model=m, max_tokens=200, n=8, ignore_eos=True) for m in ("story", "chat") * 4]
        until(LIMIT, lambda: "loaded" in s.states().values(), "a load")
        s.process.send_signal(signal.SIGTERM)
        for a in asks:
            try:
                check(a.result().status in (200, 503), a.result().body[:300])
            except OSError:
                pass  # it came too late to be let in
    s.stop()


# ---- the idle daemon ----


def test_an_idle_daemon_is_small():
    s = Server()
    first = s.memory()
    s.get("/health")
    used = s.memory()
    s.stop()
    s = Server(STORY, "--idle", "1")
    s.complete()
    until(40 * SLOWNESS, lambda: set(s.states().values()) == {"not_loaded"}, "the end of the model")
    after = s.memory()
    s.stop()
    print("    KB resident (anonymous, of files):", first, "after a request:", used, "after a model:", after)
    if SLOWNESS == 1:
        for kb in (first, used, after):
            check(kb[0] <= 10 * 1024, kb)


def test_it_starts_and_stops_at_once():
    for args in ((), (STORY,), BOTH):
        for _ in range(12):  # a busy machine may hold it up, but not each time
            s = Server(*args)
            stop_s = s.stop()
            print(f"    {len(args)} models: ready in {1e3 * s.ready_s:.0f} ms, stopped in {1e3 * stop_s:.0f} ms")
            if s.ready_s <= 1 * SLOWNESS and stop_s <= 2 * SLOWNESS:
                break
        check(s.ready_s <= 1 * SLOWNESS and stop_s <= 2 * SLOWNESS, len(args), s.ready_s, stop_s)


main(globals())
