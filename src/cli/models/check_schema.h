/* SPDX-License-Identifier: MIT
 *
 * check_schema.h: whether an answer can be made to follow a JSON Schema, for `quern check --schema`.
 */
#ifndef QUERN_CLI_CHECK_SCHEMA_H
#define QUERN_CLI_CHECK_SCHEMA_H

#include "base/buf.h"

/* Compiles the schema in a file, and adds a short text that is valid for it to *example, which stays empty if none is
 * found soon. Errors name the file, and the place in the schema. */
int check_schema(const char *path, struct buf *example, struct qn_error *e);

#endif
