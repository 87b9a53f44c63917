// SPDX-License-Identifier: MIT
//
// continue.mjs: Continue's adapters (npm: @continuedev/openai-adapters), with the requests that its editor extensions
// make: chats, edits, completions at the cursor, embeddings and ranking. SETUP has `rank`, a daemon of a model that ranks.

import assert from "node:assert/strict";

import {FOUR, HELLO, collect, joined, leaves, setup} from "./harness.mjs";
import {continueModel} from "./talks.mjs";

const {url, long, story, rank} = setup;
const {signal} = new AbortController();
const tools = ["get_weather", "get_time"].map(name =>
    ({type: "function", function: {name, description: "d", parameters: {type: "object", properties: {}}}}));
// What Continue sends if its user has set everything.
const sampling = {temperature: 0.5, top_p: 0.9, frequency_penalty: 0.1, presence_penalty: 0.1, stop: ["\nUser:", "```"]};
const say = (content, more = {}) =>
    ({model: "m", messages: [{role: "system", content: "Be kind."}, {role: "user", content}], max_tokens: 4096, ...more});

const each = {
    async "a text"(api) {
        const r = await api.chatCompletionNonStream(say("hi", {stream: false, ...sampling}), signal);
        assert.equal(r.choices[0].message.content, HELLO);
        assert.ok(r.usage.prompt_tokens > 0 && r.usage.completion_tokens > 0);
    },
    async "a stream"(api) {
        const chunks = await collect(api.chatCompletionStream(say("hi", {stream: true, ...sampling}), signal));
        assert.equal(chunks.map(c => c.choices[0]?.delta.content ?? "").join(""), HELLO);
        assert.ok(chunks.length > 8 && chunks.at(-1).usage.completion_tokens > 0);
    },
    async "thoughts"(api) {
        const {content} = await joined(api.chatCompletionStream(say("think", {stream: true}), signal));
        assert.equal(content, FOUR);
    },
    async "two calls at once"(api) {
        const r = await joined(api.chatCompletionStream(say("both", {stream: true, tools}), signal));
        const calls = r.tool_calls.map(c => [c.function.name, JSON.parse(c.function.arguments)]);
        assert.deepEqual([r.content, calls], ["I shall look.", [["get_weather", {city: "Köln"}], ["get_time", {}]]]);
    },
    async "an edit, with the text that is expected"(api) {
        const prediction = {type: "content", content: HELLO};
        const {content} = await joined(api.chatCompletionStream(say("hi", {stream: true, prediction}), signal));
        assert.equal(content, HELLO);
    },
};

export const cases = {};
for (const provider of ["openai", "anthropic"]) {
    for (const [what, test] of Object.entries(each))
        cases[`continue ${provider}: ${what}`] = () => test(continueModel(provider, url));
    cases[`continue ${provider}: a stream that is aborted`] = () => leaves(long, async () => {
        const abort = new AbortController(), ask = say("sing", {stream: true, max_tokens: 30000});
        let n = 0;
        try {
            for await (const _ of continueModel(provider, long).chatCompletionStream(ask, abort.signal))
                if (++n === 3) abort.abort();
        } catch (e) { // the adapter reads the rest of a line, when the abort came in the middle of one
            if (n < 3 || !/Malformed JSON/.test(e.message)) throw e;
        }
    });
}

Object.assign(cases, {
    async "continue: the models are listed"() {
        for (const provider of ["openai", "ollama", "vllm", "lmstudio"])
            assert.deepEqual((await continueModel(provider, url).list()).map(m => m.id), ["m"]);
    },
    async "continue: a text is continued"() {
        const ask = {model: "m", prompt: "Once upon a time", max_tokens: 16, temperature: 0};
        const api = continueModel("openai", story);
        const whole = await api.completionNonStream({...ask, stream: false}, signal);
        const pieces = await collect(api.completionStream({...ask, stream: true}, signal));
        assert.equal(pieces.map(p => p.choices[0].text).join(""), whole.choices[0].text);
    },
    async "continue: a gap is filled"() {
        const gap = {model: "m", prompt: "int main()\n{\n", suffix: "\n}\n", max_tokens: 256, temperature: 0.01, stream: true};
        const stop = ["/src/", "#- coding: utf-8", "```", "\n\n"];
        const fill = provider => joined(continueModel(provider, url).fimStream({...gap, stop}, signal));
        assert.equal((await fill("llamastack")).content, "a + b;\n        c = 7;");
        await assert.rejects(fill("mistral"), /nothing is served at \/v1\/fim\/completions/);
    },
    async "continue: embeddings"() {
        const {data: [a, b]} = await continueModel("openai", story).embed({model: "m", input: ["a cat", "a dog"]});
        assert.ok(a.embedding.length > 0 && a.embedding.length === b.embedding.length);
        assert.notDeepEqual(a.embedding, b.embedding);
    },
    async "continue: documents are ranked"() {
        const ask = {model: "m", query: "bana", documents: ["bana bane", "a much longer document", "bani"]};
        const {results} = await continueModel("vllm", rank).rerank(ask); // as the server of vLLM answers
        assert.deepEqual(results.map(r => r.index).sort(), [0, 1, 2]);
        const {data} = await continueModel("jina", rank).rerank(ask);
        assert.deepEqual(data.map(d => d.relevance_score), results.map(r => r.relevance_score));
    },
});
