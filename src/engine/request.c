/* SPDX-License-Identifier: MIT
 *
 * request.c: a request's parameters, and the memory that it needs to run. See request.h.
 *
 * If the model's end tokens are to be ignored, the copy bans them, as a bias of -infinity.
 *
 * The copy is one block: the struct, then the arrays by falling alignment, then the bytes of the strings. Sampling
 * parameters are checked by making a sampler and freeing it, so that the rules are in one place only.
 */
#include "engine/request.h"

#include <assert.h>
#include <limits.h>
#include <math.h>
#include <string.h>

#include "base/os.h"
#include "engine/core/rotate.h"

void qn_request_params_init(struct qn_request_params *p)
{
    if (!p) return;
    *p = (struct qn_request_params){
        .size = sizeof *p, .max_tokens = -1, .n_answers = 1, .n_top_logprobs = -1, .draft = QN_DRAFT_DEFAULT};
    qn_wedlm_init(&p->wedlm);
    qn_sampling_init(&p->sampling);
}

/* ---- checking ---- */

static int check_tokens(const qn_token *t, size_t n, int n_vocab, const char *what, struct qn_error *e)
{
    for (size_t i = 0; i < n; i++)
        if (t[i] < 0 || t[i] >= n_vocab)
            return error_set(e, QN_EUSAGE, "request: %s %zu is %d, not in 0..%d", what, i, t[i], n_vocab - 1);
    return 0;
}

static int check_pointers(const struct qn_request_params *p, struct qn_error *e)
{
    int rc = usage_array(e, "request", "prompt", p->prompt, p->n_prompt);
    if (!rc) rc = usage_array(e, "request", "boundaries", p->boundaries, p->n_boundaries);
    if (!rc) rc = usage_array(e, "request", "stop_tokens", p->stop_tokens, p->n_stop_tokens);
    if (!rc) rc = usage_array(e, "request", "replay", p->replay, p->n_replay);
    if (!rc) rc = usage_strings(e, "request", "stop", p->stop, p->n_stop);
    return rc;
}

static int check_ranges(const struct qn_request_params *p, struct qn_error *e)
{
    if (!p->callback) return error_set(e, QN_EUSAGE, "request: no callback");
    if (p->n_prompt == 0) return error_set(e, QN_EUSAGE, "request: no tokens: the model needs at least one");
    if (p->max_tokens < -1) return error_set(e, QN_EUSAGE, "request: max_tokens is %d, not -1 or more", p->max_tokens);
    if (p->n_answers < 1) return error_set(e, QN_EUSAGE, "request: %d answers, at least 1", p->n_answers);
    if (p->n_top_logprobs < -1 || p->n_top_logprobs > QN_MAX_TOP_LOGPROBS)
        return error_set(e, QN_EUSAGE, "request: %d top logprobs, not -1..%d", p->n_top_logprobs, QN_MAX_TOP_LOGPROBS);
    if (p->no_text && p->n_stop) return error_set(e, QN_EUSAGE, "request: no_text with stop strings");
    if (p->n_replay && p->grammar) return error_set(e, QN_EUSAGE, "request: replay with a grammar");
    if (p->deadline_ms < 0) return error_set(e, QN_EUSAGE, "request: deadline of %d ms", p->deadline_ms);
    if ((unsigned)p->pooling > QN_POOL_RANK) return error_set(e, QN_EUSAGE, "request: unknown pooling %d", p->pooling);
    if (p->prompt_logprobs && (p->n_top_logprobs < 0 || p->pooling))
        return error_set(e, QN_EUSAGE, "request: logprobs of the prompt %s",
                         p->pooling ? "and an embedding of it are two requests" : "without n_top_logprobs");
    if (p->grammar && (p->pooling || p->ignore_eog))
        return error_set(e, QN_EUSAGE, "request: a grammar and %s", p->pooling ? "an embedding" : "ignore_eog");
    if ((unsigned)p->draft > QN_DRAFT_DEFAULT)
        return error_set(e, QN_EUSAGE, "request: unknown drafter %d", (int)p->draft);
    if (p->rotates && (p->pooling || p->prompt_logprobs))
        return error_set(e, QN_EUSAGE, "request: a context that rotates, and %s",
                         p->pooling ? "an embedding" : "logprobs of the prompt");
    if (p->pooling && p->n_answers > 1)
        return error_set(e, QN_EUSAGE, "request: an embedding has 1 answer, not %d", p->n_answers);
    return 0;
}

