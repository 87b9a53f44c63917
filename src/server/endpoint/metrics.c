/* SPDX-License-Identifier: MIT
 *
 * metrics.c: GET /metrics: numbers of each model as Prometheus text. It is a handler and does not wait.
 *
 * The format wants all models of one metric together. So all numbers are read before the first is written; those of
 * different models are not read at the same moment.
 *
 * Source: the Prometheus text format, version 0.0.4.
 */
#include "server/api/endpoints.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/os.h"

/* One model: its numbers, and the value of its label. */
struct metric_row {
    struct models_info m;
    struct buf label;
};

/* The kind of number that `at` points to; the metric says which. */
enum number { INT, UINT64, DOUBLE };

static const struct metric {
    const char *type, *name, *help;
    enum number number;
    size_t at; /* in struct models_info */
} metrics[] = {
#define AT(member)   offsetof(struct models_info, member)
#define STAT(member) AT(stats.member)
    {"gauge", "requests_queued", "Requests that wait.", INT, STAT(n_queued)},
    {"gauge", "requests_running", "Requests that are evaluated.", INT, STAT(n_running)},
    {"gauge", "places_used", "Answers that are evaluated together.", INT, STAT(n_answers)},
    {"gauge", "places_paused", "Of the places used, answers that gave their pages to others.", INT, STAT(n_paused)},
    {"counter", "pauses_total", "Times that an answer gave its pages to others.", UINT64, STAT(n_pauses)},
    {"counter", "rows_again_total", "Rows that were evaluated again for that reason.", UINT64, STAT(n_rows_again)},
    {"gauge", "places", "Answers that can be evaluated together.", INT, STAT(n_places)},
    {"counter", "requests_submitted_total", "Requests that were taken.", UINT64, STAT(n_submitted)},
    {"counter", "requests_refused_total", "Requests that met a full queue.", UINT64, STAT(n_refused)},
    {"counter", "prompt_tokens_total", "Tokens of prompts.", UINT64, STAT(n_prompt_tokens)},
    {"counter", "cached_tokens_total", "Tokens of prompts that came from the cache.", UINT64, STAT(n_cached_tokens)},
    {"counter", "generated_tokens_total", "Tokens of answers.", UINT64, STAT(n_generated_tokens)},
    {"counter", "steps_total", "Forward passes.", UINT64, STAT(n_steps)},
    {"counter", "rows_total", "Rows of forward passes.", UINT64, STAT(n_rows)},
    {"counter", "prefill_rows_total", "Rows that read prompts.", UINT64, STAT(n_prefill_rows)},
    {"counter", "busy_seconds_total", "Time in forward passes.", DOUBLE, STAT(busy_s)},
    {"gauge", "last_step_seconds", "What the last forward pass took.", DOUBLE, STAT(step_s)},
    {"gauge", "since_last_step_seconds", "Time since the last forward pass.", DOUBLE, STAT(idle_s)},
    {"gauge", "prefill_tokens_per_second", "Of late.", DOUBLE, STAT(prefill_tokens_per_s)},
    {"gauge", "decode_tokens_per_second", "Of late.", DOUBLE, STAT(decode_tokens_per_s)},
    {"gauge", "memory_granted_bytes", "What the model has of the budget.", UINT64, AT(granted_bytes)},
    {"gauge", "memory_used_bytes", "What it has taken of that.", UINT64, STAT(used_bytes)},
    {"gauge", "memory_weight_bytes", "Weights.", UINT64, STAT(weight_bytes)},
    {"gauge", "memory_kv_bytes", "Keys and values.", UINT64, STAT(kv_bytes)},
    {"gauge", "memory_state_bytes", "Recurrent states and copies of them.", UINT64, STAT(state_bytes)},
    {"gauge", "memory_buffer_bytes", "Buffers of a forward pass.", UINT64, STAT(buffer_bytes)},
    {"gauge", "memory_scheduler_bytes", "Logits and samplers of the places.", UINT64, STAT(scheduler_bytes)},
    {"gauge", "memory_cache_bytes", "The tree of cached prefixes.", UINT64, STAT(cache_bytes)},
    {"gauge", "memory_table_bytes", "The vocabulary and the template.", UINT64, AT(table_bytes)},
    {"gauge", "memory_grammar_bytes", "Grammars of answers, from the memory of requests.", UINT64, AT(grammar_bytes)},
    {"gauge", "kv_pages", "Pages of keys and values.", INT, STAT(n_pages)},
    {"gauge", "kv_pages_free", "Pages that hold nothing.", INT, STAT(n_pages_free)},
    {"gauge", "kv_pages_cached", "Pages that hold prefixes nobody uses now.", INT, STAT(n_pages_cached)},
    {"gauge", "kv_windows", "Pages of layers that keep a window only.", INT, STAT(n_windows)},
    {"gauge", "kv_windows_free", "Of these, pages that hold nothing.", INT, STAT(n_windows_free)},
    {"gauge", "kv_windows_cached", "Of these, pages that prefixes keep.", INT, STAT(n_windows_cached)},
    {"gauge", "states", "Recurrent states that there is room for.", INT, STAT(n_states)},
    {"gauge", "states_free", "Of these, unused.", INT, STAT(n_states_free)},
    {"gauge", "states_cached", "Copies that the cache keeps.", INT, STAT(n_snapshots)},
    {"counter", "cache_lookups_total", "Prompts looked up in the cache.", UINT64, STAT(cache_lookups)},
    {"counter", "cache_hits_total", "Prompts of which a part was found.", UINT64, STAT(cache_hits)},
    {"counter", "cache_hit_tokens_total", "Tokens that were found.", UINT64, STAT(cache_hit_tokens)},
    {"gauge", "cache_disk_bytes", "Prefixes on disk.", UINT64, STAT(cache_disk_bytes)},
    {"gauge", "model_requests", "Requests that hold the model.", INT, AT(n_users)},
    {"counter", "model_loads_total", "Times that the model was loaded.", UINT64, AT(n_loads)},
#undef STAT
#undef AT
};

