#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""test_messages.py: tests the daemon's answers on WebSockets. Arguments and output: test_serve.py. test_websocket.py
tests the protocol beneath.
"""
import hashlib
import json
import signal
import sys

from lib.cases import check, run
from lib.files import path
from lib.websocket import WebSocket
from test_resume import ASKS, essence
from test_serve import API, CHAT, Server

ASK = {"messages": [{"role": "user", "content": "hello"}], "max_tokens": 12, "seed": 7, "ignore_eos": True}
LONG = {**ASK, "max_tokens": 200, "n": 8}
ROOM = ("--parallel", "8", "--sessions", "8")
SCHEMAS = {"/v1/chat/completions": "ChatEvent", "/v1/responses": "ResponseEvent"}


def connect(s, target="/v1/chat/completions", headers="", tcp=False):
    c = s.connect(tcp)
    c.connect()
    w = WebSocket(c.sock, target, headers)
    check(w.status == 101 and w.is_proven(), w.status, w.headers)
    w.connection = c
    return w


def create(w, body, **more):
    return w.send_text(json.dumps({"type": "response.create", **body, **more}))


def is_last(m):
    return m.get("type") in ("done", "error", "response.completed", "response.incomplete")


def answer(w, target=None, name=None):
    """The messages of one answer, without their labels; they are compared with openapi.json."""
    got, request = [], None
    while not got or not is_last(got[-1]):
        m = json.loads(w.message())
        request = request or m["request"]
        check(m.pop("request") == request and m.pop("stream_id", None) == name, "the label", m)
        got.append(m)
        if target and m.get("type") != "done":
            for wrong in API.differences({"$ref": f"#/components/schemas/{SCHEMAS[target]}"}, m, target):
                check(False, wrong)
    return got


def is_whole(messages):
    """Whether they are the answer to ASK."""
    return messages[-1] == {"type": "done"} and messages[-2]["choices"][0]["finish_reason"] == "length"


def error(w, status, code, param=None, name=None):
    (m,) = answer(w, name=name)
    e = m.get("error", {})
    check(m["type"] == "error" and (m["status"], e["code"], e["param"]) == (status, code, param), m)


def test_messages_are_the_events_of_a_stream():
    s = Server(CHAT)
    for target in SCHEMAS:
        body = ASKS[target]
        stream = [essence(e) if e == "[DONE]" else essence(json.dumps(e)) for e in s.post(target, body).events()]
        w = connect(s, target)
        for _ in range(2):  # one after the other on one connection
            got = [essence(json.dumps(m)) for m in answer(create(w, {k: v for k, v in body.items() if k != "stream"}), target)]
            if stream[-1] == "[DONE]":
                check(got.pop() == '{"type": "done"}', "the end of chunks")
            check(got == [e for e in stream if e != "[DONE]"], target, got[-2:], stream[-2:])
        check(w.close() == 1000, "closed")
    w = connect(s)
    for body in (ASK, {**ASK, "type": None, "stream": None}, {**ASK, "stream": True}):
        check(is_whole(answer(w.send_text(json.dumps(body)))), "the type may be left out, and stream is implied")
    s.stop()


def test_several_requests_have_names():
    s = Server(CHAT, *ROOM)
    w = connect(s)
    for name in ("one", "two", 'three "3"'):
        create(w, ASK, stream_id=name)
    got = {}
    while sum(m[-1].get("type") == "done" for m in got.values()) < 3:
        m = json.loads(w.message())
        got.setdefault(m.pop("stream_id"), []).append(m)
    texts = [[essence(json.dumps(m | {"request": ""})) for m in all] for all in got.values()]
    check(len(got) == 3 and texts[0] == texts[1] == texts[2], got.keys())
    check(len({m["request"] for all in got.values() for m in all}) == 3, "each has its id")
    w.close()
    s.stop()


def test_requests_are_cancelled_by_message():
    s = Server(CHAT, *ROOM)
    w = connect(s)
    for how in ("id", "response_id", "stream_id"):
        create(w, LONG, stream_id="x")
        first = json.loads(w.message())
        name = "x" if how == "stream_id" else first["request"] if how == "id" else first["id"]
        w.send_text(json.dumps({"type": "response.cancel", how: name}))
        check('"cancelled"' in json.dumps(answer(w, name="x")), how)
    for body, status, code, param in (
            ({"id": "x"}, 404, "request_not_found", "id"), ({"stream_id": "x"}, 404, "request_not_found", "stream_id"),
            ({}, 400, "missing_field", None), ({"id": "x", "stream_id": "x"}, 400, "missing_field", None),
            ({"id": 5}, 400, "invalid_type", "id"), ({"ID": "x"}, 400, "unknown_field", "ID"),
            ({"id": ""}, 400, "out_of_range", "id"), ({"id": "x" * 2000}, 400, "unsupported_value", "type")):
        w.send_text(json.dumps({"type": "response.cancel", **body}))
        error(w, status, code, param)
    # Names belong to a connection; ids to an identity.
    other = connect(s, tcp=True)
    create(w, LONG, stream_id="x")
    first = json.loads(w.message())
    for body in ({"stream_id": "x"}, {"id": first["request"]}):
        other.send_text(json.dumps({"type": "response.cancel", **body}))
        error(other, 404, "request_not_found", next(iter(body)))
    s.post(f"/v1/requests/{first['request']}/cancel", b"")
    check('"cancelled"' in json.dumps(answer(w, name="x")), "by its own route too")
    # A client that leaves cancels as always.
    cancelled = 'requests_total{model="m",finish="cancelled"}'
    before = s.metric(cancelled)
    create(w, LONG).message()
    w.sock.close()
    s.wait_for(cancelled, before + 1)
    s.stop()


def test_what_a_message_cannot_have_is_refused():
    s = Server(CHAT)
    w = connect(s)
    for text, status, code, param in (
            ("", 400, "invalid_json", None), ("{", 400, "invalid_json", None), ("[]", 400, "invalid_type", None),
            ("null", 400, "invalid_type", None), ('{"type":"response.create"', 400, "invalid_json", None),
            ('{"type":"response.cancel"', 400, "invalid_json", None), ('{"a":1,"a":2}', 400, "invalid_json", None)):
        w.send_text(text)
        (m,) = answer(w)
        check(m["type"] == "error" and m["status"] == status and m["error"]["code"], text, m)
    for body, code, param in (
            ({"type": "session.update"}, "unsupported_value", "type"), ({"type": 5}, "unsupported_value", "type"),
            ({"type": "response.create\0"}, "unsupported_value", "type"), ({"stream": False}, "unsupported_value", "stream"),
            ({"stream": 1}, "unsupported_value", "stream"), ({"event_id": "x"}, "unknown_field", "event_id"),
            ({"stream_id": 5}, "invalid_type", "stream_id"), ({"stream_id": ""}, "out_of_range", "stream_id"),
            ({"stream_id": "x" * 65}, "out_of_range", "stream_id"), ({"stream_id": "a\0"}, "invalid_value", "stream_id"),
            ({"temperature": "hot"}, "invalid_type", "temperature")):
        create(w, {**ASK, **body})
        error(w, 400, code, param)
    create(w, {**ASK, "model": "none"}, stream_id="ü" * 32)
    error(w, 404, "model_not_found", "model", "ü" * 32)
    check(is_whole(answer(create(w, ASK))), "and the connection goes on")
    for target in ("/v1/messages", "/v1/completions", "/v1/embeddings"):
        c = s.connect()
        c.connect()
        check(WebSocket(c.sock, target).status == 405, target)
    s.stop()


def test_keys_and_their_limits():
    keys = path("keys")

    def write(*lines):
        with open(keys, "w", encoding="utf-8") as f:
            f.writelines(f"{hashlib.sha256(k.encode()).hexdigest()} {rest}\n" for k, rest in lines)

    write(("s3cret", "ann requests=1"))
    s = Server(CHAT, "--api-keys", keys, *ROOM)
    c = s.connect(True)
    c.connect()
    check(WebSocket(c.sock, "/v1/responses").status == 401, "no key")
    w = connect(s, headers="Sec-WebSocket-Protocol: realtime, openai-insecure-api-key.s3cret\r\n", tcp=True)
    create(w, LONG, stream_id="long").message()
    create(w, ASK, stream_id="more")
    while '"more"' not in (m := w.message()):
        pass
    check(json.loads(m)["error"]["code"] == "too_many_requests", m)
    w.send_text('{"type":"response.cancel","stream_id":"long"}')
    check('"cancelled"' in json.dumps(answer(w, name="long")), "a cancel needs no place")
    local = connect(s)
    create(w, ASK).message()
    write(("other", "bob"))
    s.process.send_signal(signal.SIGHUP)
    check(w.close_code() == 1012, "new keys end the connections of old ones")
    check(is_whole(answer(create(local, ASK))), "not those that need no key")
    s.stop()


def test_a_reader_that_does_not_read_is_cut_off():
    s = Server(CHAT, *ROOM)
    w = connect(s)
    create(w, {**LONG, "logprobs": True, "top_logprobs": 20})
    s.wait_for("requests_running", 1)
    s.wait_for("requests_running", 0)
    check(s.metric("generated_tokens_total") < 8 * 200, s.metric("generated_tokens_total"))
    s.stop()


def test_the_end_of_the_daemon_is_said():
    s = Server(CHAT, *ROOM)
    w, idle = connect(s), connect(s)
    create(w, LONG).message()
    s.process.send_signal(signal.SIGTERM)
    check(idle.close_code() == 1001, "at once")
    check(answer(w)[-1]["type"] == "done" and w.close_code() == 1001, "after the answer")
    s.stop()


if __name__ == "__main__":
    run(globals(), sys.argv[5] if sys.argv[5:] else "test_")
