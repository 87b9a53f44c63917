/* SPDX-License-Identifier: MIT
 *
 * place.c: tries the places in their order and connects to the first that answers. See place.h.
 *
 * To look for a daemon is to connect: the file of a socket does not say whether anybody listens, and the request goes
 * over the same connection. A system socket that this user may not open counts as missing.
 */
#include "cli/place/place.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sysexits.h>

#include "base/os.h"
#include "cli/core/cli.h"
#include "cli/core/home.h"
#include "cli/core/progress.h"
#include "cli/place/local.h"
#include "cli/place/operand.h"
#include "client/client_chat.h"

#define KEY_MAX    4096
#define SILENCE_S  20                /* twice the longest time between two comments of a stream */
#define MODELS_MAX ((size_t)4 << 20) /* size limit of a remote's list of models */

#define AT(field) offsetof(struct place_options, field)
const struct opt opts_place[] = {
    {"model", 'm', OPT_STRING, AT(model), "MODEL",
     "a name the server knows, or a file (default: the only one there is)", .words = WORDS_MODEL},
    {"models", 0, OPT_STRINGS, AT(models), "DIR", "look for models in DIR; may be repeated (default: ~/models)",
     .words = WORDS_FOLDER, .rare = true},
    {"socket", 0, OPT_STRING, AT(socket), "PATH", "ask only the daemon on this Unix socket", .words = WORDS_FILE,
     .rare = true},
    {"remote", 0, OPT_STRING, AT(remote), "URL", "if no daemon runs, ask this server (OpenAI API)", .rare = true},
    {"remote-key-file", 0, OPT_STRING, AT(remote_key_file), "FILE",
     "file whose first line is the API key of the remote", .words = WORDS_FILE, .rare = true},
    {"remote-key-command", 0, OPT_STRING, AT(remote_key_command), "COMMAND", "shell command that prints the key",
     .rare = true},
    {"silence", 0, OPT_INT, AT(silence_s), "S",
     "ask the next place if a daemon is silent for S seconds (default: 20; 0: wait without end)", 0, 86400,
     .rare = true},
    {"in-process", 0, OPT_FLAG, AT(in_process), NULL, "load the model in this process; ask no server"},
    {0},
};
#undef AT

void place_options_init(struct place_options *o)
{
    o->silence_s = SILENCE_S;
    qn_engine_params_init(&o->engine);
    qn_model_params_init(&o->file);
    draft_options_init(&o->draft);
}

/* ---- the places ---- */

/* The text, or NULL if it is empty: a variable that is set to nothing cancels the value of the configuration. */
static const char *given(const char *s) { return s && *s ? s : NULL; }

static int try_socket(struct place *p, struct qn_error *e)
{
    int rc = client_open_socket(&p->client, p->socket, p->o->silence_s * 1000, e);
    if (rc) return rc;
    p->kind = PLACE_SOCKET;
    p->model = given(p->o->model);
    snprintf(p->name, sizeof p->name, "unix:%s", p->socket);
    return 0;
}

static int open_named(struct place *p, struct qn_error *e)
{
    if ((size_t)snprintf(p->socket, sizeof p->socket, "%s", p->o->socket) >= sizeof p->socket)
        return error_set(e, QN_EUSAGE, "the socket's path has %zu bytes: '%s'", strlen(p->o->socket), p->o->socket);
    return try_socket(p, e);
}

static void warn_silent(const struct qn_error *e) { fprintf(stderr, "quern: warning: %s\n", e->msg); }

/* Tries a socket that nobody has named. */
static bool open_unnamed(struct place *p)
{
    struct qn_error e = {0};
    int rc = try_socket(p, &e);
    if (rc == QN_EBUSY) warn_silent(&e);
    return !rc;
}

static bool open_system(struct place *p)
{
    if (!strcmp(p->socket, HOME_SYSTEM_SOCKET)) return false; /* it was tried: for root both are the same */
    snprintf(p->socket, sizeof p->socket, HOME_SYSTEM_SOCKET);
    return open_unnamed(p);
}

/* Connects to this user's daemon or the system's. */
static bool open_default(struct place *p)
{
    return (!home_socket(p->socket, sizeof p->socket, NULL) && open_unnamed(p)) || open_system(p);
}

