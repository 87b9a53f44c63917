/* SPDX-License-Identifier: MIT
 *
 * wedlm_file.c: reads what a model's file says about windows. See wedlm_file.h.
 */
#include "decode/wedlm_file.h"

/* An integer in lo..hi. *out stays as it is if the key is absent. */
static int read_int(const struct model *m, const char *key, int64_t lo, int64_t hi, int *out, struct qn_error *e)
{
    const struct meta *v = weights_meta(m->weights, key);
    int64_t x;
    if (!v) return 0;
    if (v->type == MT_ARRAY) return error_set(e, QN_EDATA, "wedlm: %s is an array", key);
    int rc = meta_elem_i64(v, 0, &x, e);
    if (rc) return rc;
    if (x < lo || x > hi)
        return error_set(e, QN_EDATA, "wedlm: %s is %lld, not %lld..%lld", key, (long long)x, (long long)lo,
                         (long long)hi);
    *out = (int)x;
    return 0;
}

static int read_nats(const struct model *m, const char *key, float *out, struct qn_error *e)
{
    const struct meta *v = weights_meta(m->weights, key);
    float x;
    int rc;
    if (!v) return 0;
    if ((rc = meta_get_f32(v, &x, e))) return rc;
    if (!(x >= 0 && x <= WEDLM_MOST_NATS))
        return error_set(e, QN_EDATA, "wedlm: %s is %g, not 0..%g", key, (double)x, (double)WEDLM_MOST_NATS);
    *out = x;
    return 0;
}

int wedlm_file_read(struct wedlm_file *out, const struct model *m, struct qn_error *e)
{
    struct wedlm_file f = {.mask = vocab_mask(m->vocab), .params = wedlm_defaults()};
    int n = m->hp.n_vocab, id = f.mask, rc;
    if ((rc = read_int(m, "tokenizer.ggml.mask_token_id", 0, n - 1, &id, e))) return rc;
    if ((rc = read_int(m, "wedlm.window_size", 1, WEDLM_MOST, &f.params.window, e))) return rc;
    if ((rc = read_nats(m, "wedlm.entropy_threshold", &f.params.entropy_threshold, e))) return rc;
    if ((rc = read_nats(m, "wedlm.pos_penalty", &f.params.pos_penalty, e))) return rc;
    if (id < 0 && n > WEDLM_MASK && weights_meta(m->weights, "quern.wedlm")) id = WEDLM_MASK;
    f.mask = id;
    *out = f;
    return 0;
}
