// SPDX-License-Identifier: MIT
//
// peer_jinja.mjs: renders cases with @huggingface/jinja: `node peer_jinja.mjs PACKAGE_DIR < cases > answers`, in the
// format of `test_templates --render`.
import { createRequire } from "node:module";
import { readFileSync } from "node:fs";
import { createInterface } from "node:readline";
import { pathToFileURL } from "node:url";

const require = createRequire(process.argv[2] + "/");
const { Template } = await import(pathToFileURL(require.resolve("@huggingface/jinja")));

// Its strftime_now asks the clock, which therefore stands still.
const RealDate = Date;
let now;
globalThis.Date = class extends RealDate {
  constructor(...args) {
    super(...(args.length ? args : [now]));
  }
};

for await (const line of createInterface({ input: process.stdin })) {
  const c = JSON.parse(line);
  let answer;
  try {
    now = c.now;
    const template = new Template(readFileSync(c.template_file, "utf8"));
    answer = { text: template.render(c.context) };
  } catch (e) {
    answer = { error: String(e.message) };
  }
  console.log(JSON.stringify(answer));
}
