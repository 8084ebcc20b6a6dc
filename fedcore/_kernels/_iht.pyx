"""Calls into csrc/fc_iht.c: lengths are checked here, values by the callers."""
from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t, uint64_t
from libc.stdlib cimport calloc, free, malloc


cdef extern from "fc_select.h" nogil:
    ctypedef struct fc_select_work:
        int32_t *key
        int32_t *band
        int32_t *at
        int32_t *tie


cdef extern from "fc_iht.h" nogil:
    ctypedef int fc_iht_loss
    fc_iht_loss FC_SQUARED
    fc_iht_loss FC_SOFTMAX

    ctypedef struct fc_iht_rows:
        int32_t n_clients
        int32_t n_columns
        const int64_t *offsets
        const int64_t *starts
        const int32_t *columns
        const int32_t *sorted
        const int32_t *feature
        const int32_t *indptr
        const int32_t *indices
        const void *data

    ctypedef struct fc_iht_problem:
        fc_iht_loss loss
        int32_t n_outputs
        bint intercept
        const int32_t *code
        const double *target
        const double *weight
        const int32_t *kept
        const int64_t *kept_offsets

    ctypedef struct fc_iht_call:
        int32_t n_start
        const int32_t *index
        const double *value
        const double *intercept
        int32_t n_steps
        int32_t batch
        int32_t tau
        double l2
        uint64_t seed
        uint32_t exchange
        uint32_t first_client
        const int64_t *correction_offsets
        const int32_t *correction_index
        const double *correction_value
        const double *correction_intercept

    ctypedef struct fc_iht_work:
        double *x
        uint8_t *mark
        int32_t *list
        double *candidate
        int32_t *place
        int32_t *chosen
        int32_t *support
        int32_t *foreign
        int32_t *order
        int32_t *rows
        double *slope
        fc_select_work select

    int64_t fc_iht_width(const fc_iht_rows *, const fc_iht_call *, int32_t, int32_t)
    void fc_iht_iterate_f64(const fc_iht_rows *, const fc_iht_problem *,
                            const fc_iht_call *, const fc_iht_work *,
                            const int32_t *, int32_t, const double *, int32_t *,
                            double *, int64_t *, double *)
    void fc_iht_iterate_f32(const fc_iht_rows *, const fc_iht_problem *,
                            const fc_iht_call *, const fc_iht_work *,
                            const int32_t *, int32_t, const double *, int32_t *,
                            double *, int64_t *, double *)
    void fc_iht_descend_f64(const fc_iht_rows *, const fc_iht_problem *,
                            const fc_iht_call *, const fc_iht_work *,
                            const int32_t *, int32_t, const double *, const double *,
                            double *, double *)
    void fc_iht_descend_f32(const fc_iht_rows *, const fc_iht_problem *,
                            const fc_iht_call *, const fc_iht_work *,
                            const int32_t *, int32_t, const double *, const double *,
                            double *, double *)
    void fc_iht_gradient_f64(const fc_iht_rows *, const fc_iht_problem *,
                             const fc_iht_call *, const fc_iht_work *,
                             const int32_t *, int32_t, const double *, double *,
                             double *, double *)
    void fc_iht_gradient_f32(const fc_iht_rows *, const fc_iht_problem *,
                             const fc_iht_call *, const fc_iht_work *,
                             const int32_t *, int32_t, const double *, double *,
                             double *, double *)
    int64_t fc_iht_add_pairs(int64_t, int32_t, int32_t *, double *, int32_t *,
                             double *)


cdef extern from "fc_rng.h" nogil:
    uint32_t FC_RNG_MAX_ROUND


# &view[0] of an empty view is out of bounds: nothing, and none, pass NULL.
cdef inline const int32_t *ints(const int32_t[::1] view) noexcept:
    return &view[0] if view is not None and view.shape[0] else NULL


cdef inline const int64_t *longs(const int64_t[::1] view) noexcept:
    return &view[0] if view is not None and view.shape[0] else NULL


