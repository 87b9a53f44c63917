#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""test_samples.py: asks for answers to schemas of MaskBench, and validates them with the Python package jsonschema.

    test_samples.py QUERN STORY_MODEL CHAT_MODEL SLOWNESS N

test_serve.py describes the arguments. CHAT_MODEL says noise, at temperature 1.5, so whatever is right in an answer is due to its schema. N schemas are drawn,
always the same ones. Schemas that are refused are counted, and the validator's own failures are left out.
"""
import concurrent.futures
import json
import os
import random
import sys
import tarfile

sys.path.insert(1, os.path.dirname(sys.path[0]))
from lib.cases import Skipped, check, run
from test_serve import CHAT, Server

N = int(sys.argv[5])
DATA = os.path.join(os.environ.get("QUERN_SHARED", "../shared"), "golden/structured/maskbench.tar.xz")
try:
    import jsonschema
except ImportError:
    jsonschema = None


def schemas():
    """N random ones, with their names."""
    with tarfile.open(DATA) as tar:
        members = [m for m in tar if m.isfile() and m.name.endswith(".json")]
        members.sort(key=lambda m: m.name)
        chosen = random.Random(18).sample(members, min(N, len(members)))
        chosen = {m.name for m in chosen}
        return [(m.name, json.load(tar.extractfile(m))["schema"]) for m in members if m.name in chosen]


def complaint(schema, value):
    """What is wrong with it; None: nothing, or the validator cannot say."""
    validator = jsonschema.validators.validator_for(schema, default=jsonschema.Draft202012Validator)
    try:
        return next((e.message for e in validator(schema).iter_errors(value)), None)
    except Exception:  # references that it cannot follow, patterns that Python does not have
        return None


def test_noise_with_a_schema_is_valid():
    if not jsonschema or not os.path.exists(DATA):
        raise Skipped("no jsonschema" if not jsonschema else "no " + DATA)
    s, counts = Server(CHAT, "--ctx", "4096"), {"valid": 0, "length": 0, "refused": 0, "other": 0}

    def ask(named):
        name, schema = named
        return name, schema, s.post("/v1/completions", {"prompt": "JSON:", "max_tokens": 400, "temperature": 1.5, "top_k": 0, "top_p": 1,
                                                        "min_p": 0, "seed": 7, "json_schema": schema})
    with concurrent.futures.ThreadPoolExecutor(4) as pool:
        for name, schema, answer in pool.map(ask, schemas()):
            if answer.status != 200:
                counts["refused"] += 1
                check(answer.status == 400 and "json_schema: " in answer.json["error"]["message"], name, answer.status, answer.body)
                continue
            choice = answer.json["choices"][0]
            if choice["finish_reason"] == "length":
                counts["length"] += 1
                continue
            try:
                wrong = complaint(schema, json.loads(choice["text"]))
            except ValueError as why:
                wrong = why
            counts["valid" if wrong is None else "other"] += 1
            check(wrong is None, name, str(wrong)[:300], choice["text"][:300])
    print(counts)
    check(counts["valid"] > N // 4 and counts["refused"] < N // 8, counts)
    s.stop()


run(globals())
