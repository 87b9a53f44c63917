/* SPDX-License-Identifier: MIT
 *
 * make-model.c: writes a GGUF model of random weights in the shape of a real one.
 *
 *     make-model SHAPE[:TYPE] OUT.gguf [--layers N] [--seed S]
 *
 * Speed does not depend on what the weights are, only on their types and shapes: such a file serves for timings
 * and for tests of equality, needs no download and has no licence. It loads wherever the real model does. The
 * weights of a matrix with rows of k elements have a deviation of 1/sqrt(k), the norms are about 1: so activations
 * keep their size from layer to layer. The same arguments always give the same bytes.
 *
 * The tokenizer is a byte-level BPE of the right size: 256 bytes, then words of made-up syllables with a merge rule
 * each, then three special tokens and a ChatML template.
 *
 * Sources: the GGUF format (docs/FORMATS.md); the shapes are the published configurations; the mixtures of types
 * are those of llama.cpp's quantiser. Does not write mixtures of experts or vision towers.
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
#include "tensor/dtype.h"

enum { ALIGN = 32, CHUNK = 4 << 20 }; /* bytes: alignment of a tensor in the file; how much is made at a time */

/* ---- what can be made ---- */

struct shape {
    const char *name, *arch, *pre; /* pre: which pre-tokenizer */
    int n_layer, d_model, n_head, n_head_kv, head_dim, d_ff, n_vocab, n_ctx;
    float rope_theta, eps;
    float rope_factor; /* Llama 3 scaling, in a tensor of frequency divisors; 0: none */
    bool tied;         /* the embedding serves as the output matrix */
};

/* clang-format off */
static const struct shape shapes[] = {
    /* name          arch     pre         layer d_model  heads  dim   d_ff  n_vocab   n_ctx  theta   eps  factor tied */
    {"qwen3-8b",     "qwen3", "qwen2",     36,  4096,  32,  8, 128, 12288, 151936,  40960,  1e6f, 1e-6f,  0, false},
    {"qwen3-4b",     "qwen3", "qwen2",     36,  2560,  32,  8, 128,  9728, 151936,  40960,  1e6f, 1e-6f,  0, true},
    {"qwen3-1.7b",   "qwen3", "qwen2",     28,  2048,  16,  8, 128,  6144, 151936,  40960,  1e6f, 1e-6f,  0, true},
    {"qwen3-0.6b",   "qwen3", "qwen2",     28,  1024,  16,  8, 128,  3072, 151936,  40960,  1e6f, 1e-6f,  0, true},
    {"qwen2-0.5b",   "qwen2", "qwen2",     24,   896,  14,  2,  64,  4864, 151936,  32768,  1e6f, 1e-6f,  0, true},
    {"llama-3.1-8b", "llama", "llama-bpe", 32,  4096,  32,  8, 128, 14336, 128256, 131072,  5e5f, 1e-5f,  8, false},
    {"llama-3.2-1b", "llama", "llama-bpe", 16,  2048,  32,  8,  64,  8192, 128256, 131072,  5e5f, 1e-5f, 32, true},
    {"smollm2-135m", "llama", "smollm",    30,   576,   9,  3,  64,  1536,  49152,   8192,  1e5f, 1e-5f,  0, true},
    {"llama-tiny",   "llama", "llama-bpe",  2,   256,   4,  2,  64,   512,    512,   2048,  1e4f, 1e-5f,  0, false},
    {"qwen2-tiny",   "qwen2", "qwen2",      2,   256,   4,  2,  64,   512,    512,   2048,  1e6f, 1e-6f,  0, true},
    {"qwen3-tiny",   "qwen3", "qwen2",      2,   256,   4,  2, 128,   512,    512,   2048,  1e6f, 1e-6f,  0, true},
    {"gemma-tiny",   "gemma", "default",    2,   256,   4,  1,  96,   512,    512,   2048,  1e4f, 1e-5f,  0, true},
    {"gemma2-tiny",  "gemma2", "default",   3,   256,   4,  2,  96,   512,    512,   2048,  1e4f, 1e-5f,  0, true},
    {"phi3-tiny",    "phi3",  "default",    2,   256,   4,  2,  64,   512,    512,   2048,  1e4f, 1e-5f,  0, false},
    {"granite-tiny", "granite", "refact",   2,   256,   4,  2,  64,   512,    512,   2048,  1e4f, 1e-5f,  0, true},
    {"olmo2-tiny",   "olmo2", "dbrx",       2,   256,   4,  4,  64,   512,    512,   2048,  5e5f, 1e-6f,  0, false},
    {"olmo3-tiny",   "olmo2", "dbrx",       5,   256,   4,  2,  64,   512,    512,   2048,  5e5f, 1e-6f,  0, false},
    {"bitnet-tiny",  "bitnet-b1.58", "llama-bpe", 2, 256, 4, 2, 64,   512,    512,   2048,  5e5f, 1e-5f,  0, true},
    /* small, but with the head counts, head sizes and inner sizes of models that are not; 13696, 1000, 1504, 864, 896
     * and 560 are no whole numbers of 256s, so that K types fall back to others there */
    {"odd-1",        "llama", "llama-bpe",  1,   256,   8,  1, 256,  6912,    512,   2048,  1e4f, 1e-5f,  0, true},
    {"odd-2",        "qwen2", "qwen2",      1,   256,  14,  2,  64, 11008,    512,   2048,  1e6f, 1e-6f,  0, true},
    {"odd-3",        "llama", "llama-bpe",  1,   256,   9,  3,  96, 13696,    512,   2048,  1e4f, 1e-5f,  0, true},
    {"odd-4",        "qwen3", "qwen2",      1,   256,  16,  4,  80, 17408,    512,   2048,  1e6f, 1e-6f,  0, true},
    {"odd-5",        "llama", "llama-bpe",  2,   288,   5,  5, 128,  1000,    512,   2048,  1e4f, 1e-5f,  0, true},
    {"odd-6",        "qwen3", "qwen2",      2,   256,  24,  6,  64,   768,    512,   2048,  1e6f, 1e-6f,  0, true},
    {"odd-7",        "llama", "llama-bpe",  2,   256,   7,  7,  80,  1504,    512,   2048,  1e4f, 1e-5f,  0, true},
    {"odd-8",        "qwen2", "qwen2",      2,   256,  32,  8,  96,  2816,    512,   2048,  1e6f, 1e-6f,  0, true},
};
/* clang-format on */

