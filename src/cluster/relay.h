/* SPDX-License-Identifier: MIT
 *
 * relay.h: packets passed on from one link to another, in the first stage: from the last stage to the head.
 *
 * Only the first stage is connected with the head, which does not use MPI.
 */
#ifndef QUERN_CLUSTER_RELAY_H
#define QUERN_CLUSTER_RELAY_H

#include "cluster/link.h"

struct relay {
    struct link *from, *to; /* borrowed */
    uint8_t *data;          /* [cap] the packet that is on its way */
    size_t cap;
    struct link_transfer receive, send;
    uint64_t n_passed; /* packets */
};

int relay_init(struct relay *r, struct link *from, struct link *to, size_t cap, struct qn_error *e);
/* Makes room for larger packets. Only while none is on its way. */
int relay_enlarge(struct relay *r, size_t cap, struct qn_error *e);
/* Moves packets on as far as that can be done now. arg: the relay. After a failure, every further call fails, too. */
int relay_tend(void *arg, struct qn_error *e);
void relay_deinit(struct relay *r);

#endif
