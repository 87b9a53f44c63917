/* SPDX-License-Identifier: MIT
 *
 * curl.h: libcurl, loaded when it is first needed.
 *
 * Linking it would cost every start of the program 4.5 ms of dynamic linking, although commands mostly talk to a Unix
 * socket. So it is opened with dlopen() and called through this table. The table's types are those of <curl/curl.h>, so
 * a call is checked like a direct one. The header's own checking macros for setopt and getinfo do not apply, so callers
 * have to pass numbers as long or curl_off_t, as the option demands.
 *
 * It knows nothing of the requests.
 */
#ifndef QUERN_CLIENT_CURL_H
#define QUERN_CLIENT_CURL_H

#include <curl/curl.h>

#include "base/error.h"

#define CURL_FUNCTIONS(F)                                                                                              \
    F(global_init)                                                                                                     \
    F(free)                                                                                                            \
    F(easy_init)                                                                                                       \
    F(easy_cleanup)                                                                                                    \
    F(easy_setopt)                                                                                                     \
    F(easy_getinfo)                                                                                                    \
    F(easy_perform)                                                                                                    \
    F(easy_header)                                                                                                     \
    F(easy_strerror)                                                                                                   \
    F(multi_init)                                                                                                      \
    F(multi_cleanup)                                                                                                   \
    F(multi_add_handle)                                                                                                \
    F(multi_remove_handle)                                                                                             \
    F(multi_perform)                                                                                                   \
    F(multi_poll)                                                                                                      \
    F(multi_info_read)                                                                                                 \
    F(multi_strerror)                                                                                                  \
    F(slist_append)                                                                                                    \
    F(slist_free_all)                                                                                                  \
    F(url)                                                                                                             \
    F(url_cleanup)                                                                                                     \
    F(url_get)                                                                                                         \
    F(url_set)                                                                                                         \
    F(url_strerror)

/* curl->easy_init() is curl_easy_init(), and so on for all members. */
struct curl {
#define CURL_MEMBER(name) __typeof__(&curl_##name) name;
    CURL_FUNCTIONS(CURL_MEMBER)
#undef CURL_MEMBER
};

/* The library. The first call, from any thread, loads and initialises it; it is kept until the process ends. NULL: *e
 * (of code QN_EUNSUP) says what is missing and which package has it; every later call says so again. */
const struct curl *curl_load(struct qn_error *e);

#endif
