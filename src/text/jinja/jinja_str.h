/* SPDX-License-Identifier: MIT
 *
 * jinja_str.h: text with its origin: writing, cutting and searching it.
 *
 * Everything that makes text writes into a struct jtext, which has a mark for each byte. Memory comes from the jenv; a
 * function that fails does not return (jinja_env.h).
 */
#ifndef QUERN_TEXT_JINJA_STR_H
#define QUERN_TEXT_JINJA_STR_H

#include "text/jinja/jinja_value.h"

struct jtext {
    struct jenv *j;
    char *p;
    uint8_t *mark; /* [n] 1: the user's; NULL while all bytes have one origin */
    size_t n, cap; /* bytes */
    size_t max;    /* bytes; 0: only memory is limited */
    unsigned user; /* while mark is NULL: 1 when the text is the user's */
    uint64_t born; /* for jenv_escapes() */
    bool shared;   /* values point into it, so it must not move */
};

/* These append to a jtext; one that is zeroed, with `j` set, is empty. user: flags, of which
 * JUSER says the origin of the new text. */
void jtext_bytes(struct jtext *t, const char *p, size_t n, unsigned user);
void jtext_c(struct jtext *t, const char *s, unsigned user);
void jtext_fill(struct jtext *t, char c, size_t n, unsigned user);
void jtext_str(struct jtext *t, struct jval s);                          /* a JSTR */
void jtext_part(struct jtext *t, struct jval s, size_t from, size_t to); /* the bytes from .. to of a JSTR */
void jtext_char(struct jtext *t, uint32_t cp, unsigned user);
struct jval jtext_done(struct jtext *t, unsigned flags); /* the text so far; more may be added later */

struct jval jstr_part(struct jenv *j, struct jval s, size_t from, size_t to); /* bytes; shares the text */
struct jval jstr_join(struct jenv *j, struct jval a, struct jval b);          /* a + b */
size_t jstr_chars(struct jenv *j, struct jval s);
size_t jstr_offset(struct jenv *j, struct jval s, size_t i); /* of character i, in bytes; at most the length */
/* JUSER if any byte of the range is the user's; else 0. */
unsigned jstr_user(struct jval s, size_t from, size_t to);
bool jstr_is(struct jval s, const char *c);
/* Where needle begins, in bytes: the first place at or after `from`, or the last one that ends at or before `end`.
 * SIZE_MAX: nowhere. */
size_t jstr_find(struct jenv *j, struct jval s, struct jval needle, size_t from);
size_t jstr_rfind(struct jenv *j, struct jval s, struct jval needle, size_t end);

/* str() and repr(): how a value is printed by itself, and inside a list. */
struct jval jval_to_str(struct jenv *j, struct jval v);
void jtext_value(struct jtext *t, struct jval v);
void jtext_repr(struct jtext *t, struct jval v);
size_t jfloat_repr(char out[40], double f); /* as Python writes it; its length */
/* The text with & < > ' " written as HTML writes them. */
struct jval jstr_escape(struct jenv *j, struct jval s);

/* json.dumps(). */
struct jjson {
    struct jval indent; /* JSTR: the indent of one level; any other kind: all on one line */
    bool ascii, sort_keys;
    struct jval item_sep, key_sep; /* JSTR */
};
void jtext_json(struct jtext *t, struct jval v, const struct jjson *how, int level);

/* What Python counts as white space. */
bool jchar_is_space(uint32_t cp);
/* str.isalnum() of one character. */
bool jchar_is_alnum(uint32_t cp);
/* The character at byte `at` of valid UTF-8; returns its length. */
unsigned jchar_at(struct jval s, size_t at, uint32_t *cp);

#endif
