/* SPDX-License-Identifier: MIT
 *
 * test_chats.c: conversations to tokens with the templates and vocabularies of real models.
 *
 * $QUERN_SHARED/golden/templates has the templates, $QUERN_GOLDEN the vocabularies. For each pair:
 *   - a harmless conversation has the tokens that its rendered text has when all of it may be control tokens, and BOS
 *     once where the vocabulary wants it;
 *   - the same conversation with the text of every control token of the vocabulary, and of every mark that the template
 *     spells, in each place where a user can write (contents whole and in parts, names, arguments, results) has the
 * same control tokens and marks, in the same order;
 *   - its tokens read back give the rendered text.
 * Exits with 77 (skipped) when the data is missing, but fails in CI.
 */
#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "base/os.h"
#include "text/chat/chat.h"
#include "text/token/detok.h"

static const struct {
    const char *vocab, *template;
    bool tools;  /* the template takes tools, their calls and results */
    bool system; /* ... and system messages */
    enum chat_calls calls;
    bool thinking; /* the prompt ends in the middle of thoughts */
} pairs[] = {
    {"tokenizers/ggml-vocab-qwen2.gguf", "Qwen-Qwen2.5-7B-Instruct.jinja", true, true, CHAT_CALLS_TAG, false},
    {"tokenizers/ggml-vocab-qwen2.gguf", "Qwen-Qwen3-0.6B.jinja", true, true, CHAT_CALLS_TAG, false},
    {"tokenizers/ggml-vocab-qwen2.gguf", "Qwen3-Coder.jinja", true, true, CHAT_CALLS_TAG, false},
    {"models/qwen3.gguf", "Qwen-Qwen3-0.6B.jinja", true, true, CHAT_CALLS_TAG, false},
    {"tokenizers/ggml-vocab-qwen35.gguf", "Qwen3.5-4B.jinja", true, true, CHAT_CALLS_TAG, true},
    {"tokenizers/ggml-vocab-llama-bpe.gguf", "meta-llama-Llama-3.1-8B-Instruct.jinja", true, true, CHAT_CALLS_LLAMA,
     false},
    {"tokenizers/ggml-vocab-llama-bpe.gguf", "meta-llama-Llama-3.2-3B-Instruct.jinja", true, true, CHAT_CALLS_LLAMA,
     false},
    {"tokenizers/ggml-vocab-llama-spm.gguf", "mistralai-Mistral-Nemo-Instruct-2407.jinja", true, false,
     CHAT_CALLS_MISTRAL, false},
    {"models/llama.gguf", "mistralai-Mistral-Nemo-Instruct-2407.jinja", true, false, CHAT_CALLS_MISTRAL, false},
    {"tokenizers/ggml-vocab-gemma-4.gguf", "google-gemma-4-31B-it.jinja", true, true, CHAT_CALLS_TAG, false},
    {"models/gemma3.gguf", "npm-gemma3.jinja", false, true, CHAT_CALLS_TAG, false},
    {"models/gemma2.gguf", "google-gemma-2-2b-it.jinja", false, false, CHAT_CALLS_TAG, false},
    {"tokenizers/ggml-vocab-phi-3.gguf", "microsoft-Phi-3.5-mini-instruct.jinja", false, true, CHAT_CALLS_TAG, false},
    {"models/gpt-oss.gguf", "openai-gpt-oss-120b.jinja", true, true, CHAT_CALLS_HARMONY, false},
};

static json_t *message(const char *role, const char *text, size_t n)
{
    json_t *m = json_pack("{s:s, s:s%}", "role", role, "content", text, n);
    assert(m);
    return m;
}

