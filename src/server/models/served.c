/* SPDX-License-Identifier: MIT
 *
 * served.c: the set of models: loads and unloads them in a thread of its own.
 *
 * A model goes through four states: not loaded, loading, loaded, unloading. Only the set's thread changes them, for one
 * model at a time, and does the slow part without the lock. So there is one load at a time, and one load of each model,
 * however many requests wait for it. Between two looks of that thread, sums of memory only fall.
 *
 * The memory that a model needs is known before it is loaded (qn_engine_plan) and granted as a whole. Its engine gets a
 * budget of its own, so the sum of the grants has to stay within the budget. A model that is larger than all memory
 * that can ever be free for it is granted all of that, and reads its weights from the file again for every token.
 *
 * A model whose file has changed is closed. If the file was changed in place, that is done at once, and its requests
 * end with an error. If its name now leads to another file, that is done when its requests have ended. The next request
 * loads the model anew.
 *
 * If a model does not fit next to those that are in use, its requests wait a second for others to end, and are then
 * refused and told to come again. A longer wait here, before the request has been read, would be a second queue without
 * bounds, order or fairness.
 */
#include "server/models/served.h"

#include <assert.h>
#include <pthread.h>
#include <string.h>
#include <time.h>

#include "base/file_hash.h"
#include "base/hash.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/os.h"
#include "engine/engine.h"
#include "server/models/loaded.h"

#define ROOM_NS 1000000000u /* how long requests wait for room */

struct entry {
    struct served held; /* first member: the entry is found from it. Its pointers are NULL unless the model is loaded */
    struct models *set;
    const char *path, *draft_path;
    bool pinned, optional;
    bool has_chat;
    struct qn_chat_capabilities can; /* of its chat template, if it has one */
    int n_ctx_train, n_vocab;
    uint64_t fingerprint;
    struct model_card card;     /* owned */
    struct file_mark mark;      /* of the file at its path, when the members above and below were read */
    struct qn_engine_plan plan; /* its sums include table_bytes */
    uint64_t table_bytes;       /* memory of vocabulary and template, which opening takes in addition to the engine */

    enum models_state state;
    qn_engine *engine; /* NULL like the pointers of `held` */
    qn_model *draft;   /* the same, and NULL if there is none */
    uint64_t granted;  /* bytes of the budget; 0 when not loaded */
    int n_users;
    uint64_t used_ns, n_loads;
    struct models_wait *waits, **last_wait; /* in order of arrival */
    uint64_t refuse_ns;                     /* when the waiting requests are refused if there is no room */
    bool is_blocked;                        /* there was no room, and nothing has changed since */
    bool is_swept;                          /* its files are being deleted: it is not loaded meanwhile */
    bool is_told;                           /* the log says that a new file cannot be opened */
    bool is_stale;                          /* it is loaded, but its file is another now: no new request gets it */
    bool is_unwanted;                       /* models_unload() was called, and no request has come since */
    struct qn_scheduler_stats past;         /* counters of its former schedulers */
};

struct models {
    struct models_config c;
    uint64_t budget;
    struct ledger grammars; /* of all models: a half of the ledger of requests, so that others have room as well */
    pthread_t thread;
    bool has_thread;

    pthread_mutex_t lock; /* guards everything that changes; taken before a scheduler's own lock */
    pthread_cond_t wake;
    bool is_stopping;
    struct entry entry[];
};

int models_make_folders(const struct models_config *c, struct qn_error *e)
{
    const char *dir = c->scheduler.cache_dir;
    int rc = 0;
    for (int i = 0; i < c->n && dir && !rc; i++) rc = loaded_make_folder(dir, c->source[i].name, e);
    return rc;
}

/* Starts an opened model with its grant; without the lock. */
static int start(struct models *s, const struct entry *m, uint64_t granted, struct loaded_model *p, struct qn_error *e)
{
    struct qn_engine_params engine = s->c.engine;
    struct qn_scheduler_params scheduler = s->c.scheduler;
    engine.memory_bytes = granted > m->table_bytes ? granted - m->table_bytes : 1;
    if (!s->c.group) { /* the plan chose them after the whole budget; those of stages follow from their memory */
        engine.n_ctx = m->plan.n_ctx;
        engine.kv_tokens = m->plan.kv_tokens;
    }
    scheduler.cache_bytes /= (uint64_t)s->c.n;
    if (s->c.requests) model_pay_grammars(p->model, &s->grammars);
    return loaded_start(p, m->held.name, &engine, &scheduler, s->c.group, e);
}

