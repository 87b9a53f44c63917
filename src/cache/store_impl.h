/* SPDX-License-Identifier: MIT
 *
 * store_impl.h: the struct of a store, and what its parts use of each other: store.c (the files that are known),
 * store_open.c (the directory), store_save.c (writing) and store_read.c (reading). For these only.
 */
#ifndef QUERN_CACHE_STORE_IMPL_H
#define QUERN_CACHE_STORE_IMPL_H

#include "cache/chain_io.h"
#include "cache/secret.h"
#include "cache/store.h"

/* The node or snapshot that refers to the part; both NULL: the tree has a better copy. */
struct stored_part {
    uint64_t sum;
    struct prefix_node *node;
    struct prefix_snapshot *snapshot;
    int window; /* of a page: the part with its window page; 0: there is none */
};

struct store_file {
    char name[CHAIN_NAME_BYTES];
    struct store_file *next, *prev;
    uint64_t bytes;      /* on disk */
    uint64_t written_ns; /* modification time */
    struct chain_head head;
    int n_parts, n_live; /* n_live: parts that the tree refers to; of another model both are 0 */
    bool needed;         /* part of the chain being written */
    bool is_dropped;     /* has pages that must never be found again */
    struct stored_part parts[];
};

struct store_read {
    struct chain_read io;
    struct store_read *next; /* the next one that was given up */
    int n_pages, n_windows;  /* pages, then window pages, then the state are the parts */
    uint8_t *state;          /* one of the tree's states, read after the pages; NULL: none */
    uint32_t far_number;     /* of what the others read; 0: nothing more is asked */
    int far_good;            /* how many parts they have all read, once it is known; or STORE_FAR_LOST */
    struct chain_part parts[];
};

struct store {
    struct prefix *tree;
    struct kv_pool *pool;
    const struct store_far *far; /* NULL: the data of pages is in this process */
    char *dir;
    int dir_fd, lock_fd;
    struct store_file *files;
    struct worker *writer, *readers[CHAIN_MAX_READERS];
    int n_readers;
    struct chain_write *write;     /* under way; NULL: none */
    uint32_t far_number;           /* of what the others write; 0: nothing is asked */
    bool far_failed;               /* one of them has not written it */
    struct store_file *write_file; /* the file that it writes, in the list already, with its parts in the tree */
    struct prefix_snapshot *write_snapshot; /* held for it; NULL: it writes pages */
    struct store_read *given_up;            /* reads that were given up and are not done yet */
    struct store_read *ahead;               /* what is being read without a request; NULL: nothing */
    bool is_closing;                        /* files that the tree forgets stay on disk */
    uint64_t last_ns;                       /* the last modification time given */
    struct store_stats stats;
    uint8_t secret[SECRET_BYTES];
    uint8_t model[CHAIN_MODEL_BYTES];
};

/* A chain to be written or read: its nodes from the root's child on. */
struct store_chain {
    struct prefix_node **nodes;
    int n;
    int first, end;                /* the pages for one file */
    struct prefix_snapshot *state; /* or a state for one, after the page `end`; NULL: pages */
};

/* ---- store.c ---- */

/* A file that is not in the list yet; NULL: no memory. */
struct store_file *store_file_new(const char *name, uint64_t bytes, uint32_t n_parts, struct qn_error *e);
void store_file_add(struct store *s, struct store_file *f); /* to the list */
/* Takes a file, to which the tree no longer refers, out of the list, and frees it. */
void store_file_forget(struct store *s, struct store_file *f);
/* Takes the places of the file's parts from the tree. This may delete other files. */
void store_file_unplace(struct store *s, struct store_file *f);
/* The same; the file is then deleted and forgotten, too. */
void store_file_delete(struct store *s, struct store_file *f);
struct store_file *store_find_file(const struct store *s, const char *name); /* NULL: there is none */
/* Notes which of the file's pages, whose numbers in the chain are `pages`, have window pages in it. */
void store_place_windows(struct store_file *f, const uint32_t *pages);
/* Deletes files until `bytes` more fit the budget, the least recently used first; only files that were used before
 * `before_ns` and are not needed. Returns the bytes that fit then. */
uint64_t store_make_room(struct store *s, uint64_t bytes, uint64_t before_ns);
/* struct prefix_backing's `forget`; arg is the store. */
void store_forget(void *arg, struct prefix_place place, bool dropped);
/* A time for a file's last use, later than all times before. */
uint64_t store_next_time(struct store *s, struct store_file *f);
void store_log_dropped(const struct store *s, const char *name, const char *why);
/* Room for the nodes of the longest chain, to be freed. False: no memory. */
bool store_chain_alloc(const struct store *s, struct store_chain *c, struct qn_error *e);
void store_chain_fill(struct store_chain *c,
                      struct prefix_node *leaf); /* lists the nodes of the chain that ends here */
/* The node's longest snapshot of less than `below` slots; NULL: there is none. */
struct prefix_snapshot *store_last_snapshot(const struct prefix_node *node, int below);

/* ---- store_far.c ---- */

/* Bytes on disk of a page, and of a file besides its own bytes: of those who have the data. */
uint64_t store_page_bytes(const struct store *s);
uint64_t store_far_bytes(const struct store *s, const struct chain_head *h);
/* What the others are told; nothing if there are none. store_far_write() and store_far_read(): with the local job. */
void store_far_enter(struct store *s);
void store_far_write(struct store *s);
void store_far_read(struct store *s, struct store_read *r);
void store_far_drop(struct store *s, const char *name);
/* Whether the others are done, too. At the end of the store nobody waits for them: they count as lost. */
bool store_far_is_written(struct store *s);
bool store_far_is_read(struct store *s, struct store_read *r);
/* chain_read_n_good() of everybody. *why: QN_ECANCEL if it says nothing about the file. */
int store_n_good(const struct store_read *r, const struct qn_error **why);

/* ---- store_read.c ---- */

bool store_is_read(struct store *s, struct store_read *r, bool wait); /* all readers are done with it */

#endif
