/* SPDX-License-Identifier: MIT
 *
 * listing.h: which files a hub's repository has, of those that make a model folder.
 */
#ifndef QUERN_FETCH_LISTING_H
#define QUERN_FETCH_LISTING_H

#include <stddef.h>
#include <stdint.h>

#include "base/error.h"
#include "fetch/fetch.h"

struct listing_file {
    char *name;    /* source_is_safe_name() */
    uint64_t size; /* bytes */
};

struct listing {
    struct listing_file *file; /* [n_files] weights (safetensors), and the small files beside them */
    size_t n_files;
    uint64_t bytes; /* of all */
};

/* The files at the top of the repository that the URL lists. QN_ENOINPUT: there are no safetensors; names the GGUF
 * files, if there are any. Else errors as ask()'s, QN_EDATA: malformed. */
int listing_fetch(struct listing *l, const struct fetch_options *o, const char *url, struct qn_error *e);
int listing_parse(struct listing *l, const char *text, size_t n, const char *url, struct qn_error *e);
void listing_deinit(struct listing *l);

#endif
