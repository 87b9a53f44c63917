/* SPDX-License-Identifier: MIT
 *
 * test_wedlm.c: the window of WeDLM: a worked trace, its edges, and which masks it fills.
 *
 *     test_wedlm [--trace N]
 *
 * --trace prints what N sequences of random logits do, for wedlm_peer.py, which computes the same in its own way.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/rng.h"
#include "decode/sampler.h"
#include "decode/wedlm.h"

#define N_VOCAB 24
#define N_ROWS  (2 * WEDLM_MOST)
#define STOP    0

static struct kernels kernels;
static uint8_t scratch[KERNEL_SCRATCH_BYTES] __attribute__((aligned(64)));

static struct wedlm window(int size, int n_committed)
{
    struct wedlm w;
    struct wedlm_params p = wedlm_defaults();
    p.window = size;
    wedlm_begin(&w, &p, n_committed);
    return w;
}

/* The entries as letters: M is a mask, and the token i is the letter number i. */
static const char *shown(const struct wedlm *w)
{
    static char text[N_ROWS + 1];
    for (int i = 0; i < w->n; i++) text[i] = w->entries[i].is_filled ? (char)('a' + w->entries[i].token) : 'M';
    text[w->n] = 0;
    return text;
}

/* The entries and the positions of the rows of a pass, in their order. */
static const char *gathered(struct wedlm *w, int end)
{
    static char text[256];
    struct wedlm_row rows[N_ROWS];
    int n = wedlm_gather(w, end, rows), run = wedlm_run(w);
    char *out = text;
    *out = 0;
    for (int r = 0; r < n; r++) {
        assert_int_equal(rows[r].pos, w->from + rows[r].entry);
        if (r < run) assert_true(rows[r].entry == r && rows[r].is_filled);
        if (r && rows[r].is_filled == rows[r - 1].is_filled) assert_true(rows[r].pos > rows[r - 1].pos);
        out += sprintf(out, "%s%d:%d", r ? " " : "", rows[r].entry, rows[r].pos);
    }
    return text;
}

/* Fills masks with the letters of text, one for each; '.' stays a mask. */
static void fill(struct wedlm *w, const char *text)
{
    float entropy[N_ROWS];
    qn_token token[N_ROWS];
    int n = (int)strlen(text), n_filled = 0;
    for (int i = 0; i < n; i++) {
        entropy[i] = text[i] == '.' ? 9 : 0;
        token[i] = text[i] == '.' ? 20 : text[i] - 'a';
        n_filled += text[i] != '.';
    }
    assert_int_equal(wedlm_fill(w, entropy, token, n), n_filled);
}

/* ---- tests ---- */

/* A prompt of three tokens and a window of four. */
static void the_worked_trace(void **state)
{
    struct wedlm w = window(4, 3);
    (void)state;
    assert_string_equal(gathered(&w, 100), "0:3 1:4 2:5 3:6");
    assert_int_equal(wedlm_run(&w), 0);
    fill(&w, "a.c.");
    assert_string_equal(shown(&w), "aMcM");

    assert_string_equal(gathered(&w, 100), "0:3 2:5 1:4 3:6 4:7");
    wedlm_commit(&w, wedlm_run(&w));
    assert_int_equal(w.from, 4);
    fill(&w, "bd.");
    assert_string_equal(shown(&w), "bcdM");

    assert_string_equal(gathered(&w, 100), "0:4 1:5 2:6 3:7 4:8 5:9 6:10");
    wedlm_commit(&w, wedlm_run(&w));
    assert_int_equal(w.from, 7);
    fill(&w, "e...");
    assert_string_equal(shown(&w), "eMMM");

    assert_string_equal(gathered(&w, 100), "0:7 1:8 2:9 3:10 4:11");
    wedlm_commit(&w, wedlm_run(&w));
    assert_int_equal(w.from, 8);
}

/* The other half of the entries of a pass are then masks, so that it can fill some. */
static void a_window_without_masks_grows_to_twice_its_size(void **state)
{
    struct wedlm w = window(4, 0);
    (void)state;
    gathered(&w, 100);
    fill(&w, "abcd");
    assert_int_equal(wedlm_run(&w), 4);
    assert_string_equal(gathered(&w, 100), "0:0 1:1 2:2 3:3 4:4 5:5 6:6 7:7");
    wedlm_commit(&w, 4);
    fill(&w, "efgh");
    assert_string_equal(shown(&w), "efgh");
}

static void near_the_end_there_are_fewer_masks_and_then_none(void **state)
{
    struct wedlm w = window(4, 5);
    (void)state;
    assert_string_equal(gathered(&w, 8), "0:5 1:6 2:7");
    fill(&w, "abc");
    assert_string_equal(gathered(&w, 8), "0:5 1:6 2:7");
    wedlm_commit(&w, 3);
    fill(&w, "");
    assert_string_equal(gathered(&w, 8), "");
}

