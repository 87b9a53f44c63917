/* SPDX-License-Identifier: MIT
 *
 * fuzz_jinja.c: libFuzzer entry for chat templates: a template and a conversation.
 *
 * The input is a template, a NUL byte, and a JSON object; without the NUL byte the context below is used. Whatever the
 * template is, it must end within its limits, with valid UTF-8 and marks in order, and twice with the same result. A
 * text of the context that the template's own text cannot contain must be marked wherever it appears in the output.
 */
#include <assert.h>
#include <string.h>

#include "text/jinja.h"
#include "text/unicode.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* U+10F123 is in no template of the corpus; where the fuzzer writes it itself the check is left out. */
#define CANARY "\xF4\x8F\x84\xA3"

static const char default_context[] =
    "{\"messages\": [{\"role\": \"system\", \"content\": \"s" CANARY "\"}, {\"role\": \"user\", \"content\": \"" CANARY
    " a\\nb \"}, {\"role\": \"assistant\", \"content\": \"x\", \"tool_calls\": [{\"function\": {\"name\": \"f\","
    "\"arguments\": {\"k\": [1, 2.5, null, true, {\"" CANARY "\": []}]}}}]}], \"s\": \"ab" CANARY "c\", \"n\": -3,"
    "\"l\": [3, \"" CANARY "\", 1], \"add_generation_prompt\": true, \"tools\": null}";

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
    json_t *context = nul ? json_loadb((const char *)nul + 1, size - n - 1, JSON_ALLOW_NUL, NULL)
                          : json_loads(default_context, 0, NULL);
    bool escapes = n && (memmem(data, n, "\\U", 2) || memmem(data, n, CANARY, 4) || memmem(data, n, "%c", 2));
    if (json_is_object(context)) render(t, context, nul || escapes);
    json_decref(context);
    jinja_free(t);
    return 0;
}
