#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""test_stages.py: tests a daemon whose model is computed by several processes (quern serve --hosts), and the commands
that do so without one.

    test_stages.py QUERN STORY_MODEL CHAT_MODEL SLOWNESS QUERN_STAGE MODEL...

The MODELs have five layers or more, one of each kind. Each answer is compared with that of a daemon that computes the
model itself, as bytes. Processes are found as children of the daemon. test_serve.py describes the rest.
"""
import concurrent.futures
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time

STAGE, MODELS = sys.argv[5], sys.argv[6:]
del sys.argv[5:]

from lib.cases import check, until
from lib.files import path
from test_same import said
from test_serve import CHAT, LIMIT, QUERN, SLOWNESS, STORY, Server, main

TEXT = "Once upon a time there was a little girl named Lily. She had a red ball and a small dog. "
SMALL = ("--ctx", "512", "--batch", "64")
ASKS = [
    {"prompt": "One day", "max_tokens": 20, "temperature": 0, "logprobs": 5},
    {"prompt": TEXT * 2, "max_tokens": 16, "seed": 6, "logprobs": 3, "repetition_penalty": 1.2},
    {"prompt": TEXT * 2 + "Then", "max_tokens": 12, "seed": 7, "logprobs": 1},  # has a prefix in the cache
    {"prompt": "A", "max_tokens": 20, "seed": 9, "logprobs": 2, "n": 3, "temperature": 1.5},
    {"prompt": "a b a b a b", "max_tokens": 24, "temperature": 0, "logprobs": 1},  # drafts of --draft ngram
    {"prompt": "List:", "max_tokens": 12, "seed": 4, "logprobs": 0, "grammar": 'root ::= [a-c]+ "."'},
    {"prompt": "The end", "max_tokens": 6, "seed": 8, "logprobs": 1, "echo": True},
]


def children(pid):
    """All processes that came of this one."""
    found = []
    try:
        with open(f"/proc/{pid}/task/{pid}/children") as f:
            for child in map(int, f.read().split()):
                found += [child] + children(child)
    except FileNotFoundError:
        pass
    return found


def command(pid):
    try:
        with open(f"/proc/{pid}/cmdline", "rb") as f:
            return f.read().split(b"\0")
    except FileNotFoundError:
        return []


def named(server, *words):
    """The daemon's processes whose command line begins with a program and a word."""
    return [p for p in children(server.process.pid)
            if [os.path.basename(w.decode()) for w in command(p)[:len(words)]] == list(words)]


def lives(pid):
    try:
        with open(f"/proc/{pid}/stat") as f:
            return f.read().rsplit(")", 1)[1].split()[0] != "Z"
    except FileNotFoundError:
        return False


def answers(server):
    """All of ASKS, one after another and then at once."""
    ask = lambda body: said(server.post("/v1/completions", body), False)
    with concurrent.futures.ThreadPoolExecutor(4) as pool:
        return [ask(body) for body in ASKS] + list(pool.map(ask, ASKS))


def end(server):
    server.process.send_signal(signal.SIGTERM)
    check(server.process.wait(LIMIT) == 0, "the daemon's status is", server.process.returncode)


def test_stages_give_the_bytes_of_one_process():
    for i, model in enumerate(MODELS):
        more = SMALL + (("--draft", "ngram") if i % 2 == 0 else ())
        alone = Server(model, *more)
        expected = answers(alone)
        end(alone)
        stages = Server(model, *more, "--hosts", "localhost:2" if i else "localhost,localhost,localhost")
        check(len(named(stages, "quern-stage", "rank")) == (2 if i else 3), "not as many stages as hosts")
        for body, got, wanted in zip(ASKS * 2, answers(stages), expected):
            check(got == wanted, model, body, got, wanted)
        end(stages)


def explain(*args):
    return subprocess.run([QUERN, "explain", *args], stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=20 * LIMIT)


