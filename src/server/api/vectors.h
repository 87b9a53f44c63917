/* SPDX-License-Identifier: MIT
 *
 * vectors.h: requests that compute one vector, or one number, for each of several texts: embeddings, scores and
 * ranking. An endpoint's own struct begins with a struct vectors.
 *
 * The texts of a request are submitted one after the other, each when the one before is done. So a request takes one
 * place in the queue, however many texts it has. Threads and cancelling are the same as in job.c.
 */
#ifndef QUERN_SERVER_VECTORS_H
#define QUERN_SERVER_VECTORS_H

#include "server/api/api_impl.h"

#define VECTORS_MAX 2048 /* texts of a request */

struct vectors;

/* What differs between the endpoints. */
struct vectors_kind {
    size_t size;                       /* of the endpoint's struct */
    const struct field *const *tables; /* fill the endpoint's struct */
    /* Checks the fields, sets pooling, and adds the texts with the functions below; in a worker. */
    int (*read)(struct vectors *v, struct fault *f);
    /* The vector of text v->at; in the scheduler's thread. */
    void (*take)(struct vectors *v, const float *x, int n);
    /* Writes the answer into v->out, when all vectors were taken. Sets v->out.failed if there is no memory. */
    void (*answer)(struct vectors *v);
    void (*deinit)(struct vectors *v); /* NULL: nothing to free */
};

struct vectors {
    const struct vectors_kind *kind;
    struct api *api;
    struct served *served; /* held */
    struct http_request *req;
    struct ticket *ticket;
    struct who who;
    const char *model, *user, *cache_salt; /* fields that all endpoints have; NULL after kind->read() */
    json_t *body;                          /* NULL after kind->read() */
    enum qn_pooling pooling;

    qn_token **tokens; /* [cap] lists of n_tokens[i] */
    size_t *n_tokens;
    size_t n, cap, at; /* at: the text that is computed */
    struct json_out out;
    int n_prompt, n_cached; /* tokens so far */
    int64_t created; /* seconds since 1970 */
    bool started;    /* the scheduler has sent the first event of text `at` */
};

/* The work of such an endpoint. */
void vectors_begin(struct api_call *c, const struct vectors_kind *kind);

/* For kind->read(). Makes room for n texts, at most VECTORS_MAX. what: the field, for the refusal. */
int vectors_reserve(struct vectors *v, size_t n, const char *what, struct fault *f);
/* Adds a text, or a list of token ids, of the field `what`. */
int vectors_add(struct vectors *v, const json_t *text, const char *what, struct fault *f);
/* Adds the prompt with which a model that ranks compares two texts. what: the field of the document. */
int vectors_add_pair(struct vectors *v, const json_t *query, const json_t *document, const char *what, struct fault *f);

/* "usage": {...} */
void vectors_write_usage(struct vectors *v);

#endif
