/* SPDX-License-Identifier: MIT
 *
 * jinja.h: chat templates: the model's own Jinja2 program, run on a conversation.
 *
 * A template is compiled once, and any number of threads may then render it at the same time. The result is text with
 * its origin: which bytes the template wrote, and which ones came from the conversation. So nothing that a user wrote
 * is ever read as a control token. The language is Jinja2 3.1 as transformers sets it up (docs/TEMPLATES.md).
 */
#ifndef QUERN_TEXT_JINJA_H
#define QUERN_TEXT_JINJA_H

#include <jansson.h>
#include <stdbool.h>
#include <time.h>

#include "base/buf.h"
#include "base/error.h"
#include "text/token/origin.h"

struct jinja; /* a compiled template; immutable */

/* Compiles a template of n bytes of UTF-8, which are not needed afterwards. *out is the caller's, to jinja_free().
 * QN_EDATA: the template is malformed or exceeds a limit; QN_EUNSUP: it has a statement that is not supported;
 * QN_ENOMEM. */
int jinja_compile(struct jinja **out, const char *src, size_t n, struct qn_error *e);
void jinja_free(struct jinja *t); /* NULL is fine */

/* The limits of one rendering. A zero stands for the default, which grows with the input (docs/TEMPLATES.md). */
struct jinja_limits {
    uint64_t n_steps;   /* a step: a node evaluated, an item looked at, eight characters or 64 bytes handled */
    int depth;          /* nesting of expressions, statements, calls and values; default and maximum: 1000 */
    size_t out_bytes;   /* default: value_bytes */
    size_t value_bytes; /* everything the template makes, output included */
    uint64_t cpu_ns;    /* CPU time of the thread. The limit on steps comes first, and is the same on every machine */
};

/* The defaults of n_steps and value_bytes for an input of so many bytes. */
uint64_t jinja_steps(size_t in_bytes);
size_t jinja_value_bytes(size_t in_bytes);

/* What one rendering used. It is filled also when the rendering fails. */
struct jinja_used {
    uint64_t n_steps, cpu_ns;
    size_t value_bytes; /* the most at one time */
};

/* All of it is borrowed for the call. */
struct jinja_input {
    json_t *context; /* an object: the template's variables (messages, tools, ...); its text is the user's */
    /* An object, or NULL: variables whose text counts as the template's (bos_token, ...). They win over the context. */
    json_t *trusted;
    /* NULL, or a function that is asked for each string member of each object in the context, with its key: true if the
     * string counts as the template's. Templates build control tokens from a message's role, for example. */
    bool (*vouch)(void *arg, const char *key, const char *text, size_t n);
    void *vouch_arg;
    /* NULL, or an array of parts of the context's strings that count as the template's, in the order of the context.
     * Each is three elements: the string itself, which is the same object as in the context, the byte where the part
     * begins, and how many bytes it has. */
    const json_t *ours;
    const struct tm *now; /* local time, for strftime_now; NULL: calling it is an error */
    size_t n_bytes;       /* length of the text that the context was read from; the default limits grow with it */
    struct jinja_limits limits;
    const struct qn_cancel *cancel; /* may be NULL */
    struct jinja_used *used;        /* filled; may be NULL */
};

/* Owns its memory: jinja_output_deinit(). */
struct jinja_output {
    struct buf text;
    struct text_span *user; /* [n_user] the untrusted ranges of text: ascending, not empty, not touching */
    size_t n_user;
};

/* Renders into a zeroed *out, which stays empty on failure.
 * QN_EUSAGE: the template called raise_exception to refuse the conversation; the message is the template's own.
 * QN_EDATA: an error in the template, or a limit was reached ("template line 12: 'x' is undefined").
 * QN_EUNSUP: a part of Jinja2 that is not supported. QN_ENOMEM. QN_ECANCEL: `cancel` said so. */
int jinja_render(const struct jinja *t, const struct jinja_input *in, struct jinja_output *out, struct qn_error *e);
void jinja_output_deinit(struct jinja_output *out);

#endif
