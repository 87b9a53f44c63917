/* SPDX-License-Identifier: MIT
 *
 * formats.c: see formats.h. A pattern is put together from parts, whose names stand in it as <name>.
 *
 * Sources: RFC 3339 (times; its appendix A for durations), RFC 5321 (mailboxes), RFC 1123 (host names), RFC 2673
 * (IPv4), RFC 4291 (IPv6), RFC 3986 and 3987 (URIs and IRIs), RFC 6570 (URI templates), RFC 4122 (UUIDs), RFC 6901
 * (JSON pointers).
 */
#include "grammar/schema/formats.h"

#include <assert.h>
#include <string.h>

struct named_text {
    const char *name, *text;
};

/* A part uses only parts after it. */
static const struct named_text parts[] = {
    {"time-of-day", "(?:<hh-mm>:[0-5][0-9]<fraction>(?:[Zz]|[+-]<hh-mm>)|23:59:60<fraction>[Zz])"},
    {"day", "(?:[0-9]{4}-(?:<31>|<30>|<28>)|<leap>-02-29)"},
    {"31", "(?:0[13578]|1[02])-(?:0[1-9]|[12][0-9]|3[01])"},
    {"30", "(?:0[469]|11)-(?:0[1-9]|[12][0-9]|30)"},
    {"28", "02-(?:0[1-9]|1[0-9]|2[0-8])"},
    {"leap", "(?:[0-9][0-9](?:0[48]|[2468][048]|[13579][26])|(?:[02468][048]|[13579][26])00)"},
    {"hh-mm", "(?:[01][0-9]|2[0-3]):[0-5][0-9]"},
    {"fraction", "(?:\\.[0-9]+)?"},
    {"for-days", "(?:[0-9]+D|[0-9]+M(?:[0-9]+D)?|[0-9]+Y(?:[0-9]+M(?:[0-9]+D)?)?)"},
    {"for-hours", "T(?:[0-9]+H(?:[0-9]+M(?:[0-9]+S)?)?|[0-9]+M(?:[0-9]+S)?|[0-9]+S)"},

    {"atom", "[A-Za-z0-9!#$%&'*+/=?^_`{|}~-]+"},
    {"quoted", "\"(?:[ !#-\\[\\]-~]|\\\\[ -~])*\""},
    {"host", "<label>(?:\\.<label>)*"},
    {"label", "[A-Za-z0-9](?:[A-Za-z0-9-]{0,61}[A-Za-z0-9])?"},

    {"uri", "[A-Za-z][A-Za-z0-9+.-]*:(?:<net>|<absolute>|<in-path>+<segments>)?<after-path>"},
    {"relative", "(?:<net>|<absolute>|(?:[@<plain>]|<escaped>)+<segments>)?<after-path>"},
    {"net", "//<authority><segments>"},
    {"absolute", "/(?:<in-path>+<segments>)?"},
    {"segments", "(?:/<in-path>*)*"},
    {"after-path", "(?:\\?(?:[/?<private>]|<in-path>)*)?(?:#(?:[/?]|<in-path>)*)?"},
    {"authority", "(?:(?:[:<plain>]|<escaped>)*@)?(?:\\[(?:<ipv6>|[vV][0-9A-Fa-f]+\\.[:<ascii>]+)\\]"
                  "|(?:[<plain>]|<escaped>)*)(?::[0-9]*)?"},
    {"in-path", "(?:[:@<plain>]|<escaped>)"},
    {"escaped", "%[0-9A-Fa-f]{2}"},
    {"plain", "<more><ascii>"},
    {"ascii", "A-Za-z0-9._~!$&'()*+,;=-"},
    {"template-name", "(?:\\w|<escaped>)(?:\\.?(?:\\w|<escaped>))*"},
    {"template-item", "<template-name>(?::[1-9][0-9]{0,3}|\\*)?"},

    {"ipv6", "(?:(?:<h>:){6}<32>|::(?:<h>:){5}<32>|<h>?::(?:<h>:){4}<32>|(?:(?:<h>:){0,1}<h>)?::(?:<h>:){3}<32>"
             "|(?:(?:<h>:){0,2}<h>)?::(?:<h>:){2}<32>|(?:(?:<h>:){0,3}<h>)?::<h>:<32>|(?:(?:<h>:){0,4}<h>)?::<32>"
             "|(?:(?:<h>:){0,5}<h>)?::<h>|(?:(?:<h>:){0,6}<h>)?::)"},
    {"32", "(?:<h>:<h>|<ipv4>)"},
    {"h", "(?:[0-9A-Fa-f]{1,4})"},
    {"ipv4", "(?:<octet>\\.){3}<octet>"},
    {"octet", "(?:25[0-5]|2[0-4][0-9]|1[0-9][0-9]|[1-9]?[0-9])"},
    {"pointer", "(?:/(?:[^~/]|~[01])*)*"},
};

