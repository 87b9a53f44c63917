/* SPDX-License-Identifier: MIT
 *
 * test_guided.c: answers with a grammar, through quern.h, on a small random model.
 *
 *     test_guided MODEL
 *
 * The text of such an answer is one of the grammar's texts, or the beginning of one. Its tokens are the same alone, in
 * a batch, when it gave way, and when its masks are made by another thread.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <jansson.h>
#include <quern.h>

#include "engine/engine.h"

#define N_CTX     512
#define N_ANSWERS 3
#define N_PROMPT  30

static qn_model *model;
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

/* ---- requests ---- */

struct told {
    char text[N_ANSWERS][N_CTX * 20];
    qn_token token[N_ANSWERS][N_CTX];
    float logprob[N_ANSWERS][N_CTX];
    int n[N_ANSWERS];
    enum qn_finish finish[N_ANSWERS], outcome;
    struct qn_error error;
    int n_done, n_pauses;
};

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t done = PTHREAD_COND_INITIALIZER;

static void on_event(void *arg, const struct qn_event *ev)
{
    struct told *r = arg;
    int a = ev->answer;
    pthread_mutex_lock(&mutex);
    if (ev->type == QN_EVENT_TOKEN) {
        r->token[a][r->n[a]] = ev->token;
        r->logprob[a][r->n[a]++] = ev->logprob;
    }
    if (ev->type == QN_EVENT_TOKEN || ev->type == QN_EVENT_FINISH) strncat(r->text[a], ev->text, ev->n_text);
    if (ev->type == QN_EVENT_FINISH) r->finish[a] = ev->finish;
    if (ev->type == QN_EVENT_PAUSE) r->n_pauses++;
    if (ev->type == QN_EVENT_DONE) {
        r->outcome = ev->finish;
        if (ev->error) r->error = *ev->error;
        r->n_done++;
    }
    pthread_cond_broadcast(&done);
    pthread_mutex_unlock(&mutex);
}

static void wait_for(const struct told *r)
{
    pthread_mutex_lock(&mutex);
    while (!r->n_done) pthread_cond_wait(&done, &mutex);
    pthread_mutex_unlock(&mutex);
}

static struct told *told(void)
{
    struct told *r = calloc(1, sizeof *r);
    assert_non_null(r);
    return r;
}

struct place {
    qn_engine *engine;
    qn_scheduler *scheduler;
};

static struct place place(int n_running, int kv_tokens)
{
    struct place p = {0};
    struct qn_engine_params ep;
    struct qn_scheduler_params sp;
    qn_engine_params_init(&ep);
    ep.n_threads = 2;
    ep.n_ctx = N_CTX;
    ep.kv_tokens = kv_tokens ? kv_tokens : n_running * N_CTX;
    ep.n_sessions = n_running + 1;
    ep.n_batch = 96;
    OK(qn_engine_new(&p.engine, model, &ep, &e));
    qn_scheduler_params_init(&sp);
    sp.n_running = n_running;
    OK(qn_scheduler_new(&p.scheduler, p.engine, &sp, &e));
    return p;
}

static void leave(struct place p)
{
    qn_scheduler_free(p.scheduler);
    qn_engine_free(p.engine);
}

static qn_grammar *grammar(enum qn_grammar_kind kind, const char *text)
{
    qn_grammar *g = NULL;
    struct qn_grammar_params p;
    qn_grammar_params_init(&p);
    p.kind = kind;
    p.text = text;
    p.n = strlen(text);
    OK(qn_grammar_new(&g, model, &p, &e));
    return g;
}

static struct qn_request_params request(const qn_grammar *g, int seed, struct told *r)
{
    static qn_token prompt[N_PROMPT];
    struct qn_request_params p;
    qn_request_params_init(&p);
    for (int i = 0; i < N_PROMPT; i++) prompt[i] = 5 + i % 20;
    p.prompt = prompt;
    p.n_prompt = N_PROMPT;
    p.sampling.seed = (uint64_t)seed;
    p.sampling.temperature = 1.5f;
    p.sampling.top_k = 0;
    p.sampling.top_p = 1;
    p.sampling.min_p = 0;
    p.max_tokens = 300;
    p.n_top_logprobs = 0;
    p.grammar = g;
    p.callback = on_event;
    p.arg = r;
    return p;
}

