/* SPDX-License-Identifier: MIT
 *
 * test_models.c: which models of a set are in memory, which requests wait, and which are refused. The argument is a
 * small model, which is served under several names. Nothing is computed.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/mem.h"
#include "base/os.h"
#include "server/models/served.h"

static const char *file; /* the argument */

/* ---- one who wants a model ---- */

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t told = PTHREAD_COND_INITIALIZER;

struct want {
    struct models_wait wait; /* first */
    struct served *model;
    struct fault fault;
    int n_told;
};

static void on_ready(struct models_wait *w, struct served *m, const struct fault *why)
{
    struct want *a = (struct want *)w;
    pthread_mutex_lock(&lock);
    a->model = m;
    if (why) a->fault = *why;
    assert_true((m == NULL) == (why != NULL));
    a->n_told++;
    pthread_cond_broadcast(&told);
    pthread_mutex_unlock(&lock);
}

static enum models_answer ask(struct models *s, struct want *a, const char *name)
{
    *a = (struct want){.wait.ready = on_ready};
    return models_acquire(s, name, &a->wait, &a->model, &a->fault);
}

/* Waits for the end of waiting. Returns the fault's code, "" when the model is held. */
static const char *wait_for(struct want *a)
{
    pthread_mutex_lock(&lock);
    while (!a->n_told) pthread_cond_wait(&told, &lock);
    pthread_mutex_unlock(&lock);
    assert_int_equal(a->n_told, 1);
    return a->model ? "" : a->fault.code;
}

/* Holds it, however long that takes. */
static struct served *hold(struct models *s, const char *name)
{
    struct want a;
    enum models_answer answer = ask(s, &a, name);
    if (answer == MODELS_REFUSED) fail_msg("%s: %s", name, a.fault.message);
    if (answer == MODELS_WAIT && *wait_for(&a)) fail_msg("%s: %s", name, a.fault.message);
    return a.model;
}

static void use(struct models *s, const char *name) { models_release(hold(s, name)); }

/* ---- sets ---- */

static struct models_source abc[] = {{.name = "a"}, {.name = "b"}, {.name = "c"}};

static struct models_config config(int n, uint64_t budget)
{
    struct models_config c = {.source = abc, .n = n};
    qn_model_params_init(&c.model);
    for (int i = 0; i < 3; i++) {
        abc[i].path = file;
        abc[i].pinned = false;
    }
    qn_engine_params_init(&c.engine);
    qn_scheduler_params_init(&c.scheduler);
    c.engine.n_threads = 1;
    c.engine.n_ctx = 256;
    c.engine.memory_bytes = budget;
    return c;
}

static struct models *open_set(const struct models_config *c)
{
    struct models *s = NULL;
    struct qn_error e;
    if (models_open(&s, c, &e)) fail_msg("%s", e.msg);
    return s;
}

static void close_set(struct models *s)
{
    models_stop(s);
    models_close(s);
}

static struct models_info look(struct models *s, int i)
{
    struct models_info m;
    models_look(s, i, &m);
    return m;
}

/* The states of all, as letters. */
static const char *states(struct models *s)
{
    static char text[8];
    for (int i = 0; i < models_count(s); i++) text[i] = "-l+u"[look(s, i).state];
    text[models_count(s)] = 0;
    return text;
}

/* The part of the budget that one model needs. */
static uint64_t need(void)
{
    struct models_config c = config(2, (uint64_t)1 << 30);
    struct models *s = open_set(&c);
    uint64_t n = look(s, 0).need_bytes;
    close_set(s);
    return n;
}

/* ---- names ---- */

static void test_names(void **state)
{
    struct want a;
    (void)state;
    for (int n = 0; n <= 3; n++) {
        struct models_config c = config(n, (uint64_t)1 << 30);
        struct models *s = open_set(&c);
        assert_int_equal(models_count(s), n);
        assert_string_equal(states(s), n == 1 ? "+" : n == 2 ? "--" : n ? "---" : "");
        assert_int_equal(ask(s, &a, "x"), MODELS_REFUSED);
        assert_true(a.fault.status == 404 && !strcmp(a.fault.param, "model"));
        assert_int_equal(ask(s, &a, NULL), n == 1 ? MODELS_HELD : MODELS_REFUSED);
        assert_int_equal(a.fault.status, n == 1 ? 0 : n ? 400 : 404);
        models_release(a.model);
        close_set(s);
    }
}

