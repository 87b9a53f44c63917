/* SPDX-License-Identifier: MIT
 *
 * test_runner.c: what one stage answers to packets that a test sends by hand.
 *
 * Packets are sent before the stage begins to serve, so what it finds does not depend on time. The test is the stage's
 * neighbour on both sides.
 *
 *     test_runner MODEL
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <pthread.h>
#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "cluster/runner.h"
#include "kernel/cpu.h"
#include "model/load.h"

#define N_CTX  192
#define N_ROWS 64
#define GROUP  99
#define BYTES  (1 << 18)

static const char *path;
static int most_moves = 4; /* of the limits */

struct bench {
    struct model *model;
    struct kernels kernels;
    struct pool *pool;
    struct ledger ledger;
    struct step_limits limits;
    struct runner *runner;
    struct link *to, *in, *out, *from; /* the test's and the stage's ends */
    pthread_t thread;
    atomic_bool stop;
    int rc;
    struct qn_error error;
    struct packet_out sent[LINK_WINDOW];
    struct link_transfer transfers[LINK_WINDOW];
    int n_sent;
    uint8_t *got;
    struct packet_head head; /* of the last packet that came */
    size_t n_got;
    struct pulse_own pulse;
    uint64_t need_ns; /* the most that it asked for while it was tended */
};

static void draw_first(void *arg, const float *logits, int n, qn_token *tokens)
{
    (void)arg, (void)logits;
    for (int i = 0; i < n; i++) tokens[i] = i;
}

static int note_need(void *arg, struct qn_error *e)
{
    struct bench *b = arg;
    (void)e;
    if (pulse_own_need(&b->pulse) > b->need_ns) b->need_ns = pulse_own_need(&b->pulse);
    return 0;
}

/* The first or the last of two stages. */
static void bench_open(struct bench *b, bool is_first)
{
    struct qn_error e;
    *b = (struct bench){.got = mem_alloc(BYTES)};
    assert_int_equal(model_load(&b->model, path, &e), 0);
    int n = b->model->hp.n_layer, half = n / 2;
    b->limits = (struct step_limits){.n_rows = N_ROWS, .n_seqs = 2, .n_moves = most_moves, .n_pages = 8};
    if (b->model->hp.state_bytes) b->limits.n_states = 3;
    struct kv_shape shape = forward_window_shape(b->model, KV_F16);
    if (shape.n_layer_win) b->limits.n_windows = 8;
    runner_limits(&b->limits, b->model, N_CTX);
    assert_int_equal(model_cut(b->model, is_first ? 0 : half, is_first ? half : n, &e), 0);
    kernels_init(&b->kernels, cpu_best());
    ledger_init(&b->ledger, (size_t)1 << 32);
    assert_int_equal(pool_new(&b->pool, 1, 0, &e), 0);
    struct runner_params p = {.model = b->model,
                              .kernels = &b->kernels,
                              .pool = b->pool,
                              .ledger = &b->ledger,
                              .kv = KV_F16,
                              .n_ctx = N_CTX,
                              .limits = b->limits,
                              .group = GROUP,
                              .tend = note_need,
                              .tend_arg = b,
                              .pulse = &b->pulse,
                              .draw = is_first ? NULL : draw_first};
    if (runner_new(&b->runner, &p, &e)) fail_msg("%s", e.msg);
    assert_int_equal(link_open_pair(&b->to, &b->in, &e), 0);
    assert_int_equal(link_open_pair(&b->from, &b->out, &e), 0);
}

static void *bench_main(void *arg)
{
    struct bench *b = arg;
    b->rc = runner_serve(b->runner, b->in, b->out, &b->stop, &b->error);
    return NULL;
}

static void start(struct bench *b) { assert_int_equal(pthread_create(&b->thread, NULL, bench_main, b), 0); }

static void bench_close(struct bench *b, bool stop)
{
    bool done;
    atomic_store(&b->stop, stop);
    pthread_join(b->thread, NULL);
    for (int i = 0; i < b->n_sent; i++) {
        if (b->transfers[i].is_started) link_test(&b->transfers[i], &done, NULL);
        link_cancel(&b->transfers[i]);
        mem_free(b->sent[i].p);
    }
    link_close(b->to);
    link_close(b->in);
    link_close(b->from);
    link_close(b->out);
    runner_free(b->runner);
    pool_free(b->pool);
    assert_int_equal(ledger_used(&b->ledger), 0);
    model_free(b->model);
    mem_free(b->got);
}

static struct packet_out *next_packet(struct bench *b)
{
    struct packet_out *out = &b->sent[b->n_sent];
    *out = (struct packet_out){.p = mem_alloc(BYTES), .cap = BYTES};
    return out;
}

static void send(struct bench *b)
{
    struct packet_out *out = &b->sent[b->n_sent];
    assert_int_equal(link_isend(b->to, &b->transfers[b->n_sent++], out->p, out->n, NULL), 0);
}

