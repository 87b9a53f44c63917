/* SPDX-License-Identifier: MIT
 *
 * rank_prompt.c: writes a query and a document into a template, and remembers which bytes are theirs.
 */
#include "text/token/rank_prompt.h"

#include <string.h>

#include "base/error.h"

#define KEY        "tokenizer.chat_template.rerank"
#define MAX_PLACES 8

static const char usual[] =
    "<|im_start|>system\nJudge whether the Document meets the requirements based on the Query and the Instruct "
    "provided. Note that the answer can only be \"yes\" or \"no\".<|im_end|>\n<|im_start|>user\n"
    "<Instruct>: Given a web search query, retrieve relevant passages that answer the query\n"
    "<Query>: {query}\n<Document>: {document}<|im_end|>\n<|im_start|>assistant\n<think>\n\n</think>\n\n";

struct rank_text {
    struct buf text;
    struct text_span user[MAX_PLACES];
    size_t n_user, n_places;
};

/* Adds a text of a user. Texts next to each other are one range. */
static int add_user(struct rank_text *o, struct str s, struct qn_error *e)
{
    if (++o->n_places > MAX_PLACES)
        return error_set(e, QN_EDATA, "%s has more than %d places for texts", KEY, MAX_PLACES);
    if (s.n == 0) return 0;
    struct text_span *last = o->n_user ? &o->user[o->n_user - 1] : NULL;
    if (last && last->at + last->n == o->text.len)
        last->n += s.n;
    else
        o->user[o->n_user++] = (struct text_span){o->text.len, s.n};
    return buf_add(&o->text, s.p, s.n, e);
}

static bool begins(struct str t, size_t at, const char *word)
{
    size_t n = strlen(word);
    return t.n - at >= n && !memcmp(t.p + at, word, n);
}

static int fill(struct rank_text *o, struct str t, struct str query, struct str document, struct qn_error *e)
{
    static const char *const places[] = {"{query}", "{document}"};
    const struct str texts[] = {query, document};
    bool has[2] = {false, false};
    size_t from = 0;
    int rc = 0;
    for (size_t at = 0; at < t.n && !rc; at++)
        for (int i = 0; i < 2 && !rc; i++) {
            if (!begins(t, at, places[i])) continue;
            rc = buf_add(&o->text, t.p + from, at - from, e);
            if (!rc) rc = add_user(o, texts[i], e);
            has[i] = true;
            from = at + strlen(places[i]);
            at = from - 1;
            break;
        }
    if (!rc) rc = buf_add(&o->text, t.p + from, t.n - from, e);
    if (!rc && !(has[0] && has[1])) rc = error_set(e, QN_EDATA, "%s has no %s", KEY, places[has[0]]);
    return rc;
}

int rank_prompt_encode(const struct vocab *v, const struct weights *w, struct str query, struct str document,
                       const struct qn_cancel *cancel, qn_token **ids, size_t *n_ids, struct qn_error *e)
{
    struct rank_text o = {0};
    struct str t = {usual, sizeof usual - 1};
    int rc = meta_str(w, KEY, &t, e);
    if (rc >= 0) rc = fill(&o, t, query, document, e);
    const struct text_origin origin = {.user = o.user, .n_user = o.n_user};
    if (!rc) rc = vocab_encode_chat(v, (char *)o.text.data, o.text.len, &origin, cancel, ids, n_ids, e);
    buf_deinit(&o.text);
    return rc;
}
