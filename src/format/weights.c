/* SPDX-License-Identifier: MIT
 *
 * weights.c: joins the files of a model to one list of metadata and one list of tensors.
 *
 * A model is one GGUF file, all parts of a split one, or a Hugging Face folder. A split model is a series of complete
 * GGUF files PREFIX-00001-of-0000N.gguf. The first one has the metadata. Each part says in `split.no` and `split.count`
 * which one it is. The names of the others are made from the name under which the first was opened, never from anything
 * inside a file, and every part is checked to be the one that its name says.
 *
 * An error of opening begins with the path of the file at fault, because the caller cannot know which part it was.
 * Source: docs/FORMATS.md.
 */
#include "format/weights.h"

#include <assert.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "base/os.h"
#include "format/file/finite.h"
#include "format/gguf/gguf.h"
#include "format/hf/hf.h"
#include "format/file/model_files.h"
#include "format/file/names.h"
#include "format/file/split.h"

/* One GGUF file. Tensors point into the mapping, so the struct may move. */
struct weights_part {
    struct mapping map;
    struct gguf gguf;
};

struct weights {
    char *path;
    struct model_files files;
    struct weights_part *part; /* [n_parts]; of a folder, n_parts is 0 */
    size_t n_parts;
    bool is_folder;
    struct hf_folder folder;
    const struct meta *meta; /* [n_meta], of the first part or the folder */
    size_t n_meta;
    const struct names *keys; /* key -> index into meta */
    struct tensor *tensors;   /* [n_tensors], of all parts in order */
    size_t n_tensors;
    struct names names; /* tensor name -> index into tensors */
    bool *is_used;      /* [n_tensors]; NULL: all are */
    uint64_t tensor_bytes, file_bytes;
};

/* Puts the path before the message of an error. Returns code. */
static int at_path(struct qn_error *e, const char *path, int code)
{
    if (!e) return code;
    struct qn_error inner = *e;
    return error_set(e, code, "%s: %s", path, inner.msg);
}

/* ---- split models ---- */

/* Reads an integer; 0 where the key is absent. */
static int split_key(const struct gguf *g, const char *key, uint64_t hi, uint64_t *out, struct qn_error *e)
{
    const struct meta *m = gguf_meta(g, key);
    *out = 0;
    return m ? meta_get_u64(m, 0, hi, out, e) : 0;
}

/* Finds out how many parts there are, 1 for a file that is not split. The file must be the first of them. */
static int count_parts(const struct weights *w, uint64_t *n_parts, struct qn_error *e)
{
    const struct gguf *g = &w->part[0].gguf;
    uint64_t no, n;
    int rc;
    if ((rc = split_key(g, "split.count", UINT16_MAX, &n, e))) return rc;
    if ((rc = split_key(g, "split.no", UINT16_MAX, &no, e))) return rc;
    *n_parts = 1;
    if (n <= 1 && no == 0) return 0; /* tools that merge parts leave a count of 0 */
    if (n > SPLIT_MAX_PARTS)
        return error_set(e, QN_EDATA, "gguf: key 'split.count' is %" PRIu64 ", the most accepted is %d", n,
                         SPLIT_MAX_PARTS);
    if (no >= n) return error_set(e, QN_EDATA, "gguf: key 'split.no' is %" PRIu64 " of %" PRIu64 " parts", no, n);

    char *first;
    if ((rc = split_path(&first, w->path, 0, n, e))) return rc;
    if (no > 0) {
        rc = error_set(e, QN_EDATA, "gguf: this is part %" PRIu64 " of %" PRIu64 " of a model, open part 1%s%s", no + 1,
                       n, first ? ": " : "", first ? first : "");
    } else if (!first || strcmp(first, w->path)) {
        rc = error_set(e, QN_EDATA,
                       "gguf: part 1 of %" PRIu64 " must be named PREFIX-00001-of-%05" PRIu64
                       ".gguf, for the others are found by their names",
                       n, n);
    }
    mem_free(first);
    *n_parts = n;
    return rc;
}

/* Opens one part. After a failure it may be mapped or not; weights_close() handles both. */
static int open_part(struct weights *w, struct weights_part *p, const char *path, struct qn_error *e)
{
    int rc = model_files_add(&w->files, path, e); /* before it is opened, so that any later change is noticed */
    if (!rc) rc = map_open(&p->map, path, e);
    if (rc) return rc; /* the message has the path */
    rc = gguf_parse(&p->gguf, p->map.data, p->map.size, e);
    return rc ? at_path(e, path, rc) : 0;
}

