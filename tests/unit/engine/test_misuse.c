/* SPDX-License-Identifier: MIT
 *
 * test_misuse.c: every function of quern.h with arguments that make no sense. It returns QN_EUSAGE, or nothing happens;
 * the process goes on, and outputs stay as they were.
 *
 *     test_misuse MODEL
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <math.h>
#include <pthread.h>
#include <string.h>

#include <quern.h>

static qn_model *model;
static const char *model_path;
static struct qn_error e;
static char untouched; /* outputs point here before a call that must fail */

/* QN_EUSAGE with a message, and without a place for one. */
#define REFUSED(call)                                                                                                  \
    do {                                                                                                               \
        e.code = 0;                                                                                                    \
        assert_int_equal((call), QN_EUSAGE);                                                                           \
        assert_int_equal(e.code, QN_EUSAGE);                                                                           \
        assert_true(strlen(e.msg) > 0);                                                                                \
    } while (0)

static qn_engine *engine(void)
{
    struct qn_engine_params p;
    qn_engine *g = NULL;
    qn_engine_params_init(&p);
    p.n_threads = 1;
    p.n_ctx = 64;
    p.n_sessions = 2;
    assert_int_equal(qn_engine_new(&g, model, &p, &e), 0);
    return g;
}

static bool never(void *arg)
{
    (void)arg;
    return false;
}

static void models_and_tokens(void **state)
{
    (void)state;
    qn_model *out = (qn_model *)&untouched;
    struct qn_model_params p;
    qn_token *ids = NULL;
    char *bytes = NULL;
    size_t n = 7;
    qn_model_params_init(NULL);
    qn_model_params_init(&p);
    REFUSED(qn_model_open(NULL, model_path, &e));
    REFUSED(qn_model_open(&out, NULL, &e));
    REFUSED(qn_model_open_with(&out, NULL, &p, &e));
    p.size = 1;
    REFUSED(qn_model_open_with(&out, model_path, &p, &e));
    assert_int_equal(qn_model_open(NULL, NULL, NULL), QN_EUSAGE);
    assert_ptr_equal(out, &untouched);
    qn_model_close(NULL);
    assert_int_equal(qn_model_mark(NULL), 0);
    assert_int_equal(qn_model_n_vocab(NULL), 0);
    assert_int_equal(qn_model_n_ctx_train(NULL), 0);
    assert_int_equal(qn_model_n_embd(NULL), 0);
    assert_int_equal(qn_model_pooling(NULL), QN_POOL_NONE);
    assert_false(qn_model_is_eog(NULL, 0));
    assert_false(qn_model_is_eog(model, -1));
    assert_false(qn_model_is_eog(model, INT32_MAX));
    assert_int_equal(qn_model_max_text(NULL, 5), 0);
    assert_int_equal(qn_model_max_text(model, -5), 0);

    struct qn_cancel empty = {NULL, NULL}, cancel = {never, NULL};
    REFUSED(qn_tokenize(NULL, "a", 1, 0, NULL, &ids, &n, &e));
    REFUSED(qn_tokenize(model, NULL, 1, 0, NULL, &ids, &n, &e));
    REFUSED(qn_tokenize(model, "a", 1, 0, NULL, NULL, &n, &e));
    REFUSED(qn_tokenize(model, "a", 1, 0, NULL, &ids, NULL, &e));
    REFUSED(qn_tokenize(model, "a", 1, 0x100, NULL, &ids, &n, &e));
    REFUSED(qn_tokenize(model, "a", 1, 0, &empty, &ids, &n, &e));
    REFUSED(qn_tokenize(model, "a", SIZE_MAX, 0, NULL, &ids, &n, &e));
    assert_int_equal(qn_tokenize(NULL, NULL, 1, 0, NULL, NULL, NULL, NULL), QN_EUSAGE);
    assert_null(ids);
    assert_int_equal(n, 7);
    assert_int_equal(qn_tokenize(model, NULL, 0, 0, &cancel, &ids, &n, &e), 0); /* no text is a text */
    qn_free(ids);
    qn_free(NULL);

    struct qn_infill gap;
    const struct qn_infill_file bad_name = {NULL, 1, "x", 1}, bad_text = {"x", 1, NULL, 1};
    qn_infill_init(NULL);
    qn_infill_init(&gap);
    REFUSED(qn_infill_prompt(NULL, &gap, NULL, &ids, &n, NULL, &e));
    REFUSED(qn_infill_prompt(model, NULL, NULL, &ids, &n, NULL, &e));
    REFUSED(qn_infill_prompt(model, &gap, &empty, &ids, &n, NULL, &e));
    REFUSED(qn_infill_prompt(model, &gap, NULL, NULL, &n, NULL, &e));
    REFUSED(qn_infill_prompt(model, &gap, NULL, &ids, NULL, NULL, &e));
    gap.n_prefix = 1;
    REFUSED(qn_infill_prompt(model, &gap, NULL, &ids, &n, NULL, &e));
    gap.n_prefix = 0, gap.n_suffix = 1;
    REFUSED(qn_infill_prompt(model, &gap, NULL, &ids, &n, NULL, &e));
    gap.n_suffix = 0, gap.n_files = 1;
    REFUSED(qn_infill_prompt(model, &gap, NULL, &ids, &n, NULL, &e));
    gap.files = &bad_name;
    REFUSED(qn_infill_prompt(model, &gap, NULL, &ids, &n, NULL, &e));
    gap.files = &bad_text;
    REFUSED(qn_infill_prompt(model, &gap, NULL, &ids, &n, NULL, &e));
    gap.size = 1;
    REFUSED(qn_infill_prompt(model, &gap, NULL, &ids, &n, NULL, &e));

    REFUSED(qn_rank_prompt(NULL, "q", 1, "d", 1, NULL, &ids, &n, &e));
    REFUSED(qn_rank_prompt(model, NULL, 1, "d", 1, NULL, &ids, &n, &e));
    REFUSED(qn_rank_prompt(model, "q", 1, NULL, 1, NULL, &ids, &n, &e));
    REFUSED(qn_rank_prompt(model, "q", 1, "d", 1, &empty, &ids, &n, &e));
    REFUSED(qn_rank_prompt(model, "q", 1, "d", 1, NULL, NULL, &n, &e));
    REFUSED(qn_rank_prompt(model, "q", 1, "d", 1, NULL, &ids, NULL, &e));

    REFUSED(qn_token_bytes(NULL, 1, false, &bytes, &n, &e));
    REFUSED(qn_token_bytes(model, 1, false, NULL, &n, &e));
    REFUSED(qn_token_bytes(model, 1, false, &bytes, NULL, &e));
    REFUSED(qn_token_bytes(model, -1, false, &bytes, &n, &e));
    REFUSED(qn_token_bytes(model, qn_model_n_vocab(model), false, &bytes, &n, &e));
    assert_null(bytes);
}

