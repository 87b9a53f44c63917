/* SPDX-License-Identifier: MIT
 *
 * hosts.c: reads a list or a file of hosts. See hosts.h.
 */
#include "cluster/start/hosts.h"

#include <arpa/inet.h>
#include <errno.h>
#include <ifaddrs.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/mem.h"
#include "engine/core/stage.h"

#define MAX_LINE 1400

/* ---- this host ---- */

static bool is_own_address(const char *name)
{
    struct in_addr a;
    struct ifaddrs *all = NULL;
    bool found = false;
    if (inet_pton(AF_INET, name, &a) != 1 || getifaddrs(&all)) return false;
    for (const struct ifaddrs *i = all; i && !found; i = i->ifa_next) {
        struct sockaddr_in in;
        if (!i->ifa_addr || i->ifa_addr->sa_family != AF_INET) continue;
        memcpy(&in, i->ifa_addr, sizeof in);
        found = in.sin_addr.s_addr == a.s_addr;
    }
    freeifaddrs(all);
    return found;
}

/* By name or address. A name of it that is found nowhere but in the DNS counts as another host. */
static bool is_this_host(const char *name)
{
    char own[256] = "";
    gethostname(own, sizeof own - 1);
    size_t n = strcspn(own, ".");
    bool is_short = strlen(name) == n && !memcmp(name, own, n);
    return !strcmp(name, "localhost") || !strcmp(name, own) || is_short || is_own_address(name);
}

/* ---- one host ---- */

static int check_name(const char *name, struct qn_error *e)
{
    static const char ok[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789.-_";
    if (*name && *name != '-' && !name[strspn(name, ok)]) return 0;
    return error_set(e, QN_EUSAGE, "hosts: '%s' is no name of a host, and no IPv4 address", name);
}

static int set_count(struct host *h, const char *text, struct qn_error *e)
{
    char *end;
    long n = strtol(text, &end, 10);
    if (!*text || *end || n < 1 || n > STAGE_MOST)
        return error_set(e, QN_EUSAGE, "hosts: '%s:%s': not 1 to %d stages", h->name, text, STAGE_MOST);
    h->n = (int)n;
    return 0;
}

static int set_path(struct host *h, const char *path, struct qn_error *e)
{
    if (path[0] != '/' || strlen(path) >= sizeof h->path)
        return error_set(
            e, QN_EUSAGE,
            "hosts: the model's path on '%s' is '%s', which does not begin with / or is longer than %zu bytes", h->name,
            path, sizeof h->path - 1);
    snprintf(h->path, sizeof h->path, "%s", path);
    return 0;
}

/* HOST or HOST:N, which is changed. */
static int set_name(struct host *h, char *text, struct qn_error *e)
{
    char *colon = strchr(text, ':');
    if (colon) *colon = '\0';
    *h = (struct host){.n = 1};
    int rc = check_name(text, e);
    if (rc) return rc;
    if (strlen(text) >= sizeof h->name)
        return error_set(e, QN_EUSAGE, "hosts: a name of %zu bytes, the most are %zu", strlen(text),
                         sizeof h->name - 1);
    snprintf(h->name, sizeof h->name, "%s", text);
    h->is_here = is_this_host(h->name);
    return colon ? set_count(h, colon + 1, e) : 0;
}

static int add(struct hosts *all, const struct host *h, struct qn_error *e)
{
    if (all->n_stages + h->n > STAGE_MOST)
        return error_set(e, QN_EUSAGE, "hosts: %d stages, the most are %d", all->n_stages + h->n, STAGE_MOST);
    struct host *more = mem_realloc(all->host, ((size_t)all->n + 1) * sizeof *more);
    if (!more) return error_nomem(e, "a list of hosts", sizeof *more);
    all->host = more;
    all->host[all->n++] = *h;
    all->n_stages += h->n;
    all->are_here = all->are_here && h->is_here;
    return 0;
}

/* ---- all ---- */

/* One of a list, which is changed. */
static int add_item(struct hosts *all, char *item, struct qn_error *e)
{
    struct host h;
    char *path = strchr(item, '=');
    if (path) *path++ = '\0';
    int rc = set_name(&h, item, e);
    if (!rc && path) rc = set_path(&h, path, e);
    return rc ? rc : add(all, &h, e);
}

/* One line of a file, which is changed. */
static int add_line(struct hosts *all, char *line, int number, struct qn_error *e)
{
    static const char space[] = " \t\r\n";
    struct host h;
    char *rest, *word;
    line[strcspn(line, "#")] = '\0';
    if (!(word = strtok_r(line, space, &rest))) return 0;
    int rc = set_name(&h, word, e);
    while (!rc && (word = strtok_r(NULL, space, &rest))) {
        if (!strncmp(word, "slots=", 6))
            rc = set_count(&h, word + 6, e);
        else if (!strncmp(word, "path=", 5))
            rc = set_path(&h, word + 5, e);
        else if (strncmp(word, "max_slots=", 10) && strncmp(word, "max-slots=", 10))
            rc = error_set(e, QN_EUSAGE, "hosts: line %d: '%s' is neither slots=N nor path=PATH", number, word);
    }
    return rc ? rc : add(all, &h, e);
}

static int read_list(struct hosts *h, const char *list, struct qn_error *e)
{
    char *copy = mem_dup(list, strlen(list));
    int rc = copy ? 0 : error_nomem(e, "a list of hosts", strlen(list));
    for (char *p = copy; !rc && p;) {
        char *end = p + strcspn(p, ",");
        bool is_last = !*end;
        *end = '\0';
        rc = add_item(h, p, e);
        p = is_last ? NULL : end + 1;
    }
    mem_free(copy);
    return rc;
}

static int read_file(struct hosts *h, const char *path, struct qn_error *e)
{
    char line[MAX_LINE];
    int rc = 0;
    FILE *f = fopen(path, "re");
    if (!f) return error_set(e, QN_ENOINPUT, "hosts: cannot open '%s': %s", path, strerror(errno));
    for (int n = 1; !rc && fgets(line, sizeof line, f); n++) {
        if (!strchr(line, '\n') && !feof(f))
            rc = error_set(e, QN_EUSAGE, "hosts: line %d of '%s' has more than %d bytes", n, path, MAX_LINE - 1);
        else
            rc = add_line(h, line, n, e);
    }
    if (!rc && ferror(f)) rc = error_set(e, QN_ENOINPUT, "hosts: cannot read '%s': %s", path, strerror(errno));
    fclose(f);
    if (!rc && !h->n) rc = error_set(e, QN_EUSAGE, "hosts: '%s' names no host", path);
    return rc;
}

int hosts_read(struct hosts *h, const char *list, const char *file, struct qn_error *e)
{
    *h = (struct hosts){.are_here = true};
    int rc = list ? read_list(h, list, e) : read_file(h, file, e);
    if (rc) hosts_deinit(h);
    return rc;
}

void hosts_deinit(struct hosts *h)
{
    mem_free(h->host);
    *h = (struct hosts){0};
}
