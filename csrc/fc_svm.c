#include "fc_svm.h"
#include "fc_rng.h"

#include <math.h>
#include <string.h>

enum {
    SETTLED_MOST = 3,      /* a settled row rests for at most 2^3 - 1 visits */
    INTERIOR_FROM = 100,   /* passes after which a small client changes the method */
    INTERIOR_LENGTH = 200, /* longest local vector of a client that may */
    INTERIOR_MOST = 60,    /* Newton steps */
    STALE_MOST = 1000,     /* passes without progress before a local solve gives up */
    ASKING_WORK = 1 << 22  /* products from one look at call->stop to the next */
};

/* One client in one class. */
typedef struct {
    int64_t first;         /* its rows of X: first .. first + n */
    fc_idx k, c, n, width; /* width: entries of its local vectors */
    double inv_C2;
    double *b, *s, *b_before, *s_before, *violation;
    uint8_t *rest;
    const fc_idx *columns;
    const double *own; /* (width) 1 where the column is personal, else 0; NULL: all */
} fc_visit;

/* Whether the caller wants no more of this; asked when there was work enough since. */
static bool gives_up(const fc_svm_call *call, int64_t *since, int64_t products)
{
    if (!call->stop)
        return false;
    *since += products;
    if (*since < ASKING_WORK)
        return false;
    bool stops = call->stop(call->asked) != 0;
    if (!stops) /* else it is asked again at once, client after client */
        *since = 0;
    return stops;
}

static fc_visit visit_of(const fc_svm_rows *X, const fc_svm_problem *problem,
                         const fc_svm_call *call, const fc_svm_state *state,
                         const fc_svm_work *work, fc_idx k, fc_idx c)
{
    bool absent =
        problem->absent && problem->absent[(int64_t)k * problem->n_classes + c];
    fc_visit v = {.first = X->offsets[k], .k = k, .c = c};
    v.n = (fc_idx)(X->offsets[k + 1] - v.first);
    v.width = (fc_idx)(X->starts[k + 1] - X->starts[k]);
    v.inv_C2 = absent ? call->inv_C2_absent[c] : call->inv_C2[c];
    int64_t b0 = v.first * problem->n_classes + (int64_t)v.n * c;
    int64_t s0 = X->starts[k] * problem->n_classes + (int64_t)v.width * c;
    v.b = state->b + b0;
    v.s = state->s + s0;
    v.b_before = state->b_before ? state->b_before + b0 : NULL;
    v.s_before = state->s_before ? state->s_before + s0 : NULL;
    v.rest = state->rest + b0;
    v.violation = state->violation + (int64_t)k * problem->n_classes + c;
    v.columns = X->columns ? X->columns + X->starts[k] : NULL;
    if (problem->personal) {
        for (fc_idx j = 0; j < v.width; j++)
            work->own[j] = problem->personal[v.columns ? v.columns[j] : j] ? 1 : 0;
        v.own = work->own;
    }
    return v;
}

/* What one row contributes, in the signs and units of math.md. */
typedef struct {
    double y, upper, diagonal; /* y: -1 or +1, or the target */
} fc_row;

static inline fc_row row_of(const fc_svm_problem *problem, fc_idx c, int64_t i)
{
    fc_row row = {.upper = problem->C1};
    if (problem->code) {
        int positive = problem->code[i] == (problem->n_classes == 1 ? 1 : c);
        row.y = positive ? 1 : -1;
        if (problem->class_weight)
            row.upper *= problem->class_weight[2 * c + positive];
    } else {
        row.y = problem->target[i];
    }
    if (problem->weight)
        row.upper *= problem->weight[i];
    if (problem->loss == FC_SQUARED_HINGE ||
        problem->loss == FC_SQUARED_EPSILON_INSENSITIVE) {
        row.diagonal = 1 / (2 * row.upper); /* infinite: the row is left out */
        row.upper = INFINITY;
    }
    return row;
}

/* A row of weight 0, or so near to it that its terms have no numbers. */
static inline bool left_out(const fc_svm_problem *problem, fc_idx c, int64_t i)
{
    if (!problem->weight && !problem->class_weight)
        return false;
    fc_row row = row_of(problem, c, i);
    return row.upper <= 0 || !isfinite(row.diagonal);
}

