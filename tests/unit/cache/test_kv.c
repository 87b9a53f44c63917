/* SPDX-License-Identifier: MIT
 *
 * test_kv.c: KV pages: their layout, forks, refusals that change nothing, and a long random history that is compared
 * with plain arrays.
 *
 * Keys and values are written through the reference kernels and read back by the layout that kernel.h documents. So a
 * page table that mixes up two slots, layers or heads shows as a wrong number.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdio.h>
#include <string.h>

#include "base/os.h"
#include "base/rng.h"
#include "cache/kv.h"

/* 2 layers, 3 KV heads, 4 dims, pages of 16 */
static const struct kv_shape small = {KV_F32, 2, 3, 4, 4, 16, 0, 0, 0};

static struct ledger ledger;

static struct kv_pool *make_pool(const struct kv_shape *s, int n_slots)
{
    struct kv_pool *p = NULL;
    struct qn_error e = {0};
    ledger_init(&ledger, (size_t)1 << 40);
    if (kv_pool_new(&p, s, n_slots, 0, 0, &ledger, &e)) fail_msg("%s", e.msg);
    return p;
}

static void free_pool(struct kv_pool *p)
{
    kv_pool_free(p);
    assert_int_equal(ledger_used(&ledger), 0);
}

static void make_memory(struct kv_seq *m, struct kv_pool *p, int max_slots)
{
    assert_int_equal(kv_seq_init(m, p, max_slots, NULL), 0);
}

static void grow(struct kv_seq *m, int n_slots)
{
    struct qn_error e = {0};
    if (kv_seq_reserve(m, n_slots, &e)) fail_msg("%s", e.msg);
    kv_seq_extend(m, n_slots);
}

/* A number in a slot. It encodes the slot's tag, layer, head, dim and side. */
static float number(int tag, int layer, int head, int dim, int side)
{
    return (float)((((tag * 2 + layer) * 3 + head) * 4 + dim) * 2 + side);
}

static void write_slot(struct kv_seq *m, int s, int tag)
{
    struct kernels k = {0};
    uint8_t *page = m->pages[s / small.page_slots];
    kernels_init_ref(&k);
    for (int il = 0; il < small.n_layer; il++)
        for (int h = 0; h < small.n_head_kv; h++)
            for (int side = 0; side < 2; side++) {
                float x[4];
                uint8_t *area = page + (side ? kv_value_offset : kv_key_offset)(m->pool, il, h);
                for (int d = 0; d < 4; d++) x[d] = number(tag, il, h, d, side);
                (side ? k.put_value : k.put_key)(KV_F32, x, 4, area, s % small.page_slots, NULL);
            }
}

/* The tag in slot s, or -1 if its numbers do not belong together. */
static int read_slot(const struct kv_seq *m, int s)
{
    const uint8_t *page = m->pages[s / small.page_slots];
    int in_page = s % small.page_slots, tag = -1;
    for (int il = 0; il < small.n_layer; il++)
        for (int h = 0; h < small.n_head_kv; h++) {
            const float *keys = (const float *)(page + kv_key_offset(m->pool, il, h));
            const float *values = (const float *)(page + kv_value_offset(m->pool, il, h));
            for (int d = 0; d < 4; d++) {
                /* groups of KV_GROUP slots, each [head_dim][KV_GROUP]; values are [slot][head_dim] */
                float key = keys[in_page / KV_GROUP * 4 * KV_GROUP + d * KV_GROUP + in_page % KV_GROUP];
                if (tag < 0) tag = (int)key / 48;
                if (key != number(tag, il, h, d, 0) || values[in_page * 4 + d] != number(tag, il, h, d, 1)) return -1;
            }
        }
    return tag;
}

/* ---- pages ---- */

