/* SPDX-License-Identifier: MIT
 *
 * command_inspect.c: `quern inspect FILE`: shows what is in a model file, and what it would need to run.
 *
 * It reads only the header, so it is quick for a file of any size, and works for models that the engine cannot run.
 * One summary is computed. It is printed either for people (tables, long values cut, control characters made
 * printable) or, with --json, for programs (everything except the inside of long arrays). Metadata is shown as it is
 * in the file: `quern check` checks what it means to the engine.
 */
#include <assert.h>
#include <inttypes.h>
#include <limits.h>
#include <jansson.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/error.h"
#include "base/mem.h"
#include "cli/core/cli.h"
#include "cli/core/columns.h"
#include "cli/core/commands.h"
#include "cli/place/operand.h"
#include "format/weights.h"

#define SHOWN_ELEMENTS 6  /* elements of an array, for people */
#define JSON_ELEMENTS  64 /* elements of an array in JSON; longer arrays are cut */
#define LINE_CELLS     80 /* of a terminal */
#define KEY_CELLS      38 /* of the column of metadata keys */
#define SHOWN_BYTES    60 /* bytes of a string, for people */
#define KV_TOKENS      1024

/* ---- the summary ---- */

enum tensor_class { EMBEDDING, ATTENTION, FFN, NORMS, OUTPUT, OTHER, N_CLASSES };
static const char *const class_names[N_CLASSES] = {"embedding", "attention", "ffn", "norms", "output", "other"};

struct summary {
    struct str arch, name; /* empty when absent */
    uint64_t n_params;
    uint64_t class_bytes[N_CLASSES];
    uint64_t type_bytes[DT_N];
    uint64_t type_count[DT_N];
    uint64_t kv_bytes; /* for KV_TOKENS tokens at f16; 0: the metadata does not say */
};

static bool starts(const char *s, const char *prefix) { return !strncmp(s, prefix, strlen(prefix)); }

/* The class of a tensor, by its name. "norm" is first, because there are norms in attention and in feed-forward
 * blocks. */
static enum tensor_class class_of(const char *name)
{
    const char *in_block = name;
    if (strstr(name, "norm")) return NORMS;
    if (strstr(name, "embd")) return EMBEDDING;
    if (starts(name, "output.")) return OUTPUT;
    if (!starts(name, "blk.")) return OTHER;
    in_block = strchr(name + 4, '.');
    if (!in_block) return OTHER;
    in_block++;
    if (starts(in_block, "attn_") || starts(in_block, "ssm_")) return ATTENTION;
    if (starts(in_block, "ffn_") || starts(in_block, "exp_probs_")) return FFN;
    return OTHER;
}

/* The number in the key "ARCH.suffix"; `otherwise` if it is missing, of another type or too large to be real. */
static uint64_t arch_number(const struct weights *w, struct str arch, const char *suffix, uint64_t otherwise)
{
    char key[200];
    uint64_t v = otherwise;
    snprintf(key, sizeof key, "%.*s.%s", (int)(arch.n < 100 ? arch.n : 100), arch.p, suffix);
    return meta_u64(w, key, 1, 1 << 20, &v, NULL) == 1 ? v : otherwise;
}

/* The bytes of keys and values of all layers that have them. This is an upper bound: sliding windows and caches that
 * layers share are not subtracted. The limits keep the product below 2^63. */
