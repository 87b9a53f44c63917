#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""test_places.py: tests that a daemon, a remote with an API key, and this process give the same bytes as an answer.

    test_places.py QUERN STORY_MODEL CHAT_MODEL SLOWNESS PROBE [PREFIX_OF_CASES]

PROBE (probe/place_probe.c) answers a request with the same functions as the commands. Its socket of the system's daemon is
"system.sock" in the working directory. Each function test_* is a case, whose name is a sentence that must be true.
"""
import hashlib
import http.server
import json
import os
import re
import signal
import socket
import subprocess
import sys
import threading

PROBE, QUERN = os.path.abspath(sys.argv.pop(5)), os.path.abspath(sys.argv[1])

from lib.cases import check
from lib.files import path, written
from test_serve import CHAT as CHAT_MODEL
from test_serve import CHAT_ASK, LIMIT, Server, main

PEM = os.path.join(os.path.dirname(os.path.abspath(__file__)), "http_test.pem")
CHAT = os.path.abspath(CHAT_MODEL)
KEY = "sesame-open-9"
ENV = {k: v for k, v in os.environ.items() if not k.startswith(("QUERN_", "XDG_", "SSL_")) and not k.lower().endswith("_proxy")}
LONG = {**CHAT_ASK, "ignore_eos": True, "max_tokens": 400, "n": 32}  # answers, so that it takes a while


def secret(name, text):
    """A file that nobody else can read."""
    return written(name, text, 0o600)


def probe(*args, ask=CHAT_ASK, status=0, **env):
    """What it prints, and says. KEY is never among it."""
    p = subprocess.run([PROBE, *args], input=json.dumps(ask).encode(), capture_output=True, timeout=LIMIT, cwd=path("."),
                       env={**ENV, "HOME": path("."), "QUERN_THREADS": "1", **env})
    said = p.stderr.decode()
    check(p.returncode == status, args, "status", p.returncode, said)
    check(KEY not in said and KEY not in p.stdout.decode(), args, "the key is told", said)
    check(not p.returncode or len(re.findall(r"^quern: (?!warning)", said, re.M)) == 1, args, "one line", said)
    return p.stdout, said


def key_file():
    return secret("key", KEY + "\n")


def behind_key(*args):
    return Server(CHAT, "--api-keys", secret("keys", hashlib.sha256(KEY.encode()).hexdigest() + " alice\n"), *args)


def remote(s, scheme="http"):
    return "--remote", f"{scheme}://localhost:{s.port}/v1", "--remote-key-file", key_file()


def stale(name):
    os.makedirs(os.path.dirname(name), exist_ok=True)
    with socket.socket(socket.AF_UNIX) as s:
        s.bind(name)
    return name


def runtime(s):
    """An XDG_RUNTIME_DIR in which the daemon's socket is the user's."""
    d = os.path.dirname(s.sock) + "-xdg"
    os.makedirs(d + "/quern", exist_ok=True)
    if os.path.lexists(d + "/quern/quern.sock"):
        os.unlink(d + "/quern/quern.sock")
    os.symlink(s.sock, d + "/quern/quern.sock")
    return d


# ---- the same bytes ----


def test_all_places_answer_the_same_bytes():
    daemon, far, tls = Server(CHAT), behind_key(), behind_key("--tls-cert", PEM, "--tls-key", PEM)
    asks = [{**CHAT_ASK, "seed": seed, "max_tokens": 60, "ignore_eos": True} for seed in (1, 2)]
    asks += [{**CHAT_ASK, "temperature": 0, "max_tokens": 30}, {**CHAT_ASK, "messages": [
        {"role": "system", "content": "Sag's auf Deutsch: äöü €"}, {"role": "user", "content": "line\nline\t\x01" * 50}]}]
    for ask in asks:
        expected = daemon.post("/v1/chat/completions", ask).json["choices"][0]["message"]["content"].encode()
        check(expected, "an answer")
        for args, env, name in [(("--socket", daemon.sock), {}, "unix:"), (("--in-process", "-m", CHAT), {}, "this process"),
                                (remote(far), {}, "http://"), (remote(tls, "https"), {"SSL_CERT_FILE": PEM}, "https://")]:
            out, said = probe(*args, ask=ask, **env)
            check(out == expected, args, "answers", out, "not", expected)
            check(said.startswith("place: " + name), said)
    for s in (daemon, far, tls):
        s.stop()


def test_the_filter_answers_the_same_bytes_at_all_places():
    daemon, far, tls = Server(CHAT), behind_key(), behind_key("--tls-cert", PEM, "--tls-key", PEM)
    text = ("a line of a log, with äöü and a tab\t\n" * 20).encode()
    env = {**ENV, "HOME": path("."), "SSL_CERT_FILE": PEM, "QUERN_CONFIG": ""}
    for options in (["--seed", "1"], ["--seed", "2", "--top-k", "5"], ["--temperature", "0"], ["--seed", "3", "-p", "diagnose"]):
        answers = []
        for place in (["--socket", daemon.sock], ["--in-process", "-m", CHAT], remote(far), remote(tls, "https")):
            p = subprocess.run([QUERN, *place, *options, "-n", "40", "What", "happened?"], input=text, capture_output=True,
                               timeout=LIMIT, env=env)
            check(p.returncode == 0, place, options, p.stderr.decode())
            answers.append(p.stdout)
        check(len(answers[0]) > 20 and len(set(answers)) == 1, options, *answers)
    for s in (daemon, far, tls):
        s.stop()


def test_a_second_question_finds_the_first_in_the_cache():
    daemon, far = Server(CHAT), behind_key()
    ask = {**CHAT_ASK, "max_tokens": 20}
    for args in (("--socket", daemon.sock), ("--in-process", "-m", CHAT), remote(far)):
        out, said = probe("--twice", *args, ask=ask)
        cached = [int(n) for n in re.findall(r"cached (\d+)", said)]
        check(len(cached) == 2 and cached[0] == 0 < cached[1], args, said)
        check(out[:len(out) // 2] == out[len(out) // 2:], "twice the same", out)
    daemon.stop()
    far.stop()


def test_all_places_count_the_same_tokens():
    daemon, far = Server(CHAT), behind_key()
    expected = daemon.post("/v1/chat/render", CHAT_ASK).json["count"]
    for args in (("--socket", daemon.sock), ("--in-process", "-m", CHAT), remote(far)):
        check(probe("--count", *args)[0] == b"%d\n" % expected, args, expected)
    daemon.stop()
    far.stop()


# ---- the order ----


def test_the_order_of_places():
    a, b, far = Server(CHAT), Server(CHAT), behind_key()
    xdg, link = runtime(a), path("system.sock")
    os.symlink(b.sock, link)
    everything = "--models", os.path.dirname(CHAT)
    away = {"QUERN_REMOTE": f"http://localhost:{far.port}", "QUERN_REMOTE_KEY_FILE": key_file()}
    named = {"QUERN_SOCKET": b.sock, "XDG_RUNTIME_DIR": xdg, **away}
    check(f"unix:{b.sock}" in probe(*everything, **named)[1], "the socket that is named")
    check(f"unix:{a.sock}" in probe(*everything, "--socket", a.sock, **named)[1], "a flag before the environment")
    check(f"unix:{xdg}/quern/quern.sock" in probe(*everything, XDG_RUNTIME_DIR=xdg, **away)[1], "the user's")
    check("unix:system.sock" in probe(*everything, **away)[1], "the system's")
    check("http://" in probe(*remote(far), **named)[1], "a remote that a flag names, before all of these")
    check(f"unix:{a.sock}" in probe(*remote(far), "--socket", a.sock, **named)[1], "but not before a socket that a flag names")
    nothing = {"QUERN_SOCKET": "", "QUERN_MODEL": "", "XDG_RUNTIME_DIR": xdg, **away}
    check(f"unix:{xdg}/quern/quern.sock" in probe(*everything, **nothing)[1], "a variable that is set to nothing")
    os.unlink(link)
    stale(link)
    check("http://" in probe(*everything, **away)[1], "the remote, where nobody listens on the sockets that are there")
    name = os.path.basename(CHAT).removesuffix(".gguf")
    check("this process" in probe("--models", os.path.dirname(CHAT), "-m", name)[1], "and with nothing else, here")
    check("this process" in probe("--in-process", "-m", CHAT, **named)[1], "or when it is said")
    os.unlink(link)
    for s in (a, b, far):
        s.stop()


def test_what_was_named_is_used_or_nothing():
    s = Server(CHAT)
    xdg, dead = runtime(s), stale(path("dead.sock"))
    for name in (dead, path("nothing.sock")):
        check(name in probe("--socket", name, status=69, XDG_RUNTIME_DIR=xdg)[1], "named and dead")
        probe(status=69, XDG_RUNTIME_DIR=xdg, QUERN_SOCKET=name)
    probe("--socket", "x" * 300, status=64)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{free.getsockname()[1]}"
        check(url in probe("--remote", url, "-m", "m", "--models", os.path.dirname(CHAT), status=74)[1], "a remote that is down")
    s.stop()


def test_what_no_daemon_can_do_is_refused():
    s, far = Server(CHAT), behind_key()
    for flag in ("--ctx", "512"), ("--threads", "1"), ("--kv", "f32"), ("--pre", "qwen2"), ("--draft-model", "x"):
        for place in ("--socket", s.sock), remote(far):
            said = probe(*place, *flag, status=64)[1]
            check(f"{flag[0]} is for a model in this process" in said and "--in-process" in said, said)
        name = "QUERN_PROBE_" + flag[0][2:].upper().replace("-", "_")
        check("unix:" in probe("--socket", s.sock, **{name: flag[1]})[1], "a setting for all cases is none for this one")
    check("this process" in probe("--in-process", "-m", CHAT, "--ctx", "512")[1])
    s.stop()
    far.stop()


def test_a_file_is_loaded_here():
    s = Server(CHAT)
    xdg = runtime(s)
    check("this process" in probe("-m", CHAT, XDG_RUNTIME_DIR=xdg)[1], "also while a daemon runs")
    check("--in-process" in probe("-m", CHAT, "--socket", s.sock, status=64)[1], "but not where a daemon was chosen")
    check("unix:" in probe("-m", "m", XDG_RUNTIME_DIR=xdg)[1], "a name is the daemon's")
    check("'other'" in probe("-m", "other", XDG_RUNTIME_DIR=xdg, status=64)[1], "and if it has no such, that is told")
    probe("-m", path("missing.gguf"), XDG_RUNTIME_DIR=xdg, status=64)
    probe("-m", path("missing.gguf"), status=66)
    s.stop()


# ---- remotes ----


class Other(http.server.BaseHTTPRequestHandler):
    """A server that is not Quern's, has two models, and tells which one it was asked for."""

    def answer(self, kind, text):
        self.send_response(200)
        self.send_header("Content-Type", kind)
        self.end_headers()
        self.wfile.write(text.encode())

    def do_GET(self):
        self.answer("application/json", json.dumps({"data": [{"id": "a/1"}, {"id": "b/2"}]}))

    def do_POST(self):
        model = json.loads(self.rfile.read(int(self.headers["Content-Length"])))["model"]
        choice = {"index": 0, "delta": {"content": model}, "finish_reason": "stop"}
        self.answer("text/event-stream", "data: " + json.dumps({"choices": [choice]}) + "\n\ndata: [DONE]\n\n")

    def log_message(self, *args):
        pass


