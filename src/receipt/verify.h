/* SPDX-License-Identifier: MIT
 *
 * verify.h: checks every token of a receipt's answers with one pass over the prompt and each answer.
 *
 * Nothing is generated one token after the other: the logits of all positions are computed as those of a prompt are.
 * Then tokens are drawn as the scheduler draws them, by the same functions (engine/request.h), and compared.
 */
#ifndef QUERN_RECEIPT_VERIFY_H
#define QUERN_RECEIPT_VERIFY_H

#include "receipt/receipt.h"

enum verify_outcome {
    VERIFY_SAME,
    VERIFY_PROMPT,  /* the conversation has another prompt: token `at` of it is another one, or missing */
    VERIFY_TOKEN,   /* token `at` of an answer is another one */
    VERIFY_ENDS,    /* the answer ends after token `at`, but goes on in the receipt */
    VERIFY_GOES_ON, /* the answer does not end where it ends in the receipt */
    VERIFY_END,     /* it ends there, but in another way */
    VERIFY_NOTHING, /* no token can be drawn for `at`; `why` says why not */
};

struct verify_result {
    enum verify_outcome outcome;
    size_t answer, at;         /* the number of the answer; of its token, from 0 */
    qn_token said, expected;   /* VERIFY_TOKEN, VERIFY_PROMPT (-1: none) */
    double said_p, expected_p; /* VERIFY_TOKEN: how probably each is drawn; if it is greedy, how probable the model
                                  finds it */
    enum receipt_end end;      /* VERIFY_ENDS, VERIFY_END: how it ends */
    int stop_index;            /* the same, if by a stop text */
    struct qn_error why;
    size_t n_tokens; /* that were drawn */
};

struct verify_watch {
    void (*progress)(void *arg, size_t n_done, size_t n_total); /* tokens; NULL: not called */
    void *arg;
};

/* Sets what the engine for a receipt needs: context, kind and size of the KV cache. The other parameters stay.
 * is_replay: as for verify(). */
void verify_engine(struct qn_engine_params *p, const struct receipt *r, bool is_replay);

/* Checks r, whose prompt is known, with an engine as verify_engine() has it. is_other: the model is not the receipt's,
 * so the conversation may have another prompt with it; that of the receipt is used. chat: of the model; NULL: it has no
 * template. is_replay: the answers are made again, as r->is_replay needs it; any other receipt can be checked so, too.
 * QN_EDATA: the receipt does not fit the model. QN_EUNSUP: it cannot be checked. */
int verify(struct verify_result *out, const struct receipt *r, qn_engine *g, const qn_chat *chat, bool is_other,
           bool is_replay, const struct verify_watch *watch, struct qn_error *e);

#endif
