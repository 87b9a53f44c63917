/* SPDX-License-Identifier: MIT
 *
 * head.c: splits heads and reads chunks.
 *
 * One old form is allowed: an empty line before a request, which RFC 9112 says to ignore (the caller skips it). Refused
 * although readable: folded headers, bare LF, white space before a colon or around a chunk's size.
 *
 * Source: RFC 9112 sections 2.2 (lines), 3 (request line), 5 (fields), 7.1 (chunks); RFC 9110 sections 5.5, 5.6.2.
 */
#include "server/http/head.h"

#include <string.h>
#include <strings.h>

#include "base/inline/digits.h"

#define TOKEN             "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789!#$%&'*+-.^_`|~"
#define EXTENSION_BYTES   256         /* of one chunk */
#define EXTRA_BYTES       (16u << 10) /* bytes of all extensions and trailers of a body */
#define MAX_SIZE_DIGITS   15          /* of a chunk's size, which is below 2^60 */
#define MAX_LENGTH_DIGITS 18

static bool is_control(uint8_t c) { return (c < 0x20 && c != '\t') || c == 0x7F; }

/* ---- the head ---- */

long head_scan(const uint8_t *p, size_t n, size_t *at)
{
    for (size_t i = *at; i < n; i++) {
        bool after_cr = i > 0 && p[i - 1] == '\r';
        if ((p[i] == '\n') != after_cr) return -1;
        if (p[i] == '\n' && i >= 3 && p[i - 2] == '\n') return (long)i + 1;
        if (p[i] != '\r' && p[i] != '\n' && is_control(p[i])) return -1;
    }
    *at = n;
    return 0;
}

bool head_is_token(const char *s)
{
    size_t n = strspn(s, TOKEN);

    return n > 0 && s[n] == '\0';
}

/* Ends the line at its CR with a NUL; returns the next line. */
static char *cut_line(char *line)
{
    char *cr = strchr(line, '\r');

    *cr = '\0';
    return cr + 2;
}

/* METHOD SP TARGET SP HTTP/d.d, with exactly one space each. */
static int parse_line(struct head *h, char *line, const char **why)
{
    char *target = strchr(line, ' '), *version = target ? strchr(target + 1, ' ') : NULL;

    *why = "the request's first line is not METHOD TARGET HTTP/1.1";
    if (!version) return 400;
    *target++ = *version++ = '\0';
    h->method = line;
    h->target = target;
    if (!head_is_token(line) || !*target || strncmp(version, "HTTP/", 5) != 0) return 400;
    if (version[5] < '0' || version[5] > '9' || version[6] != '.' || version[7] < '0' || version[7] > '9' || version[8])
        return 400;
    for (const char *p = target; *p; p++)
        if (*p <= 0x20 || *p >= 0x7F || *p == '#') {
            *why = "the request's target has a byte that has to be escaped";
            return 400;
        }
    *why = "this server speaks HTTP/1.1";
    if (version[5] != '1') return 505;
    h->minor = version[7] != '0';
    return 0;
}

static int parse_header(struct head *h, char *line, const char **why)
{
    size_t n = strspn(line, TOKEN);
    char *value = line + n + 1, *end;

    *why = line[0] == ' ' || line[0] == '\t' ? "a header is continued on the next line"
                                             : "a line of the head is not NAME: VALUE";
    if (n == 0 || line[n] != ':') return 400;
    line[n] = '\0';
    value += strspn(value, " \t");
    end = value + strlen(value);
    while (end > value && (end[-1] == ' ' || end[-1] == '\t')) end--;
    *end = '\0';
    *why = "more than 100 headers";
    if (h->n == HEAD_MAX_HEADERS) return 431;
    h->header[h->n].name = line;
    h->header[h->n++].value = value;
    return 0;
}

int head_parse(struct head *h, char *text, size_t n, const char **why)
{
    char *end = text + n - 2, *next = cut_line(text);
    int status;

    h->method = h->target = "";
    h->minor = 1;
    h->n = 0;
    status = parse_line(h, text, why);
    while (status == 0 && next < end) {
        char *line = next;
        next = cut_line(line);
        status = parse_header(h, line, why);
    }
    return status;
}