/* One request on a scheduler of its own. */
static struct told *alone(const qn_grammar *g, int seed, int n_answers)
{
    struct place at = place(n_answers, 0);
    struct told *r = told();
    struct qn_request_params p = request(g, seed, r);
    p.n_answers = n_answers;
    OK(qn_submit(at.scheduler, &p, NULL, NULL, &e));
    wait_for(r);
    leave(at);
    return r;
}

static void same(const struct told *a, int i, const struct told *b, int k)
{
    assert_string_equal(a->text[i], b->text[k]);
    assert_int_equal(a->n[i], b->n[k]);
    assert_memory_equal(a->token[i], b->token[k], (size_t)a->n[i] * sizeof(qn_token));
    assert_memory_equal(a->logprob[i], b->logprob[k], (size_t)a->n[i] * sizeof(float));
    assert_int_equal(a->finish[i], b->finish[k]);
}

/* ---- tests ---- */

#define PERSON                                                                                                         \
    "{\"type\":\"object\",\"properties\":{\"name\":{\"type\":\"string\",\"maxLength\":8},\"age\":{\"type\":"           \
    "\"integer\",\"minimum\":0,\"maximum\":150},\"tags\":{\"type\":\"array\",\"items\":{\"enum\":[\"red\","            \
    "\"green\"]},\"maxItems\":3}},\"required\":[\"name\",\"age\",\"tags\"],\"additionalProperties\":false}"

static void an_answer_fits_its_schema(void **state)
{
    (void)state;
    qn_grammar *g = grammar(QN_GRAMMAR_JSON_SCHEMA, PERSON);
    for (int seed = 0; seed < 10; seed++) {
        struct told *r = alone(g, seed, 1);
        json_t *v = json_loads(r->text[0], 0, NULL);
        assert_int_equal(r->outcome, QN_FINISH_STOP_TOKEN);
        if (!json_is_string(json_object_get(v, "name")) || !json_is_integer(json_object_get(v, "age")) ||
            !json_is_array(json_object_get(v, "tags")) || json_object_size(v) != 3)
            fail_msg("%s", r->text[0]);
        json_decref(v);
        free(r);
    }
    qn_grammar_free(g);
}

