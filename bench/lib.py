# SPDX-License-Identifier: MIT
"""lib.py: the functions that the benchmark scripts share.

It finds (and builds) the programs and runs them, installs the peer, computes medians, and prints tables and the lines
of a results file. The scripts measure nothing themselves. Every number comes from `quern --json`, `test_kernels --json`
or the peer, and results are ratios of numbers from the same minutes. Every failure ends in one line on stderr and
status 2; what a script did not expect ends in a traceback and status 3.
"""
import argparse
import csv
import datetime
import json
import os
import re
import shutil
import statistics
import subprocess
import sys
import traceback
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PEER_VERSION = "3.22.1"
COLUMNS = ["date", "commit", "machine", "cpu", "model", "test", "value", "unit", "peer", "ratio", "low", "high"]

median = statistics.median


def fail(text):
    print(f"{Path(sys.argv[0]).name}: {text}", file=sys.stderr)
    sys.exit(2)


def run(main):
    """Ends the program with the status that main() returns. An exception is not status 1: that is an answer."""
    try:
        status = main()
    except Exception as e:
        traceback.print_exc()
        print(f"{Path(sys.argv[0]).name}: unexpected {type(e).__name__}: {e}", file=sys.stderr)
        status = 3
    sys.exit(status)


def note(text):
    """Progress, apart from the results."""
    print(text, file=sys.stderr, flush=True)


def options(doc, model=None):
    """A parser that shows the script's opening comment; model: the nargs of the MODEL operand, None for none."""
    parser = argparse.ArgumentParser(description=doc, formatter_class=argparse.RawDescriptionHelpFormatter)
    if model:
        parser.add_argument("models", metavar="MODEL", nargs=model, help="GGUF file")
    parser.add_argument("--quern", metavar="PROGRAM", help="the program to measure (default: build/quern)")
    parser.add_argument("--json", action="store_true", help="one JSON object instead of a table")
    return parser


def parse(parser):
    args = parser.parse_args()
    models = getattr(args, "models", None) or []
    for model in models if isinstance(models, list) else [models]:
        if not os.access(model, os.R_OK):
            fail(f"cannot read {model}")
    args.quern = args.quern or built("quern")
    if not os.access(args.quern, os.X_OK):
        fail(f"no program at {args.quern}")
    return args


def built(target):
    """The path of a program in build/, built from the sources as they are now: what an older one reaches is not theirs."""
    program = ROOT / "build" / target
    if not (ROOT / "build" / "build.ninja").exists():
        fail("there is no build in build/: run ./demo.sh first")
    note(f"building {target}")
    if subprocess.run(["ninja", "-C", ROOT / "build", target], stdout=subprocess.DEVNULL).returncode:
        fail(f"cannot build {target}")
    return str(program)


def output(*command, statuses=(0,)):
    r = subprocess.run([str(a) for a in command], stdout=subprocess.PIPE)
    if r.returncode not in statuses:
        fail(f"status {r.returncode} from: {' '.join(map(str, command))}")
    return r.stdout


def quern(program, *args):
    return json.loads(output(program, *args, "--json"))


# ---- tests by name: pp512, tg, b8, tg@4096 ----

def parse_tests(text):
    """{depth: [names]}, in the order given."""
    groups = {}
    for name in text.split(","):
        m = re.fullmatch(r"(?:(?:pp|b)[1-9]\d*|tg)(?:@(\d+))?", name)
        if not m:
            fail(f"'{name}' is not a test: pp512 (prompt), tg (decode), b8 (batch), with a depth: tg@4096")
        groups.setdefault(int(m[1] or 0), []).append(name)
    return groups


def bench(program, model, groups, *more):
    """`quern bench` for parse_tests()'s groups, one process a depth; its object, with the tests of all."""
    whole = None
    for depth, names in groups.items():
        numbers = lambda prefix: ",".join(n[len(prefix):].split("@")[0] for n in names if n.startswith(prefix)) or "0"
        n = [] if any(n.startswith("tg") for n in names) else ["-n", 0]
        j = quern(program, "bench", model, "-d", depth, "-p", numbers("pp"), "-b", numbers("b"), *more, *n)
        if whole:
            j["tests"] = whole["tests"] | j["tests"]
        whole = j
    return whole


# ---- the peer ----

