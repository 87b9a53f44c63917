#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""test_manners.py: tests every command when its output, its home, its configuration or its files are at fault.

    test_manners.py QUERN STORY CHAT SLOWNESS

STORY is a model without a chat template, CHAT one with it. In each case, every command prints one clear line and ends
with the right status. None hangs, and none dies of a signal.
"""
import os
import shutil
import socket
import stat
import subprocess
import sys

from lib import cases
from lib.cases import check
from lib.files import TMP, path

QUERN, STORY, CHAT, SLOWNESS = sys.argv[1:4] + [float(sys.argv[4])]
QUERN, STORY, CHAT = map(os.path.abspath, (QUERN, STORY, CHAT))
os.chmod(TMP.name, 0o755)
NOBODY = 65534
FIRST_WORD = subprocess.run([QUERN, "run", "-n", "1", "--greedy", STORY, "Once"], stdin=subprocess.DEVNULL, capture_output=True).stdout

# A command line of each command that prints, and what it reads.
PRINTING = {
    "ask": (["ask", "--in-process", "-m", CHAT, "-n", "4", "Hello"], b"there"),
    "chat": (["chat", "--in-process", "-m", CHAT], b"Hello\n"),
    "run": (["run", STORY, "-n", "4", "--greedy", "Once"], b""),
    "tokenize": (["tokenize", STORY], b"Once"),
    "explain": (["explain", STORY], b""),
    "inspect": (["inspect", STORY], b""),
    "check": (["check", STORY], b""),
    "models": (["models", "--models", os.path.dirname(STORY)], b""),
    "config": (["config"], b""),
    "manual": (["manual", "run"], b""),
    "completion": (["completion", "bash"], b""),
    "help": (["help", "run"], b""),
    "--help": (["--help"], b""),
    "--version": (["--version"], b""),
    "run --help": (["run", "--help"], b""),
}


def printing_again(*slow):
    """PRINTING; with a sanitizer without these, which measure the machine for seconds and have been run in another case."""
    return {name: line for name, line in PRINTING.items() if SLOWNESS == 1 or name not in slow}


def environment(**more):
    env = dict(cases.SANITIZERS)
    env.update(PATH="/usr/bin:/bin", HOME=path("home"), QUERN_CONFIG="", LC_ALL="C")
    env.update(more)
    return {k: v for k, v in env.items() if v is not None}


def quern(args, stdin=b"", env=None, stdout=subprocess.PIPE, user=None, **more):
    p = subprocess.Popen([QUERN, *args], stdin=subprocess.PIPE, stdout=stdout, stderr=subprocess.PIPE,
                         env=environment() if env is None else env, user=user, **more)
    try:
        out, err = p.communicate(stdin, timeout=60 * SLOWNESS)
    except subprocess.TimeoutExpired:
        p.kill()
        out, err = p.communicate()
        check(False, args, "hangs")
    return p.returncode, out, err.decode("utf-8", "replace")


def one_line(name, status, wanted, err, *words):
    lines = [line for line in err.splitlines() if "warning: the sandbox has gaps" not in line]  # of a sanitizer's build
    ok = status == wanted and len(lines) == 1 and lines[0].startswith("quern: ") and all(w in err for w in words)
    check(ok and lines[0].isprintable(), name, "ended with", status, "not", wanted, "and said", repr(err))


def test_output_that_is_full():
    for name, (args, stdin) in PRINTING.items():
        with open("/dev/full", "wb") as full:
            status, _, err = quern(args, stdin, stdout=full)
        one_line(name, status, 74, err, "No space left")


def test_output_that_is_closed():
    """Nothing else may get its descriptor: a model's file, a socket."""
    for name, (args, stdin) in PRINTING.items():
        p = subprocess.run(["bash", "-c", '"$@" >&-', "bash", QUERN, *args], input=stdin, stderr=subprocess.PIPE, env=environment(),
                           timeout=60 * SLOWNESS)
        one_line(name, p.returncode, 74, p.stderr.decode(), "Bad file descriptor")


def test_everything_closed():
    for name, (args, _) in printing_again("explain").items():
        p = subprocess.run(["bash", "-c", '"$@" <&- >&- 2>&-', "bash", QUERN, *args], env=environment(), timeout=60 * SLOWNESS)
        check(0 < p.returncode < 128, name, p.returncode)


def test_a_reader_that_leaves():
    for name, (args, stdin) in printing_again("explain").items():
        ends = os.pipe()
        os.close(ends[0])
        with os.fdopen(ends[1], "wb") as gone:
            status, _, err = quern(args, stdin, stdout=gone)
        check(status == 0 and not err, name, status, repr(err))


def test_no_home():
    bare = environment(HOME=None)  # e2e/manage has `quern models` without one, and with one that cannot be written
    for name, (args, stdin) in printing_again("explain", "models").items():
        status, out, err = quern(args, stdin, env=bare)
        check(status == 0 and out, name, status, repr(err))
    status, out, err = quern(["models"], env=bare)
    check(status in (0, 66) and err.count("\n") <= 1, status, repr(err))
    status, out, err = quern(["ask", "--in-process", "Hello"], b"there", env=bare)
    one_line("ask", status, 66, err.split("\n")[0])
    check(err.count("\n") == 4 and err.count("quern pull hf:") == 3, err)


