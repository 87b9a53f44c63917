/* SPDX-License-Identifier: MIT
 *
 * call_params.h: which tools an answer has to call, or may call, as its request says it.
 */
#ifndef QUERN_SERVER_CALL_PARAMS_H
#define QUERN_SERVER_CALL_PARAMS_H

#include <quern.h>

#include "base/buf.h"
#include "server/json/field.h"

struct job;

/* A zeroed struct: the model chooses freely. */
struct call_params {
    bool any;         /* the model has tools; set when the prompt is made */
    bool required;    /* a call has to come */
    bool is_compiled; /* calls follow a grammar, so that no text looks like a call and is none */
    bool strict;      /* a tool asks for arguments that fit its schema */
    json_t *names;    /* owned: the tools that may be called; NULL: all of them */
    struct buf again; /* owned: the choice as JSON, for an API that repeats it */
};

void call_params_deinit(struct call_params *p);

/* The parser of `tool_choice` in OpenAI's APIs, for tables whose struct is answer_params: "auto", "none", "required"
 * (or "any"), {"type": "function", "function": {"name": ...}} or {"type": "function", "name": ...}, and allowed_tools.
 */
field_parser call_parse_choice;
/* Adds the name of a tool that may be called. 0, or -1 and *f. */
int call_add_name(struct call_params *p, const json_t *name, struct fault *f);

/* Puts a grammar of tool calls in the place of the job's grammar, which is then the form of a text in place of calls,
 * if the request asks for that. 0, or -1 and *f. */
int call_compile(struct job *j, struct fault *f);

#endif
