/* SPDX-License-Identifier: MIT
 *
 * keep.c: reads and writes the conversation of a question. See keep.h.
 */
#include "cli/ask/keep.h"

#include <unistd.h>

#include "base/mem.h"
#include "base/os.h"
#include "cli/core/cli.h"
#include "cli/core/home.h"

#define LAST_NAME "last.chat"

int keep_read_last(struct talk *t, struct qn_error *e)
{
    char *path;
    int rc = home_path(&path, HOME_STATE, LAST_NAME, e);
    if (rc) return rc;
    if (!os_exists(path))
        rc = error_set(e, QN_ENOINPUT, "there is no last answer to go on from (no '%s')", path);
    else
        rc = talk_load(t, path, e);
    mem_free(path);
    return rc;
}

int keep_read(struct ask_run *a, struct qn_error *e)
{
    const struct ask_options *o = a->o;
    int rc = 0;
    if (o->go_on)
        rc = keep_read_last(&a->talk, e);
    else if (o->session && !(rc = session_lock_take(&a->lock, o->session, o->session_wait_s, e)) &&
             os_exists(o->session))
        rc = talk_load(&a->talk, o->session, e);
    if (rc) return rc;
    if (a->talk.n && a->talk.v[a->talk.n - 1].role == TALK_USER) talk_undo(&a->talk); /* it has no answer */
    if (!a->system.len) return 0;
    return talk_set_system(&a->talk, (char *)a->system.data, a->system.len, e);
}

static int add(const struct keep *k, struct talk *t, const struct buf *question, struct qn_error *e)
{
    const struct buf *b = &k->answer;
    int rc = talk_add(t, TALK_USER, (char *)question->data, question->len, NULL, 0, false, e);
    if (rc) return rc;
    return talk_add(t, TALK_ASSISTANT, b->len ? (char *)b->data : "", b->len, (char *)k->thoughts.data, k->thoughts.len,
                    !k->is_whole, e);
}

static size_t size_of(const struct talk *t)
{
    size_t n = 0;
    for (size_t i = 0; i < t->n; i++) n += t->v[i].n_content + t->v[i].n_thoughts;
    return n;
}

void keep_write_last(const struct talk *t)
{
    char *path;
    if (home_path(&path, HOME_STATE, LAST_NAME, NULL)) return;
    if (size_of(t) > KEEP_BYTES || home_make_above(path, NULL) || talk_save(t, path, NULL)) unlink(path);
    mem_free(path);
}

int keep_answer(const struct keep *k, struct ask_run *a, const struct buf *question)
{
    struct qn_error e = {0};
    int rc = 0;
    if (a->o->no_keep && !a->o->session) return 0;
    rc = add(k, &a->talk, question, &e);
    if (!rc && a->o->session)
        rc = talk_save(&a->talk, a->o->session, &e);
    else if (!rc)
        keep_write_last(&a->talk);
    return rc ? cli_fail(&e) : 0;
}

void keep_deinit(struct keep *k)
{
    buf_deinit(&k->answer);
    buf_deinit(&k->thoughts);
}
