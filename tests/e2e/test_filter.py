#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""test_filter.py: tests what the filter can do besides answering once: decisions, conversations and personas; and the
small commands next to it: personas, count, embed, default.

    test_filter.py QUERN STORY_MODEL CHAT_MODEL SLOWNESS PARROT [PREFIX_OF_CASES]

Most cases ask the server of test_ask.py (Fake), which records each request.
"""
import contextlib
import json
import os
import signal
import socket
import subprocess
import threading
import time

from lib.cases import check
from lib.files import path, written
from lib.terminal import Terminal
from test_ask import CHAT, ENV, Fake, LIMIT, PARROT, QUERN, ask
from test_serve import Server, main

HELLO = "Grüße! 😀 What can I do?\n".encode()


def state(name):
    """A folder for this user's state."""
    return {"XDG_STATE_HOME": path("state-" + name)}


def said(f):
    """The roles and texts of the last request."""
    return [(m["role"], m["content"]) for m in f.asked[-1]["messages"]]


def says_no(f, *args, **more):
    """A decision that is no, which is not a failure: nothing is said."""
    p = subprocess.run([QUERN, "--yes", *args], capture_output=True, timeout=LIMIT, cwd=path("."), env={**ENV, "QUERN_SOCKET": f.sock},
                       **({"stdin": subprocess.DEVNULL} if "input" not in more else more))
    check(p.returncode == 1, p.returncode, p.stderr)
    return p.stdout, p.stderr.decode()


# ---- decisions ----


def test_yes_and_no_are_the_exit_status():
    f = Fake("yes")
    args = {"text": b"The kettle is hot.", "QUERN_SOCKET": f.sock, "QUERN_ASK_TEMPERATURE": "1"}
    check(ask("--yes", "Is it hot?", **args)[0] == b"yes\n")
    check(f.asked[-1]["choice"] == ["yes", "no"] and f.asked[-1]["temperature"] == 0, f.asked[-1])
    check(f.text == "```\nThe kettle is hot.\n```\n\nIs it hot?\n\nAnswer yes or no.", f.text)
    check(ask("--yes", "-q", "Is it hot?", **args) == (b"", ""))
    check(ask("--yes", "--temperature", "0.5", "Is it hot?", **args)[0] == b"yes\n" and f.asked[-1]["temperature"] == 0.5)
    f.answer = lambda ask: ("no",)
    out, err = says_no(f, "Is it cold?")
    check(out == b"no\n" and err == "", out, err)


def test_a_decision_that_fails_has_status_2():
    f = Fake("perhaps")
    check("'perhaps', which is none of yes,no" in ask("--yes", "x", status=2, QUERN_SOCKET=f.sock)[1])
    f.answer, f.finish = (lambda ask: ("ye",)), "length"
    check("the answer was cut" in ask("--yes", "x", status=2, QUERN_SOCKET=f.sock)[1])
    ask("--yes", "x", status=2, QUERN_SOCKET=path("nobody.sock"))
    for bad in ["--choose", "a,b"], ["--schema", "x"], ["--json"], ["-x"], ["-c"], ["--verbose"]:
        ask("--yes", "x", *bad, status=2, QUERN_SOCKET=f.sock)
    ask("-q", "x", status=64, QUERN_SOCKET=f.sock)


def test_one_of_some_texts_is_chosen():
    f = Fake("ham")
    check(ask("--choose", "spam,ham", "What is it?", text=b"Lunch?", QUERN_SOCKET=f.sock)[0] == b"ham\n")
    check(f.asked[-1]["choice"] == ["spam", "ham"] and f.text.endswith("\n\nAnswer with one of these: spam, ham."), f.asked[-1])
    out = [ask("--choose", "spam,ham", "What is it?", "--in-process", "-m", CHAT, "--ctx", "512", text=b"Lunch?")[0] for _ in range(2)]
    check(out[0] == out[1] and out[0] in (b"spam\n", b"ham\n"), out)


def test_a_decision_for_each_line():
    f = Fake()
    f.answer = lambda ask: ("yes" if "good" in ask["messages"][-1]["content"] else "no",)
    check(ask("--each", "--yes", "Praise?", text=b"good\nbad\n", QUERN_SOCKET=f.sock)[0] == b"yes\nno\n")
    check(says_no(f, "--each", "Praise?", input=b"bad\nworse\n")[0] == b"no\nno\n")
    f.answer = lambda ask: ("hm",)
    ask("--each", "--yes", "Praise?", text=b"bad\n", status=2, QUERN_SOCKET=f.sock)


