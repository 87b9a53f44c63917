#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""test_service.py: tests `quern serve` as a service: its sandbox, SIGHUP, and how a manager starts and replaces it.

    test_service.py QUERN MODEL UNIT_DIR PROBE SLOWNESS [PREFIX_OF_CASES]

UNIT_DIR holds system/ and user/ with the units as configured. PROBE is sandbox_probe.so, or "none" in a build with a
sanitizer, which has no sandbox. SLOWNESS multiplies the time limits. Each function test_* is a case, whose name is a
sentence that must be true. A case that cannot run on this machine says why, and counts as skipped.
"""
import concurrent.futures
import hashlib
import http.client
import json
import os
import pty
import re
import shutil
import signal
import socket
import ssl
import struct
import subprocess
import sys
import time

from lib.cases import Skipped, check, run, started, until
from lib.files import TMP, linked, path, written

QUERN, MODEL, UNITS, PROBE = sys.argv[1:5]
QUERN = os.path.abspath(QUERN)
SLOWNESS = float(sys.argv[5])
LIMIT = 30 * SLOWNESS  # seconds for one exchange
HERE = os.path.dirname(os.path.abspath(__file__))
PEM, PEM2 = os.path.join(HERE, "http_test.pem"), os.path.join(HERE, "service_test.pem")
EACCES, ENOSYS = 13, 38
ASK = {"prompt": "Once upon a time there was a little girl who had a red ball. " * 10, "max_tokens": 8, "temperature": 0}


class Unix(http.client.HTTPConnection):
    def __init__(self, name):
        super().__init__("localhost", timeout=LIMIT)
        self.name = name

    def connect(self):
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.settimeout(LIMIT)
        self.sock.connect(self.name)


class Server:
    """A running daemon. It has no terminal, whoever runs the tests."""

    def __init__(self, *args, model=MODEL, command=None, wait=True, **popen):
        self.log = open(path(f"log{len(started)}"), "w+b")
        self.sock = path(f"run{len(started)}/quern.sock")
        command = command or [QUERN, "serve", model, "--threads", "2", "--name", "m", "--listen", self.sock, *args]
        self.process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=self.log, start_new_session=True, **popen)
        started.append(self)
        if wait:
            self.wait_for("serving")

    def stderr(self):
        with open(self.log.name, "rb") as f:
            return f.read().decode()

    def wait_for(self, text, n=1):
        until(LIMIT, lambda: self.stderr().count(text) >= n or self.process.poll() is not None, "no", text)
        check(self.stderr().count(text) >= n, "wanted", text, "got", self.stderr())

    def port(self):
        until(LIMIT, lambda: re.search(r"serving .*\n", self.stderr()), "no whole line")
        return int(self.stderr().split("127.0.0.1:")[1].split()[0].rstrip(","))

    def ask(self, target="/v1/completions", body=ASK):
        c = Unix(self.sock)
        c.request("POST" if body else "GET", target, json.dumps(body) if body else None, {"Content-Type": "application/json"})
        r = c.getresponse()
        answer = r.read()
        c.close()
        return r.status, json.loads(answer)

    def stop(self):
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
        self.process.wait(timeout=LIMIT)
        check(self.process.returncode == 0, "status", self.process.returncode, self.stderr()[-3000:])

    def reload(self, text):
        n = self.stderr().count(text)
        self.process.send_signal(signal.SIGHUP)
        self.wait_for(text, n + 1)


# ---- the sandbox ----


def probed(words, *args, **popen):
    """What a daemon found when it tried: {word: errno}, and the daemon."""
    if PROBE == "none":
        raise Skipped("a build with a sanitizer has no sandbox")
    s = Server(*args, **popen, env={**os.environ, "LD_PRELOAD": linked(PROBE), "QUERN_PROBE": " ".join(words)})
    try:
        status = s.ask()[0]
        check(status == 200, "it serves", status)
    except OSError:
        pass
    found = {}
    for line in s.stderr().splitlines():
        if line.startswith("probe: "):
            word, number = line.split()[1:]
            found[word] = int(number)
    return found, s


def has_landlock(s):
    if "Landlock" in s.stderr():
        s.stop()
        raise Skipped(s.stderr().splitlines()[0])


def service_files():
    """A model, keys and a cache in places of their own, and what a daemon is told about them."""
    for name in ("models", "etc", "etc/tls"):
        os.makedirs(path(name), exist_ok=True)
    model = path("models/m.gguf")
    if not os.path.exists(model):
        shutil.copyfile(MODEL, model)
        written("models/secret", "x")
        os.symlink(model, path("link.gguf"))
    keys = written("etc/keys", f"{hashlib.sha256(b'one').hexdigest()} alice\n")
    return model, keys


def test_the_daemon_can_reach_only_its_own_files():
    model, keys = service_files()
    cache = path("cache")
    reach = {f"read:{model}": 0, f"read:{keys}": 0, f"list:{cache}": 0, f"create:{cache}/x": 0, "read:/proc/meminfo": 0}
    never = ["read:/etc/passwd", f"read:{path('models/secret')}", f"list:{path('models')}", f"write:{model}",
             f"create:{path('models')}/x", f"write:{keys}", f"create:{path('etc')}/x", "create:/tmp/quern-x",
             f"read:{linked(MODEL)}", "read:/proc/self/environ", "list:/", f"read:{linked(QUERN)}"]
    found, s = probed([*reach, *never], "--api-keys", keys, "--cache-dir", cache, model=path("link.gguf"))
    has_landlock(s)
    check(found == {**reach, **dict.fromkeys(never, EACCES)}, found)
    check("sandbox" not in s.stderr(), "no gaps", s.stderr())
    s.stop()


def test_the_daemon_makes_no_sockets_or_processes():
    found, s = probed(["socket", "fork"])
    check(found == {"socket": ENOSYS, "fork": ENOSYS}, found, s.stderr())
    for task in os.listdir(f"/proc/{s.process.pid}/task"):
        with open(f"/proc/{s.process.pid}/task/{task}/status") as f:
            status = f.read()
        check("NoNewPrivs:\t1" in status and "Seccomp:\t2" in status, "a thread without a filter", status)
    s.stop()


def test_to_run_a_program_is_the_end_of_it():
    for word in ("exec", "ptrace"):
        found, s = probed([word])
        s.process.wait(timeout=LIMIT)
        check(found == {} and s.process.returncode == -signal.SIGSYS, word, found, s.process.returncode)


def test_without_a_sandbox_all_of_that_is_possible():
    found, s = probed(["read:/etc/passwd", f"create:{path('x')}", "socket", "fork"], "--no-sandbox")
    check(len(found) == 4 and set(found.values()) == {0}, found)
    check("sandbox" not in s.stderr(), s.stderr())
    s.stop()


def test_what_a_daemon_does_works_in_the_sandbox():
    os.mkdir(path("new"))
    for start in range(2):
        s = Server("--cache-dir", path("new/cache"))
        status, answer = s.ask()
        cached = answer["usage"]["prompt_tokens_details"]["cached_tokens"]
        check(status == 200 and (cached >= 64) == (start == 1), "saved and found again", answer)
        s.stop()
        check(not os.path.exists(s.sock), "the socket is removed")
        check(any(f.endswith(".kv") for _, _, names in os.walk(path("new/cache")) for f in names), "saved", s.stderr())
        check("cache" not in s.stderr(), s.stderr())


def test_all_parts_of_a_model_can_be_read():
    def head(no):
        def pair(key, value):
            return struct.pack("<Q", len(key)) + key + struct.pack("<IH", 2, value)
        return b"GGUF" + struct.pack("<IQQ", 3, 0, 2) + pair(b"split.no", no) + pair(b"split.count", 2)

    os.mkdir(path("parts"))
    for no, name in ((0, "00001"), (0, "00002")):  # the second says that it is the first
        with open(path(f"parts/p-{name}-of-00002.gguf"), "wb") as f:
            f.write(head(no))
    r = subprocess.run([QUERN, "serve", path("parts/p-00001-of-00002.gguf"), "--listen", path("parts/sock")],
                       capture_output=True, timeout=LIMIT)
    err = r.stderr.decode()
    check(r.returncode == 65 and "00002-of-00002.gguf" in err and "split.no" in err, r)


# ---- SIGHUP ----


def key_line(secret, name):
    return f"{hashlib.sha256(secret.encode()).hexdigest()} {name}\n"


def status_with(s, secret):
    c = http.client.HTTPConnection("127.0.0.1", s.port(), timeout=LIMIT)
    c.request("GET", "/v1/models", headers={"Authorization": f"Bearer {secret}"})
    status = c.getresponse().status
    c.close()
    return status


def replace(name, text):
    """As editors and key managers do."""
    os.rename(written(name + ".new", text), path(name))


def test_a_hangup_signal_reads_the_keys_again():
    os.makedirs(path("k"), exist_ok=True)
    keys = written("k/keys", key_line("one", "alice"))
    s = Server("--listen", "127.0.0.1:0", "--api-keys", keys)
    check((status_with(s, "one"), status_with(s, "two")) == (200, 401), "before")
    replace("k/keys", key_line("two", "bob"))
    s.reload("quern: reloaded")
    check((status_with(s, "one"), status_with(s, "two")) == (401, 200), "after")
    for bad, why in (("nonsense\n", ":1: "), ("", "no API key"), (key_line("x", "a") * 2, ":2: "),
                     (key_line("x", "a request=5"), "no limit has this name")):
        written("k/keys", bad)
        before = s.stderr().count("\n")
        s.reload("nothing is reloaded: ")
        check(why in s.stderr().splitlines()[-1] and s.stderr().count("\n") == before + 1, "one line", s.stderr())
        check((status_with(s, "one"), status_with(s, "two")) == (401, 200), "the old ones stay", bad)
    os.unlink(keys)
    s.reload("nothing is reloaded: ")
    check("No such file" in s.stderr().splitlines()[-1] and status_with(s, "two") == 200, "no file", s.stderr())
    written("k/keys", key_line("three", "carol"))
    s.reload("quern: reloaded")
    check((status_with(s, "two"), status_with(s, "three")) == (401, 200), "and at last")
    s.stop()


def shown(s):
    """The certificate that a new connection is shown."""
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    with socket.create_connection(("127.0.0.1", s.port()), timeout=LIMIT) as raw:
        with context.wrap_socket(raw) as c:
            return c.getpeercert(True)


def certificate(pem):
    with open(pem) as f:
        text = f.read()
    return ssl.PEM_cert_to_DER_cert(text[text.index("-----BEGIN CERT"):text.index("-----END CERT")] +
                                    "-----END CERTIFICATE-----\n")


def test_a_hangup_signal_reads_the_certificate_again():
    # As ACME clients lay it out: links in one directory, the files in another.
    for name in ("live", "archive"):
        os.mkdir(path(name))
    shutil.copyfile(PEM, path("archive/1.pem"))
    os.symlink("../archive/1.pem", path("live/c.pem"))
    live = path("live/c.pem")
    s = Server("--listen", "127.0.0.1:0", "--tls-cert", live, "--tls-key", live)
    check(shown(s) == certificate(PEM), "before")
    context = ssl.create_default_context(cafile=PEM)
    old = http.client.HTTPSConnection("localhost", s.port(), timeout=LIMIT, context=context)
    old.request("GET", "/health")
    check(old.getresponse().read(), "an old connection")
    shutil.copyfile(PEM2, path("archive/2.pem"))
    os.symlink("../archive/2.pem", path("live/c.new"))
    os.rename(path("live/c.new"), live)
    check(shown(s) == certificate(PEM), "not by itself")
    for _ in range(2):  # the second time nothing is new
        s.reload("quern: reloaded")
        check(shown(s) == certificate(PEM2), "after")
    old.request("GET", "/health")
    check(old.getresponse().read(), "the old connection lives")
    with open(PEM) as a, open(PEM2) as b:  # the certificate of one, the key of the other
        a, b = a.read(), b.read()
    written("archive/2.pem", a[:a.index("-----BEGIN PRIV")] + b[b.index("-----BEGIN PRIV"):])
    for bad in (None, "no PEM at all", ""):
        if bad is not None:
            written("archive/2.pem", bad)
        s.reload("nothing is reloaded: ")
        check("live/c.pem" in s.stderr().splitlines()[-1] and shown(s) == certificate(PEM2), "stays", bad, s.stderr())
    s.stop()


def test_a_hangup_signal_while_it_stops_changes_nothing():
    s = Server("--parallel", "8", "--sessions", "8", "--grace", "600")
    with concurrent.futures.ThreadPoolExecutor(1) as pool:
        ask = {"prompt": "Once", "max_tokens": 200, "ignore_eos": True, "n": 8}
        running = pool.submit(s.ask, "/v1/completions", ask)
        until(LIMIT, lambda: s.ask("/health", None)[1]["running"] == 1, "runs")
        s.process.send_signal(signal.SIGTERM)
        for _ in range(5):
            time.sleep(0.02)
            s.process.send_signal(signal.SIGHUP)
        status, answer = running.result()
        check(status == 200 and [c["finish_reason"] for c in answer["choices"]] == ["length"] * 8, answer)
    s.stop()


def test_the_terminal_hanging_up_is_the_end():
    parent, child = pty.openpty()
    log = open(path("log-terminal"), "wb")

    def own_terminal():
        os.setsid()
        os.close(os.open(os.ttyname(child), os.O_RDWR))  # the first one that a session opens is its terminal

    sock = path("terminal.sock")
    p = subprocess.Popen([QUERN, "serve", MODEL, "--threads", "1", "--listen", sock], stdin=child, stdout=subprocess.DEVNULL,
                         stderr=log, preexec_fn=own_terminal)
    os.close(child)
    try:
        until(LIMIT, lambda: b"serving" in open(log.name, "rb").read() or p.poll() is not None, "starts")
        os.close(parent)
        check(p.wait(timeout=LIMIT) == 0, "ends in order", p.returncode)
        check(not os.path.exists(sock), "and removes its socket")
    finally:
        if p.poll() is None:
            p.kill()
            p.wait()
        log.close()


# ---- service managers ----


def hold(listener, *args, notify=None):
    """What a service manager does: starts a daemon with the socket, which stays the manager's."""
    shell = 'export LISTEN_PID=$$; exec 3<&%d "$@"' % listener.fileno()
    env = {**os.environ, "LISTEN_FDS": "1", **({"NOTIFY_SOCKET": notify} if notify else {})}
    command = ["sh", "-c", shell, "sh", QUERN, "serve", MODEL, "--threads", "1", "--name", "m", *args]
    return Server(command=command, wait=False, env=env, pass_fds=[listener.fileno()])


