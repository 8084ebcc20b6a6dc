#include "check.h"
#include "fc_compact.h"
#include "fc_svm.h"

#include <math.h>
#include <string.h>

enum { CLIENTS = 4, ROWS = 9, COLUMNS = 4, WIDTH = COLUMNS + 1, LOSSES = 4 };

/* Clients of 4, 0, 3 and 2 rows. Quarters are exact in float; `code` is the sign of the
 * first column less the second, and `target` is twice that, so both can be met. */
static const int64_t OFFSETS[CLIENTS + 1] = {0, 4, 4, 7, 9};
static const fc_idx EVERYBODY[CLIENTS] = {0, 1, 2, 3};
static const double ROW[ROWS][COLUMNS] = {
    {2, 0.5, 0, 1},    {0, 1.25, 0, 0},  {0.75, 2, -1, 0},
    {-0.5, -2, 0, 3},  {1, 0, 0, 0.25},  {-1, 0, 0.5, 0},
    {0, -1.5, -2, -1}, {0.25, 1, 0, -4}, {3, 0, 0, 1.75},
};
static const fc_idx CODE[ROWS] = {1, 0, 0, 1, 1, 0, 1, 0, 1};
static const double TARGET[ROWS] = {3, -2.5, -2.5, 3, 2, -2, 3, -1.5, 6};

/* Clients and all the memory that they need. */
typedef struct {
    fc_svm_rows X;
    fc_svm_problem problem;
    fc_svm_state state;
    fc_svm_work work;
    bool single;
    int64_t starts[CLIENTS + 1];
    fc_idx indptr[ROWS + 1], indices[ROWS * COLUMNS], order[ROWS];
    fc_idx columns[ROWS * COLUMNS + CLIENTS];
    double values[ROWS * COLUMNS], sqnorm[ROWS], own_sqnorm[ROWS], u[WIDTH], own[WIDTH];
    float values32[ROWS * COLUMNS];
    double b[ROWS], b_before[ROWS], s[CLIENTS * WIDTH], s_before[CLIENTS * WIDTH];
    double violation[CLIENTS], past[(FC_SVM_WINDOW + 1) * ROWS], ds[WIDTH];
    double interior[WIDTH * WIDTH + 2 * WIDTH + 12 * ROWS];
    uint8_t rest[ROWS];
} clients;

static void set_sparse(clients *f)
{
    fc_idx global[ROWS * COLUMNS], place[COLUMNS], nnz = 0;
    uint64_t bits[1] = {0};

    for (fc_idx i = 0; i < ROWS; i++) {
        for (fc_idx j = 0; j < COLUMNS; j++) {
            if (ROW[i][j] == 0)
                continue;
            global[nnz] = j;
            f->values[nnz++] = ROW[i][j];
        }
        f->indptr[i + 1] = nnz;
    }
    fc_compact(CLIENTS, COLUMNS, OFFSETS, f->indptr, global, true, place, bits,
               f->indices, f->columns, f->starts);
    f->X.columns = f->columns;
    f->X.indptr = f->indptr;
    f->X.indices = f->indices;
}

static void set_up(clients *f, fc_svm_loss loss, bool sparse, bool single)
{
    memset(f, 0, sizeof *f);
    f->X = (fc_svm_rows){.n_clients = CLIENTS,
                         .n_columns = COLUMNS,
                         .offsets = OFFSETS,
                         .starts = f->starts};
    if (sparse) {
        set_sparse(f);
    } else {
        memcpy(f->values, ROW, sizeof ROW);
        for (fc_idx k = 0; k <= CLIENTS; k++)
            f->starts[k] = k * (int64_t)WIDTH;
    }
    for (fc_idx p = 0; p < ROWS * COLUMNS; p++)
        f->values32[p] = (float)f->values[p];
    f->single = single;
    f->X.data = single ? (void *)f->values32 : f->values;

    bool classifies = loss == FC_HINGE || loss == FC_SQUARED_HINGE;
    f->problem = (fc_svm_problem){.loss = loss,
                                  .n_classes = 1,
                                  .C1 = 2,
                                  .epsilon = 0.25,
                                  .bias = 0.5,
                                  .code = classifies ? CODE : NULL,
                                  .target = classifies ? NULL : TARGET,
                                  .sqnorm = f->sqnorm};
    f->state = (fc_svm_state){.b = f->b,
                              .s = f->s,
                              .b_before = f->b_before,
                              .s_before = f->s_before,
                              .rest = f->rest,
                              .violation = f->violation};
    for (fc_idx k = 0; k < CLIENTS; k++)
        f->violation[k] = INFINITY;
    f->work = (fc_svm_work){.u = f->u,
                            .order = f->order,
                            .past = f->past,
                            .ds = f->ds,
                            .own = f->own,
                            .interior = f->interior};
    CHECK(fc_svm_interior_work(ROWS, WIDTH) * sizeof(double) <= sizeof f->interior);
    if (single)
        fc_svm_sqnorms_f32(&f->X, f->problem.bias, f->sqnorm, NULL);
    else
        fc_svm_sqnorms_f64(&f->X, f->problem.bias, f->sqnorm, NULL);
}

