/* SPDX-License-Identifier: MIT
 *
 * capture.h: what a test prints, read back. Include after <cmocka.h>.
 */
#ifndef QUERN_TESTS_CAPTURE_H
#define QUERN_TESTS_CAPTURE_H

#include <stdio.h>
#include <unistd.h>

/* A descriptor whose output goes to a temporary file. */
struct capture {
    int fd, saved;
    FILE *file;
};
static char printed[8192];

static struct capture capture_begin(int fd)
{
    struct capture c = {fd, dup(fd), tmpfile()};
    assert_true(c.file && c.saved >= 0);
    fflush(NULL);
    dup2(fileno(c.file), fd);
    return c;
}

/* Puts the descriptor back and reads what was written into `printed`. */
static void capture_end(struct capture c)
{
    fflush(NULL);
    dup2(c.saved, c.fd);
    close(c.saved);
    rewind(c.file);
    printed[fread(printed, 1, sizeof printed - 1, c.file)] = 0;
    fclose(c.file);
}

#endif