def test_explain_says_which_host_has_which_layers():
    for hosts in "localhost:3", "localhost":
        r = explain(MODELS[0], "--hosts", hosts, "--reps", "2", "--json")
        check(r.returncode == 0 and not r.stderr, r)
        j = json.loads(r.stdout)
        stages, n = j["stages"], 3 if ":" in hosts else 1
        check(len(stages) == n and j["tokens"] == 16, j)
        check([s["first"] for s in stages] == [sum(s["layers"] for s in stages[:i]) for i in range(n)], "layers follow each other", j)
        check(all(s["compute_ms"] > 0 and s["bytes"] > 0 and s["host"] == "localhost" for s in stages), j)
        check(abs(sum(s["compute_ms"] for s in stages) - j["compute_ms"]) < 1e-6 and j["token_ms"] > 0 and j["round_ms"] > 0 and j["between_ms"] > 0, j)
        text = explain(MODELS[0], "--hosts", hosts, "--reps", "1").stdout
        check(text.count("\nlocalhost ") == n and "latency of the wire" in text and "copies, bytes" in text and "tokens/s" in text, text)
    for args, wanted in ((["--hosts", "localhost", "-p", "8"], "--prompt"), (["--hosts", "elsewhere"], "name the interface"),
                         (["--only-hosts"], "needs --hosts"), (["--hosts", "localhost", "--only-hosts"], "quern serve"),
                         (["--hosts", "localhost:64"], "stages, but the model has")):
        r = explain(MODELS[0], *args)
        check(r.returncode and not r.stdout and wanted in r.stderr and r.stderr.count("\n") == 1, args, r)


def test_pages_come_back_from_disk():
    """A prompt whose pages each stage has on its disk is not read again; if one stage has lost them, it is."""
    for model in MODELS[0], MODELS[2], MODELS[4]:  # the hybrid and windows among them
        folder = tempfile.mkdtemp()
        ask = lambda server, text: server.post("/v1/completions", {"prompt": text, "max_tokens": 8, "seed": 3, "logprobs": 2})
        texts = [TEXT * 8, TEXT * 8, TEXT * 8 + "Then"]
        runs = []
        for run in range(3):
            where = ("--hosts", "localhost:2", "--cache-dir", folder) if run else ()
            server = Server(model, *SMALL, *where)
            runs.append([ask(server, text) for text in texts])
            if run == 2:
                check(runs[2][0].json["usage"]["prompt_tokens_details"]["cached_tokens"] > 100, model, "nothing came back", runs[2][0].json)
            end(server)
        for name in os.listdir(f"{folder}/stages"):
            if name.endswith("-0-1.stage") or name.split("-")[1] != "0":
                os.unlink(f"{folder}/stages/{name}")
        server = Server(model, *SMALL, "--hosts", "localhost:2", "--cache-dir", folder)
        runs.append([ask(server, text) for text in texts])
        check(runs[3][0].json["usage"]["prompt_tokens_details"]["cached_tokens"] == 0, model, "what a stage has lost", runs[3][0].json)
        server.process.kill()
        server.process.wait()
        server = Server(model, *SMALL, "--hosts", "localhost:2", "--cache-dir", folder)
        runs.append([ask(server, text) for text in texts])
        end(server)
        for run in runs[1:]:
            check([said(r, False) for r in run] == [said(r, False) for r in runs[0]], model, [r.json for r in run])
        shutil.rmtree(folder)


def ran(*args, given=None):
    """A command in this process: no daemon runs."""
    source = {"input": given} if given else {"stdin": subprocess.DEVNULL}
    return subprocess.run([QUERN, *args], **source, capture_output=True, timeout=20 * LIMIT)


def same_on_hosts(*args, given=None):
    """Runs a command with hosts and without, and compares all that they print."""
    alone, on_hosts = ran(*args, given=given), ran(*args, "--hosts", "localhost:2", "--only-hosts", given=given)
    check(alone.returncode == 0 and (alone.stdout or b"is full" in alone.stderr), args, alone)
    check((on_hosts.returncode, on_hosts.stdout, on_hosts.stderr) == (0, alone.stdout, alone.stderr), args, on_hosts, alone)


def test_a_model_in_the_process_of_ask_and_chat_has_hosts():
    here = ["-m", CHAT, "--ctx", "512", "--seed", "5"]
    same_on_hosts("ask", *here, "-n", "24", "Name a river.", given=TEXT.encode())
    same_on_hosts("ask", *here, "--regex", "[a-c]{9,20}!", "-n", "24", "Letters")
    same_on_hosts("ask", *here, "--each", "-n", "8", "Say", given=b"one\ntwo\nthree\n")
    same_on_hosts("chat", *here, "-n", "12", given=b"Hi\nAnd now?\n")


