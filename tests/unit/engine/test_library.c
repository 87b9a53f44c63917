/* SPDX-License-Identifier: MIT
 *
 * test_library.c: what quern.h offers around engines and sessions: the log, metadata, watched prompts, qn_generate(),
 * and sessions in files.
 *
 *     test_library MODEL OTHER_MODEL
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <quern.h>

#include "base/hash.h"
#include "cache/chain_file.h"

#define N_CTX 200

static qn_model *model, *other;
static int n_vocab;
static struct qn_error e;
static char file[] = "/tmp/quern-test-XXXXXX"; /* a folder, then a file in it */

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

static qn_engine *engine(const qn_model *m, enum qn_kv kv, int n_ctx, int n_batch)
{
    struct qn_engine_params p;
    qn_engine *g = NULL;
    qn_engine_params_init(&p);
    p.n_threads = 1;
    p.n_ctx = n_ctx;
    p.n_sessions = 3;
    p.n_batch = n_batch;
    p.kv = kv;
    OK(qn_engine_new(&g, m, &p, &e));
    return g;
}

static void make_tokens(qn_token *t, int n)
{
    for (int i = 0; i < n; i++) t[i] = (i * 37 + i * i) % n_vocab;
}

/* ---- the log ---- */

struct heard {
    int n;
    enum qn_log_level level;
    char last[200];
};

static void hear(void *arg, enum qn_log_level level, const char *message)
{
    struct heard *h = arg;
    h->n++;
    h->level = level;
    snprintf(h->last, sizeof h->last, "%s", message);
}

static void warnings_reach_the_sink(void **state)
{
    (void)state;
    struct heard h = {0};
    qn_session *s = NULL;
    qn_engine *g = engine(model, QN_KV_F16, 10, 0);
    OK(qn_session_new(&s, g, NULL, &e));
    qn_log_set(hear, &h);
    qn_engine_free(g); /* before its session: that is worth a warning */
    assert_int_equal(h.n, 1);
    assert_int_equal(h.level, QN_LOG_WARNING);
    assert_non_null(strstr(h.last, "qn_engine_free: 1 in use"));
    qn_session_free(s);
    qn_log_set(NULL, NULL);
    g = engine(model, QN_KV_F16, 10, 0);
    OK(qn_session_new(&s, g, NULL, &e));
    qn_engine_free(g);
    qn_session_free(s);
    assert_int_equal(h.n, 1);
}

/* ---- the model ---- */

static void metadata_is_text(void **state)
{
    (void)state;
    char *key = NULL, *value = NULL, *again = NULL;
    size_t n = qn_model_n_metadata(model), n_arrays = 0;
    bool has_template = false;
    assert_true(n > 10);
    for (size_t i = 0; i < n; i++) {
        OK(qn_model_metadata_at(model, i, &key, &value, &e));
        OK(qn_model_metadata(model, key, &again, &e));
        assert_string_equal(value, again);
        has_template |= !strcmp(key, "tokenizer.chat_template");
        if (!strcmp(key, "tokenizer.ggml.tokens")) {
            n_arrays++;
            assert_int_equal(value[0], '[');
            assert_int_equal(value[1], '"');
            assert_int_equal(value[strlen(value) - 1], ']');
        }
        if (!strcmp(key, "general.name")) assert_string_equal(qn_model_name(model), value);
        assert_int_equal(qn_model_metadata_type(model, i) == QN_METADATA_ARRAY, !strncmp(value, "[", 1));
        if (!strcmp(key, "general.architecture"))
            assert_int_equal(qn_model_metadata_type(model, i), QN_METADATA_STRING);
        if (!strcmp(key, "llama.block_count")) assert_int_equal(qn_model_metadata_type(model, i), QN_METADATA_NUMBER);
        qn_free(key);
        qn_free(value);
        qn_free(again);
    }
    assert_int_equal(n_arrays, 1);
    assert_int_equal(qn_model_has_template(model), has_template);
    OK(qn_model_metadata(model, "general.architecture", &value, &e));
    assert_true(strlen(value) > 0);
    qn_free(value);
    OK(qn_model_metadata_at(model, 0, NULL, NULL, &e));
    assert_true(strlen(qn_model_name(model)) > 0);
    REFUSED(qn_model_metadata(model, "no.such\x1b", &value, &e), QN_ENOINPUT, "no metadata key 'no.such\\x1B'");
    REFUSED(qn_model_metadata_at(model, n, &key, &value, &e), QN_EUSAGE, "metadata entry");
    REFUSED(qn_model_metadata_at(NULL, 0, &key, &value, &e), QN_EUSAGE, "NULL");
    REFUSED(qn_model_metadata(model, NULL, &value, &e), QN_EUSAGE, "NULL");
    assert_string_equal(qn_model_name(NULL), "");
    assert_int_equal(qn_model_n_metadata(NULL), 0);
    assert_false(qn_model_has_template(NULL));
    assert_int_equal(qn_model_metadata_type(model, n), QN_METADATA_NONE);
    assert_int_equal(qn_model_metadata_type(NULL, 0), QN_METADATA_NONE);
}

