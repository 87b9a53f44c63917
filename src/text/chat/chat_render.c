/* SPDX-License-Identifier: MIT
 *
 * chat_render.c: renders a request with a template, also one that ends inside of the assistant's turn.
 *
 * Where the assistant's turn is the last message, a made-up word is added to its text, and the prompt ends where that
 * word begins: so the marks that end a turn are cut off. If the word does not come out, because the template refuses or
 * drops such a turn, the conversation is rendered without it, up to where a reply begins, and its text is added there.
 *
 * If a template fails, the member of the request that it fails on is found by rendering less of the request.
 */
#include "text/chat/chat_render.h"

#include <string.h>

#include "base/mem.h"
#include "text/chat/chat_input.h"

#define ENDING        "qzEndOfPrefill7vN3"
#define BYTES_EXPLAIN 65536   /* of a request; for a larger one the search would take too long */
#define STEPS_EXPLAIN 2000000 /* of each rendering that looks for the reason of a failure */

static int render(const struct chat_rendering *r, json_t *request, const char *ending, struct jinja_output *out,
                  unsigned *changed, struct qn_error *e)
{
    struct jinja_input in = r->input;
    json_t *context = NULL, *ours = NULL;
    int rc = chat_context(&context, &ours, request, r->taste, ending, changed, e);
    in.context = context;
    in.ours = ours;
    if (rc == 0) rc = jinja_render(r->template, &in, out, e);
    json_decref(context);
    json_decref(ours);
    return rc;
}

/* ---- failures ---- */

/* A copy of the request with its first n messages, and without tools if it has to be. */
static json_t *shorten(const json_t *request, size_t n, bool tools)
{
    json_t *copy = json_copy((json_t *)request), *messages = json_array();
    int rc = 0;
    for (size_t i = 0; i < n; i++)
        rc |= json_array_append(messages, json_array_get(json_object_get(request, "messages"), i));
    rc |= json_object_set_new(copy, "messages", messages);
    if (!tools) json_object_del(copy, "tools");
    if (rc == 0) return copy;
    json_decref(copy);
    return NULL;
}

static bool renders(const struct chat_rendering *r, size_t n, bool tools)
{
    struct chat_rendering less = *r;
    struct jinja_output out = {0};
    unsigned changed;
    json_t *request = shorten(r->request, n, tools);
    less.input.limits.n_steps = STEPS_EXPLAIN;
    bool ok = request && render(&less, request, NULL, &out, &changed, NULL) == 0;
    jinja_output_deinit(&out);
    json_decref(request);
    return ok;
}

/* The member of the request that the template fails on. */
static void find_member(const struct chat_rendering *r, char *name, size_t size)
{
    size_t n = json_array_size(json_object_get(r->request, "messages")), ok = 0, bad = n;
    snprintf(name, size, "messages");
    if (r->input.n_bytes > BYTES_EXPLAIN) return;
    if (json_object_get(r->request, "tools") && renders(r, n, false)) {
        snprintf(name, size, "tools");
        return;
    }
    while (bad - ok > 1) {
        size_t middle = ok + (bad - ok) / 2;
        if (renders(r, middle, true))
            ok = middle;
        else
            bad = middle;
    }
    snprintf(name, size, "messages[%zu]", bad - 1);
}

/* Says a template's failure in words of our own. A limit that was reached, and what is not supported, speak for
 * themselves. */
static int explain(const struct chat_rendering *r, int rc, const struct qn_error *why, struct qn_error *e)
{
    char name[48];
    unsigned line = 0;
    if (rc != QN_EUSAGE && (rc != QN_EDATA || strstr(why->msg, "limit of"))) {
        if (e) *e = *why;
        return rc;
    }
    find_member(r, name, sizeof name);
    if (rc == QN_EUSAGE)
        return error_set(e, rc, "chat: %s: the model's chat template refuses it: \"%s\"", name, why->msg);
    if (sscanf(why->msg, "template line %u", &line) != 1)
        return error_set(e, rc, "chat: %s: the model's chat template fails on it", name);
    return error_set(e, rc, "chat: %s: the model's chat template fails on it (in line %u)", name, line);
}

/* ---- the end of the prompt ---- */

static void cut(struct jinja_output *out, size_t at)
{
    out->text.len = at;
    out->text.data[at] = 0;
    while (out->n_user > 0 && out->user[out->n_user - 1].at >= at) out->n_user--;
    if (out->n_user == 0) return;
    struct text_span *last = &out->user[out->n_user - 1];
    if (last->at + last->n > at) last->n = at - last->at;
}

