/* SPDX-License-Identifier: MIT
 *
 * guide.c: follows the tokens of an answer through its parts. See guide.h.
 *
 * Taking a token only notes it. Everything that may take long is done by the preparation, which moves the grammar's
 * cursor, makes the mask, and may run in another thread.
 */
#include "grammar/guide.h"

#include <assert.h>
#include <string.h>

#include "base/mem.h"

#define QUICK_STEPS 5000 /* of a try: less than a millisecond */
#define TAIL        512  /* bytes of the answer's end that are kept: longer than any mark or head */
#define QUOTE       32   /* of these, bytes that an error quotes */
#define FORCED_MOST 160  /* bytes of a forced text that are looked for */
#define MAX_HEAD    400  /* bytes of a message's head; then its end has to come */

enum guide_part { GUIDE_START, GUIDE_MARK, GUIDE_THOUGHTS, GUIDE_HEAD, GUIDE_BODY, GUIDE_TEXT, GUIDE_FREE };

struct guide {
    struct shelved *grammar; /* one of its users */
    struct grammar_cursor *cursor;
    const struct vocab *v;
    const char *think, *unthink,
        *call;     /* marks that may come: the first and the last one at START. Static; NULL: none */
    bool may_feed; /* a token of line feeds may come at START */
    bool may_call; /* in channels: a call may end the answer */
    enum guide_part part;
    qn_token taken; /* the token that the next preparation reads; -1: none */
    bool is_ready;
    int rc; /* of the last preparation */
    struct qn_error error;
    size_t n_text; /* bytes that the cursor has read */
    char tail[TAIL];
    size_t n_tail;
    struct buf bytes;   /* of one token */
    size_t taken_bytes; /* of the shelf's ledger */
    int n_words;
    uint64_t mask[]; /* [n_words] */
};

/* ---- marks ---- */

/* The marks of calls, by form. Where there is none, a call cannot be told from a text by its first token. */
static const char *const call_marks[] = {
    [CHAT_CALLS_NONE] = NULL,          [CHAT_CALLS_TAG] = "<tool_call>",
    [CHAT_CALLS_LLAMA] = NULL,         [CHAT_CALLS_MISTRAL] = "[TOOL_CALLS]",
    [CHAT_CALLS_HARMONY] = NULL,       [CHAT_CALLS_CALLS] = "<tool_calls>",
    [CHAT_CALLS_UPPER] = "<TOOLCALL>", [CHAT_CALLS_CODE] = NULL,
    [CHAT_CALLS_PYTHON] = NULL,
};

static bool is_space(char c) { return c == ' ' || c == '\n' || c == '\r' || c == '\t'; }

/* Whether the prompt ends with closed thoughts, so that no others come. */
static bool has_thought(const struct guide_start *s)
{
    size_t n = s->n_prompt, n_mark = s->form->unthink ? strlen(s->form->unthink) : 0;
    while (n > 0 && is_space(s->prompt[n - 1])) n--;
    return n_mark && n >= n_mark && !memcmp(s->prompt + n - n_mark, s->form->unthink, n_mark);
}

static int begin_reply(struct guide *g, const struct guide_start *s, struct qn_error *e)
{
    bool is_harmony = s->form->calls == CHAT_CALLS_HARMONY, has_calls = g->grammar->p.kind == QN_GRAMMAR_TOOL_CALLS;
    g->unthink = s->form->unthink;
    if (s->begins == CHAT_BEGIN_THOUGHTS) g->part = g->unthink ? GUIDE_THOUGHTS : GUIDE_START;
    if (is_harmony && s->begins != CHAT_BEGIN_CONTENT) g->part = has_calls ? GUIDE_TEXT : GUIDE_HEAD;
    if (s->begins == CHAT_BEGIN_REPLY && !s->is_silent && !has_thought(s)) g->think = s->form->think;
    if (!s->has_tools || has_calls) return 0;
    g->may_call = true;
    g->call = call_marks[s->form->calls];
    if (g->call || is_harmony) return 0;
    return error_set(e, QN_EUNSUP, "grammar: with tools, this model's calls cannot be told from a text of the grammar");
}

/* ---- life ---- */