/* Distance of the score a from satisfying the row, before the loss is taken. */
static inline double excess(const fc_svm_problem *problem, const fc_row *row, double a)
{
    double h = problem->code ? 1 - row->y * a : fabs(a - row->y) - problem->epsilon;
    return h > 0 ? h : 0;
}

static inline double row_loss(const fc_row *row, double h)
{
    return row->diagonal > 0 ? h * h / (2 * row->diagonal) : row->upper * h;
}

/* Share of the row in the duality gap: never negative, and exact near the optimum. */
static inline double row_gap(const fc_svm_problem *problem, const fc_row *row, double a,
                             double b)
{
    double h = excess(problem, row, a);
    if (problem->code) {
        double alpha = b * row->y, miss = 1 - row->y * a; /* h = max(0, miss) */
        if (row->diagonal > 0) {
            double d = h - row->diagonal * alpha;
            return d * d / (2 * row->diagonal) + alpha * (h - miss);
        }
        return (row->upper - alpha) * h + alpha * (h - miss);
    }
    double size = fabs(b), toward = b < 0 ? row->y - a : a - row->y;
    double slack = fmax(h + problem->epsilon + toward, 0); /* |a - y| <= h + eps */
    if (row->diagonal > 0) {
        double d = h - row->diagonal * size;
        return d * d / (2 * row->diagonal) + size * slack;
    }
    return (row->upper - size) * h + size * slack;
}

/* Dual terms of the row alone: y b - eps |b| - D b^2 / 2. */
static inline double row_dual(const fc_svm_problem *problem, const fc_row *row,
                              double b)
{
    double eps = problem->code ? 0 : problem->epsilon;
    return row->y * b - eps * fabs(b) - row->diagonal * b * b / 2;
}

/* The new multiplier. Where Q = 0 (an empty row, or w held fixed at C2 = inf, with a
 * plain loss) the dual is linear: its optimum is a bound. Sets how far the old one was
 * from optimal, and whether the row sits firmly at a bound. */
static inline double row_step(const fc_svm_problem *problem, const fc_row *row,
                              double a, double b, double Q, double firm,
                              double *violation, bool *settled)
{
    double U = row->upper;
    if (problem->code) {
        double alpha = b * row->y, g = row->y * a - 1 + row->diagonal * alpha;
        bool low = alpha <= 0, high = alpha >= U;
        *violation = low ? fmax(0, -g) : high ? fmax(0, g) : fabs(g);
        *settled = (low && g > firm) || (high && g < -firm);
        double next = Q > 0 ? alpha - g / Q : g < 0 ? U : g > 0 ? 0 : alpha;
        return row->y * (next < 0 ? 0 : next > U ? U : next);
    }
    double eps = problem->epsilon, g = a - row->y + row->diagonal * b;
    double up = g + eps, down = g - eps; /* slopes of the objective beyond b */
    if (b == 0)
        *violation = fmax(0, fmax(-up, down));
    else if (b > 0)
        *violation = b >= U ? fmax(0, up) : fabs(up);
    else
        *violation = b <= -U ? fmax(0, -down) : fabs(down);
    *settled = (b == 0 && up > firm && down < -firm) || (b >= U && up < -firm) ||
               (b <= -U && down > firm);
    if (!(Q > 0))
        return up < 0 ? U : down > 0 ? -U : 0;
    double next = up < Q * b ? b - up / Q : down > Q * b ? b - down / Q : 0;
    return next < -U ? -U : next > U ? U : next;
}

/* b, and s, as the coordinator's step left them. */
static void take_step_in_b(const fc_visit *v, double step)
{
    if (step == 1)
        return;
    for (fc_idx i = 0; i < v->n; i++) {
        double change = v->b[i] - v->b_before[i];
        if (change != 0)
            v->rest[i] = 0;
        v->b[i] = v->b_before[i] + step * change;
    }
}

static void take_step_in_s(const fc_visit *v, double step)
{
    if (step == 1)
        return;
    for (fc_idx j = 0; j < v->width; j++)
        v->s[j] = v->s_before[j] + step * (v->s[j] - v->s_before[j]);
}

/* An empty client may come with null pointers, which memcpy must not see. */
static void copy(double *to, const double *from, fc_idx n)
{
    if (n > 0)
        memcpy(to, from, (size_t)n * sizeof *to);
}

