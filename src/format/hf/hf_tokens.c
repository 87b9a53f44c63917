/* SPDX-License-Identifier: MIT
 *
 * hf_tokens.c: collects the tokens of a folder, which several files name, in one list by id.
 *
 * model.vocab has the ordinary tokens, added_tokens those that are cut out of text before the model sees it, and
 * added_tokens_decoder of tokenizer_config.json those that were added later. An id must have one text and a text one
 * id; otherwise the folder is refused. Ids that nothing names stay holes: rows of the embedding that no text reaches.
 * Added tokens beyond vocab_size have no row, and are left out with a warning.
 *
 * An added token that is not called special but looks like a mark (`<|fim_prefix|>`, `<｜User｜>`) becomes a control
 * token too. It marks a turn, and text of a user must not become one. GGUF files of the same models do the same.
 */
#include "format/hf/hf_tokens.h"

#include <string.h>

#include "base/log.h"

/* The numbers of tokenizer.ggml.token_type. */
enum { NORMAL = 1, UNKNOWN = 2, CONTROL = 3, USER = 4, BYTE = 6 };

struct hf_adding {
    struct hf_tokens *t;
    const struct hf_pipeline *p;
    const char *unk;        /* the model's unknown token, or NULL */
    uint32_t n_rows;        /* vocab_size; 0: not known */
    uint32_t n_odd;         /* added tokens that the original's normalizer would change */
    uint32_t n_left;        /* added tokens left out: their ids are not below n_rows */
    const char *odd, *left; /* the first of each */
    struct qn_error *e;
};

void hf_tokens_deinit(struct hf_tokens *t)
{
    mem_free(t->id);
    names_deinit(&t->index);
    *t = (struct hf_tokens){0};
}

int64_t hf_tokens_find(const struct hf_tokens *t, const char *p, size_t n)
{
    uint32_t id;
    return n && names_find(&t->index, (struct str){p, n}, &id) ? (int64_t)id : -1;
}

/* ---- how many there are ---- */

static int check_id(const json_t *v, const char *text, uint32_t *max, struct qn_error *e)
{
    if (!json_is_integer(v))
        return error_set(e, QN_EDATA, "tokenizer.json: the id of token '%.100s' is no integer", text);
    json_int_t id = json_integer_value(v);
    if (id < 0 || id >= HF_MAX_TOKENS)
        return error_set(e, QN_EDATA, "tokenizer.json: token '%.100s' has id %lld (0 to %u)", text, (long long)id,
                         HF_MAX_TOKENS - 1);
    if ((uint32_t)id + 1 > *max) *max = (uint32_t)id + 1;
    return 0;
}

static const json_t *vocab_size_of(const json_t *config)
{
    const json_t *v = json_object_get(config, "vocab_size");
    return v ? v : json_object_get(json_object_get(config, "text_config"), "vocab_size");
}

/* ---- one token ---- */

static int put(struct hf_adding *a, const char *text, uint32_t id, uint8_t type, uint8_t strip)
{
    struct hf_tokens *t = a->t;
    struct hf_token *k = &t->id[id];
    size_t n = strlen(text);
    if (n > HF_MAX_TOKEN_BYTES)
        return error_set(a->e, QN_EDATA, "tokenizer.json: token %u has %zu bytes (limit %u)", id, n,
                         HF_MAX_TOKEN_BYTES);
    if (k->text.p)
        return error_set(a->e, QN_EDATA, "tokenizer.json: '%.100s' and '%.100s' both have the id %u", k->text.p, text,
                         id);
    if (!names_add(&t->index, (struct str){text, n}, id))
        return error_set(a->e, QN_EDATA, "tokenizer.json: token '%.100s' has the ids %lld and %u", text,
                         (long long)hf_tokens_find(t, text, n), id);
    *k = (struct hf_token){{text, n}, type, strip};
    if (n > t->max_bytes) t->max_bytes = (uint32_t)n;
    return 0;
}

static bool is_byte_text(const char *s)
{
    static const char hex[] = "0123456789ABCDEF";
    return strlen(s) == 6 && !memcmp(s, "<0x", 3) && strchr(hex, s[3]) && strchr(hex, s[4]) && s[5] == '>';
}