/* What a layer has more than llama's, or less. */
enum part {
    QKV_BIAS = 1,
    HEAD_NORMS = 2, /* of q and k */
    ROW_NORMS = 4,  /* of q and k, all heads in one */
    NO_PRE_NORMS = 8,
    POST_NORMS = 16,
    SUB_NORMS = 32,
    FUSED = 64, /* q, k and v in one; gate and up in one */
};

static const struct { const char *arch; unsigned parts; } families[] = {
    {"qwen2", QKV_BIAS},
    {"qwen3", HEAD_NORMS},
    {"gemma2", POST_NORMS},
    {"phi3", FUSED},
    {"olmo2", NO_PRE_NORMS | ROW_NORMS | POST_NORMS},
    {"bitnet-b1.58", SUB_NORMS},
};

/* Keys that a shape has beside those of all: a whole number where `whole`. */
static const struct { const char *shape, *key; bool whole; float v; } numbers[] = {
    {"gemma2-tiny", ".attention.sliding_window", true, 24},
    {"gemma2-tiny", ".attn_logit_softcapping", false, 5},
    {"gemma2-tiny", ".final_logit_softcapping", false, 6},
    {"granite-tiny", ".embedding_scale", false, 6},
    {"granite-tiny", ".residual_scale", false, 0.22f},
    {"granite-tiny", ".attention.scale", false, 0.25f},
    {"granite-tiny", ".logit_scale", false, 0.25f}, /* real ones are 4 and more: here the logits stay of some size */
    {"olmo3-tiny", ".attention.sliding_window", true, 24},
    {"olmo3-tiny", ".rope.scaling.factor", false, 8},
};

enum mix { PURE, S, M }; /* every matrix of one type; or some of them better, few (S) or more (M) */

struct scheme {
    const char *name;
    int file_type;   /* general.file_type, for display */
    enum dtype type; /* of most matrices */
    enum mix mix;
};

