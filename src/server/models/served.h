/* SPDX-License-Identifier: MIT
 *
 * served.h: the set of models that are served; some of them are in memory.
 *
 * Every request holds its model from before its first token is made until after its last. If the model is not in
 * memory, a thread of the set loads it and calls the waiting requests back. All models share one budget: a model that
 * does not fit takes the place of those that were not used for longest. A model that is held is never unloaded, and
 * neither is a pinned one.
 *
 * Locks and threads: docs/THREADS.md. The view of clients: docs/API.md, "Several models".
 */
#ifndef QUERN_SERVER_SERVED_H
#define QUERN_SERVER_SERVED_H

#include <quern.h>

#include "cluster/group.h"
#include "server/json/field.h"
#include "server/models/card.h"
#include "server/models/context_how.h"

/* ---- the set ---- */

struct models_source {
    const char *name; /* as clients call it */
    const char *path;
    const char *draft; /* the path of its draft model; NULL: none */
    bool pinned;
    bool optional; /* if it cannot be served, it is left out, with a warning; not for a pinned one */
};

/* Another name for a model. */
struct models_alias {
    const char *name, *model;
};

/* Everything it points to is borrowed until models_close(). */
struct models_config {
    const struct models_source *source; /* [n], may be none; names differ */
    int n;
    /* [n_aliases] of models that are not optional; names differ, also from those of the models */
    const struct models_alias *alias;
    int n_aliases;
    const char *any;                /* the model that answers to all other names, also not optional; NULL: none */
    struct qn_model_params model;   /* of each */
    struct qn_engine_params engine; /* for each model; memory_bytes is for all together, 0: what the machine has */
    /* For each model; but cache_dir gets a folder for each, and cache_bytes is divided equally. */
    struct qn_scheduler_params scheduler;
    struct ledger *requests;    /* pays for grammars; NULL: each model has a ledger of its own for them */
    struct group *group;        /* the stages of the only model; NULL: models are computed in this process */
    struct context_how context; /* of requests that do not say */
    int idle_s;                 /* a model that was unused for so many seconds is unloaded; 0: never */
};

/* Makes the folders in cache_dir. Call it while the process may still make folders. */
int models_make_folders(const struct models_config *c, struct qn_error *e);

struct models;
/* Checks every file, and that its model fits the budget next to the pinned ones, except that optional models may be
 * left out. Loads the pinned models, or a single
 * one. *out is freed with models_close(). */
int models_open(struct models **out, const struct models_config *c, struct qn_error *e);
/* Accepts no more requests, refuses those that wait, ends those that run and saves what they leave in the caches. */
void models_stop(struct models *s);
/* Call it after models_stop(), when no model is held. NULL is fine. */
void models_close(struct models *s);

/* ---- a model, held ---- */

struct served {
    const char *name;
    int index; /* in the config */
    /* while it is held */
    const qn_model *model;
    const qn_chat *chat; /* NULL: it has no template, and conversations are refused */
    qn_scheduler *scheduler;
    int n_ctx;                  /* tokens */
    struct context_how context; /* of requests that do not say */
    bool is_rounded;            /* its hosts round what they send each other: group_rounds_rows() */
};

/* A request that wants a model. ready() is called from the set's thread without a lock: with the model, which is then
 * held, or with NULL and the reason. */
struct models_wait {
    void (*ready)(struct models_wait *w, struct served *m, const struct fault *why);
    struct models_wait *next;
};

enum models_answer { MODELS_HELD, MODELS_WAIT, MODELS_REFUSED };
/* The index of the model that answers to a name, which may be an alias. NULL: the only model, or the one for any name.
 * -1 and *f: there is none. */
int models_find(const struct models *s, const char *name, struct fault *f);
/* Holds the model of that name in *out, as models_find() finds it. MODELS_WAIT: w->ready() will be called.
 * MODELS_REFUSED: *f says why. Any thread; does not wait. */
enum models_answer models_acquire(struct models *s, const char *name, struct models_wait *w, struct served **out,
                                  struct fault *f);
/* Holds the i-th model if it is in memory; otherwise NULL. Any thread; does not wait. */
struct served *models_hold(struct models *s, int i);
/* Drops the conversations that an identity has on disk with the i-th model, which is not in memory. *n: how many. It
 * waits for the disk. QN_EBUSY: the model is in memory, or on its way. */
int models_drop_files(struct models *s, int i, uint64_t identity, size_t *n, struct qn_error *e);
/* Gives a held model back. Any thread, also a scheduler's own. NULL is fine. */
void models_release(struct served *m);

/* Unloads the model of that name in another thread, as soon as no request uses it, unless a new request comes before.
 * 0, also when it is not in memory; -1 and *f: there is no such model, or it is pinned. Any thread; does not wait. */
int models_unload(struct models *s, const char *name, struct fault *f);

/* ---- numbers ---- */

enum models_state { MODEL_NOT_LOADED, MODEL_LOADING, MODEL_LOADED, MODEL_UNLOADING };
const char *models_state_name(enum models_state s);

struct models_info {
    const char *name, *path;
    enum models_state state;
    bool pinned, chat;
    struct qn_chat_capabilities can; /* if chat */
    int n_ctx, n_ctx_train, n_vocab;
    uint64_t fingerprint;   /* of its file: another file has another one */
    uint64_t need_bytes;    /* the part of the budget that it needs to be loaded */
    uint64_t granted_bytes; /* that it has now */
    uint64_t table_bytes;   /* of these, those for vocabulary and template; 0 while it is not loaded */
    uint64_t grammar_bytes; /* of its grammars; they are not part of the grant */
    int n_users;            /* requests that hold it */
    uint64_t n_loads;
    double idle_left_s; /* seconds until it is unloaded, if no request comes; -1: never */
    /* Counters continue when the model is unloaded and loaded again; other members are 0 while it is not loaded.
     * used_bytes includes table_bytes. */
    struct qn_scheduler_stats stats;
};
int models_count(const struct models *s);
const struct models_alias *models_aliases(const struct models *s, int *n); /* [*n] */
uint64_t models_budget_bytes(const struct models *s);
void models_look(struct models *s, int i, struct models_info *out); /* any thread */
/* A copy of the i-th model's card, which the caller owns. QN_ENOMEM. Any thread. */
int models_card(struct models *s, int i, struct model_card *out, struct qn_error *e);

#endif
