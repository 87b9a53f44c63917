/* SPDX-License-Identifier: MIT
 *
 * usage.h: checks of arguments, shared by all public functions. Each returns 0 or QN_EUSAGE.
 */
#ifndef QUERN_ENGINE_USAGE_H
#define QUERN_ENGINE_USAGE_H

#include <stdint.h>

#include "base/error.h"

/* Sets the error of a function that got NULL where it needs an object, a name or a place for its result. */
static inline int usage_null(struct qn_error *e, const char *function)
{
    return error_set(e, QN_EUSAGE, "%s: NULL for an argument that must not be NULL", function);
}

/* Checks the size that a parameter struct has in its first field. Call it before you copy the struct, because a struct
 * of another version may be shorter. `what` names the object that the parameters are for. */
static inline int usage_size(struct qn_error *e, const char *what, size_t size, size_t expected)
{
    if (size == expected) return 0;
    return error_set(e, QN_EUSAGE, "%s: parameter struct of %zu bytes, %zu expected", what, size, expected);
}

/* Checks an array of n elements: it must not be NULL unless n is 0. `what` names it in the message. */
static inline int usage_array(struct qn_error *e, const char *function, const char *what, const void *p, size_t n)
{
    if (!n || (p && n <= SIZE_MAX / 64)) return 0; /* products of n and the size of an element cannot overflow */
    return error_set(e, QN_EUSAGE, "%s: %s is %s, its length %zu", function, what, p ? "too long" : "NULL", n);
}

/* Checks an array of n strings, none of which may be NULL. */
static inline int usage_strings(struct qn_error *e, const char *function, const char *what, const char *const *p,
                                size_t n)
{
    int rc = usage_array(e, function, what, p, n);
    for (size_t i = 0; i < n && !rc; i++)
        if (!p[i]) rc = error_set(e, QN_EUSAGE, "%s: %s %zu of %zu is NULL", function, what, i + 1, n);
    return rc;
}

/* Checks a cancel struct, which may be NULL. Its function may not. */
static inline int usage_cancel(struct qn_error *e, const char *function, const struct qn_cancel *c)
{
    return c && !c->is_cancelled ? error_set(e, QN_EUSAGE, "%s: is_cancelled is NULL", function) : 0;
}

#endif
