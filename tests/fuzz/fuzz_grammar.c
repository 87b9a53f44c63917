/* SPDX-License-Identifier: MIT
 *
 * fuzz_grammar.c: libFuzzer entry for grammars: a schema, a GBNF grammar, a regular expression or the tool of a call,
 * and a walk through its texts.
 *
 * Input: a letter (s, g, r; 1 to 7: calls in a form, with a schema; a capital one: with spaces and any order), the
 * source, a NUL byte, and a program: each of its bytes chooses one of the bytes that may come next. Whatever the source
 * is, compiling and walking must end within their limits. A text never leads to a dead end. Each mask is that of the
 * reference. The same walk gives the same results after states were dropped.
 */
#include <assert.h>
#include <string.h>

#include "../unit/grammar/small_trie.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static struct small small;

/* Calls of a tool with this schema, in a form; the odd ones with a text in their place. */
static int compile_calls(struct grammar **g, int form, const json_t *schema, const struct grammar_options *o,
                         struct qn_error *e)
{
    json_t *calls = json_pack("{s:i,s:i,s:s,s:b,s:b,s:[{s:s,s:O,s:b}]}", "calls", form, "style",
                              json_is_object(schema) ? (int)json_object_size(schema) : 0, "think", "<think>", "many", 1,
                              "text", form % 2, "tools", "name", "f", "parameters", schema, "held", 1);
    int rc = calls ? grammar_from_calls(g, calls, small.t, o, e) : error_nomem(e, "calls", 0);
    json_decref(calls);
    return rc;
}

static int compile(struct grammar **g, char kind, const char *text, size_t n, size_t memory, struct qn_error *e)
{
    struct grammar_options o = {.memory_bytes = memory};
    json_error_t why;
    o.spaces = o.any_order = kind >= 'A' && kind <= 'Z';
    if ((kind | 32) == 'g') return grammar_from_gbnf(g, text, n, &o, e);
    if ((kind | 32) == 'r') return grammar_from_regex(g, text, n, &o, e);
    json_t *schema = json_loadb(text, n, JSON_DECODE_ANY | JSON_ALLOW_NUL, &why);
    if (!schema) return error_set(e, QN_EDATA, "not JSON");
    bool in_calls = kind >= '1' && kind <= '7';
    int rc = in_calls ? compile_calls(g, kind - '0', schema, &o, e) : grammar_from_schema(g, schema, &o, e);
    json_decref(schema);
    return rc;
}

static bool is_limit(int rc) { return rc == QN_EUNSUP || rc == QN_ENOMEM; }

/* The bytes that may come next; -1: a limit was reached. */
static int possible(struct grammar_cursor *c, uint8_t bytes[256])
{
    int n = 0;
    for (int b = 0; b < 256; b++) {
        struct grammar_cursor *copy;
        struct qn_error e = {0};
        uint8_t byte = (uint8_t)b;
        int rc = grammar_cursor_copy(&copy, c, &e);
        assert(rc == 0);
        rc = grammar_commit_bytes(copy, &byte, 1, &e);
        grammar_cursor_free(copy);
        assert(rc == e.code && (rc == 0 || rc == QN_EDATA || is_limit(rc)));
        if (is_limit(rc)) return -1;
        if (rc == 0) bytes[n++] = byte;
    }
    return n;
}

static bool compare_masks(struct grammar_cursor *c)
{
    struct qn_error a = {0}, b = {0};
    size_t bytes = token_trie_mask_words(small.t) * sizeof *small.mask;
    int rc = grammar_mask(c, small.t, small.mask, &a), reference = grammar_mask_reference(c, small.t, small.wanted, &b);
    if (is_limit(rc) || is_limit(reference)) return false;
    assert(rc == reference && memcmp(small.mask, small.wanted, bytes) == 0);
    return true;
}

/* Walks as the program says. Returns the length of the text, which is written to out. */
static size_t walk(struct grammar *g, const uint8_t *program, size_t n, uint8_t *out, bool masks)
{
    struct grammar_cursor *c;
    struct qn_error e = {0};
    size_t i = 0;
    int rc = grammar_cursor_new(&c, g, &e);
    assert(rc == 0);
    for (; i < n; i++) {
        uint8_t bytes[256];
        int n_bytes = possible(c, bytes);
        if (n_bytes < 0 || (masks && !compare_masks(c))) break;
        assert(n_bytes > 0 || grammar_is_complete(c));
        if (n_bytes == 0) break;
        out[i] = bytes[program[i] % (unsigned)n_bytes];
        rc = grammar_commit_bytes(c, &out[i], 1, &e);
        assert(rc == 0 || is_limit(rc));
        if (rc) break;
    }
    grammar_cursor_free(c);
    return i;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct grammar *g = NULL;
    struct qn_error e = {0};
    uint8_t first[48], second[48];
    const uint8_t *nul = size ? memchr(data, 0, size) : NULL;
    size_t n = nul ? (size_t)(nul - data) : size, n_program = nul ? size - n - 1 : 0;
    if (size == 0) return 0;
    if (!small.t) small = small_open();
    if (n_program > sizeof first) n_program = sizeof first;
    if (compile(&g, (char)data[0], (const char *)data + 1, n - 1, 0, &e)) {
        assert(e.code && e.msg[0] && !g);
        return 0;
    }
    size_t len = nul ? walk(g, nul + 1, n_program, first, true) : 0;
    grammar_free(g);
    g = NULL;
    if (compile(&g, (char)data[0], (const char *)data + 1, n - 1, 400000, &e)) return 0;
    size_t again = nul ? walk(g, nul + 1, n_program, second, false) : 0;
    size_t both = len < again ? len : again;
    assert(memcmp(first, second, both) == 0);
    grammar_free(g);
    return 0;
}
