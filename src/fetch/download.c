/* SPDX-License-Identifier: MIT
 *
 * download.c: see download.h.
 */
#include "fetch/download.h"

#include <errno.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/log.h"
#include "base/mem.h"
#include "fetch/sha256.h"
#include "fetch/transfer.h"

#define MAX_TURNS 4 /* times that the file may change or move while it is fetched */

/* The URL as it is remembered: without its query, which may be a secret and another one each time. */
static int new_sidecar(struct sidecar *side, const struct probe *from, struct qn_error *e)
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

/* Whether what has come is of what is there now. Without a version only a hash of the whole can tell in the end. */
static bool is_same(const struct sidecar *old, const struct sidecar *now, const struct part *part, const char *sha256)
{
    struct stat st;

    return old->size == now->size && !strcmp(old->url, now->url) && !strcmp(old->version, now->version) &&
           (*now->version || *sha256) && fstat(part->fd, &st) == 0 && (uint64_t)st.st_size == old->size;
}

/* Takes over what an earlier call has brought, if that is of use. */
static int take_old(struct sidecar *now, const struct part *part, const char *sha256, struct qn_error *e)
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

static int make_room(const struct part *part, const struct sidecar *side, struct qn_error *e)
{
    uint64_t here = spans_bytes(&side->written);
    int r = part_check_space(part, side->size - here, e);

    if (r) return r;
    if (ftruncate(part->fd, (off_t)side->size) == 0) return 0;
    return error_set(e, QN_EIO, "cannot make '%s' %llu bytes long: %s", part->part, (unsigned long long)side->size,
                     strerror(errno));
}

/* One version from one address. As transfer(). */
static int fetch_version(struct part *part, const struct probe *from, const char *sha256, const struct fetch_options *o,
                         struct qn_error *e)
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

static int verify(struct part *part, const char *sha256, const struct fetch_options *o, struct qn_error *e)
{
    char hex[65];
    int r = *sha256 ? sha256_file(hex, part->fd, part->part, o, e) : 0;

    if (r || !*sha256 || !strcmp(hex, sha256)) return r;
    r = part_reject(part, e);
    return r ? r
             : error_set(e, QN_EDATA, "'%s' has the SHA-256 %s, not %s; what came is '%s'", part->path, hex, sha256,
                         part->bad);
}

int download(struct part *part, struct probe *from, bool is_hub, const char *sha256, const struct fetch_options *o,
             struct qn_error *e)
{
    int r;

    for (int turn = 0; turn < MAX_TURNS; turn++) {
        struct probe again;
        if (*sha256 && *from->sha256 && strcmp(sha256, from->sha256))
            return error_set(e, QN_EDATA, "'%s' has the SHA-256 %s by its hub, not %s", from->source, from->sha256,
                             sha256);
        r = fetch_version(part, from, sha256, o, e);
        if (r < 0) return r;
        if (r == TRANSFER_DONE) return verify(part, *sha256 ? sha256 : from->sha256, o, e);
        if ((r = probe_open(&again, o, from->source, is_hub, e))) return r;
        probe_close(from);
        *from = again;
    }
    return error_set(e, QN_EIO, "'%s' changed or moved %d times while it was being fetched", from->source, MAX_TURNS);
}
