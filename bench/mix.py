# SPDX-License-Identifier: MIT
"""mix.py: the load of `bench/serve --mix`: conversations like those that a provider serves, at a rate that is searched.

Conversations begin at the times of a Poisson process. Half of them have one turn, the others 2 to 5. A message has a
log-normal number of tokens, and so has an answer; four of five conversations begin with the same system prompt. The
next turn comes some seconds after the answer, and sends everything that was said before. All of that follows from the
seed and the rate, so each server gets the same conversations. The tokens of messages are random. Each token of an
answer is the same word, which a logit bias chooses. So the history is known, and random weights do not end an answer.
The samplers work as for any other request.

A request is late when its first token takes longer than LATE_S. The time counts from when the request was due. The
highest rate is the highest one at which at most LATE_SHARE of the requests are late or fail. Rates are on a grid of
GRID steps to a factor of 2, so that servers are measured at equal rates.
"""
import heapq
import http.client
import itertools
import math
import os
import random
import selectors
import socket
import time

import daemon
import lib

LATE_S, LATE_SHARE = 2, 0.05
TIMES_PEER = 2
GRID, LEAP = 4, 4  # steps to a factor of 2; steps of the search before both sides are known
LOWEST = -16       # step of the search
DRAIN_S = 20       # that the last requests may take to begin
SYSTEM_TOKENS, SYSTEM_SHARE = 150, 0.8
TURNS = [1] * 4 + [2, 3, 4, 5]
# Log-normal: median, sigma, least, most. Tokens of a first message and of later ones, of an answer; seconds before a turn.
FIRST, NEXT, ANSWER, THINK_S = (200, 0.6, 8, 2000), (60, 0.8, 4, 2000), (100, 0.7, 4, 500), (6, 0.6, 1, 30)
SAMPLING = {"temperature": 0.8, "top_k": 40, "top_p": 0.95, "min_p": 0.05, "ignore_eos": True}


BUSY, BUSY_TRIES = 0.1, 3  # share of the CPUs that other programs may take during a trial; how often one is repeated


def add_options(parser):
    parser.add_argument("--peer", metavar="PROGRAM", help="with --mix: measure this llama-server, too")
    parser.add_argument("--rates", metavar="LIST", help="with --mix: requests per second, instead of a search")
    parser.add_argument("--window", metavar="S", type=float, default=80, help="with --mix: seconds measured (default 80)")
    parser.add_argument("--warm-up", metavar="S", type=float, default=30, help="with --mix: seconds before (default 30)")
    parser.add_argument("--slots", metavar="N", type=int, default=8, help="with --mix: answers at once (default 8)")
    parser.add_argument("--slot-ctx", metavar="N", type=int, default=4096, help="with --mix: tokens of one (default 4096)")
    parser.add_argument("--seed", metavar="N", type=int, default=1, help="with --mix: of the conversations")


# ---- servers ----

class Quern(daemon.Daemon):
    name = "quern"

    def __init__(self, args):
        super().__init__(args.quern, args.model, "--listen", "127.0.0.1:0", "--parallel", args.slots, "--ctx", args.slot_ctx, "--kv-tokens", args.slots * args.slot_ctx, "--queue", 1000, *args.engine)

    def open(self, key=None):
        return daemon.tcp(self.port)


class LlamaServer(daemon.Server):
    name = "llama-server"

    def __init__(self, args):
        with socket.socket() as s:
            s.bind(("127.0.0.1", 0))
            self.port = s.getsockname()[1]
        self.start([args.peer, "-m", args.model, "--host", "127.0.0.1", "--port", self.port, "-np", args.slots,
                    "-c", args.slots * args.slot_ctx, "--threads", args.threads or len(os.sched_getaffinity(0))])

    def connect(self):
        return http.client.HTTPConnection("127.0.0.1", self.port, timeout=daemon.LIMIT)

    def open(self, key=None):
        return daemon.tcp(self.port)


# ---- what is asked ----

