/* SPDX-License-Identifier: MIT
 *
 * test_options.c: a command line, the environment and a configuration, read by a table.
 *
 * Messages go to stderr, so each case runs with stderr in a temporary file and looks at what is in it.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/mem.h"
#include "capture.h"
#include "cli/core/cli.h"
#include "cli/main/help.h"

/* ---- options ---- */

struct common {
    uint64_t u64, size;
    float real;
};

struct values {
    bool flag, other;
    int number, kind;
    const char *text;
    struct cli_strings list;
    struct common common;
};

static void set_defaults(void *options)
{
    struct values *v = options;
    v->number = -7;
}

#define AT(field) offsetof(struct values, field)
static const struct opt own[] = {
    {"flag", 'f', OPT_FLAG, AT(flag), NULL, "a flag"},
    {"other", 'o', OPT_FLAG, AT(other), NULL, "another"},
    {"number", 'n', OPT_INT, AT(number), "N", "a number", -5, 100},
    {"text", 't', OPT_STRING, AT(text), "TEXT", "text"},
    {"list", 0, OPT_STRINGS, AT(list), "TEXT", "texts"},
    {"kind", 0, OPT_CHOICE, AT(kind), "KIND", "one of three", .choices = "f16|f32|q8_0"},
    {0},
};
static const struct opt common[] = {
    {"u64", 0, OPT_U64, offsetof(struct common, u64), "N", "a large one"},
    {"size", 0, OPT_SIZE, offsetof(struct common, size), "BYTES", "bytes"},
    {"real-one", 0, OPT_FLOAT, offsetof(struct common, real), "X", "a real one"},
    {0},
};
static const struct opt_group groups[] = {{"Own", own}, {"Common", common, AT(common), .section = ""}, {0}};
static const struct command command = {.name = "command",
                                       .operands = "[OPTIONS] FILE",
                                       .about = "What it does.",
                                       .max = 2,
                                       .groups = groups,
                                       .size = sizeof(struct values),
                                       .init = set_defaults};

/* One with personas. */
struct talk_options {
    const char *persona, *system, *file;
    float warmth;
};
static const struct opt talk_opts[] = {
    {"persona", 'p', OPT_STRING, offsetof(struct talk_options, persona), "NAME", "who", .words = WORDS_PERSONA},
    {"system", 0, OPT_STRING, offsetof(struct talk_options, system), "TEXT", "what it is told"},
    {"file", 0, OPT_STRING, offsetof(struct talk_options, file), "FILE", "a file", .words = WORDS_FILE},
    {"warmth", 0, OPT_FLOAT, offsetof(struct talk_options, warmth), "X", "a number"},
    {0},
};
static const struct opt_group talk_groups[] = {{"Talk", talk_opts}, {0}};
static const struct command talk = {
    .name = "talk", .groups = talk_groups, .max = -1, .size = sizeof(struct talk_options)};
static const struct command wrapping = {.name = "wrapping", .max = -1, .size = 1, .wraps = true};
const struct command *const commands[] = {&command, &talk, &wrapping, NULL};

static struct invocation inv; /* of the last reading */
static enum help_size help;

/* Reads the words (a NULL ends them) and leaves stderr in printed. */
static int parse_as(const struct command *as, const char *const *words)
{
    static char *argv[20]; /* what the operands point into */
    int argc = 0;
    options_free(&inv);
    argv[argc++] = (char *)"command";
    for (; *words; words++) argv[argc++] = (char *)*words;
    argv[argc] = NULL;
    struct capture c = capture_begin(STDERR_FILENO);
    int rc = options_read(&inv, as, argc, argv, &help);
    if (help) help_command(as, help);
    capture_end(c);
    return rc;
}

static int parse(struct values *v, const char *const *words)
{
    int rc = parse_as(&command, words);
    *v = *(struct values *)inv.options;
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
    assert_true(v.flag && !v.other && !help);
    assert_int_equal(v.number, 5);
    assert_string_equal(v.text, "x y");
    assert_int_equal(v.list.n, 2);
    assert_string_equal(v.list.v[1], "2");
    assert_string_equal(inv.operand[0], "a.gguf");
    assert_string_equal(inv.operand[1], "prompt");
    assert_int_equal(PARSE(&v, "-n-5", "--", "--flag"), 0);
    assert_int_equal(v.number, -5);
    assert_false(v.flag);
    assert_string_equal(inv.operand[0], "--flag");
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
    assert_true(v.common.u64 == UINT64_MAX);
    REFUSED("--u64: '18446744073709551616'", "--u64", "18446744073709551616");
    REFUSED("--u64: '-1'", "--u64", "-1");
    REFUSED("--u64: ' 1'", "--u64", " 1");
    assert_int_equal(PARSE(&v, "--real-one", "-1.5e3"), 0);
    assert_true(v.common.real == -1500.0f);
    static const char *const unreal[] = {"", "x", "1,5", "nan", "inf", "1e99"};
    for (size_t i = 0; i < sizeof unreal / sizeof *unreal; i++) REFUSED("is not a number", "--real-one", unreal[i]);
}

