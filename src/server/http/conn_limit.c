/* SPDX-License-Identifier: MIT
 *
 * conn_limit.c: how many connections may be open, and whose.
 *
 * No peer has more than its share of the places, so a client that opens all it can does not lock out the others. A few
 * places are kept back: half of them for Unix sockets, where the machine's own users and its administrator come from,
 * and half for connections that find no other place. The latter are short: they may ask one public route, once and
 * soon. So a monitor's /health is answered even to an address that has used up its share.
 *
 * IPv6 addresses are told apart by their first 64 bits, because whoever has one address of a network has all of them.
 */
#include "server/http/impl.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <string.h>
#include <sys/resource.h>

#include "base/log.h"
#include "base/os.h"

#define DEFAULT_CONNECTIONS 1024
#define OTHER_FDS           64 /* files that a process has open besides connections */
#define FEW_CONNECTIONS     16 /* the server does not start with fewer */
#define SHARES              4
#define KEPT_OF             32
#define SHORT_SHARES        4 /* one peer's part of the short places */
#define TELL_EVERY_NS       10000000000u

enum { PEER_NOBODY, PEER_UID, PEER_IPV4, PEER_IPV6 };

struct peer peer_of(const struct sockaddr *a, uid_t uid)
{
    struct peer p = {.kind = PEER_UID};
    const struct in6_addr *six = &((const struct sockaddr_in6 *)(const void *)a)->sin6_addr;

    if (a->sa_family == AF_INET) {
        p.kind = PEER_IPV4;
        memcpy(p.id, &((const struct sockaddr_in *)(const void *)a)->sin_addr, 4);
    } else if (a->sa_family == AF_INET6 && IN6_IS_ADDR_V4MAPPED(six)) {
        p.kind = PEER_IPV4;
        memcpy(p.id, six->s6_addr + 12, 4);
    } else if (a->sa_family == AF_INET6) {
        p.kind = PEER_IPV6;
        memcpy(p.id, six, 8);
    } else {
        memcpy(p.id, &uid, sizeof uid);
    }
    return p;
}

int peer_read(struct peer *p, const char *address, struct qn_error *e)
{
    struct sockaddr_in four = {.sin_family = AF_INET};
    struct sockaddr_in6 six = {.sin6_family = AF_INET6};

    if (inet_pton(AF_INET, address, &four.sin_addr) == 1)
        *p = peer_of((struct sockaddr *)&four, 0);
    else if (inet_pton(AF_INET6, address, &six.sin6_addr) == 1)
        *p = peer_of((struct sockaddr *)&six, 0);
    else
        return error_set(e, QN_EUSAGE, "a proxy's address is '%s', which is neither IPv4 nor IPv6", address);
    return 0;
}

/* ---- how many ---- */

static int raise_file_limit(int max_connections, struct qn_error *e)
{
    struct rlimit r;
    rlim_t need = (rlim_t)max_connections + OTHER_FDS;

    if (getrlimit(RLIMIT_NOFILE, &r) < 0) return error_set(e, QN_EIO, "RLIMIT_NOFILE: %m");
    if (r.rlim_cur >= need) return 0;
    if (r.rlim_max < need)
        return error_set(e, QN_EUSAGE, "%d connections take %llu open files; the limit (RLIMIT_NOFILE) is %llu",
                         max_connections, (unsigned long long)need, (unsigned long long)r.rlim_max);
    r.rlim_cur = need;
    return setrlimit(RLIMIT_NOFILE, &r) < 0 ? error_set(e, QN_EIO, "RLIMIT_NOFILE %llu: %m", (unsigned long long)need)
                                            : 0;
}

/* The default: 1024, or as many as the limit on open files allows. */
static int default_connections(void)
{
    struct rlimit r;

    if (getrlimit(RLIMIT_NOFILE, &r) < 0 || r.rlim_max >= DEFAULT_CONNECTIONS + OTHER_FDS) return DEFAULT_CONNECTIONS;
    int n = r.rlim_max > OTHER_FDS + FEW_CONNECTIONS ? (int)r.rlim_max - OTHER_FDS : FEW_CONNECTIONS;
    log_at(LOG_WARN, "%d connections at most, not %d: the limit on open files (RLIMIT_NOFILE) is %llu", n,
           DEFAULT_CONNECTIONS, (unsigned long long)r.rlim_max);
    return n;
}

int place_init(struct http *h, struct qn_error *e)
{
    struct http_config *c = &h->c;

    if (!c->max_connections) c->max_connections = default_connections();
    if (!c->peer_connections) c->peer_connections = (c->max_connections + SHARES - 1) / SHARES;
    if (c->kept_connections < 0) c->kept_connections = c->max_connections / KEPT_OF;
    if (c->peer_connections > c->max_connections || c->kept_connections >= c->max_connections)
        return error_set(e, QN_EUSAGE, "of %d connections %d cannot be one peer's, or %d be kept", c->max_connections,
                         c->peer_connections, c->kept_connections);
    h->proxy = mem_calloc((size_t)c->n_proxies + 1, sizeof *h->proxy);
    if (!h->proxy) return error_nomem(e, "the proxies' addresses", (size_t)c->n_proxies * sizeof *h->proxy);
    for (int i = 0; i < c->n_proxies; i++) {
        int r = peer_read(&h->proxy[i], c->proxies[i], e);
        if (r < 0) return r;
    }
    return raise_file_limit(c->max_connections, e);
}

/* ---- whose ---- */

static bool is_same(const struct peer *a, const struct peer *b) { return memcmp(a, b, sizeof *a) == 0; }

static bool is_proxy(const struct http *h, const struct peer *p)
{
    for (int i = 0; i < h->c.n_proxies; i++)
        if (is_same(&h->proxy[i], p)) return true;
    return false;
}

enum conn_place place_for(struct http *h, const struct peer *p, bool is_unix, const char **why)
{
    const struct http_config *c = &h->c;
    int n_short = c->kept_connections / 2, short_share = (n_short + SHORT_SHARES - 1) / SHORT_SHARES;
    int ours = 0, ours_short = 0, n = h->n_conns - h->n_short;
    bool is_full = n >= c->max_connections - (is_unix ? n_short : c->kept_connections), is_greedy;

    for (size_t i = 0; i < h->n_slots; i++)
        if (h->conn[i] && is_same(&h->conn[i]->peer, p)) *(h->conn[i]->is_short ? &ours_short : &ours) += 1;
    is_greedy = ours >= c->peer_connections && !is_proxy(h, p);
    if (!is_full && !is_greedy) return PLACE_ANY;
    *why = is_greedy ? "too many connections from one address or user" : "too many connections";
    if (h->n_short < n_short && ours_short < short_share) return PLACE_SHORT;
    *(is_greedy ? &h->refused.peer : &h->refused.full) += 1;
    return PLACE_NONE;
}

void place_refused(struct http *h, const char *why)
{
    unsigned long long n;
    uint64_t now = clock_ns();
    bool is_time;

    pthread_mutex_lock(&h->lock);
    is_time = !h->refused_told_ns || now - h->refused_told_ns >= TELL_EVERY_NS;
    if (is_time) h->refused_told_ns = now;
    n = h->refused.full + h->refused.peer;
    pthread_mutex_unlock(&h->lock);
    if (is_time) log_at(LOG_WARN, "a connection is refused: %s; %llu so far", why, n);
}
