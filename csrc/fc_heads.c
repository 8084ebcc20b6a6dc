#include "fc_heads.h"

#include <float.h>
#include <math.h>
#include <string.h>

/* Codes of one head by component, so that every loop runs along rows. */
typedef struct {
    int64_t n;
    size_t r, C;
    double *H;      /* (r, n) */
    double *F;      /* (C, n) scores, then slopes */
    double *most;   /* (n) */
    double *moment; /* (r + 1, r + 1) */
    double *aside;  /* (r + 1) */
    double *slope;  /* (r + 1) */
} head;

FC_CLONES static void add_multiple(int64_t n, double a, const double *restrict x,
                                   double *restrict f)
{
    for (int64_t i = 0; i < n; i++)
        f[i] += a * x[i];
}

/* The order of addition is part of the source: 16 lanes, folded by halves. */
FC_CLONES static double dot(int64_t n, const double *restrict x,
                            const double *restrict y)
{
    double lane[16] = {0};
    int64_t i = 0;
    for (; i + 16 <= n; i += 16)
        for (int l = 0; l < 16; l++)
            lane[l] += x[i + l] * y[i + l];
    for (int l = 0; i < n; i++, l++)
        lane[l] += x[i] * y[i];
    for (int half = 8; half; half /= 2)
        for (int l = 0; l < half; l++)
            lane[l] += lane[l + half];
    return lane[0];
}

FC_CLONES static double dot3(int64_t n, const double *restrict x,
                             const double *restrict y, const double *restrict z)
{
    double lane[16] = {0};
    int64_t i = 0;
    for (; i + 16 <= n; i += 16)
        for (int l = 0; l < 16; l++)
            lane[l] += x[i + l] * y[i + l] * z[i + l];
    for (int l = 0; i < n; i++, l++)
        lane[l] += x[i] * y[i] * z[i];
    for (int half = 8; half; half /= 2)
        for (int l = 0; l < half; l++)
            lane[l] += lane[l + half];
    return lane[0];
}

/* exp without a call, so that loops over it are vectors; within 2 ulp, clipped to the
 * range where it is a normal number. */
static inline double exp_near(double x)
{
    const double shift = 0x1.8p52;
    x = x > 708 ? 708 : x < -708 ? -708 : x;
    double t = x * 1.4426950408889634 + shift;
    double k = t - shift;
    double y = (x - k * 0x1.62e42fefa3800p-1) - k * 0x1.ef35793c76730p-45;
    double p = 1.0 / 479001600;
    p = p * y + 1.0 / 39916800;
    p = p * y + 1.0 / 3628800;
    p = p * y + 1.0 / 362880;
    p = p * y + 1.0 / 40320;
    p = p * y + 1.0 / 5040;
    p = p * y + 1.0 / 720;
    p = p * y + 1.0 / 120;
    p = p * y + 1.0 / 24;
    p = p * y + 1.0 / 6;
    p = p * y + 0.5;
    p = p * y + 1;
    p = p * y + 1;
    uint64_t bits;
    memcpy(&bits, &t, sizeof bits);
    bits = (bits + 1023) << 52; /* the low bits of t are those of k */
    double scale;
    memcpy(&scale, &bits, sizeof scale);
    return p * scale;
}

FC_CLONES static void squared_slopes(int64_t n, const double *restrict y,
                                     const double *restrict w, double *restrict f)
{
    for (int64_t i = 0; i < n; i++)
        f[i] = w[i] * (f[i] - y[i]);
}

FC_CLONES static void logistic_slopes(int64_t n, const double *restrict y,
                                      const double *restrict w, double *restrict f)
{
    for (int64_t i = 0; i < n; i++)
        f[i] = w[i] * (1 / (1 + exp_near(-f[i])) - (y[i] > 0));
}

