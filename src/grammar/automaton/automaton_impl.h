/* SPDX-License-Identifier: MIT
 *
 * automaton_impl.h: what the files of the automaton share.
 *
 * The functions of states add to the configuration that is being made (automaton_add). A state that reads a byte adds
 * the states after it; a state that reads nothing adds those that it stands for.
 */
#ifndef QUERN_GRAMMAR_AUTOMATON_IMPL_H
#define QUERN_GRAMMAR_AUTOMATON_IMPL_H

#include "grammar/automaton/automaton.h"

/* Adds a state with its stack to the configuration that is being made. */
void automaton_add(struct automaton *m, uint32_t state, uint32_t stack);
/* Adds the states that the stack returns to. */
void automaton_return(struct automaton *m, uint32_t stack);
/* The stack with one more state; 0 if it is too high. */
uint32_t automaton_push(struct automaton *m, uint32_t state, uint32_t stack);
/* Adds a state that returns to another one. */
void automaton_call(struct automaton *m, uint32_t state, uint32_t to, uint32_t stack);

#define STATE(m, ...)                                                                                                  \
    automaton_state(m, (const uint32_t[]){__VA_ARGS__}, sizeof((const uint32_t[]){__VA_ARGS__}) / sizeof(uint32_t))

/* What the state with words w does: sets the bytes at which something changes; reads a byte; stands for other states or
 * returns, without reading anything. */
void state_bounds(struct automaton *m, const uint32_t *w, uint64_t bits[4]);
void state_read(struct automaton *m, const uint32_t *w, uint32_t stack, uint8_t byte);
void state_close(struct automaton *m, const uint32_t *w, uint32_t stack);

/* The same for the states of objects and arrays. */
void object_bounds(struct automaton *m, const uint32_t *w, uint64_t bits[4]);
void object_read(struct automaton *m, const uint32_t *w, uint32_t stack, uint8_t byte);
void array_bounds(const uint32_t *w, uint64_t bits[4]);
void array_read(struct automaton *m, const uint32_t *w, uint32_t stack, uint8_t byte);
void array_close(struct automaton *m, const uint32_t *w, uint32_t stack);

/* Adds what a state that remembers its text would be if it did not. */
void object_forget(struct automaton *m, const uint32_t *w, uint32_t stack);
void array_forget(struct automaton *m, const uint32_t *w, uint32_t stack);

/* The texts of items, and of names, that must differ: a text with one more byte; the list with one more text; and what
 * the expression matches besides the texts of strings, or the other texts, in the list. */
uint32_t text_longer(struct automaton *m, uint32_t text, uint32_t byte);
uint32_t text_list_add(struct automaton *m, uint32_t list, uint32_t text);
re_id text_unseen(struct automaton *m, re_id re, uint32_t list, bool string);
#define TEXT_EMPTY     0u
#define TEXT_OF_STRING 256u /* the first "byte" of a string's text: no text, and no number, begins with it */

/* The state of a value, with an optional space before it where that is allowed. */
uint32_t state_of_value(struct automaton *m, uint32_t node);

#endif