static int check_boundaries(const struct qn_request_params *p, struct qn_error *e)
{
    for (size_t i = 0; i < p->n_boundaries; i++) {
        int b = p->boundaries[i], least = i ? p->boundaries[i - 1] + 1 : 1;
        if (b < least || (size_t)b > p->n_prompt)
            return error_set(e, QN_EUSAGE, "request: boundary %zu is %d, not in %d..%zu", i, b, least, p->n_prompt);
    }
    return 0;
}

/* Returns the tokens that one answer may have with its prompt. The KV cache may be smaller than the context. */
static int room(const struct qn_engine *g)
{
    int slots = kv_pool_n_pages(g->kv) * kv_pool_shape(g->kv)->page_slots;
    return slots < g->n_ctx ? slots : g->n_ctx;
}

/* What rotates has the whole context, so that the memory decides nothing. */
static int check_rotation(const struct qn_request_params *p, const struct qn_engine *g, struct qn_error *e)
{
    int slots = room(g);
    if (!p->rotates) return 0;
    if (slots < g->n_ctx)
        return error_set(e, QN_ENOMEM, "request: a context of %d tokens cannot rotate in a KV cache of %d", g->n_ctx,
                         slots);
    return rotate_check(g->n_ctx, p->n_keep, e);
}

static int check(const struct qn_request_params *p, const struct qn_engine *g, struct qn_error *e)
{
    int n_vocab = g->model->hp.n_vocab, rc = usage_size(e, "request", p->size, sizeof *p);
    struct sampler *sampler = NULL;
    struct qn_text *text = NULL;
    if (rc || (rc = check_ranges(p, e)) || (rc = check_pointers(p, e))) return rc;
    if (p->pooling && g->is_head)
        return error_set(e, QN_EUNSUP, "request: a model on several hosts computes no embeddings and no scores yet");
    if (p->pooling == QN_POOL_RANK && !g->model->rank_head)
        return error_set(e, QN_EUSAGE, "request: the model does not rank");
    if (p->n_top_logprobs > n_vocab)
        return error_set(e, QN_EUSAGE, "request: %d top logprobs, the vocabulary has %d", p->n_top_logprobs, n_vocab);
    /* A prompt as long as the context can be read, but leaves no room for an answer. */
    bool answers = p->max_tokens != 0 && !p->pooling;
    if ((rc = check_rotation(p, g, e))) return rc;
    if (!p->rotates && p->n_prompt > (size_t)(room(g) - answers))
        return error_set(e, QN_EFULL, "request: a prompt of %zu tokens does not fit the context of %d%s", p->n_prompt,
                         room(g), answers ? " with an answer" : "");
    if ((rc = check_tokens(p->prompt, p->n_prompt, n_vocab, "token", e))) return rc;
    if ((rc = check_boundaries(p, e))) return rc;
    if ((rc = check_tokens(p->stop_tokens, p->n_stop_tokens, n_vocab, "stop token", e))) return rc;
    if ((rc = check_tokens(p->replay, p->n_replay, n_vocab, "token of the replay", e))) return rc;
    if ((rc = sampler_new(&sampler, &p->sampling, n_vocab, &g->forward.pass.kt, e))) return rc;
    sampler_free(sampler);
    if ((rc = text_new(&text, g->model->vocab, false, p->stop, p->n_stop, NULL, 0, e))) return rc;
    qn_text_free(text);
    return 0;
}

/* ---- copying ---- */

/* Copies data into the block at *at and advances *at. Returns the place of the copy. */
static void *put(uint8_t **at, const void *data, size_t bytes)
{
    void *to = *at;
    if (bytes) memcpy(to, data, bytes);
    *at += bytes;
    return to;
}

