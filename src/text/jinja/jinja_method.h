/* SPDX-License-Identifier: MIT
 *
 * jinja_method.h: the string operations that filters share with methods.
 */
#ifndef QUERN_TEXT_JINJA_METHOD_H
#define QUERN_TEXT_JINJA_METHOD_H

#include "text/jinja/jinja_value.h"

/* Each makes a new string with the marks of what it is made of. All strings (s, old, new) are JSTR. */
struct jval jstr_lower(struct jenv *j, struct jval s);
struct jval jstr_upper(struct jenv *j, struct jval s);
struct jval jstr_capitalize(struct jenv *j, struct jval s);
struct jval jstr_title(struct jenv *j, struct jval s); /* the filter, which splits words differently than the method */
struct jval jstr_strip(struct jenv *j, struct jval s, struct jval chars, bool left, bool right); /* chars may be none */
struct jval jstr_lines(struct jenv *j, struct jval s, bool keep_ends);
struct jval jstr_replace(struct jenv *j, struct jval s, struct jval old, struct jval new, int64_t max); /* <0: all */
/* side: s stands on the left (<0), in the middle (0), on the right (>0). with: the fill character; JABSENT: a space. */
struct jval jstr_pad(struct jenv *j, struct jval s, int64_t width, struct jval with, int side);
struct jval jstr_format(struct jenv *j, struct jval s, const struct jargs *args); /* str.format() */
struct jval jdict_items(struct jenv *j, struct jval d, int kind); /* the pairs, as a JLIST, JVIEW or JITER */

#endif
