/* SPDX-License-Identifier: MIT
 *
 * jinja_method.c: methods of strings, lists, dictionaries and loops.
 *
 * They are those of Python's str, list and dict that templates can use. Lengths and positions are in characters. A
 * result has the marks of the text that it is made of.
 *
 * Differences from Python: methods that change a list or dictionary do not exist, because Jinja2's sandbox forbids
 * them; neither do encode, translate and maketrans. Case is mapped character by character; the German sharp s is the
 * only one that becomes two.
 */
#include "text/jinja/jinja_eval.h"

#include <string.h>
#include <utf8proc.h>

#include "text/jinja/jinja_method.h"
#include "text/jinja/jinja_str.h"

#define METHOD(name) JFUNC(name, self)

/* ---- case ---- */

#define SHARP_S 0xDFu

enum letter { L_LOWER, L_UPPER, L_TITLE };

static uint32_t map_char(uint32_t cp, enum letter to)
{
    utf8proc_int32_t c = (utf8proc_int32_t)cp;
    switch (to) {
    case L_LOWER: return (uint32_t)utf8proc_tolower(c);
    case L_UPPER: return (uint32_t)utf8proc_toupper(c);
    default: return (uint32_t)utf8proc_totitle(c);
    }
}

static bool is_cased(uint32_t cp)
{
    utf8proc_category_t c = utf8proc_category((utf8proc_int32_t)cp);
    return c == UTF8PROC_CATEGORY_LU || c == UTF8PROC_CATEGORY_LL || c == UTF8PROC_CATEGORY_LT;
}

enum case_rule { ALL_LOWER, ALL_UPPER, CAPITALIZE, TITLE, JINJA_TITLE, SWAP };

static enum letter letter_for(enum case_rule rule, uint32_t cp, bool first, bool word_begins)
{
    switch (rule) {
    case ALL_LOWER: return L_LOWER;
    case ALL_UPPER: return L_UPPER;
    case CAPITALIZE: return first ? L_TITLE : L_LOWER;
    case TITLE: return word_begins ? L_TITLE : L_LOWER;
    case JINJA_TITLE: return word_begins ? L_UPPER : L_LOWER;
    default: return utf8proc_category((utf8proc_int32_t)cp) == UTF8PROC_CATEGORY_LU ? L_LOWER : L_UPPER;
    }
}

static struct jval change_case(struct jenv *j, struct jval s, enum case_rule rule)
{
    struct jtext t = {.j = j};
    bool word_begins = true;
    for (size_t at = 0; at < s.s->n;) {
        uint32_t cp;
        unsigned n = jchar_at(s, at, &cp);
        jenv_looks(j, 2);
        enum letter to = letter_for(rule, cp, at == 0, word_begins);
        if (cp == SHARP_S && to != L_LOWER)
            jtext_c(&t, to == L_UPPER ? "SS" : "Ss", jstr_user(s, at, at + n));
        else
            jtext_char(&t, map_char(cp, to), jstr_user(s, at, at + n));
        if (rule == JINJA_TITLE)
            word_begins = jchar_is_space(cp) || (cp < 0x80 && strchr("-({[<", (int)cp) && cp);
        else
            word_begins = !is_cased(cp);
        at += n;
    }
    return jtext_done(&t, s.flags & JMARKUP);
}

METHOD(s_lower) { return change_case(j, self, ALL_LOWER); }
METHOD(s_upper) { return change_case(j, self, ALL_UPPER); }
METHOD(s_capitalize) { return change_case(j, self, CAPITALIZE); }
METHOD(s_title) { return change_case(j, self, TITLE); }
METHOD(s_swapcase) { return change_case(j, self, SWAP); }
struct jval jstr_lower(struct jenv *j, struct jval s) { return change_case(j, s, ALL_LOWER); }
struct jval jstr_upper(struct jenv *j, struct jval s) { return change_case(j, s, ALL_UPPER); }
struct jval jstr_capitalize(struct jenv *j, struct jval s) { return change_case(j, s, CAPITALIZE); }
struct jval jstr_title(struct jenv *j, struct jval s) { return change_case(j, s, JINJA_TITLE); }

/* ---- stripping ---- */

