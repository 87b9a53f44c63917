/* SPDX-License-Identifier: MIT
 *
 * answer_stream.c: the way of an answer from the server's stream to standard output, with signals and exit codes. See
 * answer_stream.h.
 */
#include "cli/place/answer_stream.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sysexits.h>
#include <unistd.h>

#include "base/json/json_text.h"
#include "cli/core/cli.h"
#include "cli/core/render.h"
#include "cli/core/term.h"

/* ---- signals ---- */

static struct client *volatile running; /* NULL: no exchange */
static volatile sig_atomic_t caught;    /* the signal that came; 0: none */

static void on_signal(int sig)
{
    struct client *c = running;
    if (c && !caught) {
        caught = sig;
        client_cancel(c);
        return;
    }
    if (cli_unfinished) unlink(cli_unfinished);
    signal(sig, SIG_DFL); /* nothing runs, or this is the second signal */
    raise(sig);
}

static const int signals[] = {SIGINT, SIGTERM, SIGHUP};

void answer_begin(void)
{
    struct sigaction a = {.sa_handler = on_signal}, old;
    sigemptyset(&a.sa_mask);
    for (size_t i = 0; i < sizeof signals / sizeof *signals; i++)
        if (!sigaction(signals[i], NULL, &old) && old.sa_handler != SIG_IGN) sigaction(signals[i], &a, NULL);
}

int answer_end(int status)
{
    if (!caught) return status;
    signal(caught, SIG_DFL);
    raise(caught);
    return status;
}

/* ---- errors ---- */

int answer_fail(const struct qn_error *e, const struct chat_result *r)
{
    if (caught) return EX_TEMPFAIL; /* answer_end() ends the program by the signal */
    if (!strcmp(r->code, "context_length_exceeded")) {
        fprintf(stderr, "quern: %s (--overflow says what to do then)\n", e->msg);
        return EX_DATAERR;
    }
    int status = cli_fail(e);
    if (!strcmp(r->code, "unsupported_value") || !strcmp(r->code, "no_chat_template")) return EX_UNAVAILABLE;
    switch (r->status) {
    case 0:
        return e->code == QN_EIO && !*r->model ? EX_UNAVAILABLE : status; /* nobody answers, or the connection broke */
    case 401:
    case 403: return EX_NOPERM;
    case 404: return EX_UNAVAILABLE;
    case 413: return EX_DATAERR;
    case 429:
    case 503:
    case 504: return EX_TEMPFAIL;
    default: return r->status >= 500 ? EX_UNAVAILABLE : EX_USAGE;
    }
}

/* ---- standard error ---- */

struct output {
    struct answer_manner m;
    bool notes, noted; /* notes: standard error is a terminal; noted: it shows a note */
    bool colour, thinking;
    bool shown, thoughts_shown; /* standard output is a terminal of any kind; standard error is one */
    struct buf clean;           /* a piece without what a terminal would act on */
    char last;                  /* the last byte written; 0: none yet */
    int error;                  /* errno of a write that failed */
};

static void clear_note(struct output *o)
{
    if (o->noted) fputs("\r\033[K", stderr);
    o->noted = false;
}

/* Ends the thoughts with a new line. */
static void end_thoughts(struct output *o)
{
    if (o->thinking) fputs(o->colour ? "\033[0m\n" : "\n", stderr);
    o->thinking = false;
}

/* Prints text of a server to standard error so that a terminal does not act on it. */
static void say_clean(struct output *o, const char *text, size_t n)
{
    buf_clear(&o->clean);
    if (!render_clean(&o->clean, text, n, NULL)) fwrite(o->clean.data, 1, o->clean.len, stderr);
}

static void put_thought(struct output *o, const char *text, size_t n)
{
    clear_note(o);
    if (!o->thinking && o->colour) fputs("\033[2m", stderr);
    o->thinking = true;
    if (o->thoughts_shown)
        say_clean(o, text, n);
    else
        fwrite(text, 1, n, stderr);
    fflush(stderr);
}

static void put_note(struct output *o, const char *text, size_t n)
{
    if (!o->notes || o->thinking) return;
    fputs("\r\033[K", stderr);
    say_clean(o, text, n);
    fflush(stderr);
    o->noted = true;
}

/* ---- standard output ---- */

static int put(struct output *o, const char *text, size_t n)
{
    if (!n) return 0;
    if (cli_write(text, n)) {
        o->error = errno;
        return -1;
    }
    o->last = text[n - 1];
    return 0;
}

/* Writes a piece of the answer: to a file or a pipe as it is, to a terminal without what it would act on. */
static int put_content(struct output *o, const char *text, size_t n)
{
    if (!o->shown) return put(o, text, n);
    buf_clear(&o->clean);
    if (!render_clean(&o->clean, text, n, NULL)) return put(o, (char *)o->clean.data, o->clean.len);
    o->error = ENOMEM;
    return -1;
}

int answer_write_json(struct buf *out, const json_t *value)
{
    return json_text_add(out, value, JSON_COMPACT, "a value", NULL);
}

/* Writes an event, which it releases, as one line in one write. */
static int put_event(struct output *o, json_t *event)
{
    struct buf line = {0};
    int rc = json_text_add(&line, event, cli_json_flags(JSON_COMPACT), "an event", NULL) || buf_str(&line, "\n", NULL);
    if (rc)
        o->error = ENOMEM;
    else
        rc = put(o, (char *)line.data, line.len);
    json_decref(event);
    buf_deinit(&line);
    return rc;
}

