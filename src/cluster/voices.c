/* SPDX-License-Identifier: MIT
 *
 * voices.c: draws as numbers, and the samplers that the last stage keeps. See voices.h.
 */
#include "cluster/voices.h"

#include <assert.h>
#include <math.h>
#include <string.h>

#include "decode/logprob.h"
#include "decode/sampler.h"
#include "model/hparams.h"

#define NEW    1u
#define MASKED 2u

/* The numbers of struct qn_sampling, each of 4 bytes. Integers and floats are copied alike. */
static const size_t fields[] = {
#define FIELD(name) offsetof(struct qn_sampling, name)
    FIELD(penalty_last_n),
    FIELD(repetition_penalty),
    FIELD(frequency_penalty),
    FIELD(presence_penalty),
    FIELD(dry_multiplier),
    FIELD(dry_base),
    FIELD(dry_allowed_length),
    FIELD(dry_last_n),
    FIELD(top_n_sigma),
    FIELD(top_k),
    FIELD(typical_p),
    FIELD(top_p),
    FIELD(min_p),
    FIELD(xtc_probability),
    FIELD(xtc_threshold),
    FIELD(temperature),
    FIELD(mirostat_tau),
    FIELD(mirostat_eta),
#undef FIELD
};
#define N_FIELDS (sizeof fields / sizeof fields[0])

/* ---- the head ---- */

struct numbers {
    uint32_t *p;
    size_t n, cap;
};

static void put(struct numbers *o, const void *from, size_t n)
{
    if (n && o->n + n <= o->cap) memcpy(o->p + o->n, from, n * sizeof *o->p);
    o->n += n;
}

static void put_u32(struct numbers *o, uint32_t v) { put(o, &v, 1); }

static void put_new(struct numbers *o, const struct stage_draw *d)
{
    const struct qn_sampling *q = d->sampling;
    put(o, &q->seed, 2);
    for (size_t i = 0; i < N_FIELDS; i++) put(o, (const char *)q + fields[i], 1);
    put(o, &d->bound, 2);
    put_u32(o, (uint32_t)q->n_logit_bias);
    put_u32(o, (uint32_t)q->n_dry_breakers);
    put_u32(o, (uint32_t)d->n_history);
    for (size_t i = 0; i < q->n_logit_bias; i++) {
        put(o, &q->logit_bias[i].token, 1);
        put(o, &q->logit_bias[i].bias, 1);
    }
    put(o, q->dry_breakers, q->n_dry_breakers);
    put(o, d->history, d->n_history);
}

size_t voices_put(uint32_t *numbers, size_t cap, const struct stage_draw *d, int n_vocab)
{
    struct numbers o = {numbers, 0, cap};
    const uint32_t head[] = {(uint32_t)d->row, (uint32_t)d->n, (uint32_t)d->voice,
                             (d->is_new ? NEW : 0) | (d->mask ? MASKED : 0)};
    put(&o, head, 4);
    put(&o, &d->position, 2);
    put_u32(&o, (uint32_t)(d->n_top + 1));
    if (d->is_new) put_new(&o, d);
    if (d->mask) put(&o, d->mask, 2 * (size_t)((n_vocab + 63) / 64));
    return o.n <= cap ? o.n : 0;
}

static int bad(struct qn_error *e, const char *what, int64_t value, int64_t least, int64_t most)
{
    return error_set(e, QN_EDATA, "cluster: a draw's %s is %lld, not in %lld..%lld", what, (long long)value,
                     (long long)least, (long long)most);
}

int voices_read(struct stage_drawn *out, int n_tokens, struct packet_in in, int n_vocab, struct qn_error *e)
{
    for (int i = 0; i < n_tokens; i++) {
        const uint32_t *p = packet_take(&in, 5, sizeof *p);
        struct stage_drawn *d = &out[i];
        uint32_t n_top = 0;
        if (!p) return error_set(e, QN_EDATA, "cluster: %d tokens of %d were drawn", i, n_tokens);
        memcpy(&d->token, p, 4);
        memcpy(&d->logprob, p + 1, 4);
        memcpy(&d->surprise, p + 2, 8);
        memcpy(&n_top, p + 4, 4);
        if (d->token < STAGE_NOT_DRAWN || d->token >= n_vocab)
            return bad(e, "token", d->token, STAGE_NOT_DRAWN, n_vocab - 1);
        if (n_top > QN_MAX_TOP_LOGPROBS) return bad(e, "number of logprobs", n_top, 0, QN_MAX_TOP_LOGPROBS);
        const void *top = packet_take(&in, n_top, sizeof *d->top);
        if (!top) return error_set(e, QN_EDATA, "cluster: a token of %d that were drawn has no logprobs", n_tokens);
        memcpy(d->top, top, n_top * sizeof *d->top);
        d->n_top = (int)n_top;
        for (int k = 0; k < d->n_top; k++)
            if (d->top[k].token < 0 || d->top[k].token >= n_vocab)
                return bad(e, "logprob's token", d->top[k].token, 0, n_vocab - 1);
    }
    return in.n ? error_set(e, QN_EDATA, "cluster: %zu bytes after the tokens that were drawn", in.n) : 0;
}

