/* SPDX-License-Identifier: MIT
 *
 * test_detok.c: whole characters from cut ones, and the space that the encoder put in front.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/mem.h"
#include "base/rng.h"
#include "text/token/detok.h"
#include "text/token/unicode.h"
#include "../tiny_vocab.h"

/* A `llama` vocabulary: 0 <unk>, 1 <s>, 2 </s>, 3 + b the byte b, then these. */
enum { BYTE = 3, HELLO = 259, WORLD, SPACE, TOOL, SPACES, N_TOKENS };

struct fixture {
    struct weights *w;
    struct vocab *v;
};

static void open_fixture(struct fixture *x, bool add_space)
{
    static char bytes[256][8];
    const char *text[N_TOKENS] = {"<unk>", "<s>", "</s>"};
    int32_t type[N_TOKENS] = {2, 3, 3};
    float score[N_TOKENS] = {0};
    struct vfile f = {0};
    for (int i = 0; i < 256; i++) {
        snprintf(bytes[i], sizeof bytes[i], "<0x%02X>", (unsigned)i & 0xFFu);
        text[BYTE + i] = bytes[i];
        type[BYTE + i] = 6;
    }
    static const char *const words[] = {"▁Hello", "world", "▁", "<tool>", "▁▁"};
    memcpy(text + HELLO, words, sizeof words);
    for (int i = HELLO; i < N_TOKENS; i++) type[i] = i == TOOL ? 4 : 1;
    vf_str(&f, "tokenizer.ggml.model", "llama");
    vf_strs(&f, "tokenizer.ggml.tokens", text, N_TOKENS);
    vf_array4(&f, "tokenizer.ggml.token_type", MT_I32, type, N_TOKENS);
    vf_array4(&f, "tokenizer.ggml.scores", MT_F32, score, N_TOKENS);
    vf_bool(&f, "tokenizer.ggml.add_space_prefix", add_space);
    x->w = vf_open(&f);
    assert_int_equal(vocab_load(&x->v, x->w, NULL), 0);
}

static void close_fixture(struct fixture *x)
{
    vocab_free(x->v);
    weights_close(x->w);
}

static void check(const struct fixture *x, unsigned flags, size_t n, const qn_token *ids, const char *want)
{
    struct buf out = {0};
    assert_int_equal(detok_all(x->v, ids, n, flags, &out, NULL), 0);
    assert_string_equal(out.data ? (char *)out.data : "", want);
    buf_deinit(&out);
}
#define CHECK(x, flags, want, ...)                                                                                     \
    check(x, flags, sizeof((qn_token[]){__VA_ARGS__}) / sizeof(qn_token), (qn_token[]){__VA_ARGS__}, want)

static void the_first_space_is_dropped_once(void **state)
{
    (void)state;
    struct fixture x;
    open_fixture(&x, true);
    CHECK(&x, 0, "Hello Hello", HELLO, HELLO);
    CHECK(&x, 0, "Hello", 1, HELLO);
    CHECK(&x, DETOK_SPECIAL, "<s>Hello</s>world", 1, HELLO, 2, WORLD);
    CHECK(&x, DETOK_SPECIAL, "<tool>Hello", TOOL, HELLO);
    CHECK(&x, 0, " Hello", SPACE, HELLO);
    CHECK(&x, 0, " world", SPACES, WORLD);
    CHECK(&x, 0, "world Hello", WORLD, HELLO);
    CHECK(&x, DETOK_CONTINUE, " Hello", HELLO);
    CHECK(&x, DETOK_CONTINUE, "  world", SPACES, WORLD);
    close_fixture(&x);
    open_fixture(&x, false);
    CHECK(&x, 0, " Hello", HELLO);
    CHECK(&x, DETOK_SPECIAL, "<s> Hello", 1, HELLO);
    close_fixture(&x);
}

static void control_tokens_vanish_unless_asked_for(void **state)
{
    (void)state;
    struct fixture x;
    open_fixture(&x, false);
    CHECK(&x, 0, "world<tool>world", WORLD, 2, TOOL, 0, WORLD);
    CHECK(&x, DETOK_SPECIAL, "world</s><tool><unk>world", WORLD, 2, TOOL, 0, WORLD);
    close_fixture(&x);
}

