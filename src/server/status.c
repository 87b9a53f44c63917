/* SPDX-License-Identifier: MIT
 *
 * status.c: GET /health, /v1/models, /metrics, /v1/memory: numbers that are there already. Handlers; they do not wait.
 *
 * Source: the OpenAI API reference ("Models"); the Prometheus text format, version 0.0.4.
 */
#include "server/endpoints.h"

#include <inttypes.h>

/* A step of a large model on a small machine takes long too, so "too long" is measured against the last one. */
#define STALL_S     60.0
#define STALL_STEPS 20.0

static void read_stats(struct api *a, struct qn_scheduler_stats *s)
{
    *s = (struct qn_scheduler_stats){.size = sizeof *s};
    qn_scheduler_stats(a->c.scheduler, s);
}

static bool is_stalled(const struct qn_scheduler_stats *s)
{
    return s->n_running > 0 && s->idle_s > STALL_S && s->idle_s > STALL_STEPS * s->step_s;
}

bool api_is_healthy(struct api *a)
{
    struct qn_scheduler_stats s;
    read_stats(a, &s);
    return !is_stalled(&s);
}

void endpoint_health(struct http_request *r, void *ctx)
{
    struct qn_scheduler_stats s;
    struct json_out o = {0};
    read_stats(ctx, &s);
    if (is_stalled(&s)) {
        http_error(r, 503, NULL, "stalled", "%d requests run and no step has ended for %.0f s", s.n_running, s.idle_s);
        return;
    }
    json_out_open(&o, NULL, '{');
    json_out_str(&o, "status", "ok");
    json_out_int(&o, "running", s.n_running);
    json_out_int(&o, "queued", s.n_queued);
    json_out_close(&o, '}');
    api_send(r, &o);
}

void endpoint_models(struct http_request *r, void *ctx)
{
    struct api *a = ctx;
    struct json_out o = {0};
    json_out_open(&o, NULL, '{');
    json_out_str(&o, "object", "list");
    json_out_open(&o, "data", '[');
    json_out_open(&o, NULL, '{');
    json_out_str(&o, "id", a->c.model_name);
    json_out_str(&o, "object", "model");
    json_out_int(&o, "created", (int64_t)a->start_s);
    json_out_str(&o, "owned_by", "quern");
    json_out_int(&o, "context_length", a->c.n_ctx);
    json_out_int(&o, "context_length_trained", qn_model_n_ctx_train(a->c.model));
    json_out_int(&o, "vocabulary", qn_model_n_vocab(a->c.model));
    json_out_bool(&o, "chat", a->c.chat != NULL);
    json_out_close(&o, '}');
    json_out_close(&o, ']');
    json_out_close(&o, '}');
    api_send(r, &o);
}

void endpoint_memory(struct http_request *r, void *ctx)
{
    struct qn_scheduler_stats s;
    struct json_out o = {0};
    read_stats(ctx, &s);
    json_out_open(&o, NULL, '{');
    json_out_int(&o, "budget_bytes", (int64_t)s.budget_bytes);
    json_out_int(&o, "used_bytes", (int64_t)s.used_bytes);
    json_out_int(&o, "weight_bytes", (int64_t)s.weight_bytes);
    json_out_int(&o, "kv_bytes", (int64_t)s.kv_bytes);
    json_out_int(&o, "buffer_bytes", (int64_t)s.buffer_bytes);
    json_out_int(&o, "scheduler_bytes", (int64_t)s.scheduler_bytes);
    json_out_int(&o, "kv_pages", s.n_pages);
    json_out_int(&o, "kv_pages_free", s.n_pages_free);
    json_out_int(&o, "kv_pages_cached", s.n_pages_cached);
    json_out_int(&o, "kv_page_tokens", s.page_tokens);
    json_out_int(&o, "cache_disk_bytes", (int64_t)s.cache_disk_bytes);
    json_out_close(&o, '}');
    api_send(r, &o);
}

/* ---- metrics ---- */

static int metric(struct buf *b, const char *type, const char *name, const char *help, double value)
{
    return buf_printf(b, NULL, "# HELP quern_%s %s\n# TYPE quern_%s %s\nquern_%s %.17g\n", name, help, name, type, name,
                      value);
}

