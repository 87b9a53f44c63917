/* SPDX-License-Identifier: MIT
 *
 * test_disk.c: the scheduler beside a disk that is slow or stands still: who waits for it, and what gets onto it.
 *
 *     test_disk MODEL
 *
 * fsync() and pread() of this program pass a gate. While it is closed the disk does nothing; whatever has come to its
 * end by then did not wait for it.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <dirent.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <quern.h>

#include "base/os.h"
#include "base/rng.h"

#define N_CTX 320 /* 5 pages */
#define LIMIT 100 /* seconds for anything */

static qn_model *model;
static struct qn_error e;
static char dir[] = "test_disk_XXXXXX";

#define OK(call)                                                                                                       \
    do {                                                                                                               \
        if (call) fail_msg("line %d: '%s'", __LINE__, e.msg);                                                          \
    } while (0)

static void nap(void) { nanosleep(&(struct timespec){.tv_nsec = 200000}, NULL); }

/* ---- the disk ---- */

struct gate {
    atomic_bool is_closed;
    atomic_int n_waiting, n_passed;
};
static struct gate syncs, reads;

static void pass(struct gate *g)
{
    g->n_waiting++;
    while (g->is_closed) nap();
    g->n_waiting--;
    g->n_passed++;
}

int fsync(int fd)
{
    pass(&syncs);
    return (int)syscall(SYS_fsync, fd);
}

ssize_t pread(int fd, void *p, size_t n, off_t at)
{
    pass(&reads);
    return syscall(SYS_pread64, fd, p, n, at);
}

static void wait_until_at(const struct gate *g)
{
    uint64_t end = clock_ns() + (uint64_t)LIMIT * 1000000000;
    while (!g->n_waiting && clock_ns() < end) nap();
    assert_true(g->n_waiting > 0);
}

/* ---- requests ---- */

struct record {
    atomic_int n, n_done;
    qn_token token[N_CTX];
    enum qn_finish finish;
    struct qn_usage usage;
    char miss[16];
    uint64_t id;
};

static void told(void *arg, const struct qn_event *ev)
{
    struct record *r = arg;
    if (ev->type == QN_EVENT_TOKEN) {
        r->token[r->n] = ev->token;
        r->n++;
    }
    if (ev->type != QN_EVENT_DONE) return;
    r->finish = ev->finish;
    r->usage = ev->usage;
    snprintf(r->miss, sizeof r->miss, "%s", ev->timings.miss ? ev->timings.miss : "");
    r->n_done++;
}

/* The which-th conversation: n tokens and an answer of max_tokens. */
static void submit(qn_scheduler *s, struct record *r, int which, int n, int max_tokens)
{
    qn_token prompt[N_CTX];
    struct qn_request_params p;
    qn_request_params_init(&p);
    for (int i = 0; i < n; i++)
        prompt[i] = (qn_token)(rng_u64(3, (uint64_t)which, (uint64_t)i) % (uint64_t)qn_model_n_vocab(model));
    p.prompt = prompt;
    p.n_prompt = (size_t)n;
    const int last_but_one = n - 1; /* where a state is kept, of models that have one */
    p.boundaries = &last_but_one;
    p.n_boundaries = 1;
    p.max_tokens = max_tokens;
    p.ignore_eog = true;
    p.sampling.temperature = 0;
    p.identity = p.salt[0] = (uint64_t)which % 2;
    p.callback = told;
    p.arg = r;
    *r = (struct record){0};
    OK(qn_submit(s, &p, &r->id, NULL, &e));
}

static void wait_for_tokens(const struct record *r, int n)
{
    uint64_t end = clock_ns() + (uint64_t)LIMIT * 1000000000;
    while (r->n < n && clock_ns() < end) nap();
}

static void wait_for(const struct record *r)
{
    uint64_t end = clock_ns() + (uint64_t)LIMIT * 1000000000;
    while (!r->n_done && clock_ns() < end) nap();
    assert_int_equal(r->n_done, 1);
}

