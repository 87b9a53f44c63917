/* SPDX-License-Identifier: MIT
 *
 * rsync.c: runs rsync. Source: rsync(1).
 *
 * The file is written in place (--inplace), in our NAME.part. So however rsync ends, the bytes that have come are
 * there, and the next run finds by its sums which blocks it need not send again. Links are followed at the source, so
 * only files and folders come; ownership and modes are not copied.
 *
 * There is no shell in between; names with spaces are single names (--protect-args); and operands follow a "--". rsync
 * ends when we end.
 */
#include "fetch/rsync.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "base/buf.h"

#define MAX_ARGS   32
#define MAX_OUTPUT ((size_t)64 << 20) /* bytes of a listing */
#define MAX_WORDS  ((size_t)16 << 10) /* bytes of complaints */
#define MAX_TRIES  5
#define POLL_MS    100

struct call {
    const char *argv[MAX_ARGS];
    int n;
    char timeout[32], limit[32];
    struct buf out, err;
    int show_fd; /* where its standard output goes; -1: to `out` */
    int status;  /* rsync's exit status */
};

static void add(struct call *c, const char *arg)
{
    c->argv[c->n++] = arg;
    c->argv[c->n] = NULL;
}

static void begin(struct call *c, const struct fetch_options *o)
{
    *c = (struct call){.show_fd = -1};
    add(c, "rsync");
    add(c, "--protect-args");
    add(c, "--no-motd");
    add(c, "--copy-links");
    snprintf(c->timeout, sizeof c->timeout, "--timeout=%d", o->timeout_s);
    add(c, c->timeout);
    if (o->bytes_per_s) { /* in units of 1024 bytes; a small limit must not become 0, which means none */
        snprintf(c->limit, sizeof c->limit, "--bwlimit=%llu", (unsigned long long)(o->bytes_per_s + 1023) / 1024);
        add(c, c->limit);
    }
}

static void end(struct call *c)
{
    buf_deinit(&c->out);
    buf_deinit(&c->err);
}

/* ---- running it ---- */

/* Runs in the child and becomes rsync. It returns only if that fails; then the parent has got errno through `why`, and
 * nothing is left to do. */
static void become_rsync(const struct call *c, int out, int err, int why, pid_t parent)
{
    int null = open("/dev/null", O_RDONLY), no;

    prctl(PR_SET_PDEATHSIG, SIGTERM);
    signal(SIGPIPE, SIG_DFL);
    signal(SIGXFSZ, SIG_DFL);
    if (null >= 0) dup2(null, STDIN_FILENO);
    dup2(out, STDOUT_FILENO);
    dup2(err, STDERR_FILENO);
    if (getppid() == parent) execvp("rsync", (char *const *)(uintptr_t)c->argv);
    no = errno;
    while (write(why, &no, sizeof no) < 0 && errno == EINTR)
        ;
    raise(SIGKILL); /* no exit handlers, no flushing of the parent's output */
}

/* Reads the bytes that are there; false at the end. Bytes beyond `limit` are dropped. */
static bool drain(int fd, struct buf *b, size_t limit)
{
    char block[4096];
    ssize_t n = read(fd, block, sizeof block);

    if (n < 0) return errno == EINTR || errno == EAGAIN;
    if (n > 0 && b->len + (size_t)n <= limit) buf_add(b, block, (size_t)n, NULL);
    return n > 0;
}

/* Runs until rsync has closed both pipes. Stops rsync when the user wants no more. */
static void attend(struct call *c, pid_t pid, int out, int err, const struct fetch_options *o)
{
    struct pollfd p[2] = {{.fd = out, .events = POLLIN}, {.fd = err, .events = POLLIN}};

    while (p[0].fd >= 0 || p[1].fd >= 0) {
        poll(p, 2, POLL_MS);
        if (p[0].revents && !drain(p[0].fd, &c->out, MAX_OUTPUT)) p[0].fd = -1;
        if (p[1].revents && !drain(p[1].fd, &c->err, MAX_WORDS)) p[1].fd = -1;
        if (!o->watch(o->arg, NULL, 0, 0)) kill(pid, SIGTERM);
    }
}

static void close_all(int fd[6])
{
    for (int i = 0; i < 6; i++)
        if (fd[i] >= 0) close(fd[i]);
}

