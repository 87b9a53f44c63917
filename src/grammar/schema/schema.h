/* SPDX-License-Identifier: MIT
 *
 * schema.h: a JSON Schema, made into the tables of json_tables.h.
 */
#ifndef QUERN_GRAMMAR_SCHEMA_H
#define QUERN_GRAMMAR_SCHEMA_H

#include <jansson.h>

#include "grammar/schema/json_tables.h"

/* Compiles the schema, which is borrowed, into t, next to those that were compiled before; its root is node *root. Call
 * json_tables_deinit() also after a failure. The failure is in r->l, with its place. */
bool schema_compile(struct json_tables *t, struct regex *r, const json_t *schema, uint32_t *root);
void json_tables_deinit(struct json_tables *t, struct limits *l);

#endif
