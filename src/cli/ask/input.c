/* SPDX-License-Identifier: MIT
 *
 * input.c: opens and closes the texts that intake.c reads. See input.h.
 */
#include "cli/ask/input.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static uint64_t bytes_of(int fd)
{
    struct stat st;
    off_t at = lseek(fd, 0, SEEK_CUR);
    return at >= 0 && fstat(fd, &st) == 0 && S_ISREG(st.st_mode) && st.st_size > at ? (uint64_t)(st.st_size - at) : 0;
}

void input_init(struct input *s, const char *path)
{
    *s = (struct input){.path = path, .fd = -1};
    error_clean(s->name, sizeof s->name, path ? path : "standard input");
}

int input_open(struct input *s, const char *encoding, struct qn_error *e)
{
    int fd = s->path ? open(s->path, O_RDONLY | O_CLOEXEC) : STDIN_FILENO;
    if (fd < 0) return error_set(e, QN_ENOINPUT, "cannot open %s: %s", s->name, strerror(errno));
    s->fd = fd;
    s->bytes = bytes_of(fd);
    return intake_open(&s->in, fd, s->name, encoding, s->is_live, e);
}

int input_read(struct input *s, char *out, size_t cap, size_t *n, struct qn_error *e)
{
    int rc = intake_read(s->in, out, cap, n, e);
    if (!rc) s->n_read += *n;
    return rc;
}

void input_close(struct input *s)
{
    uint64_t first, n = s->in ? intake_n_odd(s->in, &first) : 0;
    if (n)
        fprintf(stderr,
                "quern: warning: %s: %llu byte%s not UTF-8, the first at offset %llu; read as Windows-1252 (see "
                "--encoding)\n",
                s->name, (unsigned long long)n, n == 1 ? " is" : "s are", (unsigned long long)first);
    intake_close(s->in);
    s->in = NULL;
    if (s->path && s->fd >= 0) close(s->fd);
    s->fd = -1;
}
