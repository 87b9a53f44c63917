/* SPDX-License-Identifier: MIT
 *
 * tool_json.c: reads a tool call in JSON while it is written.
 *
 * A pushdown automaton takes one byte at a time, and knows at every moment whether the bytes so far are the beginning
 * of an object (RFC 8259). At the same time the members of the outermost object are followed: the name is decoded when
 * its string ends, and the arguments are passed on byte by byte as soon as the name is known. The automaton does not
 * notice a lone surrogate, a number out of range or the same key twice; jansson checks for these when the arguments are
 * complete. So a call that ends well is JSON for every reader. Nothing is repaired.
 */
#include "text/chat/tool_json.h"

#include <jansson.h>
#include <string.h>

#include "base/inline/digits.h"
#include "base/mem.h"

/* ---- the automaton ---- */

enum json_state {
    JS_BEGIN,     /* before the '{' */
    JS_VALUE,     /* a value must come */
    JS_VALUE_END, /* a value or ']' */
    JS_KEY,       /* a key must come */
    JS_KEY_END,   /* a key or '}' */
    JS_COLON,
    JS_AFTER, /* after a value: ',' or the closing bracket */
    JS_STRING,
    JS_ESCAPE,
    JS_HEX,
    JS_WORD,
    JS_MINUS, /* from here to JS_EXPONENT: the parts of a number */
    JS_ZERO,
    JS_INT,
    JS_DOT,
    JS_FRACTION,
    JS_E,
    JS_E_SIGN,
    JS_EXPONENT,
    JS_DONE,
    JS_BAD,
};

static bool is_space(uint8_t c) { return c == ' ' || c == '\n' || c == '\r' || c == '\t'; }

static bool is_number_end(uint8_t state)
{
    return state == JS_ZERO || state == JS_INT || state == JS_FRACTION || state == JS_EXPONENT;
}

static bool in_object(const struct json_scan *s)
{
    int d = s->depth - 1;
    return s->object[d / 64] >> (d % 64) & 1;
}

static uint8_t open_nested(struct json_scan *s, bool object)
{
    if (s->depth == TOOL_JSON_MAX_DEPTH) return JS_BAD;
    int d = s->depth++;
    uint64_t bit = (uint64_t)1 << (d % 64);
    s->object[d / 64] = object ? s->object[d / 64] | bit : s->object[d / 64] & ~bit;
    return object ? JS_KEY_END : JS_VALUE_END;
}

static uint8_t close_nested(struct json_scan *s) { return --s->depth == 0 ? JS_DONE : JS_AFTER; }

static uint8_t begin_word(struct json_scan *s, const char *rest)
{
    s->word = rest;
    return JS_WORD;
}

static uint8_t begin_value(struct json_scan *s, uint8_t c)
{
    switch (c) {
    case '{': return open_nested(s, true);
    case '[': return open_nested(s, false);
    case '"': s->in_key = false; return JS_STRING;
    case 't': return begin_word(s, "rue");
    case 'f': return begin_word(s, "alse");
    case 'n': return begin_word(s, "ull");
    case '-': return JS_MINUS;
    case '0': return JS_ZERO;
    default: return is_digit(c) ? JS_INT : JS_BAD;
    }
}

/* The states between two tokens of the language, where white space may stand. */
static uint8_t between(struct json_scan *s, uint8_t c)
{
    bool object = s->depth > 0 && in_object(s);
    if (is_space(c)) return s->state;
    switch (s->state) {
    case JS_VALUE_END:
        if (c == ']') return close_nested(s);
        return begin_value(s, c);
    case JS_VALUE: return begin_value(s, c);
    case JS_KEY_END:
        if (c == '}') return close_nested(s);
        /* fall through */
    case JS_KEY: s->in_key = true; return c == '"' ? JS_STRING : JS_BAD;
    case JS_COLON: return c == ':' ? JS_VALUE : JS_BAD;
    default: /* JS_AFTER */
        if (c == ',') return object ? JS_KEY : JS_VALUE;
        return c == (object ? '}' : ']') ? close_nested(s) : JS_BAD;
    }
}

