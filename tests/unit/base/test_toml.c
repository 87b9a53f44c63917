/* SPDX-License-Identifier: MIT
 *
 * test_toml.c: what a document says, in which order and line; each refusal with its words; memory that is refused.
 * tests/golden/peer-toml has the language itself, beside another implementation.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/buf.h"
#include "base/mem.h"
#include "base/toml/toml.h"
#include "base/utf8.h"

static struct toml parsed(const char *text)
{
    struct toml t;
    struct qn_error e = {0};
    if (toml_parse(&t, "c.toml", text, strlen(text), &e)) fail_msg("'%s': %s", text, e.msg);
    return t;
}

static void refused_bytes(const char *text, size_t n, int code, const char *message)
{
    struct toml t;
    struct qn_error e = {0};
    memset(&t, 0x55, sizeof t);
    struct toml before = t;
    int rc = toml_parse(&t, "c.toml", text, n, &e);
    if (rc != code || strcmp(e.msg, message)) fail_msg("'%.60s': %d, '%s'; not '%s'", text, rc, e.msg, message);
    assert_memory_equal(&t, &before, sizeof t);
}

static void bad(const char *text, const char *message) { refused_bytes(text, strlen(text), QN_EDATA, message); }
static void unsupported(const char *text, const char *message)
{
    refused_bytes(text, strlen(text), QN_EUNSUP, message);
}

static const struct toml_value *value(const struct toml *t, int table, const char *key)
{
    const struct toml_entry *x = toml_find(t, table, key);
    if (!x) fail_msg("there is no %s", key);
    return &x->value;
}

static void order_lines_and_values(void **state)
{
    (void)state;
    struct toml t = parsed("# what is used when nothing is said\n"
                           "model = \"small.gguf\"\n"
                           "\n"
                           "[persona.reviewer]\r\n"
                           "system = '''\r\nYou review.\r\nBe kind.'''\n"
                           "temperature = 0.7 # low\n"
                           "[serve]\n"
                           "ctx = 4_096\n"
                           "log = true\n"
                           "listen = [ 'a:1', # here\n  \"b:2\",\n]\n"
                           "[persona]\n"
                           "\"the \\u00fcber\" = 0xff");
    static const struct {
        const char *key;
        int line, table;
        enum toml_type type;
    } want[] = {
        {"model", 2, 0, TOML_STRING},
        {"system", 5, 2, TOML_STRING},
        {"temperature", 8, 2, TOML_FLOAT},
        {"ctx", 10, 3, TOML_INT},
        {"log", 11, 3, TOML_BOOL},
        {"listen", 12, 3, TOML_ARRAY},
        {"the \xC3\xBC"
         "ber",
         16, 1, TOML_INT},
    };
    assert_int_equal(t.n_entries, sizeof want / sizeof *want);
    for (int i = 0; i < t.n_entries; i++) {
        assert_string_equal(t.entry[i].key, want[i].key);
        assert_int_equal(t.entry[i].line, want[i].line);
        assert_int_equal(t.entry[i].table, want[i].table);
        assert_int_equal(t.entry[i].value.type, want[i].type);
    }
    assert_int_equal(t.n_tables, 4);
    assert_true(t.table[1].has_header && t.table[1].line == 15 && t.table[1].parent == 0);
    assert_true(t.table[2].line == 4 && t.table[2].parent == 1);

    int persona = toml_child(&t, 0, "persona"), reviewer = toml_child(&t, persona, "reviewer");
    assert_int_equal(persona, 1);
    assert_int_equal(reviewer, 2);
    assert_int_equal(toml_child(&t, 0, "reviewer"), -1);
    assert_int_equal(toml_child(&t, -1, "serve"), -1);
    assert_null(toml_find(&t, -1, "model"));
    assert_null(toml_find(&t, persona, "model"));
    assert_string_equal(value(&t, 0, "model")->string, "small.gguf");
    assert_string_equal(value(&t, reviewer, "system")->string, "You review.\nBe kind.");
    assert_true(value(&t, reviewer, "temperature")->real == 0.7);
    assert_int_equal(value(&t, 3, "ctx")->integer, 4096);
    assert_true(value(&t, 3, "log")->truth);
    assert_int_equal(value(&t, 3, "listen")->array.n, 2);
    assert_string_equal(value(&t, 3, "listen")->array.v[1].string, "b:2");
    assert_int_equal(value(&t, persona,
                           "the \xC3\xBC"
                           "ber")
                         ->integer,
                     255);
    toml_deinit(&t);
    assert_int_equal(toml_child(&t, 0, "serve"), -1);
    assert_null(toml_find(&t, 0, "model"));
}

static void whole_names(void **state)
{
    (void)state;
    char s[40];
    struct toml t = parsed("[persona.\"a b\".\"\"]");
    assert_int_equal(toml_table_name(&t, 3, s, sizeof s), 16);
    assert_string_equal(s, "persona.\"a b\".\"\"");
    assert_int_equal(toml_table_name(&t, 0, s, sizeof s), 0);
    assert_string_equal(s, "");
    for (size_t cap = 1; cap < 17; cap++) {
        assert_int_equal(toml_table_name(&t, 3, s, cap), cap - 1);
        assert_int_equal(strlen(s), cap - 1);
    }
    toml_deinit(&t);
    assert_true(toml_is_bare("a-1_Z"));
    assert_false(toml_is_bare(""));
    assert_false(toml_is_bare("a b"));
    assert_string_equal(toml_type_name(TOML_BOOL), "true or false");
}

static void nothing_at_all(void **state)
{
    (void)state;
    static const char *const empty[] = {"", "\n", "# only this", " \t", "\r\n\r\n#x\r\n"};
    for (size_t i = 0; i < sizeof empty / sizeof *empty; i++) {
        struct toml t = parsed(empty[i]);
        assert_int_equal(t.n_entries, 0);
        assert_int_equal(t.n_tables, 1);
        toml_deinit(&t);
    }
}

static void what_is_not_supported_is_named(void **state)
{
    (void)state;
    unsupported("\na = 1979-05-27", "c.toml:2: key 'a': dates and times are not supported; put '1979-05-27' in quotes");
    unsupported("a = 07:32:00", "c.toml:1: key 'a': dates and times are not supported; put '07:32:00' in quotes");
    unsupported("a = { b = 1 }", "c.toml:1: key 'a': inline tables { } are not supported; a [table] says the same");
    unsupported("a.b = 1", "c.toml:1: key 'a': dotted keys are not supported; a [table] says the same");
    unsupported("\n\n[[a]]", "c.toml:3: arrays of tables, [[...]], are not supported");
    unsupported("a = \"\\u0000\"", "c.toml:1: key 'a': a NUL in a string is not supported");
    unsupported("a = 9223372036854775808", "c.toml:1: key 'a': 9223372036854775808 does not fit 64 bits");
    unsupported("a = 0x8000000000000000", "c.toml:1: key 'a': 0x8000000000000000 does not fit 64 bits");
    unsupported("a = 1e400", "c.toml:1: key 'a': 1e400 does not fit 64 bits");
}

static void what_is_wrong_is_named(void **state)
{
    (void)state;
    bad("a = ", "c.toml:1: key 'a': a value is missing before the line's end");
    bad("a = # 1", "c.toml:1: key 'a': a value is missing before '#'");
    bad("a 1", "c.toml:1: key 'a': '=' is missing before '1'");
    bad("= 1", "c.toml:1: a name is missing before '='");
    bad("a = yes", "c.toml:1: key 'a': 'yes' is not a value; text stands in quotes");
    bad("a = 1.2.3", "c.toml:1: key 'a': '1.2.3' is not a number");
    bad("a = 012", "c.toml:1: key 'a': '012' is not a number");
    bad("a = 1 b = 2", "c.toml:1: key 'a': 'b' follows on the same line");
    bad("[a] b = 2", "c.toml:1: 'b' follows on the same line");
    bad("a = 1\n\na = 2", "c.toml:3: key 'a': stands in line 1 already");
    bad("[a]\n[b]\n[ a ]", "c.toml:3: table [a] stands in line 1 already");
    bad("a = 1\n[a.b]", "c.toml:2: 'a' cannot be a table, for it is a key of line 1");
    bad("[a.b]\n[a]\nb = 1", "c.toml:3: key 'b': is the name of a table, in line 1");
    bad("[a", "c.toml:1: a table's name ends with ']', but here is the line's end");
    bad("[a.]", "c.toml:1: a name is missing before ']'");
    bad("[]", "c.toml:1: a name is missing before ']'");
    bad("a = [1\n2]", "c.toml:2: key 'a': an array goes on with ',' or ends with ']', but here is '2'");
    bad("a = [1,", "c.toml:1: key 'a': a value is missing before the line's end");
    bad("a = 'x\ny'", "c.toml:1: key 'a': the string has no ' that closes it");
    bad("\na = \"\"\"x\n\n", "c.toml:2: key 'a': the string has no \"\"\" that closes it");
    bad("a = \"\\q\"", "c.toml:1: key 'a': no escape of TOML begins so: \\q");
    bad("a = \"\"\"\\ x\"\"\"", "c.toml:1: key 'a': a backslash before a space");
    bad("a = \"\\ud800\"", "c.toml:1: key 'a': \\ud800 is no character of Unicode");
    bad("a = \"\\U00110000\"", "c.toml:1: key 'a': \\U00110000 is no character of Unicode");
    bad("a = \"\\u12g4\"", "c.toml:1: key 'a': \\u is followed by 4 hexadecimal digits");
    bad("'''a''' = 1", "c.toml:1: a name is in single quotes, not three");
    bad("\n# \x01", "c.toml:2: control character 0x01");
    bad("\n'\x7f' = 1", "c.toml:2: control character 0x7F");
    bad("a = 1\rb = 2", "c.toml:1: a carriage return without a line feed");
    bad("a = 1\n\r", "c.toml:2: a carriage return without a line feed");
    bad("\n\n'\xC3' = 1", "c.toml:3: byte 0xC3 is not UTF-8");
    bad("\xEF\xBB\xBF", "c.toml:1: begins with a byte order mark, which TOML does not have");
    refused_bytes("a = 1\n\0", 7, QN_EDATA, "c.toml:2: control character 0x00");
}

static void long_names_are_cut_in_messages(void **state)
{
    (void)state;
    char text[600], want[600];
    for (int shift = 0; shift < 2; shift++) { /* a character of two bytes, cut before and at it */
        snprintf(text, sizeof text, "'%.*s", shift, "x");
        for (int i = 0; i < 100; i++) strcat(text, "\xC3\xBC");
        strcat(text, "' = no");
        snprintf(want, sizeof want, "c.toml:1: key '%.*s%.*s...': 'no' is not a value; text stands in quotes", shift,
                 "x", shift ? 58 : 60, text + 1 + shift);
        bad(text, want);
    }
}