static uint64_t kv_bytes(const struct weights *w, struct str arch)
{
    char key[200];
    uint64_t heads = 0; /* KV heads, summed over the layers */
    uint64_t n_layers = arch_number(w, arch, "block_count", 0);
    uint64_t n_head = arch_number(w, arch, "attention.head_count", 0);
    uint64_t n_embd = arch_number(w, arch, "embedding_length", 0);
    uint64_t head_dim = n_head ? n_embd / n_head : 0;
    uint64_t k = arch_number(w, arch, "attention.key_length", head_dim);
    uint64_t v = arch_number(w, arch, "attention.value_length", head_dim);
    uint64_t every = arch_number(w, arch, "full_attention_interval", 1); /* the layers between have a state instead */
    if (n_layers > 4096) return 0;

    snprintf(key, sizeof key, "%.*s.attention.head_count_kv", (int)(arch.n < 100 ? arch.n : 100), arch.p);
    const struct meta *m = weights_meta(w, key);
    for (uint64_t i = every - 1; i < n_layers; i += every) {
        int64_t n = (int64_t)n_head;
        if (m && meta_elem_i64(m, i, &n, NULL)) return 0;
        if (n < 0 || n > 1 << 16) return 0;
        heads += (uint64_t)n;
    }
    return heads * (k + v) * 2 * KV_TOKENS;
}

/* Computes the summary. The getters run without an error: what is missing or wrong is left out here, and `quern
 * check` reports it. */
static void summarise(const struct weights *w, struct summary *s)
{
    *s = (struct summary){.arch = {"", 0}, .name = {"", 0}};
    meta_str(w, "general.architecture", &s->arch, NULL);
    meta_str(w, "general.name", &s->name, NULL);
    for (size_t i = 0; i < weights_n_tensors(w); i++) {
        const struct tensor *t = weights_tensor_at(w, i);
        s->n_params += (uint64_t)(t->ne[0] * t->ne[1] * t->ne[2] * t->ne[3]);
        s->class_bytes[class_of(t->name)] += t->bytes;
        s->type_bytes[t->type] += t->bytes;
        s->type_count[t->type]++;
    }
    s->kv_bytes = kv_bytes(w, s->arch);
}

/* ---- values ---- */

/* Printable text of n bytes that a NUL follows; error_clean ends at a NUL, and a value may hold several.
 * A byte becomes 4 at most. */
static size_t clean_bytes(const char *raw, size_t n, char *dst, size_t cap)
{
    size_t len = 0;
    for (const char *end = raw + n;;) {
        len += error_clean(dst + len, cap - len, raw);
        raw += strlen(raw);
        if (raw == end) return len;
        len += error_clean(dst + len, cap - len, "\\x00");
        raw++;
    }
}

/* A printable line made of the first n_max bytes of s, at most SHOWN_BYTES. */
static void clean_text(struct str s, size_t n_max, char *dst, size_t cap)
{
    char raw[SHOWN_BYTES + 1];
    size_t n = s.n < n_max ? s.n : n_max;
    bool cut = n < s.n;
    assert(n <= SHOWN_BYTES);
    while (cut && n && ((unsigned char)s.p[n] & 0xc0) == 0x80) n--; /* not inside a character */
    memcpy(raw, s.p, n);
    raw[n] = 0;
    size_t len = clean_bytes(raw, n, dst, cap);
    if (cut) error_clean(dst + len, cap - len, "...");
}

/* The number or bool at i of a scalar or an array. An f32 has at most 7 digits that matter. */
static void number_text(const struct meta *m, uint64_t i, char *dst, size_t cap)
{
    double real;
    int64_t n;
    if (!meta_elem_f64(m, i, &real, NULL))
        snprintf(dst, cap, m->elem == MT_F32 ? "%.7g" : "%.15g", real);
    else if (m->elem == MT_BOOL && !meta_elem_i64(m, i, &n, NULL))
        snprintf(dst, cap, "%s", n ? "true" : "false");
    else if (!meta_elem_i64(m, i, &n, NULL))
        snprintf(dst, cap, "%" PRId64, n);
    else
        snprintf(dst, cap, ">= 2^63");
}

/* Adds a formatted text to a line that has room for `cap` bytes. */
__attribute__((format(printf, 4, 5))) static void add_text(char *line, size_t *n, size_t cap, const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    int len = vsnprintf(line + *n, cap - *n, fmt, ap);
    va_end(ap);
    if (len > 0) *n += (size_t)len < cap - *n ? (size_t)len : cap - *n - 1;
}

