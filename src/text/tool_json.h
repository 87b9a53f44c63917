/* SPDX-License-Identifier: MIT
 *
 * tool_json.h: a tool call written as JSON, read as it comes.
 *
 * Two shapes: an object that holds the name and the arguments, {"name": ..., "arguments": {...}}, or the arguments
 * alone where the name came before. The arguments are given out as the model spells them, as far as they are known to
 * be JSON, before the call is complete.
 */
#ifndef QUERN_TEXT_TOOL_JSON_H
#define QUERN_TEXT_TOOL_JSON_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"

#define TOOL_JSON_MAX_DEPTH 256

enum tool_json_rc {
    TOOL_JSON_MORE,
    TOOL_JSON_DONE,
    TOOL_JSON_BAD,
};

/* One JSON object, byte by byte: strict, but that strings may hold any bytes from 0x20 on. */
struct json_scan {
    uint8_t state;                             /* enum json_state */
    bool in_key;                               /* the string is one */
    int depth;                                 /* open objects and arrays */
    uint64_t object[TOOL_JSON_MAX_DEPTH / 64]; /* by depth: bit set: an object */
    const char *word;                          /* what is left of true, false or null */
    int n_hex;                                 /* digits of \uXXXX still to come */
};

struct tool_json {
    struct json_scan scan;
    bool bare;              /* the object is the arguments */
    struct buf text;        /* the object so far */
    size_t key_at, key_n;   /* of the member being read, quotes included */
    size_t value_at;        /* where its value begins; SIZE_MAX: not yet */
    size_t args_at, args_n; /* the arguments' spelling; args_n 0: not complete */
    bool has_args, quoted;  /* the arguments began; they are a string that holds JSON */
    struct buf name;        /* empty: not known yet */
    struct buf args;        /* arguments ready to be given out */
};

/* name: NULL, or the call's name: the object is then the arguments. */
int tool_json_init(struct tool_json *t, const char *name, size_t n, struct qn_error *e);
void tool_json_deinit(struct tool_json *t);

/* Reads of the n bytes as many as belong to the call, *used, and adds to t->args what became known. The first byte of
 * all is the '{'. Returns an enum tool_json_rc or QN_ENOMEM. */
int tool_json_read(struct tool_json *t, const char *p, size_t n, size_t *used, struct qn_error *e);

#endif
