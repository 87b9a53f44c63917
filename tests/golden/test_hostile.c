/* SPDX-License-Identifier: MIT
 *
 * test_hostile.c: `quern check` on every file of the hostile corpus.
 *
 * usage: test_hostile QUERN GENERATOR WORK_DIR SLOWNESS [MODEL...]
 *
 * The corpus is made on the spot by GENERATOR: tools/make-hostile, tools/make-hostile-families, which changes the
 * MODELs, or golden/hostile_gguf.py of the reference data (in $QUERN_SHARED when that is set); the test is skipped when
 * it is not there (77), but fails in CI. A hostile file must be refused with exit status 65 and exactly one printable
 * line, within 50 ms of a processor and with no more than 16 MiB resident beyond what refusing an empty file takes. The
 * limit on writable memory is set too, so that memory taken and not touched is seen. SLOWNESS is 1, or how much more
 * time (and memory, which is then not limited) a sanitizer's build may take.
 *
 * A sanitizer's build takes longer to begin and end than to refuse a file. There GROUP files that must be refused are
 * given to one process, which must write one line for each of them, in their order. If it does anything else, each of
 * them is tried alone as well, so that the message names the file.
 *
 * It is a program of its own that forks, not a script, because a child's resident maximum
 * begins with its parent's, and an interpreter's would hide the growth.
 */
#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define MAX_SECONDS      0.050
#define HOPELESS_SECONDS 5  /* not tried again */
#define LATE_SECONDS     60 /* on the clock: it waits for something */
#define MAX_TRIES        8
#define MAX_MODELS       64
#define MAX_GROWTH_KB    (16 * 1024)
#define MAX_DATA_BYTES   (32u << 20) /* writable memory of the whole process */
#define EX_DATA          65
#define GROUP            32
#define OUT_BYTES        16384
#define LINE_BYTES       1024

static const char *quern, *work;
static double slowness;
static int n_run, n_bad;

struct outcome {
    int status;      /* of exit; 128 + the signal that killed it */
    double seconds;  /* of a processor, which other work on the machine does not change much */
    double passed_s; /* on the clock */
    long max_kb;     /* resident */
    char out[OUT_BYTES], err[OUT_BYTES];
};

static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static double seconds_of(struct timeval t) { return (double)t.tv_sec + 1e-6 * (double)t.tv_usec; }

/* Ends the test: not a finding, but something that keeps it from running. */
static void give_up(const char *what)
{
    fprintf(stderr, "test_hostile: %s: %s\n", what, strerror(errno));
    exit(99);
}

static void path_in(char dst[512], const char *dir, const char *name)
{
    int n = snprintf(dst, 512, "%s/%s", dir, name);
    assert(n > 0 && n < 512);
    (void)n;
}

static void read_back(const char *name, char dst[OUT_BYTES])
{
    char path[512];
    path_in(path, work, name);
    FILE *f = fopen(path, "rb");
    if (!f) give_up(path);
    size_t n = fread(dst, 1, OUT_BYTES - 1, f);
    dst[n] = 0;
    for (size_t i = 0; i < n; i++)
        if (!dst[i]) dst[i] = 1; /* a NUL is as wrong as any other control character */
    fclose(f);
}

static void redirect(int fd, const char *name)
{
    char path[512];
    path_in(path, work, name);
    int file = open(path, O_WRONLY | O_CREAT | O_TRUNC, 0600);
    if (file < 0 || dup2(file, fd) < 0) _exit(99);
}

/* n: at most GROUP. */
static struct outcome run(char *const *files, int n)
{
    struct outcome o = {0};
    struct rusage usage;
    int status;
    double start = now();
    pid_t pid = fork();
    if (pid < 0) give_up("fork");
    if (pid == 0) {
        struct rlimit data = {MAX_DATA_BYTES, MAX_DATA_BYTES};
        if (slowness == 1) setrlimit(RLIMIT_DATA, &data);
        redirect(1, "stdout");
        redirect(2, "stderr");
        const char *args[3 + GROUP] = {"quern", "check"};
        for (int i = 0; i < n; i++) args[2 + i] = files[i];
        execv(quern, (char **)(uintptr_t)args);
        _exit(99);
    }
    if (wait4(pid, &status, 0, &usage) != pid) give_up("wait4");
    o.passed_s = now() - start;
    o.seconds = seconds_of(usage.ru_utime) + seconds_of(usage.ru_stime);
    o.status = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
    o.max_kb = usage.ru_maxrss;
    if (o.status == 99) give_up(quern);
    read_back("stdout", o.out);
    read_back("stderr", o.err);
    return o;
}

/* One line, ended, of nothing that a terminal acts on. */
static bool one_line(const char *s)
{
    size_t n = strlen(s);
    if (n < 2 || s[n - 1] != '\n') return false;
    for (size_t i = 0; i + 1 < n; i++)
        if ((unsigned char)s[i] < 0x20 || s[i] == 0x7f) return false;
    return true;
}

