/* SPDX-License-Identifier: MIT
 *
 * hf_pipeline.c: recognises the pipeline of a tokenizer.json as one of those that the text layer has.
 *
 * A tokenizer.json spells its pipeline out: normalizers, then pre-tokenizers with regular expressions, and so on. Each
 * is a small program of a library that has about fifty. Here a pipeline is not run but recognised. It is one of two
 * kinds: byte-level (patterns of the table below, then bytes as characters), or over characters (U+2581 for spaces).
 * Any part that would change a token and is not known is refused by name.
 *
 * Patterns are compared as text. Two spellings with the same meaning must both be in the table. An unknown pattern is
 * not run by an engine of ours, because nobody could be sure that it has the same matches.
 *
 * Source: the components that the tokenizers library documents (crate `tokenizers`, modules normalizers,
 * pre_tokenizers, processors, decoders). The vocabulary and the added tokens are read in hf_tokenizer.c.
 */
#include "format/hf/hf_pipeline.h"

#include <string.h>

const char *const hf_prefix_names[] = {"none", "each", "missing", "first"};

#define MARK "\xE2\x96\x81" /* U+2581 */

/* ---- the pre-tokenizers there are ---- */

#define MAX_STEPS 8

#define CONTRACTION_I "(?i:'s|'t|'re|'ve|'m|'ll|'d)"
#define SPACES        "\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+"
#define OTHERS        " ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|"
#define WORD          "[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|"
#define UPPER         "[\\p{Lu}\\p{Lt}\\p{Lm}\\p{Lo}\\p{M}]"
#define LOWER         "[\\p{Ll}\\p{Lm}\\p{Lo}\\p{M}]"
#define CASED(after)                                                                                                   \
    "[^\\r\\n\\p{L}\\p{N}]?" UPPER "*" LOWER "+" after "|[^\\r\\n\\p{L}\\p{N}]?" UPPER "+" LOWER "*" after "|"
#define OTHERS_SLASH " ?[^\\s\\p{L}\\p{N}]+[\\r\\n/]*|"
#define HAN_HANGUL   "[一-龥ࠀ-一가-퟿]+"

/* Steps that a file does not write as patterns. */
#define GPT2_STEP                                                                                                      \
    "'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| ?[^\\s\\p{L}\\p{N}]+|\\s+(?!\\S)|\\s+" /* ByteLevel's                \
                                                                                          */
#define DIGIT  "\\p{N}"                                                                  /* Digits, one by one */
#define DIGITS "\\p{N}+"                                                                 /* Digits, runs */

static const struct {
    const char *pre; /* the name of these patterns in text/token/pretok_table.c */
    const char *step[MAX_STEPS];
} known[] = {
    {"gpt-2", {GPT2_STEP}},
    {"smollm", {DIGIT, GPT2_STEP}},
    {"llama-bpe", {CONTRACTION_I "|" WORD "\\p{N}{1,3}|" OTHERS SPACES}},
    {"qwen2", {CONTRACTION_I "|" WORD "\\p{N}|" OTHERS SPACES}},
    {"qwen35",
     {CONTRACTION_I "|[^\\r\\n\\p{L}\\p{N}]?[\\p{L}\\p{M}]+|\\p{N}| ?[^\\s\\p{L}\\p{M}\\p{N}]+[\\r\\n]*|" SPACES}},
    {"seed-coder", {CONTRACTION_I "|" WORD "\\p{N}{1}| ?[^\\s\\p{L}\\p{N}\\r\\n]+|" SPACES}},
    {"bailingmoe",
     {"'(?i:[sdmt]|ll|ve|re)|[^\\r\\n\\p{L}\\p{N}]?+\\p{L}+|\\p{N}| ?[^\\s\\p{L}\\p{N}]++[\\r\\n]*|\\s*[\\r\\n]|"
      "\\s+(?!\\S)|\\s+"}},
    {"tekken", {CASED("") "\\p{N}|" OTHERS_SLASH SPACES}},
    {"gpt-4o", {CASED(CONTRACTION_I "?") "\\p{N}{1,3}|" OTHERS_SLASH SPACES}},
    {"deepseek-v3",
     {"\\p{N}{1,3}", "[一-龥぀-ゟ゠-ヿ]+",
      "[!\"#$%&'()*+,\\-./:;<=>?@\\[\\\\\\]^_`{|}~][A-Za-z]+|[^\\r\\n\\p{L}\\p{P}\\p{S}]?[\\p{L}\\p{M}]+|"
      " ?[\\p{P}\\p{S}]+[\\r\\n]*|" SPACES}},
    {"deepseek-coder", {"[\\r\\n]", "\\s?\\p{L}+", "\\s?\\p{P}+", HAN_HANGUL, DIGIT}},
    {"bloom", {" ?[^(\\s|[.,!?…。，、।۔،])]+"}},
};

