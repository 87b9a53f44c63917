/* SPDX-License-Identifier: MIT
 *
 * jinja_filter.h: what the two files that define filters share.
 */
#ifndef QUERN_TEXT_JINJA_FILTER_H
#define QUERN_TEXT_JINJA_FILTER_H

#include "text/jinja/jinja_eval.h"

#define FILTER(name) JFUNC(name, v)

/* Searches the filters for sequences (jinja_seq.c); NULL: there is none of this name. */
const struct jfunc *jfilter_find_seq(struct jval name);

#endif
