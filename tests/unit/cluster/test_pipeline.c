/* SPDX-License-Identifier: MIT
 *
 * test_pipeline.c: a chain of stages gives the bits of the whole model, whatever happens to its sequences.
 *
 * A random life (prompts, single tokens, drafts that are cut back, forks, truncations, copies of states that are put
 * back) is lived twice: by an engine, and by 2, 3 and 4 stages in threads of their own, whose head has no keys and
 * values. In the second life, passes are cancelled and run again, and copies of states are written to disk at once and
 * read again before they are put back.
 *
 *     test_pipeline MODEL...
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/rng.h"
#include "cluster/pipeline.h"
#include "stage_thread.h"

#define MAX_STAGES  4
#define N_CTX       384
#define N_ROWS      64
#define N_SEQS      4
#define N_STATES    8
#define N_DRAFTS    4
#define N_EVENTS    70
#define MAX_LOG     1200 /* rows of logits that are compared */
#define GROUP       0x12345678
#define DEADLINE_NS 30000000000u

static char **paths;
static int n_paths;

/* ---- rows of logits ---- */

struct log {
    float *rows; /* [n][n_vocab] */
    int n, n_vocab;
};

static void log_open(struct log *l, int n_vocab)
{
    *l = (struct log){.rows = mem_alloc(sizeof(float) * (size_t)MAX_LOG * (size_t)n_vocab), .n_vocab = n_vocab};
}

/* The most likely tokens, and a copy of the logits. */
static void draw(void *arg, const float *logits, int n, qn_token *tokens)
{
    struct log *l = arg;
    if (l->n + n > MAX_LOG) fail_msg("more than %d rows of logits", MAX_LOG);
    memcpy(l->rows + (size_t)l->n * (size_t)l->n_vocab, logits, sizeof(float) * (size_t)n * (size_t)l->n_vocab);
    l->n += n;
    for (int i = 0; i < n; i++) {
        const float *row = logits + (size_t)i * (size_t)l->n_vocab;
        tokens[i] = 0;
        for (int t = 1; t < l->n_vocab; t++)
            if (row[t] > row[tokens[i]]) tokens[i] = t;
    }
}

/* ---- a chain of stages ---- */

/* Something that runs batches: an engine, or a chain. */
struct body {
    qn_model *model; /* whole; its vocabulary and numbers */
    qn_engine *engine;
    struct ledger ledger;
    struct kv_pool *kv;
    struct pipeline *pipeline; /* NULL: the engine */
    struct stage_thread stages[MAX_STAGES];
    int n_stages;
    struct link *to_first, *from_last;
    atomic_bool stop;
    struct kv_seq m[N_SEQS], *mems[N_SEQS];
    uint8_t *kept[N_SEQS]; /* copies of states */
    int kept_at[N_SEQS];   /* slots; -1: none */
    struct batch batch;
    float *logits;
    qn_token tokens[N_ROWS];
    struct log log;
    int n_asked, cancel_at, n_cancelled;
    char dir[32];
    uint32_t n_orders;
};

static void body_open(struct body *b, const char *path)
{
    struct qn_error e;
    struct qn_engine_params q;
    *b = (struct body){.cancel_at = -1};
    qn_engine_params_init(&q);
    q.n_ctx = N_CTX;
    q.n_batch = N_ROWS;
    q.n_threads = 2;
    q.n_sessions = N_SEQS;
    if (qn_model_open(&b->model, path, &e) || qn_engine_new(&b->engine, b->model, &q, &e)) fail_msg("%s", e.msg);
    log_open(&b->log, b->model->model->hp.n_vocab);
    b->logits = mem_alloc(sizeof(float) * (size_t)N_ROWS * (size_t)b->log.n_vocab);
    assert_int_equal(batch_init(&b->batch, N_ROWS, &e), 0);
    b->kv = b->engine->kv;
}

static void seqs_open(struct body *b)
{
    for (int i = 0; i < N_SEQS; i++) {
        b->mems[i] = &b->m[i];
        b->kept_at[i] = -1;
        assert_int_equal(kv_seq_init(&b->m[i], b->kv, N_CTX, NULL), 0);
        if (b->m[i].state) b->kept[i] = kv_state_get(b->kv);
    }
}

