/* SPDX-License-Identifier: MIT
 *
 * job_event.c: turns the scheduler's events into the answer. Everything runs in the scheduler's thread except
 * on_hangup() and heartbeat().
 *
 * The scheduler computes nothing while a callback runs. So a token is turned into JSON here at once, usually without an
 * allocation, and sent in one write. Handing it to another thread would cost more.
 *
 * The text of a stream waits in the server's queue if the client reads slowly. When the queue is full, the client has
 * fallen behind by thousands of tokens. Then the request is cancelled and the connection broken, so that the client
 * notices. Nothing is paused, because a paused answer would hold its place and its memory for as long as the client
 * likes.
 *
 * A tool call is sent when it is complete and its arguments are valid JSON. Text that turns out to be no call is sent
 * as text, in a stream as in a whole answer. Where a grammar makes sure that the text of a call is one, streams send
 * its arguments while they are written. If the answer ends in the middle of such a call, the call stays as it is.
 */
#include "server/api/api_impl.h"

#include <stdio.h>

#include "base/os.h"

#define LONG   16384 /* tokens of a request whose memory is given back to the system at its end */
#define REPEAT 10    /* one of so many heartbeats repeats what was said before */

/* ---- events: pieces of an answer ---- */

static void lose(struct job *j)
{
    j->lost = true;
    qn_cancel(j->served->scheduler, j->ticket->number);
}

/* Sends the text in j->out. */
static void flush(struct job *j)
{
    if (j->resumable && !j->out.failed) {
        if (j->out.b.len > 0) resumable_write(j->resumable, j->out.b.data, j->out.b.len, j->n_ids);
        buf_clear(&j->out.b);
        return;
    }
    if (j->out.b.len > 0 && !j->lost && !j->ticket->gone && !j->out.failed &&
        http_stream_write(j->req, j->out.b.data, j->out.b.len) == HTTP_FULL)
        lose(j);
    if (j->out.failed && !j->lost) lose(j);
    buf_clear(&j->out.b);
}

/* Adds to a text of the answer. Without memory the whole answer fails, because half of it would look complete. */
static void keep(struct job *j, struct buf *b, const char *text, size_t n)
{
    if (n > 0 && buf_add(b, text, n, NULL)) j->out.failed = true;
}

/* A piece of content or of thoughts; a stream sends it at once. */
static void on_text(struct job *j, int i, enum qn_reply_kind kind, const char *text, size_t n)
{
    struct job_answer *a = &j->answer[i];
    if (n == 0) return;
    if (!j->params.stream || j->d->keeps_text)
        keep(j, kind == QN_REPLY_REASONING ? &a->reasoning : &a->content, text, n);
    if (j->params.stream || j->d->sees_whole) j->d->text_stream(j, i, kind, text, n);
}

/* Adds a call with the name that was collected, and without arguments. NULL: there is no memory. */
static struct job_call *add_call(struct job *j, int i)
{
    struct job_answer *a = &j->answer[i];
    struct job_call *all = mem_realloc(a->call, (size_t)(a->n_calls + 1) * sizeof *all);
    if (all) {
        a->call = all;
        all[a->n_calls] =
            (struct job_call){mem_dup(a->name.data ? (char *)a->name.data : "", a->name.len), mem_dup("", 0), false};
        a->n_calls++;
    }
    if (all && all[a->n_calls - 1].name && all[a->n_calls - 1].arguments) return &all[a->n_calls - 1];
    j->out.failed = true;
    return NULL;
}

/* Gives the last call the arguments that were collected. Returns false if there is no memory. */
static bool set_arguments(struct job *j, int i)
{
    struct job_answer *a = &j->answer[i];
    char *text = mem_dup(a->arguments.data ? (char *)a->arguments.data : "", a->arguments.len);
    if (!text) {
        j->out.failed = true;
        return false;
    }
    mem_free(a->call[a->n_calls - 1].arguments);
    a->call[a->n_calls - 1].arguments = text;
    return true;
}

