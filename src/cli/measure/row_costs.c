/* SPDX-License-Identifier: MIT
 *
 * row_costs.c: see row_costs.h.
 */
#include "cli/measure/row_costs.h"

#include <stdio.h>

#include "cli/measure/account.h"

/* A pass brings 1 + p + p^2 + ... tokens. */
double row_break_even(int rows, double times)
{
    double lo = 0, hi = 1;
    if (times > rows) return 2;
    for (int step = 0; step < 40; step++) {
        double p = (lo + hi) / 2, tokens = 0;
        for (int i = rows; i > 0; i--) tokens = tokens * p + 1;
        *(tokens < times ? &lo : &hi) = p;
    }
    return hi;
}

void row_print_break_even(int rows, double times)
{
    double least = row_break_even(rows, times);
    if (least > 1)
        printf("; %d guess%s never pay%s", rows - 1, rows == 2 ? "" : "es", rows == 2 ? "s" : "");
    else
        printf("; %d guess%s pay%s from %.0f%% right", rows - 1, rows == 2 ? "" : "es", rows == 2 ? "s" : "",
               100 * least);
}

int row_costs_count(struct row_costs *r, const struct qn_engine *g, const struct ceilings *c, int depth,
                    struct qn_error *e)
{
    static const int rows[ROW_COSTS] = {1, 2, 3, 4, 6, 8, 12, 16, 24, 32};
    for (r->n = 0; r->n < ROW_COSTS && rows[r->n] <= g->n_batch && depth + rows[r->n] <= g->n_ctx; r->n++) {
        struct account a;
        int n = rows[r->n], rc = account_cost(&a, g->model, kv_pool_shape(g->kv)->type, n, depth, n, e);
        if (rc) return rc;
        r->v[r->n] = (struct row_cost){.rows = n, .floor_s = ceilings_floor(c, a.bytes, a.macs_int8, a.macs_f32)};
        account_deinit(&a);
    }
    return 0;
}

int row_costs_measure(struct row_costs *r, struct qn_engine *g, int depth, int reps, struct qn_error *e)
{
    for (int i = 0; i < r->n; i++) {
        uint64_t ns;
        int rc = account_time(g, r->v[i].rows, depth, reps, &ns, e);
        if (rc) return rc;
        r->v[i].s = (double)ns * 1e-9;
    }
    return 0;
}

static double times_one(const struct row_costs *r, int i) { return r->v[i].s / r->v[0].s; }

void row_costs_print(const struct row_costs *r)
{
    printf("\npasses of several rows, as for streams and for guessed tokens\n%4s %9s%s\n", "rows", "floor ms",
           r->n && r->v[0].s > 0 ? "        ms" : "");
    for (int i = 0; i < r->n; i++) {
        printf("%4d %9.3f", r->v[i].rows, 1e3 * r->v[i].floor_s);
        if (r->v[i].s > 0) printf(" %9.3f", 1e3 * r->v[i].s);
        if (i && r->v[i].s > 0) {
            printf("  %.2f times one row", times_one(r, i));
            row_print_break_even(r->v[i].rows, times_one(r, i));
        }
        putchar('\n');
    }
}

json_t *row_costs_json(const struct row_costs *r)
{
    json_t *all = json_array();
    for (int i = 0; i < r->n; i++) {
        json_t *j = json_pack("{s:i,s:f}", "rows", r->v[i].rows, "floor_ms", 1e3 * r->v[i].floor_s);
        double least = row_break_even(r->v[i].rows, r->v[i].s > 0 ? times_one(r, i) : 1);
        if (r->v[i].s > 0) json_object_set_new(j, "ms", json_real(1e3 * r->v[i].s));
        if (i && r->v[i].s > 0) json_object_set_new(j, "break_even", least > 1 ? json_null() : json_real(least));
        json_array_append_new(all, j);
    }
    return all;
}