static void chain_open(struct body *b, const char *path, int n_stages)
{
    const struct model *m = b->model->model;
    struct kv_shape shape = pipeline_kv_shape(m, KV_F16);
    struct step_limits l = {.n_rows = N_ROWS, .n_seqs = N_SEQS, .n_moves = 3};
    struct link *ends[2 * (MAX_STAGES + 1)];
    struct qn_error e;
    strcpy(b->dir, "/tmp/test_pipeline.XXXXXX");
    assert_non_null(mkdtemp(b->dir));
    runner_limits(&l, m, N_CTX);
    ledger_init(&b->ledger, 1 << 24);
    assert_int_equal(kv_pool_new(&b->kv, &shape, N_SEQS * N_CTX, N_STATES, 40, &b->ledger, &e), 0);
    l.n_pages = kv_pool_n_pages(b->kv);
    l.n_windows = kv_pool_n_windows(b->kv);
    l.n_states = kv_pool_n_states(b->kv);
    b->n_stages = n_stages;
    for (int i = 0; i <= n_stages; i++) assert_int_equal(link_open_pair(&ends[2 * i], &ends[2 * i + 1], &e), 0);
    b->to_first = ends[0];
    b->from_last = ends[2 * n_stages + 1];
    for (int i = 0; i < n_stages; i++) {
        bool is_last = i == n_stages - 1;
        stage_thread_open(&b->stages[i], path, i * m->hp.n_layer / n_stages, (i + 1) * m->hp.n_layer / n_stages,
                          (struct runner_params){.kv = KV_F16,
                                                 .n_ctx = N_CTX,
                                                 .limits = l,
                                                 .group = GROUP,
                                                 .disk_dir = b->dir,
                                                 .draw = is_last ? draw : NULL,
                                                 .draw_arg = &b->log});
        stage_thread_start(&b->stages[i], ends[2 * i + 1], ends[2 * i + 2], &b->stop);
    }
    struct pipeline_params p = {.kv = b->kv,
                                .limits = l,
                                .group = GROUP,
                                .to_first = b->to_first,
                                .from_last = b->from_last,
                                .deadline_ns = DEADLINE_NS};
    static const uint8_t key[CHAIN_MODEL_BYTES] = {1};
    const struct disk_order enter = {.op = DISK_ENTER, .key = key, .budget = 1 << 30};
    if (pipeline_new(&b->pipeline, &p, &e) || pipeline_order(b->pipeline, &enter, &e)) fail_msg("%s", e.msg);
}

static void body_close(struct body *b)
{
    for (int i = 0; i < N_SEQS; i++) {
        if (b->mems[i]) kv_seq_deinit(&b->m[i]);
        if (b->kept[i]) kv_state_put(b->kv, b->kept[i]);
    }
    if (b->pipeline) {
        atomic_store(&b->stop, true);
        pipeline_free(b->pipeline);
        link_close(b->to_first);
        link_close(b->from_last);
        for (int i = 0; i < b->n_stages; i++) stage_thread_close(&b->stages[i]);
        char command[64];
        snprintf(command, sizeof command, "rm -rf %s", b->dir);
        if (b->n_stages && system(command)) fail_msg("%s", command);
        kv_pool_free(b->kv);
        assert_int_equal(ledger_used(&b->ledger), 0);
    }
    batch_deinit(&b->batch);
    mem_free(b->logits);
    mem_free(b->log.rows);
    qn_engine_free(b->engine);
    qn_model_close(b->model);
}

/* ---- a life ---- */

static bool asked(void *arg)
{
    struct body *b = arg;
    return b->n_asked++ == b->cancel_at;
}

/* Runs the batch. A pass that was cancelled is run again. */
static void pass(struct body *b)
{
    struct qn_error e = {0};
    int n = 0, to[N_SEQS] = {0};
    for (int i = 0; i < b->batch.n; i++) {
        n += b->batch.want_logits[i];
        to[b->batch.seq[i]] = b->batch.slot[i] + 1;
    }
    for (int s = 0; s < N_SEQS; s++) {
        if (!to[s]) continue;
        assert_int_equal(kv_seq_reserve(&b->m[s], to[s], NULL), 0);
        assert_int_equal(kv_seq_open(&b->m[s], b->m[s].n_slots, to[s], NULL), 0);
    }
    if (!b->pipeline) {
        assert_true(forward_run(&b->engine->forward, &b->batch, b->mems, b->logits));
        draw(&b->log, b->logits, n, b->tokens);
        return;
    }
    int rc = pipeline_run(b->pipeline, &b->batch, b->mems, asked, b, b->tokens, NULL, &e);
    if (rc == QN_ECANCEL) {
        b->n_cancelled++;
        rc = pipeline_run(b->pipeline, &b->batch, b->mems, NULL, NULL, b->tokens, NULL, &e);
    }
    if (rc) fail_msg("%s", e.msg);
}

static uint64_t dice(uint64_t seed, int event, int what, uint64_t n)
{
    return rng_u64(seed, (uint64_t)event, (uint64_t)what) % n;
}

static void add_rows(struct body *b, uint64_t seed, int event, int seq, int n, bool wants_all)
{
    int at = b->m[seq].n_slots;
    for (int i = 0; i < n; i++) {
        qn_token t = (qn_token)dice(seed, event, 100 * seq + i, (uint64_t)b->log.n_vocab);
        batch_add(&b->batch, t, at + i, seq, wants_all || i + 1 == n);
    }
}

