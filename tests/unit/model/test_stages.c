/* SPDX-License-Identifier: MIT
 *
 * test_stages.c: the stages of a model, one after the other, give the bits of the whole.
 *
 * A model is cut into 2, 3 and 4 ranges of layers. Each stage is loaded by itself and has an engine of its own. Two
 * sequences are prefilled together, decoded, drafted for and cut back, forked and rewound, in the whole and in the
 * stages. The files of the stages are the whole model's, or have the weights of their own layers only.
 *
 *     test_stages MODEL...
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "cluster/hello.h"
#include "engine/engine.h"
#include "format/gguf/gguf_holes.h"

#define MAX_STAGES 4
#define N_CTX      256
#define N_PROMPT   150 /* of the longer sequence: several pages, and more than a tiny model's window */
#define N_BATCH    64
#define N_DRAFTS   4
#define N_SEQS     3   /* the third is a fork */
#define MAX_LOG    400 /* rows of logits that are compared */

static char **paths;
static int n_paths;

/* One stage, or the whole, with its own memories. */
struct one_stage {
    qn_model *model;
    qn_engine *engine;
    struct kv_seq m[N_SEQS], *mems[N_SEQS];
};

/* A model in n_stages stages. */
struct run {
    struct one_stage stage[MAX_STAGES];
    int n_stages, n_embd, n_vocab;
    float *rows, *logits; /* of the last pass */
    float *log;           /* [n_log][n_vocab], of all passes */
    int n_log;
};

struct layers {
    const struct model *m;
    int lo, hi;
};

static bool is_needed(const void *arg, const char *tensor)
{
    const struct layers *l = arg;
    return model_stage_needs(l->m, l->lo, l->hi, tensor);
}

/* Makes a file with the weights of some layers of a model. */
static void make_file(char name[64], const struct layers *l)
{
    struct qn_error e;
    const char *from = weights_path(l->m->weights);
    struct gguf_holes h = {
        .first = (uint32_t)l->lo, .last = (uint32_t)l->hi - 1, .is_kept = is_needed, .arg = l, .edge = HELLO_EDGE};
    strcpy(name, "/tmp/quern-layers-XXXXXX");
    int fd = mkstemp(name);
    assert_true(fd >= 0);
    if (gguf_copy_with_holes(fd, name, from, &h, &e)) fail_msg("%s", e.msg);
    close(fd);
}

/* Gives the stage a file of its own in place of the whole model's. It is refused as a whole model, and counts as the
 * same one. */
static void take_own_file(struct one_stage *p, int lo, int hi)
{
    char name[64];
    struct qn_error e = {0};
    struct model *m;
    qn_model *refused;
    uint8_t whole[SHA256_BYTES], part[SHA256_BYTES];
    make_file(name, &(struct layers){p->model->model, lo, hi});
    assert_int_equal(qn_model_open(&refused, name, &e), QN_EUNSUP);
    assert_non_null(strstr(e.msg, "has the weights of layers"));
    if (model_load_stage(&m, name, &e)) fail_msg("%s", e.msg);
    unlink(name);
    assert_int_equal(m->file_lo, lo);
    assert_int_equal(m->file_hi, hi);
    hello_model(whole, p->model->model);
    hello_model(part, m);
    assert_memory_equal(part, whole, sizeof part);
    model_free(p->model->model);
    p->model->model = m;
}

static void stage_open(struct one_stage *p, const char *path, int lo, int hi, bool has_own_file)
{
    struct qn_engine_params q;
    struct qn_error e = {0};
    qn_engine_params_init(&q);
    q.n_ctx = N_CTX;
    q.n_batch = N_BATCH;
    q.n_threads = 2;
    q.n_sessions = N_SEQS;
    if (qn_model_open(&p->model, path, &e)) fail_msg("%s", e.msg);
    if (has_own_file) take_own_file(p, lo, hi);
    if (hi && model_cut(p->model->model, lo, hi, &e)) fail_msg("%s", e.msg);
    if (qn_engine_new(&p->engine, p->model, &q, &e)) fail_msg("%s", e.msg);
    for (int i = 0; i < N_SEQS; i++) {
        p->mems[i] = &p->m[i];
        assert_int_equal(kv_seq_init(&p->m[i], p->engine->kv, N_CTX, &e), 0);
    }
}

