/* SPDX-License-Identifier: MIT
 *
 * os.h: the operating system: mapped files, clocks, and how many CPUs and bytes this process may really use (affinity,
 * cgroup v1 and v2). All functions are thread-safe.
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

/* Maps a regular file read-only. QN_ENOINPUT, with the path: it cannot be opened, or is not a regular file. */
int map_open(struct mapping *m, const char *path, struct qn_error *e);
void map_close(struct mapping *m); /* a zeroed mapping is closed */
/* For a handler of SIGBUS. If the address is in a mapping, the mapping becomes zeros from that page on, so that the
 * interrupted read goes on, and map_is_lost() of it is true. False: the address is in no mapping. */
bool map_replace_lost(const void *address);
/* Whether a part of the mapping was replaced. map_n_lost(): how often that was done in this process. */
bool map_is_lost(const struct mapping *m);
unsigned map_n_lost(void);
/* Keeps the pages of a part of the file in memory from their first use on, until the mapping is closed. Returns 0 or an
 * errno: ENOMEM and EPERM when RLIMIT_MEMLOCK forbids it. */
int map_lock(const struct mapping *m, size_t offset, size_t bytes);
/* Enters the pages of [p, p + bytes), part of a mapping, into this process's page table, and reads those that are not
 * in memory. -1: the system cannot do that. */
int map_populate(const void *p, size_t bytes);
/* Whether all pages of [p, p + bytes), part of a mapping, are in memory. True where the system does not tell. */
bool map_is_in_memory(const void *p, size_t bytes);
/* Tells the system that [p, p + bytes), part of a mapping, is needed soon. It begins to read; the call does not wait.
 */
void map_ask_ahead(const void *p, size_t bytes);

/* Appends the bytes of a regular file, at most `limit`, to the buffer, which has memory and its NUL afterwards even if
 * the file is empty. For small files that others may change at any time, because reading a mapped file that was cut
 * short ends the process. Errors as map_open(); QN_EDATA: it is longer. */
int os_read_file(struct buf *out, const char *path, size_t limit, struct qn_error *e);
/* Opens a regular file for os_append(), or makes it with these permissions. QN_EIO: it is another kind of file, too: a
 * pipe could hold up its writer. *fd: the caller's. */
int os_open_log(int *fd, const char *path, unsigned mode, struct qn_error *e);
/* Appends all of the bytes, or none if nobody else writes to the file. Returns 0 or an errno. */
int os_append(int fd, const void *p, size_t n);

/* Whether a file or directory of this name exists, and whether it is a directory. Links are followed. False also where
 * the system does not let us look. */
bool os_exists(const char *path);
bool os_is_directory(const char *path);

uint64_t clock_ns(void); /* monotonic */

/* Blocks all signals before threads are started, so that signals reach the program's own threads. Faults (SIGSEGV and
 * the like) are not blocked, because they are raised in the thread that commits them. Restore the mask with
 * pthread_sigmask(SIG_SETMASK, old, NULL). */
void os_block_signals(sigset_t *old);
/* Starts a thread with these signals blocked. what: its purpose, for messages. QN_ENOMEM: there cannot be one more. */
int os_thread_start(pthread_t *out, void *(*run)(void *), void *arg, const char *what, struct qn_error *e);

/* How many CPUs this process may use: those of its affinity mask, at most the cgroup's cpu.max (rounded up), at
 * least 1. */
int os_n_cpus(void);
/* How many bytes this process may use: the machine's available memory, at most the cgroup's limit. What the process or
 * its cgroup uses already is not subtracted from the limit. */
size_t os_memory_bytes(void);
size_t os_page_bytes(void);
size_t os_lock_limit(void); /* bytes that this process may lock, SIZE_MAX when there is no limit */
/* Resident set of this process in bytes, 0 when it cannot be read. */
size_t os_resident_bytes(void);
size_t os_anonymous_bytes(void); /* the part of it that is in no file */

/* What the control groups above this process allow. `root` is put before every path that is read: "" for this machine;
 * a test gives a tree of its own. Without a limit: INT_MAX and SIZE_MAX. */
struct os_limits {
    int n_cpus;          /* the smallest CPU quota of all groups, rounded up to whole CPUs */
    size_t memory_bytes; /* the smallest memory limit of all groups */
};
void os_cgroup_limits(const char *root, struct os_limits *out);

#endif
