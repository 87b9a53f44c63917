/* SPDX-License-Identifier: MIT
 *
 * probe.h: what a server says of a file before it is fetched: where it really is, how long, in which version, and
 * whether parts of it can be had.
 */
#ifndef QUERN_FETCH_PROBE_H
#define QUERN_FETCH_PROBE_H

#include <stdbool.h>
#include <stdint.h>

#include "base/error.h"
#include "fetch/fetch.h"

struct probe {
    char *source;  /* the URL that was asked first */
    char *url;     /* where redirects ended */
    uint64_t size; /* bytes */
    bool has_ranges;
    char etag[256];     /* as the server wrote it; "": none, or none that is kept (probe_etag) */
    char if_range[256]; /* what a request for a part says to get that version only; "": nothing can */
    char version[300];  /* printable; "": one version cannot be told from another */
    char sha256[65];    /* as a hub says it; "": not known */
};

/* is_hub: its X-Linked headers are believed. Errors as ask()'s; QN_EUNSUP: the length is not said. */
int probe_open(struct probe *p, const struct fetch_options *o, const char *url, bool is_hub, struct qn_error *e);
void probe_close(struct probe *p);

/* An ETag as it is compared: "" for none, and for one that is too long to be kept whole or has bytes that a message
 * would show otherwise. So two that differ are never taken for one, nor one for two. value may be NULL. */
const char *probe_etag(const char *value);

/* "bytes 0-9/100" of a Content-Range: first, last and total. "bytes <unit>/100" with "*" for the unit gives first >
 * last. -1: malformed, or the total is not said. */
int probe_content_range(const char *s, uint64_t *first, uint64_t *last, uint64_t *total);

#endif
