// SPDX-License-Identifier: MIT
//
// harness.mjs: what all programs in this folder share: their arguments, the packages, a conversation, and the output.
//
//     node PROGRAM.mjs NPM_DIR SETUP [PREFIX_OF_CASES]
//
// SETUP is JSON. It has `limit`, the milliseconds that one exchange may take; the rest is described in each program.
// Output as cmocka's, status 1 if a case failed.

import assert from "node:assert/strict";
import {createRequire} from "node:module";
import path from "node:path";

const [dir, text, prefix = ""] = process.argv.slice(2);
export const setup = JSON.parse(text);
export const load = createRequire(path.resolve(dir, "node_modules/x.js"));
export const sleep = ms => new Promise(r => setTimeout(r, ms));

// What a parrot says (tests/models/make-parrot). Its own template chooses by the words, a foreign one by the names.
export const ASK = "weather? [say:call]";
export const GREET = "hi [say:hello]";
export const HELLO = "Grüße! 😀 What can I do?";
export const PARIS = {city: "Paris", days: 2};
export const DEGREES = "21.5 degrees [say:result]";
export const RESULT = "It is 21 degrees, as the tool says.";
export const THOUGHT = "Two and two; that is easy.";
export const FOUR = "It is four.";

export const properties = {city: {type: "string"}, days: {type: "integer"}};
export const schema = {type: "object", properties, required: ["city"]};
export const tool = {name: "get_weather", description: "Weather now"};

// An array of what comes.
export async function collect(stream) {
    const all = [];
    for await (const x of stream) all.push(x);
    return all;
}

// What the chunks of a chat completion say together: a text, calls and the usage. A chunk belongs to the call of its id.
export async function joined(stream) {
    let content = "", usage;
    const tool_calls = [];
    for await (const chunk of stream) {
        const delta = chunk.choices[0]?.delta ?? {};
        usage ??= chunk.usage;
        content += delta.content ?? "";
        for (const {index, id, function: f} of delta.tool_calls ?? []) {
            let call = id ? tool_calls.find(c => c.id === id) : tool_calls[index];
            if (!call) tool_calls.push(call = {id, type: "function", function: {name: f.name, arguments: ""}});
            call.function.arguments += f.arguments ?? "";
        }
    }
    return {content, tool_calls, usage};
}

// That an object with the member a is what the schema of `promise` allows, x or y. Some adapters ask for an object by a
// call that is forced.
export async function formed(promise) {
    const {a} = await promise;
    assert.ok(a === "x" || a === "y", a);
}

// That a request for something that Quern cannot do is answered 400, with the name of the field.
export async function refused(promise, words) {
    await assert.rejects(promise, e => {
        assert.equal(e.statusCode ?? e.status, 400, e.stack);
        assert.match(e.message, new RegExp(words));
        return true;
    });
}

// That a daemon cancels a request of `sing`, because its client leaves in the middle.
export async function leaves(url, sing) {
    const cancelled = async () => /finish="cancelled"} (\d+)/.exec(await (await fetch(url + "/metrics")).text())[1];
    const before = Number(await cancelled());
    await sing();
    for (let i = 0; i < setup.limit / 10; i++) {
        if (Number(await cancelled()) === before + 1) return;
        await sleep(10);
    }
    assert.fail("the request went on");
}

// A call, its result, an answer; a second question; a second call. ask(text) sends a user's message with the tool,
// gives the tool's result back as often as it is called, and returns the answer; `seen` collects the arguments.
export async function converse({ask, seen}) {
    assert.equal(await ask(ASK), RESULT);
    assert.deepEqual(seen, [PARIS]);
    assert.equal(await ask(GREET), HELLO);
    assert.equal(await ask(ASK), RESULT);
    assert.deepEqual(seen, [PARIS, PARIS]);
}

// cases: {name: async function}. Ends the program, after finish(). limit: milliseconds for one case.
export async function run(cases, {finish = () => {}, limit = setup.limit} = {}) {
    let failed = 0;
    for (const [name, test] of Object.entries(cases)) {
        if (!name.startsWith(prefix)) continue;
        console.log(`[ RUN      ] ${name}`);
        let late;
        const end = new Promise((_, no) => (late = setTimeout(() => no(new Error("too late")), limit)));
        try {
            await Promise.race([test(), end]);
            console.log(`[       OK ] ${name}`);
        } catch (e) {
            failed++;
            console.log(String(e?.stack ?? e).replace(/^/gm, "    ") + `\n[  FAILED  ] ${name}`);
        }
        clearTimeout(late);
    }
    await finish();
    process.exit(failed ? 1 : 0);
}
