/* SPDX-License-Identifier: MIT
 *
 * test_tokenizers.c: every tokenizer vector, exactly, and back to text.
 *
 * $QUERN_GOLDEN/tokenizers holds vocabularies and expected ids from independent programs (unpacked; its README
 * describes them): `*.gguf.inp/.out` pairs and `tiny/` come from llama.cpp, `hf/` from the original tokenizers.
 * Where the two differ the original is right, so some lines of llama.cpp's are wrong for us. They are listed here one
 * by one, each with its reason, and must differ: a line that begins to agree fails the test too. Each list of ids is
 * also decoded and must give the text that was encoded, after what the tokenizer itself does to it (NFC; U+2581 read as
 * a space).
 *
 * With arguments, SCRIPT DIR, the same vectors go through tokenizer.json files: `SCRIPT GGUF DIR/NAME` makes one of
 * each vocabulary, and where its status is 3 that vocabulary has no such form and is left out. With "-" for SCRIPT the
 * folders DIR/NAME are taken as they are, and vectors without one are left out.
 *
 * Exits with 77 (skipped) when the data is missing, but fails in CI.
 */
#include <assert.h>
#include <glob.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "base/os.h"
#include "format/hf/hf_json.h"
#include "hf_tokenizer_open.h"
#include "text/token/detok.h"
#include "text/token/unicode.h"
#include "text/token/vocab.h"

enum reason {
    MARKS,    /* llama.cpp's letters leave out \p{M} in this pattern */
    CASE,     /* its pattern does not split at a capital; the model's own does */
    NFC,      /* the original normalises first, llama.cpp does not */
    NO_TOKEN, /* the vocabulary file lacks tokens that hf/ knows */
};
static const struct {
    const char *file;
    int line; /* from 1; of .inp files the number of the text */
    enum reason why;
} differs[] = {
    {"hf/qwen2_5.jsonl", 67, NO_TOKEN},      {"tiny/bpe-gpt-4o.jsonl", 36, MARKS},
    {"tiny/bpe-gpt-4o.jsonl", 38, MARKS},    {"tiny/bpe-gpt-4o.jsonl", 76, MARKS},
    {"tiny/bpe-llama4.jsonl", 36, MARKS},    {"tiny/bpe-llama4.jsonl", 38, MARKS},
    {"tiny/bpe-llama4.jsonl", 76, MARKS},    {"tiny/bpe-tekken.jsonl", 36, MARKS},
    {"tiny/bpe-tekken.jsonl", 38, MARKS},    {"tiny/bpe-tekken.jsonl", 76, MARKS},
    {"tiny/bpe-kimi-k2.jsonl", 36, MARKS},   {"tiny/bpe-kimi-k2.jsonl", 38, MARKS},
    {"tiny/bpe-kimi-k2.jsonl", 76, MARKS},   {"tiny/bpe-kimi-k2.jsonl", 51, CASE},
    {"ggml-vocab-qwen35.gguf.inp", 47, NFC}, {"ggml-vocab-qwen35.gguf.inp", 48, NFC},
    {"ggml-vocab-qwen35.gguf.inp", 49, NFC}, {"tiny/bpe-qwen2.jsonl", 41, NFC},
    {"tiny/bpe-qwen2.jsonl", 76, NFC},       {"tiny/bpe-qwen35.jsonl", 41, NFC},
    {"tiny/bpe-qwen35.jsonl", 76, NFC},
};

static const char *hf_script, *hf_dir; /* NULL: the vocabularies themselves */

struct tally {
    const char *file;
    const struct vocab *v;
    bool nfc, marks_spaces; /* what the tokenizer does to the text */
    int n, n_bad, n_listed;
};

static bool is_listed(const char *file, int line)
{
    for (size_t i = 0; i < sizeof differs / sizeof differs[0]; i++)
        if (differs[i].line == line && strcmp(differs[i].file, file) == 0)
            return differs[i].why != NO_TOKEN || !hf_dir || strcmp(hf_script, "-") != 0; /* the original has it */
    return false;
}

static void print_ids(const char *label, const qn_token *ids, size_t n)
{
    printf("  %s", label);
    for (size_t i = 0; i < n; i++) printf(" %d", ids[i]);
    putchar('\n');
}

