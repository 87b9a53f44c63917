/* SPDX-License-Identifier: MIT
 *
 * chat_api.c: the chat section of quern.h: joins the templates and replies of text/ with tokens and stop strings.
 *
 * A reply is first detokenised, then taken apart, and then its content is searched for stop strings. So a stop string
 * ends the answer only if it is in the content, not in a thought or a call. Content that may be the beginning of a stop
 * string is held back until more content comes. These few bytes may therefore come after a call, although the model
 * wrote them before it.
 */
#include <assert.h>
#include <string.h>
#include <time.h>

#include "decode/stop.h"
#include "engine/engine.h"
#include "text/chat/chat.h"
#include "text/chat/chat_reply.h"
#include "text/token/detok.h"

struct qn_chat {
    struct hold hold;
    const struct qn_model *model; /* held */
    struct chat *chat;
    const struct vocab *v; /* borrowed */
};

struct qn_prompt {
    struct hold hold;
    struct qn_chat *chat; /* held */
    struct chat_prompt prompt;
};

struct qn_reply {
    struct qn_prompt *prompt; /* held */
    struct chat_reply *reply;
    struct chat_form form;
    struct detok detok;
    struct stop_scan stop;
    size_t stop_bytes; /* the length of the longest stop string: no more than this is ever held back */
    struct buf whole;  /* characters that are complete */
    struct buf out;    /* content that is not part of a stop string */
    struct buf events; /* array of struct qn_reply_event */
    size_t next;       /* index of the event that comes next */
};

int qn_chat_new(qn_chat **out, const qn_model *m, const char *source, size_t n, struct qn_error *e)
{
    if (!out || !m) return usage_null(e, __func__);
    struct qn_chat *c = mem_calloc(1, sizeof *c);
    if (!c) return error_nomem(e, "a chat", sizeof *c);
    c->v = m->model->vocab;
    int rc = chat_new(&c->chat, m->model->weights, c->v, source, n, e);
    if (rc) {
        mem_free(c);
        return rc;
    }
    hold_init(&c->hold);
    c->model = model_hold(m);
    *out = c;
    return 0;
}

int qn_chat_capabilities(struct qn_chat_capabilities *out, const qn_chat *c, struct qn_error *e)
{
    int rc;
    if (!out || !c) return usage_null(e, __func__);
    if ((rc = usage_size(e, __func__, out->size, sizeof *out))) return rc;
    chat_capabilities(c->chat, out);
    return 0;
}

static void free_chat(struct qn_chat *c)
{
    chat_free(c->chat);
    model_let_go(c->model);
    mem_free(c);
}

void qn_chat_free(qn_chat *c)
{
    if (c && hold_give_up(&c->hold, __func__)) free_chat(c);
}

int qn_chat_prompt(qn_prompt **out, const qn_chat *c, const char *request, size_t n, const struct qn_cancel *cancel,
                   struct qn_error *e)
{
    struct tm now;
    time_t t = time(NULL);
    int rc;
    if (!out || !c || !request) return usage_null(e, __func__);
    if ((rc = usage_cancel(e, __func__, cancel))) return rc;
    struct qn_prompt *p = mem_calloc(1, sizeof *p);
    if (!p) return error_nomem(e, "a prompt", sizeof *p);
    rc = chat_prompt_make(&p->prompt, c->chat, request, n, localtime_r(&t, &now), cancel, e);
    if (rc) {
        mem_free(p);
        return rc;
    }
    hold_init(&p->hold);
    p->chat = (struct qn_chat *)c; /* immutable, except for the count */
    hold_get(&p->chat->hold);
    *out = p;
    return 0;
}

size_t qn_chat_prompt_bytes(size_t n) { return chat_prompt_bytes(n); }

static void free_prompt(struct qn_prompt *p)
{
    chat_prompt_deinit(&p->prompt);
    if (hold_put(&p->chat->hold)) free_chat(p->chat);
    mem_free(p);
}

void qn_prompt_free(qn_prompt *p)
{
    if (p && hold_give_up(&p->hold, __func__)) free_prompt(p);
}

const char *qn_prompt_text(const qn_prompt *p, size_t *n)
{
    size_t len = p ? p->prompt.text.len : 0;
    if (n) *n = len;
    return len ? (const char *)p->prompt.text.data : "";
}

