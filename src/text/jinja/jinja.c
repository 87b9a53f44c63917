/* SPDX-License-Identifier: MIT
 *
 * jinja.c: compiling and rendering chat templates.
 *
 * This file holds the way in and out: the conversation, a tree of JSON, becomes values that are marked as the user's,
 * and the text comes out with the ranges that still have this mark. The other files:
 *
 *   jinja_lex, jinja_parse       the template's text to tokens, and tokens to a tree
 *   jinja_eval                   walks the tree: names, scopes, calls, statements
 *   jinja_op                     operators, attributes, subscripts, slices
 *   jinja_func                   how functions get their arguments; global functions
 *   jinja_filter, jinja_seq      filters for one value, and for sequences
 *   jinja_test, jinja_method     tests; methods of strings, lists and dictionaries
 *   jinja_value, jinja_str       values; text with its origin
 *   jinja_print, jinja_format    values as text; formatted text
 *   jinja_env                    the memory and the limits of all of these
 *
 * Written from the documentation and the observed behaviour of Jinja2 3.1. Knows nothing of any model or template. Each
 * file says where it differs from Jinja2; docs/TEMPLATES.md has the list.
 */
#include "text/jinja/jinja.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "base/rng.h"
#include "text/jinja/jinja_eval.h"
#include "text/jinja/jinja_str.h"
#include "text/token/unicode.h"

#define MAX_SOURCE_BYTES ((size_t)1 << 20)
#define MAX_TREE_BYTES   ((size_t)256 << 20)
#define MAX_TREE_DEPTH   300 /* nested calls of the parser: about 150 parentheses */

#define MAX_DEPTH 1000

/* The default limits for an input of n bytes: a base, and so much for each byte. docs/TEMPLATES.md says what real
 * templates need; tests/golden/template_needs measures it. */
#define STEPS_BASE        ((uint64_t)10000000)
#define STEPS_PER_BYTE    16
#define VALUE_BYTES_BASE  ((size_t)16 << 20)
#define VALUE_BYTES_TIMES 16
#define CPU_NS_BASE       ((uint64_t)1000000000)
#define CPU_NS_PER_BYTE   2000

struct jinja {
    struct jenv env; /* owns the tree */
    const struct jnode *root;
};

static int compile(struct jinja *t, const char *src, size_t n)
{
    if (setjmp(t->env.out)) return t->env.code;
    t->root = jinja_parse(&t->env, src, n);
    return 0;
}

int jinja_compile(struct jinja **out, const char *src, size_t n, struct qn_error *e)
{
    *out = NULL;
    if (n > MAX_SOURCE_BYTES) return error_set(e, QN_EDATA, "template: %zu bytes (limit %zu)", n, MAX_SOURCE_BYTES);
    if (!unicode_is_utf8((const uint8_t *)src, n)) return error_set(e, QN_EDATA, "template: the text is not UTF-8");
    struct jinja *t = mem_calloc(1, sizeof *t);
    if (!t) return error_nomem(e, "template", sizeof *t);
    t->env.e = e;
    t->env.max_bytes = MAX_TREE_BYTES;
    t->env.max_steps = UINT64_MAX;
    t->env.max_depth = MAX_TREE_DEPTH;
    int rc = compile(t, src, n);
    if (rc) {
        jinja_free(t);
        return rc;
    }
    *out = t;
    return 0;
}

void jinja_free(struct jinja *t)
{
    if (!t) return;
    jenv_deinit(&t->env);
    mem_free(t);
}

/* ---- in ---- */

static struct jval convert(struct jenv *j, json_t *json, const char *key, unsigned flags);

/* A string of which parts are the template's. */
static struct jval convert_mixed(struct jenv *j, const json_t *json, unsigned flags)
{
    const json_t *ours = j->in->ours;
    const char *p = json_string_value(json);
    size_t at = 0;
    struct jtext t = {.j = j};
    for (; json_array_get(ours, j->at_ours) == json; j->at_ours += 3) {
        size_t from = (size_t)json_integer_value(json_array_get(ours, j->at_ours + 1));
        size_t n = (size_t)json_integer_value(json_array_get(ours, j->at_ours + 2));
        assert(from >= at && from + n <= json_string_length(json));
        jtext_bytes(&t, p + at, from - at, flags);
        jtext_bytes(&t, p + from, n, 0);
        at = from + n;
    }
    jtext_bytes(&t, p + at, json_string_length(json) - at, flags);
    return jtext_done(&t, 0);
}

