/* SPDX-License-Identifier: MIT
 *
 * jinja_str.h: text with its origin: writing it, and cutting it.
 *
 * Everything that makes text writes into a struct jtext, which carries a mark a byte along with it.
 */
#ifndef QUERN_TEXT_JINJA_STR_H
#define QUERN_TEXT_JINJA_STR_H

#include "text/jinja_value.h"

struct jtext {
    struct jenv *j;
    char *p;
    uint8_t *mark; /* [n] 1: the user's; NULL while all of it has one origin */
    size_t n, cap; /* bytes */
    size_t max;    /* bytes; 0: no bound but that on memory */
    unsigned user; /* the one origin */
    uint64_t born; /* for jenv_escapes */
    bool shared;   /* values point into it */
};

/* A zeroed jtext with `j` set is empty. */
void jtext_bytes(struct jtext *t, const char *p, size_t n, unsigned user);
void jtext_c(struct jtext *t, const char *s, unsigned user);
void jtext_fill(struct jtext *t, char c, size_t n, unsigned user);
void jtext_str(struct jtext *t, struct jval s);                          /* a JSTR */
void jtext_part(struct jtext *t, struct jval s, size_t from, size_t to); /* its bytes from .. to */
void jtext_char(struct jtext *t, uint32_t cp, unsigned user);
struct jval jtext_done(struct jtext *t, unsigned flags); /* the text so far; more may be added later */

struct jval jstr_part(struct jenv *j, struct jval s, size_t from, size_t to); /* bytes; shares the text */
struct jval jstr_join(struct jenv *j, struct jval a, struct jval b);          /* a + b */
size_t jstr_chars(struct jenv *j, struct jval s);
size_t jstr_offset(struct jenv *j, struct jval s, size_t i); /* of character i, in bytes; at most the length */
/* Whether the byte range has the user's text in it. */
unsigned jstr_user(struct jval s, size_t from, size_t to);
bool jstr_is(struct jval s, const char *c);
/* The first place at or after `from`, or the last at or before `from` - needle, where needle is; SIZE_MAX: nowhere. */
size_t jstr_find(struct jenv *j, struct jval s, struct jval needle, size_t from);
size_t jstr_rfind(struct jenv *j, struct jval s, struct jval needle, size_t end);

/* str() and repr(): what printing a value writes, and what printing a list of it does. */
struct jval jval_to_str(struct jenv *j, struct jval v);
void jtext_value(struct jtext *t, struct jval v);
void jtext_repr(struct jtext *t, struct jval v);
size_t jfloat_repr(char out[40], double f); /* as Python writes it; its length */
/* & < > ' " as HTML writes them. */
struct jval jstr_escape(struct jenv *j, struct jval s);

/* json.dumps(). */
struct jjson {
    struct jval indent; /* JSTR, what one level is indented by; anything else: all on one line */
    bool ascii, sort_keys;
    struct jval item_sep, key_sep; /* JSTR */
};
void jtext_json(struct jtext *t, struct jval v, const struct jjson *how, int level);

/* Python's notion of white space. */
bool jchar_is_space(uint32_t cp);
/* str.isalnum() of one character. */
bool jchar_is_alnum(uint32_t cp);
/* The character at byte `at` of valid UTF-8; returns its length. */
unsigned jchar_at(struct jval s, size_t at, uint32_t *cp);

#endif
