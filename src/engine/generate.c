/* SPDX-License-Identifier: MIT
 *
 * generate.c: qn_generate(), which turns a prompt's text into the answer's text, with other functions of quern.h.
 *
 * A plain prompt and a chat turn tokens into text in different ways. `push` and `end` handle both.
 */
#include <jansson.h>

#include "base/json/json_text.h"
#include "engine/core/conversation.h"
#include "engine/session.h"

struct generation {
    struct qn_session *s;
    const struct qn_generate_params *p;
    const struct qn_model *model;
    qn_text *text;    /* of a plain prompt */
    qn_chat *chat;    /* this and what follows until the tokens: of a chat */
    json_t *messages; /* the conversation with the prompt */
    struct buf said;  /* the reply, if there is a conversation to add it to */
    qn_prompt *prompt;
    qn_reply *reply;
    qn_token *tokens; /* of a plain prompt; owned */
    bool is_over;     /* the callback ended the answer */
};

void qn_generate_params_init(struct qn_generate_params *p)
{
    if (p) *p = (struct qn_generate_params){.size = sizeof *p, .max_tokens = -1};
}

static void tell(struct generation *g, const char *bytes, size_t n)
{
    if (n && g->p->text && !g->is_over) g->is_over = !g->p->text(g->p->arg, bytes, n);
}

static int tell_events(struct generation *g, struct qn_error *e)
{
    struct qn_reply_event event;
    while (!g->is_over && qn_reply_next(g->reply, &event)) {
        if (event.kind != QN_REPLY_CONTENT) continue;
        if (g->p->conversation && buf_add(&g->said, event.text, event.n, e)) return QN_ENOMEM;
        tell(g, event.text, event.n);
    }
    return 0;
}

static int push(struct generation *g, qn_token t, bool *stopped, struct qn_error *e)
{
    const char *bytes;
    size_t n;
    int rc = g->reply ? qn_reply_push(g->reply, t, stopped, e) : qn_text_push(g->text, t, &bytes, &n, stopped, e);
    if (rc) return rc;
    if (g->reply) return tell_events(g, e);
    tell(g, bytes, n);
    return 0;
}

/* Gives out the text that was held back. */
static int end(struct generation *g, struct qn_error *e)
{
    const char *bytes;
    size_t n;
    int rc = g->reply ? qn_reply_end(g->reply, e) : qn_text_end(g->text, &bytes, &n, e);
    if (rc) return rc;
    if (g->reply) return tell_events(g, e);
    tell(g, bytes, n);
    return 0;
}

/* Makes the prompt of a chat: the conversation so far with one more message of the user. */
static int make_prompt(struct generation *g, const char *prompt, size_t n, struct qn_error *e)
{
    struct buf text = {0};
    g->messages = g->p->conversation ? json_copy(g->p->conversation->messages) : json_array();
    if (!g->messages) return error_nomem(e, "a chat's messages", 0);
    int rc = conversation_append(g->messages, "user", prompt, n, "qn_generate", e);
    if (rc) return rc;
    json_t *request = json_pack("{s:O}", "messages", g->messages);
    rc = json_text_add(&text, request, JSON_COMPACT, "a chat's messages", e);
    json_decref(request);
    if (!rc) rc = qn_chat_prompt(&g->prompt, g->chat, (const char *)text.data, text.len, NULL, e);
    buf_deinit(&text);
    return rc;
}

/* Adds the prompt and the reply to the conversation, both or none. */
static int remember(struct generation *g, struct qn_error *e)
{
    qn_conversation *c = g->p->conversation;
    if (!c) return 0;
    int rc = conversation_append(g->messages, "assistant", (const char *)g->said.data, g->said.len, "qn_generate", e);
    if (rc) return rc;
    json_decref(c->messages);
    c->messages = json_incref(g->messages);
    return 0;
}

/* Makes the timeline the prompt. */
static int begin(struct generation *g, const char *prompt, size_t n, struct qn_error *e)
{
    const struct qn_generate_params *p = g->p;
    size_t n_tokens = 0;
    int rc;
    if (!p->is_chat) {
        if ((rc = qn_text_new(&g->text, g->model, true, p->stop, p->n_stop, e))) return rc;
        if ((rc = qn_tokenize(g->model, prompt, n, QN_ADD_BOS, NULL, &g->tokens, &n_tokens, e))) return rc;
        return qn_session_sync(g->s, g->tokens, n_tokens, NULL, e);
    }
    if ((rc = qn_chat_new(&g->chat, g->model, NULL, 0, e))) return rc;
    if ((rc = make_prompt(g, prompt, n, e))) return rc;
    if ((rc = qn_reply_new(&g->reply, g->chat, g->prompt, p->stop, p->n_stop, e))) return rc;
    const qn_token *tokens = qn_prompt_tokens(g->prompt, &n_tokens);
    return qn_session_sync(g->s, tokens, n_tokens, NULL, e);
}

/* Draws tokens until the answer ends. */
static int answer(struct generation *g, enum qn_finish *finish, struct qn_error *e)
{
    qn_token t;
    *finish = QN_FINISH_NONE;
    for (int i = 0; *finish == QN_FINISH_NONE; i++) {
        bool stopped = false, is_full = g->s->n_tokens == (size_t)qn_engine_n_ctx(g->s->engine);
        if (is_full || i == g->p->max_tokens) {
            *finish = QN_FINISH_LENGTH;
            break;
        }
        int rc = qn_session_step(g->s, &t, e);
        if (!rc && qn_model_is_eog(g->model, t))
            *finish = QN_FINISH_STOP_TOKEN;
        else if (!rc)
            rc = push(g, t, &stopped, e);
        if (rc) return rc;
        if (stopped) *finish = QN_FINISH_STOP_STRING;
        if (g->is_over) *finish = QN_FINISH_CANCELLED;
    }
    return g->is_over ? 0 : end(g, e);
}

static int check(const struct qn_session *s, const char *prompt, size_t n, const struct qn_generate_params *p,
                 struct qn_error *e)
{
    static const char function[] = "qn_generate";
    int rc;
    if (!s) return usage_null(e, function);
    if ((rc = usage_size(e, function, p->size, sizeof *p))) return rc;
    if ((rc = usage_array(e, function, "prompt", prompt, n))) return rc;
    if ((rc = usage_strings(e, function, "stop", p->stop, p->n_stop))) return rc;
    if (p->conversation && !p->is_chat) return error_set(e, QN_EUSAGE, "qn_generate: a conversation without is_chat");
    if (p->max_tokens < -1)
        return error_set(e, QN_EUSAGE, "qn_generate: max_tokens is %d, not -1 or more", p->max_tokens);
    return 0;
}

int qn_generate(qn_session *s, const char *prompt, size_t n, const struct qn_generate_params *p, enum qn_finish *finish,
                struct qn_error *e)
{
    struct qn_generate_params def;
    enum qn_finish why;
    qn_generate_params_init(&def);
    int rc = check(s, prompt, n, p ? p : &def, e);
    if (rc) return rc;
    struct generation g = {.s = s, .p = p ? p : &def, .model = s->engine->handle};
    rc = begin(&g, prompt, n, e);
    if (!rc) rc = answer(&g, &why, e);
    if (!rc) rc = remember(&g, e);
    if (!rc && finish) *finish = why;
    json_decref(g.messages);
    buf_deinit(&g.said);
    qn_reply_free(g.reply);
    qn_prompt_free(g.prompt);
    qn_chat_free(g.chat);
    qn_text_free(g.text);
    qn_free(g.tokens);
    return rc;
}