static struct jval convert_string(struct jenv *j, json_t *json, const char *key, unsigned flags)
{
    const char *p = json_string_value(json);
    size_t n = json_string_length(json);
    if (flags && json_array_get(j->in->ours, j->at_ours) == json) return convert_mixed(j, json, flags);
    if (key && flags && j->in->vouch && j->in->vouch(j->in->vouch_arg, key, p, n)) flags = 0;
    return jval_str(j, p, n, flags);
}

/* A key of an object. Most objects have the same few keys, so those seen last are used again. */
static struct jval convert_key(struct jenv *j, const char *p, size_t n, unsigned flags)
{
    size_t i = (n * 7 + (n ? (uint8_t)p[0] + (uint8_t)p[n - 1] * 3u : 0)) % JENV_KEYS;
    struct jval *known = &j->key[i];
    if (n > 64) return jval_str(j, p, n, flags);
    if (known->kind != JSTR || known->flags != flags || known->s->n != n || memcmp(known->s->p, p, n) != 0)
        *known = jval_str(j, p, n, flags);
    return *known;
}

static struct jval convert_object(struct jenv *j, json_t *json, unsigned flags)
{
    struct jval d = jval_flag(jval_dict(j, JDICT), flags);
    jdict_reserve(j, d.d, json_object_size(json));
    for (void *it = json_object_iter(json); it; it = json_object_iter_next(json, it)) {
        const char *key = json_object_iter_key(it);
        struct jval name = convert_key(j, key, json_object_iter_key_len(it), flags);
        jdict_set(j, d.d, name, convert(j, json_object_iter_value(it), key, flags));
    }
    return d;
}

/* Converts JSON to a value with these flags. key: the key of this member of an object; NULL: it is not one. Strings are
 * borrowed. */
static struct jval convert(struct jenv *j, json_t *json, const char *key, unsigned flags)
{
    struct jval v = jval_none();
    struct jval *items;
    size_t n;
    jenv_step(j, 1);
    jenv_enter(j);
    switch (json_typeof(json)) {
    case JSON_OBJECT: v = convert_object(j, json, flags); break;
    case JSON_ARRAY:
        n = json_array_size(json);
        items = jenv_get_n(j, n, sizeof *items);
        for (size_t i = 0; i < n; i++) items[i] = convert(j, json_array_get(json, i), NULL, flags);
        v = jval_list(j, JLIST, items, n);
        break;
    case JSON_STRING: v = convert_string(j, json, key, flags); break;
    case JSON_INTEGER: v = jval_int(json_integer_value(json)); break;
    case JSON_REAL: v = jval_float(json_real_value(json)); break;
    case JSON_TRUE: v = jval_bool(true); break;
    case JSON_FALSE: v = jval_bool(false); break;
    case JSON_NULL: break;
    }
    jenv_leave(j);
    return v.kind == JSTR ? v : jval_flag(v, flags);
}

static void add_variables(struct jenv *j, json_t *object, unsigned flags)
{
    if (!object) return;
    assert(json_is_object(object));
    struct jval vars = convert_object(j, object, flags);
    for (size_t i = 0; i < vars.d->n; i++) jdict_set(j, j->vars, vars.d->pair[i].key, vars.d->pair[i].val);
}

/* ---- out ---- */

/* The end of the run of bytes of one origin that begins at `at`. */
static size_t run_end(const struct jtext *t, size_t at)
{
    const uint8_t *change = t->mark ? memchr(t->mark + at, !t->mark[at], t->n - at) : NULL;
    return change ? (size_t)(change - t->mark) : t->n;
}

static bool is_user(const struct jtext *t, size_t at) { return t->mark ? t->mark[at] : t->user; }

