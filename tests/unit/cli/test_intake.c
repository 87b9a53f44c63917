/* SPDX-License-Identifier: MIT
 *
 * test_intake.c: bytes of any kind become UTF-8, or are refused by name.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/mem.h"
#include "cli/ask/intake.h"

static char text[1 << 20];
static size_t n_text;
static uint64_t n_odd, first_odd;
static struct qn_error error;

/* Reads `n` bytes `cap` at a time into text. */
static int take_in(const void *bytes, size_t n, const char *encoding, size_t cap)
{
    FILE *f = tmpfile();
    struct intake *in = NULL;
    size_t got = 1;
    error = (struct qn_error){0};
    n_text = 0;
    assert_int_equal(fwrite(bytes, 1, n, f), n);
    rewind(f);
    int rc = intake_open(&in, fileno(f), "it", encoding, false, &error);
    while (!rc && got && !(rc = intake_read(in, text + n_text, cap, &got, &error))) {
        assert_true(got <= cap);
        n_text += got;
    }
    text[n_text] = 0;
    if (in) n_odd = intake_n_odd(in, &first_odd);
    intake_close(in);
    fclose(f);
    return rc;
}

#define TAKE(s) take_in(s, sizeof s - 1, NULL, INTAKE_MIN)

static void test_texts_come_out_as_they_are(void **state)
{
    (void)state;
    assert_int_equal(TAKE(""), 0);
    assert_int_equal(n_text, 0);
    assert_int_equal(TAKE("Grüße 😀\r\n\tend\x1b[0m"), 0);
    assert_string_equal(text, "Grüße 😀\r\n\tend\x1b[0m");
    assert_int_equal(n_odd, 0);
    assert_int_equal(TAKE("\xef\xbb\xbfmarked"), 0);
    assert_string_equal(text, "marked");
}

static void test_other_bytes_are_windows_1252(void **state)
{
    (void)state;
    assert_int_equal(TAKE("Gr\xfc\xdf"
                          "e \x80 \x81 ü\xe4"),
                     0);
    assert_string_equal(text, "Grüße € \xc2\x81 üä");
    assert_int_equal(n_odd, 5);
    assert_int_equal(first_odd, 2);
    assert_int_equal(TAKE("cut \xe2\x82"), 0); /* a character that the end cuts */
    assert_string_equal(text, "cut â‚");
    assert_int_equal(n_odd, 2);
}

static void test_marks_tell_the_encoding(void **state)
{
    (void)state;
    assert_int_equal(TAKE("\xff\xfeG\0\xfc\0\x3d\xd8\0\xde"), 0);
    assert_string_equal(text, "Gü😀");
    assert_int_equal(TAKE("\xfe\xff\0G\0\xfc"), 0);
    assert_string_equal(text, "Gü");
    assert_int_equal(TAKE("\xff\xfe\0\0G\0\0\0"), 0);
    assert_string_equal(text, "G");
    assert_int_equal(TAKE("\xff\xfeG"), QN_EDATA);
    assert_string_equal(error.msg, "it ends within a character of UTF-16LE");
}

static void test_named_encodings_are_strict(void **state)
{
    (void)state;
    assert_int_equal(take_in("\xc7\xd2", 2, "KOI8-R", 64), 0);
    assert_string_equal(text, "гр");
    assert_int_equal(take_in("abc\xff", 4, "UTF-8", 64), QN_EDATA);
    assert_string_equal(error.msg, "it: the byte at offset 3 is not valid UTF-8");
    assert_int_equal(take_in("a", 1, "no-such", 64), QN_EUSAGE);
    assert_int_equal(take_in("a\0", 2, "latin1", 64), QN_EDATA);
}

static void test_binary_is_refused_by_name(void **state)
{
    static const struct {
        const char *bytes;
        size_t n;
        const char *what;
    } cases[] = {
        {"\x7f"
         "ELF\2\1\1",
         7, "it looks like an ELF file (7 bytes looked at)"},
        {"\x1f\x8b\x08", 3, "it looks like gzip data (3 bytes looked at)"},
        {"\x89PNG\r\n\x1a\n", 8, "it looks like a PNG image (8 bytes looked at)"},
        {"\xff\xd8\xff\xe0", 4, "it looks like a JPEG image (4 bytes looked at)"},
        {"%PDF-1.7\n", 9, "it looks like a PDF document (9 bytes looked at)"},
        {"PK\3\4", 4, "it looks like a zip archive (or an office document) (4 bytes looked at)"},
        {"GGUF\3\0\0\0", 8, "it looks like a GGUF model (8 bytes looked at)"},
        {"a\0b", 3,
         "it looks like binary data: it has NUL bytes (3 bytes looked at; --encoding reads texts that have)"},
        {"\1\2\3\4\5 text", 10, "it looks like binary data: 5 of its first 10 bytes are control characters"},
    };
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        assert_int_equal(take_in(cases[i].bytes, cases[i].n, NULL, 64), QN_EDATA);
        assert_string_equal(error.msg, cases[i].what);
    }
    assert_int_equal(TAKE("few \1\2\3 are fine"), 0);
}

