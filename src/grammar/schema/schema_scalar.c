/* SPDX-License-Identifier: MIT
 *
 * schema_scalar.c: the keywords for strings and numbers, as expressions over their texts.
 */
#include <stdio.h>
#include <string.h>

#include "grammar/schema/formats.h"
#include "grammar/regex/pattern.h"
#include "grammar/schema/schema_impl.h"

bool scalar_init(struct schema *s)
{
    static const char integer[] = "-?(?:0|[1-9][0-9]*)", fraction[] = "(?:\\.[0-9]+)?",
                      exponent[] = "(?:[eE][+-]?[0-9]+)?";
    char text[100];
    s->integer = pattern_compile(s->r, integer, strlen(integer), PATTERN_WHOLE);
    int n = snprintf(text, sizeof text, "%s%s", integer, fraction);
    s->plain = pattern_compile(s->r, text, (size_t)n, PATTERN_WHOLE);
    n = snprintf(text, sizeof text, "%s%s%s", integer, fraction, exponent);
    s->number = pattern_compile(s->r, text, (size_t)n, PATTERN_WHOLE);
    return !s->l->rc;
}

/* ---- strings ---- */

re_id scalar_pattern(struct schema *s, const char *pattern, size_t n)
{
    bool is_key = strlen(pattern) == n;
    json_t *known = is_key ? json_object_get(s->patterns, pattern) : NULL;
    if (known) return (re_id)json_integer_value(known);
    re_id re = pattern_compile(s->r, pattern, n, PATTERN_SEARCH);
    if (re && is_key && json_object_set_new(s->patterns, pattern, json_integer(re)))
        limits_fail(s->l, QN_ENOMEM, "there is no memory for a pattern");
    return s->l->rc ? RE_NONE : re;
}

/* The formats of numbers (OpenAPI) that say more than their type. */
static re_id number_format(struct schema *s, const char *name)
{
    static const struct {
        const char *name;
        json_int_t least, most;
    } ranges[] = {{"int32", INT32_MIN, INT32_MAX}, {"int64", INT64_MIN, INT64_MAX}};
    for (int i = 0; i < 2; i++) {
        if (strcmp(name, ranges[i].name) != 0) continue;
        struct decimal least, most;
        json_t *x = json_integer(ranges[i].least), *y = json_integer(ranges[i].most);
        bool ok = decimal_of(&least, x) && decimal_of(&most, y);
        json_decref(x);
        json_decref(y);
        return ok ? re_and(s->r,
                           (const re_id[]){s->plain, re_bound(s->r, &least, DECIMAL_AT_LEAST),
                                           re_bound(s->r, &most, DECIMAL_AT_MOST)},
                           3)
                  : RE_NONE;
    }
    return strcmp(name, "float") == 0 || strcmp(name, "double") == 0 ? RE_ALL : RE_NONE;
}

/* The expression of a format of strings; each is made once. */
static re_id string_format(struct schema *s, int number)
{
    struct buf text = {0};
    struct qn_error e = {0};
    if (s->formats[number]) return s->formats[number];
    if (format_pattern(number, &text, &e))
        limits_fail(s->l, e.code, "%s", e.msg);
    else
        s->formats[number] = pattern_compile(s->r, (char *)text.data, text.len, PATTERN_WHOLE);
    buf_deinit(&text);
    return s->formats[number];
}

static bool format(struct schema *s, const json_t *schema, const json_t *value, enum atom_kind *kind, re_id *re)
{
    const char *name = json_string_value(value);
    if (!name) return schema_fail(s, schema, "format", QN_EDATA, "it is not a string");
    int number = format_number(name);
    *kind = number >= 0 ? ATOM_STRING : ATOM_NUMBER;
    *re = number >= 0 ? string_format(s, number) : number_format(s, name);
    if (*re == RE_NONE) return schema_fail(s, schema, "format", QN_EUNSUP, "the format '%.100s' is not known", name);
    return *re != RE_ALL;
}

/* ---- numbers ---- */

/* A bound, of whatever keyword, as in draft 4 too, where the exclusive ones are flags. */
static bool bound(struct schema *s, const json_t *schema, const char *keyword, const json_t *value, re_id *re)
{
    bool is_most = strstr(keyword, "ax") != NULL, exclusive = keyword[0] == 'e';
    struct decimal x;
    if (exclusive && json_is_boolean(value)) return false;
    if (!json_is_number(value)) return schema_fail(s, schema, keyword, QN_EDATA, "it is not a number");
    if (!decimal_of(&x, value)) return schema_fail(s, schema, keyword, QN_EUNSUP, "the number has too many digits");
    if (json_is_true(json_object_get(schema, is_most ? "exclusiveMaximum" : "exclusiveMinimum"))) exclusive = true;
    enum decimal_order order = is_most     ? (exclusive ? DECIMAL_LESS : DECIMAL_AT_MOST)
                               : exclusive ? DECIMAL_MORE
                                           : DECIMAL_AT_LEAST;
    /* Where an exponent stands the comparison would have to begin anew; but it does not change the sign. */
    *re = re_bound(s->r, &x, order);
    if (!decimal_is_zero(&x)) *re = re_and2(s->r, s->plain, *re);
    return !s->l->rc;
}

