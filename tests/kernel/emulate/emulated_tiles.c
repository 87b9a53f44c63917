/* SPDX-License-Identifier: MIT
 *
 * emulated_tiles.c: the AMX tile registers in plain C. See emulated_tiles.h.
 */
#include "emulated_tiles.h"

#include <float.h>
#include <math.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define N_TILES  8
#define MAX_ROWS 16
#define ROW      64 /* bytes */
#define COLUMNS  (ROW / 4)

struct config {
    uint8_t palette, start_row, reserved[14];
    uint16_t row_bytes[16];
    uint8_t n_rows[16];
};
_Static_assert(sizeof(struct config) == 64, "LDTILECFG reads 64 bytes");

typedef int32_t dwords __attribute__((vector_size(ROW)));
typedef uint32_t unsigned_dwords __attribute__((vector_size(ROW)));

struct tile {
    int n_rows, row_bytes;
    union {
        uint8_t byte[ROW];
        uint16_t bf16[ROW / 2];
        float f32[COLUMNS];
        unsigned_dwords dword;
    } row[MAX_ROWS];
};

static _Thread_local bool is_configured;
static _Thread_local struct tile tiles[N_TILES];

static void require(bool holds, const char *what)
{
    if (holds) return;
    fprintf(stderr, "emulated tiles: the processor would raise an exception: %s\n", what);
    abort();
}

static struct tile *tile_at(int i)
{
    require(is_configured, "tiles are used before LDTILECFG");
    require(i >= 0 && i < N_TILES && tiles[i].n_rows > 0, "a tile that is not configured");
    return &tiles[i];
}

void emulated_tile_release(void)
{
    memset(tiles, 0, sizeof tiles);
    is_configured = false;
}

void emulated_tile_loadconfig(const void *config)
{
    struct config c;
    memcpy(&c, config, sizeof c);
    emulated_tile_release();
    if (c.palette == 0) return;
    require(c.palette == 1 && c.start_row == 0, "LDTILECFG: a palette or start row");
    for (int i = 0; i < 14; i++) require(c.reserved[i] == 0, "LDTILECFG: a reserved byte");
    for (int i = 0; i < 16; i++) {
        require(c.n_rows[i] <= MAX_ROWS && c.row_bytes[i] <= ROW, "LDTILECFG: a tile that is too large");
        require((c.n_rows[i] == 0) == (c.row_bytes[i] == 0), "LDTILECFG: a tile with rows of no bytes");
        require(i < N_TILES || c.n_rows[i] == 0, "LDTILECFG: a tile that does not exist");
        if (i < N_TILES) {
            tiles[i].n_rows = c.n_rows[i];
            tiles[i].row_bytes = c.row_bytes[i];
        }
    }
    is_configured = true;
}

void emulated_tile_zero(int tile)
{
    struct tile *t = tile_at(tile);
    memset(t->row, 0, sizeof t->row);
}

void emulated_tile_loadd(int tile, const void *base, ptrdiff_t stride)
{
    struct tile *t = tile_at(tile);
    emulated_tile_zero(tile);
    for (int r = 0; r < t->n_rows; r++)
        memcpy(t->row[r].byte, (const uint8_t *)base + r * stride, (size_t)t->row_bytes);
}

void emulated_tile_stored(int tile, void *base, ptrdiff_t stride)
{
    const struct tile *t = tile_at(tile);
    for (int r = 0; r < t->n_rows; r++) memcpy((uint8_t *)base + r * stride, t->row[r].byte, (size_t)t->row_bytes);
}

static void require_shapes(int sums, int a, int b)
{
    const struct tile *s = tile_at(sums), *x = tile_at(a), *w = tile_at(b);
    require(sums != a && sums != b && a != b, "a product whose tiles are not three different ones");
    require(s->row_bytes % 4 == 0 && x->row_bytes % 4 == 0, "a product of rows that are no whole dwords");
    require(s->n_rows == x->n_rows && s->row_bytes == w->row_bytes && x->row_bytes / 4 == w->n_rows,
            "a product of tiles whose shapes do not match");
}

/* Byte j of every dword, as an integer. */
static dwords bytes_of(unsigned_dwords v, int j, bool is_signed)
{
    const unsigned_dwords top = v << (24 - 8 * j);
    return is_signed ? (dwords)top >> 24 : (dwords)(top >> 24);
}

static void multiply(int sums, int a, int b, bool a_is_signed, bool b_is_signed)
{
    require_shapes(sums, a, b);
    struct tile *s = &tiles[sums];
    const struct tile *x = &tiles[a], *w = &tiles[b];
    for (int k = 0; k < w->n_rows; k++)
        for (int j = 0; j < 4; j++) {
            const dwords column = bytes_of(w->row[k].dword, j, b_is_signed);
            for (int r = 0; r < s->n_rows; r++) {
                const uint8_t byte = x->row[r].byte[4 * k + j];
                s->row[r].dword += (unsigned_dwords)((a_is_signed ? (int8_t)byte : byte) * column); /* sums wrap */
            }
        }
}

void emulated_tile_dpbssd(int sums, int a, int b) { multiply(sums, a, b, true, true); }
void emulated_tile_dpbsud(int sums, int a, int b) { multiply(sums, a, b, true, false); }
void emulated_tile_dpbusd(int sums, int a, int b) { multiply(sums, a, b, false, true); }
void emulated_tile_dpbuud(int sums, int a, int b) { multiply(sums, a, b, false, false); }

static float flush(float x) { return fabsf(x) < FLT_MIN ? copysignf(0, x) : x; }

static float widen(uint16_t bf16)
{
    uint32_t bits = (uint32_t)bf16 << 16;
    float x;
    memcpy(&x, &bits, sizeof x);
    return flush(x);
}

/* The even elements of a row and the odd ones have a sum each, by FMA; their sum is added to the tile. */
void emulated_tile_dpbf16ps(int sums, int a, int b)
{
    require_shapes(sums, a, b);
    struct tile *s = &tiles[sums];
    const struct tile *x = &tiles[a], *w = &tiles[b];
    for (int r = 0; r < s->n_rows; r++)
        for (int c = 0; c < s->row_bytes / 4; c++) {
            float sum[2] = {0, 0};
            for (int k = 0; k < w->n_rows; k++)
                for (int j = 0; j < 2; j++)
                    sum[j] = flush(fmaf(widen(x->row[r].bf16[2 * k + j]), widen(w->row[k].bf16[2 * c + j]), sum[j]));
            s->row[r].f32[c] = flush(flush(s->row[r].f32[c]) + flush(sum[0] + sum[1]));
        }
}
