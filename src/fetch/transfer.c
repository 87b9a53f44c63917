/* SPDX-License-Identifier: MIT
 *
 * transfer.c: several connections that fetch one file.
 *
 * A lane is one connection at work. Its bytes are chosen when it starts: the first ones that are neither written nor
 * another lane's, up to the end of their piece. If a lane ends too early, the bytes that it has not brought are free
 * again.
 *
 * A byte is written only if the reply's headers say that it is the one asked for, of the version asked for, and never
 * one more than was asked for, whatever the server sends.
 *
 * After a loss all lanes wait: half a second, then twice as long each time, as long as few bytes come in between. So a
 * server that was restarted is found again, and one that is gone is given up after half a minute.
 *
 * A server that gives no parts gets one lane, which begins at the first byte each time.
 */
#include "fetch/transfer.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>
#include <unistd.h>

#include "base/log.h"
#include "base/os.h"
#include "fetch/get.h"

#define MAX_LANES   16
#define PIECE_MIN   ((uint64_t)4 << 20)
#define PIECE_MAX   ((uint64_t)256 << 20)
#define MAX_LOSSES  6
#define PAUSE_NS    ((uint64_t)500000000)
#define PAUSE_MAX_S 60
#define ENOUGH      ((uint64_t)64 << 10) /* after so many bytes a loss counts as the first one again */
#define KEEP_NS     ((uint64_t)200000000)
#define SYNC_NS     ((uint64_t)10000000000)
#define POLL_MS     100

struct transfer;

struct lane {
    struct transfer *t;
    CURL *h; /* NULL: idle */
    struct curl_slist *headers;
    uint64_t from, at, to; /* positions in bytes: where it began, where it is, where it ends */
    bool is_checked;       /* the reply's headers */
    int end;               /* the result of a callback: an enum transfer_end, or QN_E* with `error`; 0: none yet */
    bool is_fatal;         /* no other try would help */
    struct qn_error error;
};

struct transfer {
    const struct curl *curl;
    CURLM *multi;
    const struct remote_file *from;
    const struct partial_file *part;
    struct sidecar *side;
    const struct fetch_options *o;
    struct lane lane[MAX_LANES];
    int n_lanes;
    uint64_t piece; /* bytes */

    int n_losses;
    uint64_t since_loss; /* bytes */
    uint64_t not_before; /* clock_ns() before which no lane starts */

    uint64_t fresh, keep_bytes;  /* bytes since the sidecar was written; bytes after which it is written again */
    uint64_t kept_ns, synced_ns; /* when */
};

/* ---- the sidecar ---- */

static int keep(struct transfer *t, bool now, struct qn_error *e)
{
    uint64_t ns = clock_ns();
    bool durable = now || ns - t->synced_ns >= SYNC_NS;

    if (!now && (!t->fresh || (t->fresh < t->keep_bytes && ns - t->kept_ns < KEEP_NS))) return 0;
    if (durable) {
        if (fdatasync(t->part->fd) && errno != EINVAL)
            return error_set(e, QN_EIO, "cannot write '%s': %s", t->part->part, strerror(errno));
        if (spans_copy(&t->side->synced, &t->side->written, e)) return QN_ENOMEM;
    }
    if (sidecar_save(t->side, t->part->side, durable, e)) return QN_EIO;
    t->fresh = 0;
    t->kept_ns = clock_ns();
    if (durable) t->synced_ns = t->kept_ns;
    return 0;
}

/* ---- a lane's reply ---- */

static int lose(struct lane *l, const char *why)
{
    l->end = error_set(&l->error, QN_EIO, "cannot fetch '%s': %s", l->t->from->source, why);
    return -1;
}

/* Ends the lane with l->error, which concerns this machine. */
static int give_up(struct lane *l)
{
    l->end = l->error.code;
    l->is_fatal = true;
    return -1;
}

static int end_as(struct lane *l, enum transfer_end end)
{
    l->end = end;
    return -1;
}