static void areas_are_aligned_and_apart(void **state)
{
    (void)state;
    for (enum kv_type t = 0; t < KV_N; t++)
        for (int dim = 2; dim <= 130; dim += 32) {
            struct kv_shape s = {t, 3, 2, dim, dim, 32, 0, 0, 0};
            struct kv_pool *p = make_pool(&s, 100);
            size_t keys = kv_key_bytes(t, dim) * 2, values = kv_value_bytes(t, dim) * 32, at = 0;
            for (int il = 0; il < 3; il++)
                for (int h = 0; h < 2; h++) {
                    assert_true(kv_key_offset(p, il, h) >= at);
                    assert_int_equal(kv_key_offset(p, il, h) % 64, 0);
                    assert_true(kv_value_offset(p, il, h) >= kv_key_offset(p, il, h) + keys);
                    assert_int_equal(kv_value_offset(p, il, h) % 64, 0);
                    at = kv_value_offset(p, il, h) + values;
                }
            assert_true(at <= kv_page_bytes(&s));
            assert_int_equal(kv_page_bytes(&s) % 64, 0);
            free_pool(p);
        }
}

static void the_ledger_holds_whole_pages(void **state)
{
    (void)state;
    struct kv_pool *p = make_pool(&small, 33); /* three pages */
    assert_int_equal(kv_pool_n_free(p), 3);
    assert_int_equal(ledger_used(&ledger), 3 * kv_page_bytes(&small));
    free_pool(p);
}

static void a_pool_over_budget_is_refused(void **state)
{
    (void)state;
    struct kv_pool *p = NULL;
    struct qn_error e = {0};
    char needed[32];
    size_t before = os_resident_bytes();
    struct kv_shape large = {KV_F16, 64, 64, 128, 128, 64, 0, 0, 0};
    ledger_init(&ledger, (size_t)1 << 30);
    ledger_take(&ledger, 1000, "x", NULL);
    assert_int_equal(kv_pool_new(&p, &large, 1 << 20, 0, 0, &ledger, &e), QN_ENOMEM);
    assert_null(p);
    snprintf(needed, sizeof needed, "%zu bytes", kv_page_bytes(&large) << 14);
    assert_non_null(strstr(e.msg, needed));
    assert_non_null(strstr(e.msg, "of 1073741824"));
    assert_int_equal(ledger_used(&ledger), 1000);
    assert_true(os_resident_bytes() < before + (4 << 20));
}

static void pages_are_not_resident_before_they_are_written(void **state)
{
    (void)state;
    struct kv_shape s = {KV_F16, 32, 8, 128, 128, 64, 0, 0, 0};
    size_t before = os_resident_bytes();
    struct kv_pool *p = make_pool(&s, 4096);
    struct kv_seq m;
    make_memory(&m, p, 4096);
    grow(&m, 4096);
    assert_true(ledger_used(&ledger) >= (size_t)512 << 20);
    assert_true(os_resident_bytes() < before + (16 << 20));
    kv_seq_deinit(&m);
    free_pool(p);
}

static void what_runs_out_of_memory_is_left_alone(void **state)
{
    (void)state;
    int n = 1;
    for (;; n++) {
        struct kv_pool *p = NULL;
        struct qn_error e = {0};
        ledger_init(&ledger, 1 << 20);
        mem_fault_set((uint64_t)n);
        int rc = kv_pool_new(&p, &small, 64, 0, 0, &ledger, &e);
        if (!mem_fault_hit()) {
            mem_fault_set(0);
            free_pool(p);
            break;
        }
        assert_int_equal(rc, QN_ENOMEM);
        assert_null(p);
        assert_int_equal(ledger_used(&ledger), 0);
    }
    assert_int_equal(n, 5); /* the pool, its list, its counts, its pages */
    struct kv_pool *p = make_pool(&small, 64);
    struct kv_seq m = {.n_pages = 77};
    mem_fault_set(1);
    assert_int_equal(kv_seq_init(&m, p, 64, NULL), QN_ENOMEM);
    mem_fault_set(0);
    assert_int_equal(m.n_pages, 77);
    free_pool(p);
}

