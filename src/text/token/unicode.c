/* SPDX-License-Identifier: MIT
 *
 * unicode.c: decoding of UTF-8 that may be broken, the byte alphabet, Normalisation Form C.
 *
 * Text from outside is never assumed to be UTF-8. A decoding step always consumes something, and says whether it was a
 * character. The byte alphabet is that of GPT-2's encoder (its `bytes_to_unicode`): printable Latin-1 bytes stand for
 * themselves, and the 68 other bytes are numbered upwards from U+0100.
 *
 * NFC (Unicode Standard Annex 15) uses utf8proc for the character data and for composition. The canonical reordering is
 * done here, with a counting sort for each run of marks: utf8proc swaps neighbours, and would take hours for a megabyte
 * of marks in the wrong order.
 *
 * Character classes are not here, because the regular expressions of the pre-tokeniser bring their own (PCRE2).
 */
#include "text/token/unicode.h"

#include <assert.h>
#include <string.h>
#include <utf8proc.h>

#include "base/mem.h"
#include "base/utf8.h"

/* ---- UTF-8 ---- */

unsigned unicode_next(const uint8_t *p, size_t n, uint32_t *cp, bool *cut)
{
    assert(n > 0);
    *cut = false;
    uint8_t b = p[0];
    if (b < 0x80) {
        *cp = b;
        return 1;
    }
    *cp = UNICODE_BAD;
    if (b < 0xC2 || b > 0xF4) return 1;
    unsigned len = 4;
    if (b < 0xF0) len = 3;
    if (b < 0xE0) len = 2;
    /* The second byte's range excludes overlong forms, surrogates and values above U+10FFFF. */
    uint8_t lo = 0x80, hi = 0xBF;
    if (b == 0xE0) lo = 0xA0;
    if (b == 0xED) hi = 0x9F;
    if (b == 0xF0) lo = 0x90;
    if (b == 0xF4) hi = 0x8F;
    uint32_t c = b & (0x7Fu >> len);
    for (unsigned i = 1; i < len; i++) {
        if (i == n) {
            *cut = true;
            return i;
        }
        if (p[i] < lo || p[i] > hi) return i;
        c = c << 6 | (p[i] & 0x3Fu);
        lo = 0x80;
        hi = 0xBF;
    }
    *cp = c;
    return len;
}

static bool are_eight_ascii(const uint8_t *p)
{
    uint64_t eight;
    memcpy(&eight, p, 8);
    return !(eight & 0x8080808080808080u);
}

bool unicode_is_utf8(const uint8_t *p, size_t n)
{
    for (size_t i = 0; i < n;) {
        if (n - i >= 8 && are_eight_ascii(p + i)) {
            i += 8;
            continue;
        }
        uint32_t cp;
        bool cut;
        i += unicode_next(p + i, n - i, &cp, &cut);
        if (cp == UNICODE_BAD) return false;
    }
    return true;
}

static int replace_all(const uint8_t *p, size_t n, const char *what, const char *by, struct buf *out,
                       struct qn_error *e)
{
    size_t n_what = strlen(what), done = 0;
    int rc = buf_reserve(out, n, e);
    for (const uint8_t *q; rc == 0 && (q = memmem(p + done, n - done, what, n_what)); done = (size_t)(q - p) + n_what) {
        rc = buf_add(out, p + done, (size_t)(q - p) - done, e);
        if (rc == 0) rc = buf_add(out, by, strlen(by), e);
    }
    return rc ? rc : buf_add(out, p + done, n - done, e);
}

int unicode_mark_spaces(const uint8_t *p, size_t n, struct buf *out, struct qn_error *e)
{
    return replace_all(p, n, " ", UNICODE_SPACE_MARK, out, e);
}

int unicode_unmark_spaces(const uint8_t *p, size_t n, struct buf *out, struct qn_error *e)
{
    return replace_all(p, n, UNICODE_SPACE_MARK, " ", out, e);
}

/* ---- white space ---- */

bool unicode_is_space(uint32_t cp)
{
    return (cp >= 9 && cp <= 13) || cp == ' ' || cp == 0x85 || cp == 0xA0 || cp == 0x1680 ||
           (cp >= 0x2000 && cp <= 0x200A) || cp == 0x2028 || cp == 0x2029 || cp == 0x202F || cp == 0x205F ||
           cp == 0x3000;
}

size_t unicode_leading_spaces(const uint8_t *p, size_t n)
{
    size_t i = 0;
    while (i < n) {
        uint32_t cp;
        bool cut;
        unsigned len = unicode_next(p + i, n - i, &cp, &cut);
        if (!unicode_is_space(cp)) break;
        i += len;
    }
    return i;
}

size_t unicode_trailing_spaces(const uint8_t *p, size_t n)
{
    size_t end = n;
    while (end > 0) {
        size_t at = end - 1;
        uint32_t cp;
        bool cut;
        while (at > 0 && end - at < 4 && (p[at] & 0xC0) == 0x80) at--;
        if (unicode_next(p + at, end - at, &cp, &cut) != end - at || !unicode_is_space(cp)) break;
        end = at;
    }
    return n - end;
}

/* ---- the byte alphabet ---- */

static bool is_itself(uint32_t b)
{
    return (b >= 0x21 && b <= 0x7E) || (b >= 0xA1 && b <= 0xAC) || (b >= 0xAE && b <= 0xFF);
}

/* The renamed bytes in order are 0x00-0x20, 0x7F-0xA0 and 0xAD: 33 + 34 + 1. */
uint32_t unicode_from_byte(uint8_t b)
{
    if (is_itself(b)) return b;
    if (b <= 0x20) return 0x100u + b;
    if (b <= 0xA0) return 0x121u + (b - 0x7Fu);
    return 0x143u;
}

