/* SPDX-License-Identifier: MIT
 *
 * run_receipt.h: the receipt of a text that a session has continued.
 */
#ifndef QUERN_CLI_RUN_RECEIPT_H
#define QUERN_CLI_RUN_RECEIPT_H

#include <quern.h>

#include "cli/place/receipt_file.h"

struct run_answer {
    const char *path, *pre; /* of the model; as it was opened */
    const qn_model *model;
    const qn_engine *engine;
    const qn_session *session; /* its timeline is the prompt and the answer */
    const qn_text *text;       /* of the answer */
    enum qn_kv kv;             /* of the engine */
    size_t n_prompt;           /* tokens */
    bool continues;            /* as in qn_text_new() */
    struct qn_sampling sampling;
    int max_tokens; /* -1: as many as there is room for */
    const char *const *stop;
    size_t n_stop;
};

/* Writes the receipt, if the options ask for one. Returns 0 or an exit status, after a message. */
int run_receipt_write(const struct receipt_options *o, const struct run_answer *a);

#endif
