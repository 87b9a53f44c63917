// SPDX-License-Identifier: MIT
//
// ai.mjs: the AI SDK (npm: ai), through each of its ways to a server: OpenAI's responses, which are its default,
// OpenAI's chat completions, those of compatible servers, and Anthropic's messages.

import assert from "node:assert/strict";

import {FOUR, HELLO, RESULT, THOUGHT, collect, formed, leaves, load, refused, setup} from "./harness.mjs";
import {aiModels} from "./talks.mjs";

const ai = load("ai");
const {z} = load("zod");
const {url, long} = setup;
const maxRetries = 0;

globalThis.AI_SDK_LOG_WARNINGS = false; // about settings that this package does not send for a model it does not know

const each = {
    async "a text"(model) {
        const r = await ai.generateText({model, prompt: "hi", maxRetries});
        assert.deepEqual([r.text, r.finishReason], [HELLO, "stop"]);
        assert.ok(r.usage.inputTokens > 0 && r.usage.outputTokens > 0);
        const more = {system: "Be kind.", temperature: 0, topP: 0.5};
        const system = await ai.generateText({model, prompt: "hi", maxRetries, ...more});
        assert.equal(system.text, HELLO);
        assert.ok(system.usage.inputTokens > r.usage.inputTokens);
        const cut = await ai.generateText({model, prompt: "hi", maxOutputTokens: 3, maxRetries});
        assert.equal(cut.finishReason, "length");
    },
    async "a stream"(model) {
        const r = ai.streamText({model, prompt: "hi", maxRetries});
        const pieces = await collect(r.textStream);
        assert.equal(pieces.join(""), HELLO);
        assert.ok(pieces.length > 8);
        assert.equal(await r.finishReason, "stop");
        const {inputTokens, outputTokens} = await r.usage;
        assert.ok(model.provider === "quern.chat" || (inputTokens > 0 && outputTokens > 0)); // that one asks for none
    },
    async "two calls at once"(model) {
        const seen = [];
        const tools = {
            get_weather: ai.tool({inputSchema: z.object({city: z.string()}), execute: a => (seen.push(a.city), "21")}),
            get_time: ai.tool({inputSchema: z.object({}), execute: () => (seen.push("time"), {hour: 9})}),
        };
        const r = await ai.generateText({model, prompt: "both", tools, stopWhen: ai.stepCountIs(2), maxRetries});
        assert.deepEqual([r.text, r.steps[0].text, seen], [RESULT, "I shall look.", ["Köln", "time"]]);
    },
    async "an object"(model) {
        const schema = z.object({a: z.enum(["x", "y"]), b: z.boolean()});
        await formed(ai.generateText({model, prompt: "an object", output: ai.Output.object({schema}), maxRetries}).then(r => r.output));
        await formed(ai.generateObject({model, prompt: "an object", schema, maxRetries}).then(r => r.object));
    },
    async "an image is refused"(model) {
        const content = [{type: "text", text: "hi"}, {type: "image", image: Buffer.from("x"), mediaType: "image/png"}];
        await refused(ai.generateText({model, messages: [{role: "user", content}], maxRetries}), "content.*image");
    },
    async "a tool that failed"(model) {
        const fail = () => { throw new Error("no connection"); };
        const inputSchema = z.object({city: z.string(), days: z.number()});
        const tools = {get_weather: ai.tool({inputSchema, execute: fail})};
        const r = await ai.generateText({model, prompt: "weather?", tools, stopWhen: ai.stepCountIs(2), maxRetries});
        assert.equal(r.text, RESULT);
    },
    async "a tool that has to be called"(model) {
        const inputSchema = z.object({a: z.enum(["x", "y"]), b: z.boolean()});
        const tools = {set_a: ai.tool({inputSchema, execute: () => "9"}), get_time: ai.tool({inputSchema: z.object({}), execute: () => "9"})};
        for (const toolChoice of ["required", {type: "tool", toolName: "set_a"}]) {
            const r = await ai.generateText({model, prompt: "hi", tools, toolChoice, maxRetries});
            assert.ok(r.toolCalls.length > 0 && r.toolCalls.every(c => !c.invalid), JSON.stringify(r.toolCalls));
            if (toolChoice.toolName) for (const c of r.toolCalls) assert.equal(c.toolName, "set_a");
        }
    },
};

export const cases = {};
for (const [name, make] of Object.entries(aiModels))
    for (const [what, test] of Object.entries(each)) cases[`${name}: ${what}`] = () => test(make(url, "m"));

for (const [name, make] of Object.entries(aiModels))
    cases[`${name}: a stream that is aborted`] = () => leaves(long, async () => {
        const abort = new AbortController();
        const ask = {prompt: "sing", maxOutputTokens: 30000, abortSignal: abort.signal};
        let n = 0;
        for await (const part of ai.streamText({model: make(long, "m"), maxRetries, ...ask}).fullStream)
            if (part.type === "text-delta" && ++n === 3) abort.abort();
    });

const reasoningOptions = {openai: {forceReasoning: true, reasoningSummary: "auto"},
                          anthropic: {thinking: {type: "enabled", budgetTokens: 1024}}};
for (const name of ["ai responses", "ai compatible", "ai anthropic"])
    cases[`${name}: thoughts, also in the next turn`] = async () => {
        const model = aiModels[name](url, "m");
        const messages = [{role: "user", content: "think"}];
        const r = await ai.generateText({model, messages, providerOptions: reasoningOptions, maxRetries});
        assert.deepEqual([r.reasoningText.trim(), r.text], [THOUGHT, FOUR]);
        messages.push(...r.response.messages, {role: "user", content: "hi"});
        const next = ai.streamText({model, messages, providerOptions: reasoningOptions, maxRetries});
        assert.equal(await next.text, HELLO);
    };

cases["ai responses: a response is continued by its id"] = async () => {
    const model = aiModels["ai responses"](url, "m");
    const first = await ai.generateText({model, prompt: "think", maxRetries});
    const providerOptions = {openai: {previousResponseId: first.providerMetadata.openai.responseId}};
    const next = await ai.generateText({model, prompt: "hi", providerOptions, maxRetries});
    assert.equal(next.text, HELLO);
    assert.ok(next.usage.inputTokens > first.usage.inputTokens + 5);
};

const baseURL = setup.story + "/v1";
const embedders = {
    "ai responses": () => load("@ai-sdk/openai").createOpenAI({baseURL, apiKey: "none"}).embeddingModel("m"),
    "ai compatible": () =>
        load("@ai-sdk/openai-compatible").createOpenAICompatible({name: "quern", baseURL}).embeddingModel("m"),
};
for (const [name, make] of Object.entries(embedders))
    cases[`${name}: embeddings`] = async () => {
        const {embeddings: [a, b], usage} = await ai.embedMany({model: make(), values: ["a cat", "a dog"], maxRetries});
        assert.ok(a.length === b.length && usage.tokens > 0);
        assert.ok(Math.abs(ai.cosineSimilarity(a, a) - 1) < 1e-6 && ai.cosineSimilarity(a, b) < 1);
    };
