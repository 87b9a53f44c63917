#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""test_edit.py: tests the line editor at a terminal.

    test_edit.py EDIT_PROBE SLOWNESS [PREFIX_OF_CASES]

The test sends keys, and probe/edit_probe.c prints the bytes of each text that it got. What libedit draws is not checked,
except where lines must be drawn again.
"""
import contextlib
import os
import signal
import sys
import tempfile
import time

from lib.cases import check, run
from lib.screen import Screen
from lib.terminal import Terminal

PROBE, SLOWNESS = sys.argv[1], int(sys.argv[2])
FOLDER = tempfile.TemporaryDirectory(prefix="quern-edit-")
LIMIT = 60 * SLOWNESS
PASTE = b"\x1b[200~%s\x1b[201~"
LEFT, RIGHT, UP, HOME, END, DELETE, RUB = (b"\x1b[D", b"\x1b[C", b"\x1b[A", b"\x1b[H", b"\x1b[F", b"\x1b[3~", b"\x7f")


@contextlib.contextmanager
def editor(env=None, history=None, **more):
    name = history or os.path.join(FOLDER.name, "history-%d" % editor.count)
    editor.count += 1
    t = Terminal([PROBE, name], {"HOME": FOLDER.name} | (env or {}), LIMIT, **more)
    try:
        t.expect(b"ask> ")
        yield t
        if t.process.poll() is None:
            end(t)
    finally:
        t.close()


editor.count = 0


def end(t):
    t.send(b"\x04")
    t.expect(b"end.")
    check(t.wait() == 0, "status", t.process.returncode)
    check(t.restored(), "the terminal's modes are not as they were")
    check(t.all.rfind(b"\x1b[?2004h") <= t.all.rfind(b"\x1b[?2004l"), "bracketed paste is left on")


def text(t, keys):
    """What the program gets of these keys; the next prompt is waited for."""
    t.send(keys)
    t.expect(b"got ")
    told = t.expect(b".")
    t.expect(b"ask> ")
    n, _, digits = told[:-1].partition(b": ")
    data = bytes.fromhex(digits.decode())
    check(len(data) == int(n), n, "bytes were announced,", len(data), "came")
    return data.decode()


def gets(t, keys, want):
    got = text(t, keys)
    check(got == want, repr(keys), "gave", repr(got[:200]), "and not", repr(want[:200]))


def test_lines():
    with editor() as t:
        check(t.raw(), "the terminal is not in the editor's mode")
        gets(t, b"hello\n", "hello")
        gets(t, b"\n", "")
        gets(t, b"  spaces stay  \n", "  spaces stay  ")


def test_utf8_is_edited_by_characters():
    with editor() as t:
        gets(t, "grün\n".encode(), "grün")
        gets(t, "größe".encode() + RUB + RUB + b"\n", "grö")
        gets(t, "日本語".encode() + LEFT + LEFT + "の".encode() + b"\n", "日の本語")
        gets(t, "日本語".encode() + LEFT + RUB + b"\n", "日語")
        gets(t, "😀😁".encode() + HOME + DELETE + b"\n", "😁")
        gets(t, "ab".encode() + HOME + "é".encode() + END + "ü".encode() + b"\n", "éabü")
        gets(t, "e\u0301x".encode() + RUB + b"y\n", "e\u0301y")


def test_a_character_may_come_in_pieces():
    with editor() as t:
        for byte in "ü😀".encode():
            t.send(bytes([byte]))
        gets(t, b"\n", "ü😀")
        gets(t, b"a\xffb\xc3c\n", "a\ufffdb\ufffdc")


def test_utf8_in_other_locales():
    for locale in ("C", "POSIX", "no_SUCH.locale"):
        with editor({"LC_ALL": locale}) as t:
            gets(t, "größe 日本".encode() + RUB + b"\n", "größe 日")


def test_lines_that_go_on():
    with editor() as t:
        t.send(b"one\\\n")
        t.expect(b"more> ")
        t.send(b"\\\n")
        t.expect(b"more> ")
        gets(t, b"three\n", "one\n\nthree")
        gets(t, b"alt\x1b\renter\r", "alt\nenter")


def test_a_paste_is_one_text():
    with editor() as t:
        gets(t, PASTE % b"short" + b" and more\n", "short and more")
        t.send(b"look: " + PASTE % "one\rtwo ü\r\rfour".encode())
        t.expect(b"[paste 1: 16 bytes, 4 lines]")
        gets(t, b" - what?\n", "look: one\ntwo ü\n\nfour - what?")
        t.send(PASTE % b"gone\rsoon\r")
        t.expect(b"[paste 1: 10 bytes, 2 lines]")
        gets(t, RUB + b"x\n", "x")
        odd = "\x03\x13\x11\x1a\x1c\x04\x7f\0\x1b[D\t"  # keys, were they typed
        gets(t, PASTE % (b"one\r\ntwo\n" + odd.encode()) + b"\r", "one\ntwo\n" + odd)


def test_a_paste_of_100_kB():
    lines = "".join(f"{i} " + "text in a log ü " * 3 + "\r" for i in range(1423))
    lines += "x" * (100000 - len(lines.encode()))
    with editor() as t:
        t.send(b"what is this? " + PASTE % lines.encode())
        t.expect(b"[paste 1: 100000 bytes, 1424 lines]")
        check(len(t.all) < 2000, len(t.all), "bytes were drawn for a paste")
        gets(t, b" say\n", "what is this? " + lines.replace("\r", "\n") + " say")


def test_a_paste_that_is_no_text():
    with editor() as t:
        t.send(b"a" + PASTE % (b"\xff" * 300) + b"b")
        t.expect(b"the pasted text, 300 bytes, is not UTF-8 and is left out")
        gets(t, b"c\n", "abc")


def test_ctrl_c_throws_the_line_away():
    with editor() as t:
        t.send(b"unwanted")
        t.expect(b"unwanted")
        t.send(b"\x03")
        t.expect(b"ask> ")
        gets(t, b"wanted\n", "wanted")
        t.send(b"one\\\n")
        t.expect(b"more> ")
        t.send(b"\x03")
        t.expect(b"ask> ")
        gets(t, b"two\n", "two")
        t.send(b"\x03")
        t.expect(b"Ctrl-C again")
        t.expect(b"ask> ")
        gets(t, b"not yet\n", "not yet")
        t.send(b"\x03")
        t.expect(b"ask> ")
        t.send(b"\x03")
        t.expect(b"end.")
        check(t.wait() == 0 and t.restored(), "it did not end well")


def test_ctrl_d_ends_only_empty_lines():
    with editor() as t:
        t.send(b"abc" + LEFT + LEFT + LEFT + b"\x04")
        gets(t, b"\n", "bc")


def test_a_terminal_that_goes_away():
    with editor() as t:
        os.close(t.slave)
        os.close(t.master)
        t.master, t.slave = os.openpty()
        check(t.process.wait(LIMIT) == -signal.SIGHUP, "status", t.process.returncode)


def test_signals_find_the_terminal_restored():
    for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT):
        with editor() as t:
            t.send(b"unfinished")
            t.expect(b"unfinished")
            check(t.raw(), "the terminal is not in the editor's mode")
            t.signal(number)
            check(t.wait() == -number, "status", t.process.returncode, "for", number)
            check(t.restored(), "modes are left after", number)
            check(t.all.endswith(b"\x1b[?2004l"), "bracketed paste is left on after", number, t.all[-30:])


def test_stopped_and_continued():
    with editor() as t:
        t.send(b"before")
        t.expect(b"before")
        t.signal(signal.SIGTSTP)
        t.expect(b"\x1b[?2004l")
        t.signal(signal.SIGCONT)
        t.expect(b"\x1b[?2004h")
        t.expect(b"ask> before")
        check(t.raw(), "the terminal is not in the editor's mode again")
        gets(t, b" and after\n", "before and after")


def test_a_new_window_size():
    with editor(size=(24, 80)) as t:
        t.send(b"x" * 60)
        t.expect(b"x" * 60)
        t.resize(24, 40)
        t.expect(b"ask> ")  # drawn anew
        t.expect(b"xxx")
        gets(t, b"y\n", "x" * 60 + "y")
        t.resize(10, 100)
        t.expect(b"ask> ")
        gets(t, b"z" * 90 + LEFT * 3 + b"!\n", "z" * 87 + "!zzz")


def settle(t, screen, mark, answers=True):
    """Plays the terminal until the line is drawn and the cursor stands after the mark."""
    def stands():
        row = "".join(screen.lines[screen.y][:screen.x])
        return row.endswith(mark) or not row and "".join(screen.lines[screen.y - 1]).endswith(mark)
    deadline = time.monotonic() + t.limit
    while True:
        screen.feed(t.seen.decode())
        t.seen = b""
        for answer in screen.answers if answers else []:
            t.send(answer.encode())
        screen.answers.clear()
        if stands():
            return
        check(t.read(deadline) or t.seen, "the line is not drawn:", screen.text())


def test_another_width_leaves_nothing_behind():
    words = "_".join(f"w{i}" for i in range(30))  # 109 columns
    for reflows in True, False:
        for answers in (True, False) if not reflows else (True,):
            for wide in (False,) if reflows else (False, True):  # the emulator divides wide characters
                with editor({} if reflows else {"XTERM_VERSION": "1"}, size=(24, 80)) as t:
                    screen = Screen(24, 80, reflows)
                    screen.feed("before\r\nask> ")
                    typed = "日本語" * 20 + "end" if wide else words
                    last = typed[-3:]
                    t.send(typed.encode())
                    settle(t, screen, last)
                    for mark, columns in zip("ABCDEF", (40, 100, 33, 60, 120, 80)):
                        screen.resize(24, columns)
                        t.resize(24, columns)
                        t.send(mark.encode())
                        typed += mark
                        settle(t, screen, mark, answers)
                        check(screen.text().startswith("before\nask> "), columns, reflows, screen.text())
                        shown = "".join(screen.text().split("\n")[1:]).replace(" ", "")
                        check(shown == ("ask> " + typed).replace(" ", ""), columns, reflows, answers, screen.text())
                    text(t, b"\x15\r")  # a ^D that comes between two prompts would be the terminal's


def test_a_tiny_window():
    with editor(size=(24, 2)) as t:
        check(not t.raw(), "libedit is asked to draw in two columns")
        gets(t, "plain ü\\\nlines\n".encode(), "plain ü\nlines")
        t.resize(24, 80)
        gets(t, b"\n", "")
        gets(t, "edited ü".encode() + RUB + b"\n", "edited ")
        t.send(b"x" * 50)
        t.expect(b"x" * 50)
        t.resize(2, 1)
        gets(t, "日本y\n".encode(), "x" * 50 + "日本y")
        t.send(b"\x03")
        t.expect(b"Ctrl-C again")
        t.expect(b"ask> ")


def test_history_from_one_run_to_the_next():
    name = os.path.join(FOLDER.name, "state", "deep", "history")
    with editor(history=name) as t:
        gets(t, "first ü\n".encode(), "first ü")
        t.send(b"two\\\n")
        t.expect(b"more> ")
        gets(t, b"lines\n", "two\nlines")
        gets(t, UP + UP + b"\n", "first ü")
    check(os.stat(name).st_mode & 0o777 == 0o600, "others may read it")
    with editor(history=name) as t:
        gets(t, UP + b" again\n", "first ü again")
        gets(t, UP + UP + b"\n", "first ü")
        gets(t, UP * 4 + b"\n", "two\nlines")


def test_without_a_history_file():
    with editor(history="/proc/no/history") as t:
        check(b"notice: cannot make the folder '/proc/no'" in t.all, "it is not said why no history is kept")
        gets(t, b"works\n", "works")
        gets(t, UP + b"!\n", "works!")


def test_tab_completes_commands():
    with editor() as t:
        gets(t, b"/h\t\n", "/help ")
        gets(t, b"/mo\tx\n", "/model x")
        t.send(b"/\t")
        t.expect(b"/help   /load   /model ")
        gets(t, b"l\t\n", "/load ")
        gets(t, b"a\tb\n", "a\tb")


def test_a_dumb_terminal():
    with editor({"TERM": "dumb"}) as t:
        check(b"\x1b" not in t.all, "escape sequences for a dumb terminal")
        gets(t, "plain ü\n".encode(), "plain ü")
        t.send(b"\x04")
        t.expect(b"end.")
        check(t.wait() == 0 and t.restored(), "it did not end well")
        check(b"\x1b" not in t.all, "escape sequences for a dumb terminal")


def test_what_is_typed_ahead():
    with editor() as t:
        t.send(b"one\ntwo\nthree\n")
        for want in (b"6f6e65", b"74776f", b"7468726565"):
            t.expect(b": " + want + b".")
        t.expect(b"ask> ")


run(globals(), sys.argv[3] if len(sys.argv) > 3 else "test_")