static bool in_set(struct jval chars, struct jval s, size_t at, unsigned n, uint32_t cp)
{
    if (chars.kind != JSTR) return jchar_is_space(cp);
    return memmem(chars.s->p, chars.s->n, s.s->p + at, n) != NULL;
}

struct jval jstr_strip(struct jenv *j, struct jval s, struct jval chars, bool left, bool right)
{
    size_t from = 0, to = s.s->n;
    uint32_t cp;
    if (chars.kind != JSTR && chars.kind != JNONE && chars.kind != JABSENT) jarg_str(j, chars, "what to strip");
    size_t set = chars.kind == JSTR ? 64 + chars.s->n : 0; /* bytes to search for each character */
    while (left && from < to) {
        unsigned n = jchar_at(s, from, &cp);
        jenv_looks(j, 1);
        jenv_bytes(j, set);
        if (!in_set(chars, s, from, n, cp)) break;
        from += n;
    }
    while (right && to > from) {
        size_t at = to - 1;
        while (at > from && ((uint8_t)s.s->p[at] & 0xC0) == 0x80) at--;
        unsigned n = jchar_at(s, at, &cp);
        jenv_looks(j, 1);
        jenv_bytes(j, set);
        if (!in_set(chars, s, at, n, cp)) break;
        to = at;
    }
    return jstr_part(j, s, from, to);
}

METHOD(s_strip) { return jstr_strip(j, self, arg[0], true, true); }
METHOD(s_lstrip) { return jstr_strip(j, self, arg[0], true, false); }
METHOD(s_rstrip) { return jstr_strip(j, self, arg[0], false, true); }

static bool at_edge(struct jenv *j, struct jval s, struct jval x, bool end)
{
    jenv_looks(j, 1);
    if (x.s->n > s.s->n) return false;
    jenv_bytes(j, x.s->n);
    return memcmp(s.s->p + (end ? s.s->n - x.s->n : 0), x.s->p, x.s->n) == 0;
}

METHOD(s_removeprefix)
{
    struct jval p = jarg_str(j, arg[0], "a prefix");
    return at_edge(j, self, p, false) ? jstr_part(j, self, p.s->n, self.s->n) : self;
}

METHOD(s_removesuffix)
{
    struct jval p = jarg_str(j, arg[0], "a suffix");
    return at_edge(j, self, p, true) ? jstr_part(j, self, 0, self.s->n - p.s->n) : self;
}

/* ---- splitting and joining ---- */

struct jparts {
    struct jval *v;
    size_t n, cap;
};

static void add_part(struct jenv *j, struct jparts *p, struct jval v)
{
    jenv_step(j, 1);
    p->v = jenv_grow(j, p->v, p->n, &p->cap, sizeof *p->v);
    p->v[p->n++] = v;
}

/* The end of the run of white space (or, with is_space false, of anything else) that begins at `at`. */
static size_t end_of_run(struct jenv *j, struct jval s, size_t at, bool is_space)
{
    size_t from = at;
    while (at < s.s->n) {
        uint32_t cp;
        unsigned n = jchar_at(s, at, &cp);
        if (jchar_is_space(cp) != is_space) break;
        at += n;
    }
    jenv_looks(j, at - from);
    return at;
}

/* split() without a separator: the words between runs of white space. After `max` words (<0: no limit) the rest is one
 * part, with the white space at its end. */
static struct jval split_space(struct jenv *j, struct jval s, int64_t max)
{
    struct jparts out = {0};
    size_t at = end_of_run(j, s, 0, true);
    while (at < s.s->n) {
        size_t from = at;
        if (max >= 0 && (int64_t)out.n == max) {
            add_part(j, &out, jstr_part(j, s, from, s.s->n));
            break;
        }
        at = end_of_run(j, s, from, false);
        add_part(j, &out, jstr_part(j, s, from, at));
        at = end_of_run(j, s, at, true);
    }
    return jval_list(j, JLIST, out.v, out.n);
}

static void reverse(struct jenv *j, struct jval *v, size_t n)
{
    jenv_looks(j, n);
    for (size_t i = 0; i < n / 2; i++) {
        struct jval x = v[i];
        v[i] = v[n - 1 - i];
        v[n - 1 - i] = x;
    }
}

