/* SPDX-License-Identifier: MIT
 *
 * test_packet.c: packets between stages are read as they were written, hostile ones are refused, and links keep order.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <string.h>

#include "base/mem.h"
#include "cluster/link.h"
#include "cluster/voices.h"
#include "kernel/cpu.h"

#define GROUP 7

static const struct step_limits limits = {.n_rows = 8,
                                          .n_seqs = 3,
                                          .n_moves = 4,
                                          .n_pages = 20,
                                          .n_windows = 10,
                                          .n_states = 5,
                                          .n_pages_each = 6,
                                          .page_slots = 16,
                                          .window = 20,
                                          .n_embd = 4,
                                          .n_vocab = 100};

static _Alignas(4) uint8_t bytes[4096];

static struct packet_out out_of_bytes(void) { return (struct packet_out){.p = bytes, .cap = sizeof bytes}; }

/* ---- headers and short bodies ---- */

static void a_header_comes_back(void **state)
{
    (void)state;
    struct packet_out out = out_of_bytes();
    struct packet_head h;
    packet_begin(&out, PACKET_CANCEL, GROUP, 1234567890123u);
    packet_end(&out);
    assert_int_equal(out.n, PACKET_HEAD_BYTES);
    assert_int_equal(packet_read_head(&h, bytes, out.n, GROUP, NULL), 0);
    assert_int_equal(h.kind, PACKET_CANCEL);
    assert_true(h.step == 1234567890123u && h.group == GROUP && h.body_bytes == 0);
}

static void a_wrong_header_is_refused(void **state)
{
    (void)state;
    static const struct {
        int at;
        uint8_t value;
        const char *says;
    } wrong[] = {{0, 0, "begins with"},     {4, 9, "version 9"}, {6, 0, "kind 0"},   {6, 99, "kind 99"},
                 {16, 8, "group 00000008"}, {20, 1, "1 follow"}, {23, 255, "follow"}};
    struct packet_head h;
    struct qn_error e;
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
        struct packet_out out = out_of_bytes();
        packet_begin(&out, PACKET_CANCEL, GROUP, 1);
        packet_end(&out);
        bytes[wrong[i].at] = wrong[i].value;
        assert_int_equal(packet_read_head(&h, bytes, out.n, GROUP, &e), QN_EDATA);
        if (!strstr(e.msg, wrong[i].says)) fail_msg("'%s' does not say '%s'", e.msg, wrong[i].says);
    }
    for (size_t n = 0; n < PACKET_HEAD_BYTES; n++)
        assert_int_equal(packet_read_head(&h, bytes, n, GROUP, NULL), QN_EDATA);
}

static void replies_come_back(void **state)
{
    (void)state;
    const qn_token tokens[] = {1, 99, 0};
    const uint32_t times[] = {70, 80};
    struct packet_out out = out_of_bytes();
    struct packet_reply r;
    packet_reply_tokens(&out, GROUP, 5, times, 2, tokens, 3);
    assert_int_equal(packet_read_reply(&r, packet_body(bytes, out.n), 8, 100, NULL), 0);
    assert_true(r.outcome == STEP_DONE && r.n_tokens == 3 && !memcmp(r.tokens, tokens, sizeof tokens));
    assert_true(r.n_times == 2 && r.times[1] == 80);
    assert_int_equal(packet_read_reply(&r, packet_body(bytes, out.n), 2, 100, NULL), QN_EDATA);
    assert_int_equal(packet_read_reply(&r, packet_body(bytes, out.n), 8, 99, NULL), QN_EDATA);
    assert_int_equal(packet_read_reply(&r, packet_body(bytes, out.n - 4), 8, 100, NULL), QN_EDATA);
    packet_reply_failure(&out, GROUP, 5, STEP_FAILED, "no such page");
    assert_int_equal(packet_read_reply(&r, packet_body(bytes, out.n), 8, 100, NULL), 0);
    assert_int_equal(r.outcome, STEP_FAILED);
    assert_string_equal(r.text, "no such page");
    bytes[PACKET_HEAD_BYTES + 4]++; /* the length of the text */
    assert_int_equal(packet_read_reply(&r, packet_body(bytes, out.n), 8, 100, NULL), QN_EDATA);
    bytes[PACKET_HEAD_BYTES] = STEP_OUTCOMES;
    assert_int_equal(packet_read_reply(&r, packet_body(bytes, out.n), 8, 100, NULL), QN_EDATA);
}

