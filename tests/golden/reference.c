/* SPDX-License-Identifier: MIT
 *
 * reference.c: reading the reference data. See reference.h.
 */
#include "reference.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

const char *reference_dir(void)
{
    const char *dir = getenv("QUERN_GOLDEN");
    if (dir) return dir;
    fprintf(stderr, "QUERN_GOLDEN is not set: no reference data\n");
    exit(getenv("CI") ? 1 : 77);
}

static void die(const char *what, const char *path)
{
    fprintf(stderr, "reference data: %s: %s\n", what, path);
    exit(1);
}

static void *slurp(const char *path, size_t *n)
{
    FILE *f = fopen(path, "rb");
    if (!f) die("cannot open", path);
    fseek(f, 0, SEEK_END);
    *n = (size_t)ftell(f);
    rewind(f);
    char *p = malloc(*n + 1);
    if (!p || fread(p, 1, *n, f) != *n) die("cannot read", path);
    p[*n] = 0;
    fclose(f);
    return p;
}

/* The rest of the line that begins with `key `, or NULL. */
static char *value_of(const char *text, const char *key)
{
    size_t n = strlen(key);
    for (const char *p = text; p && *p; p = strchr(p, '\n'), p = p ? p + 1 : NULL)
        if (!strncmp(p, key, n) && p[n] == ' ') return strndup(p + n + 1, strcspn(p + n + 1, "\n"));
    return NULL;
}

static int read_int(const char *text, const char *key)
{
    char *v = value_of(text, key);
    int n = v ? atoi(v) : 0;
    free(v);
    return n;
}

static int32_t *read_ints(const char *text, const char *key, int *n)
{
    char *v = value_of(text, key);
    int32_t *out = calloc(v ? strlen(v) : 1, sizeof *out);
    *n = 0;
    for (char *p = v, *save; v && (p = strtok_r(*n ? NULL : p, " ", &save));) out[(*n)++] = atoi(p);
    free(v);
    return out;
}

static float *read_floats(const char *text, const char *key, int *n)
{
    char *v = value_of(text, key);
    *n = 0;
    if (!v) return NULL;
    float *out = calloc(strlen(v), sizeof *out);
    for (char *p = v, *save; (p = strtok_r(*n ? NULL : p, " ", &save));) out[(*n)++] = strtof(p, NULL);
    free(v);
    return out;
}

void reference_load(struct reference *r, const char *golden, const char *dir, const char *name)
{
    char path[512];
    size_t n;
    snprintf(path, sizeof path, "%s/%s/%s.txt", golden, dir, name);
    char *text = slurp(path, &n), *model = value_of(text, "model");
    if (!model) die("no model", path);
    snprintf(r->model, sizeof r->model, "%s/%s/%s", golden, strcmp(dir, "real") ? "models" : "real", model);
    r->n_vocab = read_int(text, "n_vocab");
    r->n_ctx = read_int(text, "n_ctx");
    r->tokens = read_ints(text, "tokens", &r->n_tokens);
    r->positions = read_ints(text, "positions", &r->n_positions);
    r->greedy = read_ints(text, "greedy", &r->n_greedy);
    r->gaps = read_floats(text, "greedy_gaps", &r->n_gaps);
    bool ok = r->n_positions > 0 && r->n_tokens > 0 && r->n_greedy <= 256 && (!r->gaps || r->n_gaps == r->n_greedy);
    for (int i = 0; i < r->n_positions; i++) ok = ok && r->positions[i] >= 0 && r->positions[i] < r->n_tokens;
    if (!ok) die("inconsistent", path);
    snprintf(path, sizeof path, "%s/%s/%s.f32", golden, dir, name);
    r->logits = slurp(path, &n);
    if (n != (size_t)r->n_positions * (size_t)r->n_vocab * sizeof(float)) die("wrong size", path);
    free(text);
    free(model);
}

void reference_free(struct reference *r)
{
    free(r->tokens);
    free(r->positions);
    free(r->greedy);
    free(r->gaps);
    free(r->logits);
    memset(r, 0, sizeof *r);
}
