/* SPDX-License-Identifier: MIT
 *
 * replay.c: rounds of answers with drafts and without. See replay.h.
 *
 * An answer is replayed in blocks. The tokens before a block are its prompt, which comes from the prefix cache except
 * for its end. A round takes the next block of as many texts as there are streams, and has them answered by two
 * schedulers, one of which has drafts. The two take turns, step by step. The clock of each runs from when all its
 * answers have begun to when the first one ends, during its own steps. Other tokens are not counted.
 */
#include "cli/measure/replay.h"

#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sysexits.h>
#include <unistd.h>

#include "base/inline/minmax.h"
#include "base/os.h"
#include "cli/core/cli.h"
#include "cli/measure/abreast.h"
#include "cli/place/await.h"
#include "engine/scheduler.h"

#define BLOCK      64      /* tokens */
#define TOGETHER   1000000 /* ns: tokens that come so soon after another belong to its step */
#define MOST_BYTES ((size_t)1 << 26)

/* ---- the file ---- */

static int bad(const char *path, int line, const char *what)
{
    cli_usage("%s:%d: %s", path, line, what);
    return EX_DATAERR;
}

/* Appends an array of ids. Returns how many there are; -1: it is not such an array. */
static int add_ids(const json_t *array, int n_vocab, qn_token *to)
{
    size_t n = json_array_size(array);
    for (size_t i = 0; i < n; i++) {
        const json_t *id = json_array_get(array, i);
        json_int_t v = json_integer_value(id);
        if (!json_is_integer(id) || v < 0 || v >= n_vocab) return -1;
        to[i] = (qn_token)v;
    }
    return (int)n;
}

static int parse_line(const char *path, int line, const char *text, size_t n, int n_vocab, struct replay_text *t)
{
    json_error_t e;
    json_t *doc = json_loadb(text, n, 0, &e), *prompt = json_object_get(doc, "prompt"),
           *answer = json_object_get(doc, "answer");
    int rc = 0;
    if (!doc) return bad(path, line, "not a JSON object");
    const char *class = json_string_value(json_object_get(doc, "class"));
    snprintf(t->class, sizeof t->class, "%s", class ? class : "");
    t->tokens = cli_alloc(json_array_size(prompt) + json_array_size(answer) + 1, sizeof *t->tokens);
    t->n_prompt = add_ids(prompt, n_vocab, t->tokens);
    t->n_answer = t->n_prompt < 0 ? -1 : add_ids(answer, n_vocab, t->tokens + t->n_prompt);
    if (t->n_answer < 0)
        rc = bad(path, line, "\"prompt\" and \"answer\" have to be arrays of ids of the model's tokens");
    else if (t->n_prompt < 1 || t->n_answer < BLOCK)
        rc = bad(path, line, "a prompt has at least 1 token, and an answer 64");
    json_decref(doc);
    return rc;
}

static int parse_texts(const char *path, const char *data, size_t n, int n_vocab, struct replay_texts *texts)
{
    int rc = 0, line = 1, n_lines = 1;
    for (size_t i = 0; i < n; i++) n_lines += data[i] == '\n';
    texts->v = cli_alloc((size_t)n_lines, sizeof *texts->v);
    for (const char *at = data, *end = data + n; at < end && !rc; line++) {
        const char *stop = memchr(at, '\n', (size_t)(end - at));
        if (!stop) stop = end;
        struct replay_text *t = &texts->v[texts->n];
        if (stop > at) {
            texts->n++;
            rc = parse_line(path, line, at, (size_t)(stop - at), n_vocab, t);
            if (t->n_prompt + t->n_answer > texts->longest) texts->longest = t->n_prompt + t->n_answer;
        }
        at = stop + 1;
    }
    return rc || texts->n ? rc : bad(path, 1, "no texts");
}

int replay_load(struct replay_texts *texts, const char *path, int n_vocab)
{
    char *data = NULL;
    size_t n = 0;
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0) {
        cli_usage("cannot open '%s': %s", path, strerror(errno));
        return EX_NOINPUT;
    }
    int rc = cli_read_all(fd, path, MOST_BYTES, &data, &n);
    close(fd);
    if (!rc) rc = parse_texts(path, data, n, n_vocab, texts);
    cli_free(data);
    return rc;
}

void replay_free(struct replay_texts *texts)
{
    for (int i = 0; i < texts->n; i++) cli_free(texts->v[i].tokens);
    cli_free(texts->v);
}

/* ---- one pass over a block ---- */

struct replay_place {
    int text, block;
    uint64_t pass; /* over all texts */
};

struct replay_stream {
    struct replay_turn *turn;
    uint64_t at[BLOCK]; /* when its tokens came, ns */
    int n;
};

/* The same blocks of some streams, at once, by one of the schedulers. */
struct replay_turn {
    struct await await;
    struct replay_stream *streams;
    const struct abreast *clock;
    int side;
};

