/* SPDX-License-Identifier: MIT
 *
 * sha256.c: SHA-256 in two forms, and HMAC.
 *
 * The plain form is the definition. The other one uses the CPU's instructions for SHA-256, where there are any. It is
 * seven times as fast, which matters because a model has gigabytes. Source: FIPS 180-4, sections 4.1.2, 4.2.2, 5.1.1,
 * 6.2; RFC 2104.
 */
#include "base/sha256.h"

#include <string.h>

#if defined(__x86_64__)
#include <cpuid.h>
#include <immintrin.h>
#endif

static const uint32_t start[8] = {0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a,
                                  0x510e527f, 0x9b05688c, 0x1f83d9ab, 0x5be0cd19};

static const uint32_t rounds[64] = {
    0x428a2f98, 0x71374491, 0xb5c0fbcf, 0xe9b5dba5, 0x3956c25b, 0x59f111f1, 0x923f82a4, 0xab1c5ed5,
    0xd807aa98, 0x12835b01, 0x243185be, 0x550c7dc3, 0x72be5d74, 0x80deb1fe, 0x9bdc06a7, 0xc19bf174,
    0xe49b69c1, 0xefbe4786, 0x0fc19dc6, 0x240ca1cc, 0x2de92c6f, 0x4a7484aa, 0x5cb0a9dc, 0x76f988da,
    0x983e5152, 0xa831c66d, 0xb00327c8, 0xbf597fc7, 0xc6e00bf3, 0xd5a79147, 0x06ca6351, 0x14292967,
    0x27b70a85, 0x2e1b2138, 0x4d2c6dfc, 0x53380d13, 0x650a7354, 0x766a0abb, 0x81c2c92e, 0x92722c85,
    0xa2bfe8a1, 0xa81a664b, 0xc24b8b70, 0xc76c51a3, 0xd192e819, 0xd6990624, 0xf40e3585, 0x106aa070,
    0x19a4c116, 0x1e376c08, 0x2748774c, 0x34b0bcb5, 0x391c0cb3, 0x4ed8aa4a, 0x5b9cca4f, 0x682e6ff3,
    0x748f82ee, 0x78a5636f, 0x84c87814, 0x8cc70208, 0x90befffa, 0xa4506ceb, 0xbef9a3f7, 0xc67178f2};

/* ---- blocks of 64 bytes ---- */

static uint32_t turn(uint32_t x, int n) { return x >> n | x << (32 - n); }

static uint32_t big_endian(const uint8_t *p)
{
    return (uint32_t)p[0] << 24 | (uint32_t)p[1] << 16 | (uint32_t)p[2] << 8 | p[3];
}

static void schedule(uint32_t w[64], const uint8_t *p)
{
    for (int t = 0; t < 16; t++) w[t] = big_endian(p + 4 * t);
    for (int t = 16; t < 64; t++) {
        uint32_t a = w[t - 15], b = w[t - 2];
        w[t] = w[t - 16] + (turn(a, 7) ^ turn(a, 18) ^ a >> 3) + w[t - 7] + (turn(b, 17) ^ turn(b, 19) ^ b >> 10);
    }
}

static void blocks_plain(uint32_t v[8], const uint8_t *p, size_t n)
{
    uint32_t w[64];
    for (; n; n--, p += 64) {
        uint32_t a = v[0], b = v[1], c = v[2], d = v[3], e = v[4], f = v[5], g = v[6], h = v[7];
        schedule(w, p);
        for (int t = 0; t < 64; t++) {
            uint32_t one = h + (turn(e, 6) ^ turn(e, 11) ^ turn(e, 25)) + ((e & f) ^ (~e & g)) + rounds[t] + w[t];
            uint32_t two = (turn(a, 2) ^ turn(a, 13) ^ turn(a, 22)) + ((a & b) ^ (a & c) ^ (b & c));
            h = g, g = f, f = e, e = d + one;
            d = c, c = b, b = a, a = one + two;
        }
        v[0] += a, v[1] += b, v[2] += c, v[3] += d, v[4] += e, v[5] += f, v[6] += g, v[7] += h;
    }
}

#if defined(__x86_64__)

bool sha256_has_instructions(void)
{
    unsigned a, b, c, d;
    if (!__get_cpuid(1, &a, &b, &c, &d) || !(c & bit_SSE4_1) || !(c & bit_SSSE3)) return false;
    return __get_cpuid_count(7, 0, &a, &b, &c, &d) && (b & bit_SHA);
}

/* The instructions keep the eight words in two registers, A B E F and C D G H, and take the words of four rounds at
 * once. */
