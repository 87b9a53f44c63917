/* SPDX-License-Identifier: MIT
 *
 * explain_svg.c: the picture of `quern explain --svg`. See explain.h.
 *
 * The upper half is the pass as a strip, from its first operation to its last, once with its floors and once as it was
 * measured, on one scale of time. Below is the roofline: how many multiply-adds an operation does for each byte that it
 * reads, and how many of them it did in a second.
 *
 * Source of the roofline: S. Williams, A. Waterman, D. Patterson, "Roofline", Communications of the ACM 52 (2009).
 */
#include <math.h> /* sqrt, which is an instruction */
#include <stdio.h>
#include <string.h>

#include "base/math.h"
#include "cli/measure/explain.h"

#define WIDTH   960
#define LEFT    92.0 /* of the drawings */
#define RIGHT   920.0
#define STRIP_H 46.0 /* height of a strip */

/* Colours that people who see red and green alike can tell apart (Okabe and Ito). */
static const char *const colours[OP_N_CLASSES] = {
    [OP_EMBEDDING] = "#888888", [OP_ELEMENTWISE] = "#b5b5b5", [OP_ATTENTION_MATRIX] = "#0072b2",
    [OP_ATTENTION] = "#d55e00", [OP_LATENT] = "#56b4e9",      [OP_DELTA] = "#cc79a7",
    [OP_FFN] = "#009e73",       [OP_EXPERTS] = "#5c9a2e",     [OP_OUTPUT] = "#e69f00",
};

/* The document. The first error stays. */
struct drawing {
    struct buf *b;
    struct qn_error *e;
    int rc;
};

#define DRAW(d, ...)                                                                                                   \
    do {                                                                                                               \
        if (!(d)->rc) (d)->rc = buf_printf((d)->b, (d)->e, __VA_ARGS__);                                               \
    } while (0)

static void put_text(struct drawing *d, double x, double y, const char *class, const char *text)
{
    DRAW(d, "<text x=\"%.1f\" y=\"%.1f\" class=\"%s\">", x, y, class);
    for (const char *p = text; *p; p++) {
        const char *as = *p == '&' ? "&amp;" : *p == '<' ? "&lt;" : NULL;
        if (as)
            DRAW(d, "%s", as);
        else
            DRAW(d, "%c", *p);
    }
    DRAW(d, "</text>\n");
}

static void put_box(struct drawing *d, double x, double y, double w, double h, const char *colour)
{
    DRAW(d, "<rect x=\"%.2f\" y=\"%.1f\" width=\"%.2f\" height=\"%.1f\" fill=\"%s\"/>\n", x, y, w, h, colour);
}

static void put_line(struct drawing *d, double x0, double y0, double x1, double y1, const char *class)
{
    DRAW(d, "<line x1=\"%.1f\" y1=\"%.1f\" x2=\"%.1f\" y2=\"%.1f\" class=\"%s\"/>\n", x0, y0, x1, y1, class);
}

/* ---- the strip ---- */

static double op_ms(const struct explain_view *v, const struct trace_op *op, bool floor)
{
    return floor ? explain_floor_ms(v, op) : explain_ms(v, op);
}

static double sum_ms(const struct explain_view *v, bool floor)
{
    double sum = 0;
    for (int i = 0; i < v->a.n; i++) sum += op_ms(v, &v->a.ops[i], floor);
    return sum;
}

/* Draws all operations in their order; neighbours of one class become one box. A thin gap shows where a layer ends. */
static void put_strip(struct drawing *d, const struct explain_view *v, double y, bool floor, double px_per_ms)
{
    double x = LEFT, w = 0;
    for (int i = 0; i < v->a.n; i++) {
        const struct trace_op *op = &v->a.ops[i], *next = i + 1 < v->a.n ? op + 1 : NULL;
        w += op_ms(v, op, floor) * px_per_ms;
        if (next && next->class == op->class && next->layer == op->layer) continue;
        bool ends = next && next->layer != op->layer;
        if (w >= 0.01) put_box(d, x, y, ends && w > 1.5 ? w - 0.6 : w, STRIP_H, colours[op->class]);
        x += w;
        w = 0;
    }
}

