/* SPDX-License-Identifier: MIT
 *
 * voices.h: tokens that the last stage draws, so that no logits cross the wire.
 *
 * The last stage keeps a sampler for each answer: a voice. The head says with each row which voice draws from it, and
 * gives a voice that begins, or whose past is another one than the stage knows, its parameters and the tokens that it
 * looks back at. So the stage's samplers are copies of those of the head, and draw the same tokens. After a restart all
 * voices begin again.
 *
 *     of a draw        u32 row, n, voice, flags, u64 position, u32 n_top + 1
 *       if NEW         u64 seed, 18 numbers of struct qn_sampling, f64 bound, u32 n_bias, n_breakers, n_history,
 *                      (i32 token, f32 bias)[n_bias], i32 breakers[n_breakers], history[n_history]
 *       if MASKED      u64 mask[(n_vocab + 63) / 64]
 *     of what is drawn [n] i32 token, f32 logprob, f64 surprise, u32 n_top, (i32 token, f32 logprob)[n_top]
 */
#ifndef QUERN_CLUSTER_VOICES_H
#define QUERN_CLUSTER_VOICES_H

#include "cluster/step_packet.h"
#include "engine/core/stage.h"
#include "kernel/kernel.h"

/* ---- the head ---- */

/* Writes a draw into numbers[0..cap). Returns how many it takes; 0: it has no room. */
size_t voices_put(uint32_t *numbers, size_t cap, const struct stage_draw *d, int n_vocab);
/* Reads what the draws of a step brought, in their order: n_tokens entries. QN_EDATA: it is something else. */
int voices_read(struct stage_drawn *out, int n_tokens, struct packet_in in, int n_vocab, struct qn_error *e);

/* ---- the last stage ---- */

struct voices;

int voices_new(struct voices **out, const struct step_limits *l, const struct kernels *k, struct ledger *ledger,
               struct qn_error *e);
void voices_free(struct voices *v); /* NULL is fine */
/* Marks the rows of a step that it draws from: drawn[batch.n]. *n_tokens: how many tokens are drawn at most. Everything
 * that grows with them is taken from the ledger. QN_EDATA: a number is out of its limits. QN_ENOMEM. Nothing is drawn,
 * but voices that begin have begun. */
int voices_prepare(struct voices *v, const struct step_packet *s, uint8_t *drawn, int *n_tokens, struct qn_error *e);
/* Draws the tokens of the step that was prepared, and writes them. logits: of all rows that want logits. Returns the
 * numbers that it has written. */
int voices_draw(struct voices *v, const struct step_packet *s, const float *logits, struct packet_out *out);

#endif
