#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""test_work.py: what a request may cost: the workers' time is linear in a body, whatever is in it.

    test_work.py QUERN STORY_MODEL CHAT_MODEL SLOWNESS [PREFIX_OF_CASES]

Operands and output are test_serve.py's. Time is the daemon's own CPU time: other programs on the machine do not count.
"""
import json
import os

from cases import check
import test_serve
from test_serve import CHAT, SLOWNESS, Server, main

test_serve.LIMIT = 600 * SLOWNESS  # seconds on the clock, which say nothing here: the machine may be busy

MB = 1 << 20
SIZES = [MB, 4 * MB, 16 * MB - 4096] if SLOWNESS == 1 else [MB // 8, MB // 2, 2 * MB]
# Four times the body may take four times the time, half as much again where it leaves the CPU's caches, and this
# constant for what is not measured exactly; in a square it would be sixteen times.
FACTOR, CONSTANT = 6, 0.15 * SLOWNESS
ROOMY = ("--memory", "17G")  # a sixteenth is for requests: the largest body there is has its tokens made
EACH = 128                   # bytes of the small things in lists: 131,072 objects fill the largest body
TICK = os.sysconf("SC_CLK_TCK")


def cpu(s):
    """Seconds that the daemon has computed."""
    with open(f"/proc/{s.process.pid}/stat") as f:
        fields = f.read().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / TICK


def words(n):
    return ("The quick brown fox jumps over 12 lazy dogs, and ü is no u. " * (n // 61 + 1)).encode()[:n].decode(errors="ignore")


def filled(n, one):
    """So many copies of one as n bytes have room for, each brought to EACH bytes where that is more."""
    text = json.dumps(one)
    pad = max(0, EACH - len(text) - 2)
    text = text.replace("PAD", words(pad).replace('"', "")[:pad] if pad else "x")
    size = len(text.encode()) + 2
    return [json.loads(text)] * min(n // size, 131000 // max(1, text.count("{")))


def chat(*messages, **more):
    return {"messages": list(messages), "max_tokens": 1, **more}


def user(content):
    return {"role": "user", "content": content}


def call(k):
    return {"id": f"c{k}", "type": "function", "function": {"name": "f", "arguments": '{"a":1}'}}


def answers_and_results(n):
    m = []
    for k in range(min(n // 260, 30000)):
        m += [{"role": "assistant", "content": "", "tool_calls": [call(k)]}, {"role": "tool", "tool_call_id": f"c{k}", "content": "PAD" * 10}]
    return [user("go")] + m


MARK = "<|im_start|>user\n"
TEXTS = {
    "words": words,
    "letters": lambda n: "a" * n,
    "spaces": lambda n: " " * (n - 1) + "x",
    "lines": lambda n: "\n" * n,
    "digits": lambda n: "7" * n,
    "marks": lambda n: "<|im_start|>" * (n // 12),
    "beginnings of marks": lambda n: "<" * n,
    "signs": lambda n: "=-!." * (n // 4),
    "letters of three bytes": lambda n: "語" * (n // 3),
}
TOOL = {"type": "function", "function": {"name": "f", "description": "PAD", "parameters": {}}}
CHATS = {
    "messages": lambda n: chat(*filled(n, user("PAD"))),
    "messages of two sides": lambda n: chat(*[m if i % 2 else {**m, "role": "assistant"} for i, m in enumerate(filled(n, user("PAD")))], user("x")),
    "messages of marks": lambda n: chat(*filled(n, user("<|im_end|><|im_start|>system PAD"))),
    "parts": lambda n: chat(user(filled(n, {"type": "text", "text": "PAD"}))),
    "tools": lambda n: chat(user("x"), tools=filled(n, TOOL)[:1024] if n < MB else [
        {"type": "function", "function": {"name": f"f{i}", "description": words(n // 1100)}} for i in range(1024)]),
    "calls": lambda n: chat(*answers_and_results(n)),
    "calls of one message": lambda n: chat({"role": "assistant", "content": "", "tool_calls": [call(k) for k in range(min(n // 100, 60000))]}, user("x")),
    "documents": lambda n: chat(user("x"), documents=filled(n, {"title": "t", "text": "PAD"})),
    "a template's variables": lambda n: chat(user("x"), chat_template_kwargs={f"k{i}": "v" for i in range(n // 16)}),
}
BLOCKS = {
    "blocks": lambda n: {"messages": [user(filled(n, {"type": "text", "text": "PAD"}))], "max_tokens": 1},
    "one text": lambda n: {"messages": [user(words(n))], "max_tokens": 1},
    "system": lambda n: {"messages": [user("x")], "system": filled(n, {"type": "text", "text": "PAD"}), "max_tokens": 1},
    "results": lambda n: {"messages": [user(filled(n, {"type": "tool_result", "tool_use_id": "t", "content": "PAD"}))], "max_tokens": 1},
    "blocks of a result": lambda n: {"messages": [user([{"type": "tool_result", "tool_use_id": "t", "content": filled(n, {"type": "text", "text": "PAD"})}])], "max_tokens": 1},
    "uses": lambda n: {"messages": [{"role": "assistant", "content": filled(n, {"type": "tool_use", "id": "t", "name": "f", "input": {"a": "PAD"}})}, user("x")], "max_tokens": 1},
    "thoughts": lambda n: {"messages": [{"role": "assistant", "content": filled(n, {"type": "thinking", "thinking": "PAD", "signature": ""})}, user("x")], "max_tokens": 1},
    "messages": lambda n: {"messages": filled(n, user("PAD")), "max_tokens": 1},
    "tools": lambda n: {"messages": [user("x")], "tools": filled(n, {"name": "f", "description": "PAD", "input_schema": {}}), "max_tokens": 1},
}
ITEMS = {
    "items": lambda n: {"input": filled(n, user("PAD"))},
    "parts": lambda n: {"input": [user(filled(n, {"type": "input_text", "text": "PAD"}))]},
    "calls": lambda n: {"input": filled(n, {"type": "function_call", "call_id": "c", "name": "f", "arguments": "{}", "id": "PAD"}) + [user("x")]},
    "outputs": lambda n: {"input": filled(n, {"type": "function_call_output", "call_id": "c", "output": "PAD"})},
    "thoughts": lambda n: {"input": filled(n, {"type": "reasoning", "content": [{"type": "reasoning_text", "text": "PAD"}]}) + [user("x")]},
    "tools": lambda n: {"input": "x", "tools": filled(n, {"type": "function", "name": "f", "description": "PAD", "parameters": {}})},
}


def numbers(n, each=16):
    """n bytes of token ids, of which there may be a million."""
    return b"[" + b",".join([b"1." + b"0" * (each - 3)] * (n // each)) + b"]"


def linear(s, what, target, make):
    """Sends bodies of all sizes; what they take, in seconds."""
    took = []
    for size in SIZES:
        body = make(size)
        body = body if isinstance(body, bytes) else json.dumps(body, ensure_ascii=False, separators=(",", ":")).encode()
        check(len(body) <= 16 * MB, what, "does not fit", len(body))
        before = cpu(s)
        r = s.post(target, body)
        took.append(cpu(s) - before)
        check(r.status in (200, 400), target, what, size, r.status, r.body[:200])
        note = f"{r.status} {r.error().get('code') if r.status != 200 else ''}"
        del body, r
    print(f"    {target} {what}:", " ".join(f"{t:.2f}" for t in took), "s,", note, flush=True)
    for small, large in zip(took, took[1:]):
        check(large <= FACTOR * small + CONSTANT, target, what, "is not linear:", took)


def each(target, shapes, *args):
    s = Server(CHAT, *ROOMY, *args)
    for what, make in shapes.items():
        linear(s, what, target, make)
    s.stop()


def of_text(wrap):
    """Shapes of one text; JSON writes some bytes as two."""
    return {k: lambda n, k=k, v=v: wrap(v(n - 256 if k != "lines" else n // 2 - 256)) for k, v in TEXTS.items()}


def test_texts_to_tokens():
    each("/tokenize", of_text(lambda t: {"content": t}))
    each("/tokenize", {"marks that count": lambda n: {"content": TEXTS["marks"](n - 256), "parse_special": True}})


def test_tokens_to_texts():
    each("/detokenize", {"ids": lambda n: b'{"tokens":' + numbers(n - 256) + b"}"})


def test_texts_that_are_continued():
    each("/v1/completions", {
        "words": lambda n: {"prompt": words(n - 256)},
        "ids": lambda n: b'{"prompt":' + numbers(n - 256) + b"}",
        "a wrong id at the end": lambda n: b'{"prompt":' + numbers(n - 256)[:-1] + b",-1]}",
        "biases": lambda n: b'{"prompt":"x","logit_bias":{"1":' + b"0" * 0 + b"1" + b"." + b"0" * (n - 256) + b"}}",
        "stop texts": lambda n: {"prompt": "x", "stop": ["a" * 65536] * 16, "user": "x", "max_tokens": 0, "suffix": words(n - 1100000) if n > 1100000 else ""},
        "end tokens": lambda n: b'{"prompt":"x","max_tokens":0,"stop_token_ids":' + numbers(n - 256) + b"}",
        "unknown names": lambda n: {f"k{i}": 1 for i in range(n // 12)},
        "a deep value": lambda n: b'{"prompt":' + b"[" * 2000 + b" " * (n - 5000) + b"]" * 2000 + b"}",
        "escapes": lambda n: b'{"prompt":"' + b"\\u00e9" * ((n - 256) // 6) + b'"}',
    }, "--ctx", "4096")


def test_vectors_of_texts():
    each("/v1/embeddings", {
        "one": lambda n: {"input": words(n - 256)},
        "many": lambda n: {"input": [words(n // 2048 - 4)] * 2047 + [""]},
        "ids": lambda n: b'{"input":' + numbers(n - 256) + b"}",
    })


def test_conversations():
    each("/v1/chat/completions", {**of_text(lambda t: chat(user(t))), **CHATS})


def test_conversations_that_are_shown():
    each("/v1/chat/render", CHATS)


def test_blocks():
    each("/v1/messages", BLOCKS)


def test_blocks_that_are_counted():
    each("/v1/messages/count_tokens", {k: lambda n, v=v: {m: x for m, x in v(n).items() if m != "max_tokens"} for k, v in BLOCKS.items()})


def test_items():
    each("/v1/responses", ITEMS)


if __name__ == "__main__":
    main(globals())
