#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""test_linked.py: tests programs that use the installed library: the examples, and those of docs/LIBRARY.md.

    test_linked.py SOURCE_ROOT BUILD_ROOT MODEL CHAT_MODEL [PREFIX_OF_CASES]

The files that BUILD_ROOT has compiled are installed under a prefix of their own, from a build folder that is configured
for that prefix, because the contents of the pkg-config file depend on it. Nothing is compiled again.
"""
import os
import re
import shutil
import subprocess
import sys
import tempfile

from lib.cases import Skipped, check, run

SOURCE, BUILD, MODEL, CHAT = map(os.path.abspath, sys.argv[1:5])
HELLO = "Grüße! 😀 What can I do?"  # of the chat model (make-parrot), whatever it is asked
PROMPT = "Once upon a time"
STORY = ", there was a little girl named Lily."
LIMIT = 800
TMP = tempfile.TemporaryDirectory(prefix="quern-linked-")
PREFIX = os.path.join(TMP.name, "prefix")
EXAMPLES = os.path.join(SOURCE, "examples")
CC = "gcc"


def call(*command, **popen):
    popen.setdefault("env", environment())
    return subprocess.run(command, text=True, capture_output=True, timeout=LIMIT, cwd=TMP.name, **popen)


def output_of(*command, **popen):
    r = call(*command, **popen)
    check(r.returncode == 0, command, r.returncode, r.stdout[-2000:], r.stderr[-2000:])
    return r.stdout


def environment():
    """Nothing but what pkg-config needs: no LD_LIBRARY_PATH."""
    e = {k: v for k, v in os.environ.items() if not k.startswith("LD_") and k not in ("DESTDIR", "PKG_CONFIG_PATH")}
    for at, folders, _ in os.walk(PREFIX):
        if "pkgconfig" in folders:
            e["PKG_CONFIG_PATH"] = os.path.join(at, "pkgconfig")
    return {**e, "LC_ALL": "C.UTF-8", "PATH": os.path.join(PREFIX, "bin") + ":" + e["PATH"]}


def install():
    """Once; what fails here fails all cases."""
    if install.done is None:
        install.done = False
        build = os.path.join(TMP.name, "build")
        output_of("meson", "setup", build, SOURCE, "--buildtype=release", "--prefix=" + PREFIX, env={**environment(), "CC": CC})
        for name in os.listdir(BUILD):
            file = os.path.join(BUILD, name)
            if (name in ("quern", "quern-stage") or name.startswith("libquern.so.")) and os.path.isfile(file) and not os.path.islink(file):
                shutil.copy(file, build)
        r = call("meson", "install", "--no-rebuild", "-C", build)
        if r.returncode != 0:
            raise RuntimeError(f"meson install: {r.stdout[-2000:]} {r.stderr[-2000:]}")
        install.done = True
    if not install.done:
        raise Skipped("nothing is installed")


install.done = None


def compiled(source, name, *flags):
    install()
    to = os.path.join(TMP.name, name)
    words = output_of("pkg-config", "--cflags", "--libs", "quern").split()
    output_of(CC, "-Wall", "-Wextra", "-Werror", *flags, source, "-o", to, *words)
    return to


def test_a_linked_program_starts_without_a_library_path():
    said = output_of(compiled(os.path.join(EXAMPLES, "generate.c"), "generate", "-std=c11"), MODEL, PROMPT)
    check(said.startswith(STORY), said)


def test_the_chat_example_answers_each_line():
    program = compiled(os.path.join(EXAMPLES, "chat.c"), "chat")
    said = output_of(program, CHAT, input='Hello.\nSay "it" again.\n')
    check(said == f"{HELLO}\n{HELLO}\n", said)
    r = call(program, "/nonexistent.gguf")
    check(r.returncode == 1 and "chat: " in r.stderr and "/nonexistent.gguf" in r.stderr, r)


def test_the_header_is_cxx():
    source = os.path.join(TMP.name, "own.cc")
    with open(source, "w") as f:
        f.write('#include <quern.h>\nint main() { return qn_version() == nullptr; }\n')
    if not shutil.which("g++"):
        raise Skipped("no g++")
    install()
    words = output_of("pkg-config", "--cflags", "--libs", "quern").split()
    output_of("g++", "-Wall", "-Wextra", "-Werror", source, "-o", source + ".out", *words)
    output_of(source + ".out")


def test_python_generates():
    install()
    library = [os.path.join(at, f) for at, _, files in os.walk(PREFIX) for f in files if f.startswith("libquern.so.0.")]
    check(len(library) == 1, library)
    said = output_of(sys.executable, os.path.join(EXAMPLES, "generate.py"), MODEL, PROMPT, env={**environment(), "QUERN_LIBRARY": library[0]})
    check(said.startswith(", ") and len(said) > 50, said)


def test_the_pipes_example_runs():
    install()
    said = output_of("sh", os.path.join(EXAMPLES, "pipes.sh"), MODEL, PROMPT)
    check(said.startswith(STORY) and "stories15M" in said.splitlines()[-1] and said.splitlines()[-2] == "4", said)


def test_every_function_has_a_manual_page():
    install()
    with open(os.path.join(SOURCE, "include/quern.h")) as f:
        names = re.findall(r"^QN_API .*?\b(qn_[a-z0-9_]+)\(", f.read(), re.M)
    check(len(names) > 60, names)
    for name in [*names, "libquern", "quern.h"]:
        page = os.path.join(PREFIX, "share/man/man3", name + ".3")
        check(os.path.isfile(page), page)
        with open(page) as f:
            check(name.replace("-", "\\-") in f.read(), "not in", page)
    r = call("man", "--warnings", "-M", os.path.join(PREFIX, "share/man"), "3", "qn_model_open", env={**environment(), "MANWIDTH": "100"})
    check(r.returncode == 0 and not r.stderr and "int qn_model_open(qn_model **out" in r.stdout, r)


def test_the_programs_of_the_document_run():
    """The blocks of C in docs/LIBRARY.md, each a whole program, in the order they stand there."""
    with open(os.path.join(SOURCE, "docs/LIBRARY.md")) as f:
        blocks = re.findall(r"^```c\n(.*?)^```$", f.read(), re.S | re.M)
    check(len(blocks) >= 2, len(blocks))
    for i, block in enumerate(blocks):
        source = os.path.join(TMP.name, f"block{i}.c")
        with open(source, "w") as f:
            f.write(block)
        said = output_of(compiled(source, f"block{i}"), MODEL)
        check(said.strip(), i, said)


run(globals(), sys.argv[5] if sys.argv[5:] else "test_")
