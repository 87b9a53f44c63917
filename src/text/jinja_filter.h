/* SPDX-License-Identifier: MIT
 *
 * jinja_filter.h: what the files that define filters share.
 */
#ifndef QUERN_TEXT_JINJA_FILTER_H
#define QUERN_TEXT_JINJA_FILTER_H

#include "text/jinja_eval.h"

#define FILTER(name)                                                                                                   \
    static struct jval name(struct jenv *j JUNUSED, struct jval v JUNUSED, const struct jval *arg JUNUSED,             \
                            const struct jargs *raw JUNUSED)

/* The filters for sequences. NULL: none of this name. */
const struct jfunc *jfilter_find_seq(struct jval name);

#endif
