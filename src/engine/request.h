/* SPDX-License-Identifier: MIT
 *
 * request.h: one request of qn_submit(): a copy of its parameters, and its progress.
 *
 * The submitting thread makes it. From then on only the scheduler's thread uses it, except for is_cancelled.
 */
#ifndef QUERN_ENGINE_REQUEST_H
#define QUERN_ENGINE_REQUEST_H

#include <stdatomic.h>

#include "base/worker.h"
#include "decode/sampler.h"
#include "engine/engine.h"
#include "engine/core/share.h"
#include "engine/drafts.h"
#include "engine/core/stage.h"
#include "engine/core/text.h"

/* One of the n answers. While it has its pages, and after its first token was drawn, memory holds the keys and values
 * of all tokens except the last. An answer that gave way (room.h) has no pages. When it gets pages again, it first
 * computes the rows that it does not find in the cache. */
struct answer {
    struct kv_seq memory;
    struct sampler *sampler;
    struct qn_text *text;
    qn_token *tokens; /* [n_prompt + max_tokens], the prompt first */
    int n_tokens;
    int n_dropped; /* tokens that the context held before, of the prompt and of the answer */
    int n_reached; /* slots that were computed or found once: rows before it are not told or charged again */
    int n_away;    /* rows after those of its memory that other processes compute (away.c) */
    unsigned life; /* raised when its memory is lost: what was away then is of no use */
    enum qn_finish finish;
    bool is_paused;     /* it gave way */
    uint64_t paused_ns; /* since when */
    double paused_ms;   /* before that */
    struct draft_seqs drafts;
    struct wedlm window; /* of an unverified answer: it stays when the answer gives way */
    int n_ahead;         /* slots after those of its tokens that its next rows need; 0, unless it has a window */
};

/* The guide of an answer, and its preparation by another thread. */
struct guide_job {
    struct worker_job job; /* first: the guide is found from it */
    struct guide *guide;   /* belongs to the other thread while is_posted */
    bool is_posted;
    struct guide_job *next; /* in the scheduler's list of those that cannot be freed yet */
};

struct request {
    struct qn_request_params p; /* its pointers point to memory that follows this struct */
    uint64_t id;
    struct request *next; /* in the inbox or the list of waiting requests */
    atomic_bool is_cancelled;
    int max_tokens;              /* of each answer: as requested, but no more than there is room for */
    int n_slots;                 /* tokens of the prompt and of an answer that the context holds at most */
    int n_dropped;               /* tokens that were dropped from the prompt, because the context rotates */
    bool fills;                  /* its answers are filled in unverified windows (windows.c) */
    struct wedlm_params windows; /* of its windows */
    int fixed_window;            /* masks that verified windows always have; 0: not said */
    int place;                   /* in the queue, as in the last QN_EVENT_QUEUED; -1: none yet */
    uint64_t submitted_ns, admitted_ns, answering_ns; /* 0: not yet */
    uint64_t deadline_ns;                             /* UINT64_MAX: none */
    struct share *share;
    struct guide_job **guides; /* [p.n_answers]; NULL: it has no grammar. They stay if the request is started again */
    int n_expected;            /* rows counted in share->expected */

    /* while it runs; the prompt is read into the memory of the first answer */
    struct answer *answers;     /* [p.n_answers] */
    int n_away;                 /* parts of steps that are under way in other processes */
    int n_started, n_open;      /* answers that have memory; answers that have not finished, even if they never began */
    double paused_ms;           /* the longest that one of its answers has waited for pages */
    double *pooled;             /* [n_embd] sums for an embedding */
    float *hidden;              /* [n_embd] one row; at the end the embedding */
    struct store_read *restore; /* the read from disk into the first answer's memory; NULL: none */
    int n_cached, n_generated;
    struct qn_usage usage; /* the drafts of answers that ended */
    int branch;            /* the prompt is stored up to this token, but without its state there; 0: no such place */
    bool avoids_disk;      /* reading from disk has failed, so the request does without it */
    int n_known;           /* tokens of the prompt that were found; those on disk may prove unreadable */
    bool is_on_disk;       /* some of the n_known tokens have to be read from disk */
    const char *miss;
    int miss_position;
    qn_token miss_asked, miss_stored; /* see struct qn_timings */
    struct qn_error error;
};

/* Checks and copies the parameters. QN_EUSAGE: they make no sense. QN_EFULL: the prompt is longer than the context. */
int request_new(struct request **out, const struct qn_request_params *p, const struct qn_engine *g, struct qn_error *e);
void request_free(struct request *r); /* NULL is fine */

