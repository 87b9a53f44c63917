/* SPDX-License-Identifier: MIT
 *
 * automaton.h: the pushdown automaton that reads a text byte by byte.
 *
 * A state knows what may come next and what comes after it. States that are called (the value of a property, a rule of
 * a grammar) return to the state on top of the stack. Several states with their stacks can be possible at once; such a
 * set is a configuration, and stacks of equal states are joined. So one configuration follows from another by one byte,
 * whatever the grammar, and what follows is remembered.
 *
 * Stacks and configurations are made when they are reached. All of them are lists of words (word_set.h).
 */
#ifndef QUERN_GRAMMAR_AUTOMATON_H
#define QUERN_GRAMMAR_AUTOMATON_H

#include "grammar/gbnf/gbnf.h"
#include "grammar/schema/json_tables.h"
#include "grammar/regex/regex.h"

typedef uint32_t config_id;

#define CONFIG_DEAD ((config_id)0) /* no text goes on from here, and none ends here */

#define AUTOMATON_DEPTH 1000 /* the highest stack, if nobody asks for less */

/* The kind of a state is its first word; these are the words after it. Where a state says nothing else, `node` and
 * `shape` are a node of the tables and the index of one of its shapes. */
enum state_kind {
    STATE_RAW = 1, /* expression: matches it */
    STATE_QUOTE,   /* expression: a string, from its quotation mark on */
    STATE_STRING,  /* expression, place in an escape (string_step.h): a string, inside of it */
    STATE_VALUE,   /* node */
    STATE_SPACE,   /* state: one space, or none, before it */
    STATE_RULE,    /* node of a GBNF grammar, repetitions of it */

    /* place: the index of the next name; or, in any order, the number of the set of names that were there. count: how
     * many names there were, if that matters. list: the texts of those that the shape does not mention, if that does.
     */
    STATE_OBJECT,       /* node, shape */
    STATE_OBJECT_FIRST, /* node, shape */
    STATE_OBJECT_KEY,   /* node, shape, place, count, list */
    STATE_OBJECT_NAME,  /* node, shape, place, count, list, first and last of the sorted names, bytes that they share */
    STATE_OBJECT_OTHER, /* node, shape, place, count, list, node of the value, text, expression, place in an escape */
    STATE_OBJECT_COLON, /* node, shape, place, count, list, node of the value */
    STATE_OBJECT_NEXT,  /* node, shape, place, count, list */

    /* index: how many items there were; counted: how many of them counted; seen: the number of a list of texts */
    STATE_ARRAY,       /* node, shape */
    STATE_ARRAY_FIRST, /* node, shape */
    STATE_ARRAY_ITEM,  /* node, shape, index, counted, seen */
    STATE_ARRAY_NEXT,  /* node, shape, index, counted, seen */
    /* The items of an array without equal ones. */
    STATE_UNIQUE_RAW,    /* node, shape, index, seen, text, expression */
    STATE_UNIQUE_QUOTE,  /* node, shape, index, seen, text, expression */
    STATE_UNIQUE_STRING, /* node, shape, index, seen, text, expression, place in an escape */
};

#define STATE_WORDS 10 /* the most, with the kind */

/* What follows a configuration. */
struct config_info {
    uint8_t bounds[32];  /* bit b: byte b may have another successor than byte b - 1 */
    uint8_t before[32];  /* the number of bits in the bytes before each */
    uint32_t successors; /* where they begin, one for each bit; 0: not made yet */
};

/* What an expression matches besides the texts of a list. */
struct unseen {
    uint32_t list;
    re_id of, re;
    bool string;
};

/* Two stacks, and both at once. */
struct joined_stacks {
    uint32_t a, b, both;
};

#define UNSEEN_MEMO 16
#define JOIN_MEMO   256

