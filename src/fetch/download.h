/* SPDX-License-Identifier: MIT
 *
 * download.h: one file over HTTP into its part, whole and verified, however often it takes.
 */
#ifndef QUERN_FETCH_DOWNLOAD_H
#define QUERN_FETCH_DOWNLOAD_H

#include "fetch/part.h"
#include "fetch/probe.h"

/* Goes on where an earlier call, of this process or one that was ended, stopped; begins anew if that was another
 * version of the file. from: what the server said; asked again, and changed, when the file turns out to have changed or
 * moved. sha256: of the whole; "": not known, and then not verified. The part is not renamed, unless it has another
 * hash: then it is rejected (QN_EDATA). Other errors keep what has come. */
int download(struct part *part, struct probe *from, bool is_hub, const char *sha256, const struct fetch_options *o,
             struct qn_error *e);

#endif
