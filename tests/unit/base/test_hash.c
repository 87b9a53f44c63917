/* SPDX-License-Identifier: MIT
 *
 * test_hash.c: the hash is XXH3-64: values that are on disk must not change.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/file_hash.h"
#include "base/hash.h"
#include "base/sha256.h"

static void known_values(void **state)
{
    (void)state;
    assert_int_equal(hash_bytes("", 0, 0), 0x2D06800538D394C2ull); /* xxHash's published value of the empty input */
    assert_int_equal(hash_bytes(NULL, 0, 0), 0x2D06800538D394C2ull);
    assert_int_equal(hash_bytes("abc", 3, 0), 0x78AF5F94892F3950ull);
}

/* A sweep over the lengths at which XXH3 changes its method: every bit of input and seed counts. */
static void input_and_seed_matter(void **state)
{
    (void)state;
    static const size_t sizes[] = {1, 3, 4, 8, 9, 16, 17, 128, 129, 240, 241, 1000};
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        uint8_t x[1000] = {0};
        uint64_t h = hash_bytes(x, sizes[i], 0);
        assert_int_not_equal(h, hash_bytes(x, sizes[i], 1));
        assert_int_not_equal(h, hash_bytes(x, sizes[i] - 1, 0));
        for (size_t k = 0; k < sizes[i]; k++) {
            x[k] ^= 0x10;
            assert_int_not_equal(h, hash_bytes(x, sizes[i], 0));
            x[k] ^= 0x10;
        }
        assert_int_equal(h, hash_bytes(x, sizes[i], 0));
    }
}

/* ---- SHA-256 ---- */

static void digest_of(const void *p, size_t n, bool plain, char hex[65])
{
    struct sha256 s;
    uint8_t digest[32];
    sha256_init(&s);
    if (plain) s.plain = true;
    sha256_add(&s, p, n);
    sha256_end(&s, digest);
    sha256_hex(digest, hex);
}

/* The examples of FIPS 180-2, appendix B. */
static void sha256_known_values(void **state)
{
    (void)state;
    static const char two_blocks[] = "abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq";
    char hex[65], *million = malloc(1000000);
    assert_non_null(million);
    memset(million, 'a', 1000000);
    for (int plain = 0; plain < 2; plain++) {
        digest_of(NULL, 0, plain, hex);
        assert_string_equal(hex, "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
        digest_of("abc", 3, plain, hex);
        assert_string_equal(hex, "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
        digest_of(two_blocks, 56, plain, hex);
        assert_string_equal(hex, "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1");
        digest_of(million, 1000000, plain, hex);
        assert_string_equal(hex, "cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0");
    }
    free(million);
}

/* The CPU's own instructions and the plain form; all lengths around a block, and any pieces. */
static void sha256_forms_agree(void **state)
{
    (void)state;
    uint8_t x[400], digest[32];
    char one[65], two[65];
    for (size_t i = 0; i < sizeof x; i++) x[i] = (uint8_t)(i * 131 + 7);
    for (size_t n = 0; n <= sizeof x; n++) {
        struct sha256 s;
        digest_of(x, n, true, one);
        digest_of(x, n, false, two);
        assert_string_equal(one, two);
        sha256_init(&s);
        for (size_t at = 0, piece = 1 + n % 97; at < n; at += piece)
            sha256_add(&s, x + at, n - at < piece ? n - at : piece);
        sha256_end(&s, digest);
        sha256_hex(digest, two);
        assert_string_equal(one, two);
    }
}

/* RFC 4231 has keys of other lengths; a shorter one is the same with zeros behind it (its test case 2). */
static void hmac_known_value(void **state)
{
    (void)state;
    uint8_t key[32] = "Jefe", digest[32];
    char hex[65];
    sha256_hmac(key, "what do ya want for nothing?", 28, digest);
    sha256_hex(digest, hex);
    assert_string_equal(hex, "5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843");
}

/* ---- files ---- */

static char dir[] = "/tmp/test_hash.XXXXXX";

static void write_at(const char *path, long at, const char *text)
{
    FILE *f = fopen(path, at ? "r+" : "w");
    assert_non_null(f);
    fseek(f, at, SEEK_SET);
    fputs(text, f);
    fclose(f);
}

/* Looked at only by its mark: a change of the content, with the old times given back too, is another mark. */
static void a_hash_is_remembered_by_the_files_mark(void **state)
{
    (void)state;
    char path[100], memory[100], hex[65], command[300];
    uint8_t hash[32], again[32];
    struct file_mark m, now;
    struct qn_error e;
    struct stat st;
    assert_non_null(mkdtemp(dir));
    snprintf(path, sizeof path, "%s/file", dir);
    write_at(path, 0, "abc");
    assert_int_equal(file_hash_path(hash, &m, path, true, NULL, NULL, &e), 0);
    sha256_hex(hash, hex);
    assert_string_equal(hex, "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
    assert_false(file_hash_recall(again, dir, &m));
    assert_int_equal(file_hash_remember(dir, &m, hash, &e), 0);
    assert_true(file_hash_recall(again, dir, &m));
    assert_memory_equal(hash, again, 32);
    assert_int_equal(stat(path, &st), 0);
    write_at(path, 1, "x");
    const struct timespec times[2] = {st.st_atim, st.st_mtim};
    assert_int_equal(utimensat(AT_FDCWD, path, times, 0), 0);
    assert_true(file_mark_get(&now, path));
    assert_true(file_mark_is_same(&m, &now)); /* by these four it is the same */
    assert_false(file_hash_recall(again, dir, &now));
    assert_true(file_hash_recall(again, dir, &m));
    snprintf(memory, sizeof memory, "%s/hash-%llx-%llx", dir, (unsigned long long)m.dev, (unsigned long long)m.ino);
    assert_true(file_hash_is_name(strrchr(memory, '/') + 1));
    for (long at = 0; at < 60; at++) { /* damaged anywhere */
        assert_int_equal(file_hash_remember(dir, &m, hash, &e), 0);
        write_at(memory, at ? at : 1, "~");
        assert_false(file_hash_recall(again, dir, &m));
    }
    snprintf(command, sizeof command, "rm -rf %s", dir);
    assert_int_equal(system(command), 0);
    assert_int_equal(file_hash_path(hash, &m, path, true, NULL, NULL, &e), QN_ENOINPUT);
    assert_int_equal(file_hash_remember(dir, &m, hash, &e), QN_EIO);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(known_values),        cmocka_unit_test(input_and_seed_matter),
        cmocka_unit_test(sha256_known_values), cmocka_unit_test(sha256_forms_agree),
        cmocka_unit_test(hmac_known_value),    cmocka_unit_test(a_hash_is_remembered_by_the_files_mark),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
