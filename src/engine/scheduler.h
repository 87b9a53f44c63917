/* SPDX-License-Identifier: MIT
 *
 * scheduler.h: the struct of qn_scheduler, shared by scheduler.c (life, queue, admission), step.c (one step),
 * masks.c (the masks of answers with a grammar) and cached.c (the cache's list).
 *
 * There are three kinds of fields. The mutex guards the first kind. Of the second kind are the lists `waiting` and
 * `running`: only the scheduler's thread changes them, and only with the mutex held, so it reads them without the
 * mutex, and other threads with it. Fields of the third kind belong to the scheduler's thread.
 */
#ifndef QUERN_ENGINE_SCHEDULER_H
#define QUERN_ENGINE_SCHEDULER_H

#include <pthread.h>

#include "decode/wedlm_file.h"
#include "engine/core/pace.h"
#include "engine/drafts.h"
#include "engine/reuse.h"
#include "format/warm.h"

/* Prompt rows of a step that can have logits, in addition to the rows of answers. */
#define PROMPT_LOGPROB_ROWS 32

/* The rows of one answer in a step: its next token and drafted ones, or a piece of the prompt. */
struct step_part {
    struct request *request;
    int answer;
    int row, n;               /* the first row in the batch, and how many */
    int logits_row, n_logits; /* the first row of logits, and how many */
    int slot;                 /* of the first row */
    unsigned life;            /* of the answer, when the step began */
    int n_drafted;            /* rows of drafts, the last ones */
    int n_aside;              /* rows after all these, which never stay; they are not counted in n and n_logits */
    const struct draft_offer *offer; /* the drafts; NULL: none */
    int heard, n_heard;              /* the first in s->heard, and how many: tokens that were drawn elsewhere */
    int n_drawn;                     /* tokens that were drawn already, from the first rows of logits */
    int n_kept;                      /* rows that stay */
    bool is_window;                  /* the rows are those of an unverified window */
};

struct qn_scheduler {
    struct qn_engine *engine; /* held; no other thread computes on it */
    int n_places, n_queued_max, n_prefill;
    size_t bytes; /* taken from the ledger */
    pthread_t thread;
    bool has_thread;

    pthread_mutex_t mutex;
    pthread_cond_t wake; /* there is something to do for the scheduler's thread */
    pthread_cond_t end;  /* is_ended is set, or an errand is done */
    bool is_stopping, is_ended;
    unsigned n_lost;         /* the last value of map_n_lost(); used by the scheduler's thread only */
    bool is_disk_ready;      /* reuse_open_disk() has to be called */
    struct qn_error changed; /* unless its code is 0: the model's file has changed, all requests end with this */
    struct request *inbox, **inbox_end; /* submitted requests in order, not in `waiting` yet */
    int n_waiting;                      /* in both lists */
    struct errand *errands;             /* work that other threads ask of the scheduler's thread */
    uint64_t last_id;
    struct qn_scheduler_stats stats;
    uint64_t last_step_ns, last_end_ns, busy_since_ns;
    double end_gap_s; /* moving mean of the time between the ends of two requests; 0: not known */

    _Atomic uint64_t stop_ns; /* when running requests are ended; UINT64_MAX: never */

    struct request *waiting;  /* by falling priority, then in the order they came */
    struct request **running; /* [n_running] of [n_places], in the order of admission */
    int n_running;

