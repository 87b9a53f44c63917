/* SPDX-License-Identifier: MIT
 *
 * tool_python.c: reads tool calls in the shape of Python: name(key=value, ...), in a list or one a line.
 *
 * Values are Python's literals or JSON: texts in either kind of quotation marks, numbers, lists, tuples, dictionaries,
 * True and true. Each becomes JSON when its end is known, and is given out as a member of the object of the arguments.
 * Arguments without a key, and expressions, are no literals: such a call comes out as text.
 * In marks, calls may be JSON as well.
 */
#include <string.h>

#include "base/inline/digits.h"
#include "base/json/json_text.h"
#include "base/utf8.h"
#include "text/chat/chat_state.h"
#include "text/chat/tool_schema.h"

/* ---- literals ---- */

/* A literal that becomes JSON. */
struct literal {
    const char *p, *end;
    struct buf *out;
    int rc; /* QN_ENOMEM */
};

static bool value(struct literal *l, int depth);

static void put(struct literal *l, const void *p, size_t n)
{
    if (!l->rc) l->rc = buf_add(l->out, p, n, NULL);
}

static void space(struct literal *l)
{
    while (l->p < l->end && *l->p && strchr(" \n\r\t", *l->p)) l->p++;
}

static bool starts(struct literal *l, const char *word)
{
    size_t n = strlen(word);
    if ((size_t)(l->end - l->p) < n || memcmp(l->p, word, n) != 0) return false;
    l->p += n;
    return true;
}

/* The number of n hexadecimal digits. */
static bool hex(struct literal *l, int n, uint32_t *x)
{
    *x = 0;
    for (; n > 0; n--, l->p++) {
        int d = l->p < l->end ? hex_digit((uint8_t)*l->p) : -1;
        if (d < 0) return false;
        *x = *x << 4 | (uint32_t)d;
    }
    return true;
}

static bool put_character(struct literal *l, struct buf *text, uint32_t cp)
{
    uint8_t bytes[4];
    uint32_t low;
    if (cp >= 0xD800 && cp < 0xDC00 && starts(l, "\\u")) { /* JSON writes a character as two halves */
        if (!hex(l, 4, &low) || low < 0xDC00 || low > 0xDFFF) return false;
        cp = 0x10000 + ((cp & 0x3FF) << 10) + (low & 0x3FF);
    }
    if (cp > 0x10FFFF || (cp >= 0xD800 && cp <= 0xDFFF)) return false;
    size_t n = (size_t)utf8_put(bytes, cp);
    if (!l->rc) l->rc = buf_add(text, bytes, n, NULL);
    return true;
}

/* After a backslash. One that means nothing stays. */
static bool escape(struct literal *l, struct buf *text)
{
    static const char names[] = "nrtbf\\'\"/", chars[] = "\n\r\t\b\f\\'\"/";
    uint32_t cp;
    char c = *l->p++;
    const char *known = c ? strchr(names, c) : NULL;
    if (known) return put_character(l, text, (uint8_t)chars[known - names]);
    if (c == 'x' || c == 'u' || c == 'U')
        return hex(l, c == 'x' ? 2 : c == 'u' ? 4 : 8, &cp) && put_character(l, text, cp);
    if (!l->rc) l->rc = buf_add(text, "\\", 1, NULL);
    l->p--;
    return true;
}

static bool text_of(struct literal *l, struct buf *text)
{
    char quote = *l->p++;
    for (; l->p < l->end && *l->p != quote;) {
        if (*l->p == '\\' && l->p + 1 < l->end) {
            l->p++;
            if (!escape(l, text)) return false;
        } else if (!l->rc) {
            l->rc = buf_add(text, l->p++, 1, NULL);
        } else {
            return false;
        }
    }
    return l->p < l->end && *l->p++ == quote;
}

static bool string(struct literal *l)
{
    struct buf text = {0};
    bool ok = text_of(l, &text);
    json_t *s = ok ? json_stringn(text.data ? (char *)text.data : "", text.len) : NULL; /* NULL: no UTF-8 */
    if (s && !l->rc) l->rc = json_text_add(l->out, s, 0, "a call's argument", NULL);
    json_decref(s);
    buf_deinit(&text);
    return s != NULL;
}

/* A value in parentheses is no tuple: takes the bracket back that was written at `at`. */
static void unwrap(struct literal *l, size_t at)
{
    if (l->rc) return;
    l->out->len--;
    memmove(l->out->data + at, l->out->data + at + 1, l->out->len - at);
}

