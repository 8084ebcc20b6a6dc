/* Dual coordinate ascent for multi-task linear SVMs (math.md, section 1).
 *
 * A cohort is a range of clients whose rows stand one after another; every call
 * works on a list of its clients, one after another. Rows are dense, or CSR with the
 * columns of each client renumbered by fc_compact. Reals of X may be float or double;
 * everything else is double. `b` are the signed multipliers, s_k = X_k' b_k.
 *
 * A client's local vectors have one entry for each of its columns; with a bias the
 * last one is the constant column. With C classes (one-vs-rest), the multipliers of
 * client k stand at b + C * offsets[k], class after class, and s_k at
 * s + C * starts[k], likewise. */
#ifndef FC_SVM_H
#define FC_SVM_H

#include "fc_config.h"
#include <stdbool.h>

typedef enum {
    FC_HINGE,
    FC_SQUARED_HINGE,
    FC_EPSILON_INSENSITIVE,
    FC_SQUARED_EPSILON_INSENSITIVE
} fc_svm_loss;

/* Rows of all clients of a cohort; borrowed, never freed. */
typedef struct {
    fc_idx n_clients, n_columns; /* the constant column is not counted */
    const int64_t *offsets;      /* (n_clients + 1) rows of client k */
    const int64_t *starts;       /* (n_clients + 1) its local vectors in one long one */
    const fc_idx *columns; /* (starts[K]) column of each entry of it; dense: NULL */
    const fc_idx *indptr;  /* (n + 1); dense: NULL */
    const fc_idx *indices; /* places in the client's list of columns; dense: NULL */
    const void *data;      /* (nnz) or (n, n_columns), float or double */
} fc_svm_rows;

/* What is fitted. A weight of 0 leaves a row out. */
typedef struct {
    fc_svm_loss loss;
    fc_idx n_classes;           /* problems side by side; 1 for two classes */
    double C1, epsilon, bias;   /* bias: the constant column, 0 for none */
    const fc_idx *code;         /* (n) labels; positive is c, or 1 when n_classes = 1 */
    const double *target;       /* (n) in regression */
    const double *weight;       /* (n), or NULL for ones */
    const double *class_weight; /* (C, 2): rows outside and inside the class, or NULL */
    const uint8_t *absent;      /* (K, C) 1: the personal part is held at 0, or NULL */
    const double *sqnorm;       /* (n) |x_i|^2, constant column included */
    const uint8_t *personal;    /* (d + has_bias) 0: in this column v_k is 0; or NULL */
    const double *own_sqnorm;   /* (n) |x_i|^2 over the personal columns, or NULL */
} fc_svm_problem;

/* What the clients keep between calls. */
typedef struct {
    double *b, *s;
    double *b_before, *s_before; /* as before the last visit; fc_svm_update needs
                                    them, with fc_svm_solve alone they may be NULL */
    uint8_t *rest;     /* as b: visits for which a settled row is left alone */
    double *violation; /* (K, C) largest of the last visit, infinite at first */
} fc_svm_state;

/* How a call works. */
typedef struct {
    const double *coupling;      /* (C) weight of w in a step: 1 when nobody else moves
                                    it, more when others do; fc_svm_update */
    const double *inv_C2;        /* (C) 1 / C2 */
    const double *inv_C2_absent; /* (C) the same where the class is absent */
    const uint8_t *working;      /* (C) classes that are not done */
    fc_idx passes;               /* fc_svm_solve: at most so many */
    bool renew;                  /* fc_svm_solve: first recompute s = X' b */
    bool hand_on;                /* a client works from the w its forerunners left */
    uint64_t seed;               /* these three name the random orders */
    uint32_t exchange, first_client;
    int (*stop)(void *asked); /* fc_svm_solve: asked every few milliseconds; true:
                                 give up, the results are then of no use; or NULL */
    void *asked;
} fc_svm_call;

/* Figures of a call, one row a class, added over its clients. */
enum { FC_SVM_LINEAR, FC_SVM_QUADRATIC, FC_SVM_SEEN_GAP, FC_SVM_N_UPDATE };
enum {
    FC_SVM_GAP,
    FC_SVM_PRIMAL,
    FC_SVM_DUAL,
    FC_SVM_TRUE_PRIMAL,
    FC_SVM_TRUE_DUAL,
    FC_SVM_PASSES,
    FC_SVM_N_SOLVE
};

enum { FC_SVM_WINDOW = 10 }; /* passes from which fc_svm_solve extrapolates */

/* CSR rows in another order: each row's lone entries first, those in columns that no
 * other row of the client has; the others name their column by its place in the
 * client's list of repeated ones, which ends with the constant column if there is a
 * bias. */
typedef struct {
    const fc_idx *split;   /* (n) end of the row's lone entries; it ends as in CSR */
    const fc_idx *place;   /* (nnz) column, or place in the list */
    const float *data;     /* (nnz) */
    const double *sqnorm;  /* (n) squares of the lone entries */
    const fc_idx *columns; /* the clients' lists, one after another */
    const int64_t *starts; /* (n_clients + 1) where each begins */
} fc_svm_lone;

/* Doubles and indices of work space that the largest client needs. */
typedef struct {
    double *u;     /* (longest local vector) */
    fc_idx *order; /* (largest number of rows) */
    double *past;  /* (FC_SVM_WINDOW + 1, largest number of rows), fc_svm_solve only */
    double *ds;    /* (longest local vector), not for fc_svm_update */
    double *own;   /* (longest local vector), where some columns are not personal */
    double
        *interior; /* fc_svm_interior_work(rows, longest) of them, fc_svm_solve only */
} fc_svm_work;

