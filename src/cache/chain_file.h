/* SPDX-License-Identifier: MIT
 *
 * chain_file.h: the format of a file that holds a run of KV pages of one sequence, with some of their window pages, the
 * state after it, or both.
 *
 * docs/SESSIONS.md has the layout. Paths and the tree are not known here. The bytes that are read are untrusted: every
 * number is checked against the file's size before it is used, and nothing is allocated.
 */
#ifndef QUERN_CACHE_CHAIN_FILE_H
#define QUERN_CACHE_CHAIN_FILE_H

#include "cache/prefix.h"

#define CHAIN_HEAD_BYTES  128
#define CHAIN_MAX_TOKENS  (1 << 24)
#define CHAIN_MODEL_BYTES 24
#define CHAIN_MAX_LAYERS  (1 << 16)

struct chain_head {
    struct prefix_key key;
    uint8_t model[CHAIN_MODEL_BYTES]; /* identifies the model, settings and arithmetic that the pages depend on */
    struct kv_shape shape;
    uint64_t page_bytes;
    uint32_t n_tokens;   /* of the sequence, from its start */
    uint32_t first_page; /* the file holds the sequence's pages from this one to its last, perhaps none */
    uint32_t n_windows;  /* window pages in the file, each of another one of its pages */
    bool has_state;      /* the state after the last token follows the pages */
};

/* Numbers that follow from a head. A file's parts are its pages, then its window pages, then its state. */
uint32_t chain_n_pages(const struct chain_head *h);     /* in the file */
uint32_t chain_n_parts(const struct chain_head *h);     /* at least 1 */
uint64_t chain_index_bytes(const struct chain_head *h); /* all of the index, which follows the head */
uint64_t chain_part_offset(const struct chain_head *h, uint32_t i);
uint64_t chain_part_bytes(const struct chain_head *h, uint32_t i);
uint64_t chain_file_bytes(const struct chain_head *h);

void chain_head_write(const struct chain_head *h, uint8_t out[CHAIN_HEAD_BYTES]);
/* QN_EDATA: not such a file, or damaged, or not file_bytes long. QN_EUNSUP: of another version. The shape is not
 * checked: compare it. */
int chain_head_read(struct chain_head *h, const uint8_t in[CHAIN_HEAD_BYTES], uint64_t file_bytes, struct qn_error *e);

/* The index, in a buffer of the caller's that is aligned to 8 bytes. The tokens come first. */
qn_token *chain_index_tokens(void *index);
uint32_t *chain_index_windows(const struct chain_head *h, void *index); /* [n_windows] numbers of their pages, rising */
uint64_t *chain_index_sums(const struct chain_head *h, void *index);    /* [chain_n_parts()] */
void chain_index_seal(const struct chain_head *h, void *index);         /* everything else must have been written */
int chain_index_check(const struct chain_head *h, void *index, struct qn_error *e); /* QN_EDATA */

uint64_t chain_part_sum(const void *part, uint64_t bytes);

#endif
