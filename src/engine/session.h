/* SPDX-License-Identifier: MIT
 *
 * session.h: the struct of qn_session, shared by the files that work on sessions.
 */
#ifndef QUERN_ENGINE_SESSION_H
#define QUERN_ENGINE_SESSION_H

#include "decode/sampler.h"
#include "engine/engine.h"

struct session_drafts;

#define SESSION_SNAPSHOTS 6 /* most copies that a session keeps */
/* A copy of the recurrent state after n_slots slots. */
struct session_copy {
    int n_slots;
    uint8_t *state;  /* one of the pool's states, owned */
    bool has_logits; /* kept_logits are those of this copy */
};

struct qn_session {
    struct qn_engine *engine; /* held */
    struct kv_seq memory;
    struct sampler *sampler;
    qn_token *tokens; /* [n_ctx] */
    size_t n_tokens;
    float *logits;                                    /* [n_vocab] */
    bool ready;                                       /* logits belong to the whole timeline */
    size_t bytes;                                     /* taken from the ledger */
    struct session_copy snapshots[SESSION_SNAPSHOTS]; /* [n_snapshots] are in use, the newest first */
    int n_snapshots, max_snapshots;
    int max_pins;                  /* windows that are kept in addition to the last one; less than 1: none */
    struct session_drafts *drafts; /* NULL: none */
    float *kept_logits; /* [n_vocab] logits of the copy that has_logits; NULL: the model has no recurrent state */
};

/* Makes an empty session. sampling NULL: the defaults. */
int session_new(struct qn_session **out, struct qn_engine *g, const struct qn_sampling *sampling, struct qn_error *e);
/* Returns QN_EUSAGE if a scheduler owns the engine, because then only the scheduler may compute on it. */
int session_check_engine(const struct qn_engine *g, struct qn_error *e);
/* Evaluates the tokens that are not evaluated yet. Then `logits` belong to the whole timeline. */
int session_catch_up(struct qn_session *s, struct qn_error *e);
/* Call it when the tokens, keys, values, state and logits of a timeline have been put in place. Gives the sampler its
 * history and keeps a copy of the state. */
void session_restored(struct qn_session *s);

#endif
