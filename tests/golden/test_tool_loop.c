/* SPDX-License-Identifier: MIT
 *
 * test_tool_loop.c: the conversations of real clients, rendered with the chat templates of real models.
 *
 * Clients send back what a server answered: a message with `content: null` and calls, whose arguments are a string and
 * whose ids have any shape. Every template of $QUERN_SHARED/golden/templates has to render them, with the tools, calls
 * and results in the prompt, and nothing in it that Python prints for a value that a template did not expect. The same
 * holds for system messages, for several messages of one role in a row, for null contents and for a last message of the
 * assistant's. Exits with 77 (skipped) when the data is missing, but fails in CI.
 *
 *     test_tool_loop --each    also one line for each template: what it takes, and what is changed for it
 */
#include <assert.h>
#include <dirent.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/os.h"
#include "text/chat/chat_input.h"
#include "text/chat/chat_probe.h"
#include "text/chat/chat_render.h"

#define MAX_PATH 4096

#define TOOLS                                                                                                          \
    "\"tools\":[{\"type\":\"function\",\"function\":{\"name\":\"get_weather\",\"description\":\"Weather now\","        \
    "\"parameters\":{\"type\":\"object\",\"properties\":{\"city\":{\"type\":\"string\",\"description\":\"a town\"}},"  \
    "\"required\":[\"city\"]}}},{\"type\":\"function\",\"function\":{\"name\":\"get_time\",\"description\":"           \
    "\"Time there\",\"parameters\":{\"type\":\"object\",\"properties\":{}}}}]"
#define CALL_1                                                                                                         \
    "{\"id\":\"call_a\",\"type\":\"function\",\"function\":{\"name\":\"get_weather\",\"arguments\":"                   \
    "\"{\\\"city\\\":\\\"Graz\\\"}\"}}"
#define CALL_2                                                                                                         \
    "{\"id\":\"toolu_req-7\",\"type\":\"function\",\"function\":{\"name\":\"get_time\",\"arguments\":"                 \
    "\"{\\\"zone\\\":\\\"Vienna\\\"}\"}}"
#define SAYS(role, text) "{\"role\":\"" role "\",\"content\":\"" text "\"}"
#define CALLS(list)      "{\"role\":\"assistant\",\"content\":null,\"tool_calls\":[" list "]}"
#define RESULT_1         "{\"role\":\"tool\",\"tool_call_id\":\"call_a\",\"content\":\"21.5 degrees\"}"
#define RESULT_2         "{\"role\":\"tool\",\"tool_call_id\":\"toolu_req-7\",\"content\":\"half past nine\"}"
#define ASK              SAYS("user", "How warm is it?")

