/* SPDX-License-Identifier: MIT
 *
 * sidecar.h: what is known of a file that has come in part: where it comes from, which version of it, and which bytes
 * are there. Lies beside the part as a small JSON file.
 *
 * Bytes are `written` once the system has them: they outlive this process, however it ends, but not the machine's fall.
 * `synced` are those that the disk has. So `written` counts only as long as the machine runs that wrote it, which
 * `boot` names; after that `synced` does. That way the file can be written after every few bytes and the disk is waited
 * for seldom.
 */
#ifndef QUERN_FETCH_SIDECAR_H
#define QUERN_FETCH_SIDECAR_H

#include <stdbool.h>

#include "fetch/spans.h"

struct sidecar {
    char *url;     /* of the source, less its query, which may have secrets */
    char *version; /* what tells one version of the file from another; "": nothing does */
    uint64_t size;
    struct spans written, synced;
};

void sidecar_deinit(struct sidecar *s);
/* boot: of now. QN_EDATA: malformed; *s is empty then. What comes out fits `size` and is in order. */
int sidecar_parse(struct sidecar *s, const char *text, size_t n, const char *boot, struct qn_error *e);
/* As sidecar_parse; 1 when there is no such file. */
int sidecar_load(struct sidecar *s, const char *path, struct qn_error *e);
/* Replaces the file at once or not at all. durable: and returns when the disk has it. */
int sidecar_save(const struct sidecar *s, const char *path, bool durable, struct qn_error *e);
/* Removes the file, and what an interrupted sidecar_save() may have left. */
void sidecar_remove(const char *path);

#endif
