/* SPDX-License-Identifier: MIT
 *
 * command_ask.c: `quern [ask] [INSTRUCTION...]`: the filter. It reads a text, does what an instruction says with it,
 * and writes the answer.
 *
 * message.h composes the message, place.h finds the place that answers, and ask_texts.c cuts texts that are too large.
 */
#include "cli/ask/ask_run.h"

#include <string.h>
#include <sysexits.h>

#include "base/os.h"
#include "cli/ask/chunk.h"
#include "cli/core/cli.h"
#include "cli/core/commands.h"

#define MAX_SYSTEM ((size_t)1 << 20) /* bytes of --system-file */

static int read_words(struct ask_run *a, struct qn_error *e)
{
    int rc = 0;
    for (int i = 0; i < a->v->n && !rc; i++) {
        if (i) rc = buf_str(&a->instruction, " ", e);
        if (!rc) rc = intake_word(&a->instruction, a->v->operand[i], e);
    }
    return rc;
}

/* Reads the system prompt. An option goes before a persona. Of the two options, the one from the nearer origin
 * counts. */
static int read_system(struct ask_run *a, struct qn_error *e)
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

/* Lists the texts: the files in their order, then standard input. */
static void list_inputs(struct ask_run *a)
{
    const struct cli_strings *files = &a->o->files;
    a->input = cli_alloc(files->n + 1, sizeof *a->input);
    for (size_t i = 0; i < files->n; i++) input_init(&a->input[a->n_inputs++], files->v[i]);
    if (cli_has_stdin()) input_init(&a->input[a->n_inputs++], NULL);
}

static int open_place(struct ask_run *a)
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

/* Makes the user's message. Texts that need no place are read before a place is looked for. */
static int make_message(struct ask_run *a, struct buf *text)
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

static int answer(struct ask_run *a)
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
    struct ask_run a = {.v = v, .o = o};
    struct qn_error e = {0};
    int status = 0;
    if (o->system && o->system_file && options_origin(v, "system") == options_origin(v, "system-file"))
        return cli_usage("ask: --system and --system-file exclude each other");
    if (o->schema && o->json_object) return cli_usage("ask: --schema and --json-object exclude each other");
    list_inputs(&a);
    if ((o->persona && persona_find(&a.persona, v->config, o->persona, &e)) || read_system(&a, &e) ||
        read_words(&a, &e) || ask_read_schema(&a, &e))
        status = cli_fail(&e);
    else if (!a.instruction.len && !a.n_inputs)
        status = cli_usage(
            "nothing is asked: there is no instruction, no file and nothing on standard input (see quern --help)");
    if (!status) status = answer(&a);
    if (a.placed) place_close(&a.place);
    json_decref(a.schema);
    buf_deinit(&a.system);
    buf_deinit(&a.instruction);
    cli_free(a.input);
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
    {"encoding", 0, OPT_STRING, AT(encoding), "NAME", "encoding of the texts (default: UTF-8, or by their first bytes)",
     .rare = true},
    {"overflow", 0, OPT_CHOICE, AT(overflow), "HOW",
     "for a text that is too large: fail (default), keep its head, its tail or both (middle), or read it in "
     "pieces (chunk)",
     .choices = "fail|head|tail|middle|chunk" /* in the order of enum ask_overflow */},
    {"max-tokens", 'n', OPT_INT, AT(max_tokens), "N", "most tokens of the answer (default: the room in the context)", 1,
     INT32_MAX},
    {"stop", 0, OPT_STRINGS, AT(stop), "TEXT", "end before this text; may be repeated", .rare = true},
    {"schema", 0, OPT_STRING, AT(schema), "FILE", "the answer is JSON that follows this schema", .words = WORDS_FILE,
     .rare = true},
    {"json-object", 0, OPT_FLAG, AT(json_object), NULL, "the answer is a JSON object", .rare = true},
    {"json", 0, OPT_FLAG, AT(json), NULL, "events instead of text, one object per line"},
    {"verbose", 'v', OPT_FLAG, AT(verbose), NULL, "print thoughts, the place and the rates on standard error"},
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
    .about = "Standard input, unless it is a terminal, and files are the text. INSTRUCTION says what to do with it. "
             "The answer goes to standard output.\n\n"
             "The answer comes from the first of these that exists: the socket that $QUERN_SOCKET names, the user's "
             "daemon, the system's daemon, a configured remote endpoint, and otherwise this process with the default "
             "model.\n\n"
             "A text that does not fit the model's context is an error. With --overflow its head, its tail or both "
             "ends are kept, as many whole lines as fit next to the room for the answer: --max-tokens, or a quarter of "
             "the context, at most 2048 tokens. A line says how much was left out. With --overflow=chunk the text is "
             "read in pieces: the instruction is applied to each piece, then to the answers. The answers are kept in "
             "~/.cache/quern/pieces, so that only the new pieces of an edited text are computed.\n\n"
             "If the program is called by another name than quern, for example through a symbolic link, it is the "
             "persona of that name.",
    .max = -1,
    .implied = true,
    .examples = examples,
    .groups = groups,
    .size = sizeof(struct ask_options),
    .init = init,
    .run = run,
};