/* The errno with which the program could not be run; 0 if it runs. */
static int exec_errno(int fd)
{
    int no = 0;

    while (read(fd, &no, sizeof no) < 0 && errno == EINTR)
        ;
    return no;
}

static int call(struct call *c, const struct fetch_options *o, struct qn_error *e)
{
    /* Pipes for out, err and why: the reading and the writing end of each. */
    int fd[6] = {-1, -1, -1, -1, -1, -1}, status = 0, no = 0;
    pid_t parent = getpid(), pid = -1;

    if (pipe2(fd, O_CLOEXEC) == 0 && pipe2(fd + 2, O_CLOEXEC) == 0 && pipe2(fd + 4, O_CLOEXEC) == 0) pid = fork();
    if (pid == 0) become_rsync(c, c->show_fd >= 0 ? c->show_fd : fd[1], fd[3], fd[5], parent);
    if (pid < 0) {
        no = errno;
        close_all(fd);
        return error_set(e, QN_EIO, "cannot run rsync: %s", strerror(no));
    }
    for (int i = 1; i < 6; i += 2) {
        close(fd[i]);
        fd[i] = -1;
    }
    no = exec_errno(fd[4]);
    if (!no) attend(c, pid, fd[0], fd[2], o);
    while (waitpid(pid, &status, 0) < 0 && errno == EINTR)
        ;
    close_all(fd);
    if (no == ENOENT)
        return error_set(e, QN_EUNSUP,
                         "this needs the rsync program, which is not installed (Debian's package is rsync)");
    if (no) return error_set(e, QN_EIO, "cannot run rsync: %s", strerror(no));
    if (!o->watch(o->arg, NULL, 0, 0))
        return error_set(e, QN_ECANCEL, "stopped while rsync was running; the same command goes on from here");
    c->status = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
    return 0;
}

/* Sets the error in rsync's own words: its first line says what happened, the others where in rsync. */
static int failed(const struct call *c, const char *place, struct qn_error *e)
{
    const char *words = c->err.data ? (const char *)c->err.data : "";
    int code = c->status == 23 || c->status == 3 ? QN_ENOINPUT : QN_EIO;

    return error_set(e, code, "cannot copy '%s': rsync ends with status %d: %.*s", place, c->status,
                     (int)strcspn(words, "\n"), words);
}

/* ---- what it is run for ---- */

/* Adds the size of a file from a line "-rw-r--r--     1234 2026/01/02 03:04:05 name"; false if the line is of another
 * form. */
static bool count_line(struct rsync_listing *l, const char *line, bool is_first)
{
    const char *size = strchr(line, ' ');

    if (!size || !strchr("-dlcbps", *line)) return false;
    if (is_first) l->is_folder = *line == 'd';
    if (*line == '-') l->bytes += strtoull(size, NULL, 10);
    return true;
}

int rsync_list(struct rsync_listing *l, const char *place, const struct fetch_options *o, struct qn_error *e)
{
    struct call c;
    struct rsync_listing found = {0};
    bool is_first = true;
    char *rest = NULL;
    int r;

    begin(&c, o);
    add(&c, "--recursive");
    add(&c, "--list-only");
    add(&c, "--no-human-readable");
    add(&c, "--");
    add(&c, place);
    r = call(&c, o, e);
    if (r == 0 && c.status) r = failed(&c, place, e);
    if (r == 0 && c.out.data)
        for (char *s = strtok_r((char *)c.out.data, "\n", &rest); s; s = strtok_r(NULL, "\n", &rest))
            if (count_line(&found, s, is_first)) is_first = false;
    if (r == 0 && is_first) r = error_set(e, QN_ENOINPUT, "'%s': rsync finds nothing there", place);
    end(&c);
    if (r == 0) *l = found;
    return r;
}

static bool is_loss(int status)
{
    return status == 10 || status == 12 || status == 30 ||
           status == 35; /* errors of the socket, of the protocol's data, and time-outs */
}

static bool pause_before(int n_try, const struct fetch_options *o)
{
    const struct timespec t = {.tv_nsec = POLL_MS * 1000000};

    for (int i = 0; i < 5 << n_try; i++) {
        if (!o->watch(o->arg, NULL, 0, 0)) return false;
        nanosleep(&t, NULL);
    }
    return true;
}

