/* SPDX-License-Identifier: MIT
 *
 * cli.c: exit codes and byte streams for the commands. See cli.h.
 */
#include "base/buf.h"
#include "base/error.h"
#include "base/json/json_text.h"
#include "base/mem.h"
#include "cli/core/cli.h"

#include <errno.h>
#include <jansson.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sysexits.h>
#include <unistd.h>

const char *volatile cli_unfinished;
volatile bool cli_outlives_files;

int cli_fail(const struct qn_error *e)
{
    fprintf(stderr, "quern: %s\n", e->msg);
    switch (e->code) {
    case QN_EUSAGE: return EX_USAGE;
    case QN_EDATA:
    case QN_EUNSUP:
    case QN_ENUMERIC:
    case QN_EFULL: return EX_DATAERR;
    case QN_ENOINPUT: return EX_NOINPUT;
    case QN_EBUSY:
    case QN_ENOMEM: return EX_TEMPFAIL;
    case QN_EIO: return EX_IOERR;
    default: return EX_SOFTWARE;
    }
}

int cli_usage(const char *fmt, ...)
{
    char text[512], clean[512];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    error_clean(clean, sizeof clean, text);
    fprintf(stderr, "quern: %s\n", clean);
    return EX_USAGE;
}

/* ---- input and output ---- */

void *cli_alloc(size_t n, size_t size)
{
    void *p = mem_calloc(n ? n : 1, size);
    if (p) return p;
    fprintf(stderr, "quern: not enough memory for %zu times %zu bytes\n", n, size);
    exit(EX_TEMPFAIL);
}

void cli_free(void *p) { mem_free(p); }

bool cli_has_stdin(void)
{
    struct stat st;
    return fstat(STDIN_FILENO, &st) == 0 && (S_ISFIFO(st.st_mode) || S_ISREG(st.st_mode) || S_ISSOCK(st.st_mode));
}

int cli_read_all(int fd, const char *name, size_t limit, char **data, size_t *n)
{
    size_t len = 0, cap = 1 << 16;
    char *p = mem_alloc(cap);
    while (p) {
        ssize_t got = read(fd, p + len, cap - len - 1);
        if (got < 0 && errno == EINTR) continue;
        if (got < 0) {
            int status = errno == EISDIR ? EX_NOINPUT : EX_IOERR;
            fprintf(stderr, "quern: cannot read %s: %s\n", name, strerror(errno));
            mem_free(p);
            return status;
        }
        if (got == 0) {
            p[len] = 0;
            *data = p;
            *n = len;
            return 0;
        }
        len += (size_t)got;
        if (len > limit) {
            fprintf(stderr, "quern: %s has more than %zu bytes, which is the limit\n", name, limit);
            mem_free(p);
            return EX_DATAERR;
        }
        if (cap - len < 2) {
            cap *= 2;
            char *q = mem_realloc(p, cap);
            if (!q) mem_free(p);
            p = q;
        }
    }
    fprintf(stderr, "quern: not enough memory for %zu bytes of %s\n", cap, name);
    return EX_TEMPFAIL;
}

int cli_write(const void *p, size_t n)
{
    const char *s = p;
    while (n > 0) {
        ssize_t done = write(STDOUT_FILENO, s, n);
        if (done < 0 && errno == EINTR) continue;
        if (done < 0) return -1;
        s += done;
        n -= (size_t)done;
    }
    return 0;
}

size_t cli_json_flags(size_t flags) { return isatty(STDOUT_FILENO) ? flags | JSON_ENSURE_ASCII : flags; }

void cli_print_json(json_t *document, size_t flags)
{
    struct buf text = {0};
    struct qn_error e;
    if (json_text_add(&text, document, cli_json_flags(flags), "the output", &e)) exit(cli_fail(&e));
    fwrite(text.data, 1, text.len, stdout);
    putchar('\n');
    buf_deinit(&text);
    json_decref(document);
}

int cli_write_status(void)
{
    if (errno == EPIPE) return EX_OK;
    fprintf(stderr, "quern: cannot write to standard output: %s\n", strerror(errno));
    return EX_IOERR;
}
