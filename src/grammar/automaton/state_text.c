/* SPDX-License-Identifier: MIT
 *
 * state_text.c: the states of text: expressions, strings, rules; and which file has the others.
 */
#include "grammar/automaton/automaton_impl.h"
#include "grammar/automaton/string_step.h"

/* ---- bounds ---- */

void state_bounds(struct automaton *m, const uint32_t *w, uint64_t bits[4])
{
    switch (w[0]) {
    case STATE_RAW: re_bounds(m->r, w[1], bits); break;
    case STATE_QUOTE: re_mark_byte(bits, '"'); break;
    case STATE_STRING: string_bounds(m->r, &(struct string_place){.re = w[1], .escape = w[2]}, bits); break;
    case STATE_SPACE: re_mark_byte(bits, ' '); break;
    case STATE_VALUE:
    case STATE_RULE: break;
    default:
        if (w[0] < STATE_ARRAY)
            object_bounds(m, w, bits);
        else
            array_bounds(w, bits);
    }
}

/* ---- reading ---- */

static void read_string(struct automaton *m, const uint32_t *w, uint32_t stack, uint8_t byte)
{
    struct string_place at = {.re = w[1], .escape = w[2]};
    if (!string_step(m->r, &at, byte)) return;
    if (at.ends)
        automaton_return(m, stack);
    else
        automaton_add(m, STATE(m, STATE_STRING, at.re, at.escape), stack);
}

static void read_raw(struct automaton *m, const uint32_t *w, uint32_t stack, uint8_t byte)
{
    re_id next = re_step(m->r, w[1], byte);
    if (next == RE_EMPTY)
        automaton_return(m, stack);
    else if (next)
        automaton_add(m, STATE(m, STATE_RAW, next), stack);
}

void state_read(struct automaton *m, const uint32_t *w, uint32_t stack, uint8_t byte)
{
    switch (w[0]) {
    case STATE_RAW: read_raw(m, w, stack, byte); break;
    case STATE_QUOTE:
        if (byte == '"') automaton_add(m, STATE(m, STATE_STRING, w[1], STRING_PLAIN), stack);
        break;
    case STATE_STRING: read_string(m, w, stack, byte); break;
    case STATE_SPACE:
        if (byte == ' ') automaton_add(m, w[1], stack);
        break;
    case STATE_VALUE:
    case STATE_RULE: break;
    default:
        if (w[0] < STATE_ARRAY)
            object_read(m, w, stack, byte);
        else
            array_read(m, w, stack, byte);
    }
}

/* ---- states that stand for others ---- */

static void close_value(struct automaton *m, const uint32_t *w, uint32_t stack)
{
    const struct json_node *node = &m->tables->nodes[w[1]];
    if (node->raw) automaton_add(m, STATE(m, STATE_RAW, node->raw), stack);
    if (node->string) automaton_add(m, STATE(m, STATE_QUOTE, node->string), stack);
    for (uint32_t i = 0; i < node->n_objects; i++) automaton_add(m, STATE(m, STATE_OBJECT, w[1], i), stack);
    for (uint32_t i = 0; i < node->n_arrays; i++) automaton_add(m, STATE(m, STATE_ARRAY, w[1], i), stack);
}

/* Adds the state, and what comes after it; nothing comes after the last part of a rule but what the rule returns to. */
static void add_part(struct automaton *m, uint32_t state, uint32_t next, uint32_t stack)
{
    if (next)
        automaton_call(m, state, STATE(m, STATE_RULE, next, 0), stack);
    else
        automaton_add(m, state, stack);
}

static void close_repeat(struct automaton *m, const uint32_t *w, uint32_t stack)
{
    const struct rule_node *node = &m->rules[w[1]];
    uint32_t count = w[2], more = count + 1;
    if (node->most == RE_NO_MAX && more > node->least) more = node->least; /* one more changes nothing */
    if (count >= node->least) {
        if (node->next)
            automaton_add(m, STATE(m, STATE_RULE, node->next, 0), stack);
        else
            automaton_return(m, stack);
    }
    if (count < node->most)
        automaton_call(m, STATE(m, STATE_RULE, node->first, 0), STATE(m, STATE_RULE, w[1], more), stack);
}

static void close_rule(struct automaton *m, const uint32_t *w, uint32_t stack)
{
    const struct rule_node *node = &m->rules[w[1]];
    switch (node->kind) {
    case RULE_END: automaton_return(m, stack); break;
    case RULE_TERM: add_part(m, STATE(m, STATE_RAW, node->re), node->next, stack); break;
    case RULE_VALUE: add_part(m, STATE(m, STATE_VALUE, node->first), node->next, stack); break;
    case RULE_CALL: add_part(m, STATE(m, STATE_RULE, node->first, 0), node->next, stack); break;
    case RULE_REPEAT: close_repeat(m, w, stack); break;
    default:
        for (uint32_t b = node->first; b; b = m->rules[b].other)
            add_part(m, STATE(m, STATE_RULE, m->rules[b].first, 0), node->next, stack);
    }
}

void state_close(struct automaton *m, const uint32_t *w, uint32_t stack)
{
    switch (w[0]) {
    case STATE_RAW:
        if (re_is_nullable(m->r, w[1])) automaton_return(m, stack);
        break;
    case STATE_SPACE: automaton_add(m, w[1], stack); break;
    case STATE_VALUE: close_value(m, w, stack); break;
    case STATE_RULE: close_rule(m, w, stack); break;
    default:
        if (w[0] >= STATE_ARRAY) array_close(m, w, stack);
    }
}

uint32_t state_of_value(struct automaton *m, uint32_t node)
{
    uint32_t value = STATE(m, STATE_VALUE, node);
    return m->spaces ? STATE(m, STATE_SPACE, value) : value;
}
