/* SPDX-License-Identifier: MIT
 *
 * model_proof.c: hashes what a receipt says of a model. See model_proof.h.
 */
#include "receipt/model_proof.h"

#include <string.h>

#include "base/mem.h"
#include "engine/engine.h"
#include "format/file/model_files.h"

#define VOCABULARY "tokenizer."
#define TEMPLATE   "tokenizer.chat_template" /* also the beginning of the names of further templates */

static void add_number(struct sha256 *s, uint64_t x)
{
    uint8_t bytes[8];
    for (int i = 0; i < 8; i++) bytes[i] = (uint8_t)(x >> 8 * i);
    sha256_add(s, bytes, sizeof bytes);
}

static bool begins(struct str key, const char *with)
{
    size_t n = strlen(with);
    return key.n >= n && !memcmp(key.p, with, n);
}

static void hash_tokenizer(const struct weights *w, char hex[RECEIPT_HEX])
{
    uint8_t hash[SHA256_BYTES];
    struct sha256 s;
    sha256_init(&s);
    for (size_t i = 0; i < weights_n_meta(w); i++) {
        const struct meta *m = weights_meta_at(w, i);
        if (!begins(m->key, VOCABULARY) || begins(m->key, TEMPLATE)) continue;
        add_number(&s, m->key.n);
        sha256_add(&s, m->key.p, m->key.n);
        add_number(&s, (uint64_t)m->type);
        add_number(&s, (uint64_t)m->elem);
        add_number(&s, m->n);
        add_number(&s, m->bytes);
        sha256_add(&s, m->data, m->bytes);
    }
    sha256_end(&s, hash);
    sha256_hex(hash, hex);
}

static void hash_template(const struct weights *w, char hex[RECEIPT_HEX])
{
    const struct meta *m = weights_meta(w, TEMPLATE);
    uint8_t hash[SHA256_BYTES];
    uint64_t cursor = 0;
    struct sha256 s;
    struct str text;
    *hex = 0;
    if (!m || !meta_next_str(m, &cursor, &text)) return;
    sha256_init(&s);
    sha256_add(&s, text.p, text.n);
    sha256_end(&s, hash);
    sha256_hex(hash, hex);
}

void model_proof_texts(struct receipt_model *m, const qn_model *model)
{
    hash_tokenizer(model->model->weights, m->tokenizer);
    hash_template(model->model->weights, m->chat_template);
}

static int hash_file(char hex[RECEIPT_HEX], const struct model_file *f, const struct model_proof_places *p,
                     struct qn_error *e)
{
    uint8_t hash[SHA256_BYTES];
    struct file_mark mark;
    bool is_known = p->dir && file_hash_recall(hash, p->dir, &f->mark);
    for (int i = 0; i < 2 && !is_known; i++) is_known = p->other[i] && file_hash_recall(hash, p->other[i], &f->mark);
    if (!is_known) {
        int rc = file_hash_path(hash, &mark, f->path, false, NULL, NULL, e);
        if (rc) return rc;
        if (!file_mark_is_same(&mark, &f->mark)) return error_set(e, QN_EIO, "'%s' has changed", f->path);
        if (p->dir) file_hash_remember(p->dir, &mark, hash, NULL); /* or it is computed again */
    }
    sha256_hex(hash, hex);
    return 0;
}

int model_proof(struct receipt_model *m, const qn_model *model, const char *name, const char *pre,
                const struct model_proof_places *places, struct qn_error *e)
{
    const struct model_files *files = weights_files(model->model->weights);
    struct receipt_model made = {.n_files = files->n, .pre = pre};
    made.file = mem_calloc(files->n, sizeof *made.file);
    if (!made.file) return error_nomem(e, "the hashes of a model", files->n * sizeof *made.file);
    for (size_t i = 0; i < files->n; i++) {
        int rc = hash_file(made.file[i], &files->file[i], places, e);
        if (!rc) continue;
        mem_free(made.file);
        return rc;
    }
    error_clean(made.name, sizeof made.name, name);
    model_proof_texts(&made, model);
    *m = made;
    return 0;
}

int model_proof_compare(const struct receipt_model *said, const struct receipt_model *is, struct qn_error *e)
{
    const char *pre = said->pre ? said->pre : "", *own = is->pre ? is->pre : "";
    if (said->n_files != is->n_files)
        return error_set(e, QN_EDATA, "this is not the model of the receipt: it has %zu files, not %zu", is->n_files,
                         said->n_files);
    for (size_t i = 0; i < said->n_files; i++)
        if (strcmp(said->file[i], is->file[i]))
            return error_set(e, QN_EDATA,
                             "this is not the model of the receipt: the SHA-256 of file %zu is %.16s..., not %.16s...",
                             i + 1, is->file[i], said->file[i]);
    if (strcmp(pre, own))
        return error_set(e, QN_EDATA, "the receipt's pre-tokeniser is '%s', not '%s' (--pre)", pre, own);
    if (strcmp(said->tokenizer, is->tokenizer))
        return error_set(e, QN_EDATA, "the receipt's 'model.tokenizer' is not the hash of its model's vocabulary");
    if (strcmp(said->chat_template, is->chat_template))
        return error_set(e, QN_EDATA, "the receipt's 'model.template' is not the hash of its model's template");
    return 0;
}