/* Only as much as is asked for, of pages that may be in use already. */
static void touched_pages_are_resident(void **state)
{
    (void)state;
    struct kv_shape s = {KV_F16, 32, 8, 128, 128, 64, 0, 0, 0};
    struct kv_pool *p = make_pool(&s, 640);
    size_t page = kv_page_bytes(&s), before = os_resident_bytes(), slack = (size_t)3 << 20;
    uint8_t *first = kv_page_get(p);
    first[page - 1] = 77;
    assert_false(kv_pool_touch(p, 0));
    assert_true(os_resident_bytes() < before + slack);
    int n_steps = 0;
    while (kv_pool_touch(p, 2)) n_steps++;
    assert_int_equal(n_steps, (2 * page + (2 << 20) - 1) >> 21);
    assert_int_equal(kv_pool_n_touched(p), 2);
    size_t now = os_resident_bytes();
    assert_true(now + slack > before + 2 * page && now < before + 2 * page + slack);
    assert_int_equal(first[page - 1], 77);
    kv_page_unref(p, first);
    while (kv_pool_touch(p, 1000)) n_steps++;
    assert_int_equal(kv_pool_n_touched(p), 10);
    assert_int_equal(ledger_used(&ledger), 10 * page);
    free_pool(p);
}

/* ---- one sequence ---- */

static void pages_come_and_go_with_the_slots(void **state)
{
    (void)state;
    static const int lengths[] = {1, 16, 17, 32, 33, 100, 64, 63, 17, 16, 15, 0};
    struct kv_pool *p = make_pool(&small, 112);
    struct kv_seq m;
    make_memory(&m, p, 112);
    uint64_t calls = mem_n_calls();
    for (size_t i = 0; i < sizeof lengths / sizeof *lengths; i++) {
        if (lengths[i] > m.n_slots)
            grow(&m, lengths[i]);
        else
            kv_seq_truncate(&m, lengths[i]);
        assert_int_equal(m.n_slots, lengths[i]);
        assert_int_equal(m.n_pages, (lengths[i] + 15) / 16);
        assert_int_equal(kv_pool_n_free(p), 7 - m.n_pages);
        assert_int_equal(kv_pool_n_touched(p), i < 1 ? 1 : i < 2 ? 1 : i < 4 ? 2 : i < 5 ? 3 : 7); /* the most so far */
    }
    grow(&m, 20);
    assert_int_equal(kv_seq_reserve(&m, 20, NULL), 0); /* nothing new */
    assert_int_equal(kv_seq_reserve(&m, 5, NULL), 0);
    assert_int_equal(m.n_pages, 2);
    assert_int_equal(mem_n_calls(), calls); /* pages never ask the allocator */
    kv_seq_deinit(&m);
    kv_seq_deinit(&m); /* once more is fine */
    free_pool(p);
}

static void refusals_name_the_numbers_and_change_nothing(void **state)
{
    (void)state;
    struct kv_pool *p = make_pool(&small, 64);
    struct kv_seq a, b;
    struct qn_error e = {0};
    make_memory(&a, p, 64);
    make_memory(&b, p, 64);
    grow(&a, 40); /* three of four pages */
    grow(&b, 10);
    uint8_t *page = b.pages[0];
    assert_int_equal(kv_seq_reserve(&b, 17, &e), QN_ENOMEM);
    assert_string_equal(e.msg, "kv: 1 more pages of 16 tokens needed, 0 of 4 free");
    assert_int_equal(b.n_pages, 1);
    assert_int_equal(b.n_slots, 10);
    assert_ptr_equal(b.pages[0], page);
    assert_int_equal(kv_seq_reserve(&b, 16, &e), 0); /* what fits its page still fits */
    assert_int_equal(kv_seq_reserve(&a, 65, &e), QN_ENOMEM);
    assert_string_equal(e.msg, "kv: 65 tokens do not fit a sequence of 64");
    assert_int_equal(a.n_pages, 3);
    kv_seq_truncate(&a, 16);
    assert_int_equal(kv_seq_reserve(&b, 48, &e), 0);
    kv_seq_deinit(&a);
    kv_seq_deinit(&b);
    free_pool(p);
}

/* ---- forks ---- */

