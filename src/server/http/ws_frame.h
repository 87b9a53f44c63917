/* SPDX-License-Identifier: MIT
 *
 * ws_frame.h: the bytes of a WebSocket: the frames that a client sends, and the heads of those that a server sends.
 * Pure functions on memory, as strict as RFC 6455: what it forbids is refused with the close code that it names.
 */
#ifndef QUERN_SERVER_WS_FRAME_H
#define QUERN_SERVER_WS_FRAME_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum frame_opcode {
    FRAME_MORE = 0, /* the message goes on */
    FRAME_TEXT = 1,
    FRAME_BINARY = 2,
    FRAME_CLOSE = 8,
    FRAME_PING = 9,
    FRAME_PONG = 10,
};

/* Close codes. */
enum {
    CLOSE_NORMAL = 1000,
    CLOSE_GOING_AWAY = 1001,
    CLOSE_PROTOCOL = 1002,
    CLOSE_NOT_TEXT = 1003,
    CLOSE_NOT_UTF8 = 1007,
    CLOSE_TOO_SLOW = 1008, /* against the server's rules */
    CLOSE_TOO_BIG = 1009,
    CLOSE_FAILED = 1011,
    CLOSE_RESTART = 1012,
    CLOSE_BUSY = 1013,
};

#define FRAME_CONTROL_BYTES 125 /* the most that a ping, pong or close carries */
#define FRAME_HEAD_BYTES    10  /* the longest head that a server sends */

/* UTF-8 that comes in pieces. */
struct utf8_pieces {
    uint8_t n_left, lo, hi; /* bytes that the character still needs; the range of the next one */
};
/* false: these bytes cannot go on what came before. At the end of a text, n_left has to be 0. */
bool utf8_pieces_add(struct utf8_pieces *u, const uint8_t *p, size_t n);

/* A zeroed struct, with max_bytes filled in, is at the beginning of a connection. */
struct frames {
    size_t max_bytes; /* of a message, in all its frames */
    uint8_t head[14], n_head;
    bool in_payload;
    uint8_t opcode; /* of the frame */
    bool is_last;   /* of its message */
    uint64_t left;  /* bytes of the payload that have not come */
    uint8_t mask[4];
    unsigned n_masked;  /* bytes of the payload so far, modulo 4 */
    bool in_message;    /* a message has begun and not ended */
    uint64_t n_message; /* bytes that the heads of its frames have announced */
    struct utf8_pieces text;
    uint8_t control[FRAME_CONTROL_BYTES];
    uint8_t n_control;
};

/* What was read last: a piece of a text message, or a whole control frame. */
struct frame_piece {
    bool is_there;
    uint8_t opcode;   /* FRAME_TEXT for every frame of a message, or that of a control frame */
    const uint8_t *p; /* [n], in the bytes that were read, or in struct frames */
    size_t n;
    bool is_end; /* of the message */
};

/* Reads up to the end of a piece or of the n bytes, which it unmasks in place. Returns the number of bytes that were
 * read, or -CODE: the code to close the connection with. */
long frames_read(struct frames *f, uint8_t *p, size_t n, struct frame_piece *piece);

/* The code to answer a close frame with. */
int frame_close_code(const uint8_t *p, size_t n);

/* Writes the head of a frame that is the last one of its message. Returns its length. */
size_t frame_head(uint8_t out[FRAME_HEAD_BYTES], enum frame_opcode opcode, uint64_t n);

#endif
