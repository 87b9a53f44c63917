/* SPDX-License-Identifier: MIT
 *
 * command_pull.c: `quern pull SRC`: fetches a model, whole and checked, under its own name into a folder of the user.
 *
 * Standard output gets the path of the model, and everything else goes to standard error; progress is shown on a
 * terminal only. A signal stops the transfer and keeps what has arrived, and the same command continues from there.
 * docs/PULL.md is for users.
 */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sysexits.h>
#include <unistd.h>

#include "base/mem.h"
#include "base/os.h"
#include "cli/place/catalog.h"
#include "cli/models/check_model.h"
#include "cli/core/cli.h"
#include "cli/core/commands.h"
#include "cli/place/hashes.h"
#include "cli/core/progress.h"
#include "cli/models/pull_hosts.h"
#include "cli/models/pull_target.h"
#include "fetch/download.h"
#include "fetch/listing.h"
#include "fetch/rsync.h"
#include "fetch/file_sha256.h"

#define HUB         "https://huggingface.co"
#define TOKEN_BYTES ((size_t)4096)

struct pull_options {
    struct cli_strings models;
    const char *hub;
    const char *output, *token_file, *ca, *hosts, *layers;
    uint64_t limit_rate;
    int timeout_s, n_connections;
    bool force, insecure_http;
};

struct pull {
    const struct pull_options *o;
    struct fetch_options fetch;
    struct location source;
    char *path;       /* the path that the model will have */
    struct buf token; /* empty: none */
    struct progress progress;
    const char *doing; /* the operation that the progress shows; NULL: none */
    const char *name;  /* name of the file in progress */
};

static volatile sig_atomic_t stop_signal;

static void on_signal(int sig) { stop_signal = sig; }

/* ---- progress and signals ---- */

static void end_progress(struct pull *p)
{
    progress_end(&p->progress);
    p->doing = NULL;
}

static bool watch(void *arg, const char *what, uint64_t done, uint64_t total)
{
    struct pull *p = arg;

    if (what && what != p->doing) {
        char label[300];
        end_progress(p);
        snprintf(label, sizeof label, "%s %s", what, p->name);
        progress_begin(&p->progress, label, "B", total);
        p->doing = what;
    }
    if (what) progress_update(&p->progress, done);
    return !stop_signal;
}

static void watch_signals(void)
{
    static const int signals[] = {SIGINT, SIGTERM, SIGHUP};
    struct sigaction a = {.sa_handler = on_signal, .sa_flags = SA_RESTART}, old;

    for (size_t i = 0; i < sizeof signals / sizeof *signals; i++) /* a signal that nohup ignores stays ignored */
        if (sigaction(signals[i], NULL, &old) == 0 && old.sa_handler != SIG_IGN) sigaction(signals[i], &a, NULL);
}

/* ---- a file over HTTP ---- */

/* Compares an existing file with the one that would be fetched; *same gets the result. If the hash is not known, the
 * size and the time of the last change decide; any_time: the size alone. Returns 0 or an exit status. */
static int compare(struct pull *p, const char *path, const char *sha256, const struct remote_file *from, bool any_time,
                   bool *same)
{
    struct qn_error e;
    struct stat st;
    char hex[65];
    int fd, r;

    *same = !*sha256 && stat(path, &st) == 0 && (uint64_t)st.st_size == from->size &&
            (any_time || (from->modified_s > 0 && st.st_mtime == from->modified_s));
    if (!*sha256 || (fd = open(path, O_RDONLY | O_CLOEXEC)) < 0) return 0;
    r = file_sha256(hex, fd, path, &p->fetch, &e);
    end_progress(p);
    close(fd);
    *same = r == 0 && !strcmp(hex, sha256);
    if (*same) hashes_remember(path, hex);
    return r ? cli_fail(&e) : 0;
}

