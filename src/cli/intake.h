/* SPDX-License-Identifier: MIT
 *
 * intake.h: a text of any encoding, read from a descriptor as UTF-8, block by block.
 *
 * What begins with a byte order mark is what the mark says (UTF-8, UTF-16, UTF-32). Anything else is UTF-8; bytes in it
 * that are none are taken, each for itself, as Windows-1252, of which Latin-1 is nearly a part, and counted: a file in
 * one of these encodings comes out right, and so does a log of several programs. An encoding that is named is read
 * strictly.
 *
 * What is no text at all is refused: files that begin as well-known formats do, and what has NUL bytes, or among its
 * first bytes many other control characters.
 */
#ifndef QUERN_CLI_INTAKE_H
#define QUERN_CLI_INTAKE_H

#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"
#include "base/error.h"

struct intake;

/* Bytes that are looked at to tell what a text is. */
#define INTAKE_LOOK 4096
/* What intake_read() needs at least. */
#define INTAKE_MIN 64

/* fd and name ("standard input", "'a.log'") are borrowed. encoding: a name that iconv(3) knows; NULL: found out. Reads
 * the first bytes. QN_EDATA: no text; QN_EUSAGE: no such encoding; QN_EIO, QN_ENOINPUT: cannot be read. */
int intake_open(struct intake **out, int fd, const char *name, const char *encoding, struct qn_error *e);
/* At most cap bytes, whole characters, none of them NUL; *n is 0 only at the end. QN_EDATA names the offset. */
int intake_read(struct intake *in, char *out, size_t cap, size_t *n, struct qn_error *e);
/* How many bytes have been taken as Windows-1252; the offset of the first. */
uint64_t intake_n_odd(const struct intake *in, uint64_t *first);
void intake_close(struct intake *in); /* NULL is fine; the descriptor stays open */

/* Adds a word of the command line: what is not UTF-8 in it is taken as above. */
int intake_word(struct buf *out, const char *word, struct qn_error *e);

/* What a file that begins so is, "an ELF file"; NULL: nothing that is known. For n up to INTAKE_LOOK. */
const char *intake_format(const uint8_t *p, size_t n);

#endif
