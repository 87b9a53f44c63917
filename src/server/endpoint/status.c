/* SPDX-License-Identifier: MIT
 *
 * status.c: GET /health, /v1/memory, /v1/status, /v1/requests: numbers that are there already; and how a model is
 * described. These are handlers and do not wait.
 */
#include "server/api/endpoints.h"

#include <stddef.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/os.h"

/* A step of a large model on a small machine takes long too, so the limit grows with the time of the last step. */
#define STALL_S     60.0
#define STALL_STEPS 20.0

/* ---- health ---- */

static bool is_stalled(const struct qn_scheduler_stats *s)
{
    return s->n_running > 0 && s->idle_s > STALL_S && s->idle_s > STALL_STEPS * s->step_s;
}

/* Adds up the numbers of all models. *stalled: a model that is stalled, if there is one. */
static void add_up(struct api *a, int *n_running, int *n_queued, struct models_info *stalled)
{
    struct models_info m;
    *n_running = *n_queued = 0;
    stalled->name = NULL;
    for (int i = 0; i < models_count(a->c.models); i++) {
        models_look(a->c.models, i, &m);
        *n_running += m.stats.n_running;
        *n_queued += m.stats.n_queued;
        if (is_stalled(&m.stats)) *stalled = m;
    }
}

bool api_is_healthy(struct api *a)
{
    struct models_info stalled;
    int n_running, n_queued;
    add_up(a, &n_running, &n_queued, &stalled);
    return !stalled.name;
}

void endpoint_health(struct http_request *r, void *ctx)
{
    struct api *a = ctx;
    struct models_info stalled;
    struct json_out o = {.ledger = a->c.requests};
    int n_running, n_queued;
    add_up(a, &n_running, &n_queued, &stalled);
    if (stalled.name) {
        http_error(r, 503, NULL, "stalled", "'%s': %d requests run and no step has ended for %.0f s", stalled.name,
                   stalled.stats.n_running, stalled.stats.idle_s);
        return;
    }
    json_out_open(&o, NULL, '{');
    json_out_str(&o, "status", "ok");
    json_out_int(&o, "running", n_running);
    json_out_int(&o, "queued", n_queued);
    json_out_close(&o, '}');
    api_send(r, &o);
}

/* ---- models ---- */

/* The words for enum qn_chat_support, where the third one says how a conversation is changed. */
static const char *support(enum qn_chat_support s, const char *adapted)
{
    switch (s) {
    case QN_CHAT_NATIVE: return "native";
    case QN_CHAT_ADAPTED: return adapted;
    case QN_CHAT_REFUSED: return "refused";
    default: return "unknown";
    }
}

static void write_capabilities(struct json_out *o, const struct qn_chat_capabilities *c)
{
    json_out_open(o, "capabilities", '{');
    json_out_str(o, "tools", support(c->tools, "generic"));
    json_out_str(o, "parallel_tools", support(c->parallel, "split"));
    json_out_str(o, "system", support(c->system, "merged"));
    json_out_str(o, "turns", support(c->turns, "merged"));
    json_out_bool(o, "parts", c->parts);
    json_out_bool(o, "thinking", c->thinking);
    json_out_bool(o, "thinking_switch", c->switches);
    json_out_bool(o, "thinking_levels", c->levels);
    json_out_close(o, '}');
}

void status_write_model(struct json_out *o, const char *name, const struct models_info *m, uint64_t created_s)
{
    char fingerprint[17], created[24];
    time_t at = (time_t)created_s;
    struct tm t;
    strftime(created, sizeof created, "%Y-%m-%dT%H:%M:%SZ", gmtime_r(&at, &t));
    snprintf(fingerprint, sizeof fingerprint, "%016llx", (unsigned long long)m->fingerprint);
    json_out_open(o, NULL, '{');
    json_out_str(o, "id", name);
    json_out_str(o, "object", "model");
    json_out_str(o, "type", "model");
    json_out_str(o, "display_name", name);
    json_out_int(o, "created", (int64_t)created_s);
    json_out_str(o, "created_at", created);
    json_out_str(o, "alias_of", strcmp(name, m->name) ? m->name : NULL);
    json_out_str(o, "owned_by", "quern");
    json_out_str(o, "state", models_state_name(m->state));
    json_out_bool(o, "pinned", m->pinned);
    json_out_int(o, "memory_bytes", (int64_t)m->need_bytes);
    json_out_int(o, "context_length", m->n_ctx);
    json_out_int(o, "context_length_trained", m->n_ctx_train);
    json_out_int(o, "vocabulary", m->n_vocab);
    json_out_bool(o, "chat", m->chat);
    if (m->chat) write_capabilities(o, &m->can);
    json_out_str(o, "fingerprint", fingerprint);
    json_out_close(o, '}');
}

