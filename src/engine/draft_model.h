/* SPDX-License-Identifier: MIT
 *
 * draft_model.h: a drafter that asks a small model, the draft model, what a large one, the target, will say next.
 *
 * The draft model has a forward pass, a KV cache and sequences of its own. It runs on the target's thread team and in
 * the target's budget, between the target's steps.
 *
 * A proposal is a chain of the draft model's most probable tokens. It ends where the chain as a whole is improbable.
 * The sequences of a call are extended together: each pass has a row of each of them, so the weights are read once for
 * all.
 *
 * The draft model has to read a sequence before it can continue it. A few tokens are read at once. A sequence that is
 * far behind, because the target found a long prompt in its cache, is read in pieces that take a small part of the time
 * of the target's steps. Until then nothing is proposed for it, and nobody waits.
 *
 * When tokens came that differ from the proposed ones, the slots of the latter are forgotten. A recurrent state cannot
 * be cut, so a copy is kept of the state before a chain.
 *
 * If the KV cache of the draft model is full, sequences that are not drafted for at present lose their place in it, the
 * longest idle one first. If none is left, a sequence goes on without drafts. The same happens beyond the draft model's
 * context.
 */
#ifndef QUERN_ENGINE_DRAFT_MODEL_H
#define QUERN_ENGINE_DRAFT_MODEL_H

#include "decode/drafter.h"
#include "engine/engine.h"

struct draft_model_params {
    int n_places; /* sequences that a call may have; as many may be open, if the model has a recurrent state */
    int n_pages;  /* of the KV cache; 0: as the target's, or as many as half of the free memory has room for */
    int piece;    /* tokens that a call reads of sequences that are far behind; 0: a part of the time between calls */
    float least;  /* a chain ends before it is less probable than this, 0..1 */
};
void draft_model_params_init(struct draft_model_params *p); /* n_places is left to the caller */

/* Checks that every id has the same text in both vocabularies. One may be longer, if the ids that the other lacks have
 * no text. QN_EUSAGE, with the first id that differs. */
int draft_model_check(const struct qn_model *draft, const struct qn_model *target, struct qn_error *e);

/* Makes a drafter for the sequences of an engine. The draft model is held, the engine is borrowed. QN_EUSAGE: see
 * draft_model_check(). QN_ENOMEM: it does not fit the engine's budget. */
int draft_model_new(struct drafter **out, struct qn_engine *target, const struct qn_model *draft,
                    const struct draft_model_params *p, struct qn_error *e);
/* Returns the bytes that it takes from the ledger, at most: those of the weights among them. */
uint64_t draft_model_bytes(const struct model *draft, const struct qn_engine_params *target, int n_places);

#endif
