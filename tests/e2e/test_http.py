#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""test_http.py: tests the HTTP layer of src/server, in the program http-server, with friendly and hostile clients.

    test_http.py HTTP_SERVER PEM SLOWNESS [PREFIX_OF_CASES]

PEM holds a certificate for localhost and its key, for tests only. SLOWNESS multiplies the time limits (for a build with
a sanitizer). Each function test_* is a case, whose name is a sentence that must be true. A case prints RUN and OK or
FAILED as cmocka does, with a line for each fault. The last line is `N passed, N failed`.
"""
import array
import fcntl
import hashlib
import io
import json
import os
import resource
import select
import signal
import shutil
import socket
import ssl
import stat
import subprocess
import sys
import termios
import time

from lib.cases import Skipped, check, run, started
from lib.files import path, written

SERVER, PEM = sys.argv[1:3]
TLS_PROBE = os.path.abspath(sys.argv.pop(4))
SLOWNESS = float(sys.argv[3])
LIMIT = 20 * SLOWNESS  # seconds for one exchange
SEEN = 0.050 * SLOWNESS  # seconds until a hang-up is noticed
SLACK = 8 * SLOWNESS  # seconds by which the end of a wait may be late on a busy machine
HOST = "Host: localhost\r\n"


class Server:
    """A running http-server. Without an address: a Unix socket."""

    def __init__(self, *args, **popen):
        self.sock = path(f"run{len(started)}/http.sock")
        if not any("=" not in a for a in args):
            args += (self.sock,)
        self.log = open(path(f"log{len(started)}"), "w+b")
        self.process = subprocess.Popen([SERVER, *args], stdout=subprocess.PIPE, stderr=self.log, **popen)
        started.append(self)
        words = self.process.stdout.readline().split()
        self.ports = [int(w) for w in words[1:]]
        if not words:
            raise RuntimeError("no server: " + self.stderr())

    def stderr(self):
        with open(self.log.name, "rb") as f:  # self.log has its place in the file in common with the server
            return f.read().decode()

    def connect(self, listener=None, tls=False):
        if listener is None:
            s = socket.socket(socket.AF_UNIX)
            s.settimeout(None)  # with a timeout, a full backlog is an error at once
            s.connect(self.sock)
            s.settimeout(LIMIT)
        else:
            s = socket.create_connection(("127.0.0.1", self.ports[listener]), LIMIT)
        if tls:
            s = ssl.create_default_context(cafile=PEM).wrap_socket(s, server_hostname="localhost")
        return s

    def ask(self, method, target, body=b"", headers="", listener=None, tls=False, host=HOST):
        """One exchange on a connection of its own."""
        with self.connect(listener, tls) as s:
            length = f"Content-Length: {len(body)}\r\n" if body else ""
            s.sendall(f"{method} {target} HTTP/1.1\r\n{host}{length}{headers}\r\n".encode() + body)
            return Reply(s.makefile("rb"), method)

    def stats(self, **more):
        return json.loads(self.ask("GET", "/stats", **more).body)

    def wait_for(self, holds, seconds=LIMIT, **more):
        """Polls the statistics until they satisfy a condition."""
        end = time.monotonic() + seconds
        while not holds(s := self.stats(**more)) and time.monotonic() < end:
            time.sleep(0.01)
        check(holds(s), "statistics stay at", s)
        return s

    def wait_until(self, holds, what):
        end = time.monotonic() + LIMIT
        while not (done := holds()) and time.monotonic() < end:
            time.sleep(0.01)
        check(done, what)

    def stop(self):
        """Ends it in order; what it printed. A sanitizer's complaint is a failure."""
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
        out = self.process.communicate(timeout=LIMIT)[0].decode()
        check(self.process.returncode == 0, "status", self.process.returncode, self.stderr()[-3000:])
        check("closed 0\n" in out, "printed", out)
        return out


class Reply:
    """Status, headers and body of one answer; status 0 when the connection was closed without one."""

    def __init__(self, f, method="GET"):
        self.status, self.headers, self.body, self.whole = 0, {}, b"", True
        line = f.readline()
        if not line:
            return
        self.status = int(line.split()[1])
        while (line := f.readline().strip()):
            name, value = line.decode().split(":", 1)
            self.headers[name.lower()] = value.strip()
        if self.status == 100:
            self.__init__(f, method)
        elif method == "HEAD":
            pass
        elif self.headers.get("transfer-encoding") == "chunked":
            self.whole = False
            while (size := int(f.readline() or b"-1", 16)) > 0:
                self.body += f.read(size)
                f.readline()
            if size == 0:
                f.readline()
                self.whole = True
        else:
            self.body = f.read(int(self.headers.get("content-length", 0)))

    def error(self):
        return json.loads(self.body)["error"] if self.body else {}


def refused(status, *ask, server, **more):
    r = server.ask(*ask, **more)
    check(r.status == status, ask[:2], more, "got", r.status, r.body)
    e = r.error()
    check(set(e) == {"message", "type", "param", "code"} and e["message"] and e["type"], "error object", r.body)
    return r


def ends(s):
    """What still comes before the other side closes."""
    data = b""
    try:
        while (piece := s.recv(1 << 16)):
            data += piece
    except ConnectionError:
        pass
    return data


JSON = "Content-Type: application/json\r\n"
SECRET = "sk-correct-horse"
SHA = hashlib.sha256(SECRET.encode()).hexdigest()


# ---- listeners ----


def test_a_unix_socket_is_private_and_names_its_peer():
    s = Server()
    check(stat.S_IMODE(os.stat(s.sock).st_mode) == 0o600, "mode of the socket")
    check(stat.S_IMODE(os.stat(os.path.dirname(s.sock)).st_mode) == 0o700, "mode of its directory")
    r = s.ask("GET", "/item/a%20b/part?y=&x=1+%2b", headers="User-Agent: me\r\n")
    check(r.body == f"GET|/item/a b/part|a b|1 +|uid:{os.getuid()}||me".encode(), r.body)
    check(s.ask("GET", "/item", host="Host: evil.example\r\n").status == 200, "a browser cannot reach a Unix socket")
    s.stop()
    check(not os.path.exists(s.sock), "the socket is removed")


def test_a_stale_socket_is_replaced_and_a_living_one_is_not():
    stale = socket.socket(socket.AF_UNIX)
    stale.bind(path("stale.sock"))
    stale.close()
    s = Server(path("stale.sock"))
    r = subprocess.run([SERVER, path("stale.sock")], capture_output=True, timeout=LIMIT)
    check(r.returncode == 69 and b"served by another process" in r.stderr, r)
    os.unlink(path("stale.sock"))
    written("stale.sock", "somebody else's")
    s.stop()
    check(os.path.exists(path("stale.sock")), "what is not ours is not removed")
    r = subprocess.run([SERVER, path("stale.sock")], capture_output=True, timeout=LIMIT)
    check(r.returncode == 69 and b"not a socket" in r.stderr, r)


def test_bad_addresses_are_refused():
    for address, text in (("/" + "x" * 200, "201 bytes"), ("nonsense", "neither"), ("127.0.0.1:", "neither"),
                          ("::1:80", "neither"), ("127.0.0.1:99999", "neither"), ("fd:0", "descriptor 0"),
                          ("0.0.0.0:0", "API keys"), ("[::]:0", "API keys"), ("tls+127.0.0.1:0", "certificate")):
        r = subprocess.run([SERVER, address], capture_output=True, timeout=LIMIT, stdin=subprocess.DEVNULL)
        check(r.returncode == 69 and text in r.stderr.decode() and r.stderr.count(b"\n") == 1, address, r)


def test_several_listeners_at_once_and_tls():
    s = Server(path("two.sock"), "127.0.0.1:0", "tls+127.0.0.1:0", f"cert={PEM}", f"key={PEM}")
    s.sock = path("two.sock")
    for more, who in (({}, f"uid:{os.getuid()}"), ({"listener": 1}, "local"), ({"listener": 2, "tls": True}, "local")):
        r = s.ask("GET", "/item", **more)
        check(r.status == 200 and r.body.decode().split("|")[4] == who, more, r.status, r.body)
        r = s.ask("GET", "/slow?ms=5&n=3", **more)
        check(r.whole and r.body == b"data: event 3\n\ndata: event 2\n\ndata: event 1\n\n", r.body)
        big = b"[" + b"1," * 400000 + b"1]"
        check(s.ask("POST", "/echo", big, JSON, **more).body == big, "a large body comes back", more)
    s.stop()


