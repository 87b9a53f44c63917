/* SPDX-License-Identifier: MIT
 *
 * hang_probe.c: is loaded into the daemon before jansson: a document with "hang here" in it is never read to its end,
 * and whoever reads it hears nothing. A file with "hang here" in its name is opened once there is a file with ".go"
 * after that name. For tests of what still works meanwhile.
 */
#include <dlfcn.h>
#include <fcntl.h>
#include <jansson.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

struct wrapped {
    json_load_callback_t read;
    void *arg;
};

static void look(const void *p, size_t n)
{
    static const char mark[] = "hang here";
    while (n != (size_t)-1 && memmem(p, n, mark, sizeof mark - 1)) __asm__ volatile(""); /* computes, for ever */
}

static size_t read_on(void *p, size_t cap, void *arg)
{
    struct wrapped *w = arg;
    size_t n = w->read(p, cap, w->arg);
    look(p, n);
    return n;
}

__attribute__((visibility("default"))) json_t *json_load_callback(json_load_callback_t read, void *arg, size_t flags,
                                                                  json_error_t *e)
{
    json_t *(*real)(json_load_callback_t, void *, size_t, json_error_t *);
    struct wrapped w = {read, arg};
    *(void **)&real = dlsym(RTLD_NEXT, "json_load_callback");
    return real(read_on, &w, flags, e);
}

__attribute__((visibility("default"))) int open64(const char *path, int flags, ...)
{
    int (*real)(const char *, int, ...);
    char go[4096];
    struct stat is;
    va_list more;
    va_start(more, flags);
    mode_t mode = flags & O_CREAT ? va_arg(more, mode_t) : 0;
    va_end(more);
    snprintf(go, sizeof go, "%s.go", path);
    while (!(flags & O_PATH) && strstr(path, "hang here") && stat(go, &is)) usleep(10000);
    *(void **)&real = dlsym(RTLD_NEXT, "open64");
    return real(path, flags, mode);
}
