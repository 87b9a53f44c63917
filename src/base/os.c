/* SPDX-License-Identifier: MIT
 *
 * os.c: mapped files, clocks, and how much of the machine this process really has.
 *
 * A container sees all CPUs and all memory of its host in the usual places, and is killed if it uses them. What it
 * really has is written in its control group and in each group above, and the smallest number counts. So the limits are
 * read upwards, from the group named in /proc/self/cgroup to the root of the mount. Inside a container the named path
 * often does not exist below the mount, whose root is then the container's own group. A directory that does not exist
 * has no limit, and the walk still reaches the root.
 *
 * Source: Documentation/admin-guide/cgroup-v2.rst (cpu.max, memory.high, memory.max) and cgroup-v1/memory.rst and
 * scheduler/sched-bwc.rst (memory.limit_in_bytes, cpu.cfs_quota_us) of the Linux kernel.
 *
 * When others cut a mapped file short, reading a page that is gone raises SIGBUS, which ends the process. A handler can
 * put zeros there instead, and the caller must look afterwards whether that was done. Mappings are in a list that the
 * handler can read without a lock.
 *
 * Control groups are looked for in /sys/fs/cgroup only.
 */
#include "base/os.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#define OS_PATH_MAX 4096
#define OS_MAX_CPUS (1 << 16) /* a multiple of CPU_SETSIZE */

/* ---- mapped files ---- */

/* A descriptor and what fstat says, of a regular file. */
static int open_regular(const char *path, struct stat *st, struct qn_error *e)
{
    /* O_NONBLOCK, because opening a FIFO would wait for a writer before we could refuse it. */
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);

    if (fd < 0) return error_set(e, QN_ENOINPUT, "cannot open '%s': %m", path);
    if (fstat(fd, st) < 0)
        error_set(e, QN_ENOINPUT, "cannot open '%s': %m", path);
    else if (!S_ISREG(st->st_mode))
        error_set(e, QN_ENOINPUT, "'%s' is not a regular file", path);
    else
        return fd;
    close(fd);
    return QN_ENOINPUT;
}

#define MAX_WATCHED 4096 /* mappings that the handler knows; others are as without it */

static struct watched {
    _Atomic uintptr_t data; /* 0: free; 1: being filled */
    _Atomic size_t size;
    atomic_bool is_lost;
} watched[MAX_WATCHED];
static atomic_uint n_lost;
static atomic_int n_watched; /* slots that were ever used */

static void watch(const void *p, size_t size)
{
    for (int i = 0; i < MAX_WATCHED; i++) {
        uintptr_t expected = 0;
        if (!atomic_compare_exchange_strong(&watched[i].data, &expected, 1)) continue;
        atomic_store(&watched[i].size, size);
        atomic_store(&watched[i].is_lost, false);
        atomic_store(&watched[i].data, (uintptr_t)p);
        for (int n = n_watched; n <= i && !atomic_compare_exchange_weak(&n_watched, &n, i + 1);) {
        }
        return;
    }
}

static struct watched *watched_at(uintptr_t p)
{
    for (int i = 0; i < n_watched; i++) {
        uintptr_t data = atomic_load(&watched[i].data);
        if (data > 1 && p >= data && p - data < atomic_load(&watched[i].size)) return &watched[i];
    }
    return NULL;
}

bool map_replace_lost(const void *address)
{
    struct watched *w = watched_at((uintptr_t)address);
    if (!w) return false;
    uintptr_t first = (uintptr_t)address & ~(uintptr_t)(sysconf(_SC_PAGESIZE) - 1);
    size_t bytes = w->data + w->size - first;
    atomic_store(&w->is_lost, true);
    n_lost++;
    return mmap((void *)first, bytes, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED | MAP_NORESERVE, -1, 0) !=
           MAP_FAILED;
}

bool map_is_lost(const struct mapping *m)
{
    const struct watched *w = m->data ? watched_at((uintptr_t)m->data) : NULL;
    return w && w->is_lost;
}

