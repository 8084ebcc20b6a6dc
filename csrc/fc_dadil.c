#include "fc_dadil.h"

#include <math.h>

enum { LANES = 8 };
static const double FIRST_DECAY = 0.9, SECOND_DECAY = 0.999, FLOOR = 1e-8;

FC_CLONES static void difference(size_t d, double scale, const double *FC_RESTRICT b,
                                 const double *FC_RESTRICT q, double *FC_RESTRICT g)
{
    for (size_t j = 0; j < d; j++)
        g[j] = scale * (b[j] - q[j]);
}

/* dx += a g; returns g.x, added up in lanes, so in the same order everywhere. */
FC_CLONES static double add_and_dot(size_t d, double a, const double *FC_RESTRICT g,
                                    const double *FC_RESTRICT x, double *FC_RESTRICT dx)
{
    double sum[LANES] = {0};
    size_t j = 0;
    for (; j + LANES <= d; j += LANES)
        for (size_t l = 0; l < LANES; l++) {
            dx[j + l] += a * g[j + l];
            sum[l] += g[j + l] * x[j + l];
        }
    for (size_t l = 0; j < d; j++, l++) {
        dx[j] += a * g[j];
        sum[l] += g[j] * x[j];
    }
    for (size_t half = LANES / 2; half; half /= 2)
        for (size_t l = 0; l < half; l++)
            sum[l] += sum[l + half];
    return sum[0];
}

void fc_dadil_scatter(fc_idx K, fc_idx n, size_t d, double scale, const double *X,
                      const double *B, const double *Q, const double *alpha,
                      const fc_idx *s, const fc_idx *p, double *g, double *dX,
                      double *dalpha)
{
    for (size_t i = 0; i < (size_t)n; i++) {
        difference(d, scale, B + i * d, Q + (size_t)p[i] * d, g);
        for (size_t k = 0; k < (size_t)K; k++) {
            size_t point = (k * (size_t)n + (size_t)s[k * (size_t)n + i]) * d;
            dalpha[k] += add_and_dot(d, alpha[k], g, X + point, dX + point);
        }
    }
}

FC_CLONES static void adam(size_t m, double rate, double m_scale, double v_scale,
                           const double *FC_RESTRICT gradient, double *FC_RESTRICT x,
                           double *FC_RESTRICT first, double *FC_RESTRICT second)
{
    for (size_t j = 0; j < m; j++) {
        double g = gradient[j];
        first[j] += (1 - FIRST_DECAY) * (g - first[j]);
        second[j] += (1 - SECOND_DECAY) * (g * g - second[j]);
        x[j] -= rate * (first[j] / m_scale) / (sqrt(second[j] / v_scale) + FLOOR);
    }
}

void fc_dadil_adam(size_t m, double rate, double t, const double *gradient, double *x,
                   double *first, double *second)
{
    adam(m, rate, 1 - pow(FIRST_DECAY, t), 1 - pow(SECOND_DECAY, t), gradient, x, first,
         second);
}
