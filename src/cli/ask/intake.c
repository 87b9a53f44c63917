/* SPDX-License-Identifier: MIT
 *
 * intake.c: recognises what a file is, and converts its bytes to UTF-8. See intake.h.
 *
 * Windows-1252 is that of the WHATWG's Encoding Standard: its five unused bytes are the C1 controls with the same
 * number.
 */
#include "cli/ask/intake.h"

#include <errno.h>
#include <iconv.h>
#include <stdbool.h>
#include <string.h>
#include <unistd.h>

#include "base/mem.h"
#include "base/utf8.h"

#define RAW ((size_t)1 << 16)

struct intake {
    int fd;
    const char *name;
    const char *encoding; /* the encoding that cd converts from */
    iconv_t cd;
    bool converts, ended, is_live;
    size_t at, n;    /* the bytes of raw that are not used yet */
    uint64_t offset; /* position of raw[at] in the input */
    uint64_t n_odd, first_odd;
    uint8_t raw[RAW];
};

/* ---- recognising files ---- */

static const struct {
    const char *magic;
    uint8_t n, at;
    const char *what;
} formats[] = {
    {"\x7f"
     "ELF",
     4, 0, "an ELF file"},
    {"\x1f\x8b", 2, 0, "gzip data"},
    {"\x89PNG\r\n\x1a\n", 8, 0, "a PNG image"},
    {"\xff\xd8\xff", 3, 0, "a JPEG image"},
    {"GIF87a", 6, 0, "a GIF image"},
    {"GIF89a", 6, 0, "a GIF image"},
    {"%PDF-", 5, 0, "a PDF document"},
    {"PK\x03\x04", 4, 0, "a zip archive (or an office document)"},
    {"GGUF", 4, 0, "a GGUF model"},
    {"\xfd"
     "7zXZ\0",
     6, 0, "xz data"},
    {"\x28\xb5\x2f\xfd", 4, 0, "Zstandard data"},
    {"7z\xbc\xaf\x27\x1c", 6, 0, "a 7z archive"},
    {"SQLite format 3\0", 16, 0, "an SQLite database"},
    {"\0asm", 4, 0, "a WebAssembly module"},
    {"!<arch>\n", 8, 0, "an ar archive"},
    {"OggS\0", 5, 0, "Ogg data"},
    {"ID3\x03", 4, 0, "an MP3 file"},
    {"ID3\x04", 4, 0, "an MP3 file"},
    {"ftyp", 4, 4, "an MP4 file"},
    {"1AY&SY", 6, 4, "bzip2 data"},
};

const char *intake_format(const uint8_t *p, size_t n)
{
    for (size_t i = 0; i < sizeof formats / sizeof *formats; i++)
        if (n >= (size_t)formats[i].at + formats[i].n && !memcmp(p + formats[i].at, formats[i].magic, formats[i].n))
            return formats[i].what;
    if (n >= 262 && !memcmp(p + 257, "ustar", 5)) return "a tar archive";
    return NULL;
}

/* Whether a text rarely has this control character. Layout, the backspaces of overstruck manuals and the escapes of
 * coloured logs are usual. */
static bool is_rare(uint8_t c) { return c < ' ' ? !(c >= '\b' && c <= '\r') && c != 0x1b : c == 0x7f; }

static int refuse_binary(const struct intake *in, size_t n, struct qn_error *e)
{
    const char *what = intake_format(in->raw, n);
    size_t n_rare = 0;
    if (what) return error_set(e, QN_EDATA, "%s looks like %s (%zu bytes looked at)", in->name, what, n);
    if (memchr(in->raw, 0, n))
        return error_set(e, QN_EDATA,
                         "%s looks like binary data: it has NUL bytes (%zu bytes looked at; --encoding reads "
                         "texts that have)",
                         in->name, n);
    for (size_t i = 0; i < n; i++) n_rare += is_rare(in->raw[i]);
    if (n_rare <= 4 || n_rare * 32 <= n) return 0;
    return error_set(e, QN_EDATA, "%s looks like binary data: %zu of its first %zu bytes are control characters",
                     in->name, n_rare, n);
}

