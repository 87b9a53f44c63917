// SPDX-License-Identifier: MIT
//
// page.mjs: uses the page of daemons in chromium, with clicks and keys. Run by test_page.py.
//
// SETUP has the addresses of the daemons `parrot` (tests/models/make-parrot: says what is known), `random` and `tale`
// (chat models), `keyed` (parrot with keys), `plain` (a model without conversations) and `two` (two models); `chromium`,
// the program; `profile`, a folder; `shots`, a folder for pictures, or null. A case fails if the console has an error, too.

import assert from "node:assert/strict";
import path from "node:path";

import {HELLO, load, run, setup} from "./harness.mjs";

const {limit, chromium, profile, shots, ...at} = setup;
const puppeteer = load("puppeteer-core");

const VIEWS = ["chat", "prompt", "memory", "models", "requests", "sessions"];

const browser = await puppeteer.launch({
    executablePath: chromium, userDataDir: profile, headless: true, protocolTimeout: limit,
    args: [...(process.getuid() ? [] : ["--no-sandbox"]), "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run", "--font-render-hinting=none"],
});

// ---- what a person does ----

let errors = [];

// A page in surroundings of its own: nothing is kept from the case before.
async function open(url, width = 1000, height = 760) {
    const context = await browser.createBrowserContext();
    const page = await context.newPage();
    page.setDefaultTimeout(limit);
    page.on("console", m => { if (m.type() === "error" || m.type() === "warn") errors.push(m.text()); });
    page.on("pageerror", e => errors.push(String(e)));
    await page.setViewport({width, height});
    await page.goto(url);
    await page.waitForFunction(() => document.querySelector("nav [aria-current]"));
    return page;
}

// In one step of the page: puppeteer's $$eval() finds the elements in a step of its own, and a view that is shown again
// in between has replaced them.
const text = (page, selector) => page.evaluate(s => [...document.querySelectorAll(s)].map(e => e.innerText), selector);
const wait = (page, what, ...args) => page.waitForFunction(what, {polling: 20}, ...args);
// The same for a button of such a view: waits for it and uses it at once.
const useButton = (page, selector) => wait(page, s => { const b = document.querySelector(s); b?.click(); return !!b; }, selector);
const click = (page, name, within = "body") => page.locator(`${within} ::-p-aria([name="${name}"][role="button"])`).click();
const idle = page => wait(page, () => !running && document.querySelector(".turn:last-child .tools"));

async function say(page, words) {
    await page.type("#say", words);
    await page.keyboard.press("Enter");
    await idle(page);
}

async function set(page, name, value) {
    await page.$eval("#settings", d => { d.open = true; });
    await page.locator("#set-" + name).fill(value);
    await page.$eval("#set-" + name, e => e.blur());
}

async function view(page, name) {
    await page.click(`nav a[href="#${name}"]`);
    await wait(page, v => !document.getElementById("view-" + v).hidden && document.getElementById("view-" + v).innerText.length > 5, name);
}

const branches = async page => (await text(page, ".pages")).map(t => t.replace(/[^\d/]/g, ""));
// The last turn's text without bars and buttons.
const answer = async page => (await text(page, ".turn.assistant .said")).pop();

// ---- cases ----

