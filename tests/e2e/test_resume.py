#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""test_resume.py: tests that streams can be resumed after their connection broke. Arguments and output: test_serve.py.

A stream is cut at some byte, and the client comes back with the id of the last event that it has: nothing may be lost,
nothing may come twice.
"""
import json
import random
import re
import signal
import sys
import time

from lib.cases import check, run
from test_serve import CHAT, LIMIT, SLOWNESS, STORY, Server, refused

STORY_ASK = {"prompt": "Once upon a time", "max_tokens": 40, "temperature": 0, "stream": True, "ignore_eos": True}
CHAT_ASK = {"messages": [{"role": "user", "content": "hello"}], "max_tokens": 30, "seed": 7, "stream": True, "ignore_eos": True}
ASKS = {
    "/v1/completions": STORY_ASK,
    "/v1/chat/completions": CHAT_ASK,
    "/v1/responses": {"input": "hello", "max_output_tokens": 30, "seed": 7, "stream": True, "ignore_eos": True},
    "/v1/messages": {k: v for k, v in CHAT_ASK.items()},
}
ROOM = ("--parallel", "8", "--sessions", "8")
# LONG takes seconds, so that a client that is held up still comes in time; with a sanitizer it does so in any case.
SLOW = (*ROOM, "--cpu", "ref") if SLOWNESS == 1 else ROOM
LONG = {**STORY_ASK, "max_tokens": 200, "n": 4}


def events(text):
    """The complete events of a stream's text, as (number, data); comments are left out."""
    for block in text.split("\n\n")[:-1]:
        lines = block.split("\n")
        data = [l[6:] for l in lines if l.startswith("data: ")]
        ids = [l[4:] for l in lines if l.startswith("id: ")]
        check(len(data) == len(ids) <= 1, "an event has one id", block)
        if data and ids:
            yield int(ids[0].rsplit(":", 1)[1]), data[0]


def essence(data):
    """What two answers to the same request have in common."""
    if data == "[DONE]":
        return data
    e = json.loads(data)
    for key in ("id", "item_id", "created", "quern"):
        e.pop(key, None)
    for key in ("response", "message", "item", "usage"):
        if isinstance(e.get(key), dict):
            e[key] = {k: v for k, v in e[key].items() if k in ("status", "text", "stop_reason", "completion_tokens")}
    return json.dumps(e, sort_keys=True)


class Stream:
    """A stream whose bytes are read as they come, until its connection is closed."""

    def __init__(self, server, method, target, body=None, headers=None, tcp=False):
        self.connection = server.connect(tcp)
        headers = {"Content-Type": "application/json", **(headers or {})}
        self.connection.request(method, target, body and json.dumps(body), headers)
        self.response = self.connection.getresponse()
        self.status, self.id, self.text = self.response.status, self.response.headers["x-request-id"], b""

    def read(self, n=None):
        """Reads n bytes, or all."""
        while n is None or len(self.text) < n:
            piece = self.response.read1(n - len(self.text) if n else 65536)
            if not piece:
                break
            self.text += piece
        return self

    def read_events(self, n):
        while len(list(events(self.so_far()))) < n:
            piece = self.response.read1(65536)
            if not piece:
                break
            self.text += piece
        return self

    def so_far(self):
        return self.text.decode(errors="replace")

    def close(self):
        self.connection.close()
        self.response.close()
        return self

    def last(self):
        """The id of the last complete event; none: before the first one."""
        found = list(events(self.so_far()))
        return found[-1][0] if found else 0


def begin(server, target, body, seconds=60, **more):
    return Stream(server, "POST", target, body, {"Quern-Resume": str(seconds)}, **more)


def resume(server, name, after, **more):
    """name: of the request, as in the ids of its events."""
    return Stream(server, "GET", f"/v1/requests/{name}/events", headers={"Last-Event-ID": f"{name}:{after}"}, **more)


def finish(server, target, body, cuts):
    """Streams an answer, cut after so many bytes each time; returns all events, which must be numbered one by one."""
    s = begin(server, target, body)
    name, got = s.id, []
    for n in cuts:
        s.read(n).close()
        got += events(s.so_far())
        s = resume(server, name, got[-1][0] if got else 0)
        check(s.status == 200, target, s.status)
    s.read()
    got += events(s.close().so_far())
    check([n for n, _ in got] == list(range(1, len(got) + 1)), target, cuts, [n for n, _ in got])
    return [essence(data) for _, data in got]


def test_a_stream_cut_at_any_byte_goes_on_without_loss():
    s = Server(CHAT)
    chance = random.Random(5)
    for target, body in ASKS.items():
        whole = finish(s, target, body, [])
        check(len(whole) > 20, target, whole)
        for i in range(4):
            cuts = [chance.randrange(0, 2500) for _ in range(chance.randrange(1, 5))]
            check(finish(s, target, body, cuts) == whole, target, cuts)
    s.stop()


