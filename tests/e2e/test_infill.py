#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""test_infill.py: tests how `quern serve` fills the gap between two texts, as editors ask for it.

    test_infill.py QUERN STORY_MODEL CHAT_MODEL SLOWNESS PARROT_MODEL [PREFIX_OF_CASES]

PARROT_MODEL has the tokens that mark a gap, and always fills it with the same text; STORY_MODEL has no such tokens. The
arguments and the output are those of test_serve.py, and each function test_* is a case.
"""
import sys

from lib.cases import check, run
from test_serve import Server, refused

PARROT = sys.argv[5]
FILLING = "a + b;\n        c = 7;\n\n\td();\n}\nend"
# What llama.vim sends, and what it reads.
VIM = {"id_slot": 0, "input_prefix": "def f(a, b):\n", "input_suffix": "\n", "input_extra": [], "prompt": "    return ",
       "n_predict": 128, "stop": [], "n_indent": 0, "top_k": 40, "top_p": 0.9, "samplers": ["top_k", "top_p", "infill"],
       "stream": False, "cache_prompt": True, "t_max_prompt_ms": 500, "t_max_predict_ms": 100000}
FIELDS = ["content", "timings/prompt_n", "timings/prompt_ms", "timings/prompt_per_token_ms", "timings/prompt_per_second",
          "timings/predicted_n", "timings/predicted_ms", "timings/predicted_per_token_ms", "timings/predicted_per_second",
          "truncated", "tokens_cached"]
MARKED = "<|fim_prefix|>int x = <|fim_suffix|>;<|fim_middle|>"


def count(s, **body):
    return s.post("/v1/completions", {"max_tokens": 1, **body}).json["usage"]["prompt_tokens"]


def tokens(s, text):
    return s.post("/tokenize", {"content": text, "add_special": False}).json["count"]


def test_an_editor_gets_what_it_reads():
    s = Server(PARROT)
    r = s.post("/infill", {**VIM, "response_fields": FIELDS})
    check(set(r.json) == set(FIELDS) and r.json["content"] == FILLING and not r.json["truncated"], r.body)
    check(b'"content":"' in r.body and r.body.startswith(b"{"), "llama.vim looks at the bytes")
    whole = s.post("/infill", VIM).json
    check(whole["content"] == FILLING and whole["stop_type"] == "eos" and whole["stop"] and whole["has_new_line"], whole)
    check(whole["tokens_evaluated"] == tokens(s, "def f(a, b):\n    return ") + tokens(s, "\n") + 3, whole)
    # The request by which it warms the cache up, and that of llama.vscode.
    warm = {**VIM, "n_predict": 0, "temperature": 0.0, "samplers": [], "response_fields": [""]}
    check(s.post("/infill", warm).json == {}, "no field has an empty name")
    two = s.post("/infill", {**VIM, "n_cmpl": 2}).json
    check([a["content"] for a in two] == [FILLING] * 2 and [a["index"] for a in two] == [0, 1], two)
    s.stop()


def test_a_stream_has_the_same_text():
    s = Server(PARROT)
    events = list(s.post("/infill", {**VIM, "stream": True}).events())
    check("".join(e["content"] for e in events) == FILLING, events)
    check([e["stop"] for e in events] == [False] * (len(events) - 1) + [True], "the last one says stop")
    check(events[-1]["stop_type"] == "eos" and events[-1]["timings"]["predicted_n"] > 3, events[-1])
    events = list(s.post("/infill", {**VIM, "stream": True, "n_indent": 4}).events())
    check("".join(e["content"] for e in events) == FILLING.split("\n\n")[0], events)
    s.stop()


def test_the_answer_ends_before_a_line_that_is_indented_less():
    s = Server(PARROT)
    for indent, text in (1, "a + b;\n        c = 7;\n\n\td();"), (4, "a + b;\n        c = 7;"), (9, "a + b;"):
        r = s.post("/infill", {**VIM, "n_indent": indent}).json
        check(r["content"] == text and r["stop_type"] == "limit", indent, r)
    r = s.post("/infill", {**VIM, "stop": ["c = 7", "zz"]}).json
    check(r["content"] == "a + b;\n        " and (r["stop_type"], r["stopping_word"]) == ("word", "c = 7"), r)
    r = s.post("/infill", {**VIM, "n_predict": 2, "samplers": ["top_k", "temperature"]}).json
    check(FILLING.startswith(r["content"]) and r["tokens_predicted"] == 2 and r["stop_type"] == "limit", r)
    s.stop()


def test_what_does_not_fit_is_left_out_and_the_answer_says_so():
    s = Server(PARROT, "--ctx", "256")
    ask = {**VIM, "n_predict": 64}
    extra = [{"text": "zz" * 40, "filename": f"f{i}.c", "time": i} for i in range(4)]
    r = s.post("/infill", {**ask, "input_extra": extra}).json
    check(r["truncated"] and r["content"] == FILLING and r["tokens_evaluated"] <= 192, r)
    one = s.post("/infill", {**ask, "input_extra": extra[-1:]}).json
    check(not one["truncated"], one)
    r = s.post("/infill", {**ask, "input_prefix": "q" * 5000, "input_suffix": "w" * 5000}).json
    check(r["truncated"] and r["content"] == FILLING and r["tokens_evaluated"] == 192, r)
    r = s.post("/infill", {**ask, "n_predict": 100000}).json
    check(r["content"] == FILLING, "n_predict beyond the context", r)
    r = s.post("/infill", {**ask, "n_predict": -1}).json
    check(r["content"] == FILLING, "n_predict without a bound", r)
    s.stop()


def test_files_are_separated_as_the_model_was_trained():
    s = Server(PARROT)
    plain = s.post("/infill", VIM).json["tokens_evaluated"]
    r = s.post("/infill", {**VIM, "input_extra": [{"text": "xyz\n", "filename": "a.c"}]}).json
    check(r["tokens_evaluated"] == plain + 3 + tokens(s, "myproject\n") + tokens(s, "a.c") + tokens(s, "\n") +
          tokens(s, "xyz\n") + tokens(s, "filename\n"), r)
    s.stop()


def test_the_marks_of_a_gap_are_read_in_a_completion():
    s = Server(PARROT)
    r = s.post("/v1/completions", {"prompt": MARKED, "max_tokens": 99}).json
    check(r["choices"][0]["text"] == FILLING and r["choices"][0]["finish_reason"] == "stop", r)
    check(r["usage"]["prompt_tokens"] == 3 + tokens(s, "int x = ") + 1, r["usage"])
    text = len(MARKED.encode())  # each byte is a token here, as long as no other token has its bytes
    check(count(s, prompt=MARKED, parse_special=False) > text // 3, "unless the client says no")
    check(count(s, prompt=MARKED, parse_special=True) == 3 + tokens(s, "int x = ") + 1, "or says that all marks count")
    evil = "<|im_end|>"
    check(count(s, prompt=evil) > 1 and count(s, prompt=evil, parse_special=True) == 1, "no other mark is read")
    chat = {"messages": [{"role": "user", "content": "<|fim_middle|>"}]}
    rendered = s.post("/v1/chat/render", chat).json
    mark = s.post("/tokenize", {"content": "<|fim_middle|>", "parse_special": True}).json["tokens"]
    check(len(mark) == 1 and mark[0] not in rendered["tokens"], "nor any in a conversation")
    s.stop()


def test_a_suffix_fills_a_gap():
    s = Server(PARROT)
    r = s.post("/v1/completions", {"prompt": "int x = ", "suffix": ";", "max_tokens": 99, "echo": True}).json
    check(r["choices"][0]["text"] == "int x = " + FILLING, r)
    check(r["usage"]["prompt_tokens"] == 3 + tokens(s, "int x = ") + 1, r["usage"])
    evil = "<|fim_middle|>"
    r = s.post("/v1/completions", {"prompt": evil, "suffix": evil, "max_tokens": 1}).json
    check(r["usage"]["prompt_tokens"] == 3 + 2 * tokens(s, evil), "texts next to a gap have no marks", r["usage"])
    check(s.post("/v1/completions", {"prompt": "x", "suffix": "", "max_tokens": 1}).status == 200, "no suffix")
    refused(s.post("/v1/completions", {"prompt": [5], "suffix": "x"}), 400, "unsupported_value", "suffix", "token ids")
    refused(s.post("/v1/completions", {"prompt": "x", "suffix": 5}), 400, "invalid_type", "suffix")
    s.stop()


def test_a_model_without_the_tokens_refuses():
    s = Server()
    refused(s.post("/v1/completions", {"prompt": "x", "suffix": "y"}), 400, "unsupported_value", "suffix", "cannot fill in")
    refused(s.post("/infill", VIM), 400, "unsupported_value", "input_prefix", "cannot fill in")
    check(count(s, prompt="<|fim_prefix|>") > 3, "and reads the marks as text")
    s.stop()


def test_values_that_make_no_sense_are_refused_by_name():
    s = Server(PARROT)
    for members, code, param in (
            ({"input_prefix": 5}, "invalid_type", "input_prefix"),
            ({"input_suffix": ["x"]}, "invalid_type", "input_suffix"),
            ({"input_extra": {}}, "invalid_type", "input_extra"),
            ({"input_extra": [5]}, "invalid_type", "input_extra[0]"),
            ({"input_extra": [{"text": "x"}, {}]}, "missing_field", "input_extra[1].text"),
            ({"input_extra": [{"text": "x", "wobble": 1}]}, "unknown_field", "input_extra[0].wobble"),
            ({"input_extra": [{"text": "x", "filename": 7}]}, "invalid_type", "input_extra[0].filename"),
            ({"n_predict": -2}, "out_of_range", "n_predict"),
            ({"n_indent": -1}, "out_of_range", "n_indent"),
            ({"n_indent": 1e9}, "out_of_range", "n_indent"),
            ({"samplers": "top_k"}, "invalid_type", "samplers"),
            ({"samplers": ["wobble"]}, "unsupported_value", "samplers"),
            ({"response_fields": [5]}, "invalid_type", "response_fields"),
            ({"response_fields": ["x" * 300]}, "out_of_range", "response_fields"),
            ({"response_fields": ["a"] * 100}, "out_of_range", "response_fields"),
            ({"response_fields": ["a\0b"]}, "invalid_value", "response_fields"),
            ({"response_fields": ["content"], "stream": True}, "unsupported_value", "response_fields"),
            ({"lora": [{"id": 0, "scale": 0.5}]}, "unsupported_value", "lora"),
            ({"grammar": "root ::= x"}, "invalid_value", "grammar"),
            ({"wobble": 1}, "unknown_field", "wobble")):
        refused(s.post("/infill", {**VIM, **members}), 400, code, param)
    for odd in "", "\0", "\ufffd<|fim_suffix|>\0", "\r\n\t\r\n", "🙂" * 50:
        r = s.post("/infill", {**VIM, "input_prefix": odd, "input_suffix": odd, "prompt": "",
                               "input_extra": [{"text": odd, "filename": odd}]}).json
        check(r["content"] == FILLING, repr(odd), r)
    check(s.post("/infill", {}).json["content"] == FILLING, "a gap between nothing and nothing")
    for way in "timings/", "/", "timings//prompt_n", "content/x", "//////":
        check(s.post("/infill", {**VIM, "n_predict": 1, "response_fields": [way]}).json == {}, way)
    s.stop()


if __name__ == "__main__":
    run(globals(), sys.argv[6] if len(sys.argv) > 6 else "test_")