def test_run_has_the_same_bytes_on_hosts():
    models = os.path.dirname(STORY)
    for model, *args in (
            [STORY, "--greedy", "-n", "40", "--stop", "dog", "--logit-bias", "300=8", "--repetition-penalty", "1.2", "Once"],
            [STORY, "--seed", "3", "--ctx", "24", "Once upon a time there was"],  # says that the context is full
            [STORY, "--seed", "3", "--ctx", "7", "Once upon a time there was"],  # is full at once
            [f"{models}/tiny-base-q8_0.gguf", "--draft-model", f"{models}/tiny-draft-q8_0.gguf", "-n", "24", "--seed", "5", "A"],
            [f"{models}/tiny-wedlm-q8_0.gguf", "--decoder", "wedlm", "-n", "24", "--seed", "5", "A"]):
        same_on_hosts("run", model, "--threads", "1", *args)
    for args, says in ((["--hosts", "localhost", "--receipt", "x"], "--receipt excludes --hosts"), (["--only-hosts"], "needs --hosts"),
                       (["--hosts", "localhost:64"], "stages, but"), (["--hosts", "elsewhere"], "name the interface"),
                       (["--hosts", "localhost", "--ctx", "6"], "does not fit the context of 6")):
        r = ran("run", STORY, "Once upon a time there was", *args)
        check(r.returncode and says in r.stderr.decode() and not r.stdout, args, r)


def test_hosts_of_another_process_are_refused():
    server = Server(CHAT)
    for command in "ask", "chat":
        r = ran(command, "--socket", server.sock, "--hosts", "localhost:2", given=b"Hi")
        check(r.returncode == 64 and b"--hosts is for a model in this process" in r.stderr
              and b"quern serve MODEL --hosts" in r.stderr and not r.stdout, command, r)
        for args, says in (["--interface", "lo"], "--interface needs --hosts"), (["--hosts", "a b"], "no name of a host"), (["--hosts", "localhost:64"], "stages, but"):
            r = ran(command, "-m", CHAT, *args, given=b"Hi")
            check(r.returncode and says in r.stderr.decode() and not r.stdout, command, args, r)
    end(server)
    r = ran("ask", "-m", CHAT, "--hosts", "localhost:2", "--wire", "bf16", "--receipt", path("receipt"), "Hi")
    check(r.returncode and b"--wire bf16" in r.stderr and not r.stdout, r)


def test_bench_measures_prompts_and_answers_at_once():
    args = ["bench", MODELS[0], "--hosts", "localhost:2", "--threads", "1", "-p", "70,9", "-n", "5"]
    r = ran(*args, "--streams", "1,3", "--reps", "2", "--json")
    check(r.returncode == 0 and not r.stderr, r)
    j = json.loads(r.stdout)
    check(len(j["stages"]) == 2 and j["stages"][1]["first"] == j["stages"][0]["layers"], "layers follow each other", j)
    what = {name: (t["kind"], t["tokens"], t["streams"]) for name, t in j["tests"].items()}
    check(what == {"pp70": ("prefill", 70, 1), "pp9": ("prefill", 9, 1), "tg": ("decode", 5, 1), "tg3": ("decode", 5, 3)}, what)
    check(all(len(t["tok_s"]) == 2 and t["tok_s"][0] <= t["median"] <= t["tok_s"][1] and t["tok_s"][0] > 0 for t in j["tests"].values()), j)
    text = ran(*args, "--streams", "2", "--reps", "1").stdout.decode()
    check(text.count("stage      localhost, layers") == 2 and "prefill of 70 " in text and "decode of 5, 2 answers" in text, text)
    for more, says in (["-b", "2"], "--rows does not go together with --hosts"), (["-d", "9"], "--depth"), (["--ceilings"], "--ceilings"), \
            (["--replay", "x"], "--replay"), (["--only-hosts"], "--only-hosts"), (["--draft", "ngram"], "--draft is for --replay"), \
            (["-p", "0", "-n", "0"], "nothing to measure"), (["--streams", "65"], "--streams"):
        r = ran(*args, *more)
        check(r.returncode and says in r.stderr.decode() and not r.stdout, more, r)
    r = ran("bench", MODELS[0], "--streams", "2")
    check(r.returncode == 64 and b"--streams is for --replay and --hosts" in r.stderr, r)