/* ---- counters ---- */

static void add_counters(struct qn_scheduler_stats *sum, const struct qn_scheduler_stats *s)
{
    sum->n_submitted += s->n_submitted;
    sum->n_refused += s->n_refused;
    for (int i = 0; i <= QN_FINISH_ERROR; i++) sum->n_done[i] += s->n_done[i];
    sum->n_prompt_tokens += s->n_prompt_tokens;
    sum->n_cached_tokens += s->n_cached_tokens;
    sum->n_generated_tokens += s->n_generated_tokens;
    sum->n_steps += s->n_steps;
    sum->n_rows += s->n_rows;
    sum->n_prefill_rows += s->n_prefill_rows;
    for (int i = 0; i < QN_DRAFT_DEFAULT; i++) sum->n_drafted[i] += s->n_drafted[i];
    for (int i = 0; i < QN_DRAFT_DEFAULT; i++) sum->n_accepted[i] += s->n_accepted[i];
    sum->n_pauses += s->n_pauses;
    sum->n_rows_again += s->n_rows_again;
    sum->busy_s += s->busy_s;
    sum->cache_lookups += s->cache_lookups;
    sum->cache_hits += s->cache_hits;
    sum->cache_hit_tokens += s->cache_hit_tokens;
}

/* ---- states: with the lock ---- */

static void set_loaded(struct entry *m, const struct loaded_model *p)
{
    m->held.model = p->model;
    m->held.chat = p->chat;
    m->held.scheduler = p->scheduler;
    m->held.is_rounded = group_rounds_rows(m->set->c.group);
    m->engine = p->engine;
    m->draft = p->draft;
}

/* Another number for another file, a changed file, or other types of keys and values, because their answers differ. */
static uint64_t fingerprint(const qn_model *model, int kv)
{
    const uint64_t numbers[] = {qn_model_mark(model), (uint64_t)kv};
    return hash_bytes(numbers, sizeof numbers, 0);
}

/* Makes an entry loaded: it gets the parts that run. */
static void enter(struct entry *m, const struct loaded_model *p)
{
    set_loaded(m, p);
    m->fingerprint = fingerprint(p->model, m->set->c.engine.kv);
    m->held.n_ctx = qn_engine_n_ctx(p->engine);
    m->n_loads++;
    m->is_told = false;
    m->used_ns = clock_ns();
    m->state = MODEL_LOADED;
}

static struct loaded_model loaded_of(const struct entry *m)
{
    return (struct loaded_model){.model = (qn_model *)(uintptr_t)m->held.model,
                                 .draft = m->draft,
                                 .chat = (qn_chat *)(uintptr_t)m->held.chat,
                                 .engine = m->engine,
                                 .scheduler = m->held.scheduler};
}

static void add_past(struct entry *m)
{
    struct qn_scheduler_stats last = {.size = sizeof last};
    qn_scheduler_stats(m->held.scheduler, &last);
    add_counters(&m->past, &last);
}

/* Lets blocked models try again, because there may be room now. */
static void unblock(struct models *s)
{
    for (int i = 0; i < s->c.n; i++) s->entry[i].is_blocked = false;
}

/* Saves and frees a loaded model that no request holds. Releases the lock meanwhile. */
static void unload(struct models *s, struct entry *m)
{
    assert(m->state == MODEL_LOADED && m->n_users == 0);
    m->state = MODEL_UNLOADING;
    struct loaded_model p = loaded_of(m);
    pthread_mutex_unlock(&s->lock);
    log_at(LOG_INFO, "unloads '%s'", m->held.name);
    qn_scheduler_stop(p.scheduler, 0);
    pthread_mutex_lock(&s->lock);
    add_past(m);
    set_loaded(m, &(struct loaded_model){0});
    pthread_mutex_unlock(&s->lock);
    loaded_free(&p);
    pthread_mutex_lock(&s->lock);
    m->granted = 0;
    m->is_stale = m->is_unwanted = false;
    m->state = MODEL_NOT_LOADED;
    unblock(s);
}

