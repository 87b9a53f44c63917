/* SPDX-License-Identifier: MIT
 *
 * hf_value.c: reads one integer, real, bool or text of config.json.
 */
#include "format/hf/hf_value.h"

#include <inttypes.h>

/* NULL: absent. */
static const json_t *find(const struct hf_value *v, const char *name)
{
    const json_t *j = json_object_get(v->object, name);
    return json_is_null(j) ? NULL : j;
}

static int wrong_type(const struct hf_value *v, const char *name, const char *wanted)
{
    return error_set(v->e, QN_EDATA, "config.json: '%s' is not %s", name, wanted);
}

int hf_int(const struct hf_value *v, const char *name, int lo, int hi, int def, int *out)
{
    const json_t *j = find(v, name);
    if (!j && def == HF_REQUIRED) return error_set(v->e, QN_EDATA, "config.json: '%s' is missing", name);
    if (!j) {
        *out = def;
        return 0;
    }
    if (!json_is_integer(j)) return wrong_type(v, name, "an integer");
    if (json_integer_value(j) < lo || json_integer_value(j) > hi)
        return error_set(v->e, QN_EDATA, "config.json: '%s' is %" JSON_INTEGER_FORMAT ", not %d to %d", name,
                         json_integer_value(j), lo, hi);
    *out = (int)json_integer_value(j);
    return 0;
}

int hf_real(const struct hf_value *v, const char *name, double above, double hi, double def, double *out)
{
    const json_t *j = find(v, name);
    double x = j ? json_number_value(j) : def;
    if (j && !json_is_number(j)) return wrong_type(v, name, "a number");
    if (j && !(x > above && x <= hi))
        return error_set(v->e, QN_EDATA, "config.json: '%s' is %g, not in (%g, %g]", name, x, above, hi);
    *out = x;
    return 0;
}

int hf_bool(const struct hf_value *v, const char *name, bool def, bool *out)
{
    const json_t *j = find(v, name);
    if (j && !json_is_boolean(j)) return wrong_type(v, name, "true or false");
    *out = j ? json_is_true(j) : def;
    return 0;
}

int hf_text(const struct hf_value *v, const char *name, const char **out)
{
    const json_t *j = find(v, name);
    if (j && !json_is_string(j)) return wrong_type(v, name, "a string");
    if (j) *out = json_string_value(j);
    return 0;
}
