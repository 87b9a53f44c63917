/* SPDX-License-Identifier: MIT
 *
 * sandbox.c: fences the process in with Landlock and seccomp.
 *
 * The C library has no wrappers for Landlock, and its header is often older than the kernel. So the three system calls
 * are made by number, and the constants are here, with the ABI they came with. libseccomp writes the filter, because
 * numbers of system calls, and which of them exist, differ by architecture.
 *
 * Source: Documentation/userspace-api/landlock.rst and seccomp_filter.rst of the Linux kernel,
 * landlock_restrict_self(2), seccomp_init(3).
 */
#include "server/sandbox.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/magic.h>
#include <sched.h>
#include <seccomp.h>
#include <stdint.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/vfs.h>
#include <unistd.h>

static int lack(struct buf *missing, struct qn_error *e, const char *what)
{
    return buf_printf(missing, e, "%s%s", missing->len ? "; " : "", what);
}

#ifdef QUERN_SANITIZED

int sandbox_files(const struct sandbox_path *paths, size_t n, struct buf *missing, struct qn_error *e)
{
    (void)paths, (void)n;
    return lack(missing, e, "files are open to it, for this build has a sanitizer");
}

int sandbox_calls(struct buf *missing, struct qn_error *e) { return lack(missing, e, "so are system calls"); }

#else

/* ---- files ---- */

enum { /* LANDLOCK_ACCESS_FS_* */
       FS_WRITE = 1 << 1,
       FS_READ = 1 << 2,
       FS_READ_DIR = 1 << 3,
       FS_REMOVE_FILE = 1 << 5,
       FS_MAKE_REG = 1 << 8,
       FS_TRUNCATE = 1 << 14, /* ABI 3 */
};
#define FS_ALL_1      ((1u << 13) - 1)
#define FS_ALL_2      ((1u << 14) - 1) /* and to link and rename across directories */
#define FS_ALL_3      ((1u << 15) - 1)
#define FS_ALL_5      ((1u << 16) - 1) /* and to control devices */
#define NET_ALL_4     3u               /* bind, connect */
#define SCOPE_ALL_6   3u               /* abstract sockets, signals */
#define RULE_PATH     1
#define ASK_ABI       1u
#define MAX_KNOWN_ABI 6

struct ruleset {
    uint64_t fs, net, scope;
};
struct __attribute__((packed)) path_rule {
    uint64_t rights;
    int32_t fd;
};

/* By ABI, from 0. A kernel refuses bits that it does not know, and an unknown size of the structure too. */
static const struct landlock_abi {
    struct ruleset handled;
    size_t bytes;
} known[MAX_KNOWN_ABI + 1] = {
    {{0, 0, 0}, 0},
    {{FS_ALL_1, 0, 0}, 8},
    {{FS_ALL_2, 0, 0}, 8},
    {{FS_ALL_3, 0, 0}, 8},
    {{FS_ALL_3, NET_ALL_4, 0}, 16},
    {{FS_ALL_5, NET_ALL_4, 0}, 16},
    {{FS_ALL_5, NET_ALL_4, SCOPE_ALL_6}, 24},
};

static uint64_t rights_of(enum sandbox_right right, int is_dir)
{
    switch (right) {
    case SANDBOX_READ: return FS_READ;
    case SANDBOX_CHANGE:
        return is_dir ? FS_READ | FS_WRITE | FS_TRUNCATE | FS_READ_DIR | FS_MAKE_REG | FS_REMOVE_FILE : 0;
    case SANDBOX_REMOVE: return is_dir ? FS_REMOVE_FILE : 0;
    }
    return 0;
}

/* Keeps a file open. procfs makes a new inode when a name is looked up after memory was short, and the rule belongs to
 * the old inode. It does not do that while the file is open. */
static int keep_open(int fd)
{
    struct statfs s;
    return fstatfs(fd, &s) == 0 && s.f_type == PROC_SUPER_MAGIC;
}

static int add_rule(int ruleset, const struct sandbox_path *p, uint64_t handled, struct qn_error *e)
{
    struct path_rule rule = {.fd = open(p->path, O_PATH | O_CLOEXEC)};
    struct stat st;
    int r = 0;

    if (rule.fd < 0) return 0; /* the code that needs the file will report it */
    if (fstat(rule.fd, &st) == 0) rule.rights = rights_of(p->right, S_ISDIR(st.st_mode)) & handled;
    if (rule.rights && syscall(SYS_landlock_add_rule, ruleset, RULE_PATH, &rule, 0))
        r = error_set(e, QN_EIO, "sandbox: '%s': %m", p->path);
    if (r || !keep_open(rule.fd)) close(rule.fd);
    return r;
}

