/* SPDX-License-Identifier: MIT
 *
 * test_experts.c: routing to experts, and files with experts.
 *
 * For every way in which families choose experts, the chosen experts and their weights are compared with a plain
 * implementation of the rules (docs/KERNELS.md). Files with experts that contradict themselves are refused.
 *
 *     test_experts EXPERTS.gguf APART.gguf     qwen3moe with f32 weights; llama with a tensor for each expert, Q4_K
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <assert.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "engine/engine.h"
#include "model/load.h"

#define N_ROWS 30

static const char *whole_path, *apart_path;

/* ---- routing ---- */

static qn_model *model;
static struct model *m; /* the same, to be changed */

/* Runs one pass of N_ROWS rows. Returns the routing of the last layer. */
static const struct moe *route(qn_engine *g, float *logits)
{
    struct kv_seq mem, *mems[] = {&mem};
    struct qn_error e;
    assert_int_equal(kv_seq_init(&mem, g->kv, N_ROWS, &e), 0);
    assert_int_equal(kv_seq_reserve(&mem, N_ROWS, &e) || kv_seq_open(&mem, 0, N_ROWS, &e), 0);
    batch_clear(&g->batch);
    for (int i = 0; i < N_ROWS; i++) batch_add(&g->batch, 7 + i * 11, i, 0, i == N_ROWS - 1);
    assert_true(forward_run(&g->forward, &g->batch, mems, logits));
    kv_seq_deinit(&mem);
    return &g->forward.pass.moe;
}

static qn_engine *engine_of(int n_threads)
{
    struct qn_engine_params p;
    struct qn_error e;
    qn_engine *g;
    qn_engine_params_init(&p);
    p.n_ctx = p.n_batch = N_ROWS;
    p.n_threads = n_threads;
    assert_int_equal(qn_engine_new(&g, model, &p, &e), 0);
    return g;
}

/* The number of the n numbers that come before number i: larger ones, and equal ones with a lower index. NaN is smaller
 * than all others. */
static int rank_of(const double *x, int n, int i)
{
    int rank = 0;
    for (int j = 0; j < n; j++) rank += isnan(x[i]) ? !isnan(x[j]) || j < i : x[j] > x[i] || (x[j] == x[i] && j < i);
    return rank;
}

/* The experts of one row by the rules, from the scores that the pass left; returns their number. */
static int expected(const struct hparams *h, const float *score, const float *bias, int32_t *chosen, double *weight)
{
    int n = h->n_expert, size = n / h->n_expert_groups, k = 0, n_best = h->expert_gate == GATE_SIGMOID ? 2 : 1;
    double c[HP_MAX_EXPERTS], group[HP_MAX_EXPERTS], sum = 0;
    for (int i = 0; i < n; i++) c[i] = (double)(score[i] + (bias ? bias[i] : 0));
    for (int g = 0; g < h->n_expert_groups; g++) {
        group[g] = 0;
        for (int i = 0; i < size; i++)
            if (rank_of(c + g * size, size, i) < n_best) group[g] = (double)((float)group[g] + (float)c[g * size + i]);
    }
    for (int i = 0; i < n; i++)
        if (rank_of(group, h->n_expert_groups, i / size) >= h->n_expert_groups_used) c[i] = -INFINITY;
    for (int i = 0; i < n; i++) {
        if (rank_of(c, n, i) >= h->n_expert_used) continue;
        chosen[k] = i;
        weight[k++] = (double)score[i];
    }
    for (int i = 0; i < k && h->expert_gate == GATE_SOFTMAX_OF_CHOSEN; i++) weight[i] = exp(weight[i]);
    for (int i = 0; i < k; i++) sum += weight[i];
    for (int i = 0; i < k && (h->expert_norm || h->expert_gate == GATE_SOFTMAX_OF_CHOSEN); i++) weight[i] /= sum;
    for (int i = 0; i < k; i++) weight[i] *= (double)h->expert_scale;
    return k;
}

static void check_rows(const struct moe *x, const struct hparams *h, const float *bias)
{
    for (int r = 0; r < N_ROWS; r++) {
        int32_t chosen[HP_MAX_EXPERTS_USED];
        double weight[HP_MAX_EXPERTS_USED];
        const float *score = x->score.p + (size_t)r * x->score.ld;
        assert_int_equal(expected(h, score, bias, chosen, weight), h->n_expert_used);
        for (int i = 0; i < h->n_expert_used; i++) {
            assert_int_equal(x->chosen[r * h->n_expert_used + i], chosen[i]);
            double got = (double)x->weight[r * h->n_expert_used + i];
            assert_true(fabs(got - weight[i]) <= 1e-6 * fabs(weight[i])); /* a few roundings */
        }
    }
}

