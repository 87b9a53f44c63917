/* SPDX-License-Identifier: MIT
 *
 * test_alloc.c: every operation of quern.h with its first, its second, ... allocation failing, and a decode step that
 * allocates nothing.
 *
 *     test_alloc MODEL
 *
 * An operation in which some allocation fails must return QN_ENOMEM with a message, write no output, lose no memory and
 * leave what it worked on as it was, which is shown by doing it again and getting what a run without faults gives. It
 * is repeated with the fault one allocation later until none is hit; so no path is left out, however many there are.
 *
 * Memory that is lost is seen twice: by LeakSanitizer in its build, and elsewhere by our own malloc below, which takes
 * the place of the C library's in this program and counts the blocks that live. It also sees what goes past base/mem.h.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <errno.h>
#include <malloc.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"

/* ---- the C library's allocator, counted ---- */

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define COUNTED 0 /* a sanitizer's allocator cannot be replaced */
#elif defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer) || __has_feature(memory_sanitizer)
#define COUNTED 0
#endif
#endif
#ifndef COUNTED
#define COUNTED 1
#endif

static _Atomic long n_calls, n_live; /* calls that may allocate; blocks not freed */

#if COUNTED
void *__libc_malloc(size_t n);
void *__libc_calloc(size_t n, size_t size);
void *__libc_realloc(void *p, size_t n);
void *__libc_memalign(size_t align, size_t n);
void __libc_free(void *p);

static void *counted(void *p)
{
    n_calls++;
    if (p) n_live++;
    return p;
}

#define EXPORT __attribute__((visibility("default"))) /* so that the C library calls them too */
EXPORT void *malloc(size_t n) { return counted(__libc_malloc(n)); }
EXPORT void *calloc(size_t n, size_t size) { return counted(__libc_calloc(n, size)); }
EXPORT void *aligned_alloc(size_t align, size_t n) { return counted(__libc_memalign(align, n)); }
EXPORT void *memalign(size_t align, size_t n) { return counted(__libc_memalign(align, n)); }
EXPORT int posix_memalign(void **out, size_t align, size_t n)
{
    void *p = counted(__libc_memalign(align, n));
    if (p) *out = p;
    return p ? 0 : ENOMEM;
}
EXPORT void *realloc(void *p, size_t n)
{
    if (!p) return malloc(n);
    n_calls++;
    void *q = __libc_realloc(p, n);
    if (!q && n == 0) n_live--; /* freed */
    return q;
}
EXPORT void free(void *p)
{
    if (p) n_live--;
    __libc_free(p);
}
#endif

/* ---- what the operations work on ---- */

#define N_CTX  160
#define PROMPT "once upon a time there was"

static const char *path;
static struct world {
    qn_model *model;
    qn_engine *engine;
    qn_session *session;
    qn_text *text;
    qn_token tokens[40];
    /* results */
    qn_token *ids, token;
    size_t n_ids, n_bytes;
    const char *bytes;
} w;

static struct qn_engine_params engine_params(int n_threads)
{
    struct qn_engine_params p;
    qn_engine_params_init(&p);
    p.n_threads = n_threads;
    p.n_ctx = N_CTX;
    p.n_batch = 16;
    p.n_sessions = 3;
    return p;
}

static struct qn_sampling sampling(void)
{
    struct qn_sampling s;
    qn_sampling_init(&s);
    s.seed = 3;
    s.penalty_last_n = -1;
    s.repetition_penalty = 1.1f;
    s.frequency_penalty = 0.1f;
    s.dry_multiplier = 0.5f; /* all that looks back at the history */
    return s;
}

static const char *const stops[] = {"the end", "once upon another time"};

static int open_model(void **out, struct qn_error *e) { return qn_model_open((qn_model **)out, path, e); }
static void close_model(void *p) { qn_model_close(p); }

static int new_engine(void **out, struct qn_error *e)
{
    struct qn_engine_params p = engine_params(2);
    return qn_engine_new((qn_engine **)out, w.model, &p, e);
}
static void free_engine(void *p) { qn_engine_free(p); }

static int new_session(void **out, struct qn_error *e)
{
    struct qn_sampling s = sampling();
    return qn_session_new((qn_session **)out, w.engine, &s, e);
}
static int fork_session(void **out, struct qn_error *e) { return qn_session_fork((qn_session **)out, w.session, e); }
static void free_session(void *p) { qn_session_free(p); }

static int new_text(void **out, struct qn_error *e) { return qn_text_new((qn_text **)out, w.model, true, stops, 2, e); }
static void free_text(void *p) { qn_text_free(p); }

