/* SPDX-License-Identifier: MIT
 *
 * ws_frame.c: reads frames byte by byte at their heads, and in pieces at their payloads.
 *
 * Extensions are not offered, so a reserved bit is an error. Binary messages are refused when their first head is
 * there, and so are messages that are announced as too long.
 *
 * Source: RFC 6455 sections 5.2 to 5.5 (frames), 7.4 (close codes), 8.1 (UTF-8); RFC 3629 section 4.
 */
#include "server/http/ws_frame.h"

#include <string.h>

/* ---- UTF-8 ---- */

static bool begins(struct utf8_pieces *u, uint8_t b)
{
    u->lo = 0x80;
    u->hi = 0xBF;
    u->n_left = (uint8_t)(1 + (b >= 0xE0) + (b >= 0xF0));
    if (b == 0xE0) u->lo = 0xA0; /* overlong */
    if (b == 0xED) u->hi = 0x9F; /* surrogates */
    if (b == 0xF0) u->lo = 0x90;
    if (b == 0xF4) u->hi = 0x8F; /* above U+10FFFF */
    return b >= 0xC2 && b <= 0xF4;
}

bool utf8_pieces_add(struct utf8_pieces *u, const uint8_t *p, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        if (u->n_left == 0) {
            if (p[i] >= 0x80 && !begins(u, p[i])) return false;
        } else {
            if (p[i] < u->lo || p[i] > u->hi) return false;
            u->n_left--;
            u->lo = 0x80;
            u->hi = 0xBF;
        }
    }
    return true;
}

/* ---- heads ---- */

static bool is_control(uint8_t opcode) { return opcode >= FRAME_CLOSE; }

/* The first byte: flags and kind. 0, or -CODE. */
static int check_kind(struct frames *f)
{
    uint8_t b = f->head[0];
    f->is_last = b & 0x80;
    f->opcode = b & 0x0F;
    if (b & 0x70 || f->opcode > FRAME_PONG || (f->opcode > FRAME_BINARY && f->opcode < FRAME_CLOSE))
        return -CLOSE_PROTOCOL;
    if (is_control(f->opcode)) return f->is_last ? 0 : -CLOSE_PROTOCOL;
    if (f->in_message != (f->opcode == FRAME_MORE)) return -CLOSE_PROTOCOL;
    return f->opcode == FRAME_BINARY ? -CLOSE_NOT_TEXT : 0;
}

/* The second byte: mask and short length. */
static int check_short_length(const struct frames *f)
{
    if (!(f->head[1] & 0x80)) return -CLOSE_PROTOCOL;
    return is_control(f->opcode) && (f->head[1] & 0x7F) > FRAME_CONTROL_BYTES ? -CLOSE_PROTOCOL : 0;
}

static unsigned length_bytes(const struct frames *f)
{
    unsigned n = f->head[1] & 0x7F;
    if (n == 126) return 2;
    return n == 127 ? 8 : 0;
}

/* The head is complete: length and mask. */
static int end_head(struct frames *f)
{
    unsigned n = length_bytes(f);
    f->left = f->head[1] & 0x7F;
    if (n) f->left = 0;
    for (unsigned i = 0; i < n; i++) f->left = f->left << 8 | f->head[2 + i];
    /* The shortest form has to be used. */
    if ((n == 2 && f->left < 126) || (n == 8 && (f->left < 65536 || f->left >> 63))) return -CLOSE_PROTOCOL;
    memcpy(f->mask, f->head + 2 + n, 4);
    f->n_masked = 0;
    f->n_head = 0;
    f->in_payload = true;
    if (is_control(f->opcode)) {
        f->n_control = 0;
        return 0;
    }
    if (!f->in_message) f->n_message = 0;
    f->in_message = true;
    if (f->left > f->max_bytes - f->n_message) return -CLOSE_TOO_BIG;
    f->n_message += f->left;
    return 0;
}

static int take_head_byte(struct frames *f, uint8_t b)
{
    int r = 0;
    f->head[f->n_head++] = b;
    if (f->n_head == 1) r = check_kind(f);
    if (f->n_head == 2) r = check_short_length(f);
    if (r == 0 && f->n_head >= 6 && f->n_head == 6 + length_bytes(f)) r = end_head(f);
    return r;
}

/* ---- payloads ---- */

static void unmask(struct frames *f, uint8_t *p, size_t n)
{
    for (size_t i = 0; i < n; i++) p[i] ^= f->mask[(f->n_masked + i) & 3];
    f->n_masked = (unsigned)(f->n_masked + n) & 3;
}

/* n bytes of a message, which end its frame if nothing is left. 0, or -CODE. */
static int take_text(struct frames *f, const uint8_t *p, size_t n, struct frame_piece *piece)
{
    *piece = (struct frame_piece){true, FRAME_TEXT, p, n, f->left == 0 && f->is_last};
    if (!utf8_pieces_add(&f->text, p, n) || (piece->is_end && f->text.n_left > 0)) return -CLOSE_NOT_UTF8;
    if (piece->is_end) f->in_message = false;
    return 0;
}

static int take_payload(struct frames *f, uint8_t *p, size_t n, struct frame_piece *piece)
{
    unmask(f, p, n);
    f->left -= n;
    f->in_payload = f->left > 0;
    if (!is_control(f->opcode)) return take_text(f, p, n, piece);
    memcpy(f->control + f->n_control, p, n);
    f->n_control = (uint8_t)(f->n_control + n);
    if (f->left == 0) *piece = (struct frame_piece){true, f->opcode, f->control, f->n_control, false};
    return 0;
}

long frames_read(struct frames *f, uint8_t *p, size_t n, struct frame_piece *piece)
{
    size_t i = 0;
    *piece = (struct frame_piece){0};
    while (i < n && !f->in_payload) {
        int r = take_head_byte(f, p[i++]);
        if (r < 0) return r;
    }
    if (!f->in_payload || (i == n && f->left > 0)) return (long)i;
    size_t k = n - i < f->left ? n - i : (size_t)f->left;
    int r = take_payload(f, p + i, k, piece);
    return r < 0 ? r : (long)(i + k);
}

int frame_close_code(const uint8_t *p, size_t n)
{
    struct utf8_pieces u = {0};
    if (n == 0) return CLOSE_NORMAL;
    if (n == 1) return CLOSE_PROTOCOL;
    int code = p[0] << 8 | p[1];
    bool known = (code >= 1000 && code <= 1003) || (code >= 1007 && code <= 1014) || (code >= 3000 && code <= 4999);
    if (!known) return CLOSE_PROTOCOL;
    return utf8_pieces_add(&u, p + 2, n - 2) && u.n_left == 0 ? code : CLOSE_NOT_UTF8;
}

size_t frame_head(uint8_t out[FRAME_HEAD_BYTES], enum frame_opcode opcode, uint64_t n)
{
    unsigned n_length = 0;
    out[0] = (uint8_t)(0x80 | opcode);
    out[1] = (uint8_t)n;
    if (n > 125) {
        out[1] = n > 65535 ? 127 : 126;
        n_length = n > 65535 ? 8 : 2;
    }
    for (unsigned i = 0; i < n_length; i++) out[2 + i] = (uint8_t)(n >> 8 * (n_length - 1 - i));
    return 2 + n_length;
}