/* A step with n rows of the sequence at place 0 that begin at slot `from`. */
static void send_step(struct bench *b, uint64_t no, int from, int n, const struct step_table *table, int n_moves,
                      const struct step_move *moves)
{
    struct packet_out *out = next_packet(b);
    struct step_packet s;
    assert_int_equal(step_packet_init(&s, &b->limits, NULL), 0);
    s.can_cancel = true;
    s.n_seqs = 1;
    s.tables[0] = *table;
    if (!b->limits.n_states) s.tables[0].state = -1;
    s.moves = moves;
    s.n_moves = n_moves;
    for (int i = 0; i < n; i++) batch_add(&s.batch, 5 + i, from + i, 0, i + 1 == n);
    packet_begin(out, PACKET_STEP, GROUP, no);
    int n_embd = model_is_first(b->model) || !n ? 0 : b->limits.n_embd;
    step_packet_put(out, &s, b->limits.n_windows > 0, n_embd);
    for (int i = 0; i < n * n_embd; i++) packet_put_u32(out, 0x3f000000u + (uint32_t)i * 1000); /* 0.5 and more */
    packet_end(out);
    step_packet_deinit(&s);
    send(b);
}

static void send_cancel(struct bench *b, uint64_t no)
{
    struct packet_out *out = next_packet(b);
    packet_begin(out, PACKET_CANCEL, GROUP, no);
    packet_end(out);
    send(b);
}

/* Waits for the stage's next packet. */
static enum packet_kind await(struct bench *b)
{
    struct link_transfer t;
    struct patience wait;
    bool done = false;
    patience_reset(&wait);
    assert_int_equal(link_irecv(b->from, &t, b->got, BYTES, NULL), 0);
    for (; !done; patience_wait(&wait)) assert_int_equal(link_test(&t, &done, NULL), 0);
    assert_int_equal(packet_read_head(&b->head, b->got, t.n, GROUP, NULL), 0);
    b->n_got = t.n;
    return b->head.kind;
}

static struct packet_reply reply(struct bench *b)
{
    struct packet_reply r;
    assert_int_equal(packet_read_reply(&r, packet_body(b->got, b->n_got), N_ROWS, b->limits.n_vocab, NULL), 0);
    return r;
}

static const int32_t all_pages[] = {6, 1, 4}, all_windows[] = {0, 1, 2};
static const struct step_table one_page = {.n_pages = 1, .pages = all_pages, .windows = all_windows};

static void the_first_stage_sends_rows_on(void **state)
{
    (void)state;
    struct bench b;
    struct step_packet s;
    bench_open(&b, true);
    send_step(&b, 1, 0, 3, &one_page, 0, NULL);
    start(&b);
    assert_int_equal(await(&b), PACKET_STEP);
    assert_int_equal(step_packet_init(&s, &b.limits, NULL), 0);
    assert_int_equal(step_packet_read(&s, &b.limits, packet_body(b.got, b.n_got), true, NULL), 0);
    assert_true(s.batch.n == 3 && s.batch.token[1] == 6 && s.tables[0].pages[0] == 6 && s.rows[0] != 0);
    step_packet_deinit(&s);
    bench_close(&b, true);
    assert_int_equal(b.rc, QN_ECANCEL);
    assert_int_equal(b.need_ns, PULSE_MOST_NS); /* the first pass may read from the disk */
    assert_int_equal(pulse_own_need(&b.pulse), 0);
}

static void the_last_stage_answers_with_tokens(void **state)
{
    (void)state;
    struct bench b;
    bench_open(&b, false);
    send_step(&b, 1, 0, 3, &one_page, 0, NULL);
    start(&b);
    assert_int_equal(await(&b), PACKET_REPLY);
    struct packet_reply r = reply(&b);
    assert_true(r.outcome == STEP_DONE && r.n_tokens == 1 && r.tokens[0] == 0 && b.head.step == 1);
    bench_close(&b, true);
}

/* The next stage learns the tables of a step that was cancelled, without its rows, and then that it was. */
static void a_cancelled_step_is_abandoned(void **state)
{
    (void)state;
    struct bench b;
    struct step_packet s;
    bench_open(&b, true);
    send_step(&b, 1, 0, N_ROWS, &one_page, 0, NULL);
    send_cancel(&b, 1);
    start(&b);
    assert_int_equal(await(&b), PACKET_STEP);
    assert_int_equal(step_packet_init(&s, &b.limits, NULL), 0);
    assert_int_equal(step_packet_read(&s, &b.limits, packet_body(b.got, b.n_got), true, NULL), 0);
    assert_true(s.batch.n == 0 && s.n_seqs == 1 && s.tables[0].n_pages == 1);
    step_packet_deinit(&s);
    assert_int_equal(await(&b), PACKET_REPLY);
    assert_int_equal(reply(&b).outcome, STEP_ABANDONED);
    bench_close(&b, true);
}