cdef inline const double *numbers(const double[::1] view) noexcept:
    return &view[0] if view is not None and view.shape[0] else NULL


cdef inline double *changing(double[::1] view) noexcept:
    return &view[0] if view is not None and view.shape[0] else NULL


cdef class Space:
    """Work space of one call; kept for the next, for to clear it anew would cost more
    than a step does.
    """

    cdef fc_iht_work work
    cdef size_t width, rows, brought

    def __cinit__(self, size_t width, size_t rows, size_t brought, size_t C):
        cdef size_t i
        cdef size_t cells = width * C
        self.width, self.rows, self.brought = width, rows, brought
        self.work.x = <double *>calloc(cells, sizeof(double))
        self.work.mark = <uint8_t *>calloc(width, 1)
        self.work.list = <int32_t *>malloc((width + 1) * sizeof(int32_t))
        self.work.candidate = <double *>malloc(cells * sizeof(double))
        self.work.slope = <double *>malloc(rows * C * sizeof(double))
        self.work.place = <int32_t *>malloc(cells * sizeof(int32_t))
        self.work.chosen = <int32_t *>malloc(cells * sizeof(int32_t))
        self.work.support = <int32_t *>malloc(cells * sizeof(int32_t))
        self.work.foreign = <int32_t *>malloc(brought * sizeof(int32_t))
        self.work.order = <int32_t *>malloc(rows * sizeof(int32_t))
        self.work.rows = <int32_t *>malloc(rows * sizeof(int32_t))
        self.work.select.key = <int32_t *>malloc((4 * cells + 4) * sizeof(int32_t))
        if (self.work.x == NULL or self.work.mark == NULL or self.work.list == NULL
                or self.work.candidate == NULL or self.work.slope == NULL
                or self.work.place == NULL or self.work.chosen == NULL
                or self.work.support == NULL or self.work.foreign == NULL
                or self.work.order == NULL or self.work.rows == NULL
                or self.work.select.key == NULL):
            raise MemoryError
        self.work.select.band = self.work.select.key + cells + 1
        self.work.select.at = self.work.select.band + cells + 1
        self.work.select.tie = self.work.select.at + cells + 1
        for i in range(rows):
            self.work.order[i] = <int32_t>i

    def __dealloc__(self):
        free(self.work.x)
        free(self.work.mark)
        free(self.work.list)
        free(self.work.candidate)
        free(self.work.slope)
        free(self.work.place)
        free(self.work.chosen)
        free(self.work.support)
        free(self.work.foreign)
        free(self.work.order)
        free(self.work.rows)
        free(self.work.select.key)


