/* SPDX-License-Identifier: MIT
 *
 * quern.h: the public interface of libquern.
 *
 *     qn_model_open(&model, "model.gguf", &err);          weights, mapped; immutable, shareable
 *     qn_engine_new(&engine, model, NULL, &err);          threads, memory budget, KV cache
 *     qn_session_new(&session, engine, NULL, &err);       one timeline of tokens
 *     qn_tokenize(model, text, len, QN_ADD_BOS, NULL, &ids, &n, &err);
 *     qn_session_sync(session, ids, n, NULL, &err);       evaluates the tokens that are new
 *     while (!qn_session_step(session, &token, &err)) ... draws one more token each time
 *
 * Every function that can fail returns 0 or a negative enum qn_status. On failure it fills the qn_error, whose pointer
 * may be NULL. Outputs are written only on success. Initialise a parameter struct with its _init function, which sets
 * the defaults and the struct's size. The caller owns each object that a function puts into *out, and frees it with the
 * type's _free or _close function.
 *
 * A wrong argument never ends the program: the function returns QN_EUSAGE, or 0, false, NULL or "" if it reports no
 * errors. A pointer may be NULL where its comment says so, and in every _free and _close function. An object that is
 * freed before its users stays in memory until the last of them is freed, and a line in the log says so.
 *
 * Threads: any number of threads may use a model at once. An engine and all of its sessions may be used by one thread
 * at a time; the calling thread is the first member of the team that computes. To serve many threads, use a
 * qn_scheduler: it owns the engine while it lives, and each of its functions says which threads may call it. A qn_text
 * belongs to one thread.
 *
 * The same model, tokens and seed give the same bits, whatever the instruction set, the number of threads, the batch
 * size, or the tokens that were computed before.
 */
#ifndef QUERN_H
#define QUERN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#if defined(__GNUC__)
#define QN_API __attribute__((visibility("default")))
#else
#define QN_API
#endif

/* ---- errors ---- */

enum qn_status {
    QN_OK = 0,
    QN_EUSAGE = -1,   /* an argument or a request makes no sense */
    QN_EDATA = -2,    /* a file or other input is malformed */
    QN_ENOINPUT = -3, /* a file cannot be opened or read */
    QN_EUNSUP = -4,   /* the input is well-formed, but this engine does not support it */
    QN_ENOMEM = -5,   /* the allocator has no memory, or the budget has no room */
    QN_EIO = -6,      /* reading or writing failed half-way */
    QN_ECANCEL = -7,  /* the caller cancelled the work */
    QN_ENUMERIC = -8, /* no token can be chosen: all logits are NaN or banned */
    QN_EFULL = -9,    /* the tokens do not fit the context */
    QN_EBUSY = -10,   /* the queue is full: try again later */
};

struct qn_error {
    int code;      /* enum qn_status */
    char msg[500]; /* one line, without a newline; empty when code is 0 */
};

typedef int32_t qn_token;

/* Cancels work that may take long. The thread that does the work calls is_cancelled every few milliseconds. If that
 * returns true, the work ends with QN_ECANCEL and has changed nothing. A NULL pointer to this struct means that the
 * work is never cancelled; is_cancelled itself must not be NULL. */
struct qn_cancel {
    bool (*is_cancelled)(void *arg);
    void *arg;
};

/* ---- sampling ---- */

struct qn_logit_bias {
    qn_token token;
    float bias;
}; /* a bias of -INFINITY bans the token */

/* The way the next token is drawn. Filters run in the order of the fields below. Each comment gives the value at which
 * the filter is off. Initialise it with qn_sampling_init(). */
struct qn_sampling {
    size_t size;   /* sizeof(struct qn_sampling), set by qn_sampling_init */
    uint64_t seed; /* random draws depend only on the seed and the token's position */

    const struct qn_logit_bias *logit_bias; /* borrowed while the sampler lives; NULL: none */
    size_t n_logit_bias;

    /* Penalties look at the last penalty_last_n tokens, prompt included (0: off, -1: all). */
    int32_t penalty_last_n;
    float repetition_penalty; /* 1: off; logit / p when positive, * p when negative */
    float frequency_penalty;  /* 0: off; logit - p * count */
    float presence_penalty;   /* 0: off; logit - p */

    /* DRY: logit - multiplier * base ^ (match - allowed_length) for tokens that would extend a
     * repeated sequence. */
    float dry_multiplier; /* 0: off */
    float dry_base;
    int32_t dry_allowed_length;
    int32_t dry_last_n;           /* how many of the last tokens are searched; -1: all */
    const qn_token *dry_breakers; /* tokens that a match never crosses; borrowed */
    size_t n_dry_breakers;

    float top_n_sigma;     /* 0: off; keeps logits >= max - n * standard deviation */
    int32_t top_k;         /* 0: off */
    float typical_p;       /* 1: off */
    float top_p;           /* 1: off */
    float min_p;           /* 0: off */
    float xtc_probability; /* 0: off */
    float xtc_threshold;
    float temperature;  /* 0: greedy: the largest logit after bias and penalties; filters are ignored */
    float mirostat_tau; /* 0: off; otherwise mirostat v2 replaces top_n_sigma .. xtc */
    float mirostat_eta;
};

QN_API void qn_sampling_init(struct qn_sampling *s);
/* Returns a random seed from the operating system. */
QN_API uint64_t qn_random_seed(void);

/* ---- model ---- */

typedef struct qn_model qn_model;

/* Opens a GGUF file (the first part, if the model is split). The file is mapped and must not change while the model is
 * open: see qn_scheduler_look(). */
QN_API int qn_model_open(qn_model **out, const char *path, struct qn_error *e);

struct qn_model_params {
    size_t size;
    const char *pre; /* the pre-tokeniser to use when the file names none, `default`, or an unknown one; NULL: a file
                        with an unknown one is refused */
};
QN_API void qn_model_params_init(struct qn_model_params *p);
/* Like qn_model_open(), with parameters. p NULL: the defaults. */
QN_API int qn_model_open_with(qn_model **out, const char *path, const struct qn_model_params *p, struct qn_error *e);
QN_API void qn_model_close(qn_model *m); /* call it after its engines are freed; NULL is fine */

/* Returns a number that identifies the model's files. It is the same each time as long as the files have not changed,
 * so answers stored under it may be reused. A copy of the files has another number. */
QN_API uint64_t qn_model_mark(const qn_model *m);
QN_API int32_t qn_model_n_vocab(const qn_model *m);         /* tokens in the vocabulary */
QN_API int32_t qn_model_n_embd(const qn_model *m);          /* numbers in an embedding */
QN_API int32_t qn_model_n_ctx_train(const qn_model *m);     /* tokens of context that the model was trained with */
QN_API bool qn_model_is_eog(const qn_model *m, qn_token t); /* true: the model ends its answer with this token */

/* Returns the name that the file gives the model (general.name), or else the name of the file. It may hold any bytes
 * and ends with a NUL; it belongs to the model. The text comes from whoever made the file: clean it before you show it
 * on a terminal. */
