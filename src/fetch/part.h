/* SPDX-License-Identifier: MIT
 *
 * part.h: a file or folder that is not there in whole yet. It is called NAME.part and has NAME only once it is whole;
 * what came and is no good is NAME.bad. Locked while a process is at it.
 */
#ifndef QUERN_FETCH_PART_H
#define QUERN_FETCH_PART_H

#include <stdbool.h>
#include <stdint.h>

#include "base/error.h"

struct part {
    int fd; /* of the file, open for reading and writing, or the folder; locked */
    bool is_folder;
    char *path, *part, *bad, *side; /* NAME, NAME.part, NAME.bad, NAME.part.json */
};

/* Makes or opens NAME.part. QN_EBUSY: somebody else is at it. QN_EIO: cannot be made. */
int part_open(struct part *p, const char *path, bool is_folder, struct qn_error *e);
/* Whether `bytes` more fit beside it; QN_EIO with the numbers. */
int part_check_space(const struct part *p, uint64_t bytes, struct qn_error *e);
/* Gives it its name, on the disk too. replace: also in the place of a file that is there; else QN_EUSAGE. */
int part_commit(struct part *p, bool replace, struct qn_error *e);
/* Calls it NAME.bad, in the place of an older one that is a file. */
int part_reject(struct part *p, struct qn_error *e);
/* Leaves what is there and unlocks it; removes a file into which nothing came. A zeroed struct may be closed. */
void part_close(struct part *p);

#endif