struct automaton {
    struct limits *l;
    struct regex *r;
    const struct json_tables *tables; /* may be empty */
    const struct rule_node *rules;    /* may be NULL */
    bool spaces, any_order;
    uint16_t most_depth; /* the highest stack */
    struct word_set states, stacks, configs;
    struct word_set names;    /* sets of names: a bit for each */
    struct word_set texts;    /* the texts of items or names: another text, and a byte after it */
    struct word_set seen;     /* lists of texts */
    uint16_t *depth;          /* [cap_depth] of each stack */
    struct config_info *info; /* [cap_info] of each configuration */
    config_id *successors;    /* [n_successors] */
    uint32_t *front;          /* [2 n_front] the configuration that is being made: states and their stacks */
    uint32_t *todo;           /* [2 n_todo] states and stacks that are to be added to it */
    uint32_t *places;         /* [cap_places] of each state: when it was last in the front, and its index */
    uint32_t round;           /* the number of the front */
    uint32_t *joined;         /* [n_joined] stacks that are being made */
    uint32_t *scratch;        /* [cap_scratch] */
    uint32_t cap_depth, cap_info, n_successors, cap_successors, n_front, cap_front, n_todo, cap_todo, n_joined,
        cap_places, cap_joined, cap_scratch;
    bool front_accepts;
    uint32_t n_fixed; /* expressions with smaller numbers belong to the tables and rules, and are always kept */
    struct unseen unseen[UNSEEN_MEMO]; /* the last ones */
    struct joined_stacks join_memo[JOIN_MEMO];
    re_id canonical; /* scalars that have no other text, for arrays without equal items */
};

#define STACK_BOTTOM 1u         /* the stack under the first state */
#define NOT_MADE     UINT32_MAX /* a successor that was not asked for yet */

/* The other members are set before: l, r, tables, rules, spaces, any_order, most_depth. Call automaton_deinit() also
 * after a failure.
 */
bool automaton_init(struct automaton *m);
void automaton_deinit(struct automaton *m);

/* The number of a state. */
uint32_t automaton_state(struct automaton *m, const uint32_t *w, uint32_t n);
/* The configuration at the beginning of a text that begins in the state. CONFIG_DEAD after a failure. */
config_id automaton_start(struct automaton *m, uint32_t state);
/* The configuration after a state that returned to the stack. */
config_id automaton_after(struct automaton *m, uint32_t stack);
/* A configuration that does not remember the text that is being read now, which must not come a second time: all that
 * can follow c can follow this one too. c itself if it remembers nothing. */
config_id automaton_forget(struct automaton *m, config_id c);
/* Whether a text may end here. */
static inline bool automaton_accepts(const struct automaton *m, config_id c)
{
    return c != CONFIG_DEAD && m->configs.words[m->configs.start[c]];
}

/* Makes the successor of c by a byte, and remembers it. CONFIG_DEAD also after a failure. */
config_id automaton_make_successor(struct automaton *m, config_id c, uint8_t byte);

extern const uint8_t automaton_bits[256]; /* how many bits each number has */

/* The place of the byte's successor in m->successors, if these exist. */
static inline uint32_t automaton_place(const struct config_info *info, uint8_t byte)
{
    uint8_t mask = (uint8_t)(0xFF >> (7 - byte % 8));
    return info->successors + info->before[byte / 8] + automaton_bits[info->bounds[byte / 8] & mask] - 1u;
}

static inline config_id automaton_step(struct automaton *m, config_id c, uint8_t byte)
{
    const struct config_info *info = &m->info[c];
    if (info->successors) {
        config_id next = m->successors[automaton_place(info, byte)];
        if (next != NOT_MADE) return next;
    }
    return automaton_make_successor(m, c, byte);
}

/* The states of a configuration, each with its stack: 2 * *n words, valid until the next call. */
const uint32_t *automaton_threads(const struct automaton *m, config_id c, uint32_t *n);

/* Drops everything that is not needed for the configurations keep[0 .. n), and changes these to their new numbers.
 * Bounds and successors are found again when they are asked for. False: a failure was noted and nothing has changed. */
bool automaton_collect(struct automaton *m, config_id *keep, uint32_t n);

#endif