def test_records_without_bytes_hold_up_nobody():
    s = Server("tls+127.0.0.1:0", path("records.sock"), f"cert={PEM}", f"key={PEM}")
    s.sock = path("records.sock")

    def says(p, word):
        check(p.stdout.readline() == word + b"\n", "the probe says", word)

    def probe(*args):
        p = subprocess.Popen([TLS_PROBE, str(s.ports[0]), *args], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        says(p, b"connected")
        return p

    def number(id):
        return int(id.strip().removeprefix("req-"), 16)

    p = probe("keys")
    check(p.communicate(b"\n", LIMIT)[0].startswith(b"sent\nHTTP/1.1 200 OK "), "a request after a key update")

    # All of this is there before the server goes on: a request, warnings with a request after them, a request. A
    # connection gets 16 steps in a turn, and there are 256 turns before the server looks for others again.
    p = probe("alerts", "6000")
    ask = f"GET /public HTTP/1.1\r\n{HOST}\r\n".encode()
    others = s.connect(), s.connect()
    for c in others:
        c.sendall(ask)
        check(Reply(c.makefile("rb")).status == 200, "a connection")
    s.process.send_signal(signal.SIGSTOP)
    os.waitid(os.P_PID, s.process.pid, os.WSTOPPED)
    others[0].sendall(ask)
    p.stdin.write(b"\n")
    p.stdin.flush()
    says(p, b"sent")
    others[1].sendall(ask)
    s.process.send_signal(signal.SIGCONT)
    firsts = [number(Reply(c.makefile("rb")).headers["x-request-id"]) for c in others]
    status, last = p.communicate(timeout=LIMIT)[0].decode().split(" x-request-id: ")
    check(status == "HTTP/1.1 200 OK", "a request after many warnings", status)
    check(sorted((number(last) - n) % 2**64 for n in firsts) == [1, 2], "others come first", firsts, last)
    for c in others:
        c.close()
    s.stop()


def test_old_tls_is_refused():
    s = Server("tls+127.0.0.1:0", path("old.sock"), f"cert={PEM}", f"key={PEM}")
    s.sock = path("old.sock")
    for version, taken in (ssl.TLSVersion.TLSv1_1, False), (ssl.TLSVersion.TLSv1_2, True), (ssl.TLSVersion.TLSv1_3, True):
        context = ssl.create_default_context(cafile=PEM)
        context.set_ciphers("ALL:@SECLEVEL=0")
        context.minimum_version = context.maximum_version = version
        try:
            context.wrap_socket(s.connect(0), server_hostname="localhost").close()
            check(taken, "taken:", version)
        except (ssl.SSLError, OSError) as e:
            check(not taken, version, e)
    s.stop()


def test_a_queue_that_others_have_open_keeps_nothing_busy():
    l = socket.create_server(("127.0.0.1", 0))
    s = Server(f"fd:{l.fileno()}", "drain_ms=5000", pass_fds=[l.fileno()])
    c = s.connect(0)
    c.sendall(b"GET /slow?ms=100&n=15 HTTP/1.1\r\n" + HOST.encode() + b"\r\n")
    c.recv(1)
    s.process.send_signal(signal.SIGTERM)
    time.sleep(0.2)
    waits = s.connect(0)  # in the queue, which the server has closed

    def cpu():
        with open(f"/proc/{s.process.pid}/stat") as f:
            return sum(map(int, f.read().rsplit(")", 1)[1].split()[11:13])) / os.sysconf("SC_CLK_TCK")

    before = cpu()
    time.sleep(1)
    check(cpu() - before < 0.2, "CPU time while it drains", cpu() - before)
    c.close()
    waits.close()
    s.stop()
    l.close()


def test_a_given_socket_is_taken_over():
    l = socket.create_server(("127.0.0.1", 0))
    s = Server(f"fd:{l.fileno()}", pass_fds=[l.fileno()])
    check(s.ports == [l.getsockname()[1]], s.ports)
    check(s.ask("GET", "/item", listener=0).status == 200, "an answer")
    s.stop()
    l.close()


def test_files_are_counted_before_opening():
    limit = lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (100, 500))
    r = subprocess.run([SERVER, "connections=1000", "127.0.0.1:0"], capture_output=True, timeout=LIMIT, preexec_fn=limit)
    check(r.returncode == 69 and b"1000 connections take 1064 open files" in r.stderr, r)
    s = Server("connections=400", "peer=400", preexec_fn=limit)  # raises the soft limit
    held = [s.connect() for _ in range(200)]
    check(s.ask("GET", "/item").status == 200, "more than the soft limit it began with")
    for c in held:
        c.close()
    s.stop()


# ---- who, and from where ----


def test_api_keys():
    keys = written("keys", f"# a comment\n\n{SHA} alice tokens=5 requests=2\n{'0' * 64} bob\n")
    s = Server("127.0.0.1:0", f"keys={keys}")
    ask = {"server": s, "listener": 0}
    for headers in ("", "Authorization: Bearer wrong\r\n", "x-api-key: \r\n", f"Authorization: Basic {SECRET}\r\n",
                    f"Authorization: Bearer {SECRET}x\r\n", f"Authorization: Bearer {SHA}\r\n"):
        r = refused(401, "GET", "/item", headers=headers, **ask)
        check(r.headers.get("www-authenticate") == "Bearer", r.headers)
        refused(401, "GET", "/nothing/here", headers=headers, **ask)
    for headers in (f"Authorization: bearer {SECRET}\r\n", f"X-API-Key: {SECRET}\r\n"):
        r = s.ask("GET", "/item", headers=headers, listener=0)
        check(r.body == b"GET|/item|-|-|alice|tokens=5 requests=2|-", r.body)
    check(s.ask("GET", "/public", listener=0).body == b"GET|/public|-|-|||-", "a public route has no name for them")
    s.stop()
    check(SECRET not in s.stderr(), "no key in the log")


def test_host_and_origin():
    s = Server("127.0.0.1:0", "host=quern.example", "origin=https://app.example")
    port = s.ports[0]
    for host in ("localhost", "LOCALHOST:1", "127.0.0.1", "[::1]:80", "quern.example", f"127.0.0.1:{port}"):
        check(s.ask("GET", "/item", host=f"Host: {host}\r\n", listener=0).status == 200, host)
    for host in ("evil.example", "localhost.evil.example", "127.0.0.1.evil.example", "", "[::1", "localhost:x"):
        refused(421, "GET", "/item", host=f"Host: {host}\r\n", listener=0, server=s)
    for host in ("localhost:80@evil.example", "localhost, evil.example", "localhost evil.example", "localhost/", "a?b#c"):
        refused(400, "GET", "/item", host=f"Host: {host}\r\n", listener=0, server=s)
    for origin in ("https://evil.example", "null", "https://app.example.evil.example", "http://app.example"):
        r = refused(403, "POST", "/raw", b"x", f"Origin: {origin}\r\n", listener=0, server=s)
        check("access-control-allow-origin" not in r.headers, r.headers)
        refused(403, "OPTIONS", "/echo", headers=f"Origin: {origin}\r\nAccess-Control-Request-Method: POST\r\n",
                listener=0, server=s)
    check(s.ask("GET", "/item", headers="Origin: http://localhost\r\n", listener=0).status == 200, "its own pages")
    r = s.ask("GET", "/item", headers="Origin: https://app.example\r\n", listener=0)
    check(r.headers.get("access-control-allow-origin") == "https://app.example", r.headers)
    r = s.ask("OPTIONS", "/echo", headers="Origin: https://app.example\r\nAccess-Control-Request-Method: POST\r\n",
              listener=0)
    check(r.status == 204 and r.headers.get("access-control-allow-methods") == "POST", r.status, r.headers)
    s.stop()


# ---- requests ----


