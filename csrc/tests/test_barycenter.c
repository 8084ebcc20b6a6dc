#include "check.h"
#include "fc_barycenter.h"

#include <math.h>

enum { MOST_K = 4, MOST_N = 70, D = 3, C = 2, MOST = MOST_K * MOST_N };

static double X[MOST * D], gram[MOST * MOST], full[MOST * MOST], labels[C * MOST];
static double mean[MOST_N * D], objective[10];
static float X32[MOST * D];
static fc_idx s[MOST];
static uint64_t state = 11;

static double uniform(void)
{
    state = state * 6364136223846793005u + 1442695040888963407u;
    return (double)(state >> 11) * 0x1p-53;
}

/* The lower half of the products of random points. */
static void fill(size_t m)
{
    for (size_t j = 0; j < m * D; j++) {
        X[j] = uniform() - 0.5;
        X32[j] = (float)X[j];
    }
    for (size_t i = 0; i < m; i++)
        for (size_t j = 0; j < m; j++) {
            full[i * m + j] = 0;
            for (size_t l = 0; l < D; l++)
                full[i * m + j] += X[i * D + l] * X[j * D + l];
            gram[i * m + j] = j <= i ? full[i * m + j] : NAN;
        }
    for (size_t j = 0; j < m; j++) {
        labels[j] = uniform() < 0.5;
        labels[m + j] = 1 - labels[j];
    }
}

static void check_solution(fc_idx K, fc_idx n)
{
    const size_t m = (size_t)K * (size_t)n;
    double weights[MOST_K], total = 0;
    for (fc_idx k = 0; k < K; k++)
        total += weights[k] = uniform();
    for (fc_idx k = 0; k < K; k++)
        weights[k] /= total;

    fill(m);
    CHECK(fc_barycenter_spread(K, n, gram, K - 1) >= 0);
    fc_barycenter_complete(m, C, 0.5, labels, gram);
    for (size_t i = 0; i < m; i++)
        for (size_t j = 0; j < m; j++)
            if (!(fabs(gram[i * m + j] - full[i * m + j] -
                       0.5 * (labels[i] == labels[j])) < 1e-12)) {
                CHECK(!"products of labels");
                return;
            }
    fc_status turns = fc_barycenter(K, n, gram, weights, 0, 10, 1e-9, s, objective);
    CHECK(turns >= 1 && turns <= 10);
    for (fc_status t = 1; t < turns; t++)
        CHECK(objective[t] <= objective[t - 1] + 1e-12);
    for (fc_idx k = 0; k < K; k++) {
        double seen[MOST_N] = {0};
        for (fc_idx i = 0; i < n; i++)
            seen[s[k * n + i]]++;
        for (fc_idx i = 0; i < n; i++)
            CHECK(seen[i] == 1);
    }
    fc_barycenter_mean_f64(K, n, D, X, weights, s, mean);
    double first = mean[0];
    fc_barycenter_mean_f32(K, n, D, X32, weights, s, mean);
    CHECK(fabs(first - mean[0]) < 1e-6);
}

int main(void)
{
    for (fc_idx K = 1; K <= MOST_K; K++)
        for (fc_idx n = 1; n <= MOST_N; n += 23)
            check_solution(K, n);
    double infinite[4] = {INFINITY, INFINITY, INFINITY, INFINITY}, one[1] = {1};
    CHECK(fc_barycenter(1, 2, infinite, one, 0, 3, 1e-9, s, objective) < 0);
    return check_summary();
}
