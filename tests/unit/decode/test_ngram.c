/* SPDX-License-Identifier: MIT
 *
 * test_ngram.c: the n-gram drafter against a naive search, its identities, and its limits.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdlib.h>
#include <string.h>

#include "base/rng.h"
#include "decode/ngram.h"

#define SHARED 100000 /* bytes */

static struct drafter *drafter(size_t shared_bytes)
{
    struct drafter *d;
    assert_int_equal(ngram_new(NULL, shared_bytes, &d, NULL), 0);
    return d;
}

static void *opened(struct drafter *d, uint64_t identity, int max_tokens)
{
    void *seq = NULL;
    assert_int_equal(d->type->open(d, identity, max_tokens, &seq, NULL), 0);
    return seq;
}

/* What is proposed after the n tokens; sureness: of the last call. */
static qn_token proposed[DRAFT_MOST];
static uint8_t sureness[DRAFT_MOST];
static int propose(struct drafter *d, void *seq, const qn_token *tokens, int n, int most)
{
    struct draft r = {
        .seq = seq, .tokens = tokens, .n_tokens = n, .most = most, .proposed = proposed, .sureness = sureness, .n = -1};
    memset(proposed, -1, sizeof proposed);
    memset(sureness, 255, sizeof sureness);
    d->type->propose(d, &r, 1);
    assert_in_range(r.n, 0, most);
    for (int i = 0; i < DRAFT_MOST; i++) {
        if (i < r.n)
            assert_in_range(sureness[i], 0, DRAFT_CLASSES - 1);
        else
            assert_true(proposed[i] == -1 && sureness[i] == 255);
    }
    return r.n;
}

static int propose_text(struct drafter *d, void *seq, const char *text, int most)
{
    qn_token tokens[256];
    int n = (int)strlen(text);
    for (int i = 0; i < n; i++) tokens[i] = text[i];
    return propose(d, seq, tokens, n, most);
}

/* What is proposed after the text, as text. */
static const char *after(const char *text, int most)
{
    static char out[DRAFT_MOST + 1];
    struct drafter *d = drafter(0);
    void *seq = opened(d, 1, 256);
    int n = propose_text(d, seq, text, most);
    for (int i = 0; i < n; i++) out[i] = (char)proposed[i];
    out[n] = 0;
    d->type->close(d, seq);
    d->type->free(d);
    return out;
}

static void what_followed_before_is_proposed(void **state)
{
    (void)state;
    assert_string_equal(after("", 4), "");
    assert_string_equal(after("a", 4), "");
    assert_string_equal(after("abcdefg", 4), "");
    assert_string_equal(after("the cat sat on the", 4), " cat");
    assert_string_equal(after("the cat sat on the", 1), " ");
    assert_string_equal(after("xbcA ybcB zbcC ybc", 2), "B "); /* the longest match, */
    assert_string_equal(after("xbcA ybcB xbc+ zbc", 2), "+ "); /* the latest of these */
    assert_string_equal(after("....abcdefghijklmnop....abcdef", 5), "ghijk");
}

static void a_match_that_reaches_the_end_goes_on_periodically(void **state)
{
    (void)state;
    assert_string_equal(after("aa", 5), "aaaaa");
    assert_string_equal(after("xabcabc", 31), "abcabcabcabcabcabcabcabcabcabca");
    assert_string_equal(after("-+-+-", 4), "+-+-");
}

/* One word is replaced by another in each sentence. The source goes on after it, although what is copied next is
 * ambiguous anywhere else. */
static void a_copy_is_resumed_after_a_difference(void **state)
{
    (void)state;
    assert_string_equal(after("(one two x three four) (aXtY) x!! (one two y", 6), "");
    assert_string_equal(after("k xa b;l xc d;m xe f;n xg h;  k xa b;l zy", 1), "");
    assert_string_equal(after("k xa b;l xc d;m xe f;n xg h;  k xa b;l zy ", 5), "d;m x");
}

/* ---- against a naive search ---- */

/* The most tokens, up to 16, that come before some place of tokens[0..n) and are its last ones. */
static int longest(const qn_token *tokens, int n)
{
    int best = 0;
    for (int at = 1; at < n; at++) {
        int k = 0;
        while (k < at && k < 16 && tokens[at - 1 - k] == tokens[n - 1 - k]) k++;
        if (k > best) best = k;
    }
    return best;
}

