/* SPDX-License-Identifier: MIT
 *
 * run_scheduled.h: continues a text through a scheduler, which windows of masks (WeDLM) and models on several hosts
 * need.
 */
#ifndef QUERN_CLI_RUN_SCHEDULED_H
#define QUERN_CLI_RUN_SCHEDULED_H

#include <quern.h>

struct run_scheduled {
    const qn_token *prompt; /* [n_prompt] */
    size_t n_prompt;
    bool continues; /* as in qn_text_new() */
    struct qn_sampling sampling;
    enum qn_draft draft;
    int max_tokens; /* -1: as many as there is room for */
    const char *const *stop;
    size_t n_stop;
    /* Takes a piece of the answer: whole characters, in the scheduler's thread. false: no more is wanted. */
    bool (*put)(void *arg, const char *bytes, size_t n);
    void *arg;
};

/* Makes the answer. *is_full: it ended because the context was full. An answer that put() ended is no error. Other
 * errors are those of qn_submit() and of the request. */
int run_scheduled(qn_scheduler *s, const struct run_scheduled *w, bool *is_full, struct qn_error *e);

#endif