def test_wrong_requests_get_the_right_status():
    s = Server("body=1000")
    refused(404, "GET", "/nothing", server=s)
    refused(404, "GET", "/item//part", server=s)
    refused(404, "GET", "/item/a%2fb/part", server=s)
    refused(404, "GET", "/item/", server=s)
    refused(404, "GET", "/../../etc/passwd", server=s)
    refused(404, "GET", "//item", server=s)
    check(refused(405, "DELETE", "/item", server=s).headers.get("allow") == "GET, HEAD, POST", "Allow")
    refused(405, "GET", "/echo", server=s)
    refused(405, "A" * 300, "/echo", server=s)
    refused(415, "POST", "/echo", b"{}", "Content-Type: application/jsonp\r\n", server=s)
    refused(415, "POST", "/echo", b"{}", "Content-Type: multipart/form-data; boundary=x\r\n", server=s)
    for coding in "gzip", "br", "deflate, gzip":
        e = refused(415, "POST", "/echo", b"{}", f"{JSON}Content-Encoding: {coding}\r\n", server=s).error()
        check(coding in e["message"], e)
    check(s.ask("POST", "/echo", b"{}", "Content-Type: Application/JSON; charset=utf-8\r\n").status == 200, "parameters")
    r = refused(429, "GET", "/busy", server=s)
    check(r.headers.get("retry-after") == "7" and r.error()["code"] == "rate_limit_exceeded", r.headers, r.body)
    for target in ("/%00", "/a%0", "/%zz", "item", "*", "http://evil.example/item"):
        refused(400, "GET", target, server=s)
    refused(400, "POST", "/raw", b"x", "Transfer-Encoding: chunked\r\n", server=s)
    refused(400, "POST", "/raw", b"x", "Content-Length: 2\r\n", server=s)
    refused(400, "GET", "/item", headers=HOST, server=s)
    s.stop()


FORM = "Content-Type: application/x-www-form-urlencoded\r\n"


def test_a_browser_has_to_say_that_a_body_is_json():
    """Programs need not, as `curl -d` does not. Pages can send the other types without being asked."""
    s = Server("127.0.0.1:0", path("types.sock"), "origin=https://app.example")
    s.sock = path("types.sock")
    own = f"http://localhost:{s.ports[0]}"
    for type in FORM, "Content-Type: text/plain;charset=UTF-8\r\n", "", "Content-Type: \r\n":
        check(s.ask("POST", "/echo", b"{}", type, listener=0).body == b"{}", "a program", type)
        check(s.ask("POST", "/echo", b"{}", type + "User-Agent: curl/8.5.0\r\n", listener=0).status == 200, "curl", type)
        for mark in "Origin: https://app.example", f"Origin: {own}", "Sec-Fetch-Site: same-origin", "sec-fetch-mode: no-cors", \
                "Referer: https://evil.example/", "Cookie: a=b", "User-Agent: Mozilla/5.0 (X11; Linux x86_64; rv:60.0)":
            host = f"Host: localhost:{s.ports[0]}\r\n"
            e = refused(415, "POST", "/echo", b"{}", f"{type}{mark}\r\n", server=s, listener=0, host=host).error()
            check(mark.split(":")[0][:9].lower() in e["message"].lower(), mark, e)
            check(s.ask("POST", "/echo", b"{}", f"{JSON}{mark}\r\n", listener=0, host=host).status == 200, "JSON", mark)
            check(s.ask("POST", "/echo", b"{}", f"{type}{mark}\r\n", host=host).status == 200, "on a Unix socket", type, mark)
        refused(403, "POST", "/echo", b"{}", f"{type}Origin: https://evil.example\r\n", server=s, listener=0)
        refused(403, "POST", "/echo", b"{}", f"{type}Origin: null\r\n", server=s, listener=0)
    s.stop()


def test_what_is_refused_names_the_option_that_allows_it():
    s = Server("127.0.0.1:0", "origin=https://app.example")
    e = refused(421, "GET", "/item", host="Host: host.docker.internal:8080\r\n", server=s, listener=0).error()
    check("'host.docker.internal:8080'" in e["message"] and "--host" in e["message"], e)
    e = refused(403, "GET", "/item", headers="Origin: https://other.example\r\n", server=s, listener=0).error()
    check("'https://other.example'" in e["message"] and "--origin" in e["message"], e)
    r = s.ask("OPTIONS", "/echo", headers="Origin: https://app.example\r\nAccess-Control-Request-Method: POST\r\n"
              "Access-Control-Request-Headers: authorization,x-stainless-os,anthropic-version\r\n", listener=0)
    allowed = r.headers["access-control-allow-headers"].split(", ")
    check("*" in allowed and "authorization" in allowed, "headers of clients in a browser", r.headers)
    s.stop()


def test_plain_http_on_a_tls_port_is_told_so():
    s = Server("tls+127.0.0.1:0", path("plain.sock"), f"cert={PEM}", f"key={PEM}")
    s.sock = path("plain.sock")
    for body in b"", b"x" * 5000:
        r = refused(400, "POST" if body else "GET", "/item", body, server=s, listener=0)
        check("https://" in r.error()["message"] and r.headers["connection"] == "close", r.headers, r.body)
    with s.connect(0) as c:  # byte by byte
        for byte in b"GET /item HTTP/1.1\r\n\r\n":
            c.sendall(bytes([byte]))
        check(Reply(c.makefile("rb")).status == 400, "a slow one")
    for odd in b"\x00\x01\x02", b"get / HTTP/1.1\r\n\r\n", b"\x80" * 300:
        with s.connect(0) as c:
            c.sendall(odd)
            try:
                c.shutdown(socket.SHUT_WR)
            except OSError:  # it has hung up
                pass
            check(not ends(c).startswith(b"HTTP"), "what is neither", odd)
    check(s.ask("GET", "/item", listener=0, tls=True).status == 200, "TLS goes on")
    s.stop()


def test_a_large_body_is_refused_and_the_answer_arrives():
    s = Server("127.0.0.1:0", "body=1000")
    for size in (1001, 5 << 20):
        refused(413, "POST", "/echo", b"x" * size, JSON, listener=0, server=s)
        with s.connect(0) as c:
            c.sendall(f"POST /raw HTTP/1.1\r\n{HOST}Transfer-Encoding: chunked\r\n\r\n".encode())
            for at in range(0, size, 1000):
                c.sendall(b"3e8\r\n" + b"y" * 1000 + b"\r\n")
            c.sendall(b"0\r\n\r\n")
            check(Reply(c.makefile("rb")).status == 413 or size < 2000, "chunks")
    with s.connect(0) as c:
        c.sendall(f"POST /echo HTTP/1.1\r\n{HOST}{JSON}Expect: 100-continue\r\nContent-Length: 1001\r\n\r\n".encode())
        check(Reply(c.makefile("rb")).status == 413, "without the body being sent")
    for length in ("99999999999999999999", "-1", "1x", "18446744073709551616"):
        with s.connect(0) as c:
            c.sendall(f"POST /raw HTTP/1.1\r\n{HOST}Content-Length: {length}\r\n\r\n".encode())
            r = Reply(c.makefile("rb"))
            check(400 <= r.status < 500, length, r.status)
    check(s.ask("POST", "/raw", b"x" * 1000, listener=0).body == b"x" * 1000, "as much as is allowed")
    s.stop()


def test_chunks_and_expectations():
    s = Server()
    with s.connect() as c:
        f = c.makefile("rb")
        c.sendall(f"POST /raw HTTP/1.1\r\n{HOST}Transfer-Encoding: chunked\r\nExpect: 100-continue\r\n\r\n".encode())
        check(f.readline() == b"HTTP/1.1 100 Continue\r\n" and f.readline() == b"\r\n", "continue")
        for piece in (b"5\r\nhel", b"lo\r", b"\n1;ext=1\r\n!\r\n0\r", b"\n\r\n"):
            c.sendall(piece)
            time.sleep(0.01)
        check(Reply(f).body == b"hello!", "the body")
        c.sendall(f"POST /raw HTTP/1.1\r\n{HOST}Transfer-Encoding: chunked\r\n\r\nzz\r\n".encode())
        check(b" 200 " not in ends(c), "a bad chunk")
    s.stop()


LENGTH = b"Content-Length: 5\r\n"
CHUNKED = b"Transfer-Encoding: chunked\r\n"
CHUNKS = b"5\r\nhello\r\n0\r\n\r\n"


def post(headers, body=b"hello", version=b"1.1", host=HOST.encode()):
    return b"POST /raw HTTP/" + version + b"\r\n" + host + headers + b"\r\n" + body


def get(headers=b"", target=b"/item", host=HOST.encode()):
    return b"GET " + target + b" HTTP/1.1\r\n" + host + headers + b"\r\n"


