/* SPDX-License-Identifier: MIT
 *
 * model_key.h: the key of files with keys, values and states: which model and which settings they belong to.
 */
#ifndef QUERN_ENGINE_MODEL_KEY_H
#define QUERN_ENGINE_MODEL_KEY_H

#include "base/sha256.h"
#include "cache/chain_file.h"
#include "engine/engine.h"

/* Hashes everything that decides the bits of keys, values and states, except the tokens. Threads, batches and
 * instruction sets do not change them. what: the kind of file, a text that no other kind has. model: a hash that tells
 * models apart. */
void model_key(const struct qn_engine *g, const char *what, const uint8_t model[SHA256_BYTES],
               uint8_t out[CHAIN_MODEL_BYTES]);

#endif
