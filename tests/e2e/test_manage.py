#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""test_manage.py: tests the commands for models on disk and for the daemon: models, rm, ps, start, stop.

    test_manage.py QUERN STORY SMALL SLOWNESS [PREFIX_OF_CASES]

STORY is a model that ends its texts, SMALL a tiny one. Each function test_* is a case, whose name is a sentence that
must be true. A case has a HOME and a runtime folder of its own. Daemons that it has started are ended after it.
"""
import contextlib
import functools
import json
import os
import pty
import re
import shlex
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time

from lib.cases import SANITIZERS, check, run, until
from lib.terminal import Terminal

QUERN, STORY, SMALL = (os.path.abspath(p) for p in sys.argv[1:4])
SLOWNESS = float(sys.argv[4])
LIMIT = 60 * SLOWNESS  # seconds for one command
TMP = tempfile.TemporaryDirectory(prefix="quern-manage-")
NO_TOOLS = os.path.join(TMP.name, "bin")  # in PATH: no systemctl, unless a case puts one there
os.mkdir(NO_TOOLS)
KEPT = ".cache/quern/ceilings.json"


class Home:
    """A user of a machine without systemd. If measured, `quern models` finds what all cases measure once."""

    def __init__(self, measured=True):
        self.path = tempfile.mkdtemp(dir=TMP.name)
        self.env = SANITIZERS | {"PATH": NO_TOOLS, "HOME": self.path, "XDG_RUNTIME_DIR": self.file("run")}
        os.mkdir(self.file("run"))
        os.mkdir(self.file("models"))
        self.pids = set()
        self.lacks_ceilings = measured

    def file(self, *names):
        return os.path.join(self.path, *names)

    def model(self, name, source=STORY):
        shutil.copyfile(source, self.file("models", name))
        return self.file("models", name)

    def write(self, name, text):
        os.makedirs(os.path.dirname(self.file(name)), exist_ok=True)
        with open(self.file(name), "w") as f:
            f.write(text)
        return self.file(name)

    def quern(self, *args, **more):
        if args[0] == "models" and self.lacks_ceilings:
            self.lacks_ceilings = False
            self.write(KEPT, ceilings())
        more.setdefault("env", self.env)
        more.setdefault("stdin", subprocess.DEVNULL)
        r = subprocess.run([QUERN, *args], stdout=subprocess.PIPE, stderr=subprocess.PIPE, timeout=LIMIT, cwd=self.path, **more)
        r.out, r.err = r.stdout.decode(), r.stderr.decode()
        self.pids |= {int(p) for p in re.findall(r"pid (\d+)", r.err)}
        return r

    def expect(self, status, text, *args, **more):
        r = self.quern(*args, **more)
        check(r.returncode == status and text in r.out + r.err, args, "wanted", status, text, "got", r.returncode, r.out, r.err)
        return r

    def models(self, *args):
        r = self.expect(0, "", "models", "--json", *args)
        return {m["name"]: m for m in json.loads(r.out)["models"]}

    def end(self):
        for pid in self.pids:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)


@functools.cache
def ceilings():
    """What the first `quern models` measures and keeps. It takes seconds, which the cases need not repeat."""
    h = Home(measured=False)
    h.model("small.gguf", SMALL)
    h.models()
    with open(h.file(KEPT)) as f:
        return f.read()


@contextlib.contextmanager
def home(measured=True):
    h = Home(measured)
    try:
        yield h
    finally:
        h.end()


def is_running(pid):
    try:
        with open(f"/proc/{pid}/stat") as f:
            return f.read().rsplit(")", 1)[1].split()[0] != "Z"
    except FileNotFoundError:
        return False


def parts(h, name, n):
    """A model in n files, of which none is sound."""
    return [h.write(f"models/{name}-{i:05}-of-{n:05}.gguf", "x" * i) for i in range(1, n + 1)]


def folder(h, name):
    h.write(f"models/{name}/config.json", "{}")
    h.write(f"models/{name}/model.safetensors", "x" * 1000)
    return h.file("models", name)


# ---- models ----


def test_models_are_listed_with_what_they_are():
    with home() as h:
        h.model("story.gguf")
        h.model("small.gguf", SMALL)
        m = h.models()
        check(set(m) == {"small", "story"}, m)
        story = m["story"]
        check(story["architecture"] == "llama" and story["type"] == "Q8_0" and story["fits"] == "fits", story)
        check(14e6 < story["parameters"] < 16e6 and story["bytes"] == os.path.getsize(STORY), story)
        check(story["memory_bytes"] > story["bytes"] and story["tokens_per_second"] > 1 and not story["default"], story)
        table = h.quern("models").out.splitlines()
        check(len(table) == 3 and table[0].split() == "NAME FAMILY PARAMS SIZE TYPE AT MOST FITS".split(), table)
        check(table[2].split()[:3] == ["story", "llama", "15.2M"] and table[2].endswith("yes"), table)
        check(len({line.index(w) for line, w in zip(table[1:], ("qwen3", "llama"))}) == 1, "columns line up", table)


def test_what_is_not_sound_is_listed_with_the_reason():
    with home() as h:
        h.model("story.gguf")
        h.write("models/bad.gguf", "junk")
        with open(STORY, "rb") as f:
            h.write("models/cut.gguf", "")
            with open(h.file("models/cut.gguf"), "wb") as cut:
                cut.write(f.read(100000))
        h.write("models/evil\033[31m\nname.gguf", "junk")
        h.write("models/part.gguf.part", "junk")
        m = h.models()
        check(set(m) == {"bad", "cut", "story", "evil\033[31m\nname"}, m)
        check(m["bad"]["fits"] == "unusable" and "not a GGUF file" in m["bad"]["error"] and "tokens_per_second" not in m["bad"], m)
        check("error" in m["cut"] and "error" not in m["story"], m)
        out = h.quern("models").out
        check("\033" not in out and "evil\\x1B[31m\\x0Aname" in out and len(out.splitlines()) == 5, out)


def test_wide_names_line_up():
    with home() as h:
        h.model("故事.gguf")
        h.model("story.gguf")
        lines = h.quern("models").out.splitlines()
        check(lines[1].index("llama") == lines[2].index("llama") + 2, lines)  # two letters of two cells each


def test_the_default_has_a_star():
    with home() as h:
        h.model("a.gguf")
        check(h.models()["a"]["default"], "the only one is")
        h.model("b.gguf")
        check(not any(m["default"] for m in h.models().values()), "of two none is")
        check(h.models("-m", "b")["b"]["default"], "the one that is named is")
        h.env["QUERN_MODEL"] = "a"
        check(h.quern("models").out.splitlines()[1].startswith("*  a "), "a star")
        h.env["QUERN_MODEL"] = "c"
        h.expect(0, "no model 'c'", "models")


def test_no_models_are_no_error():
    with home() as h:
        h.expect(0, "quern pull", "models")
        os.rmdir(h.file("models"))
        h.expect(0, "quern pull", "models")
        h.expect(66, "'nowhere'", "models", "--models", "nowhere")
        check(h.models() == {}, "JSON of none")
        h.expect(0, "it has no model: get one with quern pull", "start")
        h.expect(0, "", "stop")


def measures(h):
    """Whether `quern models` begins to measure the machine, which a terminal is told. It is ended there."""
    t = Terminal([QUERN, "models"], h.env, LIMIT, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
    end = time.monotonic() + LIMIT
    while b"measuring this machine" not in t.seen and t.read(end):
        pass
    begun = b"measuring this machine" in t.seen
    if not begun:
        check(t.wait() == 0, t.all)
    t.close()
    return begun


def test_the_machine_is_measured_once():
    with home(measured=False) as h:
        h.model("small.gguf", SMALL)

        def rate():
            return h.models()["small"]["tokens_per_second"]

        check(measures(h), "what is not kept is measured")
        c = json.loads(ceilings())
        for k in ("read_gbs", "int8_gmacs", "f32_gmacs"):
            check(c[k] > 0, c)
            c[k] = 1e-3
        h.write(KEPT, json.dumps(c))
        check(rate() < 10 and not measures(h), "what is in the file is believed")
        for wrong in ({"cpu": "another"}, {"threads": 1000}, {"measured": c["measured"] - 31 * 86400}, {"read_gbs": -1}, {"level": 3}):
            h.write(KEPT, json.dumps({**c, **wrong}))
            check(measures(h), "another machine's, an old or an odd one is not", wrong)
        h.write(KEPT, "{")
        check(rate() > 10 and not measures(h), "nor what is no JSON: it is measured, and that is kept")
        h.write(KEPT, json.dumps(c))
        check(h.models("--refresh")["small"]["tokens_per_second"] > 10, "--refresh measures")


def test_a_home_that_cannot_be_written_is_no_error():
    with home(measured=False) as h:
        h.model("small.gguf", SMALL)
        h.write(".cache", "a file")  # where a folder would have to be made; root may write into all others
        check(h.models()["small"]["tokens_per_second"] > 0, "measured each time")
        check("small" in h.quern("models", "--models", h.file("models"), env=SANITIZERS | {"PATH": NO_TOOLS}).out, "and without a HOME")
        h.expect(0, "quern pull", "models", env=SANITIZERS | {"PATH": NO_TOOLS})


# ---- rm ----


def test_rm_removes_a_model():
    with home() as h:
        a, b = h.model("a.gguf", SMALL), h.model("b.gguf", SMALL)
        h.expect(0, "", "rm", "--yes", "a")
        check(not os.path.exists(a) and os.path.exists(b), os.listdir(h.file("models")))
        h.expect(0, "", "rm", "-y", b)
        h.expect(66, "no model 'b'", "rm", "--yes", "b")


def test_rm_removes_all_parts_or_nothing_of_others():
    with home() as h:
        big, other = parts(h, "big", 3), parts(h, "bigger", 2)
        h.expect(0, "", "rm", "--yes", "big")
        check(not any(map(os.path.exists, big)) and all(map(os.path.exists, other)), os.listdir(h.file("models")))
        h.expect(66, "'nothing'", "rm", "--yes", "bigger", "nothing")
        check(all(map(os.path.exists, other)), "one that is not there: none goes")


def test_rm_asks_at_a_terminal():
    with home() as h:
        a = h.model("a.gguf", SMALL)
        h.expect(64, "--yes", "rm", "a")
        check(os.path.exists(a), "without a terminal it stays")
        for answer, stays, status in (b"\n", True, 77), (b"n\n", True, 77), (b"\x04", True, 77), (b"y\n", False, 0):
            main, sub = pty.openpty()
            p = subprocess.Popen([QUERN, "rm", "a"], stdin=sub, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=h.env)
            os.write(main, answer)
            out, err = p.communicate(timeout=LIMIT)
            os.close(main)
            os.close(sub)
            check(b"remove 1 file, " in err and b"[y/N]" in err and a.encode() in out, out, err)
            check(os.path.exists(a) == stays and p.returncode == status, answer, p.returncode)


def test_rm_of_a_folder_leaves_what_is_not_the_models():
    with home() as h:
        hf = folder(h, "hf")
        h.expect(0, "", "rm", "--yes", "hf")
        check(not os.path.exists(hf), "an empty folder goes")
        hf = folder(h, "hf")
        h.write("models/hf/diary.txt", "dear")
        h.expect(0, "'" + hf + "' stays", "rm", "--yes", hf + "/")
        check(os.listdir(hf) == ["diary.txt"], os.listdir(hf))


def test_rm_follows_no_link():
    with home() as h:
        kept = h.write("kept.gguf", "x")
        os.symlink(kept, h.file("models/link.gguf"))
        h.write("elsewhere/config.json", "{}")
        os.symlink(h.file("elsewhere"), h.file("models/far"))
        hf = folder(h, "hf")
        os.symlink(h.write("kept.safetensors", "x"), os.path.join(hf, "more.safetensors"))
        h.expect(0, "", "rm", "--yes", "link", "far", "hf")
        check(os.listdir(h.file("models")) == [], os.listdir(h.file("models")))
        for name in "kept.gguf", "elsewhere/config.json", "kept.safetensors":
            check(os.path.exists(h.file(name)), name, "stays")
        os.symlink(h.file("elsewhere"), h.file("models/far"))
        h.expect(0, "", "rm", "--yes", h.file("models/far/"))
        check(os.path.exists(h.file("elsewhere/config.json")) and not os.path.lexists(h.file("models/far")), "a slash behind it")


def test_rm_removes_models_only():
    with home() as h:
        notes, empty = h.write("notes.txt", "x"), h.file("empty")
        os.mkdir(empty)
        h.expect(66, "is not a model", "rm", "--yes", notes)
        h.expect(66, "is not a model", "rm", "--yes", empty)
        check(os.path.exists(notes) and os.path.exists(empty), "they stay")


def test_rm_of_what_is_served_takes_force():
    with home() as h:
        a, b = h.model("a.gguf", SMALL), h.model("b.gguf", SMALL)
        h.expect(0, "the daemon runs", "start", "other=models/a.gguf")  # another name, a relative path
        h.expect(75, "is served by the daemon", "rm", "--yes", "a")
        check(os.path.exists(a), "it stays")
        h.expect(0, "", "rm", "--yes", "b")
        h.expect(0, "", "rm", "--yes", "--force", "a")
        check(not os.path.exists(a) and not os.path.exists(b), "they are gone")
        h.expect(0, "", "stop")


# ---- ps, start, stop ----


def test_without_a_daemon_there_is_none():
    with home() as h:
        for command in "ps", "stop":
            h.expect(69, "no daemon runs: nobody listens on " + h.file("run/quern/quern.sock"), command)
            h.expect(69, "nobody listens on the socket '/nowhere/q.sock'", command, "--socket", "/nowhere/q.sock")
        os.mkdir(h.file("run/quern"))
        stale = socket.socket(socket.AF_UNIX)
        stale.bind(h.file("run/quern/quern.sock"))
        stale.close()
        h.expect(69, "no daemon runs", "ps")
        h.model("small.gguf", SMALL)
        h.expect(0, "the daemon runs", "start")
        h.expect(0, "small", "ps")
        h.expect(0, "", "stop")


def ask(path, body):
    s = socket.socket(socket.AF_UNIX)
    s.settimeout(LIMIT)
    s.connect(path)
    text = json.dumps(body)
    s.sendall(f"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
              f"Content-Length: {len(text)}\r\nConnection: close\r\n\r\n{text}".encode())
    return s


def test_a_daemon_is_started_shown_and_stopped():
    with home() as h:
        h.model("story.gguf")
        r = h.expect(0, "the daemon runs: pid ", "start", "story", "--threads", "2")
        check(r.out == "", "standard output is empty", r.out)
        (pid,) = h.pids
        sock = h.file("run/quern/quern.sock")
        check(is_running(pid) and os.getsid(pid) == pid and os.readlink(f"/proc/{pid}/fd/0") == "/dev/null", "in the background")
        s = ask(sock, {"prompt": "Once upon a time", "max_tokens": 20, "temperature": 0})
        while s.recv(65536):
            pass
        r = h.expect(0, "pid " + str(pid), "ps")
        check(re.search(r"\nstory +loaded +[\d.]+ MiB +0 +0 +1 +20 ", r.out) and re.search(r"\ns_[0-9a-f]{16} +story +", r.out), r.out)
        j = json.loads(h.quern("ps", "--json").out)
        check(j["socket"] == sock and j["status"]["pid"] == pid and j["status"]["models"][0]["id"] == "story", j)
        check(j["status"]["models"][0]["path"] == h.file("models/story.gguf") and j["sessions"]["total"] == 1, j)
        h.expect(75, "a daemon runs already at " + sock, "start")
        h.expect(0, "", "stop")
        check(not is_running(pid) and not os.path.exists(sock), "it has ended when stop does")
        with open(h.file(".local/state/quern/serve.log")) as f:
            check("serving 'story' at unix:" + sock in f.read(), "what it says is in its log")


def test_the_socket_may_be_named():
    with home() as h:
        h.model("small.gguf", SMALL)
        h.env["QUERN_SOCKET"] = h.file("own/q.sock")
        h.expect(0, h.file("own/q.sock"), "start")
        h.expect(0, "small", "ps")
        h.expect(0, "", "stop")
        check(not os.path.exists(h.file("own/q.sock")), "it is gone")
        h.expect(64, "is not an absolute path", "start", "--socket", "q.sock")
        del h.env["QUERN_SOCKET"], h.env["XDG_RUNTIME_DIR"]
        h.expect(0, h.file("other.sock"), "start", "--listen", h.file("other.sock"))
        h.expect(0, "small", "ps", "--socket", h.file("other.sock"))
        h.expect(0, "", "stop", "--socket", h.file("other.sock"))


def test_a_start_that_fails_says_why():
    with home() as h:
        bad = h.write("models/bad.gguf", "junk")
        for _ in range(2):
            r = h.expect(65, "the daemon has not started: it ended with status 65", "start")
            check(r.err.count(bad + ": gguf: not a GGUF file") == 1, "the last words are this start's", r.err)
        h.expect(66, "no model 'nothing'", "start", "nothing")
        h.expect(64, "unknown option", "start", "--nothing")
        h.model("story.gguf")
        h.expect(0, "the daemon runs", "start")  # of several, it is left out
        check(f"'bad' is left out: {bad}" in open(h.file(".local/state/quern/serve.log")).read(), "its log says so")
        h.expect(0, "", "stop")
        h.expect(75, "the memory budget is", "start", "story", "--memory", "90M", "--ctx", "256", "--sessions", "1000")
        check(not os.path.exists(h.file("run/quern/quern.sock")), "no socket stays")


def test_of_two_starts_at_once_one_daemon_is_left():
    with home() as h:
        h.model("small.gguf", SMALL)
        for _ in range(5):
            both = [subprocess.Popen([QUERN, "start"], stdin=subprocess.DEVNULL, stderr=subprocess.PIPE, env=h.env) for _ in range(2)]
            said = [p.communicate(timeout=LIMIT)[1].decode() for p in both]
            status = sorted(p.returncode for p in both)
            h.pids |= {int(p) for p in re.findall(r"pid (\d+)", "".join(said))}
            check(status in ([0, 74], [0, 75]), status, said)
            check("already" in "".join(said), said)
            h.expect(0, "small", "ps")
            h.expect(0, "", "stop")


def test_a_start_without_a_place_for_a_log():
    with home() as h:
        h.model("small.gguf", SMALL)
        h.write(".local", "a file")
        h.expect(0, "the daemon will have no log", "start")
        h.expect(0, "", "stop")
        h.write("models/bad.gguf", "junk")
        h.expect(65, "not a GGUF file", "start", "bad")
        del h.env["HOME"]
        h.expect(0, "the daemon will have no log", "start", h.file("models/small.gguf"))
        h.expect(0, "", "stop")
        h.expect(66, "there is no model", "start", "small")


def test_an_interrupted_start_leaves_nothing():
    """Stopped at its first breath by a model that is a pipe nobody writes into is not possible: pipes are no models. So the
    signal comes at any time; the daemon runs and is told of, or does not run."""
    with home() as h:
        h.model("story.gguf")
        for ms in 0, 2, 5, 10, 20:
            p = subprocess.Popen([QUERN, "start"], stdin=subprocess.DEVNULL, stderr=subprocess.PIPE, env=h.env)
            time.sleep(ms / 1000)
            p.send_signal(signal.SIGINT)
            err = p.communicate(timeout=LIMIT)[1].decode()
            h.pids |= {int(n) for n in re.findall(r"pid (\d+)", err)}
            runs = "the daemon runs" in err
            check(p.returncode == (0 if runs else 130) or (p.returncode == -2 and not runs), p.returncode, err)
            h.expect(0 if runs else 69, "", "stop")


def test_stop_waits_for_answers():
    with home() as h:
        h.model("story.gguf")
        h.expect(0, "the daemon runs", "start", "--threads", "1")
        (pid,) = h.pids
        sock = h.file("run/quern/quern.sock")
        s = ask(sock, {"prompt": "Once", "max_tokens": 200, "temperature": 0, "ignore_eos": True, "stream": True})
        got = b""
        while got.count(b"data:") < 3:
            got += s.recv(4096)
        h.expect(0, "", "stop")
        check(not is_running(pid), "the daemon has ended when stop does")
        while piece := s.recv(65536):
            got += piece
        check(got.count(b"data:") > 200 and b"[DONE]" in got, "the answer is complete", got[-300:])


def test_stop_does_not_wait_forever():
    with home() as h:
        h.model("story.gguf")
        h.expect(0, "the daemon runs", "start", "--threads", "1", "--parallel", "1")
        (pid,) = h.pids
        sock = h.file("run/quern/quern.sock")
        streams = [ask(sock, {"prompt": "Once", "max_tokens": 250, "ignore_eos": True, "stream": True}) for _ in range(40)]
        while b"data:" not in streams[0].recv(4096):
            pass
        r = h.expect(75, "quern stop once more", "stop", "--wait", "0")
        check(str(pid) in r.err and is_running(pid), "it goes on", r.err)

        def ends():
            """Sends what a second stop would, whose socket may be closed by now. Two that come at once count as one."""
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGTERM)
            return not is_running(pid)

        until(LIMIT, ends, "a second stop ends it")
        for s in streams:
            s.close()


def test_a_daemon_that_hangs_is_told_of():
    with home() as h:
        listener = socket.socket(socket.AF_UNIX)
        os.mkdir(h.file("run/quern"))
        listener.bind(h.file("run/quern/quern.sock"))
        listener.listen()
        h.expect(75, "has not answered for 10 s", "ps")


def test_who_is_no_daemon_is_not_ended():
    """What answers on the socket says that it is this very test, which has made the socket, or another process, which has not."""
    with home() as h:
        listener = socket.socket(socket.AF_UNIX)
        os.mkdir(h.file("run/quern"))
        listener.bind(h.file("run/quern/quern.sock"))
        listener.listen()
        victim = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
        for pid in victim.pid, 1, 0, -1, "x", 1 << 40:
            p = subprocess.Popen([QUERN, "stop"], stdin=subprocess.DEVNULL, stderr=subprocess.PIPE, env=h.env)
            s, _ = listener.accept()
            body = json.dumps({"pid": pid})
            for _ in "/health", "/v1/status":
                s.recv(65536)
                s.sendall(f"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n{body}".encode())
            err = p.communicate(timeout=LIMIT)[1].decode()
            s.close()
            check(p.returncode == 69 and "that is not a quern process here" in err, pid, p.returncode, err)
        check(victim.poll() is None, "it lives")
        victim.communicate(b"\n", timeout=LIMIT)


# ---- systemd ----


SYSTEMCTL = """#!/bin/sh
# A manager as far as it is asked: it notes what it was told, and runs the daemon.
echo "$*" >> {dir}/calls
[ "$1" = --user ] && shift
case "$1" in
cat) [ -e {dir}/unit ] ;;
show) if [ -e {dir}/pid ]; then /bin/cat {dir}/pid; else echo 0; fi ;;
start) {dir}/run-it ;;
stop) kill $(/bin/cat {dir}/pid); /bin/rm {dir}/pid ;;
esac
"""


def wait_for_socket(h):
    end = time.monotonic() + LIMIT
    while not os.path.exists(h.file("run/quern/quern.sock")) and time.monotonic() < end:
        time.sleep(0.01)


def test_where_systemd_has_the_unit_it_is_asked():
    with home() as h:
        h.model("small.gguf", SMALL)
        h.env["PATH"] = h.file("bin")
        tool = h.write("bin/systemctl", SYSTEMCTL.format(dir=h.path))
        runs = h.write("run-it", "#!/bin/sh\nexit 1\n")
        os.chmod(tool, 0o755)
        os.chmod(runs, 0o755)
        h.expect(0, "the daemon runs: pid", "start")  # no unit: by itself
        h.expect(0, "", "stop")
        h.write("unit", "")
        r = h.expect(70, "systemd has not started quern.service: journalctl", "start")
        h.write("run-it", f"#!/bin/sh\n{shlex.quote(QUERN)} serve </dev/null >/dev/null 2>&1 & echo $! > {h.path}/pid\n")
        h.expect(0, "quern.service, pid ", "start")
        h.expect(75, "runs already: quern.service, pid", "start")
        wait_for_socket(h)
        h.expect(0, "", "stop")
        h.write(".config/quern/config.toml", 'model = "small"\n')
        h.expect(0, "quern.service, pid ", "start")  # which reads the same configuration
        wait_for_socket(h)
        h.expect(0, "", "stop")
        with open(h.file("calls")) as f:
            calls = f.read()
        flag = "" if os.geteuid() == 0 else "--user "
        check(f"{flag}start quern.service\n" in calls and f"{flag}stop quern.socket quern.service\n" in calls, calls)
        with open(h.file("calls"), "w"):
            pass
        for unusual in ["small"], ["--threads", "1"], ["--socket", h.file("other.sock")], ["--config", ""], \
                ["--config", h.write("other.toml", 'model = "small"\n')]:
            h.expect(0, "the daemon runs: pid", "start", *unusual)  # what the unit does not say
            h.expect(0, "", "stop", *(unusual if "--socket" in unusual else []))
        with open(h.file("calls")) as f:
            check(" start" not in f.read() and "stop quern" not in f.read(), "systemd is left alone")


if __name__ == "__main__":
    names = {k: v for k, v in globals().items() if callable(v)}
    run(names, sys.argv[5] if sys.argv[5:] else "test_")
