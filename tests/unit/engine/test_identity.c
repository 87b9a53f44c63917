/* SPDX-License-Identifier: MIT
 *
 * test_identity.c: whose a cached prefix is, and which model's: what is looked for is met by nobody else, what is on
 * disk by no other model, and a model whose file changes while it is in use is not read on.
 *
 *     test_identity MODEL
 *
 * Whether something was found is told by counts of tokens, not by a clock.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <dirent.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include <quern.h>

#include "base/os.h"
#include "engine/engine.h"

#define N_PROMPT 150
#define LIMIT    60                 /* seconds for anything */
#define LARGE    ((off_t)300 << 20) /* more than is hashed at once */

static const char *original;
static char home[] = "/tmp/test_identity_XXXXXX", model_path[64], copy_path[64], cache[64], hashes[64];
static struct qn_error e;

#define OK(call)                                                                                                       \
    do {                                                                                                               \
        if (call) fail_msg("line %d: '%s'", __LINE__, e.msg);                                                          \
    } while (0)

static void shell(const char *form, const char *a, const char *b)
{
    char command[300];
    snprintf(command, sizeof command, form, a, b);
    if (system(command)) fail_msg("%s", command);
}

/* ---- a daemon ---- */

struct daemon {
    qn_model *model;
    qn_engine *g;
    qn_scheduler *s;
};

static void start_with(struct daemon *d, const char *path, enum qn_kv kv, const char *dir)
{
    struct qn_engine_params gp;
    struct qn_scheduler_params p;
    qn_engine_params_init(&gp);
    qn_scheduler_params_init(&p);
    gp.n_threads = 1;
    gp.n_ctx = 256;
    gp.n_sessions = 3;
    gp.kv = kv;
    p.n_running = 2;
    p.cache_dir = dir;
    p.cache_bytes = 64 << 20;
    p.hash_dir = hashes;
    OK(qn_model_open(&d->model, path, &e));
    OK(qn_engine_new(&d->g, d->model, &gp, &e));
    OK(qn_scheduler_new(&d->s, d->g, &p, &e));
}

static void start(struct daemon *d, const char *path) { start_with(d, path, QN_KV_F16, cache); }

static void end(struct daemon *d)
{
    qn_scheduler_free(d->s);
    qn_engine_free(d->g);
    qn_model_close(d->model);
}

struct record {
    atomic_int n, n_done;
    enum qn_finish finish;
    struct qn_usage usage;
    char miss[16], error[500];
};

static void told(void *arg, const struct qn_event *ev)
{
    struct record *r = arg;
    r->n += ev->type == QN_EVENT_TOKEN;
    if (ev->type != QN_EVENT_DONE) return;
    r->finish = ev->finish;
    r->usage = ev->usage;
    snprintf(r->miss, sizeof r->miss, "%s", ev->timings.miss ? ev->timings.miss : "");
    snprintf(r->error, sizeof r->error, "%s", ev->error ? ev->error->msg : "");
    r->n_done++;
}

static int submit(struct daemon *d, struct record *r, uint64_t identity, uint64_t salt, int max_tokens)
{
    qn_token prompt[N_PROMPT];
    struct qn_request_params p;
    qn_request_params_init(&p);
    for (int i = 0; i < N_PROMPT; i++) prompt[i] = 3 + i;
    p.prompt = prompt;
    p.n_prompt = N_PROMPT;
    p.max_tokens = max_tokens;
    p.ignore_eog = true;
    p.sampling.temperature = 0;
    p.identity = identity;
    p.salt[0] = p.salt[1] = salt;
    p.callback = told;
    p.arg = r;
    *r = (struct record){0};
    return qn_submit(d->s, &p, NULL, NULL, &e);
}

static void nap(void) { nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL); }

static void wait_for(const struct record *r)
{
    uint64_t until = clock_ns() + (uint64_t)LIMIT * 1000000000;
    while (!r->n_done && clock_ns() < until) nap();
    assert_int_equal(r->n_done, 1);
}

