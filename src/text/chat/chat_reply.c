/* SPDX-License-Identifier: MIT
 *
 * chat_reply.c: reads content and thoughts, finds the marks of calls, and gives out events.
 *
 * The text is searched for the marks that mean something at this point. An end of the text that may become a mark is
 * held back, and so is the white space before it, which belongs to the mark. Thoughts are looked for only where a part
 * of the reply begins, so an answer may mention <think>. The text after the mark of a call is read in chat_call.c and
 * tool_xml.c and tool_python.c, the channels of gpt-oss in chat_harmony.c.
 */
#include "text/chat/chat_reply.h"

#include <assert.h>
#include <string.h>

#include "base/mem.h"
#include "text/chat/chat_state.h"

#define MAX_SPACE 64 /* bytes of white space that belong to a mark; bounds what is held back and searched again */

static bool is_space(char c) { return c == ' ' || c == '\n' || c == '\r' || c == '\t'; }

static size_t n_space(const char *p, size_t n)
{
    size_t k = 0;
    while (k < n && is_space(p[k])) k++;
    return k;
}

/* ---- unread text ---- */

void chat_skip(struct chat_reply *r, size_t n)
{
    assert(n <= chat_left(r));
    r->at += n;
    r->searched = 0;
}

void chat_take(struct chat_reply *r, size_t n)
{
    chat_fail(r, buf_add(&r->raw, chat_text(r), n, &r->error));
    chat_skip(r, n);
}

void chat_take_space(struct chat_reply *r) { chat_take(r, n_space(chat_text(r), chat_left(r))); }

bool chat_find(struct chat_reply *r, const char *mark, size_t *at)
{
    size_t n_mark = strlen(mark), n = chat_left(r);
    const char *p = chat_text(r), *hit = memmem(p + r->searched, n - r->searched, mark, n_mark);
    if (hit) {
        *at = (size_t)(hit - p);
        return true;
    }
    if (n >= n_mark) r->searched = n - n_mark + 1;
    return false;
}

static enum chat_match match_at(const char *p, size_t n, const char *mark, bool last)
{
    size_t n_mark = strlen(mark);
    if (memcmp(p, mark, n < n_mark ? n : n_mark) != 0) return CHAT_NO;
    if (n >= n_mark) return CHAT_YES;
    return last ? CHAT_NO : CHAT_PART;
}

enum chat_match chat_match(const struct chat_reply *r, size_t skip, const char *mark)
{
    return match_at(chat_text(r) + skip, chat_left(r) - skip, mark, r->last);
}

/* Where the first mark begins, or an end of the text that may become one; n when there is neither. *which is the mark,
 * and *match says whether it is whole. */
static size_t find_any(const char *p, size_t n, const char *const *marks, bool last, int *which, enum chat_match *match)
{
    for (size_t i = 0; i < n; i++)
        for (int k = 0; marks[k]; k++) {
            if (p[i] != marks[k][0]) continue;
            *match = match_at(p + i, n - i, marks[k], last);
            *which = k;
            if (*match != CHAT_NO) return i;
        }
    *match = CHAT_NO;
    return n;
}

int chat_give_until(struct chat_reply *r, enum qn_reply_kind kind, const char *const *marks)
{
    enum chat_match match;
    int which = -1;
    if (r->trim) {
        chat_skip(r, n_space(chat_text(r), chat_left(r)));
        if (chat_left(r) > 0) r->trim = false;
    }
    const char *p = chat_text(r);
    size_t end = find_any(p, chat_left(r), marks, r->last, &which, &match), keep = end;
    if (match != CHAT_NO || !r->last)
        while (keep > 0 && end - keep < MAX_SPACE && is_space(p[keep - 1])) keep--;
    chat_give(r, kind, p, keep);
    chat_skip(r, match == CHAT_YES ? end + strlen(marks[which]) : keep);
    return match == CHAT_YES ? which : -1;
}

/* ---- events ---- */

void chat_fail(struct chat_reply *r, int rc)
{
    if (rc < 0 && r->rc == 0) r->rc = rc;
}

/* Joins n more bytes of text to the last event, if that one is of the same kind. */
static bool extend(struct chat_reply *r, enum qn_reply_kind kind, size_t n)
{
    struct chat_event *before = r->n_events > 0 ? &r->event[r->n_events - 1] : NULL;
    bool joins = kind == QN_REPLY_CONTENT || kind == QN_REPLY_REASONING || kind == QN_REPLY_ARGUMENTS;
    if (!before || !joins || before->kind != kind) return false;
    before->n += n;
    return true;
}

void chat_give(struct chat_reply *r, enum qn_reply_kind kind, const void *p, size_t n)
{
    bool empty = kind == QN_REPLY_CONTENT || kind == QN_REPLY_REASONING || kind == QN_REPLY_ARGUMENTS;
    if (r->rc || (n == 0 && empty)) return;
    size_t at = r->out.len;
    if (n > 0) chat_fail(r, buf_add(&r->out, p, n, &r->error));
    if (r->rc || extend(r, kind, n)) return;
    if (r->n_events == r->cap_events) {
        size_t cap = r->cap_events ? 2 * r->cap_events : 8;
        struct chat_event *grown = mem_realloc(r->event, cap * sizeof *grown);
        if (!grown) {
            chat_fail(r, error_nomem(&r->error, "a reply's events", cap * sizeof *grown));
            return;
        }
        r->event = grown;
        r->cap_events = cap;
    }
    bool text = kind == QN_REPLY_CONTENT || kind == QN_REPLY_REASONING;
    int call = text || (kind == QN_REPLY_BAD_CALL && !r->begun) ? -1 : r->n_calls;
    r->event[r->n_events++] = (struct chat_event){kind, call, at, n};
}

