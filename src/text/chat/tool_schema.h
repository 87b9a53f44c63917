/* SPDX-License-Identifier: MIT
 *
 * tool_schema.h: the parameters that a tool's schema names.
 */
#ifndef QUERN_TEXT_TOOL_SCHEMA_H
#define QUERN_TEXT_TOOL_SCHEMA_H

#include <jansson.h>

/* Characters that the names of arguments cannot have where a call has the shape of Python, name(key=value). */
#define TOOL_NOT_IN_KEYWORDS "=(),'\"[]{}\\"

/* The schemas of the parameters by their names: the `properties` of the schema, and of those that its `$ref` and
 * `allOf` lead to in the same document; the first one of a name counts. Returns a reference for json_decref(); NULL if
 * there are none, or no memory. */
json_t *tool_properties(const json_t *schema);

#endif
