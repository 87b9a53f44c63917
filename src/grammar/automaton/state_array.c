/* SPDX-License-Identifier: MIT
 *
 * state_array.c: the states of a JSON array: how many items there were, how many of them count, which ones they were.
 */
#include "grammar/automaton/automaton_impl.h"
#include "grammar/automaton/string_step.h"

/* A place between two items. */
struct array_place {
    const struct array_shape *o;
    uint32_t node, shape, index, counted, seen;
};

static struct array_place place_of(const struct automaton *m, const uint32_t *w)
{
    struct array_place p = {m->tables->nodes[w[1]].arrays[w[2]], w[1], w[2], 0, 0, 0};
    if (w[0] == STATE_ARRAY_ITEM || w[0] == STATE_ARRAY_NEXT) {
        p.index = w[3];
        p.counted = w[4];
        p.seen = w[5];
    }
    return p;
}

/* ---- which items may follow ---- */

static uint32_t node_at(const struct array_shape *o, const uint32_t *nodes, uint32_t i)
{
    return nodes[i < o->n_first ? i : o->n_first];
}

static bool has_values(const struct automaton *m, uint32_t node)
{
    const struct json_node *x = &m->tables->nodes[node];
    return x->raw || x->string || x->n_objects || x->n_arrays;
}

/* Whether enough items from index i on can count. */
static bool can_count(const struct automaton *m, const struct array_shape *o, uint32_t i, uint32_t missing)
{
    for (; missing && i < o->n_first && i < o->most; i++) missing -= has_values(m, o->counted[i]);
    return missing == 0 || (i < o->most && o->most - i >= missing && has_values(m, o->counted[o->n_first]));
}

static uint32_t missing(const struct array_place *p)
{
    return p->o->least_counted > p->counted ? p->o->least_counted - p->counted : 0;
}

/* The next item may be one that does not count. */
static bool may_be_other(const struct automaton *m, const struct array_place *p)
{
    if (!p->o->counted) return true;
    return has_values(m, node_at(p->o, p->o->uncounted, p->index)) && can_count(m, p->o, p->index + 1, missing(p));
}

static bool may_be_counted(const struct automaton *m, const struct array_place *p)
{
    if (!p->o->counted || p->counted >= p->o->most_counted) return false;
    if (p->o->most_counted == JSON_NO_MAX && missing(p) == 0) return false; /* the other kind includes these */
    return has_values(m, node_at(p->o, p->o->counted, p->index)) &&
           can_count(m, p->o, p->index + 1, missing(p) ? missing(p) - 1 : 0);
}

static bool may_end(const struct array_place *p) { return p->index >= p->o->least && missing(p) == 0; }

/* ---- items that differ ---- */

/* The raw texts, or strings, that an item may be and no item was. */
static re_id unseen(struct automaton *m, const struct array_place *p, bool string)
{
    const struct json_node *item = &m->tables->nodes[p->o->items[p->o->n_first]];
    re_id re = string ? item->string : item->raw;
    if (!string && re) re = re_and2(m->r, re, m->canonical);
    return text_unseen(m, re, p->seen, string);
}

static void begin_unique(struct automaton *m, const struct array_place *p, uint32_t stack)
{
    re_id raw = unseen(m, p, false), string = unseen(m, p, true);
    if (raw) automaton_add(m, STATE(m, STATE_UNIQUE_RAW, p->node, p->shape, p->index, p->seen, 0, raw), stack);
    if (string) {
        uint32_t mark = text_longer(m, TEXT_EMPTY, TEXT_OF_STRING);
        automaton_add(m, STATE(m, STATE_UNIQUE_QUOTE, p->node, p->shape, p->index, p->seen, mark, string), stack);
    }
}

/* The state after an item, where the items of list `seen` were there. */
static uint32_t after_unique(struct automaton *m, const struct array_shape *o, const uint32_t *w, uint32_t seen)
{
    uint32_t index = w[3] + 1, enough = o->most == JSON_NO_MAX ? o->least : o->most;
    return STATE(m, STATE_ARRAY_NEXT, w[1], w[2], index < enough ? index : enough, 0, seen);
}

/* After the item with this text. */
static void end_unique(struct automaton *m, const uint32_t *w, uint32_t text, uint32_t stack)
{
    const struct array_shape *o = m->tables->nodes[w[1]].arrays[w[2]];
    automaton_add(m, after_unique(m, o, w, text_list_add(m, w[4], text)), stack);
}

void array_forget(struct automaton *m, const uint32_t *w, uint32_t stack)
{
    const struct array_shape *o = m->tables->nodes[w[1]].arrays[w[2]];
    uint32_t next = after_unique(m, o, w, w[4]);
    if (w[0] == STATE_UNIQUE_RAW) automaton_call(m, STATE(m, STATE_RAW, w[6]), next, stack);
    if (w[0] == STATE_UNIQUE_QUOTE) automaton_call(m, STATE(m, STATE_QUOTE, w[6]), next, stack);
    if (w[0] == STATE_UNIQUE_STRING) automaton_call(m, STATE(m, STATE_STRING, w[6], w[7]), next, stack);
}