/* A sequence that ends in the run commits only that far. */
static void a_part_of_the_run_can_be_committed(void **state)
{
    struct wedlm w = window(3, 0);
    (void)state;
    gathered(&w, 100);
    fill(&w, "abc");
    gathered(&w, 100);
    wedlm_commit(&w, 2);
    assert_string_equal(shown(&w), "cMMM");
    assert_int_equal(w.from, 2);
}

/* What the window does in verified mode: tokens come from elsewhere. */
static void known_tokens_push_entries_out(void **state)
{
    struct wedlm w = window(4, 10);
    (void)state;
    gathered(&w, 100);
    fill(&w, "ab.d");
    wedlm_advance(&w, 10);
    assert_string_equal(shown(&w), "abMd");
    wedlm_advance(&w, 13);
    assert_string_equal(shown(&w), "d");
    assert_int_equal(w.from, 13);
    wedlm_advance(&w, 99);
    assert_string_equal(shown(&w), "");
    assert_string_equal(gathered(&w, 200), "0:99 1:100 2:101 3:102");
    fill(&w, "abcd");
    wedlm_mask(&w, 1);
    assert_string_equal(shown(&w), "aMMM");
}

static void the_penalty_counts_from_the_first_mask(void **state)
{
    struct wedlm w = window(4, 0);
    (void)state;
    w.p.entropy_threshold = 0.5f;
    w.p.pos_penalty = 0.25f;
    gathered(&w, 100);
    /* 0.25, 0.5, 0.75, 0.75: the threshold itself is not below it */
    assert_int_equal(wedlm_fill(&w, (float[]){0.25f, 0.25f, 0.25f, 0}, (qn_token[]){0, 1, 2, 3}, 4), 1);
    assert_string_equal(shown(&w), "aMMM");
    gathered(&w, 100);
    wedlm_commit(&w, 1);
    /* 0.25, 0.375, 0.75, 0.75 */
    assert_int_equal(wedlm_fill(&w, (float[]){0.25f, 0.125f, 0.25f, 0}, (qn_token[]){1, 2, 3, 4}, 4), 2);
    assert_string_equal(shown(&w), "bcMM");
}

static void a_step_fills_at_least_one(void **state)
{
    static const float never[] = {0, -1, NAN};
    (void)state;
    for (size_t i = 0; i < sizeof never / sizeof *never; i++) {
        struct wedlm w = window(3, 0);
        w.p.entropy_threshold = never[i];
        gathered(&w, 100);
        assert_int_equal(wedlm_fill(&w, (float[]){2, 0.5f, 0.5f}, (qn_token[]){0, 1, 2}, 3), 1);
        assert_string_equal(shown(&w), "MbM");
        gathered(&w, 100);
        assert_int_equal(wedlm_fill(&w, (float[]){INFINITY, INFINITY}, (qn_token[]){0, 2}, 2), 1);
        assert_string_equal(shown(&w), "abM");
    }
}

static void where_nothing_can_be_drawn_a_mask_stays(void **state)
{
    struct wedlm w = window(3, 0);
    (void)state;
    gathered(&w, 100);
    assert_int_equal(wedlm_fill(&w, (float[]){0, 9, 7}, (qn_token[]){-1, 1, 2}, 3), 1);
    assert_string_equal(shown(&w), "MMc");
    gathered(&w, 100);
    assert_int_equal(wedlm_fill(&w, (float[]){0, 0}, (qn_token[]){-1, -1}, 2), 0);
    assert_string_equal(shown(&w), "MMc");
}

static float entropy_of(const float *logits, int n)
{
    float work[N_VOCAB];
    return wedlm_entropy(&kernels, logits, n, work, scratch);
}

static void entropies_are_those_of_the_raw_logits(void **state)
{
    const float equal[] = {3, 3, 3, 3}, sure[] = {-INFINITY, 900, -INFINITY}, half[] = {NAN, 1, 1, -INFINITY};
    const float nothing[] = {-INFINITY, NAN}, must[] = {1, INFINITY, 2};
    (void)state;
    assert_float_equal(entropy_of(equal, 4), logf(4), 1e-6f); /* a float's rounding */
    assert_true(entropy_of(sure, 3) == 0);
    assert_float_equal(entropy_of(half, 4), logf(2), 1e-6f);
    assert_true(entropy_of(nothing, 2) == INFINITY);
    assert_true(entropy_of(must, 3) == 0);
}

