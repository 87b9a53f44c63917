/* SPDX-License-Identifier: MIT
 *
 * state_seen.c: texts that were read and must not come again: items of arrays, names of objects.
 *
 * A text is a number: that of the text before its last byte, and that byte. So a text that is being read costs one
 * small list for each byte, and two equal texts have the same number.
 */
#include <string.h>

#include "base/mem.h"
#include "grammar/automaton/automaton_impl.h"

uint32_t text_longer(struct automaton *m, uint32_t text, uint32_t byte)
{
    return word_set_add(&m->texts, m->l, (const uint32_t[]){text, byte}, 2);
}

uint32_t text_list_add(struct automaton *m, uint32_t list, uint32_t text)
{
    uint32_t n, i = 0;
    word_set_get(&m->seen, list, &n);
    uint32_t *p = limits_grow(m->l, m->scratch, &m->cap_scratch, n + 1, sizeof *p);
    if (!p) return 0;
    m->scratch = p;
    const uint32_t *w = word_set_get(&m->seen, list, &n);
    while (i < n && w[i] < text) i++;
    if (i) memcpy(p, w, i * sizeof *p);
    p[i] = text;
    if (n > i) memcpy(p + i + 1, w + i, (n - i) * sizeof *p);
    return word_set_add(&m->seen, m->l, p, n + 1);
}

/* The bytes of a text, from its end; whether it is that of a string. n NULL: only that. */
static bool read_text(const struct automaton *m, uint32_t text, char *end, uint32_t *n)
{
    uint32_t last = 0, length = 0, n_words;
    while (text) {
        const uint32_t *w = word_set_get(&m->texts, text, &n_words);
        text = w[0];
        last = w[1];
        if (last == TEXT_OF_STRING) break;
        length++;
        if (end) *--end = (char)last;
    }
    *n = length;
    return last == TEXT_OF_STRING;
}

/* The texts of one kind in a list, as words in one block of memory, which is the caller's; *n of them. */
static struct str_ref *words_of(struct automaton *m, uint32_t list, bool string, uint32_t *n)
{
    uint32_t n_texts, length;
    const uint32_t *texts = word_set_get(&m->seen, list, &n_texts);
    size_t bytes = 0;
    for (uint32_t i = 0; i < n_texts; i++) {
        read_text(m, texts[i], NULL, &length);
        bytes += length;
    }
    if (!limits_spend(m->l, bytes / 4 + n_texts)) return NULL;
    struct str_ref *words = mem_alloc(n_texts * sizeof *words + bytes);
    if (!words) {
        limits_fail(m->l, QN_ENOMEM, "there is no memory for %u texts", n_texts);
        return NULL;
    }
    char *p = (char *)(words + n_texts);
    *n = 0;
    for (uint32_t i = 0; i < n_texts; i++) {
        if (read_text(m, texts[i], NULL, &length) != string) continue;
        p += length;
        read_text(m, texts[i], p, &length);
        words[(*n)++] = (struct str_ref){p - length, length};
    }
    return words;
}

re_id text_unseen(struct automaton *m, re_id re, uint32_t list, bool string)
{
    struct unseen *memo = &m->unseen[(list * 2 + string) % UNSEEN_MEMO];
    uint32_t n;
    if (re == RE_NONE || list == 0) return re;
    if (memo->list == list && memo->string == string && memo->of == re) return memo->re;
    struct str_ref *words = words_of(m, list, string, &n);
    re_id rest = words && n ? re_and2(m->r, re, re_not(m->r, re_words(m->r, words, n))) : re;
    mem_free(words);
    if (!re_is_live(m->r, rest)) rest = RE_NONE;
    if (m->l->rc) return RE_NONE;
    *memo = (struct unseen){list, re, rest, string};
    return rest;
}
