/* SPDX-License-Identifier: MIT
 *
 * api_impl.h: what the files of the API share.
 *
 *     api.c          the routes, the workers that handlers hand requests to
 *     ticket.c       a request from its handler to its answer, whatever it wants: how it is found, counted and ended
 *     job.c          one request for an answer, from submission to its end; the dialects fill in how it looks
 *     dialect files  openai_text.c openai_chat.c anthropic.c responses.c: how a request is read and an answer written
 *     embed.c tokens.c status.c metrics.c sessions.c    the endpoints that make no answer
 *     stats.c        histograms, of each model
 *
 * Threads. A handler (the server's thread) only queues the request. A worker reads its body and asks for its model,
 * and a worker (this one, or any later, when the model had to be loaded) reads the rest and submits it. From then on
 * the request and its job belong to the scheduler's thread, which runs the callback: it opens the stream, writes and
 * ends it. Beside it, hang-ups and heartbeats (the server's thread) use the atomic members of a ticket and a job, and
 * ticket_cancel() finds tickets in the list. api.lock is a leaf but for the scheduler's own lock.
 */
#ifndef QUERN_SERVER_API_IMPL_H
#define QUERN_SERVER_API_IMPL_H

#include <pthread.h>
#include <stdatomic.h>

#include "server/api.h"
#include "server/ask.h"
#include "server/json_out.h"

/* ---- histograms (stats.c) ---- */

enum hist { HIST_QUEUE, HIST_FIRST_TOKEN, HIST_NEXT_TOKEN, HIST_PROMPT, HIST_GENERATED, N_HIST };
#define HIST_BUCKETS 16

struct hists {
    pthread_mutex_t lock; /* a leaf */
    struct {
        uint64_t n[HIST_BUCKETS + 1]; /* the last one: beyond all bounds */
        double sum;
    } hist[N_HIST];
};
void hists_add(struct hists *h, enum hist which, double value);
/* As Prometheus text: what is said of it once, then each model's, whose name is escaped. Not 0 when there is no memory.
 */
int hists_write_head(enum hist which, struct buf *b);
int hists_write(struct hists *h, enum hist which, const char *model, struct buf *b);

/* ---- requests that are under way (ticket.c) ---- */

struct api;

/* A request from its handler to its answer: it counts for its key's limit, is found by its name, has what was taken for
 * it of the requests' memory, and says when it is not wanted any more. One thread at a time has it; others use the
 * atomic members, and those of api.lock under it. */
struct ticket {
    struct api *api;
    struct ticket *next; /* api.lock */
    bool is_listed;      /* api.lock */
    uint64_t identity;   /* whose it is */
    char id[48];         /* the answer's: prefix and the HTTP request's */
    size_t n_prefix;
    uint64_t arrived_ns;         /* clock_ns(), in its handler */
    uint64_t deadline_ns;        /* when it is not wanted any more; 0: always */
    qn_scheduler *scheduler;     /* that it is submitted to; set before number is */
    _Atomic uint64_t number;     /* the scheduler's; 0: it has none yet. Written under api.lock */
    atomic_bool gone, cancelled; /* the client has left; it was cancelled by its name */
    size_t n_body;               /* bytes of the HTTP body, while it is there */
    size_t taken;                /* bytes of api.c.requests, given back with the ticket */
    struct qn_cancel cancel;     /* asks ticket_is_over() */
};

/* In a handler. NULL and *f: the key has as many requests as it may, or there is no memory. prefix: of the answer's id.
 */
struct ticket *ticket_new(struct api *a, struct http_request *r, const char *prefix, struct fault *f);
/* After the answer; NULL is fine. */
void ticket_free(struct ticket *t);
void ticket_unlist(struct ticket *t); /* from then on it cannot be cancelled by name, and does not count */
/* The scheduler has it, under this number. Cancelled there too if it was before. */
void ticket_started(struct ticket *t, uint64_t number);
void ticket_hang_up(struct ticket *t); /* the client has left */
/* Cancels what this identity calls so: the answer's id or the HTTP request's. */
bool ticket_cancel(struct api *a, const char *id, uint64_t identity);
int tickets_count(struct api *a); /* all that are under way */
/* Nobody waits for it any more: the client has left, it was cancelled, its deadline is over, or the server stops. */
bool ticket_is_over(const struct ticket *t);
/* Why it is over; always -1, as the next. */
int ticket_fault(const struct ticket *t, struct fault *f);
/* A failure of quern.h, which may be that it was over. */
int ticket_failed(const struct ticket *t, struct fault *f, const struct qn_error *e);
/* Takes and gives back of the requests' memory. what: for the refusal. */
int ticket_take(struct ticket *t, size_t bytes, const char *what, struct fault *f);
void ticket_give(struct ticket *t, size_t bytes);

