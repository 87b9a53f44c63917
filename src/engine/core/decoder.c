/* SPDX-License-Identifier: MIT
 *
 * decoder.c: what the choice `decoder` means. See decoder.h.
 */
#include "engine/core/decoder.h"

#include "base/error.h"

const char *decoder_name(enum decoder d)
{
    static const char *const names[] = {"auto", "plain", "wedlm"};
    return (unsigned)d < sizeof names / sizeof *names ? names[d] : NULL;
}

int decoder_draft(enum decoder d, enum qn_draft *draft, struct qn_error *e)
{
    enum qn_draft meant = d == DECODER_WEDLM ? QN_DRAFT_WEDLM : QN_DRAFT_OFF;
    if (d == DECODER_AUTO) return 0;
    if (*draft != meant && *draft != QN_DRAFT_AUTO && *draft != QN_DRAFT_DEFAULT)
        return error_set(e, QN_EUSAGE, "decoder: '%s' means drafts '%s', but draft is '%s'", decoder_name(d),
                         qn_draft_name(meant), qn_draft_name(*draft));
    *draft = meant;
    return 0;
}