static void test_the_tag_latest_says_nothing(void **state)
{
    struct models_config c = config(2, (uint64_t)1 << 30);
    struct fault f = {0};
    (void)state;
    abc[1].name = "a:latest";
    struct models *s = open_set(&c);
    assert_int_equal(models_find(s, "a", &f), 0);
    assert_int_equal(models_find(s, "a:latest", &f), 1); /* the whole name goes first */
    assert_int_equal(models_find(s, "a:latest:latest", &f), 1);
    assert_int_equal(models_find(s, "a:8b", &f), -1);
    assert_true(f.status == 404 && strstr(f.message, "model 'a:8b' not found"));
    assert_int_equal(models_find(s, ":latest", &f), -1);
    close_set(s);
    abc[1].name = "b";
}

/* A card is there whether the model is loaded or not, and is a copy. */
static void test_a_model_has_a_card(void **state)
{
    struct models_config c = config(2, (uint64_t)1 << 30);
    struct model_card card;
    struct qn_error e;
    (void)state;
    struct models *s = open_set(&c);
    assert_int_equal(models_card(s, 1, &card, &e), 0);
    close_set(s);
    assert_string_equal((char *)card.family.data, "llama");
    assert_string_equal(card.type, "Q8_0");
    assert_true(card.n_params > 1000 && card.file_bytes > 1000 && card.modified_s > 1600000000 && !card.is_folder);
    assert_non_null(strstr((char *)card.metadata.data, "\"llama.block_count\":"));
    assert_non_null(strstr((char *)card.metadata.data, "\"tokenizer.ggml.tokens\":null"));
    assert_null(strstr((char *)card.metadata.data, "chat_template"));
    assert_null(strstr((char *)card.metadata.data, "context_length"));
    model_card_deinit(&card);
}

/* ---- memory ---- */

static void test_a_plan_is_what_is_taken(void **state)
{
    static const enum qn_kv kinds[] = {QN_KV_F16, QN_KV_F32, QN_KV_Q8_0};
    (void)state;
    for (int i = 0; i < 3; i++) {
        struct models_config c = config(2, (uint64_t)1 << 30);
        c.engine.kv = kinds[i];
        c.engine.n_sessions = i + 1;
        struct models *s = open_set(&c);
        use(s, "a");
        struct models_info m = look(s, 0);
        assert_true(m.need_bytes == m.granted_bytes && m.stats.budget_bytes == m.granted_bytes - m.table_bytes);
        /* The difference is room for the list of prefixes. */
        assert_in_range(m.stats.used_bytes, m.need_bytes - (10 << 20), m.need_bytes);
        assert_int_equal(m.n_ctx, 256);
        close_set(s);
    }
}

static void test_a_single_model_has_the_whole_budget(void **state)
{
    struct models_config c = config(1, (uint64_t)1 << 30);
    struct models *s = open_set(&c);
    (void)state;
    assert_int_equal(look(s, 0).granted_bytes, (uint64_t)1 << 30);
    close_set(s);
}

static void test_the_least_used_gives_way(void **state)
{
    struct models_config c = config(3, 2 * need());
    struct models *s = open_set(&c);
    (void)state;
    use(s, "a");
    use(s, "b");
    assert_string_equal(states(s), "++-");
    use(s, "a");
    use(s, "c");
    assert_string_equal(states(s), "+-+");
    use(s, "b");
    assert_string_equal(states(s), "-++");
    struct served *b = hold(s, "b"), *again = hold(s, "b");
    use(s, "c");
    assert_true(b == again);
    models_release(again);
    use(s, "a"); /* b was used before c, but is held */
    assert_string_equal(states(s), "++-");
    models_release(b);
    assert_int_equal(look(s, 1).n_loads, 2);
    close_set(s);
}

static void test_what_is_pinned_stays(void **state)
{
    struct models_config c = config(3, 2 * need());
    abc[1].pinned = true;
    struct models *s = open_set(&c);
    (void)state;
    assert_string_equal(states(s), "-+-");
    for (int i = 0; i < 3; i++) {
        use(s, "a");
        assert_string_equal(states(s), "++-");
        use(s, "c");
        assert_string_equal(states(s), "-++");
    }
    close_set(s);
}

static void test_what_never_fits_is_refused_at_the_start(void **state)
{
    uint64_t n = need();
    struct models *s = NULL;
    struct qn_error e;
    (void)state;
    struct models_config c = config(2, n / 2);
    assert_int_equal(models_open(&s, &c, &e), QN_ENOMEM);
    assert_non_null(strstr(e.msg, "'a' needs at least"));
    c = config(3, 2 * n - 1); /* each fits, but c does not fit next to both others */
    abc[0].pinned = abc[1].pinned = true;
    assert_int_equal(models_open(&s, &c, &e), QN_ENOMEM);
    c = config(3, 2 * n);
    abc[0].pinned = abc[1].pinned = true;
    assert_int_equal(models_open(&s, &c, &e), QN_ENOMEM);
    assert_non_null(strstr(e.msg, "'c' needs"));
    assert_non_null(strstr(e.msg, "pinned"));
    c.n = 2;
    s = open_set(&c);
    assert_string_equal(states(s), "++");
    close_set(s);
}

