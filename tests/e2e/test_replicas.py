#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""test_replicas.py: tests dist/haproxy/quern.cfg, with HAProxy in front of three daemons.

    test_replicas.py QUERN STORY_MODEL CHAT_MODEL SLOWNESS PARROT_MODEL

The file is used as it is shipped, except for its addresses. Without haproxy, the status is 77 (skipped), but in CI that
is a failure. test_serve.py describes the arguments and the output. The home of a conversation is the replica that
answered its first turn.
"""
import concurrent.futures
import http.client
import http.server
import json
import os
import pathlib
import shutil
import signal
import socket
import subprocess
import sys
import time

from lib.cases import check
from lib.files import path
from test_serve import LIMIT, Server, Unix, main

PARROT = sys.argv.pop(5)
CONFIG = pathlib.Path(__file__).resolve().parents[2] / "dist/haproxy/quern.cfg"
HAPROXY = shutil.which("haproxy") or shutil.which("haproxy", path="/usr/sbin")
NAMES = "abc"
HELLO = "Grüße! 😀 What can I do?"
ARGS = ("--ctx", "32768", "--parallel", "8", "--sessions", "8", "--grace", "60")
SONG = {"max_tokens": 20000, "n": 2, "stream": True}


class Replicas:
    """Three daemons and the proxy."""

    def __init__(self):
        self.server = {name: Server(PARROT, *ARGS) for name in NAMES}
        self.pool = concurrent.futures.ThreadPoolExecutor(3)
        self.port = {name: s.port for name, s in self.server.items()}
        self.name = path(f"proxy{self.port['a']}")
        text = CONFIG.read_text()
        changes = {"bind 127.0.0.1:8080": f"bind unix@{self.name}", "/run/haproxy/quern.sock": self.name + "-control"}
        changes |= {f"127.0.0.1:{8081 + i}": f"127.0.0.1:{self.port[name]}" for i, name in enumerate(NAMES)}
        for old, new in changes.items():
            check(text.count(old) == 1, old, "is not in the file once")
            text = text.replace(old, new)
        with open(self.name + ".cfg", "w") as f:
            f.write(text)
        self.log = open(self.name + ".log", "w")
        self.process = subprocess.Popen([HAPROXY, "-db", "-f", self.name + ".cfg"], stdout=self.log, stderr=self.log)
        self.wait(lambda: os.path.exists(self.name) and self.ask("GET", "/health")[1].status == 200)

    def wait(self, what):
        end = time.monotonic() + LIMIT
        while not what() and time.monotonic() < end:
            time.sleep(0.02)
        check(what(), "in vain")

    def begin(self, method, target, body=None):
        """A request through the proxy: its connection, the answer's head, and which replica it is from."""
        c = Unix(self.name)
        c.request(method, target, body and json.dumps(body), {"Content-Type": "application/json"})
        r = c.getresponse()
        return c, r, r.headers["x-replica"]

    def ask(self, method, target, body=None):
        """As begin, with the answer's JSON in the place of the connection."""
        c, r, home = self.begin(method, target, body)
        data = r.read()
        c.close()
        return (json.loads(data) if data.startswith(b"{") else data), r, home

    def turn(self, talk, text="Go on."):
        """The next turn of a conversation, a chat: its cached tokens and who answered."""
        talk.append({"role": "user", "content": text})
        answer, r, home = self.ask("POST", "/v1/chat/completions", {"model": "m", "messages": talk})
        check(r.status == 200 and answer["choices"][0]["message"]["content"] == HELLO, r.status, answer)
        talk.append(answer["choices"][0]["message"])
        return answer["usage"]["prompt_tokens_details"]["cached_tokens"], home

    def sing(self, name):
        """A stream that runs on the replica `name`, sought by trying: all of it, in the future. It is read at once,
        for a daemon gives up on readers that fall behind."""
        for i in range(200):
            messages = [{"role": "user", "content": f"Please sing {i}."}]
            c, r, home = self.begin("POST", "/v1/chat/completions", {"messages": messages, **SONG})
            start = r.read(100)
            if home == name:
                return self.pool.submit(lambda: start + r.read())
            c.close()
        raise RuntimeError("no song falls to " + name)

    def refuses(self, name):
        with socket.socket() as s:
            return s.connect_ex(("127.0.0.1", self.port[name])) != 0

    def __enter__(self):
        return self

    def __exit__(self, *failure):
        self.process.terminate()
        self.process.wait(LIMIT)
        self.log.close()
        for s in self.server.values() if failure == (None, None, None) else ():
            s.stop()


def talks(replicas, n):
    """n conversations with one long system prompt, and the home of each."""
    system = {"role": "system", "content": "You are kind. " * 30}
    all_talks = [[system] for _ in range(n)]
    return all_talks, [replicas.turn(talk, f"I am number {i}.")[1] for i, talk in enumerate(all_talks)]


def test_a_conversation_stays_with_its_replica():
    with Replicas() as r:
        all_talks, homes = talks(r, 30)
        check(all(homes.count(name) >= 3 for name in NAMES), "all have some", homes)
        for talk, home in zip(all_talks, homes):
            cached, now = r.turn(talk)
            check(now == home and cached > 400, "the second turn:", home, now, cached)


