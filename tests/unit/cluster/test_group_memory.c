/* SPDX-License-Identifier: MIT
 *
 * test_group_memory.c: the context and the layers of a group by the memory of its stages.
 *
 *     test_group_memory MODEL...      models of several families
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdio.h>
#include <string.h>

#include "cluster/group_memory.h"
#include "engine/core/stage.h"
#include "model/load.h"

#define MB ((uint64_t)1 << 20)
#define GB ((uint64_t)1 << 30)

static char **paths;
static int n_paths;

static struct model *open_model(int i)
{
    struct model *m;
    struct qn_error e;
    if (model_load(&m, paths[i], &e)) fail_msg("%s", e.msg);
    m->has_nextn = false;
    m->hp.n_ctx_train = 32768; /* so that memory decides */
    hp_cut(&m->hp, 0, m->hp.n_layer);
    return m;
}

static struct qn_engine_params params(int n_ctx, int kv_tokens)
{
    struct qn_engine_params p;
    qn_engine_params_init(&p);
    p.n_ctx = n_ctx;
    p.kv_tokens = kv_tokens;
    p.n_sessions = 2;
    p.n_threads = 2;
    p.n_batch = 64;
    return p;
}

static void parts_of_a_model_add_up_to_all_of_it(void **state)
{
    (void)state;
    for (int i = 0; i < n_paths; i++) {
        struct model *m = open_model(i);
        struct qn_engine_params p = params(512, 0);
        struct stage_need all, sum = {0}, one;
        struct budget whole = {0};
        enum cpu_level level;
        struct qn_error e;
        int n = m->hp.n_layer;
        assert_int_equal(budget_settle(&p, m, &level, &e), 0);
        assert_int_equal(budget_count(m, &p, &whole, &e), 0);
        stage_need_count(&all, m, &p, 0, n);
        assert_int_equal(all.kv, whole.kv);
        assert_int_equal(all.states, whole.states);
        uint64_t shared = 0; /* tensors that each stage has */
        for (int il = 0; il < n; il++) {
            stage_need_count(&one, m, &p, il, il + 1);
            sum.weights += one.weights;
            sum.states += one.states;
            if (m->hp.layer[il].kv >= 0) sum.kv += one.kv; /* the others have pages that nobody writes to */
        }
        for (size_t k = 0; k < weights_n_tensors(m->weights); k++) {
            const struct tensor *t = weights_tensor_at(m->weights, k);
            bool is_other = strncmp(t->name, "blk.", 4) && t != m->token_embd && t != m->output && t != m->rank_head;
            if (is_other) shared += t->bytes;
        }
        assert_int_equal(sum.weights, all.weights + (uint64_t)(n - 1) * shared);
        /* Of several layers with windows alone, one keeps everything. */
        if (!m->hp.n_layer_win) assert_int_equal(sum.kv, all.kv);
        assert_in_range(sum.states, all.states, all.states + (uint64_t)n * 64 * (uint64_t)whole.n_states);
        model_free(m);
    }
}

/* The memory of this machine plays no part. */
static void the_stage_with_the_least_room_decides(void **state)
{
    (void)state;
    struct model *m = open_model(0);
    const int32_t cuts[] = {0, 2, m->hp.n_layer};
    struct group_host host[] = {{"a", 64 * GB, 0, 0, 0}, {"b", 64 * GB, 0, 0, 0}};
    struct qn_engine_params p = params(0, -1), all = p, small, one;
    struct model part;
    struct qn_error e;
    assert_int_equal(group_settle(&all, m, cuts, host, 2, &e), 0);
    assert_int_equal(all.kv_tokens, 2 * 32768);
    assert_int_equal(all.n_ctx, 32768);
    struct stage_need need;
    stage_need_count(&need, m, &all, cuts[1], cuts[2]);
    host[1].memory = need.weights + need.kv + need.buffers; /* all of it would fit, but a part is kept free */
    small = p;
    assert_int_equal(group_settle(&small, m, cuts, host, 2, &e), 0);
    model_part(&part, m, cuts[1], cuts[2]);
    one = small;
    int64_t usual = budget_usual_tokens(&part, &one, host[1].memory, need.weights);
    assert_in_range(usual, 2 * 4096, 2 * 32768 - 1);
    assert_int_equal(small.kv_tokens, usual);
    host[0].memory = host[1].memory / 2;
    small = p;
    assert_int_equal(group_settle(&small, m, cuts, host, 2, &e), 0);
    assert_true(small.kv_tokens < usual);
    model_free(m);
}

/* A number that was asked for is taken if every stage has room for it, to the byte. */
static void what_was_asked_for_fits_or_the_stage_is_named(void **state)
{
    (void)state;
    for (int i = 0; i < n_paths; i++) {
        struct model *m = open_model(i);
        int n = m->hp.n_layer, kv_tokens = 1 << 20;
        const int32_t cuts[] = {0, n - 1, n};
        struct group_host host[] = {{"a", 1024 * GB, 0, 0, 0}, {"large", 1024 * GB, 0, 0, 0}};
        struct qn_engine_params p = params(1 << 17, kv_tokens), q = p;
        struct stage_need need;
        struct qn_error e;
        q.state_bytes = p.state_bytes = 64 * MB;
        assert_int_equal(group_settle(&q, m, cuts, host, 2, &e), 0);
        assert_int_equal(q.kv_tokens, kv_tokens);
        assert_int_equal(q.n_ctx, 1 << 17);
        stage_need_count(&need, m, &q, cuts[0], cuts[1]);
        host[0].memory = need.weights + need.kv + need.states + need.buffers;
        q = p;
        assert_int_equal(group_settle(&q, m, cuts, host, 2, &e), 0);
        host[0].memory--;
        q = p;
        assert_int_equal(group_settle(&q, m, cuts, host, 2, &e), QN_ENOMEM);
        assert_int_equal(q.n_batch, p.n_batch);
        if (!strstr(e.msg, "stage 0 on a, layers 0 to ") || !strstr(e.msg, "for 1048576 tokens") ||
            !strstr(e.msg, "MB; the stages have room for 10"))
            fail_msg("%s", e.msg);
        host[0].memory = 1000;
        assert_int_equal(group_settle(&q, m, cuts, host, 2, &e), QN_ENOMEM);
        assert_non_null(strstr(e.msg, "no context is short enough"));
        model_free(m);
    }
}

