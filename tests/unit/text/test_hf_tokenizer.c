/* SPDX-License-Identifier: MIT
 *
 * test_hf_tokenizer.c: small tokenizer.json files, part by part: what they do to text, and what is refused.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <sys/stat.h>

#include "../golden/hf_tokenizer_open.h"
#include "base/log.h"
#include "text/token/detok.h"

/* The members of tokenizer.json, and the files beside it; NULL: as below, or no such file. */
struct parts {
    const char *normalizer, *pre, *post, *decoder, *model, *added;
    const char *config, *special_map, *generation, *model_config, *template;
    bool by_char; /* the model over characters, and what goes with it */
    const char *whole;
    size_t whole_bytes;
};

#define BYTE_PRE   "{\"type\":\"ByteLevel\",\"add_prefix_space\":false,\"use_regex\":true}"
#define LAST_PRE   "{\"type\":\"ByteLevel\",\"add_prefix_space\":false,\"use_regex\":false}"
#define REPLACE    "{\"type\":\"Replace\",\"pattern\":{\"String\":\" \"},\"content\":\"▁\"}"
#define PREPEND    "{\"type\":\"Prepend\",\"prepend\":\"▁\"}"
#define VOCAB      "\"a\":0,\"b\":1,\"c\":2,\"Ġ\":3,\"ab\":4,\"Ġa\":5,\"abc\":6,\"Ã\":7,\"©\":8,\"e\":9,\"Ì\":10,\"ģ\":11"
#define MERGES     "[\"a b\",\"Ġ a\"]"
#define MODEL(...) "{\"type\":\"BPE\",\"vocab\":{" VOCAB "},\"merges\":" MERGES __VA_ARGS__ "}"
#define ADDED(id, text, more)                                                                                          \
    "{\"id\":" #id ",\"content\":\"" text "\",\"single_word\":false,\"lstrip\":false,\"rstrip\":false,"                \
    "\"normalized\":false,\"special\":true" more "}"
#define SPLIT(regex, how, invert)                                                                                      \
    "{\"type\":\"Split\",\"pattern\":{\"Regex\":\"" regex "\"},\"behavior\":\"" how "\",\"invert\":" #invert "}"
#define CHAR_A 257 /* the model over characters: <unk>, 256 bytes, then these */
enum { A = CHAR_A, B, MARK, MARK_A, AB, MARK2 };

/* The vocabulary over characters. */
static const char *char_model(void)
{
    static char text[8192];
    size_t n =
        (size_t)sprintf(text, "{\"type\":\"BPE\",\"unk_token\":\"<unk>\",\"fuse_unk\":true,\"byte_fallback\":true,"
                              "\"vocab\":{\"<unk>\":0");
    for (unsigned i = 0; i < 256; i++) n += (size_t)sprintf(text + n, ",\"<0x%02X>\":%u", i, i + 1);
    sprintf(text + n, ",\"a\":257,\"b\":258,\"▁\":259,\"▁a\":260,\"ab\":261,\"▁▁\":262},"
                      "\"merges\":[[\"▁\",\"▁\"],[\"▁\",\"a\"],[\"a\",\"b\"]]}");
    return text;
}

/* ---- folders ---- */

static void write_file(const char *dir, const char *name, const void *p, size_t n)
{
    char path[256];
    snprintf(path, sizeof path, "%s/%s", dir, name);
    FILE *f = fopen(path, "wb");
    assert_non_null(f);
    assert_int_equal(fwrite(p, 1, n, f), n);
    assert_int_equal(fclose(f), 0);
}

static void write_text(const char *dir, const char *name, const char *text)
{
    if (text) write_file(dir, name, text, strlen(text));
}

static const char * or (const char *a, const char *b) { return a ? a : b; }

static void make_folder(char *dir, const struct parts *p)
{
    static char text[1 << 16];
    strcpy(dir, "/tmp/quern-hf-XXXXXX");
    assert_non_null(mkdtemp(dir));
    snprintf(text, sizeof text,
             "{\"version\":\"1.0\",\"added_tokens\":%s,\"normalizer\":%s,\"pre_tokenizer\":%s,\"post_processor\":%s,"
             "\"decoder\":%s,\"model\":%s}",
             or (p->added, "[]"), or (p->normalizer, p->by_char ? REPLACE : "null"),
             or (p->pre, p->by_char ? "null" : BYTE_PRE), or (p->post, "null"), or (p->decoder, "null"),
             or (p->model, p->by_char ? char_model() : MODEL("")));
    if (p->whole)
        write_file(dir, "tokenizer.json", p->whole, p->whole_bytes);
    else
        write_text(dir, "tokenizer.json", text);
    write_text(dir, "tokenizer_config.json", p->config);
    write_text(dir, "special_tokens_map.json", p->special_map);
    write_text(dir, "generation_config.json", p->generation);
    write_text(dir, "chat_template.jinja", p->template);
}

