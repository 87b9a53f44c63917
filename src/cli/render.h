/* SPDX-License-Identifier: MIT
 *
 * render.h: a model's reply on its way to a person, as it comes.
 *
 * What a model writes is foreign: on a terminal, nothing of it may move the cursor, set a title or ask the terminal a
 * question. Control characters (C1 too), those that reorder a line, and bytes that are not UTF-8 are shown as `\xNN`;
 * line feeds and tabs stay. Where no terminal is, bytes go out as they are.
 *
 * Thoughts come before the answer: dimmed where there is colour, behind `| ` where there is none, and nowhere but on a
 * terminal. Folded, one line says how long they took.
 *
 * Does not know where replies come from, and formats no markdown.
 */
#ifndef QUERN_CLI_RENDER_H
#define QUERN_CLI_RENDER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"

enum render_part { RENDER_NOTHING, RENDER_THOUGHT, RENDER_ANSWER };

struct render {
    int fd;
    bool terminal, colour, fold; /* fold may be changed between replies */
    enum render_part part;       /* of what was written last in this reply */
    bool line_begins;            /* nothing stands in the line yet */
    bool noted;                  /* a note stands in the line */
    uint8_t held[4];             /* the beginning of a character whose rest has not come */
    unsigned n_held;
    size_t n_blank;       /* line breaks that are written once something follows them */
    uint64_t thinking_ns; /* when it began */
    struct buf out;       /* one write for each piece */
};

/* For a descriptor; whether there is colour: term.h. */
void render_init(struct render *r, int fd);
/* A piece of the reply. QN_EIO when it cannot be written (errno), QN_ENOMEM. */
int render_thought(struct render *r, const char *p, size_t n, struct qn_error *e);
int render_answer(struct render *r, const char *p, size_t n, struct qn_error *e);
/* What goes on while nothing comes: in the line, until something does. Only where there is colour. */
int render_note(struct render *r, const char *p, size_t n, struct qn_error *e);
/* Ends the reply, on a line of its own. */
int render_end(struct render *r, struct qn_error *e);
void render_deinit(struct render *r);

/* Appends text as a terminal may see it; the beginning of a character at the end counts as wrong. */
int render_clean(struct buf *out, const char *p, size_t n, struct qn_error *e);

#endif
