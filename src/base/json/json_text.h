/* SPDX-License-Identifier: MIT
 *
 * json_text.h: a JSON document as text, complete or not at all.
 *
 * Everything that keeps or sends the text of a document uses this and not jansson's own functions: jansson (2.14)
 * ignores a failure to write a key, so json_dump_callback() and json_dumps() can return success for text that is not
 * complete.
 */
#ifndef QUERN_BASE_JSON_TEXT_H
#define QUERN_BASE_JSON_TEXT_H

#include <jansson.h>

#include "base/buf.h"

/* Adds the text of j, a value of any type, to the buffer. flags: those of json_dump_callback(), JSON_COMPACT for
 * example. QN_ENOMEM with `what` when there is no memory, or when j is NULL because there was none for the document;
 * the buffer's text is then what it was before. */
int json_text_add(struct buf *b, const json_t *j, size_t flags, const char *what, struct qn_error *e);

#endif