/* A round number of ms for the marks of a scale that is ms long. */
static double round_step(double ms)
{
    double step = 1e-4;
    for (int i = 0; step * 8 < ms; i++) step *= i % 3 == 1 ? 2.5 : 2;
    return step;
}

static void put_scale(struct drawing *d, double y, double ms, double px_per_ms)
{
    double step = round_step(ms);
    char text[32];
    for (int i = 0; i * step <= ms * 1.0001; i++) {
        double x = LEFT + i * step * px_per_ms;
        put_line(d, x, y, x, y + 5, "axis");
        snprintf(text, sizeof text, "%g%s", i * step, i ? "" : " ms");
        put_text(d, x, y + 19, "small mid", text);
    }
}

/* The names of the classes with their colours, times and shares, in two columns. Returns the y after them. */
static double put_classes(struct drawing *d, const struct explain_view *v, double y)
{
    struct explain_line classes[OP_N_CLASSES];
    double total = sum_ms(v, false);
    int at = 0;
    explain_classes(v, classes);
    for (int c = 0; c < OP_N_CLASSES; c++) {
        char text[160];
        double ms = explain_ms(v, &classes[c].op), x = LEFT + at % 2 * 410, line = y + at / 2 * 20;
        if (!classes[c].count || ms < total * 5e-3) continue;
        snprintf(text, sizeof text, "%s: %.3g ms, %.0f%%", explain_class_names[c], ms, 100 * ms / total);
        put_box(d, x, line - 10, 12, 12, colours[c]);
        put_text(d, x + 19, line, "label", text);
        at++;
    }
    return y + (at + 1) / 2 * 20;
}

static double put_strips(struct drawing *d, const struct explain_view *v, double y)
{
    double floor = sum_ms(v, true), ms = v->is_measured ? sum_ms(v, false) : floor, most = ms > floor ? ms : floor;
    double px_per_ms = most > 0 ? (RIGHT - LEFT) / most : 0;
    put_text(d, LEFT - 8, y + STRIP_H / 2 + 4, "label end", "floor");
    put_strip(d, v, y, true, px_per_ms);
    y += STRIP_H + 6;
    if (v->is_measured) {
        put_text(d, LEFT - 8, y + STRIP_H / 2 + 4, "label end", "measured");
        put_strip(d, v, y, false, px_per_ms);
        y += STRIP_H + 6;
    }
    if (most > 0) put_scale(d, y, most, px_per_ms);
    return put_classes(d, v, y + 46);
}

/* ---- the roofline ---- */

/* A logarithmic axis of each direction, in pixels. */
struct plot {
    double x0, y0, w, h; /* of the area; y0 is its upper edge */
    double lo_x, hi_x, lo_y, hi_y;
};

static double plot_x(const struct plot *p, double v)
{
    return p->x0 + p->w * math_log(v / p->lo_x) / math_log(p->hi_x / p->lo_x);
}

static double plot_y(const struct plot *p, double v)
{
    return p->y0 + p->h * (1 - math_log(v / p->lo_y) / math_log(p->hi_y / p->lo_y));
}

static double macs(const struct trace_op *op) { return (double)(op->macs_int8 + op->macs_f32); }
static bool is_drawn(const struct trace_op *op) { return op->bytes && macs(op) > 0; }

/* Multiply-adds per byte, and 10^9 multiply-adds per second. */
static double intensity(const struct trace_op *op) { return macs(op) / (double)op->bytes; }
static double speed(const struct explain_view *v, const struct trace_op *op)
{
    double ms = explain_ms(v, op);
    return ms > 0 ? macs(op) / ms * 1e-6 : 0;
}

