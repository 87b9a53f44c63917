/* SPDX-License-Identifier: MIT
 *
 * test_group.c: stages from the greeting on, and a group whose stages do not come or are lost.
 *
 *     test_group MODEL
 *     test_group watch FOLDER N ALONE... HOW ...    stands in for `quern-stage watch`; the test starts it
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <dirent.h>
#include <poll.h>
#include <semaphore.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/os.h"
#include "cluster/greeting.h"
#include "cluster/group.h"
#include "cluster/runner.h"
#include "cluster/stage_life.h"
#include "cluster/start/watcher.h"
#include "engine/scheduler.h"
#include "model/load.h"

#define N_CTX 256
#define LIMIT 20000 /* ms; everything takes a small part of it */

static const char *path;

/* ---- one stage ---- */

/* Kilobytes of memory that this process has locked. */
static long locked_kb(void)
{
    char line[200];
    long kb = -1;
    FILE *f = fopen("/proc/self/status", "r");
    while (kb < 0 && fgets(line, sizeof line, f)) sscanf(line, "VmLck: %ld", &kb);
    fclose(f);
    return kb;
}

/* Threads of this process that belong to a team. */
static int count_team(void)
{
    int n = 0;
    DIR *d = opendir("/proc/self/task");
    for (const struct dirent *t; (t = readdir(d));) {
        char name[300], comm[32] = "";
        snprintf(name, sizeof name, "/proc/self/task/%s/comm", t->d_name);
        FILE *f = fopen(name, "r");
        if (f && fgets(comm, sizeof comm, f)) n += !strncmp(comm, "pool-", 5);
        if (f) fclose(f);
    }
    closedir(d);
    return n;
}

static struct {
    sem_t is_up;
    long locked_kb;
    int n_team;
} fence;

static int note_fence(const char *model, const char *dir, struct qn_error *e)
{
    (void)model, (void)dir, (void)e;
    fence.locked_kb = locked_kb();
    fence.n_team = count_team();
    sem_post(&fence.is_up);
    return 0;
}

static void *live(void *arg)
{
    struct qn_error e;
    stage_life_run(arg, &e);
    return NULL;
}

/* What a head with that model says to one stage. */
static struct hello greeting_of(const struct model *m, int n_threads)
{
    struct hello h;
    hello_init(&h, m, 1);
    h.n_ctx = N_CTX;
    h.n_threads = n_threads;
    runner_limits(&h.limits, m, N_CTX);
    h.limits.n_rows = 64;
    h.limits.n_seqs = h.limits.n_moves = h.limits.n_logits = h.limits.n_pages = 8;
    return h;
}

/* Packets go through a pair of ends, so the stage waits until its answer is taken. */
static void weights_are_locked_and_threads_begin_after_the_greeting(void **state)
{
    (void)state;
    atomic_bool stop = false;
    struct link *head, *stage;
    struct stage_life_params p = {.path = path,
                                  .who = "the stage",
                                  .n_local = 1,
                                  .cpu = cpu_best(),
                                  .locks_weights = true,
                                  .fence = note_fence,
                                  .stop = &stop};
    struct model *m;
    struct greeting g;
    struct qn_error e;
    pthread_t thread;
    long before = locked_kb(), last = before;
    int rc;
    sem_init(&fence.is_up, 0, 0);
    assert_int_equal(model_load(&m, path, &e), 0);
    struct hello h = greeting_of(m, 3);
    assert_int_equal(link_open_pair(&head, &stage, &e), 0);
    p.in = p.out = stage;
    assert_int_equal(greeting_init(&g, head, &h, &e), 0);
    assert_int_equal(pthread_create(&thread, NULL, live, &p), 0);
    while ((last = locked_kb(), rc = greeting_go_on(&g, &e)) == QN_EBUSY) poll(NULL, 0, 1);
    if (rc) fail_msg("%s", e.msg);
    assert_int_equal(last, before);
    sem_wait(&fence.is_up);
    if (fence.locked_kb == before) print_message("memory cannot be locked here\n");
    assert_int_equal(fence.n_team, 0);
    for (int ms = 0; count_team() < 2 && ms < LIMIT; ms++) poll(NULL, 0, 1);
    assert_int_equal(count_team(), 2);
    atomic_store(&stop, true);
    pthread_join(thread, NULL);
    greeting_deinit(&g);
    link_close(head);
    link_close(stage);
    model_free(m);
    sem_destroy(&fence.is_up);
}

