/* SPDX-License-Identifier: MIT
 *
 * load.c: opens the weights of a model, reads its numbers, and binds its tensors.
 */
#include "model/load.h"

#include <stdio.h>
#include <string.h>

#include "format/gguf/gguf.h"
#include "format/warm.h"
#include "model/bind.h"
#include "model/rope.h"

static int find_arch(const struct weights *w, const struct arch **out, struct qn_error *e)
{
    struct str s;
    int rc = meta_str(w, "general.architecture", &s, e);
    if (rc < 0) return rc;
    if (rc == 0) return error_set(e, QN_EDATA, "model: key 'general.architecture' is missing");
    *out = arch_find(s.p, s.n);
    if (*out) return 0;
    char names[600];
    return error_set(e, QN_EUNSUP, "model: architecture '%.*s' is not supported (%s are)", (int)(s.n > 60 ? 60 : s.n),
                     s.p, arch_names(names, sizeof names));
}

/* Checks every rotation that a pass may use. */
static int check_ropes(const struct model *m, struct qn_error *e)
{
    const float *const factors[] = {m->rope_freqs, m->rope_long, m->rope_short};
    struct rope r;
    int rc;
    if (m->hp.rope_scaling == ROPE_LONG && !(m->rope_long && m->rope_short))
        return error_set(e, QN_EDATA, "model: longrope scaling without rope_factors_long and rope_factors_short");
    for (size_t i = 0; i < sizeof factors / sizeof factors[0]; i++) {
        rope_init(&r, &m->hp, factors[i]);
        if ((rc = rope_check(&r, e))) return rc;
    }
    if (!m->hp.has_local_rope) return 0;
    rope_init_local(&r, &m->hp);
    return rope_check(&r, e);
}

/* Which layers the file has. */
static int read_layers(struct model *m, struct qn_error *e)
{
    uint64_t n = (uint64_t)m->hp.n_layer, first = 0, last = n - 1;
    int has_first = meta_u64(m->weights, GGUF_FIRST_LAYER, 0, n - 1, &first, e);
    int has_last = has_first < 0 ? has_first : meta_u64(m->weights, GGUF_LAST_LAYER, first, n - 1, &last, e);
    if (has_last < 0) return has_last;
    if (has_first != has_last)
        return error_set(e, QN_EDATA, "model: key '%s' is there without '%s'",
                         has_first ? GGUF_FIRST_LAYER : GGUF_LAST_LAYER,
                         has_first ? GGUF_LAST_LAYER : GGUF_FIRST_LAYER);
    m->file_lo = (int)first;
    m->file_hi = (int)last + 1;
    return 0;
}

static int refuse_part(const struct model *m, struct qn_error *e)
{
    if (m->file_lo == 0 && m->file_hi == m->hp.n_layer) return 0;
    return error_set(e, QN_EUNSUP,
                     "model: the file has the weights of layers %d to %d only, of 0 to %d: it is for a stage of "
                     "'quern serve --hosts'",
                     m->file_lo, m->file_hi - 1, m->hp.n_layer - 1);
}

/* Everything after opening. m->weights is set. */
static int build(struct model *m, const char *pre, struct qn_error *e)
{
    int rc;
    if ((rc = find_arch(m->weights, &m->arch, e))) return rc;
    if ((rc = vocab_load_with(&m->vocab, m->weights, pre, e))) return rc;
    if ((rc = hparams_read(&m->hp, m->weights, m->arch, vocab_n_tokens(m->vocab), e))) return rc;
    if ((rc = read_layers(m, e))) return rc;
    if ((rc = bind_model(m, e))) return rc;
    return check_ropes(m, e);
}

static void release(struct model *m)
{
    vocab_free(m->vocab);
    mem_free(m->layers);
    arena_deinit(&m->vectors);
}

static int load(struct model **out, const char *path, const char *pre, bool is_stage, struct qn_error *e)
{
    struct model *m = mem_calloc(1, sizeof *m);
    if (!m) return error_nomem(e, "a model", sizeof *m);
    struct qn_error why;
    struct warm warm;
    int rc = weights_open(&m->weights, path, e); /* names the file */
    if (rc) goto fail;
    warm_start(&warm, m->weights);
    rc = build(m, pre, &why);
    if (!rc && !is_stage) rc = refuse_part(m, &why);
    warm_stop(&warm);
    if (rc) {
        error_set(e, rc, "%s: %s", path, why.msg);
        goto fail;
    }
    *out = m;
    return 0;
fail:
    model_free(m);
    return rc;
}

int model_load(struct model **out, const char *path, struct qn_error *e) { return load(out, path, NULL, false, e); }

int model_load_with(struct model **out, const char *path, const char *pre, struct qn_error *e)
{
    return load(out, path, pre, false, e);
}

int model_load_stage(struct model **out, const char *path, struct qn_error *e)
{
    return load(out, path, NULL, true, e);
}

void model_free(struct model *m)
{
    if (!m) return;
    release(m);
    weights_close(m->weights);
    mem_free(m);
}

/* Whether the stage needs a tensor. Of a tied model, the last stage needs the embedding table for its logits. The
 * vectors of no layer are small, and were copied. */
static bool is_in_stage(const void *arg, const struct tensor *t)
{
    const struct model *m = arg;
    int il, at = 0;
    if (sscanf(t->name, "blk.%d.%n", &il, &at) == 1 && at)
        return il < m->hp.n_layer ? il >= m->hp.layer_lo && il < m->hp.layer_hi : m->has_nextn;
    if (t == m->token_embd && (model_is_first(m) || m->has_nextn)) return true;
    return t == m->output || t == m->rank_head ? model_is_last(m) : t != m->token_embd;
}

int model_cut(struct model *m, int lo, int hi, struct qn_error *e)
{
    if (lo < 0 || lo >= hi || hi > m->hp.n_layer)
        return error_set(e, QN_EUSAGE, "model: layers %d..%d, but it has %d", lo, hi - 1, m->hp.n_layer);
    hp_cut(&m->hp, lo, hi);
    if (!model_is_last(m)) m->has_nextn = false;
    return weights_use(m->weights, is_in_stage, m, e);
}

bool model_stage_needs(const struct model *m, int lo, int hi, const char *tensor)
{
    const struct tensor *t = weights_tensor(m->weights, tensor);
    struct model part = *m;
    hp_cut(&part.hp, lo, hi);
    if (!model_is_last(&part)) part.has_nextn = false;
    return t && is_in_stage(&part, t);
}

void model_part(struct model *part, const struct model *m, int lo, int hi)
{
    *part = *m;
    part->has_nextn = false;
    hp_cut(&part->hp, lo, hi);
}

uint64_t model_part_bytes(const struct model *part)
{
    uint64_t bytes = 0;
    for (size_t i = 0; i < weights_n_tensors(part->weights); i++) {
        const struct tensor *t = weights_tensor_at(part->weights, i);
        if (is_in_stage(part, t)) bytes += t->bytes;
    }
    return bytes;
}

int model_check(const struct weights *w, const char *pre, struct qn_error *e)
{
    struct model m = {.weights = (struct weights *)w};
    int rc = build(&m, pre, e);
    if (!rc) rc = refuse_part(&m, e);
    release(&m);
    return rc;
}
