#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""test_structured.py: tests answers with a form: JSON Schemas, grammars, patterns and choices, in the words of every API.

    test_structured.py QUERN STORY_MODEL CHAT_MODEL SLOWNESS PARROT_MODEL [PREFIX_OF_CASES]

test_serve.py describes the arguments. CHAT_MODEL says noise, so whatever is right in an answer is due to its form.
"""
import contextlib
import json
import os
import re
import sys
import threading
import time

sys.path.insert(1, os.path.dirname(sys.path[0]))
from lib.cases import check, run, until
from test_serve import CHAT, LIMIT, SLOWNESS, STORY, Server, joined, openapi, refused

PARROT = sys.argv[5]
CHATS, TEXTS, MESSAGES, RESPONSES = "/v1/chat/completions", "/v1/completions", "/v1/messages", "/v1/responses"
SCHEMA = {"type": "object", "properties": {"name": {"type": "string", "maxLength": 6}, "n": {"type": "integer", "minimum": 1, "maximum": 20},
                                           "kind": {"enum": ["red", "green"]}}, "required": ["name", "n", "kind"], "additionalProperties": False}
HOT = {"temperature": 1.5, "seed": 3}
USER = {"messages": [{"role": "user", "content": "hello"}]}
GBNF = 'root ::= "<" [a-c]{3} ">"'


def fits(text):
    try:
        v = json.loads(text)
    except ValueError:
        return False
    return (list(v) == ["name", "n", "kind"] and isinstance(v["name"], str) and len(v["name"]) <= 6 and
            1 <= v["n"] <= 20 and v["kind"] in ("red", "green"))


def content(answer):
    return answer.json["choices"][0]["message"]["content"] if answer.status == 200 else answer.body.decode()


def test_every_api_has_its_words_for_a_schema():
    s = Server(CHAT)
    named = {"name": "thing", "schema": SCHEMA, "strict": True, "description": "d"}
    for more in ({"response_format": {"type": "json_schema", "json_schema": named}}, {"json_schema": SCHEMA}, {"guided_json": SCHEMA},
                 {"guided_json": json.dumps(SCHEMA)}, {"structured_outputs": {"json": SCHEMA}},
                 {"response_format": {"type": "json_object", "schema": SCHEMA}}):
        a = s.post(CHATS, {**USER, **HOT, **more})
        check(fits(content(a)) and a.json["choices"][0]["finish_reason"] == "stop", more, content(a))
        check("ignored" not in a.json.get("quern", {}), a.json)
    a = s.post(TEXTS, {"prompt": "hello", "max_tokens": 200, **HOT, "response_format": {"type": "json_schema", "json_schema": named}})
    check(fits(a.json["choices"][0]["text"]), a.body)
    a = s.post(RESPONSES, {"input": "hello", **HOT, "text": {"format": {"type": "json_schema", **named}}})
    check(fits(a.json["output"][-1]["content"][0]["text"]), a.body)
    for more in {"output_config": {"format": {"type": "json_schema", "schema": SCHEMA}}}, {"output_format": {"type": "json_schema", "schema": SCHEMA}}:
        a = s.post(MESSAGES, {**USER, "max_tokens": 300, "seed": 3, "temperature": 1, **more})
        check(fits(a.json["content"][-1]["text"]), a.body)
    for target, ask in ("/api/chat", USER), ("/api/generate", {"prompt": "hello"}):
        a = s.post(target, {"model": "m", **ask, "stream": False, "format": SCHEMA, "options": HOT})
        check(fits(a.json["message"]["content"] if "message" in a.json else a.json["response"]), a.body)
    s.stop()


def test_every_api_has_its_words_for_any_object():
    s = Server(CHAT)
    hot = {**HOT, "max_tokens": 60}
    for more in {"response_format": {"type": "json_object"}}, {"structured_outputs": {"json_object": True}}:
        check(content(s.post(CHATS, {**USER, **hot, **more})).startswith("{"), more)
    a = s.post(RESPONSES, {"input": "hello", **HOT, "max_output_tokens": 60, "text": {"format": {"type": "json_object"}}})
    check(a.json["output"][-1]["content"][0]["text"].startswith("{"), a.body)
    a = s.post("/api/chat", {"model": "m", **USER, "stream": False, "format": "json", "options": {**HOT, "num_predict": 60}})
    check(a.json["message"]["content"].startswith("{"), a.body)
    s.stop()


def test_grammars_patterns_and_choices():
    s = Server(CHAT)
    for more, wanted in (({"grammar": GBNF}, "<[abc]{3}>"), ({"guided_grammar": GBNF}, "<[abc]{3}>"), ({"regex": "x{2,4}y"}, "x{2,4}y"),
                         ({"guided_regex": "x{2,4}y"}, "x{2,4}y"), ({"choice": ["yes", "no"]}, "yes|no"), ({"guided_choice": ["ä\n"]}, "ä\n?"),
                         ({"structured_outputs": {"regex": "[0-9]{3}"}}, "[0-9]{3}"), ({"structured_outputs": {"choice": ["one"]}}, "one"),
                         ({"structured_outputs": {"grammar": GBNF}}, "<[abc]{3}>"), ({"response_format": {"type": "grammar", "grammar": GBNF}}, "<[abc]{3}>"),
                         ({"response_format": {"type": "regex", "pattern": "x{2}"}}, "xx"),
                         ({"response_format": {"type": "json_schema", "schema": {"const": 5}}}, "5"),
                         ({"response_format": {"type": "json_schema", "json_schema": {"name": "n", "schema": {"const": 5}}, "schema": None, "grammar": None, "pattern": None}}, "5"),
                         ({"response_format": {"type": "regex", "pattern": "x{2}", "schema": None, "json_schema": None}}, "xx"),
                         ({"response_format": {"type": "text", "schema": None, "grammar": None, "pattern": None}, "regex": "x{3}"}, "xxx"),
                         ({"response_format": {"type": "json_object", "schema": None}, "max_tokens": 40}, r"\{.*")):
        text = content(s.post(CHATS, {**USER, **HOT, **more}))
        check(re.fullmatch(wanted, text), more, text)
        text = s.post(TEXTS, {"prompt": ["hello", "you"], "max_tokens": 40, **HOT, **more}).json["choices"][1]["text"]
        check(re.fullmatch(wanted, text), more, text)
    m = {}
    def agrees():
        m.update(s.get("/v1/memory").json)
        n = m["grammar_bytes"]
        return 0 < n <= m["request_bytes"] and m["models"][0]["grammar_bytes"] == n == s.metric("memory_grammar_bytes")
    until(LIMIT, agrees, m)  # the last answer's next mask may still be in the making
    s.stop()


def test_a_stream_is_the_whole_answer_in_pieces():
    s = Server(CHAT)
    ask = {**USER, **HOT, "json_schema": SCHEMA, "n": 2}
    whole = [c["message"]["content"] for c in s.post(CHATS, ask).json["choices"]]
    pieces = ["", ""]
    for e in s.post(CHATS, {**ask, "stream": True}).events():
        for c in e["choices"] if e != "[DONE]" else []:
            pieces[c["index"]] += c["delta"].get("content") or ""
    check(pieces == whole and whole[0] != whole[1] and all(map(fits, whole)), whole, pieces)
    s.stop()


def test_answers_at_once_are_those_that_come_alone():
    s = Server(CHAT)
    asks = [{**USER, "temperature": 1.5, "seed": i, "max_tokens": 80, **more} for i, more in enumerate(
        [{"json_schema": SCHEMA}, {"regex": "[a-z]{40}"}, {}, {"json_schema": SCHEMA}, {"grammar": GBNF}, {"choice": ["a", "b"]}, {}])]
    alone, together = [content(s.post(CHATS, a)) for a in asks], [None] * len(asks)
    def one(i):
        together[i] = content(s.post(CHATS, asks[i]))
    threads = [threading.Thread(target=one, args=(i,)) for i in range(len(asks))]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    check(together == alone, alone, together)
    s.stop()


def test_the_form_begins_after_the_thoughts():
    s = Server(PARROT, "--ctx", "4096")
    a = s.post(CHATS, {"messages": [{"role": "user", "content": "think"}], "max_tokens": 400, "choice": ["It is five.", "No."],
                        "temperature": 0}).json
    m = a["choices"][0]["message"]
    check(m["content"] in ("It is five.", "No.") and "Two and two" in m["reasoning_content"], a)
    said = set()
    for seed in range(20):  # a model that has been kept from its answer may well think; fixed seeds have fixed answers
        a = s.post(CHATS, {"messages": [{"role": "user", "content": "hello"}], "choice": ["Hi"], "max_tokens": 20, "seed": seed}).json
        text, why = a["choices"][0]["message"]["content"], a["choices"][0]["finish_reason"]
        check(text == "Hi" and why == "stop" or "Hi".startswith(text) and why == "length", a)
        said.add(text)
    check("Hi" in said, said)
    s.stop()


def test_a_call_may_take_the_place_of_the_form():
    s = Server(PARROT, "--ctx", "4096")
    tools = [{"type": "function", "function": {"name": "get_weather", "parameters": {"type": "object"}}}]
    a = s.post(CHATS, {"messages": [{"role": "user", "content": "weather"}], "tools": tools, "json_schema": SCHEMA})
    if a.status == 400:
        check("calls" in a.json["error"]["message"], a.body)  # its mark is not one token
    else:
        check(a.json["choices"][0]["finish_reason"] in ("tool_calls", "stop"), a.body)
    s.stop()


def test_what_cannot_be_enforced_is_refused_with_its_place():
    s = Server(CHAT)
    def schema(v):
        return {"response_format": {"type": "json_schema", "json_schema": {"name": "n", "schema": v}}}
    where = "response_format.json_schema.schema"
    for more, code, param, words in (
            (schema({"properties": {"a": {"type": "string", "pattern": "(a)\\1"}}}), "unsupported_value", where, "/properties/a/pattern: "),
            (schema({"type": "string", "format": "dob"}), "unsupported_value", where, "/format: "),
            (schema({"type": "strong"}), "invalid_value", where, "/type: "), (schema({"allOf": [{"type": "null"}, {"type": "object"}]}), "invalid_value", where, ""),
            (schema(5), "invalid_type", where, ""), ({"response_format": {"type": "json_schema"}}, "missing_field", "response_format.json_schema", ""),
            ({"response_format": {"type": "json_schema", "json_schema": {"name": "n"}}}, "missing_field", where, ""),
            ({"response_format": {"type": "json_schema", "json_schema": {"schema": {}, "x": 1}}}, "unknown_field", "response_format.json_schema.x", ""),
            ({"response_format": {"type": "xml"}}, "unsupported_value", "response_format.type", "json_schema, grammar and regex"),
            ({"response_format": {"type": "grammar"}}, "missing_field", "response_format.grammar", ""), ({"response_format": {"type": "grammar", "grammar": None}}, "missing_field", "response_format.grammar", ""),
            ({"response_format": {"type": "regex", "pattern": None}}, "missing_field", "response_format.pattern", ""), ({"response_format": {"type": "json_schema", "schema": None}}, "missing_field", "response_format.json_schema", ""),
            ({"response_format": {"x": 1}}, "unknown_field", "response_format.x", ""), ({"response_format": {"type": None}}, "missing_field", "response_format.type", ""),
            ({"response_format": {"schema": {"a": 1}}}, "unknown_field", "response_format.schema", ""), ({"response_format": 5}, "invalid_type", "response_format", ""),
            ({"grammar": "root ::= x"}, "invalid_value", "grammar", "x"), ({"grammar": 5}, "invalid_type", "grammar", ""),
            ({"regex": "(?<=a)b"}, "unsupported_value", "regex", "lookbehind"), ({"regex": "["}, "invalid_value", "regex", "character "),
            ({"choice": [1]}, "invalid_type", "choice", ""), ({"choice": "a"}, "invalid_type", "choice", ""), ({"guided_json": "{"}, "invalid_value", "guided_json", "line 1"),
            ({"structured_outputs": {"structural_tag": "x"}}, "unknown_field", "structured_outputs.structural_tag", ""),
            ({"grammar": GBNF, "regex": "a"}, "invalid_value", "regex", "grammar"), ({"regex": "a", "ignore_eos": True}, "unsupported_value", "ignore_eos", "")):
        refused(s.post(CHATS, {**USER, **more}), 400, code, param)
        check(words in s.post(CHATS, {**USER, **more}).json["error"]["message"], more, words)
    refused(s.post(RESPONSES, {"input": "x", "text": {"format": {"type": "json_schema", "name": "x"}}}), 400, "missing_field", "text.format.schema")
    refused(s.post(RESPONSES, {"input": "x", "text": {"format": {"type": "regex", "pattern": 5}}}), 400, "invalid_type", "text.format.pattern")
    a = s.post("/api/chat", {"model": "m", **USER, "format": "yaml"})
    check(a.status == 400 and "format" in a.json["error"], a.body)
    a = s.post(MESSAGES, {**USER, "max_tokens": 5, "output_config": {"format": {"type": "json_schema", "schema": {"format": "dob"}}}})
    check(a.status == 400 and "output_config.format.schema: /format: " in a.json["error"]["message"], a.body)
    s.stop()


def test_the_types_of_a_form_are_those_of_the_interface():
    s = Server(CHAT)
    known = json.loads(openapi.FILE.read_text())["components"]["schemas"]
    for schema, target, ask in (("AnswerFormat", CHATS, lambda v: {**USER, "max_tokens": 1, "response_format": v}),
                                ("AnswerFormatFlat", RESPONSES, lambda v: {"input": "x", "max_output_tokens": 16, "text": {"format": v}})):
        message = s.post(target, ask({"type": "none of them"})).json["error"]["message"]
        for kind in known[schema]["properties"]["type"]["enum"]:
            a = s.post(target, ask({"type": kind}))
            check(a.status == 200 or a.json["error"]["code"] == "missing_field", kind, a.body)
            check(kind in message, kind, message)
    s.stop()


def nested(depth, make, v):
    for _ in range(depth):
        v = make(v)
    return v


def schemas():
    """Schemas that cost much: in states, in depth, in combinations, in size."""
    text, any_of = {"type": "string"}, [{"const": i} for i in range(12)]
    yield from [{"type": "string", "minLength": 1000000}, {"type": "string", "maxLength": 10 ** 18}, {"type": "string", "minLength": 5, "maxLength": 4},
                {"enum": [str(i) * 20 for i in range(20000)]}, {"enum": [{"a": [i] * 50} for i in range(2000)]}, {"enum": list(range(100000))},
                {"enum": [i * 7919 % 1000003 for i in range(100000)]}, {"enum": [i / 8 for i in range(80000)]}, {"const": "x" * 500000},
                {"const": nested(900, lambda v: [v], 0)}, {"enum": ["\0", "\ud800", "\uffff" * 1000]}]
    yield from [{"$ref": "#"}, {"$defs": {"a": {"$ref": "#/$defs/b"}, "b": {"$ref": "#/$defs/a"}}, "$ref": "#/$defs/a"}, {"anyOf": [{"$ref": "#"}, {"$ref": "#"}]},
                {"allOf": [{"$ref": "#"}]}, {"not": {"$ref": "#"}}, {"properties": {"a": {"$ref": "#"}}, "required": ["a"]}, {"items": {"$ref": "#"}, "minItems": 1},
                {"$defs": {f"d{i}": {"allOf": [{"$ref": f"#/$defs/d{i + 1}"}, {"$ref": f"#/$defs/d{i + 1}"}]} for i in range(40)} | {"d40": text}, "$ref": "#/$defs/d0"},
                {"$defs": {f"d{i}": {"anyOf": [{"type": "array", "items": {"$ref": f"#/$defs/d{j}"}} for j in range(30)]} for i in range(30)}, "$ref": "#/$defs/d0"}]
    yield from [{"anyOf": [{"anyOf": [{"anyOf": [{"const": [i, j, k]} for i in range(12)]} for j in range(12)]} for k in range(12)]},
                {"allOf": [{"anyOf": [{"minLength": i}, {"maxLength": 99 - i}]} for i in range(40)]}, {"allOf": [{"anyOf": any_of}] * 60},
                {"allOf": [{"if": {"minimum": i}, "then": {"multipleOf": i + 2}, "else": {"maximum": 99 - i}} for i in range(30)]},
                {"oneOf": [{"minLength": i} for i in range(60)]}, {"not": {"anyOf": [{"pattern": f"a{i}+b"} for i in range(60)]}},
                nested(12, lambda v: {"anyOf": [v, {"type": "array", "items": v}]}, text), nested(600, lambda v: {"not": v}, text),
                nested(300, lambda v: {"type": "object", "properties": {"a": v}, "required": ["a"]}, text)]
    yield from [{"type": "string", "pattern": p} for p in
                ["^(a|a|aa)*$", "((a{1,100}){1,100}){1,100}", "^(a+)+$", "^(.*a){40}$", "(a|b)*a(a|b){30}", "^(?=.*a)(?=.*b)(?=.*c).*$", "^[\\p{L}\\p{N}]{0,5000}$",
                 "^" + "a?" * 3000 + "$", "^(" + "|".join(f"w{i}x*" for i in range(3000)) + ")*$", "(" * 4000 + ")" * 4000]]
    yield from [{"type": "number", "multipleOf": 1e-300}, {"type": "number", "multipleOf": 3.7e22}, {"type": "integer", "minimum": -10 ** 400, "maximum": 10 ** 400},
                {"type": "number", "minimum": 1.0000000000000002, "maximum": 1.0000000000000004}]
    yield from [{"type": "array", "minItems": 100000, "items": {"type": "array", "minItems": 100000}}, {"type": "array", "maxItems": 10 ** 9, "items": text},
                {"type": "array", "items": {"enum": list(range(40))}, "uniqueItems": True, "minItems": 39}, {"prefixItems": [text] * 20000},
                {"type": "array", "contains": {"const": 1}, "minContains": 5000, "maxContains": 5000}]
    yield from [{"type": "object", "required": [f"k{i}" for i in range(9000)]}, {"type": "object", "properties": {f"k{i}": {} for i in range(9000)}},
                {"type": "object", "patternProperties": {f"^k{i}": {"type": "integer"} for i in range(200)}}, {"type": "object", "minProperties": 100000},
                {"type": "object", "propertyNames": {"pattern": "^(a|b)*a(a|b){20}$"}, "minProperties": 3}]


HOSTILE = [{"json_schema": v} for v in schemas()] + [
    {"regex": "(x+x+)+y"}, {"regex": "(a?){5000}a{5000}"}, {"regex": ".*" * 3000}, {"regex": "(" * 9000}, {"regex": "a{100000}b{100000}"},
    {"grammar": "root ::= root"}, {"grammar": "root ::= (" * 5000}, {"grammar": "root ::= a a\n" + "\n".join(f"{c} ::= {d} {d}" for c, d in zip("abcdefghijklmnop", "bcdefghijklmnopq")) + '\nq ::= "x"'},
    {"grammar": 'root ::= root root | "a" |'}, {"grammar": 'root ::= ("a"?){1000}{1000}'}, {"grammar": "root ::= [" + "".join(f"\\U{i:08x}" for i in range(0x100, 0x8000, 2)) + "]*"},
    {"choice": ["x" * i for i in range(1, 1500)]}, {"choice": ["a"] * 50000},
]


def cpu_seconds(pid):
    """What all threads have computed."""
    total = 0
    for task in os.listdir(f"/proc/{pid}/task"):
        with contextlib.suppress(FileNotFoundError), open(f"/proc/{pid}/task/{task}/schedstat") as f:
            total += int(f.read().split()[0])
    return total / 1e9


def test_hostile_forms_get_an_answer_or_a_refusal_soon():
    s = Server(CHAT)
    check(len(HOSTILE) >= 60, len(HOSTILE))
    for more in HOSTILE:
        before = cpu_seconds(s.process.pid)
        a = s.post(CHATS, {**USER, "max_tokens": 4, "seed": 1, **more})
        took = cpu_seconds(s.process.pid) - before
        check(a.status in (200, 400), json.dumps(more)[:80], a.status, a.body[:300])
        check(took < 0.5 * SLOWNESS, json.dumps(more)[:80], took)  # alone on a machine, 0.1 s
    check(fits(content(s.post(CHATS, {**USER, **HOT, "json_schema": SCHEMA}))), "it goes on")
    s.stop()


def test_a_deep_schema_is_refused():
    s = Server(CHAT)
    sys.setrecursionlimit(10000)
    v = {"type": "null"}
    for _ in range(600):
        v = {"type": "array", "items": v}
    check(s.post(CHATS, {**USER, "max_tokens": 4, "json_schema": v}).status == 200)
    for _ in range(420):
        v = {"type": "array", "items": v}
    check(s.post(CHATS, {**USER, "max_tokens": 4, "json_schema": v}).status in (200, 400))
    s.stop()


run(globals(), sys.argv[6] if len(sys.argv) > 6 else "test_")
