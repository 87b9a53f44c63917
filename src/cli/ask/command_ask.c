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
#include "cli/ask/decide.h"
#include "cli/ask/each.h"
#include "cli/ask/keep.h"
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

/* Reads the system message that is an option. Of the two options, the one from the nearer origin counts. */
static int read_given(const struct ask_run *a, struct buf *out, struct qn_error *e)
{
    const struct ask_options *o = a->o;
    struct buf raw = {0};
    bool text = o->system && (!o->system_file || options_origin(a->v, "system") > options_origin(a->v, "system-file"));
    if (text) return intake_word(out, o->system, e);
    int rc = os_read_file(&raw, o->system_file, MAX_SYSTEM, e);
    if (!rc && raw.len) rc = intake_word(out, (char *)raw.data, e);
    buf_deinit(&raw);
    return rc;
}

/* Reads the system message. An option goes before a persona, whose own options have its arguments too. */
static int read_system(struct ask_run *a, struct qn_error *e)
{
    const struct ask_options *o = a->o;
    struct buf given = {0};
    if (o->args.n && !o->persona) return error_set(e, QN_EUSAGE, "--arg is for a persona, and there is none");
    if (!o->system && !o->system_file)
        return o->persona ? persona_text(&a->system, a->persona, o->persona, &o->args, e) : 0;
    bool is_own = o->persona && options_origin(a->v, o->system ? "system" : "system-file") == ORIGIN_CONFIG;
    if (!is_own && o->args.n)
        return error_set(e, QN_EUSAGE, "--arg is for the text of a persona, but another system message is given");
    int rc = read_given(a, is_own ? &given : &a->system, e);
    if (!rc && is_own)
        rc = persona_fill(&a->system, o->persona, given.len ? (char *)given.data : "", given.len, &o->args, e);
    buf_deinit(&given);
    return rc;
}

/* Lists the texts: the files in their order, then standard input. */
static void list_inputs(struct ask_run *a)
{
    const struct cli_strings *files = &a->o->files;
    a->input = cli_alloc(files->n + 1, sizeof *a->input);
    bool is_named = false; /* standard input, as "-" */
    for (size_t i = 0; i < files->n; i++) {
        bool is_stdin = !strcmp(files->v[i], "-");
        if (is_stdin && is_named) continue;
        is_named |= is_stdin;
        input_init(&a->input[a->n_inputs++], is_stdin ? NULL : files->v[i]);
    }
    if (!is_named && cli_has_stdin()) input_init(&a->input[a->n_inputs++], NULL);
}

static int open_place(struct ask_run *a)
{
    int status = place_open(&a->place, &a->o->place, a->v);
    a->placed = true;
    intake_is_cancelled = answer_is_cancelled;
    answer_begin();
    return status;
}

/* Refuses a message without a text: an instruction over an empty text gets an answer that looks like one about it. */
static int check_message(const struct ask_run *a, const struct buf *text)
{
    struct qn_error e;
    if (!text->len) return cli_usage("nothing is asked: the text is empty, and there is no instruction");
    for (size_t i = 0; i < a->n_inputs; i++)
        if (a->input[i].n_read) return 0;
    if (!a->n_inputs || a->o->allow_empty) return 0;
    error_set(&e, QN_EDATA, "%s %s empty, so nothing is asked about it (--allow-empty asks all the same)",
              a->n_inputs == 1 ? a->input[0].name : "all texts", a->n_inputs == 1 ? "is" : "are");
    return cli_fail(&e);
}

/* Makes the user's message. Texts that need no place are read before a place is looked for. */
static int make_message(struct ask_run *a, struct buf *text)
{
    struct qn_error e = {0};
    int status;
    if (a->o->overflow == OVERFLOW_FAIL) {
        if (ask_read_texts(a, text, &e)) return cli_fail(&e);
        return (status = check_message(a, text)) ? status : open_place(a);
    }
    if ((status = open_place(a))) return status;
    while (ask_look(a, &e)) {
        if (!client_is_silent(a->place.client)) return cli_fail(&e);
        if ((status = place_next(&a->place))) return status;
    }
    if (a->o->overflow == OVERFLOW_CHUNK)
        status = chunk_message(a, text);
    else if (ask_read_texts(a, text, &e))
        status = cli_fail(&e);
    return status ? status : check_message(a, text);
}

