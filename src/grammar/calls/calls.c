/* SPDX-License-Identifier: MIT
 *
 * calls.c: the forms of tool calls, as rules. See calls.h.
 */
#include "grammar/calls/calls.h"

#include <string.h>

#include "base/buf.h"
#include "base/json/json_text.h"
#include "grammar/calls/calls_impl.h"
#include "grammar/regex/pattern.h"
#include "grammar/schema/schema.h"

/* In the texts below: a mark, which may be a special token; a part that may be left out; an id of nine characters. */
#define MARK(text) "\1" text "\2"
#define MAY(text)  "\3" text "\4"
#define ID         "\5"

#define JSON_CALL(arguments) "{\"name\":" MAY(" ") "\"", "\"," MAY(" ") "\"" arguments "\":" MAY(" "), "}"

/* A form: what comes before the first call; before the name, before the arguments and after them; between two calls;
 * after the last one. */
struct call_texts {
    const char *open, *name, *arguments, *end, *between, *close;
};

static const struct call_texts texts[] = {
    [CHAT_CALLS_TAG] = {"", MARK("<tool_call>") MAY("\n") "{\"name\":" MAY(" ") "\"",
                        "\"," MAY(" ") "\"arguments\":" MAY(" "), "}" MAY("\n") MARK("</tool_call>"), MAY("\n"), ""},
    [CHAT_CALLS_LLAMA] = {"", JSON_CALL("parameters"), ";" MAY(" "), ""},
    [CHAT_CALLS_MISTRAL] = {MARK("[TOOL_CALLS]") MAY(" ") "[", JSON_CALL("arguments"), "," MAY(" "), "]"},
    [CHAT_CALLS_HARMONY] = {MARK("<|channel|>") "commentary to=functions.", "",
                            MAY(" " MAY(MARK("<|constrain|>")) "json") MARK("<|message|>"), "", "", ""},
    [CHAT_CALLS_CALLS] = {MARK("<tool_calls>") MAY("\n") "[", JSON_CALL("arguments"), "," MAY(" "),
                          "]" MAY("\n") MARK("</tool_calls>")},
    [CHAT_CALLS_UPPER] = {MARK("<TOOLCALL>") MAY("\n") "[", JSON_CALL("arguments"), "," MAY(" "),
                          "]" MAY("\n") MARK("</TOOLCALL>")},
    [CHAT_CALLS_CODE] = {"", "```tool_code\n{\"name\":" MAY(" ") "\"", "\"," MAY(" ") "\"parameters\":" MAY(" "),
                         "}\n```", "\n", ""},
    [CHAT_CALLS_PYTHON] = {"[", "", "(", ")", "," MAY(" "), "]"},
};

/* The same where the template has another style. */
static const struct call_texts in_functions = {"",        MARK("<tool_call>") MAY("\n") "<function=",
                                               ">\n",     "</function>" MAY("\n") MARK("</tool_call>"),
                                               MAY("\n"), ""},
                               bare_functions = {"", "<function=", ">\n", "</function>", MAY("\n"), ""},
                               named = {"", MARK("[TOOL_CALLS]"), MAY(MARK("[CALL_ID]") ID) MARK("[ARGS]"), "", "", ""},
                               in_start = {MARK("<|tool_call_start|>") "[", "", "(", ")", "," MAY(" "),
                                           "]" MARK("<|tool_call_end|>")},
                               in_tags = {MARK("<function_calls>") MAY("\n"), "", "(", ")", "\n",
                                          MAY("\n") MARK("</function_calls>")},
                               in_block = {"```tool_code\n", "", "(", ")", "\n", "\n```"},
                               in_lines = {MARK("<tool_calls>") MAY("\n"), JSON_CALL("arguments"), "\n",
                                           MAY("\n") MARK("</tool_calls>")};

static const struct call_texts *texts_of(const struct calls *c)
{
    if (c->form == CHAT_CALLS_TAG && c->style & CHAT_STYLE_FUNCTIONS)
        return c->style & CHAT_STYLE_BARE ? &bare_functions : &in_functions;
    if (c->form == CHAT_CALLS_MISTRAL && c->style & CHAT_STYLE_NAMED) return &named;
    if (c->form == CHAT_CALLS_CALLS && c->style & CHAT_STYLE_LINES) return &in_lines;
    if (c->form == CHAT_CALLS_PYTHON && c->style & CHAT_STYLE_START) return &in_start;
    if (c->form == CHAT_CALLS_PYTHON && c->style & CHAT_STYLE_TAGS) return &in_tags;
    if (c->form == CHAT_CALLS_CODE && c->style & CHAT_STYLE_PYTHON) return &in_block;
    return &texts[c->form];
}