static void ask(qn_scheduler *s, struct record *r, int which, int n, int max_tokens)
{
    submit(s, r, which, n, max_tokens);
    wait_for(r);
    assert_int_equal(r->finish, QN_FINISH_LENGTH);
}

struct daemon {
    qn_engine *g;
    qn_scheduler *s;
};

static void start_with(struct daemon *d, int n_sessions, bool reads_ahead)
{
    struct qn_engine_params gp;
    struct qn_scheduler_params p;
    qn_engine_params_init(&gp);
    qn_scheduler_params_init(&p);
    gp.n_threads = 1;
    gp.n_ctx = N_CTX;
    gp.n_sessions = n_sessions;
    p.n_running = 4;
    p.cache_dir = dir;
    p.cache_bytes = 64 << 20;
    p.reads_ahead = reads_ahead;
    OK(qn_engine_new(&d->g, model, &gp, &e));
    OK(qn_scheduler_new(&d->s, d->g, &p, &e));
}

static void start(struct daemon *d, int n_sessions) { start_with(d, n_sessions, false); }

static void end(struct daemon *d)
{
    qn_scheduler_free(d->s);
    qn_engine_free(d->g);
}

static int empty_dir(void **state)
{
    char command[64];
    (void)state;
    syncs.is_closed = reads.is_closed = false;
    snprintf(command, sizeof command, "rm -rf %s", dir);
    return system(command);
}

/* ---- who waits ---- */

static void saving_holds_up_nobody(void **state)
{
    struct daemon d;
    struct record a, b;
    (void)state;
    start(&d, 4);
    syncs.is_closed = true;
    ask(d.s, &a, 1, 100, 4);
    wait_until_at(&syncs);
    for (int i = 2; i < 6; i++) ask(d.s, &b, i, 100, 4);
    assert_true(syncs.n_waiting > 0); /* still the same file */
    syncs.is_closed = false;
    end(&d);
    start(&d, 4); /* all of them were written then */
    for (int i = 1; i < 6; i++) {
        ask(d.s, &b, i, 100, 4);
        assert_int_equal(b.usage.n_cached, 99);
    }
    end(&d);
}

static void restoring_stops_no_stream(void **state)
{
    struct daemon d;
    struct record first, stream, again;
    (void)state;
    start(&d, 4);
    ask(d.s, &first, 1, 200, 8);
    end(&d);
    start(&d, 4);
    reads.is_closed = true;
    submit(d.s, &again, 1, 200, 8);
    wait_until_at(&reads);
    ask(d.s, &stream, 2, 150, 100);
    assert_true(reads.n_waiting > 0 && !again.n_done);
    reads.is_closed = false;
    wait_for(&again);
    assert_int_equal(again.usage.n_cached, 199);
    assert_memory_equal(again.token, first.token, sizeof again.token);
    assert_string_equal(again.miss, "");
    end(&d);
}

/* Who gives up while his prompt is read does not wait for the disk; the pages come back when it has answered. */
static void who_leaves_does_not_wait(void **state)
{
    struct daemon d;
    struct record r;
    (void)state;
    start(&d, 4);
    ask(d.s, &r, 1, 200, 8);
    end(&d);
    start(&d, 1); /* all pages are the request's */
    reads.is_closed = true;
    submit(d.s, &r, 1, 200, 100);
    wait_until_at(&reads);
    assert_true(qn_cancel(d.s, r.id));
    wait_for(&r);
    assert_int_equal(r.finish, QN_FINISH_CANCELLED);
    assert_true(reads.n_waiting > 0);
    submit(d.s, &r, 3, 10, 300); /* waits for the pages */
    for (int i = 0; i < 100; i++) nap();
    assert_false(r.n_done);
    reads.is_closed = false;
    wait_for(&r);
    assert_int_equal(r.finish, QN_FINISH_LENGTH);
    ask(d.s, &r, 1, 200, 8);
    assert_int_equal(r.usage.n_cached, 199);
    end(&d);
}

