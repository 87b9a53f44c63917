/* SPDX-License-Identifier: MIT
 *
 * model_print.h: a quick fingerprint that identifies a model, whatever its files are called.
 *
 * It covers the metadata, every tensor's name, type and shape, and the first, middle and last bytes of every tensor.
 * These are a few megabytes, whatever the model's size, so it takes milliseconds. It tells models apart, even if they
 * were trained further from the same start. It does not protect against a model that was made to have the same
 * fingerprint; the SHA-256 of model_id.h does.
 */
#ifndef QUERN_ENGINE_MODEL_PRINT_H
#define QUERN_ENGINE_MODEL_PRINT_H

#include "base/sha256.h"
#include "format/weights.h"

void model_print(const struct weights *w, uint8_t out[SHA256_BYTES]);

#endif
