/* SPDX-License-Identifier: MIT
 *
 * toml_out.h: values written as TOML, so that toml_parse() reads the same back.
 */
#ifndef QUERN_BASE_TOML_OUT_H
#define QUERN_BASE_TOML_OUT_H

#include "base/buf.h"
#include "base/toml.h"

/* Append to the buffer. A string that is not UTF-8 cannot be written: QN_EDATA. */
int toml_put_string(struct buf *out, const char *s, struct qn_error *e);
int toml_put_name(struct buf *out, const char *name, struct qn_error *e);            /* quoted where it must be */
int toml_put_value(struct buf *out, const struct toml_value *v, struct qn_error *e); /* on one line */

#endif
