/* SPDX-License-Identifier: MIT
 *
 * hf_json.h: the JSON files of a Hugging Face folder, read with limits.
 */
#ifndef QUERN_FORMAT_HF_JSON_H
#define QUERN_FORMAT_HF_JSON_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"

#define HF_CONFIG_BYTES    ((size_t)4 << 20)  /* config.json, tokenizer_config.json, chat_template.jinja */
#define HF_INDEX_BYTES     ((size_t)32 << 20) /* model.safetensors.index.json */
#define HF_TOKENIZER_BYTES ((size_t)96 << 20) /* tokenizer.json; real ones have up to 33 MB */

/* Parses one JSON object in [p, p + n). *out is the caller's, to json_decref(). what: the name for messages. QN_EDATA:
 * not JSON, not an object, the same name twice in an object, or nested too deep; QN_ENOMEM. Integers of more than 63
 * bits become reals. */
int hf_json_parse(json_t **out, const char *what, const char *p, size_t n, struct qn_error *e);
/* Reads the object in the file dir/name, of at most `limit` bytes. Without the file: QN_ENOINPUT if it is required,
 * else *out is NULL and that is no error. */
int hf_json_read(json_t **out, const char *dir, const char *name, size_t limit, bool required, struct qn_error *e);
/* Appends the bytes of the file dir/name, if it exists (*found). */
int hf_text_read(struct buf *out, bool *found, const char *dir, const char *name, size_t limit, struct qn_error *e);
/* "dir/name", the caller's to mem_free(); NULL, with an error, when there is no memory. */
char *hf_path(const char *dir, const char *name, struct qn_error *e);

#endif