/* `open` n times, then `close` n times, behind a = */
static void nested(struct buf *b, int n)
{
    buf_clear(b);
    assert_int_equal(buf_str(b, "a = ", NULL), 0);
    for (int i = 0; i < n; i++) assert_int_equal(buf_str(b, "[", NULL), 0);
    for (int i = 0; i < n; i++) assert_int_equal(buf_str(b, "]", NULL), 0);
}

static void limits(void **state)
{
    (void)state;
    struct buf b = {0};
    struct toml t;
    nested(&b, TOML_MAX_ARRAYS);
    t = parsed((char *)b.data);
    toml_deinit(&t);
    nested(&b, TOML_MAX_ARRAYS + 1);
    unsupported((char *)b.data, "c.toml:1: key 'a': more than 16 arrays inside of each other are not supported");

    buf_clear(&b);
    assert_int_equal(buf_printf(&b, NULL, "a = 0.%0*d", TOML_MAX_NUMBER - 2, 1), 0);
    t = parsed((char *)b.data);
    toml_deinit(&t);
    assert_int_equal(buf_str(&b, "0", NULL), 0);
    unsupported((char *)b.data, "c.toml:1: key 'a': numbers of more than 100 characters are not supported");

    buf_clear(&b);
    for (int i = 1; i < TOML_MAX_NAMES / 2; i++) assert_int_equal(buf_printf(&b, NULL, "[t%d]\na=1\n", i), 0);
    assert_int_equal(buf_str(&b, "b = 1\n", NULL), 0);
    t = parsed((char *)b.data);
    assert_int_equal(t.n_tables + t.n_entries, TOML_MAX_NAMES);
    toml_deinit(&t);
    assert_int_equal(buf_str(&b, "c = 1", NULL), 0);
    unsupported((char *)b.data, "c.toml:4096: key 'c': more than 4096 tables and keys are not supported");

    buf_clear(&b);
    assert_int_equal(buf_printf(&b, NULL, "#%*d", (int)TOML_MAX_BYTES - 1, 1), 0);
    t = parsed((char *)b.data);
    toml_deinit(&t);
    assert_int_equal(buf_str(&b, "0", NULL), 0);
    unsupported((char *)b.data, "c.toml:1: 1048577 bytes; at most 1048576 are supported");
    buf_deinit(&b);
}

