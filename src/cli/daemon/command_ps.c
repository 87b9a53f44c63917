/* SPDX-License-Identifier: MIT
 *
 * command_ps.c: `quern ps`: shows a running daemon: its models, their memory and requests, and this user's
 * conversations.
 *
 * It prints two answers of the daemon (GET /v1/status, /v1/sessions), as tables or as JSON. The sessions are those of
 * the user who asks: a daemon does not show those of others.
 */
#include <inttypes.h>
#include <jansson.h>
#include <stdio.h>
#include <sysexits.h>

#include "cli/core/cli.h"
#include "cli/core/columns.h"
#include "cli/core/commands.h"
#include "cli/place/daemon.h"

#define SHOWN "20" /* number of sessions, for people */

struct ps {
    const char *socket;
    bool json;
};

/* Writes a duration such as "5 s", "12 min", "3 h 20 min" or "4 d 2 h". */
static void duration(double seconds, char dst[40])
{
    uint64_t s = seconds > 0 && seconds < 1e12 ? (uint64_t)seconds : 0, min = s / 60, h = min / 60;
    if (s < 60)
        snprintf(dst, 40, "%" PRIu64 " s", s);
    else if (min < 60)
        snprintf(dst, 40, "%" PRIu64 " min", min);
    else if (h < 24)
        snprintf(dst, 40, "%" PRIu64 " h %" PRIu64 " min", h, min % 60);
    else
        snprintf(dst, 40, "%" PRIu64 " d %" PRIu64 " h", h / 24, h % 24);
}

static void add_head(struct text_columns *t, const char *const *heads)
{
    for (; *heads; heads++) columns_add(t, "%s", *heads);
}

static void add_number(struct text_columns *t, const json_t *j, const char *key)
{
    columns_add(t, "%.0f", daemon_number(j, key));
}

/* A number of bytes from the answer, as text. */
static void size_of(const json_t *j, const char *key, char dst[32])
{
    double v = daemon_number(j, key);
    columns_size(v > 0 && v < 0x1p63 ? (uint64_t)v : 0, dst);
}

static void add_size(struct text_columns *t, const json_t *j, const char *key)
{
    char text[32];
    size_of(j, key, text);
    columns_add(t, "%s", text);
}

/* Adds a rate; 0: not known yet. */
static void add_rate(struct text_columns *t, const json_t *j, const char *key)
{
    double v = daemon_number(j, key);
    if (v > 0)
        columns_add(t, v < 10 ? "%.1f" : "%.0f", v);
    else
        columns_add(t, "-");
}

static void print_process(const struct daemon *d, const json_t *status)
{
    char up[40], size[32], line[1024], clean[1024];
    duration(daemon_number(status, "uptime_seconds"), up);
    size_of(status, "resident_bytes", size);
    snprintf(line, sizeof line, "%s: pid %.0f, up %s, %s resident", d->socket, daemon_number(status, "pid"), up, size);
    error_clean(clean, sizeof clean, line);
    puts(clean);
    snprintf(line, sizeof line, "quern %s", daemon_text(status, "version"));
    error_clean(clean, sizeof clean, line);
    puts(clean);
}

static void print_models(const json_t *models)
{
    static const char *const heads[] = {"MODEL", "STATE",  "MEMORY", "RUN",      "WAIT",
                                        "ALL",   "TOKENS", "READ/S", "TOKENS/S", NULL};
    struct text_columns t = {.align = "nlrrrrrrr"};
    size_t i;
    json_t *m;
    if (!json_array_size(models)) return;
    putchar('\n');
    add_head(&t, heads);
    json_array_foreach(models, i, m)
    {
        columns_add(&t, "%s", daemon_text(m, "id"));
        columns_add(&t, "%s", daemon_text(m, "state"));
        add_size(&t, m, "used_bytes");
        add_number(&t, m, "running");
        add_number(&t, m, "queued");
        add_number(&t, m, "requests");
        add_number(&t, m, "generated_tokens");
        add_rate(&t, m, "prefill_tokens_per_second");
        add_rate(&t, m, "decode_tokens_per_second");
    }
    columns_print(&t);
}

