/* SPDX-License-Identifier: MIT
 *
 * fuzz_client.c: libFuzzer entry for what a server answers: a response, and the chat in it.
 *
 * The input is a byte that says in how long pieces it comes, then the bytes. Two things have to hold besides that
 * nothing breaks: the pieces do not matter, and a chat that is taken has a finish reason and is whole UTF-8.
 */
#include <assert.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/utf8.h"
#include "client/client_chat.h"
#include "client/response.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#define SOCKET_MAX 100000 /* bytes that a socket holds without anybody reading */

struct heard {
    struct buf text;
    bool notes;
};

static int hear(void *arg, enum chat_piece kind, const char *text, size_t n)
{
    struct heard *h = arg;
    assert(n > 0);
    for (size_t at = 0; at < n;) {
        uint32_t c;
        unsigned k = utf8_get((const uint8_t *)text + at, n - at, &c);
        assert(k > 0);
        at += k;
    }
    return kind != CHAT_NOTE && buf_add(&h->text, text, n, NULL);
}

/* The response alone. Returns its code; what of it is the body into *body. */
static int read_response(const char *p, size_t n, size_t step, struct buf *body, struct client_reply *reply)
{
    struct response *r = malloc(sizeof *r);
    int64_t used = 1;
    int rc = 0;
    response_init(r, reply);
    for (size_t at = 0; at < n && used > 0;) {
        const char *part;
        size_t n_part, k = n - at < step ? n - at : step;
        used = response_read(r, p + at, k, &part, &n_part, NULL);
        assert(used <= (int64_t)k);
        if (used > 0) {
            assert(part >= p + at && part + n_part <= p + at + k && !buf_add(body, part, n_part, NULL));
            at += (size_t)used;
        }
    }
    rc = used < 0 ? (int)used : response_end(r, NULL);
    free(r);
    return rc;
}

static void both_ways(const char *p, size_t n, size_t step)
{
    struct client_reply a, b;
    struct buf one = {0}, two = {0};
    int rc = read_response(p, n, n, &one, &a), again = read_response(p, n, step, &two, &b);
    assert(rc == again && one.len == two.len && (!one.len || !memcmp(one.data, two.data, one.len)));
    assert(a.status == b.status && a.retry_after_s == b.retry_after_s && !strcmp(a.type, b.type));
    assert(rc || (a.status >= 200 && a.status <= 999));
    buf_deinit(&one);
    buf_deinit(&two);
}

static void chat(const char *p, size_t n, json_t *request)
{
    struct client *c;
    struct chat_result r;
    struct heard h = {0};
    int ends[2], code = socketpair(AF_UNIX, SOCK_STREAM, 0, ends), rc;
    ssize_t sent = code ? -1 : send(ends[1], p, n, MSG_NOSIGNAL);
    assert(sent == (ssize_t)n);
    shutdown(ends[1], SHUT_WR);
    code = client_open_fd(&c, ends[0], NULL);
    assert(!code);
    rc = chat_send(c, request, hear, &h, &r, NULL);
    assert(rc <= 0 && (rc || r.finish[0]) && r.n_prompt >= -1 && r.n_generated >= -1);
    client_close(c);
    close(ends[1]);
    buf_deinit(&h.text);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static json_t *request;
    if (!request) request = json_object();
    if (size < 2 || size > SOCKET_MAX) return 0;
    char *copy = malloc(size - 1);
    memcpy(copy, data + 1, size - 1);
    both_ways(copy, size - 1, (size_t)data[0] + 1);
    chat(copy, size - 1, request);
    free(copy);
    return 0;
}
