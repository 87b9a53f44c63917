/* SPDX-License-Identifier: MIT
 *
 * fuzz_tokenizer.c: libFuzzer entry for vocabularies and for encoding with them.
 *
 * Input: a byte L, L bytes of text, then a GGUF file. A vocabulary that loads must take the text with and without
 * special tokens, give ids inside itself, and turn every one of its tokens into bytes. Text from a user must not become
 * a control token.
 */
#include <assert.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/mem.h"
#include "text/token/detok.h"
#include "text/token/unicode.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* Files are opened by name. */
static int open_bytes(struct weights **w, const uint8_t *p, size_t n)
{
    char path[64];
    struct qn_error e = {0};
    int fd = memfd_create("model", 0), rc = -1;
    assert(fd >= 0);
    snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    if (write(fd, p, n) == (ssize_t)n) rc = weights_open(w, path, &e);
    close(fd);
    return rc;
}

static void use(const struct vocab *v, const char *text, size_t n, unsigned flags)
{
    qn_token *ids = NULL;
    size_t n_ids = 0;
    struct buf out = {0};
    struct qn_error e = {0};
    int rc = vocab_encode(v, text, n, flags, &ids, &n_ids, &e);
    assert(rc == 0 ? true : e.code == rc && e.msg[0]);
    for (size_t i = 0; i < n_ids; i++) {
        assert(vocab_is_valid(v, ids[i]));
        assert(flags || !vocab_is_control(v, ids[i]) || ids[i] == vocab_role(v, VOCAB_UNK));
    }
    rc = detok_all(v, ids, n_ids, flags ? DETOK_SPECIAL : 0, &out, &e);
    assert(rc == 0);
    assert(unicode_is_utf8(out.data, out.len));
    buf_deinit(&out);
    mem_free(ids);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct weights *w = NULL;
    struct vocab *v = NULL;
    struct qn_error e = {0};
    if (size == 0 || size < 1u + data[0]) return 0;
    const char *text = (const char *)data + 1;
    size_t n = data[0];
    if (open_bytes(&w, data + 1 + n, size - 1 - n)) return 0;
    if (vocab_load(&v, w, &e)) {
        assert(e.code < 0 && e.msg[0] && !strchr(e.msg, '\n'));
    } else {
        struct buf out = {0};
        use(v, text, n, 0);
        use(v, text, n, VOCAB_ADD_SPECIAL | VOCAB_PARSE_SPECIAL);
        for (qn_token id = 0; id < vocab_n_tokens(v); id++) {
            int rc = vocab_token_bytes(v, id, true, &out, &e);
            assert(rc == 0);
            vocab_is_eog(v, id);
        }
        buf_deinit(&out);
    }
    vocab_free(v);
    weights_close(w);
    return 0;
}
