# SPDX-License-Identifier: MIT
"""data: the texts that the small models learn: tasks with one right answer, and texts with many.

A conversation is a list of (question, answer). Each kind of task is a function of a random number generator; the same
generator gives the same item everywhere. An item whose question has a checksum that 16 divides is held out: it is never
learnt, and accuracy is measured on such items alone (held_out, fresh).

A low entropy of the answer means that it can be guessed from what came before (copies, edits, counting); a high one,
that it cannot (dice, stories). EXACT are the kinds with one right answer.
"""
import gzip
import json
import random
import re
import zlib

DICTIONARY = "/usr/share/dictd/devil.dict.dz"  # Debian's package dict-devil; Ambrose Bierce, 1911, in the public domain

NAMES = """Ada Ben Carl Dora Emma Finn Gina Hugo Ida Jack Karl Lena Mia Noah Olga Paul Rosa Sam Tina Uma Vera Will Yara
Zoe Anna Leo Nina Otto Ruth Tom""".split()
CITIES = "Paris Rome Oslo Bern Cairo Delhi Lima Quito Tokyo Seoul Milan Porto Vienna Dublin Athens Prague".split()
JOBS = "baker teacher nurse pilot farmer singer doctor writer painter lawyer driver cook tailor miner".split()
COLORS = "red blue green yellow white black brown gray pink purple".split()
ANIMALS = "fox dog cat bird bear mouse rabbit horse duck frog goat owl wolf hen".split()
THINGS = "key ball book hat cup lamp coin ring box bell stone map kite drum shoe spoon".split()
PLACES = "forest garden river house market school hill lake barn bridge tower cave".split()
FRUITS = "apples pears plums figs grapes lemons cherries melons dates nuts".split()
DAYS = "Monday Tuesday Wednesday Thursday Friday Saturday Sunday".split()
IDENTIFIERS = """total count value result index size width height left right first last item name data node list table
row column key text line word start end step limit sum score rate price speed depth level buffer offset length""".split()
FUNCTIONS = "scale measure update find check build load store merge split reduce filter compute apply collect reset".split()


# Tasks with one right answer.

def count(r):
    step = r.choice([1, 1, 2, 3, 5, 10])
    n, first = r.randint(5, 14), r.randint(0, 90)
    if r.random() < 0.3:
        numbers = range(first + step * n, first - 1, -step)
        return f"Count down from {numbers[0]} to {numbers[-1]} by {step}.", ", ".join(map(str, numbers))
    numbers = range(first, first + step * n + 1, step)
    return f"Count from {numbers[0]} to {numbers[-1]} by {step}.", ", ".join(map(str, numbers))


def add(r):
    a, b = (r.randint(10 ** (n - 1), 10**n - 1) for n in (r.randint(1, 4), r.randint(1, 4)))
    x, y = str(a)[::-1], str(b)[::-1]
    carry, steps = 0, []
    for i in range(max(len(x), len(y))):
        p, q = (int(s[i]) if i < len(s) else 0 for s in (x, y))
        s = p + q + carry
        steps.append(f"{p} + {q} + {carry} = {s}, write {s % 10}, carry {s // 10}.")
        carry = s // 10
    return f"Add {a} and {b} step by step.", "\n".join([*steps, f"The sum is {a + b}."])


def person(r):
    return {"name": r.choice(NAMES), "age": r.randint(11, 89), "city": r.choice(CITIES), "job": r.choice(JOBS)}


def people(r, n):
    names = r.sample(NAMES, n)
    return [{**person(r), "name": name} for name in names]


def records(r):
    them = people(r, r.randint(1, 4))
    lines = "\n".join(f"{p['name']}, {p['age']}, {p['city']}, {p['job']}" for p in them)
    return f"Write these as JSON:\n{lines}", dump(them)


def dump(them):
    return "[\n" + ",\n".join("  " + json.dumps(p) for p in them) + "\n]"


def set_field(r):
    them = people(r, r.randint(1, 4))
    field, chosen = r.choice(["age", "city", "job"]), r.choice(them)
    value = person(r)[field]
    question = f"Set {field} of {chosen['name']} to {value}:\n{dump(them)}"
    chosen[field] = value
    return question, dump(them)


