// SPDX-License-Identifier: MIT
//
// tool_loops.mjs: tool loops with the chat templates of many models. Run by test_tool_loops.py, which describes SETUP.

import assert from "node:assert/strict";

import {converse, run, setup, tool} from "./harness.mjs";
import {talks} from "./talks.mjs";

const {url, models, refuse, sample} = setup;

async function render(model, messages, tools) {
    const body = JSON.stringify({model, messages, tools}), headers = {"Content-Type": "application/json"};
    const {prompt, error} = await (await fetch(url + "/v1/chat/render", {method: "POST", headers, body})).json();
    assert.ok(prompt, error?.message);
    return prompt;
}

// The prompts that the turns of a conversation had: each has all that was said before, the later after the earlier.
async function checkPrompts(model, {messages, tools}) {
    for (let n = 1; n <= messages.length; n++) {
        if (messages[n - 1].role === "assistant") continue;
        const prompt = await render(model, messages.slice(0, n), tools);
        for (const word of [tool.name, tool.description, "city"])
            assert.ok(prompt.includes(word), `${word}: ${prompt}`);
        assert.doesNotMatch(prompt, /(?<!')\bNone\b|undefined/); // Cohere asks for 'None'
        let at = 0;
        for (const m of messages.slice(0, n)) {
            for (const word of m.tool_calls ? [tool.name, "Paris", "2"] : [m.content]) {
                const next = prompt.indexOf(word, at);
                assert.ok(next >= 0, `'${word}' of message ${messages.indexOf(m)} is not in its place: ${prompt}`);
                at = next + word.length;
            }
        }
    }
}

const cases = {};
for (const model of models)
    cases[`openai:${model}`] = async () => {
        const talk = talks.openai(url, model);
        await converse(talk);
        await checkPrompts(model, talk);
        const ids = talk.messages.flatMap(m => m.tool_calls ?? []).map(c => c.id);
        assert.equal(new Set(ids).size, 2);
    };
for (const [model, reason] of Object.entries(refuse))
    cases[`refused:${model}`] = () => assert.rejects(converse(talks.openai(url, model)), e => {
        assert.equal(e.status, 400, e.stack);
        assert.ok(e.message.includes(reason), e.message);
        return true;
    });
for (const [name, talk] of Object.entries(talks))
    if (name !== "openai") for (const model of sample) cases[`${name}:${model}`] = () => converse(talk(url, model));

await run(cases);
