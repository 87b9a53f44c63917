/* SPDX-License-Identifier: MIT
 *
 * bpe.c: byte-pair encoding by a ranked list of merges.
 *
 * Text is normalised where the original tokenizer does it, cut into pieces by pretok.c, and each piece is merged by
 * itself. Merges are kept as (left id, right id) -> (rank, result id), so that merging never touches strings.
 * Merges whose parts or result are not in the vocabulary cannot be used and are dropped with a count in the log.
 *
 * Bytes are never lost: those that are not UTF-8 keep their own byte tokens. A byte for which the vocabulary has
 * none is the unknown token or an error, not silence.
 *
 * Sources: Sennrich et al., "Neural Machine Translation of Rare Words with Subword Units" (2016); the byte alphabet
 * of GPT-2; docs/TOKENIZERS.md.
 */
#include "text/token/bpe.h"

#include <assert.h>
#include <string.h>

#include "base/buf.h"
#include "base/hash.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/rng.h"
#include "base/utf8.h"
#include "text/token/unicode.h"

struct bpe_merge {
    qn_token left, right, result;
};

/* Pieces repeat, so the ids of a piece that came before in the same text are copied. An entry refers to the text and
 * to the list of ids, and owns nothing. */
struct seen {
    uint32_t start, bytes; /* of the piece; bytes 0: empty entry */
    uint32_t first, n;     /* its ids in the list */
};
#define N_SEEN        2048 /* entries, a power of two */
#define SEEN_MIN_TEXT 2048 /* bytes: for a shorter text, clearing the table costs more than it saves */

/* ---- loading ---- */

static uint32_t pair_hash(const struct bpe *b, qn_token l, qn_token r)
{
    uint64_t x = ((uint64_t)(uint32_t)l << 32 | (uint32_t)r) ^ b->seed;
    x *= 0x9E3779B97F4A7C15u;
    x ^= x >> 32;
    x *= 0xD6E8FEB86659FD93u;
    return (uint32_t)(x >> 32) & b->slot_mask;
}

/* The pair's slot, or the empty one where it belongs. */
static uint32_t *find_slot(const struct bpe *b, qn_token l, qn_token r)
{
    for (uint32_t i = pair_hash(b, l, r);; i = (i + 1) & b->slot_mask) {
        if (b->slot[i] == 0) return &b->slot[i];
        const struct bpe_merge *m = &b->merge[b->slot[i] - 1];
        if (m->left == l && m->right == r) return &b->slot[i];
    }
}

/* A merge on its way from text to ids. */
struct pending {
    struct str part[3]; /* left, right, both joined; part[0].n is 0 when the text is not a pair */
    uint64_t hash[3];
};
#define N_PENDING 32 /* looked up side by side, so that the memory they wait for comes while others are worked on */

/* Cuts "left right". The separator is the first space after the first character, which may be a space itself.
 * room: lex->max_bytes bytes, where the joined text is written. */
static void cut_pair(const struct lexicon *lex, struct str s, char *room, struct pending *p)
{
    const char *sp = s.n > 2 ? memchr(s.p + 1, ' ', s.n - 1) : NULL;
    size_t n_left = sp ? (size_t)(sp - s.p) : 0, n_right = sp ? s.n - n_left - 1 : 0;
    p->part[0].n = 0;
    if (!n_left || !n_right || s.n - 1 > lex->max_bytes) return;
    memcpy(room, s.p, n_left);
    memcpy(room + n_left, sp + 1, n_right);
    p->part[0] = (struct str){s.p, n_left};
    p->part[1] = (struct str){sp + 1, n_right};
    p->part[2] = (struct str){room, s.n - 1};
    for (int i = 0; i < 3; i++) p->hash[i] = lexicon_hash(lex, p->part[i].p, p->part[i].n);
}

/* False when one part is not a token, or the result is a control token. */
static bool resolve(const struct lexicon *lex, const struct pending *p, struct bpe_merge *m)
{
    if (!p->part[0].n) return false;
    m->left = lexicon_find_hashed(lex, p->part[0].p, p->part[0].n, p->hash[0]);
    m->right = lexicon_find_hashed(lex, p->part[1].p, p->part[1].n, p->hash[1]);
    m->result = lexicon_find_hashed(lex, p->part[2].p, p->part[2].n, p->hash[2]);
    return m->left >= 0 && m->right >= 0 && m->result >= 0 && !lexicon_is_control(lex, m->result);
}

