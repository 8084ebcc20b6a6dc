/* Local steps of hard-thresholded sparse learning (math.md, section 2).
 *
 * A cohort is a range of clients whose rows stand one after another; every call works
 * on a list of its clients, one after another. Rows are dense, or CSR with the columns
 * of each client renumbered by fc_compact (no constant column). Reals of X may be float
 * or double; everything else is double.
 *
 * Iterates cross as pairs (place, value) over the (C, d) coefficients, place = c d + j,
 * and C intercepts. The intercept is neither thresholded nor shrunk by l2. On CSR rows
 * a step costs O(nnz of the batch + tau), whatever d is. */
#ifndef FC_IHT_H
#define FC_IHT_H

#include "fc_config.h"
#include "fc_select.h"
#include <stdbool.h>

typedef enum { FC_SQUARED, FC_LOGISTIC, FC_SOFTMAX } fc_iht_loss;

/* Rows of all clients of a cohort; borrowed, never freed. */
typedef struct {
    fc_idx n_clients, n_columns;
    const int64_t *offsets; /* (n_clients + 1) rows of client k */
    const int64_t *starts;  /* (n_clients + 1) its columns in one list; dense: NULL */
    const fc_idx *columns;  /* (starts[K]) column of each feature; dense: NULL */
    const fc_idx *sorted;   /* (starts[K]) the same, ascending within a client */
    const fc_idx *feature;  /* (starts[K]) feature of each of those */
    const fc_idx *indptr;   /* (n + 1); dense: NULL */
    const fc_idx *indices;  /* features; dense: NULL */
    const void *data;       /* (nnz) or (n, n_columns), float or double */
} fc_iht_rows;

typedef struct {
    fc_iht_loss loss;
    fc_idx n_outputs; /* C; 1 but for softmax */
    bool intercept;
    const fc_idx *code;   /* (n) 0 or 1 for logistic, 0 .. C - 1 for softmax */
    const double *target; /* (n) for squared */
    const double *weight; /* (n) divided by the mean over the client's rows that are
                             not left out, or NULL for ones */
    const fc_idx *kept;   /* rows of positive weight, counted from the client's first */
    const int64_t *kept_offsets; /* (n_clients + 1) into kept; NULL: all rows */
} fc_iht_problem;

/* Where a call starts, and how it works. */
typedef struct {
    fc_idx n_start;          /* pairs, places ascending */
    const fc_idx *index;     /* (n_start) */
    const double *value;     /* (n_start) */
    const double *intercept; /* (C) */
    fc_idx n_steps, batch;   /* batch: rows of a step, 0 for all */
    fc_idx tau;              /* fc_iht_iterate: entries that stay after each step */
    double l2;
    uint64_t seed; /* these three name the draws */
    uint32_t exchange, first_client;
    /* Added to the gradient in every step; NULL for none. */
    const int64_t *correction_offsets; /* (n_active + 1) */
    const fc_idx *correction_index;    /* places ascending within a client */
    const double *correction_value, *correction_intercept; /* -, (n_active, C) */
} fc_iht_call;

/* Work space: W is the largest width of fc_iht_width. */
typedef struct {
    double *x;             /* (W, C) zero on entry and on return */
    uint8_t *mark;         /* (W) likewise */
    fc_idx *list;          /* (W) */
    double *candidate;     /* (W, C) */
    fc_idx *place;         /* (W, C) */
    fc_idx *chosen;        /* (W, C) */
    fc_idx *support;       /* (W, C) */
    fc_idx *foreign;       /* (n_start + most corrections of a client) */
    fc_idx *order;         /* (most rows) 0, 1, 2, .. on entry and on return */
    fc_idx *rows;          /* (most rows) */
    double *slope;         /* (most rows, C) */
    fc_select_work select; /* for (W, C) entries */
} fc_iht_work;

/* Features that client k may touch: its own columns and those that start or correction
 * bring along. */
int64_t fc_iht_width(const fc_iht_rows *X, const fc_iht_call *call, fc_idx k, fc_idx m);

/* Run call->n_steps steps x <- H_tau(x - step_k grad) at each active client.
 *
 *   active (n_active)          clients
 *   step   (n_active)
 *   index, value (n_active, tau) out: client after client without gaps, the pairs that
 *                              are not zero, places ascending
 *   counts (n_active)          out: pairs of each client
 *   intercepts (n_active, C)   out
 *
 * A step that is too large ends in infinities or NaN, never in anything worse. */
void fc_iht_iterate_f64(const fc_iht_rows *X, const fc_iht_problem *problem,
                        const fc_iht_call *call, const fc_iht_work *work,
                        const fc_idx *active, fc_idx n_active, const double *step,
                        fc_idx *index, double *value, int64_t *counts,
                        double *intercepts);
void fc_iht_iterate_f32(const fc_iht_rows *X, const fc_iht_problem *problem,
                        const fc_iht_call *call, const fc_iht_work *work,
                        const fc_idx *active, fc_idx n_active, const double *step,
                        fc_idx *index, double *value, int64_t *counts,
                        double *intercepts);

/* The same without thresholds: total (C, d) in/out gains share_k x_k. */
void fc_iht_descend_f64(const fc_iht_rows *X, const fc_iht_problem *problem,
                        const fc_iht_call *call, const fc_iht_work *work,
                        const fc_idx *active, fc_idx n_active, const double *step,
                        const double *share, double *total, double *intercepts);
void fc_iht_descend_f32(const fc_iht_rows *X, const fc_iht_problem *problem,
                        const fc_iht_call *call, const fc_iht_work *work,
                        const fc_idx *active, fc_idx n_active, const double *step,
                        const double *share, double *total, double *intercepts);

/* Loss and gradient at the start, on all rows or on the batch of step 0; without l2.
 *
 *   total (C, d)     in/out: gains share_k g_k; NULL: losses only
 *   intercept (C)    in/out: likewise
 *   losses (n_active) out: mean over the rows used */
void fc_iht_gradient_f64(const fc_iht_rows *X, const fc_iht_problem *problem,
                         const fc_iht_call *call, const fc_iht_work *work,
                         const fc_idx *active, fc_idx n_active, const double *share,
                         double *total, double *intercept, double *losses);
void fc_iht_gradient_f32(const fc_iht_rows *X, const fc_iht_problem *problem,
                         const fc_iht_call *call, const fc_iht_work *work,
                         const fc_idx *active, fc_idx n_active, const double *share,
                         double *total, double *intercept, double *losses);

/* Add pairs of equal place, in the order in which they stand, and sort by place.
 *
 *   n pairs   in/out; all arrays (n), places below `limit`; two are work
 *
 * Returns how many places there are. */
int64_t fc_iht_add_pairs(int64_t n, fc_idx limit, fc_idx *index, double *value,
                         fc_idx *other_index, double *other_value);

#endif /* FC_IHT_H */
