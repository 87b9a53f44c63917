/* SPDX-License-Identifier: MIT
 *
 * ceilings.c: measures the machine with the probes of its kernels. See ceilings.h.
 *
 * A ceiling that a program exceeds is wrong, and other programs take the processors for milliseconds at a time. So a
 * round takes about a millisecond, and there are several passes of many rounds. The ceiling is made of the best time of
 * each round: some passes leave it alone. A round is long enough that waking the threads does not count.
 */
#include "cli/measure/ceilings.h"

#include <math.h> /* INFINITY; nothing is called */
#include <stdio.h>
#include <string.h>

#include "base/os.h"
#include "base/region.h"

#define READ_BYTES   ((size_t)512 << 20) /* far more than the caches hold */
#define FILE_BYTES   ((size_t)128 << 20) /* a smaller file says nothing about memory */
#define WINDOW_BYTES ((size_t)32 << 20)  /* that a round reads */
#define PASSES       5
#define ROUNDS       16 /* of a pass, at most */
#define ROUND_NS     1e6

struct probe_job {
    const struct probe *probe;
    const uint8_t *p; /* what a round reads */
    size_t bytes;
    uint64_t n; /* units that a round computes */
    _Atomic uint32_t sink;
};

static void read_job(void *arg, int ith, int nth)
{
    struct probe_job *j = arg;
    size_t part = j->bytes / (size_t)nth / 4096 * 4096;
    j->sink ^= j->probe->read(j->p + (size_t)ith * part, part);
}

static void int8_job(void *arg, int ith, int nth)
{
    struct probe_job *j = arg;
    (void)ith, (void)nth;
    j->sink ^= j->probe->int8_mac(j->n);
}

static void f32_job(void *arg, int ith, int nth)
{
    struct probe_job *j = arg;
    (void)ith, (void)nth;
    j->sink ^= (uint32_t)j->probe->f32_fma(j->n);
}

static double run_ns(struct pool *pool, pool_fn *fn, struct probe_job *j)
{
    uint64_t t = clock_ns();
    pool_run(pool, fn, j);
    return (double)(clock_ns() - t);
}

static void note(double *best, double *low, double fastest, double slowest)
{
    if (fastest > *best) *best = fastest;
    if (*low == 0 || slowest < *low) *low = slowest;
}

/* Notes the rate of computing in multiply-adds per ns. For each of j->n, a thread does `unit` of them. */
static void compute_rate(struct pool *pool, pool_fn *fn, struct probe_job *j, double unit, double *best, double *low)
{
    double least = INFINITY, longest = 0;
    j->n = 1000;
    while (run_ns(pool, fn, j) < ROUND_NS) j->n *= 2;
    for (int pass = 0; pass < PASSES; pass++) {
        double sum = 0;
        for (int i = 0; i < ROUNDS; i++) {
            double ns = run_ns(pool, fn, j);
            sum += ns;
            if (ns < least) least = ns;
        }
        if (sum > longest) longest = sum;
    }
    double macs = unit * (double)j->n * pool_n_threads(pool);
    note(best, low, macs / least, macs * ROUNDS / longest);
}

/* Notes the rate of reading `bytes` at p, at most READ_BYTES, in bytes per ns. Parts of a mapped file can be faster
 * than others, so each part counts with its own best time. */
static void read_rate(struct pool *pool, struct probe_job *j, const uint8_t *p, size_t bytes, double *best, double *low)
{
    int n = (int)(bytes / WINDOW_BYTES);
    double least[ROUNDS], longest = 0, total = 0;
    j->bytes = WINDOW_BYTES;
    for (int pass = 0; pass < PASSES; pass++) {
        double sum = 0;
        for (int i = 0; i < n; i++) {
            j->p = p + (size_t)i * WINDOW_BYTES;
            double ns = run_ns(pool, read_job, j);
            sum += ns;
            if (pass == 0 || ns < least[i]) least[i] = ns;
        }
        if (sum > longest) longest = sum;
    }
    for (int i = 0; i < n; i++) total += least[i];
    double all = (double)n * (double)WINDOW_BYTES;
    note(best, low, all / total, all / longest);
}

