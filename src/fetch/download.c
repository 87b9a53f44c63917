/* SPDX-License-Identifier: MIT
 *
 * download.c: downloads one file: goes on where an earlier download stopped, and begins again when the file has changed
 * or moved.
 */
#include "fetch/download.h"

#include <errno.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/log.h"
#include "base/mem.h"
#include "fetch/file_sha256.h"
#include "fetch/transfer.h"

#define MAX_TURNS 4 /* how often the file may change or move while it is fetched */

/* Makes the sidecar of a new download. The URL is remembered without its query, which may be a secret and different
 * each time. */
static int new_sidecar(struct sidecar *side, const struct remote_file *from, struct qn_error *e)
{
    char url[4096];

    error_clean(url, sizeof url, from->source);
    *side = (struct sidecar){
        .url = mem_dup(url, strcspn(url, "?")),
        .version = mem_dup(from->version, strlen(from->version)),
        .size = from->size,
    };
    if (side->url && side->version) return 0;
    sidecar_deinit(side);
    return error_nomem(e, "a URL", sizeof url);
}

/* Whether the bytes here belong to the version that is there now. Without a version, only a hash of the whole file can
 * tell in the end. */
static bool is_same(const struct sidecar *old, const struct sidecar *now, const struct partial_file *part,
                    const char *sha256)
{
    struct stat st;

    return old->size == now->size && !strcmp(old->url, now->url) && !strcmp(old->version, now->version) &&
           (*now->version || *sha256) && fstat(part->fd, &st) == 0 && (uint64_t)st.st_size == old->size;
}

/* Takes over the bytes of an earlier call, if they are of use. */
static int take_old(struct sidecar *now, const struct partial_file *part, const char *sha256, struct qn_error *e)
{
    struct sidecar old;
    struct qn_error why;
    int r = sidecar_load(&old, part->side, &why);

    if (r == 0 && is_same(&old, now, part, sha256)) {
        sidecar_deinit(now);
        *now = old;
        return 0;
    }
    if (r < 0)
        log_at(LOG_WARN, "'%s' is begun anew: %s", part->path, why.msg);
    else if (r == 0 && spans_bytes(&old.written) > 0)
        log_at(LOG_WARN, "'%s' is begun anew: the file at its source is another one now", part->path);
    if (r == 0) sidecar_deinit(&old);
    sidecar_remove(part->side);
    if (ftruncate(part->fd, 0)) return error_set(e, QN_EIO, "cannot write '%s': %s", part->part, strerror(errno));
    return 0;
}

static int make_room(const struct partial_file *part, const struct sidecar *side, struct qn_error *e)
{
    uint64_t here = spans_bytes(&side->written);
    int r = partial_check_space(part, side->size - here, e);

    if (r) return r;
    if (ftruncate(part->fd, (off_t)side->size) == 0) return 0;
    return error_set(e, QN_EIO, "cannot make '%s' %llu bytes long: %s", part->part, (unsigned long long)side->size,
                     strerror(errno));
}

/* Fetches one version from one address. Returns what transfer() returns. */
static int fetch_version(struct partial_file *part, const struct remote_file *from, const char *sha256,
                         const struct fetch_options *o, struct qn_error *e)
{
    struct sidecar side;
    int r = new_sidecar(&side, from, e);

    if (r) return r;
    r = take_old(&side, part, sha256, e);
    if (r == 0) r = make_room(part, &side, e);
    if (r == 0) r = transfer(from, part, &side, o, e);
    sidecar_deinit(&side);
    return r;
}

static int verify(struct partial_file *part, const char *sha256, const struct fetch_options *o, struct qn_error *e)
{
    char hex[65];
    int r = *sha256 ? file_sha256(hex, part->fd, part->part, o, e) : 0;

    if (r || !*sha256 || !strcmp(hex, sha256)) return r;
    r = partial_reject(part, e);
    return r ? r
             : error_set(e, QN_EDATA, "'%s' has the SHA-256 %s, not %s; what came is '%s'", part->path, hex, sha256,
                         part->bad);
}

int download(struct partial_file *part, struct remote_file *from, bool is_hub, const char *sha256,
             const struct fetch_options *o, struct qn_error *e)
{
    int r;

    for (int turn = 0; turn < MAX_TURNS; turn++) {
        struct remote_file again;
        if (*sha256 && *from->sha256 && strcmp(sha256, from->sha256))
            return error_set(e, QN_EDATA, "'%s' has the SHA-256 %s by its hub, not %s", from->source, from->sha256,
                             sha256);
        r = fetch_version(part, from, sha256, o, e);
        if (r < 0) return r;
        if (r == TRANSFER_DONE) return verify(part, *sha256 ? sha256 : from->sha256, o, e);
        if ((r = remote_file_open(&again, o, from->source, is_hub, e))) return r;
        remote_file_close(from);
        *from = again;
    }
    return error_set(e, QN_EIO, "'%s' changed or moved %d times while it was being fetched", from->source, MAX_TURNS);
}
