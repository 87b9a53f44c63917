/* SPDX-License-Identifier: MIT
 *
 * fuzz_http.c: libFuzzer entry for what is read of a request before anybody is asked: the head, a body in chunks, the
 * target, Host and Origin; and the frames of a WebSocket.
 *
 * The input is a byte that chooses which, then the text. A head or body is the same whether it comes at once or byte by
 * byte, as are frames, and one that is taken can be read in one way: written again from its parts it is what came, but
 * for white space around values. What passes as ours has to be: a path that a route matches begins with it, a host is
 * one of three names and an address, an origin begins with a scheme and its host or is the one that is allowed.
 */
#include <assert.h>
#include <string.h>
#include <strings.h>

#include "server/http/head.h"
#include "server/http/web_origin.h"
#include "server/http/route.h"
#include "server/http/ws_frame.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void nothing(struct http_request *r, void *ctx)
{
    (void)r;
    (void)ctx;
}

static const struct http_route routes[] = {
    {"GET", "/health", nothing, 0},
    {"POST", "/v1/requests/{id}/cancel", nothing, 0},
    {"POST", "/v1/messages", nothing, 0},
    {"POST", "/v1/messages/count_tokens", nothing, 0},
};

static void read_target(char *s)
{
    char *question = strchr(s, '?');
    char *copy = question ? mem_dup(question + 1, strlen(question + 1)) : NULL;
    if (question) *question = '\0';
    if (copy) {
        char *value = route_query(copy, "x");
        assert(!value || strlen(value) <= strlen(question + 1));
        mem_free(copy);
    }
    size_t before = strlen(s);
    long n = route_unescape(s);
    if (n < 0) return;
    assert((size_t)n <= before && s[n] == '\0' && strlen(s) == (size_t)n);
    struct route_match m = route_find(routes, 4, "POST", s);
    assert(!m.route || m.has_path);
    if (!m.route) return;
    if (m.param_len)
        assert(m.param + m.param_len + strlen("/cancel") == strlen(s) && !memchr(s + m.param, '/', m.param_len));
    else
        assert(!strcmp(s, m.route->pattern));
    struct buf allow = {0};
    assert(!route_allow(&allow, routes, 4, s, NULL) && strstr((char *)allow.data, "POST"));
    buf_deinit(&allow);
}

static void read_host(const char *s)
{
    static const char *const names[] = {"quern.example"};
    static const char *const known[] = {"localhost",     "127.0.0.1",   "[::1]",
                                        "[2001:db8::1]", "2001:db8::1", "quern.example"};
    if (!web_origin_host_ok(s, "2001:db8::1", names, 1)) return;
    for (size_t i = 0; i < sizeof known / sizeof known[0]; i++) {
        size_t n = strlen(known[i]);
        if (!strncasecmp(s, known[i], n) &&
            (!s[n] || (s[n] == ':' && strspn(s + n + 1, "0123456789") == strlen(s + n + 1))))
            return;
    }
    assert(!"a host that is not ours");
}

static void read_origin(const char *s)
{
    static const char *const origins[] = {"https://app.example"};
    int ok = web_origin_ok(s, "localhost:1", 0, origins, 1);
    assert(ok == (!strcasecmp(s, "https://app.example") || !strcasecmp(s, "http://localhost:1")));
}

static void check_head(const struct head *h, const char *text, size_t n)
{
    const char *p = text;
    size_t len = strlen(h->method);
    assert(head_is_token(h->method) && !memcmp(p, h->method, len) && p[len] == ' ');
    p += len + 1;
    len = strlen(h->target);
    assert(len > 0 && !memcmp(p, h->target, len) && !memcmp(p + len, " HTTP/1.", 8) && !memcmp(p + len + 9, "\r\n", 2));
    p += len + 11;
    for (int i = 0; i < h->n; i++) {
        const char *value = h->header[i].value;
        len = strlen(h->header[i].name);
        assert(head_is_token(h->header[i].name) && !memcmp(p, h->header[i].name, len) && p[len] == ':');
        p += len + 1;
        p += strspn(p, " \t");
        len = strlen(value);
        assert(!memcmp(p, value, len) && !strpbrk(value, "\r\n") && (!len || !strchr(" \t", value[len - 1])));
        p += len;
        p += strspn(p, " \t");
        assert(!memcmp(p, "\r\n", 2));
        p += 2;
    }
    assert(p == text + n - 2);
}

