/* SPDX-License-Identifier: MIT
 *
 * serve_options.c: the command line of `quern serve`: options, and models with their names.
 *
 * An operand is the path of a file, or NAME=PATH if no file has that whole name. Without NAME a model has the name of
 * its file without the folder and the ending. A path that does not exist is a name in the folders of models. Without
 * operands and a default, all models in the folders are served.
 */
#include "cli/daemon/serve.h"

#include <string.h>
#include <unistd.h>

#include "base/mem.h"
#include "base/os.h"
#include "cli/place/hashes.h"
#include "cli/place/operand.h"
#include "cluster/start/network.h"

#define MAX_NAME 128 /* bytes; the name is a label, and the name of a folder */

/* ---- models ---- */

static char *text_of(const char *p, size_t n)
{
    char *s = cli_alloc(n + 1, 1);
    memcpy(s, p, n);
    return s;
}

static int check_name(const char *name)
{
    size_t n = strlen(name);
    if (n == 0 || n > MAX_NAME) return cli_usage("serve: a model's name has 1 to %d bytes, not %zu", MAX_NAME, n);
    for (const char *p = name; *p; p++)
        if ((unsigned char)*p < ' ' || *p == 0x7f)
            return cli_usage("serve: a model's name has no control characters, but '%s' has", name);
    return 0;
}

/* name: NULL if the operand or the file has it. */
static int add_model(struct serve_options *o, const char *operand, const char *name)
{
    int i = o->models.n++;
    const char *equals = strchr(operand, '=');
    struct models_source *m = &o->source[i];
    struct qn_error e = {0};
    m->path = operand;
    if (name) {
        m->name = name;
    } else if (equals && access(operand, F_OK)) {
        m->path = equals + 1;
        m->name = o->names[i] = text_of(operand, (size_t)(equals - operand));
    } else {
        m->name = o->names[i] = catalog_name(operand);
    }
    if (!os_exists(m->path)) {
        if (catalog_find(&o->paths[i], &o->folders, m->path, &e)) return cli_fail(&e);
        m->path = o->paths[i];
    }
    for (int k = 0; k < i; k++)
        if (!strcmp(o->source[k].name, m->name))
            return cli_usage("serve: '%s' and '%s' would both be called '%s'; NAME=PATH gives another name",
                             o->source[k].path, m->path, m->name);
    return check_name(m->name);
}

/* The model of that name; NULL: there is none. It is named by an option, so the daemon does not start without it. */
static struct models_source *named(struct serve_options *o, const char *name)
{
    for (int i = 0; i < o->models.n; i++)
        if (!strcmp(o->source[i].name, name)) {
            o->source[i].optional = false;
            return &o->source[i];
        }
    return NULL;
}

static int pin(struct serve_options *o, const char *name)
{
    struct models_source *m = named(o, name);
    if (!m) return cli_usage("serve: --pin %s: there is no model of that name", name);
    m->pinned = true;
    return 0;
}

/* Finds the models to serve if none is named: the default, or those in the folders, or none. Returns 0 or an exit
 * status, after a message. */
static int find_models(struct serve_options *o)
{
    struct qn_error e = {0};
    int rc =
        o->model ? catalog_find(&o->default_path, &o->folders, o->model, &e) : catalog_open(&o->found, &o->folders, &e);
    return rc ? cli_fail(&e) : 0;
}

/* ---- aliases ---- */

static bool is_alias(const struct serve_options *o, const char *name, size_t n)
{
    for (size_t i = 0; i < o->aliases.n; i++)
        if (!strncmp(o->aliases.v[i], name, n) && o->aliases.v[i][n] == '=') return true;
    return false;
}