/* A scheduler without requests touches the memory that what is on disk will take, and reads nothing. */
static void memory_is_touched_while_nothing_runs(void **state)
{
    struct qn_scheduler_stats st = {.size = sizeof st};
    struct daemon d;
    struct record r;
    (void)state;
    start(&d, 4);
    ask(d.s, &r, 1, 200, 8);
    end(&d);
    start(&d, 4);
    int n_passed = reads.n_passed;
    uint64_t limit = clock_ns() + (uint64_t)LIMIT * 1000000000;
    do {
        nap();
        assert_int_equal(qn_scheduler_stats(d.s, &st), 0);
    } while (st.kv_touched_bytes < 4 * (st.kv_bytes / (uint64_t)st.n_pages) && clock_ns() < limit);
    assert_int_equal(st.kv_touched_bytes, 4 * (st.kv_bytes / (uint64_t)st.n_pages));
    assert_int_equal(st.n_pages_cached, 0);
    assert_int_equal(reads.n_passed, n_passed);
    ask(d.s, &r, 1, 200, 8);
    assert_int_equal(r.usage.n_cached, 199);
    end(&d);
}

static void *open_later(void *arg)
{
    for (int i = 0; i < 500; i++) nap();
    ((struct gate *)arg)->is_closed = false;
    return NULL;
}

static size_t list_of(qn_scheduler *s, uint64_t identity, struct qn_cached **list)
{
    size_t n = 0;
    OK(qn_cache_list(s, identity, list, &n, &e));
    return n;
}

/* Waits until what identity 1 has is as much in memory as on disk. */
static void wait_until_in_both(qn_scheduler *s)
{
    struct qn_cached *l;
    for (int i = 0; i < 100000; i++) {
        size_t n = list_of(s, 1, &l);
        bool saved = n > 0;
        for (size_t k = 0; k < n; k++) saved &= l[k].disk_bytes == l[k].memory_bytes;
        qn_free(l);
        if (saved) return;
        nap();
    }
    fail_msg("never in both");
}

/* A scheduler that reads ahead has the pages in memory before they are asked for. */
static void pages_are_read_ahead(void **state)
{
    struct qn_scheduler_stats st = {.size = sizeof st};
    struct daemon d;
    struct record r;
    (void)state;
    start(&d, 4);
    ask(d.s, &r, 1, 200, 8);
    end(&d);
    start_with(&d, 4, true);
    wait_until_in_both(d.s);
    assert_int_equal(qn_scheduler_stats(d.s, &st), 0);
    assert_int_equal(st.n_pages_cached, 4);
    int n_passed = reads.n_passed;
    ask(d.s, &r, 1, 200, 8);
    assert_int_equal(r.usage.n_cached, 199);
    assert_int_equal(reads.n_passed, n_passed);
    end(&d);
}

/* A request, and the end, do not wait for ever for what is being read ahead; a request may want the same pages. */
static void reading_ahead_holds_up_nobody(void **state)
{
    struct daemon d;
    struct record r;
    pthread_t opener;
    (void)state;
    start(&d, 4);
    ask(d.s, &r, 1, 200, 8);
    end(&d);
    start_with(&d, 4, true);
    reads.is_closed = true;
    ask(d.s, &r, 2, 100, 8); /* needs nothing from disk */
    assert_int_equal(pthread_create(&opener, NULL, open_later, &reads), 0);
    ask(d.s, &r, 1, 200, 8);
    assert_int_equal(r.usage.n_cached, 199);
    pthread_join(opener, NULL);
    end(&d);
    start_with(&d, 4, true);
    reads.is_closed = true;
    assert_int_equal(pthread_create(&opener, NULL, open_later, &reads), 0);
    end(&d);
    pthread_join(opener, NULL);
}

