/* SPDX-License-Identifier: MIT
 *
 * meta.h: reading one metadata value, for use inside this layer.
 */
#ifndef QUERN_FORMAT_META_H
#define QUERN_FORMAT_META_H

#include "format/weights.h"

/* Bytes of a value in the file; 0 for strings and arrays, whose size depends on them. */
size_t meta_type_bytes(enum meta_type t);
/* As meta_u64, on a value already found. */
int meta_get_u64(const struct meta *m, uint64_t lo, uint64_t hi, uint64_t *out, struct qn_error *e);

#endif
