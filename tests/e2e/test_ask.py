#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""test_ask.py: tests `quern ask` as users type it: its requests, its output and its exit status.

    test_ask.py QUERN STORY_MODEL CHAT_MODEL SLOWNESS PARROT [PREFIX_OF_CASES]

Most cases ask a server in this file (Fake), which records each request and answers as the case tells it. It counts each
word as a token. The others ask PARROT, which says prepared texts, and CHAT_MODEL, in a daemon and in this process.
Each function test_* is a case, whose name is a sentence that must be true.
"""
import http.server
import json
import os
import pty
import random
import re
import signal
import socketserver
import subprocess
import sys
import threading
import time

PARROT = os.path.abspath(sys.argv.pop(5))

from lib.cases import check
from lib.files import path, written
from lib.terminal import written_to
from test_serve import CHAT as CHAT_MODEL, LIMIT, QUERN, SLOWNESS, Server, main

QUERN, CHAT = os.path.abspath(QUERN), os.path.abspath(CHAT_MODEL)
ENV = {k: v for k, v in os.environ.items() if not k.startswith(("QUERN_", "XDG_")) and k != "NO_COLOR"}
ENV |= {"HOME": path("home"), "QUERN_CONFIG": "", "QUERN_THREADS": "1", "TERM": "xterm"}


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, *_):
        pass

    def address_string(self):
        return "unix"

    def reply(self, what, status=200):
        body = json.dumps(what).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def do_GET(self):
        self.reply({"object": "list", "data": [{"id": "m", "fingerprint": self.server.fake.fingerprint,
                                                "context_length": self.server.fake.n_ctx}]})

    def do_POST(self):
        fake = self.server.fake
        ask = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        words = sum(len(m["content"].split()) for m in ask["messages"])
        if self.path == "/v1/chat/render":
            fake.n_counts += 1
            return self.reply({"prompt": "", "count": words, "tokens": []})
        fake.asked.append(ask)
        if words + ask.get("max_tokens", 1) > fake.n_ctx:
            return self.reply({"error": {"message": f"the context holds {fake.n_ctx} tokens and the prompt alone has {words}",
                                         "type": "invalid_request_error", "code": "context_length_exceeded"}}, 400)
        if fake.refusal:
            return self.reply({"error": fake.refusal[1]}, fake.refusal[0])
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.send_header("Connection", "close")
        self.end_headers()
        try:
            for delta in fake.answer(ask):
                self.wfile.write(b"data: " + json.dumps({"id": "x", "object": "chat.completion.chunk", "model": "m", "choices": [
                    {"index": 0, "delta": delta if isinstance(delta, dict) else {"content": delta}, "finish_reason": None}]}).encode() + b"\n\n")
            self.wfile.write(b"data: " + json.dumps({"id": "x", "object": "chat.completion.chunk", "model": "m", "choices": [
                {"index": 0, "delta": {}, "finish_reason": fake.finish}]}).encode() + b"\n\ndata: [DONE]\n\n")
        except OSError:
            fake.left.set()  # the client has gone
        self.close_connection = True


class Fake:
    """A server on a Unix socket. answer(request): pieces of the answer, texts or deltas."""

    n = 0

    def __init__(self, *pieces, finish="stop", n_ctx=1000, refusal=None):
        Fake.n += 1
        self.sock = path(f"fake{Fake.n}.sock")
        self.asked, self.n_counts, self.left = [], 0, threading.Event()
        self.finish, self.n_ctx, self.refusal, self.fingerprint = finish, n_ctx, refusal, "one"
        self.answer = lambda ask: pieces
        self.server = socketserver.ThreadingUnixStreamServer(self.sock, Handler)
        self.server.daemon_threads = True
        self.server.fake = self
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    @property
    def text(self):
        """What the user's message said, of the last request."""
        return self.asked[-1]["messages"][-1]["content"]


def ask(*args, stdin=subprocess.DEVNULL, text=None, status=0, program=QUERN, stdout=subprocess.PIPE, **env):
    """Runs the filter; text: bytes for its standard input. Standard output and error."""
    given = {"stdin": stdin} if text is None else {"input": text}
    p = subprocess.run([program, *args], stdout=stdout, stderr=subprocess.PIPE, timeout=LIMIT, cwd=path("."),
                       env={**ENV, **env}, **given)
    said = p.stderr.decode()
    check(p.returncode == status, args, "status", p.returncode, "not", status, said)
    failed = re.findall(r"^quern: (?!warning)", said, re.M)
    check(not status or len(failed) == 1, args, "one line says why", said)
    return p.stdout, said


# ---- what is sent ----


def on_terminal(*args):
    """The same, at a terminal: what it is shown."""
    return written_to(lambda slave: ask(*args, stdout=slave))


def test_a_terminal_does_not_act_on_an_answer():
    raw, _ = ask("--in-process", "-m", PARROT, "paint")
    check(b"\x1b[31mred\x1b[2J" in raw, "a pipe gets what was said", raw)
    seen = on_terminal("--in-process", "-m", PARROT, "paint")
    check(b"\x1b" not in seen and b"Look: \\x1B[31mred\\x1B[2J" in seen, seen)


def test_nor_on_an_answer_in_json():
    raw, _ = ask("--in-process", "--json", "-m", PARROT, "paint")
    seen = on_terminal("--in-process", "--json", "-m", PARROT, "paint")
    check(raw.decode() != raw.decode("ascii", "ignore"), "the answer has more than ASCII", raw)
    check(seen == seen.decode("ascii", "ignore").encode(), "a terminal gets ASCII", seen)
    said = ["".join(json.loads(l).get("text", "") for l in out.splitlines()) for out in (raw, seen)]
    check(said[0] == said[1], "which says the same", said)