/* Every string takes all the room that there is for it. */
static void strings_fit_their_block(void **state)
{
    (void)state;
    static const char text[] = "a=''\nb=\"\"\nc='''''x'''''\n[d]\ne='\xF0\x9F\x98\x80'";
    char *exact = mem_alloc(sizeof text - 1); /* no NUL behind it: a sanitizer sees whoever reads on */
    struct toml t;
    memcpy(exact, text, sizeof text - 1);
    for (size_t n = 0; n < sizeof text; n++) {
        struct qn_error e;
        memmove(exact + sizeof text - 1 - n, text, n);
        if (toml_parse(&t, "c.toml", exact + sizeof text - 1 - n, n, &e) == 0) toml_deinit(&t);
    }
    t = parsed(text);
    assert_string_equal(value(&t, 0, "c")->string, "''x''");
    toml_deinit(&t);
    mem_free(exact);
}

static void memory_that_is_refused(void **state)
{
    (void)state;
    static const char text[] = "a = [1, [2, 3], [], ['x', [1, 2, 3, 4, 5]], 5, 6]\n[b]\nc = 1\nd = 2\n[e.f.g]\nh = 3";
    int n_failures = 0;
    for (int hit = 1; hit; n_failures++) {
        struct toml t;
        struct qn_error e = {0};
        mem_fault_set((uint64_t)n_failures + 1);
        int rc = toml_parse(&t, "c.toml", text, sizeof text - 1, &e);
        hit = mem_fault_hit();
        mem_fault_set(0);
        assert_int_equal(rc, hit ? QN_ENOMEM : 0);
        if (rc == 0) toml_deinit(&t);
    }
    assert_true(n_failures > 8);
}