static struct jval rsplit_space(struct jenv *j, struct jval s, int64_t max)
{
    struct jparts out = {0};
    struct jlist words = *split_space(j, s, -1).l;
    if (max < 0 || words.n <= (size_t)max) return jval_list(j, JLIST, words.v, words.n);
    for (size_t i = 0; i < (size_t)max; i++) add_part(j, &out, words.v[words.n - 1 - i]);
    /* all that is before the first of these words is one part */
    size_t first = words.n - (size_t)max, end = s.s->n;
    if (first < words.n) end = (size_t)(words.v[first].s->p - s.s->p);
    add_part(j, &out, jstr_strip(j, jstr_part(j, s, 0, end), jval_none(), false, true));
    reverse(j, out.v, out.n);
    return jval_list(j, JLIST, out.v, out.n);
}

METHOD(s_split)
{
    int64_t max = jarg_int(j, arg[1], -1, "maxsplit");
    if (arg[0].kind == JABSENT || arg[0].kind == JNONE) return split_space(j, self, max);
    struct jval sep = jarg_str(j, arg[0], "a separator");
    if (sep.s->n == 0) jenv_fail(j, QN_EDATA, "empty separator");
    struct jparts out = {0};
    size_t from = 0, at;
    while ((max < 0 || (int64_t)out.n < max) && (at = jstr_find(j, self, sep, from)) != SIZE_MAX) {
        add_part(j, &out, jstr_part(j, self, from, at));
        from = at + sep.s->n;
    }
    add_part(j, &out, jstr_part(j, self, from, self.s->n));
    return jval_list(j, JLIST, out.v, out.n);
}

METHOD(s_rsplit)
{
    int64_t max = jarg_int(j, arg[1], -1, "maxsplit");
    if (arg[0].kind == JABSENT || arg[0].kind == JNONE) return rsplit_space(j, self, max);
    struct jval sep = jarg_str(j, arg[0], "a separator");
    if (sep.s->n == 0) jenv_fail(j, QN_EDATA, "empty separator");
    struct jparts out = {0};
    size_t end = self.s->n, at;
    while ((max < 0 || (int64_t)out.n < max) && (at = jstr_rfind(j, self, sep, end)) != SIZE_MAX) {
        add_part(j, &out, jstr_part(j, self, at + sep.s->n, end));
        end = at;
    }
    add_part(j, &out, jstr_part(j, self, 0, end));
    reverse(j, out.v, out.n);
    return jval_list(j, JLIST, out.v, out.n);
}

static bool ends_line(uint32_t cp)
{
    return (cp >= 0x0A && cp <= 0x0D) || (cp >= 0x1C && cp <= 0x1E) || cp == 0x85 || cp == 0x2028 || cp == 0x2029;
}

struct jval jstr_lines(struct jenv *j, struct jval s, bool keep_ends)
{
    struct jparts out = {0};
    size_t from = 0;
    for (size_t at = 0; at < s.s->n;) {
        uint32_t cp;
        size_t end = at;
        at += jchar_at(s, at, &cp);
        jenv_looks(j, 1);
        if (!ends_line(cp)) continue;
        if (cp == '\r' && at < s.s->n && s.s->p[at] == '\n') at++;
        add_part(j, &out, jstr_part(j, s, from, keep_ends ? at : end));
        from = at;
    }
    if (from < s.s->n) add_part(j, &out, jstr_part(j, s, from, s.s->n));
    return jval_list(j, JLIST, out.v, out.n);
}

METHOD(s_splitlines) { return jstr_lines(j, self, arg[0].kind != JABSENT && jval_true(arg[0])); }

static struct jval cut_in_three(struct jenv *j, struct jval s, struct jval sep, size_t at, bool right)
{
    struct jval *v = jenv_get_n(j, 3, sizeof *v), empty = jval_cstr(j, "");
    v[0] = v[1] = v[2] = empty;
    if (at == SIZE_MAX) {
        v[right ? 2 : 0] = s;
    } else {
        v[0] = jstr_part(j, s, 0, at);
        v[1] = jstr_part(j, s, at, at + sep.s->n);
        v[2] = jstr_part(j, s, at + sep.s->n, s.s->n);
    }
    return jval_list(j, JTUPLE, v, 3);
}

METHOD(s_partition)
{
    struct jval sep = jarg_str(j, arg[0], "a separator");
    if (sep.s->n == 0) jenv_fail(j, QN_EDATA, "empty separator");
    return cut_in_three(j, self, sep, jstr_find(j, self, sep, 0), false);
}