static int write_finished(struct buf *b, const struct qn_scheduler_stats *s)
{
    static const char *const names[] = {
        [QN_FINISH_STOP_TOKEN] = "stop_token", [QN_FINISH_STOP_STRING] = "stop_string", [QN_FINISH_LENGTH] = "length",
        [QN_FINISH_CANCELLED] = "cancelled",   [QN_FINISH_DEADLINE] = "deadline",       [QN_FINISH_STOPPED] = "stopped",
        [QN_FINISH_ERROR] = "error",
    };
    int bad = buf_printf(b, NULL,
                         "# HELP quern_requests_total Requests that are done.\n# TYPE quern_requests_total counter\n");
    for (int i = QN_FINISH_STOP_TOKEN; i <= QN_FINISH_ERROR; i++)
        bad |= buf_printf(b, NULL, "quern_requests_total{finish=\"%s\"} %" PRIu64 "\n", names[i], s->n_done[i]);
    return bad;
}

void endpoint_metrics(struct http_request *r, void *ctx)
{
    struct api *a = ctx;
    struct qn_scheduler_stats s;
    struct buf b = {0};
    read_stats(a, &s);
    const struct {
        const char *type, *name, *help;
        double value;
    } rows[] = {
        {"gauge", "requests_queued", "Requests that wait.", s.n_queued},
        {"gauge", "requests_running", "Requests that are evaluated.", s.n_running},
        {"gauge", "places_used", "Answers that are evaluated together.", s.n_answers},
        {"gauge", "places", "Answers that can be evaluated together.", s.n_places},
        {"counter", "requests_submitted_total", "Requests that were taken.", (double)s.n_submitted},
        {"counter", "requests_refused_total", "Requests that met a full queue.", (double)s.n_refused},
        {"counter", "prompt_tokens_total", "Tokens of prompts.", (double)s.n_prompt_tokens},
        {"counter", "cached_tokens_total", "Tokens of prompts that came from the cache.", (double)s.n_cached_tokens},
        {"counter", "generated_tokens_total", "Tokens of answers.", (double)s.n_generated_tokens},
        {"counter", "steps_total", "Forward passes.", (double)s.n_steps},
        {"counter", "rows_total", "Rows of forward passes.", (double)s.n_rows},
        {"counter", "prefill_rows_total", "Rows that read prompts.", (double)s.n_prefill_rows},
        {"counter", "busy_seconds_total", "Time in forward passes.", s.busy_s},
        {"gauge", "last_step_seconds", "What the last forward pass took.", s.step_s},
        {"gauge", "since_last_step_seconds", "Time since the last forward pass.", s.idle_s},
        {"gauge", "prefill_tokens_per_second", "Of late.", s.prefill_tokens_per_s},
        {"gauge", "decode_tokens_per_second", "Of late.", s.decode_tokens_per_s},
        {"gauge", "memory_budget_bytes", "The ledger's budget.", (double)s.budget_bytes},
        {"gauge", "memory_used_bytes", "What is taken from it.", (double)s.used_bytes},
        {"gauge", "memory_weight_bytes", "Weights.", (double)s.weight_bytes},
        {"gauge", "memory_kv_bytes", "Keys and values.", (double)s.kv_bytes},
        {"gauge", "memory_buffer_bytes", "Buffers of a forward pass.", (double)s.buffer_bytes},
        {"gauge", "memory_scheduler_bytes", "Logits and samplers of the places.", (double)s.scheduler_bytes},
        {"gauge", "kv_pages", "Pages of keys and values.", s.n_pages},
        {"gauge", "kv_pages_free", "Pages that hold nothing.", s.n_pages_free},
        {"gauge", "kv_pages_cached", "Pages that hold prefixes nobody uses now.", s.n_pages_cached},
        {"counter", "cache_lookups_total", "Prompts looked up in the cache.", (double)s.cache_lookups},
        {"counter", "cache_hits_total", "Prompts of which a part was found.", (double)s.cache_hits},
        {"counter", "cache_hit_tokens_total", "Tokens that were found.", (double)s.cache_hit_tokens},
        {"gauge", "cache_disk_bytes", "Prefixes on disk.", (double)s.cache_disk_bytes},
    };
    int bad = 0;
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++)
        bad |= metric(&b, rows[i].type, rows[i].name, rows[i].help, rows[i].value);
    bad |= write_finished(&b, &s) | hists_write(&a->hists, &b);
    if (bad)
        http_error(r, 503, NULL, "no_memory", "not enough memory");
    else
        http_reply(r, 200, "text/plain; version=0.0.4", b.data, b.len);
    buf_deinit(&b);
}