static void a_model_knows_its_size(void **state)
{
    (void)state;
    uint64_t n = qn_model_n_params(model), bytes = qn_model_file_bytes(model);
    assert_true(n > 10000 && bytes > n / 8 && bytes < 8 * n);
    assert_true(strlen(qn_model_weight_type(model)) > 1);
    assert_int_equal(qn_model_n_params(NULL), 0);
    assert_int_equal(qn_model_file_bytes(NULL), 0);
    assert_string_equal(qn_model_weight_type(NULL), "");
}

/* ---- a watched prompt ---- */

struct watch {
    size_t last, total, n_calls, cancel_at;
};

static void progress(void *arg, size_t n_done, size_t n_total)
{
    struct watch *w = arg;
    assert_true(n_done > w->last);
    w->last = n_done;
    w->total = n_total;
    w->n_calls++;
}

static bool is_cancelled(void *arg)
{
    const struct watch *w = arg;
    return w->last >= w->cancel_at;
}

static void a_prompt_is_watched_and_cancelled(void **state)
{
    (void)state;
    qn_engine *g = engine(model, QN_KV_F16, N_CTX, 16);
    qn_session *s = NULL, *fresh = NULL;
    qn_token tokens[100];
    const float *got, *want;
    const qn_token *now;
    size_t kept;
    struct watch w = {.cancel_at = 40};
    struct qn_prefill p;
    make_tokens(tokens, 100);
    OK(qn_session_new(&s, g, NULL, &e));
    OK(qn_session_new(&fresh, g, NULL, &e));
    OK(qn_session_sync(fresh, tokens, 100, NULL, &e));
    qn_prefill_init(&p);
    p.progress = progress;
    p.is_cancelled = is_cancelled;
    p.arg = &w;
    REFUSED(qn_session_sync_with(s, tokens, 100, &p, &kept, &e), QN_ECANCEL, "cancelled after 48 tokens");
    assert_int_equal(w.last, 48);
    assert_int_equal(w.total, 100);
    size_t n = qn_session_tokens(s, &now);
    assert_true(n <= 48);
    assert_memory_equal(now, tokens, n * sizeof *now);
    w = (struct watch){.cancel_at = 1000};
    OK(qn_session_sync_with(s, tokens, 100, &p, &kept, &e));
    assert_int_equal(w.last, 100);
    OK(qn_session_logits(s, &got, &e));
    OK(qn_session_logits(fresh, &want, &e));
    assert_memory_equal(got, want, (size_t)n_vocab * sizeof *got);
    w.cancel_at = 0; /* nothing is left to do, so nothing is cancelled */
    OK(qn_session_sync_with(s, tokens, 100, &p, &kept, &e));
    assert_int_equal(kept, 100);
    p.size--;
    REFUSED(qn_session_sync_with(s, tokens, 100, &p, NULL, &e), QN_EUSAGE, "parameter struct");
    qn_prefill_init(NULL);
    qn_session_free(s);
    qn_session_free(fresh);
    qn_engine_free(g);
}

/* ---- qn_generate ---- */

struct answer {
    char text[4096];
    size_t n, n_calls, stop_after;
};

static bool collect(void *arg, const char *bytes, size_t n)
{
    struct answer *a = arg;
    assert_true(n > 0 && a->n + n < sizeof a->text);
    memcpy(a->text + a->n, bytes, n);
    a->text[a->n += n] = 0;
    return ++a->n_calls != a->stop_after;
}

