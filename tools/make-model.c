/* SPDX-License-Identifier: MIT
 *
 * make-model.c: writes a GGUF model of random weights in the shape of a real one.
 *
 *     make-model SHAPE[:TYPE] OUT.gguf [--layers N] [--vocab N] [--seed S] [--nextn 1] [--meek D]
 *                [--mask ID]
 *
 * Speed does not depend on what the weights are, only on their types and shapes: such a file serves for timings
 * and for tests of equality, needs no download and has no licence. It loads wherever the real model does. The
 * weights of a matrix with rows of k elements have a deviation of 1/sqrt(k), the norms are about 1: so activations
 * keep their size from layer to layer. The same arguments always give the same bytes.
 *
 * --vocab N leaves the vocabulary's first N - 3 tokens, and the special ones.
 *
 * --nextn 1 adds the block that predicts the token after the next one. With --meek D the layers' results are divided by
 * D, so that the next token mostly follows from the last one, and the block's prediction is that: it is often right.
 * --mask ID names a token for the masks of windows.
 *
 * The tokenizer is a byte-level BPE of the right size: 256 bytes, then words of made-up syllables with a merge rule
 * each, then three special tokens and a ChatML template.
 *
 * Sources: the GGUF format (docs/FORMATS.md); what there is to write: shape.c. Does not write vision towers.
 */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "base/error.h"
#include "base/hash.h"
#include "base/mem.h"
#include "base/out_file.h"
#include "fill.h"
#include "shape.h"
#include "tensor/dtype.h"

enum { ALIGN = 32, CHUNK = 4 << 20 }; /* bytes: alignment of a tensor in the file; how much is made at a time */

static uint64_t item_rows(const struct item *t) { return (uint64_t)(t->ne[1] * t->ne[2]); }
static uint64_t item_bytes(const struct item *t) { return dtype_row_bytes(t->type, t->ne[0]) * item_rows(t); }
static uint64_t stored_bytes(const struct item *t) { return item_bytes(t) + dtype_get(t->type)->tail; }
static uint64_t padded(uint64_t bytes) { return (bytes + ALIGN - 1) / ALIGN * ALIGN; }

/* ---- vocabulary ---- */

/* Fillers are numbered from 0: a hundred syllables, the same after a space, and then words: a hundred for each
 * filler from the first spaced syllable on, which is their beginning. So each is made by one merge of two others. */
enum { N_SYLLABLES = 100, N_SPECIALS = 3, FIRST_FILLER = 256 };
static const char *const specials[N_SPECIALS] = {"<|endoftext|>", "<|im_start|>", "<|im_end|>"};
#define SPACE "\u0120" /* what a space is in the byte-level alphabet */

static int filler_parent(int f) { return N_SYLLABLES + (f - 2 * N_SYLLABLES) / N_SYLLABLES; }

/* Appends the filler's text to out; 64 bytes are enough for any vocabulary: a word of s syllables has a number of
 * at least 100^(s-1). */
static void filler_text(int f, char *out)
{
    const char syllable[] = {"bcdfghjklmnprstvwxyz"[f % N_SYLLABLES / 5], "aeiou"[f % 5], 0};
    if (f >= 2 * N_SYLLABLES)
        filler_text(filler_parent(f), out);
    else if (f >= N_SYLLABLES)
        strcat(out, SPACE);
    strcat(out, syllable);
}

/* Byte tokens: the printable characters of Latin-1 stand for themselves, the other bytes, in order, for the
 * characters from U+0100 on (GPT-2's alphabet). */
static void byte_text(int byte, char out[3])
{
    int c = byte, hidden = 0;
    for (int i = 0; i <= byte; i++) {
        bool shown = (i > 32 && i < 127) || (i > 160 && i != 173);
        if (i == byte && !shown) c = 256 + hidden;
        hidden += !shown;
    }
    snprintf(out, 3, c < 128 ? "%c" : "%c%c", c < 128 ? c : 0xc0 | c >> 6, 0x80 | (c & 63));
}

