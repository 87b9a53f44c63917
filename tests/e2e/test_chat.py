#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""test_chat.py: tests `quern chat` at a terminal and in a pipe.

    test_chat.py QUERN STORY_MODEL CHAT_MODEL SLOWNESS PARROT_MODEL [PREFIX_OF_CASES]

The parrot says prepared texts (tests/models/make-parrot), so the test knows which output must come. test_edit.py tests
the keys and their effects.
"""
import contextlib
import json
import os
import re
import signal
import subprocess
import sys
import time

from lib.cases import SANITIZERS, check, run, until
from lib.files import path
from lib.screen import Screen
from lib.terminal import Terminal
from test_serve import LIMIT, QUERN, Server

PARROT = sys.argv[5]
HELLO, FOUR = "Grüße! 😀 What can I do?", "It is four."
SIZES = ("--ctx", "32768", "--sessions", "4")
PASTE = b"\x1b[200~%s\x1b[201~"


def environment(server=None, **more):
    home = path("home")
    os.makedirs(home, exist_ok=True)
    return {"HOME": home, "QUERN_CONFIG": ""} | ({"QUERN_SOCKET": server.sock} if server else {}) | more


@contextlib.contextmanager
def chat(server, *args, env=None, **more):
    t = Terminal([QUERN, "chat", *args], environment(server, **(env or {})), LIMIT, **more)
    try:
        t.expect(b"commands)")
        t.expect(b"> ")
        yield t
        if t.process.poll() is None:
            t.send(b"\x04")
            check(t.wait() == 0, "status", t.process.returncode, t.all[-500:])
        check(t.restored(), "the terminal's modes are not as they were")
        check(t.all.rfind(b"\x1b[?2004h") <= t.all.rfind(b"\x1b[?2004l"), "bracketed paste is left on")
    finally:
        t.close()


def say(t, text):
    """What is shown until the next prompt, without the line that sets turns off. The line as it was drawn goes before."""
    t.send(text.encode() + b"\r")
    t.expect(b"\r\n\x1b[?2004h")
    got = t.expect(b"\x1b[?2004h")[:-8].decode().replace("\r\n", "\n")
    return got[:-1] if got.endswith("\n\n") else got


def pipe(server, text, *args, env=None):
    text = text if isinstance(text, bytes) else text.encode()
    return subprocess.run([QUERN, "chat", *args], input=text, capture_output=True,
                          env=SANITIZERS | {"PATH": os.environ["PATH"]} | environment(server, **(env or {})), timeout=LIMIT)


def messages(name):
    with open(name, encoding="utf-8") as f:
        return [json.loads(line) for line in f]


def running(server):
    return server.ask("GET", "/health").json["running"]


# ---- at a terminal ----

def test_a_conversation():
    server = Server(PARROT, *SIZES)
    with chat(server) as t:
        check(server.sock.encode() in t.all, "it is not said where it is answered")
        check(say(t, "hi") == HELLO + "\n", "the reply")
        got = say(t, "please think")
        check(got == f"\x1b[2mTwo and two; that is easy.\x1b[0m\n\n{FOUR}\n", "thoughts are not dimmed:", repr(got))
        got = say(t, "/tokens")
        check("conversation: 4 messages, " in got and " of 32768" in got, repr(got))
        check(" of them from the cache; " in got and " 0 of them" not in got, "nothing came from the cache:", repr(got))
        got = say(t, "/fold")
        got = say(t, "please think again")
        check("that is easy" not in got and "thought for " in got and got.endswith(FOUR + "\n"), repr(got))
    server.stop()


def test_thoughts_without_colour():
    server = Server(PARROT, *SIZES)
    for env in ({"NO_COLOR": "1"}, {"TERM": "dumb"}):
        t = Terminal([QUERN, "chat"], environment(server, **env), LIMIT)
        t.expect(b"> ")
        t.send(b"please think\r")
        t.expect(b"| Two and two; that is easy.\r\n\r\nIt is four.\r\n")
        t.expect(b"> ")
        check(b"\x1b[2m" not in t.all, "colour with", env)
        t.send(b"\x04")
        check(t.wait() == 0 and t.restored(), "it did not end well")
        t.close()
    server.stop()


def test_what_a_model_writes_does_nothing_to_the_terminal():
    server = Server(PARROT, *SIZES)
    with chat(server) as t:
        got = say(t, "paint")
        check(got == "Look: \\x1B[31mred\\x1B[2J \\x1B]0;mine\\x07 \\xC2\\x9B6n \\xE2\\x80\\xAEback\\x0D gone\n",
              repr(got))
    got = pipe(server, "paint\n").stdout
    check(got == "Look: \x1b[31mred\x1b[2J \x1b]0;mine\x07 \u009b6n \u202eback\r gone\n".encode(), repr(got))
    server.stop()


def test_ctrl_c_stops_the_reply_and_not_the_program():
    server = Server(PARROT, *SIZES)
    saved = path("cut.chat")
    with chat(server) as t, chat(server) as other:
        t.send(b"sing\r")
        t.expect(b"la li lu la li lu ")
        check(say(other, "hi") == HELLO + "\n", "another chat's reply")
        check(running(server) == 1, "nothing runs")
        t.send(b"\x03")
        t.expect(b"(stopped)")
        t.expect(b"> ")
        until(LIMIT, lambda: running(server) == 0, "the request still runs")
        check(say(other, "hi") == HELLO + "\n", "another chat's reply")
        check(say(t, "hi") == HELLO + "\n", "the reply after")
        say(t, "/save " + saved)
        m = messages(saved)
        check([x["role"] for x in m] == ["user", "assistant"] * 2, m)
        check(m[1].get("cut") is True and m[1]["content"].startswith("la li lu "), "the reply that was cut:", m[1])
        check("cut" not in m[3], "a whole reply is marked as cut")
    check(server.metric("generated_tokens_total") < 30000, "it was not cancelled")
    server.stop()


def test_ctrl_c_where_this_process_answers():
    """This reply fills the context in a second or two, unless nobody reads it: the terminal holds a thousand words."""
    with chat(None, "--in-process", "-m", PARROT, "--ctx", "32768") as t:
        for _ in range(2):
            t.send(b"sing\r")
            t.expect(b"la li lu la li lu ")
            t.send(b"\x03")
            time.sleep(0.2)
            t.expect(b"(stopped)")
            t.expect(b"> ")
            say(t, "/undo")
        got = say(t, "hi")
        check(got == HELLO + "\n", "the reply after", repr(got))


def test_ctrl_c_at_the_prompt():
    server = Server(PARROT, *SIZES)
    with chat(server) as t:
        t.send(b"never sent")
        t.expect(b"never sent")
        t.send(b"\x03")
        t.expect(b"> ")
        check(say(t, "hi") == HELLO + "\n", "the reply")
        t.send(b"\x03")
        t.expect(b"Ctrl-C again")
        t.expect(b"> ")
        t.send(b"\x03")
        check(t.wait() == 0, "status", t.process.returncode)
    server.stop()


def test_pasted_100_kB():
    server = Server(PARROT)
    saved = path("paste.chat")
    lines = "".join(f"{i} " + "text in a log ü " * 3 + "\r" for i in range(1423))
    lines += "x" * (100000 - len(lines.encode()))
    with chat(server) as t:
        t.send(b"what is this? " + PASTE % lines.encode())
        t.expect(b"[paste 1: 100000 bytes, 1424 lines]")
        check(len(t.all) < 5000, len(t.all), "bytes were drawn for a paste")
        got = say(t, "")
        check("context" in got and "/retry" in got, "more than the context holds:", repr(got))
        say(t, "/save " + saved)
        check(messages(saved) == [{"role": "user", "content": "what is this? " + lines.replace("\r", "\n")}],
              "it was not pasted whole")
        check(say(t, "hi") == HELLO + "\n", "the reply after")
        say(t, "/save " + saved)
        check(len(messages(saved)) == 2, "the message without a reply is still there")
    server.stop()


def test_history_from_one_run_to_the_next():
    server = Server(PARROT, *SIZES)
    for i in range(2):
        with chat(server, env={"XDG_STATE_HOME": path("state")}) as t:
            if i == 0:
                say(t, "hello größe")
            else:
                t.send(b"\x1b[A")
                t.expect("hello größe".encode())
                check(say(t, "") == HELLO + "\n", "the reply")
    check(os.stat(path("state/quern/history")).st_mode & 0o777 == 0o600, "others may read the history")
    server.stop()


def test_a_home_that_cannot_be_written():
    server = Server(PARROT, *SIZES)
    for env in ({"HOME": "/proc/nowhere"}, {"HOME": ""}):
        with chat(server, env=env) as t:
            check(t.all.count(b"not kept in a history") == 1, "it is not said once", t.all)
            check(say(t, "hi") == HELLO + "\n", "the reply")
    server.stop()


def test_undo_and_retry():
    server = Server(PARROT, *SIZES)
    saved = path("undo.chat")
    with chat(server) as t:
        say(t, "hi")
        say(t, "think")
        check(say(t, "/retry").endswith(FOUR + "\n"), "another reply")
        say(t, "/undo")
        say(t, "/save " + saved)
        check(messages(saved) == [{"role": "user", "content": "hi"}, {"role": "assistant", "content": HELLO}],
              messages(saved))
        say(t, "/undo")
        check("no message to take back" in say(t, "/undo"), "one too many")
        check("no message to send again" in say(t, "/retry"), "nothing to retry")
    server.stop()


def test_saved_and_loaded():
    server = Server(PARROT, *SIZES)
    saved, again, foreign = path("a chat"), path("again.chat"), path("foreign")
    with chat(server, "--system", "Be kind — 日本") as t:
        say(t, "grüße \\ \"you\"\tthink")
        say(t, "/save " + saved)
        check([x["role"] for x in messages(saved)] == ["system", "user", "assistant"], messages(saved))
        check(messages(saved)[2]["reasoning_content"].strip() == "Two and two; that is easy.", messages(saved))
    with chat(server) as t:
        say(t, "/load " + saved)
        check(say(t, "/system") == "Be kind — 日本\n", "the system message")
        say(t, "/save " + again)
    with chat(server, "--load", saved) as t:
        check(say(t, "hi") == HELLO + "\n", "the reply")
        say(t, "/undo")
        say(t, "/save " + again)
        with open(saved, "rb") as f, open(again, "rb") as g:
            check(f.read() == g.read(), "what was loaded is not what was saved")
        with open(foreign, "w") as f:
            f.write('{"role":"user","content":"a"}\n{"role":"robot","content":"b"}\n')
        check("foreign: line 2: role 'robot'" in say(t, "/load " + foreign), "a foreign file")
        check("not overwritten" in say(t, "/save " + foreign), "a foreign file is overwritten")
        check("cannot" in say(t, "/load /nowhere/file"), "a file that is not there")
        say(t, "/save " + again)
        with open(saved, "rb") as f, open(again, "rb") as g:
            check(f.read() == g.read(), "refusals changed the conversation")
    server.stop()


def test_commands():
    server = Server(PARROT, *SIZES)
    with chat(server) as t:
        for command in ("/model", "/system", "/save", "/load", "/retry", "/undo", "/tokens", "/fold", "/help", "/quit"):
            check(command in say(t, "/help"), command, "is not in /help")
        check("did you mean /retry?" in say(t, "/rety"), "no suggestion")
        check("needs a FILE" in say(t, "/save"), "no file")
        check("takes nothing more" in say(t, "/undo 2"), "too much")
        check("* m  loaded" in say(t, "/model"), "the list of models")
        check("there is no system message" in say(t, "/system"), "/system")
        check(say(t, "//help me") == HELLO + "\n", "a message with a slash")
        check(say(t, "/usr/bin/env") == HELLO + "\n", "a path is no command")
        got = say(t, "/model nobody") + say(t, "hi")
        check("quern: " in got and "nobody" in got.replace("/model nobody", ""), "a model that is not there:", repr(got))
        say(t, "/model m")
        check(say(t, "/retry") == HELLO + "\n", "the model that is there")
        t.send(b"/quit\r")
        check(t.wait() == 0, "status", t.process.returncode)
    server.stop()


def test_turns_are_set_off_and_lines_wrapped():
    server = Server(PARROT, *SIZES)
    with chat(server, size=(24, 40)) as t:
        t.send(b"hi\r")
        t.expect((HELLO + "\n\n").replace("\n", "\r\n").encode())
        t.expect(b"> ")
        t.send(b"sing\r")
        t.expect(("la li lu " * 4).encode() + b"la\r\nli lu la")
        t.send(b"\x03")
        t.expect(b"(stopped)\r\n\r\n")
        t.expect(b"> ")
    server.stop()


def test_files_go_with_the_next_message():
    server = Server(PARROT, *SIZES)
    one, two, saved = path("one.txt"), path("two words.txt"), path("files.chat")
    for name, text in (one, "hello"), (two, "wo``rld\n"):
        with open(name, "w") as f:
            f.write(text)
    with chat(server, "-f", one) as t:
        check("(8 bytes, attached to the next message)" in say(t, "/file " + two), "the confirmation")
        check("no such file" in say(t, "/file nowhere").lower(), "a file that is missing")
        check(say(t, "hi") == HELLO + "\n", "the reply")
        say(t, "hi")
        say(t, "/save " + saved)
    said = [m["content"] for m in messages(saved) if m["role"] == "user"]
    check(said == [f"{one}:\n```\nhello\n```\n\n{two}:\n```\nwo``rld\n```\n\nhi", "hi"], said)
    server.stop()


def test_tab_completes_files_and_models():
    server = Server(PARROT, *SIZES)
    os.makedirs(path("tab/in [it]"), exist_ok=True)
    for name in "one note.txt", "in [it]/deep.txt", "two.txt", "twö.txt":
        with open(path("tab/" + name), "w") as f:
            f.write("x")
    with chat(server) as t:
        check("(1 byte, attached" in say(t, "/file " + path("tab/one") + "\t"), "a file")
        check("(1 byte, attached" in say(t, "/file " + path("tab/in") + "\td\t"), "a file in a folder")
        t.send(b"/file " + path("tab/t").encode() + b"\t\t")
        t.expect("two.txt  twö.txt\r".encode())
        check("(1 byte, attached" in say(t, "o\t"), "one of two")
        check("(m answers" in say(t, "/model \t"), "the model")
    server.stop()


def test_the_last_conversation_goes_on():
    server = Server(PARROT, *SIZES)
    state, saved = {"XDG_STATE_HOME": path("last-state")}, path("last.chat")
    with chat(server, env=state) as t:
        say(t, "hi")
    with chat(server, "-c", env=state) as t:
        check(b"(going on from 2 messages)" in t.all, t.all)
        say(t, "think")
        say(t, "/save " + saved)
    check([m["content"] for m in messages(saved) if m["role"] == "user"] == ["hi", "think"], messages(saved))
    with chat(server, "--no-keep", env=state) as t:
        say(t, "paint")
    got = subprocess.run([QUERN, "-c", "And?"], stdin=subprocess.DEVNULL, capture_output=True, timeout=LIMIT,
                         env=SANITIZERS | {"PATH": os.environ["PATH"]} | environment(server, **state))
    check(got.returncode == 0 and got.stdout, got)
    with open(path("last-state/quern/last.chat")) as f:
        check([json.loads(line)["content"] for line in f][::2] == ["hi", "think", "And?"], "the filter goes on from the chat")
    server.stop()


def test_another_model_is_confirmed():
    server = Server(PARROT, *SIZES)
    with chat(server) as t:
        check(f"(m answers, at unix:{server.sock})" in say(t, "/model m"), "the model that is there")
        check("(nobody answers, at " in (got := say(t, "/model nobody")) and "does not list it" in got, repr(got))
    server.stop()


def test_a_new_window_size():
    server = Server(PARROT, *SIZES)
    with chat(server, size=(24, 80)) as t:
        t.send(b"w" * 60)
        t.expect(b"w" * 60)
        t.resize(24, 40)
        t.expect(b"> ")
        t.expect(b"www")
        check(say(t, " hi") == HELLO + "\n", "the reply")
        t.resize(10, 20)
        t.expect(b"> ")
        check(say(t, "hi") == HELLO + "\n", "the reply in another window")
    server.stop()


def test_another_width_in_a_reply_leaves_nothing_behind():
    server = Server(PARROT, *SIZES)
    for before, after in (80, 40), (40, 80):
        screen, fed = Screen(24, before), 0
        with chat(server, size=(24, before)) as t:
            t.send(b"sing\r")
            for width in before, after, before:
                t.resize(24, width)
                screen.feed(t.all[fed:].decode())
                fed = len(t.all)
                screen.resize(24, width)
                t.expect(b"la li lu " * 3)
                for _ in range(4):
                    t.expect(b"\r\n")
            t.send(b"\x03")
            t.expect(b"(stopped)")
            t.expect(b"> ")
            screen.feed(t.all[fed:len(t.all) - len(t.seen)].decode())
        text = "".join("".join(row) + ("" if soft else "\n") for row, soft in zip(screen.lines, screen.soft))
        words = text[text.index("sing") + 4:text.index("(stopped)")].split()
        check(len(words) > 100 and words == [("la", "li", "lu")[i % 3] for i in range(len(words))], screen.text())
        check(len(re.findall("^>", screen.text(), re.M)) == 2, "remains", screen.text())
    server.stop()


def test_what_the_program_says_fits():
    server = Server(PARROT, *SIZES)
    for size in (24, 80), (24, 60):
        with chat(server, "--system", "x " * 100, size=size) as t:
            said = t.all.decode().split("> ")[0] + "".join(say(t, c) for c in ("/help", "/model", "/system", "/model m"))
            said = re.sub(r"\x1b\[[?\d]*[a-zA-Z]|\r", "", said)
            wide = [line for line in said.split("\n") if len(line) > size[1] and " " in line[:size[1]]]
            check(not wide and "commands)" in said and "// begins a message" in " ".join(said.split()), wide, said)
    with chat(None, "--in-process", "-m", PARROT, "--ctx", "32768") as t:
        got = " ".join((say(t, "/model " + PARROT) + say(t, "/model")).split())
        check(f"(parrot answers, in this process ({PARROT}))" in got and "only model" not in got, repr(got))
    server.stop()


@contextlib.contextmanager
def during_a_reply(server, **more):
    with chat(server, **more) as t:
        t.send(b"sing\r")
        t.expect(b"la li lu la li lu ")
        yield t


def test_a_paste_during_a_reply_is_one_paste():
    server = Server(PARROT, *SIZES)
    saved = path("ahead.chat")
    lines = "".join(f"{i} ein Wörtchen\r" for i in range(6000)) + "end"
    with during_a_reply(server) as t:
        t.send(PASTE % "one\x03\rtwo ü".encode() + b"\x03")
        t.expect(b"(stopped)")
        t.expect(b"[paste 1: 11 bytes, 2 lines]")
        check(b"two" not in t.all, "it is shown in the reply")
        say(t, " and")
        t.send(b"sing\r")
        t.expect(b"la li lu la li lu ")
        t.send(b"eins\rzwei\r\rvier\r")  # a terminal without brackets
        t.expect(b"la li lu")
        t.send(b"\x03")
        t.expect(b"(stopped)")
        t.expect(b"[paste 1: 16 bytes, 4 lines]")
        say(t, " end")
        t.send(b"sing\r")
        t.expect(b"la li lu la li lu ")
        t.send(PASTE % lines.encode() + b"\x03")  # at once: a long text is sent by a thread
        t.expect(b"(stopped)")
        t.expect(b"lines]")
        say(t, "")
        say(t, "/save " + saved)
    said = [m["content"] for m in messages(saved) if m["role"] == "user"]
    check(said == ["sing", "one\x03\ntwo ü and", "sing", "eins\nzwei\n\nvier\n end", "sing", lines.replace("\r", "\n")],
          [m[:100] for m in said])
    server.stop()


def test_keys_during_a_reply_are_for_the_next_message():
    server = Server(PARROT, *SIZES)
    with during_a_reply(server) as t:
        t.send("grüße hi".encode())
        for key in b"\x7f\x7f", b"think", b"\r", b"\x03":
            t.expect(b"la li lu")
            t.send(key)
        t.expect(FOUR.encode() + b"\r\n\r\n")
        t.expect(b"> ")
        say(t, "/save " + path("keys.chat"))
        check(messages(path("keys.chat"))[2]["content"] == "grüße think", messages(path("keys.chat")))
        t.send(b"sing\r")
        t.expect(b"la li lu la li lu ")
        t.send(b"\x04\x03")
        check(t.wait() == 0, "Ctrl-D", t.process.returncode)
    server.stop()


def test_ctrl_z_during_a_reply():
    server = Server(PARROT, *SIZES)
    for stop in (lambda t: t.send(b"\x1a")), (lambda t: t.signal(signal.SIGTSTP)):
        with during_a_reply(server) as t:
            stop(t)
            t.expect(b"\x1b[?2004l")
            until(LIMIT, t.restored, "the terminal's modes stay")
            t.signal(signal.SIGCONT)
            t.expect(b"\x1b[?2004h")
            t.send(b"hi\r\x03")
            t.expect(b"(stopped)")
            t.expect((HELLO + "\r\n").encode())
            t.expect(b"> ")
    server.stop()


def test_a_daemon_that_is_killed():
    here = path("killed.sock")
    server = Server(PARROT, *SIZES, "--listen", here, tcp=False)
    with chat(None, env={"QUERN_SOCKET": here}) as t:
        t.send(b"sing\r")
        t.expect(b"la li lu la li lu ")
        server.process.kill()
        t.expect(b"quern: ")
        t.expect(b"/retry")
        t.expect(b"> ")
        server.process.wait()
        check("nobody listens on the socket" in say(t, "hi"), "no daemon")
        check("nobody listens on the socket" in say(t, "/retry"), "no daemon")
        os.unlink(here) if os.path.exists(here) else None
        server = Server(PARROT, *SIZES, "--listen", here, tcp=False)
        check(say(t, "/retry") == HELLO + "\n", "the reply of the next daemon")
        got = say(t, "/tokens")
        check("4 messages" in got, "what the killed one said is not kept:", got)
    server.stop()


def test_signals_in_a_reply():
    server = Server(PARROT, *SIZES)
    with chat(server) as t:
        t.send(b"sing\r")
        t.expect(b"la li lu la li lu ")
        t.signal(signal.SIGTERM)
        check(t.wait() == -signal.SIGTERM, "status", t.process.returncode)
    until(LIMIT, lambda: running(server) == 0, "the request still runs")
    server.stop()


# ---- through pipes ----

def test_lines_through_pipes():
    server = Server(PARROT, *SIZES)
    done = pipe(server, "hi\n\nplease think\n/undo\nhi")
    check(done.returncode == 0 and done.stdout.decode() == f"{HELLO}\n{FOUR}\n{HELLO}\n" and not done.stderr, done)
    done = pipe(server, "hi\n/nonsense\nhi\n")
    check(done.returncode == 64 and done.stdout.decode() == HELLO + "\n" and b"unknown command" in done.stderr, done)
    done = pipe(server, b"hi\n\xff\xfe\nhi\n")
    check(done.returncode == 65 and done.stdout.decode() == HELLO + "\n" and b"not UTF-8" in done.stderr, done)
    with open(path("system"), "w") as f:
        f.write("Be brief.\n")
    done = pipe(server, "/system\n", "--system-file", path("system"))
    check(done.returncode == 0 and done.stdout == b"Be brief.\n\n", done)
    done = pipe(server, "/system\n", "--system-file", path("system"), "--system", "both")
    check(done.returncode == 64 and b"exclude each other" in done.stderr, done)
    with open(path("config.toml"), "w") as f:
        f.write('[persona.pirate]\nsystem = "Arr."\n')
    done = pipe(server, "/system\nhi\n", "-p", "pirate", env={"QUERN_CONFIG": path("config.toml")})
    check(done.returncode == 0 and done.stdout.decode() == "Arr.\n" + HELLO + "\n", done)
    done = pipe(server, "/system\n", "-p", "summarize")
    check(done.returncode == 0 and done.stdout.startswith(b"You summarize"), done)
    done = pipe(server, "/system\n", "-p", "nobody")
    check(done.returncode == 64 and b"nobody" in done.stderr, done)
    done = pipe(server, "")
    check(done.returncode == 0 and not done.stdout and not done.stderr, done)
    done = pipe(server, "hi\n", "--load", "/nowhere/chat")
    check(done.returncode == 66 and not done.stdout, done)
    done = pipe(None, "hi\n", env={"QUERN_SOCKET": path("nobody.sock")})
    check(done.returncode != 0 and not done.stdout and b"nobody listens" in done.stderr, done)
    server.stop()


def test_the_same_bytes_in_this_process():
    server = Server(PARROT)
    text = "hi\nplease think\npaint\n"
    there, here = pipe(server, text), pipe(None, text, "--in-process", "-m", PARROT)
    check(there.stdout == here.stdout and here.returncode == 0, there, here)
    server.stop()


def test_a_reader_that_leaves():
    server = Server(PARROT, *SIZES)
    reader, writer = os.pipe()
    p = subprocess.Popen([QUERN, "chat"], stdin=subprocess.PIPE, stdout=writer, stderr=subprocess.PIPE,
                         env=SANITIZERS | {"PATH": os.environ["PATH"]} | environment(server))
    os.close(writer)
    p.stdin.write(b"sing\n" * 3)
    p.stdin.flush()
    check(os.read(reader, 2) == b"la", "no answer")
    os.close(reader)
    check(p.wait(LIMIT) == 0, "status", p.returncode)
    check(p.stderr.read() == b"", "something is said")
    p.stdin.close()
    p.stderr.close()
    until(LIMIT, lambda: running(server) == 0, "the request still runs")
    server.stop()


if __name__ == "__main__":
    run(globals(), sys.argv[6] if len(sys.argv) > 6 else "test_")
