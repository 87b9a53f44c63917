/* SPDX-License-Identifier: MIT
 *
 * fuzz_packet.c: libFuzzer entry for packets between stages: header, step, counts, orders about files, reply.
 *
 * The bytes are a packet. Its group and size are made right first, because no fuzzer finds those by trying. What is
 * accepted has to be within the limits.
 */
#include <assert.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "base/mem.h"
#include "cluster/disk/disk_order.h"
#include "cluster/voices.h"
#include "kernel/cpu.h"

#define GROUP 7

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* Reads every number that a stage would use. */
static void use(const struct step_packet *s, const struct step_limits *l)
{
    for (int i = 0; i < s->n_moves; i++) assert(s->moves[i].what < MOVE_WHATS && s->moves[i].to >= 0);
    for (int i = 0; i < s->n_seqs; i++) {
        const struct step_table *t = &s->tables[i];
        for (int k = 0; k < t->n_pages - t->n_kept; k++) assert(t->pages[k] >= 0 && t->pages[k] < l->n_pages);
        for (int k = 0; l->n_windows && k < t->n_pages - t->first_window; k++)
            assert(t->windows[k] >= -1 && t->windows[k] < l->n_windows);
    }
    for (int r = 0; r < s->batch.n; r++)
        assert(s->batch.slot[r] / l->page_slots < s->tables[s->batch.seq[r]].n_pages && s->batch.token[r] < l->n_vocab);
    float sum = 0;
    for (int i = 0; s->rows && i < s->batch.n * l->n_embd; i++) sum += s->rows[i];
    (void)sum;
}

/* Draws what the step says, from logits that are all alike. */
static void draw(const struct step_packet *s, const struct step_limits *l)
{
    static float logits[8 * 100];
    static uint8_t bytes[1 << 16] __attribute__((aligned(4)));
    struct packet_out out = {.p = bytes, .cap = sizeof bytes};
    struct stage_drawn drawn[16];
    uint8_t rows[8];
    struct kernels k;
    struct ledger ledger;
    struct voices *v;
    int n;
    kernels_init(&k, cpu_best());
    ledger_init(&ledger, 1 << 26);
    if (voices_new(&v, l, &k, &ledger, NULL)) return;
    if (!voices_prepare(v, s, rows, &n, NULL)) {
        voices_draw(v, s, logits, &out);
        assert(!voices_read(drawn, n, (struct packet_in){bytes, out.n}, l->n_vocab, NULL));
    }
    voices_free(v);
}

static void read_step(struct packet_in in, const struct step_limits *l)
{
    struct step_packet s;
    if (step_packet_init(&s, l, NULL)) return;
    for (int needs_rows = 0; needs_rows < 2; needs_rows++) {
        if (step_packet_read(&s, l, in, needs_rows, NULL)) continue;
        use(&s, l);
        if (l->n_logits) draw(&s, l);
    }
    step_packet_deinit(&s);
}

static void read_order(struct packet_in in, const struct step_limits *l)
{
    struct disk_order o;
    const int n[] = {l->n_pages, l->n_windows, l->n_states};
    if (disk_order_read(&o, in, l, NULL)) return;
    assert(o.op >= DISK_ENTER && o.op < DISK_OPS && o.n_parts <= disk_order_most(l));
    for (int i = 0; i < o.n_parts && o.op != DISK_DROP; i++)
        assert(o.parts[i].kind < 3 && o.parts[i].number >= 0 && o.parts[i].number < n[o.parts[i].kind]);
    uint8_t sum = 0;
    for (int i = 0; o.op == DISK_ENTER && i < CHAIN_MODEL_BYTES; i++) sum = (uint8_t)(sum + o.key[i]);
    (void)sum;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    /* The size of the vocabulary is that of which a voice is small. */
    static const struct step_limits windows = {.n_rows = 8,
                                               .n_seqs = 3,
                                               .n_moves = 4,
                                               .n_logits = 8,
                                               .n_pages = 20,
                                               .n_windows = 10,
                                               .n_pages_each = 6,
                                               .page_slots = 16,
                                               .window = 20,
                                               .n_embd = 4,
                                               .n_vocab = 100},
                                    states = {.n_rows = 8,
                                              .n_seqs = 3,
                                              .n_moves = 4,
                                              .n_pages = 20,
                                              .n_states = 5,
                                              .n_pages_each = 6,
                                              .page_slots = 16,
                                              .n_embd = 4,
                                              .n_vocab = 100};
    const uint32_t group = GROUP, body = (uint32_t)(size - PACKET_HEAD_BYTES);
    struct packet_head head;
    struct packet_reply reply;
    const int32_t *counts;
    int n;
    if (size < PACKET_HEAD_BYTES || size > 1 << 16) return 0;
    uint8_t *p = mem_alloc(size);
    memcpy(p, data, size);
    if (!packet_read_head(&head, p, size, GROUP, NULL)) assert(head.body_bytes == body);
    memcpy(p + 16, &group, sizeof group);
    memcpy(p + 20, &body, sizeof body);
    if (!packet_read_head(&head, p, size, GROUP, NULL)) {
        struct packet_in in = packet_body(p, size);
        if (head.kind == PACKET_STEP) {
            read_step(in, &windows);
            read_step(in, &states);
        } else if (head.kind == PACKET_DISK) {
            read_order(in, &windows);
            read_order(in, &states);
        } else if (head.kind == PACKET_ACCEPT && !packet_read_accept(&counts, &n, in, 3, 32, NULL)) {
            for (int i = 0; i < n; i++) assert(counts[i] >= 0 && counts[i] <= 32);
        } else if (head.kind == PACKET_REPLY && !packet_read_reply(&reply, in, 8, 100, NULL)) {
            struct stage_drawn drawn[8];
            for (int i = 0; reply.tokens && i < reply.n_tokens; i++) assert(reply.tokens[i] < 100);
            if (reply.outcome == STEP_DRAWN)
                voices_read(drawn, 8, (struct packet_in){reply.drawn, 4 * (size_t)reply.n_drawn}, 100, NULL);
        }
    }
    mem_free(p);
    return 0;
}