/* What decoding must give back. */
static void expected_text(const struct tally *t, const char *text, size_t n, struct buf *out)
{
    bool same = true;
    int rc = 0;
    if (t->nfc)
        rc = unicode_nfc((const uint8_t *)text, n, out, &same, NULL);
    else if (t->marks_spaces)
        rc = unicode_unmark_spaces((const uint8_t *)text, n, out, NULL), same = false;
    if (rc == 0 && same) rc = buf_add(out, text, n, NULL);
    assert(rc == 0);
}

static bool check_back(const struct tally *t, int line, const char *text, size_t n, const qn_token *ids, size_t n_ids)
{
    struct buf want = {0}, got = {0};
    struct qn_error e = {0};
    expected_text(t, text, n, &want);
    bool ok = detok_all(t->v, ids, n_ids, DETOK_SPECIAL | DETOK_RAW, &got, &e) == 0 && got.len == want.len &&
              (got.len == 0 || memcmp(got.data, want.data, got.len) == 0);
    if (!ok)
        printf("%s:%d: decodes to '%s', should be '%s' %s\n", t->file, line, (char *)got.data, (char *)want.data,
               e.msg);
    buf_deinit(&want);
    buf_deinit(&got);
    return ok;
}

static void check(struct tally *t, int line, const char *text, size_t n, unsigned flags, const qn_token *want,
                  size_t n_want)
{
    struct qn_error e = {0};
    qn_token *ids = NULL;
    size_t n_ids = 0;
    int rc = vocab_encode(t->v, text, n, flags, &ids, &n_ids, &e);
    bool same = rc == 0 && n_ids == n_want && (n_ids == 0 || memcmp(ids, want, n_ids * sizeof *ids) == 0);
    bool listed = is_listed(t->file, line);
    bool ok = rc == 0 && same != listed;
    if (!ok) {
        printf("%s:%d: '%s' flags %u %s%s\n", t->file, line, text, flags, same && listed ? "agrees, but is listed" : "",
               e.msg);
        print_ids("want", want, n_want);
        print_ids("got ", ids, n_ids);
    }
    if (rc == 0 && !check_back(t, line, text, n, ids, n_ids)) ok = false;
    t->n++;
    t->n_bad += !ok;
    t->n_listed += listed;
    mem_free(ids);
}

/* ---- the two kinds of files ---- */

static char *read_text(const char *path, size_t *n)
{
    struct mapping m;
    struct qn_error e;
    if (map_open(&m, path, &e)) {
        printf("%s\n", e.msg);
        return NULL;
    }
    char *s = mem_dup(m.data, m.size);
    *n = m.size;
    map_close(&m);
    return s;
}

static size_t parse_line(const char **p, qn_token *ids, size_t max)
{
    size_t n = 0;
    const char *end = strchr(*p, '\n');
    for (const char *s = *p; s && *s && (!end || s < end);) {
        char *next;
        long x = strtol(s, &next, 10);
        if (next == s || (end && next > end)) break;
        assert(n < max);
        ids[n++] = (qn_token)x;
        s = next;
    }
    *p = end ? end + 1 : *p + strlen(*p);
    return n;
}

/* Texts separated by a marker line, and a line of ids for each. Special tokens or not, it makes no difference here. */
static bool run_inp_out(struct tally *t, const char *inp, const char *out)
{
    static const char separator[] = "\n__ggml_vocab_test__\n";
    size_t n_text, n_ids;
    char *text = read_text(inp, &n_text), *list = read_text(out, &n_ids);
    const char *ids = list;
    static qn_token want[4096];
    if (!text || !list) return false;
    int line = 1;
    for (char *s = text, *end; s; s = end ? end + strlen(separator) : NULL, line++) {
        end = strstr(s, separator);
        size_t n = end ? (size_t)(end - s) : (size_t)(text + n_text - s);
        size_t n_want = parse_line(&ids, want, 4096);
        char *one = mem_dup(s, n);
        check(t, line, one, n, 0, want, n_want);
        check(t, line, one, n, VOCAB_PARSE_SPECIAL, want, n_want);
        mem_free(one);
    }
    mem_free(text);
    mem_free(list);
    return true;
}