static void test_what_is_not_used_is_unloaded_in_time(void **state)
{
    struct models_config c = config(3, 3 * need());
    c.idle_s = 1;
    abc[2].pinned = true;
    struct models *s = open_set(&c);
    (void)state;
    use(s, "a");
    struct served *b = hold(s, "b");
    while (look(s, 0).state == MODEL_LOADED) usleep(1000);
    while (look(s, 0).state != MODEL_NOT_LOADED) usleep(1000);
    assert_string_equal(states(s), "-++");
    assert_int_equal(look(s, 0).granted_bytes, 0);
    models_release(b);
    while (look(s, 1).state != MODEL_NOT_LOADED) usleep(1000);
    assert_string_equal(states(s), "--+");
    use(s, "a");
    close_set(s);
}

/* ---- waiting ---- */

static void test_many_wait_for_one_load(void **state)
{
    struct models_config c = config(2, (uint64_t)1 << 30);
    struct models *s = open_set(&c);
    struct want all[20];
    int n_waited = 0;
    (void)state;
    for (int i = 0; i < 20; i++) {
        enum models_answer answer = ask(s, &all[i], i % 2 ? "b" : "a");
        assert_int_not_equal(answer, MODELS_REFUSED);
        if (answer == MODELS_HELD) all[i].n_told++;
        n_waited += answer == MODELS_WAIT;
    }
    assert_true(n_waited > 0);
    for (int i = 0; i < 20; i++) assert_string_equal(wait_for(&all[i]), "");
    for (int i = 0; i < 2; i++) assert_true(look(s, i).n_loads == 1 && look(s, i).n_users == 10);
    for (int i = 0; i < 20; i++) models_release(all[i].model);
    assert_int_equal(look(s, 0).n_users, 0);
    close_set(s);
}

static void test_who_finds_no_room_waits_a_second_and_is_refused(void **state)
{
    struct models_config c = config(3, need());
    struct models *s = open_set(&c);
    struct served *a = hold(s, "a");
    struct want b, other;
    (void)state;
    uint64_t start = clock_ns();
    assert_int_equal(ask(s, &b, "b"), MODELS_WAIT);
    assert_int_equal(ask(s, &other, "a"), MODELS_HELD); /* nobody else is held up */
    models_release(other.model);
    assert_string_equal(wait_for(&b), "models_busy");
    assert_true(b.fault.status == 503 && clock_ns() - start >= 900000000u);
    assert_int_equal(ask(s, &b, "b"), MODELS_WAIT);
    assert_int_equal(ask(s, &other, "c"), MODELS_WAIT);
    models_release(a);
    /* One of them gets the room, and the other gets it when that one is done. */
    pthread_mutex_lock(&lock);
    while (!b.n_told && !other.n_told) pthread_cond_wait(&told, &lock);
    struct want *first = b.n_told ? &b : &other, *second = b.n_told ? &other : &b;
    pthread_mutex_unlock(&lock);
    assert_string_equal(wait_for(first), "");
    models_release(first->model);
    if (*wait_for(second)) /* this thread was slow */
        use(s, second == &b ? "b" : "c");
    else
        models_release(second->model);
    close_set(s);
}

static void test_the_end_tells_those_that_wait(void **state)
{
    struct models_config c = config(2, need());
    struct models *s = open_set(&c);
    struct served *a = hold(s, "a");
    struct want b;
    (void)state;
    assert_int_equal(ask(s, &b, "b"), MODELS_WAIT);
    models_stop(s);
    assert_string_equal(wait_for(&b), "stopping");
    assert_int_equal(ask(s, &b, "a"), MODELS_REFUSED);
    assert_string_equal(b.fault.code, "stopping");
    models_release(a);
    models_close(s);
}

/* ---- failures ---- */

