/* SPDX-License-Identifier: MIT
 *
 * packet.h: what a stage sends to the next one: a header of 24 bytes and a body, in one piece.
 *
 *     0   u32  magic            another byte order shows here
 *     4   u16  version
 *     6   u16  kind             enum packet_kind
 *     8   u64  step             the step that the packet belongs to
 *     16  u32  group            the group of stages, chosen at its start: packets of an earlier group are refused
 *     20  u32  body_bytes
 *
 * Numbers are little-endian. Packets go down the chain of stages in order; the last stage sends to the head. The head
 * has the scheduler. Bodies:
 *
 *     STEP     step_packet.h
 *     ACCEPT   u32 n, i32 n_accepted[n]: of the held rows of the last step, for each of its sequences
 *     CANCEL   nothing: this step and those before it are no longer wanted
 *     DISK     disk_order.h
 *     REPLY    u32 outcome, and if the step is done: u32 n_times, us[n_times], u32 n, then i32 token[n] or
 *              f32 logits[n][n_vocab], or u32 n_drawn, n, what was drawn (voices.h), f32 logits[n][n_vocab];
 *              if it failed: u32 n, n bytes of a message; to DISK_ASK: u32 is_busy, n_good
 *
 *     HELLO    hello.h: the first packet of all, of group 0; its reply is one to step 0 without tokens
 *
 * Each size, count and number is checked before it is used. A packet never has a pointer, a path or a function.
 */
#ifndef QUERN_CLUSTER_PACKET_H
#define QUERN_CLUSTER_PACKET_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/error.h"

#define PACKET_HEAD_BYTES 24
#define PACKET_MAX_BYTES  ((size_t)1 << 30)
#define PACKET_MAX_TEXT   400 /* bytes of a failed step's message */

enum packet_kind {
    PACKET_STEP = 1,
    PACKET_ACCEPT,
    PACKET_CANCEL,
    PACKET_REPLY,
    PACKET_HELLO,
    PACKET_DISK,
    PACKET_KINDS
};

struct packet_head {
    enum packet_kind kind;
    uint64_t step;
    uint32_t group, body_bytes;
};

enum step_outcome {
    STEP_DONE,
    STEP_ABANDONED, /* as in forward_run(): a stage has stopped, and those after it never began */
    STEP_FAILED,    /* the stages no longer agree: the group has to be started again */
    STEP_LOGITS,    /* done, and the head draws the tokens */
    STEP_DRAWN,     /* done, and some tokens were drawn */
    STEP_ASKED,     /* no step: the answer to DISK_ASK */
    STEP_OUTCOMES
};

struct packet_reply {
    enum step_outcome outcome;
    int n_times;              /* of a step that is done: */
    const uint32_t *times;    /* microseconds that the pass of each stage took, in the packet */
    int n_drawn;              /* numbers of 4 bytes at drawn */
    const void *drawn;        /* in the packet */
    int n_tokens;             /* or rows of logits */
    const qn_token *tokens;   /* in the packet, as the next one */
    const float *logits;      /* [n_tokens][n_vocab] */
    uint32_t is_busy, n_good; /* of STEP_ASKED */
    char text[PACKET_MAX_TEXT + 1];
};

/* ---- writing ---- */

/* A buffer that packets are put together in. It has room: sizes are computed before. */
struct packet_out {
    uint8_t *p; /* aligned to 4 bytes */
    size_t n, cap;
};

/* Begins a packet in place of what out has. */
void packet_begin(struct packet_out *out, enum packet_kind kind, uint32_t group, uint64_t step);
void packet_put(struct packet_out *out, const void *p, size_t n);
void packet_put_u32(struct packet_out *out, uint32_t v);
/* Writes the size of the body into the header. */
void packet_end(struct packet_out *out);

/* Whole packets. */
void packet_accept(struct packet_out *out, uint32_t group, uint64_t step, const int32_t *n_accepted, int n);
void packet_reply_tokens(struct packet_out *out, uint32_t group, uint64_t step, const uint32_t *times, int n_times,
                         const qn_token *tokens, int n);
void packet_reply_logits(struct packet_out *out, uint32_t group, uint64_t step, const uint32_t *times, int n_times,
                         const float *logits, int n, int n_vocab);
/* A reply whose numbers about what was drawn, and rows of logits, follow (packet_put). packet_end() ends it. */
void packet_begin_drawn(struct packet_out *out, uint32_t group, uint64_t step, const uint32_t *times, int n_times,
                        int n_drawn, int n_logits);
void packet_reply_asked(struct packet_out *out, uint32_t group, uint64_t step, uint32_t is_busy, uint32_t n_good);
/* outcome: STEP_ABANDONED or STEP_FAILED. text is cut at PACKET_MAX_TEXT bytes. */
void packet_reply_failure(struct packet_out *out, uint32_t group, uint64_t step, enum step_outcome outcome,
                          const char *text);

#define PACKET_DRAWN 48 /* numbers of a token that was drawn, at most */
/* Bytes of the largest reply, with its header. */
size_t packet_reply_bytes(int n_rows, int n_logits, int n_vocab);

/* ---- reading ---- */

/* What is left of a body. */
struct packet_in {
    const uint8_t *p;
    size_t n;
};

/* Reads and checks the header of a packet of n bytes. QN_EDATA: it is none of this group. */
int packet_read_head(struct packet_head *out, const void *data, size_t n, uint32_t group, struct qn_error *e);
/* The body of a packet whose header was read. */
struct packet_in packet_body(const void *data, size_t n);
/* Takes n elements of `size` bytes, a multiple of 4. NULL: there are fewer. */
const void *packet_take(struct packet_in *in, size_t n, size_t size);
bool packet_take_u32(struct packet_in *in, uint32_t *out);

/* The counts of an ACCEPT, *n of them. QN_EDATA: they are not `most` or fewer counts of 0..max_held. */
int packet_read_accept(const int32_t **n_accepted, int *n, struct packet_in in, int most, int max_held,
                       struct qn_error *e);
/* tokens are below n_vocab, at most max_tokens of them; or as many rows of logits. */
int packet_read_reply(struct packet_reply *out, struct packet_in in, int max_tokens, int n_vocab, struct qn_error *e);

#endif
