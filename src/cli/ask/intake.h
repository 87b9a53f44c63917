/* SPDX-License-Identifier: MIT
 *
 * intake.h: reads a text of any encoding from a descriptor, as UTF-8, block by block.
 *
 * A byte order mark decides (UTF-8, UTF-16, UTF-32). Any other text is UTF-8. Each byte in it that is not part of
 * UTF-8 is read as Windows-1252, which nearly contains Latin-1, and is counted. So a file in one of these encodings is
 * read correctly, and so is a log of several programs. A named encoding is read strictly.
 *
 * Input that is not text is refused: files that begin like a well-known format, files with NUL bytes, and files with
 * many other control characters among the first bytes.
 */
#ifndef QUERN_CLI_INTAKE_H
#define QUERN_CLI_INTAKE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"
#include "base/error.h"

struct intake;

/* The number of first bytes that decide what a text is. */
#define INTAKE_LOOK 4096
/* Asked after a signal whether reading ends with QN_EIO; NULL: it goes on. Set it before there are threads. */
extern bool (*intake_is_cancelled)(void);
/* The least cap of intake_read(). */
#define INTAKE_MIN 64

/* Reads the first bytes. fd and name ("standard input", "'a.log'") are borrowed. encoding: a name that iconv(3)
 * knows; NULL: find out. is_live: the text comes slowly, so what it is is decided by the bytes that come first, and
 * intake_read() does not wait for more than there are. QN_EDATA: it is not text; QN_EUSAGE: no such encoding; QN_EIO,
 * QN_ENOINPUT: it cannot be read.
 */
int intake_open(struct intake **out, int fd, const char *name, const char *encoding, bool is_live, struct qn_error *e);
/* Reads at most cap bytes: whole characters without NUL. *n is 0 only at the end. QN_EDATA names the offset. */
int intake_read(struct intake *in, char *out, size_t cap, size_t *n, struct qn_error *e);
/* The number of bytes that were read as Windows-1252; *first is the offset of the first. */
uint64_t intake_n_odd(const struct intake *in, uint64_t *first);
void intake_close(struct intake *in); /* NULL is fine; the descriptor stays open */

/* Appends a word of the command line. Bytes that are not UTF-8 are read as above. */
int intake_word(struct buf *out, const char *word, struct qn_error *e);

/* The kind of file that begins with these bytes, such as "an ELF file"; NULL: not known. For n up to INTAKE_LOOK. */
const char *intake_format(const uint8_t *p, size_t n);

#endif
