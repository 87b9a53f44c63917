/* SPDX-License-Identifier: MIT
 *
 * chat_state.h: the state of a reply that is being read, for the files that read its parts.
 *
 * A reply is a state machine over its unread text. Each state looks at that text and either takes some of it, goes on
 * to another state, or waits for more. A state decides nothing that more text could change, so the result does not
 * depend on how the text was cut.
 */
#ifndef QUERN_TEXT_CHAT_STATE_H
#define QUERN_TEXT_CHAT_STATE_H

#include <jansson.h>

#include "base/buf.h"
#include "text/chat_form.h"
#include "text/tool_json.h"

#define CHAT_MAX_NAME 256 /* bytes of a tool's or a parameter's name */

struct chat_reply;
/* False: it waits for more text (or is done, when there will be none). */
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
    bool trim; /* white space that comes now is dropped */
    bool last; /* no more text will come */

    struct buf in;
    size_t at;       /* in.data[at..] is unread */
    size_t searched; /* so many unread bytes do not begin what the state looks for */

    struct buf out; /* the texts of the events */
    struct chat_event *event;
    size_t n_events, cap_events, next;

    /* the call being read */
    int n_calls;    /* given out before */
    struct buf raw; /* what it is written with, its opening mark included */
    struct tool_json json;
    bool begun;           /* CALL was given out */
    bool bare;            /* JSON without any mark: a call only if its name is that of a tool */
    bool listed;          /* an element of a list */
    struct buf name, key; /* <function=NAME><parameter=KEY> */
    json_t *keys;         /* object: the parameters that came */

    enum qn_reply_kind channel; /* harmony: what the text is */

    int rc; /* the first failure; nothing happens after it */
    struct qn_error error;
};

/* ---- unread text ---- */

static inline const char *chat_text(const struct chat_reply *r) { return (const char *)r->in.data + r->at; }
static inline size_t chat_left(const struct chat_reply *r) { return r->in.len - r->at; }

void chat_skip(struct chat_reply *r, size_t n);                     /* drops n unread bytes */
void chat_take(struct chat_reply *r, size_t n);                     /* moves them to the call's own text */
void chat_take_space(struct chat_reply *r);                         /* white space, all there is */
bool chat_find(struct chat_reply *r, const char *mark, size_t *at); /* the first one; remembers what was searched */

enum chat_match { CHAT_NO, CHAT_YES, CHAT_PART /* the text ends within the mark, and more may come */ };
/* Whether the unread text behind `skip` bytes begins with the mark. */
enum chat_match chat_match(const struct chat_reply *r, size_t skip, const char *mark);

/* Gives out text up to the first of the marks (NULL-terminated) and takes that; which one it was, or -1. White space
 * before the mark goes with it. */
int chat_give_until(struct chat_reply *r, enum qn_reply_kind kind, const char *const *marks);

/* ---- what comes out ---- */

void chat_give(struct chat_reply *r, enum qn_reply_kind kind, const void *p, size_t n);
void chat_fail(struct chat_reply *r, int rc); /* 0 is no failure; r->error has been filled */

/* ---- states ---- */

void chat_begin(struct chat_reply *r); /* between two parts of a reply: thoughts, content or a call may come */
chat_state chat_content;
chat_state chat_harmony_head, chat_harmony_between;

/* A call begins: its opening mark, n unread bytes, is taken. */
void chat_begin_call(struct chat_reply *r, size_t n, chat_state *state);
/* It has a name, and from now on an index. */
void chat_name_call(struct chat_reply *r, const void *name, size_t n);
void chat_end_call(struct chat_reply *r);
/* It is none: its text comes out as it is. Returns true. */
bool chat_bad_call(struct chat_reply *r);
/* More text is needed, which spoils the call when there is none. */
bool chat_need_more(struct chat_reply *r);

chat_state chat_call_tag, chat_call_json, chat_call_mistral, chat_call_code; /* behind the mark of each form */
chat_state chat_call_function;                                               /* tool_xml.c: behind <function= */

#endif