/* Ends the waiting of all requests: each gets the model, or the reason why not. Releases the lock meanwhile. */
static void tell(struct models *s, struct entry *m, const struct fault *why)
{
    struct models_wait *w = m->waits, *next;
    m->waits = NULL;
    m->last_wait = &m->waits;
    for (struct models_wait *i = w; i && !why; i = i->next) m->n_users++;
    pthread_mutex_unlock(&s->lock);
    for (; w; w = next) {
        next = w->next; /* after this, w belongs to its owner again */
        w->ready(w, why ? NULL : &m->held, why);
    }
    pthread_mutex_lock(&s->lock);
}

/* ---- room ---- */

static uint64_t n_granted(const struct models *s)
{
    uint64_t n = 0;
    for (int i = 0; i < s->c.n; i++) n += s->entry[i].granted;
    return n;
}

/* The memory that m can have if all other models that may go are unloaded. */
static uint64_t room_for(const struct models *s, const struct entry *m)
{
    uint64_t n = s->budget;
    for (int i = 0; i < s->c.n; i++)
        if (s->entry[i].pinned && &s->entry[i] != m) n -= s->entry[i].granted;
    return n;
}

/* The memory to grant: a single model gets everything, one of several what it needs. */
static uint64_t grant_for(const struct models *s, const struct entry *m)
{
    uint64_t room = room_for(s, m);
    return s->c.n > 1 && m->plan.bytes < room ? m->plan.bytes : room;
}

static bool may_go(const struct entry *m)
{
    return m->state == MODEL_LOADED && (!m->pinned || m->is_stale) && m->n_users == 0;
}

/* The model that was used longest ago and may go; NULL: there is none. *bytes: the memory that all of them would free.
 */
static struct entry *least_used(struct models *s, uint64_t *bytes)
{
    struct entry *best = NULL;
    *bytes = 0;
    for (int i = 0; i < s->c.n; i++) {
        struct entry *m = &s->entry[i];
        if (!may_go(m)) continue;
        *bytes += m->granted;
        if (!best || m->used_ns < best->used_ns) best = m;
    }
    return best;
}

/* Unloads other models until there is room for m. If that would not be enough, it unloads none. */
static bool make_room(struct models *s, const struct entry *m)
{
    for (;;) {
        uint64_t free = s->budget - n_granted(s), more, wanted = grant_for(s, m);
        struct entry *victim = least_used(s, &more);
        if (wanted <= free) return true;
        if (!victim || wanted - free > more) return false;
        unload(s, victim);
    }
}

static void fault_no_room(const struct models *s, const struct entry *m, struct fault *f)
{
    fault_set(f, 503, "models_busy", "model",
              "'%s' needs %llu bytes of memory, %llu of %llu are free, and the models that have the rest are in use",
              m->held.name, (unsigned long long)grant_for(s, m), (unsigned long long)(s->budget - n_granted(s)),
              (unsigned long long)s->budget);
}

static void fault_stopping(struct fault *f) { fault_set(f, 503, "stopping", NULL, "the server is being stopped"); }

/* ---- facts ---- */

/* The facts that are known of a model before it is loaded. */
struct facts {
    struct qn_engine_plan plan;
    int n_ctx_train, n_vocab;
    bool has_chat;
    struct qn_chat_capabilities can;
    uint64_t fingerprint;
    struct file_mark mark;
    struct model_card card; /* owned until set_facts() */
};