static void stopping_waits_for_what_is_written(void **state)
{
    struct daemon d;
    struct record r;
    pthread_t opener;
    (void)state;
    start(&d, 4);
    syncs.is_closed = true;
    ask(d.s, &r, 1, 100, 4);
    wait_until_at(&syncs);
    assert_int_equal(pthread_create(&opener, NULL, open_later, &syncs), 0);
    end(&d);
    pthread_join(opener, NULL);
    start(&d, 4);
    reads.is_closed = true; /* and ends whom it reads for */
    submit(d.s, &r, 1, 100, 4);
    wait_until_at(&reads);
    assert_int_equal(pthread_create(&opener, NULL, open_later, &reads), 0);
    end(&d);
    pthread_join(opener, NULL);
    assert_int_equal(r.n_done, 1);
    assert_int_equal(r.finish, QN_FINISH_STOPPED);
    start(&d, 4);
    ask(d.s, &r, 1, 100, 4);
    assert_int_equal(r.usage.n_cached, 99);
    end(&d);
}

/* ---- what gets there ---- */

/* Two conversations end at the same time and fill the pool; the next request wants all of it. One of the two is being
 * written, the other is not on disk yet. */
static void evicted_pages_are_on_disk(void **state)
{
    struct daemon d;
    struct record a, b, c;
    (void)state;
    for (int again = 0; again < 3; again++) {
        start(&d, 1);
        syncs.is_closed = true;
        submit(d.s, &a, 1, 100, 4);
        submit(d.s, &b, 2, 100, 4);
        wait_for(&a);
        wait_for(&b);
        submit(d.s, &c, 3, 10, 310);
        wait_for_tokens(&c, 64 - 10 + 1);
        for (int i = 0; i < 200; i++) nap();
        assert_false(c.n_done); /* waits for the disk, as soon as the only free page is full */
        assert_int_equal(c.n, 64 - 10 + 1);
        syncs.is_closed = false;
        wait_for(&c);
        end(&d);
        start(&d, 4);
        ask(d.s, &a, 1, 100, 4);
        ask(d.s, &b, 2, 100, 4);
        assert_int_equal(a.usage.n_cached, 99);
        assert_int_equal(b.usage.n_cached, 99);
        end(&d);
        empty_dir(NULL);
    }
}

/* Changes the last byte of the which-th file; false: there are not so many. */
static bool damage(int which)
{
    char path[400];
    struct stat st;
    DIR *all = opendir(dir);
    assert_non_null(all);
    for (const struct dirent *x; which >= 0 && (x = readdir(all));)
        if (strstr(x->d_name, ".kv") && which-- == 0) snprintf(path, sizeof path, "%s/%s", dir, x->d_name);
    closedir(all);
    if (which >= 0) return false;
    int fd = open(path, O_RDWR);
    uint8_t byte;
    assert_true(fd >= 0 && !fstat(fd, &st));
    assert_int_equal(pread(fd, &byte, 1, st.st_size - 1), 1);
    byte ^= 1;
    assert_int_equal(pwrite(fd, &byte, 1, st.st_size - 1), 1);
    close(fd);
    return true;
}

/* Who wants what turns out to be damaged is answered all the same, and the next one has it again. */
static void damage_costs_time_only(void **state)
{
    struct daemon d;
    struct record first, r;
    int which = 0;
    (void)state;
    for (;; which++) {
        empty_dir(NULL);
        start(&d, 4);
        ask(d.s, &first, 1, 200, 8);
        end(&d);
        if (!damage(which)) break;
        start(&d, 4);
        for (int i = 0; i < 2; i++) {
            ask(d.s, &r, 1, 200, 8);
            assert_memory_equal(r.token, first.token, sizeof r.token);
        }
        assert_int_equal(r.usage.n_cached, 199);
        end(&d);
        start(&d, 4);
        ask(d.s, &r, 1, 200, 8);
        assert_int_equal(r.usage.n_cached, 199);
        end(&d);
    }
    assert_true(which >= 1);
}

/* ---- whose it is ---- */

