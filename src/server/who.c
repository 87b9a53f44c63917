/* SPDX-License-Identifier: MIT
 *
 * who.c: from who sent a request to numbers: whose share of the machine it takes, whose cached prefixes it may find.
 *
 * The numbers are the same after a restart, so that prefixes on disk are found again. Names are the operator's (users
 * of the machine, names in the file of keys); nobody outside chooses one in order to collide.
 */
#include "server/api_impl.h"

#include <string.h>

#include "base/hash.h"

struct who who_of(const struct http_identity *i, const char *cache_salt)
{
    static const char kinds[] = {[HTTP_NOBODY] = 'n', [HTTP_LOCAL] = 'l', [HTTP_UID] = 'u', [HTTP_KEY] = 'k'};
    char name[sizeof i->name + 1];
    size_t n = strlen(i->name);
    struct who w;
    name[0] = kinds[i->kind]; /* a key may be called "local" too */
    memcpy(name + 1, i->name, n);
    w.identity = hash_bytes(name, n + 1, 0);
    for (uint64_t k = 0; k < 2; k++) {
        w.salt[k] = hash_bytes(name, n + 1, k + 1);
        if (cache_salt) w.salt[k] = hash_bytes(cache_salt, strlen(cache_salt), w.salt[k]);
    }
    return w;
}
