/* SPDX-License-Identifier: MIT
 *
 * api.c: the functions of quern.h that only call other layers: model, tokens, build.
 */
#include <string.h>

#include "base/rng.h"
#include "engine/engine.h"
#include "format/file/model_files.h"
#include "grammar/calls/calls.h"
#include "model/arithmetic.h"
#include "text/token/fim.h"
#include "text/token/rank_prompt.h"
#include "version.h"
#include "kernel/cpu.h"

void qn_model_params_init(struct qn_model_params *p)
{
    if (p) *p = (struct qn_model_params){.size = sizeof *p};
}

static void free_model(struct qn_model *m)
{
    shelf_deinit(&m->grammars);
    model_free(m->model);
    mem_free(m->name);
    mem_free(m);
}

const struct qn_model *model_hold(const struct qn_model *m)
{
    hold_get(&((struct qn_model *)m)->hold); /* the count is the only part of a model that changes */
    return m;
}

void model_let_go(const struct qn_model *m)
{
    if (m && hold_put(&((struct qn_model *)m)->hold)) free_model((struct qn_model *)m);
}

/* Sets the model's name: the one that the file gives it, or else the name of the file. */
static int make_name(struct qn_model *m, struct qn_error *e)
{
    const struct weights *w = m->model->weights;
    struct str name = {0};
    if (meta_str(w, "general.name", &name, NULL) != 1 || !name.n) {
        const char *path = weights_path(w), *slash = strrchr(path, '/');
        name.p = slash && slash[1] ? slash + 1 : path;
        name.n = strlen(name.p);
    }
    m->name = mem_dup(name.p, name.n);
    return m->name ? 0 : error_nomem(e, "a model's name", name.n);
}

int qn_model_open(qn_model **out, const char *path, struct qn_error *e)
{
    return qn_model_open_with(out, path, NULL, e);
}

int qn_model_open_with(qn_model **out, const char *path, const struct qn_model_params *p, struct qn_error *e)
{
    int rc;
    if (!out || !path) return usage_null(e, __func__);
    if (p && (rc = usage_size(e, "model", p->size, sizeof *p))) return rc;
    struct qn_model *m = mem_calloc(1, sizeof *m);
    if (!m) return error_nomem(e, "a model", sizeof *m);
    hold_init(&m->hold);
    shelf_init(&m->grammars);
    rc = model_load_with(&m->model, path, p ? p->pre : NULL, e);
    if (!rc) rc = make_name(m, e);
    if (rc) {
        free_model(m);
        return rc;
    }
    *out = m;
    return 0;
}

uint64_t qn_model_mark(const qn_model *m)
{
    return !m ? 0 : model_files_mark(weights_files(m->model->weights), MODEL_ARITHMETIC);
}

void qn_model_close(qn_model *m)
{
    if (m && hold_give_up(&m->hold, __func__)) free_model(m);
}

/* ---- grammars ---- */

void qn_grammar_params_init(struct qn_grammar_params *p)
{
    if (p) *p = (struct qn_grammar_params){.size = sizeof *p};
}

/* The part of a model that changes. */
static struct grammar_shelf *shelf_of(const qn_model *m) { return (struct grammar_shelf *)&m->grammars; }

void model_pay_grammars(const struct qn_model *m, struct ledger *l) { shelf_pay_from(shelf_of(m), l); }

size_t model_grammar_bytes(const struct qn_model *m) { return shelf_bytes(&m->grammars); }

static int get(struct shelved **out, const qn_model *m, const struct qn_grammar_params *p, struct qn_error *e)
{
    struct grammar_shelf *shelf = shelf_of(m);
    struct qn_grammar_params calls = *p;
    struct guide_start start;
    struct buf text = {0};
    if (p->kind != QN_GRAMMAR_TOOL_CALLS) return shelf_get(out, shelf, m->model->vocab, p, e);
    if (!p->prompt) return error_set(e, QN_EUSAGE, "grammar: tool calls need a prompt");
    prompt_guide_start(p->prompt, &start);
    const struct qn_grammar_params *form = p->form ? &p->form->shelved->p : NULL;
    int rc = calls_describe(&text, p, prompt_tools(p->prompt), start.form, start.begins, form, e);
    calls.text = (char *)text.data;
    calls.n = text.len;
    calls.spaces = !form;
    calls.any_order = form && form->any_order;
    if (!rc) rc = shelf_get(out, shelf, m->model->vocab, &calls, e);
    buf_deinit(&text);
    return rc;
}

int qn_grammar_new(qn_grammar **out, const qn_model *m, const struct qn_grammar_params *p, struct qn_error *e)
{
    int rc;
    if (!out || !m || !p) return usage_null(e, __func__);
    if ((rc = usage_size(e, "grammar", p->size, sizeof *p)) ||
        (rc = usage_array(e, "grammar", "text", p->text, p->n)) ||
        (rc = usage_array(e, "grammar", "names", p->names, p->n_names)))
        return rc;
    struct qn_grammar *g = mem_calloc(1, sizeof *g);
    if (!g) return error_nomem(e, "a grammar", sizeof *g);
    rc = get(&g->shelved, m, p, e);
    if (rc) {
        mem_free(g);
        return rc;
    }
    g->model = model_hold(m);
    *out = g;
    return 0;
}

void qn_grammar_free(qn_grammar *g)
{
    if (!g) return;
    shelf_put(g->shelved);
    model_let_go(g->model);
    mem_free(g);
}