static void texts(void **state)
{
    (void)state;
    qn_text *t = NULL;
    const char *bytes, *const null[] = {"a", NULL}, *const empty[] = {""};
    size_t n;
    REFUSED(qn_text_new(NULL, model, false, NULL, 0, &e));
    REFUSED(qn_text_new(&t, NULL, false, NULL, 0, &e));
    REFUSED(qn_text_new(&t, model, false, NULL, 1, &e));
    REFUSED(qn_text_new(&t, model, false, null, 2, &e));
    REFUSED(qn_text_new(&t, model, false, null, SIZE_MAX, &e));
    REFUSED(qn_text_new(&t, model, false, empty, 1, &e));
    assert_null(t);
    assert_int_equal(qn_text_new(&t, model, false, NULL, 0, &e), 0);
    REFUSED(qn_text_push(NULL, 1, &bytes, &n, NULL, &e));
    REFUSED(qn_text_push(t, 1, NULL, &n, NULL, &e));
    REFUSED(qn_text_push(t, 1, &bytes, NULL, NULL, &e));
    REFUSED(qn_text_push(t, -1, &bytes, &n, NULL, &e));
    REFUSED(qn_text_push(t, INT32_MAX, &bytes, &n, NULL, &e));
    REFUSED(qn_text_end(NULL, &bytes, &n, &e));
    REFUSED(qn_text_end(t, NULL, &n, &e));
    REFUSED(qn_text_end(t, &bytes, NULL, &e));
    qn_text_free(t);
    qn_text_free(NULL);
}