static const char *encoding_by_mark(const uint8_t *p, size_t n, size_t *n_mark)
{
    static const struct {
        const char *mark;
        size_t n;
        const char *encoding;
    } marks[] = {
        {"\xef\xbb\xbf", 3, ""},     {"\xff\xfe\0\0", 4, "UTF-32LE"}, {"\0\0\xfe\xff", 4, "UTF-32BE"},
        {"\xff\xfe", 2, "UTF-16LE"}, {"\xfe\xff", 2, "UTF-16BE"},
    };
    for (size_t i = 0; i < sizeof marks / sizeof *marks; i++)
        if (n >= marks[i].n && !memcmp(p, marks[i].mark, marks[i].n)) {
            *n_mark = marks[i].n;
            return marks[i].encoding;
        }
    *n_mark = 0;
    return NULL;
}

/* ---- bytes ---- */

bool (*intake_is_cancelled)(void);

/* Reads until `want` bytes are there, or the input ends. */
static int fill(struct intake *in, size_t want, struct qn_error *e)
{
    if (in->at) {
        memmove(in->raw, in->raw + in->at, in->n);
        in->at = 0;
    }
    while (in->n < want && !in->ended) {
        ssize_t got = read(in->fd, in->raw + in->n, RAW - in->n);
        if (got < 0 && errno == EINTR && !(intake_is_cancelled && intake_is_cancelled())) continue;
        if (got < 0)
            return error_set(e, errno == EISDIR ? QN_ENOINPUT : QN_EIO, "cannot read %s: %s", in->name,
                             strerror(errno));
        in->ended = got == 0;
        in->n += (size_t)got;
    }
    return 0;
}

static void take(struct intake *in, size_t n)
{
    in->at += n;
    in->n -= n;
    in->offset += n;
}

int intake_open(struct intake **out, int fd, const char *name, const char *encoding, bool is_live, struct qn_error *e)
{
    size_t n_mark = 0;
    int rc;
    struct intake *in = mem_alloc(sizeof *in);
    if (!in) return error_nomem(e, "intake", sizeof *in);
    memset(in, 0, offsetof(struct intake, raw));
    in->fd = fd;
    in->name = name;
    in->is_live = is_live;
    if ((rc = fill(in, is_live ? 1 : INTAKE_LOOK, e))) goto fail;
    if (!encoding) {
        encoding = encoding_by_mark(in->raw, in->n, &n_mark);
        if ((!encoding || !*encoding) && (rc = refuse_binary(in, in->n < INTAKE_LOOK ? in->n : INTAKE_LOOK, e)))
            goto fail;
        take(in, n_mark);
    }
    if (encoding && *encoding) {
        in->cd = iconv_open("UTF-8", encoding);
        if (in->cd == (iconv_t)-1) {
            rc = error_set(e, QN_EUSAGE, "'%s' is not an encoding that this system knows (see iconv --list)", encoding);
            goto fail;
        }
        in->converts = true;
        in->encoding = encoding;
    }
    *out = in;
    return 0;
fail:
    mem_free(in);
    return rc;
}

void intake_close(struct intake *in)
{
    if (in && in->converts) iconv_close(in->cd);
    mem_free(in);
}

uint64_t intake_n_odd(const struct intake *in, uint64_t *first)
{
    *first = in->first_odd;
    return in->n_odd;
}

/* ---- characters ---- */

static uint32_t of_windows(uint8_t c)
{
    static const uint16_t high[32] = {
        0x20ac, 0x81,   0x201a, 0x192,  0x201e, 0x2026, 0x2020, 0x2021, 0x2c6,  0x2030, 0x160,
        0x2039, 0x152,  0x8d,   0x17d,  0x8f,   0x90,   0x2018, 0x2019, 0x201c, 0x201d, 0x2022,
        0x2013, 0x2014, 0x2dc,  0x2122, 0x161,  0x203a, 0x153,  0x9d,   0x17e,  0x178,
    };
    return c >= 0x80 && c < 0xa0 ? high[c - 0x80] : c;
}