/* Items up to the closing bracket, of which the last one may have a comma. */
static bool items(struct literal *l, char open, int depth)
{
    char close = open == '(' ? ')' : open == '[' ? ']' : '}';
    bool is_object = open == '{', has_comma = false;
    int n = 0;
    size_t at = l->out->len;
    put(l, is_object ? "{" : "[", 1);
    for (;; n++) {
        space(l);
        if (l->p < l->end && *l->p == close) break;
        if (n) put(l, ", ", 2);
        if (is_object && (l->p == l->end || (*l->p != '"' && *l->p != '\''))) return false;
        if (!value(l, depth + 1)) return false;
        space(l);
        if (is_object) {
            if (!starts(l, ":")) return false;
            put(l, ": ", 2);
            if (!value(l, depth + 1)) return false;
            space(l);
        }
        bool comma = starts(l, ",");
        if (!comma && (l->p == l->end || *l->p != close)) return false;
        has_comma |= comma;
    }
    l->p++;
    if (open == '(' && n == 1 && !has_comma)
        unwrap(l, at);
    else
        put(l, is_object ? "}" : "]", 1);
    return true;
}

static bool number(struct literal *l)
{
    const char *from = l->p;
    while (l->p < l->end && (strchr("+-.eE", *l->p) ? *l->p != '\0' : *l->p >= '0' && *l->p <= '9')) l->p++;
    put(l, from, (size_t)(l->p - from));
    return l->p > from; /* whether it is JSON is seen in the end */
}

static bool value(struct literal *l, int depth)
{
    static const char *const words[][2] = {{"True", "true"}, {"False", "false"}, {"None", "null"},
                                           {"true", "true"}, {"false", "false"}, {"null", "null"}};
    space(l);
    if (l->p == l->end || depth > TOOL_JSON_MAX_DEPTH || l->rc) return false;
    if (*l->p == '"' || *l->p == '\'') return string(l);
    if (*l->p == '[' || *l->p == '(' || *l->p == '{') return items(l, *l->p++, depth);
    for (size_t i = 0; i < sizeof words / sizeof *words; i++)
        if (starts(l, words[i][0])) {
            put(l, words[i][1], strlen(words[i][1]));
            return true;
        }
    return number(l);
}

/* Appends the literal p[0 .. n) as JSON. False: it is none. */
static bool convert(struct chat_reply *r, const char *p, size_t n, struct buf *out)
{
    struct literal l = {.p = p, .end = p + n, .out = out};
    bool ok = value(&l, 0);
    space(&l);
    chat_fail(r, l.rc ? error_nomem(&r->error, "a call's argument", n) : 0);
    if (!ok || l.rc || l.p != l.end) return false;
    json_t *v =
        json_loadb((char *)out->data, out->len, JSON_DECODE_ANY | JSON_REJECT_DUPLICATES | JSON_ALLOW_NUL, NULL);
    json_decref(v);
    return v != NULL;
}

/* ---- calls ---- */

static chat_state name, argument, argument_value, no_arguments, next;

static bool close_calls(struct chat_reply *r)
{
    chat_take_space(r);
    if (chat_left(r) == 0 && !r->last) return false;
    enum chat_match m = r->python_end ? chat_match(r, 0, r->python_end) : CHAT_NO;
    if (m == CHAT_PART) return false;
    if (m == CHAT_YES) chat_skip(r, strlen(r->python_end));
    r->python_end = NULL;
    chat_begin(r);
    return true;
}

static void begin_next(struct chat_reply *r, size_t n)
{
    bool bare = r->bare, listed = r->listed;
    chat_begin_call(r, n, name);
    r->bare = bare;
    r->listed = listed;
}

/* After a call. */
static bool next(struct chat_reply *r)
{
    chat_take_space(r);
    if (chat_left(r) == 0 && !r->last) return false;
    char c = chat_left(r) ? *chat_text(r) : '\0';
    if (r->listed && c == ',') {
        begin_next(r, 1);
    } else if (r->listed) {
        if (c == ']') chat_skip(r, 1);
        r->state = close_calls;
    } else if (chat_is_name(&c, 1)) {
        begin_next(r, 0);
    } else {
        r->state = close_calls;
    }
    return true;
}

static bool name(struct chat_reply *r)
{
    size_t n = 0;
    chat_take_space(r);
    if (chat_left(r) == 0) return chat_need_more(r);
    const char *p = chat_text(r);
    if (*p == '{' && r->python_end) {
        r->state = chat_call_json;
        return true;
    }
    while (n < chat_left(r) && n <= CHAT_MAX_NAME && chat_is_name(p + n, 1)) n++;
    if (n == chat_left(r) && n <= CHAT_MAX_NAME) return chat_need_more(r);
    buf_clear(&r->name);
    chat_fail(r, buf_add(&r->name, p, n, &r->error));
    if (n == 0 || p[n] != '(' || (r->bare && !chat_is_tool(r, &r->name))) return chat_bad_call(r);
    json_decref(r->keys);
    r->keys = json_object();
    if (!r->keys) chat_fail(r, error_nomem(&r->error, "a call's arguments", 0));
    chat_take(r, n + 1);
    r->state = argument;
    return true;
}

static bool end_arguments(struct chat_reply *r)
{
    bool none = json_object_size(r->keys) == 0;
    if (!r->begun) chat_name_call(r, r->name.data, r->name.len);
    chat_give(r, QN_REPLY_ARGUMENTS, none ? "{}" : "}", none ? 2 : 1);
    chat_end_call(r);
    r->state = next;
    return true;
}