static void one_call_generates_what_many_do(void **state)
{
    (void)state;
    static const char prompt[] = "Once upon a time";
    qn_engine *g = engine(model, QN_KV_F16, N_CTX, 0);
    qn_session *s = NULL, *by_hand = NULL;
    struct qn_generate_params p;
    struct answer a = {0}, hand = {0};
    enum qn_finish finish = QN_FINISH_NONE;
    struct qn_sampling sampling;
    qn_token *ids, t;
    size_t n;
    qn_text *text = NULL;
    const char *bytes;
    qn_sampling_init(&sampling);
    sampling.seed = 7;
    OK(qn_session_new(&s, g, NULL, &e));
    OK(qn_session_set_sampling(s, &sampling, &e));
    OK(qn_session_new(&by_hand, g, &sampling, &e));
    qn_generate_params_init(&p);
    p.max_tokens = 20;
    p.text = collect;
    p.arg = &a;
    OK(qn_generate(s, prompt, strlen(prompt), &p, &finish, &e));

    OK(qn_tokenize(model, prompt, strlen(prompt), QN_ADD_BOS, NULL, &ids, &n, &e));
    OK(qn_session_sync(by_hand, ids, n, NULL, &e));
    OK(qn_text_new(&text, model, true, NULL, 0, &e));
    bool ended = false;
    for (int i = 0; i < 20 && !ended; i++) {
        OK(qn_session_step(by_hand, &t, &e));
        if ((ended = qn_model_is_eog(model, t))) break;
        OK(qn_text_push(text, t, &bytes, &n, NULL, &e));
        if (n) collect(&hand, bytes, n);
    }
    OK(qn_text_end(text, &bytes, &n, &e));
    if (n) collect(&hand, bytes, n);
    assert_string_equal(a.text, hand.text);
    assert_int_equal(finish, ended ? QN_FINISH_STOP_TOKEN : QN_FINISH_LENGTH);

    struct answer cut = {.stop_after = 1};
    p.arg = &cut;
    OK(qn_generate(s, prompt, strlen(prompt), &p, &finish, &e));
    if (a.n_calls > 1) assert_int_equal(finish, QN_FINISH_CANCELLED);
    assert_int_equal(cut.n_calls, a.n_calls > 0);
    assert_memory_equal(cut.text, a.text, cut.n);
    struct answer chat = {0};
    p.arg = &chat;
    p.is_chat = true;
    if (qn_model_has_template(model))
        OK(qn_generate(s, "Hello", 5, &p, &finish, &e));
    else
        REFUSED(qn_generate(s, "Hello", 5, &p, &finish, &e), QN_EDATA, "");
    if (qn_model_has_template(model)) REFUSED(qn_generate(s, "\xff", 1, &p, &finish, &e), QN_EUSAGE, "UTF-8");
    p.is_chat = false;
    OK(qn_conversation_new(&p.conversation, &e));
    REFUSED(qn_generate(s, prompt, 1, &p, &finish, &e), QN_EUSAGE, "without is_chat");
    qn_conversation_free(p.conversation);
    p.conversation = NULL;
    OK(qn_generate(s, prompt, strlen(prompt), NULL, NULL, &e)); /* to the end, heard by nobody */
    REFUSED(qn_generate(NULL, prompt, 1, &p, NULL, &e), QN_EUSAGE, "NULL");
    REFUSED(qn_generate(s, NULL, 1, &p, NULL, &e), QN_EUSAGE, "prompt is NULL");
    p.max_tokens = -2;
    REFUSED(qn_generate(s, prompt, 1, &p, NULL, &e), QN_EUSAGE, "max_tokens is -2");
    p.max_tokens = 1;
    p.n_stop = 1;
    REFUSED(qn_generate(s, prompt, 1, &p, NULL, &e), QN_EUSAGE, "stop is NULL");
    p.n_stop = 0;
    p.size = 0;
    REFUSED(qn_generate(s, prompt, 1, &p, NULL, &e), QN_EUSAGE, "parameter struct");
    qn_generate_params_init(NULL);
    REFUSED(qn_session_set_sampling(NULL, NULL, &e), QN_EUSAGE, "NULL");
    sampling.top_p = 2;
    REFUSED(qn_session_set_sampling(s, &sampling, &e), QN_EUSAGE, "top_p");
    qn_text_free(text);
    qn_free(ids);
    qn_session_free(s);
    qn_session_free(by_hand);
    qn_engine_free(g);
}

