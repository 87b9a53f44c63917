/* SPDX-License-Identifier: MIT
 *
 * endpoints.h: the endpoints that do not generate. Those that only read numbers are handlers; the others run in a
 * worker.
 */
#ifndef QUERN_SERVER_ENDPOINTS_H
#define QUERN_SERVER_ENDPOINTS_H

#include "server/api/api_impl.h"

http_handler endpoint_health, endpoint_models, endpoint_memory, endpoint_status;         /* status.c */
http_handler endpoint_requests;                                                          /* status.c */
http_handler endpoint_page;                                                              /* page.c */
http_handler endpoint_metrics;                                                           /* metrics.c */
api_work endpoint_tokenize, endpoint_detokenize, endpoint_render, endpoint_count_tokens; /* tokens.c */
api_work endpoint_embeddings;                                                            /* embed.c */
api_work endpoint_sessions, endpoint_drop_sessions;                                      /* sessions.c */

extern const struct field tokenize_fields[], detokenize_fields[], embed_fields[];

#endif
