/* SPDX-License-Identifier: MIT
 *
 * sidecar.c: reads and writes the small JSON file next to an unfinished download.
 */
#include "fetch/sidecar.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include <jansson.h>

#include "base/buf.h"
#include "base/json/json_text.h"
#include "base/os.h"

#define FORM       "quern-part-1"
#define MAX_BYTES  ((size_t)1 << 20)
#define BOOT_FILE  "/proc/sys/kernel/random/boot_id"
#define BOOT_BYTES 64
#define NEW_ENDING ".new"

void sidecar_deinit(struct sidecar *s)
{
    mem_free(s->url);
    mem_free(s->version);
    spans_deinit(&s->written);
    spans_deinit(&s->synced);
    *s = (struct sidecar){0};
}

/* ---- reading ---- */

static int malformed(struct qn_error *e, const char *why)
{
    return error_set(e, QN_EDATA, "the list of what has come is malformed: %s", why);
}

static int take_text(char **out, const json_t *root, const char *key, struct qn_error *e)
{
    const json_t *v = json_object_get(root, key);

    if (!json_is_string(v)) return malformed(e, key);
    *out = mem_dup(json_string_value(v), json_string_length(v));
    return *out ? 0 : error_nomem(e, key, json_string_length(v));
}

static int take_number(uint64_t *out, const json_t *v, uint64_t least, uint64_t most)
{
    json_int_t n = json_integer_value(v);

    if (!json_is_integer(v) || n < 0 || (uint64_t)n < least || (uint64_t)n > most) return -1;
    *out = (uint64_t)n;
    return 0;
}

static int take_spans(struct spans *out, const json_t *root, const char *key, uint64_t size, struct qn_error *e)
{
    const json_t *list = json_object_get(root, key);
    uint64_t from, to = 0;

    if (!json_is_array(list)) return malformed(e, key);
    for (size_t i = 0; i < json_array_size(list); i++) {
        const json_t *v = json_array_get(list, i);
        if (json_array_size(v) != 2 || take_number(&from, json_array_get(v, 0), to + (i > 0), size) ||
            take_number(&to, json_array_get(v, 1), from + 1, size))
            return malformed(e, key);
        if (spans_add(out, from, to, e)) return QN_ENOMEM;
    }
    return 0;
}

static int take_all(struct sidecar *s, const json_t *root, const char *boot, struct qn_error *e)
{
    const char *form = json_string_value(json_object_get(root, "form"));
    const char *its_boot = json_string_value(json_object_get(root, "boot"));
    int r;

    if (!form || strcmp(form, FORM)) return malformed(e, "form");
    if (take_number(&s->size, json_object_get(root, "size"), 0, INT64_MAX)) return malformed(e, "size");
    if ((r = take_text(&s->url, root, "url", e))) return r;
    if ((r = take_text(&s->version, root, "version", e))) return r;
    if ((r = take_spans(&s->written, root, "written", s->size, e))) return r;
    if ((r = take_spans(&s->synced, root, "synced", s->size, e))) return r;
    if (its_boot && *its_boot && !strcmp(its_boot, boot)) return 0;
    return spans_copy(&s->written, &s->synced, e);
}

int sidecar_parse(struct sidecar *s, const char *text, size_t n, const char *boot, struct qn_error *e)
{
    struct sidecar out = {0};
    json_error_t why;
    json_t *root = json_loadb(text, n, JSON_REJECT_DUPLICATES, &why);
    int r = root ? take_all(&out, root, boot, e) : malformed(e, why.text);

    json_decref(root);
    if (r) sidecar_deinit(&out);
    *s = out;
    return r;
}

/* An id of this start of the machine; "" if the machine does not say. That counts as another start. */
static void boot_of(char out[BOOT_BYTES])
{
    int fd = open(BOOT_FILE, O_RDONLY | O_CLOEXEC);
    ssize_t n = fd >= 0 ? read(fd, out, BOOT_BYTES - 1) : 0;

    out[n > 0 ? n : 0] = 0;
    out[strcspn(out, "\n")] = 0;
    if (fd >= 0) close(fd);
}

int sidecar_load(struct sidecar *s, const char *path, struct qn_error *e)
{
    struct buf text = {0};
    char boot[BOOT_BYTES];
    int r;

    if (access(path, F_OK) && errno == ENOENT) return 1;
    boot_of(boot);
    r = os_read_file(&text, path, MAX_BYTES, e);
    if (r == 0) r = sidecar_parse(s, text.data ? (const char *)text.data : "", text.len, boot, e);
    buf_deinit(&text);
    return r;
}

/* ---- writing ---- */

static json_t *json_of(const struct spans *s)
{
    json_t *list = json_array();

    for (size_t i = 0; i < s->n && list; i++)
        if (json_array_append_new(list, json_pack("[I,I]", (json_int_t)s->v[i].from, (json_int_t)s->v[i].to))) {
            json_decref(list);
            list = NULL;
        }
    return list;
}

static int text_of(struct buf *out, const struct sidecar *s, struct qn_error *e)
{
    char boot[BOOT_BYTES];
    json_t *written = json_of(&s->written), *synced = json_of(&s->synced), *root;
    int r;

    boot_of(boot);
    root = json_pack("{s:s, s:s, s:s, s:I, s:s, s:o, s:o}", "form", FORM, "url", s->url, "version", s->version, "size",
                     (json_int_t)s->size, "boot", boot, "written", written, "synced", synced);
    r = json_text_add(out, root, JSON_COMPACT, "the list of what has come", e);
    json_decref(root);
    return r;
}

static int write_new(const char *path, const struct buf *text, bool durable)
{
    const uint8_t *p = text->data;
    size_t n = text->len;
    int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_NOFOLLOW | O_CLOEXEC, 0666), r = 0;

    if (fd < 0) return -1;
    while (n > 0 && r == 0) {
        ssize_t done = write(fd, p, n);
        if (done < 0 && errno != EINTR) r = -1;
        if (done <= 0) continue;
        p += done;
        n -= (size_t)done;
    }
    if (r == 0 && durable) r = fdatasync(fd);
    return close(fd) || r ? -1 : 0;
}

int sidecar_save(const struct sidecar *s, const char *path, bool durable, struct qn_error *e)
{
    struct buf text = {0}, temp = {0};
    int r = text_of(&text, s, e);

    if (r == 0) r = buf_printf(&temp, e, "%s" NEW_ENDING, path);
    if (r == 0 && (write_new((const char *)temp.data, &text, durable) || rename((const char *)temp.data, path)))
        r = error_set(e, QN_EIO, "cannot write '%s': %s", path, strerror(errno));
    buf_deinit(&temp);
    buf_deinit(&text);
    return r;
}

void sidecar_remove(const char *path)
{
    struct buf temp = {0};

    if (buf_printf(&temp, NULL, "%s" NEW_ENDING, path) == 0) unlink((const char *)temp.data);
    buf_deinit(&temp);
    unlink(path);
}