/* Each pair of a row and one of its experts has one entry, sorted by expert and then by row. */
static void check_entries(const struct moe *x, const struct hparams *h)
{
    int n = 0, n_busy = 0;
    for (int e = 0; e < h->n_expert; e++) {
        assert_int_equal(x->first[e], n);
        for (int i = 0; i < N_ROWS * h->n_expert_used; i++) {
            if (x->chosen[i] != e) continue;
            assert_int_equal(x->row[n], i / h->n_expert_used);
            assert_memory_equal(&x->entry_weight[n++], &x->weight[i], sizeof(float));
        }
        if (n > x->first[e]) assert_int_equal(x->busy[n_busy++], e);
    }
    assert_int_equal(x->first[h->n_expert], n);
    assert_int_equal(n, N_ROWS * h->n_expert_used);
    assert_int_equal(n_busy, x->n_busy);
}

static void rows_go_where_the_rules_say(void **state)
{
    (void)state;
    const struct hparams was = m->hp;
    static float bias[HP_MAX_EXPERTS];
    float *logits = mem_alloc((size_t)qn_model_n_vocab(model) * sizeof *logits);
    for (int i = 0; i < was.n_expert; i++) bias[i] = 0.03f * (float)(i * 7 % was.n_expert) - 0.1f;
    for (int way = 0; way < 3 * 2 * 2 * 3; way++) {
        struct hparams *h = &m->hp;
        const float *b = way / 6 % 2 ? bias : NULL;
        h->expert_gate = (enum expert_gate)(way % 3);
        h->expert_norm = way / 3 % 2;
        h->expert_scale = way % 4 ? 1 : 2.5f;
        h->n_expert_groups = (const int[]){1, 4, 6}[way / 12];
        h->n_expert_groups_used = (const int[]){1, 2, 5}[way / 12];
        for (int i = 0; i < h->n_layer; i++) m->layers[i].router_bias = b;
        qn_engine *g = engine_of(1 + way % 3);
        const struct moe *x = route(g, logits);
        check_rows(x, h, b);
        check_entries(x, h);
        for (int i = 0; i < qn_model_n_vocab(model); i++) assert_true(isfinite(logits[i]));
        qn_engine_free(g);
    }
    for (int i = 0; i < m->hp.n_layer; i++) m->layers[i].router_bias = NULL;
    m->hp = was;
    mem_free(logits);
}

/* All experts, and one. */
static void any_number_of_them(void **state)
{
    (void)state;
    const int was = m->hp.n_expert_used;
    float *logits = mem_alloc((size_t)qn_model_n_vocab(model) * sizeof *logits);
    for (int n = 1; n <= m->hp.n_expert; n += m->hp.n_expert - 1) {
        m->hp.n_expert_used = n;
        qn_engine *g = engine_of(2);
        const struct moe *x = route(g, logits);
        check_rows(x, &m->hp, NULL);
        check_entries(x, &m->hp);
        qn_engine_free(g);
    }
    m->hp.n_expert_used = was;
    mem_free(logits);
}

/* Experts that are read ahead, as when memory is short, give the same result. */
static void asked_for_ahead(void **state)
{
    (void)state;
    size_t bytes = (size_t)qn_model_n_vocab(model) * sizeof(float);
    float *want = mem_alloc(bytes), *got = mem_alloc(bytes);
    qn_engine *g = engine_of(2);
    assert_false(g->forward.pass.is_streaming);
    const struct moe *x = route(g, want);
    uint64_t n = g->forward.pass.n_experts_read;
    assert_true(n > 0 && n % 2 == 0 && n <= 2 * (uint64_t)(m->hp.n_layer * m->hp.n_expert));
    assert_true(n >= 2 * (uint64_t)(m->hp.n_layer * m->hp.n_expert_used) && x->n_busy > 0);
    g->forward.pass.is_streaming = true;
    route(g, got);
    assert_memory_equal(got, want, bytes);
    assert_int_equal(g->forward.pass.n_experts_read, 2 * n);
    qn_engine_free(g);
    mem_free(want);
    mem_free(got);
}