/* Returns the KV slots that one answer needs at most. */
static inline int request_slots(const struct request *r) { return r->n_slots; }
/* Returns the tokens of an answer itself, those that were dropped included. */
static inline int request_n_answered(const struct request *r, const struct answer *a)
{
    return a->n_tokens + a->n_dropped - r->n_dropped - (int)r->p.n_prompt;
}
/* Returns the tokens that an answer may get before it ends by its length, or its context has to rotate. */
static inline int request_n_left(const struct request *r, const struct answer *a)
{
    int left = r->max_tokens - request_n_answered(r, a), room = request_slots(r) - a->n_tokens;
    return left < room ? left : room;
}
/* Returns true if the context of an answer has to rotate before it goes on. */
static inline bool request_is_full(const struct request *r, const struct answer *a)
{
    return r->p.rotates && a->finish == QN_FINISH_NONE && a->n_tokens == request_slots(r);
}
/* Drops the tokens of an answer that a rotation drops. It has no memory of any token. */
void request_rotate(struct request *r, struct answer *a);

/* Returns the reason why the request has to end now (it was cancelled, its deadline has passed, the scheduler stops),
 * or QN_FINISH_NONE. stop_ns: the time when the scheduler ends running requests. */
enum qn_finish request_doom(const struct request *r, uint64_t now_ns, uint64_t stop_ns);

/* Sets the fields that all events have, and calls the callback. */
void request_tell(const struct request *r, struct qn_event *ev);

/* Allocates what the request needs to run, except for pages: the first answer's memory is empty. On failure the request
 * is as it was. */
int request_start(struct request *r, struct qn_engine *g, struct qn_error *e);
/* Call it when the prompt is in the first answer's memory. Forks the other answers from it, which share its pages. On
 * failure, request_release() gives back what was made. */
int request_fork(struct request *r, struct qn_engine *g, struct qn_error *e);
/* Frees what request_start() and request_fork() allocated. */
void request_release(struct request *r);

/* Returns true after qn_cancel(), which callbacks may call: then no more tokens are wanted. */
static inline bool request_is_cancelled(const struct request *r)
{
    return atomic_load_explicit(&r->is_cancelled, memory_order_relaxed);
}
/* Returns true until the prompt has been read, and the answers begin. */
static inline bool request_is_reading(const struct request *r) { return !r->answering_ns; }
/* Returns true if the mask for the answer's next token is there, or none is needed. */
static inline bool request_has_mask(const struct request *r, int answer)
{
    const struct guide_job *j = r->guides ? r->guides[answer] : NULL;
    return !j || (!j->is_posted && guide_is_ready(j->guide));
}
/* Returns the rows that an answer's next token needs: 1, or more while it reads what it did not find in the cache. */
static inline int answer_rows(const struct answer *a) { return a->n_tokens - a->memory.n_slots; }
/* Returns the rows that it reads before a step can bring tokens, after it began. */
static inline int answer_unread(const struct request *r, const struct answer *a) { return answer_rows(a) - !r->fills; }
/* Returns how many tokens of it may be found in the cache: the row of the last one has to be computed for its logits,
 * unless masks bring the next tokens. */
static inline int answer_findable(const struct request *r, const struct answer *a) { return a->n_tokens - !r->fills; }
/* Returns true if the next step can have rows of this answer. Its last row also needs a mask. */
bool request_answer_runs(const struct request *r, int answer);
/* Returns true if the next step can have rows of the request: of its prompt, or of an answer that is not finished. It
 * has none while it is being restored from disk, or all of its answers are paused. */
bool request_has_rows(const struct request *r);
/* Returns true if one of its answers is paused. */
bool request_is_paused(const struct request *r);
/* Draws the token of an answer that comes after the next `ahead` ones, which were drawn in this way, too. Returns -1 if
 * there is none to draw. It changes nothing but the answer's sampler, so threads may draw for different answers at
 * once. An answer with a grammar has a mask for its next token only. */
qn_token request_draw(const struct request *r, int answer, int ahead, const float *logits);
/* The same, for a token that was drawn elsewhere (core/stage.h). */
qn_token request_hear(const struct request *r, int answer, const struct stage_drawn *d);
/* Draws the token at a position of an answer for a guess. It changes nothing. -1: there is none to draw. */
qn_token request_guess(const struct request *r, int answer, int pos, const float *logits);
/* Takes the next token of an answer, sends its event, and finishes the answer if it ends there. drawn: as
 * request_draw() or request_hear() has returned it; -1: draw it now. heard: it was drawn elsewhere, so there are no
 * logits; NULL: it was not. work: [n_vocab]; scratch: KERNEL_SCRATCH_BYTES */
void request_next_token(struct request *r, int answer, qn_token drawn, const struct stage_drawn *heard,
                        const struct qn_engine *g, const float *logits, float *work, void *scratch);
/* windows.c: begins the window of an unverified answer, which has no tokens yet. */
void windows_begin(struct answer *a, const struct request *r);
/* Ends an answer: sends its last event, with its held text and the reason. Its memory stays until request_release(). */
void request_finish_answer(struct request *r, int answer, enum qn_finish why);

#endif
