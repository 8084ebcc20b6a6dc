"""Calls into csrc/fc_heads.c: lengths are checked here, values by the callers."""
from libc.stdint cimport int32_t, int64_t
from libc.stdlib cimport free, malloc


cdef extern from "fc_heads.h" nogil:
    ctypedef int fc_head_loss
    ctypedef struct fc_head_rows:
        int32_t n_heads
        int32_t n_components
        int32_t n_outputs
        const int64_t *starts
        const double *codes
        const double *target
        const double *weight
        const double *l2

    size_t fc_head_work_size(int32_t, int32_t, int64_t)
    void fc_head_steps(const fc_head_rows *, fc_head_loss, int32_t, double *, double *,
                       double *)
    int fc_head_ridge(const fc_head_rows *, double *, double *, double *)


cdef fc_head_rows bind(const int64_t[::1] starts, const double[:, ::1] codes,
                       const double[::1] target, const double[::1] weight,
                       const double[::1] l2, double[:, :, ::1] A,
                       double[:, ::1] c) except *:
    cdef fc_head_rows rows
    cdef Py_ssize_t n = codes.shape[0], K = l2.shape[0]
    if not (starts.shape[0] == K + 1 and target.shape[0] == weight.shape[0] == n
            and A.shape[0] == c.shape[0] == K and A.shape[1] == codes.shape[1]
            and A.shape[2] == c.shape[1] and A.shape[2] > 0 and A.shape[1] > 0
            and starts[0] == 0 and starts[K] == n):
        raise ValueError("heads: array lengths disagree")
    rows.n_heads, rows.n_components = <int32_t>K, <int32_t>A.shape[1]
    rows.n_outputs = <int32_t>A.shape[2]
    rows.starts, rows.l2 = &starts[0], &l2[0]
    rows.codes, rows.target, rows.weight = &codes[0, 0], &target[0], &weight[0]
    return rows


cdef double *room(const int64_t[::1] starts, Py_ssize_t r, Py_ssize_t C) except NULL:
    cdef int64_t most = 0
    cdef Py_ssize_t i
    for i in range(starts.shape[0] - 1):
        if starts[i + 1] < starts[i]:
            raise ValueError("heads: starts fall, must rise")
        most = max(most, starts[i + 1] - starts[i])
    cdef size_t size = fc_head_work_size(<int32_t>r, <int32_t>C, most)
    cdef double *work = <double *>malloc(size * sizeof(double))
    if work == NULL:
        raise MemoryError
    return work


def steps(int loss, const int64_t[::1] starts, const double[:, ::1] codes,
          const double[::1] target, const double[::1] weight, const double[::1] l2,
          double[:, :, ::1] A, double[:, ::1] c, int32_t n_steps):
    """Take gradient steps of each head in place."""
    cdef fc_head_rows rows
    cdef double *work
    if l2.shape[0] == 0 or codes.shape[0] == 0:
        return
    rows = bind(starts, codes, target, weight, l2, A, c)
    work = room(starts, A.shape[1], A.shape[2])
    with nogil:
        fc_head_steps(&rows, <fc_head_loss>loss, n_steps, &A[0, 0, 0], &c[0, 0], work)
    free(work)


def ridge(const int64_t[::1] starts, const double[:, ::1] codes,
          const double[::1] target, const double[::1] weight, const double[::1] l2,
          double[:, :, ::1] A, double[:, ::1] c):
    """Minimise each head's squared loss in place; return how many had no minimum."""
    cdef fc_head_rows rows
    cdef double *work
    cdef int failed
    if l2.shape[0] == 0 or codes.shape[0] == 0:
        return 0
    rows = bind(starts, codes, target, weight, l2, A, c)
    if A.shape[2] != 1:
        raise ValueError("heads: ridge has one output")
    work = room(starts, A.shape[1], 1)
    with nogil:
        failed = fc_head_ridge(&rows, &A[0, 0, 0], &c[0, 0], work)
    free(work)
    return failed
