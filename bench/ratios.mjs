// SPDX-License-Identifier: MIT
//
// ratios.mjs: reads what the rounds of `compare` left and prints speeds, ratios and their spread.
//
//     node ratios.mjs RESULTS_DIR ROUNDS
import fs from "node:fs";
import path from "node:path";

const [dir, rounds] = process.argv.slice(2);

function median(values) {
    const sorted = [...values].sort((a, b) => a - b);
    const half = sorted.length >> 1;
    return sorted.length % 2 ? sorted[half] : (sorted[half - 1] + sorted[half]) / 2;
}

// One number a round: the median of its repetitions, in tokens per second.
function speeds(program, test) {
    return Array.from({length: Number(rounds)}, (_, i) => {
        const file = path.join(dir, `${i + 1}.${program}.json`);
        return median(JSON.parse(fs.readFileSync(file))[test].tok_s);
    });
}

const {prefill, decode} = JSON.parse(fs.readFileSync(path.join(dir, "1.quern.json")));
const rows = [["prefill", `prefill of ${prefill.tokens}`], ["decode", `decode of ${decode.tokens} at ${decode.depth}`]];

console.log("test".padEnd(24), "quern tok/s", "llama.cpp tok/s", " ratio", "  of the rounds");
for (const [test, label] of rows) {
    const ours = speeds("quern", test), theirs = speeds("peer", test);
    const ratios = ours.map((speed, i) => speed / theirs[i]);
    console.log(label.padEnd(24), median(ours).toFixed(2).padStart(11), median(theirs).toFixed(2).padStart(15),
                median(ratios).toFixed(2).padStart(6),
                `  ${Math.min(...ratios).toFixed(2)} .. ${Math.max(...ratios).toFixed(2)}`);
}