static void test_a_nul_far_inside_is_found(void **state)
{
    (void)state;
    static char many[300000];
    memset(many, 'a', sizeof many);
    assert_int_equal(take_in(many, sizeof many, NULL, 65536), 0);
    assert_int_equal(n_text, sizeof many);
    many[250000] = 0;
    assert_int_equal(take_in(many, sizeof many, NULL, 65536), QN_EDATA);
    assert_string_equal(error.msg, "it: a NUL byte at offset 250000: this is not text");
}

/* However it is read, and wherever characters fall between blocks. */
static void test_blocks_do_not_matter(void **state)
{
    (void)state;
    char *bytes = malloc(200000), *whole;
    size_t n = 0;
    for (int i = 0; n < 199000; i++) n += (size_t)sprintf(bytes + n, "%d ü€😀%c", i * 7919, i % 5 ? '\n' : 0xfc);
    assert_int_equal(take_in(bytes, n, NULL, 500000), 0);
    whole = strdup(text);
    uint64_t odd = n_odd;
    assert_true(odd > 0);
    for (size_t cap = INTAKE_MIN; cap < 100000; cap = cap * 3 + 1) {
        assert_int_equal(take_in(bytes, n, NULL, cap), 0);
        assert_string_equal(text, whole);
        assert_int_equal(n_odd, odd);
    }
    for (n = 0; n + 3 <= 200000; n += 3) memcpy(bytes + n, "€", 3); /* no power of two is a boundary */
    assert_int_equal(take_in(bytes, n, NULL, 500000), 0);
    assert_int_equal(n_text, n);
    assert_int_equal(n_odd, 0);
    free(whole);
    free(bytes);
}

#define MANY "€€€€€€€€€€€€€€€€€€€€ 😀😀😀😀😀😀😀😀😀😀\n"

static void test_pipes_give_a_byte_at_a_time(void **state)
{
    (void)state;
    int ends[2];
    struct intake *in;
    size_t n, all = 0;
    assert_int_equal(pipe(ends), 0);
    if (fork() == 0) {
        for (const char *p = MANY; *p; p++)
            if (write(ends[1], p, 1) != 1) _exit(1);
        _exit(0);
    }
    close(ends[1]);
    assert_int_equal(intake_open(&in, ends[0], "it", NULL, false, &error), 0);
    do {
        assert_int_equal(intake_read(in, text + all, sizeof text - all, &n, &error), 0);
        all += n;
    } while (n);
    text[all] = 0;
    assert_string_equal(text, MANY);
    assert_int_equal(intake_n_odd(in, &first_odd), 0);
    intake_close(in);
    close(ends[0]);
}

static void test_words_of_the_command_line(void **state)
{
    (void)state;
    struct buf b = {0};
    assert_int_equal(intake_word(&b, "ü\xfc", NULL), 0);
    assert_string_equal((char *)b.data, "üü");
    buf_deinit(&b);
}

static void test_what_cannot_be_read(void **state)
{
    (void)state;
    struct intake *in = NULL;
    assert_int_equal(intake_open(&in, -1, "it", NULL, false, &error), QN_EIO);
    assert_string_equal(error.msg, "cannot read it: Bad file descriptor");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_texts_come_out_as_they_are), cmocka_unit_test(test_other_bytes_are_windows_1252),
        cmocka_unit_test(test_marks_tell_the_encoding),    cmocka_unit_test(test_named_encodings_are_strict),
        cmocka_unit_test(test_binary_is_refused_by_name),  cmocka_unit_test(test_a_nul_far_inside_is_found),
        cmocka_unit_test(test_blocks_do_not_matter),       cmocka_unit_test(test_pipes_give_a_byte_at_a_time),
        cmocka_unit_test(test_words_of_the_command_line),  cmocka_unit_test(test_what_cannot_be_read),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
