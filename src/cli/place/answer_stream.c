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
#include "cli/core/code_block.h"
#include "cli/core/render.h"
#include "cli/core/term.h"

#define MAX_HELD ((size_t)1 << 16) /* bytes of a line; a longer one is written in pieces */

/* ---- signals ---- */

static struct client *volatile running[PLACE_CONNECTIONS]; /* by the slot of the place; NULL: no exchange */
static volatile sig_atomic_t caught;                       /* the signal that came; 0: none */

static void on_signal(int sig)
{
    bool is_first = !caught, runs = false;
    for (int i = 0; is_first && i < PLACE_CONNECTIONS; i++) {
        struct client *c = running[i];
        if (!c) continue;
        runs = true;
        caught = sig;
        client_cancel(c);
    }
    if (runs) return;
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
    kill(getpid(), caught); /* a thread may call this that has blocked signals */
    return status;
}

bool answer_is_cancelled(void) { return caught; }

/* ---- errors ---- */

int answer_fail(const struct qn_error *e, const struct chat_result *r)
{
    if (caught) return EX_TEMPFAIL; /* answer_end() ends the program by the signal */
    if (!strcmp(r->code, "context_length_exceeded")) {
        fprintf(stderr, "quern: %s (--overflow says what to do then)\n", e->msg);
        return EX_DATAERR;
    }
    if (chat_wants_model(r)) {
        fputs("quern: which model? Several are served: -m NAME says it, or once quern default\n", stderr);
        return EX_USAGE;
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
    bool begun;                 /* a piece of the answer came, or of the thoughts */
    bool shown, thoughts_shown; /* standard output is a terminal of any kind; standard error is one */
    struct buf clean;           /* a piece without what a terminal would act on */
    struct buf line;            /* the beginning of a line for a pipe or a file, not written yet */
    struct buf receipt, prompt; /* of the answer, for a file */
    char last;                  /* the last byte of the answer; 0: none yet */
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

static bool reader_is_gone(struct output *o)
{
    struct pollfd p = {.fd = STDOUT_FILENO};
    if (poll(&p, 1, 0) != 1 || !(p.revents & POLLERR)) return false;
    o->error = EPIPE;
    return true;
}

/* Writes what is held of a line. */
static int put_held(struct output *o)
{
    int rc = put(o, (char *)o->line.data, o->line.len);
    buf_clear(&o->line);
    return rc;
}

/* Holds the piece until its line is complete, so that the lines of several programs that write to one pipe do not
 * mix. */
static int put_lines(struct output *o, const char *text, size_t n)
{
    const char *end = memrchr(text, '\n', n);
    size_t whole = end ? (size_t)(end - text) + 1 : o->line.len + n > MAX_HELD ? n : 0;
    if (buf_add(&o->line, text, whole, NULL)) goto fail;
    if (whole && put_held(o)) return -1;
    if (buf_add(&o->line, text + whole, n - whole, NULL)) goto fail;
    if (n) o->last = text[n - 1];
    return reader_is_gone(o);
fail:
    o->error = ENOMEM;
    return -1;
}

/* Writes text without what a terminal would act on. */
static int put_clean(struct output *o, const char *text, size_t n)
{
    buf_clear(&o->clean);
    if (!render_clean(&o->clean, text, n, NULL)) return put(o, (char *)o->clean.data, o->clean.len);
    o->error = ENOMEM;
    return -1;
}

/* Writes a piece of the answer: to a file or a pipe in whole lines, to a terminal without what it would act on. */
static int put_content(struct output *o, const char *text, size_t n)
{
    if (o->m.extract) {
        if (!buf_add(&o->line, text, n, NULL)) return reader_is_gone(o);
        o->error = ENOMEM;
        return -1;
    }
    if (!o->shown) return put_lines(o, text, n);
    return put_clean(o, text, n);
}

/* Writes the code block of an answer that was held as a whole. */
static int put_extract(struct output *o)
{
    size_t n = o->line.len;
    const char *text = n ? (char *)o->line.data : "", *code = code_block_find(text, n, &n);
    if (!code) {
        fputs("quern: warning: the answer has no code block, so this is all of it\n", stderr);
        code = text;
    }
    int rc = o->shown ? put_clean(o, code, n) : put(o, code, n);
    buf_clear(&o->line);
    return rc;
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

static int take_piece(void *arg, enum chat_piece kind, const char *text, size_t n)
{
    struct output *o = arg;
    o->begun |= kind == CHAT_CONTENT || kind == CHAT_REASONING;
    struct buf *copy = kind == CHAT_CONTENT ? o->m.text : kind == CHAT_REASONING ? o->m.thoughts : NULL;
    if (copy && buf_add(copy, text, n, NULL)) {
        o->error = ENOMEM;
        return -1;
    }
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
    case CHAT_RECEIPT: return receipt_file_keep(&o->receipt, o->m.receipt, text, n);
    case CHAT_PROMPT: return receipt_file_keep(&o->prompt, o->m.receipt, text, n);
    }
    return 0;
}

/* ---- the exchange ---- */

static int send_request(struct place *p, json_t *request, chat_sink *sink, void *arg, struct chat_result *r,
                        struct qn_error *e)
{
    running[p->slot] = p->client;
    int rc = caught ? error_set(e, QN_ECANCEL, "cancelled") : chat_send(p->client, request, sink, arg, r, e);
    running[p->slot] = NULL;
    return rc;
}

int answer_elsewhere(struct place *p, json_t *request)
{
    if (!client_is_silent(p->client)) return -1;
    int status = place_next(p);
    if (!status) place_fit(p, request);
    return status;
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
    if (r->n_drafted > 0)
        fprintf(stderr, "; %d of %d guesses right, %d passes", r->n_accepted, r->n_drafted, r->n_passes);
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
    set_count(usage, "drafted_tokens", r->n_drafted);
    set_count(usage, "accepted_tokens", r->n_accepted);
    set_count(usage, "passes", r->n_passes);
    set_number(timings, "prefill_ms", r->prefill_ms);
    set_number(timings, "decode_ms", r->decode_ms);
    return put_event(o, json_pack("{s:s, s:s, s:s, s:o, s:o}", "type", "end", "finish", r->finish, "model", r->model,
                                  "usage", usage, "timings", timings));
}

/* Says why the answer ended before its end. */
static void say_cut(const struct chat_result *r, json_int_t max_tokens)
{
    if (max_tokens > 0 && (r->n_generated < 0 || r->n_generated >= max_tokens))
        fprintf(stderr, "quern: warning: the answer was cut after --max-tokens %lld\n", (long long)max_tokens);
    else
        fprintf(stderr, "quern: warning: the answer was cut, because the context is full (see --ctx)\n");
}

static int finish(struct output *o, const struct place *p, const json_t *request, const struct chat_result *r)
{
    int rc = o->m.extract ? put_extract(o) : 0;
    o->m.extract = false; /* what follows is written */
    if (rc)
        return rc;
    else if (o->m.json)
        rc = put_end(o, r);
    else if (o->last && o->last != '\n')
        rc = o->shown ? put(o, "\n", 1) : put_content(o, "\n", 1);
    if (!rc && !strcmp(r->finish, "length")) say_cut(r, json_integer_value(json_object_get(request, "max_tokens")));
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
    int moved = 0, rc;
    do {
        rc = m->json ? put_start(&o, p) : 0;
        if (!rc) rc = send_request(p, request, take_piece, &o, &r, &e);
        clear_note(&o);
        end_thoughts(&o);
    } while (rc && !o.begun && !(moved = answer_elsewhere(p, request)));
    if (m->is_whole) *m->is_whole = !rc && strcmp(r.finish, "length");
    if (!rc) rc = finish(&o, p, request, &r);
    if (!o.error && !o.m.extract) put_held(&o); /* of an answer that failed or was interrupted */
    int status = rc || o.error ? EX_OK : receipt_file_write(m->receipt, &o.receipt, &o.prompt);
    buf_deinit(&o.receipt);
    buf_deinit(&o.prompt);
    buf_deinit(&o.clean);
    buf_deinit(&o.line);
    if (o.error) {
        errno = o.error;
        return cli_write_status();
    }
    if (moved > 0) return moved;
    return rc ? answer_fail(&e, &r) : status;
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