static size_t n_tokens(const qn_session *s) { return qn_session_tokens(s, NULL); }

/* A chat of two messages in two calls, and as one call after the first message and its reply were added by hand. */
static void a_conversation_keeps_messages_and_replies(void **state)
{
    (void)state;
    qn_engine *g = engine(model, QN_KV_F16, N_CTX, 0);
    qn_session *s = NULL, *by_hand = NULL, *alone = NULL;
    qn_conversation *c = NULL, *own = NULL;
    struct qn_generate_params p;
    struct qn_sampling sampling;
    struct answer first = {0}, second = {0}, again = {0};
    char big[N_CTX * 8];
    qn_sampling_init(&sampling);
    sampling.temperature = 0;
    OK(qn_session_new(&s, g, &sampling, &e));
    OK(qn_session_new(&by_hand, g, &sampling, &e));
    OK(qn_session_new(&alone, g, &sampling, &e));
    OK(qn_conversation_new(&c, &e));
    OK(qn_conversation_new(&own, &e));
    REFUSED(qn_conversation_new(NULL, &e), QN_EUSAGE, "NULL");
    REFUSED(qn_conversation_add(NULL, "user", "x", 1, &e), QN_EUSAGE, "NULL");
    REFUSED(qn_conversation_add(own, NULL, "x", 1, &e), QN_EUSAGE, "NULL");
    REFUSED(qn_conversation_add(own, "user", NULL, 1, &e), QN_EUSAGE, "text is NULL");
    REFUSED(qn_conversation_add(own, "user", "\xc3", 1, &e), QN_EUSAGE, "message must be UTF-8");
    REFUSED(qn_conversation_add(own, "\xff", "x", 1, &e), QN_EUSAGE, "role must be UTF-8");
    qn_conversation_free(NULL);
    qn_generate_params_init(&p);
    p.is_chat = true;
    p.max_tokens = 6;
    p.text = collect;
    p.conversation = c;
    if (qn_model_has_template(model)) {
        p.arg = &first;
        OK(qn_generate(s, "Hello", 5, &p, NULL, &e));
        memset(big, 'a', sizeof big);
        for (size_t i = 0; i < sizeof big; i += 2) big[i] = ' ';
        REFUSED(qn_generate(s, big, sizeof big, &p, NULL, &e), QN_EFULL, ""); /* is not in the conversation */
        REFUSED(qn_generate(s, "\xff", 1, &p, NULL, &e), QN_EUSAGE, "UTF-8");
        p.arg = &second;
        OK(qn_generate(s, "And \"then\"?", 11, &p, NULL, &e));

        OK(qn_conversation_add(own, "user", "Hello", 5, &e));
        OK(qn_conversation_add(own, "assistant", first.text, first.n, &e));
        p.conversation = own;
        p.arg = &again;
        OK(qn_generate(by_hand, "And \"then\"?", 11, &p, NULL, &e));
        assert_string_equal(second.text, again.text);
        assert_int_equal(n_tokens(s), n_tokens(by_hand));
        OK(qn_conversation_add(own, "user", "a\0b", 3, &e)); /* any character is text, and nothing is text, too */
        OK(qn_conversation_add(own, "assistant", NULL, 0, &e));
        p.arg = &(struct answer){0};
        OK(qn_generate(by_hand, "", 0, &p, NULL, &e));
        p.conversation = NULL;
        p.arg = &(struct answer){0};
        OK(qn_generate(alone, "And \"then\"?", 11, &p, NULL, &e));
        assert_true(n_tokens(alone) < n_tokens(s));
    }
    qn_conversation_free(c);
    qn_conversation_free(own);
    qn_session_free(s);
    qn_session_free(by_hand);
    qn_session_free(alone);
    qn_engine_free(g);
}

/* ---- sessions in files ---- */

static size_t read_file(uint8_t **bytes)
{
    struct stat st;
    int fd = open(file, O_RDONLY);
    assert_true(fd >= 0 && fstat(fd, &st) == 0);
    *bytes = malloc((size_t)st.st_size);
    assert_int_equal(read(fd, *bytes, (size_t)st.st_size), st.st_size);
    close(fd);
    return (size_t)st.st_size;
}

