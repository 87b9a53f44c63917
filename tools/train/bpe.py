# SPDX-License-Identifier: MIT
"""bpe: a small byte-level vocabulary, learnt from text, in the form that GGUF's tokenizer `gpt2`/`qwen2` has.

The ids are: the 256 bytes in GPT-2's order, the merges in the order in which they were learnt, and SPECIALS last. The
pattern is qwen2's for text without letters beyond the Latin ones: each digit is a piece of its own.
"""
import collections
import json
import re

SPECIALS = ["<|endoftext|>", "<|im_start|>", "<|im_end|>", "<|mask|>"]
# The letters and digits of ASCII are enough: the texts of data.py have no others.
PIECE = re.compile(r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\nA-Za-z0-9]?[A-Za-z]+|[0-9]| ?[^\sA-Za-z0-9]+[\r\n]*"
                   r"|\s*[\r\n]+|\s+(?!\S)|\s+")
SPECIAL = re.compile("(" + "|".join(map(re.escape, SPECIALS)) + ")")


def alphabet():
    """The characters that stand for bytes in a byte-level vocabulary, by byte."""
    shown = [*range(33, 127), *range(161, 173), *range(174, 256)]
    hidden = iter(range(256, 512))
    return [chr(b) if b in shown else chr(next(hidden)) for b in range(256)]


LETTERS = alphabet()


def spell(piece):
    return "".join(LETTERS[b] for b in piece.encode())


def join(symbols, pair):
    """The list of symbols with each occurrence of the pair made one symbol, from the left."""
    out, i = [], 0
    while i < len(symbols):
        if tuple(symbols[i:i + 2]) == pair:
            out.append(symbols[i] + symbols[i + 1])
            i += 2
        else:
            out.append(symbols[i])
            i += 1
    return out


def learn(texts, n_vocab):
    """The merges of a vocabulary of n_vocab tokens: always the most frequent pair, of equal ones the first in order."""
    counts = collections.Counter(p for t in texts for s in SPECIAL.split(t)[::2] for p in PIECE.findall(s))
    words = [(list(spell(p)), n) for p, n in sorted(counts.items())]
    pairs, where = collections.Counter(), collections.defaultdict(set)

    def count(i, sign):
        symbols, n = words[i]
        for pair in zip(symbols, symbols[1:]):
            pairs[pair] += sign * n
            where[pair].add(i)

    for i in range(len(words)):
        count(i, 1)
    merges = []
    while len(merges) < n_vocab - 256 - len(SPECIALS):
        best = min(pairs, key=lambda p: (-pairs[p], p))
        merges.append(best)
        for i in where.pop(best):
            count(i, -1)
            words[i] = join(words[i][0], best), words[i][1]
            count(i, 1)
    return merges


class Vocabulary:
    """Texts to ids and back."""

    def __init__(self, merges):
        self.merges = [tuple(m) for m in merges]
        self.tokens = LETTERS_IN_ORDER + ["".join(m) for m in self.merges] + SPECIALS
        self.number = {t: i for i, t in enumerate(self.tokens)}
        self.rank = {m: i for i, m in enumerate(self.merges)}
        self.known = {}
        self.end, self.im_start, self.im_end, self.mask = (self.number[s] for s in SPECIALS)

    def _piece(self, piece):
        symbols = list(spell(piece))
        while len(symbols) > 1:
            pair = min(zip(symbols, symbols[1:]), key=lambda p: self.rank.get(p, len(self.rank)))
            if pair not in self.rank:
                break
            symbols = join(symbols, pair)
        return [self.number[s] for s in symbols]

    def encode(self, text):
        """The ids of a text in which specials may occur."""
        ids = []
        for k, part in enumerate(SPECIAL.split(text)):
            if k % 2:
                ids.append(self.number[part])
                continue
            for piece in PIECE.findall(part):
                if piece not in self.known:
                    self.known[piece] = self._piece(piece)
                ids += self.known[piece]
        return ids

    def decode(self, ids):
        value = {c: b for b, c in enumerate(LETTERS)}
        data = b"".join(s.encode() if s in SPECIALS else bytes(value[c] for c in s) for s in (self.tokens[i] for i in ids))
        return data.decode(errors="replace")

    def save(self, path):
        with open(path, "w", encoding="utf-8") as f:
            json.dump(self.merges, f, ensure_ascii=True)

    @staticmethod
    def load(path):
        with open(path, encoding="utf-8") as f:
            return Vocabulary(json.load(f))


LETTERS_IN_ORDER = sorted(LETTERS)
