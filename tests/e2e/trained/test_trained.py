#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""test_trained.py: tests that the small models of models/ answer items that they have not learnt.

    test_trained.py QUERN MODELS TOOLS [PREFIX_OF_CASES]

MODELS and TOOLS are the folders models/ and tools/train. Answers are greedy, and their bits are the same everywhere, so
the numbers of right answers are, too.
"""
import json
import os
import subprocess
import sys

sys.path.insert(1, os.path.dirname(sys.path[0]))
from lib.cases import check, run

QUERN, MODELS, TOOLS = sys.argv[1:4]
N_ITEMS = 4  # of each of 11 kinds
RIGHT = {"tiny-base": 36, "tiny-draft": 31, "tiny-hybrid": 29, "tiny-wedlm": 36}  # answers, of 44


def model(name):
    return os.path.join(MODELS, name + "-q8_0.gguf")


def right_answers(name):
    command = [sys.executable, os.path.join(TOOLS, "evaluate"), model(name), "--quern", QUERN, "--json", "--items", str(N_ITEMS)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=280)
    check(done.returncode == 0, done.stderr)
    return json.loads(done.stdout)


def keys(name):
    done = subprocess.run([QUERN, "inspect", "--json", model(name)], capture_output=True, text=True, timeout=60)
    return json.loads(done.stdout)["metadata"]


def test_each_model_answers_items_that_it_has_not_learnt():
    for name, n_right in RIGHT.items():
        found = right_answers(name)
        check(sum(found.values()) >= n_right, name, found)


def test_the_models_have_one_vocabulary():
    base, *others = (keys(n) for n in RIGHT)
    check(any(k.startswith("tokenizer.") for k in base), base)
    for k in base:
        if k.startswith("tokenizer."):
            check(all(base[k] == v[k] for v in others), k)


if __name__ == "__main__":
    run(globals(), sys.argv[4] if len(sys.argv) > 4 else "test_")