static bool is_other_version(const struct lane *l, uint64_t total)
{
    const char *etag = get_header(l->t->curl, l->h, "ETag");

    if (total != l->t->side->size) return true;
    return etag && *l->t->from->etag && strcmp(remote_file_etag(etag), l->t->from->etag) != 0;
}

static int check_part(struct lane *l)
{
    uint64_t first, last, total;
    curl_off_t length = -1;

    l->t->curl->easy_getinfo(l->h, CURLINFO_CONTENT_LENGTH_DOWNLOAD_T, &length);
    if (remote_file_content_range(get_header(l->t->curl, l->h, "Content-Range"), &first, &last, &total))
        return lose(l, "its server does not say which part of the file it sends");
    if (is_other_version(l, total)) return end_as(l, TRANSFER_CHANGED);
    if (first != l->from || last >= l->to)
        return lose(l, "its server sends another part of the file than was asked for");
    if (length >= 0 && (uint64_t)length != last - first + 1)
        return lose(l, "its server contradicts itself about the length");
    return 0;
}

static int check_whole(struct lane *l)
{
    curl_off_t length = -1;

    l->t->curl->easy_getinfo(l->h, CURLINFO_CONTENT_LENGTH_DOWNLOAD_T, &length);
    if (is_other_version(l, (uint64_t)length)) return end_as(l, TRANSFER_CHANGED);
    return l->t->from->has_ranges ? end_as(l, TRANSFER_WHOLE) : 0;
}

/* The headers have come: checks that they answer the request. -1: they do not, and l->end says what it is. */
static int check_reply(struct lane *l)
{
    const char *coding = get_header(l->t->curl, l->h, "Content-Encoding");
    char why[64];
    long status = 0;

    l->is_checked = true;
    l->t->curl->easy_getinfo(l->h, CURLINFO_RESPONSE_CODE, &status);
    if (coding && strcasecmp(coding, "identity")) return lose(l, "it is sent compressed, which was not asked for");
    if (status == 206 && l->t->from->has_ranges) return check_part(l);
    if (status == 200) return check_whole(l);
    if (status == 416 || status == 412) return end_as(l, TRANSFER_CHANGED);
    if (status / 100 == 3 || status == 401 || status == 403 || status == 404 || status == 410)
        return end_as(l, TRANSFER_MOVED);
    snprintf(why, sizeof why, "its server says %ld", status);
    return lose(l, why);
}

static int write_all(struct lane *l, const char *p, size_t n)
{
    while (n > 0) {
        ssize_t done = pwrite(l->t->part->fd, p, n, (off_t)l->at);
        if (done < 0 && errno == EINTR) continue;
        if (done <= 0) {
            error_set(&l->error, QN_EIO, "cannot write '%s': %s", l->t->part->part, strerror(errno));
            return give_up(l);
        }
        if (spans_add(&l->t->side->written, l->at, l->at + (uint64_t)done, &l->error)) return give_up(l);
        l->at += (uint64_t)done;
        l->t->fresh += (uint64_t)done;
        l->t->since_loss += (uint64_t)done;
        p += done;
        n -= (size_t)done;
    }
    return 0;
}

static size_t on_body(char *data, size_t size, size_t n, void *arg)
{
    struct lane *l = arg;

    n *= size;
    if (!l->is_checked && check_reply(l)) return 0;
    if (n > l->to - l->at) {
        lose(l, "its server sends more than was asked for");
        return 0;
    }
    return write_all(l, data, n) ? 0 : n;
}

/* ---- lanes ---- */

/* The first bytes that are not here and that no lane fetches; false: there are none. */
static bool next_gap(const struct transfer *t, uint64_t *from, uint64_t *to)
{
    uint64_t at = 0, end = 0;

    for (bool moved = true; moved;) {
        at = spans_gap(&t->side->written, at, &end);
        moved = false;
        for (int i = 0; i < t->n_lanes; i++)
            if (t->lane[i].h && t->lane[i].at <= at && at < t->lane[i].to) {
                at = t->lane[i].to;
                moved = true;
            }
    }
    if (at >= t->side->size) return false;
    if (end > t->side->size) end = t->side->size;
    if (t->from->has_ranges && end > (at / t->piece + 1) * t->piece) end = (at / t->piece + 1) * t->piece;
    for (int i = 0; i < t->n_lanes; i++)
        if (t->lane[i].h && t->lane[i].at > at && t->lane[i].at < end) end = t->lane[i].at;
    *from = at;
    *to = end;
    return true;
}

