/* SPDX-License-Identifier: MIT
 *
 * cli.c: options, exit codes and byte streams for the commands. See cli.h.
 */
#include "base/error.h"
#include "base/mem.h"
#include "cli/cli.h"

#include <ctype.h>
#include <errno.h>
#include <getopt.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sysexits.h>
#include <unistd.h>

#define MAX_OPTS 64

const char *volatile cli_unfinished;

int cli_fail(const struct qn_error *e)
{
    fprintf(stderr, "quern: %s\n", e->msg);
    switch (e->code) {
    case QN_EUSAGE: return EX_USAGE;
    case QN_EDATA:
    case QN_EUNSUP:
    case QN_ENUMERIC:
    case QN_EFULL: return EX_DATAERR;
    case QN_ENOINPUT: return EX_NOINPUT;
    case QN_EBUSY:
    case QN_ENOMEM: return EX_TEMPFAIL;
    case QN_EIO: return EX_IOERR;
    default: return EX_SOFTWARE;
    }
}

int cli_usage(const char *fmt, ...)
{
    char text[512], clean[512];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    error_clean(clean, sizeof clean, text);
    fprintf(stderr, "quern: %s\n", clean);
    return EX_USAGE;
}

/* ---- options ---- */

static void print_help(const char *usage, const struct opt *opts)
{
    printf("usage: quern %s\n\n", usage);
    for (const struct opt *o = opts; o->name; o++) {
        char left[64];
        if (o->letter)
            snprintf(left, sizeof left, "-%c, --%s%s%s", o->letter, o->name, o->arg ? " " : "", o->arg ? o->arg : "");
        else
            snprintf(left, sizeof left, "    --%s%s%s", o->name, o->arg ? " " : "", o->arg ? o->arg : "");
        printf("  %-32s %s\n", left, o->help);
    }
    printf("  %-32s %s\n", "-h, --help", "print this and exit");
}

static bool parse_u64(const char *s, uint64_t *out, char **end)
{
    if (!isdigit((unsigned char)*s)) return false;
    errno = 0;
    unsigned long long v = strtoull(s, end, s[0] == '0' && (s[1] | 32) == 'x' ? 16 : 10);
    if (errno) return false;
    *out = v;
    return true;
}

/* Digits after a point, at s: their value in units of 2^-32 into *out, rounded down. Returns where they end. */
static const char *parse_fraction(const char *s, uint64_t *out)
{
    const char *end = s + strspn(s, "0123456789");
    *out = 0;
    for (const char *d = end; d-- > s;) *out = (*out + ((uint64_t)(*d - '0') << 32)) / 10;
    return end;
}

/* A number of bytes with an optional binary unit: 4096, 500M, 6G, 5.5G, 6GB, 6GiB. */
static bool parse_size(const char *s, uint64_t *out)
{
    char *end;
    uint64_t v, part = 0;
    int shift = 0;
    if (!parse_u64(s, &v, &end)) return false;
    const char *unit = end;
    if (*end == '.' && ((s[1] | 32) == 'x' || (unit = parse_fraction(end + 1, &part)) == end + 1)) return false;
    switch (toupper((unsigned char)*unit)) {
    case 'K': shift = 10; break;
    case 'M': shift = 20; break;
    case 'G': shift = 30; break;
    case 'T': shift = 40; break;
    }
    if (shift && strcasecmp(unit + 1, "") && strcasecmp(unit + 1, "B") && strcasecmp(unit + 1, "iB")) return false;
    if ((!shift && *end) || v > UINT64_MAX >> shift) return false; /* no half bytes */
    *out = (v << shift) + (shift < 32 ? part >> (32 - shift) : part << (shift - 32));
    return *out != 0;
}

static int set_option(const struct opt *o, const char *arg)
{
    char *end = NULL;
    switch (o->kind) {
    case OPT_FLAG: *(bool *)o->out = true; return 0;
    case OPT_STRING: *(const char **)o->out = arg; return 0;
    case OPT_STRINGS: {
        struct cli_strings *s = o->out;
        s->v[s->n++] = arg;
        return 0;
    }
    case OPT_INT: {
        errno = 0;
        long v = strtol(arg, &end, 10);
        if (end == arg || *end || errno || v < o->lo || v > o->hi)
            return cli_usage("--%s: '%s' is not a whole number in %ld..%ld", o->name, arg, o->lo, o->hi);
        *(int *)o->out = (int)v;
        return 0;
    }
    case OPT_U64:
        if (!parse_u64(arg, o->out, &end) || *end) return cli_usage("--%s: '%s' is not a whole number", o->name, arg);
        return 0;
    case OPT_SIZE:
        if (!parse_size(arg, o->out)) return cli_usage("--%s: '%s' is not a size such as 6G, 5.5G or 500M", o->name, arg);
        return 0;
    case OPT_FLOAT: {
        float v = strtof(arg, &end);
        if (end == arg || *end || !isfinite(v)) return cli_usage("--%s: '%s' is not a number", o->name, arg);
        *(float *)o->out = v;
        return 0;
    }
    }
    return EX_SOFTWARE;
}

