/* SPDX-License-Identifier: MIT
 *
 * calls_impl.h: what the files that compile tool calls share.
 *
 * Rules are made from their end: each function gets the node that comes after the part that it makes, and returns the
 * first node of that part.
 */
#ifndef QUERN_GRAMMAR_CALLS_IMPL_H
#define QUERN_GRAMMAR_CALLS_IMPL_H

#include "grammar/calls/calls.h"
#include "text/chat/chat_form.h"

struct calls {
    struct rules *g;
    struct json_tables *t;
    struct regex *r;
    const struct token_trie *trie;
    enum chat_calls form;
    unsigned style;
    uint32_t any;       /* the node of any JSON object */
    bool has_words;     /* values have the words True, False and None in place of JSON's */
    json_t *properties; /* of the tool whose parameters are being made (tool_schema.h); NULL: none */
};

uint32_t calls_term(struct calls *c, re_id re, uint32_t next);
uint32_t calls_value(struct calls *c, uint32_t node, uint32_t next);
uint32_t calls_repeat(struct calls *c, uint32_t first, uint32_t least, uint32_t most, uint32_t next);
/* One more branch of a choice, before those of `others`; 0: there are none. */
uint32_t calls_branch(struct calls *c, uint32_t first, uint32_t others);
uint32_t calls_choice(struct calls *c, uint32_t branches, uint32_t next);

/* The texts that have none of n marks in them. */
re_id calls_text_without(struct calls *c, const char *const *marks, uint32_t n);
/* Whether arguments are written as KEY=VALUE. */
static inline bool calls_is_python(const struct calls *c)
{
    return c->form == CHAT_CALLS_PYTHON || (c->form == CHAT_CALLS_CODE && c->style & CHAT_STYLE_PYTHON);
}
/* Notes a failure of a tool. Returns 0. */
uint32_t calls_fail(struct calls *c, const json_t *tool, const char *what);

/* calls_arguments.c: compiles a schema for values that the reader of replies takes. */
bool calls_schema(struct calls *c, const json_t *schema, uint32_t *node);
/* The arguments of a tool. 0 after a failure. */
uint32_t calls_arguments(struct calls *c, const json_t *tool, uint32_t next);

#endif