/* Makes the axes long enough for the operations and for the corner of the roof. */
static void set_axes(struct plot *p, const struct explain_view *v)
{
    double corner = v->c.int8_gmacs / v->c.mapped_gbs, low = v->c.int8_gmacs;
    p->lo_x = 0.5;
    p->hi_x = corner * 4;
    for (int i = 0; i < v->n_lines; i++) {
        const struct trace_op *op = &v->lines[i].op;
        if (!is_drawn(op)) continue;
        while (intensity(op) < p->lo_x * 1.5) p->lo_x /= 2;
        while (intensity(op) * 1.5 > p->hi_x) p->hi_x *= 2;
        if (speed(v, op) > 0 && speed(v, op) < low) low = speed(v, op);
    }
    double roof = p->lo_x * v->c.mapped_gbs;
    p->lo_y = (low < roof ? low : roof) / 2;
    p->hi_y = v->c.int8_gmacs * 2;
}

/* Marks at 1, 10, 100 and so on. */
static void put_axes(struct drawing *d, const struct plot *p)
{
    char text[24];
    for (double v = 1e-6; v < 1e9; v *= 10) {
        snprintf(text, sizeof text, "%g", v);
        if (v > p->lo_x && v < p->hi_x) {
            put_line(d, plot_x(p, v), p->y0, plot_x(p, v), p->y0 + p->h, "grid");
            put_text(d, plot_x(p, v), p->y0 + p->h + 17, "small mid", text);
        }
        if (v > p->lo_y && v < p->hi_y) {
            put_line(d, p->x0, plot_y(p, v), p->x0 + p->w, plot_y(p, v), "grid");
            put_text(d, p->x0 - 8, plot_y(p, v) + 4, "small end", text);
        }
    }
    DRAW(d, "<rect x=\"%.1f\" y=\"%.1f\" width=\"%.1f\" height=\"%.1f\" class=\"frame\"/>\n", p->x0, p->y0, p->w, p->h);
    put_text(d, p->x0 + p->w / 2, p->y0 + p->h + 36, "label mid", "multiply-adds for each byte that is read");
    DRAW(d,
         "<text transform=\"translate(%.1f %.1f) rotate(-90)\" class=\"label mid\">10&#8313; multiply-adds a "
         "second</text>\n",
         p->x0 - 48, p->y0 + p->h / 2);
}

/* Draws a roof: reading up to the corner, then the peak of one kind of arithmetic. `below`: its name is below it. */
static void put_roof(struct drawing *d, const struct plot *p, double gbs, double gmacs, const char *name, bool below)
{
    double corner = gmacs / gbs, from = p->lo_x, peak = plot_y(p, gmacs);
    char text[96];
    if (from * gbs < p->lo_y) from = p->lo_y / gbs;
    if (corner > p->hi_x) return;
    DRAW(d, "<polyline points=\"%.1f,%.1f %.1f,%.1f %.1f,%.1f\" class=\"roof%s\"/>\n", plot_x(p, from),
         plot_y(p, from * gbs), plot_x(p, corner), peak, p->x0 + p->w, peak, below ? " thin" : "");
    snprintf(text, sizeof text, "%s: %.0f", name, gmacs);
    put_text(d, p->x0 + p->w - 6, below ? peak + 15 : peak - 6, "small end", text);
}

/* Writes the speed of reading along its roof. It ends at the corner, because the dots of most models lie far before
 * that. */
static void put_slope(struct drawing *d, const struct plot *p, double gbs, double gmacs)
{
    double to = fmin(gmacs / gbs, p->hi_x) * 0.95, from = to / 2;
    double x = plot_x(p, from), y = plot_y(p, from * gbs), dx = plot_x(p, to) - x, dy = plot_y(p, to * gbs) - y;
    double length = sqrt(dx * dx + dy * dy);
    if (length <= 0) return;
    dx /= length, dy /= length;
    DRAW(d,
         "<text transform=\"matrix(%.4f %.4f %.4f %.4f %.1f %.1f)\" class=\"small end\">reading the file: %.1f "
         "GB/s</text>\n",
         dx, dy, -dy, dx, plot_x(p, to) + 7 * dy, plot_y(p, to * gbs) - 7 * dx, gbs);
}

