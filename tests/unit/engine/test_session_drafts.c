/* SPDX-License-Identifier: MIT
 *
 * test_session_drafts.c: a session with drafts gives the tokens and logits of one without, whatever is asked of it or
 * of its engine between two steps.
 *
 *     test_session_drafts MODEL [trained]
 *
 * Texts are continued without drafts first. The drafters are then told what they say, and are right, wrong, right at
 * times, or random. The program is built with the smallest pages.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "../oracle.h"
#include "engine/session_drafts.h"

#define N_CTX    160
#define N_PROMPT 21
#define N_STEPS  100

static qn_model *model;
static int n_vocab;
static bool is_trained;
static struct qn_error e;

#define OK(call)                                                                                                       \
    do {                                                                                                               \
        if (call) fail_msg("line %d: '%s'", __LINE__, e.msg);                                                          \
    } while (0)

static qn_engine *engine(void)
{
    qn_engine *g = NULL;
    struct qn_engine_params p;
    qn_engine_params_init(&p);
    p.n_threads = 2;
    p.n_ctx = N_CTX;
    p.n_batch = 48;
    p.n_sessions = 4;
    OK(qn_engine_new(&g, model, &p, &e));
    return g;
}

/* ---- what is said without drafts ---- */

enum { GREEDY, SAMPLED, PENALTIES, MIROSTAT, N_KINDS };

static struct qn_sampling sampling(int kind)
{
    struct qn_sampling s;
    qn_sampling_init(&s);
    s.seed = (uint64_t)kind;
    s.temperature = kind == GREEDY ? 0 : 1.1f;
    if (kind == PENALTIES) s.repetition_penalty = 1.3f, s.penalty_last_n = 20, s.dry_multiplier = 0.8f;
    if (kind == MIROSTAT) s.mirostat_tau = 4;
    return s;
}

static struct plain {
    qn_token tokens[N_CTX];                /* [N_PROMPT + N_STEPS] */
    float *logits[N_PROMPT + N_STEPS + 1]; /* [n_vocab] after so many tokens, from N_PROMPT on */
} plain[N_KINDS];

static qn_session *session(qn_engine *g, int kind)
{
    qn_session *s = NULL;
    struct qn_sampling p = sampling(kind);
    OK(qn_session_new(&s, g, &p, &e));
    OK(qn_session_sync(s, plain[kind].tokens, N_PROMPT, NULL, &e));
    return s;
}

static void say_plainly(int kind)
{
    qn_engine *g = engine();
    struct plain *p = &plain[kind];
    const float *logits;
    for (int i = 0; i < N_PROMPT; i++)
        p->tokens[i] = (qn_token)(rng_u64(5, (uint64_t)kind, (uint64_t)i) % (uint64_t)n_vocab);
    qn_session *s = session(g, kind);
    for (int n = N_PROMPT; n < N_PROMPT + N_STEPS; n++) {
        OK(qn_session_logits(s, &logits, &e));
        assert_non_null(p->logits[n] = malloc((size_t)n_vocab * sizeof(float)));
        memcpy(p->logits[n], logits, (size_t)n_vocab * sizeof(float));
        OK(qn_session_step(s, &p->tokens[n], &e));
    }
    qn_session_free(s);
    qn_engine_free(g);
}

/* ---- what is asked ---- */

static struct oracle *oracle(enum oracle_mood mood)
{
    struct oracle *o = oracle_new(mood, n_vocab);
    for (int kind = 0; kind < N_KINDS; kind++)
        oracle_tell(o, plain[kind].tokens, N_PROMPT, plain[kind].tokens + N_PROMPT, N_STEPS);
    return o;
}

static void draft(qn_session *s, enum oracle_mood mood)
{
    struct oracle *o = oracle(mood);
    struct drafters_own own = {.drafter = &o->drafter, .is_eager = true};
    o->most = mood == ORACLE_RIGHT ? 0 : 6;
    OK(session_drafts_set(s, QN_DRAFT_AUTO, NULL, &own, &e));
}