/* Tokens of the prompt that came from the cache; *n_computed: those that were computed. */
static int ask_of(struct daemon *d, uint64_t identity, uint64_t salt, int *n_computed, char miss[16])
{
    struct record r;
    struct qn_scheduler_stats before = {.size = sizeof before}, after = before;
    qn_scheduler_stats(d->s, &before);
    OK(submit(d, &r, identity, salt, 2));
    wait_for(&r);
    assert_int_equal(r.finish, QN_FINISH_LENGTH);
    qn_scheduler_stats(d->s, &after);
    *n_computed = (int)(after.n_prefill_rows - before.n_prefill_rows);
    memcpy(miss, r.miss, sizeof r.miss);
    return r.usage.n_cached;
}

static int ask(struct daemon *d)
{
    int n_computed;
    char miss[16];
    return ask_of(d, 1, 1, &n_computed, miss);
}

static int empty(void **state)
{
    (void)state;
    shell("rm -rf %s/*; mkdir %s/hashes", home, home);
    shell("cp %s %s", original, model_path);
    return 0;
}

/* Pages in the directory. */
static int n_stored(void)
{
    int n = 0;
    DIR *d = opendir(cache);
    if (!d) return 0;
    for (const struct dirent *x; (x = readdir(d));) n += strstr(x->d_name, ".kv") != NULL;
    closedir(d);
    return n;
}

/* Another byte, at two thirds of the file: in a large tensor, and where a sample of each would not look. */
static void damage(const char *path)
{
    struct stat st;
    uint8_t byte;
    int fd = open(path, O_RDWR);
    assert_true(fd >= 0 && fstat(fd, &st) == 0);
    assert_int_equal(pread(fd, &byte, 1, st.st_size / 3 * 2), 1);
    byte ^= 0x15;
    assert_int_equal(pwrite(fd, &byte, 1, st.st_size / 3 * 2), 1);
    close(fd);
}

/* ---- whose ---- */

/* Who knows another's salt, or has found one that is as good, learns nothing: it is as if nothing had been stored. */
static void a_forged_salt_meets_nothing(void **state)
{
    (void)state;
    for (int has_disk = 0; has_disk < 2; has_disk++) {
        struct daemon d;
        int n_computed, n_other;
        char miss[16];
        start_with(&d, model_path, QN_KV_F16, has_disk ? cache : NULL);
        assert_int_equal(ask_of(&d, 1, 7, &n_computed, miss), 0);
        assert_string_equal(miss, "nothing");
        assert_int_equal(ask_of(&d, 2, 7, &n_other, miss), 0);
        assert_string_equal(miss, "nothing");
        assert_int_equal(n_other, n_computed); /* the time it takes is the same */
        assert_int_equal(ask_of(&d, 1, 8, &n_other, miss), 0);
        assert_int_equal(n_other, n_computed);
        assert_int_equal(ask_of(&d, 1, 7, &n_other, miss), N_PROMPT - 1);
        assert_int_equal(ask_of(&d, 2, 7, &n_other, miss), N_PROMPT - 1); /* each its own */
        end(&d);
        start_with(&d, model_path, QN_KV_F16, has_disk ? cache : NULL);
        assert_int_equal(ask_of(&d, 3, 7, &n_other, miss), 0); /* on disk too */
        assert_string_equal(miss, "nothing");
        assert_int_equal(n_other, n_computed);
        assert_int_equal(ask_of(&d, 2, 7, &n_other, miss), has_disk ? N_PROMPT - 1 : 0);
        end(&d);
    }
}

/* The words of the keys are other ones in each directory. */
static void keys_depend_on_the_secret(void **state)
{
    (void)state;
    struct daemon d;
    char secret[100];
    start(&d, model_path);
    ask(&d);
    end(&d);
    start(&d, model_path);
    assert_int_equal(ask(&d), N_PROMPT - 1);
    end(&d);
    snprintf(secret, sizeof secret, "%s/secret", cache);
    assert_int_equal(unlink(secret), 0);
    start(&d, model_path);
    assert_int_equal(ask(&d), 0);
    end(&d);
}

/* ---- which model's ---- */

static void a_repaired_file_is_another_model(void **state)
{
    (void)state;
    struct daemon d;
    shell("cp %s %s", model_path, copy_path);
    damage(model_path);
    start(&d, model_path);
    assert_int_equal(ask(&d), 0);
    end(&d);
    assert_true(n_stored() > 0);
    shell("mv %s %s", copy_path, model_path);
    start(&d, model_path);
    assert_int_equal(ask(&d), 0); /* of the damaged one's pages none */
    end(&d);
    start(&d, model_path);
    assert_int_equal(ask(&d), N_PROMPT - 1);
    end(&d);
    damage(model_path); /* as it was at first: that one's pages are there still */
    start(&d, model_path);
    assert_int_equal(ask(&d), N_PROMPT - 1);
    end(&d);
}

