/* SPDX-License-Identifier: MIT
 *
 * api_impl.h: what the files of the API share.
 *
 *     workers.c         the queue, and the workers that handlers hand requests to
 *     failures.c        errors as each API says them
 *     ws_message.c      requests that come as messages of a WebSocket
 *     ticket.c          a request of any kind from its handler to its answer: how it is found, counted and ended
 *     job.c             a request for an answer, from its body to its submission
 *     job_event.c       a request for an answer, from its submission to its end
 *     resumable.c       streams that outlive their connection
 *     answer_params.c shared_params.c format_params.c
 *                       the fields of requests for an answer
 *     item_store.c      responses that are kept for later requests
 *     vectors.c         requests that compute something for each of several texts
 *     receipts.c        receipts of answers, for clients and for a log
 *     tally.c stats.c   what requests have used; histograms of each model
 *
 * The rooms after this one use it: dialect/ has how each API reads a request and writes an answer, endpoint/ the table
 * of routes and what is no answer of a model.
 *
 * Threads. A handler runs in the server's thread and only queues the request. A worker reads its body and asks for its
 * model. A worker, this one or, if the model has to be loaded, any later one, reads the rest and submits it. From then
 * on the request and its job belong to the scheduler's thread, which runs the callback that opens, writes and ends the
 * stream. Meanwhile hang-ups and heartbeats (the server's thread) use the atomic members of a ticket and a job, and
 * ticket_cancel() finds tickets in the list. api.lock is a leaf, except that the scheduler's own lock may be taken
 * under it.
 */
#ifndef QUERN_SERVER_API_IMPL_H
#define QUERN_SERVER_API_IMPL_H

#include <pthread.h>
#include <stdatomic.h>

#include "base/short_id.h"
#include "server/api/api.h"
#include "server/api/answer_params.h"
#include "server/api/item_store.h"
#include "server/api/receipts.h"
#include "server/json/json_out.h"

/* ---- histograms (stats.c) ---- */

enum hist { HIST_QUEUE, HIST_FIRST_TOKEN, HIST_NEXT_TOKEN, HIST_PROMPT, HIST_GENERATED, N_HIST };
#define HIST_BUCKETS 16

struct hists {
    pthread_mutex_t lock; /* a leaf */
    struct {
        uint64_t n[HIST_BUCKETS + 1]; /* the last one counts values beyond all bounds */
        double sum;
    } hist[N_HIST];
};
/* Counts a value; any thread. */
void hists_add(struct hists *h, enum hist which, double value);
/* Add Prometheus text: the metric's description, which comes once, and then the numbers of each model, whose name is
 * escaped already. Not 0 when there is no memory. */
int hists_write_head(enum hist which, struct buf *b);
int hists_write(struct hists *h, enum hist which, const char *model, struct buf *b);

/* ---- what requests have used (tally.c) ---- */

struct api;
/* Counts a request of the scheduler that is done; any thread. */
void tally_done(struct api *a, const struct served *m, const struct qn_usage *u, const struct qn_timings *t);
/* Says in the log which model a request is for, and what it has used; u may be NULL. */
void tally_log(struct http_request *r, const struct served *m, const struct qn_usage *u);

/* ---- requests that are under way (ticket.c) ---- */

/* A request from its handler to its answer. It counts for the limit of its key, is found by its name, holds the memory
 * that was taken for it, and says whether it is still wanted. One thread at a time owns it. Others use the atomic
 * members, and under api.lock those that it guards. */
