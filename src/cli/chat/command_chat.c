/* SPDX-License-Identifier: MIT
 *
 * command_chat.c: `quern chat`: a conversation.
 *
 * At a terminal there is a line editor, replies are shown as they arrive, and commands begin with a slash. Otherwise
 * each line of standard input is a message, standard output has only the replies, and the first failure ends the run.
 */
#include "cli/chat/chat_run.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sysexits.h>
#include <unistd.h>

#include "base/os.h"
#include "cli/ask/keep.h"
#include "cli/core/commands.h"
#include "cli/core/wrap.h"
#include "cli/chat/edit.h"
#include "text/token/unicode.h"

#define MOST_SYSTEM ((size_t)1 << 20) /* bytes of --system-file */

#define PROMPT "> "
#define MORE   ". "

/* ---- reading messages ---- */

struct message_reader {
    struct edit *edit; /* NULL: lines of standard input */
    struct buf ahead;  /* bytes that were read and not used yet */
    bool ended;
};

/* Reads one line, without its end. Returns EDIT_TEXT, EDIT_END or an error. */
static int read_line(struct message_reader *s, struct buf *text, struct qn_error *e)
{
    for (size_t looked = 0;;) {
        uint8_t *end = s->ahead.len > looked ? memchr(s->ahead.data + looked, '\n', s->ahead.len - looked) : NULL;
        size_t n = end ? (size_t)(end - s->ahead.data) : s->ahead.len;
        if (end || (s->ended && n)) {
            int rc = buf_add(text, s->ahead.data, n, e);
            size_t used = n + (end != NULL);
            memmove(s->ahead.data, s->ahead.data + used, s->ahead.len - used);
            s->ahead.len -= used;
            return rc;
        }
        if (s->ended) return EDIT_END;
        looked = n;
        if (n > CLI_MAX_INPUT)
            return error_set(e, QN_EDATA, "standard input: a line of more than %zu bytes", CLI_MAX_INPUT);
        if (buf_reserve(&s->ahead, 1 << 16, e)) return QN_ENOMEM;
        ssize_t got = read(STDIN_FILENO, s->ahead.data + n, 1 << 16);
        if (got < 0 && errno == EINTR) continue;
        if (got < 0) return error_set(e, QN_EIO, "cannot read standard input: %s", strerror(errno));
        s->ended = got == 0;
        s->ahead.len += (size_t)got;
    }
}

static int next_text(struct message_reader *s, struct buf *text, struct qn_error *e)
{
    buf_clear(text);
    int rc = s->edit ? edit_read(s->edit, text, e) : read_line(s, text, e);
    if (rc == EDIT_TEXT && text->len && !unicode_is_utf8(text->data, text->len))
        return error_set(e, QN_EDATA, "a message of %zu bytes is not UTF-8 text", text->len);
    return rc;
}

/* Opens the line editor. Without one the terminal's lines are read as they are. */
static void open_editor(struct message_reader *s, struct chat_run *c)
{
    struct edit_setup setup = {.prompt = PROMPT, .more = MORE, .complete = chat_complete, .arg = c};
    struct qn_error notice = {0}, e;
    if (edit_open(&s->edit, &setup, &notice, &e)) {
        s->edit = NULL;
        cli_fail(&e);
    } else if (notice.code) {
        fprintf(stderr, "quern: what you type is not kept in a history: %s\n", notice.msg);
    }
}

/* ---- the conversation ---- */

/* Sends a message and shows the reply. Returns 0 or an exit status. */
static int say(struct chat_run *c, const char *text, size_t n)
{
    struct buf whole = {0};
    struct qn_error e;
    if (n > 1 && text[0] == '/' && text[1] == '/') { /* the second slash begins the message */
        text++;
        n--;
    }
    if (c->talk.n && c->talk.v[c->talk.n - 1].role == TALK_USER) talk_undo(&c->talk); /* it has no answer */
    int rc = chat_compose(c, text, n, &whole, &e);
    if (!rc) rc = talk_add(&c->talk, TALK_USER, (char *)whole.data, whole.len, NULL, 0, false, &e);
    buf_deinit(&whole);
    return rc ? cli_fail(&e) : chat_turn(c);
}

