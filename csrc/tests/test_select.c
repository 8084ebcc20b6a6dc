#include "check.h"
#include "fc_select.h"

#include <math.h>

enum { MOST = 20000 };

static double x[MOST];
static float x32[MOST];
static fc_idx out[MOST], place[MOST];
static int32_t key[MOST], band[MOST];
static fc_idx at[MOST], tie[MOST];
static const fc_select_work WORK = {key, band, at, tie};

/* Exactly the wanted number, ascending, and nobody outside is before anybody inside. */
static void check_top(fc_idx n, fc_idx tau, const fc_idx *places, int32_t hint)
{
    fc_idx nonzero = 0, worst = -1, best = -1, next = 0;
    fc_idx m = fc_top_f64(n, x, places, tau, &hint, out, NULL, &WORK);
    for (fc_idx i = 0; i < n; i++)
        nonzero += x[i] != 0;
    CHECK(m == (tau < nonzero ? tau : nonzero));
    for (fc_idx i = 0; i < n; i++) {
        bool inside = next < m && out[next] == i;
        next += inside;
        fc_idx *extreme = inside ? &worst : &best;
        fc_idx here = places ? places[i] : i;
        if (*extreme >= 0) {
            fc_idx there = places ? places[*extreme] : *extreme;
            bool before = fabs(x[i]) > fabs(x[*extreme]) ||
                          (fabs(x[i]) == fabs(x[*extreme]) && here < there);
            if (before == inside)
                continue;
        }
        *extreme = i;
    }
    CHECK(next == m);
    if (worst >= 0 && best >= 0) {
        fc_idx a = places ? places[worst] : worst, b = places ? places[best] : best;
        CHECK(fabs(x[worst]) > fabs(x[best]) ||
              (fabs(x[worst]) == fabs(x[best]) && a < b));
    }
    for (fc_idx i = 0; i < n; i++)
        x32[i] = (float)x[i];
    hint = 0;
    bool tied;
    fc_idx m32 = fc_top_f32(n, x32, places, tau, &hint, at, &tied, &WORK);
    CHECK(m32 <= m || tied);
}

static void fill(fc_idx n, int kind)
{
    uint64_t state = 7;
    for (fc_idx i = 0; i < n; i++) {
        state = state * 6364136223846793005u + 1442695040888963407u;
        double u = (double)(state >> 11) * 0x1p-53 - 0.5;
        x[i] = kind == 0   ? u
               : kind == 1 ? floor(8 * u)
               : kind == 2 ? (i % 50 ? 0 : u)
               : kind == 3 ? ldexp(u, (int)(state >> 20) % 400 - 200)
               : kind == 4 ? 1 + floor(8 * u) * 0x1p-50
                           : floor(4 * u) * 0x1p-1074;
        place[i] = (fc_idx)(((int64_t)i * 7919) % n);
    }
}

static void test_against_the_definition(void)
{
    static const fc_idx sizes[] = {1, 2, 31, 1000, 4097, 20000};
    for (size_t s = 0; s < sizeof sizes / sizeof *sizes; s++)
        for (int kind = 0; kind < 6; kind++) {
            fc_idx n = sizes[s];
            fc_idx wanted[] = {0, 1, n / 7, n / 2, n - 1, n, n + 5, 200};
            fill(n, kind);
            for (size_t t = 0; t < sizeof wanted / sizeof *wanted; t++) {
                check_top(n, wanted[t], NULL, 0);
                check_top(n, wanted[t], NULL, 1072693248); /* the key of 1 */
                check_top(n, wanted[t], place, 1);
            }
        }
}

static void test_ties_fall_to_the_first(void)
{
    int32_t hint = 0;
    bool tied;
    x[0] = x[1] = -1;
    x[2] = 1;
    x[3] = 0;
    CHECK(fc_top_f64(4, x, NULL, 2, &hint, out, &tied, &WORK) == 2);
    CHECK(tied && out[0] == 0 && out[1] == 1);
    CHECK(fc_top_f64(4, x, NULL, 3, &hint, out, &tied, &WORK) == 3 && !tied);
    CHECK(fc_top_f64(4, x, NULL, -1, &hint, out, &tied, &WORK) == 0);
    CHECK(fc_top_f64(0, NULL, NULL, 3, &hint, out, NULL, &WORK) == 0);
}

/* Infinities come first; NaN is refused by the callers, but must do no harm. */
static void test_values_that_are_no_numbers(void)
{
    for (fc_idx n = 3; n <= MOST; n += MOST - 3) {
        int32_t hint = 0;
        fill(n, 0);
        x[1] = -INFINITY;
        CHECK(fc_top_f64(n, x, NULL, 1, &hint, out, NULL, &WORK) == 1 && out[0] == 1);
        for (fc_idx i = 0; i < n; i += 2)
            x[i] = NAN;
        CHECK(fc_top_f64(n, x, NULL, 2, &hint, out, NULL, &WORK) <= 2);
    }
}

int main(void)
{
    test_against_the_definition();
    test_ties_fall_to_the_first();
    test_values_that_are_no_numbers();
    return check_summary();
}