const cases = {
    async an_answer_streams_in_with_its_bars(page) {
        await page.focus("#say");
        await say(page, "hello");
        assert.deepEqual(await text(page, ".turn .said"), ["hello", HELLO]);
        const legend = (await text(page, ".info .legend")).join(" ");
        for (const word of ["load", "queue", "prefill", "decode", "per second", "cached", "computed"]) assert.ok(legend.includes(word), word + " in " + legend);
        assert.equal(await page.$$eval(".info .bar", all => all.every(b => b.getAttribute("role") === "img" && b.getAttribute("aria-label"))), true);
        await say(page, "hello");
        assert.ok(await page.$(".turn:last-child .bar .hatched"), "the cached part is hatched");
        assert.match((await text(page, ".turn:last-child .why")).join(), /at token \d+/);
    },

    async thoughts_are_folded(page) {
        await say(page, "think");
        assert.equal(await answer(page), "It is four.");
        assert.equal(await page.$eval(".turn.assistant .thoughts", d => d.open), false);
        await page.click(".turn.assistant .thoughts summary");
        assert.match((await text(page, ".thoughts"))[0], /Two and two; that is easy\./);
    },

    async a_tool_call_is_shown_and_answered(page) {
        await set(page, "tools", JSON.stringify([{type: "function", function: {name: "get_weather", parameters: {type: "object"}}}]));
        await say(page, "weather");
        assert.match((await text(page, ".call"))[0], /get_weather\s+\{\s+"city": "Paris",\s+"days": 2\s+\}/);
        await page.type("[data-call='0']", "21");
        await click(page, "Send results");
        await idle(page);
        assert.equal(await answer(page), "It is 21 degrees, as the tool says.");
        await set(page, "tools", "[{");
        await page.type("#say", "x");
        await page.keyboard.press("Enter");
        await wait(page, () => !document.getElementById("notice").hidden);
        assert.match((await text(page, "#notice"))[0], /^Tools: /);
    },

    async stop_ends_an_answer_and_keeps_its_text(page) {
        await page.type("#say", "sing");
        await click(page, "Send");
        await wait(page, () => /la li lu/.test(document.querySelector(".turn.assistant .said")?.innerText));
        await click(page, "Stop");
        await idle(page);
        assert.match(await answer(page), /^la li lu/);
        assert.match((await text(page, ".turn.assistant"))[0], /Stopped\./);
        assert.ok(await page.$(".info .bar"), "its times came, too");
    },

    async edited_turns_and_new_answers_are_branches(page) {
        await say(page, "hello");
        await click(page, "Edit", ".turn.user");
        await page.locator(".turn.user textarea").fill("think");
        await click(page, "Send as a branch");
        await idle(page);
        assert.deepEqual(await text(page, ".turn .said"), ["think", "It is four."]);
        await click(page, "Again", ".turn.assistant");
        await idle(page);
        assert.deepEqual(await branches(page), ["2/2", "2/2"], "both turns have two branches");
        await page.focus(".turn.user [aria-label='Previous branch']");
        await page.keyboard.press("Enter");
        await wait(page, () => document.querySelector(".turn .said").innerText === "hello");
        assert.equal(await answer(page), HELLO);
        assert.equal(await page.evaluate(() => document.activeElement.getAttribute("aria-label")), "Next branch", "focus stays with the arrows");
        await page.reload();
        await wait(page, () => document.querySelectorAll(".turn").length === 2);
        assert.deepEqual(await text(page, ".turn .said"), ["hello", HELLO], "the tree is kept");
        await page.click("[aria-label='Next branch']");
        assert.equal(await answer(page), "It is four.");
        await click(page, "New");
        assert.equal((await page.$$(".turn")).length, 0);
        await page.select("#chats", await page.$eval("#chats option:nth-child(2)", o => o.value));
        await wait(page, () => document.querySelectorAll(".turn").length === 2);
        await click(page, "Delete");
        assert.equal(await page.evaluate(() => localStorage.length), 0);
    },

    async a_full_browser_gives_up_tokens_and_then_says_so(page) {
        const fillUp = () => page.evaluate(() => {
            let text = "x".repeat(1 << 20);
            while (text) try { localStorage.setItem("fill" + Math.random(), text); } catch { text = text.slice(text.length / 2 + 1); }
        });
        await say(page, "hello");
        await fillUp();
        await say(page, "hello");
        assert.equal(await page.$eval("#notice", e => e.hidden), true, "without tokens there is room");
        await fillUp();
        await say(page, "hello");
        assert.match((await text(page, "#notice"))[0], /keeps no more/);
        assert.deepEqual(await page.evaluate(() => Object.values(chat.nodes).map(n => Boolean(n.tokens))), Array(6).fill(false));
        assert.equal(await answer(page), HELLO, "the conversation goes on");
    },

    async texts_of_strangers_stay_texts(page) {
        const evil = "<img src=x onerror=alert(1)>\n\n<script>alert(2)</script>";
        await page.type("#say", evil.replaceAll("\n", " "));
        await page.keyboard.press("Enter");
        await idle(page);
        await say(page, "paint");
        assert.equal(await page.$$eval("article img, article script", all => all.length), 0);
        await click(page, "Edit", ".turn:last-child");
        const words = "# Title\n\nA **bold** `x < y` word, ** and `\n\n- one\n- two\n\n3. three\n4. four\n\n```js\n<b>code</b>\n```\n" + evil;
        await page.locator(".turn:last-child .said textarea").fill(words);
        await click(page, "Keep as a branch");
        const html = await page.$eval(".turn:last-child .said", e => e.innerHTML);
        for (const part of ["<h3>Title</h3>", "<strong>bold</strong>", "<code>x &lt; y</code>", "word, ** and `", "<ul><li>one</li><li>two</li></ul>",
                            '<ol start="3"><li>three</li><li>four</li></ol>', "&lt;b&gt;code&lt;/b&gt;", "&lt;img src=x onerror=alert(1)&gt;", "&lt;script&gt;"])
            assert.ok(html.includes(part), part + " in " + html);
    },

    async markdown_takes_time_in_proportion_to_the_text(page) {
        const ms = await page.evaluate(() => {
            const begin = performance.now();
            for (const piece of ["`", "**", "``` \n", "- \n", "*`", "1. a\n", "# \n", "<", "`a**"]) markdown(piece.repeat(20000));
            return performance.now() - begin;
        });
        assert.ok(ms < limit / 3, ms + " ms");
    },

    async tokens_have_alternatives_and_branches(page) {
        await page.goto(at.tale);
        await set(page, "seed", "7");
        await set(page, "max_tokens", "16");
        await say(page, "Once upon a time");
        const first = await answer(page);
        await click(page, "Tokens");
        assert.equal((await page.$$(".run button")).length, 16);
        await page.focus(".run button");
        for (let i = 0; i < 3; i++) await page.keyboard.press("ArrowRight");
        await page.keyboard.press("Enter");
        await wait(page, () => document.querySelector(".tokens table"));
        assert.match((await text(page, ".tokens th"))[0], /Token 3/);
        assert.ok((await page.$$(".tokens tbody tr")).length >= 5);
        assert.equal((await text(page, ".tokens tbody tr")).filter(t => t.includes("chosen")).length, 1);
        const tokens = await page.evaluate(() => shownPath(chat)[1].tokens);
        await page.click(".tokens tbody button");
        await idle(page);
        const b = await page.evaluate(() => shownPath(chat)[1]);
        assert.equal(b.tokens.length, 16);
        assert.deepEqual(b.tokens.slice(0, 3), tokens.slice(0, 3));
        assert.notEqual(b.tokens[3][0], tokens[3][0]);
        assert.deepEqual(await branches(page), ["2/2"]);
        const second = await answer(page);
        assert.notEqual(second, first);
        assert.ok(second.startsWith(tokens.slice(0, 3).map(t => t[1]).join("").trim()), second);
        // From the branch back to the first token: the same seed draws the same answer.
        await click(page, "Tokens");
        await page.click(".run button:nth-child(4)");
        const back = await page.evaluate(id => [...document.querySelectorAll(".tokens tbody tr")].findIndex(r => r.children[1].textContent === String(id)), tokens[3][0]);
        await page.click(`.tokens tbody tr:nth-child(${back + 1}) button`);
        await idle(page);
        assert.equal(await answer(page), first);
        assert.deepEqual(await page.evaluate(() => shownPath(chat)[1].tokens.map(t => t[0])), tokens.map(t => t[0]));
    },

    async an_end_token_ends_a_branch_and_thoughts_stay_thoughts(page) {
        await say(page, "think");
        await click(page, "Tokens");
        const end = await page.evaluate(async () => {
            const n = shownPath(chat)[1];
            await branch(n, 4, [(await post("tokenize", {content: "<|im_end|>", parse_special: true})).tokens[0], "<|im_end|>", -9]);
            return shownPath(chat)[1];
        });
        await idle(page);
        assert.equal(end.error, undefined);
        assert.ok((await page.evaluate(() => shownPath(chat)[1].finish)) === "stop");
        await page.click("[aria-label='Previous branch']");
        await page.evaluate(() => { const n = shownPath(chat)[1]; return branch(n, n.tokens.length - 2, n.tokens[n.tokens.length - 2]); });
        await idle(page);
        assert.equal(await answer(page), "It is four.");
        assert.match(await page.$eval(".thoughts div", e => e.textContent), /Two and two; that is easy\./);
    },

    async the_prompt_shows_who_wrote_it_and_where_the_cache_ended(page) {
        await say(page, "hello");
        await click(page, "Edit", ".turn.user");
        await page.locator(".turn.user textarea").fill("help");
        await click(page, "Send as a branch");
        await idle(page);
        await click(page, "Prompt", ".turn.assistant");
        await wait(page, () => document.querySelector("#text .by-user"));
        assert.deepEqual(await text(page, "#text .by-user"), ["help"]);
        assert.match((await page.$$eval("#text .by-template", all => all.map(e => e.textContent))).join("|"), /<\|im_start\|>user\n\|.*<\|im_start\|>assistant/s);
        await page.click("#as-tokens");
        await wait(page, () => document.querySelector("#text .t"));
        assert.deepEqual(await text(page, "#text .missed"), ["p"]);
        assert.match((await text(page, "#prompt-why"))[0], /the prompt has “p”, the cache has “l”/);
        assert.ok((await page.$$("#text .cached")).length > 5);
    },

    async a_request_can_be_repeated_with_curl(page) {
        await say(page, "it's \"hello\"");
        await page.evaluate(() => { window.copied = []; Object.defineProperty(navigator, "clipboard", {value: {writeText: async t => { copied.push(t); }}}); });
        await click(page, "Copy as curl");
        await wait(page, () => copied.length === 1);
        const curl = await page.evaluate(() => copied[0]);
        assert.ok(curl.startsWith(`curl '${at.parrot}v1/chat/completions' -H 'Content-Type: application/json' -d '{`), curl);
        const {execFileSync} = await import("node:child_process");
        assert.equal(JSON.parse(execFileSync("bash", ["-c", curl.replace(/^curl/, "curl -s")])).choices[0].message.content, HELLO);
        await click(page, "Copy", ".turn.assistant .tools");
        await wait(page, () => copied.length === 2);
        assert.equal(await page.evaluate(() => copied[1]), HELLO);
    },

    async memory_is_one_bar_with_a_legend(page) {
        await view(page, "memory");
        const shown = await text(page, "#view-memory table:first-of-type tbody tr");
        assert.ok(shown.some(r => r.startsWith("keys and values")) && shown.some(r => r.startsWith("free")), shown);
        assert.ok((await page.$$("#view-memory .bar.tall > i")).length >= 5);
        assert.match((await text(page, "#view-memory h2"))[0], /of .* are promised/);
    },

    async models_are_loaded_and_unloaded(page) {
        await page.goto(at.two);
        await view(page, "models");
        const state = () => text(page, "#view-models tbody tr");
        assert.equal((await state()).length, 2);
        await click(page, "Load parrot");
        await wait(page, () => document.querySelector("[aria-label='Unload parrot']"));
        assert.match((await state())[0], /^parrot\s+loaded\s.*in memory/s);
        await click(page, "Unload parrot");
        await wait(page, () => document.querySelector("[aria-label='Load parrot']"));
        await view(page, "chat");
        await page.select("#model", "parrot");
        await say(page, "hello");
        assert.equal(await answer(page), HELLO);
    },

    async requests_are_seen_and_cancelled(page) {
        const other = await open(at.parrot);
        await view(page, "requests");
        await other.type("#say", "sing");
        await other.keyboard.press("Enter");
        await wait(page, () => document.querySelector("[aria-label^='Cancel ']"));
        assert.match((await text(page, "#view-requests tbody tr"))[0], /^chatcmpl-\S+\s+m\s+(answers|reads the prompt)/);
        await useButton(page, "[aria-label^='Cancel ']");
        await idle(other);
        assert.match((await text(other, ".turn.assistant"))[0], /Stopped\./);
        await wait(page, () => /None of yours/.test(document.getElementById("view-requests").innerText));
        await other.browserContext().close();
    },

    async sessions_are_dropped_one_or_all(page) {
        await page.evaluate(() => send("DELETE", "v1/sessions"));
        await say(page, "hello there, remember this");
        await say(page, "think");
        await view(page, "sessions");
        await wait(page, () => document.querySelector("[aria-label^='Drop s_']"));
        const count = () => page.$$eval("[aria-label^='Drop s_']", all => all.length);
        for (let n = await count(); n > 0; n--) {
            await useButton(page, "[aria-label^='Drop s_']");
            await wait(page, most => document.querySelectorAll("[aria-label^='Drop s_']").length < most, n);
        }
        assert.match((await text(page, "#view-sessions"))[0], /None of yours/);
        await view(page, "chat");
        await click(page, "New");
        await say(page, "hello again");
        await view(page, "sessions");
        await wait(page, () => document.querySelector("[aria-label^='Drop s_']"));
        await click(page, "Drop all");
        assert.match((await text(page, "#view-sessions button"))[1], /^Really drop all \d+\?$/);
        await page.keyboard.press("Enter");
        await wait(page, () => /None of yours/.test(document.getElementById("view-sessions").innerText));
    },

    async a_key_is_asked_for_and_kept_in_the_tab(page) {
        await page.goto(at.keyed);
        await wait(page, () => document.getElementById("key-dialog").open);
        await page.type("#key", "wrong");
        await page.keyboard.press("Enter");
        await wait(page, () => document.getElementById("key-dialog").open && document.getElementById("key-why").textContent);
        await page.type("#key", "sk-one");
        await page.click("#key-dialog .main");
        await wait(page, () => models.length === 1);
        await say(page, "hello");
        assert.equal(await answer(page), HELLO);
        assert.equal(await page.evaluate(() => sessionStorage.getItem("quern.key") + JSON.stringify(localStorage).includes("sk-one")), "sk-onefalse");
        await view(page, "models");
        await click(page, "Unload m");
        await wait(page, () => !document.getElementById("notice").hidden);
        assert.match((await text(page, "#notice"))[0], /without an API key/);
        assert.equal(errors.filter(e => /40[13]/.test(e)).length, errors.length, "the browser itself notes what was refused: " + errors);
        errors = [];
    },

    async the_policy_stops_what_is_not_the_page(page) {
        const blocked = await page.evaluate(async () => {
            const seen = [];
            document.addEventListener("securitypolicyviolation", e => seen.push(e.effectiveDirective));
            const script = document.createElement("script");
            try { script.textContent = "window.hacked = 1"; document.body.append(script); } catch { seen.push("trusted types"); }
            try { document.body.insertAdjacentHTML("beforeend", "<b onclick='hacked = 1'>"); } catch { seen.push("trusted types"); }
            document.body.setAttribute("style", "color: red");
            const outside = await fetch("https://example.org/").then(() => "reached", () => "blocked");
            const image = document.createElement("img");
            image.src = "https://example.org/x.png";
            document.body.append(image);
            await new Promise(r => setTimeout(r, 200));
            return {seen, outside, hacked: window.hacked, color: getComputedStyle(document.body).color};
        });
        assert.equal(blocked.hacked, undefined);
        assert.equal(blocked.outside, "blocked");
        assert.notEqual(blocked.color, "rgb(255, 0, 0)");
        for (const what of ["trusted types", "connect-src", "img-src", "style-src-attr"]) assert.ok(blocked.seen.includes(what), what + " in " + blocked.seen);
        errors = [];
    },

    async every_view_fits_320_pixels_in_both_colours(page) {
        await say(page, "think");
        await set(page, "tools", "[]");
        await page.$eval("#settings", d => { d.open = false; });
        await page.goto(at.tale);
        await set(page, "max_tokens", "30");
        await say(page, "Once");
        const grounds = new Set();
        for (const scheme of ["light", "dark"]) {
            await page.emulateMediaFeatures([{name: "prefers-color-scheme", value: scheme}, {name: "prefers-reduced-motion", value: "reduce"}]);
            await page.setViewport({width: 320, height: 640});
            grounds.add(await page.evaluate(() => getComputedStyle(document.body).backgroundColor));
            for (const name of VIEWS) {
                await view(page, name);
                if (name === "chat") await click(page, "Tokens");
                if (name === "chat") await page.click(".run button");
                const wide = await page.evaluate(() => [document.documentElement.scrollWidth, [...document.querySelectorAll("main *")]
                    .filter(e => e.getBoundingClientRect().right > 321 && !e.closest(".scroll, pre, .unseen, .bar")).map(e => e.tagName + "." + e.className)]);
                assert.deepEqual(wide, [320, []], name);
                const faint = await page.evaluate(contrasts);
                assert.deepEqual(faint, [], name + " in " + scheme + ": contrast below 4.5");
            }
        }
        assert.equal(grounds.size, 2);
        await page.$eval(".said", e => e.classList.add("caret"));
        assert.equal(await page.$eval(".said", e => getComputedStyle(e, "::after").animationName), "none");
    },

    async keys_are_enough_and_everything_has_a_name(page) {
        const names = [];
        for (let i = 0; i < 16; i++) {
            await page.keyboard.press("Tab");
            names.push(await page.evaluate(() => {
                const e = document.activeElement, s = getComputedStyle(e);
                return [e === document.body ? "nothing" : e.id || e.textContent.trim(), s.outlineStyle !== "none" || e === document.body];
            }));
        }
        for (const want of ["Skip to the conversation", "Chat", "Sessions", "model", "chats", "chat-new", "say"])
            assert.ok(names.some(n => n[0] === want), want + " in " + names);
        assert.deepEqual(names.filter(n => !n[1]), [], "focus is seen");
        await page.focus("#say");
        await say(page, "hello");
        for (const name of VIEWS) {
            await page.focus(`nav a[href="#${name}"]`);
            await page.keyboard.press("Enter");
            await wait(page, v => !document.getElementById("view-" + v).hidden, name);
            const tree = await page.accessibility.snapshot({interestingOnly: true});
            const nameless = [];
            (function walk(n) {
                if (/button|textbox|combobox|link|radio|spinbutton/.test(n.role) && !n.name) nameless.push(n);
                (n.children || []).forEach(walk);
            })(tree);
            assert.deepEqual(nameless, [], name);
        }
    },

    async a_model_without_a_template_says_so(page) {
        await page.goto(at.plain);
        await say(page, "hello");
        assert.match((await text(page, ".turn.assistant"))[0], /no chat template/);
        errors = errors.filter(e => !/400/.test(e));
    },
};

