/* SPDX-License-Identifier: MIT
 *
 * calls.h: tool calls as a grammar: the form in which a model writes them, with the schema of each tool inside.
 *
 * Marks of the form that are special tokens of the vocabulary are asked for as such (TRIE_SPECIAL), and others as text.
 * So a text of the grammar is what the reader of replies (text/chat) takes apart, and its arguments are valid.
 */
#ifndef QUERN_GRAMMAR_CALLS_H
#define QUERN_GRAMMAR_CALLS_H

#include <jansson.h>

#include <quern.h>

#include "base/buf.h"
#include "grammar/gbnf/gbnf.h"
#include "grammar/mask/token_trie.h"
#include "grammar/schema/json_tables.h"
#include "text/chat/chat_reply.h"

#define CALLS_DEPTH 200 /* of values in values: less than the reader of replies takes (TOOL_JSON_MAX_DEPTH) */

/* Compiles a description of calls, which is borrowed, into rules and tables; *root: the first node. The description is
 * an object:
 *
 *     calls, style     the form: enum chat_calls, and bits of enum chat_style
 *     think            optional: the mark that begins thoughts
 *     tools            the functions: {name, parameters, held}. held is true: the arguments fit the schema; false: they
 *                      are any object; null: they fit it if it can be enforced, and are any object otherwise
 *     many             whether several calls may come
 *     text             whether there may be a text in place of the calls, or before them
 *     names            of all tools of the request; no text begins like a call of one of them without a mark
 *     schema, object, pattern, choice, gbnf    optional, one of them: the form of a text in place of the calls: a
 *                      schema, true, and texts or a list of texts
 *
 * QN_EUNSUP, QN_EDATA: the message begins with the tool, "tool 'f': /properties/a/format: ...". */
bool calls_compile(struct rules *g, struct json_tables *t, struct regex *r, const json_t *description,
                   const struct token_trie *trie, uint32_t *root);

/* Appends the description of the calls that p asks for to *out, as JSON. tools: of the prompt, as chat completions have
 * them; form, begins: of its replies; answer: the form of a text in place of calls, or NULL. QN_EUSAGE: there are no
 * tools, or none with one of p's names, or a call cannot come where the reply begins; QN_ENOMEM. */
int calls_describe(struct buf *out, const struct qn_grammar_params *p, const json_t *tools,
                   const struct chat_form *form, enum chat_begins begins, const struct qn_grammar_params *answer,
                   struct qn_error *e);

#endif