def test_a_remotes_only_model_need_not_be_named():
    far = behind_key()
    out, said = probe(*remote(far))
    check(out and "place: http://" in said, said)
    far.stop()
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Other) as other:
        threading.Thread(target=other.serve_forever).start()
        url = f"http://127.0.0.1:{other.server_port}"
        check("2 models" in probe("--remote", url, status=64)[1], "of two it has to be")
        check(probe("--remote", url, "-m", "b/2")[0] == b"b/2", "a name with a slash is no file")
        other.shutdown()


def test_keys():
    far = behind_key()
    url = "--remote", f"http://127.0.0.1:{far.port}"
    probe(*url, "--remote-key-file", secret("two", KEY + "\nsecond line\n"))
    probe(*url, "--remote-key-file", secret("bare", KEY))
    check("warning" in probe(*url, "--remote-key-file", written("open", KEY, 0o644))[1], "others can read it")
    check("warning" not in probe(*url, "--remote-key-file", key_file())[1], "nobody else can")
    probe(*url, "--remote-key-command", f"cat {path('key')}")
    probe(*url, "--remote-key-command", f"cat >/dev/null; cat {path('key')}; yes")  # our input is not its; too much is cut
    probe(*url, status=77)
    probe(*url, "--remote-key-file", key_file(), QUERN_REMOTE_KEY_COMMAND="")
    for args, status in [(("--remote-key-file", secret("wrong", "other")), 77), (("--remote-key-file", path("none")), 66),
                         (("--remote-key-file", secret("empty", "")), 65), (("--remote-key-file", secret("blank", "\n" + KEY)), 65),
                         (("--remote-key-file", "/dev/zero"), 65), (("--remote-key-file", path(".")), 66),
                         (("--remote-key-file", secret("words", "two " + KEY)), 65),
                         (("--remote-key-command", f"echo {KEY}; exit 3"), 66), (("--remote-key-command", "kill -9 $$"), 66),
                         (("--remote-key-command", "true"), 65), (("--remote-key-command", "/no/such/program 2>/dev/null"), 66),
                         (("--remote-key-file", key_file(), "--remote-key-command", "true"), 64)]:
        probe(*url, *args, status=status)
    far.stop()


