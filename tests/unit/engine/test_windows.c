/* SPDX-License-Identifier: MIT
 *
 * test_windows.c: models whose layers have windows: what they keep is bounded, and results have the bits of an engine
 * that keeps everything.
 *
 *     test_windows MODEL
 *
 * The program is built with the smallest pages.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <dirent.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/rng.h"
#include "engine/session.h"

#define N_CTX    640
#define N_BATCH  32
#define N_ANSWER 12

static qn_model *model;
static struct qn_error e;
static size_t row_bytes;

#define OK(call)                                                                                                       \
    do {                                                                                                               \
        if (call) fail_msg("line %d: '%s'", __LINE__, e.msg);                                                          \
    } while (0)

static qn_engine *engine_of(int n_sessions)
{
    qn_engine *g = NULL;
    struct qn_engine_params p;
    qn_engine_params_init(&p);
    p.n_threads = 2;
    p.n_ctx = N_CTX;
    p.n_batch = N_BATCH;
    p.n_sessions = n_sessions;
    OK(qn_engine_new(&g, model, &p, &e));
    return g;
}

/* Token i of timeline `which`; timelines are equal up to token `same`. */
static qn_token token_at(int which, int same, int i)
{
    return (qn_token)(rng_u64(9, i < same ? 0 : (uint64_t)which, (uint64_t)i) % (uint64_t)qn_model_n_vocab(model));
}

static void make_tokens(qn_token *tokens, int n, int which, int same)
{
    for (int i = 0; i < n; i++) tokens[i] = token_at(which, same, i);
}

/* Logits after n tokens, where every layer keeps every slot. */
static void reference(const qn_token *tokens, int n, float *logits)
{
    qn_engine *g = engine_of(1);
    struct kv_shape all = forward_kv_shape(g->model, KV_F16);
    struct kv_pool *pool = NULL;
    struct kv_seq m;
    OK(kv_pool_new(&pool, &all, N_CTX, 0, 0, &g->ledger, &e));
    OK(kv_seq_init(&m, pool, N_CTX, &e));
    OK(engine_append(g, &m, tokens, (size_t)n, logits, &e));
    kv_seq_deinit(&m);
    kv_pool_free(pool);
    qn_engine_free(g);
}

static void check_logits(const qn_token *tokens, int n, const float *got)
{
    float *want = malloc(row_bytes);
    reference(tokens, n, want);
    if (memcmp(want, got, row_bytes) != 0) fail_msg("the logits after %d tokens are others", n);
    free(want);
}

/* ---- sequences and sessions ---- */

static void window_pages_are_bounded(void **state)
{
    (void)state;
    qn_token tokens[N_CTX];
    struct kv_seq m;
    float *logits = malloc(row_bytes);
    qn_engine *g = engine_of(1);
    const struct kv_shape *shape = kv_pool_shape(g->kv);
    int all = kv_pool_n_windows(g->kv);
    assert_true(shape->n_layer_win > 0);
    assert_true(all < kv_pool_n_pages(g->kv));
    make_tokens(tokens, N_CTX, 1, 0);
    OK(kv_seq_init(&m, g->kv, N_CTX, &e));
    for (int n = 0, rows; n < N_CTX; n += rows) {
        rows = n < N_CTX / 2 ? 37 : 1 + n % 5;
        if (rows > N_CTX - n) rows = N_CTX - n;
        OK(engine_append(g, &m, tokens + n, (size_t)rows, logits, &e));
        assert_true(kv_seq_n_windows(&m) <= kv_window_pages(shape));
        assert_int_equal(kv_pool_n_free_windows(g->kv), all - kv_seq_n_windows(&m));
        if (n % 10 == 0) check_logits(tokens, n + rows, logits);
    }
    check_logits(tokens, N_CTX, logits);
    kv_seq_deinit(&m);
    assert_int_equal(kv_pool_n_free_windows(g->kv), all);
    qn_engine_free(g);
    free(logits);
}