def test_words_are_the_instruction():
    f = Fake("yes")
    check(ask("Is", "this", "it?", QUERN_SOCKET=f.sock)[0] == b"yes\n")
    check(f.asked[0]["messages"] == [{"role": "user", "content": "Is this it?"}], f.asked)
    check(set(f.asked[0]) <= {"messages", "seed", "stream", "stream_options"}, "what nobody said is not sent", f.asked)
    ask("ask", "Is this it?", QUERN_SOCKET=f.sock)
    check(f.text == "Is this it?", f.text)
    ask("--", "serve", QUERN_SOCKET=f.sock)
    check(f.text == "serve", f.text)
    ask("-n", "7", "one", "--top-k=3", "two", "--seed", "9", "--stop", "a", "--stop", "b", "--temperature", "0",
        "-m", "m", QUERN_SOCKET=f.sock)
    a = f.asked[-1]
    check(f.text == "one two", f.text)
    check((a["max_tokens"], a["top_k"], a["seed"], a["stop"], a["temperature"], a["model"]) == (7, 3, 9, ["a", "b"], 0, "m"), a)
    ask("x", QUERN_SOCKET=f.sock, QUERN_ASK_TOP_K="4")
    check(f.asked[-1]["top_k"] == 4, "the environment is somebody too", f.asked[-1])


def test_texts_come_before_the_instruction():
    f = Fake("yes")
    a, b = written("a.txt", b"first"), written("b ``` .txt", b"```\nsecond\n```\n")
    for args, text, message in [
            ((), b"only this", "only this"),
            (("Why?",), b"log\n", "```\nlog\n```\n\nWhy?"),
            (("Why?", "-f", "a.txt"), None, "a.txt:\n```\nfirst\n```\n\nWhy?"),
            (("-f", "a.txt"), None, "a.txt:\n```\nfirst\n```\n"),
            (("-f", "a.txt", "Why?", "--file", "b ``` .txt"), b"log",
             "a.txt:\n```\nfirst\n```\n\nb ``` .txt:\n````\n```\nsecond\n```\n````\n\nstandard input:\n```\nlog\n```\n\nWhy?"),
            (("-f", "a.txt", "-f", "-", "-f", "b ``` .txt", "Why?"), b"log",
             "a.txt:\n```\nfirst\n```\n\nstandard input:\n```\nlog\n```\n\nb ``` .txt:\n````\n```\nsecond\n```\n````\n\nWhy?"),
            (("--allow-empty", "Why?"), b"", "```\n```\n\nWhy?")]:
        ask(*args, text=text, QUERN_SOCKET=f.sock)
        check(f.text == message, args, f.text)
    with open(a) as file:
        ask("Why?", stdin=file, QUERN_SOCKET=f.sock)
    check(f.text == "```\nfirst\n```\n\nWhy?", "a file as standard input", f.text)
    ask("hello", QUERN_SOCKET=f.sock)
    check(f.text == "hello", "/dev/null is nothing", f.text)


def test_hostile_names_and_encodings():
    f = Fake("yes")
    name = os.fsencode(path("a\n\x1b[2J\u202e")) + b"\xff"
    with open(name, "wb") as file:
        file.write(b"Gr\xfc\xdfe")
    _, said = ask("Why?", "-f", name, QUERN_SOCKET=f.sock)
    check(f.text.endswith(r"a\x0A\x1B[2J\xE2\x80\xAE\xFF" + ":\n```\nGrüße\n```\n\nWhy?"), f.text)
    check("2 bytes are not UTF-8, the first at offset 2; read as Windows-1252" in said and "\x1b" not in said, said)
    ask("Warum \udcfc?", text="ü".encode("utf-16"), QUERN_SOCKET=f.sock)
    check(f.text == "```\nü\n```\n\nWarum ü?", f.text)
    ask("x", "--encoding", "cp437", text=b"\x81", QUERN_SOCKET=f.sock, LC_ALL="C")
    check(f.text == "```\nü\n```\n\nx", f.text)
    _, said = ask("x", "--encoding", "none", text=b"a", status=64, QUERN_SOCKET=f.sock)
    check("'none' is not an encoding" in said, said)
    _, said = ask("x", stdin=open(QUERN, "rb"), status=65, QUERN_SOCKET=f.sock)
    check(said == "quern: standard input looks like an ELF file (4096 bytes looked at)\n", said)
    n = len(f.asked)
    ask("x", "-f", "nothing", status=66, QUERN_SOCKET=f.sock)
    ask("x", "-f", ".", status=66, QUERN_SOCKET=f.sock)
    ask("x", "-f", "", status=66, QUERN_SOCKET=f.sock)
    check(len(f.asked) == n, "nothing was asked")


def test_forms():
    f = Fake('{"a": 1}')
    ask("x", "--schema", written("schema.json", b'{"type": "object"}'), QUERN_SOCKET=f.sock)
    check(f.asked[-1]["response_format"]["json_schema"]["schema"] == {"type": "object"}, f.asked[-1])
    ask("x", "--json-object", QUERN_SOCKET=f.sock)
    check(f.asked[-1]["response_format"] == {"type": "json_object"}, f.asked[-1])
    ask("x", "--grammar", written("g.gbnf", b'root ::= "x"'), QUERN_SOCKET=f.sock)
    check(f.asked[-1]["grammar"] == 'root ::= "x"', f.asked[-1])
    ask("x", "--regex", "a+", QUERN_SOCKET=f.sock)
    check(f.asked[-1]["regex"] == "a+", f.asked[-1])
    ask("x", "--choice", "yes,no,", QUERN_SOCKET=f.sock)
    check(f.asked[-1]["choice"] == ["yes", "no", ""], f.asked[-1])
    for other in ["--json-object"], ["--grammar", "g.gbnf"], ["--regex", "a"], ["--choice", "a"]:
        ask("x", *other, "--schema", "schema.json", status=64, QUERN_SOCKET=f.sock)
    _, said = ask("x", "--schema", written("bad.json", b'{"type": }'), status=65, QUERN_SOCKET=f.sock)
    check("bad.json:1:" in said, said)
    ask("x", "--schema", "none.json", status=66, QUERN_SOCKET=f.sock)
    n = len(f.asked)
    for empty in ["--grammar", written("empty.gbnf", b"")], ["--regex", ""], ["--choice", ""]:
        check("it is empty" in ask("x", *empty, status=64, QUERN_SOCKET=f.sock)[1], "an empty form is not no form", empty)
    for bad in ["--grammar", written("bad.gbnf", b"\xff")], ["--regex", b"a\xff"], ["--choice", b"a\xff,b"]:
        check("not UTF-8" in ask("x", *bad, status=65, QUERN_SOCKET=f.sock)[1], bad)
    check(len(f.asked) == n, "nothing was asked")