QN_API const char *qn_model_name(const qn_model *m);
/* Returns the number of metadata entries, which are keys and values in the order of the file. The entries of a model
 * folder have the names that a GGUF file would give them. */
QN_API size_t qn_model_n_metadata(const qn_model *m);
/* Sets *key and *value to the key and value of entry i, as text that ends with a NUL. The caller owns both: qn_free().
 * Pass NULL for either one if you do not want it. Numbers are decimal, bools are "true" or "false", strings are the
 * file's bytes. Arrays are "[a, b, ...]", and strings in them are in quotes. QN_EUSAGE: there is no such entry. */
QN_API int qn_model_metadata_at(const qn_model *m, size_t i, char **key, char **value, struct qn_error *e);
/* Sets *value to the value of a key, as above. QN_ENOINPUT: the file has no such key. */
QN_API int qn_model_metadata(const qn_model *m, const char *key, char **value, struct qn_error *e);
enum qn_metadata_type { QN_METADATA_NONE, QN_METADATA_NUMBER, QN_METADATA_BOOL, QN_METADATA_STRING, QN_METADATA_ARRAY };
/* Returns the type of the value of entry i; QN_METADATA_NONE if there is no such entry. */
QN_API enum qn_metadata_type qn_model_metadata_type(const qn_model *m, size_t i);
/* Returns how many numbers all tensors of the model hold together, and the size of its files in bytes. */
QN_API uint64_t qn_model_n_params(const qn_model *m);
QN_API uint64_t qn_model_file_bytes(const qn_model *m);
/* Returns the name of the element type in which most of these numbers are stored ("Q4_K"), a static string. */
QN_API const char *qn_model_weight_type(const qn_model *m);
/* Returns true if the file has a chat template, so that qn_chat_new() works without a source. */
QN_API bool qn_model_has_template(const qn_model *m);

/* ---- text ---- */

enum qn_tokenize_flag {
    QN_ADD_BOS = 1,       /* adds a begin token if the model wants one: for a text that is to be continued */
    QN_ADD_EOS = 4,       /* adds an end token if the model wants one */
    QN_PARSE_SPECIAL = 2, /* the text of a control token becomes that token; never use it for a user's text */
    QN_PARSE_FIM = 8,     /* the same for the tokens that mark a gap to be filled (prefix, suffix, middle, padding,
                             repository, file), and for no others */
};
/* Turns n bytes of text, which may be any bytes, into tokens. The caller owns *ids: qn_free(). cancel may be NULL. */
QN_API int qn_tokenize(const qn_model *m, const char *text, size_t n, unsigned flags, const struct qn_cancel *cancel,
                       qn_token **ids, size_t *n_ids, struct qn_error *e);
/* A file that the model should know of when it fills a gap. The strings have their lengths, and may hold any bytes. */
struct qn_infill_file {
    const char *name; /* [n_name] */
    size_t n_name;
    const char *text; /* [n_text] */
    size_t n_text;
};
/* A text with a gap, for qn_infill_prompt(). */
struct qn_infill {
    size_t size;
    const char *prefix; /* [n_prefix] bytes before the gap */
    size_t n_prefix;
    const char *suffix; /* [n_suffix] bytes after it */
    size_t n_suffix;
    const struct qn_infill_file *files; /* [n_files]; the last ones are the most important */
    size_t n_files;
    size_t max_tokens; /* of the prompt: what exceeds it is left out, first the first files, then the text far from the
                          gap; 0: nothing is left out */
};
QN_API void qn_infill_init(struct qn_infill *p);
/* Makes the prompt whose continuation fills the gap, in the form that the model was trained with. No text in it becomes
 * a control token. The caller owns *ids: qn_free(). *was_cut (may be NULL): something was left out. cancel may be NULL.
 * QN_EUNSUP: the model has no tokens for this; QN_EFULL: max_tokens has no room even for those. */
QN_API int qn_infill_prompt(const qn_model *m, const struct qn_infill *p, const struct qn_cancel *cancel,
                            qn_token **ids, size_t *n_ids, bool *was_cut, struct qn_error *e);
/* Makes the prompt by which a model that ranks compares a query with a document, for a request with QN_POOL_RANK. No
 * text in it becomes a control token. The caller owns *ids: qn_free(). cancel may be NULL. QN_EUNSUP: the model does
 * not rank (qn_model_pooling); QN_EDATA: the file's template for this is malformed. */
QN_API int qn_rank_prompt(const qn_model *m, const char *query, size_t n_query, const char *document, size_t n_document,
                          const struct qn_cancel *cancel, qn_token **ids, size_t *n_ids, struct qn_error *e);
/* Frees memory that a function of this header returned as owned. NULL is fine. */
QN_API void qn_free(void *p);
/* Returns the most bytes that n tokens can stand for. A longer text cannot fit a context of n tokens. */
QN_API size_t qn_model_max_text(const qn_model *m, int n_tokens);

/* Sets *bytes to the bytes that one token stands for, which are not always whole UTF-8 characters. With `special`, a
 * control token gives its text; without it, nothing. The caller owns *bytes: qn_free(). */
QN_API int qn_token_bytes(const qn_model *m, qn_token token, bool special, char **bytes, size_t *n, struct qn_error *e);

/* Turns tokens into text as they come. It gives out only whole UTF-8 characters. */
typedef struct qn_text qn_text;
/* continues: the text follows other text, so its leading space stays.
 * stop: n_stop strings (copied) that end the text. The text is given out up to the beginning of the first one. */
QN_API int qn_text_new(qn_text **out, const qn_model *m, bool continues, const char *const *stop, size_t n_stop,
                       struct qn_error *e);
QN_API void qn_text_free(qn_text *t);
/* Takes a token and gives out the text that is complete. *bytes may be empty; it stays valid until the next call.
 * *stopped (may be NULL): whether a stop string has come. A failure changes nothing, here and in
 * qn_text_end(). */
QN_API int qn_text_push(qn_text *t, qn_token token, const char **bytes, size_t *n, bool *stopped, struct qn_error *e);
/* Ends the text and gives out the bytes that were held back: the beginning of a stop string, or an incomplete
 * character, which becomes U+FFFD. */
QN_API int qn_text_end(qn_text *t, const char **bytes, size_t *n, struct qn_error *e);

/* ---- chat ---- */

/* The model's chat template, compiled, and the form of its replies. It is immutable, so any number of threads may use
 * it. Keep the model open while the chat exists. JSON crosses this interface as UTF-8 text. */
typedef struct qn_chat qn_chat;
/* source: n bytes of a template that replaces the file's. NULL: the file's own, tokenizer.chat_template. A request with
 * tools then uses tokenizer.chat_template.tool_use if the file has it. QN_EDATA: there is no template, or it is
 * malformed. */
QN_API int qn_chat_new(qn_chat **out, const qn_model *m, const char *source, size_t n, struct qn_error *e);
QN_API void qn_chat_free(qn_chat *c); /* call it after its prompts and replies are freed; NULL is fine */

/* How a conversation gets a thing that not every template has. qn_chat_new() renders small conversations to find out.
 * UNKNOWN: they failed, and conversations are given to the template as they are. */