_Static_assert(sizeof(struct qn_logprob) == 8, "logprobs lie in packets as they do in memory");

/* ---- the last stage ---- */

struct voice {
    struct sampler *sampler;
    void *lists;          /* that its parameters point to */
    size_t history_bytes; /* of the sampler */
    size_t bytes;         /* from the ledger, besides those that all voices have */
    size_t n_tokens;      /* that the step draws at most */
};

struct voices {
    const struct step_limits *l;
    const struct kernels *k;
    struct ledger *ledger;
    size_t bytes;         /* from the ledger: samplers whose history is as long as a context */
    size_t history_bytes; /* of these, for the history of each */
    struct voice *all;    /* [n_seqs] */
    uint64_t *mask;       /* [(n_vocab + 63) / 64] */
    float *work;          /* [n_vocab] */
    void *scratch;
};

static size_t mask_words(const struct voices *v) { return (size_t)((v->l->n_vocab + 63) / 64); }

int voices_new(struct voices **out, const struct step_limits *l, const struct kernels *k, struct ledger *ledger,
               struct qn_error *e)
{
    size_t n = (size_t)l->n_seqs, n_vocab = (size_t)l->n_vocab;
    size_t each = sampler_bytes(l->n_vocab, (size_t)l->n_pages_each * (size_t)l->page_slots);
    struct voices *v = mem_calloc(1, sizeof *v);
    if (!v) return error_nomem(e, "voices", sizeof *v);
    *v = (struct voices){.l = l, .k = k, .ledger = ledger, .history_bytes = each - sampler_bytes(l->n_vocab, 0)};
    int rc = ledger_take(ledger, n * each, "the samplers of a stage", e);
    if (!rc) {
        v->bytes = n * each;
        v->all = mem_calloc(n, sizeof *v->all);
        v->mask = mem_calloc(mask_words(v), sizeof *v->mask);
        v->work = mem_alloc(n_vocab * sizeof *v->work);
        v->scratch = mem_aligned(64, KERNEL_SCRATCH_BYTES);
        if (!v->all || !v->mask || !v->work || !v->scratch) rc = error_nomem(e, "voices", n_vocab * sizeof *v->work);
    }
    if (rc)
        voices_free(v);
    else
        *out = v;
    return rc;
}

static void end_voice(struct voices *v, struct voice *a)
{
    sampler_free(a->sampler);
    mem_free(a->lists);
    ledger_give(v->ledger, a->bytes);
    *a = (struct voice){.n_tokens = a->n_tokens};
}

void voices_free(struct voices *v)
{
    if (!v) return;
    for (int i = 0; v->all && i < v->l->n_seqs; i++) end_voice(v, &v->all[i]);
    ledger_give(v->ledger, v->bytes);
    mem_free(v->all);
    mem_free(v->mask);
    mem_free(v->work);
    mem_free(v->scratch);
    mem_free(v);
}

static int cut_short(struct qn_error *e)
{
    return error_set(e, QN_EDATA, "cluster: a step's packet ends within its draws");
}

/* A draw as it is read. */
struct draw {
    int row, n, n_top;
    struct voice *voice;
    bool is_new;
    uint64_t position;
    const void *mask; /* in the packet; NULL: none */
};

static int pay(struct voices *v, struct voice *a, size_t bytes, struct qn_error *e)
{
    int rc = ledger_take(v->ledger, bytes, "the samplers of a stage", e);
    if (!rc) a->bytes += bytes;
    return rc;
}

/* Makes room for n_tokens more. A history that is longer than a context, because tokens were dropped from it, is paid
 * for as it grows. */