/* Whether names are written in JSON. */
static bool is_json(const struct call_texts *x) { return x->name[0] && x->name[strlen(x->name) - 1] == '"'; }

/* ---- nodes ---- */

static uint32_t add(struct calls *c, struct rule_node node)
{
    if (!limits_spend(c->r->l, 1)) return 0;
    struct rule_node *p = limits_grow(c->r->l, c->g->nodes, &c->g->cap, c->g->n + 1, sizeof *p);
    if (!p) return 0;
    c->g->nodes = p;
    p[c->g->n] = node;
    return c->g->n++;
}

uint32_t calls_term(struct calls *c, re_id re, uint32_t next)
{
    return re == RE_EMPTY ? next : add(c, (struct rule_node){.kind = RULE_TERM, .re = re, .next = next});
}

uint32_t calls_value(struct calls *c, uint32_t node, uint32_t next)
{
    return add(c, (struct rule_node){.kind = RULE_VALUE, .first = node, .next = next});
}

uint32_t calls_repeat(struct calls *c, uint32_t first, uint32_t least, uint32_t most, uint32_t next)
{
    return add(c, (struct rule_node){RULE_REPEAT, .first = first, .least = least, .most = most, .next = next});
}

uint32_t calls_branch(struct calls *c, uint32_t first, uint32_t others)
{
    return add(c, (struct rule_node){.kind = RULE_BRANCH, .first = first, .other = others});
}

uint32_t calls_choice(struct calls *c, uint32_t branches, uint32_t next)
{
    return add(c, (struct rule_node){.kind = RULE_CHOICE, .first = branches, .next = next});
}

uint32_t calls_fail(struct calls *c, const json_t *tool, const char *what)
{
    limits_fail(c->r->l, QN_EUNSUP, "tool '%.100s': %s", json_string_value(json_object_get(tool, "name")), what);
    return 0;
}

/* ---- texts ---- */

/* A special token with this text if there is one, and the text otherwise. */
static re_id mark(struct calls *c, const char *p, size_t n)
{
    char special[64] = {(char)TRIE_SPECIAL};
    if (n >= sizeof special) return re_text(c->r, p, n);
    memcpy(special + 1, p, n);
    return token_trie_has(c->trie, special, n + 1) ? re_text(c->r, special, n + 1) : re_text(c->r, p, n);
}

static re_id id(struct calls *c)
{
    static const char letters[] = "[A-Za-z0-9]{9}";
    return pattern_compile(c->r, letters, strlen(letters), PATTERN_WHOLE);
}

/* Reads one of the texts above up to its end, or the end of a part that may be left out. */
static re_id text_of(struct calls *c, const char **p)
{
    re_id re = RE_EMPTY;
    while (**p && **p != '\4') {
        char what = *(*p)++;
        size_t n = strcspn(*p, "\1\2\3\4\5");
        if (what == '\1') {
            re = re_cat(c->r, re, mark(c, *p, n));
            *p += n + 1;
        } else if (what == '\3') {
            re = re_cat(c->r, re, re_repeat(c->r, text_of(c, p), 0, 1));
            ++*p;
        } else if (what == '\5') {
            re = re_cat(c->r, re, id(c));
        } else {
            re = re_cat(c->r, re, re_text(c->r, *p - 1, n + 1));
            *p += n;
        }
    }
    return re;
}

static re_id text(struct calls *c, const char *p) { return text_of(c, &p); }

re_id calls_text_without(struct calls *c, const char *const *marks, uint32_t n)
{
    re_id any = RE_NONE;
    for (uint32_t i = 0; i < n; i++) any = re_or2(c->r, any, re_text(c->r, marks[i], strlen(marks[i])));
    re_id has = re_cat(c->r, RE_ALL, re_cat(c->r, any, RE_ALL));
    return re_and2(c->r, re_chars(c->r, 0, RE_NO_MAX), re_not(c->r, has));
}

/* Texts that the reader takes for a call without a mark (tool_python.c): a tool's name, a bracket, and a key or the
 * brackets that close. */
