/* SPDX-License-Identifier: MIT
 *
 * progress.h: one line on the terminal with the progress of a long operation: how far, how fast, and how long it still
 * takes.
 *
 * The line is shown on standard error if that is a terminal that can rewrite a line, and NO_COLOR is not set.
 * Otherwise these functions do nothing. There is one line at a time, and nothing else may be printed while it is
 * shown.
 */
#ifndef QUERN_CLI_PROGRESS_H
#define QUERN_CLI_PROGRESS_H

#include <stdbool.h>
#include <stdint.h>

struct progress {
    bool is_shown;
    char label[128];
    const char *unit;
    uint64_t total, done, told; /* told: the value of `done` when the rate was last computed */
    uint64_t begun_ns, told_ns;
    double rate; /* units per second over the last seconds; 0: not known yet */
};

/* Whether a line would be shown. */
bool progress_is_wanted(void);
/* Starts a line. unit: "B" for bytes, which are shown in kB, MB and GB; otherwise a word such as "tokens". total: 0:
 * not known. */
void progress_begin(struct progress *p, const char *label, const char *unit, uint64_t total);
/* Updates the line, at most ten times a second; may be called more often. The first call sets the starting point,
 * which may be in the middle. */
void progress_update(struct progress *p, uint64_t done);
/* Removes the line. A zeroed struct is fine, and so is a second call. */
void progress_end(struct progress *p);

/* Shows a text as the line, under the same conditions, in place of what was shown; "" removes it. */
void progress_note(const char *fmt, ...) __attribute__((format(printf, 1, 2)));

#endif
