/* SPDX-License-Identifier: MIT
 *
 * session_file.c: saves a session to a file, and loads it.
 *
 *     head      [64]                 magic, version, the number of logits, their checksum, the head's checksum
 *     (zeros to 4096)
 *     chain     chain_file_bytes()   tokens, pages, the window pages after them, and state, in the format of
 *                                    cache/chain_file.h, with checksums
 *     logits    [n_vocab] f32        the logits after the last token
 *
 * The file has the logits because a recurrent state cannot go back by one token to compute them again. Every number of
 * the file is checked against the engine's own before it is used. Checksums only find accidents. Keys, values, states
 * and logits may have any bytes, because they are only numbers to compute with.
 */
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/hash.h"
#include "base/out_file.h"
#include "cache/chain_file.h"
#include "engine/model_key.h"
#include "engine/core/model_print.h"
#include "engine/session.h"

#define VERSION    1
#define HEAD_BYTES 64
#define CHAIN_AT   4096

static const char magic[8] = {'q', 'u', 'e', 'r', 'n', 's', 'e', '\n'};

struct session_head {
    char magic[8];
    uint32_t version;
    uint32_t n_logits;
    uint64_t logits_sum;
    uint64_t zero[4];
    uint64_t sum; /* checksum of the bytes before it */
};
_Static_assert(sizeof(struct session_head) == HEAD_BYTES, "the head has no gaps");

static uint64_t head_sum(const struct session_head *h)
{
    return hash_bytes(h, offsetof(struct session_head, sum), VERSION);
}

static void key_of(const struct qn_engine *g, uint8_t out[CHAIN_MODEL_BYTES])
{
    uint8_t print[SHA256_BYTES];
    model_print(g->model->weights, print);
    model_key(g, "quern: a session", print, out);
}

static size_t logits_bytes(const struct qn_engine *g) { return (size_t)g->model->hp.n_vocab * sizeof(float); }

/* ---- saving ---- */

/* Returns the bytes of part i for the file. In the last page, slots that do not belong to the session are cleared in a
 * copy. scratch: a page or window page. */
static const void *part_of(const struct qn_session *s, const struct chain_head *h, uint32_t i, uint8_t *scratch)
{
    bool is_window = i >= chain_n_pages(h) && i < chain_n_pages(h) + h->n_windows;
    uint32_t page = is_window ? i - h->n_windows : i; /* window pages are those of the last pages */
    if (page >= chain_n_pages(h)) return s->memory.state;
    const uint8_t *from = is_window ? s->memory.windows[page] : s->memory.pages[page];
    int used = s->memory.n_slots - (int)page * h->shape.page_slots;
    if (used >= h->shape.page_slots) return from;
    memcpy(scratch, from, chain_part_bytes(h, i));
    (is_window ? kv_window_page_clear : kv_page_clear)(&h->shape, scratch, used);
    return scratch;
}

/* Returns the number of window pages that a timeline of n tokens needs to go on. */
static uint32_t n_windows_of(const struct kv_shape *shape, uint32_t n)
{
    uint32_t n_pages = (n + (uint32_t)shape->page_slots - 1) / (uint32_t)shape->page_slots;
    return shape->n_layer_win ? n_pages - (uint32_t)kv_window_first(shape, (int)n) : 0;
}

static int write_zeros(struct out_file *f, uint64_t n, struct qn_error *e)
{
    static const uint8_t zeros[CHAIN_AT];
    int rc = 0;
    for (uint64_t done = 0; done < n && !rc; done += sizeof zeros)
        rc = out_file_write(f, zeros, n - done < sizeof zeros ? (size_t)(n - done) : sizeof zeros, e);
    return rc;
}