int guide_new(struct guide **out, struct shelved *grammar, const struct vocab *v, int n_vocab,
              const struct guide_start *start, struct qn_error *e)
{
    size_t n_words = ((size_t)n_vocab + 63) / 64;
    size_t bytes = sizeof(struct guide) + n_words * sizeof(uint64_t) + vocab_max_token_bytes(v) + 2;
    int rc = limits_source_take(&grammar->shelf->source, bytes, "the mask of an answer", e);
    if (rc) return rc;
    struct guide *g = mem_calloc(1, sizeof *g + n_words * sizeof *g->mask);
    if (!g) {
        limits_source_give(&grammar->shelf->source, bytes);
        return error_nomem(e, "the mask of an answer", sizeof *g + n_words * sizeof *g->mask);
    }
    assert(n_words >= token_trie_mask_words(grammar->trie));
    g->grammar = grammar;
    g->v = v;
    g->taken = -1;
    g->part = GUIDE_TEXT;
    g->n_words = (int)n_words;
    g->taken_bytes = bytes;
    rc = buf_reserve(&g->bytes, vocab_max_token_bytes(v) + 1, e);
    if (!rc && start) {
        g->part = GUIDE_START;
        rc = begin_reply(g, start, e);
    }
    if (!rc) {
        pthread_mutex_lock(&grammar->lock);
        rc = grammar_cursor_new(&g->cursor, grammar->g, e);
        pthread_mutex_unlock(&grammar->lock);
    }
    if (rc) {
        limits_source_give(&grammar->shelf->source, bytes);
        buf_deinit(&g->bytes);
        mem_free(g);
        return rc;
    }
    shelf_use(grammar);
    *out = g;
    return 0;
}

/* With the grammar's lock, which it gives back. */
static void free_locked(struct guide *g)
{
    struct shelved *grammar = g->grammar;
    grammar_cursor_free(g->cursor);
    pthread_mutex_unlock(&grammar->lock);
    limits_source_give(&grammar->shelf->source, g->taken_bytes);
    buf_deinit(&g->bytes);
    mem_free(g);
    shelf_put(grammar);
}

void guide_free(struct guide *g)
{
    if (!g) return;
    pthread_mutex_lock(&g->grammar->lock);
    free_locked(g);
}

bool guide_try_free(struct guide *g)
{
    if (pthread_mutex_trylock(&g->grammar->lock)) return false;
    free_locked(g);
    return true;
}

/* ---- reading a token ---- */

static void keep_tail(struct guide *g, const void *p, size_t n)
{
    size_t keep = n < TAIL ? n : TAIL, old = g->n_tail < TAIL - keep ? g->n_tail : TAIL - keep;
    memmove(g->tail, g->tail + g->n_tail - old, old);
    memcpy(g->tail + old, (const char *)p + n - keep, keep);
    g->n_tail = old + keep;
}

/* Where the text after the first `mark` begins in the tail; NULL: there is none. */
static const char *after(const struct guide *g, const char *mark)
{
    const char *hit = memmem(g->tail, g->n_tail, mark, strlen(mark));
    return hit ? hit + strlen(mark) : NULL;
}

/* The grammar reads bytes. A failure is the answer's. */
static int read_text(struct guide *g, const void *p, size_t n)
{
    int rc = grammar_commit_bytes(g->cursor, p, n, &g->error);
    if (rc) return rc;
    g->n_text += n;
    keep_tail(g, p, n);
    return 0;
}

/* Thoughts have ended if their mark is there. Bytes of the same token after the mark belong to the text. */
static int read_thoughts(struct guide *g)
{
    const char *rest = after(g, g->unthink);
    char text[TAIL];
    if (!rest) return 0;
    size_t n = (size_t)(g->tail + g->n_tail - rest);
    while (n > 0 && is_space(*rest)) {
        rest++;
        n--;
    }
    memcpy(text, rest, n);
    g->part = n ? GUIDE_TEXT : GUIDE_START;
    g->think = NULL;
    g->may_feed = true;
    g->n_tail = 0;
    return n ? read_text(g, text, n) : 0;
}

/* The head of a message is complete. What is neither analysis nor a call is content, and so it is the text. */
static int read_head(struct guide *g)
{
    if (!after(g, "<|message|>")) return 0;
    g->part = after(g, "<|channel|>analysis") ? GUIDE_BODY : GUIDE_TEXT;
    if (g->may_call && after(g, " to=")) g->part = GUIDE_FREE;
    g->n_tail = 0;
    return 0;
}

static int read_body(struct guide *g)
{
    if (!after(g, "<|end|>") && !after(g, "<|start|>")) return 0;
    g->part = GUIDE_HEAD;
    g->n_tail = 0;
    return 0;
}

static bool is_feed(const struct guide *g, qn_token t)
{
    const struct grammar_shelf *s = g->grammar->shelf;
    return g->may_feed && (t == s->feeds[0] || t == s->feeds[1]);
}

