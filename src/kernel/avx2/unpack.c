/* SPDX-License-Identifier: MIT
 *
 * unpack.c: the functions that unpack blocks, to be called by loops that several types share.
 *
 * unpack256.h and unpack32.h have them as code to inline. A call unpacks several blocks, so that the constants are
 * loaded once for all of them.
 */
#include "kernel/avx2/unpack256.h"
#include "kernel/avx2/unpack32.h"

#define CALL_256(ID, name, ...)                                                                                        \
    static void rows_##name(const uint8_t *const *row, size_t at, int n, struct block256 *b)                           \
    {                                                                                                                  \
        for (int r = 0; r < n; r++) unpack256_##name(row[r] + at, b + r);                                              \
    }
#define CALL_32(ID, name, ...)                                                                                         \
    static void rows_##name(const uint8_t *const *row, size_t at, int n, struct blocks32 *b)                           \
    {                                                                                                                  \
        for (int r = 0; r < n; r++) unpack32_##name(row[r] + at, b + r);                                               \
    }
#define ENTRY(ID, name, ...) [DT_##ID] = rows_##name,

DTYPES_K256(CALL_256)
DTYPES_Q32(CALL_32)

unpack256_rows_fn *const avx2_unpack256[DT_N] = {DTYPES_K256(ENTRY)};
unpack32_rows_fn *const avx2_unpack32[DT_N] = {DTYPES_Q32(ENTRY)};