static bool is_wanted(const struct qn_request_params *p, qn_token t)
{
    for (size_t i = 0; i < p->n_stop_tokens; i++)
        if (p->stop_tokens[i] == t) return true;
    return false;
}

static void ban_eog(struct request *r, struct qn_logit_bias *end, const qn_token *eog, int n)
{
    for (int i = 0; i < n; i++) {
        if (is_wanted(&r->p, eog[i])) continue;
        *end++ = (struct qn_logit_bias){eog[i], -INFINITY};
        r->p.sampling.n_logit_bias++;
    }
}

static struct request *copy(const struct qn_request_params *p, const struct vocab *v)
{
    const struct qn_sampling *q = &p->sampling;
    int n_eog;
    const qn_token *eog = vocab_eog(v, &n_eog);
    if (!p->ignore_eog) n_eog = 0;
    size_t text = 0, stops = p->n_stop * sizeof *p->stop, bias = q->n_logit_bias * sizeof *q->logit_bias;
    size_t bans = (size_t)n_eog * sizeof *q->logit_bias;
    size_t prompt = p->n_prompt * sizeof(qn_token), breakers = q->n_dry_breakers * sizeof(qn_token);
    size_t replay = p->n_replay * sizeof(qn_token);
    size_t tokens = p->n_stop_tokens * sizeof(qn_token), boundaries = p->n_boundaries * sizeof *p->boundaries;
    for (size_t i = 0; i < p->n_stop; i++) text += strlen(p->stop[i]) + 1;
    size_t ids = prompt + breakers + tokens + replay;
    struct request *r = mem_alloc(sizeof *r + stops + bias + bans + ids + boundaries + text);
    if (!r) return NULL;
    *r = (struct request){.p = *p, .place = -1, .deadline_ns = UINT64_MAX};
    uint8_t *at = (uint8_t *)(r + 1);
    const char **stop = put(&at, p->stop, stops);
    r->p.stop = stop;
    struct qn_logit_bias *biases = put(&at, q->logit_bias, bias);
    r->p.sampling.logit_bias = biases;
    at += bans;
    r->p.prompt = put(&at, p->prompt, prompt);
    r->p.sampling.dry_breakers = put(&at, q->dry_breakers, breakers);
    r->p.stop_tokens = put(&at, p->stop_tokens, tokens);
    r->p.replay = put(&at, p->replay, replay);
    ban_eog(r, biases + q->n_logit_bias, eog, n_eog);
    r->p.boundaries = put(&at, p->boundaries, boundaries);
    for (size_t i = 0; i < p->n_stop; i++) stop[i] = put(&at, p->stop[i], strlen(p->stop[i]) + 1);
    return r;
}

/* Makes the guides of all answers, and the first mask, which is the same for all. */
static int make_guides(struct request *r, const struct qn_engine *g, struct qn_error *e)
{
    struct guide_start start;
    const struct qn_request_params *p = &r->p;
    int rc = 0;
    if (!p->grammar || !r->max_tokens) return 0;
    if (p->grammar->model != g->handle) return error_set(e, QN_EUSAGE, "request: the grammar is for another model");
    if (p->grammar_prompt) prompt_guide_start(p->grammar_prompt, &start);
    r->guides = mem_calloc((size_t)p->n_answers, sizeof *r->guides);
    if (!r->guides) return error_nomem(e, "masks", (size_t)p->n_answers * sizeof *r->guides);
    for (int i = 0; i < p->n_answers && !rc; i++) {
        struct guide_job *j = r->guides[i] = mem_calloc(1, sizeof *j);
        if (!j) return error_nomem(e, "a mask", sizeof *j);
        rc = guide_new(&j->guide, p->grammar->shelved, g->model->vocab, g->model->hp.n_vocab,
                       p->grammar_prompt ? &start : NULL, e);
        if (!rc) guide_prepare(j->guide);
        if (!rc) rc = guide_failed(j->guide, e);
    }
    r->p.grammar = NULL; /* borrowed until here */
    r->p.grammar_prompt = NULL;
    return rc;
}