static void logits_come_back(void **state)
{
    (void)state;
    const float logits[] = {1, -2, 0.5f, 3};
    struct packet_out out = out_of_bytes();
    struct packet_reply r;
    packet_reply_logits(&out, GROUP, 5, NULL, 0, logits, 2, 2);
    assert_int_equal(packet_read_reply(&r, packet_body(bytes, out.n), 2, 2, NULL), 0);
    assert_true(r.outcome == STEP_LOGITS && r.n_tokens == 2 && !memcmp(r.logits, logits, sizeof logits));
    assert_int_equal(packet_read_reply(&r, packet_body(bytes, out.n), 1, 2, NULL), QN_EDATA);
    assert_int_equal(packet_read_reply(&r, packet_body(bytes, out.n), 2, 3, NULL), QN_EDATA);
    assert_int_equal(packet_read_reply(&r, packet_body(bytes, out.n - 4), 2, 2, NULL), QN_EDATA);
}

static void counts_of_rows_come_back(void **state)
{
    (void)state;
    const int32_t counts[] = {0, 3};
    const int32_t *got;
    int n;
    struct packet_out out = out_of_bytes();
    packet_accept(&out, GROUP, 5, counts, 2);
    assert_int_equal(packet_read_accept(&got, &n, packet_body(bytes, out.n), 2, 3, NULL), 0);
    assert_true(n == 2 && got[0] == 0 && got[1] == 3);
    assert_int_equal(packet_read_accept(&got, &n, packet_body(bytes, out.n), 1, 3, NULL), QN_EDATA);
    assert_int_equal(packet_read_accept(&got, &n, packet_body(bytes, out.n), 2, 2, NULL), QN_EDATA);
}

/* ---- steps ---- */

/* Two sequences with three and two rows. */
static size_t write_step(bool with_rows)
{
    static const struct step_move moves[] = {{MOVE_PAGE, 19, 0}, {MOVE_STATE, 4, -1}};
    static const int32_t pages[] = {3, 7, 0, 19}, windows[] = {-1, 9, 2};
    static const float rows[5 * 4] = {1, 2, 3};
    struct packet_out out = out_of_bytes();
    struct step_packet s;
    assert_int_equal(step_packet_init(&s, &limits, NULL), 0);
    s.can_cancel = true;
    s.moves = moves;
    s.n_moves = 2;
    s.n_seqs = 2;
    s.tables[0] =
        (struct step_table){.place = 2, .state = 4, .n_pages = 3, .n_kept = 1, .pages = pages, .windows = windows};
    s.tables[1] = (struct step_table){.place = 0,
                                      .state = 1,
                                      .n_pages = 2,
                                      .n_kept = 0,
                                      .first_window = 1,
                                      .pages = pages + 2,
                                      .windows = windows + 1};
    for (int i = 0; i < 3; i++) batch_add(&s.batch, 97 + i, 45 + i, 0, i == 2);
    for (int i = 0; i < 2; i++) batch_add(&s.batch, i, 20 + i, 1, true);
    for (int i = 3; i < 5; i++) s.batch.held[i] = true;
    packet_begin(&out, PACKET_STEP, GROUP, 9);
    step_packet_put(&out, &s, true, with_rows ? limits.n_embd : 0);
    if (with_rows) packet_put(&out, rows, sizeof rows);
    packet_end(&out);
    assert_true(out.n <= step_packet_bytes(&limits));
    step_packet_deinit(&s);
    return out.n;
}

static void a_step_comes_back(void **state)
{
    (void)state;
    struct step_packet s;
    assert_int_equal(step_packet_init(&s, &limits, NULL), 0);
    for (int with_rows = 0; with_rows < 2; with_rows++) {
        size_t n = write_step(with_rows);
        assert_int_equal(step_packet_read(&s, &limits, packet_body(bytes, n), with_rows, NULL), 0);
        assert_true(s.can_cancel && s.n_moves == 2 && s.n_seqs == 2 && s.batch.n == 5);
        assert_true(s.moves[1].what == MOVE_STATE && s.moves[1].to == 4 && s.moves[1].from == -1);
        assert_true(s.tables[0].place == 2 && s.tables[0].n_kept == 1 && s.tables[0].pages[1] == 7);
        assert_true(s.tables[1].first_window == 1 && s.tables[1].windows[0] == 9 && s.tables[1].state == 1);
        assert_true(s.batch.token[2] == 99 && s.batch.slot[2] == 47 && s.batch.pos[4] == 21 && s.batch.seq[4] == 1);
        assert_true(s.batch.want_logits[2] && !s.batch.want_logits[1] && s.batch.held[3] && !s.batch.held[2]);
        assert_true(with_rows ? s.rows[2] == 3 : !s.rows);
        assert_int_equal(step_packet_read(&s, &limits, packet_body(bytes, n), !with_rows, NULL), QN_EDATA);
    }
    step_packet_deinit(&s);
}

