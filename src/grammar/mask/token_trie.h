/* SPDX-License-Identifier: MIT
 *
 * token_trie.h: the texts of a vocabulary's tokens as a tree of bytes, in which masks are computed.
 *
 * The tree holds every token with a text. Control, unknown and user-defined tokens have the byte TRIE_SPECIAL before
 * their text, which is in no text of UTF-8. So they are never part of a text, and a grammar can ask for one where the
 * form of a tool call has it. Tokens that end generation, and those with that byte in their text, are not in the tree.
 * Tokens that are made for the
 * inside of a JSON string are listed a second time: a string in which any text is allowed takes all of them, so that a
 * mask for it is a copy of memory (mask.c).
 */
#ifndef QUERN_GRAMMAR_TOKEN_TRIE_H
#define QUERN_GRAMMAR_TOKEN_TRIE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/mem.h"
#include "text/token/vocab.h"

#define TRIE_SPECIAL   0xFF
#define TRIE_MAX_TOKEN 1000 /* bytes of the longest token in the tree; longer ones are never allowed */

/* Nodes are in preorder: the children of node i begin at i + 1, and next is the first node after all that begin with
 * the same bytes. */
struct trie_node {
    uint32_t next;
    int32_t first;  /* the first of the tokens whose text ends here, an index of items[]; -1: none */
    uint16_t depth; /* bytes before this one */
    uint8_t byte;
};

struct trie_item {
    qn_token token;
    uint16_t n_chars; /* of a suffix's tokens: how many characters come before the suffix */
    bool is_last;     /* no further item with this text */
};

struct trie {
    struct trie_node *nodes; /* [n_nodes] */
    struct trie_item *items; /* [n_items] */
    uint32_t n_nodes, n_items;
};

/* A token that stays inside a string: it begins between two characters, and has no quotation mark that ends it. */
struct trie_inside {
    qn_token token;
    uint16_t n_chars; /* how many characters it begins */
};

struct token_trie {
    int32_t n_tokens;
    struct trie all;
    struct trie closers;        /* tokens that end a string begun before them, by the text after the quotation mark */
    int32_t closers_empty;      /* the first item of those without such a text, which have no node; -1: none */
    struct trie_inside *inside; /* [n_inside] those that stay inside, by falling n_chars */
    uint64_t *inside_mask;      /* [token_trie_mask_words()] the same as a mask */
    uint64_t *plain_mask;       /* those of them without a backslash */
    qn_token *escapes;          /* [n_escapes] those with one, and `odd` */
    qn_token *odd;              /* [n_odd] those with half of a surrogate pair, which may stay inside or not */
    qn_token *repeats;          /* [n_repeats] those in which one value may end and another one begin */
    qn_token *commas;           /* [n_commas] the others that begin with a comma: before it, a value may have ended */
    uint32_t n_inside, n_escapes, n_odd, n_repeats, n_commas;
    uint32_t inside_by_byte[256]; /* how many of them begin with this byte */
    uint32_t *start; /* [n_tokens + 1] the text of token i is bytes[start[i] .. start[i + 1]); empty: none */
    uint8_t *bytes;
    qn_token *eog; /* [n_eog] the tokens that end generation */
    int n_eog;
    struct ledger *ledger; /* pays for it; borrowed; NULL: nothing does */
    size_t taken;          /* bytes from the ledger */
};

/* Builds the tree of a vocabulary, which is not needed afterwards. *out is the caller's, to token_trie_free(); it is
 * immutable, and any number of threads may use it. QN_ENOMEM. */
int token_trie_new(struct token_trie **out, const struct vocab *v, struct qn_error *e);
/* The same with memory from a ledger, which is taken before it is allocated. ledger: borrowed; NULL: none. */
int token_trie_new_from(struct token_trie **out, const struct vocab *v, struct ledger *ledger, struct qn_error *e);
void token_trie_free(struct token_trie *t); /* NULL is fine */

/* The number of 64-bit words of a mask. */
static inline size_t token_trie_mask_words(const struct token_trie *t) { return ((size_t)t->n_tokens + 63) / 64; }

/* The text of a token as the tree has it, *n bytes, borrowed; *n is 0 for a token that is not in the tree, and for one
 * outside the vocabulary. */
const uint8_t *token_trie_text(const struct token_trie *t, qn_token token, size_t *n);
/* Whether some token has exactly this text. */
bool token_trie_has(const struct token_trie *t, const void *text, size_t n);
/* The longest token that the text begins with, or -1; *n_bytes is its length. Of tokens with the same text it is the
 * last one: tokens of single bytes come before those of texts. *n_tokens: how many tokens the text begins with. */
qn_token token_trie_longest(const struct token_trie *t, const void *text, size_t n, size_t *n_bytes, int *n_tokens);
/* Sets the bits of the tokens that the text begins with, and of those that begin with the text. */
void token_trie_meet(const struct token_trie *t, const void *text, size_t n, uint64_t *mask);

#endif
