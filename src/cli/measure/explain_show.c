/* SPDX-License-Identifier: MIT
 *
 * explain_show.c: the tables and the verdict of `quern explain`. See explain.h.
 *
 * A line has at most 80 columns, or as many as the terminal has; what is left of it is a bar. All bars have one scale:
 * the longest time has the whole width.
 */
#include <stdio.h>
#include <string.h>

#include "cli/core/term.h"
#include "cli/measure/explain.h"

#define MOST_BAR 40

const char *const explain_class_names[OP_N_CLASSES] = {
    [OP_EMBEDDING] = "embedding",
    [OP_ELEMENTWISE] = "element-wise",
    [OP_ATTENTION_MATRIX] = "attention matrices",
    [OP_ATTENTION] = "attention over the KV cache",
    [OP_LATENT] = "latent attention",
    [OP_DELTA] = "DeltaNet",
    [OP_FFN] = "feed-forward matrices",
    [OP_EXPERTS] = "experts",
    [OP_OUTPUT] = "output head",
};

/* ---- numbers ---- */

double explain_floor_ms(const struct explain_view *v, const struct trace_op *op)
{
    return 1e3 * ceilings_floor(&v->c, op->bytes, op->macs_int8, op->macs_f32);
}

bool explain_computes(const struct explain_view *v, const struct trace_op *op)
{
    return ceilings_floor(&v->c, 0, op->macs_int8, op->macs_f32) > ceilings_floor(&v->c, op->bytes, 0, 0);
}

double explain_ms(const struct explain_view *v, const struct trace_op *op)
{
    return v->is_measured ? (double)op->ns * 1e-6 : explain_floor_ms(v, op);
}

double explain_pass_floor_ms(const struct explain_view *v)
{
    return 1e3 * ceilings_floor(&v->c, v->a.bytes, v->a.macs_int8, v->a.macs_f32);
}

double explain_pass_ms(const struct explain_view *v)
{
    return v->is_measured ? (double)v->a.ns * 1e-6 : explain_pass_floor_ms(v);
}

void explain_classes(const struct explain_view *v, struct explain_line classes[OP_N_CLASSES])
{
    memset(classes, 0, OP_N_CLASSES * sizeof *classes);
    for (int i = 0; i < v->n_lines; i++) {
        const struct explain_line *from = &v->lines[i];
        struct explain_line *c = &classes[from->op.class];
        c->count += from->count;
        c->op.class = from->op.class;
        c->op.bytes += from->op.bytes;
        c->op.macs_int8 += from->op.macs_int8;
        c->op.macs_f32 += from->op.macs_f32;
        c->op.ns += from->op.ns;
    }
}

void explain_amount(double n, const char *unit, char dst[24])
{
    static const char *const prefixes[] = {"", "k", "M", "G", "T"};
    int p = 0;
    for (; n >= 999.5 && p < 4; p++) n /= 1000;
    snprintf(dst, 24, n < 9.995 && p ? "%.2f %s%s" : n < 99.95 && p ? "%.1f %s%s" : "%.0f %s%s", n, prefixes[p], unit);
}

/* Writes a number in at most 6 places. */
static void short_number(double x, char dst[24])
{
    if (x < 0.0005)
        strcpy(dst, "-");
    else
        snprintf(dst, 24, x < 9.9995 ? "%.3f" : x < 99.995 ? "%.2f" : x < 999.95 ? "%.1f" : "%.0f", x);
}

void explain_rate(double tokens_per_s, char dst[24])
{
    snprintf(dst, 24, tokens_per_s < 9.995 ? "%.2f" : tokens_per_s < 99.95 ? "%.1f" : "%.0f", tokens_per_s);
}

/* ---- a line ---- */

/* The scale of the bars. */
struct scale {
    int width;
    double most_ms, total_ms; /* of one line; of all */
};