static void a_touched_or_copied_file_is_the_same_model(void **state)
{
    (void)state;
    struct daemon d;
    start(&d, model_path);
    assert_int_equal(ask(&d), 0);
    end(&d);
    const struct timespec times[2] = {{1000000000, 1}, {1000000000, 2}};
    assert_int_equal(utimensat(AT_FDCWD, model_path, times, 0), 0);
    start(&d, model_path);
    assert_int_equal(ask(&d), N_PROMPT - 1);
    end(&d);
    shell("cp %s %s", model_path, copy_path);
    start(&d, copy_path);
    assert_int_equal(ask(&d), N_PROMPT - 1);
    end(&d);
}

static void other_settings_are_another_model(void **state)
{
    (void)state;
    struct daemon d;
    start(&d, model_path);
    assert_int_equal(ask(&d), 0);
    end(&d);
    start_with(&d, model_path, QN_KV_F32, cache);
    assert_int_equal(ask(&d), 0);
    end(&d);
    start(&d, model_path);
    assert_int_equal(ask(&d), N_PROMPT - 1);
    end(&d);
}

/* LongRoPE has two tables of frequencies; which one is used depends on the length of the context. Here both are that of
 * the model, and only the choice is made. */
static void start_long(struct daemon *d, enum rope_scaling scaling, int n_ctx)
{
    struct qn_engine_params gp;
    struct qn_scheduler_params p;
    qn_engine_params_init(&gp);
    qn_scheduler_params_init(&p);
    gp.n_threads = 1;
    gp.n_ctx = n_ctx;
    p.cache_dir = cache;
    p.cache_bytes = 64 << 20;
    p.hash_dir = hashes;
    OK(qn_model_open(&d->model, model_path, &e));
    struct hparams *h = &((struct model *)d->model->model)->hp;
    h->rope_scaling = scaling;
    h->rope_ctx_orig = 200;
    OK(qn_engine_new(&d->g, d->model, &gp, &e));
    OK(qn_scheduler_new(&d->s, d->g, &p, &e));
}

static void the_other_table_of_longrope_is_another_model(void **state)
{
    (void)state;
    static const struct {
        enum rope_scaling scaling;
        int n_ctx;
        bool is_found;
    } starts[] = {{ROPE_LONG, 192, false}, {ROPE_LONG, 200, true}, {ROPE_LONG, 256, false},
                  {ROPE_LONG, 192, true},  {ROPE_LONG, 320, true}, {ROPE_NONE, 256, true}};
    for (size_t i = 0; i < sizeof starts / sizeof *starts; i++) {
        struct daemon d;
        start_long(&d, starts[i].scaling, starts[i].n_ctx);
        assert_int_equal(ask(&d), starts[i].is_found ? N_PROMPT - 1 : 0);
        end(&d);
    }
}

/* ---- until it is known ---- */

/* It is as long as a large one: nothing is read or written until it was hashed, and memory does not wait. */
static void the_disk_waits_until_a_large_file_is_known(void **state)
{
    (void)state;
    struct daemon d;
    uint64_t until = clock_ns() + (uint64_t)LIMIT * 1000000000;
    assert_int_equal(truncate(model_path, LARGE), 0);
    start(&d, model_path);
    assert_int_equal(ask(&d), 0);
    assert_int_equal(ask(&d), N_PROMPT - 1);
    while (!n_stored() && clock_ns() < until) nap();
    assert_true(n_stored() > 0); /* by itself: nobody asked for anything meanwhile */
    end(&d);
    start(&d, model_path); /* remembered: at once */
    assert_int_equal(ask(&d), N_PROMPT - 1);
    end(&d);
    shell("mv %s/hash-* %s", cache, hashes); /* in the other folder */
    start(&d, model_path);
    assert_int_equal(ask(&d), N_PROMPT - 1);
    end(&d);
    shell("rm %s/hash-*; sleep 0.1 # %s", hashes, "");
    start(&d, model_path); /* known anew: what is on disk is found then */
    until = clock_ns() + (uint64_t)LIMIT * 1000000000;
    struct record r;
    do {
        OK(submit(&d, &r, 5, clock_ns(), 1));
        wait_for(&r);
        struct qn_scheduler_stats s = {.size = sizeof s};
        qn_scheduler_stats(d.s, &s);
        if (s.cache_disk_bytes) break;
    } while (clock_ns() < until);
    assert_int_equal(ask(&d), N_PROMPT - 1);
    end(&d);
}

