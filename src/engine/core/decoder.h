/* SPDX-License-Identifier: MIT
 *
 * decoder.h: the choice `decoder` of options and requests, which names the common choices of drafters.
 *
 * `plain` means no drafts at all, `wedlm` means the drafter of that name, and `auto` leaves it to `draft`. If both are
 * named, they have to agree.
 */
#ifndef QUERN_ENGINE_DECODER_H
#define QUERN_ENGINE_DECODER_H

#include <quern.h>

enum decoder { DECODER_AUTO, DECODER_PLAIN, DECODER_WEDLM };
#define DECODER_CHOICES "auto|plain|wedlm" /* in the order of the enum */

/* NULL: there is no such decoder. */
const char *decoder_name(enum decoder d);
/* Writes the drafters that both choices mean to *draft, which has the choice of drafters before; `auto` and `default`
 * of it name none. QN_EUSAGE: they contradict each other. */
int decoder_draft(enum decoder d, enum qn_draft *draft, struct qn_error *e);

#endif
