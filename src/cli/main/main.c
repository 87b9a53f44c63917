/* SPDX-License-Identifier: MIT
 *
 * main.c: finds the command and runs it. Words that are not a command are an instruction for the filter.
 */
#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sysexits.h>
#include <unistd.h>

#include "base/log.h"
#include "base/mem.h"
#include "base/nearest.h"
#include "base/os.h"
#include "base/rng.h"
#include "cli/core/cli.h"
#include "cli/core/commands.h"
#include "cli/main/help.h"
#include "cli/place/persona.h"

static void log_to_stderr(void *arg, enum log_level level, const char *line)
{
    (void)arg;
    if (level <= LOG_WARN) fprintf(stderr, "quern: warning: %s\n", line);
}

/* Writes what stdio still has. A success whose output cannot be written becomes a failure. */
static int flushed(int status)
{
    if ((fflush(stdout) || ferror(stdout)) && status == EX_OK) return cli_write_status();
    return status;
}

/* Handles SIGBUS: a page of a mapped file was read that no longer exists. The program ends, except for a daemon,
 * which sees the loss after the step and closes the model. */
static void on_lost_page(int sig, siginfo_t *info, void *context)
{
    static const char line[] = "quern: the model file became shorter, or its disk failed, while it was in use\n";
    static atomic_flag said = ATOMIC_FLAG_INIT;
    int was = errno;
    (void)sig, (void)context;
    if (cli_outlives_files && info->si_code > 0 && map_replace_lost(info->si_addr)) {
        errno = was;
        return;
    }
    while (atomic_flag_test_and_set(&said)) /* another thread has the same signal, and is about to end the program */
        ;
    if (cli_unfinished) unlink(cli_unfinished);
    if (write(STDERR_FILENO, line, sizeof line - 1) < 0) _exit(EX_SOFTWARE);
    _exit(EX_IOERR);
}

static int run(const struct command *c, int argc, char **argv)
{
    struct invocation v;
    enum help_size help;
    int status = options_read(&v, c, argc, argv, &help);
    if (help)
        help_command(c, help);
    else if (!status)
        status = c->run(&v);
    options_free(&v);
    return status;
}

/* Replaces closed standard descriptors. Otherwise the next file or socket would get their number, and output would
 * go there. The replacement can only be used in the wrong direction, so using it fails as on a closed descriptor. */
static void keep_standard_descriptors(void)
{
    for (int fd = STDIN_FILENO; fd <= STDERR_FILENO; fd++)
        if (fcntl(fd, F_GETFD) < 0 && open("/dev/null", fd == STDIN_FILENO ? O_WRONLY : O_RDONLY) < 0) _exit(EX_OSERR);
}

#define NAME_CHARS "abcdefghijklmnopqrstuvwxyz0123456789-_"

/* Whether a word is an argument of a persona: NAME=VALUE. */
static bool is_argument(const char *word)
{
    size_t n = strspn(word, NAME_CHARS);
    return n && word[0] != '-' && word[n] == '=';
}

/* The persona of a word @NAME; NULL: it is none. */
static const char *at_persona(const char *word)
{
    size_t n = strcspn(word, " \t\n,:;?!/");
    return word[0] == '@' && n > 1 && !word[n] ? word + 1 : NULL;
}

/* Runs the filter; argv has its options and its instruction, and before them, if has_args is set, may have arguments of
 * the persona. Under another name than quern the program is the
 * persona of that name. */
static int ask(const char *persona, bool has_args, int argc, char **argv)
{
    static char command[] = "ask", option[] = "--persona", arg[] = "--arg";
    char **all = cli_alloc(2 * (size_t)argc + 4, sizeof *all);
    int n = 0, status;
    all[n++] = command;
    if (persona) {
        all[n++] = option;
        all[n++] = (char *)(uintptr_t)persona;
    }
    for (; has_args && argc && is_argument(*argv); argv++, argc--) {
        all[n++] = arg;
        all[n++] = *argv;
    }
    memcpy(all + n, argv, (size_t)argc * sizeof *argv);
    status = run(&command_ask, n + argc, all);
    cli_free(all);
    return status;
}

