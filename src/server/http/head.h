/* SPDX-License-Identifier: MIT
 *
 * head.h: the bytes of a request: its head, and a body in chunks. Pure functions on memory.
 *
 * The functions are strict: they refuse everything that RFC 9112 does not allow, even where it lets a server guess. A
 * server that guesses differently from the proxy in front of it would let requests through that the proxy has not seen.
 */
#ifndef QUERN_SERVER_HEAD_H
#define QUERN_SERVER_HEAD_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define HEAD_MAX_HEADERS 100

struct head {
    const char *method, *target;
    int minor; /* of HTTP/1.x: 0, or 1 for everything later */
    int n;     /* number of headers, which are in their order of arrival */
    struct {
        /* A token; a value without white space around it and without control bytes other than HTAB. */
        const char *name, *value;
    } header[HEAD_MAX_HEADERS];
};

/* Looks for the end of a head in the n bytes so far. *at is where to go on; 0 at the beginning. Returns the length of
 * the head including its empty line; 0 if more bytes have to come; -1 as soon as there is a byte that no head has: a
 * line's end that is not CRLF, or a control byte. */
long head_scan(const uint8_t *p, size_t n, size_t *at);

/* Splits a head of that length in place; h points into text. 0, or the HTTP status to refuse it with, and *why. */
int head_parse(struct head *h, char *text, size_t n, const char **why);

/* The value of a header, compared without case; NULL if absent. */
const char *head_value(const struct head *h, const char *name);
/* Whether a comma-separated value contains an element, compared without case. */
bool head_has(const char *value, const char *element);
/* A length in bytes, if value consists of digits; -1 for anything else, or 10^18 and more. */
int64_t head_length(const char *value);
bool head_is_token(const char *s);

/* ---- chunks ---- */

struct chunks {
    int state;     /* an enum of head.c; 0 at the beginning */
    uint64_t left; /* the size of the current chunk while it is read; then the bytes left of it */
    int n_digits;
    size_t n_line;  /* of an extension */
    size_t n_extra; /* bytes of all extensions and trailers */
};

/* Reads until a piece of the body, the body's end, or the end of the n bytes. Returns the number of bytes that were
 * read; -1: malformed. *piece, if there is one, lies at the end of them. */
long chunks_read(struct chunks *c, const uint8_t *p, size_t n, const uint8_t **piece, size_t *n_piece);
bool chunks_done(const struct chunks *c);

#endif
