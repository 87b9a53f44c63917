/* SPDX-License-Identifier: MIT
 *
 * api_keys.c: the API keys of clients from the network.
 *
 * Only digests are stored, so the file, its backups and a core dump of the server reveal no key. A plain SHA-256 is
 * enough, because keys are random and long and not passwords. A lookup compares with every entry, and with all bytes of
 * each, so its time says nothing about the keys.
 *
 * It makes no keys, and does not watch the file.
 */
#include "server/http/api_keys.h"

#include <ctype.h>
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include <gnutls/crypto.h>
#include <gnutls/gnutls.h>

#include "base/mem.h"
#include "base/os.h"

#define LINE_BYTES 512
#define FILE_BYTES ((size_t)16 << 20)

void api_keys_deinit(struct api_keys *k)
{
    mem_free(k->key);
    *k = (struct api_keys){0};
}

static int parse_digest(uint8_t out[32], const char *s)
{
    gnutls_datum_t hex = {.data = (unsigned char *)(uintptr_t)s, .size = (unsigned)strlen(s)};
    size_t n = 32;

    return hex.size == 64 && gnutls_hex_decode(&hex, out, &n) == 0 && n == 32 ? 0 : -1;
}

static bool is_name(const char *s, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (!isalnum((unsigned char)s[i]) && !strchr("-_.@", s[i])) return false;
    return n > 0;
}

/* name=number with a number from 0 to 2^63-1 */
static bool is_limit(const char *s)
{
    const char *eq = strchr(s, '=');
    char *end;

    if (!eq || !is_name(s, (size_t)(eq - s)) || !isdigit((unsigned char)eq[1])) return false;
    errno = 0;
    strtoimax(eq + 1, &end, 10);
    return *end == '\0' && errno == 0;
}

static bool is_known(const char *limit, const char *const *limits)
{
    size_t n = strcspn(limit, "=");

    for (; limits && *limits; limits++)
        if (strlen(*limits) == n && memcmp(*limits, limit, n) == 0) return true;
    return !limits;
}

/* Cuts the NUL-terminated line into words. Returns 1 for a key, 0 for a line without one, or an error. */
static int parse_line(struct api_key *key, char *line, const char *const *limits, const char *path, int line_no,
                      struct qn_error *e)
{
    char *rest = NULL, *word = strtok_r(line, " \t\r", &rest);
    size_t n = 0;

    *key = (struct api_key){0};
    if (!word || word[0] == '#') return 0;
    if (parse_digest(key->digest, word))
        return error_set(e, QN_EDATA, "%s:%d: a line begins with the 64 hexadecimal digits of a SHA-256", path,
                         line_no);
    word = strtok_r(NULL, " \t\r", &rest);
    if (!word || !is_name(word, strlen(word)) || strlen(word) >= sizeof key->name)
        return error_set(e, QN_EDATA, "%s:%d: the digest is followed by a name of 1 to %zu letters, digits or -_.@",
                         path, line_no, sizeof key->name - 1);
    memcpy(key->name, word, strlen(word));
    while ((word = strtok_r(NULL, " \t\r", &rest))) {
        size_t len = strlen(word);
        if (!is_limit(word)) return error_set(e, QN_EDATA, "%s:%d: '%s' is not name=number", path, line_no, word);
        if (!is_known(word, limits))
            return error_set(e, QN_EDATA, "%s:%d: '%s': no limit has this name", path, line_no, word);
        if (n + len + 2 > sizeof key->limits)
            return error_set(e, QN_EDATA, "%s:%d: more than %zu bytes of limits", path, line_no,
                             sizeof key->limits - 1);
        if (n > 0) key->limits[n++] = ' ';
        memcpy(key->limits + n, word, len);
        n += len;
    }
    return 1;
}

static int add(struct api_keys *k, const struct api_key *key, const char *path, int line_no, struct qn_error *e)
{
    struct api_key *more;

    for (size_t i = 0; i < k->n; i++)
        if (memcmp(k->key[i].digest, key->digest, sizeof key->digest) == 0)
            return error_set(e, QN_EDATA, "%s:%d: the key of '%s' again", path, line_no, k->key[i].name);
    more = mem_realloc(k->key, (k->n + 1) * sizeof *more);
    if (!more) return error_nomem(e, "API keys", (k->n + 1) * sizeof *more);
    k->key = more;
    k->key[k->n++] = *key;
    return 0;
}

int api_keys_load(struct api_keys *k, const char *path, const char *const *limits, struct qn_error *e)
{
    struct api_keys out = {0};
    struct buf m = {0};
    struct api_key key;
    char line[LINE_BYTES];
    int r = os_read_file(&m, path, FILE_BYTES, e), line_no = 0;

    for (size_t at = 0; r == 0 && at < m.len;) {
        const uint8_t *end = memchr(m.data + at, '\n', m.len - at);
        size_t n = end ? (size_t)(end - (m.data + at)) : m.len - at;
        line_no++;
        if (n >= sizeof line || memchr(m.data + at, '\0', n)) {
            r = error_set(e, QN_EDATA, "%s:%d: a line of %zu bytes or with a NUL byte; %d are allowed", path, line_no,
                          n, LINE_BYTES - 1);
            break;
        }
        memcpy(line, m.data + at, n);
        line[n] = '\0';
        at += n + 1;
        r = parse_line(&key, line, limits, path, line_no, e);
        if (r > 0) r = add(&out, &key, path, line_no, e);
    }
    buf_deinit(&m);
    if (r == 0 && out.n == 0) r = error_set(e, QN_EDATA, "no API key in '%s'", path);
    if (r < 0) {
        api_keys_deinit(&out);
        return r;
    }
    *k = out;
    return 0;
}

const struct api_key *api_keys_find(const struct api_keys *k, const char *secret)
{
    const struct api_key *found = NULL;
    uint8_t digest[32];

    if (gnutls_hash_fast(GNUTLS_DIG_SHA256, secret, strlen(secret), digest)) return NULL;
    for (size_t i = 0; i < k->n; i++)
        if (gnutls_memcmp(k->key[i].digest, digest, sizeof digest) == 0) found = &k->key[i];
    return found;
}

int64_t api_keys_limit(const char *limits, const char *name, int64_t if_absent)
{
    size_t n = strlen(name);

    for (const char *p = limits; p && *p; p = strchr(p, ' ')) {
        p += *p == ' ';
        if (strncmp(p, name, n) == 0 && p[n] == '=') return strtoimax(p + n + 1, NULL, 10);
    }
    return if_absent;
}