/* Whether `length` tokens before some place are the last ones of tokens[0..n), and the proposal follows there. */
static bool is_copy(const qn_token *tokens, int n, int length, int n_proposed)
{
    for (int at = length; at < n; at++) {
        if (memcmp(tokens + at - length, tokens + n - length, (size_t)length * sizeof *tokens)) continue;
        int k = 0;
        while (k < n_proposed && proposed[k] == (at + k < n ? tokens[at + k] : proposed[at + k - n])) k++;
        if (k == n_proposed) return true;
    }
    return false;
}

/* The lengths that the tables know: a match is found if it has at least so many tokens. */
static int known(int length)
{
    static const int orders[] = {9, 6, 4, 3, 2, 1};
    for (int i = 0; i < 6; i++)
        if (length >= orders[i]) return orders[i];
    return 0;
}

static long n_checked, n_longest;
static void check_stream(int n_vocab, int n, uint64_t seed, int max_tokens)
{
    struct drafter *d = drafter(0);
    void *seq = opened(d, 1, max_tokens);
    qn_token *tokens = calloc((size_t)n, sizeof *tokens);
    for (int i = 0; i < n;) { /* random tokens, and copies of earlier ones */
        int k = i > 4 && rng_uniform(seed, 1, (uint64_t)i) < 0.2 ? 12 : 1;
        int from = (int)(rng_uniform(seed, 2, (uint64_t)i) * i);
        for (; k > 0 && i < n; k--, i++)
            tokens[i] = k > 1 ? tokens[from++] : (qn_token)(rng_uniform(seed, 3, (uint64_t)i) * n_vocab);
    }
    for (int i = 1; i <= n; i += 1 + (int)(3 * rng_uniform(seed, 4, (uint64_t)i))) {
        int most = (int)(8 * rng_uniform(seed, 5, (uint64_t)i)), got = propose(d, seq, tokens, i, most);
        int length = longest(tokens, i);
        if (i > max_tokens || most == 0 || length == 0) {
            assert_int_equal(got, 0);
            continue;
        }
        /* Runs overwrite others of the same hash, so some are not found. */
        if (got) assert_true(is_copy(tokens, i, 1, got));
        n_checked++;
        n_longest += got == most && is_copy(tokens, i, known(length), got);
    }
    free(tokens);
    d->type->close(d, seq);
    d->type->free(d);
}

static void random_streams_are_matched_as_by_a_naive_search(void **state)
{
    (void)state;
    for (uint64_t seed = 0; seed < 200; seed++) check_stream(2 + (int)(seed % 7) * (int)(seed % 5) * 3, 300, seed, 300);
    check_stream(50, 3000, 1000, 3000);
#ifndef NGRAM_HASH_BITS
    assert_true(n_longest > 0.9 * n_checked);
#endif
}

/* All sequences of three tokens up to a length. */
static void all_short_sequences_are_matched(void **state)
{
    (void)state;
    for (int n = 1, count = 3; n <= 7; n++, count *= 3)
        for (int code = 0; code < count; code++) {
            qn_token tokens[8];
            for (int i = 0, rest = code; i < n; i++, rest /= 3) tokens[i] = rest % 3;
            struct drafter *d = drafter(0);
            void *seq = opened(d, 1, n);
            int got = propose(d, seq, tokens, n, 3);
            if (got) assert_true(is_copy(tokens, n, 1, 3));
#ifndef NGRAM_HASH_BITS
            assert_int_equal(got, longest(tokens, n) ? 3 : 0);
#endif
            d->type->close(d, seq);
            d->type->free(d);
        }
}

static void tokens_beyond_the_most_are_not_learned(void **state)
{
    (void)state;
    for (uint64_t seed = 0; seed < 20; seed++)
        for (int max = 0; max < 40; max += 13) check_stream(3, 60, seed, max);
}

/* ---- sureness ---- */

static void a_long_match_is_surer_than_a_short_one(void **state)
{
    (void)state;
    struct drafter *d = drafter(0);
    void *one = opened(d, 1, 256), *other = opened(d, 1, 256);
    propose_text(d, one, "abcdefghijklmnopqrstuvwxyz0123456789 abcdefghijklmnopqrstuvw", 12);
    assert_int_equal(sureness[0], 6);
    propose_text(d, other, "abcdefghijklmnopqrstuvwxyz0123456789 abc", 12);
    assert_true(sureness[0] < 6 && sureness[11] == 6); /* the match is longer there if the tokens before are right */
    d->type->close(d, one);
    d->type->close(d, other);
    d->type->free(d);
}