unsigned map_n_lost(void) { return n_lost; }

int map_open(struct mapping *m, const char *path, struct qn_error *e)
{
    struct stat st;
    int r = 0, fd = open_regular(path, &st, e);
    void *p = NULL;

    if (fd < 0) return fd;
    if (st.st_size > 0) {
        p = mmap(NULL, (size_t)st.st_size, PROT_READ, MAP_SHARED, fd, 0);
        if (p == MAP_FAILED)
            r = error_set(e, QN_ENOINPUT, "cannot map the %zu bytes of '%s': %m", (size_t)st.st_size, path);
    }
    close(fd);
    if (r) return r;
    /* Where the page cache has large folios, pages that are read from now on come 2 MB at a time: one fault and one
     * translation instead of 512. Pages that are in the cache already stay as they are. */
    if (p) madvise(p, (size_t)st.st_size, MADV_HUGEPAGE);
    if (p) watch(p, (size_t)st.st_size);
    *m = (struct mapping){.data = p, .size = (size_t)st.st_size};
    return 0;
}

void map_close(struct mapping *m)
{
    struct watched *w = m->data ? watched_at((uintptr_t)m->data) : NULL;
    if (w) atomic_store(&w->data, 0);
    if (m->data) munmap((void *)(uintptr_t)m->data, m->size);
    *m = (struct mapping){0};
}

int map_lock(const struct mapping *m, size_t offset, size_t bytes)
{
    assert(offset <= m->size && bytes <= m->size - offset);
    size_t page = os_page_bytes(), first = offset / page * page;

    /* MLOCK_ONFAULT: locking reads nothing, so a model starts as fast as without it. */
    return mlock2(m->data + first, offset + bytes - first, MLOCK_ONFAULT) ? errno : 0;
}

int map_populate(const void *p, size_t bytes)
{
    uintptr_t mask = os_page_bytes() - 1, first = (uintptr_t)p & ~mask;

    return madvise((void *)first, bytes + ((uintptr_t)p - first), MADV_POPULATE_READ);
}

bool map_is_in_memory(const void *p, size_t bytes)
{
    uint8_t in_memory[512];
    size_t page = os_page_bytes();
    uintptr_t at = (uintptr_t)p & ~(page - 1), end = (uintptr_t)p + bytes;

    while (at < end) {
        size_t n = (end - at + page - 1) / page;
        if (n > sizeof in_memory) n = sizeof in_memory;
        if (mincore((void *)at, n * page, in_memory)) return true;
        for (size_t i = 0; i < n; i++)
            if (!(in_memory[i] & 1)) return false;
        at += n * page;
    }
    return true;
}

void map_ask_ahead(const void *p, size_t bytes)
{
    uintptr_t mask = os_page_bytes() - 1, first = (uintptr_t)p & ~mask;

    madvise((void *)first, bytes + ((uintptr_t)p - first), MADV_WILLNEED);
}

int os_read_file(struct buf *out, const char *path, size_t limit, struct qn_error *e)
{
    char part[4096];
    struct stat st;
    ssize_t n;
    int r = 0, fd = open_regular(path, &st, e);

    if (fd < 0) return fd;
    r = buf_reserve(out, 0, e); /* an empty file is an empty string, not a null pointer */
    while (r == 0 && (n = read(fd, part, sizeof part)) != 0) {
        if (n < 0)
            r = errno == EINTR ? 0 : error_set(e, QN_ENOINPUT, "cannot read '%s': %m", path);
        else if ((size_t)n > limit)
            r = error_set(e, QN_EDATA, "'%s' is too long", path);
        else if ((r = buf_add(out, part, (size_t)n, e)) == 0)
            limit -= (size_t)n;
    }
    explicit_bzero(part, sizeof part); /* it may have been a key */
    close(fd);
    return r;
}

bool os_exists(const char *path)
{
    struct stat st;
    return stat(path, &st) == 0;
}

