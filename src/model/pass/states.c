/* SPDX-License-Identifier: MIT
 *
 * states.c: the copies of recurrent states, and the rows that are run again from them.
 */
#include "model/pass/states.h"

#include <assert.h>

#include "model/pass/ops_delta.h"

static size_t saved_bytes(const struct model *m, int max_seqs)
{
    return act_round64(m->hp.state_bytes) * (size_t)max_seqs;
}

size_t states_bytes(const struct model *m, int max_seqs)
{
    const struct hparams *h = &m->hp;
    int n_recurrent = 0;
    if (!h->state_bytes) return 0;
    for (int i = h->layer_lo; i < h->layer_hi; i++) n_recurrent += h->layer[i].is_recurrent;
    return saved_bytes(m, max_seqs) + (size_t)n_recurrent * PASS_MAX_HELD * delta_kept_ld(h) * sizeof(float);
}

int states_open(struct states *s, const struct model *m, int max_seqs, struct qn_error *e)
{
    size_t bytes = states_bytes(m, max_seqs);
    *s = (struct states){.max_seqs = max_seqs};
    if (!saved_bytes(m, max_seqs)) return 0;
    int rc = region_open(&s->undo, bytes, bytes, "the copies of recurrent states", e);
    if (rc) return rc;
    s->saved = s->undo.data;
    s->kept = (struct rows){(float *)(s->undo.data + saved_bytes(m, max_seqs)), delta_kept_ld(&m->hp)};
    return 0;
}

void states_close(struct states *s) { region_close(&s->undo); }

void states_cut(struct cutter *c, int n, struct states *s) { s->spans = cut_bytes(c, (size_t)n * sizeof *s->spans); }

/* An earlier span of the same sequence. */
static const struct state_span *earlier(const struct states *s, const struct state_span *p)
{
    for (const struct state_span *q = s->spans; q < p; q++)
        if (q->seq == p->seq) return q;
    return NULL;
}

static void list_spans(struct states *s, const struct batch *b)
{
    for (int r = 0; r < b->n; r++) {
        struct state_span *last = s->n_spans ? &s->spans[s->n_spans - 1] : NULL;
        if (last && last->seq == b->seq[r])
            last->n++;
        else
            s->spans[s->n_spans++] = (struct state_span){r, 1, b->seq[r], -1, -1, 0};
    }
}

/* Whether there is room for a copy of every sequence's state, and the copies are worth their time. */
static bool can_copy_all(const struct states *s)
{
    bool is_single = true;
    int n_seqs = 0;
    for (int i = 0; i < s->n_spans; i++) {
        bool is_first = !earlier(s, &s->spans[i]);
        n_seqs += is_first;
        is_single &= is_first && s->spans[i].n == 1;
    }
    return !is_single && n_seqs <= s->max_seqs;
}

void states_survey(struct states *s, const struct batch *b, bool has_state, bool *can_stop)
{
    s->n_spans = s->n_saved = s->n_kept = 0;
    if (!has_state) return;
    list_spans(s, b);
    *can_stop = *can_stop && can_copy_all(s);
    for (int i = 0; i < s->n_spans; i++) {
        struct state_span *p = &s->spans[i];
        bool is_held = b->held[p->row];
        if (is_held) {
            p->kept = s->n_kept;
            s->n_kept += p->n;
        }
        if ((is_held || *can_stop) && !earlier(s, p)) p->saved = s->n_saved++;
    }
    assert(s->n_kept <= PASS_MAX_HELD && s->n_saved <= s->max_seqs);
}

/* All rows of the span's sequence, and those of them that come before the span. */
static int rows_of_seq(const struct states *s, const struct state_span *p, int *n_before)
{
    int n = 0;
    *n_before = 0;
    for (const struct state_span *q = s->spans; q < s->spans + s->n_spans; q++) {
        if (q->seq != p->seq) continue;
        if (q < p) *n_before += q->n;
        n += q->n;
    }
    return n;
}

bool states_accept(struct states *s, const int32_t *n_accepted)
{
    bool any = false;
    for (int i = 0; i < s->n_spans; i++) {
        struct state_span *p = &s->spans[i];
        int n_before, n = rows_of_seq(s, p, &n_before), left = n_accepted[p->seq] - n_before;
        bool is_cut = p->kept >= 0 && n_accepted[p->seq] < n;
        if (!is_cut) p->saved = -1; /* the state stays as it is */
        p->n_again = 0;
        if (is_cut && left > 0) p->n_again = left < p->n ? left : p->n;
        any |= is_cut;
    }
    return any;
}

void states_forget(struct states *s)
{
    for (int i = 0; i < s->n_spans; i++) s->spans[i].kept = -1;
}
