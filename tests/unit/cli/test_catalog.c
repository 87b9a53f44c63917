/* SPDX-License-Identifier: MIT
 *
 * test_catalog.c: what is a model among the things that lie in folders, and which one a name means.
 *
 * Each case runs in a folder of its own, which is also its HOME.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/mem.h"
#include "cli/place/catalog.h"

#define HOSTILE "evil\033[31m\nname"

/* ---- a folder to try things in ---- */

static char home[] = "/tmp/quern-catalog-XXXXXX";

static void put(const char *path, size_t bytes)
{
    char text[256] = {0};
    int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC, 0600);
    assert_true(fd >= 0 && bytes <= sizeof text);
    assert_int_equal(write(fd, text, bytes), bytes);
    close(fd);
}

static int remove_one(const char *path, const struct stat *st, int kind, struct FTW *f)
{
    (void)st, (void)kind, (void)f;
    return remove(path);
}

static int set_up(void **state)
{
    (void)state;
    strcpy(home + sizeof home - 7, "XXXXXX");
    if (!mkdtemp(home) || chdir(home) || setenv("HOME", home, 1)) return -1;
    return mkdir("models", 0700);
}

static int tear_down(void **state)
{
    (void)state;
    return chdir("/") || nftw(home, remove_one, 16, FTW_DEPTH | FTW_PHYS);
}

static struct cli_strings none;

static struct catalog opened(const struct cli_strings *folders)
{
    struct catalog c;
    struct qn_error e = {0};
    if (catalog_open(&c, folders, &e)) fail_msg("%s", e.msg);
    return c;
}

/* The names, each with its bytes, in one line. */
static void assert_catalog(const struct cli_strings *folders, const char *want)
{
    char line[2000] = "";
    struct catalog c = opened(folders);
    for (size_t i = 0; i < c.n; i++)
        snprintf(line + strlen(line), sizeof line - strlen(line), "%s%s %llu", i ? ", " : "", c.entry[i].name,
                 (unsigned long long)c.entry[i].bytes);
    catalog_close(&c);
    assert_string_equal(line, want);
}

static void assert_found(const struct cli_strings *folders, const char *name, const char *want)
{
    char *path = NULL;
    struct qn_error e = {0};
    if (catalog_find(&path, folders, name, &e)) fail_msg("%s", e.msg);
    assert_string_equal(path, want);
    mem_free(path);
}

static void assert_not_found(const struct cli_strings *folders, const char *name, const char *part)
{
    char *path = NULL;
    struct qn_error e = {0};
    assert_int_equal(catalog_find(&path, folders, name, &e), QN_ENOINPUT);
    assert_null(path);
    if (!strstr(e.msg, part)) fail_msg("'%s' is not in '%s'", part, e.msg);
}

static void assert_refused(const struct cli_strings *folders, const char *part)
{
    struct catalog c = {0};
    struct qn_error e = {0};
    assert_int_equal(catalog_open(&c, folders, &e), QN_ENOINPUT);
    assert_int_equal(c.n, 0);
    if (!strstr(e.msg, part)) fail_msg("'%s' is not in '%s'", part, e.msg);
}

/* ---- what is a model ---- */

static void files_and_folders(void **state)
{
    (void)state;
    put("models/b.gguf", 20);
    put("models/a.gguf", 10);
    mkdir("models/hf", 0700);
    put("models/hf/config.json", 5);
    put("models/hf/model.safetensors", 7);
    put("models/hf/notes", 100); /* not of the model */
    assert_catalog(&none, "a 10, b 20, hf 12");
}

static void other_things_are_passed_over(void **state)
{
    (void)state;
    put("models/a.gguf", 10);
    put("models/b.gguf.part", 10);
    put("models/c.gguf.part.json", 10);
    put("models/.hidden.gguf", 10);
    put("models/.gguf", 10);
    put("models/readme.txt", 10);
    mkdir("models/folder", 0700); /* no config.json */
    mkdir("models/folder.gguf", 0700);
    mkdir("models/new.part", 0700); /* a transfer is at it */
    put("models/new.part/config.json", 1);
    mkdir("models/old.bad", 0700);
    put("models/old.bad/config.json", 1);
    mkdir("models/.cache", 0700);
    put("models/.cache/config.json", 1);
    mkdir("models/odd", 0700);
    mkdir("models/odd/config.json", 0700);
    assert_int_equal(mkfifo("models/pipe.gguf", 0600), 0);
    assert_catalog(&none, "a 10");
}

