/* SPDX-License-Identifier: MIT
 *
 * packet.c: the header of packets, and the bodies that are short. See packet.h.
 */
#include "cluster/packet.h"

#include <assert.h>
#include <string.h>

#include "engine/core/stage.h"

#define MAGIC   0x4b4e5251u /* "QRNK" */
#define VERSION 4

_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "numbers are written as they lie in memory");

/* ---- writing ---- */

void packet_put(struct packet_out *out, const void *p, size_t n)
{
    assert(n <= out->cap - out->n);
    if (n) memcpy(out->p + out->n, p, n);
    out->n += n;
}

void packet_put_u32(struct packet_out *out, uint32_t v) { packet_put(out, &v, sizeof v); }

void packet_begin(struct packet_out *out, enum packet_kind kind, uint32_t group, uint64_t step)
{
    const uint16_t words[2] = {VERSION, (uint16_t)kind};
    out->n = 0;
    packet_put_u32(out, MAGIC);
    packet_put(out, words, sizeof words);
    packet_put(out, &step, sizeof step);
    packet_put_u32(out, group);
    packet_put_u32(out, 0);
    assert(out->n == PACKET_HEAD_BYTES);
}

void packet_end(struct packet_out *out)
{
    uint32_t n = (uint32_t)(out->n - PACKET_HEAD_BYTES);
    memcpy(out->p + PACKET_HEAD_BYTES - sizeof n, &n, sizeof n);
}

/* A count and as many numbers. */
static void put_list(struct packet_out *out, const int32_t *list, int n)
{
    packet_put_u32(out, (uint32_t)n);
    packet_put(out, list, (size_t)n * sizeof *list);
    packet_end(out);
}

void packet_accept(struct packet_out *out, uint32_t group, uint64_t step, const int32_t *n_accepted, int n)
{
    packet_begin(out, PACKET_ACCEPT, group, step);
    put_list(out, n_accepted, n);
}

static void begin_reply(struct packet_out *out, uint32_t group, uint64_t step, enum step_outcome outcome,
                        const uint32_t *times, int n_times)
{
    packet_begin(out, PACKET_REPLY, group, step);
    packet_put_u32(out, outcome);
    packet_put_u32(out, (uint32_t)n_times);
    packet_put(out, times, (size_t)n_times * sizeof *times);
}

void packet_reply_tokens(struct packet_out *out, uint32_t group, uint64_t step, const uint32_t *times, int n_times,
                         const qn_token *tokens, int n)
{
    begin_reply(out, group, step, STEP_DONE, times, n_times);
    put_list(out, tokens, n);
}

void packet_reply_logits(struct packet_out *out, uint32_t group, uint64_t step, const uint32_t *times, int n_times,
                         const float *logits, int n, int n_vocab)
{
    begin_reply(out, group, step, STEP_LOGITS, times, n_times);
    packet_put_u32(out, (uint32_t)n);
    packet_put(out, logits, (size_t)n * (size_t)n_vocab * sizeof *logits);
    packet_end(out);
}

void packet_begin_drawn(struct packet_out *out, uint32_t group, uint64_t step, const uint32_t *times, int n_times,
                        int n_drawn, int n_logits)
{
    begin_reply(out, group, step, STEP_DRAWN, times, n_times);
    packet_put_u32(out, (uint32_t)n_drawn);
    packet_put_u32(out, (uint32_t)n_logits);
}

size_t packet_reply_bytes(int n_rows, int n_logits, int n_vocab)
{
    size_t tokens = (size_t)n_rows * sizeof(qn_token), logits = (size_t)n_logits * (size_t)n_vocab * sizeof(float);
    if (n_logits) logits += 8 + 2 * (size_t)n_logits * PACKET_DRAWN * 4; /* an answer of several begins with one row */
    return PACKET_HEAD_BYTES + 12 + STAGE_MOST * 4 + PACKET_MAX_TEXT + (tokens > logits ? tokens : logits);
}

void packet_reply_asked(struct packet_out *out, uint32_t group, uint64_t step, uint32_t is_busy, uint32_t n_good)
{
    packet_begin(out, PACKET_REPLY, group, step);
    packet_put_u32(out, STEP_ASKED);
    packet_put_u32(out, is_busy);
    packet_put_u32(out, n_good);
    packet_end(out);
}

void packet_reply_failure(struct packet_out *out, uint32_t group, uint64_t step, enum step_outcome outcome,
                          const char *text)
{
    size_t n = strnlen(text, PACKET_MAX_TEXT);
    packet_begin(out, PACKET_REPLY, group, step);
    packet_put_u32(out, (uint32_t)outcome);
    packet_put_u32(out, (uint32_t)n);
    packet_put(out, text, n);
    packet_end(out);
}

/* ---- reading ---- */

static uint32_t u32_at(const uint8_t *p)
{
    uint32_t v;
    memcpy(&v, p, sizeof v);
    return v;
}

