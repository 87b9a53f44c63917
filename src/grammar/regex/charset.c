/* SPDX-License-Identifier: MIT
 *
 * charset.c: see charset.h.
 */
#include "grammar/regex/charset.h"

#include <stdlib.h>
#include <string.h>
#include <utf8proc.h>

#include "base/utf8.h"

#define LAST_CHAR 0x10FFFFu

void charset_deinit(struct charset *s, struct limits *l)
{
    limits_release(l, s->ranges, s->cap, sizeof *s->ranges);
    *s = (struct charset){0};
}

bool charset_add(struct charset *s, struct limits *l, uint32_t lo, uint32_t hi)
{
    struct char_range *p = limits_grow(l, s->ranges, &s->cap, s->n + 1, sizeof *p);
    if (!p) return false;
    s->ranges = p;
    p[s->n++] = (struct char_range){lo, hi};
    return true;
}

bool charset_add_set(struct charset *s, struct limits *l, const struct charset *other)
{
    for (uint32_t i = 0; i < other->n; i++)
        if (!charset_add(s, l, other->ranges[i].lo, other->ranges[i].hi)) return false;
    return true;
}

static int by_lo(const void *a, const void *b)
{
    const struct char_range *x = a, *y = b;
    return (x->lo > y->lo) - (x->lo < y->lo);
}

void charset_finish(struct charset *s)
{
    uint32_t k = 0;
    if (s->n > 1) qsort(s->ranges, s->n, sizeof *s->ranges, by_lo);
    for (uint32_t i = 0; i < s->n; i++) {
        if (k && s->ranges[i].lo <= s->ranges[k - 1].hi + 1) {
            if (s->ranges[i].hi > s->ranges[k - 1].hi) s->ranges[k - 1].hi = s->ranges[i].hi;
        } else {
            s->ranges[k++] = s->ranges[i];
        }
    }
    s->n = k;
}

bool charset_invert(struct charset *s, struct limits *l)
{
    struct charset out = {0};
    uint32_t next = 0;
    bool ok = true;
    for (uint32_t i = 0; i < s->n && ok; i++) {
        if (s->ranges[i].lo > next) ok = charset_add(&out, l, next, s->ranges[i].lo - 1);
        next = s->ranges[i].hi + 1;
    }
    if (ok && next <= LAST_CHAR) ok = charset_add(&out, l, next, LAST_CHAR);
    charset_deinit(s, l);
    *s = out;
    return ok;
}

/* ---- classes ---- */

bool charset_add_class(struct charset *s, struct limits *l, char name)
{
    static const struct char_range digits[] = {{'0', '9'}};
    static const struct char_range words[] = {{'0', '9'}, {'A', 'Z'}, {'_', '_'}, {'a', 'z'}};
    static const struct char_range spaces[] = {{9, 13},          {' ', ' '},       {0xA0, 0xA0},     {0x1680, 0x1680},
                                               {0x2000, 0x200A}, {0x2028, 0x2029}, {0x202F, 0x202F}, {0x205F, 0x205F},
                                               {0x3000, 0x3000}, {0xFEFF, 0xFEFF}};
    static const struct {
        char name;
        const struct char_range *ranges;
        uint32_t n;
    } classes[] = {{'d', digits, 1}, {'w', words, 4}, {'s', spaces, 10}};
    struct charset class = {0};
    bool ok = true;
    for (int i = 0; i < 3; i++) {
        if (classes[i].name != (name | 0x20)) continue;
        for (uint32_t k = 0; k < classes[i].n && ok; k++)
            ok = charset_add(&class, l, classes[i].ranges[k].lo, classes[i].ranges[k].hi);
    }
    if (ok && !(name & 0x20)) ok = charset_invert(&class, l);
    ok = ok && charset_add_set(s, l, &class);
    charset_deinit(&class, l);
    return ok;
}

/* The general categories in the order of utf8proc's numbers; the names of whole groups are their first letters. */
static const struct {
    char name[3];
    const char *long_name;
} categories[] = {
    {"Cn", "Unassigned"},
    {"Lu", "Uppercase_Letter"},
    {"Ll", "Lowercase_Letter"},
    {"Lt", "Titlecase_Letter"},
    {"Lm", "Modifier_Letter"},
    {"Lo", "Other_Letter"},
    {"Mn", "Nonspacing_Mark"},
    {"Mc", "Spacing_Mark"},
    {"Me", "Enclosing_Mark"},
    {"Nd", "Decimal_Number"},
    {"Nl", "Letter_Number"},
    {"No", "Other_Number"},
    {"Pc", "Connector_Punctuation"},
    {"Pd", "Dash_Punctuation"},
    {"Ps", "Open_Punctuation"},
    {"Pe", "Close_Punctuation"},
    {"Pi", "Initial_Punctuation"},
    {"Pf", "Final_Punctuation"},
    {"Po", "Other_Punctuation"},
    {"Sm", "Math_Symbol"},
    {"Sc", "Currency_Symbol"},
    {"Sk", "Modifier_Symbol"},
    {"So", "Other_Symbol"},
    {"Zs", "Space_Separator"},
    {"Zl", "Line_Separator"},
    {"Zp", "Paragraph_Separator"},
    {"Cc", "Control"},
    {"Cf", "Format"},
    {"Cs", "Surrogate"},
    {"Co", "Private_Use"},
};
static const struct {
    const char *name;
    char letter;
} groups[] = {{"Letter", 'L'}, {"Mark", 'M'},      {"Number", 'N'}, {"Punctuation", 'P'},
              {"Symbol", 'S'}, {"Separator", 'Z'}, {"Other", 'C'}};

