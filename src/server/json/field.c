/* SPDX-License-Identifier: MIT
 *
 * field.c: reads JSON objects by tables of their members.
 *
 * A number with a fraction of zero counts as a whole one, because some clients have no integers. A body with a number
 * that no C integer can hold is parsed a second time with doubles. So the refusal can name the member; the parser's own
 * error cannot.
 */
#include "server/json/field.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/error.h"
#include "base/mem.h"

int fault_set(struct fault *f, int status, const char *code, const char *param, const char *fmt, ...)
{
    char text[1024];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    f->status = status;
    f->code = code;
    error_clean(f->message, sizeof f->message, text);
    error_clean(f->param, sizeof f->param, param ? param : "");
    return -1;
}

static const char *type_name(const json_t *v)
{
    switch (json_typeof(v)) {
    case JSON_OBJECT: return "an object";
    case JSON_ARRAY: return "an array";
    case JSON_STRING: return "a string";
    case JSON_INTEGER:
    case JSON_REAL: return "a number";
    case JSON_TRUE:
    case JSON_FALSE: return "a boolean";
    default: return "null";
    }
}

int field_wrong_type(struct fault *f, const char *name, const char *wanted, const json_t *got)
{
    return fault_set(f, 400, "invalid_type", name, "%s has to be %s, not %s", name, wanted, type_name(got));
}

int field_unsupported(struct fault *f, const char *name, const char *what)
{
    return fault_set(f, 400, "unsupported_value", name, "%s: %s not supported", name, what);
}

bool field_is(const json_t *v, const char *text)
{
    size_t n = strlen(text);
    return json_is_string(v) && json_string_length(v) == n && !memcmp(json_string_value(v), text, n);
}

int field_no_nul(const char *name, const json_t *v, struct fault *f)
{
    if (!memchr(json_string_value(v), 0, json_string_length(v))) return 0;
    return fault_set(f, 400, "invalid_value", name, "%s has the character U+0000 in it, which only texts may have",
                     name);
}

bool field_is_empty(const json_t *v)
{
    return !v || json_is_null(v) || json_is_false(v) || (json_is_string(v) && json_string_length(v) == 0) ||
           (json_is_array(v) && json_array_size(v) == 0) || (json_is_object(v) && json_object_size(v) == 0);
}

static int no_memory(struct fault *f) { return fault_set(f, 503, "no_memory", NULL, "not enough memory"); }

int field_ignore(struct fault *f, const char *name)
{
    struct field_ignored *l = f->ignored;
    if (!l || l->n == FIELD_MAX_IGNORED) return 0;
    for (size_t at = 0; at < l->names.len; at += strlen((char *)l->names.data + at) + 1)
        if (!strcmp((char *)l->names.data + at, name)) return 0;
    if (l->n == FIELD_MAX_IGNORED - 1) name = "...";
    if (buf_add(&l->names, name, strlen(name) + 1, NULL)) return no_memory(f);
    l->n++;
    return 0;
}

/* A whole number in [lo, hi]. */
static int read_int(const char *name, const json_t *v, int64_t lo, int64_t hi, int64_t *out, struct fault *f)
{
    double x = json_number_value(v);

    if (!json_is_number(v)) return field_wrong_type(f, name, "a whole number", v);
    if (json_is_real(v) && x != trunc(x))
        return fault_set(f, 400, "invalid_type", name, "%s has to be a whole number, not %g", name, x);
    /* A double of 2^63 is out of range, and all below it fit. */
    if (json_is_real(v) && (x < -0x1p63 || x >= 0x1p63)) goto outside;
    *out = json_is_real(v) ? (int64_t)x : (int64_t)json_integer_value(v);
    if (*out >= lo && *out <= hi) return 0;
outside:
    return fault_set(f, 400, "out_of_range", name, "%s has to be in %lld..%lld, not %.17g", name, (long long)lo,
                     (long long)hi, x);
}

