/* SPDX-License-Identifier: MIT
 *
 * hf_tokenizer.c: turns tokenizer.json, and the files that belong to it, into the keys of a GGUF file.
 *
 * The text layer knows one description of a tokenizer, the keys `tokenizer.*`. Here the files of a folder become that
 * description: tokens by id, merges in order, the name of the patterns, roles, templates. Facts that change ids and for
 * which GGUF has no key go under `tokenizer.quern.*` (docs/TOKENIZERS.md lists them).
 *
 * Only BPE is supported: over bytes (`gpt2`), and over characters with byte tokens for the rest (`char-bpe`), which is
 * how folders write SentencePiece vocabularies. The latter keep their merges. GGUF files of such models have scores
 * made of ranks instead, which give the same ids almost always; merges always do.
 *
 * Merges are checked as the original does: both parts and the result must be tokens. A merge whose left part has a
 * space is left out, because no text in either alphabet has one. So the space between the parts is unambiguous.
 *
 * Source: the format of the tokenizers library (tokenizer.json, version 1.0) and of transformers (the other files).
 * Unigram, WordPiece and WordLevel models, tokenizer.model, dropout, truncation and padding are not supported.
 */
#include "format/hf/hf_tokenizer.h"

#include <stdio.h>
#include <string.h>

#include "format/hf/hf_json.h"
#include "format/hf/hf_tokens.h"

enum { UNUSED = 5 };

/* ---- the model ---- */

static bool has_text(const json_t *model, const char *key)
{
    const char *s = json_string_value(json_object_get(model, key));
    return s && *s;
}

static int check_type(const json_t *model, struct qn_error *e)
{
    const char *type = json_string_value(json_object_get(model, "type"));
    if (!json_is_object(model)) return error_set(e, QN_EDATA, "tokenizer.json: no model");
    if (!type) type = json_object_get(model, "merges") ? "BPE" : "without a type"; /* old files */
    if (strcmp(type, "BPE") == 0) return 0;
    return error_set(e, QN_EUNSUP, "tokenizer.json: model %.60s is not supported (BPE is)", type);
}

static int check_model(const json_t *model, const struct hf_pipeline *p, struct qn_error *e)
{
    const json_t *dropout = json_object_get(model, "dropout");
    if (json_is_number(dropout) && json_number_value(dropout) != 0)
        return error_set(e, QN_EUNSUP, "tokenizer.json: model: dropout is not supported");
    if (has_text(model, "continuing_subword_prefix") || has_text(model, "end_of_word_suffix"))
        return error_set(e, QN_EUNSUP, "tokenizer.json: model: prefixes and suffixes of words are not supported");
    bool fallback = json_is_true(json_object_get(model, "byte_fallback"));
    bool fuse = json_is_true(json_object_get(model, "fuse_unk")) && has_text(model, "unk_token");
    if (p->byte_level && (fallback || fuse))
        return error_set(e, QN_EUNSUP, "tokenizer.json: model: %s with ByteLevel is not supported",
                         fallback ? "byte_fallback" : "fuse_unk");
    if (!p->byte_level && !fallback)
        return error_set(e, QN_EUNSUP, "tokenizer.json: model: neither ByteLevel nor byte_fallback: not supported");
    if (!p->byte_level && json_is_true(json_object_get(model, "ignore_merges")))
        return error_set(e, QN_EUNSUP, "tokenizer.json: model: ignore_merges without ByteLevel is not supported");
    return 0;
}

/* With byte_fallback every byte needs a token, unless it is a character that has one (Gemma's tab). Implementations
 * differ in what they do when a byte has no token. */
static int check_bytes(const struct hf_tokens *t, struct qn_error *e)
{
    for (unsigned i = 0; i <= 0xF4; i++) {
        char text[8], self = (char)i;
        snprintf(text, sizeof text, "<0x%02X>", i);
        if (i == 0xC0 || i == 0xC1 || hf_tokens_find(t, text, 6) >= 0) continue;
        if (i >= 0x80 || hf_tokens_find(t, &self, 1) < 0)
            return error_set(e, QN_EUNSUP, "tokenizer.json: model: byte_fallback, but there is no token '%s'", text);
    }
    return 0;
}

/* ---- merges ---- */

struct merging {
    const struct hf_tokens *t;
    struct meta_build *b;
    struct names seen; /* the pairs so far, in `text` */
    char *text;        /* of all pairs, "left right" each */
    size_t n_text;
    bool byte_level;
    struct qn_error *e;
};

