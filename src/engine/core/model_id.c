/* SPDX-License-Identifier: MIT
 *
 * model_id.c: finds out which model this is by the SHA-256 of its files.
 *
 * The thread asks the system for the idle class of I/O and of CPU time. If the system refuses, it computes anyway.
 */
#include "engine/core/model_id.h"

#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/log.h"
#include "base/mem.h"
#include "base/os.h"
#include "format/file/model_files.h"

#define AT_ONCE_BYTES ((uint64_t)64 << 20) /* up to this sum, files are hashed at once: 0.25 s at most */

/* from linux/ioprio.h, which not every system has */
#define IOPRIO_WHO_PROCESS 1
#define IOPRIO_IDLE        (3 << 13)

struct model_id {
    const struct model_files *files;
    char *dir, *also;
    uint8_t (*hash)[SHA256_BYTES]; /* [files->n] */
    bool *is_known;                /* [files->n] */
    pthread_t thread;
    bool has_thread;
    atomic_bool is_stopping, is_done;
    void (*wake)(void *arg);
    void *arg;
    int rc; /* valid when is_done */
    struct qn_error error;
};

static bool goes_on(void *arg, uint64_t done, uint64_t total)
{
    struct model_id *m = arg;
    (void)done, (void)total;
    return !atomic_load_explicit(&m->is_stopping, memory_order_relaxed);
}

/* Hashes file i, which must still be the one that was opened, and remembers the hash. If remembering fails, that is
 * only a warning. */
static int hash_file(struct model_id *m, size_t i, bool is_gentle, struct qn_error *e)
{
    const struct model_file *f = &m->files->file[i];
    struct file_mark mark;
    struct qn_error why;
    int rc = file_hash_path(m->hash[i], &mark, f->path, is_gentle, goes_on, m, e);
    if (rc) return rc;
    if (!file_mark_is_same(&mark, &f->mark)) return error_set(e, QN_EIO, "'%s' has changed", f->path);
    m->is_known[i] = true;
    if (file_hash_remember(m->dir, &mark, m->hash[i], &why)) log_at(LOG_WARN, "cache: %s", why.msg);
    return 0;
}

static void hash_all(struct model_id *m, bool is_gentle)
{
    for (size_t i = 0; i < m->files->n && !m->rc; i++)
        if (!m->is_known[i]) m->rc = hash_file(m, i, is_gentle, &m->error);
}

static void *thread_main(void *arg)
{
    struct model_id *m = arg;
    pthread_setname_np(pthread_self(), "model-hash");
    sched_setscheduler(0, SCHED_IDLE, &(struct sched_param){0}); /* 0: this thread */
    syscall(SYS_ioprio_set, IOPRIO_WHO_PROCESS, 0, IOPRIO_IDLE);
    hash_all(m, true);
    atomic_store(&m->is_done, true);
    if (m->rc != QN_ECANCEL) m->wake(m->arg);
    return NULL;
}

/* Recalls the hashes that are remembered. Returns the total bytes of the other files. */
static uint64_t recall(struct model_id *m)
{
    uint64_t bytes = 0;
    for (size_t i = 0; i < m->files->n; i++) {
        const struct file_mark *mark = &m->files->file[i].mark;
        m->is_known[i] =
            file_hash_recall(m->hash[i], m->dir, mark) || (m->also && file_hash_recall(m->hash[i], m->also, mark));
        if (!m->is_known[i]) bytes += mark->bytes;
    }
    return bytes;
}

int model_id_new(struct model_id **out, const struct weights *w, const char *dir, const char *also,
                 void (*wake)(void *arg), void *arg, struct qn_error *e)
{
    const struct model_files *files = weights_files(w);
    struct model_id *m = mem_calloc(1, sizeof *m);
    if (!m) return error_nomem(e, "a model's hash", sizeof *m);
    *m = (struct model_id){.files = files, .wake = wake, .arg = arg};
    m->dir = mem_dup(dir, strlen(dir));
    m->also = also ? mem_dup(also, strlen(also)) : NULL;
    m->hash = mem_calloc(files->n, sizeof *m->hash);
    m->is_known = mem_calloc(files->n, sizeof *m->is_known);
    int rc = 0;
    if (!m->dir || (also && !m->also) || !m->hash || !m->is_known) {
        rc = error_nomem(e, "a model's hash", files->n * sizeof *m->hash);
    } else if (recall(m) <= AT_ONCE_BYTES) {
        hash_all(m, false);
        atomic_store(&m->is_done, true);
    } else {
        rc = os_thread_start(&m->thread, thread_main, m, "a model's hash", e);
        m->has_thread = !rc;
    }
    if (rc)
        model_id_free(m);
    else
        *out = m;
    return rc;
}

void model_id_free(struct model_id *m)
{
    if (!m) return;
    atomic_store(&m->is_stopping, true);
    if (m->has_thread) pthread_join(m->thread, NULL);
    mem_free(m->dir);
    mem_free(m->also);
    mem_free(m->hash);
    mem_free(m->is_known);
    mem_free(m);
}

bool model_id_is_done(struct model_id *m) { return atomic_load(&m->is_done); }

int model_id_get(struct model_id *m, uint8_t out[SHA256_BYTES], struct qn_error *e)
{
    struct sha256 s;
    if (m->rc && e) *e = m->error;
    if (m->rc) return m->rc;
    sha256_init(&s);
    sha256_add(&s, m->hash, m->files->n * sizeof *m->hash);
    sha256_end(&s, out);
    return 0;
}
