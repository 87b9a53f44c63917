/* SPDX-License-Identifier: MIT
 *
 * chunk.c: answers a long text in rounds of map and reduce. See chunk.h.
 *
 * The tokens of a piece are not counted before: the server refuses a piece that is too large, and it is halved. An
 * answer has at most a sixteenth of the context, so each round leaves a fraction of its text.
 */
#include "cli/ask/chunk.h"

#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <sysexits.h>

#include "base/mem.h"
#include "cli/core/cli.h"
#include "cli/ask/crew.h"
#include "cli/ask/piece_cache.h"
#include "cli/ask/pieces.h"
#include "cli/core/progress.h"

#define BLOCK       ((size_t)1 << 16)
#define CACHE_BYTES ((uint64_t)256 << 20)
#define BYTES_PER_TOKEN                                                                                                \
    2                     /* bytes of the largest piece for each token of the context; usual texts have twice as many  \
                           */
#define MOST_PER_TOKEN 64 /* a text with more bytes per token than this does not fit */
#define MIN_ANSWER     32 /* tokens */
#define MAX_ANSWER     512

static const char map_words[] = "This is one part of a longer text. Do the following for this part alone, in few "
                                "words: the answers for all parts are put together later.\n\n";
static const char reduce_words[] = "These are notes on consecutive parts of a longer text. Put them together in few "
                                   "words, so that they still serve for the following.\n\n";
static const char last_words[] =
    "These are notes on consecutive parts of a longer text, in their order. From them, do the following for the "
    "whole text.\n\n";

struct chunk_state {
    struct ask_run *a;
    pthread_mutex_t mutex; /* protects the cache, the counts and `computed` */
    pthread_cond_t changed;
    struct piece_cache cache;
    const struct buf *computed[CREW_AT_ONCE]; /* requests that are being answered, by thread; NULL: none */
    int n_answer;                             /* most tokens of an answer */
    struct buf words;                         /* the instruction of this round */
    const char *label;                        /* name of the text that is read */
    FILE *out;                                /* the answers of this round */
    uint64_t n_pieces, n_found, n_empty;
    struct progress progress;
    struct qn_error e;
    struct chat_result result;
};

static int set_words(struct chunk_state *c, const char *words)
{
    const struct buf *i = &c->a->instruction;
    buf_clear(&c->words);
    int rc = buf_str(&c->words, words, &c->e);
    if (rc) return rc;
    if (i->len) return buf_add(&c->words, i->data, i->len, &c->e);
    return buf_str(&c->words, "Do what you were told.", &c->e);
}

/* ---- a piece ---- */

/* One piece, or a part of it, that a thread answers. */
struct chunk_piece {
    struct chunk_state *c;
    struct place *place;
    struct crew_piece *to; /* gets the answer, and what fails */
};

/* The request for one piece: greedy and short, whatever the options for the last answer are. */
static int piece_request(const struct chunk_piece *w, const char *text, size_t n, json_t **out)
{
    struct chunk_state *c = w->c;
    struct message_text t = {c->label, {.head = text, .n_head = n}};
    struct buf message = {0};
    int rc = message_compose(&message, &t, 1, (char *)c->words.data, &w->to->e);
    if (!rc) rc = ask_request_greedy(c->a, (char *)message.data, message.len, c->n_answer, out, &w->to->e);
    buf_deinit(&message);
    return rc;
}

/* Adds an answer to those of the piece, with a blank line after it. With the mutex held. */
static int add_answer(const struct chunk_piece *w, const struct buf *answer)
{
    size_t n = answer->len;
    while (n && strchr(" \n\r\t", answer->data[n - 1])) n--;
    if (!n) w->c->n_empty++;
    int rc = n ? buf_add(&w->to->answer, answer->data, n, &w->to->e) : 0;
    return n && !rc ? buf_str(&w->to->answer, "\n\n", &w->to->e) : rc;
}

static int answer_piece(const struct chunk_piece *w, const char *text, size_t n);

/* Answers the two halves of a piece that the server has no room for. */
static int answer_halves(const struct chunk_piece *w, const char *text, size_t n)
{
    size_t half = pieces_half(text, n);
    if (!half || half == n) return QN_EFULL; /* the message of the server is in to->e */
    if (place_reopen(w->place)) return error_set(&w->to->e, QN_EIO, "the connection is lost");
    int rc = answer_piece(w, text, half);
    return rc ? rc : answer_piece(w, text + half, n - half);
}