static void chats(void **state)
{
    (void)state;
    static const char request[] = "{\"messages\": [{\"role\": \"user\", \"content\": \"Hi\"}]}";
    const char *const null[] = {NULL};
    struct qn_cancel empty = {NULL, NULL};
    qn_chat *c = NULL;
    qn_prompt *p = NULL;
    qn_reply *r = NULL;
    struct qn_reply_event event;
    size_t n = 7;
    REFUSED(qn_chat_new(NULL, model, NULL, 0, &e));
    REFUSED(qn_chat_new(&c, NULL, NULL, 0, &e));
    assert_int_equal(qn_chat_new(&c, model, NULL, 0, &e), 0);
    REFUSED(qn_chat_prompt(NULL, c, request, strlen(request), NULL, &e));
    REFUSED(qn_chat_prompt(&p, NULL, request, strlen(request), NULL, &e));
    REFUSED(qn_chat_prompt(&p, c, NULL, 5, NULL, &e));
    REFUSED(qn_chat_prompt(&p, c, request, strlen(request), &empty, &e));
    REFUSED(qn_chat_prompt(&p, c, "{}", 2, NULL, &e));
    assert_null(p);
    assert_int_equal(qn_chat_prompt(&p, c, request, strlen(request), NULL, &e), 0);
    assert_string_equal(qn_prompt_text(NULL, &n), "");
    assert_int_equal(n, 0);
    assert_non_null(qn_prompt_text(p, NULL));
    assert_null(qn_prompt_tokens(NULL, &n));
    assert_non_null(qn_prompt_tokens(p, NULL));
    assert_int_equal(qn_prompt_user_span(NULL, 0, &n, &n), 0);
    qn_prompt_user_span(p, 0, NULL, NULL);
    qn_prompt_user_span(p, SIZE_MAX, &n, &n);
    assert_null(qn_prompt_boundaries(NULL, &n));
    qn_prompt_boundaries(p, NULL);
    REFUSED(qn_reply_new(NULL, c, p, NULL, 0, &e));
    REFUSED(qn_reply_new(&r, NULL, p, NULL, 0, &e));
    REFUSED(qn_reply_new(&r, c, NULL, NULL, 0, &e));
    REFUSED(qn_reply_new(&r, c, p, NULL, 3, &e));
    REFUSED(qn_reply_new(&r, c, p, null, 1, &e));
    assert_null(r);
    assert_int_equal(qn_reply_new(&r, c, p, NULL, 0, &e), 0);
    REFUSED(qn_reply_push(NULL, 1, NULL, &e));
    REFUSED(qn_reply_push(r, -1, NULL, &e));
    REFUSED(qn_reply_push(r, INT32_MAX, NULL, &e));
    REFUSED(qn_reply_end(NULL, &e));
    assert_int_equal(qn_reply_stop_index(NULL), -1);
    assert_false(qn_reply_is_thinking(NULL));
    assert_false(qn_reply_next(NULL, &event));
    assert_false(qn_reply_next(r, NULL));
    /* In the wrong order: each stays until its users are gone. */
    qn_chat_free(c);
    qn_prompt_free(p);
    assert_int_equal(qn_reply_push(r, 1, NULL, &e), 0);
    assert_int_equal(qn_reply_end(r, &e), 0);
    qn_reply_free(r);
    qn_chat_free(NULL);
    qn_prompt_free(NULL);
    qn_reply_free(NULL);
}

