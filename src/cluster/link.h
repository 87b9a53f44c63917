/* SPDX-License-Identifier: MIT
 *
 * link.h: a connection between two neighbours in the chain of stages. Six functions, and nothing ever waits.
 *
 * A transfer is started and then asked about: link_isend() or link_irecv(), then link_test() until it is done. Packets
 * arrive whole and in order. Back ends: two ends in one process (link_pair.c), a socket (link_socket.c), and MPI
 * (mpi/link_mpi.c). An end belongs to one thread.
 */
#ifndef QUERN_CLUSTER_LINK_H
#define QUERN_CLUSTER_LINK_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/error.h"

#define LINK_WINDOW 4 /* transfers of one end in each direction that have been started and are not done */

struct link; /* one end */

/* A transfer. It belongs to the caller, and stays where it is until it is done or cancelled. */
struct link_transfer {
    struct link *link;
    bool is_receive, is_started;
    void *data; /* the caller's bytes */
    size_t cap; /* of them */
    size_t n;   /* bytes sent or received, once it is done */

    /* for the back ends */
    struct link_transfer *next;
    bool is_taken;
    uint64_t handle;
};

struct link_back_end {
    int (*isend)(struct link *l, struct link_transfer *t, struct qn_error *e);
    int (*irecv)(struct link *l, struct link_transfer *t, struct qn_error *e);
    int (*test)(struct link *l, struct link_transfer *t, bool *done, struct qn_error *e);
    void (*cancel)(struct link *l, struct link_transfer *t);
    void (*close)(struct link *l);
};

/* The first member of every back end's struct. */
struct link {
    const struct link_back_end *back_end;
    int n_started[2]; /* transfers that are under way: sent, received */
};

/* Two ends that are connected with each other, for two threads of this process, or one. */
int link_open_pair(struct link **a, struct link **b, struct qn_error *e);

/* An end over a connected stream socket, which is the link's if the call succeeds. */
int link_open_socket(struct link **out, int fd, struct qn_error *e);

/* Starts to send the n bytes at data, which stay as they are until it is done. At most LINK_WINDOW may be under way. */
int link_isend(struct link *l, struct link_transfer *t, const void *data, size_t n, struct qn_error *e);
/* Starts to receive a packet of at most cap bytes. */
int link_irecv(struct link *l, struct link_transfer *t, void *data, size_t cap, struct qn_error *e);
/* *done: the transfer is done, and t->n is its size. QN_EDATA: the packet is larger than cap. QN_EIO: the other end is
 * gone, or the transfer is not under way. After a failure, it is no longer under way. */
int link_test(struct link_transfer *t, bool *done, struct qn_error *e);
/* Ends a transfer that is not done; its bytes are the caller's again. A packet that a receive was already taking is
 * lost. Does nothing if it is not under way. */
void link_cancel(struct link_transfer *t);
/* No transfer of this end may be under way. NULL is fine. */
void link_close(struct link *l);

#endif