static size_t to_ids(const json_t *array, qn_token *ids, size_t max)
{
    size_t n = json_array_size(array);
    assert(n <= max);
    for (size_t i = 0; i < n; i++) ids[i] = (qn_token)json_integer_value(json_array_get(array, i));
    return n;
}

static bool run_jsonl(struct tally *t, const char *path)
{
    static qn_token want[4096];
    FILE *f = fopen(path, "r");
    char *s = NULL;
    size_t cap = 0;
    if (!f) return false;
    for (int line = 1; getline(&s, &cap, f) > 0; line++) {
        json_t *j = json_loads(s, JSON_ALLOW_NUL, NULL), *text = json_object_get(j, "text"), *alt;
        assert(json_is_string(text));
        const char *p = json_string_value(text);
        size_t n = json_string_length(text);
        unsigned flags = json_is_true(json_object_get(j, "add_special")) ? VOCAB_ADD_SPECIAL : 0;
        check(t, line, p, n, flags | VOCAB_PARSE_SPECIAL, want, to_ids(json_object_get(j, "ids"), want, 4096));
        if ((alt = json_object_get(j, "ids_parse_special_false")))
            check(t, line, p, n, flags, want, to_ids(alt, want, 4096));
        json_decref(j);
    }
    free(s);
    fclose(f);
    return true;
}

/* ---- which vocabulary goes with which file ---- */

static int open_folder(struct weights **w, const char *folder, struct qn_error *e)
{
    json_t *config;
    int rc = hf_json_read(&config, folder, "config.json", HF_CONFIG_BYTES, false, e);
    if (rc == 0) rc = hf_tokenizer_open(w, folder, config, e);
    json_decref(config);
    return rc;
}

/* Opens the vocabulary called base. 1: there is no tokenizer.json for it. */
static int open_vocabulary(struct weights **w, const char *gguf, const char *base, struct qn_error *e)
{
    char command[16384], folder[4096];
    if (!hf_dir) return weights_open(w, gguf, e);
    snprintf(folder, sizeof folder, "%s/%s", hf_dir, base);
    if (strcmp(hf_script, "-") == 0) return access(folder, F_OK) != 0 ? 1 : open_folder(w, folder, e);
    snprintf(command, sizeof command, "'%s' '%s' '%s'", hf_script, gguf, folder);
    int status = system(command);
    if (WIFEXITED(status) && WEXITSTATUS(status) == 3) return 1;
    return status ? error_set(e, QN_EIO, "%s: status %d", command, status) : open_folder(w, folder, e);
}

/* What a script made of a vocabulary says the same about more than ids. */
static bool check_roles(const char *name, const char *gguf, const struct weights *w, const struct vocab *v)
{
    struct weights *w2 = NULL;
    struct vocab *v2 = NULL;
    struct str t = {0}, t2 = {0};
    int rc = weights_open(&w2, gguf, NULL);
    assert(rc == 0);
    rc = vocab_load(&v2, w2, NULL);
    assert(rc == 0);
    bool ok = true;
    for (int role = VOCAB_BOS; role <= VOCAB_EOM; role++)
        ok = ok && (vocab_role(v, role) == vocab_role(v2, role) || (role == VOCAB_BOS && vocab_role(v, role) < 0));
    meta_str(w, "tokenizer.chat_template", &t, NULL);
    meta_str(w2, "tokenizer.chat_template", &t2, NULL);
    ok = ok && vocab_n_tokens(v) == vocab_n_tokens(v2) && vocab_add_bos(v) == vocab_add_bos(v2) && t.n == t2.n &&
         (t.n == 0 || memcmp(t.p, t2.p, t.n) == 0);
    for (qn_token id = 0; ok && id < vocab_n_tokens(v); id++)
        ok = vocab_is_eog(v, id) == vocab_is_eog(v2, id) && vocab_is_special(v, id) == vocab_is_special(v2, id);
    if (!ok) printf("%s: roles, number of tokens, kinds of tokens or template differ\n", name);
    vocab_free(v2);
    weights_close(w2);
    return ok;
}