static void parts_are_one_model(void **state)
{
    (void)state;
    put("models/big-00001-of-00003.gguf", 10);
    put("models/big-00002-of-00003.gguf", 20);
    put("models/big-00003-of-00003.gguf", 30);
    put("models/lost-00002-of-00002.gguf", 40); /* no first part */
    put("models/half-00001-of-00002.gguf", 50); /* a second one that is not there: loading it will tell */
    put("models/odd-00003-of-00002.gguf", 60);  /* no part of anything */
    put("models/short-0001-of-0002.gguf", 70);
    assert_catalog(&none, "big 60, half 50, odd-00003-of-00002 60, short-0001-of-0002 70");
    char want[200];
    snprintf(want, sizeof want, "%s/models/big-00001-of-00003.gguf", home);
    assert_found(&none, "big", want);
}

static void links(void **state)
{
    (void)state;
    put("a.gguf", 10);
    assert_int_equal(symlink("../a.gguf", "models/linked.gguf"), 0);
    assert_int_equal(symlink("nowhere", "models/dangling.gguf"), 0);
    assert_int_equal(symlink("loop.gguf", "models/loop.gguf"), 0);
    assert_int_equal(symlink(".", "models/itself"), 0);
    put("models/config.json", 1); /* so that the loop looks like a model */
    assert_catalog(&none, "itself 1, linked 10");
}

static void hostile_names(void **state)
{
    (void)state;
    put("models/" HOSTILE ".gguf", 10);
    put("models/\xff\xfe.gguf", 20);
    assert_catalog(&none, HOSTILE " 10, \xff\xfe 20");
    assert_not_found(&none, NULL, "evil\\x1B[31m\\x0Aname");
    assert_not_found(&none, "a\nb", "a\\x0Ab");
}

/* ---- folders ---- */

static void the_default_need_not_exist(void **state)
{
    (void)state;
    assert_int_equal(rmdir("models"), 0);
    assert_catalog(&none, "");
    assert_not_found(&none, NULL, "no model in ~/models");
    unsetenv("HOME");
    assert_catalog(&none, "");
    put("models", 1); /* no folder */
    setenv("HOME", home, 1);
    assert_refused(&none, "Not a directory");
}

static void a_named_one_must(void **state)
{
    (void)state;
    const char *v[] = {"models", "missing"};
    put("models/a.gguf", 10);
    assert_catalog(&(struct cli_strings){v, 1}, "a 10");
    assert_refused(&(struct cli_strings){v, 2}, "'missing': No such file");
    unsetenv("HOME");
    assert_refused(&(struct cli_strings){(const char *[]){"~/x"}, 1}, "HOME is not set");
}

static void an_unreadable_one_is_named(void **state)
{
    (void)state;
    if (geteuid() == 0) { /* may read everything: a link in a circle stands for what cannot be read */
        assert_int_equal(symlink("circle", "circle"), 0);
        assert_refused(&(struct cli_strings){(const char *[]){"circle"}, 1}, "'circle': Too many levels");
        return;
    }
    assert_int_equal(chmod("models", 0), 0);
    assert_refused(&none, "models': Permission denied");
    assert_int_equal(chmod("models", 0700), 0);
}

