/* SPDX-License-Identifier: MIT
 *
 * state_seen.c: texts that were read and must not come again: items of arrays, names of objects.
 *
 * A text is a number: that of the text before its last byte, and that byte. So a text that is being read costs one
 * small list for each byte, and two equal texts have the same number.
 */
#include <string.h>

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

/* An expression for the text. */
static re_id re_of_text(struct automaton *m, uint32_t text)
{
    re_id re = RE_EMPTY;
    uint32_t n;
    while (text) {
        const uint32_t *w = word_set_get(&m->texts, text, &n);
        uint8_t byte = (uint8_t)w[1];
        bool is_byte = w[1] < TEXT_OF_STRING;
        text = w[0];
        if (is_byte) re = re_cat(m->r, re_range(m->r, byte, byte), re);
    }
    return re;
}

static bool is_string(const struct automaton *m, uint32_t text)
{
    uint32_t n, first = 0;
    while (text) {
        const uint32_t *w = word_set_get(&m->texts, text, &n);
        text = w[0];
        first = w[1];
    }
    return first == TEXT_OF_STRING;
}

re_id text_unseen(struct automaton *m, re_id re, uint32_t list, bool string)
{
    uint32_t n;
    word_set_get(&m->seen, list, &n);
    for (uint32_t i = 0; re && i < n; i++) {
        uint32_t text = word_set_get(&m->seen, list, &n)[i];
        if (is_string(m, text) == string) re = re_and2(m->r, re, re_not(m->r, re_of_text(m, text)));
    }
    return re_is_live(m->r, re) ? re : RE_NONE;
}