struct pair {
    struct str left, right;
};

static bool cut_pair(const json_t *o, struct pair *p)
{
    const char *s = json_string_value(o), *sp;
    if (s) { /* "left right" */
        sp = *s ? strchr(s + 1, ' ') : NULL;
        if (!sp || strchr(sp + 1, ' ')) return false;
        *p = (struct pair){{s, (size_t)(sp - s)}, {sp + 1, strlen(sp + 1)}};
    } else {
        const json_t *l = json_array_get(o, 0), *r = json_array_get(o, 1);
        if (json_array_size(o) != 2 || !json_is_string(l) || !json_is_string(r)) return false;
        *p =
            (struct pair){{json_string_value(l), json_string_length(l)}, {json_string_value(r), json_string_length(r)}};
    }
    return p->left.n && p->right.n;
}

/* The length of the pair as text; 0 when it is not a pair. */
static size_t pair_bytes(const json_t *o)
{
    struct pair p;
    return cut_pair(o, &p) ? p.left.n + p.right.n + 1 : 0;
}

static bool is_byte_token(const struct merging *m, int64_t id) { return !m->byte_level && m->t->id[id].type == 6; }

/* The length of a text for "%.*s": it may be longer than a line. */
static int shown(struct str s) { return (int)(s.n < 60 ? s.n : 60); }

static int put_merge(struct merging *m, size_t no, const json_t *o)
{
    struct pair p;
    char *text = m->text + m->n_text;
    if (!cut_pair(o, &p))
        return error_set(m->e, QN_EDATA, "tokenizer.json: merges: number %zu is not a pair of texts", no);
    size_t n = p.left.n + p.right.n;
    memcpy(text, p.left.p, p.left.n);
    memcpy(text + p.left.n, p.right.p, p.right.n); /* without the space, to look the result up */
    int64_t l = hf_tokens_find(m->t, p.left.p, p.left.n), r = hf_tokens_find(m->t, p.right.p, p.right.n);
    if (l < 0 || r < 0 || hf_tokens_find(m->t, text, n) < 0)
        return error_set(m->e, QN_EDATA,
                         "tokenizer.json: merges: number %zu, '%.*s' and '%.*s', does not join two tokens "
                         "into a third",
                         no, shown(p.left), p.left.p, shown(p.right), p.right.p);
    if (is_byte_token(m, l) || is_byte_token(m, r))
        return error_set(m->e, QN_EUNSUP, "tokenizer.json: merges: number %zu joins byte tokens: not supported", no);
    if (memchr(p.left.p + 1, ' ', p.left.n - 1)) return 0;
    memmove(text + p.left.n + 1, text + p.left.n, p.right.n);
    text[p.left.n] = ' ';
    if (!names_add(&m->seen, (struct str){text, n + 1}, 0))
        return error_set(m->e, QN_EDATA, "tokenizer.json: merges: number %zu, '%.*s', is there twice", no,
                         shown((struct str){text, n + 1}), text);
    m->n_text += n + 1;
    return meta_build_add_str(m->b, text, n + 1, m->e);
}

static int put_merges(struct meta_build *b, const json_t *model, const struct hf_tokens *t, bool byte_level,
                      struct qn_error *e)
{
    const json_t *list = json_object_get(model, "merges"), *o;
    struct merging m = {.t = t, .b = b, .byte_level = byte_level, .e = e};
    size_t i, bytes = 1;
    if (!json_is_array(list)) return error_set(e, QN_EDATA, "tokenizer.json: model.merges is no list");
    if (json_array_size(list) > HF_MAX_TOKENS)
        return error_set(e, QN_EDATA, "tokenizer.json: model.merges has %zu entries (limit %u)", json_array_size(list),
                         HF_MAX_TOKENS);
    json_array_foreach(list, i, o) bytes += pair_bytes(o);
    int rc = names_init(&m.seen, json_array_size(list), e);
    if (!rc && !(m.text = mem_alloc(bytes))) rc = error_nomem(e, "tokenizer merges", bytes);
    if (!rc) rc = meta_build_array(b, "tokenizer.ggml.merges", MT_STRING, e);
    json_array_foreach(list, i, o)
    {
        if (rc) break;
        rc = put_merge(&m, i + 1, o);
    }
    mem_free(m.text);
    names_deinit(&m.seen);
    return rc;
}

/* ---- the lists ---- */

