/* SPDX-License-Identifier: MIT
 *
 * check_wedlm.c: tries candidates for the mask of a WeDLM. See check_wedlm.h.
 */
#include "cli/models/check_wedlm.h"

#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sysexits.h>

#include "base/error.h"
#include "base/mem.h"
#include "cli/core/cli.h"
#include "decode/wedlm_draft.h"
#include "engine/engine.h"

#define N_MASKS   4 /* after each text */
#define MOST      64
#define MOST_TEXT 1024 /* tokens of a text with the chat template */
#define N_SHOWN   5

/* What is said, and how the answer to it begins: the rest of the answer is hardly in doubt. */
static const struct {
    const char *asked, *answer;
} texts[] = {
    {"Repeat this:\nred green blue red green blue red green blue", "red green blue red"},
    {"Copy this code:\nfor (i = 0; i < n; i++) a[i] = b[i];\nfor (i = 0; i < n; i++) c[i] = d[i];", "for (i = 0; i <"},
    {"Make a table of name, city:\nHugo, Rome\nAnna, Oslo", "| name | city |\n|"},
    {"Count from 1 to 20.", "1, 2, 3, 4, 5, 6, 7, 8, 9,"},
};
#define N_TEXTS ((int)(sizeof texts / sizeof *texts))

struct candidate {
    qn_token token;
    int n_right;   /* masks that named the token of plain decoding, of N_TEXTS * N_MASKS */
    float entropy; /* mean of all masks, nats */
};

struct trial {
    qn_model *handle;
    qn_engine *engine;
    const struct model *m;
    struct kv_seq mem;
    struct wedlm_file file;
    float *logits, *work; /* [N_MASKS + 1][n_vocab]; [n_vocab] */
    uint8_t *scratch;
    struct candidate of[MOST];
    int n;
    int n_rows; /* of the present sink */
};

/* ---- candidates ---- */

static void add(struct trial *t, qn_token token)
{
    if (token < 0 || token >= t->m->hp.n_vocab || t->n == MOST) return;
    for (int i = 0; i < t->n; i++)
        if (t->of[i].token == token) return;
    t->of[t->n++] = (struct candidate){.token = token};
}

static void add_candidates(struct trial *t)
{
    add(t, t->file.mask);
    add(t, vocab_mask(t->m->vocab));
    for (qn_token id = WEDLM_MASK; id <= WEDLM_MASK + 4; id++) add(t, id);
    int n = vocab_n_tokens(t->m->vocab);
    for (qn_token id = n - 1; id >= 0; id--) /* what was added to a vocabulary is at its end */
        if (vocab_is_control(t->m->vocab, id)) add(t, id);
}

/* ---- trying ---- */

static int keep_row(void *arg, const float *logits, struct qn_error *e)
{
    struct trial *t = arg;
    size_t n = (size_t)t->m->hp.n_vocab;
    (void)e;
    memcpy(t->logits + (size_t)t->n_rows++ * n, logits, n * sizeof *logits);
    return 0;
}

static qn_token best(const float *logits, int n)
{
    int at = 0;
    for (int i = 1; i < n; i++)
        if (logits[i] > logits[at]) at = i;
    return at;
}

/* Tries a candidate after what the sequence has. wanted: how plain decoding goes on. */
static int try_one(struct trial *t, struct candidate *c, const qn_token *wanted, float *batch, struct qn_error *e)
{
    int n_vocab = t->m->hp.n_vocab, n = t->mem.n_slots;
    qn_token masks[N_MASKS];
    for (int i = 0; i < N_MASKS; i++) masks[i] = c->token;
    t->n_rows = 0;
    int rc = engine_append_all(t->engine, &t->mem, masks, N_MASKS, 1, batch, keep_row, t, e);
    for (int i = 0; i < N_MASKS && !rc; i++) {
        const float *row = t->logits + (size_t)i * (size_t)n_vocab;
        c->n_right += best(row, n_vocab) == wanted[i];
        c->entropy +=
            wedlm_entropy(&t->engine->forward.pass.kt, row, n_vocab, t->work, t->scratch) / (float)(N_TEXTS * N_MASKS);
    }
    if (!rc) kv_seq_truncate(&t->mem, n);
    return rc;
}

/* The tokens of a text: a conversation if the model has a template for it. *ids: [*n], for qn_free(). */
static int tokens_of(const struct trial *t, int i, qn_token **ids, size_t *n, struct qn_error *e)
{
    struct buf text = {0};
    qn_chat *chat = NULL;
    qn_prompt *prompt = NULL;
    int rc;
    if (!qn_model_has_template(t->handle)) {
        rc = buf_printf(&text, e, "%s\n%s", texts[i].asked, texts[i].answer);
        if (!rc) rc = qn_tokenize(t->handle, (char *)text.data, text.len, QN_ADD_BOS, NULL, ids, n, e);
        buf_deinit(&text);
        return rc;
    }
    json_t *v = json_pack("{s:[{s:s,s:s},{s:s,s:s}]}", "messages", "role", "user", "content", texts[i].asked, "role",
                          "assistant", "content", texts[i].answer);
    char *request = v ? json_dumps(v, JSON_COMPACT) : NULL;
    rc = request ? qn_chat_new(&chat, t->handle, NULL, 0, e) : error_nomem(e, "a conversation", 0);
    if (!rc) rc = qn_chat_prompt(&prompt, chat, request, strlen(request), NULL, e);
    const qn_token *of = rc ? NULL : qn_prompt_tokens(prompt, n);
    if (!rc && !(*ids = mem_dup(of, *n * sizeof *of))) rc = error_nomem(e, "a conversation", *n);
    qn_prompt_free(prompt);
    qn_chat_free(chat);
    mem_free(request);
    json_decref(v);
    return rc;
}

