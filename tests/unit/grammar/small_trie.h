/* SPDX-License-Identifier: MIT
 *
 * small_trie.h: a small vocabulary for the tests of grammars: all bytes, a few words, and tokens that cross the
 * boundaries of JSON.
 */
#ifndef QUERN_TESTS_SMALL_TRIE_H
#define QUERN_TESTS_SMALL_TRIE_H

#include "../tiny_vocab.h"
#include "grammar/grammar.h"

/* Spaces are U+2581 in this kind of vocabulary. The first tokens have other types; after these come the bytes. */
static const char *const small_words[] = {
    "<unk>",
    "<s>",
    "</s>",
    "<think>",
    "a",
    "b",
    "ab",
    "abc",
    "name",
    "{\"",
    "\":",
    "\",\"",
    "\"}",
    "\"},",
    "},{\"",
    "\"]",
    "]}",
    "[]",
    "{}",
    "{}}",
    "true",
    "false",
    "null",
    "12",
    "345",
    "0.5",
    "1e",
    "-1",
    "\\\"",
    "\\n",
    "\\u",
    "\\u00",
    "\\ud83d",
    "\\ude00",
    "\\\\",
    "\xC3\xA9",
    "x\"",
    "x\",",
    "x\":1",
    "\"x",
    "\"ab",
    "ab\"",
    "ab\":",
    "\",",
    ",\"",
    ":\"",
    ":1,\"",
    "red",
    "green",
    "red\"",
    "\"red",
    "\"re",
    "d\",",
    "\xE2\x96\x81",
    "\xE2\x96\x81\"",
    "\xE2\x96\x81{\"",
    ",\xE2\x96\x81\"",
    ":\xE2\x96\x81\"",
    "\":\xE2\x96\x81\"",
    "aaaa",
    "aaaaaaaa",
    "bbbb",
    "ab\xC3\xA9\x62",
    "\xF0\x9F\x98\x80",
    "name\":",
    "\"name",
    "ab\"}]",
    "/",
    "\\/",
    "2024-",
    "-01-",
    "T00:",
    "0000",
    "99",
    ".",
    ".5",
    "e+1",
    "abcabc",
    "\n",
    "\t",
    "ab\",\"ab\"",
    "1,1",
    ",12",
    "\"\n",
    "x\n",
};
#define SMALL_WORDS ((qn_token)(sizeof small_words / sizeof small_words[0]))

struct small {
    struct weights *w;
    struct vocab *v;
    struct token_trie *t;
    uint64_t *mask, *wanted; /* of one mask each */
};

static inline struct small small_open(void)
{
    struct vfile f = {0};
    struct small s = {0};
    struct qn_error e = {0};
    static char bytes[256][8];
    const char *text[SMALL_WORDS + 256];
    int32_t type[SMALL_WORDS + 256];
    float score[SMALL_WORDS + 256];
    for (int i = 0; i < SMALL_WORDS + 256; i++) {
        type[i] = i == 0 ? 2 : i < 3 ? 3 : i == 3 ? 4 : i < SMALL_WORDS ? 1 : 6;
        score[i] = (float)-i;
        if (i < SMALL_WORDS)
            text[i] = small_words[i];
        else
            text[i] = bytes[i - SMALL_WORDS];
        if (i >= SMALL_WORDS) snprintf(bytes[i - SMALL_WORDS], 8, "<0x%02X>", (unsigned)(i - SMALL_WORDS));
    }
    vf_str(&f, "tokenizer.ggml.model", "llama");
    vf_strs(&f, "tokenizer.ggml.tokens", text, SMALL_WORDS + 256);
    vf_array4(&f, "tokenizer.ggml.token_type", MT_I32, type, SMALL_WORDS + 256);
    vf_array4(&f, "tokenizer.ggml.scores", MT_F32, score, SMALL_WORDS + 256);
    s.w = vf_open(&f);
    int rc = vocab_load(&s.v, s.w, &e);
    if (rc == 0) rc = token_trie_new(&s.t, s.v, &e);
    assert(rc == 0);
    s.mask = calloc(token_trie_mask_words(s.t), sizeof *s.mask);
    s.wanted = calloc(token_trie_mask_words(s.t), sizeof *s.wanted);
    assert(s.mask && s.wanted);
    return s;
}

static inline void small_close(struct small *s)
{
    token_trie_free(s->t);
    vocab_free(s->v);
    weights_close(s->w);
    free(s->mask);
    free(s->wanted);
}

/* The token with this text; the last one if there are several. */
static inline qn_token small_token(const struct small *s, const char *text)
{
    for (qn_token i = s->t->n_tokens; i-- > 0;) {
        size_t n;
        const uint8_t *p = token_trie_text(s->t, i, &n);
        if (n == strlen(text) && memcmp(p, text, n) == 0) return i;
    }
    assert(!"no such token");
    return -1;
}

static inline bool small_allows(const struct small *s, const char *text)
{
    qn_token t = small_token(s, text);
    return s->mask[t / 64] >> (t % 64) & 1;
}

static inline struct grammar *grammar_of(const char *schema, const struct grammar_options *o)
{
    struct grammar *g = NULL;
    struct qn_error e = {0};
    json_error_t why;
    json_t *j = json_loads(schema, JSON_DECODE_ANY, &why);
    if (!j) fprintf(stderr, "%s in %s\n", why.text, schema);
    assert(j);
    if (grammar_from_schema(&g, j, o, &e)) fprintf(stderr, "%s for %s\n", e.msg, schema);
    json_decref(j);
    return g;
}

/* Whether the whole text fits. */
static inline bool fits(struct grammar *g, const char *text)
{
    struct grammar_cursor *c;
    struct qn_error e = {0};
    int rc = grammar_cursor_new(&c, g, &e);
    assert(rc == 0);
    rc = grammar_commit_bytes(c, text, strlen(text), &e);
    assert(rc == 0 || (rc == e.code && e.msg[0]));
    bool complete = grammar_is_complete(c);
    grammar_cursor_free(c);
    return rc == 0 && complete;
}

#endif