struct hf_steps {
    const char *pattern[MAX_STEPS];
    int n;
    bool removed; /* one of them removes the gaps between its matches */
};

/* Whether the file's pattern is this one. The file may write line breaks and tabs as they are or escaped. */
static bool same_pattern(const char *file, const char *ours)
{
    for (; *file; file++) {
        if (*file == '\r' || *file == '\n' || *file == '\t') {
            char c = *file == '\r' ? 'r' : *file == '\n' ? 'n' : 't';
            if (ours[0] != '\\' || ours[1] != c) return false;
            ours += 2;
        } else if (*file != *ours++) {
            return false;
        }
    }
    return *ours == 0;
}

static const char *find_known(const struct hf_steps *s)
{
    for (size_t i = 0; i < sizeof known / sizeof known[0]; i++) {
        int n = 0;
        while (n < s->n && known[i].step[n] && same_pattern(s->pattern[n], known[i].step[n])) n++;
        if (n == s->n && (n == MAX_STEPS || !known[i].step[n])) return known[i].pre;
    }
    return NULL;
}

/* ---- reading ---- */

struct hf_reading {
    struct hf_pipeline *p;
    struct hf_steps steps;
    bool marks_spaces; /* a space becomes U+2581 */
    bool byte_level, metaspace;
    struct qn_error *e;
};

static int refuse(struct hf_reading *r, const char *part, const char *type, const char *why)
{
    return error_set(r->e, QN_EUNSUP, "tokenizer.json: %s %s%s%s is not supported", part, type, *why ? " " : "", why);
}

static int bad_type(struct hf_reading *r, const char *part)
{
    return error_set(r->e, QN_EDATA, "tokenizer.json: %s is not an object with a type", part);
}

static const char *str_of(const json_t *o, const char *key) { return json_string_value(json_object_get(o, key)); }

/* Reads a bool that may be missing. */
static bool bool_of(const json_t *o, const char *key, bool missing)
{
    const json_t *v = json_object_get(o, key);
    return json_is_boolean(v) ? json_is_true(v) : missing;
}

typedef int part_reader(struct hf_reading *r, const char *type, const json_t *o);

/* Reads a part, which may be null or a Sequence of parts. */
static int each(struct hf_reading *r, const char *part, const char *list, const json_t *o, part_reader *read)
{
    if (!o || json_is_null(o)) return 0;
    const char *type = str_of(o, "type");
    if (!type) return bad_type(r, part);
    if (strcmp(type, "Sequence") != 0) return read(r, type, o);
    const json_t *parts = json_object_get(o, list), *one;
    size_t i;
    if (!json_is_array(parts))
        return error_set(r->e, QN_EDATA, "tokenizer.json: %s Sequence has no list %s", part, list);
    json_array_foreach(parts, i, one)
    {
        int rc = json_is_object(one) ? each(r, part, list, one, read) : bad_type(r, part);
        if (rc) return rc;
    }
    return 0;
}

static int read_normalizer(struct hf_reading *r, const char *type, const json_t *o)
{
    if (!strcmp(type, "NFC")) {
        r->p->nfc = true;
        return 0;
    }
    if (!strcmp(type, "Prepend")) {
        const char *what = str_of(o, "prepend");
        if (!what || strcmp(what, MARK) != 0) return refuse(r, "normalizer", type, "of anything but U+2581");
        if (r->p->prefix == HF_PREFIX_EACH) return refuse(r, "normalizer", type, "twice");
        r->p->prefix = HF_PREFIX_EACH;
        return 0;
    }
    if (!strcmp(type, "Replace")) {
        const char *what = str_of(json_object_get(o, "pattern"), "String"), *by = str_of(o, "content");
        if (!what || !by || strcmp(what, " ") != 0 || strcmp(by, MARK) != 0)
            return refuse(r, "normalizer", type, "of anything but spaces by U+2581");
        r->marks_spaces = true;
        return 0;
    }
    return refuse(r, "normalizer", type, "");
}