static re_id bare_python(struct calls *c, const json_t *names)
{
    static const char open[] = "[ \\n\\r\\t]*\\[[ \\n\\r\\t]*",
                      arguments[] =
                          "\\([ \\n\\r\\t]*(?:\\)[ \\n\\r\\t]*[,\\]]|[^=(),'\"\\[\\]{}\\\\\\x00-\\x1F]+=)[\\s\\S]*";
    re_id any = RE_NONE;
    for (size_t i = 0; i < json_array_size(names); i++) {
        const json_t *s = json_array_get(names, i);
        any = re_or2(c->r, any, re_text(c->r, json_string_value(s), json_string_length(s)));
    }
    re_id rest = re_cat(c->r, any, pattern_compile(c->r, arguments, strlen(arguments), PATTERN_WHOLE));
    return re_cat(c->r, pattern_compile(c->r, open, strlen(open), PATTERN_WHOLE), rest);
}

/* Texts that may be a call without a mark. */
static re_id bare_call(struct calls *c, const json_t *description)
{
    static const char json[] = "[ \\n\\r\\t]*\\{[\\s\\S]*";
    if (chat_form_bare(c->form) == '[') return bare_python(c, json_object_get(description, "names"));
    return pattern_compile(c->r, json, strlen(json), PATTERN_WHOLE);
}

/* Texts in place of calls, or before them: no mark of the form is in them. */
static re_id free_text(struct calls *c, const json_t *description)
{
    static const char *const ends[] = {"<|end|>", "<|return|>", "<|call|>", "<|start|>"};
    const char *marks[8], *think = json_string_value(json_object_get(description, "think"));
    const char *const *opens = chat_form_opens(c->form);
    uint32_t n = 0;
    for (; opens[n]; n++) marks[n] = opens[n];
    for (int i = 0; c->form == CHAT_CALLS_HARMONY && i < 4; i++) marks[n++] = ends[i];
    if (think) marks[n++] = think;
    re_id re = calls_text_without(c, marks, n);
    return chat_form_bare(c->form) ? re_and2(c->r, re, re_not(c->r, bare_call(c, description))) : re;
}

/* ---- calls ---- */

