/* SPDX-License-Identifier: MIT
 *
 * json_out.h: writes JSON text straight into a buffer, for answers of which a piece goes out with every token.
 *
 * A tree as jansson builds it costs an allocation for every value; this costs none once the buffer has grown. It puts
 * commas and escapes, and nothing else: that brackets match and keys are plain ASCII is the caller's business.
 */
#ifndef QUERN_SERVER_JSON_OUT_H
#define QUERN_SERVER_JSON_OUT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"

struct json_out {
    struct buf b; /* json_out_deinit() */
    bool counted; /* its memory is the ledger's, as that of all but the smallest */
    bool comma;  /* a value stands before, at this level */
    bool failed; /* there was no memory: the text is not complete */
};

/* From now on the memory of all that is written, in the whole process, is taken from l; NULL: from none, as at the start.
 * Nothing may be half written. */
void json_out_use(struct ledger *l);
void json_out_deinit(struct json_out *o);
/* key is NULL inside of an array. */
void json_out_open(struct json_out *o, const char *key, char bracket);
void json_out_close(struct json_out *o, char bracket);
/* Any bytes: what is not UTF-8 becomes U+FFFD, a byte each. */
void json_out_text(struct json_out *o, const char *key, const char *s, size_t n);
void json_out_str(struct json_out *o, const char *key, const char *s); /* NULL: null */
void json_out_int(struct json_out *o, const char *key, int64_t v);
void json_out_num(struct json_out *o, const char *key, double v); /* null unless finite */
void json_out_bool(struct json_out *o, const char *key, bool v);
/* A key of any bytes; its value follows, with a NULL key. */
void json_out_key(struct json_out *o, const char *s, size_t n);
/* Complete values, separated by commas; nothing is written for no bytes. */
void json_out_raw(struct json_out *o, const char *key, const void *json, size_t n);
/* Bytes that are not part of the JSON: what frames it. The next value begins afresh. */
void json_out_frame(struct json_out *o, const char *s);

#endif
