/* SPDX-License-Identifier: MIT
 *
 * step_packet.c: writes and reads the body of a STEP. See step_packet.h.
 */
#include "cluster/step_packet.h"

#include <assert.h>
#include <string.h>

#include "base/mem.h"
#include "cluster/disk/disk_order.h"
#include "kernel/ref/half.h"
#include "model/hparams.h"
#include "model/pass/states.h"

#define N_HEAD    7 /* numbers before the moves */
#define N_TABLE   5 /* numbers of a table before its lists */
#define N_ROW     5 /* numbers of a row */
#define MARK_WANT 1u
#define MARK_HELD 2u

int step_packet_init(struct step_packet *s, const struct step_limits *l, struct qn_error *e)
{
    *s = (struct step_packet){.tables = mem_calloc((size_t)l->n_seqs, sizeof *s->tables)};
    if (!s->tables) return error_nomem(e, "the tables of a step", (size_t)l->n_seqs * sizeof *s->tables);
    int rc = batch_init(&s->batch, l->n_rows, e);
    size_t n = l->rounds_rows ? (size_t)l->n_rows * (size_t)l->n_embd : 0;
    if (!rc && n && !(s->wide = mem_calloc(n, sizeof *s->wide)))
        rc = error_nomem(e, "the rows of a step", n * sizeof *s->wide);
    if (rc) step_packet_deinit(s);
    return rc;
}

void step_packet_deinit(struct step_packet *s)
{
    mem_free(s->tables);
    mem_free(s->wide);
    batch_deinit(&s->batch);
    *s = (struct step_packet){0};
}

/* Of each answer a mask and what it is drawn with; besides, some histories. What does not fit is drawn by the head. */
size_t step_draw_numbers(const struct step_limits *l)
{
    if (!l->n_logits) return 0;
    return (size_t)l->n_seqs * (64 + (size_t)l->n_vocab / 32) + 2 * (size_t)l->n_pages_each * (size_t)l->page_slots +
           8192;
}

/* In double, because the product of limits may be more than fits 64 bits. */
size_t step_packet_bytes(const struct step_limits *l)
{
    double numbers = N_HEAD + STAGE_MOST + (double)step_draw_numbers(l) +
                     (double)l->n_seqs * (N_TABLE + 2.0 * l->n_pages_each) + (double)l->n_rows * N_ROW +
                     (double)l->n_rows * l->n_embd;
    double bytes = PACKET_HEAD_BYTES + 4 * numbers + (double)l->n_moves * (double)sizeof(struct step_move);
    if (bytes < disk_order_bytes(l)) bytes = disk_order_bytes(l);
    return bytes <= (double)PACKET_MAX_BYTES ? (size_t)bytes : 0;
}

/* ---- writing ---- */

static void put_table(struct packet_out *out, const struct step_table *t, bool has_windows)
{
    const int32_t numbers[N_TABLE] = {t->place, t->state, t->n_pages, t->n_kept, t->first_window};
    packet_put(out, numbers, sizeof numbers);
    packet_put(out, t->pages, (size_t)(t->n_pages - t->n_kept) * sizeof *t->pages);
    if (has_windows) packet_put(out, t->windows, (size_t)(t->n_pages - t->first_window) * sizeof *t->windows);
}

static void put_rows(struct packet_out *out, const struct batch *b)
{
    size_t bytes = (size_t)b->n * sizeof(int32_t);
    packet_put(out, b->token, bytes);
    packet_put(out, b->pos, bytes);
    packet_put(out, b->slot, bytes);
    packet_put(out, b->seq, bytes);
    for (int i = 0; i < b->n; i++)
        packet_put_u32(out, (b->want_logits[i] ? MARK_WANT : 0) | (b->held[i] ? MARK_HELD : 0));
}

