/* SPDX-License-Identifier: MIT
 *
 * chat.c: `quern chat`: a conversation.
 *
 * At a terminal: a line editor, replies as they come, commands that begin with a slash. Where standard input is no
 * terminal: each line is a message, standard output is the replies and nothing else, and the first failure ends it.
 */
#include "cli/chat.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sysexits.h>
#include <unistd.h>

#include "base/os.h"
#include "cli/commands.h"
#include "cli/edit.h"
#include "text/unicode.h"

#define MOST_SYSTEM ((size_t)1 << 20) /* bytes of --system-file */

#define PROMPT "> "
#define MORE   ". "

/* ---- where messages come from ---- */

struct source {
    struct edit *edit; /* NULL: lines of standard input */
    struct buf ahead;  /* what was read and is not used */
    bool ended;
};

/* One line, without its end. EDIT_TEXT, EDIT_END or an error. */
static int read_line(struct source *s, struct buf *text, struct qn_error *e)
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

static int next_text(struct source *s, struct buf *text, struct qn_error *e)
{
    buf_clear(text);
    int rc = s->edit ? edit_read(s->edit, text, e) : read_line(s, text, e);
    if (rc == EDIT_TEXT && text->len && !unicode_is_utf8(text->data, text->len))
        return error_set(e, QN_EDATA, "a message of %zu bytes is not UTF-8 text", text->len);
    return rc;
}

/* Without an editor a terminal's lines are read as they are. */
static void open_editor(struct source *s, struct chat *c)
{
    struct edit_setup setup = {.prompt = PROMPT, .more = MORE, .complete = chat_complete, .arg = c};
    struct qn_error notice = {0}, e;
    if (edit_open(&s->edit, &setup, &notice, &e)) {
        s->edit = NULL;
        cli_fail(&e);
    } else if (notice.code) {
        fprintf(stderr, "quern: what you type is not kept for the next time: %s\n", notice.msg);
    }
}

/* ---- the conversation ---- */

/* A message, and the reply to it. 0 or an exit status. */
static int say(struct chat *c, const char *text, size_t n)
{
    struct qn_error e;
    if (n > 1 && text[0] == '/' && text[1] == '/') text++, n--;
    if (c->talk.n && c->talk.v[c->talk.n - 1].role == TALK_USER) talk_undo(&c->talk); /* it was never answered */
    if (talk_add(&c->talk, TALK_USER, text, n, NULL, 0, false, &e)) return cli_fail(&e);
    return chat_turn(c);
}

/* Messages and commands until there are no more. The exit status. */
static int converse(struct chat *c, struct source *s)
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

/* What the model is told before all: of an option and a file the one that was said nearer (a persona of the
 * configuration says one, the command line the other). Nothing is added to `text` when none was. */
static int read_system(const struct chat *c, struct buf *text, struct qn_error *e)
{
    const struct chat_options *o = c->o;
    enum opt_origin line = options_origin(c->invocation, "system"), file = options_origin(c->invocation, "system-file");
    if (o->system && o->system_file && line == file)
        return error_set(e, QN_EUSAGE, "--system and --system-file exclude each other");
    bool is_line = o->system && (!o->system_file || line > file);
    int rc = is_line          ? buf_str(text, o->system, e)
             : o->system_file ? os_read_file(text, o->system_file, MOST_SYSTEM, e)
             : c->persona     ? buf_str(text, c->persona->system, e)
                              : 0;
    if (rc || unicode_is_utf8(text->data, text->len)) return rc;
    return error_set(e, QN_EDATA, "%s is not UTF-8 text", is_line ? "--system" : o->system_file);
}

/* The conversation as it begins. */
static int begin(struct chat *c)
{
    const struct chat_options *o = c->o;
    struct buf system = {0};
    struct qn_error e;
    int rc = o->persona ? persona_find(&c->persona, c->invocation->config, o->persona, &e) : 0;
    if (!rc && o->load) rc = talk_load(&c->talk, o->load, &e);
    if (!rc) rc = read_system(c, &system, &e);
    if (!rc && system.len) rc = talk_set_system(&c->talk, (char *)system.data, system.len, &e);
    buf_deinit(&system);
    return rc ? cli_fail(&e) : place_open(&c->place, &o->place);
}

static int run(struct invocation *v)
{
    struct chat c = {.o = v->options, .invocation = v, .last = {.n_prompt = -1, .n_cached = -1, .n_generated = -1}};
    struct source s = {0};
    c.person = isatty(STDIN_FILENO) && isatty(STDOUT_FILENO);
    render_init(&c.render, STDOUT_FILENO);
    int status = begin(&c);
    if (!status && c.person) {
        open_editor(&s, &c);
        chat_catch_interrupts();
        fprintf(stderr, "(%s answers; /help lists what else can be said)\n", c.place.name);
    }
    if (!status) status = converse(&c, &s);
    edit_close(s.edit);
    buf_deinit(&s.ahead);
    place_close(&c.place);
    talk_clear(&c.talk);
    render_deinit(&c.render);
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
    {"persona", 'p', OPT_STRING, AT(persona), "NAME", "be answered as this persona does", .words = WORDS_PERSONA},
    {"system", 0, OPT_STRING, AT(system), "TEXT", "what the model is told before all"},
    {"system-file", 0, OPT_STRING, AT(system_file), "FILE", "the same from a file", .words = WORDS_FILE},
    {"load", 0, OPT_STRING, AT(load), "FILE", "go on with a conversation that was saved", .words = WORDS_FILE},
    {"max-tokens", 'n', OPT_INT, AT(max_tokens), "N", "of a reply (default: what the context has room for)", 1,
     INT32_MAX},
    {0},
};

static const struct opt_group groups[] = {
    {"Options", opts},
    {"Where to ask", opts_place, AT(place), ""},
    {"Sampling", opts_sampling, AT(sampling), NULL, true},
    {"Engine, when this process answers", opts_engine, AT(place.engine), NULL, true},
    {"Context, when this process answers", opts_context, AT(place.engine), NULL, true},
    {"Model file, when this process answers", opts_model, AT(place.file), NULL, true},
    {0},
};

static const struct example examples[] = {
    {"quern chat", "With the daemon's model, or the only one in ~/models"},
    {"quern chat -m small --system 'Answer in one sentence.'", "With the model of this name"},
    {"quern chat --load plan.chat", "Where /save plan.chat has left off"},
    {"quern chat < questions.txt > answers.txt", "A message a line"},
    {0},
};

const struct command command_chat = {
    .name = "chat",
    .operands = "[OPTIONS]",
    .brief = "talk with a model at the terminal",
    .about =
        "Talks with a model. Where standard input is no terminal, each line is a message, and standard output is the "
        "replies.\n\n"
        "A line that begins with a slash is a command: /help lists them, Tab completes them, // begins a message "
        "with a slash. A line that ends in a backslash goes on in the next, Alt-Enter breaks it, and a paste of "
        "several "
        "lines is one message. Ctrl-C stops the reply, and what was said until then is kept; Ctrl-D ends.\n\n"
        "/save writes a plain file, a line of JSON for each message, with role and content, and where there are "
        "such reasoning_content (thoughts) and cut (the reply was stopped). It may be edited, and /load or --load go "
        "on "
        "with it.\n\n"
        "What was typed is kept in $XDG_STATE_HOME/quern/history, else ~/.local/state/quern/history.",
    .examples = examples,
    .groups = groups,
    .size = sizeof(struct chat_options),
    .init = init,
    .run = run,
};
