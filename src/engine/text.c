/* SPDX-License-Identifier: MIT
 *
 * text.c: turns tokens into the text of an answer. See text.h.
 *
 * There are two filters in a row, each of which may hold bytes back. The first turns tokens into whole characters. The
 * second looks for stop strings. A push that fails changes neither, so that it can be tried again.
 */
#include "engine/core/text.h"

#include <assert.h>
#include <string.h>

#include "base/mem.h"
#include "engine/engine.h"

/* Returns the most bytes that one push gives out: each byte of the token, and each byte held before, may become
 * U+FFFD. */
static size_t piece_bytes(const struct vocab *v) { return (vocab_max_token_bytes(v) + 4) * 3; }

int text_new(struct qn_text **out, const struct vocab *v, bool continues, const char *const *stop, size_t n_stop,
             const qn_token *stop_tokens, size_t n_stop_tokens, struct qn_error *e)
{
    size_t longest = 0;
    int rc = QN_ENOMEM;
    struct qn_text *t = mem_calloc(1, sizeof *t);
    struct stop_string *strings = mem_calloc(n_stop + 1, sizeof *strings);
    if (!t || !strings) {
        error_nomem(e, "a text stream", sizeof *t + (n_stop + 1) * sizeof *strings);
        goto fail;
    }
    for (size_t i = 0; i < n_stop; i++) {
        strings[i] = (struct stop_string){stop[i], strlen(stop[i])};
        if (strings[i].n > longest) longest = strings[i].n;
    }
    if ((rc = stop_init(&t->stop, strings, n_stop, stop_tokens, n_stop_tokens, e))) goto fail;
    detok_init(&t->detok, v, continues ? DETOK_CONTINUE : 0);
    if ((rc = buf_reserve(&t->whole, piece_bytes(v), e))) goto fail;
    if ((rc = buf_reserve(&t->out, piece_bytes(v) + longest, e))) goto fail;
    mem_free(strings);
    *out = t;
    return 0;
fail:
    mem_free(strings);
    qn_text_free(t);
    return rc;
}

int qn_text_new(qn_text **out, const qn_model *m, bool continues, const char *const *stop, size_t n_stop,
                struct qn_error *e)
{
    if (!out || !m) return usage_null(e, __func__);
    int rc = usage_strings(e, __func__, "stop", stop, n_stop);
    if (!rc) rc = text_new(out, m->model->vocab, continues, stop, n_stop, NULL, 0, e);
    if (!rc) (*out)->model = model_hold(m);
    return rc;
}

void qn_text_free(qn_text *t)
{
    if (!t) return;
    model_let_go(t->model);
    stop_deinit(&t->stop);
    buf_deinit(&t->whole);
    buf_deinit(&t->out);
    mem_free(t);
}

static void give(const qn_text *t, const char **bytes, size_t *n)
{
    *bytes = t->out.data ? (const char *)t->out.data : "";
    *n = t->out.len;
}

int qn_text_push(qn_text *t, qn_token token, const char **bytes, size_t *n, bool *stopped, struct qn_error *e)
{
    if (!t || !bytes || !n) return usage_null(e, __func__);
    if (!vocab_is_valid(t->detok.v, token))
        return error_set(e, QN_EUSAGE, "text: token %d is not in the vocabulary", token);
    const struct detok before = t->detok;
    buf_clear(&t->whole);
    buf_clear(&t->out);
    int rc = detok_push(&t->detok, token, &t->whole, e);
    if (!rc) rc = stop_push(&t->stop, t->whole.data, t->whole.len, &t->out, e);
    if (rc) {
        t->detok = before; /* the token may be pushed again */
        return rc;
    }
    give(t, bytes, n);
    if (stopped) *stopped = t->stop.hit >= 0;
    return 0;
}

int qn_text_end(qn_text *t, const char **bytes, size_t *n, struct qn_error *e)
{
    if (!t || !bytes || !n) return usage_null(e, __func__);
    const struct detok before = t->detok;
    buf_clear(&t->whole);
    buf_clear(&t->out);
    int rc = detok_flush(&t->detok, &t->whole, e);
    if (!rc) rc = stop_push(&t->stop, t->whole.data, t->whole.len, &t->out, e);
    if (rc) {
        t->detok = before; /* the caller may try again */
        return rc;
    }
    rc = stop_flush(&t->stop, &t->out, e);
    assert(!rc); /* stop_push made room for all that was held */
    give(t, bytes, n);
    return 0;
}
