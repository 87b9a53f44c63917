/* SPDX-License-Identifier: MIT
 *
 * disk_order.h: the body of a DISK packet: what stages shall do with their files of pages, and whether it is done.
 *
 * Stages begin to write and read when the order comes, after the steps before it, and go on with steps meanwhile. The
 * head asks whether an order is done: each stage adds its own answer, and the last one replies.
 *
 *     u32  op, number, n_good, is_busy, n_parts, 0
 *     u8   key[24], u64 budget         of DISK_ENTER
 *     struct disk_part [n_parts]       of DISK_WRITE, DISK_READ and DISK_DROP
 */
#ifndef QUERN_CLUSTER_DISK_ORDER_H
#define QUERN_CLUSTER_DISK_ORDER_H

#include "cache/chain_file.h"
#include "cluster/packet.h"

struct step_limits;

enum disk_op {
    DISK_ENTER = 1, /* the folder's files are those with this key */
    DISK_WRITE,     /* a file with these parts */
    DISK_READ,      /* parts of files */
    DISK_ASK,       /* is the order of that number done? */
    DISK_END,       /* the order of that number will not be asked about again */
    DISK_DROP,      /* delete the file of the one part */
    DISK_OPS
};

struct disk_part {
    uint32_t name[2]; /* the file's name as a number, the lower half first */
    uint32_t index;   /* of the part in the file */
    uint32_t kind;    /* enum kv_kind */
    int32_t number;   /* of the page, window page or state */
    uint32_t n_slots; /* in use, of a page or window page that is written */
};

struct disk_order {
    enum disk_op op;
    uint32_t number;
    uint32_t n_good, is_busy; /* of DISK_ASK: of the stages so far. Parts that all have, or 1; whether one is at it */
    const uint8_t *key;       /* of DISK_ENTER, [CHAIN_MODEL_BYTES] */
    uint64_t budget;          /* bytes */
    int n_parts;
    const struct disk_part *parts;
};

/* Parts of an order at most: what a sequence can have. */
int disk_order_most(const struct step_limits *l);
/* Bytes of the largest packet, with its header, in double. */
double disk_order_bytes(const struct step_limits *l);
/* A whole packet. */
void disk_order_put(struct packet_out *out, uint32_t group, uint64_t step, const struct disk_order *o);
/* key and parts stay in the packet. QN_EDATA: a number is out of its limits. */
int disk_order_read(struct disk_order *o, struct packet_in in, const struct step_limits *l, struct qn_error *e);

#endif