struct ticket {
    struct api *api;
    struct ticket *next; /* api.lock */
    bool is_listed;      /* api.lock */
    uint64_t identity;   /* whose it is */
    char id[48];         /* the id of the answer: the prefix, then the id of the HTTP request */
    size_t n_prefix;
    uint64_t arrived_ns;         /* clock_ns(), in its handler */
    uint64_t deadline_ns;        /* clock_ns() after which it is no longer wanted; 0: never */
    qn_scheduler *scheduler;     /* the one it is submitted to; set before number */
    _Atomic uint64_t number;     /* its number at the scheduler; 0: none yet. Written under api.lock */
    _Atomic(const char *) model; /* the model's name; NULL: not known yet */
    /* How far it is: an enum qn_event_type, its numbers, and the tokens generated so far, of all answers. For lists. */
    atomic_int phase, n_done, n_total, n_generated;
    atomic_bool gone, cancelled; /* the client has left; it was cancelled by its name */
    uint64_t websocket;          /* http_websocket_id() */
    char stream_id[65];          /* of a WebSocket's message: the client's name for it. api.lock */
    int resume_s;                /* how long its stream waits for a client that comes back; 0: not at all */
    size_t n_body;               /* bytes of the HTTP body, while it is there */
    size_t taken;                /* bytes taken from api.c.requests; given back with the ticket */
    struct qn_cancel cancel;     /* asks ticket_is_over() */
};

/* Makes a ticket; in a handler. NULL and *f: the key has as many requests as it may have, or there is no memory. A
 * WebSocket's message beyond the key's limit gets a ticket that does not count, and *f, because its refusal repeats a
 * name that only its body has.
 * prefix: of the answer's id. */
struct ticket *ticket_new(struct api *a, struct http_request *r, const char *prefix, struct fault *f);
/* Frees it, after the answer. NULL is fine. */
void ticket_free(struct ticket *t);
void ticket_unlist(struct ticket *t); /* it cannot be cancelled by name any more, and counts no more */
/* The scheduler has it, under this number. If it was cancelled before, it is cancelled there too. */
void ticket_started(struct ticket *t, uint64_t number);
void ticket_note(struct ticket *t, const struct qn_event *e); /* the scheduler says how far it is */
void ticket_hang_up(struct ticket *t);                        /* the client has left */
/* Cancels the request that this identity knows by this id: that of the answer or of the HTTP request. false: there is
 * none. */
bool ticket_cancel(struct api *a, const char *id, uint64_t identity);
/* The same for all requests of a WebSocket that have this name. */
bool ticket_cancel_stream(struct api *a, uint64_t websocket, const char *stream_id);
int tickets_count(struct api *a); /* the number of requests under way */
/* What others may know of a request, copied. */
struct ticket_info {
    char id[48];
    const char *model;
    uint64_t arrived_ns;
    bool is_submitted, is_cancelled;
    int phase, n_done, n_total, n_generated;
};
/* Fills list[cap] with the requests of this identity, the latest first. Returns their number, which may be larger. */
size_t tickets_list(struct api *a, uint64_t identity, struct ticket_info *list, size_t cap);
/* True if nobody wants it any more: the client has left, it was cancelled, its deadline is over, or the server stops.
 */
bool ticket_is_over(const struct ticket *t);
/* Writes the reason why it is over to *f. Always -1, as the next function. */
int ticket_fault(const struct ticket *t, struct fault *f);
/* The same for a failure of quern.h, whose cause may be that it is over. */
int ticket_failed(const struct ticket *t, struct fault *f, const struct qn_error *e);
/* Take memory from the requests' ledger, and give it back. what: for the refusal. */
int ticket_take(struct ticket *t, size_t bytes, const char *what, struct fault *f);
void ticket_give(struct ticket *t, size_t bytes);

/* ---- streams that can be resumed (resumable.c) ---- */

struct resumable;

struct resumables {
    pthread_mutex_t lock; /* guards all records; http.lock may be taken under it */
    struct resumable *first, **last;
    int n;
    size_t bytes, most_bytes; /* of recorded events */
};

void resumables_init(struct api *a);
void resumables_deinit(struct api *a); /* when all requests have ended */
/* Reads the header Quern-Resume; in a handler. *seconds 0: there is none. prefix: of the answer's id, "" if the route
 * has no streams. 0, or -1 and *f. */