static void engines_and_sessions(void **state)
{
    (void)state;
    qn_engine *g = NULL;
    qn_session *s = NULL, *fork = NULL;
    struct qn_engine_params p;
    struct qn_scheduler_params sp;
    struct qn_engine_plan plan = {.size = sizeof plan};
    struct qn_sampling sampling;
    const qn_token bad[] = {1, -1}, *tokens;
    const float *logits;
    qn_token t;
    qn_engine_params_init(NULL);
    qn_engine_params_init(&p);
    qn_scheduler_params_init(&sp);
    qn_sampling_init(NULL);
    qn_sampling_init(&sampling);
    REFUSED(qn_engine_new(NULL, model, NULL, &e));
    REFUSED(qn_engine_new(&g, NULL, NULL, &e));
    REFUSED(qn_engine_plan(NULL, model, NULL, NULL, &e));
    REFUSED(qn_engine_plan(&plan, NULL, NULL, NULL, &e));
    plan.size = 3;
    REFUSED(qn_engine_plan(&plan, model, NULL, NULL, &e));
    plan.size = sizeof plan;
    p.size = sp.size = 0;
    REFUSED(qn_engine_new(&g, model, &p, &e));
    REFUSED(qn_engine_plan(&plan, model, &p, NULL, &e));
    REFUSED(qn_engine_plan(&plan, model, NULL, &sp, &e));
    assert_null(g);
    assert_int_equal(qn_engine_n_ctx(NULL), 0);
    qn_engine_free(NULL);

    g = engine();
    REFUSED(qn_session_new(NULL, g, NULL, &e));
    REFUSED(qn_session_new(&s, NULL, NULL, &e));
    struct qn_sampling broken[] = {sampling, sampling, sampling, sampling, sampling};
    broken[0].size = 0;
    broken[1].temperature = -1;
    broken[2].top_p = NAN;
    broken[3].n_logit_bias = 1;
    broken[4].n_dry_breakers = 1;
    for (size_t i = 0; i < sizeof broken / sizeof *broken; i++) REFUSED(qn_session_new(&s, g, &broken[i], &e));
    assert_null(s);
    assert_int_equal(qn_session_new(&s, g, NULL, &e), 0);
    REFUSED(qn_session_step(s, &t, &e)); /* nothing to continue */
    REFUSED(qn_session_logits(s, &logits, &e));
    REFUSED(qn_session_sync(NULL, bad, 1, NULL, &e));
    REFUSED(qn_session_sync(s, NULL, 1, NULL, &e));
    REFUSED(qn_session_sync(s, bad, 0, NULL, &e));
    REFUSED(qn_session_sync(s, bad, SIZE_MAX, NULL, &e));
    REFUSED(qn_session_sync(s, bad, 2, NULL, &e));
    assert_int_equal(qn_session_sync(s, bad, 65, NULL, &e), QN_EFULL); /* not read */
    REFUSED(qn_session_step(NULL, &t, &e));
    REFUSED(qn_session_step(s, NULL, &e));
    REFUSED(qn_session_logits(NULL, &logits, &e));
    REFUSED(qn_session_logits(s, NULL, &e));
    REFUSED(qn_session_fork(NULL, s, &e));
    REFUSED(qn_session_fork(&fork, NULL, &e));
    assert_int_equal(qn_session_tokens(NULL, &tokens), 0);
    qn_session_tokens(s, NULL);
    assert_int_equal(qn_session_sync(s, bad, 1, NULL, &e), 0);
    qn_session_free(NULL);
    qn_session_free(s);
    qn_engine_free(g);
}

/* The engine outlives its caller's mistake, and so does the model. */
static void things_are_freed_before_their_users(void **state)
{
    (void)state;
    qn_model *m = NULL;
    qn_engine *g = NULL;
    qn_session *s = NULL, *fork = NULL;
    qn_text *text = NULL;
    qn_scheduler *scheduler = NULL;
    struct qn_engine_params p;
    const qn_token one = 1;
    const char *bytes;
    size_t n;
    qn_token t;
    qn_engine_params_init(&p);
    p.n_threads = 1;
    p.n_ctx = 64;
    p.n_sessions = 2;
    assert_int_equal(qn_model_open(&m, model_path, &e), 0);
    assert_int_equal(qn_engine_new(&g, m, &p, &e), 0);
    assert_int_equal(qn_session_new(&s, g, NULL, &e), 0);
    assert_int_equal(qn_text_new(&text, m, false, NULL, 0, &e), 0);
    qn_model_close(m);
    qn_engine_free(g);
    assert_int_equal(qn_session_sync(s, &one, 1, NULL, &e), 0);
    assert_int_equal(qn_session_fork(&fork, s, &e), 0);
    qn_session_free(s);
    assert_int_equal(qn_session_step(fork, &t, &e), 0);
    assert_int_equal(qn_text_push(text, t, &bytes, &n, NULL, &e), 0);
    qn_session_free(fork);
    qn_text_free(text);

    g = engine();
    assert_int_equal(qn_scheduler_new(&scheduler, g, NULL, &e), 0);
    qn_engine_free(g);
    qn_scheduler_free(scheduler);
}

