/* Optimal assignments: exact transport between sets of equal size and uniform weights
 * (math.md, section 3). */
#ifndef FC_ASSIGN_H
#define FC_ASSIGN_H

#include "fc_config.h"

#include <stdbool.h>

/* What a solver needs beside its arguments, for problems of up to n rows. */
typedef struct fc_assign_work fc_assign_work;

/* n > 0. Returns NULL when there is no memory. */
fc_assign_work *fc_assign_work_new(fc_idx n);
void fc_assign_work_free(fc_assign_work *work);

enum { FC_ASSIGN_NOT_FINITE = -1 };

/* Solve one problem: the permutation s that minimises sum_i C[i, s(i)].
 *
 *   n           rows and columns, > 0
 *   stride      entries from one row of C to the next, >= n
 *   C           costs
 *   warm        start from the prices in v, all finite: the optimum stays the same,
 *               those of a similar problem lead to it sooner
 *   s     (n)   out: column of each row
 *   u, v  (n)   out: prices of rows and columns (v: in/out), u_i = C[i, s(i)] - v_s(i)
 *   cost        out: mean of C[i, s(i)], added up in rows' order
 *   slack       out: the certificate, the largest u_i + v_j - C_ij, 0 but for rounding;
 *               the mean cost is at most slack above the optimum, up to
 *               rounding of u and v
 *
 * Returns FC_ASSIGN_NOT_FINITE, with nothing usable, if an entry is NaN or infinite, or
 * so large that sums of them are. Allocates nothing. */
fc_status fc_assign_f64(fc_idx n, size_t stride, const double *C, bool warm, fc_idx *s,
                        double *u, double *v, double *cost, double *slack,
                        fc_assign_work *work);
fc_status fc_assign_f32(fc_idx n, size_t stride, const float *C, bool warm, fc_idx *s,
                        double *u, double *v, double *cost, double *slack,
                        fc_assign_work *work);

#endif /* FC_ASSIGN_H */
