/* SPDX-License-Identifier: MIT
 *
 * tls_probe.c: a TLS client that sends records without bytes for the application, which clients can but few libraries
 * let them.
 *
 *     tls-probe PORT keys       a key update and a request, in one packet (TLS 1.3)
 *     tls-probe PORT alerts N   N warnings, then a request (TLS 1.2)
 *
 * Prints "connected" and waits for a line on standard input. Then it sends everything, prints "sent" when the
 * kernel has it, and prints the first line of the answer with the request's id. 200 KiB do not wait for the other end.
 */
#include <arpa/inet.h>
#include <gnutls/gnutls.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define SEND_BUFFER 212992 /* bytes: the most that Linux allows by default (net.core.wmem_max) */

static struct {
    int fd;
    char bytes[1 << 20]; /* what is held back, to go out at once */
    size_t n;
    int holds;
} out;

static void let_go(void)
{
    for (size_t at = 0; at < out.n;) {
        ssize_t k = send(out.fd, out.bytes + at, out.n - at, MSG_NOSIGNAL);
        if (k <= 0) exit(1);
        at += (size_t)k;
    }
    out.n = 0;
}

static ssize_t push(gnutls_transport_ptr_t arg, const void *p, size_t n)
{
    (void)arg;
    if (out.n + n > sizeof out.bytes) let_go();
    memcpy(out.bytes + out.n, p, n);
    out.n += n;
    if (!out.holds) let_go();
    return (ssize_t)n;
}

static ssize_t pull(gnutls_transport_ptr_t arg, void *p, size_t n)
{
    (void)arg;
    return recv(out.fd, p, n, 0);
}

static void check(int rc, const char *what)
{
    if (rc >= 0) return;
    fprintf(stderr, "%s: %s\n", what, gnutls_strerror(rc));
    exit(1);
}

static void say(const char *word)
{
    puts(word);
    fflush(stdout);
}

static void print_answer(char *answer)
{
    const char *id = strstr(answer, "x-request-id: ");

    printf("%.*s %.*s\n", (int)strcspn(answer, "\r"), answer, id ? (int)strcspn(id, "\r") : 0, id ? id : "");
}

int main(int argc, char **argv)
{
    static const char request[] = "GET /public HTTP/1.1\r\nHost: localhost\r\n\r\n";
    char answer[4096] = "";
    if (argc < 3) return 64;
    int is_keys = !strcmp(argv[2], "keys");
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_port = htons((uint16_t)atoi(argv[1]))};
    at.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    out.fd = socket(AF_INET, SOCK_STREAM, 0);
    setsockopt(out.fd, SOL_SOCKET, SO_SNDBUF, &(int){SEND_BUFFER}, sizeof(int));
    if (connect(out.fd, (struct sockaddr *)&at, sizeof at)) return 1;
    gnutls_session_t s;
    gnutls_certificate_credentials_t nobody;
    check(gnutls_certificate_allocate_credentials(&nobody), "credentials");
    check(gnutls_init(&s, GNUTLS_CLIENT), "a session");
    check(gnutls_priority_set_direct(s, is_keys ? "NORMAL:-VERS-ALL:+VERS-TLS1.3" : "NORMAL:-VERS-ALL:+VERS-TLS1.2",
                                     NULL),
          "the version");
    check(gnutls_credentials_set(s, GNUTLS_CRD_CERTIFICATE, nobody), "credentials");
    gnutls_transport_set_push_function(s, push);
    gnutls_transport_set_pull_function(s, pull);
    check(gnutls_handshake(s), "the handshake");
    say("connected");
    if (getchar() == EOF) return 1;
    out.holds = 1;
    if (is_keys) check(gnutls_session_key_update(s, 0), "a key update");
    for (long i = is_keys || argc < 4 ? 0 : atol(argv[3]); i > 0; i--)
        check(gnutls_alert_send(s, GNUTLS_AL_WARNING, GNUTLS_A_USER_CANCELED), "an alert");
    check((int)gnutls_record_send(s, request, strlen(request)), "a request");
    let_go();
    say("sent");
    check((int)gnutls_record_recv(s, answer, sizeof answer - 1), "an answer");
    print_answer(answer);
    gnutls_deinit(s);
    gnutls_certificate_free_credentials(nobody);
    close(out.fd);
    return 0;
}
