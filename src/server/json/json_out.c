/* SPDX-License-Identifier: MIT
 *
 * json_out.c: writes JSON text into a buffer.
 *
 * Source: RFC 8259; the well-formed byte sequences of the Unicode standard, table 3-7.
 */
#include "server/json/json_out.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

/* Smaller texts are not counted, so that questions about the daemon's state are answered when no memory is left. */
#define SMALL_BYTES 4096

/* After a failure it does not try again: a long text has many pieces, and asking for memory in vain takes long. */
static void add(struct json_out *o, const void *p, size_t n)
{
    struct ledger *l = o->ledger;
    if (l && !o->counted && o->b.len + n >= SMALL_BYTES) {
        o->counted = ledger_take(l, o->b.cap, "JSON", NULL) == 0;
        o->failed = o->failed || !o->counted;
    }
    if (n > 0 && !o->failed && buf_add_from(&o->b, o->counted ? l : NULL, p, n, NULL)) o->failed = true;
}

void json_out_deinit(struct json_out *o)
{
    buf_deinit_from(&o->b, o->counted ? o->ledger : NULL);
    *o = (struct json_out){.ledger = o->ledger};
}

static void before(struct json_out *o, const char *key)
{
    if (o->comma) add(o, ",", 1);
    o->comma = true;
    if (!key) return;
    add(o, "\"", 1);
    add(o, key, strlen(key));
    add(o, "\":", 2);
}

void json_out_open(struct json_out *o, const char *key, char bracket)
{
    before(o, key);
    add(o, &bracket, 1);
    o->comma = false;
}

void json_out_close(struct json_out *o, char bracket)
{
    add(o, &bracket, 1);
    o->comma = true;
}

/* The length of a character that begins with this byte; 0: none does. */
static size_t first_says(unsigned char c)
{
    if (c < 0x80) return 1;
    if (c < 0xC2) return 0;
    if (c < 0xE0) return 2;
    if (c < 0xF0) return 3;
    return c < 0xF5 ? 4 : 0;
}

/* The length of the well-formed character at s; 0 if there is none. */
static size_t char_bytes(const unsigned char *s, size_t n)
{
    size_t len = first_says(s[0]);
    if (len > n) return 0;
    for (size_t i = 1; i < len; i++)
        if ((s[i] & 0xC0) != 0x80) return 0;
    if ((s[0] == 0xE0 && s[1] < 0xA0) || (s[0] == 0xED && s[1] > 0x9F) || (s[0] == 0xF0 && s[1] < 0x90) ||
        (s[0] == 0xF4 && s[1] > 0x8F))
        return 0;
    return len;
}

static void escape(struct json_out *o, unsigned char c)
{
    char text[8];
    static const char letters[] = "\"\"\\\\\nn\rr\tt\bb\ff";
    for (const char *l = letters; *l; l += 2)
        if (c == (unsigned char)l[0]) {
            add(o, "\\", 1);
            add(o, l + 1, 1);
            return;
        }
    add(o, text, (size_t)snprintf(text, sizeof text, "\\u%04x", c));
}

void json_out_text(struct json_out *o, const char *key, const char *s, size_t n)
{
    const unsigned char *p = (const unsigned char *)(n ? s : ""); /* a text of no bytes may be NULL */
    size_t done = 0;                                              /* bytes before this position are written */
    before(o, key);
    add(o, "\"", 1);
    for (size_t i = 0; i < n;) {
        size_t len = char_bytes(p + i, n - i);
        bool plain = len > 1 || (len == 1 && p[i] >= 0x20 && p[i] != '"' && p[i] != '\\' && p[i] != 0x7F);
        if (plain) {
            i += len;
            continue;
        }
        add(o, p + done, i - done);
        if (len == 1)
            escape(o, p[i]);
        else
            add(o, "\xEF\xBF\xBD", 3);
        done = ++i;
    }
    add(o, p + done, n - done);
    add(o, "\"", 1);
}

void json_out_key(struct json_out *o, const char *s, size_t n)
{
    json_out_text(o, NULL, s, n);
    add(o, ":", 1);
    o->comma = false;
}

void json_out_str(struct json_out *o, const char *key, const char *s)
{
    if (s)
        json_out_text(o, key, s, strlen(s));
    else
        json_out_raw(o, key, "null", 4);
}

void json_out_int(struct json_out *o, const char *key, int64_t v)
{
    char text[24];
    json_out_raw(o, key, text, (size_t)snprintf(text, sizeof text, "%lld", (long long)v));
}

void json_out_num(struct json_out *o, const char *key, double v)
{
    char text[32];
    if (isfinite(v))
        json_out_raw(o, key, text, (size_t)snprintf(text, sizeof text, "%.9g", v));
    else
        json_out_raw(o, key, "null", 4);
}

void json_out_bool(struct json_out *o, const char *key, bool v)
{
    json_out_raw(o, key, v ? "true" : "false", v ? 4 : 5);
}

void json_out_raw(struct json_out *o, const char *key, const void *json, size_t n)
{
    if (n == 0) return;
    before(o, key);
    add(o, json, n);
}

void json_out_frame(struct json_out *o, const char *s)
{
    add(o, s, strlen(s));
    o->comma = false;
}