/* A dot of the roofline. */
struct dot {
    const struct trace_op *op;
    double x, y, r;
    bool is_named;
};

static int set_dots(struct dot *dots, int cap, const struct plot *p, const struct explain_view *v)
{
    double total = sum_ms(v, false);
    int n = 0;
    for (int i = 0; i < v->n_lines && n < cap; i++) {
        const struct trace_op *op = &v->lines[i].op;
        double share = explain_ms(v, op) / total;
        if (!is_drawn(op) || speed(v, op) <= 0) continue;
        dots[n++] =
            (struct dot){op, plot_x(p, intensity(op)), plot_y(p, speed(v, op)), 3 + 16 * sqrt(share), share < 0.02};
    }
    return n;
}

/* The names of dots that are next to each other, one below the other. */
struct label {
    const char *name[12];
    int n;
    double x, y, w; /* left edge, first baseline, width */
    bool is_left;   /* the names end at the dots' left */
};
#define NAME_H 14.0

static void add_name(struct label *s, const char *name)
{
    double w = 6.4 * (double)strlen(name);
    for (int i = 0; i < s->n; i++)
        if (!strcmp(s->name[i], name)) return;
    if (s->n == 12) return;
    s->name[s->n++] = name;
    if (w > s->w) s->w = w;
}

static bool is_free(const struct label *s, const struct label *others, int n)
{
    for (int i = 0; i < n; i++) {
        const struct label *o = &others[i];
        bool beside = s->x > o->x + o->w + 8 || o->x > s->x + s->w + 8;
        if (!beside && s->y < o->y + NAME_H * o->n && o->y < s->y + NAME_H * s->n) return false;
    }
    return true;
}

/* Writes the names of a dot and of all others next to it under them, where no other names are, with a line to them. */
static void put_names(struct drawing *d, struct dot *dots, int n, int which, double middle, struct label *all,
                      int *n_all)
{
    const struct dot at = dots[which];
    struct label s = {.is_left = at.x > middle};
    double low = at.y + at.r;
    for (int i = 0; i < n; i++) {
        double dx = dots[i].x - at.x, dy = dots[i].y - at.y;
        if (dots[i].is_named || dx * dx > 200 || dy * dy > 600) continue;
        dots[i].is_named = true;
        if (dots[i].y + dots[i].r > low) low = dots[i].y + dots[i].r;
        add_name(&s, dots[i].op->name);
    }
    double edge = s.is_left ? at.x - 14 : at.x + 14;
    s.x = s.is_left ? edge - s.w : edge;
    for (s.y = low + 18; !is_free(&s, all, *n_all);) s.y += NAME_H / 2;
    put_line(d, at.x, low + 1, at.x, s.y + NAME_H * (s.n - 1) - 4, "axis");
    for (int i = 0; i < s.n; i++) {
        double y = s.y + NAME_H * i;
        put_line(d, at.x, y - 4, edge + (s.is_left ? 3 : -3), y - 4, "axis");
        put_text(d, edge, y, s.is_left ? "small end" : "small", s.name[i]);
    }
    all[(*n_all)++] = s;
}

/* The next dot without a name, or -1. They are taken so that the lines to later names pass none of the earlier ones: in
 * the right half, where names are to the left, from left to right; in the other half from right to left. */
static int next_dot(const struct dot *dots, int n, double middle)
{
    int next = -1;
    for (int i = 0; i < n; i++) {
        if (dots[i].is_named) continue;
        bool is_right = dots[i].x > middle;
        if (next < 0 || is_right < (dots[next].x > middle))
            next = i;
        else if (is_right == (dots[next].x > middle) && is_right == (dots[i].x < dots[next].x))
            next = i;
    }
    return next;
}

