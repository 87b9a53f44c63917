/* SPDX-License-Identifier: MIT
 *
 * test_talk.c: conversations as they grow and shrink, and their files: what is written is read back, what is no
 * conversation is refused with its line.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "cli/core/talk.h"

static char folder[] = "/tmp/quern-talk-XXXXXX";

static const char *path(const char *name)
{
    static char p[200];
    snprintf(p, sizeof p, "%s/%s", folder, name);
    return p;
}

static void add(struct talk *t, enum talk_role role, const char *text)
{
    assert_int_equal(talk_add(t, role, text, strlen(text), NULL, 0, false, NULL), 0);
}

static void what_is_saved_is_loaded(void **state)
{
    static const char odd[] =
        "line\none\ttab \"quoted\" \\ \x01 \x7f \0 NUL \xF0\x9F\x98\x80 \xE2\x80\xA8 gr\xC3\xBC\xC3\x9F";
    struct talk t = {0}, u = {0};
    struct qn_error e;
    struct stat st;
    (void)state;
    add(&t, TALK_SYSTEM, "");
    assert_int_equal(talk_add(&t, TALK_USER, odd, sizeof odd - 1, NULL, 0, false, &e), 0);
    assert_int_equal(talk_add(&t, TALK_ASSISTANT, "", 0, odd, sizeof odd - 1, true, &e), 0);
    add(&t, TALK_USER, "again");
    assert_int_equal(talk_save(&t, path("a"), &e), 0);
    assert_int_equal(talk_save(&t, path("a"), &e), 0); /* over a conversation */
    assert_int_equal(stat(path("a"), &st), 0);
    assert_int_equal(st.st_mode & 0777, 0600);
    add(&u, TALK_USER, "what is replaced");
    assert_int_equal(talk_load(&u, path("a"), &e), 0);
    assert_int_equal(u.n, t.n);
    for (size_t i = 0; i < t.n; i++) {
        assert_int_equal(u.v[i].role, t.v[i].role);
        assert_int_equal(u.v[i].cut, t.v[i].cut);
        assert_int_equal(u.v[i].n_content, t.v[i].n_content);
        assert_memory_equal(u.v[i].content, t.v[i].content, t.v[i].n_content + 1);
        assert_int_equal(!u.v[i].thoughts, !t.v[i].thoughts);
        if (!t.v[i].thoughts) continue;
        assert_int_equal(u.v[i].n_thoughts, t.v[i].n_thoughts);
        assert_memory_equal(u.v[i].thoughts, t.v[i].thoughts, t.v[i].n_thoughts + 1);
    }
    talk_clear(&t);
    talk_clear(&u);
}

static void foreign_files_are_refused_by_line(void **state)
{
    static const struct {
        const char *text, *says;
    } cases[] = {
        {"hello\n", "line 1 is not JSON"},
        {"{\"role\":\"user\",\"content\":\"a\"}\n\n", "line 2 is not JSON"},
        {"[1]\n", "line 1 is not an object"},
        {"{\"role\":\"user\",\"content\":\"a\"}\n{\"role\":\"assistant\"}\n", "line 2 has no content"},
        {"{\"content\":\"a\"}\n", "line 1 has no role"},
        {"{\"role\":\"tool\",\"content\":\"a\"}\n", "role 'tool'"},
        {"{\"role\":\"user\",\"content\":7}\n", "content is not a string"},
        {"{\"role\":\"user\",\"content\":\"a\",\"name\":\"b\"}\n", "unknown member 'name'"},
        {"{\"role\":\"user\",\"content\":\"a\",\"content\":\"b\"}\n", "line 1 is not JSON"},
        {"{\"role\":\"user\",\"content\":\"a\",\"cut\":true}\n", "only replies have 'cut'"},
        {"{\"role\":\"assistant\",\"content\":\"a\",\"cut\":1}\n", "cut is not true or false"},
        {"{\"role\":\"user\",\"content\":\"a\"}\n{\"role\":\"system\",\"content\":\"a\"}\n",
         "line 2: the system message"},
        {"{\"role\":\"user\",\"content\":\"\xFF\"}\n", "line 1 is not JSON"},
    };
    struct talk t = {0};
    (void)state;
    add(&t, TALK_USER, "stays");
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct qn_error e = {0};
        assert_int_equal(talk_parse(&t, "chat", cases[i].text, strlen(cases[i].text), &e), QN_EDATA);
        if (!strstr(e.msg, cases[i].says)) fail_msg("'%s' has no '%s'", e.msg, cases[i].says);
        assert_int_equal(t.n, 1);
        assert_string_equal(t.v[0].content, "stays");
    }
    talk_clear(&t);
}