METHOD(s_rpartition)
{
    struct jval sep = jarg_str(j, arg[0], "a separator");
    if (sep.s->n == 0) jenv_fail(j, QN_EDATA, "empty separator");
    return cut_in_three(j, self, sep, jstr_rfind(j, self, sep, self.s->n), true);
}

METHOD(s_join)
{
    struct jtext t = {.j = j};
    struct jlist l = jval_items(j, arg[0]);
    for (size_t i = 0; i < l.n; i++) {
        if (i) jtext_str(&t, self);
        jtext_str(&t, jarg_str(j, l.v[i], "an item of join()"));
    }
    return jtext_done(&t, self.flags & JMARKUP);
}

/* ---- searching and replacing ---- */

struct jval jstr_replace(struct jenv *j, struct jval s, struct jval old, struct jval new, int64_t max)
{
    struct jtext t = {.j = j};
    size_t from = 0, at = 0;
    for (int64_t n = 0; (max < 0 || n < max) && (at = jstr_find(j, s, old, at)) != SIZE_MAX; n++) {
        jenv_step(j, 1);
        jtext_part(&t, s, from, at);
        jtext_str(&t, new);
        from = at;
        if (old.s->n == 0) { /* between any two characters */
            if (at == s.s->n) break;
            uint32_t cp;
            at += jchar_at(s, at, &cp);
            continue;
        }
        from = at += old.s->n;
    }
    jtext_part(&t, s, from, s.s->n);
    return jtext_done(&t, s.flags & JMARKUP);
}

METHOD(s_replace)
{
    return jstr_replace(j, self, jarg_str(j, arg[0], "the text to replace"), jarg_str(j, arg[1], "the replacement"),
                        jarg_int(j, arg[2], -1, "count"));
}

/* Cuts *self to the part that the arguments start and end choose; *at is where it begins, in characters. False: start
 * is after end, so nothing can be found. */
static bool window(struct jenv *j, struct jval *self, const struct jval *arg, size_t *at)
{
    int64_t n = (int64_t)jstr_chars(j, *self);
    int64_t a = arg[0].kind == JNONE ? 0 : jarg_int(j, arg[0], 0, "start");
    int64_t b = arg[1].kind == JNONE ? n : jarg_int(j, arg[1], n, "end");
    if (a < 0) a = a < -n ? 0 : a + n;
    if (b < 0) b = b < -n ? 0 : b + n;
    if (b > n) b = n;
    *at = (size_t)a;
    if (a > b) return false;
    *self = jstr_part(j, *self, jstr_offset(j, *self, (size_t)a), jstr_offset(j, *self, (size_t)b));
    return true;
}

static int64_t position(struct jenv *j, struct jval self, const struct jval *arg, bool last)
{
    size_t start;
    struct jval needle = jarg_str(j, arg[0], "what to look for");
    if (!window(j, &self, arg + 1, &start)) return -1;
    size_t at = last ? jstr_rfind(j, self, needle, self.s->n) : jstr_find(j, self, needle, 0);
    return at == SIZE_MAX ? -1 : (int64_t)(start + jstr_chars(j, jstr_part(j, self, 0, at)));
}

METHOD(s_find) { return jval_int(position(j, self, arg, false)); }
METHOD(s_rfind) { return jval_int(position(j, self, arg, true)); }

static struct jval found(struct jenv *j, int64_t at)
{
    if (at < 0) jenv_fail(j, QN_EDATA, "substring not found");
    return jval_int(at);
}

METHOD(s_index) { return found(j, position(j, self, arg, false)); }
METHOD(s_rindex) { return found(j, position(j, self, arg, true)); }

METHOD(s_count)
{
    size_t start;
    struct jval needle = jarg_str(j, arg[0], "what to count");
    if (!window(j, &self, arg + 1, &start)) return jval_int(0);
    if (needle.s->n == 0) return jval_int((int64_t)jstr_chars(j, self) + 1);
    int64_t n = 0;
    for (size_t at = 0; (at = jstr_find(j, self, needle, at)) != SIZE_MAX; at += needle.s->n) {
        jenv_step(j, 1);
        n++;
    }
    return jval_int(n);
}

