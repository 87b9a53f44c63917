/* SPDX-License-Identifier: MIT
 *
 * serve_sandbox.h: the files that `quern serve` can reach once it runs. docs/SERVICE.md describes it for operators.
 */
#ifndef QUERN_CLI_SERVE_SANDBOX_H
#define QUERN_CLI_SERVE_SANDBOX_H

#include "base/buf.h"
#include "server/http/http.h"

struct serve_paths {
    const char *const *models; /* [n_models] files; the other parts of each are included */
    size_t n_models;
    const char *cache_dir, *hash_dir, *keys, *cert, *key; /* each may be NULL */
    const struct http_listen *sockets;                    /* [n_sockets] */
    int n_sockets;
};

/* Fences the files. To be called when the sockets are open and before any other thread runs. Makes the cache
 * directory, because a rule needs a directory that exists. What cannot be fenced is appended to `missing` (sandbox.h).
 */
int serve_fence_files(const struct serve_paths *p, struct buf *missing, struct qn_error *e);

#endif
