/* SPDX-License-Identifier: MIT
 *
 * network.c: finds and checks the network of a group. See network.h.
 */
#include "cluster/start/network.h"

#include <arpa/inet.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/os.h"

#define LEAST_PORTS 20
#define TURN_NS     250000000u /* the time for which the same ports are the first to be asked */

bool network_is_private(uint32_t a)
{
    static const struct {
        uint32_t first;
        int bits;
    } own[] = {{0x0a000000, 8},  {0xac100000, 12}, {0xc0a80000, 16},
               {0xa9fe0000, 16}, {0x64400000, 10}, {0x7f000000, 8}};
    for (size_t i = 0; i < sizeof own / sizeof own[0]; i++)
        if (!((a ^ own[i].first) >> (32 - own[i].bits))) return true;
    return false;
}

static uint32_t number_of(const struct sockaddr *a)
{
    struct sockaddr_in in;
    memcpy(&in, a, sizeof in);
    return ntohl(in.sin_addr.s_addr);
}

static int set_subnet(struct network *n, uint32_t address, uint32_t mask, bool is_trusted, struct qn_error *e)
{
    char text[INET_ADDRSTRLEN];
    struct in_addr a = {htonl(address)};
    inet_ntop(AF_INET, &a, text, sizeof text);
    if (!network_is_private(address) && !is_trusted)
        return error_set(e, QN_EUSAGE,
                         "hosts: interface '%s' has the public address %s, and MPI does not encrypt: use a private "
                         "network (WireGuard), or say --i-trust-this-network",
                         n->name, text);
    snprintf(n->subnet, sizeof n->subnet, "%.31s", n->name);
    if (mask == UINT32_MAX) return 0;
    a.s_addr = htonl(address & mask);
    inet_ntop(AF_INET, &a, text, sizeof text);
    snprintf(n->subnet, sizeof n->subnet, "%s/%d", text, __builtin_popcount(mask));
    return 0;
}

static int set_ports(struct network *n, const char *ports, struct qn_error *e)
{
    int from = 0, to = 0, end = 0;
    bool is_range = sscanf(ports, "%5d-%5d%n", &from, &to, &end) == 2 && !ports[end];
    if (!is_range || from < 1024 || to > 65535 || to - from + 1 < LEAST_PORTS)
        return error_set(e, QN_EUSAGE, "hosts: '%s' is no range of %d or more ports from 1024 to 65535", ports,
                         LEAST_PORTS);
    n->port = from;
    n->n_ports = to - from + 1;
    return 0;
}

int network_find(struct network *n, const char *interface, const char *ports, bool is_trusted, struct qn_error *e)
{
    struct ifaddrs *all = NULL;
    const struct ifaddrs *found = NULL;
    bool is_there = false;
    *n = (struct network){0};
    int rc = set_ports(n, ports ? ports : NETWORK_PORTS, e);
    if (rc) return rc;
    snprintf(n->name, sizeof n->name, "%s", interface);
    if (getifaddrs(&all)) return error_set(e, QN_EIO, "hosts: cannot list the interfaces: %m");
    for (const struct ifaddrs *i = all; i; i = i->ifa_next) {
        if (strcmp(i->ifa_name, interface)) continue;
        is_there = true;
        if (!found && i->ifa_addr && i->ifa_addr->sa_family == AF_INET && i->ifa_netmask) found = i;
    }
    if (found)
        rc = set_subnet(n, number_of(found->ifa_addr), number_of(found->ifa_netmask), is_trusted, e);
    else if (is_there)
        rc = error_set(e, QN_EUSAGE, "hosts: interface '%s' has no IPv4 address, and Open MPI needs one", interface);
    else
        rc = error_set(e, QN_EUSAGE, "hosts: this host has no interface '%s'", interface);
    freeifaddrs(all);
    return rc;
}

/* Whether nobody listens at the port, or has had connections there for the last minute. */
static bool is_unused(int port)
{
    struct sockaddr_in a = {.sin_family = AF_INET, .sin_port = htons((uint16_t)port)};
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    bool unused = fd >= 0 && !bind(fd, (struct sockaddr *)&a, sizeof a);
    if (fd >= 0) close(fd);
    return unused;
}

int network_free_ports(int from, int to, int n)
{
    int n_places = (to - from + 1) / n, at = (int)(clock_ns() / TURN_NS % (uint64_t)n_places), port = from;
    for (int i = 0; i < n_places; i++) {
        port = from + (at + i) % n_places * n;
        int k = 0;
        while (k < n && is_unused(port + k)) k++;
        if (k == n) break;
    }
    return port;
}