int unicode_to_byte(uint32_t cp)
{
    if (cp < 0x100) return is_itself(cp) ? (int)cp : -1;
    if (cp <= 0x120) return (int)(cp - 0x100);
    if (cp <= 0x142) return (int)(cp - 0x121 + 0x7F);
    return cp == 0x143 ? 0xAD : -1;
}

/* ---- widths ---- */

unsigned unicode_cells(uint32_t cp)
{
    if (cp < 0x300) return 1;
    if (utf8proc_category((utf8proc_int32_t)cp) == UTF8PROC_CATEGORY_CN) return 1; /* a terminal shows a box */
    return (unsigned)utf8proc_charwidth((utf8proc_int32_t)cp);
}

/* ---- NFC ---- */

/* Whether normalisation may change this code point, alone or with a neighbour: marks (they are reordered and composed),
 * conjoining jamo, and everything that has a canonical decomposition. Everything below U+0300 is stable as long as no
 * mark follows. May be true for a code point that stays as it is (a precomposed letter), never the other way round. */
static bool may_change(uint32_t cp)
{
    if (cp < 0x300 || (cp >= 0x3400 && cp <= 0x9FFF)) return false;
    if (cp >= 0x1100 && cp <= 0x11FF) return true;
    const utf8proc_property_t *p = utf8proc_get_property((utf8proc_int32_t)cp);
    return p->combining_class != 0 || p->category == UTF8PROC_CATEGORY_MN || p->category == UTF8PROC_CATEGORY_MC ||
           (p->decomp_type == 0 && p->decomp_seqindex != UINT16_MAX);
}

static bool is_surely_nfc(const uint8_t *p, size_t n)
{
    for (size_t i = 0; i < n;) {
        uint32_t cp;
        bool cut;
        i += unicode_next(p + i, n - i, &cp, &cut);
        if (cp != UNICODE_BAD && may_change(cp)) return false;
    }
    return true;
}

static uint8_t mark_class(utf8proc_int32_t cp)
{
    return cp < 0x300 ? 0 : (uint8_t)utf8proc_get_property(cp)->combining_class;
}

/* Sorts n marks, all of a combining class other than 0, by that class. Equal classes keep their order. */
static void sort_marks(utf8proc_int32_t *cp, utf8proc_int32_t *tmp, size_t n)
{
    size_t start[257] = {0};
    for (size_t i = 0; i < n; i++) start[mark_class(cp[i]) + 1]++;
    for (int c = 0; c < 256; c++) start[c + 1] += start[c];
    for (size_t i = 0; i < n; i++) tmp[start[mark_class(cp[i])]++] = cp[i];
    memcpy(cp, tmp, n * sizeof *cp);
}

static void order_marks(utf8proc_int32_t *cp, utf8proc_int32_t *tmp, size_t n)
{
    for (size_t i = 0; i < n;) {
        size_t j = i;
        bool sorted = true;
        for (uint8_t last = 0, c; j < n && (c = mark_class(cp[j])) != 0; j++, last = c) sorted &= c >= last;
        if (!sorted) sort_marks(cp + i, tmp, j - i);
        i = j + (j == i);
    }
}

/* Composes cp[0..n) and appends it as UTF-8. */
static int put_composed(utf8proc_int32_t *cp, utf8proc_int32_t *tmp, size_t n, struct buf *out, struct qn_error *e)
{
    if (n == 0) return 0;
    order_marks(cp, tmp, n);
    utf8proc_ssize_t m = utf8proc_normalize_utf32(cp, (utf8proc_ssize_t)n, UTF8PROC_STABLE | UTF8PROC_COMPOSE);
    assert(m > 0 && (size_t)m <= n);
    int rc = buf_reserve(out, (size_t)m * 4, e);
    for (utf8proc_ssize_t i = 0; rc == 0 && i < m; i++) {
        uint8_t u[4];
        rc = buf_add(out, u, utf8_put(u, (uint32_t)cp[i]), e);
    }
    return rc;
}

int unicode_nfc(const uint8_t *p, size_t n, struct buf *out, bool *same, struct qn_error *e)
{
    *same = is_surely_nfc(p, n);
    if (*same) return 0;
    /* A canonical decomposition has at most 4 code points, and that of a 1-byte character only 1. So 2 for each byte
     * are enough. utf8proc is told how much room there really is. */
    size_t cap = 2 * n + 8, used = 0;
    utf8proc_int32_t *cp = mem_alloc(2 * cap * sizeof *cp), *tmp = cp ? cp + cap : NULL;
    if (!cp) return error_nomem(e, "Unicode normalisation", 2 * cap * sizeof *cp);
    int rc = 0;
    for (size_t i = 0; rc == 0 && i < n;) {
        uint32_t c;
        bool cut;
        unsigned len = unicode_next(p + i, n - i, &c, &cut);
        if (c == UNICODE_BAD) { /* a barrier: the text before it and after it is normalised separately */
            rc = put_composed(cp, tmp, used, out, e);
            if (rc == 0) rc = buf_add(out, p + i, len, e);
            used = 0;
        } else {
            int boundary = 0;
            utf8proc_ssize_t k = utf8proc_decompose_char((utf8proc_int32_t)c, cp + used, (utf8proc_ssize_t)(cap - used),
                                                         UTF8PROC_STABLE | UTF8PROC_COMPOSE, &boundary);
            assert(k > 0 && (size_t)k <= cap - used);
            used += (size_t)k;
        }
        i += len;
    }
    if (rc == 0) rc = put_composed(cp, tmp, used, out, e);
    mem_free(cp);
    return rc;
}
