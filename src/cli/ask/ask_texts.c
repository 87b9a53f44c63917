/* SPDX-License-Identifier: MIT
 *
 * ask_texts.c: reads the texts of a question, whole or cut to the room in the context. See ask_run.h.
 *
 * A cut keeps at most the same number of bytes of each text, so short texts stay whole next to a long one. Memory
 * holds only what can be kept: a token rarely has more than 64 bytes.
 */
#include "cli/ask/ask_run.h"

#include <string.h>

#include "base/mem.h"
#include "cli/core/cli.h"
#include "cli/ask/overflow.h"

#define BLOCK       ((size_t)1 << 16)
#define MAX_TEXT    ((size_t)15 << 20) /* bytes of a text; the limit of a server for a request is 16 MiB */
#define TOKEN_BYTES 64
#define MAX_KEPT    ((size_t)8 << 20)

const char *ask_label(const struct ask_run *a, const struct input *s)
{
    return s->path || a->n_inputs > 1 ? s->name : NULL;
}

static int read_one(struct ask_run *a, struct input *s, struct excerpt *x, char *block, struct qn_error *e)
{
    size_t n;
    int rc = input_open(s, a->o->encoding, e);
    while (!rc && !excerpt_is_full(x)) {
        rc = input_read(s, block, BLOCK, &n, e);
        if (rc || !n) break;
        rc = excerpt_add(x, block, n, e);
    }
    if (!rc) rc = excerpt_end(x, excerpt_is_full(x), e);
    input_close(s);
    return rc;
}

static int read_all(struct ask_run *a, struct excerpt *x, enum excerpt_ends ends, size_t cap, struct qn_error *e)
{
    char *block = mem_alloc(BLOCK);
    int rc = block ? 0 : error_nomem(e, "ask", BLOCK);
    for (size_t i = 0; i < a->n_inputs && !rc; i++) {
        excerpt_init(&x[i], ends, cap);
        rc = read_one(a, &a->input[i], &x[i], block, e);
    }
    mem_free(block);
    return rc;
}

struct cutting {
    struct ask_run *a;
    const struct excerpt *x;
    struct message_text *text;
};

static size_t cut_all(void *arg, size_t k)
{
    struct cutting *c = arg;
    size_t kept = 0;
    for (size_t i = 0; i < c->a->n_inputs; i++) {
        c->text[i].name = ask_label(c->a, &c->a->input[i]);
        excerpt_cut(&c->x[i], k, &c->text[i].cut);
        kept += c->text[i].cut.n_head + c->text[i].cut.n_tail;
    }
    return kept;
}

static const char *instruction_of(const struct ask_run *a)
{
    return a->instruction.len ? (const char *)a->instruction.data : "";
}

static int count_cut(void *arg, size_t k, int *n_tokens, struct qn_error *e)
{
    struct cutting *c = arg;
    cut_all(c, k);
    return ask_count(c->a, c->text, c->a->n_inputs, instruction_of(c->a), n_tokens, e);
}

/* Refuses a text that was not read to its end: it is too large for any server. */
static int check_whole(const struct ask_run *a, const struct excerpt *x, struct qn_error *e)
{
    for (size_t i = 0; i < a->n_inputs; i++)
        if (x[i].open_end)
            return error_set(e, QN_EFULL,
                             "%s has more than %zu bytes, which is too much for one request (see --overflow)",
                             a->input[i].name, MAX_TEXT);
    return 0;
}

static size_t most_of(const struct ask_run *a, const struct excerpt *x)
{
    size_t most = 0;
    for (size_t i = 0; i < a->n_inputs; i++)
        if (excerpt_most(&x[i]) > most) most = excerpt_most(&x[i]);
    return most;
}

/* The bytes to keep of one end of a text. */
static size_t kept_bytes(const struct ask_run *a)
{
    size_t n = (size_t)a->n_room * TOKEN_BYTES;
    return n < MAX_KEPT ? n : MAX_KEPT;
}

int ask_read_texts(struct ask_run *a, struct buf *out, struct qn_error *e)
{
    static const enum excerpt_ends ends[] = {
        [OVERFLOW_HEAD] = EXCERPT_HEAD, [OVERFLOW_TAIL] = EXCERPT_TAIL, [OVERFLOW_MIDDLE] = EXCERPT_BOTH};
    bool whole = a->o->overflow == OVERFLOW_FAIL;
    struct excerpt *x = cli_alloc(a->n_inputs, sizeof *x);
    struct message_text *text = cli_alloc(a->n_inputs, sizeof *text);
    struct cutting c = {a, x, text};
    size_t k = SIZE_MAX;
    int rc = whole ? read_all(a, x, EXCERPT_HEAD, MAX_TEXT, e) : read_all(a, x, ends[a->o->overflow], kept_bytes(a), e);
    if (!rc && whole) rc = check_whole(a, x, e);
    if (!rc && !whole) {
        struct overflow o = {
            .most = most_of(a, x), .n_room = a->n_room, .kept = cut_all, .count = count_cut, .arg = &c};
        rc = overflow_fit(&o, &k, e);
    }
    if (!rc) {
        cut_all(&c, k);
        rc = message_compose(out, text, a->n_inputs, instruction_of(a), e);
    }
    for (size_t i = 0; i < a->n_inputs; i++) excerpt_deinit(&x[i]);
    cli_free(x);
    cli_free(text);
    return rc;
}