/* Reads messages and commands until there are no more. Returns the exit status. */
static int converse(struct chat_run *c, struct message_reader *s)
{
    struct buf text = {0};
    struct qn_error e;
    int rc, status = EX_OK;
    while ((rc = next_text(s, &text, &e)) == EDIT_TEXT) {
        const char *p = text.data ? (const char *)text.data : "";
        if (text.len == strspn(p, " \t\r\n")) continue;
        int next = chat_is_command(p) ? chat_command(c, p) : CHAT_ASK;
        if (next >= 0) {
            status = next;
            break;
        }
        if (next == CHAT_STAY) continue;
        status = chat_is_command(p) ? chat_turn(c) : say(c, p, text.len);
        if (c->gone || (status && !c->person)) break;
        status = EX_OK;
    }
    if (rc < 0) status = cli_fail(&e);
    buf_deinit(&text);
    return status;
}

/* Reads the system prompt into `text`, which stays empty if there is none. Of the option and the file, the one from
 * the nearer origin counts (a persona of the configuration may have one, the command line the other). */
static int read_system(const struct chat_run *c, struct buf *text, struct qn_error *e)
{
    const struct chat_options *o = c->o;
    enum opt_origin line = options_origin(c->invocation, "system"), file = options_origin(c->invocation, "system-file");
    if (o->system && o->system_file && line == file)
        return error_set(e, QN_EUSAGE, "--system and --system-file exclude each other");
    if (o->args.n && (!o->persona || o->system || o->system_file))
        return error_set(e, QN_EUSAGE, "--arg is for the text of a persona, and there is none");
    bool is_line = o->system && (!o->system_file || line > file);
    int rc = 0;
    if (is_line)
        rc = buf_str(text, o->system, e);
    else if (o->system_file)
        rc = os_read_file(text, o->system_file, MOST_SYSTEM, e);
    else if (o->persona)
        rc = persona_text(text, c->persona, o->persona, &o->args, e);
    if (rc || unicode_is_utf8(text->data, text->len)) return rc;
    return error_set(e, QN_EDATA, "%s is not UTF-8 text", is_line ? "--system" : o->system_file);
}

/* Starts the conversation and opens the place. Returns 0 or an exit status, after a message. */
static int begin(struct chat_run *c)
{
    const struct chat_options *o = c->o;
    struct buf system = {0};
    struct qn_error e;
    int rc = o->persona ? persona_find(&c->persona, c->invocation->config, o->persona, &e) : 0;
    size_t n_bytes;
    if (!rc && o->load) rc = talk_load(&c->talk, o->load, &e);
    if (!rc && o->go_on) rc = keep_read_last(&c->talk, &e);
    for (size_t i = 0; i < o->files.n && !rc; i++) rc = chat_add_file(c, o->files.v[i], &n_bytes, &e);
    if (!rc) rc = read_system(c, &system, &e);
    if (!rc && system.len) rc = talk_set_system(&c->talk, (char *)system.data, system.len, &e);
    buf_deinit(&system);
    return rc ? cli_fail(&e) : place_open(&c->place, &o->place, c->invocation);
}

static int run(struct invocation *v)
{
    struct chat_run c = {.o = v->options, .invocation = v, .last = {.n_prompt = -1, .n_cached = -1, .n_generated = -1}};
    struct message_reader s = {0};
    if (c.o->load && c.o->go_on) return cli_usage("chat: --load and --continue exclude each other");
    int status = receipt_file_check("chat", &c.o->receipt, true);
    if (status) return status;
    c.person = isatty(STDIN_FILENO) && isatty(STDOUT_FILENO);
    render_init(&c.render, STDOUT_FILENO);
    status = begin(&c);
    if (!status && c.person) {
        open_editor(&s, &c);
        chat_catch_interrupts();
        char line[sizeof c.place.name + 64];
        snprintf(line, sizeof line, "(%s answers; /help lists the commands)", c.place.name);
        wrap_print(stderr, line, 0);
        if (c.talk.n) fprintf(stderr, "(going on from %zu message%s)\n", c.talk.n, c.talk.n == 1 ? "" : "s");
    }
    if (!status) status = converse(&c, &s);
    edit_close(s.edit);
    buf_deinit(&s.ahead);
    place_close(&c.place);
    talk_clear(&c.talk);
    render_deinit(&c.render);
    buf_deinit(&c.files);
    chat_words_clear(&c.words);
    cli_free(c.model);
    return status;
}

