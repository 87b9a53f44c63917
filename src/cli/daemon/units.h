/* SPDX-License-Identifier: MIT
 *
 * units.h: Quern's systemd units: this user's, or for root the system's. Asked through systemctl, if it is installed.
 */
#ifndef QUERN_CLI_UNITS_H
#define QUERN_CLI_UNITS_H

#include <stdbool.h>
#include <sys/types.h>

/* Whether a service manager runs that knows quern.service. */
bool units_are_there(void);
/* The process of quern.service; 0: it does not run, or does not exist. */
pid_t units_pid(void);
/* Start the service and wait until it is ready; stop it together with its socket and wait until it has ended. Return
 * 0 or an exit status; systemctl has printed a message. */
int units_start(void);
int units_stop(void);
/* The command that prints its log, for a message. */
const char *units_log_command(void);

#endif