/* A part of a prompt, next to a row of another sequence. */
static void read_prompt(struct body *b, uint64_t seed, int event, int seq)
{
    int n = 1 + (int)dice(seed, event, 1, N_ROWS - 4), other = (seq + 1) % N_SEQS;
    add_rows(b, seed, event, seq, n, false);
    add_rows(b, seed, event, other, 1, true);
    pass(b);
    kv_seq_extend(&b->m[seq], b->m[seq].n_slots + n);
    kv_seq_extend(&b->m[other], b->m[other].n_slots + 1);
}

static void decode(struct body *b, uint64_t seed, int event)
{
    for (int s = 0; s < N_SEQS; s++) add_rows(b, seed, event, s, 1, true);
    pass(b);
    for (int s = 0; s < N_SEQS; s++) kv_seq_extend(&b->m[s], b->m[s].n_slots + 1);
}

static void accept(struct body *b, const int32_t *n)
{
    struct qn_error e;
    if (!b->m[0].state) return;
    if (!b->pipeline)
        forward_accept(&b->engine->forward, n);
    else if (pipeline_accept(b->pipeline, n, &e))
        fail_msg("%s", e.msg);
}

/* Rows of which some stay, in two sequences, and a row of a third one. */
static void draft(struct body *b, uint64_t seed, int event, int seq)
{
    int others[2] = {(seq + 2) % N_SEQS, (seq + 3) % N_SEQS};
    int32_t n_stay[N_SEQS] = {0};
    add_rows(b, seed, event, seq, 1 + N_DRAFTS, true);
    add_rows(b, seed, event, others[0], 1 + N_DRAFTS, true);
    add_rows(b, seed, event, others[1], 1, true);
    for (int i = 0; i < 2 * (1 + N_DRAFTS); i++) b->batch.held[i] = b->m[0].state != NULL;
    pass(b);
    n_stay[seq] = 1 + (int32_t)dice(seed, event, 2, 1 + N_DRAFTS);
    n_stay[others[0]] = 1 + (int32_t)dice(seed, event, 3, 1 + N_DRAFTS);
    n_stay[others[1]] = 1;
    accept(b, n_stay);
    for (int s = 0; s < N_SEQS; s++)
        if (n_stay[s]) kv_seq_extend(&b->m[s], b->m[s].n_slots + n_stay[s]);
}

/* Once for each model is enough, because files are synced. */
static bool has_disk(const struct body *b) { return b->pipeline && b->n_stages == 2; }

/* Writes or reads the copy of a state. The stages do so after what was copied before. */
static void do_disk(struct body *b, enum disk_op op, int seq)
{
    struct disk_part part = {{(uint32_t)seq, 1}, 0, KV_STATES, kv_number(b->kv, KV_STATES, b->kept[seq]), 0};
    struct disk_order o = {.op = op, .number = ++b->n_orders, .n_parts = 1, .parts = &part};
    uint32_t is_busy = 1, n_good = 0;
    struct qn_error e;
    int rc = pipeline_order(b->pipeline, &o, &e);
    o = (struct disk_order){.op = DISK_ASK, .number = b->n_orders, .n_good = UINT32_MAX};
    while (!rc && is_busy) {
        rc = pipeline_order(b->pipeline, &o, &e);
        while (!rc && (rc = pipeline_answer(b->pipeline, &is_busy, &n_good, &e)) == QN_EBUSY) rc = poll(NULL, 0, 1);
    }
    o.op = DISK_END;
    if (!rc) rc = pipeline_order(b->pipeline, &o, &e);
    if (rc) fail_msg("%s", e.msg);
    assert_int_equal(n_good, 1);
}

static void forget(struct body *b, int seq, int n)
{
    if (b->kept_at[seq] > n) b->kept_at[seq] = -1;
    if (has_disk(b) && b->m[seq].state && b->kept_at[seq] >= 0) do_disk(b, DISK_READ, seq);
    if (!b->m[seq].state)
        kv_seq_truncate(&b->m[seq], kv_seq_whole(&b->m[seq], n));
    else if (b->kept_at[seq] >= 0)
        kv_seq_restore(&b->m[seq], b->kept_at[seq], b->kept[seq]);
    else
        kv_seq_truncate(&b->m[seq], 0);
}

static void keep(struct body *b, int seq)
{
    if (!b->m[seq].state) return;
    kv_state_copy(b->kv, b->kept[seq], b->m[seq].state);
    b->kept_at[seq] = b->m[seq].n_slots;
    if (has_disk(b)) do_disk(b, DISK_WRITE, seq);
}