static int new_conversation(void **out, struct qn_error *e)
{
    qn_conversation *c = NULL;
    int rc = qn_conversation_new(&c, e);
    if (!rc) rc = qn_conversation_add(c, "user", PROMPT, strlen(PROMPT), e);
    if (!rc)
        *out = c;
    else
        qn_conversation_free(c);
    return rc;
}
static void free_conversation(void *p) { qn_conversation_free(p); }

static int tokenize(void **out, struct qn_error *e)
{
    return qn_tokenize(w.model, PROMPT, strlen(PROMPT), QN_ADD_BOS | QN_PARSE_SPECIAL, NULL, (qn_token **)out, &w.n_ids,
                       e);
}

static int new_scheduler(void **out, struct qn_error *e)
{
    return qn_scheduler_new((qn_scheduler **)out, w.engine, NULL, e);
}
static void free_scheduler(void *p) { qn_scheduler_free(p); }

static void setup(void)
{
    struct qn_error e;
    void *p = NULL;
    w = (struct world){0};
    for (int i = 0; i < 40; i++) w.tokens[i] = i * 7 + 1;
    if (open_model(&p, &e)) fail_msg("%s", e.msg);
    w.model = p;
    if (new_engine(&p, &e)) fail_msg("%s", e.msg);
    w.engine = p;
    if (new_session(&p, &e)) fail_msg("%s", e.msg);
    w.session = p;
    if (new_text(&p, &e)) fail_msg("%s", e.msg);
    w.text = p;
}

static void teardown(void)
{
    qn_text_free(w.text);
    qn_session_free(w.session);
    qn_engine_free(w.engine);
    qn_model_close(w.model);
}

/* ---- faults ---- */

/* An operation that makes something, with every allocation failing in turn. Returns how many it has. At most
 * n_optional of them are for something that can be done without. */
static int make_with_faults(int (*make)(void **, struct qn_error *), void (*destroy)(void *), int n_optional)
{
    void *const untouched = &w;
    void *out = NULL;
    assert_int_equal(make(&out, NULL), 0); /* the C library keeps some memory of the first thread that ends */
    destroy(out);
    for (int n = 1;; n++) {
        struct qn_error e = {0};
        long live = n_live;
        out = untouched;
        mem_fault_set((uint64_t)n);
        int rc = make(&out, &e), hit = mem_fault_hit();
        mem_fault_set(0);
        if (rc == 0) {
            destroy(out);
            if (hit && n_optional-- <= 0) fail_msg("allocation %d failed, and nobody minded", n);
        } else if (!hit || rc != QN_ENOMEM || e.code != QN_ENOMEM || !e.msg[0] || out != untouched) {
            fail_msg("allocation %d: %d '%s'", n, rc, e.msg);
        }
        if (n_live != live) fail_msg("allocation %d: %ld blocks lost", n, n_live - live);
        if (!hit) return n - 1;
    }
}

static void opening_a_model(void **state)
{
    (void)state;
    /* PCRE2's compiler to machine code takes some ten allocations, for the code and while it works. When one fails
     * there is no machine code, and the pattern is interpreted: slower, the same pieces of text, so opening succeeds.
     */
    assert_true(make_with_faults(open_model, close_model, 12) > 5);
}

static void making_things(void **state)
{
    (void)state;
    setup();
    assert_true(make_with_faults(new_engine, free_engine, 0) > 5);
    assert_true(make_with_faults(new_session, free_session, 0) > 5);
    qn_session_free(w.session);
    w.session = NULL;
    assert_true(make_with_faults(new_scheduler, free_scheduler, 2) > 5); /* it can do without n-grams: `auto` */
    assert_true(make_with_faults(new_text, free_text, 0) > 2);
    assert_true(make_with_faults(new_conversation, free_conversation, 0) > 0);
    assert_true(make_with_faults(tokenize, qn_free, 0) > 1);
    teardown();
}

static void forking(void **state)
{
    (void)state;
    struct qn_error e;
    const qn_token *before, *after;
    const float *logits;
    static float kept[1 << 16];
    setup();
    size_t n_vocab = (size_t)qn_model_n_vocab(w.model);
    assert_true(n_vocab <= sizeof kept / sizeof *kept);
    assert_int_equal(qn_session_sync(w.session, w.tokens, 40, NULL, &e), 0);
    assert_int_equal(qn_session_logits(w.session, &logits, &e), 0);
    memcpy(kept, logits, n_vocab * sizeof *kept);
    size_t n = qn_session_tokens(w.session, &before);
    assert_true(make_with_faults(fork_session, free_session, 0) > 5);
    assert_int_equal(qn_session_tokens(w.session, &after), n);
    assert_memory_equal(after, w.tokens, sizeof w.tokens);
    assert_int_equal(qn_session_logits(w.session, &logits, &e), 0);
    assert_memory_equal(logits, kept, n_vocab * sizeof *kept);
    teardown();
}

