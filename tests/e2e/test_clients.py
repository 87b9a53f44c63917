#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""test_clients.py: tests `quern serve` with the clients of other projects.

    test_clients.py QUERN STORY_MODEL CHAT_MODEL SLOWNESS PARROT_MODEL [PREFIX_OF_CASES]

Runs clients.mjs and ollama.mjs, which use the npm packages openai, @anthropic-ai/sdk and ollama of $QUERN_NPM
(tests/npm/install), against daemons that the test starts, over TCP and over Unix sockets. The replies that the clients
got over sockets are compared with docs/openapi.json. Without $QUERN_NPM, the status is 77 (skipped), but in CI that is a
failure. test_serve.py describes the other arguments.
"""
import contextlib
import hashlib
import json
import os
import subprocess
import sys

from cases import check, complaints
from test_serve import API, CHAT, LIMIT, STORY, Server, openapi, path

PARROT = sys.argv[5]


def describe(server):
    return {"url": f"http://127.0.0.1:{server.port}", "socket": server.sock}


all_complaints = []


@contextlib.contextmanager
def case(name):
    print(f"[ RUN      ] {name}", flush=True)
    yield
    for c in complaints:
        print("    " + c)
    print(f"[  FAILED  ] {name}" if complaints else f"[       OK ] {name}", flush=True)
    all_complaints.extend(complaints)
    complaints.clear()


def main():
    if not os.environ.get("QUERN_NPM"):
        print("QUERN_NPM is not set: see tests/npm/install")
        sys.exit(1 if os.environ.get("CI") else 77)
    with open(path("keys"), "w") as f:
        f.write(f"{hashlib.sha256(b'sk-one').hexdigest()} alice requests=1\n")
    long = ("--ctx", "32768", "--parallel", "8", "--sessions", "8")
    servers = {"parrot": Server(PARROT, *long, "--queue", "1"), "random": Server(CHAT), "story": Server(STORY),
               "keyed": Server(PARROT, *long, "--api-keys", path("keys"))}
    setup = {name: describe(s) for name, s in servers.items()} | {"record": path("record"), "limit": 1000 * LIMIT}
    here = os.path.dirname(os.path.abspath(__file__))
    failed = False
    for script in "clients.mjs", "ollama.mjs":
        done = subprocess.run(["node", os.path.join(here, script), os.environ["QUERN_NPM"], json.dumps(setup), *sys.argv[6:]])
        failed |= done.returncode != 0
    with case("the_daemons_end_well"):
        for s in servers.values():
            s.stop()
            s.log.close()
    with case("replies_are_as_described"), open(path("record")) as f:
        for line in f:
            r = json.loads(line)
            for wrong in API.complaints(r["method"], r["target"], r["status"], r["type"], r["body"].encode()):
                check(False, wrong)
        check(API.n_checked > 100 or sys.argv[6:] or not openapi.available, "only", API.n_checked, "replies and events")
    failed |= bool(all_complaints)
    sys.exit(1 if failed + openapi.note_absence() else 0)


main()