const qn_token *qn_prompt_tokens(const qn_prompt *p, size_t *n)
{
    if (n) *n = p ? p->prompt.n_tokens : 0;
    return p ? p->prompt.tokens : NULL;
}

size_t qn_prompt_user_span(const qn_prompt *p, size_t i, size_t *at, size_t *n)
{
    size_t n_user = p ? p->prompt.n_user : 0;
    if (i < n_user && at) *at = p->prompt.user[i].at;
    if (i < n_user && n) *n = p->prompt.user[i].n;
    return n_user;
}

const int *qn_prompt_boundaries(const qn_prompt *p, size_t *n)
{
    if (n) *n = p ? p->prompt.n_cuts : 0;
    return p ? p->prompt.cuts : NULL;
}

unsigned qn_prompt_changes(const qn_prompt *p) { return p ? p->prompt.changed : 0; }

const char *qn_chat_change_name(enum qn_chat_change change)
{
    switch (change) {
    case QN_CHAT_SYSTEM_MERGED: return "system_merged";
    case QN_CHAT_TURNS_MERGED: return "turns_merged";
    case QN_CHAT_TURN_ADDED: return "turn_added";
    case QN_CHAT_CALLS_SPLIT: return "calls_split";
    case QN_CHAT_TOOLS_AS_TEXT: return "tools_as_text";
    }
    return NULL;
}

const json_t *prompt_tools(const struct qn_prompt *p) { return p->prompt.tools; }

void prompt_guide_start(const struct qn_prompt *p, struct guide_start *out)
{
    *out = (struct guide_start){.form = &p->prompt.form,
                                .begins = p->prompt.begins,
                                .is_silent = p->prompt.is_silent,
                                .has_tools = json_array_size(p->prompt.tools) > 0,
                                .prompt = p->prompt.text.data ? (const char *)p->prompt.text.data : "",
                                .n_prompt = p->prompt.text.len};
}

/* ---- replies ---- */

/* Returns true if the reply's leading space belongs to it. A vocabulary that puts a space before a text also puts one
 * after a special token; that space is not part of the reply. */
static bool continues(const struct chat_prompt *p, const struct vocab *v)
{
    return p->n_tokens > 0 && !vocab_is_special(v, p->tokens[p->n_tokens - 1]);
}

int qn_reply_new(qn_reply **out, const qn_chat *c, const qn_prompt *p, const char *const *stop, size_t n_stop,
                 struct qn_error *e)
{
    int rc;
    if (!out || !c || !p) return usage_null(e, __func__);
    if ((rc = usage_strings(e, __func__, "stop", stop, n_stop))) return rc;
    struct qn_reply *r = mem_calloc(1, sizeof *r);
    struct stop_string *strings = mem_calloc(n_stop + 1, sizeof *strings);
    rc = QN_ENOMEM;
    if (!r || !strings) {
        error_nomem(e, "a reply", sizeof *r + (n_stop + 1) * sizeof *strings);
        goto done;
    }
    for (size_t i = 0; i < n_stop; i++) {
        strings[i] = (struct stop_string){stop[i], strlen(stop[i])};
        if (strings[i].n > r->stop_bytes) r->stop_bytes = strings[i].n;
    }
    r->prompt = (struct qn_prompt *)p; /* immutable, except for the count */
    hold_get(&r->prompt->hold);
    r->form = p->prompt.form;
    detok_init(&r->detok, c->v, continues(&p->prompt, c->v) ? DETOK_CONTINUE : 0);
    rc = stop_init(&r->stop, strings, n_stop, NULL, 0, e);
    if (rc == 0) rc = chat_reply_new(&r->reply, &r->form, p->prompt.tools, p->prompt.begins, e);
done:
    mem_free(strings);
    if (rc)
        qn_reply_free(r);
    else
        *out = r;
    return rc;
}

void qn_reply_free(qn_reply *r)
{
    if (!r) return;
    chat_reply_free(r->reply);
    stop_deinit(&r->stop);
    buf_deinit(&r->whole);
    buf_deinit(&r->out);
    buf_deinit(&r->events);
    if (r->prompt && hold_put(&r->prompt->hold)) free_prompt(r->prompt);
    mem_free(r);
}

