/* SPDX-License-Identifier: MIT
 *
 * fuzz_config.c: libFuzzer entry for config.json: from its text to metadata, and names of tensors to their roles.
 *
 * Input: the text; what follows a NUL is the name of a tensor.
 */
#include <assert.h>
#include <math.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "base/mem.h"
#include "format/hf/hf_config.h"
#include "format/hf/hf_json.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void read_all(const json_t *config, const char *name, struct qn_error *e)
{
    struct hf_config c;
    struct hf_role role;
    struct meta_build b = {0};
    struct meta_list l;
    e->code = hf_config_read(&c, config, e);
    if (e->code) return;
    if (hf_role_of(c.family, c.n_layer, name, &role)) assert(strlen(role.name) < sizeof role.name);
    e->code = hf_config_meta(&c, &b, strlen(name) % 2, e);
    if (!e->code) e->code = hf_config_tokens(&c, &b, e);
    if (!e->code && !meta_build_finish(&b, &l, e)) {
        for (int i = 0; i < c.n_freqs; i++) assert(!isnan(c.freqs[i]));
        assert(l.n > 5);
        meta_list_deinit(&l);
    }
    meta_build_deinit(&b);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct qn_error e = {0};
    json_t *config;
    size_t n = strnlen((const char *)data, size);
    char *name = mem_dup(data + n, size - n);
    e.code = hf_json_parse(&config, "config.json", (const char *)data, n, &e);
    if (!e.code) {
        read_all(config, n < size ? name + 1 : name, &e);
        json_decref(config);
    }
    assert(!e.code || (e.msg[0] && !strchr(e.msg, '\n')));
    mem_free(name);
    return 0;
}
