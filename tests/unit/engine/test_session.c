/* SPDX-License-Identifier: MIT
 *
 * test_session.c: engines and sessions through quern.h alone, on a small random model.
 *
 *     test_session MODEL [recurrent]
 *
 * The rule for everything here: whatever a session went through, the logits that follow its timeline are, bit for
 * bit, those of a fresh session given the same tokens at once.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/os.h"
#include "base/rng.h"

#define N_CTX 100

static qn_model *model;
static int n_vocab;
static bool is_recurrent; /* a timeline that is cut may lose more than was asked for */
static struct qn_error e;

static void ok_at(int rc, int line)
{
    if (rc) fail_msg("line %d: %d '%s'", line, rc, e.msg);
}
#define OK(call) ok_at((call), __LINE__)

static void refused_at(int rc, int code, const char *text, int line)
{
    if (rc != code || e.code != code || !strstr(e.msg, text))
        fail_msg("line %d: %d '%s', expected %d '%s'", line, rc, e.msg, code, text);
}
#define REFUSED(call, code, text) refused_at((call), code, text, __LINE__)

static struct qn_engine_params params(void)
{
    struct qn_engine_params p;
    qn_engine_params_init(&p);
    p.n_threads = 1;
    p.n_ctx = N_CTX;
    p.n_sessions = 4;
    return p;
}

static qn_engine *engine(void)
{
    qn_engine *g = NULL;
    struct qn_engine_params p = params();
    OK(qn_engine_new(&g, model, &p, &e));
    return g;
}

static qn_session *session(qn_engine *g, const struct qn_sampling *s)
{
    qn_session *out = NULL;
    OK(qn_session_new(&out, g, s, &e));
    return out;
}

/* A fixed sequence of ids; other streams give other ones. */
static void make_tokens(qn_token *t, int n, uint64_t stream)
{
    for (int i = 0; i < n; i++) t[i] = (qn_token)(rng_u64(5, stream, (uint64_t)i) % (uint64_t)n_vocab);
}

/* The timeline's logits are those of a fresh session, on an engine of its own, in batches of 3. */
static void check_logits_at(qn_session *s, int line)
{
    struct qn_engine_params p = params();
    qn_engine *g;
    const float *got, *want;
    const qn_token *tokens;
    size_t n = qn_session_tokens(s, &tokens);
    p.n_batch = 3;
    OK(qn_engine_new(&g, model, &p, &e));
    qn_session *fresh = session(g, NULL);
    OK(qn_session_sync(fresh, tokens, n, NULL, &e));
    OK(qn_session_logits(fresh, &want, &e));
    OK(qn_session_logits(s, &got, &e));
    if (memcmp(got, want, (size_t)n_vocab * sizeof *got)) fail_msg("line %d: other logits after %zu tokens", line, n);
    qn_session_free(fresh);
    qn_engine_free(g);
}
#define CHECK_LOGITS(s) check_logits_at((s), __LINE__)

/* ---- engines ---- */

static void parameters_out_of_range_are_refused(void **state)
{
    (void)state;
    qn_engine *g = NULL;
    struct qn_engine_params p = params();
#define TRY(field, value, code, text)                                                                                  \
    p = params();                                                                                                      \
    p.field = value;                                                                                                   \
    REFUSED(qn_engine_new(&g, model, &p, &e), code, text)
    TRY(size, sizeof p - 8, QN_EUSAGE, "parameter struct of");
    TRY(size, 0, QN_EUSAGE, "0 bytes");
    TRY(n_threads, -1, QN_EUSAGE, "-1 threads, not 0..1024");
    TRY(n_threads, 1025, QN_EUSAGE, "1025 threads");
    TRY(n_ctx, -1, QN_EUSAGE, "context of -1 tokens");
    TRY(n_ctx, INT32_MAX, QN_EUSAGE, "context of 2147483647 tokens");
    TRY(n_batch, -1, QN_EUSAGE, "batch of -1 rows");
    TRY(n_batch, 65537, QN_EUSAGE, "batch of 65537 rows");
    TRY(n_sessions, 0, QN_EUSAGE, "0 sessions, not 1..65536");
    TRY(n_sessions, 65537, QN_EUSAGE, "65537 sessions");
    TRY(kv, (enum qn_kv)3, QN_EUSAGE, "unknown KV type 3");
    TRY(cpu, "avx1024", QN_EUSAGE, "unknown instruction set 'avx1024'");
    TRY(cpu, "", QN_EUSAGE, "unknown instruction set ''");
#undef TRY
    assert_null(g);
}

