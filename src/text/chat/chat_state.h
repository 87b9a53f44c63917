/* SPDX-License-Identifier: MIT
 *
 * chat_state.h: the state of a reply that is being read, shared by the files that read its parts.
 *
 * The reader of a reply is a state machine over the unread text. Each state looks at that text and takes some of it,
 * goes on to another state, or waits for more. A state decides nothing that more text could change, so the result does
 * not depend on how the text was cut.
 */
#ifndef QUERN_TEXT_CHAT_STATE_H
#define QUERN_TEXT_CHAT_STATE_H

#include <jansson.h>

#include "base/buf.h"
#include "text/chat/chat_form.h"
#include "text/chat/tool_json.h"

#define CHAT_MAX_NAME 256 /* bytes of a tool's or a parameter's name */

struct chat_reply;
/* A state. False: it waits for more text, or is done when no more will come. */
typedef bool chat_state(struct chat_reply *r);

struct chat_event {
    enum qn_reply_kind kind;
    int call;
    size_t at, n; /* in out */
};

struct chat_reply {
    struct chat_form form;
    const json_t *tools; /* borrowed; NULL: no calls */
    chat_state *state;
    bool trim; /* the white space that comes next is dropped */
    bool last; /* no more text will come */

    struct buf in;
    size_t at;       /* in.data[at..] is unread */
    size_t searched; /* the mark that the state looks for begins in none of so many unread bytes */

    struct buf out; /* the texts of the events */
    struct chat_event *event;
    size_t n_events, cap_events, next;

    /* the call being read */
    int n_calls;    /* how many came before it */
    struct buf raw; /* its text as the model wrote it, with its opening mark */
    struct tool_json json;
    bool begun;           /* its QN_REPLY_CALL was given out */
    bool bare;            /* JSON without any mark: it is a call only if its name is that of a tool */
    bool listed;          /* it is an element of a list */
    struct buf name, key; /* <function=NAME><parameter=KEY> */
    json_t *keys;         /* an object whose members are the parameters that came */

    /* name(key=value) */
    const char *python_end; /* the mark that ends the calls; NULL: there is none. Static */
    char quote;             /* of the value that is read: the quotation mark of the text that it is in; NUL: none */
    int depth;              /* its open brackets */

    enum qn_reply_kind channel; /* gpt-oss: what the text of the message is */

    int rc; /* the first failure; nothing happens after it */
    struct qn_error error;
};

/* ---- unread text ---- */

static inline const char *chat_text(const struct chat_reply *r) { return (const char *)r->in.data + r->at; }
static inline size_t chat_left(const struct chat_reply *r) { return r->in.len - r->at; }

void chat_skip(struct chat_reply *r, size_t n); /* drops n unread bytes */
void chat_take(struct chat_reply *r, size_t n); /* moves n unread bytes to the call's own text */
void chat_take_space(struct chat_reply *r);     /* moves the white space at the beginning */
/* Finds the first such mark in the unread text, and remembers how much was searched. */
bool chat_find(struct chat_reply *r, const char *mark, size_t *at);

enum chat_match { CHAT_NO, CHAT_YES, CHAT_PART /* the text ends within the mark, and more may come */ };
/* Whether the unread text, without its first `skip` bytes, begins with the mark. */
enum chat_match chat_match(const struct chat_reply *r, size_t skip, const char *mark);

/* Gives out the text before the first of the marks (NULL ends the list), and drops the mark with the white space before
 * it. Returns which mark it was; -1: none came yet. */
int chat_give_until(struct chat_reply *r, enum qn_reply_kind kind, const char *const *marks);

/* ---- what comes out ---- */

void chat_give(struct chat_reply *r, enum qn_reply_kind kind, const void *p, size_t n);
void chat_fail(struct chat_reply *r, int rc); /* keeps the first failure, which is in r->error; 0 is none */

/* ---- states ---- */

void chat_begin(struct chat_reply *r); /* begins a part of the reply: thoughts, content or a call may come */
chat_state chat_content;
chat_state chat_harmony_head, chat_harmony_body, chat_harmony_between;

bool chat_is_name(const char *p, size_t n);                            /* letters, digits and _-.:/ */
bool chat_is_tool(const struct chat_reply *r, const struct buf *name); /* one of the request's */
/* Begins a call, and takes its opening mark of n unread bytes. */
void chat_begin_call(struct chat_reply *r, size_t n, chat_state *state);
/* Gives out the call's name. From now on the call has an index. */
void chat_name_call(struct chat_reply *r, const void *name, size_t n);
void chat_end_call(struct chat_reply *r);
/* For text that turned out not to be a call: it comes out as it is. Returns true, for the state to return. */
bool chat_bad_call(struct chat_reply *r);
/* For a state that needs more text: waits for it, or, when no more will come, ends the call as a bad one. */
bool chat_need_more(struct chat_reply *r);

chat_state chat_call_tag, chat_call_json, chat_call_mistral, chat_call_code; /* after the mark of each form */
chat_state chat_call_function;                                               /* tool_xml.c: after <function= */
/* tool_python.c: after <|tool_call_start|>, <|python_start|>, <function_calls>, ```tool_code, and without a mark */
chat_state chat_call_start, chat_call_python, chat_call_calls, chat_call_block, chat_call_bare;

#endif
