#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""test_bench.py: checks that the scripts in bench/ give results of the right form, and the right status.

    test_bench.py QUERN STORY.gguf ROOT [CASE...]

They run on a small model. The measured numbers are not judged, because the machine may be busy and the build slow.
llama.cpp is not used, because it would have to be installed. Prints each case as cmocka does, and `N passed, N failed`.
"""
import csv
import importlib.util
import json
import os
import subprocess
import sys
import tempfile
import traceback
import types
from importlib.machinery import SourceFileLoader

from lib import cases  # a test that is run by hand starts again through tests/run

QUERN, STORY, ROOT = sys.argv[1:4]
TMP = tempfile.TemporaryDirectory(prefix="quern-bench-")
COLUMNS = "date commit machine cpu model test value unit peer ratio low high".split()


def script(name, *args, status=(0,), program=QUERN):
    r = subprocess.run([os.path.join(ROOT, "bench", name), *map(str, args), "--quern", program], capture_output=True, text=True,
                       env=os.environ | {"XDG_CACHE_HOME": TMP.name})
    assert r.returncode in status, f"{name} {args}: status {r.returncode}\n{r.stderr}"
    return r


def results(name, *args, **more):
    r = script(name, *args, "--json", **more)
    assert r.stdout, f"{name} {args}: status {r.returncode}, and no results\n{r.stderr}"
    return json.loads(r.stdout)


def module(name):
    """The functions of a script."""
    folder = os.path.join(ROOT, "bench")
    if folder not in sys.path:
        sys.path.insert(0, folder)
    loader = SourceFileLoader(name, os.path.join(folder, name))
    m = importlib.util.module_from_spec(importlib.util.spec_from_loader(name, loader))
    loader.exec_module(m)
    return m


def targets(name, *args):
    """The rows of a script that judges; its status has to be that of the rows."""
    r = script(name, STORY, *args, "--json", status=(0, 1))
    assert r.stdout, f"{name} {args}: status {r.returncode}, and no results\n{r.stderr}"
    rows = json.loads(r.stdout)["targets"]
    assert r.returncode == any(x["met"] is False for x in rows), (name, r.returncode, rows, r.stderr)
    return rows


def test_ceilings():
    out = os.path.join(TMP.name, "new", "ceilings.csv")
    for _ in range(2):
        rows = results("ceilings", "--rounds", 1, "--csv", out)["results"]
    assert all(r["value"] > 0 for r in rows) and any(r["cpu"] == "ref" for r in rows), rows
    with open(out, newline="") as f:
        lines = list(csv.reader(f))
    assert lines[0] == COLUMNS and len(lines) == 1 + 2 * len(rows), lines
    assert all(len(line) == len(COLUMNS) for line in lines), lines


def test_validate():
    [r] = results("validate", STORY, "-n", 40)
    assert [w["batch"] for w in r["ways"]] == [40, 32, 7, 1] and r["peer_top"] is None, r
    assert all(w["differing"] == 0 and w["largest_difference"] == 0 and w["values"] == 32000 for w in r["ways"]), r
    assert len(r["top"]) == 5 and r["top"][0][1] >= r["top"][4][1], r["top"]
    assert "likeliest" in script("validate", STORY, "-n", 1).stdout


def test_validate_of_receipts():
    [r] = results("validate", STORY, "--receipts", "-n", 40, "--rounds", 1, status=(0, 1))  # so short an answer says nothing of the speed
    assert [x["tokens"] for x in r["rounds"]] == [40] and r["rounds"][0]["verifies"] and r["ratio"] > 0, r


def test_rotated():
    text = os.path.join(TMP.name, "text")
    with open(text, "w") as f:
        f.write("Once upon a time there was a dog. It ran to the tree and found a ball. The dog was happy. " * 100)
    r = results("rotated", STORY, text, "--ctx", 32, "--keep", "0,4", "--stretches", 3)["results"]
    assert [x["context"] for x in r] == ["plain", "rotate:0", "beyond 2", "beyond 4", "rotate:4"], r
    assert all(x["perplexity"] > 1 for x in r) and r[0]["difference"] == 0 and r[1]["tokens"] == 48, r


def test_validate_sees_a_bit():
    """A program whose logits depend on the batch."""
    liar = os.path.join(TMP.name, "liar")
    with open(liar, "w") as f:
        f.write(f"""#!{sys.executable}
