/* SPDX-License-Identifier: MIT
 *
 * state_object.c: the states of a JSON object: which name may come next.
 *
 * Names come in the order of the shape, and those that it does not mention after them; or (any_order) in any order. A
 * name is offered only if the object can still be completed after it.
 */
#include <string.h>

#include "grammar/automaton/automaton_impl.h"
#include "grammar/automaton/string_step.h"

/* A place in an object, from the words of a state. */
struct object_place {
    const struct object_shape *o;
    uint32_t node, shape, place, count;
    uint32_t list; /* of the names that the shape does not mention, where they matter */
};

static struct object_place place_of(const struct automaton *m, const uint32_t *w)
{
    struct object_place p = {.o = m->tables->nodes[w[1]].objects[w[2]], .node = w[1], .shape = w[2]};
    if (w[0] == STATE_OBJECT || w[0] == STATE_OBJECT_FIRST) return p;
    p.place = w[3];
    p.count = w[4];
    p.list = w[5];
    return p;
}

/* ---- which names are left ---- */

static bool was_there(const struct automaton *m, uint32_t set, uint32_t i)
{
    uint32_t n;
    const uint32_t *w = word_set_get(&m->names, set, &n);
    return i / 32 < n && w[i / 32] >> (i % 32) & 1;
}

static uint32_t with_name(struct automaton *m, uint32_t set, uint32_t i)
{
    uint32_t n, more[OBJECT_MAX_NAMES / 32] = {0}, k = i / 32 + 1;
    const uint32_t *w = word_set_get(&m->names, set, &n);
    if (n) memcpy(more, w, n * sizeof *w);
    more[i / 32] |= 1u << (i % 32);
    return word_set_add(&m->names, m->l, more, n > k ? n : k);
}

/* Names that are still required, and names that are still possible, of those that the shape mentions. */
static void count_left(const struct automaton *m, const struct object_place *p, uint32_t *required, uint32_t *allowed)
{
    const struct object_shape *o = p->o;
    if (!m->any_order) {
        *required = o->required_from[p->place];
        *allowed = o->allowed_from[p->place];
        return;
    }
    *required = *allowed = 0;
    for (uint32_t i = 0; i < o->n_names; i++) {
        if (was_there(m, p->place, i)) continue;
        *required += o->names[i].required;
        *allowed += o->names[i].allowed;
    }
}

/* Whether an object whose names are counted can be completed from here; n_more: after so many other names that are not
 * in the list yet. */
static bool can_finish(const struct automaton *m, const struct object_place *p, uint32_t n_more)
{
    uint32_t required, allowed, n_seen;
    count_left(m, p, &required, &allowed);
    word_set_get(&m->seen, p->list, &n_seen);
    if (p->count + required > p->o->most) return false;
    if (!p->o->distinct || p->count >= p->o->least) return true;
    return p->count + allowed + p->o->n_other >= p->o->least + n_seen + n_more;
}

static bool may_end(const struct automaton *m, const struct object_place *p)
{
    uint32_t required, allowed;
    count_left(m, p, &required, &allowed);
    return required == 0 && (!p->o->counted || p->count >= p->o->least);
}

static uint32_t one_more(const struct object_place *p)
{
    bool matters = p->o->counted && (p->o->most != JSON_NO_MAX || p->count < p->o->least);
    return matters ? p->count + 1 : p->count;
}

/* Other names must differ, perhaps until there are enough of them. */
static bool must_differ(const struct object_place *p)
{
    return p->o->all_distinct || (p->o->distinct && p->count < p->o->least);
}

/* The place after name i. */
static struct object_place after_name(struct automaton *m, struct object_place p, uint32_t i)
{
    p.place = m->any_order ? with_name(m, p.place, i) : i + 1;
    p.count = one_more(&p);
    if (!must_differ(&p)) p.list = 0;
    return p;
}

/* The place after a name that the shape does not mention; text: 0, or that of the name. */
static struct object_place after_other(struct automaton *m, struct object_place p, uint32_t text)
{
    if (!m->any_order) p.place = p.o->n_names;
    p.count = one_more(&p);
    if (!must_differ(&p))
        p.list = 0;
    else if (text)
        p.list = text_list_add(m, p.list, text);
    return p;
}

/* The names of part i of the rest that may come. */
static re_id other_names(struct automaton *m, const struct object_place *p, uint32_t i)
{
    re_id all = p->o->rest[i].name;
    return must_differ(p) ? text_unseen(m, all, p->list, true) : all;
}

