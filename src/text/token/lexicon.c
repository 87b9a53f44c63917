/* SPDX-License-Identifier: MIT
 *
 * lexicon.c: the tokens of a model file, indexed both ways.
 *
 * The strings stay in the mapped file. An entry is an offset and a length. The hash table holds ids, each next to 32
 * bits of the hash, so that a look-up that fails does not touch the strings. A token takes 16 to 24 bytes.
 *
 * Files are not trusted. Arrays of the wrong type or length are refused. Harmless oddities (an empty token, two tokens
 * with the same text, a byte token that names no byte) are kept, and logged once with their number.
 * Source: the GGUF keys `tokenizer.ggml.tokens`, `.token_type` and `.scores`.
 */
#include "text/token/lexicon.h"

#include <assert.h>
#include <math.h>
#include <string.h>

#include "base/inline/digits.h"
#include "base/hash.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/rng.h"

struct lexicon_place {
    uint32_t offset, bytes; /* into lexicon.data */
};

struct lexicon_slot {
    uint32_t hash; /* the upper half; the lower one chose the slot */
    qn_token id;   /* -1: empty */
};

struct str lexicon_text(const struct lexicon *lex, qn_token id)
{
    assert(id >= 0 && id < lex->n);
    struct lexicon_place at = lex->place[id];
    return (struct str){(const char *)lex->data + at.offset, at.bytes};
}

float lexicon_score(const struct lexicon *lex, qn_token id)
{
    float f = 0;
    if (lex->score) memcpy(&f, lex->score + (size_t)id * 4, 4);
    return f;
}

/* The slot that holds this text, or the empty one where it belongs. */
static struct lexicon_slot *find_slot(const struct lexicon *lex, const void *p, size_t n, uint64_t hash)
{
    for (uint32_t i = (uint32_t)hash & lex->slot_mask;; i = (i + 1) & lex->slot_mask) {
        struct lexicon_slot *s = &lex->slot[i];
        if (s->id < 0) return s;
        if (s->hash != hash >> 32 || lex->place[s->id].bytes != n) continue;
        if (memcmp(lex->data + lex->place[s->id].offset, p, n) == 0) return s;
    }
}

qn_token lexicon_find(const struct lexicon *lex, const void *p, size_t n)
{
    if (n == 0 || n > lex->max_bytes) return -1;
    return find_slot(lex, p, n, hash_bytes(p, n, lex->seed))->id;
}

uint64_t lexicon_hash(const struct lexicon *lex, const void *p, size_t n)
{
    uint64_t hash = hash_bytes(p, n, lex->seed);
    __builtin_prefetch(&lex->slot[(uint32_t)hash & lex->slot_mask]);
    return hash;
}

void lexicon_fetch(const struct lexicon *lex, uint64_t hash)
{
    qn_token id = lex->slot[(uint32_t)hash & lex->slot_mask].id;
    if (id >= 0) __builtin_prefetch(lex->data + lex->place[id].offset);
}

qn_token lexicon_find_hashed(const struct lexicon *lex, const void *p, size_t n, uint64_t hash)
{
    return n > lex->max_bytes ? -1 : find_slot(lex, p, n, hash)->id;
}

qn_token lexicon_find_text(const struct lexicon *lex, const void *p, size_t n)
{
    qn_token id = lexicon_find(lex, p, n);
    return id < 0 || lexicon_is_control(lex, id) || lex->type[id] == TOKEN_BYTE ? -1 : id;
}

/* Finds an array of n elements (any number when n is -1) of one type; *out is NULL when the key is absent. */
static int get_array(const struct weights *w, const char *key, enum meta_type elem, int32_t n, const struct meta **out,
                     struct qn_error *e)
{
    const struct meta *m = *out = weights_meta(w, key);
    if (!m) return 0;
    if (m->type != MT_ARRAY || m->elem != elem)
        return error_set(e, QN_EDATA, "gguf: %s is %s%s, not an array of %s", key,
                         m->type == MT_ARRAY ? "an array of " : "", meta_type_name(m->elem), meta_type_name(elem));
    if (n >= 0 && m->n != (uint64_t)n)
        return error_set(e, QN_EDATA, "gguf: %s has %llu entries for %d tokens", key, (unsigned long long)m->n, n);
    return 0;
}

static int read_places(struct lexicon *lex, const struct meta *tokens, struct qn_error *e)
{
    uint64_t cursor = 0;
    struct str s;
    int32_t id = 0, n_empty = 0;
    lex->data = tokens->data;
    for (; id < lex->n && meta_next_str(tokens, &cursor, &s); id++) {
        size_t offset = (size_t)((const uint8_t *)s.p - lex->data);
        if (offset + s.n > UINT32_MAX)
            return error_set(e, QN_EDATA, "gguf: token %d ends at byte %zu of the token list (limit %u)", id,
                             offset + s.n, UINT32_MAX);
        lex->place[id] = (struct lexicon_place){(uint32_t)offset, (uint32_t)s.n};
        if (s.n > lex->max_bytes) lex->max_bytes = (uint32_t)s.n;
        n_empty += s.n == 0;
    }
    assert(id == lex->n);
    if (n_empty) log_at(LOG_WARN, "gguf: tokenizer.ggml.tokens: %d empty tokens", n_empty);
    return 0;
}