static void token_text(const struct shape *s, int id, char out[64])
{
    out[0] = 0;
    if (id < FIRST_FILLER)
        byte_text(id, out);
    else if (id >= s->n_vocab - N_SPECIALS)
        strcat(out, specials[id - (s->n_vocab - N_SPECIALS)]);
    else
        filler_text(id - FIRST_FILLER, out);
}

/* The two texts whose merge gives the filler, with a space between. */
static void merge_text(int f, char out[64])
{
    char whole[64] = "";
    filler_text(f, whole);
    size_t n = strlen(whole), left = f < N_SYLLABLES ? n - 1 : n - 2;
    snprintf(out, 64, "%.*s %s", (int)left, whole, whole + left);
}

/* ---- header ---- */

/* The first failure stays in rc, and nothing is added after it. */
struct header {
    struct buf b;
    uint64_t n_kv;
    int rc;
    struct qn_error *e;
};

enum kv_type { KV_U32 = 4, KV_I32 = 5, KV_F32 = 6, KV_BOOL = 7, KV_STRING = 8, KV_ARRAY = 9 };

static void put(struct header *h, const void *p, size_t n)
{
    if (h->rc == 0) h->rc = buf_add(&h->b, p, n, h->e);
}
static void put_u32(struct header *h, uint32_t v) { put(h, &v, sizeof v); }
static void put_u64(struct header *h, uint64_t v) { put(h, &v, sizeof v); }
static void put_string(struct header *h, const char *s)
{
    put_u64(h, strlen(s));
    put(h, s, strlen(s));
}

/* A key that begins with a dot belongs to the architecture. */
static void put_key(struct header *h, const struct plan *p, const char *key, enum kv_type type)
{
    char full[64];
    snprintf(full, sizeof full, "%s%s", key[0] == '.' ? family_name(p->shape->family) : "", key);
    put_string(h, full);
    put_u32(h, type);
    h->n_kv++;
}
static void kv_u32(struct header *h, const struct plan *p, const char *key, int v)
{
    put_key(h, p, key, KV_U32);
    put_u32(h, (uint32_t)v);
}
static void kv_f32(struct header *h, const struct plan *p, const char *key, float v)
{
    put_key(h, p, key, KV_F32);
    put(h, &v, sizeof v);
}
static void kv_string(struct header *h, const struct plan *p, const char *key, const char *v)
{
    put_key(h, p, key, KV_STRING);
    put_string(h, v);
}
static void kv_array(struct header *h, const struct plan *p, const char *key, enum kv_type of, int n)
{
    put_key(h, p, key, KV_ARRAY);
    put_u32(h, of);
    put_u64(h, (uint64_t)n);
}

static void u32_if(struct header *h, const struct plan *p, const char *key, int v)
{
    if (v) kv_u32(h, p, key, v);
}
static void f32_if(struct header *h, const struct plan *p, const char *key, float v)
{
    if (v != 0) kv_f32(h, p, key, v);
}

static void put_scale_keys(struct header *h, const struct plan *p)
{
    const struct shape *s = p->shape;
    if (s->scaling) kv_string(h, p, ".rope.scaling.type", s->scaling);
    f32_if(h, p, ".rope.scaling.factor", s->scaling_factor);
    f32_if(h, p, ".rope.scaling.yarn_log_multiplier", s->scaling_log);
    f32_if(h, p, ".rope.scaling.yarn_attn_factor", s->scaling_attn);
    f32_if(h, p, ".rope.scaling.yarn_beta_fast", s->scaling_attn != 0 ? 32 : 0);
    f32_if(h, p, ".rope.scaling.yarn_beta_slow", s->scaling_attn != 0 ? 1 : 0);
    u32_if(h, p, ".rope.scaling.original_context_length", s->n_ctx_orig);
    u32_if(h, p, ".attention.sliding_window", s->n_swa);
    f32_if(h, p, ".attn_logit_softcapping", s->attn_softcap);
    f32_if(h, p, ".final_logit_softcapping", s->logit_softcap);
    f32_if(h, p, ".embedding_scale", s->embd_scale);
    f32_if(h, p, ".residual_scale", s->residual_scale);
    f32_if(h, p, ".attention.scale", s->attn_scale);
    f32_if(h, p, ".logit_scale", s->logit_scale);
}