static void write_file(const uint8_t *bytes, size_t n)
{
    int fd = open(file, O_WRONLY | O_CREAT | O_TRUNC, 0600);
    assert_true(fd >= 0);
    assert_int_equal(write(fd, bytes, n), n);
    close(fd);
}

/* Saves a session of n tokens and some that were drawn. */
static qn_session *saved(qn_engine *g, int n, int n_drawn, const struct qn_sampling *sampling)
{
    qn_session *s = NULL;
    qn_token tokens[N_CTX], t;
    make_tokens(tokens, n);
    OK(qn_session_new(&s, g, sampling, &e));
    OK(qn_session_sync(s, tokens, (size_t)n, NULL, &e));
    for (int i = 0; i < n_drawn; i++) OK(qn_session_step(s, &t, &e));
    OK(qn_session_save(s, file, &e));
    return s;
}

static void check_equal(qn_session *a, qn_session *b)
{
    const qn_token *ta, *tb;
    const float *la, *lb;
    size_t n = qn_session_tokens(a, &ta);
    assert_int_equal(qn_session_tokens(b, &tb), n);
    assert_memory_equal(ta, tb, n * sizeof *ta);
    OK(qn_session_logits(a, &la, &e));
    OK(qn_session_logits(b, &lb, &e));
    assert_memory_equal(la, lb, (size_t)n_vocab * sizeof *la);
}

static void a_loaded_session_goes_on_with_the_same_bits(void **state)
{
    (void)state;
    static const enum qn_kv kinds[] = {QN_KV_F16, QN_KV_F32, QN_KV_Q8_0};
    static const int lengths[] = {1, 63, 64, 65, 130};
    struct qn_sampling sampling;
    qn_sampling_init(&sampling);
    sampling.seed = 3;
    sampling.repetition_penalty = 1.3f;
    for (int i = 0; i < 15; i++) {
        qn_engine *g = engine(model, kinds[i % 3], N_CTX, 0), *elsewhere = engine(model, kinds[i % 3], N_CTX - 7, 5);
        qn_session *s = saved(g, lengths[i / 3], i % 4, &sampling), *loaded = NULL;
        struct stat st;
        qn_token a, b;
        assert_int_equal(stat(file, &st), 0);
        assert_int_equal(st.st_mode & 0777, 0600);
        OK(qn_session_load(&loaded, elsewhere, file, &sampling, &e));
        check_equal(s, loaded);
        for (int k = 0; k < 20; k++) {
            OK(qn_session_step(s, &a, &e));
            OK(qn_session_step(loaded, &b, &e));
            assert_int_equal(a, b);
        }
        check_equal(s, loaded);
        const qn_token *tokens;
        size_t n = qn_session_tokens(loaded, &tokens), kept = 0;
        qn_token less[N_CTX];
        memcpy(less, tokens, n * sizeof *less);
        less[n - 1] = (less[n - 1] + 1) % n_vocab; /* a timeline that is cut goes on right, too */
        OK(qn_session_sync(s, less, n, NULL, &e));
        OK(qn_session_sync(loaded, less, n, &kept, &e));
        check_equal(s, loaded);
        qn_session_free(loaded);
        qn_session_free(s);
        qn_engine_free(elsewhere);
        qn_engine_free(g);
    }
}

static void nothing_is_evaluated_again_after_loading(void **state)
{
    (void)state;
    qn_engine *g = engine(model, QN_KV_F16, N_CTX, 0);
    qn_session *s = saved(g, 100, 0, NULL), *loaded = NULL;
    qn_token tokens[100];
    size_t kept = 0;
    make_tokens(tokens, 100);
    OK(qn_session_load(&loaded, g, file, NULL, &e));
    OK(qn_session_sync(loaded, tokens, 100, &kept, &e));
    assert_int_equal(kept, 100);
    OK(qn_session_save(loaded, file, &e)); /* in its own place */
    qn_session_free(loaded);
    loaded = NULL;
    OK(qn_session_load(&loaded, g, file, NULL, &e));
    check_equal(s, loaded);
    qn_session_free(loaded);
    qn_session_free(s);
    qn_engine_free(g);
}