def test_home_that_is_read_only():
    home = path("locked")
    os.makedirs(home, exist_ok=True)
    os.chmod(home, 0o555)
    user = NOBODY if os.geteuid() == 0 else None
    if user:
        for f in (STORY, CHAT, QUERN):
            if subprocess.run(["setpriv", f"--reuid={NOBODY}", "--clear-groups", "test", "-r", f]).returncode:
                raise cases.Skipped(f"{f} cannot be read by another user")
    for name, (args, stdin) in printing_again("explain", "models").items():
        status, out, err = quern(args, stdin, env=environment(HOME=home), user=user)
        check(status == 0 and out and err.count("\n") <= 1, name, status, repr(err))


def test_hostile_configurations():
    os.makedirs(path("c"), exist_ok=True)
    files = {
        "nul": b"ctx = \0", "key": b"nonsense = 1\n", "near": b"[serve]\nparalel = 4\n", "type": b"[serve]\nctx = \"many\"\n",
        "section": b"[nonsense]\nx = 1\n", "open": b"[serve", "text": b"model = \"abc\n", "latin": b"model = \"\xff\"\n",
        "escape": b"model = \"\x1b[31m\"\n", "twice": b"model = \"a\"\nmodel = \"b\"\n", "deep": b"models = " + b"[" * 100000,
        "large": b"# " + b"x" * (2 << 20),
    }
    for name, data in files.items():
        with open(path("c", name), "wb") as f:
            f.write(data)
        status, out, err = quern(["config", "serve"], env=environment(QUERN_CONFIG=path("c", name)))
        one_line(name, status, 78, err, path("c", name))
        check(not out, name, "printed something")
    check("parallel" in quern(["config"], env=environment(QUERN_CONFIG=path("c", "near")))[2], "no suggestion")
    os.mkfifo(path("c", "fifo"))
    for name in ["fifo", "missing", ""]:
        status, _, err = quern(["config", "--config", path("c", name)])
        check(status in (66, 78) and err.count("\n") == 1, name, status, repr(err))
    status, _, err = quern(["config", "--config", "/dev/zero"])
    check(status in (66, 78) and err.count("\n") == 1, status, repr(err))


def test_hostile_names():
    """Of files: what is shown is one printable line, and they are read as they are called."""
    for name in ["-n", "--help", "new\nline", "\x1b[31mred", "\xff\xfe".encode("latin-1"), " ", "a" * 250, "'; rm -rf ~", "%s%n", "\u202etxt.exe"]:
        raw = name if isinstance(name, bytes) else name.encode()
        missing = os.path.join(os.fsencode(path()), b"missing", raw)
        status, _, err = quern(["check", "--", missing])
        one_line(repr(name), status, 66, err)
        folder = os.path.join(os.fsencode(path()), b"folder-" + raw.replace(b"/", b"_")[:200])
        os.mkdir(folder)
        there = os.path.join(folder, raw)
        os.symlink(STORY, there)
        status, out, err = quern(["run", "-n", "1", "--greedy", "--", there, "Once"])
        check(status == 0 and out == FIRST_WORD, repr(name), status, out, err)
        shown = quern(["models", "--models", folder])[1].decode()
        check(all(c == "\n" or c.isprintable() for c in shown), repr(name), repr(shown))
        note = os.path.join(folder, b"note.txt")
        with open(note, "wb") as f:
            f.write(b"The sky is blue.")
        status, out, err = quern(["ask", "--in-process", "-m", CHAT, "-n", "2", "-f", note, "What?"])
        check(status == 0, repr(name), status, err)


def test_files_that_cannot_be_read():
    locked = path("locked.txt")
    with open(locked, "w") as f:
        f.write("secret")
    os.chmod(locked, 0)
    os.makedirs(path("open"), exist_ok=True)
    os.chmod(path("open"), 0o777)
    user = NOBODY if os.geteuid() == 0 else None
    for args in [["ask", "-m", CHAT, "--in-process", "-f", locked, "x"], ["check", locked], ["run", locked, "x"],
                 ["serve", locked, "--listen", path("open", "s.sock")]]:
        if user and subprocess.run(["setpriv", f"--reuid={NOBODY}", "--clear-groups", "test", "-x", QUERN]).returncode:
            raise cases.Skipped("the program cannot be run by another user")
        status, out, err = quern(args, user=user)
        one_line(args[0], status, 66, err, "locked.txt")
    for args in [["ask", "-m", CHAT, "--in-process", "-f", path(), "x"], ["ask", "-m", CHAT, "--in-process", "-f", path("none"), "x"]]:
        status, out, err = quern(args)
        one_line(" ".join(args[-3:]), status, 66, err)
    s = socket.socket(socket.AF_UNIX)
    s.bind(path("socket"))
    one_line("a socket", *(lambda r: (r[0], 66, r[2]))(quern(["ask", "-m", CHAT, "--in-process", "-f", path("socket"), "x"])))
    s.close()


def test_sockets_that_nobody_serves():
    s = socket.socket(socket.AF_UNIX)
    s.bind(path("stale"))
    s.close()
    for command in [["ask", "Hello"], ["ps"], ["stop"]]:
        status, _, err = quern([*command, "--socket", path("stale")], b"there")
        one_line(command[0], status, 69, err, path("stale"))
    shutil.rmtree(path("home"), ignore_errors=True)


def test_the_program_may_lie_anywhere():
    mode = stat.S_IMODE(os.stat(QUERN).st_mode)
    check(mode & 0o111, oct(mode))
    os.symlink(QUERN, path("quern"))
    p = subprocess.run([path("quern"), "--version"], capture_output=True, env=environment(), timeout=60 * SLOWNESS)
    check(p.returncode == 0 and p.stdout.startswith(b"quern "), p)


if __name__ == "__main__":
    cases.run(globals())
