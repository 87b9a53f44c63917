/* SPDX-License-Identifier: MIT
 *
 * fetch.h: what every way of getting a file is told: how fast, how patient, who is asked with which secret, and who
 * watches.
 */
#ifndef QUERN_FETCH_FETCH_H
#define QUERN_FETCH_FETCH_H

#include <stdbool.h>
#include <stdint.h>

struct fetch_options {
    const char *token;    /* a bearer token for the origin of the source and no other; NULL: none */
    const char *ca;       /* a file of certificates to trust instead of the system's; NULL: the system's */
    bool insecure_http;   /* http:// to hosts other than this one */
    int timeout_s;        /* for a connection to be made, and without a byte on one that is */
    int n_connections;    /* at most */
    uint64_t bytes_per_s; /* at most, of all connections; 0: no limit */
    /* Called several times a second; false: stop, and keep what has come (QN_ECANCEL). what: "fetching" or "checking";
     * NULL: nothing is told, only asked. */
    bool (*watch)(void *arg, const char *what, uint64_t done, uint64_t total);
    void *arg;
};

#endif
