/* SPDX-License-Identifier: MIT
 *
 * hf_value.h: typed and bounded reading of one value of config.json.
 */
#ifndef QUERN_FORMAT_HF_VALUE_H
#define QUERN_FORMAT_HF_VALUE_H

#include <jansson.h>
#include <limits.h>
#include <stdbool.h>

#include "base/error.h"

/* Defaults of hf_int(): an error names what is missing; or *out is HF_ABSENT, which no range includes. */
#define HF_REQUIRED INT_MIN
#define HF_ABSENT   (INT_MIN + 1)

struct hf_value {
    const json_t *object;
    struct qn_error *e;
};

/* null counts as absent, here and below. QN_EDATA: another type, or outside lo..hi. */
int hf_int(const struct hf_value *v, const char *name, int lo, int hi, int def, int *out);
int hf_real(const struct hf_value *v, const char *name, double above, double hi, double def, double *out);
int hf_bool(const struct hf_value *v, const char *name, bool def, bool *out);
int hf_text(const struct hf_value *v, const char *name, const char **out); /* absent: *out untouched */

#endif
