/* SPDX-License-Identifier: MIT
 *
 * hf_value.h: reads one value of config.json, with its type and its bounds.
 */
#ifndef QUERN_FORMAT_HF_VALUE_H
#define QUERN_FORMAT_HF_VALUE_H

#include <jansson.h>
#include <limits.h>
#include <stdbool.h>

#include "base/error.h"

/* Defaults of hf_int() for an absent value: HF_REQUIRED is an error; HF_ABSENT, which is in no range, becomes *out. */
#define HF_REQUIRED INT_MIN
#define HF_ABSENT   (INT_MIN + 1)

struct hf_value {
    const json_t *object;
    struct qn_error *e;
};

/* Read the member `name`. null counts as absent. QN_EDATA: another type, or a number outside lo..hi (hf_real: outside
 * above < x <= hi). */
int hf_int(const struct hf_value *v, const char *name, int lo, int hi, int def, int *out);
int hf_real(const struct hf_value *v, const char *name, double above, double hi, double def, double *out);
int hf_bool(const struct hf_value *v, const char *name, bool def, bool *out);
int hf_text(const struct hf_value *v, const char *name, const char **out); /* absent: *out does not change */

#endif