static const struct scheme schemes[] = {
    {"q4_k_m", 15, DT_Q4_K, M},      {"q4_k_s", 14, DT_Q4_K, S},      {"q5_k_m", 17, DT_Q5_K, M},
    {"f32", 0, DT_F32, PURE},        {"f16", 1, DT_F16, PURE},        {"bf16", 32, DT_BF16, PURE},
    {"q4_0", 2, DT_Q4_0, PURE},      {"q4_1", 3, DT_Q4_1, PURE},      {"q5_0", 8, DT_Q5_0, PURE},
    {"q5_1", 9, DT_Q5_1, PURE},      {"q8_0", 7, DT_Q8_0, PURE},      {"q1_0", 40, DT_Q1_0, PURE},
    {"q2_0", 41, DT_Q2_0, PURE},     {"q2_k", 10, DT_Q2_K, PURE},     {"q3_k", 12, DT_Q3_K, PURE},
    {"q4_k", 14, DT_Q4_K, PURE},     {"q5_k", 16, DT_Q5_K, PURE},     {"q6_k", 18, DT_Q6_K, PURE},
    {"iq1_s", 24, DT_IQ1_S, PURE},   {"iq1_m", 31, DT_IQ1_M, PURE},   {"iq2_xxs", 19, DT_IQ2_XXS, PURE},
    {"iq2_xs", 20, DT_IQ2_XS, PURE}, {"iq2_s", 28, DT_IQ2_S, PURE},   {"iq3_xxs", 23, DT_IQ3_XXS, PURE},
    {"iq3_s", 26, DT_IQ3_S, PURE},   {"iq4_nl", 25, DT_IQ4_NL, PURE}, {"iq4_xs", 30, DT_IQ4_XS, PURE},
    {"i2_s", 40, DT_I2_S, PURE},
    {"tq1_0", 36, DT_TQ1_0, PURE},   {"tq2_0", 37, DT_TQ2_0, PURE},   {"mxfp4", 38, DT_MXFP4, PURE},
    {"nvfp4", 39, DT_NVFP4, PURE},
};

#define N_OF(a) (sizeof(a) / sizeof *(a))

/* ---- tensors ---- */

enum role { EMBED, OUTPUT, ATTN_V, FFN_DOWN, MATRIX, NORM, BIAS, ROPE_FREQS };

struct item {
    char name[64];
    enum role role;
    enum dtype type;
    int64_t ne[2]; /* row length, rows; 1-D when rows is 0 */
};

struct plan {
    const struct shape *shape;
    const struct scheme *scheme;
    int n_layer;
    uint64_t seed;
    struct item *items;
    size_t n_items;
};

/* What a quantiser falls back to when a row is not a whole number of the wanted blocks. */
static enum dtype fitting(enum dtype t, int64_t k)
{
    if (k % dtype_get(t)->block == 0) return t;
    if (k % 32 != 0) return DT_F16;
    switch (t) {
    case DT_Q4_K:
        return DT_Q5_0;
    case DT_Q5_K:
        return DT_Q5_1;
    case DT_Q6_K:
        return DT_Q8_0;
    case DT_Q2_K:
    case DT_Q3_K:
    case DT_TQ1_0:
    case DT_TQ2_0:
    case DT_Q1_0:
    case DT_Q2_0:
        return DT_Q4_0;
    default:
        return DT_IQ4_NL;
    }
}

/* The type of a matrix. `layer` is its own; the first and last eighth of the layers and every third one between
 * have the weights that matter most in more bits. */
static enum dtype choose(const struct plan *p, enum role role, int layer, int64_t k)
{
    int n = p->n_layer;
    enum dtype t = p->scheme->type;
    if (t == DT_I2_S && role <= OUTPUT) t = DT_F16; /* only a layer's matrices may have it */
    bool more = layer < n / 8 || layer >= 7 * n / 8 || (layer - n / 8) % 3 == 2;

    if (role >= NORM) return DT_F32;
    if (p->scheme->mix != PURE) {
        if (role == OUTPUT || (role == EMBED && p->shape->tied)) t = DT_Q6_K;
        if (role == ATTN_V || role == FFN_DOWN) {
            if (p->scheme->mix == M && more) t = DT_Q6_K;
            if (p->scheme->mix == S && layer < (role == ATTN_V ? 4 : n / 8)) t = DT_Q5_K;
        }
    }
    return fitting(t, k);
}

/* layer -1: a tensor of the whole model. */
static void add(struct plan *p, int layer, const char *name, enum role role, int64_t k, int64_t rows)
{
    struct item *t = &p->items[p->n_items++];
    t->role = role;
    t->type = choose(p, role, layer, k);
    t->ne[0] = k;
    t->ne[1] = rows;
    if (layer < 0)
        snprintf(t->name, sizeof t->name, "%s", name);
    else
        snprintf(t->name, sizeof t->name, "blk.%d.%s", layer, name);
}

