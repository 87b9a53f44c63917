/* SPDX-License-Identifier: MIT
 *
 * wedlm_file.h: what a model's file says about windows: the token of masks, and the parameters.
 *
 * The mask is the first of these that is there: the token of `tokenizer.ggml.mask_token_id`; a token of the vocabulary
 * with the text <|mask|>, [MASK], <mask> or |<MASK>|; 151665, if the folder has the model_type `wedlm`, because that is
 * the default of Tencent's engine. The parameters are `wedlm.window_size`, `wedlm.entropy_threshold` and
 * `wedlm.pos_penalty`, or the defaults of wedlm.h. Reading them changes nothing; any thread.
 */
#ifndef QUERN_DECODE_WEDLM_FILE_H
#define QUERN_DECODE_WEDLM_FILE_H

#include "decode/wedlm.h"
#include "model/model.h"

#define WEDLM_MASK 151665 /* of folders that do not name it */

struct wedlm_file {
    qn_token mask; /* -1: there is none */
    struct wedlm_params params;
};

/* QN_EDATA names the key and the value: of a wrong type, outside of the vocabulary or of what makes sense. */
int wedlm_file_read(struct wedlm_file *out, const struct model *m, struct qn_error *e);

#endif
