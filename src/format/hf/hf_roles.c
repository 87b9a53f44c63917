/* SPDX-License-Identifier: MIT
 *
 * hf_roles.c: finds the tokens with a role in a Hugging Face folder (BOS, EOS and so on), and its chat templates.
 *
 * Four files name these tokens, by text or by id, and they need not agree. A text in tokenizer_config.json wins over
 * one in special_tokens_map.json, and both win over the ids of generation_config.json and config.json. Those may be
 * lists; each id in them ends generation. Only for the mask, the id in config.json wins over the texts. Whether BOS is
 * put in front is decided by tokenizer_config.json if it says so; else by the class of the tokenizer (those of Llama
 * and Gemma build their own post-processor); else by the TemplateProcessing of tokenizer.json.
 */
#include <stdio.h>
#include <string.h>

#include "base/log.h"
#include "format/hf/hf_json.h"
#include "format/hf/hf_tokens.h"

#define MAX_ENDS      32
#define MAX_TEMPLATES 64

static const struct {
    const char *name; /* NAME_token, and NAME_token_id in the files with ids */
    const char *key;
} roles[] = {
    {"bos", "tokenizer.ggml.bos_token_id"},     {"eos", "tokenizer.ggml.eos_token_id"},
    {"unk", "tokenizer.ggml.unknown_token_id"}, {"sep", "tokenizer.ggml.seperator_token_id"},
    {"pad", "tokenizer.ggml.padding_token_id"}, {"mask", "tokenizer.ggml.mask_token_id"},
};
enum { BOS, EOS, UNK };
#define N_ROLES ((int)(sizeof roles / sizeof roles[0]))

/* The text of a special token, which is named by its text or by an object that has it. */
static const char *text_of(const json_t *file, const char *name)
{
    char key[32];
    snprintf(key, sizeof key, "%s_token", name);
    const json_t *v = json_object_get(file, key);
    return json_string_value(json_is_object(v) ? json_object_get(v, "content") : v);
}

static const json_t *id_of(const json_t *file, const char *name)
{
    char key[32];
    snprintf(key, sizeof key, "%s_token_id", name);
    const json_t *v = json_object_get(file, key);
    return v ? v : json_object_get(json_object_get(file, "text_config"), key);
}

/* The id, if a token has it; else -1. */
static int64_t valid_id(const struct hf_tokens *t, const json_t *v)
{
    json_int_t id = json_is_integer(v) ? json_integer_value(v) : -1;
    return id >= 0 && id < (json_int_t)t->n && t->id[id].text.p ? id : -1;
}

static int64_t role_id(const struct hf_tokens *t, const struct hf_files *f, const char *name)
{
    const json_t *const by_text[] = {f->config, f->special_map}, *const by_id[] = {f->generation, f->model_config};
    int64_t mask = !strcmp(name, "mask") ? valid_id(t, id_of(f->model_config, name)) : -1;
    if (mask >= 0) return mask;
    for (int i = 0; i < 2; i++) {
        const char *text = text_of(by_text[i], name);
        int64_t id = text ? hf_tokens_find(t, text, strlen(text)) : -1;
        if (id >= 0) return id;
        if (text && *text) log_at(LOG_WARN, "tokenizer_config.json: %s_token '%.100s' is no token", name, text);
    }
    for (int i = 0; i < 2; i++) {
        const json_t *v = id_of(by_id[i], name);
        int64_t id = valid_id(t, json_is_array(v) ? json_array_get(v, 0) : v);
        if (id >= 0) return id;
    }
    return -1;
}

/* ---- what ends generation ---- */

struct ends {
    int32_t id[MAX_ENDS];
    int n;
};

static void add_end(struct ends *ends, const struct hf_tokens *t, const json_t *v)
{
    int64_t id = valid_id(t, v);
    if (id < 0) {
        log_at(LOG_WARN, "generation_config.json: an eos_token_id is no token's and is ignored");
        return;
    }
    for (int i = 0; i < ends->n; i++)
        if (ends->id[i] == id) return;
    if (ends->n < MAX_ENDS) ends->id[ends->n++] = (int32_t)id;
}

static int put_ends(struct meta_build *b, const struct hf_tokens *t, const struct hf_files *f, struct qn_error *e)
{
    const json_t *const files[] = {f->generation, f->model_config}, *one;
    struct ends ends = {.n = 0};
    size_t k;
    for (int i = 0; i < 2; i++) {
        const json_t *v = id_of(files[i], "eos");
        if (json_array_size(v) > MAX_ENDS)
            return error_set(e, QN_EDATA, "eos_token_id has %zu ids (limit %d)", json_array_size(v), MAX_ENDS);
        if (json_is_array(v)) {
            json_array_foreach(v, k, one) add_end(&ends, t, one);
        } else if (v && !json_is_null(v)) {
            add_end(&ends, t, v);
        }
    }
    int rc = ends.n ? meta_build_array(b, "tokenizer.quern.eog_token_ids", MT_I32, e) : 0;
    for (int i = 0; !rc && i < ends.n; i++) rc = meta_build_add_i32(b, ends.id[i], e);
    return rc;
}

