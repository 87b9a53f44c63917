/* SPDX-License-Identifier: MIT
 *
 * model_print.c: tells models apart by their metadata and samples of their tensors, without reading the whole files.
 */
#include "engine/core/model_print.h"

#include <string.h>

#include "base/hash.h"

#define SAMPLE_BYTES 512 /* bytes of a tensor, at each of three places */

static void add_u64(struct sha256 *s, uint64_t v) { sha256_add(s, &v, sizeof v); }

/* A value can be a vocabulary of several megabytes, so its quick hash is added in its place. */
static void add_meta(struct sha256 *s, const struct meta *m)
{
    add_u64(s, m->key.n);
    sha256_add(s, m->key.p, m->key.n);
    add_u64(s, (uint64_t)m->type);
    add_u64(s, (uint64_t)m->elem);
    add_u64(s, m->n);
    add_u64(s, hash_bytes(m->data, m->bytes, 0));
}

static void add_sample(struct sha256 *s, const struct tensor *t, size_t at)
{
    size_t left = t->bytes - at;
    sha256_add(s, t->data + at, left < SAMPLE_BYTES ? left : SAMPLE_BYTES);
}

static void add_tensor(struct sha256 *s, const struct tensor *t)
{
    sha256_add(s, t->name, strlen(t->name) + 1);
    add_u64(s, (uint64_t)t->type);
    for (int i = 0; i < t->n_dims; i++) add_u64(s, (uint64_t)t->ne[i]);
    add_u64(s, t->bytes);
    add_sample(s, t, 0);
    add_sample(s, t, t->bytes / 2);
    add_sample(s, t, t->bytes > SAMPLE_BYTES ? t->bytes - SAMPLE_BYTES : 0);
}

void model_print(const struct weights *w, uint8_t out[SHA256_BYTES])
{
    struct sha256 s;
    size_t n_meta = weights_n_meta(w), n_tensors = weights_n_tensors(w);
    sha256_init(&s);
    add_u64(&s, n_meta);
    for (size_t i = 0; i < n_meta; i++) add_meta(&s, weights_meta_at(w, i));
    add_u64(&s, n_tensors);
    for (size_t i = 0; i < n_tensors; i++) add_tensor(&s, weights_tensor_at(w, i));
    sha256_end(&s, out);
}