/* The end does not wait for the hash. */
static void the_end_comes_before_the_hash(void **state)
{
    (void)state;
    struct daemon d;
    assert_int_equal(truncate(model_path, (off_t)1 << 40), 0); /* half an hour's work */
    start(&d, model_path);
    assert_int_equal(ask(&d), 0);
    uint64_t begin = clock_ns();
    end(&d);
    assert_true(clock_ns() - begin < (uint64_t)10 * 1000000000);
    assert_int_equal(n_stored(), 0);
}

/* ---- changed while it is in use ---- */

static void a_changed_file_is_not_read_on(void **state)
{
    (void)state;
    for (int how = 0; how < 3; how++) {
        struct daemon d;
        struct record running, next;
        empty(NULL);
        start(&d, model_path);
        assert_int_equal(qn_scheduler_look(d.s, &e), 0);
        OK(submit(&d, &running, 1, 1, 100));
        while (!running.n && !running.n_done) nap();
        if (how == 0) damage(model_path);
        if (how == 1) assert_int_equal(utimensat(AT_FDCWD, model_path, NULL, 0), 0);
        if (how == 2) shell("printf x >>%s%s", model_path, "");
        assert_int_equal(submit(&d, &next, 2, 2, 1), QN_EDATA);
        assert_non_null(strstr(e.msg, "changed while it was in use"));
        assert_non_null(strstr(e.msg, model_path));
        wait_for(&running);
        bool was_quicker = running.finish != QN_FINISH_ERROR; /* then it may have been stored before the change */
        if (was_quicker) assert_int_equal(running.n, 100);
        if (!was_quicker) assert_string_equal(running.error, e.msg);
        assert_int_equal(qn_scheduler_look(d.s, &e), QN_EDATA);
        end(&d);
        if (!was_quicker) assert_int_equal(n_stored(), 0); /* nothing of what may be wrong is kept */
    }
}

static void a_replaced_file_is_used_to_the_end(void **state)
{
    (void)state;
    struct daemon d;
    shell("cp %s %s", model_path, copy_path);
    start(&d, model_path);
    assert_int_equal(ask(&d), 0);
    shell("mv %s %s", copy_path, model_path);
    assert_int_equal(qn_scheduler_look(d.s, &e), 1);
    assert_int_equal(ask(&d), N_PROMPT - 1);
    assert_int_equal(unlink(model_path), 0);
    assert_int_equal(qn_scheduler_look(d.s, &e), 0);
    end(&d);
}

int main(int argc, char **argv)
{
    if (argc != 2 || !mkdtemp(home)) return 64;
    original = argv[1];
    snprintf(model_path, sizeof model_path, "%s/m.gguf", home);
    snprintf(copy_path, sizeof copy_path, "%s/copy.gguf", home);
    snprintf(cache, sizeof cache, "%s/cache", home);
    snprintf(hashes, sizeof hashes, "%s/hashes", home);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(a_forged_salt_meets_nothing, empty),
        cmocka_unit_test_setup(keys_depend_on_the_secret, empty),
        cmocka_unit_test_setup(a_repaired_file_is_another_model, empty),
        cmocka_unit_test_setup(a_touched_or_copied_file_is_the_same_model, empty),
        cmocka_unit_test_setup(other_settings_are_another_model, empty),
        cmocka_unit_test_setup(the_other_table_of_longrope_is_another_model, empty),
        cmocka_unit_test_setup(the_disk_waits_until_a_large_file_is_known, empty),
        cmocka_unit_test_setup(the_end_comes_before_the_hash, empty),
        cmocka_unit_test_setup(a_changed_file_is_not_read_on, empty),
        cmocka_unit_test_setup(a_replaced_file_is_used_to_the_end, empty),
    };
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    char command[64];
    snprintf(command, sizeof command, "rm -rf %s", home);
    return system(command) || failed;
}