static void sizes(void **state)
{
    (void)state;
    struct values v;
    static const struct {
        const char *text;
        uint64_t bytes;
    } good[] = {{"010", 10},
                {"0x10", 16},
                {"4096", 4096},
                {"1k", 1 << 10},
                {"500M", 500u << 20},
                {"6G", 6ull << 30},
                {"6GB", 6ull << 30},
                {"5.5G", 11ull << 29},
                {"0.25k", 256},
                {"1.5GiB", 3ull << 29},
                {"0.1G", 107374182},
                {"1.0000000000000000000000001M", 1 << 20},
                {"1.99999999999999999999k", 2047},
                {"16777215.5T", (16777215ull << 40) + (1ull << 39)},
                {"6gib", 6ull << 30},
                {"2T", 2ull << 40},
                {"18446744073709551615", UINT64_MAX},
                {"16777215T", 16777215ull << 40}};
    static const char *const bad[] = {"",
                                      "0",
                                      "0G",
                                      "G",
                                      "x",
                                      "-1",
                                      "1.5",
                                      "1.G",
                                      ".5G",
                                      "1.5.5G",
                                      "1,5G",
                                      "-.5G",
                                      "0x1.5G",
                                      "0.0G",
                                      "0.0001k",
                                      "1. 5G",
                                      "16777216.5T",
                                      "6 G",
                                      "6X",
                                      "6GG",
                                      "6GiBB",
                                      "6iB",
                                      "6B",
                                      "16777216T",
                                      "18446744073709551616",
                                      "99999999999999999999G"};
    for (size_t i = 0; i < sizeof good / sizeof *good; i++) {
        assert_int_equal(PARSE(&v, "--size", good[i].text), 0);
        assert_true(v.common.size == good[i].bytes);
    }
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        REFUSED("is not a size such as 6G, 5.5G or 500M", "--size", bad[i]);
}

static void help_lists_every_option(void **state)
{
    (void)state;
    static const char *const lines[] = {"usage: quern command [OPTIONS] FILE",
                                        "  -f, --flag ",
                                        "  -n, --number N ",
                                        "      --size BYTES ",
                                        "      --list TEXT ",
                                        "  -h, --help "};
    static const char *const forms[] = {"--help", "-h", "-fh", "--help-all"};
    for (int f = 0; f < 4; f++) {
        struct values v;
        struct capture c = capture_begin(STDOUT_FILENO);
        static char out[sizeof printed];
        int rc = PARSE(&v, forms[f], "ignored");
        capture_end(c);
        memcpy(out, printed, sizeof out);
        assert_int_equal(rc, 0);
        assert_int_not_equal(help, HELP_NONE);
        for (size_t i = 0; i < sizeof lines / sizeof *lines; i++)
            if (!strstr(out, lines[i])) fail_msg("no '%s' in:\n%s", lines[i], out);
    }
}

static void choices(void **state)
{
    (void)state;
    struct values v;
    assert_int_equal(PARSE(&v, "--kind", "q8_0"), 0);
    assert_int_equal(v.kind, 2);
    static const char *const bad[] = {"", "f", "f64", "f16|f32", "F16", "q8_0 "};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) REFUSED("is not one of f16|f32|q8_0", "--kind", bad[i]);
}

static void operands_are_counted(void **state)
{
    (void)state;
    REFUSED("3 operands given; usage: quern command [OPTIONS] FILE", "a", "b", "c");
}