def test_a_daemon_is_replaced_without_refusing_anybody():
    with socket.socket(socket.AF_UNIX) as l:
        l.bind(path("held.sock"))
        l.listen(1024)
        stop, results = [], []

        def client():
            while not stop:
                c = Unix(path("held.sock"))
                try:
                    c.request("POST", "/v1/completions", json.dumps({"prompt": "Once", "max_tokens": 2}),
                              {"Content-Type": "application/json"})
                    results.append(c.getresponse().status)
                except OSError as e:
                    results.append(repr(e))
                c.close()

        old = hold(l)
        old.wait_for("serving")
        with concurrent.futures.ThreadPoolExecutor(4) as pool:
            clients = [pool.submit(client) for _ in range(4)]
            for _ in range(3):
                n = len(results)
                until(LIMIT, lambda: len(results) > n + 8, "answers")
                old.stop()
                old = hold(l)
                old.wait_for("serving")
            n = len(results)
            until(LIMIT, lambda: len(results) > n + 8, "answers")
            stop.append(1)
        check(set(results) == {200}, {r: results.count(r) for r in set(results)})
        check(len(results) > 30, len(results))
        old.stop()
        check(os.path.exists(path("held.sock")), "the socket is the manager's")


def test_the_first_connection_starts_the_daemon():
    tool = shutil.which("systemd-socket-activate")
    if not tool:
        raise Skipped("systemd-socket-activate is not installed")
    sock = path("activated.sock")
    s = Server(command=[tool, "--listen", sock, "--fdname", "quern", QUERN, "serve", MODEL, "--threads", "1"], wait=False)
    s.sock = sock
    until(LIMIT, lambda: os.path.exists(sock), "listens")
    time.sleep(0.1)
    check("serving" not in s.stderr(), "not before somebody comes")
    check(s.ask()[0] == 200, "the one who started it is answered", s.stderr())
    check("descriptor 3" in s.stderr(), s.stderr())
    s.stop()


