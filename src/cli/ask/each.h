/* SPDX-License-Identifier: MIT
 *
 * each.h: one question for each line of standard input, several of them at once.
 *
 * Each line is asked as if it were the whole text, and its answer is one line of standard output. The answers come in
 * the order of the lines, and have the bytes that the lines get alone. The server computes lines that are asked at
 * once in one step, which takes little longer than one of them.
 *
 * A line that fails gives an empty line, so line N of the output always belongs to line N of the input. The other lines
 * go on. At most EACH_LINES lines are in memory.
 */
#ifndef QUERN_CLI_EACH_H
#define QUERN_CLI_EACH_H

#include "cli/ask/ask_run.h"

#define EACH_AT_ONCE 16 /* more than a server computes in one step by default: the next lines wait there */
#define EACH_LINES   64
#define EACH_LONGEST ((size_t)1 << 20) /* bytes of a line */

/* Answers all lines; a->place is open. Returns the exit status: that of the first line that failed, after a message
 * for each. */
int each_run(struct ask_run *a);

#endif