    struct shares shares;
    struct reuse *reuse;
    struct pace pace;
    struct drafts drafts;
    struct windows {
        void (*watch)(const struct qn_scheduler *s, const struct step_part *p, const float *logits); /* of a test */
        bool is_there;          /* the model was loaded for windows */
        struct wedlm_file file; /* its mask and parameters */
        struct qn_wedlm usual;  /* of requests that do not say it */
        int most_logits;        /* rows of logits of unverified windows in a step */
        int turn;               /* the window that begins the next step, because the last one had no room for it */
        uint64_t n_entropy[QN_WEDLM_CLASSES];
        uint64_t gather_ns, select_ns, commit_ns; /* of the step, for its statistics */
        uint64_t run_ns, ran_ns;                  /* when its pass began and ended, if it ran here */
    } windows;
    int n_places_taken; /* places that answers of running requests have */
    struct warm warm;
    struct worker *masks;      /* makes masks that take long; NULL: none did yet */
    struct guide_job *retired; /* of requests that have ended: the other thread still has something of them */
    bool is_cold;              /* prepare() has something to do */
    bool is_ahead;             /* reuse_read_ahead() has something to do */
    bool is_unsaved;           /* something is being written to disk, or may have to be */
    bool is_full;              /* the next request, or answer to go on, did not fit, and nothing has changed since */
    bool awaits_pages;         /* it did not fit, and the disk's threads hold some pages */
    bool is_stalled;           /* the last step had no rows: all that runs waits for pages */
    uint64_t patience_ns;      /* until then it waits for pages to be saved; 0: not begun; UINT64_MAX: waited enough */
    double n_ended,
        n_ended_tokens; /* answers and their tokens; each answer that ends makes the older ones count less */
    double mean_answer; /* the expected tokens of an answer, unless its max_tokens is smaller */

    struct step_around {
        void (*begin)(void *arg), (*end)(void *arg);
        void *arg;
    } around; /* called before and after each step that runs here; NULL: nobody is. For measurements */

    /* of one step; parts and memories are [n_places], and the rows are in engine->batch */
    struct step_part *parts;
    int n_parts, n_rows, n_prefill_rows, n_logits;
    int n_told; /* tokens that answers got, without the first ones */
    struct kv_seq **memories;
    float *logits;      /* [n_places + PROMPT_LOGPROB_ROWS + drafts.most + windows.most_logits][n_vocab] */
    qn_token *drawn;    /* [n_places + drafts.most + windows.most_logits]: one for each of the first rows of logits */
    float *work;        /* [n_vocab] */
    void *scratch;      /* for kernels */
    atomic_int n_dealt; /* parts that members of the team took to draw their tokens */
    bool was_abandoned; /* the last step was abandoned */
    bool is_lost;       /* the engine's stage does not answer */
    bool is_emptied;    /* since then, no sequence has pages any more */
    uint64_t asked_ns;  /* the time of the last check whether to abandon the step */

    struct stage_drawn *heard; /* what the last step that ended brought */
    struct flights *flights;   /* steps under way in other processes; NULL: there was none yet */
    int most_answers;          /* answers of a step at most */
    int most_prompt;           /* prompt rows of a step at most; 0: as many as pace allows */
    bool are_answers_away;     /* steps under way have rows of answers */
};

/* ---- lost.c ---- */

/* The processes that have the layers do not answer (stage.h). */
void scheduler_lose_stage(struct qn_scheduler *s, const struct qn_error *why);
/* Between steps: if they were lost, takes back what they had of all sequences, and tries to go on. Returns false if
 * nothing can be computed now. */
bool scheduler_mend(struct qn_scheduler *s);

/* ---- masks.c ---- */

/* Prepares the masks that the next step needs, with little work for each. Those that need more are left to another
 * thread; their answers have no rows in steps until then. */
void masks_prepare(struct qn_scheduler *s);
/* Waits until one more mask is there, for 2 ms at most. */
enum masks_waited { MASKS_NONE /* is being made */, MASKS_MADE, MASKS_LATE };
enum masks_waited masks_wait(struct qn_scheduler *s);
/* Makes the mask of an answer's next token with little work, in the middle of a step. Returns false if it needs more.
 */
bool masks_try(struct request *r, int answer);
/* Frees the guides of a request that has ended, now or when the other thread does not use them any more. */
void masks_retire(struct qn_scheduler *s, struct request *r);
void masks_end(struct qn_scheduler *s); /* frees everything; all requests have ended */

/* ---- windows.c ---- */

/* The windows of the parameters, after scheduler_settle(). QN_EDATA, QN_EUNSUP: the model cannot have any. */
int windows_init(struct qn_scheduler *s, const struct qn_scheduler_params *p, const struct drafters_own *own,
                 struct qn_error *e);