static void defaults_follow_the_model(void **state)
{
    (void)state;
    qn_engine *g;
    struct qn_engine_params p;
    OK(qn_engine_new(&g, model, NULL, &e));
    assert_int_equal(qn_engine_n_ctx(g), qn_model_n_ctx_train(model)); /* 2048, below the default limit */
    qn_engine_free(g);
    qn_engine_params_init(&p);
    p.n_ctx = 1; /* the smallest: one token, and nothing after it */
    OK(qn_engine_new(&g, model, &p, &e));
    qn_session *s = session(g, NULL);
    qn_token t = 3;
    OK(qn_session_sync(s, &t, 1, NULL, &e));
    CHECK_LOGITS(s);
    REFUSED(qn_session_step(s, &t, &e), QN_EFULL, "context of 1 tokens is full");
    qn_session_free(s);
    qn_engine_free(g);
    qn_engine_free(NULL);
    qn_session_free(NULL);
    qn_model_close(NULL);
}

/* The message carries what is needed and what is allowed, and the sum of its parts is right. */
static void a_budget_that_is_too_small_is_refused_untouched(void **state)
{
    (void)state;
    unsigned long long all, weights, kv, tokens, states = 0, buffers, budget;
    qn_engine *g = NULL;
    struct qn_engine_params p = params();
    size_t before = os_resident_bytes();
    p.n_sessions = 60000;
    p.memory_bytes = 100 << 20;
    REFUSED(qn_engine_new(&g, model, &p, &e), QN_ENOMEM, "the memory budget is 104857600 bytes");
    assert_null(g);
    int n = is_recurrent ? sscanf(e.msg,
                                  "engine: %llu bytes needed (weights %llu, KV cache %llu for %llu tokens, recurrent "
                                  "states %llu, buffers %llu), the memory budget is %llu bytes",
                                  &all, &weights, &kv, &tokens, &states, &buffers, &budget)
                         : sscanf(e.msg,
                                  "engine: %llu bytes needed (weights %llu, KV cache %llu for %llu tokens, buffers "
                                  "%llu), the memory budget is %llu bytes",
                                  &all, &weights, &kv, &tokens, &buffers, &budget);
    assert_int_equal(n, is_recurrent ? 7 : 6);
    assert_true(all == weights + kv + states + buffers && all > budget);
    assert_int_equal(tokens, 60000 * 128); /* whole pages of 64 */
    assert_true(os_resident_bytes() < before + (1 << 20));

    p.n_sessions = 1;
    p.memory_bytes = 1;
    REFUSED(qn_engine_new(&g, model, &p, &e), QN_ENOMEM, "the memory budget is 1 bytes");
    assert_int_equal(sscanf(e.msg, "engine: %llu bytes", &all), 1);
    p.memory_bytes = all - 1;
    REFUSED(qn_engine_new(&g, model, &p, &e), QN_ENOMEM, "bytes needed");
    p.memory_bytes = all; /* exactly what it asks for is enough */
    OK(qn_engine_new(&g, model, &p, &e));
    qn_engine_free(g);

    p.n_ctx = 4096;
    p.n_batch = 8;
    p.memory_bytes = is_recurrent ? 7 << 20 : 4 << 20;
    REFUSED(qn_engine_new(&g, model, &p, &e), QN_ENOMEM, "with --kv q8_0"); /* and the advice holds */
    const char *advice = strstr(e.msg, "bytes; ");
    assert_non_null(advice);
    p.n_ctx = atoi(advice + 7);
    assert_true(p.n_ctx > 0);
    OK(qn_engine_new(&g, model, &p, &e));
    qn_engine_free(g);
}