def peer_dir(install):
    """Where llama.cpp lives, prebuilt in the npm package node-llama-cpp; None: not there and not wanted."""
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "quern-peer" / PEER_VERSION
    if (cache / "installed").exists():
        return cache
    if not install:
        return None
    if not shutil.which("npm"):
        fail("npm (with node 20 or later) is needed to install llama.cpp")
    note(f"installing node-llama-cpp {PEER_VERSION} in {cache}")
    cache.mkdir(parents=True, exist_ok=True)
    system = output("node", "-p", "process.platform + '-' + process.arch").decode().strip()
    # The binaries are optional dependencies, one for every system and accelerator: only this system's is wanted.
    output("npm", "install", "--prefix", cache, "--ignore-scripts", "--omit=optional", "--no-fund", "--no-audit",
           "--loglevel=error", f"node-llama-cpp@{PEER_VERSION}", f"@node-llama-cpp/{system}@{PEER_VERSION}")
    (cache / "installed").touch()
    return cache


def peer(directory, **job):
    """Runs peer.mjs, which describes the job."""
    return json.loads(output("node", ROOT / "bench" / "peer.mjs", directory, json.dumps(job)))


# ---- results ----

def name_of(model):
    return Path(model).name.removesuffix(".gguf")


def machine():
    text = Path("/proc/cpuinfo").read_text()
    field = lambda name: (re.search(rf"^{name}\s*: (.*)$", text, re.M) or ["", "?"])[1]
    return f"{field('model name')} family {field('cpu family')} model {field('model')}, {os.cpu_count()} CPUs"


def commit(program):
    """Of the sources the program was built from."""
    return re.search(r"\(([^,)]*)", output(program, "--version").decode())[1]


def append_csv(args, rows):
    """To args.csv, if any. rows: dictionaries with the COLUMNS from cpu on; what is missing stays empty."""
    if not args.csv:
        return
    path = Path(args.csv)
    path.parent.mkdir(parents=True, exist_ok=True)
    known = {"date": datetime.date.today().isoformat(), "commit": commit(args.quern), "machine": machine()}
    new = not path.exists()
    with open(path, "a", newline="") as f:
        writer = csv.DictWriter(f, COLUMNS, lineterminator="\n")
        if new:
            writer.writeheader()
        for row in rows:
            writer.writerow({k: f"{v:.5g}" if isinstance(v, float) else v for k, v in (known | row).items()})


def table(head, rows):
    """Columns as wide as they need; numbers (what is not left-most) to the right."""
    rows = [[str(c) for c in row] for row in [head, *rows]]
    widths = [max(len(row[i]) for row in rows) for i in range(len(head))]
    for row in rows:
        print("  ".join(c.rjust(w) if i else c.ljust(w) for i, (c, w) in enumerate(zip(row, widths))).rstrip())


# ---- targets: what is wanted beside what was measured ----

def target(what, measured, at_least=None, at_most=None, spread=None, unit=""):
    """spread: the measured values that `measured` is the median of. Without a limit it is only reported."""
    met = measured >= at_least if at_least is not None else measured <= at_most if at_most is not None else None
    return {"what": what, "measured": measured, "unit": unit, "at_least": at_least, "at_most": at_most, "met": met,
            "low": min(spread or [measured]), "high": max(spread or [measured])}


def limit(r):
    for words in "at least", "at most":
        value = r[words.replace(" ", "_")]
        if value is not None:
            return f"{words} {value:g} {r['unit']}".strip()
    return "-"


def show(rows):
    print(machine())
    table(["", "target", "measured", "of the runs", ""],
          [[r["what"], limit(r), f"{r['measured']:.3g}" + (f" {r['unit']}" if r["met"] is None else ""),
            f"{r['low']:.3g} .. {r['high']:.3g}" if r["low"] != r["high"] else "",
            {True: "met", False: "MISSED", None: ""}[r["met"]]] for r in rows])
    judged = [r for r in rows if r["met"] is not None]
    print(f"{sum(r['met'] for r in judged)} of {len(judged)} targets met")


def csv_row(r, model):
    wanted = r["at_least"] if r["at_least"] is not None else r["at_most"]
    return {"cpu": r.get("cpu", ""), "model": name_of(model), "test": r["what"], "value": r["measured"], "unit": r["unit"],
            "peer": wanted, "ratio": r["measured"] / wanted if wanted else "", "low": r["low"], "high": r["high"]}


def add_csv(parser):
    parser.add_argument("--csv", metavar="FILE", help="append the results")


def conclude(args, rows):
    """Prints the targets and keeps them in args.csv. The status: 1 when one is missed."""
    append_csv(args, [csv_row(r, args.models[0]) for r in rows])
    if args.json:
        print(json.dumps({"machine": machine(), "commit": commit(args.quern), "targets": rows}))
    else:
        show(rows)
    return any(r["met"] is False for r in rows)
