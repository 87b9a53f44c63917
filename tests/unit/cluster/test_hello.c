/* SPDX-License-Identifier: MIT
 *
 * test_hello.c: what a stage refuses before anything is computed, and the socket between head and first stage.
 *
 *     test_hello MODEL OTHER_MODEL
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "cluster/hello.h"
#include "cluster/link.h"
#include "cluster/relay.h"
#include "cluster/runner.h"
#include "model/load.h"

#define N_CTX 256
#define BIG   (1 << 20) /* more than a socket takes at once */

static struct model *model, *other;

/* A greeting that the model's stages accept. */
static struct hello good(void)
{
    struct hello h;
    hello_init(&h, model, 2);
    h.n_ctx = N_CTX;
    runner_limits(&h.limits, model, N_CTX);
    h.limits.n_rows = 64;
    h.limits.n_seqs = h.limits.n_moves = h.limits.n_logits = h.limits.n_pages = 8;
    return h;
}

static int read_back(const struct hello *h, const struct model *m, struct qn_error *e)
{
    static uint8_t bytes[HELLO_BYTES] __attribute__((aligned(4)));
    struct packet_out out = {.p = bytes, .cap = sizeof bytes};
    struct packet_head head;
    struct hello got;
    packet_hello(&out, h);
    assert_int_equal(packet_read_head(&head, bytes, out.n, 0, NULL), 0);
    assert_int_equal(head.kind, PACKET_HELLO);
    assert_int_equal(hello_read(&got, (struct packet_in){bytes + PACKET_HEAD_BYTES, sizeof got - 4}, m, "b", NULL),
                     QN_EDATA);
    int rc = hello_read(&got, packet_body(bytes, out.n), m, "stage 1 on b", e);
    if (!rc) assert_memory_equal(&got, h, sizeof got);
    return rc;
}

static void refused(const struct hello *h, const struct model *m, int rc, const char *says)
{
    struct qn_error e;
    assert_int_equal(read_back(h, m, &e), rc);
    if (!strstr(e.msg, says)) fail_msg("'%s' does not say '%s'", e.msg, says);
}

static void a_difference_names_both_sides(void **state)
{
    (void)state;
    struct hello h = good();
    assert_int_equal(read_back(&h, model, NULL), 0);
    refused(&h, other, QN_EDATA, "stage 1 on b has another model file (");
    strcpy(h.version, "9.9");
    refused(&h, model, QN_EUNSUP, "the head has 9.9");
    refused(&h, model, QN_EUNSUP, qn_version());
    h = good();
    h.arithmetic += 5;
    refused(&h, model, QN_EUNSUP, "of the arithmetic, the head has");
}

static void numbers_out_of_their_limits_are_refused(void **state)
{
    (void)state;
    struct hello h = good();
    int32_t *const numbers[] = {&h.kv,
                                &h.n_ctx,
                                &h.n_threads,
                                &h.n_layer,
                                &h.n_stages,
                                &h.cuts[0],
                                &h.cuts[1],
                                &h.cuts[2],
                                &h.limits.n_rows,
                                &h.limits.n_seqs,
                                &h.limits.n_moves,
                                &h.limits.n_logits,
                                &h.limits.n_pages,
                                &h.limits.n_windows,
                                &h.limits.n_states,
                                &h.limits.n_pages_each,
                                &h.limits.page_slots,
                                &h.limits.window,
                                &h.limits.n_embd,
                                &h.limits.n_vocab};
    for (size_t i = 0; i < sizeof numbers / sizeof numbers[0]; i++) {
        const int32_t wrong[] = {-1, INT32_MIN, INT32_MAX};
        for (int k = 0; k < 3; k++) {
            bool may_be_large = numbers[i] == &h.limits.n_windows || numbers[i] == &h.limits.n_states;
            if (wrong[k] > 0 && may_be_large) continue; /* the ledger refuses it */
            int32_t was = *numbers[i];
            *numbers[i] = wrong[k];
            struct qn_error e;
            if (read_back(&h, model, &e) != QN_EDATA) fail_msg("number %zu is accepted as %d", i, wrong[k]);
            *numbers[i] = was;
        }
    }
}

/* ---- the socket ---- */

