/* SPDX-License-Identifier: MIT
 *
 * test_fetch.c: places of models as users write them, names of files, which addresses are asked, which bytes are there,
 * and the sidecar. tests/e2e/test_pull.py has misbehaving servers.
 */
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/mem.h"
#include "fetch/listing.h"
#include "fetch/partial.h"
#include "fetch/remote_file.h"
#include "fetch/file_sha256.h"
#include "fetch/sidecar.h"
#include "fetch/location.h"
#include "fetch/url.h"

#define HUB "https://hub.example"
#define HEX "0123456789abcdef0123456789ABCDEF0123456789abcdef0123456789abcdef"

/* ---- locations ---- */

static void test_sources(void **state)
{
    static const struct {
        const char *text;
        enum location_kind kind;
        const char *place, *name;
    } cases[] = {
        {"host:m.gguf", LOCATION_RSYNC, "host:m.gguf", "m.gguf"},
        {"me@host:dir/m x.gguf", LOCATION_RSYNC, "me@host:dir/m x.gguf", "m x.gguf"},
        {"me@hf:m.gguf", LOCATION_RSYNC, "me@hf:m.gguf", "m.gguf"},
        {"host::module/dir/", LOCATION_RSYNC, "host::module/dir/", "dir"},
        {"[::1]:dir/m.gguf", LOCATION_RSYNC, "[::1]:dir/m.gguf", "m.gguf"},
        {"me@[::1]:m.gguf", LOCATION_RSYNC, "me@[::1]:m.gguf", "m.gguf"},
        {"rsync://host:8873/models/m.gguf", LOCATION_RSYNC, "rsync://host:8873/models/m.gguf", "m.gguf"},
        {"rsync://host/models", LOCATION_RSYNC, "rsync://host/models", "models"},
        {"https://host/a/m%20x.gguf?download=true#part", LOCATION_HTTP, "https://host/a/m%20x.gguf?download=true",
         "m x.gguf"},
        {"HTTPS://host/m.gguf", LOCATION_HTTP, "HTTPS://host/m.gguf", "m.gguf"},
        {"http://localhost:80/m", LOCATION_HTTP, "http://localhost:80/m", "m"},
        {"http://[::1]/m", LOCATION_HTTP, "http://[::1]/m", "m"},
        {"http://127.1.2.3/m", LOCATION_HTTP, "http://127.1.2.3/m", "m"},
        {"hf:o/r/m.gguf", LOCATION_HF_FILE, HUB "/o/r/resolve/main/m.gguf", "m.gguf"},
        {"hf:o/r-1.5/sub/m x#.gguf", LOCATION_HF_FILE, HUB "/o/r-1.5/resolve/main/sub/m%20x%23.gguf", "m x#.gguf"},
        {"hf:o/r", LOCATION_HF_FOLDER, HUB "/api/models/o/r/tree/main", "r"},
        {"hf:o/r/", LOCATION_HF_FOLDER, HUB "/api/models/o/r/tree/main", "r"},
    };
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        for (int hash = 0; hash < 2; hash++) {
            struct location s;
            struct qn_error e = {0};
            char text[300];
            snprintf(text, sizeof text, "%s%s", cases[i].text, hash ? "#sha256=" HEX : "");
            if (location_parse(&s, text, HUB, false, &e)) fail_msg("%s: %s", text, e.msg);
            assert_int_equal(s.kind, cases[i].kind);
            assert_string_equal(s.place, cases[i].place);
            assert_string_equal(s.name, cases[i].name);
            assert_int_equal(strlen(s.sha256), hash ? 64 : 0);
            assert_null(strpbrk(s.sha256, "ABCDEF"));
            location_deinit(&s);
        }
}