# ---- conversations ----


def test_the_next_question_goes_on_from_the_last_answer():
    f, env = Fake({"reasoning_content": "hm"}, "Four."), state("last")
    check("there is no last answer" in ask("-c", "x", status=66, QUERN_SOCKET=f.sock, **env)[1])
    ask("--system", "Be brief.", "Two and two?", QUERN_SOCKET=f.sock, **env)
    f.answer = lambda ask: ("Five.",)
    ask("-c", "And one more?", QUERN_SOCKET=f.sock, **env)
    check(said(f) == [("system", "Be brief."), ("user", "Two and two?"), ("assistant", "Four."), ("user", "And one more?")], said(f))
    check(f.asked[-1]["messages"][2]["reasoning_content"] == "hm", f.asked[-1])
    ask("-c", "--no-keep", "And then?", QUERN_SOCKET=f.sock, **env)
    check(len(said(f)) == 6 and said(f)[4] == ("assistant", "Five."), said(f))
    ask("-c", "--system", "Be long.", "Why?", QUERN_SOCKET=f.sock, **env)
    check(len(said(f)) == 6 and said(f)[0] == ("system", "Be long."), said(f))
    ask("A new one.", QUERN_SOCKET=f.sock, **env)
    check(said(f) == [("user", "A new one.")], said(f))


def test_a_conversation_that_is_too_large_is_not_kept():
    f, env = Fake("Long.", n_ctx=10**9), state("large")
    ask("x", QUERN_SOCKET=f.sock, **env)
    ask("What is it?", text=b"word " * 300_000, QUERN_SOCKET=f.sock, **env)
    check("there is no last answer" in ask("-c", "x", status=66, QUERN_SOCKET=f.sock, **env)[1])


def test_a_session_is_in_a_file():
    f, env, name = Fake("Four."), state("session"), path("sum.chat")
    ask("--session", "", "Two?", status=64)
    ask("--session", name, "Two and two?", QUERN_SOCKET=f.sock, **env)
    ask("--session", name, "And one more?", QUERN_SOCKET=f.sock, **env)
    check([t for _, t in said(f)] == ["Two and two?", "Four.", "And one more?"], said(f))
    with open(name, encoding="utf-8") as saved:
        check([json.loads(line)["role"] for line in saved] == ["user", "assistant"] * 2)
    check("there is no last answer" in ask("-c", "x", status=66, QUERN_SOCKET=f.sock, **env)[1], "a session is not the last answer")
    bad = written("not.chat", b"hello\n")
    check("line 1 is not JSON" in ask("--session", bad, "x", status=65, QUERN_SOCKET=f.sock)[1])
    for other in ["--each"], ["-c"], ["--overflow=chunk"], ["--yes"]:
        ask("--session", name, "x", *other, status=2 if other == ["--yes"] else 64, QUERN_SOCKET=f.sock)