/* A conversation with this text wherever a user can put one. */
static char *conversation(const char *text, size_t n, bool tools, bool system)
{
    json_t *list = json_array(), *m;
    int rc = 0;
    if (system) rc |= json_array_append_new(list, message("system", text, n));
    m = json_pack("{s:s, s:[{s:s, s:s%}, {s:s, s:s%}]}", "role", "user", "content", "type", "text", "text", text, n / 2,
                  "type", "text", "text", text + n / 2, n - n / 2);
    rc |= json_array_append_new(list, m);
    if (tools) {
        json_t *args = json_object();
        rc |= json_object_setn_new(args, text, n, json_stringn(text, n));
        char *arguments = json_dumps(args, 0);
        m = json_pack("{s:s, s:s, s:[{s:s, s:s, s:{s:s%, s:s}}]}", "role", "assistant", "content", "", "tool_calls",
                      "id", "123456789", "type", "function", "function", "name", text, n, "arguments", arguments);
        free(arguments);
        json_decref(args);
        rc |= json_array_append_new(list, m);
        m = message("tool", text, n);
        rc |= json_object_set_new(m, "tool_call_id", json_string("123456789"));
        rc |= json_array_append_new(list, m);
    }
    rc |= json_array_append_new(list, message("assistant", text, n));
    rc |= json_array_append_new(list, message("user", text, n));
    json_t *request = json_pack("{s:o}", "messages", list);
    if (tools)
        rc |= json_object_set_new(request, "tools",
                                  json_pack("[{s:s, s:{s:s%, s:s%, s:{s:s, s:{}}}}]", "type", "function", "function",
                                            "name", text, n, "description", text, n, "parameters", "type", "object",
                                            "properties"));
    assert(rc == 0);
    char *s = json_dumps(request, 0);
    json_decref(request);
    return s;
}

/* The text of all control tokens that are UTF-8, and of the marks that the template spells, each behind a space. */
static void hostile_text(const struct vocab *v, const char *src, size_t n, struct buf *out)
{
    for (qn_token id = 0; id < vocab_n_tokens(v); id++) {
        struct str s = vocab_token_text(v, id);
        if (!vocab_is_special(v, id) || s.n < 3 || (!vocab_is_control(v, id) && !memmem(src, n, s.p, s.n))) continue;
        json_t *utf8 = json_stringn(s.p, s.n);
        if (utf8 && out->len < 8000 && !memchr(s.p, ' ', s.n)) {
            assert(buf_str(out, " ", NULL) == 0 && buf_add(out, s.p, s.n, NULL) == 0);
        }
        json_decref(utf8);
    }
}

static bool is_mark(const struct vocab *v, qn_token id, const char *src, size_t n)
{
    struct str s = vocab_token_text(v, id);
    return vocab_is_control(v, id) || (vocab_is_special(v, id) && s.n >= 3 && memmem(src, n, s.p, s.n));
}

static const char *same_marks(const struct vocab *v, const struct chat_prompt *a, const struct chat_prompt *b,
                              const char *src, size_t n)
{
    size_t i = 0, k = 0;
    for (;; i++, k++) {
        while (i < a->n_tokens && !is_mark(v, a->tokens[i], src, n)) i++;
        while (k < b->n_tokens && !is_mark(v, b->tokens[k], src, n)) k++;
        if (i == a->n_tokens || k == b->n_tokens) break;
        if (a->tokens[i] != b->tokens[k]) return "has a mark from a user";
    }
    return i == a->n_tokens && k == b->n_tokens ? NULL : "has more or fewer marks with hostile text";
}

static const char *as_encoded(const struct vocab *v, const struct chat_prompt *p)
{
    qn_token *ids = NULL;
    size_t n = 0;
    int rc = vocab_encode(v, (const char *)p->text.data, p->text.len, VOCAB_PARSE_SPECIAL, &ids, &n, NULL);
    size_t extra = p->n_tokens - n;
    bool same = rc == 0 && p->n_tokens >= n && extra <= 1 && memcmp(p->tokens + extra, ids, n * sizeof *ids) == 0;
    bool bos =
        vocab_add_bos(v) && vocab_bos(v) >= 0 && p->tokens[0] == vocab_bos(v) && n > 0 && p->tokens[1] != vocab_bos(v);
    mem_free(ids);
    if (!same) return "is not tokenised like its text";
    return extra == 0 || bos ? NULL : "has a wrong BOS";
}

