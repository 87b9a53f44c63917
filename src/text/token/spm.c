/* SPDX-License-Identifier: MIT
 *
 * spm.c: SentencePiece BPE: pairs are merged when their text is a token, the highest score first.
 *
 * Spaces become U+2581, the text is cut into characters, and merge.c does the rest. There is no pre-tokenisation. A
 * pair is looked up by its text, which is contiguous, and only if it is no longer than the longest token. A character
 * without a token becomes one byte token for each byte.
 *
 * Text never becomes a control, unknown or byte token here by what it spells: `</s>` typed by a user is four
 * characters. (SentencePiece does the same.) Unlike SentencePiece, unused tokens are not split up again, and there is
 * no NFKC, because GGUF files have neither the rule nor the table.
 */
#include "text/token/spm.h"

#include <assert.h>
#include <string.h>

#include "base/buf.h"
#include "text/token/unicode.h"

struct spm_text {
    const struct lexicon *lex;
    const uint8_t *p; /* with U+2581 for spaces */
};

/* The bits of a float as a rank: the higher the score, the lower the rank. */
static uint32_t descending(float score)
{
    uint32_t u;
    score += 0.0F; /* -0 counts as +0 */
    memcpy(&u, &score, 4);
    return u & 0x80000000u ? u : ~(u | 0x80000000u);
}

static bool rule(const void *arg, const struct sym *l, const struct sym *r, uint32_t *rank, qn_token *id)
{
    const struct spm_text *t = arg;
    *id = lexicon_find_text(t->lex, t->p + l->start, l->bytes + r->bytes);
    if (*id < 0) return false;
    *rank = descending(lexicon_score(t->lex, *id));
    return true;
}

static int push_bytes(const struct lexicon *lex, qn_token unk, const uint8_t *p, uint32_t n, struct ids *out,
                      struct qn_error *e)
{
    int rc = 0;
    for (uint32_t i = 0; rc == 0 && i < n; i++) {
        qn_token id = lex->byte_id[p[i]];
        if (id < 0) id = lexicon_find_text(lex, p + i, 1);
        if (id < 0) id = unk;
        if (id < 0) return error_set(e, QN_EDATA, "tokenizer: no token for byte 0x%02X and no unknown token", p[i]);
        rc = ids_push(out, id, e);
    }
    return rc;
}

int spm_encode(const struct lexicon *lex, qn_token unk, bool add_space, const char *text, size_t n,
               struct merge *scratch, struct ids *out, struct qn_error *e)
{
    struct buf marked = {0};
    assert(n > 0 && n < 1u << 30);
    merge_clear(scratch);
    int rc = add_space ? buf_str(&marked, UNICODE_SPACE_MARK, e) : 0;
    if (rc == 0) rc = unicode_mark_spaces((const uint8_t *)text, n, &marked, e);
    for (size_t i = 0; rc == 0 && i < marked.len;) {
        uint32_t cp;
        bool cut;
        unsigned len = unicode_next(marked.data + i, marked.len - i, &cp, &cut);
        rc = merge_add(scratch, (uint32_t)i, len, lexicon_find_text(lex, marked.data + i, len), e);
        i += len;
    }
    struct spm_text t = {lex, marked.data};
    if (rc == 0) rc = merge_run(scratch, rule, &t, e);
    for (int32_t i = 0; rc == 0 && i >= 0; i = scratch->sym[i].next) {
        const struct sym *s = &scratch->sym[i];
        rc = s->id >= 0 ? ids_push(out, s->id, e) : push_bytes(lex, unk, t.p + s->start, s->bytes, out, e);
    }
    buf_deinit(&marked);
    return rc;
}
