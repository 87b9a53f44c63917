/* SPDX-License-Identifier: MIT
 *
 * receipt_write.c: a receipt as JSON in its canonical form. See receipt.h.
 *
 * jansson's functions take NULL for a value that there was no memory for, and then fail, so only the last one of a
 * chain is looked at: `bad` collects the failures.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/json/json_text.h"
#include "receipt/receipt_impl.h"

/* The shortest decimal number that means this float when it is read as a double. */
static json_t *real(float x)
{
    char text[32];
    for (int digits = 1; digits <= 9; digits++) {
        snprintf(text, sizeof text, "%.*g", digits, (double)x);
        if ((float)strtod(text, NULL) == x) break;
    }
    return json_real(strtod(text, NULL));
}

static json_t *tokens(const qn_token *t, size_t n)
{
    json_t *list = json_array();
    for (size_t i = 0; i < n; i++)
        if (json_array_append_new(list, json_integer(t[i]))) {
            json_decref(list);
            return NULL;
        }
    return list;
}

static json_t *strings(const char *const *s, size_t n)
{
    json_t *list = json_array();
    for (size_t i = 0; i < n; i++)
        if (json_array_append_new(list, json_string(s[i]))) {
            json_decref(list);
            return NULL;
        }
    return list;
}

/* Pairs of a token and its bias; null stands for minus infinity. */
static json_t *biases(const struct qn_sampling *s)
{
    json_t *list = json_array();
    for (size_t i = 0; i < s->n_logit_bias; i++) {
        float x = s->logit_bias[i].bias;
        json_t *pair = json_pack("[i, o]", s->logit_bias[i].token, isinf(x) ? json_null() : real(x));
        if (json_array_append_new(list, pair)) {
            json_decref(list);
            return NULL;
        }
    }
    return list;
}

static json_t *sampling(const struct qn_sampling *s)
{
    char seed[24];
    json_t *o = json_object();
    int bad = 0;
    for (const struct receipt_number *n = receipt_numbers; n->name; n++) {
        const void *at = (const char *)s + n->at;
        bad |= json_object_set_new(o, n->name,
                                   n->is_float ? real(*(const float *)at) : json_integer(*(const int32_t *)at));
    }
    snprintf(seed, sizeof seed, "%llu", (unsigned long long)s->seed); /* many readers of JSON have no such integers */
    bad |= json_object_set_new(o, "seed", json_string(seed));
    bad |= json_object_set_new(o, "logit_bias", biases(s));
    bad |= json_object_set_new(o, "dry_breakers", tokens(s->dry_breakers, s->n_dry_breakers));
    if (!bad) return o;
    json_decref(o);
    return NULL;
}

static json_t *model(const struct receipt_model *m)
{
    json_t *files = json_array(), *template = *m->chat_template ? json_string(m->chat_template) : json_null();
    int bad = 0;
    for (size_t i = 0; i < m->n_files; i++) bad |= json_array_append_new(files, json_string(m->file[i]));
    if (bad) {
        json_decref(files);
        files = NULL;
    }
    return json_pack("{s:s, s:o, s:s, s:o, s:s?}", "name", m->name, "files", files, "tokenizer", m->tokenizer,
                     "template", template, "pre", m->pre);
}

static json_t *answers(const struct receipt *r)
{
    json_t *list = json_array();
    for (size_t i = 0; i < r->n_answers; i++) {
        const struct receipt_answer *a = &r->answers[i];
        json_t *o = json_pack("{s:o, s:s, s:i}", "tokens", tokens(a->tokens, a->n), "end", receipt_end_names[a->end],
                              "stop_index", a->stop_index);
        if (json_array_append_new(list, o)) {
            json_decref(list);
            return NULL;
        }
    }
    return list;
}

static json_t *whole_prompt(const struct receipt *r)
{
    json_t *o = json_object();
    int bad = json_object_set_new(o, "tokens", tokens(r->prompt, r->n_prompt));
    if (r->conversation)
        bad |= json_object_set_new(o, "conversation", json_stringn(r->conversation, r->n_conversation));
    if (r->salt) bad |= json_object_set_new(o, "salt", json_string(r->salt));
    if (!bad) return o;
    json_decref(o);
    return NULL;
}

