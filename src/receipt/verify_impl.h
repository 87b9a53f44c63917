/* SPDX-License-Identifier: MIT
 *
 * verify_impl.h: what the two ways to check a receipt share. verify.c reads its answers; verify_replay.c makes them
 * again.
 */
#ifndef QUERN_RECEIPT_VERIFY_IMPL_H
#define QUERN_RECEIPT_VERIFY_IMPL_H

#include "engine/request.h"
#include "receipt/verify.h"

struct verification {
    const struct receipt *r;
    struct qn_engine *g;
    const qn_chat *chat; /* NULL: the model has no template */
    const struct verify_watch *watch;
    struct verify_result *out;
    qn_prompt *prompt;    /* of the conversation; NULL: there is none */
    qn_grammar *grammar;  /* NULL: none */
    struct kv_seq memory; /* of the prompt, as far as the context holds it: */
    const qn_token *held; /* [n_held] */
    size_t n_held;
    qn_token *own; /* of these, if they are not all of the prompt; NULL: they are */
    float *first;  /* [n_vocab] the logits after the prompt */
    float *rows;   /* [n_rows][n_vocab] */
    float *work;   /* [n_vocab] */
    void *scratch;
    int n_rows;
    size_t taken; /* from the ledger */
    size_t n_done, n_total;

    /* the present answer */
    const struct receipt_answer *a;
    struct request *request;
    qn_reply *reply; /* NULL: a continued text */
    uint64_t *mask;  /* [n_words] of the present token; has_mask */
    bool has_mask;
    size_t i;       /* the token that comes next */
    int stop_index; /* of the event that ended it */
};

/* Sets the request's parameters, except for the callback. */
void verify_describe(struct verification *v, struct qn_request_params *p);
/* Begins with answer k. */
int verify_open_reply(struct verification *v, size_t k, struct qn_error *e);
/* Notes a difference at token i. Returns a positive number, which ends the check. */
int verify_differs(struct verification *v, enum verify_outcome outcome);
/* Goes on after token i, which was the right one: compares whether the answer ends with it. finish: what the scheduler
 * says. Returns 0, an error, or a positive number after a difference. */
int verify_took(struct verification *v, qn_token t, enum qn_finish finish, struct qn_error *e);
/* Compares the end of an answer without tokens, or of one that can have none. Returns as verify_took(). */
int verify_empty(struct verification *v);

/* verify_replay.c: checks all answers by making them again. Returns as verify_took(). */
int verify_by_replay(struct verification *v, struct qn_error *e);

#endif
