/* SPDX-License-Identifier: MIT
 *
 * each.c: reads lines, asks them in several threads, and writes the answers in order. See each.h.
 *
 * The lines are in a ring. A thread reads them, and threads with a connection each answer them. One that has an answer
 * writes all lines whose turn it is, so an answer never waits for the next line of the input. When nobody wants answers
 * any more, the thread that reads is cancelled, because its next line may never come.
 *
 * If the daemon hangs, the first thread that notices goes to the next place, and the others follow. Nothing was written
 * of a line that is not answered, so it is asked there again.
 */
#include "cli/ask/each.h"

#include <assert.h>
#include <errno.h>
#include <inttypes.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sysexits.h>
#include <unistd.h>

#include "base/json/json_text.h"
#include "base/mem.h"
#include "cli/ask/decide.h"
#include "cli/core/cli.h"
#include "cli/core/render.h"

#define BLOCK ((size_t)1 << 16)

static_assert(EACH_AT_ONCE < PLACE_CONNECTIONS, "each asker has a connection, next to that of the place");

struct each_line {
    struct buf text, answer;
    struct chat_result result;
    struct qn_error e; /* its code is 0 unless the line failed */
    bool is_done;
};

struct each {
    struct ask_run *a;
    pthread_mutex_t mutex;
    pthread_cond_t changed;
    int n_moves;                       /* how often a->place was replaced by the next one, because it hung */
    struct each_line line[EACH_LINES]; /* line i is at i % EACH_LINES */
    uint64_t first, taken, end;        /* lines before these were written, are being answered, were read */
    bool is_over;                      /* no more lines come */
    bool is_broken;                    /* nobody reads the answers, or the place is lost: nothing more is asked */
    int write_error;                   /* errno; 0: none */
    uint64_t n_answered, n_cut, n_yes; /* answers; those that a limit ended; those of --yes that are "yes" */
    int status;

    pthread_t reader;
    struct buf text; /* of the line that is being read */
    char *block;     /* [BLOCK] */
    struct qn_error e;
    int rc; /* of reading */
};

struct asker {
    struct each *x;
    struct place place;
    int n_moves; /* those of which it knows */
    pthread_t thread;
};

/* ---- one line ---- */

/* Goes on at the next place, after a connection was silent. Returns 0 or an exit status, after a message. */
static int move(struct asker *k)
{
    struct each *x = k->x;
    int status = 0, slot = k->place.slot;
    pthread_mutex_lock(&x->mutex);
    if (x->is_broken) status = EX_UNAVAILABLE;
    if (!status && k->n_moves == x->n_moves && !(status = place_next(&x->a->place))) x->n_moves++;
    if (status && !x->is_broken) x->status = status;
    x->is_broken |= status != 0;
    if (!status) {
        place_end_again(&k->place);
        status = place_again(&k->place, &x->a->place, slot);
        k->n_moves = x->n_moves;
    }
    pthread_mutex_unlock(&x->mutex);
    return status;
}

/* Sends the message, to the next place if this one hangs. */
static int send_one(struct asker *k, const struct buf *message, struct each_line *l)
{
    for (int rc;;) {
        json_t *request = NULL;
        pthread_mutex_lock(&k->x->mutex); /* the request depends on the place */
        rc = ask_request(k->x->a, (char *)message->data, message->len, &request, &l->e);
        pthread_mutex_unlock(&k->x->mutex);
        if (!rc) rc = answer_collect(&k->place, request, &l->answer, &l->result, &l->e);
        json_decref(request);
        if (!rc || !client_is_silent(k->place.client)) return rc;
        if (move(k)) return error_set(&l->e, QN_ECANCEL, "no place is left");
        buf_clear(&l->answer);
        l->e = (struct qn_error){0};
    }
}

static int ask_one(struct asker *k, struct each_line *l)
{
    struct ask_run *a = k->x->a;
    struct message_text t = {.cut = {.head = (char *)l->text.data, .n_head = l->text.len}};
    struct buf message = {0};
    const char *instruction = a->instruction.len ? (char *)a->instruction.data : "";
    if (l->e.code || !l->text.len) return l->e.code; /* it could not be read, or there is nothing to ask about */
    int rc = message_compose(&message, &t, 1, instruction, &l->e);
    if (!rc) rc = send_one(k, &message, l);
    if (!rc && decide_is_asked(a->o)) rc = decide_check(a, &l->answer, &l->result, &l->e);
    buf_deinit(&message);
    return rc;
}

/* Makes the answer one line: what separates its lines becomes a space, and what is at its ends is dropped. */
static void flatten(struct buf *b)
{
    size_t n = 0;
    bool gap = false;
    for (size_t i = 0; i < b->len; i++) {
        uint8_t c = b->data[i];
        if (c == '\n' || c == '\r' || (c == ' ' && (gap || !n))) {
            gap = n > 0;
            continue;
        }
        if (gap) b->data[n++] = ' ';
        gap = false;
        b->data[n++] = c;
    }
    while (n && b->data[n - 1] == ' ') n--;
    b->len = n;
}

