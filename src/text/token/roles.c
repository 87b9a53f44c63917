/* SPDX-License-Identifier: MIT
 *
 * roles.c: finds the tokens with a role, by id where the file names one, by text where it does not.
 *
 * Converters have left many files without an end-of-turn id, or with chat markers of the type of ordinary text. A model
 * then never stops, or a user can write the marker. So known texts are looked for. A token is taken as a marker only if
 * no merge makes it: Qwen's vocabulary has `</s>` as an ordinary word of web pages.
 *
 * The lists are explained in docs/TOKENIZERS.md, "End of generation".
 */
#include "text/token/roles.h"

#include <string.h>

#include "base/log.h"

/* Where a key has two spellings, the newer one comes later and wins. */
static const struct {
    enum vocab_role role;
    const char *key;
} role_keys[] = {
    {VOCAB_BOS, "tokenizer.ggml.bos_token_id"},         {VOCAB_EOS, "tokenizer.ggml.eos_token_id"},
    {VOCAB_EOT, "tokenizer.ggml.eot_token_id"},         {VOCAB_EOM, "tokenizer.ggml.eom_token_id"},
    {VOCAB_UNK, "tokenizer.ggml.unknown_token_id"},     {VOCAB_SEP, "tokenizer.ggml.seperator_token_id"},
    {VOCAB_PAD, "tokenizer.ggml.padding_token_id"},     {VOCAB_MASK, "tokenizer.ggml.mask_token_id"},
    {VOCAB_FIM_PRE, "tokenizer.ggml.prefix_token_id"},  {VOCAB_FIM_PRE, "tokenizer.ggml.fim_pre_token_id"},
    {VOCAB_FIM_SUF, "tokenizer.ggml.suffix_token_id"},  {VOCAB_FIM_SUF, "tokenizer.ggml.fim_suf_token_id"},
    {VOCAB_FIM_MID, "tokenizer.ggml.middle_token_id"},  {VOCAB_FIM_MID, "tokenizer.ggml.fim_mid_token_id"},
    {VOCAB_FIM_PAD, "tokenizer.ggml.fim_pad_token_id"}, {VOCAB_FIM_REP, "tokenizer.ggml.fim_rep_token_id"},
    {VOCAB_FIM_SEP, "tokenizer.ggml.fim_sep_token_id"},
};

/* In the order of preference; NULL-terminated. */
static const char *const eot_texts[] = {
    "<|eot_id|>", "<|im_end|>", "<|end|>", "<end_of_turn>",         "<|endoftext|>",      "<|end_of_text|>",
    "<EOT>",      "_<EOT>",     "[EOT]",   "<｜end▁of▁sentence｜>", "<end_of_utterance>", NULL};
static const char *const eom_texts[] = {"<|eom_id|>", NULL};
static const char *const fim_pre_texts[] = {"<|fim_prefix|>", "<fim-prefix>",    "<fim_prefix>", "<PRE>",
                                            "▁<PRE>",         "<｜fim▁begin｜>", "[PREFIX]",     NULL};
static const char *const fim_suf_texts[] = {"<|fim_suffix|>", "<fim-suffix>",   "<fim_suffix>", "<SUF>",
                                            "▁<SUF>",         "<｜fim▁hole｜>", "[SUFFIX]",     NULL};
static const char *const fim_mid_texts[] = {"<|fim_middle|>", "<fim-middle>",  "<fim_middle>", "<MID>",
                                            "▁<MID>",         "<｜fim▁end｜>", "[MIDDLE]",     NULL};