static void run_open(struct run *r, const char *path, int n_stages, int n_layer, bool have_own_files)
{
    *r = (struct run){.n_stages = n_stages};
    for (int i = 0; i < n_stages; i++)
        stage_open(&r->stage[i], path, i * n_layer / n_stages, (i + 1) * n_layer / n_stages, have_own_files);
    r->n_embd = r->stage[0].engine->model->hp.n_embd;
    r->n_vocab = r->stage[0].engine->model->hp.n_vocab;
    r->rows = mem_alloc(sizeof(float) * (size_t)(N_BATCH * r->n_embd));
    r->logits = mem_alloc(sizeof(float) * (size_t)(N_BATCH * r->n_vocab));
    r->log = mem_calloc((size_t)MAX_LOG * (size_t)r->n_vocab, sizeof(float));
}

static void run_close(struct run *r)
{
    for (int i = 0; i < r->n_stages; i++) {
        for (int k = 0; k < N_SEQS; k++) kv_seq_deinit(&r->stage[i].m[k]);
        qn_engine_free(r->stage[i].engine);
        qn_model_close(r->stage[i].model);
    }
    mem_free(r->rows);
    mem_free(r->logits);
    mem_free(r->log);
}

static struct batch *batch_of(struct run *r) { return &r->stage[0].engine->batch; }

/* Runs the batch through all stages. Sequence i then has n_slots[i] slots; 0: it has no rows. */
static void pass(struct run *r, const int n_slots[N_SEQS])
{
    struct batch *b = batch_of(r);
    int n_wanted = 0;
    for (int i = 0; i < b->n; i++) n_wanted += b->want_logits[i];
    for (int k = 0; k < r->n_stages; k++) {
        struct one_stage *p = &r->stage[k];
        for (int i = 0; i < N_SEQS; i++) {
            if (!n_slots[i]) continue;
            assert_int_equal(kv_seq_reserve(&p->m[i], n_slots[i], NULL), 0);
            assert_int_equal(kv_seq_open(&p->m[i], p->m[i].n_slots, n_slots[i], NULL), 0);
        }
        assert_true(forward_run_stage(&p->engine->forward, b, p->mems, r->rows, r->logits));
        for (int i = 0; i < b->n; i++)
            memcpy(r->rows + i * r->n_embd, forward_row(&p->engine->forward, i), sizeof(float) * (size_t)r->n_embd);
    }
    assert_true(r->n_log + n_wanted <= MAX_LOG);
    size_t bytes = sizeof(float) * (size_t)n_wanted * (size_t)r->n_vocab;
    memcpy(r->log + (size_t)r->n_log * (size_t)r->n_vocab, r->logits, bytes);
    r->n_log += n_wanted;
}

static void extend(struct run *r, int seq, int n_slots)
{
    for (int k = 0; k < r->n_stages; k++) kv_seq_extend(&r->stage[k].m[seq], n_slots);
}

static qn_token token_at(const struct run *r, int pos, int seq) { return (pos * 37 + seq * 101 + 11) % r->n_vocab; }

/* Two prompts of different lengths in the same batches, each with half of the rows. */
static void prefill(struct run *r)
{
    int n[2] = {0, 0}, most[2] = {N_PROMPT, 40};
    while (n[0] < most[0]) {
        batch_clear(batch_of(r));
        int to[N_SEQS] = {0};
        for (int s = 0; s < 2; s++)
            for (int i = 0; i < N_BATCH / 2 && n[s] < most[s]; i++, to[s] = n[s])
                batch_add(batch_of(r), token_at(r, n[s], s), n[s], s, n[s] % 13 == 0), n[s]++;
        pass(r, to);
        for (int s = 0; s < 2; s++)
            if (to[s]) extend(r, s, to[s]);
    }
}

