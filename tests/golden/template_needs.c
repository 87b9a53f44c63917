/* SPDX-License-Identifier: MIT
 *
 * template_needs.c: what the chat templates of real models need for long conversations: steps, memory, time.
 *
 * Each template renders conversations of several shapes, first without limits, which are measured, then with the
 * default ones, which must let pass whatever renders at all: with a tenth of each limit to spare. The clock is no
 * part of that, only the thread's own time in the first pass is shown.
 *
 *     template_needs            conversations of up to 1,000 messages or 1 MB (the suite's; exits with 77 without data)
 *     template_needs --large    up to 10,000 messages and 16 MB
 *     template_needs --each     one line for each template and conversation, not only the hungriest of each
 */
#include <assert.h>
#include <dirent.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/os.h"
#include "text/jinja/jinja.h"

#define MAX_PATH      4096
#define MAX_TEMPLATES 256

static json_t *must(json_t *j)
{
    assert(j);
    return j;
}

static void add(json_t *list, json_t *item)
{
    int rc = json_array_append_new(list, must(item));
    assert(rc == 0);
}

static json_t *says(const char *role, const char *text)
{
    return must(json_pack("{s:s, s:s}", "role", role, "content", text));
}

/* ---- conversations ---- */

static json_t *turns(int n, const char *user, const char *assistant)
{
    json_t *m = must(json_array());
    for (int i = 0; i < n; i++) add(m, i % 2 ? says("assistant", assistant) : says("user", user));
    if (n % 2 == 0) add(m, says("user", user));
    return must(json_pack("{s:o}", "messages", m));
}

static json_t *tiny(int n) { return turns(n, "Go on", "ok"); }

static json_t *plain(int n)
{
    return turns(n, "And what does the second paragraph say about the price of bread in Vienna, roughly?",
                 "<think>\nThe second paragraph is about bread.\nLet me look.\n</think>\n\nIt says that a loaf cost "
                 "\"four kreuzer\" until 1790, and\ntwice as much in the ten years after: see the table below.\n");
}

static json_t *tool(int i)
{
    return must(json_pack("{s:s, s:{s:s+, s:s, s:{s:s, s:{s:{s:s, s:s}, s:{s:s, s:[s, s]}, s:{s:s, s:{s:s}}}, s:[s]}}}",
                          "type", "function", "function", "name", "look_up_", i % 2 ? "word" : "place", "description",
                          "Looks something up: what it is, where, and since when.", "parameters", "type", "object",
                          "properties", "name", "type", "string", "description", "What to look up", "unit", "type",
                          "string", "enum", "metric", "imperial", "list", "type", "array", "items", "type", "number",
                          "required", "name"));
}

static json_t *tools_of(int n)
{
    json_t *list = must(json_array());
    for (int i = 0; i < n; i++) add(list, tool(i));
    return list;
}

static json_t *many_tools(int n)
{
    return must(json_pack("{s:[o], s:o}", "messages", says("user", "Hello"), "tools", tools_of(n)));
}

static json_t *calls(int n)
{
    json_t *m = must(json_array());
    for (int i = 0; i < n; i += 4) {
        add(m, says("user", "How warm is it in Graz?"));
        add(m, json_pack("{s:s, s:s, s:[{s:s, s:s, s:{s:s, s:{s:s, s:s}}}]}", "role", "assistant", "content", "",
                         "tool_calls", "id", "123456789", "type", "function", "function", "name", "look_up_word",
                         "arguments", "name", "Graz", "unit", "metric"));
        add(m, json_pack("{s:s, s:s, s:s, s:s}", "role", "tool", "content", "{\"warm\": 21.5, \"rain\": false}",
                         "tool_call_id", "123456789", "name", "look_up_word"));
        add(m, says("assistant", "It is 21.5 degrees."));
    }
    add(m, says("user", "Thank you"));
    return must(json_pack("{s:o, s:o}", "messages", m, "tools", tools_of(8)));
}

/* n bytes of a text in each of three messages */
static json_t *texts(int n, const char *piece)
{
    size_t k = strlen(piece);
    char *s = malloc((size_t)n + k + 1);
    assert(s);
    size_t at = 0;
    for (; at < (size_t)n; at += k) memcpy(s + at, piece, k + 1);
    s[at] = 0;
    json_t *m = must(json_array());
    add(m, says("user", s));
    add(m, says("assistant", s));
    add(m, says("user", s));
    free(s);
    return must(json_pack("{s:o}", "messages", m));
}

static json_t *prose(int n) { return texts(n / 3, "It was in the warm early spring of the second year. "); }
static json_t *source(int n) { return texts(n / 3, "  if (a[\"b\"] < c) {\n\treturn '<d>';\n  }\n\n"); }
static json_t *greek(int n)
{
    return texts(n / 3, "\316\272\316\261\316\273\316\267\316\274\316\255\317\201\316\261 ");
}

static const struct {
    const char *name;
    json_t *(*make)(int n);
    int n, n_large;
} shapes[] = {
    {"tiny, 1 message", tiny, 1, 1},
    {"tiny messages", tiny, 100, 100},
    {"tiny messages", tiny, 1000, 10000},
    {"plain messages", plain, 100, 100},
    {"plain messages", plain, 1000, 10000},
    {"messages with calls", calls, 100, 100},
    {"messages with calls", calls, 1000, 10000},
    {"tools", many_tools, 128, 128},
    {"tools", many_tools, 1000, 10000},
    {"bytes of prose", prose, 1 << 20, 16 << 20},
    {"bytes of a program", source, 1 << 20, 16 << 20},
    {"bytes of Greek", greek, 1 << 20, 16 << 20},
};

/* ---- measuring ---- */

struct template
{
    char name[256];
    struct jinja *t;
};

