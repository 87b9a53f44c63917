/* SPDX-License-Identifier: MIT
 *
 * generate.c: continues a prompt with the installed library, in as few lines as possible.
 *
 *     cc generate.c -o generate $(pkg-config --cflags --libs quern)
 *     ./generate MODEL.gguf "Once upon a time"
 */
#include <quern.h>
#include <stdio.h>
#include <string.h>

static bool print(void *arg, const char *text, size_t n)
{
    (void)arg;
    return fwrite(text, 1, n, stdout) == n && fflush(stdout) == 0;
}

int main(int argc, char **argv)
{
    qn_model *model = NULL;
    qn_engine *engine = NULL;
    qn_session *session = NULL;
    struct qn_sampling sampling;
    struct qn_generate_params p;
    struct qn_error e;
    if (argc != 3) return 2;
    qn_sampling_init(&sampling);
    sampling.temperature = 0; /* always the most probable token */
    qn_generate_params_init(&p);
    p.max_tokens = 40;
    p.text = print;
    int rc = qn_model_open(&model, argv[1], &e);
    if (!rc) rc = qn_engine_new(&engine, model, NULL, &e);
    if (!rc) rc = qn_session_new(&session, engine, &sampling, &e);
    if (!rc) rc = qn_generate(session, argv[2], strlen(argv[2]), &p, NULL, &e);
    if (rc) fprintf(stderr, "generate: %s\n", e.msg);
    qn_session_free(session);
    qn_engine_free(engine);
    qn_model_close(model);
    putchar('\n');
    return rc != 0;
}