class Load:
    """What all trials have in common: the word of all answers, and the tokens of messages."""

    def __init__(self, args):
        self.args = args
        with Quern(args) as d:
            self.fields = d.one_token() | SAMPLING
            self.word = d.stream([d.word()], 1, **self.fields).text
            self.token, n_vocab = d.word(), d.call("GET", "/v1/models")["data"][0]["vocabulary"]
        self.usual = n_vocab // 10, n_vocab // 2  # ids that are not special
        self.system = self.message(random.Random(f"{args.seed} system"), SYSTEM_TOKENS)

    def message(self, dice, n):
        return [dice.randrange(*self.usual) for _ in range(n)]

    def conversation(self, number):
        """[(tokens of the message, tokens of the answer, seconds before)], as many as fit a slot."""
        dice = random.Random(f"{self.args.seed} {number}")
        draw = lambda middle, sigma, least, most: min(most, max(least, middle * math.exp(dice.gauss(0, sigma))))
        turns, room = [], self.args.slot_ctx
        for i in range(dice.choice(TURNS)):
            system = self.system if i == 0 and dice.random() < SYSTEM_SHARE else []
            message = system + self.message(dice, int(draw(*(NEXT if i else FIRST))))
            n, think_s = int(draw(*ANSWER)), draw(*THINK_S)
            room -= len(message) + n
            if room < 0 and turns:
                break
            turns.append((message[:self.args.slot_ctx - ANSWER[3]], n, think_s))
        return turns

    def starts(self, rate):
        """[(seconds, number)] of the conversations that begin: a Poisson process, given that as many begin as the rate says.
        Those of a low rate begin at the same times at a higher rate."""
        dice, seconds = random.Random(f"{self.args.seed} starts"), self.args.warm_up + self.args.window
        n = round(seconds * rate * len(TURNS) / sum(TURNS))
        return sorted((dice.random() * seconds, i) for i in range(max(1, n)))


class Turn(daemon.Stream):
    """One request. due: when it should have begun. first: when its first token came, None before."""

    def __init__(self, server, load, due, turns, history):
        (message, self.n, _), self.rest = turns[0], turns[1:]
        self.load, self.due, self.first, self.failed, self.over = load, due, None, None, None
        self.tokens = history + message
        super().__init__(server, self.tokens, self.n, **load.fields)

    def take(self):
        try:
            more = super().take()
        except OSError as e:
            self.failed, more = str(e), False
        if self.first is None and not self.failed:
            self.first = next((t for t, _ in self.marks()), None)
        return more

    def marks(self):
        """[(time, tokens)] of what has come."""
        raw = b"".join(data for _, data in self.pieces)
        if len(raw) > 16 and not raw.startswith(b"HTTP/1.1 200"):
            self.failed = raw[:200].decode(errors="replace")
        marks = []
        for when, e in self.events() if raw and not self.failed else []:
            if "error" in e:
                self.failed = str(e["error"])
            elif e["choices"] and e["choices"][0]["text"]:
                marks.append((when, len(e["choices"][0]["text"]) / len(self.load.word)))
        return marks

    def end(self):
        """It is over: what is said next, [(tokens of the message, ...)], and the history before it."""
        self.over = self.marks()
        if not self.failed and round(sum(n for _, n in self.over)) != self.n:
            self.failed = f"{sum(n for _, n in self.over)} tokens instead of {self.n}"
        return ([], []) if self.failed else (self.rest, self.tokens + [self.load.token] * self.n)


# ---- one trial ----

class Others:
    """How much of the CPUs other programs take, apart from this one and the server."""

    def __init__(self, server):
        self.server, self.began = server, time.monotonic()
        self.before = self.seconds()

    def seconds(self):
        with open("/proc/stat") as f:
            user, nice, system, _, _, irq, softirq, steal = map(int, f.readline().split()[1:9])
        with open(f"/proc/{self.server.process.pid}/stat") as f:
            of_server = sum(map(int, f.read().rsplit(")", 1)[1].split()[11:13]))
        ticks = user + nice + system + irq + softirq + steal - of_server
        return ticks / os.sysconf("SC_CLK_TCK") - time.process_time()

    def share(self):
        return max(0, self.seconds() - self.before) / (time.monotonic() - self.began) / os.cpu_count()