def test_ids_are_sent_only_when_asked_for():
    s = Server()
    plain = Stream(s, "POST", "/v1/completions", STORY_ASK).read().close()
    check("id:" not in plain.so_far().replace('"id":', ""), plain.text[:300])
    got = begin(s, "/v1/completions", STORY_ASK).read().close()
    check(got.so_far().startswith(f"id: {got.id}:1\ndata: "), got.text[:300])
    without = "".join(l + "\n" for l in got.so_far().split("\n") if not l.startswith("id: "))
    check([essence(d[6:]) for d in without.split("\n\n") if d.startswith("data")] ==
          [essence(d[6:]) for d in plain.so_far().split("\n\n") if d.startswith("data")], "and change nothing else")
    refused(s.get(f"/v1/requests/{plain.id}/events"), 404, "request_not_found", "id")
    s.stop()


def test_a_request_goes_on_while_nobody_listens():
    s = Server()
    one = begin(s, "/v1/completions", STORY_ASK).read_events(2).close()
    s.wait_for("generated_tokens_total", 40)
    s.wait_for("requests_running", 0)
    # all of it, or what follows an event; by the answer's id too; by asking the same again
    every = Stream(s, "GET", f"/v1/requests/{one.id}/events").read().close()
    check([n for n, _ in events(every.so_far())] == list(range(1, 43)), every.text[-300:])
    after = Stream(s, "GET", f"/v1/requests/cmpl-{one.id}/events", headers={"Last-Event-ID": f"{one.id}:40"}).read().close()
    check([n for n, _ in events(after.so_far())] == [41, 42], after.text)
    again = Stream(s, "POST", "/v1/completions", STORY_ASK, {"Last-Event-ID": f"{one.id}:41"}).read().close()
    check([d for _, d in events(again.so_far())] == ["[DONE]"], again.text)
    check(resume(s, one.id, 42).read().text == b"", "nothing follows the last event")
    check(Stream(s, "HEAD", f"/v1/requests/{one.id}/events").status == 200, "HEAD")
    check(s.metric("generated_tokens_total") == 40, "nothing was computed again")
    s.stop()


def test_another_reader_takes_over():
    s = Server(STORY, *SLOW)
    one = begin(s, "/v1/completions", {**LONG, "max_tokens": 100 if SLOWNESS == 1 else 200}).read_events(1)
    last = one.last()
    two = resume(s, one.id, last)
    try:
        one.read()
        check(False, "the first connection is broken off")
    except Exception:  # noqa: BLE001 (what a broken stream is called depends on where it breaks)
        pass
    got = [n for n, _ in events(two.read().so_far())]
    check(got == list(range(last + 1, got[-1] + 1)) and two.text.endswith(b"data: [DONE]\n\n"), last, got[:5], got[-5:])
    s.stop()


def test_a_request_that_nobody_comes_back_to_is_cancelled():
    s = Server(STORY, *SLOW)
    one = begin(s, "/v1/completions", LONG, seconds=1).read_events(1).close()
    s.process.send_signal(signal.SIGSTOP)  # no model is so slow on every machine
    time.sleep(1.2)
    s.process.send_signal(signal.SIGCONT)
    s.wait_for("requests_running", 0)
    check(s.metric("generated_tokens_total") < 4 * 180, "it was not computed to its end")
    got = resume(s, one.id, 1).read()
    check(got.status in (404, 410), got.status, got.text[:200])
    # An answer that has ended is kept for its time.
    one = begin(s, "/v1/completions", STORY_ASK, seconds=1).read().close()
    end = time.monotonic() + LIMIT
    while resume(s, one.id, 41).close().status == 200 and time.monotonic() < end:
        time.sleep(0.1)
    refused(s.get(f"/v1/requests/{one.id}/events"), 404, "request_not_found", "id")
    # It can be cancelled by its id too.
    one = begin(s, "/v1/completions", LONG).read_events(1).close()
    check(s.post(f"/v1/requests/{one.id}/cancel", b"").status == 200, "cancel")
    s.wait_for("requests_running", 0)
    check('"cancelled"' in resume(s, one.id, 1).read().so_far(), "its end is told")
    s.stop()


def test_a_request_that_somebody_came_back_to_is_not_cancelled():
    s = Server(STORY, *ROOM)
    one = begin(s, "/v1/completions", LONG, seconds=1).read_events(1)
    two = resume(s, one.id, 0)
    s.process.send_signal(signal.SIGSTOP)
    time.sleep(1.2)
    s.process.send_signal(signal.SIGCONT)
    got = list(events(two.read().so_far()))
    check([n for n, _ in got] == list(range(1, len(got) + 1)) and got[-1][1] == "[DONE]", got[-3:])
    check('"cancelled"' not in two.so_far(), "it goes on to its end")
    s.stop()


def test_only_the_same_identity_can_resume():
    s = Server()
    one = begin(s, "/v1/completions", STORY_ASK).read().close()
    check(resume(s, one.id, 0, tcp=True).read().status == 404, "over TCP it is somebody else")
    other = begin(s, "/v1/completions", STORY_ASK, tcp=True).read().close()
    check(resume(s, other.id, 0).status == 404 and resume(s, other.id, 0, tcp=True).status == 200, "and back")
    s.stop()