def test_personas():
    f = Fake("yes")
    ask("-p", "translate", "into French", text=b"hello", QUERN_SOCKET=f.sock)
    check([m["role"] for m in f.asked[-1]["messages"]] == ["system", "user"] and "translat" in f.asked[-1]["messages"][0]["content"])
    check(f.text == "```\nhello\n```\n\ninto French", f.text)
    check(abs(f.asked[-1]["temperature"] - 0.2) < 1e-6, f.asked[-1])
    link = path("reviewer")
    os.symlink(QUERN, link)
    ask(text=b"diff", program=link, QUERN_SOCKET=f.sock)
    check("review" in f.asked[-1]["messages"][0]["content"] and f.text == "diff", f.asked[-1])
    _, said = ask("-p", "revewer", "x", status=64, QUERN_SOCKET=f.sock)
    check("did you mean 'reviewer'" in said and "commit-message" in said, said)
    config = written("config.toml", b'[persona.pirate]\nsystem = "Arr."\ntop-k = 5\n[persona.summarize]\nmax-tokens = 3\n')
    ask("-p", "pirate", "x", QUERN_SOCKET=f.sock, QUERN_CONFIG=config)
    check(f.asked[-1]["messages"][0]["content"] == "Arr." and f.asked[-1]["top_k"] == 5, f.asked[-1])
    os.symlink(QUERN, path("pirate"))
    ask("--top-k", "6", "x", program=path("pirate"), QUERN_SOCKET=f.sock, QUERN_CONFIG=config)
    check(f.asked[-1]["messages"][0]["content"] == "Arr." and f.asked[-1]["top_k"] == 6, f.asked[-1])
    ask("-p", "summarize", "x", QUERN_SOCKET=f.sock, QUERN_CONFIG=config)
    check("summarize" in f.asked[-1]["messages"][0]["content"] and f.asked[-1]["max_tokens"] == 3, f.asked[-1])
    ask("--system-file", written("system", b"Be."), "x", QUERN_SOCKET=f.sock)
    check(f.asked[-1]["messages"][0]["content"] == "Be.", f.asked[-1])


# ---- what comes out ----


def test_the_answer_and_nothing_else():
    f = Fake({"reasoning_content": "hm"}, "Grüße ", "😀")
    out, said = ask("x", QUERN_SOCKET=f.sock)
    check(out == "Grüße 😀\n".encode() and said == "", out, said)
    f.answer = lambda ask: ("a line\n",)
    check(ask("x", QUERN_SOCKET=f.sock)[0] == b"a line\n", "a newline is not doubled")
    f.answer = lambda ask: ()
    check(ask("x", QUERN_SOCKET=f.sock)[0] == b"", "an empty answer is empty")
    f.finish = "length"
    out, said = ask("x", QUERN_SOCKET=f.sock)
    check(said == "quern: warning: the answer was cut, because the context is full (see --ctx)\n", said)
    out, said = ask("-n", "7", "x", QUERN_SOCKET=f.sock)
    check(said == "quern: warning: the answer was cut after --max-tokens 7\n", said)


def test_verbose_and_events():
    f = Fake({"reasoning_content": "hm"}, "a", "b")
    out, said = ask("-v", "x", QUERN_SOCKET=f.sock)
    check(out == b"ab\n" and f"quern: unix:{f.sock}, model m" in said and said.startswith("hm\n"), out, said)
    out, said = ask("--json", "x", QUERN_SOCKET=f.sock)
    events = [json.loads(line) for line in out.splitlines()]
    check([e["type"] for e in events] == ["start", "reasoning", "content", "content", "end"], events)
    check("".join(e["text"] for e in events if e["type"] == "content") == "ab", events)
    check(events[-1]["finish"] == "stop" and "usage" in events[-1] and "timings" in events[-1], events)
    check(events[0]["place"] == "unix:" + f.sock, events)


def test_nothing_to_ask():
    f = Fake("yes")
    p = subprocess.run([QUERN], stdin=subprocess.DEVNULL, capture_output=True, env=ENV, timeout=LIMIT)
    check(p.returncode == 64 and p.stderr.startswith(b"usage: ") and not p.stdout, p)
    ask("-v", status=64, QUERN_SOCKET=f.sock)
    _, said = ask("serv", status=64, QUERN_SOCKET=f.sock)
    check("did you mean 'quern serve'" in said and "quern -- serv" in said, said)
    _, said = ask("--no-such", "x", status=64, QUERN_SOCKET=f.sock)
    check("--no-such" in said, said)
    for args in ((), ("-p", "summarize"), ("--overflow=tail",), ("--overflow=chunk",)):
        _, said = ask(*args, text=b"", status=64, QUERN_SOCKET=f.sock)
        check("the text is empty, and there is no instruction" in said, said)
    check(not f.asked)
    ask("serv", text=b"x", QUERN_SOCKET=f.sock)
    check(f.text.endswith("serv"), "with something on standard input it is an instruction", f.text)


def test_an_empty_text():
    f = Fake("yes")
    written("none.txt", b"")
    for how in (), ("--overflow=tail",), ("--overflow=chunk",):
        for args, text, what in ((), b"", "standard input is empty"), (("-f", "none.txt"), None, "none.txt is empty"), \
                (("-f", "none.txt"), b"", "all texts are empty"):
            _, said = ask("Who is suspicious?", *args, *how, text=text, status=65, QUERN_SOCKET=f.sock)
            check(what in said and "--allow-empty" in said, args, how, said)
    check(not f.asked)
    ask("Who is suspicious?", "-f", "none.txt", text=b"root", QUERN_SOCKET=f.sock)
    check("root" in f.text, "one text has something", f.text)