/* Cuts a text to at most `room` cells, and says so. */
static void cut_to(char *text, size_t room)
{
    if (columns_width(text) <= room) return;
    text[columns_fit(text, room - 3)] = 0;
    strcat(text, "...");
}

/* Prints a scalar, or "type[n] first, second, ..." because a vocabulary must not fill the screen. room: in cells. */
static void print_value(const struct meta *m, size_t room)
{
    char line[(4 * SHOWN_BYTES + 16) * 2];
    size_t len = 0;
    char text[4 * SHOWN_BYTES + 16];
    uint64_t cursor = 0;
    struct str s;
    size_t shown_bytes = m->type == MT_ARRAY ? SHOWN_BYTES / 4 : SHOWN_BYTES;
    uint64_t n = m->n < SHOWN_ELEMENTS ? m->n : SHOWN_ELEMENTS;
    line[0] = 0;
    if (m->type == MT_ARRAY) add_text(line, &len, sizeof line - 4, "%s[%" PRIu64 "] ", meta_type_name(m->elem), m->n);
    for (uint64_t i = 0; i < n; i++) {
        bool is_text = meta_next_str(m, &cursor, &s);
        if (is_text)
            clean_text(s, shown_bytes, text, sizeof text);
        else
            number_text(m, i, text, sizeof text);
        add_text(line, &len, sizeof line - 4, "%s%s%s%s", i ? ", " : "", is_text ? "\"" : "", text,
                 is_text ? "\"" : "");
    }
    if (n < m->n) add_text(line, &len, sizeof line - 4, ", ...");
    cut_to(line, room);
    puts(line);
}

/* ---- for people ---- */

static void print_size(const char *label, uint64_t bytes, const char *after)
{
    char text[32];
    columns_size(bytes, text);
    printf("  %-12s %12s%s\n", label, text, after);
}

/* Prints the tensors. --json has their exact sizes and places too. */
static void print_tensors(const struct weights *w)
{
    printf("\ntensors (name, type, shape, size)\n");
    for (size_t i = 0; i < weights_n_tensors(w); i++) {
        const struct tensor *t = weights_tensor_at(w, i);
        char name[4 * 64 + 1], shape[96], size[32];
        size_t n = 0;
        columns_size(t->bytes, size);
        error_clean(name, sizeof name, t->name);
        for (int d = 0; d < t->n_dims; d++)
            n += (size_t)snprintf(shape + n, sizeof shape - n, "%s%" PRId64, d ? " x " : "", t->ne[d]);
        printf("  %-36s %-8s %-19s %11s\n", name, dtype_get(t->type)->name, shape, size);
    }
}

static void print_report(const struct weights *w, const struct summary *s)
{
    char text[4 * SHOWN_BYTES + 16], path[4 * PATH_MAX], size[32];
    error_clean(path, sizeof path, weights_path(w));
    printf("file          %s\n", path);
    columns_size(weights_file_bytes(w), size);
    if (weights_version(w))
        printf("format        GGUF version %" PRIu32 ", ", weights_version(w));
    else
        printf("format        folder of safetensors, shown as GGUF, ");
    printf("%s in %zu part%s\n", size, weights_n_parts(w), weights_n_parts(w) == 1 ? "" : "s");
    clean_text(s->arch, SHOWN_BYTES, text, sizeof text);
    printf("architecture  %s\n", s->arch.n ? text : "(none)");
    clean_text(s->name, SHOWN_BYTES, text, sizeof text);
    printf("name          %s\n", s->name.n ? text : "(none)");
    printf("parameters    %" PRIu64 " in %zu tensors\n", s->n_params, weights_n_tensors(w));

    printf("\nwhat it would need to run\n");
    print_size("weights", weights_tensor_bytes(w), "");
    if (s->kv_bytes)
        print_size("KV cache", s->kv_bytes, " at most, for each 1024 tokens at f16");
    else
        printf("  %-12s %12s\n", "KV cache", "unknown");

    printf("\nbytes by class\n");
    for (int c = 0; c < N_CLASSES; c++)
        if (s->class_bytes[c]) print_size(class_names[c], s->class_bytes[c], "");
    printf("\nbytes by type\n");
    for (int t = 0; t < DT_N; t++) {
        if (!s->type_count[t]) continue;
        snprintf(text, sizeof text, " in %" PRIu64 " tensors", s->type_count[t]);
        print_size(dtype_get(t)->name, s->type_bytes[t], text);
    }

    printf("\nmetadata\n");
    for (size_t i = 0; i < weights_n_meta(w); i++) {
        const struct meta *m = weights_meta_at(w, i);
        clean_text(m->key, SHOWN_BYTES, text, sizeof text);
        size_t used = 2 + columns_width(text) + 1, at = used < KEY_CELLS + 3 ? KEY_CELLS + 3 : used;
        printf("  %s%*s", text, (int)(at - used + 1), "");
        print_value(m, at + 20 < LINE_CELLS ? LINE_CELLS - at : 20);
    }
    print_tensors(w);
}