int resumable_asked(const struct http_request *r, const char *prefix, int *seconds, struct fault *f);
/* Whether the request has the header Last-Event-ID; it is then answered: it goes on with an earlier stream. In a
 * handler. */
bool resumable_again(struct api *a, struct http_request *r);
/* Makes an empty record. It belongs to its writer until resumable_end(). NULL: no memory. */
struct resumable *resumable_new(const struct ticket *t);
/* Opens the stream of r, which belongs to the record. From now on clients can come back. w: for the first reader, whom
 * it watches already, and for all others. Its callbacks run until resumable_end() has returned. */
void resumable_start(struct resumable *s, struct http_request *r, const struct http_watch *w);
const char *resumable_request(const struct resumable *s); /* the first part of its events' ids */
/* Whole events up to number n_events; the first event is number 1. */
void resumable_write(struct resumable *s, const void *p, size_t n, uint64_t n_events);
/* The stream has ended; whole: completely. The record stays for its time, and is not the writer's any more. */
void resumable_end(struct resumable *s, bool whole);
/* Notes for the log what the request has used, and how it ended (NULL: as its status says), if anybody reads it. */
void resumable_tally(struct resumable *s, const struct served *m, const struct qn_usage *u, const char *outcome);
void resumable_left(struct resumable *s); /* the reader has left; for on_hangup */
/* Whether nobody has come back in time, so that the request need not go on. */
bool resumable_is_abandoned(const struct resumable *s);

/* ---- the API ---- */

struct job;
struct api_call;
typedef void api_refuse(struct http_request *r, const struct fault *f);
/* Runs in a worker, with the body read and the model held. It answers, or makes sure that somebody will. If it keeps
 * the body or the model, it sets that member to NULL. */
typedef void api_work(struct api_call *c);

/* A request between its handler and its work. */
struct api_call {
    struct models_wait wait; /* first member: the call is found from it */
    struct api_call *next;
    struct api *api;
    struct http_request *req;
    struct ticket *ticket;
    api_work *work;
    api_refuse *refuse;
    bool no_model;         /* the work needs no model, */
    bool no_body;          /* and no body */
    bool is_message;       /* of a WebSocket */
    json_t *body;          /* NULL: not read yet */
    size_t body_taken;     /* bytes of the ticket's memory that the body has */
    struct served *served; /* NULL: not held yet */
    struct fault fault;    /* if its status is not 0: why the request is refused */
    uint64_t asked_ns;
    double load_ms; /* how long it waited for its model */
};

struct api {
    struct api_config c;
    uint64_t start_s;         /* seconds since 1970 */
    uint64_t start_ns;        /* clock_ns() */
    struct hists *hists;      /* [models] */
    struct item_store *items; /* of responses; NULL: none are kept */
    pthread_t worker[8];
    int n_workers;

    pthread_mutex_t lock;
    pthread_cond_t wake;
    struct api_call *first, **last; /* calls that wait for a worker */
    bool busy[8];                   /* [n_workers] this worker has a call, */
    uint64_t busy_for[8];           /* of this identity */
    pthread_cond_t idle;            /* signalled when a worker has ended a call */
    bool stopping;
    struct ticket *tickets; /* the list of all requests under way */
    atomic_bool ending;     /* the server stops: no request is wanted any more */
    struct resumables resumables;
    struct receipts receipts;
};

/* Queues the request for a worker, or refuses it; in a handler. The request belongs to the worker from here on, and
 * counts while it waits. prefix: of the answer's id. */
void api_hand_over(struct api *a, struct http_request *r, api_work *work, api_refuse *refuse, const char *prefix);
/* The same for work that needs the body and no model. */
void api_hand_over_body(struct api *a, struct http_request *r, api_work *work, api_refuse *refuse);
/* The same for a message of a WebSocket, which may also cancel an earlier one. */
void api_hand_over_message(struct api *a, struct http_request *r, api_work *work, api_refuse *refuse,
                           const char *prefix);