static void test_no_sources(void **state)
{
    static const char *const cases[] = {
        "",
        "m.gguf",
        "./dir/m:x",
        "/dir/m:x",
        ":x",
        "-host:x",
        "me@-host:x",
        "me@:x",
        "[",
        "[::1",
        "[::1]",
        "me@[:",
        "rsync://[",
        "rsync:///x",
        "rsync://-x/m",
        "ftp://host/x",
        "file:///etc/passwd",
        "https://",
        "https://u@host/x",
        "https://u:p@host/x",
        "http://host/x",
        "http://localhost.evil.example/x",
        "http://127.0.0.1.evil.example/x",
        "http://128.0.0.1/x",
        "https://host/a%2fb",
        "https://host/a%00b",
        "hf:",
        "hf:o",
        "hf:o/",
        "hf:/r/x",
        "hf:../r/x",
        "hf:o/../x",
        "hf:-o/r/x",
        "hf:o r/r/x",
        "host:x#sha256=",
        "host:x#sha256=12",
        ("host:x#sha256=" HEX "0"),
        ("host:x#sha256=z" HEX),
    };
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct location s;
        struct qn_error e = {0};
        if (!location_parse(&s, cases[i], HUB, false, &e)) fail_msg("%s is taken", cases[i]);
        assert_int_equal(e.code, QN_EUSAGE);
    }
}

static void test_names(void **state)
{
    static const char *const bad[] = {"", ".", "..", ".x", "-x", "a/b", "a\nb", "a\x1b[m", "\xff", "a\xe2\x80\xae"};
    char longest[LOCATION_MAX_NAME + 2];
    (void)state;
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) assert_false(location_is_safe_name(bad[i]));
    memset(longest, 'a', sizeof longest);
    longest[LOCATION_MAX_NAME] = 0;
    assert_true(location_is_safe_name(longest));
    longest[LOCATION_MAX_NAME] = 'a';
    longest[LOCATION_MAX_NAME + 1] = 0;
    assert_false(location_is_safe_name(longest));
    assert_true(location_is_safe_name("Qwen 3 – größer.gguf"));
}

static void test_redirects_and_origins(void **state)
{
    (void)state;
    assert_int_equal(url_may_follow("https://a/x", "https://b/y", false, NULL), 0);
    assert_int_equal(url_may_follow("http://127.0.0.1/x", "http://localhost/y", false, NULL), 0);
    assert_int_equal(url_may_follow("http://127.0.0.1/x", "https://b/y", false, NULL), 0);
    assert_int_equal(url_may_follow("http://a/x", "http://b/y", true, NULL), 0);
    assert_int_equal(url_may_follow("http://127.0.0.1/x", "http://b/y", false, NULL), QN_EUSAGE);
    assert_int_equal(url_may_follow("https://a/x", "http://a/x", false, NULL), QN_EUSAGE);
    assert_int_equal(url_may_follow("https://a/x", "http://127.0.0.1/x", false, NULL), QN_EUSAGE);
    assert_int_equal(url_may_follow("https://a/x", "http://a/x", true, NULL), QN_EUSAGE);
    assert_int_equal(url_may_follow("https://a/x", "https://u:p@a/x", false, NULL), QN_EUSAGE);
    assert_int_equal(url_may_follow("https://a/x", "file:///x", false, NULL), QN_EUSAGE);

    struct url_verdict v;
    assert_int_equal(url_judge(&v, "https://a/x", "https://A:443/y", false, NULL), 0);
    assert_true(v.hears_secret && !v.is_here);
    assert_int_equal(url_judge(&v, "https://a/x", "https://b/y", false, NULL), 0);
    assert_false(v.hears_secret || v.is_here);
    assert_int_equal(url_judge(&v, "http://localhost:1/x", "http://localhost:1/y", false, NULL), 0);
    assert_true(v.hears_secret && v.is_here);
    assert_int_equal(url_judge(&v, "http://127.0.0.1/x", "http://127.0.0.2/y", false, NULL), 0);
    assert_true(!v.hears_secret && v.is_here);
    assert_int_equal(url_judge(&v, "http://a/x", "http://a/x", true, NULL), 0);
    assert_true(v.hears_secret && !v.is_here);
    assert_int_equal(url_judge(&v, "http://a/x", "http://a/x", false, NULL), QN_EUSAGE);
    assert_false(v.hears_secret);
    assert_int_equal(url_judge(&v, "https://a/x", "http://a/x", true, NULL), QN_EUSAGE);
    assert_false(v.hears_secret);
    assert_int_equal(url_judge(&v, "https://u:p@a/x", "https://u:p@a/x", true, NULL), QN_EUSAGE);
    assert_false(v.hears_secret);
    assert_true(url_same_origin("https://a/x", "https://A:443/y?z"));
    assert_false(url_same_origin("https://a/x", "https://a:444/x"));
    assert_false(url_same_origin("https://a/x", "http://a/x"));
    assert_false(url_same_origin("https://a/x", "https://b/x"));
    assert_false(url_same_origin("https://a/x", "https://a.b/x"));
    assert_false(url_same_origin("http://127.0.0.1/x", "http://localhost/x"));
    assert_false(url_same_origin("x", "x"));
}