static void room_for_sessions_is_not_resident_before_use(void **state)
{
    (void)state;
    qn_engine *g;
    struct qn_engine_params p = params();
    size_t before = os_resident_bytes();
    p.n_ctx = 2048;
    p.n_batch = 64;
    p.n_sessions = 1000;
    p.memory_bytes = (uint64_t)1 << 40;
    OK(qn_engine_new(&g, model, &p, &e));
    assert_true(os_resident_bytes() < before + (64 << 20)); /* of 2 GB */
    qn_engine_free(g);
}

/* ---- timelines ---- */

static void sync_evaluates_what_is_new(void **state)
{
    (void)state;
    /* A recurrent state goes back to where a sync() ended. */
    static const struct {
        int n, differs_at;
        size_t kept, kept_recurrent;
    } steps[] = {{10, 99, 0, 0},                                       /* from nothing */
                 {10, 99, 10, 10},                                     /* the same: nothing to do */
                 {30, 99, 10, 10},                                     /* longer */
                 {20, 99, 19, 10},                                     /* shorter: the last one again, for its logits */
                 {20, 99, 20, 20}, {80, 99, 20, 20}, {80, 70, 70, 20}, /* another ending */
                 {80, 64, 64, 20}, {75, 64, 74, 20}, {75, 0, 0, 0},    /* nothing in common */
                 {1, 0, 0, 0},     {100, 0, 1, 1},   {100, 1, 0, 0}};
    qn_token tokens[N_CTX], other[N_CTX];
    qn_engine *g = engine();
    qn_session *s = session(g, NULL);
    make_tokens(other, N_CTX, 77);
    for (size_t i = 0; i < sizeof steps / sizeof *steps; i++) {
        const qn_token *have;
        size_t kept = 999;
        make_tokens(tokens, N_CTX, 1);
        for (int j = steps[i].differs_at; j < N_CTX; j++) tokens[j] = other[j];
        OK(qn_session_sync(s, tokens, (size_t)steps[i].n, &kept, &e));
        size_t expected = is_recurrent ? steps[i].kept_recurrent : steps[i].kept;
        if (kept != expected) fail_msg("step %zu kept %zu, expected %zu", i, kept, expected);
        assert_int_equal(qn_session_tokens(s, &have), steps[i].n);
        assert_memory_equal(have, tokens, (size_t)steps[i].n * sizeof *tokens);
        CHECK_LOGITS(s);
    }
    /* a session's own tokens may be given back to it */
    const qn_token *own;
    qn_session_tokens(s, &own);
    OK(qn_session_sync(s, own + 1, 50, NULL, &e));
    CHECK_LOGITS(s);
    qn_session_free(s);
    qn_engine_free(g);
}

