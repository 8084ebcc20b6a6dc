#include "check.h"
#include "fc_dadil.h"

#include <math.h>

enum { K = 3, N = 5, D = 11 };

int main(void)
{
    double X[K * N * D], B[N * D], Q[N * D], dX[K * N * D] = {0}, dalpha[K] = {0}, g[D];
    double alpha[K] = {0.5, 0.3, 0.2};
    const fc_idx p[N] = {4, 2, 0, 1, 3};
    fc_idx s[K * N];
    for (int j = 0; j < K * N * D; j++)
        X[j] = sin(j);
    for (int j = 0; j < N * D; j++) {
        B[j] = cos(3 * j);
        Q[j] = sin(5 * j);
    }
    for (fc_idx k = 0; k < K; k++)
        for (fc_idx i = 0; i < N; i++)
            s[k * N + i] = (i + k) % N;
    fc_dadil_scatter(K, N, D, 2, X, B, Q, alpha, s, p, g, dX, dalpha);
    for (fc_idx k = 0; k < K; k++) {
        double slope = 0;
        for (fc_idx i = 0; i < N; i++)
            for (fc_idx j = 0; j < D; j++) {
                fc_idx at = (k * N + s[k * N + i]) * D + j;
                double own = 2 * (B[i * D + j] - Q[p[i] * D + j]);
                CHECK(fabs(dX[at] - alpha[k] * own) < 1e-14);
                slope += own * X[at];
            }
        CHECK(fabs(slope - dalpha[k]) < 1e-12);
    }
    /* The first step of Adam goes a whole rate against the sign. */
    double x[2] = {1, 1}, gradient[2] = {3, -0.5}, first[2] = {0}, second[2] = {0};
    fc_dadil_adam(2, 0.1, 1, gradient, x, first, second);
    CHECK(fabs(x[0] - 0.9) < 1e-7 && fabs(x[1] - 1.1) < 1e-7);
    CHECK(fabs(first[0] - 0.3) < 1e-15 && fabs(second[0] - 0.009) < 1e-15);
    return check_summary();
}