const char *head_value(const struct head *h, const char *name)
{
    for (int i = 0; i < h->n; i++)
        if (strcasecmp(h->header[i].name, name) == 0) return h->header[i].value;
    return NULL;
}

bool head_has(const char *value, const char *element)
{
    size_t n = strlen(element);

    for (const char *p = value; *p;) {
        p += strspn(p, " \t,");
        size_t len = strcspn(p, ","), to = len;
        while (to > 0 && (p[to - 1] == ' ' || p[to - 1] == '\t')) to--;
        if (to == n && strncasecmp(p, element, n) == 0) return true;
        p += len;
    }
    return false;
}

int64_t head_length(const char *value)
{
    size_t n = strspn(value, "0123456789");
    int64_t length = 0;

    if (n == 0 || value[n]) return -1;
    while (n > 1 && *value == '0') {
        value++;
        n--;
    }
    if (n > MAX_LENGTH_DIGITS) return -1;
    for (; n > 0; n--) length = length * 10 + (*value++ - '0');
    return length;
}

/* ---- chunks ---- */

enum {
    SIZE,
    EXTENSION,
    SIZE_LF,
    DATA,
    DATA_CR,
    DATA_LF,
    TRAILER,
    TRAILER_NAME,
    TRAILER_VALUE,
    TRAILER_LF,
    LAST_LF,
    DONE
};

bool chunks_done(const struct chunks *c) { return c->state == DONE; }

static int at_size(struct chunks *c, uint8_t b)
{
    int digit = hex_digit(b);

    if (digit >= 0) {
        c->left = c->left << 4 | (unsigned)digit;
        return ++c->n_digits > MAX_SIZE_DIGITS ? -1 : SIZE;
    }
    if (c->n_digits == 0) return -1;
    c->n_line = 0;
    if (b == '\r') return SIZE_LF;
    return b == ';' ? EXTENSION : -1;
}

/* Extensions and trailers are thrown away, but their number of bytes is bounded too. */
static bool is_too_much(struct chunks *c) { return ++c->n_extra > EXTRA_BYTES; }

static int at_extension(struct chunks *c, uint8_t b)
{
    if (b == '\r') return SIZE_LF;
    return is_control(b) || ++c->n_line > EXTENSION_BYTES || is_too_much(c) ? -1 : EXTENSION;
}

/* One byte of a trailer: name, colon, value, CRLF. */
static int at_trailer(struct chunks *c, uint8_t b)
{
    bool is_name = b != '\0' && strchr(TOKEN, b) != NULL;

    if (is_too_much(c)) return -1;
    switch (c->state) {
    case TRAILER:
        if (b == '\r') return LAST_LF;
        return is_name ? TRAILER_NAME : -1;
    case TRAILER_NAME:
        if (is_name) return TRAILER_NAME;
        return b == ':' ? TRAILER_VALUE : -1;
    default:
        if (b == '\r') return TRAILER_LF;
        return is_control(b) ? -1 : TRAILER_VALUE;
    }
}

/* The state after a byte that is not part of the body; -1: malformed. */
static int step(struct chunks *c, uint8_t b)
{
    switch (c->state) {
    case SIZE: return at_size(c, b);
    case EXTENSION: return at_extension(c, b);
    case SIZE_LF:
        if (b != '\n') return -1;
        return c->left ? DATA : TRAILER;
    case DATA_CR: return b == '\r' ? DATA_LF : -1;
    case DATA_LF: c->n_digits = 0; return b == '\n' ? SIZE : -1;
    case TRAILER_LF: return b == '\n' ? TRAILER : -1;
    case LAST_LF: return b == '\n' ? DONE : -1;
    default: return at_trailer(c, b);
    }
}

long chunks_read(struct chunks *c, const uint8_t *p, size_t n, const uint8_t **piece, size_t *n_piece)
{
    size_t i = 0;

    *n_piece = 0;
    while (i < n && c->state != DONE && c->state != DATA)
        if ((c->state = step(c, p[i++])) < 0) return -1;
    if (c->state != DATA || i == n) return (long)i;
    *piece = p + i;
    *n_piece = n - i < c->left ? n - i : (size_t)c->left;
    c->left -= *n_piece;
    if (c->left == 0) c->state = DATA_CR;
    return (long)(i + *n_piece);
}