static int find_facts(const struct models *s, const struct entry *m, const struct loaded_model *p, struct facts *f,
                      struct qn_error *e)
{
    *f = (struct facts){.plan.size = sizeof f->plan,
                        .n_ctx_train = qn_model_n_ctx_train(p->model),
                        .n_vocab = qn_model_n_vocab(p->model),
                        .has_chat = p->chat != NULL,
                        .can.size = sizeof f->can,
                        .fingerprint = fingerprint(p->model, s->c.engine.kv)};
    if (p->chat) qn_chat_capabilities(&f->can, p->chat, NULL); /* cannot fail */
    file_mark_get(&f->mark, m->path);
    int rc = model_card_read(&f->card, p->model, m->path, (int64_t)(f->mark.mtime_ns / 1000000000u), e);
    if (rc) return rc;
    struct qn_engine_params engine = s->c.engine;
    engine.memory_bytes = s->budget / (uint64_t)s->c.n; /* so that the models fit together, if their weights do */
    struct qn_scheduler_params scheduler = s->c.scheduler;
    scheduler.draft_model = p->draft;
    rc = qn_engine_plan(&f->plan, p->model, &engine, &scheduler, e);
    if (rc) model_card_deinit(&f->card);
    f->plan.bytes += m->table_bytes;
    f->plan.least_bytes += m->table_bytes;
    return rc;
}

/* Takes over the card. */
static void set_facts(struct entry *m, const struct facts *f)
{
    m->plan = f->plan;
    m->held.n_ctx = f->plan.n_ctx;
    m->n_ctx_train = f->n_ctx_train;
    m->n_vocab = f->n_vocab;
    m->has_chat = f->has_chat;
    m->can = f->can;
    m->fingerprint = f->fingerprint;
    m->mark = f->mark;
    model_card_deinit(&m->card);
    m->card = f->card;
}

/* ---- the thread ---- */

/* If the model's file was replaced and its requests still use the old one: true, and *f. Otherwise the model is not
 * loaded afterwards. Releases the lock meanwhile. */
static bool is_held_up(struct models *s, struct entry *m, struct fault *f)
{
    if (m->state != MODEL_LOADED) return false;
    if (m->n_users == 0) {
        unload(s, m);
        return false;
    }
    fault_set(f, 503, "models_busy", "model",
              "the file of '%s' was replaced, and is loaded anew when the requests that use the old one have ended",
              m->held.name);
    return true;
}

/* Reads the facts again if the file has changed. If the file cannot be opened, the load will say so. Releases the lock
 * meanwhile. */
static void renew_facts(struct models *s, struct entry *m)
{
    struct loaded_model p;
    struct facts f;
    struct file_mark now;
    struct qn_error e;
    if (!file_mark_get(&now, m->path) || file_mark_is_same(&now, &m->mark)) return;
    pthread_mutex_unlock(&s->lock);
    int rc = loaded_open(&p, m->path, m->draft_path, &s->c.model, &e, &e);
    if (!rc) rc = find_facts(s, m, &p, &f, &e);
    loaded_free(&p);
    pthread_mutex_lock(&s->lock);
    if (!rc) set_facts(m, &f);
}

/* Loads a model that requests wait for, or refuses them, or leaves the model blocked for a while. */
static void bring(struct models *s, struct entry *m)
{
    struct fault f = {0};
    struct qn_error e = {0}, why;
    struct loaded_model p;
    bool is_held = is_held_up(s, m, &f);
    if (!is_held) renew_facts(s, m);
    if (is_held || !make_room(s, m)) {
        m->is_blocked = clock_ns() < m->refuse_ns;
        if (m->is_blocked) return;
        if (!is_held) fault_no_room(s, m, &f);
        tell(s, m, &f);
        return;
    }
    uint64_t granted = grant_for(s, m);
    m->granted = granted;
    m->state = MODEL_LOADING;
    pthread_mutex_unlock(&s->lock);
    uint64_t begin = clock_ns();
    int rc = loaded_open(&p, m->path, m->draft_path, &s->c.model, &why, &e);
    if (!rc) rc = start(s, m, granted, &p, &e);
    if (rc)
        log_at(LOG_WARN, "cannot load '%s': %s", m->held.name, e.msg);
    else
        log_at(LOG_INFO, "loaded '%s' in %.0f ms", m->held.name, 1e-6 * (double)(clock_ns() - begin));
    pthread_mutex_lock(&s->lock);
    if (rc) {
        m->granted = 0;
        m->state = MODEL_NOT_LOADED;
        unblock(s);
        fault_set(&f, rc == QN_ENOMEM ? 503 : 500, rc == QN_ENOMEM ? "no_memory" : "model_failed", "model",
                  "'%s' cannot be loaded: %s", m->held.name, e.msg);
    } else {
        enter(m, &p);
    }
    tell(s, m, rc ? &f : NULL);
}