enum qn_chat_support {
    QN_CHAT_UNKNOWN,
    QN_CHAT_NATIVE,  /* by the template */
    QN_CHAT_ADAPTED, /* by a change to the conversation, which qn_prompt_changes() names */
    QN_CHAT_REFUSED, /* not at all: QN_EUSAGE */
};
struct qn_chat_capabilities {
    size_t size;
    enum qn_chat_support tools;    /* ADAPTED: tools, calls and results become texts */
    enum qn_chat_support parallel; /* several calls in one message */
    enum qn_chat_support system;   /* system messages at the beginning; ADAPTED: they join the user's text */
    enum qn_chat_support turns;    /* several messages of one role in a row; ADAPTED: they become one */
    bool parts;                    /* the template takes content in parts, as well as strings */
    bool thinking;                 /* the model writes thoughts */
    bool switches;                 /* enable_thinking in chat_template_kwargs changes the prompt */
    bool levels;                   /* reasoning_effort in chat_template_kwargs changes the prompt */
};
/* Fills *out, whose size is set before the call. Any thread. */
QN_API int qn_chat_capabilities(struct qn_chat_capabilities *out, const qn_chat *c, struct qn_error *e);

/* A conversation in the form that the model reads. Immutable. */
typedef struct qn_prompt qn_prompt;
/* Makes the prompt of a request, which is n bytes of JSON: an object with these members. Only messages is required. Any
 * other member gives QN_EUSAGE with its name.
 *     messages               as in the OpenAI API; texts of users never become control tokens
 *     tools                  as in the OpenAI API; null or [] means none
 *     documents              array, for templates with retrieval
 *     add_generation_prompt  bool, default true: the prompt ends where the reply begins
 *     chat_template_kwargs   object: more variables for the template (enable_thinking, reasoning_effort, ...)
 * If the last message is the assistant's and has no calls, the prompt ends inside of it, and the reply continues it.
 * cancel may be NULL. QN_EUSAGE: the request is malformed, or the template refuses it. QN_EDATA, QN_EUNSUP: the
 * template fails. Messages begin with the member that is wrong: "chat: messages[2].content ...", "chat: tools: ...". */
QN_API int qn_chat_prompt(qn_prompt **out, const qn_chat *c, const char *request, size_t n,
                          const struct qn_cancel *cancel, struct qn_error *e);
/* Returns the most bytes of memory that the template takes during that call for a request of n bytes: for its values
 * and its output. A request that needs more is refused with QN_EDATA. */
QN_API size_t qn_chat_prompt_bytes(size_t n);
QN_API void qn_prompt_free(qn_prompt *p); /* call it after its replies are freed; NULL is fine */
/* Return the text and the tokens of the prompt, which both belong to it. The text does not end with a NUL. It has a BOS
 * only if the template writes one. */
QN_API const char *qn_prompt_text(const qn_prompt *p, size_t *n);
QN_API const qn_token *qn_prompt_tokens(const qn_prompt *p, size_t *n);
/* Returns the number of ranges of the text that come from the request and not from the template. They ascend and do not
 * touch. If there is an i-th one, *at is set to its first byte and *n to its length. */
QN_API size_t qn_prompt_user_span(const qn_prompt *p, size_t i, size_t *at, size_t *n);
/* Returns *n numbers of tokens, which belong to the prompt. After each of these positions, the prompts of other
 * conversations, or later prompts of this one, will probably differ. They are for struct qn_request_params. */
QN_API const int *qn_prompt_boundaries(const qn_prompt *p, size_t *n);
/* What was changed about the conversation, because its template would refuse it or drop a part of it: bits. Any thread.
 */
enum qn_chat_change {
    QN_CHAT_SYSTEM_MERGED = 1 << 0, /* a system message joined another one, or the user's text */
    QN_CHAT_TURNS_MERGED = 1 << 1,  /* messages of one role in a row became one */
    QN_CHAT_TURN_ADDED = 1 << 2,    /* an empty assistant's message between a tool's result and the user's text */
    QN_CHAT_CALLS_SPLIT = 1 << 3,   /* a message with several calls became several messages */
    QN_CHAT_TOOLS_AS_TEXT = 1 << 4, /* tools, calls and results became texts */
};
QN_API unsigned qn_prompt_changes(const qn_prompt *p);
/* Returns the name of one change, "system_merged" for example, or NULL if there is none with this bit. */
QN_API const char *qn_chat_change_name(enum qn_chat_change change);

/* The parts of a reply. The tokens of the model go in as they come, and these events come out. Texts of one kind come
 * in pieces that the caller joins; a piece may end inside a word but not inside a character. */
enum qn_reply_kind {
    QN_REPLY_CONTENT,   /* text: more of the answer */
    QN_REPLY_REASONING, /* text: more of the thoughts that come before the answer */
    QN_REPLY_CALL,      /* a tool call begins; text: the tool's whole name */
    QN_REPLY_ARGUMENTS, /* text: more of the call's arguments, a JSON object */
    QN_REPLY_CALL_END,  /* the call is complete and its arguments are valid */
    /* Text that looked like a call is not one, or is cut off. text: all of it, as the model wrote it. call >= 0: that
     * call has begun and gets no CALL_END. call -1: nothing of it was given out before. */
    QN_REPLY_BAD_CALL,
};
struct qn_reply_event {
    enum qn_reply_kind kind;
    int call;         /* CALL, ARGUMENTS, CALL_END: the number of the call, from 0; calls do not interleave */
    const char *text; /* n bytes, without a NUL; valid until the next push or end */
    size_t n;
};

typedef struct qn_reply qn_reply;
/* Makes the reader of a reply to this prompt. It looks for calls only if the prompt had tools. stop: n_stop strings
 * (copied) that end the answer. They are looked for in the content, which is given out up to the beginning of the first
 * one. */
QN_API int qn_reply_new(qn_reply **out, const qn_chat *c, const qn_prompt *p, const char *const *stop, size_t n_stop,
                        struct qn_error *e);
QN_API void qn_reply_free(qn_reply *r); /* NULL is fine */
/* Takes a token. Push every token that the model makes, control tokens too. A token that ends the generation may be
 * pushed; it adds no text. *stopped (may be NULL): whether a stop string has come; everything after it is
 * ignored. After a failure (QN_ENOMEM; QN_EUSAGE for a token outside the vocabulary) the reply can only be freed. */
QN_API int qn_reply_push(qn_reply *r, qn_token token, bool *stopped, struct qn_error *e);
/* Call it after the last token: it gives out everything that was held back, except a character that is unfinished. */
QN_API int qn_reply_end(qn_reply *r, struct qn_error *e);
/* Returns the index of the stop string that has come, or -1 if none has. */
QN_API int qn_reply_stop_index(const qn_reply *r);
/* Whether the reply is in thoughts: the next text will probably be a part of them. */
QN_API bool qn_reply_is_thinking(const qn_reply *r);
/* Takes the next event of the last push or end. Returns false when there are no more. */
QN_API bool qn_reply_next(qn_reply *r, struct qn_reply_event *event);

