/* SPDX-License-Identifier: MIT
 *
 * ngram.c: proposes what followed the same tokens before. See ngram.h.
 *
 * For each length in `orders`, a table of a sequence has the place after the last occurrence of each run of so many
 * tokens. A run's hash is its place in the table; the newer of two runs with the same hash stays. The look-ups of a new
 * token begin with the longest run. As long as a match goes on, none is needed.
 *
 * Each token remembers whether it was expected: whether the match before it went on with the same token, and how often
 * in a row. A place whose token was expected before is likely to be copied again; one that surprised is not.
 */
#include "decode/ngram.h"

#include <assert.h>

#include "base/inline/minmax.h"
#include "decode/ngram_shared.h"

static const int orders[] = {1, 2, 3, 4, 6, 9};
#define N_ORDERS ((int)(sizeof orders / sizeof *orders))
enum { ORDER_3 = 2, ORDER_6 = 4 }; /* the places of SHARED_SHORT and SHARED_LONG in `orders` */

#define COUNTED 16 /* tokens of a match are counted up to here */
#define FIRM    3  /* a match of so many tokens is not looked up again while it goes on */
#define COPY    4  /* a match of so many tokens is a copy, which is resumed after a difference, */
#define RESUME  24 /* within so many tokens of the sequence, */
#define BEFORE  8  /* from so many tokens before the place where its source would be, */
#define AFTER   40 /* to so many after it */

/* What had been expected in the place of a token: nothing, or another token, or the same, ONCE or more in a row. */
enum { NOTHING, ANOTHER, ONCE, TWICE, MOST_TRUST = 255 };

/* The tokens before `source` are the last `length` of the sequence, so the token at `source` is expected next. */
struct ngram_match {
    int source, length; /* length 0: there is no match */
};

struct ngram_seq {
    uint64_t identity;
    int max_tokens;
    int n, n_prompt;             /* tokens learned; those that were there at the first call are not shared. -1: none */
    struct ngram_match match;    /* for the next token */
    int resume, n_resume;        /* where the source of the last copy went on; tokens since then. resume 0: none */
    struct shared_cursor cursor; /* where this sequence's tokens are shared */
    size_t bytes;                /* of this block, with the tables */
    uint64_t mask;
    int32_t *last;  /* [N_ORDERS][mask + 1] the place after the last run with this hash; 0: none */
    uint8_t *trust; /* [max_tokens] */
};

struct ngram {
    struct drafter base;
    struct ledger *ledger;
    size_t bytes;                /* taken from the ledger */
    struct ngram_shared *shared; /* NULL: nothing is shared */
};

/* ---- tables ---- */

#ifndef NGRAM_HASH_BITS
#define NGRAM_HASH_BITS 64 /* fewer in tests, so that runs collide */
#endif

/* Fills in the hashes of the runs before `end`. Returns how many of them there are. */
static int hash_runs(const qn_token *tokens, int end, uint64_t hash[N_ORDERS])
{
    uint64_t h = 0x9e3779b97f4a7c15;
    int n = 0;
    for (int i = 1; n < N_ORDERS && i <= end; i++) {
        h = (h ^ (uint32_t)tokens[end - i]) * 0xd6e8feb86659fd93;
        h ^= h >> 32;
        if (i == orders[n]) hash[n++] = h & (~UINT64_C(0) >> (64 - NGRAM_HASH_BITS));
    }
    return n;
}

static int32_t *entry(const struct ngram_seq *s, int order, uint64_t hash)
{
    return &s->last[(size_t)order * (s->mask + 1) + (hash & s->mask)];
}

/* ---- matches ---- */

/* Returns how many tokens before a and before b are equal, up to COUNTED. a < b. */
static int common(const qn_token *tokens, int a, int b)
{
    int n = 0, most = min_int(a, COUNTED);
    while (n < most && tokens[a - n - 1] == tokens[b - n - 1]) n++;
    return n;
}

/* The longest match that the tables have for the tokens before `end`. */
static struct ngram_match look_up(const struct ngram_seq *s, const qn_token *tokens, int end)
{
    uint64_t hash[N_ORDERS];
    for (int i = hash_runs(tokens, end, hash) - 1; i >= 0; i--) {
        int at = *entry(s, i, hash[i]);
        int length = at ? common(tokens, at, end) : 0;
        if (length >= orders[i]) return (struct ngram_match){at, length};
    }
    return (struct ngram_match){0, 0};
}

