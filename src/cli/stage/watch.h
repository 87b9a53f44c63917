/* SPDX-License-Identifier: MIT
 *
 * watch.h: keeps a group of stages running for as long as its head lives.
 */
#ifndef QUERN_CLI_WATCH_H
#define QUERN_CLI_WATCH_H

/* Runs the command `argv`, with its output in the file `log` of the folder, and runs it again whenever it ends, after a
 * pause that grows. When standard input is closed, ends all processes that came of it, removes the folder and returns
 * the exit status. */
int watch(const char *folder, char **argv);

#endif