static void test_a_load_that_fails_changes_nothing(void **state)
{
    char name[] = "/tmp/quern-models-XXXXXX";
    struct models_config c = config(2, need());
    struct want a;
    (void)state;
    int fd = mkstemp(name);
    assert_true(fd >= 0);
    close(fd);
    unlink(name);
    assert_int_equal(symlink(file, name), 0);
    abc[0].path = name;
    struct models *s = open_set(&c);
    unlink(name);
    use(s, "b");
    assert_int_equal(ask(s, &a, "a"), MODELS_WAIT);
    assert_string_equal(wait_for(&a), "model_failed");
    assert_true(a.fault.status == 500 && strstr(a.fault.message, name));
    assert_string_equal(states(s), "--");
    use(s, "b");
    assert_int_equal(symlink(file, name), 0);
    use(s, "a");
    unlink(name);
    close_set(s);
}

/* ---- files that change ---- */

static char changing[] = "/tmp/quern-model-XXXXXX", beside[64];

static struct models *open_changing(int n)
{
    struct models_config c = config(n, 4 * need());
    char command[300];
    snprintf(command, sizeof command, "cp %s %s && cp %s %s", file, changing, file, beside);
    assert_int_equal(system(command), 0);
    abc[0].path = changing;
    abc[0].pinned = true;
    return open_set(&c);
}

/* A file changed in place: the next request is told so, and running ones end; the one after it loads the model anew. */
static void test_a_file_changed_in_place_closes_its_model(void **state)
{
    (void)state;
    struct want a, b;
    struct models *s = open_changing(2);
    uint64_t was = look(s, 0).fingerprint;
    struct served *m = hold(s, "a");
    FILE *f = fopen(changing, "r+");
    assert_true(f && !fseek(f, 1000000, SEEK_SET) && fputc('x', f) == 'x' && !fclose(f));
    assert_int_equal(ask(s, &a, "a"), MODELS_REFUSED);
    assert_true(a.fault.status == 503 && !strcmp(a.fault.code, "model_changed"));
    assert_non_null(strstr(a.fault.message, "changed while it was in use"));
    assert_int_equal(ask(s, &b, "a"), MODELS_WAIT); /* the old one is in use until its requests have been told */
    models_release(m);
    assert_string_equal(wait_for(&b), "");
    assert_int_equal(look(s, 0).n_loads, 2);
    assert_true(look(s, 0).fingerprint != was);
    models_release(b.model);
    use(s, "a");
    use(s, "b");
    assert_int_equal(look(s, 0).n_loads, 2);
    close_set(s);
}

/* A new file under the name: the old one is used to the end, and the next request loads the new one. */
static void test_a_replaced_file_is_loaded_when_the_old_one_is_free(void **state)
{
    (void)state;
    struct want a, b;
    struct models *s = open_changing(1);
    struct served *m = hold(s, "a");
    assert_int_equal(rename(beside, changing), 0);
    assert_int_equal(ask(s, &a, "a"), MODELS_WAIT);
    assert_string_equal(wait_for(&a), "models_busy"); /* after a second */
    assert_non_null(strstr(a.fault.message, "was replaced"));
    assert_int_equal(ask(s, &b, "a"), MODELS_WAIT);
    models_release(m);
    assert_string_equal(wait_for(&b), "");
    assert_int_equal(look(s, 0).n_loads, 2);
    models_release(b.model);
    close_set(s);
}

/* The file is gone: the open one is still of use. */
static void test_a_file_that_has_gone_is_still_open(void **state)
{
    (void)state;
    struct models *s = open_changing(1);
    assert_int_equal(unlink(changing), 0);
    use(s, "a");
    assert_int_equal(look(s, 0).n_loads, 1);
    close_set(s);
    assert_int_equal(rename(beside, changing), 0);
}

/* A grammar whose text has so many bytes, most of them spaces. */
static int new_grammar(qn_grammar **out, const struct served *m, size_t bytes, struct qn_error *e)
{
    char *text = malloc(bytes);
    memset(text, ' ', bytes);
    memcpy(text, "root ::= \"a\"", 12);
    struct qn_grammar_params p;
    qn_grammar_params_init(&p);
    p.kind = QN_GRAMMAR_GBNF;
    p.text = text;
    p.n = bytes;
    int rc = qn_grammar_new(out, m->model, &p, e);
    free(text);
    return rc;
}

