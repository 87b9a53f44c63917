/* SPDX-License-Identifier: MIT
 *
 * greeting.h: the head's first packet to the stages, and their answer.
 *
 * Stages read a model in between, so it takes a while; the head asks now and then, and does other things meanwhile.
 */
#ifndef QUERN_CLUSTER_GREETING_H
#define QUERN_CLUSTER_GREETING_H

#include "cluster/hello.h"
#include "cluster/link.h"

struct greeting {
    struct link *link; /* borrowed; NULL: none is under way */
    struct hello *hello;
    struct link_transfer send, receive;
    uint8_t *bytes, *answer;
    uint64_t begin_ns;
};

/* Gives the group a number, and begins. hello is borrowed; its is_probe says what is asked. */
int greeting_init(struct greeting *g, struct link *link, struct hello *hello, struct qn_error *e);
/* 0: the stages are ready; or, if it was a probe, hello->host has their answers. QN_EBUSY: they are not ready yet.
 * QN_EIO: the link failed. QN_EUNSUP: a stage does not agree, or all of them did not answer in time: a minute for each.
 */
int greeting_go_on(struct greeting *g, struct qn_error *e);
void greeting_deinit(struct greeting *g);

#endif
