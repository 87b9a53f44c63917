/* SPDX-License-Identifier: MIT
 *
 * receipt_read.c: reads a receipt, which may come from anybody. See receipt.h.
 *
 * The first fault stays, and everything after it is skipped: functions do nothing once x->rc is set.
 */
#include <errno.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "receipt/receipt_impl.h"

#define MOST_FILES   4096
#define MOST_PROMPTS 100000 /* of one text */
#define MOST_WINDOW  1024   /* far more than any decoder has */

struct receipt_reader {
    struct receipt *r;
    const char *in; /* the object that is read: "" or "model." */
    int rc;
    struct qn_error *e;
};

#define FAIL(x, ...) ((x)->rc ? (x)->rc : ((x)->rc = error_set((x)->e, QN_EDATA, __VA_ARGS__)))

static const char *type_name(json_type t)
{
    static const char *const names[] = {"an object", "an array", "a string", "a whole number", "a number with a point",
                                        "true",      "false",    "null"};
    return names[t];
}

/* Refuses members that are not in the list, which NULL ends: what they mean would be ignored. */
static void only(struct receipt_reader *x, const json_t *o, const char *const *names)
{
    const char *key;
    json_t *v;
    json_object_foreach((json_t *)(uintptr_t)o, key, v)
    {
        bool is_known = false;
        for (int i = 0; names[i] && !is_known; i++) is_known = !strcmp(key, names[i]);
        if (!is_known) FAIL(x, "receipt: '%s%.40s' is not known to this version of Quern", x->in, key);
    }
}

static const json_t *member(struct receipt_reader *x, const json_t *o, const char *name, json_type type)
{
    const json_t *v = x->rc ? NULL : json_object_get(o, name);
    if (!v)
        FAIL(x, "receipt: '%s%s' is missing", x->in, name);
    else if (json_typeof(v) != type)
        FAIL(x, "receipt: '%s%s' is %s, not %s", x->in, name, type_name(json_typeof(v)), type_name(type));
    return x->rc ? NULL : v;
}

static int64_t whole(struct receipt_reader *x, const json_t *o, const char *name, int64_t lo, int64_t hi)
{
    const json_t *v = member(x, o, name, JSON_INTEGER);
    json_int_t i = v ? json_integer_value(v) : 0;
    if (v && (i < lo || i > hi))
        FAIL(x, "receipt: '%s%s' is %lld, not in %lld..%lld", x->in, name, (long long)i, (long long)lo, (long long)hi);
    return i;
}

static float real(struct receipt_reader *x, const json_t *o, const char *name)
{
    const json_t *v = member(x, o, name, JSON_REAL);
    return v ? (float)json_real_value(v) : 0;
}

static bool truth(struct receipt_reader *x, const json_t *o, const char *name)
{
    const json_t *v = x->rc ? NULL : json_object_get(o, name);
    if (!json_is_boolean(v)) FAIL(x, "receipt: '%s%s' is not true or false", x->in, name);
    return json_is_true(v);
}

/* n, if it is not NULL, is set to the length; otherwise the text must not have a NUL. */
static const char *text(struct receipt_reader *x, const json_t *o, const char *name, size_t *n)
{
    const json_t *v = member(x, o, name, JSON_STRING);
    const char *s = v ? json_string_value(v) : "";
    if (n)
        *n = v ? json_string_length(v) : 0;
    else if (v && strlen(s) != json_string_length(v))
        FAIL(x, "receipt: '%s%s' has a NUL", x->in, name);
    return s;
}

static bool is_null(const json_t *o, const char *name) { return json_is_null(json_object_get(o, name)); }

static void hash(struct receipt_reader *x, const json_t *o, const char *name, char out[RECEIPT_HEX])
{
    uint8_t bytes[SHA256_BYTES];
    const char *s = text(x, o, name, NULL);
    if (x->rc) return;
    if (strlen(s) != RECEIPT_HEX - 1 || !sha256_from_hex(bytes, s))
        FAIL(x, "receipt: '%s%s' is not a SHA-256 of 64 digits", x->in, name);
    else
        memcpy(out, s, RECEIPT_HEX);
}

static int choice(struct receipt_reader *x, const json_t *o, const char *name, const char *const *names)
{
    const char *s = text(x, o, name, NULL);
    for (int i = 0; names[i] && !x->rc; i++)
        if (*names[i] && !strcmp(names[i], s)) return i;
    FAIL(x, "receipt: '%s%s' is '%.40s', which this version of Quern does not know", x->in, name, s);
    return 0;
}