/* 1 / C2 in the personal columns, 0 in the others. */
static inline double pull_of(const fc_visit *v, double inv_C2, fc_idx j)
{
    return v->own ? inv_C2 * v->own[j] : inv_C2;
}

/* Set a local vector to 0 outside the personal columns. */
static void keep_own(const fc_visit *v, double *x)
{
    for (fc_idx j = 0; v->own && j < v->width; j++)
        x[j] *= v->own[j];
}

/* u = w + v on the client's columns. */
static void gather(const fc_visit *v, const double *restrict w, double inv_C2,
                   double *restrict u)
{
    if (v->own)
        for (fc_idx j = 0; j < v->width; j++)
            u[j] = w[v->columns ? v->columns[j] : j] + pull_of(v, inv_C2, j) * v->s[j];
    else if (!v->columns)
        for (fc_idx j = 0; j < v->width; j++)
            u[j] = w[j] + inv_C2 * v->s[j];
    else
        for (fc_idx j = 0; j < v->width; j++)
            u[j] = w[v->columns[j]] + inv_C2 * v->s[j];
}

/* total += a part, from the client's own columns; a packed total is part alone. */
static void scatter(const fc_visit *v, double a, const double *restrict part,
                    double *restrict total, bool packed)
{
    if (packed)
        copy(total, part, v->width);
    else if (!v->columns)
        for (fc_idx j = 0; j < v->width; j++)
            total[j] += a * part[j];
    else
        for (fc_idx j = 0; j < v->width; j++)
            total[v->columns[j]] += a * part[j];
}

/* x . (y - x) in out[0] and |y - x|^2 in out[1]. In 8 lanes each, so that the bits do
 * not depend on the processor. */
FC_CLONES static void change_products(fc_idx n, const double *x, const double *y,
                                      double *out)
{
    double with[8] = {0}, square[8] = {0};
    fc_idx j = 0;
    for (; j + 8 <= n; j += 8)
        for (int l = 0; l < 8; l++) {
            double change = y[j + l] - x[j + l];
            with[l] += x[j + l] * change;
            square[l] += change * change;
        }
    for (int l = 0; j < n; j++, l++) {
        with[l] += x[j] * (y[j] - x[j]);
        square[l] += (y[j] - x[j]) * (y[j] - x[j]);
    }
    for (int half = 4; half; half /= 2)
        for (int l = 0; l < half; l++) {
            with[l] += with[l + half];
            square[l] += square[l + half];
        }
    out[0] = with[0];
    out[1] = square[0];
}

FC_CLONES static double square_norm(fc_idx n, const double *x)
{
    double lane[8] = {0};
    fc_idx j = 0;
    for (; j + 8 <= n; j += 8)
        for (int l = 0; l < 8; l++)
            lane[l] += x[j + l] * x[j + l];
    for (int l = 0; j < n; j++, l++)
        lane[l] += x[j] * x[j];
    for (int half = 4; half; half /= 2)
        for (int l = 0; l < half; l++)
            lane[l] += lane[l + half];
    return lane[0];
}

/* |s|^2 over the personal columns. */
static double own_square(const fc_visit *v)
{
    double sum = 0;
    if (!v->own)
        return square_norm(v->width, v->s);
    for (fc_idx j = 0; j < v->width; j++)
        sum += v->own[j] * v->s[j] * v->s[j];
    return sum;
}

/* The rows of a visit that do not rest, in a fresh random order. */
static fc_idx order_rows(const fc_svm_problem *problem, const fc_visit *v, fc_rng *rng,
                         fc_idx *order)
{
    fc_idx n = 0;
    for (fc_idx i = 0; i < v->n; i++) {
        if (v->rest[i] & 15)
            v->rest[i]--;
        else if (!left_out(problem, v->c, v->first + i))
            order[n++] = i;
    }
    fc_shuffle(order, n, rng);
    return n;
}

static fc_rng rng_of(const fc_svm_call *call, const fc_visit *v, fc_idx pass)
{
    return fc_rng_make(call->seed, call->exchange, FC_RNG_ROWS,
                       call->first_client + (uint32_t)v->k,
                       fc_rng_lane((uint32_t)v->c, (uint32_t)pass));
}