/* A model that requests wait for and that can be loaded or refused now; models after `after` come first, so that each
 * has its turn. NULL: none; *until is then lowered to the next time when there will be one. */
static struct entry *next_wanted(struct models *s, int after, uint64_t now, uint64_t *until)
{
    for (int k = 1; k <= s->c.n; k++) {
        struct entry *m = &s->entry[(after + k) % s->c.n];
        if (m->is_swept) continue; /* its end wakes the thread */
        if (m->waits && (!m->is_blocked || m->refuse_ns <= now)) return m;
        if (m->waits && m->refuse_ns < *until) *until = m->refuse_ns;
    }
    return NULL;
}

/* A model to unload because it was idle for too long or its file has changed. *until is lowered as above. */
static struct entry *next_idle(struct models *s, uint64_t now, uint64_t *until)
{
    uint64_t idle = (uint64_t)s->c.idle_s * 1000000000u;
    for (int i = 0; i < s->c.n; i++) {
        struct entry *m = &s->entry[i];
        if (may_go(m) && (m->is_stale || m->is_unwanted)) return m;
        if (!may_go(m) || !idle) continue;
        if (m->used_ns + idle <= now) return m;
        if (m->used_ns + idle < *until) *until = m->used_ns + idle;
    }
    return NULL;
}

static void *thread_main(void *arg)
{
    struct models *s = arg;
    struct entry *m;
    int last = 0;
    pthread_setname_np(pthread_self(), "models");
    pthread_mutex_lock(&s->lock);
    while (!s->is_stopping) {
        uint64_t now = clock_ns(), until = UINT64_MAX;
        if ((m = next_wanted(s, last, now, &until))) {
            last = m->held.index;
            bring(s, m);
        } else if ((m = next_idle(s, now, &until))) {
            unload(s, m);
        } else if (until == UINT64_MAX) {
            pthread_cond_wait(&s->wake, &s->lock);
        } else {
            struct timespec t = {(time_t)(until / 1000000000u), (long)(until % 1000000000u)};
            pthread_cond_timedwait(&s->wake, &s->lock, &t);
        }
    }
    pthread_mutex_unlock(&s->lock);
    return NULL;
}

/* ---- life ---- */

static int check_size(const struct models *s, const struct entry *m, struct qn_error *e)
{
    uint64_t room = room_for(s, m);
    if (m->plan.least_bytes <= room) return 0;
    return error_set(e, QN_ENOMEM, "'%s' needs at least %llu bytes of memory; the budget is %llu bytes%s", m->held.name,
                     (unsigned long long)m->plan.least_bytes, (unsigned long long)room,
                     room < s->budget ? " beside the pinned models" : "");
}

/* Opens a model at the start and finds every error that a load would find, except those of a running engine. keep: the
 * model stays loaded. */
static int open_first(struct models *s, struct entry *m, bool keep, struct qn_error *e)
{
    struct loaded_model p;
    struct facts f;
    struct qn_error why;
    size_t before = mem_in_use();
    int rc = loaded_open(&p, m->path, m->draft_path, &s->c.model, &why, e);
    if (rc) return rc;
    size_t after = mem_in_use();
    /* Rounded up to pages of an allocator. Half a page is for the small pieces that it keeps, which count as used:
     * their number differs from one opening to the next. */
    m->table_bytes = after > before ? (after - before + 32768) / 65536 * 65536 + 65536 : 0;
    if (!p.chat) log_at(LOG_WARN, "no conversations with '%s': %s", m->held.name, why.msg);
    rc = find_facts(s, m, &p, &f, e);
    set_facts(m, &f);
    if (!rc && f.plan.n_ctx > f.n_ctx_train)
        log_at(LOG_WARN, "'%s': a context of %d tokens; the model was trained with %d", m->held.name, f.plan.n_ctx,
               f.n_ctx_train);
    if (!rc && s->c.n > 1) rc = check_size(s, m, e); /* for a single model the engine's own error says more */
    if (rc || !keep) {
        loaded_free(&p);
        return rc;
    }
    m->granted = grant_for(s, m);
    if (!(rc = start(s, m, m->granted, &p, e))) enter(m, &p);
    return rc;
}

