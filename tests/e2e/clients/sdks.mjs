// SPDX-License-Identifier: MIT
//
// sdks.mjs: what the OpenAI and the Anthropic client make of daemons. Run by test_clients.py; twice.mjs describes SETUP.

import assert from "node:assert/strict";

import {FOUR, HELLO, PARIS, RESULT, THOUGHT, collect, load, schema, setup, sleep} from "./harness.mjs";
import {reach, runTwice, tools} from "./twice.mjs";

const {OpenAI} = load("openai");
const {Anthropic} = load("@anthropic-ai/sdk");
const {zodFunction, zodResponseFormat, zodResponsesFunction, zodTextFormat} = load("openai/helpers/zod");
const {z} = load("zod");
const {limit} = setup;

function clients(transport, name, more = {}) {
    const {base, ...over} = reach(transport, name);
    const common = {apiKey: "none", maxRetries: 0, timeout: limit, ...over, ...more};
    return {openai: new OpenAI({baseURL: base + "/v1", ...common}), anthropic: new Anthropic({baseURL: base, ...common})};
}

const model = "m";
const say = (content, more = {}) => ({model, messages: [{role: "user", content}], ...more});
const flatTools = tools.map(t => ({type: "function", strict: null, ...t.function}));
const blockTools = tools.map(t => ({name: t.function.name, description: "d", input_schema: schema}));

// Until so many requests run and wait.
async function until(openai, running, queued = 0) {
    for (let i = 0; i < limit / 10; i++) {
        const now = await openai.get("/../health");
        if (now.running === running && now.queued === queued) return;
        await sleep(10);
    }
    assert.fail(`never ${running} running, ${queued} queued`);
}

// ---- cases: each gets the clients of all daemons, by name ----