static void test_the_grammars_of_all_models_have_half_of_the_memory_for_requests(void **state)
{
    (void)state;
    struct models_config c = config(2, 2 * need());
    struct ledger requests;
    struct qn_error e = {0};
    qn_grammar *one = NULL, *two = NULL;
    ledger_init(&requests, (size_t)8 << 20);
    c.requests = &requests;
    struct models *s = open_set(&c);
    struct served *a = hold(s, "a"), *b = hold(s, "b");
    assert_int_equal(new_grammar(&one, a, (size_t)3 << 20, &e), 0);
    assert_int_equal(new_grammar(&two, b, (size_t)2 << 20, &e), QN_ENOMEM);
    assert_non_null(strstr(e.msg, "of 4194304 are left"));
    size_t used = ledger_used(&requests); /* with the trees of tokens */
    assert_true(used > (size_t)3 << 20 && used < (size_t)6 << 20);
    qn_grammar_free(one);
    assert_int_equal(new_grammar(&two, b, (size_t)2 << 20, &e), 0);
    qn_grammar_free(two);
    models_release(a);
    models_release(b);
    close_set(s);
    assert_int_equal(ledger_used(&requests), 0);
}

/* Every allocation of a load fails in turn: the load fails and says so, and the next one succeeds. */
static void test_a_load_without_memory(void **state)
{
    char dir[] = "/tmp/quern-models-XXXXXX", name[64];
    struct models_config c = config(2, need());
    struct qn_error e;
    uint64_t n_failed = 0;
    (void)state;
    assert_non_null(mkdtemp(dir));
    c.scheduler.cache_dir = dir;
    c.scheduler.cache_bytes = 1 << 20;
    assert_int_equal(models_make_folders(&c, &e), 0);
    struct models *s = open_set(&c);
    for (uint64_t n = 1, step = 1, hit = 1; hit; n += step) {
        struct want a;
        use(s, "b");
        if (n > 50) step = 1 + n / 10; /* there are as many as the vocabulary has pieces */
        mem_fault_set(n);
        enum models_answer answer = ask(s, &a, "a");
        assert_int_equal(answer, MODELS_WAIT);
        const char *why = wait_for(&a);
        hit = (uint64_t)mem_fault_hit();
        mem_fault_set(0);
        if (*why) assert_true(!strcmp(why, "no_memory") && a.fault.status == 503);
        n_failed += *why != 0;
        if (!hit) assert_string_equal(why, "");
        models_release(a.model);
    }
    assert_true(n_failed > 10);
    close_set(s);
    snprintf(name, sizeof name, "rm -r %s", dir);
    assert_int_equal(system(name), 0);
}

static void test_an_opening_without_memory(void **state)
{
    struct models_config c = config(2, need());
    (void)state;
    abc[0].pinned = true;
    c.engine.memory_bytes *= 2;
    for (uint64_t n = 1, step = 1, hit = 1; hit; n += step) {
        struct models *s = NULL;
        struct qn_error e = {0};
        if (n > 50) step = 1 + n / 10;
        mem_fault_set(n);
        int rc = models_open(&s, &c, &e);
        hit = (uint64_t)mem_fault_hit();
        mem_fault_set(0);
        if (rc) assert_true(rc == QN_ENOMEM && e.msg[0]);
        if (!hit) assert_int_equal(rc, 0);
        if (!rc) close_set(s);
    }
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_names),
        cmocka_unit_test(test_the_tag_latest_says_nothing),
        cmocka_unit_test(test_a_model_has_a_card),
        cmocka_unit_test(test_a_plan_is_what_is_taken),
        cmocka_unit_test(test_a_single_model_has_the_whole_budget),
        cmocka_unit_test(test_the_least_used_gives_way),
        cmocka_unit_test(test_what_is_pinned_stays),
        cmocka_unit_test(test_what_never_fits_is_refused_at_the_start),
        cmocka_unit_test(test_what_is_not_used_is_unloaded_in_time),
        cmocka_unit_test(test_many_wait_for_one_load),
        cmocka_unit_test(test_who_finds_no_room_waits_a_second_and_is_refused),
        cmocka_unit_test(test_the_end_tells_those_that_wait),
        cmocka_unit_test(test_a_load_that_fails_changes_nothing),
        cmocka_unit_test(test_a_file_changed_in_place_closes_its_model),
        cmocka_unit_test(test_a_replaced_file_is_loaded_when_the_old_one_is_free),
        cmocka_unit_test(test_a_file_that_has_gone_is_still_open),
        cmocka_unit_test(test_the_grammars_of_all_models_have_half_of_the_memory_for_requests),
        cmocka_unit_test(test_a_load_without_memory),
        cmocka_unit_test(test_an_opening_without_memory),
    };
    if (argc != 2) {
        print_error("a model file is wanted\n");
        return 1;
    }
    file = realpath(argv[1], NULL);
    if (!file) return 1;
    int fd = mkstemp(changing);
    if (fd < 0 || close(fd)) return 1;
    snprintf(beside, sizeof beside, "%s.new", changing);
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    unlink(changing);
    free((char *)(uintptr_t)file);
    return failed;
}