static int add_header(struct transfer *t, struct lane *l, const char *name, const char *value, struct qn_error *e)
{
    char line[300];
    struct curl_slist *more;

    snprintf(line, sizeof line, "%s: %s", name, value);
    more = t->curl->slist_append(l->headers, line);
    if (!more) return error_nomem(e, "a request", sizeof line);
    l->headers = more;
    t->curl->easy_setopt(l->h, CURLOPT_HTTPHEADER, more);
    return 0;
}

static void stop_lane(struct lane *l)
{
    if (!l->h) return;
    l->t->curl->multi_remove_handle(l->t->multi, l->h);
    l->t->curl->easy_cleanup(l->h);
    l->t->curl->slist_free_all(l->headers);
    l->h = NULL;
}

static int start_lane(struct transfer *t, struct lane *l, uint64_t from, uint64_t to, struct qn_error *e)
{
    char range[64];

    *l = (struct lane){.t = t, .from = from, .at = from, .to = to};
    l->h = get_handle(t->curl, t->o, t->from->source, t->from->url, &l->headers, e);
    if (!l->h) return e->code;
    t->curl->easy_setopt(l->h, CURLOPT_WRITEFUNCTION, on_body);
    t->curl->easy_setopt(l->h, CURLOPT_WRITEDATA, l);
    t->curl->easy_setopt(l->h, CURLOPT_PRIVATE, l);
    if (t->from->has_ranges) {
        snprintf(range, sizeof range, "%llu-%llu", (unsigned long long)from, (unsigned long long)to - 1);
        t->curl->easy_setopt(l->h, CURLOPT_RANGE, range);
        if (*t->from->if_range && add_header(t, l, "If-Range", t->from->if_range, e)) return QN_ENOMEM;
    }
    if (t->curl->multi_add_handle(t->multi, l->h)) return error_nomem(e, "a transfer", 0);
    return 0;
}

/* Says whether the same command goes on. */
static int stopped(const struct transfer *t, struct qn_error *e)
{
    return error_set(e, QN_ECANCEL, "stopped while '%s' was being fetched; the same command %s", t->from->source,
                     t->from->has_ranges ? "goes on from here"
                                         : "begins again: its server cannot send parts of a file");
}

static int start_lanes(struct transfer *t, struct qn_error *e)
{
    uint64_t from, to;
    int r = 0;

    if (clock_ns() < t->not_before) return 0;
    for (int i = 0; i < t->n_lanes && r == 0; i++) {
        if (t->lane[i].h || !next_gap(t, &from, &to)) continue;
        if (!t->from->has_ranges && from > 0) { /* the bytes that came so far are of no use */
            spans_clear(&t->side->written);
            spans_clear(&t->side->synced);
            from = 0;
        }
        r = start_lane(t, &t->lane[i], from, to, e);
    }
    return r;
}

static int count_loss(struct transfer *t, struct lane *l, struct qn_error *e)
{
    uint64_t now = clock_ns(), pause;
    curl_off_t wish = 0;

    if (now < t->not_before) return 0; /* the other lanes were lost together with the first */
    if (t->since_loss >= ENOUGH && t->from->has_ranges) t->n_losses = 0;
    t->since_loss = 0;
    if (++t->n_losses > MAX_LOSSES) {
        *e = l->error;
        return e->code;
    }
    pause = PAUSE_NS << (t->n_losses - 1);
    t->curl->easy_getinfo(l->h, CURLINFO_RETRY_AFTER, &wish);
    if (wish > PAUSE_MAX_S) wish = PAUSE_MAX_S;
    if (wish > 0 && (uint64_t)wish * 1000000000 > pause) pause = (uint64_t)wish * 1000000000;
    t->not_before = now + pause;
    return 0;
}

