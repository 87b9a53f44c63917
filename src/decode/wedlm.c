/* SPDX-License-Identifier: MIT
 *
 * wedlm.c: the window of WeDLM. See wedlm.h.
 */
#include "decode/wedlm.h"

#include <assert.h>
#include <math.h>
#include <string.h>

#include "base/inline/minmax.h"
#include "base/math.h"

#define LANES 8 /* sums of an entropy: their order is fixed, so that every compiler gives the same bits */

struct wedlm_params wedlm_defaults(void)
{
    return (struct wedlm_params){.window = WEDLM_MOST, .entropy_threshold = 0.4f, .pos_penalty = 0.02f};
}

int wedlm_check(const struct wedlm_params *p, struct qn_error *e)
{
    if (p->window < 1 || p->window > WEDLM_MOST)
        return error_set(e, QN_EUSAGE, "wedlm: a window of %d tokens, not 1..%d", p->window, WEDLM_MOST);
    if (!(p->pos_penalty >= 0 && isfinite(p->pos_penalty)))
        return error_set(e, QN_EUSAGE, "wedlm: a penalty of %g, not 0 or more", (double)p->pos_penalty);
    return 0;
}

void wedlm_begin(struct wedlm *w, const struct wedlm_params *p, int n_committed)
{
    assert(p->window >= 1 && p->window <= WEDLM_MOST);
    *w = (struct wedlm){.p = *p, .from = n_committed};
}

int wedlm_run(const struct wedlm *w)
{
    int i = 0;
    while (i < w->n && w->entries[i].is_filled) i++;
    return i;
}

static void refill(struct wedlm *w, int end)
{
    int wanted = min_int(wedlm_run(w) + w->p.window, end - w->from);
    if (wanted > 2 * WEDLM_MOST) wanted = 2 * WEDLM_MOST; /* windows of several lengths may leave a longer run */
    while (w->n < wanted) w->entries[w->n++] = (struct wedlm_entry){0};
}

int wedlm_gather(struct wedlm *w, int end, struct wedlm_row *rows)
{
    int n = 0;
    refill(w, end);
    for (int filled = 1; filled >= 0; filled--)
        for (int i = 0; i < w->n; i++)
            if (w->entries[i].is_filled == filled)
                rows[n++] = (struct wedlm_row){i, w->from + i, filled, w->entries[i].token};
    return n;
}

static void drop(struct wedlm *w, int n)
{
    w->n -= n;
    memmove(w->entries, w->entries + n, (size_t)w->n * sizeof *w->entries);
}

void wedlm_commit(struct wedlm *w, int n)
{
    assert(n >= 0 && n <= wedlm_run(w));
    drop(w, n);
    w->from += n;
}

void wedlm_advance(struct wedlm *w, int from)
{
    assert(from >= w->from);
    drop(w, min_int(from - w->from, w->n));
    w->from = from;
}

void wedlm_mask(struct wedlm *w, int i)
{
    for (; i < w->n; i++) w->entries[i] = (struct wedlm_entry){0};
}

/* ---- selection ---- */

float wedlm_entropy(const struct kernels *kt, const float *logits, int n, float *work, void *scratch)
{
    double sum[LANES] = {0}, weighed[LANES] = {0}, all = 0, mean = 0;
    int best = kt->argmax(logits, n, scratch);
    if (best < 0 || logits[best] == -INFINITY) return INFINITY;
    if (logits[best] == INFINITY) return 0;
    kt->softmax_exp(logits, n, work, scratch);
    for (int i = 0; i < n; i++) {
        if (!(work[i] > 0)) continue; /* impossible, or too improbable to count */
        sum[i % LANES] += (double)work[i];
        weighed[i % LANES] += (double)work[i] * ((double)logits[i] - (double)logits[best]);
    }
    for (int k = 0; k < LANES; k++) {
        all += sum[k];
        mean += weighed[k];
    }
    return (float)(math_log(all) - mean / all);
}

void qn_wedlm_init(struct qn_wedlm *w)
{
    if (w) *w = (struct qn_wedlm){.verify = -1, .entropy_threshold = -1, .pos_penalty = -1};
}

int wedlm_class(float entropy)
{
    static const float most[WEDLM_CLASSES - 1] = {0.01f, 0.03f, 0.1f, 0.2f, 0.4f, 0.8f, 1.5f};
    int k = 0;
    while (k < WEDLM_CLASSES - 1 && !(entropy < most[k])) k++;
    return k;
}

int wedlm_fill(struct wedlm *w, const float *entropy, const qn_token *token, int n)
{
    int first = -1, best = -1, k = 0, n_filled = 0;
    struct wedlm_entry best_entry = {0};
    float least = INFINITY;
    for (int i = 0; i < w->n && k < n; i++) {
        struct wedlm_entry *x = &w->entries[i];
        if (x->is_filled) continue;
        if (first < 0) first = i;
        float adjusted = entropy[k] + w->p.pos_penalty * (float)(i - first);
        qn_token t = token[k++];
        if (t < 0) continue;
        if (best < 0 || adjusted < least) {
            best = i;
            least = adjusted;
            best_entry = (struct wedlm_entry){t, true, entropy[k - 1]};
        }
        if (!(adjusted < w->p.entropy_threshold)) continue;
        *x = (struct wedlm_entry){t, true, entropy[k - 1]};
        n_filled++;
    }
    if (n_filled || best < 0) return n_filled;
    w->entries[best] = best_entry;
    return 1;
}
