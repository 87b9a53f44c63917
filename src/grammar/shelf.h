/* SPDX-License-Identifier: MIT
 *
 * shelf.h: the compiled grammars of one vocabulary, each of which is compiled once and shared by all that ask for it.
 *
 * A grammar that nobody uses any more stays on the shelf for the next request with the same text, until others need its
 * place. The shelf has SHELF_PLACES places, and a grammar with its text takes at most SHELF_GRAMMAR_BYTES. Those that
 * nobody uses have SHELF_IDLE_BYTES together, and they stay only while a quarter of the ledger is enough for all that
 * was taken from it; what is more is given back, the least recently used ones first. The vocabulary's tree is built
 * with the first grammar.
 *
 * All of this memory, and that of guides (guide.h), is taken from a ledger before it is allocated. Where the ledger has
 * too little, grammars that nobody uses are given up, and then the request is refused. Several shelves may have one
 * ledger: the grammars that nobody uses then have a quarter of it together. If the ledger is a part of another one, the
 * trees are paid for by the whole, because they stay.
 *
 * Threads: any thread may call these functions. A struct grammar and its cursors may only be used by the thread that
 * has its lock. The shelf's lock is a leaf, which may be taken under the lock of a grammar.
 */
#ifndef QUERN_GRAMMAR_SHELF_H
#define QUERN_GRAMMAR_SHELF_H

#include <pthread.h>

#include <quern.h>

#include "grammar/grammar.h"

#define SHELF_PLACES        32
#define SHELF_GRAMMAR_BYTES ((size_t)16 << 20)
#define SHELF_IDLE_BYTES    ((size_t)64 << 20)
#define SHELF_BYTES         ((size_t)640 << 20) /* of a shelf without a common ledger */

struct grammar_shelf {
    pthread_mutex_t lock;        /* guards all members but own and source */
    struct ledger own;           /* the source's ledger, if there is no common one */
    struct limits_source source; /* pays for all memory */
    struct token_trie *trie;     /* NULL: not built yet */
    qn_token feeds[2];           /* the tokens of one and two line feeds; -1: there is none. Set with the trie */
    struct shelved *first;       /* the most recently used first */
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
/* Takes all memory from this ledger from now on, which lives longer; before the first grammar. */
void shelf_pay_from(struct grammar_shelf *s, struct ledger *l);
size_t shelf_bytes(const struct grammar_shelf *s); /* taken from the ledger */

/* Finds or compiles a grammar. *out is in use until shelf_put(). The compilation runs in the calling thread and takes
 * about 0.1 s at most. QN_EBUSY: all places are in use. QN_ENOMEM: the ledger has too little, too. Other errors are
 * those of grammar.h. */
int shelf_get(struct shelved **out, struct grammar_shelf *s, const struct vocab *v, const struct qn_grammar_params *p,
              struct qn_error *e);
void shelf_use(struct shelved *g); /* one more user */
void shelf_put(struct shelved *g); /* one less; NULL is fine */

#endif