def large_answer(s, **more):
    """A request and the number of its events, once it has ended without its reader. Each of three events repeats the tools:
    more than the window of one answer. The last of them may be written after its computation has ended: it is waited for."""
    tools = [{"type": "function", "name": "f", "description": "x" * 1500000}]
    ask = {"input": "hello", "tools": tools, "tool_choice": "none", "max_output_tokens": 3, "stream": True, "store": False, "seed": 1,
           "ignore_eos": True}
    before = s.metric("generated_tokens_total")
    one = begin(s, "/v1/responses", ask, **more).close()
    s.wait_for("generated_tokens_total", before + 3)
    s.wait_for("requests_running", 0)
    so_far = int(re.search(rb"has (\d+) events", resume(s, one.id, 10**6, **more).read().text)[1])
    rest = resume(s, one.id, so_far, **more).read()
    check(rest.status == 200, "the rest:", rest.status, rest.text[:300])
    return one, max([so_far] + [n for n, _ in events(rest.so_far())])


def test_what_is_not_kept_any_more_is_said():
    s = Server(CHAT, "--memory", "1G")
    one, last = large_answer(s)
    got = resume(s, one.id, 0).read()
    check(got.status == 410 and b'"events_gone"' in got.text, got.status, got.text[:300])
    check([n for n, _ in events(resume(s, one.id, last - 1).read().so_far())] == [last], "the newest are there")
    # All answers together have their bound too: the oldest is dropped first.
    more = [large_answer(s)[0] for _ in range(3)]
    check(resume(s, one.id, last - 1).status == 410 and resume(s, more[-1].id, last - 1).status == 200, "the oldest first")
    used = s.get("/v1/memory").json["request_bytes"]
    check(used < 20e6, used)
    s.stop()


def test_nobody_displaces_the_streams_of_another():
    s = Server(CHAT, "--memory", "1G")
    mine = begin(s, "/v1/chat/completions", CHAT_ASK).read().close()
    theirs = [large_answer(s, tcp=True) for _ in range(4)]  # over TCP it is somebody else
    check(resume(s, theirs[0][0].id, theirs[0][1] - 1, tcp=True).status == 410, "theirs are dropped")
    check(resume(s, mine.id, 0).read().text == mine.text, "mine are there, although they are older")
    s.stop()


def test_a_reader_that_is_too_slow_can_come_back():
    s = Server(CHAT)
    tools = [{"type": "function", "name": "f", "description": "x" * 1000000}]
    ask = {"input": "hello", "tools": tools, "tool_choice": "none", "max_output_tokens": 30, "seed": 1, "stream": True, "store": False, "ignore_eos": True}
    one = begin(s, "/v1/responses", ask)  # reads the head only
    s.wait_for("generated_tokens_total", 30)
    one.close()
    got = [n for n, _ in events(resume(s, one.id, 1).read().so_far())]
    check(got and got == list(range(2, got[-1] + 1)) and got[-1] > 20, got[:3], got[-3:])
    s.stop()


def test_what_cannot_be_honoured_is_refused():
    s = Server()
    for wrong in ("0", "601", "-1", "+5", "5s", "", "9" * 40, "1.5"):
        got = begin(s, "/v1/completions", STORY_ASK, seconds=wrong).read()
        check(got.status == 400 and b'"Quern-Resume"' in got.text, wrong, got.status, got.text)
    refused(s.post("/v1/completions", {"prompt": "a"}, headers={"Quern-Resume": "5"}), 400, "invalid_value", "Quern-Resume")
    refused(s.post("/tokenize", {"content": "a"}, headers={"Quern-Resume": "5"}), 400, "unsupported_value", "Quern-Resume")
    one = begin(s, "/v1/completions", STORY_ASK).read().close()
    for wrong, status in ((f"{one.id}:43", 400), (f"{one.id}:" + "9" * 30, 400), (one.id, 400), (":", 400), (":1", 400),
                          ("x:1", 400), ("x" * 100 + ":1", 400), (f"{one.id}:-1", 400), (f"{one.id}:1 ", 200)):
        got = Stream(s, "GET", f"/v1/requests/{one.id}/events", headers={"Last-Event-ID": wrong}).read()
        check(got.status == status, wrong, got.status, got.text[:200])
        got = Stream(s, "POST", "/v1/completions", STORY_ASK, {"Last-Event-ID": wrong}).read()
        check(got.status in (status, 404), wrong, got.status, got.text[:200])
    refused(s.get("/v1/requests/x/events"), 404, "request_not_found", "id")
    refused(s.get("/v1/requests/x/events", headers={"Quern-Resume": "5"}), 400, "unsupported_value", "Quern-Resume")
    s.stop()


if __name__ == "__main__":
    run(globals(), sys.argv[5] if sys.argv[5:] else "test_")
