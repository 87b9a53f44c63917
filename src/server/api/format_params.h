/* SPDX-License-Identifier: MIT
 *
 * format_params.h: the fields of requests that give an answer its form: a JSON Schema, a grammar, a pattern, a choice.
 */
#ifndef QUERN_SERVER_FORMAT_PARAMS_H
#define QUERN_SERVER_FORMAT_PARAMS_H

#include <quern.h>

#include "base/buf.h"
#include "server/json/field.h"

struct who;
/* The form of an answer, as its request has it. A zeroed struct is none. */
struct format_params {
    bool is_set;
    enum qn_grammar_kind kind;
    struct buf text; /* owned: for qn_grammar_new() */
    char field[64];  /* the field that it came from, for errors */
};

/* Compiles it for this identity and salt. *out is the caller's, to qn_grammar_free(); NULL if there is none. 0, or -1
 * and *f. */
int format_compile(qn_grammar **out, const struct format_params *p, const qn_model *m, const struct who *w,
                   struct fault *f);

/* Parsers for the tables of requests, whose struct is answer_params. A request may have one form; an empty value is
 * none, except that {} is a schema, which any JSON fits. */
field_parser format_parse_response;   /* {"type": "json_schema", "json_schema": {"schema": ...}} */
field_parser format_parse_flat;       /* {"type": "json_schema", "schema": ...} */
field_parser format_parse_ollama;     /* "json" or a schema */
field_parser format_parse_schema;     /* a schema, perhaps as a text */
field_parser format_parse_grammar;    /* a text in GBNF */
field_parser format_parse_regex;      /* a text */
field_parser format_parse_choice;     /* an array of texts */
field_parser format_parse_structured; /* {"json": ...}, {"regex": ...}, {"choice": ...} or {"grammar": ...} */

#endif
