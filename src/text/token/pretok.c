/* SPDX-License-Identifier: MIT
 *
 * pretok.c: runs the patterns of pretok_table.c over text, with PCRE2.
 *
 * The patterns are compiled once, to machine code where the system allows executable memory. In a hardened service it
 * may not; then PCRE2's interpreter gives the same matches, about four times slower. Compiled code is shared by all
 * threads. A call makes its own match data and, when a pattern asks for it, its own stack.
 *
 * Bytes that are not UTF-8 are matched as U+FFFD in a copy of the text, and the cuts are then carried back to the
 * original. Match limits are set in proportion to the text. No pattern of the table reaches them. If one did, the
 * result would be an error, never other pieces.
 */
#define PCRE2_CODE_UNIT_WIDTH 8
#include "text/token/pretok.h"

#include <assert.h>
#include <pcre2.h>
#include <stdio.h>
#include <string.h>

#include "base/buf.h"
#include "base/mem.h"
#include "base/nearest.h"
#include "text/token/pretok_table.h"
#include "text/token/unicode.h"

struct pretok {
    const struct pretok_entry *entry;
    pcre2_general_context *gctx;
    pcre2_code *code[PRETOK_MAX_PATTERNS];
    int n_codes;
    bool jit; /* every pattern was compiled to machine code */
};

/* What one call of pretok_split() needs of its own. */
struct matcher {
    pcre2_match_data *md;
    pcre2_match_context *mctx;
    pcre2_jit_stack *stack; /* NULL while the 32 KiB suffice that PCRE2 uses of the thread's stack */
};

static void *pcre_alloc(size_t bytes, void *arg)
{
    (void)arg;
    return mem_alloc(bytes);
}

static void pcre_free(void *p, void *arg)
{
    (void)arg;
    mem_free(p);
}

/* ---- the lists of ends ---- */

void pretok_ends_deinit(struct pretok_ends *ends)
{
    mem_free(ends->end);
    *ends = (struct pretok_ends){0};
}

static int ends_push(struct pretok_ends *ends, size_t end, struct qn_error *e)
{
    if (ends->n == ends->cap) {
        size_t cap = ends->cap ? ends->cap * 2 : 64;
        uint32_t *p = mem_realloc(ends->end, cap * sizeof *p);
        if (!p) return error_nomem(e, "pre-tokeniser", cap * sizeof *p);
        ends->end = p;
        ends->cap = cap;
    }
    ends->end[ends->n++] = (uint32_t)end;
    return 0;
}

/* ---- compiling ---- */

const char *pretok_name(size_t i) { return i < pretok_table_n ? pretok_table[i].name : NULL; }

unsigned pretok_flags(const struct pretok *p) { return p->entry->flags; }

static const struct pretok_entry *find_entry(const char *name, size_t n)
{
    for (size_t i = 0; i < pretok_table_n; i++)
        if (strlen(pretok_table[i].name) == n && memcmp(pretok_table[i].name, name, n) == 0) return &pretok_table[i];
    return NULL;
}

bool pretok_is_known(const char *name, size_t name_bytes) { return find_entry(name, name_bytes) != NULL; }

/* Writes " (near it: a, b)": at most three names that are similar to an unknown one, the nearest first. Writes nothing
 * when there is none. */
static void say_near(const char *word, char *out, size_t bytes)
{
    const char *best[3] = {0};
    size_t distance[3], n = strlen(word), at = 0;
    out[0] = 0;
    for (size_t i = 0; i < pretok_table_n; i++) {
        const char *name = pretok_table[i].name;
        size_t longer = strlen(name) > n ? strlen(name) : n, d = nearest_distance(word, name);
        if (d > longer / 2) continue;
        for (int k = 0; k < 3; k++) {
            if (best[k] && distance[k] <= d) continue;
            for (int j = 2; j > k; j--) {
                best[j] = best[j - 1];
                distance[j] = distance[j - 1];
            }
            best[k] = name;
            distance[k] = d;
            break;
        }
    }
    for (int k = 0; k < 3 && best[k]; k++)
        at += (size_t)snprintf(out + at, bytes - at, "%s%s", k ? ", " : " (near it: ", best[k]);
    if (best[0]) snprintf(out + at, bytes - at, ")");
}