/* n steps of the sequences [from, to), one row of each. */
static void decode(struct run *r, int n, int from, int to)
{
    for (int i = 0; i < n; i++) {
        int slots[N_SEQS] = {0};
        batch_clear(batch_of(r));
        for (int s = from; s < to; s++) {
            int at = r->stage[0].m[s].n_slots;
            slots[s] = at + 1;
            batch_add(batch_of(r), token_at(r, at, s), at, s, true);
        }
        pass(r, slots);
        for (int s = from; s < to; s++) extend(r, s, slots[s]);
    }
}

/* A row and drafts after it, of which n_stay rows stay. */
static void draft(struct run *r, int seq, int n_stay)
{
    int at = r->stage[0].m[seq].n_slots, slots[N_SEQS] = {0};
    bool has_state = r->stage[0].engine->model->hp.conv_kernel > 0;
    slots[seq] = at + 1 + N_DRAFTS;
    batch_clear(batch_of(r));
    for (int i = 0; i <= N_DRAFTS; i++) {
        batch_add(batch_of(r), token_at(r, at + i, seq + 5), at + i, seq, true);
        batch_of(r)->held[i] = has_state;
    }
    pass(r, slots);
    int32_t n_accepted[N_SEQS] = {0};
    n_accepted[seq] = n_stay;
    for (int k = 0; k < r->n_stages && has_state; k++) forward_accept(&r->stage[k].engine->forward, n_accepted);
    extend(r, seq, at + n_stay);
}

/* Sequence 2 becomes a fork of sequence 0. */
static void fork_first(struct run *r)
{
    for (int k = 0; k < r->n_stages; k++) {
        kv_seq_truncate(&r->stage[k].m[2], 0);
        kv_seq_fork(&r->stage[k].m[2], &r->stage[k].m[0]);
    }
}

/* Everything that happens to a model. */
static void live(struct run *r)
{
    prefill(r);
    decode(r, 3, 0, 2);
    draft(r, 0, 2);
    draft(r, 1, 1);
    decode(r, 2, 0, 2);
    fork_first(r);
    decode(r, 3, 0, 3);
    for (int k = 0; k < r->n_stages; k++) kv_seq_truncate(&r->stage[k].m[1], 0);
    decode(r, 2, 1, 3);
}

static uint64_t sum_of_weights(const struct run *r)
{
    uint64_t n = 0;
    for (int k = 0; k < r->n_stages; k++) n += weights_tensor_bytes(r->stage[k].model->model->weights);
    return n;
}

/* Layers with attention and bytes of states, of all stages. */
static void count_caches(const struct run *r, int *n_layers, size_t *state_bytes)
{
    *n_layers = 0;
    *state_bytes = 0;
    for (int k = 0; k < r->n_stages; k++) {
        const struct kv_shape *s = kv_pool_shape(r->stage[k].engine->kv);
        bool has_attn = r->stage[k].model->model->hp.n_layer_kv > 0;
        *n_layers += has_attn ? s->n_layer + s->n_layer_win : 0;
        *state_bytes += s->state_bytes;
    }
}

static void stages_give_the_bits_of_the_whole(void **state)
{
    (void)state;
    for (int i = 0; i < n_paths; i++) {
        struct run whole, stages;
        run_open(&whole, paths[i], 1, 0, false);
        int n_layer = whole.stage[0].engine->model->hp.n_layer;
        live(&whole);
        for (int n = 2; n <= MAX_STAGES && n <= n_layer; n++) {
            run_open(&stages, paths[i], n, n_layer, n == 3);
            live(&stages);
            assert_int_equal(stages.n_log, whole.n_log);
            for (int k = 0; k < whole.n_log; k++)
                if (memcmp(whole.log + (size_t)k * (size_t)whole.n_vocab,
                           stages.log + (size_t)k * (size_t)whole.n_vocab, sizeof(float) * (size_t)whole.n_vocab))
                    fail_msg("%s in %d stages: logits %d of %d differ", paths[i], n, k, whole.n_log);
            run_close(&stages);
        }
        run_close(&whole);
    }
}

/* No layer is counted twice. In two stages there are the embedding table of a tied model, and the factors of rotations.
 */