/* The name of the program if it is that of a persona. */
static const char *called_as(const char *argv0)
{
    const char *slash = argv0 ? strrchr(argv0, '/') : NULL, *name = slash ? slash + 1 : argv0;
    return name && *name && strcmp(name, "quern") && strncmp(name, "quern-", 6) ? name : NULL;
}

/* Commands that other programs of this kind have, and what they are here. */
static const struct {
    const char *theirs, *ours;
} elsewhere[] = {
    {"list", "models"},      {"ls", "models"},         {"status", "ps"},       {"version", "--version"},
    {"log", "manual start"}, {"logs", "manual start"}, {"show", "inspect"},    {"info", "inspect"},
    {"remove", "rm"},        {"delete", "rm"},         {"download", "pull"},   {"get", "pull"},
    {"server", "serve"},     {"man", "manual"},        {"benchmark", "bench"}, {"settings", "config"},
    {"restart", "start"},    {"kill", "stop"},         {"quit", "stop"},
};

/* Writes the command line that a single word was probably meant to be, with nothing on standard input. Returns false if
 * it is an instruction. */
static bool meant(int argc, char **argv, char *out, size_t cap)
{
    struct nearest near = {.word = argv[1]};
    if (argc != 2 || argv[1][0] == '-' || cli_has_stdin()) return false;
    for (size_t i = 0; i < sizeof elsewhere / sizeof *elsewhere; i++)
        if (!strcmp(argv[1], elsewhere[i].theirs)) return snprintf(out, cap, "%s", elsewhere[i].ours) > 0;
    for (const struct persona *p = personas; p->name; p++)
        if (!strcmp(argv[1], p->name)) return snprintf(out, cap, "-p %s < FILE", p->name) > 0;
    for (const struct command *const *c = commands; *c; c++) nearest_offer(&near, (*c)->name);
    return near.best && snprintf(out, cap, "%s", near.best) > 0;
}

static int dispatch(int argc, char **argv)
{
    const char *persona = argc ? called_as(argv[0]) : NULL;
    if (persona) return ask(persona, false, argc - 1, argv + 1);
    if (argc < 2 && cli_has_stdin()) return ask(NULL, false, 0, argv);
    if (argc < 2) {
        help_program(stderr, HELP_SHORT);
        return EX_USAGE;
    }
    bool all = !strcmp(argv[1], "--help-all");
    if (all || !strcmp(argv[1], "--help") || !strcmp(argv[1], "-h")) {
        help_program(stdout, all ? HELP_LONG : HELP_SHORT);
        return EX_OK;
    }
    if (!strcmp(argv[1], "--version")) {
        printf("quern %s, best instruction set here: %s\n", qn_version(), qn_cpu());
        return EX_OK;
    }
    const struct command *c = command_find(argv[1]);
    if (c) return run(c, argc - 1, argv + 1);
    char near[96];
    if (meant(argc, argv, near, sizeof near))
        return cli_usage("there is no command '%s'; did you mean 'quern %s'? (as an instruction: quern -- %s)", argv[1],
                         near, argv[1]);
    if ((persona = at_persona(argv[1]))) return ask(persona, true, argc - 2, argv + 2);
    return ask(NULL, false, argc - 1, argv + 1);
}

int main(int argc, char **argv)
{
    keep_standard_descriptors();
    setvbuf(stderr, NULL, _IOLBF, BUFSIZ); /* a message is one write, so nobody reads half of one */
    signal(SIGPIPE, SIG_IGN);              /* EPIPE tells when a reader goes away, */
    signal(SIGXFSZ, SIG_IGN);              /* and EFBIG when a file may not grow */
    sigaction(SIGBUS, &(struct sigaction){.sa_sigaction = on_lost_page, .sa_flags = SA_SIGINFO}, NULL);
    log_set_sink(log_to_stderr, NULL);
    json_set_alloc_funcs(mem_alloc, mem_free); /* before any document exists */
    /* Keys are untrusted, and the library's own seed may come too late for /dev/urandom. */
    json_object_seed((size_t)rng_seed_from_os());
    return flushed(dispatch(argc, argv));
}