static struct jval any_at_edge(struct jenv *j, struct jval self, const struct jval *arg, bool end)
{
    size_t start;
    struct jlist l = {.v = (struct jval *)&arg[0], .n = 1};
    if (arg[0].kind == JTUPLE) l = *arg[0].l;
    if (!window(j, &self, arg + 1, &start)) return jval_bool(false);
    for (size_t i = 0; i < l.n; i++)
        if (at_edge(j, self, jarg_str(j, l.v[i], end ? "a suffix" : "a prefix"), end)) return jval_bool(true);
    return jval_bool(false);
}

METHOD(s_startswith) { return any_at_edge(j, self, arg, false); }
METHOD(s_endswith) { return any_at_edge(j, self, arg, true); }

/* ---- padding ---- */

static void pad_with(struct jtext *t, struct jval with, size_t n)
{
    if (with.kind != JSTR) {
        jtext_fill(t, ' ', n, 0);
        return;
    }
    for (size_t i = 0; i < n; i++) {
        jenv_looks(t->j, 4);
        jtext_str(t, with);
    }
}

struct jval jstr_pad(struct jenv *j, struct jval s, int64_t width, struct jval with, int side)
{
    struct jtext t = {.j = j};
    size_t n = jstr_chars(j, s);
    if (width < 0 || (size_t)width <= n) return s;
    if (with.kind != JABSENT && jstr_chars(j, jarg_str(j, with, "a fill character")) != 1)
        jenv_fail(j, QN_EDATA, "the fill character must be exactly one character long");
    size_t pad = (size_t)width - n, left = side > 0 ? pad : 0;
    if (side == 0) left = pad / 2 + (pad & (size_t)width & 1);
    pad_with(&t, with, left);
    jtext_str(&t, s);
    pad_with(&t, with, pad - left);
    return jtext_done(&t, s.flags & JMARKUP);
}

METHOD(s_center) { return jstr_pad(j, self, jarg_int(j, arg[0], 0, "width"), arg[1], 0); }
METHOD(s_ljust) { return jstr_pad(j, self, jarg_int(j, arg[0], 0, "width"), arg[1], -1); }
METHOD(s_rjust) { return jstr_pad(j, self, jarg_int(j, arg[0], 0, "width"), arg[1], 1); }

METHOD(s_zfill)
{
    struct jtext t = {.j = j};
    size_t n = jstr_chars(j, self), sign = self.s->n && (self.s->p[0] == '-' || self.s->p[0] == '+');
    int64_t width = jarg_int(j, arg[0], 0, "width");
    if (width < 0 || (size_t)width <= n) return self;
    jtext_part(&t, self, 0, sign);
    jtext_fill(&t, '0', (size_t)width - n, 0);
    jtext_part(&t, self, sign, self.s->n);
    return jtext_done(&t, self.flags & JMARKUP);
}

/* ---- asking ---- */

enum char_class { C_ALPHA, C_DIGIT, C_ALNUM, C_SPACE, C_ASCII };

static bool is_of(uint32_t cp, enum char_class what)
{
    utf8proc_category_t c = utf8proc_category((utf8proc_int32_t)cp);
    bool alpha = c >= UTF8PROC_CATEGORY_LU && c <= UTF8PROC_CATEGORY_LO, digit = c == UTF8PROC_CATEGORY_ND;
    switch (what) {
    case C_ALPHA: return alpha;
    case C_DIGIT: return digit;
    case C_ALNUM: return jchar_is_alnum(cp);
    case C_SPACE: return jchar_is_space(cp);
    default: return cp < 0x80;
    }
}

static struct jval all_are(struct jenv *j, struct jval s, enum char_class what)
{
    for (size_t at = 0; at < s.s->n;) {
        uint32_t cp;
        at += jchar_at(s, at, &cp);
        jenv_looks(j, 1);
        if (!is_of(cp, what)) return jval_bool(false);
    }
    return jval_bool(s.s->n > 0 || what == C_ASCII);
}

METHOD(s_isalpha) { return all_are(j, self, C_ALPHA); }
METHOD(s_isdigit) { return all_are(j, self, C_DIGIT); }
METHOD(s_isalnum) { return all_are(j, self, C_ALNUM); }
METHOD(s_isspace) { return all_are(j, self, C_SPACE); }
METHOD(s_isascii) { return all_are(j, self, C_ASCII); }

