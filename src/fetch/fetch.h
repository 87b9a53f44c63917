/* SPDX-License-Identifier: MIT
 *
 * fetch.h: options for every way of getting a file: speed, patience, secrets, and a function that watches.
 */
#ifndef QUERN_FETCH_FETCH_H
#define QUERN_FETCH_FETCH_H

#include <stdbool.h>
#include <stdint.h>

struct fetch_options {
    const char *token;    /* a bearer token, sent to the origin of the source and to no other; NULL: none */
    const char *ca;       /* a file of certificates (PEM) to trust instead of the system's; NULL: the system's */
    bool insecure_http;   /* allows http:// to other hosts than this one */
    int timeout_s;        /* seconds to make a connection, and without a byte on an open one */
    int n_connections;    /* at most */
    uint64_t bytes_per_s; /* the limit for all connections together; 0: none */
    /* Called several times a second. false: stop, and keep the bytes that have come (QN_ECANCEL). what: "fetching" or
     * "checking"; NULL: there is nothing to tell. done, total: bytes. */
    bool (*watch)(void *arg, const char *what, uint64_t done, uint64_t total);
    void *arg;
};

#endif