static int add_step(struct hf_reading *r, const char *part, const char *pattern)
{
    if (r->byte_level) return refuse(r, part, "after ByteLevel", "");
    if (r->metaspace) return refuse(r, part, "after Metaspace", "");
    if (r->steps.n == MAX_STEPS)
        return error_set(r->e, QN_EUNSUP, "tokenizer.json: more than %d pre-tokenizers are not supported", MAX_STEPS);
    r->steps.pattern[r->steps.n++] = pattern;
    return 0;
}

static int read_split(struct hf_reading *r, const json_t *o)
{
    const json_t *pattern = json_object_get(o, "pattern");
    const char *regex = str_of(pattern, "Regex"), *string = str_of(pattern, "String"), *how = str_of(o, "behavior");
    bool invert = bool_of(o, "invert", false);
    if ((!regex && !string) || !how)
        return error_set(r->e, QN_EDATA, "tokenizer.json: pre_tokenizer Split without a pattern or a behavior");
    /* Gemma cuts at spaces, and its normalizer has left none. */
    if (string && !strcmp(string, " ") && r->marks_spaces && !invert) return 0;
    if (string) return refuse(r, "pre_tokenizer Split by the text", string, "");
    if (!strcmp(how, "Removed") && invert)
        r->steps.removed = true; /* where every character is in some match, none is removed */
    else if (strcmp(how, "Isolated") != 0 || invert)
        return refuse(r, "pre_tokenizer Split with behavior", how, invert ? "inverted" : "");
    return add_step(r, "pre_tokenizer Split", regex);
}

static int read_metaspace(struct hf_reading *r, const json_t *o)
{
    const char *mark = str_of(o, "replacement"), *scheme = str_of(o, "prepend_scheme");
    if (!mark || strcmp(mark, MARK) != 0)
        return refuse(r, "pre_tokenizer Metaspace", "with a mark other than U+2581", "");
    if (!scheme) scheme = bool_of(o, "add_prefix_space", true) ? "always" : "never"; /* files before 2024 */
    enum hf_prefix prefix = !strcmp(scheme, "always")  ? HF_PREFIX_MISSING
                            : !strcmp(scheme, "first") ? HF_PREFIX_FIRST
                                                       : HF_PREFIX_NONE;
    if (prefix == HF_PREFIX_NONE && strcmp(scheme, "never") != 0)
        return refuse(r, "pre_tokenizer Metaspace with prepend_scheme", scheme, "");
    if (r->metaspace || r->byte_level || r->steps.n)
        return refuse(r, "pre_tokenizer Metaspace", "after another one", "");
    if (r->p->prefix == HF_PREFIX_NONE) r->p->prefix = prefix; /* what Prepend put in front is not missing */
    r->p->pre = bool_of(o, "split", true) ? "metaspace" : "whole";
    r->metaspace = r->marks_spaces = true;
    return 0;
}

static int read_pre_tokenizer(struct hf_reading *r, const char *type, const json_t *o)
{
    if (!strcmp(type, "Split")) return read_split(r, o);
    if (!strcmp(type, "Metaspace")) return read_metaspace(r, o);
    if (!strcmp(type, "Digits"))
        return add_step(r, "pre_tokenizer Digits", bool_of(o, "individual_digits", false) ? DIGIT : DIGITS);
    if (strcmp(type, "ByteLevel") != 0) return refuse(r, "pre_tokenizer", type, "");
    if (bool_of(o, "add_prefix_space", true)) return refuse(r, "pre_tokenizer ByteLevel", "with add_prefix_space", "");
    int rc = bool_of(o, "use_regex", true) ? add_step(r, "pre_tokenizer ByteLevel", GPT2_STEP) : 0;
    if (rc == 0 && (r->byte_level || r->metaspace)) rc = refuse(r, "pre_tokenizer ByteLevel", "after another one", "");
    r->byte_level = true;
    return rc;
}

/* ---- what is put around a text ---- */

static int add_around(struct hf_reading *r, int64_t *ids, int *n, const json_t *id)
{
    if (!json_is_integer(id))
        return error_set(r->e, QN_EDATA, "tokenizer.json: TemplateProcessing: the id of a special token is no integer");
    if (*n == HF_MAX_AROUND)
        return error_set(r->e, QN_EUNSUP, "tokenizer.json: TemplateProcessing puts more than %d tokens around a text",
                         HF_MAX_AROUND);
    ids[(*n)++] = json_integer_value(id);
    return 0;
}