static int put_tokens(struct meta_build *b, const struct hf_tokens *t, struct qn_error *e)
{
    int rc = meta_build_array(b, "tokenizer.ggml.tokens", MT_STRING, e);
    for (uint32_t id = 0; !rc && id < t->n; id++) {
        struct str s = t->id[id].text;
        char hole[24];
        if (!s.p) s = (struct str){hole, (size_t)snprintf(hole, sizeof hole, "[PAD%u]", id)};
        rc = meta_build_add_str(b, s.p, s.n, e);
    }
    if (!rc) rc = meta_build_array(b, "tokenizer.ggml.token_type", MT_I32, e);
    for (uint32_t id = 0; !rc && id < t->n; id++)
        rc = meta_build_add_i32(b, t->id[id].text.p ? t->id[id].type : UNUSED, e);
    return rc;
}

static int put_strips(struct meta_build *b, const struct hf_tokens *t, const char *key, unsigned side,
                      struct qn_error *e)
{
    int rc = 0;
    bool any = false;
    for (uint32_t id = 0; !rc && id < t->n; id++) {
        if (!(t->id[id].strip & side)) continue;
        if (!any) rc = meta_build_array(b, key, MT_I32, e);
        any = true;
        if (!rc) rc = meta_build_add_i32(b, (int32_t)id, e);
    }
    return rc;
}

static int put_str(struct meta_build *b, const char *key, const char *s, struct qn_error *e)
{
    return meta_build_str(b, key, s, strlen(s), e);
}

static int put_flags(struct meta_build *b, const json_t *model, const struct hf_pipeline *p, struct qn_error *e)
{
    int rc = put_str(b, "tokenizer.ggml.model", p->byte_level ? "gpt2" : "char-bpe", e);
    if (!rc) rc = put_str(b, "tokenizer.ggml.pre", p->pre, e);
    if (!rc) rc = put_str(b, "tokenizer.quern.source", "tokenizer.json", e);
    if (!rc && p->byte_level) rc = meta_build_bool(b, "tokenizer.quern.nfc", p->nfc, e);
    if (!rc && p->byte_level)
        rc = meta_build_bool(b, "tokenizer.quern.ignore_merges", json_is_true(json_object_get(model, "ignore_merges")),
                             e);
    if (!rc && !p->byte_level) rc = put_str(b, "tokenizer.quern.space_prefix", hf_prefix_names[p->prefix], e);
    return rc;
}

int hf_tokenizer_put(struct meta_build *b, const char *dir, const struct hf_files *f, struct qn_error *e)
{
    const json_t *model = json_object_get(f->tokenizer, "model");
    struct hf_pipeline p;
    struct hf_tokens t = {0};
    int rc = check_type(model, e);
    if (rc || (rc = hf_pipeline_read(&p, f->tokenizer, e)) || (rc = check_model(model, &p, e))) return rc;
    rc = hf_tokens_read(&t, f, &p, e);
    if (!rc && !p.byte_level) rc = check_bytes(&t, e);
    if (!rc) rc = put_flags(b, model, &p, e);
    if (!rc) rc = put_tokens(b, &t, e);
    if (!rc) rc = put_merges(b, model, &t, p.byte_level, e);
    if (!rc) rc = put_strips(b, &t, "tokenizer.quern.strip_left", HF_STRIP_LEFT, e);
    if (!rc) rc = put_strips(b, &t, "tokenizer.quern.strip_right", HF_STRIP_RIGHT, e);
    if (!rc) rc = hf_roles_put(b, &t, f, &p, e);
    if (!rc) rc = hf_templates_put(b, dir, f, e);
    hf_tokens_deinit(&t);
    return rc;
}

int hf_tokenizer_meta(struct meta_build *b, const char *dir, const json_t *config, struct qn_error *e)
{
    struct hf_files f = {.model_config = config};
    int rc = hf_json_read(&f.tokenizer, dir, "tokenizer.json", HF_TOKENIZER_BYTES, true, e);
    if (!rc) rc = hf_json_read(&f.config, dir, "tokenizer_config.json", HF_CONFIG_BYTES, false, e);
    if (!rc) rc = hf_json_read(&f.special_map, dir, "special_tokens_map.json", HF_CONFIG_BYTES, false, e);
    if (!rc) rc = hf_json_read(&f.generation, dir, "generation_config.json", HF_CONFIG_BYTES, false, e);
    if (!rc) rc = hf_tokenizer_put(b, dir, &f, e);
    json_decref(f.tokenizer);
    json_decref(f.config);
    json_decref(f.special_map);
    json_decref(f.generation);
    return rc;
}
