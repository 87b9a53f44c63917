/* SPDX-License-Identifier: MIT
 *
 * rerank.c: POST /v1/rerank and /v1/score: how well documents answer a query, and how alike texts are. docs/API.md has
 * the formulas.
 *
 * Sources: the rerank API of Jina and Cohere; the score API of vLLM.
 */
#include "server/api/endpoints.h"

#include <stdio.h>
#include <stdlib.h>

#include "server/api/vectors.h"

static bool can_rank(const struct vectors *v) { return qn_model_pooling(v->served->model) == QN_POOL_RANK; }

/* ---- ranking ---- */

struct score {
    double score;
    size_t index;
};

struct rerank {
    struct vectors v; /* first member */
    const json_t *query, *documents;
    int top_n;
    bool return_documents;
    json_t *texts;       /* the documents, if they are to be returned; owned */
    struct score *score; /* [v.n], owned */
};

#define AT(member) offsetof(struct rerank, member)

const struct field rerank_fields[] = {
    {.name = "query", .type = FIELD_TEXT, .at = AT(query), .hi = 1 << 24, .required = true},
    {.name = "documents", .type = FIELD_ARRAY, .at = AT(documents), .lo = 1, .hi = VECTORS_MAX, .required = true},
    {.name = "top_n", .type = FIELD_INT, .at = AT(top_n), .hi = 1 << 28},
    {.name = "return_documents", .type = FIELD_BOOL, .at = AT(return_documents)},
    {.name = "model", .type = FIELD_STRING, .at = AT(v.model), .hi = 1024},
    {.name = "user", .type = FIELD_STRING, .at = AT(v.user), .hi = 1024},
    {.name = "cache_salt", .type = FIELD_STRING, .at = AT(v.cache_salt), .hi = 1024},
    {.name = "truncate_prompt_tokens", .type = FIELD_ONE_OF, .allowed = "[]"},
    {.name = "max_tokens_per_doc", .type = FIELD_ONE_OF, .allowed = "[]"},
    {0},
};

static const struct field *const rerank_tables[] = {rerank_fields, NULL};

/* A document is a text, or an object with one. NULL and *f: it is neither. */
static const json_t *text_of(const json_t *document, size_t i, struct fault *f)
{
    static const char wanted[] = "a text, or an object with the member 'text'";
    const json_t *text = json_is_object(document) ? json_object_get(document, "text") : document;
    const char *key;
    json_t *value;
    char name[64];
    snprintf(name, sizeof name, "documents[%zu]", i);
    if (!json_is_string(text)) {
        field_wrong_type(f, name, wanted, document);
        return NULL;
    }
    if (json_is_object(document) && json_object_size(document) > 1)
        json_object_foreach((json_t *)(uintptr_t)document, key, value)
        {
            if (value == text) continue;
            fault_set(f, 400, "unknown_field", name, "%s has the member '%s'; only 'text' is ranked", name, key);
            return NULL;
        }
    return text;
}

static int read_documents(struct rerank *r, struct fault *f)
{
    struct vectors *v = &r->v;
    size_t n = json_array_size(r->documents);
    if (vectors_reserve(v, n, "documents", f)) return -1;
    if (ticket_take(v->ticket, n * sizeof *r->score, "scores", f)) return -1;
    r->score = mem_calloc(n, sizeof *r->score);
    r->texts = r->return_documents ? json_array() : NULL;
    if (!r->score || (r->return_documents && !r->texts)) return api_no_memory(f);
    for (size_t i = 0; i < n; i++) {
        const json_t *text = text_of(json_array_get(r->documents, i), i, f);
        if (!text || vectors_add_pair(v, r->query, text, "documents", f)) return -1;
        if (!r->texts) continue;
        if (ticket_take(v->ticket, json_string_length(text), "documents", f)) return -1;
        if (json_array_append(r->texts, (json_t *)(uintptr_t)text)) return api_no_memory(f);
    }
    return 0;
}

static int rerank_read(struct vectors *v, struct fault *f)
{
    struct rerank *r = (struct rerank *)v;
    if (!can_rank(v))
        return fault_set(f, 400, "unsupported_value", "model",
                         "the model does not rank documents: its file has no ranking head (pooling_type 4 and "
                         "cls.output.weight, as in Qwen3-Reranker)");
    v->pooling = QN_POOL_RANK;
    int rc = read_documents(r, f);
    r->query = r->documents = NULL;
    return rc;
}

static void rerank_take(struct vectors *v, const float *x, int n)
{
    (void)n; /* one */
    ((struct rerank *)v)->score[v->at] = (struct score){(double)x[0], v->at};
}

/* Larger scores first; of equal ones, the earlier document. */
static int compare(const void *a, const void *b)
{
    const struct score *x = a, *y = b;
    if (x->score != y->score) return x->score > y->score ? -1 : 1;
    return x->index < y->index ? -1 : 1;
}

