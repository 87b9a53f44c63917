/* SPDX-License-Identifier: MIT
 *
 * stop.c: stop strings in a stream of bytes.
 *
 * Each stop string runs its own Knuth-Morris-Pratt automaton (Knuth, Morris, Pratt, "Fast pattern matching in
 * strings", SIAM J. Comput. 6, 1977) over the text, so the work for each string is linear in the text. An automaton's
 * state is the number of bytes at the end of the text that are a beginning of its string. The largest of these states
 * is the number of bytes that must be held back. These bytes are a beginning of a string that is stored anyway, so no
 * text is buffered:
 *
 *     text     ... emitted ...|......held......|
 *     pattern                 |......state.....|... still to come ...|
 *
 * When a string completes, all its bytes but the last were its state one byte earlier, so none of them was emitted.
 *
 * Characters are not known here: the caller makes sure that they are emitted whole.
 */
#include "decode/stop.h"

#include <assert.h>
#include <string.h>

#include "base/mem.h"

struct stop_pattern {
    const uint8_t *bytes; /* [n] */
    const uint32_t *fail; /* [n] fail[i]: length of the longest proper border of the first i + 1 bytes */
    uint32_t n;
    uint32_t n_matched; /* the last bytes of the text are the first n_matched of the pattern; < n between pushes */
};

/* The state after byte b, given that the state before it was k < n. */
static uint32_t advance(const struct stop_pattern *p, uint32_t k, uint8_t b)
{
    while (k > 0 && p->bytes[k] != b) k = p->fail[k - 1];
    return k + (p->bytes[k] == b);
}

static void pattern_init(struct stop_pattern *p, uint8_t *bytes, uint32_t *fail, const struct stop_string *s)
{
    memcpy(bytes, s->bytes, s->n);
    *p = (struct stop_pattern){.bytes = bytes, .fail = fail, .n = (uint32_t)s->n};
    fail[0] = 0;
    for (uint32_t i = 1; i < p->n; i++) fail[i] = advance(p, fail[i - 1], bytes[i]);
}

int stop_init(struct stop_scan *s, const struct stop_string *strings, size_t n_strings, const qn_token *tokens,
              size_t n_tokens, struct qn_error *e)
{
    struct stop_scan t = {.n_patterns = n_strings, .n_tokens = n_tokens, .hit = -1};
    size_t n_bytes = 0;

    for (size_t i = 0; i < n_strings; i++) {
        if (strings[i].n == 0) return error_set(e, QN_EUSAGE, "stop string %zu is empty", i + 1);
        if (strings[i].n > STOP_MAX_BYTES)
            return error_set(e, QN_EUSAGE, "stop string %zu has %zu bytes, more than %d", i + 1, strings[i].n,
                             STOP_MAX_BYTES);
        n_bytes += strings[i].n;
    }
    if (n_strings || n_tokens) {
        /* patterns, fail tables, tokens, bytes: by descending alignment */
        size_t total = n_strings * sizeof *t.patterns + n_bytes * (sizeof(uint32_t) + 1) + n_tokens * sizeof *tokens;
        t.patterns = mem_alloc(total);
        if (!t.patterns) return error_nomem(e, "the stop strings", total);
        uint32_t *fail = (uint32_t *)(t.patterns + n_strings);
        t.tokens = (qn_token *)(fail + n_bytes);
        uint8_t *bytes = (uint8_t *)(t.tokens + n_tokens);
        for (size_t i = 0; i < n_strings; i++) {
            pattern_init(&t.patterns[i], bytes, fail, &strings[i]);
            bytes += strings[i].n;
            fail += strings[i].n;
        }
        if (n_tokens) memcpy(t.tokens, tokens, n_tokens * sizeof *tokens);
    }
    *s = t;
    return 0;
}

void stop_deinit(struct stop_scan *s)
{
    mem_free(s->patterns);
    *s = (struct stop_scan){0};
}

bool stop_is_token(const struct stop_scan *s, qn_token t)
{
    for (size_t i = 0; i < s->n_tokens; i++)
        if (s->tokens[i] == t) return true;
    return false;
}

static size_t n_held(const struct stop_scan *s) { return s->n_patterns ? s->patterns[s->holder].n_matched : 0; }

/* Runs every automaton over the next byte. Returns the length of the longest string that it completes, or 0. */
static size_t next_byte(struct stop_scan *s, uint8_t b)
{
    size_t longest = 0;

    for (size_t i = 0; i < s->n_patterns; i++) {
        struct stop_pattern *p = &s->patterns[i];
        p->n_matched = advance(p, p->n_matched, b);
        if (p->n_matched == p->n && p->n > longest) {
            longest = p->n;
            s->hit = (int)i;
        }
    }
    return longest;
}

int stop_push(struct stop_scan *s, const void *bytes, size_t n, struct buf *out, struct qn_error *e)
{
    size_t held = n_held(s), n_read = 0, n_stop = 0;

    if (s->hit >= 0) return 0;
    int rc = buf_reserve(out, held + n, e);
    if (rc) return rc;
    const uint8_t *before = s->n_patterns ? s->patterns[s->holder].bytes : NULL; /* the text held so far */
    while (n_read < n && n_stop == 0) n_stop = next_byte(s, ((const uint8_t *)bytes)[n_read++]);
    for (size_t i = 0; i < s->n_patterns; i++)
        if (s->patterns[i].n_matched > s->patterns[s->holder].n_matched) s->holder = i;

    size_t keep = s->hit >= 0 ? n_stop : n_held(s);
    assert(keep <= held + n_read);
    size_t emit = held + n_read - keep;
    size_t from_held = emit < held ? emit : held;
    if (from_held) buf_add(out, before, from_held, NULL); /* room was reserved */
    if (emit > from_held) buf_add(out, bytes, emit - from_held, NULL);
    return 0;
}

int stop_flush(struct stop_scan *s, struct buf *out, struct qn_error *e)
{
    size_t held = n_held(s);

    if (s->hit >= 0) return 0;
    if (held > 0) {
        int rc = buf_add(out, s->patterns[s->holder].bytes, held, e);
        if (rc) return rc;
    }
    for (size_t i = 0; i < s->n_patterns; i++) s->patterns[i].n_matched = 0;
    return 0;
}
