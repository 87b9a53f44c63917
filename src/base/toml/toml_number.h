/* SPDX-License-Identifier: MIT
 *
 * toml_number.h: reads one number of TOML 1.0.
 */
#ifndef QUERN_BASE_TOML_NUMBER_H
#define QUERN_BASE_TOML_NUMBER_H

#include "base/toml/toml.h"

/* Reads a whole word of at most TOML_MAX_NUMBER characters as an integer or a float in digits, and sets *v. QN_EDATA:
 * it is not a number; QN_EUNSUP: it does not fit an int64_t, or is too large for a finite double. */
int toml_number(const char *word, struct toml_value *v);

#endif
