/* SPDX-License-Identifier: MIT
 *
 * window_bench.c: runs windows over texts, by their class. See window_bench.h.
 */
#include "cli/measure/window_bench.h"

#include <jansson.h>
#include <stdio.h>
#include <string.h>

#include "cli/core/cli.h"
#include "cli/place/await.h"

/* What all texts of a class did. */
struct window_sums {
    const char *class;
    int n_texts;
    long n_tokens, n_passes, n_rows, n_drafted, n_accepted;
    struct qn_scheduler_stats stats; /* differences */
};

static int ask(qn_scheduler *s, const struct replay_text *t, const struct qn_wedlm *wedlm, struct qn_usage *usage,
               struct qn_error *e)
{
    struct await w = AWAIT_INIT;
    struct qn_request_params p;
    qn_request_params_init(&p);
    p.prompt = t->tokens;
    p.n_prompt = (size_t)t->n_prompt;
    p.max_tokens = t->n_answer;
    p.sampling.temperature = 0;
    p.wedlm = *wedlm;
    p.no_text = true;
    if (wedlm->verify != 0) {
        p.ignore_eog = true;
        p.replay = t->tokens + t->n_prompt;
        p.n_replay = (size_t)t->n_answer;
    }
    int rc = await_one(&w, s, &p, e);
    *usage = w.usage;
    return rc;
}

static void add(struct window_sums *c, const struct qn_usage *u, const struct qn_scheduler_stats *from,
                const struct qn_scheduler_stats *to)
{
    c->n_texts++;
    c->n_tokens += u->n_generated;
    c->n_passes += u->n_passes;
    c->n_rows += u->n_pass_rows;
    c->n_drafted += u->n_drafted;
    c->n_accepted += u->n_accepted;
    for (int i = 0; i < QN_WEDLM_CLASSES; i++)
        c->stats.n_wedlm_entropy[i] += to->n_wedlm_entropy[i] - from->n_wedlm_entropy[i];
    c->stats.wedlm_gather_s += to->wedlm_gather_s - from->wedlm_gather_s;
    c->stats.wedlm_pass_s += to->wedlm_pass_s - from->wedlm_pass_s;
    c->stats.wedlm_head_s += to->wedlm_head_s - from->wedlm_head_s;
    c->stats.wedlm_select_s += to->wedlm_select_s - from->wedlm_select_s;
    c->stats.wedlm_commit_s += to->wedlm_commit_s - from->wedlm_commit_s;
}

static int run_class(qn_scheduler *s, const struct replay_texts *texts, const struct replay_params *p,
                     struct window_sums *c, struct qn_error *e)
{
    struct qn_scheduler_stats from = {.size = sizeof from}, to = from;
    struct qn_usage usage;
    int rc = 0;
    for (int i = 0; i < texts->n && !rc && c->n_texts < p->n_rounds; i++) {
        if (strcmp(texts->v[i].class, c->class)) continue;
        qn_scheduler_stats(s, &from);
        if ((rc = ask(s, &texts->v[i], &p->wedlm, &usage, e))) break;
        qn_scheduler_stats(s, &to);
        add(c, &usage, &from, &to);
    }
    return rc;
}

static double per(double sum, double n) { return n > 0 ? sum / n : 0; }

static json_t *json_of(const struct window_sums *c)
{
    const struct qn_scheduler_stats *s = &c->stats;
    json_t *entropies = json_array();
    for (int i = 0; i < QN_WEDLM_CLASSES; i++)
        json_array_append_new(entropies, json_integer((json_int_t)s->n_wedlm_entropy[i]));
    return json_pack("{s:s, s:i, s:I, s:I, s:I, s:I, s:I, s:o, s:f, s:f, s:f, s:f, s:f}", "class", c->class, "texts",
                     c->n_texts, "tokens", (json_int_t)c->n_tokens, "passes", (json_int_t)c->n_passes, "rows",
                     (json_int_t)c->n_rows, "drafted", (json_int_t)c->n_drafted, "accepted", (json_int_t)c->n_accepted,
                     "entropies", entropies, "gather_s", s->wedlm_gather_s, "pass_s", s->wedlm_pass_s, "head_s",
                     s->wedlm_head_s, "select_s", s->wedlm_select_s, "commit_s", s->wedlm_commit_s);
}

