/* SPDX-License-Identifier: MIT
 *
 * response.h: the bytes of one HTTP/1.1 response, however they are cut, become a status and the bytes of its body.
 *
 * Source: RFC 9112. Where that lets a recipient be lenient this is not: a response that two programs could read
 * differently is none. Knows nothing of sockets: client.c does.
 */
#ifndef QUERN_CLIENT_RESPONSE_H
#define QUERN_CLIENT_RESPONSE_H

#include <stdbool.h>
#include <stdint.h>

#include "client/client.h"

#define RESPONSE_LINE_MAX 8192  /* bytes of a line of the head, of a chunk's first line, of a trailer */
#define RESPONSE_HEAD_MAX 65536 /* of all those of the head, interim responses included, and of all trailers */

enum response_state {
    RESPONSE_STATUS,     /* in the first line */
    RESPONSE_FIELDS,     /* in the lines after it */
    RESPONSE_BODY,       /* `left` bytes are to come */
    RESPONSE_REST,       /* a body that ends with the connection */
    RESPONSE_CHUNK_SIZE, /* in the line before a chunk */
    RESPONSE_CHUNK,      /* `left` bytes of it are to come */
    RESPONSE_CHUNK_END,  /* in the line break behind it */
    RESPONSE_TRAILERS,
    RESPONSE_DONE,
};

struct response {
    enum response_state state;
    struct client_reply *reply;
    uint64_t left;  /* bytes */
    int64_t length; /* Content-Length; -1: none came */
    bool chunked;
    bool keep;        /* the connection may be used again when this is done */
    int minor;        /* of HTTP/1.x */
    size_t n_head, n; /* bytes: of all lines so far; of the one that is being read */
    char line[RESPONSE_LINE_MAX];
};

/* *reply is filled while the head is read; it must live as long. */
void response_init(struct response *r, struct client_reply *reply);
/* Reads on from p. Returns how many of the n bytes were used, at least one unless the response is done; negative:
 * QN_EDATA. *body, *n_body: a part of p that belongs to the body, may be empty. */
int64_t response_read(struct response *r, const char *p, size_t n, const char **body, size_t *n_body,
                      struct qn_error *e);
/* The connection has ended. 0 when that ends the response too; QN_EIO says where it was. */
int response_end(struct response *r, struct qn_error *e);

#endif
