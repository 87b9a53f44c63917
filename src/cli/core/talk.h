/* SPDX-License-Identifier: MIT
 *
 * talk.h: a conversation, and its file.
 *
 * The file has one message per line as JSON, oldest first, for jq, grep and an editor:
 *
 *      {"role":"user","content":"Hello"}
 *      {"role":"assistant","reasoning_content":"A greeting.","content":"Hello!"}
 *
 * role is system, user or assistant. A reply may have reasoning_content, and "cut":true if it was stopped. These are
 * the names of the API. Any text is kept without loss. A file that is not a conversation is refused, with the number
 * of the line.
 *
 * This module does not ask models.
 */
#ifndef QUERN_CLI_TALK_H
#define QUERN_CLI_TALK_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>

#include "base/buf.h"

enum talk_role { TALK_SYSTEM, TALK_USER, TALK_ASSISTANT };

struct talk_message {
    enum talk_role role;
    char *content, *thoughts; /* NUL-terminated, and may have other NULs inside; thoughts: NULL for none */
    size_t n_content, n_thoughts;
    bool cut; /* the reply was stopped before its end */
};

struct talk {
    struct talk_message *v;
    size_t n;
}; /* zeroed: empty */

/* The name of a role in the API and in the file. */
const char *talk_role_name(enum talk_role role);

/* Appends a message with copies of the texts; thoughts may be NULL. */
int talk_add(struct talk *t, enum talk_role role, const char *content, size_t n, const char *thoughts,
             size_t n_thoughts, bool cut, struct qn_error *e);
/* Sets the system message, which is the first; n 0 removes it. */
int talk_set_system(struct talk *t, const char *content, size_t n, struct qn_error *e);
/* Removes the reply at the end, if there is one. Returns whether the last message now waits for a reply. */
bool talk_drop_reply(struct talk *t);
/* Removes the user's last message and the reply to it. Returns false if there is none. */
bool talk_undo(struct talk *t);
/* Removes and releases all messages. */
void talk_clear(struct talk *t);

/* The messages as a request has them, for json_decref(); NULL: no memory. with_thoughts: with reasoning_content, which
 * servers of others refuse. */
json_t *talk_json(const struct talk *t, bool with_thoughts);

/* Writes the file completely or not at all. An existing file must be a conversation: no other file is overwritten. Only
 * its owner can read it. */
int talk_save(const struct talk *t, const char *path, struct qn_error *e);
/* Replaces t by the conversation in the file. After an error t is unchanged. */
int talk_load(struct talk *t, const char *path, struct qn_error *e);
/* The same for the text of a file; `name` stands for it in messages. */
int talk_parse(struct talk *t, const char *name, const char *text, size_t n, struct qn_error *e);

#endif