def test_exit_codes():
    for code, status, error in [(401, 77, {}), (403, 77, {}), (404, 69, {"code": "model_not_found"}), (429, 75, {}), (503, 75, {}), (504, 75, {}),
                                (413, 65, {}), (500, 69, {}), (400, 64, {"code": "out_of_range"}),
                                (400, 69, {"code": "unsupported_value"}), (400, 69, {"code": "no_chat_template"})]:
        f = Fake(refusal=(code, {"message": "because", "type": "x", **error}))
        out, said = ask("x", status=status, QUERN_SOCKET=f.sock)
        check(said == "quern: because\n" and not out, said)
    _, said = ask("x", status=69, QUERN_SOCKET=path("no.sock"))
    ask("x", status=66, HOME=path("none"), XDG_RUNTIME_DIR=path("none"))
    f = Fake(n_ctx=10)
    _, said = ask("x", text=b"y " * 100, status=65, QUERN_SOCKET=f.sock)
    check("10 tokens" in said and "104" not in said.split("--")[1] and "--overflow" in said, said)


def test_standard_output_that_takes_nothing():
    f = Fake(*["many words\n"] * 100)
    with open("/dev/full", "wb") as full:
        _, said = ask("x", stdout=full, status=74, QUERN_SOCKET=f.sock)
    check("No space left" in said, said)
    p = subprocess.run(["sh", "-c", '"$1" x >&-', "sh", QUERN], env={**ENV, "QUERN_SOCKET": f.sock}, capture_output=True, timeout=LIMIT)
    check(p.returncode == 74 and b"Bad file descriptor" in p.stderr, p)
    p = subprocess.run(["sh", "-c", '"$1" x <&- 2>&-', "sh", QUERN], env={**ENV, "QUERN_SOCKET": f.sock}, capture_output=True, timeout=LIMIT)
    check(p.returncode == 0 and p.stdout == b"many words\n" * 100, p)


def endless(f):
    def answer(ask):
        while not f.left.is_set():
            yield "la " * 1000
    return answer


def test_whole_lines_for_a_pipe():
    """So that the lines of several programs with one pipe do not mix."""
    f, go = Fake(), threading.Event()

    def pieces(_):
        yield "first "
        yield "half\nsecond"
        go.wait(LIMIT)
        yield " half"
    f.answer = pieces
    p = subprocess.Popen([QUERN, "hello"], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, env={**ENV, "QUERN_SOCKET": f.sock})
    early = os.read(p.stdout.fileno(), 1000)
    go.set()
    late, _ = p.communicate(timeout=LIMIT)
    check((early, late, p.returncode) == (b"first half\n", b"second half\n", 0), early, late, p.returncode)
    long = "x" * 100000
    f.answer = lambda _: [long, long, "\n", "end"]
    said, _ = ask("hello", QUERN_SOCKET=f.sock)
    check(said == (long + long + "\nend\n").encode(), "a long line", len(said))


def each(f, text, *args, **more):
    out, said = ask("--each", *args, text=text, QUERN_SOCKET=f.sock, **more)
    return out.decode().splitlines(), said


def test_each_line():
    f = Fake()
    late = threading.Event()

    def echo(asked):
        line = asked["messages"][-1]["content"].split("\n")[1]
        if line == "0":
            late.wait(LIMIT)  # the first answer is the last to come
        if line == "40":
            late.set()
        return [f" {line}\n\n", f"and {line}\r\n "]
    f.answer = echo
    out, _ = each(f, "".join(f"{i}\n" for i in range(30)).encode() + b"\r\n\n40\r\nlast\r", "repeat")
    check(out == [f"{i} and {i}" for i in range(30)] + ["", "", "40 and 40", "last and last"], out)
    check(len(f.asked) == 32, "empty lines are not asked", len(f.asked))
    many = [str(i) for i in range(1000)]
    check(each(f, "\n".join(many).encode(), "repeat")[0] == [f"{i} and {i}" for i in many], "many lines")
    out, _ = each(f, b"a\n\nb\n", "repeat", "--json")
    check([json.loads(x) for x in out] == [{"line": 1, "text": " a\n\nand a\r\n ", "finish": "stop"}, {"line": 2, "text": "", "finish": ""},
                                           {"line": 3, "text": " b\n\nand b\r\n ", "finish": "stop"}], out)
    f.finish = "length"
    check("2 of 2 answers were cut" in each(f, b"a\nb", "repeat")[1])
    f.answer = lambda asked: ["\033]0;x\007ä"]
    for more in (), ("--json",):
        shown = written_to(lambda slave: ask("--each", "x", *more, text=b"a\nb\n", stdout=slave, QUERN_SOCKET=f.sock))
        check(b"\033" not in shown and b"\007" not in shown and shown.count(b"\n") == 2, shown)


def test_each_line_that_fails():
    f = Fake()
    f.answer = lambda asked: ["yes"]
    long = b"x " * 1200  # more words than the context has tokens
    p = subprocess.run([QUERN, "--each", "x"], input=b"a\n" + long + b"\nb\n" + b"y" * (1 << 21) + b"\nc\n", capture_output=True, timeout=LIMIT,
                       env={**ENV, "QUERN_SOCKET": f.sock})
    check(p.returncode == 65 and p.stdout == b"yes\n\nyes\n\nyes\n", p)
    check(re.findall(rb"^quern: line (\d)", p.stderr, re.M) == [b"2", b"4"], p.stderr)
    for args, words in (("-f", "x"), "excludes --file"), (("--overflow=tail",), "--overflow"):
        _, said = ask("--each", *args, text=b"x", status=64, QUERN_SOCKET=f.sock)
        check(words in said, said)
    ask("--each", "x", status=64, QUERN_SOCKET=f.sock)


