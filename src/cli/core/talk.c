/* SPDX-License-Identifier: MIT
 *
 * talk.c: the messages in memory, and reading and writing their file. See talk.h.
 */
#include "cli/core/talk.h"

#include <assert.h>
#include <string.h>
#include <sys/stat.h>

#include "base/json/json_text.h"
#include "base/mem.h"
#include "base/os.h"
#include "base/out_file.h"

#define MOST_BYTES ((size_t)1 << 28) /* most bytes of a file */

static const char *const role_names[] = {"system", "user", "assistant"};

const char *talk_role_name(enum talk_role role) { return role_names[role]; }

static void free_message(struct talk_message *m)
{
    mem_free(m->content);
    mem_free(m->thoughts);
}

int talk_add(struct talk *t, enum talk_role role, const char *content, size_t n, const char *thoughts,
             size_t n_thoughts, bool cut, struct qn_error *e)
{
    struct talk_message m = {.role = role, .n_content = n, .n_thoughts = n_thoughts, .cut = cut};
    struct talk_message *v = mem_realloc(t->v, (t->n + 1) * sizeof *v);
    if (v) t->v = v;
    m.content = mem_dup(content, n);
    if (thoughts) m.thoughts = mem_dup(thoughts, n_thoughts);
    if (!v || !m.content || (thoughts && !m.thoughts)) {
        free_message(&m);
        return error_nomem(e, "a message", n + n_thoughts);
    }
    t->v[t->n++] = m;
    return 0;
}

int talk_set_system(struct talk *t, const char *content, size_t n, struct qn_error *e)
{
    if (n) {
        int rc = talk_add(t, TALK_SYSTEM, content, n, NULL, 0, false, e);
        if (rc) return rc;
        struct talk_message m = t->v[t->n - 1];
        memmove(t->v + 1, t->v, (t->n - 1) * sizeof *t->v);
        t->v[0] = m;
    }
    size_t old = n != 0;
    if (old >= t->n || t->v[old].role != TALK_SYSTEM) return 0;
    free_message(&t->v[old]);
    memmove(t->v + old, t->v + old + 1, (--t->n - old) * sizeof *t->v);
    return 0;
}

static void drop_last(struct talk *t) { free_message(&t->v[--t->n]); }

bool talk_drop_reply(struct talk *t)
{
    if (t->n && t->v[t->n - 1].role == TALK_ASSISTANT) drop_last(t);
    return t->n && t->v[t->n - 1].role == TALK_USER;
}

bool talk_undo(struct talk *t)
{
    size_t n = t->n;
    while (n > 0 && t->v[n - 1].role != TALK_USER) n--;
    if (n == 0) return false;
    while (t->n >= n) drop_last(t);
    return true;
}

void talk_clear(struct talk *t)
{
    while (t->n) drop_last(t);
    mem_free(t->v);
    *t = (struct talk){0};
}

json_t *talk_json(const struct talk *t, bool with_thoughts)
{
    json_t *all = json_array();
    int bad = 0;
    for (size_t i = 0; i < t->n; i++) {
        const struct talk_message *m = &t->v[i];
        json_t *o = json_object();
        bad |= json_object_set_new(o, "role", json_string(role_names[m->role]));
        if (m->thoughts && with_thoughts)
            bad |= json_object_set_new(o, "reasoning_content", json_stringn(m->thoughts, m->n_thoughts));
        bad |= json_object_set_new(o, "content", json_stringn(m->content, m->n_content));
        bad |= json_array_append_new(all, o);
    }
    if (!bad) return all;
    json_decref(all);
    return NULL;
}

/* ---- the file ---- */

static int write_message(struct out_file *f, const struct talk_message *m, struct buf *line, struct qn_error *e)
{
    json_t *o = json_object();
    int bad = json_object_set_new(o, "role", json_string(role_names[m->role]));
    if (m->thoughts) bad |= json_object_set_new(o, "reasoning_content", json_stringn(m->thoughts, m->n_thoughts));
    bad |= json_object_set_new(o, "content", json_stringn(m->content, m->n_content));
    if (m->cut) bad |= json_object_set_new(o, "cut", json_true());
    buf_clear(line);
    bad |= json_text_add(line, o, JSON_COMPACT, "a message", NULL) || buf_str(line, "\n", NULL);
    json_decref(o);
    if (bad) return error_nomem(e, "a message", m->n_content + m->n_thoughts);
    return out_file_write(f, line->data, line->len, e);
}