/* ---- memory ---- */

/* The parts of the budget, for each model. */
static const struct {
    const char *name;
    size_t at; /* offset in a struct models_info */
} classes[] = {
#define CLASS(name)                                                                                                    \
    {                                                                                                                  \
#name, offsetof(struct models_info, stats.name)                                                                \
    }
    CLASS(weight_bytes),
    CLASS(kv_bytes),
    CLASS(state_bytes),
    CLASS(buffer_bytes),
    CLASS(scheduler_bytes),
    CLASS(cache_bytes),
    {"table_bytes", offsetof(struct models_info, table_bytes)},
#undef CLASS
};
#define N_CLASSES (sizeof classes / sizeof classes[0])

static uint64_t class_of(const struct models_info *m, size_t i)
{
    uint64_t v;
    memcpy(&v, (const char *)m + classes[i].at, sizeof v);
    return v;
}

static void write_memory(struct json_out *o, const struct models_info *m)
{
    const struct qn_scheduler_stats *s = &m->stats;
    json_out_open(o, NULL, '{');
    json_out_str(o, "id", m->name);
    json_out_str(o, "state", models_state_name(m->state));
    json_out_int(o, "granted_bytes", (int64_t)m->granted_bytes);
    json_out_int(o, "used_bytes", (int64_t)s->used_bytes);
    for (size_t i = 0; i < N_CLASSES; i++) json_out_int(o, classes[i].name, (int64_t)class_of(m, i));
    json_out_int(o, "grammar_bytes", (int64_t)m->grammar_bytes);
    json_out_int(o, "kv_touched_bytes", (int64_t)s->kv_touched_bytes);
    json_out_int(o, "kv_pages", s->n_pages);
    json_out_int(o, "kv_pages_free", s->n_pages_free);
    json_out_int(o, "kv_pages_cached", s->n_pages_cached);
    json_out_int(o, "kv_page_tokens", s->page_tokens);
    json_out_int(o, "kv_windows", s->n_windows);
    json_out_int(o, "kv_windows_free", s->n_windows_free);
    json_out_int(o, "kv_windows_cached", s->n_windows_cached);
    json_out_int(o, "states", s->n_states);
    json_out_int(o, "states_free", s->n_states_free);
    json_out_int(o, "states_cached", s->n_snapshots);
    json_out_int(o, "states_disk", s->n_snapshots_disk);
    json_out_int(o, "cache_disk_bytes", (int64_t)s->cache_disk_bytes);
    json_out_close(o, '}');
}

void endpoint_memory(struct http_request *r, void *ctx)
{
    struct api *a = ctx;
    struct models *models = a->c.models;
    struct models_info m;
    struct json_out o = {.ledger = a->c.requests};
    const struct ledger *l = a->c.requests;
    uint64_t request = l ? ledger_used(l) : 0, connection = http_connection_bytes(r), room = l ? l->budget : 0;
    uint64_t used = request + connection + a->c.program_bytes, sums[N_CLASSES] = {0}, touched = 0, grammars = 0;
    json_out_open(&o, NULL, '{');
    json_out_int(&o, "budget_bytes", (int64_t)(models_budget_bytes(models) + room + a->c.program_bytes));
    json_out_open(&o, "models", '[');
    for (int i = 0; i < models_count(models); i++) {
        models_look(models, i, &m);
        for (size_t k = 0; k < N_CLASSES; k++) sums[k] += class_of(&m, k);
        used += m.stats.used_bytes;
        touched += m.stats.kv_touched_bytes;
        grammars += m.grammar_bytes;
        write_memory(&o, &m);
    }
    json_out_close(&o, ']');
    json_out_int(&o, "used_bytes", (int64_t)used);
    for (size_t k = 0; k < N_CLASSES; k++) json_out_int(&o, classes[k].name, (int64_t)sums[k]);
    json_out_int(&o, "request_bytes", (int64_t)request);
    json_out_int(&o, "grammar_bytes", (int64_t)grammars);
    json_out_int(&o, "connection_bytes", (int64_t)connection);
    json_out_int(&o, "program_bytes", (int64_t)a->c.program_bytes);
    json_out_int(&o, "request_budget_bytes", (int64_t)room);
    json_out_int(&o, "kv_touched_bytes", (int64_t)touched);
    json_out_int(&o, "resident_bytes", (int64_t)os_resident_bytes());
    json_out_close(&o, '}');
    api_send(r, &o);
}

