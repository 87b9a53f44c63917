/* SPDX-License-Identifier: MIT
 *
 * chat.h: what the parts of `quern chat` share: one conversation, where it is answered, how it is shown.
 */
#ifndef QUERN_CLI_CHAT_H
#define QUERN_CLI_CHAT_H

#include <jansson.h>

#include "cli/cli.h"
#include "cli/persona.h"
#include "cli/place.h"
#include "cli/render.h"
#include "cli/talk.h"
#include "client/chat.h"

struct chat_options {
    const char *persona, *system, *system_file, *load;
    int max_tokens; /* tokens of a reply at most; 0: what the context has room for */
    struct qn_sampling sampling;
    struct place_options place;
};

struct chat {
    struct chat_options *o;
    const struct invocation *invocation;
    const struct persona *persona; /* a built-in one; NULL: none */
    struct place place;
    bool broken; /* the connection cannot be used again */
    bool person; /* at a terminal: otherwise lines are messages, and the first failure ends it */
    bool gone;   /* nobody reads what is said */
    struct talk talk;
    struct render render;
    struct chat_result last; /* of the last reply; n_generated is -1 before the first */
    char *model;             /* what o->place.model points to once /model was used; owned */
};

/* From now on Ctrl-C ends a reply and not the program. */
void chat_catch_interrupts(void);

/* Asks for a reply to the conversation, whose last message is the user's; shows it and adds it. 0, or an exit status
 * after a line on stderr. A reply that was cut is kept as far as it came. When it cannot be shown, c->gone is set. */
int chat_turn(struct chat *c);
/* The request for a reply; NULL: no memory. */
json_t *chat_request(const struct chat *c);
/* A connection for the next exchange. 0 or an exit status, after a line on stderr. */
int chat_connect(struct chat *c);

/* ---- commands ---- */

enum { CHAT_STAY = -1, CHAT_ASK = -2 }; /* what follows a command, if not the end with an exit status */

/* Whether a text is a command: a slash and letters, alone or before a space. */
bool chat_is_command(const char *text);
/* Does what a command says. CHAT_STAY; CHAT_ASK: a reply is to be asked for; or the exit status to end with. */
int chat_command(struct chat *c, const char *text);
/* The i-th command that begins so (edit_completer). */
const char *chat_complete(void *arg, const char *line, size_t n, size_t i);

#endif