static void each_kind_gives_its_texts(void **state)
{
    (void)state;
    static const struct {
        enum qn_grammar_kind kind;
        const char *text, *answer;
    } cases[] = {
        {QN_GRAMMAR_CHOICE, "[\"exactly this\"]", "exactly this"},
        {QN_GRAMMAR_REGEX, "ab{3}c", "abbbc"},
        {QN_GRAMMAR_GBNF, "root ::= \"x\" y\ny ::= \"[1]\"", "x[1]"},
        {QN_GRAMMAR_JSON_SCHEMA, "{\"const\":{\"a\":[true,null]}}", "{\"a\":[true,null]}"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        qn_grammar *g = grammar(cases[i].kind, cases[i].text);
        struct told *r = alone(g, 3, 1);
        assert_string_equal(r->text[0], cases[i].answer);
        assert_int_equal(r->outcome, QN_FINISH_STOP_TOKEN);
        free(r);
        qn_grammar_free(g);
    }
}

static void a_json_object_is_one_or_its_beginning(void **state)
{
    (void)state;
    qn_grammar *g = grammar(QN_GRAMMAR_JSON_OBJECT, "");
    for (int seed = 0; seed < 6; seed++) {
        struct told *r = alone(g, seed, 1);
        json_t *v = json_loads(r->text[0], 0, NULL);
        assert_true(r->text[0][0] == '{');
        assert_true(json_is_object(v) || r->outcome == QN_FINISH_LENGTH);
        json_decref(v);
        free(r);
    }
    qn_grammar_free(g);
}

static void answers_are_the_same_in_a_batch_and_among_others(void **state)
{
    (void)state;
    qn_grammar *g = grammar(QN_GRAMMAR_JSON_SCHEMA, PERSON), *other = grammar(QN_GRAMMAR_REGEX, "[a-z ]{5,40}");
    struct told *three = alone(g, 20, 3);
    for (int i = 0; i < 3; i++) {
        struct told *one = alone(g, 20 + i, 1);
        same(three, i, one, 0);
        free(one);
    }
    struct place at = place(6, 0);
    struct told *many[6];
    for (int i = 0; i < 6; i++) {
        struct qn_request_params p = request(i < 3 ? g : i < 5 ? other : NULL, 20 + i, many[i] = told());
        OK(qn_submit(at.scheduler, &p, NULL, NULL, &e));
    }
    for (int i = 0; i < 6; i++) {
        wait_for(many[i]);
        if (i < 3) same(three, i, many[i], 0);
        struct told *one = i < 3 ? NULL : alone(i < 5 ? other : NULL, 20 + i, 1);
        if (one) same(one, 0, many[i], 0);
        free(one);
        free(many[i]);
    }
    leave(at);
    free(three);
    qn_grammar_free(g);
    qn_grammar_free(other);
}

static void an_answer_that_gave_way_goes_on_in_its_grammar(void **state)
{
    (void)state;
    qn_grammar *g = grammar(QN_GRAMMAR_REGEX, "([a-z]{3,9} ){60,90}");
    struct place at = place(2, N_CTX);
    struct told *r[2] = {told(), told()};
    for (int i = 0; i < 2; i++) {
        struct qn_request_params p = request(g, 40 + i, r[i]);
        p.priority = i; /* the second one takes the pages of the first one, which is in the middle of its text */
        pthread_mutex_lock(&mutex);
        while (i && r[0]->n[0] < 10) pthread_cond_wait(&done, &mutex);
        pthread_mutex_unlock(&mutex);
        OK(qn_submit(at.scheduler, &p, NULL, NULL, &e));
    }
    for (int i = 0; i < 2; i++) wait_for(r[i]);
    assert_true(r[0]->n_pauses > 0);
    leave(at);
    for (int i = 0; i < 2; i++) {
        struct told *one = alone(g, 40 + i, 1);
        same(one, 0, r[i], 0);
        free(one);
        free(r[i]);
    }
    qn_grammar_free(g);
}

/* Many items with bounds that are compared digit by digit, and patterns: masks that take long at first. */
#define SLOW                                                                                                           \
    "{\"type\":\"array\",\"minItems\":3,\"maxItems\":6,\"uniqueItems\":true,\"items\":{\"anyOf\":[{\"type\":"          \
    "\"string\",\"pattern\":\"^(a|ab|abc|b|bc|c|ca){3,30}$\",\"not\":{\"pattern\":\"(abc|cab){2}\"}},"                 \
    "{\"type\":\"integer\",\"multipleOf\":97,\"minimum\":-99999,\"maximum\":99999}]}}"

static void a_slow_mask_holds_up_only_its_own_answer(void **state)
{
    (void)state;
    qn_grammar *slow = grammar(QN_GRAMMAR_JSON_SCHEMA, SLOW);
    struct place at = place(3, 0);
    struct told *r[3];
    for (int i = 0; i < 3; i++) {
        struct qn_request_params p = request(i < 2 ? slow : NULL, 60 + i, r[i] = told());
        OK(qn_submit(at.scheduler, &p, NULL, NULL, &e));
    }
    qn_grammar_free(slow); /* its requests go on */
    slow = grammar(QN_GRAMMAR_JSON_SCHEMA, SLOW);
    for (int i = 0; i < 3; i++) {
        wait_for(r[i]);
        struct told *one = alone(i < 2 ? slow : NULL, 60 + i, 1);
        same(one, 0, r[i], 0);
        free(one);
        free(r[i]);
    }
    leave(at);
    qn_grammar_free(slow);
}

static int n_stages; /* of the next test; with the mutex */

/* With the first token it waits until the test has the grammar's lock. */
static void on_held_event(void *arg, const struct qn_event *ev)
{
    on_event(arg, ev);
    pthread_mutex_lock(&mutex);
    if (ev->type == QN_EVENT_TOKEN && n_stages == 0) {
        n_stages = 1;
        pthread_cond_broadcast(&done);
        while (n_stages == 1) pthread_cond_wait(&done, &mutex);
    }
    pthread_mutex_unlock(&mutex);
}

/* The grammar's lock stands for a mask that takes as long as it likes. */
static void without_a_mask_the_scheduler_looks_after_the_others(void **state)
{
    (void)state;
    qn_grammar *g = grammar(QN_GRAMMAR_JSON_SCHEMA, SLOW);
    struct place at = place(3, 0);
    struct told *held = told(), *late = told(), *other = told();
    struct qn_request_params p = request(g, 1, held), q = request(g, 2, late), free_one = request(NULL, 3, other);
    uint64_t id;
    n_stages = 0;
    p.callback = on_held_event;
    q.deadline_ms = 100;
    OK(qn_submit(at.scheduler, &q, NULL, NULL, &e));
    OK(qn_submit(at.scheduler, &p, &id, NULL, &e));
    pthread_mutex_lock(&mutex);
    while (n_stages == 0) pthread_cond_wait(&done, &mutex);
    pthread_mutex_unlock(&mutex);
    pthread_mutex_lock(&g->shelved->lock);
    pthread_mutex_lock(&mutex);
    n_stages = 2;
    pthread_cond_broadcast(&done);
    pthread_mutex_unlock(&mutex);
    wait_for(late); /* it ends at its deadline, if it had not ended before */
    OK(qn_submit(at.scheduler, &free_one, NULL, NULL, &e));
    wait_for(other);
    qn_cancel(at.scheduler, id);
    wait_for(held);
    pthread_mutex_unlock(&g->shelved->lock);
    assert_true(other->n[0] > 0);
    assert_int_equal(held->outcome, QN_FINISH_CANCELLED);
    leave(at);
    free(held);
    free(late);
    free(other);
    qn_grammar_free(g);
}

static void a_cancelled_answer_leaves_nothing(void **state)
{
    (void)state;
    struct place at = place(2, 0);
    for (int i = 0; i < 20; i++) {
        qn_grammar *g = grammar(QN_GRAMMAR_JSON_SCHEMA, SLOW);
        struct told *r = told();
        struct qn_request_params p = request(g, i, r);
        uint64_t id;
        OK(qn_submit(at.scheduler, &p, &id, NULL, &e));
        qn_grammar_free(g);
        qn_cancel(at.scheduler, id);
        wait_for(r);
        free(r);
    }
    leave(at);
}

static void logprobs_are_those_before_the_mask(void **state)
{
    (void)state;
    qn_grammar *g = grammar(QN_GRAMMAR_CHOICE, "[\"exactly this\"]");
    struct told *r = alone(g, 1, 1);
    double sum = 0; /* after the mask each step has one candidate or few, so that the sum would be near 0 */
    for (int i = 0; i < r->n[0]; i++) sum += (double)r->logprob[0][i];
    assert_true(sum < -3);
    free(r);
    qn_grammar_free(g);
}

static void banned_tokens_end_the_request_with_their_place(void **state)
{
    (void)state;
    qn_grammar *g = grammar(QN_GRAMMAR_REGEX, "aaaab");
    struct place at = place(1, 0);
    struct told *r = told();
    struct qn_request_params p = request(g, 1, r);
    struct qn_logit_bias bans[4096];
    for (qn_token t = 0; t < qn_model_n_vocab(model); t++) {
        char *bytes;
        size_t n;
        OK(qn_token_bytes(model, t, false, &bytes, &n, &e));
        if (n && memchr(bytes, 'b', n)) bans[p.sampling.n_logit_bias++] = (struct qn_logit_bias){t, -INFINITY};
        qn_free(bytes);
        assert_true(p.sampling.n_logit_bias < 4096);
    }
    p.sampling.logit_bias = bans;
    OK(qn_submit(at.scheduler, &p, NULL, NULL, &e));
    wait_for(r);
    assert_int_equal(r->outcome, QN_FINISH_ERROR);
    assert_int_equal(r->error.code, QN_EDATA);
    assert_non_null(strstr(r->error.msg, "after 4 bytes of text, which end in 'aaaa'"));
    free(r);
    leave(at);
    qn_grammar_free(g);
}

/* The text is kept with the grammar, so it counts: a comment of 16 MiB is as bad as a grammar of 16 MiB. */
static void a_grammar_and_its_text_have_one_limit(void **state)
{
    (void)state;
    qn_grammar *g = NULL;
    struct qn_grammar_params p;
    const size_t most = (size_t)16 << 20;
    const char root[] = "root ::= \"x\"\n#";
    char *text = malloc(most);
    assert_non_null(text);
    memset(text, ' ', most);
    memcpy(text, root, sizeof root - 1);
    qn_grammar_params_init(&p);
    p.kind = QN_GRAMMAR_GBNF;
    p.text = text;
    p.n = most;
    REFUSED(qn_grammar_new(&g, model, &p, &e), QN_EUNSUP, "16777216");
    p.n = most - 100;
    REFUSED(qn_grammar_new(&g, model, &p, &e), QN_EUNSUP, "memory");
    p.n = most / 2;
    OK(qn_grammar_new(&g, model, &p, &e));
    qn_grammar_free(g);
    free(text);
}

static void bad_grammars_are_refused_with_their_place(void **state)
{
    (void)state;
    qn_grammar *g = NULL;
    struct qn_grammar_params p;
    qn_grammar_params_init(&p);
    p.kind = QN_GRAMMAR_JSON_SCHEMA;
#define TEXT(s) (p.text = (s), p.n = strlen(s))
    TEXT("{\"properties\":{\"a\":{\"pattern\":\"(a)\\\\1\"}}}");
    REFUSED(qn_grammar_new(&g, model, &p, &e), QN_EUNSUP, "/properties/a/pattern: ");
    TEXT("{\"format\":\"dob\",\"type\":\"string\"}");
    REFUSED(qn_grammar_new(&g, model, &p, &e), QN_EUNSUP, "/format: ");
    TEXT("{");
    REFUSED(qn_grammar_new(&g, model, &p, &e), QN_EDATA, "line 1, column ");
    TEXT("false");
    REFUSED(qn_grammar_new(&g, model, &p, &e), QN_EDATA, "");
    p.kind = QN_GRAMMAR_GBNF;
    TEXT("root ::= nothing");
    REFUSED(qn_grammar_new(&g, model, &p, &e), QN_EDATA, "nothing");
    p.kind = QN_GRAMMAR_CHOICE;
    TEXT("[1]");
    REFUSED(qn_grammar_new(&g, model, &p, &e), QN_EDATA, "choice 1 ");
    TEXT("[]");
    REFUSED(qn_grammar_new(&g, model, &p, &e), QN_EDATA, "choices");
    p.kind = (enum qn_grammar_kind)9;
    REFUSED(qn_grammar_new(&g, model, &p, &e), QN_EUSAGE, "unknown kind 9");
    p.size--;
    REFUSED(qn_grammar_new(&g, model, &p, &e), QN_EUSAGE, "parameter struct");
    assert_null(g);

    g = grammar(QN_GRAMMAR_JSON_OBJECT, "");
    struct place at = place(1, 0);
    struct told r = {0};
    struct qn_request_params q = request(g, 1, &r);
    q.ignore_eog = true;
    REFUSED(qn_submit(at.scheduler, &q, NULL, NULL, &e), QN_EUSAGE, "ignore_eog");
    leave(at);
    qn_grammar_free(g);
}

static void grammars_beyond_the_places_are_refused(void **state)
{
    (void)state;
    qn_grammar *g[32], *more = NULL;
    struct qn_grammar_params p;
    char text[32];
    for (int i = 0; i < 32; i++) {
        snprintf(text, sizeof text, "[\"text %d\"]", i);
        g[i] = grammar(QN_GRAMMAR_CHOICE, text);
    }
    qn_grammar *again = grammar(QN_GRAMMAR_CHOICE, text); /* the same text needs no place */
    qn_grammar_params_init(&p);
    p.kind = QN_GRAMMAR_CHOICE;
    TEXT(text);
    p.salt[1] = 1; /* the same text under another salt does */
    REFUSED(qn_grammar_new(&more, model, &p, &e), QN_EBUSY, "32 grammars are in use");
    p.kind = QN_GRAMMAR_REGEX;
    TEXT("x");
    REFUSED(qn_grammar_new(&more, model, &p, &e), QN_EBUSY, "32 grammars are in use");
    qn_grammar_free(again);
    qn_grammar_free(g[0]);
    OK(qn_grammar_new(&more, model, &p, &e));
    qn_grammar_free(more);
    for (int i = 1; i < 32; i++) qn_grammar_free(g[i]);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(an_answer_fits_its_schema),
        cmocka_unit_test(each_kind_gives_its_texts),
        cmocka_unit_test(a_json_object_is_one_or_its_beginning),
        cmocka_unit_test(answers_are_the_same_in_a_batch_and_among_others),
        cmocka_unit_test(an_answer_that_gave_way_goes_on_in_its_grammar),
        cmocka_unit_test(a_slow_mask_holds_up_only_its_own_answer),
        cmocka_unit_test(without_a_mask_the_scheduler_looks_after_the_others),
        cmocka_unit_test(a_cancelled_answer_leaves_nothing),
        cmocka_unit_test(logprobs_are_those_before_the_mask),
        cmocka_unit_test(banned_tokens_end_the_request_with_their_place),
        cmocka_unit_test(bad_grammars_are_refused_with_their_place),
        cmocka_unit_test(a_grammar_and_its_text_have_one_limit),
        cmocka_unit_test(grammars_beyond_the_places_are_refused),
    };
    if (argc != 2 || qn_model_open(&model, argv[1], &e)) {
        fprintf(stderr, "test_guided: %s\n", e.code ? e.msg : "one model, please");
        return 1;
    }
    int rc = cmocka_run_group_tests(tests, NULL, NULL);
    qn_model_close(model);
    return rc;
}