def table(r):
    them = people(r, r.randint(2, 5))
    fields = r.sample(["age", "city", "job"], r.randint(1, 2))
    lines = "\n".join(", ".join(str(p[f]) for f in ["name", *fields]) for p in them)
    rows = ["| name | " + " | ".join(fields) + " |", "|---" * (len(fields) + 1) + "|"]
    rows += ["| " + " | ".join(str(p[f]) for f in ["name", *fields]) + " |" for p in them]
    return f"Make a table of name, {', '.join(fields)}:\n{lines}", "\n".join(rows)


def statement(r, names, depth):
    a, b, c = (r.choice(names) for _ in range(3))
    n, pad = r.randint(0, 99), "    " * depth
    kind = r.randint(0, 6 if depth < 2 else 4)
    if kind == 5:
        return f"{pad}for {a} in range({b}):\n" + statement(r, names, depth + 1)
    if kind == 6:
        return f"{pad}if {a} {r.choice(['<', '>', '=='])} {n}:\n" + statement(r, names, depth + 1)
    return pad + [f"{a} = {b} + {n}", f"{a} = {b} * {c}", f"{a} += {n}", f"print({a}, {b})", f"{a} = {b}[{n}]"][kind] + "\n"


def program(r):
    """The text of a short function, and the names in it."""
    names = r.sample(IDENTIFIERS, r.randint(3, 4))
    text = f"def {r.choice(FUNCTIONS)}({', '.join(names[:2])}):\n"
    text += "".join(statement(r, names, 1) for _ in range(r.randint(3, 7)))
    text += f"    return {r.choice(names)}\n"
    return text, [n for n in names if re.search(rf"\b{n}\b", text)]


def fence(text):
    return f"```\n{text}```"


def copy_code(r):
    text, _ = program(r)
    return f"Repeat this code:\n{fence(text)}", fence(text)


def rename(r):
    text, names = program(r)
    old, new = r.choice(names), r.choice([i for i in IDENTIFIERS if i not in names])
    return f"Rename {old} to {new}:\n{fence(text)}", fence(re.sub(rf"\b{old}\b", new, text))


def add_line(r):
    text, names = program(r)
    lines = text.splitlines()
    line = f"    print({r.choice(names)})"
    edited = "\n".join([*lines[:-1], line, lines[-1]]) + "\n"
    return f"Add {line.strip()} before the return:\n{fence(text)}", fence(edited)


def words(r):
    them = [r.choice(r.choice([NAMES, CITIES, COLORS, ANIMALS, THINGS, FRUITS, IDENTIFIERS])) for _ in range(r.randint(3, 10))]
    if r.random() < 0.5:
        return f"Repeat: {' '.join(them)}", " ".join(them)
    return f"Make a list: {' '.join(them)}", "\n".join(f"{i}. {w}" for i, w in enumerate(them, 1))


def digits(r):
    text = "".join(r.choice("0123456789abcdef") for _ in range(r.randint(6, 24)))
    return f"Repeat: {text}", text


def facts(r, n):
    """Sentences about n persons, by name."""
    made = [
        lambda p: f"{p} lost a {r.choice(COLORS)} {r.choice(THINGS)} near the {r.choice(PLACES)}.",
        lambda p: f"{p} bought {r.randint(2, 99)} {r.choice(FRUITS)} on {r.choice(DAYS)}.",
        lambda p: f"{p} moved to {r.choice(CITIES)} and became a {r.choice(JOBS)}.",
        lambda p: f"{p} saw a {r.choice(COLORS)} {r.choice(ANIMALS)} in the {r.choice(PLACES)}.",
    ]
    return {p: r.choice(made)(p) for p in r.sample(NAMES, n)}


def quote(r):
    told = facts(r, r.randint(3, 7))
    wanted = r.sample(sorted(told), r.randint(1, 2))
    answer = "\n".join(f'The text says about {p}: "{told[p]}"' for p in wanted)
    return f"What does the text say about {' and '.join(wanted)}?\n{' '.join(told.values())}", answer


# Texts of which there are many.