static void check_step(qn_session *s, int kind, bool looks)
{
    const float *logits;
    qn_token token;
    int n = (int)qn_session_tokens(s, NULL);
    if (looks) {
        OK(qn_session_logits(s, &logits, &e));
        if (memcmp(logits, plain[kind].logits[n], (size_t)n_vocab * sizeof *logits))
            fail_msg("kind %d: other logits after %d tokens", kind, n);
    }
    OK(qn_session_step(s, &token, &e));
    if (token != plain[kind].tokens[n])
        fail_msg("kind %d: token %d is %d, not %d", kind, n, token, plain[kind].tokens[n]);
}

static void check_rest(qn_session *s, int kind)
{
    while (qn_session_tokens(s, NULL) < N_PROMPT + N_STEPS) check_step(s, kind, qn_session_tokens(s, NULL) % 3 == 0);
}

/* ---- tests ---- */

static void the_same_tokens_and_logits(void **state)
{
    (void)state;
    qn_engine *g = engine();
    struct qn_usage usage;
    for (int kind = 0; kind < N_KINDS; kind++)
        for (int mood = 0; mood < ORACLE_N_MOODS; mood++) {
            qn_session *s = session(g, kind);
            draft(s, (enum oracle_mood)mood);
            check_rest(s, kind);
            OK(qn_session_usage(s, &usage, &e));
            if (mood == ORACLE_RIGHT) assert_in_range(usage.n_passes, N_STEPS / 32, N_STEPS / 16);
            if (mood == ORACLE_RIGHT) assert_in_range(usage.n_accepted, N_STEPS - 10, N_STEPS);
            if (mood == ORACLE_WRONG) assert_int_equal(usage.n_accepted, 0);
            assert_true(usage.n_drafted > 0);
            qn_session_free(s);
        }
    qn_engine_free(g);
}

/* Each takes back what the session is ahead, and goes on. */
static qn_session *interrupt(qn_session *s, qn_session *other, int kind, int how)
{
    struct qn_sampling p = sampling(kind);
    const qn_token *tokens;
    qn_session *new = NULL;
    char path[64];
    size_t n = qn_session_tokens(s, &tokens);
    switch (how) {
    case 0: check_step(other, GREEDY, true); break;
    case 1:
        OK(qn_session_fork(&new, s, &e));
        check_step(new, kind, true);
        qn_session_free(new);
        break;
    case 2: /* as after a cut, mirostat begins anew */
        if (kind != MIROSTAT) OK(qn_session_set_sampling(s, &p, &e));
        break;
    case 3: OK(qn_session_sync(s, tokens, n, NULL, &e)); break;
    case 4:
        if (kind == MIROSTAT || n < N_PROMPT + 5) break;
        OK(qn_session_sync(s, plain[kind].tokens, n - 5, NULL, &e));
        break;
    case 5:
        if (kind == MIROSTAT) break;
        snprintf(path, sizeof path, "session-drafts.%d", (int)getpid());
        OK(qn_session_save(s, path, &e));
        qn_session_free(s);
        OK(qn_session_load(&s, other->engine, path, &p, &e));
        unlink(path);
        draft(s, ORACLE_RIGHT);
        break;
    case 6: OK(qn_session_set_draft(s, QN_DRAFT_OFF, NULL, &e)); break;
    default: draft(s, how % 2 ? ORACLE_RIGHT : ORACLE_SOMETIMES); break;
    }
    return s;
}