/* ---- grammars ---- */

/* The texts that an answer may become, compiled for one model. Immutable for its users, so any number of threads may
 * use it. docs/STRUCTURED.md says what is supported, and docs/GRAMMARS.md how each part of a schema is understood. */
typedef struct qn_grammar qn_grammar;

enum qn_grammar_kind {
    QN_GRAMMAR_JSON_OBJECT, /* any JSON object; there is no text */
    QN_GRAMMAR_JSON_SCHEMA, /* JSON that is valid for the schema in the text */
    QN_GRAMMAR_GBNF,        /* the language of llama.cpp's grammars */
    QN_GRAMMAR_REGEX,       /* a regular expression that matches the whole answer */
    QN_GRAMMAR_CHOICE,      /* one of several texts: a JSON array of strings */
    QN_GRAMMAR_TOOL_CALLS,  /* calls of the tools of a prompt, in the form of its model; there is no text */
};
struct qn_grammar_params {
    size_t size;
    enum qn_grammar_kind kind;
    const char *text; /* [n], borrowed for the call */
    size_t n;
    bool spaces;    /* JSON: one space may follow each ',' and ':'; otherwise there is no white space */
    bool any_order; /* JSON: the names of an object come in any order, and not in that of `properties` */
    /* As in struct qn_request_params: a grammar that is kept is used again only with the same identity and salt, so
     * that nobody learns from the time of compiling what others ask for. */
    uint64_t identity, salt[2];
    /* For tool calls, and borrowed for the call. Arguments fit the schema of their tool, unless the tool has `strict`
     * false and a schema that cannot be enforced. Where a text may come in place of the calls, only tools with `strict`
     * true are held to their schemas; the arguments of the others are any object. */
    const qn_prompt *prompt;  /* its tools and its template; such a grammar goes with replies to this prompt */
    bool required;            /* a call has to come; false: a text may come in its place, or before it */
    bool one_call;            /* there is one call at most */
    const char *const *names; /* [n_names] the tools that may be called; none: all of them */
    size_t n_names;
    const qn_grammar *form; /* of the text in place of a call; NULL: the text is free */
};
QN_API void qn_grammar_params_init(struct qn_grammar_params *p);
/* Compiles a grammar, in the calling thread, in a tenth of a second at most. The model keeps the grammars that were
 * used last, so the same text is compiled once. They take at most 16 MiB each, with their texts, and a model has 32.
 * QN_EDATA: the text is malformed, nothing fits it, or it exceeds a limit. QN_EUNSUP: a part of it cannot be enforced.
 * The message begins with the place: "/properties/a/pattern: ...", "tool 'f': /properties/...". QN_EUSAGE: of tool
 * calls: the prompt has no tools, or none with one of the names, or a call cannot come where it ends. QN_EBUSY: 32
 * different grammars are in use. Any thread.
 */
QN_API int qn_grammar_new(qn_grammar **out, const qn_model *m, const struct qn_grammar_params *p, struct qn_error *e);
QN_API void qn_grammar_free(qn_grammar *g); /* requests that use it go on; NULL is fine */

/* ---- engine ---- */

enum qn_kv { QN_KV_F16, QN_KV_F32, QN_KV_Q8_0 };

struct qn_engine_params {
    size_t size;
    int n_threads;   /* 0: as many as this process may use */
    const char *cpu; /* instruction set at most: "ref", "avx2", "avxvnni", "avx512", "avx512vbmi", "amx"; NULL: the
                        best there is */
    uint64_t memory_bytes; /* the budget for KV cache, buffers and weights; 0: the machine's available memory */
    int n_ctx;             /* tokens that a session may hold; 0: as many as the model was trained with, at most 32,768,
                              and as fit in a quarter of the budget and half of what the weights leave of it
                              (but not less than 4,096) */
    int n_batch;           /* most rows in one forward pass; 0: 512 */
    int n_sessions;        /* the KV cache has room for this many full sessions; default 1 */
    int kv_tokens;         /* if not 0, it has room for this many tokens of all sessions together instead, which may be
                              less or more; -1: the same, unless n_ctx is 0: then one session may fill all of it */
    enum qn_kv kv;         /* element type of stored keys and values */
    uint64_t state_bytes;  /* the part of the budget for recurrent states, and for copies of them. Other sequences can
                              reuse a computed prefix only where such a copy was kept. 0: one state for each session and
                              up to 16 copies, fewer where memory is short. Ignored if the model has no such state */
    bool lock_weights;     /* once read, weights stay in memory until the model is closed, as far as the budget has room
                              for them and RLIMIT_MEMLOCK allows it */
};
QN_API void qn_engine_params_init(struct qn_engine_params *p);

typedef struct qn_engine qn_engine;

/* Makes an engine for a model. p NULL: the defaults. QN_ENOMEM: KV cache, buffers and a little room for weights do not
 * fit the budget; nothing large has been touched. If the weights do not fit as a whole, they are read from the file
 * again for every token, and a warning in the log says so (qn_log_set). */
QN_API int qn_engine_new(qn_engine **out, const qn_model *m, const struct qn_engine_params *p, struct qn_error *e);
QN_API void qn_engine_free(qn_engine *g);       /* call it after its sessions are freed; NULL is fine */
QN_API int qn_engine_n_ctx(const qn_engine *g); /* tokens that a session may hold */

/* The memory that an engine and a scheduler on it would take. The size of the budget matters only if n_ctx is
 * 0. Nothing large is allocated. */
struct qn_scheduler_params;
struct qn_engine_plan {
    size_t size;
    int n_ctx, kv_tokens; /* as an engine with these parameters and this budget has them */
    uint64_t bytes;       /* everything, with all weights in memory */
    uint64_t least_bytes; /* enough to run, but the weights are read from the file again for every token */
};
/* p, s NULL: the defaults. Set out->size before the call. */
QN_API int qn_engine_plan(struct qn_engine_plan *out, const qn_model *m, const struct qn_engine_params *p,
                          const struct qn_scheduler_params *s, struct qn_error *e);

/* ---- drafts ---- */

/* Which drafters (docs/DECODERS.md) guess the next tokens of answers. Guesses change when tokens come, never which. */
enum qn_draft {
    QN_DRAFT_OFF,
    QN_DRAFT_AUTO,    /* those that are there: NGRAM; MTP if the model has the block; MODEL if there is a draft model */
    QN_DRAFT_NGRAM,   /* what followed the same tokens before */
    QN_DRAFT_MTP,     /* the model's block that predicts the token after the next one */
    QN_DRAFT_MODEL,   /* a small model */
    QN_DRAFT_WEDLM,   /* the model itself, at masks after the end; never one of AUTO, and not for sessions */
    QN_DRAFT_DEFAULT, /* AUTO */
};
/* Returns "off", "auto", "ngram", "mtp", "model", "wedlm" or "default"; NULL: it is no value of this type. */
QN_API const char *qn_draft_name(enum qn_draft draft);

