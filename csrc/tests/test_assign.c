#include "check.h"
#include "fc_assign.h"

#include <float.h>
#include <math.h>

enum { MOST = 40 };

static double C[MOST * (MOST + 3)];
static float C32[MOST * (MOST + 3)];
static double u[MOST], v[MOST];
static fc_idx s[MOST];

static uint64_t state = 7;

static double uniform(void)
{
    state = state * 6364136223846793005u + 1442695040888963407u;
    return (double)(state >> 11) * 0x1p-53;
}

static void fill(fc_idx n, size_t stride, int kind)
{
    double x[2 * MOST];
    for (int k = 0; k < 2 * MOST; k++)
        x[k] = uniform();
    for (fc_idx i = 0; i < n; i++)
        for (size_t j = 0; j < stride; j++) {
            double r = uniform();
            size_t place = (size_t)i * stride + j;
            C[place] = kind == 0   ? r - 0.5
                       : kind == 1 ? floor(5 * r)
                       : kind == 2 ? pow(x[i] - x[(j + MOST) % ((size_t)2 * MOST)], 2)
                       : kind == 3 ? (r < 0.5 && i != (fc_idx)j ? 1e32 : r)
                                   : 1;
            C32[place] = (float)C[place];
        }
}

/* A permutation whose prices prove that no other is better. */
static void check_solved(fc_idx n, size_t stride, const double *costs, double cost,
                         double slack)
{
    bool taken[MOST] = {false}, all = true;
    double sum = 0, size = 0, over = 0, dual = 0;
    for (fc_idx i = 0; i < n; i++) {
        if (s[i] < 0 || s[i] >= n || taken[s[i]]) {
            all = false;
            break;
        }
        taken[s[i]] = true;
        sum += costs[(size_t)i * stride + (size_t)s[i]];
        dual += u[i] + v[i];
        size = fmax(size, fmax(fabs(u[i]), fabs(v[i])));
        for (fc_idx j = 0; j < n; j++)
            over = fmax(over, u[i] + v[j] - costs[(size_t)i * stride + (size_t)j]);
    }
    double rounding = 8 * DBL_EPSILON * size;
    CHECK(all);
    CHECK(slack >= 0 && slack <= rounding && over <= rounding);
    CHECK(fabs(sum / n - cost) <= rounding);
    CHECK(fabs(dual - sum) <= rounding * n);
    CHECK(size < 1e20);
}

static void test_certified_optima(fc_assign_work *work)
{
    static const fc_idx sizes[] = {1, 2, 7, 8, 9, 31, MOST};
    double cost, slack, again;
    for (size_t k = 0; k < sizeof sizes / sizeof *sizes; k++)
        for (int kind = 0; kind < 5; kind++)
            for (size_t pad = 0; pad <= 3; pad += 3) {
                fc_idx n = sizes[k];
                size_t stride = (size_t)n + pad;
                fill(n, stride, kind);
                CHECK(fc_assign_f64(n, stride, C, false, s, u, v, &cost, &slack,
                                    work) == 0);
                check_solved(n, stride, C, cost, slack);
                CHECK(fc_assign_f64(n, stride, C, true, s, u, v, &again, &slack,
                                    work) == 0);
                check_solved(n, stride, C, again, slack);
                CHECK(fabs(again - cost) <= 1e-12);
                for (size_t p = 0; p < (size_t)n * stride; p++)
                    C[p] = C32[p];
                CHECK(fc_assign_f32(n, stride, C32, false, s, u, v, &cost, &slack,
                                    work) == 0);
                check_solved(n, stride, C, cost, slack);
            }
}

static void test_what_is_not_finite(fc_assign_work *work)
{
    static const double bad[] = {NAN, INFINITY, -INFINITY, 1e308, -1e308};
    double cost, slack;
    for (size_t k = 0; k < sizeof bad / sizeof *bad; k++)
        for (int warm = 0; warm < 2; warm++) {
            fill(9, 9, 0);
            for (int j = 0; j < 9; j++) {
                C[9 * 4 + j] = bad[k];
                v[j] = 0;
            }
            fc_status status =
                fc_assign_f64(9, 9, C, warm, s, u, v, &cost, &slack, work);
            CHECK(status == FC_ASSIGN_NOT_FINITE || (isfinite(cost) && k > 2));
        }
}

int main(void)
{
    fc_assign_work *work = fc_assign_work_new(MOST);
    if (!work)
        return 1;
    test_certified_optima(work);
    test_what_is_not_finite(work);
    fc_assign_work_free(work);
    return check_summary();
}
