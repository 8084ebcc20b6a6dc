"""Calls into csrc/fc_svm.c: lengths are checked here, values by the callers."""
from cpython.exc cimport PyErr_CheckSignals
from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t, uint64_t
from libc.stdlib cimport free, malloc


cdef extern from "fc_svm.h" nogil:
    ctypedef int fc_svm_loss

    ctypedef struct fc_svm_rows:
        int32_t n_clients
        int32_t n_columns
        const int64_t *offsets
        const int64_t *starts
        const int32_t *columns
        const int32_t *indptr
        const int32_t *indices
        const void *data

    ctypedef struct fc_svm_problem:
        fc_svm_loss loss
        int32_t n_classes
        double C1
        double epsilon
        double bias
        const int32_t *code
        const double *target
        const double *weight
        const double *class_weight
        const uint8_t *absent
        const double *sqnorm
        const uint8_t *personal
        const double *own_sqnorm

    ctypedef struct fc_svm_state:
        double *b
        double *s
        double *b_before
        double *s_before
        uint8_t *rest
        double *violation

    ctypedef struct fc_svm_call:
        const double *coupling
        const double *inv_C2
        const double *inv_C2_absent
        const uint8_t *working
        int32_t passes
        bint renew
        bint hand_on
        uint64_t seed
        uint32_t exchange
        uint32_t first_client
        bint (*stop)(void *asked) noexcept
        void *asked

    ctypedef struct fc_svm_lone:
        const int32_t *split
        const int32_t *place
        const float *data
        const double *sqnorm
        const int32_t *columns
        const int64_t *starts

    ctypedef struct fc_svm_work:
        double *u
        int32_t *order
        double *past
        double *ds
        double *own
        double *interior

    int FC_SVM_N_UPDATE
    int FC_SVM_N_SOLVE
    int FC_SVM_WINDOW

    size_t fc_svm_interior_work(int32_t, int32_t)
    void fc_svm_sqnorms_f64(const fc_svm_rows *, double, double *, float *)
    void fc_svm_sqnorms_f32(const fc_svm_rows *, double, double *, float *)
    void fc_svm_own_sqnorms_f64(const fc_svm_rows *, double, const uint8_t *, double *)
    void fc_svm_own_sqnorms_f32(const fc_svm_rows *, double, const uint8_t *, double *)
    void fc_svm_update_f64(const fc_svm_rows *, const fc_svm_problem *,
                           const fc_svm_call *, fc_svm_state *, const fc_svm_work *,
                           const int32_t *, int32_t, const double *, double *,
                           double *, bint, double *)
    void fc_svm_update_f32(const fc_svm_rows *, const fc_svm_problem *,
                           const fc_svm_call *, fc_svm_state *, const fc_svm_work *,
                           const int32_t *, int32_t, const double *, double *,
                           double *, bint, double *)
    int64_t fc_svm_set_lone_apart_f64(const fc_svm_rows *, bint, int32_t *, int32_t *,
                                      int32_t *, float *, double *, int32_t *,
                                      int64_t *)
    int64_t fc_svm_set_lone_apart_f32(const fc_svm_rows *, bint, int32_t *, int32_t *,
                                      int32_t *, float *, double *, int32_t *,
                                      int64_t *)
    void fc_svm_update_lone(const fc_svm_rows *, const fc_svm_lone *,
                            const fc_svm_problem *, const fc_svm_call *,
                            fc_svm_state *, const fc_svm_work *, const int32_t *,
                            int32_t, const double *, double *, double *)
    void fc_svm_solve_f64(const fc_svm_rows *, const fc_svm_problem *,
                          const fc_svm_call *, fc_svm_state *, const fc_svm_work *,
                          const int32_t *, int32_t, const double *, const double *,
                          const double *, const double *, const double *, double *,
                          bint, double *)
    void fc_svm_solve_f32(const fc_svm_rows *, const fc_svm_problem *,
                          const fc_svm_call *, fc_svm_state *, const fc_svm_work *,
                          const int32_t *, int32_t, const double *, const double *,
                          const double *, const double *, const double *, double *,
                          bint, double *)
    void fc_svm_gaps_f64(const fc_svm_rows *, const fc_svm_problem *,
                         const fc_svm_call *, fc_svm_state *, const fc_svm_work *,
                         const int32_t *, int32_t, const double *, const double *,
                         double *)
    void fc_svm_gaps_f32(const fc_svm_rows *, const fc_svm_problem *,
                         const fc_svm_call *, fc_svm_state *, const fc_svm_work *,
                         const int32_t *, int32_t, const double *, const double *,
                         double *)

