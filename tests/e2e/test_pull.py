#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""test_pull.py: tests `quern pull` with servers that truncate, stall, lie, change their files and ask for secrets.

    test_pull.py QUERN STORY_MODEL SLOWNESS CERTIFICATE

STORY_MODEL is a valid GGUF file. CERTIFICATE is a PEM file with the key and a certificate for 127.0.0.1. Everything is
fetched from servers in this process, or from an rsync daemon that the test starts. Each function test_* is a case.
"""
import array
import fcntl
import hashlib
import http.server
import json
import os
import pty
import random
import re
import resource
import select
import shutil
import signal
import socket
import ssl
import struct
import subprocess
import sys
import termios
import threading
import time

from lib.cases import check, run, until
from lib.files import TMP, path, read, written

QUERN, STORY = sys.argv[1:3]
SLOWNESS = float(sys.argv[3])
CERTIFICATE = sys.argv[4]
LIMIT = 60 * SLOWNESS  # seconds for one command
BLOCK = 16384
MB = 1 << 20
RANDOM = random.Random(5)


def noise(n):
    return RANDOM.randbytes(n)


def sha(data):
    return hashlib.sha256(data).hexdigest()


def fresh(name="to"):
    """An empty folder."""
    shutil.rmtree(path(name), ignore_errors=True)
    os.mkdir(path(name))
    return path(name)


# ---- a server ----


class Content:
    """A file as the server has it; what it does wrong is told by the attributes."""

    def __init__(self, data, etag='"one"', **wrong):
        self.data, self.etag = data, etag
        self.status = None      # answers with this status
        self.location = None    # and this Location
        self.careless = False   # does not look at If-Range
        self.ranges = True      # false: sends all of it, whatever is asked
        self.cut = None         # closes after so many bytes of each reply
        self.cuts = 10 ** 9     # of so many replies
        self.stall = None       # says nothing more after so many bytes, of so many replies:
        self.stalls = 1
        self.extra_total = 0    # is added to the total in Content-Range
        self.extra_length = 0   # is added to Content-Length
        self.shift = 0          # is added to where a part begins
        self.tail = b""         # is sent behind what was asked for
        self.garbage = None     # sends this instead of HTTP
        self.rate = None        # bytes a second, of each connection
        self.then = None        # (number of requests, Content): is this one after so many
        self.headers = {}
        self.date = None
        self.n = 0
        self.__dict__.update(wrong)


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, *args):
        pass

    def setup(self):
        super().setup()
        self.request.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 1 << 16)

    def do_GET(self):
        s = self.server
        with s.lock:
            s.requests.append((self.path, dict(self.headers)))
            c = s.content.get(self.path)
            while c and c.then and c.n >= c.then[0]:
                c = s.content[self.path] = c.then[1]
            if c:
                c.n += 1
        if not c:
            self.send_error(404)
            return
        try:
            self.answer(c)
        except (BrokenPipeError, ConnectionResetError):
            self.close_connection = True

    def answer(self, c):
        if c.garbage is not None:
            self.wfile.write(c.garbage)
            self.close_connection = True
            return
        first, last, status = 0, len(c.data) - 1, 200
        m = re.fullmatch(r"bytes=(\d+)-(\d*)", self.headers.get("Range", ""))
        validator = c.etag or c.date
        if c.status:
            status, first, last = c.status, 0, -1
        elif m and c.ranges and (c.careless or self.headers.get("If-Range", validator) == validator):
            first, last, status = int(m[1]), min(int(m[2] or last), last), 206
            if first > last:
                first, last, status = 0, -1, 416
        total = len(c.data) + c.extra_total
        self.send_response(status)
        if status == 206:
            self.send_header("Content-Range", f"bytes {first + c.shift}-{last + c.shift}/{total}")
        if status == 416:
            self.send_header("Content-Range", f"bytes */{total}")
        if c.etag:
            self.send_header("ETag", c.etag)
        if c.date:
            self.send_header("Last-Modified", c.date)
        if c.location:
            self.send_header("Location", c.location)
        for k, v in c.headers.items():
            self.send_header(k, v)
        self.send_header("Content-Length", str(last - first + 1 + (c.extra_length + len(c.tail) if last > 0 else 0)))
        self.end_headers()
        self.send(c, memoryview(c.data)[first:last + 1] if last <= 0 else memoryview(c.data[first:last + 1] + c.tail))

    def send(self, c, data):
        s = self.server
        with s.lock:
            s.busy += 1
            s.most_busy = max(s.busy, s.most_busy)
        try:
            sent = 0
            while sent < len(data):
                if c.cut is not None and sent >= c.cut and c.cuts > 0:
                    c.cuts -= 1
                    self.close_connection = True
                    return
                if c.stall is not None and sent >= c.stall and c.stalls > 0:
                    c.stalls -= 1
                    s.over.wait()
                    self.close_connection = True
                    return
                block = data[sent:sent + BLOCK]
                self.wfile.write(block)
                sent += len(block)
                with s.lock:
                    s.n_sent += len(block)
                if c.rate:
                    time.sleep(len(block) / c.rate)
                    while self.unsent():
                        if self.connection.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR):
                            raise ConnectionResetError
                        time.sleep(0.001)
            if c.extra_length:
                self.close_connection = True
        finally:
            with s.lock:
                s.busy -= 1

    def unsent(self):
        """Bytes that the system has not handed to the other side; so what is counted is what went out."""
        n = array.array("i", [0])
        fcntl.ioctl(self.connection.fileno(), termios.TIOCOUTQ, n)
        return n[0]


class Server(http.server.ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 64

    def __init__(self, tls=False, **content):
        super().__init__(("127.0.0.1", 0), Handler)
        self.content, self.requests, self.lock = {}, [], threading.Lock()
        self.n_sent = self.busy = self.most_busy = 0
        self.over = threading.Event()
        self.scheme = "https" if tls else "http"
        if tls:
            c = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            c.load_cert_chain(CERTIFICATE)
            self.socket = c.wrap_socket(self.socket, server_side=True)
        for name, c in content.items():
            self.content["/" + name] = c
        threading.Thread(target=self.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True).start()

    def __enter__(self):
        return self

    def __exit__(self, *args):
        self.over.set()
        self.shutdown()
        self.server_close()

    def handle_error(self, request, client_address):
        pass  # clients that are killed are no news

    def url(self, name, host="127.0.0.1"):
        return f"{self.scheme}://{host}:{self.server_port}/{name}"


# ---- the program ----


def environment(**more):
    env = {k: v for k, v in os.environ.items() if k.lower() not in ("http_proxy", "https_proxy", "all_proxy", "no_color")}
    env.pop("HF_TOKEN", None)
    env.pop("QUERN_MODELS", None)
    env.pop("XDG_CACHE_HOME", None)
    env.update({"HOME": path("home"), "QUERN_CONFIG": "", **more})
    return {k: v for k, v in env.items() if v is not None}


def start(*args, env=None, **more):
    return subprocess.Popen([QUERN, "pull", *map(str, args)], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                            stderr=subprocess.PIPE, env=environment(**(env or {})), **more)


def pull(*args, env=None, **more):
    p = start(*args, env=env, **more)
    try:
        p.stdout_bytes, p.stderr_bytes = p.communicate(timeout=LIMIT)
    except subprocess.TimeoutExpired:
        p.kill()
        p.stdout_bytes, p.stderr_bytes = p.communicate()
        check(False, args, "takes too long", p.stderr_bytes)
    return p


def good(to, *args, warns=None, **more):
    """Must succeed, print the path and say nothing else, unless it warns."""
    p = pull(*args, **more)
    quiet = not p.stderr_bytes if warns is None else warns.encode() in p.stderr_bytes
    check(p.returncode == 0 and p.stdout_bytes == to.encode() + b"\n" and quiet, args, p.returncode, p.stdout_bytes, p.stderr_bytes)


def refused(status, text, *args, lines=1, **more):
    """Must fail with this status, print nothing, and say one line that has the text. Returns the line."""
    p = pull(*args, **more)
    said = p.stderr_bytes.decode(errors="replace")
    check(p.returncode == status and not p.stdout_bytes and said.startswith("quern: ") and said.count("\n") == lines and text in said,
          args, "status", p.returncode, "wanted", status, text, "got", p.stdout_bytes, said)
    return said


def holds(to, *names):
    check(sorted(os.listdir(to)) == sorted(names), to, "has", os.listdir(to), "wanted", names)


# ---- what it is for ----


def test_gets_a_file_over_several_connections():
    data, to = noise(21 * MB + 12345), fresh()
    with Server(**{"x.bin": Content(data, rate=20 * MB)}) as s:
        good(to + "/x.bin", s.url("x.bin"), "-o", to)
        check(read(to + "/x.bin") == data, "other bytes")
        check(s.most_busy == 4, s.most_busy, "connections")
        check(s.n_sent == len(data) + 1, s.n_sent, "bytes were sent")
        holds(to, "x.bin")
        good(to + "/one", s.url("x.bin"), "-o", to + "/one", "--connections", 1)
        check(read(to + "/one") == data, "other bytes over one connection")


def test_gets_a_model_and_checks_it():
    data, to = read(STORY), fresh()
    with Server(**{"m.gguf": Content(data), "bad.gguf": Content(data[:len(data) // 2]), "page.gguf": Content(b"<html>no")}) as s:
        good(to + "/m.gguf", s.url("m.gguf"), "-o", to)
        check(read(to + "/m.gguf") == data, "other bytes")
        refused(65, "what came is '" + to + "/bad.gguf.bad'", s.url("bad.gguf"), "-o", to)
        refused(65, "page.gguf.bad", s.url("page.gguf"), "-o", to)
        holds(to, "m.gguf", "bad.gguf.bad", "page.gguf.bad")


def key(name, type_id, value):
    return struct.pack("<Q", len(name)) + name + struct.pack("<I", type_id) + value


def split(data):
    """The model in two parts, of which the second has no tensors."""
    n_tensors, n_keys = struct.unpack("<QQ", data[8:24])

    def part(no, n_own, rest, n_rest):
        keys = key(b"split.no", 2, struct.pack("<H", no)) + key(b"split.count", 2, struct.pack("<H", 2)) + \
            key(b"split.tensors.count", 5, struct.pack("<i", n_tensors))
        n = -len(keys + key(b"filler", 8, bytes(8))) % 32  # so that the tensors' places stay multiples of 32
        keys += key(b"filler", 8, struct.pack("<Q", n) + b"-" * n)
        return data[:8] + struct.pack("<QQ", n_own, n_rest + 4) + keys + rest
    return part(0, n_tensors, data[24:], n_keys), part(1, 0, bytes(8), 0)


def test_gets_all_parts_of_a_model():
    to, one, two = fresh(), "m-00001-of-00002.gguf", "m-00002-of-00002.gguf"
    first, second = split(read(STORY))
    with Server(**{n: Content(d) for n, d in ((one, first), (two, second), (one + "?q", first), (two + "?q", second))}) as s:
        for named in one + "?q", two:
            good(to + "/" + one, s.url(named), "-o", to)
            check(read(to + "/" + one) == first and read(to + "/" + two) == second, "other bytes")
            holds(to, one, two)
            os.remove(to + "/" + one)
            os.remove(to + "/" + two)
        refused(64, "no one SHA-256", s.url(one) + "#sha256=" + sha(first), "-o", to)
        del s.content["/" + two]
        refused(66, two, s.url(one), "-o", to)
        holds(to, one)
        s.content["/" + two] = Content(second)
        sent = s.n_sent
        good(to + "/" + one, s.url(one), "-o", to)  # goes on with the second
        check(s.n_sent < sent + len(second) + 3, "the first was sent again")


def test_small_files():
    to = fresh()
    for n in 0, 1, 2, 65536:
        data = noise(n)
        with Server(x=Content(data), y=Content(data, ranges=False)) as s:
            good(to + f"/x{n}", s.url("x"), "-o", to + f"/x{n}")
            good(to + f"/y{n}", s.url("y"), "-o", to + f"/y{n}")
            check(read(to + f"/x{n}") == data == read(to + f"/y{n}"), n, "bytes")


def test_default_folder():
    shutil.rmtree(path("home"), ignore_errors=True)
    os.mkdir(path("home"))
    with Server(x=Content(b"x")) as s:
        good(path("home/models/x"), s.url("x"))
        good(path("a") + "/x", s.url("x"), env={"QUERN_MODELS": path("a") + ":" + path("b")})
        refused(66, "HOME is not set", s.url("x"), env={"HOME": None})
        refused(73, "cannot make the folder", s.url("x"), env={"HOME": path("nowhere")})
        written(path("file"), b"")
        refused(73, "cannot make the folder", s.url("x"), env={"QUERN_MODELS": path("file")})


def test_hash_on_the_url():
    data, to = noise(3 * MB), fresh()
    with Server(x=Content(data)) as s:
        good(to + "/x", s.url("x") + "#sha256=" + sha(data).upper(), "-o", to)
        st, memory = os.stat(to + "/x"), path("home/.cache/quern/hashes")
        with open(f"{memory}/hash-{st.st_dev:x}-{st.st_ino:x}") as f:  # as `quern check --deep` would leave it
            line = f.read().split()
        check(line[4:8] == [str(st.st_size), str(st.st_mtime_ns), str(st.st_ctime_ns), sha(data)], line)
        line = refused(65, "what came is '" + to + "/y.bad'", s.url("x") + "#sha256=" + sha(b""), "-o", to + "/y")
        check(sha(data) in line and sha(b"") in line, line)
        refused(64, "64 hexadecimal digits", s.url("x") + "#sha256=12", "-o", to)
        holds(to, "x", "y.bad")


# ---- servers that are no good ----


def test_server_truncates():
    data, to = noise(12 * MB), fresh()
    with Server(x=Content(data, cut=700000, cuts=8)) as s:
        good(to + "/x", s.url("x"), "-o", to)
        check(read(to + "/x") == data, "other bytes")
        check(s.n_sent < 1.05 * len(data), s.n_sent, "bytes sent of", len(data))


def test_server_lies_about_where_a_part_is():
    to = fresh()
    with Server(shift=Content(noise(2 * MB), shift=1)) as s:
        refused(65, "how long the file is", s.url("shift"), "-o", to)
        holds(to)


def test_server_claims_more_than_any_disk():
    to = fresh()
    with Server(x=Content(b"x" * 100, extra_total=10 ** 17)) as s:
        line = refused(74, "and its disk has", s.url("x"), "-o", to)
        check(str(10 ** 17 + 100) in line, line)
        holds(to)


def test_file_changes_in_between():
    old, new, to = noise(9 * MB), noise(9 * MB), fresh()
    for case in {"etag": '"two"'}, {"etag": None, "date": "Mon, 02 Jan 2023 00:00:00 GMT"}:
        first = {"etag": '"one"'} if case["etag"] else {"etag": None, "date": "Sun, 01 Jan 2023 00:00:00 GMT"}
        with Server(x=Content(old, **first, then=(3, Content(new, **case)))) as s:
            good(to + "/x", s.url("x"), "-o", to, "--connections", 1, warns="another one now")
            check(read(to + "/x") == new, "a mixture, or the old one")
            os.remove(to + "/x")
    with Server(x=Content(old, then=(3, Content(new, etag='"two"', careless=True)))) as s:
        good(to + "/x", s.url("x"), "-o", to, "--connections", 1, warns="another one now")
        check(read(to + "/x") == new, "a mixture, or the old one")
        os.remove(to + "/x")
    shorter = noise(5 * MB)
    with Server(x=Content(old, then=(3, Content(shorter, etag=None)))) as s:
        good(to + "/x", s.url("x"), "-o", to, "--connections", 1, warns="another one now")
        check(read(to + "/x") == shorter, "a mixture, or the old one")


def test_file_changes_between_two_runs():
    old, new, to = noise(9 * MB), noise(9 * MB), fresh()
    with Server(x=Content(old, rate=8 * MB)) as s:
        interrupt(s, 2 * MB, s.url("x"), "-o", to)
        s.content["/x"] = Content(new, etag='"two"')
        good(to + "/x", s.url("x"), "-o", to, warns="another one now")
        check(read(to + "/x") == new, "a mixture, or the old one")


def test_redirects():
    data, to, token = noise(5 * MB), fresh(), written(path("token"), b"secret-1\n")
    with Server(x=Content(data)) as there, Server() as s:
        s.content["/same"] = Content(b"", status=302, location="/x")
        s.content["/x"] = Content(data)
        s.content["/other"] = Content(b"", status=307, location=there.url("x"))
        s.content["/name"] = Content(b"", status=302, location=s.url("x", host="localhost"))
        s.content["/loop"] = Content(b"", status=301, location="/loop")
        s.content["/far"] = Content(b"", status=302, location="http://192.0.2.1/x")
        s.content["/file"] = Content(b"", status=302, location="file:///etc/passwd")
        s.content["/user"] = Content(b"", status=302, location="http://a:b@127.0.0.1/x")
        for name in "same", "other", "name":
            s.requests.clear()
            good(to + "/" + name, s.url(name), "-o", to + "/" + name, "--token-file", token)
            check(read(to + "/" + name) == data, name)
            for where, headers in s.requests:
                mine = headers["Host"].startswith("127.")
                check(("Authorization" in headers) == mine, name, where, headers)
                check(headers.get("Authorization", "Bearer secret-1") == "Bearer secret-1", headers)
        check(there.requests and not any("Authorization" in h for _, h in there.requests), there.requests)
        refused(74, "redirects more than 10 times", s.url("loop"), "-o", to)
        refused(64, "192.0.2.1", s.url("far"), "-o", to)
        refused(64, "file:///etc/passwd", s.url("file"), "-o", to)
        refused(64, "password", s.url("user"), "-o", to)


class Proxy:
    """An HTTP proxy that hears what it is asked, and lets through what CONNECT names."""

    def __init__(self):
        self.heard, self.socket = [], socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self.socket.getsockname()[1]}"
        threading.Thread(target=self.accept, daemon=True).start()

    def accept(self):
        while True:
            try:
                c = self.socket.accept()[0]
            except OSError:
                return
            threading.Thread(target=self.serve, args=(c,), daemon=True).start()

    def serve(self, c):
        head = b""
        while b"\r\n\r\n" not in head and (piece := c.recv(4096)):
            head += piece
        self.heard.append(head)
        if not head.startswith(b"CONNECT "):
            c.sendall(b"HTTP/1.1 404 no\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")
            c.close()
            return
        there = socket.create_connection(("127.0.0.1", int(head.split()[1].split(b":")[1])))
        c.sendall(b"HTTP/1.1 200 yes\r\n\r\n")
        for a, b in (c, there), (there, c):
            threading.Thread(target=self.copy, args=(a, b), daemon=True).start()

    def copy(self, a, b):
        try:
            while piece := a.recv(65536):
                b.sendall(piece)
            b.shutdown(socket.SHUT_WR)
        except OSError:
            pass

    def __enter__(self):
        return self

    def __exit__(self, *args):
        self.socket.close()


def test_who_hears_a_token():
    """Its own host, and that not in clear unless it is this machine or --insecure-http says so. Never a proxy of https."""
    data, to, token = noise(MB), fresh(), written(path("token"), b"secret-3")
    hf = {"HF_TOKEN": "secret-3"}
    with Proxy() as proxy:
        env = {**hf, "http_proxy": proxy.url, "https_proxy": proxy.url}
        far = "http://hub.example"
        for source, options in ("hf:o/r/m.bin", ("--hf-endpoint", far)), ("hf:o/r", ("--hf-endpoint", far)), \
                ("hf:o/r/m.bin", ("--hf-endpoint", far, "--token-file", token)), (far + "/m.bin", ("--token-file", token)), \
                ("hf:o/r/m.bin", ("--hf-endpoint", "ftp://hub.example")), \
                ("hf:o/r/m.bin", ("--hf-endpoint", "https://u:secret-3@hub.example")):
            refused(64, "hub.example", source, "-o", to, *options, env=env)
            refused(64, "hub.example", source, "-o", to, *options, env={**env, "HF_TOKEN": None})
        refused(64, "hub.example", "hf:o/r/m.bin", "-o", to, env={**env, "QUERN_HF_ENDPOINT": far})
        check(not proxy.heard, "the way out heard", proxy.heard)
        # To this machine, in clear: past every proxy.
        with Server(x=Content(data)) as s:
            good(to + "/x", s.url("x"), "-o", to, "--token-file", token, env={**env, "all_proxy": proxy.url})
            check(s.requests and all(h.get("Authorization") == "Bearer secret-3" for _, h in s.requests), s.requests)
            check(not proxy.heard, "a proxy heard", proxy.heard)
        # Encrypted, through a proxy: it hears where to.
        with Server(tls=True, x=Content(data)) as s:
            good(to + "/y", s.url("x"), "-o", to + "/y", "--ca", CERTIFICATE, "--token-file", token, env=env)
            check(all(h.get("Authorization") == "Bearer secret-3" for _, h in s.requests), s.requests)
            check(proxy.heard and not any(b"secret" in h or b"uthorization" in h for h in proxy.heard), proxy.heard)
        # In clear because the user says so.
        proxy.heard.clear()
        refused(66, "not there", "hf:o/r/m.bin", "-o", to + "/z", "--hf-endpoint", far, "--insecure-http", env=env)
        check(len(proxy.heard) == 1 and b"secret-3" in proxy.heard[0], proxy.heard)
    holds(to, "x", "y")


def test_odd_etags():
    """One that cannot be kept whole is none; two that differ are never taken for one."""
    old, new, to = noise(9 * MB), noise(9 * MB), fresh()
    long = '"' + "x" * 300
    odd = [(long + 'a"', long + 'b"'), ('"' + "y" * 253 + '"', '"' + "y" * 252 + 'z"'), ('W/"1"', 'W/"2"'), ('"a\tb"', '"a\tc"'),
           ('"\xe4"', '"\xe5"'), ("bare", "words"), ('"a"b"', '"a"c"'), ('"a', '"b'), ("W/" + long + '"', 'W/"c"')]
    for a, b in odd:
        with Server(x=Content(old, etag=a, careless=True)) as s:
            good(to + "/x", s.url("x"), "-o", to, "--connections", 2)
            check(read(to + "/x") == old, "other bytes")
            os.remove(to + "/x")
        kept = len(a) < 256 and a.isprintable() and a.isascii()
        with Server(x=Content(old, etag=a, rate=8 * MB, careless=True)) as s:
            interrupt(s, 2 * MB, s.url("x"), "-o", to)
            s.content["/x"] = Content(new, etag=b, careless=True)
            p = pull(s.url("x"), "-o", to)
            check(p.returncode == 0 and read(to + "/x") == new, a[:20], p.returncode, p.stderr_bytes, "a mixture, or the old one")
            os.remove(to + "/x")
        dates = {"date": "Sun, 01 Jan 2023 00:00:00 GMT"}
        with Server(x=Content(old, etag=a, rate=8 * MB, careless=True, **dates)) as s:
            interrupt(s, 2 * MB, s.url("x"), "-o", to)
            s.n_sent, s.content["/x"].rate = 0, None
            good(to + "/x", s.url("x"), "-o", to)
            check(read(to + "/x") == old and s.n_sent < 8 * MB, a[:20], kept, s.n_sent, "bytes came again")
            os.remove(to + "/x")


def test_https():
    data, to = noise(MB), fresh()
    with Server(tls=True, x=Content(data)) as s, Server(x=Content(data)) as plain:
        s.content["/down"] = Content(b"", status=302, location=plain.url("x"))
        good(to + "/x", s.url("x"), "-o", to, "--ca", CERTIFICATE)
        check(read(to + "/x") == data, "other bytes")
        refused(64, "not https", s.url("down"), "-o", to, "--ca", CERTIFICATE)
        refused(74, "certificate", s.url("x"), "-o", to + "/y")
        check(not plain.requests, "http was asked")


def test_refusals():
    to, token = fresh(), written(path("token"), b"secret-1")
    with Server() as s:
        for status, code, text in (404, 66, "not there"), (410, 66, "not there"), (403, 64, "--token-file"), (401, 64, "--token-file"), \
                (503, 75, "later"), (429, 75, "later"), (500, 74, "500"), (418, 74, "418"), (304, 74, "304"):
            s.content["/x"] = Content(b"", status=status)
            refused(code, text, s.url("x"), "-o", to)
        s.content["/x"] = Content(b"", status=403)
        refused(64, "token is not one", s.url("x"), "-o", to, "--token-file", token)
        refused(64, "a character", s.url("x"), "-o", to, "--token-file", written(path("two lines"), b"a\nX-Evil: b"))
        refused(64, "no token in it", s.url("x"), "-o", to, "--token-file", written(path("empty"), b"\n"))
        refused(66, "nothing", s.url("x"), "-o", to, "--token-file", path("nothing"))
    refused(74, "", s.url("x"), "-o", to)  # nobody listens there any more
    holds(to)


def test_server_fails_now_and_then():
    data, to = noise(9 * MB), fresh()
    ok = Content(data)
    with Server(x=Content(data, then=(3, Content(b"", status=503, then=(2, Content(data, then=(1, Content(b"", status=403, then=(1, ok)))))))))\
            as s:
        good(to + "/x", s.url("x"), "-o", to, "--connections", 1)
        check(read(to + "/x") == data, "other bytes")


def test_server_ignores_ranges():
    data, to = noise(9 * MB), fresh()
    with Server(x=Content(data, ranges=False), cut=Content(data, ranges=False, cut=5 * MB, cuts=2),
                now=Content(data, then=(2, Content(data, ranges=False)))) as s:
        for name, more in ("x", {}), ("cut", {}), ("now", {"warns": "cannot send parts of a file"}):
            one = ["--connections", 1] if name == "now" else []  # of several, one may have got all before another is refused
            good(to + "/" + name, s.url(name), "-o", to, *one, **more)
            check(read(to + "/" + name) == data, name, "has other bytes")


def test_server_sends_garbage():
    to = fresh()
    replies = {"noise": bytes(range(256)) * 100, "nothing": b"", "half": b"HTTP/1.1 200", "status": b"HTTP/1.1 999999 \x1b[31m\r\n\r\n",
               "old": b"SSH-2.0-x\r\n", "range": b"HTTP/1.1 206 P\r\nContent-Range: bytes 0-0/-5\r\nContent-Length: 1\r\n\r\nx",
               "huge": b"HTTP/1.1 206 P\r\nContent-Range: bytes 0-0/99999999999999999999\r\nContent-Length: 1\r\n\r\nx",
               "none": b"HTTP/1.1 200 OK\r\n\r\nhello", "gzip": b"HTTP/1.1 206 P\r\nContent-Encoding: gzip\r\nContent-Range: bytes 0-0/9\r\n"
               b"Content-Length: 1\r\n\r\nx", "header": b"HTTP/1.1 200 OK\r\nX: " + b"a" * 10 ** 6 + b"\r\n\r\n"}
    for name, data in replies.items():
        with Server(x=Content(b"", garbage=data)) as s:
            p = pull(s.url("x"), "-o", to)
            check(p.returncode in (65, 74, 64) and p.stderr_bytes.startswith(b"quern: ") and p.stderr_bytes.count(b"\n") == 1 and
                  b"\x1b" not in p.stderr_bytes, name, p.returncode, p.stderr_bytes)
            holds(to)
    # sound to begin with
    data = noise(5 * MB)
    with Server(x=Content(data, then=(2, Content(b"", garbage=b"\0\1\2", then=(2, Content(data)))))) as s:
        good(to + "/x", s.url("x"), "-o", to, "--connections", 1)
        check(read(to + "/x") == data, "other bytes")


# ---- interruptions ----


def interrupt(s, n, *args, sig=signal.SIGKILL):
    """Starts it, and ends it after n more bytes."""
    before = s.n_sent
    p = start(*args)
    until(LIMIT, lambda: s.n_sent >= before + n or p.poll() is not None, "bytes")
    p.send_signal(sig)
    out, err = p.communicate(timeout=LIMIT)
    check(p.returncode == -sig, "ended with", p.returncode, out, err)
    until(LIMIT, lambda: s.busy == 0, "the server sees that it is gone")
    return err.decode()


def test_killed_ten_times():
    data, to = noise(64 * MB), fresh()
    with Server(x=Content(data, rate=6 * MB)) as s:
        for _ in range(10):
            interrupt(s, RANDOM.randrange(200000, 5 * MB), s.url("x"), "-o", to)
            check("x" not in os.listdir(to), "it is there in part")
        good(to + "/x", s.url("x"), "-o", to)
        check(read(to + "/x") == data, "other bytes")
        holds(to, "x")
        check(s.n_sent <= 1.05 * len(data), s.n_sent, "bytes sent of", len(data))
        print(f"    {100 * s.n_sent / len(data) - 100:.2f} % sent twice")


def test_signals_keep_what_came():
    data, to = noise(16 * MB), fresh()
    for sig in signal.SIGINT, signal.SIGTERM, signal.SIGHUP:
        with Server(x=Content(data, rate=4 * MB)) as s:
            line = interrupt(s, 4 * MB, s.url("x"), "-o", to, sig=sig)
            check(line.startswith("quern: stopped") and "the same command goes on from here" in line and line.count("\n") == 1, line)
            holds(to, "x.part", "x.part.json")
            s.content["/x"].rate = None
            good(to + "/x", s.url("x"), "-o", to)
            check(read(to + "/x") == data, "other bytes")
            check(s.n_sent <= 1.05 * len(data), s.n_sent, "bytes sent of", len(data))
            os.remove(to + "/x")


def test_what_is_beside_the_part_is_not_believed():
    data, to = noise(9 * MB), fresh()
    whole = {"form": "quern-part-1", "version": 'etag "one"', "size": len(data), "boot": "", "synced": [[0, len(data)]], "written": []}
    with Server(x=Content(data, rate=8 * MB)) as s:
        interrupt(s, 2 * MB, s.url("x"), "-o", to)
        side = json.loads(read(to + "/x.part.json"))
        s.content["/x"].rate = None
        check(side["size"] == len(data) and side["written"] and side["version"] == 'etag "one"' and "127.0.0.1" in side["url"], side)
        for name, text in {"garbage": b"\0\1", "empty": b"", "list": b"[]", "large": b" " * 2000000,
                           "spans": json.dumps({**whole, "url": side["url"], "synced": [[5, 3]]}).encode(),
                           "overlap": json.dumps({**whole, "url": side["url"], "synced": [[0, 9], [5, 12]]}).encode(),
                           "beyond": json.dumps({**whole, "url": side["url"], "synced": [[0, len(data) + 1]]}).encode()}.items():
            written(to + "/x.part", bytes(len(data)))
            written(to + "/x.part.json", text)
            good(to + "/x", s.url("x"), "-o", to, warns="begun anew")
            check(read(to + "/x") == data, name)
            os.remove(to + "/x")
        written(to + "/x.part", b"\0" * 100)  # which is not as long as the list says
        written(to + "/x.part.json", json.dumps({**whole, "url": side["url"]}).encode())
        good(to + "/x", s.url("x"), "-o", to, warns="begun anew")
        check(read(to + "/x") == data, "a part that was replaced")
        holds(to, "x")


def test_another_boot_trusts_the_disk_only():
    data, to = noise(9 * MB), fresh()
    side = {"form": "quern-part-1", "version": 'etag "one"', "size": len(data), "boot": "another", "synced": [[0, 4 * MB]],
            "written": [[0, 8 * MB]]}
    with Server(x=Content(data)) as s:
        written(to + "/x.part", data[:4 * MB] + bytes(5 * MB))
        written(to + "/x.part.json", json.dumps({**side, "url": s.url("x")}).encode())
        good(to + "/x", s.url("x"), "-o", to)
        check(read(to + "/x") == data, "other bytes")
        check(s.n_sent == 5 * MB + 1, s.n_sent)


def test_two_at_once():
    data, to = noise(9 * MB), fresh()
    with Server(x=Content(data, stall=MB)) as s:
        p = start(s.url("x"), "-o", to)
        until(LIMIT, lambda: s.n_sent > MB // 2, "bytes")
        refused(75, "fetched by another process", s.url("x"), "-o", to)
        p.kill()
        p.communicate()


def test_the_same_file_again_is_no_error_without_a_hash():
    data, to = noise(MB), fresh()
    dates = {"date": "Sun, 01 Jan 2023 00:00:00 GMT"}
    with Server(x=Content(data, **dates)) as s:
        good(to + "/x", s.url("x"), "-o", to)
        check(os.stat(to + "/x").st_mtime == 1672531200, "it has the time of its source")
        sent = s.n_sent
        good(to + "/x", s.url("x"), "-o", to)
        check(s.n_sent <= sent + 1, "it was sent again")
        s.content["/x"].date = "Mon, 02 Jan 2023 00:00:00 GMT"
        refused(73, "nothing says whether it is the same", s.url("x"), "-o", to)
        s.content["/x"].date = dates["date"]
        os.utime(to + "/x")  # as an edit would
        refused(73, "nothing says whether it is the same", s.url("x"), "-o", to)


def test_a_server_without_ranges_is_said():
    data, to = noise(8 * MB), fresh()
    with Server(x=Content(data, ranges=False, rate=4 * MB)) as s:
        line = interrupt(s, 2 * MB, s.url("x"), "-o", to, sig=signal.SIGINT)
        check("the same command begins again" in line and "cannot send parts" in line, line)
        s.content["/x"].rate = None
        good(to + "/x", s.url("x"), "-o", to, warns="is begun anew: its server cannot send parts of a file")


def test_nothing_is_overwritten():
    data, to = noise(MB), fresh()
    with Server(x=Content(data)) as s:
        written(to + "/x", b"mine")
        refused(73, "nothing says whether it is the same", s.url("x"), "-o", to)
        refused(73, "is another file", s.url("x") + "#sha256=" + sha(data), "-o", to)
        check(read(to + "/x") == b"mine", "it was overwritten")
        good(to + "/x", s.url("x"), "-o", to, "--force")
        check(read(to + "/x") == data, "other bytes")
        sent = s.n_sent
        good(to + "/x", s.url("x") + "#sha256=" + sha(data), "-o", to)
        check(s.n_sent == sent + 1, "it was sent again")
        holds(to, "x")
        os.mkdir(to + "/d")
        os.mkdir(to + "/d/x")
        refused(73, "there already", s.url("x"), "-o", to + "/d")
        os.symlink("/dev/full", to + "/z.part")
        refused(74, "z.part", s.url("x"), "-o", to + "/z")


def test_disk_is_full():
    data, to = noise(3 * MB), fresh()

    def limit():
        resource.setrlimit(resource.RLIMIT_FSIZE, (MB, MB))
    with Server(x=Content(data)) as s:
        refused(74, "File too large", s.url("x"), "-o", to, preexec_fn=limit)
        check("x" not in os.listdir(to), os.listdir(to))
        good(to + "/x", s.url("x"), "-o", to)
        check(read(to + "/x") == data, "other bytes")


def test_hostile_names():
    to = fresh()
    with Server(x=Content(b"x")) as s:
        for name in "", "a/", "a/..%2fb", "%2e%2e", ".hidden", "-rf", "a%00b", "a%0ab", "a%1b[31m", "a%e2%80%ae", "%ff", "a" * 250:
            p = pull(s.url(name), "-o", to)
            check(p.returncode == 64 and p.stderr_bytes.count(b"\n") == 1 and b"\x1b" not in p.stderr_bytes, name, p.returncode,
                  p.stderr_bytes)
        check(not s.requests, s.requests)
        holds(to)
        s.content["/.hidden"] = Content(b"x")
        good(to + "/seen", s.url(".hidden"), "-o", to + "/seen")
        s.content["/a%20b%25.bin?download=true"] = Content(b"x")
        good(to + "/a b%.bin", s.url("a%20b%25.bin?download=true"), "-o", to)
    for wrong in "model.gguf", "ftp://host/x", "http://example.com/x", "https://u:p@example.com/x", "-oProxyCommand=x:y", "u@-o:x", \
            "hf:owner", "hf:owner/../x", "hf:-o/x/y", "https://", "file:///etc/passwd", "":
        p = pull("--", wrong)
        check(p.returncode == 64 and p.stderr_bytes.count(b"\n") == 1, wrong, p.returncode, p.stderr_bytes)


def test_rate_limit():
    data, to = noise(3 * MB), fresh()
    with Server(x=Content(data)) as s:
        begin = time.monotonic()
        good(to + "/x", s.url("x"), "-o", to, "--limit-rate", "1M")
        took = time.monotonic() - begin
        check(took > 1.4 and s.most_busy == 1, took, "seconds,", s.most_busy, "connections")


# ---- a hub ----


def hub(data, **more):
    """A hub that hands large files to another host."""
    cdn = Server(blob=Content(data, etag='"cdn"'))
    s = Server()
    s.content["/o/r/resolve/main/m.bin"] = Content(
        b"", status=302, location=cdn.url("blob", host="localhost") + "?signed=1",
        headers={"X-Linked-Etag": f'"{sha(data)}"', "X-Linked-Size": str(len(data)), **more})
    cdn.content["/blob?signed=1"] = cdn.content["/blob"]
    return s, cdn


def test_hub_file():
    data, to = noise(9 * MB), fresh()
    s, cdn = hub(data)
    with s, cdn:
        env = {"QUERN_HF_ENDPOINT": s.url("")[:-1], "HF_TOKEN": "secret-2"}
        good(to + "/m.bin", "hf:o/r/m.bin", "-o", to, env=env)
        check(read(to + "/m.bin") == data, "other bytes")
        check(all(h.get("Authorization") == "Bearer secret-2" for _, h in s.requests), s.requests)
        check(not any("Authorization" in h for _, h in cdn.requests), cdn.requests)
        sent = cdn.n_sent
        good(to + "/m.bin", "hf:o/r/m.bin", "-o", to, env=env)
        check(cdn.n_sent == sent + 1, "what is there was sent again")
        refused(66, "not there", "hf:o/r/nothing.gguf", "-o", to, env=env)
        cdn.content["/blob?signed=1"] = Content(noise(9 * MB), etag='"cdn"')
        refused(65, "what came is", "hf:o/r/m.bin", "-o", to + "/other", env=env)
        refused(65, "by its hub, not", "hf:o/r/m.bin#sha256=" + sha(b""), "-o", to + "/other", env=env)
        holds(to, "m.bin", "other.bad")
    s, cdn = hub(data, **{"X-Linked-Size": "5"})
    with s, cdn:
        refused(65, "by its hub", "hf:o/r/m.bin", "-o", to + "/size", env={"QUERN_HF_ENDPOINT": s.url("")[:-1]})


def test_hub_folder():
    to, config, weights = fresh(), b'{"model_type": "llama"}', noise(5 * MB)
    names = {"weights.bin": b"no", "notes.txt": b"hello", "tokenizer.json": b"{}", "model.safetensors": weights, ".gitattributes": b"x"}
    files = [{"type": "file", "path": n, "size": len(d)} for n, d in names.items()] + [{"type": "directory", "path": "onnx", "size": 0}]
    with Server() as s:
        env = {"QUERN_HF_ENDPOINT": s.url("")[:-1]}
        listing = s.content["/api/models/o/r/tree/main"] = Content(json.dumps(files).encode())
        for n, d in names.items():
            s.content["/o/r/resolve/main/" + n] = Content(d)
        good(to + "/r", "hf:o/r", "-o", to, env=env)
        holds(to, "r")
        holds(to + "/r", "notes.txt", "tokenizer.json", "model.safetensors")
        check(read(to + "/r/model.safetensors") == weights, "other bytes")
        refused(73, "there already", "hf:o/r", "-o", to, env=env)
        shutil.rmtree(to + "/r")
        # goes on where it stopped, and what was left of another version is replaced
        del s.content["/o/r/resolve/main/tokenizer.json"]
        refused(66, "tokenizer.json", "hf:o/r", "-o", to, env=env)
        holds(to, "r.part")
        written(to + "/r.part/notes.txt", b"older")
        written(to + "/r.part/model.safetensors", weights[1:])
        s.content["/o/r/resolve/main/tokenizer.json"] = Content(names["tokenizer.json"])
        good(to + "/r", "hf:o/r", "-o", to, env=env)
        check(read(to + "/r/model.safetensors") == weights, "other bytes")
        shutil.rmtree(to + "/r")
        # a model that is none: what came is kept, and its name says so
        listing.data = json.dumps(files + [{"type": "file", "path": "config.json", "size": len(config)}]).encode()
        s.content["/o/r/resolve/main/config.json"] = Content(config)
        refused(65, to + "/r.bad", "hf:o/r", "-o", to, env=env)
        holds(to, "r.bad")
        for name in "../x.json", "a/x.json", "-x.json", ".x.json":
            listing.data = json.dumps(files + [{"type": "file", "path": name, "size": 1}]).encode()
            good(to + "/" + "r", "hf:o/r", "-o", to, env=env)
            holds(to + "/r", "notes.txt", "tokenizer.json", "model.safetensors")
            shutil.rmtree(to + "/r")
        for bad, text in (b"[", "list of files"), (b"{}", "list of files"), (b'[{"type":"file"}]', "without a type"), \
                (b'[{"type":"file","path":"a.json","size":-1}]', "no size"), (b"[]", "neither"):
            listing.data = bad
            refused(66 if bad == b"[]" else 65, text, "hf:o/r", "-o", to, env=env)
        listing.data = json.dumps([{"type": "file", "path": n, "size": 1} for n in ("a.gguf", "b.gguf")]).encode()
        refused(66, "a.gguf, b.gguf", "hf:o/r", "-o", to, env=env)
        holds(to, "r.bad")


# ---- rsync ----


class Rsync:
    """An rsync daemon with one module."""

    def __init__(self):
        self.dir = fresh("module")
        with socket.socket() as s:
            s.bind(("127.0.0.1", 0))
            self.port = s.getsockname()[1]
        written(path("rsyncd.conf"), f"use chroot = no\nlog file = {path('rsyncd.log')}\n[m]\npath = {self.dir}\nread only = yes\n"
              .encode() + (b"uid = root\ngid = root\n" if os.geteuid() == 0 else b""))
        self.process = subprocess.Popen(["rsync", "--daemon", "--no-detach", "--address=127.0.0.1", f"--port={self.port}",
                                         "--config=" + path("rsyncd.conf")], stdin=subprocess.DEVNULL)

        def answers():
            with socket.socket() as s:
                return s.connect_ex(("127.0.0.1", self.port)) == 0
        until(LIMIT, answers, "rsync listens")

    def __enter__(self):
        return self

    def __exit__(self, *args):
        self.process.terminate()
        self.process.wait(LIMIT)

    def url(self, name):
        return f"rsync://127.0.0.1:{self.port}/m/{name}"

    def sent(self):
        """Bytes of files, over all connections that have ended."""
        return sum(map(int, re.findall(rb"sent (\d+) bytes", read(path("rsyncd.log")))))


def test_rsync_file():
    data, to = noise(9 * MB), fresh()
    with Rsync() as r:
        written(r.dir + "/x y.bin", data)
        written(r.dir + "/m.gguf", read(STORY))
        written(r.dir + "/bad.gguf", read(STORY)[:100000])
        good(to + "/x y.bin", r.url("x y.bin"), "-o", to)
        check(read(to + "/x y.bin") == data, "other bytes")
        good(to + "/m.gguf", r.url("m.gguf") + "#sha256=" + sha(read(STORY)), "-o", to)
        refused(65, "bad.gguf.bad", r.url("bad.gguf"), "-o", to)
        refused(65, "n.gguf.bad", r.url("m.gguf") + "#sha256=" + sha(b""), "-o", to + "/n.gguf")
        refused(66, "nothing", r.url("nothing"), "-o", to)
        refused(74, "status 5", r.url("").replace("/m/", "/other/x"), "-o", to)
        good(to + "/m.gguf", r.url("m.gguf"), "-o", to)  # it is the same
        holds(to, "x y.bin", "m.gguf", "bad.gguf.bad", "n.gguf.bad")
        sent = r.sent()
        data = data[:4 * MB] + noise(1000) + data[4 * MB + 1000:]
        written(r.dir + "/x y.bin", data)
        refused(73, "--force replaces it", r.url("x y.bin"), "-o", to)
        good(to + "/x y.bin", r.url("x y.bin"), "-o", to, "--force")
        check(read(to + "/x y.bin") == data, "other bytes")
        until(LIMIT, lambda: r.sent() > sent, "the log")
        check(r.sent() - sent < MB, r.sent() - sent, "bytes sent for 1000 that changed")
    refused(74, "rsync ends with status 10", r.url("m.gguf"), "-o", to + "/gone")
    holds(to, "x y.bin", "m.gguf", "bad.gguf.bad", "n.gguf.bad")


def test_rsync_folder():
    to = fresh()
    with Rsync() as r:
        os.makedirs(r.dir + "/f/inner")
        names = {"f/a.txt": b"a", "f/inner/b.txt": b"b", "f/m.gguf": read(STORY)}
        for n, d in names.items():
            written(r.dir + "/" + n, d)
        os.symlink("a.txt", r.dir + "/f/link")
        good(to + "/f", r.url("f"), "-o", to)
        for n, d in names.items():
            check(read(to + "/" + n) == d, n)
        check(read(to + "/f/link") == b"a" and not os.path.islink(to + "/f/link"), "a link came")
        refused(73, "there already", r.url("f"), "-o", to)
        good(to + "/g", r.url("f/"), "-o", to + "/g")
        holds(to, "f", "g")


def mentioned(text):
    """Whether a program runs with this among its arguments."""
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            if text.encode() in read(f"/proc/{pid}/cmdline"):
                return True
        except OSError:
            pass  # it has ended
    return False


def test_rsync_goes_on():
    data, to = noise(24 * MB), fresh()
    with Rsync() as r:
        written(r.dir + "/x", data)

        def came():
            return os.stat(to + "/x.part").st_size if os.path.exists(to + "/x.part") else 0
        for i, sig in enumerate([signal.SIGKILL, signal.SIGTERM, signal.SIGKILL]):
            before = came()
            p = start(r.url("x"), "-o", to, "--limit-rate", "6M")
            until(LIMIT, lambda: came() >= max(before, 5 * MB * i) + 3 * MB, "bytes")
            p.send_signal(sig)
            p.communicate(timeout=LIMIT)
            check(p.returncode == -sig, p.returncode)
            until(LIMIT, lambda: not mentioned(to + "/x.part"), "rsync ends too")
            check(came() < len(data), "rsync went on alone")
            holds(to, "x.part")
        good(to + "/x", r.url("x"), "-o", to)
        check(read(to + "/x") == data, "other bytes")
        holds(to, "x")


def test_no_rsync():
    refused(65, "Debian's package is rsync", "rsync://127.0.0.1/m/x", "-o", fresh(), env={"PATH": path("nowhere")})


# ---- a daemon that shares ----


class Sharing:
    """quern serve --share of a folder."""

    def __init__(self, folder, *args):
        with socket.socket() as s:
            s.bind(("127.0.0.1", 0))
            self.port = s.getsockname()[1]
        self.tmp = fresh("tmp")
        self.process = subprocess.Popen(
            [QUERN, "serve", "--listen", path("share.sock"), "--share", "--share-port", str(self.port), "--models", folder, *args],
            stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=open(path("share.log"), "wb"),
            env=environment(TMPDIR=self.tmp, XDG_RUNTIME_DIR=None))
        until(LIMIT, lambda: b"serving" in read(path("share.log")) or self.process.poll() is not None, "it serves")

    def url(self, name):
        return f"rsync://127.0.0.1:{self.port}/models/{name}"

    def end(self, sig):
        self.process.send_signal(sig)
        self.process.wait(LIMIT)
        until(LIMIT, lambda: not os.listdir(self.tmp), "its folder is removed")
        with socket.socket() as s:
            until(LIMIT, lambda: s.connect_ex(("127.0.0.1", self.port)) != 0, "rsync ends")


def test_share():
    there, to = fresh("there"), fresh()
    for name in "m.gguf", ".hidden.gguf", "m2.gguf.part", "secret.pem":
        written(there + "/" + name, read(STORY))
    for name in "folder", "new.part", "bad.bad", "folder/deep.part":
        os.mkdir(there + "/" + name)
    for name in "folder/config.txt", "new.part/config.json", "new.part/w.safetensors", "bad.bad/config.json", "m2.gguf.part.json", \
            "folder/w.safetensors.part.json", "folder/deep.part/config.json", "m3.gguf.bad":
        written(there + "/" + name, b"x")
    os.chmod(TMP.name, 0o755)  # root's rsync reads as nobody
    for sig in signal.SIGTERM, signal.SIGKILL:
        s = Sharing(there, there + "/m.gguf")
        try:
            said = read(path("share.log"))
            check(b"sharing" in said and (SLOWNESS > 1 or b"gaps" not in said), said)  # a sanitizer's build has no sandbox
            good(to + "/m.gguf", s.url("m.gguf"), "-o", to)
            good(to + "/folder", s.url("folder"), "-o", to)
            check(read(to + "/m.gguf") == read(STORY), "other bytes")
            for name in ".hidden.gguf", "m2.gguf.part", "secret.pem", "../token", "m2.gguf.part.json", "new.part", \
                    "new.part/config.json", "folder/w.safetensors.part.json", "m3.gguf.bad", "bad.bad":
                refused(66, "", s.url(name), "-o", to + "/x")
            listed = subprocess.run(["rsync", "-r", "--list-only", s.url("")], capture_output=True, timeout=LIMIT).stdout
            check(sorted(re.findall(rb"\S+$", listed, re.M)) == [b".", b"folder", b"folder/config.txt", b"m.gguf"], listed)
            up = subprocess.run(["rsync", STORY, s.url("up.gguf")], capture_output=True, timeout=LIMIT)
            check(up.returncode != 0 and "up.gguf" not in os.listdir(there), "it was written to")
            with socket.socket() as other:
                other.bind(("127.0.0.1", 0))
                other.listen()
                p = subprocess.run([QUERN, "serve", "--listen", path("2.sock"), "--share", "--share-port", str(other.getsockname()[1]),
                                    "--models", there], capture_output=True, timeout=LIMIT, env=environment())
                check(p.returncode == 74 and b"cannot be had" in p.stderr and p.stderr.count(b"\n") == 1, p.returncode, p.stderr)
        finally:
            s.end(sig)
        holds(to, "m.gguf", "folder")
        shutil.rmtree(to + "/folder")
    s = Sharing(there, "--share-to", "192.0.2.0/24")
    try:
        refused(74, "", s.url("m.gguf"), "-o", to + "/x")
    finally:
        s.end(signal.SIGTERM)
    for wrong in "", "x", "1.2.3.4/33", "1.2.3.4/", "::1/129", "1.2.3.4\nread only = no", "10.0.0.0/8 *":
        p = subprocess.run([QUERN, "serve", "--listen", path("2.sock"), "--share", "--share-to", wrong, "--share-port", str(s.port),
                            "--models", there], capture_output=True, timeout=LIMIT, env=environment())
        check(p.returncode == 64 and p.stderr.count(b"\n") == 1, wrong, p.returncode, p.stderr)


# ---- what is seen ----


def on_terminal(*args, **env):
    """What the program writes to a terminal."""
    parent, child = pty.openpty()
    p = subprocess.Popen([QUERN, "pull", *args], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=child,
                         env=environment(TERM="xterm", **env))
    os.close(child)
    said, end = b"", time.monotonic() + LIMIT
    while time.monotonic() < end:
        if not select.select([parent], [], [], 1)[0]:
            continue
        try:
            piece = os.read(parent, 4096)
        except OSError:
            break
        if not piece:
            break
        said += piece
    out = p.communicate(timeout=LIMIT)[0]
    os.close(parent)
    check(p.returncode == 0 and out.count(b"\n") == 1, p.returncode, out, said)
    return said.decode()


def test_progress_on_a_terminal_only():
    data, to = noise(12 * MB), fresh()
    with Server(x=Content(data, rate=4 * MB)) as s:
        said = on_terminal(s.url("x"), "-o", to)
        check(re.search(r"\rfetching x +\d+%  [\d.]+ MB of 12\.6 MB  [\d.]+ MB/s  0:0\d left", said), said)
        check(said.endswith("\r\033[K"), said[-50:])
        s.content["/x"].rate = None
        check(on_terminal(s.url("x"), "-o", to + "/y", NO_COLOR="1") == "", "NO_COLOR")


# ---- servers that are waited for ----


class Waiting:
    """Fetches that mostly wait, half a minute at most. They begin before all cases, and those that look at them are the last."""

    def __init__(self):
        data, large, self.data, self.to = noise(2 * MB), noise(9 * MB), noise(9 * MB), fresh("waiting")
        self.hopeless = {
            "cut": (Content(data, cut=1000), "the connection was lost"),
            "total": (Content(data, extra_total=5), ""),
            "whole": (Content(data, ranges=False, extra_length=5), "the connection was lost"),
            "more": (Content(data, tail=b"more!"), "contradicts itself about the length"),
            "less": (Content(data, extra_length=5), "contradicts itself about the length"),
            "shift": (Content(large, then=(1, Content(large, shift=1))), "another part of the file"),
            "busy": (Content(data, then=(1, Content(b"", status=503))), "503"),
            "gone": (Content(data, then=(1, Content(data, garbage=b""))), "the connection was lost"),
            "moved": (Content(data, then=(1, Content(b"", status=404))), "not there"),
        }
        self.server = Server(stalls=Content(self.data, stall=MB), **{name: c for name, (c, _) in self.hopeless.items()})
        self.running = {name: self.start(name, "--connections", 1) for name in self.hopeless}
        self.running["stalls"] = self.start("stalls", "--timeout", int(2 * max(1, SLOWNESS / 4)))

    def start(self, name, *args):
        return start(self.server.url(name), "-o", self.to, *args)

    def end(self, name):
        """What it has said, and its exit status."""
        p = self.running.pop(name)
        out, err = p.communicate(timeout=LIMIT + 60)
        return out.decode(), err.decode(), p.returncode

    def close(self):
        for p in self.running.values():
            p.kill()
            p.communicate()
        self.server.__exit__()


def test_server_stalls():
    out, err, status = waiting.end("stalls")
    check(status == 0 and out == waiting.to + "/stalls\n" and not err, status, out, err)
    check(read(waiting.to + "/stalls") == waiting.data, "other bytes")


def test_hopeless_servers_are_given_up():
    for name, (_, why) in waiting.hopeless.items():
        out, err, status = waiting.end(name)
        check(status == (66 if name == "moved" else 74) and not out and err.startswith("quern: ") and err.count("\n") == 1
              and why in err, name, status, out, err)
        check(name not in os.listdir(waiting.to), name, "has its name")


if __name__ == "__main__":
    os.makedirs(path("home"), exist_ok=True)
    waiting = Waiting()
    try:
        run(globals(), "test_" + (sys.argv[5] if len(sys.argv) > 5 else ""))
    finally:
        waiting.close()
