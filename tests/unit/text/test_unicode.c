/* SPDX-License-Identifier: MIT
 *
 * test_unicode.c: UTF-8 good and bad, the byte alphabet, and NFC.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdlib.h>
#include <string.h>

#include "base/utf8.h"
#include "text/token/unicode.h"
#include "../tiny_vocab.h"

static void every_code_point_comes_back(void **state)
{
    (void)state;
    for (uint32_t c = 0; c <= 0x10FFFF; c++) {
        uint8_t u[4];
        uint32_t back;
        bool cut;
        if (c >= 0xD800 && c <= 0xDFFF) continue;
        unsigned len = utf8_put(u, c);
        assert_int_equal(unicode_next(u, len, &back, &cut), len);
        assert_int_equal(back, c);
        for (unsigned k = 1; k < len; k++) { /* every shorter part is a beginning */
            assert_int_equal(unicode_next(u, k, &back, &cut), k);
            assert_true(back == UNICODE_BAD && cut);
        }
    }
}

static void bad_bytes_are_taken_in_maximal_parts(void **state)
{
    (void)state;
    static const struct {
        const char *s;
        unsigned first; /* bytes of the first part */
    } bad[] = {
        {"\x80", 1},
        {"\xC0\xAF", 1},
        {"\xC1\xBF", 1},
        {"\xE0\x80\xAF", 1},
        {"\xE0\xA0x", 2},
        {"\xED\xA0\x80", 1},
        {"\xF0\x8F\xBF\xBF", 1},
        {"\xF0\x90\x80x", 3},
        {"\xF4\x90\x80\x80", 1},
        {"\xF5\x80", 1},
        {"\xFF", 1},
        {"\xC3(", 1},
        {"\xF1\x80(", 2},
    };
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        uint32_t cp;
        bool cut;
        size_t n = strlen(bad[i].s);
        assert_int_equal(unicode_next((const uint8_t *)bad[i].s, n, &cp, &cut), bad[i].first);
        assert_true(cp == UNICODE_BAD && !cut);
        assert_false(unicode_is_utf8((const uint8_t *)bad[i].s, n));
    }
    static const char good[] = "plain ascii text, \xC3\xA9, \xE4\xB8\xAD and \xF0\x9F\x98\x80 at every offset";
    for (size_t i = 0; i < 18; i++) assert_true(unicode_is_utf8((const uint8_t *)good + i, sizeof good - 1 - i));
    assert_true(unicode_is_utf8((const uint8_t *)"", 0));
}

static void the_byte_alphabet_is_a_bijection(void **state)
{
    (void)state;
    int n = 0;
    for (int b = 0; b < 256; b++) assert_int_equal(unicode_to_byte(unicode_from_byte((uint8_t)b)), b);
    for (uint32_t c = 0; c < 0x20000; c++) n += unicode_to_byte(c) >= 0;
    assert_int_equal(n, 256);
    assert_int_equal(unicode_from_byte(' '), 0x120);
    assert_int_equal(unicode_from_byte('\n'), 0x10A);
    assert_int_equal(unicode_from_byte(0x7F), 0x121);
    assert_int_equal(unicode_from_byte(0xAD), 0x143);
    assert_int_equal(unicode_from_byte('a'), 'a');
}

static void spaces_are_marked_and_unmarked(void **state)
{
    (void)state;
    struct buf a = {0}, b = {0};
    assert_int_equal(unicode_mark_spaces((const uint8_t *)" a  b ", 6, &a, NULL), 0);
    assert_string_equal((char *)a.data, "▁a▁▁b▁");
    assert_int_equal(unicode_unmark_spaces(a.data, a.len, &b, NULL), 0);
    assert_string_equal((char *)b.data, " a  b ");
    buf_deinit(&a);
    buf_deinit(&b);
}

static void check_nfc(const char *text, const char *want)
{
    struct buf out = {0};
    bool same;
    assert_int_equal(unicode_nfc((const uint8_t *)text, strlen(text), &out, &same, NULL), 0);
    if (same)
        assert_string_equal(text, want);
    else
        assert_string_equal((char *)out.data, want);
    buf_deinit(&out);
}

