/* SPDX-License-Identifier: MIT
 *
 * last_cuts.c: reads and writes the file DIR/placement: the key in hexadecimal digits, and the cuts. See last_cuts.h.
 */
#include "cluster/disk/last_cuts.h"

#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>

#include "base/log.h"
#include "base/out_file.h"
#include "engine/core/stage.h"

#define MOST_TEXT (2 * SHA256_BYTES + 16 * (STAGE_MOST + 1))

static int path_of(const char *dir, char path[PATH_MAX], struct qn_error *e)
{
    if (snprintf(path, PATH_MAX, "%s/placement", dir) < PATH_MAX) return 0;
    return error_set(e, QN_EIO, "the path '%s' is too long", dir);
}

/* Whether the numbers after the key are cuts. */
static bool read_cuts(FILE *f, int n_stages, int n_layer, int32_t *cuts)
{
    int last = -1;
    for (int i = 0; i <= n_stages; last = cuts[i++])
        if (fscanf(f, "%" SCNd32, &cuts[i]) != 1 || cuts[i] <= last || cuts[i] > n_layer) return false;
    return cuts[0] == 0 && cuts[n_stages] == n_layer && fscanf(f, "%*d") == EOF;
}

bool last_cuts_read(const char *dir, const uint8_t key[SHA256_BYTES], int n_stages, int n_layer, int32_t *cuts)
{
    char path[PATH_MAX], own[2 * SHA256_BYTES + 1], its[2 * SHA256_BYTES + 1] = "";
    FILE *f = path_of(dir, path, NULL) ? NULL : fopen(path, "re");
    if (!f) return false;
    sha256_hex(key, own);
    bool is_ours = fscanf(f, "%64s", its) == 1 && !strcmp(its, own) && read_cuts(f, n_stages, n_layer, cuts);
    fclose(f);
    return is_ours;
}

void last_cuts_write(const char *dir, const uint8_t key[SHA256_BYTES], int n_stages, const int32_t *cuts)
{
    char path[PATH_MAX], text[MOST_TEXT];
    struct out_file f = {0};
    struct qn_error e;
    sha256_hex(key, text);
    for (int i = 0, n = (int)strlen(text); i <= n_stages; i++)
        n += snprintf(text + n, sizeof text - (size_t)n, i < n_stages ? " %" PRId32 : " %" PRId32 "\n", cuts[i]);
    int rc = path_of(dir, path, &e);
    if (!rc) rc = out_file_open(&f, path, &e);
    if (!rc) rc = out_file_write(&f, text, strlen(text), &e);
    if (!rc) rc = out_file_commit(&f, &e);
    out_file_abort(&f);
    if (rc) log_at(LOG_WARN, "cache: the next start may divide the layers in another way: %s", e.msg);
}