/* Pushes a token until no allocation is left to fail; what comes out at last goes to out. Adds to *n_faults how many
 * failed. */
static size_t push_with_faults(qn_text *t, qn_token token, char *out, int *n_faults)
{
    for (uint64_t n = 1;; n++) {
        struct qn_error e = {0};
        const char *bytes = NULL;
        size_t n_bytes = 0;
        bool stopped;
        mem_fault_set(n);
        int rc = qn_text_push(t, token, &bytes, &n_bytes, &stopped, &e), hit = mem_fault_hit();
        mem_fault_set(0);
        if (!hit) {
            assert_int_equal(rc, 0);
            memcpy(out, bytes, n_bytes);
            return n_bytes;
        }
        assert_int_equal(rc, QN_ENOMEM);
        assert_null(bytes);
        ++*n_faults;
    }
}

/* A text of whole words, single bytes and the pieces of "é": its pushes fail and are repeated. */
static void text_is_the_same_after_faults(void **state)
{
    (void)state;
    static const char source[] = "the cat, the dog and the \xc3\xa9l\xc3\xa9phant; in the en\xc3 of once upon an";
    struct qn_error e;
    static char want[1000], got[1000];
    size_t n_want = 0, n_got = 0, n;
    int n_faults = 0;
    const char *bytes;
    setup();
    void *p = NULL;
    assert_int_equal(qn_tokenize(w.model, source, strlen(source), 0, NULL, &w.ids, &w.n_ids, &e), 0);
    for (size_t i = 0; i < w.n_ids; i++) {
        assert_int_equal(qn_text_push(w.text, w.ids[i], &bytes, &n, NULL, &e), 0);
        memcpy(want + n_want, bytes, n);
        n_want += n;
    }
    for (size_t i = 0; i < w.n_ids; i++) { /* a new text each time: its buffers have not grown yet */
        assert_int_equal(new_text(&p, &e), 0);
        n_got = 0;
        for (size_t j = 0; j < i; j++) {
            assert_int_equal(qn_text_push(p, w.ids[j], &bytes, &n, NULL, &e), 0);
            memcpy(got + n_got, bytes, n);
            n_got += n;
        }
        n_got += push_with_faults(p, w.ids[i], got + n_got, &n_faults);
        for (size_t j = i + 1; j < w.n_ids; j++) {
            assert_int_equal(qn_text_push(p, w.ids[j], &bytes, &n, NULL, &e), 0);
            memcpy(got + n_got, bytes, n);
            n_got += n;
        }
        assert_int_equal(n_got, n_want);
        assert_memory_equal(got, want, n_want);
        qn_text_free(p);
    }
    assert_true(n_faults > 0); /* only where bytes that are not UTF-8 are replaced: all other room was made before */
    qn_free(w.ids);
    teardown();
}

/* The beginning of a stop string and half a character are held back: giving them out takes no memory. */
static void the_end_of_a_text_is_the_same_after_faults(void **state)
{
    (void)state;
    char xs[200] = {0};
    const char *const stop[] = {memset(xs, 'x', sizeof xs - 1)}, *bytes;
    int n_faults = 0, rc, hit;
    size_t n;
    qn_text *t;
    struct qn_error e;
    setup();
    for (size_t n_held = 1; n_held < 100; n_held++) {
        assert_int_equal(qn_text_new(&t, w.model, true, stop, 1, &e), 0);
        for (size_t i = 0; i <= n_held; i++) { /* the ids of bytes are the bytes */
            assert_int_equal(qn_text_push(t, i < n_held ? 'x' : 0xc3, &bytes, &n, NULL, &e), 0);
            assert_int_equal(n, 0);
        }
        for (uint64_t i = 1;; i++) {
            mem_fault_set(i);
            rc = qn_text_end(t, &bytes, &n, &e), hit = mem_fault_hit();
            mem_fault_set(0);
            if (!hit) break;
            assert_int_equal(rc, QN_ENOMEM);
            n_faults++;
        }
        assert_int_equal(rc, 0);
        assert_int_equal(n, n_held + 3);
        assert_memory_equal(bytes, xs, n_held);
        assert_memory_equal(bytes + n_held, "\xef\xbf\xbd", 3);
        qn_text_free(t);
    }
    assert_int_equal(n_faults, 0);
    teardown();
}

