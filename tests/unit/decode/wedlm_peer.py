#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""wedlm_peer: an implementation of WeDLM's decoder of its own, compared with Quern's.

    wedlm_peer.py TEST_WEDLM [N]

`TEST_WEDLM --trace N` prints the rows and the tokens of N sequences over random logits. This program computes them
again, from the description of the algorithm: every row, every committed token and the end have to be the same.
"""
import math
import subprocess
import sys

N_VOCAB, MOST, STOP = 24, 16, 0
M32 = 0xFFFFFFFF


def philox(seed, stream, position):
    """The first 64 bits of Philox4x32-10."""
    key, c = [seed & M32, seed >> 32], [position & M32, position >> 32, stream & M32, stream >> 32]
    for _ in range(10):
        a, b = 0xD2511F53 * c[0], 0xCD9E8D57 * c[2]
        c = [(b >> 32) ^ c[1] ^ key[0], b & M32, (a >> 32) ^ c[3] ^ key[1], a & M32]
        key = [(key[0] + 0x9E3779B9) & M32, (key[1] + 0xBB67AE85) & M32]
    return c[1] << 32 | c[0]


def number(case, step, what):
    return philox(case, 5, step << 32 | what) >> 40


def logits(case, step, pos):
    loud = 1 << (number(case, step, pos) % 6)
    return [number(case, step, 1000 + pos * N_VOCAB + t) / 2**24 * loud for t in range(N_VOCAB)]


def softmax(z, temperature=1.0):
    top = max(z.values())
    e = {t: math.exp((x - top) / temperature) for t, x in z.items()}
    total = sum(e.values())
    return {t: x / total for t, x in e.items()}


def entropy(z):
    return -sum(p * math.log(p) for p in softmax(dict(enumerate(z))).values() if p > 0)


class Sampler:
    def __init__(self, case):
        self.seed = case
        self.temperature = (number(case, 0, 3) % 8 + 1) / 4 if case % 2 else 0
        self.top_k = 0 if case % 3 else number(case, 0, 4) % 8 + 1
        self.top_p = 1 if case % 5 else 0.75

    def draw(self, z, pos):
        if not self.temperature:
            return z.index(max(z))
        kept = sorted(range(len(z)), key=lambda t: (-z[t], t))
        if self.top_k:
            kept = kept[:self.top_k]
        if self.top_p < 1:
            p, reached, n = softmax({t: z[t] for t in kept}), 0, 0
            while n < len(kept) and (n == 0 or reached < self.top_p):
                reached += p[kept[n]]
                n += 1
            kept = kept[:n]
        p, left = softmax({t: z[t] for t in kept}, self.temperature), (philox(self.seed, 1, pos) >> 11) / 2**53
        for t in kept:
            left -= p[t]
            if left < 0:
                break
        return t


def filled(masks, entropies, threshold, penalty):
    """The masks (indices of entries) that a step fills."""
    adjusted = {j: h + penalty * (j - masks[0]) for j, h in zip(masks, entropies)}
    chosen = [j for j in masks if threshold > 0 and adjusted[j] < threshold]
    return chosen or sorted(masks, key=lambda j: (adjusted[j], j))[:1]


def sequence(case):
    """The lines of one sequence."""
    n_prompt = 1 + number(case, 0, 0) % 9
    n_ctx, max_tokens = n_prompt + 1 + number(case, 0, 1) % 40, 1 + number(case, 0, 2) % 40
    size, sampler = 1 + number(case, 0, 5) % MOST, Sampler(case)
    threshold, penalty = number(case, 0, 6) % 8 / 4, number(case, 0, 7) % 4 / 16
    said, window, step = [], [], 0
    yield f"case {case}"
    while True:
        step += 1
        length = n_prompt + len(said)
        if step == 1:
            window = [None] * min(size, n_ctx - length)
        run = window.index(None) if None in window else len(window)
        window += [None] * min(size + run - len(window), n_ctx - length - len(window))
        order = [i for i, t in enumerate(window) if t is not None] + [i for i, t in enumerate(window) if t is None]
        if not order:
            return
        yield " rows" + "".join(f" {length + i}:{-1 if window[i] is None else window[i]}" for i in order)
        committed = []
        for t in window[:run]:
            committed.append(t)
            if t == STOP or len(said) + len(committed) == max_tokens:
                break
        said += committed
        yield " said" + "".join(f" {t}" for t in committed)
        if committed and (committed[-1] == STOP or len(said) == max_tokens):
            return
        window = window[run:]
        masks, first = [i for i, t in enumerate(window) if t is None], n_prompt + len(said)
        if masks:
            rows = [logits(case, step, first + i) for i in masks]
            for j in filled(masks, [entropy(z) for z in rows], threshold, penalty):
                window[j] = sampler.draw(rows[masks.index(j)], first + j)


def main():
    n = int(sys.argv[2]) if len(sys.argv) > 2 else 1000
    said = subprocess.run([sys.argv[1], "--trace", str(n)], check=True, capture_output=True, text=True).stdout.splitlines()
    right = [line for case in range(n) for line in sequence(case)]
    for i, (a, b) in enumerate(zip(said, right)):
        if a != b:
            sys.exit(f"line {i + 1}: '{a}', and by the peer '{b}'")
    if len(said) != len(right):
        sys.exit(f"{len(said)} lines, and by the peer {len(right)}")
    n_tokens = sum(len(line.split()) - 1 for line in right if line.startswith(" said"))
    print(f"{n} sequences, {n_tokens} tokens, the same")


if __name__ == "__main__":
    main()
