/* SPDX-License-Identifier: MIT
 *
 * block_delta.c: gated DeltaNet, which replaces attention in some layers, and its numbers.
 *
 * "Gated Delta Networks: Improving Mamba2 with Delta Rule" (Yang, Kautz, Hatamizadeh, 2024), as in Qwen3-Next: a short
 * causal convolution over queries, keys and values, one decay and one learning rate for each value head and token, and
 * a norm of each head's output that is gated by a fourth projection.
 */
#include "model/block.h"
#include "model/pass/ops_common.h"
#include "model/pass/ops_delta.h"

void block_delta(const struct member *me, int il)
{
    struct pass *pass = me->pass;
    const struct layer *l = &pass->model->layers[il];
    const struct linear *users[6];
    int n = 0;
    if (l->delta_in.w) users[n++] = &l->delta_in;
    if (l->delta_qkv.w) users[n++] = &l->delta_qkv;
    if (l->delta_z.w) users[n++] = &l->delta_z;
    users[n++] = l->delta_ba.w ? &l->delta_ba : &l->delta_b;
    if (l->delta_a.w) users[n++] = &l->delta_a;
    users[n] = NULL;
    op_norm(me, il, "attn_norm", l->attn_norm, users);
    if (l->delta_in.w) {
        op_matmul(me, il, OP_DELTA, "ssm_in", &l->delta_in, &pass->h, pass->delta.in);
    } else {
        op_matmul(me, il, OP_DELTA, "attn_qkv", &l->delta_qkv, &pass->h, pass->delta.qkv);
        op_matmul(me, il, OP_DELTA, "attn_gate", &l->delta_z, &pass->h, pass->delta.z);
    }
    op_delta_ba(me, il);
    op_sync(me);
    op_delta_conv(me, il);
    op_delta_rule(me, il);
    op_delta_out(me, il);
    op_matmul_add(me, il, OP_DELTA, "ssm_out", &l->delta_out, &pass->att);
}

void block_hybrid(const struct member *me, int il)
{
    if (me->pass->model->hp.layer[il].is_recurrent)
        block_delta(me, il);
    else
        block_attn(me, il);
}

/* Sets which layers are recurrent: those that the file lists, or all but every full_attention_interval-th. */
static int read_pattern(struct hparams *h, struct hp_reader *r)
{
    int rc, interval = 0, is_recurrent[HP_MAX_LAYERS];
    const struct meta *m = weights_meta(r->w, hp_key(r, "attention.recurrent_layers"));
    if (!m) {
        rc = hp_int(r, "full_attention_interval", 1, HP_MAX_LAYERS, 4, &interval);
        for (int i = 0; i < h->n_layer && !rc; i++) h->layer[i].is_recurrent = (i + 1) % interval != 0;
        return rc;
    }
    int n_all = h->n_layer + h->n_nextn, n = m->type == MT_ARRAY && m->n == (uint64_t)h->n_layer ? h->n_layer : n_all;
    if ((rc = hp_each(r, "attention.recurrent_layers", n, 0, 1, -1, is_recurrent))) return rc;
    for (int i = 0; i < h->n_layer; i++) h->layer[i].is_recurrent = is_recurrent[i] != 0;
    return 0;
}

int delta_hparams(struct hparams *h, struct hp_reader *r)
{
    int rc, inner = 0;
    h->rope_adjacent = false;
    h->has_attn_gate = true;
    if ((rc = hp_int(r, "ssm.conv_kernel", 2, CONV_MAX_TAPS, -1, &h->conv_kernel))) return rc;
    if ((rc = hp_int(r, "ssm.state_size", 1, HP_MAX_HEAD_DIM, -1, &h->delta_dim_k))) return rc;
    if ((rc = hp_int(r, "ssm.group_count", 1, HP_MAX_HEADS, -1, &h->delta_n_head_k))) return rc;
    if ((rc = hp_int(r, "ssm.time_step_rank", 1, HP_MAX_HEADS, -1, &h->delta_n_head_v))) return rc;
    if (h->delta_n_head_v % h->delta_n_head_k)
        return error_set(r->e, QN_EDATA, "model: %d value heads of DeltaNet cannot share %d key heads",
                         h->delta_n_head_v, h->delta_n_head_k);
    if ((rc = hp_int(r, "ssm.inner_size", 1, HP_MAX_DIM, -1, &inner))) return rc;
    h->delta_dim_v = inner / h->delta_n_head_v;
    if (inner % h->delta_n_head_v || h->delta_dim_v > HP_MAX_HEAD_DIM)
        return error_set(r->e, QN_EDATA, "model: '%s' is %d: not %d heads of 1..%d dims", r->key, inner,
                         h->delta_n_head_v, HP_MAX_HEAD_DIM);
    if ((int64_t)h->delta_n_head_k * h->delta_dim_k > HP_MAX_DIM)
        return error_set(r->e, QN_EDATA, "model: %d key heads of %d dims are more than %d", h->delta_n_head_k,
                         h->delta_dim_k, HP_MAX_DIM);
    if ((rc = read_pattern(h, r))) return rc;
    static const char *const sections[] = {"rope.dimension_sections", "rope.mrope_section", "rope.mrope_interleaved"};
    for (size_t i = 0; i < sizeof sections / sizeof sections[0]; i++)
        hp_key(r, sections[i]); /* a token of a text has one position, so all sections rotate alike */
    return 0;
}