static bool multiple(struct schema *s, const json_t *schema, const json_t *value, re_id *re)
{
    struct decimal x;
    unsigned n_fraction;
    if (!json_is_number(value) || json_number_value(value) <= 0)
        return schema_fail(s, schema, "multipleOf", QN_EDATA, "it is not a number above 0");
    if (!decimal_of(&x, value) || !decimal_divisor(&x, &n_fraction))
        return schema_fail(s, schema, "multipleOf", QN_EUNSUP, "its digits make a number above %d",
                           DECIMAL_MAX_DIVISOR);
    *re = re_and2(s->r, s->plain, re_multiple(s->r, &x));
    return !s->l->rc;
}

/* Every way to write a number. */
static re_id loose_number(struct schema *s, const json_t *value)
{
    struct decimal x;
    if (!decimal_of(&x, value)) {
        limits_fail(s->l, QN_EUNSUP, "the number has too many digits");
        return RE_NONE;
    }
    return re_and(
        s->r, (const re_id[]){s->plain, re_bound(s->r, &x, DECIMAL_AT_LEAST), re_bound(s->r, &x, DECIMAL_AT_MOST)}, 3);
}

/* Writes a number in the one way that answers have. Returns the length; 0 after a failure. */
static uint32_t write_number(struct schema *s, const json_t *value, char text[DECIMAL_DIGITS + 3])
{
    struct decimal x;
    if (json_is_integer(value))
        return (uint32_t)snprintf(text, DECIMAL_DIGITS, "%lld", (long long)json_integer_value(value));
    if (decimal_of(&x, value)) return decimal_write(&x, text);
    limits_fail(s->l, QN_EUNSUP, "the number has too many digits");
    return 0;
}

/* ---- enumerations ---- */

re_id scalar_strings(struct schema *s, const json_t *values)
{
    uint32_t n = 0;
    size_t size = json_array_size(values);
    struct str_ref *words = slabs_get(&s->slabs, s->l, size * sizeof *words);
    for (size_t i = 0; words && i < size; i++) {
        const json_t *v = json_array_get(values, i);
        if (json_is_string(v)) words[n++] = (struct str_ref){json_string_value(v), (uint32_t)json_string_length(v)};
    }
    return words && n ? re_words(s->r, words, n) : RE_NONE;
}

re_id scalar_numbers(struct schema *s, const json_t *values)
{
    char text[DECIMAL_DIGITS + 3];
    uint32_t n = 0;
    size_t size = json_array_size(values);
    struct str_ref *words = slabs_get(&s->slabs, s->l, size * sizeof *words);
    for (size_t i = 0; words && i < size; i++) {
        const json_t *v = json_array_get(values, i);
        uint32_t length = json_is_number(v) ? write_number(s, v, text) : 0;
        char *copy = length ? slabs_get(&s->slabs, s->l, length) : NULL;
        if (copy) words[n++] = (struct str_ref){memcpy(copy, text, length), length};
    }
    return n && !s->l->rc ? re_words(s->r, words, n) : RE_NONE;
}

re_id scalar_loose_numbers(struct schema *s, const json_t *values)
{
    re_id all = RE_NONE;
    for (size_t i = 0; i < json_array_size(values); i++) {
        const json_t *v = json_array_get(values, i);
        if (json_is_number(v)) all = re_or2(s->r, all, loose_number(s, v));
    }
    return all;
}

/* ---- all of them ---- */

bool scalar_keyword(struct schema *s, const json_t *schema, const char *keyword, const json_t *value,
                    enum atom_kind *kind, re_id *re)
{
    uint32_t n = 0;
    *kind = ATOM_STRING;
    if (strcmp(keyword, "format") == 0) return format(s, schema, value, kind, re);
    if (strcmp(keyword, "pattern") == 0) {
        if (!json_is_string(value)) return schema_fail(s, schema, keyword, QN_EDATA, "it is not a string");
        *re = scalar_pattern(s, json_string_value(value), json_string_length(value));
        return !s->l->rc;
    }
    if (strcmp(keyword, "minLength") == 0 || strcmp(keyword, "maxLength") == 0) {
        if (!keyword_count(s, schema, keyword, value, &n)) return false;
        *re = keyword[1] == 'i' ? re_chars(s->r, n, RE_NO_MAX) : re_chars(s->r, 0, n);
        return !s->l->rc;
    }
    *kind = ATOM_NUMBER;
    if (strcmp(keyword, "multipleOf") == 0) return multiple(s, schema, value, re);
    return bound(s, schema, keyword, value, re);
}
