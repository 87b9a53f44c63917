/* SPDX-License-Identifier: MIT
 *
 * json_out.h: writes JSON text directly into a buffer, for answers of which a piece is sent with every token.
 *
 * A tree of jansson's costs an allocation for every value; this costs none once the buffer has grown. It adds commas
 * and escapes and checks nothing: the caller makes sure that brackets match and that keys are plain ASCII.
 */
#ifndef QUERN_SERVER_JSON_OUT_H
#define QUERN_SERVER_JSON_OUT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"

struct json_out {
    struct ledger *ledger; /* pays for all but the smallest texts; borrowed; NULL: nothing does */
    struct buf b;
    bool counted; /* the buffer's memory is taken from the ledger */
    bool comma;   /* a value precedes, at this level */
    bool failed;  /* there was no memory: the text is not complete */
};

/* A zeroed struct, with or without a ledger, is an empty text. The ledger may change only while the text is empty and
 * has no memory. */
/* Frees the text; the struct is then an empty text with the same ledger. */
void json_out_deinit(struct json_out *o);
/* In all of these, key is NULL inside an array. */
void json_out_open(struct json_out *o, const char *key, char bracket);
void json_out_close(struct json_out *o, char bracket);
/* A string of any bytes; each byte that is not UTF-8 becomes U+FFFD. */
void json_out_text(struct json_out *o, const char *key, const char *s, size_t n);
void json_out_str(struct json_out *o, const char *key, const char *s); /* NULL: null */
void json_out_int(struct json_out *o, const char *key, int64_t v);
void json_out_num(struct json_out *o, const char *key, double v); /* null unless finite */
void json_out_bool(struct json_out *o, const char *key, bool v);
/* A key of any bytes; its value follows, with a NULL key. */
void json_out_key(struct json_out *o, const char *s, size_t n);
/* Adds complete values, separated by commas; adds nothing for no bytes. */
void json_out_raw(struct json_out *o, const char *key, const void *json, size_t n);
/* Adds bytes around the JSON, which are not part of it. The next value has no comma before it. */
void json_out_frame(struct json_out *o, const char *s);

#endif
