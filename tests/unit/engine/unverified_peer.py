#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""unverified_peer: decodes answers of unverified windows a second time, from the description of the algorithm.

    unverified_peer.py TEST_UNVERIFIED N MODEL

`TEST_UNVERIFIED --trace N MODEL` answers N random prompts with the scheduler, and prints the rows of each step, the
logits of the masks, and the tokens that were told. This program knows only the logits. Every row (its slot, its position
and its token), every token and the end have to be as it decodes them.
"""
import os
import struct
import subprocess
import sys

sys.path.insert(1, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../decode"))
from wedlm_peer import entropy, filled, philox, softmax


def draw(z, pos, seed, temperature, top_k, top_p):
    if not temperature:
        return z.index(max(z))
    kept = sorted(range(len(z)), key=lambda t: (-z[t], t))
    if top_k:
        kept = kept[:top_k]
    if top_p < 1:
        p, reached, n = softmax({t: z[t] for t in kept}), 0, 0
        while n < len(kept) and (n == 0 or reached < top_p):
            reached += p[kept[n]]
            n += 1
        kept = kept[:n]
    p, left = softmax({t: z[t] for t in kept}, temperature), (philox(seed, 1, pos) >> 11) / 2**53
    for t in kept:
        left -= p[t]
        if left < 0:
            break
    return t


class Case:
    def __init__(self, words):
        n = [int(w) if w.lstrip("-").isdigit() else float(w) for w in words]
        self.n_prompt, self.max_tokens, self.size, self.threshold, self.penalty, *self.how = n[:8]
        self.seed, self.stops = n[8], n[9:]
        self.window, self.n_said, self.is_over, self.committed, self.rows = [], 0, False, [], None

    def step(self):
        """The rows of the next step, and the tokens that it commits."""
        length = self.n_prompt + self.n_said
        run = self.window.index(None) if None in self.window else len(self.window)
        self.window += [None] * min(self.size + run - len(self.window), self.max_tokens - self.n_said - len(self.window))
        order = sorted(range(len(self.window)), key=lambda i: (self.window[i] is None, i))
        self.rows = [(length + r, length + i, -1 if self.window[i] is None else self.window[i]) for r, i in enumerate(order)]
        self.committed = []
        for t in self.window[:run]:
            self.committed.append(t)
            self.n_said += 1
            self.is_over = t in self.stops or self.n_said == self.max_tokens
            if self.is_over:
                break
        self.window = self.window[len(self.committed):]

    def fill(self, logits):
        masks = [i for i, t in enumerate(self.window) if t is None]
        if self.is_over or not masks:
            return
        assert len(logits) == len(masks), (len(logits), len(masks))
        temperature, top_k, top_p = self.how
        for j in filled(masks, [entropy(z) for z in logits], self.threshold, self.penalty):
            self.window[j] = draw(logits[masks.index(j)], self.n_prompt + self.n_said + j, self.seed, temperature, top_k, top_p)


def check(right, *what):
    if not right:
        sys.exit(" ".join(map(str, ("different:", *what))))


def main():
    trace = subprocess.Popen([sys.argv[1], "--trace", sys.argv[2], sys.argv[3]], stdout=subprocess.PIPE, text=True)
    n_cases = n_tokens = n_passes = 0
    case, said, logits = None, [], []

    def settle():
        if case and case.rows is not None:
            check(said == case.committed, "tokens", case.committed, said)
            case.fill(logits)

    for line in trace.stdout:
        word, *rest = line.split()
        if word == "case":
            settle()
            check(not case or case.is_over, "the end of case", n_cases)
            case, n_cases, said = Case(rest), n_cases + 1, []
        elif word == "rows":
            settle()
            check(not case.is_over, "a step after the end of case", n_cases)
            case.step()
            rows = [tuple(map(int, w.split(":"))) for w in rest]
            check(rows == case.rows, "rows", case.rows, rows)
            said, n_passes = [], n_passes + 1
        elif word == "logits":
            z = struct.unpack(f">{len(rest[0]) // 8}f", bytes.fromhex(rest[0])) if rest else ()
            n_masks = sum(t == -1 for _, _, t in case.rows)
            width = len(z) // n_masks if n_masks else 0
            logits = [list(z[i * width:(i + 1) * width]) for i in range(n_masks)]
        else:
            said = [int(w) for w in rest]
            n_tokens += len(said)
    settle()
    check(trace.wait() == 0 and n_cases == int(sys.argv[2]) and case.is_over, "the end", n_cases)
    print(f"{n_cases} answers, {n_tokens} tokens in {n_passes} passes, the same")


if __name__ == "__main__":
    main()
