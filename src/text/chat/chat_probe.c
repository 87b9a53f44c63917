/* SPDX-License-Identifier: MIT
 *
 * chat_probe.c: finds out what a template can do, by rendering small conversations with it.
 *
 * A file does not say whether its template takes tools or system messages. So conversations of made-up words are
 * rendered, the way requests are (chat_context()), and the words are looked for in the prompt. A word that is missing
 * was dropped in silence. For each thing that does not work, the needs of chat_taste.h are tried until it does.
 *
 * The form in which the model writes calls is checked as well: what the template writes for a call of an earlier turn
 * has to be understood by the reader of replies. If it is not, tools are texts of our own (chat_tools.h).
 *
 * Only steps limit the renderings, not time, so the result is the same on every machine.
 */
#include "text/chat/chat_probe.h"

#include <string.h>

#include "text/chat/chat_input.h"
#include "text/chat/chat_reply.h"

#define STEPS_ONE 300000
#define STEPS_ALL 3000000

#define MESSAGE(role, text) "{\"role\":\"" role "\",\"content\":\"" text "\"}"
#define SYSTEM              MESSAGE("system", "qzsystem")
#define USER                MESSAGE("user", "qzuser")
#define ANSWER              MESSAGE("assistant", "qzanswer")
#define CALL(id, key)                                                                                                  \
    "{\"id\":\"call_qz" id "\",\"type\":\"function\",\"function\":{\"name\":\"qztool\",\"arguments\":"                 \
    "\"{\\\"qzkey" key "\\\": \\\"qzvalue" key "\\\"}\"}}"
#define CALLS(list)          "{\"role\":\"assistant\",\"content\":null,\"tool_calls\":[" list "]}"
#define RESULT(id)           "{\"role\":\"tool\",\"tool_call_id\":\"call_qz" id "\",\"content\":\"qzresult" id "\"}"
#define MESSAGES(list)       "{\"messages\":[" list "]}"
#define WITHOUT_PROMPT(list) WITH_TOOLS_AND(list, ",\"add_generation_prompt\":false")
#define WITH_TOOLS(list)     WITH_TOOLS_AND(list, "")
#define WITH_TOOLS_AND(list, more)                                                                                     \
    "{\"messages\":[" list "],\"tools\":[{\"type\":\"function\",\"function\":{\"name\":\"qztool\",\"description\":"    \
    "\"qzdescription\",\"parameters\":{\"type\":\"object\",\"properties\":{\"qzparam1\":{\"type\":\"string\","         \
    "\"description\":\"qzfirst\"},\"qzparam2\":{\"type\":\"string\",\"description\":\"qzsecond\"}},"                   \
    "\"required\":[\"qzparam1\"]}}}]" more "}"

#define ONE_CALL  CALLS(CALL("1", "1"))
#define TWO_CALLS CALLS(CALL("1", "1") "," CALL("2", "2"))
#define LOOP_1    USER "," ONE_CALL "," RESULT("1")
#define LOOP_2    USER "," TWO_CALLS "," RESULT("1") "," RESULT("2")

struct probe {
    const struct jinja *t;
    json_t *trusted;
    struct chat_taste *taste;
    uint64_t steps; /* that are left */
    int rc;         /* QN_ENOMEM ends everything */
    struct qn_error *e;
};

/* Renders a request into *out, which is the caller's; false: it fails. */
static bool render(struct probe *p, const char *request, struct jinja_output *out)
{
    struct tm now = {.tm_year = 124, .tm_mday = 1};
    struct jinja_used used = {0};
    struct qn_error why = {0};
    json_t *parsed = NULL, *context = NULL, *ours = NULL;
    unsigned changed;
    int rc = chat_request_parse(&parsed, request, strlen(request), &why);
    if (rc == 0) rc = chat_context(&context, &ours, parsed, p->taste, NULL, &changed, &why);
    struct jinja_input in = {.context = context,
                             .ours = ours,
                             .trusted = p->trusted,
                             .vouch = chat_vouch,
                             .now = &now,
                             .limits = {.n_steps = p->steps < STEPS_ONE ? p->steps : STEPS_ONE,
                                        .value_bytes = 4 << 20,
                                        .cpu_ns = UINT64_MAX / 2},
                             .used = &used};
    if (rc == 0 && p->rc == 0 && p->steps > 0)
        rc = jinja_render(p->t, &in, out, &why);
    else if (rc == 0)
        rc = QN_EDATA;
    p->steps -= used.n_steps < p->steps ? used.n_steps : p->steps;
    json_decref(context);
    json_decref(ours);
    json_decref(parsed);
    if (rc == QN_ENOMEM && p->rc == 0) {
        p->rc = rc;
        if (p->e) *p->e = why;
    }
    return rc == 0;
}

