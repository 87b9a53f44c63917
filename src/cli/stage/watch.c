/* SPDX-License-Identifier: MIT
 *
 * watch.c: a watcher of mpirun and all that it starts. See watch.h.
 *
 * Processes that lose their parent become children of the watcher (PR_SET_CHILD_SUBREAPER). So when mpirun is killed,
 * its ranks are found and ended, too.
 */
#include "cli/stage/watch.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/os.h"

#define FIRST_PAUSE_MS 100
#define LAST_PAUSE_MS  5000
#define GOOD_NS        10000000000u /* a group that ran so long began well: the next pause is short again */
#define TERM_MS        500          /* that mpirun has to end its ranks */

static pid_t start(const char *log, char **argv)
{
    pid_t parent = getpid(), pid = fork();
    if (pid) return pid;
    int in = open("/dev/null", O_RDONLY), out = open(log, O_WRONLY | O_CREAT | O_TRUNC, 0600);
    if (in >= 0) dup2(in, STDIN_FILENO);
    if (out >= 0) dup2(out, STDOUT_FILENO);
    if (out >= 0) dup2(out, STDERR_FILENO);
    setpgid(0, 0);
    prctl(PR_SET_PDEATHSIG, SIGTERM);
    if (getppid() != parent) _exit(1);
    execvp(argv[0], argv);
    fprintf(stderr, "cannot start '%s'", argv[0]);
    _exit(127);
}

/* Takes the processes that have ended. Returns true if pid is one of them. */
static bool reap(pid_t pid)
{
    bool found = false;
    for (pid_t p; (p = waitpid(-1, NULL, WNOHANG)) > 0;) found |= p == pid;
    return found;
}

/* Kills every child; those of mpirun become children when it is gone. */
static void kill_children(void)
{
    for (int turn = 0; turn < 100; turn++) {
        char path[64];
        long pid;
        snprintf(path, sizeof path, "/proc/self/task/%d/children", (int)getpid());
        FILE *f = fopen(path, "re");
        while (f && fscanf(f, "%ld", &pid) == 1) kill((pid_t)pid, SIGKILL);
        if (f) fclose(f);
        reap(0);
        if (waitpid(-1, NULL, WNOHANG) < 0 && errno == ECHILD) return;
        poll(NULL, 0, 10);
    }
}

/* Waits for at most ms milliseconds. Returns true if the head is gone. */
static bool is_over(int ms)
{
    struct pollfd in = {.fd = STDIN_FILENO, .events = POLLIN};
    char c;
    return poll(&in, 1, ms) > 0 && read(STDIN_FILENO, &c, 1) <= 0;
}

/* Runs the command once. Returns true if the head is gone. */
static bool run_once(const char *log, char **argv)
{
    bool over = false, ended = false;
    pid_t pid = start(log, argv);
    if (pid < 0) return is_over(LAST_PAUSE_MS);
    while (!(ended = reap(pid)) && !over) over = is_over(50);
    if (!ended) kill(pid, SIGTERM);
    for (int ms = 0; !ended && ms < TERM_MS; ms += 10) {
        poll(NULL, 0, 10);
        ended = reap(pid);
    }
    kill_children();
    return over;
}

int watch(const char *folder, char **argv)
{
    static const char *const names[] = {"log", "head"};
    char path[512];
    snprintf(path, sizeof path, "%s/log", folder);
    prctl(PR_SET_CHILD_SUBREAPER, 1);
    for (int pause_ms = FIRST_PAUSE_MS;;) {
        uint64_t begin = clock_ns();
        if (run_once(path, argv)) break;
        if (clock_ns() - begin > GOOD_NS) pause_ms = FIRST_PAUSE_MS;
        if (is_over(pause_ms)) break;
        pause_ms = pause_ms < LAST_PAUSE_MS / 2 ? 2 * pause_ms : LAST_PAUSE_MS;
    }
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        snprintf(path, sizeof path, "%s/%s", folder, names[i]);
        unlink(path);
    }
    rmdir(folder);
    return 0;
}
