/* SPDX-License-Identifier: MIT
 *
 * home.c: the user's folders by the XDG Base Directory Specification 0.8. See home.h. A variable that is empty or is
 * not an absolute path counts as not set.
 */
#include "cli/core/home.h"

#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/buf.h"

const char *home_folder(const char *variable)
{
    const char *v = getenv(variable);
    return v && v[0] == '/' ? v : NULL;
}

int home_path(char **out, enum home_kind kind, const char *name, struct qn_error *e)
{
    static const char *const variables[] = {
        [HOME_CACHE] = "XDG_CACHE_HOME", [HOME_STATE] = "XDG_STATE_HOME", [HOME_CONFIG] = "XDG_CONFIG_HOME"};
    static const char *const usual[] = {
        [HOME_CACHE] = ".cache", [HOME_STATE] = ".local/state", [HOME_CONFIG] = ".config"};
    const char *folder = home_folder(variables[kind]), *home = home_folder("HOME");
    struct buf b = {0};
    int rc;
    if (folder)
        rc = buf_printf(&b, e, "%s/quern/%s", folder, name);
    else if (home)
        rc = buf_printf(&b, e, "%s/%s/quern/%s", home, usual[kind], name);
    else
        return error_set(e, QN_ENOINPUT, "neither HOME nor %s names a folder", variables[kind]);
    if (!rc) *out = (char *)b.data;
    return rc;
}

int home_make_above(const char *path, struct qn_error *e)
{
    char *copy = mem_dup(path, strlen(path));
    int rc = copy ? 0 : error_nomem(e, "a path", strlen(path));
    for (char *p = copy; !rc && (p = strchr(p + 1, '/'));) {
        *p = 0;
        /* A folder above may be read-only, and exist. */
        if (mkdir(copy, 0700) && errno != EEXIST && access(copy, F_OK))
            rc = error_set(e, QN_EIO, "cannot make the folder '%s': %s", copy, strerror(errno));
        *p = '/';
    }
    mem_free(copy);
    return rc;
}

/* Where a login would have put XDG_RUNTIME_DIR; a shell of su(1) has no such variable. */
static bool login_folder(char *out, size_t cap)
{
    struct stat st;
    snprintf(out, cap, "/run/user/%u", (unsigned)geteuid());
    return !stat(out, &st) && S_ISDIR(st.st_mode) && st.st_uid == geteuid();
}

/* Makes up the path below a folder of this user. */
static int user_socket(char *out, size_t cap, struct qn_error *e)
{
    char login[32], *cached;
    const char *dir = home_folder("XDG_RUNTIME_DIR");
    if (!dir && login_folder(login, sizeof login)) dir = login;
    if (dir) return snprintf(out, cap, "%s/quern/quern.sock", dir);
    if (home_path(&cached, HOME_CACHE, "quern.sock", NULL))
        return error_set(e, QN_EUSAGE, "XDG_RUNTIME_DIR and HOME are not set, so there is no usual place for a socket");
    int n = snprintf(out, cap, "%s", cached);
    mem_free(cached);
    return n;
}

int home_socket(char *out, size_t cap, struct qn_error *e)
{
    bool is_system = !home_folder("XDG_RUNTIME_DIR") && geteuid() == 0;
    int n = is_system ? snprintf(out, cap, HOME_SYSTEM_SOCKET) : user_socket(out, cap, e);
    if (n < 0) return n;
    if ((size_t)n >= cap) return error_set(e, QN_EUSAGE, "the path of this user's socket has %d bytes, too many", n);
    return 0;
}
