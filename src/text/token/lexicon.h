/* SPDX-License-Identifier: MIT
 *
 * lexicon.h: the list of a model's tokens: id -> text, type and score, and text -> id.
 */
#ifndef QUERN_TEXT_LEXICON_H
#define QUERN_TEXT_LEXICON_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "format/weights.h"

/* The numbers of `tokenizer.ggml.token_type`. */
enum token_type {
    TOKEN_NORMAL = 1,
    TOKEN_UNKNOWN = 2,
    TOKEN_CONTROL = 3,
    TOKEN_USER = 4, /* user-defined: always cut out of text, and decoded as text */
    TOKEN_UNUSED = 5,
    TOKEN_BYTE = 6, /* "<0xNN>" */
};

struct lexicon {
    int32_t n;
    uint32_t max_bytes;          /* of the longest token */
    uint8_t *type;               /* [n] enum token_type */
    const uint8_t *data;         /* borrowed: the token strings in the file */
    const uint8_t *score;        /* borrowed: f32 little-endian [n], unaligned; NULL: all 0 */
    struct lexicon_place *place; /* [n] */
    struct lexicon_slot *slot;   /* [slot_mask + 1], open addressing */
    uint32_t slot_mask;
    uint64_t seed;         /* of the hash; drawn anew for each load, so that no file can provoke collisions */
    qn_token byte_id[256]; /* the byte tokens; -1 where there is none */
};

/* Reads tokenizer.ggml.{tokens,token_type,scores}. Call lexicon_deinit() also after a failure. w must outlive the
 * lexicon. QN_EDATA: a key is missing or malformed; QN_ENOMEM. Only roles_init() changes the lexicon afterwards. */
int lexicon_init(struct lexicon *lex, const struct weights *w, struct qn_error *e);
void lexicon_deinit(struct lexicon *lex);

/* The text of a valid id, as the file stores it; borrowed. */
struct str lexicon_text(const struct lexicon *lex, qn_token id);
float lexicon_score(const struct lexicon *lex, qn_token id);
/* The last token that has this text; -1 when there is none. The empty text is never found. */
qn_token lexicon_find(const struct lexicon *lex, const void *p, size_t n);
/* The same in three steps, for many texts at once: each of the first two fetches the memory that the next one reads. */
uint64_t lexicon_hash(const struct lexicon *lex, const void *p, size_t n); /* n >= 1 */
void lexicon_fetch(const struct lexicon *lex, uint64_t hash);
qn_token lexicon_find_hashed(const struct lexicon *lex, const void *p, size_t n, uint64_t hash);
/* The same among the tokens that plain text may become: control, unknown and byte tokens are not found. */
qn_token lexicon_find_text(const struct lexicon *lex, const void *p, size_t n);

static inline bool lexicon_is_special(const struct lexicon *lex, qn_token id)
{
    uint8_t t = lex->type[id];
    return t == TOKEN_CONTROL || t == TOKEN_UNKNOWN || t == TOKEN_USER;
}
static inline bool lexicon_is_control(const struct lexicon *lex, qn_token id)
{
    return lex->type[id] == TOKEN_CONTROL || lex->type[id] == TOKEN_UNKNOWN;
}

#endif
