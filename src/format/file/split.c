/* SPDX-License-Identifier: MIT
 *
 * split.c: reads and makes the file names of a split model's parts.
 */
#include "format/file/split.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"

void split_parse(const char *path, uint64_t *no, uint64_t *n)
{
    size_t len = strlen(path);
    *no = *n = 1;
    if (len <= SPLIT_SUFFIX_BYTES) return;
    const char *s = path + len - SPLIT_SUFFIX_BYTES;
    if (s[0] != '-' || strspn(s + 1, "0123456789") != 5 || strncmp(s + 6, "-of-", 4) ||
        strspn(s + 10, "0123456789") != 5 || strcmp(s + 15, ".gguf"))
        return;
    unsigned long its_no = strtoul(s + 1, NULL, 10), its_n = strtoul(s + 10, NULL, 10);
    if (its_no < 1 || its_no > its_n || its_n > SPLIT_MAX_PARTS) return; /* an odd name, but one file */
    *no = its_no;
    *n = its_n;
}

int split_path(char **out, const char *path, uint64_t no, uint64_t n, struct qn_error *e)
{
    char of[SPLIT_SUFFIX_BYTES];
    size_t len = strlen(path);
    snprintf(of, sizeof of, "-of-%05u.gguf", (unsigned)n);
    *out = NULL;
    if (len <= SPLIT_SUFFIX_BYTES || strcmp(path + len - strlen(of), of)) return 0;
    const char *number = path + len - SPLIT_SUFFIX_BYTES;
    if (number[0] != '-' || strspn(number + 1, "0123456789") != 5) return 0;
    *out = mem_dup(path, len);
    if (!*out) return error_nomem(e, "a file name", len);
    snprintf(*out + len - SPLIT_SUFFIX_BYTES, SPLIT_SUFFIX_BYTES + 1, "-%05u-of-%05u.gguf", (unsigned)no + 1,
             (unsigned)n);
    return 0;
}
