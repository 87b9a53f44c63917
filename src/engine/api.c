/* SPDX-License-Identifier: MIT
 *
 * api.c: the parts of quern.h that only pass on: model, text, build.
 */
#include <assert.h>
#include <string.h>

#include "base/rng.h"
#include "decode/stop.h"
#include "engine/engine.h"
#include "version.h"
#include "kernel/cpu.h"
#include "text/detok.h"

int qn_model_open(qn_model **out, const char *path, struct qn_error *e)
{
    struct qn_model *m = mem_calloc(1, sizeof *m);
    if (!m) return error_nomem(e, "a model", sizeof *m);
    int rc = model_load(&m->model, path, e);
    if (rc) {
        mem_free(m);
        return rc;
    }
    *out = m;
    return 0;
}

void qn_model_close(qn_model *m)
{
    if (!m) return;
    model_free(m->model);
    mem_free(m);
}

int32_t qn_model_n_vocab(const qn_model *m) { return m->model->hp.n_vocab; }
int32_t qn_model_n_ctx_train(const qn_model *m) { return m->model->hp.n_ctx_train; }
bool qn_model_is_eog(const qn_model *m, qn_token t) { return vocab_is_eog(m->model->vocab, t); }

int qn_tokenize(const qn_model *m, const char *text, size_t n, unsigned flags, qn_token **ids, size_t *n_ids,
                struct qn_error *e)
{
    unsigned f = (flags & QN_ADD_BOS ? VOCAB_ADD_BOS : 0) | (flags & QN_ADD_EOS ? VOCAB_ADD_EOS : 0) |
                 (flags & QN_PARSE_SPECIAL ? VOCAB_PARSE_SPECIAL : 0);
    return vocab_encode(m->model->vocab, text, n, f, ids, n_ids, e);
}

size_t qn_model_max_text(const qn_model *m, int n_tokens)
{
    return (size_t)n_tokens * vocab_max_token_bytes(m->model->vocab);
}

void qn_free(void *p) { mem_free(p); }

uint64_t qn_random_seed(void) { return rng_seed_from_os(); }

struct qn_text {
    struct detok detok;
    struct stop stop;
    struct buf whole, out; /* characters that became whole; of these, what is no part of a stop string */
};

int qn_text_new(qn_text **out, const qn_model *m, bool continues, const char *const *stop, size_t n_stop,
                struct qn_error *e)
{
    int rc = QN_ENOMEM;
    struct qn_text *t = mem_calloc(1, sizeof *t);
    struct stop_string *strings = mem_calloc(n_stop + 1, sizeof *strings);
    if (!t || !strings) {
        error_nomem(e, "a text stream", sizeof *t + (n_stop + 1) * sizeof *strings);
        goto fail;
    }
    for (size_t i = 0; i < n_stop; i++) strings[i] = (struct stop_string){stop[i], strlen(stop[i])};
    if ((rc = stop_init(&t->stop, strings, n_stop, NULL, 0, e))) goto fail;
    detok_init(&t->detok, m->model->vocab, continues ? DETOK_CONTINUE : 0);
    mem_free(strings);
    *out = t;
    return 0;
fail:
    mem_free(strings);
    mem_free(t);
    return rc;
}

void qn_text_free(qn_text *t)
{
    if (!t) return;
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
    const struct detok before = t->detok;
    buf_clear(&t->whole);
    buf_clear(&t->out);
    int rc = detok_flush(&t->detok, &t->whole, e);
    if (!rc) rc = stop_push(&t->stop, t->whole.data, t->whole.len, &t->out, e);
    if (rc) {
        t->detok = before; /* the end may come again */
        return rc;
    }
    rc = stop_flush(&t->stop, &t->out, e);
    assert(!rc); /* stop_push made room for all that was held */
    give(t, bytes, n);
    return 0;
}

const char *qn_version(void) { return QUERN_VERSION " (" QUERN_COMMIT ", " QUERN_COMPILER ")"; }
const char *qn_cpu(void) { return cpu_level_name(cpu_best()); }
