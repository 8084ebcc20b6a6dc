#include "check.h"
#include "fc_compact.h"
#include "fc_iht.h"

#include <math.h>
#include <string.h>

enum { CLIENTS = 3, ROWS = 6, COLUMNS = 5, OUTPUTS = 3, CELLS = COLUMNS * OUTPUTS };

/* Clients of 3, 0 and 3 rows; quarters are exact in float. */
static const int64_t OFFSETS[CLIENTS + 1] = {0, 3, 3, 6};
static const fc_idx EVERYBODY[CLIENTS] = {0, 1, 2};
static const double ROW[ROWS][COLUMNS] = {
    {2, 0.5, 0, 1, 0},  {0, 1.25, 0, 0, 0}, {0.75, 2, -1, 0, 0},
    {0, -2, 0, 3, 0.5}, {0, 0, 0, 0, 0},    {0, 0, 0.5, 0, -4},
};
static const fc_idx CODE[ROWS] = {1, 0, 2, 1, 1, 0}, BINARY[ROWS] = {1, 0, 0, 1, 1, 0};
static const double TARGET[ROWS] = {3, -2.5, -2.5, 3, 2, -2};
static const double STEP[CLIENTS] = {0.25, 0.25, 0.125};

typedef struct {
    fc_iht_rows X;
    fc_iht_problem problem;
    fc_iht_work work;
    bool single;
    int64_t starts[CLIENTS + 1];
    fc_idx indptr[ROWS + 1], indices[ROWS * COLUMNS], columns[ROWS * COLUMNS],
        sorted[ROWS * COLUMNS], feature[ROWS * COLUMNS];
    double values[ROWS * COLUMNS];
    float values32[ROWS * COLUMNS];
    double x[CELLS], candidate[CELLS], slope[ROWS * OUTPUTS];
    uint8_t mark[COLUMNS];
    fc_idx list[COLUMNS + 1], place[CELLS], chosen[CELLS], support[CELLS];
    fc_idx foreign[2 * CELLS], order[ROWS], rows[ROWS];
    fc_idx key[CELLS], band[CELLS], at[CELLS], tie[CELLS];
} clients;

static void set_up(clients *f, fc_iht_loss loss, bool sparse, bool single)
{
    fc_idx global[ROWS * COLUMNS], place[COLUMNS], nnz = 0;
    uint64_t bits[1] = {0};

    memset(f, 0, sizeof *f);
    f->single = single;
    f->X =
        (fc_iht_rows){.n_clients = CLIENTS, .n_columns = COLUMNS, .offsets = OFFSETS};
    for (fc_idx i = 0; i < ROWS; i++) {
        for (fc_idx j = 0; j < COLUMNS; j++) {
            if (sparse && ROW[i][j] == 0)
                continue;
            global[nnz] = j;
            f->values32[nnz] = (float)ROW[i][j];
            f->values[nnz++] = ROW[i][j];
        }
        f->indptr[i + 1] = nnz;
        f->order[i] = i;
    }
    f->X.data = single ? (const void *)f->values32 : f->values;
    if (sparse) {
        fc_compact(CLIENTS, COLUMNS, OFFSETS, f->indptr, global, false, place, bits,
                   f->indices, f->columns, f->starts);
        /* Features run against the columns: any order must do. */
        for (fc_idx k = 0; k < CLIENTS; k++) {
            fc_idx own = (fc_idx)(f->starts[k + 1] - f->starts[k]);
            for (fc_idx p = 0; p < own; p++) {
                f->sorted[f->starts[k] + p] = f->columns[f->starts[k] + p];
                f->feature[f->starts[k] + p] = own - 1 - p;
            }
            for (fc_idx p = 0; p < own; p++)
                f->columns[f->starts[k] + own - 1 - p] = f->sorted[f->starts[k] + p];
            for (fc_idx p = f->indptr[OFFSETS[k]]; p < f->indptr[OFFSETS[k + 1]]; p++)
                f->indices[p] = own - 1 - f->indices[p];
        }
        f->X.sorted = f->sorted;
        f->X.feature = f->feature;
        f->X.starts = f->starts;
        f->X.columns = f->columns;
        f->X.indptr = f->indptr;
        f->X.indices = f->indices;
    }
    f->problem = (fc_iht_problem){
        .loss = loss,
        .n_outputs = loss == FC_SOFTMAX ? OUTPUTS : 1,
        .intercept = true,
        .code = loss == FC_SOFTMAX ? CODE : BINARY,
        .target = TARGET,
    };
    f->work = (fc_iht_work){f->x,         f->mark,    f->list,
                            f->candidate, f->place,   f->chosen,
                            f->support,   f->foreign, f->order,
                            f->rows,      f->slope,   {f->key, f->band, f->at, f->tie}};
}