/* Whether another thread computes the answer for this key. With the mutex held. */
static bool is_computed(const struct chunk_state *c, const struct buf *key)
{
    for (int i = 0; i < CREW_AT_ONCE; i++)
        if (c->computed[i] && c->computed[i]->len == key->len && !memcmp(c->computed[i]->data, key->data, key->len))
            return true;
    return false;
}

/* Finds the answer, or asks the server and keeps it. What repeats is computed once. With the mutex held, except while
 * the server computes. */
static int find_or_compute(const struct chunk_piece *w, json_t *request, const struct buf *key, struct buf *answer)
{
    struct chunk_state *c = w->c;
    const struct buf **mine = &c->computed[w->place->slot - 1];
    while (is_computed(c, key)) pthread_cond_wait(&c->changed, &c->mutex);
    bool found = piece_cache_find(&c->cache, (char *)key->data, key->len, answer);
    c->n_found += found;
    if (found) return 0;
    *mine = key;
    pthread_mutex_unlock(&c->mutex);
    int rc = answer_collect(w->place, request, answer, &w->to->result, &w->to->e);
    pthread_mutex_lock(&c->mutex);
    *mine = NULL;
    pthread_cond_broadcast(&c->changed);
    if (!rc)
        piece_cache_add(&c->cache, (char *)key->data, key->len, answer->data ? (char *)answer->data : "", answer->len);
    return rc;
}

static int answer_piece(const struct chunk_piece *w, const char *text, size_t n)
{
    struct chunk_state *c = w->c;
    struct buf answer = {0}, key = {0};
    json_t *request = NULL;
    w->to->result = (struct chat_result){0};
    int rc = piece_request(w, text, n, &request);
    if (!rc) rc = buf_printf(&key, &w->to->e, "%s\n", (char *)c->a->model.data);
    if (!rc && answer_write_json(&key, request)) rc = error_nomem(&w->to->e, "chunk", n);
    pthread_mutex_lock(&c->mutex);
    if (!rc) rc = find_or_compute(w, request, &key, &answer);
    bool too_large = rc && !strcmp(w->to->result.code, "context_length_exceeded");
    if (!rc) rc = add_answer(w, &answer);
    c->n_pieces += !too_large;
    pthread_mutex_unlock(&c->mutex);
    json_decref(request);
    buf_deinit(&key);
    buf_deinit(&answer);
    return too_large ? answer_halves(w, text, n) : rc;
}

/* ---- the crew ---- */

static int ask_piece(void *arg, struct place *p, struct crew_piece *piece)
{
    struct chunk_piece w = {.c = arg, .place = p, .to = piece};
    return answer_piece(&w, (char *)piece->text.data, piece->text.len);
}

static int take_answer(void *arg, struct crew_piece *piece)
{
    struct chunk_state *c = arg;
    const struct buf *b = &piece->answer;
    progress_update(&c->progress, piece->at + piece->text.len);
    if (b->len && fwrite(b->data, 1, b->len, c->out) != b->len)
        return error_set(&piece->e, QN_EIO, "the temporary file for answers: %m");
    return 0;
}

/* ---- a round ---- */

/* Answers all pieces of a text. name: that of the text; n_bytes: its size, 0 if not known. */
static int answer_pieces(struct chunk_state *c, pieces_source *source, void *arg, const char *name, uint64_t n_bytes)
{
    struct pieces p;
    struct crew_piece failed;
    const char *text;
    size_t n, max = (size_t)c->a->n_ctx * BYTES_PER_TOKEN;
    int rc = pieces_init(&p, max / 4, max, source, arg, &c->e), broken = 0;
    struct crew *crew = crew_new(&c->a->place, ask_piece, take_answer, c);
    progress_begin(&c->progress, name, "B", n_bytes);
    while (!rc && !broken && !(rc = pieces_next(&p, &text, &n, &c->e)) && n) broken = crew_put(crew, text, n);
    if (crew_end(crew, &failed) && !rc) {
        c->result = failed.result;
        rc = error_set(&c->e, failed.rc, "piece %llu of %s, at byte %llu: %s", (unsigned long long)failed.number, name,
                       (unsigned long long)failed.at, failed.e.msg);
    }
    progress_end(&c->progress);
    pieces_deinit(&p);
    return rc;
}

