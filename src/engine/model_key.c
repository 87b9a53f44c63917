/* SPDX-License-Identifier: MIT
 *
 * model_key.c: see model_key.h.
 */
#include "engine/model_key.h"

#include <string.h>

#include "model/arithmetic.h"

void model_key(const struct qn_engine *g, const char *what, const uint8_t model[SHA256_BYTES],
               uint8_t out[CHAIN_MODEL_BYTES])
{
    const struct hparams *p = &g->model->hp;
    const struct kv_shape *kv = kv_pool_shape(g->kv);
    uint8_t hash[SHA256_BYTES];
    struct sha256 s;
    const uint32_t numbers[] = {MODEL_ARITHMETIC, (uint32_t)kv->type, (uint32_t)kv->page_slots,
                                p->rope_scaling == ROPE_LONG && g->n_ctx > p->rope_ctx_orig};
    sha256_init(&s);
    sha256_add(&s, what, strlen(what) + 1);
    sha256_add(&s, numbers, sizeof numbers);
    sha256_add(&s, model, SHA256_BYTES);
    sha256_end(&s, hash);
    memcpy(out, hash, CHAIN_MODEL_BYTES);
}