static void read_unique(struct automaton *m, const uint32_t *w, uint32_t stack, uint8_t byte)
{
    struct string_place at = {.re = w[6], .escape = w[0] == STATE_UNIQUE_STRING ? w[7] : STRING_PLAIN};
    uint32_t text = w[5];
    if (w[0] == STATE_UNIQUE_QUOTE) {
        if (byte == '"')
            automaton_add(m, STATE(m, STATE_UNIQUE_STRING, w[1], w[2], w[3], w[4], w[5], w[6], STRING_PLAIN), stack);
        return;
    }
    if (w[0] == STATE_UNIQUE_RAW) {
        re_id next = re_step(m->r, w[6], byte);
        if (next)
            automaton_add(m, STATE(m, STATE_UNIQUE_RAW, w[1], w[2], w[3], w[4], text_longer(m, text, byte), next),
                          stack);
        return;
    }
    if (!string_step(m->r, &at, byte)) return;
    for (unsigned i = 0; i < at.n_text; i++) text = text_longer(m, text, at.text[i]);
    if (at.ends)
        end_unique(m, w, text, stack);
    else
        automaton_add(m, STATE(m, STATE_UNIQUE_STRING, w[1], w[2], w[3], w[4], text, at.re, at.escape), stack);
}

/* ---- all states ---- */

/* Adds the states of the next item. */
static void begin_item(struct automaton *m, const struct array_place *p, uint32_t stack)
{
    const struct array_shape *o = p->o;
    uint32_t enough = o->most == JSON_NO_MAX ? (o->least > o->n_first ? o->least : o->n_first) : o->most;
    uint32_t index = p->index + 1 < enough ? p->index + 1 : enough;
    if (p->index >= o->most) return;
    if (o->unique) {
        begin_unique(m, p, stack);
        return;
    }
    uint32_t next = STATE(m, STATE_ARRAY_NEXT, p->node, p->shape, index, p->counted, 0);
    const uint32_t *nodes = o->counted ? o->uncounted : o->items;
    if (may_be_other(m, p)) automaton_call(m, STATE(m, STATE_VALUE, node_at(o, nodes, p->index)), next, stack);
    if (!may_be_counted(m, p)) return;
    next = STATE(m, STATE_ARRAY_NEXT, p->node, p->shape, index, p->counted + 1, 0);
    automaton_call(m, STATE(m, STATE_VALUE, node_at(o, o->counted, p->index)), next, stack);
}

static bool may_continue(struct automaton *m, const struct array_place *p)
{
    if (p->index >= p->o->most && p->o->most != JSON_NO_MAX) return false;
    if (p->o->unique) return unseen(m, p, false) || unseen(m, p, true);
    return may_be_other(m, p) || may_be_counted(m, p);
}

void array_close(struct automaton *m, const uint32_t *w, uint32_t stack)
{
    struct array_place p = place_of(m, w);
    if (w[0] == STATE_ARRAY_FIRST || w[0] == STATE_ARRAY_ITEM) begin_item(m, &p, stack);
    if (w[0] == STATE_UNIQUE_RAW && re_is_nullable(m->r, w[6])) end_unique(m, w, w[5], stack);
}

void array_read(struct automaton *m, const uint32_t *w, uint32_t stack, uint8_t byte)
{
    struct array_place p = place_of(m, w);
    switch (w[0]) {
    case STATE_ARRAY:
        if (byte == '[') automaton_add(m, STATE(m, STATE_ARRAY_FIRST, w[1], w[2]), stack);
        break;
    case STATE_ARRAY_FIRST:
    case STATE_ARRAY_NEXT:
        if (byte == ']' && may_end(&p)) automaton_return(m, stack);
        if (byte != ',' || w[0] == STATE_ARRAY_FIRST || !may_continue(m, &p)) break;
        uint32_t item = STATE(m, STATE_ARRAY_ITEM, p.node, p.shape, p.index, p.counted, p.seen);
        automaton_add(m, m->spaces ? STATE(m, STATE_SPACE, item) : item, stack);
        break;
    case STATE_ARRAY_ITEM: break;
    default: read_unique(m, w, stack, byte);
    }
}

void array_bounds(const uint32_t *w, uint64_t bits[4])
{
    switch (w[0]) {
    case STATE_ARRAY: re_mark_byte(bits, '['); break;
    case STATE_ARRAY_FIRST: re_mark_byte(bits, ']'); break;
    case STATE_ARRAY_NEXT:
        re_mark_byte(bits, ',');
        re_mark_byte(bits, ']');
        break;
    case STATE_UNIQUE_QUOTE: re_mark_byte(bits, '"'); break;
    default: /* the text is remembered, so all bytes differ */
        for (unsigned b = 0; b < 256; b++) re_mark_byte(bits, b);
    }
}
