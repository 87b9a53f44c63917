/* SPDX-License-Identifier: MIT
 *
 * group_memory.c: divides a model by memory. See group_memory.h.
 */
#include "cluster/group_memory.h"

#include <stdio.h>
#include <string.h>

#include "cluster/runner.h"
#include "cluster/step_packet.h"
#include "engine/scheduler.h"
#include "model/load.h"

#define USUAL_PLACES 8 /* answers at a time, for the size of packets: the scheduler comes later */
#define MB           1048576.0

/* ---- one stage ---- */

/* The packets of a stage, and rows of logits in the last one. */
static uint64_t packet_bytes(const struct model *part, const struct qn_engine_params *p, int n_pages)
{
    int places = p->n_sessions > USUAL_PLACES ? p->n_sessions : USUAL_PLACES;
    struct step_limits l = {.n_rows = p->n_batch,
                            .n_seqs = places,
                            .n_moves = 1024,
                            .n_logits = places + PROMPT_LOGPROB_ROWS,
                            .n_pages = n_pages};
    runner_limits(&l, part, p->n_ctx);
    if (l.n_logits > l.n_rows) l.n_logits = l.n_rows;
    uint64_t step = step_packet_bytes(&l), reply = packet_reply_bytes(l.n_rows, l.n_logits, l.n_vocab), bytes = 0;
    uint64_t out = model_is_last(part) && reply > step ? reply : step;
    if (model_is_first(part)) bytes += reply; /* it passes them on */
    if (model_is_last(part)) bytes += (uint64_t)l.n_logits * (uint64_t)l.n_vocab * sizeof(float);
    return bytes + LINK_WINDOW * step + 2 * out;
}

/* Everything that does not depend on the number of states. */
static void count(struct stage_need *n, const struct model *part, const struct qn_engine_params *p, int n_windows)
{
    struct kv_shape shape = budget_kv_shape(part, p->kv);
    int n_pages = p->kv_tokens / KV_PAGE_SLOTS;
    *n = (struct stage_need){
        .weights = budget_part_weights(part),
        .kv = kv_page_bytes(&shape) * (uint64_t)n_pages + kv_window_page_bytes(&shape) * (uint64_t)n_windows,
        .buffers = forward_bytes(part, p->n_batch, p->n_sessions, p->n_threads) + packet_bytes(part, p, n_pages)};
}

static uint64_t states_of(const struct model *part, const struct qn_engine_params *p, int n_states)
{
    struct kv_shape shape = budget_kv_shape(part, p->kv);
    return n_states ? kv_states_bytes(&shape, n_states) : 0;
}

/* Its windows and states are those of the whole model. */
static void count_part(struct stage_need *n, const struct model *m, const struct qn_engine_params *p,
                       const struct budget *whole, int lo, int hi)
{
    struct model part;
    model_part(&part, m, lo, hi);
    count(n, &part, p, whole->n_windows);
    n->states = states_of(&part, p, whole->n_states);
}

void stage_need_count(struct stage_need *n, const struct model *m, const struct qn_engine_params *p, int lo, int hi)
{
    struct budget whole = {0};
    budget_count(m, p, &whole, NULL); /* cannot fail: enough states were settled */
    count_part(n, m, p, &whole, lo, hi);
}

/* Weights may be read from disk again and again, but a part of them has to be there. */
static uint64_t floor_of(const struct stage_need *n) { return n->weights < STREAM_BYTES ? n->weights : STREAM_BYTES; }

/* ---- all of them ---- */

