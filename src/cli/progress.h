/* SPDX-License-Identifier: MIT
 *
 * progress.h: one line on the terminal that says how far something is, how fast, and how long it still takes.
 *
 * Shown on standard error if that is a terminal that can rewrite a line, and NO_COLOR is not set; else all of these do
 * nothing. One at a time; anything else is printed before it begins or after it has ended.
 */
#ifndef QUERN_CLI_PROGRESS_H
#define QUERN_CLI_PROGRESS_H

#include <stdbool.h>
#include <stdint.h>

struct progress {
    bool is_shown;
    char label[128];
    const char *unit;
    uint64_t total, done, told; /* told: what `done` was then */
    uint64_t begun_ns, told_ns;
    double rate; /* units a second, of the last seconds; 0: not known yet */
};

/* Whether a line would be shown. */
bool progress_is_wanted(void);
/* unit: "B" for bytes, which are told in kB, MB and GB; else a word for people, "tokens". total 0: not known. */
void progress_begin(struct progress *p, const char *label, const char *unit, uint64_t total);
/* May be called as often as one likes. The first call says where it begins, which may be in the middle. */
void progress_update(struct progress *p, uint64_t done);
/* Takes the line away. A zeroed struct may be ended, and one twice. */
void progress_end(struct progress *p);

#endif
