/* Personal heads of many clients on common codes (math.md, section 4).
 *
 * Head i scores a code h (r) by h A_i + c_i, C numbers. Its rows are starts[i] to
 * starts[i + 1] - 1; their weights add up to 1. It minimises
 *
 *   sum weight loss(h A_i + c_i, y) + l2_i / 2 |A_i|^2 */
#ifndef FC_HEADS_H
#define FC_HEADS_H

#include "fc_config.h"

typedef enum { FC_HEAD_SQUARED, FC_HEAD_LOGISTIC, FC_HEAD_SOFTMAX } fc_head_loss;

/* Rows of all heads; borrowed, never freed. */
typedef struct {
    fc_idx n_heads, n_components, n_outputs; /* C is 1 but for softmax */
    const int64_t *starts;                   /* (n_heads + 1) */
    const double *codes;                     /* (n, r) */
    const double *target; /* (n) or, of classifiers, codes of classes */
    const double *weight; /* (n) */
    const double *l2;     /* (n_heads) */
} fc_head_rows;

/* Doubles that the calls below need as work, for heads of at most n_most rows. */
size_t fc_head_work_size(fc_idx n_components, fc_idx n_outputs, int64_t n_most);

/* Take gradient steps of length 1 / (bend (1 + mean |h|^2) + l2), where bend bounds the
 * second derivative of the loss: 1, 1/4 or 1/2.
 *
 *   A (n_heads, r, C), c (n_heads, C)  in/out
 *   work                               fc_head_work_size doubles
 *
 * For the squared loss many steps use the codes' second moments instead of rows. Cannot
 * fail. */
void fc_head_steps(const fc_head_rows *rows, fc_head_loss loss, fc_idx n_steps,
                   double *A, double *c, double *work);

/* Minimise the squared loss exactly; C = 1. A ridge of at least 1e-12 of the codes'
 * mean variance stands in for l2.
 *
 *   A (n_heads, r), c (n_heads)  out
 *
 * Returns how many heads had codes that are not finite; their numbers are NaN. */
fc_status fc_head_ridge(const fc_head_rows *rows, double *A, double *c, double *work);

#endif /* FC_HEADS_H */