static void check_clean(const clients *f)
{
    for (int p = 0; p < CELLS; p++)
        CHECK(f->x[p] == 0);
    for (int j = 0; j < COLUMNS; j++)
        CHECK(f->mark[j] == 0);
    for (fc_idx i = 0; i < ROWS; i++)
        CHECK(f->order[i] == i);
}

static const fc_idx START[2] = {1, 4};
static const double START_VALUE[2] = {0.5, -0.25}, ZEROS[OUTPUTS] = {0};

static fc_iht_call call_of(fc_idx n_steps, fc_idx batch, fc_idx tau)
{
    fc_iht_call call = {.n_start = 2,
                        .index = START,
                        .value = START_VALUE,
                        .intercept = ZEROS,
                        .n_steps = n_steps,
                        .batch = batch,
                        .tau = tau,
                        .l2 = 0.25,
                        .seed = 3};
    return call;
}

static void iterate(clients *f, const fc_iht_call *call, double *dense,
                    double *intercepts)
{
    fc_idx index[CLIENTS * CELLS];
    double value[CLIENTS * CELLS];
    int64_t counts[CLIENTS], p = 0;
    const fc_idx C = f->problem.n_outputs;

    memset(dense, 0, (size_t)CLIENTS * CELLS * sizeof *dense);
    (f->single ? fc_iht_iterate_f32
               : fc_iht_iterate_f64)(&f->X, &f->problem, call, &f->work, EVERYBODY,
                                     CLIENTS, STEP, index, value, counts, intercepts);
    for (fc_idx k = 0; k < CLIENTS; k++) {
        CHECK(counts[k] <= call->tau);
        for (int64_t i = 0; i < counts[k]; i++, p++) {
            CHECK(index[p] >= 0 && index[p] < C * COLUMNS && value[p] != 0);
            CHECK(i == 0 || p == 0 || index[p - 1] < index[p]);
            if (index[p] >= 0) /* as they are; the analyzer cannot know */
                dense[(int64_t)k * CELLS + index[p]] = value[p];
        }
    }
    check_clean(f);
}

/* The four ways to hold the rows end at the same iterates; with room for all entries a
 * thresholded step is a plain one; a client without rows keeps the start. */
static void test_forms_agree(fc_iht_loss loss)
{
    static clients f;
    double first[CLIENTS * CELLS], other[CLIENTS * CELLS];
    double b[CLIENTS * OUTPUTS], b_other[CLIENTS * OUTPUTS];

    for (fc_idx batch = 0; batch < 3; batch++)
        for (fc_idx tau = 0; tau <= CELLS; tau++) {
            fc_iht_call call = call_of(4, batch, tau);
            set_up(&f, loss, false, false);
            const fc_idx C = f.problem.n_outputs;
            iterate(&f, &call, first, b);
            if (tau >= 2)
                CHECK(first[CELLS + 1] == 0.5 && first[CELLS + 4] == -0.25);
            for (int form = 1; form < 4; form++) {
                set_up(&f, loss, form & 1, form & 2);
                iterate(&f, &call, other, b_other);
                for (int p = 0; p < CLIENTS * CELLS; p++)
                    CHECK(fabs(first[p] - other[p]) < 1e-12);
                for (int c = 0; c < CLIENTS * C; c++)
                    CHECK(fabs(b[c] - b_other[c]) < 1e-12);
            }
            if (tau < CELLS)
                continue;
            double total[CELLS] = {0};
            const double share[CLIENTS] = {1, 0.5, 0.25};
            fc_iht_descend_f64(&f.X, &f.problem, &call, &f.work, EVERYBODY, 0, STEP,
                               share, total, b_other);
            set_up(&f, loss, true, false);
            fc_iht_descend_f64(&f.X, &f.problem, &call, &f.work, EVERYBODY, CLIENTS,
                               STEP, share, total, b_other);
            check_clean(&f);
            for (int p = 0; p < C * COLUMNS; p++)
                CHECK(fabs(total[p] - first[p] - 0.5 * first[CELLS + p] -
                           0.25 * first[2 * CELLS + p]) < 1e-12);
        }
}

