// SPDX-License-Identifier: MIT
//
// ollama.mjs: what Ollama's own client (npm: ollama) makes of daemons. Run by test_clients.py; twice.mjs describes SETUP.

import assert from "node:assert/strict";

import {FOUR, HELLO, RESULT, THOUGHT, collect, load} from "./harness.mjs";
import {reach, runTwice, tools} from "./twice.mjs";

const {Ollama} = load("ollama");

function client(transport, name, more = {}) {
    const {base, ...over} = reach(transport, name);
    return new Ollama({host: base, ...over, ...more});
}

const model = "m:latest";
const say = (content, more = {}) => ({model, messages: [{role: "user", content}], ...more});
const fails = (promise, status, words) => assert.rejects(promise, e => e.status_code === status && e.message.includes(words));

// ---- cases: each gets a client of each daemon, by name ----

const cases = {
    async ollama_models_are_listed_and_shown({parrot}) {
        assert.match((await parrot.version()).version, /^\d+\.\d+\.\d+$/);
        const [m, ...others] = (await parrot.list()).models;
        assert.deepEqual([m.name, others.length, m.details.format], [model, 0, "gguf"]);
        assert.ok(Date.parse(m.modified_at) > 1.7e12 && m.size > 0);
        const shown = await parrot.show({model: m.name});
        assert.deepEqual(shown.capabilities, ["completion", "tools", "insert", "thinking"]);
        assert.equal(shown.model_info["llama.context_length"], 32768);
        assert.equal((await parrot.ps()).models[0].digest, m.digest);
        await fails(parrot.show({model: "other"}), 404, "model 'other' not found");
    },
    async ollama_a_chat({parrot}) {
        const r = await parrot.chat(say("hi", {keep_alive: "5m", options: {temperature: 0, num_ctx: 8192, num_gpu: 1}}));
        assert.deepEqual(r.message, {role: "assistant", content: HELLO});
        assert.ok(r.done && r.done_reason === "stop" && r.prompt_eval_count > 0 && r.eval_count > 0 && r.eval_duration > 0);
        assert.deepEqual(r.quern.ignored.sort(), ["keep_alive", "options.num_ctx", "options.num_gpu"]);
        const all = await collect(await parrot.chat(say("hi", {stream: true})));
        assert.equal(all.map(x => x.message.content).join(""), HELLO);
        assert.ok(all.length > 8 && all.at(-1).done && !all.at(-2).done);
    },
    async ollama_thoughts({parrot}) {
        const r = await parrot.chat(say("think", {think: true}));
        assert.deepEqual([r.message.thinking.trim(), r.message.content], [THOUGHT, FOUR]);
        const all = await collect(await parrot.generate({model, prompt: "think", think: "low", stream: true}));
        assert.equal(all.map(x => x.thinking ?? "").join("").trim(), r.message.thinking.trim());
        assert.equal(all.map(x => x.response).join(""), FOUR);
    },
    async ollama_a_loop_with_tools({parrot}) {
        for (const stream of [false, true]) {
            const messages = [{role: "user", content: "both"}];
            const reply = await parrot.chat({model, messages, tools, stream});
            const calls = (stream ? await collect(reply) : [reply]).flatMap(x => x.message.tool_calls ?? []);
            assert.deepEqual(calls.map(c => [c.function.name, c.function.arguments]), [["get_weather", {city: "Köln"}], ["get_time", {}]]);
            messages.push({role: "assistant", content: "", tool_calls: calls});
            for (const c of calls) messages.push({role: "tool", tool_name: c.function.name, content: "21"});
            assert.equal((await parrot.chat({model, messages, tools})).message.content, RESULT);
        }
    },
    async ollama_a_prompt({parrot, story}) {
        assert.equal((await parrot.generate({model, prompt: "hi", system: "Be kind."})).response, HELLO);
        assert.equal((await parrot.generate({model, prompt: "<|say:hello|>", raw: true})).response, HELLO);
        const ask = {model, prompt: "Once upon a time", options: {temperature: 0, num_predict: 16}};
        const whole = await story.generate(ask);
        const all = await collect(await story.generate({...ask, stream: true}));
        assert.deepEqual([all.map(x => x.response).join(""), whole.done_reason, whole.eval_count], [whole.response, "length", 16]);
        assert.equal((await parrot.generate({model, prompt: ""})).done_reason, "load");
        assert.equal((await collect(await parrot.chat({model, messages: [], stream: true, keep_alive: 0}))).at(-1).done_reason, "load");
    },
    async ollama_vectors({random}) {
        const {embeddings: [a, b]} = await random.embed({model, input: ["hello", "Once upon a time"]});
        assert.deepEqual((await random.embed({model, input: "hello"})).embeddings, [a]);
        assert.deepEqual((await random.embeddings({model, prompt: "Once upon a time"})).embedding, b);
        assert.ok(Math.abs(Math.hypot(...a) - 1) < 1e-5);
    },
    async ollama_what_is_not_done_is_said({parrot}) {
        await fails(parrot.chat({...say("hi"), model: "other"}), 404, "model 'other' not found");
        await fails(parrot.chat(say("hi", {stream: true, format: "yaml"})), 400, "format");
        await fails(parrot.generate({model, prompt: "hi", images: [new Uint8Array([1, 2])]}), 400, "images");
        await fails(parrot.generate({model, prompt: "hi", options: {num_ctx: 1e6}}), 400, "options.num_ctx");
        assert.equal((await parrot.pull({model})).status, "success");
        assert.deepEqual(await collect(await parrot.pull({model, stream: true})), [{status: "success"}]);
        await fails(parrot.pull({model: "other"}), 501, "quern pull");
        await fails(parrot.delete({model}), 501, "quern rm");
        await fails(parrot.copy({source: model, destination: "n"}), 501, "NAME=FILE");
        await fails(parrot.create({model: "n", from: model}), 501, "no models");
        await fails(parrot.push({model}), 501, "uploads no models");
    },
    async ollama_an_answer_is_aborted({parrot}) {
        const stream = await parrot.chat(say("sing", {stream: true}));
        let n = 0;
        await assert.rejects(async () => {
            for await (const x of stream) if (x.message.content && ++n === 3) stream.abort();
        }, e => e.name === "AbortError");
        assert.equal((await parrot.chat(say("hi"))).message.content, HELLO); // its place is free again
    },
};

const tcpCases = {
    async ollama_keys({keyed}) {
        await assert.rejects(keyed.list(), e => e.status_code === 401);
        const known = client("tcp", "keyed", {headers: {Authorization: "Bearer sk-one"}});
        assert.equal((await known.chat(say("hi"))).message.content, HELLO);
    },
};

await runTwice(client, cases, tcpCases);
