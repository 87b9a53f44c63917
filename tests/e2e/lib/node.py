# SPDX-License-Identifier: MIT
"""node.py: runs the programs of clients/, which use the npm packages that tests/npm/install has installed in $QUERN_NPM.

A test that cannot run ends with status 77 (skipped), but in CI that is a failure.
"""
import json
import os
import subprocess
import sys

from lib.cases import clean_up, complaints

NPM = os.environ.get("QUERN_NPM")


def skip(why):
    print(why)
    sys.exit(1 if os.environ.get("CI") else 77)


def require_packages():
    """Ends the test if there are no packages."""
    if not NPM:
        skip("QUERN_NPM is not set: see tests/npm/install")


def passes(program, setup, prefix=()):
    """True if the cases of a program pass, or, of these, those whose names begin with the prefix. setup: see the program."""
    program = os.path.join(os.path.dirname(os.path.abspath(__file__)), os.pardir, "clients", program)
    return subprocess.run(["node", program, NPM, json.dumps(setup), *prefix]).returncode == 0


def run_alone(program, servers, setup, prefix=()):
    """The same, for a test that does nothing else: ends its servers and the test."""
    passed = passes(program, setup, prefix)
    for s in servers:
        s.stop()
    clean_up(False)
    for c in complaints:
        print("    " + c)
    sys.exit(0 if passed and not complaints else 1)
