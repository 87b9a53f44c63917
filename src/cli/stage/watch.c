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
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/os.h"
#include "cluster/start/launch.h"
#include "cluster/start/watcher.h"

#define FIRST_PAUSE_MS 100
#define LAST_PAUSE_MS  5000
#define GOOD_NS        10000000000u /* a group that ran so long began well: the next pause is short again */
#define TERM_MS        500          /* that mpirun has to end its ranks */
#define IS_OVER        '.'          /* instead of a letter of the head, which is gone */

static pid_t start(const char *log, char **argv)
{
    char ports[LAUNCH_RANGE];
    pid_t parent = getpid(), pid = fork();
    if (pid) return pid;
    int in = open("/dev/null", O_RDONLY), out = open(log, O_WRONLY | O_CREAT | O_TRUNC, 0600);
    if (in >= 0) dup2(in, STDIN_FILENO);
    if (out >= 0) dup2(out, STDOUT_FILENO);
    if (out >= 0) dup2(out, STDERR_FILENO);
    setpgid(0, 0);
    prctl(PR_SET_PDEATHSIG, SIGTERM);
    if (getppid() != parent) _exit(1);
    launch_pick_ports(argv, ports);
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

/* Waits for at most ms milliseconds for a letter of the head (cluster/start/watcher.h). 0: none came. */
static char listen_to_head(int ms)
{
    struct pollfd in = {.fd = STDIN_FILENO, .events = POLLIN};
    char c = 0;
    if (poll(&in, 1, ms) <= 0) return 0;
    ssize_t n = read(STDIN_FILENO, &c, 1);
    if (n < 0 && errno == EINTR) return 0;
    return n <= 0 ? IS_OVER : c;
}

static void tell_head(char c) { (void)!send(STDIN_FILENO, &c, 1, MSG_NOSIGNAL | MSG_DONTWAIT); }

/* Runs the command once. Returns the letter that ended it; 0: it ended by itself. */
static char run_once(const char *log, char **argv)
{
    char letter = 0;
    bool ended = false;
    pid_t pid = start(log, argv);
    if (pid < 0) return listen_to_head(LAST_PAUSE_MS);
    while (!(ended = reap(pid)) && !letter) letter = listen_to_head(20);
    if (!ended) kill(pid, SIGTERM);
    for (int ms = 0; !ended && ms < TERM_MS; ms += 10) {
        poll(NULL, 0, 10);
        ended = reap(pid);
    }
    kill_children();
    return letter;
}

static void remove_folder(const char *folder)
{
    static const char *const names[] = {"log", "head"};
    char path[512];
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        snprintf(path, sizeof path, "%s/%s", folder, names[i]);
        unlink(path);
    }
    rmdir(folder);
}

int watch(const char *folder, char **all, char **alone)
{
    char path[512], **argv = all;
    snprintf(path, sizeof path, "%s/log", folder);
    prctl(PR_SET_CHILD_SUBREAPER, 1);
    for (int pause_ms = FIRST_PAUSE_MS;;) {
        uint64_t begin = clock_ns();
        char letter = run_once(path, argv);
        if (!letter) {
            if (clock_ns() - begin > GOOD_NS) pause_ms = FIRST_PAUSE_MS;
            tell_head(WATCHER_ENDED);
            letter = listen_to_head(pause_ms);
            pause_ms = pause_ms < LAST_PAUSE_MS / 2 ? 2 * pause_ms : LAST_PAUSE_MS;
        }
        if (letter == IS_OVER) break;
        if (!letter) continue;
        tell_head(WATCHER_DONE);
        argv = letter == WATCHER_ALONE ? alone : all;
        pause_ms = FIRST_PAUSE_MS;
    }
    remove_folder(folder);
    return 0;
}