static void test_content_range(void **state)
{
    static const char *const bad[] = {"",
                                      "bytes",
                                      "bytes 0-0",
                                      "bytes 0-0/",
                                      "bytes 0-0/*",
                                      "bytes 5-4/9",
                                      "bytes 0-9/9",
                                      "bytes -1/9",
                                      "bytes 0-0/9x",
                                      "bytes 0-0/99999999999999999999",
                                      "bits 0-0/9",
                                      "bytes */-5",
                                      "bytes 0-/9"};
    uint64_t first, last, total;
    (void)state;
    assert_int_equal(remote_file_content_range("bytes 3-8/9", &first, &last, &total), 0);
    assert_true(first == 3 && last == 8 && total == 9);
    assert_int_equal(remote_file_content_range("Bytes */0", &first, &last, &total), 0);
    assert_true(first > last && total == 0);
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        if (!remote_file_content_range(bad[i], &first, &last, &total)) fail_msg("%s is taken", bad[i]);
    assert_int_equal(remote_file_content_range(NULL, &first, &last, &total), -1);
}

/* ---- spans ---- */

/* Beside a map of bytes. */
static void test_spans(void **state)
{
    enum { SIZE = 60 };
    (void)state;
    srand(1);
    for (int round = 0; round < 200; round++) {
        struct spans s = {0}, t = {0};
        bool there[SIZE + 1] = {false};
        uint64_t n = 0, end;
        for (int i = 0; i < round % 20; i++) {
            uint64_t from = (uint64_t)(rand() % SIZE), to = from + 1 + (uint64_t)rand() % (SIZE - from);
            if (to > from + 5 && i % 3) to = from + 5;
            assert_int_equal(spans_add(&s, from, to, NULL), 0);
            for (uint64_t at = from; at < to; at++) there[at] = true;
        }
        for (int at = 0; at < SIZE; at++) n += there[at];
        assert_int_equal(spans_bytes(&s), n);
        for (uint64_t at = 0; at < SIZE; at++) {
            uint64_t want = at, want_end;
            while (want < SIZE && there[want]) want++;
            for (want_end = want; want_end < SIZE && !there[want_end];) want_end++;
            uint64_t got = spans_gap(&s, at, &end);
            assert_int_equal(got, want);
            assert_true(end == (want_end < SIZE ? want_end : UINT64_MAX));
        }
        for (size_t i = 1; i < s.n; i++) assert_true(s.v[i - 1].to < s.v[i].from);
        assert_int_equal(spans_copy(&t, &s, NULL), 0);
        assert_int_equal(spans_bytes(&t), n);
        spans_deinit(&s);
        spans_deinit(&t);
    }
}

/* ---- what is remembered ---- */

static char dir[] = "/tmp/quern-fetch-XXXXXX";

