/* SPDX-License-Identifier: MIT
 *
 * ollama.h: what the files of Ollama's API share.
 */
#ifndef QUERN_SERVER_OLLAMA_H
#define QUERN_SERVER_OLLAMA_H

#include "server/api/api_impl.h"

/* The tables of fields: of a chat, of a text, of both, and of `options` in both. */
extern const struct field ollama_chat_fields[], ollama_text_fields[], ollama_fields[], ollama_options[];
extern const struct field ollama_embed_fields[], ollama_embeddings_fields[], ollama_show_fields[], ollama_pull_fields[];

/* For `prepare` of the dialects. */
int ollama_prepare_chat(struct job *j, struct fault *f), ollama_prepare_text(struct job *j, struct fault *f);
/* Parses `keep_alive`, which changes nothing here. */
int ollama_check_keep_alive(const char *name, const json_t *v, struct fault *f);

/* Writes the time of the day, in UTC. */
void ollama_write_time(struct json_out *o, const char *key, int64_t s, long ns);
/* Writes "quern": {"ignored": [...]} if there are names, where nothing else is to be told. */
void ollama_write_ignored(struct json_out *o, const struct field_ignored *ignored);
/* A worker's part for a request of a chat or a text. Without anything to answer, it only loads the model. */
void ollama_begin(struct api_call *c, const struct dialect *d);

http_handler ollama_version, ollama_tags, ollama_ps, ollama_blob, ollama_create, ollama_copy, ollama_delete,
    ollama_push;
api_work ollama_show, ollama_pull, ollama_embed, ollama_embeddings;

#endif
