/* SPDX-License-Identifier: MIT
 *
 * test_dequant.c: every stored type against values decoded by the format's own reader.
 *
 * $QUERN_SHARED/spec/quant_golden.txt holds one random block per type with the values an
 * independent engine decodes it to. They are exact decimal numbers, so bits are compared, the
 * sign of zero included. Exits with 77 (skipped) when the data is missing, but fails in CI.
 */
#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "kernel/kernel.h"

#define MAX_BLOCK 256

/* "hex: 00ff..." to bytes; returns how many. */
static int parse_hex(const char *s, uint8_t *out, int max)
{
    int n = 0;
    unsigned byte;
    while (n < max && sscanf(s + 2 * n, "%2x", &byte) == 1) out[n++] = (uint8_t)byte;
    return n;
}

static int find_type(const char *name)
{
    for (int t = 0; t < DT_N; t++) {
        const struct dtype_info *info = dtype_get(t);
        if (info && strcasecmp(info->name, name) == 0) return t;
    }
    return -1;
}

/* Returns the number of elements that differ from the text's numbers. */
static int compare(const char *name, const float *y, int n, const char *text)
{
    int bad = 0;
    char *end;
    for (int i = 0; i < n; i++, text = end) {
        float want = strtof(text, &end);
        if (end == text || memcmp(&want, &y[i], sizeof want) != 0) {
            printf("%s: element %d is %.9g, should be %.9g\n", name, i, (double)y[i], (double)want);
            bad++;
        }
    }
    return bad;
}

int main(void)
{
    const char *dir = getenv("QUERN_SHARED");
    char path[4096], name[64] = "";
    snprintf(path, sizeof path, "%s/spec/quant_golden.txt", dir ? dir : "../shared");
    FILE *f = fopen(path, "r");
    if (!f) {
        printf("%s is missing\n", path);
        return getenv("CI") ? 1 : 77;
    }
    static char line[1 << 16];
    uint8_t block[MAX_BLOCK];
    int type = -1, n_types = 0, bad = 0;
    bool seen[DT_N] = {false};
    while (fgets(line, sizeof line, f)) {
        if (sscanf(line, "## %63s id=", name) == 1 && (type = find_type(name)) < 0) {
            printf("unknown type %s\n", name);
            bad++;
        } else if (strncmp(line, "hex: ", 5) == 0 && type >= 0) {
            int n = parse_hex(line + 5, block, MAX_BLOCK);
            assert(n == dtype_get(type)->bytes);
        } else if (strncmp(line, "val: ", 5) == 0 && type >= 0) {
            float y[MAX_BLOCK];
            int n = dtype_get(type)->block;
            dequant_row((enum dtype)type, block, NULL, n, y);
            bad += compare(name, y, n, line + 5);
            seen[type] = true;
            n_types++;
        }
    }
    fclose(f);
    for (int t = 0; t < DT_GGUF_N; t++) {
        const struct dtype_info *info = dtype_get(t);
        if (info && info->tail) continue; /* that engine does not know I2_S: see tests/unit/model/test_families.c */
        if (kernel_act_of((enum dtype)t) != ACT_N && kernel_act_of((enum dtype)t) != ACT_F32 && !seen[t]) {
            printf("no golden block of %s\n", info->name);
            bad++;
        }
    }
    printf("%d types, %d elements differ\n", n_types, bad);
    return bad != 0;
}