static int read_types(struct lexicon *lex, const struct weights *w, struct qn_error *e)
{
    const struct meta *m;
    int rc = get_array(w, "tokenizer.ggml.token_type", MT_I32, lex->n, &m, e);
    if (rc) return rc;
    memset(lex->type, TOKEN_NORMAL, (size_t)lex->n);
    for (int32_t id = 0; m && id < lex->n; id++) {
        int32_t t;
        memcpy(&t, m->data + (size_t)id * 4, 4);
        if (t == 0) t = TOKEN_NORMAL; /* "undefined" */
        if (t < TOKEN_NORMAL || t > TOKEN_BYTE)
            return error_set(e, QN_EDATA, "gguf: tokenizer.ggml.token_type: token %d has type %d (1 to 6)", id, t);
        lex->type[id] = (uint8_t)t;
    }
    return 0;
}

static int read_scores(struct lexicon *lex, const struct weights *w, struct qn_error *e)
{
    const struct meta *m;
    int rc = get_array(w, "tokenizer.ggml.scores", MT_F32, lex->n, &m, e);
    if (rc || !m) return rc;
    lex->score = m->data;
    for (int32_t id = 0; id < lex->n; id++)
        if (isnan(lexicon_score(lex, id)))
            return error_set(e, QN_EDATA, "gguf: tokenizer.ggml.scores: token %d has score NaN", id);
    return 0;
}

static int build_index(struct lexicon *lex, struct qn_error *e)
{
    /* At most half full, which keeps probe sequences short. */
    uint32_t n_slots = 16;
    while (n_slots / 2 < (uint32_t)lex->n) n_slots *= 2;
    lex->slot = mem_alloc(n_slots * sizeof *lex->slot);
    if (!lex->slot) return error_nomem(e, "token index", n_slots * sizeof *lex->slot);
    memset(lex->slot, 0xFF, n_slots * sizeof *lex->slot);
    lex->slot_mask = n_slots - 1;
    lex->seed = rng_seed_from_os();
    int32_t n_twice = 0;
    for (qn_token id = 0; id < lex->n; id++) {
        struct lexicon_place at = lex->place[id];
        if (at.bytes == 0) continue;
        uint64_t hash = hash_bytes(lex->data + at.offset, at.bytes, lex->seed);
        struct lexicon_slot *s = find_slot(lex, lex->data + at.offset, at.bytes, hash);
        n_twice += s->id >= 0;
        *s = (struct lexicon_slot){(uint32_t)(hash >> 32), id};
    }
    if (n_twice) log_at(LOG_WARN, "gguf: tokenizer.ggml.tokens: %d tokens have the text of an earlier one", n_twice);
    return 0;
}

/* Fills byte_id. A byte token whose text is not <0xNN> becomes a normal token. */
static void index_bytes(struct lexicon *lex)
{
    int n_bad = 0;
    memset(lex->byte_id, 0xFF, sizeof lex->byte_id);
    for (qn_token id = 0; id < lex->n; id++) {
        if (lex->type[id] != TOKEN_BYTE) continue;
        struct str s = lexicon_text(lex, id);
        int hi = s.n == 6 ? hex_digit(s.p[3]) : -1, lo = s.n == 6 ? hex_digit(s.p[4]) : -1;
        if (hi < 0 || lo < 0 || memcmp(s.p, "<0x", 3) != 0 || s.p[5] != '>') {
            n_bad++;
            lex->type[id] = TOKEN_NORMAL;
            continue;
        }
        lex->byte_id[hi << 4 | lo] = id;
    }
    if (n_bad) log_at(LOG_WARN, "gguf: %d byte tokens are not of the form <0xNN>", n_bad);
}

int lexicon_init(struct lexicon *lex, const struct weights *w, struct qn_error *e)
{
    *lex = (struct lexicon){0};
    const struct meta *tokens;
    int rc = get_array(w, "tokenizer.ggml.tokens", MT_STRING, -1, &tokens, e);
    if (rc) return rc;
    if (!tokens) return error_set(e, QN_EDATA, "gguf: no tokenizer.ggml.tokens");
    if (tokens->n == 0) return error_set(e, QN_EDATA, "gguf: tokenizer.ggml.tokens has 0 entries");
    assert(tokens->n <= INT32_MAX / 4); /* a file with nearly as many strings in an array is refused */
    lex->n = (int32_t)tokens->n;
    size_t bytes = (size_t)lex->n * (sizeof *lex->place + sizeof *lex->type);
    lex->place = mem_calloc((size_t)lex->n, sizeof *lex->place);
    lex->type = mem_alloc((size_t)lex->n * sizeof *lex->type);
    if (!lex->place || !lex->type) return error_nomem(e, "token list", bytes);
    if ((rc = read_places(lex, tokens, e)) || (rc = read_types(lex, w, e)) || (rc = read_scores(lex, w, e)) ||
        (rc = build_index(lex, e)))
        return rc;
    index_bytes(lex);
    return 0;
}

void lexicon_deinit(struct lexicon *lex)
{
    mem_free(lex->place);
    mem_free(lex->type);
    mem_free(lex->slot);
    *lex = (struct lexicon){0};
}