/* Takes at most N_PENDING merges from the list, and fetches the memory that resolve() reads. Returns their number. */
static int next_pairs(const struct lexicon *lex, const struct meta *list, uint64_t *cursor, char *room,
                      struct pending *p)
{
    struct str s;
    int n = 0;
    while (n < N_PENDING && meta_next_str(list, cursor, &s)) {
        cut_pair(lex, s, room + (size_t)n * lex->max_bytes, &p[n]);
        n++;
    }
    for (int i = 0; i < n; i++)
        for (int k = 0; k < 3 && p[i].part[0].n; k++) lexicon_fetch(lex, p[i].hash[k]);
    return n;
}

static int read_merges(struct bpe *b, const struct meta *list, struct qn_error *e)
{
    assert(list->n <= UINT32_MAX / 4); /* a file with nearly as many strings in an array is refused */
    uint32_t n_slots = 16, n_bad = 0;
    while (n_slots / 2 < list->n) n_slots *= 2;
    struct pending pending[N_PENDING];
    struct bpe_merge found[N_PENDING];
    size_t room_bytes = (size_t)N_PENDING * b->lex->max_bytes;
    char *room = mem_alloc(room_bytes);
    b->merge = mem_alloc((size_t)list->n * sizeof *b->merge + 1);
    b->slot = mem_alloc(n_slots * sizeof *b->slot);
    if (!room || !b->merge || !b->slot) {
        mem_free(room);
        return error_nomem(e, "tokenizer merges", (size_t)list->n * sizeof *b->merge + room_bytes);
    }
    /* Not calloc: a slot is read before it is written. A fresh page would then fault twice, and the second fault
     * flushes every CPU's translations. */
    memset(b->slot, 0, n_slots * sizeof *b->slot);
    b->slot_mask = n_slots - 1;
    uint64_t cursor = 0;
    for (int n; (n = next_pairs(b->lex, list, &cursor, room, pending)) > 0;) {
        int n_found = 0;
        for (int i = 0; i < n; i++) {
            struct bpe_merge *m = &found[n_found];
            if (!resolve(b->lex, &pending[i], m)) continue;
            __builtin_prefetch(&b->slot[pair_hash(b, m->left, m->right)]);
            n_found++;
        }
        n_bad += (uint32_t)(n - n_found);
        for (int i = 0; i < n_found; i++) {
            uint32_t *slot = find_slot(b, found[i].left, found[i].right);
            if (*slot) continue; /* of equal pairs the first counts, because it is the most urgent one */
            b->merge[b->n_merges++] = found[i];
            *slot = b->n_merges;
        }
    }
    mem_free(room);
    if (n_bad)
        log_at(LOG_WARN, "gguf: tokenizer.ggml.merges: %u of %llu do not join two tokens into a third", n_bad,
               (unsigned long long)list->n);
    return 0;
}

/* Chooses and compiles the pre-tokeniser; fallback as in bpe_init(). */
static int init_pretok(struct bpe *b, const struct weights *w, const char *fallback, struct qn_error *e)
{
    struct str pre = {"default", 7};
    int rc = 0;
    if (b->by_char && !weights_meta(w, "tokenizer.quern.source")) {
        pre = (struct str){"gemma4", 6};
    } else {
        rc = meta_str(w, "tokenizer.ggml.pre", &pre, e);
        if (rc < 0) return rc;
        bool is_open = (pre.n == 7 && !memcmp(pre.p, "default", 7)) || !pretok_is_known(pre.p, pre.n);
        if (fallback && is_open)
            pre = (struct str){fallback, strlen(fallback)};
        else if (rc == 0)
            log_at(LOG_WARN, "gguf: no tokenizer.ggml.pre: words may be cut in the wrong places");
    }
    rc = pretok_new(&b->pretok, pre.p, pre.n, e);
    if (rc == 0 && (pretok_flags(b->pretok) & PRETOK_BY_CHAR)) b->by_char = true;
    return rc;
}

static int read_flag(struct bpe *b, const struct weights *w, const char *key, unsigned flag, struct qn_error *e)
{
    bool on = b->flags & flag;
    int rc = meta_bool(w, key, &on, e);
    b->flags = on ? b->flags | flag : b->flags & ~flag;
    return rc < 0 ? rc : 0;
}