static void print_class(const struct window_sums *c)
{
    const struct qn_scheduler_stats *s = &c->stats;
    double n_masks = 0, ms = 1e3 / (c->n_passes > 0 ? (double)c->n_passes : 1);
    for (int i = 0; i < QN_WEDLM_CLASSES; i++) n_masks += (double)s->n_wedlm_entropy[i];
    printf("%-11.11s %6ld tokens  %6.2f a pass  %6.3f a row\n", *c->class ? c->class : "all", c->n_tokens,
           per((double)c->n_tokens, (double)c->n_passes), per((double)c->n_tokens, (double)c->n_rows));
    printf("  entropies");
    for (int i = 0; i < QN_WEDLM_CLASSES; i++) printf(" %3.0f%%", 100 * per((double)s->n_wedlm_entropy[i], n_masks));
    printf("\n  ms        rows %.2f, pass %.2f, head %.2f, select %.2f, commit %.2f\n", ms * s->wedlm_gather_s,
           ms * s->wedlm_pass_s, ms * s->wedlm_head_s, ms * s->wedlm_select_s, ms * s->wedlm_commit_s);
}

static void print(const struct replay_params *p, const char *name, const struct window_sums *c, int n, bool json)
{
    bool is_verified = p->wedlm.verify != 0;
    if (json) {
        json_t *all = json_array();
        for (int i = 0; i < n; i++) json_array_append_new(all, json_of(&c[i]));
        cli_print_json(json_pack("{s:s, s:b, s:o}", "model", name, "verified", is_verified, "windows", all),
                       JSON_INDENT(2));
        return;
    }
    printf("model      %s, %s windows; a pass: ms for each part; entropies of masks:\n", name,
           is_verified ? "verified" : "unverified");
    printf("           below 0.01, 0.03, 0.1, 0.2, 0.4, 0.8, 1.5 nats, and above\n");
    for (int i = 0; i < n; i++) print_class(&c[i]);
}

/* The classes in the order of their first texts. Returns how many there are. */
static int list_classes(const struct replay_texts *texts, struct window_sums *c)
{
    int n = 0;
    for (int i = 0; i < texts->n; i++) {
        int k = 0;
        while (k < n && strcmp(c[k].class, texts->v[i].class)) k++;
        if (k == n) c[n++].class = texts->v[i].class;
    }
    return n;
}

int window_bench(const struct replay_params *p, qn_model *m, const struct qn_engine_params *engine, const char *name,
                 bool json)
{
    struct replay_texts texts = {0};
    struct qn_engine_params q = *engine;
    struct qn_scheduler_params sp;
    struct qn_error e = {0};
    qn_engine *g = NULL;
    qn_scheduler *s = NULL;
    int status = replay_load(&texts, p->path, qn_model_n_vocab(m)), rc = status;
    struct window_sums *c = cli_alloc((size_t)texts.n + 1, sizeof *c);
    int n = status ? 0 : list_classes(&texts, c);
    q.n_ctx = texts.longest + 1;
    if (q.n_ctx < 128) q.n_ctx = 128; /* room for the rows of a step */
    qn_scheduler_params_init(&sp);
    sp.n_running = 1;
    sp.draft = QN_DRAFT_WEDLM;
    if (!rc) rc = qn_engine_new(&g, m, &q, &e);
    if (!rc) rc = qn_scheduler_new(&s, g, &sp, &e);
    for (int i = 0; i < n && !rc; i++) rc = run_class(s, &texts, p, &c[i], &e);
    if (!rc) print(p, name, c, n, json);
    qn_scheduler_free(s);
    qn_engine_free(g);
    cli_free(c);
    replay_free(&texts);
    if (status) return status;
    return rc ? cli_fail(&e) : 0;
}
