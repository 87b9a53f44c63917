/* SPDX-License-Identifier: MIT
 *
 * receipts.h: receipts of answers (receipt/receipt.h), for the clients that ask for them and for a log.
 *
 * A worker hashes the model's files when the first receipt is wanted. Tokens are collected as they come, and the
 * receipt is made when the request is done, in the scheduler's thread: it takes microseconds for each token of the
 * prompt.
 */
#ifndef QUERN_SERVER_RECEIPTS_H
#define QUERN_SERVER_RECEIPTS_H

#include <pthread.h>

#include "base/buf.h"
#include "receipt/receipt.h"
#include "server/json/field.h"
#include "server/models/served.h"

struct job;
struct api;

/* How receipts are made, for all models. Texts are borrowed. */
struct receipts_config {
    enum qn_kv kv;
    const char *pre;      /* of qn_model_params */
    const char *hash_dir; /* where hashes of files are remembered, if it can be written; NULL: nowhere */
    int log;              /* the descriptor of a file that gets a line for each answer; 0: none */
};

enum receipt_wish { RECEIPT_NONE, RECEIPT_FULL, RECEIPT_PRIVATE };
field_parser receipt_parse_wish; /* of the field `receipt`: true, false or "private" */

/* The hashes of the models that had receipts. They stay until the end, because answers under way use them. */
struct receipts {
    pthread_mutex_t lock; /* held while files are hashed: docs/THREADS.md */
    struct receipt_source *first;
    pthread_mutex_t log_lock; /* a leaf: lines of two schedulers do not mix */
    bool has_failed;          /* the log could not be written, and that was said */
};
void receipts_init(struct api *a);
void receipts_deinit(struct api *a);

/* What a job keeps for its receipts. */
struct job_receipt {
    enum receipt_wish wish; /* of the client */
    const struct receipt_model *model;
    struct buf conversation;     /* the request of the prompt; empty: a continued text */
    char salt[RECEIPT_SALT + 1]; /* "": none */
    uint64_t seed;               /* of the present prompt */
    int max_tokens;
    struct buf *tokens;   /* [n_answers] of qn_token */
    struct buf made;      /* receipts, for the client: JSON values with commas between them */
    struct buf made_more; /* the prompts of private ones, in the same way */
    bool has_failed;      /* there was no memory */
};

/* Whether the job's answers are to have receipts. */
bool job_wants_receipt(const struct job *j);
/* Prepares for receipts, if the job wants them; in a worker. 0, or -1 and *f. */
int job_receipt_open(struct job *j, struct fault *f);
void job_receipt_free(struct job *j);
/* Notes how the present prompt is submitted. */
void job_receipt_submitted(struct job *j, const struct qn_request_params *p);
void job_receipt_token(struct job *j, int answer, qn_token t); /* the next one */
/* Makes the receipt of the present prompt, whose answers have ended: for the client, and for the log. */
void job_receipt_make(struct job *j);
/* Writes "receipt": {...} if the client asked for it. */
void job_receipt_write(struct job *j);

#endif