static int read_prefix(struct bpe *b, const struct weights *w, struct qn_error *e)
{
    static const char *const names[] = {"none", "each", "missing", "first"}; /* in the order of enum bpe_prefix */
    struct str s = {0};
    int rc = b->by_char ? meta_str(w, "tokenizer.quern.space_prefix", &s, e) : 0;
    if (rc <= 0) return rc;
    for (unsigned i = 0; i < sizeof names / sizeof names[0]; i++)
        if (s.n == strlen(names[i]) && !memcmp(s.p, names[i], s.n)) {
            b->prefix = (enum bpe_prefix)i;
            return 0;
        }
    return error_set(e, QN_EDATA, "gguf: tokenizer.quern.space_prefix is '%.*s'", (int)(s.n < 60 ? s.n : 60), s.p);
}

/* Reads the keys of our own, which say what the name of a pre-tokeniser only implies. */
static int read_flags(struct bpe *b, const struct weights *w, struct qn_error *e)
{
    b->flags = pretok_flags(b->pretok);
    int rc = read_flag(b, w, "tokenizer.quern.nfc", PRETOK_NFC, e);
    if (rc == 0) rc = read_flag(b, w, "tokenizer.quern.ignore_merges", PRETOK_IGNORE_MERGES, e);
    return rc ? rc : read_prefix(b, w, e);
}

int bpe_init(struct bpe *b, const struct lexicon *lex, const struct weights *w, bool by_char, const char *fallback,
             struct qn_error *e)
{
    *b = (struct bpe){.lex = lex, .by_char = by_char, .seed = rng_seed_from_os()};
    const struct meta *list = weights_meta(w, "tokenizer.ggml.merges");
    if (!list) return error_set(e, QN_EDATA, "gguf: no tokenizer.ggml.merges");
    if (list->type != MT_ARRAY || list->elem != MT_STRING)
        return error_set(e, QN_EDATA, "gguf: tokenizer.ggml.merges is not an array of strings");
    int rc = read_merges(b, list, e);
    if (rc == 0) rc = init_pretok(b, w, fallback, e);
    if (rc == 0) rc = read_flags(b, w, e);
    for (int i = 0; rc == 0 && i < 256; i++) {
        uint8_t u[4];
        qn_token id = lexicon_find(lex, u, utf8_put(u, unicode_from_byte((uint8_t)i)));
        b->byte_id[i] = id >= 0 && lex->type[id] == TOKEN_NORMAL ? id : -1;
    }
    return rc;
}

void bpe_deinit(struct bpe *b)
{
    mem_free(b->merge);
    mem_free(b->slot);
    pretok_free(b->pretok);
    *b = (struct bpe){0};
}

bool bpe_spells(const struct bpe *b, qn_token id)
{
    struct str s = lexicon_text(b->lex, id);
    uint32_t cp;
    bool cut;
    if (s.n == 0 || unicode_next((const uint8_t *)s.p, s.n, &cp, &cut) == s.n) return true; /* one character */
    for (uint32_t i = 0; i < b->n_merges; i++)
        if (b->merge[i].result == id) return true;
    return false;
}

/* ---- encoding ---- */

static bool rule(const void *arg, const struct sym *l, const struct sym *r, uint32_t *rank, qn_token *id)
{
    const struct bpe *b = arg;
    if (l->id < 0 || r->id < 0) return false;
    uint32_t found = *find_slot(b, l->id, r->id);
    if (!found) return false;
    *rank = found - 1;
    *id = b->merge[found - 1].result;
    return true;
}

/* The token that is the whole piece, -1 when there is none. */
static qn_token find_whole(const struct bpe *b, const uint8_t *p, size_t n)
{
    uint8_t mapped[2 * 128];
    size_t k = 0;
    if (b->by_char) return lexicon_find_text(b->lex, p, n);
    if (n > 128) return -1; /* no vocabulary has words that long, and the merges would give the same */
    for (size_t i = 0; i < n; i++) k += utf8_put(mapped + k, unicode_from_byte(p[i]));
    return lexicon_find_text(b->lex, mapped, k);
}

static int add_symbols(const struct bpe *b, const uint8_t *p, uint32_t start, uint32_t n, struct merge *m,
                       struct qn_error *e)
{
    int rc = 0;
    uint32_t cp;
    bool cut;
    merge_clear(m);
    for (uint32_t i = 0, len; rc == 0 && i < n; i += len) {
        const uint8_t *c = p + start + i;
        len = b->by_char ? unicode_next(c, n - i, &cp, &cut) : 1;
        rc = merge_add(m, start + i, len, b->by_char ? lexicon_find_text(b->lex, c, len) : b->byte_id[*c], e);
    }
    return rc;
}