static uint8_t in_string(struct json_scan *s, uint8_t c)
{
    switch (s->state) {
    case JS_STRING:
        if (c == '"') return s->in_key ? JS_COLON : JS_AFTER;
        if (c == '\\') return JS_ESCAPE;
        return c < 0x20 ? JS_BAD : JS_STRING;
    case JS_ESCAPE:
        s->n_hex = 4;
        if (c == 'u') return JS_HEX;
        return c && strchr("\"\\/bfnrt", c) ? JS_STRING : JS_BAD;
    default: /* JS_HEX */
        if (hex_digit(c) < 0) return JS_BAD;
        return --s->n_hex == 0 ? JS_STRING : JS_HEX;
    }
}

static uint8_t in_number(struct json_scan *s, uint8_t c)
{
    bool e = c == 'e' || c == 'E';
    switch (s->state) {
    case JS_MINUS:
        if (c == '0') return JS_ZERO;
        return is_digit(c) ? JS_INT : JS_BAD;
    case JS_INT:
        if (is_digit(c)) return JS_INT;
        /* fall through */
    case JS_ZERO:
        if (c == '.') return JS_DOT;
        if (e) return JS_E;
        break;
    case JS_DOT: return is_digit(c) ? JS_FRACTION : JS_BAD;
    case JS_FRACTION:
        if (is_digit(c)) return JS_FRACTION;
        if (e) return JS_E;
        break;
    case JS_E:
        if (c == '+' || c == '-') return JS_E_SIGN;
        /* fall through */
    case JS_E_SIGN: return is_digit(c) ? JS_EXPONENT : JS_BAD;
    default: /* JS_EXPONENT */
        if (is_digit(c)) return JS_EXPONENT;
        break;
    }
    s->state = JS_AFTER; /* the number ended before c */
    return between(s, c);
}

static void scan_byte(struct json_scan *s, uint8_t c)
{
    switch (s->state) {
    case JS_BEGIN: s->state = c == '{' ? open_nested(s, true) : JS_BAD; break;
    case JS_STRING:
    case JS_ESCAPE:
    case JS_HEX: s->state = in_string(s, c); break;
    case JS_WORD:
        if (c != (uint8_t)*s->word)
            s->state = JS_BAD;
        else if (*++s->word == 0)
            s->state = JS_AFTER;
        break;
    case JS_DONE:
    case JS_BAD: s->state = JS_BAD; break;
    default: s->state = s->state >= JS_MINUS && s->state <= JS_EXPONENT ? in_number(s, c) : between(s, c);
    }
}

/* ---- the call ---- */

int tool_json_init(struct tool_json *t, const char *name, size_t n, struct qn_error *e)
{
    *t = (struct tool_json){.bare = name != NULL, .value_at = SIZE_MAX};
    return name ? buf_add(&t->name, name, n, e) : 0;
}

void tool_json_deinit(struct tool_json *t)
{
    buf_deinit(&t->text);
    buf_deinit(&t->name);
    buf_deinit(&t->args);
    *t = (struct tool_json){0};
}

static bool key_is(const struct tool_json *t, const char *quoted)
{
    return t->key_n == strlen(quoted) && memcmp(t->text.data + t->key_at, quoted, t->key_n) == 0;
}

static bool key_is_args(const struct tool_json *t) { return key_is(t, "\"arguments\"") || key_is(t, "\"parameters\""); }

static json_t *decode(const struct tool_json *t, size_t at, size_t n)
{
    return json_loadb((const char *)t->text.data + at, n, JSON_DECODE_ANY | JSON_REJECT_DUPLICATES | JSON_ALLOW_NUL,
                      NULL);
}

static int take_name(struct tool_json *t, size_t end, struct qn_error *e)
{
    json_t *name = decode(t, t->value_at, end - t->value_at);
    int rc = TOOL_JSON_BAD;
    if (json_string_length(name) > 0 && t->name.len == 0) /* an object with two names is not a call */
        rc = buf_add(&t->name, json_string_value(name), json_string_length(name), e);
    json_decref(name);
    return rc;
}

