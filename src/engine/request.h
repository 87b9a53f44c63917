/* SPDX-License-Identifier: MIT
 *
 * request.h: one request of qn_submit(): what was asked, copied, and how far it has come.
 *
 * Made by the thread that submits; from then on the scheduler's thread alone touches it, but for is_cancelled.
 */
#ifndef QUERN_ENGINE_REQUEST_H
#define QUERN_ENGINE_REQUEST_H

#include <stdatomic.h>

#include "decode/sampler.h"
#include "engine/engine.h"
#include "engine/share.h"
#include "engine/text.h"

/* One of the n answers. Invariant, once its first token is there: memory holds the keys and values of all tokens but
 * the last. */
struct answer {
    struct memory memory;
    struct sampler *sampler;
    struct qn_text *text;
    qn_token *tokens; /* [n_prompt + max_tokens], the prompt first */
    int n_tokens;
    enum qn_finish finish;
};

struct request {
    struct qn_request_params p; /* what it points at lies behind this struct */
    uint64_t id;
    struct request *next; /* in the list of those that wait */
    atomic_bool is_cancelled;
    int max_tokens;                                   /* as asked, or what the context has room for */
    int place;                                        /* in the queue, as last told; -1: not yet */
    uint64_t submitted_ns, admitted_ns, answering_ns; /* 0: not yet */
    uint64_t deadline_ns;                             /* UINT64_MAX: none */
    struct share *share;
    int n_expected; /* rows counted in share->expected */

    /* while it runs; the first answer is also the one that the prompt is read with */
    struct answer *answers;     /* [p.n_answers] */
    int n_started, n_open;      /* answers that have memory; that have not finished, begun or not */
    int n_promised;             /* pages for the other answers, once they fork */
    double *pooled;             /* [n_embd] sums for an embedding */
    float *hidden;              /* [n_embd] one row; in the end the embedding */
    struct store_read *restore; /* what is being read from disk into the first answer's memory; NULL: nothing */
    int n_cached, n_generated;
    int branch;       /* the prompt is stored up to here, but its state is not; 0: nowhere */
    bool avoids_disk; /* what is there could not be had */
    int n_known;      /* tokens of the prompt that were found; those on disk may turn out not to be readable */
    bool is_on_disk;  /* some of these */
    const char *miss;
    int miss_position;
    struct qn_error error;
};

/* Checks and copies. QN_EFULL: longer than the context n_ctx. */
int request_new(struct request **out, const struct qn_request_params *p, const struct qn_engine *g, struct qn_error *e);
void request_free(struct request *r); /* NULL is fine */

/* KV slots that one answer needs at most, and pages for all answers when nothing is cached. */
int request_slots(const struct request *r);
int request_pages(const struct request *r, int page_slots);
/* Of these, pages that answers beyond the first need for themselves. */
int request_fork_pages(const struct request *r, int page_slots);

/* Why it has to end from outside, if so; stop_ns: when the scheduler ends what runs. */
enum qn_finish request_doom(const struct request *r, uint64_t now_ns, uint64_t stop_ns);

/* Calls the callback; sets the fields that all events have. */
void request_tell(const struct request *r, struct qn_event *ev);

/* Gets what it takes to run, but for pages: the first answer's memory is empty. On failure it is as it was. */
int request_start(struct request *r, struct qn_engine *g, struct qn_error *e);
/* The prompt is in the first answer's memory: the other answers fork from there, with pages for all their slots. */
int request_fork(struct request *r, struct qn_engine *g, struct qn_error *e);
/* Gives back what request_start() and request_fork() got. */
void request_release(struct request *r);

static inline bool request_is_reading(const struct request *r)
{
    return r->answers[0].memory.n_slots < (int)r->p.n_prompt;
}
/* Whether the next step has rows of it: of its prompt, or of an answer that goes on. None while it is being restored.
 */
bool request_has_rows(const struct request *r);
/* Draws the next token of an answer from its logits, tells it, and finishes the answer where it ends.
 * work: [n_vocab] */
void request_next_token(struct request *r, int answer, const struct qn_engine *g, const float *logits, float *work,
                        void *scratch);
/* Ends an answer: its held text and the reason are told. Its memory stays until request_release(). */
void request_finish_answer(struct request *r, int answer, enum qn_finish why);

#endif