/* A text of which the beginning is in memory, and the rest is still to be read. */
struct begun {
    struct input *input;
    struct buf head;
    size_t at;
    bool ended;
};

static int read_begun(void *arg, char *out, size_t cap, size_t *n, struct qn_error *e)
{
    struct begun *b = arg;
    *n = 0;
    if (b->at == b->head.len) return b->ended ? 0 : input_read(b->input, out, cap, n, e);
    *n = b->head.len - b->at;
    if (*n > cap)
        for (*n = cap; (b->head.data[b->at + *n] & 0xc0) == 0x80;) --*n; /* whole characters */
    memcpy(out, b->head.data + b->at, *n);
    b->at += *n;
    return 0;
}

static int read_file(void *arg, char *out, size_t cap, size_t *n, struct qn_error *e)
{
    *n = fread(out, 1, cap, arg);
    return ferror((FILE *)arg) ? error_set(e, QN_EIO, "the temporary file for answers: %m") : 0;
}

static int open_out(struct chunk_state *c)
{
    c->out = tmpfile();
    return c->out ? 0 : error_set(&c->e, QN_EIO, "a temporary file for answers: %m");
}

/* Makes the answers so far the text of the next round. */
static int reduce(struct chunk_state *c)
{
    FILE *in = c->out;
    off_t before = ftello(in);
    int rc;
    rewind(in);
    c->label = NULL;
    c->out = NULL;
    if (!(rc = set_words(c, reduce_words)) && !(rc = open_out(c)))
        rc = answer_pieces(c, read_file, in, "answers", (uint64_t)before);
    if (!rc && ftello(c->out) >= before)
        rc = error_set(&c->e, QN_EDATA, "the answers for the pieces do not become shorter: %lld bytes, then %lld",
                       (long long)before, (long long)ftello(c->out));
    fclose(in);
    return rc;
}

/* ---- all of it ---- */

/* Makes the message of the answers if they fit. */
static int try_last(struct chunk_state *c, struct buf *out, bool *fits)
{
    struct buf text = {0};
    off_t n = ftello(c->out);
    int n_tokens = 0;
    *fits = false;
    if (n > (off_t)c->a->n_room * MOST_PER_TOKEN) return 0;
    if (n == 0)
        return error_set(&c->e, QN_EDATA, "the model has no answer for any of %llu pieces",
                         (unsigned long long)c->n_pieces);
    int rc = buf_reserve(&text, (size_t)n, &c->e);
    rewind(c->out);
    if (!rc) text.len = fread(text.data, 1, (size_t)n, c->out);
    fseeko(c->out, 0, SEEK_END);
    struct message_text t = {NULL, {.head = (char *)text.data, .n_head = text.len}};
    if (!rc) rc = set_words(c, last_words);
    if (!rc) rc = ask_count(c->a, &t, 1, (char *)c->words.data, &n_tokens, &c->e);
    if (!rc && n_tokens <= c->a->n_room) {
        *fits = true;
        rc = message_compose(out, &t, 1, (char *)c->words.data, &c->e);
    }
    buf_deinit(&text);
    return rc;
}

static int map_and_reduce(struct chunk_state *c, struct begun *b, struct buf *out)
{
    bool fits = false;
    int rc = set_words(c, map_words);
    if (!rc) rc = open_out(c);
    for (size_t i = 0; i < c->a->n_inputs && !rc; i++) {
        if (!b[i].ended && !b[i].input->in) rc = input_open(b[i].input, c->a->o->encoding, &c->e);
        c->label = ask_label(c->a, b[i].input);
        if (!rc) rc = answer_pieces(c, read_begun, &b[i], b[i].input->name, b[i].input->bytes);
        input_close(b[i].input);
        buf_deinit(&b[i].head);
        b[i].head = (struct buf){0};
    }
    while (!rc && !(rc = try_last(c, out, &fits)) && !fits) rc = reduce(c);
    return rc;
}

