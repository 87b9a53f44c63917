#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""test_frameworks.py: tests `quern serve` with frameworks of other projects, as they come.

    test_frameworks.py QUERN STORY_MODEL CHAT_MODEL SLOWNESS PARROT_MODEL [PREFIX_OF_CASES]

Runs clients/frameworks.mjs with the npm packages of $QUERN_NPM (lib/node.py). test_serve.py describes the other arguments.
"""
import sys

from lib import node
from test_rank import make
from test_serve import LIMIT, STORY, Server


def main():
    node.require_packages()
    servers = {
        "url": Server(sys.argv[5], "--ctx", "2048", "--parallel", "4", "--sessions", "2"),  # some ask for 4096 tokens
        "long": Server(sys.argv[5], "--ctx", "262144", "--parallel", "2", "--sessions", "1"),  # no client is too slow to leave
        "story": Server(STORY),
        "rank": Server(make("rank.gguf", pooling=4, head=0)),
    }
    setup = {name: f"http://127.0.0.1:{s.port}" for name, s in servers.items()} | {"limit": 1000 * LIMIT}
    node.run_alone("frameworks.mjs", servers.values(), setup, sys.argv[6:])


main()