/* ---- what a model is ---- */

int32_t qn_model_n_vocab(const qn_model *m) { return m ? m->model->hp.n_vocab : 0; }

enum qn_pooling qn_model_pooling(const qn_model *m)
{
    switch (m ? m->model->hp.pooling : POOL_UNSAID) {
    case POOL_MEAN: return QN_POOL_MEAN;
    case POOL_LAST: return QN_POOL_LAST;
    case POOL_RANK: return QN_POOL_RANK;
    case POOL_UNSAID: break;
    }
    return QN_POOL_NONE;
}

int32_t qn_model_n_embd(const qn_model *m) { return m ? m->model->hp.n_embd : 0; }
int32_t qn_model_n_ctx_train(const qn_model *m) { return m ? m->model->hp.n_ctx_train : 0; }
bool qn_model_is_eog(const qn_model *m, qn_token t) { return m && vocab_is_eog(m->model->vocab, t); }

int qn_tokenize(const qn_model *m, const char *text, size_t n, unsigned flags, const struct qn_cancel *cancel,
                qn_token **ids, size_t *n_ids, struct qn_error *e)
{
    int rc;
    if (!m || !ids || !n_ids) return usage_null(e, __func__);
    if (n && !text) return usage_array(e, __func__, "text", text, n);
    if ((rc = usage_cancel(e, __func__, cancel))) return rc;
    if (flags & ~(unsigned)(QN_ADD_BOS | QN_ADD_EOS | QN_PARSE_SPECIAL | QN_PARSE_FIM))
        return error_set(e, QN_EUSAGE, "qn_tokenize: unknown flags 0x%x", flags);
    unsigned f = (flags & QN_ADD_BOS ? VOCAB_ADD_BOS : 0) | (flags & QN_ADD_EOS ? VOCAB_ADD_EOS : 0) |
                 (flags & QN_PARSE_SPECIAL ? VOCAB_PARSE_SPECIAL : 0) | (flags & QN_PARSE_FIM ? VOCAB_PARSE_FIM : 0);
    return vocab_encode_wanted(m->model->vocab, text, n, f, cancel, ids, n_ids, e);
}

void qn_infill_init(struct qn_infill *p)
{
    if (p) *p = (struct qn_infill){.size = sizeof *p};
}

int qn_infill_prompt(const qn_model *m, const struct qn_infill *p, const struct qn_cancel *cancel, qn_token **ids,
                     size_t *n_ids, bool *was_cut, struct qn_error *e)
{
    int rc;
    if (!m || !p || !ids || !n_ids) return usage_null(e, __func__);
    if ((rc = usage_size(e, __func__, p->size, sizeof *p)) || (rc = usage_cancel(e, __func__, cancel)) ||
        (rc = usage_array(e, __func__, "prefix", p->prefix, p->n_prefix)) ||
        (rc = usage_array(e, __func__, "suffix", p->suffix, p->n_suffix)) ||
        (rc = usage_array(e, __func__, "files", p->files, p->n_files)))
        return rc;
    for (size_t i = 0; i < p->n_files; i++)
        if ((rc = usage_array(e, __func__, "name", p->files[i].name, p->files[i].n_name)) ||
            (rc = usage_array(e, __func__, "text", p->files[i].text, p->files[i].n_text)))
            return rc;
    return fim_encode(m->model->vocab, p, cancel, ids, n_ids, was_cut, e);
}

int qn_rank_prompt(const qn_model *m, const char *query, size_t n_query, const char *document, size_t n_document,
                   const struct qn_cancel *cancel, qn_token **ids, size_t *n_ids, struct qn_error *e)
{
    int rc;
    if (!m || !ids || !n_ids) return usage_null(e, __func__);
    if ((rc = usage_array(e, __func__, "query", query, n_query)) ||
        (rc = usage_array(e, __func__, "document", document, n_document)) || (rc = usage_cancel(e, __func__, cancel)))
        return rc;
    if (!m->model->rank_head) return error_set(e, QN_EUNSUP, "the model does not rank: its file has no ranking head");
    return rank_prompt_encode(m->model->vocab, m->model->weights, (struct str){query, n_query},
                              (struct str){document, n_document}, cancel, ids, n_ids, e);
}

size_t qn_model_max_text(const qn_model *m, int n_tokens)
{
    return !m || n_tokens <= 0 ? 0 : (size_t)n_tokens * vocab_max_token_bytes(m->model->vocab);
}

void qn_free(void *p) { mem_free(p); }

uint64_t qn_random_seed(void) { return rng_seed_from_os(); }

int qn_token_bytes(const qn_model *m, qn_token token, bool special, char **bytes, size_t *n, struct qn_error *e)
{
    struct buf b = {0};
    if (!m || !bytes || !n) return usage_null(e, __func__);
    if (!vocab_is_valid(m->model->vocab, token))
        return error_set(e, QN_EUSAGE, "text: token %d is not in the vocabulary", token);
    int rc = vocab_token_bytes(m->model->vocab, token, special, &b, e);
    if (!rc) rc = buf_reserve(&b, 0, e); /* an empty text, too, gives the caller memory to free */
    if (rc) {
        buf_deinit(&b);
        return rc;
    }
    *bytes = (char *)b.data;
    *n = b.len;
    return 0;
}

const char *qn_version(void) { return QUERN_VERSION " (" QUERN_COMMIT ", " QUERN_COMPILER ")"; }
const char *qn_cpu(void) { return cpu_level_name(cpu_best()); }
