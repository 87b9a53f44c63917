// SPDX-License-Identifier: MIT
//
// programs.mjs: conversations with a tool in the words of programs that are no packages: what Claude Code, Codex and
// editors send with each request, and what they send back. See talks.mjs.

import {DEGREES, joined, load, properties, schema, tool} from "./harness.mjs";

const {OpenAI} = load("openai");
const {Anthropic} = load("@anthropic-ai/sdk");

const apiKey = "none", maxRetries = 0;
const ephemeral = {cache_control: {type: "ephemeral"}};

function claudeCode(url, model) {
    const client = new Anthropic({baseURL: url, apiKey, maxRetries});
    const messages = [], seen = [];
    const strict = {$schema: "https://json-schema.org/draft/2020-12/schema", ...schema, additionalProperties: false};
    const settings = {
        model, max_tokens: 32000, temperature: 1,
        betas: ["claude-code-20250219", "interleaved-thinking-2025-05-14", "context-management-2025-06-27"],
        system: ["You are a coding agent.", "Be brief."].map(text => ({type: "text", text, ...ephemeral})),
        tools: [{...tool, input_schema: strict, eager_input_streaming: true}],
        thinking: {type: "enabled", budget_tokens: 31999},
        context_management: {edits: [{type: "clear_thinking_20251015", keep: "all"}]},
        metadata: {user_id: "user_1_account__session_2"},
    };
    const ask = async text => {
        messages.push({role: "user", content: [{type: "text", text: "<system-reminder>\nNone.\n</system-reminder>"},
                                               {type: "text", text, ...ephemeral}]});
        for (;;) {
            const {input_tokens} = await client.beta.messages.countTokens({model, messages, tools: settings.tools});
            const r = await client.beta.messages.stream({...settings, messages}).finalMessage();
            if (!(input_tokens > 0)) throw new Error("nothing is counted");
            messages.push({role: "assistant", content: r.content});
            if (r.stop_reason !== "tool_use") return r.content.filter(b => b.type === "text").map(b => b.text).join("");
            messages.push({role: "user", content: r.content.filter(b => b.type === "tool_use").map(b => {
                seen.push(b.input);
                const content = [{type: "text", text: DEGREES}];
                return {type: "tool_result", tool_use_id: b.id, content, is_error: false};
            })});
        }
    };
    return {ask, seen};
}

function codex(url, model) {
    const client = new OpenAI({baseURL: url + "/v1", apiKey, maxRetries});
    const seen = [];
    const says = (role, text) => ({type: "message", role, content: [{type: "input_text", text}]});
    const input = [says("developer", "<permissions>all</permissions>"), says("user", "<environment>x</environment>")];
    const strict = {type: "object", properties, required: ["city", "days"], additionalProperties: false};
    const settings = {
        model, instructions: "You are a coding agent.", tool_choice: "auto", parallel_tool_calls: false, store: false,
        tools: [{type: "function", ...tool, strict: false, parameters: strict}],
        reasoning: {effort: "medium", summary: "auto"}, include: ["reasoning.encrypted_content"],
        prompt_cache_key: "0199-session", text: {verbosity: "medium"}, stream: true,
    };
    const ask = async text => {
        input.push(says("user", text));
        for (;;) {
            const items = [];
            for await (const e of await client.responses.create({...settings, input}))
                if (e.type === "response.output_item.done") items.push(e.item);
            input.push(...items);
            const calls = items.filter(i => i.type === "function_call");
            if (!calls.length) return items.at(-1).content[0].text;
            for (const c of calls) {
                seen.push(JSON.parse(c.arguments));
                input.push({type: "function_call_output", call_id: c.call_id, output: DEGREES});
            }
        }
    };
    return {ask, seen};
}

// As Cline, Continue, Zed and others do: texts in parts, calls put together from a stream, "" where a call has no text.
function editor(url, model) {
    const client = new OpenAI({baseURL: url + "/v1", apiKey, maxRetries});
    const messages = [{role: "system", content: "You are a coding agent."}], seen = [];
    const parameters = {...schema, additionalProperties: false};
    const settings = {
        model, temperature: 0, max_completion_tokens: 8192, stop: [], tool_choice: "auto", parallel_tool_calls: true,
        tools: [{type: "function", function: {...tool, strict: true, parameters}}],
        reasoning_effort: "medium", stream: true, stream_options: {include_usage: true},
    };
    const ask = async text => {
        messages.push({role: "user", content: [{type: "text", text}]});
        for (;;) {
            const {content, tool_calls, usage} = await joined(await client.chat.completions.create({...settings, messages}));
            if (!usage) throw new Error("no usage");
            messages.push({role: "assistant", content, ...(tool_calls.length ? {tool_calls} : {})});
            if (!tool_calls.length) return content;
            for (const c of tool_calls) {
                seen.push(JSON.parse(c.function.arguments));
                messages.push({role: "tool", tool_call_id: c.id, content: [{type: "text", text: DEGREES}]});
            }
        }
    };
    return {ask, seen};
}

export const programs = {"claude code": claudeCode, codex, "an editor": editor};
