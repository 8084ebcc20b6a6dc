/* The tau entries of largest magnitude: hard thresholding (math.md, section 2).
 *
 * Exactly tau entries stay; among equal magnitudes the lowest place wins. An entry of
 * value 0 is never listed, so there are fewer when x has fewer that are not zero. No
 * entry may be NaN. */
#ifndef FC_SELECT_H
#define FC_SELECT_H

#include "fc_config.h"
#include <stdbool.h>

/* Work space for n entries, each array of n. */
typedef struct {
    int32_t *key, *band;
    fc_idx *at, *tie;
} fc_select_work;

/* List the tau entries of x (n) of largest magnitude.
 *
 *   place (n)   what breaks ties, all different; NULL: the position itself
 *   tau         any number; tau <= 0 lists nothing, tau >= n all that is not zero
 *   hint        in/out: about where an earlier cut was, 0 for unknown; it changes the
 *               time, never the result
 *   out  (min(n, tau))  out: positions, ascending
 *   tied        out: equal magnitudes met at the cut, so `place` was asked; may be NULL
 *
 * Returns how many are listed. Allocates nothing, cannot fail. */
fc_idx fc_top_f64(fc_idx n, const double *x, const fc_idx *place, fc_idx tau,
                  int32_t *hint, fc_idx *out, bool *tied, const fc_select_work *work);
fc_idx fc_top_f32(fc_idx n, const float *x, const fc_idx *place, fc_idx tau,
                  int32_t *hint, fc_idx *out, bool *tied, const fc_select_work *work);

#endif /* FC_SELECT_H */
