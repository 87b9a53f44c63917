/* SPDX-License-Identifier: MIT
 *
 * vocab.c: a model's tokenizer, put together from its metadata.
 *
 * Encoding has three steps: special tokens are found in the raw text (special.c), the text between them is encoded by
 * the model's algorithm (spm.c or bpe.c), and BOS and EOS are added. Only the first step can yield control tokens, and
 * only when the caller asks for it, so text of a user cannot fake a chat marker.
 *
 * Source: the GGUF keys `tokenizer.ggml.*`, and our own keys `tokenizer.quern.*`, which say what a tokenizer.json has
 * besides (docs/TOKENIZERS.md). WordPiece, Unigram and RWKV are refused.
 */
#include "text/token/vocab.h"

#include <assert.h>
#include <ctype.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "base/mem.h"
#include "text/token/bpe.h"
#include "text/token/roles.h"
#include "text/token/special.h"
#include "text/token/spm.h"
#include "text/token/unicode.h"

struct vocab {
    struct lexicon lex;
    struct bpe bpe; /* all zero when spm is set */
    struct special special;
    struct roles roles;
    bool spm; /* model `llama` */
    bool add_bos, add_eos;
    bool add_space, add_space_inside; /* before a text; before the text that follows a special token */
    uint8_t *strip;                   /* [lex.n] STRIP_*, owned; NULL: 0 for all */
    bool eats_space;                  /* white space after a special token is dropped (phi-3) ... */
    qn_token keeps_space[3];          /* ... but not after these */
};

/* On which side of a special token white space is dropped. */
enum { STRIP_LEFT = 1, STRIP_RIGHT = 2 };

/* ---- loading ---- */

static int read_flags(struct vocab *v, const struct weights *w, struct qn_error *e)
{
    v->add_bos = v->spm || (pretok_flags(v->bpe.pretok) & PRETOK_ADD_BOS);
    v->add_space = v->spm;
    int rc = meta_bool(w, "tokenizer.ggml.add_bos_token", &v->add_bos, e);
    if (rc >= 0) rc = meta_bool(w, "tokenizer.ggml.add_eos_token", &v->add_eos, e);
    if (rc >= 0) rc = meta_bool(w, "tokenizer.ggml.add_space_prefix", &v->add_space, e);
    if (rc < 0) return rc;
    if (!v->spm) v->add_space = v->bpe.prefix != BPE_PREFIX_NONE;
    v->add_space_inside = v->add_space && v->bpe.prefix != BPE_PREFIX_FIRST;
    if (!v->spm && (pretok_flags(v->bpe.pretok) & PRETOK_FORCE_BOS)) v->add_bos = true; /* early files say false */
    return 0;
}

/* phi-3's added tokens drop the white space on their right. Files have no key for that, so the model's name decides. */
static int read_quirks(struct vocab *v, const struct weights *w, struct qn_error *e)
{
    static const char *const keeps[3] = {"<unk>", "<s>", "<|endoftext|>"};
    struct str name = {0};
    int rc = weights_meta(w, "tokenizer.quern.source") ? 0 : meta_str(w, "general.name", &name, e);
    if (rc < 0) return rc;
    for (size_t i = 0; rc == 1 && i + 4 <= name.n; i++) {
        size_t left = name.n - i;
        if (!strncasecmp(name.p + i, "phi3", 4) || (left >= 5 && !strncasecmp(name.p + i, "phi-3", 5)))
            v->eats_space = true;
    }
    for (int i = 0; i < 3; i++) v->keeps_space[i] = lexicon_find(&v->lex, keeps[i], strlen(keeps[i]));
    return 0;
}

static int read_strip(struct vocab *v, const struct weights *w, const char *key, uint8_t side, struct qn_error *e)
{
    const struct meta *m = weights_meta(w, key);
    if (!m) return 0;
    if (!v->strip && !(v->strip = mem_calloc((size_t)v->lex.n, 1)))
        return error_nomem(e, "special tokens", (size_t)v->lex.n);
    for (uint64_t i = 0; i < m->n; i++) {
        int64_t id;
        int rc = meta_elem_i64(m, i, &id, e);
        if (rc) return rc;
        if (id >= 0 && id < v->lex.n) v->strip[id] |= side;
    }
    return 0;
}

