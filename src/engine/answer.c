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

void request_next_token(struct request *r, int answer, const struct qn_engine *g, const float *logits, float *work,
                        void *scratch)
{
    struct answer *a = &r->answers[answer];
    struct qn_logprob top[QN_MAX_TOP_LOGPROBS];
    struct qn_event ev = {.type = QN_EVENT_TOKEN, .answer = answer};
    bool at_stop = false;
    int rc = sampler_pick(a->sampler, logits, (uint64_t)a->n_tokens, &ev.token, &r->error);
    if (rc) {
        request_finish_answer(r, answer, QN_FINISH_ERROR);
        return;
    }
    sampler_accept(a->sampler, ev.token);
    a->tokens[a->n_tokens++] = ev.token;
    r->n_generated++;
    if (is_stop_token(r, a, ev.token)) {
        request_finish_answer(r, answer, QN_FINISH_STOP_TOKEN);
        return;
    }
    if (r->p.n_top_logprobs >= 0) {
        ev.n_top = r->p.n_top_logprobs;
        ev.top = top;
        ev.logprob =
            logprob_of(&g->forward.pass.kt, logits, g->model->hp.n_vocab, ev.token, top, ev.n_top, work, scratch);
    }
    if (!r->p.no_text && qn_text_push(a->text, ev.token, &ev.text, &ev.n_text, &at_stop, &r->error)) {
        request_finish_answer(r, answer, QN_FINISH_ERROR);
        return;
    }
    request_tell(r, &ev);
    if (at_stop)
        request_finish_answer(r, answer, QN_FINISH_STOP_STRING);
    else if (a->n_tokens == request_slots(r))
        request_finish_answer(r, answer, QN_FINISH_LENGTH);
}
