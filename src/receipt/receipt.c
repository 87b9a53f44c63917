/* SPDX-License-Identifier: MIT
 *
 * receipt.c: the names in a receipt, its hash, and the values that all who make one compute alike. See receipt.h.
 */
#include "receipt/receipt_impl.h"

#include <stddef.h>
#include <stdio.h>

#include "base/json/json_text.h"
#include "base/mem.h"
#include "base/rng.h"

#define REAL(member)                                                                                                   \
    {                                                                                                                  \
#member, offsetof(struct qn_sampling, member), true                                                            \
    }
#define WHOLE(member)                                                                                                  \
    {                                                                                                                  \
#member, offsetof(struct qn_sampling, member), false                                                           \
    }
const struct receipt_number receipt_numbers[] = {
    WHOLE(penalty_last_n),
    REAL(repetition_penalty),
    REAL(frequency_penalty),
    REAL(presence_penalty),
    REAL(dry_multiplier),
    REAL(dry_base),
    WHOLE(dry_allowed_length),
    WHOLE(dry_last_n),
    REAL(top_n_sigma),
    WHOLE(top_k),
    REAL(typical_p),
    REAL(top_p),
    REAL(min_p),
    REAL(xtc_probability),
    REAL(xtc_threshold),
    REAL(temperature),
    REAL(mirostat_tau),
    REAL(mirostat_eta),
    {NULL, 0, false},
};

const char *const receipt_kv_names[] = {[QN_KV_F16] = "f16", [QN_KV_F32] = "f32", [QN_KV_Q8_0] = "q8_0", NULL};
const char *const receipt_end_names[] = {"", "token", "text", "length", "call", "cancelled", NULL};
const char *const receipt_form_names[] = {"json_object", "json_schema", "gbnf", "regex", "choice", NULL};

const char *receipt_end_name(enum receipt_end end) { return receipt_end_names[end]; }
const char *receipt_kv_name(enum qn_kv kv) { return receipt_kv_names[kv]; }

int receipt_hash(char hex[RECEIPT_HEX], const json_t *document, struct qn_error *e)
{
    struct buf text = {0};
    struct sha256 s;
    uint8_t hash[SHA256_BYTES];
    int rc = json_text_add(&text, document, RECEIPT_FLAGS, "a receipt", e);
    if (!rc) {
        sha256_init(&s);
        sha256_add(&s, text.data, text.len);
        sha256_end(&s, hash);
        sha256_hex(hash, hex);
    }
    buf_deinit(&text);
    return rc;
}

void receipt_make_salt(char salt[RECEIPT_SALT + 1])
{
    for (int i = 0; i < RECEIPT_SALT; i += 16)
        snprintf(salt + i, 17, "%016llx", (unsigned long long)rng_seed_from_os());
}

int receipt_max_tokens(int asked, int n_slots, size_t n_prompt)
{
    int room = n_slots - (int)n_prompt;
    return asked < 0 || asked > room ? room : asked;
}

int receipt_max_tokens_rotating(int asked, int n_slots) { return asked < 0 ? n_slots : asked; }

void receipt_deinit(struct receipt *r)
{
    json_decref(r->root);
    for (int i = 0; i < r->n_lists; i++) mem_free(r->lists[i]);
    *r = (struct receipt){0};
}
