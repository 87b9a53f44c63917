// SPDX-License-Identifier: MIT
//
// peer.mjs: times llama.cpp on one model and prints what `quern bench --json` prints.
//
//     node peer.mjs PACKAGE_DIR MODEL PROMPT_TOKENS GENERATED_TOKENS DEPTH THREADS
//
// Prefill is one batch of PROMPT_TOKENS in an empty context with the logits of the last; decode is GENERATED_TOKENS
// batches of one token each, logits included, after DEPTH tokens. Sampling is not measured. It calls the package's
// binding to llama_decode() directly, so that no queues or samplers written in JavaScript are timed.
import path from "node:path";
import {pathToFileURL} from "node:url";

const [dir, modelPath, ...numbers] = process.argv.slice(2);
const [nPrompt, nGenerate, depth, threads] = numbers.map(Number);
const repetitions = 3;

const {getLlama, LlamaLogLevel} = await import(
    pathToFileURL(path.resolve(dir, "node_modules/node-llama-cpp/dist/index.js")).href);
const llama = await getLlama({gpu: false, build: "never", maxThreads: threads, logLevel: LlamaLogLevel.warn});
const model = await llama.loadModel({modelPath});
const nVocab = model.fileInfo.metadata.tokenizer.ggml.tokens.length;
const context = await model.createContext({
    contextSize: Math.max(nPrompt, depth + nGenerate + 1),
    batchSize: Math.max(nPrompt, depth, 1),
    threads: {ideal: threads, min: threads},
    flashAttention: "auto", // llama.cpp's default
});
const binding = context._ctx;
binding.setThreads(threads);

// Evaluates n tokens from position pos on and returns the seconds it took. Which tokens they are does not matter,
// but they should differ: equal ones are kinder to the caches.
async function evaluate(n, pos) {
    const tokens = Uint32Array.from({length: n}, (_, i) => ((pos + i) * 7919 + 13) % nVocab);
    const start = performance.now();
    binding.initBatch(n);
    binding.addToBatch(0, pos, tokens, Uint32Array.of(n - 1));
    await binding.decodeBatch();
    return (performance.now() - start) / 1000;
}

async function prefill() {
    binding.disposeSequence(0);
    return nPrompt / await evaluate(nPrompt, 0);
}

async function decode() {
    let seconds = 0;
    binding.disposeSequence(0);
    if (depth > 0) await evaluate(depth, 0);
    for (let i = 0; i < nGenerate; i++) seconds += await evaluate(1, depth + i);
    return nGenerate / seconds;
}

async function repeat(measure) {
    const results = [];
    for (let i = 0; i < repetitions; i++) results.push(await measure());
    return results;
}

await evaluate(1, 0); // brings the file's pages in
const result = {prefill: {tokens: nPrompt, tok_s: await repeat(prefill)}};
result.decode = {tokens: nGenerate, depth, tok_s: await repeat(decode)};
console.log(JSON.stringify(result));
process.exit(0); // without the package's slow clearing up
