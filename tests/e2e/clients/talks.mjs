// SPDX-License-Identifier: MIT
//
// talks.mjs: conversations with a tool, one for each client. talks maps a client's name to a function of a daemon's URL
// and a model, which returns what converse() in harness.mjs takes. Clients have their own settings wherever they have
// any: nothing is set but the address, the model and the tool.

import {DEGREES, joined, load, schema, tool} from "./harness.mjs";
import {programs} from "./programs.mjs";

const {OpenAI} = load("openai");
const {Anthropic} = load("@anthropic-ai/sdk");
const ai = load("ai");
const agents = load("@openai/agents");
const {z} = load("zod");
const {ChatOpenAI} = load("@langchain/openai");
const {ChatAnthropic} = load("@langchain/anthropic");
const {HumanMessage, ToolMessage} = load("@langchain/core/messages");
const llama = load("@llamaindex/openai");
const {agent: llamaAgent} = load("@llamaindex/workflow");
const {tool: llamaTool} = load("@llamaindex/core/tools");
const {constructLlmApi} = load("@continuedev/openai-adapters");
const {Ollama} = load("ollama");

agents.setTracingDisabled(true);

const apiKey = "none", maxRetries = 0;
const at = url => ({baseURL: url + "/v1", apiKey, maxRetries});
const parameters = z.object({city: z.string(), days: z.number().int()});
const functionTool = {type: "function", function: {...tool, parameters: schema}};

// ---- the models of frameworks that have several ways to a model ----

export const aiModels = {
    "ai responses": (url, model) => load("@ai-sdk/openai").createOpenAI({baseURL: url + "/v1", apiKey})(model),
    "ai chat": (url, model) => load("@ai-sdk/openai").createOpenAI({baseURL: url + "/v1", apiKey}).chat(model),
    "ai compatible": (url, model) =>
        load("@ai-sdk/openai-compatible").createOpenAICompatible({name: "quern", baseURL: url + "/v1"})(model),
    "ai anthropic": (url, model) => load("@ai-sdk/anthropic").createAnthropic({baseURL: url + "/v1", apiKey})(model),
};

export const langchainModels = {
    "langchain chat": (url, model, more) =>
        new ChatOpenAI({model, apiKey, maxRetries, configuration: at(url), ...more}),
    "langchain responses": (url, model, more) =>
        new ChatOpenAI({model, apiKey, maxRetries, configuration: at(url), useResponsesApi: true, ...more}),
    "langchain anthropic": (url, model, more) =>
        new ChatAnthropic({model, apiKey, maxRetries, anthropicApiUrl: url, ...more}),
};

export const agentModels = {
    "agents responses": (url, model) => new agents.OpenAIResponsesModel(new OpenAI(at(url)), model),
    "agents chat": (url, model) => new agents.OpenAIChatCompletionsModel(new OpenAI(at(url)), model),
};

export function llamaModel(url, model) {
    return new llama.OpenAI({model, apiKey, maxRetries, additionalSessionOptions: {baseURL: url + "/v1"}});
}

// As Continue makes them of a model in its config.yaml; an address ends with a slash there.
export const continueModel = (provider, url) => constructLlmApi({provider, apiBase: url + "/v1/", apiKey, requestOptions: {}});

// ---- conversations ----

function openai(url, model) {
    const client = new OpenAI(at(url));
    const messages = [], seen = [];
    const ask = async text => {
        messages.push({role: "user", content: text});
        for (;;) {
            const r = await client.chat.completions.create({model, messages, tools: [functionTool]});
            const {message} = r.choices[0];
            messages.push(message);
            if (!message.tool_calls) return message.content;
            for (const c of message.tool_calls) {
                seen.push(JSON.parse(c.function.arguments));
                messages.push({role: "tool", tool_call_id: c.id, content: DEGREES});
            }
        }
    };
    return {ask, seen, messages, tools: [functionTool]};
}

function openaiStream(url, model) {
    const client = new OpenAI(at(url));
    const seen = [];
    let messages = [];
    const called = {parse: JSON.parse, function: args => (seen.push(args), DEGREES)};
    const weather = {type: "function", function: {...tool, parameters: schema, ...called}};
    const ask = async text => {
        messages.push({role: "user", content: text});
        const runner = client.chat.completions.runTools({model, messages, tools: [weather], stream: true});
        const answer = await runner.finalContent();
        messages = [...runner.messages];
        return answer;
    };
    return {ask, seen};
}

function openaiResponses(url, model) {
    const client = new OpenAI(at(url));
    const input = [], seen = [], tools = [{type: "function", ...tool, parameters: schema, strict: null}];
    const ask = async text => {
        input.push({role: "user", content: text});
        for (;;) {
            const r = await client.responses.create({model, input, tools});
            input.push(...r.output);
            const calls = r.output.filter(o => o.type === "function_call");
            if (!calls.length) return r.output_text;
            for (const c of calls) {
                seen.push(JSON.parse(c.arguments));
                input.push({type: "function_call_output", call_id: c.call_id, output: DEGREES});
            }
        }
    };
    return {ask, seen};
}

function anthropic(url, model) {
    const client = new Anthropic({baseURL: url, apiKey, maxRetries});
    const messages = [], seen = [];
    const ask = async text => {
        messages.push({role: "user", content: text});
        for (;;) {
            const tools = [{...tool, input_schema: schema}];
            const r = await client.messages.stream({model, messages, tools, max_tokens: 32000}).finalMessage();
            messages.push({role: "assistant", content: r.content});
            if (r.stop_reason !== "tool_use") return r.content.filter(b => b.type === "text").map(b => b.text).join("");
            messages.push({role: "user", content: r.content.filter(b => b.type === "tool_use").map(b => {
                seen.push(b.input);
                return {type: "tool_result", tool_use_id: b.id, content: DEGREES};
            })});
        }
    };
    return {ask, seen};
}

