/* SPDX-License-Identifier: MIT
 *
 * hello.h: the first packet that stages get: what all of them have to agree on, and the settings of the group.
 *
 * The head writes it. Every stage compares it with its own program and model, takes the settings, and passes the packet
 * on. The last one replies. A stage that cannot agree replies with the reason, which names both sides. A first round
 * may be a probe, by which the head learns how fast the hosts are and how much memory they have. It comes before the
 * head knows the limits of its packets, so those of a probe are the least that there can be.
 */
#ifndef QUERN_CLUSTER_HELLO_H
#define QUERN_CLUSTER_HELLO_H

#include "base/sha256.h"
#include "cluster/step_packet.h"
#include "engine/core/stage.h"
#include "model/model.h"

/* What a stage says of its host in answer to a probe. */
struct hello_host {
    uint32_t layer_ns;  /* that one token takes in a layer; 0: not known */
    uint32_t memory_mb; /* for this stage */
    int32_t lo, hi;     /* its file has the weights of the layers [lo, hi) */
};

/* As it is on the wire: numbers of 4 bytes, and bytes. */
struct hello {
    char version[96]; /* of the program: release and commit; ends with a NUL */
    uint8_t model[SHA256_BYTES];
    int32_t arithmetic; /* arithmetic.h */
    int32_t kv;         /* enum kv_type */
    int32_t n_ctx, n_threads;
    uint32_t group;
    int32_t n_layer, n_stages;
    int32_t cuts[STAGE_MOST + 1]; /* stage i has the layers [cuts[i], cuts[i + 1]) */
    struct step_limits limits;
    /* A probe comes before the real greeting. Each stage compares what it has, measures its host, and fills in its
     * entry; the last one sends the whole packet to the head, which then divides the layers. */
    uint32_t is_probe;
    struct hello_host host[STAGE_MOST];
};

/* Fills in what this program and model are, and an even cut of the layers. Everything else is 0. */
void hello_init(struct hello *h, const struct model *m, int n_stages);
/* A hash of the names, types, sizes and shapes of all tensors, and of the first and last HELLO_EDGE bytes of each. It
 * tells models apart that were made differently; it does not find a flipped bit. A file with the weights of some layers
 * has these bytes of all tensors. */
#define HELLO_EDGE 4096
void hello_model(uint8_t out[SHA256_BYTES], const struct model *m);

#define HELLO_BYTES (PACKET_HEAD_BYTES + sizeof(struct hello))

void packet_hello(struct packet_out *out, const struct hello *h);
/* Reads the body and checks its numbers against the model's. QN_EDATA, QN_EUNSUP: this stage, `who`, does not agree. */
int hello_read(struct hello *out, struct packet_in in, const struct model *m, const char *who, struct qn_error *e);

#endif
