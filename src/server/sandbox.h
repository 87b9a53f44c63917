/* SPDX-License-Identifier: MIT
 *
 * sandbox.h: two fences around a process that has what it needs and is about to listen to strangers: which files it can
 * reach (Landlock), and which system calls it can make (seccomp). Knows nothing of who uses it.
 *
 * Both last until the process ends and hold for the threads it starts. Each call fences what this kernel can fence;
 * what it cannot is added to `missing` as text for people ("" when nothing is missing), parts separated by "; ".
 *
 * What a system call that is not allowed meets:
 *
 * - What no honest program of this kind ever does (run a program, trace, load code into the kernel, mount, ...) kills
 * the process, with SIGSYS: somebody else is in control then, and must not have a second try.
 * - Everything else fails, with ENOSYS, as on a kernel that is older than the call: that is what C libraries expect of
 *   calls they have begun to use only lately, and have a way around. To kill for these too would be safer in theory; in
 *   practice a library's update would then turn a working daemon into one that dies under load, and people would switch
 *   the sandbox off. EPERM would not do either, for nobody tries another way after that. What is refused is in the
 *   kernel's log (audit type 1326), so that it does not stay hidden.
 *
 * Executable memory is not forbidden: PCRE2 compiles a model's expressions to machine code. In a build with a sanitizer
 * both calls do nothing and say so: its runtime forks, traces itself and reads /proc when it likes, and a fence wide
 * enough for that would say nothing about the real one.
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
    const char *path; /* links are followed; one that does not exist is left out */
    enum sandbox_right right;
};

/* From now on only these paths can be opened or changed, no TCP port can be bound or connected to, and no process
 * outside can be sent signals or be reached through abstract sockets. Open descriptors stay as they are. A rule is
 * bound to the file that is there now: a file that replaces it is out of reach, unless the rule is its directory's.
 * Holds for the calling thread and those it starts, so it has to be the only one. */
int sandbox_files(const struct sandbox_path *paths, size_t n, struct buf *missing, struct qn_error *e);

/* From now on, in all threads, only what a server does that has its sockets: files, memory, threads, clocks, and
 * accepting, reading and writing. No new socket of any kind, no program, no process, no other one's memory. */
int sandbox_calls(struct buf *missing, struct qn_error *e);

#endif