/* What is wrong with the outcome, NULL when nothing is. */
static const char *judge(const char *name, const char *why, const struct outcome *o, long base_kb)
{
    static char text[200];
    bool loads = !strncmp(name, "ok_", 3) || !strncmp(name, "tmpl_", 5);
    bool either = !strncmp(name, "soft_", 5) || strstr(why, "load or refuse");
    bool good = o->status == 0 && one_line(o->out) && (either || !o->err[0]); /* a warning may go with it */
    bool refused = o->status == EX_DATA && one_line(o->err) && !o->out[0];
    if (o->status == 0 ? !(loads || either) : o->status == EX_DATA ? loads : true) {
        snprintf(text, sizeof text, "exit status %d", o->status);
        return text;
    }
    if (!good && !refused) return "not one line of output";
    if (o->seconds > MAX_SECONDS * slowness) {
        snprintf(text, sizeof text, "took %.0f ms of a processor", o->seconds * 1e3);
        return text;
    }
    if (o->passed_s > LATE_SECONDS * slowness) {
        snprintf(text, sizeof text, "ended after %.0f s", o->passed_s);
        return text;
    }
    if (slowness == 1 && o->max_kb - base_kb > MAX_GROWTH_KB) {
        snprintf(text, sizeof text, "%ld KiB resident above the base", o->max_kb - base_kb);
        return text;
    }
    return NULL;
}

static void check_file(const char *dir, const char *name, const char *why, long base_kb)
{
    char path[512];
    const char *fault = NULL;
    struct outcome o;
    path_in(path, dir, name);
    /* Time is that of the best try: other work on the machine also takes room in the caches. It may last, so that
     * the pauses become longer. */
    for (int i = 0; i < MAX_TRIES; i++) {
        o = run(&(char *){path}, 1);
        fault = judge(name, why, &o, base_kb);
        if (!fault || o.seconds <= MAX_SECONDS * slowness || o.seconds > HOPELESS_SECONDS * slowness) break;
        usleep(20000u << i);
    }
    n_run++;
    if (!fault) return;
    n_bad++;
    printf("BAD  %s (%s): %s\n     stderr: %s\n     stdout: %s\n", name, why, fault, o.err, o.out);
}

static bool may_load(const char *name, const char *why)
{
    return !strncmp(name, "ok_", 3) || !strncmp(name, "tmpl_", 5) || !strncmp(name, "soft_", 5) ||
           strstr(why, "load or refuse");
}

/* Each file is refused with one line that names it. */
static bool are_refused(struct outcome *o, char *const *paths, int n)
{
    char *line = o->err;
    if (o->status != EX_DATA || o->out[0]) return false;
    for (int i = 0; i < n; i++) {
        char *end = strchr(line, '\n');
        if (!end) return false;
        char after = end[1];
        end[1] = 0;
        bool good = one_line(line) && strstr(line, paths[i]);
        end[1] = after;
        if (!good) return false;
        line = end + 1;
    }
    return !*line;
}

struct group {
    char path[GROUP][512], name[GROUP][LINE_BYTES], why[GROUP][LINE_BYTES];
    int n;
};

/* Tries all of a group, which is empty afterwards. */
static void check_group(struct group *g, const char *dir, long base_kb)
{
    char *paths[GROUP];
    if (!g->n) return;
    for (int i = 0; i < g->n; i++) paths[i] = g->path[i];
    struct outcome o = run(paths, g->n);
    bool refused = are_refused(&o, paths, g->n);
    if (refused && o.seconds <= MAX_SECONDS * slowness && o.passed_s <= LATE_SECONDS * slowness)
        n_run += g->n;
    else
        for (int i = 0; i < g->n; i++) check_file(dir, g->name[i], g->why[i], base_kb);
    if (!refused) {
        n_bad++;
        printf("BAD  %s ... %s in one process: exit status %d\n     stderr: %s\n     stdout: %s\n", g->name[0],
               g->name[g->n - 1], o.status, o.err, o.out);
    }
    g->n = 0;
}

static void add_to_group(struct group *g, const char *dir, const char *name, const char *why)
{
    path_in(g->path[g->n], dir, name);
    snprintf(g->name[g->n], sizeof g->name[0], "%s", name);
    snprintf(g->why[g->n], sizeof g->why[0], "%s", why);
    g->n++;
}

static void check_corpus(const char *dir, long base_kb)
{
    static struct group g;
    char line[LINE_BYTES], path[512];
    path_in(path, dir, "MANIFEST.tsv");
    FILE *f = fopen(path, "r");
    if (!f) give_up(path);
    while (fgets(line, sizeof line, f)) {
        line[strcspn(line, "\n")] = 0;
        char *why = strchr(line, '\t');
        assert(why);
        *why++ = 0;
        if (slowness == 1 || may_load(line, why))
            check_file(dir, line, why, base_kb);
        else
            add_to_group(&g, dir, line, why);
        if (g.n == GROUP) check_group(&g, dir, base_kb);
    }
    check_group(&g, dir, base_kb);
    fclose(f);
}

