/* SPDX-License-Identifier: MIT
 *
 * judge.c: says which texts fit a grammar, and how long that takes; for tests and bench/masks.
 *
 *     judge [--vocab MODEL.gguf] [--any-order] [--compact] [--check N]
 *
 * Each line of standard input is a JSON object with a `schema` (or a `gbnf` or `regex`, which are strings) and `texts`,
 * a list of strings. A line of output answers it: `error` and `code` if the grammar was refused, `fits`, a list of
 * booleans, `compile_ns`, `memory`, and with a vocabulary `token_ns`: the CPU time of a mask and a commit for each
 * token. A text is cut into tokens, and fits if each one is in the mask and the end of the text is possible. Without a
 * vocabulary the bytes of a text are committed one by one. --check: every N-th mask is compared with the reference,
 * token by token.
 */
#include <assert.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/mem.h"
#include "grammar/shelf.h"

static struct {
    struct weights *weights;
    struct vocab *vocab;
    struct token_trie *trie;
    uint64_t *mask, *wanted;
    struct grammar_options options;
    unsigned check, n_masks;
} judge = {.options = {.spaces = true, .memory_bytes = SHELF_GRAMMAR_BYTES}};

static void die(const char *what)
{
    fprintf(stderr, "judge: %s\n", what);
    exit(2);
}

static void open_vocab(const char *path)
{
    struct qn_error e;
    if (weights_open(&judge.weights, path, &e) || vocab_load(&judge.vocab, judge.weights, &e) ||
        token_trie_new(&judge.trie, judge.vocab, &e))
        die(e.msg);
    judge.mask = calloc(token_trie_mask_words(judge.trie), sizeof *judge.mask);
    judge.wanted = calloc(token_trie_mask_words(judge.trie), sizeof *judge.wanted);
    if (!judge.mask || !judge.wanted) die("no memory");
}

/* CPU time, which does not count what else the machine does. */
static uint64_t cpu_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

/* ---- one text ---- */

/* A mask must be that of the reference. */
static void check_mask(struct grammar_cursor *c)
{
    struct qn_error e = {0};
    size_t words = token_trie_mask_words(judge.trie);
    if (!judge.check || judge.n_masks++ % judge.check) return;
    if (grammar_mask_reference(c, judge.trie, judge.wanted, &e) && e.code != QN_EDATA) return;
    for (size_t i = 0; i < words; i++) {
        if (judge.mask[i] == judge.wanted[i]) continue;
        int bit = __builtin_ctzll(judge.mask[i] ^ judge.wanted[i]);
        size_t n;
        const uint8_t *p = token_trie_text(judge.trie, (qn_token)(i * 64 + (size_t)bit), &n);
        fprintf(stderr, "judge: the mask is wrong for token %zu '%.*s'\n", i * 64 + (size_t)bit, (int)n,
                (const char *)p);
        abort();
    }
}

static bool is_set(qn_token t) { return judge.mask[t / 64] >> (t % 64) & 1; }

static bool fits_as_tokens(struct grammar_cursor *c, const char *text, size_t n, json_t *times, struct qn_error *e)
{
    qn_token *ids = NULL;
    size_t n_ids = 0, i = 0;
    bool fits = true;
    if (vocab_encode(judge.vocab, text, n, VOCAB_NO_SPACE, &ids, &n_ids, e)) die(e->msg);
    for (; i < n_ids && fits; i++) {
        uint64_t begin = cpu_ns();
        int rc = grammar_mask(c, judge.trie, judge.mask, e);
        fits = rc == 0 && is_set(ids[i]);
        if (fits && grammar_commit_token(c, judge.trie, ids[i], e)) die("a token of the mask was not accepted");
        json_array_append_new(times, json_integer((json_int_t)(cpu_ns() - begin)));
        if (!fits && rc == 0 && grammar_commit_token(c, judge.trie, ids[i], e) == 0)
            die("a token that the mask lacks was accepted");
    }
    mem_free(ids);
    return fits && grammar_is_complete(c);
}

static bool fits_as_bytes(struct grammar_cursor *c, const char *text, size_t n, struct qn_error *e)
{
    for (size_t i = 0; i < n; i++)
        if (grammar_commit_bytes(c, text + i, 1, e)) return false;
    return grammar_is_complete(c);
}

static void check_all_masks(struct grammar *g, const char *text, size_t n)
{
    struct grammar_cursor *c;
    struct qn_error e = {0};
    if (grammar_cursor_new(&c, g, &e)) die(e.msg);
    for (size_t i = 0; i <= n; i++) {
        int rc = grammar_mask(c, judge.trie, judge.mask, &e);
        if (rc == 0 || rc == QN_EDATA) check_mask(c);
        if (i < n && grammar_commit_bytes(c, text + i, 1, &e)) break;
    }
    grammar_cursor_free(c);
}

static void judge_text(struct grammar *g, const json_t *text, json_t *out)
{
    struct grammar_cursor *c;
    struct qn_error e = {0};
    const char *p = json_string_value(text);
    size_t n = json_string_length(text);
    if (!p) die("a text is not a string");
    if (grammar_cursor_new(&c, g, &e)) die(e.msg);
    bool fits = judge.trie ? fits_as_tokens(c, p, n, json_object_get(out, "token_ns"), &e) : fits_as_bytes(c, p, n, &e);
    json_array_append_new(json_object_get(out, "fits"), json_boolean(fits));
    json_array_append_new(json_object_get(out, "codes"), json_integer(fits ? 0 : e.code));
    grammar_cursor_free(c);
    if (judge.trie && judge.check) check_all_masks(g, p, n);
}