static int write_all(struct out_file *f, const struct qn_session *s, const struct chain_head *h, void *index,
                     uint8_t *scratch, struct qn_error *e)
{
    struct session_head head = {.version = VERSION, .n_logits = (uint32_t)s->engine->model->hp.n_vocab};
    uint8_t chain[CHAIN_HEAD_BYTES];
    uint64_t index_bytes = chain_index_bytes(h);
    memcpy(head.magic, magic, sizeof magic);
    head.logits_sum = hash_bytes(s->logits, logits_bytes(s->engine), VERSION);
    head.sum = head_sum(&head);
    chain_head_write(h, chain);
    int rc = out_file_write(f, &head, sizeof head, e);
    if (!rc) rc = write_zeros(f, CHAIN_AT - sizeof head, e);
    if (!rc) rc = out_file_write(f, chain, sizeof chain, e);
    if (!rc) rc = out_file_write(f, index, index_bytes, e);
    if (!rc) rc = write_zeros(f, chain_part_offset(h, 0) - CHAIN_HEAD_BYTES - index_bytes, e);
    for (uint32_t i = 0; i < chain_n_parts(h) && !rc; i++)
        rc = out_file_write(f, part_of(s, h, i, scratch), chain_part_bytes(h, i), e);
    return rc ? rc : out_file_write(f, s->logits, logits_bytes(s->engine), e);
}

static void fill_index(const struct qn_session *s, const struct chain_head *h, void *index, uint8_t *scratch)
{
    memcpy(chain_index_tokens(index), s->tokens, s->n_tokens * sizeof *s->tokens);
    for (uint32_t i = 0; i < h->n_windows; i++) chain_index_windows(h, index)[i] = chain_n_pages(h) - h->n_windows + i;
    for (uint32_t i = 0; i < chain_n_parts(h); i++)
        chain_index_sums(h, index)[i] = chain_part_sum(part_of(s, h, i, scratch), chain_part_bytes(h, i));
    chain_index_seal(h, index);
}

static int save(const struct qn_session *s, const char *path, struct qn_error *e)
{
    struct out_file f = {0};
    struct chain_head h = {.shape = *kv_pool_shape(s->engine->kv), .n_tokens = (uint32_t)s->n_tokens};
    h.page_bytes = kv_page_bytes(&h.shape);
    h.has_state = h.shape.state_bytes > 0;
    h.n_windows = n_windows_of(&h.shape, h.n_tokens);
    size_t window_bytes = kv_window_page_bytes(&h.shape);
    key_of(s->engine, h.model);
    void *index = mem_calloc(1, chain_index_bytes(&h));
    uint8_t *scratch = mem_aligned(64, h.page_bytes > window_bytes ? h.page_bytes : window_bytes);
    int rc = index && scratch ? 0 : error_nomem(e, "a session's file", h.page_bytes + chain_index_bytes(&h));
    if (!rc) rc = out_file_open(&f, path, e);
    if (!rc && fchmod(f.fd, 0600)) rc = error_set(e, QN_EIO, "cannot make '%s' private: %s", path, strerror(errno));
    if (!rc) {
        fill_index(s, &h, index, scratch);
        rc = write_all(&f, s, &h, index, scratch, e);
    }
    if (!rc) rc = out_file_commit(&f, e);
    out_file_abort(&f);
    mem_free(index);
    mem_free(scratch);
    return rc;
}

int qn_session_save(qn_session *s, const char *path, struct qn_error *e)
{
    int rc;
    if (!s || !path) return usage_null(e, __func__);
    if ((rc = session_check_engine(s->engine, e))) return rc;
    engine_settle(s->engine);
    if (s->n_tokens == 0) return error_set(e, QN_EUSAGE, "session: no tokens to save");
    if ((rc = session_catch_up(s, e))) return rc;
    return save(s, path, e);
}

/* ---- loading ---- */

struct session_reader {
    int fd;
    const char *path;
    struct qn_error why; /* the error, without the path */
};

static int fault(const struct session_reader *r, int code, struct qn_error *e)
{
    return error_set(e, code, "session file '%s': %s", r->path, r->why.msg);
}