static int read_float(const struct field *d, const char *name, const json_t *v, float *out, struct fault *f)
{
    double x = json_number_value(v);
    if (!json_is_number(v)) return field_wrong_type(f, name, "a number", v);
    if (x < d->lo || x > d->hi)
        return fault_set(f, 400, "out_of_range", name, "%s has to be in %g..%g, not %g", name, d->lo, d->hi, x);
    *out = (float)x;
    return 0;
}

/* Checks a size: bytes of a string, elements of an array. */
static int check_size(const struct field *d, const char *name, size_t n, const char *unit, struct fault *f)
{
    if ((double)n >= d->lo && (double)n <= d->hi) return 0;
    return fault_set(f, 400, "out_of_range", name, "%s has to have %g to %g %s, not %zu", name, d->lo, d->hi, unit, n);
}

static bool is_equal(const json_t *a, const json_t *b)
{
    if (json_is_number(a) && json_is_number(b)) return json_number_value(a) == json_number_value(b);
    return json_equal(a, b);
}

/* For members whose other values would ask for something that is not done here. */
static int read_one_of(const struct field *d, const char *name, const json_t *v, struct fault *f)
{
    if (!d->exact && field_is_empty(v)) return 0;
    json_t *all = json_loads(d->allowed, JSON_DECODE_ANY, NULL);
    bool found = false;
    size_t i;
    json_t *one;
    if (!all) return no_memory(f);
    json_array_foreach(all, i, one) found = found || is_equal(one, v);
    json_decref(all);
    if (found) return 0;
    if (!strcmp(d->allowed, "[]")) return fault_set(f, 400, "unsupported_value", name, "%s is not supported", name);
    return fault_set(f, 400, "unsupported_value", name, "%s: this value is not supported; %s is", name, d->allowed);
}

static int read_ignored(const struct field *d, const char *name, const json_t *v, struct fault *f)
{
    static const char letters[] = {[JSON_OBJECT] = 'o', [JSON_ARRAY] = 'a', [JSON_STRING] = 's', [JSON_INTEGER] = 'n',
                                   [JSON_REAL] = 'n',   [JSON_TRUE] = 'b',  [JSON_FALSE] = 'b'};
    char wanted[64] = "";
    if (field_is_empty(v)) return 0;
    if (strchr(d->allowed, letters[json_typeof(v)])) return field_ignore(f, name);
    for (const char *p = d->allowed; *p; p++) {
        size_t n = strlen(wanted);
        const char *type = *p == 'o' ? "an object" : *p == 'a' ? "an array" : *p == 's' ? "a string" : NULL;
        if (!type) type = *p == 'n' ? "a number" : "true or false";
        snprintf(wanted + n, sizeof wanted - n, "%s%s", n ? " or " : "", type);
    }
    return field_wrong_type(f, name, wanted, v);
}

static int read_value(const struct field *d, const char *name, const json_t *v, void *out, struct fault *f)
{
    void *at = (char *)out + d->at;
    int64_t i = 0;
    switch (d->type) {
    case FIELD_BOOL:
        if (!json_is_boolean(v)) return field_wrong_type(f, name, "true or false", v);
        *(bool *)at = json_is_true(v);
        return 0;
    case FIELD_INT:
        if (read_int(name, v, (int64_t)d->lo, (int64_t)d->hi, &i, f)) return -1;
        *(int *)at = (int)i;
        return 0;
    case FIELD_INT64: return read_int(name, v, INT64_MIN, INT64_MAX, at, f);
    case FIELD_FLOAT: return read_float(d, name, v, at, f);
    case FIELD_STRING:
        if (!json_is_string(v)) return field_wrong_type(f, name, "a string", v);
        *(const char **)at = json_string_value(v);
        if (field_no_nul(name, v, f)) return -1;
        return check_size(d, name, json_string_length(v), "bytes", f);
    case FIELD_TEXT:
        if (!json_is_string(v)) return field_wrong_type(f, name, "a string", v);
        *(const json_t **)at = v;
        return check_size(d, name, json_string_length(v), "bytes", f);
    case FIELD_ARRAY:
        if (!json_is_array(v)) return field_wrong_type(f, name, "an array", v);
        *(const json_t **)at = v;
        return check_size(d, name, json_array_size(v), "elements", f);
    case FIELD_OBJECT:
        if (!json_is_object(v)) return field_wrong_type(f, name, "an object", v);
        *(const json_t **)at = v;
        return 0;
    case FIELD_ANY: *(const json_t **)at = v; return 0;
    case FIELD_ONE_OF: return read_one_of(d, name, v, f);
    case FIELD_IGNORED: return read_ignored(d, name, v, f);
    case FIELD_PARSE: return d->parse(out, d, name, v, f);
    }
    return -1;
}

