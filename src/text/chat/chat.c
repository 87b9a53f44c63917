/* SPDX-License-Identifier: MIT
 *
 * chat.c: compiles a model's own templates, and makes prompts with them.
 *
 * A file holds one template, or several with names. The one called tool_use serves requests with tools, the one called
 * rag requests with documents. A rendered prompt comes with marks of origin, and is encoded with them as one text:
 * control tokens exist only where the template wrote all of their bytes.
 *
 * The same holds for user-defined tokens that the template's source spells, or that belong to the form of replies. To
 * the vocabulary they are text, but they are marks all the same (<tool_call>, </think>), and the result of a tool must
 * not be able to close itself. Where the template itself writes such a token, it counts as the template's.
 *
 * There are no built-in templates: a file without one cannot chat.
 */
#include "text/chat/chat.h"

#include <ctype.h>
#include <string.h>

#include "base/mem.h"
#include "text/chat/chat_input.h"
#include "text/chat/chat_probe.h"
#include "text/chat/chat_render.h"
#include "text/jinja/jinja.h"

struct variant {
    struct jinja *template; /* owned; NULL: the file does not have it */
    struct chat_form form;
    struct chat_taste taste;
    qn_token *markup; /* [n_markup], owned: user-defined tokens that only the template may write */
    size_t n_markup;
};

enum { DEFAULT, TOOL_USE, RAG, N_VARIANTS };

struct chat {
    const struct vocab *v;
    struct variant variant[N_VARIANTS];
    json_t *trusted; /* variables whose text counts as the template's: bos_token and the like */
};

/* ---- loading ---- */

/* Whether a token looks like a mark and not like a word: it begins with punctuation. */
static bool is_mark(struct str s) { return s.n >= 3 && isascii(s.p[0]) && ispunct((unsigned char)s.p[0]); }

static int find_markup(struct variant *t, const struct vocab *v, const char *src, size_t n, struct qn_error *e)
{
    for (int pass = 0; pass < 2; pass++) {
        size_t k = 0;
        for (qn_token id = 0; id < vocab_n_tokens(v); id++) {
            if (!vocab_is_special(v, id) || vocab_is_control(v, id)) continue;
            struct str s = vocab_token_text(v, id);
            if (!is_mark(s) || !(memmem(src, n, s.p, s.n) || chat_form_reads(&t->form, s.p, s.n))) continue;
            if (pass == 1) t->markup[k] = id;
            k++;
        }
        t->n_markup = k;
        if (pass == 0 && !(t->markup = mem_alloc(k * sizeof *t->markup)))
            return error_nomem(e, "a chat template's marks", k * sizeof *t->markup);
    }
    return 0;
}

static int compile(struct chat *c, struct variant *t, const char *key, const char *src, size_t n, struct qn_error *e)
{
    struct qn_error why = {0};
    int rc = jinja_compile(&t->template, src, n, &why);
    if (rc == QN_ENOMEM) {
        if (e) *e = why;
        return rc;
    }
    if (rc) return error_set(e, rc, "%s: %s", key, why.msg);
    t->form = chat_form_of(src, n);
    t->taste.developer = memmem(src, n, "developer", strlen("developer")) != NULL;
    rc = chat_probe(&t->taste, &t->form, t->template, c->trusted, e);
    return rc ? rc : find_markup(t, c->v, src, n, e);
}

static int load_templates(struct chat *c, const struct weights *w, struct qn_error *e)
{
    static const char *const keys[N_VARIANTS] = {
        [DEFAULT] = "tokenizer.chat_template",
        [TOOL_USE] = "tokenizer.chat_template.tool_use",
        [RAG] = "tokenizer.chat_template.rag",
    };
    for (int i = 0; i < N_VARIANTS; i++) {
        struct str src;
        int rc = meta_str(w, keys[i], &src, e);
        if (rc < 0) return rc;
        if (rc == 0 && i == DEFAULT)
            return error_set(e, QN_EDATA, "gguf: no %s: the file does not say how to chat with the model", keys[i]);
        if (rc == 1) rc = compile(c, &c->variant[i], keys[i], src.p, src.n, e);
        if (rc) return rc;
    }
    return 0;
}

