/* SPDX-License-Identifier: MIT
 *
 * hf_shards.h: the safetensors files of a folder, and the list of all their tensors.
 */
#ifndef QUERN_FORMAT_HF_SHARDS_H
#define QUERN_FORMAT_HF_SHARDS_H

#include "base/os.h"
#include "format/file/model_files.h"
#include "format/hf/safetensors.h"

#define HF_MAX_SHARDS  1000
#define HF_MAX_TENSORS ((size_t)1 << 18)

struct hf_shards {
    struct model_files *files; /* borrowed, while they are opened */
    struct mapping *map;       /* [n] */
    struct safetensors *head;  /* [n], of each */
    size_t n;
    const struct st_tensor **tensor; /* [n_tensors], of all shards, by shard and place */
    size_t n_tensors;
};

/* Maps and reads model.safetensors; or, where it does not exist, the shards that model.safetensors.index.json names.
 * Each tensor of the index must be in the shard that the index says, and in no other. Tensors that the index does not
 * name are left out. Adds the files to `files` (may be NULL). QN_ENOINPUT: a file is missing; QN_EDATA: malformed;
 * QN_ENOMEM. On failure *s does not change. */
int hf_shards_open(struct hf_shards *s, struct model_files *files, const char *dir, struct qn_error *e);
void hf_shards_close(struct hf_shards *s); /* a zeroed one is fine */

#endif
