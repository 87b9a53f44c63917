/* SPDX-License-Identifier: MIT
 *
 * placement.c: divides layers. See placement.h.
 */
#include "cluster/placement.h"

#include <assert.h>

#include "engine/core/stage.h"

#define SAME 1.25

/* Layer times; all are 1 if they hardly differ, or if one is not known. */
static void settle_times(double *ms, int n, const struct placement_host *host)
{
    double least = host[0].layer_ms, most = least;
    for (int i = 1; i < n; i++) {
        if (host[i].layer_ms < least) least = host[i].layer_ms;
        if (host[i].layer_ms > most) most = host[i].layer_ms;
    }
    for (int i = 0; i < n; i++) ms[i] = least > 0 && most > SAME * least ? host[i].layer_ms : 1;
}

/* The first and the last place of each cut, so that every stage has one layer at least, and all of its layers in its
 * file. Some may have no place: lo > hi. */
static void find_bounds(int *lo, int *hi, int n_stages, int n_layer, const struct placement_host *host)
{
    lo[0] = host[0].lo;
    for (int i = 1; i <= n_stages; i++) {
        lo[i] = lo[i - 1] + 1;
        if (i < n_stages && host[i].lo > lo[i]) lo[i] = host[i].lo;
    }
    for (int i = n_stages; i > 0; i--) {
        hi[i] = i == n_stages ? n_layer : hi[i + 1] - 1;
        if (host[i - 1].hi && host[i - 1].hi < hi[i]) hi[i] = host[i - 1].hi;
    }
    hi[0] = 0;
}

int placement_bad_cut(int n_stages, int n_layer, const struct placement_host *host)
{
    int lo[STAGE_MOST + 1], hi[STAGE_MOST + 1];
    find_bounds(lo, hi, n_stages, n_layer, host);
    if (hi[n_stages] < n_layer) return n_stages;
    for (int i = 0; i <= n_stages; i++)
        if (lo[i] > hi[i]) return i;
    return -1;
}

/* Moves cuts to where the hosts' files allow them. */
static void move_cuts(int32_t *cuts, int n_stages, int n_layer, const struct placement_host *host)
{
    int lo[STAGE_MOST + 1], hi[STAGE_MOST + 1];
    find_bounds(lo, hi, n_stages, n_layer, host);
    for (int i = 1; i < n_stages; i++) {
        int least = cuts[i - 1] + 1 > lo[i] ? cuts[i - 1] + 1 : lo[i];
        if (cuts[i] < least) cuts[i] = least;
        if (cuts[i] > hi[i]) cuts[i] = hi[i];
    }
}

bool placement_cut(int32_t *cuts, int n_stages, int n_layer, const struct placement_host *host, double head_layers)
{
    double ms[STAGE_MOST];
    int count[STAGE_MOST];
    int64_t room = 0;
    assert(n_stages >= 1 && n_stages <= STAGE_MOST && n_stages <= n_layer);
    settle_times(ms, n_stages, host);
    for (int i = 0; i < n_stages; i++) {
        count[i] = 1;
        room += host[i].most > 1 ? host[i].most : 1;
    }
    bool fits = room >= n_layer;
    /* The next layer goes where the stage is done soonest with it; without room for all, where there is most left. */
    for (int left = n_layer - n_stages; left > 0; left--) {
        int best = -1;
        double best_ms = 0;
        for (int i = 0; i < n_stages; i++) {
            double most = host[i].most > 0 ? host[i].most : 0.5;
            double after =
                fits ? ms[i] * (count[i] + 1 + (i == n_stages - 1 ? head_layers : 0)) : (count[i] + 1) / most;
            if ((fits && count[i] >= host[i].most) || (best >= 0 && after >= best_ms)) continue;
            best = i;
            best_ms = after;
        }
        assert(best >= 0);
        count[best]++;
    }
    cuts[0] = 0;
    for (int i = 0; i < n_stages; i++) cuts[i + 1] = cuts[i] + count[i];
    move_cuts(cuts, n_stages, n_layer, host);
    for (int i = 0; i < n_stages; i++) {
        int n = cuts[i + 1] - cuts[i];
        if (n > 1 && n > host[i].most) fits = false;
    }
    return fits;
}

/* How long the slowest stage takes. */
static double slowest_ms(const int32_t *cuts, int n_stages, const double *layer_ms, double head_layers)
{
    double slowest = 0;
    for (int i = 0; i < n_stages; i++) {
        double ms = layer_ms[i] * (cuts[i + 1] - cuts[i] + (i == n_stages - 1 ? head_layers : 0));
        if (ms > slowest) slowest = ms;
    }
    return slowest;
}

bool placement_is_as_good(const int32_t *others, const int32_t *cuts, int n_stages, const struct placement_host *host,
                          double head_layers)
{
    double ms[STAGE_MOST];
    for (int i = 0; i < n_stages; i++) {
        int most = host[i].most > 1 ? host[i].most : 1, n = cuts[i + 1] - cuts[i];
        if (others[i + 1] - others[i] > (most > n ? most : n)) return false;
        if (others[i] < host[i].lo || (host[i].hi && others[i + 1] > host[i].hi)) return false;
    }
    settle_times(ms, n_stages, host);
    return slowest_ms(others, n_stages, ms, head_layers) < SAME * slowest_ms(cuts, n_stages, ms, head_layers);
}

bool placement_is_for_one(const int32_t *cuts, int n_stages, const struct placement_host *host, double head_layers,
                          int one)
{
    double ms[STAGE_MOST];
    int n_layer = cuts[n_stages];
    if (n_stages < 2 || host[one].most < n_layer || !(host[one].layer_ms > 0)) return false;
    for (int i = 0; i < n_stages; i++) ms[i] = host[i].layer_ms;
    return SAME * host[one].layer_ms * (n_layer + head_layers) <= slowest_ms(cuts, n_stages, ms, head_layers);
}
