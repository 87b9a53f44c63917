/* SPDX-License-Identifier: MIT
 *
 * check_self.c: that the checks can fail.
 *
 * A comparison that always passes proves nothing, so here the faults it is there to find are
 * made on purpose: another order of additions, one bit, an unwritten element, a write beside the
 * output, a read past the end.
 */
#include "harness.h"

#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

static void expect(bool ok, const char *what)
{
    n_checked++;
    describe("self-test");
    if (!ok) fail("%s was not noticed", what);
}

/* Reverses the n groups of `bytes` bytes. */
static void reverse(uint8_t *p, int n, size_t bytes)
{
    uint8_t t[1024];
    for (int i = 0; i < n / 2; i++) {
        uint8_t *a = p + (size_t)i * bytes, *b = p + (size_t)(n - 1 - i) * bytes;
        memcpy(t, a, bytes);
        memcpy(a, b, bytes);
        memcpy(b, t, bytes);
    }
}

/* The same products summed from the last block to the first must not give the same bits in all of 64 outputs. */
static void self_order(enum dtype t)
{
    enum { K = 2048, ROWS = 64 };
    static uint8_t w[ROWS * K * 4];
    static _Alignas(64) uint8_t row[K * 8];
    float x[K], a[ROWS], b[ROWS];
    const struct dtype_info *info = dtype_get(t);
    size_t ld = dtype_row_bytes(t, K);
    int n_blocks = K / info->block;
    struct gemm g = {.w = w, .ld_w = ld, .n_rows = ROWS, .k = K, .x = row, .n_cols = 1, .y = a, .ld_y = ROWS};
    g.ld_x = act_row_bytes(kernel_act_of(t), K);
    for (int r = 0; r < ROWS; r++) fill_weights(t, w + (size_t)r * ld, K, W_RANDOM);
    fill_floats(x, K, X_NORMAL);
    table[CPU_REF].quant[kernel_act_of(t)](x, 0, K, K, row, NULL);
    table[CPU_REF].gemm[t](&g, NULL);
    for (int r = 0; r < ROWS; r++) reverse(w + (size_t)r * ld, n_blocks, info->bytes);
    reverse((uint8_t *)x, n_blocks, info->block * sizeof *x);
    table[CPU_REF].quant[kernel_act_of(t)](x, 0, K, K, row, NULL);
    g.y = b;
    table[CPU_REF].gemm[t](&g, NULL);
    float largest = 0;
    for (int r = 0; r < ROWS; r++) largest = fmaxf(largest, fabsf(a[r] - b[r]) / (fabsf(a[r]) + 1.0f));
    expect(largest < 1e-3f, "that the reversed sum is another sum altogether: the self-test is wrong; it");
    expect(first_difference(a, b, ROWS) >= 0, "another order of the blocks");
}

static void self_compare(void)
{
    float a[8] = {1, -0.0f, NAN, INFINITY, 0, 5, 6, 7}, b[8];
    memcpy(b, a, sizeof a);
    b[2] = -NAN;
    expect(first_difference(a, b, 8) < 0, "that NaN equals NaN");
    b[1] = 0.0f;
    expect(first_difference(a, b, 8) == 1, "the sign of zero");
    memcpy(b, a, sizeof a);
    b[7] = nextafterf(7, 8);
    expect(first_difference(a, b, 8) == 7, "the last bit");
    b[7] = NAN;
    expect(first_difference(a, b, 8) == 7, "NaN instead of a number");
}

/* A canary that was overwritten. The failure it makes is taken back. */
static void self_canary(void)
{
    int failed = n_failed, printed = dup(1);
    struct guarded g = guarded_new(100, 0, AT_START);
    g.p[100] = 1;
    fflush(stdout);
    if (!freopen("/dev/null", "w", stdout)) return;
    guarded_free(&g);
    fflush(stdout);
    dup2(printed, 1);
    close(printed);
    bool noticed = n_failed == failed + 1;
    n_failed = failed;
    expect(noticed, "a write beside a buffer");
}

/* A child that reads one byte too many must die. */
static void self_fault(enum place where, int offset)
{
    struct guarded g = guarded_new(100, 0, where);
    fflush(stdout);
    pid_t pid = fork();
    if (pid == 0) {
        signal(SIGSEGV, SIG_DFL);
        volatile uint8_t *p = g.p;
        (void)p[offset];
        _exit(0);
    }
    int status = 0;
    waitpid(pid, &status, 0);
    expect(WIFSIGNALED(status), "a read outside a buffer");
    guarded_free(&g);
}

void check_self(void)
{
    self_compare();
    self_canary();
    self_fault(AT_END, 100);
    self_fault(AT_START, -1);
    self_order(DT_F32);
    self_order(DT_Q8_0);
    self_order(DT_Q4_K);
    self_order(DT_IQ2_S);
}