int cli_parse(int argc, char **argv, const char *usage, const struct opt *opts, int *first, bool *help)
{
    struct option longs[MAX_OPTS + 2];
    char shorts[2 * MAX_OPTS + 4] = ":h", *s = shorts + 2;
    int n = 0;
    for (; opts[n].name && n < MAX_OPTS; n++) {
        longs[n] = (struct option){opts[n].name, opts[n].arg ? required_argument : no_argument, NULL, 256 + n};
        if (!opts[n].letter) continue;
        *s++ = opts[n].letter;
        if (opts[n].arg) *s++ = ':';
    }
    longs[n] = (struct option){"help", no_argument, NULL, 'h'};
    longs[n + 1] = (struct option){0};
    *help = false;
    optind = 0; /* starts afresh, the state inside getopt included */
    for (int c; (c = getopt_long(argc, argv, shorts, longs, NULL)) != -1;) {
        if (c == 'h') {
            print_help(usage, opts);
            *help = true;
            return 0;
        }
        if (c == ':')
            return cli_usage("%s: option '%s' needs a value (see quern %s --help)", argv[0], argv[optind - 1], argv[0]);
        if (c == '?' && optopt > 0 && optopt < 256) /* a letter, which may stand among others */
            return cli_usage("%s: unknown option '-%c' (see quern %s --help)", argv[0], optopt, argv[0]);
        if (c == '?')
            return cli_usage("%s: %s option '%s' (see quern %s --help)", argv[0],
                             optopt ? "no value goes with" : "unknown", argv[optind - 1], argv[0]);
        const struct opt *o = opts;
        while (c >= 256 ? o != &opts[c - 256] : o->letter != c) o++;
        int rc = set_option(o, optarg);
        if (rc) return rc;
    }
    *first = optind;
    return 0;
}

int cli_parse_kv(const char *name, enum qn_kv *out)
{
    static const char *const names[] = {[QN_KV_F16] = "f16", [QN_KV_F32] = "f32", [QN_KV_Q8_0] = "q8_0"};
    for (int i = 0; i < 3; i++)
        if (!strcmp(name, names[i])) {
            *out = (enum qn_kv)i;
            return 0;
        }
    return cli_usage("--kv: '%s' is not f32, f16 or q8_0", name);
}

/* ---- input and output ---- */

void *cli_alloc(size_t n, size_t size)
{
    void *p = mem_calloc(n ? n : 1, size);
    if (p) return p;
    fprintf(stderr, "quern: not enough memory for %zu times %zu bytes\n", n, size);
    exit(EX_TEMPFAIL);
}

void cli_free(void *p) { mem_free(p); }

int cli_read_all(int fd, const char *name, size_t limit, char **data, size_t *n)
{
    size_t len = 0, cap = 1 << 16;
    char *p = mem_alloc(cap);
    while (p) {
        ssize_t got = read(fd, p + len, cap - len - 1);
        if (got < 0 && errno == EINTR) continue;
        if (got < 0) {
            int status = errno == EISDIR ? EX_NOINPUT : EX_IOERR;
            fprintf(stderr, "quern: cannot read %s: %s\n", name, strerror(errno));
            mem_free(p);
            return status;
        }
        if (got == 0) {
            p[len] = 0;
            *data = p;
            *n = len;
            return 0;
        }
        len += (size_t)got;
        if (len > limit) {
            fprintf(stderr, "quern: %s has more than %zu bytes, which is the limit\n", name, limit);
            mem_free(p);
            return EX_DATAERR;
        }
        if (cap - len < 2) {
            char *q = mem_realloc(p, cap *= 2);
            if (!q) mem_free(p);
            p = q;
        }
    }
    fprintf(stderr, "quern: not enough memory for %zu bytes of %s\n", cap, name);
    return EX_TEMPFAIL;
}

int cli_write(const void *p, size_t n)
{
    const char *s = p;
    while (n > 0) {
        ssize_t done = write(STDOUT_FILENO, s, n);
        if (done < 0 && errno == EINTR) continue;
        if (done < 0) return -1;
        s += done;
        n -= (size_t)done;
    }
    return 0;
}

int cli_write_status(void)
{
    if (errno == EPIPE) return EX_OK;
    fprintf(stderr, "quern: cannot write to standard output: %s\n", strerror(errno));
    return EX_IOERR;
}