/* Checks the complete arguments, text[args_at .. end). A string is decoded and must hold JSON; null stands for {}. */
static int take_args(struct tool_json *t, size_t end, struct qn_error *e)
{
    json_t *value = decode(t, t->args_at, end - t->args_at), *inner = NULL;
    int rc = TOOL_JSON_MORE;
    if (json_is_string(value)) {
        size_t n = json_string_length(value);
        inner = json_loadb(json_string_value(value), n, JSON_REJECT_DUPLICATES | JSON_ALLOW_NUL, NULL);
        rc = json_is_object(inner) ? buf_add(&t->args, json_string_value(value), n, e) : TOOL_JSON_BAD;
    } else if (json_is_null(value)) {
        rc = buf_str(&t->args, "{}", e);
    } else if (!json_is_object(value)) {
        rc = TOOL_JSON_BAD;
    }
    json_decref(inner);
    json_decref(value);
    t->args_n = end - t->args_at;
    return rc;
}

/* Called when the value of a member of the outermost object has ended, before `end`. */
static int end_value(struct tool_json *t, size_t end, struct qn_error *e)
{
    int rc = TOOL_JSON_MORE;
    if (key_is(t, "\"name\"")) rc = take_name(t, end, e);
    if (key_is_args(t)) rc = take_args(t, end, e);
    t->value_at = SIZE_MAX;
    return rc;
}

/* Follows the members of the outermost object. The byte c at `at` led from the state `before` to the present one. */
static int follow(struct tool_json *t, uint8_t before, uint8_t c, int depth, size_t at, struct qn_error *e)
{
    uint8_t now = t->scan.state;
    bool key_begins = depth == 1 && (before == JS_KEY || before == JS_KEY_END) && now == JS_STRING;
    if (key_begins) t->key_at = at;
    if (depth == 1 && before == JS_STRING && now == JS_COLON) t->key_n = at + 1 - t->key_at;
    if (depth == 1 && before == JS_VALUE && !is_space(c)) {
        t->value_at = at;
        if (key_is_args(t)) {
            if (t->has_args) return TOOL_JSON_BAD;
            t->has_args = true;
            t->args_at = at;
            t->quoted = c != '{';
        }
    }
    bool number = depth == 1 && is_number_end(before) && !(now >= JS_MINUS && now <= JS_EXPONENT);
    bool closed = depth == 2 && t->scan.depth == 1;
    bool other = t->scan.depth == 1 && now == JS_AFTER && (before != JS_AFTER || closed) && !number;
    if (t->value_at == SIZE_MAX || !(number || other)) return TOOL_JSON_MORE;
    return end_value(t, number ? at : at + 1, e);
}

/* Passes on the known part of arguments that are an object, from `from` on. */
static int give_args(struct tool_json *t, size_t from, struct qn_error *e)
{
    size_t end = t->args_n ? t->args_at + t->args_n : t->text.len;
    if (!t->has_args || t->quoted || t->name.len == 0 || from >= end) return 0;
    if (from < t->args_at) from = t->args_at;
    return buf_add(&t->args, t->text.data + from, end - from, e);
}

/* Checks the whole object once it is complete. */
static int finish(struct tool_json *t, struct qn_error *e)
{
    if (t->bare) {
        json_t *args = decode(t, 0, t->text.len);
        int rc = args ? 0 : TOOL_JSON_BAD;
        json_decref(args);
        return rc;
    }
    if (t->name.len == 0) return TOOL_JSON_BAD;
    return t->has_args ? 0 : buf_str(&t->args, "{}", e);
}

int tool_json_read(struct tool_json *t, const char *p, size_t n, size_t *used, struct qn_error *e)
{
    size_t from = t->text.len, i = 0;
    bool named = t->name.len > 0;
    int rc = buf_reserve(&t->text, n, e);
    if (rc == 0 && t->bare && from == 0) t->has_args = true; /* args_at is 0 */
    while (rc == 0 && i < n && t->scan.state != JS_DONE) {
        uint8_t before = t->scan.state, c = (uint8_t)p[i];
        int depth = t->scan.depth;
        scan_byte(&t->scan, c);
        if (t->scan.state == JS_BAD) {
            rc = TOOL_JSON_BAD;
            break;
        }
        t->text.data[t->text.len++] = c;
        if (!t->bare) rc = follow(t, before, c, depth, t->text.len - 1, e);
        i++;
    }
    *used = i;
    if (rc < 0) return rc;
    int given = give_args(t, named ? from : 0, e);
    if (given) return given;
    if (rc == 0 && t->scan.state == JS_DONE) {
        rc = finish(t, e);
        if (rc == 0) rc = TOOL_JSON_DONE;
    }
    return rc;
}