static void each_stage_has_a_minute_to_get_ready(void **state)
{
    (void)state;
    struct link *head, *stage;
    struct model *m;
    struct greeting g;
    struct qn_error e;
    assert_int_equal(model_load(&m, path, &e), 0);
    struct hello h = greeting_of(m, 1);
    assert_int_equal(link_open_pair(&head, &stage, &e), 0);
    for (int n = 1; n <= 3; n++) {
        h.n_stages = n;
        assert_int_equal(greeting_init(&g, head, &h, &e), 0);
        g.begin_ns = clock_ns() - ((uint64_t)n * 60 - 10) * 1000000000;
        assert_int_equal(greeting_go_on(&g, &e), QN_EBUSY);
        g.begin_ns = clock_ns() - ((uint64_t)n * 60 + 10) * 1000000000;
        assert_int_equal(greeting_go_on(&g, &e), QN_EUNSUP);
        assert_non_null(strstr(e.msg, "were not ready within"));
        greeting_deinit(&g);
    }
    link_close(head);
    link_close(stage);
    model_free(m);
}

/* ---- what stands in for the watcher and its stages ---- */

static int connect_to(const char *address)
{
    struct sockaddr_un a = {.sun_family = AF_UNIX};
    snprintf(a.sun_path, sizeof a.sun_path, "%s", address);
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    return connect(fd, (struct sockaddr *)&a, sizeof a) ? -1 : fd;
}

/* All stages of a chain, as threads of one process. */
static void run_stages(const char *address, int n)
{
    static atomic_bool stop;
    struct link *down[2], *up[2] = {NULL}, *head;
    struct stage_life_params p[2];
    pthread_t thread;
    int fd = connect_to(address);
    if (fd < 0 || link_open_socket(&head, fd, NULL) || link_open_pair(&down[0], &down[1], NULL) ||
        link_open_pair(&up[0], &up[1], NULL))
        _exit(1);
    for (int i = 0; i < n; i++)
        p[i] = (struct stage_life_params){.path = path,
                                          .who = i ? "stage 1" : "stage 0",
                                          .number = i,
                                          .n_threads = 1,
                                          .n_local = n,
                                          .in = i ? down[1] : head,
                                          .out = n == 1 ? head
                                                 : i    ? up[0]
                                                        : down[0],
                                          .relay_from = n > 1 && !i ? up[1] : NULL,
                                          .head = i ? NULL : head,
                                          .cpu = cpu_best(),
                                          .stop = &stop};
    if (n > 1) pthread_create(&thread, NULL, live, &p[1]);
    live(&p[0]);
    _exit(1);
}

/* Comes, hears the greeting, and goes; twice. */
static void come_and_go(const char *address)
{
    for (int i = 0; i < 2; i++) {
        char bytes[HELLO_BYTES];
        size_t left = sizeof(uint64_t) + HELLO_BYTES;
        int fd = connect_to(address);
        for (ssize_t k; left; left -= (size_t)k)
            if ((k = read(fd, bytes, left < sizeof bytes ? left : sizeof bytes)) <= 0) _exit(1);
        close(fd);
    }
}

static pid_t begin(const char *how, const char *address)
{
    pid_t pid = fork();
    if (pid) return pid;
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (!strcmp(how, "gone")) come_and_go(address);
    if (!strcmp(how, "lost")) run_stages(address, 2);
    if (!strcmp(how, "alone")) run_stages(address, 1);
    for (;;) pause();
}