static int fetch_file(struct pull *p, const char *path, struct remote_file *from, const char *sha256, bool replace)
{
    struct qn_error e;
    struct partial_file part;
    int rc;

    if (partial_open(&part, path, false, &e)) return cli_fail(&e);
    rc = download(&part, from, p->source.repo, sha256, &p->fetch, &e);
    end_progress(p);
    rc = rc ? cli_fail(&e) : pull_finish(&part, replace);
    if (!rc && from->modified_s > 0) /* by which the next pull sees that it is the same file */
        utimensat(AT_FDCWD, path, (struct timespec[2]){{.tv_nsec = UTIME_OMIT}, {.tv_sec = from->modified_s}}, 0);
    if (!rc) hashes_remember(path, *sha256 ? sha256 : from->sha256); /* the download was compared with it */
    partial_close(&part);
    return rc;
}

/* What to do with a file that exists already, by what is fetched. */
enum there {
    THERE_ALONE, /* the file is the user's: only --force replaces it, and only its hash shows that it is the same */
    THERE_PART,  /* the same, but the file is one of several fetched together: an equal size is enough */
    THERE_OURS,  /* in a folder that is being made: a different file is replaced */
};

static int pull_url(struct pull *p, const char *url, const char *path, const char *sha256, enum there there)
{
    struct qn_error e;
    struct remote_file from;
    bool replace = there == THERE_OURS || p->o->force, same = false;
    int rc = 0;

    if (remote_file_open(&from, &p->fetch, url, p->source.repo, &e)) return cli_fail(&e);
    const char *hash = *sha256 ? sha256 : from.sha256;
    if (os_exists(path) && (there == THERE_OURS || !p->o->force))
        rc = compare(p, path, hash, &from, there != THERE_ALONE, &same);
    if (!rc && !same && !replace && os_exists(path)) {
        cli_usage("pull: '%s' is there already, and %s; --force replaces it", path,
                  *hash ? "is another file" : "nothing says whether it is the same");
        rc = EX_CANTCREAT;
    }
    if (!rc && !same) rc = fetch_file(p, path, &from, sha256, replace);
    remote_file_close(&from);
    return rc;
}

/* ---- a model in parts ---- */

/* The name or URL of another part: only the number differs. If the number is there several times, it is the last. */
static char *part_named(const char *of, uint64_t n, uint64_t no)
{
    char ending[32], number[8], *copy = cli_alloc(strlen(of) + 1, 1), *at = NULL;

    strcpy(copy, of);
    snprintf(ending, sizeof ending, "-of-%05u.gguf", (unsigned)n);
    snprintf(number, sizeof number, "%05u", (unsigned)no);
    for (char *next = copy; (next = strstr(next, ending)); next++) at = next;
    if (at && at - copy >= 5) memcpy(at - 5, number, 5);
    return copy;
}

/* Fetches all parts, whichever was named. The path that is printed is that of the first part. */
static int pull_parts(struct pull *p, uint64_t n)
{
    struct qn_error e;
    char *first = part_named(p->path, n, 1);
    struct weights *w = NULL;
    int rc = 0;

    if (*p->source.sha256) rc = cli_usage("pull: a model in %u parts has no one SHA-256", (unsigned)n);
    for (uint64_t no = 1; no <= n && !rc; no++) {
        char *url = part_named(p->source.place, n, no), *path = part_named(p->path, n, no);
        p->name = catalog_last_name(path);
        rc = pull_url(p, url, path, "", THERE_PART);
        cli_free(url);
        cli_free(path);
    }
    cli_free(p->path);
    p->path = first;
    if (!rc && check_model(&w, first, false, NULL, NULL, NULL, &e)) rc = cli_fail(&e);
    weights_close(w);
    return rc;
}

/* ---- a folder of a hub ---- */

static int pull_listed(struct pull *p, const struct partial_file *folder, const struct hub_file *f)
{
    struct qn_error e;
    struct buf path = {0};
    char *url;
    int rc;

    if (location_hub_url(&url, p->o->hub, p->source.repo, f->name, &e)) return cli_fail(&e);
    p->name = f->name;
    rc = buf_printf(&path, &e, "%s/%s", folder->part, f->name) ? cli_fail(&e) : 0;
    if (!rc) rc = pull_url(p, url, (const char *)path.data, "", THERE_OURS);
    buf_deinit(&path);
    mem_free(url);
    return rc;
}

