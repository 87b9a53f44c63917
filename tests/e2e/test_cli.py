#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""test_cli.py: tests the quern program from outside, as users run it.

    test_cli.py QUERN STORY_MODEL RANDOM_MODEL SOURCE_ROOT SLOWNESS

STORY_MODEL is the small trained model of the repository, RANDOM_MODEL a generated one with a byte-level tokenizer.
SLOWNESS multiplies the time limits (for a build with a sanitizer). Each function test_* is a case, whose name is a
sentence that must be true. A case prints RUN and OK or FAILED as cmocka does, with a line for each fault. The last line
is `N passed, N failed`.
"""
import array
import fcntl
import functools
import glob
import json
import os
import re
import shutil
import signal
import stat
import struct
import subprocess
import sys
import tempfile
import termios
import time
from xml.etree import ElementTree

from lib.cases import check, complaints, run
from lib.files import TMP, path, read, written
from lib.terminal import written_to

QUERN, STORY, RANDOM, ROOT = sys.argv[1:5]
SLOWNESS = float(sys.argv[5])
SANITIZED = SLOWNESS > 1  # it runs every kind of thing, in fewer variants
LIMIT = 60 * SLOWNESS  # seconds for one command
COMMANDS = ["run", "tokenize", "logits", "bench", "explain", "inspect", "check"]
N_VOCAB = 512  # of RANDOM
EOS = 2  # of STORY

# What STORY writes after "Once upon a time", up to the first place where two tokens are about equally likely.
TALE = (b", there was a little girl named Lily. She loved to play outside in the sunshine. One day, she saw a big, red ball "
        b"in the sky. It was the sun! She thought it was so pretty.\n")


def quern(*args, stdin=b"", **more):
    """Runs it; stdin is bytes for a pipe, or a file. Standard output and error are captured unless given."""
    feed = {"input": stdin} if isinstance(stdin, bytes) else {"stdin": stdin}
    options = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "timeout": LIMIT, **feed, **more}
    return subprocess.run([QUERN, *map(str, args)], **options)


def good(*args, **more):
    """The output of a command that must succeed and say nothing on standard error."""
    r = quern(*args, **more)
    if r.returncode != 0 or r.stderr:
        complaints.append(f"{args[0]} {args[1:]}: status {r.returncode}, stderr {r.stderr!r}")
    return r.stdout


@functools.cache
def measured(*args):
    """What such a command says, once for all cases that look at it, because it measures the machine for a second."""
    return good(*args)


def refused(status, text, *args, **more):
    """A command that must fail with this status, nothing on standard output and one line that holds text."""
    r = quern(*args, **more)
    one_line = r.stderr.startswith(b"quern: ") and r.stderr.endswith(b"\n") and r.stderr.count(b"\n") == 1
    if r.returncode != status or not one_line or text.encode() not in r.stderr or r.stdout:
        complaints.append(f"{args}: status {r.returncode}, expected {status}; stdout {r.stdout[:80]!r}, stderr "
                          f"{r.stderr[:400]!r}, expected one line with '{text}'")


def levels():
    """The instruction sets that this machine has."""
    r = quern("run", STORY, "--cpu", "none", "x")
    return re.search(r"\(this machine has ([\w, ]+)\)", r.stderr.decode())[1].split(", ")


def greedy(*args, model=STORY, prompt="Once upon a time", n=50, **more):
    return good("run", model, "--greedy", "-n", n, *args, prompt, **more)


# ---- what it writes ----

def test_writes_the_story():
    out = greedy()
    check(out.startswith(TALE), out)


def test_same_text_whatever_computes_it():
    n = 8 if SANITIZED else 24
    want = greedy(n=n)
    check(want and TALE.startswith(want), want)
    for cpu in levels():
        for threads, batch in (1, 1), (2, 3), (7, 64):
            got = greedy("--cpu", cpu, "--threads", threads, "--batch", batch, n=n)
            check(got == want, cpu, threads, "threads, batches of", batch, got)


def test_random_model_same_text_whatever_computes_it():
    # Near ties everywhere: the text changes with the last bit of a logit.
    prompt = "the quick brown fox jumps over the lazy dog" * 3
    want = greedy(model=RANDOM, prompt=prompt, n=40)
    # Each instruction set with each number of threads and each batch once; golden/equal has other pairs.
    for cpu in levels():
        for threads, batch in (1, 3), (2, 64), (7, 1):
            got = greedy("--cpu", cpu, "--threads", threads, "--batch", batch, model=RANDOM, prompt=prompt, n=40)
            check(got == want, cpu, threads, "threads, batches of", batch, got)


def test_kv_types_run():
    for kv in "f32", "f16", "q8_0":
        out = greedy("--kv", kv, n=12)
        check(TALE.startswith(out) and out, kv, out)


def test_seeds_decide():
    def tale(seed):
        return good("run", STORY, "--seed", seed, "--temperature", "1.2", "-n", 30, "Once upon a time")
    first = tale(1)
    check(first == tale(1), "the same seed gave another text")
    check(first == tale("0x1"), "0x1 is another seed than 1")
    check(len({first, tale(2), tale(3)}) == 3, "different seeds gave the same text")
    without = [good("run", STORY, "--temperature", "1.5", "-n", 30, "Once upon a time") for _ in range(3)]
    check(len(set(without)) > 1, "runs without a seed were all alike")


def test_stop_strings_and_biases():
    out = greedy("--stop", "loved to", "--stop", "never there")
    check(out == TALE[:TALE.index(b"loved to")], out)
    dot = good("tokenize", STORY, stdin=b"there.").split()[-1].decode()
    check(b"." not in greedy("--logit-bias", dot + "=-inf"), "a banned token was drawn")


def on_terminal(args, stdin):
    """What the program writes to a terminal."""
    return written_to(lambda slave: subprocess.run(args, input=stdin, stdout=slave, stderr=subprocess.DEVNULL))


def test_a_terminal_does_not_act_on_what_is_written():
    for token, raw, shown in (3 + 0x1b, b"\x1b", b"\\x1B"), (3 + 0x9b, "\ufffd".encode(), "\ufffd".encode()), (3, b"\0", b"\\x00"):
        args = [QUERN, "run", STORY, "--greedy", "-n", "6", "--logit-bias", f"{token}=1000", "x"]
        check(good(*args[1:]) == raw * 6, "a pipe gets what was written", good(*args[1:]))
        seen = on_terminal(args, b"")
        check(seen == shown * 6 + b"\r\n", "a terminal gets", seen)
    ids = b" ".join(b"%d" % (3 + c) for c in b"a\x1b[2J\n\0\x9b")
    check(good("tokenize", "-d", STORY, stdin=ids) == b"a\x1b[2J\n\0\x9b", "a pipe gets the bytes")
    seen = on_terminal([QUERN, "tokenize", "-d", STORY], ids)
    check(seen == b"a\\x1B[2J\r\n\\x00\\x9B", "a terminal gets", seen)


def test_a_full_context_ends_it():
    r = quern("run", STORY, "--greedy", "--ctx", 12, "Once upon a time")
    check(r.returncode == 0 and TALE.startswith(r.stdout) and r.stdout, r.returncode, r.stdout)
    check(r.stderr == b"quern: stopped: the context of 12 tokens is full\n", r.stderr)
    refused(65, "do not fit", "run", STORY, "--ctx", 3, "Once upon a time there was a girl")


# ---- what it reads ----

def test_prompt_from_standard_input():
    want = greedy(n=20)
    check(good("run", STORY, "--greedy", "-n", 20, stdin=b"Once upon a time") == want, "from a pipe")
    check(good("run", STORY, "--greedy", "-n", 20, "upon a time", stdin=b"Once ") == want, "pipe, then argument")
    with open(written("prompt", b"Once upon a time"), "rb") as f:
        check(good("run", STORY, "--greedy", "-n", 20, stdin=f) == want, "from a file")
    with open("/dev/null", "rb") as f:
        check(greedy(n=20, stdin=f) == want, "/dev/null is no part of the prompt")
    check(good("run", STORY, "--greedy", "-n", 5) != b"", "an empty prompt begins a story")


def test_prompt_from_a_pipe_that_comes_in_pieces():
    p = subprocess.Popen([QUERN, "run", STORY, "--greedy", "-n", "20"], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                         stderr=subprocess.PIPE)
    for piece in b"Once", b" upon a", b" time":
        p.stdin.write(piece)
        p.stdin.flush()
        time.sleep(0.05)
    out, err = p.communicate(timeout=LIMIT)
    check((p.returncode, out, err) == (0, greedy(n=20), b""), p.returncode, out, err)


def test_control_tokens_are_text_unless_asked_for():
    # in RANDOM "<|im_end|>" is one control token
    ids = good("tokenize", RANDOM, stdin=b"a<|im_end|>").split()
    check(len(ids) == 2 and int(ids[1]) == N_VOCAB - 1, ids)
    plain = good("tokenize", "--no-special", RANDOM, stdin=b"a<|im_end|>").split()
    check(len(plain) > 2 and str(N_VOCAB - 1).encode() not in plain, plain)
    check(greedy(model=RANDOM, prompt="a<|im_end|>b") != greedy("--special", model=RANDOM, prompt="a<|im_end|>b"),
          "--special made no difference")


def test_tokenize_round_trips():
    texts = [b"", b"a", b"\n", b"\0", b"a\0b\0\0", bytes(range(256)), bytes(range(255, -1, -1)), b"\xff\xfe\x80",
             b"\xc3", b"\xe2\x82", b"\xf0\x9f\x98\x80", b"caf\xc3\xa9 \xc3", b" leading", b"trailing \n", b"  a   b    c\t\t\r\n",
             "\u2581 \u00a0\u3000".encode(), b"x" * 5000, b"\xed\xa0\x80", b"\xf4\x90\x80\x80", b"<|im_start|>user\n"]
    for model in RANDOM, STORY:
        for text in texts:
            ids = good("tokenize", model, stdin=text)
            back = good("tokenize", "-d", model, stdin=ids)
            if model == STORY:  # its tokenizer writes U+2581 for a space: the two cannot be told apart
                text = text.replace("\u2581".encode(), b" ")
            check(back == text, os.path.basename(model), text[:40], "came back as", back[:40])
    check(good("tokenize", STORY, stdin=b"hello")[-1:] == b"\n", "no newline after the ids")
    check(good("tokenize", "--add-special", STORY, stdin=b"hello").split()[0] == b"1", "no BOS with --add-special")


def test_an_unknown_pre_tokeniser_is_refused_unless_one_is_named():
    name = json.loads(good("inspect", "--json", RANDOM))["metadata"]["tokenizer.ggml.pre"].encode()
    other = written("unknown-pre.gguf", read(RANDOM).replace(name, b"?" + name[1:]))
    word = "pre-tokeniser '?" + name[1:].decode() + "' is not known (near it: " + name.decode()
    refused(65, word, "tokenize", other, stdin=b"a")
    refused(65, word, "check", other)
    refused(65, word, "run", other, "a")
    refused(65, word, "explain", other)
    refused(65, word, "bench", other)
    refused(65, word, "logits", other, "--ids", "1", "-o", path("ids.f32"))
    refused(65, "'nosuch' is not known", "tokenize", "--pre", "nosuch", other, stdin=b"a")
    pre = ["--pre", name.decode()]
    text = b"It's 1234 words, \xc3\xa9t\xc3\xa9\n\n x"
    check(good("tokenize", *pre, other, stdin=text) == good("tokenize", RANDOM, stdin=text), "--pre: other ids")
    check(b": ok (" in good("check", *pre, other), "check --pre")
    ask = ["--greedy", "-n", "8", "Once 1234"]
    check(good("run", *pre, other, *ask) == good("run", RANDOM, *ask), "run --pre")
    good("explain", *pre, other)
    good("logits", *pre, other, "--ids", "1", "-o", path("ids.f32"))
    check(good("tokenize", "--pre", "smollm", RANDOM, stdin=text) == good("tokenize", RANDOM, stdin=text),
          "a file that names a known one has it")


def test_decode_refuses_what_is_no_id():
    for text, word in (b"1 2 x", "'x' at byte 4"), (b"-1", "'-1'"), (b"999999999", "'999999999'"), (b"1,2", "'1,2'"), \
            (b"5 99999999999999999999", "'99999999999999999999'"), (b"1\0002", "at byte"):
        refused(65, word, "tokenize", "-d", RANDOM, stdin=text)
    check(good("tokenize", "-d", RANDOM, stdin=b" \n\t ") == b"", "white space is no ids")


# ---- logits ----

def logits(name, *args, ids="1 2 3 4 5 6 7 8 9 10 11", **more):
    good("logits", RANDOM, "--ids", ids, "-o", path(name), *args, **more)
    data = read(path(name))
    os.remove(path(name))
    return data


def test_logits_are_one_row_a_position():
    data = logits("l")
    check(len(data) == 11 * N_VOCAB * 4, len(data))
    values = array.array("f", data)
    check(all(-1e4 < v < 1e4 for v in values) and len(set(values)) > 1000, "these are no logits")
    row = N_VOCAB * 4
    every = logits("l", "--every", 4)
    check(every == b"".join(data[i * row:(i + 1) * row] for i in (0, 4, 8)), "--every 4")
    listed = written("ids", b"1,2,3\n4 5\t6,7 8\n9 10 11\n")
    good("logits", RANDOM, "--ids-file", listed, "-o", path("l"))
    check(read(path("l")) == data, "--ids-file")
    check(stat.S_IMODE(os.stat(path("l")).st_mode) == 0o666 & ~UMASK, "the file's mode is not the usual one")
    os.remove(path("l"))


def test_logits_same_bits_whatever_computes_them():
    ids = " ".join(str(i * 37 % N_VOCAB) for i in range(70))
    for kv in "f16", "q8_0":
        want = logits("l", "--kv", kv, ids=ids)
        for cpu in levels():
            for threads, batch in (1, 1), (2, 3), (7, 64):
                got = logits("l", "--kv", kv, "--cpu", cpu, "--threads", threads, "--batch", batch, ids=ids)
                check(got == want, kv, cpu, threads, "threads, batches of", batch)


def test_a_model_cut_short_while_in_use():
    with tempfile.TemporaryDirectory() as d:
        path = os.path.join(d, "m.gguf")
        shutil.copyfile(STORY, path)
        p = subprocess.Popen([QUERN, "tokenize", path], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                             stderr=subprocess.PIPE)
        p.stdin.write(b"Once")
        p.stdin.flush()
        end, unread = time.monotonic() + LIMIT, array.array("i", [1])
        while unread[0] and time.monotonic() < end:
            time.sleep(0.005)
            fcntl.ioctl(p.stdin, termios.FIONREAD, unread)
        os.truncate(path, 4096)  # it reads its input: the vocabulary is indexed, and its strings are still in the file
        out, err = p.communicate(b" upon a time", LIMIT)
        check(p.returncode == 74 and err.count(b"\n") == 1 and b"became shorter" in err and not out, p.returncode, err)


def test_a_context_beyond_the_training_is_said():
    r = quern("run", STORY, "--ctx", 300, "-n", 1, "--greedy", "Once")
    check(r.returncode == 0 and b"a context of 300 tokens; the model was trained with 256" in r.stderr, r.stderr)


def test_failed_logits_leave_nothing_behind():
    folder = path("folder")
    os.mkdir(folder)
    out = os.path.join(folder, "l")
    for before in None, b"what was there":
        if before is not None:
            written("folder/l", before)
        refused(64, "token 2 is 512, not in 0..511", "logits", RANDOM, "--ids", "1 2 512", "-o", out)
        refused(64, "'1+2+3' at byte 2 is not a token id", "logits", RANDOM, "--ids", "0 1+2+3", "-o", out)
        refused(64, "'+2' at byte 2 is not a token id", "logits", RANDOM, "--ids", "1 +2", "-o", out)
        refused(75, "the memory budget is 1048576 bytes", "logits", STORY, "--ids", "1", "--memory", "1M", "-o", out)
        refused(66, "nothing.gguf", "logits", path("nothing.gguf"), "--ids", "1", "-o", out)
        check(os.listdir(folder) == ([] if before is None else ["l"]), "left behind:", os.listdir(folder))
        check(before is None or read(out) == before, "the old file was changed")
    refused(74, "/no/such/folder/l", "logits", RANDOM, "--ids", "1", "-o", "/no/such/folder/l")
    refused(74, folder, "logits", RANDOM, "--ids", "1", "-o", folder)
    os.mkfifo(path("fifo"))
    refused(74, "not a regular file", "logits", RANDOM, "--ids", "1", "-o", path("fifo"))
    check(stat.S_ISFIFO(os.stat(path("fifo")).st_mode), "the pipe was replaced")
    for ids, text in ("1 x", "'x' at byte 2 is not a token id"), ("-1", "'-1'"), ("", "no token ids"):
        refused(64, text, "logits", RANDOM, "--ids", ids, "-o", out)
    refused(66, "no-ids", "logits", RANDOM, "--ids-file", path("no-ids"), "-o", out)


# ---- pipes and devices ----

def outputs():
    """A command line of each kind that writes to standard output."""
    measuring = [["explain", STORY], ["bench", STORY, "-p", "4", "-n", "2", "-r", "1"]]
    if not SANITIZED:  # JSON has its kind in `inspect`
        measuring += [[*args, "--json"] for args in measuring]
    return [["run", STORY, "--greedy", "-n", "300", "x"], ["tokenize", STORY], ["inspect", STORY], ["inspect", "--json", STORY],
            ["check", STORY], *measuring, ["--help"], ["--version"], ["run", "--help"]]


def test_a_reader_that_leaves_is_no_error():
    p = subprocess.Popen([QUERN, "run", STORY, "--greedy", "-n", "300", "Once upon a time"], stdin=subprocess.DEVNULL,
                         stdout=subprocess.PIPE, stderr=subprocess.PIPE, bufsize=0)
    first = os.read(p.stdout.fileno(), 5)
    p.stdout.close()  # as head -c 5 does
    err = p.stderr.read()
    check((p.wait(LIMIT), first[:5], err) == (0, TALE[:len(first)], b""), p.returncode, first, err)
    for args in outputs():
        r, w = os.pipe()
        os.close(r)  # gone before the first byte
        got = quern(*args, stdout=w, stdin=b"some text")
        os.close(w)
        check((got.returncode, got.stderr) == (0, b""), args, got.returncode, got.stderr)


def test_head_in_a_shell():
    line = '"$0" run "$1" --greedy -n 300 "Once upon a time" < /dev/null | head -c 5; echo "${PIPESTATUS[@]}"'
    r = subprocess.run(["bash", "-c", line, QUERN, STORY], stdout=subprocess.PIPE, stderr=subprocess.PIPE, timeout=LIMIT)
    check((r.stdout, r.stderr) == (TALE[:5] + b"0 0\n", b""), r.stdout, r.stderr)


def test_a_full_device_is_an_error():
    full = os.stat("/dev/full") if os.path.exists("/dev/full") else None
    if not full or not stat.S_ISCHR(full.st_mode) or (os.major(full.st_rdev), os.minor(full.st_rdev)) != (1, 7):
        check(False, "/dev/full is not the device it should be (1, 7): nothing can be tested with it")
        return
    for args in outputs():
        with open("/dev/full", "wb") as f:
            got = quern(*args, stdout=f, stdin=b"some text")
        check(got.returncode == 74 and b"No space left on device" in got.stderr and got.stderr.count(b"\n") == 1, args,
              got.returncode, got.stderr)


def test_an_interrupt_ends_it():
    p = subprocess.Popen([QUERN, "run", STORY, "--greedy", "--ctx", "100000", "--logit-bias", f"{EOS}=-inf", "Once"],
                         stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                         preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL))
    check(os.read(p.stdout.fileno(), 1) != b"", "nothing was written")
    check(p.poll() is None, "it ended by itself")
    p.send_signal(signal.SIGINT)
    try:
        _, err = p.communicate(timeout=10 * SLOWNESS)
    except subprocess.TimeoutExpired:
        p.kill()
        check(False, "it went on after the signal")
        return
    said = err.replace(b"quern: warning: a context of 100000 tokens; the model was trained with 256\n", b"")
    check(p.returncode in (-signal.SIGINT, 130) and said == b"", p.returncode, err)


# ---- refusals ----

def on_model(command, model):
    """The shortest command line that reads the model."""
    return {"run": ["run", model, "x"], "logits": ["logits", model, "--ids", "1", "-o", path("never")]}.get(command, [command, model])


def test_files_that_are_no_models():
    story = read(STORY)
    bad = {
        "empty": b"",
        "magic alone": b"GGUF",
        "text": b"Once upon a time\n" * 100,
        "noise": bytes(i * i * 7 % 251 for i in range(100000)),
        "cut in the header": story[:1000],
        "cut in the tensors": story[:len(story) // 2],
        "zeros": bytes(100000),
        "version 1": story[:4] + b"\1\0\0\0" + story[8:2000],
    }
    for name, data in bad.items():
        model = written(name, data)
        for command in COMMANDS:
            refused(65, name, *on_model(command, model))
        os.remove(model)
    key = b"llama.rope.freq_base" + b"\6\0\0\0"  # an f32, here one that turns the heads too fast for any number
    fast = read(RANDOM).replace(key + b"\0\x40\x1c\x46", key + struct.pack("<f", 1e-30))
    for command in "run", "logits", "bench", "explain", "check":
        refused(65, "radians per position", *on_model(command, written("fast", fast)))
    for command in COMMANDS:
        refused(66, "nothing.gguf", *on_model(command, path("nothing.gguf")))
        refused(66, "did you mean", *on_model(command, os.path.basename(STORY)[:-6]), "--models", os.path.dirname(STORY))
        refused(66, "the folder has no config.json", *on_model(command, TMP.name))
        refused(66, "not a regular file", *on_model(command, "/dev/null"))
    check(not os.path.exists(path("never")), "logits wrote a file")


def test_models_have_names():
    name, folder = os.path.splitext(os.path.basename(STORY))[0], os.path.dirname(STORY)
    for command in COMMANDS:
        line, by_path = on_model(command, name), on_model(command, STORY)
        if command in ("run", "explain", "bench"):
            few = {"run": ["-n", "1"], "bench": ["-n", "1", "-p", "8", "-r", "1"]}.get(command, [])
            line, by_path = line + few, by_path + few
        r = quern(*line, "--models", folder, stdin=subprocess.DEVNULL)
        check(r.returncode == 0, command, r.returncode, r.stderr)
        if not SANITIZED:  # other cases name the model by its path
            check(quern(*by_path, stdin=subprocess.DEVNULL).returncode == 0, command)
    os.remove(path("never"))
    here = quern("inspect", name, "--models", TMP.name)
    check(here.returncode == 66 and name.encode() in here.stderr, here)


def test_usage_errors():
    r = quern(stdin=subprocess.DEVNULL)
    check(r.returncode == 64 and b"usage: quern [OPTIONS] [INSTRUCTION...]" in r.stderr and not r.stdout, r.returncode, r.stderr)
    refused(64, "did you mean 'quern serve'", "serv", stdin=subprocess.DEVNULL)
    for word, line in ("list", "models"), ("status", "ps"), ("version", "--version"), ("reviewer", "-p reviewer < FILE"):
        refused(64, f"did you mean 'quern {line}'", word, stdin=subprocess.DEVNULL)
    refused(64, "nothing is asked", "")
    for command in COMMANDS:
        refused(64, "unknown option '--nonsense'", command, "--nonsense", RANDOM)
        refused(64, "unknown option '-Z'", command, RANDOM, "-Z")
        refused(64, "no value goes with option '--help=x'", command, "--help=x")
        refused(64, command + ": ", command)
    for command in "run", "tokenize", "logits", "bench", "explain", "inspect":
        refused(64, command + ": ", command, RANDOM, "a", "b")
    for wrong in ["--threads", "0"], ["--threads", "1025"], ["--batch", "x"], ["--ctx", "-1"], ["-n", "1.5"], ["--kv", "f64"], \
            ["--seed", "-1"], ["--seed", "x"], ["--memory", "lots"], ["--top-p", "nan"], ["--logit-bias", "x"], \
            ["--logit-bias", "5"], ["--logit-bias", "5=x"], ["--cpu", "z80"], ["--stop", ""], ["--temperature", "-1"], \
            ["--top-p", "2"], ["--repetition-penalty", "0"], ["--logit-bias", "5=nan"], ["--logit-bias", "40000=1"], ["--top-k"]:
        refused(64, "", "run", STORY, "x", *wrong)
    refused(64, "did you mean '--temperature'", "run", STORY, "x", "--temprature=1")
    refused(64, "-n, --predict: 'x'", "run", STORY, "x", "-n", "x")
    refused(64, "nothing to measure", "bench", RANDOM, "-p", "0", "-n", "0")
    refused(64, "either --ids or --ids-file", "logits", RANDOM, "-o", path("never"))
    refused(64, "exclude each other", "tokenize", "-d", "--add-special", RANDOM)


def test_too_little_memory_names_both_numbers():
    for args in ["run", STORY, "x"], ["logits", STORY, "--ids", "1", "-o", path("never")], ["bench", STORY], ["explain", STORY]:
        r = quern(*args, "--memory", "1M")
        numbers = re.search(rb"^quern: engine: (\d+) bytes needed .*, the memory budget is 1048576 bytes(; .*)?\n$", r.stderr)
        check(r.returncode == 75 and numbers and int(numbers[1]) > 16 << 20 and not r.stdout, args, r.returncode, r.stderr)
    check(TALE.startswith(greedy("--memory", "500M", n=5)), "500M is enough")


# ---- descriptions ----

def options_in_source(command):
    [source] = glob.glob(os.path.join(ROOT, "src", "cli", "*", f"command_{command}.c"))
    with open(source) as f:
        text = f.read()
    return re.findall(r"""\{\s*(?:\.name = )?"([a-z0-9-]+)",\s*(?:\.letter = )?(?:0|'.'|\.kind)""", text)


def test_help_lists_every_option():
    check(good("--help") == good("-h"), "-h is not --help")
    for command in COMMANDS:
        check(re.search(rf"^  {command} ", good("--help-all").decode(), re.M), command, "is not in --help-all")
        check(re.search(rf"\b{command}\b", good("--help").decode()), command, "is not in --help")
        check(good(command, "-h") == good(command, "--help"), "-h is not --help")
        text = good(command, "--help-all").decode()
        check(text.startswith(f"usage: quern {command} "), text[:60])
        listed = re.findall(r"^  (?:-.,|   ) --([a-z0-9-]+)( [A-Z=]+)?  ", text, re.M)
        names = [name for name, _ in listed]
        check(set(options_in_source(command)) < set(names) and names[-3:] == ["config", "help", "help-all"], command, names,
              options_in_source(command))
        for name, value in listed[:-2:4 if SANITIZED else 1]:  # each is understood: at worst its value is not
            r = quern(command, f"--{name}" + ("=?" if value else ""))
            status = (0, 64, 66) + ((78,) if name == "config" else ())
            check(r.returncode in status and b"unknown option" not in r.stderr and b"no value" not in r.stderr, command, name,
                  r.returncode, r.stderr)


def test_version_names_the_build():
    text = good("--version").decode()
    check(re.fullmatch(r"quern \d+\.\d+\.\d+ \([^@(),]+, [^@(),]+\), best instruction set here: (ref|avx2|avxvnni|avx512|avx512vbmi|amx)\n", text), text)


def test_inspect_and_check():
    j = json.loads(good("inspect", "--json", STORY))
    check(j["architecture"] == "llama" and j["bytes"] == os.path.getsize(STORY) and j["version"] == 3, j["architecture"])
    check(sum(t["bytes"] for t in j["tensors"]) == j["weight_bytes"], "tensor bytes do not add up")
    check(j["metadata"]["llama.block_count"] == 6 and len(j["tensors"]) > 50, "metadata or tensors are missing")
    text = good("inspect", STORY).decode()
    check("llama" in text and "token_embd.weight" in text and all(c == "\n" or c.isprintable() for c in text), text[:100])
    for deep in [], ["--deep"]:
        out = good("check", *deep, STORY, RANDOM).decode()
        hashed = "    sha256 [0-9a-f]{64}\n" if deep else ""
        check(re.fullmatch(rf"{re.escape(STORY)}: ok .*\n{hashed}{re.escape(RANDOM)}: ok .*\n{hashed}", out), out)
    r = quern("check", STORY, path("nothing.gguf"), RANDOM)  # all are looked at
    check(r.returncode == 66 and r.stdout.count(b": ok") == 2 and r.stderr.count(b"\n") == 1, r.returncode, r.stdout, r.stderr)


def test_schemas_are_checked():
    fine = written("fine.json", b'{"type":"object","properties":{"a":{"type":"string","minLength":2},"n":{"minimum":17,"type":"integer"},'
                                b'"x":{}},"required":["a","n"]}')
    out = good("check", "--schema", fine, written("any.json", b"{}")).decode().splitlines()
    check(out[0] == f'{fine}: ok, for example {{"a":"aa","n":100}}' and len(out) == 2, out)
    refused(65, "bad.json: /properties/a/format: the format 'dob'", "check", "--schema", written("bad.json", b'{"properties":{"a":{"format":"dob"}}}'))
    refused(65, "broken.json:1:1: ", "check", "--schema", written("broken.json", b"{"))
    refused(65, "none.json: ", "check", "--schema", written("none.json", b"false"))
    refused(66, "nowhere.json", "check", "--schema", "nowhere.json")


def test_explain_adds_up_to_the_weights():
    tensors = json.loads(good("inspect", "--json", STORY))["tensors"]
    sizes = {t["name"]: t["bytes"] for t in tensors}
    n_vocab = next(t["shape"][1] for t in tensors if t["name"] == "token_embd.weight")
    read_bytes = sum(sizes.values())
    if "output.weight" in sizes:  # of an embedding that is not the output matrix, one row is read
        read_bytes -= sizes["token_embd.weight"] * (n_vocab - 1) / n_vocab
    for extra in [], ["--analyze", "-r", "1"]:
        j = json.loads(measured("explain", STORY, *extra, "--json"))
        total = j["total"]["bytes"]
        check(abs(total - read_bytes) < 0.01 * read_bytes, total, "bytes, the tensors that are read have", read_bytes)
        for key in "bytes", "macs_int8", "macs_f32":
            check(sum(op[key] for op in j["operations"]) == j["total"][key], key, "does not add up")
        check(("ms" in j["total"]) == bool(extra), "measured times with --analyze and only then")
        check([p["rows"] for p in j["passes"]] == [1, 2, 3, 4, 6, 8, 12, 16, 24, 32], j["passes"])
        for p in j["passes"]:
            check(p["floor_ms"] > 0 and ("ms" in p) == bool(extra) and ("break_even" in p) == bool(extra and p["rows"] > 1), p)
            check(not p.get("break_even") or 0 <= p["break_even"] <= 1, p)
    check("passes" not in json.loads(good("explain", "--json", STORY, "-p", "4")), "of several rows, where several were asked for")
    deep = json.loads(good("explain", "--json", STORY, "-d", "200"))
    check(deep["total"]["bytes"] > total, "depth costs nothing")


def test_explain_says_and_draws_where_the_time_goes():
    svg = path("token.svg")
    for extra, words in ([], ["at most "]), (["--analyze", "-r", "1"], ["at most ", "measured ", "are reached ("]), \
            (["-p", "32", "-d", "64"], ["a pass of 32 tokens after 64 others"]):
        text = good("explain", STORY, *extra, "--svg", svg).decode()
        for word in ["output head", "sets the pace: ", "tokens/s", "Bars: #", *words]:
            check(word in " ".join(text.split()), extra, word, text)
        check(re.search("%  [#=]{10}", text) or "-r" in extra, "no bars", text)
        shares = [int(n) for n in re.findall(r" (\d+)%(?:  |$)", text.split("\npart")[1].split("\n\n")[0], re.M)]
        check(len(shares) == 6 and 96 <= sum(shares) <= 104, "shares of time", shares, text)
        ElementTree.fromstring(read(svg))
        check(read(svg).count(b"<circle") >= 5 and (b">measured</text>" in read(svg)) == ("-r" in extra), read(svg)[:500])
        os.remove(svg)
    check(json.loads(good("explain", STORY, "--json", "--svg", svg)) and ElementTree.fromstring(read(svg)), "both JSON and a drawing")
    good("explain", ROOT + "/models/tiny-draft-q8_0.gguf", "--svg", path("small.svg"))
    check(b": 0.00 ms" not in read(path("small.svg")), "small times have digits", read(path("small.svg"))[:2000])
    refused(74, "token.svg", "explain", STORY, "--svg", path("nowhere/token.svg"))


def test_bench_json_has_what_comparisons_read():
    j = json.loads(good("bench", STORY, "-p", "16,3", "-n", "4", "-b", "1,8", "-d", "0,100", "-r", "2", "--json"))
    names = [name + at for at in ("", "@100") for name in ("pp16", "pp3", "tg", "b1", "b8")]
    check(list(j["tests"]) == names and j["weight_bytes"] > 1e7 and j["cpu"] in levels(), j)
    for name, t in j["tests"].items():
        check(len(t["tok_s"]) == 2 and all(v > 0 for v in t["tok_s"] + [t["ceiling"]]), name, t)
        check(min(t["tok_s"]) <= t["median"] <= max(t["tok_s"]), name, t)
        check(t["depth"] == (100 if "@" in name else 0) and ("times_one_row" in t) == (t["kind"] == "batch"), name, t)
        if p := t.get("break_even"):
            tokens = sum(p**i for i in range(t["tokens"]))
            check(p == 2 and t["times_one_row"] > t["tokens"] or abs(tokens - max(t["times_one_row"], 1)) < 1e-3, name, t)
        check(("break_even" in t) == (t["kind"] == "batch" and t["tokens"] > 1), name, t)
    tests = j["tests"]
    check(tests["pp16"]["tokens"] == 16 and tests["tg"]["tokens"] == 4 and tests["b8"]["tokens"] == 8, tests)
    check(tests["b8"]["macs_int8"] == 8 * tests["b1"]["macs_int8"], "all rows of a batch have logits")
    check(tests["b8"]["bytes"] < 2 * tests["b1"]["bytes"], "weights are read once for a batch")
    check(tests["tg@100"]["bytes"] > tests["tg"]["bytes"], "depth costs nothing")
    one = json.loads(good("bench", STORY, "-p", "0", "-n", "2", "-r", "9", "--seconds", "0", "--json", "--threads", "1"))
    check(list(one["tests"]) == ["tg"] and len(one["tests"]["tg"]["tok_s"]) == 1 and one["threads"] == 1, one)
    check(b"decode" in measured("bench", STORY, "-p", "4", "-n", "2", "-r", "1"), "no table")


def test_bench_replays_answers():
    """The answers' tokens do not depend on drafts, so only counts and the form of the output are checked."""
    def texts(*lines):
        with open(path("texts.jsonl"), "w") as f:
            f.write("\n".join(line if isinstance(line, str) else json.dumps(line) for line in lines))
        return path("texts.jsonl")

    ids, more = [5 + i % 7 for i in range(200)], list(range(100, 230))
    n_blocks = [5, 2]  # 3 and 2
    if SANITIZED:
        ids, more, n_blocks = ids[:70], more[:70], [2, 1]
    file = texts({"prompt": ids[:50], "answer": ids}, "", {"prompt": [9], "answer": more})
    j = json.loads(good("bench", STORY, "--replay", file, "--draft", "ngram", "--streams", "1,2", "--json"))
    check(j["draft"] == "ngram" and [r["streams"] for r in j["replay"]] == [1, 2], j)
    for r, n in zip(j["replay"], n_blocks):
        check(len(r["plain_tok_s"]) == len(r["draft_tok_s"]) <= n, r)
        check(r["tokens"] == 64 * r["streams"] * len(r["plain_tok_s"]), r)
        check(0 <= r["accepted"] <= r["drafted"] and r["passes"] + r["accepted"] <= r["tokens"], r)
    check(b"of the speed without drafts" in good("bench", STORY, "--replay", file, "--rounds", "1"), "no table")
    for ids in [], [-1], [1 << 20], ["x"], [1.5], "x", None:
        refused(65, "texts.jsonl:1: ", "bench", STORY, "--replay", texts({"prompt": ids, "answer": [1] * 64}))
    refused(65, "an answer 64", "bench", STORY, "--replay", texts({"prompt": [1], "answer": [1] * 63}))
    refused(65, "texts.jsonl:2: not a JSON object", "bench", STORY, "--replay",
            texts({"prompt": [1], "answer": [1] * 64}, "{"))
    refused(65, "no texts", "bench", STORY, "--replay", texts(""))
    refused(66, "never", "bench", STORY, "--replay", path("never"))
    refused(64, "--streams", "bench", STORY, "--replay", file, "--streams", "0")
    refused(64, "MODEL", "bench", "--replay", file)
    refused(64, "--rounds is for --replay", "bench", STORY, "--rounds", "2")
    refused(64, "--rows excludes --replay", "bench", STORY, "--replay", file, "-b", "2")


def test_bench_counts_every_batch_of_a_prompt():
    def costs(*args):
        return json.loads(good("bench", STORY, "-n", "0", "-r", "1", "--json", *args))["tests"]["pp12"]
    whole, cut = costs("-p", "12"), costs("-p", "12", "--batch", "4")
    check(whole["macs_int8"] == cut["macs_int8"], whole, cut)
    check(1.5 * whole["bytes"] < cut["bytes"], "three batches read the layers three times", whole, cut)


def test_bench_lists():
    for wrong in ["-p", "1,,2"], ["-p", "1,"], ["-p", "-1"], ["-p", ""], ["-d", "x"], ["-b", "65537"], ["-p", "9999999999999999999"], \
            ["-p", ",".join(["1"] * 40)], ["-b", "8", "--batch", "4"]:
        refused(64, "quern: --", "bench", STORY, *wrong)


def test_depth_beyond_the_machine_is_refused():
    for args in ["bench", STORY, "-n", "1"], ["explain", STORY, "--analyze"]:
        refused(75, "this machine has", *args, "-d", "16000000", "--memory", "900T")


def test_bench_ceilings():
    j = json.loads(good("bench", "--ceilings", "--json", "--threads", "1"))
    check(set(levels()) <= set(j["levels"]) and j["threads"] == 1 and j["read_gbs"] > 0 and "mapped_gbs" not in j, j)
    check(all(v > 0 for level in j["levels"].values() for v in level.values()), j)
    check(b"GMAC/s int8" in good("bench", STORY, "--ceilings"), "no table")


def test_ceilings_say_how_much_they_moved():
    for args in ["bench", STORY, "-p", "4", "-n", "2", "-r", "1"], ["explain", STORY]:
        c = json.loads(measured(*args, "--json"))["ceilings"]
        names = {"read_gbs", "mapped_gbs", "int8_gmacs", "f32_gmacs"}
        check(set(c) == names | {"low"} and set(c["low"]) == names, c)
        check(all(0 < c["low"][name] <= c[name] for name in names), c)
        check(len(re.findall(rb"GB/s read \([\d.]+\).*\n.*\(slowest pass\)", measured(*args))) == 1, "the table has no spread")


UMASK = os.umask(0)
os.umask(UMASK)
with TMP:
    run(globals())
