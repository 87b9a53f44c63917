/* SPDX-License-Identifier: MIT
 *
 * receipt.h: the record of an answer from which anyone with the same model file can check every token of it.
 *
 * A receipt has everything that decides an answer: the model by the SHA-256 of its files, the version of the
 * arithmetic, the prompt's tokens, the way tokens are drawn, the form of the answer, and the answer's tokens.
 * docs/RECEIPTS.md describes its JSON, the canonical form, and the hash, which is that of the canonical form.
 *
 * Whoever makes a receipt fills a struct whose pointers are borrowed. receipt_read() makes one that owns them.
 */
#ifndef QUERN_RECEIPT_RECEIPT_H
#define QUERN_RECEIPT_RECEIPT_H

#include <jansson.h>

#include "base/buf.h"
#include "base/sha256.h"

#define RECEIPT_HEX (2 * SHA256_BYTES + 1)
/* jansson's flags for the canonical form: sorted keys, no spaces, reals with at most nine digits. */
#define RECEIPT_FLAGS (JSON_SORT_KEYS | JSON_COMPACT | JSON_REAL_PRECISION(9))
#define RECEIPT_SALT  32 /* digits of a salt */
#define RECEIPT_LISTS 10 /* arrays that a receipt owns at most */

/* Why an answer ended. */
enum receipt_end {
    RECEIPT_GOES_ON,   /* it has not ended: never in a receipt */
    RECEIPT_TOKEN,     /* its last token is one that ends answers */
    RECEIPT_TEXT,      /* it reached a stop text */
    RECEIPT_LENGTH,    /* it has max_tokens */
    RECEIPT_CALL,      /* it had its one tool call */
    RECEIPT_CANCELLED, /* its client ended it before its end, so the model did not decide this */
};
const char *receipt_end_name(enum receipt_end end);
const char *receipt_kv_name(enum qn_kv kv);

/* The model of a receipt. */
struct receipt_model {
    char name[256];            /* for people, and to find its file; it proves nothing */
    char (*file)[RECEIPT_HEX]; /* [n_files] the SHA-256 of each file, in their order */
    size_t n_files;
    char tokenizer[RECEIPT_HEX];     /* a hash of the vocabulary and its settings */
    char chat_template[RECEIPT_HEX]; /* the SHA-256 of its text; "": there is none */
    const char *pre;                 /* the pre-tokeniser that the user named (qn_model_params.pre); NULL: none */
};

/* Windows of masks whose tokens are not verified (struct qn_wedlm of quern.h). */
struct receipt_windows {
    int window;
    float entropy_threshold, pos_penalty;
};

struct receipt_answer {
    const qn_token *tokens; /* [n]; the one that ended the answer is the last */
    size_t n;
    enum receipt_end end;
    int stop_index; /* RECEIPT_TEXT: which stop text; otherwise -1 */
};

struct receipt {
    json_t *root;               /* owns the texts of a receipt that was read; NULL: they are borrowed */
    void *lists[RECEIPT_LISTS]; /* [n_lists] owned arrays */
    int n_lists;

    int arithmetic; /* MODEL_ARITHMETIC */
    struct receipt_model model;
    int n_ctx;
    enum qn_kv kv;

    /* The prompt. Of a private one that was read only the hash and n_prompt are there, until receipt_add_prompt(). */
    bool is_private;
    const qn_token *prompt; /* [n_prompt]; NULL: not known */
    size_t n_prompt;
    const char *conversation; /* the request of qn_chat_prompt(), JSON; NULL: the prompt is a text to be continued */
    size_t n_conversation;
    const char *salt; /* random digits that keep others from guessing a private prompt by its hash; NULL: none */
    char prompt_hash[RECEIPT_HEX]; /* of a private prompt that was read */

    struct qn_sampling sampling; /* answer i draws with the seed sampling.seed + i */
    int max_tokens;              /* that an answer could have, after all limits */
    bool rotates;                /* as in struct qn_request_params: the context keeps n_keep tokens and the newest */
    int n_keep;
    bool is_replay; /* the answers were filled in unverified windows, so they have to be made again: */
    struct receipt_windows windows;
    const char *const *stop; /* [n_stop] */
    size_t n_stop;
    const qn_token *stop_tokens; /* [n_stop_tokens] */
    size_t n_stop_tokens;
    bool ignore_eos, one_call;
    bool continues; /* as in struct qn_request_params */

    bool has_form; /* the text follows a grammar: */
    enum qn_grammar_kind form_kind;
    const char *form; /* [n_form] */
    size_t n_form;
    bool has_calls; /* tool calls follow a grammar: */
    bool calls_required;
    const char *const *call_names; /* [n_call_names] the tools that may be called; none: all */
    size_t n_call_names;

    const struct receipt_answer *answers; /* [n_answers], at least one */
    size_t n_answers;
};

/* Makes a salt of random digits. */
void receipt_make_salt(char salt[RECEIPT_SALT + 1]);
/* The most tokens that an answer can have of a sequence with n_slots, after its prompt. asked: by the user; -1: as many
 * as there is room for. */
int receipt_max_tokens(int asked, int n_slots, size_t n_prompt);
/* The same in a context of n_slots that rotates. */
int receipt_max_tokens_rotating(int asked, int n_slots);

/* Frees what a receipt owns. A zeroed struct is fine. */
void receipt_deinit(struct receipt *r);

/* Appends the receipt in its canonical form, one line with the hash but without a newline. QN_EDATA: a text in it is
 * not UTF-8. QN_ENOMEM. */
int receipt_write(struct buf *out, const struct receipt *r, struct qn_error *e);
/* Appends the prompt in its canonical form: what a private receipt has the hash of. */
int receipt_write_prompt(struct buf *out, const struct receipt *r, struct qn_error *e);

/* Reads one receipt from n bytes of foreign text, and checks its hash and every number. *used: the bytes that it took,
 * and another one may follow; 0: the text is not JSON. QN_EDATA names the member that is wrong. On failure *r is
 * zeroed. */
int receipt_read(struct receipt *r, const char *text, size_t n, size_t *used, struct qn_error *e);

/* The prompts of private receipts, as receipt_write_prompt() wrote them: any number, one after the other. */
struct receipt_prompts {
    const char *text; /* borrowed */
    struct receipt_prompt *item;
    size_t n, cap;
};

/* Finds the prompts in n bytes of foreign text, which has to stay. QN_EDATA names the one that is damaged. On failure
 * *p is zeroed. */
int receipt_prompts_read(struct receipt_prompts *p, const char *text, size_t n, struct qn_error *e);
void receipt_prompts_deinit(struct receipt_prompts *p); /* a zeroed struct is fine */
/* Gives a private receipt its prompt, which is found by its hash. QN_EDATA: it is not among them. */
int receipt_add_prompt(struct receipt *r, const struct receipt_prompts *p, struct qn_error *e);

#endif
