// SPDX-License-Identifier: MIT
//
// agents.mjs: OpenAI's agents (npm: @openai/agents), with both of OpenAI's APIs.

import assert from "node:assert/strict";

import {FOUR, HELLO, RESULT, formed, leaves, load, setup} from "./harness.mjs";
import {agentModels} from "./talks.mjs";

const {Agent, handoff, run, tool} = load("@openai/agents");
const {z} = load("zod");
const {url, long} = setup;

const each = {
    async "a text"(model) {
        const r = await run(new Agent({name: "helper", instructions: "Be kind.", model}), "hi");
        assert.equal(r.finalOutput, HELLO);
        assert.ok(r.rawResponses[0].usage.outputTokens > 0);
    },
    async "a stream"(model) {
        const r = await run(new Agent({name: "helper", model}), "hi", {stream: true});
        let text = "";
        for await (const piece of r.toTextStream()) text += piece;
        await r.completed;
        assert.deepEqual([text, r.finalOutput], [HELLO, HELLO]);
    },
    async "thoughts, also in the next turn"(model) {
        const agent = new Agent({name: "helper", model});
        const r = await run(agent, "think");
        assert.equal(r.finalOutput, FOUR);
        assert.equal((await run(agent, [...r.history, {role: "user", content: "hi"}])).finalOutput, HELLO);
    },
    async "a model that may hand over, and one that need not"(model) {
        const other = new Agent({name: "other", model, handoffDescription: "knows the time"});
        const agent = new Agent({name: "helper", model, handoffs: [handoff(other)]});
        assert.equal((await run(agent, "hi")).finalOutput, HELLO);
    },
    async "two calls at once"(model) {
        const seen = [];
        const tools = [
            tool({name: "get_weather", description: "d", parameters: z.object({city: z.string()}),
                  execute: ({city}) => (seen.push(city), "21")}),
            tool({name: "get_time", description: "d", parameters: z.object({}),
                  execute: () => (seen.push("time"), "9")}),
        ];
        assert.equal((await run(new Agent({name: "helper", model, tools}), "both")).finalOutput, RESULT);
        assert.deepEqual(seen, ["Köln", "time"]);
    },
    async "an object"(model) {
        const outputType = z.object({a: z.enum(["x", "y"]), b: z.boolean()});
        await formed(run(new Agent({name: "helper", model, outputType}), "an object").then(r => r.finalOutput));
    },
    async "a tool that has to be called"(model) {
        const seen = [], execute = ({a}) => { seen.push(a); return "9"; };
        const tools = [tool({name: "set_a", description: "d", parameters: z.object({a: z.enum(["x", "y"])}), execute})];
        const agent = new Agent({name: "helper", model, tools, modelSettings: {toolChoice: "required"}});
        await run(agent, "hi"); // after the call the agent sets its choice back to auto
        assert.ok(seen.length > 0 && seen.every(a => a === "x" || a === "y"), seen);
    },
};

export const cases = {};
for (const [name, make] of Object.entries(agentModels))
    for (const [what, test] of Object.entries(each)) cases[`${name}: ${what}`] = () => test(make(url, "m"));

for (const [name, make] of Object.entries(agentModels))
    cases[`${name}: a stream that is aborted`] = () => leaves(long, async () => {
        const abort = new AbortController();
        const agent = new Agent({name: "helper", model: make(long, "m")});
        const r = await run(agent, "sing", {stream: true, signal: abort.signal});
        let n = 0;
        try {
            for await (const _ of r.toTextStream()) if (++n === 3) abort.abort();
            await r.completed;
        } catch (e) {
            assert.equal(e.name, "AbortError");
        }
    });

cases["agents responses: a response is continued by its id"] = async () => {
    const agent = new Agent({name: "helper", model: agentModels["agents responses"](url, "m")});
    const first = await run(agent, "think");
    const next = await run(agent, "hi", {previousResponseId: first.lastResponseId});
    assert.equal(next.finalOutput, HELLO);
    assert.ok(next.rawResponses[0].usage.inputTokens > first.rawResponses[0].usage.inputTokens + 5);
};
