/* SPDX-License-Identifier: MIT
 *
 * fuzz_jinja.c: libFuzzer entry for chat templates: a template and a conversation.
 *
 * The input is a template, a NUL byte, and a JSON object or a program that builds hostile values (see hostile());
 * without the NUL byte the context below is used. Whatever the template is, it must end within its limits, with valid
 * UTF-8 and marks in order, and twice with the same result. A text of the context that the template's own text cannot
 * contain must be marked wherever it appears in the output.
 */
#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "text/jinja/jinja.h"
#include "text/token/unicode.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* U+10F123 is in no template of the corpus; where the fuzzer writes it itself the check is left out. */
#define CANARY "\xF4\x8F\x84\xA3"

static const char default_context[] =
    "{\"messages\": [{\"role\": \"system\", \"content\": \"s" CANARY "\"}, {\"role\": \"user\", \"content\": \"" CANARY
    " a\\nb \"}, {\"role\": \"assistant\", \"content\": \"x\", \"tool_calls\": [{\"function\": {\"name\": \"f\","
    "\"arguments\": {\"k\": [1, 2.5, null, true, {\"" CANARY "\": []}]}}}]}], \"s\": \"ab" CANARY "c\", \"n\": -3,"
    "\"l\": [3, \"" CANARY "\", 1], \"add_generation_prompt\": true, \"tools\": null}";

/* ---- hostile values ---- */

/* Values that no text of a fuzzer's length can write out: deep, long, many, at the ends of 64 bits. A program of pairs
 * of bytes works on the value x: an operation, and what it takes. */
#define MAX_TEXT  ((size_t)1 << 18)
#define MAX_DEPTH 1800
#define MAX_KEYS  4000

static json_t *text_of(uint8_t how)
{
    static const char pieces[][5] = {"a", " ", "\n", "7", "{", "%", "A", "\xC3\xA9"};
    const char *piece = pieces[how & 7];
    size_t n = (size_t)1 << (how >> 3), k = strlen(piece);
    if (n > MAX_TEXT) n = MAX_TEXT;
    char *s = malloc(n * k + 1);
    assert(s);
    for (size_t i = 0; i < n; i++) memcpy(s + i * k, piece, k);
    json_t *j = json_stringn_nocheck(s, n * k);
    free(s);
    return j;
}

static json_t *number_of(uint8_t how)
{
    static const json_int_t ends[] = {
        0,          1,      -1,      INT64_MAX, INT64_MIN,           INT64_MAX / 2 + 1,  INT64_MIN / 2 - 1,
        4294967296, 100000, -100000, 100001,    4611686018427388417, 4611686018427389439};
    json_int_t end = ends[how % (sizeof ends / sizeof ends[0])], more = (int8_t)how % 3, sum;
    return json_integer(__builtin_add_overflow(end, more, &sum) ? end : sum);
}

/* x within so many lists, or objects, or lists of it twice. */
static json_t *nest(json_t *x, size_t n, char kind)
{
    for (size_t i = 0; i < n; i++) {
        json_t *outer = kind == 'o' ? json_object() : json_array();
        assert(outer);
        if (kind == 'o') json_object_set(outer, "k", x);
        if (kind != 'o') json_array_append(outer, x);
        if (kind == 't') json_array_append(outer, x);
        json_decref(x);
        x = outer;
    }
    return x;
}

static json_t *many_keys(json_t *x, size_t n)
{
    json_t *o = json_object();
    char key[24];
    for (size_t i = 0; i < n; i++) {
        snprintf(key, sizeof key, "%zu", i);
        json_object_set(o, key, x);
    }
    json_decref(x);
    return o;
}

static json_t *many_items(json_t *x, size_t n)
{
    json_t *a = json_array();
    for (size_t i = 0; i < n; i++) json_array_append(a, x);
    json_decref(x);
    return a;
}

static size_t at_most(size_t n, size_t max) { return n < max ? n : max; }

