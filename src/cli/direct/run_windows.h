/* SPDX-License-Identifier: MIT
 *
 * run_windows.h: continues a text with windows of masks (WeDLM), which only a scheduler has.
 */
#ifndef QUERN_CLI_RUN_WINDOWS_H
#define QUERN_CLI_RUN_WINDOWS_H

#include <quern.h>

struct run_windows {
    const qn_token *prompt; /* [n_prompt] */
    size_t n_prompt;
    bool continues; /* as in qn_text_new() */
    struct qn_sampling sampling;
    struct qn_wedlm wedlm;
    int max_tokens; /* -1: as many as there is room for */
    const char *const *stop;
    size_t n_stop;
    /* Takes a piece of the answer: whole characters, in the scheduler's thread. false: no more is wanted. */
    bool (*put)(void *arg, const char *bytes, size_t n);
    void *arg;
};

/* Makes the answer. The engine is the scheduler's meanwhile. *is_full: it ended because the context was full. An answer
 * that put() ended is no error. QN_EUNSUP, QN_EUSAGE: the model has no windows, or not with these parameters. */
int run_windows(qn_engine *g, const struct run_windows *w, bool *is_full, struct qn_error *e);

#endif