static void stages_count_their_own_layers(void **state)
{
    (void)state;
    for (int i = 0; i < n_paths; i++) {
        struct run whole, stages;
        int n_layers, n_layers_stages;
        size_t bytes, bytes_stages;
        run_open(&whole, paths[i], 1, 0, false);
        const struct model *m = whole.stage[0].engine->model;
        run_open(&stages, paths[i], 2, m->hp.n_layer, false);
        uint64_t both = m->token_embd == m->output ? m->token_embd->bytes : 0;
        const struct tensor *factors = weights_tensor(m->weights, "rope_freqs.weight");
        if (factors) both += factors->bytes;
        assert_true(sum_of_weights(&stages) >= sum_of_weights(&whole) + both);
        assert_true(sum_of_weights(&stages) <= sum_of_weights(&whole) + both + 4 * (uint64_t)m->hp.n_embd);
        count_caches(&whole, &n_layers, &bytes);
        count_caches(&stages, &n_layers_stages, &bytes_stages);
        assert_int_equal(n_layers, n_layers_stages);
        assert_int_equal(bytes, bytes_stages);
        run_close(&stages);
        run_close(&whole);
    }
}

/* A file with some layers has room for them only: the rest are holes. Its keys say what it has. */
static void a_file_with_some_layers_is_small_and_is_not_copied_again(void **state)
{
    (void)state;
    char name[64], again[] = "/tmp/quern-layers-XXXXXX";
    struct qn_error e = {0};
    struct model *m, *part;
    struct stat whole, some;
    assert_int_equal(model_load(&m, paths[0], &e), 0);
    make_file(name, &(struct layers){m, 1, 2});
    assert_int_equal(stat(paths[0], &whole), 0);
    assert_int_equal(stat(name, &some), 0);
    assert_true(some.st_size > whole.st_size && some.st_size < whole.st_size + 1024);
    if (model_load_stage(&part, name, &e)) fail_msg("%s", e.msg);
    for (size_t i = 0; i < weights_n_tensors(m->weights); i++) {
        const struct tensor *a = weights_tensor_at(m->weights, i), *b = weights_tensor(part->weights, a->name);
        bool is_same = !memcmp(a->data, b->data, a->bytes);
        if (strncmp(a->name, "blk.1.", 6) || a->bytes <= HELLO_EDGE) continue;
        if (!is_same) fail_msg("%s differs", a->name);
    }
    struct gguf_holes h = {.is_kept = is_needed, .arg = &(struct layers){m, 0, 1}};
    int fd = mkstemp(again);
    assert_int_equal(gguf_copy_with_holes(fd, again, name, &h, &e), QN_EDATA);
    assert_non_null(strstr(e.msg, "has the weights of some layers only"));
    assert_int_equal(gguf_copy_with_holes(fd, again, "/nowhere", &h, &e), QN_ENOINPUT);
    close(fd);
    unlink(again);
    unlink(name);
    model_free(part);
    model_free(m);
}

static void a_stage_without_layers_is_refused(void **state)
{
    (void)state;
    static const int ranges[][2] = {{0, 0}, {-1, 1}, {1, 1}, {1, 0}, {0, 1000}};
    qn_model *m;
    struct qn_error e;
    assert_int_equal(qn_model_open(&m, paths[0], &e), 0);
    for (size_t i = 0; i < sizeof ranges / sizeof ranges[0]; i++)
        assert_int_equal(model_cut(m->model, ranges[i][0], ranges[i][1], &e), QN_EUSAGE);
    assert_int_equal(model_cut(m->model, 0, 1, &e), 0);
    qn_model_close(m);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(stages_give_the_bits_of_the_whole),
        cmocka_unit_test(stages_count_their_own_layers),
        cmocka_unit_test(a_file_with_some_layers_is_small_and_is_not_copied_again),
        cmocka_unit_test(a_stage_without_layers_is_refused),
    };
    paths = argv + 1;
    n_paths = argc - 1;
    return cmocka_run_group_tests(tests, NULL, NULL);
}