__attribute__((target("sha,sse4.1,ssse3"))) static void blocks_own(uint32_t h[8], const uint8_t *p, size_t n)
{
    const __m128i bytes = _mm_set_epi64x(0x0c0d0e0f08090a0b, 0x0405060700010203);
    __m128i abef = _mm_set_epi32((int)h[0], (int)h[1], (int)h[4], (int)h[5]);
    __m128i cdgh = _mm_set_epi32((int)h[2], (int)h[3], (int)h[6], (int)h[7]);
    for (; n; n--, p += 64) {
        __m128i w[4], abef_was = abef, cdgh_was = cdgh;
        for (int i = 0; i < 4; i++)
            w[i] = _mm_shuffle_epi8(_mm_loadu_si128((const __m128i *)(const void *)p + i), bytes);
        for (int i = 0; i < 16; i++) {
            __m128i now = w[i & 3], k = _mm_loadu_si128((const __m128i *)(const void *)rounds + i);
            k = _mm_add_epi32(k, now);
            cdgh = _mm_sha256rnds2_epu32(cdgh, abef, k);
            abef = _mm_sha256rnds2_epu32(abef, cdgh, _mm_shuffle_epi32(k, 0x0e));
            if (i >= 12) continue;
            __m128i last = w[(i + 3) & 3], sum = _mm_sha256msg1_epu32(now, w[(i + 1) & 3]);
            sum = _mm_add_epi32(sum, _mm_alignr_epi8(last, w[(i + 2) & 3], 4));
            w[i & 3] = _mm_sha256msg2_epu32(sum, last);
        }
        abef = _mm_add_epi32(abef, abef_was);
        cdgh = _mm_add_epi32(cdgh, cdgh_was);
    }
    uint32_t v[8];
    _mm_storeu_si128((__m128i *)(void *)v, abef);
    _mm_storeu_si128((__m128i *)(void *)(v + 4), cdgh);
    const uint32_t back[8] = {v[3], v[2], v[7], v[6], v[1], v[0], v[5], v[4]};
    memcpy(h, back, sizeof back);
}

#else

bool sha256_has_instructions(void) { return false; }
static void blocks_own(uint32_t h[8], const uint8_t *p, size_t n) { blocks_plain(h, p, n); }

#endif

static void blocks(struct sha256 *s, const uint8_t *p, size_t n)
{
    if (s->plain)
        blocks_plain(s->h, p, n);
    else
        blocks_own(s->h, p, n);
}

/* ---- messages ---- */

void sha256_init(struct sha256 *s)
{
    *s = (struct sha256){.plain = !sha256_has_instructions()};
    memcpy(s->h, start, sizeof start);
}

void sha256_add(struct sha256 *s, const void *bytes, size_t n)
{
    const uint8_t *p = bytes;
    size_t held = s->n % 64;
    s->n += n;
    if (held && n) {
        size_t more = n < 64 - held ? n : 64 - held;
        memcpy(s->rest + held, p, more);
        p += more;
        n -= more;
        if (held + more < 64) return;
        blocks(s, s->rest, 1);
    }
    if (n >= 64) blocks(s, p, n / 64);
    if (n % 64) memcpy(s->rest, p + n / 64 * 64, n % 64);
}

void sha256_end(struct sha256 *s, uint8_t out[SHA256_BYTES])
{
    uint64_t bits = s->n * 8;
    uint8_t end[72] = {0x80};
    size_t n_pad = 64 - (s->n + 8) % 64; /* 1 to 64 */
    for (int i = 0; i < 8; i++) end[n_pad + (size_t)i] = (uint8_t)(bits >> (56 - 8 * i));
    sha256_add(s, end, n_pad + 8);
    for (int i = 0; i < 32; i++) out[i] = (uint8_t)(s->h[i / 4] >> (24 - 8 * (i % 4)));
}

void sha256_hmac(const uint8_t key[SHA256_BYTES], const void *p, size_t n, uint8_t out[SHA256_BYTES])
{
    uint8_t pad[64], inner[SHA256_BYTES];
    struct sha256 s;
    for (size_t i = 0; i < sizeof pad; i++) pad[i] = (uint8_t)((i < SHA256_BYTES ? key[i] : 0) ^ 0x36);
    sha256_init(&s);
    sha256_add(&s, pad, sizeof pad);
    sha256_add(&s, p, n);
    sha256_end(&s, inner);
    for (size_t i = 0; i < sizeof pad; i++) pad[i] ^= 0x36 ^ 0x5c;
    sha256_init(&s);
    sha256_add(&s, pad, sizeof pad);
    sha256_add(&s, inner, sizeof inner);
    sha256_end(&s, out);
}

void sha256_hex(const uint8_t digest[SHA256_BYTES], char out[2 * SHA256_BYTES + 1])
{
    static const char digits[] = "0123456789abcdef";
    for (int i = 0; i < SHA256_BYTES; i++) {
        out[2 * i] = digits[digest[i] >> 4];
        out[2 * i + 1] = digits[digest[i] & 15];
    }
    out[2 * SHA256_BYTES] = 0;
}

bool sha256_from_hex(uint8_t out[SHA256_BYTES], const char *hex)
{
    static const char digits[] = "0123456789abcdef";
    for (int i = 0; i < 2 * SHA256_BYTES; i++) {
        const char *at = hex[i] ? strchr(digits, hex[i]) : NULL;
        if (!at) return false;
        out[i / 2] = (uint8_t)(out[i / 2] << 4 | (at - digits));
    }
    return true;
}
