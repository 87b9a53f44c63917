/* SPDX-License-Identifier: MIT
 *
 * chat_turn.c: asks for one reply of `quern chat` and keeps it.
 *
 * Each request has the whole conversation; the server finds what it has computed before. Ctrl-C breaks the connection,
 * which ends the request at the server. What has arrived until then stays in the conversation.
 */
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sysexits.h>
#include <unistd.h>

#include "cli/ask/keep.h"
#include "cli/chat/chat_run.h"
#include "cli/core/wrap.h"
#include "cli/place/sampling.h"

static struct client *volatile asked; /* the exchange that Ctrl-C ends */
static volatile sig_atomic_t interrupted;

static void on_interrupt(int sig)
{
    (void)sig;
    interrupted = 1;
    if (asked) client_cancel(asked);
}

void chat_catch_interrupts(void)
{
    struct sigaction action = {.sa_handler = on_interrupt, .sa_flags = SA_RESTART};
    sigaction(SIGINT, &action, NULL);
}

/* ---- the request ---- */

json_t *chat_request(const struct chat_run *c)
{
    json_t *o = json_object();
    int bad = json_object_set_new(o, "messages", talk_json(&c->talk, c->place.kind != PLACE_REMOTE));
    if (c->place.model) bad |= json_object_set_new(o, "model", json_string(c->place.model));
    if (c->o->context) bad |= json_object_set_new(o, "context", json_string(c->o->context));
    if (c->o->max_tokens) bad |= json_object_set_new(o, "max_tokens", json_integer(c->o->max_tokens));
    bad |= sampling_add(o, c->invocation, c->persona);
    if (!bad) return o;
    json_decref(o);
    return NULL;
}

int chat_connect(struct chat_run *c)
{
    if (!c->broken) return 0;
    int status = place_reopen(&c->place);
    c->broken = status != 0;
    return status;
}

/* ---- the reply ---- */

struct reply {
    struct chat_run *c;
    struct buf content, thoughts;
    struct buf receipt, prompt; /* of the reply, for a file */
    int unshown;                /* errno of a write that failed */
    struct qn_error e;
};

static int on_piece(void *arg, enum chat_piece kind, const char *text, size_t n)
{
    struct reply *r = arg;
    struct render *out = &r->c->render;
    const struct receipt_options *kept = &r->c->o->receipt;
    if (kind == CHAT_RECEIPT) return receipt_file_keep(&r->receipt, kept, text, n);
    if (kind == CHAT_PROMPT) return receipt_file_keep(&r->prompt, kept, text, n);
    int rc = kind == CHAT_NOTE ? 0 : buf_add(kind == CHAT_CONTENT ? &r->content : &r->thoughts, text, n, &r->e);
    if (rc) return rc;
    switch (kind) {
    case CHAT_CONTENT: rc = render_answer(out, text, n, &r->e); break;
    case CHAT_REASONING: rc = render_thought(out, text, n, &r->e); break;
    case CHAT_NOTE: rc = render_note(out, text, n, &r->e); break;
    default: break;
    }
    if (rc) r->unshown = errno;
    return rc;
}

/* Prints a line about the reply for the person. */
static void remark(const struct chat_run *c, const char *text)
{
    char line[256];
    snprintf(line, sizeof line, c->person ? "(%s)" : "quern: %s", text);
    wrap_print(stderr, line, 0);
}

static bool unanswered(const struct chat_run *c) { return c->talk.n && c->talk.v[c->talk.n - 1].role == TALK_USER; }

/* Prints why a request failed, and what the person can do. Returns the exit status. */
static int failed(struct chat_run *c, const struct qn_error *e)
{
    if (c->person && chat_wants_model(&c->last)) {
        remark(c, "several models are served: /model lists them, /model NAME asks one of them");
        return EX_USAGE;
    }
    int status = cli_fail(e);
    if (c->last.status && c->last.retry_after_s > 0)
        fprintf(stderr, "quern: the server asks to try again in %d s\n", c->last.retry_after_s);
    if (c->person)
        remark(c, unanswered(c) ? "/retry sends it again, a new message takes its place"
                                : "what was said is kept; /retry asks again");
    return status;
}

/* A context that rotates forgets the middle of the conversation. */
static void say_dropped(const struct chat_run *c)
{
    char text[96];
    if (c->last.n_dropped <= 0) return;
    snprintf(text, sizeof text, "the model no longer sees %d tokens of the conversation", c->last.n_dropped);
    remark(c, text);
}

static int keep_reply(struct chat_run *c, const struct reply *r, bool cut, struct qn_error *e)
{
    if (!r->content.len && !r->thoughts.len && cut) return 0; /* there is nothing to keep */
    return talk_add(&c->talk, TALK_ASSISTANT, r->content.data ? (const char *)r->content.data : "", r->content.len,
                    (const char *)r->thoughts.data, r->thoughts.len, cut, e);
}

/* Ends a reply: keeps it, and tells the person why it is not complete. */
static int conclude(struct chat_run *c, struct reply *r, int rc, struct qn_error *e)
{
    struct qn_error kept = {0};
    bool length = !rc && !strcmp(c->last.finish, "length"), cancelled = !rc && !strcmp(c->last.finish, "cancelled");
    if (!r->unshown && render_end(&c->render, &r->e)) r->unshown = errno;
    if (keep_reply(c, r, rc || length || cancelled, &kept)) return cli_fail(&kept);
    if (r->unshown) {
        c->gone = true;
        errno = r->unshown;
        return cli_write_status();
    }
    if (length) remark(c, "the reply was cut: it has the most tokens allowed");
    say_dropped(c);
    if (cancelled || (rc && interrupted)) remark(c, "stopped");
    if (!rc || interrupted) return 0;
    return failed(c, rc == QN_ECANCEL && r->e.code ? &r->e : e);
}

/* Sets the turn off from the next one, and keeps the conversation. */
static void end_turn(const struct chat_run *c)
{
    fputc('\n', stderr);
    if (!c->o->no_keep && !unanswered(c)) keep_write_last(&c->talk);
}

int chat_turn(struct chat_run *c)
{
    struct reply r = {.c = c};
    struct qn_error e = {0};
    int status = chat_connect(c);
    if (status) return status;
    json_t *request = chat_request(c);
    if (!request) {
        fprintf(stderr, "quern: not enough memory for the conversation\n");
        return EX_TEMPFAIL;
    }
    if ((status = receipt_file_ask(&c->o->receipt, request))) {
        json_decref(request);
        return status;
    }
    c->last = (struct chat_result){.n_prompt = -1, .n_cached = -1, .n_generated = -1};
    interrupted = 0;
    asked = c->place.client;
    int rc = chat_send(c->place.client, request, on_piece, &r, &c->last, &e);
    asked = NULL;
    c->broken = rc != 0 || interrupted;
    json_decref(request);
    status = conclude(c, &r, rc, &e);
    if (!rc && !status && !c->gone) status = receipt_file_append(&c->o->receipt, &r.receipt, &r.prompt);
    buf_deinit(&r.receipt);
    buf_deinit(&r.prompt);
    if (c->person && !c->gone) end_turn(c);
    buf_deinit(&r.content);
    buf_deinit(&r.thoughts);
    return status;
}
