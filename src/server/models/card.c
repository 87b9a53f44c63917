/* SPDX-License-Identifier: MIT
 *
 * card.c: reads the card of a model from its metadata.
 */
#include "server/models/card.h"

#include <string.h>
#include <sys/stat.h>

#include "server/json/json_out.h"

void model_card_deinit(struct model_card *c)
{
    buf_deinit(&c->family);
    buf_deinit(&c->chat_template);
    buf_deinit(&c->metadata);
    *c = (struct model_card){0};
}

/* Adds the value of a key, if the file has it. */
static int add_value(struct buf *b, const qn_model *m, const char *key, struct qn_error *e)
{
    char *value;
    int rc = qn_model_metadata(m, key, &value, e);
    if (rc) return rc == QN_ENOINPUT ? 0 : rc;
    rc = buf_str(b, value, e);
    qn_free(value);
    return rc;
}

/* Writes one entry. The text of a number is a number of JSON too, unless it is not finite. */
static void write_entry(struct json_out *o, const char *key, const char *value, enum qn_metadata_type type)
{
    json_out_key(o, key, strlen(key));
    if (type == QN_METADATA_STRING)
        json_out_text(o, NULL, value, strlen(value));
    else if (!value || (type == QN_METADATA_NUMBER && strpbrk(value, "in")))
        json_out_str(o, NULL, NULL);
    else
        json_out_raw(o, NULL, value, strlen(value));
}

/* What the caller knows better: templates have a place of their own, and the counts may differ from the file's. */
static bool is_left_out(const char *key)
{
    static const char template[] = "tokenizer.chat_template";
    const char *dot = strchr(key, '.');
    return !strncmp(key, template, sizeof template - 1) || !strcmp(key, "general.parameter_count") ||
           (dot && !strcmp(dot, ".context_length"));
}

/* Arrays are not made into text, because a vocabulary is megabytes. */
static int read_metadata(struct model_card *c, const qn_model *m, struct qn_error *e)
{
    struct json_out o = {0};
    int rc = 0;
    for (size_t i = 0; i < qn_model_n_metadata(m) && !rc; i++) {
        char *key = NULL, *value = NULL;
        enum qn_metadata_type type = qn_model_metadata_type(m, i);
        rc = qn_model_metadata_at(m, i, &key, type == QN_METADATA_ARRAY ? NULL : &value, e);
        if (!rc && !is_left_out(key)) write_entry(&o, key, value, type);
        qn_free(key);
        qn_free(value);
    }
    c->metadata = o.b;
    if (!rc && o.failed) rc = error_nomem(e, "a model's metadata", o.b.len);
    return rc;
}

/* Whether there is a prompt for the gap between two empty texts. */
static bool fills_gaps(const qn_model *m)
{
    struct qn_infill p;
    qn_token *ids = NULL;
    size_t n;
    qn_infill_init(&p);
    int rc = qn_infill_prompt(m, &p, NULL, &ids, &n, NULL, NULL);
    qn_free(ids);
    return rc == 0;
}

static int read_texts(struct model_card *c, const qn_model *m, struct qn_error *e)
{
    int rc = add_value(&c->family, m, "general.architecture", e);
    if (!rc) rc = add_value(&c->chat_template, m, "tokenizer.chat_template", e);
    if (!rc) rc = read_metadata(c, m, e);
    return rc;
}

int model_card_read(struct model_card *out, const qn_model *m, const char *path, int64_t modified_s, struct qn_error *e)
{
    struct stat st;
    *out = (struct model_card){
        .n_params = qn_model_n_params(m),
        .file_bytes = qn_model_file_bytes(m),
        .modified_s = modified_s,
        .type = qn_model_weight_type(m),
        .is_folder = !stat(path, &st) && S_ISDIR(st.st_mode),
        .pools = qn_model_pooling(m) == QN_POOL_MEAN || qn_model_pooling(m) == QN_POOL_LAST,
        .fills_gaps = fills_gaps(m),
    };
    int rc = read_texts(out, m, e);
    if (rc) model_card_deinit(out);
    return rc;
}

int model_card_copy(struct model_card *out, const struct model_card *from, struct qn_error *e)
{
    *out = *from;
    out->family = out->chat_template = out->metadata = (struct buf){0};
    int rc = buf_add(&out->family, from->family.data, from->family.len, e);
    if (!rc) rc = buf_add(&out->chat_template, from->chat_template.data, from->chat_template.len, e);
    if (!rc) rc = buf_add(&out->metadata, from->metadata.data, from->metadata.len, e);
    if (rc) model_card_deinit(out);
    return rc;
}
