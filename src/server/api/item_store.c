/* SPDX-License-Identifier: MIT
 *
 * item_store.c: the records of finished responses: a table by id, and for each identity a list by last use.
 *
 * When a record is used, it moves to the end of the list, then the record that it continues, and so on. So a record is
 * always older than the one that it continues, and the oldest one is never continued by another in the list.
 */
#include "server/api/item_store.h"

#include <assert.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>

#include "base/hash.h"

#define N_BUCKETS 1024 /* a power of two */

/* An identity that has records. */
struct item_owner {
    struct item_owner *next;
    uint64_t identity;
    size_t used;   /* bytes of its records */
    int n_records; /* kept or held; it is freed with the last one */
    struct item_record *oldest, *newest;
};

struct item_store {
    pthread_mutex_t lock; /* guards everything below, and the store's members of records */
    struct ledger *ledger;
    size_t most, used; /* bytes */
    struct item_owner *owners;
    struct item_record *bucket[N_BUCKETS];
};

int item_store_new(struct item_store **out, struct ledger *l, size_t most_bytes, struct qn_error *e)
{
    struct item_store *s = mem_calloc(1, sizeof *s);
    if (!s) return error_nomem(e, "the store of responses", sizeof *s);
    s->ledger = l;
    s->most = most_bytes;
    pthread_mutex_init(&s->lock, NULL);
    *out = s;
    return 0;
}

size_t item_store_used(struct item_store *s)
{
    if (!s) return 0;
    pthread_mutex_lock(&s->lock);
    size_t used = s->used;
    pthread_mutex_unlock(&s->lock);
    return used;
}

/* ---- with the lock ---- */

static struct item_record **bucket_of(struct item_store *s, const char *id)
{
    return &s->bucket[hash_bytes(id, strlen(id), 0) & (N_BUCKETS - 1)];
}

static struct item_record *look_up(struct item_store *s, uint64_t identity, const char *id)
{
    struct item_record *r = *bucket_of(s, id);
    while (r && (r->owner->identity != identity || strcmp(r->id, id))) r = r->next_in_bucket;
    return r;
}

static void unlink_from_list(struct item_record *r)
{
    *(r->older ? &r->older->newer : &r->owner->oldest) = r->newer;
    *(r->newer ? &r->newer->older : &r->owner->newest) = r->older;
    r->older = r->newer = NULL;
}

static void append_to_list(struct item_record *r)
{
    struct item_owner *o = r->owner;
    r->older = o->newest;
    r->newer = NULL;
    *(o->newest ? &o->newest->newer : &o->oldest) = r;
    o->newest = r;
}

/* Marks a record and those that it continues as used. */
static void touch(struct item_record *r)
{
    for (; r; r = r->previous) {
        if (!r->is_kept) continue; /* dropped, but still held */
        unlink_from_list(r);
        append_to_list(r);
    }
}

/* The owner of this identity's records, which is made if there is none. NULL: there is no memory. */
static struct item_owner *owner_of(struct item_store *s, uint64_t identity)
{
    struct item_owner *o = s->owners;
    while (o && o->identity != identity) o = o->next;
    if (o || !(o = mem_calloc(1, sizeof *o))) return o;
    o->identity = identity;
    o->next = s->owners;
    return s->owners = o;
}

static void free_if_unused(struct item_store *s, struct item_owner *o)
{
    struct item_owner **at = &s->owners;
    if (o->n_records > 0) return;
    while (*at != o) at = &(*at)->next;
    *at = o->next;
    mem_free(o);
}

static void give(struct item_store *s, struct item_owner *o, size_t bytes)
{
    o->used -= bytes;
    s->used -= bytes;
    if (s->ledger) ledger_give(s->ledger, bytes);
}

/* Drops a hold. Frees the record if it was the last one, and then its hold on the record that it continues. */
static void release(struct item_store *s, struct item_record *r)
{
    while (r && --r->n_holds == 0) {
        struct item_record *previous = r->previous;
        give(s, r->owner, r->bytes);
        r->owner->n_records--;
        free_if_unused(s, r->owner);
        buf_deinit(&r->input);
        mem_free(r->response);
        mem_free(r);
        r = previous;
    }
}

static void forget(struct item_store *s, struct item_record *r)
{
    struct item_record **at = bucket_of(s, r->id);
    while (*at != r) at = &(*at)->next_in_bucket;
    *at = r->next_in_bucket;
    unlink_from_list(r);
    r->is_kept = false;
    release(s, r);
}