void group_describe(struct placement_host *out, double *head_layers, const struct model *m,
                    const struct qn_engine_params *p, const struct group_host *host, int n)
{
    int n_layer = m->hp.n_layer;
    struct stage_need all;
    stage_need_count(&all, m, p, 0, n_layer);
    double head = (double)m->output->bytes, weights = ((double)all.weights - head) / n_layer;
    double layer = weights + (double)(all.kv + all.states) / n_layer;
    for (int i = 0; i < n; i++) {
        double room = (double)host[i].memory - (double)(all.buffers + STREAM_BYTES);
        if (i == n - 1) room -= head;
        out[i].layer_ms = host[i].layer_ms;
        out[i].lo = host[i].lo;
        out[i].hi = host[i].hi;
        int in_file = host[i].hi ? host[i].hi - host[i].lo : n_layer;
        out[i].most = room < layer * in_file ? (int)(room / layer) : in_file;
    }
    *head_layers = weights > 0 ? head / weights : 0;
}

static int last_in_file(const struct group_host *h, int n_layer) { return (h->hi ? h->hi : n_layer) - 1; }

static int check_files(const struct placement_host *described, const struct group_host *host, int n, int n_layer,
                       struct qn_error *e)
{
    int bad = placement_bad_cut(n, n_layer, described), i = bad < n ? bad : n - 1;
    if (bad < 0) return 0;
    if (bad == 0 || bad == n)
        return error_set(e, QN_EDATA, "hosts: stage %d on %s has a file with layers %d to %d only, and needs layer %d",
                         i, host[i].name, host[i].lo, last_in_file(&host[i], n_layer), bad ? n_layer - 1 : 0);
    return error_set(
        e, QN_EDATA,
        "hosts: the layers cannot be divided: stage %d on %s has a file with layers %d to %d only, and stage "
        "%d on %s one with %d to %d",
        i - 1, host[i - 1].name, host[i - 1].lo, last_in_file(&host[i - 1], n_layer), i, host[i].name, host[i].lo,
        last_in_file(&host[i], n_layer));
}

int group_place(int32_t *cuts, bool *fits, const int32_t *last, const struct model *m, const struct qn_engine_params *p,
                const struct group_host *host, int n, struct qn_error *e)
{
    struct qn_engine_params least = *p;
    struct placement_host described[STAGE_MOST];
    struct budget whole = {0};
    enum cpu_level level;
    double head_layers;
    int rc = budget_settle_for(&least, m, 0, &level, e);
    if (!rc) rc = budget_count(m, &least, &whole, e);
    if (rc) return rc;
    group_describe(described, &head_layers, m, &least, host, n);
    if ((rc = check_files(described, host, n, m->hp.n_layer, e))) return rc;
    *fits = placement_cut(cuts, n, m->hp.n_layer, described, head_layers);
    if (last && placement_is_as_good(last, cuts, n, described, head_layers))
        memcpy(cuts, last, sizeof *cuts * (size_t)(n + 1));
    return 0;
}

/* The tokens that all stages have room for. is_all: with everything that they have. Otherwise as many as one process
 * would take. */
static int64_t tokens_for(const struct model *m, const struct qn_engine_params *p, const int32_t *cuts,
                          const struct group_host *host, int n, const struct budget *whole, bool is_all)
{
    int64_t least = INT64_MAX;
    for (int i = 0; i < n; i++) {
        struct model part;
        struct stage_need need;
        model_part(&part, m, cuts[i], cuts[i + 1]);
        uint64_t weights = budget_part_weights(&part), others = 0;
        if (is_all) {
            count_part(&need, m, p, whole, cuts[i], cuts[i + 1]);
            others = floor_of(&need) + need.states + need.buffers;
        }
        uint64_t left = host[i].memory > others ? host[i].memory - others : 0;
        int64_t tokens =
            is_all ? budget_tokens_that_fit(&part, p, left) : budget_usual_tokens(&part, p, host[i].memory, weights);
        if (tokens < least) least = tokens;
    }
    return least;
}

/* As budget_spare_states(), for the stage that has the least room. */
static void spare_states(struct budget *whole, const struct model *m, const struct qn_engine_params *p,
                         const int32_t *cuts, const struct group_host *host, int n)
{
    if (!whole->n_states || p->state_bytes) return;
    for (int i = 0; i < n; i++) {
        struct model part;
        struct stage_need need;
        model_part(&part, m, cuts[i], cuts[i + 1]);
        struct kv_shape shape = budget_kv_shape(&part, p->kv);
        struct qn_engine_params own = *p;
        count(&need, &part, p, whole->n_windows);
        own.memory_bytes = host[i].memory;
        struct budget b = {
            .weights = need.weights, .kv = need.kv, .buffers = need.buffers, .n_states = whole->n_states};
        budget_spare_states(&shape, &own, &b);
        whole->n_states = b.n_states;
    }
}

