/* SPDX-License-Identifier: MIT
 *
 * run_receipt.c: see run_receipt.h.
 */
#include "cli/direct/run_receipt.h"

#include "base/mem.h"
#include "cli/core/cli.h"
#include "cli/place/catalog.h"
#include "cli/place/hashes.h"
#include "engine/core/text.h"
#include "model/arithmetic.h"
#include "receipt/model_proof.h"

static int prove(struct receipt_model *m, const struct run_answer *a, struct qn_error *e)
{
    char *dir = hashes_dir(), *name = catalog_name(a->path);
    const struct model_proof_places places = {.dir = dir};
    int rc = model_proof(m, a->model, name ? name : a->path, a->pre, &places, e);
    mem_free(name);
    mem_free(dir);
    return rc;
}

/* The tokens after the prompt, and why there are no more. */
static void describe_answer(struct receipt_answer *out, const struct run_answer *a, const qn_token *all, size_t n)
{
    *out = (struct receipt_answer){all + a->n_prompt, n - a->n_prompt, RECEIPT_LENGTH, -1};
    if (a->text->stop.hit >= 0) {
        out->end = RECEIPT_TEXT;
        out->stop_index = a->text->stop.hit;
    } else if (out->n && qn_model_is_eog(a->model, all[n - 1])) {
        out->end = RECEIPT_TOKEN;
    }
}

static int write_receipt(const struct receipt_options *o, const struct receipt *r)
{
    struct buf text = {0}, prompt = {0};
    struct qn_error e;
    int rc = receipt_write(&text, r, &e);
    if (!rc) rc = buf_str(&text, "\n", &e);
    if (!rc && r->is_private) rc = receipt_write_prompt(&prompt, r, &e);
    if (!rc && r->is_private) rc = buf_str(&prompt, "\n", &e);
    int status = rc ? cli_fail(&e) : receipt_file_write(o, &text, &prompt);
    buf_deinit(&text);
    buf_deinit(&prompt);
    return status;
}

int run_receipt_write(const struct receipt_options *o, const struct run_answer *a)
{
    char salt[RECEIPT_SALT + 1];
    const qn_token *all;
    size_t n = qn_session_tokens(a->session, &all);
    int n_ctx = qn_engine_n_ctx(a->engine);
    struct receipt_answer answer;
    struct qn_error e;
    if (!o->path) return 0;
    describe_answer(&answer, a, all, n);
    struct receipt r = {.arithmetic = MODEL_ARITHMETIC,
                        .n_ctx = n_ctx,
                        .kv = a->kv,
                        .is_private = o->is_private,
                        .prompt = all,
                        .n_prompt = a->n_prompt,
                        .sampling = a->sampling,
                        .max_tokens = receipt_max_tokens(a->max_tokens, n_ctx, a->n_prompt),
                        .stop = a->stop,
                        .n_stop = a->n_stop,
                        .continues = a->continues,
                        .answers = &answer,
                        .n_answers = 1};
    receipt_make_salt(salt);
    if (o->is_private) r.salt = salt;
    if (prove(&r.model, a, &e)) return cli_fail(&e);
    int status = write_receipt(o, &r);
    mem_free(r.model.file);
    return status;
}