/* ---- the API ---- */

struct job;
struct api_call;
typedef void api_refuse(struct http_request *r, const struct fault *f);
/* In a worker, with the body read and the model held: answers, or has somebody answer. What it takes over of the two it
 * sets to NULL. */
typedef void api_work(struct api_call *c);

/* A request on its way to its work. */
struct api_call {
    struct models_wait wait; /* first: a call is found by it */
    struct api_call *next;
    struct api *api;
    struct http_request *req;
    struct ticket *ticket;
    api_work *work;
    api_refuse *refuse;
    bool no_model;         /* the work wants neither body nor model */
    json_t *body;          /* NULL: not read yet */
    size_t body_taken;     /* of the ticket's memory, for it */
    struct served *served; /* NULL: not held yet */
    struct fault fault;    /* why there will be none */
    uint64_t asked_ns;
    double load_ms; /* what it waited for its model */
};

struct api {
    struct api_config c;
    uint64_t start_s;    /* seconds since 1970 */
    uint64_t start_ns;   /* clock_ns() */
    struct hists *hists; /* [models] */
    pthread_t worker[8];
    int n_workers;

    pthread_mutex_t lock;
    pthread_cond_t wake;
    struct api_call *first, **last; /* what waits for a worker */
    bool busy[8];                   /* [n_workers] a worker has a call, */
    uint64_t busy_for[8];           /* of this identity */
    pthread_cond_t idle;            /* a worker's call is over */
    bool stopping;
    struct ticket *tickets; /* of all requests that are under way */
    atomic_bool ending;     /* no request is wanted any more */
};

/* ---- errors, as one API or the other says them ---- */

api_refuse api_refuse_openai, api_refuse_anthropic;
/* The body of such an error; for streams. */
void api_error_openai(struct json_out *o, const struct fault *f);
void api_error_anthropic(struct json_out *o, const struct fault *f);
/* What a failure of quern.h means to a client; always -1. */
int api_fault(struct fault *f, const struct qn_error *e);
int api_no_memory(struct fault *f);
/* Takes what it may need to make tokens of n bytes of text: *taken, for ticket_give() when that is done. */
int api_take_work(struct ticket *t, size_t n, size_t *taken, struct fault *f);
/* The same for a request of n bytes that goes through a chat template. */
int api_take_chat_work(struct ticket *t, size_t n, size_t *taken, struct fault *f);
int api_dump(struct buf *b, const json_t *j); /* adds it as text; not 0 when there is no memory */
/* Refuses; to come again after retry_s seconds where that may help. */
void api_refuse_busy(struct http_request *r, const struct fault *f, double retry_s, api_refuse *refuse);
/* Sends what was written as an answer of status 200; frees it. */
void api_send(struct http_request *r, struct json_out *o);
/* The same at the end of a call's work, which counts no more when the client can know: its next request may count on
 * the place. */
void api_end(struct api_call *c, struct json_out *o);
void api_end_refused(struct api_call *c, const struct fault *f);

/* ---- whose it is (who.c) ---- */

struct who {
    uint64_t identity, salt[2];
};
/* cache_salt: what the client said to separate its own users' prefixes; NULL: nothing. */
struct who who_of(const struct http_identity *i, const char *cache_salt);

/* ---- jobs (job.c) ---- */

/* A tool call of an answer, complete. */
struct job_call {
    char *name, *arguments;
};