/* F (C, n): scores, then slopes. */
FC_CLONES static void softmax_slopes(int64_t n, size_t C, const double *restrict y,
                                     const double *restrict w, double *restrict most,
                                     double *restrict F)
{
    const size_t m = (size_t)n;
    memcpy(most, F, m * sizeof *most);
    for (size_t c = 1; c < C; c++)
        for (int64_t i = 0; i < n; i++)
            most[i] = F[c * m + (size_t)i] > most[i] ? F[c * m + (size_t)i] : most[i];
    for (size_t c = 0; c < C; c++)
        for (int64_t i = 0; i < n; i++)
            F[c * m + (size_t)i] = exp_near(F[c * m + (size_t)i] - most[i]);
    for (int64_t i = 0; i < n; i++)
        most[i] = 0;
    for (size_t c = 0; c < C; c++)
        for (int64_t i = 0; i < n; i++)
            most[i] += F[c * m + (size_t)i];
    for (size_t c = 0; c < C; c++)
        for (int64_t i = 0; i < n; i++)
            F[c * m + (size_t)i] =
                w[i] * (F[c * m + (size_t)i] / most[i] - (y[i] == (double)c));
}

size_t fc_head_work_size(fc_idx n_components, fc_idx n_outputs, int64_t n_most)
{
    const size_t r = (size_t)n_components, n = (size_t)n_most;
    return (r + (size_t)n_outputs + 1) * n + (r + 1) * (r + 1) + 2 * (r + 1);
}

static head bind(const fc_head_rows *rows, fc_idx i, double *work)
{
    head h = {.n = rows->starts[i + 1] - rows->starts[i],
              .r = (size_t)rows->n_components,
              .C = (size_t)rows->n_outputs};
    const size_t n = (size_t)h.n;
    const double *code = rows->codes + (size_t)rows->starts[i] * h.r;
    h.H = work;
    h.F = h.H + h.r * n;
    h.most = h.F + h.C * n;
    h.moment = h.most + n;
    h.aside = h.moment + (h.r + 1) * (h.r + 1);
    h.slope = h.aside + h.r + 1;
    for (size_t k = 0; k < n; k++)
        for (size_t j = 0; j < h.r; j++)
            h.H[j * n + k] = code[k * h.r + j];
    return h;
}

static double step_of(const head *h, const double *weight, double bend, double l2)
{
    double squares = 0;
    for (size_t j = 0; j < h->r; j++)
        squares += dot3(h->n, h->H + j * (size_t)h->n, h->H + j * (size_t)h->n, weight);
    return 1 / (bend * (1 + squares) + l2);
}

/* Steps on the second moments of (codes, 1); as many as rows would give. */
static void step_by_moments(const head *h, const double *y, const double *weight,
                            double l2, double step, fc_idx n_steps, double *A,
                            double *c)
{
    const size_t r = h->r, m = r + 1, n = (size_t)h->n;
    for (size_t i = 0; i < n; i++)
        h->most[i] = 1;
    for (size_t j = 0; j < m; j++) {
        const double *x = j < r ? h->H + j * n : h->most;
        h->aside[j] = dot3(h->n, x, y, weight);
        for (size_t k = 0; k <= j; k++) {
            const double *z = k < r ? h->H + k * n : h->most;
            h->moment[j * m + k] = h->moment[k * m + j] = dot3(h->n, x, z, weight);
        }
    }
    for (fc_idx s = 0; s < n_steps; s++) {
        for (size_t j = 0; j < m; j++) {
            double g = -h->aside[j] + h->moment[j * m + r] * c[0];
            for (size_t k = 0; k < r; k++)
                g += h->moment[j * m + k] * A[k];
            h->slope[j] = g;
        }
        for (size_t j = 0; j < r; j++)
            A[j] -= step * (h->slope[j] + l2 * A[j]);
        c[0] -= step * h->slope[r];
    }
}

static void step_by_rows(const head *h, fc_head_loss loss, const double *y,
                         const double *weight, double l2, double step, double *A,
                         double *c)
{
    const size_t r = h->r, C = h->C, n = (size_t)h->n;
    for (size_t k = 0; k < C; k++) {
        double *f = h->F + k * n;
        for (size_t i = 0; i < n; i++)
            f[i] = c[k];
        for (size_t j = 0; j < r; j++)
            add_multiple(h->n, A[j * C + k], h->H + j * n, f);
    }
    if (loss == FC_HEAD_SQUARED)
        squared_slopes(h->n, y, weight, h->F);
    else if (loss == FC_HEAD_LOGISTIC)
        logistic_slopes(h->n, y, weight, h->F);
    else
        softmax_slopes(h->n, C, y, weight, h->most, h->F);
    for (size_t k = 0; k < C; k++) {
        const double *e = h->F + k * n;
        for (size_t j = 0; j < r; j++)
            A[j * C + k] -= step * (dot(h->n, h->H + j * n, e) + l2 * A[j * C + k]);
        double sum = 0;
        for (size_t i = 0; i < n; i++)
            sum += e[i];
        c[k] -= step * sum;
    }
}

