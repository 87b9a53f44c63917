/* SPDX-License-Identifier: MIT
 *
 * rank_head.c: the two rows by which a model ranks.
 */
#include "model/rank_head.h"

#include <string.h>
#include <strings.h>

#include "base/math.h"
#include "kernel/kernel.h"

#define HEAD "cls.output.weight"

/* The rows have to be those of "yes" and "no", in this order. */
static int check_labels(const struct model *m, struct qn_error *e)
{
    static const char *const wanted[] = {"yes", "no"};
    const struct meta *list = weights_meta(m->weights, "qwen3.classifier.output_labels");
    uint64_t cursor = 0;
    struct str s;
    for (int i = 0; list && i < 2; i++)
        if (!meta_next_str(list, &cursor, &s) || s.n != strlen(wanted[i]) || memcmp(s.p, wanted[i], s.n))
            return error_set(e, QN_EUNSUP, "model: 'qwen3.classifier.output_labels' are not \"yes\" and \"no\"");
    return 0;
}

static int find_tensor(struct model *m, struct qn_error *e)
{
    const struct tensor *t = weights_tensor(m->weights, HEAD);
    if (!t) return error_set(e, QN_EDATA, "model: 'qwen3.pooling_type' is 4 (rank), but there is no tensor '%s'", HEAD);
    if (t->ne[0] != m->hp.n_embd || t->ne[1] != 2 || t->ne[2] != 1 || t->ne[3] != 1)
        return error_set(e, QN_EUNSUP, "model: tensor '%s' is %lld x %lld, not %d x 2", HEAD, (long long)t->ne[0],
                         (long long)t->ne[1], m->hp.n_embd);
    if (kernel_act_of(t->type) == ACT_N || dtype_get(t->type)->tail)
        return error_set(e, QN_EUNSUP, "model: tensor '%s' has type %s", HEAD, dtype_get(t->type)->name);
    int rc = check_labels(m, e);
    if (rc) return rc;
    m->rank_head = t;
    m->rank_row[0] = 0;
    m->rank_row[1] = 1;
    return 0;
}

/* Whether the name has this word, in letters of any size. */
static bool is_named(const struct model *m, const char *word)
{
    struct str s = {0};
    size_t n = strlen(word);
    if (meta_str(m->weights, "general.name", &s, NULL) != 1) return false;
    for (size_t i = 0; i + n <= s.n; i++)
        if (!strncasecmp(s.p + i, word, n)) return true;
    return false;
}

int rank_head_find(struct model *m, struct qn_error *e)
{
    if (m->hp.pooling == POOL_RANK) return find_tensor(m, e);
    qn_token yes = vocab_find(m->vocab, "yes", 3), no = vocab_find(m->vocab, "no", 2);
    if (m->hp.pooling != POOL_UNSAID || strcmp(m->arch->name, "qwen3") || yes < 0 || no < 0) return 0;
    if (!is_named(m, "qwen3-reranker") && !is_named(m, "qwen3 reranker")) return 0;
    m->hp.pooling = POOL_RANK;
    m->rank_head = m->output;
    m->rank_row[0] = yes;
    m->rank_row[1] = no;
    return 0;
}

static double product(const struct model *m, int64_t i, const double *row, float *scratch)
{
    const struct tensor *t = m->rank_head;
    int n = m->hp.n_embd;
    double sum = 0;
    struct side side = side_from(t->side, t->ne[0], i);
    dequant_row(t->type, t->data + (size_t)i * t->row_bytes, &side, n, scratch);
    for (int k = 0; k < n; k++) sum += row[k] * (double)scratch[k];
    return sum;
}

float rank_head_score(const struct model *m, const double *row, float *scratch)
{
    double yes = product(m, m->rank_row[0], row, scratch), no = product(m, m->rank_row[1], row, scratch);
    double x = no - yes;
    if (!(x < 80)) x = 80; /* NaN too */
    if (x < -80) x = -80;
    return (float)(1 / (1 + math_exp(x)));
}
