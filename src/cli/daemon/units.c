/* SPDX-License-Identifier: MIT
 *
 * units.c: runs systemctl. See units.h.
 *
 * systemctl(1) instead of D-Bus needs no library, and users know its messages.
 */
#include "cli/daemon/units.h"

#include <errno.h>
#include <fcntl.h>
#include <spawn.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <sysexits.h>
#include <unistd.h>

#define MAX_ARGS 8
#define SERVICE  "quern.service"
#define SOCKET   "quern.socket"

extern char **environ;

static bool is_system(void) { return geteuid() == 0; }

/* Starts a child process. Its output goes to *out_fd, a new pipe, and its messages nowhere; out_fd NULL: both go
 * where ours go. */
static int spawn(pid_t *pid, char *const *argv, int *out_fd)
{
    posix_spawn_file_actions_t files;
    int fds[2] = {-1, -1}, rc;
    if (out_fd && pipe2(fds, O_CLOEXEC)) return errno;
    if ((rc = posix_spawn_file_actions_init(&files))) goto out;
    rc = posix_spawn_file_actions_addopen(&files, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
    if (!rc && out_fd) rc = posix_spawn_file_actions_adddup2(&files, fds[1], STDOUT_FILENO);
    if (!rc && out_fd) rc = posix_spawn_file_actions_addopen(&files, STDERR_FILENO, "/dev/null", O_WRONLY, 0);
    if (!rc) rc = posix_spawnp(pid, argv[0], &files, NULL, argv, environ);
    posix_spawn_file_actions_destroy(&files);
out:
    if (fds[1] >= 0) close(fds[1]);
    if (rc && fds[0] >= 0) close(fds[0]);
    if (!rc && out_fd) *out_fd = fds[0];
    return rc;
}

/* Reads to the end; what does not fit is read and discarded. */
static void read_out(int fd, char *out, size_t cap)
{
    size_t n = 0;
    char rest[512];
    for (;;) {
        bool full = n + 1 >= cap;
        ssize_t got = read(fd, full ? rest : out + n, full ? sizeof rest : cap - n - 1);
        if (got < 0 && errno == EINTR) continue;
        if (got <= 0) break;
        if (!full) n += (size_t)got;
    }
    out[n] = 0;
    close(fd);
}

/* Runs systemctl with the words of `args`. Returns its exit status, or -1 if it cannot be run. out: gets its output;
 * NULL: the output goes where ours goes. */
static int systemctl(const char *const *args, char *out, size_t cap)
{
    char *argv[MAX_ARGS + 3] = {"systemctl"};
    pid_t pid;
    int n = 1, status, fd = -1;
    if (!is_system()) argv[n++] = "--user";
    for (; *args && n < MAX_ARGS + 2; args++) argv[n++] = (char *)(uintptr_t)*args;
    if (spawn(&pid, argv, out ? &fd : NULL)) return -1;
    if (out) read_out(fd, out, cap);
    while (waitpid(pid, &status, 0) < 0)
        if (errno != EINTR) return -1;
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

bool units_are_there(void)
{
    char text[16];
    return systemctl((const char *const[]){"cat", SERVICE, NULL}, text, sizeof text) == 0;
}

pid_t units_pid(void)
{
    char text[32];
    if (systemctl((const char *const[]){"show", "--property=MainPID", "--value", SERVICE, NULL}, text, sizeof text))
        return 0;
    return (pid_t)strtol(text, NULL, 10);
}

/* Our exit status for that of systemctl. */
static int told(int status)
{
    if (status < 0) return EX_UNAVAILABLE;
    return status ? EX_SOFTWARE : 0;
}

int units_start(void) { return told(systemctl((const char *const[]){"start", SERVICE, NULL}, NULL, 0)); }

int units_stop(void) { return told(systemctl((const char *const[]){"stop", SOCKET, SERVICE, NULL}, NULL, 0)); }

const char *units_log_command(void) { return is_system() ? "journalctl -u quern" : "journalctl --user -u quern"; }
