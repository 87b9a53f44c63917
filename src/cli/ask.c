/* SPDX-License-Identifier: MIT
 *
 * ask.c: `quern [ask] [INSTRUCTION...]`: the filter. A text comes in, an instruction says what to do with it, and the
 * answer goes out.
 *
 * How the message is composed: message.h. Where it is answered: place.h. What becomes of texts that are too
 * large: ask_texts.c.
 */
#include "cli/ask.h"

#include <string.h>
#include <sysexits.h>

#include "base/os.h"
#include "cli/chunk.h"
#include "cli/cli.h"
#include "cli/commands.h"

#define MAX_SYSTEM ((size_t)1 << 20) /* bytes of --system-file */

static int read_words(struct ask *a, struct qn_error *e)
{
    int rc = 0;
    for (int i = 0; i < a->v->n && !rc; i++) {
        if (i) rc = buf_str(&a->instruction, " ", e);
        if (!rc) rc = intake_word(&a->instruction, a->v->operand[i], e);
    }
    return rc;
}

/* What an option says goes before what a persona does; of the two options the one that was said nearer. */
static int read_system(struct ask *a, struct qn_error *e)
{
    const struct ask_options *o = a->o;
    struct buf raw = {0};
    int rc;
    bool text = o->system && (!o->system_file || options_origin(a->v, "system") > options_origin(a->v, "system-file"));
    if (text) return intake_word(&a->system, o->system, e);
    if (!o->system_file) return a->persona ? buf_str(&a->system, a->persona->system, e) : 0;
    if (!(rc = os_read_file(&raw, o->system_file, MAX_SYSTEM, e)) && raw.len)
        rc = intake_word(&a->system, (char *)raw.data, e);
    buf_deinit(&raw);
    return rc;
}

/* Files in their order, then standard input. */
static void list_sources(struct ask *a)
{
    const struct cli_strings *files = &a->o->files;
    a->source = cli_alloc(files->n + 1, sizeof *a->source);
    for (size_t i = 0; i < files->n; i++) source_init(&a->source[a->n_sources++], files->v[i]);
    if (source_has_stdin()) source_init(&a->source[a->n_sources++], NULL);
}

static int open_place(struct ask *a)
{
    int status = place_open(&a->place, &a->o->place);
    a->placed = true;
    answer_begin();
    return status;
}

static int check_message(const struct buf *text)
{
    return text->len ? 0 : cli_usage("nothing is asked: the text is empty, and there is no instruction");
}

/* The user's message. Texts that need no place are read before one is looked for. */
static int make_message(struct ask *a, struct buf *text)
{
    struct qn_error e = {0};
    int status;
    if (a->o->overflow == OVERFLOW_FAIL) {
        if (ask_read_texts(a, text, &e)) return cli_fail(&e);
        return (status = check_message(text)) ? status : open_place(a);
    }
    if ((status = open_place(a))) return status;
    if (ask_look(a, &e)) return cli_fail(&e);
    if (a->o->overflow == OVERFLOW_CHUNK)
        status = chunk_message(a, text);
    else if (ask_read_texts(a, text, &e))
        status = cli_fail(&e);
    return status ? status : check_message(text);
}

static int answer(struct ask *a)
{
    struct answer_manner manner = {.json = a->o->json, .verbose = a->o->verbose};
    struct buf text = {0};
    struct qn_error e = {0};
    json_t *request = NULL;
    int status = make_message(a, &text);
    if (!status && ask_request(a, text.data ? (char *)text.data : "", text.len, &request, &e)) status = cli_fail(&e);
    buf_deinit(&text);
    if (!status) status = answer_stream(&a->place, request, &manner);
    json_decref(request);
    return status;
}

static int run(struct invocation *v)
{
    const struct ask_options *o = v->options;
    struct ask a = {.v = v, .o = o};
    struct qn_error e = {0};
    int status = 0;
    if (o->system && o->system_file && options_origin(v, "system") == options_origin(v, "system-file"))
        return cli_usage("ask: --system and --system-file exclude each other");
    if (o->schema && o->json_object) return cli_usage("ask: --schema and --json-object exclude each other");
    list_sources(&a);
    if ((o->persona && persona_find(&a.persona, v->config, o->persona, &e)) || read_system(&a, &e) ||
        read_words(&a, &e) || ask_read_schema(&a, &e))
        status = cli_fail(&e);
    else if (!a.instruction.len && !a.n_sources)
        status = cli_usage(
            "nothing is asked: there is no instruction, no file and nothing on standard input (see quern --help)");
    if (!status) status = answer(&a);
    if (a.placed) place_close(&a.place);
    json_decref(a.schema);
    buf_deinit(&a.system);
    buf_deinit(&a.instruction);
    cli_free(a.source);
    buf_deinit(&a.model);
    return answer_end(status);
}

