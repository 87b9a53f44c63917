/* SPDX-License-Identifier: MIT
 *
 * pretok_table.h: the patterns that the name of a pre-tokeniser stands for.
 */
#ifndef QUERN_TEXT_PRETOK_TABLE_H
#define QUERN_TEXT_PRETOK_TABLE_H

#include <stddef.h>

#define PRETOK_MAX_PATTERNS 6

/* Patterns are applied in order. Each one cuts every piece that the one before it left into its matches and the gaps
 * between them. PCRE2 syntax, UTF mode. NULL ends a list shorter than PRETOK_MAX_PATTERNS. */
struct pretok_family {
    const char *pattern[PRETOK_MAX_PATTERNS];
};

struct pretok_entry {
    const char *name; /* a value of `tokenizer.ggml.pre` */
    const struct pretok_family *family;
    unsigned flags; /* enum pretok_flag */
};

/* Sorted by family, not by name; the first entry is "default". */
extern const struct pretok_entry pretok_table[];
extern const size_t pretok_table_n;

#endif
