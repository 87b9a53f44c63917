/* SPDX-License-Identifier: MIT
 *
 * parts.h: one model in memory: its file, its template, an engine, a scheduler. Made and freed as a whole.
 */
#ifndef QUERN_SERVER_PARTS_H
#define QUERN_SERVER_PARTS_H

#include <quern.h>

struct parts {
    qn_model *model;
    qn_chat *chat; /* NULL: the model has no template */
    qn_engine *engine;
    qn_scheduler *scheduler;
};

/* Opens what needs no budget: model and template. *why: what is wrong with the template, "" for nothing. What there is
 * is freed when it fails, here and below. */
int parts_open(struct parts *p, const char *path, const struct qn_model_params *file, struct qn_error *why,
               struct qn_error *e);
/* The rest. scheduler's cache_dir is the folder for all models; this one's, by its name, lies in it. */
int parts_start(struct parts *p, const char *name, const struct qn_engine_params *engine,
                const struct qn_scheduler_params *scheduler, struct qn_error *e);
/* Without grace for requests. Gives the memory back to the system. */
void parts_free(struct parts *p);

/* Makes the folder of a model's cache, and the one it lies in. */
int parts_make_folder(const char *cache_dir, const char *name, struct qn_error *e);

#endif