static void grammars(void **state)
{
    (void)state;
    qn_grammar *g = NULL;
    struct qn_grammar_params p;
    qn_grammar_params_init(NULL);
    qn_grammar_params_init(&p);
    REFUSED(qn_grammar_new(NULL, model, &p, &e));
    REFUSED(qn_grammar_new(&g, NULL, &p, &e));
    REFUSED(qn_grammar_new(&g, model, NULL, &e));
    p.n = 1;
    REFUSED(qn_grammar_new(&g, model, &p, &e));
    p.n = 0;
    p.kind = (enum qn_grammar_kind)77;
    REFUSED(qn_grammar_new(&g, model, &p, &e));
    qn_grammar_params_init(&p);
    p.size = 1;
    REFUSED(qn_grammar_new(&g, model, &p, &e));
    assert_null(g);
    qn_grammar_free(NULL);
}

/* ---- schedulers ---- */

static struct {
    qn_scheduler *s;
    pthread_mutex_t mutex;
    pthread_cond_t changed;
    int n_done;
    int list_rc, drop_rc;
} seen = {.mutex = PTHREAD_MUTEX_INITIALIZER, .changed = PTHREAD_COND_INITIALIZER};

static void on_event(void *arg, const struct qn_event *event)
{
    (void)arg;
    if (event->type != QN_EVENT_DONE) return;
    struct qn_cached *list = NULL;
    size_t n;
    pthread_mutex_lock(&seen.mutex);
    seen.list_rc = qn_cache_list(seen.s, 0, &list, &n, NULL);
    seen.drop_rc = qn_cache_drop(seen.s, 0, 0, &n, NULL);
    qn_scheduler_free(seen.s); /* refused */
    seen.n_done++;
    pthread_cond_signal(&seen.changed);
    pthread_mutex_unlock(&seen.mutex);
}

