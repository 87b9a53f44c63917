/* SPDX-License-Identifier: MIT
 *
 * fuzz_hf_tokenizer.c: libFuzzer entry for the tokenizer of a Hugging Face folder and for encoding with it.
 *
 * Input: up to four parts with a NUL byte between them, which no JSON has: tokenizer.json, tokenizer_config.json,
 * generation_config.json, and a text. What is accepted must make a vocabulary that takes the text with and without
 * special tokens, give ids inside itself, and keep text of a user from becoming a control token.
 */
#include <assert.h>
#include <string.h>

#include "../golden/hf_tokenizer_open.h"
#include "base/log.h"
#include "format/hf/hf_json.h"
#include "format/hf/hf_tokens.h"
#include "text/token/detok.h"
#include "text/token/unicode.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* Cuts the next part off. */
static struct str next_part(const uint8_t **p, size_t *n)
{
    const uint8_t *end = memchr(*p, 0, *n);
    struct str s = {(const char *)*p, end ? (size_t)(end - *p) : *n};
    *p += s.n + (end != NULL);
    *n -= s.n + (end != NULL);
    return s;
}

/* NULL: no such file, or not JSON. */
static json_t *parse(struct str s)
{
    json_t *j = NULL;
    struct qn_error e = {0};
    if (s.n) hf_json_parse(&j, "a file", s.p, s.n, &e);
    return j;
}

static void use(const struct vocab *v, struct str text, unsigned flags)
{
    qn_token *ids = NULL;
    size_t n_ids = 0;
    struct buf out = {0};
    struct qn_error e = {0};
    int rc = vocab_encode(v, text.p, text.n, flags, &ids, &n_ids, &e);
    assert(rc == 0 ? true : e.code == rc && e.msg[0]);
    for (size_t i = 0; i < n_ids; i++) {
        assert(vocab_is_valid(v, ids[i]));
        assert(flags || !vocab_is_control(v, ids[i]) || ids[i] == vocab_role(v, VOCAB_UNK));
    }
    rc = detok_all(v, ids, n_ids, flags ? DETOK_SPECIAL : 0, &out, &e);
    assert(rc == 0);
    assert(unicode_is_utf8(out.data, out.len));
    buf_deinit(&out);
    mem_free(ids);
}

/* A list that was accepted is a vocabulary, but for what text/ refuses itself: a special token of many bytes. */
static void load(struct meta_build *b, struct str text)
{
    struct weights *w = NULL;
    struct vocab *v = NULL;
    struct qn_error e = {0};
    int rc = hf_built_open(&w, b, &e);
    assert(rc == 0);
    rc = vocab_load(&v, w, &e);
    assert(rc == 0 || strstr(e.msg, "special token"));
    if (rc == 0) {
        use(v, text, 0);
        use(v, text, VOCAB_ADD_SPECIAL | VOCAB_PARSE_SPECIAL);
    }
    vocab_free(v);
    weights_close(w);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct meta_build b = {0};
    struct qn_error e = {0};
    struct hf_files f = {0};
    f.tokenizer = parse(next_part(&data, &size));
    f.config = parse(next_part(&data, &size));
    f.generation = parse(next_part(&data, &size));
    struct str text = next_part(&data, &size);
    if (f.tokenizer) {
        int rc = hf_tokenizer_put(&b, "/nonexistent", &f, &e);
        assert(rc == 0 || (e.code == rc && e.msg[0] && !strchr(e.msg, '\n')));
        if (rc == 0) load(&b, text);
    }
    meta_build_deinit(&b);
    json_decref(f.tokenizer);
    json_decref(f.config);
    json_decref(f.generation);
    return 0;
}