static void what_does_not_fit_is_refused(void **state)
{
    (void)state;
    qn_engine *g = engine(model, QN_KV_F16, N_CTX, 0), *small = engine(model, QN_KV_F16, 50, 0),
              *f32 = engine(model, QN_KV_F32, N_CTX, 0), *foreign = engine(other, QN_KV_F16, N_CTX, 0);
    qn_session *empty = NULL, *s = saved(g, 51, 0, NULL), *loaded = NULL;
    struct qn_sampling sampling;
    REFUSED(qn_session_load(&loaded, small, file, NULL, &e), QN_EFULL,
            "51 tokens do not fit the engine's context of 50");
    REFUSED(qn_session_load(&loaded, f32, file, NULL, &e), QN_EUNSUP, "KV cache is of another type");
    REFUSED(qn_session_load(&loaded, foreign, file, NULL, &e), QN_EUNSUP, "of another model");
    REFUSED(qn_session_load(&loaded, g, "/nonexistent/s", NULL, &e), QN_ENOINPUT, "'/nonexistent/s': cannot be opened");
    REFUSED(qn_session_load(&loaded, g, "/tmp", NULL, &e), QN_ENOINPUT, "not a regular file");
    REFUSED(qn_session_load(&loaded, g, "/dev/null", NULL, &e), QN_ENOINPUT, "not a regular file");
    REFUSED(qn_session_load(NULL, g, file, NULL, &e), QN_EUSAGE, "NULL");
    REFUSED(qn_session_load(&loaded, NULL, file, NULL, &e), QN_EUSAGE, "NULL");
    REFUSED(qn_session_load(&loaded, g, NULL, NULL, &e), QN_EUSAGE, "NULL");
    qn_sampling_init(&sampling);
    sampling.min_p = 3;
    REFUSED(qn_session_load(&loaded, g, file, &sampling, &e), QN_EUSAGE, "min_p");
    assert_null(loaded);
    OK(qn_session_new(&empty, g, NULL, &e));
    REFUSED(qn_session_save(empty, file, &e), QN_EUSAGE, "no tokens to save");
    REFUSED(qn_session_save(NULL, file, &e), QN_EUSAGE, "NULL");
    REFUSED(qn_session_save(s, NULL, &e), QN_EUSAGE, "NULL");
    REFUSED(qn_session_save(s, "/nonexistent/s", &e), QN_EIO, "/nonexistent/s");
    OK(qn_session_load(&loaded, g, file, NULL, &e)); /* after all that the file is as it was */
    qn_session_free(loaded);
    qn_session_free(empty);
    qn_session_free(s);
    qn_engine_free(g);
    qn_engine_free(small);
    qn_engine_free(f32);
    qn_engine_free(foreign);
}

/* Every byte that means something is covered by a sum; padding may be anything. */
static void damaged_files_are_refused(void **state)
{
    (void)state;
    qn_engine *g = engine(model, QN_KV_F16, N_CTX, 0);
    qn_session *s = saved(g, 70, 2, NULL), *loaded = NULL;
    uint8_t *bytes;
    size_t n = read_file(&bytes), n_loaded = 0, step = n / 100 + 1;
    for (size_t at = 0; at < n; at += at < 64 || (at >= 4096 && at < 4096 + 200) ? 1 : step) {
        bytes[at] ^= 0x40;
        write_file(bytes, n);
        bytes[at] ^= 0x40;
        int rc = qn_session_load(&loaded, g, file, NULL, &e);
        if (!rc) {
            check_equal(s, loaded);
            qn_session_free(loaded);
            loaded = NULL;
            n_loaded++;
        } else if (rc != QN_EDATA && rc != QN_EUNSUP)
            fail_msg("byte %zu: %d '%s'", at, rc, e.msg);
        if (!rc && (at < 64 || at >= 8192 + 4096)) fail_msg("byte %zu is not checked", at);
    }
    for (size_t cut = 0; cut < n; cut += cut < 70 ? 1 : step) {
        write_file(bytes, cut);
        int rc = qn_session_load(&loaded, g, file, NULL, &e);
        if (rc != QN_EDATA) fail_msg("cut to %zu: %d '%s'", cut, rc, e.msg);
    }
    uint8_t *longer = calloc(1, n + 5000);
    memcpy(longer, bytes, n);
    write_file(longer, n + 1);
    REFUSED(qn_session_load(&loaded, g, file, NULL, &e), QN_EDATA, "");
    write_file(longer, n + 5000);
    REFUSED(qn_session_load(&loaded, g, file, NULL, &e), QN_EDATA, "");
    assert_null(loaded);
    free(longer);
    free(bytes);
    qn_session_free(s);
    qn_engine_free(g);
}