/* After the passes: u becomes the change of s, and s takes it. */
static void take_change(const fc_visit *v, const double *restrict w, double coupling,
                        double *restrict u)
{
    for (fc_idx j = 0; j < v->width; j++) {
        double pull = pull_of(v, v->inv_C2, j);
        double start = w[v->columns ? v->columns[j] : j] + pull * v->s[j];
        u[j] = (u[j] - start) / (coupling + pull);
        v->s[j] += u[j];
    }
}

/* Products for the line search, of s before a visit and its change ds, over the
 * personal columns. */
typedef struct {
    double with, square; /* s . ds and |ds|^2 */
} fc_products;

static fc_products products_of(const fc_visit *v)
{
    double out[2] = {0, 0};
    if (v->inv_C2 > 0 && !v->own)
        change_products(v->width, v->s_before, v->s, out);
    for (fc_idx j = 0; v->own && j < v->width; j++) {
        double change = v->own[j] * (v->s[j] - v->s_before[j]);
        out[0] += v->s_before[j] * change;
        out[1] += change * change;
    }
    return (fc_products){out[0], out[1]};
}

/* The client's two scalars for the line search. */
static void add_change_figures(const fc_svm_problem *problem, const fc_visit *v,
                               fc_products products, double *figures)
{
    double linear = 0, quadratic = 0;
    for (fc_idx i = 0; i < v->n; i++) {
        double before = v->b_before[i], change = v->b[i] - before;
        if (change == 0)
            continue;
        fc_row row = row_of(problem, v->c, v->first + i);
        linear += row.y * change - row.diagonal * before * change;
        if (!problem->code)
            linear -= problem->epsilon * (fabs(v->b[i]) - fabs(before));
        quadratic += row.diagonal * change * change;
    }
    figures[FC_SVM_LINEAR] += linear - v->inv_C2 * products.with;
    figures[FC_SVM_QUADRATIC] += quadratic + v->inv_C2 * products.square;
}

/* Whether most of a client's columns appear in one or two of its rows. */
static bool comes_once(const fc_svm_rows *X, const fc_visit *v)
{
    if (!X->indptr)
        return false;
    int64_t n_entries = (int64_t)X->indptr[v->first + v->n] - X->indptr[v->first];
    return n_entries < 3 * (int64_t)v->width;
}

/* What a pass met on its way. */
typedef struct {
    double gap, worst, firm; /* firm: a row beyond it at its bound is settled, and may
                                rest; infinite: none may */
} fc_seen;

/* A violation of less is rounding: no row is settled by it. */
static const double LEAST_VIOLATION = 1e-12;

static void end_pass(const fc_visit *v, const fc_seen *seen)
{
    *v->violation = fmax(seen->worst, LEAST_VIOLATION);
}

/* Take the step of row r, whose score is a; returns the change of its multiplier. */
static inline double visit_row(const fc_svm_problem *problem, const fc_visit *v,
                               fc_idx r, double a, double coupling, fc_seen *seen)
{
    double *b = v->b + r, violation;
    uint8_t *rest = v->rest + r;
    bool settled;
    fc_row row = row_of(problem, v->c, v->first + r);
    double square = problem->sqnorm[v->first + r];
    double Q = v->own
                   ? coupling * square + v->inv_C2 * problem->own_sqnorm[v->first + r]
                   : (coupling + v->inv_C2) * square;
    Q += row.diagonal;
    double next = row_step(problem, &row, a, *b, Q, seen->firm, &violation, &settled);

    seen->gap += row_gap(problem, &row, a, *b);
    seen->worst = violation > seen->worst ? violation : seen->worst;
    if (settled) {
        int level = *rest >> 4 < SETTLED_MOST ? (*rest >> 4) + 1 : SETTLED_MOST;
        *rest = (uint8_t)(level << 4 | ((1 << level) - 1));
    } else {
        *rest = 0;
    }
    double change = next - *b;
    *b = next;
    return change;
}

/* Solve A z = 1 by elimination, A symmetric and positive. */
static void solve_for_ones(double A[FC_SVM_WINDOW][FC_SVM_WINDOW], double *z)
{
    for (int i = 0; i < FC_SVM_WINDOW; i++)
        z[i] = 1;
    for (int k = 0; k < FC_SVM_WINDOW; k++) {
        for (int i = k + 1; i < FC_SVM_WINDOW; i++) {
            double factor = A[i][k] / A[k][k];
            for (int j = k; j < FC_SVM_WINDOW; j++)
                A[i][j] -= factor * A[k][j];
            z[i] -= factor * z[k];
        }
    }
    for (int k = FC_SVM_WINDOW - 1; k >= 0; k--) {
        for (int j = k + 1; j < FC_SVM_WINDOW; j++)
            z[k] -= A[k][j] * z[j];
        z[k] /= A[k][k];
    }
}

