/* SPDX-License-Identifier: MIT
 *
 * fim.c: makes the prompt for filling a gap. Each part is encoded alone, because the model has seen them so, and
 * because what does not fit is cut off by whole tokens.
 */
#include "text/token/fim.h"

#include <string.h>

#include "base/error.h"
#include "base/mem.h"
#include "text/token/merge.h"

/* Between files, for models without a token that separates them. */
#define PLAIN_MARK "\n\n--- snippet ---\n\n"
/* The names that the format wants and a request does not have: of the repository, and of the file with the gap. */
#define REPOSITORY "myproject\n"
#define OWN_NAME   "filename\n"

struct maker {
    const struct vocab *v;
    const struct qn_cancel *cancel;
    struct qn_error *e;
    struct ids prefix, suffix, files; /* owned */
    size_t *file_at;                  /* [n_files]: where each file begins in `files`; owned */
};

static int add_text(struct maker *m, struct ids *out, const char *text, size_t n, unsigned flags)
{
    qn_token *ids = NULL;
    size_t n_ids = 0;
    int rc = vocab_encode_wanted(m->v, text, n, flags, m->cancel, &ids, &n_ids, m->e);
    for (size_t i = 0; i < n_ids && !rc; i++) rc = ids_push(out, ids[i], m->e);
    mem_free(ids);
    return rc;
}

static int add_role(struct maker *m, struct ids *out, enum vocab_role role)
{
    qn_token id = vocab_role(m->v, role);
    return id < 0 ? 0 : ids_push(out, id, m->e);
}

/* Adds n tokens of a list, from the one at `from` on. */
static int add_ids(struct maker *m, struct ids *out, const struct ids *list, size_t from, size_t n)
{
    int rc = 0;
    for (size_t i = 0; i < n && !rc; i++) rc = ids_push(out, list->id[from + i], m->e);
    return rc;
}

static bool has_names(const struct maker *m) { return vocab_role(m->v, VOCAB_FIM_SEP) >= 0; }

/* Mistral's models want the suffix first, and the answer right after the prefix. */
static bool is_suffix_first(const struct vocab *v)
{
    struct str s = vocab_token_text(v, vocab_role(v, VOCAB_FIM_PRE));
    return s.n == strlen("[PREFIX]") && !memcmp(s.p, "[PREFIX]", s.n);
}

static int check_roles(const struct maker *m)
{
    if (vocab_role(m->v, VOCAB_FIM_PRE) >= 0 && vocab_role(m->v, VOCAB_FIM_SUF) >= 0 &&
        (vocab_role(m->v, VOCAB_FIM_MID) >= 0 || is_suffix_first(m->v)))
        return 0;
    return error_set(m->e, QN_EUNSUP,
                     "the model cannot fill in: its vocabulary has no tokens for a prefix, a suffix and the middle");
}

static int add_file(struct maker *m, const struct qn_infill_file *f)
{
    int rc;
    if (!has_names(m)) {
        rc = add_text(m, &m->files, PLAIN_MARK, strlen(PLAIN_MARK), VOCAB_NO_SPACE);
    } else {
        rc = add_role(m, &m->files, VOCAB_FIM_SEP);
        if (!rc) rc = add_text(m, &m->files, f->name, f->n_name, VOCAB_NO_SPACE);
        if (!rc) rc = add_text(m, &m->files, "\n", 1, VOCAB_NO_SPACE);
    }
    return rc ? rc : add_text(m, &m->files, f->text, f->n_text, VOCAB_NO_SPACE);
}

static int encode_parts(struct maker *m, const struct qn_infill *p)
{
    int rc = add_text(m, &m->prefix, p->prefix, p->n_prefix, 0);
    if (!rc) rc = add_text(m, &m->suffix, p->suffix, p->n_suffix, VOCAB_NO_SPACE);
    m->file_at = mem_alloc(p->n_files * sizeof *m->file_at + 1);
    if (!m->file_at) return error_nomem(m->e, "files of a prompt", p->n_files * sizeof *m->file_at);
    for (size_t i = 0; i < p->n_files && !rc; i++) {
        m->file_at[i] = m->files.n;
        rc = add_file(m, &p->files[i]);
    }
    return rc;
}

