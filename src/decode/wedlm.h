/* SPDX-License-Identifier: MIT
 *
 * wedlm.h: the window of WeDLM: tokens after the end of a sequence that are filled in any order.
 *
 * A window holds the entries that follow the committed tokens. Each is filled with a token, or is still a mask. In each
 * pass the filled entries become rows first and the masks after them, with their logical positions. So a mask sees all
 * filled entries, also those to its right, under plain causal attention. The entries before the first mask (the run)
 * have rows in their final slots, so their keys and values are those of plain decoding.
 *
 * One step: wedlm_gather(); the pass; wedlm_commit() of the run; wedlm_fill() with the logits of the masks.
 *
 * The window is a pure state machine: it knows no model, allocates nothing, and looks at no clock. One thread.
 *
 * Source: WeDLM, arXiv 2512.22737, with the sliding window of Tencent's engine.
 */
#ifndef QUERN_DECODE_WEDLM_H
#define QUERN_DECODE_WEDLM_H

#include <stdbool.h>
#include <stdint.h>

#include "base/error.h"
#include "kernel/kernel.h"

#define WEDLM_MOST      16     /* the largest window */
#define WEDLM_MOST_NATS 100.0f /* of a threshold or a penalty: far above the entropy of any vocabulary */

#define WEDLM_CLASSES QN_WEDLM_CLASSES /* of entropies (wedlm_class) */

struct wedlm_params {
    int window;              /* 1..WEDLM_MOST masks are kept after the run */
    float entropy_threshold; /* a mask below it is filled; not above 0, or NaN: only the best one of a step is */
    float pos_penalty;       /* added to an entropy for each place after the first mask */
};

/* window 16, entropy_threshold 0.4, pos_penalty 0.02 */
struct wedlm_params wedlm_defaults(void);
/* QN_EUSAGE names the parameter and its value. */
int wedlm_check(const struct wedlm_params *p, struct qn_error *e);

struct wedlm_entry {
    qn_token token; /* of a filled entry */
    bool is_filled;
    float entropy; /* when it was filled */
};

struct wedlm {
    struct wedlm_params p;
    int from; /* the position of entry 0: the number of committed tokens */
    int n;    /* entries, at most 2 * WEDLM_MOST */
    struct wedlm_entry entries[2 * WEDLM_MOST];
};

/* A row of a pass. */
struct wedlm_row {
    int entry,
        pos; /* pos: its logical position. Its slot is the first one after the committed tokens plus its number */
    bool is_filled; /* otherwise the token of the row is the mask */
    qn_token token;
};

/* An empty window after n_committed tokens. p is copied, and must have been checked. */
void wedlm_begin(struct wedlm *w, const struct wedlm_params *p, int n_committed);
/* The length of the run: the filled entries before the first mask. */
int wedlm_run(const struct wedlm *w);
/* Appends masks until `window` entries follow the run, but none at position `end` or beyond it, and lists the rows of
 * the pass: filled entries first, then masks, both in the order of their positions. rows: [2 * WEDLM_MOST]. Returns
 * their number. 0: there is no room for any token. */
int wedlm_gather(struct wedlm *w, int end, struct wedlm_row *rows);
/* Drops the first n entries, which are filled: they are committed. */
void wedlm_commit(struct wedlm *w, int n);
/* Drops all entries before position `from`, which became known in another way, filled or not. A window that ends before
 * it becomes empty. */
void wedlm_advance(struct wedlm *w, int from);
/* Makes all entries from number i on masks again. */
void wedlm_mask(struct wedlm *w, int i);

/* The entropy of softmax(logits) in nats. logits: [n], of which NaN and -inf count as impossible. work: [n]; scratch:
 * KERNEL_SCRATCH_BYTES. The same bits on every instruction set. Infinite if nothing is possible. */
float wedlm_entropy(const struct kernels *kt, const float *logits, int n, float *work, void *scratch);
/* The class of an entropy: 0 is below 0.01 nats, then 0.03, 0.1, 0.2, 0.4, 0.8, 1.5, and more. */
int wedlm_class(float entropy);
/* Fills masks. n: the number of masks that had rows in the pass, which are the first masks of the window; for each of
 * them, in the order of their positions: its entropy, and the token that was drawn for it (-1: none can be drawn, so it
 * stays a mask). Fills all whose entropy plus penalty is below the threshold; if there is none, the one where the sum
 * is smallest, and of equal ones the first. Returns how many were filled: at least 1 if n > 0 and a token is there. */
int wedlm_fill(struct wedlm *w, const float *entropy, const qn_token *token, int n);

#endif