static void the_environment_sets_what_flags_do_not(void **state)
{
    (void)state;
    struct values v;
    setenv("QUERN_COMMAND_NUMBER", "50", 1);
    setenv("QUERN_COMMAND_FLAG", "true", 1);
    setenv("QUERN_COMMAND_OTHER", "0", 1);
    setenv("QUERN_COMMAND_LIST", "a:b::c", 1);
    setenv("QUERN_REAL_ONE", "1.5", 1); /* of a group that stands before all sections */
    assert_int_equal(PARSE(&v, "a"), 0);
    assert_int_equal(v.number, 50);
    assert_true(v.flag && !v.other);
    assert_int_equal(v.list.n, 3);
    assert_string_equal(v.list.v[2], "c");
    assert_true(v.common.real == 1.5f);
    assert_int_equal(options_origin(&inv, "number"), ORIGIN_ENV);
    assert_int_equal(options_origin(&inv, "text"), ORIGIN_DEFAULT);
    assert_int_equal(PARSE(&v, "-n", "7", "--list", "x"), 0);
    assert_int_equal(v.number, 7);
    assert_int_equal(v.list.n, 1);
    assert_int_equal(options_origin(&inv, "number"), ORIGIN_FLAG);
    setenv("QUERN_COMMAND_NUMBER", "500", 1);
    REFUSED("QUERN_COMMAND_NUMBER: '500' is not a whole number in -5..100", "a");
    setenv("QUERN_COMMAND_FLAG", "yes", 1);
    REFUSED("QUERN_COMMAND_FLAG: 'yes' is not 1, true, 0 or false", "a");
    unsetenv("QUERN_COMMAND_NUMBER");
    unsetenv("QUERN_COMMAND_FLAG");
    unsetenv("QUERN_COMMAND_OTHER");
    unsetenv("QUERN_COMMAND_LIST");
    unsetenv("QUERN_REAL_ONE");
}

static char config_name[64];

/* A configuration with this text, until the next. */
static const char *config(const char *text)
{
    FILE *f = fopen(config_name, "w");
    assert_true(f && fputs(text, f) >= 0 && fclose(f) == 0);
    return config_name;
}

static void the_file_sets_what_is_left(void **state)
{
    (void)state;
    struct values v;
    const char *file = config("real-one = 1.25\nsize = 4096\n[command]\nnumber = 5\nflag = true\ntext = 'file'\n"
                              "list = ['a', 'b']\nkind = 'f32'\n");
    setenv("QUERN_COMMAND_TEXT", "variable", 1);
    assert_int_equal(PARSE(&v, "--config", file, "--size", "1k"), 0);
    unsetenv("QUERN_COMMAND_TEXT");
    assert_true(v.flag && !v.other && v.number == 5 && v.kind == 1 && v.common.real == 1.25f);
    assert_int_equal(v.list.n, 2);
    assert_string_equal(v.list.v[1], "b");
    assert_string_equal(v.text, "variable");
    assert_int_equal(v.common.size, 1024);
    assert_int_equal(options_origin(&inv, "flag"), ORIGIN_CONFIG);
    assert_int_equal(options_origin(&inv, "text"), ORIGIN_ENV);
    assert_int_equal(options_origin(&inv, "size"), ORIGIN_FLAG);
    assert_int_equal(options_origin(&inv, "other"), ORIGIN_DEFAULT);
    assert_int_equal(inv.line[2], 4);              /* number */
    assert_int_equal(PARSE(&v, "--list", "x"), 0); /* QUERN_CONFIG is empty: no file */
    assert_int_equal(v.number, -7);
    assert_int_equal(PARSE(&v, "--config", file, "--list", "x"), 0);
    assert_int_equal(v.list.n, 1);
    assert_int_equal(PARSE(&v, "--config", config("[command]\nnumber = 101")), 78);
    assert_non_null(strstr(printed, ":2: number: '101' is not a whole number in -5..100\n"));
    assert_int_equal(help, HELP_NONE);
}

static void numbers_mean_what_flags_mean(void **state)
{
    (void)state;
    static const char *const texts[] = {"0.7", "0.1", "1e-3", "16777217", "3.4028235e38", "0.30000001192092896"};
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        struct values flag, file;
        char text[64];
        snprintf(text, sizeof text, "real-one = %s", texts[i]);
        assert_int_equal(PARSE(&flag, "--real-one", texts[i]), 0);
        assert_int_equal(PARSE(&file, "--config", config(text)), 0);
        assert_memory_equal(&flag.common.real, &file.common.real, sizeof(float));
    }
}

