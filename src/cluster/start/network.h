/* SPDX-License-Identifier: MIT
 *
 * network.h: the network that stages use, because MPI neither encrypts nor asks who is there.
 */
#ifndef QUERN_CLUSTER_START_NETWORK_H
#define QUERN_CLUSTER_START_NETWORK_H

#include <stdbool.h>
#include <stdint.h>

#include "base/error.h"

struct network {
    char name[64];     /* of the interface */
    char subnet[32];   /* its IPv4 addresses: "10.1.2.0/24"; or the name, if there is only one address */
    int port, n_ports; /* half of them for the ranks, the other half for mpirun */
};

/* Finds the interface of this host. QN_EUSAGE: there is none, it has no IPv4 address, or the address is public and
 * is_trusted is false. ports: "FROM-TO"; NULL: NETWORK_PORTS. */
int network_find(struct network *n, const char *interface, const char *ports, bool is_trusted, struct qn_error *e);
/* Whether a host with that IPv4 address, in the byte order of this machine, can only be reached from networks of
 * somebody's own (RFC 1918, 3927, 6598), or from itself (127/8). */
bool network_is_private(uint32_t address);

/* Returns the first of n ports, of those from `from` to `to`, at which nobody on this host listens or has had
 * connections for a minute; if there are none, of any. All of them take turns by the clock, because other hosts cannot
 * be asked: calls within seconds, but not within a quarter of one, return others. n <= to - from + 1. */
int network_free_ports(int from, int to, int n);

#define NETWORK_PORTS "47600-47699"

#endif