/* ---- BOS and EOS around a text ---- */

/* Classes that replace the post-processor of tokenizer.json by their own, which adds BOS unless it is told not to. */
static bool class_adds_bos(const struct hf_files *f)
{
    static const char *const classes[] = {"LlamaTokenizer", "CodeLlamaTokenizer", "GemmaTokenizer", "CohereTokenizer"};
    const char *name = json_string_value(json_object_get(f->config, "tokenizer_class"));
    for (size_t i = 0; name && i < sizeof classes / sizeof classes[0]; i++) {
        size_t n = strlen(classes[i]);
        if (!strncmp(name, classes[i], n) && (!name[n] || !strcmp(name + n, "Fast"))) return true;
    }
    return false;
}

static bool adds(const struct hf_files *f, const char *key, bool by_class, const int64_t *around, int n, int64_t id)
{
    const json_t *said = json_object_get(f->config, key);
    bool add = json_is_boolean(said) ? json_is_true(said) : by_class || (n > 0 && around[0] == id);
    if (n > 1 || (n == 1 && around[0] != id))
        log_at(LOG_WARN,
               "tokenizer.json: TemplateProcessing puts more than BOS and EOS around a text: the rest is left out");
    return add && id >= 0;
}

int hf_roles_put(struct meta_build *b, const struct hf_tokens *t, const struct hf_files *f, const struct hf_pipeline *p,
                 struct qn_error *e)
{
    const char *unk = json_string_value(json_object_get(json_object_get(f->tokenizer, "model"), "unk_token"));
    int64_t id[N_ROLES];
    int rc = 0;
    for (int i = 0; i < N_ROLES; i++) id[i] = role_id(t, f, roles[i].name);
    if (unk) id[UNK] = hf_tokens_find(t, unk, strlen(unk)); /* the one that encoding gives */
    if (id[BOS] < 0 && p->n_before == 1 && p->before[0] >= 0 && p->before[0] < (int64_t)t->n) id[BOS] = p->before[0];
    for (int i = 0; !rc && i < N_ROLES; i++)
        if (id[i] >= 0) rc = meta_build_u32(b, roles[i].key, (uint32_t)id[i], e);
    bool bos = adds(f, "add_bos_token", class_adds_bos(f), p->before, p->n_before, id[BOS]);
    bool eos = adds(f, "add_eos_token", false, p->after, p->n_after, id[EOS]);
    if (!rc) rc = meta_build_bool(b, "tokenizer.ggml.add_bos_token", bos, e);
    if (!rc) rc = meta_build_bool(b, "tokenizer.ggml.add_eos_token", eos, e);
    return rc ? rc : put_ends(b, t, f, e);
}

/* ---- chat templates ---- */

static int put_template(struct meta_build *b, const char *name, const json_t *text, struct qn_error *e)
{
    char key[100] = "tokenizer.chat_template";
    if (!json_is_string(text)) return error_set(e, QN_EDATA, "tokenizer_config.json: a chat_template is no string");
    if (name && strlen(name) > 60)
        return error_set(e, QN_EDATA, "tokenizer_config.json: a chat_template's name has %zu bytes (limit 60)",
                         strlen(name));
    if (name && strcmp(name, "default") != 0) snprintf(key, sizeof key, "tokenizer.chat_template.%s", name);
    if (meta_build_has(b, key)) return 0; /* chat_template.jinja goes first */
    return meta_build_str(b, key, json_string_value(text), json_string_length(text), e);
}

int hf_templates_put(struct meta_build *b, const char *dir, const struct hf_files *f, struct qn_error *e)
{
    const json_t *said = json_object_get(f->config, "chat_template"), *one;
    struct buf text = {0};
    bool found;
    size_t i;
    int rc = hf_text_read(&text, &found, dir, "chat_template.jinja", HF_CONFIG_BYTES, e);
    if (!rc && found) rc = meta_build_str(b, "tokenizer.chat_template", (const char *)text.data, text.len, e);
    buf_deinit(&text);
    if (rc || !said || json_is_null(said)) return rc;
    if (!json_is_array(said)) return put_template(b, NULL, said, e);
    if (json_array_size(said) > MAX_TEMPLATES)
        return error_set(e, QN_EDATA, "tokenizer_config.json: %zu chat templates (limit %d)", json_array_size(said),
                         MAX_TEMPLATES);
    json_array_foreach(said, i, one)
    {
        const char *name = json_string_value(json_object_get(one, "name"));
        if (!name) return error_set(e, QN_EDATA, "tokenizer_config.json: chat_template number %zu has no name", i + 1);
        if ((rc = put_template(b, name, json_object_get(one, "template"), e))) return rc;
    }
    return 0;
}
