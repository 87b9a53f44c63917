/* SPDX-License-Identifier: MIT
 *
 * ahead.c: the thread that reads ahead. See ahead.h.
 */
#include "cli/chat/ahead.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <string.h>
#include <unistd.h>

#include "cli/chat/paste.h"

#define N_BEGIN (sizeof PASTE_BEGIN - 1)

static void say(const char *s)
{
    if (write(STDOUT_FILENO, s, strlen(s)) < 0) { /* the terminal is gone, and reading will notice */
    }
}

/* In the background reading or setting the terminal would stop the program. */
static bool is_foreground(void) { return tcgetpgrp(STDIN_FILENO) == getpgrp(); }

static void take_terminal(const struct ahead *a)
{
    if (!is_foreground()) return;
    tcsetattr(STDIN_FILENO, TCSADRAIN, &a->mine);
    if (a->brackets) say(PASTE_ON);
}

static void leave_terminal(const struct ahead *a)
{
    if (!is_foreground()) return;
    if (a->brackets) say(PASTE_OFF);
    tcsetattr(STDIN_FILENO, TCSADRAIN, &a->before);
}

/* ---- signals ---- */

static void on_signal(struct ahead *a, int number)
{
    struct sigaction usual = {.sa_handler = SIG_DFL}, mine;
    if (number == SIGINT) {
        kill(getpid(), SIGINT); /* it has a handler: it ends the reply */
    } else if (number == SIGCONT) {
        if (a->stopped) sigaction(SIGTSTP, &a->on_stop, NULL);
        a->stopped = false;
        take_terminal(a);
    } else {
        leave_terminal(a);
        sigaction(number, &usual, &mine); /* for SIGTSTP until SIGCONT: the main thread may get the signal later */
        if (number == SIGTSTP && !a->stopped) a->on_stop = mine;
        a->stopped |= number == SIGTSTP;
        kill(number == SIGTSTP ? 0 : getpid(), number); /* all processes of the foreground stop, as by the key */
    }
}

/* The signal of a byte that was typed, not pasted; 0: none. */
static int signal_of(const struct ahead *a, uint8_t byte)
{
    const cc_t *keys = a->before.c_cc;
    if (!byte || a->pasting || !(a->before.c_lflag & ISIG)) return 0;
    if (byte == keys[VINTR]) return SIGINT;
    if (byte == keys[VQUIT]) return SIGQUIT;
    return byte == keys[VSUSP] ? SIGTSTP : 0;
}

/* ---- bytes ---- */

static bool ends_with(const struct buf *b, const char *mark, size_t n)
{
    return b->len >= n && !memcmp(b->data + b->len - n, mark, n);
}

static int take_byte(struct ahead *a, uint8_t byte)
{
    int number = signal_of(a, byte);
    if (number) {
        on_signal(a, number);
        return 0;
    }
    if (buf_add(&a->typed, &byte, 1, NULL)) return QN_ENOMEM;
    if (byte == '~' && ends_with(&a->typed, a->pasting ? PASTE_END : PASTE_BEGIN, N_BEGIN)) a->pasting = !a->pasting;
    a->pasted |= a->pasting;
    return 0;
}

/* Whether the bytes have a line break that is not their end. */
static bool has_lines(const uint8_t *p, size_t n)
{
    if (n >= 2 && p[n - 1] == '\n' && p[n - 2] == '\r') n--;
    for (size_t i = 0; i + 1 < n; i++)
        if (p[i] == '\r' || p[i] == '\n') return true;
    return false;
}

/* Ends bytes that came together, and sets brackets around them if they were pasted without. */
static void end_burst(struct ahead *a)
{
    uint8_t *p = a->typed.data + a->burst;
    size_t n = a->typed.len - a->burst;
    if (!a->pasted && n && has_lines(p, n) && !buf_reserve(&a->typed, 2 * N_BEGIN, NULL)) {
        p = a->typed.data + a->burst;
        memmove(p + N_BEGIN, p, n);
        memcpy(p, PASTE_BEGIN, N_BEGIN);
        memcpy(p + N_BEGIN + n, PASTE_END, N_BEGIN);
        a->typed.len += 2 * N_BEGIN;
        a->typed.data[a->typed.len] = 0;
    }
    a->burst = a->typed.len;
    a->open = false;
    a->pasted = a->pasting;
}

static void take_bytes(struct ahead *a)
{
    uint8_t bytes[4096];
    ssize_t n = read(STDIN_FILENO, bytes, sizeof bytes);
    if (n < 0 && (errno == EINTR || errno == EAGAIN)) return;
    a->ended = n <= 0;
    a->open = n > 0;
    for (ssize_t i = 0; i < n && !a->ended; i++) a->ended = take_byte(a, bytes[i]) != 0;
}

static void *collect(void *arg)
{
    struct ahead *a = arg;
    bool stops = false;
    while (!stops || a->open) {
        bool reads = !a->ended && a->typed.len < AHEAD_MOST && is_foreground();
        struct pollfd fds[3] = {{.fd = stops ? -1 : a->stop[0], .events = POLLIN},
                                {.fd = a->signals.fd, .events = POLLIN},
                                {.fd = reads ? STDIN_FILENO : -1, .events = POLLIN}};
        int n = poll(fds, 3, a->open ? AHEAD_BURST_MS : reads ? -1 : 200);
        if (n < 0 && errno != EINTR) break;
        if (n == 0 && a->open) end_burst(a);
        if (n <= 0) continue;
        stops |= fds[0].revents != 0;
        int number = signals_take(&a->signals);
        if (number) on_signal(a, number);
        if (fds[2].revents) take_bytes(a);
    }
    return NULL;
}

/* ---- start and stop ---- */

/* Starts the thread, in which all signals are blocked: the main thread handles them. */
static int start_thread(struct ahead *a)
{
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    int failed = pthread_create(&a->thread, NULL, collect, a);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return failed;
}

int ahead_start(struct ahead *a, const struct termios *before, bool brackets, struct qn_error *e)
{
    static const int caught[] = {SIGTERM, SIGHUP, SIGQUIT, SIGTSTP, SIGCONT, 0};
    a->before = a->mine = *before;
    a->mine.c_lflag &= ~(tcflag_t)(ICANON | ECHO | ISIG | IEXTEN);
    a->mine.c_iflag &= ~(tcflag_t)(ICRNL | INLCR | IGNCR | IXON | ISTRIP);
    a->mine.c_cc[VMIN] = 1;
    a->mine.c_cc[VTIME] = 0;
    a->brackets = brackets;
    a->burst = a->typed.len;
    a->open = a->pasted = a->pasting = a->ended = a->stopped = false;
    int rc = signals_catch(&a->signals, caught, e);
    if (!rc && pipe2(a->stop, O_CLOEXEC)) {
        signals_release(&a->signals);
        rc = error_set(e, QN_EIO, "cannot make a pipe: %s", strerror(errno));
    }
    if (!rc) take_terminal(a);
    if (!rc && start_thread(a)) {
        close(a->stop[0]);
        close(a->stop[1]);
        signals_release(&a->signals);
        rc = error_set(e, QN_ENOMEM, "a thread that reads the terminal cannot be started");
    }
    a->runs = !rc;
    if (rc) leave_terminal(a);
    return rc;
}

void ahead_stop(struct ahead *a)
{
    if (!a->runs) return;
    close(a->stop[1]);
    pthread_join(a->thread, NULL);
    close(a->stop[0]);
    signals_release(&a->signals);
    if (is_foreground()) tcsetattr(STDIN_FILENO, TCSADRAIN, &a->before);
    a->runs = false;
}