/* Rows that are rounded have half of the bytes, and come back as the nearest numbers with 8 bits of mantissa. */
static void rounded_rows_come_back_rounded(void **state)
{
    (void)state;
    struct step_limits l = limits;
    struct step_packet s;
    const float row[4] = {1.00390625F, -3.0F, 1.01171875F, 0}; /* halves of the last bit: to even */
    l.rounds_rows = 1;
    size_t full = write_step(true), none = write_step(false);
    struct packet_out out = {.p = bytes, .cap = sizeof bytes, .n = none};
    const uint32_t width = (uint32_t)l.n_embd;
    assert_int_equal(l.n_embd, 4);
    memcpy(bytes + PACKET_HEAD_BYTES + 24, &width, sizeof width);
    for (int i = 0; i < 5; i++) step_packet_put_row(&out, &l, row);
    packet_end(&out);
    assert_int_equal(full - none, 2 * (out.n - none));
    assert_int_equal(step_packet_init(&s, &l, NULL), 0);
    assert_int_equal(step_packet_read(&s, &l, packet_body(bytes, out.n), true, NULL), 0);
    for (int i = 0; i < 5; i++)
        assert_true(s.rows[4 * i] == 1 && s.rows[4 * i + 1] == -3 && s.rows[4 * i + 2] == 1.015625F &&
                    !s.rows[4 * i + 3]);
    assert_int_equal(step_packet_read(&s, &l, packet_body(bytes, out.n - 4), true, NULL), QN_EDATA);
    step_packet_deinit(&s);
}

static void a_step_that_is_cut_short_is_refused(void **state)
{
    (void)state;
    struct step_packet s;
    struct qn_error e;
    assert_int_equal(step_packet_init(&s, &limits, NULL), 0);
    size_t n = write_step(true);
    for (size_t k = PACKET_HEAD_BYTES; k < n; k += 4) {
        assert_int_equal(step_packet_read(&s, &limits, packet_body(bytes, k), true, &e), QN_EDATA);
        assert_non_null(strstr(e.msg, "cluster:"));
    }
    memset(bytes + n, 0, 4);
    assert_int_equal(step_packet_read(&s, &limits, packet_body(bytes, n + 4), true, &e), QN_EDATA);
    step_packet_deinit(&s);
}

/* Whatever stands in one of the numbers, the packet is refused, or what is read is within the limits. */
static void any_number_of_a_step_may_be_hostile(void **state)
{
    (void)state;
    static const uint32_t values[] = {0, 1, 2, 5, 6, 16, 100, 0x7fffffff, 0x80000000, 0xffffffff};
    struct step_packet s;
    int n_refused = 0;
    assert_int_equal(step_packet_init(&s, &limits, NULL), 0);
    size_t n = write_step(false);
    for (size_t at = PACKET_HEAD_BYTES; at < n; at += 4) {
        for (size_t i = 0; i < sizeof values / sizeof values[0]; i++) {
            assert_int_equal(write_step(false), n);
            memcpy(bytes + at, &values[i], sizeof values[i]);
            if (step_packet_read(&s, &limits, packet_body(bytes, n), false, NULL)) {
                n_refused++;
                continue;
            }
            for (int r = 0; r < s.batch.n; r++) {
                const struct step_table *t = &s.tables[s.batch.seq[r]];
                assert_in_range(s.batch.slot[r], 0, t->n_pages * limits.page_slots - 1);
                assert_in_range(s.batch.token[r], 0, limits.n_vocab - 1);
            }
        }
    }
    assert_true(n_refused > 200);
    step_packet_deinit(&s);
}