// Runs in the page: texts that are hard to read, by WCAG's contrast of colours.
function contrasts() {
    const parse = c => { const m = c.match(/[\d.]+/g).map(Number); return c.startsWith("color(srgb") ? m.slice(0, 3).map(x => 255 * x).concat(m[3] ?? 1) : m; };
    const light = ([r, g, b]) => [r, g, b].map(v => v / 255).map(v => v <= .03928 ? v / 12.92 : ((v + .055) / 1.055) ** 2.4).reduce((s, v, i) => s + v * [.2126, .7152, .0722][i], 0);
    const ground = e => { for (; e; e = e.parentElement) { const c = parse(getComputedStyle(e).backgroundColor); if ((c[3] ?? 1) > .99) return c; } return [255, 255, 255]; };
    return [...document.querySelectorAll("body *")].filter(e => e.checkVisibility() && !e.closest(".unseen, :disabled, option, .skip") &&
        [...e.childNodes].some(n => n.nodeType === 3 && n.data.trim()))
        .map(e => { const [a, b] = [light(parse(getComputedStyle(e).color)), light(ground(e))].sort((x, y) => y - x); return [(a + .05) / (b + .05), e.outerHTML.slice(0, 80)]; })
        .filter(x => x[0] < 4.5);
}

// ---- pictures ----

