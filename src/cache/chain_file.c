/* SPDX-License-Identifier: MIT
 *
 * chain_file.c: encodes, decodes and checks the parts of a chain file.
 *
 * Numbers are little-endian, as the pages are. The head's fields are copied from and to their offsets; the index is
 * read in place. Every part has a checksum of its own (XXH3, 64 bits), with a seed for each kind of part, so that no
 * part is mistaken for another. Checksums detect accidents only. A person who can write the file can make them match,
 * and gets wrong numbers in their own conversation. Therefore sizes and counts are always compared with the file.
 */
#include "cache/chain_file.h"

#include <assert.h>
#include <string.h>

#include "base/hash.h"

_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "the numbers in the file are little-endian");

#define VERSION    4 /* of the format and of the layout of a page (kv.h, kernel.h) */
#define DATA_ALIGN 4096

static const char magic[8] = {'q', 'u', 'e', 'r', 'n', 'k', 'v', '\n'};
enum { SEED_HEAD = 1, SEED_INDEX = 2, SEED_PART = 3 };

/* The head's offsets. */
enum {
    AT_MAGIC = 0,
    AT_VERSION = 8,
    AT_N_LAYER_WIN = 12,
    AT_KEY = 16,
    AT_TYPE = 32,
    AT_N_LAYER = 36,
    AT_N_HEAD_KV = 40,
    AT_HEAD_DIM = 44,
    AT_PAGE_SLOTS = 48,
    AT_N_TOKENS = 52,
    AT_FIRST_PAGE = 56,
    AT_PARTS = 60, /* bit 0: has_state; the others: n_windows */
    AT_PAGE_BYTES = 64,
    AT_OWNER = 72,
    AT_STATE_BYTES = 80,
    AT_HEAD_DIM_V = 88,
    AT_WINDOW = 92,
    AT_MODEL = 96,
    AT_SUM = 120 /* of the bytes before it */
};

static void put_u32(uint8_t *head, int at, uint32_t v) { memcpy(head + at, &v, sizeof v); }
static void put_u64(uint8_t *head, int at, uint64_t v) { memcpy(head + at, &v, sizeof v); }

static uint32_t get_u32(const uint8_t *head, int at)
{
    uint32_t v;
    memcpy(&v, head + at, sizeof v);
    return v;
}

static uint64_t get_u64(const uint8_t *head, int at)
{
    uint64_t v;
    memcpy(&v, head + at, sizeof v);
    return v;
}

static uint32_t n_chain_pages(const struct chain_head *h)
{
    uint32_t slots = (uint32_t)h->shape.page_slots;
    return (h->n_tokens + slots - 1) / slots;
}

uint32_t chain_n_pages(const struct chain_head *h) { return n_chain_pages(h) - h->first_page; }

uint32_t chain_n_parts(const struct chain_head *h) { return chain_n_pages(h) + h->n_windows + h->has_state; }

/* All layers have equal parts of their pages. */
static uint64_t window_bytes(const struct chain_head *h)
{
    return h->page_bytes / (uint32_t)h->shape.n_layer * (uint32_t)h->shape.n_layer_win;
}

static uint64_t token_bytes(const struct chain_head *h)
{
    return ((uint64_t)h->n_tokens * sizeof(qn_token) + 7) & ~7ull;
}

static uint64_t numbers_bytes(const struct chain_head *h)
{
    return ((uint64_t)h->n_windows * sizeof(uint32_t) + 7) & ~7ull;
}

uint64_t chain_index_bytes(const struct chain_head *h)
{
    return token_bytes(h) + numbers_bytes(h) + ((uint64_t)chain_n_parts(h) + 1) * sizeof(uint64_t);
}

/* The state is the last part, so all parts before i are pages and window pages. */
uint64_t chain_part_offset(const struct chain_head *h, uint32_t i)
{
    uint64_t data = (CHAIN_HEAD_BYTES + chain_index_bytes(h) + DATA_ALIGN - 1) / DATA_ALIGN * DATA_ALIGN;
    uint32_t n_pages = chain_n_pages(h);
    return i <= n_pages ? data + i * h->page_bytes : data + n_pages * h->page_bytes + (i - n_pages) * window_bytes(h);
}