int packet_read_head(struct packet_head *out, const void *data, size_t n, uint32_t group, struct qn_error *e)
{
    const uint8_t *p = data;
    if (n < PACKET_HEAD_BYTES || n > PACKET_MAX_BYTES)
        return error_set(e, QN_EDATA, "cluster: a packet of %zu bytes, not %d to %zu", n, PACKET_HEAD_BYTES,
                         PACKET_MAX_BYTES);
    uint16_t version, kind;
    uint32_t magic = u32_at(p), its_group = u32_at(p + 16), body = u32_at(p + 20);
    memcpy(&version, p + 4, sizeof version);
    memcpy(&kind, p + 6, sizeof kind);
    if (magic != MAGIC) return error_set(e, QN_EDATA, "cluster: a packet begins with 0x%08x, not 0x%08x", magic, MAGIC);
    if (version != VERSION)
        return error_set(e, QN_EDATA, "cluster: a packet of version %u, this program has version %d", version, VERSION);
    if (kind == 0 || kind >= PACKET_KINDS) return error_set(e, QN_EDATA, "cluster: a packet of kind %u", kind);
    if (its_group != group)
        return error_set(e, QN_EDATA, "cluster: a packet of group %08x, this group is %08x", its_group, group);
    if (body != n - PACKET_HEAD_BYTES)
        return error_set(e, QN_EDATA, "cluster: a packet of %zu bytes says that %u follow its header", n, body);
    *out = (struct packet_head){.kind = (enum packet_kind)kind, .group = its_group, .body_bytes = body};
    memcpy(&out->step, p + 8, sizeof out->step);
    return 0;
}

struct packet_in packet_body(const void *data, size_t n)
{
    return (struct packet_in){(const uint8_t *)data + PACKET_HEAD_BYTES, n - PACKET_HEAD_BYTES};
}

const void *packet_take(struct packet_in *in, size_t n, size_t size)
{
    const void *p = in->p;
    assert(size % 4 == 0);
    if (n > in->n / size) return NULL;
    in->p += n * size;
    in->n -= n * size;
    return p;
}

bool packet_take_u32(struct packet_in *in, uint32_t *out)
{
    const uint8_t *p = packet_take(in, 1, sizeof *out);
    if (p) *out = u32_at(p);
    return p != NULL;
}

/* A count and as many numbers of [0, end), and nothing else. */
static int take_list(const int32_t **list, int *n, struct packet_in *in, int most, int end, const char *what,
                     struct qn_error *e)
{
    uint32_t count = 0;
    if (!packet_take_u32(in, &count) || count > (uint32_t)most || in->n != count * sizeof **list)
        return error_set(e, QN_EDATA, "cluster: %u %s in %zu bytes, the most are %d", count, what, in->n, most);
    const int32_t *p = packet_take(in, count, sizeof *p);
    for (uint32_t i = 0; i < count; i++)
        if (p[i] < 0 || p[i] >= end)
            return error_set(e, QN_EDATA, "cluster: %s: number %u is %d, not in 0..%d", what, i, p[i], end - 1);
    *list = p;
    *n = (int)count;
    return 0;
}

int packet_read_accept(const int32_t **n_accepted, int *n, struct packet_in in, int most, int max_held,
                       struct qn_error *e)
{
    return take_list(n_accepted, n, &in, most, max_held + 1, "counts of rows that stay", e);
}

int packet_read_reply(struct packet_reply *out, struct packet_in in, int max_tokens, int n_vocab, struct qn_error *e)
{
    uint32_t outcome = STEP_OUTCOMES, n = 0;
    struct packet_reply r = {0};
    if (!packet_take_u32(&in, &outcome) || outcome >= STEP_OUTCOMES)
        return error_set(e, QN_EDATA, "cluster: a step ended with outcome %u", outcome);
    r.outcome = (enum step_outcome)outcome;
    if (r.outcome == STEP_DONE || r.outcome == STEP_LOGITS || r.outcome == STEP_DRAWN) {
        if (!packet_take_u32(&in, &n) || n > STAGE_MOST || !(r.times = packet_take(&in, n, sizeof *r.times)))
            return error_set(e, QN_EDATA, "cluster: times of %u stages in %zu bytes, the most are %d", n, in.n,
                             STAGE_MOST);
        r.n_times = (int)n;
    }
    if (r.outcome == STEP_DONE) {
        int rc = take_list(&r.tokens, &r.n_tokens, &in, max_tokens, n_vocab, "tokens", e);
        if (rc) return rc;
    } else if (r.outcome == STEP_LOGITS || r.outcome == STEP_DRAWN) {
        uint32_t drawn = 0;
        if (r.outcome == STEP_DRAWN && !packet_take_u32(&in, &drawn)) drawn = UINT32_MAX;
        bool is_cut = !packet_take_u32(&in, &n) || !(r.drawn = packet_take(&in, drawn, 4));
        r.n_drawn = (int)drawn;
        if (is_cut || n > (uint32_t)max_tokens || in.n != (size_t)n * (size_t)n_vocab * sizeof(float))
            return error_set(e, QN_EDATA, "cluster: %u rows of logits in %zu bytes, the most are %d", n, in.n,
                             max_tokens);
        r.n_tokens = (int)n;
        r.logits = (const float *)(const void *)in.p;
    } else if (r.outcome == STEP_ASKED) {
        if (!packet_take_u32(&in, &r.is_busy) || !packet_take_u32(&in, &r.n_good) || r.is_busy > 1 || in.n)
            return error_set(e, QN_EDATA, "cluster: an answer about files of another size, or busy %u", r.is_busy);
    } else {
        if (!packet_take_u32(&in, &n) || n > PACKET_MAX_TEXT || in.n != n)
            return error_set(e, QN_EDATA, "cluster: a message of %u bytes in %zu, the most are %d", n, in.n,
                             PACKET_MAX_TEXT);
        memcpy(r.text, in.p, n);
    }
    *out = r;
    return 0;
}
