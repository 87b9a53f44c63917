/* SPDX-License-Identifier: MIT
 *
 * location.c: parses the place of a model as a user writes it.
 *
 * rsync passes the host to ssh as an argument, so neither a host nor a user may begin with a dash.
 */
#include "fetch/location.h"

#include <ctype.h>
#include <string.h>

#include "base/buf.h"
#include "base/mem.h"
#include "fetch/url.h"

#define HASH_MARK "#sha256="

/* ---- names ---- */

bool location_is_safe_name(const char *name)
{
    char clean[LOCATION_MAX_NAME + 2];
    size_t n = strlen(name);

    if (n == 0 || n > LOCATION_MAX_NAME || name[0] == '.' || name[0] == '-' || strchr(name, '/')) return false;
    error_clean(clean, sizeof clean, name);
    return strcmp(clean, name) == 0;
}

int location_check_name(const char *name, const char *of, struct qn_error *e)
{
    if (location_is_safe_name(name)) return 0;
    return error_set(e, QN_EUSAGE,
                     "%s: no file is made under the name '%s' (empty, hidden, longer than %d bytes, begins "
                     "with a dash, or has a slash or control characters); -o FILE gives another",
                     of, name, LOCATION_MAX_NAME);
}

/* ---- kinds ---- */

static int copy(char **out, const char *s, size_t n, struct qn_error *e)
{
    *out = mem_dup(s, n);
    return *out ? 0 : error_nomem(e, "the name of a source", n + 1);
}

static int copy_last_part(char **out, const char *s, struct qn_error *e)
{
    size_t end = strlen(s), begin;

    while (end > 0 && s[end - 1] == '/') end--;
    for (begin = end; begin > 0 && s[begin - 1] != '/' && s[begin - 1] != ':';) begin--;
    return copy(out, s + begin, end - begin, e);
}

static int parse_rsync(struct location *s, const char *text, struct qn_error *e)
{
    bool is_url = !strncasecmp(text, "rsync://", 8);
    const char *user = is_url ? text + 8 : text, *host = user + strcspn(user, "@:/["), *end;

    host = *host == '@' ? host + 1 : user;
    end = host + strcspn(host, *host == '[' ? "]" : ":/"); /* an IPv6 address contains colons */
    if (*host == '[' && *end) end++;
    if (*user == '-' || *host == '-' || host == end || (*host == '[' && end[-1] != ']') || (!is_url && *end != ':'))
        return error_set(e, QN_EUSAGE, "'%s': no host has that name", text);
    s->kind = LOCATION_RSYNC;
    if (copy(&s->place, text, strlen(text), e)) return QN_ENOMEM;
    return copy_last_part(&s->name, end, e);
}

static int parse_url(struct location *s, const char *text, bool insecure_http, struct qn_error *e)
{
    int r = url_check(text, insecure_http, e);

    if (r) return r;
    s->kind = LOCATION_HTTP;
    if (copy(&s->place, text, strcspn(text, "#"), e)) return QN_ENOMEM;
    return url_last_part(&s->name, s->place, e);
}

/* A part of a repository's name, as hubs allow it. */
static bool is_label(const char *s, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (!isalnum((unsigned char)s[i]) && !strchr("-_.", s[i])) return false;
    return n > 0 && s[0] != '.' && s[0] != '-';
}

static int parse_hub(struct location *s, const char *text, const char *hub, bool insecure_http, struct qn_error *e)
{
    const char *owner = text + 3, *slash = strchr(owner, '/'), *repo = slash ? slash + 1 : "", *file;
    struct buf list = {0};
    int r = url_check(hub, insecure_http, e);

    if (r) return r;
    file = repo + strcspn(repo, "/");
    if (!slash || !is_label(owner, (size_t)(slash - owner)) || !is_label(repo, (size_t)(file - repo)))
        return error_set(e, QN_EUSAGE, "'%s' is not hf:OWNER/REPO/FILE or hf:OWNER/REPO", text);
    if (copy(&s->repo, owner, (size_t)(file - owner), e)) return QN_ENOMEM;
    if (*file) file++;
    if (*file) {
        s->kind = LOCATION_HF_FILE;
        r = location_hub_url(&s->place, hub, s->repo, file, e);
        return r ? r : copy_last_part(&s->name, file, e);
    }
    s->kind = LOCATION_HF_FOLDER;
    r = buf_printf(&list, e, "%s/api/models/%s/tree/main", hub, s->repo);
    if (r == 0) r = copy(&s->place, (const char *)list.data, list.len, e);
    buf_deinit(&list);
    return r ? r : copy(&s->name, repo, strcspn(repo, "/"), e);
}

int location_hub_url(char **out, const char *hub, const char *repo, const char *file, struct qn_error *e)
{
    struct buf url = {0};
    int r = buf_printf(&url, e, "%s/%s/resolve/main/", hub, repo);

    for (const char *p = file; *p && r == 0; p++) {
        if (isalnum((unsigned char)*p) || strchr("-_.~/", *p))
            r = buf_add(&url, p, 1, e);
        else
            r = buf_printf(&url, e, "%%%02X", (unsigned char)*p);
    }
    if (r == 0) r = copy(out, (const char *)url.data, url.len, e);
    buf_deinit(&url);
    return r;
}

/* ---- all of it ---- */

/* Removes the hash from the end of the text. */
static int take_hash(struct location *s, char *text, struct qn_error *e)
{
    char *mark = strstr(text, HASH_MARK), *hex;

    if (!mark) return 0;
    hex = mark + strlen(HASH_MARK);
    if (strspn(hex, "0123456789abcdefABCDEF") != 64 || hex[64])
        return error_set(e, QN_EUSAGE, "'%s': " HASH_MARK " is followed by 64 hexadecimal digits", text);
    for (int i = 0; i < 64; i++) s->sha256[i] = (char)tolower((unsigned char)hex[i]);
    *mark = 0;
    return 0;
}

static int parse(struct location *s, const char *text, const char *hub, bool insecure_http, struct qn_error *e)
{
    size_t colon = strcspn(text, ":/");

    if (!strncasecmp(text, "https://", 8) || !strncasecmp(text, "http://", 7))
        return parse_url(s, text, insecure_http, e);
    if (!strncmp(text, "hf:", 3)) return parse_hub(s, text, hub, insecure_http, e);
    if (!strncasecmp(text, "rsync://", 8)) return parse_rsync(s, text, e);
    if (strstr(text, "://")) return error_set(e, QN_EUSAGE, "'%s': only https://, rsync:// and hf: are fetched", text);
    if (text[colon] == ':') return parse_rsync(s, text, e);
    return error_set(e, QN_EUSAGE, "'%s' is no source: host:path, rsync://..., https://... or hf:owner/repo/file",
                     text);
}

int location_parse(struct location *s, const char *text, const char *hub, bool insecure_http, struct qn_error *e)
{
    struct location out = {0};
    char *bare = mem_dup(text, strlen(text));
    int r = bare ? take_hash(&out, bare, e) : error_nomem(e, "a source", strlen(text));

    if (r == 0) r = parse(&out, bare, hub, insecure_http, e);
    mem_free(bare);
    if (r)
        location_deinit(&out);
    else
        *s = out;
    return r;
}

void location_deinit(struct location *s)
{
    mem_free(s->place);
    mem_free(s->name);
    mem_free(s->repo);
    *s = (struct location){0};
}