/* Anderson's extrapolation of the last iterates of b, clipped to the box, into out;
 * past holds them, oldest first, and may be out itself (Bertrand and Massias 2021).
 * False where it fails. */
static bool extrapolate(const fc_svm_problem *problem, const fc_visit *v,
                        const double *past, double *out)
{
    const size_t n = (size_t)v->n;
    double A[FC_SVM_WINDOW][FC_SVM_WINDOW], z[FC_SVM_WINDOW], trace = 0, total = 0;

    for (int i = 0; i < FC_SVM_WINDOW; i++) {
        const double *xi = past + (size_t)i * n;
        for (int j = 0; j <= i; j++) {
            const double *xj = past + (size_t)j * n;
            double sum = 0;
            for (size_t r = 0; r < n; r++)
                sum += (xi[n + r] - xi[r]) * (xj[n + r] - xj[r]);
            A[i][j] = A[j][i] = sum;
        }
        trace += A[i][i];
    }
    if (!(trace > 0))
        return false;
    for (int i = 0; i < FC_SVM_WINDOW; i++)
        A[i][i] += 1e-12 * trace;
    solve_for_ones(A, z);
    for (int i = 0; i < FC_SVM_WINDOW; i++)
        total += z[i];
    if (!(fabs(total) > 0) || !isfinite(total))
        return false;
    for (size_t r = 0; r < n; r++) {
        double b = 0;
        for (int i = 0; i < FC_SVM_WINDOW; i++)
            b += z[i] / total * past[(size_t)(i + 1) * n + r];
        if (!isfinite(b))
            return false;
        fc_row row = row_of(problem, v->c, v->first + (int64_t)r);
        double low = -row.upper, high = row.upper;
        if (problem->code) {
            low = row.y > 0 ? 0 : low;
            high = row.y > 0 ? high : 0;
        }
        out[r] = b < low ? low : b > high ? high : b;
    }
    return true;
}

size_t fc_svm_interior_work(fc_idx rows, fc_idx length)
{
    size_t n = (size_t)rows, d = (size_t)length;
    d = d < INTERIOR_LENGTH ? d : INTERIOR_LENGTH;
    return d * d + 2 * d + 12 * n;
}

/* Solve M x = t in place; M (d, d), its lower half, is overwritten by its factor. */
static bool solve_by_cholesky(size_t d, double *M, double *t)
{
    for (size_t a = 0; a < d; a++) {
        for (size_t b = 0; b <= a; b++) {
            double sum = M[a * d + b];
            for (size_t j = 0; j < b; j++)
                sum -= M[a * d + j] * M[b * d + j];
            if (a == b && !(sum > 0))
                return false;
            M[a * d + b] = a == b ? sqrt(sum) : sum / M[b * d + b];
        }
    }
    for (size_t a = 0; a < d; a++) {
        for (size_t b = 0; b < a; b++)
            t[a] -= M[a * d + b] * t[b];
        t[a] /= M[a * d + a];
    }
    for (size_t a = d; a-- > 0;) {
        for (size_t b = a + 1; b < d; b++)
            t[a] -= M[b * d + a] * t[b];
        t[a] /= M[a * d + a];
    }
    return true;
}

/* Whether the interior point is the better way to go on with a client. */
static bool is_for_interior(const fc_svm_problem *problem, const fc_visit *v)
{
    bool plain = problem->loss == FC_HINGE || problem->loss == FC_EPSILON_INSENSITIVE;
    return plain && v->inv_C2 > 0 && v->width <= INTERIOR_LENGTH;
}

/* Sums over the rows of a visit. */
typedef struct {
    double gap, loss, dual;
} fc_sums;

#define REAL double
#define F(name) name##_f64
#include "fc_svm.inc"
#undef REAL
#undef F

#define REAL float
#define F(name) name##_f32
#include "fc_svm.inc"
#undef REAL
#undef F

#include "fc_svm_lone.inc"