/* Prints '#' (bytes) or '=' (multiply-adds) for the floor, and '.' for the time above it. */
static void print_bar(const struct explain_view *v, const struct trace_op *op, const struct scale *s)
{
    double ms = explain_ms(v, op), floor = explain_floor_ms(v, op);
    int all = (int)(ms / s->most_ms * s->width + 0.5), least = (int)(floor / s->most_ms * s->width + 0.5);
    if (all) fputs("  ", stdout);
    for (int i = 0; i < all && i < s->width; i++) putchar(i >= least ? '.' : explain_computes(v, op) ? '=' : '#');
}

/* Prints what follows the name in a line of either table. */
static void print_times(const struct explain_view *v, const struct trace_op *op, const struct scale *s)
{
    char mb[24], floor[24], ms[24];
    short_number((double)op->bytes * 1e-6, mb);
    short_number(explain_floor_ms(v, op), floor);
    printf(" %6s %7s", mb, floor);
    if (v->is_measured) {
        short_number((double)op->ns * 1e-6, ms);
        printf(" %7s", ms);
    }
    printf(" %4.0f%%", 100 * explain_ms(v, op) / s->total_ms);
    print_bar(v, op, s);
    putchar('\n');
}

static void print_heads(const struct explain_view *v, const char *what, bool has_shape)
{
    printf("\n%-15s %-7s %3s %11s %6s %7s%s %5s\n", what, has_shape ? "type" : "", has_shape ? "x" : "",
           has_shape ? "out x in" : "", "MB", "floor", v->is_measured ? "      ms" : "", "time");
}

static void print_lines(const struct explain_view *v, const struct scale *s)
{
    print_heads(v, "operation", true);
    for (int i = 0; i < v->n_lines; i++) {
        const struct trace_op *op = &v->lines[i].op;
        char shape[48];
        snprintf(shape, sizeof shape, "%lldx%lld", (long long)op->n, (long long)op->k);
        printf("%-15.15s %-7s %3d %11s", op->name, op->dtype < 0 ? "" : dtype_get(op->dtype)->name, v->lines[i].count,
               shape);
        print_times(v, op, s);
    }
}

static void print_classes(const struct explain_view *v, const struct explain_line *classes, const struct scale *s)
{
    print_heads(v, "part", false);
    for (int c = 0; c < OP_N_CLASSES; c++) {
        if (!classes[c].count) continue;
        printf("%-39s", explain_class_names[c]);
        print_times(v, &classes[c].op, s);
    }
}

/* ---- the whole ---- */

static double longest_ms(const struct explain_view *v, const struct explain_line *lines, int n)
{
    double most = 1e-6;
    for (int i = 0; i < n; i++) {
        double ms = explain_ms(v, &lines[i].op);
        if (ms > most) most = ms;
    }
    return most;
}

/* The line that is the farthest above its floor. */
static const struct explain_line *slowest(const struct explain_view *v, double *above_ms)
{
    const struct explain_line *worst = NULL;
    *above_ms = 0;
    for (int i = 0; i < v->n_lines; i++) {
        double above = explain_ms(v, &v->lines[i].op) - explain_floor_ms(v, &v->lines[i].op);
        if (above <= *above_ms) continue;
        *above_ms = above;
        worst = &v->lines[i];
    }
    return worst;
}

