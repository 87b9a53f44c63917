/* SPDX-License-Identifier: MIT
 *
 * oracle.h: a drafter that was told before what sequences will say, and is right as often as a test wants. Included by
 * one file of each test. It also checks how it is called.
 */
#ifndef QUERN_TESTS_ORACLE_H
#define QUERN_TESTS_ORACLE_H

#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/rng.h"
#include "decode/drafter.h"

enum oracle_mood {
    ORACLE_RIGHT,     /* as far as it was told */
    ORACLE_WRONG,     /* never */
    ORACLE_SOMETIMES, /* for a random number of tokens */
    ORACLE_RANDOM,    /* any tokens, any number of them */
    ORACLE_ASIDE,     /* as SOMETIMES, with rows aside of any tokens at any positions */
    ORACLE_N_MOODS,
};

#define ORACLE_TEXTS  256
#define ORACLE_LENGTH 1024

struct oracle {
    struct drafter drafter; /* first */
    enum oracle_mood mood;
    int n_vocab, n_texts, most;
    struct oracle_text {
        int n;
        qn_token tokens[ORACLE_LENGTH];
    } texts[ORACLE_TEXTS];
    uint64_t n_calls;
    atomic_int n_open;
    atomic_long n_asked, n_proposed, n_absorbed, n_looks;
};

struct oracle_seq {
    struct oracle *oracle;
    uint64_t identity;
    int max_tokens, n_tokens, n_reached;
    int32_t asked[DRAFT_ASIDE]; /* [n_asked] positions of the rows aside that wanted logits */
    int n_asked;
};

