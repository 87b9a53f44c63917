#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""test_websocket.py: tests the WebSockets of the HTTP layer, in the program http-server, with friendly and hostile
clients. Arguments and output: test_http.py. test_messages.py tests what the daemon sends over them.
"""
import hashlib
import json
import random
import select
import signal
import socket
import struct
import sys
import threading
import time

from lib.cases import check, run
from lib.files import written
from lib.websocket import BINARY, CLOSE, PING, PONG, TEXT, Closed, WebSocket, frame
from test_http import LIMIT, PEM, SLACK, SLOWNESS, Server

BUDGET = "budget=4000000"
IDLE_MS = int(700 * min(SLOWNESS, 4))


def ws(s, headers="", **more):
    w = WebSocket(s.connect(), "/ws", headers, **more)
    check(w.status == 101 and w.is_proven(), w.status, w.headers)
    return w


def end(s):
    """Ends the server in order: nothing is left, and all memory is given back."""
    s.process.send_signal(signal.SIGTERM)
    out = s.process.stdout.read()
    check(s.process.wait(LIMIT) == 0 and out.split()[:2] == [b"left", b"0"], out, s.stderr()[-2000:])
    check(out.split()[-1] == b"0", "bytes are left in the ledger", out)


def answer(text):
    """A message without what is different each time."""
    m = json.loads(text)
    check(m.pop("request", "").startswith("req-"), text)
    return m


def test_the_opening_handshake():
    s = Server(BUDGET)
    w = ws(s, key="dGhlIHNhbXBsZSBub25jZQ==")
    check(w.headers["sec-websocket-accept"] == "s3pPLMBiTxaQ9kYGzzhZRbK+xOo=", w.headers)
    check("content-length" not in w.headers and "sec-websocket-protocol" not in w.headers, w.headers)
    check(w.close() == 1000, "closed")
    w = ws(s, "Sec-WebSocket-Protocol: other, quern\r\nSec-WebSocket-Extensions: permessage-deflate\r\n")
    check(w.headers["sec-websocket-protocol"] == "quern" and "sec-websocket-extensions" not in w.headers, w.headers)
    for headers, upgrade, status in (
            ("", False, 426), ("Upgrade: websocket\r\n", False, 426), ("Connection: Upgrade\r\n", False, 426),
            ("Upgrade: h2c\r\nConnection: Upgrade\r\n", False, 426),
            ("Upgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Version: 12\r\n", False, 426),
            ("Upgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Version: 13\r\n", False, 400),
            ("Sec-WebSocket-Version: 13\r\n", True, 400), ("Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n", True, 400),
            ("Transfer-Encoding: chunked\r\n\r\n0\r\n", True, 400), ("Quern-Resume: 5\r\n", True, 400), ("Origin: http://evil.example\r\n", True, 403)):
        w = WebSocket(s.connect(), "/ws", headers, upgrade=upgrade)
        check(w.status == status, headers, w.status)
        check(status != 426 or w.headers["sec-websocket-version"] == "13" and w.headers["upgrade"] == "websocket", w.headers)
    for key in ("x", "dGhlIHNhbXBsZSBub25jZQ=", "dGhlIHNhbXBsZSBub25jZQ===", "dGhlIHNhbXBsZSBub25jZ===", "!" * 22 + "=="):
        check(WebSocket(s.connect(), "/ws", key=key).status == 400, key)
    check(WebSocket(s.connect(), "/item", "").status == 200, "other routes know no upgrade")
    check(s.ask("POST", "/ws").status == 405 and s.ask("HEAD", "/ws").status == 426, "other methods")
    end(s)


def test_a_message_is_answered():
    s = Server(BUDGET)
    w = ws(s)
    for body in ({"a": 1}, {}, {"text": "ä€😀" * 50}, {"text": "x" * 70000}):
        check(answer(w.send_text(json.dumps(body)).message()) == body, str(body)[:100])
    error = answer(w.send_text('{"no":1}').message())
    check((error["type"], error["status"]) == ("error", 429) and error["error"]["code"] == "rate_limit_exceeded", error)
    w.send_text('{"nothing":1}')
    w.send_text('{"events":3,"ms":0}')
    got = [answer(w.message()) for _ in range(3)]
    check(got == [{"event": k, "name": 'a "name"'} for k in (3, 2, 1)], got)
    check(w.close() == 1000, "closed")
    end(s)


def test_frames_may_be_divided_anywhere():
    s = Server(BUDGET)
    w = ws(s)
    text = json.dumps({"t": "ä€😀x"}, ensure_ascii=False).encode()
    for i in range(len(text) + 1):  # also inside of characters, with a ping between
        w.raw(frame(TEXT, text[:i], fin=False) + frame(PING, b"%d" % i) + frame(0, text[i:]))
        check(answer(w.message()) == {"t": "ä€😀x"} and w.pongs[-1] == b"%d" % i, i, w.pongs[-1:])
    w.raw(b"".join(frame(TEXT * (i == 0), text[i:i + 1], fin=i == len(text) - 1) for i in range(len(text))))
    check(answer(w.message()) == {"t": "ä€😀x"}, "byte by byte")
    for byte in frame(TEXT, text):
        w.raw(bytes([byte]))
    check(answer(w.message()) == {"t": "ä€😀x"}, "sent byte by byte")
    w.raw(frame(TEXT, b"", fin=False) + frame(0, b"", fin=False) + frame(0, text))
    check(answer(w.message()) == {"t": "ä€😀x"}, "empty frames")
    for n in (0, 1, 117, 118, 119, 65527, 65528, 65529, 200000):  # around the lengths' forms
        body = {"t": "y" * n}
        check(answer(w.send_text(json.dumps(body)).message()) == body, n)
    w.raw(b"".join(frame(TEXT, b'{"n":%d}' % i) for i in range(200)))
    got = [json.loads(w.message()) for _ in range(200)]
    check(all("n" in g or g["status"] == 429 for g in got), "many at once", got[-1])
    check(w.close() == 1000, "closed")
    end(s)


def test_pings_are_answered():
    s = Server(BUDGET)
    w = ws(s)
    for payload in (b"", b"x", bytes(range(125))):
        w.raw(frame(PING, payload)).send_text("{}").message()
        check(w.pongs[-1] == payload, payload, w.pongs)
    w.raw(frame(PONG, b"not asked for")).send_text("{}").message()
    check(len(w.pongs) == 3, w.pongs)
    w.raw(b"".join(frame(PING, b"%d" % i) for i in range(5000))).send_text("{}").message()
    check(w.pongs[-1] == b"4999", "at least the last of many", w.pongs[-1:])
    check(w.close() == 1000, "closed")
    end(s)


def test_what_the_protocol_forbids_closes_the_connection():
    s = Server(BUDGET, "body=1000")
    text = b'{"t":"x"}'
    long = frame(TEXT, b"x" * 126)[6:]
    for what, data, code in (
            *((f"reserved bits {r}", frame(TEXT, text, rsv=r), 1002) for r in (1, 2, 4, 7)),
            *((f"opcode {o}", frame(o, b""), 1002) for o in (3, 4, 5, 6, 7, 11, 12, 13, 14, 15)),
            ("no mask", frame(TEXT, text, mask=None), 1002),
            ("a ping without mask", frame(PING, b"", mask=None), 1002),
            ("a ping in pieces", frame(PING, b"", fin=False), 1002),
            ("a long ping", frame(PING, b"x" * 126), 1002),
            ("a long close", frame(CLOSE, b"\x03\xe8" + b"x" * 124), 1002),
            ("a beginning in a message", frame(TEXT, b"{", fin=False) + frame(TEXT, b"}"), 1002),
            ("a middle without beginning", frame(0, text), 1002),
            ("a middle after an end", frame(TEXT, b"{", fin=False) + frame(0, b"}") + frame(0, b"x"), 1002),
            ("a length that could be shorter", frame(TEXT, text, length=16), 1002),
            ("another", frame(TEXT, b"x" * 200, length=64), 1002),
            ("a length of 2^63", b"\x81\xff\x80" + b"\0" * 7 + b"abcd", 1002),
            ("binary", frame(BINARY, b""), 1003),
            ("binary in pieces", frame(BINARY, b"x", fin=False), 1003),
            ("too long", frame(TEXT, b"x" * 1001), 1009),
            ("much too long", b"\x81\xff\x7f" + b"\xff" * 7 + b"abcd", 1009),
            ("too long in pieces", frame(TEXT, b"x" * 600, fin=False) + frame(0, b"x" * 401), 1009),
            *((f"not UTF-8: {b}", frame(TEXT, b'{"t":"' + b + b'"}'), 1007) for b in (
                b"\x80", b"\xff", b"\xc0\xaf", b"\xc1\xbf", b"\xe0\x9f\xbf", b"\xed\xa0\x80", b"\xed\xbf\xbf", b"\xf0\x8f\xbf\xbf",
                b"\xf4\x90\x80\x80", b"\xf5\x80\x80\x80", b"\xe2\x82", b"\xf0\x9f\x98")),
            ("an end inside of a character", frame(TEXT, b"\xe2\x82"), 1007),
            ("not UTF-8 over two frames", frame(TEXT, b"\xe2\x82", fin=False) + frame(0, b"\x28"), 1007),
            ("not UTF-8 and unfinished", frame(TEXT, b"\xce\xba\xe1\xbd\xb9\xff", fin=False), 1007),
            ("closed", frame(CLOSE, struct.pack(">H", 1000)), 1000),
            ("closed without a code", frame(CLOSE), 1000),
            ("closed with a reason", frame(CLOSE, struct.pack(">H", 3999) + "grüße".encode()), 3999),
            ("half a code", frame(CLOSE, b"\x03"), 1002),
            ("a reason that is not UTF-8", frame(CLOSE, b"\x03\xe8\xff"), 1007),
            *((f"code {c}", frame(CLOSE, struct.pack(">H", c)), 1002) for c in (0, 999, 1004, 1005, 1006, 1015, 2999, 5000, 65535)),
            *((f"code {c}", frame(CLOSE, struct.pack(">H", c)), c) for c in (1001, 1003, 1007, 1011, 1014, 3000, 4999)),
            ("closed inside of a message", frame(TEXT, b"{", fin=False) + frame(CLOSE, b"\x03\xe9"), 1001)):
        w = ws(s)
        w.raw(data + frame(TEXT, text))  # nothing after it is looked at
        got = w.close_code()
        check(got == code, what, got)
        w.sock.close()
    end(s)


def test_requests_run_side_by_side():
    s = Server(BUDGET)
    w = ws(s)
    w.send_text('{"late":100000}').send_text('{"events":5,"ms":5}').send_text('{"a":1}').send_text('{"events":4,"ms":7}')
    got = {}
    for _ in range(5 + 1 + 4):
        m = json.loads(w.message())
        got.setdefault(m.pop("request"), []).append(m.get("event", m))
    wanted = [[5, 4, 3, 2, 1], [4, 3, 2, 1], [{"a": 1}]]
    check(sorted(map(str, got.values())) == sorted(map(str, wanted)), got)
    end_of_three = time.monotonic() + LIMIT  # a stream ends some time after its last event
    while s.stderr().count("MESSAGE 200 ") < 3 and time.monotonic() < end_of_three:
        time.sleep(0.01)
    check(s.stderr().count("MESSAGE 200 ") == 3, "three have ended", s.stderr())
    # As many as are allowed; one more is refused by itself.
    for _ in range(15):
        w.send_text('{"late":100000}')
    for _ in range(3):
        more = answer(w.send_text('{"a":1}').message())
        check(more["status"] == 429 and more["error"]["code"] == "too_many_requests", more)
    check(w.raw(frame(PING, b"?")).close() == 1000 and w.pongs == [b"?"], "closed")
    end(s)


def test_long_queues_keep_their_frames_whole():
    s = Server(BUDGET)
    w = ws(s)
    n = 5000
    for _ in range(3):
        w.send_text('{"events":%d,"ms":0}' % n)
    s.wait_for(lambda stats: stats["full"] > 0)  # more than one piece of each waits to be sent
    got = {}
    for i in range(3 * n):
        m = json.loads(w.message())
        got.setdefault(m["request"], []).append(m["event"])
        if i % 100 == 0:
            w.raw(frame(PING, b"%d" % i))
    check(all(e == list(range(n, 0, -1)) for e in got.values()) and len(got) == 3, "each stream is whole")
    # A new ping takes the place of one that was not answered yet.
    check(w.pongs and w.close() == 1000, "pongs go between")
    end(s)


def test_who_leaves_ends_his_requests():
    s = Server(BUDGET)
    for leave in (lambda w: w.sock.close(), lambda w: w.sock.shutdown(socket.SHUT_WR), lambda w: w.close(),
                  lambda w: w.raw(frame(3))):
        before = s.stats()["hangups"]
        w = ws(s)
        for _ in range(3):
            w.send_text('{"events":100000,"ms":1}')
        w.message()
        leave(w)
        s.wait_for(lambda stats: stats["hangups"] == before + 3 and stats["jobs"] == 0)
    end(s)


def test_a_silent_client_is_asked_and_then_closed():
    s = Server(BUDGET, f"idle_ms={IDLE_MS}")
    begun = time.monotonic()
    one, other = ws(s), ws(s)
    for _ in range(2):
        check(one.next_frame() == (PING, b""), "a ping")
        one.raw(frame(PONG))
    check(answer(one.send_text('{"a":1}').message()) == {"a": 1}, "one that answers stays")
    while other.sock.recv(100) and time.monotonic() - begun < LIMIT:
        pass
    check(2e-3 * IDLE_MS < time.monotonic() - begun < 2.1e-3 * IDLE_MS + SLACK, time.monotonic() - begun)
    one.close()
    end(s)


def test_a_message_has_its_time():
    s = Server(BUDGET, f"body_ms={IDLE_MS}")
    w = ws(s)
    check(w.raw(frame(TEXT, b'{"a":', fin=False) + frame(PING)).close_code() == 1008, "half a message")
    w = ws(s)
    check(w.raw(frame(TEXT, b'{"a":1}')[:-1]).close_code() == 1008, "half a frame")
    w = ws(s)
    for _ in range(4):
        time.sleep(0.4e-3 * IDLE_MS)
        check(answer(w.send_text('{"a":1}').message()) == {"a": 1}, "several have more")
    check(w.close() == 1000, "closed")
    end(s)


def test_the_end_of_the_server_is_said():
    s = Server(BUDGET, f"drain_ms={int(5000 * SLOWNESS)}")
    idle, busy = ws(s), ws(s)
    busy.send_text('{"events":60,"ms":20}')
    busy.message()
    s.process.send_signal(signal.SIGTERM)
    check(idle.close_code() == 1001, "one without requests at once")
    busy.send_text('{"a":1}')
    got = []
    try:
        while True:
            got.append(answer(busy.message()))
    except Closed as why:
        check(why.args[0] == 1001, why)
    check([g["event"] for g in got if "event" in g][-1] == 1, "to their end", got[-3:])
    check([g["error"]["code"] for g in got if "error" in g] == ["stopping"], "and takes no new ones", got)
    end(s)


def test_one_that_reads_nothing_takes_no_memory():
    s = Server(BUDGET, "queue=100000", f"idle_ms={int(500 * SLOWNESS)}")
    w = ws(s)
    w.send_text('{"events":100000000,"ms":0}')
    s.wait_for(lambda stats: stats["full"] > 0)
    check(s.stats()["resident"] < 60e6 * (1 if SLOWNESS == 1 else 100), s.stats())
    s.wait_for(lambda stats: stats["jobs"] == 0)  # it is broken off after the idle time
    # Nor does one that sends what has to be answered and reads nothing.
    w = ws(s)
    w.sock.setblocking(False)
    sent = 0
    try:
        for _ in range(4000):
            sent += w.sock.send(frame(TEXT, b'{"a":"' + b"x" * 5000 + b'"}') + frame(PING, b"x" * 125))
    except BlockingIOError:
        pass
    check(sent < 4000 * 5000, "it is not read either", sent)
    w.sock.close()
    end(s)


def test_one_that_reads_late_gets_all_answers():
    s = Server(BUDGET)
    w = ws(s)
    n = 4000
    data, sent = frame(TEXT, b'{"a":"' + b"x" * 5000 + b'"}') * n, 0
    w.sock.setblocking(False)
    while sent < len(data) and select.select([], [w.sock], [], 0.3)[1]:  # until it is not read any more
        sent += w.sock.send(data[sent:sent + 65536])
    check(sent < len(data), "it is read for ever")
    w.sock.settimeout(LIMIT)
    rest = threading.Thread(target=w.raw, args=(data[sent:],))
    rest.start()
    got = [json.loads(w.message()) for _ in range(n)]
    rest.join()
    check(all("a" in g or g["status"] == 429 for g in got), got[-1])
    check(w.close() == 1000, "closed")
    end(s)


def test_messages_need_memory():
    s = Server("budget=100000", "body=16000000")
    w = ws(s)
    check(w.send_text('{"a":"' + "x" * 200000 + '"}').close_code() == 1013, "none for a message")
    w = ws(s)
    check(answer(w.send_text('{"a":1}').message()) == {"a": 1}, "for others")
    check(w.send_text('{"break":1}').close_code() == 1011, "a stream that is broken off")
    end(s)


def test_keys():
    keys = written("keys", "".join(hashlib.sha256(k.encode()).hexdigest() + f" {n}\n" for k, n in (("s3cret", "ann"), ("other", "bob"))))
    s = Server(BUDGET, f"keys={keys}", "127.0.0.1:0")
    offer = "Sec-WebSocket-Protocol: "
    for headers, status in (
            ("", 401), ("Authorization: Bearer s3cret\r\n", 101), ("x-api-key: s3cret\r\n", 101),
            ("Authorization: Bearer wrong\r\n", 401),
            (offer + "realtime, openai-insecure-api-key.s3cret\r\n", 101),
            (offer + "realtime\r\n" + offer + "openai-insecure-api-key.other\r\n", 101),
            (offer + "realtime, openai-insecure-api-key.wrong\r\n", 401),
            (offer + "openai-insecure-api-key.\r\n", 401), (offer + "openai-insecure-api-key." + "x" * 5000 + "\r\n", 401),
            ("Authorization: Bearer wrong\r\n" + offer + "openai-insecure-api-key.s3cret\r\n", 401)):
        w = WebSocket(s.connect(0), "/ws", headers)
        check(w.status == status, headers, w.status)
        check(status != 101 or w.headers.get("sec-websocket-protocol") == ("realtime" if offer in headers else None), w.headers)
        w.sock.close()
    check(s.ask("GET", "/item", headers=offer + "openai-insecure-api-key.s3cret\r\n", listener=0).status == 401, "only there")
    end(s)


def test_over_tls_too():
    s = Server(BUDGET, f"cert={PEM}", f"key={PEM}", "tls+127.0.0.1:0")
    w = WebSocket(s.connect(0, tls=True), "/ws", "Origin: https://localhost\r\n")
    check(w.status == 101, w.status)
    for n in (1, 1000, 100000):
        check(answer(w.send_text(json.dumps({"t": "z" * n})).message()) == {"t": "z" * n}, n)
    check(w.close() == 1000, "closed")
    end(s)


def test_a_connection_cut_anywhere_leaves_nothing():
    """The client's bytes, or its reading, end at a random place: nothing is answered twice, and nothing stays."""
    s = Server(BUDGET)
    chance = random.Random(11)
    bodies = [{"n": i, "t": "ö" * chance.randrange(0, 300)} for i in range(8)]
    data = b""
    for b in bodies:
        text = json.dumps(b, ensure_ascii=False).encode()
        cut = chance.randrange(len(text) + 1)
        data += frame(TEXT, text[:cut], fin=False) + frame(PING, b"p") + frame(0, text[cut:])
    for k in range(100):
        w = ws(s)
        cut = chance.randrange(len(data) + 1)
        middle = chance.randrange(cut + 1)
        w.raw(data[:middle])
        w.raw(data[middle:cut])
        if k % 2:
            w.sock.shutdown(socket.SHUT_WR)  # counts as gone: what was answered before may come
        else:
            w.sock.settimeout(LIMIT)
            whole = sum(cut >= at for at in ends(data, bodies))
            got = [answer(w.message()) for _ in range(whole)]
            check(got == bodies[:whole], cut, got)
        w.sock.close()
    s.wait_for(lambda stats: stats["jobs"] == 0)
    end(s)


def ends(data, bodies):
    """Where each message ends in the bytes."""
    found, at = [], 0
    for _ in bodies:
        for _ in range(3):
            n = data[at + 1] & 0x7F
            head = 6
            if n == 126:
                (n,) = struct.unpack(">H", data[at + 2:at + 4])
                head = 8
            at += head + n
        found.append(at)
    return found


if __name__ == "__main__":
    run(globals(), sys.argv[4] if sys.argv[4:] else "test_")