class Trial:
    """A server at a rate. The requests that are due within the window are measured; tokens count when they come then."""

    def __init__(self, args, load, server, rate):
        self.args, self.load, self.server, self.rate = args, load, server, rate
        self.turns, self.n_ended = [], 0
        self.due, self.order = [], itertools.count()  # a heap of (time, order, turns, history)

    def begin(self, s):
        due, _, turns, history = heapq.heappop(self.due)
        turn = Turn(self.server, self.load, due, turns, history)
        self.turns.append(turn)
        s.register(turn, selectors.EVENT_READ)

    def end(self, s, turn, now):
        s.unregister(turn)
        turn.close()
        rest, history = turn.end()
        self.n_ended += self.measured_from <= now < self.measured_to and not turn.failed
        if rest:
            heapq.heappush(self.due, (now + rest[0][2], next(self.order), rest, history))

    def measured(self):
        return [t for t in self.turns if self.measured_from <= t.due < self.measured_to]

    def waits(self, now):
        """Seconds to the first token of each measured request, or until now."""
        return [math.inf if t.failed else (t.first or now) - t.due for t in self.measured()]

    def is_decided(self, now):
        """Whether more requests are late than may be late in a window, even one with more requests than the rate says."""
        return sum(w > LATE_S for w in self.waits(now)) > 1 + 1.25 * LATE_SHARE * self.rate * self.args.window

    def is_over(self, now):
        if now < self.look_again:
            return False
        self.look_again = now + 0.5
        if now >= self.measured_from and self.others is None:
            self.others = Others(self.server)
        self.is_cut = not self.args.rates and now < self.measured_to and self.is_decided(now)
        begun = now > self.measured_to and all(t.first or t.failed for t in self.measured())
        return self.is_cut or begun or now > self.measured_to + DRAIN_S

    def run(self):
        """An object with the measurements; rate, req_s and tok_s are per second."""
        self.look_again, self.others = 0, None
        zero = time.monotonic()
        self.measured_from = zero + self.args.warm_up
        self.measured_to = self.measured_from + self.args.window
        self.due = [(zero + t, next(self.order), self.load.conversation(i), []) for t, i in self.load.starts(self.rate)]
        with selectors.DefaultSelector() as s:
            while True:
                now = time.monotonic()
                if self.is_over(now):
                    break
                while self.due and self.due[0][0] <= now:
                    self.begin(s)
                wake = min(now + 0.5, self.due[0][0] if self.due else math.inf)
                for key, _ in s.select(max(0, wake - time.monotonic())):
                    if not key.fileobj.take():
                        self.end(s, key.fileobj, time.monotonic())
            for key in list(s.get_map().values()):
                key.fileobj.close()
        return self.result(now)

    def result(self, now):
        end = min(now, self.measured_to)
        gaps, n_tokens = [], 0
        for t in self.turns:
            marks = t.over if t.over is not None else t.marks()
            n_tokens += sum(n for when, n in marks if self.measured_from <= when < end)
            if self.measured_from <= t.due < end:
                for (a, _), (b, n) in zip(marks, marks[1:]):
                    gaps += [b - a] + [0] * (round(n) - 1)
        waits = self.waits(now)
        errors = [t.failed for t in self.measured() if t.failed]
        late = sum(w > LATE_S for w in waits)
        seconds = max(end - self.measured_from, 1e-3)
        return {"server": self.server.name, "rate": self.rate, "requests": len(waits), "late": late, "errors": errors,
                "met": not self.is_cut and late <= LATE_SHARE * len(waits), "cut": self.is_cut,
                "first_s": [w for w in waits if w < math.inf], "gaps_s": gaps, "tok_s": n_tokens / seconds,
                "req_s": self.n_ended / seconds, "busy": self.others.share() if self.others else 0.0}


def percentile(values, share):
    """The nearest rank."""
    return sorted(values)[max(0, math.ceil(share * len(values)) - 1)] if values else 0.0