static void forks_share_until_one_writes(void **state)
{
    (void)state;
    struct kv_pool *p = make_pool(&small, 96);
    struct kv_seq a, b;
    make_memory(&a, p, 96);
    make_memory(&b, p, 96);
    grow(&a, 20);
    for (int s = 0; s < 20; s++) write_slot(&a, s, s);
    kv_seq_fork(&b, &a);
    assert_int_equal(b.n_slots, 20);
    assert_int_equal(kv_pool_n_free(p), 4);
    assert_ptr_equal(a.pages[0], b.pages[0]);
    assert_ptr_equal(a.pages[1], b.pages[1]);
    grow(&b, 21); /* the page it goes on in becomes its own, the full one stays shared */
    write_slot(&b, 20, 500);
    assert_ptr_equal(a.pages[0], b.pages[0]);
    assert_ptr_not_equal(a.pages[1], b.pages[1]);
    assert_int_equal(kv_pool_n_free(p), 3);
    uint8_t *mine = a.pages[1];
    grow(&a, 21); /* alone on its page by now: no copy */
    assert_ptr_equal(a.pages[1], mine);
    write_slot(&a, 20, 600);
    for (int s = 0; s < 20; s++) {
        assert_int_equal(read_slot(&a, s), s);
        assert_int_equal(read_slot(&b, s), s);
    }
    assert_int_equal(read_slot(&b, 20), 500);
    assert_int_equal(read_slot(&a, 20), 600);
    kv_seq_deinit(&a); /* the fork outlives its original */
    for (int s = 0; s < 20; s++) assert_int_equal(read_slot(&b, s), s);
    assert_int_equal(kv_pool_n_free(p), 4);
    kv_seq_deinit(&b);
    free_pool(p);
}

static void a_fork_rewound_into_a_shared_page_copies_it(void **state)
{
    (void)state;
    struct kv_pool *p = make_pool(&small, 64);
    struct kv_seq a, b;
    make_memory(&a, p, 64);
    make_memory(&b, p, 64);
    grow(&a, 32); /* two full pages */
    for (int s = 0; s < 32; s++) write_slot(&a, s, s);
    kv_seq_fork(&b, &a);
    kv_seq_truncate(&b, 5);
    grow(&b, 6);
    write_slot(&b, 5, 900);
    assert_int_equal(read_slot(&a, 5), 5);
    assert_int_equal(read_slot(&b, 5), 900);
    for (int s = 0; s < 5; s++) assert_int_equal(read_slot(&b, s), s);
    kv_seq_deinit(&b);
    kv_seq_deinit(&a);
    free_pool(p);
}

static void a_copy_that_finds_no_page_is_refused(void **state)
{
    (void)state;
    struct kv_pool *p = make_pool(&small, 16);
    struct kv_seq a, b;
    struct qn_error e = {0};
    make_memory(&a, p, 16);
    make_memory(&b, p, 16);
    grow(&a, 8);
    kv_seq_fork(&b, &a);
    assert_int_equal(kv_seq_reserve(&b, 9, &e), QN_ENOMEM);
    assert_string_equal(e.msg, "kv: 1 more pages of 16 tokens needed, 0 of 1 free");
    assert_ptr_equal(a.pages[0], b.pages[0]);
    kv_seq_deinit(&a);
    assert_int_equal(kv_seq_reserve(&b, 9, &e), 0);
    kv_seq_deinit(&b);
    free_pool(p);
}

/* ---- a random history ---- */

#define N_SEQ     6
#define MAX_SLOTS 100
#define N_PAGES   15

struct kv_world {
    struct kv_pool *pool;
    struct kv_seq m[N_SEQ];
    int tag[N_SEQ][MAX_SLOTS], n[N_SEQ]; /* what each sequence should hold */
    int next_tag, n_refused;
};

static int n_pages_in_use(const struct kv_world *w)
{
    const uint8_t *seen[N_SEQ * (MAX_SLOTS / 16 + 1)];
    int n = 0;
    for (int i = 0; i < N_SEQ; i++)
        for (int j = 0; j < w->m[i].n_pages; j++) {
            int known = 0;
            while (known < n && seen[known] != w->m[i].pages[j]) known++;
            if (known == n) seen[n++] = w->m[i].pages[j];
        }
    return n;
}