import subprocess, sys
status = subprocess.run([{QUERN!r}, *sys.argv[1:]]).returncode
if "--batch" in sys.argv and sys.argv[sys.argv.index("--batch") + 1] == "7":
    with open(sys.argv[sys.argv.index("-o") + 1], "r+b") as f:
        f.seek(-4, 2)
        last = f.read(1)
        f.seek(-4, 2)
        f.write(bytes([last[0] ^ 1]))
sys.exit(status)
""")
    os.chmod(liar, 0o755)
    [r] = results("validate", STORY, "-n", 20, program=liar, status=(1,))
    ways = r["ways"]
    assert [w["differing"] for w in ways] == [0, 1, 0], ways
    assert ways[1]["largest_difference"] > 0, ways


def test_targets():
    out = os.path.join(TMP.name, "targets.csv")
    r = results("targets", STORY, "--rows", "decode,short,batch,prefill,threads,avx2", "--threads", 2, "--csv", out, status=(0, 1))
    rows = r["targets"]
    judged = [x for x in rows if x["met"] is not None]
    assert len(judged) >= 8 and all(x["measured"] > 0 for x in rows), rows
    for x in judged:
        assert x["met"] == (x["measured"] >= x["at_least"] if x["at_least"] else x["measured"] <= x["at_most"]), x
    with open(out, newline="") as f:
        lines = list(csv.DictReader(f))
    assert [line["test"] for line in lines] == [x["what"] for x in rows], lines
    # Few rows and a prompt are judged by the floor, with the machine in the output.
    names = [x["what"] for x in judged]
    assert any("8 rows of" in name for name in names) and any("(small), of the floor" in name for name in names), names
    text = script("targets", STORY, "--rows", "decode", status=(0, 1)).stdout
    assert "of 1 targets met" in text and "at least 0.85" in text and "CPUs" in text and "CPUs" in r["machine"], text


def test_agree():
    r = results("agree", STORY, "--rounds", 1, status=(0, 1))  # the times may not agree here, the bytes do
    assert abs(r["explain_bytes"] / r["file_bytes"] - 1) < 0.01, r


def test_decoders():
    """Drafts on recorded answers: of as many streams as there are, of random tokens too."""
    drawing = os.path.join(TMP.name, "drafts.svg")
    rows = results("decoders", STORY, "--content", "json,random", "--rounds", 2, "--streams", "1,2", "--svg", drawing,
                   status=(0, 1))["rows"]
    assert [(r["content"], r["streams"]) for r in rows] == [("json", 1), ("json", 2), ("random", 1), ("random", 2)], rows
    for r in rows:
        assert r["rounds"] <= 2 and 0 < r["low"] <= r["ratio"] <= r["high"] and r["plain_tok_s"] > 0, r
        assert r["tokens_per_pass"] >= 1 and (r["accepted"] is None or 0 <= r["accepted"] <= 1), r
    with open(drawing) as f:
        assert f.read().count("<rect") == len(rows)
    # The texts begin again: the chats have no 40 blocks. A model may draft for itself.
    rows = results("decoders", STORY, "--never-below", "--content", "chat", "--rounds", 40, "--streams", "1", "--draft", "ngram,model",
                   "--draft-model", STORY, status=(0, 1))["rows"]
    assert [(r["draft"], r["rounds"] > 30) for r in rows] == [("ngram", True), ("model", True)], rows
    assert all(0.3 < r["account"] < 3 for r in rows), rows
    # Guesses that are right as often as asked for: the first of two, in every step.
    tiny = os.path.join(ROOT, "models", "tiny-base-q8_0.gguf")
    r, = results("decoders", tiny, "--content", "tasks", "--rounds", 6, "--draft", "model", "--draft-model", tiny, "--guesses", 2,
                 "--right", "1,0", "--cpu-time", "--seconds", 100, status=(0, 1))["rows"]
    assert 0.45 < r["accepted"] < 0.55 and 1 < r["tokens_per_pass"] <= 2, r
    # Windows: guesses that are right as often as asked for, and unverified ones, which fill all four masks in each step.
    tiny = os.path.join(ROOT, "models", "tiny-wedlm-q8_0.gguf")
    wedlm = ["decoders", tiny, "--content", "tasks", "--rounds", 6, "--draft", "wedlm", "--windows"]
    r, = results(*wedlm, "--window 4 --entropy-threshold 100", "--right", "1", status=(0, 1))["rows"]
    assert r["accepted"] == 1 and 3 < r["tokens_per_pass"] <= 4, r
    r, = results(*wedlm, "--window 4 --entropy-threshold 100 --wedlm-verify no", status=(0, 1))["rows"]
    assert r["accepted"] is None and 3 < r["tokens_per_pass"] <= 4, r


def test_decoders_keep():
    """Runs are added up, and shown without another one."""
    keep = os.path.join(TMP.name, "blocks.jsonl")
    args = ["decoders", STORY, "--content", "json", "--keep", keep]
    n = [results(*args, "--rounds", rounds, status=(0, 1))["rows"][0]["rounds"] for rounds in (1, 2, 0)]
    assert 0 < n[0] < n[1] == n[2], n
    assert not results(*args, "--rounds", 0, "--streams", 2, status=(0, 1))["rows"], "there is no such run"


def test_guesses():
    rows = results("guesses", "--items", 6, "--rounds", 1)["rows"]
    assert [r["drafts"] for r in rows] == ["off", "ngram", "model"] and all(r["same"] == r["answers"] > 0 for r in rows), rows


def test_what_is_missing_or_wrong():
    missing = os.path.join(TMP.name, "missing.gguf")
    for args in (["compare", missing], ["compare", STORY, "--tests", "pp512,tgx"], ["compare"], ["compare", STORY, "--nonsense"],
                 ["validate", missing], ["targets", STORY, "--rows", "nonsense"], ["targets"], ["agree", missing],
                 ["load", missing], ["each", missing], ["session", STORY, "--rows", "nonsense"], ["serve", STORY, "--rows", "token,nonsense"],
                 ["serve", STORY, "--mix", "--rates", "fast"], ["serve", STORY, "--mix", "--peer", missing], ["llama-server"],
                 ["decoders", missing], ["decoders", STORY, "--content", "nonsense"], ["decoders", STORY, "--draft", "mtp"],
                 ["decoders", STORY, "--right", "2"], ["decoders", STORY, "--right", "0.5;"],
                 ["ceilings", STORY, STORY], ["agree", STORY, STORY]):
        r = script(*args, status=(2,))
        assert args[0] in r.stderr and not r.stdout and "Traceback" not in r.stderr, (args, r.stderr)


def test_every_script_is_described():
    with open(os.path.join(ROOT, "bench", "README.md")) as f:
        text = f.read()
    for name in os.listdir(os.path.join(ROOT, "bench")):
        path = os.path.join(ROOT, "bench", name)
        if os.path.isfile(path) and name != "README.md":
            assert f"`{name}" in text, name
        if os.path.isfile(path) and os.access(path, os.X_OK):
            r = subprocess.run([path, "--help"], capture_output=True, text=True)
            assert r.returncode == 0 and f"bench/{name}" in r.stdout, (name, r)


def test_start_and_hog():
    for name, args in (("start", ["--rounds", 1]), ("hog", ["--rounds", 1, "-n", 8])):
        r = results(name, STORY, *args, status=(0, 1))
        assert r["rounds"] and all(t["measured"] == t["measured"] for t in r["targets"]), r


def test_the_daemon():
    """The scripts that run `quern serve`, on as little as shows that they measure."""
    quick = {"load": ["--streams", "1,4", "--tokens", 16, "--long", "300", "--seconds", 2],
             "session": ["--tokens", 400, "--rounds", 1],
             "serve": ["--tokens", 50, "--long", 1500, "--idle", 20, "--rounds", 1, "--seconds", 0.5]}
    for name, args in quick.items():
        out = os.path.join(TMP.name, name + ".csv")
        rows = targets(name, *args, "--csv", out)
        assert sum(x["met"] is not None for x in rows) >= 4, rows
        assert all(x["low"] <= x["measured"] <= x["high"] for x in rows), rows
        with open(out, newline="") as f:
            assert [line["test"] for line in csv.DictReader(f)] == [x["what"] for x in rows]
    one = next(x for x in rows if x["what"] == "until all are forgotten")
    assert one["met"] is None and one["measured"] > 0, one


def test_tokens_that_came_together_are_no_error():
    """As on a machine on which the client stood still: all tokens came in one piece, or no two streams ran together."""
    load = module("load")
    stream = lambda started, *times: types.SimpleNamespace(started=started, times=list(times))
    assert load.rate([stream(1, 2, 3, 4)]) == 1
    assert load.rate([stream(1, 3, 3, 3)]) == 1.5
    assert load.rate([stream(0, 1, 2), stream(0, 3, 4)]) == 1
    s = load.daemon.Stream.__new__(load.daemon.Stream)
    s.times = [1, 1, 1, 5, 5, 7]
    assert s.moments() == [1, 5, 7]


def test_an_exception_is_no_answer():
    """Status 1 says that a target was missed: a script that did not get so far ends with another one."""
    liar = os.path.join(TMP.name, "no-json")
    with open(liar, "w") as f:
        f.write("#!/bin/sh\necho nonsense\n")
    os.chmod(liar, 0o755)
    for name in "agree", "start", "hog", "targets":
        r = script(name, STORY, program=liar, status=(2, 3))
        assert not r.stdout and f"{name}: " in r.stderr.splitlines()[-1], (name, r)
    assert "agree: unexpected JSONDecodeError" in script("agree", STORY, program=liar, status=(3,)).stderr


def test_the_mix():
    """One rate, with a peer that takes llama-server's options."""
    peer = os.path.join(TMP.name, "peer")
    with open(peer, "w") as f:
        f.write(f"""#!{sys.executable}
import os, sys
given = dict(zip(sys.argv[1::2], sys.argv[2::2]))
os.execv({QUERN!r}, ["quern", "serve", given["-m"], "--listen", "127.0.0.1:" + given["--port"], "--parallel", given["-np"],
                     "--ctx", str(int(given["-c"]) // int(given["-np"]))])
""")
    os.chmod(peer, 0o755)
    for window in 2, 8, 32:  # on a machine that stands still, nothing comes in a short one
        rows = results("serve", STORY, "--mix", "--peer", peer, "--rates", 4, "--warm-up", 0.5, "--window", window,
                       "--slot-ctx", 1024)["targets"]
        known = {r["what"]: r["measured"] for r in rows}
        assert len(known) == len(rows) == 20, rows
        if all(known[f"{server}, 4 requests/s: {what}"] > 0 for server in ("quern", "llama-server") for what in ("tokens", "between tokens, p99")):
            break
    for server in "quern", "llama-server":
        get = lambda what: known[f"{server}, 4 requests/s: {what}"]
        assert get("requests") > 0 and get("failed") == 0 and get("tokens") > 0, rows
        for what in "first token", "between tokens":
            assert get(f"{what}, p50") <= get(f"{what}, p95") <= get(f"{what}, p99"), rows
        assert get("first token, p50") > 0, rows


