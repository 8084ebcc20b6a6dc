#include "fc_assign.h"

#include "fc_assign_lanes.h"

#include <float.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* Cold, prices are first found roughly, by bids that rise by more than they must:
 * measured, it takes a third of the scans at d = 64 and half at d = 2. */
enum {
    PHASES = 3,
    FINER = 4,       /* a phase's extra, beside that of the next */
    ROUGH_TURNS = 2, /* bids a row in each phase */
    LAST_TURNS = 2,  /* without extra, before paths take over */
    COARSER = 256    /* from one bound of the costs to the next */
};
static const double FIRST_EXTRA = 0.1; /* of the mean cost, reduced by columns */
static const double PRECISE = 0x1p-40; /* loss, relative to the cost, that will do */

struct fc_assign_work {
    double *d, *w, *at, *from; /* distances, prices in use, as scanned, by which row */
    double *low, *price, *reduced, *bounded;
    fc_idx *owner, *free_rows, *free_columns, *scanned, *best;
    fc_idx n_free_columns;
};

fc_assign_work *fc_assign_work_new(fc_idx n)
{
    const size_t m = (size_t)n;
    fc_assign_work *work = malloc(sizeof *work + m * (2 * m + 6) * sizeof(double) +
                                  5 * m * sizeof(fc_idx));
    if (!work)
        return NULL;
    double *numbers = (double *)(work + 1);
    double **vectors[] = {&work->d,    &work->w,   &work->at,
                          &work->from, &work->low, &work->price};
    for (size_t k = 0; k < sizeof vectors / sizeof *vectors; k++, numbers += m)
        *vectors[k] = numbers;
    work->reduced = numbers;
    work->bounded = work->reduced + m * m;
    fc_idx *indices = (fc_idx *)(work->bounded + m * m);
    work->owner = indices;
    work->free_rows = indices + m;
    work->free_columns = indices + 2 * m;
    work->scanned = indices + 3 * m;
    work->best = indices + 4 * m;
    memset(work->from, 0, m * sizeof(double)); /* read before it is first written */
    return work;
}

void fc_assign_work_free(fc_assign_work *work) { free(work); }

#define JOIN2(a, b) a##_##b
#define JOIN(a, b) JOIN2(a, b)
#define V(name) JOIN(F(name), ISA)
#define O(name) JOIN(name, ISA)

#define REAL double
#define F(name) name##_f64
#define LOAD O(load_f64)
#include "fc_assign.inc"
#undef REAL
#undef F
#undef LOAD

#define REAL float
#define F(name) name##_f32
#define LOAD O(load_f32)
#include "fc_assign.inc"
