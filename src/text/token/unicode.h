/* SPDX-License-Identifier: MIT
 *
 * unicode.h: UTF-8 that may be broken, the byte alphabet of byte-level BPE, white space, widths, and NFC.
 *
 * Functions that append return 0 or QN_ENOMEM. All are pure and thread-safe.
 */
#ifndef QUERN_TEXT_UNICODE_H
#define QUERN_TEXT_UNICODE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"

#define UNICODE_BAD         0xFFFFFFFFu /* not a code point: the bytes are not UTF-8 */
#define UNICODE_REPLACEMENT "\xEF\xBF\xBD"
#define UNICODE_SPACE_MARK  "\xE2\x96\x81" /* U+2581, which stands for a space in SentencePiece vocabularies */

/* Returns the length of the first character at p, 1 to 4 and at most n > 0, and sets *cp to its code point. For bytes
 * that are not UTF-8, *cp is UNICODE_BAD and the result is the length of the "maximal subpart", for which one U+FFFD
 * stands (Unicode 15, section 3.9). *cut: the bytes could begin a character if more followed. */
unsigned unicode_next(const uint8_t *p, size_t n, uint32_t *cp, bool *cut);
bool unicode_is_utf8(const uint8_t *p, size_t n);
/* Appends the text with U+2581 in the place of every space (0x20). */
int unicode_mark_spaces(const uint8_t *p, size_t n, struct buf *out, struct qn_error *e);
/* Appends the text with a space in the place of every U+2581. */
int unicode_unmark_spaces(const uint8_t *p, size_t n, struct buf *out, struct qn_error *e);

/* How many cells of a terminal the character takes: 2 for wide ones, 0 for those that combine with the one before. */
unsigned unicode_cells(uint32_t cp);
/* Whether the character has Unicode's property White_Space. */
bool unicode_is_space(uint32_t cp);
/* How many bytes of white space the text begins with, and ends with. */
size_t unicode_leading_spaces(const uint8_t *p, size_t n);
size_t unicode_trailing_spaces(const uint8_t *p, size_t n);

/* Byte-level BPE writes bytes as characters. Each byte has a printable code point below 0x144. */
uint32_t unicode_from_byte(uint8_t byte);
int unicode_to_byte(uint32_t cp); /* -1 when cp is not in the alphabet */

/* Appends the text in Normalisation Form C. Bytes that are not UTF-8 stay as they are. When the text is certainly NFC
 * already, sets *same and appends nothing. */
int unicode_nfc(const uint8_t *p, size_t n, struct buf *out, bool *same, struct qn_error *e);

#endif
