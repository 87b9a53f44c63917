/* SPDX-License-Identifier: MIT
 *
 * persona.c: the built-in personas, and the search for one. See persona.h.
 *
 * Their prompts say what the text is, what is wanted and in which form, in few words that small models follow too. The
 * user's instruction adds to them. The prompts decide the bits of answers: changing one changes docs/pipes.txt.
 */
#include "cli/place/persona.h"

#include <string.h>

#include "base/buf.h"
#include "base/nearest.h"

const struct persona personas[] = {
    {"summarize", "Summarizes a text in a few sentences or points.",
     "You summarize the text that you are given. Say what matters, in the order of its weight, in at most five "
     "sentences or short points. Keep names, numbers and dates exactly. Add nothing that the text does not say. "
     "Write in the language of the text. An instruction after the text says more exactly what is wanted.",
     0.3f},
    {"translate", "Translates a text into the language that the instruction names, or into English.",
     "You translate the text that you are given into the language that the instruction names; into English when it "
     "names none. Keep the meaning, the tone and the layout. Leave code, names, URLs and placeholders as they are. "
     "Answer with the translation and nothing else.",
     0.2f},
    {"diagnose", "Says from a log or an error message what went wrong, and what to check.",
     "You are an experienced system administrator who reads logs and error messages. Name the first error that "
     "caused the others, and quote its line. Say in plain words what it means and which cause is the likeliest. Then "
     "give at most three steps to check or mend it, with the exact commands. When the text does not show the cause, "
     "say what to look at next. Be short.",
     0.3f},
    {"commit-message", "Writes the message of a commit from its diff.",
     "You write the message of a commit for the diff that you are given. The first line has at most 70 characters, "
     "is in the imperative mood and says what changes. When the reason is not plain from that, an empty line "
     "follows, and a short paragraph that says why, in lines of at most 72 characters. Answer with the message and "
     "nothing else: no quotation marks, no fences.",
     0.3f},
    {"reviewer", "Reports what is wrong with a change or a source file, the most serious first.",
     "You review a change, or a source file. Look for errors first: wrong results, crashes, leaks, races, missing "
     "checks of input, holes in security. Then for what is hard to understand or to test. Each finding is one point: "
     "file and line, what is wrong, how to mend it; the gravest first. Say nothing of style, and nothing in praise. "
     "When you find nothing wrong, say so in one sentence.",
     0.3f},
    {0},
};

static const struct persona *built_in(const char *name)
{
    for (const struct persona *p = personas; p->name; p++)
        if (!strcmp(p->name, name)) return p;
    return NULL;
}

void persona_each(const struct config_file *config, void (*each)(void *arg, const char *name), void *arg)
{
    const struct toml *t = &config->toml;
    int own = toml_child(t, 0, CONFIG_PERSONAS);
    for (const struct persona *p = personas; p->name; p++) each(arg, p->name);
    for (int i = 1; i < t->n_tables && own > 0; i++)
        if (t->table[i].parent == own && !built_in(t->table[i].name)) each(arg, t->table[i].name);
}

struct persona_names {
    struct nearest near;
    struct buf names;
    bool failed; /* no memory */
};

static void list(void *arg, const char *name)
{
    struct persona_names *l = arg;
    nearest_offer(&l->near, name);
    l->failed |= (l->names.len && buf_str(&l->names, ", ", NULL)) || buf_str(&l->names, name, NULL);
}

static int refuse(const struct config_file *config, const char *name, struct qn_error *e)
{
    struct persona_names l = {.near = {.word = name}};
    persona_each(config, list, &l);
    const char *names = l.failed ? "..." : (char *)l.names.data;
    int rc = l.near.best ? error_set(e, QN_EUSAGE, "there is no persona '%s' (did you mean '%s'?); there are %s", name,
                                     l.near.best, names)
                         : error_set(e, QN_EUSAGE, "there is no persona '%s'; there are %s", name, names);
    buf_deinit(&l.names);
    return rc;
}

int persona_find(const struct persona **out, const struct config_file *config, const char *name, struct qn_error *e)
{
    *out = built_in(name);
    return *out || config_file_persona(config, name) >= 0 ? 0 : refuse(config, name, e);
}
