/* SPDX-License-Identifier: MIT
 *
 * models.h: the set of models that are served, of which some are in memory.
 *
 * Every request holds its model from before its first token is made to after its last. A model that is not in memory is
 * loaded by a thread of the set's own, and who wants it meanwhile is called back. All models share one budget: one that
 * does not fit beside the others takes the place of those that nobody has used for longest. A model that is held is
 * never unloaded, nor is a pinned one.
 *
 * Locks and threads: docs/THREADS.md. What clients see of it: docs/API.md, "Several models".
 */
#ifndef QUERN_SERVER_MODELS_H
#define QUERN_SERVER_MODELS_H

#include <quern.h>

#include "server/field.h"

/* ---- the set ---- */

struct models_source {
    const char *name; /* as clients call it */
    const char *path;
    bool pinned;
};

/* What it points to is borrowed until models_close(). */
struct models_config {
    const struct models_source *source; /* [n], may be none; names differ */
    int n;
    struct qn_model_params model;         /* of each */
    struct qn_engine_params engine;       /* of each; memory_bytes is for all together, 0: what the machine has */
    struct qn_scheduler_params scheduler; /* of each, but that cache_dir gets a folder for each model, and each an equal
                                             share of cache_bytes */
    int idle_s;                           /* unused for so long, a model is unloaded; 0: never */
};

/* Makes what cache_dir has to have before models are loaded: while the process may make folders. */
int models_make_folders(const struct models_config *c, struct qn_error *e);

struct models;
/* Checks every file, and that its model fits the budget beside the pinned ones. Loads those that are pinned, and a
 * single one. */
int models_open(struct models **out, const struct models_config *c, struct qn_error *e);
/* Lets nobody in any more, refuses those that wait, ends all requests and saves what they leave in the caches. */
void models_stop(struct models *s);
/* After models_stop(), with no model held. NULL is fine. */
void models_close(struct models *s);

/* ---- a model, held ---- */

struct served {
    const char *name;
    int index; /* in the config */
    /* while it is held */
    const qn_model *model;
    const qn_chat *chat; /* NULL: it has no template, so that conversations are refused */
    qn_scheduler *scheduler;
    int n_ctx; /* tokens */
};

/* One that wants a model. ready() is called from the set's thread, without a lock: with the model, held, or with NULL
 * and why. */
struct models_wait {
    void (*ready)(struct models_wait *w, struct served *m, const struct fault *why);
    struct models_wait *next;
};

enum models_answer { MODELS_HELD, MODELS_WAIT, MODELS_REFUSED };
/* Holds the model of that name (NULL: the only one) in *out; or, MODELS_WAIT, has w called when it is there; or refuses
 * with *f. Any thread; does not wait. */
enum models_answer models_acquire(struct models *s, const char *name, struct models_wait *w, struct served **out,
                                  struct fault *f);
/* Holds the i-th model if it is in memory; else NULL. Any thread; does not wait. */
struct served *models_hold(struct models *s, int i);
/* Any thread, also a scheduler's own. NULL is fine. */
void models_release(struct served *m);

/* ---- numbers ---- */

enum models_state { MODEL_NOT_LOADED, MODEL_LOADING, MODEL_LOADED, MODEL_UNLOADING };
const char *models_state_name(enum models_state s);

struct models_info {
    const char *name, *path;
    enum models_state state;
    bool pinned, chat;
    int n_ctx, n_ctx_train, n_vocab;
    uint64_t fingerprint;   /* of its file: another one has another */
    uint64_t need_bytes;    /* of the budget, to be loaded */
    uint64_t granted_bytes; /* that it has now */
    uint64_t table_bytes;   /* of these, for its vocabulary and its template; 0 while it is not loaded */
    int n_users;            /* requests that hold it */
    uint64_t n_loads;
    /* Counters go on when the model is unloaded and loaded again; all else is 0 while it is not there. used_bytes has
     * table_bytes in it. */
    struct qn_scheduler_stats stats;
};
int models_count(const struct models *s);
uint64_t models_budget_bytes(const struct models *s);
void models_look(struct models *s, int i, struct models_info *out); /* any thread */

#endif
