#include "check.h"
#include "fc_rng.h"

#include <stdlib.h>
#include <string.h>

static const uint64_t SEED = UINT64_C(0x0123456789ABCDEF);

/* The vectors that the authors publish with Random123. */
static void test_known_answers(void)
{
    static const struct {
        uint32_t counter[4], key[2], out[4];
    } known[] = {
        {{0, 0, 0, 0}, {0, 0}, {0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8}},
        {{0xFFFFFFFF, 0xFFFFFFFF, 0xFFFFFFFF, 0xFFFFFFFF},
         {0xFFFFFFFF, 0xFFFFFFFF},
         {0x408F276D, 0x41C83B0E, 0xA20BC7C6, 0x6D5451FD}},
        {{0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344}, /* the digits of pi */
         {0xA4093822, 0x299F31D0},
         {0xD16CFE09, 0x94FDCCEB, 0x5001E420, 0x24126EA1}},
    };
    for (size_t i = 0; i < sizeof known / sizeof *known; i++) {
        uint32_t out[4];
        fc_philox(known[i].counter, known[i].key, out);
        CHECK(memcmp(out, known[i].out, sizeof out) == 0);
    }
}

/* A stream is fc_philox over the blocks of its name. */
static void test_stream_is_its_blocks(void)
{
    fc_rng rng = fc_rng_make(SEED, 5, 3, 7, fc_rng_lane(2, 9));
    uint32_t key[2] = {0x89ABCDEF, 0x01234567}, out[4];

    for (uint32_t block = 0; block < 3; block++) {
        uint32_t counter[4] = {block, 7, 0x03000005, 0x00020009};
        fc_philox(counter, key, out);
        for (int i = 0; i < 4; i++)
            CHECK(fc_rng_word(&rng) == out[i]);
    }
}

/* Names that differ in one part only, at the ends of its range, give other words. */
static void test_names_do_not_meet(void)
{
    fc_rng streams[] = {
        fc_rng_make(0, 0, 0, 0, 0),
        fc_rng_make(1, 0, 0, 0, 0),
        fc_rng_make(UINT64_C(1) << 32, 0, 0, 0, 0),
        fc_rng_make(UINT64_C(1) << 63, 0, 0, 0, 0),
        fc_rng_make(0, 1, 0, 0, 0),
        fc_rng_make(0, FC_RNG_MAX_ROUND, 0, 0, 0),
        fc_rng_make(0, 0, 1, 0, 0),
        fc_rng_make(0, 0, FC_RNG_MAX_PURPOSE, 0, 0),
        fc_rng_make(0, 0, 0, 1, 0),
        fc_rng_make(0, 0, 0, UINT32_MAX, 0),
        fc_rng_make(0, 0, 0, 0, fc_rng_lane(0, 1)),
        fc_rng_make(0, 0, 0, 0, fc_rng_lane(0, UINT16_MAX)),
        fc_rng_make(0, 0, 0, 0, fc_rng_lane(1, 0)),
        fc_rng_make(0, 0, 0, 0, fc_rng_lane(UINT16_MAX, 0)),
    };
    enum { N = sizeof streams / sizeof *streams };
    uint32_t first[N][4];

    for (int i = 0; i < N; i++) {
        for (int j = 0; j < 4; j++)
            first[i][j] = fc_rng_word(&streams[i]);
        for (int j = 0; j < i; j++)
            CHECK(memcmp(first[i], first[j], sizeof first[i]) != 0);
    }
}

/* Pearson's statistic against equal counts; its mean is cells - 1. */
static double chi_square(const int *count, int cells, int total)
{
    double expected = (double)total / cells, sum = 0;
    for (int i = 0; i < cells; i++)
        sum += (count[i] - expected) * (count[i] - expected) / expected;
    return sum;
}