def chunked(body):
    return post(CHUNKED, body)


# What two programs could read differently, and how it is answered. After each, in the same bytes, comes a whole request,
# which must not be taken for one.
AMBIGUOUS = {
    # where the body ends
    "a folded length": (400, post(b"Content-Length:\r\n 5\r\n")),
    "a length after a tab's fold": (400, post(b"Content-Length:\r\n\t5\r\n")),
    "a length and another one folded to it": (400, post(b"Content-Length: 5\r\n Content-Length: 0\r\n")),
    "a folded coding": (400, post(b"Transfer-Encoding:\r\n chunked\r\n", CHUNKS)),
    "a folded header of no meaning": (400, post(b"X: a\r\n b\r\n" + LENGTH)),
    "a fold in the first header": (400, b"POST /raw HTTP/1.1\r\n " + HOST.encode() + LENGTH + b"\r\nhello"),
    "space before the length's colon": (400, post(b"Content-Length : 5\r\n")),
    "tab before the length's colon": (400, post(b"Content-Length\t: 5\r\n")),
    "space before the coding's colon": (400, post(LENGTH + b"Transfer-Encoding : chunked\r\n", CHUNKS)),
    "two equal lengths": (400, post(LENGTH * 2)),
    "two lengths": (400, post(LENGTH + b"Content-Length: 0\r\n")),
    "two lengths, one in lower case": (400, post(LENGTH + b"content-length: 0\r\n")),
    "a list of lengths": (400, post(b"Content-Length: 5, 5\r\n")),
    "a length with a plus": (400, post(b"Content-Length: +5\r\n")),
    "a length with a minus": (400, post(b"Content-Length: -5\r\n")),
    "a hexadecimal length": (400, post(b"Content-Length: 0x5\r\n")),
    "a length with a space in it": (400, post(b"Content-Length: 5 5\r\n")),
    "a length with an underscore": (400, post(b"Content-Length: 0_5\r\n")),
    "an empty length": (400, post(b"Content-Length:\r\n")),
    "a length of 2^64 + 5": (400, post(b"Content-Length: 18446744073709551621\r\n")),
    "a length and chunks": (400, post(LENGTH + CHUNKED, CHUNKS)),
    "chunks and a length": (400, post(CHUNKED + LENGTH, CHUNKS)),
    "chunked twice": (400, post(CHUNKED * 2, CHUNKS)),
    "chunked, chunked": (400, post(b"Transfer-Encoding: chunked, chunked\r\n", CHUNKS)),
    "xchunked": (400, post(b"Transfer-Encoding: xchunked\r\n", CHUNKS)),
    "quoted chunked": (400, post(b'Transfer-Encoding: "chunked"\r\n', CHUNKS)),
    "identity": (400, post(b"Transfer-Encoding: identity\r\n" + LENGTH)),
    "chunked, identity": (400, post(b"Transfer-Encoding: chunked, identity\r\n", CHUNKS)),
    "gzip, chunked": (400, post(b"Transfer-Encoding: gzip, chunked\r\n", CHUNKS)),
    "chunked after a vertical tab": (400, post(b"Transfer-Encoding:\x0bchunked\r\n", CHUNKS)),
    "chunked and a NUL": (400, post(b"Transfer-Encoding: chunked\0\r\n", CHUNKS)),
    "an empty coding": (400, post(b"Transfer-Encoding:\r\n" + LENGTH)),
    "a coding in HTTP/1.0": (400, post(CHUNKED, CHUNKS, b"1.0")),
    # lines
    "bare LF everywhere": (400, get().replace(b"\r\n", b"\n")),
    "bare LF after the first line": (400, get().replace(b"\r\n", b"\n", 1)),
    "bare LF after a header": (400, post(b"X: a\n" + LENGTH)),
    "bare LF as the empty line": (400, get()[:-2] + b"\n"),
    "bare CR in a value": (400, post(b"X: a\rContent-Length: 0\r\n" + LENGTH)),
    "CR CR LF": (400, post(b"X: a\r\r\n" + LENGTH)),
    "two empty lines first": (400, b"\r\n\r\n" + get()),
    "an empty LF line first": (400, b"\n" + get()),
    # names and values
    "NUL in a value": (400, get(b"X: a\0b\r\n")),
    "NUL in a name": (400, get(b"X\0: a\r\n")),
    "NUL in the target": (400, get(target=b"/item\0")),
    "BEL in a value": (400, get(b"X: \a\r\n")),
    "DEL in a value": (400, get(b"X: \x7f\r\n")),
    "a name with a space in it": (400, get(b"X y: a\r\n")),
    "a name of length and more": (400, post(b"Content-Length 44: 5\r\n")),
    "a name in another script": (400, get("Größe: 5\r\n".encode())),
    "no name": (400, get(b": a\r\n")),
    "no colon": (400, get(b"nonsense\r\n")),
    # the first line
    "two spaces before the target": (400, get().replace(b" ", b"  ", 1)),
    "a tab before the target": (400, get().replace(b" ", b"\t", 1)),
    "a space after the version": (400, get().replace(b"\r\n", b" \r\n", 1)),
    "a space in the target": (400, get(target=b"/item /item")),
    "a version in lower case": (400, get().replace(b"HTTP", b"http", 1)),
    "a version of two digits": (400, get().replace(b"1.1", b"1.10", 1)),
    "HTTP/0.9": (400, b"GET /item\r\n\r\n"),
    "HTTP/2.0": (505, get().replace(b"1.1", b"2.0", 1)),
    "a method with a brace": (400, b"{}" + get()),
    "a byte beyond ASCII in the target": (400, get(target="/größe".encode())),
    "a fragment": (400, get(target=b"/item#a")),
    # for whom
    "no host": (400, get(host=b"")),
    "two hosts": (400, get(b"Host: evil.example\r\n")),
    "two equal hosts": (400, get(HOST.encode())),
    "a folded host": (400, get(host=b"Host:\r\n localhost\r\n")),
    "an absolute target with another host": (400, get(target=b"http://evil.example/item")),
    "a target with a name and another host": (400, get(target=b"http://localhost@evil.example/item")),
    "an authority": (400, b"CONNECT localhost:1 HTTP/1.1\r\n" + HOST.encode() + b"\r\n"),
    # headers that mean one thing, twice
    "two origins": (400, get(b"Origin: http://localhost\r\nOrigin: https://evil.example\r\n")),
    "two keys": (400, get(b"x-api-key: a\r\nX-API-Key: b\r\n")),
    "two authorizations": (400, get(b"Authorization: Bearer a\r\nAuthorization: Bearer b\r\n")),
    "two types": (400, post(LENGTH + b"Content-Type: text/plain\r\n" + JSON.encode())),
    "two expectations": (400, post(LENGTH + b"Expect: 100-continue\r\n" * 2)),
    # chunks
    "a chunk's size ends with LF": (400, chunked(b"5\nhello\r\n0\r\n\r\n")),
    "a chunk ends with LF": (400, chunked(b"5\r\nhello\n0\r\n\r\n")),
    "the last chunk ends with LF": (400, chunked(b"5\r\nhello\r\n0\n\r\n")),
    "the body ends with LF": (400, chunked(b"5\r\nhello\r\n0\r\n\n")),
    "an extension with LF in it": (400, chunked(b"5;\nx\r\nhello\r\n0\r\n\r\n")),
    "an extension ends with LF": (400, chunked(b"5;x\nhello\r\n0\r\n\r\n")),
    "a chunk's size with 0x": (400, chunked(b"0x5\r\nhello\r\n0\r\n\r\n")),
    "a chunk's size with a plus": (400, chunked(b"+5\r\nhello\r\n0\r\n\r\n")),
    "a chunk's size of -1": (400, chunked(b"-1\r\nhello\r\n0\r\n\r\n")),
    "a chunk's size and a space": (400, chunked(b"5 \r\nhello\r\n0\r\n\r\n")),
    "a space and a chunk's size": (400, chunked(b" 5\r\nhello\r\n0\r\n\r\n")),
    "no chunk's size": (400, chunked(b"\r\nhello\r\n0\r\n\r\n")),
    "a chunk's size of 2^64 + 5": (400, chunked(b"10000000000000005\r\nhello\r\n0\r\n\r\n")),
    "a chunk's size of 2^64 - 1": (400, chunked(b"ffffffffffffffff\r\nhello\r\n0\r\n\r\n")),
    "a chunk longer than its size": (400, chunked(b"4\r\nhello\r\n0\r\n\r\n")),
    "a chunk shorter than its size": (400, chunked(b"7\r\nhello\r\n0\r\n\r\n")),
    "a long extension": (400, chunked(b"5;" + b"x" * 300 + b"\r\nhello\r\n0\r\n\r\n")),
    "long extensions together": (400, chunked((b"1;" + b"x" * 200 + b"\r\nh\r\n") * 100 + b"0\r\n\r\n")),
    "a folded trailer": (400, chunked(CHUNKS[:-2] + b"X: a\r\n b\r\n\r\n")),
    "a trailer without a colon": (400, chunked(CHUNKS[:-2] + b"X\r\n\r\n")),
    "NUL in a trailer": (400, chunked(CHUNKS[:-2] + b"X: \0\r\n\r\n")),
    "long trailers": (400, chunked(CHUNKS[:-2] + b"X: a\r\n" * 4000 + b"\r\n")),
    # too much
    "101 headers": (431, get(b"".join(b"X%d: a\r\n" % i for i in range(100)))),
    "a long header": (431, get(b"X: " + b"a" * 20000 + b"\r\n")),
    "a long target": (414, get(target=b"/" + b"a" * 20000)),
    "what is no HTTP": (400, b"\x16\x03\x01\x02\x00\x01\x00\xfc\x03\x03"),
    "nothing but NUL": (400, bytes(1000)),
}
SMUGGLED = get(target=b"/smuggled")


