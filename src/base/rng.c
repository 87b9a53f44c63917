/* SPDX-License-Identifier: MIT
 *
 * rng.c: Philox4x32-10, a generator in the form of a block cipher.
 *
 * Ten rounds of two 32x32 -> 64 bit multiplications scramble a 128-bit counter under a 64-bit key. There is no state,
 * so any number of the sequence can be computed alone. Source: Salmon, Moraes, Dror, Shaw, "Parallel random numbers: as
 * easy as 1, 2, 3", SC 2011, section 3.3. The constants are theirs, and the known answers of their Random123 library
 * are in the unit test.
 */
#include "base/rng.h"

#include <sys/random.h>
#include <unistd.h>

#include "base/os.h"

#define PHILOX_ROUNDS 10
#define PHILOX_MUL_0  0xD2511F53u
#define PHILOX_MUL_1  0xCD9E8D57u
#define PHILOX_KEY_0  0x9E3779B9u /* the golden ratio; added to the key between rounds */
#define PHILOX_KEY_1  0xBB67AE85u /* sqrt(3) - 1 */

void rng_block(uint64_t seed, uint64_t stream, uint64_t position, uint32_t out[4])
{
    uint32_t k0 = (uint32_t)seed, k1 = (uint32_t)(seed >> 32);
    uint32_t c0 = (uint32_t)position, c1 = (uint32_t)(position >> 32);
    uint32_t c2 = (uint32_t)stream, c3 = (uint32_t)(stream >> 32);

    for (int i = 0; i < PHILOX_ROUNDS; i++) {
        uint64_t a = (uint64_t)PHILOX_MUL_0 * c0;
        uint64_t b = (uint64_t)PHILOX_MUL_1 * c2;
        c0 = (uint32_t)(b >> 32) ^ c1 ^ k0;
        c1 = (uint32_t)b;
        c2 = (uint32_t)(a >> 32) ^ c3 ^ k1;
        c3 = (uint32_t)a;
        k0 += PHILOX_KEY_0;
        k1 += PHILOX_KEY_1;
    }
    out[0] = c0;
    out[1] = c1;
    out[2] = c2;
    out[3] = c3;
}

uint64_t rng_u64(uint64_t seed, uint64_t stream, uint64_t position)
{
    uint32_t r[4];
    rng_block(seed, stream, position, r);
    return (uint64_t)r[1] << 32 | r[0];
}

double rng_uniform(uint64_t seed, uint64_t stream, uint64_t position)
{
    return (double)(rng_u64(seed, stream, position) >> 11) * 0x1p-53;
}

uint64_t rng_seed_from_os(void)
{
    uint64_t s;
    /* The call fails before the kernel's pool is ready, or under a filter that forbids it. Then take the clock. */
    if (getrandom(&s, sizeof s, GRND_NONBLOCK) != (ssize_t)sizeof s) s = rng_u64(clock_ns(), (uint64_t)getpid(), 0);
    return s;
}
