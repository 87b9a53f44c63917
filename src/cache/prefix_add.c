/* SPDX-License-Identifier: MIT
 *
 * prefix_add.c: stores sequences in the tree of prefixes, and enters those that are on disk. See prefix.h.
 */
#include "cache/prefix_impl.h"

#include <assert.h>
#include <string.h>

#include "base/inline/minmax.h"
#include "base/os.h"

/* ---- adding ---- */

/* A child that begins with all of the k tokens, or all of whose tokens are a beginning of them. */
static struct prefix_node *related_child(const struct prefix *p, const struct prefix_node *parent,
                                         const qn_token *tokens, int k)
{
    struct prefix_node *c = k == p->slots ? prefix_find_full(p, parent, tokens) : NULL;
    if (c) return c;
    for (c = parent->child; c; c = c->next) {
        int both = min_int(k, c->n);
        if (both < p->slots && prefix_n_same(c->tokens, tokens, both) == both) return c;
    }
    return NULL;
}

/* The data of a new chain: pages, or a file with the pages from `first` on. */
struct chain_source {
    uint8_t *const *pages;
    uint8_t *const *windows; /* NULL: there are none; some entries may be NULL, too */
    bool is_passing;
    void *file;
    int first;
    struct prefix_node **nodes;
};

/* Follows the path along existing nodes; returns their number. */
static int known_path(struct prefix *p, struct prefix_node *node, const qn_token *tokens, int n)
{
    int i = 0;
    for (int at = 0; node && at < n; at += p->slots) {
        int k = min_int(p->slots, n - at);
        struct prefix_node *c = related_child(p, node, tokens + at, k);
        if (!c) break;
        p->path[i++] = c;
        node = c->n == p->slots ? c : NULL; /* a partial node will be extended, and has no children */
    }
    return i;
}

/* A list of n nodes linked by next; NULL on failure. */
static struct prefix_node *new_nodes(struct prefix *p, int n, struct qn_error *e)
{
    struct prefix_node *list = NULL;
    for (int i = 0; i < n; i++) {
        struct prefix_node *node = prefix_node_new(p, e);
        if (!node) {
            while (list) {
                node = list->next;
                prefix_node_free(p, list);
                list = node;
            }
            return NULL;
        }
        node->next = list;
        list = node;
    }
    return list;
}

/* Gives the node more tokens than it has. Its page and place are too short now and are released. */
static void lengthen(struct prefix *p, struct prefix_node *node, const qn_token *tokens, int n)
{
    if (node->page) prefix_drop_page(p, node);
    if (node->place.file) p->backing.forget(p->backing.arg, prefix_drop_place(p, node), false);
    memcpy(node->tokens, tokens, (size_t)n * sizeof *tokens);
    node->n = n;
    if (n < p->slots) return;
    node->hash = prefix_hash_tokens(node->parent->hash, tokens, n);
    prefix_table_add(p, node);
}

/* A window page that the node has already stays; it has the same bits. */
static void take_window(struct prefix *p, struct prefix_node *node, uint8_t *window, bool is_passing)
{
    node->is_passing = is_passing && (!node->window || node->is_passing);
    node->window_use = p->n_window_uses;
    if (node->window) return;
    kv_page_ref(p->pool, window);
    node->window = window;
    p->stats.n_windows++;
}

/* Gives the index-th node of a chain the page or place of the source that it does not have. */
static void take(struct prefix *p, struct prefix_node *node, const qn_token *tokens, int n,
                 const struct chain_source *s, int index)
{
    if (node->n < n) lengthen(p, node, tokens, n);
    if (node->n > n) return;
    if (s->pages && !node->page) {
        kv_page_ref(p->pool, s->pages[index]);
        prefix_set_page(p, node, s->pages[index]);
    }
    if (s->windows && s->windows[index]) take_window(p, node, s->windows[index], s->is_passing);
    if (s->file && index >= s->first && !node->place.file) {
        prefix_place(p, node, (struct prefix_place){.file = s->file, .index = index - s->first});
        s->nodes[index - s->first] = node;
    }
    prefix_drop_lone_snapshots(p, node, false);
}