static char *in_dir(const char *name)
{
    static char path[128];
    snprintf(path, sizeof path, "%s/%s", dir, name);
    return path;
}

static int make_dir(void **state)
{
    (void)state;
    return mkdtemp(dir) ? 0 : -1;
}

static int remove_dir(void **state)
{
    (void)state;
    return rmdir(dir);
}

static void test_sidecar_is_read_as_written(void **state)
{
    char url[] = "https://host/\"x\"", version[] = "etag \"\\";
    struct sidecar s = {.url = url, .version = version, .size = 100}, t;
    const char *path = in_dir("x.part.json");
    struct qn_error e = {0};
    (void)state;
    assert_int_equal(sidecar_load(&t, path, &e), 1);
    spans_add(&s.written, 0, 10, NULL);
    spans_add(&s.written, 20, 100, NULL);
    spans_add(&s.synced, 0, 5, NULL);
    for (int durable = 0; durable < 2; durable++) {
        assert_int_equal(sidecar_save(&s, path, durable, &e), 0);
        assert_int_equal(sidecar_load(&t, path, &e), 0);
        assert_string_equal(t.url, url);
        assert_string_equal(t.version, version);
        assert_int_equal(t.size, 100);
        assert_int_equal(spans_bytes(&t.written), 90); /* the machine is still the same */
        assert_int_equal(spans_bytes(&t.synced), 5);
        sidecar_deinit(&t);
    }
    sidecar_remove(path);
    assert_int_equal(access(path, F_OK), -1);
    spans_deinit(&s.written);
    spans_deinit(&s.synced);
}

#define SIDECAR(size, boot, written, synced)                                                                           \
    "{\"form\":\"quern-part-1\",\"url\":\"u\",\"version\":\"v\",\"size\":" size ",\"boot\":\"" boot                    \
    "\",\"written\":" written ",\"synced\":" synced "}"

static void test_sidecar_of_another_boot(void **state)
{
    static const char *const boots[] = {"a", "b", ""};
    static const uint64_t n_written[] = {9, 4, 4};
    (void)state;
    for (int i = 0; i < 3; i++) {
        static const char text[] = SIDECAR("9", "a", "[[0,9]]", "[[0,4]]");
        struct sidecar s;
        assert_int_equal(sidecar_parse(&s, text, strlen(text), boots[i], NULL), 0);
        assert_int_equal(spans_bytes(&s.written), n_written[i]);
        sidecar_deinit(&s);
    }
    static const char no_boot[] = SIDECAR("9", "", "[[0,9]]", "[[0,4]]");
    struct sidecar s;
    assert_int_equal(sidecar_parse(&s, no_boot, strlen(no_boot), "", NULL), 0);
    assert_int_equal(spans_bytes(&s.written), 4);
    sidecar_deinit(&s);
}

static void test_malformed_sidecars(void **state)
{
    static const char *const cases[] = {
        "",
        "[]",
        "{}",
        "nonsense",
        SIDECAR("-1", "a", "[]", "[]"),
        SIDECAR("\"9\"", "a", "[]", "[]"),
        SIDECAR("9.5", "a", "[]", "[]"),
        SIDECAR("99999999999999999999", "a", "[]", "[]"),
        SIDECAR("9", "a", "[[0,10]]", "[]"),
        SIDECAR("9", "a", "[]", "[[0,10]]"),
        SIDECAR("9", "a", "[[3,3]]", "[]"),
        SIDECAR("9", "a", "[[4,3]]", "[]"),
        SIDECAR("9", "a", "[[-1,3]]", "[]"),
        SIDECAR("9", "a", "[[0,3],[2,5]]", "[]"),
        SIDECAR("9", "a", "[[0,3],[3,5]]", "[]"),
        SIDECAR("9", "a", "[[4,5],[0,1]]", "[]"),
        SIDECAR("9", "a", "[[0,1,2]]", "[]"),
        SIDECAR("9", "a", "[0]", "[]"),
        SIDECAR("9", "a", "{}", "[]"),
    };
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct sidecar s;
        struct qn_error e = {0};
        if (!sidecar_parse(&s, cases[i], strlen(cases[i]), "a", &e)) fail_msg("%s is taken", cases[i]);
        assert_int_equal(e.code, QN_EDATA);
        assert_null(s.url);
    }
}

