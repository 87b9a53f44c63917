/* SPDX-License-Identifier: MIT
 *
 * main.c: finds the command and runs it.
 */
#include <fcntl.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sysexits.h>
#include <unistd.h>

#include "base/log.h"
#include "cli/cli.h"
#include "cli/help.h"

static void log_to_stderr(void *arg, enum log_level level, const char *line)
{
    (void)arg;
    if (level <= LOG_WARN) fprintf(stderr, "quern: warning: %s\n", line);
}

/* What stdio still holds is written; a success whose output could not be written is none. */
static int flushed(int status)
{
    if ((fflush(stdout) || ferror(stdout)) && status == EX_OK) return cli_write_status();
    return status;
}

/* Reading a page of a mapped file that somebody has cut short. The file cannot be read on, so this ends it. */
static void on_lost_page(int sig)
{
    static const char line[] = "quern: the model file became shorter, or its disk failed, while it was in use\n";
    static atomic_flag said = ATOMIC_FLAG_INIT;
    (void)sig;
    while (atomic_flag_test_and_set(&said)) /* another thread has met it too, and is about to end all */
        ;
    if (cli_unfinished) unlink(cli_unfinished);
    if (write(STDERR_FILENO, line, sizeof line - 1) < 0) _exit(EX_SOFTWARE);
    _exit(EX_IOERR);
}

static int run(const struct command *c, int argc, char **argv)
{
    struct invocation v;
    bool ready;
    int status = options_read(&v, c, argc, argv, &ready);
    if (ready) status = c->run(&v);
    options_free(&v);
    return status;
}

/* A standard descriptor that is closed would become that of the next file or socket that is opened, and what is printed would
 * go there. In its place comes one that can only be used the wrong way round, so that its use fails as that of a closed one. */
static void keep_standard_descriptors(void)
{
    for (int fd = STDIN_FILENO; fd <= STDERR_FILENO; fd++)
        if (fcntl(fd, F_GETFD) < 0 && open("/dev/null", fd == STDIN_FILENO ? O_WRONLY : O_RDONLY) < 0) _exit(EX_OSERR);
}

int main(int argc, char **argv)
{
    keep_standard_descriptors();
    setvbuf(stderr, NULL, _IOLBF, BUFSIZ); /* a message is one write: nobody reads half of one */
    signal(SIGPIPE, SIG_IGN); /* a reader that goes away is seen as EPIPE, */
    signal(SIGXFSZ, SIG_IGN); /* a file that may not grow as EFBIG */
    signal(SIGBUS, on_lost_page);
    log_set_sink(log_to_stderr, NULL);
    if (argc < 2) {
        help_program(stderr, HELP_SHORT);
        return EX_USAGE;
    }
    bool all = !strcmp(argv[1], "--help-all");
    if (all || !strcmp(argv[1], "--help") || !strcmp(argv[1], "-h")) {
        help_program(stdout, all ? HELP_LONG : HELP_SHORT);
        return flushed(EX_OK);
    }
    if (!strcmp(argv[1], "--version")) {
        printf("quern %s, best instruction set here: %s\n", qn_version(), qn_cpu());
        return flushed(EX_OK);
    }
    const struct command *c = command_find(argv[1]);
    if (c) return flushed(run(c, argc - 1, argv + 1));
    return cli_usage("unknown command '%s' (see quern --help)", argv[1]);
}
