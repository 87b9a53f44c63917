/* SPDX-License-Identifier: MIT
 *
 * conversation.c: see quern.h, "text in, text out".
 */
#include "engine/core/conversation.h"

#include <string.h>

#include "base/mem.h"
#include "engine/core/usage.h"
#include "text/token/unicode.h"

int qn_conversation_new(qn_conversation **out, struct qn_error *e)
{
    if (!out) return usage_null(e, "qn_conversation_new");
    qn_conversation *c = mem_calloc(1, sizeof *c);
    if (c) c->messages = json_array();
    if (!c || !c->messages) {
        mem_free(c);
        return error_nomem(e, "a conversation", sizeof *c);
    }
    *out = c;
    return 0;
}

void qn_conversation_free(qn_conversation *c)
{
    if (c) json_decref(c->messages);
    mem_free(c);
}

int conversation_append(json_t *messages, const char *role, const char *text, size_t n, const char *function,
                        struct qn_error *e)
{
    if (!unicode_is_utf8((const uint8_t *)role, strlen(role)))
        return error_set(e, QN_EUSAGE, "%s: the role must be UTF-8", function);
    if (!unicode_is_utf8((const uint8_t *)text, n))
        return error_set(e, QN_EUSAGE, "%s: a chat's message must be UTF-8", function);
    json_t *message = json_pack("{s:s, s:s%}", "role", role, "content", n ? text : "", n);
    if (json_array_append_new(messages, message)) return error_nomem(e, "a chat's message", n);
    return 0;
}

int qn_conversation_add(qn_conversation *c, const char *role, const char *text, size_t n, struct qn_error *e)
{
    static const char function[] = "qn_conversation_add";
    int rc;
    if (!c || !role) return usage_null(e, function);
    if ((rc = usage_array(e, function, "text", text, n))) return rc;
    return conversation_append(c->messages, role, text, n, function, e);
}