static void characters_of_utf8(void **state)
{
    (void)state;
    static const struct {
        const char *s;
        unsigned n;
        uint32_t cp;
    } cases[] = {
        {"a", 1, 'a'},
        {"\xC3\xBC", 2, 0xFC},
        {"\xE2\x82\xAC", 3, 0x20AC},
        {"\xF4\x8F\xBF\xBF", 4, 0x10FFFF},
        {"\xF4\x90\x80\x80", 0, 0},
        {"\xC0\x80", 0, 0},
        {"\xE0\x9F\xBF", 0, 0},
        {"\xED\xA0\x80", 0, 0},
        {"\x80", 0, 0},
        {"\xC3", 0, 0},
    };
    uint8_t u[4];
    uint32_t cp;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const uint8_t *s = (const uint8_t *)cases[i].s;
        assert_int_equal(utf8_get(s, strlen(cases[i].s), &cp), cases[i].n);
        if (cases[i].n == 0) continue;
        assert_int_equal(cp, cases[i].cp);
        assert_int_equal(utf8_put(u, cp), cases[i].n);
        assert_memory_equal(u, s, cases[i].n);
        assert_int_equal(utf8_get(s, cases[i].n - 1, &cp), 0);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(order_lines_and_values),
        cmocka_unit_test(whole_names),
        cmocka_unit_test(nothing_at_all),
        cmocka_unit_test(what_is_not_supported_is_named),
        cmocka_unit_test(what_is_wrong_is_named),
        cmocka_unit_test(long_names_are_cut_in_messages),
        cmocka_unit_test(limits),
        cmocka_unit_test(strings_fit_their_block),
        cmocka_unit_test(memory_that_is_refused),
        cmocka_unit_test(characters_of_utf8),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