static int name_tokens(struct chat *c, struct qn_error *e)
{
    static const struct {
        const char *name;
        enum vocab_role role;
    } names[] = {
        {"bos_token", VOCAB_BOS}, {"eos_token", VOCAB_EOS}, {"unk_token", VOCAB_UNK}, {"pad_token", VOCAB_PAD}};
    c->trusted = json_object();
    if (!c->trusted) return error_nomem(e, "a chat template's tokens", 0);
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        qn_token id = vocab_role(c->v, names[i].role);
        if (id < 0) continue;
        struct str s = vocab_token_text(c->v, id);
        json_t *text = json_stringn(s.p, s.n); /* NULL when it is not UTF-8; a template could not use it */
        if (text && json_object_set_new(c->trusted, names[i].name, text) != 0)
            return error_nomem(e, "a chat template's tokens", s.n);
    }
    return 0;
}

int chat_new(struct chat **out, const struct weights *w, const struct vocab *v, const char *src, size_t n,
             struct qn_error *e)
{
    struct chat *c = mem_calloc(1, sizeof *c);
    if (!c) return error_nomem(e, "a chat", sizeof *c);
    c->v = v;
    int rc = name_tokens(c, e);
    if (rc == 0) rc = src ? compile(c, &c->variant[DEFAULT], "chat template", src, n, e) : load_templates(c, w, e);
    if (rc) {
        chat_free(c);
        return rc;
    }
    *out = c;
    return 0;
}

void chat_free(struct chat *c)
{
    if (!c) return;
    for (int i = 0; i < N_VARIANTS; i++) {
        jinja_free(c->variant[i].template);
        mem_free(c->variant[i].markup);
    }
    json_decref(c->trusted);
    mem_free(c);
}

/* ---- prompts ---- */

/* A template for tools is of no use if the tools become texts. */
static bool takes_tools(const struct variant *t) { return t->template && !(t->taste.need & CHAT_NEED_TOOL_TEXT); }

static const struct variant *choose(const struct chat *c, const json_t *request)
{
    if (takes_tools(&c->variant[TOOL_USE]) && json_array_size(json_object_get(request, "tools")) > 0)
        return &c->variant[TOOL_USE];
    if (c->variant[RAG].template && json_array_size(json_object_get(request, "documents")) > 0) return &c->variant[RAG];
    return &c->variant[DEFAULT];
}

static enum qn_chat_support support(const struct chat_taste *t, unsigned need)
{
    if (!t->known) return QN_CHAT_UNKNOWN;
    return t->need & need ? QN_CHAT_ADAPTED : QN_CHAT_NATIVE;
}

void chat_capabilities(const struct chat *c, struct qn_chat_capabilities *out)
{
    const struct chat_taste *t = &c->variant[DEFAULT].taste;
    const struct chat_taste *tools = takes_tools(&c->variant[TOOL_USE]) ? &c->variant[TOOL_USE].taste : t;
    *out = (struct qn_chat_capabilities){
        .size = out->size,
        .tools = tools->no_tools ? QN_CHAT_REFUSED : support(tools, CHAT_NEED_TOOL_TEXT),
        .parallel = tools->no_tools ? QN_CHAT_REFUSED : support(tools, CHAT_NEED_SINGLE_CALLS),
        .system = support(t, CHAT_NEED_NO_SYSTEM),
        .turns = support(t, CHAT_NEED_TURNS),
        .parts = t->parts,
        .thinking = t->thinking,
        .switches = t->switches,
        .levels = t->levels,
    };
}

/* Encodes the rendered text, and moves it to the prompt. */
static int take_rendered(struct chat_prompt *p, const struct chat *c, const struct variant *t,
                         struct jinja_output *rendered, const struct qn_cancel *cancel, struct qn_error *e)
{
    const struct text_origin o = {
        .user = rendered->user, .n_user = rendered->n_user, .markup = t->markup, .n_markup = t->n_markup};
    const char *text = rendered->text.data ? (const char *)rendered->text.data : "";
    size_t n = rendered->text.len, own = 0; /* text[own..] comes after the last text of the user */
    int rc = vocab_encode_chat(c->v, text, n, &o, cancel, &p->tokens, &p->n_tokens, e);
    if (rc) return rc;
    p->n_cuts = chat_cuts(c->v, text, n, &o, p->tokens, p->n_tokens, p->cuts);
    if (o.n_user > 0) own = o.user[o.n_user - 1].at + o.user[o.n_user - 1].n;
    if (chat_form_is_thinking(&t->form, text + own, n - own)) p->begins = CHAT_BEGIN_THOUGHTS;
    p->form = t->form;
    p->text = rendered->text;
    p->user = rendered->user;
    p->n_user = rendered->n_user;
    rendered->text = (struct buf){0};
    rendered->user = NULL;
    return 0;
}