static bool is_alone(void)
{
    struct stat st;
    return stat("/proc/self/task", &st) || st.st_nlink == 3; /* ".", ".." and one thread */
}

int sandbox_files(const struct sandbox_path *paths, size_t n, struct buf *missing, struct qn_error *e)
{
    long abi = syscall(SYS_landlock_create_ruleset, NULL, 0, ASK_ABI);
    const struct landlock_abi *k = &known[MAX_KNOWN_ABI];
    int fd, r = 0;

    if (abi < MAX_KNOWN_ABI) k = &known[abi < 0 ? 0 : abi];
    if (abi <= 0) return lack(missing, e, "files are open to it, for this kernel has no Landlock");
    fd = (int)syscall(SYS_landlock_create_ruleset, &k->handled, k->bytes, 0);
    if (fd < 0) return error_set(e, QN_EIO, "sandbox: Landlock: %m");
    for (size_t i = 0; r == 0 && i < n; i++) r = add_rule(fd, &paths[i], k->handled.fs, e);
    if (r == 0 && (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) || syscall(SYS_landlock_restrict_self, fd, 0)))
        r = error_set(e, QN_EIO, "sandbox: Landlock: %m");
    close(fd);
    if (r == 0 && abi < 3) r = lack(missing, e, "files can be cut short, for this kernel's Landlock is old");
    if (r == 0 && !is_alone()) r = lack(missing, e, "threads that ran before are not fenced from files");
    return r;
}

/* ---- system calls ---- */

static const char *const allowed[] = {
    /* files, as far as Landlock lets */
    "open", "openat", "close", "read", "readv", "pread64", "preadv2", "write", "writev", "pwrite64", "lseek", "_llseek",
    "fstat", "fstat64", "stat", "stat64", "lstat", "lstat64", "newfstatat", "fstatat64", "statx", "fstatfs",
    "fstatfs64", "access", "faccessat", "faccessat2", "readlink", "readlinkat", "getcwd", "getdents64", "rename",
    "renameat", "renameat2", "unlink", "unlinkat", "fsync", "fdatasync", "fchmod", "ftruncate", "ftruncate64",
    "fadvise64", "fadvise64_64", "arm_fadvise64_64", "readahead", "flock", "utimensat", "utimensat_time64", "fcntl",
    "fcntl64", "dup",
    /* memory */
    "brk", "mmap", "mmap2", "munmap", "mremap", "mprotect", "madvise", "mlock", "mlock2", "munlock", "mincore",
    /* open sockets, and connections that come to them */
    "accept", "accept4", "recv", "recvfrom", "recvmsg", "send", "sendto", "sendmsg", "sendfile", "sendfile64",
    "shutdown", "getsockname", "getpeername", "getsockopt", "setsockopt",
    /* waiting */
    "epoll_create1", "epoll_ctl", "epoll_wait", "epoll_pwait", "epoll_pwait2", "poll", "ppoll", "ppoll_time64",
    "select", "_newselect", "pselect6", "eventfd2", "pipe2", "futex", "futex_time64", "futex_waitv", "nanosleep",
    "clock_nanosleep", "clock_nanosleep_time64", "sched_yield", "restart_syscall", "rt_sigtimedwait",
    "rt_sigtimedwait_time64",
    /* threads: see also add_guarded() */
    "set_robust_list", "get_robust_list", "rseq", "sched_getaffinity", "sched_setaffinity", "sched_getparam",
    "sched_getscheduler", "sched_setscheduler", "ioprio_set", "sched_get_priority_max", "sched_get_priority_min",
    "membarrier", "exit", "exit_group", "gettid", "getpid", "rt_sigaction", "rt_sigprocmask", "rt_sigreturn",
    "sigreturn", "sigaltstack", "arch_prctl",
    /* asking */
    "clock_gettime", "clock_gettime64", "clock_getres", "clock_getres_time64", "gettimeofday", "time", "times",
    "getrandom", "getrlimit", "ugetrlimit", "getrusage", "sysinfo", "uname", "getcpu", "getppid", "getuid", "geteuid",
    "getgid", "getegid", "getuid32", "geteuid32", "getgid32", "getegid32"};

