#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""test_fields.py: tests what `quern serve` does with the fields that clients send: honoured, ignored and named, refused.

    test_fields.py QUERN STORY_MODEL CHAT_MODEL SLOWNESS PARROT_MODEL [PREFIX_OF_CASES]

test_serve.py describes the arguments. PARROT_MODEL says prepared texts, thoughts among them.
"""
import json
import sys

from lib.cases import check, run
from test_serve import CHAT, STORY, STORY_ASK, Server, joined, openapi, refused

PARROT = sys.argv[5]
TOOL = {"name": "f", "description": "d", "parameters": {"type": "object", "properties": {}}}
CHAT_TOOL = {"type": "function", "function": TOOL}
MESSAGES_TOOL = {"name": "f", "description": "d", "input_schema": TOOL["parameters"]}
USER = {"role": "user", "content": "hello"}
ASKS = {"/v1/chat/completions": {"messages": [USER], "max_tokens": 2}, "/v1/completions": {"prompt": "hello", "max_tokens": 2},
        "/v1/messages": {"messages": [USER], "max_tokens": 2}, "/v1/responses": {"input": "hello", "max_output_tokens": 2}}
CHATS, TEXTS, MESSAGES, RESPONSES = ASKS

# Fields of every API, and the names that the answer lists; True: that of the field.
EVERYWHERE = [
    ({"service_tier": "priority"}, True), ({"user": "u"}, True), ({"user": "a\0"}, True), ({"safety_identifier": "s"}, True),
    ({"prompt_cache_key": "k"}, True), ({"prompt_cache_retention": "24h"}, True), ({"prompt_cache_options": {"mode": "x"}}, True), ({"client_metadata": {"a": 1}}, True),
    ({"metadata": {"user_id": "u", "x": "y"}}, True), ({"verbosity": "low"}, True), ({"keep_alive": -1}, True), ({"keep_alive": "5m"}, True),
    ({"ttl": 300}, True), ({"id_slot": -1}, True), ({"timings_per_token": True}, True), ({"return_progress": True}, True),
    ({"reasoning_format": "auto"}, True), ({"include_reasoning": True}, True), ({"provider": {"order": ["a"]}}, True),
    ({"transforms": ["middle-out"]}, True), ({"route": "fallback"}, True), ({"models": ["a", "b"]}, True),
    ({"extra_body": {"a": {"b": 1}}}, True), ({"num_ctx": 16}, True),
    ({"cache_prompt": True, "skip_special_tokens": True, "use_beam_search": False, "min_tokens": 0, "options": {}}, []),
    ({"cache_prompt": False, "repeat_penalty": 1.1, "repeat_last_n": 32}, []),
    ({"grammar": "", "json_schema": None, "service_tier": None, "metadata": {}, "user": ""}, []),
    ({"lora": [], "wobble": None, "wibble": {}, "wabble": False, "webble": ""}, ["lora", "wobble", "wibble", "wabble", "webble"]),
]
STREAM_OPTIONS = ({"stream_options": {"include_obfuscation": True, "x": None}}, ["stream_options.include_obfuscation", "stream_options.x"])
OPENAI = [({"store": True}, True), ({"n_predict": 2}, []), ({"best_of": 1}, []), ({"n": 2, "best_of": 2}, []), ({"stop": ""}, []),
          ({"stop": ["", "zz"]}, []), ({"response_format": {}}, []), STREAM_OPTIONS,
          ({"stream_options": {"continuous_usage_stats": True}}, ["stream_options.continuous_usage_stats"])]
TAKEN = {
    CHATS: OPENAI + [
        ({"prediction": {"type": "content", "content": "x"}}, True), ({"top_logprobs": 3}, True), ({"top_logprobs": 0}, []),
        ({"functions": [], "function_call": "none", "audio": None}, []), ({"max_completion_tokens": 2}, []),
        ({"tools": [{"type": "function", "function": {**TOOL, "strict": True}}, {"type": "function", "function": {**TOOL, "name": "g"}}]}, []),
        ({"tools": [{**CHAT_TOOL, "cache_control": {"type": "ephemeral"}, "eager_input_streaming": True}]},
         ["tools[0].cache_control", "tools[0].eager_input_streaming"]),
        ({"tools": [{"type": "function", "function": {**TOOL, "strict": False}}]}, []),
        ({"thinking": {"type": "enabled", "budget_tokens": 100}}, ["thinking.budget_tokens"]), ({"think": "low"}, []), ({"think": False}, []),
        ({"enable_thinking": False}, []), ({"reasoning": {"effort": "low", "enabled": True, "max_tokens": 9}}, ["reasoning.max_tokens"]),
        ({"reasoning_effort": "none"}, []), ({"thinking_budget": 10}, True),
        ({"messages": [{"role": "user", "content": [{"type": "text", "text": "a", "cache_control": {"type": "ephemeral"}}]}]},
         ["messages[0].content[0].cache_control"]),
        ({"continue_final_message": False}, [])],
    TEXTS: OPENAI,
    MESSAGES: [
        ({"cache_control": {"type": "ephemeral"}}, True), ({"speed": "fast"}, True), ({"inference_geo": "us"}, True), ({"container": None}, []),
        ({"mcp_servers": [], "output_format": None}, []), ({"context_management": {}}, []), ({"context_management": {"edits": []}}, []),
        ({"context_management": {"edits": [{"type": "clear_thinking_20251015", "keep": "all"}]}}, True),
        ({"context_management": {"edits": [{"type": "clear_thinking_20251015", "keep": {"type": "all"}}, {"type": "compact_20260112"}]}}, True),
        ({"diagnostics": {"a": 1}}, True), ({"fallbacks": [{"model": "x"}]}, True),
        ({"output_config": {"task_budget": {"type": "tokens"}}}, ["output_config.task_budget"]),
        ({"context_management": {"edits": [{"type": "clear_tool_uses_20250919", "trigger": {"type": "input_tokens", "value": 1 << 30}}]}}, True),
        ({"thinking": {"type": "enabled", "budget_tokens": 31999, "display": "summarized"}}, ["thinking.budget_tokens", "thinking.display"]),
        ({"thinking": {"type": "adaptive"}}, []), ({"thinking": {"type": "disabled"}}, []), ({"output_config": {"effort": "low"}}, []),
        ({"system": [{"type": "text", "text": "s", "cache_control": {"type": "ephemeral", "ttl": "1h"}}]}, ["system[0].cache_control"]),
        ({"tools": [{**MESSAGES_TOOL, "strict": True, "eager_input_streaming": True, "cache_control": {"type": "ephemeral"},
                     "input_examples": [{}], "defer_loading": False, "allowed_callers": ["direct"], "type": "custom"}]},
         ["tools[0].eager_input_streaming", "tools[0].cache_control", "tools[0].input_examples"]),
        ({"messages": [USER, {"role": "assistant", "content": [
            {"type": "redacted_thinking", "data": "x"}, {"type": "thinking", "thinking": "t", "signature": "s"},
            {"type": "tool_use", "id": "i", "name": "f", "input": {}, "caller": {"type": "direct"}}]},
            {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "i", "is_error": True,
                                          "content": [{"type": "text", "text": "r", "cache_control": {"type": "ephemeral"}}]}]}]},
         ["messages[1].content[0]", "messages[1].content[2].caller", "messages[2].content[0].is_error",
          "messages[2].content[0].content[0].cache_control"]),
        ({"messages": [USER, {"role": "assistant", "content": [{"type": "tool_use", "id": "i", "name": "f", "input": {}}]},
                       {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "i"}]}]}, []),
    ],
    RESPONSES: [
        ({"truncation": "auto"}, True), ({"include": ["reasoning.encrypted_content"]}, True), ({"max_tool_calls": 3}, True),
        ({"text": {"verbosity": "high"}}, ["text.verbosity"]), ({"top_logprobs": 2}, True), STREAM_OPTIONS,
        ({"reasoning": {"effort": "low", "summary": "auto"}}, []), ({"background": False}, []),
        ({"context_management": [{"type": "compaction", "compact_threshold": 1 << 30}]}, True),
        ({"tools": [{"type": "function", **TOOL, "strict": True}]}, []),
        ({"input": [{"type": "message", "role": "user", "content": [{"type": "input_text", "text": "a"}]},
                    {"type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": "zz"},
                    {"type": "message", "id": "m", "status": "completed", "phase": "commentary", "role": "assistant",
                     "content": [{"type": "output_text", "text": "b", "annotations": [], "logprobs": []}, {"type": "refusal", "refusal": "c"}]},
                    {"type": "function_call", "id": "fc", "status": "completed", "call_id": "c", "name": "f", "arguments": "{}"},
                    {"type": "function_call_output", "call_id": "c", "output": [{"type": "input_text", "text": "d"}]}, {**USER}]},
         ["input.encrypted_content", "input.phase"]),
    ],
}

REFUSED = {
    None: [({"wobble": 1}, "wobble"), ({"grammar": "root ::= x"}, "grammar"), ({"json_schema": {"type": "objekt"}}, "json_schema"),
           ({"metadata": "x"}, "metadata"), ({"metadata": 5}, "metadata"), ({"service_tier": {"a": 1}}, "service_tier"),
           ({"keep_alive": [1]}, "keep_alive"), ({"models": "a"}, "models"), ({"use_beam_search": True}, "use_beam_search"),
           ({"skip_special_tokens": False}, "skip_special_tokens"), ({"min_tokens": 5}, "min_tokens"), ({"num_ctx": 1 << 30}, "num_ctx"),
           ({"num_ctx": -1}, "num_ctx"), ({"num_ctx": "x"}, "num_ctx"), ({"options": {"num_ctx": 5}}, "options"), ({"cache_prompt": 1}, "cache_prompt")],
    CHATS: [({"n": 2, "best_of": 3}, "best_of"), ({"n": 3, "best_of": 2}, "best_of"), ({"max_tokens": -2}, "max_tokens"),
            ({"response_format": {"type": "json_schema"}}, "response_format.json_schema"), ({"web_search_options": {}}, "web_search_options"),
            ({"modalities": ["text", "audio"]}, "modalities"), ({"functions": [TOOL]}, "functions"), ({"logit_bias": {"x": 1}}, "logit_bias"),
            ({"tool_choice": "sometimes"}, "tool_choice"), ({"tool_choice": "required"}, "tool_choice"), ({"tools": [{"type": "function", "function": {**TOOL, "strict": 5}}]}, "tools[0].strict"),
            ({"think": "a lot"}, "think"), ({"enable_thinking": "false"}, "enable_thinking"), ({"thinking": {"type": "x"}}, "thinking.type"),
            ({"thinking": {"budget_tokens": 5}}, "thinking"), ({"continue_final_message": True}, "continue_final_message"),
            ({"stop": [5]}, "stop"), ({"stream_options": {"include_obfuscation": 5}}, "stream_options.include_obfuscation")],
    MESSAGES: [({"mcp_servers": [{"type": "url"}]}, "mcp_servers"), ({"container": "c"}, "container"),
               ({"context_management": {"edits": [{"type": "clear_tool_uses_20250919", "trigger": {"type": "input_tokens", "value": 5}}]}},
                "context_management"),
               ({"context_management": {"edits": [{"type": "clear_thinking_20251015"}]}}, "context_management"),
               ({"context_management": {"edits": [{"type": "x", "trigger": {"type": "tool_uses", "value": 1 << 30}}]}}, "context_management"),
               ({"context_management": {"edits": [5]}}, "context_management"), ({"context_management": 5}, "context_management"),
               ({"context_management": {"x": 1}}, "context_management.x"), ({"output_config": {"format": {"type": "json_schema"}}}, "output_config.format.schema"),
               ({"tools": [{**MESSAGES_TOOL, "defer_loading": True}]}, "tools[0].defer_loading"), ({"max_tokens": -1}, "max_tokens"),
               ({"tool_choice": {"type": "tool", "name": "get_weather"}}, "tool_choice"), ({"tool_choice": {"type": "tool"}}, "tool_choice.name"),
               ({"tool_choice": {"type": "all"}}, "tool_choice.type"),
               ({"messages": [{"role": "user", "content": [{"type": "redacted_thinking", "data": "x"}]}]}, "messages")],
    RESPONSES: [({"background": True}, "background"), ({"text": {"format": {"type": "json_schema"}}}, "text.format.schema"),
                ({"context_management": [{"type": "compaction", "compact_threshold": 5}]}, "context_management"),
                ({"tools": [{"type": "function", **TOOL, "strict": "x"}]}, "tools[0].strict"),
                ({"tools": [{"type": "function", **TOOL}, {"type": "web_search"}]}, "tools[1].type"),
                ({"input": [{"type": "function_call_output", "call_id": "c", "output": [{"type": "input_image"}]}]}, "input.output")],
}


def last(answer, target):
    """The object with the end of a stream: it has `quern`."""
    ends = [e.get("response", e) for e in answer.events() if e != "[DONE]"]
    return [e for e in ends if "quern" in e][-1]


def test_fields_that_change_nothing_are_named():
    s = Server(CHAT)
    for target, base in ASKS.items():
        for more, names in EVERYWHERE + TAKEN[target]:
            wanted = [next(iter(more))] if names is True else names
            a = s.post(target, {**base, **more})
            got = a.json.get("quern", {}).get("ignored", [])
            check(a.status == 200 and got == wanted, target, more, "wanted", wanted, "got", a.status, got, a.body[:400])
        for more in {"user": "u", "lora": []}, {}:
            a = s.post(target, {**base, **more, "stream": True})
            check(a.status == 200 and last(a, target)["quern"].get("ignored", []) == list(more), target, a.status, a.body[-800:])
    for target in "/v1/chat/render", "/v1/messages/count_tokens":
        a = s.post(target, {"messages": [USER], "speed" if "count" in target else "user": "u"})
        check(a.json["quern"] == {"ignored": ["speed" if "count" in target else "user"]}, target, a.body)
        check("quern" not in s.post(target, {"messages": [USER]}).json, "nothing is ignored")
    many = [{"role": "user", "content": [{"type": "text", "text": "x", "cache_control": {"type": "ephemeral"}}] * 100}]
    a = s.post(MESSAGES, {"messages": many, "max_tokens": 1})
    names = a.json.get("quern", {}).get("ignored", [])
    check(len(names) == 32 and names[-1] == "..." and names[30] == "messages[0].content[30].cache_control", a.status, names)
    s.stop()


def test_fields_that_would_change_the_answer_are_refused():
    s = Server(CHAT)
    for target, base in ASKS.items():
        for more, name in REFUSED[None] + REFUSED.get(target, []):
            a = s.post(target, {**base, **more})
            check(a.status == 400 and a.error().get("param") == name and name in a.error()["message"], target, more, a.status, a.body[:400])
    s.stop()


def test_other_names_mean_the_same():
    s = Server(STORY)
    text = lambda **more: s.post("/v1/completions", {"prompt": "Once upon a time", "seed": 5, **more}).json["choices"][0]["text"]
    check(text(max_tokens=9) == text(n_predict=9) != text(max_tokens=8), "n_predict")
    check(text(repeat_penalty=1.9, repeat_last_n=5) == text(repetition_penalty=1.9, penalty_last_n=5) != text(), "repeat_penalty")
    check(text(stop="") == text(stop=["", ""]) == text(), "empty stop texts")
    r = s.post("/v1/completions", {**STORY_ASK, "max_tokens": -1, "ignore_eos": True}).json
    ctx = s.get("/v1/models").json["data"][0]["context_length"]
    check(r["usage"]["total_tokens"] == ctx and r["choices"][0]["finish_reason"] == "length", r["usage"], ctx)
    r = s.post("/v1/completions", {**STORY_ASK, "max_tokens": 100000, "ignore_eos": True}).json
    check(r["usage"]["total_tokens"] == ctx and r["choices"][0]["finish_reason"] == "length", "a limit beyond the room", r["usage"])
    cached = lambda **more: s.post("/v1/completions", {"prompt": "word " * 100, "max_tokens": 1, **more}).json["quern"]["cached_tokens"]
    n = [cached(), cached(), cached(cache_prompt=False), cached()]
    check(n[0] <= 1 and n[2] == 0 and n[1] == n[3] > 64, "cache_prompt", n)
    s.stop()


def test_thinking_is_switched_in_many_words():
    s = Server(CHAT)
    render = lambda **more: s.post("/v1/chat/render", {"messages": [USER], **more}).json["prompt"]
    off, on = render(chat_template_kwargs={"enable_thinking": False}), render(chat_template_kwargs={"enable_thinking": True})
    for more in {"enable_thinking": False}, {"think": False}, {"thinking": {"type": "disabled"}}, {"reasoning": {"enabled": False}}, \
            {"reasoning_effort": "none"}, {"reasoning": {"effort": "none"}}, {"thinking": False}:
        check(render(**more) == off, more, render(**more), off)
    for more in {"enable_thinking": True}, {"think": "high"}, {"thinking": {"type": "enabled"}}, {"thinking": {"type": "adaptive"}}:
        check(render(**more) == on, more)
    check(render(enable_thinking=True, chat_template_kwargs={"enable_thinking": False}) == off, "what the template is told goes first")
    count = lambda **more: s.post("/v1/messages/count_tokens", {"messages": [USER], **more}).json["input_tokens"]
    n = s.post("/v1/chat/render", {"messages": [USER], "enable_thinking": False}).json["count"]
    check(count(thinking={"type": "disabled"}) == n, "messages")
    s.stop()


def test_parts_of_all_apis_are_text():
    s = Server(CHAT)
    prompt = lambda messages: s.post("/v1/chat/render", {"messages": messages}).json.get("prompt")
    for role in "user", "assistant":
        want = prompt([USER, {"role": role, "content": "a\nb"}])
        for one, two in (("text", "text"), ("input_text", "text"), ("text", "output_text")):
            parts = [{"type": one, "text": "a"}, {"type": two, "text": "b"}]
            check(prompt([USER, {"role": role, "content": parts}]) == want, role, one, two)
    want = prompt([USER, {"role": "assistant", "content": "no"}])
    for m in {"content": [{"type": "refusal", "refusal": "no"}]}, {"content": None, "refusal": "no"}, {"content": "no", "refusal": None}:
        check(prompt([USER, {"role": "assistant", **m}]) == want, m)
    for part in {"type": "refusal"}, {"type": "refusal", "refusal": 5}, {"type": "input_text"}, {"type": "image_url"}, {}, 5, None:
        a = s.post("/v1/chat/render", {"messages": [{"role": "user", "content": [part]}]})
        check(a.status == 400, part, a.status, a.body)
    s.stop()


def test_several_prompts_are_answered_in_order():
    s = Server(STORY, "--parallel", "8", "--sessions", "8")
    post = lambda **more: s.post("/v1/completions", {"seed": 3, "max_tokens": 6, **more})
    tokens = s.post("/tokenize", {"content": "One day"}).json["tokens"]
    variants = {}, {"n": 3}, {"echo": True}, {"echo": True, "logprobs": 2, "n": 2}, {"stop": "a"}, {"max_tokens": 0}
    for prompts, some in ((["Once upon a time", "One day"], variants), ([tokens, "Once", [1, 2, 3]], variants[2:4])):
        for more in some:
            alone = [post(prompt=p, **more).json for p in prompts]
            want = [c for a in alone for c in a["choices"]]
            r = post(prompt=prompts, **more).json
            check([{**c, "index": 0} for c in r["choices"]] == [{**c, "index": 0} for c in want], prompts, more, r["choices"], want)
            check([c["index"] for c in r["choices"]] == list(range(len(want))), "numbers", r)
            for k in "prompt_tokens", "completion_tokens", "total_tokens":
                check(r["usage"][k] == sum(a["usage"][k] for a in alone), k, r["usage"])
            stream = post(prompt=prompts, stream=True, stream_options={"include_usage": True}, **more)
            texts, ends = joined(stream, "text")
            check([texts[i] for i in range(len(want))] == [c["text"] for c in want] and
                  [ends[i] for i in range(len(want))] == [c["finish_reason"] for c in want], more, texts, ends)
            events = list(stream.events())
            check(events[-1] == "[DONE]" and sum("quern" in e for e in events[:-1]) == 1 and
                  events[-2]["usage"]["completion_tokens"] == r["usage"]["completion_tokens"], more, events[-3:])
    r = post(prompt=["a"] * 5, best_of=1).json
    check(len({c["text"] for c in r["choices"]}) == 1 and len(r["choices"]) == 5, "each is answered as if it were alone", r)
    for prompt in (["a", 5], ["a", None], ["a", {}], [[1], [99999]], ["a", [""]], [[1], []], ["a"] * 2049):
        a = post(prompt=prompt)
        check(a.status == 400 and a.error()["param"] == "prompt", str(prompt)[:50], a.status, a.body[:300])
    refused(post(prompt=["a", "word " * 1000]), 400, "context_length_exceeded", "prompt", "1002")
    check(post(prompt="a").status == 200, "and still serves")
    s.stop()


def test_several_prompts_end_together():
    s = Server(STORY, "--parallel", "8", "--sessions", "8")
    ask = {"prompt": ["Once"] * 100, "max_tokens": 100, "ignore_eos": True, "n": 8, "stream": True}
    c = s.connect()
    c.request("POST", "/v1/completions", json.dumps(ask), {"Content-Type": "application/json"})
    r = c.getresponse()
    r.read(100)
    s.wait_for("requests_submitted_total", 2)
    check(s.ask("POST", f"/v1/requests/{r.headers['x-request-id']}/cancel").json["cancelled"] is True, "cancelled")
    body = r.read().decode()
    check(body.count('"finish_reason":"cancelled"') >= 400 and body.endswith("data: [DONE]\n\n"), body[-400:])
    held = s.raw("/v1/completions", ask)
    s.wait_for("requests_running", 1)
    held.close()
    s.wait_for("requests_running", 0)
    a = s.post("/v1/completions", {**ask, "stream": False, "deadline_ms": 30})
    refused(a, 504, "deadline_exceeded")
    s.stop()


def test_a_prompt_that_does_not_fit_is_refused_in_the_words_that_clients_know():
    s = Server(CHAT, "--ctx", "64")
    long = "word " * 300
    for target, body, param in ((CHATS, {"messages": [{"role": "user", "content": long}]}, "messages"), (TEXTS, {"prompt": long}, "prompt"),
                                (RESPONSES, {"input": long}, "input"), (TEXTS, {"prompt": ["a", long]}, "prompt"),
                                (TEXTS, {"prompt": [5] * 64}, "prompt")):
        for more in {}, {"stream": True}:
            refused(s.post(target, {**body, **more}), 400, "context_length_exceeded", param, "maximum context length is 64 tokens")
    a = s.post(MESSAGES, {"messages": [{"role": "user", "content": long}], "max_tokens": 32000})
    refused(a, 400, "context_length_exceeded", "messages", "prompt is too long: ")
    check("tokens > 63 maximum" in a.error()["message"] and a.error()["type"] == "invalid_request_error", a.body)
    check(s.post(TEXTS, {"prompt": [5] * 63, "max_tokens": 5}).json["usage"]["completion_tokens"] <= 1, "room for one")
    check(s.post(TEXTS, {"prompt": [5] * 64, "max_tokens": 0}).status == 200, "room for none")
    a = s.post(MESSAGES, {"messages": [USER], "max_tokens": 32000})
    check(a.status == 200, "a limit beyond the room ends there", a.body)
    s.stop()


def test_thoughts_are_counted():
    s = Server(PARROT, "--ctx", "4096")
    ask = {"messages": [{"role": "user", "content": "think"}], "logprobs": True}
    r = s.post(CHATS, ask).json
    n = r["usage"]["completion_tokens_details"]["reasoning_tokens"]
    thought = "".join(t["token"] for t in r["choices"][0]["logprobs"]["content"][:n])
    check(thought.strip().startswith("<think>") and thought.strip().endswith("</think>"), n, thought, r)
    check(0 < n < r["usage"]["completion_tokens"], r["usage"])
    two = s.post(CHATS, {**ask, "n": 2}).json["usage"]
    check(two["completion_tokens_details"]["reasoning_tokens"] == 2 * n, two)
    for options in {"include_usage": True}, {"include_usage": True, "continuous_usage_stats": True}:
        chunks = [e for e in s.post(CHATS, {**ask, "stream": True, "stream_options": options}).events() if e != "[DONE]"]
        check(chunks[-1]["usage"]["completion_tokens_details"]["reasoning_tokens"] == n and chunks[-1]["choices"] == [], chunks[-1])
        counts = [c["usage"]["completion_tokens"] for c in chunks if c["usage"]]
        check(counts == sorted(counts) and (len(counts) == len(chunks)) == ("continuous_usage_stats" in options), options, counts)
    u = s.post(RESPONSES, {"input": "think"}).json["usage"]
    check(u["output_tokens_details"]["reasoning_tokens"] == n and u["output_tokens"] == r["usage"]["completion_tokens"], u)
    u = s.post(CHATS, {"messages": [USER]}).json["usage"]
    check(u["completion_tokens_details"] == {"reasoning_tokens": 0}, "none", u)
    s.stop()


run(globals(), sys.argv[6] if sys.argv[6:] else "test_", openapi.note_absence())
