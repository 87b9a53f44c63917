/* SPDX-License-Identifier: MIT
 *
 * grammar.h: which texts an answer may become, and which tokens may come next.
 *
 * A grammar is a set of texts, compiled from a JSON Schema, a GBNF grammar, a regular expression or a list of strings.
 * A cursor is a place in a text: it has read some bytes, and knows which bytes may follow so that the text can still be
 * completed. A mask says the same of the tokens of a vocabulary.
 *
 *     token_trie_new(&trie, vocab, &e);                       once for a model; immutable, shared by threads
 *     grammar_from_schema(&g, schema, NULL, &e);
 *     grammar_cursor_new(&c, g, &e);
 *     while (...) {
 *         grammar_mask(c, trie, mask, &e);                    one bit for each token
 *         token = ...;                                        one whose bit is set
 *         grammar_commit_token(c, trie, token, &e);
 *     }
 *
 * The grammar is a pushdown automaton over bytes, whose states are made when a text first reaches them. They belong to
 * the grammar and are shared by its cursors, so one thread at a time may use a grammar and all of its cursors. The
 * memory of a grammar has a limit: states that no cursor needs are dropped when there are too many.
 *
 * Hostile input: every limit is a number of steps or bytes, so the same input has the same result on every machine.
 * At their limits compiling, a mask and a commit take about a tenth of a second. docs/GRAMMARS.md lists what is
 * accepted, and how each keyword is understood.
 */
#ifndef QUERN_GRAMMAR_GRAMMAR_H
#define QUERN_GRAMMAR_GRAMMAR_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"
#include "format/weights.h"
#include "grammar/core/limits.h"
#include "grammar/mask/token_trie.h"

struct grammar;
struct grammar_cursor;

/* Zeroed: the defaults. */
struct grammar_options {
    bool spaces;                  /* JSON: one space may follow each ',' and ':'; otherwise there is no white space */
    bool any_order;               /* JSON: the names of an object come in any order, not in that of `properties` */
    size_t memory_bytes;          /* the most that the grammar may allocate; 0: GRAMMAR_MEMORY */
    struct limits_source *source; /* pays for its memory, and has to live longer; NULL: nothing does */
};

#define GRAMMAR_MEMORY ((size_t)64 << 20)

/* All of these compile a grammar. *out is the caller's, to grammar_free(). The input is borrowed for the call; o may be
 * NULL. QN_EDATA: the input is malformed, no text fits it, or it exceeds a limit; QN_EUNSUP: a part of it cannot be
 * enforced, or memory_bytes are not enough; QN_ENOMEM. The message begins with the place: a JSON pointer into the
 * schema
 * ("/properties/a/pattern: ..."), or "line 3: ...", or "character 5: ...". */

/* A JSON Schema of draft 2020-12, 2019-09, 7, 6 or 4. The texts are JSON documents that are valid for it. */
int grammar_from_schema(struct grammar **out, const json_t *schema, const struct grammar_options *o,
                        struct qn_error *e);
/* Any JSON object. */
int grammar_from_json_object(struct grammar **out, const struct grammar_options *o, struct qn_error *e);
/* GBNF, the grammar language of llama.cpp; the texts are those of the rule `root`. */
int grammar_from_gbnf(struct grammar **out, const char *text, size_t n, const struct grammar_options *o,
                      struct qn_error *e);
/* A regular expression that matches the whole text. */
int grammar_from_regex(struct grammar **out, const char *pattern, size_t n, const struct grammar_options *o,
                       struct qn_error *e);
/* One of n strings. */
int grammar_from_choice(struct grammar **out, const struct str *choices, size_t n, const struct grammar_options *o,
                        struct qn_error *e);
/* Tool calls, as calls.h describes them, for a vocabulary. */
int grammar_from_calls(struct grammar **out, const json_t *description, const struct token_trie *t,
                       const struct grammar_options *o, struct qn_error *e);
/* Frees the grammar, which must have no cursors any more; NULL is fine. */
void grammar_free(struct grammar *g);

/* Limits the work of each following call on this grammar and its cursors; 0: the usual limit. A call that reaches a
 * smaller limit has QN_EUNSUP, and may be repeated with a larger one: what it has found out is kept. */
void grammar_set_work(struct grammar *g, uint32_t steps);
/* Bytes that the grammar has allocated, its states and cached masks included. */
size_t grammar_memory(const struct grammar *g);

/* ---- cursors ---- */

/* A cursor at the beginning of the text. It is the caller's, to grammar_cursor_free(). QN_ENOMEM. */
int grammar_cursor_new(struct grammar_cursor **out, struct grammar *g, struct qn_error *e);
/* Another cursor at the same place. QN_ENOMEM. */
int grammar_cursor_copy(struct grammar_cursor **out, const struct grammar_cursor *c, struct qn_error *e);
void grammar_cursor_free(struct grammar_cursor *c); /* NULL is fine */

/* Reads bytes, or those of a token. QN_EDATA: they do not fit; the message has the number of the first byte that does
 * not. QN_EUSAGE: the token is not in the tree; an end of generation is not committed. QN_EUNSUP (too complex): a limit
 * was reached. QN_ENOMEM. On failure the cursor stays where it was. */
int grammar_commit_bytes(struct grammar_cursor *c, const void *p, size_t n, struct qn_error *e);
int grammar_commit_token(struct grammar_cursor *c, const struct token_trie *t, qn_token token, struct qn_error *e);

/* Whether the text that was read is complete. It may be possible to continue it all the same. */
bool grammar_is_complete(const struct grammar_cursor *c);

/* Fills mask[token_trie_mask_words(t)]: bit i % 64 of word i / 64 says whether token i may come next. A token may cross
 * any boundary inside the text. Control, unknown and user-defined tokens are never part of it; the tokens that end
 * generation are allowed where the text is complete. QN_EDATA: no token at all may come next, because the vocabulary
 * lacks what the grammar needs. QN_ENOMEM, QN_EUNSUP: as above. */
int grammar_mask(struct grammar_cursor *c, const struct token_trie *t, uint64_t *mask, struct qn_error *e);
/* The same, computed token by token: the definition of a mask, for tests. It takes a hundred times as long. */
int grammar_mask_reference(struct grammar_cursor *c, const struct token_trie *t, uint64_t *mask, struct qn_error *e);

/* Writes the bytes that must come next, at most max of them: there is one possible byte each time, and the text is not
 * complete before it. Returns how many; there may be more if the limit of the work was reached. */
size_t grammar_forced_bytes(struct grammar_cursor *c, uint8_t *out, size_t max);
/* The only token that may come next, or -1 if there are several. Fails like grammar_mask(). */
int grammar_forced_token(struct grammar_cursor *c, const struct token_trie *t, qn_token *token, struct qn_error *e);

#endif
