/* SPDX-License-Identifier: MIT
 *
 * embed.h: requests for vectors of texts, whatever API they speak.
 */
#ifndef QUERN_SERVER_EMBED_H
#define QUERN_SERVER_EMBED_H

#include "server/api/api_impl.h"

/* What a request asks for. Strings and JSON values are borrowed from its body. */
struct embed_ask {
    const char *model, *user, *cache_salt;
    const json_t *input; /* a text, token ids, or an array of either */
    bool base64;
    bool truncate; /* an input that is too long for the context loses its end; otherwise it is refused */
    int pooling;   /* enum qn_pooling */
    struct field_ignored ignored;
};

struct embed_done {
    const char *model;
    int64_t n_prompt; /* tokens of all inputs */
    uint64_t arrived_ns;
    double load_ms;
    const struct field_ignored *ignored;
};

/* How an API reads such a request and writes the answer. */
struct embed_dialect {
    const struct field *const *tables; /* of a struct embed_ask */
    bool truncates;                    /* the default of `truncate` */
    bool names_ignored;                /* `close` writes the fields that change nothing */
    api_refuse *refuse;
    const char *object; /* the first member of an answer and of each vector; NULL: none, and vectors are bare arrays */
    const char *list;   /* the member with all vectors; NULL: there is one vector, the member `embedding` */
    void (*close)(struct json_out *o, const struct embed_done *d); /* writes the members after them */
};

/* A worker's part. */
void embed_begin(struct api_call *c, const struct embed_dialect *d);
field_parser embed_parse_input;

#endif