/* A call has its name. */
static void on_call(struct job *j, int i, const char *name, size_t n)
{
    struct job_answer *a = &j->answer[i];
    buf_clear(&a->name);
    buf_clear(&a->arguments);
    keep(j, &a->name, name, n);
    if (!j->params.stream || !j->params.calls.is_compiled || !j->d->call_begin) return;
    const struct job_call *c = add_call(j, i);
    a->is_calling = c != NULL;
    if (c) j->d->call_begin(j, i, c);
}

static void on_arguments(struct job *j, int i, const char *text, size_t n)
{
    keep(j, &j->answer[i].arguments, text, n);
    if (j->answer[i].is_calling) j->d->call_piece(j, i, text, n);
}

/* The call that was sent in pieces ends. */
static void end_pieces(struct job *j, int i, bool is_cut)
{
    struct job_answer *a = &j->answer[i];
    a->is_calling = false;
    a->call[a->n_calls - 1].is_cut = is_cut;
    if (set_arguments(j, i)) j->d->call_end(j, i, &a->call[a->n_calls - 1]);
}

/* The call that was collected is complete. */
static void on_call_end(struct job *j, int i)
{
    if (j->answer[i].is_calling) {
        end_pieces(j, i, false);
        return;
    }
    const struct job_call *c = add_call(j, i);
    if (c && set_arguments(j, i) && (j->params.stream || j->d->sees_whole)) j->d->call_stream(j, i, c);
}

/* Text that began as a call and is none. A part that was sent as a call stays one, which is cut. */
static void on_bad_call(struct job *j, int i, const char *text, size_t n)
{
    if (j->answer[i].is_calling)
        end_pieces(j, i, true);
    else
        on_text(j, i, QN_REPLY_CONTENT, text, n);
}

/* Handles the pieces that the reply has made of its last token. Returns true if the answer has to end, because only one
 * call was allowed. */
static bool on_reply(struct job *j, int i)
{
    struct job_answer *a = &j->answer[i];
    struct qn_reply_event e;
    while (qn_reply_next(a->reply, &e)) {
        a->n_unsure = 0;
        switch (e.kind) {
        case QN_REPLY_BAD_CALL: on_bad_call(j, i, e.text, e.n); break;
        case QN_REPLY_CONTENT: on_text(j, i, QN_REPLY_CONTENT, e.text, e.n); break;
        case QN_REPLY_REASONING: on_text(j, i, QN_REPLY_REASONING, e.text, e.n); break;
        case QN_REPLY_CALL: on_call(j, i, e.text, e.n); break;
        case QN_REPLY_ARGUMENTS: on_arguments(j, i, e.text, e.n); break;
        case QN_REPLY_CALL_END:
            on_call_end(j, i);
            if (j->params.one_call) return true;
            break;
        }
    }
    return false;
}

/* Ends an answer. The end of the last one is written when the request is done and its counts are known. */
static void end_answer(struct job *j, int i, enum qn_finish finish, int stop_index)
{
    struct job_answer *a = &j->answer[i];
    if (a->is_calling) end_pieces(j, i, true);
    a->ended = true;
    a->finish = finish;
    a->stop_index = stop_index;
    j->last = i;
    if (++j->n_ended < j->n_answers && j->params.stream) j->d->finish_stream(j, i, false);
}

/* The number of the answer that an event is about, among those of all prompts. */
static int index_of(const struct job *j, const struct qn_event *e) { return j->at * j->params.n + e->answer; }

/* A piece of a continued text. Returns true if the answer has to end here. text NULL: its end. */
static bool on_plain(struct job *j, int i, const char *text, size_t n)
{
    struct buf out = {0};
    if (!j->d->limit) {
        on_text(j, i, QN_REPLY_CONTENT, text, n);
        return false;
    }
    bool enough = j->d->limit(j, i, text, n, &out);
    on_text(j, i, QN_REPLY_CONTENT, (char *)out.data, out.len);
    buf_deinit(&out);
    return enough;
}

