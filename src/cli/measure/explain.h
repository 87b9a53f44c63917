/* SPDX-License-Identifier: MIT
 *
 * explain.h: the account of a pass as `quern explain` shows it: as tables and a verdict, and as a picture.
 */
#ifndef QUERN_CLI_EXPLAIN_H
#define QUERN_CLI_EXPLAIN_H

#include "base/buf.h"
#include "cli/measure/account.h"
#include "cli/measure/ceilings.h"

/* Equal operations of several layers. */
struct explain_line {
    struct trace_op op; /* its bytes, multiply-adds and ns are sums */
    int count;
};

/* Everything that is shown. The strings are borrowed. */
struct explain_view {
    const char *name, *arch, *kernels; /* name: of the model, printable */
    int n_threads, n_rows, depth;
    bool is_measured;
    struct ceilings c;
    struct account a;
    struct explain_line *lines; /* in the order of their first operations */
    int n_lines;
};

/* Names of the classes of operations. */
extern const char *const explain_class_names[OP_N_CLASSES];

/* The least time of an operation in ms, and whether it is that of its multiply-adds, not of its bytes. */
double explain_floor_ms(const struct explain_view *v, const struct trace_op *op);
bool explain_computes(const struct explain_view *v, const struct trace_op *op);
/* The operation's measured time in ms, or its floor if nothing was measured. */
double explain_ms(const struct explain_view *v, const struct trace_op *op);
/* The same for the whole pass, which was measured without tracing. */
double explain_pass_floor_ms(const struct explain_view *v);
double explain_pass_ms(const struct explain_view *v);
/* Adds up the lines of each class. */
void explain_classes(const struct explain_view *v, struct explain_line classes[OP_N_CLASSES]);
/* Writes bytes (10^6 and so on) or a number of multiply-adds with its unit, such as "391 MB". */
void explain_amount(double n, const char *unit, char dst[24]);
/* Writes a rate of tokens with as many digits as are useful. */
void explain_rate(double tokens_per_s, char dst[24]);
/* Writes which pass of which model it is. */
void explain_pass_text(const struct explain_view *v, char *dst, size_t cap);
/* Writes the verdict, a sentence without its full stop. */
void explain_verdict(const struct explain_view *v, char *dst, size_t cap);

/* Prints the tables to standard output, within the width of the terminal. */
void explain_print(const struct explain_view *v);
/* Adds the picture, a document of SVG: the pass as a strip, and the roofline. QN_ENOMEM. */
int explain_svg(const struct explain_view *v, struct buf *b, struct qn_error *e);

#endif