/* How many ranges are the user's. They count against the limits, because they come on top of the values. */
static size_t count_spans(struct jenv *j, const struct jtext *t)
{
    size_t n = 0;
    jenv_bytes(j, t->n);
    for (size_t at = 0; at < t->n; at = run_end(t, at)) {
        jenv_looks(j, 1);
        n += is_user(t, at);
    }
    jenv_check_room(j, t->n + n * sizeof(struct text_span));
    return n;
}

static int copy_out(struct jinja_output *out, const struct jtext *t, size_t n_spans, struct qn_error *e)
{
    int rc = buf_add(&out->text, t->n ? t->p : "", t->n, e);
    if (rc) return rc;
    out->user = mem_alloc(n_spans * sizeof *out->user);
    if (!out->user) return error_nomem(e, "origins of a template's output", n_spans * sizeof *out->user);
    for (size_t at = 0, end; at < t->n; at = end) {
        end = run_end(t, at);
        if (is_user(t, at)) out->user[out->n_user++] = (struct text_span){.at = at, .n = end - at};
    }
    return 0;
}

static int run(struct jenv *j, const struct jnode *root, struct jtext *text, size_t *n_spans)
{
    if (setjmp(j->out)) return j->code;
    j->vars = jval_dict(j, JDICT).d;
    j->key = jenv_get_n(j, JENV_KEYS, sizeof *j->key);
    memset(j->key, 0, JENV_KEYS * sizeof *j->key);
    add_variables(j, j->in->context, JUSER);
    add_variables(j, j->in->trusted, 0);
    jeval_run(j, root, text);
    *n_spans = count_spans(j, text);
    return 0;
}

/* base + n * factor; a very large number when that overflows */
static uint64_t budget(uint64_t base, uint64_t n, uint64_t factor)
{
    uint64_t sum;
    if (__builtin_mul_overflow(n, factor, &sum) || __builtin_add_overflow(sum, base, &sum)) return UINT64_MAX / 2;
    return sum;
}

uint64_t jinja_steps(size_t in_bytes) { return budget(STEPS_BASE, in_bytes, STEPS_PER_BYTE); }

size_t jinja_value_bytes(size_t in_bytes) { return budget(VALUE_BYTES_BASE, in_bytes, VALUE_BYTES_TIMES); }

static void set_limits(struct jenv *j, const struct jinja_input *in)
{
    const struct jinja_limits *l = &in->limits;
    j->max_steps = l->n_steps ? l->n_steps : jinja_steps(in->n_bytes);
    j->max_cpu_ns = l->cpu_ns ? l->cpu_ns : budget(CPU_NS_BASE, in->n_bytes, CPU_NS_PER_BYTE);
    j->max_depth = l->depth > 0 && l->depth < MAX_DEPTH ? l->depth : MAX_DEPTH;
    j->max_bytes = l->value_bytes ? l->value_bytes : jinja_value_bytes(in->n_bytes);
}

int jinja_render(const struct jinja *t, const struct jinja_input *in, struct jinja_output *out, struct qn_error *e)
{
    size_t n_spans = 0;
    struct jenv *j = mem_calloc(1, sizeof *j);
    if (!j) return error_nomem(e, "a template's rendering", sizeof *j);
    j->e = e;
    j->in = in;
    j->seed = rng_seed_from_os(); /* because strangers choose the keys */
    set_limits(j, in);
    jenv_start(j);
    struct jtext text = {.j = j, .max = in->limits.out_bytes};
    int rc = run(j, t->root, &text, &n_spans);
    if (rc == 0) rc = copy_out(out, &text, n_spans, e);
    if (rc) jinja_output_deinit(out);
    if (in->used) *in->used = (struct jinja_used){j->n_steps, jenv_cpu_ns(j), j->peak_bytes};
    jenv_deinit(j);
    mem_free(j);
    return rc;
}

void jinja_output_deinit(struct jinja_output *out)
{
    buf_deinit(&out->text);
    mem_free(out->user);
    *out = (struct jinja_output){0};
}
