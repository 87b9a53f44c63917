/* SPDX-License-Identifier: MIT
 *
 * test_local.c: the server inside of this process, over pairs of sockets. The argument is a model's file.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "cli/place/local.h"

static const char *model;

/* The whole answer to a request that closes the connection. */
static char *ask(struct local *l, const char *head, const char *body)
{
    static char answer[1 << 16];
    struct qn_error e = {0};
    char request[1024];
    size_t n = 0;
    int fd = -1;
    assert_int_equal(local_connect(l, &fd, &e), 0);
    int len = snprintf(request, sizeof request,
                       "%s HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nContent-Type: application/json\r\n"
                       "Content-Length: %zu\r\n\r\n%s",
                       head, strlen(body), body);
    assert_int_equal(send(fd, request, (size_t)len, MSG_NOSIGNAL), len);
    for (ssize_t got; (got = recv(fd, answer + n, sizeof answer - 1 - n, 0)) > 0;) n += (size_t)got;
    answer[n] = 0;
    close(fd);
    return answer;
}

static const struct local_draft no_draft = {QN_DRAFT_DEFAULT, NULL};

static struct local *opened(void)
{
    struct qn_engine_params p;
    struct qn_model_params file;
    struct qn_error e = {0};
    struct local *l = NULL;
    char *path = strdup(model);
    qn_engine_params_init(&p);
    qn_model_params_init(&file);
    p.n_ctx = 256;
    p.n_threads = 1;
    if (local_open(&l, path, &no_draft, &file, &p, NULL, &e)) fail_msg("%s", e.msg);
    memset(path, 'x', strlen(path)); /* it was only borrowed */
    free(path);
    return l;
}

static void it_answers_as_a_daemon_does(void **state)
{
    static const char body[] = "{\"prompt\":\"Once upon a time\",\"max_tokens\":8,\"temperature\":0}";
    struct local *l = opened();
    char first[512];
    (void)state;
    char *models = ask(l, "GET /v1/models", "");
    assert_non_null(strstr(models, "HTTP/1.1 200"));
    assert_non_null(strstr(models, "\"id\":\"stories15M-q8_0\"")); /* its name, not where it lies */
    snprintf(first, sizeof first, "%s", strstr(ask(l, "POST /v1/completions", body), "\"choices\""));
    assert_non_null(strstr(first, "\"text\":\", there was a little girl"));
    assert_non_null(strstr(ask(l, "POST /v1/completions", "{\"nonsense\":1}"), "unknown_field"));
    local_close(l);
}

/* Closing ends what runs, and a client that stays is hung up on. */
static void closing_ends_what_runs(void **state)
{
    static const char request[] = "POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Type: "
                                  "application/json\r\nContent-Length: 69\r\n\r\n"
                                  "{\"prompt\":\"Once\",\"max_tokens\":200,\"ignore_eos\":true,\"stream\":true   }";
    struct local *l = opened();
    struct qn_error e = {0};
    char piece[64];
    int fd = -1;
    (void)state;
    assert_int_equal(local_connect(l, &fd, &e), 0);
    assert_int_equal(send(fd, request, sizeof request - 1, MSG_NOSIGNAL), sizeof request - 1);
    assert_true(recv(fd, piece, sizeof piece, 0) > 0);
    assert_memory_equal(piece, "HTTP/1.1 200", 12);
    local_close(l);
    while (recv(fd, piece, sizeof piece, 0) > 0) {
    }
    close(fd);
}

static void a_file_that_is_none_is_refused(void **state)
{
    struct qn_engine_params p;
    struct qn_model_params file;
    struct qn_error e = {0};
    struct local *l = NULL;
    (void)state;
    qn_engine_params_init(&p);
    qn_model_params_init(&file);
    assert_int_equal(local_open(&l, "/nonexistent/model.gguf", &no_draft, &file, &p, NULL, &e), QN_ENOINPUT);
    assert_non_null(strstr(e.msg, "/nonexistent/model.gguf"));
    assert_null(l);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(it_answers_as_a_daemon_does),
        cmocka_unit_test(closing_ends_what_runs),
        cmocka_unit_test(a_file_that_is_none_is_refused),
    };
    if (argc != 2) return 2;
    model = argv[1];
    return cmocka_run_group_tests(tests, NULL, NULL);
}