static void told(void *arg, const struct qn_event *ev)
{
    struct replay_stream *s = arg;
    if (ev->type == QN_EVENT_TOKEN && s->n < BLOCK) s->at[s->n++] = abreast_ns(s->turn->clock, s->turn->side);
    await_told(&s->turn->await, ev);
}

/* own_answer: what the model writes takes the place of the recorded text. */
static int ask(qn_scheduler *s, const struct replay_text *t, const struct replay_place *at, enum qn_draft draft,
               bool own_answer, struct replay_stream *to, struct qn_error *e)
{
    struct qn_request_params p;
    qn_request_params_init(&p);
    p.prompt = t->tokens;
    p.n_prompt = (size_t)(t->n_prompt + at->block * BLOCK);
    int last = (int)p.n_prompt - 1; /* a recurrent state is kept here, for the next block */
    p.boundaries = &last;
    p.n_boundaries = last >= 1;
    p.max_tokens = BLOCK;
    if (!own_answer) {
        p.replay = t->tokens + p.n_prompt;
        p.n_replay = BLOCK;
    }
    p.ignore_eog = p.no_text = true;
    p.draft = draft;
    p.identity = at->pass; /* what was said in another pass would be guessed right */
    p.callback = told;
    p.arg = to;
    return await_submit(&to->turn->await, s, &p, e);
}

/* Tokens in a second; 0: the streams did not overlap. */
static double rate_of(const struct replay_stream *streams, int n)
{
    uint64_t from = 0, to = UINT64_MAX;
    long n_tokens = 0;
    for (int i = 0; i < n; i++) {
        if (streams[i].at[0] > from) from = streams[i].at[0];
        if (streams[i].at[BLOCK - 1] < to) to = streams[i].at[BLOCK - 1];
    }
    if (to <= from + TOGETHER) return 0;
    for (int i = 0; i < n; i++)
        for (int k = 0; k < BLOCK; k++)
            n_tokens += streams[i].at[k] > from + TOGETHER && streams[i].at[k] <= to + TOGETHER;
    return 1e9 * (double)n_tokens / (double)(to - from);
}

static int n_blocks(const struct replay_texts *texts)
{
    int n = 0;
    for (int i = 0; i < texts->n; i++) n += texts->v[i].n_answer / BLOCK;
    return n;
}

/* The place of a block by its number: texts take turns, and after the last block they begin again. */
static struct replay_place place_of(const struct replay_texts *texts, int number)
{
    int n = n_blocks(texts), left = number % n;
    for (int b = 0;; b++)
        for (int i = 0; i < texts->n; i++) {
            if (texts->v[i].n_answer < (b + 1) * BLOCK) continue;
            if (left-- == 0) return (struct replay_place){i, b, (uint64_t)(number / n)};
        }
}

/* Two ways to compute the same answers. */
struct replay_pair {
    const struct replay_params *p;
    const struct replay_texts *texts;
    struct abreast abreast;
    qn_engine *engine[2]; /* without drafts, with */
    qn_scheduler *scheduler[2];
    int n_streams;
};

static int begin_turn(struct replay_pair *q, struct replay_turn *t, int round, struct qn_error *e)
{
    enum qn_draft draft = t->side ? q->p->draft : QN_DRAFT_OFF;
    bool own_answer = draft == QN_DRAFT_WEDLM && q->p->wedlm.verify == 0;
    int rc = 0;
    await_hold(&t->await);
    for (int i = 0; i < q->n_streams && !rc; i++) {
        t->streams[i].turn = t;
        struct replay_place at = place_of(q->texts, round * q->n_streams + i);
        rc = ask(q->scheduler[t->side], &q->texts->v[at.text], &at, draft, own_answer, &t->streams[i], e);
    }
    await_release(&t->await);
    return rc;
}

/* rate: tokens in a second of each side; 0: its streams did not overlap. usage: of the side with drafts. */
static int run_round(struct replay_pair *q, int round, double *rate, struct qn_usage *usage, struct qn_error *e)
{
    struct replay_turn turns[2];
    struct qn_error ended;
    int rc = 0;
    for (int i = 0; i < 2; i++) {
        struct replay_turn *t = &turns[i];
        *t = (struct replay_turn){.await = AWAIT_INIT,
                                  .streams = cli_alloc((size_t)q->n_streams, sizeof *t->streams),
                                  .clock = &q->abreast,
                                  .side = i};
    }
    for (int i = 0; i < 2 && !rc; i++) rc = begin_turn(q, &turns[(i + round) % 2], round, e);
    for (int i = 0; i < 2; i++) {
        int other = await_all(&turns[i].await, &ended);
        if (other && !rc) *e = ended, rc = other;
        rate[i] = rc ? 0 : rate_of(turns[i].streams, q->n_streams);
        cli_free(turns[i].streams);
    }
    *usage = turns[1].await.usage;
    return rc;
}

/* ---- rounds ---- */