static const double ONE = 1, HALF = 0.5, MEASURE = -INFINITY;
static const uint8_t WORKING = 1;

static fc_svm_call call_of(uint32_t exchange, fc_idx passes)
{
    return (fc_svm_call){.coupling = &ONE,
                         .inv_C2 = &HALF,
                         .inv_C2_absent = &HALF,
                         .working = &WORKING,
                         .passes = passes,
                         .seed = 7,
                         .exchange = exchange};
}

static void update(clients *f, const fc_svm_call *call, double *w, double *dw,
                   bool packed, double *figures)
{
    (f->single ? fc_svm_update_f32
               : fc_svm_update_f64)(&f->X, &f->problem, call, &f->state, &f->work,
                                    EVERYBODY, CLIENTS, NULL, w, dw, packed, figures);
}

static void solve(clients *f, const fc_svm_call *call, const double *step, double tol,
                  const double *w, double *s_sum, double *figures)
{
    (f->single ? fc_svm_solve_f32 : fc_svm_solve_f64)(
        &f->X, &f->problem, call, &f->state, &f->work, EVERYBODY, CLIENTS, step, &tol,
        &HALF, &HALF, w, s_sum, false, figures);
}

static double inner(const double *x, const double *y)
{
    double sum = 0;
    for (int j = 0; j < WIDTH; j++)
        sum += x[j] * y[j];
    return sum;
}

static double farthest(int n, const double *x, const double *y)
{
    double most = 0;
    for (int i = 0; i < n; i++)
        most = isfinite(x[i] - y[i]) ? fmax(most, fabs(x[i] - y[i])) : INFINITY;
    return most;
}

static bool same(int n, const double *x, const double *y)
{
    for (int i = 0; i < n; i++)
        if (x[i] != y[i])
            return false;
    return true;
}

/* 0 <= y b <= U for classes, |b| <= U for targets; U is infinite when squared. */
static bool feasible(const clients *f)
{
    bool squared = f->problem.loss == FC_SQUARED_HINGE ||
                   f->problem.loss == FC_SQUARED_EPSILON_INSENSITIVE;
    for (fc_idx i = 0; i < ROWS; i++) {
        double upper = f->problem.C1 * (f->problem.weight ? f->problem.weight[i] : 1);
        if (upper > 0 && squared)
            upper = INFINITY;
        if (!(fabs(f->b[i]) <= upper) ||
            (f->problem.code && f->b[i] * (CODE[i] ? 1 : -1) < 0))
            return false;
    }
    return true;
}

/* Turns of all clients until the gap of the whole problem is at most 1e-10. */
static double fit(clients *f, double *w)
{
    double gap = INFINITY, rest[WIDTH] = {0};

    memset(w, 0, WIDTH * sizeof *w);
    for (uint32_t round = 0; round < 5000 && gap > 1e-10; round++) {
        double figures[FC_SVM_N_UPDATE] = {0}, measured[FC_SVM_N_SOLVE] = {0};
        double s_sum[WIDTH] = {0};
        fc_svm_call call =
            call_of(round, (fc_idx)(1 + round % 2)); /* both kinds of passes */
        call.hand_on = true;
        update(f, &call, w, NULL, false, figures);
        solve(f, &call, NULL, MEASURE, w, s_sum, measured);
        for (int j = 0; j < WIDTH; j++)
            rest[j] = w[j] - s_sum[j];
        gap = measured[FC_SVM_GAP] + inner(rest, rest) / 2;
    }
    CHECK(inner(rest, rest) < 1e-20);
    return gap;
}