static bool name_may_come(struct automaton *m, const struct object_place *p, uint32_t i)
{
    const struct object_shape *o = p->o;
    if (!o->names[i].allowed) return false;
    if (m->any_order && was_there(m, p->place, i)) return false;
    if (!m->any_order && (i < p->place || o->required_from[p->place] != o->required_from[i])) return false;
    if (!o->counted) return true;
    struct object_place next = after_name(m, *p, i);
    return can_finish(m, &next, 0);
}

static bool other_may_come(struct automaton *m, const struct object_place *p)
{
    if (p->o->n_rest == 0) return false;
    if (!m->any_order && p->o->required_from[p->place] != 0) return false;
    if (!p->o->counted && !p->o->all_distinct) return true;
    struct object_place next = after_other(m, *p, 0);
    if (p->o->counted && !can_finish(m, &next, must_differ(p))) return false;
    for (uint32_t i = 0; i < p->o->n_rest; i++)
        if (other_names(m, p, i)) return true;
    return false;
}

static bool any_may_come(struct automaton *m, const struct object_place *p, uint32_t lo, uint32_t hi)
{
    for (uint32_t i = lo; i < hi; i++)
        if (name_may_come(m, p, p->o->sorted[i])) return true;
    return false;
}

static bool may_continue(struct automaton *m, const struct object_place *p)
{
    return other_may_come(m, p) || any_may_come(m, p, 0, p->o->n_names);
}

/* ---- reading ---- */

static uint32_t state_at(struct automaton *m, enum state_kind kind, const struct object_place *p)
{
    return STATE(m, kind, p->node, p->shape, p->place, p->count, p->list);
}

static uint32_t colon(struct automaton *m, const struct object_place *p, uint32_t value)
{
    return STATE(m, STATE_OBJECT_COLON, p->node, p->shape, p->place, p->count, p->list, value);
}

/* After the quotation mark of a name that the shape does not mention. Its text is remembered if later ones must differ
 * from it. */
static void begin_other(struct automaton *m, const struct object_place *p, uint32_t stack)
{
    struct object_place next = after_other(m, *p, 0);
    bool remember = must_differ(&next);
    uint32_t first = remember ? text_longer(m, TEXT_EMPTY, TEXT_OF_STRING) : 0;
    for (uint32_t i = 0; i < p->o->n_rest; i++) {
        uint32_t value = p->o->rest[i].node;
        re_id re = other_names(m, p, i);
        if (!re) continue;
        if (remember)
            automaton_add(m,
                          STATE(m, STATE_OBJECT_OTHER, p->node, p->shape, p->place, p->count, p->list, value, first, re,
                                STRING_PLAIN),
                          stack);
        else
            automaton_call(m, STATE(m, STATE_STRING, re, STRING_PLAIN), colon(m, &next, value), stack);
    }
}

/* After the quotation mark of a name. */
static void begin_name(struct automaton *m, const struct object_place *p, uint32_t stack)
{
    uint32_t n = p->o->n_names;
    if (any_may_come(m, p, 0, n))
        automaton_add(m, STATE(m, STATE_OBJECT_NAME, p->node, p->shape, p->place, p->count, p->list, 0, n, 0), stack);
    if (other_may_come(m, p)) begin_other(m, p, stack);
}

void object_forget(struct automaton *m, const uint32_t *w, uint32_t stack)
{
    struct object_place p = place_of(m, w), next = after_other(m, p, 0);
    automaton_call(m, STATE(m, STATE_STRING, w[8], w[9]), colon(m, &next, w[6]), stack);
}

static void read_other(struct automaton *m, const uint32_t *w, uint32_t stack, uint8_t byte)
{
    struct string_place at = {.re = w[8], .escape = w[9]};
    uint32_t text = w[7];
    if (!string_step(m->r, &at, byte)) return;
    for (unsigned i = 0; i < at.n_text; i++) text = text_longer(m, text, at.text[i]);
    if (at.ends) {
        struct object_place p = place_of(m, w), next = after_other(m, p, text);
        automaton_add(m, colon(m, &next, w[6]), stack);
    } else {
        automaton_add(m, STATE(m, STATE_OBJECT_OTHER, w[1], w[2], w[3], w[4], w[5], w[6], text, at.re, at.escape),
                      stack);
    }
}

