# SPDX-License-Identifier: MIT
"""test_pipes.py: runs the commands of docs/pipes.txt: each must give the output and the exit status that it has there.

    test_pipes.py QUERN SESSION SLOWNESS [--record]

The first lines of the file describe its form. Each command is one case. bash runs all of them in one folder, with
`quern` in PATH, a home of its own, and no daemons but those that the commands start. The model is the chat model of
$QUERN_SHARED/models. --record writes the file again, with the answers of this run.
"""
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile

from lib import cases

QUERN, SESSION, SLOWNESS = sys.argv[1], sys.argv[2], int(sys.argv[3])
MODEL = "minimind2-small-q8_0"
SHARED = os.environ.get("QUERN_SHARED", "")
MODELS = os.path.join(SHARED, "models")


def blocks(lines):
    """(what stands before it, command, expected output lines), in order; the last one has no command."""
    before, command, output = [], None, []
    for line in lines:
        if line.startswith("  $ ") or (line and not line.startswith("  ")) or (not line and command is None):
            if command is not None:
                yield before, command, output
                before, command, output = [], None, []
            if line.startswith("  $ "):
                command = line[4:]
            else:
                before.append(line)
        elif line.startswith("  > "):
            command += "\n" + line[4:]
        elif not line:  # an empty line ends an output; empty lines within are written as two spaces
            yield before, command, output
            before, command, output = [line], None, []
        else:
            output.append(line[2:])
    yield before + ([] if command is None else []), command, output


class Machine:
    """A folder, a home and an environment that the commands share."""

    def __init__(self):
        self.root = tempfile.mkdtemp(prefix="quern-pipes-")
        for name in ["bin", "home", "work", "run"]:
            os.mkdir(os.path.join(self.root, name), 0o700)
        os.symlink(os.path.abspath(QUERN), os.path.join(self.root, "bin", "quern"))
        os.symlink(os.path.abspath(QUERN), os.path.join(self.root, "bin", "reviewer"))
        self.env = cases.SANITIZERS | {
            "PATH": os.path.join(self.root, "bin") + ":/usr/local/bin:/usr/bin:/bin", "HOME": os.path.join(self.root, "home"),
            "XDG_RUNTIME_DIR": os.path.join(self.root, "run"), "LC_ALL": "C.UTF-8", "TMPDIR": os.path.join(self.root, "work"),
            "QUERN_MODELS": MODELS, "QUERN_ASK_TEMPERATURE": "0", "QUERN_ASK_MAX_TOKENS": "24",
            "GIT_CONFIG_GLOBAL": "/dev/null", "GIT_CONFIG_SYSTEM": "/dev/null",
        }

    def type(self, command):
        """What comes back: lines of standard output, and the exit status when it is not 0."""
        p = subprocess.Popen(["bash", "-c", command], cwd=os.path.join(self.root, "work"), env=self.env, stdin=subprocess.DEVNULL,
                             stdout=subprocess.PIPE, stderr=subprocess.PIPE, start_new_session=True)
        try:
            out, err = p.communicate(timeout=120 * SLOWNESS)
        except subprocess.TimeoutExpired:
            os.killpg(p.pid, signal.SIGKILL)
            out, err = p.communicate()
            err += b"\n(it hung)"
        text = out.decode("utf-8", "backslashreplace")
        lines = text.split("\n")
        if lines[-1]:
            lines[-1] += "(no newline)"
        else:
            lines.pop()
        if p.returncode:
            lines.append(f"[{p.returncode}]")
        return lines, err.decode("utf-8", "backslashreplace")

    def close(self):
        subprocess.run(["quern", "stop"], env=self.env, capture_output=True, timeout=60 * SLOWNESS)
        shutil.rmtree(self.root, ignore_errors=True)


def shown(lines):
    return ["  " + line for line in lines]


def main():
    with open(SESSION, encoding="utf-8") as f:
        lines = f.read().split("\n")
    machine = Machine()
    written, names = [], {}
    for i, (before, command, expected) in enumerate(blocks(lines)):
        written += before
        if command is None:
            break
        if "--record" in sys.argv:
            got, _ = machine.type(command)
            written += ["  $ " + command.replace("\n", "\n  > ")] + shown(got)
            continue

        def case(command=command, expected=expected):
            got, err = machine.type(command)
            cases.check(got == expected, f"{command}\nexpected:", *shown(expected), "\ngot:", *shown(got), "\nstderr:", err)

        word = re.sub(r"[^a-z0-9]+", "_", command.lower()).strip("_")[:50]
        names[f"test_{i + 1:02}_{word}"] = case
    if "--record" in sys.argv:
        machine.close()
        with open(SESSION, "w", encoding="utf-8") as f:
            f.write("\n".join(written))
        return
    names["test_99_there_are_twenty"] = lambda: cases.check(len(names) >= 21, len(names) - 1)
    try:
        cases.run(names)
    finally:
        machine.close()


if not os.path.isfile(os.path.join(MODELS, MODEL + ".gguf")):
    if os.environ.get("CI"):
        print(f"[  FAILED  ] pipes\n    no {MODEL}.gguf in {MODELS}, and CI is set\n0 passed, 1 failed, 0 skipped")
        sys.exit(1)
    print("[  SKIPPED ] pipes\n    QUERN_SHARED is not there\n0 passed, 0 failed, 1 skipped")
    sys.exit(0)
main()