/* What is in the prompt, in this order or in any. `tools`: templates that take none may refuse it. */
static const struct {
    const char *name, *messages, *more, *words[10];
    bool tools;
} loops[] = {
    {"tools", ASK, TOOLS, {"get_weather", "Weather now", "How warm is it?", "get_time"}, true},
    {"one call",
     ASK "," CALLS(CALL_1) "," RESULT_1,
     TOOLS,
     {"How warm is it?", "get_weather", "city", "Graz", "21.5 degrees"},
     true},
    {"one call, then a user",
     ASK "," CALLS(CALL_1) "," RESULT_1 "," SAYS("user", "Thank you"),
     TOOLS,
     {"How warm is it?", "get_weather", "city", "Graz", "21.5 degrees", "Thank you"},
     true},
    {"one call, an answer, a user",
     ASK "," CALLS(CALL_1) "," RESULT_1 "," SAYS("assistant", "Quite warm.") "," SAYS("user", "Thank you"),
     TOOLS,
     {"How warm is it?", "Graz", "21.5 degrees", "Quite warm.", "Thank you"},
     true},
    {"two calls",
     SAYS("system", "Be brief.") "," ASK "," CALLS(CALL_1 "," CALL_2) "," RESULT_1 "," RESULT_2,
     TOOLS,
     {"Be brief.", "Graz", "get_time", "zone", "Vienna", "21.5 degrees", "half past nine"},
     true},
    {"two calls, results in the other order, a user",
     ASK "," CALLS(CALL_1 "," CALL_2) "," RESULT_2 "," RESULT_1 "," SAYS("user", "Thank you"),
     TOOLS,
     {"Graz", "get_time", "Vienna", "21.5 degrees", "half past nine", "Thank you"},
     true},
    {"calls one after the other",
     ASK "," CALLS(CALL_1) "," RESULT_1 "," CALLS(CALL_2) "," RESULT_2,
     TOOLS,
     {"Graz", "21.5 degrees", "get_time", "Vienna", "half past nine"},
     true},
    {"system", SAYS("system", "Be brief.") "," ASK, NULL, {"Be brief.", "How warm is it?"}, false},
    {"developer", SAYS("developer", "Be brief.") "," ASK, NULL, {"Be brief.", "How warm is it?"}, false},
    {"two systems",
     SAYS("system", "Be brief.") "," SAYS("system", "Be kind.") "," ASK,
     NULL,
     {"Be brief.", "Be kind.", "How warm is it?"},
     false},
    {"a late system",
     ASK "," SAYS("assistant", "Warm.") "," SAYS("system", "Be brief.") "," SAYS("user", "And now?"),
     NULL,
     {"How warm", "Warm.", "Be brief.", "And now?"},
     false},
    {"users in a row", ASK "," SAYS("user", "In Graz."), NULL, {"How warm is it?", "In Graz."}, false},
    {"assistants in a row",
     ASK "," SAYS("assistant", "Very.") "," SAYS("assistant", "And dry.") "," SAYS("user", "Ah."),
     NULL,
     {"How warm", "Very.", "And dry.", "Ah."},
     false},
    {"null contents",
     ASK ",{\"role\":\"assistant\",\"content\":null},{\"role\":\"user\"}",
     NULL,
     {"How warm is it?"},
     false},
    {"parts",
     "{\"role\":\"user\",\"content\":[{\"type\":\"text\",\"text\":\"one\"},{\"type\":\"text\",\"text\":\"two\"}]}",
     NULL,
     {"one", "two"},
     false},
};

/* Contents that the reply continues. The last word has to be the prompt's last. */
static const struct {
    const char *name, *messages, *end;
} prefills[] = {
    {"prefill", ASK "," SAYS("assistant", "It is exactly"), "It is exactly"},
    {"prefill with a space", ASK "," SAYS("assistant", "It is exactly "), "It is exactly "},
    {"prefill after a system", SAYS("system", "Be brief.") "," ASK "," SAYS("assistant", "{"), "{"},
};

struct loaded {
    struct jinja *template;
    struct chat_form form;
    struct chat_taste taste;
    json_t *trusted;
};

static int n_checked, n_bad, n_refused;

static bool has(const struct jinja_output *out, const char *word)
{
    return out->text.len > 0 && memmem(out->text.data, out->text.len, word, strlen(word)) != NULL;
}

/* Whether a text that came from the conversation has this in it. */
static bool user_has(const struct jinja_output *out, const char *word)
{
    for (size_t i = 0; i < out->n_user; i++)
        if (memmem(out->text.data + out->user[i].at, out->user[i].n, word, strlen(word))) return true;
    return false;
}

/* FireFunction needs two variables that nobody else has; a request can give them. */
#define KWARGS "\"chat_template_kwargs\":{\"functions\":\"get_weather get_time Weather now\",\"datetime\":\"now\"}"

static int render(const struct loaded *t, const char *messages, const char *more, struct jinja_output *out,
                  struct qn_error *e)
{
    char request[8192];
    struct tm now = {.tm_year = 124, .tm_mday = 1};
    enum chat_begins begins;
    unsigned changed = 0;
    json_t *parsed = NULL;
    snprintf(request, sizeof request, "{\"messages\":[%s]%s%s%s}", messages, more ? "," : "", more ? more : "",
             t->taste.known ? "" : "," KWARGS);
    int rc = chat_request_parse(&parsed, request, strlen(request), e);
    assert(rc == 0);
    const struct chat_rendering r = {
        .template = t->template,
        .taste = &t->taste,
        .form = &t->form,
        .request = parsed,
        .input = {.trusted = t->trusted, .vouch = chat_vouch, .now = &now, .n_bytes = strlen(request)}};
    rc = chat_render(&r, out, &begins, &changed, e);
    json_decref(parsed);
    return rc;
}

static void judge(const char *file, const char *name, const char *wrong, const char *what, struct jinja_output *out)
{
    n_checked++;
    if (wrong) {
        n_bad++;
        printf("%s, %s: %s '%s'\n", file, name, wrong, what);
        if (getenv("SHOW") && out->text.len) printf("%s\n--------\n", (char *)out->text.data);
    }
    jinja_output_deinit(out);
}