static void interrupted_at_any_place(void **state)
{
    (void)state;
    qn_engine *g = engine();
    for (int kind = 0; kind < N_KINDS; kind++)
        for (int mood = 0; mood < ORACLE_N_MOODS; mood += ORACLE_SOMETIMES - ORACLE_RIGHT) {
            qn_session *s = session(g, kind), *other = session(g, GREEDY);
            draft(other, ORACLE_SOMETIMES);
            draft(s, (enum oracle_mood)mood);
            for (int i = 0; i < N_STEPS / 2; i++) {
                check_step(s, kind, false);
                uint64_t how = rng_u64(9, (uint64_t)(kind * 8 + mood), (uint64_t)i) % 16;
                if (how < 9) s = interrupt(s, other, kind, (int)how);
            }
            check_rest(s, kind);
            qn_session_free(s);
            qn_session_free(other);
        }
    qn_engine_free(g);
}

/* The last tokens of a context, and a session that is freed while it is ahead. */
static void ends(void **state)
{
    (void)state;
    qn_engine *g = engine();
    qn_session *s = session(g, GREEDY), *ahead = session(g, SAMPLED);
    qn_token token;
    draft(s, ORACLE_RANDOM);
    check_rest(s, GREEDY);
    for (int n = N_PROMPT + N_STEPS; n < N_CTX; n++) OK(qn_session_step(s, &token, &e));
    assert_int_equal(qn_session_step(s, &token, &e), QN_EFULL);
    draft(ahead, ORACLE_RIGHT);
    check_step(ahead, SAMPLED, false);
    qn_session_free(ahead);
    qn_session_free(s);
    qn_engine_free(g);
}

/* A model that drafts for itself is always right, where it is sure of anything: one with random weights never is. */
static void the_drafters_of_the_library(void **state)
{
    (void)state;
    qn_engine *g = engine();
    struct qn_usage usage;
    qn_session *s = session(g, GREEDY);
    assert_int_equal(qn_session_set_draft(s, QN_DRAFT_MODEL, NULL, &e), QN_EUSAGE);
    assert_int_equal(qn_session_set_draft(s, (enum qn_draft)77, NULL, &e), QN_EUSAGE);
    assert_int_equal(qn_session_set_draft(NULL, QN_DRAFT_OFF, NULL, &e), QN_EUSAGE);
    assert_int_equal(qn_session_usage(s, NULL, &e), QN_EUSAGE);
    OK(qn_session_set_draft(s, QN_DRAFT_DEFAULT, model, &e));
    s->drafts->drafters.is_eager = true;
    check_rest(s, GREEDY);
    OK(qn_session_usage(s, &usage, &e));
    if (is_trained) assert_true(usage.n_accepted > N_STEPS / 4 && 5 * usage.n_accepted > 4 * usage.n_drafted);
    static const enum qn_draft all[] = {QN_DRAFT_NGRAM, QN_DRAFT_AUTO, QN_DRAFT_OFF};
    for (int i = 0; i < 3; i++) {
        OK(qn_session_sync(s, plain[GREEDY].tokens, N_PROMPT, NULL, &e));
        OK(qn_session_set_draft(s, all[i], NULL, &e));
        if (s->drafts) s->drafts->drafters.is_eager = true;
        check_rest(s, GREEDY);
    }
    qn_session_free(s);
    qn_engine_free(g);
}

int main(int argc, char **argv)
{
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_same_tokens_and_logits),
        cmocka_unit_test(interrupted_at_any_place),
        cmocka_unit_test(ends),
        cmocka_unit_test(the_drafters_of_the_library),
    };
    is_trained = argc == 3 && !strcmp(argv[2], "trained");
    if (argc != 2 + is_trained || qn_model_open(&model, argv[1], &e)) return 2;
    n_vocab = qn_model_n_vocab(model);
    for (int kind = 0; kind < N_KINDS; kind++) say_plainly(kind);
    int rc = cmocka_run_group_tests_name("drafts of sessions", tests, NULL, NULL);
    for (int kind = 0; kind < N_KINDS; kind++)
        for (int n = 0; n < N_PROMPT + N_STEPS; n++) free(plain[kind].logits[n]);
    qn_model_close(model);
    return rc;
}
