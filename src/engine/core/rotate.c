/* SPDX-License-Identifier: MIT
 *
 * rotate.c: see rotate.h.
 */
#include "engine/core/rotate.h"

int rotate_check(int n_ctx, int keep, struct qn_error *e)
{
    if (n_ctx >= 4 && keep >= 0 && keep <= n_ctx / 2) return 0;
    return error_set(e, QN_EUSAGE, "context: rotate:%d keeps more than half of the context of %d tokens", keep, n_ctx);
}

size_t rotate_dropped(size_t n, int n_ctx, int keep)
{
    size_t step = (size_t)rotate_step(n_ctx, keep);
    return n < (size_t)n_ctx ? 0 : step * ((n - (size_t)n_ctx) / step + 1);
}