void fc_head_steps(const fc_head_rows *rows, fc_head_loss loss, fc_idx n_steps,
                   double *A, double *c, double *work)
{
    const double bend = loss == FC_HEAD_SQUARED    ? 1
                        : loss == FC_HEAD_LOGISTIC ? 0.25
                                                   : 0.5;
    for (fc_idx i = 0; i < rows->n_heads; i++) {
        const head h = bind(rows, i, work);
        const double *y = rows->target + rows->starts[i];
        const double *weight = rows->weight + rows->starts[i];
        const double step = step_of(&h, weight, bend, rows->l2[i]);
        double *Ai = A + (size_t)i * h.r * h.C, *ci = c + (size_t)i * h.C;
        /* Moments cost as much as about (r + 1) / 4 steps on rows. */
        if (loss == FC_HEAD_SQUARED && 4 * (size_t)n_steps > h.r + 1) {
            step_by_moments(&h, y, weight, rows->l2[i], step, n_steps, Ai, ci);
            continue;
        }
        for (fc_idx s = 0; s < n_steps; s++)
            step_by_rows(&h, loss, y, weight, rows->l2[i], step, Ai, ci);
    }
}

/* Solve G a = b in place by Cholesky's factors, lower triangle; 0 if G is positive. */
static int solve(size_t r, size_t m, double *G, double *b)
{
    for (size_t j = 0; j < r; j++) {
        for (size_t k = 0; k <= j; k++) {
            double sum = G[j * m + k];
            for (size_t l = 0; l < k; l++)
                sum -= G[j * m + l] * G[k * m + l];
            if (k < j)
                G[j * m + k] = sum / G[k * m + k];
            else if (sum > 0)
                G[j * m + j] = sqrt(sum);
            else
                return 1;
        }
        for (size_t l = 0; l < j; l++)
            b[j] -= G[j * m + l] * b[l];
        b[j] /= G[j * m + j];
    }
    for (size_t j = r; j-- > 0;) {
        for (size_t l = j + 1; l < r; l++)
            b[j] -= G[l * m + j] * b[l];
        b[j] /= G[j * m + j];
    }
    return 0;
}

fc_status fc_head_ridge(const fc_head_rows *rows, double *A, double *c, double *work)
{
    fc_status failed = 0;
    for (fc_idx i = 0; i < rows->n_heads; i++) {
        const head h = bind(rows, i, work);
        const size_t r = h.r, m = r + 1, n = (size_t)h.n;
        const double *y = rows->target + rows->starts[i];
        const double *weight = rows->weight + rows->starts[i];
        double *Ai = A + (size_t)i * r, trace = 0;
        const double centre = dot(h.n, y, weight);
        for (size_t k = 0; k < n; k++)
            h.F[k] = y[k] - centre;
        for (size_t j = 0; j < r; j++) {
            double *x = h.H + j * n;
            h.slope[j] = dot(h.n, x, weight);
            for (size_t k = 0; k < n; k++)
                x[k] -= h.slope[j];
            Ai[j] = dot3(h.n, x, h.F, weight);
            for (size_t k = 0; k <= j; k++)
                h.moment[j * m + k] = dot3(h.n, x, h.H + k * n, weight);
            trace += h.moment[j * m + j];
        }
        /* Codes may all be the same: then any weights will do, and these are small. */
        double least = 1e-12 * trace / (double)r;
        least = fmax(fmax(rows->l2[i], least), DBL_MIN);
        for (size_t j = 0; j < r; j++)
            h.moment[j * m + j] += least;
        c[i] = centre;
        if (solve(r, m, h.moment, Ai)) {
            failed++;
            for (size_t j = 0; j < r; j++)
                Ai[j] = NAN;
        }
        for (size_t j = 0; j < r; j++)
            c[i] -= h.slope[j] * Ai[j];
    }
    return failed;
}