static void nfc_composes_and_orders(void **state)
{
    (void)state;
    check_nfc("", "");
    check_nfc("plain", "plain");
    check_nfc("e\xCC\x81", "\xC3\xA9"); /* e + acute */
    check_nfc("\xC3\xA9", "\xC3\xA9");
    check_nfc("a\xCC\x81\xCC\xA3", "\xE1\xBA\xA1\xCC\x81");            /* the dot below goes first */
    check_nfc("\xE2\x84\xAB", "\xC3\x85");                             /* ANGSTROM SIGN */
    check_nfc("\xE1\x84\x92\xE1\x85\xA1\xE1\x86\xAB", "\xED\x95\x9C"); /* jamo */
    check_nfc("\xED\x95\x98\xE1\x86\xAB", "\xED\x95\x9C");             /* syllable + final jamo */
    check_nfc("\xE0\xA4\x95\xE0\xA4\xBC", "\xE0\xA4\x95\xE0\xA4\xBC"); /* excluded from composition */
    check_nfc("\xE0\xA5\x98", "\xE0\xA4\x95\xE0\xA4\xBC");
    check_nfc("\xE0\xA7\x87\xE0\xA6\xBE", "\xE0\xA7\x8B");               /* a second part of class 0 */
    check_nfc("e\xCC\x81\xFFo\xCC\x88\xCC", "\xC3\xA9\xFF\xC3\xB6\xCC"); /* bad bytes stay and separate */
    check_nfc("e\xFF\xCC\x81", "e\xFF\xCC\x81");
    check_nfc("\xEF\xAC\x80", "\xEF\xAC\x80"); /* compatibility forms stay */
}

static void nfc_of_a_megabyte_of_marks_is_quick(void **state)
{
    (void)state;
    size_t n = 1 << 20;
    uint8_t *p = malloc(n);
    struct buf out = {0};
    bool same;
    for (size_t i = 0; i < n; i += 4) memcpy(p + i, "\xCC\x81\xCC\x96", 4); /* above, below: classes 230, 220 */
    double start = cpu_seconds();
    assert_int_equal(unicode_nfc(p, n, &out, &same, NULL), 0);
    assert_true(cpu_seconds() - start < 1.0 * TIME_SCALE);
    assert_int_equal(out.len, n);
    assert_memory_equal(out.data, "\xCC\x96\xCC\x96", 4);
    assert_memory_equal(out.data + n - 4, "\xCC\x81\xCC\x81", 4);
    buf_deinit(&out);
    free(p);
}

static void white_space(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        size_t before, behind;
    } cases[] = {
        {"", 0, 0},
        {"a", 0, 0},
        {" \ta\n", 2, 1},
        {" \xC2\xA0\xE3\x80\x80", 6, 6},
        {"\xE2\x80\x8A_\xE2\x80\xA8", 3, 3},
        {"\xE2\x80\x8B", 0, 0},  /* of no width, and not White_Space */
        {"\xE1\xA0\x8E", 0, 0},  /* not any more */
        {"\xC3\xA0", 0, 0},      /* ends like U+00A0 */
        {" \x80", 1, 0},         /* a byte that is no character */
        {"\x80 \xE3\x80", 0, 0}, /* half a space */
        {"\x80\x80\x80\x80\x80 ", 0, 1},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        const uint8_t *p = (const uint8_t *)cases[i].text;
        assert_int_equal(unicode_leading_spaces(p, strlen(cases[i].text)), cases[i].before);
        assert_int_equal(unicode_trailing_spaces(p, strlen(cases[i].text)), cases[i].behind);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(white_space),
        cmocka_unit_test(every_code_point_comes_back),
        cmocka_unit_test(bad_bytes_are_taken_in_maximal_parts),
        cmocka_unit_test(the_byte_alphabet_is_a_bijection),
        cmocka_unit_test(spaces_are_marked_and_unmarked),
        cmocka_unit_test(nfc_composes_and_orders),
        cmocka_unit_test(nfc_of_a_megabyte_of_marks_is_quick),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
