/* SPDX-License-Identifier: MIT
 *
 * bench_hosts.h: tokens per second of a model on several hosts, whose layers compute different answers at a time.
 */
#ifndef QUERN_CLI_BENCH_HOSTS_H
#define QUERN_CLI_BENCH_HOSTS_H

#include "cli/place/stage_hosts.h"

struct bench_hosts {
    const struct stage_hosts *hosts;
    const char *path, *name; /* of the model; the name is printable */
    const struct qn_engine_params *engine;
    const struct qn_model_params *file;
    const int *prompts, *streams; /* [n_prompts] tokens, [n_streams] answers at once */
    int n_prompts, n_streams;
    int n_predict;     /* tokens of each answer; 0: only prompts */
    int reps, seconds; /* of a test: repetitions, and when no more of them begin */
    bool json;
};

/* Starts the hosts, measures, and prints the results. Call it while there is one thread. */
int bench_hosts(const struct bench_hosts *b, struct qn_error *e);

#endif
