/* SPDX-License-Identifier: MIT
 *
 * chat_run.h: one run of `quern chat`: the conversation, the place that answers, and how it is shown.
 */
#ifndef QUERN_CLI_CHAT_RUN_H
#define QUERN_CLI_CHAT_RUN_H

#include <jansson.h>

#include "cli/core/cli.h"
#include "cli/place/persona.h"
#include "cli/place/place.h"
#include "cli/place/receipt_file.h"
#include "cli/core/render.h"
#include "cli/core/talk.h"
#include "client/client_chat.h"

struct chat_options {
    const char *persona, *system, *system_file, *load;
    struct cli_strings args, files; /* args: of the persona; files: of the first message */
    const char *context;            /* what happens when it is full; NULL: as the server does */
    bool go_on, no_keep;
    int max_tokens; /* most tokens of a reply; 0: as many as the context has room for */
    struct qn_sampling sampling;
    struct place_options place;
    struct receipt_options receipt;
};

/* Lines that complete the one being typed. */
struct chat_words {
    char **v;
    size_t n;
};

struct chat_run {
    struct chat_options *o;
    const struct invocation *invocation;
    const struct persona *persona; /* a built-in persona; NULL: none */
    struct place place;
    bool broken; /* the connection cannot be used again */
    bool person; /* a person is at a terminal; otherwise each line is a message, and the first failure ends the run */
    bool gone;   /* nobody reads the output */
    struct talk talk;
    struct render render;
    struct chat_result last; /* the last reply; n_generated is -1 before the first */
    struct buf files;        /* the texts of /file and --file for the next message, as it will have them; empty: none */
    size_t n_files;
    struct chat_words words; /* for Tab */
    char *model;             /* o->place.model points to it after /model; owned */
};

/* From here on Ctrl-C ends a reply and not the program. */
void chat_catch_interrupts(void);

/* Asks for a reply to the conversation, whose last message is the user's. Shows the reply and adds it. Returns 0, or
 * an exit status after a message. A reply that was cut is kept as far as it came. If it cannot be shown, c->gone is
 * set. */
int chat_turn(struct chat_run *c);
/* The request for a reply, for json_decref(); NULL: no memory. */
json_t *chat_request(const struct chat_run *c);
/* Connects again if necessary. Returns 0 or an exit status, after a message. */
int chat_connect(struct chat_run *c);

/* ---- files ---- */

/* Adds the text of a file to the next message. *n_bytes: its size. Errors are those of input_open() and input_read().
 */
int chat_add_file(struct chat_run *c, const char *path, size_t *n_bytes, struct qn_error *e);
/* Appends the next message: the files, which are then no longer there, and the text. */
int chat_compose(struct chat_run *c, const char *text, size_t n, struct buf *out, struct qn_error *e);

/* ---- commands ---- */

/* What happens after a command, if it does not end the program with an exit status. */
enum { CHAT_STAY = -1, CHAT_ASK = -2 };

/* Whether a text is a command: a slash and letters, alone or before a space. */
bool chat_is_command(const char *text);
/* Runs a command. Returns CHAT_STAY; CHAT_ASK: a reply must be requested; or the exit status to end with. */
int chat_command(struct chat_run *c, const char *text);
/* The i-th command that begins with the line, or after a command the i-th file or model (an edit_completer). */
const char *chat_complete(void *arg, const char *line, size_t n, size_t i);
/* Finds the lines that complete a command's argument; n bytes of the line are there. Failures find nothing. */
void chat_words_find(struct chat_words *w, struct chat_run *c, const char *line, size_t n);
void chat_words_clear(struct chat_words *w);

#endif
