/* SPDX-License-Identifier: MIT
 *
 * model_id.h: which model this is, whatever its files are called: by the SHA-256 of each of them.
 *
 * It is remembered of every file (base/file_hash.h). Of files whose hash is not remembered it is computed by a thread
 * that takes only what nobody else wants, of the disk, the CPU and the page cache; small ones are hashed at once.
 */
#ifndef QUERN_ENGINE_MODEL_ID_H
#define QUERN_ENGINE_MODEL_ID_H

#include "format/weights.h"
#include "base/sha256.h"

struct model_id;

/* dir: where hashes are remembered; also: another such folder, which is only read (NULL: none). Both are copied. wake
 * is called from the thread when it has ended by itself. w is borrowed. */
int model_id_new(struct model_id **out, const struct weights *w, const char *dir, const char *also,
                 void (*wake)(void *arg), void *arg, struct qn_error *e);
/* Ends the thread within a block of a MB; what it had computed of the file it is at is lost. NULL is fine. */
void model_id_free(struct model_id *m);
/* Whether the thread has ended, or there was no need for one. */
bool model_id_is_done(struct model_id *m);
/* After that: the hash of all files' hashes. QN_EIO and others: why there is none. */
int model_id_get(struct model_id *m, uint8_t out[SHA256_BYTES], struct qn_error *e);

#endif