/* The same for work that takes long, but has no body and is not for one model. */
void api_hand_over_bare(struct api *a, struct http_request *r, api_work *work);

/* ---- messages of a WebSocket (ws_message.c) ---- */

/* Whether it cancels requests; it is then answered. In a handler. */
bool message_cancels(struct api *a, struct http_request *r);
/* Reads the members of a message that are not fields of its request, and removes them: the body is then that of a
 * request for a stream. In a worker. 0, or -1 and the call's fault. */
int message_open(struct api_call *c);

/* ---- errors, as each API says them (failures.c) ---- */

api_refuse api_refuse_openai, api_refuse_anthropic, api_refuse_ollama;
/* The body of such an error; for streams. */
void api_error_openai(struct json_out *o, const struct fault *f);
void api_error_anthropic(struct json_out *o, const struct fault *f);
void api_error_ollama(struct json_out *o, const struct fault *f);
/* Translates a failure of quern.h for a client. Always -1. */
int api_fault(struct fault *f, const struct qn_error *e);
int api_no_memory(struct fault *f);
/* The prompt, in this field, has n tokens and does not fit the context. The message has the words that clients of each
 * API look for. Always -1. */
int api_too_long(struct fault *f, api_refuse *refuse, const char *field, size_t n, int n_ctx);
/* Takes the memory that making tokens of n bytes of text may need. *taken is for ticket_give() when they are made. */
int api_take_work(struct ticket *t, size_t n, size_t *taken, struct fault *f);
/* The same for a request of n bytes that goes through a chat template. */
int api_take_chat_work(struct ticket *t, size_t n, size_t *taken, struct fault *f);
/* Refuses. For 429 and 503 the client is told to come again after retry_s seconds. */
void api_refuse_busy(struct http_request *r, const struct fault *f, double retry_s, api_refuse *refuse);
/* Sends the text as an answer of status 200, and frees it. */
void api_send(struct http_request *r, struct json_out *o);
/* The same at the end of a call's work. The call stops counting before the client sees the answer, because the next
 * request may rely on the place. */
void api_end(struct api_call *c, struct json_out *o);
void api_end_refused(struct api_call *c, const struct fault *f);

/* ---- whose it is (who.c) ---- */

struct who {
    uint64_t identity, salt[2];
};
/* cache_salt: the client's text that separates the prefixes of its own users; NULL: none. */
struct who who_of(const struct http_identity *i, const char *cache_salt);

/* ---- jobs (job.c) ---- */

/* A tool call of an answer. */
struct job_call {
    char *name, *arguments; /* arguments: "" until it ends */
    bool is_cut;            /* the answer ended in the middle of it; only where calls are sent in pieces */
};

#define JOB_LOGPROB_LISTS 5

/* One of the n answers. content and reasoning stay empty in streams, unless the dialect has keeps_text. */
struct job_answer {
    qn_reply *reply; /* NULL: plain text */
    struct buf content, reasoning;
    struct job_call *call; /* [n_calls] */
    int n_calls;
    struct buf name, arguments; /* of the call that is being collected */
    /* Logprobs of tokens that were not sent yet: values separated by commas, in as many lists as the dialect uses. */
    struct json_out logprobs[JOB_LOGPROB_LISTS];
    size_t n_chars;            /* characters (Unicode) of all tokens so far */
    int n_tokens, n_reasoning; /* so far; of these, tokens of thoughts with their marks */
    int n_unsure;              /* tokens since the last event, which may turn out to be the mark of thoughts */
    bool is_calling;           /* the last call has begun, and is sent in pieces */
    bool ended;
    enum qn_finish finish;
    int stop_index;         /* which stop string ended it; -1: none */
    enum receipt_end early; /* we ended it, and not the scheduler: how a receipt calls that; 0: the scheduler did */
    bool went_on;           /* it had more tokens after we ended it */
    struct buf held;        /* the beginning of a line that may end the answer */
    int n_indent;           /* of this line so far */
    bool in_line, has_line; /* the line has more than white space; a line is complete */
    int block;              /* for the dialect: the kind of the open block */
    int n_blocks;           /* that are complete */
    struct buf items;       /* for responses.c */
};