static int refuse_name(const char *name, size_t name_bytes, struct qn_error *e)
{
    char word[NEAREST_MAX + 1], near[160];
    snprintf(word, sizeof word, "%.*s", (int)(name_bytes < NEAREST_MAX ? name_bytes : NEAREST_MAX), name);
    say_near(word, near, sizeof near);
    return error_set(e, QN_EUNSUP, "tokenizer: pre-tokeniser '%s' is not known%s; --pre NAME says which one to use",
                     word, near);
}

int pretok_new(struct pretok **out, const char *name, size_t name_bytes, struct qn_error *e)
{
    const struct pretok_entry *entry = find_entry(name, name_bytes);
    if (!entry) return refuse_name(name, name_bytes, e);

    struct pretok *p = mem_calloc(1, sizeof *p);
    if (!p || !(p->gctx = pcre2_general_context_create(pcre_alloc, pcre_free, NULL))) {
        error_nomem(e, "pre-tokeniser", sizeof *p);
        goto fail;
    }
    pcre2_compile_context *cctx = pcre2_compile_context_create(p->gctx);
    p->entry = entry;
    p->jit = true;
    int code = cctx ? 0 : PCRE2_ERROR_NOMEMORY;
    for (int i = 0; code == 0 && i < PRETOK_MAX_PATTERNS && entry->family->pattern[i]; i++) {
        PCRE2_SIZE at;
        int err;
        p->code[i] =
            pcre2_compile((PCRE2_SPTR)entry->family->pattern[i], PCRE2_ZERO_TERMINATED, PCRE2_UTF, &err, &at, cctx);
        if (!p->code[i]) {
            code = err;
            break;
        }
        p->n_codes = i + 1;
        if (pcre2_jit_compile(p->code[i], PCRE2_JIT_COMPLETE) != 0) p->jit = false;
    }
    pcre2_compile_context_free(cctx);
    if (code != 0) { /* no other failure is possible: a test compiles each pattern */
        assert(code == PCRE2_ERROR_NOMEMORY || code == PCRE2_ERROR_HEAP_FAILED);
        error_set(e, QN_ENOMEM, "out of memory for the pre-tokeniser's patterns"); /* PCRE2 does not say how much */
        goto fail;
    }
    *out = p;
    return 0;
fail:
    pretok_free(p);
    return QN_ENOMEM;
}

void pretok_free(struct pretok *p)
{
    if (!p) return;
    for (int i = 0; i < p->n_codes; i++) pcre2_code_free(p->code[i]);
    pcre2_general_context_free(p->gctx);
    mem_free(p);
}

/* ---- matching ---- */

static int matcher_init(struct matcher *m, const struct pretok *p, size_t n, struct qn_error *e)
{
    *m = (struct matcher){0};
    m->md = pcre2_match_data_create(1, p->gctx); /* one pair: where the whole match is */
    m->mctx = pcre2_match_context_create(p->gctx);
    if (!m->md || !m->mctx) return error_set(e, QN_ENOMEM, "out of memory for matching the pre-tokeniser's patterns");
    /* A pattern looks at a character a handful of times. 64 is far above that, and far below quadratic time. */
    uint32_t limit = n < (1u << 24) ? 1000000u + 64u * (uint32_t)n : UINT32_MAX;
    pcre2_set_match_limit(m->mctx, limit);
    return 0;
}

static void matcher_deinit(struct matcher *m)
{
    if (m->stack) pcre2_jit_stack_free(m->stack);
    pcre2_match_context_free(m->mctx);
    pcre2_match_data_free(m->md);
}

static int match_once(struct matcher *m, const struct pretok *p, const pcre2_code *code, const uint8_t *s, size_t n,
                      size_t from)
{
    /* The text was checked before, so PCRE2 need not look for broken UTF-8 in every call. */
    return p->jit ? pcre2_jit_match(code, s, n, from, PCRE2_NO_UTF_CHECK, m->md, m->mctx)
                  : pcre2_match(code, s, n, from, PCRE2_NO_UTF_CHECK, m->md, m->mctx);
}

static int match(struct matcher *m, const struct pretok *p, const pcre2_code *code, const uint8_t *s, size_t n,
                 size_t from)
{
    int rc = match_once(m, p, code, s, n, from);
    if (rc != PCRE2_ERROR_JIT_STACKLIMIT || m->stack) return rc;
    m->stack = pcre2_jit_stack_create(64 << 10, 16 << 20, p->gctx);
    if (!m->stack) return PCRE2_ERROR_NOMEMORY;
    pcre2_jit_stack_assign(m->mctx, NULL, m->stack);
    return match_once(m, p, code, s, n, from);
}

