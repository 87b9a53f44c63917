#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""test_ollama.py: tests the API of Ollama that `quern serve` has, request by request. clients/ollama.mjs uses it with a client.

    test_ollama.py QUERN STORY_MODEL CHAT_MODEL SLOWNESS PARROT_MODEL [PREFIX_OF_CASES]

test_serve.py describes the other arguments; PARROT_MODEL says what is known. Every reply is compared with
docs/openapi.json.
"""
import json
import re
import subprocess
import sys
import threading
import time

from lib import openapi
from lib.cases import check, run, started
from lib.files import path
from test_serve import CHAT, LIMIT, QUERN, STORY, Server

PARROT = sys.argv[5]
HELLO = "Grüße! 😀 What can I do?"
HI = [{"role": "user", "content": "hi"}]
TOOLS = [{"type": "function", "function": {"name": n, "description": "d", "parameters": {"type": "object", "properties": {}}}}
         for n in ("get_weather", "get_time")]


class Several(Server):
    """A running daemon of several models, which have their own names."""

    def __init__(self, *args):
        self.sock, self.log = path(f"run{len(started)}/quern.sock"), open(path(f"log{len(started)}"), "w+b")
        self.process = subprocess.Popen([QUERN, "serve", "--listen", self.sock, "--threads", "1", *args], stdout=subprocess.DEVNULL,
                                        stderr=self.log)
        started.append(self)
        end = time.monotonic() + LIMIT
        while not re.search(r"serving .*\n", self.stderr()) and time.monotonic() < end:
            time.sleep(0.01)


def lines(answer):
    check(answer.headers["Content-Type"] == "application/x-ndjson", answer.headers["Content-Type"])
    check(answer.body.endswith(b"\n"), answer.body[-50:])
    return [json.loads(x) for x in answer.body.decode().splitlines()]


def refused(answer, status, *words):
    error = answer.json["error"]
    check(answer.status == status and isinstance(error, str) and all(w in error for w in words), status, words, "got", answer.status,
          answer.body)


def show(s, target, body, **more):
    return s.post(target, {"stream": False, **body}, **more).json


# ---- models ----

def test_a_probe_finds_a_version():
    s = Server(PARROT, tcp=True)
    v = s.get("/api/version")
    check([int(x) >= 0 for x in v.json["version"].split(".")] == [True] * 3, v.body)
    c = s.connect()
    c.request("HEAD", "/api/version")
    r = c.getresponse()
    check(r.status == 200 and r.read() == b"", r.status)
    c.close()
    s.stop()


def test_models_are_listed_without_loading_them():
    s = Several("--ctx", "4096", "--idle", "90", "small=" + PARROT, "chat:8b=" + CHAT)
    tags = s.get("/api/tags").json["models"]
    check([m["name"] for m in tags] == ["small:latest", "chat:8b"] and all(m["model"] == m["name"] for m in tags), tags)
    small, chat = tags
    check(small["details"]["family"] == "llama" and chat["details"]["family"] == "qwen3", tags)
    check(chat["details"]["quantization_level"] == "Q8_0" and chat["details"]["parameter_size"][-1] in "KMB", tags)
    check(len(small["digest"]) == 64 and small["digest"] != chat["digest"] and small["size"] > 1000, tags)
    for name in "small", "small:latest":
        shown = s.post("/api/show", {"model": name}).json
        check(shown["details"] == small["details"], shown["details"])
        check(shown["capabilities"] == ["completion", "tools", "insert", "thinking"], shown["capabilities"])
        check("<|im_start|>" in shown["template"], shown["template"])
        info = shown["model_info"]
        check(info["general.architecture"] == "llama" and info["llama.block_count"] == 1, info)
        check(info["tokenizer.ggml.tokens"] is None and info["tokenizer.ggml.add_bos_token"] is False, info)
        check(info["general.parameter_count"] > 1000 and isinstance(info["llama.attention.layer_norm_rms_epsilon"], float), info)
        check(info["llama.context_length"] == 4096 and "4096" in shown["parameters"], info, "is what is served here")
    check(s.post("/api/show", {"name": "chat:8b"}).json["details"] == chat["details"], "by its old name")
    check(s.get("/api/ps").json == {"models": []}, "none is loaded")
    check(s.post("/api/generate", {"model": "small"}).json["done_reason"] == "load", "loads it")
    (ps,) = s.get("/api/ps").json["models"]
    check(ps["name"] == "small:latest" and ps["size"] > 0 and ps["size_vram"] == 0 and ps["context_length"] == 4096, ps)
    check(ps["expires_at"] < small["modified_at"][:3] + "9", ps)
    for target in "/api/chat", "/api/generate", "/api/show", "/api/embed", "/api/embeddings":
        refused(s.post(target, {"model": "other"}), 404, "model 'other' not found")
        refused(s.post(target, {"model": "small:8b"}), 404, "model 'small:8b' not found")
        refused(s.post(target, {}), 400, "model is missing")
    refused(s.post("/api/show", {"model": "small", "verbose": True}), 400, "verbose")
    s.stop()


def test_models_are_not_changed():
    s = Server(PARROT)
    check(lines(s.post("/api/pull", {"model": "m"})) == [{"status": "success"}], "pulled")
    check(show(s, "/api/pull", {"name": "m:latest"}) == {"status": "success"}, "pulled")
    refused(s.post("/api/pull", {"model": "x"}), 501, "model 'x' not found", "quern pull")
    refused(s.post("/api/pull", {"model": "m", "insecure": True}), 400, "insecure")
    refused(s.post("/api/push", {"model": "m"}), 501, "--share")
    refused(s.post("/api/create", {"model": "m", "from": "x"}), 501, "quern serve")
    refused(s.post("/api/copy", {"source": "m", "destination": "n"}), 501, "NAME=FILE")
    refused(s.ask("DELETE", "/api/delete", {"model": "m"}), 501, "quern rm")
    refused(s.get("/api/blobs/sha256:0"), 404, "blobs")
    s.stop()


# ---- answers ----

def test_a_chat_is_lines_of_json():
    s = Server(PARROT)
    all = lines(s.post("/api/chat", {"model": "m:latest", "messages": HI}))
    check("".join(x["message"]["content"] for x in all) == HELLO and len(all) > 8, all)
    check([x["done"] for x in all] == [False] * (len(all) - 1) + [True], all)
    end = all[-1]
    whole = show(s, "/api/chat", {"messages": HI})
    check(whole["message"] == {"role": "assistant", "content": HELLO}, whole)
    for x in end, whole:
        check(x["done_reason"] == "stop" and x["model"] == "m" and x["created_at"].endswith("Z"), x)
        check(x["prompt_eval_count"] > 10 and x["eval_count"] > 10 and x["prompt_eval_count"] == end["prompt_eval_count"], x)
        check(x["total_duration"] >= x["prompt_eval_duration"] + x["eval_duration"] > 0 <= x["load_duration"], x)
    cut = show(s, "/api/chat", {"messages": HI, "options": {"num_predict": 3}})
    check(cut["done_reason"] == "length" and cut["eval_count"] == 3 and HELLO.startswith(cut["message"]["content"].rstrip("\ufffd")), cut)
    for n in 0, -1, -2:
        check(show(s, "/api/chat", {"messages": HI, "options": {"num_predict": n}})["message"]["content"] == HELLO, n)
    stopped = show(s, "/api/chat", {"messages": HI, "options": {"stop": ["What"]}})
    check(stopped["message"]["content"] == "Grüße! 😀 " and stopped["done_reason"] == "stop", stopped)
    s.stop()


def test_thoughts_and_calls_come_apart():
    s = Server(PARROT)
    ask = {"messages": [{"role": "user", "content": "think"}]}
    thought, said = "Two and two; that is easy.", "It is four."
    m = show(s, "/api/chat", {**ask, "think": True})["message"]
    check(m["thinking"].strip() == thought and m["content"] == said, m)
    for think, ignored in (True, None), (False, ["think"]), ("high", ["think"]), (None, None):
        r = show(s, "/api/chat", {**ask, "think": think})
        check(r["quern"].get("ignored") == ignored and r["message"]["content"] == said, think, r, "its template reads no switch")
    all = lines(s.post("/api/chat", {**ask, "think": "high"}))
    check("".join(x["message"].get("thinking", "") for x in all).strip() == thought, all)
    g = show(s, "/api/generate", {"prompt": "think"})
    check(g["thinking"].strip() == thought and g["response"] == said, g)
    calls = {"messages": [{"role": "user", "content": "both"}], "tools": TOOLS}
    m = show(s, "/api/chat", calls)["message"]
    check(m["content"] == "I shall look.\n" or m["content"] == "I shall look.", m)
    check([(c["function"]["index"], c["function"]["name"], c["function"]["arguments"]) for c in m["tool_calls"]] ==
          [(0, "get_weather", {"city": "Köln"}), (1, "get_time", {})], m)
    check({len(c["id"]) for c in m["tool_calls"]} == {9} and m["tool_calls"][0]["id"] != m["tool_calls"][1]["id"], m)
    streamed = [c for x in lines(s.post("/api/chat", calls)) for c in x["message"].get("tool_calls", [])]
    check([c["function"] for c in streamed] == [c["function"] for c in m["tool_calls"]], streamed)
    # The loop goes on with what the model has said, with ids and without.
    bare = [{"function": {"name": c["function"]["name"], "arguments": c["function"]["arguments"]}} for c in m["tool_calls"]]
    for message, results in (m, [{"role": "tool", "tool_name": "get_time", "content": "noon"}, {"role": "tool", "content": "21"}]), \
            ({"role": "assistant", "tool_calls": bare, "content": None, "images": []}, [{"role": "tool", "tool_name": "x", "content": "21"}]), \
            ({"role": "assistant", "thinking": "hmm", "tool_calls": bare}, [{"role": "tool", "tool_call_id": "1", "content": "21"}]):
        r = show(s, "/api/chat", {**calls, "messages": [*calls["messages"], message, *results]})
        check(r.get("message", {}).get("content") == "It is 21 degrees, as the tool says.", r)
    s.stop()


def test_a_prompt_goes_through_the_template_or_not():
    s = Server(PARROT)
    check(show(s, "/api/generate", {"prompt": "hi"})["response"] == HELLO, "a message of the user")
    with_system = show(s, "/api/generate", {"prompt": "hi", "system": "Be kind."})
    check(with_system["response"] == HELLO, with_system)
    chat = show(s, "/api/chat", {"messages": [{"role": "system", "content": "Be kind."}, *HI]})
    check(chat["prompt_eval_count"] == with_system["prompt_eval_count"], "the same prompt")
    raw = show(s, "/api/generate", {"prompt": "<|say:hello|>", "raw": True})
    check(raw["response"] == HELLO and raw["prompt_eval_count"] == 1, raw)
    refused(s.post("/api/generate", {"prompt": "x", "raw": True, "system": "x"}), 400, "system")
    for target, empty in ("/api/generate", {"response": ""}), ("/api/chat", {"message": {"role": "assistant", "content": ""}}):
        for body in {}, {"prompt": ""} if "gen" in target else {"messages": []}, {"keep_alive": 0}, {"keep_alive": "-1m"}:
            r = s.post(target, body).json
            check(r["done"] and r["done_reason"] == "load" and empty.items() <= r.items(), r)
            check(r.get("quern") == ({"ignored": ["keep_alive"]} if "keep_alive" in body else None), r)
    odd = "a\0b\ufffd"
    for body in {"prompt": odd, "system": odd}, {"prompt": odd, "raw": True}:
        check(s.post("/api/generate", {"options": {"num_predict": 2}, **body}).status == 200, body)
    check(s.post("/api/chat", {"messages": [{"role": "user", "content": odd}]}).status == 200, "odd")
    s.stop()


def test_a_gap_is_filled():
    s = Server(PARROT)
    ask = {"prompt": "int x = ", "suffix": ";\n"}
    want = s.post("/v1/completions", {**ask, "max_tokens": 100}).json
    r = show(s, "/api/generate", ask)
    check(r["response"] == want["choices"][0]["text"] and "c = 7" in r["response"] and "thinking" not in r, r, want)
    check(r["prompt_eval_count"] == want["usage"]["prompt_tokens"] and r["done_reason"] == "stop", r)
    check("".join(x["response"] for x in lines(s.post("/api/generate", ask))) == r["response"], "a stream has the same text")
    check(show(s, "/api/generate", {"suffix": ask["suffix"]})["response"] == r["response"], "at the beginning")
    refused(s.post("/api/generate", {**ask, "system": "x"}), 400, "system")
    refused(s.post("/api/generate", {**ask, "raw": True}), 400, "suffix")
    s.stop()
    s = Server(STORY)
    refused(s.post("/api/generate", ask), 400, "suffix")
    s.stop()


def test_a_model_without_a_template_continues_the_prompt():
    s = Server(STORY)
    ask = {"prompt": "Once upon a time", "max_tokens": 12, "temperature": 0}
    text = s.post("/v1/completions", ask).json["choices"][0]["text"]
    options = {"num_predict": 12, "temperature": 0}
    for prompt in ask["prompt"], "<s>" + ask["prompt"]:
        r = show(s, "/api/generate", {"prompt": prompt, "raw": prompt[0] == "<", "options": options})
        check(r["response"] == text and r["prompt_eval_count"] == 5, r, text)
    refused(s.post("/api/generate", {"prompt": "x", "system": "y"}), 400, "system")
    refused(s.post("/api/chat", {"messages": HI}), 400, "no chat template")
    check(s.post("/api/show", {"model": "m"}).json["capabilities"] == ["completion"], "nothing else")
    refused(s.post("/api/generate", {"prompt": "x", "think": True}), 400, '"m" does not support thinking')
    check(s.post("/api/generate", {"prompt": "x", "think": False, "options": options}).status == 200, "it does not think")
    s.stop()


def test_options_are_honoured():
    """Each of them gives what the field of another API gives."""
    s = Server(CHAT)
    openai = lambda **more: s.post("/v1/chat/completions", {"messages": HI, "max_tokens": 12, "seed": 7, **more}).json
    base = {"seed": 7, "num_predict": 12}
    texts = set()
    for options, fields in (({}, {}), ({"temperature": 0}, {"temperature": 0}), ({"top_k": 3}, {"top_k": 3}), ({"top_p": 0.2}, {"top_p": 0.2}),
                            ({"min_p": 0.4}, {"min_p": 0.4}), ({"typical_p": 0.3}, {"typical_p": 0.3}),
                            ({"repeat_penalty": 1.9, "repeat_last_n": -1}, {"repetition_penalty": 1.9, "penalty_last_n": -1}),
                            ({"presence_penalty": 1.5, "frequency_penalty": 1}, {"presence_penalty": 1.5, "frequency_penalty": 1}),
                            ({"mirostat": 2}, {"mirostat_tau": 5}), ({"mirostat": 2, "mirostat_tau": 1}, {"mirostat_tau": 1}),
                            ({"mirostat": 0, "mirostat_tau": 1, "mirostat_eta": 0.5}, {}), ({"seed": 8}, {"seed": 8}),
                            ({"num_ctx": 64, "num_gpu": 99, "tfs_z": 1.0, "use_mmap": True}, {})):
        r = show(s, "/api/chat", {"messages": HI, "options": {**base, **options}})
        want = openai(**fields)["choices"][0]["message"]["content"]
        check(r["message"]["content"] == want, options, r["message"], want)
        texts.add(want)
        ignored = {"options." + k for k in options if k in ("num_ctx", "num_gpu", "use_mmap")}
        if options.get("mirostat") == 0:
            ignored |= {"options.mirostat_tau", "options.mirostat_eta"}
        check(set(r["quern"].get("ignored", [])) == ignored, r["quern"])
    check(len(texts) > 6, texts)
    drawn = {show(s, "/api/chat", {"messages": HI, "options": {"seed": -1, "num_predict": 12}})["message"]["content"] for _ in range(4)}
    check(len(drawn) > 1, "seed -1 is a random one", drawn)
    want = openai(logprobs=True, top_logprobs=2)["choices"][0]["logprobs"]["content"]
    r = show(s, "/api/chat", {"messages": HI, "options": base, "logprobs": True, "top_logprobs": 2})
    check(r["logprobs"] == want and len(want) > 3, r, want)
    all = lines(s.post("/api/chat", {"messages": HI, "options": base, "logprobs": True, "top_logprobs": 2}))
    check([x for one in all for x in one["logprobs"]] == want, all)
    s.stop()


def test_what_is_not_done_is_refused_by_name():
    s = Server(PARROT, "--ctx", "256")
    for body, name in (
            ({"format": "yaml"}, "format"), ({"format": {"type": "objekt"}}, "format: /type"), ({"format": 1}, "format"),
            ({"think": "much"}, "think"), ({"think": 1}, "think"), ({"keep_alive": "soon"}, "keep_alive"), ({"keep_alive": []}, "keep_alive"),
            ({"options": []}, "options"), ({"options": {"num_ctx": 257}}, "256 tokens"),
            ({"options": {"mirostat": 1}}, "options.mirostat"), ({"options": {"tfs_z": 0.5}}, "options.tfs_z"),
            ({"options": {"top_k": "x"}}, "options.top_k"), ({"options": {"seed": 0.5}}, "options.seed"), ({"options": {"num_gpu": [1]}}, "options.num_gpu"),
            ({"options": {"temperature": -1}}, "options.temperature"), ({"options": {"numb": 1}}, "options.numb"),
            ({"options": {"num_predict": -3}}, "options.num_predict"), ({"stream": "no"}, "stream"), ({"logprobs": 1}, "logprobs"),
            ({"top_logprobs": 21}, "top_logprobs"), ({"n": 2}, "n"), ({"model": 7}, "model")):
        for target, more in ("/api/chat", {"messages": HI}), ("/api/generate", {"prompt": "x"}):
            refused(s.post(target, {**more, **body}), 400, name)
    for body, name in (({"images": ["aGk="]}, "images"), ({"template": "x"}, "template"), ({"suffix": 1}, "suffix"), ({"context": [1]}, "context"),
                       ({"system": 1}, "system"), ({"raw": 1}, "raw"), ({"prompt": ["x"]}, "prompt"), ({"prompt": "x" * 100000}, "prompt")):
        refused(s.post("/api/generate", {"prompt": "x", **body}), 400, name)
    for messages, name in (([{"role": "user", "content": "x", "images": ["aGk="]}], "messages[0].images"), ([1], "messages"), ("x", "messages"),
                           ([{"role": "user", "content": 7}], "content"), ([{"content": "x"}], "role"),
                           ([{"role": "assistant", "tool_calls": [{}]}], "tool_calls[0].function"), ([{"role": "assistant", "tool_calls": 1}], "tool_calls")):
        refused(s.post("/api/chat", {"messages": messages}), 400, name)
    for body in ({"template": "", "suffix": "", "context": [], "images": [], "format": "", "options": {}, "system": "", "keep_alive": "1h30m", "think": None},
                 {"template": None, "suffix": None, "context": None, "images": None, "format": None, "options": {"num_gpu": None}, "system": None}):
        check(show(s, "/api/generate", {"prompt": "hi", **body})["response"] == HELLO, body)
    check(s.post("/api/chat", {"messages": HI, "tools": None, "format": ""}).status == 200, "as if they were absent")
    refused(s.post("/api/chat", {"messages": [{"role": "user", "content": "x" * 3000}]}), 400, "256")
    refused(s.post("/api/chat", b"[]"), 400, "JSON object")
    s.stop()


# ---- vectors ----

def test_vectors_of_texts():
    s = Server(CHAT, "--ctx", "64")
    texts = ["hello", "Once upon a time"]
    want = [x["embedding"] for x in s.post("/v1/embeddings", {"input": texts}).json["data"]]
    r = s.post("/api/embed", {"model": "m", "input": texts}).json
    check(r["embeddings"] == want and r["model"] == "m" and r["prompt_eval_count"] > 2 and r["total_duration"] > 0, r)
    one = s.post("/api/embed", {"input": texts[1], "keep_alive": "5m", "options": {"temperature": 0}, "truncate": False}).json
    check(one["embeddings"] == want[1:] and one["quern"] == {"ignored": ["keep_alive", "options"]}, one)
    check(s.post("/api/embeddings", {"prompt": texts[0], "options": {}}).json == {"embedding": want[0]}, "the older form")
    long = "ä " * 500
    for text in long, "x" * 100000, "ä" * 50000:
        check(s.post("/api/embed", {"input": text}).json["prompt_eval_count"] == 64, "its end is cut off")
        refused(s.post("/api/embed", {"input": text, "truncate": False}), 400, "64 tokens")
    check(s.post("/api/embeddings", {"prompt": long}).status == 200, "its end is cut off")
    ids = [1] * 100
    check(s.post("/api/embed", {"input": [ids, [5]]}).json["prompt_eval_count"] == 65, "its end is cut off")
    for n in 2, len(want[0]):
        short = s.post("/api/embed", {"input": texts, "dimensions": n}).json["embeddings"]
        check(short == [x["embedding"] for x in s.post("/v1/embeddings", {"input": texts, "dimensions": n}).json["data"]], n, short)
        check([len(x) for x in short] == [n, n], n)
    refused(s.post("/api/embed", {"input": "x", "dimensions": len(want[0]) + 1}), 400, "dimensions")
    refused(s.post("/api/embed", {"input": ["x"] * 2049}), 400, "input")
    refused(s.post("/api/embeddings", {"prompt": ""}), 400, "prompt 0 has no tokens")
    for body in {"input": 7}, {"input": []}, {}, {"input": "x", "dimensions": 0}, {"input": "x", "options": {"x": 1}}, {"input": "x", "truncate": 1}:
        refused(s.post("/api/embed", body), 400)
    s.stop()


# ---- ends ----

def test_an_answer_is_cancelled_by_the_id_of_its_request():
    s = Server(PARROT)
    c = s.connect()
    c.request("POST", "/api/chat", json.dumps({"messages": [{"role": "user", "content": "sing"}]}), {"Content-Type": "application/json"})
    r = c.getresponse()
    first = json.loads(r.readline())
    check(first["done"] is False, first)
    check(s.ask("POST", f"/v1/requests/{r.headers['x-request-id']}/cancel").status == 200, "found")
    last = json.loads(r.read().splitlines()[-1])
    check(last["done_reason"] == "cancelled", last)
    c.close()
    s.stop()


def test_a_stream_cannot_be_resumed():
    s = Server(PARROT)
    for stream, word in (True, "application/x-ndjson"), (False, "'stream' is not true"):
        refused(s.ask("POST", "/api/chat", {"messages": HI, "stream": stream}, headers={"Quern-Resume": "5"}), 400, "Quern-Resume", word)
    s.stop()


def test_a_stream_that_fails_ends_with_an_error():
    s = Server(PARROT, "--grace", "0")
    c = s.connect()
    c.request("POST", "/api/generate", json.dumps({"prompt": "sing"}), {"Content-Type": "application/json"})
    r = c.getresponse()
    r.readline()
    end = threading.Thread(target=s.stop)
    end.start()
    last = json.loads(r.read().splitlines()[-1])
    end.join()
    check("stopped" in last.get("error", ""), last)
    c.close()


if __name__ == "__main__":
    run(globals(), sys.argv[6] if sys.argv[6:] else "test_", openapi.note_absence())