static unsigned parts_of(const char *arch)
{
    for (size_t i = 0; i < N_OF(families); i++)
        if (!strcmp(families[i].arch, arch)) return families[i].parts;
    return 0;
}

static void add_layer(struct plan *p, int i)
{
    const struct shape *s = p->shape;
    int64_t q = (int64_t)s->n_head * s->head_dim, kv = (int64_t)s->n_head_kv * s->head_dim;
    unsigned parts = parts_of(s->arch);

    if (!(parts & NO_PRE_NORMS)) add(p, i, "attn_norm.weight", NORM, s->d_model, 0);
    if (parts & FUSED) {
        add(p, i, "attn_qkv.weight", MATRIX, s->d_model, q + 2 * kv);
    } else {
        add(p, i, "attn_q.weight", MATRIX, s->d_model, q);
        add(p, i, "attn_k.weight", MATRIX, s->d_model, kv);
        add(p, i, "attn_v.weight", ATTN_V, s->d_model, kv);
    }
    if (parts & QKV_BIAS) {
        add(p, i, "attn_q.bias", BIAS, q, 0);
        add(p, i, "attn_k.bias", BIAS, kv, 0);
        add(p, i, "attn_v.bias", BIAS, kv, 0);
    }
    if (parts & (HEAD_NORMS | ROW_NORMS)) {
        add(p, i, "attn_q_norm.weight", NORM, parts & ROW_NORMS ? q : s->head_dim, 0);
        add(p, i, "attn_k_norm.weight", NORM, parts & ROW_NORMS ? kv : s->head_dim, 0);
    }
    if (parts & SUB_NORMS) add(p, i, "attn_sub_norm.weight", NORM, q, 0);
    add(p, i, "attn_output.weight", MATRIX, q, s->d_model);
    if (parts & POST_NORMS) add(p, i, "post_attention_norm.weight", NORM, s->d_model, 0);
    if (parts & POST_NORMS) add(p, i, "post_ffw_norm.weight", NORM, s->d_model, 0);
    if (!(parts & NO_PRE_NORMS)) add(p, i, "ffn_norm.weight", NORM, s->d_model, 0);
    if (!(parts & FUSED)) add(p, i, "ffn_gate.weight", MATRIX, s->d_model, s->d_ff);
    add(p, i, "ffn_up.weight", MATRIX, s->d_model, parts & FUSED ? 2 * s->d_ff : s->d_ff);
    if (parts & SUB_NORMS) add(p, i, "ffn_sub_norm.weight", NORM, s->d_ff, 0);
    add(p, i, "ffn_down.weight", FFN_DOWN, s->d_ff, s->d_model);
}

static int plan_tensors(struct plan *p, struct qn_error *e)
{
    const struct shape *s = p->shape;
    size_t most = 4 + 16 * (size_t)p->n_layer; /* four of the whole model, at most sixteen in a layer */

    p->items = mem_calloc(most, sizeof *p->items);
    if (!p->items) return error_nomem(e, "the list of tensors", most * sizeof *p->items);
    add(p, -1, "token_embd.weight", EMBED, s->d_model, s->n_vocab);
    if (s->rope_factor > 0) add(p, -1, "rope_freqs.weight", ROPE_FREQS, s->head_dim / 2, 0);
    for (int i = 0; i < p->n_layer; i++)
        add_layer(p, i);
    add(p, -1, "output_norm.weight", NORM, s->d_model, 0);
    if (!s->tied) add(p, -1, "output.weight", OUTPUT, s->d_model, s->n_vocab);
    return 0;
}

static uint64_t item_rows(const struct item *t) { return t->ne[1] ? (uint64_t)t->ne[1] : 1; }
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
    snprintf(full, sizeof full, "%s%s", key[0] == '.' ? p->shape->arch : "", key);
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