/* An array that the receipt owns. NULL for none, and after a failure. */
static void *list(struct receipt_reader *x, size_t n, size_t size)
{
    if (x->rc || !n) return NULL;
    void *p = mem_calloc(n, size);
    if (!p)
        x->rc = error_nomem(x->e, "a receipt", n * size);
    else
        x->r->lists[x->r->n_lists++] = p;
    return p;
}

/* ---- arrays ---- */

static qn_token token_at(struct receipt_reader *x, const json_t *array, size_t i, const char *name)
{
    const json_t *v = json_array_get(array, i);
    json_int_t t = json_integer_value(v);
    if (!json_is_integer(v) || t < 0 || t > INT32_MAX) FAIL(x, "receipt: '%s%s[%zu]' is not a token", x->in, name, i);
    return (qn_token)t;
}

static const qn_token *tokens(struct receipt_reader *x, const json_t *o, const char *name, size_t *n)
{
    const json_t *v = member(x, o, name, JSON_ARRAY);
    *n = json_array_size(v);
    qn_token *t = list(x, *n, sizeof *t);
    for (size_t i = 0; t && i < *n; i++) t[i] = token_at(x, v, i, name);
    return t;
}

static const char *const *strings(struct receipt_reader *x, const json_t *o, const char *name, size_t *n)
{
    const json_t *v = member(x, o, name, JSON_ARRAY);
    *n = json_array_size(v);
    const char **s = list(x, *n, sizeof *s);
    for (size_t i = 0; s && i < *n; i++) {
        const json_t *one = json_array_get(v, i);
        s[i] = json_is_string(one) ? json_string_value(one) : "";
        if (!*s[i] || strlen(s[i]) != json_string_length(one))
            FAIL(x, "receipt: '%s%s[%zu]' is not a text", x->in, name, i);
    }
    return s;
}

/* ---- parts ---- */

static void read_model(struct receipt_reader *x, const json_t *root)
{
    static const char *const names[] = {"name", "files", "tokenizer", "template", "pre", NULL};
    struct receipt_model *m = &x->r->model;
    const json_t *o = member(x, root, "model", JSON_OBJECT);
    if (!o) return;
    x->in = "model.";
    only(x, o, names);
    error_clean(m->name, sizeof m->name, text(x, o, "name", NULL));
    hash(x, o, "tokenizer", m->tokenizer);
    if (!is_null(o, "template")) hash(x, o, "template", m->chat_template);
    if (!is_null(o, "pre")) m->pre = text(x, o, "pre", NULL);
    const json_t *files = member(x, o, "files", JSON_ARRAY);
    size_t n = json_array_size(files);
    if (n < 1 || n > MOST_FILES) FAIL(x, "receipt: a model of %zu files, not 1..%d", n, MOST_FILES);
    m->file = list(x, n, sizeof *m->file);
    m->n_files = n;
    for (size_t i = 0; m->file && i < n; i++) {
        uint8_t bytes[SHA256_BYTES];
        const char *s = json_string_value(json_array_get(files, i));
        if (!s || strlen(s) != RECEIPT_HEX - 1 || !sha256_from_hex(bytes, s))
            FAIL(x, "receipt: 'model.files[%zu]' is not a SHA-256 of 64 digits", i);
        else
            memcpy(m->file[i], s, RECEIPT_HEX);
    }
    x->in = "";
}

/* The members of a prompt, of a receipt or of its own file. */
static void read_prompt_parts(struct receipt_reader *x, const json_t *o)
{
    static const char *const names[] = {"tokens", "conversation", "salt", NULL};
    struct receipt *r = x->r;
    x->in = "prompt.";
    only(x, o, names);
    r->prompt = tokens(x, o, "tokens", &r->n_prompt);
    if (!r->n_prompt) FAIL(x, "receipt: the prompt has no tokens");
    if (json_object_get(o, "conversation")) r->conversation = text(x, o, "conversation", &r->n_conversation);
    if (json_object_get(o, "salt")) r->salt = text(x, o, "salt", NULL);
    x->in = "";
}

static void read_prompt(struct receipt_reader *x, const json_t *root)
{
    static const char *const names[] = {"sha256", "n_tokens", NULL};
    const json_t *o = member(x, root, "prompt", JSON_OBJECT);
    if (!o) return;
    x->r->is_private = json_object_get(o, "sha256") != NULL;
    if (!x->r->is_private) {
        read_prompt_parts(x, o);
        return;
    }
    x->in = "prompt.";
    only(x, o, names);
    hash(x, o, "sha256", x->r->prompt_hash);
    x->r->n_prompt = (size_t)whole(x, o, "n_tokens", 1, INT32_MAX);
    x->in = "";
}

