/* SPDX-License-Identifier: MIT
 *
 * toml_out.c: writes values as TOML 1.0, each on one line.
 *
 * A float has the fewest digits that read back as the same number. Characters that a terminal would act on are written
 * as escapes, so that the text can be shown.
 */
#include "base/toml/toml_out.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/utf8.h"

static int put_character(struct buf *out, const uint8_t *s, unsigned n, uint32_t c, struct qn_error *e)
{
    static const char named[] = "\b\t\n\f\r\"\\", letters[] = "btnfr\"\\";
    const char *found = c < 0x80 ? strchr(named, (int)c) : NULL;
    if (found) return buf_printf(out, e, "\\%c", letters[found - named]);
    if (c < 0x20 || (c >= 0x7F && c < 0xA0)) return buf_printf(out, e, "\\u%04X", (unsigned)c);
    return buf_add(out, s, n, e);
}

int toml_put_string(struct buf *out, const char *s, struct qn_error *e)
{
    size_t before = out->len;
    uint32_t c = 0;
    int rc = buf_str(out, "\"", e);
    for (unsigned n; *s && !rc; s += n) {
        n = utf8_get((const uint8_t *)s, strnlen(s, 4), &c);
        rc = n ? put_character(out, (const uint8_t *)s, n, c, e) : error_set(e, QN_EDATA, "'%s' is not UTF-8", s);
    }
    if (!rc) rc = buf_str(out, "\"", e);
    if (rc) out->len = before;
    return rc;
}

int toml_put_name(struct buf *out, const char *name, struct qn_error *e)
{
    return toml_is_bare(name) ? buf_str(out, name, e) : toml_put_string(out, name, e);
}

static int put_float(struct buf *out, double x, struct qn_error *e)
{
    char s[40];
    if (isnan(x)) return buf_str(out, "nan", e);
    for (int digits = 1; digits <= 17; digits++) {
        snprintf(s, sizeof s, "%.*g", digits, x);
        if (strtod(s, NULL) == x) break;
    }
    return buf_printf(out, e, "%s%s", s, strpbrk(s, ".en") ? "" : ".0"); /* n: inf */
}

int toml_put_value(struct buf *out, const struct toml_value *v, struct qn_error *e)
{
    int rc;
    switch (v->type) {
    case TOML_STRING: return toml_put_string(out, v->string, e);
    case TOML_INT: return buf_printf(out, e, "%" PRId64, v->integer);
    case TOML_FLOAT: return put_float(out, v->real, e);
    case TOML_BOOL: return buf_str(out, v->truth ? "true" : "false", e);
    case TOML_ARRAY: break;
    }
    rc = buf_str(out, "[", e);
    for (size_t i = 0; i < v->array.n && !rc; i++) {
        if (i) rc = buf_str(out, ", ", e);
        if (!rc) rc = toml_put_value(out, &v->array.v[i], e);
    }
    return rc ? rc : buf_str(out, "]", e);
}
