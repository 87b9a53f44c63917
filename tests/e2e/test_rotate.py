#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""test_rotate.py: an endless chat in a context that rotates.

    test_rotate.py QUERN STORY_MODEL CHAT_MODEL SLOWNESS N N_CTX

test_serve.py describes the first arguments. A chat of N tokens in a context of N_CTX tokens needs no more memory at its
end than after its first fifth, or five contexts, and says what was dropped. Given again as a whole, to other daemons,
it has the same replies.
"""
import json
import os
import re
import subprocess
import sys

from lib.cases import check, run
from lib.files import path, read
from lib.retemplate import retemplate
from test_serve import CHAT, LIMIT, QUERN, STORY, Server

N, N_CTX = int(sys.argv[5]), int(sys.argv[6])
IS_SANITIZED = int(sys.argv[4]) >= 20  # such a build keeps what was freed
KEEP = N_CTX // 16
STEP = (N_CTX - KEEP) // 2
MOST_GROWTH = 2 << 20  # bytes: the conversation itself, of which there are copies while it is read
TEMPLATE = """{% for m in messages %}<|im_start|>{{ m.role }}
{{ m.content }}<|im_end|>
{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant
{% endif %}"""
CHATS, COMPLETIONS = "/v1/chat/completions", "/v1/completions"


def resident(server):
    with open(f"/proc/{server.process.pid}/status") as f:
        return int(re.search(r"^VmRSS:\s+(\d+)", f.read(), re.M)[1]) << 10


def dropped(n):
    """Of a text of n tokens, how many its context does not hold."""
    return 0 if n < N_CTX else STEP * ((n - N_CTX) // STEP + 1)


def turn(server, messages, seed):
    """The next reply, and how many tokens the conversation has with it."""
    answer = server.post(CHATS, {"messages": messages, "seed": seed, "temperature": 1, "max_tokens": N_CTX // 6, "ignore_eos": True}).json
    usage, own = answer["usage"], answer["quern"]
    n = usage["prompt_tokens"] + usage["completion_tokens"]
    gone = own.get("dropped_tokens", 0)
    n_all = n + gone - STEP * own.get("rotations", 0)
    check(usage["prompt_tokens"] < N_CTX and usage["completion_tokens"] == N_CTX // 6, usage)
    check(usage["prompt_tokens_details"].get("dropped_tokens", 0) == gone == dropped(n_all - 1), n_all, own)
    return answer["choices"][0]["message"]["content"], n_all, own


def test_an_endless_chat_stays_in_its_memory_and_can_be_replayed():
    retemplate(CHAT, path("c.gguf"), TEMPLATE)
    options = ["--ctx", str(N_CTX), "--context", f"rotate:{KEEP}"]
    server = Server(path("c.gguf"), *options, "--cache-dir", path("cache"), tcp=False)
    messages, replies, n, sizes, rotations = [{"role": "system", "content": "You tell stories."}], {}, 0, [], 0
    while n < N:
        messages.append({"role": "user", "content": f"What came then, {len(replies)}?"})
        reply, n, own = turn(server, messages, len(replies))
        replies[len(messages)] = reply
        messages.append({"role": "assistant", "content": reply})
        sizes.append((n, resident(server)))
        rotations += own.get("rotations", 0)
    early = next(size for at, size in sizes if at >= max(N // 5, 5 * N_CTX))
    print(f"{n} tokens in {len(replies)} turns, {rotations} rotations in replies, {sizes[-1][1] - early >> 10} KiB more at the end")
    check(dropped(n) > 0 and rotations > 0, n, rotations)
    check(IS_SANITIZED or sizes[-1][1] < early + MOST_GROWTH, sizes)
    server.stop()
    at = sorted(replies)
    level = "avx2" if N_CTX > 1000 else "ref"  # which is slow
    for more in ["--cache-dir", path("cache")], ["--cpu", level, "--batch", "33", "--draft", "ngram"]:
        server = Server(path("c.gguf"), *options, *more, tcp=False)
        for k in at[-1], at[len(at) // 2], at[1]:
            reply, _, own = turn(server, messages[:k], at.index(k))
            check(reply == replies[k], more, k)
            if "--cache-dir" in more and k == at[-1]:
                check(own["cached_tokens"] > 0, "nothing was stored of what the context held", own)
        server.stop()


def test_one_endless_answer_has_a_receipt():
    log = path("receipts")
    server = Server(CHAT, "--ctx", str(N_CTX), "--receipts", log, tcp=False)
    body = {"prompt": [5, 6, 7], "max_tokens": N, "ignore_eos": True, "seed": 3, "temperature": 1, "context": f"rotate:{KEEP}"}
    server.post(COMPLETIONS, body | {"max_tokens": 5 * N_CTX})
    before = resident(server)
    own = [e for e in server.post(COMPLETIONS, body | {"stream": True}).events() if "quern" in e][-1]["quern"]
    print(f"{N} tokens in one answer, {resident(server) - before >> 10} KiB more at its end")
    check(own["dropped_tokens"] == dropped(N + 2) and own["rotations"] == dropped(N + 2) // STEP, own)
    check(IS_SANITIZED or resident(server) < before + MOST_GROWTH, before, resident(server))
    server.stop()
    done = subprocess.run([QUERN, "verify", log, "-m", CHAT, "--threads", "1"], capture_output=True, timeout=LIMIT * 20)
    check(done.returncode == 0 and done.stdout.count(b"every token") == 2, done)
    receipt = json.loads(read(log).splitlines()[1])
    check(receipt["rotate"] == KEEP and len(receipt["answers"][0]["tokens"]) == N, receipt["rotate"])


if __name__ == "__main__":
    run(globals(), os.environ.get("CASES", "test_"))