/* Writes the answer, and keeps it for the next question. */
static int write_answer(struct ask_run *a, const struct buf *text, json_t *request)
{
    struct keep k = {0};
    struct answer_manner manner = {.json = a->o->json,
                                   .verbose = a->o->verbose,
                                   .extract = a->o->extract,
                                   .receipt = &a->o->receipt,
                                   .text = &k.answer,
                                   .thoughts = &k.thoughts,
                                   .is_whole = &k.is_whole};
    int status = answer_stream(&a->place, request, &manner);
    if (!status && !answer_is_cancelled()) status = keep_answer(&k, a, text);
    keep_deinit(&k);
    return status;
}

static int answer(struct ask_run *a)
{
    struct buf text = {0};
    struct qn_error e = {0};
    json_t *request = NULL;
    int status = make_message(a, &text);
    if (!status && ask_request(a, text.data ? (char *)text.data : "", text.len, &request, &e)) status = cli_fail(&e);
    if (!status) status = receipt_file_ask(&a->o->receipt, request);
    if (!status) status = decide_is_asked(a->o) ? decide_answer(a, request) : write_answer(a, &text, request);
    buf_deinit(&text);
    json_decref(request);
    return status;
}

/* Asks about each line of standard input. */
static int answer_each(struct ask_run *a)
{
    if (a->o->files.n || a->o->overflow != OVERFLOW_FAIL)
        return cli_usage("ask: --each excludes --file and --overflow");
    if (a->o->verbose) return cli_usage("ask: --each excludes --verbose");
    if (a->o->receipt.path) return cli_usage("ask: --each excludes --receipt");
    if (!a->n_inputs) return cli_usage("ask: --each: there is nothing on standard input");
    int status = open_place(a);
    return status ? status : each_run(a);
}

/* Refuses options that exclude each other. */
static int check_options(const struct invocation *v)
{
    const struct ask_options *o = v->options;
    int n_forms =
        (o->schema != NULL) + o->json_object + (o->grammar != NULL) + (o->regex != NULL) + (o->choice != NULL);
    if (o->system && o->system_file && options_origin(v, "system") == options_origin(v, "system-file"))
        return cli_usage("ask: --system and --system-file exclude each other");
    if (n_forms > 1)
        return cli_usage("ask: --schema, --json-object, --grammar, --regex and --choice exclude each other");
    if (o->extract + o->json + o->each > 1 && o->extract) return cli_usage("ask: --extract excludes --json and --each");
    if (decide_is_asked(o) &&
        (n_forms || o->extract || o->json || o->verbose || o->receipt.path || (o->yes && o->choose)))
        return cli_usage("ask: --%s excludes other forms of the answer, --extract, --json, --receipt and --verbose",
                         o->yes ? "yes" : "choose");
    if (o->quiet && !o->yes) return cli_usage("ask: --quiet is for --yes, whose answer is the exit status");
    if ((o->go_on || o->session) && (o->each || o->overflow == OVERFLOW_CHUNK || decide_is_asked(o)))
        return cli_usage("ask: --%s excludes --each, --overflow=chunk, --yes and --choose",
                         o->go_on ? "continue" : "session");
    if (o->session && !*o->session) return cli_usage("ask: --session needs the name of a file");
    if (o->go_on && o->session) return cli_usage("ask: --continue and --session exclude each other");
    return receipt_file_check("ask", &o->receipt, false);
}

/* Reads the instruction and what goes before it. */
static int prepare(struct ask_run *a)
{
    const struct ask_options *o = a->o;
    struct qn_error e = {0};
    list_inputs(a);
    if ((o->persona && persona_find(&a->persona, a->v->config, o->persona, &e)) || read_system(a, &e) ||
        read_words(a, &e) || ask_read_form(a, &e) || keep_read(a, &e))
        return cli_fail(&e);
    if (!a->instruction.len && !a->n_inputs)
        return cli_usage(
            "nothing is asked: there is no instruction, no file and nothing on standard input (see quern --help)");
    return decide_is_asked(o) && decide_instruct(a, &e) ? cli_fail(&e) : 0;
}