static void on_token(struct job *j, const struct qn_event *e)
{
    int i = index_of(j, e);
    struct job_answer *a = &j->answer[i];
    uint64_t now = clock_ns();
    bool stopped = false;
    if (e->answer == 0 && j->last_token_ns)
        hists_add(&j->api->hists[j->served->index], HIST_NEXT_TOKEN, (double)(now - j->last_token_ns) * 1e-9);
    if (e->answer == 0) j->last_token_ns = now;
    if (!j->first_token_ns) j->first_token_ns = now;
    j->n_unwanted += a->ended;
    a->went_on |= a->ended;
    if (a->ended) return;
    if (j->lost || j->ticket->gone) a->early = RECEIPT_CANCELLED; /* the receipt has the tokens before this one */
    if (a->early) return;
    a->n_tokens++;
    job_receipt_token(j, i, e->token);
    if (j->params.logprobs) j->d->logprob(j, a, e);
    if (!a->reply) {
        if (!on_plain(j, i, e->text, e->n_text)) return;
        a->early = RECEIPT_CANCELLED;
        end_answer(j, i, QN_FINISH_LENGTH, -1);
        if (j->n_ended == j->n_answers) qn_cancel(j->served->scheduler, j->ticket->number);
        return;
    }
    bool thought = qn_reply_is_thinking(a->reply);
    if (qn_reply_push(a->reply, e->token, &stopped, NULL)) {
        j->out.failed = true;
        return;
    }
    if (thought || qn_reply_is_thinking(a->reply)) {
        a->n_reasoning += 1 + a->n_unsure;
        a->n_unsure = 0;
    } else {
        a->n_unsure++;
    }
    bool enough = on_reply(j, i);
    if (!stopped && !enough) return;
    if (!stopped) a->early = RECEIPT_CALL;
    end_answer(j, i, stopped ? QN_FINISH_STOP_STRING : QN_FINISH_STOP_TOKEN, qn_reply_stop_index(a->reply));
    if (j->n_ended == j->n_answers) qn_cancel(j->served->scheduler, j->ticket->number);
}

static bool is_failure(enum qn_finish f)
{
    return f == QN_FINISH_ERROR || f == QN_FINISH_STOPPED || f == QN_FINISH_DEADLINE;
}

/* An answer that we cut after the token that ended it in any case has that end. */
static void note_end(struct job_answer *a, const struct qn_event *e)
{
    bool is_end = e->finish == QN_FINISH_LENGTH || e->finish == QN_FINISH_STOP_STRING;
    if (!a->ended || a->went_on || !is_end) return;
    a->early = e->finish == QN_FINISH_LENGTH ? RECEIPT_LENGTH : RECEIPT_TEXT;
    a->stop_index = e->stop_index;
}

/* The scheduler has ended an answer. We may have ended it before, after a stop text or a call. */
static void on_finish(struct job *j, const struct qn_event *e)
{
    int i = index_of(j, e);
    struct job_answer *a = &j->answer[i];
    j->n_unwanted += a->ended && e->finish == QN_FINISH_STOP_TOKEN; /* that token has no event of its own */
    if (a->early == RECEIPT_CANCELLED) note_end(a, e);
    if (a->ended || is_failure(e->finish)) return; /* a failure concerns the whole request: on_done() handles it */
    if (e->finish == QN_FINISH_STOP_TOKEN && e->token >= 0 && !a->early) job_receipt_token(j, i, e->token);
    if (!a->reply) {
        if (!on_plain(j, i, e->text, e->n_text)) on_plain(j, i, NULL, 0);
    } else {
        /* A control token may close a call. */
        if (e->finish == QN_FINISH_STOP_TOKEN && e->token >= 0 && qn_reply_push(a->reply, e->token, NULL, NULL))
            j->out.failed = true;
        else if (!on_reply(j, i) && qn_reply_end(a->reply, NULL))
            j->out.failed = true;
        else if (!j->out.failed)
            on_reply(j, i);
    }
    /* Text that was held back as the beginning of a call may contain a stop text. */
    int stop = e->finish == QN_FINISH_STOP_STRING ? e->stop_index : -1;
    if (a->reply) stop = qn_reply_stop_index(a->reply);
    end_answer(j, i, stop >= 0 ? QN_FINISH_STOP_STRING : e->finish, stop);
}

/* ---- events: the whole request ---- */