int talk_save(const struct talk *t, const char *path, struct qn_error *e)
{
    struct out_file f = {0};
    struct talk there = {0};
    struct buf line = {0};
    int rc = os_exists(path) && !os_is_directory(path) ? talk_load(&there, path, e) : 0;
    talk_clear(&there);
    if (rc == QN_EDATA) {
        char why[sizeof e->msg];
        memcpy(why, e->msg, sizeof why);
        return error_set(e, QN_EDATA, "not overwritten, because it is not a conversation: %s", why);
    }
    if (rc || (rc = out_file_open(&f, path, e))) return rc;
    if (fchmod(f.fd, 0600)) rc = error_set(e, QN_EIO, "cannot protect '%s': %m", path);
    for (size_t i = 0; i < t->n && !rc; i++) rc = write_message(&f, &t->v[i], &line, e);
    if (!rc) rc = out_file_commit(&f, e);
    out_file_abort(&f);
    buf_deinit(&line);
    return rc;
}

/* Gets a member of the object, which must have this type if it exists. Returns 0, or -1 with its name in *why. */
static int member(const json_t *o, const char *name, json_type type, const json_t **out, const char **why)
{
    *out = json_object_get(o, name);
    if (!*out || json_typeof(*out) == type) return 0;
    *why = name;
    return -1;
}

/* A line's object, taken apart; borrowed from it. */
struct talk_line {
    const json_t *role, *content, *thoughts, *cut;
    int which; /* enum talk_role; 3: none of them */
};

/* Checks the types and names of the members. */
static int read_members(struct talk_line *l, const json_t *o, const char *name, size_t line, struct qn_error *e)
{
    const char *why = NULL;
    if (!json_is_object(o)) return error_set(e, QN_EDATA, "%s: line %zu is not an object", name, line);
    if (member(o, "role", JSON_STRING, &l->role, &why) || member(o, "content", JSON_STRING, &l->content, &why) ||
        member(o, "reasoning_content", JSON_STRING, &l->thoughts, &why))
        return error_set(e, QN_EDATA, "%s: line %zu: %s is not a string", name, line, why);
    l->cut = json_object_get(o, "cut");
    if (l->cut && !json_is_boolean(l->cut))
        return error_set(e, QN_EDATA, "%s: line %zu: cut is not true or false", name, line);
    if (!l->role || !l->content)
        return error_set(e, QN_EDATA, "%s: line %zu has no %s", name, line, l->role ? "content" : "role");
    for (void *i = json_object_iter((json_t *)o); i; i = json_object_iter_next((json_t *)o, i)) {
        const json_t *value = json_object_iter_value(i);
        if (value == l->role || value == l->content || value == l->thoughts || value == l->cut) continue;
        return error_set(e, QN_EDATA, "%s: line %zu: unknown member '%s'", name, line, json_object_iter_key(i));
    }
    return 0;
}

static int add_object(struct talk *t, const json_t *o, const char *name, size_t line, struct qn_error *e)
{
    struct talk_line l = {0};
    int rc = read_members(&l, o, name, line, e);
    if (rc) return rc;
    const char *role = json_string_value(l.role);
    while (l.which < 3 && strcmp(role, role_names[l.which])) l.which++;
    if (l.which == 3)
        return error_set(e, QN_EDATA, "%s: line %zu: role '%s' is not system, user or assistant", name, line, role);
    if (l.which == TALK_SYSTEM && t->n)
        return error_set(e, QN_EDATA, "%s: line %zu: the system message has to be the first", name, line);
    if (l.which != TALK_ASSISTANT && (l.thoughts || l.cut))
        return error_set(e, QN_EDATA, "%s: line %zu: only replies have '%s'", name, line,
                         l.thoughts ? "reasoning_content" : "cut");
    return talk_add(t, (enum talk_role)l.which, json_string_value(l.content), json_string_length(l.content),
                    json_string_value(l.thoughts), json_string_length(l.thoughts), l.cut && json_is_true(l.cut), e);
}

int talk_parse(struct talk *t, const char *name, const char *text, size_t n, struct qn_error *e)
{
    struct talk read = {0};
    size_t line = 0;
    int rc = 0;
    for (const char *p = text, *end = text + n, *stop; p < end && !rc; p = stop + 1) {
        json_error_t why;
        line++;
        if (!(stop = memchr(p, '\n', (size_t)(end - p)))) stop = end;
        json_t *o = json_loadb(p, (size_t)(stop - p), JSON_REJECT_DUPLICATES | JSON_ALLOW_NUL, &why);
        rc = o ? add_object(&read, o, name, line, e)
               : error_set(e, QN_EDATA, "%s: line %zu is not JSON: %s", name, line, why.text);
        json_decref(o);
        if (stop == end) break;
    }
    if (rc) {
        talk_clear(&read);
        return rc;
    }
    talk_clear(t);
    *t = read;
    return 0;
}

int talk_load(struct talk *t, const char *path, struct qn_error *e)
{
    struct buf text = {0};
    int rc = os_read_file(&text, path, MOST_BYTES, e);
    if (!rc) rc = talk_parse(t, path, (const char *)text.data, text.len, e);
    buf_deinit(&text);
    return rc;
}