static void check_loops(const struct loaded *t, const char *file)
{
    for (size_t i = 0; i < sizeof loops / sizeof loops[0]; i++) {
        struct jinja_output out = {0};
        struct qn_error e = {0};
        const char *wrong = NULL, *what = e.msg;
        if (loops[i].tools && t->taste.no_tools) continue;
        if (render(t, loops[i].messages, loops[i].more, &out, &e)) wrong = "fails:";
        for (int k = 0; k < 10 && loops[i].words[k] && !wrong; k++)
            if (!has(&out, loops[i].words[k])) {
                wrong = "lacks";
                what = loops[i].words[k];
            }
        if (!wrong && user_has(&out, what = "None")) wrong = "has";
        judge(file, loops[i].name, wrong, what, &out);
    }
}

static void check_prefills(const struct loaded *t, const char *file)
{
    for (size_t i = 0; i < sizeof prefills / sizeof prefills[0]; i++) {
        struct jinja_output out = {0};
        struct qn_error e = {0};
        const char *wrong = NULL, *end = prefills[i].end;
        if (render(t, prefills[i].messages, NULL, &out, &e))
            wrong = "fails:";
        else if (out.text.len < strlen(end) || strcmp((char *)out.text.data + out.text.len - strlen(end), end) != 0)
            wrong = "does not end with";
        judge(file, prefills[i].name, wrong, e.msg[0] ? e.msg : end, &out);
    }
}

static void describe(const struct chat_taste *t, const struct chat_form *f, const char *file)
{
    static const char *const forms[] = {"none",  "tag",   "llama", "mistral", "harmony",
                                        "calls", "upper", "code",  "python"};
    static const char *const needs[] = {"empty",     "text-arguments", "short-ids",    "names", "single-calls",
                                        "answer",    "no-system",      "first-system", "turns", "parts",
                                        "tool-text", "user-last",      "lists"};
    printf("%-56s %s %s", file, !t->known ? "unknown" : t->no_tools ? "NO TOOLS" : "", forms[f->calls]);
    for (int i = 0; i < 13; i++)
        if (t->need >> i & 1) printf(" %s", needs[i]);
    printf("%s%s%s\n", t->parts ? " +parts" : "", t->thinking ? " +thinking" : "", t->switches ? " +switch" : "");
}

static void check_file(const char *dir, const char *file, bool each)
{
    char path[MAX_PATH];
    struct mapping m;
    struct qn_error e = {0};
    struct loaded t = {.trusted = json_pack("{s:s, s:s}", "bos_token", "<s>", "eos_token", "</s>")};
    snprintf(path, sizeof path, "%s/%s", dir, file);
    int rc = map_open(&m, path, &e);
    assert(rc == 0);
    const char *src = (const char *)m.data;
    rc = jinja_compile(&t.template, src, m.size, &e);
    assert(rc == 0);
    t.form = chat_form_of(src, m.size);
    t.taste.developer = memmem(src, m.size, "developer", 9) != NULL;
    rc = chat_probe(&t.taste, &t.form, t.template, t.trusted, &e);
    assert(rc == 0);
    if (each) describe(&t.taste, &t.form, file);
    n_refused += t.taste.no_tools;
    check_loops(&t, file);
    check_prefills(&t, file);
    jinja_free(t.template);
    json_decref(t.trusted);
    map_close(&m);
}

int main(int argc, char **argv)
{
    const char *shared = getenv("QUERN_SHARED");
    char dir[MAX_PATH / 2];
    int n = 0;
    snprintf(dir, sizeof dir, "%s/golden/templates/jinja", shared ? shared : "");
    DIR *d = shared ? opendir(dir) : NULL;
    if (!d) {
        printf("QUERN_SHARED is %s\n", shared ? "a folder without golden/templates" : "not set");
        return getenv("CI") ? 1 : 77;
    }
    for (const struct dirent *f; (f = readdir(d));) {
        if (f->d_name[0] == '.') continue;
        check_file(dir, f->d_name, argc == 2 && strcmp(argv[1], "--each") == 0);
        n++;
    }
    closedir(d);
    printf("%d templates, %d conversations, %d wrong; %d templates take no tools\n", n, n_checked, n_bad, n_refused);
    return n_bad > 0 || n == 0 || n_refused > 6;
}