static void one_sees_ones_own(void **state)
{
    struct daemon d;
    struct record r;
    struct qn_cached *l;
    size_t n;
    (void)state;
    start(&d, 4);
    assert_int_equal(list_of(d.s, 1, &l), 0);
    qn_free(l);
    ask(d.s, &r, 1, 100, 4);
    ask(d.s, &r, 2, 150, 4);
    ask(d.s, &r, 3, 200, 4);
    ask(d.s, &r, 3, 210, 4); /* it differs where the answer was */
    wait_until_in_both(d.s);
    assert_int_equal(list_of(d.s, 1, &l), 3);
    struct qn_scheduler_stats st = {.size = sizeof st};
    qn_scheduler_stats(d.s, &st);
    uint64_t page = st.kv_bytes / (uint64_t)st.n_pages, id = l[1].id;
    uint64_t copy = st.n_states ? st.state_bytes / (uint64_t)st.n_states : 0;
    /* Copies of states are at the last but one token of the prompt, behind the answer, and where the second one with
     * the same beginning left the first one's, of which it is. */
    static const int tokens[] = {213, 203, 103}, states[] = {2, 3, 2};
    uint64_t memory = 0;
    for (int i = 0; i < 3; i++) {
        assert_int_equal(l[i].n_tokens, tokens[i]);
        assert_int_equal(l[i].memory_bytes, page * (uint64_t)((tokens[i] + 63) / 64) + copy * (uint64_t)states[i]);
        assert_int_equal(l[i].disk_bytes, l[i].memory_bytes);
        assert_true(l[i].id && l[i].idle_s >= (i ? l[i - 1].idle_s : 0) && l[i].idle_s < LIMIT);
        memory += l[i].memory_part_bytes;
        assert_int_equal(l[i].disk_part_bytes, l[i].memory_part_bytes);
    }
    assert_int_equal(memory, 7 * page + 7 * copy); /* the two that begin alike share three pages */
    qn_free(l);
    OK(qn_cache_drop(d.s, 0, id, &n, &e)); /* it is not his */
    assert_int_equal(n, 0);
    OK(qn_cache_drop(d.s, 1, id, &n, &e));
    assert_int_equal(n, 1);
    assert_int_equal(list_of(d.s, 1, &l), 2);
    assert_true(l[0].id != id && l[1].id != id);
    assert_int_equal(l[0].n_tokens, 213);
    qn_free(l);
    end(&d);

    start(&d, 4);
    assert_int_equal(list_of(d.s, 1, &l), 2);
    assert_true(l[0].idle_s < 0 && l[0].memory_bytes == 0 && l[0].disk_bytes >= 2 * page);
    qn_free(l);
    ask(d.s, &r, 3, 210, 4);
    assert_int_equal(r.usage.n_cached,
                     209); /* what the dropped one shared with it was in its file, and is written again */
    OK(qn_cache_drop(d.s, 1, 0, &n, &e));
    assert_int_equal(n, 2);
    assert_int_equal(list_of(d.s, 0, &l), 1);
    qn_free(l);
    ask(d.s, &r, 3, 200, 4);
    assert_int_equal(r.usage.n_cached, 0);
    OK(qn_cache_drop(d.s, 1, 0, &n, &e));
    end(&d);

    start(&d, 4);
    assert_int_equal(list_of(d.s, 1, &l), 0);
    qn_free(l);
    ask(d.s, &r, 2, 150, 4);
    assert_int_equal(r.usage.n_cached, 149);
    qn_scheduler_stop(d.s, 0);
    assert_int_equal(qn_cache_list(d.s, 1, &l, &n, &e), QN_ECANCEL);
    assert_int_equal(qn_cache_drop(d.s, 1, 0, &n, &e), QN_ECANCEL);
    end(&d);
}

