#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""test_clients.py: tests `quern serve` with the clients of other projects.

    test_clients.py QUERN STORY_MODEL CHAT_MODEL SLOWNESS PARROT_MODEL [PREFIX_OF_CASES]

Runs clients/sdks.mjs and clients/ollama.mjs, which use the npm packages openai, @anthropic-ai/sdk and ollama of $QUERN_NPM
(lib/node.py), against daemons that the test starts, over TCP and over Unix sockets. The replies that the clients got over
sockets are compared with docs/openapi.json. test_serve.py describes the other arguments.
"""
import hashlib
import json
import sys

from lib import node
from lib.cases import check, run
from lib.files import path
from test_serve import API, CHAT, LIMIT, STORY, Server, openapi

PARROT = sys.argv[5]
LONG = ("--ctx", "32768", "--parallel", "8", "--sessions", "8")
servers = {}


def test_the_daemons_end_well():
    for s in servers.values():
        s.stop()


def test_replies_are_as_described():
    with open(path("record")) as f:
        for line in f:
            r = json.loads(line)
            for wrong in API.complaints(r["method"], r["target"], r["status"], r["type"], r["body"].encode()):
                check(False, wrong)
    check(API.n_checked > 100 or sys.argv[6:] or not openapi.available, "only", API.n_checked, "replies and events")


def main():
    node.require_packages()
    with open(path("keys"), "w") as f:
        f.write(f"{hashlib.sha256(b'sk-one').hexdigest()} alice requests=1\n")
    servers.update({"parrot": Server(PARROT, *LONG, "--queue", "1"), "random": Server(CHAT), "story": Server(STORY),
                    "keyed": Server(PARROT, *LONG, "--api-keys", path("keys"))})
    setup = {name: {"url": f"http://127.0.0.1:{s.port}", "socket": s.sock} for name, s in servers.items()}
    setup |= {"record": path("record"), "limit": 1000 * LIMIT}
    n_failed = sum(not node.passes(program, setup, sys.argv[6:]) for program in ("sdks.mjs", "ollama.mjs"))
    run(globals(), n_failed=n_failed + openapi.note_absence())


main()
