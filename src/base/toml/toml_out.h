/* SPDX-License-Identifier: MIT
 *
 * toml_out.h: writes values as TOML, so that toml_parse() reads the same values back.
 */
#ifndef QUERN_BASE_TOML_OUT_H
#define QUERN_BASE_TOML_OUT_H

#include "base/buf.h"
#include "base/toml/toml.h"

/* Append to the buffer. QN_EDATA: a string is not UTF-8, so it cannot be written; QN_ENOMEM. */
int toml_put_string(struct buf *out, const char *s, struct qn_error *e);
int toml_put_name(struct buf *out, const char *name, struct qn_error *e);            /* quoted where it must be */
int toml_put_value(struct buf *out, const struct toml_value *v, struct qn_error *e); /* on one line */

#endif