def test_every_api_has_conversations():
    with Replicas() as r:
        user = {"role": "user", "content": "I am one."}
        again = [{"role": "assistant", "content": "x"}, {"role": "user", "content": "y"}]
        parts = {"role": "user", "content": [{"type": "text", "text": "I am two."}]}
        items = {"role": "user", "content": [{"type": "input_text", "text": "I am three."}]}
        tale = "Once upon a time. " * 20
        long = {"role": "user", "content": "I am long. " * 30000}  # more than the proxy holds
        pairs = [(target, {"max_tokens": 5, "messages": [first]}, {"max_tokens": 5, "messages": [first, *again]})
                 for target in ("/v1/chat/completions", "/v1/messages") for first in (user, parts)]
        pairs += [("/v1/messages", {"max_tokens": 5, "system": "Be kind.", "messages": [user]},
                   {"max_tokens": 5, "system": "Be kind.", "messages": [user, *again]}),
                  ("/v1/responses", {"input": [user]}, {"input": [user, *again]}),
                  ("/v1/responses", {"input": [items]}, {"input": [items, *again]}),
                  ("/v1/responses", {"input": "I am four."}, {"input": "I am four."}),
                  ("/v1/completions", {"prompt": tale}, {"prompt": tale + "There was"}),
                  ("/v1/chat/completions", {"prompt_cache_key": "k", "messages": [user]},
                   {"prompt_cache_key": "k", "messages": [parts, *again]}),
                  ("/v1/chat/completions", {"messages": [long]}, {"messages": [long, *again]})]
        for target, first, second in pairs:
            homes = {r.ask("POST", target, first)[2] for _ in range(3)} | {r.ask("POST", target, second)[2] for _ in range(3)}
            check(len(homes) == 1, target, str(first)[:200], homes)
        check({r.ask("GET", "/v1/models")[2] for _ in range(6)} == set(NAMES), "what is no conversation goes around")


def test_a_replica_is_killed_and_comes_back():
    with Replicas() as r:
        all_talks, homes = talks(r, 30)
        songs = {name: r.sing(name) for name in NAMES}
        r.server["b"].process.send_signal(signal.SIGKILL)
        r.server["b"].process.wait()  # what arrives while it dies gets 502
        start = time.monotonic()
        try:
            songs["b"].result()
            check(False, "the stream of the dead seems whole")
        except (http.client.IncompleteRead, ConnectionError):
            check(time.monotonic() - start < LIMIT / 3, "it ended late")
        for talk, home in zip(all_talks, homes):  # at once, before the proxy's next look at the replica's health
            _, now = r.turn(talk)
            check(now == home if home != "b" else now in "ac", "while it is gone:", home, now)
        for name in "ac":
            data = songs[name].result()
            check(data.endswith(b"data: [DONE]\n\n") and data.count(b'"finish_reason":"length"') == 2, name, data[-300:])
        for talk, home in zip(all_talks, homes):
            _, now = r.turn(talk)
            check(now == home if home != "b" else now in "ac", "later:", home, now)
        r.server["b"].log.close()
        r.server["b"] = Server(PARROT, *ARGS, "--listen", f"127.0.0.1:{r.port['b']}", tcp=False)
        r.wait(lambda: "b" in {r.ask("GET", "/v1/models")[2] for _ in range(6)})
        for talk, home in zip(all_talks, homes):
            _, now = r.turn(talk)
            check(now == home, "when it is back:", home, now)


def test_a_replica_that_stops_ends_its_streams_and_gets_nothing_new():
    with Replicas() as r:
        all_talks, homes = talks(r, 12)
        song = r.sing("b")
        r.server["b"].process.send_signal(signal.SIGTERM)
        r.wait(lambda: r.refuses("b"))
        for talk, home in zip(all_talks, homes):
            _, now = r.turn(talk)
            check(now == home if home != "b" else now in "ac", "while it stops:", home, now)
        data = song.result()
        check(data.endswith(b"data: [DONE]\n\n"), data[-300:])


class Full(http.server.BaseHTTPRequestHandler):
    """A replica that is well and has no memory."""

    def do_GET(self):
        self.send_response(200)
        self.end_headers()

    def do_POST(self):
        self.server.n_refused += 1
        self.rfile.read(int(self.headers["Content-Length"]))
        self.send_response(503)
        self.end_headers()

    def log_message(self, *_):
        pass


def test_a_refusal_for_lack_of_memory_is_not_the_last_word():
    with Replicas() as r:
        all_talks, homes = talks(r, 12)
        r.server["b"].stop()
        with http.server.ThreadingHTTPServer(("127.0.0.1", r.port["b"]), Full) as full:
            full.n_refused = 0
            r.pool.submit(full.serve_forever)
            r.wait(lambda: "b" in {r.ask("GET", "/v1/models")[2] for _ in range(6)})
            for talk, home in zip(all_talks, homes):
                _, now = r.turn(talk)
                check(now == home if home != "b" else now in "ac", "while b refuses:", home, now)
            check(full.n_refused >= homes.count("b") > 0, full.n_refused, homes)
            full.shutdown()


def test_a_client_that_leaves_is_noticed_behind_the_proxy():
    with Replicas() as r:
        for stream in (True, False):
            body = {"messages": [{"role": "user", "content": "sing"}], "max_tokens": 30000, "n": 8, "stream": stream}
            c = Unix(r.name)
            c.request("POST", "/v1/chat/completions", json.dumps(body), {"Content-Type": "application/json"})
            if stream:
                c.getresponse().read(100)
            running = lambda: sum(s.metric("requests_running") for s in r.server.values())
            r.wait(lambda: running() == 1)
            c.sock.close() if c.sock else None
            c.close()
            r.wait(lambda: running() == 0)
            cancelled = sum(s.metric('requests_total{model="m",finish="cancelled"}') for s in r.server.values())
            check(cancelled == 1 + (not stream), "cancelled:", cancelled)


if not HAPROXY:
    print("there is no haproxy")
    sys.exit(1 if os.environ.get("CI") else 77)
main(globals())
