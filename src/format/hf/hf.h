/* SPDX-License-Identifier: MIT
 *
 * hf.h: shows a Hugging Face folder (config.json, tokenizer.json, *.safetensors) with the metadata and tensors of a
 * GGUF file.
 *
 * Other layers use weights.h. This is the part below it.
 */
#ifndef QUERN_FORMAT_HF_H
#define QUERN_FORMAT_HF_H

#include "base/os.h"
#include "format/gguf/gguf.h"
#include "format/file/meta_build.h"
#include "format/file/model_files.h"

struct hf_folder {
    struct mapping *shard; /* [n_shards], mapped: the data of all large tensors */
    size_t n_shards;
    struct meta_list meta;
    struct tensor *tensors; /* [n_tensors], by shard and place; data in the files or in `made` */
    size_t n_tensors;
    char (*names)[GGUF_NAME_BYTES]; /* [n_tensors] */
    uint8_t *made;                  /* owned: the small tensors that no file has in this form */
};

/* Reads and checks the whole folder, and adds its shards to `files`. Tensor data stays in the mapped files and is not
 * touched, except that small vectors are copied where GGUF has them in another form. QN_ENOINPUT: a file is missing;
 * QN_EDATA: malformed; QN_EUNSUP: a part that is not supported, by name; QN_ENOMEM. On failure *f does not change. */
int hf_folder_open(struct hf_folder *f, struct model_files *files, const char *dir, struct qn_error *e);
void hf_folder_close(struct hf_folder *f); /* a zeroed one is fine */

#endif
