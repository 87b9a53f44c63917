/* SPDX-License-Identifier: MIT
 *
 * progress.c: formats the line and smooths the rate. See progress.h.
 */
#include "cli/core/progress.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "base/error.h"
#include "base/os.h"

#define EVERY_NS  100000000 /* between two updates of the line */
#define SETTLE_NS 500000000 /* before a rate is shown */
#define SMOOTH_S  3.0       /* the time over which a rate is smoothed */
#define N_COLUMNS 80        /* if the terminal does not give its width */

bool progress_is_wanted(void)
{
    const char *term = getenv("TERM"), *no_color = getenv("NO_COLOR");

    return isatty(STDERR_FILENO) && term && strcmp(term, "dumb") && !(no_color && *no_color);
}

void progress_begin(struct progress *p, const char *label, const char *unit, uint64_t total)
{
    *p = (struct progress){.is_shown = progress_is_wanted(), .unit = unit, .total = total};
    error_clean(p->label, sizeof p->label, label);
}

/* "12.3 MB" or "123 tokens" */
static int put_amount(char *out, size_t cap, double n, const char *unit)
{
    static const char *const units[] = {"B", "kB", "MB", "GB", "TB"};
    size_t i = 0;

    if (strcmp(unit, "B")) return snprintf(out, cap, n < 10 ? "%.1f %s" : "%.0f %s", n, unit);
    for (; n >= 1000 && i < sizeof units / sizeof *units - 1; i++) n /= 1000;
    return snprintf(out, cap, i ? "%.1f %s" : "%.0f %s", n, units[i]);
}

/* "  1:23 left" */
static void put_time(char *out, size_t cap, double s)
{
    unsigned long n = s > 359999 ? 359999 : (unsigned long)(s + 0.5);

    if (n >= 3600)
        snprintf(out, cap, "  %lu:%02lu:%02lu left", n / 3600, n / 60 % 60, n % 60);
    else
        snprintf(out, cap, "  %lu:%02lu left", n / 60, n % 60);
}

static void show(const struct progress *p)
{
    char done[32], total[48] = "", percent[16] = "", rate[48] = "", left[32] = "", line[320], out[400];
    struct winsize w;
    int columns = ioctl(STDERR_FILENO, TIOCGWINSZ, &w) == 0 && w.ws_col ? w.ws_col : N_COLUMNS, n;

    put_amount(done, sizeof done, (double)p->done, p->unit);
    if (p->total) {
        char of[32];
        put_amount(of, sizeof of, (double)p->total, p->unit);
        snprintf(total, sizeof total, " of %s", of);
        snprintf(percent, sizeof percent, "  %3.0f%%", 100.0 * (double)p->done / (double)p->total);
    }
    if (p->rate > 0) {
        char a[32];
        put_amount(a, sizeof a, p->rate, p->unit);
        snprintf(rate, sizeof rate, "  %s/s", a);
        if (p->total) put_time(left, sizeof left, (double)(p->total - p->done) / p->rate);
    }
    snprintf(line, sizeof line, "%s%s  %s%s%s%s", p->label, percent, done, total, rate, left);
    n = snprintf(out, sizeof out, "\r%.*s\033[K", columns - 1, line);
    if (write(STDERR_FILENO, out, (size_t)n) < 0) return; /* a terminal that is gone needs no message */
}

void progress_update(struct progress *p, uint64_t done)
{
    uint64_t now;

    if (!p->is_shown) return;
    now = clock_ns();
    if (p->total && done > p->total) done = p->total;
    p->done = done;
    if (!p->begun_ns) {
        p->begun_ns = p->told_ns = now;
        p->told = done;
        show(p);
        return;
    }
    if (now - p->told_ns < EVERY_NS) return;
    double s = (double)(now - p->told_ns) / 1e9, rate = done > p->told ? (double)(done - p->told) / s : 0;
    double weight = s < SMOOTH_S ? s / SMOOTH_S : 1;
    if (now - p->begun_ns < SETTLE_NS)
        p->rate = 0;
    else
        p->rate = p->rate > 0 ? p->rate + (rate - p->rate) * weight : rate;
    p->told = done;
    p->told_ns = now;
    show(p);
}

void progress_end(struct progress *p)
{
    static const char clear[] = "\r\033[K";

    if (p->is_shown && p->begun_ns && write(STDERR_FILENO, clear, sizeof clear - 1) < 0) return;
    p->is_shown = false;
}

void progress_note(const char *fmt, ...)
{
    char text[300], clean[300];
    va_list ap;

    if (!progress_is_wanted()) return;
    va_start(ap, fmt);
    vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    error_clean(clean, sizeof clean, text);
    fprintf(stderr, "\r%.79s\033[K", clean);
    fflush(stderr);
}