static bool is_plain(const char *name)
{
    size_t n = strspn(name, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-.:/");
    return n > 0 && n <= 128 && !name[n];
}

/* The name as the form writes it; RE_NONE after a failure. */
static re_id name_of(struct calls *c, const json_t *tool, bool in_json)
{
    const json_t *name = json_object_get(tool, "name");
    struct buf b = {0};
    re_id re = RE_NONE;
    if (!in_json) {
        if (is_plain(json_string_value(name))) return re_text(c->r, json_string_value(name), json_string_length(name));
        calls_fail(c, tool, "this model's calls can only have names of letters, digits and _-.:/");
        return RE_NONE;
    }
    if (json_text_add(&b, name, JSON_ENCODE_ANY, "a name", NULL) || b.len < 2)
        limits_fail(c->r->l, QN_ENOMEM, "there is no memory for a tool's name");
    else
        re = re_text(c->r, b.data + 1, b.len - 2);
    buf_deinit(&b);
    return re;
}

/* One call, of any of the tools. */
static uint32_t one_call(struct calls *c, const struct call_texts *x, const json_t *tools, uint32_t next)
{
    uint32_t branches = 0;
    re_id before = text(c, x->arguments), after = text(c, x->end);
    for (size_t i = json_array_size(tools); i-- > 0 && !c->r->l->rc;) {
        const json_t *tool = json_array_get(tools, i);
        re_id head = re_cat(c->r, name_of(c, tool, is_json(x)), before);
        uint32_t first = calls_term(c, head, calls_arguments(c, tool, calls_term(c, after, 0)));
        branches = calls_branch(c, first, branches);
    }
    return calls_term(c, text(c, x->name), calls_choice(c, branches, next));
}

static uint32_t all_calls(struct calls *c, const json_t *description)
{
    const struct call_texts *x = texts_of(c);
    const json_t *tools = json_object_get(description, "tools");
    uint32_t close = calls_term(c, text(c, x->close), 0), call = one_call(c, x, tools, 0);
    bool many = json_is_true(json_object_get(description, "many")) && c->form != CHAT_CALLS_HARMONY;
    uint32_t more = many ? calls_term(c, text(c, x->between), call) : 0;
    uint32_t rest = many ? calls_repeat(c, more, 0, RE_NO_MAX, close) : close;
    return calls_term(c, text(c, x->open), calls_repeat(c, call, 1, 1, rest));
}

/* ---- the text in place of calls ---- */

/* The expression of a pattern or of a list of texts; RE_NONE: the description has neither. */
static re_id pattern_of(struct calls *c, const json_t *description)
{
    const json_t *pattern = json_object_get(description, "pattern"), *choice = json_object_get(description, "choice");
    re_id re = RE_NONE;
    if (pattern) re = pattern_compile(c->r, json_string_value(pattern), json_string_length(pattern), PATTERN_WHOLE);
    for (size_t i = 0; i < json_array_size(choice); i++) {
        const json_t *s = json_array_get(choice, i);
        re = re_or2(c->r, re, re_text(c->r, json_string_value(s), json_string_length(s)));
    }
    return re;
}

/* The node of the text; gbnf: the root of a grammar that was parsed. False: no text may come. */
static bool answer(struct calls *c, const json_t *description, uint32_t gbnf, uint32_t *first)
{
    const json_t *schema = json_object_get(description, "schema");
    re_id re = pattern_of(c, description);
    if (json_object_get(description, "gbnf")) {
        *first = gbnf;
    } else if (schema) {
        uint32_t node = 0;
        schema_compile(c->t, c->r, schema, &node);
        *first = calls_value(c, node, 0);
    } else if (re) {
        *first = calls_term(c, re, 0);
    } else if (json_object_get(description, "object")) {
        *first = calls_value(c, c->any, 0);
    } else {
        return false;
    }
    return true;
}

/* ---- all of it ---- */

/* gpt-oss: messages in other channels come before. */
static uint32_t in_channels(struct calls *c, uint32_t root, const json_t *description, uint32_t said, bool has_form)
{
    static const char begin[] = MARK("<|channel|>"), message[] = MARK("<|message|>"),
                      end[] = MARK("<|end|>") MARK("<|start|>") "assistant",
                      head[] =
                          MARK("<|channel|>") "final" MAY(MAY(" ") MARK("<|constrain|>") "json") MARK("<|message|>");
    bool is_free = json_is_true(json_object_get(description, "text")) && !has_form;
    re_id channel = text(c, "analysis"), body = free_text(c, description);
    if (is_free) channel = re_or2(c->r, channel, text(c, "commentary"));
    re_id thought = re_cat(c->r, re_cat(c->r, text(c, begin), re_cat(c->r, channel, text(c, message))),
                           re_cat(c->r, body, text(c, end)));
    uint32_t branches = calls_branch(c, root, 0);
    if (is_free) said = calls_term(c, body, 0);
    if (is_free || has_form) {
        uint32_t any = calls_repeat(c, said, 1, 1, 0);
        branches = calls_branch(c, calls_term(c, text(c, head), any), branches);
    }
    return calls_repeat(c, calls_term(c, thought, 0), 0, RE_NO_MAX, calls_choice(c, branches, 0));
}

static uint32_t make_root(struct calls *c, const json_t *description, uint32_t gbnf)
{
    uint32_t root = all_calls(c, description), said = 0;
    bool is_free = json_is_true(json_object_get(description, "text"));
    bool has_form = answer(c, description, gbnf, &said);
    if (c->form == CHAT_CALLS_HARMONY) return in_channels(c, root, description, said, has_form);
    if (has_form) return calls_choice(c, calls_branch(c, said, calls_branch(c, root, 0)), 0);
    if (!is_free) return root;
    return calls_term(c, free_text(c, description), calls_repeat(c, root, 0, 1, 0));
}

static bool make_any(struct calls *c)
{
    json_t *schema = json_pack("{s:s}", "type", "object");
    if (!schema) limits_fail(c->r->l, QN_ENOMEM, "there is no memory for a schema");
    bool ok = schema && calls_schema(c, schema, &c->any);
    json_decref(schema);
    return ok;
}

bool calls_compile(struct rules *g, struct json_tables *t, struct regex *r, const json_t *description,
                   const struct token_trie *trie, uint32_t *root)
{
    json_int_t form = json_integer_value(json_object_get(description, "calls"));
    struct calls c = {.g = g, .t = t, .r = r, .trie = trie, .form = (enum chat_calls)form};
    const json_t *gbnf = json_object_get(description, "gbnf");
    uint32_t first = 0;
    c.style = (unsigned)json_integer_value(json_object_get(description, "style"));
    c.has_words =
        calls_is_python(&c) && !json_object_get(description, "schema") && !json_object_get(description, "object");
    if (form <= CHAT_CALLS_NONE || form > CHAT_CALLS_PYTHON)
        limits_fail(r->l, QN_EUNSUP, "this model has no form of calls that is known");
    if (gbnf)
        gbnf_parse(g, r, json_string_value(gbnf), json_string_length(gbnf), &first);
    else
        add(&c, (struct rule_node){.kind = RULE_END});
    if (r->l->rc || !make_any(&c)) return false;
    *root = make_root(&c, description, first);
    return !r->l->rc;
}