/* ---- writing ---- */

static int put_json(struct each *x, const struct each_line *l)
{
    struct buf out = {0};
    json_t *o = json_pack("{s:I}", "line", (json_int_t)x->first + 1);
    int bad =
        l->e.code
            ? json_object_set_new(o, "error", json_string(l->e.msg))
            : json_object_set_new(o, "text", json_stringn(l->answer.len ? (char *)l->answer.data : "", l->answer.len)) |
                  json_object_set_new(o, "finish", json_string(l->result.finish));
    bad |= json_text_add(&out, o, cli_json_flags(JSON_COMPACT), "a line", NULL) || buf_str(&out, "\n", NULL);
    json_decref(o);
    errno = ENOMEM;
    if (!bad) bad = cli_write(out.data, out.len);
    buf_deinit(&out);
    return bad ? -1 : 0;
}

static int put_text(struct each *x, struct each_line *l)
{
    struct buf clean = {0};
    flatten(&l->answer);
    errno = ENOMEM;
    if (x->a->o->quiet) return 0;
    int bad = buf_str(&l->answer, "\n", NULL);
    if (!bad && isatty(STDOUT_FILENO)) /* a terminal gets only what it may see */
        bad = render_clean(&clean, (char *)l->answer.data, l->answer.len, NULL) || cli_write(clean.data, clean.len);
    else if (!bad)
        bad = cli_write(l->answer.data, l->answer.len);
    buf_deinit(&clean);
    return bad;
}

/* Says that a line failed. The first one decides the exit status. */
static void tell(struct each *x, const struct each_line *l)
{
    struct qn_error e;
    if (x->is_broken && l->e.code == QN_ECANCEL) return;
    error_set(&e, l->e.code, "line %" PRIu64 ": %s", x->first + 1, l->e.msg);
    int status = answer_fail(&e, &l->result);
    if (!x->status) x->status = status;
}

/* Writes the lines whose turn it is. With the mutex held. */
static void write_ready(struct each *x)
{
    for (; x->first < x->end && x->line[x->first % EACH_LINES].is_done; x->first++) {
        struct each_line *l = &x->line[x->first % EACH_LINES];
        if (l->e.code) {
            tell(x, l);
            buf_clear(&l->answer);
        }
        x->n_answered += *l->result.finish != 0;
        x->n_yes += x->a->o->yes && l->answer.len == 3;
        x->n_cut += !strcmp(l->result.finish, "length");
        if (!x->is_broken && (x->a->o->json ? put_json(x, l) : put_text(x, l))) {
            x->write_error = errno;
            x->is_broken = true;
        }
        buf_deinit(&l->text);
        buf_deinit(&l->answer);
        *l = (struct each_line){0};
    }
    pthread_cond_broadcast(&x->changed);
}

/* ---- asking ---- */

static struct each_line *take(struct each *x)
{
    while (x->taken == x->end && !x->is_over && !x->is_broken) pthread_cond_wait(&x->changed, &x->mutex);
    return x->taken < x->end && !x->is_broken ? &x->line[x->taken++ % EACH_LINES] : NULL;
}

static void *ask_some(void *arg)
{
    struct asker *k = arg;
    struct each *x = k->x;
    struct each_line *l;
    pthread_mutex_lock(&x->mutex);
    while ((l = take(x))) {
        pthread_mutex_unlock(&x->mutex);
        int failed = ask_one(k, l);
        pthread_mutex_lock(&x->mutex);
        l->is_done = true;
        x->is_broken |= answer_is_cancelled();
        /* After a failure a connection can only be closed. */
        if (failed && !x->is_broken && place_reopen(&k->place)) {
            x->is_broken = true;
            x->status = EX_UNAVAILABLE;
        }
        write_ready(x);
    }
    pthread_mutex_unlock(&x->mutex);
    return NULL;
}

/* ---- reading ---- */

/* Puts a line into the ring, when there is room. Returns false if no more are wanted. */
static bool put_line(struct each *x, struct buf *text, bool is_long)
{
    if (!is_long && text->len && text->data[text->len - 1] == '\r') text->len--;
    pthread_mutex_lock(&x->mutex);
    while (x->end - x->first == EACH_LINES && !x->is_broken) pthread_cond_wait(&x->changed, &x->mutex);
    bool is_wanted = !x->is_broken;
    if (is_wanted) {
        struct each_line *l = &x->line[x->end++ % EACH_LINES];
        if (is_long) error_set(&l->e, QN_EFULL, "it has more than %zu bytes", EACH_LONGEST);
        l->text = *text;
        *text = (struct buf){0};
    }
    pthread_cond_broadcast(&x->changed);
    pthread_mutex_unlock(&x->mutex);
    return is_wanted;
}

