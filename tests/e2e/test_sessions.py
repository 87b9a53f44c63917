#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""test_sessions.py: tests the conversations that `quern serve` keeps in memory and on disk, lists and drops.

    test_sessions.py QUERN STORY_MODEL CHAT_MODEL SLOWNESS [PREFIX_OF_CASES]

test_serve.py describes the arguments and the output.
"""
import contextlib
import ctypes
import hashlib
import json
import os
import re
import shutil
import subprocess
import time

from lib.cases import check
from lib.files import path
from test_serve import CHAT, LIMIT, QUERN, SLOWNESS, Server as Daemon, main, refused

PAGE = 64  # tokens


class Server(Daemon):
    def __init__(self, *args, **more):
        super().__init__(CHAT, "--ctx", "1024", *args, **more)

    def ask(self, method, target, body=None, key=None):
        return super().ask(method, target, body, {"Authorization": f"Bearer {key}"} if key else None, tcp=bool(key))

    def turn(self, messages, key=None, **more):
        """One turn of a conversation: the answer is added to it. Returns what the server says of it."""
        body = {"messages": messages, "max_tokens": 8, "temperature": 0, "ignore_eos": True, **more}
        r = self.ask("POST", "/v1/chat/completions", body, key).json
        messages.append({"role": "assistant", "content": r["choices"][0]["message"]["content"] or ""})
        return {**r["quern"], "prompt_tokens": r["usage"]["prompt_tokens"], "text": messages[-1]["content"]}

    def sessions(self, query="", key=None):
        return self.ask("GET", "/v1/sessions" + query, key=key).json

    def drop(self, name="", key=None):
        return self.ask("DELETE", "/v1/sessions" + (name and "/" + name), key=key)

    def wait_until_saved(self):
        end = time.monotonic() + LIMIT
        while (r := self.sessions())["total_disk_bytes"] != r["total_memory_bytes"] and time.monotonic() < end:
            time.sleep(0.005)
        check(r["total_disk_bytes"] == r["total_memory_bytes"], "never saved", r)


def user(text):
    return {"role": "user", "content": text}


def long_text(seed, n=40):
    return " ".join(f"word{(i * 7 + seed) % 100}" for i in range(n))


# ---- one conversation is one chain ----


def test_eight_turns_are_one_chain():
    s = Server()
    talk, seen = [], set()
    for i in range(8):
        talk.append(user(f"turn {i}: " + long_text(i, 10)))
        t = s.turn(talk)
        r = s.sessions()
        check(r["total"] == 1 and len(r["data"]) == 1, i, r)
        one = r["data"][0]
        seen.add(one["id"])
        pages = -(-one["tokens"] // PAGE)
        memory = s.ask("GET", "/v1/memory").json
        memory = memory["models"][0] if "models" in memory else memory
        check(t["prompt_tokens"] <= one["tokens"] <= t["prompt_tokens"] + 8, one, t)
        check(memory["kv_pages_cached"] == pages, i, memory, one)
        check(one["memory_bytes"] == r["total_memory_bytes"] == pages * memory["kv_bytes"] // memory["kv_pages"], one)
        check(one["model"] == "m" and one["disk_bytes"] == 0 and 0 <= one["idle_seconds"] < LIMIT, one)
        if i:
            check(t["cached_tokens"] > before and t["cache_miss"] in ("ends", "differs"), i, t)
        else:
            check(t["cached_tokens"] == 0 and t["cache_miss"] == "nothing", t)
        before = t["cached_tokens"]
    check(len(seen) == 1, "its id stays", seen)
    check("turn 3" not in json.dumps(s.sessions()), "no text")
    s.stop()


def test_why_something_is_missed():
    s = Server("--sessions", "1")
    talk = [user(long_text(1))]
    s.turn(talk)
    t = s.turn([user(long_text(1))])
    check(t["cache_miss"] is None and t["cached_tokens"] == t["prompt_tokens"] - 1, t)
    t = s.turn([user(long_text(1)[:-1] + "X")])
    check(t["cache_miss"] == "differs" and 0 < t["cache_miss_position"] < t["prompt_tokens"], t)
    for i in range(2, 14):  # others take the memory
        s.turn([user(long_text(i, 70))])
    t = s.turn([user(long_text(1))])
    check(t["cache_miss"] == "evicted", t)
    s.stop()


# ---- listing and dropping ----


def test_sessions_are_listed_newest_first():
    s = Server()
    n = 5
    for i in range(n):
        s.turn([user(long_text(i))])
    r = s.sessions()
    check(r["object"] == "list" and r["total"] == len(r["data"]) == n and not r["has_more"], r)
    ages = [x["idle_seconds"] for x in r["data"]]
    check(ages == sorted(ages), ages)
    check(r["total_memory_bytes"] <= sum(x["memory_bytes"] for x in r["data"]), "shared pages are counted once")
    two = s.sessions("?limit=2")
    check([x["id"] for x in two["data"]] == [x["id"] for x in r["data"][:2]] and two["has_more"] and two["total"] == n, two)
    for bad in ("0", "-1", "x", "", "1001", "99999999999"):
        refused(s.ask("GET", f"/v1/sessions?limit={bad}"), 400, "out_of_range", "limit", f"'{bad}'")
    s.turn([user(long_text(0))])
    check(s.sessions()["data"][0]["id"] == r["data"][n - 1]["id"], "a use brings it to the front")
    s.stop()


def test_dropped_is_dropped():
    for disk in ((), ("--cache-dir", path("drop"), "--no-read-ahead")):
        s = Server(*disk)
        for i in range(3):
            s.turn([user(long_text(i))])
        if disk:
            s.wait_until_saved()
        newest = s.sessions()["data"][0]["id"]
        check(s.drop(newest).json == {"id": newest, "object": "session.deleted", "deleted": 1}, "one")
        refused(s.drop(newest), 404, "session_not_found", "id", newest)
        for bad in ("s_0000000000000000", "x", "s_" + "g" * 16, newest + "0", newest.upper()):
            refused(s.drop(bad), 404, "session_not_found", "id", bad)
        check(s.sessions()["total"] == 2, s.sessions())
        if disk:
            s.stop()
            s = Server(*disk)
            r = s.sessions()
            check(r["total"] == 2 and r["data"][0]["idle_seconds"] is None and r["total_memory_bytes"] == 0, r)
        t = s.turn([user(long_text(2))])
        check(t["cached_tokens"] < PAGE, "only what the others begin with", t)
        check(s.turn([user(long_text(0))])["cached_tokens"] > PAGE, "the others are there")
        check(s.drop().json == {"object": "session.deleted", "deleted": 3}, "all")
        check(s.sessions() == {"object": "list", "data": [], "has_more": False, "total": 0, "total_memory_bytes": 0,
                               "total_disk_bytes": 0}, s.sessions())
        s.stop()
        if disk:
            left = sorted(name.split("-")[0] for name in os.listdir(path("drop/m")))
            check(left == ["hash", "lock", "secret"], left)


def test_what_is_on_disk_is_read_ahead():
    disk = "--cache-dir", path("ahead")
    s = Server(*disk)
    for i in range(3):
        s.turn([user(long_text(i))])
    s.stop()
    s = Server(*disk)
    s.wait_until_saved()  # until all that is on disk is in memory, too
    check(s.sessions()["total"] == 3 and s.sessions()["total_memory_bytes"] > 0, s.sessions())
    check(s.turn([user(long_text(0))])["cached_tokens"] > PAGE, "it is of use")
    s.stop()


def test_others_neither_see_nor_drop():
    keys = path("keys")
    with open(keys, "w") as f:
        for name in ("alice", "bob"):
            f.write(f"{hashlib.sha256(name.encode()).hexdigest()} {name}\n")
    os.chmod(keys, 0o600)
    s = Server("--api-keys", keys)
    s.turn([user(long_text(1))], key="alice")
    s.turn([user(long_text(2))], key="alice", cache_salt="her user")
    s.turn([user(long_text(3))], key="bob")
    s.turn([user(long_text(4))])  # the socket's user
    hers = s.sessions(key="alice")
    check(hers["total"] == 2 and s.sessions(key="bob")["total"] == 1 and s.sessions()["total"] == 1, "one's own, of all salts")
    check(s.drop(hers["data"][0]["id"], key="bob").status == 404, "not his")
    check(s.drop(key="bob").json["deleted"] == 1 and s.sessions(key="alice")["total"] == 2, "his alone")
    check(s.sessions()["total"] == 1, "the socket's user keeps his")
    s.stop()


# ---- on disk ----


def test_a_kill_leaves_what_was_saved():
    """kill -9 while the next conversation is being written: whole files, and at most temporary ones that go."""
    d = path("kill")
    talk = [user(long_text(0))]
    s = Server("--cache-dir", d)
    first = s.turn(talk)["text"]
    s.wait_until_saved()
    for i in range(1, 6):
        s.turn([user(long_text(i, 100))])
    s.process.kill()
    s.process.wait()
    s = Server("--cache-dir", d)
    check("dropped" not in s.stderr(), s.stderr())
    left = os.listdir(os.path.join(d, "m"))  # the model's own
    check(all(re.fullmatch(r"lock|secret|hash-[0-9a-f]+-[0-9a-f]+|[0-9a-f]{16}\.kv", name) for name in left), left)
    t = s.turn([user(long_text(0))])
    check(t["cached_tokens"] == t["prompt_tokens"] - 1 and t["text"] == first, t, first)
    s.stop()


def test_the_disk_waits_for_a_large_models_hash():
    """In the sandbox: it is computed beside the answers and remembered; `quern check --deep` remembers it, too."""
    model, env = path("large.gguf"), {**os.environ, "XDG_CACHE_HOME": path("xdg")}
    shutil.copyfile(CHAT, model)
    os.truncate(model, 200 << 20)
    for who in "daemon", "check":
        d = path("large-" + who)
        if who == "check":
            out = subprocess.run([QUERN, "check", "--deep", model], env=env, stdout=subprocess.PIPE, check=True).stdout
            with open(model, "rb") as f:
                check(hashlib.sha256(f.read()).hexdigest() in out.decode(), out)
            check(len(os.listdir(path("xdg/quern/hashes"))) == 1, os.listdir(path("xdg/quern")))
        for turn in range(2):
            s = Daemon(model, "--ctx", "1024", "--cache-dir", d, env=env)
            body = {"messages": [user(long_text(0))], "max_tokens": 8, "temperature": 0, "ignore_eos": True}
            t = s.post("/v1/chat/completions", body).json["quern"]
            check((t["cached_tokens"] > 0) == (turn > 0), who, turn, t)
            end = time.monotonic() + LIMIT
            while not any(n.endswith(".kv") for n in os.listdir(d + "/m")) and time.monotonic() < end:
                time.sleep(0.01)
            check("cache:" not in s.stderr(), s.stderr())
            s.stop()
        left = {n.split("-")[0] for n in os.listdir(d + "/m") if not n.endswith(".kv")}
        check(left == ({"hash", "lock", "secret"} if who == "daemon" else {"lock", "secret"}), who, left)
    os.unlink(model)


def test_hashing_disturbs_nobody():
    """Its thread takes what is left of the CPU and the disk, inside the sandbox too, and the daemon's end does not wait."""
    model = path("huge.gguf")
    shutil.copyfile(CHAT, model)
    os.truncate(model, 1 << 36)
    s = Daemon(model, "--ctx", "1024", "--cache-dir", path("huge"))
    tasks = f"/proc/{s.process.pid}/task/"
    names, end = {}, time.monotonic() + LIMIT
    while "model-hash" not in names and time.monotonic() < end:  # the thread gives itself its name
        for t in os.listdir(tasks):
            with contextlib.suppress(OSError), open(tasks + t + "/comm") as f:  # others end meanwhile
                names[f.read().strip()] = int(t)
        time.sleep(0.01)
    tid = names["model-hash"]
    ioprio_get = {"x86_64": 252, "aarch64": 31}.get(os.uname().machine)
    while os.sched_getscheduler(tid) != os.SCHED_IDLE and time.monotonic() < end:
        time.sleep(0.01)
    check(os.sched_getscheduler(tid) == os.SCHED_IDLE, os.sched_getscheduler(tid))
    while ioprio_get and (n := ctypes.CDLL(None).syscall(ioprio_get, 1, tid)) >> 13 != 3 and time.monotonic() < end:
        time.sleep(0.01)
    check(not ioprio_get or n >> 13 == 3, "the idle class of I/O")
    check(s.post("/v1/completions", {"prompt": "Once", "max_tokens": 8}).status == 200, "an answer meanwhile")
    t = time.monotonic()
    s.stop()
    check(time.monotonic() - t < LIMIT / 2, time.monotonic() - t, "seconds to its end")  # the hash takes longer
    os.unlink(model)


def test_under_pressure_conversations_move_to_disk():
    """The memory holds one context; ten conversations, one right after the other, all are found again."""
    s = Server("--sessions", "1", "--cache-dir", path("pressure"))
    texts = [s.turn([user(long_text(i, 60))])["text"] for i in range(10)]
    for i in range(10):
        t = s.turn([user(long_text(i, 60))])
        check(t["cached_tokens"] == t["prompt_tokens"] - 1 and t["cache_miss"] is None, i, t)
        check(t["text"] == texts[i], i, t["text"], texts[i])
    r = s.sessions()
    check(r["total"] == 10 and r["total_disk_bytes"] > r["total_memory_bytes"], r)
    s.stop()


if __name__ == "__main__":
    main(globals())