/* A copy with the tokens of the prompt that a rotating context holds. */
static struct request *copy_rotated(const struct qn_request_params *p, const struct qn_engine *g)
{
    size_t n = p->rotates ? rotate_dropped(p->n_prompt, g->n_ctx, p->n_keep) : 0, keep = (size_t)p->n_keep;
    if (!n) return copy(p, g->model->vocab);
    struct qn_request_params q = *p;
    struct request *r = NULL;
    q.n_prompt -= n;
    qn_token *tokens = mem_alloc(q.n_prompt * sizeof *tokens);
    int *boundaries = mem_alloc((p->n_boundaries + 1) * sizeof *boundaries);
    if (tokens && boundaries) {
        memcpy(tokens, p->prompt, keep * sizeof *tokens);
        memcpy(tokens + keep, p->prompt + keep + n, (q.n_prompt - keep) * sizeof *tokens);
        q.n_boundaries = 0;
        for (size_t i = 0; i < p->n_boundaries; i++) {
            size_t at = (size_t)p->boundaries[i];
            if (at <= keep || at > keep + n) boundaries[q.n_boundaries++] = (int)(at <= keep ? at : at - n);
        }
        q.prompt = tokens;
        q.boundaries = boundaries;
        r = copy(&q, g->model->vocab);
    }
    if (r) r->n_dropped = r->usage.n_dropped = (int)n;
    mem_free(tokens);
    mem_free(boundaries);
    return r;
}

/* Sets what the context holds at most, and how long answers may be. */
static void set_lengths(struct request *r, const struct qn_request_params *p, const struct qn_engine *g)
{
    int n_prompt = (int)r->p.n_prompt, most = p->rotates ? INT_MAX / 2 - r->n_dropped : room(g) - n_prompt;
    int wanted = p->max_tokens < 0 ? (p->rotates ? g->n_ctx : most) : p->max_tokens;
    r->max_tokens = p->pooling ? 0 : wanted > most ? most : wanted;
    r->n_slots = p->rotates && r->max_tokens > g->n_ctx - n_prompt ? g->n_ctx : n_prompt + r->max_tokens;
}

int request_new(struct request **out, const struct qn_request_params *p, const struct qn_engine *g, struct qn_error *e)
{
    int rc = check(p, g, e);
    if (rc) return rc;
    struct request *r = copy_rotated(p, g);
    if (!r) return error_nomem(e, "a request", p->n_prompt * sizeof(qn_token));
    r->submitted_ns = clock_ns();
    if (p->deadline_ms) r->deadline_ns = r->submitted_ns + (uint64_t)p->deadline_ms * 1000000u;
    set_lengths(r, p, g);
    if ((rc = make_guides(r, g, e))) {
        request_free(r);
        return rc;
    }
    *out = r;
    return 0;
}

void request_free(struct request *r)
{
    if (!r) return;
    assert(!r->answers && !r->restore);
    for (int i = 0; r->guides && i < r->p.n_answers; i++)
        if (r->guides[i]) {
            guide_free(r->guides[i]->guide);
            mem_free(r->guides[i]);
        }
    mem_free(r->guides);
    mem_free(r);
}

/* ---- room ---- */

static int answer_init(struct answer *a, const struct request *r, int i, struct qn_engine *g, struct qn_error *e)
{
    const struct qn_request_params *p = &r->p;
    size_t n = (size_t)request_slots(r);
    struct qn_sampling sampling = p->sampling;
    sampling.seed += (uint64_t)i;
    int rc = kv_seq_init(&a->memory, g->kv, (int)n, e);
    if (rc) return rc;
    a->tokens = mem_alloc(n * sizeof *a->tokens);
    if (!a->tokens) return error_nomem(e, "an answer's tokens", n * sizeof *a->tokens);
    memcpy(a->tokens, p->prompt, p->n_prompt * sizeof *a->tokens);
    a->n_tokens = (int)p->n_prompt;
    a->n_dropped = r->n_dropped;
    if (r->fills) windows_begin(a, r);
    if (!r->max_tokens) return 0;
    if ((rc = sampler_new(&a->sampler, &sampling, g->model->hp.n_vocab, &g->forward.pass.kt, e))) return rc;
    if ((rc = sampler_reserve(a->sampler, n, e))) return rc;
    for (size_t t = 0; t < p->n_prompt; t++) sampler_accept(a->sampler, p->prompt[t]);
    return text_new(&a->text, g->model->vocab, p->continues, p->stop, p->n_stop, p->stop_tokens, p->n_stop_tokens, e);
}