static void put_range_key(struct header *h, const struct plan *p)
{
    const uint8_t truncate = 0;
    if (!p->shape->exact_range) return;
    put_key(h, p, "quern.rope_yarn_truncate", KV_BOOL);
    put(h, &truncate, 1);
}

static void put_expert_keys(struct header *h, const struct plan *p)
{
    const struct shape *s = p->shape;
    const uint8_t norm = s->gate == 2;
    if (!s->n_expert) return;
    kv_u32(h, p, ".expert_count", s->n_expert);
    kv_u32(h, p, ".expert_used_count", s->n_used);
    if (strcmp(family_name(s->family), "llama")) kv_u32(h, p, ".expert_feed_forward_length", s->d_expert);
    if (!s->gate) {
        u32_if(h, p, ".expert_shared_feed_forward_length", s->d_shared);
        return;
    }
    kv_u32(h, p, ".expert_shared_count", s->d_shared / s->d_expert);
    kv_u32(h, p, ".leading_dense_block_count", s->n_dense_lead);
    kv_u32(h, p, ".expert_gating_func", s->gate);
    put_key(h, p, ".expert_weights_norm", KV_BOOL);
    put(h, &norm, 1);
    f32_if(h, p, ".expert_weights_scale", s->expert_scale);
    u32_if(h, p, ".expert_group_count", s->n_groups);
    u32_if(h, p, ".expert_group_used_count", s->n_groups_used);
}

/* What is not kept as a key and a value for each head. */
static void put_state_keys(struct header *h, const struct plan *p)
{
    const struct shape *s = p->shape;
    if (!strncmp(family_name(s->family), "qwen35", 6)) { /* how pairs are shared out over time, height and width */
        int n_pairs = s->n_rot / 2;
        kv_array(h, p, ".rope.dimension_sections", KV_I32, 4);
        for (int i = 0; i < 4; i++) put_u32(h, i < 3 ? (uint32_t)((n_pairs + 2 - i) / 3) : 0);
    }
    if (s->n_v) {
        kv_u32(h, p, ".full_attention_interval", 4);
        kv_u32(h, p, ".ssm.conv_kernel", s->n_taps);
        kv_u32(h, p, ".ssm.state_size", s->dim_k);
        kv_u32(h, p, ".ssm.group_count", s->n_k);
        kv_u32(h, p, ".ssm.time_step_rank", s->n_v);
        kv_u32(h, p, ".ssm.inner_size", s->n_v * s->dim_v);
    }
}

/* Of latent attention, what is cached has the plain names; a head's own lengths end in _mla where that is something
 * else. */
static void put_head_keys(struct header *h, const struct plan *p)
{
    const struct shape *s = p->shape;
    bool absorbed = s->lora_kv && !s->expanded;
    kv_u32(h, p, ".attention.head_count_kv", absorbed ? 1 : s->n_head_kv);
    kv_u32(h, p, ".attention.key_length", absorbed ? s->lora_kv + s->n_rot : s->head_dim);
    kv_u32(h, p, ".attention.value_length", absorbed ? s->lora_kv : s->lora_kv ? s->dim_v_head : s->head_dim);
    u32_if(h, p, ".attention.q_lora_rank", s->lora_q);
    u32_if(h, p, ".attention.kv_lora_rank", s->lora_kv);
    if (!absorbed) return;
    kv_u32(h, p, ".attention.key_length_mla", s->head_dim);
    kv_u32(h, p, ".attention.value_length_mla", s->dim_v_head);
}