static const char *const fim_pad_texts[] = {"<|fim_pad|>", "<fim-pad>", "<fim_pad>", NULL};
static const char *const fim_rep_texts[] = {"<|fim_repo|>", "<|repo_name|>", "<fim-repo>", NULL};
static const char *const fim_sep_texts[] = {"<|file_sep|>", NULL};
static const char *const mask_texts[] = {"<|mask|>", "[MASK]", "<mask>", "|<MASK>|", NULL};
static const char *const *const role_texts[VOCAB_N_ROLES] = {
    [VOCAB_EOT] = eot_texts,         [VOCAB_EOM] = eom_texts,         [VOCAB_FIM_PRE] = fim_pre_texts,
    [VOCAB_FIM_SUF] = fim_suf_texts, [VOCAB_FIM_MID] = fim_mid_texts, [VOCAB_FIM_PAD] = fim_pad_texts,
    [VOCAB_FIM_REP] = fim_rep_texts, [VOCAB_FIM_SEP] = fim_sep_texts, [VOCAB_MASK] = mask_texts,
};

static const char *const eog_texts[] = {"<|eot_id|>",
                                        "<|im_end|>",
                                        "<|end|>",
                                        "<|return|>",
                                        "<|call|>",
                                        "<|flush|>",
                                        "<|calls|>",
                                        "<end_of_turn>",
                                        "<|endoftext|>",
                                        "</s>",
                                        "<|eom_id|>",
                                        "<EOT>",
                                        "_<EOT>",
                                        "[EOT]",
                                        "[EOS]",
                                        "<|end_of_text|>",
                                        "<end_of_utterance>",
                                        "<eos>",
                                        "<turn|>",
                                        "<|tool_response>",
                                        "<｜end▁of▁sentence｜>",
                                        "[e~[",
                                        NULL};

/* The channel marks of gpt-oss, which the reader of its replies needs to see. */
static const char *const harmony_texts[ROLES_MAX_SHOWN] = {"<|end|>", "<|channel|>", "<|message|>", "<|start|>",
                                                           "<|constrain|>"};

static qn_token find(const struct lexicon *lex, const char *text) { return lexicon_find(lex, text, strlen(text)); }

/* Whether text cannot become this token, because of its type or because no merge makes it. */
static bool is_marker(const struct lexicon *lex, const struct bpe *bpe, qn_token id)
{
    if (lexicon_is_special(lex, id)) return true;
    return lex->type[id] == TOKEN_NORMAL && !(bpe && bpe_spells(bpe, id));
}

static int read_ids(struct roles *r, const struct lexicon *lex, const struct weights *w, struct qn_error *e)
{
    for (size_t i = 0; i < sizeof role_keys / sizeof role_keys[0]; i++) {
        const struct meta *m = weights_meta(w, role_keys[i].key);
        qn_token *id = &r->id[role_keys[i].role];
        int64_t x;
        if (!m) continue;
        int rc = m->type == MT_ARRAY ? error_set(e, QN_EDATA, "gguf: %s is an array", role_keys[i].key)
                                     : meta_elem_i64(m, 0, &x, e);
        if (rc < 0) return rc;
        if (x >= 0 && x < lex->n) {
            *id = (qn_token)x;
        } else {
            *id = -1;
            log_at(LOG_WARN, "gguf: %s = %lld is outside the vocabulary of %d tokens and ignored", role_keys[i].key,
                   (long long)x, lex->n);
        }
    }
    return 0;
}

/* Sets the roles that files do not name: `llama` vocabularies have <unk>, <s>, </s> at 0, 1, 2; the first `gpt2` ones
 * (Falcon) had <|endoftext|> at 11. said: the tokens come from a tokenizer.json, which names all roles there are. */
static void set_defaults(struct roles *r, const struct lexicon *lex, const struct bpe *bpe, bool said)
{
    for (int i = 0; i < VOCAB_N_ROLES; i++) r->id[i] = -1;
    if (said) return;
    if (!bpe && lex->n > 2) {
        r->id[VOCAB_UNK] = 0;
        r->id[VOCAB_BOS] = 1;
        r->id[VOCAB_EOS] = 2;
    } else if (bpe && !bpe->by_char && lex->n > 11 && lex->type[11] == TOKEN_CONTROL) {
        if (!(pretok_flags(bpe->pretok) & PRETOK_NO_BOS)) r->id[VOCAB_BOS] = 11;
        r->id[VOCAB_EOS] = 11;
    }
}

