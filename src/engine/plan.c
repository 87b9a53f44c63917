/* SPDX-License-Identifier: MIT
 *
 * plan.c: qn_engine_plan(): adds up the memory that an engine and a scheduler on it would take. It uses both, so it is
 * part of neither.
 */
#include "engine/budget.h"
#include "engine/draft_model.h"
#include "engine/scheduler.h"

int qn_engine_plan(struct qn_engine_plan *out, const qn_model *model, const struct qn_engine_params *engine,
                   const struct qn_scheduler_params *scheduler, struct qn_error *e)
{
    struct qn_engine_params p;
    struct qn_scheduler_params s;
    struct budget b = {0};
    enum cpu_level level;
    int rc;
    if (!out || !model) return usage_null(e, __func__);
    const struct model *m = model->model;
    if (out->size != sizeof *out)
        return error_set(e, QN_EUSAGE, "engine: result struct of %zu bytes, %zu expected", out->size, sizeof *out);
    qn_engine_params_init(&p);
    qn_scheduler_params_init(&s);
    if (engine && (rc = usage_size(e, "engine", engine->size, sizeof p))) return rc;
    if (scheduler && (rc = usage_size(e, "scheduler", scheduler->size, sizeof s))) return rc;
    if (engine) p = *engine;
    if (scheduler) s = *scheduler;
    if ((rc = budget_settle(&p, m, &level, e)) || (rc = budget_count(m, &p, &b, e))) return rc;
    if ((rc = scheduler_settle(&s, p.n_batch, b.n_states, e))) return rc;
    uint64_t rest = b.kv + b.buffers + scheduler_bytes(m, p.n_ctx, s.n_running, drafts_rows(&s) + windows_logits(&s)) +
                    drafts_bytes(m, &p, &s) + scheduler_tree_bytes(p.kv_tokens / KV_PAGE_SLOTS);
    if (s.draft_model && (rc = draft_model_check(s.draft_model, model, e))) return rc;
    out->n_ctx = p.n_ctx;
    out->kv_tokens = p.kv_tokens;
    struct kv_shape shape = budget_kv_shape(m, p.kv);
    out->bytes = b.weights + b.states + rest;
    p.memory_bytes = 0;
    budget_spare_states(&shape, &p, &b);
    out->least_bytes = budget_floor(&b) + b.states + rest;
    return 0;
}