static void init(void *options)
{
    struct ask_options *o = options;
    o->max_tokens = -1;
    place_options_init(&o->place);
    qn_sampling_init(&o->sampling);
}

#define AT(field) offsetof(struct ask_options, field)
static const struct opt opts[] = {
    {"persona", 'p', OPT_STRING, AT(persona), "NAME", "ask as summarize, translate, diagnose, reviewer, ...",
     .words = WORDS_PERSONA},
    {"system", 0, OPT_STRING, AT(system), "TEXT", "the system prompt", .rare = true},
    {"system-file", 0, OPT_STRING, AT(system_file), "FILE", "the same from a file", .words = WORDS_FILE, .rare = true},
    {"file", 'f', OPT_STRINGS, AT(files), "FILE", "attach a file, with its name; may be repeated", .words = WORDS_FILE},
    {"encoding", 0, OPT_STRING, AT(encoding), "NAME", "of the texts (default: UTF-8, or what their first bytes say)",
     .rare = true},
    {"overflow", 0, OPT_CHOICE, AT(overflow), "HOW",
     "of a text that is too large: fail (default), keep its head, its tail, all but the middle, or chunk: take it in "
     "pieces",
     .choices = "fail|head|tail|middle|chunk" /* as enum ask_overflow */},
    {"max-tokens", 'n', OPT_INT, AT(max_tokens), "N", "of the answer (default: what the context has room for)", 1,
     INT32_MAX},
    {"stop", 0, OPT_STRINGS, AT(stop), "TEXT", "end before this text; may be repeated", .rare = true},
    {"schema", 0, OPT_STRING, AT(schema), "FILE", "the answer is JSON of this schema", .words = WORDS_FILE,
     .rare = true},
    {"json-object", 0, OPT_FLAG, AT(json_object), NULL, "the answer is a JSON object", .rare = true},
    {"json", 0, OPT_FLAG, AT(json), NULL, "events instead of text, an object a line"},
    {"verbose", 'v', OPT_FLAG, AT(verbose), NULL, "thoughts, the place and the rates, on standard error"},
    {0},
};

static const struct opt_group groups[] = {
    {"Options", opts},
    {"Place", opts_place, AT(place), ""},
    {"Sampling", opts_sampling, AT(sampling), .rare = true},
    {"Engine", opts_engine, AT(place.engine), .rare = true},
    {"Context", opts_context, AT(place.engine), .rare = true},
    {"Model file", opts_model, AT(place.file), .rare = true},
    {0},
};

static const struct example examples[] = {
    {"tail -n 200 error.log | quern \"diagnose\"", "Ask about what a program prints"},
    {"git diff | quern -p reviewer", "Ask as a persona"},
    {"quern -f a.c -f b.c \"How do these two differ?\"", "Ask about files"},
    {"quern --overflow=chunk -p summarize < book.txt", "A text larger than the model's context, in pieces"},
    {"quern -v --temperature 0 \"Name three rivers.\"",
     "No text; always the same answer; with the place and the rates"},
    {0},
};

const struct command command_ask = {
    .name = "ask",
    .operands = "[OPTIONS] [INSTRUCTION...]",
    .brief = "do what an instruction says with a text; the word ask may be left out",
    .about =
        "Standard input, unless it is a terminal, and files are the text, INSTRUCTION says what to do with it; the "
        "answer goes to standard output.\n\n"
        "The answer comes from the first of these that is there: the socket that $QUERN_SOCKET names, the user's "
        "daemon, the system's, a remote endpoint that was configured, and else this process with the default "
        "model.\n\n"
        "A text that does not fit the model's context is an error. With --overflow its head, its tail or both ends "
        "are kept, as many whole lines as fit beside the answer's room: --max-tokens, or a quarter of the context, "
        "at most 2048 tokens; a line says how much was left out. Or it is taken in pieces (chunk): the instruction "
        "over each, then over the answers; those are kept in ~/.cache/quern/pieces, so that of an edited text only "
        "the new pieces are computed.\n\n"
        "Called by another name than quern, as by a symbolic link, it is the persona of that name.",
    .max = -1,
    .implied = true,
    .examples = examples,
    .groups = groups,
    .size = sizeof(struct ask_options),
    .init = init,
    .run = run,
};
