/* SPDX-License-Identifier: MIT
 *
 * pull_hosts.h: brings a model from this host to others (`quern pull --hosts`).
 */
#ifndef QUERN_CLI_PULL_HOSTS_H
#define QUERN_CLI_PULL_HOSTS_H

#include "fetch/fetch.h"

/* Copies the n files or folders at `path` to the hosts of a list (cluster/start/hosts.h): to the same path there, or to
 * the one that the list has, which is that of the first of them. Compares the sums of all bytes.
 *
 * layers: a list of layer_ranges.h. Each host gets GGUF files with the weights of its layers only, unless it has the
 * whole ones. NULL: all weights. Returns 0 or an exit status, after a message. */
int pull_to_hosts(const char *list, const char *layers, char *const *path, int n, const struct fetch_options *o);

#endif