def story(r):
    who, friend = r.sample(NAMES, 2)
    animal, thing, color, place = (r.choice(x) for x in (ANIMALS, THINGS, COLORS, PLACES))
    began = r.choice(["Once there was", "Long ago there lived", "In a small town there was"])
    felt = r.choice(["was very sad", "began to cry", "did not know what to do", "looked everywhere"])
    helped = r.choice([f"asked {friend} for help", f"met {friend} on the way", f"called {friend}"])
    found = r.choice(["under a tree", "behind the door", "in the grass", "next to the road", "on a chair", "under the snow"])
    last = r.choice([f"{who} and {friend} were friends from that day on.", f"{who} never lost the {thing} again.",
                     f"They all went home and ate {r.choice(FRUITS)}.", f"{friend} laughed, and {who} laughed too."])
    return (f"Tell a story about a {animal} and a {thing}.",
            f"{began} a {animal} named {who}. {who} had a {color} {thing}. One {r.choice(DAYS)} {who} went to the {place}, "
            f"and the {thing} was gone. {who} {felt}. Then {who} {helped}. They found the {color} {thing} {found}. {last}")


def dice(r):
    n = r.randint(10, 40)
    return f"Roll a die {n} times.", " ".join(str(r.randint(1, 6)) for _ in range(n))


def entries():
    """The dictionary as (word, definition), each on lines that were joined."""
    with gzip.open(DICTIONARY, "rt", encoding="ascii", errors="replace") as f:
        text = f.read()
    text = text[text.index("ABASEMENT, n."):]
    found = re.findall(r"^([A-Z][A-Z' -]+), ((?:.+\n|\n+ )+)", text, re.M)
    return [(w, re.sub(r"\s+", " ", d).strip()) for w, d in found]


class Bierce:
    """The Devil's Dictionary, as questions and as plain text."""

    def __init__(self):
        self.entries = entries()
        self.learnt = [e for e in self.entries if not held_out(e[0])]

    def define(self, r):
        word, text = r.choice(self.learnt)
        return f"Define {word}.", text

    def plain(self, r, size):
        """At least `size` characters of entries in a row."""
        i, text = r.randrange(len(self.learnt)), ""
        while len(text) < size:
            text += "{}, {}\n\n".format(*self.learnt[i % len(self.learnt)])
            i += 1
        return text


EXACT = {"count": count, "add": add, "records": records, "set_field": set_field, "table": table, "copy_code": copy_code,
         "rename": rename, "add_line": add_line, "words": words, "digits": digits, "quote": quote}
OPEN = {"story": story, "dice": dice}
WEIGHTS = {"count": 8, "add": 14, "records": 9, "set_field": 9, "table": 8, "copy_code": 9, "rename": 12, "add_line": 8,
           "words": 6, "digits": 5, "quote": 9, "story": 6, "dice": 2, "define": 5}


def held_out(question):
    return zlib.crc32(question.encode()) % 16 == 0


def fresh(kind, r):
    """A held-out item of a kind with one right answer."""
    while True:
        item = EXACT[kind](r)
        if held_out(item[0]):
            return item


def learnable(kind, r, book):
    """An item that is not held out."""
    if kind == "define":
        return book.define(r)
    make = {**EXACT, **OPEN}[kind]
    while True:
        item = make(r)
        if not held_out(item[0]):
            return item


def turn(role, text):
    return f"<|im_start|>{role}\n{text}<|im_end|>\n"


def conversation(r, book, kinds=tuple(WEIGHTS)):
    """A conversation as [(text, is it said by the assistant?)]."""
    parts = []
    if r.random() < 0.1:
        parts.append((turn("system", "You are a helpful assistant."), False))
    for _ in range(r.choice([1, 1, 1, 2, 3])):
        question, answer = learnable(r.choices(kinds, [WEIGHTS[k] for k in kinds])[0], r, book)
        parts.append((turn("user", question) + "<|im_start|>assistant\n", False))
        parts.append((answer + "<|im_end|>\n", True))
    return [*parts, ("<|endoftext|>", True)]


def row(r, book, vocab, size, exact=False):
    """size + 1 ids that begin with a conversation or, one time in twelve, are a plain text; and each one's weight.

    exact: only conversations about tasks with one right answer.
    """
    ids, weights = [], []
    if not exact and r.random() < 1 / 12:
        ids = vocab.encode(book.plain(r, 6 * size))
        weights = [1.0] * len(ids)
    while len(ids) <= size:
        for text, said in conversation(r, book, tuple(EXACT if exact else WEIGHTS)):
            more = vocab.encode(text)
            ids += more
            weights += [1.0 if said else 0.1] * len(more)
    return ids[:size + 1], weights[:size + 1]


def sample(n, seed=0):
    """n texts, for the vocabulary."""
    r, book = random.Random(seed), Bierce()
    return ["".join(t for t, _ in conversation(r, book)) if i % 12 else book.plain(r, 1500) for i in range(n)]