/* The gradient is the slope of the loss. */
static void test_gradient_is_the_slope(fc_iht_loss loss, bool sparse)
{
    static clients f;
    const double h = 1e-6, share[CLIENTS] = {1, 1, 1};
    fc_idx index[CELLS];
    double value[CELLS], total[CELLS] = {0}, b[OUTPUTS] = {0}, losses[CLIENTS];
    set_up(&f, loss, sparse, false);
    const fc_idx n = f.problem.n_outputs * COLUMNS;
    fc_iht_call call = call_of(1, 0, 0);
    call.n_start = n;
    call.index = index;
    call.value = value;
    for (fc_idx p = 0; p < n; p++) {
        index[p] = p;
        value[p] = (p % 4 - 1.5) / 4;
    }
    fc_iht_gradient_f64(&f.X, &f.problem, &call, &f.work, EVERYBODY, CLIENTS, share,
                        total, b, losses);
    for (fc_idx p = 0; p < n; p++) {
        double change = 0;
        for (int side = -1; side <= 1; side += 2) {
            value[p] += side * h;
            fc_iht_gradient_f64(&f.X, &f.problem, &call, &f.work, EVERYBODY, CLIENTS,
                                share, NULL, NULL, losses);
            value[p] -= side * h;
            change += side * (losses[0] + losses[1] + losses[2]) / (2 * h);
        }
        CHECK(fabs(change - total[p]) < 1e-7);
    }
    check_clean(&f);
}

/* Scores of 1e4 and steps that overflow end in numbers or in infinities. */
static void test_large_steps_do_no_harm(fc_iht_loss loss)
{
    static clients f;
    double b[CLIENTS * OUTPUTS], losses[CLIENTS];
    const double large[2] = {1e4, -1e4}, share[CLIENTS] = {1, 1, 1};
    fc_iht_call call = call_of(1, 0, 2);
    call.value = large;
    set_up(&f, loss, true, false);
    fc_iht_gradient_f64(&f.X, &f.problem, &call, &f.work, EVERYBODY, CLIENTS, share,
                        NULL, NULL, losses);
    CHECK(isfinite(losses[0]) && isfinite(losses[2]) && losses[0] > 0);
    call.n_steps = 2000;
    call.l2 = 1e3;
    for (int sparse = 0; sparse < 2; sparse++) {
        set_up(&f, loss, sparse, false);
        fc_idx index[CLIENTS * 2];
        double value[CLIENTS * 2];
        int64_t counts[CLIENTS];
        fc_iht_iterate_f64(&f.X, &f.problem, &call, &f.work, EVERYBODY, CLIENTS, STEP,
                           index, value, counts, b);
        CHECK(counts[0] <= 2 && counts[2] <= 2);
        check_clean(&f);
    }
}

static void test_corrections_reach_columns_that_no_row_has(void)
{
    static clients f;
    double x[CLIENTS * CELLS], b[CLIENTS * OUTPUTS];
    const int64_t offsets[CLIENTS + 1] = {0, 2, 2, 3};
    const fc_idx index[3] = {0, 4, 0};
    const double value[3] = {1, 8, 2}, none[CLIENTS * OUTPUTS] = {0};
    for (int sparse = 0; sparse < 2; sparse++) {
        fc_iht_call call = call_of(1, 0, COLUMNS);
        call.l2 = 0;
        call.correction_offsets = offsets;
        call.correction_index = index;
        call.correction_value = value;
        call.correction_intercept = none;
        set_up(&f, FC_SQUARED, sparse, false);
        iterate(&f, &call, x, b);
        CHECK(x[4] == -0.25 - 0.25 * 8); /* client 0 has no column 4 */
        CHECK(x[(size_t)2 * CELLS] == -0.125 * 2);
        CHECK(x[CELLS + 4] == -0.25);
    }
}

static void test_pairs_are_added_in_order(void)
{
    fc_idx index[6] = {70000, 3, 3, 0, 70000, 3}, other[6];
    double value[6] = {1, 1e16, 1, 2, 4, -1e16}, other_value[6];
    CHECK(fc_iht_add_pairs(6, 70001, index, value, other, other_value) == 3);
    CHECK(index[0] == 0 && index[1] == 3 && index[2] == 70000);
    CHECK(value[0] == 2 && value[1] == (1e16 + 1) - 1e16 && value[2] == 5);
    CHECK(fc_iht_add_pairs(0, 1, index, value, other, other_value) == 0);
}

int main(void)
{
    for (int loss = FC_SQUARED; loss <= FC_SOFTMAX; loss++) {
        test_forms_agree((fc_iht_loss)loss);
        test_gradient_is_the_slope((fc_iht_loss)loss, false);
        test_gradient_is_the_slope((fc_iht_loss)loss, true);
        test_large_steps_do_no_harm((fc_iht_loss)loss);
    }
    test_corrections_reach_columns_that_no_row_has();
    test_pairs_are_added_in_order();
    return check_summary();
}
