/* SPDX-License-Identifier: MIT
 *
 * loaded.h: one model in memory: its file, its template, an engine and a scheduler, made and freed as a whole.
 */
#ifndef QUERN_SERVER_LOADED_H
#define QUERN_SERVER_LOADED_H

#include "cluster/group.h"

struct loaded_model {
    qn_model *model;
    qn_model *draft; /* drafts for the model; NULL: there is none */
    qn_chat *chat;   /* NULL: the model has no template */
    qn_engine *engine;
    qn_scheduler *scheduler;
};

/* Opens the parts that need no budget: model, draft model and template. draft: the path of the draft model, or NULL.
 * *why: the fault of the template, "" if there is none. On failure nothing stays open; this also holds for
 * loaded_start(). */
int loaded_open(struct loaded_model *p, const char *path, const char *draft, const struct qn_model_params *file,
                struct qn_error *why, struct qn_error *e);
/* Makes engine and scheduler. group: the stages that have the model's layers; NULL: this process. The scheduler's
 * cache_dir is the folder for all models; this model has a folder in it. */
int loaded_start(struct loaded_model *p, const char *name, const struct qn_engine_params *engine,
                 const struct qn_scheduler_params *scheduler, struct group *group, struct qn_error *e);
/* Ends running requests at once, frees the parts, and gives the memory back to the system. */
void loaded_free(struct loaded_model *p);

/* Makes the folder of a model's cache and the folder above it. */
int loaded_make_folder(const char *cache_dir, const char *name, struct qn_error *e);
/* Drops what an identity has in the folder of a model that is not loaded. *n: the conversations. */
int loaded_drop_files(const char *cache_dir, const char *name, uint64_t identity, size_t *n, struct qn_error *e);

#endif
