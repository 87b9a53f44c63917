/* SPDX-License-Identifier: MIT
 *
 * remote_file.h: what a server says about a file before it is fetched: its final address, length and version, and
 * whether parts of it can be had.
 */
#ifndef QUERN_FETCH_REMOTE_FILE_H
#define QUERN_FETCH_REMOTE_FILE_H

#include <stdbool.h>
#include <stdint.h>

#include "base/error.h"
#include "fetch/fetch.h"

struct remote_file {
    char *source;  /* the URL that was asked first; owned */
    char *url;     /* the address where redirects ended; owned */
    uint64_t size; /* bytes */
    bool has_ranges;
    int64_t modified_s; /* when it was changed there, in seconds since 1970; -1: not known */
    char etag[256];     /* as the server wrote it; "": none, or one that cannot be kept (remote_file_etag) */
    char if_range[256]; /* what a request for a part sends to get this version only; "": nothing can */
    char version[300];  /* a printable name of the version; "": versions cannot be told apart */
    char sha256[65];    /* as a hub says it, lower case; "": not known */
};

/* Asks the server. *p is freed with remote_file_close(). is_hub: its X-Linked headers are believed. QN_EUNSUP: it does
 * not say the length. Other errors are those of get_url(). */
int remote_file_open(struct remote_file *p, const struct fetch_options *o, const char *url, bool is_hub,
                     struct qn_error *e);
void remote_file_close(struct remote_file *p);

/* An ETag for comparison: value, or "" if there is none, if it is too long to be kept whole, or if it has bytes that a
 * message would show otherwise. So two different ones never look alike, and one never looks like two. value may be
 * NULL. */
const char *remote_file_etag(const char *value);

/* Parses a Content-Range, "bytes 0-9/100": first, last and total. With "*" in the place of "0-9", first > last. -1:
 * malformed, or without the total. */
int remote_file_content_range(const char *s, uint64_t *first, uint64_t *last, uint64_t *total);

#endif