def test_questions_in_one_session_wait_for_each_other():
    f, name = Fake("Four."), path("shared.chat")
    f.answer = lambda ask: time.sleep(0.2) or ("Four.",)
    start = lambda i, *more: subprocess.Popen([QUERN, "--session", name, *more, f"Question {i}?"], env={**ENV, "QUERN_SOCKET": f.sock},
                                              stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    said = [p.communicate(timeout=LIMIT) for p in [start(i) for i in range(8)]]
    check(all(out == b"Four.\n" for out, _ in said) and sum(b"waiting for another question in" in err for _, err in said) >= 1, said)
    with open(name, encoding="utf-8") as saved:
        turns = [json.loads(line)["content"] for line in saved]
    check(sorted(turns[::2]) == [f"Question {i}?" for i in range(8)] and turns[1::2] == ["Four."] * 8, turns)
    check(not [n for n in os.listdir(path(".")) if n.startswith(".shared")], "no lock remains")
    f.answer = lambda ask: time.sleep(LIMIT) or ()
    stuck, before = start(8), len(f.asked)
    while len(f.asked) == before:
        time.sleep(0.01)
    out, err = start(9, "--session-wait", "1").communicate(timeout=LIMIT)
    check(not out and b"is used by another question" in err, err)
    stuck.kill()
    stuck.communicate()
    f.answer = lambda ask: ("Five.",)
    check(ask("--session", name, "x", QUERN_SOCKET=f.sock) == (b"Five.\n", ""), "a process that was killed has no lock")


def test_what_cannot_be_a_session_is_refused_before_anything_is_asked():
    f, fixed, folder = Fake("x"), written("fixed.chat", b"", 0o400), path("folder.chat")
    os.mkdir(folder)
    os.mkfifo(path("fifo.chat"))
    for name, status, words in ((fixed, 74, "is read-only"), (folder, 66, "is a folder"), (path("fifo.chat"), 66, "is a pipe"),
                                (path("nodir/x.chat"), 66, "no such folder"), (written("no.chat", b"[]\n"), 65, "not an object")):
        _, err = ask("--session", name, "x", status=status, QUERN_SOCKET=f.sock)
        check(words in err and name in err, err)
    check(not f.asked, "nothing was asked", f.asked)
    os.symlink(path("real.chat"), path("link.chat"))
    written("real.chat", b"")
    ask("--session", path("link.chat"), "x", QUERN_SOCKET=f.sock)
    check(os.path.islink(path("link.chat")) and os.path.getsize(path("real.chat")), "a link stays one")


def test_a_conversation_at_a_daemon_uses_its_cache():
    server, env = Server(PARROT), state("daemon")
    for args in (), ("-c",):
        out, err = ask("-v", *args, "What?", QUERN_SOCKET=server.sock, **env)
        check(out == HELLO, out)
    check(" of them cached" in err, err)
    server.stop()


# ---- a daemon that hangs ----


def here(name, sock=None):
    """The environment in which the socket is that of this user's daemon, and this process has a model, too."""
    run = os.path.join(path("run-" + name), "quern")
    os.makedirs(run)
    if sock:
        os.symlink(sock, os.path.join(run, "quern.sock"))
    return {"XDG_RUNTIME_DIR": path("run-" + name), "QUERN_MODELS": models("hang-" + name, m=PARROT), "QUERN_SILENCE": "1"}


class Hanging:
    """A daemon that accepts connections, says `head`, and hangs; not even its backlog has room if `full`."""

    def __init__(self, name, head=b"", full=False):
        self.env, self.head, self.kept = here(name), head, []
        self.sock = os.path.join(self.env["XDG_RUNTIME_DIR"], "quern/quern.sock")
        self.listener = socket.socket(socket.AF_UNIX)
        self.listener.bind(self.sock)
        self.listener.listen(0 if full else 64)
        if full:
            for _ in range(8):
                self.kept.append(socket.socket(socket.AF_UNIX))
                self.kept[-1].setblocking(False)
                self.kept[-1].connect_ex(self.sock)
        else:
            threading.Thread(target=self.serve, daemon=True).start()

    def serve(self):
        while True:
            c = self.listener.accept()[0]
            self.kept.append(c)
            try:
                if self.head and c.recv(65536):
                    c.sendall(self.head)
            except OSError:
                pass  # the filter has gone


STREAM = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\n"
PIECE = b'data: {"model":"m","choices":[{"index":0,"delta":{"content":"It "},"finish_reason":null}]}\n\n'


def test_a_daemon_that_hangs_is_left_for_this_process():
    server = Server(PARROT)
    env = here("stopped", server.sock)
    os.kill(server.process.pid, signal.SIGSTOP)
    hanging = [Hanging(*args) for args in (("full", b"", True), ("accepts",), ("headers", STREAM))]
    for env in [env] + [h.env for h in hanging]:
        out, err = ask("What?", **env)
        check(out == HELLO and "hangs: it has been silent for 1 s" in err and err.count("\n") == 1, out, err)
    out, err = ask("--each", "What?", text=b"line\n" * 20, **env)
    check(out == HELLO * 20 and err.count("hangs") == 1, out, err)
    args = {"text": b"line\n" * 9, "XDG_CACHE_HOME": path("cache-hang")}
    check(ask("--overflow=tail", "What?", **args, **env)[0] == HELLO)
    check(ask("--choose", "a,b", "What?", **env)[0] in (b"a\n", b"b\n"))
    _, err = ask("What?", status=69, QUERN_SOCKET=server.sock, QUERN_SILENCE="1")
    check("hangs" in err and server.sock in err, err)
    os.kill(server.process.pid, signal.SIGCONT)
    server.stop()


def test_after_the_first_word_a_daemon_that_hangs_is_an_error():
    out, err = ask("What?", status=74, **Hanging("late", STREAM + PIECE).env)
    check(out == b"It " and "hangs" in err, out, err)


def test_a_daemon_that_has_nothing_to_say_does_not_hang():
    f = Fake("yes")
    f.answer = lambda ask: time.sleep(2.5) or ("yes",)
    check(ask("What?", QUERN_SOCKET=f.sock, QUERN_SILENCE="1") == (b"yes\n", ""))


# ---- personas ----


def persona(name, text):
    os.makedirs(path("config/quern/personas"), exist_ok=True)
    with open(path(f"config/quern/personas/{name}.txt"), "w", encoding="utf-8") as f:
        f.write(text)
    return {"XDG_CONFIG_HOME": path("config")}


def test_a_persona_is_a_file_with_arguments():
    f = Fake("yes")
    env = persona("critic", "You judge {{lang}} of {{year=1999}}, {{year=2000}} and {{ not }} {{this}\n") | {"QUERN_SOCKET": f.sock}
    ask("@critic", "lang=C=x", "What?", "a=b", **env)
    check(said(f) == [("system", "You judge C=x of 1999, 2000 and {{ not }} {{this}"), ("user", "What? a=b")], said(f))
    ask("-p", "critic", "--arg", "lang=D", "--arg", "lang=Go", "--arg", "year=7", "What?", **env)
    check(said(f)[0][1].startswith("You judge Go of 7, 7 and"), said(f))
    check("persona 'critic' needs an argument: lang=VALUE" in ask("@critic", "x", status=64, **env)[1])
    check("has no argument 'speed'; it has lang, year\n" in ask("@critic", "speed=1", "x", status=64, **env)[1])
    check("did you mean 'critic'" in ask("@critik", "x", status=64, **env)[1])
    ask("-p", "../personas/critic", "x", status=64, **env)
    ask("--arg", "a=b", "x", status=64, **env)
    ask("@critic", "lang=C", "--system", "Be.", "x", status=64, **env)
    for text in "@critic, what?", "@alice says: hi", "@":
        ask(text, **env)
        check(said(f) == [("user", text)], said(f))
    ask("--", "@critic", **env)
    check(said(f) == [("user", "@critic")], said(f))


def test_built_in_personas_and_those_of_the_configuration_have_arguments():
    f = Fake("yes")
    ask("@translate", "to=French", "hello", QUERN_SOCKET=f.sock)
    check("given into French. Keep" in said(f)[0][1] and said(f)[1] == ("user", "hello"), said(f))
    config = written("persona.toml", b'[persona.tell]\nsystem = "Tell in {{words=10}} words."\n[persona.critic]\ntop-k = 3\n')
    for args, text in (["@tell"], "Tell in 10 words."), (["@tell", "words=5"], "Tell in 5 words."):
        ask(*args, "x", QUERN_SOCKET=f.sock, QUERN_CONFIG=config)
        check(said(f)[0] == ("system", text), said(f))
    ask("@critic", "x", QUERN_SOCKET=f.sock, QUERN_CONFIG=config, **persona("critic", "From the file."))
    check(said(f)[0][1] == "From the file." and f.asked[-1]["top_k"] == 3, f.asked[-1])


def test_personas_are_listed_and_shown():
    env = persona("critic", "You judge {{lang}}.\nAnd more.\n")
    config = written("list.toml", b'[persona.tell]\nsystem = "Tell."\n')
    out = ask("personas", QUERN_CONFIG=config, **env)[0].decode()
    check(out.index("summarize") < out.index("tell ") < out.index("critic ") and "You judge {{lang}}.\n" in out, out)
    check(all(len(line) <= 80 for line in out.splitlines()), out)
    check(ask("personas", "critic", **env)[0] == b"You judge {{lang}}.\nAnd more.\n")
    check(ask("personas", "tell", QUERN_CONFIG=config)[0] == b"Tell.\n")
    shown = ask("personas", "translate")[0].decode()
    check("{{to=the language" in shown, shown)
    ask("personas", "nobody", status=64)
    env = persona("many", "{" * 500000 + "}}")
    os.makedirs(os.path.join(env["XDG_CONFIG_HOME"], "quern/personas/folder.txt"))
    out, said = ask("personas", status=66, **env)
    check(b"many" in out and b"(cannot be read)" in out and "folder.txt" in said, out, said)


# ---- counting, vectors, the default ----


def models(name, **files):
    """A folder of models: links to files."""
    folder = path(name)
    os.makedirs(folder, exist_ok=True)
    for model, file in files.items():
        os.symlink(os.path.abspath(file), os.path.join(folder, model + ".gguf"))
    return folder


def test_tokens_are_counted():
    a, b = written("a.txt", b"Hello world\n"), written("b.txt", b"One two three")
    n = [len(ask("tokenize", "--no-special", CHAT, text=open(f, "rb").read())[0].split()) for f in (a, b)]
    check(ask("count", "-m", CHAT, text=b"Hello world\n")[0].decode() == f"{n[0]}\n")
    check(ask("count", "-m", CHAT, a)[0].decode() == f"{n[0]} {a}\n")
    check(ask("count", "-m", CHAT, a, b)[0].decode() == f"{n[0]} {a}\n{n[1]} {b}\n{sum(n)} total\n")
    out = ask("count", "-m", CHAT, a, path("missing"), b, status=66)[0].decode()
    check(out.endswith(f"{sum(n)} total\n") and out.count("\n") == 3, out)
    ask("count", "--models", models("one", small=CHAT), a)


def test_vectors_are_lines_of_json():
    args = ("--in-process", "-m", CHAT, "--ctx", "256", "--pooling", "mean")
    out = [json.loads(line) for line in ask("embed", *args, "red", "green")[0].splitlines()]
    check(len(out) == 2 and len(out[0]) == len(out[1]) > 8 and out[0] != out[1])
    lines = ask("embed", *args, text=b"green\n\n" + b"red\n" * 20)[0].splitlines()
    check(len(lines) == 22 and json.loads(lines[0]) == out[1] and lines[1] == b"null" and json.loads(lines[21]) == out[0])
    server = Server(CHAT, "--ctx", "256")
    there = ask("embed", "--pooling", "mean", "--dimensions", "3", "red", QUERN_SOCKET=server.sock)[0]
    check(len(json.loads(there)) == 3, there)
    check("dimensions" in ask("embed", "--dimensions", "100000", "red", status=64, QUERN_SOCKET=server.sock)[1])
    ask("embed", b"\xff", status=64, QUERN_SOCKET=server.sock)
    server.stop()
    ask("embed", status=64)


def test_the_default_model_is_one_line_of_the_configuration():
    folder = models("two", small=CHAT, other=PARROT)
    home = path("default-home")
    os.makedirs(home)
    env = {"HOME": home, "QUERN_MODELS": folder}
    run = lambda *args: subprocess.run([QUERN, *args], env={k: v for k, v in ENV.items() if k != "QUERN_CONFIG"} | env,
                                                capture_output=True, timeout=LIMIT, stdin=subprocess.DEVNULL)
    got = run("default")
    check(got.returncode == 66 and b"quern default" in got.stderr and b"-m" in got.stderr, got)
    check(run("default", "smal").returncode == 66)
    got = run("default", "small")
    check(got.returncode == 0 and not got.stderr, got)
    check(run("default").stdout == b"small\n")
    config = os.path.join(home, ".config/quern/config.toml")
    check(open(config).read() == 'model = "small"\n')
    with open(config, "w") as f:
        f.write("# mine\nmodel = 'small' # this\n[serve]\nctx = 512\n")
    check(run("default", "other").returncode == 0)
    check(open(config).read() == '# mine\nmodel = "other" # this\n[serve]\nctx = 512\n', open(config).read())
    with open(config, "w") as f:
        f.write('model = """\nsmall"""\n')
    got = run("default", "other")
    check(got.returncode == 65 and open(config).read() == 'model = """\nsmall"""\n', got)
    os.remove(config)
    bare = {k: v for k, v in ENV.items() if k != "QUERN_CONFIG"} | env
    got = subprocess.run([QUERN, "default", "small.gguf"], env=bare, cwd=folder, capture_output=True, timeout=LIMIT)
    check(got.returncode == 0 and open(config).read() == f'model = "{os.path.realpath(folder)}/small.gguf"\n', got)
    ask("default", "small", status=64, QUERN_MODELS=folder)


def test_the_default_model_leaves_the_configuration_as_it_is():
    home, dots = path("default-dots"), path("dots.toml")
    env = {k: v for k, v in ENV.items() if k != "QUERN_CONFIG"} | {"HOME": home, "QUERN_MODELS": models("three", small=CHAT, other=PARROT)}
    run = lambda *args: subprocess.run([QUERN, "default", *args], env=env, capture_output=True, timeout=LIMIT, stdin=subprocess.DEVNULL, cwd=path("."))
    os.makedirs(os.path.join(home, ".config/quern"))
    config = os.path.join(home, ".config/quern/config.toml")
    os.symlink(dots, config)
    check(b"does not exist" in run("small").stderr and os.path.islink(config), "a link to nothing")
    for before, after in ((b"[serve]\r\nctx = 512\r\n", b'model = "small"\r\n[serve]\r\nctx = 512\r\n'),
                          (b"# a\r\n 'model'\t=  \"a\\\"#\"# b\r\n", b"# a\r\n 'model'\t=  \"small\"# b\r\n"),
                          (b"model='x'", b'model="small"')):
        written("dots.toml", before, 0o640)
        got = run("small")
        check(got.returncode == 0 and open(dots, "rb").read() == after, got, open(dots, "rb").read())
    check(os.path.islink(config) and os.stat(dots).st_mode & 0o777 == 0o640, "the link, and who may read it")
    started = [subprocess.Popen([QUERN, "default", name], env=env) for name in ("small", "other") * 4]
    check(all(p.wait(timeout=LIMIT) == 0 for p in started) and open(dots).read() in ('model="small"', 'model="other"'), open(dots).read())
    os.chmod(dots, 0o440)
    before = open(dots).read()
    check(b"is read-only" in run("small").stderr and open(dots).read() == before, "read-only")
    os.makedirs(path("no-model"))
    for bad, words in (("smal", b"did you mean 'small'"), (written("rubbish.gguf", b"rubbish"), b"does not begin with GGUF"),
                       (path("no-model"), b"it has no config.json")):
        got = run(bad)
        check(got.returncode and words in got.stderr and open(dots).read() == before, got)


def test_an_alias_of_the_daemon_is_a_name_everywhere():
    folder = models("alias", m=CHAT)
    server = Server(CHAT, "--alias", "gpt-x=m")
    run = os.path.join(path("alias-run"), "quern")
    os.makedirs(run)
    os.symlink(server.sock, os.path.join(run, "quern.sock"))
    env = {"XDG_RUNTIME_DIR": path("alias-run"), "QUERN_MODELS": folder}
    for args in ["inspect", "gpt-x"], ["count", "-m", "gpt-x", written("c.txt", b"x")], ["check", "gpt-x"]:
        ask(*args, **env)
    ask("inspect", "gpt-y", status=66, **env)
    server.stop()
    ask("inspect", "gpt-x", status=66, **env)


def test_of_several_models_one_has_to_be_named():
    server = Server([f"one={PARROT}", f"two={CHAT}"])
    for args in ["What?"], ["--each", "What?"], ["--yes", "What?"], ["embed", "What?"]:
        err = ask(*args, text=b"x", status=2 if "--yes" in args else 64, QUERN_SOCKET=server.sock)[1]
        check("which model?" in err and "-m NAME" in err and "quern default" in err, err)
        check(all(len(line) <= 80 for line in err.splitlines()), err)
    with contextlib.closing(Terminal([QUERN, "chat"], ENV | {"QUERN_SOCKET": server.sock}, LIMIT)) as t:
        t.expect(b"commands)")
        t.expect(b"> ")
        t.send(b"hi\r")
        t.expect(b"/model NAME asks one of them)")
        t.expect(b"> ")
        t.send(b"/model one\r")
        t.expect(b"(one answers, at unix:")
        t.expect(b"> ")
        t.send(b"/retry\r")
        t.expect(HELLO[:-1])
    server.stop()


def test_without_a_model_three_are_named():
    _, err = ask("x", status=66, HOME=path("default-none"))
    check(err.count("quern pull hf:Qwen/Qwen3-") == 3 and "-m" in err, err)
    check(all(len(line) <= 80 for line in err.splitlines()[1:]), err)


if __name__ == "__main__":
    os.makedirs(path("home"), exist_ok=True)
    main(globals())
