"""Calls into csrc/fc_dadil.c: lengths are checked here, values by the callers."""
from libc.stddef cimport size_t
from libc.stdint cimport int32_t


cdef extern from "fc_dadil.h" nogil:
    void fc_dadil_scatter(int32_t, int32_t, size_t, double, const double *,
                          const double *, const double *, const double *,
                          const int32_t *, const int32_t *, double *, double *,
                          double *)
    void fc_dadil_adam(size_t, double, double, const double *, double *, double *,
                       double *)


def scatter(double scale, const double[:, :, ::1] X, const double[:, ::1] B,
            const double[:, ::1] Q, const double[::1] alpha, const int32_t[:, ::1] s,
            const int32_t[::1] p, double[::1] g, double[:, :, ::1] dX,
            double[::1] dalpha):
    """Add the gradient of a quadratic loss through permutations, in place."""
    cdef Py_ssize_t K = X.shape[0], n = X.shape[1], d = X.shape[2]
    if not (dX.shape[0] == alpha.shape[0] == dalpha.shape[0] == s.shape[0] == K
            and dX.shape[1] == s.shape[1] == B.shape[0] == Q.shape[0] == n
            and p.shape[0] == n < 2**31 and K < 2**31
            and dX.shape[2] == B.shape[1] == Q.shape[1] == g.shape[0] == d):
        raise ValueError("scatter: array lengths disagree")
    if K == 0 or n == 0 or d == 0:
        return
    with nogil:
        fc_dadil_scatter(<int32_t>K, <int32_t>n, <size_t>d, scale, &X[0, 0, 0],
                         &B[0, 0], &Q[0, 0], &alpha[0], &s[0, 0], &p[0], &g[0],
                         &dX[0, 0, 0], &dalpha[0])


def adam(const double[::1] gradient, double[::1] x, double[::1] first,
         double[::1] second, double rate, double t):
    """Take step t of Adam, in place."""
    cdef Py_ssize_t m = x.shape[0]
    if not (gradient.shape[0] == first.shape[0] == second.shape[0] == m):
        raise ValueError("adam: array lengths disagree")
    if m == 0:
        return
    with nogil:
        fc_dadil_adam(<size_t>m, rate, t, &gradient[0], &x[0], &first[0], &second[0])