class Streamed:
    """An answer that is read as it comes. between() is called after its first bytes."""

    def __init__(self, server, body, between):
        connection = server.connect()
        connection.request("POST", "/v1/completions", json.dumps(body | {"stream": True}),
                           {"Content-Type": "application/json"})
        response = connection.getresponse()
        self.status = response.status
        self.body = response.readline()
        between()
        self.body += response.read()
        connection.close()


def test_an_answer_goes_on_when_a_process_is_killed():
    body = {"prompt": TEXT, "max_tokens": 380, "temperature": 1, "seed": 3, "ignore_eos": True, "logprobs": 1}
    alone = Server(MODELS[0], *SMALL)
    expected = said(Streamed(alone, body, lambda: None), True)
    end(alone)
    server = Server(MODELS[0], *SMALL, "--hosts", "localhost:2")
    for words in ("quern-stage", "rank"), ("mpirun",):
        old = named(server, "quern-stage", "rank")
        victim = named(server, *words)[-1]
        answer = Streamed(server, body, lambda: os.kill(victim, signal.SIGKILL))
        check(said(answer, True) == expected, "another answer when", words, "was killed")
        check(said(Streamed(server, body, lambda: None), True) == expected, "another answer later")
        until(3 * SLOWNESS, lambda: not any(map(lives, old)), "stages stay after", words, "was killed")
    check("the stages are lost" in server.stderr(), "the log does not say that stages were lost")
    end(server)


def test_nothing_stays_after_the_daemon():
    for how in signal.SIGTERM, signal.SIGKILL:
        server = Server(MODELS[0], *SMALL, "--hosts", "localhost:2")
        old = children(server.process.pid)
        check(len(old) >= 4, "watcher, mpirun and two stages are not there:", [command(p) for p in old])
        folder = command(named(server, "quern-stage", "watch")[0])[2].decode()
        server.process.send_signal(how)
        server.process.wait(LIMIT)
        until(3 * SLOWNESS, lambda: not any(map(lives, old)), "processes stay after", how)
        until(3 * SLOWNESS, lambda: not os.path.exists(folder), "the folder stays after", how)


def cpu_seconds(pid):
    """What all threads of a process have computed."""
    total = 0
    for thread in os.listdir(f"/proc/{pid}/task"):
        with open(f"/proc/{pid}/task/{thread}/schedstat") as f:
            total += int(f.read().split()[0])
    return total / 1e9


def test_stages_without_work_leave_the_cpu_to_others():
    server = Server(MODELS[0], *SMALL, "--hosts", "localhost:2")
    server.post("/v1/completions", {"prompt": "a", "max_tokens": 2})
    time.sleep(1.2)
    ranks = named(server, "quern-stage", "rank")
    # A busy machine makes the same work take longer, so the least of several shares counts.
    shares = [1.0] * len(ranks)
    for _ in range(5):
        before, began = [cpu_seconds(p) for p in ranks], time.monotonic()
        time.sleep(1)
        seconds = time.monotonic() - began
        shares = [min(old, (cpu_seconds(p) - was) / seconds) for old, p, was in zip(shares, ranks, before)]
        if max(shares) <= 0.01:
            break
    for share in shares:
        print(f"an idle stage takes {100 * share:.2f}% of a CPU")
        check(share <= 0.01 * SLOWNESS, "an idle stage takes", share, "of a CPU")
    end(server)


