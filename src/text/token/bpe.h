/* SPDX-License-Identifier: MIT
 *
 * bpe.h: BPE with a list of merges: byte-level (tokenizer model `gpt2`) and over characters (`gemma4`, `char-bpe`).
 */
#ifndef QUERN_TEXT_BPE_H
#define QUERN_TEXT_BPE_H

#include "text/token/lexicon.h"
#include "text/token/merge.h"
#include "text/token/pretok.h"

/* Which stretches of text get a U+2581 in front (BPE over characters only). A stretch is the text between two special
 * tokens. */
enum bpe_prefix {
    BPE_PREFIX_NONE,
    BPE_PREFIX_EACH,    /* every stretch */
    BPE_PREFIX_MISSING, /* every stretch that does not begin with a space or U+2581 */
    BPE_PREFIX_FIRST,   /* the same, but only the stretch that begins the whole text */
};

struct bpe {
    const struct lexicon *lex; /* borrowed */
    struct pretok *pretok;
    unsigned flags; /* enum pretok_flag: the pre-tokeniser's, where the file does not say otherwise */
    bool by_char;   /* merges join characters; a character without a token becomes byte tokens */
    enum bpe_prefix prefix;
    qn_token byte_id[256];   /* without by_char: the token of each byte's character; -1: none */
    struct bpe_merge *merge; /* [n_merges], by rank */
    uint32_t n_merges;
    uint32_t *slot; /* [slot_mask + 1]: rank + 1 of the pair, 0 empty */
    uint32_t slot_mask;
    uint64_t seed; /* of the hash of pairs */
};

/* Reads tokenizer.ggml.{merges,pre} and tokenizer.quern.{nfc,ignore_merges,space_prefix}. Call bpe_deinit() also after
 * a failure. fallback (may be NULL): the pre-tokeniser to use when the file names none, `default`, or an unknown one.
 * QN_EDATA: a key is missing or malformed; QN_EUNSUP: the pre-tokeniser is not known; QN_ENOMEM. Afterwards the struct
 * is immutable, and any number of threads may encode with it. */
int bpe_init(struct bpe *b, const struct lexicon *lex, const struct weights *w, bool by_char, const char *fallback,
             struct qn_error *e);
void bpe_deinit(struct bpe *b);
/* Whether merging can make this token from text. Looks at all merges, so it is for loading only. */
bool bpe_spells(const struct bpe *b, qn_token id);

/* Appends the ids of one stretch of text, 0 < n < 2^28 bytes. first: the stretch begins the whole text. unk: the id for
 * a byte without a token, -1 for none. QN_EDATA: there is neither a token for a byte nor an unknown token, or a pattern
 * reached its match limit; QN_ECANCEL; QN_ENOMEM. */
int bpe_encode(const struct bpe *b, qn_token unk, bool first, const char *text, size_t n, struct merge *scratch,
               struct ids *out, struct qn_error *e);

#endif
