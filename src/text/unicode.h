/* SPDX-License-Identifier: MIT
 *
 * unicode.h: UTF-8 as it really arrives, the byte alphabet of byte-level BPE, and NFC.
 */
#ifndef QUERN_TEXT_UNICODE_H
#define QUERN_TEXT_UNICODE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"

#define UNICODE_BAD         0xFFFFFFFFu /* not a code point: the bytes are not UTF-8 */
#define UNICODE_REPLACEMENT "\xEF\xBF\xBD"
#define UNICODE_SPACE_MARK  "\xE2\x96\x81" /* U+2581, what a space is called inside SentencePiece vocabularies */

/* Bytes of the first character at p, and its code point. For bytes that are not UTF-8 *cp is UNICODE_BAD and
 * the result is the length of the "maximal subpart" (Unicode 15, section 3.9: what one U+FFFD stands for);
 * *cut tells that they could begin a character if more followed. n > 0; the result is 1..4 and <= n. */
unsigned unicode_next(const uint8_t *p, size_t n, uint32_t *cp, bool *cut);
bool unicode_is_utf8(const uint8_t *p, size_t n);
/* Appends the text with U+2581 for every space (0x20). */
int unicode_mark_spaces(const uint8_t *p, size_t n, struct buf *out, struct qn_error *e);
/* The inverse: appends the text with a space for every U+2581. */
int unicode_unmark_spaces(const uint8_t *p, size_t n, struct buf *out, struct qn_error *e);

/* Unicode's White_Space. */
bool unicode_is_space(uint32_t cp);
/* Bytes of white space that p begins or ends with. */
size_t unicode_spaces_before(const uint8_t *p, size_t n);
size_t unicode_spaces_behind(const uint8_t *p, size_t n);

/* Byte-level BPE writes bytes as characters: each byte has a printable code point below 0x144. */
uint32_t unicode_from_byte(uint8_t byte);
int unicode_to_byte(uint32_t cp); /* -1 when cp is not in the alphabet */

/* Appends the text in Normalisation Form C; bytes that are not UTF-8 pass unchanged. When the text is certain
 * to be NFC already, *same is set and nothing appended. */
int unicode_nfc(const uint8_t *p, size_t n, struct buf *out, bool *same, struct qn_error *e);

#endif
