/* SPDX-License-Identifier: MIT
 *
 * link_mpi.h: a link to another rank, over MPI.
 *
 * The program starts and ends MPI (MPI_Init_thread() with MPI_THREAD_FUNNELED or more), and sets MPI_ERRORS_RETURN. All
 * links of a rank belong to the thread that started MPI. Nothing here waits: only MPI_Isend(), MPI_Irecv() and
 * MPI_Test() are called. MPI does not say that a rank is gone; whoever waits for one needs a deadline.
 *
 * Source: MPI: A Message-Passing Interface Standard, version 3.1, section 3.7.
 */
#ifndef QUERN_CLUSTER_MPI_LINK_MPI_H
#define QUERN_CLUSTER_MPI_LINK_MPI_H

#include "cluster/link.h"

/* A link to a rank of MPI_COMM_WORLD, with which there is no other link of the same tag. The rank opens its end, too. A
 * send that is cancelled may have arrived; link_cancel() waits for at most a second until MPI lets go of its bytes. */
int link_open_mpi(struct link **out, int rank, int tag, struct qn_error *e);

#endif
