/* SPDX-License-Identifier: MIT
 *
 * serve_sandbox.h: what `quern serve` can still reach once it runs. docs/SERVICE.md tells it to the operator.
 */
#ifndef QUERN_CLI_SERVE_SANDBOX_H
#define QUERN_CLI_SERVE_SANDBOX_H

#include "base/buf.h"
#include "server/http.h"

struct serve_paths {
    const char *const *models; /* [n_models] files, with the other parts of each */
    size_t n_models;
    const char *cache_dir, *hash_dir, *keys, *cert, *key; /* each may be NULL */
    const struct http_listen *sockets;                    /* [n_sockets] */
    int n_sockets;
};

/* Once the sockets are open, before any other thread runs. Makes the cache directory, for a rule can only be about what
 * is there. What cannot be fenced is added to `missing` (sandbox.h). */
int serve_fence_files(const struct serve_paths *p, struct buf *missing, struct qn_error *e);

#endif