void explain_verdict(const struct explain_view *v, char *dst, size_t cap)
{
    struct trace_op all = {.bytes = v->a.bytes, .macs_int8 = v->a.macs_int8, .macs_f32 = v->a.macs_f32};
    double floor = explain_pass_floor_ms(v), above;
    const struct explain_line *worst = slowest(v, &above);
    char amount[24], most[24], rate[24];
    bool computes = explain_computes(v, &all);
    explain_amount((double)(computes ? all.macs_int8 + all.macs_f32 : all.bytes), computes ? "MAC" : "B", amount);
    explain_rate(1e3 * v->n_rows / floor, most);
    explain_rate(1e3 * v->n_rows / explain_pass_ms(v), rate);
    int n = snprintf(dst, cap, "%s sets the pace: %s in a pass allow %s tokens/s at most",
                     computes ? "Arithmetic" : "Memory", amount, most);
    if (!v->is_measured || n < 0 || (size_t)n >= cap) return;
    n += snprintf(dst + n, cap - (size_t)n, ", and %s are reached (%.0f%%)", rate, 100 * floor / explain_pass_ms(v));
    if (worst && (size_t)n < cap)
        snprintf(dst + n, cap - (size_t)n, "; %s is the farthest above its floor, by %.2f ms", worst->op.name, above);
}

/* Prints a text with its lines broken at spaces. */
static void print_wrapped(const char *text, int width)
{
    int at = 0;
    for (const char *p = text; *p;) {
        int n = (int)strcspn(p, " ");
        if (at && at + 1 + n > width) {
            putchar('\n');
            at = 0;
        }
        at += printf("%s%.*s", at ? " " : "", n, p);
        p += n;
        p += strspn(p, " ");
    }
    putchar('\n');
}

void explain_pass_text(const struct explain_view *v, char *dst, size_t cap)
{
    char count[48] = "one token", after[48] = "";
    if (v->n_rows > 1) snprintf(count, sizeof count, "a pass of %d tokens", v->n_rows);
    if (v->depth) snprintf(after, sizeof after, " after %d others", v->depth);
    snprintf(dst, cap, "%s (%s): %s%s", v->name, v->arch, count, after);
}

static void print_summary(const struct explain_view *v, int width)
{
    char rate[24], text[1500];
    explain_pass_text(v, text, sizeof text);
    print_wrapped(text, width);
    printf("machine    %d threads, %s\n", v->n_threads, v->kernels);
    ceilings_print(&v->c);
    explain_rate(1e3 * v->n_rows / explain_pass_floor_ms(v), rate);
    printf("at most    %s tokens/s, %.2f ms for the pass\n", rate, explain_pass_floor_ms(v));
    explain_rate(1e3 * v->n_rows / explain_pass_ms(v), rate);
    if (v->is_measured)
        printf("measured   %s tokens/s, %.2f ms, %.0f%% of the most\n", rate, explain_pass_ms(v),
               100 * explain_pass_floor_ms(v) / explain_pass_ms(v));
}

static void print_legend(const struct explain_view *v, int width)
{
    putchar('\n');
    print_wrapped("x: operations of this kind. out x in: the matrix of each. floor: the least ms in which this machine "
                  "can read the bytes or do the multiply-adds, whichever takes longer. time: the share of the pass.",
                  width);
    print_wrapped(v->is_measured ? "Bars: # floor of reading, = floor of arithmetic, . time above the floor."
                                 : "Bars: # reading, = arithmetic. --analyze runs the pass and measures it too.",
                  width);
}

void explain_print(const struct explain_view *v)
{
    struct explain_line classes[OP_N_CLASSES];
    int width = term_width(1), numbers = v->is_measured ? 70 : 62;
    struct scale s = {.width = width - numbers};
    char verdict[400];
    if (s.width > MOST_BAR) s.width = MOST_BAR;
    if (s.width < 1) s.width = 1;
    if (width > 100) width = 100;
    explain_classes(v, classes);
    print_summary(v, width);
    for (int i = 0; i < v->n_lines; i++) s.total_ms += explain_ms(v, &v->lines[i].op);
    s.most_ms = longest_ms(v, v->lines, v->n_lines);
    print_lines(v, &s);
    s.most_ms = longest_ms(v, classes, OP_N_CLASSES);
    print_classes(v, classes, &s);
    print_legend(v, width);
    explain_verdict(v, verdict, sizeof verdict - 1);
    strcat(verdict, ".");
    putchar('\n');
    print_wrapped(verdict, width);
}