/* One of the n answers. content and reasoning stay empty in streams, unless the dialect keeps_text. */
struct job_answer {
    qn_reply *reply; /* NULL: plain text */
    struct buf content, reasoning;
    struct job_call *call; /* [n_calls] */
    int n_calls;
    struct buf name, arguments; /* of the call that is being written */
    /* Of tokens that no piece has gone out with: values separated by commas, in as many lists as the dialect wants. */
    struct json_out logprobs[4];
    size_t n_chars; /* characters of all tokens so far */
    int n_tokens;
    bool ended;
    enum qn_finish finish;
    int stop_index; /* -1 unless a stop string ended it */
    int block;      /* for the dialect: which block is open */
    int n_blocks;   /* that are complete */
};

/* How an API reads a request and writes its answer. Those with `_stream` are for streams only; they write into j->out
 * what then is sent as a whole. */
struct dialect {
    const struct field *const *tables;
    const char *id_prefix; /* of the answer's id */
    bool keeps_text;       /* of streams too */
    api_refuse *refuse;
    /* From what was asked to tokens: fills prompt or tokens. Also what the tables cannot check. */
    int (*prepare)(struct job *j, struct fault *f);
    void (*start)(struct job *j); /* may be NULL; before all else, of whole answers too */
    void (*text_stream)(struct job *j, int i, enum qn_reply_kind kind, const char *text, size_t n);
    void (*call_stream)(struct job *j, int i, const struct job_call *c);
    /* The end of answer i; of the last one it is written when the counts are known. */
    void (*finish_stream)(struct job *j, int i, bool last);
    void (*close_stream)(struct job *j);
    void (*error_stream)(struct job *j, const struct fault *f);
    void (*whole)(struct job *j);
    /* One more token's logprob into a->logprobs; NULL where none can be asked for. Only called when they were asked
     * for. */
    void (*logprob)(struct job *j, struct job_answer *a, const struct qn_event *event);
    void (*write_head)(struct job *j); /* OpenAI's two: an open object with what all chunks have */
};

struct job {
    struct api *api;
    struct served *served; /* held */
    struct http_request *req;
    struct ticket *ticket;
    const struct dialect *d;
    struct ask ask;
    struct who who;
    qn_prompt *prompt;
    const qn_token *tokens; /* [n_tokens] of the prompt: the qn_prompt's or the ask's */
    size_t n_tokens;
    struct job_answer *answer; /* [ask.n] */
    const char *id;            /* the ticket's */
    int64_t created;
    double load_ms; /* waited for the model */
    struct json_out out;
    struct qn_usage usage; /* once it is done */
    struct qn_timings timings;
    int n_ended;
    int n_events; /* for dialects that number them */
    int last;     /* the answer that ended last */
    bool started; /* has had its first event */
    bool lost;    /* what is to be sent cannot be: no memory, or the client reads too slowly */
    uint64_t last_token_ns;

    /* for other threads */
    atomic_int phase, n_done, n_total;   /* for heartbeats: an enum qn_event_type, its numbers */
    int told_phase, told_done, n_untold; /* the last heartbeat, and those since that had nothing to say. The door's */
};

/* Reads the request in the way of a dialect and submits it. In a worker. */
void job_begin(struct api_call *c, const struct dialect *d);
/* Reads it and makes its prompt, no more: for those that only look. NULL, and the request is answered, if it is
 * refused. */
struct job *job_read(struct api_call *c, const struct dialect *d);
void job_free(struct job *j);
qn_callback job_on_event;

/* For dialects. */
void job_event(struct job *j, const char *name); /* begins a server-sent event in j->out, name may be NULL */
void job_event_end(struct job *j);
const char *job_finish_reason(const struct job *j, int i); /* OpenAI's words */
void job_write_quern(struct job *j);                       /* "quern": {...} */
/* The bytes of a token as JSON: "token": text and "bytes": [...]. */
void job_write_token(struct job *j, struct json_out *o, qn_token t);
/* Conversations: the prompt from messages, tools and the rest of the ask. */
int job_prepare_chat(struct job *j, struct fault *f);

/* What OpenAI's two dialects share (openai_chat.c). */
void openai_usage(struct job *j); /* "usage": {...} */
void openai_close_stream(struct job *j);
void openai_error_stream(struct job *j, const struct fault *f);

extern const struct dialect openai_text, openai_chat, anthropic, anthropic_count, responses;

#endif