static void append_random(struct kv_world *w, int i, int extra)
{
    struct kv_seq *m = &w->m[i];
    int n = w->n[i] + extra > MAX_SLOTS ? MAX_SLOTS : w->n[i] + extra, free_before = kv_pool_n_free(w->pool);
    if (kv_seq_reserve(m, n, NULL)) {
        /* right to refuse: more pages than are free, one for a copy among them at most */
        assert_true((n + 15) / 16 - (w->n[i] + 15) / 16 + 1 > free_before);
        assert_int_equal(kv_pool_n_free(w->pool), free_before);
        assert_int_equal(m->n_slots, w->n[i]);
        w->n_refused++;
        return;
    }
    for (int s = w->n[i]; s < n; s++) write_slot(m, s, w->tag[i][s] = w->next_tag++ % 10000);
    kv_seq_extend(m, n);
    w->n[i] = n;
}

static void act(struct kv_world *w, uint64_t step)
{
    uint64_t r = rng_u64(11, 0, step);
    int i = (int)(r % N_SEQ), j = (int)(r / N_SEQ % N_SEQ), amount = (int)(r >> 32) & 31;
    switch (r >> 16 & 7) {
    case 0: /* rewind */
        w->n[i] = w->n[i] * amount / 32;
        kv_seq_truncate(&w->m[i], w->n[i]);
        break;
    case 1: /* fork */
        if (i == j) break;
        kv_seq_deinit(&w->m[i]);
        make_memory(&w->m[i], w->pool, MAX_SLOTS);
        kv_seq_fork(&w->m[i], &w->m[j]);
        memcpy(w->tag[i], w->tag[j], sizeof w->tag[i]);
        w->n[i] = w->n[j];
        break;
    default: append_random(w, i, amount);
    }
}

/* For pages of all types, with dims that fill no block of 32: clearing from a slot on gives the bytes of a page where
 * zeros were written. */
static void cleared_slots_are_those_of_zeros(void **state)
{
    (void)state;
    struct kernels k;
    float x[48], zeros[48] = {0};
    kernels_init_ref(&k);
    for (int type = 0; type < KV_N; type++)
        for (int from = 0; from <= 32; from++) {
            struct kv_shape s = {(enum kv_type)type, 3, 2, 48, 48, 32, 0, 0, 0};
            struct ledger l;
            struct kv_pool *p;
            ledger_init(&l, (size_t)1 << 30);
            assert_int_equal(kv_pool_new(&p, &s, 64, 0, 0, &l, NULL), 0);
            uint8_t *all = kv_page_get(p), *some = kv_page_get(p);
            for (int i = 0; i < s.n_layer * s.n_head_kv * s.page_slots; i++) {
                int layer = i / (s.n_head_kv * s.page_slots), head = i / s.page_slots % s.n_head_kv;
                int slot = i % s.page_slots;
                size_t key = kv_key_offset(p, layer, head), value = kv_value_offset(p, layer, head);
                for (int d = 0; d < 48; d++) x[d] = (float)(i * 48 + d + 1);
                k.put_key(s.type, x, 48, all + key, slot, NULL);
                k.put_value(s.type, x, 48, all + value, slot, NULL);
                k.put_key(s.type, slot < from ? x : zeros, 48, some + key, slot, NULL);
                k.put_value(s.type, slot < from ? x : zeros, 48, some + value, slot, NULL);
            }
            kv_page_clear(&s, all, from);
            assert_memory_equal(all, some, kv_page_bytes(&s));
            kv_page_unref(p, all);
            kv_page_unref(p, some);
            kv_pool_free(p);
        }
}

/* Whether all of a sequence's state is this byte. */
static int state_is(const struct kv_seq *m, int byte)
{
    size_t n = kv_pool_shape(m->pool)->state_bytes;
    for (size_t i = 0; i < n; i++)
        if (m->state[i] != byte) return 0;
    return 1;
}