const cases = {
    async models_are_listed({parrot}) {
        const [m, ...others] = (await parrot.openai.models.list()).data;
        assert.deepEqual([m.id, m.object, others.length], ["m", "model", 0]);
        assert.ok(m.created > 1.7e9);
        await assert.rejects(parrot.openai.models.retrieve("other"), OpenAI.NotFoundError);
    },

    // -- chats --

    async a_chat({parrot: {openai}}) {
        const {data: r, response} = await openai.chat.completions.create(say("hi")).withResponse();
        assert.equal(r.choices[0].message.content, HELLO);
        assert.equal(r.choices[0].message.role, "assistant");
        assert.equal(r.choices[0].finish_reason, "stop");
        assert.ok(r.usage.prompt_tokens > 0 && r.usage.completion_tokens > 0);
        assert.equal(r.usage.total_tokens, r.usage.prompt_tokens + r.usage.completion_tokens);
        assert.ok(r.id.endsWith(response.headers.get("x-request-id")));
        const parts = [{type: "text", text: "hi"}];
        assert.equal((await openai.chat.completions.create(say(parts))).usage.prompt_tokens, r.usage.prompt_tokens);
        const cut = await openai.chat.completions.create(say("hi", {max_completion_tokens: 3}));
        assert.deepEqual([cut.choices[0].finish_reason, cut.usage.completion_tokens], ["length", 3]);
        assert.ok(HELLO.startsWith(cut.choices[0].message.content));
    },
    async a_chat_streamed({parrot: {openai}}) {
        const ask = say("hi", {stream: true, stream_options: {include_usage: true}});
        const chunks = await collect(await openai.chat.completions.create(ask));
        const whole = await openai.chat.completions.create(say("hi"));
        assert.equal(chunks.map(c => c.choices[0]?.delta.content ?? "").join(""), HELLO);
        assert.equal(new Set(chunks.map(c => c.id)).size, 1);
        assert.equal(chunks[0].choices[0].delta.role, "assistant");
        assert.equal(chunks.at(-2).choices[0].finish_reason, "stop");
        assert.deepEqual(chunks.at(-1).choices, []);
        assert.equal(chunks.at(-1).usage.completion_tokens, whole.usage.completion_tokens);
        assert.ok(chunks.length > 8, "in pieces");
    },
    async the_chat_stream_helper({parrot: {openai}}) {
        for (const [text, more] of [["hi", {}], ["both", {tools}], ["weather", {tools}], ["hi", {n: 2, logprobs: true}]]) {
            const whole = await openai.chat.completions.create(say(text, more));
            const stream = openai.chat.completions.stream(say(text, more));
            let said = "";
            stream.on("content", piece => (said += piece));
            const final = await stream.finalChatCompletion();
            if (!more.n) assert.equal(said, whole.choices[0].message.content ?? "");
            for (const [i, c] of whole.choices.entries()) {
                const f = final.choices[i];
                assert.equal(f.message.content ?? "", c.message.content ?? "");
                assert.equal(f.finish_reason, c.finish_reason);
                assert.deepEqual(f.logprobs?.content, c.logprobs?.content);
                assert.deepEqual(f.message.tool_calls?.map(t => t.function.name), c.message.tool_calls?.map(t => t.function.name));
                assert.deepEqual(f.message.tool_calls?.map(t => t.function.arguments),
                                 c.message.tool_calls?.map(t => t.function.arguments));
            }
        }
    },
    async n_and_seed({random: {openai}}) {
        const ask = more => openai.chat.completions.create(say("hello", {max_tokens: 16, ...more}));
        const texts = r => r.choices.map(c => c.message.content);
        const [a, b, c] = texts(await ask({n: 3, seed: 7}));
        assert.equal(new Set([a, b, c]).size, 3);
        for (const [i, text] of [a, b, c].entries()) assert.deepEqual(texts(await ask({seed: 7 + i})), [text]);
        const streamed = ["", "", ""];
        for await (const x of await ask({n: 3, seed: 7, stream: true}))
            for (const y of x.choices) streamed[y.index] += y.delta.content ?? "";
        assert.deepEqual(streamed, [a, b, c]);
    },
    async logprobs({parrot: {openai}, random}) {
        const r = await openai.chat.completions.create(say("hi", {logprobs: true, top_logprobs: 2}));
        const list = r.choices[0].logprobs.content;
        assert.equal(Buffer.from(list.flatMap(t => t.bytes)).toString().replace("<|im_end|>", ""), HELLO);
        for (const t of list) {
            assert.equal(t.top_logprobs.length, 2);
            assert.equal(t.logprob, t.top_logprobs[0].logprob);
            assert.ok(t.logprob > -1e-6 && t.top_logprobs[1].logprob < -50);
        }
        const ask = say("hello", {max_tokens: 8, seed: 1, logprobs: true, top_logprobs: 3});
        const whole = (await random.openai.chat.completions.create(ask)).choices[0].logprobs.content;
        assert.ok(whole.every(t => t.logprob < 0 && t.top_logprobs[2].logprob <= t.top_logprobs[0].logprob));
        const pieces = await collect(await random.openai.chat.completions.create({...ask, stream: true}));
        assert.deepEqual(pieces.flatMap(p => p.choices[0].logprobs?.content ?? []), whole);
    },
    async stop({parrot: {openai}}) {
        for (const stop of ["at can", ["nowhere", "at can"]]) {
            const r = await openai.chat.completions.create(say("hi", {stop}));
            assert.deepEqual([r.choices[0].message.content, r.choices[0].finish_reason], ["Grüße! 😀 Wh", "stop"]);
            const chunks = await collect(await openai.chat.completions.create(say("hi", {stop, stream: true})));
            assert.equal(chunks.map(c => c.choices[0].delta.content ?? "").join(""), "Grüße! 😀 Wh");
        }
    },
    async logit_bias({story: {openai}}) {
        const ask = {model, prompt: "Once upon a time", max_tokens: 24, temperature: 0};
        const text = async more => (await openai.completions.create({...ask, ...more})).choices[0].text;
        assert.match(await text({}), / Lily/);
        const {tokens} = await openai.post("/../tokenize", {body: {content: "named Lily", add_special: false}});
        const without = await text({logit_bias: {[tokens.at(-1)]: -100}});
        assert.doesNotMatch(without, / Lily/);
        assert.ok(without.length > 20);
    },
    async sampling_fields({random: {openai}}) {
        const ask = async more => (await openai.chat.completions.create(say("hello", {max_tokens: 12, seed: 3, ...more}))).choices[0];
        const greedy = (await ask({temperature: 0})).message.content;
        assert.equal((await ask({temperature: 0, seed: 4})).message.content, greedy);
        assert.equal((await ask({top_p: 0.0001})).message.content, greedy);
        assert.notEqual((await ask({temperature: 2, top_p: 1})).message.content, greedy);
        const penalised = await ask({temperature: 0, frequency_penalty: 2, presence_penalty: 2});
        assert.equal(typeof penalised.message.content, "string");
    },
    async thoughts({parrot: {openai, anthropic}}) {
        const r = await openai.chat.completions.create(say("think"));
        assert.deepEqual([r.choices[0].message.reasoning_content, r.choices[0].message.content],
                         [THOUGHT, FOUR]);
        const deltas = (await collect(await openai.chat.completions.create(say("think", {stream: true})))).map(c => c.choices[0].delta);
        assert.equal(deltas.map(d => d.reasoning_content ?? "").join(""), THOUGHT);
        assert.equal(deltas.map(d => d.content ?? "").join(""), FOUR);
        const m = await anthropic.messages.create(say("think", {max_tokens: 100}));
        assert.deepEqual(m.content, [{type: "thinking", thinking: THOUGHT, signature: ""},
                                     {type: "text", text: FOUR}]);
        assert.deepEqual((await anthropic.messages.stream(say("think", {max_tokens: 100})).finalMessage()).content, m.content);
        const i = await openai.responses.create({model, input: "think"});
        assert.deepEqual(i.output.map(o => [o.type, o.content[0].text]),
                         [["reasoning", THOUGHT], ["message", FOUR]]);
    },

    // -- tools --

    async a_tool_is_called({parrot: {openai}}) {
        const r = (await openai.chat.completions.create(say("weather?", {tools, tool_choice: "auto"}))).choices[0];
        assert.deepEqual([r.finish_reason, r.message.content, r.message.tool_calls.length], ["tool_calls", null, 1]);
        const call = r.message.tool_calls[0];
        assert.deepEqual([call.type, call.function.name, JSON.parse(call.function.arguments)], ["function", "get_weather", PARIS]);
        const none = (await openai.chat.completions.create(say("weather?", {tools, tool_choice: "none"}))).choices[0];
        assert.equal(none.message.tool_calls, undefined);
    },
    async two_tools_are_called({parrot: {openai}}) {
        const r = (await openai.chat.completions.create(say("both", {tools}))).choices[0];
        assert.equal(r.message.content, "I shall look.");
        assert.deepEqual(r.message.tool_calls.map(c => [c.function.name, JSON.parse(c.function.arguments)]),
                         [["get_weather", {city: "Köln"}], ["get_time", {}]]);
        assert.equal(new Set(r.message.tool_calls.map(c => c.id)).size, 2);
        for (const c of r.message.tool_calls) assert.match(c.id, /^[0-9A-Za-z]{9}$/);
        const chunks = await collect(await openai.chat.completions.create(say("both", {tools, stream: true})));
        const calls = chunks.flatMap(c => c.choices[0].delta.tool_calls ?? []);
        assert.deepEqual(calls.map(c => [c.index, c.function.name, JSON.parse(c.function.arguments)]),
                         [[0, "get_weather", {city: "Köln"}], [1, "get_time", {}]]);
        assert.equal(chunks.at(-1).choices[0].finish_reason, "tool_calls");
        const one = (await openai.chat.completions.create(say("both", {tools, parallel_tool_calls: false}))).choices[0];
        assert.equal(one.message.tool_calls.length, 1);
    },
    // A parrot that is asked for nothing it knows calls all the same, and so its arguments are right.
    async a_tool_has_to_be_called({parrot: {openai, anthropic}}) {
        const parameters = z.object({a: z.enum(["x", "y"]), n: z.number().int().min(1).max(9)});
        const set = zodFunction({name: "set_a", parameters}), other = zodFunction({name: "other", parameters: z.object({})});
        const right = v => assert.ok(parameters.safeParse(v).success, JSON.stringify(v));
        const choice = {type: "function", function: {name: "set_a"}};
        for (const more of [{}, {parallel_tool_calls: false}]) {
            const ask = say("hello", {tools: [set, other], tool_choice: choice, max_tokens: 400, seed: 1, ...more});
            const r = (await openai.chat.completions.parse(ask)).choices[0];
            for (const c of r.message.tool_calls) right(c.function.parsed_arguments);
            if (more.parallel_tool_calls === false) assert.equal(r.message.tool_calls.length, 1);
            const stream = openai.chat.completions.stream(ask);
            let n = 0;
            stream.on("tool_calls.function.arguments.delta", () => n++);
            const s = await stream.finalChatCompletion();
            assert.deepEqual(s.choices[0].message.tool_calls.map(c => c.function), r.message.tool_calls.map(c => c.function));
            assert.ok(n > 3 * r.message.tool_calls.length, `${n} pieces`);
        }
        const seen = [];
        const runner = openai.chat.completions.runTools(say("hello", {tool_choice: choice, seed: 1, tools: [
            {type: "function", function: {name: "set_a", parse: JSON.parse, function: v => { seen.push(v); return "done"; },
                                          parameters: z.toJSONSchema(parameters)}}]}));
        await runner.done();
        assert.ok(seen.length > 0);
        seen.forEach(right);
        const input_schema = z.toJSONSchema(parameters), blocks = [{name: "set_a", input_schema}, {name: "other", input_schema: {type: "object"}}];
        for (const tool_choice of [{type: "any", disable_parallel_tool_use: true}, {type: "tool", name: "set_a"}]) {
            const ask = say("hello", {tools: blocks, tool_choice, max_tokens: 400, seed: 1});
            const m = await anthropic.messages.create(ask);
            assert.equal(m.stop_reason, "tool_use");
            for (const b of m.content.filter(b => b.name === "set_a")) right(b.input);
            if (tool_choice.name) assert.ok(m.content.every(b => b.name === "set_a"), JSON.stringify(m.content));
            const stream = anthropic.messages.stream(ask);
            let n = 0;
            stream.on("inputJson", () => n++);
            const final = await stream.finalMessage();
            assert.deepEqual(final.content.map(b => b.input), m.content.map(b => b.input));
            assert.ok(n > 3 * m.content.length, `${n} pieces`);
        }
        const i = await openai.responses.parse({model, input: "hello", seed: 1, tool_choice: {type: "function", name: "set_a"},
                                                tools: [zodResponsesFunction({name: "set_a", parameters})]});
        for (const o of i.output.filter(o => o.type === "function_call")) right(o.parsed_arguments);
        assert.ok(i.output.some(o => o.type === "function_call"), JSON.stringify(i.output));
        const stream = openai.responses.stream({model, input: "hello", seed: 1, tool_choice: "required",
                                                tools: [zodResponsesFunction({name: "set_a", parameters})]});
        let said = "", n = 0;
        stream.on("response.function_call_arguments.delta", e => { said += e.delta; n++; });
        const calls = (await stream.finalResponse()).output.filter(o => o.type === "function_call");
        calls.forEach(o => right(o.parsed_arguments));
        assert.equal(said, calls.map(o => o.arguments).join(""));
        assert.ok(n > 3 * calls.length, `${n} pieces`);
    },
    async what_is_no_call_is_text({parrot: {openai, anthropic}}) {
        const text = '<tool_call>\n{"name": "get_weather", "argum';
        const r = (await openai.chat.completions.create(say("broken", {tools}))).choices[0];
        assert.deepEqual([r.message.content, r.message.tool_calls, r.finish_reason], [text, undefined, "stop"]);
        const m = await anthropic.messages.create(say("broken", {tools: blockTools, max_tokens: 100}));
        assert.deepEqual([m.content, m.stop_reason], [[{type: "text", text}], "end_turn"]);
    },
    async a_tools_result_goes_back({parrot: {openai}}) {
        const ask = say("weather?", {tools});
        const {message} = (await openai.chat.completions.create(ask)).choices[0];
        ask.messages.push(message, {role: "tool", tool_call_id: message.tool_calls[0].id, content: "21"});
        const r = await openai.chat.completions.create(ask);
        assert.equal(r.choices[0].message.content, RESULT);
        const read = await openai.post("/chat/render", {body: {messages: ask.messages, tools}});
        assert.match(read.prompt, /<tool_call>\n.*"name": "get_weather".*"city": "Paris", "days": 2.*\n<\/tool_call>/);
        assert.match(read.prompt, /<\|im_start\|>tool\n21<\|im_end\|>/);
        const second = (await openai.chat.completions.create(say("weather?", {tools}))).choices[0].message;
        assert.notEqual(second.tool_calls[0].id, message.tool_calls[0].id);
    },
    async the_tool_runner({parrot: {openai}}) {
        for (const stream of [false, true]) {
            const seen = [];
            const weather = {name: "get_weather", description: "d", parameters: schema, parse: JSON.parse,
                             function: args => (seen.push(args), "21")};
            const runner = openai.chat.completions.runTools(say("weather?", {stream, tools: [{type: "function", function: weather}]}));
            assert.equal(await runner.finalContent(), RESULT);
            assert.deepEqual(seen, [PARIS]);
        }
    },
    async an_object_by_its_schema({parrot: {openai, anthropic}}) {
        const kind = z.object({a: z.enum(["x", "y"]), b: z.boolean()}), is_kind = o => kind.parse(o);
        const r = await openai.chat.completions.parse(say("an object", {response_format: zodResponseFormat(kind, "kind")}));
        is_kind(r.choices[0].message.parsed);
        const stream = openai.chat.completions.stream(say("an object", {response_format: zodResponseFormat(kind, "kind")}));
        is_kind((await stream.finalChatCompletion()).choices[0].message.parsed);
        is_kind((await openai.responses.parse({model, input: "an object", text: {format: zodTextFormat(kind, "kind")}})).output_parsed);
        const format = {type: "json_schema", schema: {type: "object", properties: {a: {enum: ["x", "y"]}, b: {type: "boolean"}}, required: ["a"]}};
        const m = await anthropic.messages.create(say("an object", {max_tokens: 100, output_config: {format}}));
        assert.match(m.content[0].text, /^\{"a":"x","b":true\}$/);
    },
    async tools_of_responses({parrot: {openai}}) {
        const input = [{role: "user", content: "weather?"}];
        const r = await openai.responses.create({model, input, tools: flatTools});
        assert.deepEqual(r.tools, flatTools);
        assert.deepEqual(r.output.map(o => [o.type, o.name, JSON.parse(o.arguments)]), [["function_call", "get_weather", PARIS]]);
        const events = [];
        const stream = openai.responses.stream({model, input, tools: flatTools});
        stream.on("response.function_call_arguments.done", e => events.push(JSON.parse(e.arguments)));
        const final = await stream.finalResponse();
        assert.deepEqual([final.output[0].name, JSON.parse(final.output[0].arguments), events], ["get_weather", PARIS, [PARIS]]);
        input.push(r.output[0], {type: "function_call_output", call_id: r.output[0].call_id, output: "21"});
        assert.equal((await openai.responses.create({model, input, tools: flatTools})).output_text, RESULT);
    },
    async tools_of_messages({parrot: {anthropic}}) {
        const ask = say("weather?", {tools: blockTools, max_tokens: 200});
        const r = await anthropic.messages.create(ask);
        assert.equal(r.stop_reason, "tool_use");
        assert.deepEqual(r.content.map(b => [b.type, b.name, b.input]), [["tool_use", "get_weather", PARIS]]);
        const inputs = [];
        const final = await anthropic.messages.stream(ask).on("inputJson", (_, snapshot) => inputs.push(snapshot)).finalMessage();
        assert.deepEqual([final.content[0].name, final.content[0].input, inputs.at(-1)], ["get_weather", PARIS, PARIS]);
        const both = await anthropic.messages.stream(say("both", {tools: blockTools, max_tokens: 200})).finalMessage();
        assert.deepEqual(both.content.map(b => b.text ?? b.name), ["I shall look.", "get_weather", "get_time"]);
        const result = {role: "user", content: [{type: "tool_result", tool_use_id: r.content[0].id, content: "21"}]};
        const next = await anthropic.messages.create({...ask, messages: [...ask.messages, {role: "assistant", content: r.content}, result]});
        assert.deepEqual(next.content, [{type: "text", text: RESULT}]);
    },

    // -- the other endpoints --

    async completions({story: {openai}}) {
        const ask = {model, prompt: "Once upon a time", max_tokens: 16, seed: 1};
        const whole = await openai.completions.create({...ask, n: 2, logprobs: 2});
        assert.equal(whole.usage.completion_tokens, 32);
        assert.notEqual(whole.choices[0].text, whole.choices[1].text);
        for (const c of whole.choices) {
            assert.equal(c.logprobs.tokens.join(""), c.text);
            assert.ok(c.logprobs.token_logprobs.every(p => p <= 0));
            assert.ok(c.logprobs.top_logprobs.every(t => Object.keys(t).length === 2));
        }
        const texts = ["", ""];
        for await (const x of await openai.completions.create({...ask, n: 2, stream: true}))
            for (const c of x.choices) texts[c.index] += c.text;
        assert.deepEqual(texts, whole.choices.map(c => c.text));
        const echo = await openai.completions.create({...ask, echo: true});
        assert.equal(echo.choices[0].text, ask.prompt + texts[0]);
        const stop = await openai.completions.create({...ask, stop: texts[0].slice(6, 9)});
        assert.deepEqual([stop.choices[0].text, stop.choices[0].finish_reason], [texts[0].slice(0, texts[0].indexOf(texts[0].slice(6, 9))), "stop"]);
    },
    async embeddings({story: {openai}}) {
        const input = ["a cat", "a dog"];
        const base64 = await openai.embeddings.create({model, input}); // what this client asks for by itself
        const float = await openai.embeddings.create({model, input, encoding_format: "float"});
        assert.deepEqual(base64.data.map(d => d.index), [0, 1]);
        for (const [i, d] of base64.data.entries()) {
            const e = d.embedding, f = float.data[i].embedding;
            assert.equal(e.length, f.length);
            assert.ok(Math.abs(e.reduce((s, x) => s + x * x, 0) - 1) < 1e-4);
            assert.ok(e.every((x, k) => Math.abs(x - f[k]) < 1e-6));
        }
        assert.notDeepEqual(base64.data[0].embedding, base64.data[1].embedding);
        assert.equal(base64.usage.prompt_tokens, float.usage.prompt_tokens);
        await assert.rejects(openai.embeddings.create({model, input: []}), OpenAI.BadRequestError);
    },
    async responses({parrot: {openai}}) {
        const whole = await openai.responses.create({model, input: "hi", instructions: "Be kind."});
        assert.deepEqual([whole.output_text, whole.status, whole.instructions], [HELLO, "completed", "Be kind."]);
        let text = "";
        const names = [];
        const stream = openai.responses.stream({model, input: "hi", instructions: "Be kind."});
        stream.on("response.output_text.delta", e => (text += e.delta)).on("event", e => names.push(e.type));
        const final = await stream.finalResponse();
        assert.deepEqual([text, final.output_text ?? final.output[0].content[0].text, final.status], [HELLO, HELLO, "completed"]);
        assert.deepEqual([names[0], names.at(-1)], ["response.created", "response.completed"]);
        assert.equal(final.usage.input_tokens, whole.usage.input_tokens);
        const cut = await openai.responses.create({model, input: "hi", max_output_tokens: 3});
        assert.deepEqual([cut.status, cut.incomplete_details], ["incomplete", {reason: "max_output_tokens"}]);
        const talk = [{role: "user", content: "hi"}, ...whole.output, {role: "user", content: "think"}];
        assert.equal((await openai.responses.create({model, input: talk})).output.at(-1).content[0].text, FOUR);
        await assert.rejects(openai.responses.create({model, input: "hi", previous_response_id: "resp_1"}),
                             e => e instanceof OpenAI.BadRequestError && e.param === "previous_response_id");
    },
    async responses_are_kept({parrot: {openai}}) {
        const first = await openai.responses.create({model, input: "hi"});
        assert.equal(first.store, true);
        const next = await openai.responses.create({model, input: "think", previous_response_id: first.id});
        assert.equal(next.output_text, FOUR);
        assert.deepEqual((await openai.responses.retrieve(next.id)).output, next.output);
        const items = await collect(openai.responses.inputItems.list(next.id, {order: "asc", limit: 2}));
        assert.deepEqual(items.map(i => [i.role, i.content[0].text]), [["user", "hi"], ["assistant", HELLO], ["user", "think"]]);
        const reference = {type: "item_reference", id: first.output[0].id};
        const input = [{role: "user", content: "hi"}, reference, {role: "user", content: "think"}];
        const same = await openai.responses.create({model, input});
        assert.equal(same.usage.input_tokens, next.usage.input_tokens);
        await openai.responses.delete(first.id);
        await assert.rejects(openai.responses.retrieve(first.id), OpenAI.NotFoundError);
        await assert.rejects(openai.responses.create({model, input}), OpenAI.NotFoundError);
    },
    async a_tools_result_continues_a_response({parrot: {openai}}) {
        const {id, output: [call]} = await openai.responses.create({model, input: "weather?", tools: flatTools});
        const input = [{type: "function_call_output", call_id: call.call_id, output: "21"}];
        assert.equal((await openai.responses.create({model, previous_response_id: id, input, tools: flatTools})).output_text, RESULT);
    },
    async thoughts_are_a_summary({parrot: {openai}}) {
        const ask = {model, input: "think", reasoning: {summary: "auto"}, include: ["reasoning.encrypted_content"]};
        const whole = await openai.responses.create(ask);
        assert.deepEqual(whole.output[0].summary, [{type: "summary_text", text: THOUGHT}]);
        const n = whole.usage.output_tokens_details.reasoning_tokens;
        assert.ok(n > 0 && n < whole.usage.output_tokens);
        let text = "";
        const stream = openai.responses.stream(ask).on("response.reasoning_summary_text.delta", e => (text += e.delta));
        assert.deepEqual([(await stream.finalResponse()).output[0].summary[0].text, text], Array(2).fill(THOUGHT));
    },
    async messages({parrot: {openai, anthropic}}) {
        const ask = say("hi", {max_tokens: 100, system: "Be kind."});
        const whole = await anthropic.messages.create(ask);
        assert.deepEqual([whole.content, whole.stop_reason, whole.role], [[{type: "text", text: HELLO}], "end_turn", "assistant"]);
        let text = "";
        const stream = anthropic.messages.stream(ask).on("text", piece => (text += piece));
        const final = await stream.finalMessage();
        assert.equal(text, HELLO);
        assert.deepEqual([final.content, final.stop_reason], [whole.content, whole.stop_reason]);
        assert.equal(final.usage.output_tokens, whole.usage.output_tokens);
        const total = u => u.input_tokens + u.cache_read_input_tokens;
        assert.equal(total(final.usage), total(whole.usage));
        const counted = await anthropic.messages.countTokens({model, messages: ask.messages, system: ask.system});
        assert.equal(counted.input_tokens, total(whole.usage));
        const tooled = await anthropic.messages.countTokens({model, messages: ask.messages, tools: blockTools});
        assert.ok(tooled.input_tokens > counted.input_tokens);
        const cut = await anthropic.messages.create({...ask, max_tokens: 3});
        assert.deepEqual([cut.stop_reason, cut.usage.output_tokens], ["max_tokens", 3]);
        const stop = await anthropic.messages.create({...ask, stop_sequences: ["at can"]});
        assert.deepEqual([stop.stop_reason, stop.stop_sequence, stop.content[0].text], ["stop_sequence", "at can", "Grüße! 😀 Wh"]);
    },
    async cached_tokens_are_counted({parrot: {openai, anthropic}}, transport) {
        const messages = [{role: "system", content: `${transport} `.repeat(60)}, {role: "user", content: "hi"}];
        const first = (await openai.chat.completions.create({model, messages})).usage;
        const again = (await openai.chat.completions.create({model, messages})).usage;
        assert.ok(first.prompt_tokens_details.cached_tokens < 64, "the first time");
        assert.ok(again.prompt_tokens_details.cached_tokens > 200, "the second time");
        assert.equal(again.prompt_tokens, first.prompt_tokens);
        const m = await anthropic.messages.create({model, system: messages[0].content, messages: messages.slice(1), max_tokens: 30});
        assert.ok(m.usage.cache_read_input_tokens > 200);
        assert.equal(m.usage.input_tokens + m.usage.cache_read_input_tokens, again.prompt_tokens);
        const r = await openai.responses.create({model, instructions: messages[0].content, input: "hi"});
        assert.ok(r.usage.input_tokens_details.cached_tokens > 200);
    },

    // -- what goes wrong --

    async errors_have_their_classes({parrot: {openai, anthropic}}) {
        const wrong = (more, cls, param, code) => assert.rejects(openai.chat.completions.create(say("hi", more)), e => {
            assert.ok(e instanceof cls, e.stack);
            assert.deepEqual([e.param ?? null, e.code], [param, code]);
            return true;
        });
        await wrong({wobble: 1}, OpenAI.BadRequestError, "wobble", "unknown_field");
        await wrong({temperature: 3}, OpenAI.BadRequestError, "temperature", "out_of_range");
        await wrong({n: "two"}, OpenAI.BadRequestError, "n", "invalid_type");
        await wrong({wobble: 1, stream: true}, OpenAI.BadRequestError, "wobble", "unknown_field");
        await wrong({model: "gpt-5"}, OpenAI.NotFoundError, "model", "model_not_found");
        await wrong({messages: [{role: "user", content: "word ".repeat(40000)}]}, OpenAI.BadRequestError, "messages", "context_length_exceeded");
        await wrong({tool_choice: "sometimes", tools}, OpenAI.BadRequestError, "tool_choice", "unsupported_value");
        await wrong({tool_choice: "required"}, OpenAI.BadRequestError, "tool_choice", "invalid_value");
        await assert.rejects(anthropic.messages.create(say("hi", {max_tokens: 0})), e =>
            e instanceof Anthropic.BadRequestError && e.error.error.type === "invalid_request_error" &&
            /max_tokens/.test(e.message));
        await assert.rejects(anthropic.messages.create(say("hi", {max_tokens: 9, model: "x"})), Anthropic.NotFoundError);
        await assert.rejects(anthropic.messages.create(say("hi", {max_tokens: 9, stream: true, wobble: 1})), Anthropic.BadRequestError);
    },
    async a_model_without_a_template_says_so({story: {openai}}) {
        await assert.rejects(openai.chat.completions.create(say("hi")), e =>
            e instanceof OpenAI.BadRequestError && e.code === "no_chat_template");
    },
    async a_stream_that_is_aborted_ends_its_request({parrot: {openai, anthropic}}) {
        const sing = {...say("sing"), max_tokens: 30000, stream: true};
        for (const create of [() => openai.chat.completions.create({...sing, n: 4}), () => anthropic.messages.create(sing),
                              () => openai.responses.create({model, input: "sing", max_output_tokens: 30000, stream: true})]) {
            const stream = await create();
            let n = 0;
            for await (const _ of stream) if (++n === 5) stream.controller.abort();
            await until(openai, 0);
        }
        for await (const _ of await openai.chat.completions.create(sing)) break; // leaving the loop is enough
        await until(openai, 0);
    },
    async a_time_out_ends_the_request({parrot: {openai}}) {
        const long = {...say("sing"), max_tokens: 30000, n: 8};
        await assert.rejects(openai.chat.completions.create(long, {timeout: 100}), OpenAI.APIConnectionTimeoutError);
        await until(openai, 0);
        const abort = new AbortController();
        setTimeout(() => abort.abort(), 100);
        await assert.rejects(openai.chat.completions.create(long, {signal: abort.signal}), OpenAI.APIUserAbortError);
        await until(openai, 0);
        assert.equal((await openai.chat.completions.create(say("hi"))).choices[0].message.content, HELLO);
    },
    async a_full_queue_is_tried_again_later({parrot: {openai}}) {
        const abort = new AbortController();
        const long = {...say("sing"), max_tokens: 30000, n: 8};
        const hold = () => openai.chat.completions.create(long, {signal: abort.signal}).catch(e => e);
        const held = [hold()];
        await until(openai, 1); // the queue has one place, which also he takes who is about to run
        held.push(hold());
        await until(openai, 1, 1);
        let retry = 0;
        await assert.rejects(openai.chat.completions.create(say("hi")), e => {
            retry = Number(e.headers?.get("retry-after"));
            assert.ok(e instanceof OpenAI.RateLimitError && e.code === "queue_full" && retry >= 1, e.stack);
            return true;
        });
        const start = Date.now();
        setTimeout(() => abort.abort(), 200);
        const r = await openai.chat.completions.create(say("hi"), {maxRetries: 3});
        assert.equal(r.choices[0].message.content, HELLO);
        assert.ok(Date.now() - start >= 990, "it waited as long as it was told");
        for (const e of await Promise.all(held)) assert.ok(e instanceof OpenAI.APIUserAbortError, String(e));
    },
};

