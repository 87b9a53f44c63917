/* SPDX-License-Identifier: MIT
 *
 * schema.h: a JSON Schema, made into the tables of json_tables.h.
 */
#ifndef QUERN_GRAMMAR_SCHEMA_H
#define QUERN_GRAMMAR_SCHEMA_H

#include <jansson.h>

#include "grammar/schema/json_tables.h"

/* More would take longer than a tenth of a second to read and compile. The largest schemas of MaskBench have 29,000
 * values, and 5,400 in an `enum`. */
#define SCHEMA_MAX_VALUES 50000 /* of JSON, in the whole schema */
#define SCHEMA_MAX_ENUM   10000

/* Whether it has at most so many. */
bool schema_is_small(const json_t *schema);

/* Compiles the schema, which is borrowed, into t, next to those that were compiled before; its root is node *root. Call
 * json_tables_deinit() also after a failure. The failure is in r->l, with its place. */
bool schema_compile(struct json_tables *t, struct regex *r, const json_t *schema, uint32_t *root);
void json_tables_deinit(struct json_tables *t, struct limits *l);

#endif