/* What goes before the files, and between the last of them and the text with the gap. */
static int make_frame(struct maker *m, struct ids *head, struct ids *own)
{
    int rc = add_role(m, head, VOCAB_FIM_REP);
    if (!rc && head->n) rc = add_text(m, head, REPOSITORY, strlen(REPOSITORY), VOCAB_NO_SPACE);
    if (!rc && has_names(m)) rc = add_role(m, own, VOCAB_FIM_SEP);
    if (!rc && has_names(m)) rc = add_text(m, own, OWN_NAME, strlen(OWN_NAME), VOCAB_NO_SPACE);
    return rc;
}

/* Tokens left for texts when these are taken; none below zero. */
static size_t less(size_t room, size_t taken) { return room > taken ? room - taken : 0; }

/* The last tokens of the prefix and the first of the suffix that fit: a quarter for the suffix, and what the other does
 * not use. */
static void cut_text(const struct maker *m, size_t room, size_t *n_prefix, size_t *n_suffix)
{
    *n_prefix = m->prefix.n;
    *n_suffix = m->suffix.n;
    if (*n_prefix + *n_suffix <= room) return;
    size_t quarter = room / 4, other = less(room, *n_prefix);
    size_t most = quarter > other ? quarter : other;
    if (*n_suffix > most) *n_suffix = most;
    *n_prefix = room - *n_suffix < *n_prefix ? room - *n_suffix : *n_prefix;
}

static int put_together(struct maker *m, const struct qn_infill *p, struct ids *out, bool *was_cut)
{
    struct ids head = {0}, own = {0};
    bool bos = vocab_add_bos(m->v) && vocab_bos(m->v) >= 0, turned = is_suffix_first(m->v);
    size_t room = p->max_tokens ? p->max_tokens : SIZE_MAX, n_fixed = (size_t)bos + (turned ? 2 : 3);
    size_t n_prefix, n_suffix, first = 0;
    if (room < n_fixed) return error_set(m->e, QN_EFULL, "infill: %zu tokens have no room for the markers", room);
    int rc = make_frame(m, &head, &own);
    cut_text(m, room - n_fixed, &n_prefix, &n_suffix);
    /* The first files are dropped, because editors put the most important one last. */
    size_t left = less(room, n_fixed + n_prefix + n_suffix + head.n + own.n);
    while (first < p->n_files && m->files.n - m->file_at[first] > left) first++;
    *was_cut = first > 0 || n_prefix < m->prefix.n || n_suffix < m->suffix.n;
    if (!rc && bos) rc = ids_push(out, vocab_bos(m->v), m->e);
    if (first < p->n_files) {
        size_t at = m->file_at[first];
        if (!rc) rc = add_ids(m, out, &head, 0, head.n);
        if (!rc) rc = add_ids(m, out, &m->files, at, m->files.n - at);
        if (!rc) rc = add_ids(m, out, &own, 0, own.n);
    }
    for (int i = 0; i < 2 && !rc; i++) {
        bool is_suffix = (i == 0) == turned;
        rc = add_role(m, out, is_suffix ? VOCAB_FIM_SUF : VOCAB_FIM_PRE);
        if (!rc)
            rc = is_suffix ? add_ids(m, out, &m->suffix, 0, n_suffix)
                           : add_ids(m, out, &m->prefix, m->prefix.n - n_prefix, n_prefix);
    }
    if (!rc && !turned) rc = add_role(m, out, VOCAB_FIM_MID);
    mem_free(head.id);
    mem_free(own.id);
    return rc;
}

int fim_encode(const struct vocab *v, const struct qn_infill *p, const struct qn_cancel *cancel, qn_token **ids,
               size_t *n_ids, bool *was_cut, struct qn_error *e)
{
    struct maker m = {.v = v, .cancel = cancel, .e = e};
    struct ids out = {0};
    bool cut = false;
    int rc = check_roles(&m);
    if (!rc) rc = encode_parts(&m, p);
    if (!rc) rc = put_together(&m, p, &out, &cut);
    mem_free(m.prefix.id);
    mem_free(m.suffix.id);
    mem_free(m.files.id);
    mem_free(m.file_at);
    if (rc) {
        mem_free(out.id);
        return rc;
    }
    *ids = out.id;
    *n_ids = out.n;
    if (was_cut) *was_cut = cut;
    return 0;
}