def test_the_manager_is_told_through_the_sandbox():
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as n, socket.socket(socket.AF_UNIX) as l:
        n.bind("\0" + path("notify"))  # an abstract name, which Landlock keeps new connections from
        n.settimeout(LIMIT)
        l.bind(path("told.sock"))
        l.listen(8)
        s = hold(l, notify="@" + path("notify"))
        check(n.recv(100) == b"READY=1", "ready", s.stderr())
        s.process.send_signal(signal.SIGTERM)
        check(n.recv(100) == b"STOPPING=1", "stopping", s.stderr())
        s.stop()
        check("notifying" not in s.stderr(), s.stderr())


def units(kind):
    """The units with the program that was built, in a directory of their own."""
    os.makedirs(path(kind), exist_ok=True)
    for name in ("quern.service", "quern.socket"):
        with open(os.path.join(UNITS, kind, name)) as f:
            text = f.read()
        if name == "quern.service":
            start = next(l for l in text.splitlines() if l.startswith("ExecStart="))
            check(start.split()[0].endswith("/quern"), start)
            text = text.replace(start.split()[0], "ExecStart=" + linked(QUERN))
        written(f"{kind}/{name}", text)
    return [path(f"{kind}/quern.service"), path(f"{kind}/quern.socket")]


def test_systemd_understands_the_units():
    if not shutil.which("systemd-analyze"):
        raise Skipped("systemd-analyze is not installed")
    for kind in ("system", "user"):
        r = subprocess.run(["systemd-analyze", f"--{kind}", "verify", "--man=no", *units(kind)], capture_output=True,
                           timeout=LIMIT, env={**os.environ, "XDG_RUNTIME_DIR": TMP.name, "HOME": TMP.name})
        check(r.returncode == 0 and not r.stderr, kind, r)
        for unit in units(kind):  # what it would do that we do not understand
            with open(unit) as f:
                for line in f:
                    if line.startswith("ExecStart="):
                        args = [a for a in line.split()[1:] if not a.startswith("$")]
                        check(args == ["serve", "--cache-dir", "%C/quern"], args)
    r = subprocess.run(["systemd-analyze", "security", "--offline=yes", "--threshold=15", units("system")[0]],
                       capture_output=True, timeout=LIMIT)
    check(r.returncode == 0, "its exposure is above 1.5", r.stdout.decode()[-300:], r.stderr)


run(globals(), sys.argv[6] if sys.argv[6:] else "test_")