static void a_state_is_copied_put_back_and_begins_with_zeros(void **state)
{
    (void)state;
    struct kv_shape s = small;
    struct kv_pool *p = NULL;
    struct kv_seq a = {0}, b = {0}, c = {0};
    struct qn_error e = {0};
    s.state_bytes = 100;
    ledger_init(&ledger, (size_t)1 << 40);
    assert_int_equal(kv_pool_new(&p, &s, 20 * 16, 3, 0, &ledger, &e), 0);
    assert_int_equal(kv_states_bytes(&s, 3), 3 * 128);
    assert_int_equal(ledger_used(&ledger), 20 * kv_page_bytes(&s) + 3 * 128);
    make_memory(&a, p, 100);
    make_memory(&b, p, 100);
    assert_true(state_is(&a, 0) && a.state != b.state && (uintptr_t)a.state % 64 == 0);
    grow(&a, 20);
    memset(a.state, 20, 100);
    uint8_t *copy = kv_state_get(p);
    memcpy(copy, a.state, 100);
    assert_int_equal(kv_pool_n_free_states(p), 0);
    assert_null(kv_state_get(p));
    assert_int_equal(kv_seq_init(&c, p, 100, &e), QN_ENOMEM);
    assert_string_equal(e.msg, "kv: all 3 recurrent states are in use");
    grow(&a, 40);
    memset(a.state, 40, 100);
    kv_seq_fork(&b, &a);
    assert_true(b.n_slots == 40 && state_is(&b, 40));
    kv_seq_truncate(&a, 40); /* nothing is forgotten */
    assert_true(state_is(&a, 40));
    kv_seq_restore(&a, 20, copy);
    assert_true(a.n_slots == 20 && a.n_pages == 2 && state_is(&a, 20) && state_is(&b, 40));
    kv_seq_truncate(&a, 0);
    assert_true(state_is(&a, 0));
    kv_seq_deinit(&b);
    make_memory(&b, p, 100); /* the same block again */
    assert_true(state_is(&b, 0));
    kv_state_put(p, copy);
    kv_seq_deinit(&a);
    kv_seq_deinit(&b);
    assert_int_equal(kv_pool_n_free_states(p), kv_pool_n_states(p));
    free_pool(p);
}

static void matches_plain_arrays(void **state)
{
    (void)state;
    static struct kv_world w;
    w.pool = make_pool(&small, N_PAGES * 16);
    for (int i = 0; i < N_SEQ; i++) make_memory(&w.m[i], w.pool, MAX_SLOTS);
    for (uint64_t step = 0; step < 3000; step++) {
        act(&w, step);
        assert_int_equal(kv_pool_n_free(w.pool), N_PAGES - n_pages_in_use(&w));
        for (int i = 0; i < N_SEQ; i++) {
            assert_int_equal(w.m[i].n_slots, w.n[i]);
            for (int s = 0; s < w.n[i]; s++) assert_int_equal(read_slot(&w.m[i], s), w.tag[i][s]);
        }
    }
    assert_true(w.n_refused > 50); /* the pool was small enough to be a test */
    for (int i = 0; i < N_SEQ; i++) kv_seq_deinit(&w.m[i]);
    assert_int_equal(kv_pool_n_free(w.pool), N_PAGES);
    free_pool(w.pool);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(areas_are_aligned_and_apart),
        cmocka_unit_test(the_ledger_holds_whole_pages),
        cmocka_unit_test(a_pool_over_budget_is_refused),
        cmocka_unit_test(touched_pages_are_resident),
        cmocka_unit_test(pages_are_not_resident_before_they_are_written),
        cmocka_unit_test(what_runs_out_of_memory_is_left_alone),
        cmocka_unit_test(pages_come_and_go_with_the_slots),
        cmocka_unit_test(refusals_name_the_numbers_and_change_nothing),
        cmocka_unit_test(forks_share_until_one_writes),
        cmocka_unit_test(a_fork_rewound_into_a_shared_page_copies_it),
        cmocka_unit_test(a_copy_that_finds_no_page_is_refused),
        cmocka_unit_test(cleared_slots_are_those_of_zeros),
        cmocka_unit_test(a_state_is_copied_put_back_and_begins_with_zeros),
        cmocka_unit_test(matches_plain_arrays),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
