/* SPDX-License-Identifier: MIT
 *
 * chat_slash.c: the slash commands of `quern chat`. One table has all of them, for /help too.
 */
#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sysexits.h>

#include "base/nearest.h"
#include "cli/chat/chat_run.h"
#include "cli/core/wrap.h"

#define MOST_MODELS ((size_t)1 << 22) /* bytes of a list of models */

struct command_row {
    const char *name;
    const char *tab; /* the name as Tab completes it */
    const char *arg;
    const char *help;
    bool needs;                                      /* whether it needs the argument */
    int (*run)(struct chat_run *c, const char *arg); /* arg: "" for none */
};

/* What happens after a command: a failure ends a run without a person. */
static int after(const struct chat_run *c, int status) { return c->person || !status ? CHAT_STAY : status; }

/* ---- models ---- */

/* The server's list of models; NULL, after a message, if it cannot be fetched. */
static json_t *fetch_models(struct chat_run *c)
{
    struct chat_result result;
    struct qn_error e;
    json_t *list = NULL;
    if (chat_connect(c)) return NULL;
    if (!chat_fetch(c->place.client, "GET", "/v1/models", NULL, MOST_MODELS, &list, &result, &e)) return list;
    c->broken = true;
    cli_fail(&e);
    return NULL;
}

/* The entry of the model that answers; NULL: it is not in the list. */
static const json_t *own_model(const struct chat_run *c, const json_t *list)
{
    const json_t *m;
    size_t i;
    if (!c->place.model) return place_only_model(list, &i);
    json_array_foreach(json_object_get(list, "data"), i, m)
    {
        const char *id = json_string_value(json_object_get(m, "id"));
        if (id && !strcmp(id, c->place.model)) return m;
    }
    return NULL;
}

static void show(const char *text, size_t n)
{
    struct buf out = {0};
    if (!render_clean(&out, text, n, NULL)) wrap_print(stdout, out.data ? (char *)out.data : "", 0);
    buf_deinit(&out);
}

/* Who answers, for people: "NAME answers, at unix:PATH". own: its entry in the list; NULL: it has none. */
static void show_who(const struct chat_run *c, const json_t *own, const char *more)
{
    struct buf line = {0};
    const char *id = json_string_value(json_object_get(own, "id"));
    if (c->place.model) id = c->place.model;
    if (!buf_printf(&line, NULL, "(%s answers, %s %s%s)", id ? id : "one of several models",
                    c->place.kind == PLACE_HERE ? "in" : "at", c->place.name, more))
        show((char *)line.data, line.len);
    buf_deinit(&line);
}

static int list_models(struct chat_run *c)
{
    json_t *list = fetch_models(c);
    const json_t *own = list ? own_model(c, list) : NULL, *m;
    size_t i;
    show_who(c, own, "");
    json_array_foreach(json_object_get(list, "data"), i, m)
    {
        const char *id = json_string_value(json_object_get(m, "id"));
        const char *state = json_string_value(json_object_get(m, "state"));
        struct buf line = {0};
        if (!buf_printf(&line, NULL, "%s %s%s%s", m == own ? "*" : " ", id ? id : "?", state ? "  " : "",
                        state ? state : ""))
            show((char *)line.data, line.len);
        buf_deinit(&line);
    }
    json_decref(list);
    return CHAT_STAY;
}

/* Says who answers from now on. */
static void confirm_model(struct chat_run *c)
{
    json_t *list = fetch_models(c);
    const json_t *own = list ? own_model(c, list) : NULL;
    bool is_unknown = list && !own && c->place.kind != PLACE_HERE;
    show_who(c, own, is_unknown ? ", which does not list it" : "");
    json_decref(list);
}

static int do_model(struct chat_run *c, const char *arg)
{
    const char *before = c->o->place.model;
    if (!*arg) return list_models(c);
    char *name = cli_alloc(strlen(arg) + 1, 1);
    strcpy(name, arg);
    place_close(&c->place);
    c->o->place.model = name;
    int status = place_open(&c->place, &c->o->place, c->invocation);
    if (status) { /* a message was printed */
        place_close(&c->place);
        c->o->place.model = before;
        cli_free(name);
        c->broken = place_open(&c->place, &c->o->place, c->invocation) != 0;
        return after(c, status);
    }
    cli_free(c->model);
    c->model = name;
    c->broken = false;
    if (c->person) confirm_model(c);
    return CHAT_STAY;
}