static const char *const deadly[] = {
    /* other programs, and their memory */
    "execve", "execveat", "ptrace", "process_vm_readv", "process_vm_writev", "pidfd_getfd",
    /* another view of the system */
    "mount", "umount2", "move_mount", "open_tree", "fsopen", "fsmount", "pivot_root", "chroot", "unshare", "setns",
    /* the kernel */
    "bpf", "init_module", "finit_module", "delete_module", "kexec_load", "kexec_file_load", "reboot", "keyctl",
    "add_key", "request_key",
    /* other rights */
    "setuid", "setgid", "setreuid", "setregid", "setresuid", "setresgid", "setgroups", "capset"};

/* A name that this architecture or this libseccomp does not have needs no rule: it stays refused. */
static int add(scmp_filter_ctx f, uint32_t action, const char *name, unsigned n_args, const struct scmp_arg_cmp *args)
{
    int nr = seccomp_syscall_resolve_name(name);
    return nr < 0 ? 0 : seccomp_rule_add_array(f, action, nr, n_args, args);
}

/* System calls that are harmless only with certain arguments. A filter cannot look into the arguments of clone3, so
 * clone3 fails and the C library uses clone. */
static int add_guarded(scmp_filter_ctx f)
{
    const struct scmp_arg_cmp thread = SCMP_A0(SCMP_CMP_MASKED_EQ, CLONE_THREAD, CLONE_THREAD);
    const struct scmp_arg_cmp self = SCMP_A0(SCMP_CMP_EQ, (scmp_datum_t)getpid(), 0);
    const struct scmp_arg_cmp here = SCMP_A0(SCMP_CMP_EQ, 0, 0);
    const struct scmp_arg_cmp name = SCMP_A0(SCMP_CMP_EQ, PR_SET_NAME, 0);
    int r = add(f, SCMP_ACT_ALLOW, "clone", 1, &thread);

    if (r == 0) r = add(f, SCMP_ACT_ALLOW, "tgkill", 1, &self); /* abort(), pthread_kill() */
    if (r == 0) r = add(f, SCMP_ACT_ALLOW, "prlimit64", 1, &here);
    return r ? r : add(f, SCMP_ACT_ALLOW, "prctl", 1, &name);
}

int sandbox_calls(struct buf *missing, struct qn_error *e)
{
    scmp_filter_ctx f = seccomp_init(SCMP_ACT_ERRNO(ENOSYS));
    int r;

    if (!f) return error_nomem(e, "a filter of system calls", 0);
    r = seccomp_attr_set(f, SCMP_FLTATR_ACT_BADARCH, SCMP_ACT_KILL_PROCESS);
    if (r == 0) r = seccomp_attr_set(f, SCMP_FLTATR_CTL_OPTIMIZE, 2); /* a search by halves */
    if (r == 0) r = seccomp_attr_set(f, SCMP_FLTATR_CTL_TSYNC, 1);
    if (r == 0) r = seccomp_attr_set(f, SCMP_FLTATR_API_SYSRAWRC, 1); /* the kernel's own error numbers */
    seccomp_attr_set(f, SCMP_FLTATR_CTL_LOG, 1); /* since Linux 4.14; without it nothing is logged */
    for (size_t i = 0; r == 0 && i < sizeof allowed / sizeof *allowed; i++)
        r = add(f, SCMP_ACT_ALLOW, allowed[i], 0, NULL);
    for (size_t i = 0; r == 0 && i < sizeof deadly / sizeof *deadly; i++)
        r = add(f, SCMP_ACT_KILL_PROCESS, deadly[i], 0, NULL);
    if (r == 0) r = add_guarded(f);
    if (r < 0) {
        r = error_set(e, QN_EIO, "sandbox: libseccomp: %s", strerror(-r));
    } else {
        r = seccomp_load(f);
        if (r == -EINVAL || r == -ENOSYS)
            r = lack(missing, e, "all system calls are open to it, for this kernel has no seccomp filters");
        else if (r < 0)
            r = error_set(e, QN_EIO, "sandbox: seccomp: %s", strerror(-r));
    }
    seccomp_release(f);
    return r;
}

#endif