static int add_chain(struct prefix *p, const struct prefix_key *key, const qn_token *tokens, int n,
                     const struct chain_source *s, uint64_t now, struct qn_error *e)
{
    int n_all = (n + p->slots - 1) / p->slots;
    struct prefix_node *root = prefix_find_root(p, key);
    int rc = prefix_reserve_tables(p, (size_t)n_all + 1, (size_t)n_all, e);
    if (rc) return rc;
    int n_known = known_path(p, root, tokens, n), n_new = n_all - n_known + !root;
    struct prefix_node *list = new_nodes(p, n_new, e);
    if (n_new && !list) return QN_ENOMEM;

    if (!root) {
        root = list;
        list = list->next;
        *root = (struct prefix_node){.key = *key, .hash = prefix_hash_key(p, key), .depth = -1};
        prefix_table_add(p, root);
    }
    for (int i = 0; i < n_all; i++) {
        if (i >= n_known) {
            struct prefix_node *node = list;
            list = list->next;
            prefix_link_child(p, i ? p->path[i - 1] : root, node);
            p->path[i] = node;
        }
        take(p, p->path[i], tokens + (size_t)i * (size_t)p->slots, min_int(p->slots, n - i * p->slots), s, i);
    }
    prefix_touch(p, p->path[n_all - 1], now);
    return 0;
}

static int insert(struct prefix *p, const struct prefix_key *key, const qn_token *tokens, int n, const struct kv_seq *m,
                  const struct chain_source *s, struct qn_error *e)
{
    assert(m->pool == p->pool && n <= m->n_slots);
    p->n_window_uses++;
    return n ? add_chain(p, key, tokens, n, s, clock_ns(), e) : 0;
}

int prefix_insert(struct prefix *p, const struct prefix_key *key, const qn_token *tokens, int n, const struct kv_seq *m,
                  struct qn_error *e)
{
    const struct chain_source s = {.pages = m->pages, .windows = m->windows};
    return insert(p, key, tokens, n, m, &s, e);
}

int prefix_insert_passing(struct prefix *p, const struct prefix_key *key, const qn_token *tokens, int n,
                          const struct kv_seq *m, struct qn_error *e)
{
    const struct chain_source s = {.pages = m->pages, .windows = m->windows, .is_passing = true};
    return insert(p, key, tokens, n, m, &s, e);
}

int prefix_graft(struct prefix *p, const struct prefix_key *key, const qn_token *tokens, int n, int first, void *file,
                 struct prefix_node **nodes, struct qn_error *e)
{
    int n_pages = (n + p->slots - 1) / p->slots - first;
    assert(first >= 0 && n_pages > 0 && file);
    memset(nodes, 0, (size_t)n_pages * sizeof *nodes);
    return add_chain(p, key, tokens, n, &(struct chain_source){.file = file, .first = first, .nodes = nodes}, 0, e);
}

void prefix_place(struct prefix *p, struct prefix_node *node, struct prefix_place place)
{
    assert(!node->place.file && place.file && p->backing.forget);
    node->place = place;
    p->stats.n_placed++;
    p->stats.n_unsaved -= node->page != NULL;
}

void prefix_fill(struct prefix *p, struct prefix_node *node, uint8_t *page)
{
    assert(!node->page && node->place.file);
    kv_page_ref(p->pool, page);
    prefix_set_page(p, node, page);
}

void prefix_fill_window(struct prefix *p, struct prefix_node *node, uint8_t *window)
{
    assert(node->page && !node->window && node->place.has_window);
    kv_page_ref(p->pool, window);
    node->window = window;
    node->is_passing = false;
    p->stats.n_windows++;
}

void prefix_place_window(struct prefix_node *node)
{
    assert(node->place.file);
    node->place.has_window = true;
}

void prefix_unplace(struct prefix *p, struct prefix_node *node)
{
    prefix_drop_place(p, node);
    prefix_prune(p, node, NULL);
}