static bool run_file(const char *dir, const char *name, int *n_bad)
{
    char gguf[4096], path[4096], out[4096], base[256];
    snprintf(path, sizeof path, "%s/%s", dir, name);
    snprintf(base, sizeof base, "%.*s", (int)(strrchr(name, '.') - name), name);
    bool pair = strstr(name, ".inp") != NULL;
    if (strcmp(name, "hf/llama3.jsonl") == 0) snprintf(base, sizeof base, "ggml-vocab-llama-bpe");
    if (strcmp(name, "hf/qwen2_5.jsonl") == 0) snprintf(base, sizeof base, "ggml-vocab-qwen2");
    snprintf(gguf, sizeof gguf, "%s/%s%s", dir, base, pair ? "" : ".gguf");
    snprintf(out, sizeof out, "%s/%s.out", dir, base);

    struct weights *w = NULL;
    struct vocab *v = NULL;
    struct qn_error e = {0};
    uint64_t start = clock_ns();
    int rc = open_vocabulary(&w, gguf, base, &e);
    bool ok = rc == 0;
    if (rc == 1) {
        printf("%-36s has no tokenizer.json\n", name);
        return true;
    }
    if (!hf_dir) start = clock_ns();
    if (rc == 0) rc = vocab_load(&v, w, &e);
    double ms = (double)(clock_ns() - start) / 1e6;
    if (strstr(name, "bert")) { /* WordPiece */
        ok = rc == QN_EUNSUP && v == NULL && strstr(e.msg, "'bert'");
        printf("%-36s %s: %s\n", name, ok ? "refused as it should be" : "BAD", e.msg);
        if (ok) goto done;
    }
    if (rc) {
        printf("%s: %s\n", gguf, e.msg);
        ok = false;
        goto done;
    }
    struct str model = {0}, pre = {0};
    meta_str(w, "tokenizer.ggml.model", &model, NULL);
    meta_str(w, "tokenizer.ggml.pre", &pre, NULL);
    struct tally t = {.file = name, .v = v};
    t.marks_spaces = model.n != 4;
    if (meta_bool(w, "tokenizer.quern.nfc", &t.nfc, NULL) == 0)
        t.nfc = !t.marks_spaces &&
                ((pre.n == 5 && !memcmp(pre.p, "qwen2", 5)) || (pre.n == 6 && !memcmp(pre.p, "qwen35", 6)));
    ok = pair ? run_inp_out(&t, path, out) : run_jsonl(&t, path);
    if (hf_dir && strcmp(hf_script, "-") != 0 && !check_roles(name, gguf, w, v)) t.n_bad++;
    printf("%-36s %4d checked, %d wrong, %d known to differ; loaded %d tokens in %.1f ms\n", name, t.n, t.n_bad,
           t.n_listed, vocab_n_tokens(v), ms);
    ok = ok && t.n > 0 && t.n_bad == 0;
done:
    vocab_free(v);
    weights_close(w);
    *n_bad += !ok;
    return ok;
}

int main(int argc, char **argv)
{
    static const char *const patterns[] = {"*.gguf.inp", "hf/*.jsonl", "tiny/*.jsonl"};
    const char *golden = getenv("QUERN_GOLDEN");
    char dir[2048], pattern[4096];
    int n_files = 0, n_bad = 0;
    if (argc == 3) {
        hf_script = argv[1];
        hf_dir = argv[2];
    }
    snprintf(dir, sizeof dir, "%s/tokenizers", golden ? golden : "");
    for (size_t i = 0; golden && i < sizeof patterns / sizeof patterns[0]; i++) {
        glob_t g;
        snprintf(pattern, sizeof pattern, "%s/%s", dir, patterns[i]);
        if (glob(pattern, 0, NULL, &g) == 0)
            for (size_t k = 0; k < g.gl_pathc; k++, n_files++) run_file(dir, g.gl_pathv[k] + strlen(dir) + 1, &n_bad);
        globfree(&g);
    }
    printf("%d files, %d bad\n", n_files, n_bad);
    if (n_files == 0) {
        printf("QUERN_GOLDEN is %s\n", golden ? "a folder without tokenizers/" : "not set");
        return getenv("CI") ? 1 : 77;
    }
    return n_bad > 0;
}