def check_refusal(what, status, out):
    head, _, body = out.partition(b"\r\n\r\n")
    check(head.startswith(b"HTTP/1.1 %d " % status) and out.count(b"HTTP/1.1 ") == 1, what, "is answered", out[:300])
    check(b"Content-Type: application/json" in head and b"Connection: close" in head, what, "is answered with", head)
    try:
        e = json.loads(body)["error"]
        check(set(e) == {"message", "type", "param", "code"} and e["message"], what, "has the error", body)
    except (ValueError, KeyError):
        check(False, what, "has the error", body[:300])


def send_ambiguous(c, data):
    try:
        c.sendall(data + SMUGGLED)
    except ConnectionError:
        pass
    return ends(c)


def test_what_can_be_read_in_two_ways_is_refused_and_nothing_is_read_after_it():
    s = Server(path("two-ways.sock"), "tls+127.0.0.1:0", f"cert={PEM}", f"key={PEM}")
    s.sock = path("two-ways.sock")
    for what, (status, data) in AMBIGUOUS.items():
        with s.connect() as c:
            check_refusal(what, status, send_ambiguous(c, data))
        if status != 505:
            with s.connect() as c:  # a byte at a time
                try:
                    for i in range(min(len(data), 600)):
                        c.sendall(data[i : i + 1])
                    out = send_ambiguous(c, data[600:])
                except ConnectionError:
                    out = ends(c)
                check_refusal(what + " in single bytes", status, out)
    for what in ("a folded length", "bare LF everywhere", "NUL in a value"):
        with s.connect(1, True) as c:
            check_refusal(what + " over TLS", 400, send_ambiguous(c, AMBIGUOUS[what][1]))
    s.stop()
    check("/smuggled" not in s.stderr(), "what comes after is not read", s.stderr()[-500:])


def test_what_looks_odd_but_can_be_read_in_one_way_is_taken():
    s = Server()
    good = {
        "an empty line first": b"\r\n" + get(),
        "white space around a value": get(b"X: \t a \t\r\nY:\r\n"),
        "a value beyond ASCII": get("X: größe\r\n".encode()),
        "tabs in a value": get(b"X: a\tb\r\n"),
        "100 headers": get(b"".join(b"X%d: a\r\n" % i for i in range(99))),
        "a header of no meaning twice": get(b"Accept: a\r\nAccept: b\r\nX-Forwarded-For: 1\r\n" * 2),
        "an absolute target": get(target=b"http://localhost/item"),
        "zeros before a length": post(b"Content-Length: 0005\r\n"),
        "chunked in capitals": post(b"Transfer-Encoding: CHUNKED\r\n", CHUNKS),
        "zeros before a chunk's size": chunked(b"00005\r\nhello\r\n000\r\n\r\n"),
        "an extension": chunked(b'5;a="b c";d\r\nhello\r\n0;e\r\n\r\n'),
        "trailers": chunked(CHUNKS[:-2] + b"X: a\r\nY:\r\n\r\n"),
        "a later version": get().replace(b"1.1", b"1.2", 1),
        "an empty host": get(host=b"Host:\r\n"),
    }
    for what, data in good.items():
        for step in (len(data), 1):
            with s.connect() as c:
                f = c.makefile("rb")
                for i in range(0, len(data), step):
                    c.sendall(data[i : i + step])
                r = Reply(f)
                check(r.status == 200 and (data.find(b"POST") or r.body == b"hello"), what, r.status, r.body)
                c.sendall(get())
                check(Reply(f).status == 200, what, "the next request")
    s.stop()


def test_a_proxy_and_the_server_count_the_same_requests():
    haproxy = shutil.which("haproxy") or shutil.which("haproxy", path="/usr/sbin")
    if not haproxy:
        raise Skipped("haproxy is not installed")
    s = Server()
    front = path("front.sock")
    config = written("haproxy.cfg", f"""global
    log stdout format raw local0
defaults
    mode http
    log global
    timeout connect 5s
    timeout client 5s
    timeout server 5s
    # lets more through than it would of itself
    option accept-invalid-http-request
frontend f
    bind unix@{front}
    log-format "%s %HM %HU"
    default_backend b
backend b
    http-reuse always
    server s unix@{s.sock}
""")
    with open(path("haproxy.log"), "w+") as log:
        proxy = subprocess.Popen([haproxy, "-db", "-f", config], stdout=log, stderr=subprocess.DEVNULL)
        try:
            while not os.path.exists(front):
                time.sleep(.01)
            for status, data in AMBIGUOUS.values():
                with socket.socket(socket.AF_UNIX) as c:
                    c.settimeout(LIMIT)
                    c.connect(front)
                    try:
                        c.sendall(data + get(b"Connection: close\r\n", b"/smuggled"))
                    except ConnectionError:
                        pass
                    ends(c)
        finally:
            proxy.send_signal(signal.SIGUSR1)  # it ends when all is done and told
            proxy.wait()
        s.stop()
        log.seek(0)
        passed = sorted(line.split()[1:] for line in log if line.startswith("s "))
    seen = sorted([line.split()[0][3:], line.split()[-1]] for line in s.stderr().splitlines() if " trace " in line)
    check(len(passed) > 50, "passed on", len(passed))
    unknown = [x for x in seen if x not in passed or seen.count(x) > passed.count(x)]
    check(not [x for x in unknown if x[0] != "-"], "what the proxy has not passed on:", unknown)


def test_a_hundred_pipelined_requests_are_answered_in_order():
    s = Server()
    with s.connect() as c:
        kinds = ["/item?x=%d", "/late?ms=1&x=%d", "/slow?ms=1&n=1&x=%d", "/nothing/%d"]
        c.sendall("".join(f"GET {kinds[i % 4] % i} HTTP/1.1\r\n{HOST}\r\n" for i in range(100)).encode())
        f = c.makefile("rb")
        for i in range(100):
            r = Reply(f)
            check(r.status == (404 if i % 4 == 3 else 200) and r.whole, i, r.status)
            if i % 4 == 0:
                check(r.body.split(b"|")[3] == b"%d" % i, i, r.body)
    s.stop()


def test_head_has_no_body():
    s = Server()
    with s.connect() as c:
        f = c.makefile("rb")
        for target in ("/item", "/late?ms=5", "/item"):
            c.sendall(f"HEAD {target} HTTP/1.1\r\n{HOST}\r\n".encode())
            r = Reply(f, "HEAD")
            check(r.status == 200 and int(r.headers["content-length"]) > 0, target, r.status, r.headers)
    check(s.ask("HEAD", "/slow?ms=1000&n=100").status == 200, "a stream")
    s.wait_for(lambda t: t["jobs"] == 0)
    s.stop()