static double number_of(const struct metric *c, const struct models_info *m)
{
    const char *at = (const char *)m + c->at;
    int i;
    uint64_t u;
    double d;
    switch (c->number) {
    case INT: memcpy(&i, at, sizeof i); return i;
    case UINT64: memcpy(&u, at, sizeof u); return (double)u;
    case DOUBLE: memcpy(&d, at, sizeof d); return d;
    }
    return 0;
}

static int write_head(struct buf *b, const char *type, const char *name, const char *help)
{
    return buf_printf(b, NULL, "# HELP quern_%s %s\n# TYPE quern_%s %s\n", name, help, name, type);
}

static const char *label_of(const struct metric_row *r) { return (const char *)r->label.data; }

static int write_finished(struct buf *b, const struct metric_row *rows, int n)
{
    static const char *const names[] = {
        [QN_FINISH_STOP_TOKEN] = "stop_token", [QN_FINISH_STOP_STRING] = "stop_string", [QN_FINISH_LENGTH] = "length",
        [QN_FINISH_CANCELLED] = "cancelled",   [QN_FINISH_DEADLINE] = "deadline",       [QN_FINISH_STOPPED] = "stopped",
        [QN_FINISH_ERROR] = "error",
    };
    int bad = write_head(b, "counter", "requests_total",
                         "Requests to the model that are done: each input of an embedding is one.");
    for (int k = 0; k < n; k++)
        for (int i = QN_FINISH_STOP_TOKEN; i <= QN_FINISH_ERROR; i++)
            bad |= buf_printf(b, NULL, "quern_requests_total{model=\"%s\",finish=\"%s\"} %" PRIu64 "\n",
                              label_of(&rows[k]), names[i], rows[k].m.stats.n_done[i]);
    return bad;
}

/* Guessed tokens, by the drafter that guessed them. */
static int write_drafts(struct buf *b, const struct metric_row *rows, int n)
{
    int bad = 0;
    for (int right = 0; right < 2; right++) {
        const char *name = right ? "accepted_tokens_total" : "drafted_tokens_total";
        bad |= write_head(b, "counter", name,
                          right ? "Of these, those that were right." : "Guessed tokens that became rows.");
        for (int k = 0; k < n; k++)
            for (enum qn_draft d = QN_DRAFT_NGRAM; d < QN_DRAFT_DEFAULT; d++) {
                const struct qn_scheduler_stats *s = &rows[k].m.stats;
                bad |= buf_printf(b, NULL, "quern_%s{model=\"%s\",drafter=\"%s\"} %" PRIu64 "\n", name,
                                  label_of(&rows[k]), qn_draft_name(d), right ? s->n_accepted[d] : s->n_drafted[d]);
            }
    }
    return bad;
}

