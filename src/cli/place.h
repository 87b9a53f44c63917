/* SPDX-License-Identifier: MIT
 *
 * place.h: where a request is answered, and the way there.
 *
 * In this order: the socket that was named ($QUERN_SOCKET, --socket), this user's, the system's, the configured remote
 * endpoint, and with none of them this process itself: then the same server runs in here, on a pair of sockets, so that
 * all places answer the same bytes to the same request. A socket that was named and does not answer is an error, and so
 * is a remote endpoint: nothing falls back silently from what somebody has chosen. A model that is named as a file is
 * loaded in here, whatever else runs: no server can be told to load one.
 */
#ifndef QUERN_CLI_PLACE_H
#define QUERN_CLI_PLACE_H

#include <quern.h>

#include "cli/options.h"
#include "client/client.h"

/* The options of all commands that ask a server, or look for models. A member of the command's options. */
struct place_options {
    const char *model; /* a name the server knows, a file, or a name in the models' folders; NULL: the default */
    struct cli_strings models;   /* folders with models; none: ~/models */
    const char *socket, *remote; /* remote: a URL */
    const char *remote_key_file, *remote_key_command;
    bool in_process;                /* no socket, no remote */
    struct qn_engine_params engine; /* in this process */
    struct qn_model_params file;    /* the same */
};
extern const struct opt opts_place[]; /* the fields before engine; section "" of the configuration */
void place_options_init(struct place_options *o);

enum place_kind { PLACE_SOCKET, PLACE_REMOTE, PLACE_HERE };

struct place {
    enum place_kind kind;
    char name[512];        /* for people: "unix:/run/...", "https://...", "this process (FILE)" */
    const char *model;     /* for the request's "model"; NULL: the server's only one */
    struct client *client; /* a fresh one after place_reopen(); NULL when that has failed */
    struct local *local;   /* PLACE_HERE */
    const struct place_options *o;
    char socket[256]; /* PLACE_SOCKET: its path */
    char *only;       /* PLACE_REMOTE: the name of its only model, if none was said */
};

/* Finds the place and connects. 0 or an exit status, after a line on stderr. Always followed by place_close(). */
int place_open(struct place *p, const struct place_options *o);
/* A new connection to the same place: after an exchange that failed or was cancelled. */
int place_reopen(struct place *p);
void place_close(struct place *p);

/* Reads the remote's key from its file or command into key, "" without either. 0 or an exit status. */
int place_read_key(const struct place_options *o, char *key, size_t cap);

#endif