def test_old_and_odd_versions():
    s = Server()
    with s.connect() as c:
        c.sendall(f"GET /slow?ms=1&n=2 HTTP/1.0\r\n{HOST}\r\n".encode())
        check(ends(c).endswith(b"\r\n\r\ndata: event 2\n\ndata: event 1\n\n"), "1.0: no chunks, closed")
    for line in ("GET /item HTTP/3.0", "GET /item HTTP/1.9 x", "GET", "\0\0\0", "\x16\x03\x01\x02\x00\x01\x00", "GET /item"):
        with s.connect() as c:
            c.sendall(f"{line}\r\n{HOST}\r\n\r\n".encode("latin-1"))
            c.shutdown(socket.SHUT_WR)
            ends(c)
    check(s.ask("GET", "/item").status == 200, "still there")
    s.stop()


def test_the_log_has_a_line_for_each_request():
    s = Server()
    trace = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
    r = s.ask("POST", "/raw?secret=1", b"private", f"traceparent: {trace}\r\n")
    s.ask("GET", "/x%0a%1b[31m", headers="traceparent: 00-nonsense\r\n")
    s.stop()
    lines = s.stderr().splitlines()
    check(len(lines) == 2, lines)
    check(lines[0].startswith("<6>POST 200 complete 7 bytes 0."), lines[0])
    check(lines[0].endswith(f" s uid:{os.getuid()} {r.headers['x-request-id']} trace {trace} /raw"), lines[0])
    check(lines[1].startswith("<6>GET 404 refused "), lines[1])
    check(lines[1].endswith(" trace - /x\\x0A\\x1B[31m"), lines[1])


# ---- time ----


def timed(c, t0):
    """All that comes until the connection's end, and the seconds since t0, which is before the server's time begins."""
    return ends(c), time.monotonic() - t0


def test_half_a_header_and_half_a_body_are_not_waited_for():
    s = Server("tls+127.0.0.1:0", path("late.sock"), f"cert={PEM}", f"key={PEM}", "header_ms=300", "body_ms=400", "idle_ms=1500",
               "heartbeat_ms=100000")
    s.sock = path("late.sock")
    for data, least in ((b"GET /item HT", .3), (b"GET /item HTTP/1.1\r\nHost: local", .3),
                        (f"POST /raw HTTP/1.1\r\n{HOST}Content-Length: 9\r\n\r\nhalf".encode(), .4)):
        t0 = time.monotonic()
        with s.connect() as c:
            c.sendall(data)
            out, t = timed(c, t0)
            check(b" 408 " in out and b'{"error":{' in out, data, out)
            check(least <= t < least + SLACK, data, "took", t)
    with s.connect(0, True) as c:
        c.sendall(b"GET /item HT")
        out = ends(c)
        check(b" 408 " in out and b'{"error":{' in out, "over TLS", out)
    with s.connect() as c:  # a byte now and then does not help
        t0 = time.monotonic()
        try:
            for i in range(100):
                c.sendall(b"G" if i == 0 else b"E")
                time.sleep(.05)
        except ConnectionError:
            pass
        check(time.monotonic() - t0 < .3 + SLACK, "dripping took", time.monotonic() - t0)
    with s.connect() as c:  # the second request has its own time
        c.sendall(f"GET /item HTTP/1.1\r\n{HOST}\r\n".encode())
        f = c.makefile("rb")
        check(Reply(f).status == 200, "the first")
        time.sleep(.35)
        t0 = time.monotonic()
        c.sendall(b"GET /item HTTP/1.1\r\n")
        out, t = timed(c, t0)
        check(b" 408 " in out and t >= .3, "the second", out, t)
    with s.connect() as c:
        t0 = time.monotonic()
        c.sendall(f"GET /item HTTP/1.1\r\n{HOST}\r\n".encode())
        check(Reply(c.makefile("rb")).status == 200, "idle")
        out, t = timed(c, t0)
        check(out == b"" and 1.5 <= t < 1.5 + SLACK, "an idle connection is closed", out, t)
    check(s.ask("GET", "/slow?ms=200&n=9").whole, "a stream may take longer than any of these")
    s.stop()


def test_headers_are_bounded():
    s = Server("header=4096")
    for data in (b"GET /" + b"x" * 20000 + b" HTTP/1.1\r\n", b"GET / HTTP/1.1\r\nHost: localhost\r\nA: " + b"x" * 20000 + b"\r\n",
                 b"GET / HTTP/1.1\r\n" + b"".join(b"A%d: x\r\n" % i for i in range(5000))):
        with s.connect() as c:
            try:
                c.sendall(data + b"\r\n")
            except ConnectionError:
                pass
            out = ends(c)
            check(out == b"" or out.split()[1][:1] == b"4", out[:100])
    check(s.ask("GET", "/item", headers="A: " + "x" * 3000 + "\r\n").status == 200, "a long one")
    s.stop()


def test_heartbeats_fill_the_silence():
    s = Server("heartbeat_ms=100")
    with s.connect() as c:
        data, t0 = b"", time.monotonic()
        c.sendall(f"GET /events HTTP/1.1\r\n{HOST}\r\n".encode())
        while data.count(b": still here\n\n") < 3:
            data += c.recv(1000)
        check(time.monotonic() - t0 > .25, "three took", time.monotonic() - t0)
    s.wait_for(lambda t: t["jobs"] == 0)
    s.stop()


# ---- before the start ----


def ends_early(s, method, headers):
    with s.connect() as c:
        c.settimeout(5 * SLOWNESS)
        c.sendall(f"{method} /public HTTP/1.1\r\n{HOST}Connection: close\r\n{headers}\r\n".encode())
        return ends(c)


def test_before_the_start_requests_wait_and_health_is_answered():
    for start in True, False:
        s = Server("listen_first=1", "header_ms=300", "body_ms=300", stdin=subprocess.PIPE)
        waiting = []
        for body in b"", b"3\r\nabc\r\n0\r\n\r\n":
            waiting.append(s.connect())
            head = f"POST /echo HTTP/1.1\r\n{HOST}Connection: close\r\n"
            waiting[-1].sendall(f"{head}{'Transfer-Encoding: chunked' if body else 'Content-Length: 0'}\r\n\r\n".encode() + body)
        gone = s.connect()
        gone.sendall(f"POST /echo HTTP/1.1\r\n{HOST}\r\n".encode())
        gone.close()
        e = refused(503, "GET", "/public", server=s)
        check(e.error()["code"] == "starting" and e.headers["retry-after"] == "1", e.body)
        refused(404, "GET", "/nowhere", server=s)
        check(ends_early(s, "HEAD", "")[:12] == b"HTTP/1.1 503", "the head alone is answered, too")
        out = ends_early(s, "GET", "Content-Length: 5\r\n")
        check(out[:12] == b"HTTP/1.1 503", "a body that does not come has its deadline", out[:100])
        time.sleep(0.4)  # longer than a request may take to come: one that waits has no deadline
        check(not select.select(waiting, [], [], 0)[0], "they do not wait")
        s.process.stdin.write(b"s" if start else b"\n")
        s.process.stdin.flush()
        if start:
            check([ends(c)[-3:] for c in waiting] == [b"\r\n\r\n"[1:], b"abc"], "they are answered")
            check(s.ask("GET", "/public").status == 200, "it has started")
        s.stop()
        for c in waiting:
            c.close()


# ---- leaving ----


def test_a_hang_up_is_seen_at_once():
    s = Server(path("hup.sock"), "127.0.0.1:0", "tls+127.0.0.1:0", f"cert={PEM}", f"key={PEM}")
    s.sock = path("hup.sock")
    n = 0
    for _ in range(4):  # a busy machine may hold up some of them, but not each time
        times = []
        for listener in (None, 1, 2):
            for target in ("/late?ms=60000", "/events", "/slow?ms=60000", "/slow?ms=5&n=100000", "/flood?bytes=1000000000"):
                c = s.connect(listener, listener == 2)
                c.sendall(f"GET {target} HTTP/1.1\r\n{HOST}\r\n".encode())
                s.wait_for(lambda t: t["jobs"] == 1)
                time.sleep(.05)
                t0 = time.monotonic_ns()
                c.close()
                n += 1
                if target.startswith("/late"):  # owed until its time has come, even to nobody
                    t = s.wait_for(lambda t: t["hangups"] == n)
                else:
                    t = s.wait_for(lambda t: t["hangups"] == n and t["jobs"] == 0)
                times.append((t["hangup_ns"] - t0) / 1e9)
        times.sort()
        if times[-2] < SEEN and times[-1] < 20 * SEEN:
            break
    else:
        check(False, "seen after", times)
    s.stop()


