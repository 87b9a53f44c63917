/* SPDX-License-Identifier: MIT
 *
 * test_link_mpi.c: a link between two ranks: order, sizes, a window of packets, a packet that is too large, cancelling.
 *
 *     mpirun -n 2 test_link_mpi
 *
 * Rank 0 sends and checks what comes back; rank 1 answers.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <mpi.h>
#include <string.h>

#include "base/mem.h"
#include "cluster/mpi/link_mpi.h"
#include "cluster/patience.h"

#define N_PACKETS 40
#define BIG       (1 << 20) /* more than MPI sends without being asked */
#define WAIT_NS   30000000000u

static int rank;
static struct link *link_to_peer;

static int finish(struct link_transfer *t, struct qn_error *e)
{
    struct patience wait;
    bool done = false;
    int rc = 0;
    patience_reset(&wait);
    while (!done && !(rc = link_test(t, &done, e))) {
        if (patience_ns(&wait) > WAIT_NS) fail_msg("the other rank does not answer");
        if (!done) patience_wait(&wait);
    }
    return rc;
}

static size_t size_of(int i) { return i % 7 == 3 ? BIG : (size_t)(i * 37 % 500); }

static void fill(uint8_t *p, int i)
{
    for (size_t k = 0; k < size_of(i); k++) p[k] = (uint8_t)(k * 31 + (size_t)i);
}

/* Rank 0 sends a window of packets at a time, and rank 1 sends each back. */
static void packets_come_whole_and_in_order(void **state)
{
    (void)state;
    struct link_transfer sent[LINK_WINDOW], received;
    uint8_t *out[LINK_WINDOW], *in = mem_alloc(BIG), *want = mem_alloc(BIG);
    for (int k = 0; k < LINK_WINDOW; k++) out[k] = mem_alloc(BIG);
    for (int i = 0; i < N_PACKETS; i += LINK_WINDOW) {
        for (int k = 0; k < LINK_WINDOW && rank == 0; k++) {
            fill(out[k], i + k);
            assert_int_equal(link_isend(link_to_peer, &sent[k], out[k], size_of(i + k), NULL), 0);
        }
        for (int k = 0; k < LINK_WINDOW; k++) {
            assert_int_equal(link_irecv(link_to_peer, &received, in, BIG, NULL), 0);
            assert_int_equal(finish(&received, NULL), 0);
            fill(want, i + k);
            assert_int_equal(received.n, size_of(i + k));
            assert_memory_equal(in, want, size_of(i + k));
            if (rank == 1) {
                assert_int_equal(link_isend(link_to_peer, &sent[0], in, received.n, NULL), 0);
                assert_int_equal(finish(&sent[0], NULL), 0);
            }
        }
        for (int k = 0; k < LINK_WINDOW && rank == 0; k++) assert_int_equal(finish(&sent[k], NULL), 0);
    }
    for (int k = 0; k < LINK_WINDOW; k++) mem_free(out[k]);
    mem_free(in);
    mem_free(want);
}

static void a_packet_larger_than_its_room_is_refused(void **state)
{
    (void)state;
    struct link_transfer t;
    struct qn_error e;
    char small[4];
    if (rank == 0) {
        assert_int_equal(link_isend(link_to_peer, &t, "too large", 10, NULL), 0);
        assert_int_equal(finish(&t, NULL), 0);
    } else {
        assert_int_equal(link_irecv(link_to_peer, &t, small, sizeof small, NULL), 0);
        assert_int_equal(finish(&t, &e), QN_EDATA);
        assert_non_null(strstr(e.msg, "rank 0"));
    }
}

/* Rank 0 cancels a receive before it asks for a packet, which the next receive then takes. */
static void a_receive_is_cancelled(void **state)
{
    (void)state;
    struct link_transfer t;
    char text[8];
    if (rank == 0) {
        assert_int_equal(link_irecv(link_to_peer, &t, text, sizeof text, NULL), 0);
        link_cancel(&t);
        assert_int_equal(link_to_peer->n_started[1], 0);
    }
    for (int turn = 0; turn < 2; turn++) {
        if (turn == rank)
            assert_int_equal(link_isend(link_to_peer, &t, "hello", 6, NULL), 0);
        else
            assert_int_equal(link_irecv(link_to_peer, &t, text, sizeof text, NULL), 0);
        assert_int_equal(finish(&t, NULL), 0);
        if (turn != rank) assert_string_equal(text, "hello");
    }
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(packets_come_whole_and_in_order),
        cmocka_unit_test(a_packet_larger_than_its_room_is_refused),
        cmocka_unit_test(a_receive_is_cancelled),
    };
    int level, size = 0;
    MPI_Init_thread(&argc, &argv, MPI_THREAD_FUNNELED, &level);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
    if (size != 2 || link_open_mpi(&link_to_peer, 1 - rank, 5, NULL)) return 1;
    int n_failed = cmocka_run_group_tests(tests, NULL, NULL);
    if (n_failed) MPI_Abort(MPI_COMM_WORLD, n_failed); /* the other rank may be waiting */
    link_close(link_to_peer);
    MPI_Finalize();
    return n_failed;
}