/* Only what has happened: most routes never answer most statuses. */
static int write_http(const struct http_request *r, struct buf *b)
{
    struct http_count c;
    int bad = write_head(b, "counter", "http_requests_total", "HTTP requests that have ended.");
    for (size_t i = 0; http_count(r, i, &c); i++) {
        char status[16] = "none";
        if (c.status) snprintf(status, sizeof status, "%d", c.status);
        if (c.n)
            bad |=
                buf_printf(b, NULL, "quern_http_requests_total{route=\"%s\",method=\"%s\",status=\"%s\"} %" PRIu64 "\n",
                           c.route ? c.route->pattern : "none", c.route ? c.route->method : "none", status, c.n);
    }
    return bad;
}

/* Memory that belongs to no model. */
static int write_process(const struct api *a, const struct http_request *r, struct buf *b)
{
    const struct ledger *l = a->c.requests;
    const struct {
        const char *name, *help;
        uint64_t bytes;
    } rows[] = {
        {"memory_budget_bytes", "What all models may take together, requests, and the program.",
         models_budget_bytes(a->c.models) + (l ? l->budget : 0) + a->c.program_bytes},
        {"memory_request_bytes", "Bodies, documents, and what waits to be sent.", l ? ledger_used(l) : 0},
        {"memory_connection_bytes", "Open connections.", http_connection_bytes(r)},
        {"memory_program_bytes", "The program itself.", a->c.program_bytes},
        {"memory_resident_bytes", "The resident set.", os_resident_bytes()},
    };
    int bad = 0;
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++)
        bad |= write_head(b, "gauge", rows[i].name, rows[i].help) |
               buf_printf(b, NULL, "quern_%s %" PRIu64 "\n", rows[i].name, rows[i].bytes);
    return bad;
}

static int write_refused(const struct http_request *r, struct buf *b)
{
    const struct http_refused n = http_refused(r);
    int bad = write_head(b, "counter", "connections_refused_total", "Connections that found no place.");
    bad |= buf_printf(b, NULL, "quern_connections_refused_total{why=\"full\"} %" PRIu64 "\n", n.full);
    return bad | buf_printf(b, NULL, "quern_connections_refused_total{why=\"peer\"} %" PRIu64 "\n", n.peer);
}

static int write_all(const struct http_request *r, struct api *a, struct buf *b, const struct metric_row *rows, int n)
{
    int bad = write_process(a, r, b) | write_refused(r, b) | write_http(r, b);
    for (size_t i = 0; i < sizeof metrics / sizeof metrics[0]; i++) {
        const struct metric *c = &metrics[i];
        bad |= write_head(b, c->type, c->name, c->help);
        for (int k = 0; k < n; k++)
            bad |= buf_printf(b, NULL, "quern_%s{model=\"%s\"} %.17g\n", c->name, label_of(&rows[k]),
                              number_of(c, &rows[k].m));
    }
    bad |= write_finished(b, rows, n) | write_drafts(b, rows, n);
    for (int i = 0; i < N_HIST; i++) {
        bad |= hists_write_head(i, b);
        for (int k = 0; k < n; k++) bad |= hists_write(&a->hists[k], i, label_of(&rows[k]), b);
    }
    return bad;
}

/* Escapes quotes, backslashes and line breaks in the value of a label. */
static int make_label(struct buf *b, const char *name)
{
    int bad = 0;
    for (const char *p = name; *p && !bad; p++) {
        if (*p == '\n') {
            bad = buf_add(b, "\\n", 2, NULL);
            continue;
        }
        if (*p == '"' || *p == '\\') bad = buf_add(b, "\\", 1, NULL);
        if (!bad) bad = buf_add(b, p, 1, NULL);
    }
    return bad || buf_add(b, "", 1, NULL);
}

void endpoint_metrics(struct http_request *r, void *ctx)
{
    struct api *a = ctx;
    struct buf b = {0};
    int n = models_count(a->c.models);
    struct metric_row *rows = mem_calloc((size_t)n, sizeof *rows);
    bool bad = !rows;
    for (int i = 0; i < n && !bad; i++) {
        models_look(a->c.models, i, &rows[i].m);
        bad = make_label(&rows[i].label, rows[i].m.name) != 0;
    }
    if (bad || write_all(r, a, &b, rows, n))
        http_error(r, 503, NULL, "no_memory", "not enough memory");
    else
        http_reply(r, 200, "text/plain; version=0.0.4", b.data, b.len);
    for (int i = 0; i < n && rows; i++) buf_deinit(&rows[i].label);
    mem_free(rows);
    buf_deinit(&b);
}