void step_packet_put(struct packet_out *out, const struct step_packet *s, bool has_windows, int n_embd)
{
    const uint32_t head[N_HEAD] = {s->can_cancel ? STEP_CAN_CANCEL : 0,
                                   (uint32_t)s->n_moves,
                                   (uint32_t)s->n_seqs,
                                   (uint32_t)s->batch.n,
                                   (uint32_t)s->n_times,
                                   (uint32_t)s->n_draws,
                                   (uint32_t)n_embd};
    packet_put(out, head, sizeof head);
    packet_put(out, s->times, (size_t)s->n_times * sizeof *s->times);
    packet_put(out, s->moves, (size_t)s->n_moves * sizeof *s->moves);
    for (int i = 0; i < s->n_seqs; i++) put_table(out, &s->tables[i], has_windows);
    put_rows(out, &s->batch);
    packet_put(out, s->draws, (size_t)s->n_draws * sizeof *s->draws);
}

void step_packet_put_row(struct packet_out *out, const struct step_limits *l, const float *row)
{
    uint16_t part[256];
    if (!l->rounds_rows) packet_put(out, row, (size_t)l->n_embd * sizeof *row);
    for (int at = 0, n; l->rounds_rows && at < l->n_embd; at += n) {
        n = l->n_embd - at < (int)(sizeof part / sizeof *part) ? l->n_embd - at : (int)(sizeof part / sizeof *part);
        for (int i = 0; i < n; i++) part[i] = f32_to_bf16(row[at + i]);
        packet_put(out, part, (size_t)n * sizeof *part);
    }
}

/* ---- reading ---- */

static int short_of(struct qn_error *e, const char *what)
{
    return error_set(e, QN_EDATA, "cluster: a step's packet ends before its %s", what);
}

static int out_of(struct qn_error *e, const char *what, int64_t value, int64_t least, int64_t most)
{
    return error_set(e, QN_EDATA, "cluster: a step's %s is %lld, not in %lld..%lld", what, (long long)value,
                     (long long)least, (long long)most);
}

static int check_moves(const struct step_packet *s, const struct step_limits *l, struct qn_error *e)
{
    const int n_of[MOVE_WHATS] = {
        [MOVE_PAGE] = l->n_pages, [MOVE_WINDOW] = l->n_windows, [MOVE_STATE] = l->n_states, [MOVE_UNDO] = 1};
    for (int i = 0; i < s->n_moves; i++) {
        const struct step_move *m = &s->moves[i];
        if (m->what >= MOVE_WHATS) return out_of(e, "move's kind", m->what, 0, MOVE_WHATS - 1);
        int n = n_of[m->what], least = m->what == MOVE_STATE ? -1 : 0;
        if (m->to < 0 || m->to >= n) return out_of(e, "move's end", m->to, 0, n - 1);
        if (m->from < least || m->from >= n) return out_of(e, "move's start", m->from, least, n - 1);
    }
    return 0;
}

static int check_list(const int32_t *list, int n, int least, int end, const char *what, struct qn_error *e)
{
    for (int i = 0; i < n; i++)
        if (list[i] < least || list[i] >= end) return out_of(e, what, list[i], least, end - 1);
    return 0;
}

static int read_table(struct step_table *t, const struct step_limits *l, struct packet_in *in, struct qn_error *e)
{
    int32_t v[N_TABLE];
    int rc;
    const void *p = packet_take(in, N_TABLE, sizeof *v);
    if (!p) return short_of(e, "tables");
    memcpy(v, p, sizeof v);
    *t = (struct step_table){.place = v[0], .state = v[1], .n_pages = v[2], .n_kept = v[3], .first_window = v[4]};
    if (t->place < 0 || t->place >= l->n_seqs) return out_of(e, "place of a table", t->place, 0, l->n_seqs - 1);
    int least = l->n_states ? 0 : -1;
    if (t->state < least || t->state >= (l->n_states ? l->n_states : 0))
        return out_of(e, "state", t->state, least, l->n_states - 1);
    if (t->n_pages < 1 || t->n_pages > l->n_pages_each) return out_of(e, "pages", t->n_pages, 1, l->n_pages_each);
    if (t->n_kept < 0 || t->n_kept > t->n_pages) return out_of(e, "kept pages", t->n_kept, 0, t->n_pages);
    if (t->first_window < 0 || t->first_window > t->n_pages)
        return out_of(e, "first window", t->first_window, 0, t->n_pages);
    int n_new = t->n_pages - t->n_kept, n_windows = l->n_windows ? t->n_pages - t->first_window : 0;
    if (!(t->pages = packet_take(in, (size_t)n_new, sizeof *t->pages))) return short_of(e, "pages");
    if ((rc = check_list(t->pages, n_new, 0, l->n_pages, "page", e))) return rc;
    if (!l->n_windows) return 0;
    if (!(t->windows = packet_take(in, (size_t)n_windows, sizeof *t->windows))) return short_of(e, "windows");
    return check_list(t->windows, n_windows, -1, l->n_windows, "window page", e);
}

