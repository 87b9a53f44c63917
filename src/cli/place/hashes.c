/* SPDX-License-Identifier: MIT
 *
 * hashes.c: finds this user's folder of hashes, and adds to it. See hashes.h.
 */
#include "cli/place/hashes.h"

#include <string.h>

#include "base/mem.h"
#include "cli/core/home.h"

char *hashes_dir(void)
{
    char *dir = NULL;
    if (home_path(&dir, HOME_CACHE, "hashes/", NULL)) return NULL;
    if (!home_make_above(dir, NULL)) {
        dir[strlen(dir) - 1] = 0; /* the slash */
        return dir;
    }
    mem_free(dir);
    return NULL;
}

static void remember(const struct file_mark *m, const uint8_t hash[SHA256_BYTES])
{
    char *dir = hashes_dir();
    if (dir) file_hash_remember(dir, m, hash, NULL);
    mem_free(dir);
}

void hashes_remember(const char *path, const char *hex)
{
    uint8_t hash[SHA256_BYTES];
    struct file_mark m;
    if (*hex && sha256_from_hex(hash, hex) && file_mark_get(&m, path)) remember(&m, hash);
}

int hashes_make(uint8_t out[SHA256_BYTES], const char *path, file_hash_watch *watch, void *arg, struct qn_error *e)
{
    struct file_mark m;
    int rc = file_hash_path(out, &m, path, false, watch, arg, e);
    if (!rc) remember(&m, out);
    return rc;
}
