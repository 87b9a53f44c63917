/* SPDX-License-Identifier: MIT
 *
 * place_probe.c: place.h and chat.h as a program, for tests: the request that comes as JSON on standard input is
 * answered where the options say. The answer goes to stdout as it comes; the place, the notes and the numbers to
 * stderr.
 */
#include <signal.h>
#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "cli/core/cli.h"
#include "cli/place/place.h"
#include "client/client_chat.h"

struct options {
    struct place_options place;
    bool count, twice;
};

static int on_piece(void *arg, enum chat_piece kind, const char *text, size_t n)
{
    (void)arg;
    if (kind == CHAT_NOTE) fprintf(stderr, "note: %.*s\n", (int)n, text);
    return kind == CHAT_CONTENT && cli_write(text, n) != 0;
}

static int ask(struct place *p, json_t *request, struct qn_error *e)
{
    struct chat_result r;
    int rc;
    if (p->model) json_object_set_new(request, "model", json_string(p->model));
    rc = chat_send(p->client, request, on_piece, NULL, &r, e);
    fprintf(stderr, "rc %d finish '%s' prompt %d cached %d generated %d status %d code '%s'\n", rc, r.finish,
            r.n_prompt, r.n_cached, r.n_generated, r.status, r.code);
    return rc;
}

static int run(struct invocation *v)
{
    struct options *o = v->options;
    struct qn_error e = {0};
    struct place p = {0};
    char *text = NULL;
    size_t n;
    int status = cli_read_all(0, "stdin", CLI_MAX_INPUT, &text, &n), rc = 0, count = 0;
    json_t *request = status ? NULL : json_loadb(text, n, 0, NULL);
    if (!status) status = place_open(&p, &o->place, v);
    if (!status) fprintf(stderr, "place: %s\n", p.name);
    if (!status && o->count) {
        rc = chat_count(p.client, request, &count, &e);
        printf("%d\n", count);
    }
    for (int i = 0; !status && !o->count && i < 1 + o->twice && !rc; i++) rc = ask(&p, request, &e);
    json_decref(request);
    place_close(&p);
    cli_free(text);
    return rc ? cli_fail(&e) : status;
}

static const struct opt own[] = {
    {"count", 0, OPT_FLAG, offsetof(struct options, count), NULL, "count the prompt's tokens"},
    {"twice", 0, OPT_FLAG, offsetof(struct options, twice), NULL, "ask a second time, on the same connection"},
    {0},
};
static const struct opt_group groups[] = {{"probe", own, 0, NULL},
                                          {"place", opts_place, offsetof(struct options, place), ""},
                                          {"drafts", opts_draft, offsetof(struct options, place.draft)},
                                          {"engine", opts_engine, offsetof(struct options, place.engine)},
                                          {"context", opts_context, offsetof(struct options, place.engine)},
                                          {"file", opts_model, offsetof(struct options, place.file)},
                                          {0}};
static void init(void *o) { place_options_init(&((struct options *)o)->place); }

static const struct command probe = {.name = "probe",
                                     .operands = "",
                                     .brief = "",
                                     .groups = groups,
                                     .size = sizeof(struct options),
                                     .init = init,
                                     .run = run};

int main(int argc, char **argv)
{
    struct invocation v;
    enum help_size help;
    signal(SIGPIPE, SIG_IGN); /* as the commands have it */
    int status = options_read(&v, &probe, argc, argv, &help);
    if (!status && !help) status = run(&v);
    options_free(&v);
    return status;
}
