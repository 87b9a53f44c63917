/* SPDX-License-Identifier: MIT
 *
 * who.c: turns the sender of a request into numbers: whose share of the machine the request takes, and whose cached
 * prefixes it may find.
 *
 * The numbers are the same after a restart, so that prefixes on disk are found again. They are cut from a SHA-256
 * because the client chooses cache_salt: it cannot find a salt that meets another client's. The keys of the cache are
 * made from these numbers with a secret that clients do not know (engine/reuse.c).
 */
#include "server/api/api_impl.h"

#include <string.h>

#include "base/sha256.h"

struct who who_of(const struct http_identity *i, const char *cache_salt)
{
    static const char kinds[] = {[HTTP_NOBODY] = 'n', [HTTP_LOCAL] = 'l', [HTTP_UID] = 'u', [HTTP_KEY] = 'k'};
    uint8_t digest[SHA256_BYTES];
    struct sha256 name, all;
    struct who w;
    sha256_init(&name);
    sha256_add(&name, &kinds[i->kind], 1); /* because a key may have the name "local" too */
    sha256_add(&name, i->name, strlen(i->name) + 1);
    all = name;
    if (cache_salt) sha256_add(&all, cache_salt, strlen(cache_salt) + 1); /* "" is one */
    sha256_end(&name, digest);
    memcpy(&w.identity, digest, sizeof w.identity);
    sha256_end(&all, digest);
    memcpy(w.salt, digest + sizeof w.identity, sizeof w.salt);
    return w;
}