/* If a router's results are NaN, each row still gets its number of different experts, and the logits are NaN. */
static void nan_is_sent_somewhere(void **state)
{
    (void)state;
    const enum expert_gate was = m->hp.expert_gate;
    static float bias[HP_MAX_EXPERTS];
    float *logits = mem_alloc((size_t)qn_model_n_vocab(model) * sizeof *logits);
    for (int n_nan = 1; n_nan <= m->hp.n_expert; n_nan += m->hp.n_expert - 1)
        for (int gate = 0; gate < 3; gate++) {
            m->hp.expert_gate = (enum expert_gate)gate;
            for (int i = 0; i < m->hp.n_expert; i++) bias[i] = i < n_nan ? NAN : 0;
            for (int i = 0; i < m->hp.n_layer; i++) m->layers[i].router.b = bias;
            qn_engine *g = engine_of(2);
            const struct moe *x = route(g, logits);
            for (int r = 0; r < N_ROWS; r++)
                for (int i = 0; i < m->hp.n_expert_used; i++) {
                    int e = x->chosen[r * m->hp.n_expert_used + i];
                    assert_in_range(e, 0, m->hp.n_expert - 1);
                    if (i) assert_true(e > x->chosen[r * m->hp.n_expert_used + i - 1]);
                    if (n_nan == 1 && gate != GATE_SOFTMAX) assert_int_not_equal(e, 0); /* NaN comes last */
                }
            check_entries(x, &m->hp);
            assert_true(isnan(logits[0]) == (n_nan > 1 || gate == GATE_SOFTMAX));
            qn_engine_free(g);
        }
    for (int i = 0; i < m->hp.n_layer; i++) m->layers[i].router.b = NULL;
    m->hp.expert_gate = was;
    mem_free(logits);
}

/* One expert has all of the softmax, so the other experts, and all groups but one, have 0. Of equal experts the lower
 * one is chosen, and an expert with the weight 0 changes nothing. */
static void equal_ones_are_chosen_in_order(void **state)
{
    (void)state;
    const struct hparams was = m->hp;
    static const int32_t want[] = {0, 1, 2, 4};
    static float bias[HP_MAX_EXPERTS];
    float *logits = mem_alloc((size_t)qn_model_n_vocab(model) * sizeof *logits);
    assert_true(was.n_expert == 12 && was.n_expert_used == 4);
    bias[4] = 1000;
    m->hp.expert_gate = GATE_SOFTMAX;
    m->hp.n_expert_groups = 4;
    m->hp.n_expert_groups_used = 2;
    for (int i = 0; i < m->hp.n_layer; i++) m->layers[i].router.b = bias;
    qn_engine *g = engine_of(2);
    const struct moe *x = route(g, logits);
    check_rows(x, &m->hp, NULL);
    for (int i = 0; i < N_ROWS * 4; i++) {
        assert_int_equal(x->chosen[i], want[i % 4]);
        assert_true(x->weight[i] == (i % 4 == 3 ? 1.0F : 0.0F));
    }
    qn_engine_free(g);
    for (int i = 0; i < m->hp.n_layer; i++) m->layers[i].router.b = NULL;
    m->hp = was;
    mem_free(logits);
}

/* ---- files ---- */

/* Replaces bytes of the file at `path`, `skip` bytes after the end of `name`, and checks how it is refused. */
static void refused(const char *path, const char *name, ptrdiff_t skip, const void *bytes, size_t n_bytes,
                    const char *why)
{
    char copy[] = "/tmp/quern-experts-XXXXXX";
    struct qn_error e = {0};
    FILE *in = fopen(path, "rb");
    assert_non_null(in);
    fseek(in, 0, SEEK_END);
    size_t n = (size_t)ftell(in), len = strlen(name);
    rewind(in);
    uint8_t *data = malloc(n), *p;
    assert_true(data && fread(data, 1, n, in) == n);
    fclose(in);
    assert_non_null(p = memmem(data, n, name, len));
    memcpy(p + len + skip, bytes, n_bytes);
    int fd = mkstemp(copy);
    assert_true(fd >= 0 && write(fd, data, n) == (ssize_t)n);
    close(fd);
    free(data);
    struct model *got = NULL;
    int rc = model_load(&got, copy, &e);
    unlink(copy);
    if (rc == 0) model_free(got);
    if (rc == 0 || !strstr(e.msg, why) || strchr(e.msg, '\n'))
        fail_msg("%s: %d '%s', expected '%s'", name, rc, e.msg, why);
}

/* The name ends in `to` instead. */
static void misnamed(const char *path, const char *name, const char *to, const char *why)
{
    refused(path, name, -(ptrdiff_t)strlen(to), to, strlen(to), why);
}

