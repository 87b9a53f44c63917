# SPDX-License-Identifier: MIT
"""screen.py: what a terminal shows: a small emulator of xterm's control sequences, for tests of what is drawn.

A line that the terminal has broken by itself is one line in several rows. With `reflows` a new width joins and breaks
these rows again, as VTE, kitty and tmux do; without it rows are cut, as xterm does. A sequence that is not known here
is an error.
"""
import re
import unicodedata

TOKEN = re.compile(r"\x1b\[([?>]?)([\d;]*)([@-~])|\x1b[=>78]|\x1b\][^\x07]*\x07|[\s\S]")


def width_of(c):
    if unicodedata.combining(c) or unicodedata.category(c) in ("Mn", "Me", "Cf"):
        return 0
    return 2 if unicodedata.east_asian_width(c) in "WF" else 1


class Screen:
    def __init__(self, rows=24, columns=80, reflows=True):
        self.rows, self.columns, self.reflows = rows, columns, reflows
        self.lines, self.soft = [[]], [False]  # cells of each row; whether the next row goes on
        self.top = self.y = self.x = 0         # the first row on the screen; the cursor
        self.pending = ""
        self.answers = []                      # what the terminal says

    def feed(self, data):
        self.pending += data
        at = 0
        for m in TOKEN.finditer(self.pending):
            if m.group() == "\x1b" and len(self.pending) - m.start() < 16:
                break
            self.act(m)
            at = m.end()
        self.pending = self.pending[at:]

    def act(self, m):
        s, kind = m.group(), m.group(3)
        n = int((m.group(2) or "").split(";")[0] or 0) if kind else 0
        row = self.lines[self.y]
        if s == "\r":
            self.x = 0
        elif s == "\n":
            self.down()
        elif s == "\b":
            self.x = max(min(self.x, self.columns - 1) - 1, 0)
        elif s == "\t":
            self.x = min(self.x // 8 * 8 + 8, self.columns - 1)
        elif s == "\x07" or s.startswith("\x1b]") or kind and kind in "mhlr" or re.fullmatch(r"\x1b[=>78]", s):
            pass
        elif kind == "A":
            self.y = max(self.y - max(n, 1), self.top)
        elif kind == "B":
            for _ in range(max(n, 1)):
                if self.y + 1 < self.top + self.rows:
                    self.down()
        elif kind == "C":
            self.x = min(self.x + max(n, 1), self.columns - 1)
        elif kind == "D":
            self.x = max(min(self.x, self.columns - 1) - max(n, 1), 0)
        elif kind == "G":
            self.x = max(n, 1) - 1
        elif kind == "J" and n == 0:
            del self.lines[self.y + 1:], self.soft[self.y + 1:], row[self.x:]
            self.soft[self.y] = False
        elif kind == "K" and n == 0:
            del row[self.x:]
            self.soft[self.y] = False
        elif kind == "P":
            del row[self.x:self.x + max(n, 1)]
        elif kind == "@":
            row[self.x:self.x] = [" "] * max(n, 1)
            del row[self.columns:]
        elif kind == "n" and n == 6:
            self.answers.append(f"\x1b[{self.y - self.top + 1};{min(self.x, self.columns - 1) + 1}R")
        elif not kind and s >= " " and s != "\x7f":
            self.put(s)
        else:
            raise AssertionError(f"a terminal would do something at {s!r}")

    def down(self):
        self.y += 1
        while len(self.lines) <= self.y:
            self.lines.append([])
            self.soft.append(False)
        self.top = max(self.top, self.y - self.rows + 1)

    def put(self, c):
        width = width_of(c)
        row = self.lines[self.y]
        if width == 0:
            if self.x and self.x <= len(row):
                row[self.x - 1] += c
            return
        if self.x + width > self.columns:
            self.soft[self.y] = True
            self.x = 0
            self.down()
            row = self.lines[self.y]
        row += [" "] * (self.x - len(row))
        row[self.x:self.x + width] = [c] + [""] * (width - 1)
        self.x += width

    def resize(self, rows, columns):
        if self.reflows:
            whole, soft, at = [[]], False, None
            for y, row in enumerate(self.lines):
                if not soft and y:
                    whole.append([])
                if y == self.y:
                    at = len(whole) - 1, len(whole[-1]) + self.x
                whole[-1] += row
                soft = self.soft[y]
            self.lines, self.soft = [], []
            for i, line in enumerate(whole):
                n = max(len(line), at[1] if i == at[0] else 0, 1)
                if i == at[0]:
                    self.y, self.x = len(self.lines) + at[1] // columns, at[1] % columns
                    n = max(n, at[1] + 1)
                for k in range(0, n, columns):
                    self.lines.append(line[k:k + columns])
                    self.soft.append(k + columns < n)
        else:
            self.lines = [row[:columns] for row in self.lines]
            self.x = min(self.x, columns - 1)
        self.rows, self.columns = rows, columns
        self.top = max(0, len(self.lines) - rows)
        self.y = max(self.y, self.top)

    def text(self):
        """Everything that was shown, with what has left the screen."""
        return "\n".join("".join(row).rstrip() for row in self.lines).rstrip("\n")