/* ---- walks ---- */

static uint64_t next_random(uint64_t *state)
{
    *state = *state * 6364136223846793005u + 1442695040888963407u;
    return *state >> 33;
}

/* A byte that may come next; those that end something, once the text is long. -1: none may. */
static int choose(struct grammar_cursor *c, size_t length, uint64_t *random)
{
    static const uint8_t ends[] = "\"}],:0";
    uint8_t possible[256];
    int n = 0;
    struct qn_error e;
    for (size_t i = 0; length > 200 && i < sizeof ends - 1; i++) {
        struct grammar_cursor *copy;
        if (grammar_cursor_copy(&copy, c, &e)) die(e.msg);
        int rc = grammar_commit_bytes(copy, &ends[i], 1, &e);
        grammar_cursor_free(copy);
        if (rc == 0) return ends[i];
    }
    for (int b = 0; b < 256; b++) {
        struct grammar_cursor *copy;
        uint8_t byte = (uint8_t)b;
        if (grammar_cursor_copy(&copy, c, &e)) die(e.msg);
        if (grammar_commit_bytes(copy, &byte, 1, &e) == 0) possible[n++] = byte;
        grammar_cursor_free(copy);
    }
    return n ? possible[next_random(random) % (unsigned)n] : -1;
}

/* A text that the grammar allows, byte by byte at random; one without an end is an error. */
static json_t *walk(struct grammar *g, uint64_t seed)
{
    struct grammar_cursor *c;
    struct qn_error e;
    struct buf text = {0};
    uint64_t random = seed * 77777 + 1;
    if (grammar_cursor_new(&c, g, &e)) die(e.msg);
    while (text.len < 5000 && !(grammar_is_complete(c) && (text.len > 200 || next_random(&random) % 4 == 0))) {
        int b = choose(c, text.len, &random);
        uint8_t byte = (uint8_t)b;
        if (b < 0 && grammar_is_complete(c)) break;
        if (b < 0 || grammar_commit_bytes(c, &byte, 1, &e) || buf_add(&text, &byte, 1, &e)) {
            fprintf(stderr, "judge: no way on after: %.*s\n", (int)text.len, (const char *)text.data);
            abort();
        }
    }
    json_t *out = grammar_is_complete(c) ? json_stringn((const char *)text.data, text.len) : json_null();
    grammar_cursor_free(c);
    buf_deinit(&text);
    return out;
}

/* ---- one grammar ---- */

static int compile(struct grammar **g, const json_t *in, struct qn_error *e)
{
    const json_t *gbnf = json_object_get(in, "gbnf"), *regex = json_object_get(in, "regex");
    if (gbnf) return grammar_from_gbnf(g, json_string_value(gbnf), json_string_length(gbnf), &judge.options, e);
    if (regex) return grammar_from_regex(g, json_string_value(regex), json_string_length(regex), &judge.options, e);
    return grammar_from_schema(g, json_object_get(in, "schema"), &judge.options, e);
}

static json_t *judge_line(const json_t *in)
{
    json_t *out = json_pack("{s:[],s:[],s:[]}", "fits", "codes", "token_ns");
    struct grammar *g = NULL;
    struct qn_error e = {0};
    uint64_t begin = cpu_ns();
    int rc = compile(&g, in, &e);
    json_object_set_new(out, "compile_ns", json_integer((json_int_t)(cpu_ns() - begin)));
    if (rc) {
        json_object_set_new(out, "error", json_string(e.msg));
        json_object_set_new(out, "code", json_integer(rc));
        return out;
    }
    json_t *texts = json_object_get(in, "texts");
    for (size_t i = 0; i < json_array_size(texts); i++) judge_text(g, json_array_get(texts, i), out);
    json_int_t n_walks = json_integer_value(json_object_get(in, "walks"));
    if (n_walks) json_object_set_new(out, "walks", json_array());
    for (json_int_t i = 0; i < n_walks; i++) json_array_append_new(json_object_get(out, "walks"), walk(g, (uint64_t)i));
    json_object_set_new(out, "memory", json_integer((json_int_t)grammar_memory(g)));
    grammar_free(g);
    return out;
}

int main(int argc, char **argv)
{
    char *line = NULL;
    size_t cap = 0;
    ssize_t n;
    for (int i = 1; i < argc; i++) {
        if (strcmp(argv[i], "--any-order") == 0)
            judge.options.any_order = true;
        else if (strcmp(argv[i], "--compact") == 0)
            judge.options.spaces = false;
        else if (strcmp(argv[i], "--vocab") == 0 && i + 1 < argc)
            open_vocab(argv[++i]);
        else if (strcmp(argv[i], "--check") == 0 && i + 1 < argc)
            judge.check = (unsigned)atoi(argv[++i]);
        else
            die("usage: judge [--vocab MODEL.gguf] [--any-order] [--compact] [--check N]");
    }
    while ((n = getline(&line, &cap, stdin)) > 0) {
        json_error_t why;
        json_t *in = json_loadb(line, (size_t)n, 0, &why);
        json_t *out = in ? judge_line(in) : json_pack("{s:s,s:i}", "error", why.text, "code", QN_EDATA);
        char *text = json_dumps(out, JSON_COMPACT);
        puts(text);
        fflush(stdout);
        free(text);
        json_decref(out);
        json_decref(in);
    }
    free(line);
    token_trie_free(judge.trie);
    vocab_free(judge.vocab);
    weights_close(judge.weights);
    free(judge.mask);
    free(judge.wanted);
    return 0;
}
