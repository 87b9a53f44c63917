/* SPDX-License-Identifier: MIT
 *
 * chat.c: a conversation at the terminal, with the installed library. Each line of standard input is a message.
 *
 *     cc chat.c -o chat $(pkg-config --cflags --libs quern)
 *     ./chat MODEL.gguf
 */
#include <quern.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static bool print(void *arg, const char *text, size_t n)
{
    (void)arg;
    return fwrite(text, 1, n, stdout) == n && fflush(stdout) == 0;
}

int main(int argc, char **argv)
{
    char *line = NULL;
    size_t room = 0;
    qn_model *model = NULL;
    qn_engine *engine = NULL;
    qn_session *session = NULL;
    struct qn_generate_params p;
    struct qn_error e;
    qn_generate_params_init(&p);
    p.is_chat = true;
    p.text = print;
    int rc = argc == 2 ? qn_conversation_new(&p.conversation, &e) : 2;
    if (!rc) rc = qn_model_open(&model, argv[1], &e);
    if (!rc) rc = qn_engine_new(&engine, model, NULL, &e);
    if (!rc) rc = qn_session_new(&session, engine, NULL, &e);
    for (; !rc && getline(&line, &room, stdin) > 0; putchar('\n'))
        rc = qn_generate(session, line, strcspn(line, "\n"), &p, NULL, &e);
    if (rc) fprintf(stderr, "chat: %s\n", argc == 2 ? e.msg : "name one model file");
    qn_session_free(session);
    qn_engine_free(engine);
    qn_model_close(model);
    qn_conversation_free(p.conversation);
    free(line);
    return rc != 0;
}