/* NAME=MODEL; "*" is any name. */
static int add_alias(struct serve_options *o, size_t i)
{
    const char *text = o->aliases.v[i], *equals = strchr(text, '=');
    if (!equals || equals == text || !equals[1]) return cli_usage("serve: --alias '%s' is not NAME=MODEL", text);
    char *name = o->alias_names[i] = text_of(text, (size_t)(equals - text));
    const struct models_source *m = named(o, equals + 1);
    if (!m && is_alias(o, equals + 1, strlen(equals + 1)))
        return cli_usage("serve: --alias %s: '%s' is an alias itself; name the model", text, equals + 1);
    if (!m) return cli_usage("serve: --alias %s: there is no model '%s' here", text, equals + 1);
    if (named(o, name)) return cli_usage("serve: --alias %s: a model has the name '%s'", text, name);
    for (size_t k = 0; k < i; k++)
        if (!strcmp(o->alias_names[k], name)) return cli_usage("serve: --alias %s: '%s' is given twice", text, name);
    if (!strcmp(name, "*"))
        o->models.any = m->name;
    else
        o->alias[o->models.n_aliases++] = (struct models_alias){name, m->name};
    return check_name(name);
}

static int set_aliases(struct serve_options *o)
{
    int rc = 0;
    o->alias = cli_alloc(o->aliases.n + 1, sizeof *o->alias);
    o->alias_names = cli_alloc(o->aliases.n + 1, sizeof *o->alias_names);
    o->models.alias = o->alias;
    for (size_t i = 0; i < o->aliases.n && !rc; i++) rc = add_alias(o, i);
    return rc;
}

/* ---- draft models ---- */

/* The model that a draft model is for: MODEL=DRAFT names it, unless a file has that whole name. *draft: the rest. */
static struct models_source *drafted(struct serve_options *o, const char *text, const char **draft)
{
    const char *equals = access(text, F_OK) ? strchr(text, '=') : NULL;
    *draft = equals ? equals + 1 : text;
    if (!equals) return o->models.n == 1 ? &o->source[0] : NULL;
    char *name = text_of(text, (size_t)(equals - text));
    struct models_source *m = named(o, name);
    cli_free(name);
    return m;
}

static int add_draft(struct serve_options *o, size_t i)
{
    const char *text = o->drafts.v[i], *draft;
    struct models_source *m = drafted(o, text, &draft);
    struct qn_error e = {0};
    if (!m && draft == text)
        return cli_usage("serve: --draft-model %s: %d models are served; MODEL=%s says for which", text, o->models.n,
                         text);
    if (!m)
        return cli_usage("serve: --draft-model %s: there is no model '%.*s' here", text, (int)(draft - 1 - text), text);
    if (m->draft) return cli_usage("serve: --draft-model %s: '%s' has a draft model already", text, m->name);
    if (catalog_find(&o->draft_paths[i], &o->folders, draft, &e)) return cli_fail(&e);
    m->draft = o->draft_paths[i];
    return 0;
}

/* --draft goes before draft models that it leaves no use for, as when the configuration names one. */
static int set_drafts(struct serve_options *o)
{
    struct qn_error e = {0};
    enum qn_draft *draft = &o->models.scheduler.draft;
    int rc = decoder_draft(o->decoder, draft, &e);
    if (rc) return cli_fail(&e);
    enum qn_draft how = *draft = stage_hosts_draft(&o->stages, *draft, o->drafts.n > 0);
    if (how != QN_DRAFT_AUTO && how != QN_DRAFT_MODEL && how != QN_DRAFT_DEFAULT) return 0;
    o->draft_paths = cli_alloc(o->drafts.n + 1, sizeof *o->draft_paths);
    for (size_t i = 0; i < o->drafts.n && !rc; i++) rc = add_draft(o, i);
    return rc;
}

static int set_models(struct serve_options *o, int n, char **operands, const char *name)
{
    int rc = 0;
    if (!n && (rc = find_models(o))) return rc;
    if (o->default_path) {
        operands = &o->default_path;
        n = 1;
    }
    bool all = !n;
    if (all) n = (int)o->found.n;
    if (name && n != 1) return cli_usage("serve: --name is for one model, not %d; NAME=PATH names each", n);
    o->source = cli_alloc((size_t)n + 1, sizeof *o->source);
    o->names = cli_alloc((size_t)n + 1, sizeof *o->names);
    o->paths = cli_alloc((size_t)n + 1, sizeof *o->paths);
    o->models.source = o->source;
    for (int i = 0; i < n && !rc; i++) {
        const struct catalog_entry *found = all ? &o->found.entry[i] : NULL;
        rc = found ? add_model(o, found->path, name ? name : found->name) : add_model(o, operands[i], name);
        o->source[i].optional = all && n > 1;
    }
    for (size_t i = 0; i < o->pins.n && !rc; i++) rc = pin(o, o->pins.v[i]);
    if (!rc) rc = set_drafts(o);
    return rc ? rc : set_aliases(o);
}