static void test_below_is_uniform(void)
{
    /* 3 * 2^30 rejects one word in four: without that every third number would be
     * twice as likely as the others. */
    enum { CELLS = 12, TOTAL = 120000 };
    static const uint32_t limits[] = {CELLS, UINT32_C(3) << 30};

    for (int l = 0; l < 2; l++) {
        int count[CELLS] = {0};
        fc_rng rng = fc_rng_make(SEED, 0, 0, (uint32_t)l, 0);
        for (int i = 0; i < TOTAL; i++) {
            uint32_t draw = fc_rng_below(&rng, limits[l]);
            if (draw >= limits[l])
                abort();
            count[draw % CELLS]++;
        }
        CHECK(chi_square(count, CELLS, TOTAL) < 35); /* 11 degrees: p = 2e-4 */
    }
    fc_rng rng = fc_rng_make(SEED, 0, 0, 0, 0);
    CHECK(fc_rng_below(&rng, 1) == 0);
}

static void test_double_is_uniform(void)
{
    enum { CELLS = 100, TOTAL = 100000 };
    static double out[TOTAL];
    int count[CELLS] = {0}, outside = 0;

    fc_rng_uniform(SEED, 4, FC_RNG_SAMPLING, 0, TOTAL, out);
    for (int i = 0; i < TOTAL; i++) {
        outside += !(out[i] >= 0 && out[i] < 1);
        count[(int)(out[i] * CELLS)]++;
    }
    CHECK(outside == 0);
    CHECK(chi_square(count, CELLS, TOTAL) < 155); /* 99 degrees: p = 3e-4 */
    CHECK(fc_rng_double_of(0, 0) == 0);
    CHECK(fc_rng_double_of(UINT32_MAX, UINT32_MAX) == 1 - 0x1p-53);
}

/* A bulk draw is the first of each client's stream, wherever the block begins. */
static void test_bulk_is_the_streams(void)
{
    enum { N = 9 };
    double all[N], part[4];

    fc_rng_uniform(SEED, 4, FC_RNG_SAMPLING, 100, N, all);
    for (uint32_t i = 0; i < N; i++) {
        fc_rng rng = fc_rng_make(SEED, 4, FC_RNG_SAMPLING, 100 + i, 0);
        CHECK(all[i] == fc_rng_double(&rng));
    }
    fc_rng_uniform(SEED, 4, FC_RNG_SAMPLING, 103, 4, part);
    for (int i = 0; i < 4; i++)
        CHECK(part[i] == all[i + 3]);
    fc_rng_uniform(SEED, 4, FC_RNG_SAMPLING, 0, 0, NULL);
}

static void test_permutation(void)
{
    enum { N = 1000 };
    fc_idx order[N], again[N];
    int seen[N] = {0}, once = 0, moved = 0;
    fc_rng rng = fc_rng_make(SEED, 6, FC_RNG_ROWS, 2, 0);

    fc_rng_permutation(SEED, 6, FC_RNG_ROWS, 2, N, order);
    for (fc_idx i = 0; i < N; i++) {
        if (order[i] < 0 || order[i] >= N)
            abort();
        again[i] = i;
        seen[order[i]]++;
        moved += order[i] != i;
    }
    for (int i = 0; i < N; i++)
        once += seen[i] == 1;
    CHECK(once == N);
    CHECK(moved > N - 20); /* about one stays */

    fc_shuffle(again, N, &rng);
    CHECK(memcmp(order, again, sizeof order) == 0);
    fc_rng_permutation(SEED, 6, FC_RNG_ROWS, 2, 0, NULL);
}

/* All 24 orders of four, started from wherever the last shuffle ended. */
static void test_shuffle_is_uniform(void)
{
    enum { TOTAL = 48000 };
    fc_idx order[4] = {0, 1, 2, 3};
    int count[24] = {0};
    fc_rng rng = fc_rng_make(SEED, 0, FC_RNG_ROWS, 1, 0);

    for (int t = 0; t < TOTAL; t++) {
        int rank = 0;
        fc_shuffle(order, 4, &rng);
        for (int i = 0; i < 4; i++) {
            int later = 0;
            for (int j = i + 1; j < 4; j++)
                later += order[j] < order[i];
            rank = rank * (4 - i) + later;
        }
        count[rank]++;
    }
    CHECK(chi_square(count, 24, TOTAL) < 55); /* 23 degrees: p = 2e-4 */
}

int main(void)
{
    test_known_answers();
    test_stream_is_its_blocks();
    test_names_do_not_meet();
    test_below_is_uniform();
    test_double_is_uniform();
    test_bulk_is_the_streams();
    test_permutation();
    test_shuffle_is_uniform();
    return check_summary();
}
