/* SPDX-License-Identifier: MIT
 *
 * operand.c: finds the model that an operand names. See operand.h.
 */
#include "cli/place/operand.h"

#include <string.h>

#include "base/mem.h"
#include "cli/core/cli.h"
#include "cli/place/daemon.h"

#define AT(field) offsetof(struct operand_choice, field)
const struct opt opts_choice[] = {
    {"model", 'm', OPT_STRING, AT(model), "MODEL", "a file, or a name (default: the only one there is)",
     .words = WORDS_MODEL},
    {"models", 0, OPT_STRINGS, AT(models), "DIR", "look for models in DIR; may be repeated (default: ~/models)",
     .words = WORDS_FOLDER, .rare = true},
    {0},
};
#undef AT

/* The name of the model that is an alias of the running daemon, for cli_free(); NULL: it is none. */
static char *behind_alias(const char *name)
{
    struct daemon d;
    json_t *list = NULL;
    const json_t *m;
    const char *of = NULL;
    size_t i;
    if (!daemon_open(&d, NULL, true)) daemon_ask(&d, "/v1/models", &list, NULL);
    json_array_foreach(json_object_get(list, "data"), i, m)
    {
        const char *id = json_string_value(json_object_get(m, "id"));
        if (id && !strcmp(id, name)) of = json_string_value(json_object_get(m, "alias_of"));
    }
    char *copy = of ? mem_dup(of, strlen(of)) : NULL;
    json_decref(list);
    daemon_close(&d);
    return copy;
}

int operand_find(char **path, const struct cli_strings *folders, const char *name, struct qn_error *e)
{
    int rc = catalog_find(path, folders, name, e);
    if (rc != QN_ENOINPUT || !name) return rc;
    char *of = behind_alias(name);
    if (of && !catalog_find(path, folders, of, NULL)) rc = 0;
    mem_free(of);
    return rc;
}

#define AT(field) offsetof(struct draft_options, field)
const struct opt opts_draft[] = {
    {"draft", 0, OPT_CHOICE, AT(how), "HOW",
     "guess the next tokens, so that the same answer comes sooner: off, ngram (from what was said), mtp (the model's "
     "own block), model (--draft-model), wedlm (masks that the model fills) or auto (ngram, mtp and model, as far as "
     "they are there and pay; the default)",
     .choices = "off|auto|ngram|mtp|model|wedlm|default" /* in the order of enum qn_draft */, .rare = true},
    {"decoder", 0, OPT_CHOICE, AT(decoder), "HOW",
     "how tokens are found: plain (one by one: --draft off), wedlm (windows of masks: --draft wedlm) or auto (what "
     "--draft says; the default)",
     .choices = DECODER_CHOICES, .rare = true},
    {"draft-model", 0, OPT_STRING, AT(model), "MODEL",
     "a small model with the same vocabulary that guesses tokens, so that the same answer comes sooner",
     .words = WORDS_MODEL, .rare = true},
    OPTS_WEDLM(AT(wedlm)),
    {0},
};
#undef AT

void draft_options_init(struct draft_options *o)
{
    *o = (struct draft_options){.how = QN_DRAFT_DEFAULT};
    qn_wedlm_init(&o->wedlm);
}

bool draft_options_say_windows(const struct draft_options *o)
{
    const struct qn_wedlm *w = &o->wedlm;
    return w->verify >= 0 || w->window || w->entropy_threshold >= 0 || w->pos_penalty >= 0;
}

int operand_draft(char **path, enum qn_draft *how, const struct draft_options *o, const struct cli_strings *folders,
                  struct qn_error *e)
{
    *path = NULL;
    *how = o->how;
    int rc = decoder_draft(o->decoder, how, e);
    if (rc) return rc;
    bool has_use = *how == QN_DRAFT_AUTO || *how == QN_DRAFT_MODEL || *how == QN_DRAFT_DEFAULT;
    return has_use && o->model && *o->model ? catalog_find(path, folders, o->model, e) : 0;
}

int operand_model(struct invocation *v, int i, const struct cli_strings *folders)
{
    struct qn_error e = {0};
    char *path;
    if (strchr(v->operand[i], '/')) return 0;
    if (operand_find(&path, folders, v->operand[i], &e)) return cli_fail(&e);
    options_keep(v, path);
    v->operand[i] = path;
    return 0;
}