static void read_biases(struct receipt_reader *x, const json_t *o, struct qn_sampling *s)
{
    const json_t *v = member(x, o, "logit_bias", JSON_ARRAY);
    size_t n = json_array_size(v);
    struct qn_logit_bias *b = list(x, n, sizeof *b);
    for (size_t i = 0; b && i < n; i++) {
        const json_t *pair = json_array_get(v, i), *bias = json_array_get(pair, 1);
        if (json_array_size(pair) != 2 || !(json_is_real(bias) || json_is_null(bias)))
            FAIL(x, "receipt: 'sampling.logit_bias[%zu]' is not a token and a number or null", i);
        b[i] = (struct qn_logit_bias){token_at(x, pair, 0, "logit_bias"),
                                      json_is_null(bias) ? -__builtin_inff() : (float)json_real_value(bias)};
    }
    s->logit_bias = b;
    s->n_logit_bias = n;
}

static void read_sampling(struct receipt_reader *x, const json_t *root)
{
    struct qn_sampling *s = &x->r->sampling;
    const char *names[32];
    int n = 0;
    const json_t *o = member(x, root, "sampling", JSON_OBJECT);
    if (!o) return;
    qn_sampling_init(s);
    x->in = "sampling.";
    for (const struct receipt_number *m = receipt_numbers; m->name; m++) {
        void *at = (char *)s + m->at;
        names[n++] = m->name;
        if (m->is_float)
            *(float *)at = real(x, o, m->name);
        else
            *(int32_t *)at = (int32_t)whole(x, o, m->name, INT32_MIN, INT32_MAX);
    }
    names[n++] = "seed";
    names[n++] = "logit_bias";
    names[n++] = "dry_breakers";
    names[n] = NULL;
    only(x, o, names);
    const char *seed = text(x, o, "seed", NULL);
    char *end;
    errno = 0;
    s->seed = strtoull(seed, &end, 10);
    if (!*seed || strspn(seed, "0123456789") != strlen(seed) || errno || (*seed == '0' && seed[1]))
        FAIL(x, "receipt: 'sampling.seed' is '%.40s', not a decimal number of 64 bits", seed);
    read_biases(x, o, s);
    s->dry_breakers = tokens(x, o, "dry_breakers", &s->n_dry_breakers);
    x->in = "";
}

static void read_forms(struct receipt_reader *x, const json_t *root)
{
    static const char *const form_names[] = {"kind", "text", NULL}, *const call_names[] = {"required", "names", NULL};
    struct receipt *r = x->r;
    const json_t *o;
    if (!is_null(root, "form") && (o = member(x, root, "form", JSON_OBJECT))) {
        x->in = "form.";
        only(x, o, form_names);
        r->has_form = true;
        r->form_kind = (enum qn_grammar_kind)choice(x, o, "kind", receipt_form_names);
        r->form = text(x, o, "text", &r->n_form);
    }
    if (!is_null(root, "calls") && (o = member(x, root, "calls", JSON_OBJECT))) {
        x->in = "calls.";
        only(x, o, call_names);
        r->has_calls = true;
        r->calls_required = truth(x, o, "required");
        r->call_names = strings(x, o, "names", &r->n_call_names);
    }
    x->in = "";
}

static void read_answer(struct receipt_reader *x, const json_t *o, struct receipt_answer *a, qn_token **room)
{
    static const char *const names[] = {"tokens", "end", "stop_index", NULL};
    if (!json_is_object(o)) FAIL(x, "receipt: an answer is not an object");
    if (x->rc) return;
    only(x, o, names);
    const json_t *v = member(x, o, "tokens", JSON_ARRAY);
    a->n = json_array_size(v);
    a->tokens = *room;
    for (size_t i = 0; i < a->n && *room; i++) *(*room)++ = token_at(x, v, i, "tokens");
    a->end = (enum receipt_end)choice(x, o, "end", receipt_end_names);
    a->stop_index = (int)whole(x, o, "stop_index", -1, INT_MAX);
}

static void read_answers(struct receipt_reader *x, const json_t *root)
{
    const json_t *v = member(x, root, "answers", JSON_ARRAY), *one;
    size_t n = json_array_size(v), n_tokens = 0, i;
    if (!n) FAIL(x, "receipt: there are no answers");
    struct receipt_answer *a = list(x, n, sizeof *a);
    json_array_foreach((json_t *)(uintptr_t)v, i, one) n_tokens += json_array_size(json_object_get(one, "tokens"));
    qn_token *room = list(x, n_tokens, sizeof *room);
    x->in = "answers[].";
    for (i = 0; a && i < n && !x->rc; i++) read_answer(x, json_array_get(v, i), &a[i], &room);
    x->in = "";
    x->r->answers = a;
    x->r->n_answers = n;
}