// What has no meaning on a Unix socket, where the user of the other end is who asks.
const tcpCases = {
    async keys({keyed}) {
        await assert.rejects(keyed.openai.models.list(), e => e instanceof OpenAI.AuthenticationError && e.code === "invalid_api_key");
        await assert.rejects(keyed.anthropic.messages.create(say("hi", {max_tokens: 9})), Anthropic.AuthenticationError);
        const {openai, anthropic} = clients("tcp", "keyed", {apiKey: "sk-one"}); // a bearer's token; x-api-key
        assert.equal((await openai.chat.completions.create(say("hi"))).choices[0].message.content, HELLO);
        assert.equal((await anthropic.messages.create(say("hi", {max_tokens: 99}))).content[0].text, HELLO);
        const abort = new AbortController();
        const held = openai.chat.completions.create(say("sing", {max_tokens: 30000, n: 8}), {signal: abort.signal}).catch(e => e);
        await until(openai, 1);
        await assert.rejects(openai.chat.completions.create(say("hi")), e =>
            e instanceof OpenAI.RateLimitError && e.code === "too_many_requests");
        await assert.rejects(anthropic.messages.create(say("hi", {max_tokens: 99})), e =>
            e instanceof Anthropic.RateLimitError && e.error.error.type === "rate_limit_error");
        abort.abort();
        await held;
    },
    async a_page_of_another_site_may_not({parrot: {openai}}) {
        await assert.rejects(openai.models.list({headers: {Origin: "https://evil.example"}}), OpenAI.PermissionDeniedError);
    },
};

await runTwice(clients, cases, tcpCases);
