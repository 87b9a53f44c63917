/* SPDX-License-Identifier: MIT
 *
 * test_cli.c: the parts all commands share: options, sizes, exit codes, reading everything.
 *
 * Messages go to stderr, so each case runs with stderr in a temporary file and looks at what is in it.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <errno.h>
#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/mem.h"
#include "cli/cli.h"

/* ---- what is printed ---- */

struct capture { int fd, saved; FILE *file; };
static char printed[8192];

static struct capture capture_begin(int fd)
{
    struct capture c = {fd, dup(fd), tmpfile()};
    assert_true(c.file && c.saved >= 0);
    fflush(NULL);
    dup2(fileno(c.file), fd);
    return c;
}

static void capture_end(struct capture c)
{
    fflush(NULL);
    dup2(c.saved, c.fd);
    close(c.saved);
    rewind(c.file);
    printed[fread(printed, 1, sizeof printed - 1, c.file)] = 0;
    fclose(c.file);
}

/* ---- options ---- */

struct values {
    bool flag, other;
    int number;
    uint64_t u64, size;
    float real;
    const char *text;
    struct cli_strings list;
    const char *slots[20];
    int first;
    bool help;
};

/* Parses the words (a NULL ends them) and leaves stderr in printed. */
static int parse(struct values *v, const char *const *words)
{
    static char *argv[20]; /* what the operands point into */
    int argc = 0;
    *v = (struct values){.number = -7, .first = -1};
    v->list.v = v->slots;
    const struct opt opts[] = {
        {"flag", 'f', OPT_FLAG, &v->flag, NULL, "a flag", 0, 0},
        {"other", 'o', OPT_FLAG, &v->other, NULL, "another", 0, 0},
        {"number", 'n', OPT_INT, &v->number, "N", "a number", -5, 100},
        {"u64", 0, OPT_U64, &v->u64, "N", "a large one", 0, 0},
        {"size", 0, OPT_SIZE, &v->size, "BYTES", "bytes", 0, 0},
        {"real", 0, OPT_FLOAT, &v->real, "X", "a real one", 0, 0},
        {"text", 't', OPT_STRING, &v->text, "TEXT", "text", 0, 0},
        {"list", 0, OPT_STRINGS, &v->list, "TEXT", "texts", 0, 0},
        {0},
    };
    argv[argc++] = (char *)"command";
    for (; *words; words++) argv[argc++] = (char *)*words;
    argv[argc] = NULL;
    struct capture c = capture_begin(STDERR_FILENO);
    int rc = cli_parse(argc, argv, "command [OPTIONS] FILE", opts, &v->first, &v->help);
    capture_end(c);
    if (!rc && !v->help)
        for (int i = v->first; i < argc; i++) v->slots[19 - (argc - 1 - i)] = argv[i]; /* the operands, at the end */
    return rc;
}

#define PARSE(v, ...) parse(v, (const char *const[]){__VA_ARGS__, NULL})

static void refused(const char *text, const char *const *words)
{
    struct values v;
    int rc = parse(&v, words);
    if (rc != 64 || !strstr(printed, text) || strncmp(printed, "quern: ", 7) || strchr(printed, '\n')[1])
        fail_msg("got %d '%s', expected 64 '%s'", rc, printed, text);
}
#define REFUSED(text, ...) refused(text, (const char *const[]){__VA_ARGS__, NULL})

static void options_and_operands_in_any_order(void **state)
{
    (void)state;
    struct values v;
    assert_int_equal(PARSE(&v, "a.gguf", "-fn", "5", "--text=x y", "prompt", "--list", "1", "--list", "2"), 0);
    assert_true(v.flag && !v.other && !v.help);
    assert_int_equal(v.number, 5);
    assert_string_equal(v.text, "x y");
    assert_int_equal(v.list.n, 2);
    assert_string_equal(v.list.v[1], "2");
    assert_string_equal(v.slots[18], "a.gguf");
    assert_string_equal(v.slots[19], "prompt");
    assert_int_equal(PARSE(&v, "-n-5", "--", "--flag"), 0);
    assert_int_equal(v.number, -5);
    assert_false(v.flag);
    assert_string_equal(v.slots[19], "--flag");
    assert_int_equal(PARSE(&v, "--num", "7", "-t", ""), 0); /* unambiguous beginnings */
    assert_int_equal(v.number, 7);
    assert_string_equal(v.text, "");
}