/* ---- the whole ---- */

/* Answers of a decoder that is not known are checked in another way. */
static void read_decoder(struct receipt_reader *x, const json_t *root)
{
    static const char *const names[] = {"window", "entropy_threshold", "pos_penalty", NULL};
    struct receipt_windows *w = &x->r->windows;
    const char *name = text(x, root, "decoder", NULL);
    x->r->is_replay = !strcmp(name, RECEIPT_REPLAY);
    if (!x->rc && !x->r->is_replay && strcmp(name, RECEIPT_SEQUENCE))
        FAIL(x, "receipt: 'decoder' is '%.40s': it was made by a newer Quern, and this version cannot check it", name);
    if (!x->r->is_replay && json_object_get(root, "windows"))
        FAIL(x, "receipt: 'windows' is for the decoder '" RECEIPT_REPLAY "'");
    const json_t *o = x->r->is_replay ? member(x, root, "windows", JSON_OBJECT) : NULL;
    if (!o) return;
    x->in = "windows.";
    only(x, o, names);
    w->window = (int)whole(x, o, "window", 1, MOST_WINDOW);
    w->entropy_threshold = real(x, o, "entropy_threshold");
    w->pos_penalty = real(x, o, "pos_penalty");
    if (!x->rc && !(w->entropy_threshold >= 0 && w->pos_penalty >= 0))
        FAIL(x, "receipt: 'windows' has a negative number");
    x->in = "";
}

static void read_context(struct receipt_reader *x, const json_t *root)
{
    struct receipt *r = x->r;
    r->n_ctx = (int)whole(x, root, "n_ctx", 1, INT_MAX);
    r->rotates = json_object_get(root, "rotate") != NULL;
    if (r->rotates) r->n_keep = (int)whole(x, root, "rotate", 0, r->n_ctx / 2);
}

static void read_root(struct receipt_reader *x, const json_t *root)
{
    static const char *const names[] = {"receipt",    "arithmetic", "decoder",    "model", "n_ctx",       "kv",
                                        "prompt",     "sampling",   "max_tokens", "stop",  "stop_tokens", "one_call",
                                        "ignore_eos", "continues",  "form",       "calls", "answers",     "sha256",
                                        "rotate",     "windows",    NULL};
    struct receipt *r = x->r;
    read_decoder(x, root);
    only(x, root, names);
    r->arithmetic = (int)whole(x, root, "arithmetic", 1, INT_MAX);
    read_model(x, root);
    read_context(x, root);
    r->kv = (enum qn_kv)choice(x, root, "kv", receipt_kv_names);
    read_prompt(x, root);
    read_sampling(x, root);
    r->max_tokens = (int)whole(x, root, "max_tokens", 0, INT_MAX);
    r->stop = strings(x, root, "stop", &r->n_stop);
    r->stop_tokens = tokens(x, root, "stop_tokens", &r->n_stop_tokens);
    r->ignore_eos = truth(x, root, "ignore_eos");
    r->one_call = truth(x, root, "one_call");
    r->continues = truth(x, root, "continues");
    read_forms(x, root);
    read_answers(x, root);
}

/* Compares the hash in the receipt with that of everything else in it. Takes the member out for that. */
static void check_hash(struct receipt_reader *x, json_t *root)
{
    char said[RECEIPT_HEX] = "", is[RECEIPT_HEX];
    hash(x, root, "sha256", said);
    if (x->rc) return;
    json_object_del(root, "sha256");
    x->rc = receipt_hash(is, root, x->e);
    if (!x->rc && strcmp(said, is))
        FAIL(x, "receipt: it says that its hash is %.12s..., but what it says has %.12s...: it was altered or damaged",
             said, is);
}

/* Parses one object. NULL and x->rc: it is none. */
static json_t *parse(struct receipt_reader *x, const char *bytes, size_t n, size_t *used)
{
    json_error_t why;
    size_t flags = JSON_REJECT_DUPLICATES | JSON_ALLOW_NUL | (used ? JSON_DISABLE_EOF_CHECK : 0);
    json_t *root = json_loadb(bytes, n, flags, &why);
    if (!root)
        FAIL(x, "receipt: line %d: %s", why.line, why.text);
    else if (!json_is_object(root))
        FAIL(x, "receipt: this is %s, not an object", type_name(json_typeof(root)));
    if (used) *used = root ? (size_t)why.position : 0;
    return root;
}