/* Returns the rows of logits that a step may need for unverified windows. */
int windows_logits(const struct qn_scheduler_params *p);
/* Sets the members of a new request that say what its windows are. p: as they came. QN_EUSAGE, QN_EUNSUP: it cannot
 * have what it asks for. */
int windows_settle(const struct qn_scheduler *s, struct request *r, const struct qn_request_params *p,
                   struct qn_error *e);
/* Returns the rows of the answer's next window. rows: [2 * WEDLM_MOST] */
int windows_rows(const struct request *r, struct answer *a, struct wedlm_row *rows);
/* Takes the tokens of the run and fills masks, after a step with the window's rows. logits: of its masks. Returns how
 * many tokens there were; keys and values of the others are forgotten. */
int windows_take(struct qn_scheduler *s, struct request *r, int answer, const float *logits);

/* Counts what windows did in a step, with the mutex held. */
void windows_count(struct qn_scheduler *s);

/* Runs one step of all running requests: a row for each answer and a piece of the prompts that are being read. */
void step_run(struct qn_scheduler *s);
/* The parts of such a step, for away.c. Returns false if it has no rows. */
bool step_gather(struct qn_scheduler *s);
void step_without_rows(struct qn_scheduler *s);
/* Processes the results of the step that s describes. t0: when it began. seconds: that it took; 0: until now. */
void step_take_in(struct qn_scheduler *s, uint64_t t0, double seconds);

/* ---- away.c ---- */

/* Begins a step, or waits for one that is under way, in other processes (stage.h). */
void away_run(struct qn_scheduler *s);
bool away_has_steps(const struct qn_scheduler *s); /* some are under way */
/* What is away comes back no more, or is of no use: nothing of any answer is away. */
void away_forget(struct qn_scheduler *s);
void away_free(struct qn_scheduler *s);
/* The memory of an answer is about to be lost. Returns true if some of its rows were away. */
static inline bool away_drop(struct answer *a)
{
    bool was_away = a->n_away > 0;
    a->n_away = 0;
    a->life++;
    return was_away;
}

/* Replaces zeros by the defaults and checks the ranges. n_states: recurrent states that the engine has; 0: the model
 * has none. QN_EUSAGE: a value is out of range, or a step has too few rows. QN_ENOMEM: there are too few states. */
int scheduler_settle(struct qn_scheduler_params *p, int n_batch, int n_states, struct qn_error *e);
/* Returns the bytes that a scheduler with so many places and drafted rows takes from the ledger, without the cache's
 * prefix list and the drafters. */
size_t scheduler_bytes(const struct model *m, int n_ctx, int n_places, int n_drafted);
/* Returns the bytes that are left for that list: about 400 for each page in memory, and as much for those on disk. */
static inline size_t scheduler_tree_bytes(int n_pages) { return ((size_t)8 << 20) + (size_t)n_pages * 1024; }
/* As qn_scheduler_new(), with what a test or a measurement wants to be different: its drafter is the scheduler's if the
 * call succeeds. NULL: nothing. */
int scheduler_new(qn_scheduler **out, qn_engine *g, const struct qn_scheduler_params *params,
                  const struct drafters_own *own, struct qn_error *e);
/* Returns true if some of the weights could not be read since the last call. The results of the step are then dropped,
 * and all requests end. */
bool scheduler_lost_weights(struct qn_scheduler *s);
/* Runs the work that other threads have asked of the scheduler's thread (cached.c). */
void scheduler_run_errands(struct qn_scheduler *s);

/* Returns QN_EUSAGE in a callback of this scheduler; for functions that wait for the scheduler's thread. */
static inline int scheduler_check_thread(const struct qn_scheduler *s, const char *function, struct qn_error *e)
{
    if (!s->has_thread || !pthread_equal(pthread_self(), s->thread)) return 0;
    return error_set(e, QN_EUSAGE, "%s: called from a callback of this scheduler", function);
}

/* Returns true if the next step can have a row for the answer's next token. */
bool step_has_next(const struct qn_scheduler *s, const struct request *r, int answer);

/* Counts rows that were computed for a request in its identity's share. */
void scheduler_charge(struct request *r, int rows);

#endif
