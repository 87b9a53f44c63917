/* SPDX-License-Identifier: MIT
 *
 * edit_probe.c: the line editor by itself, for tests that play its terminal.
 *
 *     edit_probe HISTORY_FILE
 *
 * Tells each text as "got N: " and its bytes in hexadecimal, and "end" in the end.
 */
#include <stdio.h>
#include <string.h>

#include "cli/chat/edit.h"

static const char *complete(void *arg, const char *line, size_t n, size_t i)
{
    static const char *const words[] = {"/help ", "/load ", "/model "};
    (void)arg;
    for (size_t w = 0; w < 3 && n > 0; w++)
        if (!strncmp(words[w], line, n) && i-- == 0) return words[w];
    return NULL;
}

int main(int argc, char **argv)
{
    struct edit *ed;
    struct qn_error e = {0}, notice = {0};
    struct buf text = {0};
    struct edit_setup setup = {
        .prompt = "ask> ", .more = "more> ", .complete = complete, .history = argc > 1 ? argv[1] : NULL};
    int rc = edit_open(&ed, &setup, &notice, &e);
    if (rc) {
        printf("failed: %s\n", e.msg);
        return 1;
    }
    if (notice.code) printf("notice: %s\n", notice.msg);
    while ((rc = edit_read(ed, &text, &e)) == EDIT_TEXT) {
        printf("got %zu: ", text.len);
        for (size_t i = 0; i < text.len; i++) printf("%02x", text.data[i]);
        puts(".");
        buf_clear(&text);
    }
    puts(rc == EDIT_END ? "end." : e.msg);
    edit_close(ed);
    buf_deinit(&text);
    return rc != EDIT_END;
}