static void put_model_keys(struct header *h, const struct plan *p)
{
    const struct shape *s = p->shape;
    char name[64];

    snprintf(name, sizeof name, "random %s %s, seed %" PRIu64, s->name, p->scheme->name, p->seed);
    kv_string(h, p, "general.architecture", family_name(s->family));
    kv_string(h, p, "general.type", "model");
    kv_string(h, p, "general.name", name);
    kv_u32(h, p, "general.file_type", p->scheme->file_type);
    kv_u32(h, p, "general.quantization_version", 2);
    kv_u32(h, p, "general.alignment", ALIGN);
    kv_u32(h, p, ".vocab_size", s->n_vocab);
    kv_u32(h, p, ".context_length", s->n_ctx);
    kv_u32(h, p, ".embedding_length", s->d_model);
    kv_u32(h, p, ".block_count", p->n_layer + p->n_nextn);
    u32_if(h, p, ".nextn_predict_layers", p->n_nextn);
    kv_u32(h, p, ".feed_forward_length", s->d_ff);
    kv_u32(h, p, ".attention.head_count", s->n_head);
    put_head_keys(h, p);
    kv_f32(h, p, ".attention.layer_norm_rms_epsilon", s->eps);
    kv_u32(h, p, ".rope.dimension_count", s->n_rot ? s->n_rot : s->head_dim);
    kv_f32(h, p, ".rope.freq_base", s->rope_theta);
    put_scale_keys(h, p);
    put_range_key(h, p);
    put_expert_keys(h, p);
    put_state_keys(h, p);
}

static void put_tokenizer_keys(struct header *h, const struct plan *p)
{
    const struct shape *s = p->shape;
    int n = s->n_vocab, n_fillers = n - N_SPECIALS - FIRST_FILLER;
    const uint8_t add_bos = !strcmp(s->pre, "llama-bpe");
    char text[64];

    kv_string(h, p, "tokenizer.ggml.model", "gpt2");
    kv_string(h, p, "tokenizer.ggml.pre", s->pre);
    kv_array(h, p, "tokenizer.ggml.tokens", KV_STRING, n);
    for (int i = 0; i < n; i++) {
        token_text(s, i, text);
        put_string(h, text);
    }
    kv_array(h, p, "tokenizer.ggml.token_type", KV_I32, n);
    for (int i = 0; i < n; i++) put_u32(h, i < n - N_SPECIALS ? 1 : 3); /* normal, control */
    kv_array(h, p, "tokenizer.ggml.merges", KV_STRING, n_fillers);
    for (int f = 0; f < n_fillers; f++) {
        merge_text(f, text);
        put_string(h, text);
    }
    kv_u32(h, p, "tokenizer.ggml.bos_token_id", n - 3);
    kv_u32(h, p, "tokenizer.ggml.eos_token_id", n - 1);
    kv_u32(h, p, "tokenizer.ggml.padding_token_id", n - 3);
    u32_if(h, p, "tokenizer.ggml.mask_token_id", p->mask);
    put_key(h, p, "tokenizer.ggml.add_bos_token", KV_BOOL);
    put(h, &add_bos, 1);
    kv_string(
        h, p, "tokenizer.chat_template",
        "{% for message in messages %}{{ '<|im_start|>' + message['role'] + '\\n' + message['content'] + "
        "'<|im_end|>\\n' }}{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}");
}

static void put_tensor_infos(struct header *h, const struct plan *p)
{
    uint64_t offset = 0;
    for (size_t i = 0; i < p->n_items; i++) {
        const struct item *t = &p->items[i];
        put_string(h, t->name);
        put_u32(h, (uint32_t)t->n_dims);
        for (int d = 0; d < t->n_dims; d++) put_u64(h, (uint64_t)t->ne[d]);
        put_u32(h, t->type);
        put_u64(h, offset);
        offset += padded(stored_bytes(t));
    }
}

/* Everything before the data. The caller deinits *out. */
static int make_header(const struct plan *p, struct buf *out, struct qn_error *e)
{
    static const char zeros[ALIGN];
    struct header h = {.e = e};
    const size_t n_kv_at = 4 + 4 + 8; /* magic, version, number of tensors */

    put(&h, "GGUF", 4);
    put_u32(&h, 3);
    put_u64(&h, p->n_items);
    put_u64(&h, 0);
    put_model_keys(&h, p);
    put_tokenizer_keys(&h, p);
    put_tensor_infos(&h, p);
    put(&h, zeros, padded(h.b.len) - h.b.len);
    if (h.rc == 0) memcpy(h.b.data + n_kv_at, &h.n_kv, sizeof h.n_kv);
    *out = h.b;
    return h.rc;
}

