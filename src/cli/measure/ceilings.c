/* SPDX-License-Identifier: MIT
 *
 * ceilings.c: measures the machine with the probes of its kernels. See ceilings.h.
 *
 * A ceiling that a program exceeds is wrong. So a round takes 10 ms, next to which waking the threads does not count,
 * and the best round is taken.
 */
#include "cli/measure/ceilings.h"

#include <string.h>

#include "base/os.h"
#include "base/region.h"

#define READ_BYTES ((size_t)512 << 20) /* far more than the caches hold */
#define FILE_BYTES ((size_t)128 << 20) /* a smaller file says nothing about memory */
#define ROUNDS     5
#define ROUND_NS   10e6

struct probe_job {
    const struct probe *probe;
    const uint8_t *p;
    size_t bytes;
    uint64_t n;
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

static double best_ns(struct pool *pool, pool_fn *fn, struct probe_job *j)
{
    double best = run_ns(pool, fn, j);
    for (int i = 1; i < ROUNDS; i++) {
        double ns = run_ns(pool, fn, j);
        if (ns < best) best = ns;
    }
    return best;
}

/* Multiply-adds per ns. For each of j->n, a thread does `unit` of them. */
static double compute_rate(struct pool *pool, pool_fn *fn, struct probe_job *j, double unit)
{
    j->n = 1000;
    while (run_ns(pool, fn, j) < ROUND_NS) j->n *= 2;
    return unit * (double)j->n * pool_n_threads(pool) / best_ns(pool, fn, j);
}

/* Sets j to at most READ_BYTES of the mapped tensors, aligned to 64 bytes; to NULL if there are too few. */
static void mapped_bytes(const struct weights *w, struct probe_job *j)
{
    j->p = NULL;
    if (!w || weights_n_parts(w) != 1) return;
    const struct tensor *first = NULL, *last = NULL;
    for (size_t i = 0, part; i < weights_n_tensors(w); i++) {
        weights_tensor_place(w, i, &part);
        if (part) continue; /* made in memory: not in a file */
        last = weights_tensor_at(w, i);
        if (!first) first = last;
    }
    if (!first) return;
    size_t skip = (64 - (uintptr_t)first->data % 64) % 64, size = (size_t)(last->data + last->bytes - first->data);
    if (size < FILE_BYTES) return;
    j->p = first->data + skip;
    j->bytes = size - skip < READ_BYTES ? size - skip : READ_BYTES;
}

int ceilings_read(struct ceilings *c, struct pool *pool, enum cpu_level level, const struct weights *w,
                  struct qn_error *e)
{
    struct probe_job j = {.probe = cpu_probe(level)};
    struct region r;
    int rc = region_open(&r, READ_BYTES, 0, "a measurement", e);
    if (rc) return rc;
    memset(r.data, 1, r.size);
    j.p = r.data;
    j.bytes = r.size;
    c->read_gbs = c->mapped_gbs = (double)j.bytes / best_ns(pool, read_job, &j);
    region_close(&r);
    mapped_bytes(w, &j);
    c->mapped_bytes = j.p ? j.bytes : 0;
    if (j.p) c->mapped_gbs = (double)j.bytes / best_ns(pool, read_job, &j);
    return 0;
}

void ceilings_compute(struct ceilings *c, struct pool *pool, enum cpu_level level)
{
    struct probe_job j = {.probe = cpu_probe(level)};
    c->int8_gmacs = compute_rate(pool, int8_job, &j, 1024);
    c->f32_gmacs = compute_rate(pool, f32_job, &j, 256);
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