static void a_persona_goes_before_the_section(void **state)
{
    (void)state;
    static const char text[] = "[talk]\nsystem = 'plain'\nfile = '~/f'\npersona = 'poet'\n"
                               "[persona.poet]\nsystem = 'rhyme'\n[persona.cook]\nwarmth = 200\nsystem = 'stir'\n";
    const struct talk_options *t;
    setenv("HOME", "/h", 1);
    assert_int_equal(parse_as(&talk, (const char *const[]){"--config", config(text), NULL}), 0);
    t = inv.options; /* its persona comes from the file too */
    assert_string_equal(t->persona, "poet");
    assert_string_equal(t->system, "rhyme");
    assert_string_equal(t->file, "/h/f");
    assert_int_equal(inv.line[1], 6);
    assert_int_equal(parse_as(&talk, (const char *const[]){"-p", "cook", "--config", config(text), NULL}), 0);
    t = inv.options;
    assert_string_equal(t->system, "stir");
    assert_true(t->warmth == 200);
    setenv("QUERN_TALK_WARMTH", "1", 1);
    assert_int_equal(
        parse_as(&talk, (const char *const[]){"-p", "cook", "--system", "x", "--config", config(text), NULL}), 0);
    unsetenv("QUERN_TALK_WARMTH");
    t = inv.options;
    assert_string_equal(t->system, "x");
    assert_true(t->warmth == 1);
    assert_int_equal(parse_as(&talk, (const char *const[]){"-p", "unknown", "--config", config(text), NULL}), 0);
    t = inv.options; /* what to make of that is the command's to say */
    assert_string_equal(t->system, "plain");
    assert_int_equal(parse_as(&talk, (const char *const[]){"--config", config("[persona.x]\nwarmt = 1"), NULL}), 78);
    assert_non_null(strstr(printed, ":2: unknown key 'warmt' in [persona.x] (did you mean 'warmth'?)\n"));
    assert_int_equal(parse_as(&talk, (const char *const[]){"--config", config("[persona.x]\nnumber = 1"), NULL}), 78);
    assert_int_equal(parse_as(&talk, (const char *const[]){"--config", config("[persona.x]\npersona = 'y'"), NULL}),
                     78);
}

static void a_wrapping_command_leaves_the_rest(void **state)
{
    (void)state;
    assert_int_equal(parse_as(&wrapping, (const char *const[]){"talk", "--warmth", "1", NULL}), 0);
    assert_int_equal(inv.n, 3);
    assert_string_equal(inv.operand[1], "--warmth");
    assert_int_equal(parse_as(&wrapping, (const char *const[]){"--warmth", "1", NULL}), 64);
}

/* There is no limit to the number of options. */
static void a_long_table_is_read(void **state)
{
    enum { N = 300 };
    static char names[N][8];
    static struct opt opts[N + 1];
    (void)state;
    for (int i = 0; i < N; i++) {
        snprintf(names[i], sizeof names[i], "o%d", i);
        opts[i] = (struct opt){names[i], 0, OPT_INT, (size_t)i * sizeof(int), "N", "a number", 0, 9};
    }
    opts[N - 1].letter = 'z';
    const struct opt_group long_groups[] = {{"Options", opts}, {0}};
    const struct command many = {.name = "many", .operands = "", .groups = long_groups, .size = N * sizeof(int)};
    assert_int_equal(parse_as(&many, (const char *const[]){"--o0", "1", "--o200", "2", "-z", "3", NULL}), 0);
    const int *v = inv.options;
    assert_int_equal(v[0], 1);
    assert_int_equal(v[200], 2);
    assert_int_equal(v[N - 1], 3);
    assert_int_equal(options_origin(&inv, "o200"), ORIGIN_FLAG);
    assert_int_equal(parse_as(&many, (const char *const[]){"--o300", "1", NULL}), 64);
    assert_int_equal(parse_as(&many, (const char *const[]){"--config", "", "--o299", "4", NULL}), 0);
    options_free(&inv); /* which points to this function's table */
    inv = (struct invocation){0};
}

int main(void)
{
    setenv("QUERN_CONFIG", "", 1); /* not this machine's */
    snprintf(config_name, sizeof config_name, "/tmp/test-options-%d", (int)getpid());
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(options_and_operands_in_any_order),
        cmocka_unit_test(unknown_options_are_named),
        cmocka_unit_test(numbers),
        cmocka_unit_test(sizes),
        cmocka_unit_test(choices),
        cmocka_unit_test(help_lists_every_option),
        cmocka_unit_test(operands_are_counted),
        cmocka_unit_test(the_environment_sets_what_flags_do_not),
        cmocka_unit_test(the_file_sets_what_is_left),
        cmocka_unit_test(numbers_mean_what_flags_mean),
        cmocka_unit_test(a_persona_goes_before_the_section),
        cmocka_unit_test(a_wrapping_command_leaves_the_rest),
        cmocka_unit_test(a_long_table_is_read),
    };
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    options_free(&inv);
    remove(config_name);
    return failed;
}