static void characters_come_out_whole(void **state)
{
    (void)state;
    struct fixture x;
    struct detok d;
    struct buf out = {0};
    open_fixture(&x, false);
    detok_init(&d, x.v, 0);
    static const uint8_t smile[4] = {0xF0, 0x9F, 0x98, 0x80};
    for (int i = 0; i < 3; i++) {
        assert_int_equal(detok_push(&d, BYTE + smile[i], &out, NULL), 0);
        assert_int_equal(out.len, 0);
    }
    assert_int_equal(detok_push(&d, 1, &out, NULL), 0); /* a control token in between has no bytes */
    assert_int_equal(detok_push(&d, BYTE + smile[3], &out, NULL), 0);
    assert_string_equal((char *)out.data, "😀");
    assert_int_equal(detok_push(&d, BYTE + 0xC3, &out, NULL), 0);
    assert_int_equal(out.len, 4);
    assert_int_equal(detok_push(&d, WORLD, &out, NULL), 0); /* it can no longer become one */
    assert_string_equal((char *)out.data, "😀" UNICODE_REPLACEMENT "world");
    assert_int_equal(detok_push(&d, BYTE + 0xE4, &out, NULL), 0);
    assert_int_equal(detok_push(&d, BYTE + 0xB8, &out, NULL), 0);
    assert_int_equal(detok_flush(&d, &out, NULL), 0);
    assert_int_equal(detok_flush(&d, &out, NULL), 0);
    assert_string_equal((char *)out.data, "😀" UNICODE_REPLACEMENT "world" UNICODE_REPLACEMENT);
    buf_deinit(&out);
    CHECK(&x, 0, UNICODE_REPLACEMENT UNICODE_REPLACEMENT "a", BYTE + 0xFF, BYTE + 0x80, BYTE + 'a');
    CHECK(&x, DETOK_RAW,
          "\xFF\x80"
          "a\xC3",
          BYTE + 0xFF, BYTE + 0x80, BYTE + 'a', BYTE + 0xC3);
    close_fixture(&x);
}

/* Streaming any bytes gives UTF-8 at each step, and in the end what repairing them at once gives. */
static void random_bytes_stream_like_whole_text(void **state)
{
    (void)state;
    static const uint8_t some[] = {0xF0, 0x9F, 0x98, 0x80, 0xC3, 0xA9, 'a', 0xFF,
                                   0xE4, 0xB8, 0xAD, 0xED, 0xA0, 0xF4, 0x8F};
    struct fixture x;
    open_fixture(&x, false);
    for (uint64_t round = 0; round < 3000; round++) {
        struct buf out = {0}, want = {0};
        struct detok d;
        uint8_t raw[24];
        size_t n = rng_u64(1, round, 0) % sizeof raw;
        detok_init(&d, x.v, 0);
        for (size_t i = 0; i < n; i++) {
            raw[i] = some[rng_u64(2, round, i) % sizeof some];
            assert_int_equal(detok_push(&d, BYTE + raw[i], &out, NULL), 0);
            assert_true(unicode_is_utf8(out.data, out.len));
        }
        assert_int_equal(detok_flush(&d, &out, NULL), 0);
        for (size_t i = 0; i < n;) {
            uint32_t cp;
            bool cut;
            unsigned len = unicode_next(raw + i, n - i, &cp, &cut);
            assert_int_equal(
                cp == UNICODE_BAD ? buf_str(&want, UNICODE_REPLACEMENT, NULL) : buf_add(&want, raw + i, len, NULL), 0);
            i += len;
        }
        assert_int_equal(out.len, want.len);
        if (want.len) assert_memory_equal(out.data, want.data, want.len);
        buf_deinit(&out);
        buf_deinit(&want);
    }
    close_fixture(&x);
}

static void a_failed_push_changes_nothing(void **state)
{
    (void)state;
    struct fixture x;
    open_fixture(&x, true);
    for (uint64_t n = 1;; n++) {
        struct buf out = {0};
        struct detok d;
        detok_init(&d, x.v, 0);
        assert_int_equal(detok_push(&d, BYTE + 0xC3, &out, NULL), 0);
        buf_deinit(&out);
        struct detok before = d;
        mem_fault_set(n);
        int rc = detok_push(&d, BYTE + 0xFF, &out, NULL);
        bool hit = mem_fault_hit();
        mem_fault_set(0);
        if (rc) assert_true(out.len == 0 && memcmp(&before, &d, sizeof d) == 0 && rc == QN_ENOMEM);
        buf_deinit(&out);
        if (!hit) break;
        assert_int_not_equal(rc, 0);
    }
    close_fixture(&x);
}

static void ids_outside_the_vocabulary_are_refused(void **state)
{
    (void)state;
    struct fixture x;
    struct buf out = {0};
    struct qn_error e;
    open_fixture(&x, true);
    assert_int_equal(detok_all(x.v, (qn_token[]){1, N_TOKENS}, 2, 0, &out, &e), QN_EUSAGE);
    assert_int_equal(detok_all(x.v, (qn_token[]){-1}, 1, 0, &out, &e), QN_EUSAGE);
    buf_deinit(&out);
    close_fixture(&x);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_first_space_is_dropped_once), cmocka_unit_test(control_tokens_vanish_unless_asked_for),
        cmocka_unit_test(characters_come_out_whole),       cmocka_unit_test(random_bytes_stream_like_whole_text),
        cmocka_unit_test(a_failed_push_changes_nothing),   cmocka_unit_test(ids_outside_the_vocabulary_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
