/* SPDX-License-Identifier: MIT
 *
 * editlib.h: libedit, loaded when it is needed.
 *
 * Linking it would add 0.4 ms to every start of the program, and most runs edit no line. So its functions come from
 * dlopen(), with the types of <histedit.h>.
 */
#ifndef QUERN_CLI_EDITLIB_H
#define QUERN_CLI_EDITLIB_H

#include <histedit.h>

#include "base/error.h"

struct editlib {
    __typeof__(el_init) *init;
    __typeof__(el_end) *end;
    __typeof__(el_source) *source;
    __typeof__(el_wset) *set;
    __typeof__(el_wget) *get;
    __typeof__(el_wgets) *gets;
    __typeof__(el_wline) *line;
    __typeof__(el_resize) *resize;
    __typeof__(el_winsertstr) *insert;
    __typeof__(el_deletestr) *erase;
    __typeof__(history_winit) *history_init;
    __typeof__(history_wend) *history_end;
    __typeof__(history_w) *history;
};

/* Loads libedit once; it stays loaded. NULL: it is not installed, or another version. */
const struct editlib *editlib_load(struct qn_error *e);

#endif
