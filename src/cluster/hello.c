/* SPDX-License-Identifier: MIT
 *
 * hello.c: writes and compares the first packet of a group. See hello.h.
 */
#include "cluster/hello.h"

#include <quern.h>
#include <stdio.h>
#include <string.h>

#include "model/arithmetic.h"

_Static_assert(sizeof(struct hello) % 4 == 0, "packets are made of numbers of 4 bytes");

/* ---- writing ---- */

static void add_u64(struct sha256 *s, uint64_t v) { sha256_add(s, &v, sizeof v); }

void hello_model(uint8_t out[SHA256_BYTES], const struct model *m)
{
    struct sha256 s;
    sha256_init(&s);
    for (size_t i = 0; i < weights_n_tensors(m->weights); i++) {
        const struct tensor *t = weights_tensor_at(m->weights, i);
        size_t n = t->bytes < HELLO_EDGE ? t->bytes : HELLO_EDGE;
        sha256_add(&s, t->name, strlen(t->name) + 1);
        add_u64(&s, (uint64_t)t->type);
        for (int k = 0; k < TENSOR_MAX_DIMS; k++) add_u64(&s, (uint64_t)t->ne[k]);
        sha256_add(&s, t->data, n);
        sha256_add(&s, t->data + t->bytes - n, n);
    }
    sha256_end(&s, out);
}

void hello_init(struct hello *h, const struct model *m, int n_stages)
{
    *h = (struct hello){.arithmetic = MODEL_ARITHMETIC, .n_layer = m->hp.n_layer, .n_stages = n_stages};
    snprintf(h->version, sizeof h->version, "%s", qn_version());
    hello_model(h->model, m);
    for (int i = 0; i <= n_stages; i++) h->cuts[i] = i * m->hp.n_layer / n_stages;
}

void packet_hello(struct packet_out *out, const struct hello *h)
{
    packet_begin(out, PACKET_HELLO, 0, 0);
    packet_put(out, h, sizeof *h);
    packet_end(out);
}

/* ---- reading ---- */

static int check_program(const struct hello *h, const struct hello *own, const char *who, struct qn_error *e)
{
    char its_model[2 * SHA256_BYTES + 1], own_model[2 * SHA256_BYTES + 1];
    if (memcmp(h->version, own->version, sizeof own->version))
        return error_set(e, QN_EUNSUP, "%s has quern %s, the head has %s", who, own->version, h->version);
    if (h->arithmetic != own->arithmetic)
        return error_set(e, QN_EUNSUP, "%s has version %d of the arithmetic, the head has %d", who, own->arithmetic,
                         h->arithmetic);
    sha256_hex(h->model, its_model);
    sha256_hex(own->model, own_model);
    if (memcmp(h->model, own->model, sizeof own->model))
        return error_set(e, QN_EDATA, "%s has another model file (%.12s) than the head (%.12s)", who, own_model,
                         its_model);
    return 0;
}

static int check_number(int64_t n, int64_t least, int64_t most, const char *what, struct qn_error *e)
{
    if (n >= least && n <= most) return 0;
    return error_set(e, QN_EDATA, "cluster: the head's %s is %lld, not in %lld..%lld", what, (long long)n,
                     (long long)least, (long long)most);
}

static int check_settings(const struct hello *h, const struct model *m, struct qn_error *e)
{
    const struct step_limits *l = &h->limits;
    int rc;
    if ((rc = check_number(h->kv, 0, KV_Q8_0, "KV type", e)) ||
        (rc = check_number(h->n_ctx, 1, HP_MAX_CTX, "context", e)) ||
        (rc = check_number(h->n_threads, 0, 1024, "number of threads", e)) ||
        (rc = check_number(h->n_stages, 1, STAGE_MOST, "number of stages", e)) ||
        (rc = check_number(h->n_layer, m->hp.n_layer, m->hp.n_layer, "number of layers", e)) ||
        (rc = check_number(h->cuts[0], 0, 0, "first layer", e)) ||
        (rc = check_number(h->cuts[h->n_stages], m->hp.n_layer, m->hp.n_layer, "last layer", e)))
        return rc;
    for (int i = 0; i < h->n_stages; i++)
        if ((rc = check_number(h->cuts[i + 1], h->cuts[i] + 1, m->hp.n_layer, "cut", e))) return rc;
    if ((rc = check_number(l->n_rows, 1, 65536, "rows", e)) ||
        (rc = check_number(l->n_seqs, 1, 65536, "sequences", e)) ||
        (rc = check_number(l->n_moves, 1, 1 << 20, "moves", e)) ||
        (rc = check_number(l->n_logits, 1, l->n_rows, "rows with logits", e)) ||
        (rc = check_number(l->n_pages, 1, INT32_MAX / KV_PAGE_SLOTS, "pages", e)) ||
        (rc = check_number(l->n_windows, 0, INT32_MAX, "window pages", e)) ||
        (rc = check_number(l->n_states, 0, INT32_MAX, "states", e)) ||
        (rc = check_number(l->n_embd, m->hp.n_embd, m->hp.n_embd, "width", e)) ||
        (rc = check_number(l->rounds_rows, 0, 1, "rounding of rows", e)) ||
        (rc = check_number(l->n_vocab, m->hp.n_vocab, m->hp.n_vocab, "vocabulary", e)) ||
        (rc = check_number(l->window, m->hp.n_swa, m->hp.n_swa, "window", e)) ||
        (rc = check_number(l->page_slots, KV_PAGE_SLOTS, KV_PAGE_SLOTS, "page", e)))
        return rc;
    int each = (h->n_ctx + KV_PAGE_SLOTS - 1) / KV_PAGE_SLOTS;
    return check_number(l->n_pages_each, each, each, "pages of a sequence", e);
}

int hello_read(struct hello *out, struct packet_in in, const struct model *m, const char *who, struct qn_error *e)
{
    struct hello h, own;
    if (in.n != sizeof h)
        return error_set(e, QN_EDATA, "%s: the head's first packet has %zu bytes, not %zu", who, in.n, sizeof h);
    memcpy(&h, in.p, sizeof h);
    h.version[sizeof h.version - 1] = '\0';
    hello_init(&own, m, 1);
    int rc = check_program(&h, &own, who, e);
    if (!rc) rc = check_settings(&h, m, e);
    if (!rc) *out = h;
    return rc;
}