/* Runs under the server's lock, like heartbeat(): see docs/THREADS.md. */
static void on_hangup(void *arg)
{
    struct job *j = arg;
    if (j->resumable)
        resumable_left(j->resumable);
    else
        ticket_hang_up(j->ticket);
}

/* Writes what is new. It repeats old news rarely, because thousands of requests may wait. */
static size_t heartbeat(void *arg, char *text, size_t cap)
{
    struct job *j = arg;
    int n, phase = j->ticket->phase, n_done = j->ticket->n_done;
    bool is_new = phase != j->told_phase || n_done != j->told_done;
    if (!is_new && ++j->n_untold < REPEAT) return 0;
    j->told_phase = phase;
    j->told_done = n_done;
    j->n_untold = 0;
    switch (phase) {
    case QN_EVENT_QUEUED: n = snprintf(text, cap, ": queued, %d before\n\n", n_done); break;
    case QN_EVENT_PREFILL: n = snprintf(text, cap, ": prefill %d/%d\n\n", n_done, j->ticket->n_total); break;
    case QN_EVENT_PAUSE: n = snprintf(text, cap, ": paused\n\n"); break;
    default: n = snprintf(text, cap, ": decoding\n\n"); break;
    }
    return (size_t)n;
}

/* The first event, which comes at once. From here on the client can be told something, and its leaving is seen. */
static void on_start(struct job *j)
{
    /* Only server-sent events have comments. */
    const struct http_watch w = {.on_hangup = on_hangup, .heartbeat = j->d->stream_type ? NULL : heartbeat, .arg = j};
    j->started = true;
    if (http_watch(j->req, &w) == HTTP_GONE) j->ticket->gone = true;
    if (j->params.stream) {
        http_set_header(j->req, "Cache-Control", "no-cache");
        http_set_header(j->req, "X-Accel-Buffering", "no"); /* a proxy in front must not collect the stream */
        if (j->resumable)
            resumable_start(j->resumable, j->req, &w);
        else
            http_stream_open(j->req, 200, j->d->stream_type ? j->d->stream_type : "text/event-stream");
    }
}

/* The first event of a prompt. */
static void on_known(struct job *j, uint64_t number)
{
    j->known = true;
    ticket_started(j->ticket, number);
    if (j->d->start) j->d->start(j);
}

/* Adds what a prompt took to what those before it did. */
static void add_up(struct job *j, const struct qn_event *e)
{
    j->usage.n_prompt += e->usage.n_prompt;
    j->usage.n_cached += e->usage.n_cached;
    j->usage.n_generated += e->usage.n_generated - j->n_unwanted;
    j->n_unwanted = 0;
    j->usage.n_passes += e->usage.n_passes;
    j->usage.n_drafted += e->usage.n_drafted;
    j->usage.n_pass_rows += e->usage.n_pass_rows;
    j->usage.n_unverified += e->usage.n_unverified;
    j->usage.n_accepted += e->usage.n_accepted;
    if (j->usage.n_dropped < e->usage.n_dropped) j->usage.n_dropped = e->usage.n_dropped;
    j->usage.n_rotations += e->usage.n_rotations;
    j->timings.queue_ms += e->timings.queue_ms;
    j->timings.prefill_ms += e->timings.prefill_ms;
    j->timings.decode_ms += e->timings.decode_ms;
    j->timings.paused_ms += e->timings.paused_ms;
    if (j->timings.miss) return;
    j->timings.miss = e->timings.miss;
    j->timings.miss_position = e->timings.miss_position;
    j->timings.miss_asked = e->timings.miss_asked;
    j->timings.miss_stored = e->timings.miss_stored;
}

static void fault_of(struct fault *f, const struct qn_event *e)
{
    if (e->finish == QN_FINISH_ERROR)
        api_fault(f, e->error);
    else if (e->finish == QN_FINISH_DEADLINE)
        fault_set(f, 504, "deadline_exceeded", NULL, "deadline_ms was over before the answer was");
    else
        fault_set(f, 503, "stopping", NULL, "the server is being stopped");
}

