/* SPDX-License-Identifier: MIT
 *
 * answer.c: turns logits into the next event of an answer: samples a token, makes its text, and decides whether the
 * answer ends. See request.h.
 *
 * An answer that ends before the model has ended it is cut before a character that is not whole.
 *
 * The reasons to end are checked in this order: a stop token (which is not text), a stop string, the length. Nothing is
 * allocated here, because the sampler's history, the tokens and the text's buffers were made for the longest answer.
 */
#include <assert.h>

#include "decode/logprob.h"
#include "engine/request.h"

void request_finish_answer(struct request *r, int answer, enum qn_finish why)
{
    struct answer *a = &r->answers[answer];
    assert(a->finish == QN_FINISH_NONE && why != QN_FINISH_NONE);
    a->finish = why;
    r->n_open--;
    struct qn_event ev = {.type = QN_EVENT_FINISH, .answer = answer, .token = -1, .finish = why};
    if (why == QN_FINISH_STOP_TOKEN) ev.token = a->tokens[a->n_tokens - 1];
    if (why == QN_FINISH_STOP_STRING) ev.stop_index = a->text->stop.hit;
    if (why == QN_FINISH_ERROR) ev.error = &r->error;
    if (a->text && why != QN_FINISH_STOP_TOKEN) detok_cut(&a->text->detok);
    if (a->text && !r->p.no_text && qn_text_end(a->text, &ev.text, &ev.n_text, NULL))
        ev.n_text = 0; /* cannot happen: the buffers have room */
    request_tell(r, &ev);
}

static bool is_stop_token(const struct request *r, const struct answer *a, qn_token t)
{
    return (!r->p.ignore_eog && vocab_is_eog(a->text->detok.v, t)) || stop_is_token(&a->text->stop, t);
}

/* Draws among the tokens that the grammar allows, if there is one. */
static int pick(const struct request *r, int answer, int ahead, const float *logits, qn_token *token,
                struct qn_error *e)
{
    struct answer *a = &r->answers[answer];
    const struct guide *g = r->guides ? r->guides[answer]->guide : NULL;
    int rc = g ? guide_failed(g, e) : 0;
    if (rc) return rc;
    if (g) sampler_set_mask(a->sampler, guide_mask(g));
    rc = sampler_pick(a->sampler, logits, (uint64_t)(a->n_tokens + a->n_dropped + ahead), token, e);
    if (!g || rc != QN_ENUMERIC || !guide_mask(g)) return rc;
    return guide_nothing_left(g, r->p.sampling.n_logit_bias > 0, e);
}

static int draw(const struct request *r, int answer, int ahead, const float *logits, qn_token *token,
                struct qn_error *e)
{
    int rc = pick(r, answer, ahead, logits, token, e);
    size_t at = (size_t)(request_n_answered(r, &r->answers[answer]) + ahead);
    if (!rc && at < r->p.n_replay) *token = r->p.replay[at];
    if (!rc) sampler_accept(r->answers[answer].sampler, *token);
    return rc;
}

qn_token request_draw(const struct request *r, int answer, int ahead, const float *logits)
{
    qn_token t;
    return draw(r, answer, ahead, logits, &t, NULL) ? -1 : t;
}

qn_token request_hear(const struct request *r, int answer, const struct stage_drawn *d)
{
    struct sampler *s = r->answers[answer].sampler;
    if (d->token < 0) return -1;
    if (d->surprise == d->surprise) sampler_picked(s, d->token, d->surprise);
    sampler_accept(s, d->token);
    return d->token;
}

qn_token request_guess(const struct request *r, int answer, int pos, const float *logits)
{
    struct sampler *s = r->answers[answer].sampler;
    qn_token t;
    sampler_set_mask(s, NULL); /* the next draw of the answer sets its own */
    return sampler_pick(s, logits, (uint64_t)(pos + r->answers[answer].n_dropped), &t, NULL) ? -1 : t;
}

void request_next_token(struct request *r, int answer, qn_token drawn, const struct stage_drawn *heard,
                        const struct qn_engine *g, const float *logits, float *work, void *scratch)
{
    struct answer *a = &r->answers[answer];
    struct qn_logprob top[QN_MAX_TOP_LOGPROBS];
    struct qn_event ev = {.type = QN_EVENT_TOKEN, .answer = answer, .token = drawn};
    bool at_stop = false;
    if (drawn < 0 && draw(r, answer, 0, logits, &ev.token, &r->error)) {
        request_finish_answer(r, answer, QN_FINISH_ERROR);
        return;
    }
    a->tokens[a->n_tokens++] = ev.token;
    r->n_generated++;
    if (is_stop_token(r, a, ev.token)) {
        request_finish_answer(r, answer, QN_FINISH_STOP_TOKEN);
        return;
    }
    if (r->guides) guide_take(r->guides[answer]->guide, ev.token);
    if (r->p.n_top_logprobs >= 0) {
        ev.n_top = r->p.n_top_logprobs;
        ev.top = heard ? heard->top : top;
        ev.logprob = heard ? heard->logprob
                           : logprob_of(&g->forward.pass.kt, logits, g->model->hp.n_vocab, ev.token, top, ev.n_top,
                                        work, scratch);
    }
    if (!r->p.no_text && qn_text_push(a->text, ev.token, &ev.text, &ev.n_text, &at_stop, &r->error)) {
        request_finish_answer(r, answer, QN_FINISH_ERROR);
        return;
    }
    request_tell(r, &ev);
    if (at_stop)
        request_finish_answer(r, answer, QN_FINISH_STOP_STRING);
    else if (request_n_answered(r, a) == r->max_tokens)
        request_finish_answer(r, answer, QN_FINISH_LENGTH);
}