/* How an API reads a request and writes its answer. Members ending in `_stream` are for streams only, except where
 * sees_whole says otherwise; they write into j->out, which is then sent as a whole. */
struct dialect {
    const struct field *const *tables;
    const char *id_prefix;    /* of the answer's id */
    const char *prompt_field; /* that holds the prompt, for errors */
    bool keeps_places;        /* errors may name messages[i]: its place is that in the client's request */
    bool keeps_text;          /* of streams too */
    bool sees_whole; /* text_stream and call_stream are called for whole answers, too; they write nothing then */
    bool streams;    /* unless the request says `"stream": false` */
    const char *stream_type; /* the Content-Type of streams; NULL: server-sent events */
    api_refuse *refuse;
    /* Turns the parameters into tokens: fills prompt or tokens. It also checks what the tables cannot. */
    int (*prepare)(struct job *j, struct fault *f);
    void (*start)(struct job *j); /* may be NULL; called first for each prompt, for whole answers too */
    void (*text_stream)(struct job *j, int i, enum qn_reply_kind kind, const char *text, size_t n);
    void (*call_stream)(struct job *j, int i, const struct job_call *c);
    /* Of streams whose calls fit a form, so that they can be sent while they are written: the last call of the answer
     * has its name; it has n more bytes of arguments; it ends, and has all of them. NULL: calls are sent whole. */
    void (*call_begin)(struct job *j, int i, const struct job_call *c);
    void (*call_piece)(struct job *j, int i, const char *text, size_t n);
    void (*call_end)(struct job *j, int i, const struct job_call *c);
    /* The end of answer i. For the last answer it is called when the counts are known. */
    void (*finish_stream)(struct job *j, int i, bool last);
    void (*close_stream)(struct job *j);
    void (*error_stream)(struct job *j, const struct fault *f);
    void (*whole)(struct job *j);
    /* Of a continued text: appends to *out what may be sent of this text of answer i; at the end of the answer it is
     * called with NULL. Returns true if the answer has to end here. NULL: all may be sent. */
    bool (*limit)(struct job *j, int i, const char *text, size_t n, struct buf *out);
    /* Adds one token's logprob to a->logprobs; called only when logprobs were asked for. NULL where nobody can ask. */
    void (*logprob)(struct job *j, struct job_answer *a, const struct qn_event *event);
    void (*write_head)(struct job *j); /* for OpenAI's two: opens an object with the members of all chunks */
};

/* One of several prompts. */
struct job_prompt {
    qn_token *tokens; /* [n_tokens] to qn_free() */
    size_t n_tokens;
    json_t *text; /* for echo; owned; NULL: the prompt was tokens, or is not echoed */
};

struct job {
    struct api *api;
    struct served *served; /* held */
    struct http_request *req;
    struct ticket *ticket;
    const struct dialect *d;
    struct answer_params params;
    struct who who;
    qn_prompt *prompt;
    qn_grammar *grammar;    /* NULL: none */
    const qn_token *tokens; /* [n_tokens] of the prompt: borrowed from `prompt`, `params` or `prompts` */
    size_t n_tokens;
    /* Several prompts of one request are submitted one after the other; `tokens` is that of prompt `at`. */
    struct job_prompt *prompts; /* [n_prompts]; NULL: there is one */
    int n_prompts, at;
    struct job_answer *answer; /* [n_answers] those of prompt i begin at i * params.n */
    int n_answers;
    const char *id; /* the ticket's */
    int64_t created;
    double load_ms; /* waited for the model */
    /* For responses: the one that this one continues, and this one if it will be kept; both held, NULL: none. */
    struct item_record *previous, *record;
    size_t items_taken; /* bytes of the ticket's memory for items that are not in the body, until there are tokens */
    struct job_receipt receipt; /* zeroed: none is wanted */
    struct json_out out;
    struct qn_usage usage; /* once it is done: of all prompts together */
    struct qn_timings timings;
    int n_ended;
    int n_events;                /* events so far, for dialects that number them */
    struct resumable *resumable; /* the record of the stream; NULL: the stream ends with its connection */
    uint64_t n_ids;              /* events of it so far */
    int last;                    /* the answer that ended last */
    bool started;                /* the scheduler has sent its first event, */
    bool known;                  /* and the first one of prompt `at` */
    bool lost;                   /* the answer cannot be sent: no memory, or the client reads too slowly */
    uint64_t first_token_ns, last_token_ns;
    int n_unwanted; /* tokens of the prompt that is being answered that came after we ended their answers: of no use */