def test_the_context_follows_from_the_memory_of_the_stages():
    """What is asked for is checked with every stage. Stages on the daemon's host share the daemon's memory."""
    tokens = 1 << 26
    done = subprocess.run([QUERN, "serve", MODELS[0], "--hosts", "localhost:2", "--memory", "1G", "--kv-tokens", str(tokens)],
                          capture_output=True, text=True, timeout=20 * LIMIT)
    found = re.search(r"stage 0 on localhost, layers 0 to \d, needs ([\d.]+) MB .*for 67108864 tokens.* and has ([\d.]+) MB; "
                      r"the stages have room for (\d+) tokens \(--kv-tokens (\d+)", done.stderr)
    check(done.returncode and found, done)
    needs, has, room, advice = map(float, found.groups())
    check(has < needs and has < 512 and 0 < room < tokens and advice == room, done.stderr)
    server = Server(MODELS[0], "--hosts", "localhost:2", "--memory", "1G", "--kv-tokens", str(int(room)), "--ctx", "512", "--log")
    check(server.post("/v1/completions", {"prompt": "a", "max_tokens": 2}).status == 200, "the advice was wrong")
    until(LIMIT, lambda: len(re.findall(r"stage [01] on localhost: layers .* needs [\d.]+ MB of memory", server.stderr())) == 2,
          "the log does not say what each stage needs")
    end(server)


def test_rounded_rows_are_said():
    """Half of the bytes between hosts, and answers that say so. They cannot be made again elsewhere, so they have no receipt."""
    body = {"prompt": TEXT * 2, "max_tokens": 16, "temperature": 0, "logprobs": 5}
    told = []
    for wire in "f32", "bf16":
        server = Server(MODELS[0], *SMALL, "--hosts", "localhost:2", "--wire", wire)
        one, two = server.post("/v1/completions", body).json, server.post("/v1/completions", body).json
        check(one["choices"] == two["choices"], "the same, twice", wire, one, two)
        check(one["quern"].get("wire") == (None if wire == "f32" else wire), one)
        told.append(one["choices"][0]["logprobs"]["token_logprobs"])
        r = server.post("/v1/completions", body | {"receipt": True})
        check(r.status == (200 if wire == "f32" else 400) and (wire == "f32" or "--wire bf16" in str(r.json)), wire, r.json)
        end(server)
    check(told[0] != told[1] and abs(told[0][0] - told[1][0]) < 0.2, "rounding changes a little", told)


def test_what_stages_cannot_do_is_refused_by_name():
    for args, says in (
            (["--hosts", "elsewhere"], "name the interface"),
            (["--hosts", "a b"], "'a b' is no name of a host"),
            (["--hosts", "localhost=model"], "does not begin with /"),
            (["--hosts", "localhost", "--hostfile", "/dev/null"], "exclude each other"),
            (["--hostfile", "/dev/null"], "names no host"),
            (["--interface", "lo"], "--interface needs --hosts"),
            (["--only-hosts"], "--only-hosts needs --hosts"),
            (["--wire", "bf16"], "--wire needs --hosts"),
            (["--hosts", "localhost", "--wire", "f16"], "f32|bf16"),
            (["--hosts", "localhost", "--wire", "bf16", "--receipts", "/tmp/r"], "--receipts"),
            (["--i-trust-this-network"], "--i-trust-this-network needs --hosts"),
            (["--hosts", "localhost", "--i-trust-this-network"], "needs --interface"),
            (["--hosts", "localhost", "--launch", "srun", "--stage-ports", "50000-50100"], "--stage-ports is for mpirun"),
            (["--hosts", "localhost", "--launch", "srun", "--launch-agent", "ssh"], "--launch-agent is for mpirun"),
            (["--hosts", "localhost:0"], "not 1 to 64 stages"),
            (["--hosts", "localhost:9"], "9 stages, but the model has"),
            (["--hosts", "localhost", "--cache-dir", "/dev/null/x"], "the cache directory '/dev/null/x'"),
    ):
        done = subprocess.run([QUERN, "serve", MODELS[0], *args], capture_output=True, timeout=LIMIT)
        check(done.returncode and says in done.stderr.decode(), args, done.stderr)
    for more in ["--output", "x"], ["--force"]:
        done = subprocess.run([QUERN, "pull", MODELS[0], "--hosts", "localhost", *more], capture_output=True,
                              timeout=LIMIT)
        check(done.returncode == 64 and f"{more[0]} has no effect" in done.stderr.decode(), more, done)
    server = Server(MODELS[0], *SMALL, "--hosts", "localhost")
    refused = server.post("/v1/embeddings", {"input": "a"})
    check(refused.status == 400 and b"several hosts" in refused.body, refused.status, refused.body)
    end(server)


if __name__ == "__main__":
    main(globals())