struct qn_usage {
    /* Tokens: of the prompt; of these, those that came from the cache and were not computed; of all answers together */
    int n_prompt, n_cached, n_generated;
    /* Of all answers together: the passes that brought their tokens, after the one that read the prompt; the guessed
     * tokens that were computed in them; of these, those that were right. */
    int n_passes, n_drafted, n_accepted;
    int n_pass_rows;  /* rows of these passes, those that were forgotten included */
    int n_unverified; /* tokens that came from windows without verification (struct qn_wedlm) */
    /* If the context rotates: the tokens that an answer's context does not hold any more, of the prompt and of the
     * answer, and how often it rotated after the prompt. The largest numbers of all answers */
    int n_dropped, n_rotations;
};

/* ---- session ---- */

typedef struct qn_session qn_session;

/* Makes a session with an empty timeline. sampling NULL: the defaults of qn_sampling_init(). The arrays that sampling
 * points to are borrowed. The session's own memory is taken from the engine's budget. */
QN_API int qn_session_new(qn_session **out, qn_engine *g, const struct qn_sampling *sampling, struct qn_error *e);
QN_API void qn_session_free(qn_session *s); /* NULL is fine */
/* Makes the timeline exactly these n tokens (at least one). It keeps the longest common prefix and evaluates the rest.
 * These tokens also become the sampler's history, unless the timeline does not change at all. *n_kept (may be NULL):
 * how many tokens were not evaluated again. After a failure the timeline is unchanged, empty, or
 * the first part of these tokens; it is never wrong. */
QN_API int qn_session_sync(qn_session *s, const qn_token *tokens, size_t n, size_t *n_kept, struct qn_error *e);

/* Functions that follow the evaluation of a long prompt. The calling thread runs both. */
struct qn_prefill {
    size_t size;
    /* Called after each batch of the engine: n_done of the timeline's n_total tokens are evaluated. NULL: not called */
    void (*progress)(void *arg, size_t n_done, size_t n_total);
    /* Called every few milliseconds. true: the call ends with QN_ECANCEL. NULL: the call is never cancelled */
    bool (*is_cancelled)(void *arg);
    void *arg;
};
QN_API void qn_prefill_init(struct qn_prefill *p);
/* Like qn_session_sync(), with the functions of p, which is borrowed for the call; NULL: none. After QN_ECANCEL the
 * timeline keeps the tokens that were evaluated, and the same call continues from there. */
QN_API int qn_session_sync_with(qn_session *s, const qn_token *tokens, size_t n, const struct qn_prefill *p,
                                size_t *n_kept, struct qn_error *e);
/* Changes the way tokens are drawn from now on. NULL: the defaults of qn_sampling_init(). The arrays that sampling
 * points to are borrowed while the session lives, or until the next call of this function. The timeline stays. A
 * failure changes nothing. */
QN_API int qn_session_set_sampling(qn_session *s, const struct qn_sampling *sampling, struct qn_error *e);
/* Lets drafters guess the next tokens from now on, so that one pass may bring several of them. qn_session_step()
 * returns the same tokens as without drafts, and one at a time. model: the draft model, for MODEL and AUTO; held. NULL:
 * none. What drafters need is taken from the engine's budget, for each session. A new session, one that was loaded and
 * a fork have no drafts. QN_EUSAGE, QN_EUNSUP: a drafter that is named cannot be there, or the draft model has another
 * vocabulary. A failure changes nothing. */
QN_API int qn_session_set_draft(qn_session *s, enum qn_draft draft, const qn_model *model, struct qn_error *e);
/* Sets n_passes, n_drafted and n_accepted of *out to what drafts did since they were set, and the others to 0. */
QN_API int qn_session_usage(const qn_session *s, struct qn_usage *out, struct qn_error *e);
/* Draws the next token and appends it to the timeline. QN_EFULL: the context is full. */
QN_API int qn_session_step(qn_session *s, qn_token *token, struct qn_error *e);
/* Sets *logits to the logits that follow the timeline, [n_vocab], valid until the next call on this session. */
QN_API int qn_session_logits(qn_session *s, const float **logits, struct qn_error *e);
/* Makes a second session with the same timeline and the same sampling. Both share the KV cache until one of them goes
 * on. */
QN_API int qn_session_fork(qn_session **out, const qn_session *s, struct qn_error *e);
/* Returns the number of tokens of the timeline and sets *tokens (may be NULL) to them. They belong to the session. */
QN_API size_t qn_session_tokens(const qn_session *s, const qn_token **tokens);

/* Writes the timeline and everything that was computed for it to a file, so that qn_session_load() can continue without
 * evaluating it again. The file contains the TEXT of the timeline, as tokens: only its owner may read it (mode 0600).
 * It appears whole or not at all: it is written next to its place under another name, synced and renamed. An existing
 * file is replaced. If the last token was drawn but not evaluated yet, it is evaluated first. QN_EUSAGE: the timeline
 * is empty. QN_EIO: the file cannot be written; the message names it. */
QN_API int qn_session_save(qn_session *s, const char *path, struct qn_error *e);
/* Makes a new session with the timeline of the file. Its logits and the tokens that follow are those of the saved
 * session, to the bit. The sampling is a parameter, as in qn_session_new(); the sampler is given the timeline's tokens
 * as its history, and mirostat starts from its initial state. The engine needs the same model (another copy of its
 * files will do), the same kind of KV cache, and a context that the timeline fits. Threads, batches and instruction
 * sets may differ.
 * QN_ENOINPUT: there is no such file. QN_EDATA: it is not a saved session, or it is damaged. QN_EUNSUP: it belongs to
 * another version, another model or another kind of KV cache. QN_EFULL: it is longer than the engine's context. The
 * file may come from a stranger: every number in it is checked. But the checksums find only accidents, and whoever
 * writes the file can make up a conversation that never took place. */
QN_API int qn_session_load(qn_session **out, qn_engine *g, const char *path, const struct qn_sampling *sampling,
                           struct qn_error *e);

/* ---- requests: many at once ---- */

/* Evaluates the requests of any number of threads together. One step computes one row of every running answer and a
 * piece of the prompts that are being read. The scheduler has a thread of its own and owns the engine while it lives:
 * meanwhile no session of that engine may be used. The result of a request does not depend on other requests, on the
 * cache, or on how prompts were cut: its tokens and logprobs are those of a session with the same sampling.
 *
 * From admission to its end, a request holds the KV pages for its prompt and max_tokens, so an answer is never cut or
 * computed again because memory ran out. Requests are admitted in the order of their priority. Within one priority, the
 * identity with the fewest computed rows comes first, and then the request that came first. */
typedef struct qn_scheduler qn_scheduler;

#define QN_WEDLM_CLASSES 8 /* of entropies, in nats: below 0.01, 0.03, 0.1, 0.2, 0.4, 0.8, 1.5, and others */

/* Windows of masks (WeDLM) after the end of an answer, for a scheduler whose drafter is QN_DRAFT_WEDLM.
 *
 * Verified: masks only guess, and the answer is that of plain decoding. Unverified: the answer's tokens are those that
 * masks were filled with, as in the paper, so it is another answer. It does not depend on what else is computed, on the
 * cache or on the machine, but on the window and the limits below, and near its end on max_tokens. */
