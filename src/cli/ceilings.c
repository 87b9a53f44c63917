/* SPDX-License-Identifier: MIT
 *
 * ceilings.c: measuring the machine with the probes of its kernels. See ceilings.h.
 */
#include "cli/ceilings.h"

#include <string.h>

#include "base/os.h"
#include "base/region.h"

#define READ_BYTES ((size_t)512 << 20) /* well past any cache share of two cores' worth of traffic */
#define ROUNDS     5

struct job {
    const struct probe *probe;
    const uint8_t *p;
    size_t bytes;
    uint64_t n;
    _Atomic uint32_t sink;
};

static void read_job(void *arg, int ith, int nth)
{
    struct job *j = arg;
    size_t part = j->bytes / (size_t)nth / 4096 * 4096;
    j->sink ^= j->probe->read(j->p + (size_t)ith * part, part);
}

static void int8_job(void *arg, int ith, int nth)
{
    struct job *j = arg;
    (void)ith, (void)nth;
    j->sink ^= j->probe->int8_mac(j->n);
}

static void f32_job(void *arg, int ith, int nth)
{
    struct job *j = arg;
    (void)ith, (void)nth;
    j->sink ^= (uint32_t)j->probe->f32_fma(j->n);
}

/* units per second, best of the rounds */
static double best_rate(struct pool *pool, pool_fn *fn, struct job *j, double units)
{
    double best = 0;
    for (int i = 0; i < ROUNDS; i++) {
        uint64_t t = clock_ns();
        pool_run(pool, fn, j);
        double rate = units / (double)(clock_ns() - t);
        if (rate > best) best = rate;
    }
    return best;
}

/* READ_BYTES of the mapped tensors, 64-byte aligned; NULL when there are fewer. */
static const uint8_t *mapped_bytes(const struct weights *w)
{
    const struct tensor *first = weights_tensor_at(w, 0), *last = weights_tensor_at(w, weights_n_tensors(w) - 1);
    if (weights_n_parts(w) != 1 || (size_t)(last->data + last->bytes - first->data) < READ_BYTES + 64) return NULL;
    return first->data + (64 - (uintptr_t)first->data % 64) % 64;
}

int ceilings_measure(struct ceilings *c, struct pool *pool, enum cpu_level level, const struct weights *w,
                     struct qn_error *e)
{
    struct job j = {.probe = cpu_probe(level)};
    double nth = pool_n_threads(pool);
    struct region r;
    int rc = region_open(&r, READ_BYTES, e);
    if (rc) return rc;
    memset(r.data, 1, r.size);
    j.p = r.data;
    j.bytes = r.size;
    c->read_gbs = c->mapped_gbs = best_rate(pool, read_job, &j, (double)r.size);
    region_close(&r);
    if ((j.p = mapped_bytes(w))) {
        c->mapped_gbs = best_rate(pool, read_job, &j, (double)j.bytes);
    }
    j.n = level == CPU_REF ? 20000 : 400000;
    c->int8_gmacs = best_rate(pool, int8_job, &j, nth * (double)j.n * 1024);
    c->f32_gmacs = best_rate(pool, f32_job, &j, nth * (double)j.n * 256);
    return 0;
}

double ceilings_floor(const struct ceilings *c, uint64_t bytes, uint64_t macs_int8, uint64_t macs_f32)
{
    double read = (double)bytes / c->mapped_gbs,
           compute = (double)macs_int8 / c->int8_gmacs + (double)macs_f32 / c->f32_gmacs;
    return (read > compute ? read : compute) * 1e-9;
}
