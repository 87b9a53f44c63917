/* SPDX-License-Identifier: MIT
 *
 * fuzz_reply.c: libFuzzer entry for replies of models.
 *
 * The input is a byte that chooses the form (low 3 bits), whether the prompt was thinking (8) and had no tools (16),
 * then the reply. Whole, byte by byte and in pieces of seven it must give the same events. Calls are numbered from 0,
 * do not interleave, and end; the arguments of one that ends well are a JSON object. Without tools nothing is a call.
 * Nothing is invented: content and thoughts, with the text of what is no call, are no longer than the reply.
 */
#include <assert.h>
#include <string.h>

#include "base/buf.h"
#include "base/mem.h"
#include "text/chat/chat_reply.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static const struct chat_form forms[9] = {
    {CHAT_CALLS_NONE, NULL, NULL, 0},
    {CHAT_CALLS_TAG, "<think>", "</think>", 0},
    {CHAT_CALLS_LLAMA, NULL, NULL, 0},
    {CHAT_CALLS_MISTRAL, "[THINK]", "[/THINK]", 0},
    {CHAT_CALLS_HARMONY, NULL, NULL, 0},
    {CHAT_CALLS_CODE, NULL, NULL, 0},
    {CHAT_CALLS_CALLS, "<think>", "</think>", 0},
    {CHAT_CALLS_UPPER, NULL, NULL, 0},
    {CHAT_CALLS_PYTHON, "<think>", "</think>", 0},
};

struct events {
    struct buf all;  /* kind, call and text of each, neighbours of one kind joined */
    struct buf args; /* of the present call */
    int kind, n_calls;
    bool in_call;
    size_t n_plain;
};

static void check_end(struct events *v)
{
    json_t *args = json_loadb((const char *)v->args.data, v->args.len, JSON_ALLOW_NUL, NULL);
    assert(json_is_object(args));
    json_decref(args);
}

static void add(struct events *v, const struct qn_reply_event *e)
{
    uint8_t head[2] = {(uint8_t)e->kind, (uint8_t)e->call};
    bool joins = e->kind <= QN_REPLY_REASONING || e->kind == QN_REPLY_ARGUMENTS;
    if (!joins || v->kind != (int)e->kind) buf_add(&v->all, head, 2, NULL);
    buf_add(&v->all, e->text, e->n, NULL);
    v->kind = (int)e->kind;
    switch (e->kind) {
    case QN_REPLY_CALL:
        assert(!v->in_call && e->call == v->n_calls && e->n > 0);
        v->in_call = true;
        buf_clear(&v->args);
        break;
    case QN_REPLY_ARGUMENTS:
        assert(v->in_call && e->n > 0 && e->call == v->n_calls);
        buf_add(&v->args, e->text, e->n, NULL);
        break;
    case QN_REPLY_CALL_END:
        assert(v->in_call && e->call == v->n_calls++);
        check_end(v);
        v->in_call = false;
        break;
    case QN_REPLY_BAD_CALL:
        assert(e->call == (v->in_call ? v->n_calls : -1));
        v->n_calls += v->in_call;
        v->in_call = false;
        v->n_plain += e->n;
        break;
    default: assert(!v->in_call && e->n > 0 && e->call == -1); v->n_plain += e->n;
    }
}

static struct buf read_in(uint8_t how, const json_t *tools, const char *text, size_t n, size_t step)
{
    struct chat_reply *r = NULL;
    struct qn_reply_event e;
    struct events v = {.kind = -1};
    const struct chat_form *form = &forms[how & 32 ? 8 : how & 7];
    assert(chat_reply_new(&r, form, how & 16 ? NULL : tools, (how & 8) && form->think, NULL) == 0);
    for (size_t i = 0; i < n; i += step) {
        assert(chat_reply_push(r, text + i, n - i < step ? n - i : step, NULL) == 0);
        while (chat_reply_next(r, &e)) add(&v, &e);
    }
    assert(chat_reply_end(r, "", 0, NULL) == 0);
    while (chat_reply_next(r, &e)) add(&v, &e);
    assert(!v.in_call && v.n_plain <= n && (v.n_calls == 0 || !(how & 16)));
    chat_reply_free(r);
    buf_deinit(&v.args);
    return v.all;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const size_t steps[] = {1, 7};
    if (size == 0) return 0;
    json_t *tools = json_pack("[{s:s, s:{s:s, s:{s:{s:{s:s}, s:{s:s}}}}}]", "type", "function", "function", "name", "f",
                              "parameters", "properties", "a", "type", "integer", "s", "type", "string");
    assert(tools);
    struct buf whole = read_in(data[0], tools, (const char *)data + 1, size - 1, size);
    for (int i = 0; i < 2; i++) {
        struct buf cut = read_in(data[0], tools, (const char *)data + 1, size - 1, steps[i]);
        assert(cut.len == whole.len && (cut.len == 0 || memcmp(cut.data, whole.data, cut.len) == 0));
        buf_deinit(&cut);
    }
    buf_deinit(&whole);
    json_decref(tools);
    return 0;
}
