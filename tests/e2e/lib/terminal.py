# SPDX-License-Identifier: MIT
"""terminal.py: runs a program at a terminal, whose other end is the test.

The test sees the bytes that the program writes, and sends the bytes that keys would send. It waits for output, never
for a time. If the output does not come within LIMIT seconds, the test fails and shows the output that came instead.
"""
import fcntl
import os
import pty
import select
import signal
import struct
import subprocess
import termios
import threading
import time

from lib.cases import SANITIZERS


def written_to(run):
    """Calls run(slave) with a terminal to write to; what that was shown."""
    master, slave = pty.openpty()
    run(slave)
    os.close(slave)
    seen = b""
    try:
        while piece := os.read(master, 4096):
            seen += piece
    except OSError:  # the other end is closed
        pass
    os.close(master)
    return seen


class Terminal:
    """Runs argv on a terminal of its own. env: beside a clean environment with TERM and a UTF-8 locale."""

    def __init__(self, argv, env=None, limit=60, size=(24, 80), stdin=None, stdout=None):
        self.limit = limit
        self.master, self.slave = pty.openpty()
        self.resize(*size)
        self.before = termios.tcgetattr(self.slave)
        self.before[3] &= ~(termios.ECHOE | termios.ECHOCTL)  # as nobody sets them who does not look what they were
        termios.tcsetattr(self.slave, termios.TCSANOW, self.before)
        clean = SANITIZERS | {"PATH": os.environ["PATH"], "TERM": "xterm-256color", "LC_ALL": "C.UTF-8"}
        self.process = subprocess.Popen(
            argv, env=clean | (env or {}), start_new_session=True, stderr=self.slave,
            stdin=self.slave if stdin is None else stdin, stdout=self.slave if stdout is None else stdout,
            preexec_fn=lambda: fcntl.ioctl(2, termios.TIOCSCTTY, 0))
        self.log = open(os.devnull)  # cases.py closes it
        self.seen = b""   # not yet looked at
        self.all = b""

    def stderr(self):
        return self.all.decode(errors="replace")

    def resize(self, rows, columns):
        """The kernel tells the foreground processes."""
        fcntl.ioctl(self.master, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))

    def read(self, deadline):
        """More output; False at the end of it, or when there is none in time."""
        while time.monotonic() < deadline:
            if select.select([self.master], [], [], 0.2)[0]:
                new = os.read(self.master, 1 << 16)
                self.seen += new
                self.all += new
                return True
            if self.process.poll() is not None and not select.select([self.master], [], [], 0)[0]:
                return False
        return False

    def expect(self, what):
        """What comes up to and with these bytes."""
        deadline = time.monotonic() + self.limit
        while what not in self.seen:
            if not self.read(deadline):
                raise AssertionError(f"no {what!r}; there came {self.seen[-3000:]!r}")
        at = self.seen.index(what) + len(what)
        got, self.seen = self.seen[:at], self.seen[at:]
        return got

    def send(self, data):
        """Keys; a paste may be more than the terminal holds at a time, so it is sent beside."""
        if len(data) < 1000:
            os.write(self.master, data)
            return
        def feed(rest=data):
            while rest:
                rest = rest[os.write(self.master, rest[:4096]):]
        threading.Thread(target=feed, daemon=True).start()

    def raw(self):
        """Whether keys come one by one."""
        return not termios.tcgetattr(self.slave)[3] & termios.ICANON

    def restored(self):
        return termios.tcgetattr(self.slave) == self.before

    def signal(self, number):
        self.process.send_signal(number)

    def wait(self):
        """The exit status, once everything is read; a signal's number is negative."""
        deadline = time.monotonic() + self.limit
        while self.read(deadline):
            pass
        return self.process.wait(self.limit)

    def close(self):
        if self.process.poll() is None:
            os.killpg(self.process.pid, signal.SIGKILL)
            self.process.wait()
        os.close(self.master)
        os.close(self.slave)
