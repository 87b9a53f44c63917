/* SPDX-License-Identifier: MIT
 *
 * tally.c: what a request has used, for the histograms and for the log.
 *
 * Every request that a scheduler has done is counted here, so that the counts of the histograms are those of
 * quern_requests_total. Only the time to the first token has fewer: some requests end before it, or want none.
 */
#include "server/api/api_impl.h"

void tally_done(struct api *a, const struct served *m, const struct qn_usage *u, const struct qn_timings *t)
{
    struct hists *h = &a->hists[m->index];
    hists_add(h, HIST_QUEUE, t->queue_ms * 1e-3);
    hists_add(h, HIST_PROMPT, u->n_prompt);
    hists_add(h, HIST_GENERATED, u->n_generated);
    if (u->n_generated > 0) hists_add(h, HIST_FIRST_TOKEN, (t->queue_ms + t->prefill_ms) * 1e-3);
}

void tally_log(struct http_request *r, const struct served *m, const struct qn_usage *u)
{
    if (u)
        http_note(r, "model '%s' prompt %d cached %d generated %d", m->name, u->n_prompt, u->n_cached, u->n_generated);
    else
        http_note(r, "model '%s'", m->name);
}