static int run(struct invocation *v)
{
    const struct ask_options *o = v->options;
    struct ask_run a = {.v = v, .o = o};
    int status = check_options(v);
    if (!status) status = prepare(&a);
    if (!status) status = o->each ? answer_each(&a) : answer(&a);
    if (a.placed) place_close(&a.place);
    json_decref(a.schema);
    buf_deinit(&a.grammar);
    buf_deinit(&a.system);
    buf_deinit(&a.instruction);
    cli_free(a.input);
    buf_deinit(&a.model);
    talk_clear(&a.talk);
    session_lock_release(&a.lock);
    return answer_end(decide_is_asked(o) ? decide_status(status) : status);
}

static void init(void *options)
{
    struct ask_options *o = options;
    o->max_tokens = -1;
    o->session_wait_s = 600;
    place_options_init(&o->place);
    qn_sampling_init(&o->sampling);
}

#define AT(field) offsetof(struct ask_options, field)
static const struct opt opts[] = {
    {"persona", 'p', OPT_STRING, AT(persona), "NAME", "ask as summarize, translate, diagnose, reviewer, ...",
     .words = WORDS_PERSONA},
    {"arg", 0, OPT_STRINGS, AT(args), "NAME=VALUE", "an argument of the persona; may be repeated", .rare = true},
    {"system", 0, OPT_STRING, AT(system), "TEXT", "the system prompt", .rare = true},
    {"system-file", 0, OPT_STRING, AT(system_file), "FILE", "the same from a file", .words = WORDS_FILE, .rare = true},
    {"file", 'f', OPT_STRINGS, AT(files), "FILE", "attach a file; - is standard input; may be repeated",
     .words = WORDS_FILE},
    {"continue", 'c', OPT_FLAG, AT(go_on), NULL, "go on from the last answer"},
    {"session", 0, OPT_STRING, AT(session), "FILE", "go on from the conversation in this file, and add to it",
     .words = WORDS_FILE, .rare = true},
    {"session-wait", 0, OPT_INT, AT(session_wait_s), "S",
     "wait at most S seconds for another question in the session (default: 600)", 0, 86400, .rare = true},
    {"no-keep", 0, OPT_FLAG, AT(no_keep), NULL, "do not keep this question for --continue", .rare = true},
    {"yes", 0, OPT_FLAG, AT(yes), NULL, "answer yes (exit status 0) or no (1)"},
    {"choose", 0, OPT_STRING, AT(choose), "A,B", "answer with the likeliest of these texts"},
    {"quiet", 'q', OPT_FLAG, AT(quiet), NULL, "with --yes: only the exit status", .rare = true},
    {"each", 0, OPT_FLAG, AT(each), NULL, "ask about each line; one line is written for each"},
    {"encoding", 0, OPT_STRING, AT(encoding), "NAME", "encoding of the texts (default: UTF-8, or by their first bytes)",
     .rare = true},
    {"overflow", 0, OPT_CHOICE, AT(overflow), "HOW",
     "for a text that is too large: fail (default), head, tail, middle (keep that), chunk (read it in pieces)",
     .choices = "fail|head|tail|middle|chunk" /* in the order of enum ask_overflow */},
    {"allow-empty", 0, OPT_FLAG, AT(allow_empty), NULL, "ask even if the texts are empty", .rare = true},
    {"max-tokens", 'n', OPT_INT, AT(max_tokens), "N", "most tokens of the answer (default: those that fit)", 1,
     INT32_MAX},
    {"stop", 0, OPT_STRINGS, AT(stop), "TEXT", "end before this text; may be repeated", .rare = true},
    {"schema", 0, OPT_STRING, AT(schema), "FILE", "the answer is JSON that follows this schema", .words = WORDS_FILE,
     .rare = true},
    {"json-object", 0, OPT_FLAG, AT(json_object), NULL, "the answer is a JSON object", .rare = true},
    {"grammar", 0, OPT_STRING, AT(grammar), "FILE", "the answer follows this grammar (GBNF)", .words = WORDS_FILE,
     .rare = true},
    {"regex", 0, OPT_STRING, AT(regex), "PATTERN", "the answer matches this regular expression", .rare = true},
    {"choice", 0, OPT_STRING, AT(choice), "A,B,...", "the answer is one of these texts", .rare = true},
    {"extract", 'x', OPT_FLAG, AT(extract), NULL, "write only the first code block of the answer"},
    {"json", 0, OPT_FLAG, AT(json), NULL, "events instead of text, one object per line"},
    {"verbose", 'v', OPT_FLAG, AT(verbose), NULL, "write thoughts, the place and rates to standard error"},
    {0},
};

