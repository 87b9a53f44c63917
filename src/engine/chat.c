/* SPDX-License-Identifier: MIT
 *
 * chat.c: the chat section of quern.h: templates and replies of text/, joined with tokens and stop strings.
 *
 * A reply is detokenised, read, and its content held against the stop strings, in this order: a stop string ends the
 * answer and not a thought or a call in which it happens to stand. Content that may be the beginning of one is held
 * back until more content settles it, so these few bytes may come behind a call before which they were written.
 */
#include <assert.h>
#include <string.h>
#include <time.h>

#include "decode/stop.h"
#include "engine/engine.h"
#include "text/chat.h"
#include "text/chat_reply.h"
#include "text/detok.h"

struct qn_chat {
    struct chat *chat;
    const struct vocab *v; /* borrowed */
};

struct qn_prompt {
    struct chat_prompt prompt;
};

struct qn_reply {
    struct chat_reply *reply;
    struct chat_form form;
    struct detok detok;
    struct stop stop;
    size_t stop_bytes; /* of the longest stop string: no more is ever held back */
    struct buf whole;  /* characters that became whole */
    struct buf out;    /* content that is no part of a stop string */
    struct buf events; /* array of struct qn_reply_event */
    size_t next;       /* event */
};

int qn_chat_new(qn_chat **out, const qn_model *m, const char *source, size_t n, struct qn_error *e)
{
    struct qn_chat *c = mem_calloc(1, sizeof *c);
    if (!c) return error_nomem(e, "a chat", sizeof *c);
    c->v = m->model->vocab;
    int rc = chat_new(&c->chat, m->model->weights, c->v, source, n, e);
    if (rc) {
        mem_free(c);
        return rc;
    }
    *out = c;
    return 0;
}

void qn_chat_free(qn_chat *c)
{
    if (!c) return;
    chat_free(c->chat);
    mem_free(c);
}

int qn_chat_prompt(qn_prompt **out, const qn_chat *c, const char *request, size_t n, const struct qn_cancel *cancel,
                   struct qn_error *e)
{
    struct tm now;
    time_t t = time(NULL);
    struct qn_prompt *p = mem_calloc(1, sizeof *p);
    if (!p) return error_nomem(e, "a prompt", sizeof *p);
    int rc = chat_prompt_make(&p->prompt, c->chat, request, n, localtime_r(&t, &now), cancel, e);
    if (rc) {
        mem_free(p);
        return rc;
    }
    *out = p;
    return 0;
}

size_t qn_chat_prompt_bytes(size_t n) { return chat_prompt_bytes(n); }

void qn_prompt_free(qn_prompt *p)
{
    if (!p) return;
    chat_prompt_deinit(&p->prompt);
    mem_free(p);
}

const char *qn_prompt_text(const qn_prompt *p, size_t *n)
{
    *n = p->prompt.text.len;
    return *n ? (const char *)p->prompt.text.data : "";
}

const qn_token *qn_prompt_tokens(const qn_prompt *p, size_t *n)
{
    *n = p->prompt.n_tokens;
    return p->prompt.tokens;
}

const int *qn_prompt_boundaries(const qn_prompt *p, size_t *n)
{
    *n = p->prompt.n_cuts;
    return p->prompt.cuts;
}

/* ---- replies ---- */

/* A vocabulary that puts a space before a text does so behind a special token too, so there it is none of the reply's.
 */
static bool continues(const struct chat_prompt *p, const struct vocab *v)
{
    return p->n_tokens > 0 && !vocab_is_special(v, p->tokens[p->n_tokens - 1]);
}

int qn_reply_new(qn_reply **out, const qn_chat *c, const qn_prompt *p, const char *const *stop, size_t n_stop,
                 struct qn_error *e)
{
    int rc = QN_ENOMEM;
    struct qn_reply *r = mem_calloc(1, sizeof *r);
    struct stop_string *strings = mem_calloc(n_stop + 1, sizeof *strings);
    if (!r || !strings) {
        error_nomem(e, "a reply", sizeof *r + (n_stop + 1) * sizeof *strings);
        goto done;
    }
    for (size_t i = 0; i < n_stop; i++) {
        strings[i] = (struct stop_string){stop[i], strlen(stop[i])};
        if (strings[i].n > r->stop_bytes) r->stop_bytes = strings[i].n;
    }
    r->form = p->prompt.form;
    detok_init(&r->detok, c->v, continues(&p->prompt, c->v) ? DETOK_CONTINUE : 0);
    rc = stop_init(&r->stop, strings, n_stop, NULL, 0, e);
    if (rc == 0) rc = chat_reply_new(&r->reply, &r->form, p->prompt.tools, p->prompt.thinking, e);
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
    mem_free(r);
}

static size_t n_events(const struct qn_reply *r) { return r->events.len / sizeof(struct qn_reply_event); }

/* Holds content against the stop strings. Room in r->out was made, so what points into it stays. */
static int filter(struct qn_reply *r, struct qn_reply_event *v, struct qn_error *e)
{
    size_t at = r->out.len;
    int rc = stop_push(&r->stop, v->text, v->n, &r->out, e);
    v->text = r->out.data ? (const char *)r->out.data + at : "";
    v->n = r->out.len - at;
    return rc;
}

/* Collects what the reader gives out; ends: nothing will follow. */
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

/* Tokens without a text of their own say nothing, but for the marks that the reader looks for. */
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
    buf_clear(&r->whole);
    int rc = detok_flush(&r->detok, &r->whole, e);
    if (rc == 0) rc = chat_reply_end(r->reply, r->whole.data ? (const char *)r->whole.data : "", r->whole.len, e);
    return rc ? rc : collect(r, true, e);
}

int qn_reply_stop_index(const qn_reply *r) { return r->stop.hit; }

bool qn_reply_next(qn_reply *r, struct qn_reply_event *event)
{
    if (r->next == n_events(r)) return false;
    *event = ((const struct qn_reply_event *)r->events.data)[r->next++];
    return true;
}
