/* SPDX-License-Identifier: MIT
 *
 * schema_doc.h: a schema as a document: where its references lead, and where a part of it stands.
 *
 * A document has resources, which are the schemas with an identifier and the whole document itself, and anchors, which
 * are names of schemas in a resource. References to other documents are refused; nothing is ever fetched.
 */
#ifndef QUERN_GRAMMAR_SCHEMA_DOC_H
#define QUERN_GRAMMAR_SCHEMA_DOC_H

#include <jansson.h>

#include "grammar/core/slabs.h"

enum schema_draft { DRAFT_4 = 4, DRAFT_6 = 6, DRAFT_7 = 7, DRAFT_2019 = 8, DRAFT_2020 = 9 };

struct doc_resource {
    const char *uri; /* without a fragment; "" for a document without an identifier */
    const json_t *root;
};

struct doc_anchor {
    uint32_t resource;
    const char *name;
    const json_t *schema;
    bool dynamic;
};

/* The resource of a schema that has a reference, if it is not the first one. */
struct doc_base {
    const json_t *schema;
    uint32_t resource;
};

struct schema_doc {
    struct limits *l;
    struct slabs *slabs;
    const json_t *root;
    enum schema_draft draft;
    struct doc_resource *resources; /* [n_resources] the first one is the document */
    struct doc_anchor *anchors;     /* [n_anchors] */
    struct doc_base *bases;         /* [n_bases] by address */
    uint32_t n_resources, n_anchors, n_bases, cap_resources, cap_anchors, cap_bases;
};

#define SCHEMA_DEPTH 1000 /* of values in values */

/* Reads identifiers and anchors; the schema is borrowed. QN_EDATA: it is nested too deep; QN_EUNSUP: `$schema` names an
 * unknown draft. Call schema_doc_deinit() also after a failure. */
bool schema_doc_init(struct schema_doc *d, struct limits *l, struct slabs *slabs, const json_t *root);
void schema_doc_deinit(struct schema_doc *d);

/* The schema that `ref`, a reference in `schema`, leads to; NULL after noting a failure. dynamic: it is a $dynamicRef,
 * which is followed only if the document leaves no choice. */
const json_t *schema_doc_follow(struct schema_doc *d, const json_t *schema, const char *ref, bool dynamic);

/* Writes the place of a value in the document as a JSON pointer, at most cap bytes with the NUL; "" is the whole.
 * False: it is not in the document. */
bool schema_doc_place(const struct schema_doc *d, const json_t *value, char *out, size_t cap);

#endif
