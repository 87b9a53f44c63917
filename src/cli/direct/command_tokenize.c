/* SPDX-License-Identifier: MIT
 *
 * command_tokenize.c: `quern tokenize MODEL`: turns text into token ids and back, as a filter.
 *
 * Standard input is read byte for byte: a newline at its end is part of the text, and nothing is added unless an
 * option asks for it. So `quern tokenize M | quern tokenize --decode M` gives the input back if the model's tokenizer
 * loses nothing. Only the metadata of the model file is read.
 */
#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/mem.h"
#include "cli/core/cli.h"
#include "cli/core/commands.h"
#include "cli/core/render.h"
#include "cli/place/operand.h"
#include "text/token/detok.h"
#include "text/token/vocab.h"

static int encode(const struct vocab *v, const char *text, size_t n, unsigned flags, struct buf *out,
                  struct qn_error *e)
{
    qn_token *ids = NULL;
    size_t n_ids = 0;
    int rc = vocab_encode(v, text, n, flags, &ids, &n_ids, e);
    for (size_t i = 0; rc == 0 && i < n_ids; i++) rc = buf_printf(out, e, "%s%d", i ? " " : "", ids[i]);
    if (rc == 0) rc = buf_str(out, "\n", e);
    mem_free(ids);
    return rc;
}

static int decode(const struct vocab *v, const char *text, size_t n, unsigned flags, struct buf *out,
                  struct qn_error *e)
{
    struct detok d;
    detok_init(&d, v, flags);
    for (size_t i = 0; i < n;) {
        char *end;
        if (isspace((unsigned char)text[i])) {
            i++;
            continue;
        }
        long id = isdigit((unsigned char)text[i]) ? strtol(text + i, &end, 10) : -1; /* a NUL is after the text */
        if (id < 0 || id >= vocab_n_tokens(v) || (*end && !isspace((unsigned char)*end)))
            return error_set(e, QN_EDATA, "tokenize: '%.*s' at byte %zu is not a token id below %d",
                             (int)strcspn(text + i, " \t\r\n\v\f"), text + i, i, vocab_n_tokens(v));
        int rc = detok_push(&d, (qn_token)id, out, e);
        if (rc) return rc;
        i = (size_t)(end - text);
    }
    return detok_flush(&d, out, e);
}

struct tokenize {
    bool to_text, plain, add;
    struct qn_model_params model;
    struct cli_strings folders;
};

static int run(struct invocation *inv)
{
    const struct tokenize *o = inv->options;
    struct qn_error e = {0};
    struct weights *w = NULL;
    struct vocab *v = NULL;
    struct buf out = {0}, clean = {0};
    char *text = NULL;
    size_t n = 0;
    int status = 0;
    if (o->to_text && o->add) return cli_usage("tokenize: --decode and --add-special exclude each other");
    if ((status = operand_model(inv, 0, &o->folders))) return status;

    int rc = weights_open(&w, inv->operand[0], &e);
    if (rc == 0) rc = vocab_load_with(&v, w, o->model.pre, &e);
    if (rc == 0 && (status = cli_read_all(STDIN_FILENO, "standard input", CLI_MAX_INPUT, &text, &n)) == 0) {
        if (o->to_text)
            rc = decode(v, text, n, DETOK_RAW | (o->plain ? 0u : DETOK_SPECIAL), &out, &e);
        else
            rc =
                encode(v, text, n, (o->plain ? 0u : VOCAB_PARSE_SPECIAL) | (o->add ? VOCAB_ADD_SPECIAL : 0u), &out, &e);
        bool shown = o->to_text && isatty(STDOUT_FILENO); /* a terminal gets only what it may see */
        if (rc == 0 && shown) rc = render_clean(&clean, out.data ? (char *)out.data : "", out.len, &e);
        if (rc == 0 && cli_write(shown ? clean.data : out.data, shown ? clean.len : out.len))
            status = cli_write_status();
    }
    if (rc) status = cli_fail(&e);
    cli_free(text);
    buf_deinit(&out);
    buf_deinit(&clean);
    vocab_free(v);
    weights_close(w);
    return status;
}

#define AT(field) offsetof(struct tokenize, field)
static const struct opt opts[] = {
    {"decode", 'd', OPT_FLAG, AT(to_text), NULL, "read token ids, write their bytes"},
    {"no-special", 0, OPT_FLAG, AT(plain), NULL,
     "treat special tokens in the text as text; with --decode leave them out"},
    {"add-special", 0, OPT_FLAG, AT(add), NULL, "add BOS and EOS where the model wants them"},
    {0},
};

static const struct opt_group groups[] = {
    {"Options", opts}, {"Model file", opts_model, AT(model), .rare = true}, OPERAND_GROUP(AT(folders)), {0}};

static const struct example examples[] = {
    {"quern tokenize m.gguf < letter.txt | wc -w", "How many tokens a text has"},
    {"echo \"1 2 3\" | quern tokenize -d m.gguf", "What these tokens say"},
    {0},
};

const struct command command_tokenize = {
    .name = "tokenize",
    .operands = "MODEL < TEXT",
    .brief = "text to token ids, and back",
    .about = "Turns text on standard input into token ids on standard output, or with --decode ids into text.\n\n"
             "Standard input is read byte for byte: a newline at its end is part of the text, and nothing is added "
             "unless an option asks for it. Decoding gives the input back if the model's tokenizer loses nothing. Only "
             "the beginning of the model file is read.",
    .min = 1,
    .max = 1,
    .words = WORDS_MODEL,
    .examples = examples,
    .rank = RANK_RARE,
    .groups = groups,
    .size = sizeof(struct tokenize),
    .run = run,
};
