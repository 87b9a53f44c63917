/* SPDX-License-Identifier: MIT
 *
 * jinja.h: chat templates: the model's own Jinja2 program, run on a conversation.
 *
 * A template is compiled once and may then be rendered by any number of threads at a time. What comes out is text and
 * its origin: which bytes were written by the template and which came from the conversation, so that nothing a user
 * wrote is ever read as a control token. The language is Jinja2 3.1 as transformers sets it up (docs/TEMPLATES.md).
 */
#ifndef QUERN_TEXT_JINJA_H
#define QUERN_TEXT_JINJA_H

#include <jansson.h>
#include <stdbool.h>
#include <time.h>

#include "base/buf.h"
#include "base/error.h"
#include "text/origin.h"

struct jinja; /* a compiled template; immutable */

/* src: n bytes of UTF-8, not kept. QN_EDATA for a template that is malformed or goes beyond a limit, QN_EUNSUP for a
 * statement we do not have, QN_ENOMEM. */
int jinja_compile(struct jinja **out, const char *src, size_t n, struct qn_error *e);
void jinja_free(struct jinja *t); /* NULL is fine */

/* What one rendering may use. A zero stands for the default, which grows with the input (docs/TEMPLATES.md says how,
 * and why so). */
struct jinja_limits {
    uint64_t n_steps;   /* nodes evaluated, items looked at, eight characters or 64 bytes of text handled */
    int depth;          /* nesting of expressions, statements, calls and values: 1000, and not more */
    size_t out_bytes;   /* as many as value_bytes */
    size_t value_bytes; /* everything the template makes, output included */
    uint64_t cpu_ns;    /* of the thread; the steps are there to end a rendering before, the same on every machine */
};

/* The defaults for an input of so many bytes. */
uint64_t jinja_steps(size_t in_bytes);
size_t jinja_value_bytes(size_t in_bytes);

/* What one rendering used, told whether it succeeds or not. */
struct jinja_used {
    uint64_t n_steps, cpu_ns;
    size_t value_bytes; /* at most, at one time */
};

struct jinja_input {
    json_t *context; /* object of the template's variables (messages, tools, ...); its text is the user's */
    json_t *trusted; /* object or NULL: variables whose text counts as the template's own (bos_token, ...); these win */
    /* NULL, or whether a string in the context counts as the template's own although the context is not: asked for
     * each string member of each object, with its key. Templates build control tokens of a message's role, for one. */
    bool (*vouch)(void *arg, const char *key, const char *text, size_t n);
    void *vouch_arg;
    const struct tm *now; /* local time, for strftime_now; NULL: calling it is an error */
    size_t n_bytes;       /* the length of the text that the context was read from: what the default limits go by */
    struct jinja_limits limits;
    const struct qn_cancel *cancel; /* NULL: never */
    struct jinja_used *used;        /* NULL: nobody wants to know */
};

struct jinja_output {
    struct buf text;
    struct text_span *user; /* the untrusted ranges of text, ascending, neither empty nor touching */
    size_t n_user;
};

/* Renders into a zeroed *out, which is left empty on failure. QN_EUSAGE is raise_exception: the template refuses the
 * conversation, and the message is its own, whole. QN_EDATA is an error in the template or one of its limits ("template
 * line 12: 'x' is undefined"), QN_EUNSUP something of Jinja2 we do not have, QN_ENOMEM no memory, QN_ECANCEL that it is
 * no longer wanted. */
int jinja_render(const struct jinja *t, const struct jinja_input *in, struct jinja_output *out, struct qn_error *e);
void jinja_output_deinit(struct jinja_output *out);

#endif