/* Takes a model out of the set, while only this thread knows the set. */
static void leave_out(struct models *s, int i)
{
    s->c.n--;
    for (; i < s->c.n; i++) {
        s->entry[i] = s->entry[i + 1];
        s->entry[i].held.index = i;
        s->entry[i].last_wait = &s->entry[i].waits;
    }
}

static int open_pinned(struct models *s, struct qn_error *e)
{
    int rc = 0;
    for (int i = 0; i < s->c.n && !rc; i++)
        if (s->entry[i].pinned) rc = open_first(s, &s->entry[i], true, e);
    return rc;
}

static int open_all(struct models *s, struct qn_error *e)
{
    struct qn_error why;
    int rc = open_pinned(s, e); /* first, because the room that they leave has to be known */
    for (int i = 0; i < s->c.n && !rc;) {
        struct entry *m = &s->entry[i];
        if (!m->pinned) rc = open_first(s, m, s->c.n == 1, &why);
        if (rc && e) *e = why;
        i += !rc;
        if (!rc || !m->optional) continue;
        log_at(LOG_WARN, "'%s' is left out: %s", m->held.name, why.msg);
        leave_out(s, i);
        rc = 0;
    }
    return rc;
}

int models_open(struct models **out, const struct models_config *c, struct qn_error *e)
{
    size_t bytes = sizeof(struct models) + (size_t)c->n * sizeof(struct entry);
    pthread_condattr_t monotonic;
    struct models *s = mem_calloc(1, bytes);
    if (!s) return error_nomem(e, "the list of models", bytes);
    s->c = *c;
    if (c->requests) ledger_init_part(&s->grammars, c->requests, c->requests->budget / 2);
    s->budget = c->engine.memory_bytes ? c->engine.memory_bytes : os_memory_bytes();
    pthread_mutex_init(&s->lock, NULL);
    pthread_condattr_init(&monotonic);
    pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC); /* as clock_ns() */
    pthread_cond_init(&s->wake, &monotonic);
    pthread_condattr_destroy(&monotonic);
    for (int i = 0; i < c->n; i++) {
        struct entry *m = &s->entry[i];
        m->set = s;
        m->held.name = c->source[i].name;
        m->held.index = i;
        m->held.context = c->context;
        m->path = c->source[i].path;
        m->draft_path = c->source[i].draft;
        m->pinned = c->source[i].pinned;
        m->optional = c->source[i].optional && !m->pinned;
        m->last_wait = &m->waits;
    }
    int rc = open_all(s, e);
    if (!rc) rc = os_thread_start(&s->thread, thread_main, s, "the models", e);
    s->has_thread = !rc;
    if (rc) {
        models_close(s);
        return rc;
    }
    *out = s;
    return 0;
}

void models_stop(struct models *s)
{
    struct fault f;
    fault_stopping(&f);
    pthread_mutex_lock(&s->lock);
    s->is_stopping = true;
    pthread_cond_signal(&s->wake);
    pthread_mutex_unlock(&s->lock);
    if (s->has_thread) pthread_join(s->thread, NULL);
    s->has_thread = false;
    /* From here on only this thread changes states. */
    for (int i = 0; i < s->c.n; i++) {
        struct entry *m = &s->entry[i];
        pthread_mutex_lock(&s->lock);
        tell(s, m, &f);
        pthread_mutex_unlock(&s->lock);
        if (m->state == MODEL_LOADED) qn_scheduler_stop(m->held.scheduler, 0);
    }
}

void models_close(struct models *s)
{
    if (!s) return;
    models_stop(s);
    for (int i = 0; i < s->c.n; i++) {
        struct entry *m = &s->entry[i];
        assert(m->n_users == 0 && !m->waits);
        struct loaded_model p = loaded_of(m);
        loaded_free(&p);
        model_card_deinit(&m->card);
    }
    pthread_cond_destroy(&s->wake);
    pthread_mutex_destroy(&s->lock);
    mem_free(s);
}

/* ---- from any thread ---- */

/* Whether a client that says `name` means the model `own`. Clients of Ollama add the tag ":latest" to every name. */
static bool is_named(const char *own, const char *name)
{
    size_t n = strlen(own);
    return !strncmp(own, name, n) && (!name[n] || !strcmp(name + n, ":latest"));
}

