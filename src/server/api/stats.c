/* SPDX-License-Identifier: MIT
 *
 * stats.c: histograms of times and token counts of requests, as Prometheus reads them.
 *
 * Bounds are powers of two: times from one millisecond (2^15 ms is half a minute), tokens from one.
 */
#include "server/api/api_impl.h"

static const struct {
    const char *name, *help;
    double first; /* the lowest bound */
} about[N_HIST] = {
    [HIST_QUEUE] = {"quern_queue_seconds", "from submission to admission", 0.001},
    [HIST_FIRST_TOKEN] = {"quern_time_to_first_token_seconds", "from submission to the first token", 0.004},
    [HIST_NEXT_TOKEN] = {"quern_inter_token_seconds", "between two tokens of an answer", 0.0005},
    [HIST_PROMPT] = {"quern_request_prompt_tokens", "tokens of a request's prompt", 1},
    [HIST_GENERATED] = {"quern_request_generated_tokens", "tokens of a request's answers", 1},
};

void hists_add(struct hists *h, enum hist which, double value)
{
    int i = 0;
    for (double bound = about[which].first; i < HIST_BUCKETS && value > bound; bound *= 2) i++;
    pthread_mutex_lock(&h->lock);
    h->hist[which].n[i]++;
    h->hist[which].sum += value;
    pthread_mutex_unlock(&h->lock);
}

int hists_write_head(enum hist which, struct buf *b)
{
    const char *name = about[which].name;
    return buf_printf(b, NULL, "# HELP %s %s\n# TYPE %s histogram\n", name, about[which].help, name);
}

int hists_write(struct hists *h, enum hist which, const char *model, struct buf *b)
{
    unsigned long long n = 0;
    double bound = about[which].first;
    const char *name = about[which].name;
    int bad = 0;
    pthread_mutex_lock(&h->lock);
    for (int i = 0; i < HIST_BUCKETS; i++, bound *= 2)
        bad |= buf_printf(b, NULL, "%s_bucket{model=\"%s\",le=\"%g\"} %llu\n", name, model, bound,
                          n += h->hist[which].n[i]);
    n += h->hist[which].n[HIST_BUCKETS];
    bad |= buf_printf(b, NULL, "%s_bucket{model=\"%s\",le=\"+Inf\"} %llu\n", name, model, n);
    bad |= buf_printf(b, NULL, "%s_sum{model=\"%s\"} %.9g\n%s_count{model=\"%s\"} %llu\n", name, model,
                      h->hist[which].sum, name, model, n);
    pthread_mutex_unlock(&h->lock);
    return bad;
}
