"""Calls into csrc/fc_assign.c: lengths are checked here, values by the callers."""
from cython cimport floating
from libc.stddef cimport size_t
from libc.stdint cimport int32_t


cdef extern from "fc_assign.h" nogil:
    ctypedef struct fc_assign_work:
        pass

    fc_assign_work *fc_assign_work_new(int32_t)
    void fc_assign_work_free(fc_assign_work *)
    int fc_assign_f64(int32_t, size_t, const double *, bint, int32_t *, double *,
                      double *, double *, double *, fc_assign_work *)
    int fc_assign_f32(int32_t, size_t, const float *, bint, int32_t *, double *,
                      double *, double *, double *, fc_assign_work *)


def assign(const floating[:, :, ::1] C, bint warm, int32_t[:, ::1] s, double[:, ::1] u,
           double[:, ::1] v, double[::1] cost, double[::1] slack):
    """Solve problems one by one; return the first that is no problem, or -1."""
    cdef Py_ssize_t b = C.shape[0], n = C.shape[1], k, bad = -1
    cdef int status
    cdef fc_assign_work *work
    if not (C.shape[2] == n == s.shape[1] == u.shape[1] == v.shape[1] and n < 2**31
            and b == s.shape[0] == u.shape[0] == v.shape[0] == cost.shape[0]
            and slack.shape[0] == b):
        raise ValueError("assign: array lengths disagree")
    if b == 0 or n == 0:
        return -1
    work = fc_assign_work_new(<int32_t>n)
    if work == NULL:
        raise MemoryError
    with nogil:
        for k in range(b):
            if floating is double:
                status = fc_assign_f64(<int32_t>n, <size_t>n, &C[k, 0, 0], warm,
                                       &s[k, 0], &u[k, 0], &v[k, 0], &cost[k],
                                       &slack[k], work)
            else:
                status = fc_assign_f32(<int32_t>n, <size_t>n, &C[k, 0, 0], warm,
                                       &s[k, 0], &u[k, 0], &v[k, 0], &cost[k],
                                       &slack[k], work)
            if status < 0:
                bad = k
                break
    fc_assign_work_free(work)
    return bad
