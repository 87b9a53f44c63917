// SPDX-License-Identifier: MIT
//
// twice.mjs: runs cases twice: over TCP with the clients as they come, and over Unix sockets with undici's fetch, whose
// exchanges are recorded. SETUP has a `url` and a `socket` for each daemon: `parrot` (tests/models/make-parrot: says what
// is known), `random` (a chat model), `story` and `keyed` (parrot with keys). It also has `record`, a file for exchanges.

import fs from "node:fs";

import {load, run, setup} from "./harness.mjs";

const undici = load("undici");
const {record, limit, ...daemons} = setup;

export const tools = ["get_weather", "get_time"].map(name => {
    const properties = {city: {type: "string"}, days: {type: "integer"}};
    const parameters = {type: "object", properties, required: ["city"]};
    return {type: "function", function: {name, description: "d", parameters}};
});

// Where a daemon is reached, and how: over TCP with the client's own fetch, so that there is none.
export function reach(transport, name) {
    const {url, socket} = daemons[name];
    if (transport === "tcp") return {base: url};
    const dispatcher = new undici.Agent({connect: {socketPath: socket}});
    // Also notes what was answered, as the client reads it; one that was broken off proves nothing. It does not read a
    // copy beside the client (clone()): after an abort, undici sometimes lets the readers of both wait for ever.
    const fetch = async (target, init = {}) => {
        const reply = await undici.fetch(target, {...init, dispatcher});
        const {status, statusText, headers} = reply;
        const note = {method: init.method ?? "GET", target: new URL(target).pathname, status, type: headers.get("content-type")};
        const keep = body => fs.appendFileSync(record, JSON.stringify({...note, body}) + "\n");
        if (!reply.body) {
            keep("");
            return reply;
        }
        const decoder = new TextDecoder();
        let body = "";
        const noting = new TransformStream({
            transform(bytes, out) {
                body += decoder.decode(bytes, {stream: true});
                out.enqueue(bytes);
            },
            flush() {
                keep(body + decoder.decode());
            },
        });
        return new undici.Response(reply.body.pipeThrough(noting), {status, statusText, headers});
    };
    return {base: "http://localhost", fetch};
}

// Ends the program. cases, tcpCases: {name: async function of the clients of all daemons, by name}; the latter are about
// TCP alone. client: a function of a transport and a daemon's name.
export async function runTwice(client, cases, tcpCases = {}) {
    const all = {};
    for (const [transport, list] of [["tcp", {...cases, ...tcpCases}], ["unix", cases]]) {
        const clients = Object.fromEntries(Object.keys(daemons).map(name => [name, client(transport, name)]));
        for (const [name, test] of Object.entries(list)) all[`${name}_over_${transport}`] = () => test(clients);
    }
    await run(all);
}