/* The tail is the beginning of a mark, or begins with it. What follows a mark is the beginning of the next part. */
static int read_mark(struct guide *g)
{
    const char *const marks[] = {g->think, g->call};
    g->part = GUIDE_MARK;
    for (int i = 0; i < 2; i++) {
        size_t n = marks[i] ? strlen(marks[i]) : SIZE_MAX;
        if (n > g->n_tail || memcmp(marks[i], g->tail, n)) continue;
        g->part = i ? GUIDE_FREE : GUIDE_THOUGHTS;
        memmove(g->tail, g->tail + n, g->n_tail -= n);
        return i ? 0 : read_thoughts(g);
    }
    return 0;
}

/* A token of a part that is not the text. */
static int read_free(struct guide *g, qn_token t)
{
    const struct guide before = *g; /* without its mask */
    buf_clear(&g->bytes);
    int rc = vocab_is_valid(g->v, t) ? vocab_token_bytes(g->v, t, true, &g->bytes, &g->error) : 0;
    if (rc) return rc;
    keep_tail(g, g->bytes.data ? (char *)g->bytes.data : "", g->bytes.len);
    switch (g->part) {
    case GUIDE_START:
    case GUIDE_MARK: rc = read_mark(g); break;
    case GUIDE_THOUGHTS: rc = read_thoughts(g); break;
    case GUIDE_HEAD: rc = read_head(g); break;
    default: rc = read_body(g); break;
    }
    if (!rc) return 0;
    g->part = before.part; /* the token may be read again, with more work */
    g->n_tail = before.n_tail;
    memcpy(g->tail, before.tail, TAIL);
    return rc;
}

/* The first token of the text, or a mark, or the beginning of one. */
static int read_start(struct guide *g, qn_token t)
{
    size_t n;
    const uint8_t *p = token_trie_text(g->grammar->trie, t, &n);
    int rc = n ? read_text(g, p, n) : QN_EDATA;
    if (!rc) g->part = GUIDE_TEXT;
    if (rc != QN_EDATA) return rc;
    if (!is_feed(g, t)) return read_free(g, t);
    g->may_feed = false;
    return 0;
}

static int read_token(struct guide *g, qn_token t)
{
    size_t n;
    const uint8_t *p = token_trie_text(g->grammar->trie, t, &n);
    if (g->part == GUIDE_START) return read_start(g, t);
    if (g->part == GUIDE_TEXT) return read_text(g, p, n);
    return g->part == GUIDE_FREE ? 0 : read_free(g, t);
}

/* ---- masks ---- */

static void set_bit(struct guide *g, qn_token t, bool is_allowed)
{
    if (t < 0) return;
    uint64_t bit = (uint64_t)1 << (t % 64);
    g->mask[t / 64] = is_allowed ? g->mask[t / 64] | bit : g->mask[t / 64] & ~bit;
}

/* Allows the tokens of which a mark, or the rest of one, can be made: mostly a single one for all of it. */
static void allow_mark(struct guide *g, const char *mark)
{
    const struct token_trie *t = g->grammar->trie;
    char rest[64] = {(char)TRIE_SPECIAL};
    size_t n = mark ? strlen(mark) : 0;
    if (n <= g->n_tail || n - g->n_tail >= sizeof rest || memcmp(mark, g->tail, g->n_tail)) return;
    n -= g->n_tail;
    memcpy(rest + 1, mark + g->n_tail, n);
    token_trie_meet(t, rest, n + 1, g->mask);
    token_trie_meet(t, rest + 1, n, g->mask);
}

static void allow_marks(struct guide *g)
{
    allow_mark(g, g->think);
    allow_mark(g, g->call);
}

static int make_mask(struct guide *g)
{
    const struct token_trie *t = g->grammar->trie;
    const struct grammar_shelf *s = g->grammar->shelf;
    int rc = 0;
    switch (g->part) {
    case GUIDE_FREE: return 0;
    case GUIDE_TEXT: return grammar_mask(g->cursor, t, g->mask, &g->error);
    case GUIDE_START:
        rc = grammar_mask(g->cursor, t, g->mask, &g->error);
        for (int i = 0; i < 2 && !rc && g->may_feed; i++) set_bit(g, s->feeds[i], true);
        if (!rc) allow_marks(g);
        return rc;
    case GUIDE_MARK:
        memset(g->mask, 0, (size_t)g->n_words * sizeof *g->mask);
        allow_marks(g);
        return 0;
    default:
        if (g->part == GUIDE_HEAD && g->n_tail > MAX_HEAD) {
            memset(g->mask, 0, (size_t)g->n_words * sizeof *g->mask);
            set_bit(g, vocab_find(g->v, "<|message|>", strlen("<|message|>")), true);
            return 0;
        }
        memset(g->mask, 0xFF, (size_t)g->n_words * sizeof *g->mask);
        for (int i = 0; i < t->n_eog; i++) set_bit(g, t->eog[i], false);
        return 0;
    }
}