static void rerank_answer(struct vectors *v)
{
    struct rerank *r = (struct rerank *)v;
    struct json_out *o = &v->out;
    size_t n = r->top_n > 0 && (size_t)r->top_n < v->n ? (size_t)r->top_n : v->n;
    qsort(r->score, v->n, sizeof *r->score, compare);
    json_out_open(o, NULL, '{');
    json_out_str(o, "id", v->ticket->id);
    json_out_str(o, "object", "list");
    json_out_str(o, "model", v->served->name);
    json_out_open(o, "results", '[');
    for (size_t i = 0; i < n; i++) {
        const struct score *s = &r->score[i];
        json_out_open(o, NULL, '{');
        json_out_int(o, "index", (int64_t)s->index);
        json_out_num(o, "relevance_score", s->score);
        if (r->texts) {
            const json_t *text = json_array_get(r->texts, s->index);
            json_out_open(o, "document", '{');
            json_out_text(o, "text", json_string_value(text), json_string_length(text));
            json_out_close(o, '}');
        }
        json_out_close(o, '}');
    }
    json_out_close(o, ']');
    vectors_write_usage(v);
    json_out_close(o, '}');
}

static void rerank_deinit(struct vectors *v)
{
    struct rerank *r = (struct rerank *)v;
    json_decref(r->texts);
    mem_free(r->score);
}

void endpoint_rerank(struct api_call *c)
{
    static const struct vectors_kind kind = {.size = sizeof(struct rerank),
                                             .tables = rerank_tables,
                                             .read = rerank_read,
                                             .take = rerank_take,
                                             .answer = rerank_answer,
                                             .deinit = rerank_deinit};
    vectors_begin(c, &kind);
}

/* ---- scores of pairs ---- */

/* One text of the first list is compared with all of the second; lists of the same length, element by element. */
struct pairs {
    struct vectors v;      /* first member */
    const json_t *text[2]; /* text_1, text_2: a text or an array of texts */
    const json_t *list[2]; /* queries, documents: the same under other names */
    size_t n[2];
    float *vector[2]; /* [n[i]][n_embd] of a model with embeddings, else [1][n] scores; owned */
    int n_embd;       /* 1 for a model that ranks */
};

#undef AT
#define AT(member) offsetof(struct pairs, member)

static int parse_texts(void *out, const struct field *field, const char *name, const json_t *v, struct fault *f)
{
    if (!json_is_string(v) && !(json_is_array(v) && json_array_size(v) > 0))
        return field_wrong_type(f, name, "a text or an array of texts", v);
    for (size_t i = 0; i < json_array_size(v); i++)
        if (!json_is_string(json_array_get(v, i)))
            return field_wrong_type(f, name, "a text or an array of texts", json_array_get(v, i));
    *(const json_t **)((char *)out + field->at) = v;
    return 0;
}

const struct field score_fields[] = {
    {.name = "text_1", .type = FIELD_PARSE, .parse = parse_texts, .at = AT(text[0])},
    {.name = "text_2", .type = FIELD_PARSE, .parse = parse_texts, .at = AT(text[1])},
    {.name = "queries", .type = FIELD_PARSE, .parse = parse_texts, .at = AT(list[0])},
    {.name = "documents", .type = FIELD_PARSE, .parse = parse_texts, .at = AT(list[1])},
    {.name = "model", .type = FIELD_STRING, .at = AT(v.model), .hi = 1024},
    {.name = "user", .type = FIELD_STRING, .at = AT(v.user), .hi = 1024},
    {.name = "cache_salt", .type = FIELD_STRING, .at = AT(v.cache_salt), .hi = 1024},
    {.name = "encoding_format", .type = FIELD_ONE_OF, .allowed = "[\"float\"]"},
    {.name = "truncate_prompt_tokens", .type = FIELD_ONE_OF, .allowed = "[]"},
    {0},
};

static const struct field *const score_tables[] = {score_fields, NULL};
static const char *const names[2][2] = {{"text_1", "text_2"}, {"queries", "documents"}};

static const json_t *text_at(const json_t *v, size_t i) { return json_is_array(v) ? json_array_get(v, i) : v; }

/* Checks that there are two lists whose lengths agree. */
static int read_lists(struct pairs *p, int spelling, const json_t *const list[2], struct fault *f)
{
    const char *const *name = names[spelling];
    for (int i = 0; i < 2; i++) {
        if (!list[i]) return fault_set(f, 400, "missing_field", name[i], "%s is missing", name[i]);
        p->n[i] = json_is_array(list[i]) ? json_array_size(list[i]) : 1;
        if (p->n[i] > VECTORS_MAX)
            return fault_set(f, 400, "out_of_range", name[i], "%s has %zu texts, at most %d", name[i], p->n[i],
                             VECTORS_MAX);
    }
    if (p->n[0] == 1 || p->n[0] == p->n[1]) return 0;
    return fault_set(f, 400, "invalid_value", name[0],
                     "%s has %zu texts and %s has %zu: the first has to have 1 or "
                     "as many as the second",
                     name[0], p->n[0], name[1], p->n[1]);
}