static void unknown_options_are_named(void **state)
{
    (void)state;
    struct values v;
    REFUSED("unknown option '--nonsense' (see quern command --help)", "--nonsense");
    REFUSED("unknown option '--nonsense=3'", "a.gguf", "--nonsense=3");
    REFUSED("unknown option '-z'", "-z");
    REFUSED("unknown option '-z'", "-fzo");
    REFUSED("option '--number' needs a value", "--number");
    REFUSED("option '-n' needs a value", "-n");
    REFUSED("no value goes with option '--flag=1'", "--flag=1");
    /* a refusal in the midst of a word leaves nothing behind */
    assert_int_equal(PARSE(&v, "-o"), 0);
    assert_true(v.other && !v.flag);
}

static void numbers(void **state)
{
    (void)state;
    struct values v;
    static const char *const bad[] = {"", "x", "1x", "1.5", "101", "-6", "99999999999999999999", "0x10"};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        char want[80];
        snprintf(want, sizeof want, "--number: '%s' is not a whole number in -5..100", bad[i]);
        REFUSED(want, "--number", bad[i]);
    }
    assert_int_equal(PARSE(&v, "--number", "100"), 0);
    assert_int_equal(v.number, 100);
    assert_int_equal(PARSE(&v, "--u64", "18446744073709551615"), 0);
    assert_true(v.u64 == UINT64_MAX);
    REFUSED("--u64: '18446744073709551616'", "--u64", "18446744073709551616");
    REFUSED("--u64: '-1'", "--u64", "-1");
    REFUSED("--u64: ' 1'", "--u64", " 1");
    assert_int_equal(PARSE(&v, "--real", "-1.5e3"), 0);
    assert_true(v.real == -1500.0f);
    static const char *const unreal[] = {"", "x", "1,5", "nan", "inf", "1e99"};
    for (size_t i = 0; i < sizeof unreal / sizeof *unreal; i++) REFUSED("is not a number", "--real", unreal[i]);
}

static void sizes(void **state)
{
    (void)state;
    struct values v;
    static const struct { const char *text; uint64_t bytes; } good[] = {
        {"010", 10}, {"0x10", 16}, {"4096", 4096}, {"1k", 1 << 10}, {"500M", 500u << 20}, {"6G", 6ull << 30}, {"6GB", 6ull << 30},
        {"5.5G", 11ull << 29}, {"0.25k", 256}, {"1.5GiB", 3ull << 29}, {"0.1G", 107374182}, {"1.0000000000000000000000001M", 1 << 20},
        {"1.99999999999999999999k", 2047}, {"16777215.5T", (16777215ull << 40) + (1ull << 39)}, {"6gib", 6ull << 30}, {"2T", 2ull << 40}, {"18446744073709551615", UINT64_MAX}, {"16777215T", 16777215ull << 40}};
    static const char *const bad[] = {"", "0", "0G", "G", "x", "-1", "1.5", "1.G", ".5G", "1.5.5G", "1,5G", "-.5G", "0x1.5G", "0.0G", "0.0001k", "1. 5G", "16777216.5T", "6 G", "6X", "6GG", "6GiBB", "6iB", "6B", "16777216T",
                                      "18446744073709551616", "99999999999999999999G"};
    for (size_t i = 0; i < sizeof good / sizeof *good; i++) {
        assert_int_equal(PARSE(&v, "--size", good[i].text), 0);
        assert_true(v.size == good[i].bytes);
    }
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) REFUSED("is not a size such as 6G, 5.5G or 500M", "--size", bad[i]);
}

static void help_lists_every_option(void **state)
{
    (void)state;
    static const char *const lines[] = {"usage: quern command [OPTIONS] FILE", "  -f, --flag ", "  -n, --number N ",
                                        "      --size BYTES ", "      --list TEXT ", "  -h, --help "};
    static const char *const forms[] = {"--help", "-h", "-fh"};
    for (int f = 0; f < 3; f++) {
        struct values v;
        struct capture c = capture_begin(STDOUT_FILENO);
        static char out[sizeof printed];
        int rc = PARSE(&v, forms[f], "ignored");
        capture_end(c);
        memcpy(out, printed, sizeof out);
        assert_int_equal(rc, 0);
        assert_true(v.help);
        for (size_t i = 0; i < sizeof lines / sizeof *lines; i++)
            if (!strstr(out, lines[i])) fail_msg("no '%s' in:\n%s", lines[i], out);
    }
}

