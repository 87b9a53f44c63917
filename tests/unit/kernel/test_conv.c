/* SPDX-License-Identifier: MIT
 *
 * test_conv.c: the state that the convolution of gated DeltaNet leaves: the inputs of the last rows, however few rows
 * a call has.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <string.h>

#include "base/rng.h"
#include "kernel/cpu.h"

enum { N_CHANNELS = 37, N_ROWS = 12, MAX_TAPS = 5 };

static _Alignas(64) uint8_t scratch[KERNEL_SCRATCH_BYTES];

struct world {
    float w[N_CHANNELS * MAX_TAPS], x[N_ROWS * N_CHANNELS], y[N_ROWS * N_CHANNELS];
    float state[(MAX_TAPS - 1) * N_CHANNELS], y_all[N_ROWS * N_CHANNELS], before[(MAX_TAPS - 1) * N_CHANNELS];
};

static void fill(float *x, size_t n, uint64_t stream)
{
    for (size_t i = 0; i < n; i++) x[i] = (float)rng_uniform(21, stream, i) - 0.5F;
}

static void run(const struct kernels *k, struct world *v, int n_taps, int row, int n_rows, float *y)
{
    struct conv c = {.w = v->w,
                     .n_taps = n_taps,
                     .n_channels = N_CHANNELS,
                     .n_rows = n_rows,
                     .x = v->x + row * N_CHANNELS,
                     .y = y + row * N_CHANNELS,
                     .ld_x = N_CHANNELS,
                     .ld_y = N_CHANNELS,
                     .state = v->state,
                     .ld_state = N_CHANNELS};
    k->conv_silu(&c, scratch);
}

/* Row `row` of what came before and then x: row -1 is the last one before the first call. */
static const float *input(const struct world *v, int n_taps, int row)
{
    return row < 0 ? v->before + (n_taps - 1 + row) * N_CHANNELS : v->x + row * N_CHANNELS;
}

/* Calls of n rows each: the state after each, and the results beside those of one call. */
static void check(const struct kernels *k, int n_taps, int n)
{
    static struct world v;
    fill(v.w, N_CHANNELS * MAX_TAPS, 1);
    fill(v.x, N_ROWS * N_CHANNELS, 2);
    fill(v.before, (MAX_TAPS - 1) * N_CHANNELS, 3);
    memcpy(v.state, v.before, sizeof v.state);
    run(k, &v, n_taps, 0, N_ROWS, v.y_all);
    memcpy(v.state, v.before, sizeof v.state);
    for (int row = 0; row < N_ROWS; row += n) {
        const int n_rows = N_ROWS - row < n ? N_ROWS - row : n;
        run(k, &v, n_taps, row, n_rows, v.y);
        for (int i = 0; i < n_taps - 1; i++)
            assert_memory_equal(v.state + i * N_CHANNELS, input(&v, n_taps, row + n_rows - (n_taps - 1) + i),
                                N_CHANNELS * sizeof(float));
    }
    assert_memory_equal(v.y, v.y_all, sizeof v.y);
}

static void the_state_is_the_last_inputs(void **state)
{
    (void)state;
    for (enum cpu_level l = 0; l < CPU_N; l++) {
        struct kernels k;
        if (!cpu_has(l)) continue;
        kernels_init(&k, l);
        for (int n_taps = 2; n_taps <= MAX_TAPS; n_taps++)
            for (int n = 1; n <= N_ROWS; n++) check(&k, n_taps, n);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(the_state_is_the_last_inputs)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
