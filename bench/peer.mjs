// SPDX-License-Identifier: MIT
//
// peer.mjs: llama.cpp on one model: timed, or asked for its logits.
//
//     node peer.mjs PACKAGE_DIR '{"model": FILE, "threads": N, ...}'
//
// with "tests": {DEPTH: [NAMES]} and "generate", "reps", "seconds": times the tests of `quern bench` (pp512, tg, b8)
// behind DEPTH earlier tokens and prints {"tests": {NAME: {"tok_s": [...]}}}; and with "ids": [...] and "top": N:
// prints {"top": [[TOKEN, LOGIT], ...]}, the largest logits behind those ids.
//
// A prompt is evaluated in an empty context, in batches of 512 rows as llama.cpp does, with the logits of the last;
// decode is one token after the other, logits included; a batch has logits for all its rows. The model is loaded once
// and an earlier depth is the beginning of the next. Sampling is not measured. It calls the package's binding to
// llama_decode() directly, so that no queues or samplers written in JavaScript are timed.
import path from "node:path";
import {pathToFileURL} from "node:url";

const [dir, text] = process.argv.slice(2);
const job = {tests: {}, ids: [], generate: 0, reps: 1, seconds: 0, ...JSON.parse(text)};
const rowsAtOnce = 512;

const {getLlama, LlamaLogLevel} = await import(
    pathToFileURL(path.resolve(dir, "node_modules/node-llama-cpp/dist/index.js")).href);
const llama = await getLlama({gpu: false, build: "never", maxThreads: job.threads, logLevel: LlamaLogLevel.warn});
const model = await llama.loadModel({modelPath: job.model});
const nVocab = model.fileInfo.metadata.tokenizer.ggml.tokens.length;

const rowsOf = (name) => name.startsWith("tg") ? job.generate : Number(name.match(/\d+/)[0]);
// Where a test may end: its repetitions may have to follow one another, and so may the tests of a depth.
const ends = Object.entries(job.tests).map(([depth, names]) =>
    Number(depth) + names.reduce((sum, name) => sum + rowsOf(name) * (Number(depth) ? job.reps : 1), 0));
const context = await model.createContext({
    contextSize: Math.max(...ends, job.ids.length) + 1,
    batchSize: rowsAtOnce,
    threads: {ideal: job.threads, min: job.threads},
    flashAttention: "auto", // llama.cpp's default
});
const binding = context._ctx;
binding.setThreads(job.threads);

// Evaluates tokens from position pos on, in one batch, with the logits of the last one or of all.
async function evaluate(tokens, pos, all) {
    const n = tokens.length;
    binding.initBatch(n);
    const rows = all ? Uint32Array.from({length: n}, (_, i) => i) : Uint32Array.of(n - 1);
    const wanted = binding.addToBatch(0, pos, tokens, rows);
    await binding.decodeBatch();
    return wanted[wanted.length - 1]; // names the last row's logits
}

// Which tokens they are does not matter, but they should differ: equal ones are kinder to the caches.
const someTokens = (n, pos) => Uint32Array.from({length: n}, (_, i) => ((pos + i) * 7919 + 13) % nVocab);

async function prefill(n, pos) {
    for (let done = 0; done < n; done += rowsAtOnce)
        await evaluate(someTokens(Math.min(rowsAtOnce, n - done), pos + done), pos + done, false);
}

async function run(name, depth) {
    if (name.startsWith("pp")) await prefill(rowsOf(name), depth);
    else if (name.startsWith("b")) await evaluate(someTokens(rowsOf(name), depth), depth, true);
    else for (let i = 0; i < job.generate; i++) await evaluate(someTokens(1, depth + i), depth + i, false);
}

// Forgets what is behind position pos, if it can; where the next token goes.
let end = 0; // of the sequence
function cut(pos) {
    if (binding.removeTokenCellsFromSequence(0, pos, -1)) end = pos;
    else if (pos === 0) throw new Error("the context cannot be emptied");
    return end;
}

async function time(name, depth) {
    const tokensPerSecond = [], begin = performance.now();
    do {
        const pos = cut(depth), start = performance.now();
        await run(name, pos);
        end = pos + rowsOf(name);
        tokensPerSecond.push(rowsOf(name) * 1000 / (performance.now() - start));
    } while (tokensPerSecond.length < job.reps && performance.now() - begin < job.seconds * 1000);
    return {tok_s: tokensPerSecond};
}

const result = {};
if (job.ids.length) {
    const sampler = new llama._bindings.AddonSampler(model._model);
    sampler.applyConfig({temperature: 0});
    let row;
    for (let done = 0; done < job.ids.length; done += rowsAtOnce)
        row = await evaluate(Uint32Array.from(job.ids.slice(done, done + rowsAtOnce)), done, false);
    const flat = (await binding.sampleToken(row, sampler, false, false, [[], false, false, false, job.top], false))[3];
    result.top = Array.from({length: job.top}, (_, i) => [flat[2 * i], flat[2 * i + 1]]);
} else {
    result.tests = {};
    await evaluate(someTokens(1, 0), 0, false); // brings the file's pages in
    end = 1;
    for (const depth of Object.keys(job.tests).map(Number).sort((a, b) => a - b)) {
        let pos = cut(Math.min(depth, end));
        if (pos > depth) pos = cut(0);
        await prefill(depth - pos, pos);
        end = depth;
        for (const name of job.tests[depth]) result.tests[name] = await time(name, depth);
    }
}
console.log(JSON.stringify(result));
process.exit(0); // without the package's slow clearing up
