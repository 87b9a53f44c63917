#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""test_tool_loops.py: tool loops with the chat templates of real models, through the clients of other projects.

    test_tool_loops.py QUERN STORY_MODEL CHAT_MODEL SLOWNESS MAKE_PARROT [PREFIX_OF_CASES]

A daemon serves a parrot (tests/models/make-parrot) for each template of $QUERN_SHARED/golden/templates. The parrot
calls a tool in the form in which the template writes calls. Where the template has no form that can be read, it is the
one that Quern asks for. clients/tool_loops.mjs then has a conversation with each through the npm package openai: a
call, its result, an answer, a second question, a second call. The templates of SAMPLE have the same conversation
through all clients of clients/talks.mjs.

Without $QUERN_NPM (lib/node.py) or the templates, the test is skipped. test_serve.py describes the other arguments.
"""
import importlib.machinery
import importlib.util
import os
import pathlib
import re
import subprocess
import sys
import time

sys.path.insert(1, os.path.dirname(sys.path[0]))
from lib import node
from lib.cases import started
from lib.files import path
from test_serve import LIMIT, QUERN, Server

TEMPLATES = pathlib.Path(os.environ.get("QUERN_SHARED", "none")) / "golden/templates/jinja"
PARIS = '{"city": "Paris", "days": 2}'
LIST = '[{"name": "get_weather", "arguments": %s}]' % PARIS
TAGGED = '<tool_call>\n{"name": "get_weather", "arguments": %s}\n</tool_call>' % PARIS
FUNCTION = """<function=get_weather>
<parameter=city>
Paris
</parameter>
<parameter=days>
2
</parameter>
</function>"""
# How models of these templates write a call; all others write TAGGED. The first word that is in the name decides.
FORMS = {
    "mistral": "[TOOL_CALLS]" + LIST,
    "Llama-3.": '{"name": "get_weather", "parameters": %s}' % PARIS,
    "gpt-oss": "<|channel|>commentary to=functions.get_weather <|constrain|>json<|message|>" + PARIS,
    "Apriel": "<tool_calls>%s</tool_calls>" % LIST,
    "MiniMax-M1": "<tool_calls>\n%s\n</tool_calls>" % LIST[1:-1],
    "Nemotron": "<TOOLCALL>%s</TOOLCALL>" % LIST,
    "Qwen3-Coder": "<tool_call>\n%s\n</tool_call>" % FUNCTION,
    "Qwen3.5": "<tool_call>\n%s\n</tool_call>" % FUNCTION,
    "StepFun": "<tool_call>\n%s\n</tool_call>" % FUNCTION,
    "LFM2": '<|tool_call_start|>[get_weather(city="Paris", days=2)]<|tool_call_end|>',
    "Seed-OSS": "<seed:tool_call>\n%s\n</seed:tool_call>" % FUNCTION,
}
FINAL = "<|channel|>final<|message|>"  # the head of a text by gpt-oss
# Prompts of these templates end inside of thoughts.
OPEN = ["MiniMax-M2", "Nemotron", "Qwen3.5", "StepFun", "llama-cpp-deepseek-r1", "Laguna-S"]
# This one reads no tools but variables of its own, without which it fails, with and without tools.
REFUSE = {"fireworks-ai-llama-3-firefunction-v2": "template fails"}
SAMPLE = ["Qwen-Qwen3-0.6B", "mistralai-Mistral-Nemo-Instruct-2407", "meta-llama-Llama-3.1-8B-Instruct",
          "openai-gpt-oss-120b", "google-gemma-2-2b-it", "microsoft-Phi-3.5-mini-instruct"]


def first_of(table, name, other):
    return next((value for word, value in table.items() if word in name), other)


def replies_of(name, texts):
    """What the parrot with this template says."""
    replies = {"call": first_of(FORMS, name, TAGGED), "result": texts["result"], "hello": texts["hello"]}
    if "gpt-oss" in name:
        return {k: (FINAL if k != "call" else "") + text for k, text in replies.items()}
    if any(word in name for word in OPEN):
        return {k: f"This is a {k}.</think>\n\n" + text for k, text in replies.items()}
    return replies


def parrot_maker(program):
    """make-parrot as a module."""
    loader = importlib.machinery.SourceFileLoader("make_parrot", program)
    module = importlib.util.module_from_spec(importlib.util.spec_from_loader("make_parrot", loader))
    sys.dont_write_bytecode = True
    loader.exec_module(module)
    return module


class Daemon(Server):
    """Serves many models over TCP."""

    def __init__(self, models):
        self.sock = path("quern.sock")
        self.log = open(path("log"), "w+b")
        args = ["--threads", "1", "--ctx", "16384", "--parallel", "2", "--sessions", "1", "--listen", self.sock,
                "--listen", "127.0.0.1:0", *(f"{name}={file}" for name, file in models.items())]
        self.process = subprocess.Popen([QUERN, "serve", *args], stdout=subprocess.DEVNULL, stderr=self.log)
        started.append(self)
        end = time.monotonic() + LIMIT
        while not re.search(r"serving .*\n", self.stderr()):
            if self.process.poll() is not None or time.monotonic() > end:
                raise RuntimeError("no server: " + self.stderr())
            time.sleep(0.01)
        self.port = int(self.stderr().split("127.0.0.1:")[1].split()[0])


def main():
    node.require_packages()
    if not TEMPLATES.is_dir():
        node.skip(f"no templates in {TEMPLATES}")
    parrot = parrot_maker(sys.argv[5])
    files = {}
    for file in sorted(TEMPLATES.glob("*.jinja")):
        name = file.stem
        files[name] = path(name + ".gguf")
        with open(files[name], "wb") as f:
            f.write(parrot.model(file.read_text(), replies_of(name, parrot.REPLIES), hears=True))
    daemon = Daemon(files)
    setup = {"url": f"http://127.0.0.1:{daemon.port}", "models": [n for n in files if n not in REFUSE],
             "refuse": REFUSE, "sample": SAMPLE, "limit": 1000 * LIMIT}
    node.run_alone("tool_loops.mjs", [daemon], setup, sys.argv[6:])


main()
