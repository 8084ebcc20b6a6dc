#include "fc_barycenter.h"

#include "fc_assign.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum {
    PAGE = 4096,
    LINE = 64, /* bytes; rows a page apart share their cache lines */
    TILE = 64
};

FC_CLONES static void scale(size_t m, double a, const double *FC_RESTRICT x,
                            double *FC_RESTRICT out)
{
    for (size_t j = 0; j < m; j++)
        out[j] = a * x[j];
}

FC_CLONES static void add_scaled(size_t m, double a, const double *FC_RESTRICT x,
                                 double *FC_RESTRICT out)
{
    for (size_t j = 0; j < m; j++)
        out[j] += a * x[j];
}

/* |b|^2 + |x_j|^2 - 2 b.x_j from products b.x_j and squares |x_j|^2 */
FC_CLONES static void distances(size_t m, double norm, const double *FC_RESTRICT square,
                                const double *FC_RESTRICT product,
                                double *FC_RESTRICT out)
{
    for (size_t j = 0; j < m; j++)
        out[j] = (norm + square[j]) - 2 * product[j];
}

double fc_barycenter_spread(fc_idx K, fc_idx n, const double *gram, fc_idx first)
{
    const size_t m = (size_t)K * (size_t)n, begin = (size_t)first * (size_t)n;
    const size_t end = begin + (size_t)n;
    double largest = 0;
    /* Along the rows: each pair lies in that of its later point. */
    for (size_t i = begin; i < m; i++) {
        const double *row = gram + i * m;
        const size_t from = i < end ? 0 : begin, to = i < end ? i : end;
        for (size_t j = from; j < to; j++) {
            double x = (row[i] + gram[j * m + j]) - 2 * row[j];
            largest = x > largest ? x : largest;
        }
    }
    return largest;
}

/* Add labels to a tile of rows i0.., columns j0.., and write it across the diagonal. */
static void complete_tile(size_t m, size_t c, double weight, const double *labels,
                          size_t i0, size_t j0, double *gram)
{
    const size_t height = i0 + TILE < m ? TILE : m - i0;
    const size_t width = j0 + TILE < m ? TILE : m - j0;
    double tile[TILE][TILE + 1]; /* rows of gram may lie a page apart */

    for (size_t i = 0; i < height; i++) {
        double *row = gram + (i0 + i) * m + j0;
        if (weight > 0)
            for (size_t q = 0; q < c; q++) {
                double y = labels[q * m + i0 + i];
                if (y != 0) /* one-hot labels are mostly 0 */
                    add_scaled(width, weight * y, labels + q * m + j0, row);
            }
        memcpy(tile[i], row, width * sizeof *row);
    }
    for (size_t j = 0; j < width; j++) {
        double *row = gram + (j0 + j) * m + i0;
        for (size_t i = i0 > j0 ? 0 : j + 1; i < height; i++)
            row[i] = tile[i][j];
    }
}

void fc_barycenter_complete(size_t m, size_t c, double weight, const double *labels,
                            double *gram)
{
    for (size_t i0 = 0; i0 < m; i0 += TILE)
        for (size_t j0 = 0; j0 <= i0; j0 += TILE)
            complete_tile(m, c, weight, labels, i0, j0, gram);
}

typedef struct {
    fc_idx K, n;
    size_t m, stride; /* entries from one row of costs to the next */
    const double *gram;
    double *square, *product, *share, *C, *u, *v;
    fc_assign_work *work;
} barycenter;

/* Costs of the mean of points s, in rows, and each atom's, in columns. All products are
 * in the Gram matrix: a turn takes K^2 n^2 sums, whatever the number of columns. */