static int refuse(const struct model *m, const struct qn_engine_params *p, const int32_t *cuts,
                  const struct group_host *host, int n, const struct budget *whole, int i, struct qn_error *e)
{
    struct stage_need need;
    char states[64] = "", advice[120] = "; no context is short enough for that";
    count_part(&need, m, p, whole, cuts[i], cuts[i + 1]);
    uint64_t floor = floor_of(&need);
    int64_t all = tokens_for(m, p, cuts, host, n, whole, true), each = all / p->n_sessions;
    if (need.states) snprintf(states, sizeof states, "recurrent states %.1f, ", (double)need.states / MB);
    if (each > 0)
        snprintf(advice, sizeof advice, "; the stages have room for %lld tokens (--kv-tokens %lld, or --ctx %lld)",
                 (long long)all, (long long)all, (long long)each);
    return error_set(
        e, QN_ENOMEM,
        "hosts: stage %d on %s, layers %d to %d, needs %.1f MB (weights %.1f, KV cache %.1f for %d tokens, "
        "%sbuffers %.1f), and has %.1f MB%s",
        i, host[i].name, cuts[i], cuts[i + 1] - 1, (double)(floor + need.kv + need.states + need.buffers) / MB,
        (double)floor / MB, (double)need.kv / MB, p->kv_tokens, states, (double)need.buffers / MB,
        (double)host[i].memory / MB, advice);
}

static int check(const struct model *m, const struct qn_engine_params *p, const int32_t *cuts,
                 const struct group_host *host, int n, const struct budget *whole, struct qn_error *e)
{
    for (int i = 0; i < n; i++) {
        struct stage_need need;
        count_part(&need, m, p, whole, cuts[i], cuts[i + 1]);
        if (floor_of(&need) + need.kv + need.states + need.buffers > host[i].memory)
            return refuse(m, p, cuts, host, n, whole, i, e);
    }
    return 0;
}

static void set_states(struct qn_engine_params *p, const struct model *m, int n)
{
    struct kv_shape shape = budget_kv_shape(m, p->kv);
    if (n) p->state_bytes = kv_states_bytes(&shape, 1) * (uint64_t)n;
}

int group_settle(struct qn_engine_params *p, const struct model *m, const int32_t *cuts, const struct group_host *host,
                 int n, struct qn_error *e)
{
    struct budget whole = {0};
    enum cpu_level level;
    struct qn_engine_params q = *p;
    int rc = budget_settle_for(&q, m, tokens_for(m, p, cuts, host, n, NULL, false), &level, e);
    if (!rc) rc = budget_count(m, &q, &whole, e);
    if (rc) return rc;
    spare_states(&whole, m, &q, cuts, host, n);
    if ((rc = check(m, &q, cuts, host, n, &whole, e))) return rc;
    set_states(&q, m, whole.n_states);
    *p = q;
    return 0;
}

int group_settle_alone(struct qn_engine_params *p, const struct model *m, struct qn_error *e)
{
    struct budget b = {0};
    enum cpu_level level;
    struct qn_engine_params q = *p;
    int rc = budget_settle(&q, m, &level, e);
    if (!rc) rc = budget_check(m, &q, &b, e);
    if (rc) return rc;
    set_states(&q, m, b.n_states);
    *p = q;
    return 0;
}

bool group_fits_alone(const struct qn_engine_params *p, const struct model *m, uint64_t memory)
{
    struct budget b = {0};
    struct qn_engine_params q = *p;
    q.memory_bytes = memory;
    return !budget_check(m, &q, &b, NULL) && b.room >= b.weights;
}
