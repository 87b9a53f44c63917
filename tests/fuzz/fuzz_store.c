/* SPDX-License-Identifier: MIT
 *
 * fuzz_store.c: libFuzzer entry for a stored conversation: its head, its token list, its way into the tree.
 *
 * The bytes are read as they are and once more with the checksums made right, because no fuzzer finds those by trying.
 * What is accepted is entered into a tree with a small ledger, asked for, and taken out again.
 */
#include <assert.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "base/hash.h"
#include "cache/chain_file.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

struct file {
    struct prefix *tree;
    struct prefix_node **nodes;
    struct prefix_snapshot *snapshot;
    int n_pages;
};

static void unplace_all(struct file *f)
{
    if (f->snapshot) prefix_snapshot_unplace(f->tree, f->snapshot);
    for (int i = f->n_pages - 1; i >= 0; i--)
        if (f->nodes[i]) prefix_unplace(f->tree, f->nodes[i]);
}

/* Nothing is put in a page's place here. */
static void forget(void *arg, struct prefix_place place, bool dropped)
{
    (void)arg;
    (void)place;
    (void)dropped;
    abort();
}

static void enter(const struct chain_head *h, void *index)
{
    const struct kv_shape shape = {KV_F32, 1, 1, 2, 2, 16, h->has_state ? 200 : 0, 0, 0};
    struct ledger ledger;
    struct kv_pool *pool;
    struct prefix *tree;
    struct kv_seq m;
    struct prefix_match match;
    struct prefix_place places[100];
    struct file f = {.n_pages = (int)chain_n_pages(h)};
    ledger_init(&ledger, 1 << 20);
    if (h->shape.page_slots != 16 || kv_pool_new(&pool, &shape, 64, 2, 0, &ledger, NULL)) return;
    int rc = prefix_new(&tree, pool, 1, &ledger, NULL);
    assert(!rc);
    f.tree = tree;
    f.nodes = mem_calloc((size_t)f.n_pages, sizeof *f.nodes);
    prefix_set_backing(tree, &(struct prefix_backing){&f, forget});
    const qn_token *tokens = chain_index_tokens(index);
    if (f.n_pages) rc = prefix_graft(tree, &h->key, tokens, (int)h->n_tokens, (int)h->first_page, &f, f.nodes, NULL);
    if (!rc && h->has_state) {
        struct prefix_place place = {.file = &f, .index = f.n_pages};
        rc = prefix_snapshot_graft(tree, &h->key, tokens, (int)h->n_tokens, place, &f.snapshot, NULL);
        assert((f.snapshot != NULL) == (!rc && f.n_pages && h->first_page == 0));
    }
    if (!rc) {
        int n = h->n_tokens < 1000 ? (int)h->n_tokens : 1000;
        rc = kv_seq_init(&m, pool, 1000, NULL);
        assert(!rc);
        prefix_find(tree, &h->key, tokens, n, &m, &match);
        assert(m.n_slots == 0 && match.n_slots <= n && (match.n_placed > 0) == (match.n_slots > 0));
        if (h->has_state) assert(match.n_slots == (f.snapshot && f.snapshot->n_slots <= n ? n : 0));
        n = prefix_places(tree, &h->key, tokens, match.n_slots, 0, places, 100);
        assert(n <= match.n_placed);
        for (int i = 0; i < n; i++) assert(places[i].file == &f && places[i].index == i);
        kv_seq_deinit(&m);
    }
    unplace_all(&f);
    prefix_set_backing(tree, NULL);
    mem_free(f.nodes);
    prefix_free(tree);
    kv_pool_free(pool);
    assert(ledger_used(&ledger) == 0);
}

static void read_file(uint8_t *data, size_t size, int seal)
{
    struct chain_head h;
    struct qn_error e = {0};
    if (size < CHAIN_HEAD_BYTES) return;
    if (seal) {
        uint64_t sum = hash_bytes(data, CHAIN_HEAD_BYTES - 8, 1);
        memcpy(data + CHAIN_HEAD_BYTES - 8, &sum, sizeof sum);
    }
    int rc = chain_head_read(&h, data, size, &e);
    if (rc) {
        assert(e.code == rc && e.msg[0] && !strchr(e.msg, '\n'));
        return;
    }
    assert(CHAIN_HEAD_BYTES + chain_index_bytes(&h) <= size && chain_file_bytes(&h) == size);
    void *index = mem_dup(data + CHAIN_HEAD_BYTES, chain_index_bytes(&h)); /* its end is watched */
    assert(index);
    if (seal) chain_index_seal(&h, index);
    if (!chain_index_check(&h, index, &e)) enter(&h, index);
    mem_free(index);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    for (int seal = 0; seal < 2; seal++) {
        uint8_t *copy = mem_dup(data, size);
        assert(copy);
        read_file(copy, size, seal);
        mem_free(copy);
    }
    return 0;
}