static void kv_names(void **state)
{
    (void)state;
    enum qn_kv kv = QN_KV_F16;
    assert_int_equal(cli_parse_kv("f32", &kv), 0);
    assert_int_equal(kv, QN_KV_F32);
    assert_int_equal(cli_parse_kv("q8_0", &kv), 0);
    assert_int_equal(kv, QN_KV_Q8_0);
    struct capture c = capture_begin(STDERR_FILENO);
    int rc = cli_parse_kv("f64", &kv);
    capture_end(c);
    assert_int_equal(rc, 64);
    assert_string_equal(printed, "quern: --kv: 'f64' is not f32, f16 or q8_0\n");
    assert_int_equal(kv, QN_KV_Q8_0);
}

/* ---- exit codes and bytes ---- */

static void every_error_has_its_exit_code(void **state)
{
    (void)state;
    static const struct { int code, status; } map[] = {
        {QN_EUSAGE, 64}, {QN_EDATA, 65}, {QN_EUNSUP, 65}, {QN_ENOINPUT, 66}, {QN_ENOMEM, 75}, {QN_EIO, 74},
        {QN_ECANCEL, 70}, {QN_ENUMERIC, 65}, {QN_EFULL, 65}};
    for (size_t i = 0; i < sizeof map / sizeof *map; i++) {
        struct qn_error e = {map[i].code, "thing 7 is too large"};
        struct capture c = capture_begin(STDERR_FILENO);
        int status = cli_fail(&e);
        capture_end(c);
        assert_int_equal(status, map[i].status);
        assert_string_equal(printed, "quern: thing 7 is too large\n");
    }
}

static void *feed(void *arg)
{
    int fd = *(int *)arg;
    for (int i = 0; i < 300; i++) {
        char piece[1000];
        memset(piece, i, sizeof piece);
        if (write(fd, piece, sizeof piece) != sizeof piece) break;
    }
    close(fd);
    return NULL;
}

static void everything_is_read(void **state)
{
    (void)state;
    int ends[2];
    char *data = NULL;
    size_t n = 0;
    pthread_t t;
    assert_int_equal(pipe(ends), 0);
    assert_int_equal(pthread_create(&t, NULL, feed, &ends[1]), 0);
    assert_int_equal(cli_read_all(ends[0], "standard input", CLI_MAX_INPUT, &data, &n), 0);
    pthread_join(t, NULL);
    close(ends[0]);
    assert_int_equal(n, 300000);
    for (size_t i = 0; i < n; i++) assert_int_equal((unsigned char)data[i], i / 1000 % 256);
    assert_int_equal(data[n], 0);
    mem_free(data);
    struct capture c = capture_begin(STDERR_FILENO);
    int rc = cli_read_all(-1, "standard input", CLI_MAX_INPUT, &data, &n);
    capture_end(c);
    assert_int_equal(rc, 74);
    assert_non_null(strstr(printed, "cannot read standard input"));
}

static void failed_allocations_are_reported(void **state)
{
    (void)state;
    for (uint64_t fail = 1; fail <= 3; fail++) { /* the buffer, and its first two doublings */
        int ends[2];
        char *data = NULL;
        size_t n = 0;
        pthread_t t;
        assert_int_equal(pipe(ends), 0);
        assert_int_equal(pthread_create(&t, NULL, feed, &ends[1]), 0);
        struct capture c = capture_begin(STDERR_FILENO);
        mem_fault_set(fail);
        int rc = cli_read_all(ends[0], "standard input", CLI_MAX_INPUT, &data, &n);
        capture_end(c);
        assert_true(mem_fault_hit());
        mem_fault_set(0);
        while (read(ends[0], printed + 4000, 4000) > 0) { /* lets the writer end */
        }
        pthread_join(t, NULL);
        close(ends[0]);
        assert_int_equal(rc, 75);
        assert_null(data);
    }
}

static void a_reader_that_left_is_no_error(void **state)
{
    (void)state;
    errno = EPIPE;
    assert_int_equal(cli_write_status(), 0);
    struct capture c = capture_begin(STDERR_FILENO);
    errno = ENOSPC;
    int rc = cli_write_status();
    capture_end(c);
    assert_int_equal(rc, 74);
    assert_non_null(strstr(printed, "No space left"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(options_and_operands_in_any_order),
        cmocka_unit_test(unknown_options_are_named),
        cmocka_unit_test(numbers),
        cmocka_unit_test(sizes),
        cmocka_unit_test(help_lists_every_option),
        cmocka_unit_test(kv_names),
        cmocka_unit_test(every_error_has_its_exit_code),
        cmocka_unit_test(everything_is_read),
        cmocka_unit_test(failed_allocations_are_reported),
        cmocka_unit_test(a_reader_that_left_is_no_error),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
