/* SPDX-License-Identifier: MIT
 *
 * finite.h: the search for NaN and infinity in stored tensors.
 */
#ifndef QUERN_FORMAT_FINITE_H
#define QUERN_FORMAT_FINITE_H

#include "base/error.h"
#include "tensor/dtype.h"

/* Reads the whole tensor. QN_EDATA names it and the first element or block that is not finite. */
int finite_check(const struct tensor *t, struct qn_error *e);

#endif