/* Handles the end of a lane, good or bad. 0, or the result of transfer(). */
static int finish_lane(struct transfer *t, struct lane *l, CURLcode rc, struct qn_error *e)
{
    int r = 0;

    if (rc == CURLE_OK && !l->is_checked) check_reply(l); /* a reply without a body */
    if (l->end == 0 && (rc || l->at < l->to))
        lose(l, rc ? get_why(t->curl, rc) : "its server sends less than was asked for");
    if (rc == CURLE_ABORTED_BY_CALLBACK) {
        r = stopped(t, e);
    } else if (l->end > 0) {
        r = l->end;
    } else if (l->is_fatal || rc == CURLE_PEER_FAILED_VERIFICATION) {
        *e = l->error;
        r = e->code;
    } else if (l->end < 0) {
        r = count_loss(t, l, e);
    }
    stop_lane(l);
    return r;
}

static int finish_lanes(struct transfer *t, struct qn_error *e)
{
    CURLMsg *m;
    int n, r = 0;

    while (r == 0 && (m = t->curl->multi_info_read(t->multi, &n))) {
        struct lane *l = NULL;
        CURLcode rc = m->data.result; /* m is freed with its handle */
        t->curl->easy_getinfo(m->easy_handle, CURLINFO_PRIVATE, &l);
        r = finish_lane(t, l, rc, e);
    }
    return r;
}

static bool is_idle(const struct transfer *t)
{
    uint64_t from, to;

    for (int i = 0; i < t->n_lanes; i++)
        if (t->lane[i].h) return false;
    return !next_gap(t, &from, &to);
}

static int run(struct transfer *t, struct qn_error *e)
{
    CURLMcode mc;
    int n, r;

    for (;;) {
        if ((r = start_lanes(t, e))) return r;
        if (is_idle(t)) return TRANSFER_DONE;
        mc = t->curl->multi_perform(t->multi, &n);
        if (mc) return error_set(e, QN_EIO, "cannot fetch '%s': %s", t->from->source, t->curl->multi_strerror(mc));
        if ((r = finish_lanes(t, e))) return r;
        if ((r = keep(t, false, e))) return r;
        if (!t->o->watch(t->o->arg, "fetching", spans_bytes(&t->side->written), t->side->size)) return stopped(t, e);
        t->curl->multi_poll(t->multi, NULL, 0, POLL_MS, NULL);
    }
}

int transfer(const struct remote_file *from, const struct partial_file *part, struct sidecar *side,
             const struct fetch_options *o, struct qn_error *e)
{
    struct transfer t = {.curl = curl_load(e), .from = from, .part = part, .side = side, .o = o};
    int r, n_lanes = o->n_connections < MAX_LANES ? o->n_connections : MAX_LANES;

    if (!t.curl) return QN_EUNSUP;
    if (!from->has_ranges && spans_bytes(&side->written) < side->size) {
        if (spans_bytes(&side->written) > 0)
            log_at(LOG_WARN, "'%s' is begun anew: its server cannot send parts of a file", part->path);
        spans_clear(&side->written);
        spans_clear(&side->synced);
    }
    t.multi = t.curl->multi_init();
    if (!t.multi) return error_nomem(e, "a transfer", 0);
    /* One connection is enough for a limited speed, and keeps the limit exactly. */
    t.n_lanes = from->has_ranges && !o->bytes_per_s ? n_lanes : 1;
    t.piece = side->size / 64;
    if (t.piece < PIECE_MIN) t.piece = PIECE_MIN;
    if (t.piece > PIECE_MAX) t.piece = PIECE_MAX;
    t.keep_bytes = side->size / 1024;
    t.kept_ns = t.synced_ns = clock_ns();
    r = run(&t, e);
    for (int i = 0; i < t.n_lanes; i++) stop_lane(&t.lane[i]);
    t.curl->multi_cleanup(t.multi);
    if (r >= 0 || r == QN_ECANCEL || r == QN_EIO) {
        int kept = keep(&t, true, r < 0 ? NULL : e);
        if (r >= 0 && kept) r = kept;
    }
    return r;
}