/* Doubles of fc_svm_work.interior for so many rows and so long a local vector. */
size_t fc_svm_interior_work(fc_idx rows, fc_idx length);

/* |x_i|^2 of every row, constant column included: out (n); and a float copy of the data
 * in mirror, unless that is NULL. */
void fc_svm_sqnorms_f64(const fc_svm_rows *X, double bias, double *out, float *mirror);
void fc_svm_sqnorms_f32(const fc_svm_rows *X, double bias, double *out, float *mirror);

/* |x_i|^2 of every row over the personal columns alone: out (n). */
void fc_svm_own_sqnorms_f64(const fc_svm_rows *X, double bias, const uint8_t *personal,
                            double *out);
void fc_svm_own_sqnorms_f32(const fc_svm_rows *X, double bias, const uint8_t *personal,
                            double *out);

/* Run call->passes passes at each active client.
 *
 *   active (n_active)        clients, in the order of the work
 *   step   (n_active, C)     share of the client's last visit that counts, or NULL;
 *          taken once: 1 from then on, whoever calls next
 *   w      (C, d + has_bias) the shared model; with call->hand_on in/out: gains
 *          `coupling` times the clients' changes of s
 *   dw     (C, d + has_bias) in/out: gains the clients' changes of s; with `packed`
 *          instead: (sum of the active clients' C * width) the changes themselves,
 *          untouched where a class is not working; not used with call->hand_on
 *   figures (C, FC_SVM_N_UPDATE) in/out: a_k, q_k of the line search, and the gap
 *          as met row by row in the first pass */
void fc_svm_update_f64(const fc_svm_rows *X, const fc_svm_problem *problem,
                       const fc_svm_call *call, fc_svm_state *state,
                       const fc_svm_work *work, const fc_idx *active, fc_idx n_active,
                       const double *step, double *w, double *dw, bool packed,
                       double *figures);
void fc_svm_update_f32(const fc_svm_rows *X, const fc_svm_problem *problem,
                       const fc_svm_call *call, fc_svm_state *state,
                       const fc_svm_work *work, const fc_idx *active, fc_idx n_active,
                       const double *step, double *w, double *dw, bool packed,
                       double *figures);

/* Fill what fc_svm_lone borrows; columns has room for starts[n_clients] of X. repeated
 * (longest local vector) is work space. Returns the length of all lists. */
int64_t fc_svm_set_lone_apart_f64(const fc_svm_rows *X, bool has_bias, fc_idx *repeated,
                                  fc_idx *split, fc_idx *place, float *data,
                                  double *sqnorm, fc_idx *columns, int64_t *starts);
int64_t fc_svm_set_lone_apart_f32(const fc_svm_rows *X, bool has_bias, fc_idx *repeated,
                                  fc_idx *split, fc_idx *place, float *data,
                                  double *sqnorm, fc_idx *columns, int64_t *starts);

/* fc_svm_update with call->hand_on over rows with their lone entries apart, where all
 * columns are personal. s is left as it was, for it follows from b: fc_svm_solve must
 * renew it. */
void fc_svm_update_lone(const fc_svm_rows *X, const fc_svm_lone *lone,
                        const fc_svm_problem *problem, const fc_svm_call *call,
                        fc_svm_state *state, const fc_svm_work *work,
                        const fc_idx *active, fc_idx n_active, const double *step,
                        double *w, double *figures);

/* Envelope: solve each active client's own dual at a fixed w to an absolute gap.
 *
 *   tol    (C)               absolute gap at which a client stops; negative infinity:
 *                            no pass at all, measure only
 *   true_inv_C2 (C), true_inv_C2_absent (C)  curvatures of the certificate
 *   s_sum  (C, d + has_bias) in/out: gains s_k; packed as above
 *   figures (C, FC_SVM_N_SOLVE) in/out: gap_k, P_k, d_k, the same two at the true
 *          curvatures, and the passes made */
void fc_svm_solve_f64(const fc_svm_rows *X, const fc_svm_problem *problem,
                      const fc_svm_call *call, fc_svm_state *state,
                      const fc_svm_work *work, const fc_idx *active, fc_idx n_active,
                      const double *step, const double *tol, const double *true_inv_C2,
                      const double *true_inv_C2_absent, const double *w, double *s_sum,
                      bool packed, double *figures);
void fc_svm_solve_f32(const fc_svm_rows *X, const fc_svm_problem *problem,
                      const fc_svm_call *call, fc_svm_state *state,
                      const fc_svm_work *work, const fc_idx *active, fc_idx n_active,
                      const double *step, const double *tol, const double *true_inv_C2,
                      const double *true_inv_C2_absent, const double *w, double *s_sum,
                      bool packed, double *figures);

/* Take the step, then measure each active client at w: gaps (n_active, C) gets gap_k,
 * and is untouched where a class is not working. work: only u is used. */
void fc_svm_gaps_f64(const fc_svm_rows *X, const fc_svm_problem *problem,
                     const fc_svm_call *call, fc_svm_state *state,
                     const fc_svm_work *work, const fc_idx *active, fc_idx n_active,
                     const double *step, const double *w, double *gaps);
void fc_svm_gaps_f32(const fc_svm_rows *X, const fc_svm_problem *problem,
                     const fc_svm_call *call, fc_svm_state *state,
                     const fc_svm_work *work, const fc_idx *active, fc_idx n_active,
                     const double *step, const double *w, double *gaps);

#endif /* FC_SVM_H */
