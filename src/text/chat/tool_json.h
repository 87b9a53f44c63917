/* SPDX-License-Identifier: MIT
 *
 * tool_json.h: reads a tool call that is written as JSON, while it comes.
 *
 * There are two shapes: an object with the name and the arguments, {"name": ..., "arguments": {...}}; or the arguments
 * alone, where the name came before. The arguments are given out as the model spells them before the call is complete,
 * as far as they are known to be JSON.
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

/* Scans one JSON object byte by byte. Strict, except that strings may hold any bytes from 0x20 on. */
struct json_scan {
    uint8_t state;                             /* enum json_state */
    bool in_key;                               /* the string is a key */
    int depth;                                 /* how many objects and arrays are open */
    uint64_t object[TOOL_JSON_MAX_DEPTH / 64]; /* bit set at a depth: an object; clear: an array */
    const char *word;                          /* the rest of true, false or null */
    int n_hex;                                 /* how many digits of \uXXXX are missing */
};

struct tool_json {
    struct json_scan scan;
    bool bare;              /* the object holds nothing but the arguments */
    struct buf text;        /* the object so far */
    size_t key_at, key_n;   /* the key of the member being read, in text, with its quotes */
    size_t value_at;        /* where the member's value begins; SIZE_MAX: not yet */
    size_t args_at, args_n; /* the arguments in text; args_n 0: not complete */
    bool has_args, quoted;  /* the arguments have begun; they are a string that holds JSON */
    struct buf name;        /* empty: not known yet */
    struct buf args;        /* arguments ready to be given out; the caller clears it */
};

/* name: the call's name, of n bytes, and the object holds the arguments alone; or NULL. QN_ENOMEM. */
int tool_json_init(struct tool_json *t, const char *name, size_t n, struct qn_error *e);
void tool_json_deinit(struct tool_json *t);

/* Reads those of the n bytes that belong to the call, sets *used to their number, and appends to t->args the arguments
 * that became known. The first byte of the call is its '{'. Returns an enum tool_json_rc, or QN_ENOMEM. */
int tool_json_read(struct tool_json *t, const char *p, size_t n, size_t *used, struct qn_error *e);

#endif
