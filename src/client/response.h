/* SPDX-License-Identifier: MIT
 *
 * response.h: one HTTP/1.1 response, in pieces of any size, becomes a status and the bytes of its body.
 *
 * Source: RFC 9112. It is stricter where the RFC lets a recipient be lenient: a response that two programs could read
 * differently is refused. It knows nothing of sockets; client.c does.
 */
#ifndef QUERN_CLIENT_RESPONSE_H
#define QUERN_CLIENT_RESPONSE_H

#include <stdbool.h>
#include <stdint.h>

#include "client/client.h"

#define RESPONSE_LINE_MAX 8192  /* the most bytes of a line of the head, of a chunk's first line, of a trailer */
#define RESPONSE_HEAD_MAX 65536 /* of all lines of the head, interim responses included, and of all trailers */

enum response_state {
    RESPONSE_STATUS,     /* in the first line */
    RESPONSE_FIELDS,     /* in the lines after it */
    RESPONSE_BODY,       /* `left` bytes of the body are still to come */
    RESPONSE_REST,       /* a body that ends with the connection */
    RESPONSE_CHUNK_SIZE, /* the line before a chunk */
    RESPONSE_CHUNK,      /* `left` bytes of the chunk are still to come */
    RESPONSE_CHUNK_END,  /* the line break after it */
    RESPONSE_TRAILERS,
    RESPONSE_DONE,
};

struct response {
    enum response_state state;
    struct client_reply *reply;
    uint64_t left;  /* bytes */
    int64_t length; /* Content-Length; -1: there was none */
    bool chunked;
    bool keep;        /* the connection may be used again after the response */
    int minor;        /* of HTTP/1.x */
    size_t n_head, n; /* bytes of all lines so far; of the current line */
    char line[RESPONSE_LINE_MAX];
};

/* Starts a response. *reply is filled while the head is read, and must live as long as r. */
void response_init(struct response *r, struct client_reply *reply);
/* Reads more bytes. Returns the number of the n bytes that were used, at least one unless the response is done; or
 * QN_EDATA. *body, *n_body: a part of p that belongs to the body; may be empty. */
int64_t response_read(struct response *r, const char *p, size_t n, const char **body, size_t *n_body,
                      struct qn_error *e);
/* Call it when the connection has ended. 0: the response ends with it; QN_EIO: it was cut off, and *e says where. */
int response_end(struct response *r, struct qn_error *e);

#endif