/* The first of the sorted names [lo, hi), which share `depth` bytes, whose next byte is at least b. */
static uint32_t first_name(const struct object_shape *o, uint32_t lo, uint32_t hi, uint32_t depth, unsigned b)
{
    while (lo < hi) {
        uint32_t mid = lo + (hi - lo) / 2;
        const struct object_name *x = &o->names[o->sorted[mid]];
        if (x->n > depth && (uint8_t)x->text[depth] >= b)
            hi = mid;
        else
            lo = mid + 1;
    }
    return lo;
}

static void read_name(struct automaton *m, const uint32_t *w, uint32_t stack, uint8_t byte)
{
    struct object_place p = place_of(m, w);
    uint32_t lo = w[6], hi = w[7], depth = w[8];
    const struct object_name *x = &p.o->names[p.o->sorted[lo]];
    if (byte == '"' && x->n == depth) {
        if (!name_may_come(m, &p, p.o->sorted[lo])) return;
        struct object_place next = after_name(m, p, p.o->sorted[lo]);
        automaton_add(m, colon(m, &next, x->node), stack);
        return;
    }
    lo = first_name(p.o, lo, hi, depth, byte);
    hi = first_name(p.o, lo, hi, depth, byte + 1u);
    if (any_may_come(m, &p, lo, hi))
        automaton_add(m, STATE(m, STATE_OBJECT_NAME, w[1], w[2], w[3], w[4], w[5], lo, hi, depth + 1), stack);
}

static void read_after_value(struct automaton *m, const struct object_place *p, uint32_t stack, uint8_t byte)
{
    if (byte == '}' && may_end(m, p)) automaton_return(m, stack);
    if (byte != ',' || !may_continue(m, p)) return;
    uint32_t key = state_at(m, STATE_OBJECT_KEY, p);
    automaton_add(m, m->spaces ? STATE(m, STATE_SPACE, key) : key, stack);
}

void object_read(struct automaton *m, const uint32_t *w, uint32_t stack, uint8_t byte)
{
    struct object_place p = place_of(m, w);
    switch (w[0]) {
    case STATE_OBJECT:
        if (byte == '{') automaton_add(m, STATE(m, STATE_OBJECT_FIRST, w[1], w[2]), stack);
        break;
    case STATE_OBJECT_FIRST:
        if (byte == '}' && may_end(m, &p)) automaton_return(m, stack);
        if (byte == '"') begin_name(m, &p, stack);
        break;
    case STATE_OBJECT_KEY:
        if (byte == '"') begin_name(m, &p, stack);
        break;
    case STATE_OBJECT_NAME: read_name(m, w, stack, byte); break;
    case STATE_OBJECT_OTHER: read_other(m, w, stack, byte); break;
    case STATE_OBJECT_COLON:
        if (byte == ':') automaton_call(m, state_of_value(m, w[6]), state_at(m, STATE_OBJECT_NEXT, &p), stack);
        break;
    default: read_after_value(m, &p, stack, byte);
    }
}

static void bounds_of_names(const struct automaton *m, const uint32_t *w, uint64_t bits[4])
{
    const struct object_shape *o = m->tables->nodes[w[1]].objects[w[2]];
    uint32_t depth = w[8];
    for (uint32_t i = w[6]; i < w[7];) {
        const struct object_name *x = &o->names[o->sorted[i]];
        if (x->n == depth) {
            i++;
            continue;
        }
        unsigned b = (uint8_t)x->text[depth];
        re_mark_byte(bits, b);
        i = first_name(o, i, w[7], depth, b + 1);
    }
}

void object_bounds(struct automaton *m, const uint32_t *w, uint64_t bits[4])
{
    static const char *const marks[] = {
        [STATE_OBJECT] = "{",       [STATE_OBJECT_FIRST] = "\"}", [STATE_OBJECT_KEY] = "\"",
        [STATE_OBJECT_NAME] = "\"", [STATE_OBJECT_COLON] = ":",   [STATE_OBJECT_NEXT] = ",}",
    };
    if (w[0] == STATE_OBJECT_OTHER) { /* the text is remembered, so all bytes differ */
        for (unsigned b = 0; b < 256; b++) re_mark_byte(bits, b);
        return;
    }
    for (const char *k = marks[w[0]]; *k; k++) re_mark_byte(bits, (uint8_t)*k);
    if (w[0] == STATE_OBJECT_NAME) bounds_of_names(m, w, bits);
}