static int read_at(struct session_reader *r, void *to, uint64_t n, uint64_t at)
{
    uint8_t *p = to;
    while (n > 0) {
        ssize_t got = pread(r->fd, p, n, (off_t)at);
        if (got < 0 && errno == EINTR) continue;
        if (got < 0) return error_set(&r->why, QN_EIO, "cannot be read: %s", strerror(errno));
        if (got == 0) return error_set(&r->why, QN_EDATA, "ends at byte %llu", (unsigned long long)at);
        p += got;
        at += (uint64_t)got;
        n -= (uint64_t)got;
    }
    return 0;
}

/* Opens a regular file only, because a pipe would keep the caller waiting. */
static int open_file(struct session_reader *r, uint64_t *bytes)
{
    struct stat st;
    r->fd = open(r->path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
    if (r->fd < 0) return error_set(&r->why, QN_ENOINPUT, "cannot be opened: %s", strerror(errno));
    if (fstat(r->fd, &st) || !S_ISREG(st.st_mode)) return error_set(&r->why, QN_ENOINPUT, "not a regular file");
    *bytes = (uint64_t)st.st_size;
    return 0;
}

static bool is_shape(const struct kv_shape *a, const struct kv_shape *b)
{
    return a->type == b->type && a->n_layer == b->n_layer && a->n_head_kv == b->n_head_kv &&
           a->head_dim == b->head_dim && a->head_dim_v == b->head_dim_v && a->page_slots == b->page_slots &&
           a->state_bytes == b->state_bytes && a->n_layer_win == b->n_layer_win && a->window == b->window;
}

/* Checks that this engine can continue the timeline. After that, all sizes are those of the engine. */
static int check_chain(struct session_reader *r, const struct chain_head *h, const struct qn_engine *g)
{
    const struct kv_shape *shape = kv_pool_shape(g->kv);
    uint8_t model[CHAIN_MODEL_BYTES];
    if (h->shape.type != shape->type)
        return error_set(&r->why, QN_EUNSUP, "its KV cache is of another type than the engine's");
    key_of(g, model);
    if (memcmp(h->model, model, sizeof model) || !is_shape(&h->shape, shape) || h->page_bytes != kv_page_bytes(shape))
        return error_set(&r->why, QN_EUNSUP, "of another model, or of another version of its arithmetic");
    if (h->first_page || h->has_state != (shape->state_bytes > 0) || h->n_windows != n_windows_of(shape, h->n_tokens))
        return error_set(&r->why, QN_EDATA, "it holds a part of a timeline");
    if (h->n_tokens > (uint32_t)g->n_ctx)
        return error_set(&r->why, QN_EFULL, "%u tokens do not fit the engine's context of %d", h->n_tokens, g->n_ctx);
    return 0;
}

static int read_heads(struct session_reader *r, const struct qn_engine *g, struct session_head *head,
                      struct chain_head *h)
{
    uint64_t bytes = 0, logits = logits_bytes(g);
    uint8_t chain[CHAIN_HEAD_BYTES];
    int rc = open_file(r, &bytes);
    if (rc) return rc;
    if (bytes < CHAIN_AT + CHAIN_HEAD_BYTES) return error_set(&r->why, QN_EDATA, "not a saved session");
    if ((rc = read_at(r, head, sizeof *head, 0))) return rc;
    if (memcmp(head->magic, magic, sizeof magic)) return error_set(&r->why, QN_EDATA, "not a saved session");
    if (head->sum != head_sum(head)) return error_set(&r->why, QN_EDATA, "the head's checksum differs");
    if (head->version != VERSION)
        return error_set(&r->why, QN_EUNSUP, "version %u of the format, this is %d", head->version, VERSION);
    if (head->n_logits != (uint32_t)g->model->hp.n_vocab)
        return error_set(&r->why, QN_EUNSUP, "of another model: %u logits, not %d", head->n_logits,
                         g->model->hp.n_vocab);
    if (bytes < CHAIN_AT + CHAIN_HEAD_BYTES + logits) return error_set(&r->why, QN_EDATA, "it is too short");
    if ((rc = read_at(r, chain, sizeof chain, CHAIN_AT))) return rc;
    if ((rc = chain_head_read(h, chain, bytes - CHAIN_AT - logits, &r->why))) return rc;
    return check_chain(r, h, g);
}

static int read_tokens(struct session_reader *r, struct qn_session *s, const struct chain_head *h, void *index)
{
    int rc = read_at(r, index, chain_index_bytes(h), CHAIN_AT + CHAIN_HEAD_BYTES);
    if (rc || (rc = chain_index_check(h, index, &r->why))) return rc;
    uint32_t first = chain_n_pages(h) - h->n_windows; /* their numbers rise: if the first is right, all are */
    if (h->n_windows && chain_index_windows(h, index)[0] != first)
        return error_set(&r->why, QN_EDATA, "its window begins at page %u, not %u", chain_index_windows(h, index)[0],
                         first);
    const qn_token *tokens = chain_index_tokens(index);
    for (uint32_t i = 0; i < h->n_tokens; i++)
        if (tokens[i] < 0 || tokens[i] >= s->engine->model->hp.n_vocab)
            return error_set(&r->why, QN_EDATA, "token %u is %d, not in the vocabulary", i, tokens[i]);
    memcpy(s->tokens, tokens, h->n_tokens * sizeof *tokens);
    return 0;
}

static int read_part(struct session_reader *r, struct qn_session *s, const struct chain_head *h, void *index,
                     uint32_t i)
{
    void *to = s->memory.state;
    if (i < chain_n_pages(h))
        to = s->memory.pages[i];
    else if (i < chain_n_pages(h) + h->n_windows)
        to = s->memory.windows[i - h->n_windows];
    uint64_t bytes = chain_part_bytes(h, i);
    int rc = read_at(r, to, bytes, CHAIN_AT + chain_part_offset(h, i));
    if (!rc && chain_part_sum(to, bytes) != chain_index_sums(h, index)[i])
        rc = error_set(&r->why, QN_EDATA, "the checksum of part %u of %u differs", i + 1, chain_n_parts(h));
    return rc;
}

static int read_all(struct session_reader *r, struct qn_session *s, const struct session_head *head,
                    const struct chain_head *h)
{
    void *index = mem_calloc(1, chain_index_bytes(h));
    uint64_t logits = logits_bytes(s->engine);
    int rc = index ? read_tokens(r, s, h, index) : error_nomem(&r->why, "the tokens", chain_index_bytes(h));
    if (!rc) rc = kv_seq_reserve(&s->memory, (int)h->n_tokens, &r->why);
    int from = kv_window_first(&h->shape, (int)h->n_tokens) * h->shape.page_slots;
    if (!rc) rc = kv_seq_open(&s->memory, from, (int)h->n_tokens, &r->why);
    for (uint32_t i = 0; i < chain_n_parts(h) && !rc; i++) rc = read_part(r, s, h, index, i);
    if (!rc) rc = read_at(r, s->logits, logits, CHAIN_AT + chain_file_bytes(h));
    if (!rc && hash_bytes(s->logits, logits, VERSION) != head->logits_sum)
        rc = error_set(&r->why, QN_EDATA, "the checksum of the logits differs");
    mem_free(index);
    if (rc) return rc;
    kv_seq_extend(&s->memory, (int)h->n_tokens);
    s->n_tokens = h->n_tokens;
    session_restored(s);
    return 0;
}

int qn_session_load(qn_session **out, qn_engine *g, const char *path, const struct qn_sampling *sampling,
                    struct qn_error *e)
{
    struct session_head head;
    struct chain_head h;
    struct qn_session *s = NULL;
    struct session_reader r = {.fd = -1, .path = path};
    if (!out || !g || !path) return usage_null(e, __func__);
    int rc = session_new(&s, g, sampling, e);
    if (rc) return rc;
    rc = read_heads(&r, g, &head, &h);
    if (!rc) rc = read_all(&r, s, &head, &h);
    if (r.fd >= 0) close(r.fd);
    if (rc) {
        qn_session_free(s);
        return fault(&r, rc, e);
    }
    *out = s;
    return 0;
}