static void put_model_keys(struct header *h, const struct plan *p)
{
    const struct shape *s = p->shape;
    char name[64];

    snprintf(name, sizeof name, "random %s %s, seed %" PRIu64, s->name, p->scheme->name, p->seed);
    kv_string(h, p, "general.architecture", s->arch);
    kv_string(h, p, "general.type", "model");
    kv_string(h, p, "general.name", name);
    kv_u32(h, p, "general.file_type", p->scheme->file_type);
    kv_u32(h, p, "general.quantization_version", 2);
    kv_u32(h, p, "general.alignment", ALIGN);
    kv_u32(h, p, ".vocab_size", s->n_vocab);
    kv_u32(h, p, ".context_length", s->n_ctx);
    kv_u32(h, p, ".embedding_length", s->d_model);
    kv_u32(h, p, ".block_count", p->n_layer);
    kv_u32(h, p, ".feed_forward_length", s->d_ff);
    kv_u32(h, p, ".attention.head_count", s->n_head);
    kv_u32(h, p, ".attention.head_count_kv", s->n_head_kv);
    kv_u32(h, p, ".attention.key_length", s->head_dim);
    kv_u32(h, p, ".attention.value_length", s->head_dim);
    kv_f32(h, p, ".attention.layer_norm_rms_epsilon", s->eps);
    kv_u32(h, p, ".rope.dimension_count", s->head_dim);
    kv_f32(h, p, ".rope.freq_base", s->rope_theta);
    for (size_t i = 0; i < N_OF(numbers); i++) {
        if (strcmp(numbers[i].shape, s->name)) continue;
        if (numbers[i].whole)
            kv_u32(h, p, numbers[i].key, (int)numbers[i].v);
        else
            kv_f32(h, p, numbers[i].key, numbers[i].v);
    }
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
    for (int i = 0; i < n; i++)
        put_u32(h, i < n - N_SPECIALS ? 1 : 3); /* normal, control */
    kv_array(h, p, "tokenizer.ggml.merges", KV_STRING, n_fillers);
    for (int f = 0; f < n_fillers; f++) {
        merge_text(f, text);
        put_string(h, text);
    }
    kv_u32(h, p, "tokenizer.ggml.bos_token_id", n - 3);
    kv_u32(h, p, "tokenizer.ggml.eos_token_id", n - 1);
    kv_u32(h, p, "tokenizer.ggml.padding_token_id", n - 3);
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
        put_u32(h, t->ne[1] ? 2 : 1);
        put_u64(h, (uint64_t)t->ne[0]);
        if (t->ne[1]) put_u64(h, (uint64_t)t->ne[1]);
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
        else
            fill_blocks(chunk, t->type, n, 1 / sqrt((double)t->ne[0]), &state);
        int rc = out_file_write(f, chunk, n * block_bytes, e);
        if (rc) return rc;
        n_left -= n;
    }
    memset(chunk, 0, ALIGN);
    if (dtype_get(t->type)->tail) {
        float scale = fill_tail(t->type, 1 / sqrt((double)t->ne[0]));
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
    for (size_t i = 0; i < p->n_items && rc == 0; i++)
        rc = write_tensor(p, &p->items[i], &f, chunk, e);
    if (rc == 0) rc = out_file_commit(&f, e);
    out_file_abort(&f);
    buf_deinit(&header);
    mem_free(chunk);
    return rc;
}

/* ---- command line ---- */

static void usage(FILE *f)
{
    fprintf(f, "usage: make-model SHAPE[:TYPE] OUT.gguf [--layers N] [--seed S]\nshapes:");
    for (size_t i = 0; i < N_OF(shapes); i++)
        fprintf(f, " %s", shapes[i].name);
    fprintf(f, "\ntypes (%s unless given):", schemes[0].name);
    for (size_t i = 0; i < N_OF(schemes); i++)
        fprintf(f, " %s", schemes[i].name);
    fprintf(f, "\n");
}

/* "SHAPE" or "SHAPE:TYPE". */
static int find(struct plan *p, const char *what, struct qn_error *e)
{
    size_t n = strcspn(what, ":");
    const char *type = what[n] ? what + n + 1 : schemes[0].name;

    for (size_t i = 0; i < N_OF(shapes); i++)
        if (strlen(shapes[i].name) == n && !strncmp(shapes[i].name, what, n)) p->shape = &shapes[i];
    for (size_t i = 0; i < N_OF(schemes); i++)
        if (!strcmp(schemes[i].name, type)) p->scheme = &schemes[i];
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
    for (int i = 3; i < argc && rc == 0; i += 2)
        rc = option(&p, argv[i], argv[i + 1], &e);
    if (rc == 0) rc = plan_tensors(&p, &e);
    if (rc == 0) rc = write_model(&p, argv[2], &e);
    if (rc) fprintf(stderr, "make-model: %s\n", e.msg);
    mem_free(p.items);
    return rc == 0 ? 0 : rc == QN_EUSAGE ? 2 : 1;
}
