/* SPDX-License-Identifier: MIT
 *
 * hf_shards.c: opens the safetensors files of a folder, and joins their tensors to one list.
 *
 * The index is {"metadata": ..., "weight_map": {"TENSOR": "FILE", ...}}. Its file names may be a stranger's, so each
 * one must be a plain name in this folder.
 */
#include "format/hf/hf_shards.h"

#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "format/hf/hf_json.h"
#include "format/file/names.h"

static const char index_name[] = "model.safetensors.index.json", single_name[] = "model.safetensors";

/* Maps and parses one file as shard s->n. */
static int open_shard(struct hf_shards *s, const char *dir, const char *name, struct qn_error *e)
{
    struct qn_error why;
    char *path = hf_path(dir, name, e);
    if (!path) return QN_ENOMEM;
    int rc = s->files ? model_files_add(s->files, path, &why) : 0;
    if (!rc) rc = map_open(&s->map[s->n], path, &why);
    if (!rc && (rc = safetensors_parse(&s->head[s->n], s->map[s->n].data, s->map[s->n].size, &why)))
        map_close(&s->map[s->n]);
    if (rc) error_set(e, rc, "%s: %s", name, why.msg);
    if (!rc) s->n++;
    mem_free(path);
    return rc;
}

/* Makes the lists for n shards. */
static int begin(struct hf_shards *s, size_t n, struct qn_error *e)
{
    s->map = mem_calloc(n + 1, sizeof *s->map);
    s->head = mem_calloc(n + 1, sizeof *s->head);
    if (!s->map || !s->head) return error_nomem(e, "the parts of a model", n * (sizeof *s->map + sizeof *s->head));
    return 0;
}

static bool is_file_name(const char *s)
{
    size_t n = strlen(s);
    return n > 12 && n < 256 && s[0] != '.' && !strchr(s, '/') && !strcmp(s + n - 12, ".safetensors");
}

static int compare_names(const void *a, const void *b)
{
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}

/* Makes a sorted list of the different file names in the map; the caller's, to mem_free(). */
static int list_files(const json_t *map, const char ***out, size_t *n_out, struct qn_error *e)
{
    const char *key, **list = mem_calloc(json_object_size(map) + 1, sizeof *list);
    json_t *v;
    size_t n = 0, m = 0;
    int rc = 0;
    if (!list) return error_nomem(e, "a list of files", json_object_size(map) * sizeof *list);
    json_object_foreach((json_t *)(uintptr_t)map, key, v)
    {
        const char *name = json_string_value(v);
        if (!name || !is_file_name(name)) {
            rc = error_set(e, QN_EDATA,
                           "%s: tensor '%.100s' is in '%.100s', which is no NAME.safetensors of this folder",
                           index_name, key, name ? name : "(no text)");
            goto fail;
        }
        list[n++] = name;
    }
    qsort(list, n, sizeof *list, compare_names);
    for (size_t i = 0; i < n; i++)
        if (!i || strcmp(list[i], list[i - 1])) list[m++] = list[i];
    if (!m || m > HF_MAX_SHARDS) {
        rc = error_set(e, QN_EDATA, "%s: names %zu files, accepted are 1 to %d", index_name, m, HF_MAX_SHARDS);
        goto fail;
    }
    *out = list;
    *n_out = m;
    return 0;
fail:
    mem_free(list);
    return rc;
}

/* Makes one list of all tensors. Of a model with an index, those that the map names, each in the file that it says. */
static int join(struct hf_shards *s, const json_t *map, const char *const *file, struct qn_error *e)
{
    struct names seen = {0};
    size_t total = 0;
    uint32_t other;
    int rc;
    for (size_t i = 0; i < s->n; i++) total += s->head[i].n;
    if (total > HF_MAX_TENSORS || json_object_size(map) > HF_MAX_TENSORS)
        return error_set(e, QN_EDATA, "the folder holds %zu tensors, the most accepted is %zu", total, HF_MAX_TENSORS);
    s->tensor = mem_calloc(total + 1, sizeof *s->tensor);
    if (!s->tensor) return error_nomem(e, "a list of tensors", total * sizeof *s->tensor);
    if ((rc = names_init(&seen, total, e))) return rc;
    for (size_t i = 0; i < s->n && !rc; i++)
        for (size_t j = 0; j < s->head[i].n && !rc; j++) {
            const struct st_tensor *t = &s->head[i].tensor[j];
            const char *says = map ? json_string_value(json_object_get(map, t->name)) : NULL;
            struct str name = {t->name, strlen(t->name)};
            if (map && !says) continue;
            if (!names_add(&seen, name, (uint32_t)i) && names_find(&seen, name, &other))
                rc = error_set(e, QN_EDATA, "tensor '%.100s' is in %s and in %s", t->name, file[other], file[i]);
            else if (map && strcmp(says, file[i]))
                rc = error_set(e, QN_EDATA, "%s: tensor '%.100s' is in %s, not in %s", index_name, t->name, file[i],
                               says);
            else
                s->tensor[s->n_tensors++] = t;
        }
    const char *key;
    json_t *v;
    if (!rc && map) json_object_foreach((json_t *)(uintptr_t)map, key, v)
        {
            if (names_find(&seen, (struct str){key, strlen(key)}, &other)) continue;
            rc = error_set(e, QN_EDATA, "%s: tensor '%.100s' is not in %s", index_name, key, json_string_value(v));
            break;
        }
    names_deinit(&seen);
    return rc;
}

/* Opens the shards that an index names. */
static int open_sharded(struct hf_shards *s, const json_t *index, const char *dir, struct qn_error *e)
{
    const json_t *map = json_object_get(index, "weight_map");
    const char **file = NULL;
    size_t n = 0;
    if (!json_is_object(map)) return error_set(e, QN_EDATA, "%s: no weight_map", index_name);
    int rc = list_files(map, &file, &n, e);
    if (rc) return rc;
    rc = begin(s, n, e);
    for (size_t i = 0; i < n && !rc; i++) rc = open_shard(s, dir, file[i], e);
    if (!rc) rc = join(s, map, file, e);
    mem_free(file);
    return rc;
}

static int open_single(struct hf_shards *s, const char *dir, struct qn_error *e)
{
    const char *const file = single_name;
    int rc;
    if ((rc = begin(s, 1, e)) || (rc = open_shard(s, dir, file, e))) return rc;
    return join(s, NULL, &file, e);
}

int hf_shards_open(struct hf_shards *out, struct model_files *files, const char *dir, struct qn_error *e)
{
    struct hf_shards s = {.files = files};
    json_t *index = NULL;
    char *path = hf_path(dir, single_name, e);
    if (!path) return QN_ENOMEM;
    bool is_single = os_exists(path);
    int rc = is_single ? 0 : hf_json_read(&index, dir, index_name, HF_INDEX_BYTES, false, e);
    mem_free(path);
    if (!rc && is_single)
        rc = open_single(&s, dir, e);
    else if (!rc && index)
        rc = open_sharded(&s, index, dir, e);
    else if (!rc)
        rc = error_set(e, QN_ENOINPUT, "the folder has neither %s nor %s", single_name, index_name);
    json_decref(index);
    if (rc)
        hf_shards_close(&s);
    else
        *out = s;
    return rc;
}

void hf_shards_close(struct hf_shards *s)
{
    for (size_t i = 0; i < s->n; i++) {
        safetensors_deinit(&s->head[i]);
        map_close(&s->map[i]);
    }
    mem_free(s->tensor);
    mem_free(s->head);
    mem_free(s->map);
    *s = (struct hf_shards){0};
}