static void end(pid_t pid)
{
    kill(pid, SIGKILL);
    waitpid(pid, NULL, 0);
}

static void tell(char c)
{
    if (send(STDIN_FILENO, &c, 1, MSG_NOSIGNAL) != 1) _exit(1);
}

/* Runs the stages once. When the head wants them again, they do not come any more. */
static int watch(char **argv)
{
    int n = atoi(argv[3]);
    char **alone = argv + 4, **all = alone + n, c;
    const char *address = alone[3];
    path = alone[2];
    pid_t pid = begin(all[0], address);
    while (read(STDIN_FILENO, &c, 1) == 1) {
        end(pid);
        tell(WATCHER_DONE);
        pid = begin(c == WATCHER_ALONE ? "alone" : "nothing", address);
        for (int i = 0; i < 2 && c == WATCHER_ALL; i++) tell(WATCHER_ENDED);
    }
    end(pid);
    char log[600];
    snprintf(log, sizeof log, "%s/log", argv[2]);
    unlink(log);
    unlink(address);
    rmdir(argv[2]);
    return 0;
}

/* ---- groups ---- */

struct body {
    struct group *group;
    qn_model *model;
    qn_engine *engine;
    qn_scheduler *scheduler;
};

/* Returns what group_engine() or group_attach() says. */
static int body_open(struct body *b, const char *how, struct qn_error *e)
{
    char own[1024];
    struct qn_engine_params q;
    struct group_params p = {.program = own, .path = path, .hosts = "localhost:2", .command = how};
    own[readlink("/proc/self/exe", own, sizeof own - 1)] = '\0';
    qn_engine_params_init(&q);
    q.n_ctx = N_CTX;
    q.n_batch = 64;
    q.memory_bytes = (uint64_t)1 << 30;
    *b = (struct body){0};
    if (group_start(&b->group, &p, e) || qn_model_open(&b->model, path, e)) fail_msg("%s", e->msg);
    int rc = group_engine(b->group, &b->engine, b->model, &q, e);
    if (rc) return rc;
    if (qn_scheduler_new(&b->scheduler, b->engine, NULL, e)) fail_msg("%s", e->msg);
    return group_attach(b->group, b->scheduler, e);
}

static void body_close(struct body *b)
{
    qn_scheduler_free(b->scheduler);
    qn_engine_free(b->engine);
    qn_model_close(b->model);
    group_free(b->group);
}

static void a_group_that_falls_back_has_one_stage(void **state)
{
    (void)state;
    struct body b;
    struct qn_error e;
    int rc = body_open(&b, "lost", &e);
    if (rc) fail_msg("%s", e.msg);
    const struct stage *s = b.engine->stage;
    assert_int_equal(s->n_stages, 2);
    for (int ms = 0; (rc = s->ops->mend(s->arg, &e)) == QN_EBUSY && ms < LIMIT; ms++) poll(NULL, 0, 1);
    if (rc) fail_msg("%s", e.msg);
    assert_int_equal(s->n_stages, 1);
    body_close(&b);
}

static void stages_that_go_while_they_are_greeted_have_failed(void **state)
{
    (void)state;
    struct body b;
    struct qn_error e;
    assert_int_equal(body_open(&b, "gone", &e), QN_EIO);
    assert_non_null(strstr(e.msg, "have gone before they were ready"));
    body_close(&b);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(weights_are_locked_and_threads_begin_after_the_greeting),
        cmocka_unit_test(each_stage_has_a_minute_to_get_ready),
        cmocka_unit_test(a_group_that_falls_back_has_one_stage),
        cmocka_unit_test(stages_that_go_while_they_are_greeted_have_failed),
    };
    if (argc > 5 && !strcmp(argv[1], "watch")) return watch(argv);
    path = argv[1];
    return cmocka_run_group_tests(tests, NULL, NULL);
}