/* Cuts s[lo..hi) by one pattern. The pattern sees only these bytes. */
static int cut_piece(struct matcher *m, const struct pretok *p, int which, const uint8_t *s, size_t lo, size_t hi,
                     struct pretok_ends *out, struct qn_error *e)
{
    const uint8_t *piece = s + lo;
    size_t n = hi - lo, done = 0; /* everything before `done` is in pieces */
    for (size_t at = 0; at < n;) {
        int rc = match(m, p, p->code[which], piece, n, at);
        if (rc == PCRE2_ERROR_NOMATCH) break;
        if (rc < 0) {
            char why[120];
            pcre2_get_error_message(rc, (PCRE2_UCHAR *)why, sizeof why);
            return error_set(e, rc == PCRE2_ERROR_NOMEMORY ? QN_ENOMEM : QN_EDATA,
                             "pre-tokeniser '%s': pattern %d stopped at byte %zu of %zu: %s", p->entry->name, which, at,
                             n, why);
        }
        const PCRE2_SIZE *ov = pcre2_get_ovector_pointer(m->md);
        assert(ov[1] > ov[0] && ov[0] >= done);
        int err = wanted_after(&out->wanted, ov[1] - done, e);
        if (err == 0 && ov[0] > done) err = ends_push(out, lo + ov[0], e);
        if (err == 0) err = ends_push(out, lo + ov[1], e);
        if (err) return err;
        at = done = ov[1];
    }
    return done < n ? ends_push(out, hi, e) : 0;
}

/* pretok_split() for a text that is UTF-8. */
static int split_valid(const struct pretok *p, const uint8_t *s, size_t n, struct pretok_ends *ends, struct qn_error *e)
{
    struct matcher m;
    struct pretok_ends next = {.wanted = ends->wanted};
    ends->n = 0;
    int rc = matcher_init(&m, p, n, e);
    if (rc == 0 && n > 0) rc = ends_push(ends, n, e);
    for (int i = 0; rc == 0 && i < p->n_codes; i++) {
        size_t lo = 0;
        next.n = 0;
        for (size_t k = 0; rc == 0 && k < ends->n; k++) {
            rc = cut_piece(&m, p, i, s, lo, ends->end[k], &next, e);
            lo = ends->end[k];
        }
        struct pretok_ends t = *ends;
        *ends = next;
        next = t;
    }
    pretok_ends_deinit(&next);
    matcher_deinit(&m);
    return rc;
}

/* Appends the text with U+FFFD in the place of bytes that are not UTF-8. */
static int repair(const uint8_t *s, size_t n, struct buf *out, struct qn_error *e)
{
    int rc = 0;
    for (size_t i = 0; rc == 0 && i < n;) {
        uint32_t cp;
        bool cut;
        unsigned len = unicode_next(s + i, n - i, &cp, &cut);
        rc = cp == UNICODE_BAD ? buf_add(out, UNICODE_REPLACEMENT, 3, e) : buf_add(out, s + i, len, e);
        i += len;
    }
    return rc;
}

/* Turns ends in the repaired text into ends in s, the original. */
static void carry_back(const uint8_t *s, size_t n, struct pretok_ends *ends)
{
    size_t raw = 0, repaired = 0;
    for (size_t k = 0; k < ends->n; k++) {
        while (repaired < ends->end[k]) {
            uint32_t cp;
            bool cut;
            unsigned len = unicode_next(s + raw, n - raw, &cp, &cut);
            raw += len;
            repaired += cp == UNICODE_BAD ? 3 : len;
        }
        assert(repaired == ends->end[k]);
        ends->end[k] = (uint32_t)raw;
    }
}

int pretok_split(const struct pretok *p, const char *text, size_t n, struct pretok_ends *ends, struct qn_error *e)
{
    const uint8_t *s = (const uint8_t *)text;
    assert(n < 1u << 30);
    if (unicode_is_utf8(s, n)) return split_valid(p, s, n, ends, e);
    struct buf fixed = {0};
    int rc = repair(s, n, &fixed, e);
    if (rc == 0) rc = split_valid(p, fixed.data, fixed.len, ends, e);
    if (rc == 0) carry_back(s, n, ends);
    buf_deinit(&fixed);
    return rc;
}
