#include "fc_select.h"

#include <math.h>
#include <stdbool.h>
#include <string.h>

/* Bits of |x| order as |x| does. A key is the 31 highest of them as a signed number, so
 * that every processor compares many at once; the rest of a double comes second. */
enum {
    FEW = 4096,    /* entries up to which all keys are made at once */
    BLOCK = 32,    /* of more, so many have one maximum that stands for all */
    SAMPLE = 2048, /* entries that tell where the cut may be when tau is large */
    BINS = 4096,   /* of the histogram, when the sample was wrong */
    BIN_SHIFT = 31 - 12,
    BAND = 2048,    /* keys above which those outside of the search are left behind */
    REACH = 1 << 14 /* first stride of a search: 1.5% of a double */
};

FC_CLONES static fc_idx count_from(fc_idx n, const int32_t *key, int32_t cut)
{
    int32_t sum = 0;
    for (fc_idx i = 0; i < n; i++)
        sum += key[i] >= cut;
    return sum;
}

static inline int count_eight(const int32_t *key, int32_t cut)
{
    int sum = 0;
    for (int l = 0; l < 8; l++)
        sum += key[l] >= cut;
    return sum;
}

FC_CLONES static int32_t largest(fc_idx n, const int32_t *key)
{
    int32_t most = 0;
    for (fc_idx i = 0; i < n; i++)
        most = key[i] > most ? key[i] : most;
    return most;
}

/* A cut with at least tau keys at or above it, and fewer than tau above it; 0 < tau <=
 * n, keys >= 0. `from`: how many keys are at or above it. `band` (n) is work. */
static int32_t cut_of(fc_idx n, const int32_t *key, fc_idx tau, int32_t hint,
                      int32_t *band, fc_idx *from)
{
    int64_t low = 0, high = (int64_t)largest(n, key) + 1, stride = REACH;
    fc_idx from_low = n, from_high = 0, outside = 0, m = n;
    const int32_t *list = key;

    for (int turn = 0; from_low > tau && high - low > 1; turn++) {
        int64_t middle;
        if (turn == 0 && hint > low && hint < high) {
            middle = hint;
        } else if (low == 0 && high - stride > 0) {
            middle = high - stride; /* down from the hint, or from the largest */
            stride *= 8;
        } else if (hint && from_high == 0 && low + stride < high) {
            middle = low + stride;
            stride *= 8;
        } else if (turn % 4 == 3) {
            middle = low + (high - low) / 2;
        } else {
            /* Where the count would be right if keys lay evenly, first a little to
             * the one side, then to the other, so that both ends come near. */
            double width = (double)(from_low - from_high);
            double rank = from_low - tau + (turn % 2 ? 0.3 : -0.3) * sqrt(width);
            middle = low + (int64_t)((double)(high - low) * (rank / width));
            middle = middle > low ? middle : low + 1;
            middle = middle < high ? middle : high - 1;
        }
        fc_idx c = outside + count_from(m, list, (int32_t)middle);
        if (c >= tau) {
            low = middle;
            from_low = c;
        } else {
            high = middle;
            from_high = c;
        }
        if (m > BAND && from_low - from_high <= m / 4) {
            fc_idx kept = 0;
            for (fc_idx i = 0; i < m; i++) {
                int32_t k = list[i];
                band[kept] = k;
                kept += k >= low && k < high;
            }
            list = band;
            m = kept;
            outside = from_high;
        }
    }
    *from = from_low;
    return (int32_t)low;
}

/* Positions of the keys from `cut` on, at most `room`. */
static fc_idx list_from(fc_idx n, const int32_t *key, int32_t cut, fc_idx room,
                        fc_idx *out)
{
    fc_idx m = 0, i = 0;
    const bool rare = room < n / BLOCK;

    for (; i + 8 <= n && m + 8 <= room; i += 8) {
        if (rare && count_eight(key + i, cut) == 0)
            continue;
        for (int l = 0; l < 8; l++) {
            out[m] = i + l;
            m += key[i + l] >= cut;
        }
    }
    for (; i < n && m < room; i++) {
        out[m] = i;
        m += key[i] >= cut;
    }
    return m;
}

#define REAL double
#define F(name) name##_f64
#define HIGH_KEY(x) high_of_double(x)
#define LOW_KEY(x) low_of_double(x)

static inline int32_t high_of_double(double x)
{
    uint64_t bits;
    memcpy(&bits, &x, sizeof bits);
    return (int32_t)((bits >> 32) & 0x7FFFFFFFu);
}

static inline int32_t low_of_double(double x)
{
    uint64_t bits;
    memcpy(&bits, &x, sizeof bits);
    return (int32_t)((int64_t)(bits & 0xFFFFFFFFu) + INT32_MIN);
}

static inline double magnitude_f64(double x) { return fabs(x); }

#include "fc_select.inc"
#undef REAL
#undef F
#undef HIGH_KEY
#undef LOW_KEY

#define REAL float
#define F(name) name##_f32
#define HIGH_KEY(x) bits_of_float(x)
#define LOW_KEY(x) ((void)(x), 0)

static inline int32_t bits_of_float(float x)
{
    uint32_t bits;
    memcpy(&bits, &x, sizeof bits);
    return (int32_t)(bits & 0x7FFFFFFFu);
}

static inline float magnitude_f32(float x) { return fabsf(x); }

#include "fc_select.inc"
