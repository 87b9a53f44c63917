/* SPDX-License-Identifier: MIT
 *
 * scheduler.h: the state behind qn_scheduler, shared by scheduler.c (life, queue, admission) and turn.c (one step).
 *
 * Three kinds of fields: those under the mutex; the lists `waiting` and `running`, which only the scheduler's thread
 * changes, and only with the mutex held, so that it reads them without and the others with it; and what the
 * scheduler's thread has for itself.
 */
#ifndef QUERN_ENGINE_SCHEDULER_H
#define QUERN_ENGINE_SCHEDULER_H

#include <pthread.h>

#include "engine/pace.h"
#include "engine/reuse.h"

#define PROMPT_LOGPROB_ROWS 32 /* prompt rows of a step whose logits can be had, beside those of the answers */

/* Rows of one answer in the step: its next token, or a piece of the prompt. */
struct part {
    struct request *request;
    int answer;
    int row, n;               /* in the batch */
    int logits_row, n_logits; /* those that are wanted */
};

struct qn_scheduler {
    struct qn_engine *engine; /* borrowed, and ours alone */
    int n_places, n_queued_max, n_prefill;
    size_t bytes; /* taken from the ledger */
    pthread_t thread;
    bool has_thread;

    pthread_mutex_t mutex;
    pthread_cond_t wake; /* something for the scheduler's thread */
    pthread_cond_t end;  /* is_ended, or an errand is done */
    bool is_stopping, is_ended;
    unsigned n_lost;         /* map_n_lost(), when it was asked last */
    bool is_disk_ready;      /* reuse_open_disk() is to be called */
    struct qn_error changed; /* code other than 0: the model's file has changed; all requests end with this */
    struct request *inbox, **inbox_end; /* submitted, in order; not in `waiting` yet */
    int n_waiting;                      /* in both */
    struct errand *errands;             /* asked of the scheduler's thread */
    uint64_t last_id;
    struct qn_scheduler_stats stats;
    uint64_t last_step_ns, last_end_ns, busy_since_ns;
    double end_gap_s; /* between the ends of two requests, of late; 0: not known */

    _Atomic uint64_t stop_ns; /* when what runs is ended; UINT64_MAX: not */

    struct request *waiting;  /* by falling priority, then as they came */
    struct request **running; /* [n_running] of [n_places], as they were admitted */
    int n_running;

    struct shares shares;
    struct reuse *reuse;
    struct pace pace;
    int n_places_taken;   /* by answers */
    bool is_unsaved;      /* something is being written to disk, or may have to be */
    bool is_full;         /* the next request did not fit, and nothing has changed since */
    bool awaits_pages;    /* it did not, and the disk's threads hold some */
    uint64_t patience_ns; /* until then it waits for pages to be written; 0: it does not; UINT64_MAX: it has */
    double mean_answer;   /* tokens, of late: what is expected of one that has no limit */

    /* one step: arrays of [n_batch], but for parts and memories [n_places] */
    struct part *parts;
    int n_parts, n_rows, n_prefill_rows, n_logits;
    qn_token *token;
    struct memory **memories;
    float *logits;      /* [n_places + PROMPT_LOGPROB_ROWS][n_vocab] */
    float *work;        /* [n_vocab] */
    void *scratch;      /* of the kernels */
    bool was_abandoned; /* the last step */
    uint64_t asked_ns;  /* when it was last asked whether to abandon the step */
};

/* One step of all running requests: a row for each answer and a piece of the prompts that are being read. */
void turn_run(struct qn_scheduler *s);

/* Resolves the zeros and checks the ranges. n_states: recurrent states that the engine has; 0: the model has none. */
int scheduler_settle(struct qn_scheduler_params *p, int n_batch, int n_states, struct qn_error *e);
/* Bytes a scheduler with so many places takes from the ledger, but for the cache's list of prefixes. */
size_t scheduler_bytes(const struct model *m, int n_ctx, int n_places);
/* Bytes that are left for that list: some 400 for each page in memory, and as much for those on disk. */
static inline size_t scheduler_tree_bytes(int n_pages) { return ((size_t)8 << 20) + (size_t)n_pages * 1024; }
/* Whether some of the weights could not be read: what was computed with them is not to be told. All requests end then.
 */
bool scheduler_lost_weights(struct qn_scheduler *s);
/* Does what other threads have asked of this one (cached.c). */
void scheduler_run_errands(struct qn_scheduler *s);

/* Rows were computed for a request. */
void scheduler_charge(struct request *r, int rows);

#endif