/* The longest match near the place where the source of the last copy would be; the nearest of these. */
static struct ngram_match look_near(const struct ngram_seq *s, const qn_token *tokens, int end)
{
    int centre = s->resume + s->n_resume, lo = max_int(centre - BEFORE, 1), hi = min_int(centre + AFTER, end - 1);
    struct ngram_match best = {0, 0};
    for (int at = lo; at <= hi; at++) {
        if (tokens[at - 1] != tokens[end - 1]) continue;
        int length = common(tokens, at, end);
        if (length > best.length || (length == best.length && at <= centre)) best = (struct ngram_match){at, length};
    }
    return best;
}

static uint8_t trust_of(const struct ngram_seq *s, const qn_token *tokens, qn_token t)
{
    if (!s->match.length) return NOTHING;
    if (tokens[s->match.source] != t) return ANOTHER;
    return (uint8_t)min_int(max_int(s->trust[s->match.source], ANOTHER) + 1, MOST_TRUST);
}

/* The match after tokens[i], before which s->match was the match. */
static void follow(struct ngram_seq *s, const qn_token *tokens, int i)
{
    struct ngram_match *m = &s->match;
    s->n_resume++;
    if (m->length && tokens[m->source] == tokens[i]) {
        *m = (struct ngram_match){m->source + 1, min_int(m->length + 1, COUNTED)};
        if (m->length >= FIRM) return;
    } else {
        if (m->length >= COPY) s->resume = m->source + 1, s->n_resume = 0;
        m->length = 0;
    }
    struct ngram_match found = look_up(s, tokens, i + 1);
    if (found.length > m->length) *m = found;
    if (!s->resume || s->n_resume >= RESUME || m->length >= COPY) return;
    found = look_near(s, tokens, i + 1);
    if (found.length && found.length >= m->length) *m = found;
}

static void learn(const struct ngram *d, struct ngram_seq *s, const qn_token *tokens, int i)
{
    uint64_t hash[N_ORDERS] = {0};
    int n = hash_runs(tokens, i, hash);
    if (d->shared && i >= s->n_prompt)
        shared_add(d->shared, &s->cursor, s->identity, tokens, i, (uint64_t[]){hash[ORDER_6], hash[ORDER_3]});
    s->trust[i] = trust_of(s, tokens, tokens[i]);
    for (int k = 0; k < n; k++) *entry(s, k, hash[k]) = i;
    follow(s, tokens, i);
}

/* ---- proposals ---- */

#define SHARED_CLASS 7

/* The classes of sureness were chosen on recorded texts so that the tokens of a class are right about equally often. */
static uint8_t sureness_of(int length, uint8_t trust)
{
    static const uint8_t classes[5][4] = {
        /* NOTHING, ANOTHER, ONCE, TWICE or more had been expected in the source */
        {1, 0, 1, 2}, /* length 1 */
        {3, 0, 1, 2}, /* 2, 3 */
        {4, 1, 3, 4}, /* 4 to 8 */
        {6, 5, 5, 6}, /* 9 to 15 */
        {6, 6, 6, 6}, /* 16 and more */
    };
    int i = (length > 1) + (length > 3) + (length > 8) + (length > 15);
    return classes[i][min_int(trust, TWICE)];
}

/* Copies from the match. Beyond the end of the sequence, its source is the proposal itself. */
static void copy(const struct ngram_seq *s, struct draft *r)
{
    for (r->n = 0; r->n < r->most; r->n++) {
        int at = s->match.source + r->n, beyond = at - s->n;
        r->proposed[r->n] = beyond < 0 ? r->tokens[at] : r->proposed[beyond];
        while (at >= s->n) at -= s->n - s->match.source;
        r->sureness[r->n] = sureness_of(s->match.length + r->n, s->trust[at]);
    }
}