uint64_t chain_part_bytes(const struct chain_head *h, uint32_t i)
{
    if (i < chain_n_pages(h)) return h->page_bytes;
    return i < chain_n_pages(h) + h->n_windows ? window_bytes(h) : h->shape.state_bytes;
}

uint64_t chain_file_bytes(const struct chain_head *h)
{
    return chain_part_offset(h, chain_n_pages(h) + h->n_windows) + (h->has_state ? h->shape.state_bytes : 0);
}

void chain_head_write(const struct chain_head *h, uint8_t out[CHAIN_HEAD_BYTES])
{
    assert(h->n_tokens > 0 && h->n_tokens <= CHAIN_MAX_TOKENS && h->first_page <= n_chain_pages(h) &&
           chain_n_parts(h) > 0);
    memset(out, 0, CHAIN_HEAD_BYTES);
    memcpy(out + AT_MAGIC, magic, sizeof magic);
    put_u32(out, AT_VERSION, VERSION);
    memcpy(out + AT_KEY, h->key.word, sizeof h->key.word);
    put_u32(out, AT_TYPE, (uint32_t)h->shape.type);
    put_u32(out, AT_N_LAYER, (uint32_t)h->shape.n_layer);
    put_u32(out, AT_N_HEAD_KV, (uint32_t)h->shape.n_head_kv);
    put_u32(out, AT_HEAD_DIM, (uint32_t)h->shape.head_dim);
    put_u32(out, AT_PAGE_SLOTS, (uint32_t)h->shape.page_slots);
    put_u32(out, AT_N_TOKENS, h->n_tokens);
    put_u32(out, AT_FIRST_PAGE, h->first_page);
    put_u64(out, AT_PAGE_BYTES, h->page_bytes);
    put_u32(out, AT_PARTS, h->n_windows << 1 | h->has_state);
    put_u32(out, AT_N_LAYER_WIN, (uint32_t)h->shape.n_layer_win);
    put_u32(out, AT_WINDOW, (uint32_t)h->shape.window);
    put_u64(out, AT_OWNER, h->key.owner);
    put_u64(out, AT_STATE_BYTES, h->shape.state_bytes);
    put_u32(out, AT_HEAD_DIM_V, (uint32_t)h->shape.head_dim_v);
    memcpy(out + AT_MODEL, h->model, sizeof h->model);
    put_u64(out, AT_SUM, hash_bytes(out, AT_SUM, SEED_HEAD));
}

/* 1 if the file is as long as its head says. No product can overflow. */
static int size_fits(const struct chain_head *h, uint64_t file_bytes)
{
    uint64_t data = chain_part_offset(h, 0), state = h->has_state ? h->shape.state_bytes : 0;
    if (file_bytes < data || file_bytes - data < state || !h->page_bytes) return 0;
    uint64_t pages = file_bytes - data - state, each = window_bytes(h);
    if (h->n_windows && (!each || h->n_windows > pages / each)) return 0;
    pages -= h->n_windows * each;
    return pages % h->page_bytes == 0 && pages / h->page_bytes == chain_n_pages(h);
}

