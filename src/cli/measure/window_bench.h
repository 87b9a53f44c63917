/* SPDX-License-Identifier: MIT
 *
 * window_bench.h: `quern bench --replay FILE --decoder wedlm`: what windows of masks do with each kind of content.
 *
 * Verified windows replay the answers of FILE. With --wedlm-verify no, the model answers the prompts itself, with as
 * many tokens as the answers have, because what masks are filled with is the answer then.
 */
#ifndef QUERN_CLI_WINDOW_BENCH_H
#define QUERN_CLI_WINDOW_BENCH_H

#include "cli/measure/replay.h"

/* Runs all texts, one after the other, and prints a row for each class. p: path, wedlm and n_rounds, the most texts of
 * a class. Returns 0 or an exit status, after a message. */
int window_bench(const struct replay_params *p, qn_model *m, const struct qn_engine_params *engine, const char *name,
                 bool json);

#endif
