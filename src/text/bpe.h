/* SPDX-License-Identifier: MIT
 *
 * bpe.h: BPE with a list of merges: byte-level (tokenizer model `gpt2`) and over characters (`gemma4`, `char-bpe`).
 */
#ifndef QUERN_TEXT_BPE_H
#define QUERN_TEXT_BPE_H

#include "text/lexicon.h"
#include "text/merge.h"
#include "text/pretok.h"

/* Over characters: where a U+2581 is put before a stretch of text. */
enum bpe_prefix {
    BPE_PREFIX_NONE,
    BPE_PREFIX_EACH,    /* each */
    BPE_PREFIX_MISSING, /* each that does not begin with one */
    BPE_PREFIX_FIRST,   /* the same, at the beginning of the whole text only */
};

struct bpe {
    const struct lexicon *lex; /* borrowed */
    struct pretok *pretok;
    unsigned flags; /* enum pretok_flag: the pre-tokeniser's, or what the file says */
    bool by_char;   /* characters, and byte tokens for those that are not in the vocabulary */
    enum bpe_prefix prefix;
    qn_token byte_id[256];   /* else: the token of each byte's character; -1 where there is none */
    struct bpe_merge *merge; /* [n_merges], by rank */
    uint32_t n_merges;
    uint32_t *slot; /* [slot_mask + 1]: rank + 1 of the pair, 0 empty */
    uint32_t slot_mask;
    uint64_t seed;
};

/* Reads tokenizer.ggml.{merges,pre} and tokenizer.quern.{nfc,ignore_merges,space_prefix}. To be deinitialised also
 * after a failure. fallback: the pre-tokeniser of files that name none, `default`, or one that is not known; or NULL.
 */
int bpe_init(struct bpe *b, const struct lexicon *lex, const struct weights *w, bool by_char, const char *fallback,
             struct qn_error *e);
void bpe_deinit(struct bpe *b);
/* Can text become this token by merging? Looks at all merges. */
bool bpe_spells(const struct bpe *b, qn_token id);

/* Appends the ids of one stretch of text without special tokens. first: it begins the whole text. unk as in spm_encode.
 * n < 2^28. */
int bpe_encode(const struct bpe *b, qn_token unk, bool first, const char *text, size_t n, struct merge *scratch,
               struct ids *out, struct qn_error *e);

#endif
