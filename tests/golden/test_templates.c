/* SPDX-License-Identifier: MIT
 *
 * test_templates.c: chat templates of real models, rendered exactly as Jinja2 renders them.
 *
 * $QUERN_SHARED/golden/templates has the templates and, in two lists, conversations with what Jinja2 3.1 makes of them
 * (its README describes them): cases.jsonl where a second implementation agrees, cases_jinja2_only.jsonl where that one
 * lacks something. A case is an output that must be the same to the byte, a refusal by the template itself
 * (raise_exception) with the same words, or an error of some kind.
 *
 * Every output's marks are checked too: they are ordered and apart. Exits with 77 (skipped) when the data is missing,
 * but fails in CI.
 *
 *     test_templates --render    cases without `expected` from the standard input, file names as they are; one line of
 *                                JSON a case, {"text": ...} or {"error": ...}: for tests/golden/peer-jinja
 */
#include <assert.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/os.h"
#include "text/jinja/jinja.h"

#define MAX_PATH 4096

struct tally {
    int n, n_bad, n_text, n_raised, n_failed;
};

static bool parse_time(const char *s, struct tm *out)
{
    *out = (struct tm){.tm_isdst = -1};
    return s && strptime(s, "%Y-%m-%dT%H:%M:%S", out) != NULL;
}

/* The spans are in order, apart from each other and inside of the text. */
static bool marks_in_order(const struct jinja_output *out)
{
    size_t end = 0;
    for (size_t i = 0; i < out->n_user; i++) {
        const struct text_span *s = &out->user[i];
        if (s->n == 0 || (i > 0 && s->at <= end) || s->at + s->n > out->text.len) return false;
        end = s->at + s->n;
    }
    return true;
}

static const char *judge(json_t *c, int rc, const struct jinja_output *out, const struct qn_error *e)
{
    const char *error = json_string_value(json_object_get(c, "error"));
    json_t *want = json_object_get(c, "expected");
    if (!error) {
        if (rc) return "fails";
        if (out->text.len != json_string_length(want) ||
            (out->text.len && memcmp(out->text.data, json_string_value(want), out->text.len) != 0))
            return "differs";
        return marks_in_order(out) ? NULL : "has spans out of order";
    }
    /* Jinja2's sandbox has no append() and pop(), which we have. */
    const char *message = json_string_value(json_object_get(c, "message"));
    if (rc == 0 && message && strstr(message, "'append' of 'list'")) return NULL;
    if (rc == 0) return "renders, but must fail";
    if (strcmp(error, "raise_exception") != 0) return NULL;
    if (rc != QN_EUSAGE) return "fails, but not through raise_exception";
    return strcmp(e->msg, json_string_value(json_object_get(c, "message"))) == 0 ? NULL : "raises another message";
}

static void show(const char *label, const char *s, size_t n) { printf("  %s: '%.*s'\n", label, (int)n, s); }

static void report(json_t *c, const char *name, const char *what, const struct jinja_output *out,
                   const struct qn_error *e)
{
    json_t *want = json_object_get(c, "expected");
    printf("%s / %s: %s %s\n", name, json_string_value(json_object_get(c, "context_name")), what, e->msg);
    size_t n_want = json_string_length(want), at = 0;
    const char *w = json_string_value(want), *got = (const char *)out->text.data;
    if (!w || !got) return;
    while (at < n_want && at < out->text.len && w[at] == got[at]) at++;
    size_t from = at > 40 ? at - 40 : 0;
    show("want", w + from, n_want - from < 120 ? n_want - from : 120);
    show("got ", got + from, out->text.len - from < 120 ? out->text.len - from : 120);
}

static int render(const char *path, json_t *c, struct jinja_output *out, struct qn_error *e)
{
    struct mapping m;
    struct jinja *template = NULL;
    struct tm now;
    int rc = map_open(&m, path, e);
    if (rc) return rc;
    struct jinja_input in = {.context = json_object_get(c, "context")};
    if (parse_time(json_string_value(json_object_get(c, "now")), &now)) in.now = &now;
    rc = jinja_compile(&template, (const char *)m.data, m.size, e);
    if (rc == 0) rc = jinja_render(template, &in, out, e);
    jinja_free(template);
    map_close(&m);
    return rc;
}

static void check(struct tally *t, const char *dir, json_t *c)
{
    char path[MAX_PATH];
    const char *name = json_string_value(json_object_get(c, "template_file")), *what;
    struct qn_error e = {0};
    struct jinja_output out = {0};
    snprintf(path, sizeof path, "%s/%s", dir, name);
    int rc = render(path, c, &out, &e);
    what = judge(c, rc, &out, &e);
    if (what) report(c, name, what, &out, &e);
    t->n++;
    t->n_bad += what != NULL;
    t->n_text += rc == 0;
    t->n_raised += rc == QN_EUSAGE;
    t->n_failed += rc != 0 && rc != QN_EUSAGE;
    jinja_output_deinit(&out);
}

static bool run_file(const char *dir, const char *file)
{
    char path[MAX_PATH];
    struct tally t = {0};
    char *s = NULL;
    size_t cap = 0;
    ssize_t n;
    snprintf(path, sizeof path, "%s/%s", dir, file);
    FILE *f = fopen(path, "r");
    if (!f) return false;
    while ((n = getline(&s, &cap, f)) > 0) {
        json_error_t err;
        json_t *c = json_loadb(s, (size_t)n, JSON_ALLOW_NUL, &err);
        if (!c) printf("%s: %s\n", file, err.text);
        assert(c);
        check(&t, dir, c);
        json_decref(c);
    }
    free(s);
    fclose(f);
    printf("%-24s %4d checked, %d wrong (%d texts, %d refusals, %d errors)\n", file, t.n, t.n_bad, t.n_text, t.n_raised,
           t.n_failed);
    return t.n > 0 && t.n_bad == 0;
}

static int render_input(void)
{
    json_t *c;
    while ((c = json_loadf(stdin, JSON_DISABLE_EOF_CHECK | JSON_ALLOW_NUL, NULL))) {
        struct qn_error e = {0};
        struct jinja_output out = {0};
        int rc = render(json_string_value(json_object_get(c, "template_file")), c, &out, &e);
        json_t *text = json_stringn(out.text.data ? (const char *)out.text.data : "", out.text.len);
        json_t *answer = rc ? json_pack("{ss}", "error", e.msg) : json_pack("{sO}", "text", text);
        json_dumpf(answer, stdout, JSON_COMPACT);
        putchar('\n');
        json_decref(text);
        json_decref(answer);
        json_decref(c);
        jinja_output_deinit(&out);
    }
    return 0;
}

int main(int argc, char **argv)
{
    if (argc == 2 && strcmp(argv[1], "--render") == 0) return render_input();
    const char *shared = getenv("QUERN_SHARED");
    char dir[MAX_PATH / 2], probe[MAX_PATH];
    snprintf(dir, sizeof dir, "%s/golden/templates", shared ? shared : "");
    snprintf(probe, sizeof probe, "%s/cases.jsonl", dir);
    FILE *f = shared ? fopen(probe, "r") : NULL;
    if (!f) {
        printf("QUERN_SHARED is %s\n", shared ? "a folder without golden/templates" : "not set");
        return getenv("CI") ? 1 : 77;
    }
    fclose(f);
    bool ok = run_file(dir, "cases.jsonl");
    ok &= run_file(dir, "cases_jinja2_only.jsonl");
    return !ok;
}
