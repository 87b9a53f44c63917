// SPDX-License-Identifier: MIT
//
// openai_client.mjs: what the OpenAI and the Anthropic client make of a daemon. Run by openai_client:
//
//     node openai_client.mjs CLIENTS_DIR URL
//
// Prints a line a case; status 1 if one failed.

import assert from "node:assert/strict";
import {createRequire} from "node:module";
import path from "node:path";

const [dir, url] = process.argv.slice(2);
const require = createRequire(path.resolve(dir, "node_modules/x.js"));
const {OpenAI} = require("openai");
const {Anthropic} = require("@anthropic-ai/sdk");
const openai = new OpenAI({baseURL: url + "/v1", apiKey: "none", maxRetries: 0});
const anthropic = new Anthropic({baseURL: url, apiKey: "none", maxRetries: 0});

const model = "m";
const messages = [{role: "user", content: "hello"}];
const ask = {model, messages, max_tokens: 16, seed: 7};

const cases = {
    async "models are listed"() {
        assert.deepEqual((await openai.models.list()).data.map(m => m.id), ["m"]);
    },
    async "a chat, whole and streamed"() {
        const whole = await openai.chat.completions.create({...ask, n: 2, logprobs: true, top_logprobs: 2});
        assert.equal(whole.choices.length, 2);
        assert.equal(whole.choices[0].logprobs.content[0].top_logprobs.length, 2);
        const stream = await openai.chat.completions.create({...ask, stream: true, stream_options: {include_usage: true}});
        let text = "", usage;
        for await (const chunk of stream) {
            text += chunk.choices[0]?.delta.content ?? "";
            usage = chunk.usage ?? usage;
        }
        assert.equal(text, whole.choices[0].message.content);
        assert.equal(usage.completion_tokens, 16);
    },
    async "the stream helper builds the same message"() {
        const whole = await openai.chat.completions.create(ask);
        const final = await openai.chat.completions.stream(ask).finalChatCompletion();
        assert.equal(final.choices[0].message.content, whole.choices[0].message.content);
        assert.equal(final.choices[0].finish_reason, whole.choices[0].finish_reason);
    },
    async "a text is continued"() {
        const whole = await openai.completions.create({model, prompt: "Once", max_tokens: 8, seed: 1});
        let text = "";
        for await (const c of await openai.completions.create({model, prompt: "Once", max_tokens: 8, seed: 1, stream: true}))
            text += c.choices[0]?.text ?? "";
        assert.equal(text, whole.choices[0].text);
    },
    async "embeddings, which this client asks for in base64"() {
        const r = await openai.embeddings.create({model, input: ["a", "b"]});
        assert.equal(r.data.length, 2);
        assert.ok(Math.abs(r.data[0].embedding.reduce((s, x) => s + x * x, 0) - 1) < 1e-3);
    },
    async "a response, whole and streamed"() {
        const whole = await openai.responses.create({model, input: "hello", max_output_tokens: 16, seed: 7});
        const chat = await openai.chat.completions.create(ask);
        assert.equal(whole.output_text, chat.choices[0].message.content);
        const stream = openai.responses.stream({model, input: "hello", max_output_tokens: 16, seed: 7});
        let text = "";
        stream.on("response.output_text.delta", e => (text += e.delta));
        const final = await stream.finalResponse();
        assert.equal(text, whole.output_text);
        assert.equal(final.output[0].content[0].text, text);
    },
    async "errors are the client's own"() {
        await assert.rejects(openai.chat.completions.create({...ask, wobble: 1}), e =>
            e instanceof OpenAI.BadRequestError && e.param === "wobble" && e.code === "unknown_field");
        await assert.rejects(openai.chat.completions.create({...ask, model: "x"}), OpenAI.NotFoundError);
        await assert.rejects(anthropic.messages.create({model, messages, max_tokens: 0}), Anthropic.BadRequestError);
    },
    async "a stream that is aborted ends the request"() {
        const stream = await openai.completions.create({model, prompt: "Once", max_tokens: 200, ignore_eos: true, n: 4,
                                                        stream: true});
        for await (const _ of stream) break; // the client hangs up
        for (let i = 0; i < 100; i++) {
            if ((await (await fetch(url + "/health")).json()).running === 0) return;
            await new Promise(r => setTimeout(r, 20));
        }
        assert.fail("it still runs");
    },
    async "a message, whole and streamed"() {
        const whole = await anthropic.messages.create({model, messages, max_tokens: 16, seed: 7});
        const chat = await openai.chat.completions.create(ask);
        assert.equal(whole.content[0].text, chat.choices[0].message.content);
        const stream = anthropic.messages.stream({model, messages, max_tokens: 16, seed: 7});
        const final = await stream.finalMessage();
        assert.deepEqual(final.content, whole.content);
        assert.equal(final.stop_reason, whole.stop_reason);
        assert.equal(final.usage.output_tokens, whole.usage.output_tokens);
        const counted = await anthropic.messages.countTokens({model, messages});
        assert.equal(counted.input_tokens, chat.usage.prompt_tokens);
    },
};

let failed = 0;
for (const [name, run] of Object.entries(cases)) {
    try {
        await run();
        console.log("ok      " + name);
    } catch (e) {
        failed++;
        console.log("FAILED  " + name + "\n" + e.stack.replace(/^/gm, "        "));
    }
}
process.exit(failed ? 1 : 0);