static void fork_into(struct body *b, int to, int from)
{
    b->kept_at[to] = -1;
    forget(b, to, 0);
    kv_seq_fork(&b->m[to], &b->m[from]);
}

static void happen(struct body *b, uint64_t seed, int event)
{
    int seq = (int)dice(seed, event, 4, N_SEQS), what = (int)dice(seed, event, 5, 8);
    batch_clear(&b->batch);
    for (int s = 0; s < N_SEQS; s++)
        if (b->m[s].n_slots > N_CTX - N_ROWS) forget(b, s, 0);
    if (what < 2) read_prompt(b, seed, event, seq);
    if (what == 2 || what == 3) decode(b, seed, event);
    if (what == 4) draft(b, seed, event, seq);
    if (what == 5) fork_into(b, (seq + 1) % N_SEQS, seq);
    if (what == 6) forget(b, seq, (int)dice(seed, event, 6, (uint64_t)b->m[seq].n_slots + 1));
    if (what == 7) keep(b, seq);
}

static void live(struct body *b, uint64_t seed)
{
    seqs_open(b);
    for (int i = 0; i < N_EVENTS; i++) {
        b->n_asked = 0;
        b->cancel_at = b->pipeline && i % 3 == 0 ? (int)dice(seed, i, 7, 4) : -1;
        happen(b, seed, i);
    }
}

static void a_chain_gives_the_bits_of_the_whole(void **state)
{
    (void)state;
    for (int i = 0; i < n_paths; i++) {
        for (int n = 1; n <= MAX_STAGES; n++) {
            struct body whole, chain;
            body_open(&whole, paths[i]);
            live(&whole, (uint64_t)n);
            body_open(&chain, paths[i]);
            chain_open(&chain, paths[i], n);
            live(&chain, (uint64_t)n);
            /* Rows of a pass that was cancelled after its logits are not there: it was not cancelled any more. */
            assert_int_equal(chain.log.n, whole.log.n);
            size_t row = sizeof(float) * (size_t)whole.log.n_vocab;
            for (int k = 0; k < whole.log.n; k++)
                if (memcmp((char *)whole.log.rows + (size_t)k * row, (char *)chain.log.rows + (size_t)k * row, row))
                    fail_msg("%s in %d stages: logits %d of %d differ", paths[i], n, k, whole.log.n);
            print_message("%s, %d stages: %d rows of logits, %d passes cancelled\n", paths[i], n, chain.log.n,
                          chain.n_cancelled);
            body_close(&chain);
            body_close(&whole);
        }
    }
}

/* A stage that refuses a packet says why, also while nothing is expected of it, and although it takes nothing more. */
static void a_refusal_between_steps_is_told_at_once(void **state)
{
    (void)state;
    uint8_t bytes[256];
    struct packet_out text = {.p = bytes, .cap = sizeof bytes};
    struct link *to, *first, *last, *from;
    struct link_transfer t;
    struct body b;
    struct qn_error e;
    int32_t none[N_SEQS] = {0};
    body_open(&b, paths[0]);
    struct kv_shape shape = pipeline_kv_shape(b.model->model, KV_F16);
    struct step_limits l = {.n_rows = N_ROWS, .n_seqs = N_SEQS, .n_moves = 3};
    runner_limits(&l, b.model->model, N_CTX);
    ledger_init(&b.ledger, 1 << 24);
    assert_int_equal(kv_pool_new(&b.kv, &shape, N_SEQS * N_CTX, N_STATES, 40, &b.ledger, &e), 0);
    assert_int_equal(link_open_pair(&to, &first, &e), 0);
    assert_int_equal(link_open_pair(&last, &from, &e), 0);
    struct pipeline_params p = {b.kv, l, GROUP, to, from, DEADLINE_NS, 0};
    assert_int_equal(pipeline_new(&b.pipeline, &p, &e), 0);
    packet_reply_failure(&text, GROUP, 7, STEP_FAILED, "too many pages");
    assert_int_equal(link_isend(last, &t, bytes, text.n, &e), 0);
    assert_int_equal(pipeline_accept(b.pipeline, none, &e), QN_EIO);
    assert_string_equal(e.msg, "a stage: too many pages");
    assert_int_equal(pipeline_accept(b.pipeline, none, &e), QN_EIO);
    assert_string_equal(e.msg, "a stage: too many pages");
    link_cancel(&t);
    pipeline_free(b.pipeline);
    b.pipeline = NULL;
    link_close(to);
    link_close(first);
    link_close(last);
    link_close(from);
    kv_pool_free(b.kv);
    body_close(&b);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_chain_gives_the_bits_of_the_whole),
        cmocka_unit_test(a_refusal_between_steps_is_told_at_once),
    };
    paths = argv + 1;
    n_paths = argc - 1;
    return cmocka_run_group_tests(tests, NULL, NULL);
}