/* The characters that IRIs and URI templates have besides. */
static const struct named_text more[] = {
    {"more", "\\u00A0-\\uD7FF\\uF900-\\uFDCF\\uFDF0-\\uFFEF\\u{10000}-\\u{EFFFD}"},
    {"private", "\\uE000-\\uF8FF\\u{F0000}-\\u{FFFFD}\\u{100000}-\\u{10FFFD}"},
};

static const struct named_text formats[] = {
    {"date-time", "<day>[Tt]<time-of-day>"},
    {"date", "<day>"},
    {"time", "<time-of-day>"},
    {"duration", "P(?:[0-9]+W|<for-days>(?:<for-hours>)?|<for-hours>)"},
    {"email", "(?:<atom>(?:\\.<atom>)*|<quoted>)@(?:<host>|\\[(?:<ipv4>|IPv6:<ipv6>)\\])"},
    /* Whether a label that begins with xn-- is right depends on tables of Unicode; there are none here. */
    {"hostname", "(?=.{1,253}$)(?!(?:.*\\.)?[Xx][Nn]--)<host>"},
    {"ipv4", "<ipv4>"},
    {"ipv6", "<ipv6>"},
    {"uri", "<uri>"},
    {"uri-reference", "(?:<uri>|<relative>)"},
    {"iri", "<uri>"},
    {"iri-reference", "(?:<uri>|<relative>)"},
    {"uri-template", "(?:[!#$&-;=?-\\[\\]_a-z~<more><private>]|<escaped>"
                     "|\\{[+#./;?&=,!@|]?<template-item>(?:,<template-item>)*\\})*"},
    {"uuid", "[0-9A-Fa-f]{8}-(?:[0-9A-Fa-f]{4}-){3}[0-9A-Fa-f]{12}"},
    {"json-pointer", "<pointer>"},
    {"relative-json-pointer", "(?:0|[1-9][0-9]*)(?:#|<pointer>)"},
};

#define LENGTH(table) (sizeof(table) / sizeof(table)[0])

static const char *find(const struct named_text *table, size_t n, const char *name, size_t len)
{
    for (size_t i = 0; i < n; i++)
        if (strlen(table[i].name) == len && memcmp(table[i].name, name, len) == 0) return table[i].text;
    return NULL;
}

/* Appends the text with its parts. */
static int expand(const char *text, bool has_more, struct buf *out, struct qn_error *e)
{
    while (*text) {
        size_t n = strcspn(text, "<"), len = text[n] ? strcspn(text + n + 1, ">") : 0;
        int rc = buf_add(out, text, n, e);
        if (rc || !text[n]) return rc;
        const char *name = text + n + 1, *part = find(parts, LENGTH(parts), name, len);
        if (!part && has_more) part = find(more, LENGTH(more), name, len);
        if (part && (rc = expand(part, has_more, out, e))) return rc;
        text = name + len + 1;
    }
    return 0;
}

int format_number(const char *name)
{
    static_assert(LENGTH(formats) <= FORMAT_MOST, "there are too many formats");
    for (size_t i = 0; i < LENGTH(formats); i++)
        if (strcmp(formats[i].name, name) == 0) return (int)i;
    return -1;
}

int format_pattern(int number, struct buf *out, struct qn_error *e)
{
    const char *name = formats[number].name;
    bool has_more = name[0] == 'i' || strcmp(name, "uri-template") == 0;
    return expand(formats[number].text, has_more, out, e);
}