static void only_conversations_are_overwritten(void **state)
{
    struct talk t = {0};
    struct qn_error e;
    char text[32] = {0};
    (void)state;
    add(&t, TALK_USER, "a");
    FILE *f = fopen(path("letter"), "w");
    fputs("Dear Sir\n", f);
    fclose(f);
    assert_int_equal(talk_save(&t, path("letter"), &e), QN_EDATA);
    assert_non_null(strstr(e.msg, "not overwritten"));
    f = fopen(path("letter"), "r");
    assert_int_equal(fread(text, 1, 31, f), 9);
    fclose(f);
    assert_string_equal(text, "Dear Sir\n");
    assert_int_equal(talk_save(&t, folder, &e), QN_EIO);
    assert_int_equal(talk_save(&t, "/nowhere/at/all", &e), QN_EIO);
    assert_int_equal(talk_load(&t, path("not there"), &e), QN_ENOINPUT);
    assert_int_equal(t.n, 1);
    talk_clear(&t);
}

static void a_file_without_its_last_line_break(void **state)
{
    static const char text[] = "{\"role\":\"user\",\"content\":\"a\"}\n{\"role\":\"assistant\",\"content\":\"b\"}";
    struct talk t = {0};
    (void)state;
    assert_int_equal(talk_parse(&t, "chat", text, sizeof text - 1, NULL), 0);
    assert_int_equal(t.n, 2);
    assert_int_equal(talk_parse(&t, "chat", "", 0, NULL), 0);
    assert_int_equal(t.n, 0);
    talk_clear(&t);
}

static void messages_are_taken_back(void **state)
{
    struct talk t = {0};
    (void)state;
    assert_false(talk_undo(&t));
    assert_false(talk_drop_reply(&t));
    assert_int_equal(talk_set_system(&t, "be kind", 7, NULL), 0);
    assert_false(talk_undo(&t));
    add(&t, TALK_USER, "1");
    add(&t, TALK_ASSISTANT, "one");
    add(&t, TALK_USER, "2");
    add(&t, TALK_ASSISTANT, "two");
    assert_true(talk_drop_reply(&t));
    assert_int_equal(t.n, 4);
    assert_true(talk_drop_reply(&t)); /* nothing more goes */
    assert_int_equal(t.n, 4);
    assert_true(talk_undo(&t));
    assert_int_equal(t.n, 3);
    assert_true(talk_undo(&t));
    assert_int_equal(t.n, 1);
    assert_false(talk_undo(&t));
    assert_int_equal(talk_set_system(&t, "be brief", 8, NULL), 0);
    assert_int_equal(t.n, 1);
    assert_string_equal(t.v[0].content, "be brief");
    assert_int_equal(talk_set_system(&t, "", 0, NULL), 0);
    assert_int_equal(t.n, 0);
    talk_clear(&t);
}

int main(void)
{
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_is_saved_is_loaded),
        cmocka_unit_test(foreign_files_are_refused_by_line),
        cmocka_unit_test(only_conversations_are_overwritten),
        cmocka_unit_test(a_file_without_its_last_line_break),
        cmocka_unit_test(messages_are_taken_back),
    };
    if (!mkdtemp(folder)) return 1;
    int rc = cmocka_run_group_tests(tests, NULL, NULL);
    unlink(path("a"));
    unlink(path("letter"));
    return rmdir(folder) ? 1 : rc;
}
