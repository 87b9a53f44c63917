/* SPDX-License-Identifier: MIT
 *
 * layer_ranges.c: reads which layers each host gets. See layer_ranges.h.
 */
#include "cli/models/layer_ranges.h"

#include <stdlib.h>
#include <string.h>

#include "cluster/placement.h"

static int divide(struct layer_ranges *r, const struct hosts *hosts, int n_layer, struct qn_error *e)
{
    int stage = 0;
    if (hosts->n_stages > n_layer)
        return error_set(e, QN_EUSAGE, "pull: %d stages for a model of %d layers", hosts->n_stages, n_layer);
    for (int i = 0; i < hosts->n; i++) {
        r->host[i].lo = stage * n_layer / hosts->n_stages;
        stage += hosts->host[i].n;
        r->host[i].hi = stage * n_layer / hosts->n_stages;
    }
    return 0;
}

/* Reads a number of a layer, and returns what follows it; NULL: there is none. */
static const char *read_layer(const char *p, int *out)
{
    char *end;
    if (*p < '0' || *p > '9') return NULL;
    long n = strtol(p, &end, 10);
    *out = n > INT32_MAX ? INT32_MAX : (int)n;
    return end;
}

/* One range, of n bytes. */
static int read_range(const char *p, int n, int n_layer, int *lo, int *hi, struct qn_error *e)
{
    int first, last;
    const char *end = read_layer(p, &first);
    last = first;
    if (end && *end == '-') end = read_layer(end + 1, &last);
    if (end != p + n)
        return error_set(e, QN_EUSAGE, "pull: '%.*s' is no range of layers, such as 0-13", n < 60 ? n : 60, p);
    if (first > last || last >= n_layer)
        return error_set(e, QN_EUSAGE, "pull: layers %d-%d, but the model has the layers 0-%d", first, last,
                         n_layer - 1);
    *lo = first;
    *hi = last + 1;
    return 0;
}

/* Whether some division has all layers in these ranges. */
static int check(const struct layer_ranges *r, const struct hosts *hosts, const char *list, int n_layer,
                 struct qn_error *e)
{
    struct placement_host stage[STAGE_MOST] = {{0}};
    int n = 0;
    for (int i = 0; i < hosts->n; i++)
        for (int k = 0; k < hosts->host[i].n; k++, n++)
            stage[n] = (struct placement_host){.lo = r->host[i].lo, .hi = r->host[i].hi};
    if (placement_bad_cut(n, n_layer, stage) < 0) return 0;
    return error_set(e, QN_EUSAGE,
                     "pull: with --layers '%.200s' the %d stages do not have all layers 0-%d, one host after another",
                     list, n, n_layer - 1);
}

int layer_ranges_read(struct layer_ranges *r, const char *list, const struct hosts *hosts, int n_layer,
                      struct qn_error *e)
{
    const char *p = list;
    *r = (struct layer_ranges){0};
    if (!strcmp(list, "even")) return divide(r, hosts, n_layer, e);
    for (int i = 0; i < hosts->n; i++) {
        int n = (int)strcspn(p, ",");
        bool is_end = i == hosts->n - 1;
        if (!n || is_end == (p[n] == ','))
            return error_set(e, QN_EUSAGE, "pull: --layers '%.200s' has not as many ranges as there are hosts (%d)",
                             list, hosts->n);
        int rc = read_range(p, n, n_layer, &r->host[i].lo, &r->host[i].hi, e);
        if (rc) return rc;
        p += n + 1;
    }
    return check(r, hosts, list, n_layer, e);
}