/* The variables a, b, ... in the order they are made. */
static json_t *hostile(const uint8_t *p, size_t n)
{
    json_t *context = json_object(), *x = json_null();
    char name[2] = "a";
    size_t depth = 0, size = 1; /* of x: all of its values together, so that looking at all of it is quick */
    for (size_t i = 0; i + 1 < n && i < 64; i += 2) {
        size_t k = p[i + 1];
        size_t by = p[i] % 8 == 6 ? at_most(k * 16, MAX_KEYS) : p[i] % 8 == 7 ? k : 1;
        if (p[i] % 8 >= 6 && (by == 0 || size * by > 20000)) continue;
        switch (p[i] % 8) {
        case 0: json_decref(x), x = number_of(p[i + 1]), depth = 0, size = 1; break;
        case 1: json_decref(x), x = text_of(p[i + 1]), depth = 0, size = 1; break;
        case 2: k = at_most(k * 8, MAX_DEPTH - depth), x = nest(x, k, 'l'), depth += k, size += k; break;
        case 3: k = at_most(k * 8, MAX_DEPTH - depth), x = nest(x, k, 'o'), depth += k, size += k; break;
        case 4: k = at_most(k, 12), k = size << k > 20000 ? 0 : k, x = nest(x, k, 't'), depth += k, size <<= k; break;
        case 5:
            if (name[0] <= 'z') json_object_set(context, name, x);
            name[0]++;
            break;
        case 6: x = many_keys(x, by), depth++, size *= by; break;
        default: x = many_items(x, by), depth++, size *= by; break;
        }
    }
    if (name[0] <= 'z') json_object_set(context, name, x);
    json_decref(x);
    return context;
}

static bool is_user(const struct jinja_output *out, size_t at)
{
    for (size_t i = 0; i < out->n_user; i++)
        if (at >= out->user[i].at && at < out->user[i].at + out->user[i].n) return true;
    return false;
}

static void check(const struct jinja_output *out, bool own_canary)
{
    const uint8_t *p = out->text.data;
    size_t n = out->text.len, end = 0;
    assert(n == 0 || unicode_is_utf8(p, n));
    for (size_t i = 0; i < out->n_user; i++) {
        assert(out->user[i].n > 0 && (i == 0 || out->user[i].at > end));
        end = out->user[i].at + out->user[i].n;
        assert(end <= n);
    }
    for (size_t i = 0; !own_canary && i + 4 <= n && i < 2000; i++)
        if (memcmp(p + i, CANARY, 4) == 0) assert(is_user(out, i) && is_user(out, i + 3));
}

static void render(const struct jinja *t, json_t *context, bool own_canary)
{
    struct tm now = {.tm_year = 124, .tm_mday = 1};
    struct jinja_input in = {.context = context, .now = &now};
    struct jinja_output a = {0}, b = {0};
    struct qn_error ea = {0}, eb = {0};
    in.limits = (struct jinja_limits){.n_steps = 200000, .depth = 200, .out_bytes = 1 << 20, .value_bytes = 16 << 20};
    in.limits.cpu_ns = UINT64_MAX / 2; /* which would not be the same twice */
    int rc = jinja_render(t, &in, &a, &ea);
    assert(rc <= 0 && rc == ea.code && (rc == 0) == (ea.msg[0] == 0));
    int again = jinja_render(t, &in, &b, &eb);
    assert(again == rc && strcmp(ea.msg, eb.msg) == 0 && a.text.len == b.text.len && a.n_user == b.n_user);
    assert(a.text.len == 0 || memcmp(a.text.data, b.text.data, a.text.len) == 0);
    check(&a, own_canary);
    jinja_output_deinit(&a);
    jinja_output_deinit(&b);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    const uint8_t *nul = size ? memchr(data, 0, size) : NULL;
    size_t n = nul ? (size_t)(nul - data) : size;
    struct jinja *t = NULL;
    struct qn_error e = {0};
    if (jinja_compile(&t, n ? (const char *)data : "", n, &e)) {
        assert(e.code && e.msg[0] && !t);
        return 0;
    }
    json_t *context = !nul ? json_loads(default_context, 0, NULL)
                      : size > n + 1 && nul[1] == '{'
                          ? json_loadb((const char *)nul + 1, size - n - 1, JSON_ALLOW_NUL, NULL)
                          : hostile(nul + 1, size - n - 1);
    bool escapes = n && (memmem(data, n, "\\U", 2) || memmem(data, n, CANARY, 4) || memmem(data, n, "%c", 2));
    if (json_is_object(context)) render(t, context, nul || escapes);
    json_decref(context);
    jinja_free(t);
    return 0;
}