/* Files are deleted by their owner, also where sequences share pages; what is not a file of the cache stays. */
static void dropped_without_a_scheduler(void **state)
{
    static const char zeros[200];
    struct daemon d;
    struct record r;
    struct qn_cached *l;
    size_t n = 9;
    char name[128];
    (void)state;
    assert_int_equal(qn_cache_drop_files("/nothing/there", 1, &n, &e), 0);
    assert_int_equal(n, 0);
    start(&d, 4);
    ask(d.s, &r, 1, 100, 4);
    ask(d.s, &r, 2, 150, 4);
    ask(d.s, &r, 3, 200, 4);
    wait_until_in_both(d.s);
    ask(d.s, &r, 3, 300, 4); /* it goes on where a file ends */
    ask(d.s, &r, 3, 210, 4); /* it leaves both */
    wait_until_in_both(d.s);
    size_t n_listed = (size_t)list_of(d.s, 1, &l);
    qn_free(l);
    assert_int_equal(qn_cache_drop_files(dir, 1, &n, &e), QN_EBUSY);
    assert_int_equal(list_of(d.s, 1, &l), n_listed);
    qn_free(l);
    end(&d);
    snprintf(name, sizeof name, "%s/0123456789abcdef.kv", dir);
    FILE *f = fopen(name, "w"); /* no such file, but with a name of one */
    assert_non_null(f);
    assert_int_equal(fwrite(zeros, 1, sizeof zeros, f), sizeof zeros);
    fclose(f);
    OK(qn_cache_drop_files(dir, 7, &n, &e));
    assert_int_equal(n, 0);
    OK(qn_cache_drop_files(dir, 1, &n, &e));
    assert_int_equal(n, n_listed);
    OK(qn_cache_drop_files(dir, 1, &n, &e));
    assert_int_equal(n, 0);
    assert_int_equal(access(name, F_OK), 0);
    start(&d, 4);
    assert_int_equal(list_of(d.s, 1, &l), 0);
    qn_free(l);
    ask(d.s, &r, 2, 150, 4);
    assert_int_equal(r.usage.n_cached, 149);
    end(&d);
}

/* A conversation keeps its number while it grows; what is dropped while it is written does not come back. */
static void dropped_while_it_is_written(void **state)
{
    struct daemon d;
    struct record r;
    struct qn_cached *l;
    size_t n;
    (void)state;
    start(&d, 4);
    syncs.is_closed = true;
    ask(d.s, &r, 1, 100, 4);
    wait_until_at(&syncs);
    assert_int_equal(list_of(d.s, 1, &l), 1);
    uint64_t id = l[0].id;
    qn_free(l);
    OK(qn_cache_drop(d.s, 1, id, &n, &e));
    assert_int_equal(n, 1);
    syncs.is_closed = false;
    end(&d);
    start(&d, 4);
    assert_int_equal(list_of(d.s, 1, &l), 0);
    qn_free(l);
    end(&d);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(saving_holds_up_nobody, empty_dir),
        cmocka_unit_test_setup(restoring_stops_no_stream, empty_dir),
        cmocka_unit_test_setup(who_leaves_does_not_wait, empty_dir),
        cmocka_unit_test_setup(memory_is_touched_while_nothing_runs, empty_dir),
        cmocka_unit_test_setup(pages_are_read_ahead, empty_dir),
        cmocka_unit_test_setup(reading_ahead_holds_up_nobody, empty_dir),
        cmocka_unit_test_setup(stopping_waits_for_what_is_written, empty_dir),
        cmocka_unit_test_setup(evicted_pages_are_on_disk, empty_dir),
        cmocka_unit_test_setup(damage_costs_time_only, empty_dir),
        cmocka_unit_test_setup(one_sees_ones_own, empty_dir),
        cmocka_unit_test_setup(dropped_while_it_is_written, empty_dir),
        cmocka_unit_test_setup(dropped_without_a_scheduler, empty_dir),
    };
    bool is_called = argc == 2 || argc == 3;
    if (!is_called || qn_model_open(&model, argv[1], &e)) {
        fprintf(stderr, "test_disk: %s\n", is_called ? e.msg : "MODEL [PATTERN]");
        return 2;
    }
    if (argc == 3) cmocka_set_test_filter(argv[2]);
    if (!mkdtemp(dir)) return 1;
    int rc = cmocka_run_group_tests(tests, NULL, NULL);
    empty_dir(NULL);
    qn_model_close(model);
    return rc;
}