enum algorithm { SPM, BYTE_BPE, CHAR_BPE };

/* What tokenizer.ggml.model names. */
static int read_algorithm(const struct weights *w, enum algorithm *out, struct qn_error *e)
{
    static const struct {
        const char *name;
        enum algorithm algorithm;
    } models[] = {{"llama", SPM}, {"gpt2", BYTE_BPE}, {"gemma4", CHAR_BPE}, {"char-bpe", CHAR_BPE}};
    struct str model;
    int rc = meta_str(w, "tokenizer.ggml.model", &model, e);
    if (rc < 0) return rc;
    if (rc == 0) return error_set(e, QN_EDATA, "gguf: no tokenizer.ggml.model");
    for (size_t i = 0; i < sizeof models / sizeof models[0]; i++)
        if (model.n == strlen(models[i].name) && !memcmp(model.p, models[i].name, model.n)) {
            *out = models[i].algorithm;
            return 0;
        }
    return error_set(e, QN_EUNSUP, "gguf: tokenizer.ggml.model '%.*s' (supported: llama, gpt2, gemma4)",
                     (int)(model.n < 60 ? model.n : 60), model.p);
}

/* Fills a zeroed vocabulary, to be freed also after a failure. The order matters: roles change the types of tokens,
 * on which the special tokens depend. */
static int load(struct vocab *v, const struct weights *w, enum algorithm algorithm, const char *pre, struct qn_error *e)
{
    v->spm = algorithm == SPM;
    int rc = lexicon_init(&v->lex, w, e);
    if (!rc && !v->spm) rc = bpe_init(&v->bpe, &v->lex, w, algorithm == CHAR_BPE, pre, e);
    if (!rc) rc = roles_init(&v->roles, &v->lex, v->spm ? NULL : &v->bpe, w, e);
    if (!rc) rc = special_init(&v->special, &v->lex, e);
    if (!rc) rc = read_flags(v, w, e);
    if (!rc) rc = read_quirks(v, w, e);
    if (!rc) rc = read_strip(v, w, "tokenizer.quern.strip_left", STRIP_LEFT, e);
    if (!rc) rc = read_strip(v, w, "tokenizer.quern.strip_right", STRIP_RIGHT, e);
    return rc;
}

int vocab_load(struct vocab **out, const struct weights *w, struct qn_error *e)
{
    return vocab_load_with(out, w, NULL, e);
}

int vocab_load_with(struct vocab **out, const struct weights *w, const char *pre, struct qn_error *e)
{
    enum algorithm algorithm = SPM;
    int rc = read_algorithm(w, &algorithm, e);
    if (rc) return rc;
    struct vocab *v = mem_calloc(1, sizeof *v);
    if (!v) return error_nomem(e, "vocabulary", sizeof *v);
    rc = load(v, w, algorithm, pre, e);
    if (rc)
        vocab_free(v);
    else
        *out = v;
    return rc;
}

void vocab_free(struct vocab *v)
{
    if (!v) return;
    special_deinit(&v->special);
    bpe_deinit(&v->bpe);
    lexicon_deinit(&v->lex);
    mem_free(v->strip);
    mem_free(v);
}

/* ---- what is in it ---- */

static bool is_in(const qn_token *list, int n, qn_token id)
{
    for (int i = 0; i < n; i++)
        if (list[i] == id) return true;
    return false;
}

int32_t vocab_n_tokens(const struct vocab *v) { return v->lex.n; }

qn_token vocab_role(const struct vocab *v, enum vocab_role role) { return v->roles.id[role]; }

bool vocab_add_bos(const struct vocab *v) { return v->add_bos; }

bool vocab_add_eos(const struct vocab *v) { return v->add_eos; }