/* A place that surprised is less sure than one that nothing was expected of, and than one that was right before. */
static void what_happened_in_a_place_counts(void **state)
{
    (void)state;
    struct drafter *d = drafter(0);
    static const char *const texts[] = {"xab1cd ab", "xab1.yab2 cd ab", "xab1.yab1 cd ab", "xab1.yab1,zab1 cd ab"};
    int s[4];
    for (int i = 0; i < 4; i++) {
        void *seq = opened(d, 1, 256);
        assert_int_equal(propose_text(d, seq, texts[i], 1), 1);
        s[i] = sureness[0];
        d->type->close(d, seq);
    }
    assert_true(s[1] != s[0] && s[1] != s[2] && s[1] != s[3] && s[2] != s[3]);
    d->type->free(d);
}

/* ---- what others said ---- */

/* Sequence `seq` has the prompt and then says the answer, one token after the other. */
static void say(struct drafter *d, void *seq, const char *prompt, const char *answer)
{
    char text[256];
    int n = (int)strlen(prompt);
    strcpy(text, prompt);
    propose_text(d, seq, text, 0);
    for (const char *c = answer; *c; c++) {
        text[n++] = *c;
        text[n] = 0;
        propose_text(d, seq, text, 0);
    }
}

static void what_an_identity_said_is_proposed_to_it_alone(void **state)
{
    (void)state;
    struct drafter *d = drafter(SHARED);
    void *a = opened(d, 7, 256), *b = opened(d, 7, 256), *c = opened(d, 8, 256), *e = opened(d, 7, 256);
    say(d, a, "zzz prompt", "The answer is 42.");
    assert_int_equal(propose_text(d, b, "12answer", 4), 4);
    assert_memory_equal(proposed, ((qn_token[]){' ', 'i', 's', ' '}), 4 * sizeof(qn_token));
    assert_int_equal(sureness[0], 7);
    assert_int_equal(propose_text(d, c, "12answer", 4), 0);  /* another identity */
    assert_int_equal(propose_text(d, e, "12345 pro", 4), 0); /* prompts are not shared */
    d->type->close(d, a);
    d->type->close(d, b);
    b = opened(d, 7, 256);
    assert_int_equal(propose_text(d, b, "12answer", 4), 4); /* after its sequence was closed, too */
    ngram_empty(d);
    d->type->close(d, b);
    b = opened(d, 7, 256);
    assert_int_equal(propose_text(d, b, "12answer", 4), 0);
    say(d, e, "12345 pro", "mpt: The answer is 43."); /* an open sequence goes on */
    assert_int_equal(propose_text(d, b, "12answer", 4), 4);
    d->type->close(d, b);
    d->type->close(d, c);
    d->type->close(d, e);
    d->type->free(d);
}

static void open_sequences_share_again_after_a_call_to_forget(void **state)
{
    (void)state;
    struct drafter *d = drafter(SHARED);
    void *a = opened(d, 7, 256), *b = opened(d, 7, 256);
    say(d, a, "p", "first words");
    ngram_empty(d);
    say(d, a, "pfirst words", " and last");
    assert_int_equal(propose_text(d, b, "the first wo", 2), 0);
    d->type->close(d, b);
    b = opened(d, 7, 256);
    assert_int_equal(propose_text(d, b, "the and ", 3), 3);
    assert_int_equal(proposed[0], 'l');
    d->type->close(d, a);
    d->type->close(d, b);
    d->type->free(d);
}

/* Many identities say the same run, each followed by its own number, in a table that is much too small. Whatever is
 * proposed was said by the same identity. */