int chain_head_read(struct chain_head *h, const uint8_t in[CHAIN_HEAD_BYTES], uint64_t file_bytes, struct qn_error *e)
{
    if (memcmp(in, magic, sizeof magic)) return error_set(e, QN_EDATA, "not a stored conversation");
    if (get_u64(in, AT_SUM) != hash_bytes(in, AT_SUM, SEED_HEAD))
        return error_set(e, QN_EDATA, "the head's checksum differs");
    if (get_u32(in, AT_VERSION) != VERSION)
        return error_set(e, QN_EUNSUP, "version %u of the format, this is %d", get_u32(in, AT_VERSION), VERSION);
    uint32_t slots = get_u32(in, AT_PAGE_SLOTS), n_tokens = get_u32(in, AT_N_TOKENS),
             first = get_u32(in, AT_FIRST_PAGE), has_state = get_u32(in, AT_PARTS) & 1,
             n_windows = get_u32(in, AT_PARTS) >> 1, n_layer = get_u32(in, AT_N_LAYER),
             n_layer_win = get_u32(in, AT_N_LAYER_WIN), window = get_u32(in, AT_WINDOW);
    uint64_t state_bytes = get_u64(in, AT_STATE_BYTES);
    if (has_state > state_bytes)
        return error_set(e, QN_EDATA, "%u states of %llu bytes", has_state, (unsigned long long)state_bytes);
    if (n_layer == 0 || n_layer > CHAIN_MAX_LAYERS || n_layer_win > CHAIN_MAX_LAYERS || window > INT32_MAX ||
        !window != !n_layer_win)
        return error_set(e, QN_EDATA, "%u layers, and %u with a window of %u", n_layer, n_layer_win, window);
    if (slots == 0 || slots > CHAIN_MAX_TOKENS || n_tokens == 0 || n_tokens > CHAIN_MAX_TOKENS ||
        first > (n_tokens - 1) / slots + has_state)
        return error_set(e, QN_EDATA, "%u tokens from page %u on in pages of %u", n_tokens, first, slots);
    *h = (struct chain_head){
        .shape = {(enum kv_type)get_u32(in, AT_TYPE), (int)n_layer, (int)get_u32(in, AT_N_HEAD_KV),
                  (int)get_u32(in, AT_HEAD_DIM), (int)get_u32(in, AT_HEAD_DIM_V), (int)slots, state_bytes,
                  (int)n_layer_win, (int)window},
        .n_windows = n_windows,
        .page_bytes = get_u64(in, AT_PAGE_BYTES),
        .n_tokens = n_tokens,
        .first_page = first,
        .has_state = has_state,
    };
    memcpy(h->key.word, in + AT_KEY, sizeof h->key.word);
    h->key.owner = get_u64(in, AT_OWNER);
    memcpy(h->model, in + AT_MODEL, sizeof h->model);
    if (n_windows > chain_n_pages(h) || !size_fits(h, file_bytes))
        return error_set(e, QN_EDATA, "%llu bytes, not what %u pages of %llu, %u window pages and %u states take",
                         (unsigned long long)file_bytes, chain_n_pages(h), (unsigned long long)h->page_bytes, n_windows,
                         has_state);
    return 0;
}

qn_token *chain_index_tokens(void *index) { return index; }

uint64_t *chain_index_sums(const struct chain_head *h, void *index)
{
    return (uint64_t *)((uint8_t *)index + token_bytes(h) + numbers_bytes(h));
}

uint32_t *chain_index_windows(const struct chain_head *h, void *index)
{
    return (uint32_t *)((uint8_t *)index + token_bytes(h));
}

static uint64_t index_sum(const struct chain_head *h, const void *index)
{
    return hash_bytes(index, chain_index_bytes(h) - sizeof(uint64_t), SEED_INDEX);
}

void chain_index_seal(const struct chain_head *h, void *index)
{
    chain_index_sums(h, index)[chain_n_parts(h)] = index_sum(h, index);
}

int chain_index_check(const struct chain_head *h, void *index, struct qn_error *e)
{
    if (chain_index_sums(h, index)[chain_n_parts(h)] != index_sum(h, index))
        return error_set(e, QN_EDATA, "the token list's checksum differs");
    const uint32_t *pages = chain_index_windows(h, index);
    for (uint32_t i = 0, least = h->first_page; i < h->n_windows; least = pages[i++] + 1)
        if (pages[i] < least || pages[i] >= n_chain_pages(h))
            return error_set(e, QN_EDATA, "window page %u belongs to page %u, not in %u..%u", i, pages[i], least,
                             n_chain_pages(h) - 1);
    return 0;
}

uint64_t chain_part_sum(const void *part, uint64_t bytes) { return hash_bytes(part, bytes, SEED_PART); }
