"""Calls into csrc/fc_barycenter.c: lengths are checked here, values by the callers."""
from cython cimport floating
from libc.stddef cimport size_t
from libc.stdint cimport int32_t


cdef extern from "fc_barycenter.h" nogil:
    double fc_barycenter_spread(int32_t, int32_t, const double *, int32_t)
    void fc_barycenter_complete(size_t, size_t, double, const double *, double *)
    int fc_barycenter(int32_t, int32_t, const double *, const double *, int32_t,
                      int32_t, double, int32_t *, double *)
    void fc_barycenter_mean_f64(int32_t, int32_t, size_t, const double *,
                                const double *, const int32_t *, double *)
    void fc_barycenter_mean_f32(int32_t, int32_t, size_t, const float *,
                                const double *, const int32_t *, double *)


def spread(const double[:, ::1] gram, int32_t n_atoms, int32_t first):
    """Give the largest squared distance of the first atom's points to any other."""
    cdef Py_ssize_t m = gram.shape[0]
    cdef double largest
    if not (gram.shape[1] == m > 0 and n_atoms > 0 and m % n_atoms == 0
            and 0 <= first < n_atoms):
        raise ValueError("spread: array lengths disagree")
    with nogil:
        largest = fc_barycenter_spread(n_atoms, <int32_t>(m // n_atoms), &gram[0, 0],
                                       first)
    return largest


def complete(double[:, ::1] gram, const double[:, ::1] labels, double weight):
    """Add the labels' products, times a weight, and fill what is above the diagonal."""
    cdef Py_ssize_t m = gram.shape[0], c = labels.shape[0]
    if not (gram.shape[1] == m == labels.shape[1]):
        raise ValueError("complete: array lengths disagree")
    if m == 0:
        return
    with nogil:
        fc_barycenter_complete(<size_t>m, <size_t>c, weight,
                               &labels[0, 0] if c else NULL, &gram[0, 0])


def barycenter(const double[:, ::1] gram, const double[::1] weights, int32_t first,
               double tol, int32_t[:, ::1] s, double[::1] objective):
    """Assign and average in turns; return how many, or a negative status."""
    cdef Py_ssize_t K = s.shape[0], n = s.shape[1]
    cdef int turns
    if not (gram.shape[0] == gram.shape[1] == K * n > 0 and K * n < 2**31
            and weights.shape[0] == K and 0 <= first < K
            and 0 < objective.shape[0] < 2**31):
        raise ValueError("barycenter: array lengths disagree")
    with nogil:
        turns = fc_barycenter(<int32_t>K, <int32_t>n, &gram[0, 0], &weights[0], first,
                              <int32_t>objective.shape[0], tol, &s[0, 0], &objective[0])
    if turns == -2:
        raise MemoryError
    return turns


def gathered_mean(const floating[:, :, ::1] X, const double[::1] weights,
                  const int32_t[:, ::1] s, double[:, ::1] out):
    """Write the weighted mean of the points s of the atoms."""
    cdef Py_ssize_t K = X.shape[0], n = X.shape[1], d = X.shape[2]
    if not (s.shape[0] == K == weights.shape[0] and s.shape[1] == n == out.shape[0]
            and out.shape[1] == d and K > 0):
        raise ValueError("gathered_mean: array lengths disagree")
    if n == 0 or d == 0:
        return
    with nogil:
        if floating is double:
            fc_barycenter_mean_f64(<int32_t>K, <int32_t>n, <size_t>d, &X[0, 0, 0],
                                   &weights[0], &s[0, 0], &out[0, 0])
        else:
            fc_barycenter_mean_f32(<int32_t>K, <int32_t>n, <size_t>d, &X[0, 0, 0],
                                   &weights[0], &s[0, 0], &out[0, 0])