/* Every row is met by the personal model w + s_k / C2. */
static bool all_met(const clients *f, const double *w)
{
    for (fc_idx k = 0; k < CLIENTS; k++) {
        for (int64_t i = OFFSETS[k]; i < OFFSETS[k + 1]; i++) {
            double a = f->problem.bias * w[COLUMNS];
            for (fc_idx j = 0; j < COLUMNS; j++)
                a += ROW[i][j] * w[j];
            for (int64_t p = f->starts[k]; p < f->starts[k + 1]; p++) {
                int64_t j = f->X.columns ? f->columns[p] : p - f->starts[k];
                double x = j < COLUMNS ? ROW[i][j] : f->problem.bias;
                a += HALF * f->s[p] * x;
            }
            if (f->problem.code ? a * (CODE[i] ? 1 : -1) <= 0
                                : fabs(a - TARGET[i]) > 0.5)
                return false;
        }
    }
    return true;
}

static void test_turns_reach_the_optimum(fc_svm_loss loss)
{
    static clients dense, sparse, single;
    double w[WIDTH], w_sparse[WIDTH], w_single[WIDTH];

    set_up(&dense, loss, false, false);
    set_up(&sparse, loss, true, false);
    set_up(&single, loss, false, true);
    CHECK(fit(&dense, w) <= 1e-10);
    CHECK(fit(&sparse, w_sparse) <= 1e-10);
    CHECK(fit(&single, w_single) <= 1e-10);
    CHECK(feasible(&dense) && feasible(&sparse));
    CHECK(all_met(&dense, w));
    CHECK(all_met(&sparse, w_sparse));

    CHECK(farthest(WIDTH, w, w_sparse) < 1e-10);
    CHECK(farthest(ROWS, dense.b, sparse.b) < 1e-10);
    CHECK(same(WIDTH, w, w_single));
    CHECK(same(ROWS, dense.b, single.b));
}

static void test_solve_reaches_its_tolerance(fc_svm_loss loss)
{
    static const double w[WIDTH] = {0.25, -0.5, 0, 1, 0.125};
    static clients kinds[2][2]; /* sparse, single */
    double s_sum[2][2][WIDTH] = {{{0}}};

    for (int i = 0; i < 4; i++) {
        clients *f = &kinds[i / 2][i % 2];
        double figures[FC_SVM_N_SOLVE] = {0}, *s = s_sum[i / 2][i % 2];
        fc_svm_call call = call_of(3, 2000);
        set_up(f, loss, i / 2, i % 2);
        solve(f, &call, NULL, 1e-10, w, s, figures);
        double gap = figures[FC_SVM_PRIMAL] - figures[FC_SVM_DUAL] + inner(w, s);
        CHECK(figures[FC_SVM_GAP] <= CLIENTS * 1e-10);
        CHECK(fabs(figures[FC_SVM_GAP] - gap) < 1e-12);
        CHECK(figures[FC_SVM_PRIMAL] == figures[FC_SVM_TRUE_PRIMAL]);
        CHECK(figures[FC_SVM_PASSES] > 0 && figures[FC_SVM_PASSES] < CLIENTS * 2000);
        CHECK(feasible(f));
        CHECK(same(WIDTH, s, s_sum[i / 2][0]));
    }
    CHECK(farthest(WIDTH, s_sum[0][0], s_sum[1][0]) < 1e-10);
    CHECK(farthest(ROWS, kinds[0][0].b, kinds[1][0].b) < 1e-10);
}