/* ---- the conversation ---- */

static int do_system(struct chat_run *c, const char *arg)
{
    struct qn_error e;
    const struct talk_message *first = c->talk.n && c->talk.v[0].role == TALK_SYSTEM ? &c->talk.v[0] : NULL;
    if (!*arg) {
        if (first)
            show(first->content, first->n_content);
        else
            puts("there is no system message");
        return CHAT_STAY;
    }
    size_t n = strcmp(arg, "-") ? strlen(arg) : 0;
    return after(c, talk_set_system(&c->talk, arg, n, &e) ? cli_fail(&e) : 0);
}

/* Expands "~/" in a file name. */
static void file_name(struct buf *out, const char *arg)
{
    const char *home = getenv("HOME");
    bool under = !strncmp(arg, "~/", 2) && home;
    if (buf_printf(out, NULL, "%s%s", under ? home : "", under ? arg + 1 : arg)) buf_clear(out);
}

static int do_save(struct chat_run *c, const char *arg)
{
    struct qn_error e;
    struct buf path = {0};
    int status = 0;
    file_name(&path, arg);
    if (talk_save(&c->talk, path.data ? (char *)path.data : "", &e))
        status = cli_fail(&e);
    else if (c->person)
        printf("(%zu message%s saved)\n", c->talk.n, c->talk.n == 1 ? "" : "s");
    buf_deinit(&path);
    return after(c, status);
}

static int do_load(struct chat_run *c, const char *arg)
{
    struct qn_error e;
    struct buf path = {0};
    int status = 0;
    file_name(&path, arg);
    if (talk_load(&c->talk, path.data ? (char *)path.data : "", &e))
        status = cli_fail(&e);
    else if (c->person)
        printf("(%zu message%s loaded)\n", c->talk.n, c->talk.n == 1 ? "" : "s");
    buf_deinit(&path);
    return after(c, status);
}

static int do_file(struct chat_run *c, const char *arg)
{
    struct qn_error e;
    struct buf path = {0};
    size_t n;
    int status = 0;
    file_name(&path, arg);
    if (chat_add_file(c, path.data ? (char *)path.data : "", &n, &e))
        status = cli_fail(&e);
    else if (c->person)
        printf("(%zu byte%s, attached to the next message)\n", n, n == 1 ? "" : "s");
    buf_deinit(&path);
    return after(c, status);
}

static int do_retry(struct chat_run *c, const char *arg)
{
    (void)arg;
    if (talk_drop_reply(&c->talk)) return CHAT_ASK;
    return after(c, cli_usage("there is no message to send again"));
}

static int do_undo(struct chat_run *c, const char *arg)
{
    (void)arg;
    if (!talk_undo(&c->talk)) return after(c, cli_usage("there is no message to take back"));
    if (c->person) printf("(the last message is taken back, %zu left)\n", c->talk.n);
    return CHAT_STAY;
}

/* ---- numbers ---- */

static void print_size(struct chat_run *c)
{
    struct qn_error e;
    int n = -1;
    json_t *request = chat_request(c), *list;
    if (c->talk.n && request && !chat_connect(c) && chat_count(c->place.client, request, &n, &e)) {
        c->broken = true;
        if (e.code != QN_EUNSUP) cli_fail(&e);
    }
    json_decref(request);
    list = fetch_models(c);
    const json_t *own = list ? own_model(c, list) : NULL;
    json_int_t n_ctx = own ? json_integer_value(json_object_get(own, "context_length")) : 0;
    printf("conversation: %zu message%s", c->talk.n, c->talk.n == 1 ? "" : "s");
    if (n >= 0) printf(", %d tokens", n);
    if (n_ctx > 0) printf(" of %lld", (long long)n_ctx);
    putchar('\n');
    json_decref(list);
}

static int do_tokens(struct chat_run *c, const char *arg)
{
    const struct chat_result *r = &c->last;
    (void)arg;
    print_size(c);
    if (r->n_prompt < 0 && r->n_generated < 0) return CHAT_STAY;
    printf("last reply: %d tokens read", r->n_prompt);
    if (r->n_cached >= 0) printf(", %d of them from the cache", r->n_cached);
    printf("; %d written", r->n_generated);
    if (r->decode_ms > 0 && r->n_generated > 1) printf(", %.1f a second", (r->n_generated - 1) * 1000 / r->decode_ms);
    putchar('\n');
    return CHAT_STAY;
}

