#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""test_train.py: tests that the small models can be trained again, with the scripts of tools/train.

    test_train.py QUERN TOOLS [PREFIX_OF_CASES]

TOOLS is the folder tools/train. Torch and the dictionary that is learnt are large packages: where they are missing, the
cases are skipped, and say so.
"""
import os
import re
import subprocess
import sys

sys.path.insert(1, os.path.dirname(sys.path[0]))
from lib.cases import Skipped, check, run
from lib.files import path

QUERN, TOOLS = sys.argv[1:3]
PYTHON = "/usr/bin/python3"
DICTIONARY = "/usr/share/dictd/devil.dict.dz"


def need():
    if not os.path.exists(DICTIONARY):
        raise Skipped(f"the package dict-devil is not installed: no {DICTIONARY}")
    if subprocess.run([PYTHON, "-c", "import torch"], capture_output=True).returncode:
        raise Skipped("the package python3-torch is not installed")


def tool(name, *args):
    done = subprocess.run([PYTHON, os.path.join(TOOLS, name), *args], capture_output=True, text=True, timeout=600)
    check(done.returncode == 0, name, args, done.stdout, done.stderr)
    return done.stdout


def train(folder, name, steps):
    """The checkpoint after so many steps of a schedule of 10, a few seconds each."""
    return tool("train", name, "--dir", path(folder), "--steps", "10", "--until", str(steps), "--batch", "4", "--length", "64",
                "--every", "1")


def losses(text):
    return [float(x) for x in re.findall(r"next (\d\.\d+)", text)]


def weights_of(folder, name):
    """A checksum of the parameters in a checkpoint."""
    code = ("import sys, torch, zlib; net = torch.load(sys.argv[1])['net']; "
            "print(zlib.crc32(b''.join(net[k].numpy().tobytes() for k in sorted(net))))")
    return subprocess.run([PYTHON, "-c", code, path(f"{folder}/{name}.pt")], capture_output=True, text=True).stdout


def test_ten_steps_make_the_loss_smaller():
    need()
    for name in ("draft", "hybrid"):
        found = losses(train("once", name, 10))
        check(len(found) == 10 and found[-1] < found[0] - 0.5, name, found)


def test_a_training_that_stopped_goes_on_with_the_same_numbers():
    need()
    train("whole", "draft", 10)
    first = train("parts", "draft", 4)
    rest = train("parts", "draft", 10)
    check("step 4 " in first and "step 5 " not in first and "step 5 " in rest, first, rest)
    same = weights_of("whole", "draft")
    check(same.strip() and same == weights_of("parts", "draft"), same)


def test_what_is_exported_has_the_logits_and_ids_of_training():
    need()
    for name in ("draft", "hybrid"):
        train("export", name, 10)
        tool("export.py", name, path(name + ".gguf"), "--dir", path("export"))
        done = subprocess.run([QUERN, "check", "--deep", path(name + ".gguf")], capture_output=True, text=True)
        check(done.returncode == 0 and "ok" in done.stdout, done.stdout, done.stderr)
        said = tool("compare", name, "--dir", path("export"), "--quern", QUERN)
        check("F32: largest" in said and "ids are the same" in said, said)


if __name__ == "__main__":
    run(globals(), sys.argv[3] if len(sys.argv) > 3 else "test_")
