/* SPDX-License-Identifier: MIT
 *
 * batch.c: the arrays of a batch.
 */
#include "model/pass/batch.h"

#include <assert.h>

#include "base/mem.h"

int batch_init(struct batch *b, int cap, struct qn_error *e)
{
    size_t n = (size_t)cap;
    *b = (struct batch){.cap = cap,
                        .token = mem_calloc(n, sizeof *b->token),
                        .pos = mem_calloc(n, sizeof *b->pos),
                        .slot = mem_calloc(n, sizeof *b->slot),
                        .seq = mem_calloc(n, sizeof *b->seq),
                        .want_logits = mem_calloc(n, sizeof *b->want_logits),
                        .held = mem_calloc(n, sizeof *b->held)};
    if (b->token && b->pos && b->slot && b->seq && b->want_logits && b->held) return 0;
    batch_deinit(b);
    return error_nomem(e, "a batch", n * (sizeof *b->token + 3 * sizeof *b->pos + 2 * sizeof *b->held));
}

void batch_deinit(struct batch *b)
{
    mem_free(b->token);
    mem_free(b->pos);
    mem_free(b->slot);
    mem_free(b->seq);
    mem_free(b->want_logits);
    mem_free(b->held);
    *b = (struct batch){0};
}

void batch_clear(struct batch *b) { b->n = 0; }

void batch_add(struct batch *b, qn_token token, int pos, int seq, bool want_logits)
{
    assert(b->n < b->cap);
    int i = b->n++;
    b->token[i] = token;
    b->pos[i] = b->slot[i] = pos;
    b->seq[i] = seq;
    b->want_logits[i] = want_logits;
    b->held[i] = false;
}
