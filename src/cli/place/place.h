/* SPDX-License-Identifier: MIT
 *
 * place.h: the place that answers a request, and the connection to it.
 *
 * The places are tried in this order: the named socket ($QUERN_SOCKET, --socket), this user's socket, the system's
 * socket, the configured remote endpoint, and this process. For the last one the same server runs in this process, on
 * a pair of sockets, so all places answer the same bytes to the same request.
 *
 * A --remote on the command line goes before all sockets but one on the command line.
 * A daemon that hangs is left for the next of these places, with a warning. It hangs if it is silent for so long as
 * --silence says (client.h has what that means).
 *
 * If a named socket or a remote endpoint does not answer, that is an error: nothing replaces silently what somebody
 * has chosen. A model that is named as a file is loaded in this process in any case, because no server can be told to
 * load one.
 */
#ifndef QUERN_CLI_PLACE_H
#define QUERN_CLI_PLACE_H

#include <jansson.h>
#include <quern.h>

#include "cli/core/options.h"
#include "cli/place/operand.h"
#include "cli/place/stage_hosts.h"
#include "client/client.h"

/* The options of all commands that ask a server or look for models. A member of the command's options. */
struct place_options {
    const char *model; /* a name that the server knows, a file, or a name in the folders of models; NULL: the default */
    struct cli_strings models;   /* folders of models; none: ~/models */
    const char *socket, *remote; /* remote: a URL */
    const char *remote_key_file, *remote_key_command;
    int silence_s;                  /* after which a daemon hangs; 0: it never does */
    bool in_process;                /* no socket, no remote */
    struct qn_engine_params engine; /* for a model in this process */
    struct qn_model_params file;    /* the same */
    struct draft_options draft;     /* the same; `how` is also a field of requests */
    struct stage_hosts hosts;       /* the same; those that have its layers */
};
extern const struct opt opts_place[]; /* options for the fields before `engine`, in section "" of the configuration */
/* Sets the defaults of the engine and the model file. */
void place_options_init(struct place_options *o);

#define PLACE_CONNECTIONS 32 /* that a process has at once, at most */

enum place_kind { PLACE_SOCKET, PLACE_REMOTE, PLACE_HERE };

struct place {
    enum place_kind kind;
    char name[512];        /* for people: "unix:/run/...", "https://...", "this process (FILE)" */
    const char *model;     /* the value of "model" in requests; NULL: the server's only model */
    struct client *client; /* replaced by place_reopen(); NULL if that failed */
    struct local *local;   /* PLACE_HERE */
    const struct place_options *o;
    char socket[256]; /* PLACE_SOCKET: its path */
    char *only;       /* PLACE_REMOTE: the name of its only model, if the user named none */
    int slot;         /* of the connection, among those of this process: 0..PLACE_CONNECTIONS-1 */
};

/* Finds the place and connects to it. v: the command line that o is from; NULL: none. What is on the command line is
 * honoured or refused: --remote there goes before the daemons, and an option for a model in this process is an error
 * beside another place. Returns 0 or an exit status, after a message. Always followed by place_close(). */
int place_open(struct place *p, const struct place_options *o, const struct invocation *v);
/* Connects again to the same place, after an exchange that failed or was cancelled. Returns 0 or an exit status,
 * after a message. */
int place_reopen(struct place *p);
/* After an exchange that failed because the daemon was silent: goes to the next place, after a warning. Returns 0 or an
 * exit status, after a message: there is no other place where the daemon was named. */
int place_next(struct place *p);
/* Makes a request for chat completions one for this place, which was made for another one. */
void place_fit(const struct place *p, json_t *request);
/* Makes *other another connection to the place of p, with a slot of its own, for another thread. It borrows the rest of
 * p, which must be closed last. Returns 0 or an exit status, after a message. */
int place_again(struct place *other, const struct place *p, int slot);
void place_end_again(struct place *other);
/* Closes the connection, and the server in this process if there is one; may be called twice. */
void place_close(struct place *p);

/* The only model in a server's list of models, which may have aliases too; NULL if there are none or several. *n: how
 * many. */
const json_t *place_only_model(const json_t *list, size_t *n);

/* Reads the API key of the remote endpoint from its file or command into `key`; "" without either. Returns 0 or an
 * exit status, after a message. */
int place_read_key(const struct place_options *o, char *key, size_t cap);

#endif