/* Evaluating and drawing work in memory that was taken when the engine and the session were made. */
static void sync_and_step_have_no_allocation_to_fail(void **state)
{
    (void)state;
    struct qn_error e;
    setup();
    mem_fault_set(1);
    assert_int_equal(qn_session_sync(w.session, w.tokens, 40, NULL, &e), 0);
    assert_int_equal(qn_session_step(w.session, &w.token, &e), 0);
    assert_int_equal(qn_session_sync(w.session, w.tokens, 20, NULL, &e), 0);
    assert_int_equal(mem_fault_hit(), 0);
    mem_fault_set(0);
    teardown();
}

/* ---- a scheduler ---- */

#define N_TOKENS  60
#define N_ANSWERS 2

struct heard {
    qn_token token[N_ANSWERS][N_TOKENS]; /* of each answer: which of them has a token first depends on time */
    long calls[N_TOKENS];                /* n_calls when a token came, in the order of all answers */
    int n_of[N_ANSWERS], n;              /* tokens of each answer, and of all */
    enum qn_finish finish;
    _Atomic int n_done;
};

static void hear(void *arg, const struct qn_event *ev)
{
    struct heard *h = arg;
    if (ev->type == QN_EVENT_TOKEN) {
        h->calls[h->n++] = n_calls;
        h->token[ev->answer][h->n_of[ev->answer]++] = ev->token;
    }
    if (ev->type != QN_EVENT_DONE) return;
    h->finish = ev->finish;
    h->n_done++;
}

/* Its answers are letters: replacing bytes that are not UTF-8 would take memory. */
static struct qn_request_params request(struct heard *h, int n_answers)
{
    static struct qn_logit_bias letters[26];
    struct qn_request_params p;
    for (int i = 0; i < 26; i++) letters[i] = (struct qn_logit_bias){'a' + i, 100};
    qn_request_params_init(&p);
    p.prompt = w.tokens;
    p.n_prompt = 40;
    p.sampling = sampling();
    p.sampling.logit_bias = letters;
    p.sampling.n_logit_bias = 26;
    p.stop = stops;
    p.n_stop = 2;
    p.ignore_eog = true;
    p.max_tokens = N_TOKENS / n_answers;
    p.n_answers = n_answers;
    p.n_top_logprobs = 2;
    p.callback = hear;
    p.arg = h;
    *h = (struct heard){0};
    return p;
}

static void await(struct heard *h)
{
    while (!h->n_done) sched_yield();
}

/* Whichever allocation fails, in the submitting thread or in the scheduler's: the request is refused, or it ends with
 * an error, or it does without; the next one is answered as if nothing had been. */
static void requests_with_faults(void **state)
{
    (void)state;
    struct qn_error e;
    struct heard want, got;
    qn_scheduler *s;
    setup();
    for (int n_answers = 1; n_answers <= N_ANSWERS; n_answers++) {
        assert_int_equal(qn_scheduler_new(&s, w.engine, NULL, &e), 0);
        struct qn_request_params p = request(&want, n_answers);
        assert_int_equal(qn_submit(s, &p, NULL, NULL, &e), 0);
        await(&want);
        assert_int_equal(want.finish, QN_FINISH_LENGTH);
        for (uint64_t i = 1;; i++) {
            p = request(&got, n_answers);
            p.salt[0] = i; /* nothing is cached */
            mem_fault_set(i);
            int rc = qn_submit(s, &p, NULL, NULL, &e);
            if (rc)
                assert_int_equal(rc, QN_ENOMEM);
            else
                await(&got);
            int hit = mem_fault_hit();
            mem_fault_set(0);
            if (!rc && got.finish != QN_FINISH_ERROR) {
                assert_memory_equal(got.n_of, want.n_of, sizeof want.n_of);
                assert_memory_equal(got.token, want.token, sizeof want.token);
            }
            if (!hit) break;
        }
        qn_scheduler_free(s);
    }
    teardown();
}