static int try_text(struct trial *t, int at, float *batch, struct qn_error *e)
{
    qn_token *ids, wanted[N_MASKS];
    size_t n;
    int rc = tokens_of(t, at, &ids, &n, e);
    if (rc) return rc;
    if (n > MOST_TEXT) n = MOST_TEXT;
    kv_seq_truncate(&t->mem, 0);
    rc = engine_append(t->engine, &t->mem, ids, n, t->logits, e);
    for (int i = 0; i < N_MASKS && !rc; i++) {
        wanted[i] = best(t->logits, t->m->hp.n_vocab);
        if (i + 1 < N_MASKS) rc = engine_append(t->engine, &t->mem, &wanted[i], 1, t->logits, e);
    }
    if (!rc) kv_seq_truncate(&t->mem, (int)n);
    for (int i = 0; i < t->n && !rc; i++) rc = try_one(t, &t->of[i], wanted, batch, e);
    qn_free(ids);
    return rc;
}

static int by_fit(const void *a, const void *b)
{
    const struct candidate *x = a, *y = b;
    if (x->n_right != y->n_right) return y->n_right - x->n_right;
    if (x->entropy != y->entropy) return x->entropy < y->entropy ? -1 : 1;
    return x->token - y->token;
}

/* ---- the result ---- */

static void print_one(const struct trial *t, const struct candidate *c)
{
    struct str text = vocab_token_text(t->m->vocab, c->token);
    char raw[64], shown[256];
    snprintf(raw, sizeof raw, "%.*s", (int)(text.n < 60 ? text.n : 60), text.n ? text.p : "");
    error_clean(shown, sizeof shown, raw);
    printf("  %7d  %-24s %3d of %d right  %.3f nats%s\n", c->token, shown, c->n_right, N_TEXTS * N_MASKS,
           (double)c->entropy, c->token == t->file.mask ? "  (the file's mask)" : "");
}

static int judge(const struct trial *t, const char *path)
{
    const struct candidate *c = &t->of[0];
    char name[1024];
    error_clean(name, sizeof name, path);
    for (int i = 0; i < t->n; i++)
        if (i < N_SHOWN || t->of[i].token == t->file.mask) print_one(t, &t->of[i]);
    if (!t->n || c->n_right * 4 < N_TEXTS * N_MASKS)
        fprintf(stderr, "quern: %s: no token behaves like a mask\n", name);
    else if (t->file.mask < 0)
        fprintf(stderr, "quern: %s: token %d behaves like a mask, but the file names none\n", name, c->token);
    else if (c->token != t->file.mask)
        fprintf(stderr, "quern: %s: the file's mask is %d, but %d behaves more like one\n", name, t->file.mask,
                c->token);
    else
        return 0;
    return EX_DATAERR;
}

static int take_buffers(struct trial *t, float **batch, struct qn_error *e)
{
    size_t row = (size_t)t->m->hp.n_vocab * sizeof(float);
    t->logits = mem_alloc((N_MASKS + 1) * row);
    t->work = mem_alloc(row);
    t->scratch = mem_aligned(64, KERNEL_SCRATCH_BYTES);
    *batch = mem_alloc((size_t)t->engine->n_batch * row);
    if (!t->logits || !t->work || !t->scratch || !*batch) return error_nomem(e, "the logits of masks", row);
    return kv_seq_init(&t->mem, t->engine->kv, t->engine->n_ctx, e);
}

int check_wedlm(const char *path, const struct qn_model_params *file)
{
    struct trial t = {0};
    struct qn_engine_params p;
    struct qn_error e = {0};
    float *batch = NULL;
    int rc, status = 0;
    qn_engine_params_init(&p);
    p.n_ctx = MOST_TEXT + 2 * N_MASKS;
    p.n_batch = 64;
    if ((rc = qn_model_open_with(&t.handle, path, file, &e)) || (rc = qn_engine_new(&t.engine, t.handle, &p, &e)))
        goto done;
    t.m = t.engine->model;
    if ((rc = wedlm_file_read(&t.file, t.m, &e)) || (rc = wedlm_draft_check(t.m, 0, &e))) {
        struct qn_error why = e;
        error_set(&e, rc, "%s: %s", path, why.msg);
        goto done;
    }
    add_candidates(&t);
    rc = take_buffers(&t, &batch, &e);
    for (int i = 0; i < N_TEXTS && !rc; i++) rc = try_text(&t, i, batch, &e);
    if (rc) goto done;
    qsort(t.of, (size_t)t.n, sizeof t.of[0], by_fit);
    status = judge(&t, path);
done:
    if (rc) status = cli_fail(&e);
    mem_free(batch);
    mem_free(t.logits);
    mem_free(t.work);
    mem_free(t.scratch);
    kv_seq_deinit(&t.mem);
    qn_engine_free(t.engine);
    qn_model_close(t.handle);
    return status;
}
