/* SPDX-License-Identifier: MIT
 *
 * sandbox_probe.c: what a daemon can do, tried from inside of it. Preloaded (LD_PRELOAD), it stands before the C
 * library's accept4: when a connection comes, the daemon's own thread does what $QUERN_PROBE says, once, and writes the
 * result of each word to standard error: `probe: WORD ERRNO`, 0 for success.
 *
 *     read:PATH list:DIR write:PATH create:PATH (and removes it) socket fork exec ptrace
 */
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ptrace.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

static int try_open(const char *path, int flags)
{
    int fd = open(path, flags | O_CLOEXEC, 0600);
    if (fd < 0) return -1;
    close(fd);
    return flags & O_CREAT ? unlink(path) : 0;
}

static int try_fork(void)
{
    pid_t pid = fork();
    if (pid == 0) _exit(0);
    if (pid > 0) waitpid(pid, NULL, 0); /* this may be refused; the child was not */
    return pid < 0 ? -1 : 0;
}

/* -1 and errno, or not */
static int try_word(const char *word)
{
    const char *path = strchr(word, ':');
    path = path ? path + 1 : "";
    if (!strncmp(word, "read:", 5)) return try_open(path, O_RDONLY);
    if (!strncmp(word, "list:", 5)) return try_open(path, O_RDONLY | O_DIRECTORY);
    if (!strncmp(word, "write:", 6)) return try_open(path, O_WRONLY);
    if (!strncmp(word, "create:", 7)) return try_open(path, O_WRONLY | O_CREAT | O_EXCL);
    if (!strcmp(word, "socket")) return socket(AF_INET, SOCK_STREAM, 0) < 0 ? -1 : 0;
    if (!strcmp(word, "fork")) return try_fork();
    if (!strcmp(word, "exec")) return execl("/bin/true", "true", NULL);
    if (!strcmp(word, "ptrace")) return ptrace(PTRACE_TRACEME, 0, NULL, NULL) < 0 ? -1 : 0;
    errno = 0;
    return -1; /* 0 for a word that nobody knows is noticed: it should have failed */
}

static void probe(void)
{
    static atomic_flag done = ATOMIC_FLAG_INIT;
    const char *env = getenv("QUERN_PROBE");
    char *words = env ? strdup(env) : NULL, *rest = NULL;
    if (!words || atomic_flag_test_and_set(&done)) {
        free(words);
        return;
    }
    for (char *w = strtok_r(words, " ", &rest); w; w = strtok_r(NULL, " ", &rest)) {
        int r = try_word(w);
        fprintf(stderr, "probe: %s %d\n", w, r < 0 ? errno : 0);
    }
    free(words);
}

__attribute__((visibility("default"))) int accept4(int fd, struct sockaddr *restrict peer, socklen_t *restrict n,
                                                   int flags)
{
    int (*real)(int, struct sockaddr *, socklen_t *, int) = NULL;
    *(void **)&real = dlsym(RTLD_NEXT, "accept4");
    int got = real(fd, peer, n, flags);
    if (got >= 0) probe();
    return got;
}