def trial(args, load, server_class, rate):
    with server_class(args) as server:
        r = Trial(args, load, server, rate).run()
    first = " / ".join(f"{1e3 * percentile(r['first_s'], share):.0f}" for share in (0.5, 0.95))
    lib.note(f"{r['server']}, {rate:.3g} requests/s: {r['requests']} requests, {r['late']} late, {len(r['errors'])} failed; "
             f"first token {first} ms, {r['tok_s']:.1f} tokens/s; other programs took {100 * r['busy']:.0f}% of the CPUs"
             f"{'; cut short' if r['cut'] else ''}")
    for text in r["errors"][:1]:
        lib.note(f"  {text}")
    return r


# ---- which rates ----

class Search:
    """Finds the highest rate of one server, a trial at a time: leaps until there is a rate on both sides, then halves."""

    def __init__(self, server_class):
        self.server_class, self.results, self.step = server_class, {}, 0

    def best(self):
        return max((i for i, r in self.results.items() if r["met"]), default=None)

    def next(self):
        """The step of the grid to try; None when the highest one is known, or the lowest one is too high."""
        good, bad = self.best(), min((i for i, r in self.results.items() if not r["met"]), default=None)
        if good is None and bad is None:
            return self.step
        if bad is None:
            return good + LEAP
        if good is None:
            return bad - LEAP if bad > LOWEST else None
        return (good + bad) // 2 if bad - good > 1 else None

    def measure(self, args, load, i):
        """The result of the trial in which other programs did least, if they did too much in the first one."""
        for _ in range(BUSY_TRIES):
            if i in self.results and self.results[i]["busy"] <= BUSY:
                break
            r = trial(args, load, self.server_class, rate_of(i))
            self.results[i] = min(r, self.results.get(i, r), key=lambda r: r["busy"])
        return self.results[i]


def rate_of(i):
    return 0.5 * 2 ** (i / GRID)


def search(args, load, servers):
    """The server that has been measured less is next, so they take turns, A B A B."""
    all = [Search(s) for s in servers]
    while open := [s for s in all if s.next() is not None]:
        s = min(open, key=lambda s: len(s.results))
        s.measure(args, load, s.next())
    return all


# ---- rows ----

def rows(r):
    what = f"{r['server']}, {r['rate']:.3g} requests/s"
    row = lambda text, value, unit: lib.target(f"{what}: {text}", value, unit=unit)
    yield row("requests", r["requests"], "")
    yield row("failed", len(r["errors"]), "")
    yield row("answered in a second", r["req_s"], "/s")
    yield row("tokens", r["tok_s"], "tok/s")
    for text, values in ("first token", r["first_s"]), ("between tokens", r["gaps_s"]):
        for share in 50, 95, 99:
            yield row(f"{text}, p{share}", 1e3 * percentile(values, share / 100), "ms")


def parse_rates(text):
    try:
        return [float(rate) for rate in text.split(",")] if text else []
    except ValueError:
        lib.fail(f"--rates takes numbers of requests per second, not '{text}'")


def mix(args):
    rates = parse_rates(args.rates)
    if args.peer and not os.access(args.peer, os.X_OK):
        lib.fail(f"no program at {args.peer}")
    load = Load(args)
    servers = [Quern, LlamaServer] if args.peer else [Quern]
    for rate in rates:
        for s in servers:
            yield from rows(trial(args, load, s, rate))
    if not rates:
        yield from highest(args, load, servers)


def highest(args, load, servers):
    """Both servers at their own highest rates, and ours at the other's, too."""
    ours, *theirs = search(args, load, servers)
    for s in [ours, *theirs]:
        if s.best() is None:
            lib.fail(f"{s.server_class.name} is late at {rate_of(min(s.results)):.2g} requests/s, too: take a smaller model")
        yield from rows(s.results[s.best()])
    for s in theirs:
        if s.best() != ours.best():
            yield from rows(ours.measure(args, load, s.best()))
    for s in [ours, *theirs]:
        yield lib.target(f"{s.server_class.name}: highest rate", rate_of(s.best()), unit="requests/s")
    for s in theirs:
        yield lib.target(f"requests a second, times {s.server_class.name}", rate_of(ours.best()) / rate_of(s.best()), TIMES_PEER)