struct need {
    double steps, bytes, ns; /* of the default limit for such an input, or per byte of it */
    const char *by_steps, *by_bytes, *by_ns;
};

static void most(double *is, const char **by, double v, const char *name)
{
    if (v <= *is) return;
    *is = v;
    *by = name;
}

static int render(const struct template *t, json_t *context, size_t n, const struct jinja_limits *l,
                  struct jinja_used *used, struct qn_error *e)
{
    struct tm now = {.tm_year = 124, .tm_mday = 1};
    struct jinja_output out = {0};
    const struct jinja_input in = {.context = context, .now = &now, .n_bytes = n, .limits = *l, .used = used};
    int rc = jinja_render(t->t, &in, &out, e);
    jinja_output_deinit(&out);
    return rc;
}

/* False: the default limits refuse what renders without them, or would if it were a ninth more. */
static bool measure(const struct template *t, json_t *context, size_t n, struct need *most_of, bool each)
{
    const struct jinja_limits none = {
        .n_steps = UINT64_MAX / 2, .out_bytes = SIZE_MAX / 2, .value_bytes = SIZE_MAX / 2, .cpu_ns = UINT64_MAX / 2};
    struct jinja_used u = {0};
    struct qn_error e = {0};
    if (render(t, context, n, &none, &u, &e)) return true; /* such a conversation is not for this template */
    const struct jinja_limits tight = {
        .n_steps = jinja_steps(n) / 10 * 9, .value_bytes = jinja_value_bytes(n) / 10 * 9, .cpu_ns = UINT64_MAX / 2};
    most(&most_of->steps, &most_of->by_steps, (double)u.n_steps / (double)jinja_steps(n), t->name);
    most(&most_of->bytes, &most_of->by_bytes, (double)u.value_bytes / (double)jinja_value_bytes(n), t->name);
    most(&most_of->ns, &most_of->by_ns, (double)u.cpu_ns / (double)n, t->name);
    if (each)
        printf("    %-50s %9.2f steps %9.2f bytes %9.2f ns a byte of %zu\n", t->name, (double)u.n_steps / (double)n,
               (double)u.value_bytes / (double)n, (double)u.cpu_ns / (double)n, n);
    if (u.n_steps <= tight.n_steps && u.value_bytes <= tight.value_bytes && !render(t, context, n, &tight, NULL, &e))
        return true;
    printf("    %s: %zu bytes need %llu steps of %llu, %zu bytes of %zu: %s\n", t->name, n,
           (unsigned long long)u.n_steps, (unsigned long long)jinja_steps(n), u.value_bytes, jinja_value_bytes(n),
           e.msg);
    return false;
}

static bool run_shape(size_t k, const struct template *t, size_t n_templates, bool large, bool each)
{
    int n = large ? shapes[k].n_large : shapes[k].n;
    json_t *c = shapes[k].make(n);
    size_t bytes = json_dumpb(c, NULL, 0, JSON_COMPACT);
    struct need need = {.by_steps = "-", .by_bytes = "-", .by_ns = "-"};
    bool ok = true;
    int rc = json_object_set_new(c, "add_generation_prompt", json_true());
    rc |= json_object_set_new(c, "bos_token", json_string("<s>")) |
          json_object_set_new(c, "eos_token", json_string("</s>"));
    assert(rc == 0);
    for (size_t i = 0; i < n_templates; i++) ok &= measure(&t[i], c, bytes, &need, each);
    printf("%8d %-22s %9zu bytes: at most %5.1f%% of the steps (%.30s), %5.1f%% of the memory (%.30s), %6.1f ns a byte "
           "(%.30s)\n",
           n, shapes[k].name, bytes, 100 * need.steps, need.by_steps, 100 * need.bytes, need.by_bytes, need.ns,
           need.by_ns);
    json_decref(c);
    return ok;
}

static bool load(struct template *t, const char *dir, const char *name)
{
    char path[MAX_PATH];
    struct mapping m;
    struct qn_error e = {0};
    int len = snprintf(path, sizeof path, "%s/%s", dir, name);
    assert(len > 0 && (size_t)len < sizeof path);
    snprintf(t->name, sizeof t->name, "%s", name);
    if (map_open(&m, path, &e)) return false;
    int rc = jinja_compile(&t->t, (const char *)m.data, m.size, &e);
    if (rc) printf("%s: %s\n", name, e.msg);
    map_close(&m);
    return rc == 0;
}

int main(int argc, char **argv)
{
    static struct template t[MAX_TEMPLATES];
    char dir[MAX_PATH];
    size_t n = 0;
    bool large = false, each = false, ok = true;
    const char *shared = getenv("QUERN_SHARED");
    for (int i = 1; i < argc; i++) {
        large |= !strcmp(argv[i], "--large");
        each |= !strcmp(argv[i], "--each");
    }
    if (!shared) {
        printf("QUERN_SHARED is not set\n");
        return getenv("CI") ? 1 : 77;
    }
    snprintf(dir, sizeof dir, "%s/golden/templates/jinja", shared);
    DIR *d = opendir(dir);
    if (!d) {
        printf("there is no %s\n", dir);
        return getenv("CI") ? 1 : 77;
    }
    for (const struct dirent *f; n < MAX_TEMPLATES && (f = readdir(d));)
        if (f->d_name[0] != '.') n += load(&t[n], dir, f->d_name);
    closedir(d);
    for (size_t k = 0; k < sizeof shapes / sizeof shapes[0]; k++) ok &= run_shape(k, t, n, large, each);
    for (size_t i = 0; i < n; i++) jinja_free(t[i].t);
    printf("%zu templates: %s\n", n, ok && n ? "all within the default limits" : "NOT all within the default limits");
    return !ok || n == 0;
}