static void the_first_folder_has_the_name(void **state)
{
    (void)state;
    const char *v[] = {"~/models", "b", "a/"};
    char want[200];
    mkdir("a", 0700);
    mkdir("b", 0700);
    put("a/m.gguf", 1);
    put("b/m.gguf", 2);
    put("models/m.gguf", 3);
    put("models/z.gguf", 4);
    mkdir("models/m", 0700);
    put("models/m/config.json", 5);
    struct catalog c = opened(&(struct cli_strings){v, 3});
    assert_int_equal(c.n, 5);
    assert_string_equal(c.entry[0].name, "m");
    assert_int_equal(c.entry[0].bytes, 5);
    assert_string_equal(c.entry[1].name, c.entry[1].path);
    assert_string_equal(c.entry[2].name, "b/m.gguf");
    assert_string_equal(c.entry[3].name, "a/m.gguf");
    assert_string_equal(c.entry[4].name, "z");
    catalog_close(&c);
    snprintf(want, sizeof want, "%s/models/m", home);
    assert_found(&(struct cli_strings){v, 3}, "m", want);
    assert_found(&(struct cli_strings){v, 3}, "b/m.gguf", "b/m.gguf");
}

/* ---- which one is meant ---- */

static void finding(void **state)
{
    (void)state;
    char want[200];
    put("models/a.gguf", 1);
    snprintf(want, sizeof want, "%s/models/a.gguf", home);
    assert_found(&none, NULL, want); /* the only one */
    assert_found(&none, "a", want);
    assert_found(&none, "a.gguf", want);
    mkdir("a", 0700); /* no model: hides none */
    assert_found(&none, "a", want);
    put("a/config.json", 1);
    assert_found(&none, "a", "a");
    put("here.gguf", 1);
    assert_found(&none, "here.gguf", "here.gguf");
    assert_found(&(struct cli_strings){(const char *[]){"missing"}, 1}, "here.gguf", "here.gguf");
    assert_not_found(&none, "b", "'b': no such file, and in ~/models are: a");
    assert_not_found(&none, "", "no model ''");
    put("models/story.gguf", 1);
    assert_not_found(&none, "stroy", "(did you mean 'story'?)");
    assert_int_equal(unlink("models/story.gguf"), 0);
    put("models/b.gguf", 1);
    assert_not_found(&none, NULL, "there are 2 in ~/models: a, b");
}

static void files_of_a_model(void **state)
{
    (void)state;
    struct catalog_files f;
    struct qn_error e = {0};
    mkdir("hf", 0700);
    put("hf/config.json", 1);
    put("hf/a.safetensors", 2);
    put("hf/diary.txt", 4);
    mkdir("hf/x.json", 0700);
    assert_int_equal(catalog_files(&f, "hf", &e), 0);
    assert_true(f.is_folder);
    assert_int_equal(f.n, 2);
    assert_int_equal(f.bytes, 3);
    catalog_files_free(&f);
    put("s-00001-of-00002.gguf", 1);
    put("s-00002-of-00002.gguf", 2);
    assert_int_equal(catalog_files(&f, "s-00001-of-00002.gguf", &e), 0);
    assert_false(f.is_folder);
    assert_int_equal(f.n, 2);
    assert_string_equal(f.path[1], "s-00002-of-00002.gguf");
    catalog_files_free(&f);
}

static void every_allocation_may_fail(void **state)
{
    (void)state;
    const char *v[] = {"~/models", "a"};
    mkdir("a", 0700);
    put("a/m.gguf", 1);
    put("models/m.gguf", 3);
    mkdir("models/hf", 0700);
    put("models/hf/config.json", 5);
    for (uint64_t n = 1;; n++) {
        char *path = NULL;
        struct qn_error e = {0};
        mem_fault_set(n);
        int rc = catalog_find(&path, &(struct cli_strings){v, 2}, "m", &e);
        bool hit = mem_fault_hit();
        mem_fault_set(0);
        mem_free(path);
        if (!hit) {
            assert_int_equal(rc, 0);
            break;
        }
        if (rc) assert_int_equal(rc, QN_ENOMEM);
        assert_int_equal(rc == 0, path != NULL);
    }
}

#define CASE(f) cmocka_unit_test_setup_teardown(f, set_up, tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        CASE(files_and_folders),
        CASE(other_things_are_passed_over),
        CASE(parts_are_one_model),
        CASE(links),
        CASE(hostile_names),
        CASE(the_default_need_not_exist),
        CASE(a_named_one_must),
        CASE(an_unreadable_one_is_named),
        CASE(the_first_folder_has_the_name),
        CASE(finding),
        CASE(files_of_a_model),
        CASE(every_allocation_may_fail),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