/* Makes the marker a control token, so that no text of a user becomes it. */
static void make_control(struct lexicon *lex, const struct bpe *bpe, qn_token id)
{
    if (id >= 0 && lex->type[id] != TOKEN_UNKNOWN && is_marker(lex, bpe, id)) lex->type[id] = TOKEN_CONTROL;
}

static void add_eog(struct roles *r, struct lexicon *lex, const struct bpe *bpe, qn_token id)
{
    if (id < 0) return;
    for (int i = 0; i < r->n_eog; i++)
        if (r->eog[i] == id) return;
    make_control(lex, bpe, id);
    if (r->n_eog < ROLES_MAX_EOG) r->eog[r->n_eog++] = id; /* always: the lists together are shorter */
}

/* Adds the ids that a generation_config.json lists. */
static int read_ends(struct roles *r, struct lexicon *lex, const struct bpe *bpe, const struct weights *w,
                     struct qn_error *e)
{
    const struct meta *m = weights_meta(w, "tokenizer.quern.eog_token_ids");
    for (uint64_t i = 0; m && i < m->n && r->n_eog < ROLES_MAX_LISTED; i++) {
        int64_t id;
        int rc = meta_elem_i64(m, i, &id, e);
        if (rc) return rc;
        if (id >= 0 && id < lex->n) add_eog(r, lex, bpe, (qn_token)id);
    }
    return 0;
}

static void remove_eog(struct roles *r, qn_token id)
{
    for (int i = 0; i < r->n_eog; i++)
        if (r->eog[i] == id) {
            r->eog[i] = r->eog[--r->n_eog];
            return;
        }
}

int roles_init(struct roles *r, struct lexicon *lex, const struct bpe *bpe, const struct weights *w, struct qn_error *e)
{
    *r = (struct roles){0};
    set_defaults(r, lex, bpe, weights_meta(w, "tokenizer.quern.source") != NULL);
    int rc = read_ids(r, lex, w, e);
    if (rc) return rc;
    for (int role = 0; role < VOCAB_N_ROLES; role++)
        for (const char *const *t = role_texts[role]; t && *t && r->id[role] < 0; t++) {
            qn_token id = find(lex, *t);
            if (id >= 0 && is_marker(lex, bpe, id)) r->id[role] = id;
        }
    for (int role = VOCAB_FIM_PRE; role <= VOCAB_FIM_MID; role++) make_control(lex, bpe, r->id[role]);
    static const enum vocab_role ending[] = {VOCAB_EOS,     VOCAB_EOT,     VOCAB_EOM,
                                             VOCAB_FIM_PAD, VOCAB_FIM_REP, VOCAB_FIM_SEP};
    for (size_t i = 0; i < sizeof ending / sizeof ending[0]; i++) add_eog(r, lex, bpe, r->id[ending[i]]);
    if ((rc = read_ends(r, lex, bpe, w, e))) return rc;

    bool gemma4 = find(lex, "<|tool_response>") >= 0; /* in its vocabulary </s> is an HTML tag */
    for (const char *const *t = eog_texts; *t; t++) {
        qn_token id = find(lex, *t);
        if (id < 0 || !is_marker(lex, bpe, id) || (gemma4 && strcmp(*t, "</s>") == 0)) continue;
        add_eog(r, lex, bpe, id);
    }
    if (find(lex, "<|return|>") < 0 || find(lex, "<|call|>") < 0) return 0;
    for (int i = 0; i < ROLES_MAX_SHOWN; i++) {
        qn_token id = find(lex, harmony_texts[i]);
        if (id >= 0) r->shown[r->n_shown++] = id;
    }
    remove_eog(r, find(lex, "<|end|>"));
    return 0;
}