static int read_template(struct hf_reading *r, const json_t *o)
{
    const json_t *single = json_object_get(o, "single"), *tokens = json_object_get(o, "special_tokens"), *one, *id;
    bool has_text = false;
    size_t i, k;
    if (!json_is_array(single)) return error_set(r->e, QN_EDATA, "tokenizer.json: TemplateProcessing without single");
    if (r->p->has_template) return refuse(r, "post_processor TemplateProcessing", "twice", "");
    r->p->has_template = true;
    json_array_foreach(single, i, one)
    {
        if (json_object_get(one, "Sequence")) {
            if (has_text) return refuse(r, "post_processor TemplateProcessing", "with a text twice", "");
            has_text = true;
            continue;
        }
        const char *name = str_of(json_object_get(one, "SpecialToken"), "id");
        const json_t *ids = name ? json_object_get(json_object_get(tokens, name), "ids") : NULL;
        if (!json_is_array(ids))
            return error_set(r->e, QN_EDATA, "tokenizer.json: TemplateProcessing: special token '%.60s' is not there",
                             name ? name : "");
        json_array_foreach(ids, k, id)
        {
            int rc = has_text ? add_around(r, r->p->after, &r->p->n_after, id)
                              : add_around(r, r->p->before, &r->p->n_before, id);
            if (rc) return rc;
        }
    }
    return has_text ? 0 : error_set(r->e, QN_EDATA, "tokenizer.json: TemplateProcessing without the text itself");
}

static int read_post_processor(struct hf_reading *r, const char *type, const json_t *o)
{
    if (!strcmp(type, "ByteLevel")) return 0; /* offsets only */
    if (!strcmp(type, "TemplateProcessing")) return read_template(r, o);
    return refuse(r, "post_processor", type, "");
}

/* The decoder is not used (text/token/detok.c decodes). This only checks that it is the expected one. */
static int read_decoder(struct hf_reading *r, const char *type, const json_t *o)
{
    static const char *const marked[] = {"Replace", "ByteFallback", "Fuse", "Strip", "Metaspace"};
    (void)o;
    if (r->byte_level && !strcmp(type, "ByteLevel")) return 0;
    for (size_t i = 0; !r->byte_level && i < sizeof marked / sizeof marked[0]; i++)
        if (!strcmp(type, marked[i])) return 0;
    return error_set(r->e, QN_EUNSUP, "tokenizer.json: decoder %s does not go with a %s model", type,
                     r->byte_level ? "byte-level" : "character-level");
}

static int name_patterns(struct hf_reading *r)
{
    struct hf_pipeline *p = r->p;
    if (!r->byte_level) {
        if (!r->marks_spaces)
            return error_set(r->e, QN_EUNSUP, "tokenizer.json: neither ByteLevel nor U+2581 for spaces: not supported");
        if (r->steps.n) return refuse(r, "pre_tokenizer Split by", r->steps.pattern[0], "");
        if (p->nfc) return refuse(r, "normalizer", "NFC", "without ByteLevel");
        if (!r->metaspace) p->pre = "whole";
        return 0;
    }
    if (r->marks_spaces || p->prefix != HF_PREFIX_NONE) return refuse(r, "U+2581 for spaces", "before ByteLevel", "");
    p->pre = r->steps.n ? find_known(&r->steps) : "whole";
    if (!p->pre)
        return error_set(r->e, QN_EUNSUP,
                         "tokenizer.json: pre_tokenizer: %d pattern%s of which the last is '%.300s': not known",
                         r->steps.n, r->steps.n > 1 ? "s" : "", r->steps.pattern[r->steps.n - 1]);
    /* Every character is in a match: letters, numbers, white space and the rest each have an alternative. */
    if (r->steps.removed && (r->steps.n > 1 || !strcmp(p->pre, "bloom")))
        return refuse(r, "pre_tokenizer Split with behavior", "Removed", "");
    return 0;
}

int hf_pipeline_read(struct hf_pipeline *p, const json_t *tokenizer, struct qn_error *e)
{
    *p = (struct hf_pipeline){0};
    struct hf_reading r = {.p = p, .e = e};
    int rc = each(&r, "normalizer", "normalizers", json_object_get(tokenizer, "normalizer"), read_normalizer);
    if (!rc)
        rc =
            each(&r, "pre_tokenizer", "pretokenizers", json_object_get(tokenizer, "pre_tokenizer"), read_pre_tokenizer);
    if (!rc) rc = name_patterns(&r);
    p->byte_level = r.byte_level;
    if (!rc)
        rc =
            each(&r, "post_processor", "processors", json_object_get(tokenizer, "post_processor"), read_post_processor);
    if (!rc) rc = each(&r, "decoder", "decoders", json_object_get(tokenizer, "decoder"), read_decoder);
    return rc;
}
