/* SPDX-License-Identifier: MIT
 *
 * chat_render.h: renders a request with a template, also one that ends inside of the assistant's turn.
 */
#ifndef QUERN_TEXT_CHAT_RENDER_H
#define QUERN_TEXT_CHAT_RENDER_H

#include "text/chat/chat_reply.h"
#include "text/chat/chat_taste.h"
#include "text/jinja/jinja.h"

/* All of it is borrowed for the call. */
struct chat_rendering {
    const struct jinja *template;
    const struct chat_taste *taste;
    const struct chat_form *form;
    json_t *request;          /* parsed */
    struct jinja_input input; /* without its context */
};

/* Renders into a zeroed *out, which is the caller's. *begins: where the reply begins, as far as the request says it.
 * *changed: bits of enum qn_chat_change. QN_EUSAGE: the template refuses the conversation; QN_EDATA, QN_EUNSUP: it
 * fails; the message names the member of the request. QN_ECANCEL; QN_ENOMEM. */
int chat_render(const struct chat_rendering *r, struct jinja_output *out, enum chat_begins *begins, unsigned *changed,
                struct qn_error *e);

#endif