/* It may be in time for a later stage. */
static void a_cancellation_that_comes_late_is_passed_on(void **state)
{
    (void)state;
    struct bench b;
    bench_open(&b, true);
    send_step(&b, 1, 0, 3, &one_page, 0, NULL);
    start(&b);
    assert_int_equal(await(&b), PACKET_STEP);
    send_cancel(&b, 1);
    assert_int_equal(await(&b), PACKET_CANCEL);
    bench_close(&b, true);
}

/* Sends one bad step to a fresh stage, and returns what the stage says. */
static const char *refusal(int from, int n, const struct step_table *table, int n_moves, const struct step_move *moves)
{
    static char text[PACKET_MAX_TEXT + 1];
    struct bench b;
    bench_open(&b, false);
    send_step(&b, 1, from, n, table, n_moves, moves);
    start(&b);
    assert_int_equal(await(&b), PACKET_REPLY);
    struct packet_reply r = reply(&b);
    assert_int_equal(r.outcome, STEP_FAILED);
    snprintf(text, sizeof text, "%s", r.text);
    bench_close(&b, false);
    assert_int_equal(b.rc, QN_EDATA);
    assert_string_equal(b.error.msg, text);
    return text;
}

static void a_step_that_goes_on_from_nothing_is_refused(void **state)
{
    (void)state;
    struct bench b;
    const struct step_table kept = {.n_pages = 2, .n_kept = 1, .pages = all_pages, .windows = all_windows};
    assert_non_null(strstr(refusal(0, 2, &kept, 0, NULL), "keeps 1 pages of sequence 0, which has 0"));
    bench_open(&b, false);
    bool has_windows = b.limits.n_windows > 0;
    start(&b);
    bench_close(&b, true);
    if (!has_windows) return;
    static const int32_t holes[] = {-1, 1, 2};
    struct step_table holey = {.n_pages = 2, .pages = all_pages, .windows = holes};
    assert_non_null(strstr(refusal(60, 6, &holey, 0, NULL), "has no window page 0"));
    holey.windows = holes + 1;
    holey.first_window = 1;
    assert_non_null(strstr(refusal(60, 6, &holey, 0, NULL), "has no window page 0"));
}

/* Nothing was run, or the pass was not one that can be taken back. */
static void taking_back_what_was_not_run_does_nothing(void **state)
{
    (void)state;
    static const struct step_move undo[] = {{.what = MOVE_UNDO}, {.what = MOVE_UNDO}};
    struct bench b;
    bench_open(&b, false);
    send_step(&b, 1, 0, 1, &one_page, 2, undo);
    send_step(&b, 2, 1, 1, &one_page, 2, undo);
    start(&b);
    for (int i = 0; i < 2; i++) {
        assert_int_equal(await(&b), PACKET_REPLY);
        assert_int_equal(reply(&b).outcome, STEP_DONE);
    }
    bench_close(&b, true);
}

static void counts_without_a_step_are_refused(void **state)
{
    (void)state;
    struct bench b;
    bench_open(&b, false);
    struct packet_out *out = next_packet(&b);
    packet_accept(out, GROUP, 1, NULL, 0);
    send(&b);
    start(&b);
    assert_int_equal(await(&b), PACKET_REPLY);
    assert_non_null(strstr(reply(&b).text, "after a step of 0 sequences"));
    bench_close(&b, false);
    assert_int_equal(b.rc, QN_EDATA);
}

/* The limits are the head's. */
static void packets_are_paid_for(void **state)
{
    (void)state;
    size_t used[2], packet[2];
    for (int i = 0; i < 2; i++) {
        struct bench b;
        most_moves = i ? 1 << 16 : 4;
        bench_open(&b, true);
        used[i] = ledger_used(&b.ledger);
        packet[i] = step_packet_bytes(&b.limits);
        start(&b);
        bench_close(&b, true);
    }
    most_moves = 4;
    assert_int_equal(used[1] - used[0], 6 * (packet[1] - packet[0])); /* four that come and two that go */
}

static void a_closed_link_ends_the_stage(void **state)
{
    (void)state;
    struct bench b;
    bench_open(&b, false);
    link_close(b.to);
    b.to = NULL;
    start(&b);
    bench_close(&b, false);
    assert_int_equal(b.rc, QN_EIO);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_first_stage_sends_rows_on),
        cmocka_unit_test(the_last_stage_answers_with_tokens),
        cmocka_unit_test(a_cancelled_step_is_abandoned),
        cmocka_unit_test(a_cancellation_that_comes_late_is_passed_on),
        cmocka_unit_test(a_step_that_goes_on_from_nothing_is_refused),
        cmocka_unit_test(taking_back_what_was_not_run_does_nothing),
        cmocka_unit_test(counts_without_a_step_are_refused),
        cmocka_unit_test(packets_are_paid_for),
        cmocka_unit_test(a_closed_link_ends_the_stage),
    };
    assert_int_equal(argc, 2);
    path = argv[1];
    return cmocka_run_group_tests(tests, NULL, NULL);
}