/* Reads as much of the texts as could fit. */
static int begin(struct chunk_state *c, struct begun *b)
{
    size_t room = (size_t)c->a->n_room * MOST_PER_TOKEN, n;
    char *block = mem_alloc(BLOCK);
    int rc = block ? 0 : error_nomem(&c->e, "chunk", BLOCK);
    for (size_t i = 0; i < c->a->n_inputs && !rc && room; i++) {
        rc = input_open(b[i].input, c->a->o->encoding, &c->e);
        while (!rc && room && !(rc = input_read(b[i].input, block, BLOCK, &n, &c->e))) {
            b[i].ended = n == 0;
            if (b[i].ended) break;
            rc = buf_add(&b[i].head, block, n, &c->e);
            room -= n < room ? n : room;
        }
        if (b[i].ended) input_close(b[i].input);
    }
    mem_free(block);
    return rc;
}

/* Makes the message of the texts as they are, if they fit. */
static int try_whole(struct chunk_state *c, const struct begun *b, struct buf *out, bool *fits)
{
    size_t n = c->a->n_inputs;
    struct message_text *t = cli_alloc(n, sizeof *t);
    const char *words = c->a->instruction.len ? (char *)c->a->instruction.data : "";
    int n_tokens = 0, rc = 0;
    *fits = true;
    for (size_t i = 0; i < n; i++) {
        *fits &= b[i].ended;
        t[i].name = ask_label(c->a, b[i].input);
        t[i].cut.head = b[i].head.data ? (char *)b[i].head.data : "";
        t[i].cut.n_head = b[i].head.len;
    }
    if (*fits) rc = ask_count(c->a, t, n, words, &n_tokens, &c->e);
    if (n_tokens > c->a->n_room) *fits = false;
    if (!rc && *fits) rc = message_compose(out, t, n, words, &c->e);
    cli_free(t);
    return rc;
}

/* Checks that the instruction leaves room for a piece. Otherwise every piece would be halved to nothing. */
static int check_words(struct chunk_state *c)
{
    struct message_text t = {"", {.head = "", .n_head = 0}};
    int n_tokens, rc = set_words(c, map_words), room = c->a->n_ctx - c->n_answer;
    if (!rc) rc = ask_count(c->a, &t, 1, (char *)c->words.data, &n_tokens, &c->e);
    if (rc || n_tokens < room - room / 4) return rc;
    return error_set(&c->e, QN_EFULL,
                     "the instruction alone has %d tokens; that leaves too little of a context of %d for pieces",
                     n_tokens, c->a->n_ctx);
}

int chunk_message(struct ask_run *a, struct buf *out)
{
    struct chunk_state *c = cli_alloc(1, sizeof *c);
    struct begun *b = cli_alloc(a->n_inputs, sizeof *b);
    bool fits = false;
    c->a = a;
    pthread_mutex_init(&c->mutex, NULL);
    pthread_cond_init(&c->changed, NULL);
    c->n_answer = a->n_ctx / 16;
    if (c->n_answer < MIN_ANSWER) c->n_answer = MIN_ANSWER;
    if (c->n_answer > MAX_ANSWER) c->n_answer = MAX_ANSWER;
    for (size_t i = 0; i < a->n_inputs; i++) b[i].input = &a->input[i];
    int rc = begin(c, b);
    if (!rc) rc = try_whole(c, b, out, &fits);
    if (!rc && !fits && !(rc = check_words(c))) {
        piece_cache_open(&c->cache, CACHE_BYTES);
        rc = map_and_reduce(c, b, out);
        piece_cache_close(&c->cache);
        if (!rc && c->n_empty)
            fprintf(stderr, "quern: warning: the model had no answer for %llu of %llu pieces\n",
                    (unsigned long long)c->n_empty, (unsigned long long)c->n_pieces);
        if (!rc && a->o->verbose)
            fprintf(stderr, "quern: %llu pieces, %llu of them known from before\n", (unsigned long long)c->n_pieces,
                    (unsigned long long)c->n_found);
    }
    int status = rc ? answer_fail(&c->e, &c->result) : 0;
    for (size_t i = 0; i < a->n_inputs; i++) {
        input_close(b[i].input);
        buf_deinit(&b[i].head);
    }
    if (c->out) fclose(c->out);
    pthread_cond_destroy(&c->changed);
    pthread_mutex_destroy(&c->mutex);
    buf_deinit(&c->words);
    cli_free(b);
    cli_free(c);
    return status;
}
