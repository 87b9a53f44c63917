/* SPDX-License-Identifier: MIT
 *
 * fuzz_keys.c: libFuzzer entry for the file of API keys.
 *
 * A refusal is one line that names the file. What is taken has a name and limits of the characters that are allowed,
 * no digest twice, and every limit is found again.
 */
#include <assert.h>
#include <ctype.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "server/http/api_keys.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check_key(const struct api_key *k)
{
    size_t n = strnlen(k->name, sizeof k->name);
    assert(n > 0 && n < sizeof k->name);
    for (size_t i = 0; i < n; i++) assert(isalnum((unsigned char)k->name[i]) || strchr("-_.@", k->name[i]));
    assert(strnlen(k->limits, sizeof k->limits) < sizeof k->limits);
    for (const char *p = k->limits; *p;) {
        char name[sizeof k->limits];
        size_t eq = strcspn(p, "=");
        assert(p[eq] == '=' && isdigit((unsigned char)p[eq + 1]));
        snprintf(name, sizeof name, "%.*s", (int)eq, p);
        assert(api_keys_limit(k->limits, name, -1) >= 0);
        p += strcspn(p, " ");
        p += *p == ' ';
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char path[32];
    static const char *const limits[] = {"requests", "tokens", NULL};
    struct api_keys k = {0};
    struct qn_error e = {0};
    int fd = memfd_create("keys", MFD_CLOEXEC);
    assert(fd >= 0 && write(fd, data, size) == (ssize_t)size);
    snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    if (api_keys_load(&k, path, limits, &e)) {
        assert(e.code < 0 && strstr(e.msg, path) && !strchr(e.msg, '\n'));
    } else {
        assert(k.n > 0);
        for (size_t i = 0; i < k.n; i++) check_key(&k.key[i]);
        for (size_t i = 1; i < k.n; i++) assert(memcmp(k.key[0].digest, k.key[i].digest, sizeof k.key[0].digest));
    }
    api_keys_find(&k, "secret");
    api_keys_deinit(&k);
    close(fd);
    return 0;
}