/* All parts of a model have the weights of the same layers (gguf_holes.h). */
static int check_layers(const struct gguf *first, const struct gguf *g, struct qn_error *e)
{
    static const char *const keys[] = {GGUF_FIRST_LAYER, GGUF_LAST_LAYER};
    uint64_t a = 0, b = 0;
    int rc;
    for (int i = 0; i < 2; i++) {
        bool is_there = gguf_meta(first, keys[i]);
        if ((rc = split_key(first, keys[i], INT32_MAX, &a, e)) || (rc = split_key(g, keys[i], INT32_MAX, &b, e)))
            return rc;
        if (a != b || is_there != !!gguf_meta(g, keys[i]))
            return error_set(e, QN_EDATA, "gguf: has the weights of other layers than part 1: key '%s' differs",
                             keys[i]);
    }
    return 0;
}

/* Opens part `no` >= 1 in the folder of the first one. w->n_parts counts it even after a failure, for weights_close().
 */
static int open_sibling(struct weights *w, uint64_t no, uint64_t n, struct qn_error *e)
{
    uint64_t its_no, its_n;
    struct weights_part *p = &w->part[no];
    char *path;
    int rc = split_path(&path, w->path, no, n, e);
    if (rc) return rc;
    assert(path); /* count_parts() checked that the pattern fits */
    w->n_parts = no + 1;
    if ((rc = open_part(w, p, path, e))) goto done;
    if ((rc = split_key(&p->gguf, "split.no", UINT16_MAX, &its_no, e)) ||
        (rc = split_key(&p->gguf, "split.count", UINT16_MAX, &its_n, e)))
        rc = at_path(e, path, rc);
    else if (its_no != no || its_n != n)
        rc = error_set(e, QN_EDATA,
                       "%s: gguf: says in split.no and split.count that it is part %" PRIu64 " of %" PRIu64
                       ", by its name it is part %" PRIu64 " of %" PRIu64,
                       path, its_no + 1, its_n, no + 1, n);
    else if ((rc = check_layers(&w->part[0].gguf, &p->gguf, e)))
        rc = at_path(e, path, rc);
done:
    mem_free(path);
    return rc;
}

/* ---- one list of tensors ---- */

/* Makes room for the views of `total` tensors. */
static int begin_tensors(struct weights *w, size_t total, struct qn_error *e)
{
    w->tensors = mem_calloc(total + 1, sizeof *w->tensors);
    if (!w->tensors) return error_nomem(e, "a list of tensors", total * sizeof *w->tensors);
    return names_init(&w->names, total, e);
}

/* Copies views into the one list and indexes their names. */
static int add_tensors(struct weights *w, const struct tensor *t, size_t n, struct qn_error *e)
{
    for (size_t i = 0; i < n; i++) {
        struct str name = {t[i].name, strlen(t[i].name)};
        if (!names_add(&w->names, name, (uint32_t)w->n_tensors))
            return error_set(e, QN_EDATA, "gguf: tensor '%s' appears twice", t[i].name);
        w->tensor_bytes += t[i].bytes + tensor_side_bytes(&t[i]);
        w->tensors[w->n_tensors++] = t[i];
    }
    return 0;
}

static int join_parts(struct weights *w, struct qn_error *e)
{
    size_t total = 0;
    for (size_t i = 0; i < w->n_parts; i++) total += w->part[i].gguf.n_tensors;
    if (total > GGUF_MAX_TENSORS)
        return error_set(e, QN_EDATA, "gguf: the %zu parts hold %zu tensors, the most accepted is %d", w->n_parts,
                         total, GGUF_MAX_TENSORS);
    int rc = begin_tensors(w, total, e);
    for (size_t i = 0; i < w->n_parts && !rc; i++) {
        w->file_bytes += w->part[i].map.size;
        rc = add_tensors(w, w->part[i].gguf.tensors, w->part[i].gguf.n_tensors, e);
    }
    /* Parts after the first carry only the split keys, so that the model's metadata is that of the first. */
    w->meta = w->part[0].gguf.meta;
    w->n_meta = w->part[0].gguf.n_meta;
    w->keys = &w->part[0].gguf.keys;
    return rc;
}

/* What can be said of the whole before anybody asks for the model in it. */
static int check_whole(const struct weights *w, struct qn_error *e)
{
    uint64_t n_tensors;
    struct str type;
    int rc = meta_str(w, "general.type", &type, e);
    if (rc < 0) return rc;
    if (rc == 1 && (type.n != 5 || memcmp(type.p, "model", 5)))
        return error_set(e, QN_EUNSUP, "gguf: key 'general.type' is '%.*s', only 'model' can be loaded",
                         (int)(type.n < 100 ? type.n : 100), type.p);
    if (w->n_parts == 1) return 0;
    if ((rc = split_key(&w->part[0].gguf, "split.tensors.count", INT32_MAX, &n_tensors, e))) return rc;
    /* 0: the key is absent */
    if (n_tensors && n_tensors != w->n_tensors)
        return error_set(e, QN_EDATA, "gguf: key 'split.tensors.count' is %" PRIu64 ", the %zu parts hold %zu",
                         n_tensors, w->n_parts, w->n_tensors);
    return 0;
}