int receipt_read(struct receipt *r, const char *bytes, size_t n, size_t *used, struct qn_error *e)
{
    struct receipt_reader x = {.r = r, .in = "", .e = e};
    *r = (struct receipt){0};
    json_t *root = r->root = parse(&x, bytes, n, used);
    if (!x.rc && !json_object_get(root, "receipt")) FAIL(&x, "receipt: this is JSON, but not a receipt");
    int64_t version = x.rc ? 0 : whole(&x, root, "receipt", 0, INT_MAX);
    if (!x.rc && version != RECEIPT_VERSION)
        FAIL(&x, "receipt: its form has version %d, this version of Quern reads %d", (int)version, RECEIPT_VERSION);
    if (!x.rc) check_hash(&x, root);
    if (!x.rc) read_root(&x, root);
    if (x.rc) receipt_deinit(r);
    return x.rc;
}

/* ---- prompts of private receipts ---- */

struct receipt_prompt {
    char hash[RECEIPT_HEX];
    size_t at, n; /* bytes of the text */
};

static int add_prompt(struct receipt_prompts *p, size_t at, size_t n, const char *hash, struct qn_error *e)
{
    if (p->n == MOST_PROMPTS) return error_set(e, QN_EDATA, "receipt: more than %d prompts", MOST_PROMPTS);
    if (p->n == p->cap) {
        size_t cap = p->cap ? 2 * p->cap : 16;
        struct receipt_prompt *item = mem_realloc(p->item, cap * sizeof *item);
        if (!item) return error_nomem(e, "the prompts of receipts", cap * sizeof *item);
        p->item = item;
        p->cap = cap;
    }
    struct receipt_prompt *new = &p->item[p->n++];
    *new = (struct receipt_prompt){.at = at, .n = n};
    memcpy(new->hash, hash, sizeof new->hash);
    return 0;
}

void receipt_prompts_deinit(struct receipt_prompts *p)
{
    mem_free(p->item);
    *p = (struct receipt_prompts){0};
}

/* Finds the prompt that begins at *at, and moves *at after it. */
static int find_prompt(struct receipt_prompts *p, size_t *at, size_t n, struct qn_error *e)
{
    struct qn_error why = {0};
    struct receipt_reader x = {.in = "", .e = &why};
    char hash[RECEIPT_HEX];
    size_t used = 0;
    json_t *o = parse(&x, p->text + *at, n - *at, &used);
    if (!x.rc) x.rc = receipt_hash(hash, o, &why);
    json_decref(o);
    if (x.rc) return error_set(e, x.rc, "prompt %zu: %s", p->n + 1, why.msg);
    int rc = add_prompt(p, *at, used, hash, e);
    *at += used;
    return rc;
}

int receipt_prompts_read(struct receipt_prompts *p, const char *text, size_t n, struct qn_error *e)
{
    int rc = 0;
    *p = (struct receipt_prompts){.text = text};
    for (size_t at = 0; !rc;) {
        while (at < n && strchr(" \t\r\n", text[at]) && text[at]) at++;
        if (at == n && p->n) return 0;
        rc = find_prompt(p, &at, n, e);
    }
    receipt_prompts_deinit(p);
    return rc;
}

int receipt_add_prompt(struct receipt *r, const struct receipt_prompts *p, struct qn_error *e)
{
    struct receipt_reader x = {.r = r, .in = "", .e = e};
    size_t n_prompt = r->n_prompt, i = 0;
    while (i < p->n && strcmp(p->item[i].hash, r->prompt_hash)) i++;
    if (i == p->n && p->n == 1)
        return error_set(e, QN_EDATA, "receipt: this prompt has the hash %.12s..., that of the receipt is %.12s...",
                         p->item[0].hash, r->prompt_hash);
    if (i == p->n)
        return error_set(e, QN_EDATA, "receipt: none of these %zu prompts has its hash %.12s...", p->n, r->prompt_hash);
    json_t *o = parse(&x, p->text + p->item[i].at, p->item[i].n, NULL);
    if (!x.rc) read_prompt_parts(&x, o);
    if (!x.rc && r->n_prompt != n_prompt)
        FAIL(&x, "receipt: 'prompt.n_tokens' is %zu, but its prompt has %zu tokens", n_prompt, r->n_prompt);
    if (!x.rc && json_object_set(r->root, "prompt", o))
        x.rc = error_nomem(e, "a receipt", p->item[i].n); /* it owns the texts */
    json_decref(o);
    return x.rc;
}