int rsync_fetch(const char *place, bool is_folder, const char *to, int show_fd, const struct fetch_options *o,
                struct qn_error *e)
{
    struct buf from = {0}, into = {0};
    struct call c;
    size_t n = strlen(place);
    int r = buf_printf(&from, e, "%s%s", place, is_folder && (!n || place[n - 1] != '/') ? "/" : "");

    if (r == 0) r = buf_printf(&into, e, "%s%s%s", to[0] == '/' ? "" : "./", to, is_folder ? "/" : "");
    for (int n_try = 0; r == 0; n_try++) {
        begin(&c, o);
        c.show_fd = show_fd;
        add(&c, "--inplace");
        add(&c, "--no-whole-file");
        add(&c, "--ignore-times"); /* the file here is compared, whatever its date */
        if (is_folder) add(&c, "--recursive");
        if (show_fd >= 0) add(&c, "--info=progress2");
        add(&c, "--");
        add(&c, (const char *)from.data);
        add(&c, (const char *)into.data);
        r = call(&c, o, e);
        if (r == 0 && c.status) r = failed(&c, place, e);
        bool again = r == QN_EIO && is_loss(c.status) && n_try < MAX_TRIES;
        end(&c);
        if (!again) break;
        r = pause_before(n_try, o)
                ? 0
                : error_set(e, QN_ECANCEL, "stopped while '%s' was being fetched; the same command goes on from here",
                            place);
    }
    buf_deinit(&from);
    buf_deinit(&into);
    return r;
}

int rsync_is_same(const char *place, const char *path, const struct fetch_options *o, struct qn_error *e)
{
    struct buf into = {0};
    struct call c;
    int r = buf_printf(&into, e, "%s%s", path[0] == '/' ? "" : "./", path);

    if (r) return r;
    begin(&c, o);
    add(&c, "--dry-run");
    add(&c, "--checksum");
    add(&c, "--out-format=%n");
    add(&c, "--");
    add(&c, place);
    add(&c, (const char *)into.data);
    r = call(&c, o, e);
    if (r == 0 && c.status) r = failed(&c, place, e);
    if (r == 0) r = c.out.len == 0;
    end(&c);
    buf_deinit(&into);
    return r;
}

static void begin_send(struct call *c, bool is_folder, const struct fetch_options *o)
{
    begin(c, o);
    if (is_folder) add(c, "--recursive");
}

static int finish_send(struct call *c, const char *path, bool is_folder, const char *place,
                       const struct fetch_options *o, struct qn_error *e)
{
    struct buf from = {0}, into = {0};
    int r = buf_printf(&from, e, "%s%s%s", path[0] == '/' ? "" : "./", path, is_folder ? "/" : "");
    if (r == 0) r = buf_printf(&into, e, "%s%s", place, is_folder ? "/" : "");
    if (r == 0) {
        add(c, "--");
        add(c, (const char *)from.data);
        add(c, (const char *)into.data);
        r = call(c, o, e);
    }
    if (r == 0 && c->status) r = failed(c, place, e);
    buf_deinit(&from);
    buf_deinit(&into);
    return r;
}

int rsync_send(const char *path, bool is_folder, bool has_holes, const char *place, int show_fd,
               const struct fetch_options *o, struct qn_error *e)
{
    struct call c;
    begin_send(&c, is_folder, o);
    c.show_fd = show_fd;
    add(&c, "--mkpath");
    add(&c, "--partial");
    add(&c, "--times");
    if (has_holes) {
        add(&c, "--checksum"); /* files with other layers have the same size, and may have the same time */
        add(&c, "--sparse");
        add(&c, "--compress");
        add(&c, "--compress-level=1"); /* weights do not become smaller: only zeros do */
    }
    if (show_fd >= 0) add(&c, "--info=progress2");
    int r = finish_send(&c, path, is_folder, place, o, e);
    end(&c);
    return r;
}

int rsync_has_same(const char *path, bool is_folder, const char *place, const struct fetch_options *o,
                   struct qn_error *e)
{
    struct call c;
    begin_send(&c, is_folder, o);
    add(&c, "--dry-run");
    add(&c, "--checksum");
    add(&c, "--out-format=%n");
    int r = finish_send(&c, path, is_folder, place, o, e);
    if (r == 0) r = c.out.len == 0;
    end(&c);
    return r;
}
