/* SPDX-License-Identifier: MIT
 *
 * context_how.h: what happens to an answer whose context is full, as options and requests say it.
 */
#ifndef QUERN_SERVER_CONTEXT_HOW_H
#define QUERN_SERVER_CONTEXT_HOW_H

#include <stdbool.h>

struct context_how {
    bool rotates; /* false: the answer ends */
    int n_keep;   /* the first tokens, which stay */
};

/* Reads "plain" or "rotate:KEEP". Returns false if the text is neither. */
bool context_how_parse(const char *text, struct context_how *out);

#endif
