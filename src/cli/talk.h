/* SPDX-License-Identifier: MIT
 *
 * talk.h: a conversation, and its file.
 *
 * The file is lines of JSON, one message each, oldest first, for jq and grep and an editor:
 *
 *     {"role":"user","content":"Hello"}
 *     {"role":"assistant","reasoning_content":"A greeting.","content":"Hello!"}
 *
 * role is system, user or assistant; a reply may have reasoning_content, and "cut":true when it was stopped. These are
 * the names of the API's messages. Any text without loss; what is not such a file is refused with the line's number.
 *
 * Does not ask models.
 */
#ifndef QUERN_CLI_TALK_H
#define QUERN_CLI_TALK_H

#include <stdbool.h>
#include <stddef.h>

#include "base/buf.h"

enum talk_role { TALK_SYSTEM, TALK_USER, TALK_ASSISTANT };

struct talk_message {
    enum talk_role role;
    char *content, *thoughts; /* NUL-terminated, may have more NULs inside; thoughts: NULL for none */
    size_t n_content, n_thoughts;
    bool cut; /* the reply was stopped before its end */
};

struct talk {
    struct talk_message *v;
    size_t n;
}; /* zeroed: empty */

const char *talk_role_name(enum talk_role role);

/* Appends a message; thoughts may be NULL. The texts are copied. */
int talk_add(struct talk *t, enum talk_role role, const char *content, size_t n, const char *thoughts,
             size_t n_thoughts, bool cut, struct qn_error *e);
/* Sets the system message, which is the first; of no bytes: there is none. */
int talk_set_system(struct talk *t, const char *content, size_t n, struct qn_error *e);
/* Takes the reply at the end away, if there is one. Whether the last message now waits for a reply. */
bool talk_drop_reply(struct talk *t);
/* Takes the last message of the user's away, with the reply to it. False: there is none. */
bool talk_undo(struct talk *t);
void talk_clear(struct talk *t);

/* Writes the file, whole or not at all. One that is there already has to be a conversation: nothing else is
 * overwritten. */
int talk_save(const struct talk *t, const char *path, struct qn_error *e);
/* t becomes what is in the file; on an error it stays what it was. */
int talk_load(struct talk *t, const char *path, struct qn_error *e);
/* The same of a file's text, `name` in messages. */
int talk_parse(struct talk *t, const char *name, const char *text, size_t n, struct qn_error *e);

#endif
