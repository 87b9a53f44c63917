/* SPDX-License-Identifier: MIT
 *
 * api.c: the parts of quern.h that only pass on: model, tokens, build.
 */
#include "base/rng.h"
#include "engine/engine.h"
#include "format/model_files.h"
#include "model/arithmetic.h"
#include "version.h"
#include "kernel/cpu.h"

void qn_model_params_init(struct qn_model_params *p) { *p = (struct qn_model_params){.size = sizeof *p}; }

int qn_model_open(qn_model **out, const char *path, struct qn_error *e)
{
    return qn_model_open_with(out, path, NULL, e);
}

int qn_model_open_with(qn_model **out, const char *path, const struct qn_model_params *p, struct qn_error *e)
{
    if (p && p->size != sizeof *p)
        return error_set(e, QN_EUSAGE, "model: parameter struct of %zu bytes, %zu expected", p->size, sizeof *p);
    struct qn_model *m = mem_calloc(1, sizeof *m);
    if (!m) return error_nomem(e, "a model", sizeof *m);
    int rc = model_load_with(&m->model, path, p ? p->pre : NULL, e);
    if (rc) {
        mem_free(m);
        return rc;
    }
    *out = m;
    return 0;
}

uint64_t qn_model_mark(const qn_model *m)
{
    return model_files_mark(weights_files(m->model->weights), MODEL_ARITHMETIC);
}

void qn_model_close(qn_model *m)
{
    if (!m) return;
    model_free(m->model);
    mem_free(m);
}

int32_t qn_model_n_vocab(const qn_model *m) { return m->model->hp.n_vocab; }

enum qn_pooling qn_model_pooling(const qn_model *m)
{
    switch (m->model->hp.pooling) {
    case POOL_MEAN: return QN_POOL_MEAN;
    case POOL_LAST: return QN_POOL_LAST;
    case POOL_UNSAID: break;
    }
    return QN_POOL_NONE;
}

int32_t qn_model_n_ctx_train(const qn_model *m) { return m->model->hp.n_ctx_train; }
bool qn_model_is_eog(const qn_model *m, qn_token t) { return vocab_is_eog(m->model->vocab, t); }

int qn_tokenize(const qn_model *m, const char *text, size_t n, unsigned flags, const struct qn_cancel *cancel,
                qn_token **ids, size_t *n_ids, struct qn_error *e)
{
    unsigned f = (flags & QN_ADD_BOS ? VOCAB_ADD_BOS : 0) | (flags & QN_ADD_EOS ? VOCAB_ADD_EOS : 0) |
                 (flags & QN_PARSE_SPECIAL ? VOCAB_PARSE_SPECIAL : 0);
    return vocab_encode_wanted(m->model->vocab, text, n, f, cancel, ids, n_ids, e);
}

size_t qn_model_max_text(const qn_model *m, int n_tokens)
{
    return (size_t)n_tokens * vocab_max_token_bytes(m->model->vocab);
}

void qn_free(void *p) { mem_free(p); }

uint64_t qn_random_seed(void) { return rng_seed_from_os(); }

int qn_token_bytes(const qn_model *m, qn_token token, bool special, char **bytes, size_t *n, struct qn_error *e)
{
    struct buf b = {0};
    if (!vocab_is_valid(m->model->vocab, token))
        return error_set(e, QN_EUSAGE, "text: token %d is not in the vocabulary", token);
    int rc = vocab_token_bytes(m->model->vocab, token, special, &b, e);
    if (!rc) rc = buf_reserve(&b, 0, e); /* so that there is something to free */
    if (rc) {
        buf_deinit(&b);
        return rc;
    }
    *bytes = (char *)b.data;
    *n = b.len;
    return 0;
}

const char *qn_version(void) { return QUERN_VERSION " (" QUERN_COMMIT ", " QUERN_COMPILER ")"; }
const char *qn_cpu(void) { return cpu_level_name(cpu_best()); }