static const struct opt_group groups[] = {
    {"Options", opts},
    {"Receipt", opts_receipt, AT(receipt), .rare = true},
    {"Place", opts_place, AT(place), ""},
    {"Sampling", opts_sampling, AT(sampling), .rare = true},
    {"Engine", opts_engine, AT(place.engine), .rare = true},
    {"Context", opts_context, AT(place.engine), .rare = true},
    {"Model file", opts_model, AT(place.file), .rare = true},
    {"Drafts", opts_draft, AT(place.draft), .rare = true},
    {"Several hosts", opts_stage_hosts, AT(place.hosts), .rare = true},
    {0},
};

static const struct example examples[] = {
    {"tail -n 200 error.log | quern \"diagnose\"", "Ask about what a program prints"},
    {"git diff | quern -p reviewer", "Ask as a persona"},
    {"quern @translate to=French < letter.txt", "The same, with an argument"},
    {"quern -f a.c -f b.c \"How do these two differ?\"", "Ask about files"},
    {"quern -c \"And why?\"", "Ask further about the last answer"},
    {"quern --yes -q \"Is this spam?\" < mail.txt && rm mail.txt", "Decide by the exit status"},
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
        "Standard input, unless it is a terminal, and files are the text. INSTRUCTION says what to do with it. "
        "The answer goes to standard output.\n\n"
        "The answer comes from the first of these that exists: the socket that $QUERN_SOCKET names, the user's "
        "daemon, the system's daemon, a configured remote endpoint, and otherwise this process with the default "
        "model.\n\n"
        "A text that does not fit the model's context is an error. With --overflow its head, its tail or both "
        "ends are kept, as many whole lines as fit next to the room for the answer: --max-tokens, or a quarter of "
        "the context, at most 2048 tokens. A line says how much was left out. With --overflow=chunk the text is "
        "read in pieces: the instruction is applied to each piece, then to the answers. The answers are kept in "
        "~/.cache/quern/pieces, so that only the new pieces of an edited text are computed.\n\n"
        "With --each every line of standard input is asked as if it were the whole text. Several lines are asked at "
        "once, which is several times faster than one after the other, and the answers are written in order, one "
        "line for each, with a space where a line of the answer ends. For an empty line, or one that fails, the "
        "answer is an empty line; the exit status is that of the first line that failed. With --json each line "
        "gives one object.\n\n"
        "With --yes the answer is yes or no, and so is the exit status: 0 or 1, and 2 if there is no answer. With "
        "--choose it is the likeliest of some texts. With --each, --yes ends with status 0 if one of the answers is "
        "yes.\n\n"
        "--continue asks the next question in the conversation of the last one: what was asked and answered goes "
        "before it. For that the last question is kept in ~/.local/state/quern/last.chat, if it has at most 1 MiB and "
        "there is no --no-keep. Of several such questions at once, the one that ends last is the last one; questions "
        "in "
        "one session wait for each other. --session does the same with a file of your own, which need not exist. Both "
        "files have "
        "the form of quern chat --load.\n\n"
        "quern @NAME ... is short for quern -p NAME ...; words NAME=VALUE after it are arguments of the persona "
        "(--arg). "
        "quern personas lists the personas.\n\n"
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