#define ORACLE_CHECK(what)                                                                                             \
    do {                                                                                                               \
        if (!(what)) {                                                                                                 \
            fprintf(stderr, "%s:%d: a drafter is called wrongly: %s\n", __FILE__, __LINE__, #what);                    \
            abort();                                                                                                   \
        }                                                                                                              \
    } while (0)

static void oracle_tell(struct oracle *o, const qn_token *prompt, size_t n_prompt, const qn_token *answer, int n)
{
    ORACLE_CHECK(o->n_texts < ORACLE_TEXTS && (int)n_prompt + n <= ORACLE_LENGTH);
    struct oracle_text *t = &o->texts[o->n_texts++];
    memcpy(t->tokens, prompt, n_prompt * sizeof *prompt);
    memcpy(t->tokens + n_prompt, answer, (size_t)n * sizeof *answer);
    t->n = (int)n_prompt + n;
}

static int oracle_open(struct drafter *d, uint64_t identity, int max_tokens, void **seq, struct qn_error *e)
{
    struct oracle *o = (struct oracle *)d;
    struct oracle_seq *s = calloc(1, sizeof *s);
    if (!s) return error_set(e, QN_ENOMEM, "an oracle's sequence");
    *s = (struct oracle_seq){.oracle = o, .identity = identity, .max_tokens = max_tokens};
    atomic_fetch_add(&o->n_open, 1);
    *seq = s;
    return 0;
}

static void oracle_close(struct drafter *d, void *seq)
{
    if (seq) atomic_fetch_sub(&((struct oracle *)d)->n_open, 1);
    free(seq);
}

/* What comes after the tokens, if it was told; NULL: nothing. */
static const qn_token *oracle_next(const struct oracle *o, const qn_token *tokens, int n, int *n_next)
{
    for (const struct oracle_text *t = o->texts; t < o->texts + o->n_texts; t++) {
        if (t->n <= n || memcmp(t->tokens, tokens, (size_t)n * sizeof *tokens) != 0) continue;
        *n_next = t->n - n;
        return t->tokens + n;
    }
    return NULL;
}

static uint64_t oracle_random(struct oracle *o, uint64_t what) { return rng_u64(77, what, o->n_calls); }

static void oracle_answer(struct oracle *o, struct draft *d)
{
    int n_next = 0, n_right = ORACLE_LENGTH;
    const qn_token *next = oracle_next(o, d->tokens, d->n_tokens, &n_next);
    int n = o->mood == ORACLE_RANDOM || !next ? (int)(oracle_random(o, 1) % 9) : n_next;
    o->n_calls++;
    if (o->mood == ORACLE_WRONG) n_right = 0;
    if (o->mood == ORACLE_SOMETIMES || o->mood == ORACLE_ASIDE) n_right = (int)(oracle_random(o, 2) % 8);
    if (o->mood == ORACLE_RANDOM || !next) next = NULL;
    if (n > d->most) n = d->most;
    if (o->most && n > o->most) n = o->most;
    for (int i = 0; i < n; i++) {
        qn_token any = (qn_token)(oracle_random(o, 10 + (uint64_t)i) % (uint64_t)o->n_vocab);
        d->proposed[i] = next && i < n_right ? next[i] : any;
        if (next && i == n_right) d->proposed[i] = (next[i] + 1) % o->n_vocab;
        d->sureness[i] = (uint8_t)(i % DRAFT_CLASSES);
    }
    d->n = n;
}

static void oracle_step_aside(struct oracle *o, struct draft *d)
{
    struct oracle_seq *s = d->seq;
    ORACLE_CHECK(d->window >= 0 && d->window <= DRAFT_ASIDE);
    s->n_asked = d->n_aside = 0;
    for (int i = 0; d->most && i < d->window; i++) {
        uint64_t any = oracle_random(o, 100 + (uint64_t)i);
        struct draft_row *row = &d->aside[d->n_aside++];
        row->token = (qn_token)(any % (uint64_t)o->n_vocab);
        row->pos = d->n_tokens + (int)((any >> 32) % (uint64_t)d->most);
        row->is_asked = any >> 63;
        if (row->is_asked) s->asked[s->n_asked++] = row->pos;
    }
}

static void oracle_look(struct drafter *d, void *seq, const qn_token *tokens, int n_tokens,
                        const struct draft_look *looks, int n)
{
    struct oracle *o = (struct oracle *)d;
    struct oracle_seq *s = seq;
    ORACLE_CHECK(s->oracle == o && tokens && n_tokens > s->n_tokens && n <= s->n_asked);
    for (int i = 0; i < n; i++) {
        ORACLE_CHECK(looks[i].pos == s->asked[i] && looks[i].logits && looks[i].token < o->n_vocab);
        ORACLE_CHECK(looks[i].token >= 0 || looks[i].pos < n_tokens);
    }
    atomic_fetch_add(&o->n_looks, n);
}

static void oracle_propose(struct drafter *d, struct draft *drafts, int n)
{
    struct oracle *o = (struct oracle *)d;
    for (int i = 0; i < n; i++) {
        struct oracle_seq *s = drafts[i].seq;
        ORACLE_CHECK(s->oracle == o && drafts[i].n_tokens >= s->n_tokens && drafts[i].n_tokens <= s->max_tokens);
        ORACLE_CHECK(drafts[i].most >= 0 && drafts[i].most <= DRAFT_MOST);
        ORACLE_CHECK(drafts[i].most == 0 || drafts[i].n_tokens + drafts[i].most < s->max_tokens);
        for (int k = 0; k < i; k++) ORACLE_CHECK(drafts[k].seq != s);
        s->n_tokens = drafts[i].n_tokens;
        oracle_answer(o, &drafts[i]);
        if (o->drafter.type->look) oracle_step_aside(o, &drafts[i]);
        atomic_fetch_add(&o->n_asked, 1);
        atomic_fetch_add(&o->n_proposed, drafts[i].n);
    }
}

static void oracle_absorb(struct drafter *d, void *seq, int row, int from, int n)
{
    struct oracle *o = (struct oracle *)d;
    struct oracle_seq *s = seq;
    ORACLE_CHECK(s->oracle == o && row >= 0 && n >= 1 && from >= 0 && from + n <= s->max_tokens);
    atomic_fetch_add(&o->n_absorbed, n);
}

static void oracle_free(struct drafter *d)
{
    struct oracle *o = (struct oracle *)d;
    ORACLE_CHECK(o->n_open == 0);
    free(d);
}

static const struct drafter_type oracle_type = {
    .name = "oracle",
    .open = oracle_open,
    .close = oracle_close,
    .propose = oracle_propose,
    .absorb = oracle_absorb,
    .free = oracle_free,
};

static const struct drafter_type oracle_aside_type = {
    .name = "oracle",
    .open = oracle_open,
    .close = oracle_close,
    .propose = oracle_propose,
    .absorb = oracle_absorb,
    .look = oracle_look,
    .free = oracle_free,
};

static struct oracle *oracle_new(enum oracle_mood mood, int n_vocab)
{
    struct oracle *o = calloc(1, sizeof *o);
    ORACLE_CHECK(o != NULL);
    o->drafter.type = mood == ORACLE_ASIDE ? &oracle_aside_type : &oracle_type;
    o->mood = mood;
    o->n_vocab = n_vocab;
    return o;
}

#endif