/* After NAME() without a mark: it is a call only if the list ends or goes on, because a text may mention it. */
static bool no_arguments(struct chat_reply *r)
{
    chat_take_space(r);
    if (chat_left(r) == 0) return chat_need_more(r);
    return *chat_text(r) == ',' || *chat_text(r) == ']' ? end_arguments(r) : chat_bad_call(r);
}

/* A key and its equals sign, or the end of the arguments. The call is one from here on: NAME( alone may be text. */
static bool argument(struct chat_reply *r)
{
    size_t n = 0, n_key;
    chat_take_space(r);
    if (chat_left(r) == 0) return chat_need_more(r);
    const char *p = chat_text(r);
    if (*p == ')') {
        chat_take(r, 1);
        if (!r->bare || r->begun) return end_arguments(r);
        r->state = no_arguments;
        return true;
    }
    while (n < chat_left(r) && n <= CHAT_MAX_NAME && (uint8_t)p[n] >= 0x20 && !strchr(TOOL_NOT_IN_KEYWORDS, p[n])) n++;
    if (n == chat_left(r) && n <= CHAT_MAX_NAME) return chat_need_more(r);
    for (n_key = n; n_key > 0 && p[n_key - 1] == ' ';) n_key--;
    if (n_key == 0 || p[n] != '=') return chat_bad_call(r);
    buf_clear(&r->key);
    chat_fail(r, buf_add(&r->key, p, n_key, &r->error));
    json_t *key = json_stringn(p, n_key); /* NULL for bytes that are not UTF-8 */
    bool bad = !key || json_object_getn(r->keys, p, n_key);
    json_decref(key);
    if (bad || json_object_setn_new(r->keys, p, n_key, json_true())) return chat_bad_call(r);
    if (!r->begun) chat_name_call(r, r->name.data, r->name.len);
    chat_take(r, n + 1);
    r->state = argument_value;
    r->quote = '\0';
    r->depth = 0;
    return true;
}

/* Where the value ends: at a comma or a bracket that belongs to the call. The search goes on where it was. */
static bool find_end(struct chat_reply *r, size_t *n)
{
    const char *p = chat_text(r);
    size_t i = r->searched;
    for (; i < chat_left(r); i++) {
        char c = p[i];
        if (r->quote) {
            if (c == '\\') {
                if (i + 1 == chat_left(r)) break; /* with the next byte */
                i++;
            } else if (c == r->quote) {
                r->quote = '\0';
            }
        } else if (c == '"' || c == '\'') {
            r->quote = c;
        } else if (r->depth == 0 && (c == ',' || c == ')')) {
            *n = i;
            return true;
        } else {
            r->depth += (c == '(' || c == '[' || c == '{') - (c == ')' || c == ']' || c == '}');
            if (r->depth < 0) break; /* it is no literal */
        }
    }
    r->searched = i;
    return false;
}

static bool argument_value(struct chat_reply *r)
{
    struct buf text = {0}, key = {0};
    size_t n;
    if (!find_end(r, &n)) return r->depth < 0 ? chat_bad_call(r) : chat_need_more(r);
    json_t *s = json_stringn((char *)r->key.data, r->key.len);
    int rc = json_text_add(&key, s, 0, "a call's argument", &r->error);
    bool ok = rc == 0 && convert(r, chat_text(r), n, &text);
    json_decref(s);
    chat_fail(r, rc);
    if (ok) {
        bool first = json_object_size(r->keys) == 1;
        chat_give(r, QN_REPLY_ARGUMENTS, first ? "{" : ", ", first ? 1 : 2);
        chat_give(r, QN_REPLY_ARGUMENTS, key.data, key.len);
        chat_give(r, QN_REPLY_ARGUMENTS, ": ", 2);
        chat_give(r, QN_REPLY_ARGUMENTS, text.data, text.len);
        chat_take(r, chat_text(r)[n] == ',' ? n + 1 : n);
        r->state = argument;
    }
    buf_deinit(&text);
    buf_deinit(&key);
    return ok || chat_bad_call(r);
}

/* ---- where calls begin ---- */

static bool begin_list(struct chat_reply *r, const char *end)
{
    r->python_end = end;
    chat_take_space(r);
    if (chat_left(r) == 0) return chat_need_more(r);
    if (*chat_text(r) == '[') {
        chat_take(r, 1);
        r->listed = true;
    }
    r->state = name;
    return true;
}

bool chat_call_start(struct chat_reply *r) { return begin_list(r, "<|tool_call_end|>"); }
bool chat_call_python(struct chat_reply *r) { return begin_list(r, "<|python_end|>"); }
bool chat_call_calls(struct chat_reply *r) { return begin_list(r, "</function_calls>"); }
bool chat_call_block(struct chat_reply *r) { return begin_list(r, "```"); }
bool chat_call_bare(struct chat_reply *r) { return begin_list(r, NULL); }
