/* SPDX-License-Identifier: MIT
 *
 * registry.c: the supported families. A new family is a file in arch/ and a line here.
 */
#include <assert.h>
#include <stdio.h>
#include <string.h>

#include "model/arch/arch.h"

static const struct arch *const archs[] = {
    &arch_llama,  &arch_qwen2,      &arch_qwen3,     &arch_qwen2moe,  &arch_qwen3moe, &arch_gpt_oss,   &arch_gemma,
    &arch_gemma2, &arch_gemma3,     &arch_phi3,      &arch_glm4,      &arch_granite,  &arch_olmo2,     &arch_smollm3,
    &arch_bitnet, &arch_bitnet_158, &arch_bitnet_25, &arch_qwen3next, &arch_qwen35,   &arch_qwen35moe, &arch_deepseek2,
};

const struct arch *arch_find(const char *name, size_t n)
{
    for (size_t i = 0; i < sizeof archs / sizeof archs[0]; i++)
        if (strlen(archs[i]->name) == n && memcmp(archs[i]->name, name, n) == 0) return archs[i];
    return NULL;
}

const char *arch_names(char *buf, size_t bytes)
{
    size_t n = 0;
    for (size_t i = 0; i < sizeof archs / sizeof archs[0]; i++) {
        n += (size_t)snprintf(buf + n, bytes - n, "%s%s", i ? ", " : "", archs[i]->name);
        assert(n < bytes);
    }
    return buf;
}
