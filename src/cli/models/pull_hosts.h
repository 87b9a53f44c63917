/* SPDX-License-Identifier: MIT
 *
 * pull_hosts.h: brings a model from this host to others (`quern pull --hosts`).
 */
#ifndef QUERN_CLI_PULL_HOSTS_H
#define QUERN_CLI_PULL_HOSTS_H

#include "fetch/fetch.h"

/* Copies the n files or folders at `path` to the hosts of a list (cluster/start/hosts.h): to the same path there, or to
 * the one that the list has, which is that of the first of them. Compares the sums of all bytes. Returns 0 or an exit
 * status, after a message. */
int pull_to_hosts(const char *list, char *const *path, int n, const struct fetch_options *o);

#endif