static int put_vocab(struct hf_adding *a, const json_t *vocab)
{
    const char *text;
    json_t *v;
    json_object_foreach((json_t *)vocab, text, v)
    {
        uint32_t id = (uint32_t)json_integer_value(v);
        bool byte = !a->p->byte_level && is_byte_text(text);
        if (a->n_rows && id >= a->n_rows)
            return error_set(a->e, QN_EDATA,
                             "tokenizer.json: token '%.100s' has id %u, but config.json's vocab_size is %u", text, id,
                             a->n_rows);
        int rc = put(a, text, id, byte ? BYTE : NORMAL, 0);
        if (rc) return rc;
    }
    return 0;
}

static bool begins_and_ends(const char *s, size_t n, const char *first, const char *last)
{
    size_t nf = strlen(first), nl = strlen(last);
    return n > nf + nl && !memcmp(s, first, nf) && !memcmp(s + n - nl, last, nl);
}

/* Decides the type of an added token. */
static uint8_t added_type(const struct hf_adding *a, const char *text, size_t n, bool special)
{
    if (special && a->unk && !strcmp(text, a->unk)) return UNKNOWN;
    if (special || begins_and_ends(text, n, "<|", "|>") || begins_and_ends(text, n, "<｜", "｜>")) return CONTROL;
    return USER;
}

static int flag_of(const json_t *o, const char *key, bool *out, struct qn_error *e)
{
    const json_t *v = json_object_get(o, key);
    if (v && !json_is_boolean(v)) return error_set(e, QN_EDATA, "tokenizer.json: added token: %s is no bool", key);
    *out = json_is_true(v);
    return 0;
}

/* An entry of added_tokens, or of added_tokens_decoder. */
struct hf_added {
    const char *text;
    size_t n; /* bytes of text */
    bool is_special, is_word, is_normalized;
    uint8_t strip; /* HF_STRIP_* */
};

static int read_added(struct hf_adding *a, const json_t *o, uint32_t id, struct hf_added *out)
{
    struct hf_added x = {.text = json_string_value(json_object_get(o, "content"))};
    bool left = false, right = false;
    x.n = x.text ? strlen(x.text) : 0;
    if (x.n == 0) return error_set(a->e, QN_EDATA, "tokenizer.json: added token %u has no content", id);
    int rc = flag_of(o, "special", &x.is_special, a->e);
    if (!rc) rc = flag_of(o, "lstrip", &left, a->e);
    if (!rc) rc = flag_of(o, "rstrip", &right, a->e);
    if (!rc) rc = flag_of(o, "single_word", &x.is_word, a->e);
    if (!rc) rc = flag_of(o, "normalized", &x.is_normalized, a->e);
    if (left) x.strip |= HF_STRIP_LEFT;
    if (right) x.strip |= HF_STRIP_RIGHT;
    *out = x;
    return rc;
}

/* later: the entry comes from tokenizer_config.json, and counts only if tokenizer.json has neither its text nor its
 * id. */
static int put_added(struct hf_adding *a, const json_t *o, uint32_t id, bool later)
{
    struct hf_tokens *t = a->t;
    struct hf_added x = {0};
    int rc = read_added(a, o, id, &x);
    if (rc) return rc;
    int64_t known = hf_tokens_find(t, x.text, x.n);
    if (later && (known >= 0 || (id < t->n && t->id[id].text.p))) return 0;
    if (a->n_rows && id >= a->n_rows && known < 0) {
        if (a->n_left == 0) a->left = x.text;
        a->n_left++;
        return 0;
    }
    if (x.is_word)
        return error_set(a->e, QN_EUNSUP, "tokenizer.json: added token '%.100s': single_word is not supported", x.text);
    if (x.is_normalized && a->p->prefix == HF_PREFIX_EACH) {
        if (a->n_odd == 0) a->odd = x.text;
        a->n_odd++;
    }
    uint8_t type = added_type(a, x.text, x.n, x.is_special);
    if (known != (int64_t)id) return put(a, x.text, id, type, x.strip);
    struct hf_token *k = &t->id[id];
    if (k->type != BYTE) k->type = type;
    k->strip = x.strip;
    return 0;
}

/* Reads the id of an entry of added_tokens_decoder, which is the entry's name. */
static bool id_of_name(const char *s, uint32_t *id)
{
    uint32_t x = 0;
    if (!*s || strlen(s) > 7) return false;
    for (; *s >= '0' && *s <= '9'; s++) x = x * 10 + (uint32_t)(*s - '0');
    *id = x;
    return *s == 0 && x < HF_MAX_TOKENS;
}

