/* SPDX-License-Identifier: MIT
 *
 * decide.c: asks for a decision and checks it. See decide.h.
 */
#include "cli/ask/decide.h"

#include <string.h>
#include <unistd.h>

#include "cli/core/cli.h"
#include "cli/core/render.h"

bool decide_is_asked(const struct ask_options *o) { return o->yes || o->choose; }

int decide_instruct(struct ask_run *a, struct qn_error *e)
{
    int rc = a->instruction.len ? buf_str(&a->instruction, "\n\n", e) : 0;
    if (rc) return rc;
    if (a->o->yes) return buf_str(&a->instruction, "Answer yes or no.", e);
    rc = buf_str(&a->instruction, "Answer with one of these: ", e);
    for (const char *p = a->o->choose; *p && !rc; p++)
        rc = *p == ',' ? buf_str(&a->instruction, ", ", e) : buf_add(&a->instruction, p, 1, e);
    return rc ? rc : buf_str(&a->instruction, ".", e);
}

static bool is_choice(const char *list, const struct buf *answer)
{
    for (const char *end; list; list = *end ? end + 1 : NULL) {
        end = strchrnul(list, ',');
        size_t n = (size_t)(end - list);
        if (n == answer->len && n && !memcmp(list, answer->data, n)) return true;
    }
    return false;
}

int decide_check(const struct ask_run *a, const struct buf *answer, const struct chat_result *r, struct qn_error *e)
{
    if (is_choice(ask_choices(a->o), answer)) return 0;
    if (!strcmp(r->finish, "length"))
        return error_set(e, QN_EDATA, "there is no decision: the answer was cut after %d tokens (see --max-tokens)",
                         r->n_generated);
    return error_set(e, QN_EDATA, "there is no decision: %s answers '%.*s', which is none of %.200s", a->place.name,
                     (int)(answer->len < 60 ? answer->len : 60), answer->len ? (char *)answer->data : "",
                     ask_choices(a->o));
}

static int put(const struct ask_run *a, struct buf *answer)
{
    struct buf line = {0};
    if (a->o->quiet) return 0;
    int bad = isatty(STDOUT_FILENO) ? render_clean(&line, (char *)answer->data, answer->len, NULL)
                                    : buf_add(&line, answer->data, answer->len, NULL);
    int status = bad || buf_str(&line, "\n", NULL) || cli_write(line.data, line.len) ? cli_write_status() : 0;
    buf_deinit(&line);
    return status;
}

int decide_answer(struct ask_run *a, json_t *request)
{
    struct buf answer = {0};
    struct chat_result r = {0};
    struct qn_error e = {0};
    int status, rc, moved = 0;
    do {
        buf_clear(&answer);
        rc = answer_collect(&a->place, request, &answer, &r, &e);
    } while (rc && !(moved = answer_elsewhere(&a->place, request)));
    if (rc && moved > 0)
        status = moved;
    else if (rc)
        status = answer_fail(&e, &r);
    else if (decide_check(a, &answer, &r, &e))
        status = cli_fail(&e);
    else if (!(status = put(a, &answer)) && a->o->yes)
        status = answer.data[0] == 'y' ? DECIDE_YES : DECIDE_NO;
    buf_deinit(&answer);
    return status;
}

int decide_status(int status) { return status > DECIDE_NO ? DECIDE_FAILED : status; }
