/* SPDX-License-Identifier: MIT
 *
 * ngram_shared.c: the tokens that sequences said, by identity. See ngram_shared.h.
 *
 * A sequence that fills its segment goes on in another, which begins with a copy of its last tokens, so that runs are
 * found across the cut. A segment that was taken by another sequence has another serial number.
 */
#include "decode/ngram_shared.h"

#include <assert.h>
#include <string.h>

#include "base/inline/minmax.h"
#include "base/mem.h"

#define SEGMENT 128 /* tokens */

static const int lengths[SHARED_RUNS] = {SHARED_LONG, SHARED_SHORT};

struct shared_segment {
    uint64_t identity;
    uint32_t serial; /* 0: empty */
    int n;
    qn_token tokens[SEGMENT];
};

struct ngram_shared {
    uint32_t n_segments, next; /* the oldest, which is taken next */
    uint32_t last_serial;
    uint64_t mask;
    uint32_t *last[SHARED_RUNS];     /* [mask + 1] the place after the last run with this hash; 0: none */
    struct shared_segment *segments; /* [n_segments] place p is token p % SEGMENT of segment p / SEGMENT */
};

int shared_new(size_t bytes, struct ngram_shared **out, struct qn_error *e)
{
    size_t n = 1, entry = SHARED_RUNS * sizeof(uint32_t), most = UINT32_MAX / SEGMENT;
    *out = NULL;
    if (bytes < sizeof **out + entry + sizeof(struct shared_segment)) return 0;
    size_t left = bytes - sizeof **out;
    while (2 * n * entry <= left / 3 * 2 && n < most * SEGMENT / 2) n *= 2;
    size_t n_segments = min_size((left - n * entry) / sizeof(struct shared_segment), most);
    if (n_segments == 0) return 0;
    struct ngram_shared *s = mem_calloc(1, sizeof *s + n_segments * sizeof *s->segments + n * entry);
    if (!s) return error_nomem(e, "the table of shared tokens", bytes);
    s->n_segments = (uint32_t)n_segments;
    s->mask = n - 1;
    s->segments = (struct shared_segment *)(s + 1);
    s->last[0] = (uint32_t *)(s->segments + n_segments);
    s->last[1] = s->last[0] + n;
    *out = s;
    return 0;
}

void shared_empty(struct ngram_shared *s)
{
    memset(s->segments, 0, s->n_segments * sizeof *s->segments);
    memset(s->last[0], 0, SHARED_RUNS * (s->mask + 1) * sizeof *s->last[0]);
}

static uint32_t *entry_of(const struct ngram_shared *s, int run, uint64_t identity, uint64_t hash)
{
    uint64_t h = (hash ^ identity) * 0xd6e8feb86659fd93;
    return &s->last[run][(h ^ h >> 32) & s->mask];
}

/* Takes the oldest segment for the tokens from tokens[at] on. */
static struct shared_segment *take(struct ngram_shared *s, struct shared_cursor *c, uint64_t identity,
                                   const qn_token *tokens, int at)
{
    struct shared_segment *g = &s->segments[s->next];
    if (++s->last_serial == 0) s->last_serial = 1;
    *c = (struct shared_cursor){s->next, s->last_serial};
    s->next = (s->next + 1) % s->n_segments;
    *g = (struct shared_segment){.identity = identity, .serial = c->serial, .n = min_int(at, SHARED_LONG)};
    memcpy(g->tokens, tokens + at - g->n, (size_t)g->n * sizeof *tokens);
    return g;
}

void shared_add(struct ngram_shared *s, struct shared_cursor *c, uint64_t identity, const qn_token *tokens, int at,
                const uint64_t hash[SHARED_RUNS])
{
    struct shared_segment *g = &s->segments[c->segment];
    if (!c->serial || g->serial != c->serial || g->n == SEGMENT) g = take(s, c, identity, tokens, at);
    assert(g->identity == identity);
    for (int i = 0; i < SHARED_RUNS; i++)
        if (at >= lengths[i]) *entry_of(s, i, identity, hash[i]) = c->segment * SEGMENT + (uint32_t)g->n;
    g->tokens[g->n++] = tokens[at];
}

int shared_find(const struct ngram_shared *s, uint64_t identity, const qn_token *tokens, int end,
                const uint64_t hash[SHARED_RUNS], const qn_token **follow)
{
    for (int i = 0; i < SHARED_RUNS; i++) {
        if (end < lengths[i]) continue;
        uint32_t place = *entry_of(s, i, identity, hash[i]);
        const struct shared_segment *g = &s->segments[place / SEGMENT];
        int at = (int)(place % SEGMENT);
        if (!g->serial || g->identity != identity || at < lengths[i] || at >= g->n) continue;
        if (memcmp(g->tokens + at - lengths[i], tokens + end - lengths[i], (size_t)lengths[i] * sizeof *tokens))
            continue;
        *follow = g->tokens + at;
        return g->n - at;
    }
    return 0;
}