bool os_is_directory(const char *path)
{
    struct stat st;
    return stat(path, &st) == 0 && S_ISDIR(st.st_mode);
}

/* ---- the machine ---- */

uint64_t clock_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

void os_block_signals(sigset_t *old)
{
    sigset_t all;
    sigfillset(&all);
    for (const int *s = (const int[]){SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGTRAP, SIGABRT, SIGPROF, 0}; *s; s++)
        sigdelset(&all, *s);
    pthread_sigmask(SIG_SETMASK, &all, old);
}

int os_thread_start(pthread_t *out, void *(*run)(void *), void *arg, const char *what, struct qn_error *e)
{
    sigset_t old;
    os_block_signals(&old);
    int failed = pthread_create(out, NULL, run, arg);
    pthread_sigmask(SIG_SETMASK, &old, NULL);
    if (failed) return error_set(e, QN_ENOMEM, "cannot start a thread for %s: %s", what, strerror(failed));
    return 0;
}

size_t os_page_bytes(void) { return (size_t)sysconf(_SC_PAGESIZE); }

size_t os_lock_limit(void)
{
    struct rlimit r;
    return getrlimit(RLIMIT_MEMLOCK, &r) == 0 && r.rlim_cur != RLIM_INFINITY ? (size_t)r.rlim_cur : SIZE_MAX;
}

static int affinity_cpus(void)
{
    cpu_set_t set[OS_MAX_CPUS / CPU_SETSIZE]; /* 8 KiB: the kernel refuses a mask smaller than its own */
    int n = sched_getaffinity(0, sizeof set, set) == 0 ? CPU_COUNT_S(sizeof set, set) : 0;

    if (n == 0) n = (int)sysconf(_SC_NPROCESSORS_ONLN);
    return n > 0 ? n : 1;
}

int os_n_cpus(void)
{
    struct os_limits lim;
    int n = affinity_cpus();

    os_cgroup_limits("", &lim);
    return n < lim.n_cpus ? n : lim.n_cpus;
}

/* The number after `key` in a file of "Key:   123 kB" lines, in bytes; 0 when it is not there. */
static size_t proc_kb(const char *path, const char *key)
{
    unsigned long long kb = 0;
    char line[256];
    FILE *f = fopen(path, "re");

    while (f && fgets(line, sizeof line, f))
        if (!strncmp(line, key, strlen(key)) && sscanf(line + strlen(key), "%llu", &kb) == 1) break;
    if (f) fclose(f);
    return (size_t)kb * 1024;
}

size_t os_memory_bytes(void)
{
    struct os_limits lim;
    size_t n = proc_kb("/proc/meminfo", "MemAvailable:");

    if (n == 0) n = (size_t)sysconf(_SC_PHYS_PAGES) * os_page_bytes();
    os_cgroup_limits("", &lim);
    return n < lim.memory_bytes ? n : lim.memory_bytes;
}

size_t os_resident_bytes(void) { return proc_kb("/proc/self/status", "VmRSS:"); }
size_t os_anonymous_bytes(void) { return proc_kb("/proc/self/status", "RssAnon:"); }

/* ---- control groups ---- */

/* Reads the first line of dir/name; 0 when there is none. */
static int read_line(char *line, size_t cap, const char *dir, const char *name)
{
    char path[OS_PATH_MAX];
    FILE *f;
    int ok;

    if (snprintf(path, sizeof path, "%s/%s", dir, name) >= (int)sizeof path) return 0;
    f = fopen(path, "re");
    ok = f && fgets(line, (int)cap, f);
    if (f) fclose(f);
    return ok;
}

static void limit_memory(struct os_limits *l, const char *dir, const char *name)
{
    unsigned long long n;
    char line[128];

    /* "max" of v2 is no number; v1 writes a number close to 2^63 instead. */
    if (read_line(line, sizeof line, dir, name) && sscanf(line, "%llu", &n) == 1 && n < l->memory_bytes)
        l->memory_bytes = (size_t)n;
}