static int pull_folder(struct pull *p)
{
    struct qn_error e;
    struct hub_listing list;
    struct partial_file part;
    int rc = 0;

    if (*p->source.sha256) return cli_usage("pull: a folder has no SHA-256");
    if (os_exists(p->path)) {
        cli_usage("pull: '%s' is there already; a folder is not replaced, remove or rename it first", p->path);
        return EX_CANTCREAT;
    }
    if (listing_fetch(&list, &p->fetch, p->source.place, &e)) return cli_fail(&e);
    if (partial_open(&part, p->path, true, &e)) {
        listing_deinit(&list);
        return cli_fail(&e);
    }
    for (size_t i = 0; i < list.n_files && !rc; i++) rc = pull_listed(p, &part, &list.file[i]);
    if (!rc) rc = pull_finish(&part, false);
    partial_close(&part);
    listing_deinit(&list);
    return rc;
}

/* ---- through rsync ---- */

/* Copies the old file's bytes into the part, so that rsync sends only what differs. Returns 1 if there is no need,
 * or if it does not work. */
static int begin_with_old(struct partial_file *part, const char *path)
{
    struct stat old, now;
    int fd, r = 0;

    if (fstat(part->fd, &now) || now.st_size > 0) return 1;
    fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0) return 1;
    if (fstat(fd, &old) == 0)
        for (off_t left = old.st_size; left > 0 && r == 0;) {
            ssize_t n = copy_file_range(fd, NULL, part->fd, NULL, (size_t)left, 0);
            if (n <= 0) r = 1; /* then rsync sends everything */
            left -= n;
        }
    close(fd);
    return r;
}

static int verify(struct pull *p, struct partial_file *part)
{
    struct qn_error e;
    char hex[65];
    int fd, r;

    if (!*p->source.sha256) return 0;
    fd = open(part->part, O_RDONLY | O_CLOEXEC);
    if (fd < 0) return cli_usage("pull: cannot open '%s': %s", part->part, strerror(errno));
    r = file_sha256(hex, fd, part->part, &p->fetch, &e);
    end_progress(p);
    close(fd);
    if (r) return cli_fail(&e);
    if (!strcmp(hex, p->source.sha256)) return 0;
    if (partial_reject(part, &e)) return cli_fail(&e);
    error_set(&e, QN_EDATA, "'%s' has the SHA-256 %s, not %s; what came is '%s'", part->path, hex, p->source.sha256,
              part->bad);
    return cli_fail(&e);
}

static int fetch_rsync(struct pull *p, const struct rsync_listing *there)
{
    struct qn_error e;
    struct partial_file part;
    struct stat st;
    int show_fd = progress_is_wanted() ? STDERR_FILENO : -1, rc;

    if (partial_open(&part, p->path, there->is_folder, &e)) return cli_fail(&e);
    if (!there->is_folder && p->o->force) begin_with_old(&part, p->path);
    if (fstat(part.fd, &st)) st.st_size = 0;
    uint64_t here = there->is_folder ? 0 : (uint64_t)st.st_size;
    rc = partial_check_space(&part, there->bytes > here ? there->bytes - here : 0, &e);
    if (!rc) rc = rsync_fetch(p->source.place, there->is_folder, part.part, show_fd, &p->fetch, &e);
    rc = rc ? cli_fail(&e) : verify(p, &part);
    if (!rc) rc = pull_finish(&part, p->o->force && !there->is_folder);
    if (!rc) hashes_remember(p->path, p->source.sha256);
    partial_close(&part);
    return rc;
}

