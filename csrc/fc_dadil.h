/* Steps of labelled dictionaries: gradients through permutations, and Adam (math.md,
 * section 3). */
#ifndef FC_DADIL_H
#define FC_DADIL_H

#include "fc_config.h"

/* Scatter the gradient of scale/2 sum_i |B_i - Q_p(i)|^2, B_i = sum_k alpha_k
 * X_k[s_k(i)].
 *
 *   K, n, d       atoms, points of each, columns
 *   X      (K,n,d), B (n,d), Q (n,d), alpha (K)
 *   s (K,n), p (n)
 *   g      (d)      room
 *   dX     (K,n,d)  in/out: the gradient by X is added
 *   dalpha (K)      in/out: the same, by alpha
 */
void fc_dadil_scatter(fc_idx K, fc_idx n, size_t d, double scale, const double *X,
                      const double *B, const double *Q, const double *alpha,
                      const fc_idx *s, const fc_idx *p, double *g, double *dX,
                      double *dalpha);

/* Step t >= 1 of Adam on m numbers, in place: decays .9 and .999, floor 1e-8. */
void fc_dadil_adam(size_t m, double rate, double t, const double *gradient, double *x,
                   double *first, double *second);

#endif /* FC_DADIL_H */