size_t chat_prompt_bytes(size_t n) { return jinja_value_bytes(n); }

/* rc; or, when rc is 0 and the prompt is no longer wanted, QN_ECANCEL. */
static int still_wanted(int rc, const struct qn_cancel *cancel, struct qn_error *e)
{
    if (rc || !cancel || !cancel->is_cancelled(cancel->arg)) return rc;
    return error_set(e, QN_ECANCEL, "chat: the prompt was cancelled");
}

/* Takes `strict` out of the request's tools, which is not for the model. Returns the tools with it, which are the
 * caller's; NULL if there are none, or no memory. */
static json_t *take_tools(json_t *request)
{
    json_t *tools = json_object_get(request, "tools"), *copy = json_array(), *tool;
    size_t i;
    int bad = !copy;
    if (json_array_size(tools) == 0) {
        json_decref(copy);
        return NULL;
    }
    json_incref(tools);
    json_array_foreach(tools, i, tool)
    {
        json_t *one = json_copy(tool), *f = json_copy(json_object_get(tool, "function"));
        if (f) json_object_del(f, "strict");
        bad |= json_object_set_new(one, "function", f) | json_array_append_new(copy, one);
    }
    if (!bad && !json_object_set_new(request, "tools", copy)) return tools;
    if (bad) json_decref(copy);
    json_decref(tools);
    return NULL;
}

/* Whether the request switches thoughts off, in one of the words that templates have for it. */
static bool is_silent(const json_t *request)
{
    const json_t *kwargs = json_object_get(request, "chat_template_kwargs");
    return json_is_false(json_object_get(kwargs, "enable_thinking")) ||
           json_is_false(json_object_get(kwargs, "thinking"));
}

int chat_prompt_make(struct chat_prompt *out, const struct chat *c, const char *request, size_t n, const struct tm *now,
                     const struct qn_cancel *cancel, struct qn_error *e)
{
    struct chat_prompt p = {0};
    struct jinja_output rendered = {0};
    json_t *parsed = NULL;
    *out = p;
    int rc = still_wanted(0, cancel, e);
    if (rc == 0) rc = chat_request_parse(&parsed, request, n, e);
    if (rc) return rc;
    const struct variant *t = choose(c, parsed);
    bool has_tools = json_array_size(json_object_get(parsed, "tools")) > 0;
    json_t *tools = take_tools(parsed);
    if (has_tools && !tools) rc = error_nomem(e, "a request's tools", 0);
    const struct chat_rendering r = {
        .template = t->template,
        .taste = &t->taste,
        .form = &t->form,
        .request = parsed,
        .input = {.trusted = c->trusted, .vouch = chat_vouch, .now = now, .n_bytes = n, .cancel = cancel}};
    if (rc == 0 && t->taste.no_tools && has_tools)
        rc = error_set(e, QN_EUSAGE, "chat: tools: the model's chat template has no place for tools");
    if (rc == 0) rc = chat_render(&r, &rendered, &p.begins, &p.changed, e);
    p.is_silent = is_silent(parsed);
    rc = still_wanted(rc, cancel, e);
    if (rc == 0) rc = take_rendered(&p, c, t, &rendered, cancel, e);
    jinja_output_deinit(&rendered);
    if (rc == 0)
        p.tools = tools;
    else
        json_decref(tools);
    json_decref(parsed);
    if (rc == 0) *out = p;
    return rc;
}

void chat_prompt_deinit(struct chat_prompt *p)
{
    buf_deinit(&p->text);
    mem_free(p->tokens);
    mem_free(p->user);
    json_decref(p->tools);
    *p = (struct chat_prompt){0};
}
