#include "check.h"
#include "fc_heads.h"

#include <math.h>

enum { N = 40, R = 3, K = 3 };

static double codes[N * R], target[N], weight[N], work[4096];
static double A[K * R * 2], c[K * 2];
static const int64_t starts[K + 1] = {0, 1, 18, N};
static const double l2[K] = {0.1, 0.2, 0.3};

int main(void)
{
    uint64_t state = 7;
    for (int i = 0; i < N * R; i++) {
        state = state * 6364136223846793005u + 1442695040888963407u;
        codes[i] = (double)(state >> 11) * 0x1p-53 - 0.5;
    }
    for (int k = 0; k < K; k++)
        for (int64_t i = starts[k]; i < starts[k + 1]; i++) {
            weight[i] = 1.0 / (double)(starts[k + 1] - starts[k]);
            target[i] = codes[i * R] - codes[i * R + 1] > 0;
        }
    fc_head_rows rows = {K, R, 1, starts, codes, target, weight, l2};
    CHECK(fc_head_work_size(R, 2, N) <= sizeof work / sizeof *work);

    /* Many steps lead to the exact solution, and that is where steps stay. */
    double exact[K * R], shift[K];
    CHECK(fc_head_ridge(&rows, exact, shift, work) == 0);
    fc_head_steps(&rows, FC_HEAD_SQUARED, 5000, A, c, work);
    for (int i = 0; i < K * R; i++)
        CHECK(fabs(A[i] - exact[i]) < 1e-9);
    fc_head_steps(&rows, FC_HEAD_SQUARED, 1, A, c, work);
    for (int k = 0; k < K; k++)
        CHECK(fabs(c[k] - shift[k]) < 1e-9);

    /* Two classes are softmax with scores that differ by the logistic one's. */
    fc_head_steps(&rows, FC_HEAD_LOGISTIC, 20, A, c, work);
    for (int i = 0; i < K * R; i++)
        CHECK(isfinite(A[i]));
    rows.n_outputs = 2;
    for (int i = 0; i < K * R * 2; i++)
        A[i] = 0;
    for (int i = 0; i < K * 2; i++)
        c[i] = 0;
    fc_head_steps(&rows, FC_HEAD_SOFTMAX, 20, A, c, work);
    for (size_t i = 0; i < sizeof exact / sizeof *exact;
         i++) /* classes share the blame */
        CHECK(fabs(A[2 * i] + A[2 * i + 1]) < 1e-12);
    return check_summary();
}