    /* The last heartbeat, and how many had nothing new since; for the server's thread only. */
    int told_phase, told_done, n_untold;
};

/* Reads the request as the dialect says and submits it; in a worker. */
void job_begin(struct api_call *c, const struct dialect *d);
/* Reads it and makes its prompt, for endpoints that only look at that. NULL: it was refused and is answered. */
struct job *job_read(struct api_call *c, const struct dialect *d);
void job_free(struct job *j);
/* Submits the prompt `at`. 0, or -1 and *f; *retry_s: when to come again. */
int job_submit(struct job *j, double *retry_s, struct fault *f);
qn_callback job_on_event;

/* For dialects. */
void job_event(struct job *j, const char *name); /* begins a server-sent event in j->out; name may be NULL */
void job_event_end(struct job *j);
const char *job_finish_reason(const struct job *j, int i); /* OpenAI's words */
void job_write_quern(struct job *j);                       /* "quern": {...} */
/* "ignored": [...], the fields that change nothing; nothing if there are none. */
void job_write_ignored(const struct job *j, struct json_out *o);
void api_write_ignored(struct json_out *o, const struct field_ignored *ignored); /* the same for any request */
int job_reasoning_tokens(const struct job *j); /* of all answers so far: tokens of thoughts */
/* Writes a token: "id": number, "token": text and "bytes": [...]. */
void job_write_token(struct job *j, struct json_out *o, qn_token t);
/* For conversations: makes the prompt from messages, tools and the other parameters. */
int job_prepare_chat(struct job *j, struct fault *f);
/* Gives the messages and tools of chat completions the shape that chat templates take, and notes what in them changes
 * nothing (openai_chat_in.c). */
int openai_messages(struct answer_params *a, struct fault *f);
/* The id of a tool call, the same whenever it is asked for. Nine letters and digits: some templates take no others. */
void job_call_id(const struct job *j, int answer, int call, char out[SHORT_ID + 1]);

/* What OpenAI's two dialects share (openai_chat.c). */
void openai_open_head(struct job *j, const char *object); /* the members that all answers and chunks begin with */
/* "key": [...] of the elements collected in l, which are then forgotten: each chunk has those since the one before. */
void openai_take_list(struct job *j, const char *key, struct json_out *l);
void openai_write_logprob(struct job *j, struct json_out *l, const struct qn_event *e); /* of one token, for l */
void openai_end_chunk(struct job *j, bool last); /* after the choices: closes the object and its event */
void openai_end_whole(struct job *j);            /* after the choices: usage, "quern", the closing bracket */
void openai_close_stream(struct job *j);
void openai_error_stream(struct job *j, const struct fault *f);

/* Makes the tokens of a prompt for a gap (infill.c). param: the field to name if the model cannot do it. */
int infill_tokens(struct job *j, const struct qn_infill *p, const char *param, struct fault *f);

extern const struct dialect openai_text, openai_chat, anthropic, anthropic_count, responses, infill, ollama_chat,
    ollama_text;

#endif