static void read_head(const uint8_t *p, size_t size)
{
    size_t at = 0, slow_at = 0;
    const char *why = NULL;
    long n = head_scan(p, size, &at), slow = 0;
    for (size_t i = 1; i <= size && slow == 0; i++) slow = head_scan(p, i, &slow_at);
    assert(n == slow);
    if (n <= 0) return;
    char *text = mem_dup(p, (size_t)n), *before = mem_dup(p, (size_t)n);
    struct head *h = mem_calloc(1, sizeof *h);
    assert(text && before && h);
    int status = head_parse(h, text, (size_t)n, &why);
    if (status == 0) {
        check_head(h, before, (size_t)n);
        assert(!h->n || head_value(h, h->header[h->n - 1].name));
        for (int i = 0; i < h->n; i++) head_has(h->header[i].value, "close"), head_length(h->header[i].value);
    }
    assert(why && (status == 0 || (status >= 400 && status < 600)));
    mem_free(h);
    mem_free(before);
    mem_free(text);
}

/* The body, read in steps of so many bytes; -1: malformed. Returns how many bytes were read. */
static long read_chunks(struct buf *out, const uint8_t *p, size_t size, size_t step)
{
    struct chunks c = {0};
    size_t used = 0;
    while (used < size && !chunks_done(&c)) {
        const uint8_t *piece = NULL;
        size_t n = 0, most = size - used < step ? size - used : step;
        long k = chunks_read(&c, p + used, most, &piece, &n);
        if (k < 0) return -1;
        assert(k > 0 && (size_t)k <= most && n <= (size_t)k && (!n || piece + n == p + used + k));
        if (n) assert(!buf_add(out, piece, n, NULL));
        used += (size_t)k;
    }
    return (long)used;
}

static void read_body(const uint8_t *p, size_t size)
{
    struct buf at_once = {0}, slowly = {0};
    long n = read_chunks(&at_once, p, size, SIZE_MAX), m = read_chunks(&slowly, p, size, 1);
    assert(n == m && at_once.len == slowly.len && (n < 0 || at_once.len <= (size_t)n));
    assert(!at_once.len || !memcmp(at_once.data, slowly.data, slowly.len));
    buf_deinit(&at_once);
    buf_deinit(&slowly);
}

/* The frames, read in steps of so many bytes. Returns the close code, or 0, and adds their contents to out. */
static int read_frames_in(struct buf *out, const uint8_t *p, size_t size, size_t step)
{
    struct frames f = {.max_bytes = 1000};
    uint8_t *bytes = mem_dup(p, size);
    size_t used = 0;
    int code = 0;
    assert(bytes);
    while (used < size && !code) {
        struct frame_piece piece;
        size_t most = size - used < step ? size - used : step;
        long k = frames_read(&f, bytes + used, most, &piece);
        if (k < 0) code = (int)-k;
        if (k < 0) break;
        assert(k > 0 && (size_t)k <= most && f.n_message <= 1000 && f.n_head < sizeof f.head);
        used += (size_t)k;
        if (!piece.is_there) continue;
        assert(piece.opcode == FRAME_TEXT || piece.n <= FRAME_CONTROL_BYTES);
        if (piece.opcode == FRAME_CLOSE) code = frame_close_code(piece.p, piece.n);
        if (piece.opcode != FRAME_TEXT) assert(!buf_printf(out, NULL, "%d:", piece.opcode));
        if (piece.n > 0) assert(!buf_add(out, piece.p, piece.n, NULL));
        if (piece.is_end) assert(!buf_str(out, ";", NULL));
    }
    mem_free(bytes);
    return code;
}

static void read_frames(const uint8_t *p, size_t size)
{
    struct buf at_once = {0}, slowly = {0};
    int code = read_frames_in(&at_once, p, size, SIZE_MAX);
    assert(code == read_frames_in(&slowly, p, size, 1));
    if (!code) assert(at_once.len == slowly.len && (!slowly.len || !memcmp(at_once.data, slowly.data, slowly.len)));
    buf_deinit(&at_once);
    buf_deinit(&slowly);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size == 0) return 0;
    char *s = mem_dup(data + 1, size - 1); /* up to its first NUL byte, as the parser gives it */
    assert(s);
    switch (data[0] % 6) {
    case 0: read_target(s); break;
    case 1: read_host(s); break;
    case 2: read_origin(s); break;
    case 3: read_head(data + 1, size - 1); break;
    case 4: read_body(data + 1, size - 1); break;
    default: read_frames(data + 1, size - 1);
    }
    mem_free(s);
    return 0;
}
