#include "fc_iht.h"
#include "fc_rng.h"

#include <math.h>
#include <string.h>

/* One client in one call. */
typedef struct {
    int64_t first;      /* its rows of X start here */
    const fc_idx *kept; /* rows that count, or NULL for all of them */
    fc_idx k, n, own;   /* n rows count; own: its columns */
    fc_idx n_foreign;   /* features beyond them, at own .. own + n_foreign */
    const fc_idx *columns, *sorted, *feature; /* (own) or NULL */
    const fc_idx *foreign;                    /* (n_foreign) their columns, ascending */
    fc_idx n_list;    /* features that may be other than 0; fc_iht_work.list */
    fc_idx n_support; /* entries that are; fc_iht_work.support */
    bool everywhere;  /* all features may be; no list is kept */
    double *intercept;
} fc_visit;

static fc_idx column_of(const fc_visit *v, fc_idx f)
{
    if (f >= v->own)
        return v->foreign[f - v->own];
    return v->columns ? v->columns[f] : f;
}

/* The first of list[from ..] that is not below `wanted`, in growing strides. */
static fc_idx seek(const fc_idx *list, fc_idx n, fc_idx from, fc_idx wanted)
{
    fc_idx stride = 1, low = from;
    while (stride < n - low && list[low + stride] < wanted) {
        low += stride;
        stride *= 2;
    }
    fc_idx high = stride < n - low ? low + stride : n;
    while (low < high) {
        fc_idx middle = low + (high - low) / 2;
        if (list[middle] < wanted)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

/* Feature of a column: its number among the client's own, or -1. */
static fc_idx own_feature(const fc_visit *v, fc_idx column, fc_idx *near)
{
    if (v->own == 0)
        return -1;
    if (!v->columns)
        return column;
    if (*near > 0 && v->sorted[*near - 1] >= column)
        *near = 0; /* pairs of the next output start over */
    *near = seek(v->sorted, v->own, *near, column);
    return *near < v->own && v->sorted[*near] == column ? v->feature[*near] : -1;
}

static fc_idx feature_of(const fc_visit *v, fc_idx column, fc_idx *near)
{
    fc_idx f = own_feature(v, column, near);
    return f >= 0 ? f : v->own + seek(v->foreign, v->n_foreign, 0, column);
}

/* Sort by place, stable; the result is in index, value. */
static void sort_pairs(int64_t n, fc_idx limit, fc_idx *index, double *value,
                       fc_idx *other_index, double *other_value)
{
    enum { DIGIT = 8, BASE = 1 << DIGIT };
    fc_idx *from = index, *to = other_index;
    double *from_value = value, *to_value = other_value;

    for (int shift = 0; shift < 31 && (limit - 1) >> shift > 0; shift += DIGIT) {
        int64_t start[BASE + 1] = {0};
        for (int64_t i = 0; i < n; i++)
            start[((from[i] >> shift) & (BASE - 1)) + 1]++;
        for (int b = 0; b < BASE; b++)
            start[b + 1] += start[b];
        for (int64_t i = 0; i < n; i++) {
            int64_t at = start[(from[i] >> shift) & (BASE - 1)]++;
            to[at] = from[i];
            to_value[at] = from_value[i];
        }
        fc_idx *spare = from;
        double *spare_value = from_value;
        from = to;
        from_value = to_value;
        to = spare;
        to_value = spare_value;
    }
    if (from != index && n > 0) {
        memcpy(index, from, (size_t)n * sizeof *index);
        memcpy(value, from_value, (size_t)n * sizeof *value);
    }
}

int64_t fc_iht_add_pairs(int64_t n, fc_idx limit, fc_idx *index, double *value,
                         fc_idx *other_index, double *other_value)
{
    int64_t last = -1;

    sort_pairs(n, limit, index, value, other_index, other_value);
    for (int64_t i = 0; i < n; i++) {
        if (last >= 0 && index[last] == index[i]) {
            value[last] += value[i];
        } else {
            last++;
            index[last] = index[i];
            value[last] = value[i];
        }
    }
    return last + 1;
}

static fc_idx corrections(const fc_iht_call *call, fc_idx m)
{
    if (!call->correction_offsets)
        return 0;
    return (fc_idx)(call->correction_offsets[m + 1] - call->correction_offsets[m]);
}

int64_t fc_iht_width(const fc_iht_rows *X, const fc_iht_call *call, fc_idx k, fc_idx m)
{
    if (!X->indptr)
        return X->n_columns;
    int64_t width = X->starts[k + 1] - X->starts[k];
    width += (int64_t)call->n_start + corrections(call, m);
    return width < X->n_columns ? width : X->n_columns;
}

static int ascending(fc_idx *list, fc_idx n)
{
    for (fc_idx i = 1; i < n; i++)
        if (list[i - 1] >= list[i])
            return 0;
    return 1;
}

/* Sort a short list and drop what is there twice. */
static fc_idx sort_distinct(fc_idx *list, fc_idx n)
{
    if (ascending(list, n))
        return n;
    for (fc_idx gap = n / 2; gap > 0; gap /= 2) /* Shell's sort */
        for (fc_idx i = gap; i < n; i++) {
            fc_idx moving = list[i], j = i;
            for (; j >= gap && list[j - gap] > moving; j -= gap)
                list[j] = list[j - gap];
            list[j] = moving;
        }
    fc_idx kept = 0;
    for (fc_idx i = 0; i < n; i++)
        if (kept == 0 || list[kept - 1] != list[i])
            list[kept++] = list[i];
    return kept;
}

static inline void touch(fc_visit *v, const fc_iht_work *work, fc_idx f)
{
    work->list[v->n_list] = f;
    v->n_list += !work->mark[f];
    work->mark[f] = 1;
}

/* Meet a client: lay out its features and put the start into x. */
static fc_visit begin(const fc_iht_rows *X, const fc_iht_problem *problem,
                      const fc_iht_call *call, const fc_iht_work *work, fc_idx k,
                      fc_idx m, double *intercept)
{
    const fc_idx C = problem->n_outputs, d = X->n_columns;
    fc_visit v = {.first = X->offsets[k], .k = k, .own = d, .foreign = work->foreign};
    v.n = (fc_idx)(X->offsets[k + 1] - v.first);
    if (problem->kept_offsets) {
        v.kept = problem->kept + problem->kept_offsets[k];
        v.n = (fc_idx)(problem->kept_offsets[k + 1] - problem->kept_offsets[k]);
    }
    v.intercept = intercept;
    memcpy(intercept, call->intercept, (size_t)C * sizeof *intercept);
    v.everywhere = !X->indptr;

    fc_idx n_corrections = corrections(call, m), near = 0, n = 0;
    const fc_idx *correction =
        n_corrections ? call->correction_index + call->correction_offsets[m] : NULL;
    if (X->indptr) {
        v.own = (fc_idx)(X->starts[k + 1] - X->starts[k]);
        v.columns = X->columns + X->starts[k];
        v.sorted = X->sorted + X->starts[k];
        v.feature = X->feature + X->starts[k];
        for (fc_idx i = 0; i < call->n_start; i++)
            if (own_feature(&v, call->index[i] % d, &near) < 0)
                work->foreign[n++] = call->index[i] % d;
        near = 0;
        for (fc_idx i = 0; i < n_corrections; i++)
            if (own_feature(&v, correction[i] % d, &near) < 0)
                work->foreign[n++] = correction[i] % d;
        v.n_foreign = sort_distinct(work->foreign, n);
    }
    near = 0;
    for (fc_idx i = 0; i < call->n_start; i++) {
        fc_idx f = feature_of(&v, call->index[i] % d, &near);
        fc_idx p = f * C + call->index[i] / d;
        work->x[p] = call->value[i];
        work->support[v.n_support++] = p;
        if (!v.everywhere)
            touch(&v, work, f);
    }
    return v;
}

/* Leave x and mark as they were found. */
static void leave(const fc_visit *v, const fc_iht_problem *problem,
                  const fc_iht_work *work)
{
    const size_t C = (size_t)problem->n_outputs;
    if (v->everywhere) {
        size_t width = (size_t)v->own + (size_t)v->n_foreign;
        memset(work->x, 0, width * C * sizeof *work->x);
    }
    for (fc_idx i = 0; i < v->n_list; i++) {
        size_t f = (size_t)work->list[i];
        work->mark[f] = 0;
        for (size_t c = 0; c < C; c++)
            work->x[f * C + c] = 0;
    }
}

/* The rows of a step, into work->rows: all, or some drawn without replacement. The
 * order is put back, so that a draw depends on its name alone. */
static fc_idx draw(const fc_visit *v, const fc_iht_call *call, const fc_iht_work *work,
                   fc_idx t)
{
    fc_idx *order = work->order, *rows = work->rows, n = v->n;
    bool all = call->batch <= 0 || call->batch >= n;

    if (!all) {
        fc_rng rng = fc_rng_make(call->seed, call->exchange, FC_RNG_BATCHES,
                                 call->first_client + (uint32_t)v->k, (uint32_t)t);
        n = call->batch;
        for (fc_idx i = 0; i < n; i++) {
            fc_idx j = i + (fc_idx)fc_rng_below(&rng, (uint32_t)(v->n - i));
            fc_idx chosen = order[j];
            order[j] = order[i];
            order[i] = chosen;
            rows[i] = j;
        }
        for (fc_idx i = n; i-- > 0;) {
            fc_idx j = rows[i], chosen = order[i];
            order[i] = order[j];
            order[j] = chosen;
            rows[i] = chosen;
        }
    }
    for (fc_idx i = 0; i < n; i++) {
        fc_idx row = all ? i : rows[i];
        rows[i] = v->kept ? v->kept[row] : row;
    }
    return n;
}

/* Loss of a row with scores z (C); z becomes the slope of the loss in each score. */
static double loss_of(const fc_iht_problem *problem, int64_t i, double *z)
{
    if (problem->loss == FC_SQUARED) {
        z[0] -= problem->target[i];
        return 0.5 * z[0] * z[0];
    }
    if (problem->loss == FC_LOGISTIC) {
        double y = problem->code[i] ? 1 : -1, margin = y * z[0];
        double tail = exp(-fabs(margin)); /* cannot overflow */
        z[0] = -y * (margin > 0 ? tail : 1) / (1 + tail);
        return log1p(tail) + (margin < 0 ? -margin : 0);
    }
    double most = z[0], sum = 0, own;
    for (fc_idx c = 1; c < problem->n_outputs; c++)
        most = z[c] > most ? z[c] : most;
    own = z[problem->code[i]] - most;
    for (fc_idx c = 0; c < problem->n_outputs; c++)
        sum += z[c] = exp(z[c] - most);
    for (fc_idx c = 0; c < problem->n_outputs; c++)
        z[c] = z[c] / sum - (c == problem->code[i]);
    return log(sum) - own;
}

/* Weighted mean of the rows' losses; scores become slopes times weight / n. */
static double losses_of(const fc_iht_problem *problem, const fc_visit *v,
                        const fc_iht_work *work, fc_idx n)
{
    const fc_idx C = problem->n_outputs;
    double mean = 0;
    for (fc_idx r = 0; r < n; r++) {
        int64_t i = v->first + work->rows[r];
        double *z = work->slope + (size_t)r * (size_t)C;
        double share = (problem->weight ? problem->weight[i] : 1) / n;
        mean += share * loss_of(problem, i, z);
        for (fc_idx c = 0; c < C; c++)
            z[c] *= share;
    }
    return mean;
}

/* Keep the tau largest of x and make them the support. */
static void threshold(fc_visit *v, const fc_iht_rows *X, const fc_iht_problem *problem,
                      const fc_iht_work *work, fc_idx tau, int32_t *hint)
{
    const fc_idx C = problem->n_outputs, d = X->n_columns;
    fc_idx n = v->everywhere ? (v->own + v->n_foreign) * C : v->n_list * C;
    double *x = work->x, *candidate = v->everywhere ? x : work->candidate;
    fc_idx *list = work->list, *support = work->support;
    bool tied;

    if (!v->everywhere)
        for (fc_idx i = 0; i < v->n_list; i++)
            for (fc_idx c = 0; c < C; c++)
                candidate[i * C + c] = x[list[i] * C + c];
    fc_idx kept =
        fc_top_f64(n, candidate, NULL, tau, hint, work->chosen, &tied, &work->select);
    if (tied && (C > 1 || X->indptr)) {
        for (fc_idx i = 0; i < n; i++) {
            fc_idx f = v->everywhere ? i / C : list[i / C];
            work->place[i] = i % C * d + column_of(v, f);
        }
        kept = fc_top_f64(n, candidate, work->place, tau, hint, work->chosen, NULL,
                          &work->select);
    }
    v->n_support = kept;
    if (v->everywhere) {
        for (fc_idx i = 0; i < kept; i++) {
            support[i] = work->chosen[i];
            work->candidate[i] = x[support[i]];
        }
        memset(x, 0, (size_t)n * sizeof *x);
        for (fc_idx i = 0; i < kept; i++)
            x[support[i]] = work->candidate[i];
        return;
    }
    for (fc_idx i = 0; i < v->n_list; i++) {
        work->mark[list[i]] = 0;
        for (fc_idx c = 0; c < C; c++)
            x[list[i] * C + c] = 0;
    }
    for (fc_idx i = 0; i < kept; i++) {
        fc_idx at = work->chosen[i];
        support[i] = list[at / C] * C + at % C;
        x[support[i]] = candidate[at];
    }
    v->n_list = 0;
    for (fc_idx i = 0; i < kept; i++)
        touch(v, work, support[i] / C);
}

/* x -= step times what the client's correction holds. */
static void correct(fc_visit *v, const fc_iht_rows *X, const fc_iht_problem *problem,
                    const fc_iht_call *call, const fc_iht_work *work, fc_idx m,
                    double step)
{
    const fc_idx C = problem->n_outputs, d = X->n_columns;
    fc_idx near = 0;

    if (!call->correction_offsets)
        return;
    for (int64_t i = call->correction_offsets[m]; i < call->correction_offsets[m + 1];
         i++) {
        fc_idx f = feature_of(v, call->correction_index[i] % d, &near);
        if (!v->everywhere)
            touch(v, work, f);
        work->x[f * C + call->correction_index[i] / d] -=
            step * call->correction_value[i];
    }
    if (problem->intercept)
        for (fc_idx c = 0; c < C; c++)
            v->intercept[c] -= step * call->correction_intercept[(int64_t)m * C + c];
}

/* All features from now on: a list would cost more than it saves. */
static void spread(fc_visit *v, const fc_iht_work *work)
{
    for (fc_idx i = 0; i < v->n_list; i++)
        work->mark[work->list[i]] = 0;
    v->n_list = 0;
    v->everywhere = true;
}

/* Back to the list of what is not 0. */
static void gather(fc_visit *v, const fc_iht_problem *problem, const fc_iht_work *work)
{
    v->everywhere = false;
    for (fc_idx i = 0; i < v->n_support; i++)
        touch(v, work, work->support[i] / problem->n_outputs);
}

/* x *= factor */
static void shrink(const fc_visit *v, const fc_iht_problem *problem,
                   const fc_iht_work *work, double factor)
{
    const fc_idx C = problem->n_outputs;
    if (factor == 1)
        return;
    if (v->everywhere) {
        for (int64_t p = 0; p < ((int64_t)v->own + v->n_foreign) * C; p++)
            work->x[p] *= factor;
        return;
    }
    for (fc_idx i = 0; i < v->n_list; i++)
        for (fc_idx c = 0; c < C; c++)
            work->x[work->list[i] * C + c] *= factor;
}

#define REAL double
#define F(name) name##_f64
#include "fc_iht.inc"
#undef REAL
#undef F

#define REAL float
#define F(name) name##_f32
#include "fc_iht.inc"
