/* SPDX-License-Identifier: MIT
 *
 * shelf.h: the compiled grammars of one vocabulary, each of which is compiled once and shared by all that ask for it.
 *
 * A grammar that nobody uses any more stays on the shelf for the next request with the same text, until others need its
 * place. The shelf has SHELF_PLACES places, and a grammar with its text takes at most SHELF_GRAMMAR_BYTES, so the
 * memory of all of them is bounded. Those that nobody uses have SHELF_IDLE_BYTES together; what is more is given back,
 * the least recently used ones first. The vocabulary's tree is built with the first grammar.
 *
 * Threads: any thread may call these functions. A struct grammar and its cursors may only be used by the thread that
 * has its lock. The shelf's lock and the lock of a grammar are leaves.
 */
#ifndef QUERN_GRAMMAR_SHELF_H
#define QUERN_GRAMMAR_SHELF_H

#include <pthread.h>

#include <quern.h>

#include "grammar/grammar.h"

#define SHELF_PLACES        32
#define SHELF_GRAMMAR_BYTES ((size_t)16 << 20)
#define SHELF_IDLE_BYTES    ((size_t)64 << 20)

struct grammar_shelf {
    pthread_mutex_t lock;    /* guards all members */
    struct token_trie *trie; /* NULL: not built yet */
    qn_token feeds[2];       /* the tokens of one and two line feeds; -1: there is none. Set with the trie */
    struct shelved *first;   /* the most recently used first */
    int n;
};

/* A grammar on the shelf. */
struct shelved {
    struct grammar_shelf *shelf;
    struct shelved *next; /* the shelf's lock */
    int n_users;          /* the shelf's lock */
    pthread_mutex_t lock; /* guards g */
    struct grammar *g;
    const struct token_trie *trie; /* the shelf's */
    struct qn_grammar_params p;    /* its text is a copy that belongs to this struct; of tool calls: their description
                                      (calls.h) */
};

void shelf_init(struct grammar_shelf *s);
void shelf_deinit(struct grammar_shelf *s); /* nobody uses a grammar any more */

/* Finds or compiles a grammar. *out is in use until shelf_put(). The compilation runs in the calling thread and takes
 * about 0.1 s at most. QN_EBUSY: all places are in use. Other errors are those of grammar.h. */
int shelf_get(struct shelved **out, struct grammar_shelf *s, const struct vocab *v, const struct qn_grammar_params *p,
              struct qn_error *e);
void shelf_use(struct shelved *g); /* one more user */
void shelf_put(struct shelved *g); /* one less; NULL is fine */

#endif