/* After a tensor's name come the number of its dimensions (4 bytes), the dimensions (8 each), and its type (4). */
static void tensors_are_whole(void **state)
{
    (void)state;
    const char *w = whole_path, *a = apart_path;
    misnamed(w, "blk.1.ffn_up_exps.weight", "ux_exps.weight", "'blk.1.ffn_up_exps.weight' is missing");
    misnamed(w, "blk.1.ffn_gate_exps.weight", "gatx_exps.weight", "'blk.1.ffn_gate_exps.weight' is missing");
    misnamed(w, "blk.0.ffn_down_exps.weight", "dowx_exps.weight", "'blk.0.ffn_down_exps.weight' is missing");
    misnamed(w, "blk.0.ffn_gate_inp.weight", "inx.weight", "'blk.0.ffn_gate_inp.weight' is missing");
    misnamed(a, "blk.1.ffn_up.3.weight", "7.weight", "'blk.1.ffn_up.3.weight' is missing");
    misnamed(a, "blk.1.ffn_up.0.weight", "7.weight", "'blk.1.ffn_up.0.weight' is missing");
    misnamed(a, "blk.1.ffn_up.4.weight", "x.weight", "'blk.1.ffn_up.4.weight' is missing");
    misnamed(w, "blk.1.attn_q_norm.weight", "0.ffn_gate.11.weight", /* in the layer before, so not missed first */
             "'blk.0.ffn_gate_exps.weight' and its experts' own are both there");
    const uint64_t few = 11;
    const uint32_t q4_0 = 2; /* 144 bytes for 256 elements, as Q4_K */
    refused(w, "blk.1.ffn_up_exps.weight", 4 + 16, &few, 8, "is 256 x 256 x 11 x 1, not 256 x 256 x 12");
    refused(a, "blk.1.ffn_gate.2.weight", 4 + 16, &q4_0, 4, "'blk.1.ffn_gate.2.weight' has type Q4_0");
}

/* After a key come its type (4 bytes) and its value. */
static void counts_are_bounded(void **state)
{
    (void)state;
    static const struct {
        const char *key;
        uint32_t v;
        const char *why;
    } cases[] = {
        {"qwen3moe.expert_count", 0, "'qwen3moe.expert_count' is missing or 0"},
        {"qwen3moe.expert_count", 3, "'qwen3moe.expert_used_count' is 4 of 3 experts"},
        {"qwen3moe.expert_count", 11, "'blk.0.ffn_gate_inp.weight' is 256 x 12"},
        {"qwen3moe.expert_count", 13, "'blk.0.ffn_gate_inp.weight' is 256 x 12"},
        {"qwen3moe.expert_count", 4097, "'qwen3moe.expert_count' is 4097"},
        {"qwen3moe.expert_count", 0xffffffff, "'qwen3moe.expert_count' is 4294967295"},
        {"qwen3moe.expert_used_count", 0, "'qwen3moe.expert_used_count' is 0"},
        {"qwen3moe.expert_used_count", 65, "'qwen3moe.expert_used_count' is 65"},
        {"qwen3moe.expert_used_count", 0x80000000, "'qwen3moe.expert_used_count' is 2147483648"},
        {"qwen3moe.expert_feed_forward_length", 0, "'qwen3moe.expert_feed_forward_length' is 0"},
        {"qwen3moe.expert_feed_forward_length", 255, "'blk.0.ffn_gate_exps.weight' is 256 x 256"},
        {"qwen3moe.expert_feed_forward_length", 1 << 21, "'qwen3moe.expert_feed_forward_length' is 2097152"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        refused(whole_path, cases[i].key, 4, &cases[i].v, 4, cases[i].why);
}

static int open_model(void **state)
{
    (void)state;
    struct qn_error e;
    if (qn_model_open(&model, whole_path, &e)) return -1;
    m = (struct model *)model->model;
    return 0;
}

static int close_model(void **state)
{
    (void)state;
    qn_model_close(model);
    return 0;
}

int main(int argc, char **argv)
{
    assert(argc == 3);
    whole_path = argv[1];
    apart_path = argv[2];
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(rows_go_where_the_rules_say),
        cmocka_unit_test(any_number_of_them),
        cmocka_unit_test(equal_ones_are_chosen_in_order),
        cmocka_unit_test(nan_is_sent_somewhere),
        cmocka_unit_test(asked_for_ahead),
        cmocka_unit_test(tensors_are_whole),
        cmocka_unit_test(counts_are_bounded),
    };
    return cmocka_run_group_tests(tests, open_model, close_model);
}