static int connect_remote(struct place *p)
{
    struct qn_error e = {0};
    char key[KEY_MAX];
    int rc = place_read_key(p->o, key, sizeof key);
    if (rc) return rc;
    rc = client_open_url(&p->client, p->o->remote, *key ? key : NULL, getenv("SSL_CERT_FILE"), &e);
    explicit_bzero(key, sizeof key);
    return rc ? cli_fail(&e) : 0;
}

const json_t *place_only_model(const json_t *list, size_t *n)
{
    const json_t *m, *last = NULL;
    size_t i;
    *n = 0;
    json_array_foreach(json_object_get(list, "data"), i, m)
    {
        const json_t *of = json_object_get(m, "alias_of");
        if (of && !json_is_null(of)) continue;
        last = m;
        ++*n;
    }
    return *n == 1 ? last : NULL;
}

/* A request to a remote must name a model. If the remote has only one, uses that. */
static int find_only(struct place *p)
{
    struct chat_result result = {0};
    struct qn_error e = {0};
    json_t *list = NULL;
    if (chat_fetch(p->client, "GET", "/v1/models", NULL, MODELS_MAX, &list, &result, &e)) {
        int status = cli_fail(&e);
        if (result.status == 401 || result.status == 403) return EX_NOPERM;
        return e.code == QN_EIO ? EX_UNAVAILABLE : status;
    }
    size_t n;
    const char *id = json_string_value(json_object_get(place_only_model(list, &n), "id"));
    if (id) {
        p->only = cli_alloc(strlen(id) + 1, 1);
        strcpy(p->only, id);
        p->model = p->only;
    }
    json_decref(list);
    return p->only ? 0 : cli_usage("%s has %zu models: say which with -m MODEL", p->o->remote, n);
}

static int open_remote(struct place *p)
{
    int rc = connect_remote(p);
    if (rc) return rc;
    p->kind = PLACE_REMOTE;
    p->model = given(p->o->model);
    error_clean(p->name, sizeof p->name, p->o->remote);
    return p->model ? 0 : find_only(p);
}

static int dial_here(void *arg, int *fd, struct qn_error *e) { return local_connect(arg, fd, e); }

/* Models of three sizes to begin with: their memory is that of the weights and of some thousand tokens. */
static void suggest_models(void)
{
    static const struct {
        const char *memory, *file;
    } some[] = {
        {"1 GB", "Qwen/Qwen3-0.6B-GGUF/Qwen3-0.6B-Q8_0.gguf"},
        {"4 GB", "Qwen/Qwen3-4B-GGUF/Qwen3-4B-Q4_K_M.gguf"},
        {"7 GB", "Qwen/Qwen3-8B-GGUF/Qwen3-8B-Q4_K_M.gguf"},
    };
    for (size_t i = 0; i < sizeof some / sizeof *some; i++)
        fprintf(stderr, "  %s of memory:  quern pull hf:%s\n", some[i].memory, some[i].file);
}

static int open_here(struct place *p)
{
    struct qn_error e = {0};
    char *path = NULL, *draft = NULL, name[480];
    enum qn_draft how = QN_DRAFT_DEFAULT;
    int rc = operand_find(&path, &p->o->models, given(p->o->model), &e);
    if (!rc) rc = operand_draft(&draft, &how, &p->o->draft, &p->o->models, &e);
    p->kind = PLACE_HERE;
    if (!rc) {
        error_clean(name, sizeof name, path);
        snprintf(p->name, sizeof p->name, "this process (%s)", name);
        if (stage_hosts_are_named(&p->o->hosts)) progress_note("starting the hosts");
        struct local_draft d = {how, draft};
        rc = local_open(&p->local, path, &d, &p->o->file, &p->o->engine, &p->o->hosts, &e);
        if (stage_hosts_are_named(&p->o->hosts)) progress_note("%s", "");
    }
    if (!rc) rc = client_open_dial(&p->client, dial_here, p->local, &e);
    cli_free(path);
    cli_free(draft);
    if (!rc) return 0;
    int status = cli_fail(&e);
    if (rc == QN_ENOINPUT && !given(p->o->model) && catalog_is_empty(&p->o->models)) suggest_models();
    return status;
}

/* Whether a model's name looks like that of a file, and there is such a file or folder. */
static bool is_file(const char *model)
{
    size_t n = model ? strlen(model) : 0;
    bool looks = n && (strchr(model, '/') || (n > 5 && !strcmp(model + n - 5, ".gguf")));
    return looks && os_exists(model);
}

