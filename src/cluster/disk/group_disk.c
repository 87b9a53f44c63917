/* SPDX-License-Identifier: MIT
 *
 * group_disk.c: sends orders about files to the stages, and asks whether they are done. See group_disk.h.
 *
 * One question is under way at a time, about the order whose turn it is. An order that is not done is asked about again
 * when its owner does.
 */
#include "cluster/disk/group_disk.h"

#include <string.h>

#include "base/mem.h"
#include "base/os.h"
#include "model/forward.h"

#define ASK_NS 2000000 /* between two questions: each of them passes all stages */

static void send(struct group_disk *d, const struct disk_order *o)
{
    if (d->pipeline) pipeline_order(d->pipeline, o, NULL); /* if it fails, so does the next step */
}

static void send_enter(struct group_disk *d)
{
    send(d, &(struct disk_order){.op = DISK_ENTER, .key = d->key, .budget = d->budget});
}

static void enter(void *arg, const uint8_t model[CHAIN_MODEL_BYTES], uint64_t budget_bytes)
{
    struct group_disk *d = arg;
    pthread_mutex_lock(&d->mutex);
    memcpy(d->key, model, sizeof d->key);
    d->budget = budget_bytes;
    d->is_entered = true;
    send_enter(d);
    pthread_mutex_unlock(&d->mutex);
}

static void set_name(struct disk_part *p, uint64_t name)
{
    p->name[0] = (uint32_t)name;
    p->name[1] = (uint32_t)(name >> 32);
}

static uint32_t begin(struct group_disk *d, enum disk_op op, const struct store_far_part *parts, int n)
{
    struct disk_part *all = mem_calloc((size_t)n, sizeof *all);
    pthread_mutex_lock(&d->mutex);
    uint32_t number = ++d->last ? d->last : ++d->last;
    for (int i = 0; i < n && all; i++) {
        all[i] = (struct disk_part){.index = parts[i].index,
                                    .kind = (uint32_t)parts[i].kind,
                                    .number = parts[i].number,
                                    .n_slots = (uint32_t)parts[i].n_slots};
        set_name(&all[i], parts[i].name);
    }
    if (all) send(d, &(struct disk_order){.op = op, .number = number, .n_parts = n, .parts = all});
    pthread_mutex_unlock(&d->mutex);
    mem_free(all);
    return number; /* one that was not sent has failed: no stage knows it */
}

static uint32_t write_parts(void *arg, const struct store_far_part *parts, int n)
{
    return begin(arg, DISK_WRITE, parts, n);
}

static uint32_t read_parts(void *arg, const struct store_far_part *parts, int n)
{
    return begin(arg, DISK_READ, parts, n);
}

/* Keeps an answer until its owner asks. */
static void keep(struct group_disk *d, uint32_t number, uint32_t n_good)
{
    d->done[d->next_done].number = number;
    d->done[d->next_done].n_good = n_good;
    d->next_done = (d->next_done + 1) % GROUP_DISK_DONE;
    send(d, &(struct disk_order){.op = DISK_END, .number = number});
}

/* Takes the answer to the last question, if it is there. Returns false if the stages are gone. */
static bool take_answer(struct group_disk *d)
{
    uint32_t is_busy, n_good;
    if (!d->asked) return true;
    int rc = pipeline_answer(d->pipeline, &is_busy, &n_good, NULL);
    if (rc) return rc == QN_EBUSY;
    if (!is_busy) keep(d, d->asked, n_good);
    d->asked = 0;
    return true;
}

static int ask_locked(struct group_disk *d, uint32_t number)
{
    if (!d->pipeline || number - d->first > d->last - d->first || !take_answer(d)) return STORE_FAR_LOST;
    for (int i = 0; i < GROUP_DISK_DONE; i++) {
        if (d->done[i].number != number) continue;
        d->done[i].number = 0;
        return d->done[i].n_good < INT32_MAX ? (int)d->done[i].n_good : INT32_MAX;
    }
    uint64_t now = clock_ns();
    if (d->asked || now - d->asked_ns < ASK_NS) return STORE_FAR_BUSY;
    d->asked_ns = now;
    d->asked = number;
    if (pipeline_order(d->pipeline, &(struct disk_order){.op = DISK_ASK, .number = number, .n_good = UINT32_MAX}, NULL))
        return STORE_FAR_LOST;
    return STORE_FAR_BUSY;
}

static int ask(void *arg, uint32_t number)
{
    struct group_disk *d = arg;
    pthread_mutex_lock(&d->mutex);
    int n = ask_locked(d, number);
    pthread_mutex_unlock(&d->mutex);
    return n;
}

static void drop(void *arg, uint64_t name)
{
    struct group_disk *d = arg;
    struct disk_part part = {0};
    set_name(&part, name);
    pthread_mutex_lock(&d->mutex);
    send(d, &(struct disk_order){.op = DISK_DROP, .n_parts = 1, .parts = &part});
    pthread_mutex_unlock(&d->mutex);
}

static bool is_there(void *arg)
{
    struct group_disk *d = arg;
    pthread_mutex_lock(&d->mutex);
    bool there = d->pipeline != NULL;
    pthread_mutex_unlock(&d->mutex);
    return there;
}

void group_disk_init(struct group_disk *d, const struct model *m, enum kv_type kv, bool rounds_rows)
{
    struct kv_shape shape = forward_window_shape(m, kv);
    *d = (struct group_disk){
        .far = {.arg = d,
                .what = rounds_rows ? "quern: pages of stages that round" : "quern: pages of stages",
                .page_bytes = kv_page_bytes(&shape),
                .window_bytes = kv_window_page_bytes(&shape),
                .state_bytes = shape.state_bytes,
                .enter = enter,
                .write = write_parts,
                .read = read_parts,
                .ask = ask,
                .drop = drop,
                .is_there = is_there},
        .mutex = PTHREAD_MUTEX_INITIALIZER,
        .first = 1};
}

void group_disk_set(struct group_disk *d, struct pipeline *p)
{
    pthread_mutex_lock(&d->mutex);
    d->pipeline = p;
    d->first = d->last + 1;
    d->asked = 0;
    d->asked_ns = 0;
    memset(d->done, 0, sizeof d->done);
    if (p && d->is_entered) send_enter(d);
    pthread_mutex_unlock(&d->mutex);
}
