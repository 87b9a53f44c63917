/* SPDX-License-Identifier: MIT
 *
 * test_sandbox.c: what a fenced process can do and what it cannot. Fences cannot be taken down again, so each case runs
 * in a child, whose status is the number of the line where an expectation failed.
 */
#include "server/sandbox.h"

#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/ptrace.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <setjmp.h>
#include <stdarg.h>
#include <cmocka.h>

static char dir[] = "/tmp/quern-sandbox-XXXXXX";

/* For use in a child: the condition has to hold. */
#define MUST(x)                                                                                                        \
    do {                                                                                                               \
        if (!(x)) {                                                                                                    \
            fprintf(stderr, "line %d: not so: %s (%s)\n", __LINE__, #x, strerror(errno));                              \
            _exit(1);                                                                                                  \
        }                                                                                                              \
    } while (0)

static const char *at(const char *name)
{
    static char path[4][128];
    static int i;
    i = (i + 1) % 4;
    snprintf(path[i], sizeof path[i], "%s/%s", dir, name);
    return path[i];
}

static int opens(const char *name, int flags)
{
    int fd = open(name[0] == '/' ? name : at(name), flags | O_CLOEXEC, 0600);
    if (fd >= 0) close(fd);
    return fd >= 0;
}

/* The wait status of a child that ran f. */
static int status_of(void (*f)(void))
{
    int status;
    pid_t pid = fork();
    if (pid == 0) {
        f();
        _exit(0);
    }
    assert_true(pid > 0);
    assert_int_equal(waitpid(pid, &status, 0), pid);
    return status;
}

static void in_child(void (*f)(void)) { assert_int_equal(status_of(f), 0); }

/* The fences are complete, or the case cannot be tried here: a sanitizer's build or an old kernel says so. */
static void need(const char *fence)
{
    struct buf missing = {0};
    int pipes[2];
    char text[512] = "";
    assert_int_equal(pipe(pipes), 0);
    pid_t pid = fork();
    if (pid == 0) {
        int r = fence[0] == 'f' ? sandbox_files(NULL, 0, &missing, NULL) : sandbox_calls(&missing, NULL);
        if (r || (missing.len && write(pipes[1], missing.data, missing.len) < 0)) _exit(1);
        _exit(0);
    }
    close(pipes[1]);
    ssize_t n = read(pipes[0], text, sizeof text - 1);
    int status;
    waitpid(pid, &status, 0);
    close(pipes[0]);
    assert_int_equal(status, 0);
    if (n <= 0) return;
    print_message("skipped: %s\n", text);
    skip();
}

static int make_dir(void **state)
{
    (void)state;
    if (!mkdtemp(dir)) return -1;
    for (const char *const *d = (const char *const[]){"seen", "work", "sock", NULL}; *d; d++)
        if (mkdir(at(*d), 0700)) return -1;
    for (const char *const *f = (const char *const[]){"file", "other", "seen/file", "work/old", "sock/s", NULL}; *f;
         f++)
        if (!opens(*f, O_CREAT | O_WRONLY)) return -1;
    return 0;
}

static int remove_dir(void **state)
{
    (void)state;
    char command[64];
    snprintf(command, sizeof command, "rm -r %s", dir);
    return system(command);
}

/* ---- files ---- */

static void fence_files(void)
{
    struct buf missing = {0};
    const struct sandbox_path paths[] = {
        {at("file"), SANDBOX_READ},   {at("seen"), SANDBOX_READ},   {at("work"), SANDBOX_CHANGE},
        {at("sock"), SANDBOX_REMOVE}, {"/nothing", SANDBOX_CHANGE}, {"/proc/meminfo", SANDBOX_READ},
    };
    MUST(sandbox_files(paths, 6, &missing, NULL) == 0 && missing.len == 0);
}

static void *cannot_open_other(void *arg)
{
    *(int *)arg = !opens("other", O_RDONLY) && errno == EACCES;
    return NULL;
}

static void try_files(void)
{
    int open_before = open(at("other"), O_RDONLY), fenced = 0;
    pthread_t t;
    fence_files();
    MUST(opens("file", O_RDONLY) && !opens("file", O_WRONLY) && errno == EACCES);
    MUST(!opens("file", O_RDONLY | O_TRUNC) && errno == EACCES);
    MUST(truncate(at("file"), 0) && errno == EACCES);
    MUST(!opens("other", O_RDONLY) && errno == EACCES && !opens("/etc/passwd", O_RDONLY) && errno == EACCES);
    MUST(opens("seen/file", O_RDONLY) && !opens("seen/file", O_WRONLY) && !opens("seen/new", O_CREAT | O_WRONLY));
    MUST(!opens("seen", O_RDONLY | O_DIRECTORY) && errno == EACCES); /* to list it */
    MUST(opens("/proc/meminfo", O_RDONLY) && !opens("/proc/self/environ", O_RDONLY) && errno == EACCES);

    MUST(opens("work", O_RDONLY | O_DIRECTORY) && opens("work/old", O_RDWR | O_TRUNC));
    MUST(opens("work/new", O_CREAT | O_WRONLY) && rename(at("work/new"), at("work/newer")) == 0);
    MUST(unlink(at("work/newer")) == 0 && mkdir(at("work/dir"), 0700) && errno == EACCES);
    MUST(symlink("x", at("work/link")) && errno == EACCES && link(at("other"), at("work/link")));
    MUST(rename(at("work/old"), at("seen/old")));
    MUST(unlink(at("sock/s")) == 0 && !opens("sock/s", O_CREAT | O_WRONLY) && errno == EACCES);
    MUST(unlink(at("file")) && errno == EACCES);

    char byte;
    MUST(open_before >= 0 && read(open_before, &byte, 1) == 0); /* an open one stays open */
    MUST(pthread_create(&t, NULL, cannot_open_other, &fenced) == 0 && pthread_join(t, NULL) == 0 && fenced);
}

static void files_are_fenced(void **state)
{
    (void)state;
    need("files");
    in_child(try_files);
}

static void try_network(void)
{
    struct sockaddr_in a = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t n = sizeof a;
    int l = socket(AF_INET, SOCK_STREAM, 0), c = socket(AF_INET, SOCK_STREAM, 0);
    MUST(bind(l, (struct sockaddr *)&a, n) == 0 && listen(l, 1) == 0);
    MUST(getsockname(l, (struct sockaddr *)&a, &n) == 0);
    fence_files();
    MUST(connect(c, (struct sockaddr *)&a, n) && errno == EACCES);
    a.sin_port = 0;
    MUST(bind(c, (struct sockaddr *)&a, n) && errno == EACCES);
    MUST(kill(getppid(), 0) && errno == EPERM);
}

static void ports_and_signals_are_fenced_with_the_files(void **state)
{
    (void)state;
    need("files");
    if (syscall(SYS_landlock_create_ruleset, NULL, 0, 1) < 6) skip();
    in_child(try_network);
}

static void *wait_for_ever(void *arg)
{
    (void)arg;
    pause();
    return NULL;
}

static void try_late(void)
{
    struct buf missing = {0};
    pthread_t t;
    MUST(pthread_create(&t, NULL, wait_for_ever, NULL) == 0);
    MUST(sandbox_files(NULL, 0, &missing, NULL) == 0);
    MUST(strstr((char *)missing.data, "threads that ran before"));
}

static void a_thread_that_escapes_is_told(void **state)
{
    (void)state;
    need("files");
    in_child(try_late);
}

/* ---- system calls ---- */

static void fence_calls(void)
{
    struct buf missing = {0};
    MUST(sandbox_calls(&missing, NULL) == 0 && missing.len == 0);
}

static void *cannot_make_a_socket(void *arg)
{
    sigset_t set;
    int sig;
    sigemptyset(&set);
    sigaddset(&set, SIGUSR1);
    sigwait(&set, &sig);
    *(int *)arg = socket(AF_INET, SOCK_STREAM, 0) < 0 && errno == ENOSYS;
    return NULL;
}

static void try_calls(void)
{
    int fenced = 0, later = 0, pair[2];
    sigset_t set;
    pthread_t t;
    char byte = 0;
    sigemptyset(&set);
    sigaddset(&set, SIGUSR1);
    pthread_sigmask(SIG_BLOCK, &set, NULL);
    MUST(socketpair(AF_UNIX, SOCK_STREAM, 0, pair) == 0);
    MUST(pthread_create(&t, NULL, cannot_make_a_socket, &fenced) == 0);
    fence_calls();
    MUST(pthread_kill(t, SIGUSR1) == 0 && pthread_join(t, NULL) == 0 && fenced);

    MUST(pthread_create(&t, NULL, cannot_make_a_socket, &later) == 0);
    MUST(pthread_kill(t, SIGUSR1) == 0 && pthread_join(t, NULL) == 0 && later);
    MUST(opens("work/old", O_RDWR) && write(pair[0], "x", 1) == 1 && read(pair[1], &byte, 1) == 1);
    MUST(mmap(NULL, 4096, PROT_READ | PROT_EXEC, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0) != MAP_FAILED);

    MUST(socket(AF_UNIX, SOCK_DGRAM, 0) < 0 && errno == ENOSYS);
    MUST(socketpair(AF_UNIX, SOCK_STREAM, 0, pair) < 0 && errno == ENOSYS);
    struct sockaddr_in a = {.sin_family = AF_INET};
    MUST(bind(pair[0], (struct sockaddr *)&a, sizeof a) < 0 && errno == ENOSYS);
    MUST(connect(pair[0], (struct sockaddr *)&a, sizeof a) < 0 && errno == ENOSYS);
    MUST(listen(pair[0], 1) < 0 && errno == ENOSYS);
    MUST(fork() < 0 && errno == ENOSYS);
    MUST(syscall(SYS_clone, SIGCHLD, NULL, NULL, NULL, NULL) < 0 && errno == ENOSYS);
    MUST(kill(getpid(), 0) < 0 && errno == ENOSYS);
    MUST(syscall(SYS_tgkill, getppid(), getppid(), 0) < 0 && errno == ENOSYS);
    MUST(syscall(SYS_io_uring_setup, 1, NULL) < 0 && errno == ENOSYS);
    MUST(mkdir(at("work/dir"), 0700) < 0 && errno == ENOSYS && chmod(at("work/old"), 0777) < 0 && errno == ENOSYS);
}

static void calls_are_refused_as_unknown(void **state)
{
    (void)state;
    need("calls");
    in_child(try_calls);
}

static void run_a_program(void)
{
    fence_calls();
    execl("/bin/true", "true", NULL);
}

static void trace(void)
{
    fence_calls();
    ptrace(PTRACE_TRACEME, 0, NULL, NULL);
}

static void become_somebody(void)
{
    fence_calls();
    if (setuid(65534)) _exit(0);
}

static void some_calls_are_the_end(void **state)
{
    (void)state;
    need("calls");
    void (*const attempts[])(void) = {run_a_program, trace, become_somebody};
    for (size_t i = 0; i < 3; i++) {
        int status = status_of(attempts[i]);
        assert_true(WIFSIGNALED(status));
        assert_int_equal(WTERMSIG(status), SIGSYS);
    }
}

static void fail_an_assertion(void)
{
    fence_calls();
    fclose(stderr);
    abort();
}

static void our_own_end_is_still_seen(void **state)
{
    (void)state;
    need("calls");
    int status = status_of(fail_an_assertion);
    assert_true(WIFSIGNALED(status));
    assert_int_equal(WTERMSIG(status), SIGABRT);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(files_are_fenced),
        cmocka_unit_test(ports_and_signals_are_fenced_with_the_files),
        cmocka_unit_test(a_thread_that_escapes_is_told),
        cmocka_unit_test(calls_are_refused_as_unknown),
        cmocka_unit_test(some_calls_are_the_end),
        cmocka_unit_test(our_own_end_is_still_seen),
    };
    return cmocka_run_group_tests(tests, make_dir, remove_dir);
}
