#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""test_frameworks.py: tests `quern serve` with frameworks of other projects, as they come.

    test_frameworks.py QUERN STORY_MODEL CHAT_MODEL SLOWNESS PARROT_MODEL [PREFIX_OF_CASES]

Runs clients/frameworks.mjs with the npm packages of $QUERN_NPM (tests/npm/install). Without these, the status is 77
(skipped), but in CI that is a failure. test_serve.py describes the other arguments.
"""
import json
import os
import subprocess
import sys

from cases import clean_up, complaints
from test_serve import LIMIT, STORY, Server


def main():
    if not os.environ.get("QUERN_NPM"):
        print("QUERN_NPM is not set: see tests/npm/install")
        sys.exit(1 if os.environ.get("CI") else 77)
    servers = {
        "url": Server(sys.argv[5], "--ctx", "2048", "--parallel", "4", "--sessions", "2"),  # some ask for 4096 tokens
        "long": Server(sys.argv[5], "--ctx", "32768", "--parallel", "2", "--sessions", "1"),
        "story": Server(STORY),
    }
    setup = {name: f"http://127.0.0.1:{s.port}" for name, s in servers.items()} | {"limit": 1000 * LIMIT}
    program = os.path.join(os.path.dirname(os.path.abspath(__file__)), "clients/frameworks.mjs")
    done = subprocess.run(["node", program, os.environ["QUERN_NPM"], json.dumps(setup), *sys.argv[6:]])
    for server in servers.values():
        server.stop()
    clean_up(False)
    for c in complaints:
        print("    " + c)
    sys.exit(1 if done.returncode or complaints else 0)


main()