static bool has(const struct jinja_output *out, const char *word)
{
    return out->text.len > 0 && memmem(out->text.data, out->text.len, word, strlen(word)) != NULL;
}

/* Whether a text that came from the conversation has this in it. */
static bool user_has(const struct jinja_output *out, const char *word)
{
    for (size_t i = 0; i < out->n_user; i++)
        if (memmem(out->text.data + out->user[i].at, out->user[i].n, word, strlen(word))) return true;
    return false;
}

/* Whether the request renders, and all words are in the prompt, which a space divides. */
static bool shows(struct probe *p, const char *request, const char *words)
{
    /* What Python prints for a value that a template did not expect. Some templates print tools so on purpose. */
    static const char *const wrong[] = {"None", "{'qzkey", "\\\"qzkey", "{'type': 'text'"};
    struct jinja_output out = {0};
    char word[32];
    int n;
    bool ok = render(p, request, &out);
    for (; ok && sscanf(words, "%31s%n", word, &n) == 1; words += n) ok = has(&out, word);
    for (size_t i = 0; ok && i < sizeof wrong / sizeof wrong[0]; i++) ok = !user_has(&out, wrong[i]);
    jinja_output_deinit(&out);
    return ok;
}

/* Whether the request shows its words; if not, with the need in addition. Without success the need is not set. */
static bool shows_with(struct probe *p, unsigned need, const char *request, const char *words)
{
    if (shows(p, request, words)) return true;
    if (p->taste->need & need) return false;
    p->taste->need |= need;
    if (shows(p, request, words)) return true;
    p->taste->need &= ~need;
    return false;
}

/* ---- roles and turns ---- */

static void probe_roles(struct probe *p)
{
    struct chat_taste *t = p->taste;
    t->developer = t->developer && shows(p, MESSAGES(MESSAGE("developer", "qzsystem") "," USER), "qzsystem qzuser");
    shows_with(p, CHAT_NEED_TURNS, MESSAGES(USER "," MESSAGE("user", "qzmore")), "qzuser qzmore");
    shows_with(p, CHAT_NEED_TURNS, MESSAGES(USER "," ANSWER "," MESSAGE("assistant", "qzmore") "," USER),
               "qzanswer qzmore");
    shows_with(p, CHAT_NEED_NO_SYSTEM, MESSAGES(SYSTEM "," USER), "qzsystem qzuser");
    if (t->need & CHAT_NEED_NO_SYSTEM) return;
    shows_with(p, CHAT_NEED_USER_LAST, MESSAGES(SYSTEM "," USER "," ANSWER), "qzsystem qzuser qzanswer");
    shows_with(p, CHAT_NEED_FIRST_SYSTEM, MESSAGES(SYSTEM "," MESSAGE("system", "qzmore") "," USER),
               "qzsystem qzmore qzuser");
    shows_with(p, CHAT_NEED_FIRST_SYSTEM, MESSAGES(USER "," ANSWER "," SYSTEM "," USER), "qzuser qzanswer qzsystem");
}

/* ---- tools ---- */

#define TURN_WORDS "qztool qzdescription qzuser qzkey1 qzvalue1 qzresult1"

