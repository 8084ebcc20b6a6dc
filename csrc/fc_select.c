#include "fc_select.h"

#include <math.h>
#include <stdbool.h>
#include <string.h>

/* Bits of |x| order as |x| does. A key is the 31 highest of them as a signed number, so
 * that every processor compares many at once; the rest of a double comes second. */
enum {
    FEW = 8192,    /* entries up to which all keys are made at once */
    BLOCK = 32,    /* of more, so many are passed over together */
    SAMPLE = 2048, /* entries that tell where the cut may be */
    BINS = 4096,   /* of the histogram, when the sample was wrong */
    BIN_SHIFT = 31 - 12,
    SMALL_BAND = 48, /* keys that are not worth being cut down further */
    REACH = 1 << 14  /* first stride of a search: 1.5% of a double */
};

FC_CLONES static fc_idx count_from(fc_idx n, const int32_t *key, int32_t cut)
{
    int32_t sum = 0;
    for (fc_idx i = 0; i < n; i++)
        sum += key[i] >= cut;
    return sum;
}

FC_CLONES static int32_t largest(fc_idx n, const int32_t *key)
{
    int32_t most = INT32_MIN;
    for (fc_idx i = 0; i < n; i++)
        most = key[i] > most ? key[i] : most;
    return most;
}

/* A cut with at least tau keys at or above it, and fewer than tau above it; 0 < tau <=
 * n. `from`: how many keys are at or above it. */
static int32_t cut_of(fc_idx n, const int32_t *key, fc_idx tau, int64_t hint,
                      int32_t *band, fc_idx *from)
{
    int64_t low = INT32_MIN, high = (int64_t)largest(n, key) + 1;
    fc_idx from_low = n, from_high = 0, outside = 0, m = n;
    const int32_t *list = key;
    int64_t down = REACH, up = REACH;
    bool near = false;

    /* From the hint, or else the largest, in growing strides until the cut lies
     * between; then by halves. */
    while (from_low > tau && high - low > 1) {
        int64_t middle = low + (high - low) / 2;
        if (hint > low && hint < high) {
            middle = hint;
            near = true;
        } else if (low == INT32_MIN && high - down > 0) {
            middle = high - down;
            down *= 8;
        } else if (near && from_high == 0 && low + up < high) {
            middle = low + up;
            up *= 8;
        }
        fc_idx c = outside + count_from(m, list, (int32_t)middle);
        if (c >= tau) {
            low = middle;
            from_low = c;
        } else {
            high = middle;
            from_high = c;
        }
        hint = INT64_MIN;
        if (m > SMALL_BAND && from_low - from_high <= m / 4) {
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

#define REAL double
#define F(name) name##_f64
#define HIGH_KEY(x) high_of_double(x)
#define LOW_KEY(x) low_of_double(x)
#define MARGIN (1 << 17)

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

static inline double least_f64(int32_t key)
{
    uint64_t bits = (uint64_t)(uint32_t)key << 32;
    double x;
    memcpy(&x, &bits, sizeof x);
    return x;
}

#include "fc_select.inc"
#undef REAL
#undef F
#undef HIGH_KEY
#undef LOW_KEY
#undef MARGIN

#define REAL float
#define F(name) name##_f32
#define HIGH_KEY(x) bits_of_float(x)
#define LOW_KEY(x) ((void)(x), 0)
#define MARGIN (1 << 20)

static inline int32_t bits_of_float(float x)
{
    uint32_t bits;
    memcpy(&bits, &x, sizeof bits);
    return (int32_t)(bits & 0x7FFFFFFFu);
}

static inline float magnitude_f32(float x) { return fabsf(x); }

static inline float least_f32(int32_t key)
{
    float x;
    memcpy(&x, &key, sizeof x);
    return x;
}

#include "fc_select.inc"