struct local_flag {
    const struct invocation *v;
    const char *name; /* NULL: none */
    bool is_of_hosts;
};

/* Finds an option of the command line that says how a model is loaded. */
static int find_local(void *arg, const struct command *c, const struct opt_group *g, const struct opt *o, int i)
{
    struct local_flag *f = arg;
    (void)c;
    if (f->v->origin[i] != ORIGIN_FLAG) return 0;
    bool is_draft = g->opts == opts_draft && o->at == offsetof(struct draft_options, model);
    f->is_of_hosts = g->opts == opts_stage_hosts;
    if (g->opts != opts_engine && g->opts != opts_context && g->opts != opts_model && !f->is_of_hosts && !is_draft)
        return 0;
    f->name = o->name;
    return 1;
}

static int find_place(struct place *p, const struct place_options *o, bool remote_first)
{
    struct qn_error e = {0};
    if (o->in_process) return open_here(p);
    if (remote_first && given(o->remote)) return open_remote(p);
    if (given(o->socket) && is_file(o->model))
        return cli_usage("'%s' is a file, which the daemon at '%s' cannot load: give the name it has there, or "
                         "--in-process",
                         o->model, o->socket);
    if (given(o->socket)) {
        int rc = open_named(p, &e), status = rc ? cli_fail(&e) : 0;
        return rc == QN_ENOINPUT || rc == QN_EBUSY ? EX_UNAVAILABLE : status;
    }
    if (is_file(o->model)) return open_here(p);
    if (open_default(p)) return 0;
    return given(o->remote) ? open_remote(p) : open_here(p);
}

int place_open(struct place *p, const struct place_options *o, const struct invocation *v)
{
    *p = (struct place){.o = o};
    int status = v ? stage_hosts_check(&o->hosts, v->command->name) : 0;
    if (status) return status;
    bool remote_first = v && options_origin(v, "remote") == ORIGIN_FLAG && options_origin(v, "socket") != ORIGIN_FLAG;
    status = find_place(p, o, remote_first);
    struct local_flag f = {.v = v};
    if (!status && v && p->kind != PLACE_HERE) options_walk(v->command, find_local, &f);
    if (f.name)
        return cli_usage("--%s is for a model in this process, but %s answers: leave it out, or add --in-process%s",
                         f.name, p->name, f.is_of_hosts ? " (hosts of a daemon: quern serve MODEL --hosts)" : "");
    return status;
}

int place_reopen(struct place *p)
{
    struct qn_error e = {0};
    int rc = 0;
    client_close(p->client);
    p->client = NULL;
    switch (p->kind) {
    case PLACE_SOCKET: rc = client_open_socket(&p->client, p->socket, p->o->silence_s * 1000, &e); break;
    case PLACE_REMOTE: return connect_remote(p);
    case PLACE_HERE: rc = client_open_dial(&p->client, dial_here, p->local, &e); break;
    }
    return rc ? cli_fail(&e) : 0;
}

int place_next(struct place *p)
{
    struct qn_error e;
    error_set(&e, QN_EIO, "the daemon at '%s' hangs: it has been silent for %d s (see --silence)", p->socket,
              p->o->silence_s);
    client_close(p->client);
    p->client = NULL;
    p->model = NULL;
    if (given(p->o->socket)) {
        cli_fail(&e);
        return EX_UNAVAILABLE;
    }
    warn_silent(&e);
    if (open_system(p)) return 0;
    return given(p->o->remote) ? open_remote(p) : open_here(p);
}

void place_fit(const struct place *p, json_t *request)
{
    json_t *message;
    size_t i;
    if (p->model)
        json_object_set_new(request, "model", json_string(p->model));
    else
        json_object_del(request, "model");
    if (p->kind != PLACE_REMOTE) return;
    json_object_del(request, "enable_thinking");
    json_array_foreach(json_object_get(request, "messages"), i, message) json_object_del(message, "reasoning_content");
}

int place_again(struct place *other, const struct place *p, int slot)
{
    *other = *p;
    other->client = NULL;
    other->slot = slot;
    return place_reopen(other);
}

void place_end_again(struct place *other) { client_close(other->client); }

void place_close(struct place *p)
{
    client_close(p->client);
    local_close(p->local);
    cli_free(p->only);
    *p = (struct place){0};
}
