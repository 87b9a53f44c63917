/* SPDX-License-Identifier: MIT
 *
 * store_far.h: the pages of a store whose data is in other processes, each of which keeps its own part of them on disk.
 *
 * The pool of this process then has placeholders, and the files of the store have the tokens and next to no bytes. What
 * the store writes and reads, it has the others write and read, too, under the names of its files. All functions are
 * called from the store's thread.
 */
#ifndef QUERN_CACHE_STORE_FAR_H
#define QUERN_CACHE_STORE_FAR_H

#include "cache/chain_file.h"
#include "cache/kv.h"

/* A page, window page or state, and a part of a file. */
struct store_far_part {
    uint64_t name;  /* of the file: its 16 digits */
    uint32_t index; /* of the part in the file */
    enum kv_kind kind;
    int number;  /* of the page, window page or state (kv_number()) */
    int n_slots; /* in use of a page or window page that is written */
};

#define STORE_FAR_BUSY (-1) /* it is not done yet */
#define STORE_FAR_LOST (-2) /* the others are gone, and with them all pages */

struct store_far {
    void *arg;
    const char *what;                               /* their bits, for the key of the files (model_key()) */
    uint64_t page_bytes, window_bytes, state_bytes; /* of all others together */
    /* The files are those of this model; all others may be deleted. Before anything else, and once. */
    void (*enter)(void *arg, const uint8_t model[CHAIN_MODEL_BYTES], uint64_t budget_bytes);
    /* Begin to write a file, which has the parts in their order; and to read parts of any files. The pages must not
     * change until it is done. Return a number for ask(). */
    uint32_t (*write)(void *arg, const struct store_far_part *parts, int n);
    uint32_t (*read)(void *arg, const struct store_far_part *parts, int n);
    /* Returns how many of the first parts all of the others have written or read, once; or one of the above. */
    int (*ask)(void *arg, uint32_t number);
    void (*drop)(void *arg, uint64_t name); /* deletes a file */
    bool (*is_there)(void *arg);            /* false: nothing can be written or read at present */
};

#endif