static int push_symbol(const struct bpe *b, qn_token unk, const uint8_t *p, const struct sym *s, struct ids *out,
                       struct qn_error *e)
{
    if (s->id >= 0) return ids_push(out, s->id, e);
    int rc = 0;
    for (uint32_t i = 0; rc == 0 && i < s->bytes; i++) {
        uint8_t byte = p[s->start + i];
        qn_token id = b->lex->byte_id[byte];
        if (id < 0) id = unk;
        if (id < 0) return error_set(e, QN_EDATA, "tokenizer: no token for byte 0x%02X and no unknown token", byte);
        rc = ids_push(out, id, e);
    }
    return rc;
}

static int encode_piece(const struct bpe *b, qn_token unk, const uint8_t *p, uint32_t start, uint32_t n,
                        struct merge *m, struct ids *out, struct qn_error *e)
{
    if (b->flags & PRETOK_IGNORE_MERGES) {
        qn_token id = find_whole(b, p + start, n);
        if (id >= 0) return ids_push(out, id, e);
    }
    int rc = add_symbols(b, p, start, n, m, e);
    if (rc == 0) rc = merge_run(m, rule, b, e);
    for (int32_t i = 0; rc == 0 && i >= 0; i = m->sym[i].next) rc = push_symbol(b, unk, p, &m->sym[i], out, e);
    return rc;
}

static int encode_pieces(const struct bpe *b, qn_token unk, const uint8_t *p, size_t n, const struct pretok_ends *ends,
                         struct merge *m, struct ids *out, struct qn_error *e)
{
    int rc = 0;
    struct seen *seen = n >= SEEN_MIN_TEXT ? mem_calloc(N_SEEN, sizeof *seen) : NULL;
    if (n >= SEEN_MIN_TEXT && !seen) return error_nomem(e, "tokenizer pieces", N_SEEN * sizeof *seen);
    uint32_t start = 0;
    for (size_t k = 0; rc == 0 && k < ends->n; start = ends->end[k++]) {
        uint32_t bytes = ends->end[k] - start, first = (uint32_t)out->n;
        if ((rc = wanted_after(&m->wanted, bytes, e))) break;
        struct seen *s = seen ? &seen[hash_bytes(p + start, bytes, b->seed) & (N_SEEN - 1)] : NULL;
        if (s && s->bytes == bytes && memcmp(p + s->start, p + start, bytes) == 0) {
            for (uint32_t i = 0; rc == 0 && i < s->n; i++) rc = ids_push(out, out->id[s->first + i], e);
            continue;
        }
        rc = encode_piece(b, unk, p, start, bytes, m, out, e);
        if (s) *s = (struct seen){start, bytes, first, (uint32_t)out->n - first};
    }
    mem_free(seen);
    return rc;
}

static bool wants_prefix(const struct bpe *b, bool first, const uint8_t *p, size_t n)
{
    if (b->prefix == BPE_PREFIX_EACH) return true;
    if (b->prefix == BPE_PREFIX_NONE || (b->prefix == BPE_PREFIX_FIRST && !first)) return false;
    return p[0] != ' ' && (n < 3 || memcmp(p, UNICODE_SPACE_MARK, 3) != 0);
}

int bpe_encode(const struct bpe *b, qn_token unk, bool first, const char *text, size_t n, struct merge *scratch,
               struct ids *out, struct qn_error *e)
{
    struct buf changed = {0};
    struct pretok_ends ends = {.wanted = scratch->wanted};
    const uint8_t *p = (const uint8_t *)text;
    int rc = 0;
    bool same = true;
    assert(n > 0 && n < 1u << 28);
    if (b->by_char) {
        if (wants_prefix(b, first, p, n)) rc = buf_str(&changed, UNICODE_SPACE_MARK, e);
        if (rc == 0) rc = unicode_mark_spaces(p, n, &changed, e);
        same = false;
    } else if (b->flags & PRETOK_NFC) {
        rc = unicode_nfc(p, n, &changed, &same, e);
    }
    if (!same) {
        p = changed.data;
        n = changed.len;
    }
    if (rc == 0) rc = pretok_split(b->pretok, (const char *)p, n, &ends, e);
    if (rc == 0) rc = encode_pieces(b, unk, p, n, &ends, scratch, out, e);
    pretok_ends_deinit(&ends);
    buf_deinit(&changed);
    return rc;
}