bool chat_reply_next(struct chat_reply *r, struct qn_reply_event *event)
{
    if (r->next == r->n_events) return false;
    const struct chat_event *v = &r->event[r->next++];
    *event = (struct qn_reply_event){v->kind, v->call, v->n ? (const char *)r->out.data + v->at : "", v->n};
    return true;
}

/* ---- states ---- */

static bool think(struct chat_reply *r)
{
    const char *const marks[] = {r->form.unthink, NULL};
    if (chat_give_until(r, QN_REPLY_REASONING, marks) < 0) return false;
    chat_begin(r);
    return true;
}

bool chat_content(struct chat_reply *r)
{
    static chat_state *const states[][3] = {
        [CHAT_CALLS_NONE] = {NULL},
        [CHAT_CALLS_TAG] = {chat_call_tag, chat_call_function},
        [CHAT_CALLS_LLAMA] = {chat_call_json},
        [CHAT_CALLS_MISTRAL] = {chat_call_mistral},
        [CHAT_CALLS_HARMONY] = {NULL},
        [CHAT_CALLS_CALLS] = {chat_call_code},
        [CHAT_CALLS_UPPER] = {chat_call_code},
        [CHAT_CALLS_CODE] = {chat_call_code},
        [CHAT_CALLS_PYTHON] = {chat_call_start, chat_call_calls, chat_call_python},
    };
    enum chat_calls form = r->tools ? r->form.calls : CHAT_CALLS_NONE;
    const char *const *marks = chat_form_opens(form);
    int which = chat_give_until(r, QN_REPLY_CONTENT, marks);
    if (which < 0) return false;
    size_t n = strlen(marks[which]);
    r->at -= n; /* the mark belongs to the call's text */
    chat_begin_call(r, n, states[form][which]);
    return true;
}

/* The state at the beginning of a part of the reply. */
static bool begin(struct chat_reply *r)
{
    size_t skip = n_space(chat_text(r), chat_left(r));
    if (r->trim) {
        chat_skip(r, skip);
        skip = 0;
    }
    if (chat_left(r) == skip && !r->last && skip < MAX_SPACE) return false;
    if (r->form.think && skip < MAX_SPACE) {
        enum chat_match m = chat_match(r, skip, r->form.think);
        if (m == CHAT_PART) return false;
        if (m == CHAT_YES) {
            chat_skip(r, skip + strlen(r->form.think));
            r->trim = true;
            r->state = think;
            return true;
        }
    }
    char first = chat_left(r) > skip && skip < MAX_SPACE ? chat_text(r)[skip] : '\0';
    r->state = chat_content;
    if (r->tools && first && first == chat_form_bare(r->form.calls)) {
        chat_begin_call(r, skip, first == '{' ? chat_call_json : chat_call_bare);
        r->bare = true;
    }
    return true;
}

void chat_begin(struct chat_reply *r)
{
    r->trim = true;
    r->state = r->form.calls == CHAT_CALLS_HARMONY ? chat_harmony_between : begin;
}

bool chat_reply_is_thinking(const struct chat_reply *r)
{
    return r->state == think || (r->state == chat_harmony_body && r->channel == QN_REPLY_REASONING);
}

/* ---- the whole ---- */

int chat_reply_new(struct chat_reply **out, const struct chat_form *form, const json_t *tools, enum chat_begins begins,
                   struct qn_error *e)
{
    struct chat_reply *r = mem_calloc(1, sizeof *r);
    if (!r) return error_nomem(e, "a reply", sizeof *r);
    int rc = buf_reserve(&r->in, 1, e); /* so that data is not NULL while there is no text */
    if (rc) {
        mem_free(r);
        return rc;
    }
    r->form = *form;
    r->tools = json_array_size(tools) > 0 ? tools : NULL;
    bool harmony = form->calls == CHAT_CALLS_HARMONY;
    r->channel = QN_REPLY_CONTENT;
    r->state = harmony ? chat_harmony_head : begin;
    if (begins == CHAT_BEGIN_THOUGHTS && !harmony) r->state = think;
    if (begins == CHAT_BEGIN_CONTENT) r->state = harmony ? chat_harmony_body : chat_content;
    r->trim = begins == CHAT_BEGIN_THOUGHTS;
    *out = r;
    return 0;
}

void chat_reply_free(struct chat_reply *r)
{
    if (!r) return;
    tool_json_deinit(&r->json);
    json_decref(r->keys);
    buf_deinit(&r->in);
    buf_deinit(&r->out);
    buf_deinit(&r->raw);
    buf_deinit(&r->name);
    buf_deinit(&r->key);
    mem_free(r->event);
    mem_free(r);
}

static int feed(struct chat_reply *r, const char *text, size_t n, bool last, struct qn_error *e)
{
    assert(!r->last);
    buf_clear(&r->out);
    r->n_events = r->next = 0;
    if (r->at > 0) memmove(r->in.data, r->in.data + r->at, chat_left(r)); /* not while a state waits: then at is 0 */
    r->in.len -= r->at;
    r->at = 0;
    r->last = last;
    chat_fail(r, buf_add(&r->in, text, n, &r->error));
    while (r->rc == 0 && r->state(r)) {
    }
    if (r->rc && e) *e = r->error;
    return r->rc;
}

int chat_reply_push(struct chat_reply *r, const char *text, size_t n, struct qn_error *e)
{
    return feed(r, text, n, false, e);
}

int chat_reply_end(struct chat_reply *r, const char *text, size_t n, struct qn_error *e)
{
    return feed(r, text, n, true, e);
}