struct qn_wedlm {
    int verify;              /* 1: verified, 0: unverified, -1: as the scheduler's say; there, verified */
    int window;              /* 1..16 masks; 0: not said. Verified, the number then follows from what steps cost */
    float entropy_threshold; /* a mask whose entropy and penalty are below it is filled; negative: not said */
    float pos_penalty;       /* for each place after the first mask; negative: not said */
}; /* What is not said is as the scheduler's say, then as the model's file says, then 16, 0.4 and 0.02 */
/* Nothing is said. */
QN_API void qn_wedlm_init(struct qn_wedlm *w);

struct qn_scheduler_params {
    size_t size;
    int n_running;      /* places: answers that are evaluated together. A request of n answers takes n places. 0: 8, or
                           fewer if the engine's batch or its recurrent states have no room for them */
    int n_queued;       /* requests that may wait; one more is refused with QN_EBUSY. 0: 64 */
    int n_prefill;      /* most prompt rows in one step; 0: the engine's n_batch */
    int snapshot_every; /* prompt tokens between copies of the recurrent state, if the model has one. 0: 4096 */
    const char *cache_dir; /* folder where prefixes outlive the process; NULL: none. Copied */
    uint64_t cache_bytes;  /* most bytes on disk; 0: nothing is written */
    const char *hash_dir;  /* another folder where SHA-256 of model files may be stored already; cache_dir is searched
                              too. NULL: none. Copied */
    int reads_ahead;       /* not 0: while no request is there, prefixes that are only on disk are read into memory that
                              nobody uses, the most recently used first */
    enum qn_draft draft;   /* the drafters that it has. Those that are named have to be there */
    const qn_model *draft_model; /* a small model with the same vocabulary, for MODEL and AUTO; held. Its weights and
                                    its KV cache are taken from the engine's budget. NULL: none */
    struct qn_wedlm wedlm;       /* of requests that do not say it themselves */
};
QN_API void qn_scheduler_params_init(struct qn_scheduler_params *p);
/* Makes a scheduler and its thread. p NULL: the defaults. Its memory (for each place n_vocab logits and a sampler) is
 * taken from the engine's budget. QN_EUSAGE: among others, the draft model has another vocabulary; the message has the
 * first token that differs. */
QN_API int qn_scheduler_new(qn_scheduler **out, qn_engine *g, const struct qn_scheduler_params *p, struct qn_error *e);
/* Refuses new requests, ends those that wait, lets running ones continue for grace_s seconds, and then ends the rest
 * (QN_FINISH_STOPPED). Returns when every request has had its last event. Any thread may call it, but a callback may
 * not. */
QN_API void qn_scheduler_stop(qn_scheduler *s, double grace_s);
/* Stops the scheduler without grace, if it was not stopped before, and frees it. No other thread may use s any more. A
 * callback may not call it. NULL is fine. */
QN_API void qn_scheduler_free(qn_scheduler *s);

/* Checks whether the model's files have changed since they were opened, by size, modification time, inode and device.
 * Returns 0 if they have not, and 1 if another file now has the name of one; the open file is then intact. QN_EDATA: a
 * file was changed in place. Then all requests end with this error, new ones are refused, and nothing more is kept in
 * the cache. qn_submit() makes this check, too. Any thread may call it. */
QN_API int qn_scheduler_look(qn_scheduler *s, struct qn_error *e);

struct qn_logprob {
    qn_token token;
    float logprob;
}; /* natural logarithm of the softmax of the unmodified logits */

enum qn_finish {
    QN_FINISH_NONE,        /* not finished */
    QN_FINISH_STOP_TOKEN,  /* `token` is an end-of-generation token, or one of stop_tokens */
    QN_FINISH_STOP_STRING, /* the text reached stop[stop_index] */
    QN_FINISH_LENGTH,      /* the answer has max_tokens, or the context is full */
    QN_FINISH_CANCELLED,
    QN_FINISH_DEADLINE,
    QN_FINISH_STOPPED, /* the scheduler was stopped */
    QN_FINISH_ERROR,   /* `error` gives the reason */
};

enum qn_event_type {
    QN_EVENT_QUEUED,  /* the request waits at `place`: sent at once, and whenever the place changes */
    QN_EVENT_PREFILL, /* n_done of n_total prompt tokens are evaluated: sent when the request is admitted, when its part
                         on disk has been read, and after each step */
    QN_EVENT_PROMPT,  /* with prompt_logprobs, for each prompt token in order: token, logprob, top */
    QN_EVENT_TOKEN,   /* for each generated token, except stop tokens: token, logprob, top, text */
    QN_EVENT_EMBEDDING, /* the embedding of the prompt, or its score: embedding */
    QN_EVENT_PAUSE,  /* an answer gave its pages of the KV cache to others. It goes on by itself, with the tokens that
                        it would have had, when there are pages again */
    QN_EVENT_FINISH, /* the end of one answer: finish, stop_index, token, text (held back; often empty). Each of the
                        n_answers has one, even if it never began, unless the request ended while it waited */
    QN_EVENT_DONE,   /* the last event, exactly one for each request: finish, error, usage, timings */
};

struct qn_timings {
    double queue_ms, prefill_ms, decode_ms; /* from submission to admission, to the first token, to the end */
    double paused_ms;                       /* of these, the longest that one of the answers had given way */
    /* The reason why no more of the prompt came from the cache; NULL: nothing was missed. "nothing": nothing is stored
     * for this identity and salt. "differs": all stored sequences continue with another token. "ends": the stored
     * sequence ends. "evicted": the rest was stored, but has been evicted. "room": there was no memory to read it from
     * disk. "damaged": its copy on disk cannot be used. "state": more is stored, but without a copy of the recurrent
     * state after it. "window": more is stored, but not the window before its end that some layers need. "unused": the
     * request wants all of its rows computed. */
    const char *miss;
    int miss_position; /* the first position that was missed */
    /* "differs" only: the prompt's token at this position, and the one that a stored sequence has there */
    qn_token miss_asked, miss_stored;
};

/* All fields that the type does not name are 0 (token: -1). Pointers are valid during the callback. */
struct qn_event {
    enum qn_event_type type;
    uint64_t request;
    int answer; /* 0 .. n_answers - 1 */
    int place;  /* requests ahead: they wait with a higher priority, or came earlier with the same one */
    int n_done, n_total;
    qn_token token;
    float logprob;                /* 0 unless the request asked for it; NAN for the first token of a prompt */
    const struct qn_logprob *top; /* [n_top] the most probable tokens, descending */
    int n_top;
    /* Whole UTF-8 characters, without a NUL. Empty while a character is incomplete, or while the beginning of a stop
     * string is held back; later tokens bring the text. */
    const char *text;
    size_t n_text;
    const float *embedding; /* [n_embedding] */
    int n_embedding;
    enum qn_finish finish;
    int stop_index;
    const struct qn_error *error; /* NULL unless finish is QN_FINISH_ERROR */
    struct qn_usage usage;
    struct qn_timings timings;
};