/* Tables are short and requests have few members, so a linear search is enough. */
static const struct field *find(const struct field *const *tables, const char *name)
{
    for (; *tables; tables++)
        for (const struct field *d = *tables; d->name; d++)
            if (!strcmp(d->name, name)) return d;
    return NULL;
}

int field_read(const struct field *const *tables, const char *prefix, const json_t *object, void *out, struct fault *f)
{
    char name[96], shown[64];
    const char *key;
    json_t *v;
    json_object_foreach((json_t *)(uintptr_t)object, key, v)
    {
        const struct field *d = find(tables, key);
        error_clean(shown, sizeof shown, key);
        snprintf(name, sizeof name, "%s%s", prefix, shown);
        if (!d) {
            if (!f->ignored || !field_is_empty(v))
                return fault_set(f, 400, "unknown_field", name, "%s: there is no such field here", name);
            if (field_ignore(f, name)) return -1;
            continue;
        }
        if (json_is_null(v)) continue;
        if (read_value(d, name, v, out, f)) return -1;
        if (d->present) *(bool *)((char *)out + d->present) = true;
    }
    for (; *tables; tables++)
        for (const struct field *d = *tables; d->name; d++) {
            v = json_object_get(object, d->name);
            if (!d->required || (v && !json_is_null(v))) continue;
            snprintf(name, sizeof name, "%s%s", prefix, d->name);
            return fault_set(f, 400, "missing_field", name, "%s is missing", name);
        }
    return 0;
}

/* A value can take a hundred times the memory of its text: {} does. So values are counted before they are parsed, by
 * the characters outside of strings. */
struct counts {
    size_t commas, arrays, objects, members, strings, longest; /* bytes of the longest string */
};

static struct counts count(const char *s, size_t n)
{
    struct counts c = {0};
    size_t start = 0;
    bool in_string = false;
    for (size_t i = 0; i < n; i++) {
        if (s[i] == '"') {
            in_string = !in_string;
            if (in_string) start = i + 1;
            c.strings += in_string;
            if (!in_string && i - start > c.longest) c.longest = i - start;
        } else if (in_string) {
            i += s[i] == '\\';
        } else {
            c.commas += s[i] == ',';
            c.arrays += s[i] == '[';
            c.objects += s[i] == '{';
            c.members += s[i] == ':';
        }
    }
    if (in_string && n - start > c.longest) c.longest = n - start;
    return c;
}

/* Bytes that jansson (2.14) takes, including those that the allocator adds: a value in its list, which grows by
 * doubling; an array and an object with their first tables; a member with its key and its part of the table; a string
 * in addition to its text. The longest string is collected in a buffer that grows by doubling, too. */
#define VALUE_BYTES  64
#define ARRAY_BYTES  128
#define OBJECT_BYTES 240
#define MEMBER_BYTES 144
#define STRING_BYTES 64

int field_measure(const void *text, size_t n, struct field_size *size, struct fault *f)
{
    struct counts c = count(text, n);
    size_t brackets = c.arrays + c.objects, values = c.commas + brackets;
    size_t texts = c.strings > c.members ? c.strings - c.members : 0; /* the others are names */
    if (c.commas >= FIELD_MAX_VALUES || brackets > FIELD_MAX_BRACKETS)
        return fault_set(f, 400, "out_of_range", NULL, "the body may hold %d values, %d of them objects and arrays",
                         FIELD_MAX_VALUES, FIELD_MAX_BRACKETS);
    size->kept = n + values * VALUE_BYTES + c.arrays * ARRAY_BYTES + c.objects * OBJECT_BYTES +
                 c.members * MEMBER_BYTES + texts * STRING_BYTES;
    size->more = 2 * c.longest + 4096;
    return 0;
}