static void answer_deinit(struct answer *a)
{
    kv_seq_deinit(&a->memory);
    sampler_free(a->sampler);
    qn_text_free(a->text);
    mem_free(a->tokens);
}

int request_start(struct request *r, struct qn_engine *g, struct qn_error *e)
{
    size_t n_embd = (size_t)g->model->hp.n_embd;
    r->answers = mem_calloc((size_t)r->p.n_answers, sizeof *r->answers);
    if (!r->answers) return error_nomem(e, "answers", (size_t)r->p.n_answers * sizeof *r->answers);
    r->n_started = 1;
    r->n_open = r->p.n_answers;
    int rc = answer_init(&r->answers[0], r, 0, g, e);
    if (!rc && r->p.pooling) {
        r->pooled = mem_calloc(n_embd, sizeof *r->pooled);
        r->hidden = mem_aligned(64, n_embd * sizeof *r->hidden);
        if (!r->pooled || !r->hidden) rc = error_nomem(e, "an embedding", n_embd * 12);
    }
    if (rc) request_release(r);
    return rc;
}

int request_fork(struct request *r, struct qn_engine *g, struct qn_error *e)
{
    int rc = 0;
    for (int i = 1; i < r->p.n_answers && !rc; i++) {
        struct answer *a = &r->answers[i];
        r->n_started++;
        if ((rc = answer_init(a, r, i, g, e))) break;
        kv_seq_fork(&a->memory, &r->answers[0].memory);
        a->n_reached = a->memory.n_slots;
    }
    return rc;
}

void request_rotate(struct request *r, struct answer *a)
{
    int keep = r->p.n_keep, n = rotate_step(r->n_slots, keep);
    assert(request_is_full(r, a) && !a->memory.n_slots);
    a->n_tokens -= n;
    a->n_dropped += n;
    a->n_reached = 0;
    if (a->n_dropped > r->usage.n_dropped) {
        r->usage.n_dropped = a->n_dropped;
        r->usage.n_rotations++;
    }
    memmove(a->tokens + keep, a->tokens + keep + n, (size_t)(a->n_tokens - keep) * sizeof *a->tokens);
    sampler_reset(a->sampler);
    for (int i = 0; i < a->n_tokens; i++) sampler_accept(a->sampler, a->tokens[i]);
}

void request_release(struct request *r)
{
    for (int i = 0; i < r->n_started; i++) answer_deinit(&r->answers[i]);
    mem_free(r->answers);
    mem_free(r->pooled);
    mem_free(r->hidden);
    r->answers = NULL;
    r->pooled = NULL;
    r->hidden = NULL;
    r->n_started = 0;
}

bool request_answer_runs(const struct request *r, int answer)
{
    const struct answer *a = &r->answers[answer];
    return answer < r->n_started && a->finish == QN_FINISH_NONE && !a->is_paused && !r->restore;
}

bool request_has_rows(const struct request *r)
{
    for (int k = 0; k < r->n_started; k++)
        if (request_answer_runs(r, k)) return true;
    return false;
}

bool request_is_paused(const struct request *r)
{
    for (int k = 0; k < r->n_started; k++)
        if (r->answers[k].is_paused) return true;
    return false;
}

/* ---- events ---- */

enum qn_finish request_doom(const struct request *r, uint64_t now_ns, uint64_t stop_ns)
{
    if (request_is_cancelled(r)) return QN_FINISH_CANCELLED;
    if (now_ns >= r->deadline_ns) return QN_FINISH_DEADLINE;
    return now_ns >= stop_ns ? QN_FINISH_STOPPED : QN_FINISH_NONE;
}

void request_tell(const struct request *r, struct qn_event *ev)
{
    ev->request = r->id;
    if (!ev->text) ev->text = "";
    r->p.callback(r->p.arg, ev);
}