static void sync_and_check(qn_session *s, const qn_token *tokens, int n)
{
    const float *logits;
    OK(qn_session_sync(s, tokens, (size_t)n, NULL, &e));
    OK(qn_session_logits(s, &logits, &e));
    check_logits(tokens, n, logits);
}

static void a_session_goes_back_anywhere(void **state)
{
    (void)state;
    static const int ends[] = {600, 599, 580, 300, 20, 21, 420, 640, 100, 630};
    qn_token tokens[N_CTX];
    qn_engine *g = engine_of(2);
    qn_session *s = NULL, *f = NULL;
    OK(qn_session_new(&s, g, NULL, &e));
    for (int i = 0; i < 10; i++) {
        make_tokens(tokens, N_CTX, i / 2, 30 * i);
        sync_and_check(s, tokens, ends[i]);
    }
    OK(qn_session_fork(&f, s, &e));
    make_tokens(tokens + 630, 10, 77, 0);
    sync_and_check(f, tokens, 640);
    sync_and_check(s, tokens, 200);
    sync_and_check(f, tokens, 633);
    qn_session_free(s);
    qn_session_free(f);
    qn_engine_free(g);
}

static void what_was_kept_is_found(void **state)
{
    (void)state;
    qn_token tokens[N_CTX];
    size_t n_kept;
    qn_engine *g = engine_of(1);
    qn_session *s = NULL;
    make_tokens(tokens, N_CTX, 1, 0);
    OK(qn_session_new(&s, g, NULL, &e));
    OK(qn_session_sync(s, tokens, 300, NULL, &e));
    OK(qn_session_sync(s, tokens, 600, NULL, &e));
    OK(qn_session_sync(s, tokens, 320, &n_kept, &e));
    assert_int_equal(n_kept, 304); /* the whole pages that begin before the end of the first sync */
    qn_session_free(s);
    qn_engine_free(g);
}

static void a_saved_session_goes_on(void **state)
{
    (void)state;
    static const char path[] = "test_windows.session";
    qn_token tokens[N_CTX];
    qn_engine *g = engine_of(1);
    qn_session *s = NULL;
    make_tokens(tokens, N_CTX, 1, 0);
    OK(qn_session_new(&s, g, NULL, &e));
    OK(qn_session_sync(s, tokens, 333, NULL, &e));
    OK(qn_session_save(s, path, &e));
    qn_session_free(s);
    OK(qn_session_load(&s, g, path, NULL, &e));
    sync_and_check(s, tokens, 333);
    sync_and_check(s, tokens, 500);
    sync_and_check(s, tokens, 331);
    qn_session_free(s);
    qn_engine_free(g);
    unlink(path);
}

/* ---- requests ---- */

struct record {
    int n;
    qn_token token[N_ANSWER];
    float logprob[N_ANSWER];
    struct qn_usage usage;
    char miss[16];
    bool is_done;
};

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t done = PTHREAD_COND_INITIALIZER;

static void told(void *arg, const struct qn_event *ev)
{
    struct record *r = arg;
    pthread_mutex_lock(&mutex);
    if (ev->type == QN_EVENT_TOKEN) {
        r->token[r->n] = ev->token;
        r->logprob[r->n++] = ev->logprob;
    }
    if (ev->type == QN_EVENT_DONE) {
        r->is_done = true;
        r->usage = ev->usage;
        snprintf(r->miss, sizeof r->miss, "%s", ev->timings.miss ? ev->timings.miss : "");
        pthread_cond_broadcast(&done);
    }
    pthread_mutex_unlock(&mutex);
}

static void ask(qn_scheduler *s, struct record *r, int n, int which, int same)
{
    static const int boundaries[] = {100};
    qn_token tokens[N_CTX];
    struct qn_request_params p;
    make_tokens(tokens, n, which, same);
    *r = (struct record){0};
    qn_request_params_init(&p);
    p.prompt = tokens;
    p.n_prompt = (size_t)n;
    p.boundaries = boundaries;
    p.n_boundaries = n > 100;
    p.max_tokens = N_ANSWER;
    p.ignore_eog = true;
    p.n_top_logprobs = 0;
    p.callback = told;
    p.arg = r;
    OK(qn_submit(s, &p, NULL, NULL, &e));
    pthread_mutex_lock(&mutex);
    while (!r->is_done) pthread_cond_wait(&done, &mutex);
    pthread_mutex_unlock(&mutex);
    assert_int_equal(r->n, N_ANSWER);
}

