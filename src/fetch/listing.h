/* SPDX-License-Identifier: MIT
 *
 * listing.h: the files of a hub's repository that make a model folder.
 */
#ifndef QUERN_FETCH_LISTING_H
#define QUERN_FETCH_LISTING_H

#include <stddef.h>
#include <stdint.h>

#include "base/error.h"
#include "fetch/fetch.h"

struct hub_file {
    char *name;    /* owned; a name that location_is_safe_name() allows */
    uint64_t size; /* bytes */
};

struct hub_listing {
    struct hub_file *file; /* [n_files] weights (safetensors) and the small files next to them; owned */
    size_t n_files;
    uint64_t bytes; /* of all */
};

/* Fetches the list at this URL: the files at the top of a repository. QN_ENOINPUT: there are no safetensors; the
 * message names the GGUF files, if there are any. QN_EDATA: malformed. Other errors are those of get_url(). */
int listing_fetch(struct hub_listing *l, const struct fetch_options *o, const char *url, struct qn_error *e);
/* The same for a list of n bytes that is here already; url: for messages. */
int listing_parse(struct hub_listing *l, const char *text, size_t n, const char *url, struct qn_error *e);
void listing_deinit(struct hub_listing *l);

#endif