/* The number of leading bytes that are ASCII and not NUL. */
static size_t plain_run(const uint8_t *p, size_t n)
{
    const uint64_t ones = 0x0101010101010101u, highs = 0x8080808080808080u;
    size_t i = 0;
    for (uint64_t w; i + 8 <= n; i += 8) {
        memcpy(&w, p + i, 8);
        if ((w | (w - ones)) & highs) break; /* a high bit, or a byte that is 0 */
    }
    while (i < n && p[i] && p[i] < 0x80) i++;
    return i;
}

static int nul_at(const struct intake *in, uint64_t offset, struct qn_error *e)
{
    return error_set(e, QN_EDATA, "%s: a NUL byte at offset %llu: this is not text", in->name,
                     (unsigned long long)offset);
}

static int read_utf8(struct intake *in, char *out, size_t cap, size_t *n, struct qn_error *e)
{
    while (in->n && *n + 4 <= cap) {
        const uint8_t *p = in->raw + in->at;
        size_t run = plain_run(p, in->n < cap - *n ? in->n : cap - *n);
        uint32_t cp;
        if (run) {
            memcpy(out + *n, p, run);
            *n += run;
            take(in, run);
            continue;
        }
        if (!*p) return nul_at(in, in->offset, e);
        unsigned len = utf8_get(p, in->n, &cp);
        if (!len && in->n < 4 && !in->ended) break; /* the rest of the character may still come */
        if (!len) {
            if (!in->n_odd++) in->first_odd = in->offset;
            cp = of_windows(*p);
        }
        *n += utf8_put((uint8_t *)out + *n, cp);
        take(in, len ? len : 1);
    }
    return 0;
}

int intake_word(struct buf *out, const char *word, struct qn_error *e)
{
    for (size_t n = strlen(word); n;) {
        uint8_t text[4];
        uint32_t cp;
        unsigned len = utf8_get((const uint8_t *)word, n, &cp);
        if (!len) cp = of_windows((uint8_t)*word);
        int rc = buf_add(out, text, utf8_put(text, cp), e);
        if (rc) return rc;
        word += len ? len : 1;
        n -= len ? len : 1;
    }
    return 0;
}

static int read_converted(struct intake *in, char *out, size_t cap, size_t *n, struct qn_error *e)
{
    char *from = (char *)in->raw + in->at, *to = out + *n, *const begin = to;
    size_t left = in->n, room = cap - *n;
    size_t rc = iconv(in->cd, &from, &left, &to, &room);
    int error = rc == (size_t)-1 ? errno : 0;
    take(in, in->n - left);
    *n += (size_t)(to - begin);
    if (error == EILSEQ)
        return error_set(e, QN_EDATA, "%s: the byte at offset %llu is not valid %s", in->name,
                         (unsigned long long)in->offset, in->encoding);
    if (error == EINVAL && in->ended)
        return error_set(e, QN_EDATA, "%s ends within a character of %s", in->name, in->encoding);
    if (memchr(begin, 0, (size_t)(to - begin))) return nul_at(in, in->offset, e);
    return 0;
}

int intake_read(struct intake *in, char *out, size_t cap, size_t *n, struct qn_error *e)
{
    size_t want = in->is_live ? 1 : 16;
    int rc = 0;
    *n = 0;
    do {
        if (in->n < want && (rc = fill(in, want, e))) return rc;
        if (!in->n) return 0;
        rc = in->converts ? read_converted(in, out, cap, n, e) : read_utf8(in, out, cap, n, e);
        want = in->n + 1; /* of a character */
    } while (!rc && !*n);
    return rc;
}
