/* SPDX-License-Identifier: MIT
 *
 * units.h: Quern's units of systemd, this user's; of root, the system's. Asked through systemctl, where there is one.
 */
#ifndef QUERN_CLI_UNITS_H
#define QUERN_CLI_UNITS_H

#include <stdbool.h>
#include <sys/types.h>

/* Whether a manager runs that knows quern.service. */
bool units_are_there(void);
/* The process of quern.service; 0: it does not run, or there is none. */
pid_t units_pid(void);
/* Starts the service, and waits until it is ready; or stops it with its socket, and waits until it has ended.
 * systemctl's exit status; it has said on stderr what is wrong. */
int units_start(void);
int units_stop(void);
/* How its log is read, for a message. */
const char *units_log_command(void);

#endif
