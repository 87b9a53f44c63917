/* SPDX-License-Identifier: MIT
 *
 * wedlm_draft.c: the drafter `wedlm`. See wedlm_draft.h.
 */
#include "decode/wedlm_draft.h"

#include <assert.h>

#include "base/inline/minmax.h"
#include "base/mem.h"

static const char what[] = "the drafter wedlm";

struct wedlm_seq {
    struct wedlm_seq *next; /* of those that are free */
    struct wedlm window;    /* of the tokens after those that are known */
};

static_assert(DRAFT_CLASSES == WEDLM_CLASSES, "a class of sureness for each of entropy");
static_assert(DRAFT_MOST <= 2 * WEDLM_MOST, "a proposal is a run of the window");

struct wedlm_draft {
    struct drafter base;
    struct ledger *ledger;
    const struct kernels *kt;
    struct wedlm_file file;
    int n_vocab;
    size_t bytes;
    struct wedlm_seq *seqs, *free;
    float *work; /* [n_vocab] */
    uint64_t n_entropy[WEDLM_CLASSES];
    uint8_t *scratch;
};

static void wedlm_free(struct drafter *base)
{
    struct wedlm_draft *d = (struct wedlm_draft *)base;
    if (!d) return;
    ledger_give(d->ledger, d->bytes);
    mem_free(d->seqs);
    mem_free(d->work);
    mem_free(d->scratch);
    mem_free(d);
}

/* ---- sequences ---- */

static int wedlm_open(struct drafter *base, uint64_t identity, int max_tokens, void **seq, struct qn_error *e)
{
    struct wedlm_draft *d = (struct wedlm_draft *)base;
    struct wedlm_seq *s = d->free;
    (void)identity, (void)max_tokens;
    if (!s) return error_set(e, QN_ENOMEM, "wedlm: all records of sequences are in use");
    d->free = s->next;
    wedlm_begin(&s->window, &d->file.params, 0);
    *seq = s;
    return 0;
}

static void wedlm_close(struct drafter *base, void *seq)
{
    struct wedlm_draft *d = (struct wedlm_draft *)base;
    struct wedlm_seq *s = seq;
    if (!s) return;
    s->next = d->free;
    d->free = s;
}

/* ---- proposals ---- */

/* A class for each range of the entropy with which a mask was filled. */
static uint8_t sureness_of(float entropy) { return (uint8_t)(DRAFT_CLASSES - 1 - wedlm_class(entropy)); }

/* The run is proposed; its rows are the first ones of the window. */
static void add_proposal(const struct wedlm_seq *s, struct draft *draft)
{
    int run = min_int(wedlm_run(&s->window), draft->most);
    for (; draft->n < run; draft->n++) {
        draft->proposed[draft->n] = draft->instead ? draft->instead[draft->n] : s->window.entries[draft->n].token;
        draft->sureness[draft->n] = sureness_of(s->window.entries[draft->n].entropy);
    }
}

static void propose(struct wedlm_draft *d, struct draft *draft)
{
    struct wedlm_seq *s = draft->seq;
    struct wedlm_row rows[2 * WEDLM_MOST];
    draft->n = draft->n_aside = 0;
    wedlm_advance(&s->window, draft->n_tokens);
    if (draft->most == 0) return;
    add_proposal(s, draft);
    if (draft->window == 0) return;
    const struct wedlm_params *p = draft->windows ? draft->windows : &d->file.params;
    s->window.p = *p;
    s->window.p.window = min_int(draft->window, p->window);
    int n = wedlm_gather(&s->window, draft->n_tokens + draft->most, rows);
    for (int r = draft->n; r < n && draft->n_aside < DRAFT_ASIDE; r++)
        draft->aside[draft->n_aside++] =
            (struct draft_row){rows[r].is_filled ? rows[r].token : d->file.mask, rows[r].pos, !rows[r].is_filled};
}

static void wedlm_propose(struct drafter *base, struct draft *drafts, int n)
{
    for (int i = 0; i < n; i++) propose((struct wedlm_draft *)base, &drafts[i]);
}

/* ---- what came ---- */

static void wedlm_look(struct drafter *base, void *seq, const qn_token *tokens, int n_tokens,
                       const struct draft_look *looks, int n)
{
    struct wedlm_draft *d = (struct wedlm_draft *)base;
    struct wedlm_seq *s = seq;
    float entropy[DRAFT_ASIDE];
    qn_token token[DRAFT_ASIDE];
    int n_masks = 0;
    (void)tokens;
    wedlm_advance(&s->window, n_tokens);
    for (int i = 0; i < n; i++) {
        if (looks[i].pos < n_tokens) continue;
        token[n_masks] = looks[i].token;
        entropy[n_masks] = wedlm_entropy(d->kt, looks[i].logits, d->n_vocab, d->work, d->scratch);
        d->n_entropy[wedlm_class(entropy[n_masks++])]++;
    }
    wedlm_fill(&s->window, entropy, token, n_masks);
}

/* ---- the drafter ---- */

static const struct drafter_type wedlm_type = {.name = "wedlm",
                                               .open = wedlm_open,
                                               .close = wedlm_close,
                                               .propose = wedlm_propose,
                                               .look = wedlm_look,
                                               .free = wedlm_free};

const uint64_t *wedlm_draft_entropies(const struct drafter *d) { return ((const struct wedlm_draft *)d)->n_entropy; }

int wedlm_draft_check(const struct model *m, qn_token mask, struct qn_error *e)
{
    const char *why = NULL;
    if (m->hp.state_bytes) why = "the model has recurrent states";
    if (m->hp.n_layer_win) why = "the model has windowed layers";
    if (m->hp.n_lora_kv) why = "the model has latent attention";
    if (mask < 0)
        why = "the model's file names no mask token (tokenizer.ggml.mask_token_id), and has none called <|mask|>";
    return why ? error_set(e, QN_EUNSUP, "wedlm: %s", why) : 0;
}

static size_t row_bytes(const struct model *m) { return (size_t)m->hp.n_vocab * sizeof(float); }

size_t wedlm_draft_bytes(const struct model *m, int n_seqs)
{
    return sizeof(struct wedlm_draft) + (size_t)n_seqs * sizeof(struct wedlm_seq) + row_bytes(m) + KERNEL_SCRATCH_BYTES;
}

int wedlm_draft_new(struct drafter **out, const struct model *m, const struct kernels *kt,
                    const struct wedlm_file *file, int n_seqs, struct ledger *l, struct qn_error *e)
{
    size_t bytes = wedlm_draft_bytes(m, n_seqs);
    int rc = wedlm_draft_check(m, file->mask, e);
    if (rc || (rc = ledger_take(l, bytes, what, e))) return rc;
    struct wedlm_draft *d = mem_calloc(1, sizeof *d);
    if (!d) {
        ledger_give(l, bytes);
        return error_nomem(e, what, bytes);
    }
    *d = (struct wedlm_draft){
        .base = {&wedlm_type}, .ledger = l, .kt = kt, .file = *file, .n_vocab = m->hp.n_vocab, .bytes = bytes};
    d->seqs = mem_calloc((size_t)n_seqs, sizeof *d->seqs);
    d->work = mem_calloc((size_t)d->n_vocab, sizeof *d->work);
    d->scratch = mem_aligned(64, KERNEL_SCRATCH_BYTES);
    if (!d->seqs || !d->work || !d->scratch) {
        wedlm_free(&d->base);
        return error_nomem(e, what, bytes);
    }
    for (int i = 0; i < n_seqs; i++) {
        d->seqs[i].next = d->free;
        d->free = &d->seqs[i];
    }
    *out = &d->base;
    return 0;
}