/* Returns at most READ_BYTES of the mapped tensors, aligned to 64 bytes; NULL if there are too few. */
static const uint8_t *mapped_bytes(const struct weights *w, size_t *bytes)
{
    if (!w || weights_n_parts(w) != 1) return NULL;
    const struct tensor *first = NULL, *last = NULL;
    for (size_t i = 0, part; i < weights_n_tensors(w); i++) {
        weights_tensor_place(w, i, &part);
        if (part) continue; /* made in memory: not in a file */
        last = weights_tensor_at(w, i);
        if (!first) first = last;
    }
    if (!first) return NULL;
    size_t skip = (64 - (uintptr_t)first->data % 64) % 64, size = (size_t)(last->data + last->bytes - first->data);
    if (size < FILE_BYTES) return NULL;
    *bytes = size - skip < READ_BYTES ? size - skip : READ_BYTES;
    return first->data + skip;
}

int ceilings_read(struct ceilings *c, struct pool *pool, enum cpu_level level, const struct weights *w,
                  struct qn_error *e)
{
    struct probe_job j = {.probe = cpu_probe(level)};
    struct region r;
    size_t bytes = 0;
    const uint8_t *file = mapped_bytes(w, &bytes);
    int rc = region_open(&r, READ_BYTES, 0, "a measurement", e);
    if (rc) return rc;
    memset(r.data, 1, r.size);
    read_rate(pool, &j, r.data, READ_BYTES, &c->read_gbs, &c->low.read_gbs);
    region_close(&r);
    c->mapped_bytes = bytes;
    if (file) {
        read_rate(pool, &j, file, bytes, &c->mapped_gbs, &c->low.mapped_gbs);
    } else {
        c->mapped_gbs = c->read_gbs;
        c->low.mapped_gbs = c->low.read_gbs;
    }
    return 0;
}

void ceilings_compute(struct ceilings *c, struct pool *pool, enum cpu_level level)
{
    struct probe_job j = {.probe = cpu_probe(level)};
    compute_rate(pool, int8_job, &j, 1024, &c->int8_gmacs, &c->low.int8_gmacs);
    compute_rate(pool, f32_job, &j, 256, &c->f32_gmacs, &c->low.f32_gmacs);
}

int ceilings_measure(struct ceilings *c, struct pool *pool, enum cpu_level level, const struct weights *w,
                     struct qn_error *e)
{
    ceilings_compute(c, pool, level);
    return ceilings_read(c, pool, level, w, e);
}

double ceilings_floor(const struct ceilings *c, uint64_t bytes, uint64_t macs_int8, uint64_t macs_f32)
{
    double read = (double)bytes / c->mapped_gbs,
           compute = (double)macs_int8 / c->int8_gmacs + (double)macs_f32 / c->f32_gmacs;
    return (read > compute ? read : compute) * 1e-9;
}

static const struct {
    const char *what, *key;
    size_t best, low; /* offsets in struct ceilings */
} shown[] = {
#define RATE(name) #name, offsetof(struct ceilings, name), offsetof(struct ceilings, low.name)
    {"GB/s read", RATE(read_gbs)},
    {"GB/s of the mapped file", RATE(mapped_gbs)},
    {"GMAC/s int8", RATE(int8_gmacs)},
    {"GFMA/s f32", RATE(f32_gmacs)},
#undef RATE
};

static double rate_at(const struct ceilings *c, size_t offset) { return *(const double *)((const char *)c + offset); }

void ceilings_print(const struct ceilings *c)
{
    for (size_t i = 0; i < sizeof shown / sizeof *shown; i++) {
        const char *before = i == 0 ? "ceilings   " : i == 2 ? ",\n           " : ", ";
        printf("%s%.4g %s (%.4g)", before, rate_at(c, shown[i].best), shown[i].what, rate_at(c, shown[i].low));
    }
    puts("; (slowest pass)");
}

json_t *ceilings_json(const struct ceilings *c)
{
    json_t *j = json_object(), *low = json_object();
    for (size_t i = 0; i < sizeof shown / sizeof *shown; i++) {
        json_object_set_new(j, shown[i].key, json_real(rate_at(c, shown[i].best)));
        json_object_set_new(low, shown[i].key, json_real(rate_at(c, shown[i].low)));
    }
    json_object_set_new(j, "low", low);
    return j;
}