static struct jval by_test(struct jenv *j, struct jval self, const char *test)
{
    return jval_bool(jtest_apply(j, jval_cstr(j, test), self, &(struct jargs){0}));
}

METHOD(s_islower) { return by_test(j, self, "lower"); }
METHOD(s_isupper) { return by_test(j, self, "upper"); }

METHOD(s_format) { return jstr_format(j, self, raw); }

/* ---- lists ---- */

METHOD(l_count)
{
    int64_t n = 0;
    for (size_t i = 0; i < self.l->n; i++) n += jval_equal(j, self.l->v[i], arg[0]);
    return jval_int(n);
}

METHOD(l_index)
{
    for (size_t i = 0; i < self.l->n; i++)
        if (jval_equal(j, self.l->v[i], arg[0])) return jval_int((int64_t)i);
    jenv_fail(j, QN_EDATA, "the value is not in the list");
}

METHOD(l_copy) { return jval_flag(jval_list(j, JLIST, self.l->v, self.l->n), self.flags & JUSER); }

/* Jinja2's sandbox refuses this and pop(), but templates that are in use do it. Only texts and numbers are taken, so no
 * list is ever in itself. */
METHOD(l_append)
{
    struct jlist *l = self.l;
    enum jkind kind = arg[0].kind;
    if (kind != JSTR && kind != JINT && kind != JFLOAT && kind != JBOOL && kind != JNONE)
        jenv_fail(j, QN_EDATA, "append() takes texts and numbers, not %s", jval_type(arg[0]));
    if (!l->room || l->room->n != l->n || l->n == l->room->cap) {
        struct jroom *room = jenv_get(j, sizeof *room);
        *room = (struct jroom){.n = l->n, .cap = l->n < 4 ? 8 : l->n * 2};
        jenv_looks(j, l->n);
        struct jval *p = jenv_get_n(j, room->cap, sizeof *p);
        if (l->n) memcpy(p, l->v, l->n * sizeof *p);
        l->v = p;
        l->room = room;
    }
    l->v[l->n++] = arg[0];
    l->room->n = l->n;
    jenv_escapes(j, l->born);
    return jval_none();
}

METHOD(l_pop)
{
    struct jlist *l = self.l;
    int64_t n = (int64_t)l->n, i = jarg_int(j, arg[0], -1, "index");
    if (i < 0) i += n;
    if (i < 0 || i >= n) jenv_fail(j, QN_EDATA, "pop() from a list of %zu items", l->n);
    struct jval item = l->v[i];
    if (i == 0) {
        l->v++;
    } else if (i < n - 1) {
        struct jval *p = jenv_get_n(j, l->n - 1, sizeof *p);
        jenv_looks(j, l->n);
        memcpy(p, l->v, (size_t)i * sizeof *p);
        memcpy(p + i, l->v + i + 1, (size_t)(n - i - 1) * sizeof *p);
        l->v = p;
        jenv_escapes(j, l->born);
    }
    l->n--;
    l->room = NULL; /* others may share the array */
    return item;
}

METHOD(copy) { return self; } /* no copy is needed, because nothing changes a dictionary */

/* ---- dictionaries ---- */

METHOD(d_get)
{
    const struct jval *v = jdict_find(j, self.d, arg[0]);
    if (v) return *v;
    return arg[1].kind == JABSENT ? jval_none() : arg[1];
}

METHOD(d_keys)
{
    struct jlist l = jval_items(j, self);
    return jval_flag(jval_list(j, JVIEW, l.v, l.n), self.flags);
}

METHOD(d_values)
{
    struct jval *v = jenv_get_n(j, self.d->n, sizeof *v);
    jenv_step(j, self.d->n);
    for (size_t i = 0; i < self.d->n; i++) v[i] = self.d->pair[i].val;
    return jval_flag(jval_list(j, JVIEW, v, self.d->n), self.flags);
}

struct jval jdict_items(struct jenv *j, struct jval d, int kind)
{
    jenv_step(j, d.d->n);
    struct jval *v = jenv_get_n(j, d.d->n, sizeof *v);
    for (size_t i = 0; i < d.d->n; i++)
        v[i] = jval_flag(jval_pair(j, d.d->pair[i].key, d.d->pair[i].val), d.flags & JUSER);
    return jval_flag(jval_list(j, kind, v, d.d->n), d.flags);
}