static int read_tables(struct step_packet *s, const struct step_limits *l, struct packet_in *in, struct qn_error *e)
{
    for (int i = 0; i < s->n_seqs; i++) {
        int rc = read_table(&s->tables[i], l, in, e);
        if (rc) return rc;
        for (int k = 0; k < i; k++)
            if (s->tables[k].place == s->tables[i].place || (l->n_states && s->tables[k].state == s->tables[i].state))
                return error_set(e, QN_EDATA, "cluster: sequences %d and %d of a step share place %d or state %d", k, i,
                                 s->tables[i].place, s->tables[i].state);
    }
    return 0;
}

static int read_rows(struct step_packet *s, int n, struct packet_in *in, struct qn_error *e)
{
    struct batch *b = &s->batch;
    int32_t *const to[] = {b->token, b->pos, b->slot, b->seq};
    for (size_t i = 0; i < sizeof to / sizeof to[0]; i++) {
        const void *p = packet_take(in, (size_t)n, sizeof *to[i]);
        if (!p) return short_of(e, "rows");
        memcpy(to[i], p, (size_t)n * sizeof *to[i]);
    }
    const uint32_t *marks = packet_take(in, (size_t)n, sizeof *marks);
    if (!marks) return short_of(e, "rows");
    for (int i = 0; i < n; i++) {
        if (marks[i] > (MARK_WANT | MARK_HELD)) return out_of(e, "marks", marks[i], 0, MARK_WANT | MARK_HELD);
        b->want_logits[i] = (marks[i] & MARK_WANT) != 0;
        b->held[i] = (marks[i] & MARK_HELD) != 0;
    }
    b->n = n;
    return 0;
}

/* What struct batch promises of the rows of one sequence: its slots ascend, and all are held or none. */
static int check_order(const struct batch *b, int r, struct qn_error *e)
{
    for (int q = r - 1; q >= 0; q--) {
        if (b->seq[q] != b->seq[r]) continue;
        if (b->slot[q] >= b->slot[r])
            return error_set(e, QN_EDATA, "cluster: row %d of a step has slot %d after slot %d", r, b->slot[r],
                             b->slot[q]);
        if (b->held[q] != b->held[r])
            return error_set(e, QN_EDATA, "cluster: rows %d and %d of a step are not held alike", q, r);
        return 0; /* earlier ones were compared with that one */
    }
    return 0;
}

