/* SPDX-License-Identifier: MIT
 *
 * curl.c: loads libcurl.
 *
 * A library that lacks one of the functions is too old and counts as missing.
 */
#include "client/curl.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stddef.h>
#include <string.h>

#ifndef CURL_SONAME /* a test names a library that does not exist */
#define CURL_SONAME "libcurl.so.4"
#endif

static struct curl table;
static struct qn_error failure; /* code 0: it is loaded */

static const struct {
    const char *name;
    size_t offset; /* in struct curl */
} functions[] = {
#define CURL_ENTRY(name) {"curl_" #name, offsetof(struct curl, name)},
    CURL_FUNCTIONS(CURL_ENTRY)
#undef CURL_ENTRY
};

static void load(void)
{
    void *lib = dlopen(CURL_SONAME, RTLD_NOW | RTLD_LOCAL);
    CURLcode rc;

    if (!lib) {
        error_set(&failure, QN_EUNSUP, "this needs libcurl, which is not installed (Debian's package is libcurl4): %s",
                  dlerror());
        return;
    }
    for (size_t i = 0; i < sizeof functions / sizeof *functions; i++) {
        void *f = dlsym(lib, functions[i].name);
        if (!f) {
            error_set(&failure, QN_EUNSUP, "%s has no %s: it is older than 7.83, which this needs", CURL_SONAME,
                      functions[i].name);
            return;
        }
        memcpy((char *)&table + functions[i].offset, &f, sizeof f);
    }
    rc = table.global_init(CURL_GLOBAL_DEFAULT);
    if (rc) error_set(&failure, QN_EUNSUP, "libcurl does not start: %s", table.easy_strerror(rc));
}

const struct curl *curl_load(struct qn_error *e)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;

    pthread_once(&once, load);
    if (!failure.code) return &table;
    if (e) *e = failure;
    return NULL;
}