/* A row of weight 0 may say what it likes. */
static void test_weight_0_leaves_a_row_out(fc_svm_loss loss)
{
    static const double weight[ROWS] = {1, 0, 1, 3, 1, 0.5, 1, 1, 1};
    fc_idx code[ROWS];
    double target[ROWS], w[WIDTH], other[WIDTH];
    static clients f;

    set_up(&f, loss, true, false);
    f.problem.weight = weight;
    CHECK(fit(&f, w) <= 1e-10);
    CHECK(feasible(&f)); /* b[1] is 0, the others at most C1 weight */

    memcpy(code, CODE, sizeof code);
    memcpy(target, TARGET, sizeof target);
    code[1] = !code[1];
    target[1] = 1e300;
    set_up(&f, loss, true, false);
    f.problem.weight = weight;
    if (f.problem.code)
        f.problem.code = code;
    else
        f.problem.target = target;
    CHECK(fit(&f, other) <= 1e-10);
    CHECK(same(WIDTH, w, other));
}

/* Step 0 undoes a visit to the bit, a packed change is that of s, and a client without
 * rows changes nothing. */
static void test_a_visit_can_be_undone(fc_svm_loss loss)
{
    static const double stay[CLIENTS] = {0};
    static clients f;
    double w[WIDTH] = {0}, first[WIDTH] = {0}, last[WIDTH] = {0};
    double b[ROWS], s[CLIENTS * WIDTH], ds[CLIENTS * WIDTH];
    double figures[FC_SVM_N_UPDATE] = {0}, measured[FC_SVM_N_SOLVE] = {0};
    fc_svm_call call = call_of(0, 3);

    set_up(&f, loss, true, false);
    update(&f, &call, w, first, false, figures);
    memcpy(b, f.b, sizeof b);
    memcpy(s, f.s, sizeof s);
    call.exchange = 1;
    update(&f, &call, w, ds, true, figures);
    CHECK(!same(ROWS, b, f.b));
    for (int64_t p = 0; p < f.starts[CLIENTS]; p++)
        CHECK(s[p] + ds[p] == f.s[p]);
    CHECK(f.starts[2] - f.starts[1] == 1 && f.s[f.starts[1]] == 0); /* no rows */

    solve(&f, &call, stay, MEASURE, w, last, measured);
    CHECK(same(ROWS, b, f.b));
    CHECK(same(CLIENTS * WIDTH, s, f.s));
    CHECK(farthest(WIDTH, first, last) < 1e-15);
    CHECK(measured[FC_SVM_PASSES] == 0);
}

static void test_gaps_add_up_to_what_solve_measures(fc_svm_loss loss)
{
    static clients kinds[2][2]; /* sparse, single */
    static const double half[CLIENTS] = {0.5, 0.5, 0.5, 0.5};
    double w[WIDTH] = {0.25, -0.5, 0, 1, 0.125}, s[WIDTH], ds[WIDTH];

    for (int i = 0; i < 4; i++) {
        clients *f = &kinds[i / 2][i % 2];
        double figures[FC_SVM_N_UPDATE] = {0}, measured[FC_SVM_N_SOLVE] = {0};
        double gaps[CLIENTS];
        fc_svm_call call = call_of(0, 3);
        set_up(f, loss, i / 2, i % 2);
        memset(s, 0, sizeof s);
        memset(ds, 0, sizeof ds);
        update(f, &call, w, ds, false, figures);
        (f->single ? fc_svm_gaps_f32 : fc_svm_gaps_f64)(&f->X, &f->problem, &call,
                                                        &f->state, &f->work, EVERYBODY,
                                                        CLIENTS, half, w, gaps);
        solve(f, &call, NULL, MEASURE, w, s, measured);
        double sum = 0;
        for (int k = 0; k < CLIENTS; k++) {
            CHECK(gaps[k] >= 0);
            sum += gaps[k];
        }
        CHECK(sum == measured[FC_SVM_GAP] && sum > 0);
        CHECK(gaps[1] == 0);            /* no rows */
        for (int j = 0; j < WIDTH; j++) /* the step was taken, once */
            CHECK(fabs(s[j] - ds[j] / 2) < 1e-14);
    }
}

static void set_personal(clients *f, const uint8_t *personal)
{
    f->problem.personal = personal;
    f->problem.own_sqnorm = f->own_sqnorm;
    (f->single ? fc_svm_own_sqnorms_f32 : fc_svm_own_sqnorms_f64)(
        &f->X, f->problem.bias, personal, f->own_sqnorm);
}

