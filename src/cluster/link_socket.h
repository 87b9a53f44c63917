/* SPDX-License-Identifier: MIT
 *
 * link_socket.h: signs of life between the first stage and the head.
 *
 * They are in the stream of packets, because both ends are on one machine, where packets take no time. The end that
 * gets them expects them after the first one, as in pulse.h, whenever it asks for a packet.
 */
#ifndef QUERN_CLUSTER_LINK_SOCKET_H
#define QUERN_CLUSTER_LINK_SOCKET_H

#include "cluster/link.h"

/* Sends a sign, if it is time at now_ns (of clock_ns()) or need_ns has changed, and nothing is being sent. need_ns: as
 * for beat_tend(). l: of link_open_socket(). QN_EIO: the other end is gone. */
int link_socket_beat(struct link *l, uint64_t now_ns, uint64_t need_ns, struct qn_error *e);

#endif