int models_find(const struct models *s, const char *name, struct fault *f)
{
    int n = s->c.n;
    if (n == 0)
        fault_set(f, 404, "model_not_found", "model",
                  "no model is served here: `quern pull` fetches one, and the daemon finds it at its next start");
    for (int i = 0; i < n; i++)
        if (name ? !strcmp(name, s->entry[i].held.name) : n == 1) return i;
    for (int i = 0; i < s->c.n_aliases && name; i++)
        if (!strcmp(name, s->c.alias[i].name)) return models_find(s, s->c.alias[i].model, f);
    for (int i = 0; i < n && name; i++)
        if (is_named(s->entry[i].held.name, name)) return i;
    for (int i = 0; i < s->c.n_aliases && name; i++)
        if (is_named(s->c.alias[i].name, name)) return models_find(s, s->c.alias[i].model, f);
    if (s->c.any && (!name || strcmp(name, s->c.any) != 0)) return models_find(s, s->c.any, f);
    if (n > 0 && !name)
        fault_set(f, 400, "missing_field", "model", "model is missing: %d models are served, see /v1/models", n);
    else if (n == 1)
        fault_set(f, 404, "model_not_found", "model", "model '%s' not found: only '%s' is served here", name,
                  s->entry[0].held.name);
    else if (n > 0)
        fault_set(f, 404, "model_not_found", "model", "model '%s' not found: /v1/models lists those that are served",
                  name);
    return -1;
}

/* Logs, once for each load, that there is a new file that cannot be opened. In the sandbox only the file that was there
 * at the start can be. */
static void tell_of_new_file(struct entry *m)
{
    struct file_mark now;
    if (m->is_told || !file_mark_get(&now, m->path) || (now.dev == m->mark.dev && now.ino == m->mark.ino)) return;
    log_at(LOG_WARN, "'%s': its file was replaced, and the new one cannot be opened: the old one is served on",
           m->held.name);
    m->is_told = true;
}

/* Looks at the file of a loaded model. false and *f: it was changed in place; all requests that use it are ended. */
static bool is_current(struct entry *m, struct fault *f)
{
    struct qn_error e;
    if (m->is_stale) return true;
    int now = qn_scheduler_look(m->held.scheduler, &e);
    m->is_stale = now != 0;
    if (!now) tell_of_new_file(m);
    if (now) log_at(LOG_WARN, "'%s' is closed: %s", m->held.name, now < 0 ? e.msg : "its file was replaced");
    if (now >= 0) return true;
    fault_set(f, 503, "model_changed", "model", "'%s' was closed, for %s; it is loaded anew for the next request",
              m->held.name, e.msg);
    pthread_cond_signal(&m->set->wake);
    return false;
}

enum models_answer models_acquire(struct models *s, const char *name, struct models_wait *w, struct served **out,
                                  struct fault *f)
{
    enum models_answer answer = MODELS_REFUSED;
    int i = models_find(s, name, f);
    if (i < 0) return answer;
    struct entry *m = &s->entry[i];
    pthread_mutex_lock(&s->lock);
    m->is_unwanted = false;
    if (s->is_stopping) {
        fault_stopping(f);
    } else if (m->state == MODEL_LOADED && !is_current(m, f)) {
    } else if (m->state == MODEL_LOADED && !m->is_stale) {
        m->n_users++;
        *out = &m->held;
        answer = MODELS_HELD;
    } else {
        if (!m->waits) m->refuse_ns = clock_ns() + ROOM_NS;
        w->next = NULL;
        *m->last_wait = w;
        m->last_wait = &w->next;
        pthread_cond_signal(&s->wake);
        answer = MODELS_WAIT;
    }
    pthread_mutex_unlock(&s->lock);
    return answer;
}

int models_unload(struct models *s, const char *name, struct fault *f)
{
    int rc = 0, i = models_find(s, name, f);
    if (i < 0) return -1;
    struct entry *m = &s->entry[i];
    pthread_mutex_lock(&s->lock);
    bool is_there = m->state == MODEL_LOADED || m->state == MODEL_LOADING;
    if (m->pinned)
        rc = fault_set(f, 400, "invalid_value", "id", "'%s' stays in memory, because --pin names it", m->held.name);
    m->is_unwanted = is_there && !rc;
    pthread_cond_signal(&s->wake);
    pthread_mutex_unlock(&s->lock);
    return rc;
}

