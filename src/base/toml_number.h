/* SPDX-License-Identifier: MIT
 *
 * toml_number.h: a word of digits as TOML 1.0 reads it.
 */
#ifndef QUERN_BASE_TOML_NUMBER_H
#define QUERN_BASE_TOML_NUMBER_H

#include "base/toml.h"

/* Reads the whole word, an integer or a float in digits, of at most TOML_MAX_NUMBER characters. QN_EDATA: it is none;
 * QN_EUNSUP: it does not fit an int64_t, or is beyond all finite doubles. Sets *v when it succeeds. */
int toml_number(const char *word, struct toml_value *v);

#endif
