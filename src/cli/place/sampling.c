/* SPDX-License-Identifier: MIT
 *
 * sampling.c: turns values of options into JSON. See sampling.h.
 */
#include "cli/place/sampling.h"

#include "cli/place/place.h"

#include <stdio.h>

struct sampling_request {
    json_t *request;
    const struct invocation *v;
};

static json_t *value_of(const struct opt *o, const void *at)
{
    switch (o->kind) {
    case OPT_INT: return json_integer(*(const int *)at);
    case OPT_CHOICE:
        if (o->at == offsetof(struct draft_options, how)) return json_string(qn_draft_name(*(const enum qn_draft *)at));
        if (o->at != offsetof(struct draft_options, decoder)) return json_boolean(*(const int *)at);
        return json_string(decoder_name(*(const enum decoder *)at));
    case OPT_U64: return json_integer((json_int_t) * (const uint64_t *)at);
    default: return json_real((double)*(const float *)at);
    }
}

static int add_one(void *arg, const struct command *c, const struct opt_group *g, const struct opt *o, int i)
{
    const struct sampling_request *a = arg;
    char name[64];
    (void)c;
    bool is_draft = g->opts == opts_draft && o->kind != OPT_STRING;
    if ((g->opts != opts_sampling && !is_draft) || a->v->origin[i] == ORIGIN_DEFAULT) return 0;
    snprintf(name, sizeof name, "%s", o->name);
    for (char *p = name; *p; p++)
        if (*p == '-') *p = '_';
    return json_object_set_new(a->request, name, value_of(o, options_value(a->v, g, o)));
}

int sampling_add(json_t *request, const struct invocation *v, const struct persona *persona)
{
    struct sampling_request a = {request, v};
    int bad = persona ? json_object_set_new(request, "temperature", json_real((double)persona->temperature)) : 0;
    return bad | options_walk(v->command, add_one, &a);
}