def test_each_line_of_a_slow_pipe():
    """An answer comes before the next line does, and a signal ends it all."""
    f = Fake("yes")
    p = subprocess.Popen([QUERN, "--each", "x"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                         env={**ENV, "QUERN_SOCKET": f.sock})
    for line in b"\xc3\xa4\n", b"b\n":
        p.stdin.write(line[:1])
        p.stdin.flush()
        p.stdin.write(line[1:])
        p.stdin.flush()
        check(os.read(p.stdout.fileno(), 100) == b"yes\n", line)
    started, never = threading.Event(), threading.Event()

    def hang(asked):
        yield "a"
        started.set()
        never.wait(LIMIT)
        yield from ("b" for _ in range(1000))
    f.answer = hang
    p.stdin.write(b"c\n")
    p.stdin.flush()
    check(started.wait(LIMIT))
    p.send_signal(signal.SIGTERM)
    check(p.wait(LIMIT) == -signal.SIGTERM, p.returncode)
    never.set()


def test_each_line_when_nobody_wants_answers():
    """The input stays open, and no further line comes."""
    f = Fake("yes")
    f.answer = lambda asked: ["yes"]
    gone = subprocess.Popen([QUERN, "--each", "x"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                            env={**ENV, "QUERN_SOCKET": f.sock})
    gone.stdin.write(b"a\n")
    gone.stdin.flush()
    check(os.read(gone.stdout.fileno(), 100) == b"yes\n")
    gone.stdout.close()
    gone.stdin.write(b"b\n")
    gone.stdin.flush()
    check(gone.wait(LIMIT) == 0, "a reader that leaves is no error", gone.returncode, gone.stderr.read())
    lost = subprocess.Popen([QUERN, "--each", "x"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                            env={**ENV, "QUERN_SOCKET": f.sock})
    lost.stdin.write(b"a\n")
    lost.stdin.flush()
    check(os.read(lost.stdout.fileno(), 100) == b"yes\n")

    def fail(asked):
        os.remove(f.sock)
        yield "y"
        raise OSError
    f.answer = fail
    lost.stdin.write(b"b\n")
    lost.stdin.flush()
    check(lost.wait(LIMIT) == 69, "a server that is lost", lost.returncode, lost.stderr.read())


def test_each_line_at_a_model():
    alone = [subprocess.run([QUERN, "--in-process", "-m", PARROT, "-n", "6", "--temperature", "0", "say"], input=line.encode(), capture_output=True,
                            env=ENV, timeout=LIMIT).stdout.decode() for line in ("one", "two", "three")]
    r = subprocess.run([QUERN, "--in-process", "-m", PARROT, "-n", "6", "--temperature", "0", "--each", "say"], input=b"one\ntwo\nthree\n",
                       capture_output=True, env=ENV, timeout=LIMIT)
    check(r.returncode == 0 and [" ".join(x.split()) for x in alone] == r.stdout.decode().splitlines(), alone, r)


def test_seeds():
    f = Fake("yes")
    for args, env, seed in ((), {}, 0), (("--seed", "7"), {}, 7), (("--seed", "7"), {"QUERN_ASK_SEED": "random"}, 7), ((), {"QUERN_ASK_SEED": "8"}, 8):
        ask("x", *args, QUERN_SOCKET=f.sock, **env)
        check(f.asked[-1]["seed"] == seed, args, env, f.asked[-1])
    drawn = set()
    for args, env in ((("--seed", "random"), {}), ((), {"QUERN_ASK_SEED": "random"})) * 2:
        ask("x", *args, QUERN_SOCKET=f.sock, **env)
        drawn.add(f.asked[-1]["seed"])
    check(len(drawn) == 4 and all(0 <= s < 2**63 for s in drawn), drawn)
    _, said = ask("x", "--seed", "rand", status=64, QUERN_SOCKET=f.sock)
    check("'rand' is not a whole number or random" in said, said)


def test_only_the_code():
    f = Fake("Here ", "you are:\n``", "`sh\nls\n\n", "ls -l\n```", "\nand\n```\nno\n```\n")
    check(ask("-x", "x", QUERN_SOCKET=f.sock) == (b"ls\n\nls -l\n", ""), "the first block")
    for pieces, code in (["~~~~\n```\na\n~~~\n~~~~  \nb"], "```\na\n~~~\n"), (["  ```c\nint x;"], "int x;\n"), (["```\n```\nx"], ""), \
            (["``` a`b\n```\nx\n```"], "x\n"), (["```\n    ```\n```x\n```"], "    ```\n```x\n"):
        f.answer = lambda _, pieces=pieces: pieces
        out, said = ask("--extract", "x", QUERN_SOCKET=f.sock)
        check((out.decode(), said) == (code, ""), pieces, out, said)
    f.answer = lambda _: ["no code ``` here"]
    out, said = ask("-x", "x", QUERN_SOCKET=f.sock)
    check(out == b"no code ``` here\n" and "no code block" in said, out, said)
    f.answer = lambda _: ["```\n\033]0;x\007ls\n```\n"]
    shown = written_to(lambda slave: ask("-x", "x", stdout=slave, QUERN_SOCKET=f.sock))
    check(b"\033" not in shown and b"ls" in shown, shown)
    for other in "--json", "--each":
        ask("-x", other, "x", text=b"x", status=64, QUERN_SOCKET=f.sock)


def test_few_open_files():
    r = subprocess.run(["prlimit", "--nofile=100", QUERN, "--in-process", "-m", PARROT, "-n", "2", "hello"], stdin=subprocess.DEVNULL,
                       capture_output=True, env=ENV, timeout=LIMIT)
    check(r.returncode == 0 and r.stdout and b"open files" not in r.stderr, r)


def test_a_reader_that_leaves():
    f = Fake()
    f.answer = endless(f)
    p = subprocess.run(["bash", "-c", 'set -o pipefail; "$1" x | head -c 5', "sh", QUERN], env={**ENV, "QUERN_SOCKET": f.sock},
                       stdin=subprocess.DEVNULL, capture_output=True, timeout=LIMIT)
    check((p.returncode, p.stdout, p.stderr) == (0, b"la la", b""), p)
    check(f.left.wait(LIMIT), "the request was ended")


def test_signals_end_the_request():
    for sig in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        f = Fake()
        f.answer = endless(f)
        p = subprocess.Popen([QUERN, "x"], env={**ENV, "QUERN_SOCKET": f.sock}, stdin=subprocess.DEVNULL,
                             stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        check(p.stdout.read(3) == b"la ")
        p.send_signal(sig)
        _, said = p.communicate(timeout=LIMIT)
        check(p.returncode == -sig and not said, sig, p.returncode, said)
        check(f.left.wait(LIMIT), "the request was ended")


def test_a_terminal_sees_thoughts_dimmed():
    f = Fake({"reasoning_content": "hm"}, "a")
    for env, wanted in [({}, "\x1b[2mhm\x1b[0m"), ({"NO_COLOR": "1"}, "hm"), ({"TERM": "dumb"}, "hm")]:
        above, below = pty.openpty()
        p = subprocess.run([QUERN, "-v", "x"], env={**ENV, "QUERN_SOCKET": f.sock, **env}, stdin=subprocess.DEVNULL,
                           stdout=subprocess.PIPE, stderr=below, timeout=LIMIT)
        os.close(below)
        said = os.read(above, 10000).decode()
        os.close(above)
        check(p.stdout == b"a\n" and wanted in said and ("\x1b[2m" in said) == (not env), said)


# ---- texts larger than the context ----


def lines(n):
    return "".join(f"line {i} of many\n" for i in range(n)).encode()


def test_each_cut_fills_the_context():
    text = lines(5000).decode()
    for how in ("head", "tail", "middle"):
        f = Fake("yes", n_ctx=1000)
        ask("--overflow", how, "-n", "100", "What?", text=text.encode(), QUERN_SOCKET=f.sock)
        check(890 < len(f.text.split()) <= 900, how, len(f.text.split()))
        check(f.n_counts < 20, how, f.n_counts)
        check(f.text.startswith("```\n") and f.text.endswith("\n```\n\nWhat?"), f.text[-100:])
        inside = f.text[4:-10]
        head, marker, tail = re.fullmatch(r"(.*)(\[\.\.\. [^\n]* left out \.\.\.\]\n)(.*)", inside, re.S).groups()
        check(text.startswith(head) and text.endswith(tail) and (not head or head[-1] == "\n"), how, head, tail)
        check(bool(head) == (how != "tail") and bool(tail) == (how != "head"), how)
        if how != "head":
            check(int(re.search(r"\d+", marker)[0]) == len(text) - len(head) - len(tail), marker)
        ask("--overflow", how, "What?", text=b"short\n", QUERN_SOCKET=f.sock)
        check(f.text == "```\nshort\n```\n\nWhat?", "what fits is not cut", f.text)


def test_short_files_stay_whole_beside_long_ones():
    f = Fake("yes", n_ctx=400)
    written("short", b"short\n" * 5)
    written("long", lines(3000))
    ask("--overflow=tail", "-f", "short", "-f", "long", "What?", QUERN_SOCKET=f.sock)
    check(f.text.startswith("short:\n```\n" + "short\n" * 5 + "```\n\nlong:\n```\n[... "), f.text[:200])
    check("line 2999 of many\n```\n\nWhat?" in f.text)


def test_a_gigabyte_is_cut_in_little_memory():
    f, size = Fake("yes", n_ctx=1000), 1 << 30 if SLOWNESS == 1 else 64 << 20  # e2e/pipes has a sanitizer's gigabyte
    p = subprocess.run(["bash", "-c", 'yes | head -c $2 | { "$1" --overflow=tail -n 9 x; grep VmHWM /proc/self/status >/dev/null; }',
                        "sh", QUERN, str(size)], env={**ENV, "QUERN_SOCKET": f.sock}, capture_output=True, timeout=LIMIT)
    check((p.returncode, p.stdout, p.stderr) == (0, b"yes\n", b""), p)
    kept = f.text.count("y\n")
    check(f"[... {size - 2 * kept} bytes left out ...]" in f.text and kept > 970, f.text[:60], kept)


def test_an_instruction_that_leaves_no_room():
    f = Fake("yes", n_ctx=20)
    _, said = ask("--overflow=tail", "word " * 30, text=b"x", status=65, QUERN_SOCKET=f.sock)
    check("15 tokens" in said and "has 38" in said, said)
    _, said = ask("--overflow=tail", "-n", "20", "x", text=b"x", status=64, QUERN_SOCKET=f.sock)
    f.n_ctx = None
    _, said = ask("--overflow=tail", "x", text=b"x", status=65, QUERN_SOCKET=f.sock)
    check("does not say how large the context" in said, said)


# ---- pieces ----


def in_pieces(f, text, *args, **env):
    """Answers and requests for a text in pieces."""
    before = len(f.asked)
    out, said = ask("--overflow=chunk", "-v", *args, text=text, QUERN_SOCKET=f.sock, XDG_CACHE_HOME=path(f"cache{Fake.n}"), **env)
    return out, f.asked[before:], said


def notes(ask):
    """An answer that depends on the message alone."""
    text = ask["messages"][-1]["content"]
    return (f"Noted {len(text)} bytes from {text.split()[2]}.",)


def test_pieces_are_asked_once_and_then_known():
    f = Fake(n_ctx=1000)
    f.answer = notes
    text = lines(3000)
    out, asked, said = in_pieces(f, text, "What?")
    check(len(asked) > 40 and out.startswith(b"Noted"), len(asked), out)
    mapped = [a for a in asked if a["messages"][-1]["content"].split("```\n")[1].startswith("line")]
    parts = [a["messages"][-1]["content"].split("```\n")[1].encode() for a in mapped]
    check(b"".join(sorted(parts, key=text.index)) == text, "the pieces are the text")
    check(all(a["temperature"] == 0 and a["max_tokens"] == 62 and "What?" in a["messages"][-1]["content"] for a in mapped))
    check("max_tokens" not in asked[-1] and asked[-1]["messages"][-1]["content"].endswith("What?"), asked[-1])
    again = in_pieces(f, text, "What?")
    check(again[0] == out and len(again[1]) == 1, "all are known", len(again[1]))
    edited = text.replace(b"line 1500 of", b"line 1500 and a half of")
    out, asked, _ = in_pieces(f, edited, "What?")
    check(2 <= len(asked) <= 8, "an edit asks for what is around it", len(asked))
    check(len(in_pieces(f, text, "Why?")[1]) > 40, "another instruction is another question")
    f.fingerprint = "two"
    check(len(in_pieces(f, text, "What?")[1]) > 40, "another model has other answers")


def test_what_fits_is_not_cut_in_pieces():
    f = Fake("yes", n_ctx=1000)
    out, asked, _ = in_pieces(f, b"short\n", "What?")
    check([a["messages"][-1]["content"] for a in asked] == ["```\nshort\n```\n\nWhat?"], asked)


def test_a_dense_piece_is_halved():
    f = Fake(n_ctx=1000)
    f.answer = notes
    digits = random.Random(1)
    text = b"".join(b"%d " % digits.randrange(10) for _ in range(20000))
    out, asked, _ = in_pieces(f, text, "What?")
    answered = [a for a in asked if len(a["messages"][-1]["content"].split()) + a.get("max_tokens", 1) <= 1000]
    parts = [a["messages"][-1]["content"].split("```\n")[1].rstrip("\n").encode() for a in answered if re.search(r"```\n\d ", a["messages"][-1]["content"])]
    check(b"".join(sorted(parts, key=text.index)) == text, sum(map(len, parts)), len(text))
    check(len(answered) < len(asked), "some were refused")


def test_pieces_are_asked_at_once_and_their_answers_are_in_order():
    f, running, most = Fake(n_ctx=1000), [], []
    text = lines(3000)

    def slow(ask):
        running.append(ask)
        most.append(len(running))
        time.sleep(random.random() * 0.05)
        running.remove(ask)
        return notes(ask)

    f.answer = slow
    out, asked, _ = in_pieces(f, text, "What?")
    check(max(most) == 8, "eight at once", max(most))
    one = Fake(n_ctx=1000)
    one.answer = notes
    check(in_pieces(one, text, "What?")[0] == out and sorted(map(str, one.asked)) == sorted(map(str, asked)), "and the same is asked")
    last = re.findall(r"Noted \d+ bytes from (\S+)\.", asked[-1]["messages"][-1]["content"])
    check(asked[-1] == one.asked[-1] and last, "in the same order", asked[-1])


def test_a_piece_that_fails_is_named_and_the_others_are_kept():
    f, text = Fake(n_ctx=1000), lines(3000)

    def fails(ask):
        time.sleep(0.02)
        return notes(ask) if "line 1500 " not in ask["messages"][-1]["content"] else ({"content": 5},)

    f.answer = fails
    said = ask("--overflow=chunk", "What?", text=text, status=65, QUERN_SOCKET=f.sock, XDG_CACHE_HOME=path("cache-fails"))[1]
    at = re.search(r"piece (\d+) of standard input, at byte (\d+): ", said)
    check(at and 0 < text.index(b"line 1500 ") - int(at[2]) < 4000 and len(f.asked) < int(at[1]) + 16, said, len(f.asked))
    before, f.answer = len(f.asked), notes
    ask("--overflow=chunk", "What?", text=text, QUERN_SOCKET=f.sock, XDG_CACHE_HOME=path("cache-fails"))
    mapped = [a["messages"][-1]["content"] for a in f.asked[before:] if "```\nline" in a["messages"][-1]["content"]]
    check(all("line 1 " not in m for m in mapped) and any("line 1500 " in m for m in mapped), "what was answered is known")


def test_a_signal_ends_pieces_that_wait_for_more_text():
    f = Fake(n_ctx=1000)
    f.answer = lambda ask: time.sleep(LIMIT) or ()
    p = subprocess.Popen([QUERN, "--overflow=chunk", "What?"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                         env={**ENV, "QUERN_SOCKET": f.sock, "XDG_CACHE_HOME": path("cache-signal")})
    p.stdin.write(lines(3000))
    p.stdin.flush()
    while not f.asked:
        time.sleep(0.01)
    p.send_signal(signal.SIGTERM)
    check(p.wait(timeout=LIMIT) == -signal.SIGTERM and not p.stdout.read(), p.returncode, p.stderr.read())


def test_damaged_answers_are_not_used():
    f = Fake(n_ctx=1000)
    f.answer = notes
    text = lines(1000)
    out, asked, _ = in_pieces(f, text, "What?")
    folder = path(f"cache{Fake.n}/quern/pieces")
    names = sorted(os.listdir(folder))
    check(len(names) == len(asked) - 1, len(names), len(asked))
    with open(os.path.join(folder, names[0]), "r+b") as file:
        file.seek(-3, 2)
        file.write(b"XXX")
    os.truncate(os.path.join(folder, names[1]), 10)
    os.unlink(os.path.join(folder, names[2]))
    out2, asked, said = in_pieces(f, text, "What?")
    check(out2 == out and len(asked) == 4, len(asked))


def test_a_cache_that_cannot_be_written_warns_once():
    f = Fake(n_ctx=1000)
    f.answer = notes
    written("no-folder", b"")
    text = lines(30) * 100
    out, said = ask("--overflow=chunk", "What?", text=text, QUERN_SOCKET=f.sock, XDG_CACHE_HOME=path("no-folder"))
    check(said.count("\n") == 1 and said.startswith("quern: warning: answers for pieces are not kept"), said)
    messages = [json.dumps(a) for a in f.asked]
    check(out.startswith(b"Noted") and len(set(messages)) == len(messages), "what repeats is asked once", len(messages))


def test_answers_that_stay_long_are_an_error():
    f = Fake(n_ctx=100)
    f.answer = lambda ask: (ask["messages"][-1]["content"] * 2,)
    _, said = ask("--overflow=chunk", "x", text=lines(100), status=65, QUERN_SOCKET=f.sock, XDG_CACHE_HOME=path("cache-long"))
    check("do not become shorter" in said, said)
    f = Fake(" ", n_ctx=100)
    _, said = ask("--overflow=chunk", "x", text=lines(100), status=65, QUERN_SOCKET=f.sock, XDG_CACHE_HOME=path("cache-empty"))
    check("no answer for any" in said, said)


def test_a_large_log_in_little_memory():
    """200 MB, in the context of a small model; its parts repeat, so that each is asked once. A sanitizer's build gets a tenth,
    because it does not show how much memory is little."""
    megabytes = 200 if SLOWNESS == 1 else 20
    f = Fake(n_ctx=4096)
    f.answer = lambda ask: ("ok " + str(len(ask["messages"][-1]["content"])),)
    log = path("large.log")
    with open(log, "wb") as file:
        block = lines(3000)
        for _ in range(megabytes * 1_000_000 // len(block)):
            file.write(block)
    with open(log, "rb") as file:
        p = subprocess.Popen([QUERN, "--overflow=chunk", "What?"], stdin=file, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                             env={**ENV, "QUERN_SOCKET": f.sock, "XDG_CACHE_HOME": path("cache-large")})
        out, said = p.stdout.read(), p.stderr.read()
        _, status, usage = os.wait4(p.pid, 0)
        p.returncode = os.waitstatus_to_exitcode(status)
    os.unlink(log)
    check((p.returncode, said) == (0, b"") and out.startswith(b"ok"), p.returncode, out, said)
    check(len(f.asked) < 2000, len(f.asked))
    print(f"    {megabytes} MB: {usage.ru_maxrss} KiB resident, {usage.ru_utime + usage.ru_stime:.1f} s of CPU, {len(f.asked)} requests")
    check(SLOWNESS > 1 or usage.ru_maxrss < 64 << 10, usage.ru_maxrss)  # a sanitizer keeps what was freed


# ---- real places ----


def test_a_daemon_and_this_process_say_the_same():
    s = Server(PARROT)
    for args in (("think",), ("hi",), ("think", "--json")):
        here = ask("--in-process", "-m", PARROT, *args)[0]
        there = ask(*args, QUERN_SOCKET=s.sock)[0]
        content = lambda out: b"".join(json.loads(e).get("text", "").encode() for e in out.splitlines()) if "--json" in args else out
        check(content(here) == content(there) and here, args, here, there)
    s.stop()
    s = Server(CHAT)
    for seed in ("1", "2"):
        args = ("-n", "40", "--seed", seed, "Say something.")
        check(ask("--in-process", "-m", CHAT, *args, text=b"text\n")[0] == ask(*args, text=b"text\n", QUERN_SOCKET=s.sock)[0], seed)
    s.stop()


def test_a_reader_that_leaves_ends_the_request_at_the_daemon():
    s = Server(PARROT)
    p = subprocess.run(["bash", "-c", 'set -o pipefail; "$1" "hum to me" | head -c 5', "sh", QUERN], env={**ENV, "QUERN_SOCKET": s.sock},
                       stdin=subprocess.DEVNULL, capture_output=True, timeout=LIMIT)
    check((p.returncode, p.stdout) == (0, b"ho hu"), p)
    s.wait_for("requests_running", 0)
    p = subprocess.Popen([QUERN, "hum to me"], env={**ENV, "QUERN_SOCKET": s.sock}, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE)
    check(p.stdout.read(5) == b"ho hu")
    p.send_signal(signal.SIGINT)
    p.communicate(timeout=LIMIT)
    check(p.returncode == -signal.SIGINT, p.returncode)
    s.wait_for("requests_running", 0)
    s.stop()


def test_overflow_at_a_daemon_and_in_process():
    s = Server(PARROT, "--ctx", "512", "--alias", "other=m")  # an alias is no second model
    text = lines(200)
    for how in ("head", "tail", "middle", "chunk"):
        args = ("--overflow", how, "-n", "30", "What?")
        there = ask(*args, text=text, QUERN_SOCKET=s.sock, XDG_CACHE_HOME=path("cache-there"))[0]
        here = ask(*args, "--in-process", "-m", PARROT, "--ctx", "512", text=text, XDG_CACHE_HOME=path("cache-here"))[0]
        check(here == there == "Grüße! 😀 What can I do?\n".encode(), how, here, there)
    _, said = ask("What?", text=text, status=65, QUERN_SOCKET=s.sock)
    check("maximum context length is 512 tokens" in said and "--overflow" in said, said)
    s.stop()


def test_pieces_of_a_daemon_are_known_again():
    s = Server(PARROT, "--ctx", "512")
    counted = lambda: sum(int(n) for n in re.findall(r'quern_requests_total\{[^}]*\} (\d+)', s.get("/metrics").body.decode()))
    n = [counted()]
    text = lines(300)
    for t in (text, text, text.replace(b"line 150 of", b"LINE 150 of")):
        ask("--overflow=chunk", "What?", text=t, QUERN_SOCKET=s.sock, XDG_CACHE_HOME=path("cache-daemon"))
        n.append(counted())
    check(n[1] - n[0] > 20, n)
    check(n[2] - n[1] <= 1, "known", n)
    check(1 <= n[3] - n[2] <= 10, "all but what was edited is known", n)
    s.stop()


if __name__ == "__main__":
    os.makedirs(path("home"), exist_ok=True)
    main(globals())