static void limit_cpus(struct os_limits *l, long long quota_us, long long period_us)
{
    if (quota_us <= 0 || period_us <= 0) /* v1: -1 is no limit */
        return;
    long long n = quota_us / period_us + (quota_us % period_us != 0);
    if (n < l->n_cpus) l->n_cpus = (int)n;
}

static void limit_by_dir(struct os_limits *l, const char *dir)
{
    long long quota, period;
    char line[128];

    limit_memory(l, dir, "memory.max");
    limit_memory(l, dir, "memory.high"); /* above it the kernel slows the process down instead of killing it */
    limit_memory(l, dir, "memory.limit_in_bytes");
    if (read_line(line, sizeof line, dir, "cpu.max") && sscanf(line, "%lld %lld", &quota, &period) == 2)
        limit_cpus(l, quota, period);
    if (read_line(line, sizeof line, dir, "cpu.cfs_quota_us") && sscanf(line, "%lld", &quota) == 1 &&
        read_line(line, sizeof line, dir, "cpu.cfs_period_us") && sscanf(line, "%lld", &period) == 1)
        limit_cpus(l, quota, period);
}

/* Applies the limits of mount/group and of every directory above it up to the mount. */
static void limit_by_group(struct os_limits *l, const char *mount, const char *group)
{
    char dir[OS_PATH_MAX];

    if (snprintf(dir, sizeof dir, "%s%s", mount, group) >= (int)sizeof dir) return;
    for (;;) {
        limit_by_dir(l, dir);
        char *slash = strrchr(dir, '/');
        if (!slash || slash < dir + strlen(mount)) return;
        *slash = '\0';
    }
}

void os_cgroup_limits(const char *root, struct os_limits *out)
{
    char path[OS_PATH_MAX], mount[OS_PATH_MAX], line[OS_PATH_MAX];

    *out = (struct os_limits){.n_cpus = INT_MAX, .memory_bytes = SIZE_MAX};
    snprintf(path, sizeof path, "%s/proc/self/cgroup", root);
    FILE *f = fopen(path, "re");
    if (!f) return;
    /* "hierarchy-ID:controllers:path"; the list of controllers is empty for v2, and in v1 names the mount. */
    while (fgets(line, sizeof line, f)) {
        char *list = strchr(line, ':');
        char *group = list ? strchr(list + 1, ':') : NULL;
        if (!group) continue;
        *list++ = *group++ = '\0';
        group[strcspn(group, "\n")] = '\0';
        snprintf(mount, sizeof mount, "%s/sys/fs/cgroup%s%.64s", root, *list ? "/" : "", list);
        limit_by_group(out, mount, group);
    }
    fclose(f);
}

int os_open_log(int *fd, const char *path, unsigned mode, struct qn_error *e)
{
    struct stat st;
    int f = open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC | O_NONBLOCK | O_NOCTTY, (mode_t)mode);
    if (f < 0) return error_set(e, QN_EIO, "cannot write '%s': %m", path);
    if (fstat(f, &st) == 0 && S_ISREG(st.st_mode)) {
        *fd = f;
        return 0;
    }
    close(f);
    return error_set(e, QN_EIO, "cannot write '%s': not a regular file", path);
}

int os_append(int fd, const void *p, size_t n)
{
    struct stat st;
    size_t done = 0;
    int why = fstat(fd, &st) ? errno : 0;
    while (!why && done < n) {
        ssize_t k = write(fd, (const char *)p + done, n - done);
        if (k > 0)
            done += (size_t)k;
        else if (k == 0 || errno != EINTR)
            why = k == 0 ? ENOSPC : errno;
    }
    if (!why) return 0;
    struct stat now; /* half of a line would spoil the next one */
    if (done && fstat(fd, &now) == 0 && now.st_size == st.st_size + (off_t)done && ftruncate(fd, st.st_size))
        return why;
    return why;
}