static void steps_append_what_they_draw(void **state)
{
    (void)state;
    qn_token prompt[5], drawn[N_CTX];
    const qn_token *have;
    size_t kept;
    qn_engine *g = engine();
    qn_session *s = session(g, NULL);
    make_tokens(prompt, 5, 2);
    REFUSED(qn_session_step(s, drawn, &e), QN_EUSAGE, "nothing to continue");
    OK(qn_session_sync(s, prompt, 5, NULL, &e));
    for (int i = 0; i < N_CTX - 5; i++) {
        drawn[i] = -1;
        OK(qn_session_step(s, &drawn[i], &e));
        assert_true(drawn[i] >= 0 && drawn[i] < n_vocab);
        if (i % 17 == 0) CHECK_LOGITS(s);
    }
    assert_int_equal(qn_session_tokens(s, &have), N_CTX);
    assert_memory_equal(have, prompt, sizeof prompt);
    assert_memory_equal(have + 5, drawn, (N_CTX - 5) * sizeof *drawn);
    qn_token t = -1;
    REFUSED(qn_session_step(s, &t, &e), QN_EFULL, "the context of 100 tokens is full");
    assert_int_equal(t, -1);
    CHECK_LOGITS(s);                             /* the last token has its logits all the same */
    OK(qn_session_sync(s, have, 60, &kept, &e)); /* and the timeline can be cut and go on */
    assert_int_equal(kept, is_recurrent ? 5 : 59);
    OK(qn_session_step(s, &t, &e));
    assert_int_equal(t, drawn[55]); /* the same draw at the same position */
    qn_session_free(s);
    qn_engine_free(g);
}

static void draw(qn_engine *g, uint64_t seed, float temperature, qn_token *out, int n)
{
    qn_token prompt[7];
    struct qn_sampling p;
    qn_sampling_init(&p);
    p.seed = seed;
    p.temperature = temperature;
    qn_session *s = session(g, &p);
    make_tokens(prompt, 7, 3);
    OK(qn_session_sync(s, prompt, 7, NULL, &e));
    for (int i = 0; i < n; i++) OK(qn_session_step(s, &out[i], &e));
    qn_session_free(s);
}

static void a_seed_decides(void **state)
{
    (void)state;
    qn_token a[40], b[40];
    qn_engine *g = engine();
    draw(g, 1, 1.5f, a, 40);
    draw(g, 1, 1.5f, b, 40);
    assert_memory_equal(a, b, sizeof a);
    draw(g, 2, 1.5f, b, 40);
    assert_memory_not_equal(a, b, sizeof a);
    draw(g, 1, 0, a, 40); /* greedy: no seed matters */
    draw(g, 2, 0, b, 40);
    assert_memory_equal(a, b, sizeof a);
    qn_engine_free(g);
}

/* ---- forks ---- */

/* The prompt that was read once is not read again, whatever was drawn since; nor by a fork. */
static void a_prompt_is_gone_back_to(void **state)
{
    (void)state;
    qn_token tokens[60], t;
    size_t kept;
    qn_engine *g = engine();
    qn_session *s = session(g, NULL), *fork = NULL;
    make_tokens(tokens, 60, 12);
    OK(qn_session_sync(s, tokens, 40, NULL, &e));
    for (int i = 0; i < 10; i++) OK(qn_session_step(s, &t, &e));
    OK(qn_session_fork(&fork, s, &e));
    for (int i = 0; i < 2; i++) {
        qn_session *x = i ? fork : s;
        OK(qn_session_sync(x, tokens, 60, &kept, &e));
        assert_int_equal(kept, 40);
        CHECK_LOGITS(x);
        OK(qn_session_sync(x, tokens, 40, &kept, &e));
        assert_int_equal(kept, is_recurrent ? 0 : 39); /* its logits are those of 60 tokens now */
        CHECK_LOGITS(x);
        for (int k = 0; k < 5; k++) OK(qn_session_step(x, &t, &e));
        OK(qn_session_sync(x, tokens, 40, &kept, &e));
        assert_int_equal(kept, is_recurrent ? 40 : 39);
        CHECK_LOGITS(x);
    }
    qn_session_free(fork);
    qn_session_free(s);
    qn_engine_free(g);
}