/* Draws a dot for each operation, the larger the more time it takes. Those that take little time have no name. */
static void put_dots(struct drawing *d, const struct plot *p, const struct explain_view *v)
{
    struct dot dots[64];
    struct label names[64];
    int n = set_dots(dots, 64, p, v), n_names = 0;
    double middle = p->x0 + p->w / 2;
    for (int i = 0; i < n; i++)
        DRAW(d,
             "<circle cx=\"%.1f\" cy=\"%.1f\" r=\"%.1f\" fill=\"%s\" class=\"dot\"><title>%s: %.3f "
             "ms</title></circle>\n",
             dots[i].x, dots[i].y, dots[i].r, colours[dots[i].op->class], dots[i].op->name, explain_ms(v, dots[i].op));
    for (int i; (i = next_dot(dots, n, middle)) >= 0;) put_names(d, dots, n, i, middle, names, &n_names);
}

static double put_roofline(struct drawing *d, const struct explain_view *v, double y)
{
    struct plot p = {.x0 = LEFT, .y0 = y, .w = RIGHT - LEFT, .h = 330};
    set_axes(&p, v);
    put_axes(d, &p);
    put_roof(d, &p, v->c.mapped_gbs, v->c.int8_gmacs, "int8", false);
    put_roof(d, &p, v->c.mapped_gbs, v->c.f32_gmacs, "f32", true);
    put_slope(d, &p, v->c.mapped_gbs, v->c.int8_gmacs);
    put_dots(d, &p, v);
    return p.y0 + p.h + 50;
}

/* ---- the document ---- */

static const char style[] =
    "<style>text{font-family:Helvetica,Arial,sans-serif;fill:#222}.title{font-size:19px;font-weight:bold}"
    ".label{font-size:13px}.small{font-size:11.5px;fill:#555}.mid{text-anchor:middle}.end{text-anchor:end}"
    ".axis{stroke:#888}.grid{stroke:#e4e4e4}.frame{fill:none;stroke:#999}.roof{fill:none;stroke:#333;stroke-width:2}"
    ".thin{stroke-width:1.2;stroke-dasharray:5 4}.dot{fill-opacity:.8;stroke:#fff}</style>\n";

static double put_head(struct drawing *d, const struct explain_view *v)
{
    char text[1500], title[1600], verdict[400], rate[24];
    explain_rate(1e3 * v->n_rows / explain_pass_ms(v), rate);
    explain_pass_text(v, text, sizeof text);
    const char *slash = strrchr(text, '/');
    snprintf(title, sizeof title, "%s: %s%s tokens/s", slash ? slash + 1 : text, v->is_measured ? "" : "at most ",
             rate);
    put_text(d, 24, 36, "title", title);
    explain_verdict(v, verdict, sizeof verdict);
    char *rest = strstr(verdict, "; ");
    if (rest) *rest = 0;
    put_text(d, 24, 60, "label", verdict);
    if (rest) put_text(d, 24, 80, "label", rest + 2);
    snprintf(text, sizeof text, "%d threads, %s", v->n_threads, v->kernels);
    put_text(d, 24, rest ? 100 : 80, "small", text);
    return rest ? 118 : 98;
}

int explain_svg(const struct explain_view *v, struct buf *b, struct qn_error *e)
{
    struct buf body = {0};
    struct drawing d = {.b = &body, .e = e};
    double y = put_strips(&d, v, put_head(&d, v));
    put_text(&d, 24, y + 22, "label", "How near each operation comes to what this machine can do: the roofline");
    y = put_roofline(&d, v, y + 38);
    d.b = b;
    DRAW(&d, "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 %d %.0f\" width=\"%d\" height=\"%.0f\">\n%s",
         WIDTH, y, WIDTH, y, style);
    DRAW(&d, "<rect width=\"100%%\" height=\"100%%\" fill=\"#ffffff\"/>\n");
    if (!d.rc) d.rc = buf_add(b, body.data, body.len, e);
    DRAW(&d, "</svg>\n");
    buf_deinit(&body);
    return d.rc;
}