static int open_files(struct weights *w, struct qn_error *e)
{
    uint64_t n_parts;
    w->n_parts = 1; /* also when it fails half-way: what was mapped is to be closed */
    int rc = open_part(w, &w->part[0], w->path, e);
    if (rc) return rc;
    if ((rc = count_parts(w, &n_parts, e))) return at_path(e, w->path, rc);
    if (n_parts > 1) {
        struct weights_part *more = mem_realloc(w->part, n_parts * sizeof *more);
        if (!more) return error_nomem(e, "the parts of a model", n_parts * sizeof *more);
        memset(more + 1, 0, (n_parts - 1) * sizeof *more);
        w->part = more;
    }
    for (uint64_t no = 1; no < n_parts; no++)
        if ((rc = open_sibling(w, no, n_parts, e))) return rc;
    /* From here on a message speaks of the whole model, which goes by the name of its first file. */
    if ((rc = join_parts(w, e)) || (rc = check_whole(w, e))) return at_path(e, w->path, rc);
    return 0;
}

static int open_folder(struct weights *w, struct qn_error *e)
{
    struct hf_folder *f = &w->folder;
    int rc = model_files_add_small(&w->files, w->path, e);
    w->is_folder = true;
    if (!rc) rc = hf_folder_open(f, &w->files, w->path, e);
    if (!rc) rc = begin_tensors(w, f->n_tensors, e);
    if (!rc) rc = add_tensors(w, f->tensors, f->n_tensors, e);
    if (rc) return at_path(e, w->path, rc);
    for (size_t i = 0; i < f->n_shards; i++) w->file_bytes += f->shard[i].size;
    w->meta = f->meta.meta;
    w->n_meta = f->meta.n;
    w->keys = &f->meta.keys;
    return 0;
}

int weights_open(struct weights **out, const char *path, struct qn_error *e)
{
    int rc;
    struct weights *w = mem_calloc(1, sizeof *w);
    if (!w) return error_nomem(e, "a model file", sizeof *w);
    w->path = mem_dup(path, strlen(path));
    w->part = mem_calloc(1, sizeof *w->part);
    if (!w->path || !w->part)
        rc = error_nomem(e, "a model file", strlen(path) + sizeof *w->part);
    else
        rc = os_is_directory(path) ? open_folder(w, e) : open_files(w, e);
    if (rc)
        weights_close(w);
    else
        *out = w;
    return rc;
}

void weights_close(struct weights *w)
{
    if (!w) return;
    for (size_t i = 0; i < w->n_parts; i++) {
        gguf_deinit(&w->part[i].gguf);
        map_close(&w->part[i].map);
    }
    hf_folder_close(&w->folder);
    model_files_deinit(&w->files);
    names_deinit(&w->names);
    mem_free(w->is_used);
    mem_free(w->tensors);
    mem_free(w->part);
    mem_free(w->path);
    mem_free(w);
}

const char *weights_path(const struct weights *w) { return w->path; }

const struct model_files *weights_files(const struct weights *w) { return &w->files; }

uint32_t weights_version(const struct weights *w) { return w->is_folder ? 0 : w->part[0].gguf.version; }

size_t weights_n_parts(const struct weights *w) { return w->is_folder ? w->folder.n_shards : w->n_parts; }

size_t weights_n_meta(const struct weights *w) { return w->n_meta; }

const struct meta *weights_meta_at(const struct weights *w, size_t i)
{
    assert(i < w->n_meta);
    return &w->meta[i];
}

const struct meta *weights_meta(const struct weights *w, const char *key)
{
    uint32_t i;
    return names_find(w->keys, (struct str){key, strlen(key)}, &i) ? &w->meta[i] : NULL;
}

int meta_u64(const struct weights *w, const char *key, uint64_t lo, uint64_t hi, uint64_t *out, struct qn_error *e)
{
    const struct meta *m = weights_meta(w, key);
    int rc = m ? meta_get_u64(m, lo, hi, out, e) : 0;
    return rc ? rc : m != NULL;
}

int meta_f32(const struct weights *w, const char *key, float *out, struct qn_error *e)
{
    const struct meta *m = weights_meta(w, key);
    int rc = m ? meta_get_f32(m, out, e) : 0;
    return rc ? rc : m != NULL;
}

