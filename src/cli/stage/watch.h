/* SPDX-License-Identifier: MIT
 *
 * watch.h: keeps a group of stages running for as long as its head lives.
 */
#ifndef QUERN_CLI_WATCH_H
#define QUERN_CLI_WATCH_H

/* Runs the command `all`, with its output in the file `log` of the folder, and runs it again whenever it ends, after a
 * pause that grows. Standard input is a socket of the head, which may ask for `alone` instead, or for a new run
 * (cluster/start/watcher.h). When it is closed, ends all processes that came of it, removes the folder and returns the
 * exit status. */
int watch(const char *folder, char **all, char **alone);

#endif