/* ---- for programs ---- */

/* A JSON string. Bytes that are not UTF-8 are shown as \xNN. NULL: no memory. */
static json_t *json_text(struct str s)
{
    json_t *j = json_stringn(s.p, s.n);
    if (j) return j;
    size_t cap = 4 * s.n + 1;
    char *raw = mem_dup(s.p, s.n), *clean = mem_alloc(cap);
    if (raw && clean) j = json_stringn(clean, clean_bytes(raw, s.n, clean, cap));
    mem_free(raw);
    mem_free(clean);
    return j;
}

/* A JSON number, in the form that loses least: bool, exact integer, float, text. */
static json_t *json_number(const struct meta *m, uint64_t i)
{
    char text[32];
    double real;
    int64_t n;
    if (m->elem == MT_BOOL && !meta_elem_i64(m, i, &n, NULL)) return json_boolean(n != 0);
    if (!meta_elem_i64(m, i, &n, NULL)) return json_integer(n);
    json_t *j = meta_elem_f64(m, i, &real, NULL) ? NULL : json_real(real);
    if (j) return j;
    number_text(m, i, text, sizeof text); /* NaN, infinity and integers beyond 63 bits are no JSON numbers */
    return json_string(text);
}

/* A JSON value. A long array becomes {"type", "length", "first": [...]}. */
static json_t *json_value(const struct meta *m)
{
    uint64_t cursor = 0;
    struct str s;
    if (m->type == MT_STRING && meta_next_str(m, &cursor, &s)) return json_text(s);
    if (m->type != MT_ARRAY) return json_number(m, 0);
    json_t *list = json_array();
    for (uint64_t i = 0; i < m->n && i < JSON_ELEMENTS; i++)
        json_array_append_new(list, meta_next_str(m, &cursor, &s) ? json_text(s) : json_number(m, i));
    if (m->n <= JSON_ELEMENTS) return list;
    return json_pack("{s:s, s:I, s:o}", "type", meta_type_name(m->elem), "length", (json_int_t)m->n, "first", list);
}

static json_t *json_tensors(const struct weights *w)
{
    json_t *list = json_array();
    for (size_t i = 0; i < weights_n_tensors(w); i++) {
        const struct tensor *t = weights_tensor_at(w, i);
        size_t part;
        uint64_t offset = weights_tensor_place(w, i, &part);
        json_t *shape = json_array();
        for (int d = 0; d < t->n_dims; d++) json_array_append_new(shape, json_integer(t->ne[d]));
        json_array_append_new(list, json_pack("{s:o, s:s, s:o, s:I, s:I, s:I}", "name",
                                              json_text((struct str){t->name, strlen(t->name)}), "type",
                                              dtype_get(t->type)->name, "shape", shape, "bytes", (json_int_t)t->bytes,
                                              "offset", (json_int_t)offset, "part", (json_int_t)part + 1));
    }
    return list;
}

