/* SPDX-License-Identifier: MIT
 *
 * editlib.c: opens libedit and finds its functions. See editlib.h.
 */
#include "cli/chat/editlib.h"

#include <dlfcn.h>
#include <stddef.h>
#include <string.h>

#define LIBRARY "libedit.so.2"

const struct editlib *editlib_load(struct qn_error *e)
{
    static struct editlib lib;
    static const struct {
        const char *name;
        size_t at;
    } symbols[] = {
        {"el_init", offsetof(struct editlib, init)},
        {"el_end", offsetof(struct editlib, end)},
        {"el_source", offsetof(struct editlib, source)},
        {"el_wset", offsetof(struct editlib, set)},
        {"el_wget", offsetof(struct editlib, get)},
        {"el_wgets", offsetof(struct editlib, gets)},
        {"el_wline", offsetof(struct editlib, line)},
        {"el_resize", offsetof(struct editlib, resize)},
        {"el_winsertstr", offsetof(struct editlib, insert)},
        {"el_deletestr", offsetof(struct editlib, erase)},
        {"history_winit", offsetof(struct editlib, history_init)},
        {"history_wend", offsetof(struct editlib, history_end)},
        {"history_w", offsetof(struct editlib, history)},
    };
    if (lib.init) return &lib;
    void *handle = dlopen(LIBRARY, RTLD_NOW | RTLD_LOCAL);
    if (!handle) {
        error_set(e, QN_EUNSUP, "lines cannot be edited: %s", dlerror());
        return NULL;
    }
    for (size_t i = sizeof symbols / sizeof symbols[0]; i-- > 0;) { /* init is set last: it shows that all are there */
        void *symbol = dlsym(handle, symbols[i].name);
        if (!symbol) {
            error_set(e, QN_EUNSUP, "lines cannot be edited: %s has no %s", LIBRARY, symbols[i].name);
            dlclose(handle);
            return NULL;
        }
        memcpy((char *)&lib + symbols[i].at, &symbol, sizeof symbol);
    }
    return &lib;
}