/* One prompt for each pair. */
static int read_rank(struct pairs *p, const char *const *name, const json_t *const list[2], struct fault *f)
{
    struct vectors *v = &p->v;
    v->pooling = QN_POOL_RANK;
    p->n_embd = 1;
    if (vectors_reserve(v, p->n[1], name[1], f)) return -1;
    for (size_t i = 0; i < p->n[1]; i++)
        if (vectors_add_pair(v, text_at(list[0], p->n[0] == 1 ? 0 : i), text_at(list[1], i), name[1], f)) return -1;
    p->n[0] = 0; /* all numbers are in the second list */
    return 0;
}

/* One text for each vector. */
static int read_embed(struct pairs *p, const char *const *name, const json_t *const list[2], struct fault *f)
{
    struct vectors *v = &p->v;
    v->pooling = qn_model_pooling(v->served->model);
    p->n_embd = qn_model_n_embd(v->served->model);
    if (v->pooling == QN_POOL_NONE)
        return fault_set(f, 400, "unsupported_value", "model",
                         "the model neither ranks nor embeds: its file has no pooling_type");
    if (vectors_reserve(v, p->n[0] + p->n[1], name[1], f)) return -1;
    for (int k = 0; k < 2; k++)
        for (size_t i = 0; i < p->n[k]; i++)
            if (vectors_add(v, text_at(list[k], i), name[k], f)) return -1;
    return 0;
}

static int score_read(struct vectors *v, struct fault *f)
{
    struct pairs *p = (struct pairs *)v;
    int spelling = p->list[0] || p->list[1];
    const json_t *const list[2] = {spelling ? p->list[0] : p->text[0], spelling ? p->list[1] : p->text[1]};
    if (spelling && (p->text[0] || p->text[1]))
        return fault_set(f, 400, "invalid_value", names[0][p->text[0] == NULL], "%s and %s cannot be combined",
                         names[0][p->text[0] == NULL], names[1][p->list[0] == NULL]);
    if (read_lists(p, spelling, list, f)) return -1;
    if ((can_rank(v) ? read_rank : read_embed)(p, names[spelling], list, f)) return -1;
    p->text[0] = p->text[1] = p->list[0] = p->list[1] = NULL;
    for (int k = 0; k < 2; k++) {
        size_t bytes = p->n[k] * (size_t)p->n_embd * sizeof(float);
        if (ticket_take(v->ticket, bytes, "vectors", f)) return -1;
        p->vector[k] = mem_alloc(bytes + 1);
        if (!p->vector[k]) return api_no_memory(f);
    }
    return 0;
}

static void score_take(struct vectors *v, const float *x, int n)
{
    struct pairs *p = (struct pairs *)v;
    bool second = v->at >= p->n[0];
    float *to = p->vector[second] + (v->at - (second ? p->n[0] : 0)) * (size_t)p->n_embd;
    for (int i = 0; i < n && i < p->n_embd; i++) to[i] = x[i];
}

/* The vectors have a length of 1, so their product is the cosine. */
static double score_of(const struct pairs *p, size_t i)
{
    const float *b = p->vector[1] + i * (size_t)p->n_embd;
    const float *a = p->vector[0] + (p->n[0] > 1 ? i : 0) * (size_t)p->n_embd;
    double sum = 0;
    if (p->n[0] == 0) return (double)b[0];
    for (int k = 0; k < p->n_embd; k++) sum += (double)a[k] * (double)b[k];
    return sum;
}

static void score_answer(struct vectors *v)
{
    struct pairs *p = (struct pairs *)v;
    struct json_out *o = &v->out;
    json_out_open(o, NULL, '{');
    json_out_str(o, "id", v->ticket->id);
    json_out_str(o, "object", "list");
    json_out_int(o, "created", v->created);
    json_out_str(o, "model", v->served->name);
    json_out_open(o, "data", '[');
    for (size_t i = 0; i < p->n[1]; i++) {
        json_out_open(o, NULL, '{');
        json_out_int(o, "index", (int64_t)i);
        json_out_str(o, "object", "score");
        json_out_num(o, "score", score_of(p, i));
        json_out_close(o, '}');
    }
    json_out_close(o, ']');
    vectors_write_usage(v);
    json_out_close(o, '}');
}

static void score_deinit(struct vectors *v)
{
    struct pairs *p = (struct pairs *)v;
    mem_free(p->vector[0]);
    mem_free(p->vector[1]);
}

void endpoint_score(struct api_call *c)
{
    static const struct vectors_kind kind = {.size = sizeof(struct pairs),
                                             .tables = score_tables,
                                             .read = score_read,
                                             .take = score_take,
                                             .answer = score_answer,
                                             .deinit = score_deinit};
    vectors_begin(c, &kind);
}