/* The record that leaves next, if `o` is to have so many bytes more. NULL: there is none. */
static struct item_record *next_to_leave(struct item_store *s, const struct item_owner *o, size_t bytes)
{
    struct item_record *r = NULL;
    size_t most = 0;
    for (struct item_owner *p = s->owners; p; p = p->next) {
        size_t has = p->used + (p == o ? bytes : 0);
        if (!p->oldest || has < most) continue;
        most = has;
        r = p->oldest;
    }
    return r;
}

/* Takes bytes for a record. Others leave for it, unless that cannot be enough. */
static bool take(struct item_store *s, struct item_owner *o, size_t bytes)
{
    if (bytes > s->most || (s->ledger && bytes > s->ledger->budget - ledger_used(s->ledger) + s->used)) return false;
    while (bytes > s->most - s->used || (s->ledger && ledger_take(s->ledger, bytes, "a response", NULL))) {
        struct item_record *r = next_to_leave(s, o, bytes);
        if (!r) return false;
        forget(s, r);
    }
    o->used += bytes;
    s->used += bytes;
    return true;
}

/* ---- for everybody ---- */

void item_store_free(struct item_store *s)
{
    if (!s) return;
    for (struct item_record *r; (r = next_to_leave(s, NULL, 0));) forget(s, r);
    assert(s->used == 0 && !s->owners);
    pthread_mutex_destroy(&s->lock);
    mem_free(s);
}

struct item_record *item_store_find(struct item_store *s, uint64_t identity, const char *id)
{
    if (!s) return NULL;
    pthread_mutex_lock(&s->lock);
    struct item_record *r = look_up(s, identity, id);
    if (r) {
        r->n_holds++;
        touch(r);
    }
    pthread_mutex_unlock(&s->lock);
    return r;
}

void item_store_release(struct item_store *s, struct item_record *r)
{
    if (!s || !r) return;
    pthread_mutex_lock(&s->lock);
    release(s, r);
    pthread_mutex_unlock(&s->lock);
}

/* Makes an empty record; with the lock. */
static struct item_record *new_record(struct item_store *s, uint64_t identity, size_t bytes)
{
    struct item_owner *o = owner_of(s, identity);
    if (!o) return NULL;
    o->n_records++; /* before others leave, because it may be their owner, too */
    bool room = take(s, o, bytes);
    struct item_record *r = room ? mem_calloc(1, sizeof *r) : NULL;
    if (r) {
        r->owner = o;
        r->bytes = bytes;
        r->n_holds = 1;
        return r;
    }
    if (room) give(s, o, bytes);
    o->n_records--;
    free_if_unused(s, o);
    return NULL;
}

struct item_record *item_store_begin(struct item_store *s, uint64_t identity, const char *id,
                                     struct item_record *previous, struct buf *input)
{
    struct item_record *r = NULL;
    if (s) {
        pthread_mutex_lock(&s->lock);
        r = new_record(s, identity, sizeof *r + input->cap);
        if (r && previous) previous->n_holds++;
        pthread_mutex_unlock(&s->lock);
    }
    if (r) {
        r->previous = previous;
        snprintf(r->id, sizeof r->id, "%s", id);
        r->input = *input;
        *input = (struct buf){0};
    }
    buf_deinit(input);
    return r;
}

bool item_store_keep(struct item_store *s, struct item_record *r, const char *response, size_t n)
{
    char *copy = mem_dup(response, n);
    if (!copy) return false;
    pthread_mutex_lock(&s->lock);
    bool room = take(s, r->owner, n + 1);
    if (room) {
        struct item_record *same = look_up(s, r->owner->identity, r->id);
        struct item_record **bucket = bucket_of(s, r->id);
        if (same) forget(s, same); /* ids are random: this is a precaution */
        r->response = copy;
        r->n_response = n;
        r->bytes += n + 1;
        r->n_holds++;
        r->is_kept = true;
        r->next_in_bucket = *bucket;
        *bucket = r;
        append_to_list(r);
        touch(r);
    }
    pthread_mutex_unlock(&s->lock);
    if (!room) mem_free(copy);
    return room;
}

bool item_store_drop(struct item_store *s, uint64_t identity, const char *id)
{
    if (!s) return false;
    pthread_mutex_lock(&s->lock);
    struct item_record *r = look_up(s, identity, id);
    if (r) forget(s, r);
    pthread_mutex_unlock(&s->lock);
    return r != NULL;
}