async function shoot(page, name) {
    await new Promise(r => setTimeout(r, 150));
    await page.screenshot({path: path.join(shots, name + ".png")});
}

const pictures = {
    async chat(page) {
        await page.goto(at.tale);
        await set(page, "seed", "4");
        await set(page, "max_tokens", "60");
        await set(page, "temperature", "0.7");
        await page.$eval("#settings", d => { d.open = false; });
        await say(page, "Once upon a time, in a small house,");
        await click(page, "Again", ".turn.assistant");
        await idle(page);
        await page.$eval("#say", e => e.blur());
        await shoot(page, "chat");
        await page.emulateMediaFeatures([{name: "prefers-color-scheme", value: "dark"}]);
        await page.setViewport({width: 1000, height: 900});
        await click(page, "Tokens");
        await page.click(".run button:nth-child(12)");
        await page.evaluate(() => scrollTo(0, 0));
        await shoot(page, "tokens");
        await page.emulateMediaFeatures([{name: "prefers-color-scheme", value: "light"}]);
        await page.setViewport({width: 1000, height: 620});
        await view(page, "sessions");
        await shoot(page, "sessions");
    },

    async tools(page) {
        await set(page, "tools", JSON.stringify([{type: "function", function: {name: "get_weather", parameters: {type: "object"}}}]));
        await page.$eval("#settings", d => { d.open = false; });
        await say(page, "Please think about it.");
        await page.click(".thoughts summary");
        await say(page, "How is the weather?");
        await page.setViewport({width: 1000, height: 900});
        await page.type("[data-call]", "21 degrees");
        await page.$eval("[data-call]", e => e.blur());
        await page.evaluate(() => scrollTo(0, 0));
        await shoot(page, "tools");
    },

    async prompt(page) {
        await set(page, "system", "You are a helpful assistant.");
        await page.$eval("#set-system", e => e.dispatchEvent(new Event("change")));
        await say(page, "hello there");
        await say(page, "What can you do?");
        await page.setViewport({width: 1000, height: 480});
        await click(page, "Prompt", ".turn:last-child");
        await wait(page, () => document.querySelector("#text .by-user"));
        await shoot(page, "prompt");
        await page.click("#as-tokens");
        await wait(page, () => document.querySelector("#text .t"));
        await shoot(page, "prompt-tokens");
    },

    async numbers(page) {
        await page.goto(at.two);
        for (const model of ["parrot", "tale"]) {
            await page.select("#model", model);
            await say(page, "Once upon a time there was a cat");
        }
        await page.setViewport({width: 1000, height: 800});
        await view(page, "memory");
        await shoot(page, "memory");
        await view(page, "models");
        await page.setViewport({width: 1000, height: 320});
        await shoot(page, "models");
        await page.goto(at.parrot);
        await page.type("#say", "sing");
        await page.keyboard.press("Enter");
        await wait(page, () => running && running.n.request);
        await page.setViewport({width: 1000, height: 400});
        await view(page, "requests");
        await wait(page, () => document.querySelector("[aria-label^='Cancel ']"));
        await shoot(page, "requests");
        await useButton(page, "[aria-label^='Cancel ']");
    },

    async narrow(page) {
        await page.setViewport({width: 320, height: 640, deviceScaleFactor: 1});
        await page.emulateMediaFeatures([{name: "prefers-color-scheme", value: "dark"}]);
        await say(page, "think");
        await shoot(page, "narrow");
    },
};

// ---- running ----

// A case has a page of its own, on which it begins.
async function use(work) {
    errors = [];
    const page = await open(at.parrot);
    try {
        await work(page);
        assert.deepEqual(errors, [], "errors on the console");
    } catch (e) {
        if (errors.length) e.stack += "\nconsole: " + errors.join("\n");
        throw e;
    } finally {
        await page.browserContext().close();
    }
}

const works = Object.entries(shots ? pictures : cases).map(([name, work]) => [name, () => use(work)]);
await run(Object.fromEntries(works), {finish: () => browser.close(), limit: 10 * limit});
