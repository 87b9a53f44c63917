/* SPDX-License-Identifier: MIT
 *
 * history.c: reads, appends to and shortens the history file. See history.h.
 */
#include "cli/chat/history.h"

#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/out_file.h"
#include "cli/core/home.h"

static int open_file(const char *path, struct qn_error *e)
{
    struct stat st;
    int fd =
        open(path, O_RDWR | O_APPEND | O_CREAT | O_CLOEXEC | O_NONBLOCK | O_NOCTTY, 0600); /* a FIFO does not block */
    if (fd < 0) return error_set(e, QN_EIO, "cannot open '%s': %s", path, strerror(errno));
    if (fstat(fd, &st) == 0 && S_ISREG(st.st_mode)) return fd;
    close(fd);
    return error_set(e, QN_EIO, "cannot use '%s': not a regular file", path);
}

/* Reads the end of the file, at most HISTORY_FILE_BYTES, from the beginning of a line. *whole: this is the whole
 * file. */
static int read_end(int fd, struct buf *raw, bool *whole, struct qn_error *e)
{
    struct stat st;
    if (fstat(fd, &st)) return error_set(e, QN_EIO, "cannot read the history: %s", strerror(errno));
    off_t from = st.st_size > HISTORY_FILE_BYTES ? st.st_size - HISTORY_FILE_BYTES : 0;
    size_t want = (size_t)(st.st_size - from);
    *whole = from == 0;
    if (buf_reserve(raw, want, e)) return QN_ENOMEM;
    while (raw->len < want) {
        ssize_t n = pread(fd, raw->data + raw->len, want - raw->len, from + (off_t)raw->len);
        if (n < 0 && errno == EINTR) continue;
        if (n < 0) return error_set(e, QN_EIO, "cannot read the history: %s", strerror(errno));
        if (n == 0) break;
        raw->len += (size_t)n;
    }
    if (*whole || !raw->len) return 0;
    uint8_t *first = memchr(raw->data, '\n', raw->len);
    size_t skip = first ? (size_t)(first - raw->data) + 1 : raw->len;
    raw->len -= skip;
    memmove(raw->data, raw->data + skip, raw->len);
    return 0;
}

/* The position where the last HISTORY_ENTRIES lines begin. */
static size_t last_lines(const struct buf *raw)
{
    size_t at = raw->len;
    for (int n = 0; at > 0; at--)
        if (raw->data[at - 1] == '\n' && n++ == HISTORY_ENTRIES) break;
    return at;
}

/* Turns lines into entries. An incomplete line, and a line with NUL bytes, is left out. */
static int decode(const uint8_t *p, size_t n, struct buf *out, struct qn_error *e)
{
    const uint8_t *end = p + n, *stop;
    for (; p < end && (stop = memchr(p, '\n', (size_t)(end - p))) != NULL; p = stop + 1) {
        if (stop == p || stop - p > 2 * HISTORY_ENTRY_BYTES || memchr(p, 0, (size_t)(stop - p))) continue;
        if (buf_reserve(out, (size_t)(stop - p) + 1, e)) return QN_ENOMEM;
        while (p < stop) {
            uint8_t c = *p++;
            if (c == '\\' && p < stop) {
                c = *p++;
                if (c == 'n') c = '\n';
            }
            out->data[out->len++] = c;
        }
        out->data[out->len++] = 0;
    }
    return 0;
}

/* Replaces the file by its last lines. Another run that has the old file open still writes there: the next run does
 * not see those entries. That happens once in a megabyte. */
static void cut_file(struct history *h, const char *path, const uint8_t *kept, size_t n)
{
    struct out_file f = {0};
    struct qn_error e;
    if (out_file_open(&f, path, &e)) return; /* the file stays long */
    bool done = !fchmod(f.fd, 0600) && !out_file_write(&f, kept, n, &e) && !out_file_commit(&f, &e);
    out_file_abort(&f);
    if (!done) return;
    int fd = open_file(path, &e);
    if (fd < 0) return;
    close(h->fd);
    h->fd = fd;
}

int history_open(struct history *h, const char *path, struct qn_error *e)
{
    struct buf raw = {0};
    bool whole = true;
    int rc;
    *h = (struct history){.fd = -1};
    if ((rc = home_make_above(path, e))) return rc;
    h->fd = open_file(path, e);
    rc = h->fd;
    if (rc < 0 || (rc = read_end(h->fd, &raw, &whole, e))) goto fail;
    size_t at = last_lines(&raw);
    if (raw.len && (rc = decode(raw.data + at, raw.len - at, &h->text, e))) goto fail;
    if (raw.len && !whole) cut_file(h, path, raw.data + at, raw.len - at);
    buf_deinit(&raw);
    return 0;
fail:
    buf_deinit(&raw);
    history_close(h);
    return rc;
}

void history_add(struct history *h, const char *text, size_t n)
{
    char line[2 * HISTORY_ENTRY_BYTES + 1];
    size_t len = 0;
    if (h->fd < 0 || n == 0 || n > HISTORY_ENTRY_BYTES || memchr(text, 0, n)) return;
    for (size_t i = 0; i < n; i++) {
        if (text[i] == '\\' || text[i] == '\n') line[len++] = '\\';
        line[len++] = text[i] == '\n' ? 'n' : text[i];
    }
    line[len++] = '\n';
    if (write(h->fd, line, len) == (ssize_t)len) return;
    close(h->fd);
    h->fd = -1;
}

void history_close(struct history *h)
{
    if (h->fd >= 0) close(h->fd);
    buf_deinit(&h->text);
    *h = (struct history){.fd = -1};
}