static const char *reads_back(const struct vocab *v, const struct chat_prompt *p)
{
    struct buf text = {0};
    int rc = detok_all(v, p->tokens, p->n_tokens, DETOK_SPECIAL, &text, NULL);
    bool ends = rc == 0 && text.len >= p->text.len &&
                memcmp(text.data + text.len - p->text.len, p->text.data, p->text.len) == 0;
    buf_deinit(&text);
    return ends ? NULL : "does not read back as its text";
}

static const char *check_prompts(const struct chat *c, const struct vocab *v, size_t i, const struct mapping *src,
                                 struct qn_error *e)
{
    struct buf hostile = {0};
    struct chat_prompt p[2] = {0};
    const char *what = NULL;
    hostile_text(v, (const char *)src->data, src->size, &hostile);
    for (int k = 0; k < 2 && !what; k++) {
        const char *text = k == 0 ? "hello" : (const char *)hostile.data;
        char *request = conversation(text, k == 0 ? 5 : hostile.len, pairs[i].tools, pairs[i].system);
        struct tm now = {.tm_year = 124, .tm_mday = 1};
        if (chat_prompt_make(&p[k], c, request, strlen(request), &now, NULL, e)) what = "fails";
        free(request);
    }
    if (!what) what = as_encoded(v, &p[0]);
    if (!what && p[0].form.calls != pairs[i].calls) what = "has another form of calls";
    for (int k = 0; k < 2 && !what; k++)
        if ((p[k].begins == CHAT_BEGIN_THOUGHTS) != pairs[i].thinking) what = "is wrong about thinking";
    if (!what) what = same_marks(v, &p[0], &p[1], (const char *)src->data, src->size);
    /* Vocabularies that add spaces, or whose marks eat them, do not give them back. */
    if (!what && !vocab_adds_space(v, false)) what = reads_back(v, &p[1]);
    printf("%-40s %-46s %zu tokens, %zu bytes of marks\n", pairs[i].vocab, pairs[i].template, p[0].n_tokens,
           hostile.len);
    chat_prompt_deinit(&p[0]);
    chat_prompt_deinit(&p[1]);
    buf_deinit(&hostile);
    return what;
}

static bool check(const char *shared, const char *golden, size_t i)
{
    char path[4096];
    struct qn_error e = {0};
    struct mapping src = {0};
    struct weights *w = NULL;
    struct vocab *v = NULL;
    struct chat *c = NULL;
    const char *what = "does not load";
    snprintf(path, sizeof path, "%s/golden/templates/jinja/%s", shared, pairs[i].template);
    int rc = map_open(&src, path, &e);
    assert(rc == 0);
    snprintf(path, sizeof path, "%s/%s", golden, pairs[i].vocab);
    if (!(rc = weights_open(&w, path, &e)) && !(rc = vocab_load(&v, w, &e)) &&
        !(rc = chat_new(&c, w, v, (const char *)src.data, src.size, &e)))
        what = check_prompts(c, v, i, &src, &e);
    if (what) printf("%s / %s: %s %s\n", pairs[i].vocab, pairs[i].template, what, e.msg);
    chat_free(c);
    vocab_free(v);
    weights_close(w);
    map_close(&src);
    return !what;
}

int main(void)
{
    const char *shared = getenv("QUERN_SHARED"), *golden = getenv("QUERN_GOLDEN");
    if (!shared || !golden) {
        printf("QUERN_SHARED or QUERN_GOLDEN is not set\n");
        return getenv("CI") ? 1 : 77;
    }
    bool ok = true;
    for (size_t i = 0; i < sizeof pairs / sizeof pairs[0]; i++) ok &= check(shared, golden, i);
    return !ok;
}
