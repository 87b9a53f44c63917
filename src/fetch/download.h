/* SPDX-License-Identifier: MIT
 *
 * download.h: one file over HTTP into its part, complete and verified, in as many attempts as it takes.
 */
#ifndef QUERN_FETCH_DOWNLOAD_H
#define QUERN_FETCH_DOWNLOAD_H

#include "fetch/partial.h"
#include "fetch/remote_file.h"

/* Fetches a file. It goes on where an earlier call stopped, of this process or of one that has ended; if that fetched
 * another version of the file, it begins anew. from: the server's description of the file; it is asked for again, and
 * replaced, if the file has changed or moved. sha256: that of the whole file; "": not known, and not verified. The part
 * keeps its name, unless its hash is wrong: then it is rejected (QN_EDATA). Other errors keep the bytes that have come.
 */
int download(struct partial_file *part, struct remote_file *from, bool is_hub, const char *sha256,
             const struct fetch_options *o, struct qn_error *e);

#endif