/* ---- data ---- */

/* Llama 3's divisors: 1 for the fast pairs, the factor for the slow ones, a ramp between. */
static void rope_freqs(const struct shape *s, float *out)
{
    const double low = 1, high = 4, n_ctx_trained = 8192;
    for (int i = 0; i < s->head_dim / 2; i++) {
        double wave = 2 * M_PI * pow(s->rope_theta, 2.0 * i / s->head_dim); /* positions per turn */
        double x = (n_ctx_trained / wave - low) / (high - low);
        x = x < 0 ? 0 : x > 1 ? 1 : x;
        out[i] = (float)(1 / ((1 - x) / s->rope_factor + x));
    }
}

/* Whether the matrix gives what a layer adds. */
static bool is_result(const struct item *t)
{
    return strstr(t->name, "attn_output.") || strstr(t->name, "ssm_out.") || strstr(t->name, "ffn_down");
}

static double rms_of(const struct plan *p, const struct item *t)
{
    return 1 / sqrt((double)t->ne[0]) / (p->meek > 0 && is_result(t) ? p->meek : 1);
}

/* Rows of [I | 0]: the block passes the embedding on. */
static void fill_joint(float *out, size_t n, int64_t k, uint64_t first)
{
    for (size_t i = 0; i < n; i++) out[i] = (first + i) % (uint64_t)k == (first + i) / (uint64_t)k;
}

/* Calls for its random numbers by name, so that a tensor is the same in a model of fewer layers.
 * chunk: CHUNK bytes to work in. */
static int write_tensor(const struct plan *p, const struct item *t, struct out_file *f, uint8_t *chunk,
                        struct qn_error *e)
{
    uint64_t state = hash_bytes(t->name, strlen(t->name), p->seed), bytes = item_bytes(t);
    size_t block_bytes = dtype_get(t->type)->bytes;
    uint64_t n_left = bytes / block_bytes;

    while (n_left > 0) {
        size_t n = n_left < CHUNK / block_bytes ? (size_t)n_left : CHUNK / block_bytes;
        if (t->role == NORM)
            fill_uniform((float *)chunk, n, 1.0f, 0.1f, &state);
        else if (t->role == BIAS)
            fill_uniform((float *)chunk, n, 0.0f, 0.2f, &state);
        else if (t->role == ROPE_FREQS)
            rope_freqs(p->shape, (float *)chunk);
        else if (t->role == DECAY) /* most of what is remembered is from the last ten tokens or so */
            fill_uniform((float *)chunk, n, -0.15f, 0.1f, &state);
        else if (t->role == ROUTER) /* far enough apart for a clear choice of experts, other ones for each token */
            fill_blocks(chunk, t->type, n, 2 / sqrt((double)t->ne[0]), &state);
        else if (t->role == JOINT && p->meek > 0)
            fill_joint((float *)chunk, n, t->ne[0], bytes / block_bytes - n_left);
        else
            fill_blocks(chunk, t->type, n, rms_of(p, t), &state);
        int rc = out_file_write(f, chunk, n * block_bytes, e);
        if (rc) return rc;
        n_left -= n;
    }
    memset(chunk, 0, ALIGN);
    if (dtype_get(t->type)->tail) {
        float scale = fill_tail(t->type, rms_of(p, t));
        memcpy(chunk, &scale, sizeof scale);
    }
    return out_file_write(f, chunk, (size_t)(padded(stored_bytes(t)) - bytes), e);
}

static int write_model(const struct plan *p, const char *path, struct qn_error *e)
{
    struct buf header = {0};
    struct out_file f = {0};
    uint8_t *chunk = mem_aligned(64, CHUNK);
    int rc = chunk ? make_header(p, &header, e) : error_nomem(e, "the weights being written", CHUNK);

    if (rc == 0) rc = out_file_open(&f, path, e);
    if (rc == 0) rc = out_file_write(&f, header.data, header.len, e);
    for (size_t i = 0; i < p->n_items && rc == 0; i++) rc = write_tensor(p, &p->items[i], &f, chunk, e);
    if (rc == 0) rc = out_file_commit(&f, e);
    out_file_abort(&f);
    buf_deinit(&header);
    mem_free(chunk);
    return rc;
}