def test_a_client_that_leaves_while_sending_costs_nothing():
    s = Server("budget=300000")
    for _ in range(20):
        c = s.connect()
        c.sendall(f"POST /raw HTTP/1.1\r\n{HOST}Content-Length: 50000\r\n\r\n".encode() + b"x" * 30000)
        c.close()
    r = s.ask("POST", "/raw", b"x" * 90000)
    for _ in range(100):
        if r.status == 200:
            break
        time.sleep(.02 * SLOWNESS)  # they may not have been noticed yet
        r = s.ask("POST", "/raw", b"x" * 90000)
    check(r.status == 200, r.status)
    check(refused(503, "POST", "/raw", b"x" * 310000, server=s).headers.get("retry-after") == "1", "the common budget")
    s.stop()


def test_what_waits_to_be_sent_is_counted():
    s = Server("budget=400000", "queue=1000000")
    check(s.ask("POST", "/raw", b"x" * 100000).status == 200, "room for the body and its echo")
    r = refused(503, "POST", "/raw", b"x" * 250000, server=s)
    check(r.headers.get("retry-after") == "1" and b"for an answer" in r.body, "room for the body only", r.body)
    readers = [s.connect() for _ in range(3)]
    for c in readers:
        c.sendall(f"GET /flood?bytes=1000000000 HTTP/1.1\r\n{HOST}\r\n".encode())
    s.wait_for(lambda t: t["hangups"] >= 1)  # what nobody reads does not fit for all of them
    for c in readers:
        c.close()
    s.wait_for(lambda t: t["jobs"] == 0)
    check(s.ask("POST", "/raw", b"x" * 100000).status == 200, "room again")
    s.stop()


def test_a_slow_reader_holds_nobody_up():
    s = Server("127.0.0.1:0", "queue=65536")
    before = s.stats(listener=0)
    readers = []
    for _ in range(20):
        c = socket.socket()
        c.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        c.connect(("127.0.0.1", s.ports[0]))
        c.sendall(f"GET /flood?bytes=1000000000 HTTP/1.1\r\n{HOST}\r\n".encode())
        readers.append(c)
    t0 = time.monotonic()
    for _ in range(5):
        for c in readers:
            c.recv(1)
        t1 = time.monotonic()
        check(s.ask("GET", "/item", listener=0).status == 200, "somebody else")
        check(time.monotonic() - t1 < SLACK, "took", time.monotonic() - t1)
        time.sleep(.2)
    t = s.wait_for(lambda t: t["jobs"] == 20 and t["full"] >= 20, listener=0)
    if SLOWNESS == 1:
        check(t["resident"] - before["resident"] < 20 * (200 << 10), "memory", before, t)
        check(t["cpu_ns"] - before["cpu_ns"] < (time.monotonic() - t0) * .5e9, "waiting is not polling", before, t)
    for c in readers:
        c.close()
    s.wait_for(lambda t: t["jobs"] == 0, listener=0)
    s.stop()


def test_a_reader_that_has_stopped_is_given_up():
    s = Server("idle_ms=900")
    c, t0 = s.connect(), time.monotonic()
    c.sendall(f"GET /flood?bytes=1000000000 HTTP/1.1\r\n{HOST}\r\n".encode())
    s.wait_for(lambda t: t["hangups"] == 1 and t["jobs"] == 0)
    check(.9 < time.monotonic() - t0 < .9 + SLACK, "after", time.monotonic() - t0)
    c.close()
    s.stop()


def waiting(c):
    """The bytes that have come and were not read."""
    n = array.array("i", [0])
    fcntl.ioctl(c, termios.FIONREAD, n)
    return n[0]


def test_a_refusal_that_nobody_takes_is_given_up():
    """Answers that nobody reads fill the socket. Then "100 Continue" finds no room in it, nor does the body's refusal."""
    s = Server("body_ms=300", "idle_ms=1500")
    ask = f"GET /item HTTP/1.1\r\n{HOST}\r\n".encode()
    n, length = 0, None
    with Server("idle_ms=100000").connect() as c:
        while True:
            before = waiting(c)
            c.sendall(ask)
            started[-1].stats()  # a later request: the server has seen this one
            if waiting(c) == before:
                break
            n, length = n + 1, length or waiting(c)
    started[-1].stop()
    with s.connect() as c:
        for _ in range(n):
            c.sendall(ask)
        s.wait_until(lambda: waiting(c) == n * length, "the answers")
        c.sendall(f"POST /raw HTTP/1.1\r\n{HOST}Content-Length: 5\r\nExpect: 100-continue\r\n\r\n".encode())
        s.stats()
        check(waiting(c) == n * length, "there is room", waiting(c), n, length)
        poll = select.poll()
        poll.register(c, select.POLLRDHUP)
        s.wait_until(lambda: poll.poll(0), "the end of the connection")
    s.stop()


def test_a_broken_stream_does_not_look_whole():
    s = Server()
    r = s.ask("GET", "/broken")
    check(r.status == 200 and not r.whole and b"half".startswith(r.body), r.status, r.body)
    s.stop()


def test_requests_out_of_order_in_a_storm():
    s = Server()
    for i in range(300):
        c = s.connect()
        c.sendall(f"GET {('/late?ms=%d', '/slow?ms=%d', '/flood?bytes=%d00000')[i % 3] % (i % 7)} HTTP/1.1\r\n{HOST}\r\n".encode())
        if i % 2:
            time.sleep(.001 * (i % 5))
        c.close()
    s.wait_for(lambda t: t["jobs"] == 0)
    s.stop()


# ---- many, and the end ----


def test_one_connection_too_many_is_told_so():
    s = Server("connections=5", "peer=5")
    held = [s.connect() for _ in range(5)]
    time.sleep(.1)
    with s.connect() as c:
        check(b" 503 " in ends(c), "the sixth")
    held.pop().close()
    r = None
    for _ in range(200):
        try:
            r = s.ask("GET", "/item")
        except ConnectionError:
            continue
        if r.status == 200:
            break
        time.sleep(.01)
    check(r and r.status == 200, "a place is free again")
    s.stop()


def connect_from(s, listener, address):
    return socket.create_connection(("127.0.0.1", s.ports[listener]), LIMIT, (address, 0))


def ask_from(s, address, target, listener=0):
    with connect_from(s, listener, address) as c:
        try:
            c.sendall(get(target=target))
        except ConnectionError:
            pass
        try:
            return Reply(c.makefile("rb"))
        except ConnectionError:
            return Reply(io.BytesIO())


def open_all(s, listener, address, n):
    """As many connections as one address may have; nothing is asked on them."""
    held = [connect_from(s, listener, address) for _ in range(n)]
    for c in held:  # the last of them has been seen when a request on it is answered
        c.sendall(get())
        check(Reply(c.makefile("rb")).status == 200, address, "has a place")
    return held


def test_one_peer_cannot_take_all_places():
    s = Server(path("peers.sock"), "127.0.0.1:0", "connections=64", "peer=16", "kept=8", "proxy=127.0.0.9")
    s.sock = path("peers.sock")
    at = {"listener": 1}
    hog = open_all(s, 1, "127.0.0.1", 16)
    for _ in range(50):  # many more, of which nothing comes
        hog.append(connect_from(s, 1, "127.0.0.1"))
    check(ask_from(s, "127.0.0.2", b"/item", **at).status == 200, "another address")
    check(s.ask("GET", "/item").status == 200, "a Unix socket")
    check(ask_from(s, "127.0.0.3", b"/public", **at).status == 200, "a public route")
    for c in hog[16:]:
        c.close()
    s.wait_until(lambda: ask_from(s, "127.0.0.1", b"/public", **at).status == 200, "a public route for the hog too")
    r = ask_from(s, "127.0.0.1", b"/item", **at)
    check(r.status == 503 and r.headers.get("retry-after") == "1" and r.error()["message"], "anything else", r.status, r.body)
    check(ask_from(s, "127.0.0.2", b"/item", **at).status == 200, "another address, still")

    many = open_all(s, 1, "127.0.0.4", 16) + open_all(s, 1, "127.0.0.9", 24)  # 56 of 64: the others are kept
    s.wait_until(lambda: ask_from(s, "127.0.0.5", b"/public", **at).status == 200, "a public route, when all are taken")
    r = ask_from(s, "127.0.0.5", b"/item", **at)
    check(r.status == 503 and r.headers.get("retry-after") == "1", "no place for another one", r.status, r.body)
    check(s.ask("GET", "/item").status == 200, "a Unix socket has a place, when all are taken")
    for c in hog + many:
        c.close()
    s.wait_until(lambda: ask_from(s, "127.0.0.1", b"/item", **at).status == 200, "places are free again")
    s.stop()
    told = [line for line in s.stderr().splitlines() if line.startswith("<4>a connection is refused: too many connections")]
    check(0 < len(told) < 10, "the log says so now and then", told)