int meta_bool(const struct weights *w, const char *key, bool *out, struct qn_error *e)
{
    const struct meta *m = weights_meta(w, key);
    int rc = m ? meta_get_bool(m, out, e) : 0;
    return rc ? rc : m != NULL;
}

int meta_str(const struct weights *w, const char *key, struct str *out, struct qn_error *e)
{
    const struct meta *m = weights_meta(w, key);
    int rc = m ? meta_get_str(m, out, e) : 0;
    return rc ? rc : m != NULL;
}

size_t weights_n_tensors(const struct weights *w) { return w->n_tensors; }

const struct tensor *weights_tensor_at(const struct weights *w, size_t i)
{
    assert(i < w->n_tensors);
    return &w->tensors[i];
}

const struct tensor *weights_tensor(const struct weights *w, const char *name)
{
    uint32_t i;
    if (!names_find(&w->names, (struct str){name, strlen(name)}, &i)) return NULL;
    return &w->tensors[i];
}

static const struct mapping *map_of(const struct weights *w, size_t part)
{
    return w->is_folder ? &w->folder.shard[part] : &w->part[part].map;
}

bool weights_are_lost(const struct weights *w)
{
    for (size_t i = 0; i < weights_n_parts(w); i++)
        if (map_is_lost(map_of(w, i))) return true;
    return false;
}

/* Which of the mapped files p points into; weights_n_parts() when it points to memory of our own. */
static size_t part_of(const struct weights *w, const uint8_t *p)
{
    for (size_t i = 0; i < weights_n_parts(w); i++) {
        const struct mapping *m = map_of(w, i);
        if (m->data && p >= m->data && p < m->data + m->size) return i;
    }
    return weights_n_parts(w);
}

uint64_t weights_tensor_place(const struct weights *w, size_t i, size_t *part)
{
    assert(i < w->n_tensors);
    *part = part_of(w, w->tensors[i].data);
    return *part < weights_n_parts(w) ? (uint64_t)(w->tensors[i].data - map_of(w, *part)->data) : 0;
}

int weights_check_finite(const struct weights *w, weights_watch *watch, void *arg, struct qn_error *e)
{
    uint64_t done = 0, total = weights_tensor_bytes(w);
    for (size_t i = 0; i < w->n_tensors; i++) {
        int rc = finite_check(&w->tensors[i], e);
        if (rc) return rc;
        done += w->tensors[i].bytes;
        if (watch && !watch(arg, done, total)) return error_set(e, QN_ECANCEL, "stopped");
    }
    return 0;
}

static int lock_bytes(const struct weights *w, const uint8_t *p, size_t n)
{
    size_t part = part_of(w, p);
    if (!n || part == weights_n_parts(w)) return 0;
    const struct mapping *m = map_of(w, part);
    return map_lock(m, (size_t)(p - m->data), n);
}

int weights_lock(const struct weights *w, uint64_t bytes, const struct tensor *except, uint64_t *locked)
{
    *locked = 0;
    for (size_t i = 0; i < w->n_tensors; i++) {
        const struct tensor *t = &w->tensors[i];
        size_t side = tensor_side_bytes(t);
        if (t == except || !weights_is_used(w, i) || part_of(w, t->data) == weights_n_parts(w) ||
            t->bytes + side > bytes - *locked)
            continue;
        int error = lock_bytes(w, t->data, t->bytes);
        if (!error) error = lock_bytes(w, t->side.scale, side / 2);
        if (!error) error = lock_bytes(w, t->side.bias, side / 2);
        if (error) return error;
        *locked += t->bytes + side;
    }
    return 0;
}

int weights_use(struct weights *w, bool (*is_used)(const void *arg, const struct tensor *t), const void *arg,
                struct qn_error *e)
{
    assert(!w->is_used);
    w->is_used = mem_calloc(w->n_tensors, sizeof *w->is_used);
    if (!w->is_used) return error_nomem(e, "the list of used tensors", w->n_tensors);
    for (size_t i = 0; i < w->n_tensors; i++) {
        const struct tensor *t = &w->tensors[i];
        w->is_used[i] = is_used(arg, t);
        if (!w->is_used[i]) w->tensor_bytes -= t->bytes + tensor_side_bytes(t);
    }
    return 0;
}

bool weights_is_used(const struct weights *w, size_t i) { return !w->is_used || w->is_used[i]; }

uint64_t weights_tensor_bytes(const struct weights *w) { return w->tensor_bytes; }

uint64_t weights_file_bytes(const struct weights *w) { return w->file_bytes; }