/* ---- the process ---- */

static void write_status(struct json_out *o, const struct models_info *m, bool with_path)
{
    const struct qn_scheduler_stats *s = &m->stats;
    json_out_open(o, NULL, '{');
    json_out_str(o, "id", m->name);
    if (with_path) json_out_str(o, "path", m->path);
    json_out_str(o, "state", models_state_name(m->state));
    json_out_int(o, "context_length", m->n_ctx);
    json_out_int(o, "granted_bytes", (int64_t)m->granted_bytes);
    json_out_int(o, "used_bytes", (int64_t)s->used_bytes);
    json_out_int(o, "running", s->n_running);
    json_out_int(o, "queued", s->n_queued);
    json_out_int(o, "requests", (int64_t)s->n_submitted);
    json_out_int(o, "prompt_tokens", (int64_t)s->n_prompt_tokens);
    json_out_int(o, "cached_tokens", (int64_t)s->n_cached_tokens);
    json_out_int(o, "generated_tokens", (int64_t)s->n_generated_tokens);
    json_out_num(o, "prefill_tokens_per_second", s->prefill_tokens_per_s);
    json_out_num(o, "decode_tokens_per_second", s->decode_tokens_per_s);
    json_out_close(o, '}');
}

/* Paths of files are shown only to users of this machine. */
void endpoint_status(struct http_request *r, void *ctx)
{
    struct api *a = ctx;
    struct models_info m;
    struct json_out o = {.ledger = a->c.requests};
    bool with_path = http_identity(r)->kind == HTTP_UID;
    json_out_open(&o, NULL, '{');
    json_out_str(&o, "version", qn_version());
    json_out_int(&o, "pid", getpid());
    json_out_num(&o, "uptime_seconds", 1e-9 * (double)(clock_ns() - a->start_ns));
    json_out_int(&o, "resident_bytes", (int64_t)os_resident_bytes());
    json_out_int(&o, "requests", tickets_count(a));
    json_out_open(&o, "models", '[');
    for (int i = 0; i < models_count(a->c.models); i++) {
        models_look(a->c.models, i, &m);
        write_status(&o, &m, with_path);
    }
    json_out_close(&o, ']');
    json_out_close(&o, '}');
    api_send(r, &o);
}

/* ---- requests under way ---- */

#define MOST_LISTED 100

/* A word for what is done for the request now. */
static const char *doing(const struct ticket_info *t)
{
    if (t->is_cancelled) return "ending";
    if (!t->is_submitted) return "reading";
    switch (t->phase) {
    case QN_EVENT_QUEUED: return "queued";
    case QN_EVENT_PREFILL: return "prefill";
    case QN_EVENT_PAUSE: return "paused";
    default: return "decoding";
    }
}

static void write_request(struct json_out *o, const struct ticket_info *t, uint64_t now)
{
    const char *state = doing(t);
    json_out_open(o, NULL, '{');
    json_out_str(o, "id", t->id);
    json_out_str(o, "object", "request");
    json_out_str(o, "model", t->model);
    json_out_str(o, "state", state);
    json_out_num(o, "age_seconds", 1e-9 * (double)(now - t->arrived_ns));
    if (t->is_submitted && t->phase == QN_EVENT_QUEUED) json_out_int(o, "before", t->n_done);
    json_out_int(o, "prompt_tokens_done", t->phase == QN_EVENT_QUEUED ? 0 : t->n_done);
    json_out_int(o, "prompt_tokens", t->n_total);
    json_out_int(o, "generated_tokens", t->n_generated);
    json_out_close(o, '}');
}

/* Only the identity's own requests. */
void endpoint_requests(struct http_request *r, void *ctx)
{
    struct api *a = ctx;
    struct ticket_info list[MOST_LISTED];
    struct json_out o = {.ledger = a->c.requests};
    size_t n = tickets_list(a, who_of(http_identity(r), NULL).identity, list, MOST_LISTED);
    uint64_t now = clock_ns();
    json_out_open(&o, NULL, '{');
    json_out_str(&o, "object", "list");
    json_out_open(&o, "data", '[');
    for (size_t i = 0; i < n && i < MOST_LISTED; i++) write_request(&o, &list[i], now);
    json_out_close(&o, ']');
    json_out_int(&o, "total", (int64_t)n);
    json_out_close(&o, '}');
    api_send(r, &o);
}