static void end_stream(struct job *j)
{
    if (j->resumable) {
        resumable_end(j->resumable, !j->lost);
        j->resumable = NULL;
    } else if (j->lost) {
        http_stream_abort(j->req);
    } else {
        http_stream_end(j->req);
    }
}

/* Submits the next prompt, if there is one and its answers are still wanted. Returns true if the job goes on. *f: why
 * it cannot, if that is a failure. */
static bool go_on(struct job *j, enum qn_finish finish, double *retry_s, struct fault *f)
{
    if (!j->prompts || j->at + 1 == j->n_prompts) return false;
    if (finish == QN_FINISH_CANCELLED || is_failure(finish) || j->lost || j->out.failed || j->ticket->gone)
        return false;
    job_receipt_make(j);
    j->at++;
    j->known = false;
    j->last_token_ns = 0;
    if (j->params.stream) flush(j);
    return !job_submit(j, retry_s, f);
}

/* Notes for the log what was used, and how a request ended that was not completed. */
static void log_end(struct job *j, const struct fault *f)
{
    const char *outcome = NULL;
    if (j->lost)
        outcome = "too_slow";
    else if (j->ticket->cancelled && j->n_ended < j->n_answers)
        outcome = "cancelled";
    else if (j->params.stream && f->status)
        outcome = f->code;
    if (j->resumable) {
        resumable_tally(j->resumable, j->served, &j->usage, outcome);
        return;
    }
    tally_log(j->req, j->served, &j->usage);
    if (outcome) http_outcome(j->req, outcome);
}

/* The last event of a prompt: goes on with the next one; or answers, or ends the stream, and frees the job. */
static void on_done(struct job *j, const struct qn_event *e)
{
    struct fault f = {0};
    double retry_s = 1;
    tally_done(j->api, j->served, &e->usage, &e->timings);
    add_up(j, e);
    if (go_on(j, e->finish, &retry_s, &f)) return;
    bool failed = f.status || (is_failure(e->finish) && j->n_ended < j->n_answers);
    if (failed && !f.status) fault_of(&f, e);
    log_end(j, &f);
    ticket_unlist(j->ticket); /* before the client sees the end, because its next request may rely on the place */
    for (int i = 0; i < j->n_answers && !failed; i++)
        if (!j->answer[i].ended) end_answer(j, i, QN_FINISH_CANCELLED, -1);
    if (!failed) job_receipt_make(j);
    if (j->params.stream) {
        if (failed) {
            j->d->error_stream(j, &f);
        } else {
            j->d->finish_stream(j, j->last, true);
            j->d->close_stream(j);
        }
        flush(j);
        end_stream(j);
    } else {
        if (!failed && !j->out.failed) j->d->whole(j);
        if (j->out.failed && !failed) api_no_memory(&f);
        if (failed || j->out.failed)
            api_refuse_busy(j->req, &f, retry_s, j->d->refuse);
        else
            api_send(j->req, &j->out);
    }
    bool is_long = (int64_t)j->usage.n_prompt + j->usage.n_generated + j->usage.n_dropped > LONG;
    job_free(j);
    if (is_long) mem_trim();
}

void job_on_event(void *arg, const struct qn_event *e)
{
    struct job *j = arg;
    if (!j->started) on_start(j);
    if (!j->known) on_known(j, e->request);
    ticket_note(j->ticket, e);
    switch (e->type) {
    case QN_EVENT_QUEUED:
    case QN_EVENT_PREFILL:
    case QN_EVENT_EMBEDDING: break;
    case QN_EVENT_PROMPT:
        for (int i = 0; i < j->params.n; i++) j->d->logprob(j, &j->answer[j->at * j->params.n + i], e);
        break;
    case QN_EVENT_TOKEN: on_token(j, e); break;
    case QN_EVENT_PAUSE: j->last_token_ns = 0; break; /* a pause is no gap between two tokens */
    case QN_EVENT_FINISH: on_finish(j, e); break;
    case QN_EVENT_DONE: on_done(j, e); return;
    }
    if (j->params.stream) flush(j);
    if (j->resumable && !j->lost && resumable_is_abandoned(j->resumable)) lose(j);
}
