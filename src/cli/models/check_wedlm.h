/* SPDX-License-Identifier: MIT
 *
 * check_wedlm.h: `quern check --wedlm`: which token behaves like the mask of a WeDLM.
 *
 * A mask's row says what stands at its own place. So the rows of a few masks after a text should name the tokens with
 * which plain decoding continues the text, and with little entropy. Any other token names what follows it. Each
 * candidate is tried after a few texts: the mask of the file, tokens with the text of a mask, the ids that WeDLM's
 * engines use, and all control tokens.
 */
#ifndef QUERN_CLI_CHECK_WEDLM_H
#define QUERN_CLI_CHECK_WEDLM_H

#include <quern.h>

/* Prints a line for each of the best candidates. Returns 0 if the mask of the file is the best one; else an exit
 * status, after a message: the model cannot have windows, no token behaves like a mask, or another one does. */
int check_wedlm(const char *path, const struct qn_model_params *file);

#endif