static int pull_rsync(struct pull *p)
{
    struct qn_error e;
    struct rsync_listing there;

    if (rsync_list(&there, p->source.place, &p->fetch, &e)) return cli_fail(&e);
    if (there.is_folder && *p->source.sha256) return cli_usage("pull: a folder has no SHA-256");
    if (os_exists(p->path) && (there.is_folder || !p->o->force)) {
        int same = there.is_folder ? 0 : rsync_is_same(p->source.place, p->path, &p->fetch, &e);
        if (same < 0) return cli_fail(&e);
        if (same) return 0;
        cli_usage("pull: '%s' is there already, and is another; %s", p->path,
                  there.is_folder ? "a folder is not replaced, remove or rename it first" : "--force replaces it");
        return EX_CANTCREAT;
    }
    return fetch_rsync(p, &there);
}

/* ---- the command ---- */

/* Reads the token: from --token-file, or else, for the hub only, from the environment. */
static int read_token(struct pull *p)
{
    const char *hf = p->source.repo ? getenv("HF_TOKEN") : NULL;
    struct qn_error e;
    int r = 0;

    if (p->o->token_file)
        r = os_read_file(&p->token, p->o->token_file, TOKEN_BYTES, &e);
    else if (hf)
        r = buf_str(&p->token, hf, &e);
    if (r) return cli_fail(&e);
    while (p->token.len && strchr(" \t\r\n", p->token.data[p->token.len - 1])) p->token.data[--p->token.len] = 0;
    if (p->token.len) p->fetch.token = (const char *)p->token.data;
    if (p->o->token_file && !p->token.len) return cli_usage("pull: '%s' has no token in it", p->o->token_file);
    return 0;
}

/* The model's files go to the other hosts one after another. */
static int to_hosts(struct pull *p)
{
    uint64_t n = pull_n_parts(catalog_last_name(p->path));
    char **paths = cli_alloc(n ? (size_t)n : 1, sizeof *paths);
    int rc;

    if (n <= 1) n = 1;
    paths[0] = p->path;
    for (uint64_t no = 1; n > 1 && no <= n; no++) paths[no - 1] = part_named(p->path, n, no);
    rc = pull_to_hosts(p->o->hosts, p->o->layers, paths, (int)n, &p->fetch);
    for (uint64_t i = 0; n > 1 && i < n; i++) cli_free(paths[i]);
    cli_free(paths);
    return rc;
}

static int pull(struct pull *p)
{
    uint64_t n;
    int rc = read_token(p);

    if (rc || (rc = pull_target(&p->path, &p->source, p->o->output, &p->o->models))) return rc;
    p->name = catalog_last_name(p->path);
    n = strcmp(p->name, p->source.name) ? 1 : pull_n_parts(p->name); /* under another name it is a single file */
    watch_signals();
    switch (p->source.kind) {
    case LOCATION_RSYNC: rc = pull_rsync(p); break;
    case LOCATION_HF_FOLDER: rc = pull_folder(p); break;
    default: rc = n > 1 ? pull_parts(p, n) : pull_url(p, p->source.place, p->path, p->source.sha256, THERE_ALONE);
    }
    end_progress(p);
    if (!rc && p->o->hosts) rc = to_hosts(p);
    if (!rc) printf("%s\n", p->path);
    return rc;
}

/* A model that is here is copied as it is. */
static int check_local(const struct pull_options *o, const char *path)
{
    const char *other = o->output ? "--output" : o->force ? "--force" : NULL;
    if (o->token_file) other = "--token-file";
    if (!other) return 0;
    return cli_usage("pull: %s has no effect, because '%s' is here: it is only copied to the other hosts", other, path);
}

static int run(struct invocation *v)
{
    const struct pull_options *o = v->options;
    struct pull p = {.o = o};
    struct qn_error e;
    int rc;

    p.fetch = (struct fetch_options){
        .ca = o->ca,
        .insecure_http = o->insecure_http,
        .timeout_s = o->timeout_s,
        .n_connections = o->n_connections,
        .bytes_per_s = o->limit_rate,
        .watch = watch,
        .arg = &p,
    };
    if (o->layers && !o->hosts) return cli_usage("pull: --layers needs --hosts, the hosts that have them");
    if (o->hosts && os_exists(v->operand[0])) {
        if ((rc = check_local(o, v->operand[0]))) return rc;
        p.path = cli_alloc(strlen(v->operand[0]) + 1, 1);
        strcpy(p.path, v->operand[0]);
        watch_signals();
        rc = to_hosts(&p);
        if (!rc) printf("%s\n", p.path);
    } else {
        if (location_parse(&p.source, v->operand[0], o->hub, o->insecure_http, &e)) return cli_fail(&e);
        rc = pull(&p);
    }
    buf_deinit(&p.token);
    location_deinit(&p.source);
    cli_free(p.path);
    if (stop_signal) { /* the shell must see which signal ended the program */
        signal(stop_signal, SIG_DFL);
        raise(stop_signal);
    }
    return rc;
}