def test_a_key_goes_to_nobody_else():
    tls = behind_key("--tls-cert", PEM, "--tls-key", PEM)
    check("certificate" in probe(*remote(tls, "https"), status=69)[1], "a certificate that nobody has signed")
    probe("--remote", f"https://127.0.0.2:{tls.port}", "--remote-key-file", key_file(), status=69, SSL_CERT_FILE=PEM)
    check("https://" in probe("--remote", "http://quern.example", "--remote-key-file", key_file(), status=64)[1], "no plain text")
    tls.stop()
    with socket.create_server(("127.0.0.1", 0)) as there, socket.create_server(("127.0.0.1", 0)) as elsewhere:
        there.settimeout(LIMIT)

        def redirect():
            c = there.accept()[0]
            c.settimeout(LIMIT)
            head = b""
            while b"\r\n\r\n" not in head:
                head += c.recv(65536)
            check(b"Bearer " + KEY.encode() in head, head)
            c.sendall(b"HTTP/1.1 307 Go\r\nLocation: http://127.0.0.1:%d/\r\nContent-Length: 0\r\n\r\n" % elsewhere.getsockname()[1])
            c.close()

        t = threading.Thread(target=redirect)
        t.start()
        url = f"http://127.0.0.1:{there.getsockname()[1]}"
        said = probe("--remote", url, "-m", "m", "--remote-key-file", key_file(), status=74,
                     http_proxy=f"http://127.0.0.1:{elsewhere.getsockname()[1]}")[1]
        t.join()
        check("307" in said, said)
        elsewhere.setblocking(False)
        try:
            elsewhere.accept()
            check(False, "somebody came to where a redirection, or a proxy, points")
        except BlockingIOError:
            pass


# ---- leaving ----


def test_who_leaves_ends_the_request():
    many = "--parallel", "32", "--sessions", "32"
    daemon, far = Server(CHAT, *many), behind_key(*many)
    for s, args in ((daemon, ("--socket", daemon.sock)), (far, remote(far))):
        for how in ("killed", "reader gone"):
            p = subprocess.Popen([PROBE, *args], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
                                 env={**ENV, "HOME": path(".")})
            p.stdin.write(json.dumps(LONG).encode())
            p.stdin.close()
            check(p.stdout.read(1), "it has begun")
            check(s.metric("requests_running") == 1, "and runs")
            if how == "killed":
                p.send_signal(signal.SIGKILL)
            p.stdout.close()
            p.wait(timeout=LIMIT)
            s.wait_for("requests_running", 0)
        check(s.metric('requests_total{model="m",finish="cancelled"}') == 2, args)
    daemon.stop()
    far.stop()


main(globals())