static void test_parts(void **state)
{
    struct partial_file p, q;
    struct qn_error e = {0};
    char path[128], hex[65];
    (void)state;
    snprintf(path, sizeof path, "%s", in_dir("x"));
    assert_int_equal(partial_open(&p, path, false, &e), 0);
    assert_int_equal(partial_open(&q, path, false, &e), QN_EBUSY);
    assert_int_equal(partial_check_space(&p, 0, &e), 0);
    assert_int_equal(partial_check_space(&p, UINT64_MAX / 2, &e), QN_EIO);
    partial_close(&p); /* nothing came */
    assert_int_equal(access(in_dir("x.part"), F_OK), -1);

    assert_int_equal(partial_open(&p, path, false, &e), 0);
    assert_int_equal(write(p.fd, "abc", 3), 3);
    assert_int_equal(file_sha256(hex, p.fd, p.part, NULL, &e), 0);
    assert_string_equal(hex, "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
    assert_int_equal(partial_commit(&p, false, &e), 0);
    partial_close(&p);
    assert_int_equal(access(path, F_OK), 0);

    assert_int_equal(partial_open(&p, path, false, &e), 0);
    assert_int_equal(write(p.fd, "def", 3), 3);
    assert_int_equal(partial_commit(&p, false, &e), QN_EUSAGE); /* not over what is there */
    assert_int_equal(partial_commit(&p, true, &e), 0);
    partial_close(&p);

    assert_int_equal(partial_open(&p, path, false, &e), 0);
    assert_int_equal(write(p.fd, "ghi", 3), 3);
    assert_int_equal(partial_reject(&p, &e), 0);
    partial_close(&p);
    assert_int_equal(access(in_dir("x.bad"), F_OK), 0);
    unlink(in_dir("x.bad"));
    unlink(path);
}

static void test_listing(void **state)
{
    static const char text[] =
        "[{\"type\":\"file\",\"path\":\"model.safetensors\",\"size\":10},{\"type\":\"file\",\"path\":\"config.json\","
        "\"size\":"
        "2},{\"type\":\"file\",\"path\":\"../x.json\",\"size\":3},{\"type\":\"file\",\"path\":\"x.py\",\"size\":3},"
        "{\"type\":\"directory\",\"path\":\"d\"}]";
    struct hub_listing l;
    struct qn_error e = {0};
    (void)state;
    assert_int_equal(listing_parse(&l, text, strlen(text), "u", &e), 0);
    assert_int_equal(l.n_files, 2);
    assert_int_equal(l.bytes, 12);
    assert_string_equal(l.file[0].name, "model.safetensors");
    listing_deinit(&l);
    assert_int_equal(listing_parse(&l, "[]", 2, "u", &e), QN_ENOINPUT);
    assert_int_equal(listing_parse(&l, "{}", 2, "u", &e), QN_EDATA);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_sources),
        cmocka_unit_test(test_no_sources),
        cmocka_unit_test(test_names),
        cmocka_unit_test(test_redirects_and_origins),
        cmocka_unit_test(test_content_range),
        cmocka_unit_test(test_spans),
        cmocka_unit_test(test_sidecar_is_read_as_written),
        cmocka_unit_test(test_sidecar_of_another_boot),
        cmocka_unit_test(test_malformed_sidecars),
        cmocka_unit_test(test_parts),
        cmocka_unit_test(test_listing),
    };
    return cmocka_run_group_tests(tests, make_dir, remove_dir);
}