static int reserve(struct voices *v, struct voice *a, size_t n_tokens, struct qn_error *e)
{
    size_t more = sampler_reserve_bytes(a->sampler, n_tokens), had = a->history_bytes, free_of = v->history_bytes;
    size_t paid = had > free_of ? had : free_of, all = more > SIZE_MAX - had ? SIZE_MAX : had + more;
    int rc = all > paid ? pay(v, a, all - paid, e) : 0;
    if (rc) return rc;
    a->history_bytes = all;
    return sampler_reserve(a->sampler, n_tokens, e);
}

/* Makes the sampler of a voice that begins. sampler_new() checks its parameters. */
static int begin_voice(struct voices *v, struct voice *a, struct packet_in *in, bool is_read, struct qn_error *e)
{
    struct qn_sampling q;
    double bound;
    uint32_t n[3];
    qn_sampling_init(&q);
    const uint32_t *p = packet_take(in, 2 + N_FIELDS + 2 + 3, sizeof *p);
    if (!p) return cut_short(e);
    memcpy(&q.seed, p, 8);
    for (size_t i = 0; i < N_FIELDS; i++) memcpy((char *)&q + fields[i], p + 2 + i, 4);
    memcpy(&bound, p + 2 + N_FIELDS, 8);
    memcpy(n, p + 4 + N_FIELDS, sizeof n);
    const void *bias = packet_take(in, n[0], sizeof *q.logit_bias), *breakers = packet_take(in, n[1], 4);
    const qn_token *history = packet_take(in, n[2], 4);
    if (!bias || !breakers || !history) return cut_short(e);
    if (is_read) return 0;
    if (!isfinite(bound)) return error_set(e, QN_EDATA, "cluster: a draw's bound is %g", bound);
    if (n[2] > HP_MAX_CTX) return bad(e, "history", n[2], 0, HP_MAX_CTX);
    for (uint32_t i = 0; i < n[2]; i++)
        if (history[i] < 0 || history[i] >= v->l->n_vocab) return bad(e, "token", history[i], 0, v->l->n_vocab - 1);
    end_voice(v, a);
    size_t bias_bytes = n[0] * sizeof *q.logit_bias, breaker_bytes = n[1] * sizeof *q.dry_breakers;
    int rc = pay(v, a, bias_bytes + breaker_bytes, e);
    if (rc) return rc;
    if (bias_bytes + breaker_bytes && !(a->lists = mem_alloc(bias_bytes + breaker_bytes)))
        return error_nomem(e, "a voice", bias_bytes + breaker_bytes);
    if (a->lists) {
        memcpy(a->lists, bias, bias_bytes);
        memcpy((char *)a->lists + bias_bytes, breakers, breaker_bytes);
        q.logit_bias = a->lists;
        q.dry_breakers = (const qn_token *)(const void *)((char *)a->lists + bias_bytes);
        q.n_logit_bias = n[0];
        q.n_dry_breakers = n[1];
    }
    rc = sampler_new(&a->sampler, &q, v->l->n_vocab, v->k, e);
    size_t most = (size_t)v->l->n_pages_each * (size_t)v->l->page_slots;
    if (!rc) rc = reserve(v, a, n[2] > most ? n[2] : most, e);
    if (rc == QN_EUSAGE && e) e->code = QN_EDATA;
    if (rc) return rc == QN_EUSAGE ? QN_EDATA : rc;
    for (uint32_t i = 0; i < n[2]; i++) sampler_accept(a->sampler, history[i]);
    sampler_set_bound(a->sampler, bound);
    return 0;
}

/* is_read: the draws were read before. */
static int read_draw(struct voices *v, const struct step_packet *s, struct packet_in *in, struct draw *d, bool is_read,
                     struct qn_error *e)
{
    const struct batch *b = &s->batch;
    uint32_t h[7];
    int most_top = v->l->n_vocab < QN_MAX_TOP_LOGPROBS ? v->l->n_vocab : QN_MAX_TOP_LOGPROBS;
    const void *p = packet_take(in, 7, sizeof *h);
    if (!p) return cut_short(e);
    memcpy(h, p, sizeof h);
    if (h[0] >= (uint32_t)b->n) return bad(e, "row", h[0], 0, b->n - 1);
    if (h[1] < 1 || h[1] > (uint32_t)b->n - h[0]) return bad(e, "number of rows", h[1], 1, b->n - (int)h[0]);
    if (h[2] >= (uint32_t)v->l->n_seqs) return bad(e, "voice", h[2], 0, v->l->n_seqs - 1);
    if (h[3] > (NEW | MASKED)) return bad(e, "flags", h[3], 0, NEW | MASKED);
    if (h[6] > (uint32_t)most_top + 1) return bad(e, "number of logprobs", h[6], 0, most_top + 1);
    *d = (struct draw){(int)h[0], (int)h[1], (int)h[6] - 1, &v->all[h[2]], (h[3] & NEW) != 0, 0, NULL};
    memcpy(&d->position, h + 4, 8);
    for (int i = d->row; i < d->row + d->n; i++)
        if (!b->want_logits[i] || b->seq[i] != b->seq[d->row])
            return error_set(e, QN_EDATA, "cluster: a token would be drawn from row %d, which has no logits", i);
    if (d->is_new) {
        int rc = begin_voice(v, d->voice, in, is_read, e);
        if (rc) return rc;
    }
    if (!d->voice->sampler) return error_set(e, QN_EDATA, "cluster: voice %u has not begun", h[2]);
    if ((h[3] & MASKED) && !(d->mask = packet_take(in, mask_words(v), sizeof *v->mask))) return cut_short(e);
    return 0;
}

