/* SPDX-License-Identifier: MIT
 *
 * listing.c: reads a hub's list of files. Source: the hub's own description of
 * /api/models/{owner}/{repo}/tree/{revision}.
 *
 * Programs, pictures and other formats of the same weights are not listed.
 */
#include "fetch/listing.h"

#include <string.h>

#include <jansson.h>

#include "base/mem.h"
#include "fetch/get.h"
#include "fetch/location.h"

#define MAX_BYTES ((size_t)16 << 20)

static bool ends_in(const char *name, const char *ending)
{
    size_t n = strlen(name), m = strlen(ending);

    return n > m && !strcmp(name + n - m, ending);
}

static bool is_wanted(const char *name)
{
    static const char *const endings[] = {".safetensors", ".json", ".jinja", ".model", ".txt"};

    for (size_t i = 0; i < sizeof endings / sizeof *endings; i++)
        if (ends_in(name, endings[i])) return location_is_safe_name(name);
    return false;
}

static int add(struct hub_listing *l, const char *name, json_int_t size, struct qn_error *e)
{
    struct hub_file *more = mem_realloc(l->file, (l->n_files + 1) * sizeof *more);
    char *copy = mem_dup(name, strlen(name));

    if (more) l->file = more;
    if (!more || !copy) {
        mem_free(copy);
        return error_nomem(e, "a list of files", (l->n_files + 1) * sizeof *more);
    }
    l->file[l->n_files++] = (struct hub_file){copy, (uint64_t)size};
    l->bytes += (uint64_t)size;
    return 0;
}

struct found {
    size_t n_weights, n_gguf;
    struct buf gguf; /* their names */
};

static int take(struct hub_listing *l, struct found *f, const json_t *entry, const char *url, struct qn_error *e)
{
    const char *type = json_string_value(json_object_get(entry, "type"));
    const char *name = json_string_value(json_object_get(entry, "path"));
    const json_t *size = json_object_get(entry, "size");

    if (!type || !name) return error_set(e, QN_EDATA, "'%s': a file without a type or a path", url);
    if (strcmp(type, "file")) return 0;
    if (!json_is_integer(size) || json_integer_value(size) < 0 || json_integer_value(size) > INT64_MAX / 1024)
        return error_set(e, QN_EDATA, "'%s': '%s' has no size", url, name);
    if (ends_in(name, ".gguf")) return buf_printf(&f->gguf, e, "%s%s", f->n_gguf++ ? ", " : "", name);
    if (!is_wanted(name)) return 0;
    f->n_weights += ends_in(name, ".safetensors");
    return add(l, name, json_integer_value(size), e);
}

int listing_parse(struct hub_listing *l, const char *text, size_t n, const char *url, struct qn_error *e)
{
    struct hub_listing out = {0};
    struct found f = {0};
    json_error_t why;
    json_t *root = json_loadb(text, n, 0, &why);
    int r = json_is_array(root) ? 0 : error_set(e, QN_EDATA, "'%s': not a list of files", url);

    for (size_t i = 0; r == 0 && i < json_array_size(root); i++) r = take(&out, &f, json_array_get(root, i), url, e);
    if (r == 0 && !f.n_weights)
        r = error_set(e, QN_ENOINPUT,
                      f.n_gguf ? "'%s': no safetensors; its GGUF files, of which one can be named, are %s"
                               : "'%s': neither safetensors nor GGUF files%s",
                      url, f.n_gguf ? (const char *)f.gguf.data : "");
    json_decref(root);
    buf_deinit(&f.gguf);
    if (r)
        listing_deinit(&out);
    else
        *l = out;
    return r;
}

int listing_fetch(struct hub_listing *l, const struct fetch_options *o, const char *url, struct qn_error *e)
{
    struct get_reply reply;
    const char *link;
    int r = get_url(&reply, o, url, NULL, MAX_BYTES, e);

    if (r) return r;
    link = get_header(curl_load(NULL), reply.h, "Link");
    if (reply.is_cut || (link && strstr(link, "next")))
        r = error_set(e, QN_EUNSUP, "'%s': more files than fit one list", url);
    else
        r = listing_parse(l, (const char *)reply.body.data, reply.body.len, url, e);
    get_reply_deinit(&reply);
    return r;
}

void listing_deinit(struct hub_listing *l)
{
    for (size_t i = 0; i < l->n_files; i++) mem_free(l->file[i].name);
    mem_free(l->file);
    *l = (struct hub_listing){0};
}