cdef class IHTCohort:
    """Rows and problem of a cohort of clients, bound once for many calls.

    Arrays are borrowed and kept alive. Several calls may run at the same time.
    """

    cdef fc_iht_rows X
    cdef fc_iht_problem problem
    cdef object arrays
    cdef list spaces
    cdef bint single

    def __init__(self, const int64_t[::1] offsets, const int64_t[::1] starts,
                 const int32_t[::1] columns, const int32_t[::1] ascending,
                 const int32_t[::1] feature, const int32_t[::1] indptr,
                 const int32_t[::1] indices, data, int32_t n_columns, *,
                 int loss, int32_t n_outputs, bint intercept,
                 const int32_t[::1] code, const double[::1] target,
                 const double[::1] weight, const int32_t[::1] kept,
                 const int64_t[::1] kept_offsets):
        cdef int64_t n_clients = offsets.shape[0] - 1
        cdef int64_t n, size
        cdef const float[::1] data32
        cdef const double[::1] data64
        if n_clients < 0:
            raise ValueError("IHTCohort: offsets is empty")
        n = offsets[n_clients]
        cdef int n_given = (columns is not None) + (indptr is not None)
        n_given += (indices is not None) + (starts is not None)
        n_given += (ascending is not None) + (feature is not None)
        if n_given not in (0, 6):
            raise ValueError(
                "IHTCohort: CSR rows need all six arrays")
        if indptr is not None and not (indptr.shape[0] == n + 1
                                       and starts.shape[0] == n_clients + 1
                                       and columns.shape[0] == starts[n_clients]
                                       and ascending.shape[0] == columns.shape[0]
                                       and feature.shape[0] == columns.shape[0]
                                       and indices.shape[0] == indptr[n]):
            raise ValueError("IHTCohort: the CSR arrays disagree")
        if not FC_SQUARED <= loss <= FC_SOFTMAX:
            raise ValueError("IHTCohort: no such loss")
        if (code is None) != (loss == FC_SQUARED) or (code is None) == (target is None):
            raise ValueError("IHTCohort: target for squared, code for the others")
        if not (n_outputs > 0 and (n_outputs == 1 or loss == FC_SOFTMAX)
                and <int64_t>n_outputs * n_columns < 2**31
                and (code is None or code.shape[0] == n)
                and (target is None or target.shape[0] == n)
                and (weight is None or weight.shape[0] == n)
                and (kept is None) == (kept_offsets is None)
                and (kept is None or (kept_offsets.shape[0] == n_clients + 1
                                      and kept.shape[0] == kept_offsets[n_clients]))):
            raise ValueError("IHTCohort: array lengths disagree")

        self.spaces = []
        self.single = data.dtype.itemsize == 4
        self.X.data = NULL
        if self.single:
            data32 = data
            size = data32.shape[0]
            if size:
                self.X.data = &data32[0]
        else:
            data64 = data
            size = data64.shape[0]
            if size:
                self.X.data = &data64[0]
        if size != (n * n_columns if indptr is None else indices.shape[0]):
            raise ValueError("IHTCohort: data has the wrong length")

        self.X.n_clients = <int32_t>n_clients
        self.X.n_columns = n_columns
        self.X.offsets = &offsets[0]
        self.X.starts = longs(starts)
        self.X.columns = ints(columns)
        self.X.sorted = ints(ascending)
        self.X.feature = ints(feature)
        self.X.indptr = ints(indptr)
        self.X.indices = ints(indices)
        self.problem.loss = <fc_iht_loss>loss
        self.problem.n_outputs = n_outputs
        self.problem.intercept = intercept
        self.problem.code = ints(code)
        self.problem.target = numbers(target)
        self.problem.weight = numbers(weight)
        self.problem.kept = ints(kept)
        self.problem.kept_offsets = longs(kept_offsets)
        self.arrays = (offsets, starts, columns, ascending, feature, indptr, indices,
                       data, code, target, weight, kept, kept_offsets)

    @property
    def n_outputs(self):
        """Number of outputs C."""
        return self.problem.n_outputs

    @property
    def n_columns(self):
        """Number of columns d."""
        return self.X.n_columns

    cdef fc_iht_call call(self, const int32_t[::1] index, const double[::1] value,
                          const double[::1] intercept, int32_t n_steps, int32_t batch,
                          int32_t tau, double l2, uint64_t seed, uint32_t exchange,
                          uint32_t first_client, correction,
                          int64_t n_active) except *:
        cdef fc_iht_call call
        cdef const int64_t[::1] offsets = None
        cdef const int32_t[::1] places = None
        cdef const double[::1] values = None
        cdef const double[:, ::1] intercepts = None
        cdef int64_t i, n_places
        cdef int32_t limit = self.problem.n_outputs * self.X.n_columns
        if not (index.shape[0] == value.shape[0] <= limit
                and intercept.shape[0] == self.problem.n_outputs):
            raise ValueError("IHTCohort: array lengths disagree")
        for i in range(index.shape[0]):
            if not (-1 if i == 0 else index[i - 1]) < index[i] < limit:
                raise ValueError("IHTCohort: places do not ascend")
        if exchange > FC_RNG_MAX_ROUND or n_steps < 0 or batch < 0 or tau < 0:
            raise ValueError("IHTCohort: exchange, steps, batch or tau out of range")
        call.n_start = <int32_t>index.shape[0]
        call.index = ints(index)
        call.value = numbers(value)
        call.intercept = &intercept[0]
        call.n_steps = n_steps
        call.batch = batch
        call.tau = tau
        call.l2 = l2
        call.seed = seed
        call.exchange = exchange
        call.first_client = first_client
        call.correction_offsets = NULL
        call.correction_index = NULL
        call.correction_value = call.correction_intercept = NULL
        if correction is None:
            return call
        offsets, places, values, intercepts = correction
        n_places = places.shape[0]
        if not (offsets.shape[0] == n_active + 1 and values.shape[0] == n_places
                and intercepts.shape[0] == n_active
                and intercepts.shape[1] == self.problem.n_outputs
                and offsets[0] == 0 and offsets[n_active] == n_places):
            raise ValueError("IHTCohort: the correction's arrays disagree")
        for i in range(n_active):
            if offsets[i] > offsets[i + 1]:
                raise ValueError("IHTCohort: the correction's arrays disagree")
        for i in range(n_places):
            if not 0 <= places[i] < limit:
                raise ValueError("IHTCohort: no such place in the correction")
        call.correction_offsets = &offsets[0]
        call.correction_index = ints(places)
        call.correction_value = numbers(values)
        if n_active:
            call.correction_intercept = &intercepts[0, 0]
        return call

    cdef Space space(self, const fc_iht_call *call, const int32_t[::1] active):
        cdef int64_t m, width = 1, rows = 1, brought = 1, k, n
        cdef Space space
        for m in range(active.shape[0]):
            k = active[m]
            if not 0 <= k < self.X.n_clients:
                raise ValueError("IHTCohort: no such client")
            width = max(width, fc_iht_width(&self.X, call, <int32_t>k, <int32_t>m))
            rows = max(rows, self.X.offsets[k + 1] - self.X.offsets[k])
            n = call.n_start
            if call.correction_offsets != NULL:
                n += call.correction_offsets[m + 1] - call.correction_offsets[m]
            brought = max(brought, n)
        try:  # calls in other threads have taken theirs out
            space = self.spaces.pop()
        except IndexError:
            space = None
        if (space is None or space.width < <size_t>width or space.rows < <size_t>rows
                or space.brought < <size_t>brought):
            space = Space(<size_t>width, <size_t>rows, <size_t>brought,
                          <size_t>self.problem.n_outputs)
        return space

    def iterate(self, const int32_t[::1] active, const int32_t[::1] start_index,
                const double[::1] start_value, const double[::1] start_intercept,
                const double[::1] step, int32_t[::1] index, double[::1] value,
                int64_t[::1] counts, double[:, ::1] intercepts, *, int32_t n_steps,
                int32_t batch, int32_t tau, double l2, uint64_t seed,
                uint32_t exchange, uint32_t first_client, correction=None):
        """Run thresholded steps at the active clients; see fc_iht_iterate."""
        cdef int64_t n_active = active.shape[0]
        cdef fc_iht_call call = self.call(
            start_index, start_value, start_intercept, n_steps, batch, tau, l2, seed,
            exchange, first_client, correction, n_active)
        cdef Space space
        if not (step.shape[0] == counts.shape[0] == intercepts.shape[0] == n_active
                and intercepts.shape[1] == self.problem.n_outputs
                and index.shape[0] == value.shape[0]
                and index.shape[0] >= n_active * tau):
            raise ValueError("IHTCohort: array lengths disagree")
        if n_active == 0:
            return
        cdef int32_t *index_p = &index[0] if index.shape[0] else NULL
        cdef double *value_p = changing(value)
        space = self.space(&call, active)
        cdef const fc_iht_work *work = &space.work
        with nogil:
            if self.single:
                fc_iht_iterate_f32(&self.X, &self.problem, &call, work, &active[0],
                                   <int32_t>n_active, &step[0], index_p, value_p,
                                   &counts[0], &intercepts[0, 0])
            else:
                fc_iht_iterate_f64(&self.X, &self.problem, &call, work, &active[0],
                                   <int32_t>n_active, &step[0], index_p, value_p,
                                   &counts[0], &intercepts[0, 0])
        self.spaces.append(space)

    def descend(self, const int32_t[::1] active, const int32_t[::1] start_index,
                const double[::1] start_value, const double[::1] start_intercept,
                const double[::1] step, const double[::1] share, double[::1] total,
                double[:, ::1] intercepts, *, int32_t n_steps, int32_t batch,
                double l2, uint64_t seed, uint32_t exchange, uint32_t first_client,
                correction=None):
        """Run steps without thresholds at the active clients; see fc_iht_descend."""
        cdef int64_t n_active = active.shape[0]
        cdef int64_t length = <int64_t>self.problem.n_outputs * self.X.n_columns
        cdef fc_iht_call call = self.call(
            start_index, start_value, start_intercept, n_steps, batch, 0, l2, seed,
            exchange, first_client, correction, n_active)
        cdef Space space
        if not (step.shape[0] == share.shape[0] == intercepts.shape[0] == n_active
                and intercepts.shape[1] == self.problem.n_outputs
                and total.shape[0] == length):
            raise ValueError("IHTCohort: array lengths disagree")
        if n_active == 0:
            return
        cdef double *total_p = changing(total)
        space = self.space(&call, active)
        cdef const fc_iht_work *work = &space.work
        with nogil:
            if self.single:
                fc_iht_descend_f32(&self.X, &self.problem, &call, work, &active[0],
                                   <int32_t>n_active, &step[0], &share[0], total_p,
                                   &intercepts[0, 0])
            else:
                fc_iht_descend_f64(&self.X, &self.problem, &call, work, &active[0],
                                   <int32_t>n_active, &step[0], &share[0], total_p,
                                   &intercepts[0, 0])
        self.spaces.append(space)

    def gradient(self, const int32_t[::1] active, const int32_t[::1] start_index,
                 const double[::1] start_value, const double[::1] start_intercept,
                 const double[::1] share, double[::1] total, double[::1] intercept,
                 double[::1] losses, *, int32_t batch, uint64_t seed,
                 uint32_t exchange, uint32_t first_client):
        """Add up gradients and measure losses; see fc_iht_gradient."""
        cdef int64_t n_active = active.shape[0]
        cdef int64_t length = <int64_t>self.problem.n_outputs * self.X.n_columns
        cdef fc_iht_call call = self.call(
            start_index, start_value, start_intercept, 1, batch, 0, 0, seed, exchange,
            first_client, None, n_active)
        cdef Space space
        if not (share.shape[0] == losses.shape[0] == n_active
                and intercept.shape[0] == self.problem.n_outputs
                and (total is None or total.shape[0] == length)):
            raise ValueError("IHTCohort: array lengths disagree")
        if n_active == 0:
            return
        cdef double *total_p = changing(total)
        space = self.space(&call, active)
        cdef const fc_iht_work *work = &space.work
        with nogil:
            if self.single:
                fc_iht_gradient_f32(&self.X, &self.problem, &call, work, &active[0],
                                    <int32_t>n_active, &share[0], total_p,
                                    &intercept[0], &losses[0])
            else:
                fc_iht_gradient_f64(&self.X, &self.problem, &call, work, &active[0],
                                    <int32_t>n_active, &share[0], total_p,
                                    &intercept[0], &losses[0])
        self.spaces.append(space)


def add_pairs(int32_t[::1] index, double[::1] value, int32_t[::1] other_index,
              double[::1] other_value, int32_t limit):
    """Add pairs of equal place in place; return how many are left."""
    cdef int64_t n = index.shape[0]
    if not value.shape[0] == other_index.shape[0] == other_value.shape[0] == n:
        raise ValueError("add_pairs: array lengths disagree")
    if n == 0:
        return 0
    with nogil:
        n = fc_iht_add_pairs(n, limit, &index[0], &value[0], &other_index[0],
                             &other_value[0])
    return n
