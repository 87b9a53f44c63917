/* SPDX-License-Identifier: MIT
 *
 * ceilings_kept.c: the file of ceilings in the cache folder. See ceilings_kept.h.
 *
 * The file is for one processor, instruction set and number of threads. A file for others, an old file or a broken one
 * is ignored and replaced.
 */
#include "cli/measure/ceilings_kept.h"

#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/json/json_text.h"
#include "base/mem.h"
#include "base/os.h"
#include "base/out_file.h"
#include "cli/core/home.h"
#include "cli/core/progress.h"

#define FILE_NAME  "ceilings.json"
#define FILE_BYTES ((size_t)64 << 10)
#define MOST_S     (30.0 * 86400)
#define TIMES      3         /* of measuring */
#define PAUSE_NS   300000000 /* between them */

/* The machine that the ceilings are for. */
struct machine {
    char cpu[128];
    enum cpu_level level;
    int n_threads;
};

static void this_machine(struct machine *m)
{
    *m = (struct machine){.level = cpu_best(), .n_threads = os_n_cpus()};
    char line[512];
    FILE *f = fopen("/proc/cpuinfo", "re");
    while (f && fgets(line, sizeof line, f)) {
        char *colon = strchr(line, ':');
        if (strncmp(line, "model name", 10) || !colon) continue;
        colon[strcspn(colon, "\n")] = 0;
        error_clean(m->cpu, sizeof m->cpu, colon + 1 + strspn(colon + 1, " \t"));
        break;
    }
    if (f) fclose(f);
}

/* ---- the file ---- */

static const struct {
    const char *name;
    size_t at; /* offset of a double in struct ceilings */
} rates[] = {
    {"read_gbs", offsetof(struct ceilings, read_gbs)},
    {"int8_gmacs", offsetof(struct ceilings, int8_gmacs)},
    {"f32_gmacs", offsetof(struct ceilings, f32_gmacs)},
};
#define N_RATES (sizeof rates / sizeof *rates)

static bool is_for(const json_t *j, const struct machine *m)
{
    const char *cpu = json_string_value(json_object_get(j, "cpu")),
               *level = json_string_value(json_object_get(j, "level"));
    double age_s = (double)time(NULL) - json_number_value(json_object_get(j, "measured"));
    return cpu && !strcmp(cpu, m->cpu) && level && !strcmp(level, cpu_level_name(m->level)) &&
           json_integer_value(json_object_get(j, "threads")) == m->n_threads && age_s >= 0 && age_s < MOST_S;
}

static bool read_kept(struct ceilings *c, const char *path, const struct machine *m, double *measured)
{
    struct buf b = {0};
    struct ceilings new = {0};
    json_t *j = NULL;
    if (!os_read_file(&b, path, FILE_BYTES, NULL)) j = json_loadb((const char *)b.data, b.len, 0, NULL);
    bool good = j && is_for(j, m);
    for (size_t i = 0; i < N_RATES && good; i++) {
        double v = json_number_value(json_object_get(j, rates[i].name));
        good = isfinite(v) && v > 0;
        memcpy((char *)&new + rates[i].at, &v, sizeof v);
    }
    new.mapped_gbs = new.read_gbs;
    if (good) *c = new;
    if (good && measured) *measured = json_number_value(json_object_get(j, "measured"));
    json_decref(j);
    buf_deinit(&b);
    return good;
}

static json_t *to_json(const struct ceilings *c, const struct machine *m, double measured)
{
    json_t *j = json_pack("{s:s, s:s, s:i, s:I}", "cpu", m->cpu, "level", cpu_level_name(m->level), "threads",
                          m->n_threads, "measured", (json_int_t)measured);
    for (size_t i = 0; i < N_RATES && j; i++) {
        double v;
        memcpy(&v, (const char *)c + rates[i].at, sizeof v);
        json_object_set_new(j, rates[i].name, json_real(v));
    }
    return j;
}

/* Writes the file. If that fails, the next run measures again. */
static void keep(const struct ceilings *c, const char *path, const struct machine *m, double measured)
{
    struct out_file f = {0};
    json_t *j = to_json(c, m, measured);
    struct buf text = {0};
    if (!json_text_add(&text, j, JSON_INDENT(1) | JSON_REAL_PRECISION(6), "rates", NULL) &&
        !home_make_above(path, NULL) && !out_file_open(&f, path, NULL) &&
        !out_file_write(&f, text.data, text.len, NULL) && !out_file_write(&f, "\n", 1, NULL))
        out_file_commit(&f, NULL);
    out_file_abort(&f);
    buf_deinit(&text);
    json_decref(j);
}

/* ---- both ---- */

static int measure(struct ceilings *c, const struct machine *m, struct qn_error *e)
{
    struct pool *pool;
    int rc = pool_new(&pool, m->n_threads, m->n_threads > 1, e);
    if (rc) return rc;
    progress_note("measuring this machine");
    *c = (struct ceilings){0};
    for (int i = 0; i < TIMES && !rc; i++) { /* the best counts: other programs are busy for a moment */
        if (i) nanosleep(&(struct timespec){.tv_nsec = PAUSE_NS}, NULL);
        rc = ceilings_measure(c, pool, m->level, NULL, e);
    }
    progress_note("%s", "");
    pool_free(pool);
    return rc;
}

int ceilings_kept(struct ceilings *c, bool refresh, struct qn_error *e)
{
    struct machine m;
    char *path = NULL;
    int rc = 0;
    this_machine(&m);
    if (home_path(&path, HOME_CACHE, FILE_NAME, NULL)) path = NULL;
    if (refresh || !path || !read_kept(c, path, &m, NULL)) {
        rc = measure(c, &m, e);
        if (!rc && path) keep(c, path, &m, (double)time(NULL));
    }
    mem_free(path);
    return rc;
}

static bool is_faster(double *kept, double now)
{
    if (now <= *kept) return false;
    *kept = now;
    return true;
}

void ceilings_improve(const struct ceilings *c, int n_threads, enum cpu_level level)
{
    struct machine m;
    struct ceilings kept;
    char *path = NULL;
    double measured;
    this_machine(&m);
    if (n_threads != m.n_threads || level != m.level || home_path(&path, HOME_CACHE, FILE_NAME, NULL)) return;
    if (read_kept(&kept, path, &m, &measured)) {
        bool read = is_faster(&kept.read_gbs, c->read_gbs), int8 = is_faster(&kept.int8_gmacs, c->int8_gmacs);
        if (is_faster(&kept.f32_gmacs, c->f32_gmacs) || int8 || read) keep(&kept, path, &m, measured);
    }
    mem_free(path);
}