static void remove_folder(const char *dir)
{
    static const char *const names[] = {"tokenizer.json", "tokenizer_config.json", "special_tokens_map.json",
                                        "generation_config.json", "chat_template.jinja"};
    char path[256];
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        snprintf(path, sizeof path, "%s/%s", dir, names[i]);
        unlink(path);
    }
    rmdir(dir);
}

static int open_parts(struct weights **w, const struct parts *p, struct qn_error *e)
{
    char dir[32];
    json_t *config = p->model_config ? json_loads(p->model_config, 0, NULL) : NULL;
    make_folder(dir, p);
    int rc = hf_tokenizer_open(w, dir, config, e);
    remove_folder(dir);
    json_decref(config);
    return rc;
}

struct loaded {
    struct weights *w;
    struct vocab *v;
};

static struct loaded load(const struct parts *p)
{
    struct loaded l = {0};
    struct qn_error e = {0};
    int rc = open_parts(&l.w, p, &e);
    if (rc == 0) rc = vocab_load(&l.v, l.w, &e);
    if (rc) print_error("%s\n", e.msg);
    assert_int_equal(rc, 0);
    return l;
}

static void unload(struct loaded *l)
{
    vocab_free(l->v);
    weights_close(l->w);
}

/* ids: ended by -1 */
static void expect_ids(const struct loaded *l, const char *text, unsigned flags, const qn_token *want)
{
    qn_token *ids;
    size_t n, n_want = 0;
    while (want[n_want] >= 0) n_want++;
    assert_int_equal(vocab_encode(l->v, text, strlen(text), flags, &ids, &n, NULL), 0);
    if (n != n_want || (n && memcmp(ids, want, n * sizeof *ids) != 0)) {
        print_error("'%s':", text);
        for (size_t i = 0; i < n; i++) print_error(" %d", ids[i]);
        fail_msg(" are wrong");
    }
    mem_free(ids);
}
#define IDS(...) ((const qn_token[]){__VA_ARGS__, -1})

static void expect(const struct parts *p, const char *text, const qn_token *want)
{
    struct loaded l = load(p);
    expect_ids(&l, text, VOCAB_PARSE_SPECIAL, want);
    unload(&l);
}

static void expect_refused(const struct parts *p, int code, const char *says)
{
    struct weights *w = NULL;
    struct qn_error e = {0};
    int rc = open_parts(&w, p, &e);
    if (rc != code || !strstr(e.msg, says)) print_error("%d: '%s' should be %d: '%s'\n", rc, e.msg, code, says);
    assert_int_equal(rc, code);
    assert_non_null(strstr(e.msg, says));
    assert_null(strchr(e.msg, '\n'));
    assert_null(w);
}

static void expect_str(const struct loaded *l, const char *key, const char *want)
{
    struct str s;
    assert_int_equal(meta_str(l->w, key, &s, NULL), want != NULL);
    if (want) assert_true(s.n == strlen(want) && memcmp(s.p, want, s.n) == 0);
}

/* ---- what text becomes ---- */

static void byte_level(void **state)
{
    (void)state;
    expect(&(struct parts){0}, "ab a c", IDS(4, 5, 3, 2));
    expect(&(struct parts){.model = "{\"vocab\":{" VOCAB "},\"merges\":[[\"a\",\"b\"],[\"Ġ\",\"a\"]]}"}, "ab a",
           IDS(4, 5));
    /* A whole piece that is a token, with and without the merges asked first. */
    expect(&(struct parts){0}, "abc", IDS(4, 2));
    expect(&(struct parts){.model = MODEL(",\"ignore_merges\":true")}, "abc", IDS(6));
    /* e and an acute accent, put together by NFC and otherwise left. */
    expect(&(struct parts){0}, "e\xCC\x81", IDS(9, 10, 11));
    expect(&(struct parts){.normalizer = "{\"type\":\"NFC\"}"}, "e\xCC\x81", IDS(7, 8));
    expect(&(struct parts){.normalizer = "{\"type\":\"Sequence\",\"normalizers\":[{\"type\":\"NFC\"}]}"}, "e\xCC\x81",
           IDS(7, 8));
    expect(&(struct parts){.normalizer = "{\"type\":\"Sequence\",\"normalizers\":[]}"}, "e\xCC\x81", IDS(9, 10, 11));
}