bool vocab_adds_space(const struct vocab *v, bool first) { return first ? v->add_space : v->add_space_inside; }

bool vocab_is_valid(const struct vocab *v, qn_token id) { return id >= 0 && id < v->lex.n; }

bool vocab_has_text(const struct vocab *v, qn_token id)
{
    return vocab_is_valid(v, id) && v->lex.type[id] != TOKEN_UNUSED && lexicon_text(&v->lex, id).n;
}

bool vocab_is_eog(const struct vocab *v, qn_token id) { return is_in(v->roles.eog, v->roles.n_eog, id); }

const qn_token *vocab_eog(const struct vocab *v, int *n)
{
    *n = v->roles.n_eog;
    return v->roles.eog;
}

bool vocab_is_control(const struct vocab *v, qn_token id)
{
    return vocab_is_valid(v, id) && lexicon_is_control(&v->lex, id);
}

bool vocab_is_special(const struct vocab *v, qn_token id)
{
    return vocab_is_valid(v, id) && lexicon_is_special(&v->lex, id);
}

qn_token vocab_find(const struct vocab *v, const char *text, size_t n) { return lexicon_find(&v->lex, text, n); }

struct str vocab_token_text(const struct vocab *v, qn_token id) { return lexicon_text(&v->lex, id); }

/* ---- text -> ids ---- */

/* Encodes a stretch of text without special tokens. first: the stretch begins the whole text. space: one may be put
 * before it. */
static int encode_raw(const struct vocab *v, bool first, bool space, const char *text, size_t n, struct merge *scratch,
                      struct ids *out, struct qn_error *e)
{
    qn_token unk = v->roles.id[VOCAB_UNK];
    if (n == 0) return 0;
    return v->spm ? spm_encode(&v->lex, unk, v->add_space && space, text, n, scratch, out, e)
                  : bpe_encode(&v->bpe, unk, first && space, text, n, scratch, out, e);
}

size_t vocab_max_token_bytes(const struct vocab *v) { return v->lex.max_bytes; }

/* flags: VOCAB_ADD_BOS and VOCAB_ADD_EOS if they are to be added, and VOCAB_NO_SPACE. o says the rest. */
static int encode(const struct vocab *v, const char *text, size_t n, unsigned flags, const struct text_origin *o,
                  const struct qn_cancel *cancel, qn_token **ids, size_t *n_ids, struct qn_error *e)
{
    if (n >= 1u << 28) return error_set(e, QN_EUSAGE, "tokenizer: text of %zu bytes (limit %u)", n, (1u << 28) - 1);
    struct ids out = {0};
    struct merge scratch = {.wanted.cancel = cancel};
    int rc = 0;
    if (flags & VOCAB_ADD_BOS) rc = ids_push(&out, v->roles.id[VOCAB_BOS], e);
    for (size_t from = 0, at; rc == 0 && from < n;) {
        qn_token id = special_next(&v->special, text, n, from, o, &at);
        unsigned strip = v->strip && id >= 0 ? v->strip[id] : 0;
        size_t n_raw = at - from;
        if (strip & STRIP_LEFT) n_raw -= unicode_trailing_spaces((const uint8_t *)text + from, n_raw);
        rc = encode_raw(v, from == 0, from > 0 || !(flags & VOCAB_NO_SPACE), text + from, n_raw, &scratch, &out, e);
        from = at;
        if (id < 0) continue;
        if (rc == 0) rc = ids_push(&out, id, e);
        if (rc == 0) rc = wanted_after(&scratch.wanted, lexicon_text(&v->lex, id).n, e);
        from += lexicon_text(&v->lex, id).n;
        if (strip & STRIP_RIGHT) from += unicode_leading_spaces((const uint8_t *)text + from, n - from);
        if (v->eats_space && !is_in(v->keeps_space, 3, id))
            while (from < n && isascii(text[from]) && isspace((unsigned char)text[from])) from++;
    }
    if (rc == 0 && (flags & VOCAB_ADD_EOS)) rc = ids_push(&out, v->roles.id[VOCAB_EOS], e);
    merge_deinit(&scratch);
    if (rc) {
        mem_free(out.id);
        return rc;
    }
    *ids = out.id;
    *n_ids = out.n;
    return 0;
}

