/* SPDX-License-Identifier: MIT
 *
 * fuzz_gguf.c: libFuzzer entry for the GGUF header parser.
 *
 * A file that is accepted is then read as the rest of the engine would: every string and
 * number of the metadata, every byte of the tensors. A refusal must carry one line.
 */
#include <assert.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "format/file/finite.h"
#include "format/gguf/gguf.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static unsigned sum_bytes(const uint8_t *p, size_t n)
{
    unsigned sum = 0;
    for (size_t i = 0; i < n; i++) sum += p[i];
    return sum;
}

static unsigned read_meta(const struct meta *m)
{
    struct str s;
    struct qn_error e;
    int64_t n = 0;
    double v = 0;
    uint64_t cursor = 0;
    unsigned sum = 0;
    while (meta_next_str(m, &cursor, &s)) sum += sum_bytes((const uint8_t *)s.p, s.n);
    for (uint64_t i = 0; i < m->n && i < 1000; i++) {
        meta_elem_i64(m, i, &n, &e);
        meta_elem_f64(m, i, &v, &e);
        sum += (unsigned)n;
    }
    return sum;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct gguf g;
    struct qn_error e = {0};
    unsigned sum = 0;
    if (gguf_parse(&g, data, size, &e)) {
        assert(e.code < 0 && e.msg[0] && !strchr(e.msg, '\n'));
        return 0;
    }
    for (size_t i = 0; i < g.n_meta; i++) sum += read_meta(&g.meta[i]);
    for (size_t i = 0; i < g.n_tensors; i++) {
        sum += sum_bytes(g.tensors[i].data, g.tensors[i].bytes);
        finite_check(&g.tensors[i], &e);
    }
    gguf_deinit(&g);
    __asm__ volatile("" : : "r"(sum)); /* the reads must happen */
    return 0;
}