/* Not a number in every place, with sums that fit: what is computed with it is of no use, and nothing else happens. */
static void a_hostile_file_only_spoils_its_own_session(void **state)
{
    (void)state;
    enum { CHAIN_AT = 4096, LOGITS_SUM = 16, HEAD_SUM = 56 };
    qn_engine *g = engine(model, QN_KV_F16, N_CTX, 0);
    qn_session *s = saved(g, 70, 0, NULL), *loaded = NULL;
    struct chain_head h;
    uint8_t *bytes;
    size_t n = read_file(&bytes), n_logits = (size_t)n_vocab * sizeof(float);
    OK(chain_head_read(&h, bytes + CHAIN_AT, n - CHAIN_AT - n_logits, &e));
    uint64_t index_bytes = chain_index_bytes(&h), sum;
    uint64_t *index = calloc(1, index_bytes);
    memcpy(index, bytes + CHAIN_AT + CHAIN_HEAD_BYTES, index_bytes);
    for (uint32_t i = 0; i < chain_n_parts(&h); i++) {
        uint8_t *part = bytes + CHAIN_AT + chain_part_offset(&h, i);
        memset(part, 0xff, chain_part_bytes(&h, i));
        chain_index_sums(&h, index)[i] = chain_part_sum(part, chain_part_bytes(&h, i));
    }
    chain_index_seal(&h, index);
    memcpy(bytes + CHAIN_AT + CHAIN_HEAD_BYTES, index, index_bytes);
    write_file(bytes, n);
    OK(qn_session_load(&loaded, g, file, NULL, &e)); /* the logits are still right */
    qn_token t;
    OK(qn_session_step(loaded, &t, &e));
    int rc = qn_session_step(loaded, &t, &e);
    assert_true(rc == 0 || rc == QN_ENUMERIC);
    qn_session_free(loaded);

    loaded = NULL;
    memset(bytes + n - n_logits, 0xff, n_logits);
    sum = hash_bytes(bytes + n - n_logits, n_logits, 1);
    memcpy(bytes + LOGITS_SUM, &sum, sizeof sum);
    sum = hash_bytes(bytes, HEAD_SUM, 1);
    memcpy(bytes + HEAD_SUM, &sum, sizeof sum);
    write_file(bytes, n);
    OK(qn_session_load(&loaded, g, file, NULL, &e));
    assert_int_equal(qn_session_step(loaded, &t, &e), QN_ENUMERIC);
    qn_session_free(loaded);

    loaded = NULL;
    qn_token *tokens = (qn_token *)index;
    tokens[3] = n_vocab;
    chain_index_seal(&h, index);
    memcpy(bytes + CHAIN_AT + CHAIN_HEAD_BYTES, index, index_bytes);
    write_file(bytes, n);
    REFUSED(qn_session_load(&loaded, g, file, NULL, &e), QN_EDATA, "token 3 is");
    free(index);
    free(bytes);
    qn_session_free(s);
    qn_engine_free(g);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(warnings_reach_the_sink),
        cmocka_unit_test(metadata_is_text),
        cmocka_unit_test(a_model_knows_its_size),
        cmocka_unit_test(a_prompt_is_watched_and_cancelled),
        cmocka_unit_test(one_call_generates_what_many_do),
        cmocka_unit_test(a_conversation_keeps_messages_and_replies),
        cmocka_unit_test(a_loaded_session_goes_on_with_the_same_bits),
        cmocka_unit_test(nothing_is_evaluated_again_after_loading),
        cmocka_unit_test(what_does_not_fit_is_refused),
        cmocka_unit_test(damaged_files_are_refused),
        cmocka_unit_test(a_hostile_file_only_spoils_its_own_session),
    };
    if (argc != 3 || !mkdtemp(file)) return 2;
    static char folder[sizeof file];
    memcpy(folder, file, sizeof file);
    if (qn_model_open(&model, argv[1], &e) || qn_model_open(&other, argv[2], &e)) return 1;
    n_vocab = qn_model_n_vocab(model);
    if (chdir(folder)) return 1;
    snprintf(file, sizeof file, "session");
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    unlink(file);
    if (chdir("/") || rmdir(folder)) return 1; /* nothing else was left there */
    qn_model_close(model);
    qn_model_close(other);
    return failed;
}
