/* SPDX-License-Identifier: MIT
 *
 * code_block.h: the code in an answer in Markdown.
 */
#ifndef QUERN_CLI_CODE_BLOCK_H
#define QUERN_CLI_CODE_BLOCK_H

#include <stddef.h>

/* Finds the first fenced code block (CommonMark 0.31, section 4.5) of a text. Returns its first byte and sets *len: all
 * lines between the fences. A block that is not closed ends with the text. NULL: there is none. */
const char *code_block_find(const char *text, size_t n, size_t *len);

#endif
