#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""test_receipts.py: receipts of answers, and `quern verify`, which checks them.

    test_receipts.py QUERN STORY_MODEL CHAT_MODEL SLOWNESS N PARROT MODEL...

test_serve.py describes the first arguments. N random answers of all MODELs have to verify, made by daemons with several
instruction sets, drafts, a context that rotates and a cache on disk, many at once, and by the filter. N receipts are
altered: each has to be refused, or the first token that differs has to be the one at which a daemon's answer to the
altered request differs.
"""
import concurrent.futures
import copy
import hashlib
import json
import os
import random
import re
import signal
import subprocess
import sys

from lib.cases import check, run
from lib.files import path, read, written
from lib.retemplate import retemplate
from test_serve import CHAT, LIMIT, QUERN, STORY, Server

N = int(sys.argv[5])
PARROT = sys.argv[6]  # says prepared texts (tests/models/make-parrot)
MODELS = sys.argv[7:]
TEMPLATE = """{% for t in tools or [] %}{{ t | tojson }}{% endfor %}{% for m in messages %}<|im_start|>{{ m.role }}
{{ m.content or "" }}{% for c in m.tool_calls or [] %}<tool_call>
{"name": "{{ c.function.name }}", "arguments": {{ c.function.arguments | tojson }}}
</tool_call>{% endfor %}<|im_end|>
{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant
{% endif %}"""
COMPLETIONS, CHATS, MESSAGES, RESPONSES = "/v1/completions", "/v1/chat/completions", "/v1/messages", "/v1/responses"
WORDS = ["Once upon a time", " the dog", " hello", "\n", " é", "漢字", " 12", ".", " and then", "{"]
SAMPLING = {
    "temperature": [0, 0.5, 1, 1.7], "top_p": [1, 0.7], "top_k": [0, 5, 60], "min_p": [0, 0.1], "typical_p": [1, 0.6], "top_n_sigma": [0, 1.5],
    "repetition_penalty": [1, 1.3], "frequency_penalty": [0, 0.5], "presence_penalty": [0, 0.5], "penalty_last_n": [-1, 8],
    "dry_multiplier": [0, 1], "xtc_probability": [0, 0.6], "mirostat_tau": [0, 0, 4], "logit_bias": [{}, {"7": 5, "9": -100}],
    "stop_token_ids": [[], list(range(60, 90))], "ignore_eos": [True, False, False],
}
FORMS = [{"regex": "[a-d ]{2,9}"}, {"choice": ["yes", "no", "perhaps"]},
         {"response_format": {"type": "json_schema", "json_schema": {"name": "x", "schema": {"type": "array", "items": {"type": "boolean"},
                                                                                              "maxItems": 3}}}}]
TOOL = {"type": "function", "function": {"name": "f", "description": "does", "parameters": {
    "type": "object", "properties": {"x": {"enum": ["a", "b"]}}, "required": ["x"], "additionalProperties": False}}}


def quern(*args, **more):
    return subprocess.run([QUERN, *map(str, args)], capture_output=True, timeout=LIMIT * 20, **more)


def canonical(value):
    """The canonical form, written down a second time. Reals are kept as the text that they have."""
    if type(value) is int:  # some lists have a million
        return str(value)
    if isinstance(value, dict):
        return "{" + ",".join(canonical(k) + ":" + canonical(v) for k, v in sorted(value.items(), key=lambda i: i[0].encode())) + "}"
    if isinstance(value, list):
        return "[" + ",".join(map(canonical, value)) + "]"
    if isinstance(value, str):
        text = json.dumps(value, ensure_ascii=False)
        return re.sub(r"(\\\\)|\\u00(..)", lambda m: m[1] or "\\u00" + m[2].upper(), text)
    if isinstance(value, float):
        text = f"{value:.9g}"
        text = re.sub(r"e\+?(-?)0*(\d)", r"e\1\2", text)
        return text if re.search("[.e]", text) else text + ".0"
    return json.dumps(value)


def hashed(receipt):
    """The receipt with its hash made anew."""
    body = {k: v for k, v in receipt.items() if k != "sha256"}
    return body | {"sha256": hashlib.sha256(canonical(body).encode()).hexdigest()}


class Results:
    """What `quern verify` says about each of several receipts."""

    def __init__(self, receipts, *args):
        name = written("all.json", "\n".join(r if isinstance(r, str) else json.dumps(r) for r in receipts) + "\n")
        self.run = quern("verify", name, "--threads", 1, *args)
        self.of = {}
        for line in self.run.stdout.decode().splitlines() + self.run.stderr.decode().splitlines():
            if line.startswith("  "):
                continue
            m = re.search(r"all\.json: (?:receipt (\d+): )?(.*)", line)
            if m:
                self.of[int(m[1] or 1) - 1] = m[2]

    def same(self, i):
        return self.of.get(i, "").startswith("every token is the one this model gives")

    def at(self, i):
        """The number of the token that differs, from 0; None: none does; -1: the receipt was refused."""
        if self.same(i):
            return None
        m = re.search(r"differs at token (\d+) of", self.of.get(i, ""))
        return int(m[1]) - 1 if m else -1


def folder():
    """A folder with all models; one of them has a chat template with tools."""
    os.makedirs(path("models"), exist_ok=True)
    names = []
    for file in MODELS + [STORY]:
        name = os.path.basename(file)
        os.symlink(os.path.abspath(file), path("models", name))
        names.append(name.removesuffix(".gguf"))
    retemplate(CHAT, path("models", "chat.gguf"), TEMPLATE)
    return names


def some(r, values):
    share = r.random() / 2
    return {k: r.choice(v) for k, v in values.items() if r.random() < share}


def request(r, names):
    """A random request: where it is sent, and its body."""
    target = r.choice([COMPLETIONS] * 3 + [CHATS] * 2 + [MESSAGES, RESPONSES]) if names else CHATS
    text = "".join(r.choice(WORDS) for _ in range(r.randint(1, 20)))
    body = {"seed": r.randrange(2 ** 40), "stream": r.random() < 0.3, **some(r, SAMPLING)}
    most = r.choice([1, 3, 8, 16, 24])
    if target == COMPLETIONS:
        body |= {"model": r.choice(names), "max_tokens": most, "prompt": r.choice([text, [r.randrange(3, 100) for _ in range(r.randint(1, 70))]])}
    else:
        body |= {"model": "chat"}
    user = {"role": "user", "content": text}
    if target == CHATS:
        said = [{"role": "user", "content": "hello"}, {"role": "assistant", "content": r.choice(WORDS)}]
        body |= {"messages": r.choice([[], [], said]) + [user], "max_tokens": most}
        if r.random() < 0.5:
            body |= {"tools": [TOOL], "parallel_tool_calls": r.random() < 0.5, "tool_choice": r.choice(["auto", "required", "required"])}
            body["max_tokens"] = r.choice([8, 90])
    elif target == MESSAGES:
        body |= {"messages": [user], "max_tokens": most}
    elif target == RESPONSES:
        body |= {"input": text, "max_output_tokens": most}
    if target in (COMPLETIONS, CHATS):
        body |= {"n": r.choice([1, 1, 3])} | ({"stop": r.choice(["a", ["e", " t"], "."])} if r.random() < 0.4 else {})
        if r.random() < 0.3:
            body |= r.choice(FORMS) | {"max_tokens": 60}
    else:
        for name in ("frequency_penalty", "presence_penalty"):
            body.pop(name, None)
        body["temperature"] = min(1, body.get("temperature", 1))
    if "tools" in body or FORMS[0].keys() & body.keys() or "choice" in body or "response_format" in body:
        body["ignore_eos"] = False
        body.pop("logit_bias", None)
        body.pop("stop_token_ids", None)
    return target, body


def filters(server, r, n):
    """Asks n questions with the filter, which go on with one conversation. Returns how many were answered."""
    env, answered, talk = {**os.environ, "QUERN_SOCKET": server.sock}, 0, path(f"{os.path.basename(os.path.dirname(server.sock))}.chat")
    for i in range(n):
        options = ["--temperature", r.choice([0, 1.2]), "--seed", r.randrange(99), "-n", r.choice([1, 9])] + ["--session", talk] * (i % 3 < 2)
        done = quern("ask", "-m", "chat", *options, "What is it?", input=r.choice(WORDS).encode() + b"!", env=env)
        answered += done.returncode == 0
        check(done.returncode in (0, 75), "the filter", done)
    return answered


def ask_all(server, requests):
    """Sends the requests, several at once. Returns how many were answered."""
    def one(item):
        return server.post(*item).status == 200
    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        return sum(pool.map(one, requests))


ANSWERS = []  # the receipts of random answers


def test_random_answers_of_all_models_verify():
    r = random.Random(1)
    names = folder()
    log = path("receipts.jsonl")
    models = [f"{n}={path('models', n + '.gguf')}" for n in names + ["chat"]]
    expected = 0
    best = quern("--version").stdout.decode().rstrip().rpartition(" ")[2]
    other = "ref" if best == "ref" else "avx2"
    daemons = [(best, []), (other, ["--draft", "ngram"]), ("ref", ["--batch", "7"]), (other, ["--kv", "q8_0", "--parallel", "3"]),
               (best, ["--ctx", "64", "--context", "rotate:9"])]
    for cpu, more in daemons:
        server = Server(models, "--ctx", "200", "--memory", "3G", "--cpu", cpu, "--receipts", log, "--cache-dir", path("cache"), *more, tcp=False)
        asked = [request(r, names) for _ in range(max(N // 5, 1))]
        if "--context" in more:
            asked = [(target, body | {"max_tokens": r.choice([70, 130])} if target == COMPLETIONS else body) for target, body in asked]
        expected += ask_all(server, asked) + filters(server, r, max(N // 200, 1))
        server.stop()
    lines = sorted(read(log).decode().splitlines(), key=lambda line: json.loads(line)["model"]["name"])
    ANSWERS.extend(map(json.loads, lines))
    kinds = {a["end"] for x in ANSWERS for a in x["answers"]} | {"calls" for x in ANSWERS if x["calls"]} | {"form" for x in ANSWERS if x["form"]}
    check(N < 1000 or kinds >= {"token", "text", "length", "call", "calls", "form"}, kinds)
    check(N < 1000 or {x["model"]["name"] for x in ANSWERS} == {*names, "chat"}, "models")
    check(any("rotate" in x and len(x["prompt"]["tokens"]) + len(a["tokens"]) > 64 for x in ANSWERS for a in x["answers"]), "none rotated")
    check(len(lines) == expected, "receipts:", len(lines), "of", expected)
    check(expected > 0.75 * (N - 4), "answered:", expected)
    for receipt, line in zip(ANSWERS, lines):
        check(canonical(receipt) == line, "not canonical:", line)
        check(hashed(receipt) == receipt, "another hash:", line)
    results = Results(lines, "--models", path("models"))
    check(results.run.returncode == 0, results.run.returncode, results.run.stderr.decode()[-2000:])
    for i, line in enumerate(lines):
        check(results.same(i), results.of.get(i), line)
    some_lines = lines[:: max(1, len(lines) // 20)]
    for more in ["--cpu", "ref", "--batch", "5"], ["--replay"]:
        results = Results(some_lines, "--models", path("models"), *more)
        check(results.run.returncode == 0, more, results.run.stdout.decode(), results.run.stderr.decode())


# ---- altered receipts ----

# Changes of a receipt's sampling, and of the request that has it.
OPTIONS = {"temperature": [0.0, 0.6, 1.2, 1.9], "top_k": [0, 2, 50], "top_p": [1.0, 0.4], "min_p": [0.0, 0.3], "repetition_penalty": [1.0, 1.6],
           "frequency_penalty": [0.0, 1.5], "dry_multiplier": [0.0, 2.0], "typical_p": [1.0, 0.3], "xtc_probability": [0.0, 0.9],
           "mirostat_tau": [0.0, 3.0], "penalty_last_n": [-1, 3, 64], "seed": [1, 2, 3], "xtc_threshold": [0.05, 0.3]}


def first_difference(said, gives):
    """Of two answers, as (tokens, end, stop_index)."""
    for i, (a, b) in enumerate(zip(said[0], gives[0])):
        if a != b:
            return i
    if said == gives:
        return None
    return min(len(said[0]), len(gives[0])) - 1


def answer_of(receipt):
    a = receipt["answers"][0]
    return a["tokens"], a["end"], a["stop_index"]


class Altered:
    """Alters receipts, and knows the place where `quern verify` has to find a difference."""

    def __init__(self, server, seed):
        self.server, self.r = server, random.Random(seed)
        self.bases = [self.make_base() for _ in range(max(10, N // 12))]
        body = {"prompt": [self.r.randrange(300, 20000) for _ in range(180)], "max_tokens": 40, "temperature": 1, "seed": 4, "context": "rotate:8"}
        self.rotating = body, self.ask(body)

    def ask(self, body):
        answer = self.server.post(COMPLETIONS, body | {"receipt": True, "model": "m"})
        return answer.json["quern"]["receipt"]

    def base(self):
        return copy.deepcopy(self.r.choice(self.bases))

    def make_base(self):
        body = {"prompt": [self.r.randrange(300, 20000) for _ in range(self.r.randint(1, 12))], "max_tokens": self.r.choice([4, 10, 20]),
                "temperature": self.r.choice([0, 0.8, 1.4]), "seed": self.r.randrange(100)}
        return body, self.ask(body)

    def option(self):
        body, receipt = self.base()
        name = self.r.choice(list(OPTIONS))
        value = self.r.choice(OPTIONS[name])
        changed = copy.deepcopy(receipt)
        changed["sampling"][name] = str(value) if name == "seed" else value
        return hashed(changed), first_difference(answer_of(receipt), answer_of(self.ask(body | {name: value})))

    def prompt(self):
        body, receipt = self.base()
        changed = copy.deepcopy(receipt)
        i = self.r.randrange(len(body["prompt"]))
        changed["prompt"]["tokens"][i] = body["prompt"][i] = self.r.randrange(300, 20000)
        return hashed(changed), first_difference(answer_of(receipt), answer_of(self.ask(body)))

    def token(self):
        _, receipt = self.base()
        tokens = receipt["answers"][0]["tokens"]
        i = self.r.randrange(len(tokens))
        tokens[i] = (tokens[i] + self.r.randrange(1, 20000)) % 32000
        return hashed(receipt), i

    def shorter(self):
        _, receipt = self.base()
        a = receipt["answers"][0]
        del a["tokens"][self.r.randrange(1, len(a["tokens"])):]
        return hashed(receipt), len(a["tokens"]) - 1

    def end(self):
        _, receipt = self.base()
        a = receipt["answers"][0]
        a["end"] = "token" if a["end"] == "length" else "length"
        return hashed(receipt), len(a["tokens"]) - 1

    def length(self):
        body, receipt = self.base()
        changed = copy.deepcopy(receipt)
        changed["max_tokens"] = body["max_tokens"] = self.r.choice([3, 9, 19, 25])
        return hashed(changed), first_difference(answer_of(receipt), answer_of(self.ask(body)))

    def stop(self):
        body, receipt = self.base()
        body["stop"] = receipt["stop"] = [self.r.choice("aeiou")]
        return hashed(receipt), first_difference(answer_of(receipt), answer_of(self.ask(body)))

    def rotate(self):
        """Another number of tokens is kept, of an answer in a context that rotates; or its context is another one."""
        body, receipt = self.rotating
        changed, keep = copy.deepcopy(receipt), self.r.choice([0, 7, 8, 9, 40, None])
        changed["rotate"] = keep
        how = "plain" if keep is None else f"rotate:{keep}"
        if keep is None:
            del changed["rotate"]
            return hashed(changed), -1  # it does not fit
        return hashed(changed), first_difference(answer_of(receipt), answer_of(self.ask(body | {"context": how})))

    def byte(self):
        """A changed byte of the text, without a new hash. 1.0 and 1e0 are the same number."""
        _, receipt = self.base()
        text = canonical(receipt).encode()
        while True:
            i = self.r.randrange(len(text))
            other = self.r.choice([c for c in b"0123456789abcdef,:\"x" if c != text[i]])
            changed = (text[:i] + bytes([other]) + text[i + 1:]).decode()
            if text[i:i + 1] != b"." or other != ord("e"):
                return changed, -1

    def model(self):
        _, receipt = self.base()
        digit = receipt["model"]["files"][0][5]
        receipt["model"]["files"][0] = receipt["model"]["files"][0][:5] + ("0" if digit != "0" else "1") + receipt["model"]["files"][0][6:]
        return hashed(receipt), -1

    def arithmetic(self):
        _, receipt = self.base()
        receipt["arithmetic"] += 1
        return hashed(receipt), -1

    def member(self):
        """A member that is missing, is not known, or has another type."""
        _, receipt = self.base()
        name = self.r.choice(sorted(set(receipt) - {"sha256", "calls", "form"}))
        kind = self.r.randrange(3)
        if kind == 0:
            del receipt[name]
        elif kind == 1:
            receipt["more"] = 1
        else:
            receipt[name] = {"x": [1]}
        return hashed(receipt), -1


def test_altered_receipts_are_refused_or_the_first_difference_is_found():
    os.makedirs(path("models"), exist_ok=True)
    server = Server(STORY, "--ctx", "200", tcp=False)
    a = Altered(server, 2)
    kinds = [a.option, a.option, a.option, a.prompt, a.token, a.token, a.shorter, a.end, a.length, a.stop, a.byte, a.byte, a.model, a.arithmetic,
             a.member, a.rotate]
    altered = [kinds[i % len(kinds)]() for i in range(N)]
    server.stop()
    results = Results([receipt for receipt, _ in altered], "-m", STORY)
    check(len(results.of) == len(altered), "results:", len(results.of))
    n_without = 0
    for i, (receipt, at) in enumerate(altered):
        check(results.at(i) == at, kinds[i % len(kinds)].__name__, "expected", at, "but:", results.of.get(i), receipt)
        n_without += at is None
    check(n_without < N / 2, "without effect:", n_without)
    share = altered[::max(1, N // 60)]
    results = Results([receipt for receipt, _ in share], "-m", STORY, "--replay")
    for i, (receipt, at) in enumerate(share):
        check(results.at(i) == at, "made again, expected", at, "but:", results.of.get(i), receipt)


# ---- the commands ----

def test_a_run_has_a_receipt_and_a_private_one_needs_its_prompt():
    r, p = path("run.json"), path("run.json.prompt")
    made = quern("run", STORY, "-n", 20, "--seed", 3, "--receipt", r, "Once upon a time")
    check(made.returncode == 0 and made.stdout, made)
    done = quern("verify", r, "-m", STORY)
    check(done.returncode == 0 and b"(20 tokens)" in done.stdout, done)
    quern("run", STORY, "-n", 20, "--stop", "girl", "--kv", "q8_0", "--receipt", r, "--receipt-private", "Once upon a time")
    check(b"1, 9038" not in read(r) and b'"tokens":[1,' not in read(r), read(r))
    check(os.stat(p).st_mode & 0o777 == 0o600, oct(os.stat(p).st_mode))
    check(quern("verify", r, "-m", STORY).returncode == 65, "without its prompt")
    done = quern("verify", r, "-m", STORY, "--prompt", p)
    check(done.returncode == 0, done)
    other = written("other.prompt", read(p).replace(b"[1,", b"[2,"))
    done = quern("verify", r, "-m", STORY, "--prompt", other)
    check(done.returncode == 65 and b"this prompt has the hash" in done.stderr, done)


def test_the_filter_and_a_chat_have_receipts():
    retemplate(CHAT, path("c.gguf"), TEMPLATE)
    r, text = path("ask.json"), b"the text"
    made = quern("ask", "-m", path("c.gguf"), "--ctx", 300, "-n", 12, "--temperature", 1, "--receipt", r, "What is it?", input=text)
    check(made.returncode == 0, made)
    check(quern("verify", r, "-m", path("c.gguf")).returncode == 0, "the filter")
    made = quern("ask", "-m", path("c.gguf"), "--ctx", 300, "-n", 12, "--receipt", r, "--receipt-private", "What is it?", input=text)
    check(made.returncode == 0 and b"What is it" not in read(r), made, read(r))
    check(b"What is it" in read(r + ".prompt"), read(r + ".prompt"))
    check(quern("verify", r, "-m", path("c.gguf"), "--prompt", r + ".prompt").returncode == 0, "the private filter")
    os.mkfifo(path("pipe"))
    made = quern("chat", "-m", path("c.gguf"), "--ctx", 300, "-n", 4, "--receipt", path("pipe"), input=b"Hello\n")
    check(made.returncode == 74, "a pipe, which nobody reads", made)
    with open(path("many.json"), "w") as f:
        f.write('{"a":\n' * 2000)
    said = quern("verify", path("many.json"))
    check(said.returncode == 65 and said.stderr.count(b"\n") == 21 and b"20 texts in a row are no receipts" in said.stderr, said)
    chats = path("chat.jsonl")
    made = quern("chat", "-m", path("c.gguf"), "--ctx", 300, "-n", 8, "--seed", 4, "--receipt", chats, input=b"hello\nand now?\n")
    check(made.returncode == 0, made)
    done = quern("verify", chats, "-m", path("c.gguf"))
    check(done.returncode == 0 and done.stdout.count(b"every token") == 2, done)
    made = quern("ask", "--each", "--receipt", r, "x", input=text)
    check(made.returncode == 64 and b"--each excludes --receipt" in made.stderr, made)
    made = quern("ask", "--receipt-private", "x", input=text)
    check(made.returncode == 64 and b"needs --receipt" in made.stderr, made)


def test_another_model_is_refused_and_against_says_where_it_differs():
    r = path("run.json")
    quern("run", MODELS[0], "-n", 20, "--greedy", "--receipt", r, "Once upon a time")
    done = quern("verify", r, "-m", CHAT)
    check(done.returncode == 65 and b"not the model of the receipt" in done.stderr, done)
    changed = bytearray(read(MODELS[0]))
    changed[-100] ^= 1
    done = quern("verify", r, "-m", written("changed.gguf", bytes(changed)))
    check(done.returncode == 65 and b"not the model of the receipt" in done.stderr, done)
    done = quern("verify", r, "--against", MODELS[0])
    check(done.returncode == 0, done)
    check(not done.stderr, "the same vocabulary", done)
    done = quern("verify", r, "--against", MODELS[1])
    check(done.returncode in (1, 65), done)
    done = quern("verify", written("twice", read(r) * 2), "--against", STORY)
    check(done.returncode == 1 and done.stderr.count(b"has another vocabulary than the receipt's model") == 1, done)
    done = quern("verify", written("large", read(r) + b'{"receipt":1,' + b" " * (16 << 20)))
    check(b"receipt 2: receipt: this line has more than 16 MiB" in done.stderr, done.stderr[-300:])


def test_the_conversation_of_a_receipt_is_checked():
    retemplate(CHAT, path("c.gguf"), TEMPLATE)
    server = Server(path("c.gguf"), "--ctx", "300", tcp=False)
    answer = server.post(CHATS, {"messages": [{"role": "user", "content": "hello"}], "max_tokens": 6, "receipt": True})
    both = server.post(COMPLETIONS, {"prompt": ["a", "b"], "max_tokens": 3, "receipt": "private"}).json["quern"]
    refused = server.post(CHATS, {"messages": [{"role": "user", "content": "hello"}], "receipt": "secret"})
    none = server.post(CHATS, {"messages": [{"role": "user", "content": "hello"}], "max_tokens": 2, "receipt": False})
    server.stop()
    check(refused.status == 400 and refused.error()["param"] == "receipt", refused.body)
    check("receipt" not in none.json["quern"], none.body)
    check(len(both["receipt"]) == 2 and len(both["receipt_prompt"]) == 2, both)
    receipt = answer.json["quern"]["receipt"]
    check(Results([receipt], "-m", path("c.gguf")).same(0), receipt)
    receipt["prompt"]["conversation"] = receipt["prompt"]["conversation"].replace("hello", "goodbye")
    results = Results([hashed(receipt)], "-m", path("c.gguf"))
    check(results.run.returncode == 1 and "the conversation has another prompt" in results.of[0], results.run)


def test_replies_with_thoughts_calls_and_stop_texts_verify():
    server = Server(PARROT, "--ctx", "600", tcp=False)
    weather = {"type": "function", "function": {"name": "get_weather", "parameters": {"type": "object"}}}
    time_of = {"type": "function", "function": {"name": "get_time", "parameters": {"type": "object"}}}
    tools = {"tools": [weather, time_of]}
    asked = [("hello", {}, "token"), ("hello", {"stop": ["can I", "What"]}, "text"), ("think", {}, "token"),
             ("think", {"stop": "easy"}, "token"), ("think", {"stop": ["easy", "four"]}, "text"), ("think", {"max_tokens": 4}, "length"),
             ("weather", tools, "token"), ("weather", tools | {"parallel_tool_calls": False}, "call"), ("both", tools, "token"),
             ("both", tools | {"parallel_tool_calls": False}, "call"), ("broken", tools, "token"), ("broken", tools | {"stop": "argum"}, "token"),
             ("weather", tools | {"tool_choice": "required"}, "token"), ("object", {"response_format": {"type": "json_object"}}, "token"),
             ("sing", {"max_tokens": 20, "stream": True}, "length"), ("hello", {"max_tokens": 0}, "length")]
    receipts = []
    for text, more, end in asked:
        answer = server.post(CHATS, {"messages": [{"role": "user", "content": text}], "receipt": True} | more)
        last = [e for e in answer.events() if isinstance(e, dict) and "quern" in e] if "stream" in more else [answer.json]
        receipts.append(last[-1]["quern"]["receipt"])
        check(receipts[-1]["answers"][0]["end"] == end, text, more, receipts[-1]["answers"][0])
    server.stop()
    results = Results(receipts, "-m", PARROT)
    for i, (text, more, end) in enumerate(asked):
        check(results.same(i), text, more, results.of.get(i))
    check(results.run.returncode == 0, results.run)
    for receipt in receipts:
        receipt["one_call"] = not receipt["one_call"]
    results = Results([hashed(receipt) for receipt in receipts], "-m", PARROT)
    differ = [i for i in range(len(asked)) if not results.same(i)]
    check(differ == [6, 7, 8, 9, 12], differ, results.of)


def test_the_prompts_of_private_receipts_are_found_by_their_hashes():
    retemplate(CHAT, path("c.gguf"), TEMPLATE)
    chats = path("private.jsonl")
    made = quern("chat", "-m", path("c.gguf"), "--ctx", 300, "-n", 8, "--seed", 4, "--receipt", chats, "--receipt-private",
                 input=b"hello\nand now?\nand then?\n")
    prompts = read(chats + ".prompt").splitlines()
    check(made.returncode == 0 and len(prompts) == 3, made, prompts)
    done = quern("verify", chats, "-m", path("c.gguf"), "--prompt", chats + ".prompt")
    check(done.returncode == 0 and done.stdout.count(b"every token") == 3, done)
    done = quern("verify", chats, "-m", path("c.gguf"), "--prompt", written("two", b"\n".join(prompts[:0:-1])))
    check(done.returncode == 65 and done.stdout.count(b"every token") == 2, done)
    check(b"none of these 2 prompts has its hash" in done.stderr, done)
    done = quern("verify", chats, "-m", path("c.gguf"), "--prompt", written("cut", b"\n".join(prompts)[:-4]))
    check(done.returncode == 65 and b"cut: prompt 3: " in done.stderr, done)
    done = quern("verify", chats, "-m", path("c.gguf"), "--prompt", written("none", b"{}" * 100001))
    check(done.returncode == 65 and b"more than 100000 prompts" in done.stderr, done)
    server = Server(path("c.gguf"), "--ctx", "600", tcp=False)
    user = {"messages": [{"role": "user", "content": "hello"}], "seed": 5, "temperature": 1, "receipt": "private"}
    made = []
    for more in [{"n": 3, "max_tokens": 9}, {"tools": [TOOL], "tool_choice": "required", "max_tokens": 90}, {**FORMS[0], "max_tokens": 30},
                 {"n": 2, "stop": ["e", "a"], "max_tokens": 30}, {**FORMS[2], "n": 2, "max_tokens": 30}]:
        made.append(server.post(CHATS, user | more).json["quern"])
    server.stop()
    check(all("tokens" not in m["receipt"]["prompt"] for m in made), made)
    given = written("given", "\n".join(json.dumps(m["receipt_prompt"]) for m in reversed(made)))
    results = Results([m["receipt"] for m in made], "-m", path("c.gguf"), "--prompt", given)
    check(results.run.returncode == 0 and all(map(results.same, range(len(made)))), results.of)


def test_a_receipt_that_cannot_be_written_is_refused_before_the_answer():
    os.makedirs(path("a folder"), exist_ok=True)
    os.makedirs(path("half.prompt"), exist_ok=True)
    for name, words in [("/no such folder/r.json", "cannot create"), ("/proc/r.json", "cannot create"), (path("a folder"), "not a regular file"),
                        ("/dev/null", "not a regular file")]:
        for command in (["ask", "-m", "none", "x"], ["run", STORY, "-n", 3, "x"], ["chat", "-m", "none"]):
            done = quern(*command, "--receipt", name, input=b"")
            said = done.stderr.decode().replace("cannot write", "cannot create").replace("Is a directory", "not a regular file")
            check(done.returncode == 74 and not done.stdout and words in said and name in said, command, done)
        done = quern("serve", STORY, "--listen", path("s"), "--receipts", name, stdin=subprocess.DEVNULL)
        check(done.returncode == 74 and name.encode() in done.stderr and b"serving" not in done.stderr, done)
    done = quern("run", STORY, "-n", 3, "--receipt", path("half"), "--receipt-private", "x")
    check(done.returncode == 74 and not done.stdout and b"half.prompt" in done.stderr and not os.path.exists(path("half")), done)
    done = quern("run", STORY, "-n", 3, "--receipt", "", "x")
    check(done.returncode == 64 and b"--receipt needs the name of a file" in done.stderr, done)
    done = quern("chat", "-m", "none", "--receipt", path("never"), input=b"")
    check(done.returncode != 0 and not os.path.exists(path("never")), done)


def test_answers_that_their_clients_cut_verify():
    log = path("cut.jsonl")
    server = Server(PARROT, "--ctx", "600", "--receipts", log, tcp=False)
    fill = {"input_prefix": "def f(a, b):\n    return ", "input_suffix": "\n", "n_indent": 9}
    whole = server.post("/infill", fill | {"n_predict": 40}).json
    for most in (40, whole["tokens_predicted"], whole["tokens_predicted"] - 1):  # cut, cut by its last token, not cut
        server.post("/infill", fill | {"n_predict": most})
    for i in range(8):  # clients that leave
        s = server.raw(CHATS, {"messages": [{"role": "user", "content": "sing"}], "max_tokens": 60, "stream": True})
        s.recv(1 if i % 2 else 4000)
        s.close()
    server.stop()
    lines = read(log).decode().splitlines()
    ends = [json.loads(line)["answers"][0]["end"] for line in lines]
    check(len(ends) >= 5 and ends[:4] == ["cancelled", "cancelled", "length", "length"], ends)
    results = Results(lines, "-m", PARROT)
    check(results.run.returncode == 0 and all(map(results.same, range(len(lines)))), results.of)
    check("the client cut the answer" in results.of[0] and "cut" not in results.of[2], results.of)
    receipt = json.loads(lines[2])
    receipt["answers"][0]["end"] = "cancelled"
    results = Results([hashed(receipt)], "-m", PARROT)
    n = len(receipt["answers"][0]["tokens"])
    check(results.at(0) == n - 1 and b"expected  the answer ends, because it has max_tokens" in results.run.stdout, results.run)


def changed(receipt, *where):
    """A copy with another value at this place, and the hash made anew."""
    receipt = copy.deepcopy(receipt)
    at = receipt
    for name in where[:-2]:
        at = at[name]
    at[where[-2]] = where[-1]
    return hashed(receipt)


def test_hostile_receipts_are_refused_by_name():
    r = path("hostile.json")
    quern("run", STORY, "-n", 4, "--seed", 3, "--receipt", r, "Once upon a time")
    good = json.loads(read(r))
    million, windows = [5] * 1000000, {"window": 8, "entropy_threshold": 0.4, "pos_penalty": 0.02}
    cases = [
        (changed(good, "decoder", "later"), 65, "'decoder' is 'later': it was made by a newer Quern"),
        (changed(good, "decoder", "replay"), 65, "'windows' is missing"),
        (changed(good, "windows", windows), 65, "'windows' is for the decoder 'replay'"),
        (changed(good | {"windows": windows}, "decoder", "replay"), 69, "names no mask token"),
        (changed(good | {"windows": windows | {"window": 0}}, "decoder", "replay"), 65, "'windows.window' is 0, not in 1.."),
        (changed(good | {"windows": windows | {"pos_penalty": -1.0}}, "decoder", "replay"), 65, "a negative number"),
        (changed(good | {"windows": windows | {"more": 1}}, "decoder", "replay"), 65, "'windows.more' is not known"),
        (changed(good, "rotate", -1), 65, "'rotate' is -1, not in 0.."),
        (changed(good, "rotate", good["n_ctx"] // 2 + 1), 65, "'rotate' is "),
        (changed(good, "rotate", None), 65, "'rotate' is null"),
        (changed(good, "rotate", 4), 0, "every token"),
        (changed(good | {"rotate": 1}, "n_ctx", 3), 65, "keeps more than half of the context of 3"),
        (changed(good, "n_ctx", -1), 65, "'n_ctx' is -1, not in 1.."),
        (changed(good, "n_ctx", 2 ** 31 - 1), 65, ""),
        (changed(good, "n_ctx", 4), 65, "do not fit its context of 4"),
        (changed(good, "max_tokens", -7), 65, "'max_tokens' is -7"),
        (changed(good, "max_tokens", 10 ** 30), 65, "too big"),
        (changed(good, "arithmetic", 0), 65, "'arithmetic' is 0"),
        (changed(good, "prompt", "tokens", [-1]), 65, "'prompt.tokens[0]' is not a token"),
        (changed(good, "prompt", "tokens", [2 ** 31 - 1]), 65, "token 0 of the prompt is 2147483647"),
        (changed(good, "prompt", "tokens", million), 65, "do not fit its context"),
        (changed(good, "answers", 0, "tokens", million), 65, "do not fit its context"),
        (changed(good, "answers", 0, "stop_index", -2), 65, "'answers[].stop_index' is -2"),
        (changed(good, "answers", 0, "tokens", [1.0]), 65, "not a token"),
        (changed(good, "answers", []), 65, "there are no answers"),
        (changed(good, "sampling", "seed", "9" * 40), 65, "not a decimal number of 64 bits"),
        (changed(good, "sampling", "seed", "-1"), 65, "not a decimal number of 64 bits"),
        (changed(good, "sampling", "top_k", -2 ** 31), 65, "top_k"),
        (changed(good, "sampling", "temperature", -1.0), 65, "temperature"),
        (changed(good, "sampling", "temperature", 1e300), 65, "temperature"),
        (changed(good, "stop", [""]), 65, "'stop[0]' is not a text"),
        (changed(good, "stop", ["x"] * 100000), 0, "every token"),
        (changed(good, "form", {"kind": "regex", "text": "("}), 65, ""),
        (changed(good, "form", {"kind": "regex", "text": "(((a{1,999}){1,999}){1,999}){1,999}"}), 1, "differs at token 1"),
        (changed(good, "calls", {"required": True, "names": ["f"]}), 65, "no conversation"),
        (json.dumps(good).replace('"temperature": ', '"temperature": NaN, "x": '), 65, "invalid token"),
        (json.dumps(good).replace('"temperature": ', '"temperature": 1e999, "x": '), 65, "overflow"),
        (json.dumps(good).replace('{"receipt"', '{"stop": [], "receipt"', 1) if json.dumps(good).startswith('{"receipt"') else
         json.dumps(good).replace("{", '{"stop": [], ', 1), 65, "duplicate"),
        ("[" * 100000, 65, "depth"),
        ('{"receipt":' * 100000, 65, "depth"),
        (changed(good, "model", "name", "漢字\u202e\x1b[31m\n" * 40), 0, "every token"),
    ]
    for receipt, status, words in cases:
        text = receipt if isinstance(receipt, str) else json.dumps(receipt)
        done = quern("verify", written("one.json", text), "-m", STORY, "--threads", 1)
        check(done.returncode == status and words in (done.stdout + done.stderr).decode(), words, done, text[:300])
        check(b"\x1b" not in done.stderr, done)


def test_a_verify_that_is_ended_says_so():
    r = path("long.json")
    quern("run", STORY, "-n", 100, "--seed", 3, "--receipt", r, "Once upon a time")
    written("many.json", read(r) * 60)
    with subprocess.Popen([QUERN, "verify", path("many.json"), "-m", STORY, "--threads", "1"], stdout=subprocess.PIPE, stderr=subprocess.PIPE) as p:
        p.stdout.readline()
        p.send_signal(signal.SIGINT)
        p.communicate(timeout=LIMIT)
    check(p.returncode in (130, -signal.SIGINT), p.returncode)
    written("some.json", read(r) * 15)
    with subprocess.Popen([QUERN, "verify", path("some.json"), "-m", STORY, "--threads", "1"], stdout=subprocess.PIPE,
                          stderr=subprocess.PIPE) as p:
        p.stdout.readline()
        p.stdout.close()
        said = p.stderr.read()
        p.wait(LIMIT * 20)
    check(p.returncode == 0 and not said, "a reader that went away is no error: all are checked", p.returncode, said)
    with open("/dev/full", "w") as full:
        done = subprocess.run([QUERN, "verify", r, "-m", STORY], stdout=full, stderr=subprocess.PIPE, timeout=LIMIT * 20)
    check(done.returncode == 74 and b"cannot write to standard output" in done.stderr, done)


def test_damaged_receipts_are_named():
    cases = {"": "near end of file", "[]": "not an object", "{}": "not a receipt", '{"receipt":2}': "version 2", '{"receipt":1}': "'sha256' is missing",
             '{"receipt":1,"receipt":1}': "duplicate"}
    for text, words in cases.items():
        done = quern("verify", written("bad.json", text), "-m", STORY)
        check(done.returncode == 65 and words.encode() in done.stderr, text, done)
    check(quern("verify", path("no such file")).returncode == 66, "a missing file")


if __name__ == "__main__":
    run(globals(), os.environ.get("CASES", "test_"))