/* jansson (2.14) does not notice that its copy of a string or number cannot grow, and then reads past its end or
 * aborts. So the memory for the longest possible one has to be there. */
static int check_memory(size_t n, struct fault *f)
{
    void *p = mem_alloc(4 * n + 4096);
    mem_free(p);
    return p ? 0 : no_memory(f);
}

#define PIECE_BYTES 32768 /* between two questions whether to go on: a quarter of a millisecond or more */

struct body_reader {
    const char *p;
    size_t left;
    const struct qn_cancel *cancel;
    bool cancelled;
};

static size_t read_on(void *buffer, size_t cap, void *arg)
{
    struct body_reader *r = arg;
    size_t n = r->left < cap ? r->left : cap;
    if (r->left / PIECE_BYTES != (r->left - n) / PIECE_BYTES && r->cancel)
        r->cancelled = r->cancelled || r->cancel->is_cancelled(r->cancel->arg);
    if (r->cancelled) return (size_t)-1;
    memcpy(buffer, r->p, n);
    r->p += n;
    r->left -= n;
    return n;
}

static json_t *load(const void *text, size_t n, size_t flags, const struct qn_cancel *cancel, bool *cancelled,
                    json_error_t *e)
{
    struct body_reader r = {text, n, cancel, false};
    json_t *j = json_load_callback(read_on, &r, JSON_REJECT_DUPLICATES | JSON_ALLOW_NUL | flags, e);
    *cancelled = r.cancelled;
    return j;
}

/* Says why a text could not be parsed. For what clients do by mistake, the words are ours. */
static void fault_of_parser(struct fault *f, size_t n, const json_error_t *e)
{
    static const char surrogate[] = "invalid Unicode '";
    if (n == 0)
        fault_set(f, 400, "invalid_json", NULL, "the body is empty; it has to be a JSON object");
    else if (json_error_code(e) == json_error_null_byte_in_key)
        fault_set(f, 400, "invalid_json", NULL, "a name in the body has the character U+0000 in it (byte %d)",
                  e->position);
    else if (!strncmp(e->text, surrogate, strlen(surrogate)))
        fault_set(f, 400, "invalid_json", NULL,
                  "the body has one half of a surrogate pair without the other: %.6s (the text that ends at byte %d)",
                  e->text + strlen(surrogate), e->position);
    else
        fault_set(f, 400, "invalid_json", NULL, "the body is not valid JSON: %s (byte %d)", e->text, e->position);
}

json_t *field_parse_body(const void *text, size_t n, const struct qn_cancel *cancel, struct fault *f)
{
    static const char mark[] = {'\xef', '\xbb', '\xbf'}; /* U+FEFF, which some editors put before a text */
    size_t n_mark = n >= sizeof mark && !memcmp(text, mark, sizeof mark) ? sizeof mark : 0;
    json_error_t e;
    text = (const char *)text + n_mark;
    n -= n_mark;
    struct field_size size;
    bool cancelled;
    if (field_measure(text, n, &size, f) || check_memory(n, f)) return NULL;
    json_t *j = load(text, n, 0, cancel, &cancelled, &e);
    if (!j && !cancelled && json_error_code(&e) == json_error_numeric_overflow)
        j = load(text, n, JSON_DECODE_INT_AS_REAL, cancel, &cancelled, &e);
    if (cancelled) {
        json_decref(j);
        fault_set(f, 503, NULL, NULL, "the request was ended");
        return NULL;
    }
    if (!j && !e.text[0]) {
        no_memory(f);
        return NULL;
    }
    if (!j) {
        e.position += (int)n_mark;
        fault_of_parser(f, n, &e);
        return NULL;
    }
    if (json_is_object(j)) return j;
    fault_set(f, 400, "invalid_json", NULL, "the body has to be a JSON object, not %s", type_name(j));
    json_decref(j);
    return NULL;
}