/* Calls and results of earlier turns, in any shape that the template takes. */
static bool probe_loop(struct probe *p)
{
    static const unsigned needs[] = {CHAT_NEED_EMPTY, CHAT_NEED_TEXT_ARGUMENTS, CHAT_NEED_SHORT_IDS, CHAT_NEED_NAMES};
    struct chat_taste *t = p->taste;
    unsigned before = t->need;
    for (unsigned set = 0; set < 16; set++) {
        t->need = before;
        for (int i = 0; i < 4; i++)
            if (set >> i & 1) t->need |= needs[i];
        if (shows(p, WITH_TOOLS(LOOP_1), TURN_WORDS)) return true;
    }
    t->need = before;
    return false;
}

/* The same; if the template drops calls of a form that is known, they are written into the content of their message. */
static bool probe_loop_with(struct probe *p, const struct chat_form *form)
{
    if (probe_loop(p)) return true;
    if (form->calls != CHAT_CALLS_PYTHON || !(form->style & CHAT_STYLE_START)) return false;
    p->taste->need |= CHAT_NEED_WRITTEN_CALLS;
    if (probe_loop(p)) return true;
    p->taste->need &= ~(unsigned)CHAT_NEED_WRITTEN_CALLS;
    return false;
}

/* Whether the reader of replies finds the call in n bytes of text. */
static bool reads_call(struct probe *p, const struct chat_form *form, const json_t *tools, const char *text, size_t n)
{
    struct chat_reply *r = NULL;
    struct qn_reply_event v;
    struct buf args = {0};
    bool named = false, ended = false;
    int rc = chat_reply_new(&r, form, tools, CHAT_BEGIN_REPLY, p->e);
    if (rc == 0) rc = chat_reply_end(r, text, n, p->e);
    while (rc == 0 && chat_reply_next(r, &v)) {
        if (v.kind == QN_REPLY_CALL) named = v.n == 6 && memcmp(v.text, "qztool", 6) == 0;
        if (v.kind == QN_REPLY_ARGUMENTS) rc = buf_add(&args, v.text, v.n, p->e);
        if (v.kind == QN_REPLY_CALL_END) ended = true;
    }
    if (rc) p->rc = rc;
    json_t *got = args.len ? json_loadb((char *)args.data, args.len, 0, NULL) : NULL;
    const char *value = json_string_value(json_object_get(got, "qzkey1"));
    bool ok = named && ended && value && strcmp(value, "qzvalue1") == 0 && json_object_size(got) == 1;
    json_decref(got);
    buf_deinit(&args);
    chat_reply_free(r);
    return ok;
}

/* Where the model's turn begins in `whole`, which begins like `prompt`. */
static size_t common(const struct jinja_output *prompt, const struct jinja_output *whole)
{
    size_t n = 0;
    while (n < prompt->text.len && n < whole->text.len && prompt->text.data[n] == whole->text.data[n]) n++;
    return n;
}

/* Finds the form in which the template writes a call, of those that can be read, and its style; CHAT_CALLS_NONE: none
 * of them. The one that form has is tried first. */
static enum chat_calls probe_form(struct probe *p, const struct chat_form *form, unsigned *style)
{
    static const enum chat_calls all[] = {CHAT_CALLS_TAG,   CHAT_CALLS_LLAMA, CHAT_CALLS_MISTRAL, CHAT_CALLS_CALLS,
                                          CHAT_CALLS_UPPER, CHAT_CALLS_CODE,  CHAT_CALLS_PYTHON};
    struct jinja_output prompt = {0}, whole = {0};
    enum chat_calls found = CHAT_CALLS_NONE;
    json_t *request = json_loads(WITH_TOOLS(USER), 0, NULL), *tools = json_object_get(request, "tools");
    bool ok = render(p, WITH_TOOLS(USER), &prompt) && render(p, WITHOUT_PROMPT(USER "," ONE_CALL), &whole);
    const char *text = (const char *)whole.text.data;
    const char *user = ok ? memmem(text, whole.text.len, "qzuser", 6) : NULL;
    size_t from[2] = {ok ? common(&prompt, &whole) : 0, user ? (size_t)(user - text) + 6 : 0};
    for (int i = -1; i < (int)(sizeof all / sizeof *all) && ok && found == CHAT_CALLS_NONE; i++) {
        struct chat_form f = *form;
        if (i >= 0) f.calls = all[i];
        for (int k = 0; k < 2 && f.calls != CHAT_CALLS_NONE; k++)
            if (reads_call(p, &f, tools, text + from[k], whole.text.len - from[k])) {
                found = f.calls;
                *style = chat_form_style(found, text + from[k], whole.text.len - from[k]);
            }
    }
    jinja_output_deinit(&prompt);
    jinja_output_deinit(&whole);
    json_decref(request);
    return found;
}