static void parameters_are_checked(void **state)
{
    struct qn_error e;
    struct wedlm_params p = wedlm_defaults();
    (void)state;
    assert_int_equal(wedlm_check(&p, &e), 0);
    p.window = 17;
    assert_int_equal(wedlm_check(&p, &e), QN_EUSAGE);
    assert_string_equal(e.msg, "wedlm: a window of 17 tokens, not 1..16");
    p.window = 0;
    assert_int_equal(wedlm_check(&p, &e), QN_EUSAGE);
    p = wedlm_defaults();
    p.pos_penalty = NAN;
    assert_int_equal(wedlm_check(&p, &e), QN_EUSAGE);
}

/* ---- traces ---- */

/* Number `what` of case i: any 24 bits. */
static uint32_t any(int i, int step, int what)
{
    return (uint32_t)(rng_u64((uint64_t)i, 5, (uint64_t)step << 32 | (uint32_t)what) >> 40);
}

static void random_logits(int i, int step, int pos, float *logits)
{
    float loud = (float)(1 << (any(i, step, pos) % 6)); /* some rows are sure */
    for (int t = 0; t < N_VOCAB; t++) logits[t] = (float)any(i, step, 1000 + pos * N_VOCAB + t) * 0x1p-24f * loud;
}

static struct sampler *random_sampler(int i)
{
    struct qn_sampling p;
    struct sampler *s = NULL;
    qn_sampling_init(&p);
    p.top_p = 1;
    p.min_p = 0;
    p.seed = (uint64_t)i;
    p.temperature = i % 2 ? (float)(any(i, 0, 3) % 8 + 1) / 4 : 0;
    p.top_k = i % 3 ? 0 : (int)(any(i, 0, 4) % 8 + 1);
    if (i % 5 == 0) p.top_p = 0.75f;
    assert_int_equal(sampler_new(&s, &p, N_VOCAB, &kernels, NULL), 0);
    return s;
}

/* Fills the masks of the window, as one step does. */
static void fill_randomly(struct wedlm *w, int i, int step, struct sampler *s)
{
    float entropy[N_ROWS], logits[N_VOCAB];
    qn_token token[N_ROWS];
    int n = 0;
    for (int k = 0; k < w->n; k++) {
        if (w->entries[k].is_filled) continue;
        random_logits(i, step, w->from + k, logits);
        entropy[n] = entropy_of(logits, N_VOCAB);
        assert_int_equal(sampler_pick(s, logits, (uint64_t)(w->from + k), &token[n], NULL), 0);
        n++;
    }
    wedlm_fill(w, entropy, token, n);
}

static void trace(int i)
{
    int n_prompt = 1 + (int)(any(i, 0, 0) % 9), n_ctx = n_prompt + 1 + (int)(any(i, 0, 1) % 40);
    int max_tokens = 1 + (int)(any(i, 0, 2) % 40), n_said = 0;
    struct wedlm_row rows[N_ROWS];
    struct sampler *s = random_sampler(i);
    struct wedlm w = window(1 + (int)(any(i, 0, 5) % WEDLM_MOST), n_prompt);
    w.p.entropy_threshold = (float)(any(i, 0, 6) % 8) / 4;
    w.p.pos_penalty = (float)(any(i, 0, 7) % 4) / 16;
    printf("case %d\n", i);
    for (int step = 1, goes_on = 1; goes_on; step++) {
        int n = wedlm_gather(&w, n_ctx, rows), run = wedlm_run(&w), k = 0;
        if (!n) break;
        printf(" rows");
        for (int r = 0; r < n; r++) printf(" %d:%d", rows[r].pos, rows[r].is_filled ? rows[r].token : -1);
        printf("\n said");
        while (k < run && goes_on) {
            qn_token t = w.entries[k++].token;
            printf(" %d", t);
            goes_on = t != STOP && ++n_said < max_tokens;
        }
        printf("\n");
        wedlm_commit(&w, k);
        if (goes_on) fill_randomly(&w, i, step, s);
    }
    sampler_free(s);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_worked_trace),
        cmocka_unit_test(a_window_without_masks_grows_to_twice_its_size),
        cmocka_unit_test(near_the_end_there_are_fewer_masks_and_then_none),
        cmocka_unit_test(a_part_of_the_run_can_be_committed),
        cmocka_unit_test(known_tokens_push_entries_out),
        cmocka_unit_test(the_penalty_counts_from_the_first_mask),
        cmocka_unit_test(a_step_fills_at_least_one),
        cmocka_unit_test(where_nothing_can_be_drawn_a_mask_stays),
        cmocka_unit_test(entropies_are_those_of_the_raw_logits),
        cmocka_unit_test(parameters_are_checked),
    };
    kernels_init_ref(&kernels);
    if (argc < 3) return cmocka_run_group_tests(tests, NULL, NULL);
    for (int i = 0; i < atoi(argv[2]); i++) trace(i);
    return 0;
}