static int ascending(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* The interval of the median is between order statistics, whose numbers follow from the binomial distribution. */
static void summarise(struct replay_result *r)
{
    int n = r->n_rounds, lo = (int)floor((n - 1.96 * sqrt(n)) / 2), hi = (int)ceil((n + 1.96 * sqrt(n)) / 2);
    if (n == 0) return;
    qsort(r->ratio, (size_t)n, sizeof *r->ratio, ascending);
    r->median = (r->ratio[n / 2] + r->ratio[(n - 1) / 2]) / 2;
    r->low = r->ratio[lo < 1 ? 0 : lo - 1];
    r->high = r->ratio[hi > n - 1 ? n - 1 : hi];
}

/* What drafts cost and brought, by the controller's account. */
static double account_of(qn_scheduler *s)
{
    pthread_mutex_lock(&s->mutex);
    struct drafts_sums sums = s->drafts.sums;
    pthread_mutex_unlock(&s->mutex);
    return sums.all_s > 0 ? 1 - (sums.spent_s - sums.won_s) / sums.all_s : 1;
}

static int rounds(struct replay_pair *q, struct replay_result *r, struct qn_error *e)
{
    const struct replay_params *p = q->p;
    int rc = 0, most = p->repeats ? p->n_rounds : n_blocks(q->texts) / r->n_streams;
    uint64_t stop = p->seconds ? clock_ns() + (uint64_t)p->seconds * 1000000000 : UINT64_MAX;
    for (int round = 0; round < min_int(p->n_rounds, most) && !rc && clock_ns() < stop; round++) {
        double rate[2];
        struct qn_usage usage;
        rc = run_round(q, round, rate, &usage, e);
        if (rc || rate[0] == 0 || rate[1] == 0) continue;
        r->plain[r->n_rounds] = rate[0];
        r->drafted[r->n_rounds] = rate[1];
        r->ratio[r->n_rounds++] = rate[1] / rate[0];
        r->n_tokens += usage.n_generated;
        r->n_passes += usage.n_passes;
        r->n_drafted += usage.n_drafted;
        r->n_accepted += usage.n_accepted;
    }
    r->account = account_of(q->scheduler[1]);
    summarise(r);
    return rc;
}

static int with_streams(struct replay_pair *q, struct replay_result *r, struct qn_error *e)
{
    const struct replay_params *p = q->p;
    struct drafters_own own = {.is_eager = p->n_guesses > 0, .most = p->n_guesses, .right = p->right};
    int rc = 0;
    q->n_streams = r->n_streams;
    abreast_init(&q->abreast, p->counts_cpu);
    for (int i = 0; i < 2 && !rc; i++) {
        struct qn_scheduler_params s;
        qn_scheduler_params_init(&s);
        s.n_running = s.n_queued = r->n_streams;
        s.draft = i ? p->draft : QN_DRAFT_OFF;
        if (i) s.draft_model = p->draft_model;
        if (i) s.wedlm = p->wedlm;
        rc = scheduler_new(&q->scheduler[i], q->engine[i], &s, i ? &own : NULL, e);
        if (!rc) abreast_join(&q->abreast, i, q->scheduler[i]);
    }
    if (!rc) rc = rounds(q, r, e);
    for (int i = 0; i < 2; i++) {
        qn_scheduler_free(q->scheduler[i]);
        q->scheduler[i] = NULL;
    }
    abreast_deinit(&q->abreast);
    return rc;
}

int replay_run(const struct replay_params *p, qn_model *m, const struct qn_engine_params *engine,
               struct replay_result *results)
{
    struct replay_texts texts = {0};
    struct replay_pair pair = {.p = p, .texts = &texts};
    struct qn_engine_params q = *engine;
    struct qn_error e = {0};
    int rc = replay_load(&texts, p->path, qn_model_n_vocab(m)), status = rc, most = 1;
    for (int i = 0; i < p->n_streams; i++)
        if (p->streams[i] > most) most = p->streams[i];
    q.n_ctx = texts.longest + 1;
    q.n_sessions = most + texts.n; /* what was read of each text stays in the cache */
    for (int i = 0; i < 2 && !rc; i++) rc = qn_engine_new(&pair.engine[i], m, &q, &e);
    for (int i = 0; i < p->n_streams && !rc; i++) {
        struct replay_result *r = &results[i];
        *r = (struct replay_result){.n_streams = p->streams[i]};
        r->plain = cli_alloc((size_t)p->n_rounds, sizeof *r->plain);
        r->drafted = cli_alloc((size_t)p->n_rounds, sizeof *r->drafted);
        r->ratio = cli_alloc((size_t)p->n_rounds, sizeof *r->ratio);
        rc = with_streams(&pair, r, &e);
    }
    for (int i = 0; i < 2; i++) qn_engine_free(pair.engine[i]);
    replay_free(&texts);
    if (status) return status;
    return rc ? cli_fail(&e) : 0;
}

void replay_deinit(struct replay_result *results, int n)
{
    for (int i = 0; i < n; i++) {
        cli_free(results[i].plain);
        cli_free(results[i].drafted);
        cli_free(results[i].ratio);
    }
}
