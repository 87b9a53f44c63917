/* SPDX-License-Identifier: MIT
 *
 * endpoints.h: the endpoints that do not generate. Those that only read numbers are handlers; the others run in a
 * worker.
 */
#ifndef QUERN_SERVER_ENDPOINTS_H
#define QUERN_SERVER_ENDPOINTS_H

#include "server/api/api_impl.h"

http_handler endpoint_health, endpoint_memory, endpoint_status;                          /* status.c */
http_handler endpoint_models, endpoint_model;                                            /* model_list.c */
http_handler endpoint_events;                                                            /* resumable.c */
http_handler endpoint_requests;                                                          /* status.c */
http_handler endpoint_page;                                                              /* page.c */
http_handler endpoint_metrics;                                                           /* metrics.c */
api_work endpoint_tokenize, endpoint_detokenize, endpoint_render, endpoint_count_tokens; /* tokens.c */
api_work endpoint_embeddings;                                                            /* embed.c */
api_work endpoint_rerank, endpoint_score;                                                /* rerank.c */
api_work endpoint_sessions, endpoint_drop_sessions;                                      /* sessions.c */
http_handler endpoint_response, endpoint_drop_response, endpoint_cancel_response;        /* responses_kept.c */
api_work endpoint_input_items;                                                           /* responses_kept.c */

/* Describes a model under one of its names, as an object (status.c). */
void status_write_model(struct json_out *o, const char *name, const struct models_info *m, uint64_t created_s);

extern const struct field tokenize_fields[], detokenize_fields[], embed_fields[], rerank_fields[], score_fields[];

#endif
