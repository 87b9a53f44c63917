# SPDX-License-Identifier: MIT
"""cases.py: runs the cases of the end-to-end tests, and prints their results.

A test is a program with functions test_*. Each is a case, whose name is a sentence that must be true. The program ends
with run(globals(), PREFIX), which prints each case in the way of cmocka, for tools/count-tests. Servers that a case has
left in `started` are killed after it. They are objects with .process, .log (their open log file) and .stderr(), which
reads the log.
"""
import os
import sys
import time
import traceback

# Run by hand, a test starts again in surroundings of its own, as meson starts it.
if "QUERN_TEST_HOME" not in os.environ:
    surroundings = os.path.join(os.path.dirname(os.path.abspath(__file__)), os.pardir, os.pardir, "run")
    os.execv(surroundings, [surroundings, *sys.orig_argv])

# What tells sanitizers to end a program at their first finding: for tests that give it an environment of its own.
SANITIZERS = {k: v for k, v in os.environ.items() if k.endswith("SAN_OPTIONS")}
complaints = []
started = []


class Skipped(Exception):
    """Raised by a case that cannot be tried here; says why."""


def check(holds, *what):
    """Notes a complaint; the case goes on, so that one run shows all of them."""
    if not holds:
        where = traceback.extract_stack(limit=2)[0]
        complaints.append(f"line {where.lineno}: " + " ".join(map(str, what)))


def until(seconds, holds, *what):
    """Waits until this holds, for so long at most. Returns whether it does. what: the complaint if it does not."""
    end = time.monotonic() + seconds
    while not (held := holds()) and time.monotonic() < end:
        time.sleep(0.005)
    if what and not held:
        where = traceback.extract_stack(limit=2)[0]
        complaints.append(f"line {where.lineno}: not in time: " + " ".join(map(str, what)))
    return held


def clean_up(skipped):
    for s in started:
        if s.process.poll() is None:
            s.process.kill()
            s.process.wait()
            if not complaints and not skipped:
                complaints.append("the server was left running")
        if complaints and s is started[-1]:
            complaints.append("the end of its log: " + s.stderr()[-2000:])
        s.log.close()
        if s.process.stdout:
            s.process.stdout.close()
    started.clear()


def run(names, prefix="test_", n_failed=0):
    """Runs the functions whose names begin so and ends the program; n_failed: cases that have failed before."""
    n_passed = n_skipped = 0
    for name, case in [(name, f) for name, f in names.items() if name.startswith(prefix)]:
        print(f"[ RUN      ] {name}", flush=True)
        complaints.clear()
        skipped = None
        try:
            case()
        except Skipped as why:
            skipped = why
        except Exception:
            complaints.append(traceback.format_exc())
        clean_up(skipped)
        for c in complaints:
            print("    " + c.replace("\n", "\n    "))
        if complaints:
            n_failed += 1
        elif skipped:
            print(f"    {skipped}")
            n_skipped += 1
        else:
            n_passed += 1
        print(f"[  {'FAILED  ' if complaints else 'SKIPPED ' if skipped else '     OK '}] {name}", flush=True)
    print(f"{n_passed} passed, {n_failed} failed, {n_skipped} skipped")
    sys.exit(n_failed > 0)
