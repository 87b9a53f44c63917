/* SPDX-License-Identifier: MIT
 *
 * chat.c: a conversation at the terminal, with the installed library.
 *
 *     cc chat.c -o chat $(pkg-config --cflags --libs quern)
 *     ./chat MODEL.gguf
 *
 * Each line of standard input is a message to the model. The session keeps the keys and values of the conversation, so
 * only the new text is computed.
 */
#include <quern.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static struct qn_error e;

static void check(int rc)
{
    if (rc) fprintf(stderr, "chat: %s\n", e.msg);
    if (rc) exit(1);
}

/* Writes text as the inside of a JSON string. */
static void put_json(FILE *f, const char *text, size_t n)
{
    for (size_t i = 0; i < n; i++)
        fprintf(f, text[i] == '"' || text[i] == '\\' || (unsigned char)text[i] < ' ' ? "\\u%04x" : "%c", text[i]);
}

int main(int argc, char **argv)
{
    char line[4096], *request;
    size_t n, n_request;
    FILE *messages = open_memstream(&request, &n_request);
    qn_model *model;
    qn_engine *engine;
    qn_session *session;
    qn_chat *chat;
    if (argc != 2 || !messages) return 2;
    check(qn_model_open(&model, argv[1], &e));
    check(qn_engine_new(&engine, model, NULL, &e));
    check(qn_session_new(&session, engine, NULL, &e));
    check(qn_chat_new(&chat, model, NULL, 0, &e));
    fputs("{\"messages\":[", messages);
    while (fgets(line, sizeof line, stdin)) {
        qn_prompt *prompt;
        qn_reply *reply;
        struct qn_reply_event event;
        fputs("{\"role\":\"user\",\"content\":\"", messages);
        put_json(messages, line, strcspn(line, "\n"));
        fputs("\"}]}", messages);
        fflush(messages);
        check(qn_chat_prompt(&prompt, chat, request, n_request, NULL, &e));
        fseek(messages, -2, SEEK_CUR); /* removes "]}": the reply comes next in the list */
        fputs(",{\"role\":\"assistant\",\"content\":\"", messages);
        const qn_token *tokens = qn_prompt_tokens(prompt, &n);
        check(qn_session_sync(session, tokens, n, NULL, &e));
        check(qn_reply_new(&reply, chat, prompt, NULL, 0, &e));
        for (bool ends = false; !ends;) {
            qn_token token = 0;
            int rc = qn_session_step(session, &token, &e);
            if (rc != QN_EFULL) check(rc);
            ends = rc || qn_model_is_eog(model, token);
            check(ends ? qn_reply_end(reply, &e) : qn_reply_push(reply, token, NULL, &e));
            while (qn_reply_next(reply, &event)) {
                if (event.kind != QN_REPLY_CONTENT) continue;
                fwrite(event.text, 1, event.n, stdout);
                put_json(messages, event.text, event.n);
            }
            fflush(stdout);
        }
        puts("");
        fputs("\"},", messages);
        qn_reply_free(reply);
        qn_prompt_free(prompt);
    }
    fclose(messages);
    free(request);
    qn_chat_free(chat);
    qn_session_free(session);
    qn_engine_free(engine);
    qn_model_close(model);
    return 0;
}