static bool wants_bos(const struct vocab *v) { return v->add_bos && v->roles.id[VOCAB_BOS] >= 0; }

int vocab_encode(const struct vocab *v, const char *text, size_t n, unsigned flags, qn_token **ids, size_t *n_ids,
                 struct qn_error *e)
{
    return vocab_encode_wanted(v, text, n, flags, NULL, ids, n_ids, e);
}

int vocab_encode_wanted(const struct vocab *v, const char *text, size_t n, unsigned flags,
                        const struct qn_cancel *cancel, qn_token **ids, size_t *n_ids, struct qn_error *e)
{
    const struct text_span all = {0, n};
    const struct text_origin o = {.user = &all,
                                  .n_user = n > 0 && !(flags & VOCAB_PARSE_SPECIAL),
                                  .allowed = &v->roles.id[VOCAB_FIM_PRE],
                                  .n_allowed = flags & VOCAB_PARSE_FIM ? VOCAB_N_ROLES - VOCAB_FIM_PRE : 0};
    if (!wants_bos(v)) flags &= ~(unsigned)VOCAB_ADD_BOS;
    if (!v->add_eos || v->roles.id[VOCAB_EOS] < 0) flags &= ~(unsigned)VOCAB_ADD_EOS;
    return encode(v, text, n, flags, &o, cancel, ids, n_ids, e);
}

int vocab_encode_chat(const struct vocab *v, const char *text, size_t n, const struct text_origin *o,
                      const struct qn_cancel *cancel, qn_token **ids, size_t *n_ids, struct qn_error *e)
{
    size_t at;
    bool written = special_next(&v->special, text, n, 0, o, &at) == v->roles.id[VOCAB_BOS] && at == 0;
    return encode(v, text, n, wants_bos(v) && !written ? VOCAB_ADD_BOS : 0, o, cancel, ids, n_ids, e);
}

/* ---- ids -> bytes ---- */

/* Appends the bytes of a byte-level token's text. A character outside the byte alphabet stays as it is. */
static int unmap_bytes(struct str s, struct buf *out, struct qn_error *e)
{
    int rc = buf_reserve(out, s.n, e);
    for (size_t i = 0; rc == 0 && i < s.n;) {
        uint32_t cp;
        bool cut;
        unsigned len = unicode_next((const uint8_t *)s.p + i, s.n - i, &cp, &cut);
        int byte = cp == UNICODE_BAD ? -1 : unicode_to_byte(cp);
        uint8_t b = (uint8_t)byte;
        rc = byte >= 0 ? buf_add(out, &b, 1, e) : buf_add(out, s.p + i, len, e);
        i += len;
    }
    return rc;
}

int vocab_token_bytes(const struct vocab *v, qn_token id, bool special, struct buf *out, struct qn_error *e)
{
    struct str s = lexicon_text(&v->lex, id);
    bool marked = v->spm || v->bpe.by_char;
    switch ((enum token_type)v->lex.type[id]) {
    case TOKEN_CONTROL:
    case TOKEN_UNKNOWN:
        if (!special && !is_in(v->roles.shown, v->roles.n_shown, id)) return 0;
        return buf_add(out, s.p, s.n, e);
    case TOKEN_BYTE: { /* lexicon_init made sure of the form <0xNN> */
        char hex[3] = {s.p[3], s.p[4], 0};
        uint8_t b = (uint8_t)strtoul(hex, NULL, 16);
        return buf_add(out, &b, 1, e);
    }
    case TOKEN_USER:
        if (!marked) return buf_add(out, s.p, s.n, e);
        break;
    case TOKEN_NORMAL:
    case TOKEN_UNUSED: break;
    }
    return marked ? unicode_unmark_spaces((const uint8_t *)s.p, s.n, out, e) : unmap_bytes(s, out, e);
}