static bool probe_more(struct probe *p)
{
    return shows_with(p, CHAT_NEED_SINGLE_CALLS, WITH_TOOLS(LOOP_2), TURN_WORDS " qzkey2 qzvalue2 qzresult2") &&
           shows_with(p, CHAT_NEED_ANSWER, WITH_TOOLS(LOOP_1 "," MESSAGE("user", "qzmore")), TURN_WORDS " qzmore") &&
           shows(p, WITH_TOOLS(LOOP_2 "," ANSWER "," MESSAGE("user", "qzmore")), TURN_WORDS " qzanswer qzmore");
}

static void probe_tools(struct probe *p, struct chat_form *form)
{
    struct chat_taste *t = p->taste;
    unsigned before = t->need, style = 0;
    enum chat_calls calls = CHAT_CALLS_NONE;
    if (shows(p, WITH_TOOLS(USER), "qztool qzdescription qzuser") && probe_loop_with(p, form))
        calls = probe_form(p, form, &style);
    if (calls != CHAT_CALLS_NONE && probe_more(p)) {
        form->calls = calls;
        form->style = style;
        return;
    }
    t->need = before | CHAT_NEED_TOOL_TEXT;
    if (form->calls != CHAT_CALLS_HARMONY && probe_more(p)) {
        form->calls = CHAT_CALLS_TAG;
        form->style = 0;
        return;
    }
    t->need = before;
    t->no_tools = true;
}

/* ---- the whole ---- */

#define WITH_VARIABLE(name, value) "{\"messages\":[" USER "],\"chat_template_kwargs\":{\"" name "\":" value "}}"

/* Whether the prompts of two requests differ. */
static bool differ(struct probe *p, const char *one, const char *other)
{
    struct jinja_output a = {0}, b = {0};
    bool ok = render(p, one, &a) && render(p, other, &b);
    ok = ok && (a.text.len != b.text.len || memcmp(a.text.data, b.text.data, a.text.len) != 0);
    jinja_output_deinit(&a);
    jinja_output_deinit(&b);
    return ok;
}

int chat_probe(struct chat_taste *taste, struct chat_form *form, const struct jinja *t, json_t *trusted,
               struct qn_error *e)
{
    struct probe p = {.t = t, .trusted = trusted, .taste = taste, .steps = STEPS_ALL, .e = e};
    taste->calls = form->calls;
    taste->thinking = form->think != NULL || form->calls == CHAT_CALLS_HARMONY;
    taste->known = true;
    if (!shows_with(&p, CHAT_NEED_PARTS, MESSAGES(USER), "qzuser") &&
        !shows_with(&p, CHAT_NEED_LISTS, MESSAGES(USER), "qzuser")) {
        taste->known = false;
        return p.rc;
    }
    probe_roles(&p);
    probe_tools(&p, form);
    taste->calls = form->calls;
    taste->switches = differ(&p, WITH_VARIABLE("enable_thinking", "true"), WITH_VARIABLE("enable_thinking", "false"));
    taste->levels =
        differ(&p, WITH_VARIABLE("reasoning_effort", "\"low\""), WITH_VARIABLE("reasoning_effort", "\"high\""));
    unsigned need = taste->need;
    taste->need |= CHAT_NEED_PARTS;
    taste->parts = shows(&p, MESSAGES(USER "," ANSWER "," USER), "qzuser qzanswer");
    taste->need = need;
    return p.rc;
}