static bool is_name(const char *name, const char *s, size_t n) { return strlen(name) == n && memcmp(name, s, n) == 0; }

/* One bit for each category that the name stands for. */
static uint32_t categories_of(const char *s, size_t n)
{
    uint32_t set = 0;
    char group = n == 1 ? *s : 0;
    for (unsigned i = 0; i < sizeof groups / sizeof groups[0]; i++)
        if (is_name(groups[i].name, s, n)) group = groups[i].letter;
    for (unsigned i = 0; i < sizeof categories / sizeof categories[0]; i++)
        if (categories[i].name[0] == group || is_name(categories[i].name, s, n) ||
            is_name(categories[i].long_name, s, n))
            set |= 1u << i;
    return set;
}

bool charset_add_category(struct charset *s, struct limits *l, const char *name, size_t n)
{
    uint32_t set = categories_of(name, n);
    if (is_name("digit", name, n)) set = categories_of("Nd", 2);
    if (!set || !limits_spend(l, 200000)) return false;
    for (uint32_t c = 0, begin = 0; c <= LAST_CHAR + 1; c++) {
        bool in = c <= LAST_CHAR && (set >> utf8proc_category((utf8proc_int32_t)c) & 1);
        if (in) continue;
        if (c > begin && !charset_add(s, l, begin, c - 1)) return false;
        begin = c + 1;
    }
    return true;
}

/* ---- UTF-8 ---- */

/* The characters whose UTF-8 has each byte between those of lo and hi. */
struct byte_ranges {
    uint8_t lo[4], hi[4], n;
};

struct sequences {
    struct byte_ranges *list; /* [n] in the order of their characters */
    uint32_t n, cap;
};

static bool add_sequence(struct sequences *s, struct limits *l, uint32_t lo, uint32_t hi)
{
    struct byte_ranges *p = limits_grow(l, s->list, &s->cap, s->n + 1, sizeof *p);
    if (!p) return false;
    s->list = p;
    p[s->n].n = (uint8_t)utf8_put(p[s->n].lo, lo);
    utf8_put(p[s->n].hi, hi);
    s->n++;
    return true;
}

/* Adds the sequences of the characters lo to hi. */
static bool split(struct sequences *s, struct limits *l, uint32_t lo, uint32_t hi)
{
    static const uint32_t ends[] = {0x7F, 0x7FF, 0xD7FF, 0xFFFF, LAST_CHAR};
    if (lo >= 0xD800 && lo <= 0xDFFF) lo = 0xE000;
    if (lo > hi) return true;
    for (int i = 0; i < 5; i++)
        if (lo <= ends[i] && hi > ends[i]) return split(s, l, lo, ends[i]) && split(s, l, ends[i] + 1, hi);
    for (int bits = 6; bits <= 18; bits += 6) {
        uint32_t low = (1u << bits) - 1; /* what the last bytes hold */
        if (lo <= 0x7F || (lo & ~low) == (hi & ~low)) continue;
        if (lo & low) return split(s, l, lo, lo | low) && split(s, l, (lo | low) + 1, hi);
        if ((hi & low) != low) return split(s, l, lo, (hi & ~low) - 1) && split(s, l, hi & ~low, hi);
    }
    return add_sequence(s, l, lo, hi);
}

static bool same_byte(const struct byte_ranges *a, const struct byte_ranges *b, unsigned i)
{
    return a->n == b->n && a->lo[i] == b->lo[i] && a->hi[i] == b->hi[i];
}

/* An expression for the bytes from `at` on; those that begin alike are joined, so that there are few alternatives. */
static re_id join(struct regex *r, const struct byte_ranges *list, uint32_t n, unsigned at)
{
    re_id all = RE_NONE;
    for (uint32_t i = 0, k; i < n; i = k) {
        for (k = i + 1; k < n && same_byte(&list[k], &list[i], at); k++) continue;
        re_id rest = at + 1u < list[i].n ? join(r, list + i, k - i, at + 1) : RE_EMPTY;
        all = re_or2(r, all, re_cat(r, re_range(r, list[i].lo[at], list[i].hi[at]), rest));
    }
    return all;
}

re_id charset_regex(const struct charset *s, struct regex *r)
{
    struct sequences list = {0};
    re_id all = RE_NONE;
    bool ok = true;
    if (s->n == 1 && s->ranges[0].lo == 0 && s->ranges[0].hi >= LAST_CHAR) return re_chars(r, 1, 1);
    for (uint32_t i = 0; i < s->n && ok; i++)
        ok = limits_spend(r->l, 8) && split(&list, r->l, s->ranges[i].lo, s->ranges[i].hi);
    if (ok) all = join(r, list.list, list.n, 0);
    limits_release(r->l, list.list, list.cap, sizeof *list.list);
    if (all) re_mark_text(r, all);
    return all;
}