/* Byte `at` of a number, after the header, and what the message says. */
static void a_step_names_what_is_wrong(void **state)
{
    (void)state;
    static const struct {
        int number;
        int32_t value;
        const char *says;
    } wrong[] = {
        {0, 2, "flags is 2"},
        {1, 5, "moves is 5"},
        {2, 4, "sequences is 4"},
        {3, 9, "rows is 9"},
        {4, 65, "number of times is 65"},
        {5, 1, "number of draws is 1"},
        {7, 4, "move's kind is 4"},
        {8, 20, "move's end is 20"},
        {9, -1, "move's start is -1"},
        {13, 3, "place of a table is 3"},
        {14, 5, "state is 5"},
        {15, 7, "pages is 7"},
        {16, 4, "kept pages is 4"},
        {17, 4, "first window is 4"},
        {18, 20, "page is 20"},
        {20, 10, "window page is 10"},
        {23, 2, "share place 2"},
        {24, 4, "share place 0 or state 4"},
        {31, 100, "token is 100"},
        {36, -1, "position is -1"},
        {41, 48, "slot is 48"},
        {42, 45, "slot 45 after slot 45"},
        {46, 2, "sequence is 2"},
        {51, 4, "marks is 4"},
        {54, 0, "not held alike"},
    };
    struct step_packet s;
    struct qn_error e;
    assert_int_equal(step_packet_init(&s, &limits, NULL), 0);
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
        size_t n = write_step(false);
        memcpy(bytes + PACKET_HEAD_BYTES + 4 * wrong[i].number, &wrong[i].value, sizeof wrong[i].value);
        e.msg[0] = 0;
        assert_int_equal(step_packet_read(&s, &limits, packet_body(bytes, n), false, &e), QN_EDATA);
        if (!strstr(e.msg, wrong[i].says))
            fail_msg("number %d: '%s' does not say '%s'", wrong[i].number, e.msg, wrong[i].says);
    }
    step_packet_deinit(&s);
}

static void limits_that_no_packet_can_have_are_noticed(void **state)
{
    (void)state;
    struct step_limits l = limits;
    l.n_rows = 1 << 20;
    l.n_embd = 1 << 20;
    assert_int_equal(step_packet_bytes(&l), 0);
}

/* ---- draws ---- */

#define N_VOCAB 100

static size_t put_draw(uint32_t *numbers, size_t cap)
{
    static const struct qn_logit_bias bias[] = {{3, 1}, {99, -2}};
    static const qn_token history[] = {1, 2, 1}, breakers[] = {7};
    static const uint64_t mask[] = {UINT64_MAX, 5};
    struct qn_sampling q;
    qn_sampling_init(&q);
    q.repetition_penalty = 1.5f;
    q.logit_bias = bias;
    q.n_logit_bias = 2;
    q.dry_breakers = breakers;
    q.n_dry_breakers = 1;
    const struct stage_draw d = {.row = 1,
                                 .n = 1,
                                 .voice = 2,
                                 .is_new = true,
                                 .sampling = &q,
                                 .history = history,
                                 .n_history = 3,
                                 .position = 9,
                                 .mask = mask,
                                 .n_top = 2};
    return voices_put(numbers, cap, &d, N_VOCAB);
}

/* Whatever stands in one of the numbers, the draw is refused, or a token of the vocabulary is drawn. */
static void any_number_of_a_draw_may_be_hostile(void **state)
{
    (void)state;
    static const uint32_t values[] = {0, 1, 2, 3, 8, 100, 0x7f800000, 0x7fc00000, 0x7fffffff, 0x80000000, 0xffffffff};
    struct step_limits l = limits;
    uint32_t numbers[128];
    float logits[2 * N_VOCAB];
    struct stage_drawn drawn[16];
    uint8_t rows[8];
    struct step_packet s;
    struct kernels k;
    struct ledger ledger;
    struct voices *v;
    int n, n_refused = 0, n_good = 0;
    l.n_logits = 8;
    for (int i = 0; i < 2 * N_VOCAB; i++) logits[i] = (float)(i % 7);
    kernels_init(&k, cpu_best());
    ledger_init(&ledger, 1 << 26);
    assert_int_equal(voices_new(&v, &l, &k, &ledger, NULL), 0);
    assert_int_equal(step_packet_init(&s, &l, NULL), 0);
    for (int i = 0; i < 2; i++) batch_add(&s.batch, i, i, 0, true);
    size_t size = put_draw(numbers, 128);
    assert_true(size > 0);
    for (size_t cap = 0; cap < size; cap++) assert_int_equal(put_draw(numbers, cap), 0);
    s.draws = numbers;
    for (size_t at = 0; at <= size; at++) {
        for (size_t i = 0; i < sizeof values / sizeof values[0]; i++) {
            struct packet_out out = out_of_bytes();
            put_draw(numbers, 128);
            if (at < size) numbers[at] = values[i];
            s.n_draws = (int)size;
            if (voices_prepare(v, &s, rows, &n, NULL)) {
                n_refused++;
                continue;
            }
            n_good++;
            voices_draw(v, &s, logits, &out);
            assert_int_equal(voices_read(drawn, n, (struct packet_in){bytes, out.n}, N_VOCAB, NULL), 0);
            for (int d = 0; d < n; d++) assert_in_range(drawn[d].token + 2, 0, N_VOCAB + 1);
            if (at == size) assert_true(n == 1 && drawn[0].n_top == 2 && rows[1] && !rows[0] && drawn[0].token >= 0);
        }
    }
    for (s.n_draws = 1; s.n_draws < (int)size; s.n_draws++)
        assert_int_equal(voices_prepare(v, &s, rows, &n, NULL), QN_EDATA);
    assert_true(n_refused > 100 && n_good > 100);
    step_packet_deinit(&s);
    voices_free(v);
    assert_int_equal(ledger_used(&ledger), 0);
}

