/* SPDX-License-Identifier: MIT
 *
 * draft_name.c: the names of drafters, for options, requests and reports. See quern.h.
 */
#include <quern.h>

const char *qn_draft_name(enum qn_draft draft)
{
    static const char *const names[] = {"off", "auto", "ngram", "mtp", "model", "wedlm", "default"};
    return (unsigned)draft < sizeof names / sizeof *names ? names[draft] : NULL;
}
