/* Labelled barycenters of point sets of equal size (math.md, section 3). */
#ifndef FC_BARYCENTER_H
#define FC_BARYCENTER_H

#include "fc_config.h"

enum { FC_BARYCENTER_NOT_FINITE = -1, FC_BARYCENTER_NO_MEMORY = -2 };

/* The largest squared distance of a point of atom `first` to any point.
 *
 *   K, n          atoms, points of each; the m = K n points are numbered through
 *   gram   (m,m)  products of all points, of each pair below the diagonal and on it
 */
double fc_barycenter_spread(fc_idx K, fc_idx n, const double *gram, fc_idx first);

/* gram += weight y y' for labels y, and what is below the diagonal above it too.
 *
 *   labels (c,m)  a row a class
 *   gram   (m,m)  in: as above
 */
void fc_barycenter_complete(size_t m, size_t c, double weight, const double *labels,
                            double *gram);

/* From the points of atom `first`, assign every atom and average, in turns.
 *
 *   weights  (K)  not negative, summing to 1
 *   tol           stop when the objective moves by less than this part of its first
 *   s      (K,n)  out: point of each atom that belongs to each of the barycenter
 *   objective (max_iter)  out: weighted mean cost of each turn, before it averages
 *
 * gram (m,m) is complete. Returns the number of turns, or a negative number if costs
 * overflow or there is no memory. */
fc_status fc_barycenter(fc_idx K, fc_idx n, const double *gram, const double *weights,
                        fc_idx first, fc_idx max_iter, double tol, fc_idx *s,
                        double *objective);

/* out (n, d) = sum_k weights_k X_k[s_k]; X (K, n, d). */
void fc_barycenter_mean_f64(fc_idx K, fc_idx n, size_t d, const double *X,
                            const double *weights, const fc_idx *s, double *out);
void fc_barycenter_mean_f32(fc_idx K, fc_idx n, size_t d, const float *X,
                            const double *weights, const fc_idx *s, double *out);

#endif /* FC_BARYCENTER_H */