static void a_full_table_never_mixes_identities(void **state)
{
    (void)state;
    static const size_t sizes[] = {0, 1, 600, 1000, 5000, 50000};
    for (size_t size = 0; size < sizeof sizes / sizeof *sizes; size++) {
        struct drafter *d = drafter(sizes[size]);
        void *seqs[20];
        qn_token tokens[20][400];
        int n[20], n_found = 0;
        for (int i = 0; i < 20; i++) {
            seqs[i] = opened(d, (uint64_t)i / 2, 400);
            n[i] = 0;
            for (int k = 0; k < 5; k++) tokens[i][n[i]++] = 1000 + i;
            propose(d, seqs[i], tokens[i], n[i], 0);
        }
        for (int round = 0; round < 3000; round++) {
            int i = (int)(20 * rng_uniform(3, 1, (uint64_t)round));
            if (n[i] + 8 > 400) { /* another sequence of this identity */
                d->type->close(d, seqs[i]);
                seqs[i] = opened(d, (uint64_t)i / 2, 400);
                n[i] = 5;
            }
            for (int k = 0; k < 7; k++) tokens[i][n[i]++] = k;
            tokens[i][n[i]++] =
                100 + i / 2 + 10 * (int)(3 * rng_uniform(3, 2, (uint64_t)round)); /* 100 + identity + 0, 10, 20 */
            int got = propose(d, seqs[i], tokens[i], n[i] - 1, 4);
            for (int k = 0; k < got; k++)
                if (proposed[k] >= 1000)
                    assert_int_equal((proposed[k] - 1000) / 2, i / 2);
                else if (proposed[k] >= 100)
                    assert_int_equal(proposed[k] % 10, i / 2);
            n_found += got > 0 && sureness[0] == 7;
        }
        (void)n_found;
#ifndef NGRAM_HASH_BITS
        assert_true(sizes[size] < 50000 || n_found > 0);
#endif
        for (int i = 0; i < 20; i++) d->type->close(d, seqs[i]);
        d->type->free(d);
    }
}

/* ---- memory ---- */

static void all_bytes_are_taken_from_the_ledger(void **state)
{
    (void)state;
    struct ledger l;
    struct drafter *d = NULL;
    struct qn_error e;
    void *a = NULL, *b = NULL;
    ledger_init(&l, ngram_bytes(5000) + ngram_seq_bytes(1000));
    assert_int_equal(ngram_new(&l, 5000, &d, &e), 0);
    assert_int_equal(ledger_used(&l), ngram_bytes(5000));
    assert_int_equal(d->type->open(d, 1, 1000, &a, &e), 0);
    assert_int_equal(ledger_used(&l), ngram_bytes(5000) + ngram_seq_bytes(1000));
    assert_int_equal(d->type->open(d, 1, 10, &b, &e), QN_ENOMEM);
    assert_null(b);
    d->type->close(d, NULL);
    d->type->close(d, a);
    assert_int_equal(d->type->open(d, 1, 10, &b, &e), 0);
    d->type->close(d, b);
    d->type->free(d);
    assert_int_equal(ledger_used(&l), 0);
    ledger_init(&l, 100);
    assert_int_equal(ngram_new(&l, 5000, &d, &e), QN_ENOMEM);
    assert_int_equal(ledger_used(&l), 0);
    assert_true(ngram_seq_bytes(100000) < 40 * 100000);
}

static void proposing_allocates_nothing_and_failures_leave_nothing(void **state)
{
    (void)state;
    struct ledger l;
    ledger_init(&l, 1 << 20);
    for (uint64_t n = 1; n <= 2; n++) {
        struct drafter *d = NULL;
        mem_fault_set(n);
        assert_int_equal(ngram_new(&l, SHARED, &d, NULL), QN_ENOMEM);
        mem_fault_set(0);
        assert_null(d);
        assert_int_equal(ledger_used(&l), 0);
    }
    struct drafter *d = drafter(SHARED);
    void *a = opened(d, 1, 256), *b = NULL;
    uint64_t calls = mem_n_calls();
    say(d, a, "abc abc abc", "abc abc abc and so on");
    assert_int_equal(mem_n_calls(), calls);
    mem_fault_set(1);
    assert_int_equal(d->type->open(d, 1, 256, &b, NULL), QN_ENOMEM);
    mem_fault_set(0);
    d->type->close(d, a);
    d->type->free(d);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
#ifndef NGRAM_HASH_BITS
        cmocka_unit_test(what_followed_before_is_proposed),
        cmocka_unit_test(a_match_that_reaches_the_end_goes_on_periodically),
        cmocka_unit_test(a_copy_is_resumed_after_a_difference),
        cmocka_unit_test(a_long_match_is_surer_than_a_short_one),
        cmocka_unit_test(what_happened_in_a_place_counts),
        cmocka_unit_test(what_an_identity_said_is_proposed_to_it_alone),
        cmocka_unit_test(open_sequences_share_again_after_a_call_to_forget),
#endif
        cmocka_unit_test(random_streams_are_matched_as_by_a_naive_search),
        cmocka_unit_test(all_short_sequences_are_matched),
        cmocka_unit_test(tokens_beyond_the_most_are_not_learned),
        cmocka_unit_test(a_full_table_never_mixes_identities),
        cmocka_unit_test(all_bytes_are_taken_from_the_ledger),
        cmocka_unit_test(proposing_allocates_nothing_and_failures_leave_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