static int check_rows(const struct step_packet *s, const struct step_limits *l, struct qn_error *e)
{
    const struct batch *b = &s->batch;
    int n_held = 0, n_wanted = 0, rc;
    for (int r = 0; r < b->n; r++) {
        if (b->token[r] < 0 || b->token[r] >= l->n_vocab) return out_of(e, "token", b->token[r], 0, l->n_vocab - 1);
        if (b->pos[r] < 0 || b->pos[r] >= HP_MAX_CTX) return out_of(e, "position", b->pos[r], 0, HP_MAX_CTX - 1);
        if (b->seq[r] < 0 || b->seq[r] >= s->n_seqs) return out_of(e, "sequence", b->seq[r], 0, s->n_seqs - 1);
        int64_t n_slots = (int64_t)s->tables[b->seq[r]].n_pages * l->page_slots;
        if (b->slot[r] < 0 || b->slot[r] >= n_slots) return out_of(e, "slot", b->slot[r], 0, n_slots - 1);
        if ((rc = check_order(b, r, e))) return rc;
        n_held += b->held[r];
        n_wanted += b->want_logits[r];
    }
    if (l->n_logits && n_wanted > l->n_logits) return out_of(e, "rows with logits", n_wanted, 0, l->n_logits);
    return n_held > PASS_MAX_HELD ? out_of(e, "number of held rows", n_held, 0, PASS_MAX_HELD) : 0;
}

/* Residual rows to the end. */
static int take_residual(struct step_packet *s, const struct step_limits *l, struct packet_in *in, uint32_t n_embd,
                         bool needs_rows, struct qn_error *e)
{
    uint32_t wanted = needs_rows && s->batch.n ? (uint32_t)l->n_embd : 0;
    if (n_embd != wanted) return out_of(e, "width of residual rows", n_embd, wanted, wanted);
    size_t n = (size_t)s->batch.n * n_embd;
    if (in->n != n * (l->rounds_rows ? sizeof(uint16_t) : sizeof(float)))
        return error_set(e, QN_EDATA, "cluster: %zu bytes after a step's rows, not %d times %u numbers of %d", in->n,
                         s->batch.n, n_embd, l->rounds_rows ? 2 : 4);
    for (size_t i = 0; i < n && l->rounds_rows; i++) s->wide[i] = bf16_to_f32(load_u16(in->p + 2 * i));
    s->rows = !n_embd ? NULL : l->rounds_rows ? s->wide : (const float *)(const void *)in->p;
    return 0;
}

int step_packet_read(struct step_packet *s, const struct step_limits *l, struct packet_in in, bool needs_rows,
                     struct qn_error *e)
{
    uint32_t v[N_HEAD];
    int rc;
    assert((uintptr_t)in.p % 4 == 0);
    const void *p = packet_take(&in, N_HEAD, sizeof *v);
    if (!p) return short_of(e, "counts");
    memcpy(v, p, sizeof v);
    if (v[0] > STEP_CAN_CANCEL) return out_of(e, "flags", v[0], 0, STEP_CAN_CANCEL);
    if (v[1] > (uint32_t)l->n_moves) return out_of(e, "number of moves", v[1], 0, l->n_moves);
    if (v[2] > (uint32_t)l->n_seqs) return out_of(e, "number of sequences", v[2], 0, l->n_seqs);
    if (v[3] > (uint32_t)l->n_rows) return out_of(e, "number of rows", v[3], 0, l->n_rows);
    if (v[5] > step_draw_numbers(l)) return out_of(e, "number of draws", v[5], 0, (int64_t)step_draw_numbers(l));
    if (v[4] > STAGE_MOST) return out_of(e, "number of times", v[4], 0, STAGE_MOST);
    const void *times = packet_take(&in, v[4], sizeof *s->times);
    if (!times) return short_of(e, "times");
    memcpy(s->times, times, v[4] * sizeof *s->times);
    s->n_times = (int)v[4];
    s->can_cancel = v[0] & STEP_CAN_CANCEL;
    s->n_moves = (int)v[1];
    s->n_seqs = (int)v[2];
    if (!(s->moves = packet_take(&in, v[1], sizeof *s->moves))) return short_of(e, "moves");
    if ((rc = check_moves(s, l, e)) || (rc = read_tables(s, l, &in, e))) return rc;
    if ((rc = read_rows(s, (int)v[3], &in, e)) || (rc = check_rows(s, l, e))) return rc;
    if (!(s->draws = packet_take(&in, v[5], sizeof *s->draws))) return short_of(e, "draws");
    s->n_draws = (int)v[5];
    return take_residual(s, l, &in, v[6], needs_rows, e);
}