/* The same for an answer with a grammar, which is compiled each time: its text has other bounds. */
static void a_grammar_with_faults(void **state)
{
    (void)state;
    struct qn_error e;
    struct heard got;
    struct qn_grammar_params gp;
    qn_scheduler *s;
    char text[64];
    setup();
    assert_int_equal(qn_scheduler_new(&s, w.engine, NULL, &e), 0);
    qn_grammar_params_init(&gp);
    gp.kind = QN_GRAMMAR_JSON_SCHEMA;
    gp.text = text;
    for (uint64_t i = 1;; i++) {
        struct qn_request_params p = request(&got, 1);
        qn_grammar *g = NULL;
        gp.n = (size_t)snprintf(text, sizeof text, "{\"type\":\"string\",\"minLength\":%d,\"maxLength\":%d}", 5,
                                10000 + (int)i);
        p.ignore_eog = false;
        p.salt[0] = i;
        mem_fault_set(i);
        int rc = qn_grammar_new(&g, w.model, &gp, &e);
        p.grammar = g;
        if (!rc) rc = qn_submit(s, &p, NULL, NULL, &e);
        if (rc)
            assert_int_equal(rc, QN_ENOMEM);
        else
            await(&got);
        int hit = mem_fault_hit();
        mem_fault_set(0);
        qn_grammar_free(g);
        if (!hit) {
            assert_int_not_equal(got.finish, QN_FINISH_ERROR);
            break;
        }
    }
    qn_scheduler_free(s);
    teardown();
}

/* ---- counts ---- */

static void steps(int n)
{
    struct qn_error e;
    for (int i = 0; i < n; i++)
        if (qn_session_step(w.session, &w.token, &e)) fail_msg("step %d: %s", i, e.msg);
}

static void a_step_calls_no_allocation_of_ours(void **state)
{
    (void)state;
    setup();
    assert_int_equal(qn_session_sync(w.session, w.tokens, 40, NULL, NULL), 0);
    uint64_t before = mem_n_calls();
    steps(100);
    assert_int_equal(mem_n_calls(), before);
    teardown();
}

static void a_step_calls_no_malloc_at_all(void **state)
{
    (void)state;
    if (!COUNTED) skip();
    long calls = n_calls, live = n_live;
    qn_free(mem_alloc(10));
    assert_int_equal(n_calls, calls + 1); /* the count counts */
    assert_int_equal(n_live, live);
    setup();
    assert_int_equal(qn_session_sync(w.session, w.tokens, 40, NULL, NULL), 0);
    calls = n_calls;
    steps(100);
    assert_int_equal(n_calls, calls);
    teardown();
    assert_int_equal(n_live, live);
}

static void steps_call_no_malloc(enum qn_draft draft)
{
    struct heard h;
    struct qn_error e;
    qn_scheduler *s;
    struct qn_scheduler_params sp;
    long live = n_live;
    setup();
    qn_scheduler_params_init(&sp);
    sp.draft = draft;
    assert_int_equal(qn_scheduler_new(&s, w.engine, &sp, &e), 0);
    struct qn_request_params p = request(&h, 1);
    assert_int_equal(qn_submit(s, &p, NULL, NULL, &e), 0);
    await(&h);
    assert_int_equal(h.n, N_TOKENS);
    assert_int_equal(h.calls[N_TOKENS - 1], h.calls[1]); /* the first comes while its request is being submitted */
    qn_scheduler_free(s);
    teardown();
    assert_int_equal(n_live, live);
}

static void a_step_of_the_scheduler_calls_no_malloc(void **state)
{
    (void)state;
    steps_call_no_malloc(QN_DRAFT_OFF);
}

static void a_step_with_drafts_calls_no_malloc(void **state)
{
    (void)state;
    steps_call_no_malloc(QN_DRAFT_NGRAM);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(opening_a_model),
        cmocka_unit_test(making_things),
        cmocka_unit_test(forking),
        cmocka_unit_test(text_is_the_same_after_faults),
        cmocka_unit_test(the_end_of_a_text_is_the_same_after_faults),
        cmocka_unit_test(sync_and_step_have_no_allocation_to_fail),
        cmocka_unit_test(a_step_calls_no_allocation_of_ours),
        cmocka_unit_test(a_step_calls_no_malloc_at_all),
        cmocka_unit_test(requests_with_faults),
        cmocka_unit_test(a_grammar_with_faults),
        cmocka_unit_test(a_step_of_the_scheduler_calls_no_malloc),
        cmocka_unit_test(a_step_with_drafts_calls_no_malloc),
    };
    if (argc != 2) {
        fprintf(stderr, "usage: test_alloc MODEL\n");
        return 1;
    }
    path = argv[1];
    return cmocka_run_group_tests(tests, NULL, NULL);
}