const aiTalk = (make, stream) => (url, model) => {
    const messages = [], seen = [];
    const {name, description} = tool, execute = args => (seen.push(args), DEGREES);
    const tools = {[name]: ai.tool({description, inputSchema: parameters, execute})};
    const ask = async text => {
        messages.push({role: "user", content: text});
        const settings = {model: make(url, model), messages, tools, stopWhen: ai.stepCountIs(4), maxRetries};
        if (!stream) {
            const r = await ai.generateText(settings);
            messages.push(...r.response.messages);
            return r.text;
        }
        let wrong;
        const r = ai.streamText({...settings, onError: ({error}) => (wrong = error)});
        await r.consumeStream();
        if (wrong) throw wrong;
        messages.push(...(await r.response).messages);
        return r.text;
    };
    return {ask, seen};
};

const agentTalk = (make, stream) => (url, model) => {
    const seen = [];
    const weather = agents.tool({...tool, parameters, execute: args => (seen.push(args), DEGREES)});
    const agent = new agents.Agent({name: "helper", model: make(url, model), tools: [weather]});
    let history = [];
    const ask = async text => {
        history.push(agents.user(text));
        const r = await agents.run(agent, history, {stream});
        if (stream) {
            for await (const _ of r);
            await r.completed;
        }
        history = r.history;
        return r.finalOutput;
    };
    return {ask, seen};
};

const langchainTalk = (make, stream) => (url, model) => {
    const messages = [], seen = [];
    const llm = make(url, model).bindTools([{type: "function", function: {...tool, parameters: schema}}]);
    const ask = async text => {
        messages.push(new HumanMessage(text));
        for (;;) {
            let r;
            if (stream) for await (const piece of await llm.stream(messages)) r = r ? r.concat(piece) : piece;
            else r = await llm.invoke(messages);
            messages.push(r);
            if (!r.tool_calls.length) return r.text;
            for (const c of r.tool_calls) {
                seen.push(c.args);
                messages.push(new ToolMessage({content: DEGREES, tool_call_id: c.id, name: c.name}));
            }
        }
    };
    return {ask, seen};
};

function llamaindex(url, model) {
    const messages = [], seen = [];
    const llm = llamaModel(url, model);
    const tools = [{metadata: {...tool, parameters: schema}, call: args => DEGREES}];
    const ask = async text => {
        messages.push({role: "user", content: text});
        for (;;) {
            const {message} = await llm.chat({messages, tools});
            messages.push(message);
            const calls = message.options?.toolCall ?? [];
            if (!calls.length) return message.content;
            for (const c of calls) {
                seen.push(typeof c.input === "string" ? JSON.parse(c.input) : c.input);
                const toolResult = {id: c.id, result: DEGREES, isError: false};
                messages.push({role: "user", content: DEGREES, options: {toolResult}});
            }
        }
    };
    return {ask, seen};
}

function llamaWorkflow(url, model) {
    const seen = [];
    const weather = llamaTool({...tool, parameters, execute: args => (seen.push(args), DEGREES)});
    const helper = llamaAgent({llm: llamaModel(url, model), tools: [weather]});
    let state;
    const ask = async text => {
        const {data} = await helper.run(text, {state});
        state = data.state;
        return data.result;
    };
    return {ask, seen};
}

// Continue sends a blank where a message has no text, and all the fields that its user has set.
const continueTalk = (provider, stream) => (url, model) => {
    const api = continueModel(provider, url), {signal} = new AbortController();
    const messages = [{role: "system", content: "You are a coding agent."}], seen = [];
    const settings = {model, max_tokens: 4096, stream, tools: [functionTool]};
    const ask = async text => {
        messages.push({role: "user", content: text});
        for (;;) {
            const body = {...settings, messages: [...messages]};
            const {content, tool_calls} = stream ? await joined(api.chatCompletionStream(body, signal))
                                                 : (await api.chatCompletionNonStream(body, signal)).choices[0].message;
            messages.push({role: "assistant", content: content || " ", ...(tool_calls?.length ? {tool_calls} : {})});
            if (!tool_calls?.length) return content;
            for (const c of tool_calls) {
                seen.push(JSON.parse(c.function.arguments));
                messages.push({role: "tool", tool_call_id: c.id, content: DEGREES});
            }
        }
    };
    return {ask, seen};
};

function ollama(url, model) {
    const client = new Ollama({host: url});
    const messages = [], seen = [];
    const ask = async text => {
        messages.push({role: "user", content: text});
        for (;;) {
            const {message} = await client.chat({model, messages, tools: [functionTool]});
            messages.push(message);
            if (!message.tool_calls) return message.content;
            for (const c of message.tool_calls) {
                seen.push(c.function.arguments);
                messages.push({role: "tool", tool_name: c.function.name, content: DEGREES});
            }
        }
    };
    return {ask, seen};
}

const both = (models, talk) => Object.fromEntries(Object.entries(models).flatMap(([name, make]) =>
    [[name, talk(make, false)], [name + ", streamed", talk(make, true)]]));

export const talks = {
    "openai": openai,
    "openai, streamed": openaiStream,
    "openai responses": openaiResponses,
    "anthropic, streamed": anthropic,
    ...both(aiModels, aiTalk),
    ...both(agentModels, agentTalk),
    ...both(langchainModels, langchainTalk),
    "llamaindex": llamaindex,
    "llamaindex workflow": llamaWorkflow,
    "continue openai": continueTalk("openai", false),
    "continue openai, streamed": continueTalk("openai", true),
    "continue anthropic, streamed": continueTalk("anthropic", true),
    ...programs,
    "ollama": ollama,
};