/* Primal less dual from b alone, with v_k in the personal columns; leaves w. */
static double gap_of(const clients *f, const uint8_t *personal, double *w)
{
    bool squared = f->problem.loss == FC_SQUARED_HINGE ||
                   f->problem.loss == FC_SQUARED_EPSILON_INSENSITIVE;
    double v[CLIENTS][WIDTH] = {{0}}, C1 = f->problem.C1, gap = 0;

    memset(w, 0, WIDTH * sizeof *w);
    for (int k = 0; k < CLIENTS; k++) {
        for (int64_t i = OFFSETS[k]; i < OFFSETS[k + 1]; i++) {
            for (int j = 0; j < WIDTH; j++) {
                double x = j < COLUMNS ? ROW[i][j] : f->problem.bias;
                w[j] += f->b[i] * x;
                v[k][j] += personal[j] ? HALF * f->b[i] * x : 0;
            }
        }
    }
    gap = inner(w, w);
    for (int k = 0; k < CLIENTS; k++) {
        gap += inner(v[k], v[k]) / HALF;
        for (int64_t i = OFFSETS[k]; i < OFFSETS[k + 1]; i++) {
            double a = f->problem.bias * (w[COLUMNS] + v[k][COLUMNS]);
            double y = f->problem.code ? (CODE[i] ? 1 : -1) : TARGET[i];
            double epsilon = f->problem.code ? 0 : f->problem.epsilon;
            for (int j = 0; j < COLUMNS; j++)
                a += ROW[i][j] * (w[j] + v[k][j]);
            double h = f->problem.code ? 1 - y * a : fabs(a - y) - epsilon;
            h = h > 0 ? h : 0;
            gap += C1 * (squared ? h * h : h) - y * f->b[i] + epsilon * fabs(f->b[i]);
            gap += squared ? f->b[i] * f->b[i] / (4 * C1) : 0;
        }
    }
    return gap;
}

/* Where some columns are not personal: the gap by the formula, for each kind of rows,
 * and a solve at the optimal w changes nothing that matters. */
static void test_some_columns_are_personal(fc_svm_loss loss)
{
    static const uint8_t masks[4][WIDTH] = {
        {0, 0, 0, 0, 1}, {1, 0, 1, 0, 0}, {0, 1, 0, 0, 1}, {1, 1, 1, 1, 1}};
    static clients f, all;
    double w[WIDTH], by_hand[WIDTH];

    for (int i = 0; i < 12; i++) {
        const uint8_t *personal = masks[i / 3];
        double figures[FC_SVM_N_SOLVE] = {0}, s_sum[WIDTH] = {0};
        fc_svm_call call = call_of(1, 2000);

        set_up(&f, loss, i % 3 == 1, i % 3 == 2);
        set_personal(&f, personal);
        CHECK(fit(&f, w) <= 1e-10);
        CHECK(feasible(&f));
        CHECK(fabs(gap_of(&f, personal, by_hand)) < 1e-9);
        CHECK(farthest(WIDTH, w, by_hand) < 1e-9);
        solve(&f, &call, NULL, 1e-10, w, s_sum, figures);
        CHECK(figures[FC_SVM_GAP] <= CLIENTS * 1e-10);
    }
    set_up(&all, loss, false, false);
    CHECK(fit(&all, by_hand) <= 1e-10);
    CHECK(farthest(WIDTH, w, by_hand) < 1e-5); /* |w - w*|^2 / 2 is within the gap */
}

int main(void)
{
    for (int loss = 0; loss < LOSSES; loss++) {
        test_turns_reach_the_optimum((fc_svm_loss)loss);
        test_solve_reaches_its_tolerance((fc_svm_loss)loss);
        test_weight_0_leaves_a_row_out((fc_svm_loss)loss);
        test_a_visit_can_be_undone((fc_svm_loss)loss);
        test_gaps_add_up_to_what_solve_measures((fc_svm_loss)loss);
        test_some_columns_are_personal((fc_svm_loss)loss);
    }
    return check_summary();
}
