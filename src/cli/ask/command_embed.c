/* SPDX-License-Identifier: MIT
 *
 * command_embed.c: `quern embed [TEXT...]`: writes the vectors of texts, one line of JSON for each.
 *
 * The texts go to POST /v1/embeddings, several with each request. The numbers have the nine digits that an f32 needs.
 */
#include <stdio.h>
#include <string.h>
#include <sysexits.h>

#include "base/json/json_text.h"
#include "cli/core/cli.h"
#include "cli/core/commands.h"
#include "cli/place/answer_stream.h"

#define AT_ONCE     16
#define MOST_ANSWER ((size_t)64 << 20) /* bytes */

struct embed_options {
    struct place_options place;
    int pooling; /* in the order of its choices; 0: the model's */
    int dimensions;
};

struct embed_run {
    const struct embed_options *o;
    struct place place;
    const char *text[AT_ONCE]; /* [n], borrowed */
    size_t length[AT_ONCE], n;
};

static json_t *make_request(const struct embed_run *r)
{
    static const char *const poolings[] = {NULL, "mean", "last"};
    json_t *request = json_object(), *input = json_array();
    int bad = json_object_set_new(request, "input", input);
    for (size_t i = 0; i < r->n; i++)
        if (r->length[i]) bad |= json_array_append_new(input, json_stringn(r->text[i], r->length[i]));
    if (r->place.model) bad |= json_object_set_new(request, "model", json_string(r->place.model));
    if (r->o->pooling) bad |= json_object_set_new(request, "pooling", json_string(poolings[r->o->pooling]));
    if (r->o->dimensions) bad |= json_object_set_new(request, "dimensions", json_integer(r->o->dimensions));
    if (!bad) return request;
    json_decref(request);
    return NULL;
}

/* Writes the vectors of the answer in the order of the texts. A text without bytes has none: null. */
static int put_vectors(const struct embed_run *r, const json_t *answer)
{
    struct buf out = {0};
    struct qn_error e = {0};
    const json_t *data = json_object_get(answer, "data");
    size_t k = 0;
    int rc = 0, status;
    for (size_t i = 0; i < r->n && !rc; i++) {
        const json_t *v = r->length[i] ? json_object_get(json_array_get(data, k++), "embedding") : NULL;
        if (r->length[i] && !json_is_array(v))
            rc = error_set(&e, QN_EDATA, "%s: the answer has no vector for text %zu", r->place.name, i + 1);
        else if (v)
            rc = json_text_add(&out, v, JSON_COMPACT | JSON_REAL_PRECISION(9), "a vector", &e);
        else
            rc = buf_str(&out, "null", &e);
        if (!rc) rc = buf_str(&out, "\n", &e);
    }
    status = rc ? cli_fail(&e) : out.len && cli_write(out.data, out.len) ? cli_write_status() : 0;
    buf_deinit(&out);
    return status;
}

/* Asks for the vectors of the texts that were collected. Returns 0 or an exit status, after a message. */
static int flush(struct embed_run *r)
{
    struct chat_result result = {0};
    struct qn_error e = {0};
    json_t *answer = NULL, *request = make_request(r);
    bool is_asked = request && json_array_size(json_object_get(request, "input"));
    int status = 0;
    if (!request) status = cli_usage("embed: a text is not UTF-8");
    while (is_asked && !status && !answer &&
           chat_fetch(r->place.client, "POST", "/v1/embeddings", request, MOST_ANSWER, &answer, &result, &e)) {
        status = answer_elsewhere(&r->place, request);
        if (status < 0) status = answer_fail(&e, &result);
    }
    if (!status) status = put_vectors(r, answer);
    json_decref(answer);
    json_decref(request);
    r->n = 0;
    return status;
}

static int add(struct embed_run *r, const char *text, size_t n)
{
    r->text[r->n] = text;
    r->length[r->n++] = n;
    return r->n == AT_ONCE ? flush(r) : 0;
}

/* Adds each line of standard input. */
static int add_lines(struct embed_run *r, char **text)
{
    size_t n;
    int status = cli_read_all(0, "standard input", CLI_MAX_INPUT, text, &n);
    for (const char *p = *text, *end = p + (status ? 0 : n), *stop; !status && p < end; p = stop + 1) {
        if (!(stop = memchr(p, '\n', (size_t)(end - p)))) stop = end;
        status = add(r, p, (size_t)(stop - p));
    }
    return status;
}

static int run(struct invocation *v)
{
    struct embed_run r = {.o = v->options};
    char *text = NULL;
    if (!v->n && !cli_has_stdin()) return cli_usage("embed: there is no text, and nothing on standard input");
    int status = place_open(&r.place, &r.o->place, v);
    answer_begin();
    for (int i = 0; i < v->n && !status; i++) status = add(&r, v->operand[i], strlen(v->operand[i]));
    if (!v->n && !status) status = add_lines(&r, &text);
    if (r.n && !status) status = flush(&r);
    place_close(&r.place);
    cli_free(text);
    return answer_end(status);
}

static void init(void *options)
{
    struct embed_options *o = options;
    place_options_init(&o->place);
}

#define AT(field) offsetof(struct embed_options, field)
static const struct opt opts[] = {
    {"pooling", 0, OPT_CHOICE, AT(pooling), "HOW", "model (default), mean or last: how token vectors become one",
     .choices = "model|mean|last"},
    {"dimensions", 0, OPT_INT, AT(dimensions), "N", "only the first N numbers of each vector", 1, 1 << 28},
    {0},
};

static const struct opt_group groups[] = {
    {"Options", opts},
    {"Place", opts_place, AT(place), ""},
    {"Engine", opts_engine, AT(place.engine), .rare = true},
    {"Context", opts_context, AT(place.engine), .rare = true},
    {"Model file", opts_model, AT(place.file), .rare = true},
    {0},
};

static const struct example examples[] = {
    {"quern embed \"red\" \"green\" > colours.jsonl", "The vectors of two texts"},
    {"cut -f 2 reviews.tsv | quern embed -m embedder", "The vector of each line"},
    {0},
};

const struct command command_embed = {
    .name = "embed",
    .operands = "[OPTIONS] [TEXT...]",
    .brief = "write the vectors of texts, one line of JSON for each",
    .about = "Each TEXT, or without any each line of standard input, gives a line: its vector, an array of numbers. "
             "For an empty text the line is null. The place that answers is found as for quern ask.\n\n"
             "A model whose file says nothing about vectors gives that of the last token, unless --pooling says "
             "otherwise. A model that ranks documents is refused without --pooling.",
    .min = 0,
    .max = -1,
    .examples = examples,
    .rank = RANK_RARE,
    .groups = groups,
    .size = sizeof(struct embed_options),
    .init = init,
    .run = run,
};