/* Receives the events of a request. It runs on the scheduler's thread, which computes nothing meanwhile, so it must
 * return soon. It may call qn_submit, qn_cancel, qn_scheduler_stats, and every function that takes only the model. */
typedef void qn_callback(void *arg, const struct qn_event *event);

/* RANK: not an embedding but one number, the probability that the document in a prompt of qn_rank_prompt() answers the
 * query; only for models for which qn_model_pooling() returns it. */
enum qn_pooling { QN_POOL_NONE, QN_POOL_MEAN, QN_POOL_LAST, QN_POOL_RANK };
/* Returns the pooling that the model's file names for embeddings, or QN_POOL_NONE if it names none. */
QN_API enum qn_pooling qn_model_pooling(const qn_model *m);

struct qn_request_params {
    size_t size;
    const qn_token *prompt; /* [n_prompt], at least one. This and everything else that is pointed to is copied */
    size_t n_prompt;
    const int *boundaries; /* [n_boundaries] ascending, 1..n_prompt: numbers of prompt tokens after which other requests
                              will probably differ (qn_prompt_boundaries). If the model has a recurrent state, a copy of
                              it is kept at each of them */
    size_t n_boundaries;
    struct qn_sampling sampling; /* answer i draws with the seed sampling.seed + i */
    const char *const *stop;     /* [n_stop] strings that end an answer; they are not part of its text */
    size_t n_stop;
    const qn_token *stop_tokens; /* [n_stop_tokens] in addition to the model's own end tokens */
    size_t n_stop_tokens;
    bool ignore_eog;      /* the model's own end tokens are never drawn, except those that are in stop_tokens */
    bool continues;       /* the text follows the prompt's text, so its leading space stays (see qn_text_new) */
    int max_tokens;       /* of each answer, as far as the context has room; -1: as many as that; 0: only the prompt is
                             evaluated */
    int n_answers;        /* answers to the prompt, which is evaluated once */
    int n_top_logprobs;   /* -1: no logprobs; 0: only of the chosen token; at most QN_MAX_TOP_LOGPROBS */
    bool prompt_logprobs; /* logprobs of the prompt's tokens, too; then all of them are computed, and the cache is not
                             used. Needs n_top_logprobs >= 0 */
    int priority;         /* a larger one is admitted first */
    uint64_t identity;    /* the user that the request belongs to. Within a priority, identities get equal shares of the
                             computation. What the request leaves in the cache is its identity's (qn_cache_list) */
    uint64_t salt[2];     /* only requests with the same identity and salt share cached prefixes */
    int deadline_ms;      /* from submission to the end; 0: none */
    enum qn_pooling pooling; /* other than QN_POOL_NONE: an embedding of the prompt (length 1), or with QN_POOL_RANK its
                                score, and no answer */
    qn_callback *callback;
    void *arg;
    /* Each answer is one of the grammar's texts, unless it ends by its length or a stop string; NULL: none. The request
     * fails in the middle with QN_EDATA if no token fits that logit_bias does not ban, and with QN_EUNSUP if the text
     * becomes too complex. Not with ignore_eog or an embedding. */
    const qn_grammar *grammar;
    /* The conversation that the answers reply to. Thoughts before the text, and tool calls in its place, then follow no
     * grammar. NULL: the text begins with the first token. Borrowed for the call */
    const qn_prompt *grammar_prompt;
    bool no_text; /* events have no text, because the caller turns the tokens into text itself (qn_reply, qn_text).
                     Cannot be combined with stop strings, which are looked for in the text */
    const qn_token *replay; /* [n_replay] the first tokens of each answer, instead of those that are drawn. Everything
                               is computed as always: it is for measurements. Not with a grammar */
    size_t n_replay;
    enum qn_draft
        draft; /* which of the scheduler's drafters may guess; the scheduler has to have those that are named */
    /* The context rotates: whenever the prompt and the answer reach n_ctx tokens, the first n_keep stay (at most half
     * of n_ctx), and the oldest half of the others is dropped. What remains is computed again at its new positions, as
     * if it were a prompt, so keys and values are those of an ordinary sequence. Then max_tokens may be more than the
     * context has room for (-1: n_ctx), and the prompt may be longer than the context: its tokens in excess are dropped
     * in the same way. Which tokens are dropped depends on nothing but their number. Draws go on with the numbers that
     * they would have without dropping, and penalties look at the tokens that remain. Not with prompt_logprobs or an
     * embedding. */
    bool rotates;
    int n_keep;
    /* Unverified windows exclude a grammar, logprobs, rotation, penalties, DRY and mirostat: these need the tokens
     * before a draw. */
    struct qn_wedlm wedlm;
};
#define QN_MAX_TOP_LOGPROBS 20
QN_API void qn_request_params_init(struct qn_request_params *p);

/* Submits a request. Any thread may call it. *id (may be NULL) is set before the first event. The call returns
 * QN_EUSAGE for parameters that make no sense, and also:
 *   QN_EBUSY   the queue is full; *retry_s (may be NULL) is set to an estimate of the seconds until there is room, from
 *              the speed so far
 *   QN_EFULL   the prompt can never fit: it exceeds the context, or the KV cache
 *   QN_EDATA   the model's files were changed in place (qn_scheduler_look)
 *   QN_ECANCEL the scheduler is being stopped
 *   QN_ENOMEM  there is no memory for the copy */
QN_API int qn_submit(qn_scheduler *s, const struct qn_request_params *p, uint64_t *id, double *retry_s,
                     struct qn_error *e);
/* Cancels a request. Any thread may call it. If most rows of the present step belong to cancelled requests, the step is
 * abandoned within milliseconds (between two pieces of its work); otherwise the request ends after the step. Returns
 * false if there is no such request, or no longer. The request's last event comes in either case. */
QN_API bool qn_cancel(qn_scheduler *s, uint64_t id);

