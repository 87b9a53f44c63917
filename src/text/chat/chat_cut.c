/* SPDX-License-Identifier: MIT
 *
 * chat_cut.c: finds the boundaries between the messages of a prompt by its control tokens.
 *
 * In general it is not known from which bytes a token was made. For control tokens it is: each one is spelled out in
 * the template's part of the text, and they come in the same order. Exceptions are a BOS that was put in front, and the
 * unknown token, which stands for any bytes.
 */
#include "text/chat/chat_cut.h"

#include <string.h>

#define LEAST_GAP 64 /* tokens: a boundary costs a forward pass of its own, as much as some tens of tokens */

/* A place in the text. Both numbers only grow, so the text is looked at once. */
struct cursor {
    size_t at;     /* bytes */
    size_t n_user; /* how many of the user's ranges end at or before `at` */
};

static void pass_users(struct cursor *c, const struct text_origin *o)
{
    while (c->n_user < o->n_user && o->user[c->n_user].at + o->user[c->n_user].n <= c->at) c->n_user++;
}

/* Moves to the next place where the template wrote s; false: there is none. */
static bool find_own(struct cursor *c, const char *text, size_t n, const struct text_origin *o, struct str s)
{
    for (const char *p; c->at < n && (p = memmem(text + c->at, n - c->at, s.p, s.n));) {
        c->at = (size_t)(p - text);
        pass_users(c, o);
        if (c->n_user == o->n_user || o->user[c->n_user].at >= c->at + s.n) return true;
        c->at = o->user[c->n_user].at + o->user[c->n_user].n;
    }
    return false;
}

/* Whether the first token, whose text is s, was put in front of the text and is not spelled in it. */
static bool is_added(const char *text, size_t n, const struct text_origin *o, struct str s)
{
    return s.n == 0 || s.n > n || memcmp(text, s.p, s.n) != 0 || (o->n_user > 0 && o->user[0].at < s.n);
}

size_t chat_cuts(const struct vocab *v, const char *text, size_t n, const struct text_origin *o, const qn_token *tokens,
                 size_t n_tokens, int cut[CHAT_CUTS])
{
    struct cursor c = {0};
    size_t n_user = 0, first = 0, last = 0;
    for (size_t i = 0; i < n_tokens; i++) {
        if (!vocab_is_control(v, tokens[i]) || tokens[i] == vocab_role(v, VOCAB_UNK)) continue;
        struct str s = vocab_token_text(v, tokens[i]);
        if (i == 0 && is_added(text, n, o, s)) continue;
        if (!find_own(&c, text, n, o, s)) break;
        size_t before = c.n_user;
        c.at += s.n;
        if (before == n_user || i == 0 || vocab_is_eog(v, tokens[i])) continue;
        n_user = before;
        if (!first) first = i;
        last = i;
    }
    size_t n_cuts = 0;
    if (first >= LEAST_GAP && last >= first + LEAST_GAP) cut[n_cuts++] = (int)first;
    if (last) cut[n_cuts++] = (int)last;
    return n_cuts;
}