static void forks_go_separate_ways(void **state)
{
    (void)state;
    qn_token prompt[70], t, u, other[N_CTX];
    qn_engine *g = engine();
    struct qn_sampling p;
    qn_sampling_init(&p);
    p.seed = 9;
    p.temperature = 1.5f;
    p.repetition_penalty = 1.3f; /* looks back: the history is forked too */
    qn_session *a = session(g, &p), *b = NULL, *c = NULL;
    make_tokens(prompt, 70, 4);
    make_tokens(other, N_CTX, 5);
    OK(qn_session_fork(&c, a, &e)); /* of an empty one */
    OK(qn_session_sync(a, prompt, 70, NULL, &e));
    OK(qn_session_step(a, &t, &e)); /* its last token is not evaluated yet */
    OK(qn_session_fork(&b, a, &e));
    CHECK_LOGITS(b);
    for (int i = 0; i < 10; i++) {
        OK(qn_session_step(a, &t, &e));
        OK(qn_session_step(b, &u, &e));
        assert_int_equal(t, u); /* same past, same seed */
    }
    OK(qn_session_sync(b, other, N_CTX, NULL, &e));
    CHECK_LOGITS(a);
    CHECK_LOGITS(b);
    qn_session_free(a); /* a fork outlives its original */
    CHECK_LOGITS(b);
    OK(qn_session_sync(c, prompt, 70, NULL, &e));
    CHECK_LOGITS(c);
    qn_session_free(b);
    qn_session_free(c);
    qn_engine_free(g);
}

/* ---- refusals ---- */

static void bad_tokens_are_refused(void **state)
{
    (void)state;
    qn_token tokens[20];
    const qn_token *have;
    qn_engine *g = engine();
    qn_session *s = session(g, NULL);
    const qn_token bad[] = {-1, n_vocab, INT32_MAX, INT32_MIN};
    make_tokens(tokens, 20, 6);
    REFUSED(qn_session_sync(s, tokens, 0, NULL, &e), QN_EUSAGE, "no tokens");
    for (int i = 0; i < 4; i++) {
        char want[64];
        make_tokens(tokens, 20, 6);
        OK(qn_session_sync(s, tokens, 20, NULL, &e));
        size_t kept = 999;
        tokens[12] = bad[i];
        snprintf(want, sizeof want, "is %d, not in 0..%d", bad[i], n_vocab - 1);
        REFUSED(qn_session_sync(s, tokens, 20, &kept, &e), QN_EUSAGE, want);
        assert_int_equal(kept, 999);
        /* what is left is a beginning of what was asked for, and its logits are right */
        size_t n = qn_session_tokens(s, &have);
        assert_true(n <= 12);
        assert_memory_equal(have, tokens, n * sizeof *tokens);
        if (n) CHECK_LOGITS(s);
    }
    qn_session_free(s);
    qn_engine_free(g);
}

/* Like the above, but the sampler must have forgotten the lost tokens too. */
static void a_failed_sync_leaves_no_trace_in_the_draw(void **state)
{
    (void)state;
    qn_token tokens[20], t, u;
    const qn_token *have;
    qn_engine *g = engine();
    struct qn_sampling p;
    qn_sampling_init(&p);
    p.seed = 4;
    p.presence_penalty = 30; /* a token that was there is not drawn again */
    p.penalty_last_n = -1;
    qn_session *s = session(g, &p), *fresh = session(g, &p);
    make_tokens(tokens, 20, 7);
    OK(qn_session_sync(s, tokens, 10, NULL, &e));
    OK(qn_session_sync(s, tokens, 20, NULL, &e));
    tokens[12] = -1;
    REFUSED(qn_session_sync(s, tokens, 20, NULL, &e), QN_EUSAGE, "is -1");
    size_t n = qn_session_tokens(s, &have);
    assert_int_equal(n, is_recurrent ? 1 : 12);
    OK(qn_session_sync(fresh, tokens, n, NULL, &e));
    for (int i = 0; i < 20; i++) {
        OK(qn_session_step(s, &t, &e));
        OK(qn_session_step(fresh, &u, &e));
        assert_int_equal(t, u);
    }
    qn_session_free(s);
    qn_session_free(fresh);
    qn_engine_free(g);
}

