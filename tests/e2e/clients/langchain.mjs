// SPDX-License-Identifier: MIT
//
// langchain.mjs: LangChain (npm: @langchain/openai, @langchain/anthropic), with both of OpenAI's APIs and Anthropic's.

import assert from "node:assert/strict";

import {FOUR, HELLO, RESULT, THOUGHT, collect, formed, leaves, load, schema, setup} from "./harness.mjs";
import {langchainModels} from "./talks.mjs";

const {OpenAI, OpenAIEmbeddings} = load("@langchain/openai");
const {ToolMessage} = load("@langchain/core/messages");
const {z} = load("zod");
const {url, long, story} = setup;
const to = base => ({apiKey: "none", maxRetries: 0, configuration: {baseURL: base + "/v1"}});

const each = {
    async "a text"(llm) {
        const r = await llm.invoke([["system", "Be kind."], ["human", "hi"]]);
        assert.equal(r.text, HELLO);
        assert.ok(r.usage_metadata.input_tokens > 0 && r.usage_metadata.output_tokens > 0);
        assert.deepEqual((await llm.batch(["hi", "hi"])).map(m => m.text), [HELLO, HELLO]);
    },
    async "a stream"(llm) {
        const pieces = await collect(await llm.stream("hi"));
        assert.equal(pieces.map(p => p.text).join(""), HELLO);
        assert.ok(pieces.length > 8);
        assert.ok(pieces.some(p => p.usage_metadata?.output_tokens > 0));
    },
    async "thoughts, also in the next turn"(llm) {
        const r = await llm.invoke("think");
        assert.equal(r.text, FOUR);
        assert.equal((await llm.invoke([["human", "think"], r, ["human", "hi"]])).text, HELLO);
    },
    async "two calls at once"(llm) {
        const tools = ["get_weather", "get_time"].map(name =>
            ({type: "function", function: {name, description: "d", parameters: schema}}));
        const r = await llm.bindTools(tools).invoke("both");
        assert.equal(r.text, "I shall look.");
        assert.deepEqual(r.tool_calls.map(c => [c.name, c.args]), [["get_weather", {city: "Köln"}], ["get_time", {}]]);
        const results = r.tool_calls.map(c => new ToolMessage({content: "21", tool_call_id: c.id}));
        assert.equal((await llm.bindTools(tools).invoke([["human", "both"], r, ...results])).text, RESULT);
    },
    async "an object"(llm) {
        await formed(llm.withStructuredOutput(z.object({a: z.enum(["x", "y"]), b: z.boolean()}), {name: "answer"}).invoke("an object"));
    },
};

export const cases = {};
for (const [name, make] of Object.entries(langchainModels))
    for (const [what, test] of Object.entries(each)) cases[`${name}: ${what}`] = () => test(make(url, "m"));

for (const [name, make] of Object.entries(langchainModels))
    cases[`${name}: a stream that is aborted`] = () => leaves(long, async () => {
        const abort = new AbortController();
        const llm = make(long, "m", {maxTokens: 30000});
        let n = 0;
        await assert.rejects(async () => {
            for await (const _ of await llm.stream("sing", {signal: abort.signal})) if (++n === 5) abort.abort();
        }, /abort/i);
    });

Object.assign(cases, {
    async "langchain anthropic: thoughts that are asked for"() {
        const thinking = {type: "enabled", budget_tokens: 1024};
        const llm = langchainModels["langchain anthropic"](url, "m", {maxTokens: 2000, thinking});
        const r = await llm.invoke("think");
        assert.deepEqual(r.content.map(b => b.thinking ?? b.text), [THOUGHT, FOUR]);
        assert.equal((await llm.invoke([["human", "think"], r, ["human", "hi"]])).text, HELLO);
    },
    async "langchain: embeddings"() {
        const embeddings = new OpenAIEmbeddings({model: "m", ...to(story)});
        const [a, b] = await embeddings.embedDocuments(["a cat", "a dog"]);
        assert.notDeepEqual(a, b);
        assert.equal((await embeddings.embedQuery("a cat")).length, a.length);
    },
    async "langchain: several prompts in one request"() {
        const llm = new OpenAI({model: "m", maxTokens: 8, temperature: 0, ...to(story)});
        const {generations} = await llm.generate(["Once upon a time", "One day"]);
        assert.equal(generations.length, 2);
        assert.equal(generations[0][0].text, await llm.invoke("Once upon a time"));
        assert.equal((await collect(await llm.stream("One day"))).join(""), generations[1][0].text);
    },
});
