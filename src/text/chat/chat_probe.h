/* SPDX-License-Identifier: MIT
 *
 * chat_probe.h: finds out what a template can do, by rendering small conversations with it.
 */
#ifndef QUERN_TEXT_CHAT_PROBE_H
#define QUERN_TEXT_CHAT_PROBE_H

#include <jansson.h>

#include "text/chat/chat_taste.h"
#include "text/jinja/jinja.h"

/* Fills *taste, and sets form->calls to a form in which the model really writes calls. At its call, taste->developer is
 * set and *form is what the template's text suggests. trusted: as for jinja_render(). All renderings together take at
 * most 3 million steps (0.15 s); a usual template takes 1 to 5 ms. A template that fails the first probes has
 * taste->known false, and nothing else is changed. QN_ENOMEM. */
int chat_probe(struct chat_taste *taste, struct chat_form *form, const struct jinja *t, json_t *trusted,
               struct qn_error *e);

#endif
