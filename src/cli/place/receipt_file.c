/* SPDX-License-Identifier: MIT
 *
 * receipt_file.c: see receipt_file.h.
 */
#include "cli/place/receipt_file.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sysexits.h>
#include <unistd.h>

#include "base/mem.h"
#include "base/os.h"
#include "base/out_file.h"
#include "cli/core/cli.h"
#include "cli/place/hashes.h"

#define PROMPT ".prompt" /* after the name of the receipt */

#define AT(field) offsetof(struct receipt_options, field)
const struct opt opts_receipt[] = {
    {"receipt", 0, OPT_STRING, AT(path), "FILE", "write a receipt, from which `quern verify` can check the answer",
     .words = WORDS_FILE, .rare = true},
    {"receipt-private", 0, OPT_FLAG, AT(is_private), NULL,
     "the receipt has only the hash of the prompt, which goes to FILE.prompt", .rare = true},
    {0},
};

int receipt_file_ask(const struct receipt_options *o, json_t *request)
{
    struct qn_error e;
    if (!o->path) return 0;
    mem_free(hashes_dir()); /* makes it, so that the model is not read for each receipt */
    if (!json_object_set_new(request, "receipt", o->is_private ? json_string("private") : json_true())) return 0;
    error_nomem(&e, "a request", 0);
    return cli_fail(&e);
}

int receipt_file_keep(struct buf *to, const struct receipt_options *o, const char *text, size_t n)
{
    if (!o || !o->path) return 0;
    buf_clear(to);
    return buf_add(to, text, n, NULL) || buf_str(to, "\n", NULL) ? QN_ENOMEM : 0;
}

static int replace(const char *path, const struct buf *text, bool is_secret, struct qn_error *e)
{
    struct out_file f = {0};
    int rc = out_file_open(&f, path, e);
    if (!rc && is_secret && fchmod(f.fd, 0600)) rc = error_set(e, QN_EIO, "cannot protect '%s': %m", path);
    if (!rc) rc = out_file_write(&f, text->data, text->len, e);
    if (!rc) rc = out_file_commit(&f, e);
    out_file_abort(&f);
    return rc;
}

static int append(const char *path, const struct buf *text, bool is_secret, struct qn_error *e)
{
    int fd, rc = os_open_log(&fd, path, is_secret ? 0600 : 0666, e);
    if (rc) return rc;
    int why = os_append(fd, text->data, text->len);
    close(fd);
    return why ? error_set(e, QN_EIO, "cannot write '%s': %s", path, strerror(why)) : 0;
}

/* Whether a file can be written, which may exist. Nothing is left behind. */
static int try_path(const char *path, bool appends, struct qn_error *e)
{
    const struct buf nothing = {0};
    struct out_file f = {0};
    struct stat st;
    if (appends && !stat(path, &st)) return append(path, &nothing, false, e);
    int rc = out_file_open(&f, path, e);
    out_file_abort(&f);
    return rc;
}

static int prompt_path(struct buf *path, const struct receipt_options *o, struct qn_error *e)
{
    int rc = buf_str(path, o->path, e);
    return rc ? rc : buf_str(path, PROMPT, e);
}

typedef int put_file(const char *path, const struct buf *text, bool is_secret, struct qn_error *e);

static int put(const struct receipt_options *o, const struct buf *receipt, const struct buf *prompt, put_file *write_to)
{
    struct buf path = {0};
    struct qn_error e;
    if (!o || !o->path) return 0;
    if (!receipt->len) {
        fputs("quern: the server that answered gave no receipt (only Quern's own does)\n", stderr);
        return EX_UNAVAILABLE;
    }
    int rc = 0;
    if (prompt->len) {
        rc = prompt_path(&path, o, &e);
        if (!rc) rc = write_to((char *)path.data, prompt, true, &e);
    }
    if (!rc) rc = write_to(o->path, receipt, false, &e);
    buf_deinit(&path);
    return rc ? cli_fail(&e) : 0;
}

int receipt_file_check(const char *command, const struct receipt_options *o, bool appends)
{
    struct buf prompt = {0};
    struct qn_error e;
    if (o->is_private && !o->path) return cli_usage("%s: --receipt-private needs --receipt FILE", command);
    if (!o->path) return 0;
    if (!*o->path) return cli_usage("%s: --receipt needs the name of a file", command);
    int rc = try_path(o->path, appends, &e);
    if (!rc && o->is_private) rc = prompt_path(&prompt, o, &e);
    if (!rc && o->is_private) rc = try_path((char *)prompt.data, appends, &e);
    buf_deinit(&prompt);
    return rc ? cli_fail(&e) : 0;
}

int receipt_file_write(const struct receipt_options *o, const struct buf *receipt, const struct buf *prompt)
{
    return put(o, receipt, prompt, replace);
}

int receipt_file_append(const struct receipt_options *o, const struct buf *receipt, const struct buf *prompt)
{
    return put(o, receipt, prompt, append);
}