static void fill_costs(barycenter *b, const fc_idx *s)
{
    const size_t n = (size_t)b->n, m = b->m;
    for (size_t i = 0; i < n; i++) {
        double norm = 0;
        bool begun = false;
        for (fc_idx k = 0; k < b->K; k++)
            if (b->share[k] > 0) {
                size_t point = (size_t)k * n + (size_t)s[(size_t)k * n + i];
                (begun ? add_scaled : scale)(m, b->share[k], b->gram + point * m,
                                             b->product);
                begun = true;
            }
        for (fc_idx k = 0; k < b->K; k++)
            norm +=
                b->share[k] * b->product[(size_t)k * n + (size_t)s[(size_t)k * n + i]];
        for (size_t k = 0; k < (size_t)b->K; k++)
            distances(n, norm, b->square + k * n, b->product + k * n,
                      b->C + (k * n + i) * b->stride);
    }
}

static fc_status solve(barycenter *b, const double *weights, fc_idx max_iter,
                       double tol, fc_idx *s, double *objective)
{
    const size_t n = (size_t)b->n;
    for (fc_idx turn = 0; turn < max_iter; turn++) {
        double total = 0, cost, slack;
        fill_costs(b, s);
        for (size_t k = 0; k < (size_t)b->K; k++) {
            if (fc_assign_f64(b->n, b->stride, b->C + k * n * b->stride, turn > 0,
                              s + k * n, b->u, b->v + k * n, &cost, &slack, b->work))
                return FC_BARYCENTER_NOT_FINITE;
            total += weights[k] * cost;
        }
        memcpy(b->share, weights, (size_t)b->K * sizeof *weights);
        objective[turn] = total;
        if (turn && fabs(objective[turn - 1] - total) <= tol * objective[0])
            return turn + 1;
    }
    return max_iter;
}

fc_status fc_barycenter(fc_idx K, fc_idx n, const double *gram, const double *weights,
                        fc_idx first, fc_idx max_iter, double tol, fc_idx *s,
                        double *objective)
{
    const size_t m = (size_t)K * (size_t)n;
    size_t stride = (size_t)n;
    if (stride * sizeof(double) % PAGE == 0)
        stride += LINE / sizeof(double);
    size_t numbers = m * stride + 3 * m + (size_t)n + (size_t)K;
    double *room = malloc(numbers * sizeof *room);
    fc_assign_work *work = fc_assign_work_new(n);
    fc_status turns = FC_BARYCENTER_NO_MEMORY;

    if (room && work) {
        barycenter b = {.K = K, .n = n, .m = m, .stride = stride, .gram = gram};
        b.work = work;
        b.C = room;
        b.square = b.C + m * stride;
        b.product = b.square + m;
        b.v = b.product + m;
        b.u = b.v + m;
        b.share = b.u + n;
        for (size_t j = 0; j < m; j++)
            b.square[j] = gram[j * m + j];
        for (size_t j = 0; j < m; j++)
            s[j] = (fc_idx)(j % (size_t)n);
        for (fc_idx k = 0; k < K; k++)
            b.share[k] = k == first;
        turns = solve(&b, weights, max_iter, tol, s, objective);
    }
    fc_assign_work_free(work);
    free(room);
    return turns;
}

void fc_barycenter_mean_f64(fc_idx K, fc_idx n, size_t d, const double *X,
                            const double *weights, const fc_idx *s, double *out)
{
    for (size_t i = 0; i < (size_t)n; i++)
        for (size_t k = 0; k < (size_t)K; k++) {
            size_t point = k * (size_t)n + (size_t)s[k * (size_t)n + i];
            (k ? add_scaled : scale)(d, weights[k], X + point * d, out + i * d);
        }
}

void fc_barycenter_mean_f32(fc_idx K, fc_idx n, size_t d, const float *X,
                            const double *weights, const fc_idx *s, double *out)
{
    for (size_t i = 0; i < (size_t)n; i++)
        for (size_t k = 0; k < (size_t)K; k++) {
            const float *row = X + (k * (size_t)n + (size_t)s[k * (size_t)n + i]) * d;
            for (size_t j = 0; j < d; j++)
                out[i * d + j] = (k ? out[i * d + j] : 0) + weights[k] * row[j];
        }
}
