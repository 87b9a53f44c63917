/* SPDX-License-Identifier: MIT
 *
 * link_mpi.c: transfers as requests of MPI. See link_mpi.h.
 */
#include "cluster/mpi/link_mpi.h"

#include <limits.h>
#include <mpi.h>
#include <string.h>

#include "base/mem.h"
#include "cluster/patience.h"

#define CANCEL_NS 1000000000u

struct link_mpi {
    struct link base;
    int rank, tag;
};

_Static_assert(sizeof(MPI_Request) <= sizeof((struct link_transfer *)0)->handle, "a request fits a transfer");

static struct link_mpi *mpi_of(struct link *l) { return (struct link_mpi *)l; }

static void put_request(struct link_transfer *t, MPI_Request r) { memcpy(&t->handle, &r, sizeof r); }

static MPI_Request request_of(const struct link_transfer *t)
{
    MPI_Request r;
    memcpy(&r, &t->handle, sizeof r);
    return r;
}

static int failed(const struct link *l, const char *what, int code, struct qn_error *e)
{
    char text[MPI_MAX_ERROR_STRING];
    int n = 0, class = MPI_ERR_OTHER;
    MPI_Error_class(code, &class);
    if (MPI_Error_string(code, text, &n)) n = 0;
    return error_set(e, class == MPI_ERR_TRUNCATE ? QN_EDATA : QN_EIO, "cluster: %s rank %d: %.*s", what,
                     ((const struct link_mpi *)l)->rank, n, text);
}

static int mpi_isend(struct link *l, struct link_transfer *t, struct qn_error *e)
{
    MPI_Request r;
    if (t->cap > INT_MAX) return error_set(e, QN_EUSAGE, "cluster: a packet of %zu bytes", t->cap);
    int code = MPI_Isend(t->data, (int)t->cap, MPI_BYTE, mpi_of(l)->rank, mpi_of(l)->tag, MPI_COMM_WORLD, &r);
    put_request(t, r);
    return code ? failed(l, "sending to", code, e) : 0;
}

static int mpi_irecv(struct link *l, struct link_transfer *t, struct qn_error *e)
{
    MPI_Request r;
    int cap = t->cap > INT_MAX ? INT_MAX : (int)t->cap;
    int code = MPI_Irecv(t->data, cap, MPI_BYTE, mpi_of(l)->rank, mpi_of(l)->tag, MPI_COMM_WORLD, &r);
    put_request(t, r);
    return code ? failed(l, "receiving from", code, e) : 0;
}

static int mpi_test(struct link *l, struct link_transfer *t, bool *done, struct qn_error *e)
{
    MPI_Request r = request_of(t);
    MPI_Status status;
    int is_done = 0, n = 0, code = MPI_Test(&r, &is_done, &status);
    put_request(t, r);
    if (!code && is_done && t->is_receive) code = MPI_Get_count(&status, MPI_BYTE, &n);
    if (code) return failed(l, t->is_receive ? "receiving from" : "sending to", code, e);
    t->n = t->is_receive ? (size_t)n : t->cap;
    *done = is_done;
    return 0;
}

static void mpi_cancel(struct link *l, struct link_transfer *t)
{
    MPI_Request r = request_of(t);
    struct patience wait;
    int done = 0;
    (void)l;
    patience_reset(&wait);
    if (t->is_receive) MPI_Cancel(&r);
    while (!MPI_Test(&r, &done, MPI_STATUS_IGNORE) && !done && patience_ns(&wait) < CANCEL_NS) patience_wait(&wait);
    if (!done && r != MPI_REQUEST_NULL) MPI_Request_free(&r);
}

static void mpi_close(struct link *l) { mem_free(mpi_of(l)); }

int link_open_mpi(struct link **out, int rank, int tag, struct qn_error *e)
{
    static const struct link_back_end back_end = {mpi_isend, mpi_irecv, mpi_test, mpi_cancel, mpi_close};
    struct link_mpi *l = mem_calloc(1, sizeof *l);
    if (!l) return error_nomem(e, "a link", sizeof *l);
    *l = (struct link_mpi){{&back_end, {0, 0}}, rank, tag};
    *out = &l->base;
    return 0;
}
