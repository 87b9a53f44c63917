// SPDX-License-Identifier: MIT
//
// frameworks.mjs: all cases of the frameworks in this folder. Run by test_frameworks.py. SETUP has `url`, a daemon with
// a parrot whose context is smaller than what these clients ask for, `long`, one with a large context, and `story`, a
// daemon of a model without a chat template.

import {cases as agents} from "./agents.mjs";
import {cases as ai} from "./ai.mjs";
import {cases as continued} from "./continue.mjs";
import {converse, run, setup} from "./harness.mjs";
import {cases as langchain} from "./langchain.mjs";
import {cases as llamaindex} from "./llamaindex.mjs";
import {talks} from "./talks.mjs";

const conversations = Object.entries(talks).map(([name, talk]) =>
    [`${name}: a tool`, () => converse(talk(setup.url, "m"))]);

await run({...ai, ...agents, ...continued, ...langchain, ...llamaindex, ...Object.fromEntries(conversations)});
