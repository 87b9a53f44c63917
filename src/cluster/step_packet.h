/* SPDX-License-Identifier: MIT
 *
 * step_packet.h: the body of a STEP: everything that a stage needs for one forward pass.
 *
 * All stages have pools of as many pages, window pages and states as the head, and give them the same numbers. The head
 * decides what they are used for: its sequences, prefix tree, forks, truncations and snapshots change page tables, and
 * now and then the bytes of a page or state. So a stage is told two things before the rows of a step: which pages and
 * states were copied or cleared since the last step (moves, in their order), and the page tables of the step's
 * sequences. Tables are sent as far as they differ from the last one at the same place.
 *
 *     u32 flags, n_moves, n_seqs, n_rows, n_times, n_draws, n_embd (0: no residual rows follow)
 *     times   [n_times]  u32 microseconds that the stages before took for this step
 *     moves   [n_moves]  u32 what, i32 to, i32 from
 *     tables  [n_seqs]   i32 place, state, n_pages, n_kept, first_window,
 *                        i32 page[n_pages - n_kept], window[n_pages - first_window], -1: none
 *     rows               i32 token[n_rows], pos[n_rows], slot[n_rows], seq[n_rows], u32 marks[n_rows]
 *     draws   [n_draws]  u32 numbers for the last stage (voices.h)
 *     residual           f32 [n_rows][n_embd], or bf16 if the group rounds rows
 */
#ifndef QUERN_CLUSTER_STEP_PACKET_H
#define QUERN_CLUSTER_STEP_PACKET_H

#include "cache/kv.h"
#include "cluster/packet.h"
#include "engine/core/stage.h"
#include "model/pass/batch.h"

#define STEP_CAN_CANCEL 1u /* flags: stages may abandon the pass */

/* What a packet may have at most, the same in all stages. Every number of a packet is checked against it. */
struct step_limits {
    int n_rows, n_seqs, n_moves;
    int n_logits; /* rows of a step whose logits go to the head, at most; 0: the last stage chooses tokens */
    int n_pages, n_windows, n_states; /* of the pools; windows and states: 0 if the whole model has none */
    int n_pages_each;                 /* of a sequence */
    int page_slots, window;           /* as in struct kv_shape, of the whole model */
    int n_embd, n_vocab;
    int rounds_rows; /* 1: residual rows are rounded to bf16 on their way; 0: they are not */
};

enum step_move_what { MOVE_PAGE, MOVE_WINDOW, MOVE_STATE, MOVE_UNDO, MOVE_WHATS };

/* A page, window page or state `to` becomes a copy of `from`; from -1: a state of zeros. UNDO: the states become those
 * before the last step, which was abandoned by a later stage; to and from are 0. */
struct step_move {
    uint32_t what;
    int32_t to, from;
};

/* The page table of one sequence of the step. */
struct step_table {
    int32_t place;        /* where stages keep the table: below n_seqs of the limits, different for each sequence */
    int32_t state;        /* -1: none */
    int32_t n_pages;      /* of the sequence */
    int32_t n_kept;       /* pages that are those of the last table at this place; the packet has the others */
    int32_t first_window; /* window pages before this one are gone */
    const int32_t *pages, *windows; /* [n_pages - n_kept], [n_pages - first_window]; the second NULL without windows */
};

struct step_packet {
    bool can_cancel;
    int n_times, n_moves, n_seqs;
    uint32_t times[STAGE_MOST];
    int n_draws; /* numbers at draws */
    const uint32_t *draws;
    const struct step_move *moves;
    struct step_table *tables; /* [n_seqs] */
    struct batch batch;
    const float *rows; /* [batch.n][n_embd]; NULL: none */
    float *wide;       /* [n_rows][n_embd] where they are if they came rounded; NULL: they do not */
};

/* Room for the packets of these limits. */
int step_packet_init(struct step_packet *s, const struct step_limits *l, struct qn_error *e);
void step_packet_deinit(struct step_packet *s);
/* Numbers that draws of a step have at most. */
size_t step_draw_numbers(const struct step_limits *l);
/* Bytes of the largest packet of these limits that goes down the chain, with its header. 0: more than PACKET_MAX_BYTES.
 */
size_t step_packet_bytes(const struct step_limits *l);

/* Appends a body, without the residual rows, for n_embd floats of each row: 0 or as in the limits. has_windows: tables
 * have windows. */
void step_packet_put(struct packet_out *out, const struct step_packet *s, bool has_windows, int n_embd);
/* Appends a residual row. */
void step_packet_put_row(struct packet_out *out, const struct step_limits *l, const float *row);
/* Reads and checks a body that is aligned to 4 bytes. The arrays of s are filled; moves, lists of pages and rows stay
 * in the packet. needs_rows: residual rows must follow, else they must not. QN_EDATA: something is out of its limits. s
 * is then undefined, but can be used again.
 *
 * What depends on earlier packets is left to the caller: that no more pages are kept than there were, and that the
 * window before each row is there. */
int step_packet_read(struct step_packet *s, const struct step_limits *l, struct packet_in in, bool needs_rows,
                     struct qn_error *e);

#endif