static void print_sessions(const json_t *sessions)
{
    static const char *const heads[] = {"SESSION", "MODEL", "TOKENS", "MEMORY", "DISK", "IDLE", NULL};
    struct text_columns t = {.align = "nnrrrr"};
    const json_t *list = json_object_get(sessions, "data");
    double total = daemon_number(sessions, "total");
    size_t i;
    json_t *s;
    if (!json_array_size(list)) return;
    putchar('\n');
    add_head(&t, heads);
    json_array_foreach(list, i, s)
    {
        char idle[40] = "-";
        if (json_is_number(json_object_get(s, "idle_seconds"))) duration(daemon_number(s, "idle_seconds"), idle);
        columns_add(&t, "%s", daemon_text(s, "id"));
        columns_add(&t, "%s", daemon_text(s, "model"));
        add_number(&t, s, "tokens");
        add_size(&t, s, "memory_bytes");
        add_size(&t, s, "disk_bytes");
        columns_add(&t, "%s", idle);
    }
    columns_add(&t, "%.0f in all", total);
    columns_add(&t, "%s", "");
    columns_add(&t, "%s", "");
    add_size(&t, sessions, "total_memory_bytes");
    add_size(&t, sessions, "total_disk_bytes");
    columns_add(&t, "%s", "");
    columns_print(&t);
}

static void print_json(const struct daemon *d, json_t *status, json_t *sessions)
{
    json_t *j = json_pack("{s:s, s:O, s:O}", "socket", d->socket, "status", status, "sessions", sessions);
    cli_print_json(j, JSON_INDENT(1));
}

static int run(struct invocation *v)
{
    const struct ps *o = v->options;
    struct daemon d;
    struct qn_error e = {0};
    json_t *status = NULL, *sessions = NULL;
    int rc = daemon_open(&d, o->socket, false);
    if (!rc && (daemon_ask(&d, "/v1/status", &status, &e) ||
                daemon_ask(&d, o->json ? "/v1/sessions?limit=1000" : "/v1/sessions?limit=" SHOWN, &sessions, &e)))
        rc = cli_fail(&e);
    if (!rc && o->json) {
        print_json(&d, status, sessions);
    } else if (!rc) {
        print_process(&d, status);
        print_models(json_object_get(status, "models"));
        print_sessions(sessions);
    }
    json_decref(status);
    json_decref(sessions);
    daemon_close(&d);
    return rc;
}

static const struct opt opts[] = {
    {"json", 0, OPT_FLAG, offsetof(struct ps, json), NULL, "one JSON object: the daemon's status and your sessions"},
    {0},
};

static const struct opt_group groups[] = {
    {"Options", opts}, {"Daemon", opts_socket, offsetof(struct ps, socket), ""}, {0}};

static const struct example examples[] = {
    {"quern ps", "Show the running daemon"},
    {"quern ps --json | jq .status.models", "A part of it, for a program"},
    {0},
};

const struct command command_ps = {
    .name = "ps",
    .operands = "[OPTIONS]",
    .brief = "show the daemon's models, requests, sessions and rates",
    .about =
        "Shows the running daemon: its models, their memory, their requests, and which of your conversations it "
        "keeps.\n\n"
        "MEMORY is what a model uses of the budget. RUN, WAIT and ALL are the requests that run, that wait, and all "
        "since the start; TOKENS are those of their answers. READ/S and TOKENS/S are the recent tokens of prompts and "
        "of "
        "answers per second. The sessions are those of the user who asks. Without a daemon the exit status is 69.",
    .examples = examples,
    .min = 0,
    .max = 0,
    .groups = groups,
    .size = sizeof(struct ps),
    .run = run,
};