static int do_fold(struct chat_run *c, const char *arg)
{
    (void)arg;
    c->render.fold = !c->render.fold;
    if (c->person) puts(c->render.fold ? "(thoughts are folded)" : "(thoughts are shown)");
    return CHAT_STAY;
}

static int do_quit(struct chat_run *c, const char *arg)
{
    (void)c, (void)arg;
    return EX_OK;
}

static int do_help(struct chat_run *c, const char *arg);

static const struct command_row rows[] = {
    {"/model", "/model ", "NAME", "ask another model; without NAME: list the models", false, do_model},
    {"/system", "/system ", "TEXT", "set the system prompt; -: remove it; without TEXT: show it", false, do_system},
    {"/file", "/file ", "FILE", "attach a file to the next message", true, do_file},
    {"/save", "/save ", "FILE", "write the conversation, one line of JSON per message", true, do_save},
    {"/load", "/load ", "FILE", "continue a saved conversation", true, do_load},
    {"/retry", "/retry", NULL, "ask again for a reply to the last message", false, do_retry},
    {"/undo", "/undo", NULL, "take back the last message and its reply", false, do_undo},
    {"/tokens", "/tokens", NULL, "show the size of the conversation and the last reply", false, do_tokens},
    {"/fold", "/fold", NULL, "hide what the model thinks, or show it again", false, do_fold},
    {"/help", "/help", NULL, "show this list", false, do_help},
    {"/quit", "/quit", NULL, "end the program, as Ctrl-D does", false, do_quit},
};
enum { N_ROWS = sizeof rows / sizeof rows[0] };

static int do_help(struct chat_run *c, const char *arg)
{
    (void)c, (void)arg;
    char line[128];
    for (size_t i = 0; i < N_ROWS; i++) {
        snprintf(line, sizeof line, "  %-8s %-5s %s", rows[i].name, rows[i].arg ? rows[i].arg : "", rows[i].help);
        wrap_print(stdout, line, 17);
    }
    wrap_print(stdout,
               "Ctrl-C stops a reply. A line that ends in a backslash continues in the next line; Alt-Enter breaks a "
               "line. // begins a message with a slash.",
               0);
    return CHAT_STAY;
}

/* ---- finding one ---- */

static int unknown(const struct chat_run *c, const char *name, size_t n)
{
    char word[NEAREST_MAX];
    struct nearest meant = {.word = word};
    snprintf(word, sizeof word, "%.*s", (int)n, name);
    for (size_t i = 0; i < N_ROWS; i++) nearest_offer(&meant, rows[i].name);
    return after(c,
                 cli_usage("unknown command '%s'%s%s%s (/help lists them, // begins a message with a slash)", word,
                           meant.best ? ": did you mean " : "", meant.best ? meant.best : "", meant.best ? "?" : ""));
}

bool chat_is_command(const char *text)
{
    if (text[0] != '/') return false;
    size_t n = 1;
    while (islower((unsigned char)text[n])) n++;
    return n > 1 && (!text[n] || isspace((unsigned char)text[n]));
}

int chat_command(struct chat_run *c, const char *text)
{
    size_t n = strcspn(text, " \t\n");
    const char *arg = text + n + strspn(text + n, " \t\n");
    for (size_t i = 0; i < N_ROWS; i++) {
        if (n != strlen(rows[i].name) || strncmp(text, rows[i].name, n)) continue;
        if (*arg && !rows[i].arg) return after(c, cli_usage("%.*s takes nothing more: '%s'", (int)n, text, arg));
        if (!*arg && rows[i].needs) return after(c, cli_usage("%.*s needs a %s", (int)n, text, rows[i].arg));
        int next = rows[i].run(c, arg);
        fflush(stdout);
        return next;
    }
    return unknown(c, text, n);
}

const char *chat_complete(void *arg, const char *line, size_t n, size_t i)
{
    struct chat_run *c = arg;
    for (size_t k = 0; n && k < N_ROWS; k++)
        if (n <= strlen(rows[k].tab) && !strncmp(rows[k].tab, line, n) && strlen(rows[k].tab) > n && i-- == 0)
            return rows[k].tab;
    if (!memchr(line, ' ', n) || line[0] != '/') return NULL;
    if (i == 0) chat_words_find(&c->words, c, line, n);
    return i < c->words.n ? c->words.v[i] : NULL;
}