N_UPDATE_FIGURES = FC_SVM_N_UPDATE
N_SOLVE_FIGURES = FC_SVM_N_SOLVE


cdef extern from "fc_rng.h" nogil:
    uint32_t FC_RNG_MAX_ROUND


# &view[0] of an empty view is out of bounds: nothing, and none, pass NULL.
cdef inline const int32_t *ints(const int32_t[::1] view) noexcept:
    return &view[0] if view is not None and view.shape[0] else NULL


cdef inline const double *numbers(const double[::1] view) noexcept:
    return &view[0] if view is not None and view.shape[0] else NULL


cdef inline double *changing(double[::1] view) noexcept:
    return &view[0] if view is not None and view.shape[0] else NULL


cdef void release(fc_svm_work work) noexcept:
    free(work.u)
    free(work.order)
    free(work.past)
    free(work.ds)
    free(work.own)
    free(work.interior)


# A solve may take minutes: a signal must end it, in whichever thread it runs.
cdef bint is_stopped(void *asked) noexcept with gil:
    cdef SVMCohort cohort = <SVMCohort>asked
    if cohort.stopped is None:
        try:
            PyErr_CheckSignals()
        except BaseException as error:
            cohort.stopped = error
    return cohort.stopped is not None


cdef class SVMCohort:
    """Rows, problem and state of a cohort of clients, bound once for many calls.

    Arrays are borrowed and kept alive; `state` arrays change in place, `sqnorm` and
    `own_sqnorm` are filled. Outside the columns that `personal` marks, v_k is 0.
    `update` reads a float32 copy of the rows if told to: `mirror`, filled from float64
    rows, or that of sparse rows, reordered, which `set_lone_apart` fills.
    """

    cdef fc_svm_rows rows
    cdef fc_svm_rows mirror_rows
    cdef fc_svm_lone lone
    cdef fc_svm_problem problem
    cdef fc_svm_state state
    cdef object arrays, mirror, lone_arrays, stopped
    cdef bint single
    cdef int64_t longest_vector, most_rows, n_vectors

    def __init__(self, const int64_t[::1] offsets, const int64_t[::1] starts,
                 const int32_t[::1] columns, const int32_t[::1] indptr,
                 const int32_t[::1] indices, data, int32_t n_columns, *,
                 int loss, int32_t n_classes, double C1, double epsilon, double bias,
                 const int32_t[::1] code, const double[::1] target,
                 const double[::1] weight, const double[:, ::1] class_weight,
                 const uint8_t[:, ::1] absent, double[::1] sqnorm,
                 double[::1] b, double[::1] s, double[::1] b_before,
                 double[::1] s_before, uint8_t[::1] rest, double[:, ::1] violation,
                 float[::1] mirror=None, const uint8_t[::1] personal=None,
                 double[::1] own_sqnorm=None):
        cdef int64_t k, n_clients = offsets.shape[0] - 1
        cdef int64_t n, size
        cdef const float[::1] data32
        cdef const double[::1] data64
        if n_clients < 0 or starts.shape[0] != n_clients + 1:
            raise ValueError("SVMCohort: offsets and starts disagree")
        n = offsets[n_clients]
        self.n_vectors = starts[n_clients]
        cdef int n_given = (columns is not None) + (indptr is not None)
        n_given += indices is not None
        if n_given not in (0, 3):
            raise ValueError("SVMCohort: CSR rows need columns, indptr and indices")
        if indptr is not None and (indptr.shape[0] != n + 1
                                   or columns.shape[0] != self.n_vectors
                                   or indices.shape[0] != indptr[n]):
            raise ValueError("SVMCohort: the CSR arrays disagree")
        if (code is None) == (target is None):
            raise ValueError("SVMCohort: either code or target")
        if not (sqnorm.shape[0] == n
                and (code is None or code.shape[0] == n)
                and (target is None or target.shape[0] == n)
                and (weight is None or weight.shape[0] == n)
                and b.shape[0] == rest.shape[0] == n * n_classes
                and s.shape[0] == self.n_vectors * n_classes
                and (b_before is None or b_before.shape[0] == b.shape[0])
                and (s_before is None or s_before.shape[0] == s.shape[0])
                and (b_before is None) == (s_before is None)
                and violation.shape[0] == n_clients
                and violation.shape[1] == n_classes
                and (class_weight is None or (class_weight.shape[0] == n_classes
                                              and class_weight.shape[1] == 2))
                and (absent is None or (absent.shape[0] == n_clients
                                        and absent.shape[1] == n_classes))
                and (personal is None or personal.shape[0] == n_columns + (bias != 0))
                and (own_sqnorm is None or own_sqnorm.shape[0] == n)
                and (personal is None) == (own_sqnorm is None)):
            raise ValueError("SVMCohort: array lengths disagree")

        self.single = data.dtype.itemsize == 4
        self.rows.data = NULL
        if self.single:
            data32 = data
            size = data32.shape[0]
            if size:
                self.rows.data = &data32[0]
        else:
            data64 = data
            size = data64.shape[0]
            if size:
                self.rows.data = &data64[0]
        if mirror is not None and (self.single or mirror.shape[0] != size):
            raise ValueError("SVMCohort: mirror has the wrong length or no use")
        if size != (n * n_columns if indptr is None else indices.shape[0]):
            raise ValueError("SVMCohort: data has the wrong length")

        self.rows.n_clients = <int32_t>n_clients
        self.rows.n_columns = n_columns
        self.rows.offsets = &offsets[0]
        self.rows.starts = &starts[0]
        self.rows.indptr = ints(indptr)
        self.rows.columns = ints(columns)
        self.rows.indices = ints(indices)

        self.problem.loss = <fc_svm_loss>loss
        self.problem.n_classes = n_classes
        self.problem.C1 = C1
        self.problem.epsilon = epsilon
        self.problem.bias = bias
        self.problem.code = ints(code)
        self.problem.target = numbers(target)
        self.problem.weight = numbers(weight)
        self.problem.sqnorm = numbers(sqnorm)
        self.problem.class_weight = NULL
        self.problem.absent = NULL
        self.problem.personal = NULL
        if personal is not None and personal.shape[0]:
            self.problem.personal = &personal[0]
        self.problem.own_sqnorm = numbers(own_sqnorm)
        if class_weight is not None:
            self.problem.class_weight = &class_weight[0, 0]
        if absent is not None and n_clients:
            self.problem.absent = &absent[0, 0]

        self.state.b = changing(b)
        self.state.s = changing(s)
        self.state.b_before = changing(b_before)
        self.state.s_before = changing(s_before)
        self.state.rest = &rest[0] if rest.shape[0] else NULL
        self.state.violation = &violation[0, 0] if n_clients else NULL
        self.mirror_rows = self.rows
        cdef float *mirror_p = NULL
        if mirror is not None and size:
            mirror_p = &mirror[0]
        self.mirror_rows.data = mirror_p
        self.mirror = mirror
        self.lone_arrays = None
        self.arrays = (offsets, starts, columns, indptr, indices, data, code, target,
                       weight, class_weight, absent, sqnorm, b, s, b_before, s_before,
                       rest, violation, personal, own_sqnorm)

        self.longest_vector = self.most_rows = 0
        for k in range(n_clients):
            self.longest_vector = max(self.longest_vector, starts[k + 1] - starts[k])
            self.most_rows = max(self.most_rows, offsets[k + 1] - offsets[k])
        if n:
            with nogil:
                if self.single:
                    fc_svm_sqnorms_f32(&self.rows, bias, &sqnorm[0], NULL)
                else:
                    fc_svm_sqnorms_f64(&self.rows, bias, &sqnorm[0], mirror_p)
        if n and self.problem.personal != NULL:
            with nogil:
                if self.single:
                    fc_svm_own_sqnorms_f32(&self.rows, bias, self.problem.personal,
                                           &own_sqnorm[0])
                else:
                    fc_svm_own_sqnorms_f64(&self.rows, bias, self.problem.personal,
                                           &own_sqnorm[0])

    def set_lone_apart(self, int32_t[::1] split, int32_t[::1] place, float[::1] data,
                       double[::1] sqnorm, int32_t[::1] columns,
                       int64_t[::1] starts):
        """Fill the arrays, keep them, and return the length of `columns` in use."""
        cdef int64_t n = self.rows.offsets[self.rows.n_clients], used
        cdef bint has_bias = self.problem.bias != 0
        if not (self.rows.indptr != NULL and split.shape[0] == sqnorm.shape[0] == n
                and place.shape[0] == data.shape[0] == self.rows.indptr[n]
                and columns.shape[0] == self.n_vectors
                and starts.shape[0] == self.rows.n_clients + 1):
            raise ValueError("SVMCohort: array lengths disagree")
        if self.problem.personal != NULL:
            raise ValueError("SVMCohort: with lone entries apart all is personal")
        if not place.shape[0]:
            raise ValueError("SVMCohort: no entries to set apart")
        cdef size_t length = <size_t>self.longest_vector
        cdef int32_t *repeated = <int32_t *>malloc(length * sizeof(int32_t) + 1)
        if repeated == NULL:
            raise MemoryError
        with nogil:
            if self.single:
                used = fc_svm_set_lone_apart_f32(
                    &self.rows, has_bias, repeated, &split[0], &place[0], &data[0],
                    &sqnorm[0], &columns[0], &starts[0])
            else:
                used = fc_svm_set_lone_apart_f64(
                    &self.rows, has_bias, repeated, &split[0], &place[0], &data[0],
                    &sqnorm[0], &columns[0], &starts[0])
        free(repeated)
        self.lone.split = &split[0]
        self.lone.place = &place[0]
        self.lone.data = &data[0]
        self.lone.sqnorm = &sqnorm[0]
        self.lone.columns = &columns[0]
        self.lone.starts = &starts[0]
        self.lone_arrays = split, place, data, sqnorm, columns, starts
        return used

    cdef int check(self, const int32_t[::1] active, const double[:, ::1] step,
                   const double[:, ::1] w, double[::1] total, bint packed,
                   const double[:, ::1] inv_C2, const uint8_t[::1] working,
                   int32_t passes, uint32_t exchange) except -1:
        cdef int32_t C = self.problem.n_classes
        cdef int64_t m, length = self.rows.n_columns + (self.problem.bias != 0)
        cdef int64_t packed_length = 0
        # Beyond these the names of two random streams would meet.
        if exchange > FC_RNG_MAX_ROUND or not 0 <= passes < 65536 or C > 65535:
            raise ValueError("SVMCohort: exchange, passes or classes beyond the limit")
        for m in range(active.shape[0]):
            if not 0 <= active[m] < self.rows.n_clients:
                raise ValueError("SVMCohort: no such client")
            packed_length += self.rows.starts[active[m] + 1]
            packed_length -= self.rows.starts[active[m]]
        if not (w.shape[0] == C and w.shape[1] == length
                and (total is None or total.shape[0] == C * (
                    packed_length if packed else length))
                and inv_C2.shape[0] == 2 and inv_C2.shape[1] == C
                and working.shape[0] == C
                and (step is None or (step.shape[0] == active.shape[0]
                                      and step.shape[1] == C))):
            raise ValueError("SVMCohort: array lengths disagree")
        return 0

    cdef fc_svm_work allocate(self, bint solving, bint apart) except *:
        cdef fc_svm_work work
        cdef size_t n = <size_t>self.most_rows
        cdef size_t length = <size_t>self.longest_vector
        work.u = <double *>malloc(length * sizeof(double) + 1)
        work.order = <int32_t *>malloc(n * sizeof(int32_t) + 1)
        cdef size_t size = fc_svm_interior_work(
            <int32_t>self.most_rows, <int32_t>self.longest_vector)
        work.past = work.ds = work.own = work.interior = NULL
        if self.problem.personal != NULL:
            work.own = <double *>malloc(length * sizeof(double) + 1)
        if solving or apart:
            work.ds = <double *>malloc(length * sizeof(double) + 1)
        if solving:
            work.past = <double *>malloc((FC_SVM_WINDOW + 1) * n * sizeof(double) + 1)
            work.interior = <double *>malloc(size * sizeof(double) + 1)
        cdef bint lacks = work.u == NULL or work.order == NULL
        if (solving or apart) and work.ds == NULL:
            lacks = True
        if solving and (work.past == NULL or work.interior == NULL):
            lacks = True
        if self.problem.personal != NULL and work.own == NULL:
            lacks = True
        if lacks:
            release(work)
            raise MemoryError
        return work

    def update(self, const int32_t[::1] active, const double[:, ::1] step,
               double[:, ::1] w, double[::1] dw, double[:, ::1] figures, *,
               const double[::1] coupling, const double[:, ::1] inv_C2,
               const uint8_t[::1] working,
               int32_t passes, bint hand_on, uint64_t seed, uint32_t exchange,
               uint32_t first_client, bint packed=False, bint rough=False):
        """Run passes at the active clients in place; see fc_svm_update."""
        cdef fc_svm_call call
        cdef fc_svm_work work
        cdef int32_t n_active = <int32_t>active.shape[0]
        if hand_on and packed:
            raise ValueError("SVMCohort: hand_on fills no packed dw")
        self.check(active, step, w, dw, packed, inv_C2, working, passes, exchange)
        if not (figures.shape[0] == coupling.shape[0] == w.shape[0]
                and figures.shape[1] == FC_SVM_N_UPDATE):
            raise ValueError("SVMCohort: array lengths disagree")
        if self.state.b_before == NULL and self.state.b != NULL:
            raise ValueError("SVMCohort: update needs b_before and s_before")
        cdef bint apart = rough and self.lone_arrays is not None
        if apart and not hand_on:
            raise ValueError("SVMCohort: with lone entries apart w must be handed on")
        if rough and not apart and self.mirror is None:
            raise ValueError("SVMCohort: there is no mirror of the rows")
        if n_active == 0:
            return
        call.coupling = &coupling[0]
        call.inv_C2 = &inv_C2[0, 0]
        call.inv_C2_absent = &inv_C2[1, 0]
        call.working = &working[0]
        call.passes = passes
        call.renew = False
        call.hand_on = hand_on
        call.seed = seed
        call.exchange = exchange
        call.first_client = first_client
        call.stop = NULL
        work = self.allocate(False, apart)
        cdef const double *step_p = &step[0, 0] if step is not None else NULL
        cdef double *w_p = &w[0, 0] if w.shape[1] else NULL
        cdef double *dw_p = &dw[0] if dw.shape[0] else NULL
        with nogil:
            if apart:
                fc_svm_update_lone(&self.rows, &self.lone, &self.problem, &call,
                                   &self.state, &work, &active[0], n_active, step_p,
                                   w_p, &figures[0, 0])
            elif rough:
                fc_svm_update_f32(&self.mirror_rows, &self.problem, &call, &self.state,
                                  &work, &active[0], n_active, step_p, w_p, dw_p,
                                  packed, &figures[0, 0])
            elif self.single:
                fc_svm_update_f32(&self.rows, &self.problem, &call, &self.state, &work,
                                  &active[0], n_active, step_p, w_p, dw_p,
                                  packed, &figures[0, 0])
            else:
                fc_svm_update_f64(&self.rows, &self.problem, &call, &self.state, &work,
                                  &active[0], n_active, step_p, w_p, dw_p,
                                  packed, &figures[0, 0])
        release(work)

    def solve(self, const int32_t[::1] active, const double[:, ::1] step,
              const double[:, ::1] w, double[::1] s_sum, double[:, ::1] figures, *,
              const double[::1] tol, const double[:, ::1] inv_C2,
              const double[:, ::1] true_inv_C2, const uint8_t[::1] working,
              int32_t passes, uint64_t seed, uint32_t exchange, uint32_t first_client,
              bint renew=False, bint packed=False):
        """Solve or measure the active clients at a fixed w; see fc_svm_solve.

        A signal handler that raises ends it within moments.
        """
        cdef fc_svm_call call
        cdef fc_svm_work work
        cdef int32_t n_active = <int32_t>active.shape[0]
        self.check(active, step, w, s_sum, packed, inv_C2, working, passes, exchange)
        if not (figures.shape[0] == w.shape[0] and figures.shape[1] == FC_SVM_N_SOLVE
                and tol.shape[0] == w.shape[0]
                and true_inv_C2.shape[0] == 2 and true_inv_C2.shape[1] == w.shape[0]):
            raise ValueError("SVMCohort: array lengths disagree")
        if n_active == 0:
            return
        call.coupling = NULL
        call.inv_C2 = &inv_C2[0, 0]
        call.inv_C2_absent = &inv_C2[1, 0]
        call.working = &working[0]
        call.passes = passes
        call.renew = renew
        call.hand_on = False
        call.seed = seed
        call.exchange = exchange
        call.first_client = first_client
        call.stop = is_stopped
        call.asked = <void *>self
        work = self.allocate(True, False)
        cdef const double *step_p = &step[0, 0] if step is not None else NULL
        cdef const double *w_p = &w[0, 0] if w.shape[1] else NULL
        cdef double *sum_p = &s_sum[0] if s_sum.shape[0] else NULL
        with nogil:
            if self.single:
                fc_svm_solve_f32(&self.rows, &self.problem, &call, &self.state, &work,
                                 &active[0], n_active, step_p, &tol[0],
                                 &true_inv_C2[0, 0], &true_inv_C2[1, 0], w_p,
                                 sum_p, packed, &figures[0, 0])
            else:
                fc_svm_solve_f64(&self.rows, &self.problem, &call, &self.state, &work,
                                 &active[0], n_active, step_p, &tol[0],
                                 &true_inv_C2[0, 0], &true_inv_C2[1, 0], w_p,
                                 sum_p, packed, &figures[0, 0])
        release(work)
        if self.stopped is not None:
            raise self.stopped

    def interrupt(self):
        """Let solves that run in other threads end soon, by KeyboardInterrupt."""
        self.stopped = KeyboardInterrupt()

    def gaps(self, const int32_t[::1] active, const double[:, ::1] step,
             const double[:, ::1] w, double[:, ::1] out, *,
             const double[:, ::1] inv_C2, const uint8_t[::1] working):
        """Take the step and measure each active client at w; see fc_svm_gaps."""
        cdef fc_svm_call call
        cdef fc_svm_work work
        cdef int32_t n_active = <int32_t>active.shape[0]
        self.check(active, step, w, None, True, inv_C2, working, 0, 0)
        if not (out.shape[0] == n_active and out.shape[1] == w.shape[0]):
            raise ValueError("SVMCohort: array lengths disagree")
        if self.state.b_before == NULL and self.state.b != NULL and step is not None:
            raise ValueError("SVMCohort: a step needs b_before and s_before")
        if n_active == 0:
            return
        call.coupling = NULL
        call.inv_C2 = &inv_C2[0, 0]
        call.inv_C2_absent = &inv_C2[1, 0]
        call.working = &working[0]
        call.passes = 0
        call.renew = call.hand_on = False
        call.seed = 0
        call.exchange = call.first_client = 0
        call.stop = NULL
        work = self.allocate(False, False)
        cdef const double *step_p = &step[0, 0] if step is not None else NULL
        cdef const double *w_p = &w[0, 0] if w.shape[1] else NULL
        with nogil:
            if self.single:
                fc_svm_gaps_f32(&self.rows, &self.problem, &call, &self.state, &work,
                                &active[0], n_active, step_p, w_p, &out[0, 0])
            else:
                fc_svm_gaps_f64(&self.rows, &self.problem, &call, &self.state, &work,
                                &active[0], n_active, step_p, w_p, &out[0, 0])
        release(work)
