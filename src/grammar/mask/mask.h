/* SPDX-License-Identifier: MIT
 *
 * mask.h: which tokens fit a configuration of the automaton.
 */
#ifndef QUERN_GRAMMAR_MASK_H
#define QUERN_GRAMMAR_MASK_H

#include "grammar/automaton/automaton.h"
#include "grammar/mask/token_trie.h"

#define MASK_SLOTS 64

/* Masks that took long to compute. */
struct mask_cache {
    const struct token_trie *trie; /* of all masks; borrowed */
    struct {
        config_id config; /* CONFIG_DEAD: free */
        uint64_t *mask;   /* owned; NULL: not allocated yet */
    } slot[MASK_SLOTS];
};

/* Fills mask[token_trie_mask_words(t)], the tokens that end generation included. A failure is noted in m->l. */
void mask_fill(struct automaton *m, struct mask_cache *cache, const struct token_trie *t, config_id c, uint64_t *mask);
/* The same, token by token. */
void mask_fill_reference(struct automaton *m, const struct token_trie *t, config_id c, uint64_t *mask);

/* Forgets all masks, because configurations have new numbers; or frees them, too. */
void mask_cache_clear(struct mask_cache *cache);
void mask_cache_deinit(struct mask_cache *cache, struct limits *l);

#endif
