/* SPDX-License-Identifier: MIT
 *
 * head.h: the bytes of a request: its head, and a body in chunks. Pure functions on memory.
 *
 * Strict: what RFC 9112 does not allow is refused, also where it lets a server guess what was meant. Whoever guesses
 * differently than the proxy in front of it lets requests through that the proxy has not seen.
 */
#ifndef QUERN_SERVER_HEAD_H
#define QUERN_SERVER_HEAD_H

#include <stddef.h>
#include <stdint.h>

#define HEAD_MAX_HEADERS 100

struct head {
    const char *method, *target;
    int minor; /* of HTTP/1.x, 0 or 1; what is beyond is 1 */
    int n;     /* headers, in the order they came */
    struct {
        const char *name, *value; /* a token; without white space around, and without control bytes but HTAB */
    } header[HEAD_MAX_HEADERS];
};

/* Looks for the end of a head in what has come so far; *at, 0 at the beginning, is where to go on. The bytes up to and
 * with the empty line, 0 if more has to come, -1 as soon as a byte is there that no head has: a line's end that is not
 * CRLF, a control byte. */
long head_scan(const uint8_t *p, size_t n, size_t *at);

/* Splits a head of that length in place; h points into it. 0, or the status to refuse it with, and why. */
int head_parse(struct head *h, char *text, size_t n, const char **why);

/* Any case; NULL if absent. */
const char *head_value(const struct head *h, const char *name);
/* Whether a comma-separated value has an element, in any case. */
int head_has(const char *value, const char *element);
/* Bytes, of digits alone; -1 for anything else, or 2^63 and more. */
int64_t head_length(const char *value);
int head_is_token(const char *s);

/* ---- chunks ---- */

struct chunks {
    int state;     /* enum in head.c; 0 at the beginning */
    uint64_t left; /* of the current chunk's size, then of its bytes */
    int n_digits;
    size_t n_line;  /* of an extension */
    size_t n_extra; /* of all extensions and trailers */
};

/* Reads until a piece of the body, the body's end, or the end of what is there. Returns how much was read, -1 if it
 * is malformed; the piece, if any, is at its end. */
long chunks_read(struct chunks *c, const uint8_t *p, size_t n, const uint8_t **piece, size_t *n_piece);
int chunks_done(const struct chunks *c);

#endif