static void too_many_tokens_are_refused(void **state)
{
    (void)state;
    qn_token tokens[N_CTX + 1];
    const qn_token *have;
    qn_engine *g = engine();
    qn_session *s = session(g, NULL);
    make_tokens(tokens, N_CTX + 1, 8);
    OK(qn_session_sync(s, tokens, 10, NULL, &e));
    REFUSED(qn_session_sync(s, tokens, N_CTX + 1, NULL, &e), QN_EFULL, "101 tokens do not fit a context of 100");
    assert_int_equal(qn_session_tokens(s, &have), 10);
    CHECK_LOGITS(s);
    OK(qn_session_sync(s, tokens, N_CTX, NULL, &e));
    CHECK_LOGITS(s);
    qn_session_free(s);
    qn_engine_free(g);
}

/* Two sessions where the KV cache has room for one. */
static void a_full_cache_is_refused(void **state)
{
    (void)state;
    qn_token tokens[N_CTX], t;
    const qn_token *have;
    qn_engine *g;
    struct qn_engine_params p = params();
    p.n_sessions = 1;
    OK(qn_engine_new(&g, model, &p, &e));
    qn_session *a = session(g, NULL), *b = session(g, NULL), *c = NULL;
    make_tokens(tokens, N_CTX, 9);
    OK(qn_session_sync(a, tokens, 65, NULL, &e)); /* both pages */
    REFUSED(qn_session_sync(b, tokens, 3, NULL, &e), QN_ENOMEM, "1 more pages of 64 tokens needed, 0 of 2 free");
    assert_int_equal(qn_session_tokens(b, &have), 0);
    OK(qn_session_fork(&c, a, &e)); /* costs no page ... */
    OK(qn_session_step(c, &t, &e));
    REFUSED(qn_session_step(c, &t, &e), QN_ENOMEM, "0 of 2 free"); /* ... until it writes */
    assert_int_equal(qn_session_tokens(c, &have), 66);
    CHECK_LOGITS(a);
    qn_session_free(a);
    CHECK_LOGITS(c); /* now there is room: nothing was lost */
    OK(qn_session_step(c, &t, &e));
    qn_session_free(c);
    OK(qn_session_sync(b, tokens, 3, NULL, &e));
    CHECK_LOGITS(b);
    qn_session_free(b);
    qn_engine_free(g);
}

static void logits_need_tokens(void **state)
{
    (void)state;
    const float *logits = NULL;
    qn_engine *g = engine();
    qn_session *s = session(g, NULL);
    REFUSED(qn_session_logits(s, &logits, &e), QN_EUSAGE, "no tokens");
    assert_null(logits);
    qn_session_free(s);
    qn_engine_free(g);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(parameters_out_of_range_are_refused),
        cmocka_unit_test(defaults_follow_the_model),
        cmocka_unit_test(a_budget_that_is_too_small_is_refused_untouched),
        cmocka_unit_test(room_for_sessions_is_not_resident_before_use),
        cmocka_unit_test(sync_evaluates_what_is_new),
        cmocka_unit_test(steps_append_what_they_draw),
        cmocka_unit_test(a_seed_decides),
        cmocka_unit_test(a_prompt_is_gone_back_to),
        cmocka_unit_test(forks_go_separate_ways),
        cmocka_unit_test(bad_tokens_are_refused),
        cmocka_unit_test(a_failed_sync_leaves_no_trace_in_the_draw),
        cmocka_unit_test(too_many_tokens_are_refused),
        cmocka_unit_test(a_full_cache_is_refused),
        cmocka_unit_test(logits_need_tokens),
    };
    is_recurrent = argc == 3 && !strcmp(argv[2], "recurrent");
    if (argc != 2 + is_recurrent || qn_model_open(&model, argv[1], &e)) {
        fprintf(stderr, "test_session MODEL [recurrent]: %s\n", e.msg);
        return 1;
    }
    n_vocab = qn_model_n_vocab(model);
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    qn_model_close(model);
    return failed;
}