static void pre_tokenizers(void **state)
{
    (void)state;
#define SEQ(list) "{\"type\":\"Sequence\",\"pretokenizers\":[" list "]}"
#define QWEN2                                                                                                          \
    "(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\\\r\\\\n\\\\p{L}\\\\p{N}]?\\\\p{L}+|\\\\p{N}| ?[^\\\\s\\\\p{L}\\\\p{N}]+"        \
    "[\\\\r\\\\n]*|\\\\s*[\\\\r\\\\n]+|\\\\s+(?!\\\\S)|\\\\s+"
#define QWEN2_RAW                                                                                                      \
    "(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\r\\n\\\\p{L}\\\\p{N}]?\\\\p{L}+|\\\\p{N}| ?[^\\\\s\\\\p{L}\\\\p{N}]+"            \
    "[\\r\\n]*|\\\\s*[\\r\\n]+|\\\\s+(?!\\\\S)|\\\\s+"
    static const struct {
        const char *pre, *name;
    } cases[] = {
        {BYTE_PRE, "gpt-2"},
        {SEQ(BYTE_PRE), "gpt-2"},
        {LAST_PRE, "whole"},
        {SEQ("{\"type\":\"Digits\",\"individual_digits\":true}"
             "," BYTE_PRE),
         "smollm"},
        {SEQ(SPLIT(QWEN2, "Isolated", false) "," LAST_PRE), "qwen2"},
        {SEQ(SPLIT(QWEN2_RAW, "Isolated", false) "," LAST_PRE), "qwen2"},
        {SEQ(SPLIT(QWEN2, "Removed", true) "," LAST_PRE), "qwen2"},
        {SEQ(SEQ(SPLIT(QWEN2, "Isolated", false)) "," LAST_PRE), "qwen2"},
        {SEQ(SPLIT(" ?[^(\\\\s|[.,!?…。，、।۔،])]+", "Isolated", false) "," LAST_PRE), "bloom"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct loaded l = load(&(struct parts){.pre = cases[i].pre});
        expect_str(&l, "tokenizer.ggml.pre", cases[i].name);
        expect_str(&l, "tokenizer.ggml.model", "gpt2");
        unload(&l);
    }
    /* Nothing keeps a merge from crossing words where the text is one piece. */
    const char *model = "{\"vocab\":{" VOCAB ",\"bĠ\":12},\"merges\":[[\"b\",\"Ġ\"]]}";
    expect(&(struct parts){.model = model}, "b a", IDS(1, 3, 0));
    expect(&(struct parts){.model = model, .pre = LAST_PRE}, "b a", IDS(12, 0));
}

#define METASPACE(scheme, split)                                                                                       \
    "{\"type\":\"Metaspace\",\"replacement\":\"▁\",\"prepend_scheme\":\"" scheme "\",\"split\":" #split "}"

static void characters(void **state)
{
    (void)state;
    const char *x = "[" ADDED(263, "<x>", "") "]";
    struct parts none = {.by_char = true, .added = x}, each = none, always = none, first = none, never = none,
                 cut = none;
    each.normalizer = "{\"type\":\"Sequence\",\"normalizers\":[" PREPEND "," REPLACE "]}";
    always.normalizer = first.normalizer = never.normalizer = cut.normalizer = "null";
    always.pre = METASPACE("always", false);
    first.pre = METASPACE("first", false);
    never.pre = METASPACE("never", false);
    cut.pre = METASPACE("never", true);
    expect(&none, "ab a<x>a a", IDS(AB, MARK_A, 263, A, MARK_A));
    expect(&never, "ab a<x>a a", IDS(AB, MARK_A, 263, A, MARK_A));
    expect(&each, "a<x>a", IDS(MARK_A, 263, MARK_A));
    expect(&each, " a", IDS(MARK2, A));
    each.pre = METASPACE("first", false); /* finds nothing missing */
    expect(&each, "a<x>a", IDS(MARK_A, 263, MARK_A));
    expect(&always, "a<x>a", IDS(MARK_A, 263, MARK_A));
    expect(&always, " a", IDS(MARK_A));
    expect(&first, "a<x>a", IDS(MARK_A, 263, A));
    expect(&first, " a<x> a", IDS(MARK_A, 263, MARK_A));
    expect(&first, "<x>a", IDS(263, A));
    expect(&none, "b  a", IDS(B, MARK2, A));
    expect(&cut, "b  a", IDS(B, MARK, MARK_A)); /* words begin with their space, so two never meet */
    expect(&none, "é", IDS(1 + 0xC3, 1 + 0xA9));
    /* Gemma's cut at spaces, of which there are none left. */
    struct parts split = none;
    split.pre =
        "{\"type\":\"Split\",\"pattern\":{\"String\":\" \"},\"behavior\":\"MergedWithPrevious\",\"invert\":false}";
    expect(&split, "b  a", IDS(B, MARK2, A));
}

static void odd_merges(void **state)
{
    (void)state;
    /* Texts with spaces, which no text has after the byte alphabet; written as "left right" the two would be one. */
    const char *spaces = "{\"vocab\":{" VOCAB ",\"a b\":12,\"b c\":13,\"a bc\":14,\"ab c\":15},"
                         "\"merges\":[[\"a b\",\"c\"],[\"a\",\"b c\"],[\"a\",\"b\"]]}";
    expect(&(struct parts){.model = spaces}, "abc", IDS(4, 2));
    char model[8192], *at;
    strcpy(model, char_model());
    at = strstr(model, "},\"merges\"");
    strcpy(at, ",\"<0xC3><0xA9>\":263},\"merges\":[[\"<0xC3>\",\"<0xA9>\"]]}");
    expect_refused(&(struct parts){.by_char = true, .model = model}, QN_EUNSUP, "number 1 joins byte tokens");
}

/* A byte has a token, or as Gemma's tab is a character that has one. */
static void bytes(void **state)
{
    (void)state;
    char model[8192], *at;
    strcpy(model, char_model());
    at = strstr(model, "<0x09>\":10");
    memcpy(at, "\\t\":10    ", 10);
    expect(&(struct parts){.by_char = true, .model = model}, "a\ta", IDS(A, 10, A));
    strcpy(model, char_model());
    at = strstr(model, "<0xC3>");
    at[3] = 'Q';
    expect_refused(&(struct parts){.by_char = true, .model = model}, QN_EUNSUP, "no token '<0xC3>'");
    at[3] = 'C';
    strstr(model, "<0xFF>")[3] = 'Q'; /* never in UTF-8 */
    expect(&(struct parts){.by_char = true, .model = model}, "a", IDS(A));
}

static void decoding_takes_the_space_back(void **state)
{
    (void)state;
    static const struct {
        const char *scheme, *text, *back;
    } cases[] = {{"never", " a<x> a", " a<x> a"}, {"first", "a<x> a", "a<x> a"}, {"always", "a<x>a", "a<x>a"}};
    for (size_t i = 0; i < 3; i++) {
        char pre[200];
        struct buf out = {0};
        qn_token *ids;
        size_t n;
        snprintf(pre, sizeof pre,
                 "{\"type\":\"Metaspace\",\"replacement\":\"▁\",\"prepend_scheme\":\"%s\",\"split\":false}",
                 cases[i].scheme);
        struct loaded l = load(
            &(struct parts){.by_char = true, .normalizer = "null", .pre = pre, .added = "[" ADDED(263, "<x>", "") "]"});
        const char *text = cases[i].text;
        assert_int_equal(vocab_encode(l.v, text, strlen(text), VOCAB_PARSE_SPECIAL, &ids, &n, NULL), 0);
        assert_int_equal(detok_all(l.v, ids, n, DETOK_SPECIAL, &out, NULL), 0);
        assert_string_equal(out.data, cases[i].back);
        buf_deinit(&out);
        mem_free(ids);
        unload(&l);
    }
}

/* ---- added tokens ---- */

static void added_tokens(void **state)
{
    (void)state;
    struct loaded l = load(&(struct parts){
        .added = "[" ADDED(
            12, "<s>",
            "") ",{\"id\":13,\"content\":\"<think>\",\"special\":false},"
                "{\"id\":14,\"content\":\"<|fim|>\",\"special\":false},{\"id\":15,\"content\":\"<｜User｜>\"},"
                "{\"id\":6,\"content\":\"abc\",\"special\":false}]"});
    expect_ids(&l, "a<s>b", VOCAB_PARSE_SPECIAL, IDS(0, 12, 1));
    expect_ids(&l, "a<think>abca", 0, IDS(0, 13, 6, 0)); /* user-defined: found whoever wrote it */
    assert_true(vocab_is_control(l.v, 12) && !vocab_is_control(l.v, 13) && vocab_is_special(l.v, 13));
    assert_true(vocab_is_control(l.v, 14) && vocab_is_control(l.v, 15)); /* by their looks */
    assert_true(!vocab_is_control(l.v, 6) && vocab_is_special(l.v, 6));
    unload(&l);
}

static void stripping(void **state)
{
    (void)state;
    struct parts p = {.added =
                          "[{\"id\":12,\"content\":\"<l>\",\"special\":true,\"lstrip\":true},"
                          "{\"id\":13,\"content\":\"<r>\",\"special\":true,\"rstrip\":true}," ADDED(14, "<n>", "") "]"};
    struct loaded l = load(&p);
    expect_ids(&l, "a <n> a", VOCAB_PARSE_SPECIAL, IDS(0, 3, 14, 5));
    expect_ids(&l, "a \n\xE3\x80\x80<l> a", VOCAB_PARSE_SPECIAL, IDS(0, 12, 5));
    expect_ids(&l, "a <r> \t\xC2\xA0\xE3\x80\x80 a", VOCAB_PARSE_SPECIAL, IDS(0, 3, 13, 0));
    expect_ids(&l, " <l>", VOCAB_PARSE_SPECIAL, IDS(12));
    expect_ids(&l, "<r> ", VOCAB_PARSE_SPECIAL, IDS(13));
    expect_ids(&l, "<r> <l>", VOCAB_PARSE_SPECIAL, IDS(13, 12));
    expect_ids(&l, "\xC3\xA9<l>", VOCAB_PARSE_SPECIAL, IDS(7, 8, 12)); /* the end of a character is no space */
    unload(&l);
}

static void later_tokens(void **state)
{
    (void)state;
    struct loaded l = load(&(struct parts){
        .added = "[" ADDED(12, "<s>", "") "]",
        .config = "{\"model_max_length\":1000000000000000019884624838656,\"added_tokens_decoder\":{"
                  "\"13\":{\"content\":\"<t>\",\"special\":true},\"12\":{\"content\":\"<s>\",\"special\":false}}}"});
    expect_ids(&l, "<t><s>", VOCAB_PARSE_SPECIAL, IDS(13, 12));
    assert_true(vocab_is_control(l.v, 12)); /* as tokenizer.json says */
    unload(&l);
}

static void holes(void **state)
{
    (void)state;
    struct loaded l =
        load(&(struct parts){.added = "[" ADDED(14, "<s>", "") "]", .model_config = "{\"vocab_size\":20}"});
    assert_int_equal(vocab_n_tokens(l.v), 20);
    struct str s = vocab_token_text(l.v, 12);
    assert_true(s.n == 7 && !memcmp(s.p, "[PAD12]", 7));
    expect_ids(&l, "a<s>", VOCAB_PARSE_SPECIAL, IDS(0, 14));
    assert_false(vocab_is_special(l.v, 19));
    unload(&l);
    /* An added token without a row; a size of the text part of a larger model. */
    l = load(&(struct parts){.added = "[" ADDED(12, "<", "") "," ADDED(13, "<a", "") "]",
                             .config = "{\"eos_token\":\"<a\"}",
                             .model_config = "{\"text_config\":{\"vocab_size\":13}}"});
    assert_int_equal(vocab_n_tokens(l.v), 13);
    expect_ids(&l, "<a", VOCAB_PARSE_SPECIAL, IDS(12, 0));
    assert_true(vocab_eos(l.v) < 0);
    unload(&l);
}

/* ---- roles and templates ---- */

#define AROUND                                                                                                         \
    "{\"type\":\"Sequence\",\"processors\":[{\"type\":\"ByteLevel\"},{\"type\":\"TemplateProcessing\",\"single\":["    \
    "{\"SpecialToken\":{\"id\":\"<s>\",\"type_id\":0}},{\"Sequence\":{\"id\":\"A\",\"type_id\":0}},"                   \
    "{\"SpecialToken\":{\"id\":\"</s>\",\"type_id\":0}}],\"pair\":[],\"special_tokens\":{"                             \
    "\"<s>\":{\"id\":\"<s>\",\"ids\":[12]},\"</s>\":{\"id\":\"</s>\",\"ids\":[13]}}}]}"
#define THREE "[" ADDED(12, "<s>", "") "," ADDED(13, "</s>", "") "," ADDED(14, "<x>", "") "]"

static void roles(void **state)
{
    (void)state;
    struct loaded l = load(&(struct parts){.added = THREE, .post = AROUND, .config = "{\"eos_token\":\"</s>\"}"});
    assert_int_equal(vocab_bos(l.v), 12);
    assert_int_equal(vocab_eos(l.v), 13);
    expect_ids(&l, "a", VOCAB_ADD_SPECIAL, IDS(12, 0, 13));
    unload(&l);
    l = load(
        &(struct parts){.added = THREE,
                        .post = AROUND,
                        .config = "{\"bos_token\":{\"content\":\"<s>\"},\"eos_token\":null,\"add_bos_token\":false}",
                        .special_map = "{\"eos_token\":{\"content\":\"</s>\"},\"pad_token\":\"<x>\"}"});
    assert_int_equal(vocab_eos(l.v), 13);
    assert_int_equal(vocab_role(l.v, VOCAB_PAD), 14);
    expect_ids(&l, "a", VOCAB_ADD_SPECIAL, IDS(0, 13));
    unload(&l);
    l = load(&(struct parts){.added = THREE,
                             .config = "{\"bos_token\":\"<s>\",\"tokenizer_class\":\"LlamaTokenizerFast\"}",
                             .model_config = "{\"eos_token_id\":[13],\"vocab_size\":15}",
                             .generation = "{\"eos_token_id\":[14,13,99,-1]}"});
    assert_true(vocab_add_bos(l.v) && !vocab_add_eos(l.v));
    assert_int_equal(vocab_eos(l.v), 14);
    assert_true(vocab_is_eog(l.v, 13) && vocab_is_eog(l.v, 14) && !vocab_is_eog(l.v, 12));
    unload(&l);
    /* No token gets a role by its place: nothing is named, and 11 is a control token. */
    l = load(&(struct parts){.added = "[" ADDED(11, "ģ", "") "]"});
    assert_true(vocab_bos(l.v) < 0 && vocab_eos(l.v) < 0 && !vocab_add_bos(l.v));
    unload(&l);
    l = load(&(struct parts){.by_char = true});
    assert_int_equal(vocab_role(l.v, VOCAB_UNK), 0);
    assert_true(vocab_bos(l.v) < 0 && !vocab_add_bos(l.v));
    unload(&l);
}

static void templates(void **state)
{
    (void)state;
    const char *two =
        "{\"chat_template\":[{\"name\":\"default\",\"template\":\"A\"},{\"name\":\"tool_use\",\"template\":\"B\"}]}";
    struct loaded l = load(&(struct parts){0});
    expect_str(&l, "tokenizer.chat_template", NULL);
    unload(&l);
    l = load(&(struct parts){.config = "{\"chat_template\":\"A\"}"});
    expect_str(&l, "tokenizer.chat_template", "A");
    unload(&l);
    l = load(&(struct parts){.config = two});
    expect_str(&l, "tokenizer.chat_template", "A");
    expect_str(&l, "tokenizer.chat_template.tool_use", "B");
    unload(&l);
    l = load(&(struct parts){.config = two, .template = "{{ bos_token }}\n"});
    expect_str(&l, "tokenizer.chat_template", "{{ bos_token }}\n");
    expect_str(&l, "tokenizer.chat_template.tool_use", "B");
    unload(&l);
}

/* ---- what is refused ---- */

static void unsupported(void **state)
{
    (void)state;
    static const struct {
        struct parts p;
        const char *says;
    } cases[] = {
        {{.normalizer = "{\"type\":\"Lowercase\"}"}, "normalizer Lowercase is not supported"},
        {{.normalizer = "{\"type\":\"NFKC\"}"}, "NFKC"},
        {{.normalizer = REPLACE}, "U+2581"},
        {{.normalizer = "{\"type\":\"Replace\",\"pattern\":{\"Regex\":\" +\"},\"content\":\" \"}"}, "Replace"},
        {{.normalizer = "{\"type\":\"Prepend\",\"prepend\":\"_\"}", .by_char = true}, "Prepend of anything but"},
        {{.by_char = true, .normalizer = "{\"type\":\"Sequence\",\"normalizers\":[{\"type\":\"NFC\"}," REPLACE "]}"},
         "NFC"},
        {{.by_char = true, .normalizer = "null"}, "neither ByteLevel nor U+2581"},
        {{.pre = "{\"type\":\"Whitespace\"}"}, "pre_tokenizer Whitespace is not supported"},
        {{.pre = "{\"type\":\"ByteLevel\",\"add_prefix_space\":true}"}, "add_prefix_space"},
        {{.pre = "{\"type\":\"ByteLevel\"}"}, "add_prefix_space"},
        {{.pre = SEQ(SPLIT("[a-z]+", "Isolated", false) "," LAST_PRE)}, "'[a-z]+': not known"},
        {{.pre = SEQ(SPLIT(QWEN2 "|x", "Isolated", false) "," LAST_PRE)}, "not known"},
        {{.pre = SEQ(SPLIT(QWEN2, "Isolated", false) "," BYTE_PRE)}, "2 patterns"},
        {{.pre = SEQ(SPLIT(QWEN2, "Isolated", true) "," LAST_PRE)}, "inverted"},
        {{.pre = SEQ(SPLIT(QWEN2, "Removed", false) "," LAST_PRE)}, "behavior Removed"},
        {{.pre = SEQ(SPLIT(QWEN2, "MergedWithNext", false) "," LAST_PRE)}, "behavior MergedWithNext"},
        {{.pre = SEQ(SPLIT(" ?[^(\\\\s|[.,!?…。，、।۔،])]+", "Removed", true) "," LAST_PRE)}, "Removed"},
        {{.pre = SEQ(BYTE_PRE "," SPLIT("a", "Isolated", false))}, "after ByteLevel"},
        {{.pre = SEQ(BYTE_PRE "," LAST_PRE)}, "after another"},
        {{.pre = SEQ(SPLIT("a", "Isolated", false))}, "neither ByteLevel nor U+2581"},
        {{.by_char = true, .pre = SPLIT("a", "Isolated", false)}, "Split by a"},
        {{.by_char = true, .pre = "{\"type\":\"Split\",\"pattern\":{\"String\":\"a\"},\"behavior\":\"Isolated\"}"},
         "by the text a"},
        {{.by_char = true, .pre = METASPACE("sometimes", false)}, "sometimes"},
        {{.by_char = true, .pre = "{\"type\":\"Metaspace\",\"replacement\":\"_\"}"}, "Metaspace"},
        {{.post = "{\"type\":\"BertProcessing\",\"sep\":[\"a\",0],\"cls\":[\"b\",1]}"}, "BertProcessing"},
        {{.decoder = "{\"type\":\"WordPiece\"}"}, "decoder WordPiece"},
        {{.decoder = "{\"type\":\"ByteFallback\"}"}, "does not go with a byte-level"},
        {{.by_char = true, .decoder = "{\"type\":\"ByteLevel\"}"}, "does not go with a character-level"},
        {{.model = "{\"type\":\"Unigram\",\"vocab\":[[\"a\",-1.5]]}"}, "model Unigram"},
        {{.model = "{\"type\":\"WordPiece\",\"vocab\":{\"a\":0}}"}, "model WordPiece"},
        {{.model = MODEL(",\"dropout\":0.1")}, "dropout"},
        {{.model = MODEL(",\"end_of_word_suffix\":\"</w>\"")}, "suffixes"},
        {{.model = MODEL(",\"byte_fallback\":true")}, "byte_fallback"},
        {{.model = MODEL(",\"unk_token\":\"a\",\"fuse_unk\":true")}, "fuse_unk"},
        {{.by_char = true, .model = MODEL("")}, "neither ByteLevel nor byte_fallback"},
        {{.by_char = true, .model = MODEL(",\"byte_fallback\":true")}, "no token '<0x00>'"},
        {{.by_char = true, .model = MODEL(",\"byte_fallback\":true,\"ignore_merges\":true")}, "ignore_merges"},
        {{.added = "[{\"id\":12,\"content\":\"<m>\",\"single_word\":true}]"}, "'<m>': single_word"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) expect_refused(&cases[i].p, QN_EUNSUP, cases[i].says);
}

static void malformed(void **state)
{
    (void)state;
#define ONE(vocab, merges) "{\"type\":\"BPE\",\"vocab\":" vocab ",\"merges\":" merges "}"
    static const struct {
        struct parts p;
        const char *says;
    } cases[] = {
        {{.normalizer = "7"}, "normalizer is not an object"},
        {{.normalizer = "{\"type\":\"Sequence\"}"}, "no list normalizers"},
        {{.normalizer = "{\"type\":\"Sequence\",\"normalizers\":[1]}"}, "normalizer is not an object"},
        {{.pre = "{\"type\":3}"}, "pre_tokenizer is not an object with a type"},
        {{.pre = "{\"type\":\"Split\",\"behavior\":\"Isolated\"}"}, "without a pattern"},
        {{.post = "{\"type\":\"TemplateProcessing\"}"}, "without single"},
        {{.post = "{\"type\":\"TemplateProcessing\",\"single\":[]}"}, "without the text"},
        {{.post = "{\"type\":\"TemplateProcessing\",\"single\":[{\"SpecialToken\":{\"id\":\"q\"}}]}"},
         "'q' is not there"},
        {{.model = "null"}, "no model"},
        {{.model = "[]"}, "no model"},
        {{.model = ONE("[]", "[]")}, "model.vocab is no object"},
        {{.model = ONE("{}", "[]")}, "model.vocab is no object"},
        {{.model = ONE("{\"a\":0}", "{}")}, "model.merges is no list"},
        {{.model = ONE("{\"a\":\"0\"}", "[]")}, "id of token 'a' is no integer"},
        {{.model = ONE("{\"a\":1.0}", "[]")}, "id of token 'a' is no integer"},
        {{.model = ONE("{\"a\":-1}", "[]")}, "token 'a' has id -1"},
        {{.model = ONE("{\"a\":1048576}", "[]")}, "has id 1048576"},
        {{.model = ONE("{\"a\":9223372036854775807}", "[]")}, "has id 9223372036854775807"},
        {{.model = ONE("{\"a\":92233720368547758070}", "[]")}, "no integer"},
        {{.model = ONE("{\"a\":0,\"b\":0}", "[]")}, "'a' and 'b' both have the id 0"},
        {{.model = ONE("{\"a\":0,\"a\":1}", "[]")}, "duplicate"},
        {{.model = ONE("{\"a\":0}", "[\"a b\"]")}, "number 1, 'a' and 'b', does not join"},
        {{.model = ONE("{\"a\":0,\"b\":1}", "[\"a b\"]")}, "does not join"},
        {{.model = ONE("{\"a\":0}", "[\"a\"]")}, "number 1 is not a pair"},
        {{.model = ONE("{\"a\":0}", "[\"a b c\"]")}, "not a pair"},
        {{.model = ONE("{\"a\":0}", "[\" a\"]")}, "not a pair"},
        {{.model = ONE("{\"a\":0}", "[7]")}, "not a pair"},
        {{.model = ONE("{\"a\":0}", "[[\"a\"]]")}, "not a pair"},
        {{.model = ONE("{\"a\":0}", "[[\"a\",\"\"]]")}, "not a pair"},
        {{.model = ONE("{\"a\":0,\"b\":1,\"ab\":2}", "[\"a b\",\"a b\"]")}, "number 2, 'a b', is there twice"},
        {{.added = "{}"}, "added_tokens is no list"},
        {{.added = "[5]"}, "number 1 has no content"},
        {{.added = "[{\"id\":12}]"}, "number 1 has no content"},
        {{.added = "[{\"content\":\"x\"}]"}, "id of token 'x' is no integer"},
        {{.added = "[{\"id\":12,\"content\":\"\"}]"}, "added token 12 has no content"},
        {{.added = "[{\"id\":12,\"content\":\"x\",\"special\":1}]"}, "special is no bool"},
        {{.added = "[" ADDED(0, "x", "") "]"}, "'a' and 'x' both have the id 0"},
        {{.added = "[" ADDED(12, "a", "") "]"}, "token 'a' has the ids 0 and 12"},
        {{.added = "[" ADDED(12, "x", "") "," ADDED(13, "x", "") "]"}, "token 'x' has the ids 12 and 13"},
        {{.config = "{\"added_tokens_decoder\":{\"x\":{\"content\":\"y\"}}}"}, "'x' is no token id"},
        {{.config = "{\"added_tokens_decoder\":{\"-1\":{\"content\":\"y\"}}}"}, "'-1' is no token id"},
        {{.config = "{\"added_tokens_decoder\":{\"9999999\":{\"content\":\"y\"}}}"}, "'9999999' is no token id"},
        {{.config = "[]"}, "tokenizer_config.json: not a JSON object"},
        {{.config = "{\"chat_template\":7}"}, "no string"},
        {{.config = "{\"chat_template\":[{\"template\":\"x\"}]}"}, "number 1 has no name"},
        {{.generation = "{"}, "generation_config.json: line 1"},
        {{.model_config = "{\"vocab_size\":0}"}, "vocab_size is no integer from 1"},
        {{.model_config = "{\"vocab_size\":1e9}"}, "vocab_size is no integer from 1"},
        {{.model_config = "{\"vocab_size\":5}"}, "config.json's vocab_size is 5"},
        {{.whole = "{\"a\":\"\xFF\"}", .whole_bytes = 9}, "tokenizer.json: line 1"},
        {{.whole = "", .whole_bytes = 0}, "tokenizer.json"},
        {{.whole = "7", .whole_bytes = 1}, "tokenizer.json"},
        {{.whole = "{}", .whole_bytes = 2}, "tokenizer.json: no model"},
        {{.whole = "{\"model\":{\"vocab\":{\"a\\u0000\":1}}}", .whole_bytes = 34}, "tokenizer.json: line 1"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) expect_refused(&cases[i].p, QN_EDATA, cases[i].says);
}

static void too_many(void **state)
{
    (void)state;
    static char config[8192] = "{\"chat_template\":[", ids[1024] = "{\"eos_token_id\":[0";
    for (int i = 0; i < 65; i++)
        sprintf(config + strlen(config), "%s{\"name\":\"t%d\",\"template\":\"\"}", i ? "," : "", i);
    strcat(config, "]}");
    expect_refused(&(struct parts){.config = config}, QN_EDATA, "65 chat templates (limit 64)");
    for (int i = 0; i < 32; i++) strcat(ids, ",0");
    strcat(ids, "]}");
    expect_refused(&(struct parts){.generation = ids}, QN_EDATA, "33 ids (limit 32)");
}

static void deep(void **state)
{
    (void)state;
    enum { DEPTH = 1000000 };
    char *text = mem_alloc(2 * DEPTH + 100);
    assert_non_null(text);
    static const char head[] = "{\"model\":{\"type\":\"BPE\"},\"normalizer\":";
    memcpy(text, head, sizeof head - 1);
    memset(text + sizeof head - 1, '[', DEPTH);
    memset(text + sizeof head - 1 + DEPTH, ']', DEPTH);
    text[sizeof head - 1 + 2 * DEPTH] = '}';
    expect_refused(&(struct parts){.whole = text, .whole_bytes = sizeof head + 2 * DEPTH}, QN_EDATA, "depth");
    /* As deep as the library allows: sequences in sequences. */
    size_t n = 0, depth = 1000;
    n += (size_t)sprintf(text + n, "%s", head);
    for (size_t i = 0; i < depth; i++) n += (size_t)sprintf(text + n, "{\"type\":\"Sequence\",\"normalizers\":[");
    for (size_t i = 0; i < depth; i++) n += (size_t)sprintf(text + n, "]}");
    n += (size_t)sprintf(text + n, "}");
    expect_refused(&(struct parts){.whole = text, .whole_bytes = n}, QN_EUNSUP, "neither ByteLevel nor");
    mem_free(text);
}

static void no_file(void **state)
{
    (void)state;
    struct weights *w;
    struct qn_error e;
    assert_int_equal(hf_tokenizer_open(&w, "/nonexistent", NULL, &e), QN_ENOINPUT);
    assert_non_null(strstr(e.msg, "tokenizer.json"));
}

static void no_memory(void **state)
{
    (void)state;
    char dir[32];
    make_folder(dir, &(struct parts){.added = THREE,
                                     .post = AROUND,
                                     .config = "{\"eos_token\":\"</s>\"}",
                                     .template = "x",
                                     .generation = "{\"eos_token_id\":13}"});
    for (uint64_t i = 1;; i++) {
        struct meta_build b = {0};
        struct qn_error e = {0};
        mem_fault_set(i);
        int rc = hf_tokenizer_meta(&b, dir, NULL, &e);
        bool hit = mem_fault_hit();
        mem_fault_set(0);
        meta_build_deinit(&b);
        if (rc != (hit ? QN_ENOMEM : 0)) print_error("%d at %d: %s\n", rc, (int)i, e.msg);
        assert_int_equal(rc, hit ? QN_ENOMEM : 0);
        if (!hit) break;
    }
    remove_folder(dir);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(byte_level),   cmocka_unit_test(pre_tokenizers),
        cmocka_unit_test(characters),   cmocka_unit_test(bytes),
        cmocka_unit_test(odd_merges),   cmocka_unit_test(decoding_takes_the_space_back),
        cmocka_unit_test(added_tokens), cmocka_unit_test(stripping),
        cmocka_unit_test(later_tokens), cmocka_unit_test(holes),
        cmocka_unit_test(roles),        cmocka_unit_test(templates),
        cmocka_unit_test(unsupported),  cmocka_unit_test(malformed),
        cmocka_unit_test(too_many),     cmocka_unit_test(deep),
        cmocka_unit_test(no_file),      cmocka_unit_test(no_memory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
