/* SPDX-License-Identifier: MIT
 *
 * hf_tokenizer_open.h: opens the tokenizer of a Hugging Face folder as a model file without tensors, for tests.
 */
#ifndef QUERN_TESTS_HF_TOKENIZER_OPEN_H
#define QUERN_TESTS_HF_TOKENIZER_OPEN_H

#include <assert.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "format/hf/hf_tokenizer.h"
#include "format/weights.h"

/* The list as the bytes of a GGUF file. */
static inline void hf_gguf_bytes(const struct meta_list *l, struct buf *out)
{
    uint32_t head[2] = {0x46554747, 3};
    uint64_t counts[2] = {0, l->n};
    static const uint8_t zeros[32];
    int rc = buf_add(out, head, sizeof head, NULL) | buf_add(out, counts, sizeof counts, NULL);
    for (size_t i = 0; i < l->n; i++) {
        const struct meta *m = &l->meta[i];
        uint64_t n_key = m->key.n;
        uint32_t type = m->type, elem = m->elem;
        rc |= buf_add(out, &n_key, 8, NULL) | buf_add(out, m->key.p, m->key.n, NULL) | buf_add(out, &type, 4, NULL);
        if (m->type == MT_ARRAY) rc |= buf_add(out, &elem, 4, NULL) | buf_add(out, &m->n, 8, NULL);
        rc |= buf_add(out, m->data, m->bytes, NULL);
    }
    rc |= buf_add(out, zeros, 32 - out->len % 32, NULL);
    assert(rc == 0);
}

/* Opens what was built; b is empty then. Files are opened by name. */
static inline int hf_built_open(struct weights **w, struct meta_build *b, struct qn_error *e)
{
    struct meta_list l = {0};
    struct buf bytes = {0};
    int rc = meta_build_finish(b, &l, e);
    if (rc) return rc;
    hf_gguf_bytes(&l, &bytes);
    meta_list_deinit(&l);
    char path[64];
    int fd = memfd_create("tokenizer", 0);
    assert(fd >= 0);
    snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    for (size_t done = 0; done < bytes.len;) {
        ssize_t n = write(fd, bytes.data + done, bytes.len - done);
        assert(n > 0);
        done += (size_t)n;
    }
    buf_deinit(&bytes);
    rc = weights_open(w, path, e);
    close(fd);
    return rc;
}

static inline int hf_tokenizer_open(struct weights **w, const char *dir, const json_t *config, struct qn_error *e)
{
    struct meta_build b = {0};
    int rc = hf_tokenizer_meta(&b, dir, config, e);
    if (rc == 0) rc = hf_built_open(w, &b, e);
    meta_build_deinit(&b);
    return rc;
}

#endif
