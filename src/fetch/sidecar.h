/* SPDX-License-Identifier: MIT
 *
 * sidecar.h: what is known of a file that has come in part: its source, its version, and which bytes are there. It is a
 * small JSON file next to the part.
 *
 * Bytes are `written` once the system has them: they survive this process, however it ends, but not a crash of the
 * machine. Bytes are `synced` once the disk has them. So `written` counts only until the machine is restarted, and
 * `boot` names the start of the machine; after a restart `synced` counts. So the sidecar can be written after every few
 * bytes, and the disk is waited for seldom.
 */
#ifndef QUERN_FETCH_SIDECAR_H
#define QUERN_FETCH_SIDECAR_H

#include <stdbool.h>

#include "fetch/spans.h"

struct sidecar {
    char *url;     /* of the source, without its query, which may contain secrets; owned */
    char *version; /* the version of the file (remote_file.h); "": versions cannot be told apart; owned */
    uint64_t size;
    struct spans written, synced;
};

void sidecar_deinit(struct sidecar *s);
/* Parses a sidecar into *s. boot: the id of the machine's current start. QN_EDATA: malformed, and *s is empty then. The
 * spans fit `size` and are in order. */
int sidecar_parse(struct sidecar *s, const char *text, size_t n, const char *boot, struct qn_error *e);
/* Reads the file at path; 1: there is none. Otherwise as sidecar_parse(). */
int sidecar_load(struct sidecar *s, const char *path, struct qn_error *e);
/* Replaces the file in one step or not at all. durable: returns when the disk has it. */
int sidecar_save(const struct sidecar *s, const char *path, bool durable, struct qn_error *e);
/* Removes the file, and a file that an interrupted sidecar_save() may have left. */
void sidecar_remove(const char *path);

#endif