/* What stages cannot do yet is refused by name. */
static int check_hosts(const struct serve_options *o)
{
    int rc = stage_hosts_check(&o->stages, "serve");
    if (rc || !stage_hosts_are_named(&o->stages)) return rc;
    if (o->models.n != 1) return cli_usage("serve: --hosts is for one model, not %d", o->models.n);
    if (o->stages.wire != WIRE_F32 && o->receipts)
        return cli_usage("serve: --wire bf16 does not go together with --receipts: such answers cannot be made again");
    return 0;
}

/* ---- options ---- */

void serve_options_init(void *options)
{
    struct serve_options *o = options;
    o->grace_s = 30;
    o->cache_bytes = (uint64_t)4 << 30;
    qn_model_params_init(&o->models.model);
    qn_engine_params_init(&o->models.engine);
    qn_scheduler_params_init(&o->models.scheduler);
    o->models.engine.n_sessions = 2;
    o->models.engine.kv_tokens = -1;
    share_options_init(&o->share);
}

int serve_options_finish(struct serve_options *o, int n, char **operands)
{
    struct qn_scheduler_params *s = &o->models.scheduler;
    if (o->context && !context_how_parse(o->context, &o->models.context))
        return cli_usage("serve: --context '%s' is neither plain nor rotate:KEEP", o->context);
    if (!o->cert != !o->key) return cli_usage("serve: --tls-cert and --tls-key go together");
    s->cache_bytes = s->cache_dir ? o->cache_bytes : 0;
    s->reads_ahead = !o->no_read_ahead;
    if (s->cache_dir || o->receipts) s->hash_dir = hashes_dir();
    int rc = set_models(o, n, operands, o->name);
    return rc ? rc : check_hosts(o);
}

#define AT(field) offsetof(struct serve_options, field)
const struct opt serve_places[] = {
    {"listen", 'l', OPT_STRINGS, AT(listen), "ADDRESS", "/PATH (a Unix socket) or HOST:PORT; may be repeated"},
    {"group", 0, OPT_STRING, AT(group), "GROUP", "group whose members may use the Unix socket too", .rare = true},
    {"api-keys", 0, OPT_STRING, AT(keys), "FILE", "API keys for TCP; required except on loopback", .words = WORDS_FILE},
    {"tls-cert", 0, OPT_STRING, AT(cert), "FILE", "use TLS on TCP, with this certificate (PEM)", .words = WORDS_FILE},
    {"tls-key", 0, OPT_STRING, AT(key), "FILE", "and with this key (PEM)", .words = WORDS_FILE},
    {"host", 0, OPT_STRINGS, AT(hosts), "NAME", "a host name that clients may use; may be repeated", .rare = true},
    {"origin", 0, OPT_STRINGS, AT(origins), "URL", "a web origin whose pages may send requests; may be repeated",
     .rare = true},
    {"page", 0, OPT_FLAG, AT(page), NULL, "serve a page for browsers at /"},
    {"connections", 0, OPT_INT, AT(connections), "N",
     "most open connections (default 0: 1024, or as many as the limit on open files allows)", 0, 65536, .rare = true},
    {"peer-connections", 0, OPT_INT, AT(peer_connections), "N",
     "most connections of one address or user (default 0: a quarter of all)", 0, 65536, .rare = true},
    {"proxy", 0, OPT_STRINGS, AT(proxies), "ADDRESS",
     "address of a proxy, which --peer-connections does not limit; may be repeated", .rare = true},
    {0},
};

