/* SPDX-License-Identifier: MIT
 *
 * detok.c: a stream of token ids to a stream of whole characters.
 *
 * A byte-level token may end inside a character. Up to three bytes are held back until the character is whole, or can
 * no longer become one; then one U+FFFD stands for each maximal ill-formed part, as the Unicode standard recommends. In
 * raw mode nothing of this is done.
 *
 * When they encode, vocabularies over characters put a space before a text and after each special token. The same
 * spaces are dropped here, so that decoding is the inverse. After a prompt, the first space is the model's own and
 * stays.
 *
 * The "clean-up" of spaces before punctuation that some tokenizers do is not done, because it damages code.
 */
#include "text/token/detok.h"

#include <assert.h>
#include <string.h>

#include "text/token/unicode.h"

void detok_init(struct detok *d, const struct vocab *v, unsigned flags)
{
    *d = (struct detok){.v = v, .flags = flags, .drop_space = vocab_adds_space(v, true) && !(flags & DETOK_CONTINUE)};
}

/* Replaces the bytes of out->data[from..] that are not UTF-8. Sets *tail to the beginning of a character that is still
 * unfinished at the end; to out->len if there is none. */
static int repair(struct buf *out, size_t from, size_t *tail, struct qn_error *e)
{
    struct buf fixed = {0};
    size_t i = from, good = from; /* the bytes [good, i) stay as they are */
    bool cut = false;
    int rc = 0;
    while (rc == 0 && i < out->len) {
        uint32_t cp;
        unsigned len = unicode_next(out->data + i, out->len - i, &cp, &cut);
        if (cut) break;
        if (cp == UNICODE_BAD) {
            rc = buf_add(&fixed, out->data + good, i - good, e);
            if (rc == 0) rc = buf_str(&fixed, UNICODE_REPLACEMENT, e);
            good = i + len;
        }
        i += len;
    }
    *tail = i;
    if (rc == 0 && good > from) { /* rare: only then is there anything in `fixed` */
        size_t new_tail = from + fixed.len + (i - good);
        rc = buf_add(&fixed, out->data + good, out->len - good, e);
        if (rc == 0) rc = buf_reserve(out, fixed.len, e);
        if (rc == 0) {
            out->len = from;
            rc = buf_add(out, fixed.data, fixed.len, e);
            *tail = new_tail;
        }
    }
    buf_deinit(&fixed);
    return rc;
}

int detok_push(struct detok *d, qn_token id, struct buf *out, struct qn_error *e)
{
    size_t before = out->len, tail;
    bool special = vocab_is_special(d->v, id);
    int rc = buf_add(out, d->held, d->n_held, e);
    size_t first = out->len; /* of the token's own bytes */
    if (rc == 0) rc = vocab_token_bytes(d->v, id, d->flags & DETOK_SPECIAL, out, e);
    bool silent = out->len == first;
    if (rc == 0 && d->drop_space && !special && !silent && out->data[first] == ' ') {
        memmove(out->data + first, out->data + first + 1, out->len - first - 1);
        out->len--;
    }
    tail = out->len;
    if (rc == 0 && !(d->flags & DETOK_RAW)) rc = repair(out, before, &tail, e);
    if (rc) {
        out->len = before;
        if (out->data) out->data[before] = 0;
        return rc;
    }
    d->n_held = (unsigned)(out->len - tail);
    assert(d->n_held < sizeof d->held);
    memcpy(d->held, out->data + tail, d->n_held);
    out->len = tail;
    out->data[tail] = 0;
    if (special && vocab_adds_space(d->v, false))
        d->drop_space = true;
    else if (!silent)
        d->drop_space = false;
    return 0;
}

int detok_flush(struct detok *d, struct buf *out, struct qn_error *e)
{
    int rc = d->n_held ? buf_str(out, UNICODE_REPLACEMENT, e) : 0;
    if (rc == 0) d->n_held = 0;
    return rc;
}

int detok_all(const struct vocab *v, const qn_token *ids, size_t n, unsigned flags, struct buf *out, struct qn_error *e)
{
    struct detok d;
    detok_init(&d, v, flags);
    for (size_t i = 0; i < n; i++) {
        if (!vocab_is_valid(v, ids[i]))
            return error_set(e, QN_EUSAGE, "token %d at position %zu is outside the vocabulary of %d", ids[i], i,
                             vocab_n_tokens(v));
        int rc = detok_push(&d, ids[i], out, e);
        if (rc) return rc;
    }
    return detok_flush(&d, out, e);
}
