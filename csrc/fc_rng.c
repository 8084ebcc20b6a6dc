#include "fc_rng.h"

/* High and low half of a product. */
static inline uint32_t multiply(uint32_t a, uint32_t b, uint32_t *low)
{
    uint64_t product = (uint64_t)a * b;
    *low = (uint32_t)product;
    return (uint32_t)(product >> 32);
}

static inline void philox(const uint32_t counter[4], const uint32_t key[2],
                          uint32_t out[4])
{
    uint32_t c0 = counter[0], c1 = counter[1], c2 = counter[2], c3 = counter[3];
    uint32_t k0 = key[0], k1 = key[1];

    for (int round = 0; round < 10; round++) {
        uint32_t low0, low1;
        uint32_t high0 = multiply(0xD2511F53u, c0, &low0);
        uint32_t high1 = multiply(0xCD9E8D57u, c2, &low1);
        c0 = high1 ^ c1 ^ k0;
        c1 = low1;
        c2 = high0 ^ c3 ^ k1;
        c3 = low0;
        k0 += 0x9E3779B9u; /* golden ratio */
        k1 += 0xBB67AE85u; /* sqrt(3) - 1 */
    }
    out[0] = c0;
    out[1] = c1;
    out[2] = c2;
    out[3] = c3;
}

void fc_philox(const uint32_t counter[4], const uint32_t key[2], uint32_t out[4])
{
    philox(counter, key, out);
}

void fc_rng_refill(fc_rng *rng)
{
    philox(rng->counter, rng->key, rng->word);
    rng->counter[0]++;
    rng->used = 0;
}

void fc_shuffle(fc_idx *order, fc_idx n, fc_rng *rng)
{
    for (fc_idx k = 0; k < n; k++)
        fc_shuffle_step(order, k, n, rng);
}

void fc_rng_uniform(uint64_t seed, uint32_t round, uint32_t purpose, uint32_t first,
                    fc_idx n, double *out)
{
    fc_rng rng = fc_rng_make(seed, round, purpose, first, 0);

    for (fc_idx i = 0; i < n; i++, rng.counter[1]++) {
        philox(rng.counter, rng.key, rng.word);
        out[i] = fc_rng_double_of(rng.word[0], rng.word[1]);
    }
}

void fc_rng_permutation(uint64_t seed, uint32_t round, uint32_t purpose,
                        uint32_t client, fc_idx n, fc_idx *out)
{
    fc_rng rng = fc_rng_make(seed, round, purpose, client, 0);

    for (fc_idx i = 0; i < n; i++)
        out[i] = i;
    fc_shuffle(out, n, &rng);
}
