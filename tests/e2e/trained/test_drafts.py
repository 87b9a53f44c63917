#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""test_drafts.py: tests that a daemon with drafts gives the answers of one without.

    test_drafts.py QUERN MODELS TOOLS N [PREFIX_OF_CASES]

N requests are asked of each daemon, four at once; N may be FROM-TO, to ask many in pieces. If they are few, as for a
sanitizer's build, answers are shorter and keys and values have fewer types. MODELS and TOOLS are the folders models/
and tools/train. The models were trained, so that guesses are right at times: those of random weights are never right.
How many guesses become rows depends on measured times, so the numbers are only compared with each other.
"""
import concurrent.futures
import fcntl
import hashlib
import http.client
import json
import os
import pathlib
import random
import re
import subprocess
import sys
import tempfile

sys.path.insert(1, os.path.dirname(sys.path[0]))
from lib.cases import check, run

QUERN, MODELS, TOOLS = sys.argv[1:4]
FROM, TO = map(int, ("0-" + sys.argv[4]).split("-")[-2:])
ARE_FEW = TO <= 12
LENGTH = 48 if ARE_FEW else 120  # tokens of an answer
sys.path.insert(1, TOOLS)
import data

LIMIT = 300


def model(name):
    return os.path.join(MODELS, f"tiny-{name}-q8_0.gguf")


class Daemon:
    def __init__(self, *args):
        self.process = subprocess.Popen([QUERN, "serve", *args, "--name", "m", "--listen", "127.0.0.1:0"], stderr=subprocess.PIPE,
                                        text=True)
        said = []
        for line in self.process.stderr:
            said.append(line)
            if found := re.search(r"127\.0\.0\.1:(\d+)", line):
                self.port = int(found[1])
                return
        check(False, "no daemon", args, said)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.terminate()
        check(self.process.wait(LIMIT) == 0, "the daemon's status", self.process.returncode)
        self.process.stderr.close()

    def http(self, method, path, body=None):
        c = http.client.HTTPConnection("127.0.0.1", self.port, timeout=LIMIT)
        c.request(method, path, json.dumps(body) if body else None, {"Content-Type": "application/json"} if body else {})
        r = c.getresponse()
        text = r.read().decode()
        c.close()
        return r.status, text

    def ask(self, body):
        status, text = self.http("POST", "/v1/chat/completions", body)
        return status, json.loads(text)

    def all(self, bodies):
        with concurrent.futures.ThreadPoolExecutor(4) as pool:
            return list(pool.map(self.ask, bodies))

    def metric(self, name, draft):
        found = re.search(rf'^quern_{name}{{[^}}]*"{draft}"[^}}]*}} (\d+)', self.http("GET", "/metrics")[1], re.M)
        return int(found[1]) if found else None


def requests(n):
    """Requests of many kinds; the same ones each time."""
    r = random.Random(7)
    kinds = list(data.EXACT)
    ways = [{"temperature": 0}, {"temperature": 1}, {"temperature": 0.7, "top_p": 0.9, "logprobs": True, "top_logprobs": 3},
            {"temperature": 0, "frequency_penalty": 0.4, "logprobs": True}, {"temperature": 1.2, "top_k": 20, "n": 2},
            {"temperature": 0, "stop": ["e", "4"]}, {"temperature": 0.5, "repetition_penalty": 1.2, "min_p": 0.05},
            {"temperature": 0.8, "dry_multiplier": 0.8}, {"temperature": 1, "mirostat_tau": 4}, {"temperature": 0, "max_tokens": 3},
            {"temperature": 0.6, "response_format": {"type": "json_object"}}, {"temperature": 1, "xtc_probability": 0.5, "xtc_threshold": 0.1}]
    return [{"messages": [{"role": "user", "content": data.fresh(kinds[i % len(kinds)], r)[0]}], "max_tokens": LENGTH, "seed": i,
             **ways[i // len(kinds) % len(ways)]} for i in range(n)]


def what_counts(reply):
    """What must not differ. Times, ids, and what the cache and the drafters did, may."""
    status, body = reply
    usage = body.get("usage", {})
    return status, body.get("choices"), body.get("error"), usage.get("prompt_tokens"), usage.get("completion_tokens")


def same(name, draft, *args, both=(), more=lambda i: {}):
    """A daemon with these drafts answers as one without; returns how many drafted tokens there were, and right ones.
    Both daemons have the options `both`. more: fields of request i to the one with drafts."""
    bodies = requests(TO)[FROM:]
    with Daemon(model(name), "--draft", "off", *both) as d:
        plain = [what_counts(x) for x in d.all(bodies)]
    check(sum(x[0] == 200 for x in plain) == TO - FROM, [x for x in plain if x[0] != 200][:3])
    with Daemon(model(name), *args, *both) as d:
        got = d.all([{**body, **more(i)} for i, body in enumerate(bodies)])
        for body, a, b in zip(bodies, plain, got):
            check(a == what_counts(b), name, args, body, a, b)
        for body in bodies[:8]:
            again = d.ask({**body, "draft": "off"})
            check(what_counts(again) == what_counts(got[bodies.index(body)]) and "drafted" not in again[1].get("quern", {}), again)
        return d.metric("drafted_tokens_total", draft), d.metric("accepted_tokens_total", draft), got


def test_guesses_from_what_was_said():
    n, right, got = same("base", "ngram", "--draft", "ngram")
    check(n >= right >= 0, n, right)
    told = [x[1]["quern"] for x in got if "drafted" in x[1]["quern"]]
    check(sum(t["drafted"] for t in told) == n and sum(t["accepted"] for t in told) == right, n, right, told[:2])


def test_guesses_of_a_small_model():
    n, right, _ = same("base", "model", "--draft-model", model("draft"))
    check(n >= right >= 0, n, right)


def test_guesses_of_the_model_itself():
    n, right, _ = same("hybrid", "mtp", "--draft", "mtp")
    check(n >= right >= 0, n, right)


def test_guesses_of_all_kinds():
    same("hybrid", "mtp", "--draft", "auto", "--draft-model", model("draft"))


def test_windows_that_the_model_fills():
    for kv in ("f16",) if ARE_FEW else ("f32", "f16", "q8_0"):
        sizes = {}, {"window": 2}, {"window": 4}, {"window": 8}, {"window": 16}  # of the first, the controller decides
        n, right, _ = same("wedlm", "wedlm", "--draft", "wedlm", both=("--kv", kv), more=lambda i: sizes[i % 5])
        print(f"{kv}: {right} of {n} guesses were right")
        check(n >= right > 0, kv, n, right)


def check_receipts(receipts):
    """They verify, and one with another token, seed or window does not, unless nothing follows from the change."""
    def verify(one, *more):
        one = {k: v for k, v in one.items() if k != "sha256"}  # no number of these is written in two ways
        one["sha256"] = hashlib.sha256(json.dumps(one, sort_keys=True, separators=(",", ":"), ensure_ascii=False).encode()).hexdigest()
        return subprocess.run([QUERN, "verify", "-", "-m", model("wedlm"), *more], input=json.dumps(one), capture_output=True, text=True, timeout=LIMIT)
    for one in receipts:
        for kind in ([], ["--cpu", "ref", "--threads", "1"]):
            done = verify(one, *kind)
            check(done.returncode == 0 and "every token" in done.stdout, done)
    tokens = receipts[0]["answers"][1]["tokens"]
    at = len(tokens) // 2
    tokens[at] = (tokens[at] + 1) % 900
    done = verify(receipts[0])
    check(done.returncode == 1 and f"token {at + 1} " in done.stdout, at, done)
    done = verify({**receipts[1], "windows": {**receipts[1]["windows"], "window": 17}})
    check(done.returncode == 65 and "17" in done.stderr, done)


def test_unverified_windows():
    """Eight answers, half of them of unverified windows and half plain, have in one daemon what they have alone."""
    r, kinds = random.Random(9), list(data.EXACT)
    bodies = [{"messages": [{"role": "user", "content": data.fresh(kinds[i], r)[0]}], "max_tokens": min(LENGTH, 100), "seed": i, "temperature": i % 4 / 3,
               **({"wedlm_verify": False, "window": 4 + i, "entropy_threshold": 0.3, "pos_penalty": 0.01} if i % 2 else {"decoder": "plain"})}
              for i in range(8)]
    what = lambda x: (what_counts(x), x[1]["quern"].get("decoder"), x[1]["quern"].get("rows"))
    with Daemon(model("wedlm"), "--decoder", "wedlm") as d:
        alone = [what(d.ask(b)) for b in bodies]
        check([x[1] for x in alone] == [None, "wedlm_unverified"] * 4, alone)
        with concurrent.futures.ThreadPoolExecutor(8) as pool:
            for body, a, b in zip(bodies, alone, pool.map(d.ask, bodies)):
                check(what(b) == a, body, a, b)
        for more, text in (({"logprobs": True}, "logprobs"), ({"frequency_penalty": 1}, "penalties"),
                           ({"response_format": {"type": "json_object"}}, "grammar"), ({"mirostat_tau": 5}, "mirostat"),
                           ({"dry_multiplier": 1}, "DRY"), ({"decoder": "plain"}, "off"), ({"context": "rotate:4"}, "rotates")):
            s, reply = d.ask({**bodies[1], **more})
            check(s == 400 and text in reply["error"]["message"] and "wedlm_verify" in str(reply), more, s, reply)
    with Daemon(model("wedlm"), "--draft", "off") as d:
        s, reply = d.ask(bodies[1])
        check(s == 400 and "wedlm" in reply["error"]["message"], s, reply)
    with Daemon(model("wedlm"), "--decoder", "wedlm", "--wedlm-verify", "no", "--window", "5", "--entropy-threshold", "0.3", "--pos-penalty",
                "0.01") as d:
        usual = {k: v for k, v in bodies[1].items() if k not in ("wedlm_verify", "window", "entropy_threshold", "pos_penalty")}
        check(what(d.ask(usual)) == alone[1] and what(d.ask(bodies[0])) == alone[0], "the daemon's own windows")
        receipts = [d.ask({**usual, "n": 2, "receipt": True})[1]["quern"]["receipt"], d.ask({**bodies[3], "receipt": True})[1]["quern"]["receipt"]]
        check([r["windows"]["window"] for r in receipts] == [5, 7] and receipts[0]["decoder"] == "replay", receipts)
        verified = d.ask({**usual, "wedlm_verify": True, "receipt": True})[1]["quern"]["receipt"]
        check(verified["decoder"] == "sequence" and "windows" not in verified, verified)
    check_receipts(receipts + [verified])


def test_windows_of_a_fixed_size():
    """Windows of a size that was asked for are used, whatever they cost, and change nothing."""
    question = data.fresh("records", random.Random(0))[0]
    body = {"messages": [{"role": "user", "content": question}], "max_tokens": 200, "temperature": 0}
    with Daemon(model("wedlm"), "--decoder", "wedlm") as d:
        plain = what_counts(d.ask({**body, "decoder": "plain"}))
        for window in 2, 4, 8, 16:
            got = d.ask({**body, "window": window})
            n, q = got[1]["usage"]["completion_tokens"], got[1]["quern"]
            check(what_counts(got) == plain and q["accepted"] > n / 4 and q["passes"] <= n - q["accepted"], window, plain, got)


def test_models_that_cannot_have_windows_are_refused_by_name():
    r = subprocess.run([QUERN, "serve", model("hybrid"), "--listen", "127.0.0.1:0", "--draft", "wedlm"], capture_output=True, text=True,
                       timeout=LIMIT)
    check(r.returncode == 65 and "wedlm: the model has recurrent states" in r.stderr, r)


def run_it(name, *args):
    return subprocess.run([QUERN, "run", model(name), "-n", str(LENGTH), "--seed", "7", *args], input=b"1, 2, 3, 4, 5, 6, 7, 8, 9,",
                          capture_output=True, timeout=LIMIT)


def test_run_says_the_same():
    """`quern run` has drafts, too, and they change nothing."""
    for name, hows in ("base", ("default", "auto", "ngram")), ("hybrid", ("default", "mtp", "auto")):
        plain = run_it(name, "--draft", "off")
        check(plain.returncode == 0 and plain.stdout, plain)
        for args in (), *(("--draft", how) for how in hows):
            r = run_it(name, *args)
            check(r.returncode == 0 and r.stdout == plain.stdout, name, args, r, plain.stdout)
        for more in (), ("--draft", "auto"):
            r = run_it(name, "--draft-model", model("draft"), *more)
            check(r.returncode == 0 and r.stdout == plain.stdout, name, more, r, plain.stdout)
    for args, text in ((("--draft", "mtp"), b"block"), (("--draft", "model"), b"no draft model"),
                       (("--draft-model", "/no/such"), b"/no/such"),
                       (("--window", "4"), b"--window"), (("--window", "17", "--decoder", "wedlm"), b"17"),
                       (("--entropy-threshold", "-1", "--decoder", "wedlm"), b"-1"), (("--pos-penalty", "101", "--decoder", "wedlm"), b"101"),
                       (("--decoder", "wedlm", "--receipt", "r.json"), b"--receipt")):
        r = run_it("base", *args)
        check(r.returncode and not r.stdout and text in r.stderr and r.stderr.count(b"\n") == 1, args, r)
    r = run_it("hybrid", "--draft", "wedlm")
    check(r.returncode == 65 and not r.stdout and b"wedlm: the model has recurrent states" in r.stderr, r)


def test_run_fills_windows():
    """`quern run` with verified windows says what it says without. Unverified ones say the same on each way."""
    for more in (), ("--greedy",), ("--stop", ", 1"), ("-n", "-1", "--ctx", "64"), ("-n", "0"), ("--logit-bias", "44=-inf"):
        plain = run_it("wedlm", *more)
        for sizes in (), ("--window", "8"):
            r = run_it("wedlm", "--decoder", "wedlm", *sizes, *more)
            check((r.returncode, r.stdout, r.stderr) == (plain.returncode, plain.stdout, plain.stderr), more, sizes, plain, r)
    check(b"full" in run_it("wedlm", "--decoder", "wedlm", "-n", "-1", "--ctx", "64").stderr)
    fills = "--decoder", "wedlm", "--wedlm-verify", "no", "--window", "8"
    known = run_it("wedlm", *fills)
    check(known.returncode == 0 and known.stdout, known)
    for more in ("--cpu", "ref"), ("--threads", "1", "--batch", "64"):
        r = run_it("wedlm", *fills, *more)
        check((r.returncode, r.stdout) == (0, known.stdout), more, known, r)
    r = run_it("wedlm", *fills, "--repetition-penalty", "1.2")
    check(r.returncode == 64 and b"penalties" in r.stderr and not r.stdout, r)
    for how in (), fills:  # the pipe holds less than the answer, which would fill the context
        reading, writing = os.pipe()
        fcntl.fcntl(writing, fcntl.F_SETPIPE_SZ, 4096)
        p = subprocess.Popen([QUERN, "run", model("wedlm"), *how, "-n", "-1", "--ctx", "4096", "--greedy", "1, 2, 3, 4, 5, 6, 7, 8, 9,"],
                             stdin=subprocess.DEVNULL, stdout=writing, stderr=subprocess.PIPE)
        os.close(writing)
        os.read(reading, 1)
        os.close(reading)
        said = p.communicate(timeout=LIMIT)[1]
        check(p.returncode == 0 and b"full" not in said, "a reader that leaves ends it", how, p.returncode, said)


def test_the_mask_is_checked():
    """`quern check --wedlm` finds the token that behaves like a mask, whatever the file says."""
    def check_it(path):
        r = subprocess.run([QUERN, "check", "--wedlm", path], capture_output=True, text=True, timeout=LIMIT)
        return r.returncode, r.stdout, r.stderr

    s, out, err = check_it(model("wedlm"))
    check(s == 0 and not err and out.splitlines()[1].startswith("     1023  <|mask|>") and "the file's mask" in out, s, out, err)
    s, out, err = check_it(model("base"))
    check(s == 65 and "no token behaves like a mask" in err, s, out, err)
    s, out, err = check_it(model("hybrid"))
    check(s == 65 and "recurrent states" in err and "hybrid" in err, s, out, err)
    whole = pathlib.Path(model("wedlm")).read_bytes()
    at = whole.index(b"tokenizer.ggml.mask_token_id") + len("tokenizer.ggml.mask_token_id") + 4
    check(whole[at:at + 4] == (1023).to_bytes(4, "little"), "the file's mask")
    with tempfile.TemporaryDirectory() as d:
        path = str(pathlib.Path(d) / "m.gguf")
        for mask, text in (1022, "the file's mask is 1022, but 1023 behaves more like one"), (1024, "mask_token_id is 1024, not 0..1023"):
            pathlib.Path(path).write_bytes(whole[:at] + mask.to_bytes(4, "little") + whole[at + 4:])
            s, out, err = check_it(path)
            check(s == 65 and text in err, mask, s, out, err)
        r = subprocess.run([QUERN, "-m", path, "--decoder", "wedlm", "a"], stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=LIMIT)
        check(r.returncode == 65 and "mask_token_id is 1024, not 0..1023" in r.stderr, r)


def test_what_is_not_there_is_refused():
    for args, text in (["--draft", "mtp"], "mtp"), (["--draft", "model"], "draft model"), (["--draft", "x"], "off|auto"):
        r = subprocess.run([QUERN, "serve", model("base"), "--listen", "127.0.0.1:0", *args], capture_output=True, text=True, timeout=LIMIT)
        check(r.returncode in (64, 65), args, r)
        said = [line for line in r.stderr.splitlines() if "warning: the sandbox has gaps" not in line]  # of a sanitizer's build
        check(len(said) == 1 and text.split("|")[0] in said[0], args, r)
    ask = {"messages": [{"role": "user", "content": "a"}], "max_tokens": 2}
    for how in "off", "ngram":  # go before a draft model, which then need not be there
        with Daemon(model("base"), "--draft", how, "--draft-model", "/no/such/model") as d:
            check(d.ask(ask)[0] == 200 and d.ask({**ask, "draft": "model"})[0] == 400, how)
    r = subprocess.run([QUERN, "-m", model("base"), "--draft-model", model("draft"), "-n", "30", "-v", "a"], stdin=subprocess.DEVNULL,
                       capture_output=True, text=True, timeout=LIMIT)
    check(r.returncode == 0 and r.stdout, "the filter, in its own process", r)
    with Daemon(model("base"), "--draft", "ngram") as d:
        for value, status in ("ngram", 200), ("auto", 200), ("off", 200), ("mtp", 400), ("model", 400), ("fast", 400), (7, 400):
            s, body = d.ask({**ask, "draft": value})
            check(s == status and (s == 200 or "draft" in body["error"]["message"]), value, s, body)
        for fields, status in (({"decoder": "plain"}, 200), ({"decoder": "auto", "draft": "ngram"}, 200), ({"decoder": "plain", "draft": "off"}, 200),
                               ({"decoder": "plain", "draft": "ngram"}, 400), ({"decoder": "wedlm"}, 400), ({"decoder": 7}, 400)):
            s, body = d.ask({**ask, **fields})
            wanted = "decoder" if fields["decoder"] != "wedlm" else "wedlm"
            check(s == status and (s == 200 or wanted in body["error"]["message"]), fields, s, body)
    r = subprocess.run([QUERN, "-m", model("base"), "--decoder", "plain", "--draft", "ngram", "a"], stdin=subprocess.DEVNULL,
                       capture_output=True, text=True, timeout=LIMIT)
    check(r.returncode == 64 and "'plain'" in r.stderr and "'ngram'" in r.stderr, r)
    with Daemon(model("base"), "--draft", "off") as d:
        check(d.ask({**ask, "draft": "ngram"})[0] == 400, "this daemon has no drafters")


def test_guesses_are_the_default():
    """What a daemon guesses that nobody told about drafts: what repeats, and the block's guesses where there is one."""
    body = {"messages": [{"role": "user", "content": "a"}], "max_tokens": 60, "temperature": 0, "logit_bias": {"300": 100}}
    for name, others in ("base", ("mtp", "model")), ("hybrid", ("model",)):
        with Daemon(model(name)) as d:
            for value in "auto", "default", "ngram", "off":
                check(d.ask({**body, "draft": value})[0] == 200, name, value)
            for value in others:
                check(d.ask({**body, "draft": value})[0] == 400, name, value)
            for _ in range(40):  # where guesses seem not to pay, as beside busy programs, they are only tried now and then
                s, r = d.ask(body)
                check(s == 200, name, r)
                if r["quern"].get("accepted"):
                    break
            check(r["quern"].get("accepted", 0) > 0 and r["quern"]["passes"] < r["usage"]["completion_tokens"], name, r)


if __name__ == "__main__":
    run(globals(), sys.argv[5] if len(sys.argv) > 5 else "test_")