static void pair_open(struct link **a, struct link **b)
{
    int fd[2];
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM, 0, fd), 0);
    assert_int_equal(link_open_socket(a, fd[0], NULL), 0);
    assert_int_equal(link_open_socket(b, fd[1], NULL), 0);
}

/* Packets of all sizes, a window of them at once, in both directions over one socket. */
static void packets_cross_a_socket_whole_and_in_order(void **state)
{
    (void)state;
    static uint8_t out[LINK_WINDOW][BIG], in[LINK_WINDOW][BIG];
    const size_t sizes[LINK_WINDOW] = {BIG, 0, 7, BIG - 1};
    struct link *end[2];
    struct link_transfer sent[LINK_WINDOW], got[LINK_WINDOW];
    pair_open(&end[0], &end[1]);
    for (int from = 0; from < 2; from++) {
        int n_done = 0;
        for (int i = 0; i < LINK_WINDOW; i++) {
            memset(out[i], 16 * from + i + 1, BIG);
            assert_int_equal(link_isend(end[from], &sent[i], out[i], sizes[i], NULL), 0);
            assert_int_equal(link_irecv(end[!from], &got[i], in[i], BIG, NULL), 0);
        }
        while (n_done < 2 * LINK_WINDOW) {
            for (int i = 0; i < LINK_WINDOW; i++) {
                bool done;
                if (sent[i].is_started) assert_int_equal(link_test(&sent[i], &done, NULL), 0);
                if (got[i].is_started) assert_int_equal(link_test(&got[i], &done, NULL), 0);
            }
            n_done = 0;
            for (int i = 0; i < LINK_WINDOW; i++) n_done += !sent[i].is_started + !got[i].is_started;
        }
        for (int i = 0; i < LINK_WINDOW; i++) {
            assert_int_equal(got[i].n, sizes[i]);
            assert_memory_equal(in[i], out[i], sizes[i]);
        }
    }
    link_close(end[0]);
    link_close(end[1]);
}

static void a_packet_too_large_and_a_closed_socket_are_errors(void **state)
{
    (void)state;
    struct link *a, *b;
    struct link_transfer sent, got;
    struct qn_error e;
    char small[4];
    bool done;
    pair_open(&a, &b);
    assert_int_equal(link_isend(a, &sent, "too large", 10, NULL), 0);
    assert_int_equal(link_test(&sent, &done, NULL), 0);
    assert_int_equal(link_irecv(b, &got, small, sizeof small, NULL), 0);
    assert_int_equal(link_test(&got, &done, &e), QN_EDATA);
    assert_non_null(strstr(e.msg, "a packet of 10 bytes, there is room for 4"));
    link_close(b);
    assert_int_equal(link_irecv(a, &got, small, sizeof small, NULL), 0);
    for (int i = 0; i < 2; i++) assert_int_equal(link_test(&got, &done, &e), QN_EIO);
    assert_non_null(strstr(e.msg, "no longer under way"));
    link_close(a);
}

static void a_relay_that_has_failed_says_so_again(void **state)
{
    (void)state;
    struct link *from[2], *to[2];
    struct relay r;
    pair_open(&from[0], &from[1]);
    pair_open(&to[0], &to[1]);
    assert_int_equal(relay_init(&r, from[1], to[0], 100, NULL), 0);
    assert_int_equal(relay_tend(&r, NULL), 0);
    link_close(from[0]);
    for (int i = 0; i < 3; i++) assert_int_equal(relay_tend(&r, NULL), QN_EIO);
    relay_deinit(&r);
    link_close(from[1]);
    link_close(to[0]);
    link_close(to[1]);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_difference_names_both_sides),
        cmocka_unit_test(numbers_out_of_their_limits_are_refused),
        cmocka_unit_test(packets_cross_a_socket_whole_and_in_order),
        cmocka_unit_test(a_packet_too_large_and_a_closed_socket_are_errors),
        cmocka_unit_test(a_relay_that_has_failed_says_so_again),
    };
    struct qn_error e;
    if (argc != 3 || model_load(&model, argv[1], &e) || model_load(&other, argv[2], &e)) return 1;
    int n_failed = cmocka_run_group_tests(tests, NULL, NULL);
    model_free(model);
    model_free(other);
    return n_failed;
}
