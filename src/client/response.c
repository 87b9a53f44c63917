/* SPDX-License-Identifier: MIT
 *
 * response.c: reads a response with a state for each place in it.
 *
 * Lines are collected in a buffer of a fixed size. Bytes of the body are never copied.
 */
#include "client/response.h"

#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "base/inline/digits.h"

void response_init(struct response *r, struct client_reply *reply)
{
    *reply = (struct client_reply){.retry_after_s = -1};
    r->state = RESPONSE_STATUS;
    r->reply = reply;
    r->left = 0;
    r->length = -1;
    r->chunked = r->keep = false;
    r->minor = 0;
    r->n_head = r->n = 0;
}

/* A number of digits only, at most 18 of them, so that it fits. */
static bool read_number(const char *s, int64_t *out)
{
    size_t n = strspn(s, "0123456789");
    if (n < 1 || n > 18 || s[n]) return false;
    *out = strtoll(s, NULL, 10);
    return true;
}

/* "HTTP/1.1 200 OK"; the words after the status may be missing. */
static int read_status(struct response *r, struct qn_error *e)
{
    const char *s = r->line;
    if (r->n < 12 || memcmp(s, "HTTP/1.", 7) || !is_digit(s[7]) || s[8] != ' ' || s[9] < '1' || s[9] > '9' ||
        !is_digit(s[10]) || !is_digit(s[11]) || (s[12] && s[12] != ' '))
        return error_set(e, QN_EDATA, "what answers does not speak HTTP/1.1: its first line is '%.64s'", s);
    r->minor = s[7] - '0';
    r->reply->status = atoi(s + 9);
    if (r->reply->status == 101)
        return error_set(e, QN_EDATA, "the server answers 101, a change of protocol that nobody asked for");
    r->keep = r->minor >= 1;
    r->state = RESPONSE_FIELDS;
    return 0;
}

/* Whether a list with commas contains a word. */
static bool has_word(const char *list, const char *word)
{
    for (size_t n = strlen(word); *list; list += strcspn(list, ",")) {
        list += strspn(list, ", \t");
        if (!strncasecmp(list, word, n) && (!list[n] || strchr(", \t", list[n]))) return true;
    }
    return false;
}

static int read_length(struct response *r, const char *value, struct qn_error *e)
{
    int64_t n;
    if (!read_number(value, &n))
        return error_set(e, QN_EDATA, "the server's Content-Length '%.64s' is no number", value);
    if (r->length >= 0 && r->length != n)
        return error_set(e, QN_EDATA, "the server's answer has two lengths, %lld and %lld", (long long)r->length,
                         (long long)n);
    r->length = n;
    return 0;
}

static void read_type(struct response *r, const char *value)
{
    size_t n = strcspn(value, "; \t");
    if (n >= sizeof r->reply->type) n = sizeof r->reply->type - 1;
    memcpy(r->reply->type, value, n);
    r->reply->type[n] = '\0';
}

/* "name: value"; blanks around the value are removed. */
static int read_field(struct response *r, struct qn_error *e)
{
    char *colon = strchr(r->line, ':'), *value = colon ? colon + 1 : NULL;
    int64_t seconds;
    if (!colon || colon == r->line || strcspn(r->line, " \t") < (size_t)(colon - r->line))
        return error_set(e, QN_EDATA, "a line in the head of the server's answer is no field: '%.64s'", r->line);
    *colon = '\0';
    value += strspn(value, " \t");
    for (size_t n = strlen(value); n && strchr(" \t", value[n - 1]);) value[--n] = '\0';
    if (!strcasecmp(r->line, "Content-Length")) return read_length(r, value, e);
    if (!strcasecmp(r->line, "Content-Type")) read_type(r, value);
    if (!strcasecmp(r->line, "Retry-After") && read_number(value, &seconds))
        r->reply->retry_after_s = seconds > 1000000 ? 1000000 : (int)seconds;
    if (!strcasecmp(r->line, "Connection") && has_word(value, "close")) r->keep = false;
    if (strcasecmp(r->line, "Transfer-Encoding")) return 0;
    if (r->chunked || strcasecmp(value, "chunked"))
        return error_set(e, QN_EDATA, "the server's answer is encoded as '%.64s', which was not asked for", value);
    r->chunked = true;
    return 0;
}