static void init(void *options)
{
    struct chat_options *o = options;
    qn_sampling_init(&o->sampling);
    place_options_init(&o->place);
}

#define AT(field) offsetof(struct chat_options, field)
static const struct opt opts[] = {
    {"persona", 'p', OPT_STRING, AT(persona), "NAME", "use this persona", .words = WORDS_PERSONA},
    {"arg", 0, OPT_STRINGS, AT(args), "NAME=VALUE", "an argument of the persona; may be repeated", .rare = true},
    {"system", 0, OPT_STRING, AT(system), "TEXT", "the system prompt"},
    {"system-file", 0, OPT_STRING, AT(system_file), "FILE", "the same from a file", .words = WORDS_FILE},
    {"file", 'f', OPT_STRINGS, AT(files), "FILE", "attach a file to the first message; may be repeated",
     .words = WORDS_FILE},
    {"continue", 'c', OPT_FLAG, AT(go_on), NULL, "go on from the last conversation, also of the filter"},
    {"no-keep", 0, OPT_FLAG, AT(no_keep), NULL, "do not keep the conversation for --continue", .rare = true},
    {"load", 0, OPT_STRING, AT(load), "FILE", "continue a saved conversation", .words = WORDS_FILE},
    {"context", 0, OPT_STRING, AT(context), "HOW",
     "when the context is full: plain (the chat ends) or rotate:KEEP (the first KEEP tokens and the newest stay)",
     .rare = true},
    {"max-tokens", 'n', OPT_INT, AT(max_tokens), "N", "most tokens of a reply (default: the room in the context)", 1,
     INT32_MAX},
    {0},
};

static const struct opt_group groups[] = {
    {"Options", opts},
    {"Receipt", opts_receipt, AT(receipt), NULL, true},
    {"Where to ask", opts_place, AT(place), ""},
    {"Sampling", opts_sampling, AT(sampling), NULL, true},
    {"Engine, when this process answers", opts_engine, AT(place.engine), NULL, true},
    {"Context, when this process answers", opts_context, AT(place.engine), NULL, true},
    {"Model file, when this process answers", opts_model, AT(place.file), NULL, true},
    {"Drafts", opts_draft, AT(place.draft), NULL, true},
    {"Several hosts, when this process answers", opts_stage_hosts, AT(place.hosts), NULL, true},
    {0},
};

static const struct example examples[] = {
    {"quern chat", "With the daemon's model, or the only one in ~/models"},
    {"quern chat -m small --system 'Answer in one sentence.'", "With the model of this name"},
    {"quern chat -f plan.txt", "With a file that the first message is about"},
    {"quern chat -c", "Go on from the last conversation"},
    {"quern chat --load plan.chat", "Continue what /save plan.chat has written"},
    {"quern chat < questions.txt > answers.txt", "One message per line"},
    {0},
};

const struct command command_chat = {
    .name = "chat",
    .operands = "[OPTIONS]",
    .brief = "talk with a model at the terminal",
    .about = "Talks with a model. If standard input is not a terminal, each line is a message, and standard output has "
             "only the replies.\n\n"
             "A line that begins with a slash is a command: /help lists them, Tab completes them, their files and "
             "models, and // begins a "
             "message with a slash. A line that ends in a backslash continues in the next line, Alt-Enter breaks a "
             "line, and a paste of several lines is one message. Ctrl-C stops the reply and keeps what was said until "
             "then; Ctrl-D ends the program.\n\n"
             "/save writes a plain file with one line of JSON per message: role and content, and, if there are any, "
             "reasoning_content (the thoughts) and cut (the reply was stopped). You can edit the file, and continue it "
             "with /load or --load.\n\n"
             "At a terminal the conversation is kept after each reply, up to 1 MiB, for --continue of this command and "
             "of the filter, in last.chat next to the history. Lines are wrapped between words, and bold text, "
             "headings and code are shown as such.\n\n"
             "What was typed is kept in $XDG_STATE_HOME/quern/history, or ~/.local/state/quern/history.",
    .examples = examples,
    .groups = groups,
    .size = sizeof(struct chat_options),
    .init = init,
    .run = run,
};
