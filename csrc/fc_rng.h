/* Counter-based random numbers: Philox-4x32-10 (Salmon, Moraes, Dror, Shaw 2011).
 *
 * A draw is a pure function of its name, so no state is stored and neither threads,
 * nor order of work, nor a resume can change it. The name fills key and counter, each
 * part in bits of its own; that is why two names never meet:
 *
 *   key      seed                64 bits
 *   counter  word 0  block       32 bits   four words of the stream, 2^34 in all
 *            word 1  client      32 bits
 *            word 2  purpose      8 bits   one of fc_rng_purpose
 *                    round       24 bits
 *            word 3  lane        32 bits   what the purpose tells apart besides: pass,
 *                                          class, position; see fc_rng_lane
 *
 * A round above FC_RNG_MAX_ROUND or a purpose above FC_RNG_MAX_PURPOSE would run into
 * its neighbour: whoever lets them in refuses them. */
#ifndef FC_RNG_H
#define FC_RNG_H

#include "fc_config.h"

#define FC_RNG_MAX_ROUND 0xFFFFFFu
#define FC_RNG_MAX_PURPOSE 0xFFu

/* Every use of random numbers in the package has its own number here. */
typedef enum {
    FC_RNG_SAMPLING = 0, /* which clients take part in a round */
    FC_RNG_CLIENTS = 1,  /* the order in which clients take turns */
    FC_RNG_ROWS = 2,     /* the order of a client's rows in a pass */
    FC_RNG_DELAYS = 3,   /* how long a client takes to answer */
    FC_RNG_DROPOUTS = 4, /* whose reply is lost */
    FC_RNG_BATCHES = 5,  /* the rows of a minibatch; lane: the step */
    FC_RNG_FOLDS = 16 /* which of a client's rows are held out; round 1: from where */
} fc_rng_purpose;

/* One stream of random words; made by fc_rng_make. */
typedef struct {
    uint32_t key[2], counter[4]; /* counter[0]: the next block */
    uint32_t word[4];            /* the last block */
    uint32_t used;               /* words of it already given out */
} fc_rng;

/* The function itself: ten rounds over `counter` under `key`. */
void fc_philox(const uint32_t counter[4], const uint32_t key[2], uint32_t out[4]);

/* Fill rng->word with the next block of the stream. */
void fc_rng_refill(fc_rng *rng);

/* The stream of that name, at its beginning. */
static inline fc_rng fc_rng_make(uint64_t seed, uint32_t round, uint32_t purpose,
                                 uint32_t client, uint32_t lane)
{
    fc_rng rng = {.key = {(uint32_t)seed, (uint32_t)(seed >> 32)},
                  .counter = {0, client, purpose << 24 | round, lane},
                  .used = 4};
    return rng;
}

/* A lane for one of 65 536 classes in one of 65 536 passes. */
static inline uint32_t fc_rng_lane(uint32_t label, uint32_t pass)
{
    return label << 16 | pass;
}

/* Uniform on all 32-bit words. */
static inline uint32_t fc_rng_word(fc_rng *rng)
{
    if (rng->used == 4)
        fc_rng_refill(rng);
    return rng->word[rng->used++];
}

/* Uniform on 0 .. n - 1, n > 0 (Lemire 2019). */
static inline uint32_t fc_rng_below(fc_rng *rng, uint32_t n)
{
    uint64_t product = (uint64_t)fc_rng_word(rng) * n;
    if ((uint32_t)product < n) {
        /* Of the 2^32 words the first 2^32 mod n of each stretch are one too many. */
        uint32_t excess = (0u - n) % n;
        while ((uint32_t)product < excess)
            product = (uint64_t)fc_rng_word(rng) * n;
    }
    return (uint32_t)(product >> 32);
}

/* Uniform on the multiples of 2^-53 in [0, 1), from two words. */
static inline double fc_rng_double_of(uint32_t high, uint32_t low)
{
    uint64_t bits = (uint64_t)high << 21 | low >> 11;
    return (double)bits * 0x1p-53;
}

static inline double fc_rng_double(fc_rng *rng)
{
    uint32_t high = fc_rng_word(rng);
    return fc_rng_double_of(high, fc_rng_word(rng));
}

/* Step k of a Fisher-Yates shuffle of order (n), 0 <= k < n: draw who comes next among
 * those not drawn yet, put it at order[k] and return it. After steps 0 .. n - 1 every
 * order is equally likely, whatever permutation stood there before. */
static inline fc_idx fc_shuffle_step(fc_idx *order, fc_idx k, fc_idx n, fc_rng *rng)
{
    fc_idx j = k + (fc_idx)fc_rng_below(rng, (uint32_t)(n - k));
    fc_idx chosen = order[j];
    order[j] = order[k];
    order[k] = chosen;
    return chosen;
}

/* Shuffle order (n), any n >= 0, in place. */
void fc_shuffle(fc_idx *order, fc_idx n, fc_rng *rng);

/* One draw a client: out[i] (n) is the first fc_rng_double of the stream
 * (seed, round, purpose, first + i, lane 0). */
void fc_rng_uniform(uint64_t seed, uint32_t round, uint32_t purpose, uint32_t first,
                    fc_idx n, double *out);

/* out (n): 0 .. n - 1 in random order, by the stream of that name, lane 0. */
void fc_rng_permutation(uint64_t seed, uint32_t round, uint32_t purpose,
                        uint32_t client, fc_idx n, fc_idx *out);

#endif /* FC_RNG_H */
