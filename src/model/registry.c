/* SPDX-License-Identifier: MIT
 *
 * registry.c: the supported families. A new family is a file in arch/ and a line here.
 */
#include <string.h>

#include "model/arch/arch.h"

static const struct arch *const archs[] = {&arch_llama, &arch_qwen2, &arch_qwen3};

const struct arch *arch_find(const char *name, size_t n)
{
    for (size_t i = 0; i < sizeof archs / sizeof archs[0]; i++)
        if (strlen(archs[i]->name) == n && memcmp(archs[i]->name, name, n) == 0) return archs[i];
    return NULL;
}

const char *arch_names(void) { return "llama, qwen2, qwen3"; }