static int put_decoder(struct hf_adding *a, const json_t *decoder)
{
    const char *name;
    json_t *o;
    json_object_foreach((json_t *)decoder, name, o)
    {
        uint32_t id;
        if (!id_of_name(name, &id))
            return error_set(a->e, QN_EDATA, "tokenizer_config.json: added_tokens_decoder: '%.40s' is no token id",
                             name);
        int rc = put_added(a, o, id, true);
        if (rc) return rc;
    }
    return 0;
}

/* ---- all of them ---- */

/* Checks all ids, so that later code need not. *n: one more than the largest. */
static int count(const json_t *vocab, const json_t *added, const json_t *decoder, uint32_t *n, struct qn_error *e)
{
    const char *text;
    json_t *v;
    size_t i;
    int rc = 0;
    json_object_foreach((json_t *)vocab, text, v) if ((rc = check_id(v, text, n, e))) return rc;
    json_array_foreach(added, i, v)
    {
        const char *content = json_string_value(json_object_get(v, "content"));
        if (!content) return error_set(e, QN_EDATA, "tokenizer.json: added_tokens: number %zu has no content", i + 1);
        if ((rc = check_id(json_object_get(v, "id"), content, n, e))) return rc;
    }
    json_object_foreach((json_t *)decoder, text, v)
    {
        uint32_t id;
        if (id_of_name(text, &id) && id + 1 > *n) *n = id + 1;
    }
    return 0;
}

static int read_all(struct hf_adding *a, const json_t *vocab, const json_t *added, const json_t *decoder)
{
    const json_t *o;
    size_t i;
    int rc = put_vocab(a, vocab);
    json_array_foreach(added, i, o)
    {
        if (rc) return rc;
        rc = put_added(a, o, (uint32_t)json_integer_value(json_object_get(o, "id")), false);
    }
    if (!rc) rc = put_decoder(a, decoder);
    if (a->n_left)
        log_at(LOG_WARN,
               "tokenizer.json: %u added tokens, first '%.100s', lie beyond config.json's vocab_size %u and are "
               "left out",
               a->n_left, a->left, a->n_rows);
    if (a->n_odd)
        log_at(LOG_WARN,
               "tokenizer.json: %u added tokens, first '%.100s', are 'normalized' by what puts a space in front: "
               "they are found without it here",
               a->n_odd, a->odd);
    return rc;
}

int hf_tokens_read(struct hf_tokens *t, const struct hf_files *f, const struct hf_pipeline *p, struct qn_error *e)
{
    const json_t *model = json_object_get(f->tokenizer, "model"), *vocab = json_object_get(model, "vocab");
    const json_t *added = json_object_get(f->tokenizer, "added_tokens");
    const json_t *decoder = json_object_get(f->config, "added_tokens_decoder"), *size = vocab_size_of(f->model_config);
    struct hf_adding a = {.t = t, .p = p, .e = e, .unk = json_string_value(json_object_get(model, "unk_token"))};
    *t = (struct hf_tokens){0};
    if (!json_is_object(vocab) || json_object_size(vocab) == 0)
        return error_set(e, QN_EDATA, "tokenizer.json: model.vocab is no object with tokens");
    if (added && !json_is_null(added) && !json_is_array(added))
        return error_set(e, QN_EDATA, "tokenizer.json: added_tokens is no list");
    if (size && (!json_is_integer(size) || json_integer_value(size) < 1 || json_integer_value(size) > HF_MAX_TOKENS))
        return error_set(e, QN_EDATA, "config.json: vocab_size is no integer from 1 to %u", HF_MAX_TOKENS);
    int rc = count(vocab, added, decoder, &t->n, e);
    if (rc) return rc;
    if (size) a.n_rows = (uint32_t)json_integer_value(size);
    if (a.n_rows > t->n) t->n = a.n_rows;
    t->id = mem_calloc(t->n, sizeof *t->id);
    if (!t->id) return error_nomem(e, "token list", t->n * sizeof *t->id);
    size_t n_names = json_object_size(vocab) + json_array_size(added) + json_object_size(decoder);
    if ((rc = names_init(&t->index, n_names, e)) || (rc = read_all(&a, vocab, added, decoder))) return rc;
    if (a.n_rows) t->n = a.n_rows;
    return 0;
}