/* Draws a token with a voice that looks back at all that it has drawn. Returns the code of voices_prepare(). */
static int draw_one(struct voices *v, struct step_packet *s, bool is_new, size_t n_bias, struct qn_error *e)
{
    static struct qn_logit_bias bias[40];
    static uint32_t numbers[256];
    static const qn_token history[90];
    float logits[N_VOCAB] = {1};
    uint8_t rows[8];
    struct packet_out out = out_of_bytes();
    struct qn_sampling q;
    int n;
    for (int i = 0; i < 40; i++) bias[i].token = i;
    qn_sampling_init(&q);
    q.repetition_penalty = 1.5f;
    q.penalty_last_n = -1;
    q.logit_bias = bias;
    q.n_logit_bias = n_bias;
    const struct stage_draw d = {.n = 1, .is_new = is_new, .sampling = &q, .history = history, .n_history = 90};
    s->draws = numbers;
    s->n_draws = (int)voices_put(numbers, 256, &d, N_VOCAB);
    int rc = voices_prepare(v, s, rows, &n, e);
    if (!rc) voices_draw(v, s, logits, &out);
    return rc;
}

/* The limits have contexts of 96 tokens. Tokens that are dropped from a context are still looked back at. */
static void voices_pay_for_all_that_they_remember(void **state)
{
    (void)state;
    struct step_limits l = limits;
    struct step_packet s;
    struct kernels k;
    struct ledger ledger;
    struct voices *v;
    struct qn_error e;
    int rc;
    l.n_logits = 8;
    kernels_init(&k, cpu_best());
    ledger_init(&ledger, 1 << 26);
    assert_int_equal(voices_new(&v, &l, &k, &ledger, NULL), 0);
    assert_int_equal(step_packet_init(&s, &l, NULL), 0);
    batch_add(&s.batch, 0, 0, 0, true);
    size_t before = ledger_used(&ledger);
    assert_int_equal(draw_one(v, &s, true, 0, NULL), 0);
    for (int i = 0; i < 500; i++) assert_int_equal(draw_one(v, &s, false, 0, NULL), 0);
    assert_true(ledger_used(&ledger) - before >= (590 - 2 * 96) * sizeof(qn_token));
    assert_int_equal(draw_one(v, &s, true, 40, NULL), 0); /* a new one is paid for what it has */
    assert_int_equal(ledger_used(&ledger) - before, 40 * sizeof(struct qn_logit_bias));
    ledger.budget = ledger_used(&ledger) + 1000;
    for (int i = 0; !(rc = draw_one(v, &s, false, 0, &e)); i++) assert_true(i < 1000);
    assert_int_equal(rc, QN_ENOMEM);
    assert_non_null(strstr(e.msg, "the samplers of a stage"));
    step_packet_deinit(&s);
    voices_free(v);
    assert_int_equal(ledger_used(&ledger), 0);
}

/* ---- links ---- */

