/* SPDX-License-Identifier: MIT
 *
 * fuzz_safetensors.c: libFuzzer entry for the header of a safetensors file.
 *
 * What is accepted is read to the last byte: every tensor lies inside. A refusal must carry one line.
 */
#include <assert.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "format/hf/safetensors.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct safetensors s;
    struct qn_error e = {0};
    unsigned sum = 0;
    if (safetensors_parse(&s, data, size, &e)) {
        assert(e.code < 0 && e.msg[0] && !strchr(e.msg, '\n'));
        return 0;
    }
    const uint8_t *end = data;
    for (size_t i = 0; i < s.n; i++) {
        const struct st_tensor *t = &s.tensor[i];
        assert(t->data >= end && t->bytes <= (size_t)(data + size - t->data)); /* in order, without overlaps */
        end = t->data + t->bytes;
        for (size_t k = 0; k < t->bytes; k++) sum += t->data[k];
    }
    safetensors_deinit(&s);
    __asm__ volatile("" : : "r"(sum)); /* the reads must happen */
    return 0;
}
