/* SPDX-License-Identifier: MIT
 *
 * term.c: asks the terminal and the environment. See term.h.
 */
#include "cli/core/term.h"

#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

bool term_is(int fd)
{
    const char *kind = getenv("TERM");
    return isatty(fd) && kind && *kind && strcmp(kind, "dumb");
}

bool term_colour(int fd)
{
    const char *none = getenv("NO_COLOR");
    return !(none && *none) && term_is(fd);
}

int term_width(int fd)
{
    struct winsize w;
    if (!isatty(fd) || ioctl(fd, TIOCGWINSZ, &w) || !w.ws_col) return 80;
    return w.ws_col < 40 ? 40 : w.ws_col;
}