/* Half of what would be free stays free in each stage. */
static void copies_of_states_are_as_many_as_the_smallest_stage_holds(void **state)
{
    (void)state;
    for (int i = 0; i < n_paths; i++) {
        struct model *m = open_model(i);
        if (m->hp.state_bytes) {
            int n = m->hp.n_layer;
            const int32_t cuts[] = {0, n - 1, n};
            struct group_host host[] = {{"a", 64 * GB, 0, 0, 0}, {"b", 64 * GB, 0, 0, 0}};
            struct qn_engine_params p = params(512, 0), many = p, few = p;
            struct stage_need need;
            struct qn_error e;
            struct kv_shape shape = budget_kv_shape(m, p.kv);
            uint64_t each = kv_states_bytes(&shape, 1);
            assert_int_equal(group_settle(&many, m, cuts, host, 2, &e), 0);
            assert_int_equal(many.state_bytes / each, 2 + 16);
            few.state_bytes = 5 * each;
            assert_int_equal(group_settle(&few, m, cuts, host, 2, &e), 0);
            stage_need_count(&need, m, &few, cuts[0], cuts[1]);
            host[0].memory = need.weights + need.kv + need.states + need.buffers;
            few = p;
            assert_int_equal(group_settle(&few, m, cuts, host, 2, &e), 0);
            assert_int_equal(few.state_bytes / each, 4);
        }
        model_free(m);
    }
}

/* Layers go where the memory is, whatever this machine has. */
static void layers_follow_the_memory_of_the_hosts(void **state)
{
    (void)state;
    struct model *m = open_model(0);
    int n = m->hp.n_layer;
    struct group_host host[] = {{"a", 64 * GB, 1, 0, 0}, {"b", 64 * GB, 1, 0, 0}};
    struct qn_engine_params p = params(1 << 16, 1 << 18);
    struct stage_need layer, one;
    struct qn_error e;
    int32_t cuts[3];
    bool fits;
    assert_int_equal(group_place(cuts, &fits, NULL, m, &p, host, 2, &e), 0);
    assert_true(fits);
    assert_in_range(cuts[1], n / 2, (n + 1) / 2 + 1);
    struct qn_engine_params q = p;
    assert_int_equal(group_settle(&q, m, cuts, host, 2, &e), 0);
    stage_need_count(&layer, m, &q, 1, 2);
    stage_need_count(&one, m, &q, 0, n);
    host[0].memory = one.buffers + STREAM_BYTES + (layer.weights + layer.kv) * 3 / 2;
    assert_int_equal(group_place(cuts, &fits, NULL, m, &p, host, 2, &e), 0);
    assert_true(fits);
    assert_int_equal(cuts[1], 1);
    host[1].memory = host[0].memory;
    assert_int_equal(group_place(cuts, &fits, NULL, m, &p, host, 2, &e), 0);
    assert_false(fits);
    model_free(m);
}

/* What a group has settled by its hosts does not have to fit this one. */
static void one_host_alone_is_judged_by_its_own_memory(void **state)
{
    (void)state;
    for (int i = 0; i < n_paths; i++) {
        struct model *m = open_model(i);
        const int32_t cuts[] = {0, 2, m->hp.n_layer};
        struct group_host host[] = {{"a", 64 * GB, 0, 0, 0}, {"b", 64 * GB, 0, 0, 0}};
        struct qn_engine_params p = params(0, -1), q;
        struct qn_error e;
        q = p;
        assert_int_equal(group_settle(&q, m, cuts, host, 2, &e), 0);
        assert_true(group_fits_alone(&q, m, 64 * GB));
        assert_false(group_fits_alone(&q, m, 2 * MB));
        p.memory_bytes = 64 * GB;
        assert_int_equal(group_settle_alone(&p, m, &e), 0);
        assert_int_equal(p.kv_tokens, q.kv_tokens);
        assert_int_equal(p.state_bytes, q.state_bytes);
        p = params(0, -1);
        p.memory_bytes = 2 * MB;
        assert_int_equal(group_settle_alone(&p, m, &e), QN_ENOMEM);
        model_free(m);
    }
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(parts_of_a_model_add_up_to_all_of_it),
        cmocka_unit_test(the_stage_with_the_least_room_decides),
        cmocka_unit_test(what_was_asked_for_fits_or_the_stage_is_named),
        cmocka_unit_test(copies_of_states_are_as_many_as_the_smallest_stage_holds),
        cmocka_unit_test(layers_follow_the_memory_of_the_hosts),
        cmocka_unit_test(one_host_alone_is_judged_by_its_own_memory),
    };
    paths = argv + 1;
    n_paths = argc - 1;
    return cmocka_run_group_tests(tests, NULL, NULL);
}