def test_a_user_of_the_unix_socket_cannot_take_all_places():
    s = Server(path("users.sock"), "127.0.0.1:0", "connections=64", "peer=16", "kept=8")
    s.sock = path("users.sock")
    held = [s.connect() for _ in range(16)]
    for c in held:
        c.sendall(get())
        check(Reply(c.makefile("rb")).status == 200, "has a place")
    r = s.ask("GET", "/item")
    check(r.status == 503 and r.headers.get("retry-after") == "1", "one more", r.status, r.body)
    check(s.ask("GET", "/public").status == 200, "but for a public route")
    check(s.ask("GET", "/item", listener=1).status == 200, "others")
    for c in held:
        c.close()
    s.stop()


def test_a_place_that_is_kept_is_soon_given_back():
    s = Server("127.0.0.1:0", "connections=40", "peer=8", "kept=8", "header_ms=60000", "idle_ms=60000")
    held = open_all(s, 0, "127.0.0.1", 8)
    t0 = time.monotonic()
    with connect_from(s, 0, "127.0.0.1") as c:
        out, t = timed(c, t0)
        check(b" 408 " in out and t < 2 + SLACK, "one that asks nothing", out, t)
    with connect_from(s, 0, "127.0.0.1") as c:
        c.sendall(get(target=b"/public") * 2)
        check(ends(c).count(b"HTTP/1.1 200") == 1, "one that asks twice")
    with connect_from(s, 0, "127.0.0.1") as c:
        c.sendall(get(target=b"/public").replace(b"\r\n\r\n", b"\r\nContent-Length: 5\r\n\r\n"))
        out, t = timed(c, time.monotonic())
        check(b" 200 " not in out and t < 2 + SLACK, "one whose body does not come", out, t)
    for c in held:
        c.close()
    s.stop()


def test_with_few_open_files_there_are_fewer_places():
    limit = lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (100, 300))
    s = Server("127.0.0.1:0", preexec_fn=limit)
    check("236 connections at most, not 1024" in s.stderr(), s.stderr())
    held = open_all(s, 0, "127.0.0.1", 59)
    check(ask_from(s, "127.0.0.1", b"/item").status == 503, "a quarter of them is one address's")
    check(ask_from(s, "127.0.0.2", b"/item").status == 200, "others have theirs")
    for c in held:
        c.close()
    s.stop()
    s = Server("127.0.0.1:0", preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (80, 80)))
    check("16 connections at most, not 1024" in s.stderr(), s.stderr())
    s.stop()
    for wrong in ("proxy=localhost", "proxy=127.0.0.1:80", "peer=1025", "kept=1024"):
        r = subprocess.run([SERVER, wrong, "connections=1024", "127.0.0.1:0"], capture_output=True, timeout=LIMIT)
        check(r.returncode == 69 and r.stderr.count(b"\n") == 1, wrong, r)


def test_thousands_of_idle_streams_cost_little():
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    n = 10000 if hard >= 11200 and SLOWNESS == 1 else 200
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, n + 1100), hard))
    # The polls' own connections may be closed late; on a busy machine, heartbeats of 15 s would come while it is idle.
    s = Server(f"connections={n + 1000}", f"peer={n + 500}", "heartbeat_ms=3600000")
    streams = []
    for i in range(n):
        c = s.connect()
        c.sendall(f"GET /events HTTP/1.1\r\n{HOST}\r\n".encode())
        streams.append(c)
        if i == 999:
            t = s.wait_for(lambda t: t["jobs"] == 1000, 5 * LIMIT)
            check(t["resident"] < 40 << 20, "1000 streams:", t["resident"])
            print(f"1000 streams: {t['resident'] >> 10} KB")
    seen = [s.wait_for(lambda t: t["jobs"] == n, 5 * LIMIT)]
    for _ in range(3):  # the last of the requests may still be worked on
        time.sleep(1)
        seen.append(s.stats())
    idle = min(b["cpu_ns"] - a["cpu_ns"] for a, b in zip(seen, seen[1:]))
    print(f"{n} streams: {seen[-1]['resident'] >> 10} KB, {idle / 1e6:.2f} ms of CPU in a second")
    check(SLOWNESS > 1 or idle < 10e6, "idle:", seen)
    for c in streams:
        c.close()
    s.wait_for(lambda t: t["jobs"] == 0, 5 * LIMIT)
    s.stop()
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def test_draining_lets_running_requests_finish():
    s = Server("drain_ms=20000")
    idle = s.connect()
    idle.sendall(f"GET /item HTTP/1.1\r\n{HOST}\r\n".encode())
    check(Reply(idle.makefile("rb")).status == 200, "idle")
    running = s.connect()
    running.sendall(f"GET /slow?ms=100&n=15 HTTP/1.1\r\n{HOST}\r\n".encode())
    sending = s.connect()
    sending.sendall(f"POST /raw HTTP/1.1\r\n{HOST}Content-Length: 2\r\n\r\nx".encode())
    fresh, silent = s.connect(), s.connect()
    s.wait_for(lambda t: t["jobs"] == 1)
    s.process.send_signal(signal.SIGTERM)
    check(ends(idle) == b"", "an idle connection is closed")
    fresh.sendall(f"GET /item HTTP/1.1\r\n{HOST}\r\n".encode())
    check(Reply(fresh.makefile("rb")).status == 200, "the first request of a connection that had none")
    sending.sendall(b"x")
    check(Reply(sending.makefile("rb")).status == 200, "a request that was not complete")
    end = time.monotonic() + LIMIT  # the one who closes the sockets is another than the one who closes connections
    try:
        while time.monotonic() < end:
            s.connect().close()
        check(False, "a new connection")
    except (ConnectionError, FileNotFoundError):
        pass
    r = Reply(running.makefile("rb"))
    check(r.whole and r.body.count(b"data:") == 15, "the running one", r.body)
    check(ends(silent) == b"", "one that says nothing is closed")
    check("left 0\n" in s.stop(), "nothing is left")


def test_draining_ends_tls_in_order():
    """An answer without a length ends with the connection, so over TLS its end has to be told. Each try may be too late."""
    for _ in range(10):
        s = Server("tls+127.0.0.1:0", f"cert={PEM}", f"key={PEM}", "drain_ms=20000")
        context = ssl.create_default_context(cafile=PEM)
        context.options &= ~getattr(ssl, "OP_IGNORE_UNEXPECTED_EOF", 0)
        c = socket.create_connection(("127.0.0.1", s.ports[0]), LIMIT)
        with context.wrap_socket(c, server_hostname="localhost", suppress_ragged_eofs=False) as c:
            c.sendall(f"GET /slow?ms=30&n=3 HTTP/1.0\r\n{HOST}\r\n".encode())
            data = c.recv(1)
            s.process.send_signal(signal.SIGTERM)
            while piece := c.recv(1000):  # raises an error at an end that was not told
                data += piece
            check(data.count(b"data:") == 3, data)
        check("left 0\n" in s.stop(), "nothing is left")


def test_draining_ends():
    s = Server("drain_ms=200")
    c = [s.connect() for _ in range(3)]
    for target, one in zip(("/events", "/late?ms=2500", "/flood?bytes=100000000"), c):
        one.sendall(f"GET {target} HTTP/1.1\r\n{HOST}\r\n".encode())
    s.wait_for(lambda t: t["jobs"] == 3)
    check("left 3\n" in s.stop(), "three are left")


if __name__ == "__main__":
    run(globals(), sys.argv[4] if sys.argv[4:] else "test_")