const struct opt serve_models[] = {
    {"name", 0, OPT_STRING, AT(name), "NAME", "name of a single model (default: the file's)"},
    {"alias", 0, OPT_STRINGS, AT(aliases), "NAME=MODEL",
     "another name for a model; * is any name that is not served; may be repeated", .rare = true},
    {"pin", 0, OPT_STRINGS, AT(pins), "NAME", "load and keep this model; may be repeated", .rare = true},
    {"draft", 0, OPT_CHOICE, AT(models.scheduler.draft), "HOW",
     "guess next tokens: off, auto, ngram, mtp, model, wedlm",
     .choices = "off|auto|ngram|mtp|model|wedlm|default" /* in the order of enum qn_draft */},
    {"decoder", 0, OPT_CHOICE, AT(decoder), "HOW",
     "how tokens are found: plain (one by one: --draft off), wedlm (windows of masks: --draft wedlm) or auto (what "
     "--draft says; the default)",
     .choices = DECODER_CHOICES, .rare = true},
    {"draft-model", 0, OPT_STRINGS, AT(drafts), "[MODEL=]DRAFT",
     "a small model with the same vocabulary that guesses tokens for MODEL; may be repeated", .words = WORDS_MODEL,
     .rare = true},
    OPTS_WEDLM(AT(models.scheduler.wedlm)),
    {"context", 0, OPT_STRING, AT(context), "HOW",
     "when the context is full: plain (the answer ends) or rotate:KEEP (the first KEEP tokens and the newest stay)",
     .rare = true},
    {"idle", 0, OPT_INT, AT(models.idle_s), "SECONDS", "unload models idle so long (default 0: never)", 0, 1 << 30},
    {"parallel", 0, OPT_INT, AT(models.scheduler.n_running), "N", "answers computed together (default 8)", 1, 1024},
    {"queue", 0, OPT_INT, AT(models.scheduler.n_queued), "N", "requests that may wait (default 64)", 1, 65536,
     .rare = true},
    {"sessions", 0, OPT_INT, AT(models.engine.n_sessions), "N", "full contexts that memory is reserved for (default 2)",
     1, 1024, .rare = true},
    {"kv-tokens", 0, OPT_INT, AT(models.engine.kv_tokens), "N",
     "instead: tokens in memory for all requests together (default: what a quarter of it holds)", 1, 1 << 30,
     .rare = true},
    {"state-bytes", 0, OPT_SIZE, AT(models.engine.state_bytes), "BYTES",
     "memory for recurrent states, for models that have them (default: 16 copies next to the sessions)", .rare = true},
    {"cache-dir", 0, OPT_STRING, AT(models.scheduler.cache_dir), "DIR", "keep computed prefixes in this folder",
     .words = WORDS_FOLDER},
    {"cache-bytes", 0, OPT_SIZE, AT(cache_bytes), "BYTES", "most bytes in --cache-dir (default 4G)", .rare = true},
    {"no-read-ahead", 0, OPT_FLAG, AT(no_read_ahead), NULL, "read from --cache-dir only when a request needs it",
     .rare = true},
    {0},
};

const struct opt serve_process[] = {
    {"grace", 0, OPT_INT, AT(grace_s), "SECONDS", "time for running answers after a signal (default 30)", 0, 86400,
     .rare = true},
    {"no-sandbox", 0, OPT_FLAG, AT(no_sandbox), NULL, "do not restrict the process", .rare = true},
    {"receipts", 0, OPT_STRING, AT(receipts), "FILE", "append a receipt of each answer, for quern verify",
     .words = WORDS_FILE, .rare = true},
    {"log", 0, OPT_FLAG, AT(log), NULL, "a line on standard error for each request"},
    {0},
};

const struct opt serve_default[] = {
    {"model", 'm', OPT_STRING, AT(model), "MODEL", "the model to serve without operands", .words = WORDS_MODEL},
    {0},
};

void serve_options_free(struct serve_options *o)
{
    for (int i = 0; i < o->models.n; i++) {
        cli_free(o->names[i]);
        mem_free(o->paths[i]);
    }
    mem_free((void *)(uintptr_t)o->models.scheduler.hash_dir);
    for (size_t i = 0; o->alias_names && i < o->aliases.n; i++) cli_free(o->alias_names[i]);
    cli_free(o->alias_names);
    for (size_t i = 0; o->draft_paths && i < o->drafts.n; i++) mem_free(o->draft_paths[i]);
    cli_free(o->draft_paths);
    cli_free(o->alias);
    catalog_close(&o->found);
    cli_free(o->names);
    cli_free(o->paths);
    mem_free(o->default_path);
    cli_free(o->source);
}