static bool reader_is_gone(struct output *o)
{
    struct pollfd p = {.fd = STDOUT_FILENO};
    if (poll(&p, 1, 0) != 1 || !(p.revents & POLLERR)) return false;
    o->error = EPIPE;
    return true;
}

static int take_piece(void *arg, enum chat_piece kind, const char *text, size_t n)
{
    struct output *o = arg;
    switch (kind) {
    case CHAT_NOTE: put_note(o, text, n); return reader_is_gone(o);
    case CHAT_REASONING:
        if (o->m.json) return put_event(o, json_pack("{s:s, s:s%}", "type", "reasoning", "text", text, n));
        if (o->m.verbose) put_thought(o, text, n);
        return reader_is_gone(o);
    case CHAT_CONTENT:
        clear_note(o);
        end_thoughts(o);
        if (o->m.json) return put_event(o, json_pack("{s:s, s:s%}", "type", "content", "text", text, n));
        return put_content(o, text, n);
    }
    return 0;
}

/* ---- the exchange ---- */

static int send_request(struct place *p, json_t *request, chat_sink *sink, void *arg, struct chat_result *r,
                        struct qn_error *e)
{
    running = p->client;
    int rc = caught ? error_set(e, QN_ECANCEL, "cancelled") : chat_send(p->client, request, sink, arg, r, e);
    running = NULL;
    return rc;
}

static double per_second(int n, double ms) { return n > 0 && ms > 0 ? n * 1000.0 / ms : 0; }

static void say_numbers(const struct place *p, const struct chat_result *r)
{
    fprintf(stderr, "quern: %s%s%s", p->name, *r->model ? ", model " : "", r->model);
    if (r->n_prompt >= 0) fprintf(stderr, "; %d tokens read", r->n_prompt);
    if (r->n_cached > 0) fprintf(stderr, ", %d of them cached", r->n_cached);
    if (r->prefill_ms > 0)
        fprintf(stderr, " (%.0f/s)", per_second(r->n_prompt - (r->n_cached > 0 ? r->n_cached : 0), r->prefill_ms));
    if (r->n_generated >= 0) fprintf(stderr, "; %d written", r->n_generated);
    if (r->decode_ms > 0) fprintf(stderr, " (%.1f/s)", per_second(r->n_generated, r->decode_ms));
    fprintf(stderr, "; %s\n", *r->finish ? r->finish : "no reason given for the end");
}

static int put_start(struct output *o, const struct place *p)
{
    json_t *event = json_pack("{s:s, s:s}", "type", "start", "place", p->name);
    if (event && p->model) json_object_set_new(event, "model", json_string(p->model));
    return put_event(o, event);
}

static void set_number(json_t *o, const char *name, double value)
{
    if (value >= 0) json_object_set_new(o, name, json_real(value));
}

static void set_count(json_t *o, const char *name, int value)
{
    if (value >= 0) json_object_set_new(o, name, json_integer(value));
}

static int put_end(struct output *o, const struct chat_result *r)
{
    json_t *usage = json_object(), *timings = json_object();
    set_count(usage, "prompt_tokens", r->n_prompt);
    set_count(usage, "cached_tokens", r->n_cached);
    set_count(usage, "completion_tokens", r->n_generated);
    set_number(timings, "prefill_ms", r->prefill_ms);
    set_number(timings, "decode_ms", r->decode_ms);
    return put_event(o, json_pack("{s:s, s:s, s:s, s:o, s:o}", "type", "end", "finish", r->finish, "model", r->model,
                                  "usage", usage, "timings", timings));
}

static int finish(struct output *o, const struct place *p, const struct chat_result *r)
{
    int rc = 0;
    if (o->m.json)
        rc = put_end(o, r);
    else if (o->last && o->last != '\n')
        rc = put(o, "\n", 1);
    if (!rc && !strcmp(r->finish, "length"))
        fprintf(stderr, "quern: warning: the answer was cut after %d tokens: --max-tokens, or the context is full\n",
                r->n_generated);
    if (o->m.verbose) say_numbers(p, r);
    return rc;
}

int answer_stream(struct place *p, json_t *request, const struct answer_manner *m)
{
    struct output o = {.m = *m,
                       .notes = term_is(STDERR_FILENO),
                       .colour = term_colour(STDERR_FILENO),
                       .shown = isatty(STDOUT_FILENO),
                       .thoughts_shown = isatty(STDERR_FILENO)};
    struct chat_result r = {0};
    struct qn_error e = {0};
    int rc = m->json ? put_start(&o, p) : 0;
    if (!rc) rc = send_request(p, request, take_piece, &o, &r, &e);
    clear_note(&o);
    end_thoughts(&o);
    if (!rc) rc = finish(&o, p, &r);
    buf_deinit(&o.clean);
    if (o.error) {
        errno = o.error;
        return cli_write_status();
    }
    return rc ? answer_fail(&e, &r) : EX_OK;
}

struct collected {
    struct buf *out;
    struct qn_error e;
    int rc;
};

static int collect_piece(void *arg, enum chat_piece kind, const char *text, size_t n)
{
    struct collected *c = arg;
    if (kind == CHAT_CONTENT) c->rc = buf_add(c->out, text, n, &c->e);
    return c->rc;
}

int answer_collect(struct place *p, json_t *request, struct buf *out, struct chat_result *r, struct qn_error *e)
{
    struct collected c = {.out = out};
    *r = (struct chat_result){0};
    int rc = send_request(p, request, collect_piece, &c, r, e);
    if (c.rc) *e = c.e;
    return c.rc ? c.rc : rc;
}
