/* SPDX-License-Identifier: MIT
 *
 * bpe.h: BPE with a list of merges: byte-level (tokenizer model `gpt2`) and over characters (`gemma4`).
 */
#ifndef QUERN_TEXT_BPE_H
#define QUERN_TEXT_BPE_H

#include "text/lexicon.h"
#include "text/merge.h"
#include "text/pretok.h"

struct bpe {
    const struct lexicon *lex; /* borrowed */
    struct pretok *pretok;
    bool by_char;            /* gemma4: characters, and byte tokens for those that are not in the vocabulary */
    qn_token byte_id[256];   /* else: the token of each byte's character; -1 where there is none */
    struct bpe_merge *merge; /* [n_merges], by rank */
    uint32_t n_merges;
    uint32_t *slot; /* [slot_mask + 1]: rank + 1 of the pair, 0 empty */
    uint32_t slot_mask;
    uint64_t seed;
};

/* Reads tokenizer.ggml.{merges,pre}. To be deinitialised also after a failure. */
int bpe_init(struct bpe *b, const struct lexicon *lex, const struct weights *w, bool by_char, struct qn_error *e);
void bpe_deinit(struct bpe *b);
/* Can text become this token by merging? Looks at all merges. */
bool bpe_spells(const struct bpe *b, qn_token id);

/* Appends the ids of one stretch of text without special tokens. unk as in spm_encode. n < 2^28. */
int bpe_encode(const struct bpe *b, qn_token unk, const char *text, size_t n, struct merge *scratch, struct ids *out,
               struct qn_error *e);

#endif
