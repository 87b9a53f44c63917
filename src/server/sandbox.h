/* SPDX-License-Identifier: MIT
 *
 * sandbox.h: two fences around a process that has all it needs and is about to listen to strangers: the files that it
 * can reach (Landlock), and the system calls that it can make (seccomp). The code knows nothing of its users.
 *
 * Both fences last until the process ends and hold for the threads it starts. Each call fences as much as this kernel
 * can. What the kernel cannot do is added to `missing` as text for people ("" when nothing is missing), with parts
 * separated by "; ".
 *
 * A system call that is not allowed has one of two effects:
 *
 * - A call that no honest program of this kind ever makes (run a program, trace, load code into the kernel, mount, ...)
 * kills the process with SIGSYS: an attacker is in control then, and must not have a second try.
 *
 * - Every other call fails with ENOSYS, as on a kernel that is older than the call. C libraries expect that of calls
 * that they have begun to use lately, and try another way. Killing for these too would be safer in theory. In practice
 * an update of a library would then turn a working daemon into one that dies under load, and people would switch the
 * sandbox off. EPERM would not work either, because nobody tries another way after it. Refused calls are in the
 * kernel's log (audit type 1326), so they do not stay hidden.
 *
 * Executable memory is not forbidden: PCRE2 compiles a model's expressions to machine code. In a build with a sanitizer
 * both functions do nothing and say so, because its runtime forks, traces itself and reads /proc at any time, and a
 * fence wide enough for that would prove nothing about the real one.
 */
#ifndef QUERN_SERVER_SANDBOX_H
#define QUERN_SERVER_SANDBOX_H

#include <stddef.h>

#include "base/buf.h"

enum sandbox_right {
    SANDBOX_READ,   /* a file, or all files beneath a directory */
    SANDBOX_CHANGE, /* beneath a directory: to list, read, write, make, rename and remove files */
    SANDBOX_REMOVE, /* beneath a directory: to remove files */
};

struct sandbox_path {
    const char *path; /* links are followed; a path that does not exist is left out */
    enum sandbox_right right;
};

/* From now on only these paths can be opened or changed, no TCP port can be bound or connected to, and no process
 * outside can be sent signals or be reached through abstract sockets. Open descriptors stay as they are. A rule is
 * bound to the file that is there now; a file that replaces it is out of reach unless the rule is that of its
 * directory. The fence holds for the calling thread and those it starts, so the caller has to be the only thread. */
int sandbox_files(const struct sandbox_path *paths, size_t n, struct buf *missing, struct qn_error *e);

/* From now on, all threads can make only the system calls of a server with open sockets: files, memory, threads,
 * clocks, and accepting, reading and writing. No new socket of any kind, no program, no process, no memory of another
 * process. */
int sandbox_calls(struct buf *missing, struct qn_error *e);

#endif
