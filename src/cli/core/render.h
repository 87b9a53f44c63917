/* SPDX-License-Identifier: MIT
 *
 * render.h: shows a model's reply to a person while it arrives.
 *
 * The text of a model is not trusted: on a terminal it must not move the cursor, set a title or ask the terminal
 * anything. Control characters (C1 too), characters that reorder a line, and bytes that are not UTF-8 are shown as
 * `\xNN`. Line feeds and tabs stay. If the output is not a terminal, bytes are written as they are.
 *
 * Thoughts come before the answer. They are dimmed if there is colour, marked with `| ` if there is none, and shown on
 * a terminal only. If they are folded, one line says how long they took.
 *
 * An answer is laid out by markup.h. This module does not know where replies come from.
 */
#ifndef QUERN_CLI_RENDER_H
#define QUERN_CLI_RENDER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"
#include "cli/core/markup.h"

enum render_part { RENDER_NOTHING, RENDER_THOUGHT, RENDER_ANSWER };

struct render {
    int fd;
    bool terminal, colour, fold; /* `fold` may be changed between replies */
    enum render_part part;       /* the part that was written last in this reply */
    bool line_begins;            /* the line is empty so far */
    bool noted;                  /* the line has a note */
    uint8_t held[4];             /* the first bytes of a character that is not complete */
    unsigned n_held;
    size_t n_blank;       /* line breaks that wait until something follows them */
    uint64_t thinking_ns; /* the time when the thoughts began */
    struct markup markup; /* of the answer */
    struct buf shown;     /* a character as it may be shown */
    struct buf out;       /* collects a piece, for one write */
};

/* Prepares for a descriptor. term.h decides whether there is colour. */
void render_init(struct render *r, int fd);
/* Writes a piece of the thoughts or of the answer. QN_EIO (errno is set): it cannot be written; QN_ENOMEM. */
int render_thought(struct render *r, const char *p, size_t n, struct qn_error *e);
int render_answer(struct render *r, const char *p, size_t n, struct qn_error *e);
/* Shows a note in the line until the reply begins. Does nothing without colour. */
int render_note(struct render *r, const char *p, size_t n, struct qn_error *e);
/* Ends the reply: the cursor is on a line of its own. */
int render_end(struct render *r, struct qn_error *e);
/* Releases the buffer. */
void render_deinit(struct render *r);

/* Appends text as a terminal may see it. An incomplete character at the end counts as wrong bytes. */
int render_clean(struct buf *out, const char *p, size_t n, struct qn_error *e);

#endif