static void start(qn_engine **g, qn_scheduler **s, const char *dir)
{
    struct qn_scheduler_params p;
    *g = engine_of(2);
    *s = NULL;
    qn_scheduler_params_init(&p);
    p.n_running = 2;
    p.cache_dir = dir;
    p.cache_bytes = dir ? 1 << 30 : 0;
    OK(qn_scheduler_new(s, *g, &p, &e));
}

static void stop(qn_engine *g, qn_scheduler *s)
{
    qn_scheduler_free(s);
    qn_engine_free(g);
}

/* The same request on an engine of its own, and that n_cached tokens of it were found. */
static void check_answer(const struct record *got, int n, int which, int same, int n_cached)
{
    qn_engine *g;
    qn_scheduler *s;
    struct record want;
    start(&g, &s, NULL);
    ask(s, &want, n, which, same);
    assert_memory_equal(got->token, want.token, sizeof want.token);
    assert_memory_equal(got->logprob, want.logprob, sizeof want.logprob);
    assert_int_equal(got->usage.n_cached, n_cached);
    stop(g, s);
}

/* Prefixes of prompts on both sides of the window, with and without the disk and a restart. */
static void hits(const char *dir)
{
    struct record r;
    qn_engine *g;
    qn_scheduler *s;
    start(&g, &s, dir);
    ask(s, &r, 400, 0, 0);
    check_answer(&r, 400, 0, 0, 0);
    if (dir) {
        stop(g, s);
        start(&g, &s, dir);
    }
    ask(s, &r, 300, 2, 150); /* differs at 150: goes on at the boundary */
    check_answer(&r, 300, 2, 150, 96);
    assert_string_equal(r.miss, "window");
    ask(s, &r, 300, 3, 150); /* where the second left the first */
    check_answer(&r, 300, 3, 150, 144);
    ask(s, &r, 20, 0, 0); /* shorter than the window */
    if (dir) {
        stop(g, s);
        start(&g, &s, dir);
    }
    ask(s, &r, 400, 0, 0); /* the whole pages of the prompt */
    check_answer(&r, 400, 0, 0, 399);
    struct qn_scheduler_stats st = {.size = sizeof st};
    OK(qn_scheduler_stats(s, &st));
    assert_true(st.n_windows > 0 && st.window_bytes > 0 && st.window_bytes < st.kv_bytes);
    stop(g, s);
}

static void requests_go_on_at_cuts(void **state)
{
    (void)state;
    hits(NULL);
}

static void requests_go_on_at_cuts_after_a_restart(void **state)
{
    (void)state;
    char dir[] = "test_windows_XXXXXX", path[400];
    assert_non_null(mkdtemp(dir));
    hits(dir);
    DIR *d = opendir(dir);
    for (const struct dirent *x; (x = readdir(d));) {
        snprintf(path, sizeof path, "%s/%s", dir, x->d_name);
        unlink(path);
    }
    closedir(d);
    rmdir(dir);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(window_pages_are_bounded), cmocka_unit_test(a_session_goes_back_anywhere),
        cmocka_unit_test(what_was_kept_is_found),   cmocka_unit_test(a_saved_session_goes_on),
        cmocka_unit_test(requests_go_on_at_cuts),   cmocka_unit_test(requests_go_on_at_cuts_after_a_restart),
    };
    if (argc != 2 || qn_model_open(&model, argv[1], &e)) {
        fprintf(stderr, "test_windows MODEL: %s\n", e.msg);
        return 1;
    }
    row_bytes = (size_t)qn_model_n_vocab(model) * sizeof(float);
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    qn_model_close(model);
    return failed;
}