/* Copies what another sequence said, or returns false. */
static bool copy_shared(const struct ngram *d, const struct ngram_seq *s, struct draft *r)
{
    uint64_t hash[N_ORDERS] = {0};
    const qn_token *from;
    if (!d->shared || s->match.length >= SHARED_SHORT) return false;
    hash_runs(r->tokens, s->n, hash);
    int n = shared_find(d->shared, s->identity, r->tokens, s->n, (uint64_t[]){hash[ORDER_6], hash[ORDER_3]}, &from);
    for (r->n = 0; r->n < min_int(n, r->most); r->n++) {
        r->proposed[r->n] = from[r->n];
        r->sureness[r->n] = SHARED_CLASS;
    }
    return r->n > 0;
}

static void propose_one(const struct ngram *d, struct draft *r)
{
    struct ngram_seq *s = r->seq;
    int n = min_int(r->n_tokens, s->max_tokens);
    if (s->n_prompt < 0) s->n_prompt = n;
    for (; s->n < n; s->n++) learn(d, s, r->tokens, s->n);
    r->n = 0;
    if (r->n_tokens > s->max_tokens || r->most == 0) return;
    if (!copy_shared(d, s, r) && s->match.length) copy(s, r);
}

/* ---- the interface ---- */

/* The entries of one table: the next power of two. */
static size_t n_entries(int max_tokens)
{
    size_t n = 16;
    while (n < (size_t)max_tokens) n *= 2;
    return n;
}

size_t ngram_seq_bytes(int max_tokens)
{
    return sizeof(struct ngram_seq) + n_entries(max_tokens) * N_ORDERS * sizeof(int32_t) + (size_t)max_tokens;
}

size_t ngram_bytes(size_t shared_bytes) { return sizeof(struct ngram) + shared_bytes; }

static int ngram_open(struct drafter *base, uint64_t identity, int max_tokens, void **seq, struct qn_error *e)
{
    struct ngram *d = (struct ngram *)base;
    assert(max_tokens >= 0 && max_tokens <= NGRAM_MOST_TOKENS);
    size_t bytes = ngram_seq_bytes(max_tokens);
    int rc = d->ledger ? ledger_take(d->ledger, bytes, "the n-grams of a sequence", e) : 0;
    if (rc) return rc;
    struct ngram_seq *s = mem_calloc(1, bytes);
    if (!s) {
        if (d->ledger) ledger_give(d->ledger, bytes);
        return error_nomem(e, "the n-grams of a sequence", bytes);
    }
    s->identity = identity;
    s->max_tokens = max_tokens;
    s->n_prompt = -1;
    s->bytes = bytes;
    s->mask = n_entries(max_tokens) - 1;
    s->last = (int32_t *)(s + 1);
    s->trust = (uint8_t *)(s->last + (s->mask + 1) * N_ORDERS);
    *seq = s;
    return 0;
}

static void ngram_close(struct drafter *base, void *seq)
{
    struct ngram *d = (struct ngram *)base;
    struct ngram_seq *s = seq;
    if (s && d->ledger) ledger_give(d->ledger, s->bytes);
    mem_free(s);
}

static void ngram_propose(struct drafter *base, struct draft *drafts, int n)
{
    for (int i = 0; i < n; i++) propose_one((const struct ngram *)base, &drafts[i]);
}

static void ngram_free(struct drafter *base)
{
    struct ngram *d = (struct ngram *)base;
    if (d->ledger) ledger_give(d->ledger, d->bytes);
    mem_free(d->shared);
    mem_free(d);
}

int ngram_new(struct ledger *l, size_t shared_bytes, struct drafter **out, struct qn_error *e)
{
    static const struct drafter_type type = {
        .name = "ngram", .open = ngram_open, .close = ngram_close, .propose = ngram_propose, .free = ngram_free};
    size_t bytes = ngram_bytes(shared_bytes);
    int rc = l ? ledger_take(l, bytes, "the n-gram drafter", e) : 0;
    if (rc) return rc;
    struct ngram *d = mem_calloc(1, sizeof *d);
    rc = d ? shared_new(shared_bytes, &d->shared, e) : error_nomem(e, "the n-gram drafter", sizeof *d);
    if (rc) {
        if (l) ledger_give(l, bytes);
        mem_free(d);
        return rc;
    }
    d->base.type = &type;
    d->ledger = l;
    d->bytes = bytes;
    *out = &d->base;
    return 0;
}

void ngram_empty(struct drafter *d)
{
    struct ngram_shared *s = ((struct ngram *)d)->shared;
    if (s) shared_empty(s);
}
