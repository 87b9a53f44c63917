#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""test_screen.py: tests that what commands print fits a terminal of 80 columns, and that long work shows its progress.

    test_screen.py QUERN STORY.gguf CHAT.gguf SLOWNESS

Every command is run at a terminal, and those without colours and moving lines in a pipe too. Help of 24 lines is
tested by test_help.py.
"""
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile

from lib.cases import SANITIZERS, check, run
from lib.terminal import Terminal

QUERN, STORY, CHAT = map(os.path.abspath, sys.argv[1:4])
ROOT = os.path.abspath(os.path.join(os.path.dirname(__file__), "../.."))
LIMIT = 60 * float(sys.argv[4])
HOME = tempfile.TemporaryDirectory(prefix="q-", dir="/tmp")  # a short name: a path cannot be broken
LONG = "Qwen3-30B-A3B-Instruct-2507-UD-Q4_K_XL"
ENV = {"HOME": HOME.name, "XDG_RUNTIME_DIR": HOME.name + "/run", "TERM": "xterm"}

os.makedirs(HOME.name + "/models")
os.makedirs(HOME.name + "/run", mode=0o700)
for model, name in (STORY, "story"), (CHAT, LONG):
    shutil.copy(model, f"{HOME.name}/models/{name}.gguf")
with open(HOME.name + "/models/bad.gguf", "w") as f:
    f.write("junk that is no model of any kind, but has a name that is listed with the reason why it cannot be used")
MODEL = f"{HOME.name}/models/story.gguf"


def at_terminal(*args, status=0, **env):
    t = Terminal([QUERN, *args], ENV | env, LIMIT, stdin=subprocess.DEVNULL)
    got = t.wait()
    t.close()
    check(got == status, args, got, t.stderr())
    return t.stderr().replace("\r\n", "\n")


def in_pipe(*args):
    r = subprocess.run([QUERN, *args], env=SANITIZERS | {"PATH": os.environ["PATH"]} | ENV, capture_output=True, timeout=LIMIT,
                       stdin=subprocess.DEVNULL, text=True)
    check(r.returncode == 0, args, r.returncode, r.stderr)
    return r.stdout


def lines_of(text):
    """What is seen of each line: without colours, and of a line that was rewritten the widest version."""
    plain = re.sub(r"\033\[[0-9;]*[A-Za-z]", "", re.sub(r".\x08", "", text))
    return [max(line.split("\r"), key=len) for line in plain.split("\n")]


def check_fits(text, *what):
    wide = [line for line in lines_of(text) if len(line.replace("-dirty", "")) > 80]
    check(not wide, what, "is too wide:", *wide[:4])


COMMANDS = [
    ["models"], ["config"], ["config", "ask", "-p", "reviewer"], ["inspect", MODEL], ["check", "--deep", MODEL, LONG],
    ["explain", MODEL, "--analyze"], ["explain", MODEL, "-p", "512", "-d", "4096"],
    ["bench", MODEL, "-p", "512", "-n", "4", "-b", "1,2,32", "-d", "0,1000", "-r", "1"], ["bench", "--ceilings"],
]
ONLY_AT_A_TERMINAL = [["manual"], ["manual", "serve"], ["manual", "quern.toml"], ["--version"], ["help"],
                      ["run", MODEL, "-n", "4", "x"], ["tokenize", MODEL]]


def test_no_command_is_wider_than_a_terminal():
    for args in COMMANDS + ONLY_AT_A_TERMINAL:
        text = at_terminal(*args, PAGER="cat", MANPAGER="cat", LESS="-FRX", PATH=os.environ["PATH"])
        check(len(text) > 10 or args[0] == "tokenize", args, text)
        check_fits(text, args)


def test_what_is_piped_fits_too():
    for args in COMMANDS[1:] + [["manual"], ["manual", "serve"]]:
        check_fits(in_pipe(*(a for a in args if a != LONG)), args)
    rows = in_pipe("models").splitlines()
    check(len(rows) == 4 and all(re.search(r"  (yes|gguf: .*)$", row) for row in rows[1:]), "a model is a line", rows)


def test_a_narrow_terminal_gives_a_long_name_its_own_line():
    rows = lines_of(at_terminal("models"))
    at = next(i for i, row in enumerate(rows) if LONG in row)
    check(rows[at].strip() == LONG and " qwen3" in rows[at + 1] and rows[at + 1].endswith(" yes"), rows)
    check(any("AT MOST" in row for row in rows) and any(re.search(r"\d tok/s", row) for row in rows), rows)


def test_the_daemon_and_its_models_fit():
    socket = HOME.name + "/run/quern.sock"
    check_fits(at_terminal("start", MODEL, "--socket", socket), "start")
    try:
        check_fits(at_terminal("ps", "--socket", socket), "ps")
        subprocess.run(["curl", "-s", "--unix-socket", socket, "http://x/v1/completions", "-d", '{"prompt": "a", "max_tokens": 9}'],
                       capture_output=True, timeout=LIMIT, check=True)
        text = at_terminal("ps", "--socket", socket)
        check_fits(text, "ps")
        check("READ/S" in text and " story" in "\n" + text.replace("\n", "\n "), text)
    finally:
        check_fits(at_terminal("stop", "--socket", socket), "stop")


def test_a_faster_measurement_is_kept():
    kept = HOME.name + "/.cache/quern/ceilings.json"
    in_pipe("models")
    with open(kept) as f:
        slow = json.load(f)
    rates = ("read_gbs", "int8_gmacs", "f32_gmacs")
    for args in ["explain", MODEL], ["bench", MODEL, "-p", "4", "-n", "1", "-r", "1"]:
        with open(kept, "w") as f:  # as a busy moment may have measured it
            json.dump(slow | dict.fromkeys(rates, 1e-3), f)
        in_pipe(*args)
        with open(kept) as f:
            now = json.load(f)
        check(all(now[r] > 1 for r in rates) and now["measured"] == slow["measured"], args, now)
        with open(kept, "w") as f:
            json.dump(slow | dict.fromkeys(rates, 1e9), f)
        in_pipe(*args)
        with open(kept) as f:
            now = json.load(f)
        check(all(now[r] == 1e9 for r in rates), args, "a slower one changes nothing")
    os.remove(kept)


def test_long_work_shows_its_progress():
    for args, words in ((["check", "--deep", MODEL], ["reading story.gguf", "hashing story.gguf"]),
                        (["bench", MODEL, "-p", "64", "-n", "8", "-r", "2"], ["measuring this machine", "test 2 of 2: tg, run 2 of 2"]),
                        (["explain", MODEL, "--analyze"], ["measuring the pass", "measuring this machine"])):
        text = at_terminal(*args)
        for word in words:
            check(word in text, args, word, "is not in", text[:600])
        check("\r\033[K" in text or "\r\x1b[K" in text, args, "the line stays", text[:600])
        check("\033" not in at_terminal(*args, NO_COLOR="1"), args, "with NO_COLOR")


def test_the_tutorial_prints_what_it_says():
    os.symlink(QUERN, HOME.name + "/quern")
    with open(ROOT + "/docs/TUTORIAL.md") as f:
        blocks = re.findall(r"(?:^    .*\n)+", f.read(), re.M)
    asked = 0
    for block in blocks:
        for command, said in re.findall(r"^    \$ (.*)\n((?:    (?!\$ ).*\n)*)", block, re.M):
            r = subprocess.run(["sh", "-c", command], cwd=ROOT, env=SANITIZERS | {"PATH": HOME.name + ":" + os.environ["PATH"]} | ENV,
                               stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=LIMIT)
            check(r.returncode == 0 and r.stdout.rstrip() == said.replace("\n    ", "\n").strip(), command, r.stdout, r.stderr, said)
            asked += 1
    check(asked == 4, asked, "commands")


def test_a_page_of_the_manual_needs_no_man():
    """As in a container: PATH has no man, which would have written the same lines."""
    r = subprocess.run([QUERN, "manual", "quern"], env=SANITIZERS | ENV | {"PATH": HOME.name}, stdin=subprocess.DEVNULL, capture_output=True,
                       text=True, timeout=LIMIT)
    check(r.returncode == 0 and "\\" not in r.stdout.replace("\\n", "") and not re.search(r"^\.[A-Z]", r.stdout, re.M), r)
    check("NAME\n       quern - language models as a Unix tool\n\nSYNOPSIS\n       quern [OPTIONS]" in r.stdout, r.stdout[:300])
    check("       -n, --max-tokens N\n              Most tokens of the answer" in r.stdout, "options")
    check(all(len(line) <= 80 for line in r.stdout.splitlines()), [line for line in r.stdout.splitlines() if len(line) > 80])


run(globals())
