/* SPDX-License-Identifier: MIT
 *
 * schema_uri.h: the URIs of schemas: references relative to an identifier.
 */
#ifndef QUERN_GRAMMAR_SCHEMA_URI_H
#define QUERN_GRAMMAR_SCHEMA_URI_H

#include "grammar/core/slabs.h"

/* These return memory of the slabs; NULL after noting a failure. */
char *uri_copy(struct slabs *slabs, struct limits *l, const char *s, size_t n);
/* The URI that ref, of n bytes without a fragment, means in the document with the URI base, which lives as long. */
const char *uri_join(struct slabs *slabs, struct limits *l, const char *base, const char *ref, size_t n);
/* Takes the percent-encoding out of s, in place. */
void uri_decode(char *s);

#endif