METHOD(d_items) { return jdict_items(j, self, JVIEW); }

/* ---- of a loop ---- */

METHOD(loop_cycle)
{
    if (raw->n_pos == 0 || raw->n_kw) jenv_fail(j, QN_EDATA, "loop.cycle() needs the items to cycle through");
    return raw->pos[self.loop->i % raw->n_pos];
}

METHOD(loop_changed)
{
    struct jval now = jval_list(j, JTUPLE, raw->pos, raw->n_pos), *last = &self.loop->last_changed;
    if (last->kind == JTUPLE && jval_equal(j, *last, now)) return jval_bool(false);
    *last = now;
    jenv_escapes(j, self.loop->born);
    return jval_bool(true);
}

static const struct jfunc str_methods[] = {
    {"strip", s_strip, 0, "chars"},
    {"lstrip", s_lstrip, 0, "chars"},
    {"rstrip", s_rstrip, 0, "chars"},
    {"split", s_split, 0, "sep maxsplit"},
    {"rsplit", s_rsplit, 0, "sep maxsplit"},
    {"splitlines", s_splitlines, 0, "keepends"},
    {"partition", s_partition, 1, "sep"},
    {"rpartition", s_rpartition, 1, "sep"},
    {"startswith", s_startswith, 1, "prefix start end"},
    {"endswith", s_endswith, 1, "suffix start end"},
    {"replace", s_replace, 2, "old new count"},
    {"join", s_join, 1, "iterable"},
    {"lower", s_lower, 0, ""},
    {"casefold", s_lower, 0, ""},
    {"upper", s_upper, 0, ""},
    {"capitalize", s_capitalize, 0, ""},
    {"title", s_title, 0, ""},
    {"swapcase", s_swapcase, 0, ""},
    {"find", s_find, 1, "sub start end"},
    {"rfind", s_rfind, 1, "sub start end"},
    {"index", s_index, 1, "sub start end"},
    {"rindex", s_rindex, 1, "sub start end"},
    {"count", s_count, 1, "sub start end"},
    {"removeprefix", s_removeprefix, 1, "prefix"},
    {"removesuffix", s_removesuffix, 1, "suffix"},
    {"center", s_center, 1, "width fillchar"},
    {"ljust", s_ljust, 1, "width fillchar"},
    {"rjust", s_rjust, 1, "width fillchar"},
    {"zfill", s_zfill, 1, "width"},
    {"format", s_format, 0, NULL},
    {"isalpha", s_isalpha, 0, ""},
    {"isdigit", s_isdigit, 0, ""},
    {"isdecimal", s_isdigit, 0, ""},
    {"isnumeric", s_isdigit, 0, ""},
    {"isalnum", s_isalnum, 0, ""},
    {"isspace", s_isspace, 0, ""},
    {"isascii", s_isascii, 0, ""},
    {"islower", s_islower, 0, ""},
    {"isupper", s_isupper, 0, ""},
};
static const struct jfunc list_methods[] = {
    {"count", l_count, 1, "value"},    {"index", l_index, 1, "value"}, {"copy", l_copy, 0, ""},
    {"append", l_append, 1, "object"}, {"pop", l_pop, 0, "index"},
};
static const struct jfunc dict_methods[] = {
    {"get", d_get, 1, "key default"}, {"items", d_items, 0, ""}, {"keys", d_keys, 0, ""},
    {"values", d_values, 0, ""},      {"copy", copy, 0, ""},
};
static const struct jfunc loop_methods[] = {
    {"cycle", loop_cycle, 0, NULL},
    {"changed", loop_changed, 0, NULL},
};

const struct jfunc *jmethod_find(enum jkind kind, struct jval name)
{
    switch (kind) {
    case JSTR: return jfunc_find(str_methods, sizeof str_methods / sizeof str_methods[0], name);
    case JTUPLE: return jfunc_find(list_methods, 2, name);
    case JLIST: return jfunc_find(list_methods, sizeof list_methods / sizeof list_methods[0], name);
    case JDICT: return jfunc_find(dict_methods, sizeof dict_methods / sizeof dict_methods[0], name);
    case JLOOP: return jfunc_find(loop_methods, sizeof loop_methods / sizeof loop_methods[0], name);
    default: return NULL;
    }
}