def test_the_mix_finds_the_highest_rate():
    sys.path.insert(0, os.path.join(ROOT, "bench"))
    import mix
    for highest in range(-9, 10):
        s = mix.Search(None)
        while (step := s.next()) is not None:
            assert step not in s.results
            s.results[step] = {"met": step <= highest}
        assert s.best() == highest and len(s.results) <= 7, (highest, s.results)


def test_one_cpu():
    """Kept to one CPU, the program takes one thread, and it is as fast as one thread is; two threads there are slower, but
    not stuck: each waits for a time slice of the other. The CPU time counts, which other programs do not change much."""
    def kept_to(cpus, *args):
        before = os.times()
        r = subprocess.run([QUERN, *args], capture_output=True, check=True, preexec_fn=lambda: os.sched_setaffinity(0, cpus))
        after = os.times()
        return r.stdout, after.children_user + after.children_system - before.children_user - before.children_system

    def cpu_s(cpus, *args):
        return kept_to(cpus, "run", STORY, "-n", "64", "--greedy", *args, "Once")[1]

    every = os.sched_getaffinity(0)
    one = {min(every)}
    assert json.loads(kept_to(one, "bench", STORY, "-p", "0", "-n", "1", "-r", "1", "--json")[0])["threads"] == 1
    for _ in range(5):
        kept, single, crowded = cpu_s(one), cpu_s(every, "--threads", "1"), cpu_s(one, "--threads", "2")
        if kept < 2 * single and crowded < 20 * single:
            return
    assert False, (kept, crowded, single)


def main():
    cases = [(name, f) for name, f in sorted(globals().items()) if name.startswith(tuple(sys.argv[4:]) or "test_")]
    n_failed = 0
    for name, f in cases:
        print(f"[ RUN      ] {name}", flush=True)
        try:
            f()
            print(f"[       OK ] {name}", flush=True)
        except Exception:
            n_failed += 1
            traceback.print_exc(file=sys.stdout)
            print(f"[  FAILED  ] {name}", flush=True)
    print(f"{len(cases) - n_failed} passed, {n_failed} failed")
    return n_failed > 0


with TMP:
    sys.exit(main())
