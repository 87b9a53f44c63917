/* SPDX-License-Identifier: MIT
 *
 * os.h: what is asked of the operating system: mapped files, clocks, how many CPUs and
 * how many bytes this process may really use (affinity, cgroup v1 and v2).
 */
#ifndef QUERN_BASE_OS_H
#define QUERN_BASE_OS_H

#include <pthread.h>
#include <signal.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"
#include "base/error.h"

struct mapping {
    const uint8_t *data; /* read-only, shared, page aligned; NULL when the file is empty */
    size_t size;         /* bytes */
};

/* Maps a regular file read-only. QN_ENOINPUT (cannot open; not a regular file) names the path. */
int map_open(struct mapping *m, const char *path, struct qn_error *e);
void map_close(struct mapping *m); /* a zeroed mapping is closed */
/* For a handler of SIGBUS: if the address is in a mapping, all of it from that page on becomes zeros, so that whoever
 * reads there goes on, and map_is_lost() of it holds. false: it is in none. */
bool map_replace_lost(const void *address);
/* Whether something of the mapping was replaced. map_n_lost(): how often that was done in this process. */
bool map_is_lost(const struct mapping *m);
unsigned map_n_lost(void);
/* Keeps the pages of a part of the file in memory from their first use on. 0 or an errno: ENOMEM and EPERM when
 * RLIMIT_MEMLOCK forbids it. Lasts until the mapping is closed. */
int map_lock(const struct mapping *m, size_t offset, size_t bytes);
/* Enters the pages of [p, p + bytes), part of a mapping, into this process's page table, reading those that are not in
 * memory. -1 where the system cannot. */
int map_populate(const void *p, size_t bytes);
/* Says that [p, p + bytes), part of a mapping, is needed soon: reading begins, and is not waited for. */
void map_ask_ahead(const void *p, size_t bytes);

/* Adds the bytes of a regular file, at most `limit`, to the buffer. For small files that others may change at any time:
 * reading a mapping that was cut short ends the process. Errors as map_open's; QN_EDATA when it has more. */
int os_read_file(struct buf *out, const char *path, size_t limit, struct qn_error *e);

/* Whether something is there under this name, links followed; whether it is a directory. False too where the system
 * does not let us look. */
bool os_exists(const char *path);
bool os_is_directory(const char *path);

uint64_t clock_ns(void); /* monotonic */

/* Before starting threads of our own: signals belong to the program's. Faults are not blocked, for they are raised in
 * whichever thread commits them. Restore with pthread_sigmask(SIG_SETMASK, old, NULL). */
void os_block_signals(sigset_t *old);
/* Starts a thread with these signals blocked. what: it is for. QN_ENOMEM when there cannot be one more. */
int os_thread_start(pthread_t *out, void *(*run)(void *), void *arg, const char *what, struct qn_error *e);

/* CPUs this process may use: affinity mask, cut by the cgroup's cpu.max (rounded up); at least 1. */
int os_n_cpus(void);
/* Bytes this process may use: the machine's available memory, cut by the cgroup's limit. What the process
 * or its cgroup uses already is not subtracted from the limit. */
size_t os_memory_bytes(void);
size_t os_page_bytes(void);
size_t os_lock_limit(void); /* bytes that this process may lock, SIZE_MAX when there is no limit */
/* Resident set of this process in bytes, 0 when it cannot be read. */
size_t os_resident_bytes(void);
size_t os_anonymous_bytes(void); /* what of it is in no file */

/* What the control groups above this process allow; `root` is put before every path that is read ("" is this
 * machine, a test gives a tree of its own). No limit is INT_MAX and SIZE_MAX. */
struct os_limits {
    int n_cpus;          /* the smallest CPU quota on the way up, rounded up to whole CPUs */
    size_t memory_bytes; /* the smallest memory limit on the way up */
};
void os_cgroup_limits(const char *root, struct os_limits *out);

#endif