static void requests(void **state)
{
    (void)state;
    qn_engine *g = engine();
    qn_session *session = NULL, *other = NULL;
    qn_scheduler *s = NULL, *second = NULL;
    struct qn_scheduler_stats stats = {.size = 8};
    struct qn_cached *list = NULL;
    struct qn_request_params p;
    const qn_token one = 1, bad = -1;
    const char *const null[] = {NULL}, *const some = "x";
    const int boundary = 2;
    qn_token t;
    uint64_t id = 7;
    size_t n = 7;
    REFUSED(qn_scheduler_new(NULL, g, NULL, &e));
    REFUSED(qn_scheduler_new(&s, NULL, NULL, &e));
    assert_int_equal(qn_session_new(&session, g, NULL, &e), 0);
    assert_int_equal(qn_scheduler_new(&s, g, NULL, &e), 0);
    REFUSED(qn_scheduler_new(&second, g, NULL, &e));
    REFUSED(qn_session_new(&other, g, NULL, &e)); /* the engine is the scheduler's */
    REFUSED(qn_session_sync(session, &one, 1, NULL, &e));
    REFUSED(qn_session_step(session, &t, &e));
    assert_int_equal(qn_scheduler_stats(NULL, &stats), QN_EUSAGE);
    assert_int_equal(qn_scheduler_stats(s, NULL), QN_EUSAGE);
    assert_int_equal(qn_scheduler_stats(s, &stats), QN_EUSAGE);
    REFUSED(qn_scheduler_look(NULL, &e));
    assert_false(qn_cancel(NULL, 1));
    assert_false(qn_cancel(s, 12345));
    REFUSED(qn_cache_list(NULL, 0, &list, &n, &e));
    REFUSED(qn_cache_list(s, 0, NULL, &n, &e));
    REFUSED(qn_cache_list(s, 0, &list, NULL, &e));
    REFUSED(qn_cache_drop(NULL, 0, 0, &n, &e));
    REFUSED(qn_cache_drop(s, 0, 0, NULL, &e));
    REFUSED(qn_cache_drop_files(NULL, 0, &n, &e));
    REFUSED(qn_cache_drop_files("/", 0, NULL, &e));

#define BAD(...)                                                                                                       \
    qn_request_params_init(&p);                                                                                        \
    p.prompt = &one;                                                                                                   \
    p.n_prompt = 1;                                                                                                    \
    p.max_tokens = 2;                                                                                                  \
    p.callback = on_event;                                                                                             \
    __VA_ARGS__;                                                                                                       \
    REFUSED(qn_submit(s, &p, &id, NULL, &e))
    qn_request_params_init(NULL);
    REFUSED(qn_submit(s, NULL, &id, NULL, &e));
    BAD(p.size = 0);
    BAD(p.callback = NULL);
    BAD(p.prompt = NULL);
    BAD(p.n_prompt = 0);
    BAD(p.n_prompt = SIZE_MAX);
    BAD(p.prompt = &bad);
    BAD(p.n_boundaries = 1);
    BAD(p.boundaries = &boundary; p.n_boundaries = 1);
    qn_grammar *grammar = NULL;
    struct qn_grammar_params gp;
    qn_grammar_params_init(&gp);
    assert_int_equal(qn_grammar_new(&grammar, model, &gp, &e), 0);
    BAD(p.grammar = grammar; p.ignore_eog = true);
    BAD(p.grammar = grammar; p.pooling = QN_POOL_MEAN);
    qn_grammar_free(grammar);
    BAD(p.n_stop = 1);
    BAD(p.stop = null; p.n_stop = 1);
    BAD(p.n_stop_tokens = 1);
    BAD(p.stop_tokens = &bad; p.n_stop_tokens = 1);
    BAD(p.no_text = true; p.stop = &some; p.n_stop = 1);
    BAD(p.max_tokens = -2);
    BAD(p.n_answers = 0);
    BAD(p.n_answers = INT32_MAX);
    BAD(p.n_top_logprobs = QN_MAX_TOP_LOGPROBS + 1);
    BAD(p.prompt_logprobs = true);
    BAD(p.deadline_ms = -1);
    BAD(p.pooling = (enum qn_pooling)9);
    BAD(p.sampling.size = 0);
    BAD(p.sampling.temperature = NAN);
    BAD(p.sampling.n_logit_bias = 3);
    REFUSED(qn_submit(NULL, &p, &id, NULL, &e));
    assert_int_equal(id, 7);
    BAD(p.n_answers = 0);
    p.n_answers = 1;
    seen.s = s;
    assert_int_equal(qn_submit(s, &p, &id, NULL, &e), 0);
    pthread_mutex_lock(&seen.mutex);
    while (!seen.n_done) pthread_cond_wait(&seen.changed, &seen.mutex);
    pthread_mutex_unlock(&seen.mutex);
    assert_int_equal(seen.list_rc, QN_EUSAGE); /* they would wait for the thread that calls them */
    assert_int_equal(seen.drop_rc, QN_EUSAGE);
    assert_null(list);
    assert_int_equal(n, 7);
    qn_scheduler_stop(NULL, 0);
    qn_scheduler_stop(s, NAN);
    qn_scheduler_stop(s, -1);
    assert_int_equal(qn_submit(s, &p, &id, NULL, &e), QN_ECANCEL);
    qn_scheduler_free(s);
    qn_scheduler_free(NULL);
    assert_int_equal(qn_session_sync(session, &one, 1, NULL, &e), 0); /* the engine is free again */
    qn_session_free(session);
    qn_engine_free(g);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(models_and_tokens),
        cmocka_unit_test(texts),
        cmocka_unit_test(chats),
        cmocka_unit_test(engines_and_sessions),
        cmocka_unit_test(things_are_freed_before_their_users),
        cmocka_unit_test(grammars),
        cmocka_unit_test(requests),
    };
    if (argc != 2) return 2;
    model_path = argv[1];
    if (qn_model_open(&model, model_path, &e)) return 1;
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    qn_model_close(model);
    return failed;
}