static json_t *prompt(const struct receipt *r, struct qn_error *e)
{
    char hex[RECEIPT_HEX];
    json_t *whole = whole_prompt(r);
    if (!r->is_private || !whole) return whole;
    int rc = receipt_hash(hex, whole, e);
    json_decref(whole);
    return rc ? NULL : json_pack("{s:s, s:I}", "sha256", hex, "n_tokens", (json_int_t)r->n_prompt);
}

static json_t *form(const struct receipt *r)
{
    if (!r->has_form) return json_null();
    return json_pack("{s:s, s:s%}", "kind", receipt_form_names[r->form_kind], "text", r->form ? r->form : "",
                     r->n_form);
}

static json_t *calls(const struct receipt *r)
{
    if (!r->has_calls) return json_null();
    return json_pack("{s:b, s:o}", "required", r->calls_required, "names", strings(r->call_names, r->n_call_names));
}

/* Members that most receipts do not have. */
static int add_rare(json_t *o, const struct receipt *r)
{
    const struct receipt_windows *w = &r->windows;
    int bad = 0;
    if (r->rotates) bad |= json_object_set_new(o, "rotate", json_integer(r->n_keep));
    if (!r->is_replay) return bad;
    return bad | json_object_set_new(o, "windows",
                                     json_pack("{s:i, s:o, s:o}", "window", w->window, "entropy_threshold",
                                               real(w->entropy_threshold), "pos_penalty", real(w->pos_penalty)));
}

static json_t *document(const struct receipt *r, struct qn_error *e)
{
    const struct {
        const char *name;
        json_t *value;
    } all[] = {
        {"receipt", json_integer(RECEIPT_VERSION)},
        {"arithmetic", json_integer(r->arithmetic)},
        {"decoder", json_string(r->is_replay ? RECEIPT_REPLAY : RECEIPT_SEQUENCE)},
        {"model", model(&r->model)},
        {"n_ctx", json_integer(r->n_ctx)},
        {"kv", json_string(receipt_kv_names[r->kv])},
        {"prompt", prompt(r, e)},
        {"sampling", sampling(&r->sampling)},
        {"max_tokens", json_integer(r->max_tokens)},
        {"stop", strings(r->stop, r->n_stop)},
        {"stop_tokens", tokens(r->stop_tokens, r->n_stop_tokens)},
        {"ignore_eos", json_boolean(r->ignore_eos)},
        {"one_call", json_boolean(r->one_call)},
        {"continues", json_boolean(r->continues)},
        {"form", form(r)},
        {"calls", calls(r)},
        {"answers", answers(r)},
    };
    json_t *o = json_object();
    int bad = 0;
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) bad |= json_object_set_new(o, all[i].name, all[i].value);
    bad |= add_rare(o, r);
    if (!bad) return o;
    json_decref(o);
    return NULL;
}

/* Without memory, or because jansson takes no other text than UTF-8. */
static int failed(struct qn_error *e)
{
    return error_set(e, QN_EDATA, "receipt: there is no memory for it, or a text in it is not UTF-8");
}

int receipt_write(struct buf *out, const struct receipt *r, struct qn_error *e)
{
    char hex[RECEIPT_HEX];
    json_t *o = document(r, e);
    if (!o) return failed(e);
    int rc = receipt_hash(hex, o, e);
    if (!rc && json_object_set_new(o, "sha256", json_string(hex))) rc = error_nomem(e, "a receipt", RECEIPT_HEX);
    if (!rc) rc = json_text_add(out, o, RECEIPT_FLAGS, "a receipt", e);
    json_decref(o);
    return rc;
}

int receipt_write_prompt(struct buf *out, const struct receipt *r, struct qn_error *e)
{
    json_t *o = whole_prompt(r);
    int rc = o ? json_text_add(out, o, RECEIPT_FLAGS, "a prompt", e) : failed(e);
    json_decref(o);
    return rc;
}