struct served *models_hold(struct models *s, int i)
{
    struct entry *m = &s->entry[i];
    pthread_mutex_lock(&s->lock);
    bool there = !s->is_stopping && m->state == MODEL_LOADED;
    m->n_users += there;
    pthread_mutex_unlock(&s->lock);
    return there ? &m->held : NULL;
}

int models_drop_files(struct models *s, int i, uint64_t identity, size_t *n, struct qn_error *e)
{
    struct entry *m = &s->entry[i];
    const char *dir = s->c.scheduler.cache_dir;
    *n = 0;
    pthread_mutex_lock(&s->lock);
    bool may = m->state == MODEL_NOT_LOADED && !m->is_swept && !s->is_stopping;
    if (may) m->is_swept = true;
    pthread_mutex_unlock(&s->lock);
    if (!may) return error_set(e, QN_EBUSY, "'%s' is being loaded, unloaded or swept: try again", m->held.name);
    int rc = dir ? loaded_drop_files(dir, m->held.name, identity, n, e) : 0;
    pthread_mutex_lock(&s->lock);
    m->is_swept = false;
    pthread_cond_signal(&s->wake);
    pthread_mutex_unlock(&s->lock);
    return rc;
}

void models_release(struct served *held)
{
    struct entry *m = (struct entry *)held;
    if (!held) return;
    pthread_mutex_lock(&m->set->lock);
    assert(m->n_users > 0);
    m->n_users--;
    m->used_ns = clock_ns();
    if (m->n_users == 0) {
        unblock(m->set);
        pthread_cond_signal(&m->set->wake);
    }
    pthread_mutex_unlock(&m->set->lock);
}

const char *models_state_name(enum models_state s)
{
    static const char *const names[] = {"not_loaded", "loading", "loaded", "unloading"};
    return names[s];
}

int models_count(const struct models *s) { return s->c.n; }

const struct models_alias *models_aliases(const struct models *s, int *n)
{
    *n = s->c.n_aliases;
    return s->c.alias;
}

uint64_t models_budget_bytes(const struct models *s) { return s->budget; }

int models_card(struct models *s, int i, struct model_card *out, struct qn_error *e)
{
    pthread_mutex_lock(&s->lock);
    int rc = model_card_copy(out, &s->entry[i].card, e);
    pthread_mutex_unlock(&s->lock);
    return rc;
}

/* Seconds until an idle model is unloaded; -1: never. */
static double idle_left_s(const struct models *s, const struct entry *m)
{
    double left = s->c.idle_s - 1e-9 * (double)(clock_ns() - m->used_ns);
    if (!s->c.idle_s || m->pinned) return -1;
    if (m->n_users > 0) return s->c.idle_s;
    return left > 0 ? left : 0;
}

void models_look(struct models *s, int i, struct models_info *out)
{
    struct entry *m = &s->entry[i];
    pthread_mutex_lock(&s->lock);
    *out = (struct models_info){
        .name = m->held.name,
        .path = m->path,
        .state = m->state,
        .pinned = m->pinned,
        .chat = m->has_chat,
        .can = m->can,
        .n_ctx = m->held.n_ctx,
        .n_ctx_train = m->n_ctx_train,
        .n_vocab = m->n_vocab,
        .fingerprint = m->fingerprint,
        .need_bytes = m->plan.bytes,
        .granted_bytes = m->granted,
        .table_bytes = m->held.model ? m->table_bytes : 0,
        .grammar_bytes = m->held.model ? model_grammar_bytes(m->held.model) : 0,
        .n_users = m->n_users,
        .n_loads = m->n_loads,
        .idle_left_s = idle_left_s(s, m),
        .stats.size = sizeof out->stats,
    };
    if (m->held.scheduler) {
        qn_scheduler_stats(m->held.scheduler, &out->stats);
        out->stats.used_bytes += m->table_bytes;
    }
    add_counters(&out->stats, &m->past);
    pthread_mutex_unlock(&s->lock);
}