/* Ends the output where the last ENDING begins; false: there is none. */
static bool cut_ending(struct jinja_output *out)
{
    const size_t n = strlen(ENDING);
    for (size_t at = out->text.len; at >= n; at--)
        if (memcmp(out->text.data + at - n, ENDING, n) == 0) {
            cut(out, at - n);
            return true;
        }
    return false;
}

/* Adds a text of the user's to the output. */
static int append(struct jinja_output *out, const char *text, size_t n, struct qn_error *e)
{
    if (n == 0) return 0;
    size_t at = out->text.len;
    struct text_span *grown = mem_realloc(out->user, (out->n_user + 1) * sizeof *grown);
    if (!grown) return error_nomem(e, "origins of a prompt", (out->n_user + 1) * sizeof *grown);
    out->user = grown;
    int rc = buf_add(&out->text, text, n, e);
    if (rc) return rc;
    struct text_span *last = out->n_user > 0 ? &grown[out->n_user - 1] : NULL;
    if (last && last->at + last->n == at)
        last->n += n;
    else
        grown[out->n_user++] = (struct text_span){.at = at, .n = n};
    return 0;
}

/* Renders the request without its last message, and adds the text of that message. */
static int render_before(const struct chat_rendering *r, const char *text, size_t n, struct jinja_output *out,
                         unsigned *changed, struct qn_error *e)
{
    size_t n_messages = json_array_size(json_object_get(r->request, "messages"));
    if (n_messages == 1) return QN_EDATA;
    json_t *request = shorten(r->request, n_messages - 1, true);
    if (!request) return error_nomem(e, "a conversation", 0);
    json_object_del(request, "add_generation_prompt");
    int rc = render(r, request, NULL, out, changed, e);
    json_decref(request);
    return rc ? rc : append(out, text, n, e);
}

/* The text that the reply continues, or NULL. *n is its length in bytes. Owned. */
static int prefilled(const json_t *request, struct buf *text, struct qn_error *e)
{
    const json_t *messages = json_object_get(request, "messages"), *part;
    const json_t *content = json_object_get(json_array_get(messages, json_array_size(messages) - 1), "content");
    size_t i;
    int rc = buf_str(text, "", e);
    if (rc == 0 && json_is_string(content))
        rc = buf_add(text, json_string_value(content), json_string_length(content), e);
    json_array_foreach((json_t *)content, i, part)
    {
        const json_t *t = json_object_get(part, "text");
        if (rc == 0 && i > 0) rc = buf_str(text, "\n", e);
        if (rc == 0) rc = buf_add(text, json_string_value(t), json_string_length(t), e);
    }
    return rc;
}

static int render_prefilled(const struct chat_rendering *r, struct jinja_output *out, enum chat_begins *begins,
                            unsigned *changed, struct qn_error *e)
{
    struct qn_error why = {0}, second = {0};
    struct buf text = {0};
    int rc = prefilled(r->request, &text, e);
    if (rc) return rc;
    bool thinking = chat_form_is_thinking(r->form, (const char *)text.data, text.len);
    rc = render(r, r->request, ENDING, out, changed, &why);
    bool ended = rc == 0 && cut_ending(out);
    if (!ended && (rc == 0 || rc == QN_EUSAGE || rc == QN_EDATA)) {
        jinja_output_deinit(out);
        int again = render_before(r, (const char *)text.data, text.len, out, changed, &second);
        if (again == 0 || again == QN_ENOMEM || again == QN_ECANCEL) {
            rc = again;
            why = second;
        } else if (rc == 0) {
            rc = error_set(&why, QN_EUSAGE, "the last message is left out");
        }
    }
    buf_deinit(&text);
    *begins = thinking ? CHAT_BEGIN_THOUGHTS : CHAT_BEGIN_CONTENT;
    if (rc) jinja_output_deinit(out);
    return rc ? explain(r, rc, &why, e) : 0;
}

int chat_render(const struct chat_rendering *r, struct jinja_output *out, enum chat_begins *begins, unsigned *changed,
                struct qn_error *e)
{
    struct qn_error why = {0};
    *begins = CHAT_BEGIN_REPLY;
    if (chat_is_prefilled(r->request)) return render_prefilled(r, out, begins, changed, e);
    int rc = render(r, r->request, NULL, out, changed, &why);
    return rc ? explain(r, rc, &why, e) : 0;
}
