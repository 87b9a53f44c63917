/* SPDX-License-Identifier: MIT
 *
 * hang_probe.c: is loaded into the daemon before jansson: a document with "hang here" in it is never read to its end,
 * and whoever reads it hears nothing. For tests of what then still works.
 */
#include <dlfcn.h>
#include <jansson.h>
#include <stdbool.h>
#include <string.h>

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