static void a_link_keeps_the_order_of_packets(void **state)
{
    (void)state;
    static const char texts[3][8] = {"first", "second", "third"};
    char got[8];
    struct link *a, *b;
    struct link_transfer sent[3], received;
    bool done;
    assert_int_equal(link_open_pair(&a, &b, NULL), 0);
    for (int i = 0; i < 3; i++) assert_int_equal(link_isend(a, &sent[i], texts[i], 8 - (size_t)i, NULL), 0);
    assert_int_equal(link_test(&sent[0], &done, NULL), 0);
    assert_false(done);
    for (int i = 0; i < 3; i++) {
        assert_int_equal(link_irecv(b, &received, got, sizeof got, NULL), 0);
        assert_int_equal(link_test(&received, &done, NULL), 0);
        assert_true(done);
        assert_int_equal(received.n, 8 - i);
        assert_string_equal(got, texts[i]);
    }
    for (int i = 2; i >= 0; i--) {
        assert_int_equal(link_test(&sent[i], &done, NULL), 0);
        assert_true(done);
    }
    link_close(a);
    link_close(b);
}

static void a_cancelled_packet_never_comes(void **state)
{
    (void)state;
    char got[8];
    struct link *a, *b;
    struct link_transfer one, two, received;
    bool done;
    assert_int_equal(link_open_pair(&a, &b, NULL), 0);
    assert_int_equal(link_isend(a, &one, "one", 4, NULL), 0);
    assert_int_equal(link_isend(a, &two, "two", 4, NULL), 0);
    link_cancel(&one);
    link_cancel(&one);
    assert_int_equal(link_irecv(b, &received, got, sizeof got, NULL), 0);
    assert_int_equal(link_test(&received, &done, NULL), 0);
    assert_true(done);
    assert_string_equal(got, "two");
    assert_int_equal(link_test(&two, &done, NULL), 0);
    assert_true(done);
    assert_int_equal(link_irecv(b, &received, got, sizeof got, NULL), 0);
    assert_int_equal(link_test(&received, &done, NULL), 0);
    assert_false(done);
    link_cancel(&received);
    link_close(a);
    link_close(b);
}

static void a_packet_larger_than_its_room_is_refused(void **state)
{
    (void)state;
    char got[2] = {5, 6};
    struct link *a, *b;
    struct link_transfer sent, received;
    struct qn_error e;
    bool done;
    assert_int_equal(link_open_pair(&a, &b, NULL), 0);
    assert_int_equal(link_isend(a, &sent, "long", 4, NULL), 0);
    assert_int_equal(link_irecv(b, &received, got, sizeof got, NULL), 0);
    assert_int_equal(link_test(&received, &done, &e), QN_EDATA);
    assert_non_null(strstr(e.msg, "4 bytes, there is room for 2"));
    assert_true(got[0] == 5 && got[1] == 6 && !received.is_started);
    assert_int_equal(link_test(&sent, &done, NULL), 0);
    link_close(a);
    link_close(b);
}

/* What was sent before the other end closed still comes. */
static void a_closed_end_is_noticed(void **state)
{
    (void)state;
    char got[8];
    struct link *a, *b;
    struct link_transfer sent, received;
    bool done;
    assert_int_equal(link_open_pair(&a, &b, NULL), 0);
    link_close(b);
    assert_int_equal(link_irecv(a, &received, got, sizeof got, NULL), 0);
    assert_int_equal(link_test(&received, &done, NULL), QN_EIO);
    assert_int_equal(link_isend(a, &sent, "one", 4, NULL), QN_EIO);
    link_close(a);
    assert_int_equal(link_open_pair(&a, &b, NULL), 0);
    assert_int_equal(link_isend(a, &sent, "one", 4, NULL), 0);
    link_close(b);
    assert_int_equal(link_test(&sent, &done, NULL), QN_EIO);
    link_close(a);
    link_close(NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_header_comes_back),
        cmocka_unit_test(a_wrong_header_is_refused),
        cmocka_unit_test(replies_come_back),
        cmocka_unit_test(logits_come_back),
        cmocka_unit_test(counts_of_rows_come_back),
        cmocka_unit_test(a_step_comes_back),
        cmocka_unit_test(rounded_rows_come_back_rounded),
        cmocka_unit_test(a_step_that_is_cut_short_is_refused),
        cmocka_unit_test(any_number_of_a_step_may_be_hostile),
        cmocka_unit_test(a_step_names_what_is_wrong),
        cmocka_unit_test(limits_that_no_packet_can_have_are_noticed),
        cmocka_unit_test(any_number_of_a_draw_may_be_hostile),
        cmocka_unit_test(voices_pay_for_all_that_they_remember),
        cmocka_unit_test(a_link_keeps_the_order_of_packets),
        cmocka_unit_test(a_cancelled_packet_never_comes),
        cmocka_unit_test(a_packet_larger_than_its_room_is_refused),
        cmocka_unit_test(a_closed_end_is_noticed),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
