/* SPDX-License-Identifier: MIT
 *
 * stage_disk.h: a stage's own files of pages: the part of each of the head's files that its layers have.
 *
 * The head says what to write and read (disk_order.h), and knows whose pages they are; a stage knows numbers only. Two
 * threads do it meanwhile, one of which writes. What is in the folder is untrusted: a part that is missing, damaged or
 * of another model or other layers counts as not read. docs/SESSIONS.md has the layout of a file.
 */
#ifndef QUERN_CLUSTER_STAGE_DISK_H
#define QUERN_CLUSTER_STAGE_DISK_H

#include "cache/kv.h"
#include "cluster/disk/disk_order.h"

struct stage_disk;

/* Makes the folder of stages in a cache directory, which is made too, and puts its path into out. QN_EIO. */
int stage_disk_folder(char *out, size_t size, const char *cache_dir, struct qn_error *e);
/* dir: that folder, which stages of several layers may share. kv: the pages, borrowed, of the layers lo to hi - 1. */
int stage_disk_new(struct stage_disk **out, const char *dir, const struct kv_pool *kv, int lo, int hi,
                   struct qn_error *e);
void stage_disk_free(struct stage_disk *d); /* waits for what is being written and read. NULL is fine */
/* Does an order that was checked, except DISK_ASK. An order that fails is one of which nothing is good. */
void stage_disk_do(struct stage_disk *d, const struct disk_order *o);
/* Adds this stage's answer about an order to those of the stages before it. d NULL: it has no files. */
void stage_disk_ask(struct stage_disk *d, uint32_t number, uint32_t *is_busy, uint32_t *n_good);

#endif
