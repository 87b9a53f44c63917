/* SPDX-License-Identifier: MIT
 *
 * fuzz_fetch.c: libFuzzer entry for what `quern pull` takes apart: a source, the list of what has come, the list of a
 * hub's files, a Content-Range.
 *
 * A refusal is one line. A name that is safe has no way out of its folder; spans are in order and within the file.
 */
#include <assert.h>
#include <string.h>

#include "base/mem.h"
#include "fetch/listing.h"
#include "fetch/remote_file.h"
#include "fetch/sidecar.h"
#include "fetch/location.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check_spans(const struct spans *s, uint64_t size)
{
    for (size_t i = 0; i < s->n; i++) {
        assert(s->v[i].from < s->v[i].to && s->v[i].to <= size);
        assert(!i || s->v[i - 1].to < s->v[i].from);
    }
}

static void check_name(const char *name)
{
    if (location_is_safe_name(name)) assert(*name && !strchr(name, '/') && *name != '.' && *name != '-');
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char *text = mem_dup(data, size);
    struct location source;
    struct sidecar side;
    struct hub_listing list;
    struct qn_error e = {0};
    uint64_t first, last, total;

    assert(text);
    if (location_parse(&source, text, "https://hub.example", size % 2, &e)) {
        assert(e.code < 0 && !strchr(e.msg, '\n'));
    } else {
        assert(source.place && source.name);
        if (source.kind == LOCATION_RSYNC) assert(source.place[0] != '-');
        check_name(source.name);
        location_deinit(&source);
    }
    if (sidecar_parse(&side, text, size, "a", &e)) {
        assert(e.code < 0 && !strchr(e.msg, '\n') && !side.url);
    } else {
        check_spans(&side.written, side.size);
        check_spans(&side.synced, side.size);
        sidecar_deinit(&side);
    }
    if (listing_parse(&list, text, size, "u", &e)) {
        assert(e.code < 0 && !strchr(e.msg, '\n'));
    } else {
        for (size_t i = 0; i < list.n_files; i++) assert(location_is_safe_name(list.file[i].name));
        listing_deinit(&list);
    }
    if (remote_file_content_range(text, &first, &last, &total) == 0) assert(first > last || last < total);
    mem_free(text);
    return 0;
}