/* The whole report. NULL: no memory; the process then ends, and what was built is not released. */
static json_t *json_report(const struct weights *w, const struct summary *s)
{
    json_t *classes = json_object(), *types = json_object(), *meta = json_object();
    const char *path = weights_path(w);
    for (int c = 0; c < N_CLASSES; c++)
        json_object_set_new(classes, class_names[c], json_integer((json_int_t)s->class_bytes[c]));
    for (int t = 0; t < DT_N; t++)
        if (s->type_count[t])
            json_object_set_new(types, dtype_get(t)->name, json_integer((json_int_t)s->type_bytes[t]));
    for (size_t i = 0; i < weights_n_meta(w); i++) {
        const struct meta *m = weights_meta_at(w, i);
        json_t *key = json_text(m->key);
        if (key) json_object_set_new(meta, json_string_value(key), json_value(m));
        json_decref(key);
    }
    return json_pack("{s:o, s:I, s:I, s:I, s:o, s:o, s:I, s:I, s:o, s:o, s:o, s:o, s:o}", "file",
                     json_text((struct str){path, strlen(path)}), "version", (json_int_t)weights_version(w), "parts",
                     (json_int_t)weights_n_parts(w), "bytes", (json_int_t)weights_file_bytes(w), "architecture",
                     json_text(s->arch), "name", json_text(s->name), "parameters", (json_int_t)s->n_params,
                     "weight_bytes", (json_int_t)weights_tensor_bytes(w), "kv_bytes_per_1024_tokens_f16",
                     s->kv_bytes ? json_integer((json_int_t)s->kv_bytes) : json_null(), "bytes_by_class", classes,
                     "bytes_by_type", types, "metadata", meta, "tensors", json_tensors(w));
}

static int print_json(const struct weights *w, const struct summary *s, struct qn_error *e)
{
    /* jansson uses the same allocator as everything else. */
    json_t *j = json_report(w, s);
    if (!j) return error_nomem(e, "the JSON form of a model file", weights_n_meta(w) + weights_n_tensors(w));
    cli_print_json(j, JSON_INDENT(1) | JSON_REAL_PRECISION(9));
    return 0;
}

/* ---- the command ---- */

struct inspect {
    bool json;
    struct cli_strings folders;
};

static int run(struct invocation *v)
{
    const struct inspect *o = v->options;
    struct summary s;
    struct qn_error e = {0};
    struct weights *w = NULL;
    int rc = 0;
    if ((rc = operand_model(v, 0, &o->folders))) return rc;
    if (weights_open(&w, v->operand[0], &e)) return cli_fail(&e);
    summarise(w, &s);
    if (o->json)
        rc = print_json(w, &s, &e);
    else
        print_report(w, &s);
    if (rc) rc = cli_fail(&e);
    weights_close(w);
    return rc;
}

static const struct opt opts[] = {
    {"json", 0, OPT_FLAG, offsetof(struct inspect, json), NULL, "everything, as one JSON object"},
    {0},
};

static const struct opt_group groups[] = {{"Options", opts}, OPERAND_GROUP(offsetof(struct inspect, folders)), {0}};

static const struct example examples[] = {
    {"quern inspect m.gguf", "Architecture, size, quantisation, metadata"},
    {"quern inspect --json m.gguf | jq -r '.metadata[\"general.name\"]'", "One value, for a script"},
    {0},
};

const struct command command_inspect = {
    .name = "inspect",
    .operands = "[--json] FILE",
    .brief = "show what is in a model file",
    .about = "Shows what is in a model file: its metadata, its tensors by type and purpose, and what it would need to "
             "run.\n\n"
             "Only the header is read, so this is quick for a file of any size, and works for models that cannot run "
             "here. Long values are cut; --json prints everything except the inside of long arrays.",
    .min = 1,
    .max = 1,
    .words = WORDS_MODEL,
    .examples = examples,
    .rank = RANK_RARE,
    .groups = groups,
    .size = sizeof(struct inspect),
    .run = run,
};