static void init(void *options)
{
    struct pull_options *o = options;

    o->hub = HUB;
    o->timeout_s = 30;
    o->n_connections = 4;
}

#define AT(field) offsetof(struct pull_options, field)
static const struct opt own[] = {
    {"output", 'o', OPT_STRING, AT(output), "FILE", "path of the file here, or of its folder", .words = WORDS_FILE},
    {"force", 'f', OPT_FLAG, AT(force), NULL, "replace an existing file that is different"},
    {"hosts", 0, OPT_STRING, AT(hosts), "HOST[=PATH],...",
     "bring the model to these hosts too, through rsync and ssh; SRC may then be a file that is here", .rare = true},
    {"layers", 0, OPT_STRING, AT(layers), "FIRST-LAST,...|even",
     "bring each of the hosts the weights of these layers only, for a stage of quern serve --hosts", .rare = true},
    {"limit-rate", 0, OPT_SIZE, AT(limit_rate), "BYTES", "most bytes per second, such as 2M (one connection)"},
    {"connections", 0, OPT_INT, AT(n_connections), "N", "number of connections (default 4)", 1, 16, .rare = true},
    {"timeout", 0, OPT_INT, AT(timeout_s), "SECONDS", "give up on a connection after this silence (default 30)", 1,
     86400, .rare = true},
    {"token-file", 0, OPT_STRING, AT(token_file), "FILE", "a token for the source (hf: also $HF_TOKEN)",
     .words = WORDS_FILE, .rare = true},
    {"ca", 0, OPT_STRING, AT(ca), "FILE", "trust these certificates (PEM) instead of the system's", .words = WORDS_FILE,
     .rare = true},
    {"insecure-http", 0, OPT_FLAG, AT(insecure_http), NULL,
     "allow http:// to other machines, which anybody can read and change", .rare = true},
    {0},
};

static const struct opt places[] = {
    {"hf-endpoint", 0, OPT_STRING, AT(hub), "URL", "the hub that hf: means (default " HUB ")", .rare = true},
    {0},
};

static const struct opt_group groups[] = {
    {"Options", own},
    {"Models", opts_folders, AT(models), ""},
    {"Places", places, .section = ""},
    {0},
};

static const struct example examples[] = {
    {"quern pull hf:OWNER/REPO/FILE.gguf", "A file from the hub"},
    {"quern pull nas:models/chat.gguf --limit-rate 2M", "From another machine, through rsync and ssh, slowly"},
    {"quern run $(quern pull hf:OWNER/REPO/FILE.gguf) \"Hello\"", "Fetch it if it is missing, and use it"},
    {0},
};

const struct command command_pull = {
    .name = "pull",
    .operands = "[OPTIONS] SRC",
    .brief = "fetch a model through rsync or HTTP, and check it",
    .about = "SRC is host:path or rsync://host/module/path, https://host/path, hf:OWNER/REPO/FILE, or hf:OWNER/REPO "
             "for a folder of safetensors. With #sha256=HEX after it the hash is verified. Prints the path of the "
             "model. After an interruption, the same command continues.\n\n"
             "The model is checked as by quern check. Credentials are never sent to a host other than the one they are "
             "for.",
    .min = 1,
    .max = 1,
    .examples = examples,
    .groups = groups,
    .size = sizeof(struct pull_options),
    .init = init,
    .run = run,
};
