// SPDX-License-Identifier: MIT
//
// llamaindex.mjs: LlamaIndex (npm: @llamaindex/openai).

import assert from "node:assert/strict";

import {FOUR, HELLO, collect, formed, leaves, load, setup} from "./harness.mjs";
import {llamaModel} from "./talks.mjs";

const {OpenAIEmbedding} = load("@llamaindex/openai");
const {z} = load("zod");
const {url, long, story} = setup;
const say = content => ({messages: [{role: "system", content: "Be kind."}, {role: "user", content}]});

export const cases = {
    async "llamaindex: a text"() {
        const llm = llamaModel(url, "m");
        assert.equal((await llm.chat(say("hi"))).message.content, HELLO);
        assert.equal((await llm.chat(say("think"))).message.content, FOUR);
        assert.equal((await llm.complete({prompt: "hi"})).text, HELLO);
    },
    async "llamaindex: a stream"() {
        const pieces = await collect(await llamaModel(url, "m").chat({...say("hi"), stream: true}));
        assert.equal(pieces.map(p => p.delta).join(""), HELLO);
    },
    async "llamaindex: a stream that is left"() {
        await leaves(long, async () => {
            for await (const _ of await llamaModel(long, "m").chat({...say("sing"), stream: true})) break;
        });
    },
    async "llamaindex: an object"() {
        const responseFormat = z.object({a: z.enum(["x", "y"]), b: z.boolean()});
        await formed(llamaModel(url, "m").chat({...say("an object"), responseFormat}).then(r => JSON.parse(r.message.content)));
    },
    async "llamaindex: embeddings"() {
        const at = {apiKey: "none", maxRetries: 0, additionalSessionOptions: {baseURL: story + "/v1"}};
        const model = new OpenAIEmbedding({model: "m", ...at});
        const [a, b] = await model.getTextEmbeddingsBatch(["a cat", "a dog"]);
        assert.ok(a.length > 0 && a.length === b.length);
        assert.notDeepEqual(a, b);
    },
};
