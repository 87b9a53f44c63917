/* SPDX-License-Identifier: MIT
 *
 * gguf_holes.h: copies a GGUF file with the weights of some layers only.
 *
 * The copy is a GGUF file with two more keys (gguf.h), which say what it has. Every tensor has its place in it. Where
 * data was left out, the file has a hole, which reads as zeros and takes no room on disk.
 */
#ifndef QUERN_FORMAT_GGUF_HOLES_H
#define QUERN_FORMAT_GGUF_HOLES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/error.h"

struct gguf_holes {
    uint32_t first, last; /* the layers whose weights the copy has */
    bool (*is_kept)(const void *arg, const char *tensor);
    const void *arg;
    size_t edge;                    /* bytes at each end of every other tensor that are copied nevertheless */
    bool (*goes_on)(void *watcher); /* asked between pieces; false: stop. NULL: it goes on */
    void *watcher;
};

/* Copies the file at `path` to fd, a new file that nobody reads yet; `to` is its name for messages. QN_ECANCEL: it was
 * stopped; QN_EIO: a read or a write failed; QN_EDATA: the file is malformed, or has some layers only itself. */
int gguf_copy_with_holes(int fd, const char *to, const char *path, const struct gguf_holes *h, struct qn_error *e);

#endif