/* Opens the input, or reads from it. Only here can the thread be cancelled. */
static int read_block(struct each *x, struct input *in, size_t *n)
{
    pthread_setcancelstate(PTHREAD_CANCEL_ENABLE, NULL);
    int rc = in->in ? input_read(in, x->block, BLOCK, n, &x->e) : input_open(in, x->a->o->encoding, &x->e);
    pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, NULL);
    return rc;
}

static int read_lines(struct each *x, struct input *in)
{
    bool is_long = false, is_wanted = true;
    size_t n = 1;
    in->is_live = true;
    int rc = read_block(x, in, &n);
    while (!rc && is_wanted && n && !(rc = read_block(x, in, &n))) {
        for (const char *p = x->block, *end = x->block + n; p < end && is_wanted && !rc;) {
            const char *stop = memchr(p, '\n', (size_t)(end - p));
            size_t more = (size_t)((stop ? stop : end) - p);
            is_long |= x->text.len + more > EACH_LONGEST;
            if (!is_long) rc = buf_add(&x->text, p, more, &x->e);
            if (stop && !rc) is_wanted = put_line(x, &x->text, is_long);
            if (stop) buf_clear(&x->text), is_long = false;
            p += more + (stop != NULL);
        }
    }
    if (!rc && is_wanted && (x->text.len || is_long)) put_line(x, &x->text, is_long);
    return rc;
}

static void *read_all(void *arg)
{
    struct each *x = arg;
    pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, NULL);
    x->rc = read_lines(x, &x->a->input[0]);
    pthread_mutex_lock(&x->mutex);
    x->is_over = true;
    pthread_cond_broadcast(&x->changed);
    pthread_mutex_unlock(&x->mutex);
    return NULL;
}

/* ---- all of it ---- */

/* Starts a thread in which all signals are blocked. Returns 0 or an exit status, after a message. */
static int start(pthread_t *thread, void *(*run)(void *), void *arg)
{
    struct qn_error e;
    sigset_t all, old;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &old);
    int failed = pthread_create(thread, NULL, run, arg);
    pthread_sigmask(SIG_SETMASK, &old, NULL);
    if (!failed) return 0;
    error_set(&e, QN_ENOMEM, "a thread: %s", strerror(failed));
    return cli_fail(&e);
}

static int start_asker(struct each *x, struct asker *k, int slot)
{
    int status = place_again(&k->place, &x->a->place, slot);
    k->x = x;
    if (status) return status;
    status = start(&k->thread, ask_some, k);
    if (status) place_end_again(&k->place);
    return status;
}

/* Reads and answers everything, with n >= 1 askers that wait for lines. */
static int answer_all(struct each *x, struct asker *k, int n)
{
    int status = start(&x->reader, read_all, x);
    pthread_mutex_lock(&x->mutex);
    x->is_broken |= status != 0;
    pthread_cond_broadcast(&x->changed);
    pthread_mutex_unlock(&x->mutex);
    for (int i = 0; i < n; i++) {
        pthread_join(k[i].thread, NULL);
        place_end_again(&k[i].place);
    }
    if (status) return status;
    if (x->is_broken) pthread_cancel(x->reader);
    pthread_join(x->reader, NULL);
    input_close(&x->a->input[0]);
    return 0;
}

static int status_of(const struct each *x)
{
    if (x->n_cut)
        fprintf(stderr,
                "quern: warning: %" PRIu64 " of %" PRIu64 " answers were cut: --max-tokens, or the context is full\n",
                x->n_cut, x->n_answered);
    errno = x->write_error;
    if (x->write_error) return cli_write_status();
    if (x->rc) return cli_fail(&x->e);
    return !x->status && x->a->o->yes && !x->n_yes ? DECIDE_NO : x->status;
}

int each_run(struct ask_run *a)
{
    struct each *x = cli_alloc(1, sizeof *x);
    struct asker *k = cli_alloc(EACH_AT_ONCE, sizeof *k);
    int n = 0, status = 0;
    x->a = a;
    x->block = cli_alloc(BLOCK, 1);
    pthread_mutex_init(&x->mutex, NULL);
    pthread_cond_init(&x->changed, NULL);
    while (n < EACH_AT_ONCE && !status)
        if (!(status = start_asker(x, &k[n], n))) n++;
    if (n) status = answer_all(x, k, n); /* fewer at once do as well */
    for (int i = 0; i < EACH_LINES; i++) {
        buf_deinit(&x->line[i].text);
        buf_deinit(&x->line[i].answer);
    }
    if (!status) status = status_of(x);
    pthread_cond_destroy(&x->changed);
    pthread_mutex_destroy(&x->mutex);
    buf_deinit(&x->text);
    cli_free(x->block);
    cli_free(k);
    cli_free(x);
    return status;
}
