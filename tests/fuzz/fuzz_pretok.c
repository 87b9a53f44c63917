/* SPDX-License-Identifier: MIT
 *
 * fuzz_pretok.c: libFuzzer entry for the splitting of text into pieces.
 *
 * The first byte chooses a pre-tokeniser, the rest is the text. Pieces must not be empty and must cover the text;
 * so must NFC leave what is NFC already alone.
 */
#include <assert.h>
#include <string.h>

#include "text/token/pretok.h"
#include "text/token/unicode.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#define MAX_NAMES 128

static const struct pretok *get(size_t i)
{
    static struct pretok *made[MAX_NAMES];
    static size_t n;
    while (n < MAX_NAMES && pretok_name(n)) {
        int rc = pretok_new(&made[n], pretok_name(n), strlen(pretok_name(n)), NULL);
        assert(rc == 0);
        n++;
    }
    return made[i % n];
}

static void normalise_twice(const uint8_t *p, size_t n)
{
    struct buf once = {0}, twice = {0};
    bool same;
    int rc = unicode_nfc(p, n, &once, &same, NULL);
    assert(rc == 0);
    if (!same) {
        rc = unicode_nfc(once.data, once.len, &twice, &same, NULL);
        assert(rc == 0);
        assert(same || (twice.len == once.len && (once.len == 0 || memcmp(once.data, twice.data, once.len) == 0)));
    }
    buf_deinit(&once);
    buf_deinit(&twice);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct pretok_ends ends = {0};
    if (size == 0) return 0;
    const char *text = (const char *)data + 1;
    size_t n = size - 1, at = 0;
    int rc = pretok_split(get(data[0]), text, n, &ends, NULL);
    assert(rc == 0);
    for (size_t i = 0; i < ends.n; at = ends.end[i++]) assert(ends.end[i] > at);
    assert(at == n);
    pretok_ends_deinit(&ends);
    normalise_twice(data + 1, n);
    return 0;
}