static size_t n_events(const struct qn_reply *r) { return r->events.len / sizeof(struct qn_reply_event); }

/* Searches the content of *v for stop strings and replaces it by the part that can be given out. r->out has room for
 * it already, so pointers into r->out stay valid. */
static int filter(struct qn_reply *r, struct qn_reply_event *v, struct qn_error *e)
{
    size_t at = r->out.len;
    int rc = stop_push(&r->stop, v->text, v->n, &r->out, e);
    v->text = r->out.data ? (const char *)r->out.data + at : "";
    v->n = r->out.len - at;
    return rc;
}

/* Collects the events of the last push or end. ends: no more will come, so held content is given out, too. */
static int collect(struct qn_reply *r, bool ends, struct qn_error *e)
{
    struct qn_reply_event v;
    size_t content = 0;
    buf_clear(&r->events);
    r->next = 0;
    int rc = 0;
    while (rc == 0 && chat_reply_next(r->reply, &v)) {
        if (v.kind == QN_REPLY_CONTENT) content += v.n;
        rc = buf_add(&r->events, &v, sizeof v, e);
    }
    buf_clear(&r->out);
    if (rc == 0) rc = buf_reserve(&r->out, content + r->stop_bytes, e);
    struct qn_reply_event *all = (struct qn_reply_event *)r->events.data;
    size_t n = n_events(r), kept = 0;
    for (size_t i = 0; rc == 0 && i < n && r->stop.hit < 0; i++) {
        if (all[i].kind == QN_REPLY_CONTENT) rc = filter(r, &all[i], e);
        if (all[i].kind != QN_REPLY_CONTENT || all[i].n > 0) all[kept++] = all[i];
    }
    r->events.len = kept * sizeof v;
    size_t at = r->out.len;
    if (rc || !ends || (rc = stop_flush(&r->stop, &r->out, e)) || r->out.len == at) return rc;
    v = (struct qn_reply_event){QN_REPLY_CONTENT, -1, (const char *)r->out.data + at, r->out.len - at};
    return buf_add(&r->events, &v, sizeof v, e);
}

/* Appends the text of a token to r->whole. A control token has no text, unless it is a mark that the reader looks
 * for. */
static int token_text(struct qn_reply *r, qn_token token, struct qn_error *e)
{
    const struct vocab *v = r->detok.v;
    struct str s = vocab_token_text(v, token);
    buf_clear(&r->whole);
    bool reads = vocab_is_control(v, token) && chat_form_reads(&r->form, s.p, s.n);
    if (!reads && vocab_is_eog(v, token)) return 0;
    r->detok.flags = (r->detok.flags & ~(unsigned)DETOK_SPECIAL) | (reads ? DETOK_SPECIAL : 0);
    return detok_push(&r->detok, token, &r->whole, e);
}

int qn_reply_push(qn_reply *r, qn_token token, bool *stopped, struct qn_error *e)
{
    if (!r) return usage_null(e, __func__);
    if (!vocab_is_valid(r->detok.v, token))
        return error_set(e, QN_EUSAGE, "reply: token %d is not in the vocabulary", token);
    int rc = token_text(r, token, e);
    if (rc == 0) rc = chat_reply_push(r->reply, r->whole.data ? (const char *)r->whole.data : "", r->whole.len, e);
    if (rc == 0) rc = collect(r, false, e);
    if (rc == 0 && stopped) *stopped = r->stop.hit >= 0;
    return rc;
}

int qn_reply_end(qn_reply *r, struct qn_error *e)
{
    if (!r) return usage_null(e, __func__);
    detok_cut(&r->detok);
    int rc = chat_reply_end(r->reply, "", 0, e);
    return rc ? rc : collect(r, true, e);
}

int qn_reply_stop_index(const qn_reply *r) { return r ? r->stop.hit : -1; }

bool qn_reply_is_thinking(const qn_reply *r) { return r && chat_reply_is_thinking(r->reply); }

bool qn_reply_next(qn_reply *r, struct qn_reply_event *event)
{
    if (!r || !event || r->next == n_events(r)) return false;
    *event = ((const struct qn_reply_event *)r->events.data)[r->next++];
    return true;
}