/* The empty line after the fields: decides how the body ends. */
static int end_head(struct response *r, struct qn_error *e)
{
    int status = r->reply->status;
    if (r->chunked && (r->length >= 0 || r->minor < 1))
        return error_set(e, QN_EDATA, "the server's answer has chunks and %s",
                         r->minor < 1 ? "is of HTTP/1.0" : "a length too");
    if (status < 200) { /* an interim response: the final one follows */
        size_t n_head = r->n_head;
        response_init(r, r->reply);
        r->n_head = n_head;
    } else if (status == 204 || status == 304) {
        r->state = RESPONSE_DONE;
    } else if (r->chunked) {
        r->state = RESPONSE_CHUNK_SIZE;
        r->n_head = 0;
    } else if (r->length >= 0) {
        r->left = (uint64_t)r->length;
        r->state = r->left ? RESPONSE_BODY : RESPONSE_DONE;
    } else {
        r->keep = false;
        r->state = RESPONSE_REST;
    }
    return 0;
}

/* Hexadecimal digits; text after a semicolon has no meaning here. */
static int read_chunk_size(struct response *r, struct qn_error *e)
{
    size_t n = strspn(r->line, "0123456789abcdefABCDEF"), blank = strspn(r->line + n, " \t");
    if (n < 1 || n > 15 || (r->line[n + blank] && r->line[n + blank] != ';') || (blank && !r->line[n + blank]))
        return error_set(e, QN_EDATA, "the size of a chunk of the server's answer is '%.64s'", r->line);
    r->left = strtoull(r->line, NULL, 16);
    r->state = r->left ? RESPONSE_CHUNK : RESPONSE_TRAILERS;
    r->n_head = 0;
    return 0;
}

/* Handles a whole line, without its end. */
static int read_line(struct response *r, struct qn_error *e)
{
    r->line[r->n] = '\0';
    if (strlen(r->line) != r->n || strchr(r->line, '\r'))
        return error_set(e, QN_EDATA, "a line of the server's answer has a NUL byte or a carriage return in it");
    switch (r->state) {
    case RESPONSE_STATUS: return read_status(r, e);
    case RESPONSE_FIELDS: return r->n ? read_field(r, e) : end_head(r, e);
    case RESPONSE_CHUNK_SIZE: return read_chunk_size(r, e);
    case RESPONSE_CHUNK_END:
        if (r->n) return error_set(e, QN_EDATA, "a chunk of the server's answer is longer than it says");
        r->state = RESPONSE_CHUNK_SIZE;
        return 0;
    default: /* a trailer, or the empty line after the last one */
        if (!r->n) r->state = RESPONSE_DONE;
        return 0;
    }
}

/* Adds bytes to the line, and handles the line when its end has come. */
static int64_t take_line(struct response *r, const char *p, size_t n, struct qn_error *e)
{
    const char *end = memchr(p, '\n', n);
    size_t used = end ? (size_t)(end - p) + 1 : n;
    r->n_head += used;
    if (r->n + used > RESPONSE_LINE_MAX || r->n_head > RESPONSE_HEAD_MAX)
        return error_set(e, QN_EDATA,
                         "the head of the server's answer is too long: a line of %d bytes, or more than %d",
                         RESPONSE_LINE_MAX, RESPONSE_HEAD_MAX);
    memcpy(r->line + r->n, p, used);
    r->n += used;
    if (!end) return (int64_t)used;
    if (r->n < 2 || r->line[r->n - 2] != '\r')
        return error_set(e, QN_EDATA, "a line of the server's answer does not end as HTTP's do");
    r->n -= 2;
    int rc = read_line(r, e);
    r->n = 0;
    return rc ? rc : (int64_t)used;
}

int64_t response_read(struct response *r, const char *p, size_t n, const char **body, size_t *n_body,
                      struct qn_error *e)
{
    *body = p;
    *n_body = 0;
    if (n == 0 || r->state == RESPONSE_DONE) return 0;
    if (r->state != RESPONSE_BODY && r->state != RESPONSE_CHUNK && r->state != RESPONSE_REST)
        return take_line(r, p, n, e);
    if (r->state != RESPONSE_REST) {
        if (n > r->left) n = (size_t)r->left;
        r->left -= n;
        if (!r->left) r->state = r->state == RESPONSE_BODY ? RESPONSE_DONE : RESPONSE_CHUNK_END;
    }
    *n_body = n;
    return (int64_t)n;
}

int response_end(struct response *r, struct qn_error *e)
{
    if (r->state == RESPONSE_DONE) return 0;
    if (r->state == RESPONSE_REST) {
        r->state = RESPONSE_DONE;
        return 0;
    }
    if (r->state == RESPONSE_STATUS && !r->n_head)
        return error_set(e, QN_EIO, "the server has closed the connection without an answer");
    if (r->state == RESPONSE_STATUS || r->state == RESPONSE_FIELDS)
        return error_set(e, QN_EIO, "the server has closed the connection within the head of its answer");
    if (r->state == RESPONSE_BODY)
        return error_set(e, QN_EIO, "the server has closed the connection %llu bytes before the end of its answer",
                         (unsigned long long)r->left);
    return error_set(e, QN_EIO, "the server has closed the connection before the end of its answer");
}
