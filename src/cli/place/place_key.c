/* SPDX-License-Identifier: MIT
 *
 * place_key.c: reads the API key of the remote endpoint: the first line of a file, or of a command's output.
 *
 * The key is never on the command line, which every user of the machine can read. The command runs in a shell. Its
 * standard input is empty, because ours is the text of a question, and its messages are visible.
 */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <sysexits.h>
#include <unistd.h>

#include "cli/core/cli.h"
#include "cli/place/place.h"

extern char **environ;

/* Reads to the end, or until the buffer is full. Returns the number of bytes; negative: errno says why. */
static ssize_t read_some(int fd, char *key, size_t cap)
{
    size_t n = 0;
    for (ssize_t got; n < cap - 1 && (got = read(fd, key + n, cap - 1 - n)) != 0;) {
        if (got < 0 && errno != EINTR) return -1;
        if (got > 0) n += (size_t)got;
    }
    key[n] = '\0';
    return (ssize_t)n;
}

/* Keeps the first line of what was read from `name`. Returns 0 or an exit status, after a message. */
static int take_line(const char *name, char *key, ssize_t n, size_t cap)
{
    size_t line = n < 0 ? 0 : strcspn(key, "\r\n");
    if (n < 0) {
        fprintf(stderr, "quern: cannot read the API key from %s: %s\n", name, strerror(errno));
        return EX_NOINPUT;
    }
    if ((size_t)n == cap - 1 && line == (size_t)n) {
        fprintf(stderr, "quern: the API key from %s has more than %zu bytes\n", name, cap - 2);
        return EX_DATAERR;
    }
    explicit_bzero(key + line, (size_t)n - line);
    if (line) return 0;
    fprintf(stderr, "quern: the API key from %s is empty\n", name);
    return EX_DATAERR;
}

static int read_file(const char *path, char *key, size_t cap)
{
    char clean[300], name[320];
    struct stat st;
    error_clean(clean, sizeof clean, path);
    snprintf(name, sizeof name, "'%s'", clean);
    int fd = open(path, O_RDONLY | O_CLOEXEC), rc;
    if (fd < 0) {
        fprintf(stderr, "quern: cannot read the API key from %s: %s\n", name, strerror(errno));
        return EX_NOINPUT;
    }
    if (fstat(fd, &st) == 0 && S_ISREG(st.st_mode) && st.st_mode & (S_IRGRP | S_IROTH | S_IWGRP | S_IWOTH))
        fprintf(stderr, "quern: warning: others can read or write the API key in %s (mode %03o)\n", name,
                (unsigned)st.st_mode & 0777);
    rc = take_line(name, key, read_some(fd, key, cap), cap);
    close(fd);
    return rc;
}

/* Starts the command with its standard output connected to `out`. Returns 0 or an errno. */
static int start(pid_t *pid, const char *command, int out)
{
    char *argv[] = {"sh", "-c", (char *)(uintptr_t)command, NULL};
    posix_spawn_file_actions_t files;
    posix_spawnattr_t attr;
    sigset_t none, normal;
    int rc = posix_spawn_file_actions_init(&files);
    if (rc) return rc;
    if ((rc = posix_spawnattr_init(&attr))) {
        posix_spawn_file_actions_destroy(&files);
        return rc;
    }
    sigemptyset(&none);
    sigemptyset(&normal);
    sigaddset(&normal, SIGPIPE); /* this program ignores these signals, but the command must not */
    sigaddset(&normal, SIGXFSZ);
    posix_spawnattr_setsigmask(&attr, &none);
    posix_spawnattr_setsigdefault(&attr, &normal);
    posix_spawnattr_setflags(&attr, POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF);
    rc = posix_spawn_file_actions_addopen(&files, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
    if (!rc) rc = posix_spawn_file_actions_adddup2(&files, out, STDOUT_FILENO);
    if (!rc) rc = posix_spawn(pid, "/bin/sh", &files, &attr, argv, environ);
    posix_spawnattr_destroy(&attr);
    posix_spawn_file_actions_destroy(&files);
    return rc;
}

static int read_command(const char *command, char *key, size_t cap)
{
    int ends[2], rc, status = 0;
    pid_t pid;
    ssize_t n;
    if (pipe2(ends, O_CLOEXEC)) {
        fprintf(stderr, "quern: a pipe for --remote-key-command: %s\n", strerror(errno));
        return EX_OSERR;
    }
    rc = start(&pid, command, ends[1]);
    close(ends[1]);
    if (rc) {
        fprintf(stderr, "quern: cannot start the shell for --remote-key-command: %s\n", strerror(rc));
        close(ends[0]);
        return EX_OSERR;
    }
    n = read_some(ends[0], key, cap);
    close(ends[0]); /* a command that prints more than fits ends here */
    while (waitpid(pid, &status, 0) < 0 && errno == EINTR)
        ;
    if ((size_t)n == cap - 1 || (WIFEXITED(status) && !WEXITSTATUS(status))) /* a command that was cut off may fail */
        return take_line("--remote-key-command", key, n, cap);
    explicit_bzero(key, cap);
    fprintf(stderr, "quern: --remote-key-command failed with %s %d\n", WIFEXITED(status) ? "status" : "signal",
            WIFEXITED(status) ? WEXITSTATUS(status) : WTERMSIG(status));
    return EX_NOINPUT;
}

int place_read_key(const struct place_options *o, char *key, size_t cap)
{
    const char *file = o->remote_key_file, *command = o->remote_key_command;
    bool in_file = file && *file, from_command = command && *command; /* empty: not set */
    *key = '\0';
    if (in_file && from_command) return cli_usage("--remote-key-file and --remote-key-command cannot both be given");
    if (in_file) return read_file(file, key, cap);
    return from_command ? read_command(command, key, cap) : 0;
}