/* models: NULL behind the last. */
static void generate(const char *script, const char *dir, char **models)
{
    int status;
    pid_t pid = fork();
    if (pid < 0) give_up("fork");
    if (pid == 0) {
        const char *args[5 + MAX_MODELS] = {"python3", "-B", script, dir};
        for (int i = 0; i < MAX_MODELS && models[i]; i++) args[4 + i] = models[i];
        execvp(args[0], (char **)(uintptr_t)args);
        _exit(99);
    }
    if (waitpid(pid, &status, 0) != pid || status != 0) give_up(script);
}

/* What refusing an empty file takes: the floor of the memory measurements. */
static long measure_base(void)
{
    char path[512];
    path_in(path, work, "empty");
    FILE *f = fopen(path, "wb");
    if (!f) give_up(path);
    fclose(f);
    struct outcome o = run(&(char *){path}, 1);
    if (o.status != EX_DATA || !one_line(o.err)) {
        printf("BAD  an empty file: exit status %d, stderr: %s\n", o.status, o.err);
        n_bad++;
    }
    return o.max_kb;
}

/* The judge itself must be able to find fault. */
static void check_judge(void)
{
    struct outcome refused = {.status = EX_DATA, .seconds = 0.001, .max_kb = 3000, .err = "quern: no\n"}, o;
    assert(!judge("x", "", &refused, 3000));
    assert(judge("ok_x", "", &refused, 3000));
    assert(!judge("soft_x", "", &refused, 3000));
    o = refused, o.status = 139;
    assert(judge("x", "", &o, 3000) && judge("soft_x", "", &o, 3000));
    o = refused, o.status = 0, o.err[0] = 0, strcpy(o.out, "x: ok\n");
    assert(judge("x", "", &o, 3000) && !judge("ok_x", "", &o, 3000) && !judge("tmpl_x", "", &o, 3000));
    o = refused, strcpy(o.err, "a\nb\n");
    assert(judge("x", "", &o, 3000));
    o = refused, strcpy(o.err, "\x1b[2J\n");
    assert(judge("x", "", &o, 3000));
    o = refused, o.err[0] = 0;
    assert(judge("x", "", &o, 3000));
    o = refused, o.seconds = 0.051 * slowness;
    assert(judge("x", "", &o, 3000));
    o = refused, o.passed_s = 1 + LATE_SECONDS * slowness;
    assert(judge("x", "", &o, 3000));
    o = refused, o.max_kb += MAX_GROWTH_KB + 1;
    assert(slowness > 1 || judge("x", "", &o, 3000));
    char *const both[] = {"/a", "/b"};
    static const char *const wrong[] = {"quern: /a: no\n",
                                        "quern: /b: no\nquern: /a: no\n",
                                        "",
                                        "quern: /a: no\nquern: /b: no",
                                        "quern: /a: no\nquern: /b: no\nmore\n",
                                        "quern: /a: no\n\n"};
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
        o = refused, strcpy(o.err, wrong[i]);
        assert(!are_refused(&o, both, 2));
    }
    o = refused, strcpy(o.err, "quern: /a: no\nquern: /b: no\n");
    assert(are_refused(&o, both, 2));
    strcpy(o.out, "/a: ok\n");
    assert(!are_refused(&o, both, 2));
    o.out[0] = 0, o.status = 139;
    assert(!are_refused(&o, both, 2));
}

/* The generator, of the reference data the one in $QUERN_SHARED. */
static const char *find_generator(const char *given, char path[512])
{
    static const char inside[] = "golden/hostile_gguf.py";
    const char *shared = getenv("QUERN_SHARED");
    if (shared && strstr(given, inside)) {
        path_in(path, shared, inside);
        given = path;
    }
    if (!access(given, R_OK)) return given;
    fprintf(stderr, "test_hostile: %s is not there\n", given);
    exit(getenv("CI") ? 99 : 77);
}

int main(int argc, char **argv)
{
    char path[512], corpus[512];
    if (argc < 5 || argc > 5 + MAX_MODELS) {
        fprintf(stderr, "usage: test_hostile QUERN GENERATOR WORK_DIR SLOWNESS [MODEL...]\n");
        return 99;
    }
    const char *generator = find_generator(argv[2], path);
    quern = argv[1];
    work = argv[3];
    slowness = strtod(argv[4], NULL);
    assert(slowness >= 1);
    check_judge();
    if (mkdir(work, 0700) && errno != EEXIST) give_up(work);
    path_in(corpus, work, "corpus");
    generate(generator, corpus, argv + 5);
    long base_kb = measure_base();
    check_corpus(corpus, base_kb);
    printf("%d files, %d bad, base %ld KiB resident\n", n_run, n_bad, base_kb);
    return n_bad || !n_run;
}
