/* SPDX-License-Identifier: MIT
 *
 * string_step.c: see string_step.h. RFC 8259, section 7.
 */
#include "grammar/automaton/string_step.h"

#include <string.h>

#include "base/inline/digits.h"
#include "base/utf8.h"

/* The place in an escape is one word: the part, the digits that were read, and their value. */
enum part {
    PLAIN,
    AFTER_BACKSLASH,
    DIGITS,        /* of \uXXXX */
    LOW_BACKSLASH, /* before the second half of a surrogate pair */
    LOW_U,
    LOW_DIGITS,
};

struct escape {
    unsigned part, n_digits;
    uint32_t value; /* of the digits so far; of a pair: the high half's lower ten bits above them */
};

static uint32_t pack(struct escape e) { return e.part | e.n_digits << 3 | e.value << 6; }
static struct escape unpack(uint32_t w) { return (struct escape){w & 7, w >> 3 & 7, w >> 6}; }

static const char short_names[] = "bfnrt\"\\/", short_chars[] = "\b\f\n\r\t\"\\/";

bool string_is_free(const struct regex *r, re_id re, uint32_t *least, uint32_t *most)
{
    uint32_t n;
    if (re_kind(r, re) != RE_CHARS) return false;
    const uint32_t *x = re_operands(r, re, &n);
    *least = x[0];
    *most = x[1];
    return true;
}

static bool is_free(const struct regex *r, re_id re)
{
    uint32_t least, most;
    return string_is_free(r, re, &least, &most);
}

/* Adds a character to the text. */
static bool take(struct regex *r, struct string_place *at, uint32_t c)
{
    at->escape = STRING_PLAIN;
    at->n_text = (uint8_t)utf8_put(at->text, c);
    for (unsigned i = 0; i < at->n_text && at->re; i++) at->re = re_derive(r, at->re, at->text[i]);
    return re_is_live(r, at->re);
}

/* Whether the character may be written as \u00XX where not every text is allowed. */
static bool is_control(struct regex *r, re_id re, unsigned c) { return re_step(r, re, (uint8_t)c) != RE_NONE; }

/* The control characters among those that begin with these digits. */
static bool any_control(struct regex *r, re_id re, unsigned n_digits, uint32_t value)
{
    if (n_digits < 3) {
        if (value != 0) return false;
        for (unsigned c = 0; c < 0x20; c++)
            if (is_control(r, re, c)) return true;
        return false;
    }
    for (unsigned c = value * 16; n_digits == 3 && value < 2 && c < value * 16 + 16; c++)
        if (is_control(r, re, c)) return true;
    return n_digits == 4 && value < 0x20;
}

static bool after_backslash(struct regex *r, struct string_place *at, uint8_t byte)
{
    const char *k = byte ? strchr(short_names, byte) : NULL;
    if (k && (*k != '/' || is_free(r, at->re))) return take(r, at, (uint8_t)short_chars[k - short_names]);
    at->escape = pack((struct escape){.part = DIGITS});
    return byte == 'u' && (is_free(r, at->re) || any_control(r, at->re, 0, 0));
}

static bool read_digit(struct regex *r, struct string_place *at, struct escape e, uint8_t byte)
{
    int digit = hex_digit(byte);
    if (digit < 0) return false;
    e.value = e.value << 4 | (uint32_t)digit;
    e.n_digits++;
    if (e.part == LOW_DIGITS) {
        bool low = e.n_digits == 1 ? digit == 0xD : e.n_digits > 2 || digit >= 0xC;
        at->escape = pack(e);
        if (!low || e.n_digits < 4) return low;
        return take(r, at, 0x10000 + (e.value >> 16 << 10) + (e.value & 0x3FF));
    }
    if (!is_free(r, at->re) && !any_control(r, at->re, e.n_digits, e.value)) return false;
    if (e.n_digits == 2 && e.value >= 0xDC && e.value <= 0xDF) return false;
    at->escape = pack(e);
    if (e.n_digits < 4) return true;
    if (e.value < 0xD800 || e.value > 0xDFFF) return take(r, at, e.value);
    at->escape = pack((struct escape){.part = LOW_BACKSLASH, .value = e.value & 0x3FF});
    return true;
}

static bool plain(struct regex *r, struct string_place *at, uint8_t byte)
{
    if (byte == '"') {
        at->ends = true;
        return re_is_nullable(r, at->re);
    }
    if (byte < 0x20) return false;
    if (byte == '\\') {
        at->escape = pack((struct escape){.part = AFTER_BACKSLASH});
        if (is_free(r, at->re)) return true;
        for (const char *k = short_chars; *k; k++)
            if (*k != '/' && re_step(r, at->re, (uint8_t)*k)) return true;
        return any_control(r, at->re, 0, 0);
    }
    at->text[0] = byte;
    at->n_text = 1;
    at->re = re_step(r, at->re, byte);
    return at->re != RE_NONE;
}

bool string_step(struct regex *r, struct string_place *at, uint8_t byte)
{
    struct escape e = unpack(at->escape);
    at->n_text = 0;
    at->ends = false;
    switch (e.part) {
    case PLAIN: return plain(r, at, byte);
    case AFTER_BACKSLASH: return after_backslash(r, at, byte);
    case LOW_BACKSLASH:
    case LOW_U:
        e.part++;
        at->escape = pack(e);
        return byte == (e.part == LOW_U ? '\\' : 'u');
    default: return read_digit(r, at, e, byte);
    }
}

void string_bounds(struct regex *r, const struct string_place *at, uint64_t bits[4])
{
    static const char others[] = "\"\\/ubfnrt";
    struct escape e = unpack(at->escape);
    if (e.part == PLAIN) {
        re_bounds(r, at->re, bits);
        bits[0] |= (uint64_t)1 << 0x20;
        re_mark_byte(bits, '"');
        re_mark_byte(bits, '\\');
        return;
    }
    for (const char *k = others; *k; k++) re_mark_byte(bits, (uint8_t)*k);
    for (unsigned c = 0; c < 6; c++) {
        re_mark_byte(bits, 'a' + c);
        re_mark_byte(bits, 'A' + c);
    }
    for (unsigned c = '0'; c <= '9'; c++) re_mark_byte(bits, c);
}
