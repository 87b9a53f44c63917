/* SPDX-License-Identifier: MIT
 *
 * signals.c: the handler, and the pipe that it writes to. See signals.h.
 */
#include "cli/chat/signals.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <unistd.h>

static volatile sig_atomic_t write_to = -1;

static void on_signal(int number)
{
    int saved = errno;
    unsigned char byte = (unsigned char)number;
    if (write(write_to, &byte, 1) < 0) { /* the pipe is full of signals: one more adds nothing */
    }
    errno = saved;
}

int signals_catch(struct signals *s, const int *numbers, struct qn_error *e)
{
    *s = (struct signals){.outer = write_to};
    if (pipe2(s->pipe, O_CLOEXEC | O_NONBLOCK))
        return error_set(e, QN_EIO, "signals: cannot make a pipe: %s", strerror(errno));
    s->fd = s->pipe[0];
    write_to = s->pipe[1];
    for (; numbers[s->n]; s->n++) {
        assert(s->n < SIGNALS_MOST);
        struct sigaction action = {.sa_handler = on_signal, .sa_flags = SA_RESTART};
        s->number[s->n] = numbers[s->n];
        sigaction(numbers[s->n], NULL, &s->before[s->n]);
        if (s->before[s->n].sa_handler != SIG_IGN) sigaction(numbers[s->n], &action, NULL);
    }
    return 0;
}

int signals_take(struct signals *s)
{
    unsigned char byte;
    return read(s->fd, &byte, 1) == 1 ? byte : 0;
}

void signals_release(struct signals *s)
{
    for (int i = s->n; i-- > 0;) sigaction(s->number[i], &s->before[i], NULL);
    write_to = s->outer;
    close(s->pipe[0]);
    close(s->pipe[1]);
    *s = (struct signals){.fd = -1};
}
