/* SPDX-License-Identifier: MIT
 *
 * split.h: the file names of a split model: PREFIX-00001-of-00005.gguf and its siblings.
 *
 * Source: the naming that llama.cpp's gguf-split writes and reads (docs/FORMATS.md).
 */
#ifndef QUERN_FORMAT_SPLIT_H
#define QUERN_FORMAT_SPLIT_H

#include <stdint.h>

#include "base/error.h"

#define SPLIT_MAX_PARTS    1000
#define SPLIT_SUFFIX_BYTES 20 /* "-00001-of-00005.gguf" */

/* Reads from a path which part (*no, from 1) of how many (*n) the file is; 1 of 1 when the path does not end like one.
 */
void split_parse(const char *path, uint64_t *no, uint64_t *n);
/* Makes the name of part `no` (from 0) of n from the path of any part. *out is the caller's, to mem_free(); NULL when
 * the path does not end like a part of n. QN_ENOMEM. */
int split_path(char **out, const char *path, uint64_t no, uint64_t n, struct qn_error *e);

#endif
