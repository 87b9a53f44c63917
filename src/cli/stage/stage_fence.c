/* SPDX-License-Identifier: MIT
 *
 * stage_fence.c: fences a stage in. See stage_fence.h.
 */
#include "cli/stage/stage_fence.h"

#include <stdio.h>

#include "base/buf.h"
#include "server/sandbox.h"

int stage_fence(const char *path, const char *dir, struct qn_error *e)
{
    const struct sandbox_path paths[] = {{path, SANDBOX_READ},
                                         {"/proc/meminfo", SANDBOX_READ},
                                         {"/proc/self/cgroup", SANDBOX_READ},
                                         {"/proc/self/status", SANDBOX_READ},
                                         {"/sys/fs/cgroup", SANDBOX_READ},
                                         {dir, SANDBOX_CHANGE}};
    struct buf missing = {0};
    int rc = sandbox_files(paths, sizeof paths / sizeof paths[0] - !dir, &missing, e);
    if (!rc) rc = sandbox_calls(&missing, e);
    if (!rc && missing.len) fprintf(stderr, "quern-stage: fence: %.*s\n", (int)missing.len, (const char *)missing.data);
    buf_deinit(&missing);
    return rc;
}