static struct packet_in draws_of(const struct step_packet *s)
{
    return (struct packet_in){(const uint8_t *)s->draws, (size_t)s->n_draws * sizeof *s->draws};
}

int voices_prepare(struct voices *v, const struct step_packet *s, uint8_t *drawn, int *n_tokens, struct qn_error *e)
{
    struct packet_in in = draws_of(s);
    struct draw d;
    int rc;
    memset(drawn, 0, (size_t)s->batch.n);
    for (int i = 0; i < v->l->n_seqs; i++) v->all[i].n_tokens = 0;
    for (*n_tokens = 0; in.n; *n_tokens += d.n) {
        if ((rc = read_draw(v, s, &in, &d, false, e))) return rc;
        if (*n_tokens + d.n > 2 * v->l->n_logits)
            return bad(e, "number of tokens", *n_tokens + d.n, 1, 2 * v->l->n_logits);
        d.voice->n_tokens += (size_t)d.n;
        if ((rc = reserve(v, d.voice, d.voice->n_tokens, e))) return rc;
        memset(drawn + d.row, 1, (size_t)d.n);
    }
    return 0;
}

/* Writes one token. */
static void write_token(struct voices *v, const struct draw *d, const float *logits, qn_token t, struct packet_out *out)
{
    struct qn_logprob top[QN_MAX_TOP_LOGPROBS];
    float logprob = 0;
    double surprise = sampler_surprise(d->voice->sampler);
    int n_top = t >= 0 && d->n_top > 0 ? d->n_top : 0;
    if (t >= 0 && d->n_top >= 0) logprob = logprob_of(v->k, logits, v->l->n_vocab, t, top, n_top, v->work, v->scratch);
    packet_put(out, &t, sizeof t);
    packet_put(out, &logprob, sizeof logprob);
    packet_put(out, &surprise, sizeof surprise);
    packet_put_u32(out, (uint32_t)n_top);
    packet_put(out, top, (size_t)n_top * sizeof *top);
}

/* As the scheduler draws: from each next row if it has the token that was drawn before. */
static void draw_chain(struct voices *v, const struct step_packet *s, const struct draw *d, const float *logits,
                       struct packet_out *out)
{
    bool goes_on = true;
    if (d->mask) memcpy(v->mask, d->mask, mask_words(v) * sizeof *v->mask); /* it need not be aligned in the packet */
    sampler_set_mask(d->voice->sampler, d->mask ? v->mask : NULL);
    for (int i = 0; i < d->n; i++, logits += v->l->n_vocab) {
        qn_token t = STAGE_NOT_DRAWN;
        if (goes_on && sampler_pick(d->voice->sampler, logits, d->position + (uint64_t)i, &t, NULL)) t = -1;
        write_token(v, d, logits, t, out);
        if (t >= 0) sampler_accept(d->voice->sampler, t);
        goes_on = t >= 0 && i + 1 < d->n && s->batch.token[d->row + i + 1] == t;
    }
    sampler_set_mask(d->voice->sampler, NULL);
}

int voices_draw(struct voices *v, const struct step_packet *s, const float *logits, struct packet_out *out)
{
    struct packet_in in = draws_of(s);
    size_t before = out->n;
    struct draw d;
    while (in.n && !read_draw(v, s, &in, &d, true, NULL)) {
        size_t at = 0;
        for (int i = 0; i < d.row; i++) at += s->batch.want_logits[i];
        draw_chain(v, s, &d, logits + at * (size_t)v->l->n_vocab, out);
    }
    return (int)((out->n - before) / 4);
}