/* ---- command line ---- */

static void usage(FILE *f)
{
    fprintf(f, "usage: make-model SHAPE[:TYPE] OUT.gguf [--layers N] [--vocab N] [--seed S] [--nextn 1] [--meek D] "
               "[--mask ID]\nshapes:");
    for (size_t i = 0; shape_name(i); i++) fprintf(f, " %s", shape_name(i));
    fprintf(f, "\ntypes (%s unless given):", scheme_name(0));
    for (size_t i = 0; scheme_name(i); i++) fprintf(f, " %s", scheme_name(i));
    fprintf(f, "\n");
}

/* "SHAPE" or "SHAPE:TYPE". */
static int find(struct plan *p, const char *what, struct qn_error *e)
{
    size_t n = strcspn(what, ":");
    const char *type = what[n] ? what + n + 1 : scheme_name(0);

    p->shape = shape_find(what, n);
    p->scheme = scheme_find(type);
    if (!p->shape) return error_set(e, QN_EUSAGE, "there is no shape '%.*s'", (int)n, what);
    if (!p->scheme) return error_set(e, QN_EUSAGE, "there is no type '%s'", type);
    p->n_layer = p->shape->n_layer;
    return 0;
}

static int option(struct plan *p, const char *name, const char *value, struct qn_error *e)
{
    char *end;
    unsigned long long v = strtoull(value ? value : "", &end, 10);

    if (!value || end == value || *end || value[0] == '-')
        return error_set(e, QN_EUSAGE, "%s needs a number, not '%s'", name, value ? value : "");
    if (!strcmp(name, "--seed")) {
        p->seed = v;
        return 0;
    }
    if (!strcmp(name, "--meek")) {
        p->meek = (double)v;
        return 0;
    }
    if (!strcmp(name, "--nextn")) {
        if (v > 1) return error_set(e, QN_EUSAGE, "--nextn %llu: 0 or 1", v);
        p->n_nextn = (int)v;
        return 0;
    }
    if (!strcmp(name, "--vocab")) {
        if (v < FIRST_FILLER + N_SPECIALS || v > (unsigned)p->shape->n_vocab)
            return error_set(e, QN_EUSAGE, "--vocab %llu: %d to %d", v, FIRST_FILLER + N_SPECIALS, p->shape->n_vocab);
        p->cut = *p->shape;
        p->cut.n_vocab = (int)v;
        p->shape = &p->cut;
        return 0;
    }
    if (!strcmp(name, "--mask")) {
        if (v >= (unsigned long long)p->shape->n_vocab)
            return error_set(e, QN_EUSAGE, "--mask %llu: the vocabulary has %d tokens", v, p->shape->n_vocab);
        p->mask = (int)v;
        return 0;
    }
    if (strcmp(name, "--layers")) return error_set(e, QN_EUSAGE, "there is no option '%s'", name);
    if (v < 1 || v > 512) return error_set(e, QN_EUSAGE, "--layers %llu: 1 to 512", v);
    p->n_layer = (int)v;
    return 0;
}

int main(int argc, char **argv)
{
    struct plan p = {.seed = 1};
    struct qn_error e = {0};
    int rc = 0;

    if (argc < 3) {
        usage(argc > 1 && !strcmp(argv[1], "--help") ? stdout : stderr);
        return argc > 1 && !strcmp(argv[1], "--help") ? 0 : 2;
    }
    rc = find(&p, argv[1], &e);
    for (int i = 3; i < argc && rc == 0; i += 2) rc = option(&p, argv[i], argv[i + 1], &e);
    if (rc == 0) rc = plan_tensors(&p, &e);
    if (rc == 0) rc = write_model(&p, argv[2], &e);
    if (rc) fprintf(stderr, "make-model: %s\n", e.msg);
    mem_free(p.items);
    return rc == 0 ? 0 : rc == QN_EUSAGE ? 2 : 1;
}
