/* SPDX-License-Identifier: MIT
 *
 * model_id.h: identifies a model by the SHA-256 of each of its files, whatever these are called.
 *
 * The hash of every file is remembered (base/file_hash.h). If some are not remembered yet, a thread computes them. It
 * leaves the disk, the CPU and the page cache to anything else that needs them. Small files are hashed at once.
 */
#ifndef QUERN_ENGINE_MODEL_ID_H
#define QUERN_ENGINE_MODEL_ID_H

#include "format/weights.h"
#include "base/sha256.h"

struct model_id;

/* dir: the folder where hashes are remembered; also: another such folder, which is only read (NULL: none). Both are
 * copied. The thread calls wake at its end, unless model_id_free() ended it. w is borrowed until model_id_free(). */
int model_id_new(struct model_id **out, const struct weights *w, const char *dir, const char *also,
                 void (*wake)(void *arg), void *arg, struct qn_error *e);
/* Ends the thread, at the latest after the present block of 1 MB. The hash of a file that is not complete is lost. NULL
 * is fine. */
void model_id_free(struct model_id *m);
/* Returns true if the thread has ended, or none was necessary. */
bool model_id_is_done(struct model_id *m);
/* Call it when model_id_is_done(). out: the hash of all files' hashes. QN_EIO, or another error: the files could not be
 * hashed. */
int model_id_get(struct model_id *m, uint8_t out[SHA256_BYTES], struct qn_error *e);

#endif