/* Counters since the scheduler was made, and present values. */
struct qn_scheduler_stats {
    size_t size;
    int n_queued, n_running; /* requests */
    int n_answers, n_paused; /* places that are taken by answers; of these, answers that gave way */
    int n_places;
    uint64_t n_submitted, n_refused;      /* requests; refused: with QN_EBUSY */
    uint64_t n_done[QN_FINISH_ERROR + 1]; /* requests, by enum qn_finish */
    uint64_t n_prompt_tokens, n_cached_tokens, n_generated_tokens;
    uint64_t n_steps, n_rows, n_prefill_rows;                           /* n_rows / n_steps is the mean batch */
    uint64_t n_drafted[QN_DRAFT_DEFAULT], n_accepted[QN_DRAFT_DEFAULT]; /* guessed tokens that became rows, and those
                                                                             that were right, by drafter */
    /* Of windows (struct qn_wedlm): those of requests that say nothing, of 0 masks if there are none; masks by their
     * entropy when they were looked at; seconds that steps with windows took to gather their rows, for passes but
     * the output matrix, for that, to choose and draw, and to commit unverified ones. */
    struct qn_wedlm wedlm;
    uint64_t n_wedlm_entropy[QN_WEDLM_CLASSES];
    double wedlm_gather_s, wedlm_pass_s, wedlm_head_s, wedlm_select_s, wedlm_commit_s;
    uint64_t n_pauses, n_rows_again; /* how often an answer gave way; rows that were computed again for that reason */
    double step_s;                   /* seconds that the last step took */
    double busy_s;                   /* seconds that all steps took */
    double idle_s; /* seconds since the last step ended. A large value while n_running > 0 means that something hangs */
    double prefill_tokens_per_s, decode_tokens_per_s; /* recent means; 0: not known yet */
    /* the ledger, bytes */
    uint64_t budget_bytes, used_bytes; /* used is the sum of these: */
    uint64_t weight_bytes, kv_bytes, state_bytes, buffer_bytes, scheduler_bytes, cache_bytes;
    int n_pages, n_pages_free, n_pages_cached; /* of the KV cache; cached: evicted when an answer needs them */
    uint64_t kv_touched_bytes; /* the part of kv_bytes that was ever in use; the others are not in memory yet */
    int page_tokens;
    /* Pages for layers that look back no further than a window, which keep only that; cached: as above. Their bytes are
     * a part of kv_bytes. */
    int n_windows, n_windows_free, n_windows_cached;
    uint64_t window_bytes;
    int n_states, n_states_free; /* recurrent states. Of those in use, copies that the cache keeps: */
    int n_snapshots;
    int n_snapshots_disk;
    uint64_t cache_lookups, cache_hits, cache_hit_tokens; /* requests that looked, and found something; prompt tokens */
    uint64_t cache_disk_bytes;
};
/* Copies the statistics to *out. Any thread may call it. Set out->size before the call. QN_EUSAGE: it is not the size
 * of this struct; nothing is written. */
QN_API int qn_scheduler_stats(qn_scheduler *s, struct qn_scheduler_stats *out);

/* ---- the prefix cache ---- */

/* A stored conversation: a sequence of tokens that no other stored sequence continues. Sequences that begin alike share
 * memory. */
struct qn_cached {
    uint64_t id; /* stays the same while the conversation grows, until it is dropped or the scheduler is freed */
    int n_tokens;
    /* of all its pages, and of copies of recurrent states. What is being written already counts as on disk */
    uint64_t memory_bytes, disk_bytes;
    /* The same, but what several conversations share is counted for only one of them, so these can be added up. */
    uint64_t memory_part_bytes, disk_part_bytes;
    double idle_s; /* seconds since the last use; negative: found on disk, and not used since the scheduler was made */
};
/* Any thread may call these two functions, but a callback may not: both wait until the present step is over.
 * QN_ECANCEL: the scheduler has been stopped. */
/* Lists the conversations that requests of this identity have left, the most recently used first. The caller owns
 * *list: qn_free(). */
QN_API int qn_cache_list(qn_scheduler *s, uint64_t identity, struct qn_cached **list, size_t *n, struct qn_error *e);
/* Drops conversation id from memory and disk, if it belongs to this identity; id 0: all conversations of the identity.
 * Parts that others share stay. Running requests continue, and leave their tokens in the cache when they end.
 * *n_dropped: how many conversations were dropped. */
QN_API int qn_cache_drop(qn_scheduler *s, uint64_t identity, uint64_t id, size_t *n_dropped, struct qn_error *e);
/* Drops all conversations of the identity from a cache_dir that no scheduler uses now, of any model. *n_dropped counts
 * those that were dropped before a failure, too. QN_EBUSY: a scheduler uses the folder. Any thread. */
QN_API int qn_cache_drop_files(const char *cache_dir, uint64_t identity, size_t *n_dropped, struct qn_error *e);

/* ---- text in, text out ---- */

/* The messages of a chat so far, for qn_generate(). One thread at a time uses it. */
typedef struct qn_conversation qn_conversation;
QN_API int qn_conversation_new(qn_conversation **out, struct qn_error *e);
QN_API void qn_conversation_free(qn_conversation *c); /* NULL is fine */
/* Adds a message of n bytes, which must be UTF-8. role: "system", "user", "assistant", or what else the model's
 * template knows. After an error the conversation is what it was before. */
QN_API int qn_conversation_add(qn_conversation *c, const char *role, const char *text, size_t n, struct qn_error *e);

/* For qn_generate(). */
struct qn_generate_params {
    size_t size;
    int max_tokens; /* of the answer; -1: until the model ends it or the context is full */
    bool is_chat;   /* the prompt is a message to the model, and the text is its reply: the model's chat template is
                       used, and the thoughts before the reply are left out */
    qn_conversation *conversation; /* the messages before the prompt, in a chat; borrowed for the call, which adds the
                                      prompt and the reply unless it fails. NULL: none */
    const char *const *stop;       /* [n_stop] strings that end the answer; they are not part of its text */
    size_t n_stop;
    /* Receives more of the answer: n bytes, whole UTF-8 characters, without a NUL. Returning false ends the answer. The
     * calling thread runs it. NULL: not called */
    bool (*text)(void *arg, const char *bytes, size_t n);
    void *arg;
};
QN_API void qn_generate_params_init(struct qn_generate_params *p);
/* Makes the session's timeline the prompt of n bytes, and the model's answer to it. If the session already holds the
 * beginning of the prompt, that part is not computed again. Sampling is the session's. p NULL: the defaults, which are
 * no callback and max_tokens -1. *finish (may be NULL) is the reason why the answer ended: QN_FINISH_STOP_TOKEN,
 * _STOP_STRING, _LENGTH or _CANCELLED (by the callback; a conversation then has the reply as far as it was made).
 * QN_EFULL: the prompt does not fit. QN_EDATA: is_chat is set, and the model has no template, or it cannot render these
 * messages. */
QN_API int qn_generate(qn_session *s, const char *prompt, size_t n, const struct qn_generate_params *p,
                       enum qn_finish *finish, struct qn_error *e);

/* ---- log ---- */

enum qn_log_level { QN_LOG_ERROR = 3, QN_LOG_WARNING = 4, QN_LOG_INFO = 6, QN_LOG_DEBUG = 7 }; /* as in syslog */
/* Receives one line, without a newline, in printable UTF-8. It is valid during the call. Lines of all levels come: the
 * library does not filter them. */
typedef void qn_log_sink(void *arg, enum qn_log_level level, const char *message);
/* Sets the sink for warnings that are not errors of a call: weights that do not fit memory, a cache folder that cannot
 * be used, a vocabulary with oddities. At the start there is no sink (NULL). Without one the library prints nothing: it
 * never writes to standard output or standard error. The process has one sink.
 * Any thread may call this function. Any thread of the library may call the sink, and several may do so at once. The
 * sink must not call functions of quern.h. When qn_log_set() has returned, the former sink is not called any more. */
QN_API void qn_log_set(qn_log_sink *sink, void *arg);

/* ---- build ---- */

/* Returns the version: "0.1.0 (commit, compiler)". */
QN_API const char *qn_version(void);
/* Returns the best instruction set of this machine: "ref", "avx2", "avxvnni", "avx512", "avx512vbmi" or "amx". */
QN_API const char *qn_cpu(void);

#ifdef __cplusplus
}
#endif
#endif
