#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""test_forced_calls.py: tool calls that a request asks for, in the form of many models, validated by another program.

    test_forced_calls.py QUERN STORY_MODEL CHAT_MODEL SLOWNESS N [PREFIX_OF_CASES]

test_serve.py describes the arguments. CHAT_MODEL says noise, at temperature 1.5, so whatever is right in a call is due
to its form. N random tools are asked for, with the chat templates of $QUERN_SHARED/golden/templates in turn, or with
that of Hermes. The Python package jsonschema validates arguments, where it is installed.
"""
import concurrent.futures
import decimal
import json
import os
import pathlib
import random
import sys
import time

sys.path.insert(1, os.path.dirname(sys.path[0]))
from lib.cases import check, run
from lib.files import path
from lib.retemplate import retemplate
from test_serve import CHAT, LIMIT, Server, refused

N = int(sys.argv[5])
try:
    import jsonschema
except ImportError:
    jsonschema = None
TEMPLATES = pathlib.Path(os.environ.get("QUERN_SHARED", "none")) / "golden/templates/jinja"
# One for each form, and some that have none, whose tools become texts.
NAMES = ["Qwen-Qwen3-0.6B", "Qwen3-Coder", "Qwen3.5-4B", "StepFun3.5-Flash", "ByteDance-Seed-OSS", "meta-llama-Llama-3.1-8B-Instruct",
         "mistralai-Mistral-Nemo-Instruct-2407", "openai-gpt-oss-120b", "Apriel-1.6-15b-Thinker-fixed", "MiniMax-M1",
         "NVIDIA-Nemotron-Nano-v2", "NousResearch-Hermes-2-Pro-Llama-3-8B-tool_use", "deepseek-ai-DeepSeek-V3.1", "GLM-4.6", "google-gemma-2-2b-it", "LFM2-8B-A1B"]
HERMES = """{% for t in tools or [] %}{{ t | tojson }}{% endfor %}{% for m in messages %}<|im_start|>{{ m.role }}
{{ m.content or "" }}{% for c in m.tool_calls or [] %}<tool_call>
{"name": "{{ c.function.name }}", "arguments": {{ c.function.arguments | tojson }}}
</tool_call>{% endfor %}<|im_end|>
{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant
{% endif %}"""
CHATS, MESSAGES, RESPONSES = "/v1/chat/completions", "/v1/messages", "/v1/responses"
USER = {"messages": [{"role": "user", "content": "hello"}]}
NOISE = {"temperature": 1.5, "top_k": 0, "top_p": 1, "min_p": 0}
CITY = {"type": "object", "properties": {"city": {"enum": ["Paris", "Rome"]}, "days": {"type": "integer", "minimum": 1, "maximum": 9}},
        "required": ["city", "days"], "additionalProperties": False}
NONE = {"type": "object", "properties": {}, "additionalProperties": False}


def tool(name, parameters, **more):
    return {"type": "function", "function": {"name": name, "description": "does it", "parameters": parameters, **more}}


TOOLS = [tool("weather", CITY), tool("stop", NONE)]


def templates():
    found = [(name, (TEMPLATES / (name + ".jinja"))) for name in NAMES]
    return [(name, p.read_text()) for name, p in found if p.exists()] or [("hermes", HERMES)]


def models(some):
    """Arguments of a server with a model for each template."""
    out = []
    for name, text in some:
        retemplate(CHAT, path(name + ".gguf"), text)
        out.append(f"{name}={path(name + '.gguf')}")
    return out


# ---- random tools ----

def schema(r, depth):
    """A random schema, of few texts without an end."""
    kind = r.choice(["string", "enum", "integer", "number", "boolean", "pattern", "format", "union"] + ["array", "object"] * (depth > 0))
    if kind == "string":
        return {"type": "string", "maxLength": r.randrange(8)}
    if kind == "enum":
        return {"enum": r.sample(["a", "b c", "</x>", 'q"', "\n", 5, None, True, "é"], r.randrange(1, 5))}
    if kind == "integer":
        return {"type": "integer", "minimum": r.randrange(-50, 5), "maximum": r.randrange(5, 500)}
    if kind == "number":
        return {"type": "number", "minimum": 0, "multipleOf": r.choice([0.5, 1, 0.01])}
    if kind == "pattern":
        return {"type": "string", "pattern": r.choice(["^[a-c]{2,4}$", "^x+$", "^(yes|no)$", "^[0-9]{1,3}px$"])}
    if kind == "format":
        return {"type": "string", "format": r.choice(["date", "uuid", "ipv4"])}
    if kind == "union":
        return {"anyOf": [{"type": "null"}, schema(r, 0)]}
    if kind == "array":
        return {"type": "array", "items": schema(r, depth - 1), "maxItems": r.randrange(4)}
    if kind == "object":
        return record(r, depth - 1)
    return {"type": kind}


def record(r, depth):
    names = r.sample(["a", "city", "unit of it", "é", "x-y", "n", "deep"], r.randrange(5))
    out = {"type": "object", "properties": {k: schema(r, depth) for k in names}, "required": r.sample(names, r.randrange(len(names) + 1))}
    if r.random() < 0.8:
        out["additionalProperties"] = False
    return out


def request(i):
    """The random tools, and what is asked of them."""
    r = random.Random(i)
    tools = [tool(f"tool_{k}", record(r, 2), **r.choice([{}, {"strict": True}, {"strict": False}])) for k in range(r.randrange(1, 4))]
    named = {"type": "function", "function": {"name": tools[-1]["function"]["name"]}}
    choice = r.choice(["required", "required", named, {"type": "allowed_tools", "allowed_tools": {"mode": "required", "tools": [named]}}])
    return {"tools": tools, "tool_choice": choice, "parallel_tool_calls": r.random() < 0.5}


def exact(text):
    """The JSON value with its numbers as they are written: 0.47 is a multiple of 0.01, but not as binary fractions."""
    def number(digits):
        d = decimal.Decimal(digits)
        return int(d) if d == d.to_integral_value() else d
    return json.loads(text, parse_float=number)


def complaint(v, text):
    if not jsonschema:
        return None
    v = exact(json.dumps(v))
    return next((e.message for e in jsonschema.Draft202012Validator(v).iter_errors(exact(text))), None)


def judge(ask, choice):
    """Complains about calls that do not fit the request."""
    calls, schemas = choice["message"].get("tool_calls") or [], {t["function"]["name"]: t["function"]["parameters"] for t in ask["tools"]}
    check(choice["message"]["content"] in (None, ""), choice)
    check(calls and (ask["parallel_tool_calls"] or len(calls) == 1), choice)
    only = None if isinstance(ask["tool_choice"], str) else ask["tools"][-1]["function"]["name"]
    for c in calls:
        name = c["function"]["name"]
        check(only in (None, name), choice)
        wrong = complaint(schemas[name], c["function"]["arguments"])
        check(wrong is None, wrong, schemas[name], c)


def test_noise_becomes_calls_that_fit():
    some = templates()
    s, counts = Server(models(some), "--ctx", "16384"), {"calls": 0, "length": 0}

    def post(i):
        name = some[i % len(some)][0]
        ask = request(i)
        return name, ask, s.post(CHATS, {"model": name, **USER, **NOISE, "max_tokens": 600, "seed": i, "chat_template_kwargs": {"enable_thinking": False}, **ask})
    with concurrent.futures.ThreadPoolExecutor(4) as pool:
        for name, ask, answer in pool.map(post, range(N)):
            check(answer.status == 200, name, answer.body[:400], ask)
            choice = answer.json["choices"][0]
            check(choice["finish_reason"] in ("tool_calls", "length"), name, choice)
            counts["length" if choice["finish_reason"] == "length" else "calls"] += 1
            if choice["finish_reason"] == "tool_calls":
                try:
                    judge(ask, choice)
                except AssertionError:
                    print(name, json.dumps(ask)[:2000])
                    raise
    print(counts)
    check(counts["calls"] > N // 3, counts)
    s.stop()


# ---- the words of each API ----

def one_model(name=None):
    """A server with one model, of this template."""
    text = dict(templates()).get(name, HERMES)
    retemplate(CHAT, path("one.gguf"), text)
    return Server(path("one.gguf"), "--ctx", "16384")


def called(answer, *names):
    """The names and arguments of an answer's calls, in any API."""
    check(answer.status == 200, answer.body)
    body = answer.json
    if "choices" in body:
        calls = [(c["function"]["name"], c["function"]["arguments"]) for c in body["choices"][0]["message"].get("tool_calls") or []]
    elif "output" in body:
        calls = [(o["name"], o["arguments"]) for o in body["output"] if o["type"] == "function_call"]
    else:
        calls = [(b["name"], json.dumps(b["input"])) for b in body["content"] if b["type"] == "tool_use"]
    check(calls, body)
    for name, arguments in calls:
        check(name in (names or ("weather", "stop")), calls)
        wrong = complaint(CITY if name == "weather" else NONE, arguments)
        check(wrong is None, wrong, calls)
    return calls


def test_every_api_has_its_words_for_a_call():
    s = one_model()
    weather = {"type": "function", "function": {"name": "weather"}}
    for more, names in (({"tool_choice": "required"}, ()), ({"tool_choice": "any"}, ()), ({"tool_choice": weather}, ("weather",)),
                        ({"tool_choice": {"type": "allowed_tools", "allowed_tools": {"mode": "required", "tools": [weather]}}}, ("weather",))):
        for seed in range(3):
            a = s.post(CHATS, {**USER, **NOISE, "seed": seed, "max_tokens": 300, "tools": TOOLS, "parallel_tool_calls": False, **more})
            check(len(called(a, *names)) == 1 and a.json["choices"][0]["finish_reason"] == "tool_calls", a.body)
    flat = [{"type": "function", **t["function"]} for t in TOOLS]
    for choice, names in (("required", ()), ({"type": "function", "name": "stop"}, ("stop",)),
                          ({"type": "allowed_tools", "mode": "required", "tools": [{"type": "function", "name": "weather"}]}, ("weather",))):
        a = s.post(RESPONSES, {"input": "hello", **NOISE, "seed": 5, "max_output_tokens": 300, "tools": flat, "tool_choice": choice, "parallel_tool_calls": False})
        called(a, *names)
        check(a.json["tool_choice"] == choice and "ignored" not in a.json["quern"], a.json)
    blocks = [{"name": t["function"]["name"], "input_schema": t["function"]["parameters"], "strict": True} for t in TOOLS]
    for choice, names in (({"type": "any"}, ()), ({"type": "tool", "name": "weather"}, ("weather",))):
        a = s.post(MESSAGES, {**USER, **NOISE, "temperature": 1, "seed": 6, "max_tokens": 300, "tools": blocks,
                              "tool_choice": {**choice, "disable_parallel_tool_use": True}})
        check(len(called(a, *names)) == 1 and a.json["stop_reason"] == "tool_use", a.body)
    s.stop()


NO_THOUGHTS = ["Qwen-Qwen3-0.6B", "Qwen3-Coder", "meta-llama-Llama-3.1-8B-Instruct", "mistralai-Mistral-Nemo-Instruct-2407", "MiniMax-M1",
               "NousResearch-Hermes-2-Pro-Llama-3-8B-tool_use", "GLM-4.6"]
LONG = {"type": "object", "properties": {"a": {"type": "string", "minLength": 20, "maxLength": 40}, "b": {"enum": ["x", "y"]}},
        "required": ["a", "b"], "additionalProperties": False}


def streamed(events):
    """The calls of a stream of any API: their names, the pieces of their arguments, and the finish reason."""
    calls, finish = {}, None
    for e in events:
        kind = e.get("type", "") if e != "[DONE]" else ""
        for c in e["choices"] if e != "[DONE]" and "choices" in e else []:
            finish = c["finish_reason"] or finish
            for t in c["delta"].get("tool_calls") or []:
                if "id" in t:
                    check(t["function"]["arguments"] == "" and t["index"] not in calls, t)
                    calls[t["index"]] = (t["function"]["name"], [])
                else:
                    calls[t["index"]][1].append(t["function"]["arguments"])
        if kind == "content_block_start" and e["content_block"]["type"] == "tool_use":
            calls[e["index"]] = (e["content_block"]["name"], [])
        elif kind == "content_block_delta" and e["delta"]["type"] == "input_json_delta":
            calls[e["index"]][1].append(e["delta"]["partial_json"])
        elif kind == "message_delta":
            finish = e["delta"]["stop_reason"]
        elif kind == "response.output_item.added" and e["item"]["type"] == "function_call":
            calls[e["output_index"]] = (e["item"]["name"], [])
        elif kind == "response.function_call_arguments.delta":
            calls[e["output_index"]][1].append(e["delta"])
        elif kind == "response.function_call_arguments.done":
            check("".join(calls[e["output_index"]][1]) == e["arguments"], calls, e)
        elif kind in ("response.completed", "response.incomplete"):
            finish = e["response"]["status"]
            items = [o for o in e["response"]["output"] if o["type"] == "function_call"]
            check([(o["name"], o["arguments"]) for o in items] == [(name, "".join(x)) for name, x in calls.values()], items, calls)
            if items:
                check(items[-1]["status"] == finish, items)
    return [calls[k] for k in sorted(calls)], finish


def test_arguments_are_streamed_while_they_are_written():
    tools = [tool("long", LONG, strict=True)]
    some = [(name, text) for name, text in templates() if name in NO_THOUGHTS] + [("plain", HERMES)]
    s = Server(models(some), "--ctx", "16384")
    common = {**USER, **NOISE, "temperature": 1, "seed": 9, "chat_template_kwargs": {"enable_thinking": False}}
    blocks = [{"name": "long", "input_schema": LONG}]
    flat = [{"type": "function", **tools[0]["function"]}]
    for name, _ in some:
        common["model"] = name
        asks = [(CHATS, {**common, "max_tokens": 400, "tools": tools, "tool_choice": "required", "parallel_tool_calls": False}, "tool_calls", "length")]
        if name == "plain":  # which has no thoughts
            more = {"model": name, **NOISE, "temperature": 1, "seed": 9}
            asks += [(MESSAGES, {**USER, **more, "max_tokens": 400, "tools": blocks, "tool_choice": {"type": "any", "disable_parallel_tool_use": True}}, "tool_use", "max_tokens"),
                     (RESPONSES, {**more, "input": "hello", "max_output_tokens": 400, "tools": flat, "tool_choice": "required", "parallel_tool_calls": False},
                      "completed", "incomplete")]
        for url, ask, good, short in asks:
            answer = s.post(url, ask)
            check(answer.status == 200, name, answer.body)
            calls, finish = streamed(s.post(url, {**ask, "stream": True}).events())
            check(finish == good and len(calls) == 1, name, url, calls, finish)
            whole, pieces = answer.json, calls[0][1]
            if url == CHATS:  # the same text, in pieces
                check("".join(pieces) == whole["choices"][0]["message"]["tool_calls"][0]["function"]["arguments"], name, pieces, whole)
            check(complaint(LONG, "".join(pieces)) is None, name, pieces)
            functions = name == "Qwen3-Coder"  # parameter by parameter
            check(len(pieces) >= (2 if functions else 8), name, pieces)
            most = "max_output_tokens" if url == RESPONSES else "max_tokens"
            calls, finish = streamed(s.post(url, {**ask, most: 40, "stream": True}).events())
            check(finish == short, name, url, finish)
            if calls and not functions:
                check("".join(pieces).startswith("".join(calls[0][1])), name, calls, pieces)
    s.stop()


def test_a_stream_has_the_calls_of_the_answer():
    s = one_model()
    ask = {**USER, **NOISE, "seed": 9, "max_tokens": 400, "tools": TOOLS, "tool_choice": "required"}
    whole = called(s.post(CHATS, ask))
    calls, _ = streamed(s.post(CHATS, {**ask, "stream": True}).events())
    check([(name, "".join(x)) for name, x in calls] == whole, calls, whole)
    s.stop()


def test_a_text_and_calls_have_their_forms_together():
    for name in "hermes", "meta-llama-Llama-3.1-8B-Instruct", "openai-gpt-oss-120b":  # the second one's calls have no mark
        s = one_model(name)
        ask = {**USER, **NOISE, "max_tokens": 300, "tools": TOOLS}
        form = {"type": "json_schema", "json_schema": {"name": "n", "schema": CITY, "strict": True}}
        found = set()
        for seed in range(12):
            c = s.post(CHATS, {**ask, "seed": seed, "response_format": form}).json["choices"][0]
            if c["finish_reason"] != "length":
                found.add(c["finish_reason"])
            if c["finish_reason"] == "stop":
                wrong = complaint(CITY, c["message"]["content"])
                check(wrong is None, wrong, c)
        check("stop" in found, name, found)
        called(s.post(CHATS, {**ask, "seed": 1, "response_format": form, "tool_choice": "required"}))
        strict = [tool("weather", CITY, strict=True)]
        for seed in range(4):  # what is said is free
            a = s.post(CHATS, {**ask, "seed": seed, "max_tokens": 60, "tools": strict})
            check(a.status == 200 and "ignored" not in a.json["quern"], a.body)
            if a.json["choices"][0]["finish_reason"] == "tool_calls":
                called(a)
        s.stop()


def test_what_cannot_be_asked_for_is_refused():
    s = one_model()
    bad = {"type": "object", "properties": {"a": {"type": "string", "format": "dob"}}}
    for more, code, param, words in (
            ({"tool_choice": "required"}, "invalid_value", "tool_choice", "no tools"),
            ({"tools": TOOLS, "tool_choice": {"type": "function", "function": {"name": "nope"}}}, "invalid_value", "tool_choice", "'nope'"),
            ({"tools": [tool("f", bad)], "tool_choice": "required"}, "unsupported_value", "tools", "tool 'f': /properties/a/format: "),
            ({"tools": [tool("f", bad, strict=True)]}, "unsupported_value", "tools", "tool 'f': /properties/a/format: "),
            ({"tools": [tool("f", {"type": "string"})], "tool_choice": "required"}, "invalid_value", "tools", "tool 'f': "),
            ({"tools": [tool("f", NONE), tool("f", CITY)]}, "invalid_value", "tools[1].function.name", "tools[1].function.name: 'f'"),
            ({"tools": TOOLS, "tool_choice": "required", "ignore_eos": True}, "unsupported_value", "ignore_eos", "")):
        a = s.post(CHATS, {**USER, "max_tokens": 5, **more})
        refused(a, 400, code, param)
        check(words in a.json["error"]["message"], more, a.body)
    weather, bare = {"name": "weather"}, {"type": "function", "name": "weather"}
    for url, choice, param in (
            (CHATS, {"type": "function", "function": weather, "force": 1}, "tool_choice.force"),
            (CHATS, {"type": "function", "function": {**weather, "strict": True}}, "tool_choice.function.strict"),
            (CHATS, {"type": "allowed_tools", "allowed_tools": {"mode": "auto", "tools": [bare], "most": 2}}, "tool_choice.allowed_tools.most"),
            (CHATS, {"type": "allowed_tools", "mode": "auto", "tools": [{**bare, "x": 1}]}, "tool_choice.tools[0].x"),
            (RESPONSES, {**bare, "force": 1}, "tool_choice.force"),
            (MESSAGES, {"type": "tool", "name": "weather", "force": 1}, "tool_choice.force")):
        tools = TOOLS if url == CHATS else [{"type": "function", **t["function"]} for t in TOOLS] if url == RESPONSES else [
            {"name": t["function"]["name"], "input_schema": t["function"]["parameters"]} for t in TOOLS]
        ask = {"input": "hello"} if url == RESPONSES else {**USER, "max_tokens": 5}
        a = s.post(url, {**ask, "tools": tools, "tool_choice": choice})
        check(a.status == 400 and param in a.json["error"]["message"], url, choice, a.body)
    a = s.post(CHATS, {**USER, **NOISE, "seed": 2, "max_tokens": 500, "tools": [tool("f", bad, strict=False)], "tool_choice": "required"})
    check(a.status == 200, a.body)
    check(s.post(CHATS, {**USER, "max_tokens": 5, "tools": [tool("f", bad)]}).status == 200)
    s.stop()


HOSTILE = [{"type": "string", "minLength": 1000000}, {"enum": [str(i) * 20 for i in range(20000)]}, {"$ref": "#/properties/a"},
           {"anyOf": [{"anyOf": [{"const": [i, k]} for i in range(30)]} for k in range(30)]}, {"type": "string", "pattern": "((a{1,100}){1,100}){1,100}"},
           {"type": "object", "required": [f"k{i}" for i in range(9000)]}, {"type": "array", "minItems": 100000, "items": {"type": "array", "minItems": 100000}},
           {"allOf": [{"anyOf": [{"minLength": i}, {"maxLength": 99 - i}]} for i in range(40)]}, {"not": {"$ref": "#"}}]


def test_hostile_tools_get_an_answer_or_a_refusal_soon():
    s = one_model("Qwen3-Coder")
    for some in [[tool("f", {"type": "object", "properties": {"a": v}, "required": ["a"]})] for v in HOSTILE] + [
            [tool("f", v) for v in HOSTILE], [tool(f"f{i}", CITY) for i in range(60)], [tool("f" * 1000, NONE)], [tool("<>", NONE)]]:
        for more in {"tool_choice": "required"}, {"tools": [tool(t["function"]["name"], t["function"]["parameters"], strict=True) for t in some]}:
            start = time.monotonic()
            a = s.post(CHATS, {**USER, "max_tokens": 4, "seed": 1, "tools": some, **more})
            took = time.monotonic() - start
            check(a.status in (200, 400), json.dumps(some)[:200], a.status, a.body[:300])
            check(took < LIMIT / 4 or a.status == 200, json.dumps(some)[:200], took)
    called(s.post(CHATS, {**USER, **NOISE, "seed": 4, "max_tokens": 400, "tools": TOOLS, "tool_choice": "required"}))
    s.stop()


run(globals(), sys.argv[6] if len(sys.argv) > 6 else "test_")