/* ---- what is forced ---- */

/* With the grammar's lock. */
static size_t forced_text(struct guide *g, uint8_t text[FORCED_MOST])
{
    size_t n = 0;
    grammar_set_work(g->grammar->g, QUICK_STEPS);
    n = grammar_forced_bytes(g->cursor, text, FORCED_MOST);
    grammar_set_work(g->grammar->g, 0);
    return n;
}

void guide_forced(struct guide *g, int most, struct guide_forced *out)
{
    const struct token_trie *t = g->grammar->trie;
    uint8_t text[FORCED_MOST];
    size_t n = 0, n_token;
    int n_tokens;
    out->n = 0;
    if (!g->is_ready || g->rc || g->part != GUIDE_TEXT || pthread_mutex_trylock(&g->grammar->lock)) return;
    n = forced_text(g, text);
    pthread_mutex_unlock(&g->grammar->lock);
    for (size_t at = 0; at < n && out->n < most && out->n < GUIDE_FORCED; at += n_token) {
        qn_token token = token_trie_longest(t, text + at, n - at, &n_token, &n_tokens);
        if (token < 0) return;
        bool is_last = at + n_token == n;
        out->tokens[out->n++] = (struct guide_forced_token){token, n_tokens == 1 && !is_last, is_last};
    }
}

/* Says where the answer is. */
static void place_error(struct guide *g)
{
    struct qn_error why = g->error;
    size_t n = g->n_tail < QUOTE ? g->n_tail : QUOTE, k = 0;
    char end[QUOTE + 1];
    for (const char *p = g->tail + g->n_tail - n; p < g->tail + g->n_tail; p++)
        if ((uint8_t)*p != TRIE_SPECIAL) end[k++] = *p;
    end[k] = '\0';
    error_set(&g->error, g->rc, "grammar: after %zu bytes of text%s%s%s: %s", g->n_text, n ? ", which end in '" : "",
              end, n ? "'" : "", why.msg);
}

/* Reads the token that was taken, and makes the mask; with the grammar's lock. */
static int prepare(struct guide *g)
{
    int rc = g->taken >= 0 ? read_token(g, g->taken) : 0;
    if (rc) return rc;
    g->taken = -1;
    return make_mask(g);
}

void guide_prepare(struct guide *g)
{
    pthread_mutex_lock(&g->grammar->lock);
    g->rc = prepare(g);
    pthread_mutex_unlock(&g->grammar->lock);
    if (g->rc) place_error(g);
    g->is_ready = true;
}

bool guide_try_prepare(struct guide *g)
{
    if (pthread_mutex_trylock(&g->grammar->lock)) return false;
    grammar_set_work(g->grammar->g, QUICK_STEPS);
    int rc = prepare(g);
    grammar_set_work(g->grammar->g, 0);
    pthread_mutex_unlock(&g->grammar->lock);
    if (rc == QN_EUNSUP) return false; /* out of work */
    g->rc = rc;
    if (rc) place_error(g);
    g->is_ready = true;
    return true;
}

bool guide_is_ready(const struct guide *g) { return g->is_ready; }

int guide_failed(const struct guide *g, struct qn_error *e)
{
    if (g->rc && e) *e = g->error;
    return g->rc;
}

const uint64_t *guide_mask(const struct guide *g) { return g->part == GUIDE_FREE ? NULL : g->mask; }

int guide_nothing_left(const struct guide *g, bool are_banned, struct qn_error *e)
{
    struct guide copy = {.rc = are_banned ? QN_EDATA : QN_ENUMERIC, .n_text = g->n_text, .n_tail = g->n_tail};
    int n = 0;
    for (int i = 0; i < g->n_words; i++) n += __builtin_popcountll(g->mask[i]);
    memcpy(copy.tail, g->tail, g->n_tail);
    error_set(&copy.error, copy.rc, "the grammar allows %d tokens, and all of them %s", n,
              are_banned ? "are banned" : "have the logit NaN or -infinity");
    place_error(&copy);
    if (e) *e = copy.error;
    return copy.rc;
}

void guide_take(struct guide *g, qn_token token)
{
    assert(g->taken < 0);
    g->taken = token;
    g->is_ready = false;
}
